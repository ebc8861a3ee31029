"""Leaderboards: many accounts on one holdout, with a ladder for each team or for each rank."""

from __future__ import annotations

from ladderholdout.leaderboard.board import Leaderboard
from ladderholdout.leaderboard.finals import Finals, FinalStanding
from ladderholdout.leaderboard.rounds import Collected, Round
from ladderholdout.leaderboard.standings import Standing, Standings

__all__ = [
    "Collected",
    "FinalStanding",
    "Finals",
    "Leaderboard",
    "Round",
    "Standing",
    "Standings",
]
