"""`GuardedSearch`: search on the training rows, confirm the finalists on the holdout."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from rich.progress import Progress
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    get_routing_for_object,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from ladderholdout import thirdparty
from ladderholdout.errors import (
    InvalidArgument,
    LadderHoldoutError,
    as_given,
    as_number,
)
from ladderholdout.guard.batches import Batch, held_by
from ladderholdout.guard.context import describe_estimator, describe_parameters
from ladderholdout.guard.finalists import Finalist, check_finalists, ranked, winner_of
from ladderholdout.guard.groups import look_for_groups
from ladderholdout.guard.metric_views import Releases, ScoreCertificates
from ladderholdout.guard.open_ladder import (
    OpenLadder,
    check_open,
    ladder_of,
)
from ladderholdout.guard.views import Release, ScoreCertificate, incumbent_named
from ladderholdout.identity import copy_of
from ladderholdout.integrations.refit import IS_INCUMBENT, are_same, check_choices
from ladderholdout.integrations.rounds import mark_consulted
from ladderholdout.integrations.sklearn import GuardedSplit, score
from ladderholdout.integrations.training_rows import check_fit, look_for_overlap

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: no callbacks can be set."""

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is."""
        return method


FINALIST, RELEASED, IMPROVED, SUBMISSION = "finalist", "released_score", "improved", "submission"


def _of_the_winner(name: str, says: str) -> Any:
    """Return a method that is there where the winner, or the search before it, has it."""

    def check(self: GuardedSearch) -> bool:
        # The one that lacks it raises its own AttributeError.
        getattr(vars(self).get("best_estimator_", self.search), name)
        return True

    def method(self: GuardedSearch, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(X)

    method.__name__, method.__doc__ = name, says
    method.__qualname__ = f"GuardedSearch.{name}"
    return available_if(check)(method)


class GuardedSearch(CallbackSupportMixin, MetaEstimatorMixin, BaseEstimator):
    """A search that goes by the training rows alone and shows only its finalists to a holdout.

    `LadderHoldout.guard` makes it. `fit` runs the search as it is, without its refit; takes the
    candidates with the best inner scores, drops those whose predictions equal a better one's,
    fits each on all training rows, and submits them to the holdout as one batch. The incumbent is
    the winner, and this object predicts like it.

    Parameters
    ----------
    search : estimator
        An unfitted search with ``cv_results_`` once it is fitted (those of scikit-learn,
        BayesSearchCV, ...), an OptunaSearchCV, or a pipeline that ends in one.
    holdout : LadderHoldout
    finalists : int or "auto", default="auto"
        How many candidates query the holdout. "auto": all whose mean inner score is within two
        pooled standard errors of the best, at most 20 (10 where there are no fold scores).
    verbose : int, default=0
        Above 0: a progress bar while the finalists are fitted.

    Attributes
    ----------
    best_estimator_ : estimator
        The winner, fitted on all training rows.
    best_params_ : dict
    best_index_ : int
        The winner's place in `cv_results_`.
    best_score_ : float or None
        The released score of the holdout; None where the winner is not the incumbent, or the
        ladder releases no values.
    is_incumbent_ : bool
        Whether the winner is the incumbent. If not, a warning names what is.
    finalists_ : tuple of Finalist
        In the order in which they queried the holdout: the best inner score first.
    certificate_ : ScoreCertificate
        An interval for the winner's true score.
    cv_results_ : dict
        As the search has it, and ``finalist`` (place among the finalists, 0 for none),
        ``submission`` (0 for none), ``released_score`` (the released score after it, nan for
        none), ``improved`` and ``is_incumbent``.
    search_ : estimator
        The inner search, fitted.
    n_features_in_, feature_names_in_, classes_
        Those of the winner.

    Notes
    -----
    The scores of the search were used to choose the finalists and reveal nothing of the holdout's
    labels; so the holdout is asked few questions, and its certificate is narrow.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from ladderholdout import LadderHoldout
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> holdout = LadderHoldout(X[:200], y[:200], scoring="accuracy", ledger="memory")
    >>> grid = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3, 4, 5]})
    >>> search = holdout.guard(grid, finalists=2).fit(X[200:], y[200:])
    >>> len(search.finalists_), search.best_score_ == holdout.status().score
    (2, True)
    """

    def __init__(
        self, search: Any, holdout: Any, *, finalists: int | str = "auto", verbose: int = 0
    ) -> None:
        self.search = search
        self.holdout = holdout
        self.finalists = finalists
        self.verbose = verbose

    # -- fitting ----------------------------------------------------------------------

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Search on these rows, and confirm the finalists on the holdout.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            The training rows.
        y : array-like, shape (n_rows,), optional
        **params
            For the ``fit`` of the search, such as ``groups`` and ``sample_weight``.

        Returns
        -------
        self

        Raises
        ------
        InvalidArgument
            `search` is none or asks the holdout itself, or the rows or labels do not fit those of
            the holdout, found out before the search. Or all of its candidates failed.
        HoldoutConflict
            The holdout is retired; found out before the search.
        OverlapError
            Half of the holdout or more is among the training rows, or in a parameter of the fit.
        LedgerError, VaultError
            The guard cannot answer; what was released before is in the ledger, and ``search_``
            is fitted.
        """
        ladder = ladder_of(self.holdout, several=True)
        count = check_finalists("finalists", self.finalists)
        search, path, marked = _unfitted(self.search)
        check_open(ladder)
        look_for_overlap(ladder, X, {**search.get_params(deep=True), **params})
        look_for_groups(ladder, search, params)
        check_fit(ladder, search, X, y)
        # Scorers of the search score its own folds, and the holdout is asked when that is over.
        mark_consulted(ladder)
        given = self._given(params)
        tasks = _Tasks.of(self, thirdparty.fit_tasks(self, 2), X, y)
        with tasks.inner("search", search):
            self.search_ = search.fit(X, y, **given)
        found = _read(_at(search, path), _at(self.search, path), marked)
        confirming = tasks.part("finalists")
        chosen = self._fitted(ladder, found, found.order(count), path, X, y, params, confirming)
        self._confirm(ladder, found, chosen)
        confirming.end()
        tasks.end()
        return self

    def _given(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the search's own fit is given."""
        if not get_config()["enable_metadata_routing"]:
            return params
        routed: Mapping[str, Any] = process_routing(self, "fit", **params).search.fit
        return routed

    def _fitted(
        self,
        ladder: OpenLadder,
        found: _Inner,
        order: tuple[Sequence[int], int],
        path: tuple[str, ...],
        X: Any,
        y: Any,
        params: Mapping[str, Any],
        tasks: _Tasks,
    ) -> list[_Fitted]:
        """Fit candidates in their order until so many of them predict distinctly."""
        waiting, count = list(order[0]), order[1]
        # "auto" means these and no others; a number is filled up with the next ones.
        most = count if isinstance(self.finalists, str) else len(waiting)
        waiting = waiting[:most]
        chosen: list[_Fitted] = []
        fault: Exception | None = None
        with Progress(disable=not self.verbose) as bar:
            task = bar.add_task("Fitting the finalists", total=count)
            while waiting and len(chosen) < count:
                free = count - len(chosen)
                taken, waiting = waiting[:free], waiting[free:]
                models = [_model(self.search, path, found.parameters[at]) for at in taken]
                given = [_kept(one, params, path) for one in models]
                fits = (delayed(_fit)(one, X, y, kw) for one, kw in zip(models, given, strict=True))
                parts = [tasks.part("finalist", leaf=True) for _ in taken]
                fitted = Parallel(n_jobs=found.n_jobs, return_as=_as_they_come())(fits)
                for at, part, (model, error) in zip(taken, parts, fitted, strict=True):
                    bar.advance(task)
                    part.end()
                    error = error or _take(ladder, at, model, chosen)
                    if error is not None:
                        fault = fault or error
                        _warn_of(found.parameters[at], error)
                bar.update(task, completed=len(chosen))
            bar.update(task, total=len(chosen), completed=len(chosen))
        if not chosen:
            assert fault is not None
            if isinstance(fault, LadderHoldoutError) and not isinstance(fault, InvalidArgument):
                raise fault  # the guard's own, whatever the models are
            raise _all_failed(fault) from fault
        return chosen

    def _confirm(self, ladder: OpenLadder, found: _Inner, chosen: list[_Fitted]) -> None:
        """Query the holdout with the finalists, and take the winner."""
        with Batch(ladder) as batch:
            for one in chosen:
                described = describe_estimator(one.model) | {
                    "search": type(self.search).__name__,
                    "candidate": found.rows[one.at],
                }
                batch.add(one.predictions, described)
        incumbent, held = batch.held()
        self.finalists_ = tuple(
            Finalist(found.rows[one.at], found.scores[one.at], release, mine)
            for one, release, mine in zip(chosen, batch.releases, held, strict=True)
        )
        winner = winner_of(self.finalists_, incumbent)
        best, self.is_incumbent_ = chosen[winner], held[winner]
        release = batch.releases[winner]
        self.best_estimator_ = best.model
        self.best_params_ = dict(found.parameters[best.at])
        self.best_index_ = found.rows[best.at]
        self.best_score_ = release.score if self.is_incumbent_ else None
        self.certificate_ = _certificate(ladder, self.is_incumbent_, release)
        self.cv_results_ = _with_columns(found.results, self.finalists_, ladder)

    # -- the winner -------------------------------------------------------------------

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score the winner on rows of your own by the holdout's metric.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            New rows. The holdout's own rows query the holdout.
        y : array-like, shape (n_rows,)
        sample_weight : array-like, shape (n_rows,), optional

        Returns
        -------
        float
            In the metric's own sign; of several metrics, by the one named first.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import GridSearchCV
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from ladderholdout import LadderHoldout
        >>> X, y = load_iris(return_X_y=True)
        >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
        >>> tree = DecisionTreeClassifier(random_state=0)
        >>> search = GridSearchCV(tree, {"max_depth": [1, 2, 3]}, cv=3)
        >>> guarded = holdout.guard(search, finalists=2).fit(X[1::3], y[1::3])
        >>> guarded.score(X[2::3], y[2::3]) > 0.9
        True
        """
        check_is_fitted(self)
        several = ladder_of(self.holdout, several=True)
        ladder = next(iter(several.by_metric.values()), several)
        mark_consulted(ladder)  # the holdout was asked: there is nothing to remind of
        return cast(float, score(ladder, self.best_estimator_, X, y, sample_weight))

    predict = _of_the_winner("predict", "Predict with the winner.")
    predict_proba = _of_the_winner("predict_proba", "Predict probabilities with the winner.")
    predict_log_proba = _of_the_winner("predict_log_proba", "Return their logarithms.")
    decision_function = _of_the_winner("decision_function", "Return its decision function.")
    score_samples = _of_the_winner("score_samples", "Return its scores of the samples.")
    transform = _of_the_winner("transform", "Transform with the winner.")
    inverse_transform = _of_the_winner("inverse_transform", "Transform back with the winner.")

    def _winners(self, name: str) -> Any:
        if "best_estimator_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no {name} before it is fitted.")
        return getattr(self.best_estimator_, name)

    @property
    def classes_(self) -> Any:
        """The winner's classes."""
        return self._winners("classes_")

    @property
    def n_features_in_(self) -> int:
        """The number of features that the winner was fitted on."""
        return int(self._winners("n_features_in_"))

    @property
    def feature_names_in_(self) -> Any:
        """The names of the features that the winner was fitted on."""
        return self._winners("feature_names_in_")

    # -- conventions of scikit-learn --------------------------------------------------

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what is handed on to the search."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add(search=self.search, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.search)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "transformer_tags"):
            setattr(tags, name, getattr(inner, name))
        tags.input_tags.pairwise = inner.input_tags.pairwise
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "best_estimator_" in vars(self)


@dataclass(frozen=True, slots=True)
class _Tasks:
    """A task of a fit, as callbacks of scikit-learn hear of it; without a context nobody does."""

    owner: Any
    context: Any
    X: Any
    y: Any

    @classmethod
    def of(cls, owner: Any, context: Any, X: Any, y: Any) -> Self:
        """Return a task that begins now."""
        if context is not None:
            context.call_on_fit_task_begin(estimator=owner, X=X, y=y)
        return cls(owner, context, X, y)

    def part(self, name: str, *, leaf: bool = False) -> _Tasks:
        """Begin a part of it."""
        context = None
        if self.context is not None:
            context = self.context.subcontext(task_name=name, max_subtasks=0 if leaf else None)
        return _Tasks.of(self.owner, context, self.X, self.y)

    @contextmanager
    def inner(self, name: str, estimator: Any) -> Iterator[None]:
        """Let the fit of an estimator in this block be a part of it."""
        if self.context is None:
            yield
            return
        context = self.context.subcontext(task_name=name)
        with context.propagate_callback_context(estimator):
            part = _Tasks.of(self.owner, context, self.X, self.y)
            yield
        part.end()

    def end(self) -> None:
        """Report that it is done."""
        if self.context is not None:
            self.context.call_on_fit_task_end(estimator=self.owner, X=self.X, y=self.y)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A candidate that was fitted on all training rows, and what it predicts on the holdout's."""

    at: int
    model: Any
    predictions: Any


@dataclass(frozen=True, slots=True)
class _Inner:
    """What a search found on the training rows: distinct candidates with their inner scores."""

    results: dict[str, Any]
    parameters: list[Mapping[str, Any]]
    # Of each candidate: its row in the results, its mean score and those of its folds.
    rows: list[int]
    scores: list[float]
    folds: NDArray[np.float64] | None
    # Of a halving search: the number of the last rung that it reached.
    rungs: NDArray[np.intp]
    n_jobs: int | None

    def order(self, finalists: int | str) -> tuple[Sequence[int], int]:
        """Return the candidates, the best first, and how many of them are finalists."""
        last = np.flatnonzero(self.rungs == self.rungs.max())
        scores = np.asarray(self.scores)
        folds = None if self.folds is None else self.folds[last]
        order, count = ranked(scores[last], folds, finalists)
        best = list(last[order])
        # Earlier rungs saw fewer rows: their candidates follow, where a number asks for them.
        rest = [at for at in np.lexsort((-scores, -self.rungs)) if at not in set(last)]
        rest = [at for at in rest if np.isfinite(scores[at])]
        if not isinstance(finalists, str):
            count = min(finalists, len(best) + len(rest))
        return [int(at) for at in (*best, *rest)], count


@dataclass(frozen=True, slots=True)
class _Mark:
    """A score that marks a fit that failed, in place of the one that the user stated.

    That one may be a good score by this metric, as 0 is among errors with their signs turned. The
    two are so near that a search goes the same way. A halving search takes nan, which it ranks
    last: what failed would win each rung otherwise, and what did not would be gone.
    """

    stated: float
    number: float

    @classmethod
    def of(cls, search: Any) -> _Mark | None:
        """Return the mark for a search; None where its ``error_score`` is nan or an error."""
        number = as_number(getattr(search, "error_score", None))
        if not np.isfinite(number):
            return None
        near = number + 7.2354816e-12 * max(1.0, abs(number))
        return cls(number, np.nan if hasattr(search, "min_resources") else near)

    def is_in(self, scores: Any) -> NDArray[np.bool_]:
        """Return which of these scores are the mark."""
        found = np.asarray(scores, dtype=np.float64)
        return np.isclose(found, self.number, rtol=1e-13, atol=0.0, equal_nan=True)


def check_search(search: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the search at the end of pipelines, and where in them it is.

    Raises
    ------
    InvalidArgument
        There is none, or one that asks the holdout itself.
    """
    path: tuple[str, ...] = ()
    inner = search
    while isinstance(inner, Pipeline):
        name, inner = inner.steps[-1]
        path = (*path, name)
    if isinstance(inner, type) or not _searches(inner):
        raise InvalidArgument(
            "search",
            "an unfitted search such as GridSearchCV, or a pipeline that ends in one",
            as_given(search),
            "For a study of Optuna: holdout.finalists(study, build). For fitted models: "
            "holdout.finalists(models).",
        )
    splitter = getattr(inner, "cv", None)
    if isinstance(splitter, GuardedSplit) and splitter.guarded:
        raise InvalidArgument(
            "search",
            "one that goes by the training rows alone",
            "one whose cv= asks the holdout",
            "Give the search folds of the training rows, such as cv=5; guard(search) shows the "
            "finalists to the holdout itself.",
        )
    check_choices("search", getattr(inner, "param_distributions", None))
    return inner, path


def _searches(inner: Any) -> bool:
    """Return whether something is a search; scikit-learn has others that refit an estimator."""
    if not all(hasattr(inner, name) for name in ("fit", "get_params", "estimator", "refit")):
        return False
    own = type(inner).__module__.startswith("sklearn.")
    return not own or any(name.startswith("param_") for name in inner.get_params(deep=False))


def _unfitted(search: Any) -> tuple[Any, tuple[str, ...], _Mark | None]:
    """Return a copy of a search that does not refit, where it is, and what marks a failed fit."""
    inner, path = check_search(search)
    copy, mark = _copied(search), _Mark.of(inner)
    changed = {"refit": False} if mark is None else {"refit": False, "error_score": mark.number}
    copy.set_params(**{"__".join((*path, name)): one for name, one in changed.items()})
    return copy, path, mark


def _as_they_come() -> str:
    """Return how joblib hands models back: one by one, where its backend can; Ray's cannot."""
    backend, _ = get_active_backend()
    return "generator" if backend.supports_return_generator else "list"


def _copied(search: Any) -> Any:
    """Return an unfitted copy, also of a search that changes its parameters when it is made.

    scikit-learn's `clone` refuses such a search; GASearchCV is one.
    """
    try:
        return clone(search)
    except RuntimeError:
        return deepcopy(search)


def _at(search: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        search = search.named_steps[name]
    return search


def _model(search: Any, path: tuple[str, ...], parameters: Mapping[str, Any]) -> Any:
    """Return the unfitted model of a candidate, with the pipeline around the search."""
    model = clone(_at(search, path).estimator).set_params(**clone(parameters, safe=False))
    if not path:
        return model
    return clone(search).set_params(**{"__".join(path): model})


def _kept(model: Any, params: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return which parameters of `fit` are the model's, and not the splitter's or the scorer's."""
    if get_config()["enable_metadata_routing"]:
        own = get_routing_for_object(model).consumes("fit", params.keys())
        return {name: params[name] for name in own}
    return {name: value for name, value in params.items() if name != "__".join((*path, "groups"))}


def _fit(model: Any, X: Any, y: Any, params: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    try:
        # A copy for each: what one writes into its rows, the next must not be fitted on.
        X, y = copy_of(X), copy_of(y)
        return (model.fit(X, **params) if y is None else model.fit(X, y, **params)), None
    except Exception as error:  # whatever it is, the other finalists are worth their hours
        return None, error


def _take(ladder: OpenLadder, at: int, model: Any, chosen: list[_Fitted]) -> Exception | None:
    """Add a fitted candidate unless another one predicts the same; return why it cannot be."""
    try:
        predictions = ladder.predict(model)
    except Exception as refused:  # by the guard, or by the model on these rows
        return refused
    if not any(predictions.equals(one.predictions) for one in chosen):
        chosen.append(_Fitted(at, model, predictions))
    return None


def _warn_of(parameters: Mapping[str, Any], error: Exception) -> None:
    described = describe_parameters(parameters).items()
    shown = ", ".join(f"{name}={value!r}" for name, value in described)
    warnings.warn(
        f"The finalist with {shown or 'no parameters'} failed and is left out: {error}",
        FitFailedWarning,
        stacklevel=2,
    )


def _all_failed(fault: Exception) -> InvalidArgument:
    """Return the error for finalists of which none can be submitted, after the whole search."""
    own = isinstance(fault, LadderHoldoutError)
    came = str(fault) if own else f"{type(fault).__name__}: {fault}"
    return InvalidArgument(
        "search",
        "one of whose finalists at least one can be fitted and predicts the holdout's rows",
        f"one of which none can. The first: {came.rstrip('.')}",
        "Nothing was submitted. The search itself is kept, fitted, as search_ of this object, with "
        "its cv_results_: refit what you need of it, and show it by holdout.evaluate(model) or "
        "holdout.submit(predictions).",
    )


def _read(fitted: Any, stated: Any, mark: _Mark | None) -> _Inner:
    """Read the candidates of a fitted search, each of them once."""
    if hasattr(fitted, "study_"):
        results = _of_study(fitted.study_)
    elif hasattr(fitted, "cv_results_"):
        results = dict(fitted.cv_results_)
    else:
        raise InvalidArgument(
            "search",
            "one that has cv_results_ once it is fitted, or an OptunaSearchCV",
            type(fitted).__name__,
            "Submit its models by hand: holdout.finalists(models).",
        )
    metric = _metric_of(results, getattr(stated, "refit", True))
    of_fold = re.compile(rf"split\d+_test_{re.escape(metric)}")
    columns = [name for name in results if of_fold.fullmatch(name)]
    means = np.asarray(results[f"mean_test_{metric}"], dtype=np.float64)
    if mark is not None:
        every = [results[name] for name in columns] or [means]
        means = np.where(_failed(every, mark), np.nan, means)
        if np.isfinite(mark.number):
            _without(mark, fitted, results)
    rungs = np.asarray(results.get("iter", np.zeros(len(means))), dtype=np.intp)
    # Of equal candidates the one on the last rung, and there the first.
    rows: list[int] = []
    known: dict[str, list[int]] = {}
    for row in sorted(range(len(means)), key=lambda at: (-rungs[at], at)):
        own = results["params"][row]
        alike = known.setdefault(repr(sorted(describe_parameters(own).items())), [])
        if not any(are_same(own, results["params"][one]) for one in alike):
            alike.append(row)
            rows.append(row)
    taken = sorted(rows)
    folds = np.column_stack([results[name] for name in columns])[taken] if columns else None
    return _Inner(
        results,
        [results["params"][row] for row in taken],
        taken,
        means[taken].tolist(),
        None if folds is None else folds.astype(np.float64),
        rungs[taken],
        getattr(stated, "n_jobs", None),
    )


def _failed(folds: Sequence[Any], mark: _Mark) -> NDArray[np.bool_]:
    """Return which candidates failed: on more folds than others, or on all of them."""
    count = np.array([mark.is_in(scores) for scores in folds]).sum(axis=0)
    failed: NDArray[np.bool_] = (count > count.min(initial=len(folds))) | (count == len(folds))
    return failed


def _without(mark: _Mark, fitted: Any, results: dict[str, Any]) -> None:
    """Show the score that the user stated for a fit that failed, and not the mark."""
    for name, values in results.items():
        if re.match(r"(split\d+|mean)_(test|train)_", name):
            shown = np.asarray(values, dtype=np.float64).copy()
            shown[mark.is_in(shown)] = mark.stated
            results[name] = shown
    if hasattr(fitted, "cv_results_"):
        fitted.cv_results_ = dict(results)


def _metric_of(results: Mapping[str, Any], refit: Any) -> str:
    """Return the name of the inner score that the search goes by."""
    if "mean_test_score" in results:
        return "score"
    if isinstance(refit, str) and f"mean_test_{refit}" in results:
        return refit
    raise InvalidArgument(
        "search",
        "one that states by which of its metrics it chooses",
        f"refit={refit!r}",
        "Give a search with several metrics the name of one of them: refit='accuracy'.",
    )


def _of_study(study: Any) -> dict[str, Any]:
    """Return the finished trials of an OptunaSearchCV as ``cv_results_`` has candidates."""
    trials = [one for one in study.get_trials(deepcopy=False) if one.state.name == "COMPLETE"]
    results: dict[str, Any] = {"params": [dict(one.params) for one in trials]}
    names = trials[0].user_attrs if trials else ()
    for name in names:
        if re.fullmatch(r"(mean|std|split\d+)_test_score", name):
            values = [one.user_attrs.get(name, np.nan) for one in trials]
            results[name] = np.asarray(values, dtype=np.float64)
    return {"mean_test_score": np.zeros(0)} | results


def _certificate(ladder: OpenLadder, is_incumbent: bool, release: Release) -> ScoreCertificate:
    """Certify the winner, by each of several metrics of which it is the incumbent."""
    if isinstance(release, Releases):
        each = {}
        for name, one in ladder.by_metric.items():
            _, (mine,) = held_by(one, [release[name]])
            each[name] = _certificate(one, mine, release[name])
        return ScoreCertificates.of(each)
    found = ladder.certificate(None)
    if is_incumbent:
        return found
    missing = (
        f"submission {release.submission}, which this search picked, is not the incumbent "
        f"({incumbent_named(found.submission)})"
    )
    return ScoreCertificate(None, None, None, found.confidence, release.submission, missing=missing)


def _with_columns(
    results: dict[str, Any], finalists: tuple[Finalist, ...], ladder: OpenLadder
) -> dict[str, Any]:
    """Return the results with what the holdout released beside each candidate.

    Of several metrics those of the first, and each one's under its name.
    """
    first = [one.release for one in finalists]
    found = results | _columns(results, finalists, first, [one.is_incumbent for one in finalists])
    for name, one in ladder.by_metric.items():
        releases = [each.release[name] for each in finalists]
        own = _columns(results, finalists, releases, held_by(one, releases)[1])
        found |= {f"{column}_{name}": own[column] for column in (RELEASED, IMPROVED, IS_INCUMBENT)}
    return found


def _columns(
    results: dict[str, Any],
    finalists: Sequence[Finalist],
    releases: Sequence[Release],
    mine: Sequence[bool],
) -> dict[str, Any]:
    size = len(results["params"])
    places, numbers = np.zeros(size, dtype=np.intp), np.zeros(size, dtype=np.intp)
    scores, improved = np.full(size, np.nan), np.zeros(size, dtype=np.bool_)
    held = improved.copy()
    for place, (one, release) in enumerate(zip(finalists, releases, strict=True)):
        row = one.candidate
        places[row], numbers[row] = place + 1, release.submission
        improved[row], held[row] = release.improved, mine[place]
        if release.score is not None:
            scores[row] = release.score
    columns = (places, numbers, scores, improved, held)
    names = (FINALIST, SUBMISSION, RELEASED, IMPROVED, IS_INCUMBENT)
    return dict(zip(names, columns, strict=True))
