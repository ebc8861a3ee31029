"""What of a ladder is copied into trackers, and when raw scores may be.

The ledger is the truth and a tracker's record a copy. This is where the copy is cut: a
`Point` holds a raw score only where the caller asked for it, and nobody but the writer of
an audit experiment has reason to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ladderholdout.guard.shown.record_views import shown_estimate, submission_of
from ladderholdout.guard.shown.views import score_of
from ladderholdout.ledger import AuditEntry, Entry, Head, LadderRecord, Transaction
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
    entries: tuple[Entry | AuditEntry, ...] = ()
    if ladder.submissions > after:
        entries = (tx.audit_entries if raw else tx.entries)(ladder.id, after=after, limit=limit)
    queries = tx.reserve.all(ladder.holdout_id)
    reserve = {query.submission: query.risk for query in queries if query.ladder_id == ladder.id}
    # As the status has it: none where there is none any more.
    shown_now = shown_estimate(tx, ladder, metric)
    estimates = {} if shown_now is None else {ladder.incumbent: shown_now.score}
    points = tuple(_point(entry, metric, reserve, estimates) for entry in entries)
    shown = tx.shown_risks(ladder)
    later = -1 if shown is None else len(shown), len(reserve), len(tx.batches.estimates_of(ladder))
    return Unsent(points, tx.head(ladder.holdout_id), later)


def _point(
    one: Entry | AuditEntry,
    metric: Metric,
    reserve: Mapping[int, float | None],
    estimates: Mapping[int | None, float | None],
) -> Point:
    entry = one if isinstance(one, Entry) else one.entry
    shown = submission_of(entry, metric)
    return Point(
        entry.number,
        entry.time,
        shown.improved,
        shown.score,
        score_of(reserve.get(entry.number), metric),
        estimates.get(entry.number),
        None if isinstance(one, Entry) else metric.to_score(one.raw_risk),
    )
