"""Attacks early stopping in scikit-learn: stages, monitors, passes, and its own scorers."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

from ladderholdout import InvalidArgument, LadderHoldout, LadderStopping, SearchStopped
from ladderholdout.integrations.staged import ladder_stopping
from tests.support.contract_stopping import (
    CallbackContract,
    Case,
    StoppingContract,
    TreesContract,
    end,
)
from tests.support.stopping import (
    Parts,
    assert_kept,
    parts,
)

PATIENCE = 6


def histogram(kind: str = "", **settings: Any) -> Any:
    make = HistGradientBoostingRegressor if kind == "values" else HistGradientBoostingClassifier
    return make(**{"max_iter": 30, "random_state": 0, "min_samples_leaf": 5, **settings})


def boosted(kind: str = "", **settings: Any) -> Any:
    make = GradientBoostingRegressor if kind == "values" else GradientBoostingClassifier
    return make(**{"n_estimators": 40, "random_state": 0, "subsample": 0.7, **settings})


CASES = {
    kind: Case(kind, scoring, {})
    for kind, scoring in [
        ("binary", "neg_log_loss"),
        ("text", "accuracy"),
        ("three", "neg_log_loss"),
        ("values", "neg_mean_squared_error"),
    ]
} | {"ranks": Case("text", "roc_auc", {})}


def killed_in_its_stages(holdout: LadderHoldout, how: str) -> None:
    data = parts("binary")
    stages = ladder_stopping(holdout, 100)
    stages.stopping = EndsAfter(stages.stopping, how)
    stages.fit(histogram(), data.X, data.y)


class EndsAfter:
    """A rule that ends the process after its seventh round."""

    def __init__(self, stopping: LadderStopping, how: str) -> None:
        self._stopping, self._how = stopping, how

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stopping, name)

    def update(self, predictions: Any) -> bool:
        stop = self._stopping.update(predictions)
        if self._stopping.rounds == 7:
            end(self._how)
        return stop


def killed(holdout: LadderHoldout, how: str) -> None:
    data = parts("binary")
    stages = ladder_stopping(holdout, 100)

    def monitor(stage: int, model: Any, variables: Any) -> bool:
        stop = stages(stage, model, variables)
        if stage == 6:
            end(how)
        return stop

    boosted().fit(data.X, data.y, monitor=monitor)


IMPORTS = """
import mlflow.sklearn
from sklearn.ensemble import *
mlflow.sklearn.autolog(log_models=False, log_datasets=False)
stages = ladder_stopping(holdout, 5)
"""
HISTOGRAM = """
with mlflow.start_run():
    model = stages.fit(HistGradientBoostingClassifier(max_iter=20, verbose=2), X, y)
    holdout.submit(model)
"""
MONITORED = """
with mlflow.start_run():
    model = GradientBoostingClassifier(n_estimators=40, verbose=2, random_state=0)
    model.fit(X, y, monitor=stages)
    holdout.submit(model)
