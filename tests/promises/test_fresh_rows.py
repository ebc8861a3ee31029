"""Attacks the one transaction of fresh rows: kills, two who give them at once, searches between."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import signal
import time
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import optuna
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from ladderholdout.errors import HoldoutConflict
from ladderholdout.guard.health import verify_holdout
from tests.support.holdouts import coins
from tests.support.processes import at_once, die_at, elsewhere, killed

pytestmark = pytest.mark.processes
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has neither fork nor SIGKILL")
N = 60


def opened(ledger: Path) -> LadderHoldout:
    return LadderHoldout(*coins(N), scoring="accuracy", name="coins", ledger=ledger)


def replenished(ledger: str, seed: int) -> int | None:
    """Give fresh rows; return the block that they are, or None where others came before."""
    try:
        return LadderHoldout.open("coins", ledger=ledger).replenish(*coins(N, seed)).status().block
    except HoldoutConflict:
        return None


def started(holdout: LadderHoldout, seed: int) -> int:
    """Start a process that gives fresh rows; its status is 0 where it ended well."""
    child = os.fork()
    if child == 0:
        try:
            holdout.replenish(*coins(N, seed))
            os._exit(0)
        finally:
            os._exit(1)
    return child


@posix
def test_a_kill_at_a_moment_leaves_the_old_rows_or_the_fresh_ones(tmp_path: Path) -> None:
    """Killed at every twelfth moment of `replenish` with the ledger, and at each of the last."""
    ledger = tmp_path / "ledger.db"
    holdout = opened(ledger)
    holdout.submit(coins(N)[1])
    reached = elsewhere(replenish_and_die, str(ledger))
    assert reached[0] is False and reached[-1] is True
    assert 4 <= len(reached) <= 60
    verified = verify_holdout(holdout.ledger, "coins")
    # The first block, one of each that died too late, and that of the one who lived.
    assert (verified.findings, verified.blocks) == ((), 2 + sum(reached))


def replenish_and_die(ledger: str) -> list[bool]:
    """Kill those who give fresh rows at a moment in turn; return whether the rows came in."""
    seeds, reached = itertools.count(100), []

    def die(moment: int) -> bool:
        """Die at a moment; return whether it was reached, and check what it left."""
        seed = next(seeds)
        holdout = LadderHoldout.open("coins", ledger=ledger)
        blocks = holdout.status().block

        def replenish(_: int) -> None:
            die_at(moment)
            holdout.replenish(*coins(N, seed))

        end = killed(replenish)[1]
        assert end in (0, -signal.SIGKILL)
        holdout = LadderHoldout.open("coins", ledger=ledger)
        status = holdout.status()
        fresh = status.block > blocks
        assert status.block == blocks + fresh
        if fresh:
            assert (status.submissions, holdout.submit(coins(N, seed)[1]).score) == (0, 1.0)
        if end:
            reached.append(fresh)
        else:
            assert fresh
        return end != 0

    moment = 1
    while die(moment):
        moment += 12
    # One by one, up to the first moment after the commit: the look at the files.
    moment -= 12
    while not reached[-1]:
        assert die(moment), "nobody died after the commit"
        moment += 1
    return reached


@posix
@pytest.mark.nightly
def test_a_kill_leaves_the_old_rows_or_the_fresh_ones(tmp_path: Path) -> None:
    """120 kills at random moments of `replenish`: each ledger is whole, with one block or two.

    The moments are drawn over twice the time that a whole call takes here, so that either state
    is met: each of both at least once, with a probability above .999999 if either has .2.
    """
    ledger = tmp_path / "ledger.db"
    holdout = opened(ledger)
    holdout.submit(coins(N)[1])
    begun = time.perf_counter()
    assert os.waitpid(started(holdout, 1), 0)[1] == 0
    # Of a child, for what it writes into the memory that it shares is copied first.
    took, moment, blocks = time.perf_counter() - begun, random.Random(5), 2
    holdout = LadderHoldout.open("coins", ledger=ledger)
    reached = {True: 0, False: 0}
    for turn in range(120):
        child = started(holdout, 100 + turn)
        time.sleep(moment.uniform(0, 2 * took))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        holdout = LadderHoldout.open("coins", ledger=ledger)
        status = holdout.status()
        assert status.block in (blocks, blocks + 1)
        reached[status.block > blocks] += 1
        X, y = coins(N, 100 + turn) if status.block > blocks else (None, None)
        if X is not None:
            assert (status.submissions, holdout.submit(y).score) == (0, 1.0)
        blocks = status.block
        if not turn % 20:
            assert verify_holdout(holdout.ledger, "coins").findings == ()
    assert min(reached.values()) > 0
    verified = verify_holdout(holdout.ledger, "coins")
    assert (verified.findings, verified.blocks) == ((), blocks)


def test_of_those_who_give_fresh_rows_at_once_each_becomes_one_block(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    holdout = opened(ledger)
    answers = at_once([(replenished, str(ledger), seed) for seed in range(1, 5)])
    blocks = sorted(block for block in answers if block is not None)
    assert blocks == list(range(2, len(blocks) + 2))
    verified = verify_holdout(holdout.ledger, "coins")
    assert (verified.findings, verified.blocks) == ((), len(blocks) + 1)


class Replenishing(LogisticRegression):
    """Meets fresh rows while a search is running: its second fit brings them."""

    def __init__(self, C: float = 1.0, ledger: str = "") -> None:
        super().__init__(C=C)
        self.ledger = ledger

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        if self.C == 1.0:
            replenished(self.ledger, 1)
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_search_that_meets_fresh_rows_stops(tmp_path: Path, n_jobs: int) -> None:
    ledger = tmp_path / "ledger.db"
    holdout, (X, y) = opened(ledger), coins(200, 9)
    sent = cloudpickle.dumps(holdout)  # as to a worker
    grid = GridSearchCV(
        Replenishing(ledger=str(ledger)), {"C": [0.1, 1.0, 10.0]},
        scoring=holdout, cv=holdout.split(), refit=holdout.select, n_jobs=n_jobs,
    )  # fmt: skip
    with pytest.raises(SearchStopped, match="Fresh rows took the place"):
        grid.fit(X, y)
    with pytest.raises(HoldoutConflict, match="Fresh rows took the place"):
        pickle.loads(sent).submit(coins(N)[1])
    again = LadderHoldout.open("coins", ledger=ledger)
    assert again.status().block == 2 and again.status().submissions == 0
    fresh = GridSearchCV(
        LogisticRegression(), {"C": [0.1, 10.0]},
        scoring=again, cv=again.split(), refit=again.select, n_jobs=n_jobs,
    ).fit(X, y)  # fmt: skip
    assert again.status().submissions == 2
    assert np.isfinite(fresh.cv_results_["mean_test_score"]).all()


def test_a_study_that_goes_on_with_fresh_rows_takes_no_trial_for_another(tmp_path: Path) -> None:
    """Submissions are numbered anew: the first trial is not the incumbent of the fresh rows."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    first, (X, y) = opened(tmp_path / "ledger.db"), coins(200, 9)

    def build(trial: optuna.Trial) -> Any:
        depth = trial.suggest_int("depth", 1, 9)
        return DecisionTreeClassifier(max_depth=depth, random_state=0).fit(X, y)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(0))
    study.optimize(first.optuna.objective(build), n_trials=3)
    holdout = first.replenish(*coins(N, 1))
    with pytest.raises(InvalidArgument, match="one without"):
        holdout.optuna.best_trial(study)
    before = first.optuna.best_trial(study).number
    study.optimize(holdout.optuna.objective(build), n_trials=2)
    assert holdout.optuna.best_trial(study).number in (3, 4)
    assert first.optuna.best_trial(study).number == before < 3
    final = holdout.optuna.finalists(study, build, k=1)
    assert holdout.status().submissions == 3 and len(final) == 1
    with pytest.raises(SearchStopped, match="Fresh rows took the place"):
        study.optimize(first.optuna.objective(build), n_trials=1)


def test_a_guarded_search_keeps_to_the_block_that_it_began_on(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    holdout, (X, y) = opened(ledger), coins(200, 9)
    search = holdout.guard(GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]})).fit(X, y)
    score = search.certificate_.score
    fresh = holdout.replenish(*coins(N, 1))
    fresh.submit(coins(N, 1)[1])
    assert search.holdout.name == "coins@1" and search.certificate_.score == score
    with pytest.raises((HoldoutConflict, SearchStopped), match="Fresh rows took the place"):
        holdout.guard(GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]})).fit(X, y)
