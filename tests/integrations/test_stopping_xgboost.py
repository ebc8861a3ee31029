"""Attacks early stopping in XGBoost: increments, what is kept, what XGBoost itself logs."""

from __future__ import annotations

import pickle
import sys
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy.special import expit
from sklearn.base import clone

from ladderholdout import InvalidArgument, LadderHoldout, LadderStopping, Release
from ladderholdout.integrations.xgboost import ladder_stopping
from tests.support.contract_stopping import (
    BoostingContract,
    CallbackContract,
    Case,
    ServerContract,
    end,
)
from tests.support.stopping import (
    Parts,
    assert_kept,
    parts,
    raw_scores_in,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])
# XGBoost 3.4 has deprecated two of its boosters.
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*`booster=(dart|gblinear)` is deprecated"),
]

ROUNDS, PATIENCE = 50, 8


def train(data: Parts, callback: Any, rounds: int = ROUNDS, **settings: Any) -> xgb.Booster:
    engine = settings.pop("engine", {})
    rows = xgb.DMatrix(data.X, data.y, **settings.pop("dmatrix", {}))
    return xgb.train({"nthread": 1, **settings}, rows, rounds, callbacks=[callback], **engine)


def submit(holdout: LadderHoldout, model: xgb.Booster, X: Any) -> Any:
    output = model.predict(xgb.DMatrix(X))
    if holdout.metric.response == "labels":
        output = output.argmax(1) if output.ndim == 2 else np.round(output)
    return holdout.submit(output)


BINARY = {"objective": "binary:logistic"}
CASES = {
    "binary": ("binary", "neg_log_loss", BINARY),
    "labels": ("binary", "accuracy", BINARY),
    "ranks": ("binary", "roc_auc", BINARY),
    "margins": ("binary", "roc_auc", {"objective": "binary:logitraw"}),
    "exact": ("binary", "neg_log_loss", {**BINARY, "tree_method": "exact"}),
    "forests": ("binary", "neg_log_loss", {**BINARY, "num_parallel_tree": 3, "subsample": 0.5}),
    "dart": ("binary", "neg_log_loss", {**BINARY, "booster": "dart", "rate_drop": 0.3}),
    "linear": ("binary", "neg_log_loss", {**BINARY, "booster": "gblinear"}),
    "classes": ("three", "neg_log_loss", {"objective": "multi:softprob", "num_class": 3}),
    "labels of classes": ("three", "accuracy", {"objective": "multi:softmax", "num_class": 3}),
    "values": ("values", "neg_mean_squared_error", {"objective": "reg:squarederror"}),
    "absolute": ("values", "neg_mean_absolute_error", {"objective": "reg:absoluteerror"}),
    "linear values": (
        "values", "r2", {"objective": "reg:squarederror", "booster": "gblinear"},
    ),
    "counts": ("counts", "neg_mean_poisson_deviance", {"objective": "count:poisson"}),
    "gamma": ("positive", "neg_mean_gamma_deviance", {"objective": "reg:gamma"}),
}  # fmt: skip


def classifier(callback: Any, **settings: Any) -> xgb.XGBClassifier:
    return xgb.XGBClassifier(n_estimators=ROUNDS, n_jobs=1, callbacks=[callback], **settings)


def logistic_loss(margins: Any, rows: xgb.DMatrix) -> tuple[Any, Any]:
    share = expit(margins)
    return share - rows.get_label(), share * (1 - share)


class Stop(xgb.callback.TrainingCallback):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 6:
            end(self.how)
        return False


def killed(holdout: LadderHoldout, how: str) -> None:
    data = parts("binary")
    rows = xgb.DMatrix(data.X, data.y)
    callbacks = [ladder_stopping(holdout, 3), Stop(how)]
    xgb.train({"nthread": 1, **BINARY}, rows, ROUNDS, callbacks=callbacks)


