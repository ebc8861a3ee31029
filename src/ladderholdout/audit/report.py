"""From the ledger to a frozen report: the only place that shows raw scores."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ladderholdout.holdout.views import Submission, submission_of
from ladderholdout.ledger import Ledger
from ladderholdout.metrics import Metric


@dataclass(frozen=True, slots=True)
class AuditedSubmission:
    """One submission with its raw score beside what was released.

    Attributes
    ----------
    submission : Submission
        As the history shows it.
    raw : float
        The empirical score on the holdout, in the metric's own sign.
    """

    submission: Submission
    raw: float


@dataclass(frozen=True, slots=True)
class Audit:
    """The opened record of one ladder.

    Attributes
    ----------
    holdout, metric : str
    opened : datetime
        Since when the raw scores are known; later submissions can not be certified.
    submissions : tuple of AuditedSubmission
    """

    holdout: str
    metric: str
    opened: datetime
    submissions: tuple[AuditedSubmission, ...]

    def __str__(self) -> str:
        head = f"{self.holdout}, {self.metric}, opened {self.opened:%Y-%m-%d %H:%M} UTC"
        lines = [f"{'number':>6}  {'raw':>10}  {'released':>10}"]
        for one in self.submissions:
            said = one.submission
            mark = "improved" if said.improved else ""
            mark = f"repeat of {said.repeat_of}" if said.repeat_of else mark
            lines.append(
                f"{said.number:>6}  {one.raw:>10.6g}  {said.score:>10.6g}  {mark}".rstrip()
            )
        return "\n".join([head, *lines])


def open_audit(ledger: Ledger, ladder_id: int, metric: Metric) -> Audit:
    """Mark a ladder as opened and read its raw scores.

    Parameters
    ----------
    ledger : Ledger
    ladder_id : int
    metric : Metric
        Brings risks back to scores.

    Returns
    -------
    Audit
    """
    with ledger.write() as tx:
        # Marked before anything is read: whoever saw raw scores is known to have seen them.
        ladder = tx.mark_opened(ladder_id)
        name = tx.holdout(ladder.holdout_id).name
        entries = tx.audit_entries(ladder_id)
    assert ladder.opened is not None
    submissions = tuple(
        AuditedSubmission(submission_of(one.entry, metric), metric.to_score(one.raw_risk))
        for one in entries
    )
    return Audit(name, metric.name, ladder.opened, submissions)
