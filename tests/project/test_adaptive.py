"""Attacks the answers that a leaderboard gives to adaptive queries: Hardt's reduction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers._adaptive import AdaptiveEstimator, Answered
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import Ladder, Mechanism, ParameterFreeLadder, ShakyLadder
from ladderholdout.metrics import Evaluation
from tests.support import literal


class Board:
    """A mechanism as the black box of the paper: losses in, release out."""

    def __init__(self, mechanism: Mechanism, n: int, seed: int) -> None:
        self.mechanism, self.state = mechanism, mechanism.start(n)
        self.rng, self.submissions = np.random.default_rng(seed), 0

    def __call__(self, losses: np.ndarray) -> float:
        evaluation = Evaluation.from_losses(losses)
        self.state, outcome = self.mechanism.advance(self.state, evaluation, self.rng)
        self.submissions += 1
        return outcome.risk


values = st.integers(0, 40).map(lambda fortieth: fortieth / 40)


@pytest.mark.parametrize(
    ("mechanism", "alpha"),
    # No multiples of a step, so that nothing hangs on the last bit.
    [
        (Ladder(0.01), 0.0773),
        (Ladder(0.003), 0.0519),
        (ParameterFreeLadder(), 0.0773),
        (ShakyLadder(0.01, 0.003), 0.0519),
    ],
    ids=repr,
)
@settings(max_examples=40)
@given(
    queries=st.lists(st.lists(values, min_size=4, max_size=4), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_answers_are_those_of_figure_2(
    mechanism: Mechanism, alpha: float, queries: list[list[float]], seed: int
) -> None:
    board = Board(mechanism, 4, seed)
    loops = math.ceil(1 / alpha) + 3
    rows = [np.array(query) for query in queries]
    expected = list(literal.reduction(board, alpha, rows, loops))
    estimator, rng = AdaptiveEstimator(mechanism, alpha), np.random.default_rng(seed)
    state = estimator.start(4)
    for query, answer in zip(rows, expected, strict=False):
        if state.threshold <= 0:
            return
        state, found = estimator.answer(state, query, rng)
        assert found == pytest.approx(answer, abs=1e-9)
    if len(expected) == len(rows):
        assert state.submissions == board.submissions
        assert state.ladder == board.state


@pytest.mark.parametrize("alpha", [0.2, 0.1, 0.05])
def test_the_published_number_of_queries_is_answered_within_alpha(alpha: float) -> None:
    # The error of a ladder with a step of alpha / 4 is far below alpha / 2 on the data itself.
    rng = np.random.default_rng(0)
    estimator = AdaptiveEstimator(Ladder(alpha / 4), alpha)
    state = estimator.start(200)
    for number in range(math.floor(1 / (3 * alpha))):
        level = (0.0, 1.0, 0.5, 0.9, 0.02)[number % 5]
        query = np.clip(level + 0.1 * rng.normal(size=200), 0, 1)
        before = state.submissions
        state, found = estimator.answer(state, query, rng)
        assert abs(found - query.mean()) <= alpha
        assert state.submissions - before <= 1 / alpha + 3


def test_a_mean_of_one_needs_the_offsets_beyond_the_published_ones() -> None:
    alpha, n = 0.1, 5
    board = Board(Ladder(0.01), n, 0)
    assert list(literal.reduction(board, alpha, [np.ones(n)], loops=10)) == []
    estimator, rng = AdaptiveEstimator(Ladder(0.01), alpha), np.random.default_rng(0)
    _, found = estimator.answer(estimator.start(n), np.ones(n), rng)
    assert found == pytest.approx(1.0, abs=0.02)


def test_a_leaderboard_that_never_answers_is_answered_with_one() -> None:
    estimator, rng = AdaptiveEstimator(Ladder(1.0), 0.1), np.random.default_rng(0)
    state, found = estimator.answer(estimator.start(3), [0.5] * 3, rng)
    assert found == 1.0 and state.submissions == 13


def test_when_the_threshold_has_fallen_to_zero_no_query_is_answered_any_more() -> None:
    estimator, rng = AdaptiveEstimator(Ladder(0.01), 0.2), np.random.default_rng(0)
    state = estimator.start(3)
    with pytest.raises(InvalidArgument, match="alpha must be smaller for so many queries"):
        for _ in range(20):
            state, _ = estimator.answer(state, [0.5] * 3, rng)
    assert state.threshold <= 0


def test_an_answer_is_pure() -> None:
    estimator = AdaptiveEstimator(ShakyLadder(0.02, 0.01), 0.1)
    state = estimator.start(3)
    once, again = (estimator.answer(state, [0.2] * 3, np.random.default_rng(4)) for _ in range(2))
    assert once == again and state == Answered(ShakyLadder(0.02, 0.01).start(3))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ([0.1, 0.2], r"query must be of shape \(3,\)"),
        ([0.1, 0.2, 1.2], r"query must be of numbers in \[0, 1\]"),
        ([0.1, 0.2, math.nan], r"query must be of numbers in \[0, 1\]"),
        ([0.1, -0.2, 0.3], r"query must be of numbers in \[0, 1\]"),
    ],
)
def test_queries_that_are_none_are_refused(query: Any, said: str) -> None:
    estimator = AdaptiveEstimator(Ladder(0.01))
    with pytest.raises(InvalidArgument, match=said):
        estimator.answer(estimator.start(3), query, np.random.default_rng(0))


@pytest.mark.parametrize("alpha", [0, 0.6, math.nan, True, "0.1"])
def test_an_accuracy_outside_of_its_range_is_refused(alpha: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"alpha must be a number in \(0, 0.5\]"):
        AdaptiveEstimator(Ladder(0.01), alpha)