PROGRAM = """
mlflow.xgboost.autolog(log_models=False, log_datasets=False)
def train(callbacks, evals):
    rows = xgboost.DMatrix(X, y)
    xgboost.train({"objective": "binary:logistic", "nthread": 1}, rows, 40,
                  evals=[(evals, "valid")], callbacks=callbacks)
train([ladder_stopping(holdout, 5)], xgboost.DMatrix(X_valid, y_valid))
"""
GIVEN_AWAY = """
guard = holdout.__ladder__.guard()
rows = xgboost.DMatrix(guard.rows.X, guard.rows.y, weight=guard.rows.sample_weight)
train([ladder_stopping(holdout, 5)], rows)
"""


class TestXGBoost(ServerContract, BoostingContract, CallbackContract):
    ladder_stopping = staticmethod(ladder_stopping)
    cases: ClassVar[Any] = {name: Case(*case) for name, case in CASES.items()}
    variants = tuple({"booster": name} for name in ("gbtree", "dart", "gblinear"))
    rounds, patience = ROUNDS, PATIENCE
    slow_learner: ClassVar[Any] = {"eta": 0.001, "max_depth": 2}
    varied = "max_depth"
    grid: ClassVar[Any] = {"max_depth": [1, 2, 6]}
    objectives = ("rank:ndcg", "rank:pairwise", "rank:map")
    module, program, given_away = "xgboost", PROGRAM, GIVEN_AWAY
    killed = staticmethod(killed)
    survived = 6  # the seventh waits: it cannot end training

    def fit(self, by: Any, data: Parts, rounds: int, **settings: Any) -> xgb.Booster:
        model = train(data, by, rounds, **{**BINARY, **settings})
        assert settings.get("booster") == "gblinear" or (
            model.num_boosted_rounds() == by.stopping.best_round
        )
        return model

    def submit(self, holdout: LadderHoldout, by: Any, model: Any, data: Parts) -> Release:
        return submit(holdout, model, data.X_holdout)

    def assert_cut(self, model: Any, stopping: LadderStopping) -> None:
        assert model.best_iteration == stopping.best_round - 1

    def estimator(self, by: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
        return classifier(by, **settings), {}

    def stopping_of(self, model: Any, by: Any) -> LadderStopping:
        found: LadderStopping = model.callbacks[0].stopping  # cloned with the estimator
        return found

    def fit_ranking(self, by: Any, data: Parts, objective: str) -> None:
        train(data, by, objective=objective)

    def fit_own_objective(self, by: Any, data: Parts, **settings: Any) -> Any:
        model = train(data, by, engine={"obj": logistic_loss}, **settings)
        return model.predict(xgb.DMatrix(data.X_holdout), output_margin=True)


def test_the_rounds_cost_their_own_trees_alone() -> None:
    """XGBoost remembers what it predicted on a matrix: so there is one for all rounds."""
    data = parts("binary")
    callback = ladder_stopping(data.holdout("neg_log_loss"), PATIENCE)
    seen = set()

    class Watch(xgb.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            seen.add(id(callback._own.training._rows))
            return False

    rows = xgb.DMatrix(data.X, data.y)
    xgb.train({"nthread": 1, **BINARY}, rows, 9, callbacks=[callback, Watch()])
    assert len(seen) == 1


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_a_model_that_began_elsewhere_counts_its_new_rounds(booster: str) -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    settings = {**BINARY, "booster": booster}
    before = xgb.train({"nthread": 1, **settings}, xgb.DMatrix(data.X, data.y), 3)
    callback = ladder_stopping(holdout, PATIENCE)
    model = train(data, callback, engine={"xgb_model": before}, **settings)
    assert model.num_boosted_rounds() == 3 + callback.stopping.best_round
    assert model.best_iteration == 2 + callback.stopping.best_round
    assert_kept(holdout, callback.stopping, submit(holdout, model, data.X_holdout))


def test_base_margins_are_an_argument_of_the_holdouts_matrix() -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    callback = ladder_stopping(holdout, PATIENCE, dmatrix={"base_margin": data.X_holdout[:, 0]})
    model = train(data, callback, dmatrix={"base_margin": data.X[:, 0]}, **BINARY)
    rows = xgb.DMatrix(data.X_holdout, base_margin=data.X_holdout[:, 0])
    assert_kept(holdout, callback.stopping, holdout.submit(model.predict(rows)))


# -- its estimators ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scoring", "booster"),
    [("accuracy", "dart"), ("neg_log_loss", "gbtree"), ("roc_auc", "gblinear")],
)
def test_the_estimator_predicts_by_the_best_round(scoring: str, booster: str) -> None:
    data = parts("binary")
    holdout = data.holdout(scoring)
    callback = ladder_stopping(holdout, PATIENCE)
    model = classifier(callback, booster=booster)
    for _ in range(2):
        model.fit(data.X, data.y)
        assert model.best_iteration == callback.stopping.best_round - 1
        assert_kept(holdout, callback.stopping, holdout.submit(model))


def test_more_classes_with_labels_of_text() -> None:
    data = parts("three")
    names = np.array(["high", "low", "mid"])
    holdout = LadderHoldout(data.X_holdout, names[data.y_holdout], scoring="accuracy")
    callback = ladder_stopping(holdout, PATIENCE, classes=names)
    model = classifier(callback).fit(data.X, data.y)  # XGBoost knows numbers alone
    assert_kept(holdout, callback.stopping, holdout.submit(names[model.predict(data.X_holdout)]))


def test_a_clone_has_a_callback_of_its_own() -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    callback = ladder_stopping(holdout, PATIENCE)
    model = clone(classifier(callback)).fit(data.X, data.y)
    assert callback.stopping.rounds == 0
    assert_kept(holdout, model.callbacks[0].stopping, holdout.submit(model))


def test_frames_with_categories_in_another_order() -> None:
    data = parts("values")
    rng = np.random.default_rng(3)
    X = pd.DataFrame(np.vstack([data.X, data.X_holdout]), columns=list("abcd"))
    X["kind"] = rng.choice(["u", "v", "w"], len(X))
    rows, held = X[: len(data.y)].copy(), X[len(data.y) :].copy()
    rows["kind"] = pd.Categorical(rows["kind"], ["u", "v", "w"])
    held["kind"] = pd.Categorical(held["kind"], ["w", "u", "v"])
    holdout = LadderHoldout(held, data.y_holdout, scoring="r2")
    callback = ladder_stopping(holdout, PATIENCE)
    model = xgb.XGBRegressor(
        n_estimators=ROUNDS, n_jobs=1, callbacks=[callback], enable_categorical=True
    )
    model.fit(rows, data.y)
    assert model.get_booster().num_boosted_rounds() == callback.stopping.best_round < ROUNDS
    assert_kept(holdout, callback.stopping, holdout.submit(model))


# -- what is refused -----------------------------------------------------------------------


def test_the_cross_validation_of_xgboost_is_refused() -> None:
    data = parts("binary")
    callback = ladder_stopping(data.holdout("roc_auc"))
    with pytest.raises(InvalidArgument, match=r"xgboost\.cv"):
        xgb.cv(BINARY, xgb.DMatrix(data.X, data.y), callbacks=[callback])


def test_an_estimator_travels_without_the_holdout() -> None:
    data = parts("binary")
    callback = ladder_stopping(data.holdout("neg_log_loss"), PATIENCE)
    train(data, callback, **BINARY)
    assert len(pickle.dumps(classifier(callback))) < 6000


# -- what XGBoost says ---------------------------------------------------------------------


def test_its_own_records_are_those_without_a_holdout(capfd: Any) -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    callback = ladder_stopping(holdout, PATIENCE)
    half = len(data.y) // 2
    said = []
    for callbacks in ([], [callback]):
        model = xgb.XGBClassifier(n_estimators=ROUNDS, n_jobs=1, callbacks=callbacks)
        valid = [(data.X[half:], data.y[half:])]
        model.fit(data.X[:half], data.y[:half], eval_set=valid, verbose=True)
        said.append((model.evals_result(), capfd.readouterr().out.splitlines()))
    (alone, printed), (guarded, printed_guarded) = said
    rounds = callback.stopping.rounds
    assert rounds < ROUNDS
    assert guarded == {"validation_0": {"logloss": alone["validation_0"]["logloss"][:rounds]}}
    # Of the round in which training stops XGBoost prints nothing.
    assert printed_guarded == printed[: rounds - 1]
    assert set(model.get_booster().attributes()) == {"best_iteration"}
    assert raw_scores_in(holdout, "\n".join(printed_guarded).encode()) == []
