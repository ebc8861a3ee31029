"""Attacks the guard inside Optuna: what studies are told, run twice, stored and picked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, LadderHoldoutError, SearchStopped
from ladderholdout.errors import LadderHoldoutWarning, NotIncumbentWarning, OverlapError
from ladderholdout.integrations.optuna import Candidate, inner_score_steps
from tests.support.ledgers import entries_of, replayed

optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def holdout(binary: Any, tmp_path: Path) -> LadderHoldout:
    ledger = tmp_path / "ledger.db"
    return LadderHoldout(
        binary.X_holdout, binary.y_holdout, scoring="accuracy", name="tumours", ledger=ledger
    )


@pytest.fixture
def build(binary: Any) -> Any:
    def fitted(trial: Any) -> Any:
        tree = DecisionTreeClassifier(
            max_depth=trial.suggest_int("max_depth", 1, 8),
            min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 20),
            random_state=0,
        )
        return tree.fit(binary.X_train, binary.y_train)

    return fitted


def study_of(direction: str = "maximize", **settings: Any) -> optuna.Study:
    sampler = optuna.samplers.RandomSampler(seed=0)
    return optuna.create_study(direction=direction, sampler=sampler, **settings)


# What a study is told


@pytest.mark.long
def test_without_an_inner_score_a_study_is_told_the_release_or_a_little_less(
    holdout: LadderHoldout, build: Any
) -> None:
    study = study_of()
    study.optimize(holdout.optuna.objective(build), n_trials=25)
    assert holdout.status().submissions == 25 == len(study.trials)
    incumbent = 0
    for trial, entry in zip(study.trials, holdout.history(), strict=True):
        assert trial.user_attrs["ladder_released"] == entry.score
        assert trial.user_attrs["ladder_submission"] == entry.number
        assert trial.user_attrs["ladder_improved"] == entry.improved
        incumbent = entry.number if entry.improved else incumbent
        if incumbent in (entry.number, entry.repeat_of):
            assert trial.value == entry.score
        else:
            assert entry.score - 0.01 < trial.value < entry.score
    winner = holdout.optuna.best_trial(study)
    assert winner.user_attrs["ladder_submission"] == holdout.status().incumbent
    assert holdout.optuna.best_params(study) == winner.params
    assert study.best_value == holdout.status().score


def test_with_an_inner_score_a_study_is_told_the_inner_score_alone(
    holdout: LadderHoldout, build: Any
) -> None:
    inner_scores = np.random.default_rng(0).random(20).tolist()
    study = study_of()
    study.optimize(
        holdout.optuna.objective(lambda trial: (build(trial), inner_scores[trial.number])), 20
    )
    assert [trial.value for trial in study.trials] == inner_scores
    assert (
        holdout.optuna.best_trial(study).user_attrs["ladder_submission"]
        == holdout.status().incumbent
    )


def test_who_submits_while_the_best_trial_is_looked_up_does_not_disturb(
    binary: Any, holdout: LadderHoldout, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of()
    study.optimize(holdout.optuna.objective(build), 5)
    expected, kind, after = holdout.optuna.best_trial(study).number, type(holdout.__ladder__), []

    def followed(read: Any) -> Any:
        def reading(*given: Any, **named: Any) -> Any:
            result = read(*given, **named)
            if not after:  # somebody else becomes the incumbent between the two reads
                after.append(holdout.submit(binary.y_holdout).submission)
            return result

        return reading

    monkeypatch.setattr(kind, "read", followed(kind.read))
    assert holdout.optuna.best_trial(study).number == expected
    assert after == [holdout.status().incumbent]


@pytest.mark.parametrize("feedback", ["capped", "penalised", "incumbent"])
def test_a_study_that_minimises_is_told_the_same_with_its_sign_turned(
    binary: Any, tmp_path: Path, build: Any, feedback: str
) -> None:
    values = {}
    for direction in ("maximize", "minimize"):
        holdout = LadderHoldout(
            binary.X_holdout,
            binary.y_holdout,
            scoring="neg_log_loss",
            ledger=tmp_path / f"{direction}.db",
        )
        study = study_of(direction)
        objective = holdout.optuna.objective(
            lambda t: (build(t), -0.5 - t.number / 10), feedback=feedback
        )
        study.optimize(objective, n_trials=10)
        values[direction] = [trial.value for trial in study.trials]
    assert values["minimize"] == [-value for value in values["maximize"]]


def test_inner_folds_make_the_inner_score_and_all_rows_the_model(
    binary: Any, holdout: LadderHoldout
) -> None:
    def unfitted(trial: Any) -> Any:
        depth = trial.suggest_int("max_depth", 1, 8)
        return DecisionTreeClassifier(max_depth=depth, random_state=0)

    study = study_of()
    train = binary.X_train, binary.y_train
    study.optimize(holdout.optuna.objective(unfitted, inner=3, train=train), n_trials=4)
    for trial, entry in zip(study.trials, entries_of(holdout), strict=True):
        tree = DecisionTreeClassifier(random_state=0, **trial.params)
        scores = cross_val_score(tree, *train, cv=StratifiedKFold(3), scoring="accuracy")
        assert trial.value == pytest.approx(scores.mean(), abs=1e-12)
        fitted = tree.fit(*train)
        again = holdout.submit(fitted.predict(binary.X_holdout))
        first = entries_of(holdout)[again.submission - 1].repeat_of
        assert first == (entry.repeat_of or entry.number)


def test_predictions_do_instead_of_a_model(binary: Any, holdout: LadderHoldout) -> None:
    rng = np.random.default_rng(0)

    def predictions(trial: Any) -> Any:
        return rng.integers(0, 2, len(binary.y_holdout)), 0.5

    study = study_of()
    study.optimize(holdout.optuna.objective(predictions), n_trials=5)
    assert [entry.context["trial"] for entry in holdout.history()] == [0, 1, 2, 3, 4]
    assert {entry.context["study"] for entry in holdout.history()} == {study.study_name}


def test_one_objective_of_several_is_guarded(holdout: LadderHoldout, build: Any) -> None:
    study = optuna.create_study(
        directions=["minimize", "maximize"], sampler=optuna.samplers.NSGAIISampler(seed=0)
    )

    def both(trial: Any) -> Candidate:
        tree = build(trial)
        return Candidate(tree, others=(float(tree.get_n_leaves()),))

    study.optimize(holdout.optuna.objective(both, guarded=1), n_trials=12)
    for trial in study.trials:
        assert trial.values[0] >= 2 and trial.values[1] <= holdout.status().score
    assert holdout.optuna.best_trial(study).user_attrs["ladder_improved"]
    before = holdout.status().submissions
    with pytest.raises(InvalidArgument, match="others must be the values of the other 1"):
        study.optimize(holdout.optuna.objective(build), n_trials=1)
    assert holdout.status().submissions == before


def test_ask_and_tell(binary: Any, holdout: LadderHoldout, build: Any) -> None:
    study = study_of()
    loop = holdout.optuna.ask_tell(study)
    releases = []
    for _ in range(8):
        trial = loop.ask()
        releases.append(loop.tell(trial, build(trial), inner_score=0.3))
    assert [trial.value for trial in study.trials] == [0.3] * 8
    assert [r.submission for r in releases] == [
        t.user_attrs["ladder_submission"] for t in study.trials
    ]
    with pytest.raises(InvalidArgument, match="trial must be a trial that this study"):
        loop.tell(study_of().ask(), np.zeros(len(binary.y_holdout)))
    assert holdout.status().submissions == 8


# Run twice


def test_a_trial_that_is_run_twice_costs_one_step(binary: Any, holdout: LadderHoldout) -> None:
    rng = np.random.default_rng(0)
    objective = holdout.optuna.objective(lambda t: rng.integers(0, 2, len(binary.y_holdout)))
    trial = study_of().ask()
    told = [objective(trial) for _ in range(5)]  # other predictions each time
    assert len(set(told)) == 1
    history = entries_of(holdout)
    assert [entry.repeat_of for entry in history] == [None, 1, 1, 1, 1]
    assert len({entry.digest for entry in history}) == 5
    assert all(one.agrees for one in replayed(holdout))


# Failures


@pytest.mark.parametrize(
    ("built", "said"),
    [
        (None, "build must be"),
        ((None, 0.5), "build must be"),
        (
            DecisionTreeClassifier(),
            "build must be a function .* DecisionTreeClassifier that is not fitted",
        ),
        ((DecisionTreeClassifier(), 0.5), "that is not fitted"),
        ((np.zeros(142), float("nan")), "inner_score must be a finite number"),
        ((np.zeros(142), "good"), "inner_score must be a finite number"),
        (np.zeros(141), "predictions must be"),
    ],
)
def test_a_bad_build_fails_its_trial_and_writes_nothing(
    holdout: LadderHoldout, built: Any, said: str
) -> None:
    study = study_of()
    with pytest.raises(LadderHoldoutError, match=said):
        study.optimize(holdout.optuna.objective(lambda trial: built), n_trials=1)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL]
    assert holdout.status().submissions == 0


def test_bad_arguments_of_an_objective_are_refused(binary: Any, holdout: LadderHoldout) -> None:
    with pytest.raises(InvalidArgument, match="build must be a function"):
        holdout.optuna.objective("build")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="train must be the training rows"):
        holdout.optuna.objective(print, inner=3)
    with pytest.raises(InvalidArgument, match="feedback must be one of"):
        holdout.optuna.objective(print, feedback="raw")
    with pytest.raises(OverlapError, match="rows of the holdout are among the training rows"):
        holdout.optuna.objective(print, inner=3, train=(binary.X_holdout, binary.y_holdout))
    study = study_of()
    with pytest.raises(InvalidArgument, match="inner_score must be given"):
        study.optimize(holdout.optuna.objective(lambda trial: np.zeros(142), feedback="capped"), 1)
    assert holdout.status().submissions == 0
    with pytest.raises(InvalidArgument, match="study must be one with a feasible trial"):
        holdout.optuna.best_trial(study_of())


def test_a_trial_that_is_not_running_is_refused(holdout: LadderHoldout, build: Any) -> None:
    study = study_of()
    objective = holdout.optuna.objective(build)
    study.optimize(objective, n_trials=1)
    for trial in (study.best_trial, optuna.trial.FixedTrial(study.best_params)):
        with pytest.raises(InvalidArgument, match="trial must be a running one"):
            objective(trial)  # type: ignore[arg-type]
    assert objective.candidate(study.best_trial).model.get_params() is not None
    assert holdout.status().submissions == 1


def test_a_guard_that_cannot_answer_stops_a_study_that_catches_exceptions(
    holdout: LadderHoldout, build: Any, tmp_path: Path
) -> None:
    def removing(trial: Any) -> Any:
        if trial.number == 2:
            (tmp_path / "ledger.db").unlink()
        return build(trial)

    study = study_of()
    with pytest.raises(SearchStopped, match="removed or replaced"):
        study.optimize(holdout.optuna.objective(removing), n_trials=5, catch=(Exception,))
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL]


# Pruning and the gate


def test_inner_score_steps_prune_by_the_training_side() -> None:
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(2, 1))

    def objective(trial: Any) -> float:
        curve = [0.1 * trial.number, 0.5, 0.9] if trial.number < 3 else [0.0, 0.0, 0.0]
        return [inner_score for _, inner_score in inner_score_steps(trial, curve)][-1]

    study.optimize(objective, n_trials=5)
    assert [trial.state for trial in study.trials[3:]] == [TrialState.PRUNED] * 2


def test_a_pruner_fed_with_ladder_output_is_warned_about(
    binary: Any, holdout: LadderHoldout
) -> None:
    standing = holdout.submit(np.zeros(142)).score
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())

    def build(trial: Any) -> Any:
        trial.report(standing, 0)
        return np.zeros(142)

    with pytest.warns(LadderHoldoutWarning, match="pruner is fed with ladder output"):
        study.optimize(holdout.optuna.objective(build), n_trials=1)


def test_the_gate_asks_only_when_the_study_improves(
    binary: Any, holdout: LadderHoldout, build: Any
) -> None:
    study = study_of()
    gate = holdout.optuna.gate(build, patience=2, stop=True)
    values = [0.1, 0.05, 0.2, 0.15, 0.3, 0.4, 0.5]

    def objective(trial: Any) -> float:
        # All but the first predict alike, so the holdout confirms no later progress.
        trial.suggest_int("max_depth", 1, 1), trial.suggest_int("min_samples_leaf", 1, 1)
        return values[trial.number]

    with pytest.warns(LadderHoldoutWarning, match="2 times in a row"):
        study.optimize(objective, n_trials=7, callbacks=[gate])
    # Improvements: trials 0, 2, 4; the two after the first repeat it, so they confirm nothing.
    assert [one.repeat_of for one in entries_of(holdout)] == [None, 1, 1]
    assert len(study.trials) == 5


def test_an_infeasible_trial_does_not_win(binary: Any, holdout: LadderHoldout) -> None:
    def build(trial: Any) -> Any:
        # Each is better than the one before, and the last two are not allowed.
        trial.set_constraint("size", trial.number - 5.5)
        wrong = np.arange(142) % 8 > trial.number
        return np.where(wrong, 1 - binary.y_holdout, binary.y_holdout)

    study = study_of()
    study.optimize(holdout.optuna.objective(build), n_trials=8)
    assert holdout.status().incumbent == 8
    with pytest.warns(NotIncumbentWarning, match="the incumbent is submission 8"):
        assert holdout.optuna.best_trial(study).number == 5


def test_the_winner_of_a_study_is_handed_out_and_fitted_on_all_rows(
    holdout: LadderHoldout, binary: Any
) -> None:
    def build(trial: Any) -> DecisionTreeClassifier:
        return DecisionTreeClassifier(max_depth=trial.suggest_int("depth", 1, 4), random_state=0)

    X, y = binary.X_train, binary.y_train
    study, objective = study_of(), holdout.optuna.objective(build, inner=2, train=(X, y))
    study.optimize(objective.inner_score, n_trials=3)
    holdout.optuna.finalists(study, objective, k=2)
    tree = DecisionTreeClassifier(
        max_depth=holdout.optuna.best_params(study)["depth"], random_state=0
    )
    model = holdout.optuna.best_model(study, objective)
    assert np.array_equal(model.predict_proba(X), tree.fit(X, y).predict_proba(X))
    with pytest.raises(InvalidArgument, match="objective must be"):
        holdout.optuna.refit_all(study, build)  # type: ignore[arg-type]
    assert holdout.status().retired is None
    model = holdout.optuna.refit_all(study, objective)
    everything = np.concatenate([X, binary.X_holdout]), np.concatenate([y, binary.y_holdout])
    assert np.array_equal(model.predict_proba(X), tree.fit(*everything).predict_proba(X))
    assert holdout.status().retired is not None
