"""What of a ladder is copied into trackers, and when raw scores may be.

The ledger is the truth and a tracker's record a copy. This is where the copy is cut: a
`Point` holds a raw score only where the caller asked for it, and nobody but the writer of
an audit experiment has reason to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from ladderholdout.guard.shown.record_views import estimates_of, shown_estimate, submission_of
from ladderholdout.guard.shown.views import score_of
from ladderholdout.ledger.events import Submitted
from ladderholdout.ledger.fold import Head, LadderRecord
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric

RAW_POLICIES = ("live", "sealed")
"""When raw scores may leave the ledger: as they come, or not before an audit."""


@dataclass(frozen=True, slots=True)
class Point:
    """One submission as a tracker draws it, in the metric's own sign.

    Attributes
    ----------
    number : int
        The submission's, on the axis of steps.
    time : datetime
        In UTC.
    improved : bool
        Whether it became the incumbent.
    released : float or None
        The score that was released after it; None if the ladder releases no values and this
        one was not asked for.
    reserve : float or None
        The score on the reserve's rows, where a query of them was spent on it.
    estimate : float or None
        The corrected score (`LadderHoldout.estimate`), where it was asked for.
    raw : float or None
        The empirical score, for an auditor's eyes; None where it was not asked for.
    """

    number: int
    time: datetime
    improved: bool
    released: float | None
    reserve: float | None
    estimate: float | None
    raw: float | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Unsent:
    """The submissions that a copy of a ladder lacks, and the end of the holdout's chain.

    `head` is None where the ledger is behind a server, which does not show it.

    `later` changes whenever something was shown of a submission after it was made: its score,
    on demand or by an audit, a query of the reserve, or its corrected score.
    """

    points: tuple[Point, ...]
    head: Head | None
    later: tuple[int, int, int]


def unsent(
    tx: Transaction, ladder: LadderRecord, metric: Metric, *, after: int, raw: bool, limit: int
) -> Unsent:
    """Read the next submissions of a ladder after a number.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord
    metric : Metric
    after : int
    raw : bool
        Whether the points are for an auditor's eyes.
    limit : int
        At most so many: there may be millions.

    Returns
    -------
    Unsent
    """
    entries: tuple[Submitted, ...] = ()
    if ladder.submissions > after:
        entries = tx.entries(ladder.id, after=after, limit=limit)
    known = tx.fold(ladder.holdout_id)
    reserve = {one.submission: one.risk for _, one in known.looks if one.ladder == ladder.id}
    shown_now = shown_estimate(tx, ladder, metric)
    estimates = {} if shown_now is None else {ladder.incumbent: shown_now.score}
    points = []
    for entry in entries:
        submission = submission_of(entry, ladder, metric)
        points.append(
            Point(
                entry.number,
                entry.time,
                submission.improved,
                metric.to_score(entry.risk) if raw else submission.score,
                score_of(reserve.get(entry.number), metric),
                estimates.get(entry.number),
                metric.to_score(entry.raw) if raw else None,
            )
        )
    shown = -1 if ladder.shows_scores else len(ladder.shown_risks())
    later = shown, len(reserve), len(estimates_of(tx, ladder))
    return Unsent(tuple(points), tx.head(ladder.holdout_id), later)
