"""Attacks studies that several processes share: their storages, their races and their dead."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.exceptions import OptunaError
from optuna.samplers import RandomSampler
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.errors import LadderHoldoutWarning
from tests.support.holdouts import assert_replays
from tests.support.ledgers import entries_of
from tests.support.processes import at_once, elsewhere
from tests.support.studies import (
    NAME,
    assert_nothing_raw,
    assert_traceable,
    holdout_of,
    steps_by_trial,
    storage_at,
    tree_of,
)

optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
]


@pytest.fixture
def holdout(binary: Any, tmp_path: Path) -> LadderHoldout:
    return holdout_of(binary, tmp_path / "ledger.db")


def study_at(kind: str, path: Path) -> optuna.Study:
    return optuna.load_study(
        study_name="shared", storage=storage_at(kind, path), sampler=RandomSampler()
    )


# -- one study, one ladder, several processes ---------------------------------------------


def work(
    kind: str, path: Path, ledger: Path, X: NDArray[Any], y: NDArray[Any], n_trials: int
) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    holdout = LadderHoldout.open(NAME, ledger=ledger)
    objective = holdout.optuna.objective(lambda trial: tree_of(trial, X, y))
    study_at(kind, path).optimize(objective, n_trials=n_trials)


FEW_AND_MANY = [
    pytest.param(2, 12, id="few"),
    pytest.param(4, 100, id="many", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("workers", "each"), FEW_AND_MANY)
@pytest.mark.parametrize("kind", ["rdb", "journal"])
def test_workers_share_a_study_and_a_ladder(
    binary: Any, holdout: LadderHoldout, tmp_path: Path, kind: str, workers: int, each: int
) -> None:
    path, ledger = tmp_path / "study.db", tmp_path / "ledger.db"
    study = optuna.create_study(
        study_name="shared", storage=storage_at(kind, path), direction="maximize"
    )
    holdout.submit(np.zeros(142, dtype=int))  # so bad that some trial will improve on it
    call = (work, kind, path, ledger, binary.X_train, binary.y_train, each)
    at_once([call] * workers)
    assert_traceable(holdout, study, workers * each)
    assert len(study.trials) == workers * each == len(holdout.history(after=1))
    assert holdout.status().releases > 1
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("study.db*"))
    assert_nothing_raw(holdout, binary.y_holdout, stored)


# -- the same trial, run by two workers at once -------------------------------------------


def meet(place: Path, how_many: int) -> None:
    """Wait until so many processes are here."""
    place.mkdir(exist_ok=True)
    (place / str(os.getpid())).touch()
    while len(os.listdir(place)) < how_many:
        time.sleep(0.001)


def rerun(
    kind: str, path: Path, ledger: Path, numbers: list[int], workers: int
) -> list[tuple[float, ...]]:
    """Run trials that others run too, each time with predictions of this process alone."""
    study, rng = study_at(kind, path), np.random.default_rng()
    holdout = LadderHoldout.open(NAME, ledger=ledger)
    objective = holdout.optuna.objective(lambda trial: rng.integers(0, 2, 142))
    ids = [trial._trial_id for trial in study.get_trials(deepcopy=False)]
    said = []
    for number in numbers:
        trial = optuna.Trial(study, ids[number])
        meet(path.with_name(f"trial-{number}"), workers)
        value = objective(trial)
        noted = trial.user_attrs
        said.append((value, noted["ladder_submission"], noted["ladder_released"]))
    return said


@pytest.mark.parametrize("kind", ["rdb", pytest.param("journal", marks=pytest.mark.nightly)])
def test_workers_that_run_the_same_trial_at_once_share_one_step(
    holdout: LadderHoldout, tmp_path: Path, kind: str
) -> None:
    # Optuna hands a waiting trial to two workers where its storage does not lock rows.
    path, numbers = tmp_path / "study.db", list(range(5))
    study = optuna.create_study(
        study_name="shared", storage=storage_at(kind, path), direction="maximize"
    )
    for _ in numbers:
        study.ask()
    call = (rerun, kind, path, tmp_path / "ledger.db", numbers, 3)
    first, *others = at_once([call] * 3)
    known = entries_of(holdout)

    def told(said: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        """What a worker was told, with the submission whose answer it got for its own."""
        return [(value, known[int(n) - 1].repeat_of or n, score) for value, n, score in said]

    assert [told(other) for other in others] == [told(first)] * 2
    assert steps_by_trial(holdout) == dict.fromkeys(numbers, 1)
    assert len(holdout.history()) == 3 * len(numbers)
    assert_replays(holdout)


# -- workers that die, or seem to ---------------------------------------------------------

MOMENTS = ["in build", "after the release", "before the telling", "after the telling"]


def study_with_a_heart(path: Path) -> optuna.Study:
    """Open a study whose dead trials are retried, but not before somebody dates them back."""
    storage = storage_at(
        "rdb",
        path,
        heartbeat_interval=60,
        grace_period=3600,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
    )
    return optuna.load_study(study_name="shared", storage=storage, sampler=RandomSampler())


def heartbeats(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path, timeout=60)) as connection, connection:
        return connection.execute(statement).fetchall()


def seem_dead(path: Path) -> None:
    heartbeats(path, "UPDATE trial_heartbeats SET heartbeat = '2000-01-01 00:00:00'")


def killed(path: Path, ledger: Path, moment: str, deadly: int) -> None:
    """Run a study until this process dies in, or after, one of its trials."""
    study, holdout = study_with_a_heart(path), LadderHoldout.open(NAME, ledger=ledger)
    rng = np.random.default_rng()

    def dies(now: str, trial: Any) -> None:
        if now != moment or trial.number != deadly:
            return
        # Optuna never misses a trial whose heart has not beaten once.
        while not heartbeats(path, f"SELECT 1 FROM trial_heartbeats WHERE trial_id={deadly + 1}"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    class Mortal(optuna.Trial):
        def set_user_attr(self, key: str, value: Any) -> None:
            if key == "ladder_submission":
                dies("after the release", self)
            super().set_user_attr(key, value)

    def build(trial: Any) -> Any:
        dies("in build", trial)
        trial.suggest_float("x", 0, 1)
        return rng.integers(0, 2, 142)

    guarded = holdout.optuna.objective(build)

    def objective(trial: Any) -> Any:
        trial.__class__ = Mortal
        value = guarded(trial)
        dies("before the telling", trial)
        return value

    study.optimize(objective, callbacks=[lambda _, trial: dies("after the telling", trial)])


def survive(path: Path, ledger: Path, workers: int, n_trials: int) -> None:
    study, holdout = study_with_a_heart(path), LadderHoldout.open(NAME, ledger=ledger)
    rng = np.random.default_rng()

    def build(trial: Any) -> Any:
        trial.suggest_float("x", 0, 1)
        return rng.integers(0, 2, 142)

    meet(path.with_name("survivors"), workers)
    study.optimize(holdout.optuna.objective(build), n_trials=n_trials)


# In build there is nothing to pay for yet; after the telling Optuna itself knows the trial.
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(one, marks=() if one == "after the release" else pytest.mark.nightly)
        for one in MOMENTS
    ],
)
def test_the_trial_of_a_killed_worker_costs_one_step(
    holdout: LadderHoldout, tmp_path: Path, moment: str
) -> None:
    path, ledger, deadly = tmp_path / "study.db", tmp_path / "ledger.db", 2
    study = optuna.create_study(
        study_name="shared", storage=storage_at("rdb", path), direction="maximize"
    )
    with pytest.raises(BrokenProcessPool):
        elsewhere(killed, path, ledger, moment, deadly)
    before = len(holdout.history())
    assert before == deadly + (moment != "in build")
    seem_dead(path)
    at_once([(survive, path, ledger, 2, 3)] * 2)

    done = study.get_trials(states=(TrialState.COMPLETE,))
    retried = [t for t in done if RetryHeartbeatStaleTrialCallback.retried_trial_number(t) == 2]
    told = moment == "after the telling"
    assert len(retried) == (not told) and len(done) == deadly + told + 6
    history = holdout.history()
    assert sum(steps_by_trial(holdout).values()) == len(done)
    known = entries_of(holdout)
    firsts = {one.number: one.repeat_of or one.number for one in known}
    for trial in retried:
        # Its predictions differ from those of the dead trial, whose answer it gets.
        own = known[trial.user_attrs["ladder_submission"] - 1]
        first = known[firsts[own.number] - 1]
        assert own.context["trial"] == trial.number
        assert first.context["trial"] == (trial.number if moment == "in build" else deadly)
        assert trial.user_attrs["ladder_released"] == history[first.number - 1].score
        assert trial.user_attrs["ladder_improved"] == first.improved
    for trial in done:
        entry = history[trial.user_attrs["ladder_submission"] - 1]
        assert trial.user_attrs["ladder_released"] == entry.score
        assert trial.user_attrs["ladder_improved"] == known[entry.number - 1].improved
    best = holdout.optuna.best_trial(study).user_attrs["ladder_submission"]
    assert firsts[best] == holdout.status().incumbent
    assert_replays(holdout)


def stall(path: Path, ledger: Path, at: str) -> str:
    """Run one trial, fall silent in it until another worker has retried it, then go on."""
    study, holdout = study_with_a_heart(path), LadderHoldout.open(NAME, ledger=ledger)

    def silent(now: str, trial: Any) -> None:
        if now == at:
            asked = f"SELECT 1 FROM trial_heartbeats WHERE trial_id={trial.number + 1}"
            while not heartbeats(path, asked):
                time.sleep(0.01)
            meet(path.with_name("silent"), 2)
            meet(path.with_name("retried"), 2)

    def build(trial: Any) -> Any:
        silent("in build", trial)
        return np.zeros(142, dtype=int)

    guarded = holdout.optuna.objective(build)

    def objective(trial: Any) -> Any:
        value = guarded(trial)
        silent("before the telling", trial)
        return value

    try:
        study.optimize(objective, n_trials=1, catch=(Exception,))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def retry(path: Path, ledger: Path) -> None:
    study, holdout = study_with_a_heart(path), LadderHoldout.open(NAME, ledger=ledger)
    meet(path.with_name("silent"), 2)
    seem_dead(path)
    study.optimize(holdout.optuna.objective(lambda _: np.ones(142, dtype=int)), n_trials=1)
    meet(path.with_name("retried"), 2)


@pytest.mark.parametrize("at", ["in build", "before the telling"])
def test_a_worker_that_is_taken_for_dead_and_is_not_costs_no_second_step(
    holdout: LadderHoldout, tmp_path: Path, at: str
) -> None:
    path, ledger = tmp_path / "study.db", tmp_path / "ledger.db"
    study = optuna.create_study(
        study_name="shared", storage=storage_at("rdb", path), direction="maximize"
    )
    said, _ = at_once([(stall, path, ledger, at), (retry, path, ledger)])
    # Optuna's own answers to whoever comes back to a trial that was given up.
    assert said in ("ValueError: Cannot tell a FAIL trial.", "AssertionError: Should not reach.")
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.COMPLETE]
    first, second = entries_of(holdout)
    assert second.repeat_of == first.number == 1 and second.risk == first.risk
    assert first.digest != second.digest
    # Each trial notes its own submission, and the silent one had none yet, or one before.
    own = [one.number for one in (first, second) if one.context["trial"] == 1]
    assert own == [1 if at == "in build" else 2]
    assert study.trials[1].user_attrs["ladder_submission"] == own[0]
    assert study.trials[1].value == holdout.history()[0].score
    assert holdout.optuna.best_trial(study).number == 1


# -- trials that are enqueued -------------------------------------------------------------


def test_a_trial_that_is_enqueued_again_costs_no_second_step(
    binary: Any, holdout: LadderHoldout
) -> None:
    def build(trial: Any) -> Any:
        depth = trial.suggest_int("max_depth", 1, 6)
        return DecisionTreeClassifier(max_depth=depth, random_state=0).fit(
            binary.X_train, binary.y_train
        )

    study = optuna.create_study(direction="maximize", sampler=RandomSampler(seed=0))
    objective = holdout.optuna.objective(build)
    study.enqueue_trial({"max_depth": 3})
    study.optimize(objective, n_trials=1)
    study.enqueue_trial({"max_depth": 3})
    study.enqueue_trial({"max_depth": 3}, user_attrs=study.trials[0].user_attrs)
    study.optimize(objective, n_trials=2)
    assert [entry.repeat_of for entry in entries_of(holdout)] == [None, 1, 1]
    assert [trial.value for trial in study.trials] == [study.trials[0].value] * 3
    assert holdout.optuna.best_trial(study).number == 0


def test_a_model_that_differs_each_time_is_another_trial_unless_its_key_is_handed_on(
    holdout: LadderHoldout,
) -> None:
    rng = np.random.default_rng(0)
    study = optuna.create_study(direction="maximize")
    objective = holdout.optuna.objective(lambda _: rng.integers(0, 2, 142))
    study.optimize(objective, n_trials=1)
    study.enqueue_trial({})
    study.enqueue_trial({}, user_attrs=study.trials[0].user_attrs)
    study.optimize(objective, n_trials=2)
    assert [entry.repeat_of for entry in entries_of(holdout)] == [None, None, 1]


OPTUNAS_OWN = ValueError, AssertionError, OptunaError


def empty_the_queue(kind: str, path: Path, ledger: Path, workers: int) -> None:
    """Work as a supervisor makes one: on plain SQLite started again when Optuna's races end it."""
    study = study_at(kind, path)
    rng, holdout = np.random.default_rng(), LadderHoldout.open(NAME, ledger=ledger)
    objective = holdout.optuna.objective(lambda _: rng.integers(0, 2, 142))
    meet(path.with_name("all"), workers)
    while study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        with suppress(*(OPTUNAS_OWN if kind == "plain" else ())):
            study.optimize(objective, n_trials=1)


