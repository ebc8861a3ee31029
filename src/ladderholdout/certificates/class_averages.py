"""Limits of ratios of counts, and of averages over classes.

A ratio of one class is a binomial proportion among certain rows. Averages of independent
proportions, such as the balanced accuracy, have joint regions that are much smaller than the
box of the limits of each class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

from ladderholdout.arguments import as_given, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits, last_rejected, log_mean, stakes, target_of
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.metrics.arrays import FloatArray

# Shares of a level of two classes that are not below a half, so that each limit is a usual one.
_FAIR = math.log(2.0)
# The share of a level that goes to the box of the limits of each class.
_BOX = 0.1
EXACT, BETS, JOINT, UNION = "exact binomial", "bets", "joint binomial", "union over classes"


def share_limits(hits: int, rows: int, log_level: float) -> Limits:
    """Return exact limits of a proportion among certain rows: [0, 1] where there is none.

    By Proposition C1 of the guide, the precision is one among the rows predicted positive, the
    recall among the positive rows, the Jaccard index among those that are no true negatives.

    Parameters
    ----------
    hits, rows : int
        Counts.
    log_level : float
        Natural logarithm of the level of each side, negative.

    Returns
    -------
    Limits

    Examples
    --------
    >>> limits = share_limits(850, 1000, -13.7)
    >>> round(limits.low, 3), round(limits.high, 3)
    (0.791, 0.898)
    """
    if rows == 0:
        return Limits(0.0, 1.0, EXACT)
    return Limits(exact_lower(hits, rows, log_level), exact_upper(hits, rows, log_level), EXACT)


def f1_limits(hits: int, rows: int, log_level: float) -> Limits:
    """Return exact limits of the F1 score.

    With q the chance that a row is a true positive, given that it is no true negative, F1 is
    2 q/(1 + q): Proposition C1 of the guide.

    Parameters
    ----------
    hits : int
        True positives.
    rows : int
        Rows that are no true negatives.
    log_level : float
        Natural logarithm of the level of each side, negative.

    Returns
    -------
    Limits

    Examples
    --------
    >>> limits = f1_limits(740, 1000, -13.7)
    >>> round(limits.low, 3), round(limits.high, 3)
    (0.803, 0.89)
    """
    return share_limits(hits, rows, log_level).through(lambda q: 2.0 * q / (1.0 + q))


def fbeta_limits(
    hits: int, missed: int, wrong: int, n: int, log_level: float, beta: float
) -> Limits:
    """Return limits of an F score of any weight, by bets: Proposition C2 of the guide.

    Parameters
    ----------
    hits, missed, wrong : int
        True positives, false negatives and false positives.
    n : int
        Rows in all.
    log_level : float
        Natural logarithm of the level of each side, negative.
    beta : float
        The weight of the recall, positive.

    Returns
    -------
    Limits

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> limits = fbeta_limits(420, 80, 70, 1000, -13.7, beta=2.0)
    >>> round(limits.low, 3), round(limits.high, 3)
    (0.751, 0.91)
    """
    target, n = target_of(log_level), whole("n", n)
    if not 0.0 < beta < math.inf:
        raise InvalidArgument("beta", "a positive finite number", as_given(beta))
    square = beta * beta
    weighted = (1.0 + square) * hits + square * missed + wrong
    if weighted == 0.0:
        return Limits(0.0, 1.0, BETS)
    estimate, largest = (1.0 + square) * hits / weighted, max(square, 1.0)
    counts, bets = np.array([hits, missed, wrong], dtype=np.float64), stakes(target, n)

    def below(score: float) -> float:
        gains = (1.0 + square) * (1.0 - score) / score, -square, -1.0
        return float(log_mean(np.log1p(bets[:, None] * (np.array(gains) / largest)) @ counts))

    def above(rest: float) -> float:
        cost = (1.0 - rest) / ((1.0 + square) * rest)
        gains = -1.0, square * cost, cost
        return float(log_mean(np.log1p(bets[:, None] * np.array(gains)) @ counts))

    low = last_rejected(below, target, 0.0, estimate)
    high = 1.0 - last_rejected(above, target, 0.0, 1.0 - estimate)
    return Limits(low, high, BETS)


def mean_of(parts: Sequence[Limits]) -> Limits:
    """Return limits of a mean of values that all lie in their limits.

    The levels of the parts have to add up to that of the mean.

    Parameters
    ----------
    parts : sequence of Limits

    Returns
    -------
    Limits

    Examples
    --------
    >>> mean_of([Limits(0.25, 0.5, "bets"), Limits(0.75, 1.0, "bets")])
    Limits(low=0.5, high=0.75, bound='union over classes')
    """
    low, high = np.mean([(part.low, part.high) for part in parts], axis=0).tolist()
    return Limits(low, high, UNION)


def weighted_by_shares(parts: Sequence[Limits], counts: ArrayLike, log_level: float) -> Limits:
    """Return limits of a mean by the shares of the classes, which are not known either.

    Proposition C4 of the guide: the shares lie in the box of their exact limits.

    Parameters
    ----------
    parts : sequence of Limits
        Of each class, in [0, 1].
    counts : array-like of shape (C,)
        Rows of each class.
    log_level : float
        Natural logarithm of the level of the shares, to be added to those of the parts.

    Returns
    -------
    Limits

    Examples
    --------
    >>> parts = [Limits(0.25, 0.5, "bets"), Limits(0.75, 1.0, "bets")]
    >>> limits = weighted_by_shares(parts, [500, 500], -13.7)
    >>> round(limits.low, 3), round(limits.high, 3)
    (0.46, 0.79)
    """
    rows = [int(count) for count in np.asarray(counts)]
    level_of_each = log_level - math.log(2.0 * len(rows))
    boxes = [share_limits(count, sum(rows), level_of_each) for count in rows]
    return weighted_in_boxes(parts, boxes)


def weighted_in_boxes(parts: Sequence[Limits], boxes: Sequence[Limits]) -> Limits:
    """Return limits of a mean by shares of the classes of which limits are known.

    Parameters
    ----------
    parts, boxes : sequence of Limits
        Of the score of each class, in [0, 1], and of its share.

    Returns
    -------
    Limits

    Examples
    --------
    >>> parts = [Limits(0.25, 0.5, "bets"), Limits(0.75, 1.0, "bets")]
    >>> limits = weighted_in_boxes(parts, [Limits(0.4, 0.6, "bets"), Limits(0.4, 0.6, "bets")])
    >>> round(limits.low, 2), round(limits.high, 2)
    (0.45, 0.8)
    """
    lows = np.array([box.low for box in boxes])
    widths = np.array([box.high for box in boxes]) - lows

    def least(values: FloatArray) -> float:
        """Give what the least shares leave to the classes with the smallest values."""
        shares, left = lows.copy(), 1.0 - float(lows.sum())
        for smallest in np.argsort(values):
            added = min(widths[smallest], max(left, 0.0))
            shares[smallest] += added
            left -= added
        return float(shares @ values)

    low = least(np.array([part.low for part in parts]))
    high = 1.0 - least(1.0 - np.array([part.high for part in parts]))
    return Limits(max(low, 0.0), min(high, 1.0), UNION)


def class_mean_limits(hits: ArrayLike, rows: ArrayLike, log_level: float) -> Limits:
    """Return limits of the mean of independent proportions, each among rows of its own.

    Proposition C3 of the guide. The balanced accuracy: hits among the rows of each class. The
    macro precision: hits among the rows predicted as each class.

    Parameters
    ----------
    hits, rows : array-like of int, shape (C,)
        Counts of each class; a class without rows may have any proportion.
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
    >>> limits = class_mean_limits([450, 420], [500, 500], -13.7)
    >>> round(limits.low, 3), round(limits.high, 3)
    (0.811, 0.917)
    """
    hits, rows = np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    if hits.ndim != 1 or hits.shape != rows.shape or not ((hits >= 0) & (hits <= rows)).all():
        raise InvalidArgument("hits", "from 0 to the rows of each class", "not")
    target_of(log_level)
    lower = _two_lower if len(hits) <= 2 else _many_lower
    low, high = lower(hits, rows, log_level), 1.0 - lower(rows - hits, rows, log_level)
    return Limits(low, high, EXACT if len(hits) == 1 else JOINT)


def gamma_quantile(classes: int, log_level: float) -> float:
    """Return what a sum of standard exponential variables exceeds with the chance of a level.

    SciPy's gammainccinv agrees down to exp(-690), and knows no level below exp(-745).

    Examples
    --------
    >>> round(gamma_quantile(2, math.log(0.05)), 4)
    4.7439
    """
    powers = np.arange(classes)

    def log_tail(value: float) -> float:
        terms = powers * math.log(value) - scipy.special.gammaln(powers + 1.0)
        return float(scipy.special.logsumexp(terms)) - value - log_level

    if classes == 1:
        return -log_level
    most = 1.0 - 2.0 * log_level
    while log_tail(most) > 0.0:
        most = 2.0 * most
    return float(scipy.optimize.brentq(log_tail, -log_level, most, xtol=1e-10)) * (1.0 + 1e-9)


def _two_lower(hits: FloatArray, rows: FloatArray, log_level: float) -> float:
    """Minimise the mean over the region where the tails' logarithms add up to little."""
    counts = [(int(k), int(n)) for k, n in zip(hits, rows, strict=True) if n > 0]
    if not counts:
        return 0.0
    budget = gamma_quantile(len(counts), log_level)
    if len(counts) == 1:
        return exact_lower(*counts[0], -budget) / len(hits)
    if budget < 2.0 * _FAIR:
        half = log_level - math.log(2.0)
        return sum(exact_lower(k, n, half) for k, n in counts) / len(hits)

    def total(first: float) -> float:
        return exact_lower(*counts[0], -first) + exact_lower(*counts[1], first - budget)

    # Each limit falls with its own part of the budget, and is convex in it.
    ends = (
        exact_lower(*counts[0], -_FAIR) + exact_lower(*counts[1], -budget),
        exact_lower(*counts[0], -budget) + exact_lower(*counts[1], -_FAIR),
    )
    return float(min(least_convex(total, _FAIR, budget - _FAIR), *ends)) / len(hits)


