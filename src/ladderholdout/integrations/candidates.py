"""The candidates of a search, read from it once it is fitted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
)
from sklearn.pipeline import Pipeline

from ladderholdout.arguments import as_given, as_number
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.batches import ranked
from ladderholdout.guard.context import describe_parameters
from ladderholdout.integrations.refit import are_same, check_choices
from ladderholdout.integrations.sklearn import GuardedSplit


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a search learnt on the training rows: distinct candidates with their inner scores."""

    results: dict[str, Any]
    parameters: list[Mapping[str, Any]]
    # Of each candidate: its row in the results, its mean score and those of its folds.
    rows: list[int]
    scores: Sequence[float | None]
    folds: NDArray[np.float64] | None
    # Of a halving search: the number of the last rung that it reached.
    rungs: NDArray[np.intp]
    n_jobs: int | None

    def order(self, finalists: int | str) -> tuple[Sequence[int], int]:
        """Return the candidates, the best first, and how many of them are finalists."""
        if finalists == "all":
            return range(len(self.rows)), len(self.rows)
        last = np.flatnonzero(self.rungs == self.rungs.max(initial=0))
        scores = np.asarray(self.scores, dtype=np.float64)
        folds = None if self.folds is None else self.folds[last]
        order, count = ranked(scores[last], folds, finalists)
        best = list(last[order])
        # Earlier rungs saw fewer rows: their candidates follow, where a number asks for them.
        by_rung = np.lexsort((-scores, -self.rungs))
        rest = by_rung[np.isin(by_rung, last, invert=True) & np.isfinite(scores[by_rung])]
        if not isinstance(finalists, str):
            count = min(finalists, len(best) + len(rest))
        return [*map(int, best), *map(int, rest)], count


@dataclass(frozen=True, slots=True)
class Mark:
    """A score that marks a fit that failed, in place of the one that the user stated.

    That one may be a good score by this metric, as 0 is among errors with their signs turned. The
    two are so near that a search goes the same way. A halving search takes nan, which it ranks
    last: what failed would win each rung otherwise, and what did not would be gone.
    """

    stated: float
    number: float

    @classmethod
    def of(cls, search: Any) -> Mark | None:
        """Return the mark for a search; None where its ``error_score`` is nan or an error."""
        number = as_number(getattr(search, "error_score", None))
        if not np.isfinite(number):
            return None
        near = number + 7.2354816e-12 * max(1.0, abs(number))
        return cls(number, np.nan if hasattr(search, "min_resources") else near)

    def is_in(self, scores: Any) -> NDArray[np.bool_]:
        """Return which of these scores are the mark."""
        numbers = np.asarray(scores, dtype=np.float64)
        return np.isclose(numbers, self.number, rtol=1e-13, atol=0.0, equal_nan=True)


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
            "For a study of Optuna: holdout.optuna.finalists(study, build). For fitted models: "
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
    if not type(inner).__module__.startswith("sklearn."):
        return True
    return any(name.startswith("param_") for name in inner.get_params(deep=False))


def unfitted(search: Any) -> tuple[Any, tuple[str, ...], Mark | None]:
    """Return a copy of a search that does not refit, where it is, and what marks a failed fit."""
    inner, path = check_search(search)
    try:
        copy = clone(search)
    except RuntimeError:  # of one that changes its parameters when it is made, as GASearchCV
        copy = deepcopy(search)
    copy.set_params(**{"__".join((*path, "refit")): False})
    mark = Mark.of(inner)
    if mark is not None:
        copy.set_params(**{"__".join((*path, "error_score")): mark.number})
    return copy, path, mark


def search_at(search: Any, path: tuple[str, ...]) -> Any:
    """Return the step of a pipeline that is the search; without a path, the search itself."""
    for name in path:
        search = search.named_steps[name]
    return search


def read_candidates(fitted: Any, stated: Any, mark: Mark | None) -> Candidates:
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
        # A candidate failed that has the mark on more folds than others, or on all of them.
        marks = np.array([mark.is_in(results[name]) for name in columns] or [mark.is_in(means)])
        count = marks.sum(axis=0)
        failed = (count > count.min(initial=len(marks))) | (count == len(marks))
        means = np.where(failed, np.nan, means)
        if np.isfinite(mark.number):
            _without(mark, fitted, results)
    rungs = np.asarray(results.get("iter", np.zeros(len(means))), dtype=np.intp)
    # Of equal candidates the one on the last rung, and there the first.
    rows = _distinct(results["params"], np.argsort(-rungs, kind="stable").tolist())
    folds = np.column_stack([results[name] for name in columns])[rows] if columns else None
    return Candidates(
        results,
        [results["params"][row] for row in rows],
        rows,
        means[rows].tolist(),
        None if folds is None else folds.astype(np.float64),
        rungs[rows],
        getattr(stated, "n_jobs", None),
    )


def fixed_candidates(search: Any) -> Candidates:
    """Return the candidates of a search that are known before it begins, each of them once.

    Raises
    ------
    InvalidArgument
        What it tries depends on scores.
    """
    if isinstance(search, GridSearchCV):
        parameters = list(ParameterGrid(search.param_grid))
    elif isinstance(search, RandomizedSearchCV):
        stated = search.param_distributions, search.n_iter
        parameters = list(ParameterSampler(*stated, random_state=search.random_state))
    else:
        raise InvalidArgument(
            "finalists",
            '"auto" or a whole number for a search whose candidates depend on its scores',
            f'"all", for {type(search).__name__}',
            "Or take GridSearchCV or RandomizedSearchCV, whose candidates are known in advance.",
        )
    if not parameters:
        raise InvalidArgument("search", "one with a candidate at least", "one without")
    rows = _distinct(parameters, range(len(parameters)))
    return Candidates(
        {"params": parameters},
        [parameters[row] for row in rows],
        rows,
        [None] * len(rows),
        None,
        np.zeros(len(rows), dtype=np.intp),
        search.n_jobs,
    )


def _distinct(parameters: Sequence[Mapping[str, Any]], order: Iterable[int]) -> list[int]:
    """Return the places of distinct parameters; of equal ones the first in this order."""
    places: list[int] = []
    known: dict[str, list[int]] = {}
    for place in order:
        described = repr(sorted(describe_parameters(parameters[place]).items()))
        alike = known.setdefault(described, [])
        if not any(are_same(parameters[place], parameters[earlier]) for earlier in alike):
            alike.append(place)
            places.append(place)
    return sorted(places)


def _without(mark: Mark, fitted: Any, results: dict[str, Any]) -> None:
    """Show the score that the user stated for a fit that failed, and not the mark."""
    for name, values in results.items():
        if re.match(r"(split\d+|mean)_(test|train)_", name):
            shown = np.asarray(values, dtype=np.float64).copy()
            shown[mark.is_in(shown)] = mark.stated
            results[name] = shown
    if "cv_results_" in vars(fitted):  # an OptunaSearchCV reads its own from the study
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
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    results: dict[str, Any] = {"params": [dict(trial.params) for trial in trials]}
    names = trials[0].user_attrs if trials else ()
    for name in names:
        if re.fullmatch(r"(mean|std|split\d+)_test_score", name):
            values = [trial.user_attrs.get(name, np.nan) for trial in trials]
            results[name] = np.asarray(values, dtype=np.float64)
    return {"mean_test_score": np.zeros(0)} | results