@pytest.mark.parametrize(
    "kind",
    ["plain", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("rdb", "journal"))],
)
def test_a_queued_trial_costs_one_step_whoever_takes_it(
    holdout: LadderHoldout, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "study.db"
    study = optuna.create_study(study_name="shared", storage=storage_at(kind, path))
    for _ in range(12):
        study.enqueue_trial({})
    at_once([(empty_the_queue, kind, path, tmp_path / "ledger.db", 3)] * 3)
    steps = steps_by_trial(holdout)
    assert steps.keys() >= set(range(12)) and set(steps.values()) == {1}
    if kind != "plain":  # nobody was given a trial that another one had
        assert len(holdout.history()) == len(study.trials)
        assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert_replays(holdout)


# -- threads ------------------------------------------------------------------------------


def test_threads_share_a_study_and_a_ladder(
    binary: Any, holdout: LadderHoldout, tmp_path: Path
) -> None:
    holdout.submit(np.zeros(142, dtype=int))
    study = optuna.create_study(direction="maximize", sampler=RandomSampler(seed=0))
    objective = holdout.optuna.objective(
        lambda trial: tree_of(trial, binary.X_train, binary.y_train)
    )
    study.optimize(objective, n_trials=40, n_jobs=4)
    assert_traceable(holdout, study, 40)


def test_a_guard_that_is_lost_in_the_last_trials_of_threads_is_not_lost_in_silence(
    holdout: LadderHoldout, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)

    def build(trial: Any) -> Any:
        if trial.number == 9:
            (tmp_path / "ledger.db").unlink()
        return rng.integers(0, 2, 142)

    study = optuna.create_study(direction="maximize")
    # Optuna itself returns from this as if nothing had happened.
    with pytest.warns(LadderHoldoutWarning, match="The guard cannot answer"):
        study.optimize(holdout.optuna.objective(build), n_trials=10, n_jobs=2)
    assert study.trials[9].state is TrialState.FAIL
