"""Attacks early stopping in CatBoost: its stages, what is kept, what CatBoost itself logs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoost, CatBoostClassifier, CatBoostError, CatBoostRegressor, Pool
from scipy.special import expit

from ladderholdout import InvalidArgument, LadderHoldout, LadderStopping
from ladderholdout.integrations.catboost import ladder_stopping
from tests.support.contract_stopping import BoostingContract, Case, end
from tests.support.processes import elsewhere
from tests.support.stopping import (
    Parts,
    assert_kept,
    parts,
    raw_scores_in,
    sequence,
)

pytestmark = pytest.mark.long

QUIET = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
ROUNDS, PATIENCE = 40, 8

CASES = {
    "binary": ("binary", "neg_log_loss", {}),
    "labels": ("text", "accuracy", {}),
    "ranks": ("binary", "roc_auc", {}),
    "a bias": ("binary", "neg_log_loss", {"boost_from_average": True}),
    "classes": ("three", "neg_log_loss", {"loss_function": "MultiClass"}),
    "one against all": ("three", "accuracy", {"loss_function": "MultiClassOneVsAll"}),
    "values": ("values", "neg_mean_squared_error", {}),
    "absolute": ("values", "neg_mean_absolute_error", {"loss_function": "MAE"}),
    "quantile": ("values", "neg_mean_absolute_error", {"loss_function": "Quantile:alpha=0.3"}),
    "counts": ("counts", "neg_mean_poisson_deviance", {"loss_function": "Poisson"}),
    "tweedie": (
        "counts", "neg_mean_squared_error", {"loss_function": "Tweedie:variance_power=1.5"},
    ),
}  # fmt: skip


def model_for(kind: str, **settings: Any) -> CatBoost:
    chosen = {"iterations": ROUNDS, "learning_rate": 0.2, **QUIET, **settings}
    make = CatBoostRegressor if kind in ("values", "counts", "positive") else CatBoostClassifier
    return make(**chosen)


class LogisticLoss:
    def calc_ders_range(self, margins: Any, targets: Any, weights: Any) -> Any:
        share = expit(np.array(margins))
        return list(zip(np.array(targets) - share, -share * (1 - share), strict=True))


def killed(holdout: LadderHoldout, how: str) -> None:
    data = parts("binary")
    stages = ladder_stopping(holdout, 3)
    answer = stages._answer
    stages._answer = lambda output: ends_at(answer, output, 7, how)  # type: ignore[method-assign]
    stages.fit(model_for("binary"), data.X, data.y)


_calls = 0


def ends_at(answer: Any, output: Any, call: int, how: str) -> Any:
    global _calls
    _calls += 1
    if _calls == call:
        end(how)
    return answer(output)


PROGRAM = """
import mlflow.catboost, mlflow.sklearn
mlflow.autolog(log_models=False, log_datasets=False)
stages = ladder_stopping(holdout, 5)
model = catboost.CatBoostClassifier(iterations=30, thread_count=1, allow_writing_files=False)
with mlflow.start_run():
    model = stages.fit(model, X, y, eval_set=(X_valid, y_valid))
    holdout.submit(model)
