"""Taking back a submission that was an accident, on record."""

from __future__ import annotations

from dataclasses import dataclass

from ladderholdout.errors import HoldoutConflict, InvalidArgument, InvalidSubmission
from ladderholdout.guard.shown.views import score_line, score_of
from ladderholdout.ledger import First, LadderRecord, Transaction
from ladderholdout.ledger.replay import rules_of
from ladderholdout.metrics import Metric


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What became of a ladder by the withdrawal of a submission.

    Attributes
    ----------
    submission : int
        The one that was withdrawn.
    reason : str
    incumbent : int or None
        The submission behind the released score now; None where the ladder has none.
    score : float or None
        The released score now; None without an incumbent, and where the ladder releases no
        values.
    again : tuple of int
        Submissions that were compared with the withdrawn one and did not improve on it. Submit
        them once more: each is a query again.

    Examples
    --------
    >>> Withdrawn(7, "trained on the holdout", 3, 0.91, (8, 9))
    Withdrawn(submission=7, reason='trained on the holdout', incumbent=3, score=0.91, again=(8, 9))
    """

    submission: int
    reason: str
    incumbent: int | None
    score: float | None
    again: tuple[int, ...]

    def lines(self) -> list[tuple[str, str]]:
        """Return it as (what, value) pairs, for printing."""
        now = "none" if self.incumbent is None else f"submission {self.incumbent}"
        lines = [
            ("withdrawn", f"submission {self.submission}: {self.reason}"),
            ("incumbent", now),
            ("released score", score_line(self.score)),
        ]
        if self.again:
            lines.append(("submit again", ", ".join(map(str, self.again))))
        return lines


def withdraw(
    tx: Transaction, ladder: LadderRecord, metric: Metric, number: int, reason: str
) -> Withdrawn:
    """Withdraw a submission of a ladder that was read under lock; see `holdout.owner.withdraw`."""
    if rules_of(ladder.settings).mechanism.needs_account:
        raise HoldoutConflict(
            "A ladder for each rank compares accounts with each other, so that no submission of "
            "one can be withdrawn. Retire the holdout, or go on."
        )
    if number > ladder.submissions:
        allowed = f"the number of one of the {ladder.submissions} submissions of this ladder"
        raise InvalidArgument("number", allowed, "a larger one", "history() lists them.")
    (entry,) = tx.entries(ladder.id, after=number - 1, limit=1)
    first = entry.repeat_of or entry.number
    if entry.withdrawn is not None:
        raise HoldoutConflict(f"Submission {first} is withdrawn already: {entry.withdrawn}")
    n = tx.holdout(ladder.holdout_id).n_ladder
    done = tx.withdrawals.add(ladder, first, reason, n)
    after = tx.ladder(ladder.id)
    again: tuple[int, ...] = ()
    if done.replaced and done.again:
        since = tx.entries(ladder.id, after=done.number, limit=done.until - done.number)
        others = (entry for entry in since if entry.repeat_of is None and entry.withdrawn is None)
        again = tuple(entry.number for entry in others if not entry.improved)
    score = score_of(tx.released(after), metric)
    return Withdrawn(first, reason, after.incumbent, score, again)


def is_withdrawn(first: First | None, ladder: LadderRecord) -> bool:
    """Return whether predictions were withdrawn before; refuse them where there is no incumbent."""
    if first is None or first.withdrawn is None:
        return False
    if ladder.incumbent is None:
        raise InvalidSubmission(
            "predictions",
            "others than those of a submission that was withdrawn, while there is no incumbent",
            f"those of submission {first.number}",
            f"It was withdrawn for this reason: {first.withdrawn}",
        )
    return True
