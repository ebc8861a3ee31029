"""Attacks the bets that recalculate their target: level, one boundary, widths, bad input.

The limit of a mean misses exactly where the true mean is rejected (Proposition B2), so a draw costs
one evaluation. Draws have fixed seeds: with others, bets that keep their level fail a test with a
probability of at most 1e-6 for each side of each case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, norm

from ladderholdout.certificates.metric_limits import Rows, bound_of, score_limits
from ladderholdout.certificates.score_intervals import assumptions_of
from ladderholdout.certificates.targeted_bets import (
    PRECISION,
    Sequence,
    is_targeted,
    ordered_mean_limits,
    sequence_of_mean,
    sequence_of_ratio,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import mean_limits
from ladderholdout.metrics import get_metric

Draw = Callable[[np.random.Generator, int], np.ndarray]
LEVEL = 0.05
TARGET = -math.log(LEVEL)
# Draws of losses in [0, 1], with their mean.
DRAWS: dict[str, tuple[Draw, float]] = {
    "Bernoulli": (lambda rng, n: (rng.random(n) < 0.1) * 1.0, 0.1),
    "rare": (lambda rng, n: np.where(rng.random(n) < 0.02, 1.0, 0.01), 0.0298),
    "skewed": (lambda rng, n: rng.beta(0.1, 0.9, n), 0.1),
    "two points": (lambda rng, n: np.where(rng.random(n) < 0.3, 0.9, 0.2), 0.41),
}


def brier(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return Brier losses of calibrated probabilities."""
    logits = 1.4 * rng.normal(size=n)
    chances = 1.0 / (1.0 + np.exp(-logits))
    return (chances - (rng.random(n) < chances)) ** 2


