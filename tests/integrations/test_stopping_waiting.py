"""Attacks rounds that wait to be submitted: who could see, lose or reorder them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ladderholdout import LadderHoldout
from ladderholdout.guard.health import verify_holdout
from ladderholdout.holdout import LadderStopping
from ladderholdout.integrations import stopping as stopping_rule
from ladderholdout.mechanisms import FullDisclosure, Ladder, ParameterFreeLadder
from tests.support.holdouts import SHAKY, assert_replays, coins, guesses
from tests.support.ledgers import entries_of, incumbent_predictions, predictions_kept, statements_of
from tests.support.stopping import sequence


def opened(ledger: Any = "memory", **settings: Any) -> LadderHoldout:
    return LadderHoldout(*coins(), **{"scoring": "accuracy", "ledger": ledger, **settings})


def answers(seed: int, k: int = 40) -> list[NDArray[Any]]:
    """Some that are better and better by chance, with repeats among them."""
    rng, y = np.random.default_rng(seed), coins()[1]
    found: list[NDArray[Any]] = []
    for at in range(k):
        right = rng.random(len(y)) < 0.5 + 0.4 * rng.random() * at / k
        found.append(np.where(right, y, 1 - y) if at % 5 or not at else found[at // 2])
    return found


def waiting(
    stopping: LadderStopping, given: list[NDArray[Any]], after: Callable[[int], None] | None = None
) -> LadderStopping:
    """Train by rounds that may wait."""
    stopping.start()
    left: Iterator[NDArray[Any]] = iter(given)
    for number in range(1, len(given) + 1):
        stop = stopping._later(partial(next, left))
        if after is not None:
            after(number)
        if stop:
            break
    return stopping


def at_once(stopping: LadderStopping, given: list[NDArray[Any]]) -> LadderStopping:
    stopping.start()
    for one in given:
        if stopping.update(one):
            break
    return stopping


def recorded(holdout: LadderHoldout) -> list[Any]:
    """What the ledger holds of each round, but for names that are drawn."""
    return [
        (one.number, one.repeat_of, one.risk, one.improved, one.place, one.disagreement)
        for one in entries_of(holdout)
    ]


@pytest.mark.parametrize(
    ("rule", "patience", "min_rounds", "most"),
    [
        # Rules, patience and buffers that are full do not touch each other: each once.
        (ParameterFreeLadder(), 1, 1, 150),
        (Ladder(step=0.02), 3, 1, 2_000_000),
        (FullDisclosure(), 7, 12, 150),
        (ParameterFreeLadder(), 100, 1, 2_000_000),
    ],
)
def test_what_waits_is_answered_as_if_it_did_not(
    rule: Any, patience: int, min_rounds: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping_rule, "_MOST_WAITING", most)
    given, found = answers(patience), []
    for train in (at_once, waiting):
        holdout = opened(mechanism=rule)
        for _ in range(2):  # the second fit repeats the first
            stopping = LadderStopping(holdout, patience, min_rounds=min_rounds)
            train(stopping, given)
            found.append((sequence(stopping), recorded(holdout), holdout.certificate().log_count))
        assert_replays(holdout)
    assert found[:2] == found[2:]


def test_with_noise_it_replays(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db", mechanism=SHAKY)
    for patience in (2, 9):
        assert waiting(LadderStopping(holdout, patience), answers(patience)).rounds
        assert_replays(holdout)
    assert verify_holdout(holdout.ledger, holdout.name).findings == ()


def test_rounds_that_cannot_end_training_are_one_transaction(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    holdout.submit(coins()[1])  # nothing improves it
    with statements_of(holdout) as asked:
        stopping = waiting(LadderStopping(holdout, 10), list(guesses(0, 30)))
    assert (stopping.stopped, stopping.rounds) == (True, 10)
    assert [one for one in asked if one.startswith("BEGIN")] == ["BEGIN IMMEDIATE"]


def test_whoever_reads_what_was_released_sees_all_rounds() -> None:
    holdout = opened()
    stopping = LadderStopping(holdout, 100)
    seen: list[int] = []

    def look(number: int) -> None:
        shown: dict[int, Callable[[], int]] = {
            4: lambda: holdout.status().submissions,
            8: lambda: len(holdout.history()),
            12: lambda: len(stopping.releases),
            16: lambda: stopping.rounds,
            20: lambda: holdout.submit(answers(0)[19]).submission - 1,
        }
        if number in shown:
            seen.append(shown[number]())

    waiting(stopping, answers(0, 24), look)
    assert seen == [4, 8, 12, 16, 20]
    assert stopping.rounds == 24
    # What was read ends the batch of the rounds before it, and of those alone.
    batches = [one.batch for one in holdout.history() if "round" in one.context]
    runs = [batches[at] for at in range(len(batches)) if not at or batches[at] != batches[at - 1]]
    assert len(runs) == len(set(runs)) == 4
    assert [batches.index(one) for one in runs] == [0, 4, 8, 12]


def test_rounds_that_nobody_asked_for_wait_for_the_next_question() -> None:
    """Somebody else's callback ended training: the guard is told of no end."""
    holdout = opened()
    with pytest.raises(KeyboardInterrupt):
        waiting(LadderStopping(holdout, 100), answers(0), interrupt)
    assert recorded(holdout) == []
    assert holdout.submit(coins()[1]).submission == 8
    assert [one.context.get("round") for one in holdout.history()] == [*range(1, 8), None]


