"""Attacks the short cuts of the scorer: what it leaves out must change no answer and no record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import (
    GridSearchCV,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout, SearchStopped, thirdparty
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


def deeper(calls: int, work: Callable[[], Any]) -> Any:
    """Call something from so many calls further down."""
    return work() if calls == 0 else deeper(calls - 1, work)


# -- the round, without all frames ---------------------------------------------------------


def test_a_candidate_is_scored_with_a_few_frames_however_deep_the_search(
    opened: Open, binary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0

    class Counted(thirdparty.Frame):
        def __init__(self, frame: Any) -> None:
            nonlocal seen
            seen += 1
            super().__init__(frame)

    monkeypatch.setattr(thirdparty, "Frame", Counted)
    scored = thirdparty.scoring

    def counted() -> Any:
        nonlocal seen
        seen = 0
        found = scored()
        frames.append(seen)
        return found

    monkeypatch.setattr(thirdparty, "scoring", counted)
    frames: list[int] = []
    for calls in (0, 300):
        search = guarded(opened(), tree(), DEPTHS)
        deeper(calls, lambda search=search: search.fit(binary.X_train, binary.y_train))
    assert len(frames) == 8
    # The function that asked, the facade's caller, `_score` and `_fit_and_score`.
    assert max(frames) <= 8
    assert len(set(frames)) == 1


class Doubling:
    """A splitter of somebody's own that hands other rows to the guarded one than it got."""

    def __init__(self, cv: Any) -> None:
        self.cv = cv

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        return self.cv.split(2 * X, y, groups)

    def get_n_splits(self, *rows: Any, **groups: Any) -> int:
        return 1


def test_folds_that_were_made_of_other_rows_are_found_out_all_the_same(
    holdout: LadderHoldout, binary: Any
) -> None:
    for jobs in (1, 2):
        search = guarded(holdout, tree(), DEPTHS, cv=Doubling(holdout.split()), n_jobs=jobs)
        with parallel_config("threading"), pytest.raises(SearchStopped, match="made of others"):
            search.fit(binary.X_train, binary.y_train)
    X = binary.X_train.copy()
    folds = list(holdout.split().split(X, binary.y_train))
    X *= 2  # the very object, with other rows
    with pytest.raises(SearchStopped, match="made of others"):
        guarded(holdout, tree(), DEPTHS, cv=folds).fit(X, binary.y_train)
    assert holdout.status().submissions == 0


def test_what_is_around_listed_folds_is_looked_at_all_the_same(
    holdout: LadderHoldout, binary: Any
) -> None:
    folds = list(holdout.split().split(binary.X_train, binary.y_train))
    with pytest.raises(SearchStopped, match="p-value"):
        permutation_test_score(
            *(tree(), binary.X_train, binary.y_train),
            **{"scoring": holdout, "cv": folds, "n_permutations": 3},
        )
    search = guarded(holdout, tree(), DEPTHS, cv=folds, refit=holdout.select)
    bag = BaggingClassifier(search, max_features=0.5)
    with pytest.raises(SearchStopped):
        bag.fit(binary.X_train, binary.y_train)
    assert holdout.status().submissions == 0


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
    for at, (point, one) in enumerate(zip(points, history, strict=True)):
        alone = clone(model).set_params(**clone(point, safe=False))
        assert one.context == describe_estimator(alone) | {"candidate": at}


def test_the_parameters_of_a_search_are_read_once(
    holdout: LadderHoldout, binary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    deep = BaseEstimator.get_params

    def counted(self: Any, deep_: bool = True, **asked: Any) -> Any:
        nonlocal read
        read += thirdparty.called_from("ladderholdout.holdout")
        return deep(self, asked.get("deep", deep_))

    monkeypatch.setattr(BaseEstimator, "get_params", counted)
    guarded(holdout, tree(), {"max_depth": range(1, 9)}).fit(binary.X_train, binary.y_train)
    assert 0 < read <= 3
    assert len({str(one.context) for one in holdout.history()}) == 8


# -- one prediction ------------------------------------------------------------------------


class Counting(ClassifierMixin, BaseEstimator):
    """A tree that counts how often it predicts."""

    predicted = 0

    def __init__(self, max_depth: int = 1) -> None:
        self.max_depth = max_depth

    def fit(self, X: Any, y: Any) -> Counting:
        self.tree_ = tree(max_depth=self.max_depth).fit(X, y)
        self.classes_ = self.tree_.classes_
        return self

    def predict(self, X: Any) -> Any:
        Counting.predicted += 1
        return self.tree_.predict(X)


@pytest.fixture
def both(opened: Open) -> dict[str, LadderHoldout]:
    hits = opened()
    with pytest.warns(KnownHoldoutWarning):
        return {"hits": hits, "f1": opened("f1", ladder="f1")}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_candidate_predicts_once_for_all_ladders_on_its_holdout(
    both: dict[str, LadderHoldout], binary: Any, jobs: int
) -> None:
    Counting.predicted = 0
    search = guarded(both["hits"], Counting(), DEPTHS, scoring=both, n_jobs=jobs)
    with parallel_config("threading"):
        search.fit(binary.X_train, binary.y_train)
    assert Counting.predicted == 4
    for at, depth in enumerate(DEPTHS["max_depth"]):
        model = tree(max_depth=depth).fit(binary.X_train, binary.y_train)
        found = model.predict(binary.X_holdout)
        hits, f1 = (search.cv_results_[f"mean_test_{name}"][at] for name in both)
        assert hits == pytest.approx(accuracy_score(binary.y_holdout, found))
        assert f1 == pytest.approx(f1_score(binary.y_holdout, found))


def test_other_responses_and_other_calls_predict_anew(
    both: dict[str, LadderHoldout], opened: Open, binary: Any
) -> None:
    with pytest.warns(KnownHoldoutWarning):
        area = opened("roc_auc", ladder="area")
    scoring = {**both, "area": area}
    search = guarded(area, tree(), DEPTHS, scoring=scoring)
    search.fit(binary.X_train, binary.y_train)
    expected = cross_validate(
        tree(max_depth=4), binary.X_train, binary.y_train, scoring=scoring, cv=area.split()
    )
    for name in scoring:
        assert search.cv_results_[f"mean_test_{name}"][3] == expected[f"test_{name}"][0]
        alone = scoring[name](
            tree(max_depth=4).fit(binary.X_train, binary.y_train), binary.X_train[:0]
        )
        assert alone == expected[f"test_{name}"][0]