"""
GIVEN_AWAY = """
guard = holdout.__ladder__.guard()
rows = catboost.Pool(guard.rows.X, guard.rows.y, weight=guard.rows.sample_weight)
model = catboost.CatBoostClassifier(iterations=30, thread_count=1, allow_writing_files=False)
stages.fit(model, X, y, eval_set=rows)
"""


class TestCatBoost(BoostingContract):
    ladder_stopping = staticmethod(ladder_stopping)
    cases: ClassVar[Any] = {name: Case(*case) for name, case in CASES.items()}
    rounds, patience = ROUNDS, PATIENCE
    slow_learner: ClassVar[Any] = {"learning_rate": 0.001, "depth": 2}
    varied, trials = "depth", 4
    objectives = ("YetiRank", "PairLogit", "QueryRMSE")
    ranking_metric = "neg_mean_squared_error"
    yields_margins = False
    module, program, given_away = "catboost", PROGRAM, GIVEN_AWAY
    killed = staticmethod(killed)
    hows = ("kill",)  # CatBoost is over when its stages run
    survived = 6

    def fit(self, by: Any, data: Parts, rounds: int, **settings: Any) -> CatBoost:
        model = model_for(data.kind, iterations=rounds, **settings)
        return by.fit(model, data.X, data.y)

    def assert_cut(self, model: CatBoost, stopping: LadderStopping) -> None:
        assert model.tree_count_ == stopping.best_round

    def fit_ranking(self, by: Any, data: Parts, objective: str) -> None:
        rows = Pool(data.X, data.y, group_id=np.arange(len(data.y)) // 30)
        by.fit(CatBoost({"iterations": 3, "loss_function": objective, **QUIET}), rows)

    def fit_own_objective(self, by: Any, data: Parts, **settings: Any) -> Any:
        own = {"iterations": ROUNDS, "loss_function": LogisticLoss(), "eval_metric": "Logloss"}
        model = by.fit(CatBoost({**own, **QUIET, **settings}), data.X, data.y)
        return model.predict(data.X_holdout, prediction_type="RawFormulaVal")


@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds_of_values(rounds: int) -> None:
    data = parts("values")
    holdout = data.holdout("r2")
    stages = ladder_stopping(holdout, PATIENCE)
    model = stages.fit(model_for("values", iterations=rounds), data.X, data.y)
    assert stages.stopping.rounds == rounds
    assert_kept(holdout, stages.stopping, holdout.submit(model))


def test_a_bias_that_its_stages_add_first_is_there() -> None:
    """Otherwise the test above would not meet the case that its stages miss."""
    data = parts("values")
    model = model_for("values").fit(data.X, data.y)
    [*_, last] = model.staged_predict(data.X_holdout)
    assert np.any(last != model.predict(data.X_holdout))


@pytest.mark.parametrize(("kind", "scoring"), [("three", "neg_log_loss"), ("counts", "r2")])
def test_a_bias_of_another_kind_is_predicted_in_full(kind: str, scoring: str) -> None:
    data = parts(kind)
    holdout = data.holdout(scoring)
    settings = {"loss_function": "MultiClass" if kind == "three" else "Poisson"}
    model = model_for(kind, **settings).fit(data.X, data.y)
    model.set_scale_and_bias(0.7, [0.1, 0.3, 0.2] if kind == "three" else [0.4])
    stages = ladder_stopping(holdout, PATIENCE)
    assert_kept(holdout, stages.stopping, holdout.submit(stages.cut(model)))


@pytest.mark.parametrize("policy", ["Lossguide", "Depthwise"])
def test_trees_that_catboost_cannot_cut_are_refused_before_they_are_trained(policy: str) -> None:
    data = parts("values")
    stages = ladder_stopping(data.holdout("r2"))
    model = model_for("values", grow_policy=policy)
    with pytest.raises(InvalidArgument, match="SymmetricTree"):
        stages.fit(model, data.X, data.y)
    assert not model.is_fitted()
    with pytest.raises(InvalidArgument, match="SymmetricTree"):
        stages.cut(model.fit(data.X, data.y))
    assert stages.stopping.rounds == 0


def test_frames_with_categories_and_pools() -> None:
    data = parts("text")
    rng = np.random.default_rng(3)
    X = pd.DataFrame(np.vstack([data.X, data.X_holdout]), columns=list("abcd"))
    X["kind"] = rng.choice(["u", "v", "w"], len(X))
    rows, held = X[: len(data.y)], X[len(data.y) :]
    holdout = LadderHoldout(held, data.y_holdout, scoring="neg_log_loss")
    stages = ladder_stopping(holdout, PATIENCE)
    model = model_for("text", cat_features=["kind"])
    assert_kept(holdout, stages.stopping, holdout.submit(stages.fit(model, rows, data.y)))
    before = sequence(stages.stopping)
    pooled = model_for("text").fit(Pool(rows, data.y, cat_features=["kind"]))
    assert_kept(holdout, stages.stopping, holdout.submit(stages.cut(pooled)))
    assert sequence(stages.stopping) == before


def test_classes_that_the_training_rows_lack() -> None:
    data = parts("three")
    holdout = data.holdout("neg_log_loss")
    some = data.y != 1
    stages = ladder_stopping(holdout, PATIENCE)
    model = stages.fit(model_for("binary"), data.X[some], data.y[some])
    assert_kept(holdout, stages.stopping, holdout.submit(model))


# -- what is refused -----------------------------------------------------------------------


def as_a_callback(holdout: LadderHoldout) -> str:
    data = parts("binary")
    try:
        model_for("binary").fit(data.X, data.y, callbacks=[ladder_stopping(holdout)])
    except CatBoostError as error:  # it wraps what a callback raises
        return str(error)
    return "nothing"


@pytest.mark.processes
def test_it_is_no_callback_and_says_what_works() -> None:
    # In another process: CatBoost leaves the error behind it pending in this thread.
    said = elsewhere(as_a_callback, parts("binary").holdout("neg_log_loss"))
    assert "ladder_stopping(holdout).fit(model, X, y)" in said


# -- what CatBoost says --------------------------------------------------------------------


def test_its_own_records_are_those_without_a_holdout(capfd: Any, tmp_path: Path) -> None:
    data = parts("binary")
    holdout = data.holdout("neg_log_loss")
    stages = ladder_stopping(holdout, PATIENCE)
    settings = {"verbose": True, "allow_writing_files": True}
    valid = {"eval_set": (data.X[150:], data.y[150:])}

    def own(folder: str) -> CatBoost:
        return model_for("binary", train_dir=str(tmp_path / folder), **settings)

    alone = own("alone").fit(data.X[:150], data.y[:150], use_best_model=False, **valid)
    capfd.readouterr()
    guarded = stages.fit(own("guarded"), data.X[:150], data.y[:150], use_best_model=False, **valid)
    printed = capfd.readouterr().out
    assert guarded.get_evals_result() == alone.get_evals_result()
    assert len(printed.splitlines()) > ROUNDS
    files = [path.read_bytes() for path in (tmp_path / "guarded").rglob("*") if path.is_file()]
    assert files
    # Times are numbers of ten digits, and one may begin as a score does.
    times = rb'"(passed|remaining)_time":[^,}]+|(total|remaining): \S+'
    seen = re.sub(times, b"", b"\n".join([printed.encode(), *files]))
    assert raw_scores_in(holdout, seen) == []
