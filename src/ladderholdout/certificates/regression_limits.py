"""Limits of regression scores that are no means: ratios of variances by bets, and a median."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ladderholdout.arguments import whole
from ladderholdout.certificates.targeted_bets import is_targeted, sequence_of_ratio
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits import betting
from ladderholdout.limits.betting import Limits
from ladderholdout.limits.intervals import exact_lower
from ladderholdout.metrics.arrays import FloatArray

# The shares of a level that go to the interval of an unknown mean and to a crude lower limit of
# the variance about it.
CENTRE, CRUDE = 0.04, 0.01
# As many cells for the unknown mean there are in a range, times the fourth root of n/target.
CELLS = 25
# More rows than this are summed up on a grid with as many points on each side.
ROWS, SIDE, SAMPLE = 1500, 32, 2048
# A running mean starts as if so many rows had lain in the middle of the range.
HEAD_START = 8.0


@dataclass(frozen=True, slots=True)
class Series:
    """Values of the rows, of which squares about a centre are taken.

    Parameters
    ----------
    values : ndarray of shape (n,)
        In an order that does not depend on them.
    low, high : float
        A range that was stated before.
    centred : bool
        Whether the centre is their unknown mean, and not 0.

    Examples
    --------
    >>> Series(np.array([1.0, 3.0]), 0.0, 4.0, centred=True).square()
    1.0
    """

    values: FloatArray
    low: float
    high: float
    centred: bool

    def square(self) -> float:
        """Return the mean square about the centre."""
        centre = self.values.mean() if self.centred else 0.0
        return float(((self.values - centre) ** 2).mean())

    def predicted(self) -> tuple[FloatArray, FloatArray]:
        """Return squares about the mean of the rows before, and the largest possible ones.

        Both are known of a row before it is seen.
        """
        if not self.centred:
            return self.values**2, np.full(len(self.values), max(-self.low, self.high) ** 2)
        before = np.cumsum(self.values) - self.values + HEAD_START * (self.low + self.high) / 2.0
        means = before / (HEAD_START + np.arange(len(self.values)))
        far = np.maximum(means - self.low, self.high - means)
        return (self.values - means) ** 2, far**2

    def cells(self, target: float) -> tuple[FloatArray, float]:
        """Return the centres of the cells in one of which the mean lies, and their half-width.

        The range was cut into cells before the values were seen: their number depends on n and
        on the target alone. Those that an interval of the mean meets are left.
        """
        n, log_level = len(self.values), math.log(CENTRE / 2.0) - target
        mean = betting.mean_limits(self.values, log_level, (self.low, self.high))
        # What the half-width costs, its square over the variance, shrinks as the limits do.
        count = math.ceil(CELLS * (n / target) ** 0.25)
        half = (self.high - self.low) / (2.0 * count)
        # A cell on the verge of the interval is left in, whatever the last bits are.
        first = math.floor((mean.low - self.low) / (2.0 * half) - 1e-6)
        last = math.floor((mean.high - self.low) / (2.0 * half) + 1e-6)
        places = np.arange(min(max(first, 0), count - 1), min(last, count - 1) + 1)
        return self.low + (2 * places + 1) * half, half

    def least_variance(self, target: float) -> float:
        """Return a crude lower limit of the variance, from pairs of rows."""
        if len(self.values) < 2:
            return 0.0
        even = 2 * min(len(self.values) // 2, SAMPLE)
        pairs = (self.values[:even:2] - self.values[1:even:2]) ** 2 / 2.0
        return betting.mean_lower(
            pairs, math.log(CRUDE) - target, (0.0, (self.high - self.low) ** 2 / 2.0)
        )


def ratio_lower(top: Series, bottom: Series, target: float) -> float:
    """Return a lower limit of the mean square of one series over that of another.

    Propositions R1 and R6 of the guide. A lower limit u of E(x - k)^2/E(z - m)^2, where k is the
    centre of the fixed cell that holds the mean of x, v its half-width, and m is known before,
    gives one of u/(1 + v^2/Var x).

    Parameters
    ----------
    top, bottom : Series
    target : float
        Minus the logarithm of the level.

    Returns
    -------
    float

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first, second = (Series(rng.uniform(-1, 1, 1000), -1, 1, centred=True) for _ in "xy")
    >>> round(ratio_lower(first, second, 13.7), 2)
    0.75
    """
    squares, largest = bottom.predicted()
    shares = squares / largest
    if not top.centred:
        return ratio_lower_in_order(top.values**2 / largest, shares, target)
    variance = top.least_variance(target)
    if variance <= 0.0:
        return 0.0
    target_of_cell = target - math.log1p(-CENTRE - CRUDE)
    centres, half = top.cells(target)
    least = math.inf
    for centre in centres:
        least = ratio_lower_in_order(
            (top.values - centre) ** 2 / largest, shares, target_of_cell, least
        )
    return least / (1.0 + half * half / variance)


def ratio_lower_in_order(
    gains: FloatArray, costs: FloatArray, target: float, below: float = math.inf
) -> float:
    """Return a lower limit of a ratio of means of rows in order, or a limit that is below it.

    Propositions R1 and R6 of the guide.

    Parameters
    ----------
    gains, costs : ndarray of shape (n,)
        Of independent rows that are alike, in an order that does not depend on them; no gain is
        below 0, and each cost is in [0, 1].
    target : float
        Minus the logarithm of the level.
    below : float, default=inf
        A limit that is not to be exceeded.

    Returns
    -------
    float

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> costs = rng.uniform(0, 1, 1000)
    >>> round(ratio_lower_in_order(costs * (rng.random(1000) < 0.7), costs, 4.4), 2)
    0.66
    """
    if is_targeted(target, len(gains)):
        return sequence_of_ratio(gains, costs).lower(target, below)
    return min(_square_ratio(gains, _Placed.of(costs), target), below)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Numbers, and where they lie between a few points of their range."""

    values: FloatArray
    nodes: FloatArray
    parts: betting.Split | None

    @classmethod
    def of(cls, values: FloatArray) -> _Placed:
        """Place many numbers between points; few are taken as they are."""
        if len(values) <= ROWS:
            return cls(values, values, None)
        sample = values[:: max(len(values) // SAMPLE, 1)]
        ordered = np.sort(np.concatenate([sample, [values.min(), values.max()]]))
        nodes = np.unique(ordered[np.linspace(0, len(ordered) - 1, SIDE).round().astype(np.intp)])
        return cls(values, nodes, betting.split(values, nodes))


def _square_ratio(top: FloatArray, bottom: _Placed, target: float) -> float:
    """Return a lower limit of a ratio of means, the lower one of numbers up to 1."""
    total, divisor = float(top.sum()), float(bottom.values.sum())
    if total == 0.0:
        return 0.0
    gains, costs, counts = summed_up_pairs(_Placed.of(top), bottom)
    bets = betting.stakes(target, len(top))[:, None]

    def log_capital(ratio: float) -> float:
        return float(betting.log_mean(np.log1p(bets * (gains / ratio - costs)) @ counts))

    estimate = min(total / max(divisor, 1e-12 * total), 1e12)
    return betting.last_rejected(log_capital, target + 1e-12 * len(top), 0.0, estimate)


def summed_up_pairs(first: _Placed, second: _Placed) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Replace many pairs by few with weights, so that no mean of a concave function rises."""
    if first.parts is None or second.parts is None:
        return first.values, second.values, np.ones(len(first.values))
    width = len(second.nodes) + 1
    counts = np.zeros((len(first.nodes) + 1) * width)
    for up, right in itertools.product((0, 1), repeat=2):
        share = np.abs(1 - up - first.parts.upper) * np.abs(1 - right - second.parts.upper)
        cells = (first.parts.below + up) * width + second.parts.below + right
        counts += np.bincount(cells, share, len(counts))
    table = counts.reshape(-1, width)[:-1, :-1]
    rows, columns = np.nonzero(table)
    return first.nodes[rows], second.nodes[columns], table[rows, columns]


def r2_limits(
    targets: ArrayLike,
    predictions: ArrayLike,
    log_level: float,
    *,
    target_range: tuple[float, float],
    largest_error: float,
    rng: np.random.Generator,
    explained: bool = False,
) -> Limits:
    """Return confidence limits of the coefficient of determination.

    Parameters
    ----------
    targets, predictions : array-like of shape (n,)
        Independent rows; the targets within their range, no error above the largest one.
    log_level : float
        Natural logarithm of the level of each side, negative.
    target_range : tuple of (float, float)
        Stated before the targets were seen.
    largest_error : float
        Stated likewise, in the units of the target.
    rng : numpy.random.Generator
        Brings the rows in an order; it must not depend on them, and be the same whenever it is
        asked again.
    explained : bool, default=False
        Whether the mean error is taken off: the explained variance.

    Returns
    -------
    Limits
        The lower one may be minus infinity.

    Raises
    ------
    InvalidArgument
        If an argument is refused, or a value lies outside of its range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.clip(rng.normal(size=1000), -3.35, 3.35)
    >>> errors = np.clip(rng.normal(size=1000), -4.5, 4.5) * 0.447
    >>> limits = r2_limits(
    ...     y, y + errors, -13.7, target_range=(-3.35, 3.35), largest_error=2.0, rng=rng
    ... )
    >>> round(limits.low, 2), round(limits.high, 2)
    (0.69, 0.85)
    """
    target = betting.target_of(log_level)
    y = np.asarray(targets, dtype=np.float64)
    errors = np.asarray(predictions, dtype=np.float64) - y
    low, high = target_range
    if y.ndim != 1 or y.size == 0 or errors.shape != y.shape:
        raise InvalidArgument("targets and predictions", "one number for each row", "not")
    if not -math.inf < low < high < math.inf or not (low <= y.min() and y.max() <= high):
        raise InvalidArgument("target_range", "a pair that holds all targets", "not")
    if not 0.0 < largest_error < math.inf or np.abs(errors).max() > largest_error:
        raise InvalidArgument("largest_error", "a number that no error exceeds", "less")
    order = rng.permutation(len(y))
    spread = Series(y[order], low, high, centred=True)
    unexplained = Series(errors[order], -largest_error, largest_error, centred=explained)
    ratio = ratio_lower(spread, unexplained, target)
    low = 1.0 - 1.0 / ratio if ratio > 0.0 else -math.inf
    return Limits(low, 1.0 - ratio_lower(unexplained, spread, target), "bets")


def ratio_limits(
    numerators: ArrayLike,
    denominators: ArrayLike,
    log_level: float,
    largest: tuple[float, float],
) -> Limits:
    """Return confidence limits of one mean over another one.

    Proposition R5 of the guide: a - s b has the mean 0 where s is the ratio of E a and E b.

    Parameters
    ----------
    numerators, denominators : array-like of shape (n,)
        Of independent rows, none below 0.
    log_level : float
        Natural logarithm of the level of each side, negative.
    largest : tuple of (float, float)
        The largest possible ones, stated before they were seen.

    Returns
    -------
    Limits
        The upper one may be infinity.

    Raises
    ------
    InvalidArgument
        If an argument is refused, or a number is outside of its range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> b = rng.uniform(0, 1, 1000)
    >>> limits = ratio_limits(b * (rng.random(1000) < 0.7), b, -13.7, (1.0, 1.0))
    >>> round(limits.low, 2), round(limits.high, 2)
    (0.61, 0.79)
    """
    target = betting.target_of(log_level)
    a, b = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    if a.ndim != 1 or a.size == 0 or a.shape != b.shape:
        raise InvalidArgument("numerators and denominators", "one of each for each row", "not")
    for values, most in zip((a, b), largest, strict=True):
        if not 0.0 < most < math.inf or not ((values >= 0.0) & (values <= most)).all():
            raise InvalidArgument("largest", "numbers that no part exceeds", "less")
    most_a, most_b = largest
    low = _square_ratio(a / most_a, _Placed.of(b / most_b), target) * most_a / most_b
    inverse = _square_ratio(b / most_b, _Placed.of(a / most_a), target) * most_b / most_a
    return Limits(low, 1.0 / inverse if inverse > 0.0 else math.inf, "bets")


def concordance_limits(
    targets: ArrayLike,
    predictions: ArrayLike,
    log_level: float,
    *,
    target_range: tuple[float, float],
    largest_error: float,
    rng: np.random.Generator,
) -> Limits:
    """Return confidence limits of Lin's concordance coefficient.

    Proposition R3 of the guide: it is 1 - E (x - y)^2 / E (x - y')^2, with y' of another row.

    Parameters
    ----------
    targets, predictions : array-like of shape (n,)
        Independent rows, at least two; both within the range of the target.
    log_level, target_range, largest_error, rng
        As for `r2_limits`.

    Returns
    -------
    Limits

    Raises
    ------
    InvalidArgument
        If an argument is refused, or a value lies outside of its range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y, noise = rng.uniform(-1, 1, 2000), rng.uniform(-0.2, 0.2, 2000)
    >>> limits = concordance_limits(
    ...     y * 0.8, y * 0.8 + noise, -13.7, target_range=(-1, 1), largest_error=0.2, rng=rng
    ... )
    >>> round(limits.low, 2), round(limits.high, 2)
    (0.97, 0.98)
    """
    target, half = betting.target_of(log_level), np.size(targets) // 2
    order = rng.permutation(np.size(targets))
    y = np.asarray(targets, dtype=np.float64)[order]
    x = np.asarray(predictions, dtype=np.float64)[order]
    low, high = target_range
    if y.ndim != 1 or half == 0 or x.shape != y.shape:
        raise InvalidArgument("targets and predictions", "one number for each of two rows", "not")
    if min(x.min(), y.min()) < low or max(x.max(), y.max()) > high:
        raise InvalidArgument("target_range", "a pair that holds targets and predictions", "not")
    if not 0.0 < largest_error < math.inf or np.abs(x - y).max() > largest_error:
        raise InvalidArgument("largest_error", "a number that no error exceeds", "less")
    first, second = slice(0, half), slice(half, 2 * half)
    errors = ((x[first] - y[first]) ** 2 + (x[second] - y[second]) ** 2) / 2.0
    crossed = ((x[first] - y[second]) ** 2 + (x[second] - y[first]) ** 2) / 2.0
    most, most_crossed = largest_error**2, (high - low) ** 2
    ratio = ratio_lower_in_order(crossed / most, errors / most, target)
    inverse = ratio_lower_in_order(errors / most_crossed, crossed / most_crossed, target)
    return Limits(max(1.0 - 1.0 / ratio, -1.0) if ratio > 0.0 else -1.0, 1.0 - inverse, "bets")


def median_limits(losses: ArrayLike, log_level: float) -> Limits:
    """Return exact limits of the median loss, in no stated range.

    By Proposition R4 of the guide they are order statistics.

    Parameters
    ----------
    losses : array-like of shape (n,)
        Independent and alike, none below 0.
    log_level : float
        Natural logarithm of the level of each side, negative.

    Returns
    -------
    Limits
        From 0 to infinity where there are too few rows for the level.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> median_limits(np.arange(1000.0), -13.7)
    Limits(low=424.0, high=575.0, bound='exact binomial')
    """
    ordered = np.sort(np.asarray(losses, dtype=np.float64))
    n = whole("n", ordered.size)
    counts = range(1, n + 1)
    first = bisect_left(counts, True, key=lambda count: exact_lower(count, n, log_level) >= 0.5)
    if first == n:
        return Limits(0.0, math.inf, "exact binomial")
    return Limits(float(ordered[n - 1 - first]), float(ordered[first]), "exact binomial")