"""


class TestHistGradientBoosting(TreesContract):
    ladder_stopping = staticmethod(ladder_stopping)
    cases: ClassVar[Any] = CASES
    rounds, patience = 30, PATIENCE
    slow_learner: ClassVar[Any] = {"learning_rate": 0.001}
    varied, trials = "max_depth", 4
    module, program = "staged", IMPORTS + HISTOGRAM
    killed = staticmethod(killed_in_its_stages)

    def fit(self, by: Any, data: Parts, rounds: int, **settings: Any) -> Any:
        given = histogram(data.kind, max_iter=rounds, **settings)
        before = given.get_params()
        model = by.fit(given, data.X, data.y)
        assert model is given and model.get_params() == before
        return model

    def assert_cut(self, model: Any, stopping: LadderStopping) -> None:
        assert model.n_iter_ == stopping.best_round


class TestGradientBoosting(CallbackContract):
    ladder_stopping = staticmethod(ladder_stopping)
    # The stages of both kinds are read by the same code: it has the cases that differ in type.
    cases: ClassVar[Any] = {name: CASES[name] for name in ("three", "values", "ranks")}
    rounds, patience = 40, PATIENCE
    slow_learner: ClassVar[Any] = {"learning_rate": 0.001}
    varied, trials = "max_depth", 4
    grid: ClassVar[Any] = {"max_depth": [1, 2, 4]}
    module, program = "staged", IMPORTS + MONITORED
    killed = staticmethod(killed)

    def fit(self, by: Any, data: Parts, rounds: int, **settings: Any) -> Any:
        given = boosted(data.kind, n_estimators=rounds, **settings)
        before = given.get_params()
        model = by.fit(given, data.X, data.y)
        assert model is given and model.get_params() == before
        assert model.n_estimators_ == by.stopping.best_round
        return model

    def assert_cut(self, model: Any, stopping: LadderStopping) -> None:
        assert len(model.estimators_) == stopping.best_round

    def estimator(self, by: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
        return boosted(**{"n_estimators": 60, **settings}), {"monitor": by}


PASSES = {
    "labels": ("text", "accuracy", SGDClassifier(random_state=0)),
    "ranks": ("text", "roc_auc", SGDClassifier(random_state=0)),
    "probabilities": (
        "text", "neg_log_loss", SGDClassifier(loss="log_loss", random_state=0),
    ),
    "classes": ("three", "accuracy", MLPClassifier((8,), random_state=0)),
    "no rounds": ("three", "neg_log_loss", GaussianNB()),
    "values": ("values", "r2", SGDRegressor(random_state=0)),
}  # fmt: skip


class TestPasses(StoppingContract):
    ladder_stopping = staticmethod(ladder_stopping)
    cases: ClassVar[Any] = {
        name: Case(kind, scoring, {"model": model})
        for name, (kind, scoring, model) in PASSES.items()
    }
    rounds, patience = 40, PATIENCE

    def fit(self, by: Any, data: Parts, rounds: int, model: Any = None) -> Any:
        own = clone(model or SGDClassifier(loss="log_loss", random_state=0))
        return by.partial_fit(own, data.X, data.y, rounds=rounds)


@pytest.mark.parametrize("random_state", [None, "generator"])
def test_a_random_state_is_the_same_for_both_fits(random_state: Any) -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    stages = ladder_stopping(holdout, PATIENCE)
    if random_state == "generator":
        random_state = np.random.RandomState(3)
    given = histogram(max_features=0.5, random_state=random_state)
    model = stages.fit(given, data.X, data.y)
    assert model.random_state is random_state
    assert_kept(holdout, stages.stopping, holdout.submit(model))


def test_what_has_no_stages_is_refused() -> None:
    data = parts("binary")
    stages = ladder_stopping(data.holdout("accuracy"))
    with pytest.raises(InvalidArgument, match="a HistGradientBoosting or a GradientBoosting"):
        stages.fit(AdaBoostClassifier(), data.X, data.y)


# -- monitors ------------------------------------------------------------------------------


def test_a_monitor_stops_training_and_cuts_the_model() -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    monitor = ladder_stopping(holdout, PATIENCE)
    model = boosted(n_estimators=200).fit(data.X, data.y, monitor=monitor)
    assert monitor.stopping.rounds == model.n_estimators_ < 200
    assert len(model.estimators_) == monitor.stopping.best_round
    assert len(model.train_score_) == len(model.oob_improvement_) == monitor.stopping.best_round
    assert_kept(holdout, monitor.stopping, holdout.submit(model))


def test_a_monitor_counts_the_new_rounds_of_a_warm_start() -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    monitor = ladder_stopping(holdout, PATIENCE)
    model = boosted(n_estimators=4, warm_start=True).fit(data.X, data.y)
    model.set_params(n_estimators=60).fit(data.X, data.y, monitor=monitor)
    assert len(model.estimators_) == 4 + monitor.stopping.best_round
    assert_kept(holdout, monitor.stopping, holdout.submit(model))


# -- passes --------------------------------------------------------------------------------


def test_classes_that_the_training_rows_lack_are_stated() -> None:
    data = parts("three")
    holdout = data.holdout("neg_log_loss")
    stages = ladder_stopping(holdout, PATIENCE)
    some = data.y != 1
    model = SGDClassifier(loss="log_loss", random_state=0)
    kept = stages.partial_fit(model, data.X[some], data.y[some], rounds=9, classes=[0, 1, 2])
    assert list(kept.classes_) == [0, 1, 2]
    assert_kept(holdout, stages.stopping, holdout.submit(kept))


def test_rounds_without_a_meaning_are_refused() -> None:
    data = parts("binary")
    stages = ladder_stopping(data.holdout("accuracy"))
    with pytest.raises(InvalidArgument, match=r"^rounds must be"):
        stages.partial_fit(SGDClassifier(), data.X, data.y, rounds=0)


# -- the scorer in scikit-learn's own early stopping ---------------------------------------


def small_numbers() -> tuple[Any, Any]:
    """Whole numbers of one byte: what scikit-learn bins them to looks like them."""
    X, y = make_classification(400, 4, n_informative=3, n_redundant=1, random_state=0)
    return np.clip(X * 20 + 100, 0, 255).astype(np.uint8), y


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_a_holdout_as_the_scorer_of_binned_rows_is_refused(dtype: Any) -> None:
    X, y = small_numbers()
    X = X.astype(dtype)
    holdout = LadderHoldout(X[:150], y[:150], scoring="accuracy")
    model = HistGradientBoostingClassifier(max_iter=9, early_stopping=True, scoring=holdout)
    with pytest.raises(SearchStopped, match=r"integrations\.staged\.ladder_stopping"):
        model.fit(X[150:], y[150:])
    search = GridSearchCV(
        model, {"max_depth": [2, 3]}, scoring=holdout, cv=holdout.split(), refit=holdout.select
    )
    with pytest.raises(SearchStopped, match=r"integrations\.staged\.ladder_stopping"):
        search.fit(X[150:], y[150:])
    assert holdout.status().submissions == 0


def test_a_fitted_one_is_scored_as_any_other() -> None:
    X, y = small_numbers()
    holdout = LadderHoldout(X[:150], y[:150], scoring="accuracy")
    model = HistGradientBoostingClassifier(max_iter=9, early_stopping=True).fit(X[150:], y[150:])
    assert holdout(model, X[:150], y[:150]) == holdout.history()[0].score
