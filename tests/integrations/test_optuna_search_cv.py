"""Attacks OptunaSearchCV under the scorer rule: who was asked, what was told, who is picked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.samplers import RandomSampler
from optuna.trial import TrialState
from optuna_integration import OptunaSearchCV
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout, SearchStopped
from ladderholdout.errors import NoImprovementWarning, OverlapError
from tests.support.ledgers import entries_of
from tests.support.studies import assert_nothing_raw, assert_traceable, holdout_of, storage_at

optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:`optuna.terminator` module:FutureWarning"),
    # A single fold is too few for Optuna's terminator, which nobody asked for.
    pytest.mark.filterwarnings("ignore:Failed to report cross validation scores:UserWarning"),
]

TRIALS = 8
SPACE = {
    "max_depth": IntDistribution(1, 6),
    "random_state": IntDistribution(0, 1000),
}


@pytest.fixture
def holdout(binary: Any, tmp_path: Path) -> LadderHoldout:
    holdout = holdout_of(binary, tmp_path / "ledger.db")
    holdout.submit(np.zeros(142, dtype=int))  # so bad that some trial will improve on it
    return holdout


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    storage = storage_at("rdb", tmp_path / "study.db")
    return optuna.create_study(
        direction="maximize", storage=storage, sampler=RandomSampler(seed=0), study_name="shared"
    )


def search_of(holdout: LadderHoldout, study: optuna.Study | None, **settings: Any) -> Any:
    chosen = {"cv": holdout.split(), "scoring": holdout, "n_trials": TRIALS, "study": study}
    return OptunaSearchCV(DecisionTreeClassifier(max_features=1), SPACE, **(chosen | settings))


SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "training scores": (3, {"return_train_score": True}),
    "loud": (0, {"error_score": "raise"}),
    "threads": (3, {"n_jobs": 2}),
    "half of the rows": (0, {"subsample": 0.5, "random_state": 0}),
}


@pytest.mark.long
@pytest.mark.parametrize(("inner", "settings"), SETTINGS.values(), ids=SETTINGS.keys())
def test_each_trial_is_one_look_and_notes_its_release(
    binary: Any,
    holdout: LadderHoldout,
    study: optuna.Study,
    tmp_path: Path,
    inner: int,
    settings: dict[str, Any],
) -> None:
    search = search_of(holdout, study, cv=holdout.split(inner=inner), **settings)
    search.fit(binary.X_train, binary.y_train)
    assert_traceable(holdout, study, TRIALS)
    looks = holdout.history(after=1)
    assert len(looks) == TRIALS and {entry.batch for entry in looks} == {None}
    for trial in study.trials:
        noted = trial.user_attrs
        told = noted[f"split{inner}_test_score"]
        penalty = 0.0 if noted["ladder_improved"] else 1 / 142
        assert told == pytest.approx(noted["ladder_released"] - penalty, abs=1e-12)
        folds = [noted[f"split{fold}_test_score"] for fold in range(inner)]
        assert trial.value == pytest.approx(np.mean([*folds, told]), abs=1e-12)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("study.db*"))
    assert_nothing_raw(holdout, binary.y_holdout, stored)
    assert search.score(binary.X_test, binary.y_test) > 0.7  # plain rows cost no look
    assert len(holdout.history()) == 1 + TRIALS


@pytest.mark.long
def test_the_winner_is_picked_by_the_ledger_and_not_by_the_best_mean(
    binary: Any, holdout: LadderHoldout, study: optuna.Study
) -> None:
    search = search_of(holdout, study, cv=holdout.split(inner=3), refit=False, n_trials=20)
    search.fit(binary.X_train, binary.y_train)
    best = holdout.optuna.best_trial(search.study_)
    assert best.params != search.best_params_
    number = best.user_attrs["ladder_submission"]
    assert (entries_of(holdout)[number - 1].repeat_of or number) == holdout.status().incumbent
    model = clone(search.estimator).set_params(**best.params)
    model.fit(binary.X_train, binary.y_train)
    # It is the very model that the ledger knows.
    release = holdout.submit(model)
    assert release.is_incumbent and release.improvements == holdout.status().releases


def test_without_inner_folds_the_best_of_the_study_holds_the_ladder(
    binary: Any, holdout: LadderHoldout
) -> None:
    search = search_of(holdout, None, random_state=0).fit(binary.X_train, binary.y_train)
    assert search.best_params_ == holdout.optuna.best_params(search.study_)
    release = holdout.submit(search.best_estimator_)
    assert release.is_incumbent and release.improvements == holdout.status().releases


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_guard_that_cannot_answer_stops_the_search(
    binary: Any, holdout: LadderHoldout, study: optuna.Study, tmp_path: Path, n_jobs: int
) -> None:
    def remove(_: Any, trial: Any) -> None:
        if trial.number == 1:
            (tmp_path / "ledger.db").unlink()

    search = search_of(
        holdout, study, callbacks=[remove], n_jobs=n_jobs, n_trials=30, catch=(Exception,)
    )
    with pytest.raises(SearchStopped, match="The guard cannot answer"):
        search.fit(binary.X_train, binary.y_train)
    states = [trial.state for trial in study.trials]
    assert TrialState.FAIL in states and TrialState.RUNNING not in states
    assert len(states) < 30


def test_training_rows_that_are_the_holdouts_are_refused_loudly(
    binary: Any, holdout: LadderHoldout, study: optuna.Study
) -> None:
    with pytest.raises(OverlapError):
        search_of(holdout, study).fit(binary.X_holdout, binary.y_holdout)
    assert len(holdout.history()) == 1


def test_a_pruner_that_would_ask_after_each_epoch_is_refused(
    binary: Any, holdout: LadderHoldout
) -> None:
    space = {"alpha": FloatDistribution(1e-5, 1e-1, log=True)}
    chosen = {"scoring": holdout, "enable_pruning": True, "max_iter": 3, "n_trials": 2}
    search = OptunaSearchCV(SGDClassifier(), space, cv=holdout.split(), **chosen)
    with pytest.raises(SearchStopped, match="enable_pruning must be False"):
        search.fit(binary.X_train, binary.y_train)
    assert len(holdout.history()) == 1
    # Folds of the training side are fine.
    inner = holdout.split(inner=2, guarded=False)
    OptunaSearchCV(SGDClassifier(), space, cv=inner, **chosen).fit(binary.X_train, binary.y_train)
    assert len(holdout.history()) == 1


def test_looks_of_a_search_within_a_trial_are_not_taken_for_the_trials_own(
    binary: Any, holdout: LadderHoldout
) -> None:
    grid = GridSearchCV(
        DecisionTreeClassifier(max_features=1),
        {"random_state": [1, 2, 3]},
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
    )
    space = {"estimator__max_depth": IntDistribution(1, 4)}
    search = OptunaSearchCV(
        grid, space, cv=2, scoring="accuracy", n_trials=2, refit=False, random_state=0
    )
    with pytest.warns(NoImprovementWarning):  # not every grid improves on what stands
        search.fit(binary.X_train, binary.y_train)
    looks = entries_of(holdout)[1:]
    # 2 trials, 2 folds, 3 candidates: each a look of its own, under no trial's key.
    assert len(looks) == 12 and all("trial" not in entry.context for entry in looks)
    assert sum(entry.repeat_of is None for entry in looks) > 2
    assert all("ladder_key" not in trial.user_attrs for trial in search.study_.trials)


class Asking(DecisionTreeClassifier):
    """Asks the holdout in its fit, as an early stopping of its own may do."""

    def __init__(self, holdout: Any = None, max_depth: int = 1) -> None:
        super().__init__(max_depth=max_depth, random_state=0)
        self.holdout = holdout

    def fit(self, X: Any, y: Any) -> Any:
        for features in (1, 3):
            first = DecisionTreeClassifier(max_features=features, max_depth=1, random_state=0)
            self.holdout(first.fit(X, y), X[:0], y[:0])
        return super().fit(X, y)


def test_looks_from_within_a_fit_are_not_taken_for_the_trials_own(
    binary: Any, holdout: LadderHoldout
) -> None:
    space = {"max_depth": IntDistribution(2, 5)}
    search = OptunaSearchCV(
        Asking(holdout), space, cv=holdout.split(), scoring=holdout, n_trials=2, refit=False,
        random_state=0,
    )  # fmt: skip
    search.fit(binary.X_train, binary.y_train)
    whose = [entry.context.get("trial") for entry in holdout.history(after=1)]
    assert whose == [None, None, 0, None, None, 1]
    assert len({entry.digest for entry in entries_of(holdout)[1:]}) >= 3
