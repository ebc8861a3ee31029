"""`LadderHoldout`: what people import."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from ladderholdout.errors import LadderHoldoutError
from ladderholdout.guard.batches import Batch
from ladderholdout.guard.context import describe_estimator, jsonable
from ladderholdout.guard.finalists import Finalist, confirm
from ladderholdout.guard.groups import look_for_groups
from ladderholdout.guard.history_table import Submissions
from ladderholdout.guard.named_rows import predictions_of
from ladderholdout.guard.open_ladder import OpenLadder, Origin, of_one_metric
from ladderholdout.guard.points import RAW_POLICIES
from ladderholdout.guard.settings import (
    LARGEST_NUMBER,
    SEARCH_POLICIES,
    Each,
    HoldoutSettings,
    Scoring,
    choice,
    stated_in,
)
from ladderholdout.guard.several import one_of, register, reopen, warn_of_labels
from ladderholdout.guard.views import (
    Estimate,
    Release,
    ScoreCertificate,
    Status,
    Submission,
    html_table,
)
from ladderholdout.guard.withdrawal import Withdrawn
from ladderholdout.integrations.rounds import is_consulted, mark_consulted
from ladderholdout.integrations.stopping import LadderStopping
from ladderholdout.mechanisms import LadderRules, Mechanism
from ladderholdout.mechanisms.arithmetic import natural
from ladderholdout.metrics import Metric

if TYPE_CHECKING:
    from ladderholdout.audit import Audit
    from ladderholdout.integrations.guarded_search import GuardedSearch
    from ladderholdout.integrations.mlflow import Tracking
    from ladderholdout.integrations.optuna import (
        AskTell,
        ErrorEvaluator,
        Gate,
        Objective,
    )
    from ladderholdout.integrations.sklearn import GuardedSplit
    from ladderholdout.ledger import Progress

_OF_SCORERS = {"__name__", "_score_func", "_sign", "_kwargs", "_response_method"}

__all__ = ["LadderHoldout", "LadderStopping", "Release", "Status", "Submission"]


class LadderHoldout:
    """A holdout that may be queried as often as you like.

    The first call with some rows registers them in the ledger; any later one, in whatever
    notebook, goes on with that ladder. The object pickles to a few hundred bytes, deep-copies to
    itself, and is itself the scorer for scikit-learn.

    Parameters
    ----------
    X : array-like, DataFrame or sparse matrix, shape (n, n_features)
        The holdout's rows, kept from all training. They are copied, and models are given copies:
        whatever writes into either changes nothing.
    y : array-like, shape (n,)
        Their labels or target values.
    scoring : str, Metric, list or mapping, optional
        A metric's name as in scikit-learn, or a `Metric`. Needed for a new ladder. A list of
        these, or a mapping from names to them, makes a ladder for each, which are queried
        together: answers are by metric, ``release["roc_auc"]``, and so is ``holdout["roc_auc"]``.
        `mechanism`, `budget`, `loss_range` and `target_range` may be mappings then.
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
        For unbounded losses: they are clipped to it, in the unit that the metric shows. For RMSE
        and mean absolute error the largest absolute error, for MSE the largest squared one.
        An audit counts the clipped losses of each submission.
    target_range : tuple of (float, float), optional
        For R2, explained variance and concordance: holds every target, as their certificate needs
        it; `loss_range` is then the largest absolute error, by default the width of this range.
        For mean absolute, mean squared and root mean squared errors it states the `loss_range`
        of predictions within it.
    feedback : {"auto", "penalised", "incumbent"}, default="auto"
        The feedback to a search on a model that did not improve (see `feedback`). A ladder that
        releases no values takes "auto" alone; the feedback is then how many improved.
    overlap : {"auto", "warn", "error", "ignore"}, default="auto"
        What to do about rows that were seen elsewhere: by default warn, and refuse from
        half of the holdout on.
    ledger : path, str or None
        A file, an SQLAlchemy URL or ``"memory"``; by default ``LADDERHOLDOUT_LEDGER``, or
        one file in the user's data folder.
    vault : path, URL, bool or None
        Folder of the private copy of the rows, by default beside the ledger, or a URL that
        fsspec knows (``s3://bucket/vault``); False keeps no copy, and the rows travel with the
        object. ``LADDERHOLDOUT_VAULT`` names the folder in a process that has it elsewhere.
    reserve : float, optional
        Share of the rows, in (0, 1), that no ladder measures: a secret draw among them, kept
        for `certify`. Stated when the holdout is registered, and fixed; predictions
        are submitted for all rows as ever.
    confidence : float, optional
        Of all certificates of the holdout, in (0, 1); fixed when it is registered, .95 unless
        stated. `certificate` and `certify` take others at a price.
    ids : list, array, Series or str, optional
        What identifies the rows whatever their features are: n distinct numbers, strings or
        dates, or the name of a column of `X`, which is then taken out of what models see (give
        ``ids=X["column"]`` to leave it in). By them the holdout is known again with other
        features and a few corrected labels, in any order; without them by its content, or by
        the sequence of its labels.

    Raises
    ------
    InvalidArgument
        An argument is outside of what is allowed.
    HoldoutConflict
        The ledger knows this ladder, or the confidence, under other settings.
    OverlapError
        Half of the rows or more are in another holdout.
    LedgerError, VaultError
        The record or the rows cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
    ...                         ledger="memory", name="tiny")
    >>> holdout.submit([0, 1, 1, 1])
    Release(score=0.75, improved=True, submission=1, releases_left=None)
    >>> holdout.submit([0, 0, 1, 1]).score
    0.75
    """

    _ladder: OpenLadder

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        *,
        scoring: Scoring | None = None,
        name: str | None = None,
        mechanism: Each[Mechanism] | None = None,
        account: str = "default",
        ladder: str = "main",
        budget: Each[int] | None = None,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        loss_range: Each[tuple[float, float]] | None = None,
        target_range: Each[tuple[float, float]] | None = None,
        feedback: str = "auto",
        overlap: str = "auto",
        ledger: str | os.PathLike[str] | None = None,
        vault: str | os.PathLike[str] | bool | None = None,
        reserve: float | None = None,
        confidence: float | None = None,
        ids: Any = None,
    ) -> None:
        self._ladder = register(X, y, HoldoutSettings(**stated_in(locals())))
        self._request: bool | str | None = None

    @classmethod
    def open(
        cls,
        name: str,
        *,
        scoring: Scoring | None = None,
        account: str = "default",
        ladder: str = "main",
        feedback: str = "auto",
        overlap: str = "auto",
        ledger: str | os.PathLike[str] | None = None,
        view: int | None = None,
    ) -> LadderHoldout:
        """Go on with a registered holdout by its name alone.

        Parameters
        ----------
        name : str
            As it was registered.
        scoring : str, Metric, list or mapping, optional
            Only needed for a metric of your own, for the ledger keeps its name, and for one or
            some of several metrics: by default all of them.
        account, ladder, feedback, overlap, ledger
            As for the class.
        view : int, optional
            Which features of the rows models are given, where there are several: 1 for those
            that were registered, 2 for the next. By default the newest.

        Returns
        -------
        LadderHoldout

        Raises
        ------
        UnknownHoldout
            The ledger holds no such holdout, ladder or view.
        LedgerError
            The ledger cannot be read.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> place = "memory:coins"  # a ledger as long as this process, for all who name it
        >>> rows = [[0], [1]], [0, 1]
        >>> first = LadderHoldout(*rows, scoring="accuracy", name="coins", ledger=place)
        >>> LadderHoldout.open("coins", ledger=place).submit([0, 1]).score
        1.0
        """
        stated = HoldoutSettings(**stated_in(locals()))
        holdout = cls.__new__(cls)
        holdout._request = None
        holdout._ladder = reopen(stated, view)
        return holdout

    @classmethod
    def connect(
        cls,
        url: str,
        token: str | os.PathLike[str] | None = None,
        X: Any = None,
        *,
        feedback: str = "auto",
        overlap: str = "auto",
        timeout: float = 60.0,
    ) -> LadderHoldout:
        """Connect to a holdout behind a server, whose labels this machine does not have.

        Searches, studies and early stopping run on it as on any other. The server counts each
        round of a search as a query that may have learned from answers: it cannot see the search.
        What `batch`, `finalists` and `guard` submit comes in one request, and is one batch.

        Parameters
        ----------
        url : str
            ``https://host/holdouts/NAME``, or the server's alone for the one holdout of a token.
        token : str or path, optional
            The token, or the private file that holds it. By default ``LADDERHOLDOUT_TOKEN``, else
            the file that ``LADDERHOLDOUT_TOKEN_FILE`` names. It is in no pickle and no repr.
        X : array-like, optional
            The holdout's features, in any order, where the server does not share them. Needed to
            evaluate estimators, and not to submit predictions.
        feedback, overlap
            As for the class.
        timeout : float, default=60.0
            Seconds for which a request is tried again where the server is gone or busy. A request
            that is tried again is a repeat.

        Returns
        -------
        LadderHoldout

        Raises
        ------
        AccessDenied
            The token is missing, wrong, expired or revoked.
        UnknownHoldout
            There is no such holdout for this token.
        LedgerUnreachable
            The server does not answer.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> try:
        ...     LadderHoldout.connect("https://example.org/coins", "a token")
        ... except ValueError as error:
        ...     print(error)
        ...
        url must be https://host/holdouts/NAME, but is another.
        """
        from ladderholdout.remote.ladder import connect

        choice("feedback", feedback, SEARCH_POLICIES)
        holdout = cls.__new__(cls)
        holdout._request = None
        holdout._ladder = connect(url, token, X, feedback, overlap, timeout)
        return holdout

    @property
    def open_ladder(self) -> OpenLadder:
        """The ladder behind this holdout, which integrations are given."""
        return self._ladder

    @property
    def name(self) -> str:
        """The holdout's name."""
        return self._ladder.verified().name

    @property
    def fingerprint(self) -> str:
        """The holdout's fingerprint: 64 hex characters over its rows, without labels."""
        return self._ladder.verified().fingerprint

    @property
    def metric(self) -> Metric:
        """What is measured; of several metrics the one named first."""
        return self._ladder.metric

    @property
    def metrics(self) -> dict[str, Metric]:
        """What is measured, by name: one metric or several, in their order."""
        every = self._ladder.by_metric or {self.metric.name: self._ladder}
        return {name: one.metric for name, one in every.items()}

    def __getitem__(self, metric: str) -> LadderHoldout:
        """Return the holdout by one of its metrics alone, with that ladder."""
        found = type(self).__new__(type(self))
        found._request, found._ladder = self._request, one_of(self._ladder, metric)
        return found

    @property
    def rules(self) -> LadderRules:
        """The mechanism, its budget and its unit."""
        return self._ladder.verified().rules

    @property
    def ledger(self) -> str:
        """The URL of the ledger; give it to another holdout to share a memory ledger."""
        return self._ladder.ledger

    # -- by hand ----------------------------------------------------------------------

    def submit(
        self, predictions: Any, *, context: Mapping[str, Any] | None = None, ids: Any = None
    ) -> Release:
        """Submit predictions by hand.

        Parameters
        ----------
        predictions : array-like
            For the holdout's rows, in the order in which you gave them: class labels,
            probabilities of shape (n, n_classes) or of the second class, or values, as the
            metric asks. A Series or DataFrame of pandas with the index of the rows, in any
            order, is taken by that index. Of several metrics that ask for different things a
            mapping, by metric or ``{"labels": ..., "probabilities": ...}``.
        context : mapping, optional
            Anything JSON can hold that you want to find in the history.
        ids : list, array, Series or str, optional
            Of the predictions, which may then come in any order, where the holdout was registered
            with ids: the ids themselves, or the name of a column of `predictions`.

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

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> holdout.submit([0, 1], context={"idea": "both right"})
        Release(score=1.0, improved=True, submission=1, releases_left=None)
        >>> holdout.submit([0, 0]).improved
        False
        """
        predictions = predictions_of(predictions, ids)
        release = self._ladder.submit(predictions, Origin(context=jsonable(context)))
        warn_of_labels(self._ladder, predictions)
        return release

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

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> holdout.evaluate(DummyClassifier().fit([[0], [1]], [1, 1])).score
        0.5
        """
        stated = describe_estimator(estimator) | jsonable(context)
        look_for_groups(self._ladder, estimator, {})
        return self._ladder.submit(self._ladder.predict(estimator), Origin(context=stated))

    def batch(self) -> Batch:
        """Return a batch: submissions that are all fixed before any of them is answered.

        Returns
        -------
        Batch
            A context manager. What `submit` and `evaluate` take in its block is read and checked
            there, and queries the holdout when the block ends, in that order; ``batch.releases``
            has the answers then. A certificate pays for none of the answers within a batch.

        Examples
        --------
        >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
        ...                         ledger="memory")
        >>> with holdout.batch() as batch:
        ...     batch.submit([0, 1, 1, 1])
        ...     batch.submit([0, 0, 1, 1])
        >>> [release.score for release in batch.releases]
        [0.75, 0.75]
        """
        return Batch(self._ladder)

    def status(self) -> Status:
        """Return the released score, its certificate, and what else queried the holdout.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> _ = holdout.submit([0, 1])
        >>> status = holdout.status()
        >>> status.score, status.incumbent, status.submissions
        (1.0, 1, 1)
        """
        return self._ladder.status()

    def history(self, *, after: int = 0, limit: int | None = None) -> Submissions:
        """Return the submissions in their order, as the analyst may see them.

        Parameters
        ----------
        after : int, default=0
            Only those with a larger number.
        limit : int, optional
            At most so many.

        Returns
        -------
        Submissions
            A tuple of `Submission`, which notebooks show as a table.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> _ = holdout.submit([0, 0]), holdout.submit([0, 1])
        >>> [(one.number, one.score, one.improved) for one in holdout.history()]
        [(1, 0.5, True), (2, 1.0, True)]
        """
        start = min(natural("after", after), LARGEST_NUMBER)
        most = None if limit is None else min(natural("limit", limit), LARGEST_NUMBER)
        return Submissions(self._ladder.history(start, most))

    def certificate(self, confidence: float | None = None) -> ScoreCertificate:
        """Return an interval for the true score of the incumbent, however it was searched for.

        With the registered confidence all certificates of a holdout hold at once. What was
        released of holdouts that share rows with this one is counted as well.

        For accuracy, and any mean of losses of 0 and 1, it is worked out from what was released
        alone, so that it costs nothing. For other metrics it depends on the incumbent's
        predictions and so reveals more than the released score: it is put on record before it is
        shown, and certificates of later incumbents pay for it. So ask for it once a search is
        over. Asked again, the same interval costs nothing more. `certificates.bound_of` states
        which bound a metric has; R2 and its like need a `target_range`.
        A ladder that releases no values has one once its score was asked for (`reveal`).

        Parameters
        ----------
        confidence : float, optional
            In (0, 1). By default the one that the holdout was registered with. Another one may
            be chosen for what was seen: it is noted in the ledger first, and makes its own
            certificates wider (`certificates.later_price`).

        Returns
        -------
        ScoreCertificate
            Where there is none, it contains the reason.

        Raises
        ------
        InvalidArgument
            The confidence is refused.
        LedgerError, VaultError
            The record or the rows (whose weights count) cannot be read, or another confidence
            cannot be noted.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> X, y = np.arange(1000).reshape(-1, 1), np.arange(1000) % 2
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        >>> holdout.submit(np.where(np.arange(1000) < 900, y, 1 - y)).score
        0.9
        >>> found = holdout.certificate()
        >>> round(found.low, 3), round(found.high, 3)
        (0.877, 0.92)
        """
        return self._ladder.certificate(confidence)

    def reveal(self) -> float | None:
        """Show the score of the incumbent on a ladder that releases none, and put that on record.

        That somebody asked is durable in the ledger before the score is seen: certificates of
        later incumbents pay for what it showed, that of this one does not. Asked again, the
        same score costs nothing more; nor does it where the ladder releases its values anyway.

        Returns
        -------
        float or None
            In the metric's own sign and units; None where there is no incumbent yet.

        Raises
        ------
        LedgerError
            The ledger cannot be written; nothing was shown.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> from ladderholdout.mechanisms import OneBitLadder
        >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
        ...                         mechanism=OneBitLadder(alpha=0.05), ledger="memory")
        >>> holdout.submit([0, 1, 1, 1])
        Release(score=None, improved=True, submission=1, releases_left=None)
        >>> holdout.reveal()
        0.75
        """
        return self._ladder.reveal()

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection among the submissions of one batch.

        The best score of a long list is too high by chance. Where every query of the
        holdout belongs to one batch, as after `guard` or a search with a fixed list, the
        selection is repeated on rows that are drawn anew, and the mean optimism subtracted (see
        `estimates.corrected`). Rounds of one early-stopped training run are a batch as well.

        The number is on record before it is shown, and certificates of later incumbents pay for
        it. Asked again, the same number costs nothing more. It is no certificate.

        Returns
        -------
        Estimate
            Without a score, and with the reason, where queries learned from answers, or other
            things were revealed of these rows.

        Raises
        ------
        LedgerError, VaultError
            The record or the rows cannot be read or written; nothing was shown.

        Examples
        --------
        Twenty guesses at labels that nobody can know:

        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X, y = np.arange(400)[:, None], rng.integers(0, 2, 400)
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        >>> found = holdout.finalists([rng.integers(0, 2, 400) for _ in range(20)])
        >>> holdout.status().score, 0.47 < holdout.estimate().score < 0.52
        (0.5375, True)
        """
        return self._ladder.estimate()

    def certify(self, confidence: float | None = None) -> ScoreCertificate:
        """Query the reserve once, about the incumbent: an interval from untouched rows.

        The reserve is shared by all ladders and accounts of the holdout, and so is the count of
        queries of it: each pays for what the earlier ones showed, and for what was revealed of
        holdouts that share rows with this one. Asking again about the same incumbent is
        answered from the ledger and costs nothing.

        Parameters
        ----------
        confidence : float, optional
            In (0, 1): the chance that all answers of this reserve hold at once. By default the
            one that the holdout was registered with; another one has a price, as in
            `certificate`.

        Returns
        -------
        ScoreCertificate
            Its score is that on the reserve, rounded. Exact for means of bounded losses; for
            other metrics a Bayesian bootstrap, marked as approximate. The query is durable in
            the ledger before you see it.

        Raises
        ------
        InvalidArgument
            The confidence is refused.
        HoldoutConflict
            The holdout was registered without a reserve, or was retired.
        LedgerError, VaultError
            The record or the rows cannot be read; nothing was shown.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> X, y = np.arange(1000).reshape(-1, 1), np.arange(1000) % 2
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory", reserve=0.3)
        >>> holdout.submit(y).score
        1.0
        >>> found = holdout.certify()
        >>> found.reserve_query, found.score, round(found.low, 3)
        (1, 1.0, 0.985)
        """
        return self._ladder.certificate(confidence, reserve=True)

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
        >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
        ...                         ledger="memory")
        >>> holdout.submit([0, 1, 1, 1]).score
        0.75
        >>> leaked = holdout.submit([0, 1, 0, 1])
        >>> holdout.withdraw(leaked.submission, reason="trained on these rows").score
        0.75
        """
        return self._ladder.withdraw(number, reason)

    def retire(self) -> Status:
        """Take no more submissions on this holdout, through any ladder, permanently.

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
        self._ladder.retire()
        return self.status()

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
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> X, y = np.arange(60)[:, None], np.tile([0, 1], 30)
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        >>> for wrong in (29, 28):
        ...     release = holdout.submit(np.where(np.arange(60) < wrong, 1 - y, y))
        ...
        >>> audit = holdout.audit()
        >>> audit.verdict.headline
        'Nothing was found.'
        """
        from ladderholdout.audit import open_audit

        return open_audit(self, fresh, model, confidence, progress)

    # -- searches of scikit-learn -----------------------------------------------------

    def guard(
        self, search: Any, *, finalists: int | str = "auto", verbose: int = 0
    ) -> GuardedSearch:
        """Wrap a search: it goes by the training rows alone, and its finalists query the holdout.

        Parameters
        ----------
        search : estimator
            An unfitted search with ``cv_results_`` once it is fitted, an OptunaSearchCV, or a
            pipeline that ends in one.
        finalists : int or "auto", default="auto"
            How many candidates query the holdout. "auto": all whose mean inner score is within
            two pooled standard errors of the best, at most 20 (10 where there are no folds).
        verbose : int, default=0
            Above 0: a progress bar while the finalists are fitted.

        Returns
        -------
        GuardedSearch
            An estimator: ``fit`` it on the training rows, and use it like the winner.

        Raises
        ------
        InvalidArgument
            `search` is none, or asks the holdout itself.

        Examples
        --------
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.model_selection import GridSearchCV
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
        >>> grid = GridSearchCV(LogisticRegression(max_iter=5000), {"C": [0.01, 1.0]}, cv=3)
        >>> search = holdout.guard(grid).fit(X[200:], y[200:])
        >>> search.is_incumbent_, search.certificate_.missing
        (True, None)
        """
        from ladderholdout.guard.finalists import check_finalists
        from ladderholdout.integrations.guarded_search import GuardedSearch, check_search

        check_search(search)
        check_finalists("finalists", finalists)
        return GuardedSearch(search, self, finalists=finalists, verbose=verbose)

    def split(self, inner: Any = 0, *, guarded: bool = True) -> GuardedSplit:
        """Return what to give a search as ``cv=``.

        Parameters
        ----------
        inner : int or splitter, default=0
            Inner folds of the training rows that come first; they query nothing.
        guarded : bool, default=True
            Whether the guarded fold, which queries the holdout, follows them.

        Returns
        -------
        GuardedSplit

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import GridSearchCV
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3]},
        ...                       scoring=holdout, cv=holdout.split(), refit=holdout.select)
        >>> search.fit(X[1::3], y[1::3]).best_params_
        {'max_depth': 2}
        """
        from ladderholdout.integrations.sklearn import GuardedSplit

        return GuardedSplit(self, inner, guarded=guarded)

    def select(self, cv_results: Mapping[str, Any] | None = None) -> int:
        """Pick the incumbent among the candidates: give it to a search as ``refit=``.

        Of several metrics, the incumbent of the one named first; ``holdout["brier"].select``
        picks by another one.

        Parameters
        ----------
        cv_results : mapping
            The search's ``cv_results_``, which scikit-learn gives to the function at ``refit=``.

        Returns
        -------
        int
            The index of the candidate that became the incumbent last, with a
            `NotIncumbentWarning` where another submission is the incumbent by now. Where none
            of this search did, the best by its inner folds, else the first, and a
            `NoImprovementWarning`. The column ``is_incumbent`` of `cv_results` then shows for
            each candidate whether it is.

        Raises
        ------
        InvalidArgument
            These are no results of a search that asked this holdout.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import GridSearchCV
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3]},
        ...                       scoring=holdout, cv=holdout.split(), refit=holdout.select)
        >>> best = search.fit(X[1::3], y[1::3]).best_index_
        >>> best == holdout.select(search.cv_results_)
        True
        """
        from ladderholdout.integrations.refit import select

        return select(self._ladder, cv_results)

    def __call__(
        self,
        estimator: Any = None,
        X: Any = None,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        **others: Any,
    ) -> Any:
        """Score an estimator: plainly on other rows, through the guard on the holdout's.

        Parameters
        ----------
        estimator : object
            Fitted.
        X : array-like, shape (n_rows, n_features)
            The empty test fold of `split`, or the holdout's own rows: a query of the
            holdout. Any other rows: a plain score, which queries nothing.
        y : array-like, shape (n_rows,), optional
        sample_weight : array-like, shape (n_rows,), optional
            For plain scores.
        **others
            None: whoever gives ``y_true`` and ``y_pred`` takes this for a function of a metric,
            and is refused.

        Returns
        -------
        float, or dict of str to float
            Of several metrics by their names, as scikit-learn's searches take it.

        Raises
        ------
        SearchStopped
            The guard cannot answer. Not an ``Exception``, so that no search turns it into
            a score of nan.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> tree = DecisionTreeClassifier(random_state=0).fit(X[1::3], y[1::3])
        >>> holdout(tree, X[::3], y[::3])  # the holdout's own rows: a query
        0.86
        >>> holdout.status().submissions
        1
        """
        from ladderholdout.integrations.sklearn import score

        if others:
            estimator = next(iter(others.values()))
        return score(self._ladder, estimator, X, y, sample_weight)

    def set_score_request(self, *, sample_weight: bool | str | None = None) -> Self:
        """Ask metadata routing for the weights of plain scores.

        Parameters
        ----------
        sample_weight : bool, str or None
            As for scikit-learn's own scorers.

        Returns
        -------
        Self
            This holdout.

        Raises
        ------
        RoutingDisabled
            scikit-learn routes no metadata now.
        """
        from ladderholdout.integrations.sklearn import check_routing_enabled

        check_routing_enabled()
        self._request = sample_weight
        return self

    def get_metadata_routing(self) -> Any:
        """Return the metadata request of this scorer, for scikit-learn."""
        from ladderholdout.integrations.sklearn import routing

        return routing(self._request, repr(self))

    def __getattr__(self, name: str) -> Any:
        # What curves, TunedThresholdClassifierCV and others read of a scorer.
        there = name in _OF_SCORERS and "_ladder" in vars(self)
        if not there or self._ladder.by_metric:  # of several metrics it is like no scorer
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        from ladderholdout.integrations.sklearn import plain_scorer

        return getattr(plain_scorer(self.metric), name)

    def _accept_sample_weight(self) -> bool:
        # Without routing, a search hands the weights of its fit to scorers that take them:
        # those of the rows that it hands them.
        return True

    # -- studies of Optuna ------------------------------------------------------------

    def objective(
        self,
        build: Callable[[Any], Any],
        *,
        inner: Any = None,
        train: tuple[Any, ...] | None = None,
        feedback: str = "auto",
        guarded: int = 0,
    ) -> Objective:
        """Return an objective for ``study.optimize`` that sees only ladder feedback.

        Parameters
        ----------
        build : callable
            From a trial to a fitted estimator or to predictions for the holdout's rows,
            alone or with an inner score from the training side (greater is better):
            ``(model, guide)``. `ladderholdout.integrations.optuna.Candidate` spells it out.
        inner : int or splitter, optional
            Compute the inner score here: by cross-validation of the unfitted estimator that
            `build` returns on `train`, on all of which it is then fitted.
        train : tuple of (X, y) or (X, y, groups), optional
            The training rows, for unfitted estimators; with groups where the inner folds keep
            those together.
        feedback : {"auto", "guide", "guided", "penalised", "incumbent"}
            The feedback to the study (see `ladderholdout.feedback`).
        guarded : int, default=0
            In a multi-objective study, which objective is the guarded one.

        Returns
        -------
        Objective
            A study that minimises receives the score with its sign turned. The trials of one
            ``study.optimize`` whose feedback is their inner score, run one after another,
            are one batch: certificates pay for none of their answers.

        Raises
        ------
        InvalidArgument
            An argument is refused.
        OverlapError
            Half of the holdout or more is among the training rows.

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     return DecisionTreeClassifier(max_depth=trial.suggest_int("max_depth", 1, 6))
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> study = optuna.create_study(direction="maximize")
        >>> study.optimize(holdout.objective(build, inner=3, train=(X[200:], y[200:])), n_trials=5)
        >>> holdout.status().submissions
        5
        """
        from ladderholdout.integrations.optuna import Objective

        return Objective(self, build, inner=inner, train=train, feedback=feedback, guarded=guarded)

    def ask_tell(self, study: Any, *, feedback: str = "auto", guarded: int = 0) -> AskTell:
        """Return the ask-and-tell loop of a study, with the guard in between.

        Parameters
        ----------
        study : optuna.Study
        feedback, guarded
            As for `objective`.

        Returns
        -------
        AskTell
            ``trial = loop.ask()``, then ``release = loop.tell(trial, model, guide=...)``.

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     depth = trial.suggest_int("depth", 1, 3)
        ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
        ...
        >>> sampler = optuna.samplers.RandomSampler(seed=0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> loop = holdout.ask_tell(study)
        >>> trial = loop.ask()
        >>> release = loop.tell(trial, build(trial).fit(X[1::3], y[1::3]), guide=0.9)
        >>> study.best_value
        0.9
        """
        from ladderholdout.integrations.optuna import AskTell

        return AskTell(self, study, feedback=feedback, guarded=guarded)

    def gate(self, build: Callable[[Any], Any], *, patience: int = 3, stop: bool = False) -> Gate:
        """Return a study callback that asks the holdout only when the study's best improves.

        Parameters
        ----------
        build : callable
            From a finished trial to a fitted estimator or to predictions; or the
            `objective` whose guide the study optimises.
        patience : int, default=3
            Improvements in a row that the holdout may leave unconfirmed before it warns.
        stop : bool, default=False
            And stop the study then.

        Returns
        -------
        Gate
            For ``study.optimize(cv_objective, callbacks=[holdout.gate(build)])``; its
            ``releases`` are the answers of the holdout.

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     depth = trial.suggest_int("depth", 1, 3)
        ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
        ...
        >>> sampler = optuna.samplers.RandomSampler(seed=0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> gate = holdout.gate(objective.candidate)
        >>> study.optimize(objective.guide, n_trials=4, callbacks=[gate])
        >>> holdout.status().submissions > 0
        True
        """
        from ladderholdout.integrations.optuna import Gate

        return Gate(self, build, patience=patience, stop=stop)

    def finalists(
        self,
        study: Any,
        build: Callable[[Any], Any] | None = None,
        *,
        k: int | str = "auto",
    ) -> tuple[Finalist, ...]:
        """Query the holdout with the few best trials of a study that went by inner scores.

        They are chosen and built before any of them is submitted: one batch, and so few
        queries that little can be picked up by chance. The winner is `best_trial`.

        Parameters
        ----------
        study : optuna.Study or list
            A study with one objective, on the training rows: a cross-validation score, or
            ``objective.guide``. Or a list of fitted estimators, or of predictions for the
            holdout's rows, all of which are submitted in their order: the best first.
        build : callable, optional
            For a study: from a finished trial to a fitted estimator or to predictions; or the
            `objective` whose guide the study optimised.
        k : int or "auto", default="auto"
            For a study: how many feasible trials query the holdout, the best first. "auto": those
            whose inner score is within two pooled standard errors of the best, at most 20;
            10 where no scores of inner folds are noted on the trials. An `objective` with
            ``inner=`` notes them, and so does an OptunaSearchCV.

        Returns
        -------
        tuple of Finalist
            In the order in which they queried the holdout. ``is_incumbent`` names the winner.

        Raises
        ------
        InvalidArgument
            The study has several objectives, or no feasible finished trial; the list is empty.
        LedgerError, VaultError
            The guard cannot answer; what was released before is in the ledger.

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     depth = trial.suggest_int("max_depth", 1, 6)
        ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> study = optuna.create_study(direction="maximize")
        >>> objective = holdout.objective(build, inner=3, train=(X[200:], y[200:]))
        >>> study.optimize(objective.guide, n_trials=12)
        >>> final = holdout.finalists(study, objective, k=2)
        >>> len(final), holdout.best_trial(study).number in [one.candidate.number for one in final]
        (2, True)
        """
        if build is None and not hasattr(study, "trials"):
            return confirm(self._ladder, study)
        from ladderholdout.integrations.optuna import finalists

        return finalists(self, study, build, k)

    def error_evaluator(self) -> ErrorEvaluator:
        """Return an error evaluator for Optuna's terminators.

        Returns
        -------
        ErrorEvaluator
            Its ``evaluate(trials, study_direction)`` is the smallest improvement that the
            ladder can still release: a study whose expected improvement falls below it
            has nothing more to gain from this holdout.

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     depth = trial.suggest_int("depth", 1, 3)
        ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
        ...
        >>> sampler = optuna.samplers.RandomSampler(seed=0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> study.optimize(objective, n_trials=4)
        >>> evaluator = holdout.error_evaluator()
        >>> evaluator.evaluate(study.trials, study.direction) > 0
        True
        """
        from ladderholdout.integrations.optuna import ErrorEvaluator

        return ErrorEvaluator(self)

    def best_trial(self, study: Any) -> Any:
        """Return the study's trial that is the incumbent, by the ledger.

        Parameters
        ----------
        study : optuna.Study

        Returns
        -------
        FrozenTrial
            The feasible trial that became the incumbent last, with a `NotIncumbentWarning`
            where another submission is the incumbent by now.

        Raises
        ------
        InvalidArgument
            No feasible trial of this study did.

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     depth = trial.suggest_int("depth", 1, 3)
        ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
        ...
        >>> sampler = optuna.samplers.RandomSampler(seed=0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> study.optimize(objective, n_trials=4)
        >>> holdout.best_trial(study).number
        0
        """
        from ladderholdout.integrations.optuna import best_trial

        return best_trial(self, study)

    def best_params(self, study: Any) -> dict[str, Any]:
        """Return the parameters of `best_trial`.

        Examples
        --------
        >>> import optuna
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> def build(trial):
        ...     depth = trial.suggest_int("depth", 1, 3)
        ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
        ...
        >>> sampler = optuna.samplers.RandomSampler(seed=0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> objective = holdout.objective(build, inner=3, train=(X[1::3], y[1::3]))
        >>> study.optimize(objective, n_trials=4)
        >>> holdout.best_params(study)
        {'depth': 2}
        """
        return dict(self.best_trial(study).params)

    # -- MLflow -----------------------------------------------------------------------

    def track(
        self,
        run_id: str | None = None,
        *,
        experiment: str | None = None,
        tracking_uri: str | os.PathLike[str] | None = None,
        audit_tracking_uri: str | os.PathLike[str] | None = None,
        raw: str = "live",
    ) -> Tracking:
        """Copy this ladder into MLflow while a block runs, or until `Tracking.close`.

        One thread of this process reads the ledger, so what worker processes submit is
        copied as well. It never blocks or fails a search: what could not be sent is sent by
        ``ladder-holdout export NAME``, and a `TrackingWarning` at the end reports it.

        Parameters
        ----------
        run_id : str, optional
            The analyst's run. By default the active one, or that of ``MLFLOW_RUN_ID``; without
            one a new run.
        experiment : str, optional
            Where a new run goes, by default that of ``mlflow.set_experiment`` or its environment
            variables, else the experiment called like the holdout.
        tracking_uri, audit_tracking_uri : str, optional
            The tracking server of the analyst's run, by default MLflow's own choice, and of
            the audit experiment, by default the same.
        raw : {"live", "sealed"}, default="live"
            Whether raw scores go into the experiment ``<name> (audit)`` as they come, or
            not before an audit has opened the ladder. Where they go and who can read them
            is logged once, to ``ladderholdout.mlflow``.

        Returns
        -------
        Tracking
            A context manager.

        Raises
        ------
        InvalidArgument
            An argument is refused.

        Examples
        --------
        >>> import tempfile
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
        ...                         ledger="memory", name="tiny")
        >>> folder = tempfile.TemporaryDirectory()
        >>> with holdout.track(tracking_uri=f"sqlite:///{folder.name}/mlflow.db") as tracking:
        ...     holdout.submit([0, 1, 1, 1]).score
        0.75
        >>> tracking.sent
        1
        >>> folder.cleanup()
        """
        from ladderholdout.integrations.mlflow import Tracking, places

        choice("raw", raw, RAW_POLICIES)
        return Tracking(
            of_one_metric(self._ladder),
            places(tracking_uri, audit_tracking_uri),
            run_id,
            experiment,
            sealed=raw != "live",
        )

    # -- passing it around ------------------------------------------------------------

    def __deepcopy__(self, memo: Any) -> Self:
        # Copies of a search must go on with the same ladder, not with one of their own.
        return self

    def __copy__(self) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        # The workers of a search have to know that it asks the holdout.
        return vars(self) | {"_consulted": is_consulted(self._ladder)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        consulted = state.pop("_consulted")
        vars(self).update(state)
        if consulted:
            mark_consulted(self._ladder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LadderHoldout) and self._ladder == other._ladder

    def __hash__(self) -> int:
        return hash(self._ladder)

    def __repr__(self) -> str:
        if "_ladder" not in vars(self):  # in the traceback of what failed to open it
            return f"{type(self).__name__}()"
        return repr(self._ladder).replace(type(self._ladder).__name__, type(self).__name__, 1)

    def _repr_html_(self) -> str:
        try:
            return self.status()._repr_html_()
        except LadderHoldoutError as error:  # a notebook shows a cell whatever happens
            return html_table([(repr(self), str(error))])
