"""What the owner of a holdout does with it: withdrawals, rules, the end, and the audit."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

from ladderholdout.arguments import within
from ladderholdout.guard import commands
from ladderholdout.guard.certificate import Health
from ladderholdout.guard.commands import Withdrawn
from ladderholdout.guard.ladder import LocalLadder, beside_ledger, reason_in, withdraw_note
from ladderholdout.guard.open_ladder import HasLadder, ladder_of
from ladderholdout.guard.record_views import health_of
from ladderholdout.guard.views import Status
from ladderholdout.metrics.arrays import LARGEST

if TYPE_CHECKING:
    from ladderholdout.audit import Audit
    from ladderholdout.ledger.log import Progress


class Owner:
    """The owner's verbs of a holdout, as ``holdout.owner``.

    Each of them is put on record, and none of them can be taken back.

    Parameters
    ----------
    holdout : LadderHoldout

    Examples
    --------
    >>> holdout.owner.retire().retired is None
    False
    """

    def __init__(self, holdout: HasLadder) -> None:
        self._holdout = holdout

    def _ladder(self, what: str) -> LocalLadder:
        return beside_ledger(ladder_of(self._holdout, several=True), what)

    def withdraw(self, number: int, *, reason: str) -> Withdrawn:
        """Take back a submission that was an accident, such as a model trained on the holdout.

        It is put on record with the reason, and nothing is removed: what its release revealed
        is counted by all later certificates, and the releases of a budget stay spent. If it is
        the incumbent, the ladder goes back to the last incumbent before it. Submissions that
        were compared with it and did not improve are queries again when they are submitted once
        more (with a rule that adds noise they keep their answer). Its own predictions are
        answered like those of a submission that does not improve from then on.

        Parameters
        ----------
        number : int
            As in the release or the history; that of a repeat means what it repeats.
        reason : str
            For those who read the record later.

        Returns
        -------
        Withdrawn
            The incumbent and the released score after it. Of several submissions in one batch
            that improved one after the other, as in a training run, only what preceded the
            batch was kept to go back to; where nothing was, the ladder has no incumbent and the
            next submission improves.

        Raises
        ------
        InvalidArgument
            There is no such submission, or no reason.
        HoldoutConflict
            It was withdrawn before, the holdout is retired, or the ladder is one of ranks.
        LedgerError
            The ledger cannot be written; nothing was changed.

        Examples
        --------
        >>> leaked = holdout.submit(model)
        >>> withdrawn = holdout.owner.withdraw(leaked.submission, reason="trained on these rows")
        >>> withdrawn.incumbent is None
        True
        """
        asked = commands.Withdraw(submission=number, reason=reason)
        return self._ladder("That is done on the server's pages, or").execute(asked)

    def withdraw_note(self, by: str, *, reason: str) -> None:
        """Withdraw a note that the rows come in groups: certificates go without its doubt again.

        The note and the reason stay on record, and nobody can leave the same note again.

        Parameters
        ----------
        by : str
            The note; that of an account ends with ", stated by" and its name. The error for any
            other text names the notes on record.
        reason : str
            For those who read the record later.

        Raises
        ------
        InvalidArgument
            There is no such note, or no reason.
        HoldoutConflict
            The holdout is behind a server.

        Examples
        --------
        >>> holdout.owner.withdraw_note("KFold, stated by Ada", reason="none")
        Traceback (most recent call last):
        ladderholdout.errors.InvalidArgument: by must be one of the notes of groups on...
        """
        reason = reason_in(reason)
        ladder = self._ladder("That is for the owner:")
        ladder.write(partial(withdraw_note, by=str(by), reason=reason))

    def retire(self) -> Status:
        """Take no more submissions on this holdout, through any ladder, permanently.

        Its history, status and audit stay, and its rows are known as used ever after.

        Returns
        -------
        Status

        Examples
        --------
        >>> holdout.owner.retire().retired is None
        False
        """
        ladder = self._ladder("That is done on the server's pages, or")
        ladder.execute(commands.Retire(name=ladder.facts.name))
        return ladder.execute(commands.Status())

    def forget(self) -> None:
        """Take back the registration of a holdout that was never queried, such as a slip.

        Its name is free again, and its rows are like rows that were never registered: give them
        anew, with the groups that were missing. The record of the registration stays in the
        ledger under a name of its own; copies of the rows are removed.

        Raises
        ------
        HoldoutConflict
            Something was asked of it: a submission, a comparison, an estimate, an audit, or
            another one; or it is one of several blocks.

        Examples
        --------
        >>> holdout.owner.forget()
        """
        name = shlex.quote(ladder_of(self._holdout, several=True).facts.name)
        self._ladder(f"A registration is taken back where the ledger is (forget {name})").forget()

    def spent_at(self, width: float | None) -> Health:
        """State from which width of its certificate on the rows are used up.

        The rule is on record, and each `health` of the holdout applies it, for everybody and
        through a server as well. It is for this metric, and stays when fresh rows take the place
        of these. It stops nobody: it shows when `replenish` is due.

        Parameters
        ----------
        width : float or None
            In the metric's own units; None takes the rule back.

        Returns
        -------
        Health
            By that rule.

        Raises
        ------
        InvalidArgument
            The width is no positive number.
        HoldoutConflict
            The holdout is behind a server.

        Examples
        --------
        >>> health = holdout.owner.spent_at(0.1)
        >>> holdout.health().spent_at
        0.1
        """
        ladder = ladder_of(self._holdout)
        widths = {ladder.metric.name: None if width is None else within("width", width, LARGEST)}
        self._ladder("That is for the owner:").write(
            lambda tx, record: tx.note(record.holdout_id, "spent", widths=widths)
        )
        return health_of(ladder)

    def audit(
        self,
        fresh: Any = None,
        model: Any = None,
        *,
        confidence: float = 0.95,
        progress: Progress | None = None,
    ) -> Audit:
        """Open the raw scores, knowingly: the ladder is marked as opened from now on.

        Parameters
        ----------
        fresh : tuple of (X, y) or (X, y, sample_weight), optional
            Rows that steered nothing, to hold the released score against.
        model : object or mapping, optional
            Needed with `fresh`: the released model, fitted, or its predictions for the fresh
            rows; or a mapping from numbers of submissions to such.
        confidence : float, default=0.95
            Of the intervals, and one minus the level of the tests.
        progress : callable, optional
            Called with how many submissions were read, and of how many.

        Returns
        -------
        Audit
            Raw beside released for every submission, and what that comes to.

        Raises
        ------
        InvalidArgument, OverlapError
            The fresh rows or the models are refused; nothing was opened.
        LedgerError, VaultError
            The record or the holdout's rows cannot be read.

        Examples
        --------
        >>> release = holdout.submit(model)
        >>> audit = holdout.owner.audit()
        >>> [entry.number for entry in audit.submissions]
        [1]
        """
        from ladderholdout.audit import open_audit  # it reads SciPy's functions when it is imported

        return open_audit(self._holdout, fresh, model, confidence, progress)
