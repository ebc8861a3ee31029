"""Certificates of the accounts of a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.guard import (
    Bars,
    Level,
    LocalLadder,
    ScoreCertificate,
    certificate_of,
    certificates_alike,
    no_certificate,
)
from ladderholdout.leaderboard.rules import kind_of
from ladderholdout.leaderboard.standings import Entrant
from ladderholdout.ledger import Transaction

MANY = 100
"""On boards with more accounts all standings have certificates at the price of the latest one."""


def all_certified(
    home: LocalLadder, tx: Transaction, scored: Sequence[Entrant], level: Level, bars: Bars
) -> list[ScoreCertificate]:
    """Certify all accounts: each by itself, or many at the price of the latest."""
    weights: Any = None
    if kind_of(home.facts.rules.mechanism) == "team" and len(scored) > MANY:
        try:
            weights = home.guard().part.weights
        except (VaultError, InvalidArgument):
            return [no_certificate(level.confidence)] * len(scored)
        latest = max(scored, key=lambda entrant: entrant.id).ladder
        ladders = [entrant.ladder for entrant in scored if entrant.ladder is not None]
        assert latest is not None
        alike = certificates_alike(tx, ladders, latest, home.metric, weights, level, bars)
        if alike is not None:
            return alike
    return [certified(home, tx, entrant, level, bars) for entrant in scored]


def certified(
    home: LocalLadder, tx: Transaction, entrant: Entrant, level: Level, bars: Bars | None = None
) -> ScoreCertificate:
    """Certify what was released to an account."""
    assert entrant.ladder is not None
    try:
        weights = home.guard().part.weights
    except (VaultError, InvalidArgument):  # the standings are shown all the same
        return no_certificate(level.confidence)
    return certificate_of(tx, entrant.ladder, home.metric, weights, level, bars)
