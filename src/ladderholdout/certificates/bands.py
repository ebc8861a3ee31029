"""Limits of the average precision, by bands of the scores of both classes.

The precision at a threshold is a monotone function of the share of positives and of the shares of
both classes that reach the threshold. Binomial limits of these shares at fixed ranks hold for all
thresholds at once. The least and the largest average precision that they leave are the limits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ladderholdout.certificates.matchings import class_scores
from ladderholdout.limits.betting import Limits, target_of
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.metrics.arrays import FloatArray, IntArray

# A band has a limit at each of these ranks, which are a standard deviation of a rank apart; at
# most so many, so that an interval of many rows does not take long.
MOST_RANKS = 200
# What rounding errors may add to an integral of numbers in [0, 1].
ROUNDING = 1e-12


def average_precision_limits(positive: ArrayLike, negative: ArrayLike, log_level: float) -> Limits:
    """Return confidence limits of the average precision.

    Proposition P1 of the guide. Tied scores are one threshold, as in scikit-learn.

    Parameters
    ----------
    positive, negative : array-like of shape (n1,) and (n0,)
        Scores of the rows of each class.
    log_level : float
        Natural logarithm of the level of each side, negative.

    Returns
    -------
    Limits

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> limits = average_precision_limits(rng.normal(1.8, 1, 500), rng.normal(0, 1, 500), -13.7)
    >>> round(limits.low, 2), round(limits.high, 2)
    (0.63, 0.99)
    """
    target_of(log_level)  # it refuses what is no level
    reached = [np.sort(class_scores(scores)) for scores in (positive, negative)]
    thresholds = np.unique(np.concatenate(reached))[::-1]
    counts = [len(one) - np.searchsorted(one, thresholds, side="left") for one in reached]
    sizes = [len(one) for one in reached]
    # A third of the level for each of the three shares.
    level = log_level - math.log(3.0)
    least, most = (limit(sizes[0], sum(sizes), level) for limit in (exact_lower, exact_upper))
    low = _least(
        _lower_band(sizes[0], level)[counts[0]],
        _upper_band(sizes[1], level)[counts[1]],
        math.inf if least == 0.0 else (1.0 - least) / least,
    )
    high = _largest(
        _upper_band(sizes[0], level)[np.append(0, counts[0])],
        _lower_band(sizes[1], level)[np.append(0, counts[1])],
        (1.0 - most) / most,
    )
    return Limits(max(low - ROUNDING, 0.0), min(high + ROUNDING, 1.0), "bands")


def _ranks(n: int) -> IntArray:
    """Return the ranks at which a band of n rows has a limit: a function of n alone."""
    count = min(math.ceil(math.pi * math.sqrt(n)), MOST_RANKS)
    places = np.sin(np.linspace(0.0, math.pi / 2.0, count + 1)) ** 2
    # Halves are rounded down, whatever the last bit of a sine is.
    return np.unique(np.clip(np.ceil(n * places - 0.5 - 1e-6), 1, n)).astype(np.intp)


def _lower_band(n: int, log_level: float) -> FloatArray:
    """Return a lower limit of the share that reaches a threshold, by how many rows do."""
    band, ranks = np.zeros(n + 1), _ranks(n)
    level_of_each = log_level - math.log(len(ranks))
    band[ranks] = [exact_lower(rank, n, level_of_each) for rank in ranks.tolist()]
    return np.maximum.accumulate(band)


def _upper_band(n: int, log_level: float) -> FloatArray:
    """Return an upper limit of the share that reaches a threshold, by how many rows do."""
    band, ranks = np.ones(n + 1), _ranks(n)
    level_of_each = log_level - math.log(len(ranks))
    band[ranks - 1] = [exact_upper(rank - 1, n, level_of_each) for rank in ranks.tolist()]
    return np.minimum.accumulate(band[::-1])[::-1]


def _least(positive: FloatArray, negative: FloatArray, odds: float) -> float:
    """Integrate r/(r + odds S0) over the recall r: the lower limit of Proposition P1.

    Both bands are at the thresholds from the highest one. Below the lowest all rows are reached.
    """
    if odds == math.inf:
        return 0.0
    last = np.append(positive, 1.0)
    first = np.append(0.0, last[:-1])
    wrong = odds * np.append(negative, 1.0)
    # The upper band of the negative rows is nowhere 0, so neither is the divisor.
    lost = wrong * np.log1p((last - first) / (first + wrong))
    return float((last - first - lost).sum())


def _largest(positive: FloatArray, negative: FloatArray, odds: float) -> float:
    """Integrate the largest precision at or below a threshold: the upper limit of P1.

    The first entry of both bands is for thresholds above all scores.
    """
    precisions = positive / (positive + odds * negative)
    best = np.maximum.accumulate(precisions[::-1])[::-1]
    return float((np.diff(positive, prepend=0.0) * best).sum())
