"""From predictions to an answer: one transaction for each submission."""

from __future__ import annotations

from ladderholdout.guard.query.rounds import Answered, close_round, collect
from ladderholdout.guard.query.seen import note_answer, note_shown, refuse_beyond, settle
from ladderholdout.guard.query.submission import (
    Answer,
    Guard,
    LedgerLadder,
    Measured,
    announce,
    make_guard,
)

__all__ = [
    "Answer",
    "Answered",
    "Guard",
    "LedgerLadder",
    "Measured",
    "announce",
    "close_round",
    "collect",
    "make_guard",
    "note_answer",
    "note_shown",
    "refuse_beyond",
    "settle",
]