def least_convex(function: Callable[[float], float], low: float, high: float) -> float:
    """Return a lower bound of the least value of a convex function, close to it.

    Examples
    --------
    >>> round(least_convex(lambda x: 1.0 + (x - 0.3) ** 2, 0.0, 1.0), 4)
    1.0
    """
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    points = [low, high - golden * (high - low), low + golden * (high - low), high]
    values = [function(point) for point in points]
    while points[3] - points[0] > 5e-3 * (high - low):
        if values[1] < values[2]:
            points[1:] = [points[2] - golden * (points[2] - points[0]), *points[1:3]]
            values[1:] = [function(points[1]), *values[1:3]]
        else:
            points[:3] = [*points[1:3], points[1] + golden * (points[3] - points[1])]
            values[:3] = [*values[1:3], function(points[2])]
    # A chord, continued beyond its ends, lies below a convex function.
    first, second = np.diff(values) / np.diff(points), np.diff(points)
    parts = (
        values[1] - max(-first[0], 0.0) * second[1],
        values[2] - max(first[2], 0.0) * second[1],
        values[1] - max(first[1], 0.0) * second[0],
        values[2] - max(-first[1], 0.0) * second[2],
    )
    return float(min(*parts, values[0], values[3]))


def _many_lower(hits: FloatArray, rows: FloatArray, log_level: float) -> float:
    """Minimise the mean over a box, cut by Chernoff's bounds of the tail of its estimate."""
    classes, seen = len(hits), rows > 0
    if not seen.any():
        return 0.0
    hits, rows = hits[seen], rows[seen]
    level_of_each = log_level + math.log(_BOX / (2.0 * len(hits)))
    counts = [(int(k), int(n)) for k, n in zip(hits, rows, strict=True)]
    lows = np.array([exact_lower(k, n, level_of_each) for k, n in counts])
    highs = np.array([exact_upper(k, n, level_of_each) for k, n in counts])
    rates, level = hits / rows, log_level + math.log1p(-_BOX)
    middle = np.clip(rates, lows, highs)
    spread = float((np.maximum(middle * (1.0 - middle), 0.25 / rows) / rows).sum()) / classes**2
    guess, best = math.sqrt(-2.0 * level / spread), 0.0
    for factors in (np.geomspace(0.05, 20.0, 49), np.linspace(0.85, 1.15, 31)):
        values = _tilted(guess * factors, rates, rows, lows, highs, level, classes)
        guess, best = guess * float(factors[np.argmax(values)]), max(best, float(values.max()))
    return float(min(max(best, lows.sum() / classes), rates.sum() / classes))


