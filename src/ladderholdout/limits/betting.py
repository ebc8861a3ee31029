"""Confidence limits by bets: a mixture of capital processes, inverted over the null value.

If a hypothesis states E h <= 0 and 1 + lambda h >= 0, the product of 1 + lambda h over
independent rows has a mean of at most 1, and so has any mixture over lambda that was fixed
before. By Markov's inequality it reaches exp(T) with a probability of at most exp(-T).
Capitals are kept in logarithms, so that levels may lie far below the smallest float.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike

from ladderholdout.arguments import as_given, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.intervals import NOISE
from ladderholdout.metrics.arrays import FloatArray

# The largest odds of a bet, and the ratio of neighbouring ones.
LARGEST_ODDS, RATIO = 40.0, 2.5
# More rows than this are summed up on as many points of their own range.
POINTS = 512
# A limit is found to this part of its distance from the estimate.
PRECISION = 2e-5


@dataclass(frozen=True, slots=True)
class Limits:
    """A confidence interval for a score, a risk or a difference, with a level for each side.

    Parameters
    ----------
    low, high : float
        Its ends.
    bound : str
        The inequality behind it.
    confidence : float or None
        Of an interval after a search: at least this is the chance that all of its family hold
        together.
    log_count : float
        L: the level was divided by exp(L).
    assumptions : tuple of str
        What must be true; where it is not, the interval is void.
    log_values : float
        What it costs later transcripts that this is shown, in nats; 0 where it follows from what
        was released.
    clipped : tuple of (int, float) or None
        How many rows have an error beyond the stated range, to which it is clipped, and by what
        share that makes the score smaller, rounded up; None if there is no such range.

    Examples
    --------
    >>> Limits(0.25, 0.75, "bets").through(lambda risk: 1.0 - risk)
    Limits(low=0.25, high=0.75, bound='bets')
    """

    low: float
    high: float
    bound: str
    confidence: float | None = field(default=None, repr=False)
    log_count: float = field(default=0.0, repr=False)
    assumptions: tuple[str, ...] = field(default=(), repr=False)
    log_values: float = field(default=0.0, repr=False)
    clipped: tuple[int, float] | None = field(default=None, repr=False)

    def through(self, function: Callable[[float], float]) -> Limits:
        """Return the limits of a monotone function of the value."""
        low, high = sorted((function(self.low), function(self.high)))
        return replace(self, low=low, high=high)


def target_of(log_level: float) -> float:
    """Return the logarithm of the capital that rejects at a level, a hair above -log_level."""
    if not -math.inf < log_level < 0.0:
        raise InvalidArgument("log_level", "a negative finite number", as_given(log_level))
    return NOISE - log_level * (1.0 + NOISE)


def stakes(target: float, n: float) -> FloatArray:
    """Return which shares of the largest possible bet are mixed, with equal weights.

    Parameters
    ----------
    target : float
        Logarithm of the capital to be reached.
    n : float
        Number of independent rows or pairs.

    Returns
    -------
    ndarray of shape (k,)
        In (0, 1): c with odds c/(1 - c) that rise by the factor 2.5 to 40.

    Examples
    --------
    >>> stakes(13.7, 1000).round(3)
    array([0.052, 0.121, 0.256, 0.463, 0.683, 0.843, 0.931, 0.971])
    """
    least = min(math.sqrt(2.0 * target / n) / 3.0, LARGEST_ODDS)
    count = 1 + math.floor(math.log(LARGEST_ODDS / least) / math.log(RATIO))
    odds = least * RATIO ** np.arange(count)
    return np.asarray(odds / (1.0 + odds))


def log_mean(logs: FloatArray) -> FloatArray:
    """Return the logarithm of the mean of exponentials, over the last axis.

    Examples
    --------
    >>> round(float(log_mean(np.log([1.0, 3.0]))), 4) == round(math.log(2.0), 4)
    True
    """
    return np.asarray(np.logaddexp.reduce(logs, axis=-1) - math.log(logs.shape[-1]))


def last_rejected(
    log_capital: Callable[[float], float], target: float, outside: float, inside: float
) -> float:
    """Return the limit: the rejected value that lies farthest inward.

    Parameters
    ----------
    log_capital : callable
        Logarithm of the capital against a null value, falling from ``outside`` to ``inside``.
    target : float
        What rejects a value.
    outside : float
        Where no value lies beyond; it need not be tried.
    inside : float
        The estimate, or any value that is not rejected.

    Returns
    -------
    float
        A value that was seen to be rejected, or ``outside``.
    """
    best, root, width = 0.0, math.sqrt(target), outside - inside
    tried: dict[float, float] = {}

    def excess(log_left: float) -> float:
        """Try a value by the logarithm of its part of the way from the end of the range."""
        nonlocal best
        if log_left in tried:
            return tried[log_left]
        value = outside - width * math.exp(log_left)
        capital = log_capital(value) if value != outside else -math.inf
        if capital >= target:
            best = max(best, math.exp(log_left))
        # About linear in the distance from the estimate, where the capital is like a normal's.
        tried[log_left] = math.sqrt(max(capital, 0.0)) - root if capital < 1e300 else 1e150
        return tried[log_left]

    if width == 0.0 or excess(0.0) >= 0.0:
        return inside
    near, far = 0.0, 0.0
    for left in (15 / 16, 7 / 8, 3 / 4, 1 / 2, 2.0**-6, 2.0**-12, 2.0**-24, 2.0**-50):
        near, far = far, math.log(left)
        if excess(far) >= 0.0:
            break
    else:
        return outside
    exact = PRECISION * -math.expm1(far) / math.exp(near)
    crossing = scipy.optimize.brentq(excess, far, near, xtol=exact / 2.0)
    if excess(crossing) < 0.0:
        excess(max(crossing - exact, far))
    return outside - width * best


def mean_lower(
    losses: ArrayLike, log_level: float, limits: tuple[float, float] = (0.0, 1.0)
) -> float:
    """Return a lower confidence limit of the mean of independent losses in a range.

    Proposition B1 of the guide (Waudby-Smith & Ramdas 2024, for fixed bets): for m > 0 let
    W(m) be the mean over c of prod(1 + c (x_i/m - 1)). Where the mean of the expectations is at
    most m, E W <= 1; W falls with m.

    Parameters
    ----------
    losses : array-like of shape (n,)
        Independent, each within the limits; they need not be alike.
    log_level : float
        Natural logarithm of the one-sided level, negative.
    limits : tuple of (float, float), default=(0.0, 1.0)
        The range of a loss, which was stated before the losses were seen.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> losses = np.random.default_rng(0).beta(2, 8, 1000)
    >>> round(mean_lower(losses, -13.7), 3)
    0.172
    """
    points, counts = summed_up(shares_of(losses, limits))
    return limits[0] + (limits[1] - limits[0]) * _unit_lower(points, counts, target_of(log_level))


def mean_limits(
    losses: ArrayLike, log_level: float, limits: tuple[float, float] = (0.0, 1.0)
) -> Limits:
    """Return both limits of a mean, with a level for each side: the upper one mirrors `mean_lower`.

    Examples
    --------
    >>> limits = mean_limits(np.random.default_rng(0).beta(2, 8, 1000), -13.7)
    >>> round(limits.low, 3), round(limits.high, 3), limits.bound
    (0.172, 0.213, 'bets')
    """
    low, high = limits
    target, width = target_of(log_level), high - low
    points, counts = summed_up(shares_of(losses, limits))
    return Limits(
        low + width * _unit_lower(points, counts, target),
        high - width * _unit_lower(1.0 - points, counts, target),
        "bets",
    )


def shares_of(losses: ArrayLike, limits: tuple[float, float]) -> FloatArray:
    """Return losses as shares of their range."""
    low, high = limits
    if not -math.inf < low < high < math.inf:
        raise InvalidArgument("limits", "a pair of finite numbers, the first smaller", "not")
    array = np.asarray(losses, dtype=np.float64)
    whole("n", array.size)
    if array.ndim != 1 or not (array.min() >= low and array.max() <= high):
        raise InvalidArgument("losses", "one for each row, within the limits", "not")
    return np.asarray((array - low) / (high - low))


def _unit_lower(points: FloatArray, counts: FloatArray, target: float) -> float:
    """Return a lower limit of the mean of numbers in [0, 1], given as points with weights."""
    n = float(counts.sum())
    log_capital = _log_capital(points, counts, target)
    # All of the last bits of a sum of n numbers, and then some, are against the limit.
    return last_rejected(log_capital, target + 1e-12 * n, 0.0, min(float(points @ counts) / n, 1.0))


def _log_capital(points: FloatArray, counts: FloatArray, target: float) -> Callable[[float], float]:
    """Return the logarithm of the capital of the mixture of bets, as a function of the mean."""
    bets = stakes(target, float(counts.sum()))[:, None]

    def log_capital(mean: float) -> float:
        with np.errstate(over="ignore"):
            return float(log_mean(np.log1p(bets * (points / mean - 1.0)) @ counts))

    return log_capital


def mean_evidence(shares: FloatArray, mean: float, target: float) -> float:
    """Return the evidence that the mean of independent numbers in [0, 1] is above a value.

    Proposition B1 of the guide.

    Parameters
    ----------
    shares : ndarray of shape (n,)
    mean : float
        In (0, 1).
    target : float
        Logarithm of the capital that the bets are chosen for.

    Returns
    -------
    float
        Minus the logarithm of a p-value of "the mean is at most this", at least 0.

    Examples
    --------
    >>> shares = np.random.default_rng(0).beta(6, 4, 1000)
    >>> mean_evidence(shares, 0.5, 8.0) > 8.0, mean_evidence(shares, 0.7, 8.0)
    (True, 0.0)
    """
    capital = _log_capital(*summed_up(shares), target)(mean)
    return max(0.0, capital - 1e-12 * len(shares))


def summed_up(values: FloatArray, points: int = POINTS) -> tuple[FloatArray, FloatArray]:
    """Replace many values by few points with weights, so that no concave mean rises.

    A value between two points is split between them so that its mean stays. The mean of a
    concave function, such as the logarithm of a capital, can only fall by that.

    Parameters
    ----------
    values : ndarray of shape (n,)
    points : int
        How many points are left of more values than these.

    Returns
    -------
    points, weights : ndarray
        The weights add up to n.

    Examples
    --------
    >>> summed_up(np.array([0.0, 0.25, 1.0]), points=2)
    (array([0., 1.]), array([1.75, 1.25]))
    """
    if len(values) <= points:
        nodes, counts = np.unique(values, return_counts=True)
        return nodes, counts.astype(np.float64)
    ordered = np.sort(values)
    nodes = np.unique(ordered[np.linspace(0, len(ordered) - 1, points).round().astype(np.intp)])
    return nodes, split(ordered, nodes).sum_up()


@dataclass(frozen=True, slots=True)
class Split:
    """Values as mixtures of neighbouring points: ``upper`` of the point above, the rest below."""

    below: np.ndarray[tuple[int, ...], np.dtype[np.intp]]
    upper: FloatArray
    size: int

    def sum_up(self) -> FloatArray:
        """Return the weight of each point."""
        counts = np.bincount(self.below, 1.0 - self.upper, self.size)
        counts += np.bincount(self.below + 1, self.upper, self.size + 1)[: self.size]
        return np.asarray(counts, dtype=np.float64)


def split(values: FloatArray, nodes: FloatArray) -> Split:
    """Split values between the nearest points on both sides; they lie within the points."""
    if len(nodes) == 1:
        zeros = np.zeros(len(values))
        return Split(zeros.astype(np.intp), zeros, 1)
    below = np.clip(np.searchsorted(nodes, values, side="right") - 1, 0, len(nodes) - 2)
    upper = (values - nodes[below]) / (nodes[below + 1] - nodes[below])
    return Split(below, np.clip(upper, 0.0, 1.0), len(nodes))
