"""Taking back a submission that was an accident, on record."""

from __future__ import annotations

from dataclasses import dataclass

from ladderholdout.arguments import text, whole
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.views import score_line, score_of
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.rules import rules_of
from ladderholdout.ledger.transaction import Transaction
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
    number, reason = whole("number", number), reason_in(reason)
    if rules_of(ladder.settings).mechanism.needs_account:
        raise HoldoutConflict(
            "A ladder for each rank compares accounts with each other, so that no submission of "
            "one can be withdrawn. Retire the holdout, or go on."
        )
    if number > ladder.submissions:
        allowed = f"the number of one of the {ladder.submissions} submissions of this ladder"
        raise InvalidArgument("number", allowed, "a larger one", "history() lists them.")
    entry = tx.submission(ladder.id, number)
    first = entry.repeat_of or entry.number
    if (before := ladder.why_withdrawn(entry)) is not None:
        raise HoldoutConflict(f"Submission {first} is withdrawn already: {before}")
    # Noise that is drawn anew for the same predictions could be averaged away.
    rule = rules_of(ladder.settings).mechanism
    after = tx.withdraw(ladder, first, reason, again=not (rule.noisy or rule.redraws))
    done, again = after.withdrawn[-1], tuple[int, ...]()
    if done.replaced and done.again:
        since = tx.entries(ladder.id, after=done.number, limit=done.until - done.number)
        others = (one for one in since if one.repeat_of is None and not one.improved)
        again = tuple(one.number for one in others if after.why_withdrawn(one) is None)
    score = score_of(after.released, metric)
    return Withdrawn(first, reason, after.incumbent, score, again)


def reason_in(reason: object) -> str:
    """Return a reason that is put on record, if it is one."""
    return text("reason", reason, 1000, "Auditors will read it: write what happened.")


def withdraw_note(tx: Transaction, ladder: LadderRecord, by: str, reason: str) -> None:
    """Withdraw a note that the rows come in groups."""
    notes = tuple(tx.fold(ladder.holdout_id).grouped())
    if by not in notes:
        raise InvalidArgument("by", f"one of the notes of groups on record, {notes}", by)
    tx.note(ladder.holdout_id, "grouped", by=by, withdrawn=reason)
