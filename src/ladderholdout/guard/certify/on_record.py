"""What is worked out from the rows: put on record, then shown; the same way for every kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ladderholdout.certificates.comparisons import Difference
from ladderholdout.certificates.score_intervals import ScoreInterval
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.query import Guard, LedgerLadder
from ladderholdout.ledger.events import FinalsHeld, ReserveQueried, Shown
from ladderholdout.ledger.fold import LadderRecord, refuse_retired
from ladderholdout.ledger.transaction import Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Something that is asked for and not on record.

    Attributes
    ----------
    about : tuple
        All that the answer depends on: where it is another one by the time that the answer is
        known, nothing is put on record and the question is asked again.
    work : callable
        Works the answer out.
    """

    about: tuple[Any, ...]
    work: Callable[[], Shown | ReserveQueried | FinalsHeld]


def on_record(
    ladder: LedgerLadder, ask: Callable[[Transaction, LadderRecord, Guard], T | Question]
) -> T:
    """Return what is on record; else work it out, put it on record, and return it.

    Parameters
    ----------
    ladder : LedgerLadder
    ask : callable
        Returns what is on record, or a `Question`; it reads the ledger and changes nothing.

    Returns
    -------
    object
        What `ask` returned that is no `Question`.
    """
    with without_frames:
        guard = ladder.guard()
        while True:
            asked = ladder.read(lambda tx, record: ask(tx, record, guard))
            if not isinstance(asked, Question):
                return asked
            version = guard.labelled.version
            with without_autologging():  # it takes its time, and nobody else should wait for it
                answer = asked.work()
            if not ladder.write(
                lambda tx, record: _record(tx, record, ask, guard, asked, answer, version)  # noqa: B023
            ):
                guard.reload()


def _record(
    tx: Transaction,
    ladder: LadderRecord,
    ask: Callable[[Transaction, LadderRecord, Guard], Any],
    guard: Guard,
    asked: Question,
    answer: Shown | ReserveQueried | FinalsHeld,
    version: int,
) -> bool:
    """Record an answer unless something changed meanwhile; False where labels did."""
    known = tx.hold(ladder.holdout_id)
    if known.labels_version != version:
        return False
    again = ask(tx, ladder, guard)
    if isinstance(again, Question) and again.about == asked.about:
        if not isinstance(answer, Shown):
            refuse_retired(known.name, known.retired)
        tx.add(ladder.holdout_id, answer)
    return True


def to_show(what: str, ladder: int, found: ScoreInterval | Difference, **more: Any) -> Shown:
    """Return the event of an interval that was worked out; an infinite end is None there."""
    low, high = (float(end) if math.isfinite(end) else None for end in (found.low, found.high))
    return Shown(
        what=what,
        ladder=ladder,
        confidence=found.confidence,
        low=low,
        high=high,
        bound=found.bound,
        log_count=found.log_count,
        log_values=found.log_values,
        **more,
    )
