"""Attacks early stopping in LightGBM: increments, what is kept, what LightGBM itself logs."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import cloudpickle
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.model_selection import GridSearchCV

from ladderholdout import InvalidArgument, LadderHoldout, LadderStopping, Release, SearchStopped
from ladderholdout.integrations.lightgbm import ladder_stopping
from tests.support.contract_stopping import BoostingContract, CallbackContract, Case, end
from tests.support.stopping import (
    Parts,
    assert_kept,
    parts,
    raw_scores_in,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.long

QUIET = {"verbose": -1, "num_threads": 1}
ROUNDS, PATIENCE = 60, 8


def train(data: Any, callback: Any, rounds: int = ROUNDS, **settings: Any) -> lgb.Booster:
    engine = settings.pop("engine", {})
    rows = lgb.Dataset(data.X, data.y, **settings.pop("dataset", {}))
    return lgb.train({**QUIET, **settings}, rows, rounds, callbacks=[callback], **engine)


def submit(holdout: LadderHoldout, model: lgb.Booster, X: Any) -> Any:
    output = model.predict(X)
    if holdout.metric.response == "labels":
        output = output.argmax(1) if output.ndim == 2 else (output > 0.5).astype(int)
    return holdout.submit(output)


CASES = {
    "binary": ("binary", "neg_log_loss", {"objective": "binary"}),
    "another slope": ("binary", "neg_log_loss", {"objective": "binary", "sigmoid": 2.5}),
    "labels": ("binary", "accuracy", {"objective": "binary"}),
    "ranks": ("binary", "roc_auc", {"objective": "binary"}),
    "cross-entropy": ("binary", "neg_log_loss", {"objective": "cross_entropy"}),
    "goss": ("binary", "neg_log_loss", {"objective": "binary", "data_sample_strategy": "goss"}),
    "dart": ("binary", "neg_log_loss", {"objective": "binary", "boosting": "dart"}),
    "dart by alias": (
        "values", "neg_mean_squared_error", {"objective": "l2", "boosting_type": "dart"},
    ),
    "forest": (
        "binary", "neg_log_loss",
        {"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
    ),
    "forest of classes": (
        "three", "neg_log_loss",
        {"objective": "multiclass", "num_class": 3, "boosting": "rf",
         "bagging_freq": 1, "bagging_fraction": 0.5},
    ),
    "classes": ("three", "neg_log_loss", {"objective": "multiclass", "num_class": 3}),
    "labels of classes": ("three", "accuracy", {"objective": "multiclass", "num_class": 3}),
    "one against all": ("three", "accuracy", {"objective": "multiclassova", "num_class": 3}),
    "values": ("values", "neg_mean_squared_error", {"objective": "regression"}),
    "linear trees": (
        "values", "neg_mean_squared_error", {"objective": "regression", "linear_tree": True},
    ),
    "absolute": ("values", "neg_mean_absolute_error", {"objective": "l1"}),
    "quantile": ("values", "neg_mean_absolute_error", {"objective": "quantile"}),
    "square root": (
        "positive", "neg_mean_squared_error", {"objective": "regression", "reg_sqrt": True},
    ),
    "counts": ("counts", "neg_mean_poisson_deviance", {"objective": "poisson"}),
    "gamma": ("positive", "neg_mean_gamma_deviance", {"objective": "gamma"}),
    "tweedie": ("counts", "neg_mean_squared_error", {"objective": "tweedie"}),
    # No function here knows it: it is predicted in full.
    "unknown link": ("shares", "neg_mean_squared_error", {"objective": "cross_entropy_lambda"}),
}  # fmt: skip


BINARY = {"objective": "binary"}


def logistic_loss(margins: Any, rows: lgb.Dataset) -> tuple[Any, Any]:
    share = expit(margins)
    return share - rows.get_label(), share * (1 - share)


def killed(holdout: LadderHoldout, how: str) -> None:
    data = parts("binary")

    def stop(env: Any) -> None:
        if env.iteration == 6:
            end(how)

    stop.order = 50  # type: ignore[attr-defined]  # after the guard's own
    model = lgb.LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1)
    model.fit(data.X, data.y, callbacks=[ladder_stopping(holdout, 3), stop])


PROGRAM = """
mlflow.lightgbm.autolog(log_models=False, log_datasets=False)
def train(callbacks, evals):
    lightgbm.train({"objective": "binary", "num_threads": 1}, lightgbm.Dataset(X, y), 40,
                   valid_sets=evals, callbacks=[*callbacks, lightgbm.log_evaluation(1)])