def _tilted(
    tilts: FloatArray,
    rates: FloatArray,
    rows: FloatArray,
    lows: FloatArray,
    highs: FloatArray,
    level: float,
    classes: int,
) -> FloatArray:
    """Return for each tilt a lower bound of the mean where Chernoff's bound is above the level.

    By weak duality any multiplier gives one; the best is found by bisection.
    """
    steps = tilts[:, None] / (classes * rows)
    usable = steps.max(axis=1) < 600.0
    grown = np.expm1(np.minimum(steps, 600.0))
    need = tilts * rates.sum() / classes + level
    low, high = np.full(len(tilts), -80.0), np.full(len(tilts), 80.0)
    best = np.full(len(tilts), -np.inf)
    with np.errstate(divide="ignore"):
        back = 1.0 / grown
    for _ in range(60):
        log_multiplier = (low + high) / 2.0
        multiplier = np.exp(log_multiplier)
        shares = np.clip(multiplier[:, None] * rows * classes - back, lows, highs)
        reached = np.log1p(shares * grown) @ rows
        value = shares.sum(axis=1) / classes + multiplier * (need - reached)
        best = np.maximum(best, value)
        short = reached < need
        low, high = np.where(short, log_multiplier, low), np.where(short, high, log_multiplier)
    return np.where(usable, best, -np.inf)
