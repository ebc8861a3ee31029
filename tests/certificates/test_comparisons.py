"""Attacks intervals of differences: coverage at the level, the code of what is shown, widths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ladderholdout.certificates.codes import place_length
from ladderholdout.certificates.comparisons import _shown, certify_difference, difference_limits
from ladderholdout.certificates.group_limits import Groups
from ladderholdout.certificates.metric_limits import Rows
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits
from ladderholdout.metrics import get_metric

ACCURACY = get_metric("accuracy")
ERROR = get_metric("neg_mean_absolute_error").with_range((0, 2))
Drawn = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def errors(rng: np.random.Generator, n: int) -> Drawn:
    """Errors of mean .15 and .25, of which few are large."""
    shared = 1.5 * rng.beta(0.3, 2.7, n)
    return np.zeros(n), shared, shared + 0.2 * (rng.random(n) < 0.5)


def scores(rng: np.random.Generator, n: int) -> Drawn:
    """Ranks of two models, of which the true areas are those of normal distributions."""
    y = rng.integers(0, 2, n)
    return y, 1.2 * y + rng.normal(size=n), 0.8 * y + rng.normal(size=n)


AREAS = [stats.norm.cdf(shift / math.sqrt(2)) for shift in (1.2, 0.8)]
CASES: dict[str, tuple[Any, Callable[[np.random.Generator, int], Drawn], float]] = {
    "absolute errors": (ERROR, errors, 0.1),
    "AUC": (get_metric("roc_auc"), scores, AREAS[0] - AREAS[1]),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_limits_miss_at_most_at_the_level(case: str) -> None:
    """Each side at .1: a true miss rate of .1 fails once in 10,000 times, one of .25 nearly always.

    With 600 draws of 150 rows; AUC with 200. tests/limits has the coverage of accuracies.
    """
    metric, drawn, true = CASES[case]
    rng, runs, missed = np.random.default_rng(34), 200 if case == "AUC" else 600, [0, 0]
    for _ in range(runs):
        y, first, second = drawn(rng, 150)
        sides = Rows(y, first, rng), Rows(y, second, rng)
        limits = difference_limits(metric, *sides, math.log(0.1))
        missed[0] += limits.low > true
        missed[1] += limits.high < true
    for count in missed:
        assert stats.binom.sf(count - 1, runs, 0.1) > 1e-4, missed


@pytest.mark.long
def test_limits_of_groups_miss_at_most_at_the_level() -> None:
    """Rows of a group are right together: limits by rows miss far more often than the level.

    80 groups of 1 to 20 rows; each side at .1, and the same rule for failing as above.
    """
    rng, runs, missed, by_rows = np.random.default_rng(35), 100, 0, 0
    for _ in range(runs):
        names = np.repeat(np.arange(80), rng.integers(1, 21, 80))
        y = np.zeros(len(names), dtype=int)
        # In each group one of the two models is right, by a fair coin: no true difference.
        first = (rng.random(80) < 0.5)[names].astype(int)
        given = Rows(y, first, rng), Rows(y, 1 - first, rng)
        groups = Groups.of(names, "rows")
        grouped = (Rows(rows.targets, rows.predictions, rng, groups=groups) for rows in given)
        missed += difference_limits(ACCURACY, *grouped, math.log(0.1)).low > 0.0
        by_rows += difference_limits(ACCURACY, *given, math.log(0.1)).low > 0.0
    assert stats.binom.sf(missed - 1, runs, 0.1) > 1e-4, missed
    assert by_rows > 3 * runs // 10


def test_a_difference_is_narrower_than_two_intervals() -> None:
    """Both models err on the same rows but for a few, which two intervals do not see."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    first = np.where(rng.random(2000) < 0.8, y, 1 - y)
    second = np.where(rng.random(2000) < 0.03, 1 - first, first)
    found = certify_difference(ACCURACY, Rows(y, first, rng), Rows(y, second, rng), 0.22)
    plain = math.sqrt(0.03 / 2000) * 2 * 1.96
    assert found.bound == "trinomial"
    # The registered level, one step of what is shown, and the price of the first comparison.
    assert found.high - found.low < 1.6 * plain
    assert found.high - found.low < 0.4 * 2 * 1.96 * math.sqrt(2 * 0.16 / 2000)


def test_what_is_shown_holds_the_limits_and_its_chances_sum_to_at_most_one() -> None:
    """The middle and the half width are read off each code, and all codes are added up."""
    rng, n, level = np.random.default_rng(0), 500, math.log(0.02)
    unit = math.sqrt(-level / (2 * n))
    for _ in range(300):
        middle, half = rng.normal() * 0.3, 10 ** rng.uniform(-5, 0)
        limits = Limits(max(middle - half, -1), min(middle + half, 1), "trinomial")
        low, high, price = _shown(limits, 1.0, n, level)
        assert -1 <= low <= limits.low and limits.high <= high <= 1
        assert high - low <= 1.06 * (limits.high - limits.low) + unit / 4
        assert price > 0
    # Without a range an end may be infinite: the other one is on the grid, and all four kinds pay.
    low, high, price = _shown(Limits(-math.inf, 0.2, "bets"), math.inf, n, level)
    assert low == -math.inf and 0.2 <= high < 0.2 + unit / 8
    place = 2 * round(high * 8 / unit)
    assert price == pytest.approx(math.log(4.0) + place_length(place))
    assert _shown(Limits(2.0, 9.0, "bets"), math.inf, n, level)[:2] == pytest.approx((2, 9), abs=1)
    middles = sum(math.exp(-place_length(place)) for place in range(1, 100_000))
    halves = sum(0.05 / 1.95 * 0.95 ** abs(power + 8) for power in range(-200, 201))
    assert 0.9 < middles * halves <= 1.0


@pytest.mark.parametrize("count", [-1.0, math.inf, math.nan])
def test_a_price_that_is_none_is_refused(count: float) -> None:
    rows = Rows(np.zeros(3, dtype=int), np.zeros(3, dtype=int), np.random.default_rng(0))
    with pytest.raises(InvalidArgument, match="log_count must be"):
        certify_difference(ACCURACY, rows, rows, count)
    with pytest.raises(InvalidArgument, match="one with a bound"):
        certify_difference(get_metric("neg_max_error"), rows, rows, 0.2)


def test_at_levels_that_no_float_has_nothing_is_claimed() -> None:
    rng, y = np.random.default_rng(0), np.zeros(100, dtype=int)
    found = certify_difference(ACCURACY, Rows(y, y, rng), Rows(y, 1 - y, rng), 700.0)
    assert (found.low, found.high) == (-1.0, 1.0)
