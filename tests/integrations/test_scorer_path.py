"""Attacks the short cuts of the scorer: what it leaves out must change no answer and no record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import (
    GridSearchCV,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout, SearchStopped
from ladderholdout.errors import KnownHoldoutWarning
from ladderholdout.guard.context import describe_estimator
from ladderholdout.mechanisms import FullDisclosure

Open = Callable[..., LadderHoldout]
DEPTHS = {"max_depth": [1, 2, 3, 4]}


@pytest.fixture
def opened(binary: Any, tmp_path: Path) -> Open:
    def make(scoring: str = "accuracy", **wishes: Any) -> LadderHoldout:
        wishes = {"ledger": tmp_path / "ledger.db", "mechanism": FullDisclosure(), **wishes}
        return LadderHoldout(binary.X_holdout, binary.y_holdout, scoring=scoring, **wishes)

    return make


@pytest.fixture
def holdout(opened: Open) -> LadderHoldout:
    return opened()


def guarded(holdout: LadderHoldout, model: Any, values: Any, **settings: Any) -> GridSearchCV:
    settings = {"cv": holdout.split(), "scoring": holdout, "refit": False, **settings}
    return GridSearchCV(model, values, **settings)


def tree(**settings: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0, **settings)


# -- the round, by what takes the folds -----------------------------------------------------


def test_what_is_around_listed_folds_is_looked_at_all_the_same(
    holdout: LadderHoldout, binary: Any
) -> None:
    folds = list(holdout.split().split(binary.X_train, binary.y_train))
    search = guarded(holdout, tree(), DEPTHS, cv=folds, refit=holdout.select)
    bag = BaggingClassifier(search, max_features=0.5)
    with pytest.raises(SearchStopped):
        bag.fit(binary.X_train, binary.y_train)
    with parallel_config("threading"), pytest.raises(SearchStopped, match="n_jobs must be 1"):
        clone(search).set_params(n_jobs=2).fit(binary.X_train, binary.y_train)
    assert holdout.status().submissions == 0
    guarded(holdout, tree(), DEPTHS, cv=folds).fit(binary.X_train, binary.y_train)
    assert {one.batch for one in holdout.history()} == {None}  # and so each counts alone


def test_a_function_around_the_scorer_has_no_batch_and_is_looked_at(
    holdout: LadderHoldout, binary: Any
) -> None:
    def twice(estimator: Any, X: Any, y: Any) -> float:
        holdout(estimator, X, y)
        return holdout(estimator, X, y)

    guarded(holdout, tree(), DEPTHS, scoring=twice).fit(binary.X_train, binary.y_train)
    assert holdout.status().submissions == 8
    assert {one.batch for one in holdout.history()} == {None}


def test_curves_have_their_rounds_and_their_order(holdout: LadderHoldout, binary: Any) -> None:
    asked = {"scoring": holdout, "cv": holdout.split()}
    train = (binary.X_train, binary.y_train)
    validation_curve(tree(), *train, param_name="max_depth", param_range=[1, 2, 3], **asked)
    learning_curve(tree(), *train, train_sizes=[0.3, 0.6, 1.0], **asked)
    cross_validate(tree(max_depth=7), *train, **asked)
    first, second = ({one.batch for one in holdout.history()[at : at + 3]} for at in (0, 3))
    assert len(first) == len(second) == 1 and first.isdisjoint(second)
    assert None not in first | second
    assert holdout.history()[6].batch is None  # one candidate alone


class Interrupted(DecisionTreeClassifier):
    """Ends the search from within the fit of its deepest candidate."""

    def fit(self, X: Any, y: Any, **others: Any) -> Any:
        if self.max_depth == 4:
            raise KeyboardInterrupt
        return super().fit(X, y, **others)


def test_a_search_that_was_interrupted_binds_nothing_that_comes_later(
    holdout: LadderHoldout, binary: Any
) -> None:
    X, y = binary.X_train, binary.y_train
    with pytest.raises(KeyboardInterrupt) as kept:  # whose frames hold the folds
        guarded(holdout, Interrupted(random_state=0), DEPTHS).fit(X, y)
    holdout(tree(max_depth=7).fit(X, y), X[:0], y[:0])
    *bound, last = holdout.history()
    assert len({one.batch for one in bound} - {None}) == 1 and last.batch is None
    guarded(holdout, tree(min_samples_leaf=9), DEPTHS).fit(X, y)
    assert kept.value is not None
    later = {one.batch for one in holdout.history()[len(bound) + 1 :]}
    assert None not in later and later.isdisjoint({one.batch for one in bound})


class Asking(DecisionTreeClassifier):
    """Asks from within its fit, where it is no candidate that scikit-learn scores."""

    def __init__(self, max_depth: int = 1, asked: Any = None) -> None:
        super().__init__(max_depth=max_depth, random_state=0)
        self.asked = asked

    def fit(self, X: Any, y: Any, **others: Any) -> Any:
        super().fit(X, y, **others)
        self.asked[0](self, X[:0], y[:0])
        return self


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_asks_within_a_fit_is_of_no_batch(
    holdout: LadderHoldout, binary: Any, jobs: int
) -> None:
    # In a list, where nobody looks for it.
    search = guarded(holdout, Asking(asked=[holdout]), DEPTHS, n_jobs=jobs)
    with parallel_config("threading"):
        search.fit(binary.X_train, binary.y_train)
    assert holdout.status().submissions == 8
    assert {one.batch for one in holdout.history()} == {None}


# -- one description -----------------------------------------------------------------------


class Linked(LogisticRegression):
    """Sets one parameter with another one."""

    def set_params(self, **params: Any) -> Linked:
        if "C" in params:
            params["max_iter"] = int(10 * params["C"]) + 10
        super().set_params(**params)
        return self


def pipeline(model: Any) -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("model", model)])


POINTS: dict[str, tuple[Any, Any]] = {
    "values": (tree(), DEPTHS),
    "values of a step": (pipeline(tree()), {"model__max_depth": [1, 2, 3]}),
    "steps": (pipeline(tree()), {"scale": ["passthrough", None], "model__max_depth": [1, 2]}),
    "estimators": (
        pipeline(tree()),
        {"model": [tree(max_depth=1), LogisticRegression(max_iter=20)]},
    ),
    "estimators and values": (
        pipeline(tree()),
        {"scale": [StandardScaler(), MinMaxScaler()], "model__max_depth": [1, 2]},
    ),
    "several grids": (
        tree(),
        [{"max_depth": [1, 2]}, {"min_samples_leaf": [5, 9]}, {"max_depth": [3]}],
    ),
    "linked": (Linked(), {"C": [0.1, 1.0, 2.0]}),
    "linked within": (pipeline(Linked()), {"model__C": [0.1, 1.0, 2.0]}),
    "arrays": (
        LogisticRegression(max_iter=20),
        {"class_weight": [{0: 1, 1: 2}, "balanced", None], "C": np.array([0.1, 1.0])},
    ),
    "nested": (
        BaggingClassifier(tree(), n_estimators=2, random_state=0),
        {"estimator__max_depth": [1, 2], "max_features": [0.5, 1.0]},
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", POINTS)
def test_each_candidate_is_described_as_if_it_were_alone(
    holdout: LadderHoldout, binary: Any, kind: str
) -> None:
    model, values = POINTS[kind]
    search = guarded(holdout, model, values).fit(binary.X_train, binary.y_train)
    points = search.cv_results_["params"]
    history = holdout.history()
    assert len(history) == len(points) > 1
    for point, one in zip(points, history, strict=True):
        alone = clone(model).set_params(**clone(point, safe=False))
        assert one.context == describe_estimator(alone)


# -- several ladders -----------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_of_several_ladders_has_its_own_answers(opened: Open, binary: Any, jobs: int) -> None:
    hits = opened()
    with pytest.warns(KnownHoldoutWarning):
        both = {"hits": hits, "f1": opened("f1", ladder="f1")}
    search = guarded(hits, tree(), DEPTHS, scoring=both, n_jobs=jobs)
    with parallel_config("threading"):
        search.fit(binary.X_train, binary.y_train)
    for at, depth in enumerate(DEPTHS["max_depth"]):
        model = tree(max_depth=depth).fit(binary.X_train, binary.y_train)
        found = model.predict(binary.X_holdout)
        told = [search.cv_results_[f"mean_test_{name}"][at] for name in both]
        assert told[0] == pytest.approx(accuracy_score(binary.y_holdout, found))
        assert told[1] == pytest.approx(f1_score(binary.y_holdout, found))
