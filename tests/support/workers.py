"""Submitters for the contract of ledgers: in threads, in processes, and killed at work."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.holdout import LadderHoldout, Release
from tests.support import holdouts
from tests.support.processes import clean_context

Answer: TypeAlias = tuple[int, float | None, bool]

NAME = "contract"
N_ROWS = 40
PATIENCE = 120.0

guesses = partial(holdouts.guesses, n=N_ROWS)

# A fork would inherit what this process has opened; these have imported the package alone.
_context = clean_context(__name__, "sklearn.dummy")


def rows() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return rows with labels that nothing predicts."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((N_ROWS, 2)), rng.integers(0, 2, N_ROWS)


def answer(release: Release) -> Answer:
    """Return the answer to a submission."""
    return release.submission, release.score, release.improved


def submit_all(url: str, account: str, seed: Sequence[int], k: int) -> list[Answer]:
    """Submit guesses one after the other, through a handle of one's own."""
    holdout = LadderHoldout.open(NAME, account=account, ledger=url)
    return [answer(holdout.submit(guess)) for guess in guesses(seed, k)]


def register(url: str, vault: str, seed: Sequence[int], k: int) -> list[Answer]:
    """Register the holdout, or find it registered, and submit."""
    holdout = LadderHoldout(*rows(), scoring="accuracy", name=NAME, ledger=url, vault=vault)
    return [answer(holdout.submit(guess)) for guess in guesses(seed, k)]


def at_once(calls: Sequence[tuple[Any, ...]], *, processes: bool) -> list[Any]:
    """Make several calls at the same time, each in a process, or else a thread, of its own."""
    with ExitStack() as stack:
        pools: list[Executor] = [
            stack.enter_context(
                ProcessPoolExecutor(1, _context) if processes else ThreadPoolExecutor(1)
            )
            for _ in calls
        ]
        running = [
            pool.submit(function, *given)
            for pool, (function, *given) in zip(pools, calls, strict=True)
        ]
        return [future.result(PATIENCE) for future in running]


def answers_before_a_kill(url: str, seed: Sequence[int], enough: int) -> list[Answer]:
    """Kill a submitter once it has sent so many answers; return all that it sent."""
    receiving, sending = _context.Pipe(duplex=False)
    child = _context.Process(target=_send, args=(url, seed, sending))
    child.start()
    sending.close()
    answers = [receiving.recv() for _ in range(enough)]
    child.kill()
    child.join()
    try:
        while receiving.poll():
            answers.append(receiving.recv())
    except EOFError:
        pass
    return answers


def _send(url: str, seed: Sequence[int], pipe: Connection) -> None:
    holdout = LadderHoldout.open(NAME, ledger=url)
    for guess in guesses(seed, 100_000):
        pipe.send(answer(holdout.submit(guess)))


def assert_one_order(holdout: LadderHoldout, received: Sequence[Sequence[Answer]]) -> None:
    """Check that the answers are the entries, without a gap, in an order that all agree on."""
    history = holdout.history()
    assert [submission.number for submission in history] == list(range(1, len(history) + 1))
    for answers in received:
        numbers = [number for number, *_ in answers]
        assert numbers == sorted(set(numbers))
    every = [given for answers in received for given in answers]
    assert len({number for number, *_ in every}) == len(every)
    for number, score, improved in every:
        entry = history[number - 1]
        assert (entry.score, entry.improved) == (score, improved)
    holdouts.assert_replays(holdout)
