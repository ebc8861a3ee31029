"""Attacks what samplers and pruners are told: releases and inner scores, nothing raw stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    SuccessiveHalvingPruner,
)
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIISampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import TrialState
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.errors import LadderHoldoutWarning
from ladderholdout.feedback import feedback_of
from ladderholdout.guard.open_ladder import margin_of
from ladderholdout.integrations.optuna import Candidate, inner_score_steps
from tests.support.studies import (
    assert_nothing_raw,
    assert_traceable,
    holdout_of,
    storage_at,
)

optuna.logging.set_verbosity(optuna.logging.ERROR)

# Few trials at random first, so that most are chosen by what was told.
SAMPLERS: dict[str, Callable[[], BaseSampler]] = {
    "tpe": lambda: TPESampler(n_startup_trials=4, seed=0),
    "cma-es": lambda: CmaEsSampler(n_startup_trials=1, popsize=4, seed=0),
    "random": lambda: RandomSampler(seed=0),
    "nsga-ii": lambda: NSGAIISampler(population_size=4, seed=0),
    "gp": lambda: GPSampler(n_startup_trials=4, seed=0),
}
# What is told does not depend on who is told: each sampler once, each feedback and direction once.
TOLD = [
    ("tpe", "inner", "maximize"),
    ("cma-es", "inner", "minimize"),
    ("random", "capped", "minimize"),
    ("nsga-ii", "penalised", "maximize"),
    ("tpe", "penalised", "minimize"),
    pytest.param("gp", "penalised", "maximize", marks=pytest.mark.deep),
]
TRIALS = 10


@pytest.fixture
def holdout(binary: Any, tmp_path: Path) -> LadderHoldout:
    holdout = holdout_of(binary, tmp_path / "ledger.db")
    holdout.submit(np.zeros(142, dtype=int))  # so bad that some trial will improve on it
    return holdout


def study_with(name: str, path: Path, **settings: Any) -> optuna.Study:
    storage = storage_at("journal", path)
    return optuna.create_study(sampler=SAMPLERS[name](), storage=storage, **settings)


def scored(binary: Any, trial: Any) -> tuple[DecisionTreeClassifier, float]:
    """Fit on most of the training rows and score on the rest of them."""
    tree = DecisionTreeClassifier(
        max_depth=trial.suggest_int("max_depth", 1, 6),
        ccp_alpha=trial.suggest_float("ccp_alpha", 1e-4, 0.1, log=True),
        max_features=1,
        random_state=trial.number,
    )
    tree.fit(binary.X_train[:200], binary.y_train[:200])
    return tree, float(tree.score(binary.X_train[200:], binary.y_train[200:]))


def recomputed(
    holdout: LadderHoldout, study: optuna.Study, feedback: str, inner_scores: dict[int, float]
) -> list[float]:
    """Say what each trial has to be told, from the ledger and the inner scores."""
    entries = {entry.context["trial"]: entry for entry in holdout.history(after=1)}
    values = []
    for trial in study.trials:
        entry, inner_score = entries[trial.number], inner_scores.get(trial.number)
        margin = margin_of(holdout.__ladder__, entry.score)
        assert margin == pytest.approx(1 / 142)  # the grid of the releases
        values.append(feedback_of(feedback, entry.score, entry.improved, margin, inner_score))
    return values


@pytest.mark.parametrize(("sampler", "feedback", "direction"), TOLD)
def test_a_sampler_is_told_what_follows_from_releases_and_inner_scores(
    binary: Any, holdout: LadderHoldout, tmp_path: Path, sampler: str, feedback: str, direction: str
) -> None:
    study = study_with(sampler, tmp_path / "study.log", direction=direction)
    inner_scores: dict[int, float] = {}

    def build(trial: Any) -> Any:
        tree, inner_score = scored(binary, trial)
        if feedback == "penalised":
            return tree
        inner_scores[trial.number] = inner_score
        return tree, inner_score

    auto = "capped" if feedback == "capped" else "auto"
    study.optimize(holdout.optuna.objective(build, feedback=auto), n_trials=TRIALS)
    sign = 1.0 if direction == "maximize" else -1.0
    expected = recomputed(holdout, study, feedback, inner_scores)
    assert [trial.value for trial in study.trials] == [sign * value for value in expected]
    assert len(set(expected)) > 1
    silent, stored = feedback == "inner", (tmp_path / "study.log").read_bytes()
    assert_traceable(holdout, study, TRIALS, silent=silent)
    assert_nothing_raw(holdout, binary.y_holdout, stored, silent=silent)


@pytest.mark.parametrize(
    ("sampler", "guarded", "scored_inside"),
    [("nsga-ii", 0, True), ("tpe", 1, False), ("nsga-ii", 1, True)],
)
def test_a_sampler_of_several_objectives_is_told_one_guarded_value(
    binary: Any,
    holdout: LadderHoldout,
    tmp_path: Path,
    sampler: str,
    guarded: int,
    scored_inside: bool,
) -> None:
    # The guarded score is minimised in the second place and maximised in the first.
    directions = ["maximize", "minimize"] if guarded == 0 else ["minimize", "minimize"]
    study = study_with(sampler, tmp_path / "study.log", directions=directions)
    inner_scores: dict[int, float] = {}
    leaves: dict[int, float] = {}

    def build(trial: Any) -> Candidate:
        tree, inner_score = scored(binary, trial)
        leaves[trial.number] = float(tree.get_n_leaves())
        if scored_inside:
            inner_scores[trial.number] = inner_score
        return Candidate(tree, inner_scores.get(trial.number), others=(leaves[trial.number],))

    study.optimize(holdout.optuna.objective(build, guarded=guarded), n_trials=TRIALS)
    sign = 1.0 if guarded == 0 else -1.0
    expected = recomputed(holdout, study, "inner" if scored_inside else "penalised", inner_scores)
    assert [trial.values[guarded] for trial in study.trials] == [sign * v for v in expected]
    assert [trial.values[1 - guarded] for trial in study.trials] == list(leaves.values())
    stored = (tmp_path / "study.log").read_bytes()
    assert_traceable(holdout, study, TRIALS, silent=scored_inside)
    assert_nothing_raw(holdout, binary.y_holdout, stored, silent=scored_inside)


# -- pruners ------------------------------------------------------------------------------

PRUNERS: dict[str, Callable[[], BasePruner]] = {
    "median": lambda: MedianPruner(n_startup_trials=3),
    "halving": lambda: SuccessiveHalvingPruner(),
    "hyperband": lambda: HyperbandPruner(min_resource=1, max_resource=9),
}
EPOCHS = 9


def curve(binary: Any, model: SGDClassifier, noise: float) -> Iterator[float]:
    """Yield a score of the training side for each epoch, worse with more wrong labels."""
    scale = StandardScaler().fit(binary.X_train).transform(binary.X_train)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(200) < noise, 1 - binary.y_train[:200], binary.y_train[:200])
    for _ in range(EPOCHS):
        model.partial_fit(scale[:200], y, classes=[0, 1])
        yield float(model.score(scale[200:], binary.y_train[200:]))


def pruned_by(
    pruner: str, direction: str, binary: Any, holdout: LadderHoldout
) -> tuple[optuna.Study, dict[int, float]]:
    study = optuna.create_study(
        direction=direction,
        sampler=RandomSampler(seed=0),
        pruner=PRUNERS[pruner](),
        study_name=f"by {pruner}",  # Hyperband deals its brackets by the name
    )
    last: dict[int, float] = {}

    def build(trial: optuna.Trial) -> Any:
        model = SGDClassifier(random_state=0)
        noise = trial.suggest_float("noise", 0.0, 1.0)
        for _, inner_score in inner_score_steps(trial, curve(binary, model, noise)):
            last[trial.number] = inner_score
        return model, last[trial.number]

    study.optimize(holdout.optuna.objective(build), n_trials=20)
    return study, last


@pytest.mark.parametrize("pruner", PRUNERS)
def test_pruners_go_by_inner_scores_and_what_they_prune_costs_no_look(
    binary: Any, holdout: LadderHoldout, tmp_path: Path, pruner: str
) -> None:
    study, last = pruned_by(pruner, "maximize", binary, holdout)
    done = {trial.number for trial in study.get_trials(states=(TrialState.COMPLETE,))}
    pruned = {trial.number for trial in study.get_trials(states=(TrialState.PRUNED,))}
    assert len(done) >= 3 and len(pruned) >= 3 and len(done | pruned) == 20
    assert [entry.context["trial"] for entry in holdout.history(after=1)] == sorted(done)
    assert np.mean([last[at] for at in done]) > np.mean([last.get(at, 0.0) for at in pruned])
    assert holdout.optuna.best_trial(study).number in done
    if pruner != "median":
        return
    # A study that minimises prunes the same trials, and not the best ones.
    other = holdout_of(binary, tmp_path / "other.db")
    turned, _ = pruned_by(pruner, "minimize", binary, other)
    assert [trial.state for trial in turned.trials] == [trial.state for trial in study.trials]
    for trial, mirrored in zip(study.trials, turned.trials, strict=True):
        assert mirrored.value == -trial.value


def test_an_inner_score_that_equals_a_release_by_chance_is_no_ladder_output(
    holdout: LadderHoldout,
) -> None:
    standing = holdout.status().score

    def build(trial: optuna.Trial) -> Any:
        for inner_score in inner_score_steps(trial, [0.2, standing]):
            assert inner_score
        return np.zeros(142, dtype=int), standing

    study = optuna.create_study(direction="maximize")
    study.optimize(holdout.optuna.objective(build), n_trials=1)  # a warning would be an error
    assert study.trials[0].intermediate_values == {0: 0.2, 1: standing}


def test_a_pruner_that_is_fed_with_releases_epoch_by_epoch_is_warned_about(
    holdout: LadderHoldout,
) -> None:
    rng = np.random.default_rng(0)

    def build(trial: optuna.Trial) -> Any:
        for epoch in range(3):
            guess = rng.integers(0, 2, 142)
            trial.report(holdout.submit(guess).score, epoch)
        return guess

    study = optuna.create_study(direction="maximize")
    with pytest.warns(LadderHoldoutWarning, match="pruner is fed with ladder output"):
        study.optimize(holdout.optuna.objective(build), n_trials=1)