def interrupt(number: int) -> None:
    if number == 7:
        raise KeyboardInterrupt


def test_another_fit_begins_after_the_rounds_of_the_last_one() -> None:
    holdout = opened()
    stopping = LadderStopping(holdout, 100)
    with pytest.raises(KeyboardInterrupt):
        waiting(stopping, answers(0), interrupt)
    assert waiting(stopping, answers(1, 3)).rounds == 3
    assert [one.context["round"] for one in holdout.history()] == [*range(1, 8), 1, 2, 3]


def test_threads_submit_their_own_rounds_alone() -> None:
    holdout, there, done = opened(), threading.Event(), threading.Event()
    found: list[int] = []
    stopping = LadderStopping(holdout, 100)

    def train() -> None:
        def pause(number: int) -> None:
            if number == 5:
                there.set()
                done.wait(60)

        found.append(waiting(stopping, answers(0, 9), pause).rounds)

    thread = threading.Thread(target=train)
    thread.start()
    there.wait(60)
    assert holdout.status().submissions == 0  # whose model is being trained meanwhile
    assert stopping.rounds == 0
    done.set()
    thread.join(60)
    assert [holdout.status().submissions] == [stopping.rounds] == found == [9]


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_submits_nothing_of_its_parents(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")

    def fork(number: int) -> None:
        if number == 5:
            child = os.fork()
            if not child:
                os._exit(holdout.status().submissions)
            assert os.waitpid(child, 0)[1] == 0

    stopping = waiting(LadderStopping(holdout, 100), answers(0, 9), fork)
    assert holdout.status().submissions == stopping.rounds == 9


def test_what_is_refused_is_said_and_what_came_before_it_counts() -> None:
    holdout = opened()
    stopping = LadderStopping(holdout, 3)
    with pytest.raises(ValueError, match="predictions"):
        waiting(stopping, [*answers(0, 2), np.full(60, np.nan), *answers(1, 3)])
    assert recorded(holdout) == []  # one transaction: nothing of it was answered
    assert waiting(stopping, answers(0, 3)).rounds == 3


def test_the_last_incumbent_of_a_fit_is_kept_and_found_again(tmp_path: Path) -> None:
    """What its own rounds replace is not written, what was there before it stays."""
    holdout = opened(tmp_path / "ledger.db")
    holdout.submit(answers(0)[3])  # not in a batch: nothing of it is a candidate
    stopping = waiting(LadderStopping(holdout, 100), answers(0))
    best = stopping.best_round
    assert best > 1
    ladder = holdout.__ladder__
    stored, kept = incumbent_predictions(holdout), predictions_kept(holdout)
    assert np.array_equal(stored, answers(0)[best - 1][ladder.guard().order])
    assert kept == [1, 1 + best]
    assert verify_holdout(holdout.ledger, holdout.name).findings == ()
    # In another process, or where another ladder has used the cache.
    ladder.guard()._incumbent = None
    assert holdout.submit(answers(0)[best - 1]).is_incumbent
    holdout.owner.withdraw(1 + best, reason="a wrong feature")
    assert holdout.status().incumbent == 1
