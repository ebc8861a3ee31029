"""The inner folds of an objective: scores on the training rows, and the fold that has none."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.model_selection import check_cv, cross_validate

from ladderholdout.errors import InvalidArgument

if TYPE_CHECKING:
    from ladderholdout.guard.open_ladder import OpenLadder
    from ladderholdout.metrics import Metric


def scores_of_folds(
    holdout: OpenLadder, model: Any, X: Any, y: Any, groups: Any, *, inner: Any
) -> dict[str, list[float]]:
    """Return the score of each inner fold, by metric; "score" where there is one metric.

    Raises
    ------
    InvalidArgument
        A fold has no value of the metric, or a classifier cannot learn from its training part.
    """
    names = list(holdout.by_metric) or ["score"]
    classifies = holdout.metric.is_classification
    # Taken once, for a splitter that shuffles makes other folds each time; and as a list, so that
    # groups reach the splitter whether or not scikit-learn routes metadata.
    folds = list(check_cv(inner, y, classifier=classifies).split(X, y, groups))
    if classifies:
        _check_training_parts(folds, y)
    places = iter(range(len(folds)))

    def score(estimator: Any, X_test: Any, y_test: Any) -> dict[str, float]:
        place = next(places)
        answers: dict[str, Any] = {}  # asked for once, whatever the number of metrics
        found = {
            name: _scored(one.metric, estimator, X_test, y_test, answers)
            for name, one in (holdout.by_metric or {"score": holdout}).items()
        }
        for name, value in found.items():
            if not math.isfinite(value):
                metric = holdout.metric.name if name == "score" else name
                raise _no_value(metric, place, len(folds), y_test, classifies)
        return found

    found = cross_validate(clone(model), X, y, cv=folds, scoring=score, error_score="raise")
    return {name: found[f"test_{name}"].tolist() for name in names}


def _scored(metric: Metric, model: Any, X: Any, y: Any, answers: dict[str, Any]) -> float:
    """Return a plain score; nan where the metric has none on these rows."""
    try:
        with warnings.catch_warnings():
            # The fold without a value is named by the error instead.
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            return metric.score_of(model, X, y, None, answers)
    except InvalidArgument as error:
        if error.args[0] != "y":
            raise
        return math.nan


def _check_training_parts(folds: list[tuple[Any, Any]], y: Any) -> None:
    """Refuse a fold whose training rows are of one class, which no classifier learns from."""
    classes = _classes(y)
    if len(classes) < 2:
        return
    for place, (train, _) in enumerate(folds):
        if len(_classes(y, train)) < 2:
            raise InvalidArgument(
                "inner",
                "folds whose training rows are of two classes at least",
                f"such that those of fold {place + 1} of {len(folds)} are all of one class",
                _STRATIFIED,
            )


_STRATIFIED = (
    "Spread the classes over the folds, with rows of each class in every one: "
    "inner=StratifiedKFold(5, shuffle=True, random_state=0), with no more folds than the rarest "
    "class has rows."
)


def _no_value(metric: str, place: int, folds: int, y: Any, classifies: bool) -> InvalidArgument:
    """Name the fold on whose rows the metric has no value."""
    rows = len(np.asarray(y))
    why = f"{rows} test rows" if rows > 1 else "one test row"
    if classifies and rows > 1 and len(_classes(y)) == 1:
        why += " of one class"
    return InvalidArgument(
        "inner",
        f"folds on each of which {metric!r} has a value",
        f"such that fold {place + 1} of {folds} has {why} and no value",
        _STRATIFIED if classifies else "Take fewer folds, with more rows in each: inner=5.",
    )


def _classes(y: Any, rows: Any = None) -> set[str]:
    """Return the distinct targets; of several outputs the distinct rows of them."""
    values = np.asarray(y)
    return set(map(repr, (values if rows is None else values[rows]).tolist()))
