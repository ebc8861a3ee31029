"""Attacks searches of many processes on one ledger, file or server: kills, clocks, one study."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.samplers import RandomSampler
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.errors import OpenedWarning
from ladderholdout.guard.health import verify_holdout
from ladderholdout.mechanisms import FullDisclosure
from tests.support.holdouts import SHAKY, assert_replays, coins, guesses
from tests.support.ledgers import set_clock, url_of, wait_for_writers
from tests.support.postgres import Server
from tests.support.processes import at_once
from tests.support.studies import NAME, assert_traceable, holdout_of, tree_of

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.processes)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the place of an empty ledger."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    found: str = request.getfixturevalue("database")
    return found


def opened(place: str, **given: Any) -> LadderHoldout:
    settings = {"scoring": "accuracy", "name": "coins", "mechanism": FullDisclosure()} | given
    return LadderHoldout(*coins(), ledger=place, **settings)


def assert_whole(holdout: LadderHoldout) -> None:
    assert_replays(holdout)
    assert verify_holdout(holdout.ledger, holdout.name).findings == ()


# -- processes that are killed -------------------------------------------------------------

SEARCH = """
import os, sys
import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV
from ladderholdout import LadderHoldout

url, told, seed = sys.argv[1:]
holdout = LadderHoldout.open("coins", ledger=url)

def classifier():
    class Guess(DummyClassifier):
        def __init__(self, level=0, seed=0):
            super().__init__()
            self.level, self.seed = level, seed
        def predict(self, X):
            return np.random.default_rng([self.seed, self.level]).integers(0, 2, len(X))
    return Guess

def scorer(estimator, X, y):
    score = holdout(estimator, X, y)
    with open(told, "a") as file:
        file.write(f"{os.getpid()} {estimator.level} {score!r}\\n")
    return score

search = GridSearchCV(classifier()(seed=int(seed)), {"level": list(range(400))}, scoring=scorer,
                      cv=holdout.split(), n_jobs=2)
search.fit(np.zeros((10, 3)), np.arange(10) % 2)
"""


def told_in(path: Path) -> list[tuple[int, int, float]]:
    """Return process, candidate and score of each line; the last may be cut short."""
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(int(one[0]), int(one[1]), float(one[2])) for one in lines if len(one) == 3]


def killed_search(place: str, told: Path, seed: int, whom: str) -> None:
    """Run a search in two workers, and kill it, or one of them, at a random moment."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SEARCH), place, str(told), str(seed)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while len(told_in(told)) < 5:
            assert child.poll() is None
            time.sleep(0.01)
        time.sleep(random.Random(seed).uniform(0, 0.2))
        os.kill(child.pid if whom == "parent" else told_in(told)[0][0], signal.SIGKILL)
        assert child.wait(60) != 0
    finally:
        # Whatever it left running belongs to its session, and to no other.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.processes
@pytest.mark.nightly
@pytest.mark.parametrize("whom", ["parent", "worker"])
def test_a_search_that_is_killed_loses_nothing_that_it_was_told(
    place: str, tmp_path: Path, whom: str
) -> None:
    holdout = opened(place)
    for seed in range(2):
        told = tmp_path / f"told-{seed}"
        killed_search(holdout.ledger, told, seed, whom)
        wait_for_writers(holdout)
        entries = {
            one.context["parameters"]["level"]: one.score
            for one in holdout.history()
            if one.context["parameters"]["seed"] == seed
        }
        heard = told_in(told)
        assert 5 <= len(heard) <= len(entries) < 400
        assert all(entries[level] == score for _, level, score in heard)
    assert_whole(holdout)
    # The next one goes on where the dead left off.
    number = holdout.status().submissions + 1
    assert holdout.submit(guesses(9, 1)[0]).submission == number


# -- clocks that jump ----------------------------------------------------------------------


def test_a_clock_that_jumps_backwards_changes_no_order(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)

    def back() -> datetime:
        nonlocal moment
        moment -= timedelta(hours=1)
        return moment

    set_clock(monkeypatch, back)
    holdout = opened(place, mechanism=SHAKY)
    told = [holdout.submit(one) for one in guesses(0, 5)]
    assert [one.submission for one in told] == [1, 2, 3, 4, 5]
    opened_at = holdout.owner.audit().status.opened
    late = guesses(1, 1)[0]
    with pytest.warns(OpenedWarning):
        assert holdout.submit(late).opened
    assert opened_at is not None and holdout.history()[-1].time < opened_at
    # A repeat is told so like any other, or it would show itself.
    for again in (guesses(0, 1)[0], late):
        with pytest.warns(OpenedWarning):
            assert holdout.submit(again).opened
    after = [one.after_opening for one in holdout.owner.audit().submissions]
    assert after == [False] * 5 + [True] * 3
    times = [one.time for one in holdout.history()]
    assert times == sorted(times, reverse=True)
    assert_whole(holdout)


# -- searches ------------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.nightly
def test_workers_of_a_grid_share_a_ladder_on_a_server(binary: Any, database: str) -> None:
    holdout = holdout_of(binary, database)
    search = GridSearchCV(
        DecisionTreeClassifier(random_state=0),
        {"max_depth": [1, 2, 3], "min_samples_leaf": [1, 5, 20]},
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
        n_jobs=2,
    )
    search.fit(binary.X_train, binary.y_train)
    history = holdout.history()
    assert len(history) == 9
    assert len({one.batch for one in history}) == 1
    winner = history[(holdout.status().incumbent or 0) - 1].context["parameters"]
    assert {name: winner[name] for name in search.best_params_} == search.best_params_
    assert_whole(holdout)


def work(url: str, name: str, X: Any, y: Any, n_trials: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    holdout = LadderHoldout.open(NAME, ledger=url)
    study = optuna.load_study(study_name=name, storage=url, sampler=RandomSampler())
    study.optimize(holdout.optuna.objective(lambda trial: tree_of(trial, X, y)), n_trials=n_trials)


@pytest.mark.processes
@pytest.mark.nightly
def test_workers_of_a_study_share_a_server_with_its_ladder(
    binary: Any, database: str, postgres: Server
) -> None:
    """Study and ledger in one database: each finds its own tables."""
    holdout = holdout_of(binary, database)
    study = optuna.create_study(study_name="shared", storage=database, direction="maximize")
    holdout.submit(np.zeros(142, dtype=int))  # so bad that some trial will improve on it
    call = (work, database, "shared", binary.X_train, binary.y_train, 10)
    at_once([call] * 3)
    assert_traceable(holdout, study, 30)
    assert len(study.trials) == 30 == len(holdout.history(after=1))
    assert verify_holdout(holdout.ledger, NAME).findings == ()
    assert url_of(database) == holdout.ledger