train([ladder_stopping(holdout, 5)], [lightgbm.Dataset(X_valid, y_valid)])
"""
GIVEN_AWAY = """
guard = holdout.__ladder__.guard()
rows = lightgbm.Dataset(guard.rows.X, guard.rows.y, weight=guard.rows.sample_weight)
train([ladder_stopping(holdout, 5)], [rows])
"""


class TestLightGBM(BoostingContract, CallbackContract):
    ladder_stopping = staticmethod(ladder_stopping)
    cases: ClassVar[Any] = {name: Case(*case) for name, case in CASES.items()}
    variants = ({"boosting": "gbdt"}, {"boosting": "dart"})
    rounds, patience = ROUNDS, PATIENCE
    slow_learner: ClassVar[Any] = {"learning_rate": 0.001, "num_leaves": 4}
    varied = "num_leaves"
    grid: ClassVar[Any] = {"num_leaves": [3, 7, 31]}
    workers = (("loky", 1), ("loky", 2), ("threading", 2))
    objectives = ("lambdarank", "rank_xendcg")
    module, program, given_away = "lightgbm", PROGRAM, GIVEN_AWAY
    killed = staticmethod(killed)
    survived = 6  # the seventh waits: it cannot end training

    def data(self, kind: str) -> Parts:
        if kind != "shares":
            return parts(kind)
        data = parts("positive")
        data.y[:] = expit(data.y)
        return data

    def fit(self, by: Any, data: Parts, rounds: int, **settings: Any) -> lgb.Booster:
        model = train(data, by, rounds, **{**BINARY, **settings})
        assert by.stopping.rounds < rounds or not by.stopping.stopped
        return model

    def submit(self, holdout: LadderHoldout, by: Any, model: Any, data: Parts) -> Release:
        return submit(holdout, model, data.X_holdout)

    def assert_cut(self, model: Any, stopping: LadderStopping) -> None:
        name = "best_iteration" if isinstance(model, lgb.Booster) else "best_iteration_"
        assert getattr(model, name) == stopping.best_round

    def estimator(self, by: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
        return classifier(**settings), {"callbacks": [by]}

    def fit_ranking(self, by: Any, data: Parts, objective: str) -> None:
        train(data, by, objective=objective, dataset={"group": [100, 200]})

    def fit_own_objective(self, by: Any, data: Parts, **settings: Any) -> Any:
        model = train(data, by, objective=logistic_loss, **settings)
        return model.predict(data.X_holdout)


def classifier(**settings: Any) -> lgb.LGBMClassifier:
    return lgb.LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1, **settings)


@pytest.mark.parametrize("boosting", ["gbdt", "dart"])
def test_a_model_that_began_elsewhere_counts_its_new_rounds(boosting: str) -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    settings = {"objective": "binary", "boosting": boosting}
    before = lgb.train({**QUIET, **settings}, lgb.Dataset(data.X, data.y), 5)
    callback = ladder_stopping(holdout, PATIENCE)
    model = train(data, callback, engine={"init_model": before}, **settings)
    assert model.best_iteration == 5 + callback.stopping.best_round
    assert_kept(holdout, callback.stopping, submit(holdout, model, data.X_holdout))


def test_init_scores_are_asked_for() -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    dataset = {"init_score": data.X[:, 0].copy()}
    with pytest.raises(InvalidArgument, match=r"^init_score must be given for the holdout"):
        train(data, ladder_stopping(holdout), objective="binary", dataset=dataset)
    init_score = data.X_holdout[:, 0]
    callback = ladder_stopping(holdout, PATIENCE, init_score=init_score)
    model = train(data, callback, objective="binary", dataset=dataset)
    margins = model.predict(data.X_holdout, raw_score=True) + init_score
    assert_kept(holdout, callback.stopping, holdout.submit(expit(margins)))


def test_a_model_with_nothing_left_to_split_is_stopped() -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    callback = ladder_stopping(holdout, PATIENCE)
    model = train(data, callback, objective="binary", min_data_in_leaf=10_000)
    assert (callback.stopping.best_round, callback.stopping.rounds) == (1, 1 + PATIENCE)
    assert_kept(holdout, callback.stopping, submit(holdout, model, data.X_holdout))


# -- its estimators ------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "roc_auc"])
@pytest.mark.parametrize("kind", ["text", "three"])
def test_the_estimator_predicts_by_the_best_round(scoring: str, kind: str) -> None:
    if kind == "three" and scoring == "roc_auc":
        scoring = "balanced_accuracy"
    data = parts(kind)
    holdout = data.holdout(scoring)
    callback = ladder_stopping(holdout, PATIENCE)
    model = classifier()
    for _ in range(2):
        model.fit(data.X, data.y, callbacks=[callback])
        assert model.best_iteration_ == callback.stopping.best_round
        assert_kept(holdout, callback.stopping, holdout.submit(model))


def test_frames_with_categories() -> None:
    data = parts("values")
    rng = np.random.default_rng(3)
    X = pd.DataFrame(np.vstack([data.X, data.X_holdout]), columns=list("abcd"))
    X["kind"] = pd.Categorical(rng.choice(["u", "v", "w"], len(X)))
    data = type(data)(X[: len(data.y)], data.y, X[len(data.y) :], data.y_holdout)
    holdout = data.holdout("r2")
    callback = ladder_stopping(holdout, PATIENCE)
    model = lgb.LGBMRegressor(n_estimators=ROUNDS, verbose=-1, n_jobs=1)
    model.fit(data.X, data.y, callbacks=[callback])
    assert_kept(holdout, callback.stopping, holdout.submit(model))


@pytest.mark.parametrize("stated", [None, [0, 2]])
def test_classes_that_the_training_rows_lack_are_known_or_stated(stated: Any) -> None:
    data = parts("three")
    holdout = data.holdout("neg_log_loss")
    some = data.y != 1
    callback = ladder_stopping(holdout, PATIENCE, classes=stated)
    model = classifier().fit(data.X[some], data.y[some], callbacks=[callback])
    assert_kept(holdout, callback.stopping, holdout.submit(model))


def test_classes_that_a_booster_lacks_are_stated() -> None:
    data = parts("three")
    holdout = data.holdout("neg_log_loss")
    rows = data.X[data.y != 1], data.y[data.y != 1] // 2
    some = type(data)(*rows, data.X_holdout, data.y_holdout)
    with pytest.raises(InvalidArgument, match="classes="):
        train(some, ladder_stopping(holdout), objective="binary")
    callback = ladder_stopping(holdout, PATIENCE, classes=[0, 2])
    model = train(some, callback, objective="binary")
    share = model.predict(data.X_holdout)
    table = np.column_stack([1 - share, np.zeros(len(share)), share])
    assert_kept(holdout, callback.stopping, holdout.submit(table))


# -- what is refused -----------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.filterwarnings("ignore:A worker stopped:UserWarning")
def test_a_round_that_cannot_be_had_ends_a_search(n_jobs: int) -> None:
    """Otherwise scikit-learn scores the candidate as nan, and may refit it as the winner."""
    data = parts("binary")
    narrow = LadderHoldout(data.X_holdout[:, :3], data.y_holdout, scoring="accuracy")
    search = GridSearchCV(
        lgb.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1), {"num_leaves": [3, 7]},
        scoring=narrow, cv=narrow.split(), n_jobs=n_jobs,
    )  # fmt: skip
    with pytest.raises(SearchStopped, match="X must be with the columns of the training rows"):
        search.fit(data.X, data.y, callbacks=[ladder_stopping(narrow)])
    assert narrow.status().submissions == 0


def test_the_cross_validation_of_lightgbm_is_refused() -> None:
    data = parts("binary")
    callback = ladder_stopping(data.holdout("roc_auc"))
    with pytest.raises(InvalidArgument, match=r"lightgbm\.cv"):
        lgb.cv({**QUIET, "objective": "binary"}, lgb.Dataset(data.X, data.y), callbacks=[callback])


# -- what LightGBM says --------------------------------------------------------------------


def test_its_own_records_are_those_without_a_holdout(capfd: Any) -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    callback = ladder_stopping(holdout, PATIENCE)
    half = len(data.y) // 2
    said = []
    for callbacks in ([lgb.log_evaluation(1)], [lgb.log_evaluation(1), callback]):
        model = lgb.LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1)
        valid = {"eval_X": data.X[half:], "eval_y": data.y[half:]}
        model.fit(data.X[:half], data.y[:half], **valid, callbacks=callbacks)
        said.append((model.evals_result_, capfd.readouterr().out.splitlines()))
    (alone, printed), (guarded, printed_guarded) = said
    rounds = callback.stopping.rounds
    assert rounds < ROUNDS
    assert guarded == {"valid_0": {"binary_logloss": alone["valid_0"]["binary_logloss"][:rounds]}}
    assert printed_guarded == printed[:rounds]
    # Its best score is that of its own evaluation at the best round.
    at = callback.stopping.best_round - 1
    assert model.best_score_["valid_0"]["binary_logloss"] == alone["valid_0"]["binary_logloss"][at]
    assert raw_scores_in(holdout, "\n".join(printed_guarded).encode()) == []