def squared(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return squared errors over a range of four times the RMSE."""
    return np.clip(rng.normal(size=n), -4.0, 4.0) ** 2 / 16.0


def absolute(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return absolute errors over a range of four times the RMSE."""
    return np.abs(np.clip(rng.normal(size=n), -4.0, 4.0)) / 4.0


GRADED: dict[str, Draw] = {"Brier": brier, "MSE": squared, "MAE": absolute}


# -- the level ---------------------------------------------------------------------------


def misses(draw: Draw, mean: float, n: int, draws: int, target: float) -> np.ndarray:
    """Count on each side how often the true mean is rejected."""
    rng, missed = np.random.default_rng([n, draws]), np.zeros(2, dtype=int)
    for _ in range(draws):
        losses = draw(rng, n)
        missed += (
            sequence_of_mean(losses).rejects(mean, target),
            sequence_of_mean(1.0 - losses).rejects(1.0 - mean, target),
        )
    return missed


@pytest.mark.nightly
@pytest.mark.parametrize("n", [30, 200, 1000])
@pytest.mark.parametrize("name", DRAWS)
def test_limits_miss_at_most_as_often_as_they_may(name: str, n: int) -> None:
    missed = misses(*DRAWS[name], n, 20_000, TARGET)
    assert missed.max() <= binom.isf(1e-6, 20_000, LEVEL)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Bernoulli", "skewed", "two points"])
def test_the_test_of_the_level_sees_a_target_that_is_a_quarter_lower(name: str) -> None:
    missed = misses(*DRAWS[name], 1000, 20_000, TARGET - math.log(1.25))
    assert missed.max() > binom.isf(1e-6, 20_000, LEVEL)


@pytest.mark.parametrize("level", [0.1, 0.3])
def test_the_level_is_kept_exactly_on_all_small_samples(level: float) -> None:
    for chances in ({0.0: 0.6, 1.0: 0.4}, {0.0: 0.9, 1.0: 0.1}, {0.2: 0.3, 0.9: 0.7}):
        mean = sum(value * chance for value, chance in chances.items())
        missed, beyond = np.zeros(2), np.zeros(2)
        for rows in itertools.product(chances, repeat=10):
            chance = math.prod(chances[value] for value in rows)
            both = np.array(rows), 1.0 - np.array(rows)
            for side, (values, null) in enumerate(zip(both, (mean, 1.0 - mean), strict=True)):
                sequence = sequence_of_mean(values)
                missed[side] += chance * sequence.rejects(null, -math.log(level))
                beyond[side] += chance * sequence.rejects(null / 2.0, -math.log(level))
        assert missed.max() <= level + 1e-12
        assert beyond.min() > level or chances.get(1.0) == 0.1


def test_the_level_of_a_ratio_is_kept_exactly_on_all_small_samples() -> None:
    pairs = {(0.0, 0.5): 0.5, (1.0, 0.25): 0.2, (0.3, 1.0): 0.3}
    top, bottom = (sum(pair[i] * chance for pair, chance in pairs.items()) for i in (0, 1))
    missed, beyond = 0.0, 0.0
    for rows in itertools.product(pairs, repeat=7):
        chance = math.prod(pairs[pair] for pair in rows)
        sequence = sequence_of_ratio(*np.array(rows).T)
        missed += chance * sequence.rejects(top / bottom, -math.log(0.2))
        beyond += chance * sequence.rejects(0.4 * top / bottom, -math.log(0.2))
    assert missed <= 0.2 < beyond


def test_losses_that_come_sorted_are_brought_in_an_order_that_knows_nothing_of_them() -> None:
    rng, missed, as_they_came = np.random.default_rng(6), 0, 0
    for _ in range(150):
        losses = np.sort(rng.random(100))[::-1]
        missed += ordered_mean_limits(losses, -TARGET, rng=rng).low > 0.5
        as_they_came += sequence_of_mean(losses).rejects(0.5, TARGET)
    most = binom.isf(1e-6, 150, LEVEL)  # more are a false alarm, once in 10^6 runs
    assert missed <= most < as_they_came


# -- one boundary ------------------------------------------------------------------------


def transcribed(gains: np.ndarray, costs: np.ndarray, null: float, target: float) -> bool:
    """Return what B2 and R6 say, row by row, written from the page and not from the module."""
    n, left, block_end, bet = len(gains), target + 1e-12 * len(gains), 0, 0.0
    is_mean = bool((costs == 1.0).all())
    for t in range(n):
        if t == block_end:
            block_end = t + max((n - t) // 32, 1)
            a, b = gains[:t], costs[:t]
            if is_mean:
                mean = a.sum() / (t + 0.5)
                part = (a * a).sum() / (t + 0.5) - mean * mean
                share = min(max(part / (mean * (1.0 - mean)), 0.0), 1.0) if mean > 0.0 else 1.0
                variance = (4.0 + t * share) / (4.0 + t) * null * (1.0 - null)
                slant = max(2.0 * mean - 1.0, 0.0) / 2.0
            else:
                variance, slant = 0.25 * null**2, 0.0
                if a.sum() > 0.0 and b.sum() > 0.0:
                    ratio = a.sum() / b.sum()
                    variance += ((a - ratio * b) ** 2).sum() * null / ratio
                variance /= 0.25 + t
            asked = math.sqrt(2.0 * left / ((n - t) * variance))
            bet = min(asked / math.sqrt(1.0 + slant * asked), 0.98 / null)
        left -= math.log(1.0 + bet * (gains[t] - null * costs[t]))
        if t + 1 == block_end and left <= 0.0:
            return True
    return False


def samples() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return rows of many kinds: gains and costs."""
    rng = np.random.default_rng(3)
    found = []
    for n in (1, 2, 7, 40, 150):
        for draw in (*(one for one, _ in DRAWS.values()), *GRADED.values()):
            values = draw(rng, n)
            found += [(values, np.ones(n)), (1.0 - values, np.ones(n))]
            found += [(values * rng.exponential(3.0, n), draw(rng, n))]
    return found


def sequence_of(gains: np.ndarray, costs: np.ndarray) -> Sequence:
    """Return the rows as a mean where all costs are 1, else as a ratio."""
    return sequence_of_mean(gains) if (costs == 1.0).all() else sequence_of_ratio(gains, costs)


def test_rejections_are_those_of_an_independent_transcription() -> None:
    compared = 0
    for gains, costs in samples():
        sequence = sequence_of(gains, costs)
        top = gains.sum() / max(costs.sum(), 1e-6)
        for null in top * np.array([1e-6, 0.1, 0.5, 0.7, 0.8, 0.9, 0.99]):
            if 0.0 < null < 1.0 or (null > 0.0 and not (costs == 1.0).all()):
                for target in (0.5, 2.0, 4.4, 20.0):
                    asked = transcribed(gains, costs, null, target)
                    assert sequence.rejects(null, target) == asked
                    compared += asked
    assert compared > 300


def test_what_is_rejected_lies_below_one_number_which_is_the_limit() -> None:
    """Proposition B2: all of a fine grid below the limit is rejected, and nothing above it."""
    # Every second sample is of another kind and size: the kinds of three take turns.
    for gains, costs in samples()[::2]:
        sequence, total = sequence_of(gains, costs), gains.sum()
        if total == 0.0 or costs.sum() == 0.0:
            continue
        estimate = total / costs.sum()
        for target in (0.7, 4.4, 12.0):
            low = sequence.lower(target)
            nulls = estimate * np.linspace(0.0, 1.2, 121)[1:]
            nulls = nulls[nulls < 1.0] if (costs == 1.0).all() else nulls
            rejected = [sequence.rejects(null, target) for null in nulls]
            assert rejected == sorted(rejected, reverse=True)
            step = PRECISION * min(estimate - low, low) + 1e-9 * estimate
            for null, is_rejected in zip(nulls, rejected, strict=True):
                # Beyond the estimate no limit is claimed.
                if null < estimate and abs(null - low) > 2.0 * step:
                    assert is_rejected == (null < low)


def test_a_limit_is_not_above_one_that_is_known() -> None:
    rng = np.random.default_rng(4)
    sequence = sequence_of_ratio(rng.random(300), rng.random(300))
    low = sequence.lower(4.4)
    assert sequence.lower(4.4, below=low / 2.0) == low / 2.0
    assert sequence.lower(4.4, below=2.0 * low) == pytest.approx(low, rel=1e-3)
    assert sequence.lower(4.4, below=0.0) == 0.0


# -- widths ------------------------------------------------------------------------------


def width(limits: Callable[..., object], draw: Draw, n: int, target: float, draws: int) -> float:
    """Return the mean width of an interval."""
    total = 0.0
    for seed in range(draws):
        rng = np.random.default_rng([seed, n])
        losses = draw(rng, n)
        options = {"rng": rng} if limits is ordered_mean_limits else {}
        found = limits(losses, -target, **options)
        total += found.high - found.low
    return total / draws


@pytest.mark.parametrize(("name", "n"), [*zip([*DRAWS, *GRADED], itertools.cycle([30, 200, 1000]))])
def test_never_wider_by_more_than_two_hundredths_than_a_fixed_mixture(name: str, n: int) -> None:
    draw = GRADED[name] if name in GRADED else DRAWS[name][0]
    most = math.sqrt(n)
    for target in (3.0, 0.7 * most, 0.99 * most):
        assert is_targeted(target, n)
        now = width(ordered_mean_limits, draw, n, target, 12)
        assert now <= 1.02 * width(mean_limits, draw, n, target, 12)
    assert not is_targeted(1.01 * most, n)
    losses = draw(np.random.default_rng(0), n)
    rng = np.random.default_rng(1)
    assert ordered_mean_limits(losses, -1.01 * most, rng=rng) == mean_limits(losses, -1.01 * most)


@pytest.mark.parametrize("name", GRADED)
def test_near_the_asymptotic_width_where_little_was_released(name: str) -> None:
    """Of one query of 1,000 rows: 1.04 to 1.09, where a fixed mixture has 1.53 to 1.61."""
    draw, target = GRADED[name], math.log(2.0) + math.log(40.0)
    spread = float(np.std(draw(np.random.default_rng(9), 100_000)))
    asymptotic = 2.0 * norm.isf(math.exp(-target)) * spread / math.sqrt(1000)
    assert width(ordered_mean_limits, draw, 1000, target, 10) < 1.15 * asymptotic
    assert width(mean_limits, draw, 1000, target, 10) > 1.45 * asymptotic


def test_limits_scale_with_the_range_and_are_the_same_when_they_are_asked_for_again() -> None:
    losses = np.random.default_rng(0).beta(2, 8, 300)
    found, again, wide = (
        ordered_mean_limits(values, -5.0, limits, rng=np.random.default_rng(7))
        for values, limits in (
            (losses, (0.0, 1.0)),
            (losses, (0.0, 1.0)),
            (3.0 * losses - 1.0, (-1.0, 2.0)),
        )
    )
    assert found == again
    assert (wide.low, wide.high) == pytest.approx((3.0 * found.low - 1.0, 3.0 * found.high - 1.0))
    assert found.low < losses.mean() < found.high


def test_losses_without_spread_have_limits() -> None:
    for value in (0.0, 1e-12, 0.3, 1.0):
        found = ordered_mean_limits(np.full(200, value), -4.0, rng=np.random.default_rng(0))
        assert 0.0 <= found.low <= value <= found.high <= 1.0
        assert found.high - found.low < 0.2
    for gains, costs in ((0.0, 1.0), (0.5, 0.0), (1e-9, 1.0)):
        low = sequence_of_ratio(np.full(60, gains), np.full(60, costs)).lower(4.0)
        assert 0.0 <= low <= max(gains, 1e12 * (costs == 0.0))
        assert (low > 0.0) == (gains > 0.0)


# -- which metric ------------------------------------------------------------------------


def test_errors_are_bet_on_in_order_and_brier_losses_as_they_were() -> None:
    """Rows with classes may have been drawn by strata of the label, others are not."""
    rng = np.random.default_rng(5)
    y = rng.normal(size=400)
    metric = get_metric("neg_mean_absolute_error").with_range((0, 4))
    rows = Rows(y, y + np.clip(rng.normal(size=400), -3, 3), np.random.default_rng(1))
    losses = np.abs(rows.predictions - y)
    found, fixed = score_limits(metric, rows, -4.4), mean_limits(losses, -4.4, (0.0, 4.0))
    again = score_limits(metric, replace(rows, rng=np.random.default_rng(1)), -4.4)
    assert found == again and bound_of(metric).readings == (1,)
    assert found.high - found.low < 0.8 * (fixed.high - fixed.low)
    kept = assumptions_of(metric)
    assert any("stratified by the target" in one for one in kept)
    assert any("void" in one for one in kept)

    brier_score = get_metric("neg_brier_score").for_classes(np.arange(2))
    labels, chances = rng.integers(0, 2, 400), rng.random(400)
    table = np.column_stack([1.0 - chances, chances])
    of_labels = score_limits(brier_score, Rows(labels, table, rng), -4.4)
    expected = mean_limits((chances - labels) ** 2, -4.4)
    assert (-of_labels.high, -of_labels.low) == pytest.approx((expected.low, expected.high))
    assert bound_of(brier_score).readings == (1, 2, 3)

    stated = brier_score.with_alike_rows()
    narrow = score_limits(stated, Rows(labels, table, np.random.default_rng(1)), -4.4)
    assert narrow.high - narrow.low < 0.8 * (of_labels.high - of_labels.low)
    assert bound_of(stated).readings == (1,)
    kept = assumptions_of(stated)
    assert any("stratified by the target" in one for one in kept)


# -- bad input ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "level", "limits", "argument"),
    [
        ([0.5, 1.25], -2.0, (0.0, 1.0), "losses"),
        ([0.5, math.nan], -2.0, (0.0, 1.0), "losses"),
        ([[0.5], [0.25]], -2.0, (0.0, 1.0), "losses"),
        ([], -2.0, (0.0, 1.0), "n"),
        ([0.5], 0.0, (0.0, 1.0), "log_level"),
        ([0.5], math.nan, (0.0, 1.0), "log_level"),
        ([0.5], -2.0, (1.0, 0.0), "limits"),
        ([0.5], -2.0, (0.0, math.inf), "limits"),
    ],
)
def test_what_is_no_loss_level_or_range_is_refused(
    losses: list[float], level: float, limits: tuple[float, float], argument: str
) -> None:
    with pytest.raises(InvalidArgument, match=argument) as caught:
        ordered_mean_limits(losses, level, limits, rng=np.random.default_rng(0))
    assert "1.25" not in str(caught.value)
