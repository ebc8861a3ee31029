"""Attacks the mathematics of finals: Holm's steps, sets of ranks, p-values, the code, coverage."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from ladderholdout.certificates.finals import (
    FinalsEvidence,
    closed,
    of_teams,
    rank_sets,
    relation_length,
    sign_evidence,
    step_down,
    upper_triangle,
)
from ladderholdout.certificates.reserve_intervals import ReserveGrid
from ladderholdout.certificates.targeted_bets import ordered_mean_evidence

pytestmark = pytest.mark.quick
Bools = NDArray[np.bool_]


# A transcription of its own, by exact fractions and sets of pairs.


def p_value(wins: int, losses: int) -> Fraction:
    """Return the chance of so many heads or more."""
    total = wins + losses
    return Fraction(sum(math.comb(total, k) for k in range(wins, total + 1)), 2**total)


def holm(p_values: dict[tuple[int, int], Fraction], level: Fraction) -> set[tuple[int, int]]:
    """Holm 1979: stop at the first that is above the level over those that are left."""
    rejected: set[tuple[int, int]] = set()
    for pair in sorted(p_values, key=lambda pair: p_values[pair]):
        if p_values[pair] > level / (len(p_values) - len(rejected)):
            break
        rejected.add(pair)
    return rejected


def ranks(better: set[tuple[int, int]], m: int) -> list[set[int]]:
    """Return the ranks that some order of all may give, by trying all orders."""
    found: list[set[int]] = [set() for _ in range(m)]
    for order in itertools.permutations(range(m)):
        place = {who: rank for rank, who in enumerate(order, 1)}
        if all(place[one] < place[other] for one, other in better):
            for who in range(m):
                found[who].add(place[who])
    return found


def of_pairs(better: Bools) -> set[tuple[int, int]]:
    return {(int(i), int(j)) for i, j in np.argwhere(better)}


squares = st.integers(2, 5).flatmap(
    lambda m: st.lists(st.lists(st.integers(0, 40), min_size=m, max_size=m), min_size=m, max_size=m)
)


@given(squares, st.sampled_from([Fraction(1, 20), Fraction(1, 3)]))
def test_pairs_are_those_of_holm(wins: list[list[int]], level: Fraction) -> None:
    m = len(wins)
    p_values = {
        (i, j): p_value(wins[i][j], wins[j][i]) for i in range(m) for j in range(m) if i != j
    }
    square = np.array(wins)
    np.fill_diagonal(square, 0)
    found = step_down(sign_evidence(square), math.log(level))
    assert of_pairs(found) == holm(p_values, level)


@given(st.integers(2, 5), st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4))))
def test_sets_of_ranks_hold_every_order_that_is_left(m: int, drawn: set[tuple[int, int]]) -> None:
    better = np.zeros((m, m), dtype=bool)
    for one, other in drawn:
        if one < other < m:
            better[one, other] = True
    better = closed(better)
    first, last = rank_sets(better)
    for who, possible in enumerate(ranks(of_pairs(better), m)):
        # A partial order leaves every rank between the two ends to somebody.
        assert possible == set(range(first[who], last[who] + 1))


@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.data())
def test_a_team_is_as_good_as_its_best_entry(teams: list[int], data: st.DataObject) -> None:
    m = len(teams)
    scores = data.draw(st.lists(st.integers(0, 9), min_size=m, max_size=m))
    better = np.array([[one > other for other in scores] for one in scores])
    count = max(teams) + 1
    found = of_teams(better, teams, count)
    best = [
        max((s for s, t in zip(scores, teams, strict=True) if t == team), default=None)
        for team in range(count)
    ]
    for one, other in itertools.product(range(count), repeat=2):
        if best[one] is not None and best[other] is not None:
            assert found[one, other] == (best[one] > best[other])


@pytest.mark.parametrize("m", [2, 3])
def test_the_code_of_the_pairs_gives_chances_that_sum_to_one(m: int) -> None:
    pairs, total = list(itertools.combinations(range(m), 2)), 0.0
    for kinds in itertools.product(range(3), repeat=len(pairs)):
        better = np.zeros((m, m), dtype=bool)
        for (one, other), kind in zip(pairs, kinds, strict=True):
            better[one, other], better[other, one] = kind == 1, kind == 2
        total += math.exp(-relation_length(better, range(m)))
    assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("level", [0.001, 0.05, 0.3])
def test_a_sign_test_is_wrong_no_more_often_than_at_its_level(level: float) -> None:
    n = 14
    for down in (0.05, 0.2, 0.5):
        for up in (down, down / 2):  # the first is not better
            wrong = 0.0
            for b in range(n + 1):
                for c in range(n + 1 - b):
                    wins = np.array([[0, b], [c, 0]])
                    if sign_evidence(wins)[0, 1] >= -math.log(level):
                        ways = math.comb(n, b) * math.comb(n - b, c)
                        wrong += ways * up**b * down**c * (1 - up - down) ** (n - b - c)
            assert wrong <= level + 1e-12


@pytest.mark.parametrize("target", [8.0, 40.0])  # both kinds of bets
def test_bets_that_gain_nothing_seldom_show_a_gain(target: float) -> None:
    rng, draws, least = np.random.default_rng(3), 800, math.log(20.0)
    wrong = sum(
        ordered_mean_evidence(rng.beta(0.5, 0.5, 200), 0.5, target) >= least for _ in range(draws)
    )
    # 6e-6: the chance of more at a rate of 1 in 20.
    assert wrong <= binom.isf(1e-5, draws, 0.05)


def drawn(rates: NDArray[Any], n: int, rng: np.random.Generator) -> FinalsEvidence:
    """Return the evidence of models that are right with these chances, on shared hard rows."""
    hard = rng.random(n)
    right = rng.random((len(rates), n)) < rates[:, None] + 0.2 * (hard - 0.5)
    wins = (right[:, None, :] & ~right[None, :, :]).sum(axis=2)
    pairs = upper_triangle(np.where(wins > wins.T, sign_evidence(wins), 0.0))
    nothing, risks = (None,) * len(rates), tuple((~right).mean(axis=1).tolist())
    return FinalsEvidence(
        (ReserveGrid(n, (0.0, 1.0)),) * len(rates), risks, nothing, nothing, pairs
    )


RATES = {
    "all alike": np.full(12, 0.7),
    "two tiers": np.repeat([0.62, 0.8], 6),
    "close": np.linspace(0.6, 0.82, 12),
}


@pytest.mark.parametrize("case", RATES)
def test_all_that_finals_show_holds_at_once(case: str) -> None:
    rates, n, draws, rng = RATES[case], 300, 150, np.random.default_rng(11)
    wrong, apart = 0, 0
    truth_best = 1 + (rates[None, :] > rates[:, None] + 1e-12).sum(axis=1)
    truth_last = len(rates) - (rates[None, :] < rates[:, None] - 1e-12).sum(axis=1)
    for _ in range(draws):
        shown = drawn(rates, n, rng).shown(0.9, 0.0)
        first, last = rank_sets(shown.better)
        apart += int(shown.better.sum())
        fine = (first <= truth_best).all() and (truth_last <= last).all()
        for low, high, rate in zip(shown.lows, shown.highs, rates, strict=True):
            assert low is not None and high is not None
            fine = fine and low <= 1.0 - rate <= high
        wrong += not fine
    # 1e-5: the chance of more at a rate of 1 in 10.
    assert wrong <= binom.isf(1e-5, draws, 0.1)
    assert apart == 0 or wrong if case == "all alike" else apart > 0


def test_what_is_shown_follows_from_what_is_kept_alone() -> None:
    evidence = drawn(RATES["close"], 400, np.random.default_rng(5))
    one, other = evidence.shown(0.95, 3.0), evidence.shown(0.95, 3.0)
    assert (one.better == other.better).all() and one.log_values == other.log_values
    wider = evidence.shown(0.95, 9.0)
    assert wider.better.sum() < one.better.sum()
    assert all(a <= b for a, b in zip(wider.lows, one.lows, strict=True))  # type: ignore[operator]


def test_further_rows_for_the_second_model_are_evidence_against_the_first() -> None:
    wins = np.array([[0, 30], [10, 0]])
    assert sign_evidence(wins, 5)[0, 1] < sign_evidence(wins)[0, 1]
    assert sign_evidence(wins, 5)[0, 1] == pytest.approx(-math.log(p_value(30, 15)))
