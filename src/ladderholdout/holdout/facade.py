"""`LadderHoldout`: what people import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from ladderholdout.errors import LadderHoldoutError
from ladderholdout.holdout import registration
from ladderholdout.holdout.apart import share
from ladderholdout.holdout.certifying import CertifiedHandle
from ladderholdout.holdout.choices import (
    Wish,
    asked_for,
    choice,
    default_mechanism,
    folder,
    going_on,
    metric_for,
    rows_of,
    rule,
    text,
)
from ladderholdout.holdout.context import describe_estimator, jsonable
from ladderholdout.holdout.guard import Origin, make_guard
from ladderholdout.holdout.handle import SEARCH_POLICIES
from ladderholdout.holdout.reserving import ReserveHandle
from ladderholdout.holdout.studies import StudyHandle
from ladderholdout.holdout.tracking import TrackedHandle
from ladderholdout.holdout.views import (
    Release,
    Status,
    Submission,
    html_table,
    status_of,
    submission_of,
)
from ladderholdout.ledger import Access, Ledger, resolve_url, shown
from ladderholdout.mechanisms import Mechanism
from ladderholdout.mechanisms.arithmetic import whole
from ladderholdout.metrics import Metric

if TYPE_CHECKING:
    from ladderholdout.audit import Audit


class LadderHoldout(StudyHandle, TrackedHandle, CertifiedHandle, ReserveHandle):
    """A holdout that can be looked at as often as you like.

    The first call with some rows registers them in the ledger; any later one, in whatever
    notebook, goes on where the ladder stood. What is held is a handle: it pickles to a few
    hundred bytes, deep-copies to itself, and is itself the scorer for scikit-learn.

    Parameters
    ----------
    X : array-like, DataFrame or sparse matrix, shape (n, n_features)
        The holdout's rows, kept from all training.
    y : array-like, shape (n,)
        Their labels or target values.
    scoring : str or Metric, optional
        A metric's name as in scikit-learn, or a `Metric`. Needed for a new ladder.
    name : str, optional
        What to call the holdout; by default its fingerprint's first letters.
    mechanism : Mechanism, optional
        The rule that answers. By default `PricedLadder` where losses are 0 or 1 and
        `ParameterFreeLadder` for other means of losses (with a reserve and a range of the
        loss, for both, `SimplifiedLadder` with a step of 1/n); `BayesBootLadder` for other
        named metrics, and `Ladder` for slow ones and for those of your own.
    account : str, default="default"
        Whose ladder this is. All accounts on one holdout count together.
    ladder : str, default="main"
        Which of the account's ladders on this holdout.
    budget : int, optional
        How many releases the ladder may give in all.
    sample_weight : array-like, shape (n,), optional
        Weights of the holdout's rows.
    classes : array-like, optional
        All class labels that predictions may hold, where `y` lacks some.
    loss_range : tuple of (0, float), optional
        For unbounded losses: they are clipped to it.
    feedback : {"auto", "penalised", "incumbent"}, default="auto"
        What a search is told of a model that did not improve (see `feedback`). A ladder that
        tells no values takes "auto" alone, and tells how many improved.
    overlap : {"auto", "warn", "error", "ignore"}, default="auto"
        What to do about rows that were seen elsewhere: by default warn, and refuse from
        half of the holdout on.
    ledger : path, str or None
        A file, an SQLAlchemy URL or ``"memory"``; by default ``LADDERHOLDOUT_LEDGER``, or
        one file in the user's data folder.
    vault : path, URL, bool or None
        Folder of the private copy of the rows, by default beside the ledger, or a URL that
        fsspec knows (``s3://bucket/vault``); False keeps no copy, and the rows travel with the
        handle. A process that finds the vault elsewhere is told so by ``LADDERHOLDOUT_VAULT``.
    reserve : float, optional
        Share of the rows, in (0, 1), that no ladder measures: a secret draw among them, kept
        for `certify`. Stated when the holdout is registered, and its own for good; predictions
        are submitted for all rows as ever.

    Raises
    ------
    InvalidArgument
        An argument is outside of what is allowed.
    HoldoutConflict
        The ledger knows this ladder under other settings.
    OverlapError
        Half of the rows or more stand in another holdout.
    LedgerError, VaultError
        The record or the rows cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
    ...                         ledger="memory", name="tiny")
    >>> holdout.submit([0, 1, 1, 1])
    Release(score=0.75, improved=True, submission=1, repeat=False, releases_left=None)
    >>> holdout.submit([0, 0, 1, 1]).score
    0.75
    """

    _default = staticmethod(default_mechanism)

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        *,
        scoring: str | Metric | None = None,
        name: str | None = None,
        mechanism: Mechanism | None = None,
        account: str = "default",
        ladder: str = "main",
        budget: int | None = None,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        loss_range: tuple[float, float] | None = None,
        feedback: str = "auto",
        overlap: str = "auto",
        ledger: str | os.PathLike[str] | None = None,
        vault: str | os.PathLike[str] | bool | None = None,
        reserve: float | None = None,
    ) -> None:
        wish = Wish(
            name=None if name is None else text("name", name),
            account=text("account", account),
            ladder=text("ladder", ladder),
            metric=metric_for(scoring, loss_range),
            mechanism=None if mechanism is None else rule(mechanism),
            budget=None if budget is None else whole("budget", budget),
            classes=classes,
            overlap=choice("overlap", overlap, registration.OVERLAP_POLICIES),
            vault=None if vault is None else folder(vault),
            reserve=None if reserve is None else share(reserve),
            default=self._default,
        )
        feedback = choice("feedback", feedback, SEARCH_POLICIES)
        rows = rows_of(X, y, sample_weight)
        store = Ledger(resolve_url(ledger), create=True)
        found = registration.open_rows(store, rows, wish)
        self._hold(store.url, found.ladder, found.metric, feedback, overlap)
        guard = make_guard(store, found.holdout, found.ladder, found.metric, rows, found.hashes)
        self._order, self._foreign = guard.order, found.foreign
        self._rows = rows if found.holdout.vault_path is None else None
        self._keep(guard)

    @classmethod
    def open(
        cls,
        name: str,
        *,
        scoring: str | Metric | None = None,
        account: str = "default",
        ladder: str = "main",
        feedback: str = "auto",
        overlap: str = "auto",
        ledger: str | os.PathLike[str] | None = None,
    ) -> LadderHoldout:
        """Go on with a registered holdout by its name alone.

        Parameters
        ----------
        name : str
            As it was registered.
        scoring : Metric, optional
            Only needed for a metric of your own: the ledger keeps its name.
        account, ladder, feedback, overlap, ledger
            As for the class.

        Returns
        -------
        LadderHoldout

        Raises
        ------
        UnknownHoldout
            The ledger holds no such holdout or ladder.
        LedgerError
            The ledger cannot be read.
        """
        name, account, ladder = text("name", name), text("account", account), text("ladder", ladder)
        choice("feedback", feedback, SEARCH_POLICIES)
        choice("overlap", overlap, registration.OVERLAP_POLICIES)
        stated = metric_for(scoring, None)
        store = Ledger(resolve_url(ledger))
        found, record = store.transact(
            lambda tx: registration.find(tx, name, account, ladder), Access.READ
        )
        metric = going_on(stated, record.settings)
        registration.agree(found, record, asked_for(metric, None, None))
        handle = cls.__new__(cls)
        metric = metric.for_classes(found.classes)
        handle._hold(store.url, record, metric, feedback, overlap)
        return handle

    # -- looking ----------------------------------------------------------------------

    def submit(self, predictions: Any, *, context: Mapping[str, Any] | None = None) -> Release:
        """Submit predictions by hand.

        Parameters
        ----------
        predictions : array-like
            For the holdout's rows, in the order in which you gave them: class labels,
            probabilities of shape (n, n_classes) or of the second class, or values, as the
            metric asks.
        context : mapping, optional
            Anything JSON can hold that you want to find in the history.

        Returns
        -------
        Release
            It is durable in the ledger before you see it.

        Raises
        ------
        InvalidSubmission
            The predictions are refused; nothing was written.
        LedgerError
            The ledger cannot be written; nothing was released.
        """
        return self._submit(predictions, Origin(context=jsonable(context or {})))

    def evaluate(self, estimator: Any, *, context: Mapping[str, Any] | None = None) -> Release:
        """Submit a fitted estimator: its predictions on the holdout's rows.

        Parameters
        ----------
        estimator : object
            Fitted, with the response method that the metric asks for.
        context : mapping, optional
            Added to the estimator's class and parameters.

        Returns
        -------
        Release

        Raises
        ------
        InvalidSubmission
            The estimator cannot predict what the metric asks; nothing was written.
        LedgerError, VaultError
            The guard cannot answer; nothing was released.
        """
        said = describe_estimator(estimator) | jsonable(context or {})
        return self._evaluate(estimator, Origin(context=said))

    # -- what stands ------------------------------------------------------------------

    def status(self) -> Status:
        """Return where the ladder stands, and what else looked at its holdout."""
        certify, place = self._certificate_or_why(), shown(self._url)
        return self._showing(
            lambda tx, one: status_of(tx, one, self._metric, certify(tx, one), place)
        )

    def _repr_html_(self) -> str:
        try:
            return self.status()._repr_html_()
        except LadderHoldoutError as error:  # a notebook shows a cell whatever happens
            return html_table([(repr(self), str(error))])

    def retire(self) -> Status:
        """Take no more submissions on this holdout: through no ladder, for good.

        Its history, status and audit stay, and its rows are known as used ever after.

        Returns
        -------
        Status

        Examples
        --------
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> holdout.retire().retired is None
        False
        """
        self._write(lambda tx, ladder: tx.retire(ladder.holdout_id))
        return self.status()

    def history(self, *, after: int = 0, limit: int | None = None) -> tuple[Submission, ...]:
        """Return the submissions in their order, as the analyst may see them.

        Parameters
        ----------
        after : int, default=0
            Only those with a larger number.
        limit : int, optional
            At most so many.

        Returns
        -------
        tuple of Submission
        """
        entries = self._showing(lambda tx, one: tx.entries(one.id, after=after, limit=limit))
        return tuple(submission_of(entry, self._metric) for entry in entries)

    def audit(self, fresh: Any = None, model: Any = None, *, confidence: float = 0.95) -> Audit:
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
        """
        from ladderholdout.audit import open_audit

        return open_audit(self, fresh, model, confidence)
