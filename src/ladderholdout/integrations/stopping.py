"""Early stopping that sees only the ladder: each round of training is a submission."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, TypedDict
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import whole
from ladderholdout.errors import BudgetWarning, InvalidArgument, InvalidSubmission, warn
from ladderholdout.guard.certificate import ALONE
from ladderholdout.guard.context import jsonable
from ladderholdout.guard.open_ladder import HasLadder, OpenLadder, Origin, Predictions, ladder_of
from ladderholdout.guard.seen import shown_last, submit_later, submitted
from ladderholdout.guard.views import Release
from ladderholdout.identity.copies import copy_of
from ladderholdout.integrations.pipelines import as_the_model_sees
from ladderholdout.integrations.rounds import Loud
from ladderholdout.metrics import Metric
from ladderholdout.metrics import arrays as forms

# Models in single precision miss the ends of [0, 1] by their rounding.
_ROUNDING = 1e-6


# Rounds that wait are as many as together make so many numbers.
_MOST_WAITING = 2_000_000


def check_classes(stopping: LadderStopping, known: ArrayLike | None, remedy: str) -> None:
    """Refuse, before any round, a model whose classes are not the holdout's.

    Parameters
    ----------
    stopping : LadderStopping
    known : array-like, optional
        The classes of the model; None: they are 0 to k - 1.
    remedy : str
    """
    with Loud():
        classes = ladder_of(stopping.holdout).facts.classes
        if classes is None or not stopping.metric.is_classification:
            return
        if known is None:
            if forms.is_text(classes) or not np.array_equal(classes, np.arange(len(classes))):
                raise InvalidArgument(
                    "classes",
                    "given where the holdout's classes are not 0, 1, ... as those of the model",
                    "missing, so that nobody knows which column belongs to which class",
                    "Give ladder_stopping(holdout, classes=[...]) the holdout's class for each "
                    "number that the model learns, that of 0 first.",
                )
            return
        order = forms.label_vector(known, "classes")
        if (forms.codes_of(order, classes) < 0).any():
            kinds = ["text" if forms.is_text(array) else "numbers" for array in (classes, order)]
            what = kinds[1] if kinds[0] != kinds[1] else "others"
            raise InvalidArgument(
                "classes",
                f"classes of the holdout, which are {kinds[0]}, in the order of the model's",
                f"{what}, so that nobody knows which belongs to which",
                remedy,
            )


class _Answered:
    """A fitted classifier that has given its answer, so that one path serves both."""

    def __init__(self, classes: NDArray[Any], columns: NDArray[Any]) -> None:
        self.classes_, self._columns = classes, columns

    def predict_proba(self, _: object) -> NDArray[Any]:
        return self._columns

    def predict(self, _: object) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[self._columns.argmax(axis=1)]
        return labels


def _columns(table: NDArray[Any], width: int) -> NDArray[Any]:
    """Return one column for each class; of the second class alone, the first follows."""
    if table.ndim == 1 and width == 2:
        return np.column_stack([1 - table, table])
    if table.ndim != 2 or table.shape[1] != width:
        raise InvalidSubmission(
            "predictions",
            f"one column for each of {width} classes",
            forms.described(table),
            "Where the model knows other classes than the holdout, give classes= in its order.",
        )
    return table


def _refuse_margins(table: NDArray[Any]) -> None:
    # nan is refused where probabilities are made canonical, and where labels are made of them.
    if forms.is_text(table) or (table < -_ROUNDING).any() or (table > 1 + _ROUNDING).any():
        raise InvalidArgument(
            "predictions",
            "probabilities",
            "outside [0, 1]: raw margins, or logits",
            "scipy.special.expit makes probabilities of them for two classes, a softmax over the "
            "columns for more. For a network, give it as link=.",
        )


@dataclass(slots=True, repr=False)
class Fit:
    """One training run: what was released of its rounds, and which wait to be submitted.

    `classes` are the holdout's.
    """

    ladder: OpenLadder
    classes: NDArray[Any] | None
    X: Any
    # Whether X has the order in which the caller gave the rows.
    order_known: bool
    context: Mapping[str, Any]
    id: str = field(default_factory=lambda: uuid4().hex[:8])
    releases: list[Release] = field(default_factory=list)
    best_round: int = 0
    best_level: int = 0
    stopped: bool = False
    # The batch of the rounds to come, and how many rounds came before its first one.
    batch: str = field(default_factory=lambda: uuid4().hex)
    begin: int = 0
    # Whether somebody read the feedback on its rounds.
    seen: bool = False
    _shown: object = field(default_factory=shown_last)
    _thread: int = field(default_factory=threading.get_ident)
    # Whether the user was warned that the budget is used up, and whether `X` was read.
    warned: bool = False
    rows_read: bool = False
    # What makes the predictions of each round that is not submitted yet, in their order.
    waiting: list[Callable[[], Any]] = field(default_factory=list)
    # What an adapter keeps of the fit.
    own: SimpleNamespace = field(default_factory=SimpleNamespace)

    @property
    def here(self) -> bool:
        """Whether this is the thread that began it."""
        return threading.get_ident() == self._thread

    def origins(self, count: int) -> list[Origin]:
        """Return the batch and the context of the next rounds.

        As long as nobody read any feedback, and training was not to stop, each round is the
        next one of training that goes on: fixed in advance. Feedback that was read may steer
        all that comes later, so it ends the batch. The rounds after it are another batch,
        which depends on no feedback but that before.
        """
        latest = shown_last()
        if self.seen or self.stopped or latest is not self._shown:
            self.batch, self.begin = uuid4().hex, len(self.releases)
            self.seen, self._shown = False, latest
        first = len(self.releases) + 1
        batch = self.batch if self.here else None  # whose round is next among threads is not fixed
        return [
            Origin(
                batch=batch,
                place=None if batch is None else number - self.begin,
                context={**self.context, "fit": self.id, "round": number},
            )
            for number in range(first, first + count)
        ]

    def take(self, release: Release) -> None:
        """Count one round.

        The later of two incumbents has the better released score. A round that repeats one of
        the same fit, as a tree without a split does, is therefore no progress, and a second fit of
        the same rounds has its best where the first had it.
        """
        self.releases.append(release)
        if release.has_held and release.improvements > self.best_level:
            self.best_round, self.best_level = len(self.releases), release.improvements


class Rule(TypedDict, total=False):
    """The keyword settings of `LadderStopping` that every adapter hands on to it.

    Attributes
    ----------
    min_rounds : int
    context : mapping or None
    """

    min_rounds: int
    context: Mapping[str, Any] | None


class LadderStopping:
    """Stop training when no round has improved the released score for some time.

    Each round of boosting or epoch of training is a submission. Training stops when none of
    the last `patience` rounds improved the released score, and the best round by the ledger is
    the one to keep. The adapters of LightGBM, XGBoost and CatBoost submit rounds together that
    cannot end training, always before anything released is shown.

    The rounds of a fit are one batch as long as answers can only stop them: until `update`
    returns True, or `best_round`, `improved` or `releases` is read, or anything else in this
    process shows what was released (`status`, `history`, `certificate`). Rounds after that
    are a batch of their own, which pays for all answers before.

    The ladder is shared with whatever else asks the holdout: in a search, a fit that never
    beats the incumbent is stopped after ``max(patience, min_rounds)`` rounds. Where that is
    too early, state `min_rounds`, or give the fits a ladder of their own
    (``LadderHoldout(..., ladder="fit")``), at the price of more releases to pay for in the
    certificate.

    Adapters do the rest for a library: see ``ladder_stopping`` in the modules of
    `ladderholdout.integrations`. Each of them takes the parameters below and hands them on.

    Parameters
    ----------
    holdout : LadderHoldout
    patience : int, default=10
        Rounds without an improvement after which training stops.
    min_rounds : int, default=1
        Training goes on for so many rounds in any case.
    context : mapping, optional
        Anything JSON can hold that you want to find beside every round in the history. A
        round's number and the id of its fit are there anyway.

    Raises
    ------
    InvalidArgument
        An argument is refused.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> y = [0, 1, 0, 1, 0, 1, 0, 1]
    >>> holdout = LadderHoldout([[i] for i in range(8)], y, scoring="accuracy", ledger="memory")
    >>> stopping = LadderStopping(holdout, patience=2).start()
    >>> rounds = [[0] * 8, y, [1] * 8, [0, 0, 0, 0, 1, 1, 1, 1], y]
    >>> [stopping.update(predictions) for predictions in rounds[:4]]
    [False, False, False, True]
    >>> stopping.best_round, stopping.rounds
    (2, 4)
    """

    def __init__(
        self,
        holdout: HasLadder,
        patience: int = 10,
        *,
        min_rounds: int = 1,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        self.holdout, self._ladder = holdout, ladder_of(holdout)
        self.patience = whole("patience", patience)
        self.min_rounds = whole("min_rounds", min_rounds)
        self.context = jsonable(context)
        # The fit that began last in each thread, and in any.
        self._here = threading.local()
        self._last: Fit | None = None

    @property
    def metric(self) -> Metric:
        """What is measured."""
        return self._ladder.metric

    # -- the rule ---------------------------------------------------------------------

    def start(self, **context: Any) -> LadderStopping:
        """Begin a fit: the rounds of the one before are forgotten.

        Parameters
        ----------
        **context
            Added to the context of every round of this fit.

        Returns
        -------
        LadderStopping
            This object.

        Raises
        ------
        SearchStopped
            Inside a search of scikit-learn: the guard cannot answer.
        LadderHoldoutError
            Elsewhere: the same.
        """
        self._settled()
        with Loud():
            rows, classes = self._ladder.rows(checked=True), self._ladder.facts.classes
            X = as_the_model_sees(rows.X)
            context = self.context | jsonable(context)
            context |= {"stopping": [self.patience, self.min_rounds]}
            fit = Fit(self._ladder, classes, X, rows.order_known, context)
        self._last = self._here.fit = fit
        return self

    def update(self, predictions: Any) -> bool:
        """Submit one round.

        Parameters
        ----------
        predictions : array-like
            For the rows of `X`, in its order, as the metric asks (see `answer`).

        Returns
        -------
        bool
            Whether to stop now.

        Raises
        ------
        SearchStopped
            Inside a search of scikit-learn: the round is refused, or the guard cannot answer.
        InvalidSubmission, LedgerError
            Elsewhere: the same. Nothing was released.
        """
        fit = self._fit
        with Loud():
            forms.refuse_masked("predictions", predictions)
            predictions = forms.by_index(predictions, fit.X)
        fit.waiting.append(lambda: predictions)
        self._settle(fit)
        return fit.stopped

    def _later(self, made: Callable[[], Any]) -> bool:
        """Count one round that is submitted later, and return whether to stop.

        Training goes on for `patience` rounds after an improvement whatever is answered. So the
        rounds wait until the last of them might end it, and are then submitted in one transaction,
        with the predictions that `made` returns for each. They also are as soon as this thread
        reads what was released, or submits anything else.
        """
        fit = self._fit
        fit.waiting.append(made)
        submit_later(fit, partial(self._settle, fit))
        count, width = len(fit.waiting), 1 if fit.classes is None else len(fit.classes)
        due = len(fit.releases) + count >= max(self.min_rounds, fit.best_round + self.patience)
        if due or count * fit.ladder.facts.n * width >= _MOST_WAITING or not fit.here:
            self._settle(fit)
        return fit.stopped

    def _settle(self, fit: Fit) -> None:
        """Submit the rounds of a fit that wait, and find out whether it is to stop."""
        submitted(fit)
        waiting, fit.waiting = fit.waiting, []
        if not waiting:
            return
        with Loud():
            # In another process, rows that were given in another order than the registered one
            # come in the registered one: predictions made without reading `X` have another order.
            if not (fit.order_known or fit.rows_read):
                raise InvalidArgument(
                    "predictions",
                    "made from the rows of X, the attribute of this object",
                    "made without reading it, in another process than the one that gave the rows",
                    "The rows came in another order than the registered one.",
                )
            rounds = [Predictions({ALONE: made()}) for made in waiting]
            releases = fit.ladder.submit_all(rounds, fit.origins(len(rounds)))
        for release in releases:
            self._warn_if_spent(fit, release)
            fit.take(release)
        seen = len(fit.releases)
        if seen >= self.min_rounds and seen - fit.best_round >= self.patience:
            fit.stopped = True

    def evaluate(self, estimator: Any) -> bool:
        """Submit one round: what a fitted estimator of scikit-learn's kind predicts on `X`.

        Parameters
        ----------
        estimator : object
            With the response method that the metric asks for.

        Returns
        -------
        bool
            Whether to stop now.

        Raises
        ------
        SearchStopped, InvalidSubmission, LedgerError
            As for `update`.

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> from ladderholdout import LadderHoldout
        >>> X, y = [[i] for i in range(8)], [0, 1] * 4
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        >>> stopping = LadderStopping(holdout, patience=2).start()
        >>> stopping.evaluate(DummyClassifier().fit(X, y))
        False
        """
        with Loud():
            fit = self._fit
            fit.rows_read = True
            predictions = self.metric.respond(estimator, fit.X, fit.classes)
        return self.update(predictions)

    def answer(self, output: Any, *, classes: ArrayLike | None = None) -> NDArray[Any]:
        """Turn a model's output on `X` into the predictions that `update` takes.

        Parameters
        ----------
        output : array-like, shape (n,), (n, 1) or (n, C)
            Values, or probabilities: one column a class, or of the second class alone. Turn raw
            margins or logits into probabilities first: `scipy.special.expit` for one column,
            ``scipy.special.softmax(output, axis=1)`` for more.
        classes : array-like of shape (C,), optional
            The model's classes in the order of its columns; by default the holdout's, sorted.
            State them where the training rows hold other classes than the holdout.

        Returns
        -------
        ndarray
            Class labels, probabilities, scores or values, as the metric asks.

        Raises
        ------
        InvalidArgument
            The output has another form.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> LadderStopping(holdout, patience=2).start().answer([[0.9, 0.1], [0.2, 0.8]]).tolist()
        [0, 1]
        """
        with Loud():
            fit, metric = self._fit, self.metric
            table = forms.readable(forms.by_index(output, fit.X), "predictions")
            if not metric.is_classification or fit.classes is None:
                return table
            if metric.response != "scores":
                _refuse_margins(table)
            order = fit.classes if classes is None else forms.label_vector(classes, "classes")
            columns = _columns(table, len(order))
            if metric.response == "labels" and np.isnan(columns).any():
                raise InvalidSubmission("predictions", "probabilities", "an array with nan")
            if metric.response == "probabilities" and np.array_equal(order, fit.classes):
                return columns
            return metric.respond(_Answered(order, columns), None, fit.classes)

    # -- what is known of the fit ---------------------------------------------------------

    @property
    def X(self) -> Any:
        """The holdout's rows, for the library to predict on: a copy at each call.

        They are kept as they were given. For a model inside a pipeline of scikit-learn they come
        as the steps before it leave them.
        """
        self._fit.rows_read = True
        return copy_of(self._fit.X)

    @property
    def rounds(self) -> int:
        """Rounds of this fit."""
        fit = self._settled()
        return 0 if fit is None else len(fit.releases)

    @property
    def best_round(self) -> int:
        """How many rounds the model to keep has.

        The last round of this fit that improved the ladder, now or when the same predictions were
        submitted first; where none did, all of them.
        Reading it ends the batch of the rounds so far.
        """
        fit = self._read()
        return 0 if fit is None else fit.best_round or len(fit.releases)

    @property
    def improved(self) -> bool:
        """Whether `best_round` is one that improved the ladder; reading it ends the batch."""
        fit = self._read()
        return fit is not None and fit.best_round > 0

    @property
    def stopped(self) -> bool:
        """Whether training is to stop, as the last `update` returned it."""
        fit = self._known
        return fit is not None and fit.stopped

    @property
    def releases(self) -> tuple[Release, ...]:
        """What was released of this fit's rounds, in their order; reading it ends the batch."""
        fit = self._read()
        return () if fit is None else tuple(fit.releases)

    def _read(self) -> Fit | None:
        """Return the fit whose feedback is read now, which ends its batch."""
        fit = self._settled()
        if fit is not None:
            fit.seen = True
        return fit

    def _settled(self) -> Fit | None:
        """Return the fit, after its rounds were submitted."""
        fit = self._known
        if fit is not None and fit.here:
            self._settle(fit)
        return fit

    @property
    def _known(self) -> Fit | None:
        # Threads may share this object, as the workers of a search do: each has its own fit.
        # A thread without one reads the fit that began last.
        fit: Fit | None = getattr(self._here, "fit", self._last)
        return fit

    @property
    def _fit(self) -> Fit:
        if self._known is None:
            self.start()
        assert self._known is not None
        return self._known

    def _warn_if_spent(self, fit: Fit, release: Release) -> None:
        if fit.warned or release.releases_left != 0:
            return
        fit.warned = True
        if release.improved and release.improvements == self._ladder.facts.rules.budget:
            return  # this very round used up the budget, and the guard has warned
        warn(
            "The releases of this ladder are used up: no new round can improve it, and a fit "
            f"stops after {max(self.patience, self.min_rounds)} rounds without one.",
            BudgetWarning,
        )

    # -- passing it around ----------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, in this process or another, begins without a fit.
        rule: Rule = {"min_rounds": self.min_rounds, "context": self.context}
        return partial(type(self), self.holdout, self.patience, **rule), ()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.holdout!r}, patience={self.patience}, "
            f"min_rounds={self.min_rounds})"
        )
