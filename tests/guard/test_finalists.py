"""Attacks what a study of inner scores shows at its end: finalists, winner, smallest step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.terminator import Terminator
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import LadderHoldoutWarning, NotIncumbentWarning
from ladderholdout.guard.record_views import smallest_step
from ladderholdout.mechanisms import (
    FullDisclosure,
    Ladder,
    LadderRules,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    ShakyLadder,
    SimplifiedLadder,
    State,
    run,
)
from ladderholdout.metrics import get_metric
from tests.support.holdouts import is_repeat
from tests.support.ledgers import entries_of

optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def holdout(binary: Any, tmp_path: Path) -> LadderHoldout:
    ledger = tmp_path / "ledger.db"
    return LadderHoldout(binary.X_holdout, binary.y_holdout, scoring="accuracy", ledger=ledger)


def tree(trial: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(
        max_depth=trial.suggest_int("max_depth", 1, 8),
        min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 20),
        random_state=0,
    )


def study_of(direction: str = "maximize", **settings: Any) -> optuna.Study:
    sampler = optuna.samplers.RandomSampler(seed=0)
    return optuna.create_study(direction=direction, sampler=sampler, **settings)


# Finalists


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_best_inner_scores_are_shown_as_one_batch(
    binary: Any, holdout: LadderHoldout, direction: str
) -> None:
    objective = holdout.optuna.objective(tree, inner=3, train=(binary.X_train, binary.y_train))
    study = study_of(direction)
    study.optimize(objective.inner_score, n_trials=15)
    assert holdout.status().submissions == 0, "a study by the inner score alone costs no look"
    final = holdout.optuna.finalists(study, objective, k=4)
    sign = 1 if direction == "maximize" else -1
    inner_scores = sorted((sign * trial.value for trial in study.trials), reverse=True)
    assert [sign * one.candidate.value for one in final] == inner_scores[:4]
    assert min(inner_scores) > 0.5, "an inner score is told as a score, not as a loss"
    # The best of them is judged first, so it has the first number.
    told = sorted(entries_of(holdout), key=lambda entry: entry.place or 0)
    assert [one.release.submission for one in final] == [entry.number for entry in told]
    assert [entry.place for entry in told] == [1, 2, 3, 4]
    assert [one.is_incumbent for one in final] == [entry.number == 1 for entry in told]
    assert len(told) == 4 and len({entry.batch for entry in told}) == 1 and told[0].batch
    for entry, one in zip(told, final, strict=True):
        assert entry.context["trial"] == one.candidate.number
        assert entry.context["parameters"]["max_depth"] == one.candidate.params["max_depth"]
    winner = holdout.optuna.best_trial(study)
    last = max(one.release.improvements for one in final if one.release.improved)
    assert last == holdout.status().releases
    assert winner in [one.candidate for one in final if one.release.improvements == last]


def test_finalists_asked_for_again_cost_no_step(binary: Any, holdout: LadderHoldout) -> None:
    rng = np.random.default_rng(0)

    def build(trial: Any) -> Any:
        trial.suggest_float("x", 0, 1)
        return rng.integers(0, 2, len(binary.y_holdout))  # another one each time

    study = study_of()
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=8)
    first = holdout.optuna.finalists(study, build)
    again = holdout.optuna.finalists(study, build)
    assert [one.release.score for one in again] == [one.release.score for one in first]
    assert all(is_repeat(holdout, one.release) for one in again)
    assert not any(is_repeat(holdout, one.release) for one in first)
    # Another study of the same name and numbers is another one.
    other = study_of(study_name=study.study_name)
    other.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=8)
    assert not any(
        is_repeat(holdout, one.release) for one in holdout.optuna.finalists(other, build)
    )


def test_every_finalist_is_built_before_the_first_is_shown(
    binary: Any, holdout: LadderHoldout
) -> None:
    seen = []

    def build(trial: Any) -> Any:
        seen.append(holdout.status().submissions)
        return np.full(len(binary.y_holdout), trial.number % 2)

    study = study_of()
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
    holdout.optuna.finalists(study, build, k=10)
    assert seen == [0] * 5, "and a study with fewer trials shows them all"


def test_infeasible_and_failed_trials_are_no_finalists(binary: Any, holdout: LadderHoldout) -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.set_constraint("first half", x - 0.5)
        if trial.number == 0:
            raise optuna.TrialPruned
        return x

    study = study_of()
    study.optimize(objective, n_trials=12)
    final = holdout.optuna.finalists(study, lambda _: np.ones(len(binary.y_holdout)), k=12)
    assert final and all(one.candidate.params["x"] <= 0.5 for one in final)
    assert 0 not in [one.candidate.number for one in final]


def test_finalists_refuse_what_has_no_best(binary: Any, holdout: LadderHoldout) -> None:
    several = optuna.create_study(directions=["maximize", "minimize"])
    with pytest.raises(InvalidArgument, match="single objective"):
        holdout.optuna.finalists(several, tree)
    with pytest.raises(InvalidArgument, match="feasible finished trial"):
        holdout.optuna.finalists(study_of(), tree)
    done = study_of()
    done.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    for k in (0, -1, 1.5, True):
        with pytest.raises(InvalidArgument, match="k must be"):
            holdout.optuna.finalists(done, tree, k=k)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="build must be"):
        holdout.optuna.finalists(done, None)  # type: ignore[arg-type]
    X, y = binary.X_train, binary.y_train
    with pytest.raises(InvalidArgument, match="returns an inner score with the model"):
        objective = holdout.optuna.objective(lambda trial: tree(trial).fit(X, y))
        study_of().optimize(objective.inner_score, n_trials=1)
    assert holdout.status().submissions == 0


def test_the_gates_winner_is_found(binary: Any, holdout: LadderHoldout) -> None:
    objective = holdout.optuna.objective(tree, inner=3, train=(binary.X_train, binary.y_train))
    study = study_of()
    gate = holdout.optuna.gate(objective, patience=100)
    study.optimize(objective.inner_score, n_trials=15, callbacks=[gate])
    assert 1 <= holdout.status().submissions == len(gate.releases) < 15
    by_ledger = study.user_attrs[f"ladder_submission:{holdout.optuna.best_trial(study).number}"]
    assert by_ledger == holdout.status().incumbent


def test_a_copied_study_goes_on_with_looks_of_its_own(holdout: LadderHoldout, binary: Any) -> None:
    rng = np.random.default_rng(0)
    gate = holdout.optuna.gate(lambda _: rng.integers(0, 2, len(binary.y_holdout)))
    first = study_of(study_name="first")
    first.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1, callbacks=[gate])
    storage = optuna.storages.InMemoryStorage()
    optuna.copy_study(from_study_name="first", from_storage=first._storage, to_storage=storage)
    for study in (first, optuna.load_study(study_name="first", storage=storage)):
        study.enqueue_trial({"x": 1.0})
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1, callbacks=[gate])
    assert [is_repeat(holdout, one) for one in gate.releases] == [False] * 3


def test_a_winner_that_died_is_said(holdout: LadderHoldout, binary: Any) -> None:
    y = binary.y_holdout
    objective = holdout.optuna.objective(
        lambda t: np.where(np.arange(len(y)) < 60 - 20 * t.number, 1 - y, y)
    )
    study = study_of()
    study.optimize(objective, n_trials=2)
    trial = study.ask()
    objective(trial)  # its worker dies before it tells the study
    with (
        pytest.warns(LadderHoldoutWarning, match="Trial 2 of this study holds the ladder"),
        pytest.warns(NotIncumbentWarning, match="Trial 1 is the last of this study that became"),
    ):
        assert holdout.optuna.best_trial(study).number == 1
    study.tell(trial, 1.0)
    assert holdout.optuna.best_trial(study).number == 2


# The smallest step


RULES: list[Mechanism] = [
    Ladder(step=0.02),
    SimplifiedLadder(step=0.02),
    PricedLadder(),
    ParameterFreeLadder(),
    PairedTestLadder(alpha=0.05),
    ShakyLadder(step=0.02, noise=1e-6),
    FullDisclosure(),
]


@pytest.mark.parametrize("mechanism", RULES, ids=lambda one: one.name)
def test_an_improvement_beyond_the_margin_is_released_and_half_of_it_is_not(
    mechanism: Mechanism, rng: np.random.Generator
) -> None:
    # Two models in 0/1 losses: the second is right on `gain` examples where the first is wrong,
    # and no worse elsewhere, so that they differ in a share of gain/n.
    n, errors = 2000, 600
    for gain in range(1, 200):
        margin = mechanism.least_gain(State(n, errors / n, releases=1), gain / n)
        losses = np.zeros((2, n))
        losses[0, :errors] = 1
        losses[1, gain:errors] = 1
        told = run(mechanism, losses, rng)
        improved = abs(told[1] - told[0]) > 1e-4
        if gain / n > 1.01 * margin:
            assert improved
        if gain / n < 0.49 * margin:
            assert not improved


def test_the_smallest_step_is_in_units_of_the_score() -> None:
    step = smallest_step
    rmse, mse = get_metric("neg_root_mean_squared_error"), get_metric("neg_mean_squared_error")
    ladder = LadderRules(Ladder(step=0.1), unit=None)
    high, none, low = State(100, 80.0), State(100, 0.0), State(100, 0.2)
    assert step(ladder, mse, high) == pytest.approx(10.0)  # a tenth of 100
    assert step(ladder, rmse, high) == pytest.approx(math.sqrt(80) - math.sqrt(70))
    assert step(ladder, rmse, none) == 0.0  # nothing is better than no error
    paired = LadderRules(PairedTestLadder(alpha=0.5))
    assert step(paired, get_metric("accuracy"), low) == pytest.approx(1 / 100)


def test_the_smallest_step_knows_no_label(binary: Any, tmp_path: Path) -> None:
    # Two holdouts that differ in labels alone, and yet release the same: the same answer.
    found = set()
    predictions = np.random.default_rng(3).integers(0, 2, (6, 100))
    X = np.random.default_rng(4).random((100, 2))
    for name, labels in (("one", predictions[0]), ("other", 1 - predictions[0])):
        holdout = LadderHoldout(
            X, labels, scoring="accuracy", name=name, mechanism=Ladder(step=1.0),
            overlap="ignore", ledger=tmp_path / f"{name}.db",
        )  # fmt: skip
        evaluator = holdout.optuna.error_evaluator()
        assert evaluator.evaluate([], None) == 0.0
        for each in predictions[1:]:
            holdout.submit(each)
        found.add((holdout.status().score, evaluator.evaluate([], None)))
    assert len({step for _, step in found}) == 1


@pytest.mark.filterwarnings("ignore::FutureWarning")  # Optuna moves its terminators elsewhere
def test_a_terminator_stops_a_study_that_gains_less_than_the_holdout_can_tell(
    binary: Any, holdout: LadderHoldout
) -> None:
    class Improvement:  # duck-typed, as our error evaluator is
        """What the last ten trials added."""

        def evaluate(self, trials: Any, study_direction: Any) -> float:
            values = [trial.value for trial in trials]
            return max(values) - max(values[:-10])

    terminator = Terminator(
        improvement_evaluator=Improvement(),  # type: ignore[arg-type]
        error_evaluator=holdout.optuna.error_evaluator(),
        min_n_trials=11,
    )
    study = study_of()
    stop = optuna.terminator.TerminatorCallback(terminator)
    objective = holdout.optuna.objective(tree, inner=3, train=(binary.X_train, binary.y_train))
    study.optimize(objective, n_trials=100, callbacks=[stop])
    assert 11 <= len(study.trials) < 100
    assert len(entries_of(holdout)) == len(study.trials)
    values = [trial.value for trial in study.trials]
    assert 0 < holdout.optuna.error_evaluator().evaluate([], None) < 0.1
    assert max(values) - max(values[:-10]) < holdout.optuna.error_evaluator().evaluate([], None)
