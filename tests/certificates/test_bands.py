"""Limits of the average precision: the bands exactly, the integrals written once more, attacks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom, multinomial, norm

from ladderholdout.certificates.bands import (
    MOST_RANKS,
    _lower_band,
    _ranks,
    _upper_band,
    average_precision_limits,
)
from ladderholdout.certificates.metric_limits import Rows, bound_of, score_limits
from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics import get_metric

pytestmark = pytest.mark.quick


def chance_that_none_fails(n: int, limits: list[tuple[float, int]]) -> float:
    """Return P(for all (b, k): fewer than k of n uniform numbers are at most b), exactly.

    By the numbers of uniform numbers up to each b in turn.
    """
    chances, before = np.zeros(n + 1), 0.0
    chances[0] = 1.0
    for place, k in sorted(limits):
        share = (place - before) / (1.0 - before) if before < 1.0 else 0.0
        after = np.zeros(n + 1)
        for found, chance in enumerate(chances):
            if chance:
                after[found:] += chance * binom.pmf(np.arange(n - found + 1), n - found, share)
        after[k:] = 0.0
        chances, before = after, place
    return float(chances.sum())


@pytest.mark.parametrize(
    ("n", "level"), [(1, 0.2), (2, 0.01), (7, 0.2), (60, 0.01), (60, 0.2), (120, 0.01)]
)
def test_a_band_fails_at_most_as_often_as_its_level_and_not_much_less(n: int, level: float) -> None:
    """At the level of all ranks together a band of single limits would fail far more often."""
    ranks = _ranks(n).tolist()
    lower, upper = (band(n, math.log(level)) for band in (_lower_band, _upper_band))
    below = [(lower[k], k) for k in ranks]
    # The k-th smallest is above B if fewer than k are up to B: mirrored, n + 1 - k of them.
    above = [(1.0 - upper[k - 1], n + 1 - k) for k in ranks]
    for limits in (below, above):
        failing = 1.0 - chance_that_none_fails(n, limits)
        assert level / 7 < failing <= level * (1 + 1e-6)
    single = [(beta.ppf(level, k, n + 1 - k), k) for k in ranks]
    if n >= 60:
        assert 1.0 - chance_that_none_fails(n, single) > 1.5 * level


def test_ranks_are_fixed_by_the_number_of_rows() -> None:
    assert _ranks(1).tolist() == [1] and _ranks(2).tolist() == [1, 2]
    for n in (50, 1000, 10**6):
        ranks = _ranks(n)
        assert ranks[0] == 1 and ranks[-1] == n and len(ranks) <= MOST_RANKS + 1
        assert len(ranks) == len(set(ranks.tolist()))


def transcribed(positive: Any, negative: Any, level: float) -> tuple[float, float]:
    """Return the limits from the proposition, by quantiles of Beta and sums over the recall."""
    n1, n0, part = len(positive), len(negative), level / 3
    n = n1 + n0
    pi_low, pi_high = beta.ppf(part, n1, n0 + 1), beta.isf(part, n1 + 1, n0)

    def ranks(size: int) -> list[int]:
        count = min(math.ceil(math.pi * math.sqrt(size)), 200)
        parts = [size * math.sin(math.pi / 2 * i / count) ** 2 for i in range(count + 1)]
        return sorted({min(max(math.ceil(part - 0.5 - 1e-6), 1), size) for part in parts})

    def lowest(size: int, reached: int) -> float:
        known = [k for k in ranks(size) if k <= reached]
        return beta.ppf(part / len(ranks(size)), known[-1], size + 1 - known[-1]) if known else 0.0

    def highest(size: int, reached: int) -> float:
        known = [k for k in ranks(size) if k >= reached + 1]
        if not known:
            return 1.0
        return beta.isf(part / len(ranks(size)), known[0], size + 1 - known[0])

    places = sorted({*positive, *negative}, reverse=True)
    table = []
    for place in [math.inf, *places]:
        a, b = int((positive >= place).sum()), int((negative >= place).sum())
        table.append((lowest(n1, a), highest(n1, a), lowest(n0, b), highest(n0, b)))
    low = high = 0.0
    steps = 4000
    for recall in (np.arange(steps) + 0.5) / steps:
        # The highest threshold at which the lower band of the positives reaches the recall.
        wrong = next((row[3] for row in table if row[0] >= recall), 1.0)
        low += recall / (recall + (1 - pi_low) / pi_low * wrong) / steps
        first = next(i for i, row in enumerate(table) if row[1] >= recall)
        odds = (1 - pi_high) / pi_high
        high += max(row[1] / (row[1] + odds * row[2]) for row in table[first:]) / steps
    assert n == n1 + n0
    return low, high


@pytest.mark.parametrize("seed", range(4))
def test_limits_are_what_an_independent_transcription_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    positive, negative = rng.normal(1.5, 1, 40 + 20 * seed), rng.normal(0, 1, 150)
    if seed % 2:  # ties
        positive, negative = np.round(positive), np.round(negative)
    for level in (0.2, 0.001):
        found = average_precision_limits(positive, negative, math.log(level))
        low, high = transcribed(positive, negative, level)
        # The sums over the recall are right to the width of their steps.
        assert found.low == pytest.approx(low, abs=6e-4)
        assert found.high == pytest.approx(high, abs=6e-4)


def precision_of(share: float, positive: Any, negative: Any) -> float:
    """Return the average precision of a population: chances of its scores, the highest first."""
    hits, wrong = share * np.cumsum(positive), (1 - share) * np.cumsum(negative)
    return float((positive * hits / np.maximum(hits + wrong, 1e-300)).sum())


@pytest.mark.parametrize("seed", range(3))
def test_no_population_within_the_bands_is_beyond_the_limits(seed: int) -> None:
    """Populations of many kinds: at the ends of the bands, between them, in lumps.

    The worst of them are near the limits, which a limit that is too wide would not be.
    """
    rng = np.random.default_rng(seed)
    positive, negative = rng.normal(1.2, 1, 60), rng.normal(0, 1, 120)
    level = math.log(0.05)
    found = average_precision_limits(positive, negative, level)
    places = np.unique(np.concatenate([positive, negative]))[::-1]
    a = [(positive >= place).sum() for place in places]
    b = [(negative >= place).sum() for place in places]
    third = level - math.log(3)
    bands = [_lower_band(60, third)[a], _upper_band(60, third)[a]]
    bands += [_lower_band(120, third)[b], _upper_band(120, third)[b]]
    # The lower end of the band at a threshold, the upper one just above the next lower threshold.
    ends = [np.repeat(band, 2) for band in bands]
    shares = beta.ppf(math.exp(third), 60, 121), beta.isf(math.exp(third), 61, 120)
    worst = [1.0, 0.0]
    for trial in range(400):
        mix = rng.random(2) if trial >= 4 else np.array([trial % 2, trial // 2], dtype=float)
        above = [
            np.maximum.accumulate(ends[2 * i] + mix[i] * (ends[2 * i + 1] - ends[2 * i]))
            for i in (0, 1)
        ]
        if trial % 3 == 1:  # lumps: the scores of a class have few values
            keep = np.sort(rng.choice(len(ends[0]), 12, replace=False))
            for i in (0, 1):
                lumped = np.zeros(len(ends[0]))
                lumped[keep] = np.maximum(above[i], ends[2 * i])[keep]
                above[i] = np.maximum.accumulate(lumped)
                if (above[i] < ends[2 * i]).any() or (above[i] > ends[2 * i + 1]).any():
                    above[i] = np.maximum.accumulate(ends[2 * i])
        chances = [np.diff(np.append(np.append(0.0, one), 1.0)) for one in above]
        share = float(np.clip(rng.choice([*shares, 1 / 3]), *shares))
        truth = precision_of(share, *chances)
        worst = [min(worst[0], truth), max(worst[1], truth)]
        assert found.low <= truth <= found.high
    assert worst[0] < found.low + 0.06 and worst[1] > found.high - 0.06


KINDS = list(itertools.product((0, 1), (0.0, 1.0, 2.0)))


@pytest.mark.parametrize("chances", [(4, 2, 1, 1, 2, 3), (1, 1, 8, 1, 1, 1), (5, 0, 1, 0, 1, 5)])
def test_all_samples_of_a_small_space_miss_at_most_at_the_level(chances: tuple[int, ...]) -> None:
    """Six kinds of rows with tied scores, all 252 samples of five rows with their chances."""
    parts = np.array(chances) / sum(chances)
    negative, positive = parts[2::-1], parts[:2:-1]
    share = positive.sum()
    truth = precision_of(share, positive / share, negative / negative.sum())
    metric, level = get_metric("average_precision"), 0.3
    missed = np.zeros(2)
    for counts in itertools.product(range(6), repeat=6):
        if sum(counts) != 5:
            continue
        rows = np.repeat(np.array(KINDS), counts, axis=0)
        given = Rows(rows[:, 0].astype(int), rows[:, 1], np.random.default_rng(0))
        found = score_limits(metric, given, math.log(level))
        chance = multinomial.pmf(counts, 5, parts)
        missed += chance * np.array([found.low > truth, found.high < truth])
    assert missed.max() <= level


def test_it_is_valid_wide_and_narrower_with_more_rows() -> None:
    """Two to six times the asymptotic half-width, as the page states."""
    metric, halves = get_metric("average_precision"), []
    bound = bound_of(metric)
    assert not isinstance(bound, str) and (bound.name, bound.readings) == ("bands", (1, 3))
    rng, level = np.random.default_rng(0), math.log(0.025) - 2.0
    for n in (200, 1000, 5000):
        y = (np.arange(n) % 2).astype(int)
        scores = rng.normal(size=n) + 1.8 * y
        found = score_limits(metric, Rows(y, scores, rng), level)
        risks = []
        for _ in range(60):
            drawn = rng.integers(0, n, n)
            risks.append(metric.evaluate(y[drawn], scores[drawn]).risk)
        halves.append((found.high - found.low) / 2)
        assert 1.5 < halves[-1] / (norm.isf(math.exp(level)) * np.std(risks)) < 6.5
    assert halves[0] > 1.6 * halves[1] > 2.5 * halves[2]


def test_what_is_no_score_is_refused_and_a_missing_class_is_no_error() -> None:
    for scores in ([], [math.nan], [[1.0]]):
        with pytest.raises(InvalidArgument, match="scores must be"):
            average_precision_limits(scores, [0.0], -3.0)
    with pytest.raises(InvalidArgument, match="log_level"):
        average_precision_limits([1.0], [0.0], 0.5)
    metric, rng = get_metric("average_precision"), np.random.default_rng(0)
    for y in (np.zeros(5, int), np.ones(5, int)):
        found = score_limits(metric, Rows(y, np.arange(5.0), rng), -3.0)
        assert (found.low, found.high) == (0.0, 1.0)
    # At levels far below the smallest float nothing is left, and nothing fails.
    found = average_precision_limits([1.0, 2.0], [0.0, 1.0], -2000.0)
    assert (found.low, found.high) == (0.0, 1.0)
