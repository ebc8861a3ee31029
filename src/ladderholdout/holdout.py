"""`LadderHoldout`: what people import."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike

from ladderholdout.arguments import choice, whole, whole_or_auto
from ladderholdout.errors import LadderHoldoutError
from ladderholdout.guard import certificate as certificates
from ladderholdout.guard import commands, settings
from ladderholdout.guard.batches import Batch, Finalist, confirm, read_submission, warn_of_labels
from ladderholdout.guard.certificate import Comparison, Health, ScoreCertificate
from ladderholdout.guard.ladder import beside_ledger
from ladderholdout.guard.on_record import number_of
from ladderholdout.guard.open_ladder import OpenLadder, Origin, Predictions, of_one_metric
from ladderholdout.guard.opening import register, reopen, replenish
from ladderholdout.guard.printing import Submissions
from ladderholdout.guard.record_views import health_of, price_of
from ladderholdout.guard.settings import Each, HoldoutSettings, Scoring, stated_in
from ladderholdout.guard.views import RAW_POLICIES, Decision, Estimate, Release, Status, Submission
from ladderholdout.integrations.refit import select
from ladderholdout.integrations.rounds import is_consulted, mark_consulted
from ladderholdout.integrations.stopping import LadderStopping
from ladderholdout.mechanisms import LadderRules, Mechanism
from ladderholdout.metrics import Metric
from ladderholdout.owner import Owner

if TYPE_CHECKING:
    from ladderholdout.integrations.guarded_search import GuardedSearch
    from ladderholdout.integrations.mlflow import Tracking
    from ladderholdout.integrations.optuna import Studies
    from ladderholdout.integrations.sklearn import GuardedSplit

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
        `mechanism`, `show`, `budget`, `loss_range`, `target_range` and `pos_label` may be
        mappings then.
    name : str, optional
        What to call the holdout; by default its fingerprint's first letters.
    mechanism : Mechanism, optional
        The rule that answers. By default `PricedLadder` where losses are 0 or 1 and
        `ParameterFreeLadder` for other means of losses (with a reserve and a range of the
        loss, for both, `SimplifiedLadder` with a step of 1/n); `BayesBootLadder` for other
        named metrics, and `Ladder` for slow ones and for those of your own.
    show : {"scores", "improvements"}, optional
        What the answer to a submission has: the released score, by default, or whether the
        submission improved alone. The score is then shown on request (`reveal`), which is on
        record and paid for, and certificates are narrower.
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
        For unbounded losses: intervals clip them to it, in the unit that the metric shows, which
        their line states; released scores do not. For RMSE and mean absolute error the largest
        absolute error, for MSE the largest squared one.
    target_range : tuple of (float, float), optional
        For R2, explained variance and concordance: holds every target, as their certificate needs
        it; `loss_range` is then the largest absolute error, by default the width of this range.
        For mean absolute, mean squared and root mean squared errors it states the `loss_range`
        of predictions within it. What a search proposed, ``search.proposed_loss_range_``, is
        taken as `loss_range` with its `target_range` and its `ladder`.
    pos_label : str or number, optional
        The class that F1, precision, recall or average precision is about; by default the second
        of the two sorted ones. A ladder of another class is another ladder on the same holdout.
    feedback : {"auto", "penalised", "incumbent"}, default="auto"
        The feedback to a search on a model that did not improve (see `feedback`). With
        ``show="improvements"`` it is "auto" alone; the feedback is then how many improved.
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
        for `reserve_certificate`. Stated when the holdout is registered, and fixed; predictions
        are submitted for all rows as ever.
    confidence : float, optional
        Of all certificates of the holdout, in (0, 1); fixed when it is registered, .95 unless
        stated. `certificate` and `reserve_certificate` take others at a price.
    ids : list, array, Series or str, optional
        What identifies the rows whatever their features are: n distinct numbers, strings or
        dates, or the name of a column of `X`, which is then taken out of what models see (give
        ``ids=X["column"]`` to leave it in). By them the holdout is known again with other
        features and a few corrected labels, in any order; without them by its content, or by
        the sequence of its labels.
    groups : list, array, Series or str, optional
        What was drawn, where that is not the single row: n values of which equal ones mark the
        rows of one group, such as a patient, or the name of a column of `X`, which is then taken
        out of what models see. Stated when the holdout is registered, and fixed. Certificates and
        comparisons take whole groups for their units.
    estimand : {"rows", "groups"}, optional
        What certificates are of, where there are groups: the mean over rows, as released scores
        are and by default, or the mean over groups, in which every group counts alike.

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
        show: Each[str] | None = None,
        account: str = "default",
        ladder: str = "main",
        budget: Each[int] | None = None,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        loss_range: Each[tuple[float, float]] | None = None,
        target_range: Each[tuple[float, float]] | None = None,
        pos_label: Each[Any] | None = None,
        feedback: str = "auto",
        overlap: str = "auto",
        ledger: str | os.PathLike[str] | None = None,
        vault: str | os.PathLike[str] | bool | None = None,
        reserve: float | None = None,
        confidence: float | None = None,
        ids: Any = None,
        groups: Any = None,
        estimand: str | None = None,
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
        return cls._on(reopen(HoldoutSettings(**stated_in(locals())), view))

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

        choice("feedback", feedback, settings.SEARCH_POLICIES)
        return cls._on(connect(url, token, X, feedback, overlap, timeout))

    @classmethod
    def _on(cls, ladder: OpenLadder, request: bool | str | None = None) -> Self:
        holdout = cls.__new__(cls)
        holdout._ladder, holdout._request = ladder, request
        return holdout

    @property
    def __ladder__(self) -> OpenLadder:
        """The ladder behind this holdout, which integrations are given."""
        return self._ladder

    @property
    def name(self) -> str:
        """The holdout's name."""
        return self._ladder.verified().name

    @property
    def metric(self) -> Metric:
        """What is measured; of several metrics the one named first."""
        return self._ladder.metric

    @property
    def metrics(self) -> dict[str, Metric]:
        """What is measured, by name: one metric or several, in their order."""
        return {name: one.metric for name, one in self._by_name.items()}

    @property
    def _by_name(self) -> Mapping[str, OpenLadder]:
        return self._ladder.by_metric or {self.metric.name: self._ladder}

    def __getitem__(self, metric: str) -> LadderHoldout:
        """Return the holdout by one of its metrics alone, with that ladder."""
        return self._on(certificates.of_metric(self._by_name, metric), self._request)

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
        """Submit predictions, or a fitted estimator, which predicts on the holdout's rows.

        Parameters
        ----------
        predictions : array-like or estimator
            For the holdout's rows, in the order in which you gave them: class labels,
            probabilities of shape (n, n_classes) or of the second class, or values, as the
            metric asks. A Series or DataFrame of pandas with the index of the rows, in any
            order, is taken by that index. Of several metrics that ask for different things a
            mapping, by metric or ``{"labels": ..., "probabilities": ...}``. Or an estimator or
            pipeline, fitted, with the method that the metric asks for.
        context : mapping, optional
            Anything JSON can hold that you want to find in the history. Of an estimator the class
            and the parameters are there as well.
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
            The predictions are refused, or the estimator cannot predict what the metric asks;
            nothing was written.
        LedgerError, VaultError
            The guard cannot answer; nothing was released.

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> holdout.submit(DummyClassifier().fit([[0], [1]], [1, 1])).score
        0.5
        >>> holdout.submit([0, 1], context={"idea": "both right"})
        Release(score=1.0, improved=True, submission=2, releases_left=None)
        """
        read, described = read_submission(self._ladder, predictions, context, ids)
        release = self._ladder.submit(read, Origin(context=described))
        if not isinstance(read, Predictions):  # what a person made, and not an estimator
            warn_of_labels(self._ladder, read)
        return release

    def gate(
        self,
        predictions: Any,
        *,
        margin: float | None = None,
        baseline: bool = False,
        context: Mapping[str, Any] | None = None,
        ids: Any = None,
    ) -> Decision:
        """Decide whether a candidate may replace the incumbent, by one error for all decisions.

        The ladder has to be one with ``mechanism=GateLadder(alpha, horizon)``: the chance of any
        false acceptance in its whole life is at most alpha, however the candidates are proposed
        (docs/background/decisions.md, theorem 1). The first submission is the baseline, which is
        compared with nothing. Several processes that share a ledger decide in one order.

        Parameters
        ----------
        predictions, context, ids
            As for `submit`: predictions for the holdout's rows, or a fitted estimator.
        margin : float, optional
            The gain that the candidate has to exceed, in the metric's own units, from 0 to below
            the range of its loss. By default that of the mechanism.
        baseline : bool, default=False
            Accept it as the baseline if it is the ladder's first submission; later it changes
            nothing. Without it the first submission is recorded as the baseline and not accepted.

        Returns
        -------
        Decision
            It is true if the candidate was accepted, and durable in the ledger before you see
            it. The incumbent's own predictions are "unchanged", and not accepted; others that were
            decided on are tested again for a smaller margin alone.

        Raises
        ------
        HoldoutConflict
            The ladder has another rule, or the holdout was retired.
        InvalidSubmission
            The predictions are refused; nothing was written.
        LedgerError, VaultError
            The guard cannot answer; nothing was decided.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> from ladderholdout.mechanisms import GateLadder
        >>> X, y = np.arange(1000).reshape(-1, 1), np.arange(1000) % 2
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", mechanism=GateLadder(),
        ...                         ledger="memory")
        >>> answers = [np.where(np.arange(1000) < right, y, 1 - y) for right in (800, 805, 850)]
        >>> [holdout.gate(answer).verdict for answer in answers]
        ['baseline', 'not accepted', 'accepted']
        >>> holdout.gate(answers[2]).verdict
        'unchanged'
        """
        ladder = of_one_metric(self._ladder)
        read, described = read_submission(ladder, predictions, context, ids)
        origin = Origin(context=described, margin=margin, baseline=baseline)
        decision = ladder.decide(read, origin)
        if not isinstance(read, Predictions):
            warn_of_labels(ladder, read)
        return decision

    def batch(self) -> Batch:
        """Return a batch: submissions that are all fixed before any of them is answered.

        Returns
        -------
        Batch
            A context manager. What its `submit` takes in the block is read and checked there,
            and queries the holdout when the block ends, in that order; ``batch.releases`` has the
            answers then. A certificate pays for none of the answers within a batch.

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

    def finalists(self, models: Iterable[Any]) -> tuple[Finalist, ...]:
        """Query the holdout with a few models as one batch: all are fixed before any is answered.

        Parameters
        ----------
        models : list
            Fitted estimators, or predictions for the holdout's rows, all of which are submitted
            in their order: the best first. For a study of Optuna ``holdout.optuna.finalists``.

        Returns
        -------
        tuple of Finalist
            In the order in which they queried the holdout. ``is_incumbent`` names the winner.
            No range of the loss is proposed, as `guard` does: there are no training rows.

        Raises
        ------
        InvalidArgument
            It is no list, or an empty one.
        LedgerError, VaultError
            The guard cannot answer; what was released before is in the ledger.

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> final = holdout.finalists([model, DummyClassifier().fit(X, y)])
        >>> [finalist.is_incumbent for finalist in final]
        [True, False]
        """
        return confirm(self._ladder, models)

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
        return self._ladder.execute(commands.Status())

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
        start = min(whole("after", after, least=0, most=math.inf), settings.LARGEST_NUMBER)
        if limit is not None:
            limit = min(whole("limit", limit, least=0, most=math.inf), settings.LARGEST_NUMBER)
        asked = commands.History(after=start, limit=commands.ALL if limit is None else limit)
        return Submissions(self._ladder.execute(asked).submissions)

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
        With ``show="improvements"`` there is one once the score was requested (`reveal`).

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
        (0.879, 0.919)
        """
        return self._ladder.execute(commands.Certify(), confidence=confidence)

    def compare(self, first: Any, second: Any, *, confidence: float | None = None) -> Comparison:
        """Return an interval for the difference of two models' true scores.

        It is valid however the two were searched for, put on record before it is shown, and paid
        for by later certificates and decisions. All comparisons of a holdout hold together with
        the registered confidence; its certificates are another family. Asked again, in this order
        or the other, it is the same interval and costs nothing more.

        Means of losses are compared row by row, accuracies by the exact limits of a trinomial;
        AUC, F1 and their like by the difference of two intervals, which is wider
        (docs/background/comparisons.md).

        Parameters
        ----------
        first, second : int, array-like or estimator
            The number of a submission that improved, or is one of the first batch, whose
            predictions are kept; or what `submit` takes, which is not submitted.
        confidence : float, optional
            As for `certificate`.

        Returns
        -------
        Comparison
            Of the first less the second; greater is better.

        Raises
        ------
        InvalidArgument
            A number or the predictions are refused; nothing was shown.
        HoldoutConflict
            The metric has no bound, or what was shown before cannot be counted. After the holdout
            was retired, or fresh rows took the place of these, only two submissions are compared.
            With a `budget`, as many comparisons as it has releases left.
        LedgerError, VaultError
            The record cannot be read or written.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> X, y = np.arange(1000).reshape(-1, 1), np.arange(1000) % 2
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        >>> guesses = [np.where(np.arange(1000) < right, y, 1 - y) for right in (800, 870)]
        >>> for guess in guesses:
        ...     _ = holdout.submit(guess)
        >>> print(holdout.compare(2, 1).line())
        submission 2 less submission 1: 0.015 to 0.127 (95 %, trinomial)
        """
        ladder = of_one_metric(self._ladder)

        def read(model: Any) -> int | commands.Candidate:
            number = number_of(model)
            if number is not None:
                return number
            return commands.Candidate(predictions=read_submission(ladder, model, None, None)[0])

        asked = commands.Compare(first=read(first), second=read(second))
        return ladder.execute(asked, confidence=confidence)

    def reveal(self) -> float | None:
        """Show the score of the incumbent of a ladder that shows improvements alone.

        The request is durable in the ledger before the score is seen: certificates of later
        incumbents pay for what it showed, that of this one for the number of the request alone. A
        second request for the same incumbent shows the same score and costs nothing more. Where
        answers have the score anyway, nothing is recorded.

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
        >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
        ...                         show="improvements", ledger="memory")
        >>> holdout.submit([0, 1, 1, 1])
        Release(score=None, improved=True, submission=1, releases_left=None)
        >>> holdout.reveal()
        0.75
        """
        return self._ladder.execute(commands.Reveal())

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
            things were revealed of these rows, or where a class has fewer than 10 rows and the
            metric is no mean of losses.

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
        (0.545, True)
        """
        return self._ladder.execute(commands.Estimate())

    def reserve_certificate(self, confidence: float | None = None) -> ScoreCertificate:
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
            Its score is that on the reserve, rounded. The interval is by the bound of the metric;
            of a metric without one it is a Bayesian bootstrap, marked as approximate. The query
            is durable in the ledger before you see it. Where the interval depends on more than
            the score, another confidence is another query.

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
        >>> found = holdout.reserve_certificate()
        >>> found.reserve_query, found.score, round(found.low, 3)
        (1, 1.0, 0.985)
        """
        ladder = beside_ledger(self._ladder, "The reserve is queried")
        return ladder.reserve_certificate(confidence)

    def price(self, what: str = "compare") -> str:
        """Return before something is shown how wide the next certificate becomes by it.

        It is an estimate, from what was released alone, and costs nothing. A comparison is taken to
        be of two models that differ on few rows; others cost up to twice as many nats. A query of
        a reserve costs certificates nothing, and later queries of that reserve something.

        Parameters
        ----------
        what : {"compare", "reveal", "certificate"}, default="compare"

        Returns
        -------
        str

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> X, y = [[i] for i in range(1000)], [0, 1] * 500
        >>> print(LadderHoldout(X, y, scoring="accuracy", ledger="memory").price())
        The next certificate becomes about 0.087 wide instead of 0.04 (9 nats more, for a model \
that errs on a tenth of the rows).
        """
        return price_of(of_one_metric(self._ladder), what)

    def health(self, *, more: int = 5, spent_at: float | None = None) -> Health:
        """Return how used up the holdout is: the width of its certificate, now and later.

        All of it is worked out from what was released, so it costs nothing and shows nothing new.
        Where the certificate depends on more than that, as for AUC, there is a width once
        `certificate` was asked for.

        Parameters
        ----------
        more : int, default=5
            After how many more improvements a width is forecast. What is to come is taken to be
            like what was: an improvement costs, gains and takes as many queries as the mean of
            those so far.
        spent_at : float, optional
            From which width on you take the rows for used up, in the metric's own units; by default
            the width that `holdout.owner.spent_at` put on record, if there is one. Then
            ``spent`` states whether they are, and there are forecasts of the queries that are left
            and of the rows that would restore that width.

        Returns
        -------
        Health
            Of several metrics by their names.

        Raises
        ------
        InvalidArgument
            An argument is refused.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> X, y = np.arange(1000).reshape(-1, 1), np.arange(1000) % 2
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        >>> for right in (700, 750, 790):
        ...     _ = holdout.submit(np.where(np.arange(1000) < right, y, 1 - y))
        >>> print(holdout.health(spent_at=0.1))
        width now         0.155 (17.3 nats, block 1)
        width then        0.195 after 5 more improvements
        spent at 0.1      yes, it is wider
        fresh rows        299 for the first certificate, 2423 for as much use as these have had
        """
        return health_of(self._ladder, more, spent_at)

    # -- fresh rows -------------------------------------------------------------------

    def replenish(
        self,
        X: Any,
        y: ArrayLike,
        *,
        ids: Any = None,
        groups: Any = None,
        sample_weight: ArrayLike | None = None,
        training: Any = None,
        reserve: float | None = None,
    ) -> LadderHoldout:
        """Let fresh rows take the place of those that this holdout has, which are used up.

        The holdout goes on under its name, with all of its ladders, accounts and settings: its
        confidence, metrics, rules, budgets, reserve. All of them start anew on the fresh rows, for
        nothing was released about these yet, and the first submission to a ladder is its first
        incumbent. The rows before them are an earlier block, ``name@1`` and so on, which takes no
        more submissions: its history, status and audit stay, its rows stay known, and `verify`
        checks all blocks.

        Parameters
        ----------
        X, y, ids, groups, sample_weight
            As for the class, of rows that no holdout and no training has had. Ids and groups are
            needed where the rows so far have them.
        training : array-like, optional
            The features of the rows on which models were trained: none of them may be fresh.
        reserve : float, optional
            The share of the fresh rows that no ladder measures, in (0, 1); by default that of the
            rows so far.

        Returns
        -------
        LadderHoldout
            The holdout with the fresh rows. This object stays with the block that it is of.

        Raises
        ------
        OverlapError
            Rows, or groups of them, are in an earlier block, in another holdout or in `training`.
        InvalidArgument
            The rows cannot be read, or a metric is not defined on them.
        HoldoutConflict
            Fresh rows took the place of these already, or the holdout is behind a server.
        LedgerError, VaultError
            The record or the rows cannot be written.

        Whatever is refused leaves the holdout as it was.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> rows, labels = np.arange(200).reshape(-1, 1), np.arange(200) % 2
        >>> first = LadderHoldout(rows[:100], labels[:100], scoring="accuracy", name="monthly",
        ...                       ledger="memory")
        >>> first.submit(labels[:100]).score
        1.0
        >>> holdout = first.replenish(rows[100:], labels[100:])
        >>> holdout.name, holdout.submit(1 - labels[100:]).score, first.name
        ('monthly', 0.0, 'monthly@1')
        """
        name = shlex.quote(self._ladder.facts.name)
        shell = f"ladder-holdout replenish {name} FILE --target COLUMN"
        ladder = beside_ledger(self._ladder, f"Fresh rows are given ({shell})")
        stated = sample_weight, ids, groups, training, reserve
        return self._on(replenish(ladder, X, y, *stated), self._request)

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
        finalists : int, "auto" or "all", default="auto"
            How many candidates query the holdout. "auto": all whose mean inner score is within
            two pooled standard errors of the best, at most three. "all": every candidate of a
            GridSearchCV or a RandomizedSearchCV, as one announced batch without inner folds.
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
        from ladderholdout.integrations.candidates import check_search
        from ladderholdout.integrations.guarded_search import GuardedSearch

        check_search(search)
        whole_or_auto("finalists", finalists, "all")
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
        names = self._ladder.by_metric if there else {}
        if not there or names:  # of several metrics it is like no scorer
            way = f". Name one metric: holdout[{min(names)!r}]" if names else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{way}")
        from ladderholdout.integrations.sklearn import plain_scorer

        return getattr(plain_scorer(self.metric), name)

    def _accept_sample_weight(self) -> bool:
        # Without routing, a search hands the weights of its fit to scorers that take them:
        # those of the rows that it hands them.
        return True

    # -- accessors --------------------------------------------------------------------

    @property
    def optuna(self) -> Studies:
        """What the holdout does for studies of Optuna: objectives, finalists, winners.

        Examples
        --------
        >>> objective = holdout.optuna.objective(build, inner=3, train=(X, y))
        >>> study.optimize(objective, n_trials=3)
        >>> holdout.optuna.best_trial(study).number in range(3)
        True
        """
        from ladderholdout.integrations.optuna import Studies

        return Studies(self)

    @property
    def owner(self) -> Owner:
        """What the owner of the holdout alone does: withdraw, retire, audit.

        Examples
        --------
        >>> holdout.owner.retire().retired is None
        False
        """
        return Owner(self)

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
        # The workers of a search have to know that it asks the holdout. They are given its place:
        # to read that from a ledger that is gone would end them while they unpickle.
        consulted = self._ladder.facts.place if is_consulted(self._ladder) else None
        return vars(self) | {"_consulted": consulted}

    def __setstate__(self, state: dict[str, Any]) -> None:
        consulted = state.pop("_consulted")
        vars(self).update(state)
        if consulted is not None:
            mark_consulted(consulted)

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
            return certificates.html_table([(repr(self), str(error))])
