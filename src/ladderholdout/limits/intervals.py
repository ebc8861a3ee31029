"""Confidence limits for a mean of losses at levels far below the smallest float.

A tail is solved for its proportion in logarithms all the way. In the logit of the proportion
every tail here is log-concave, so Newton's method, started outside of the limit, approaches it
from outside: stopping early can only widen an interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import as_given, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics.evaluation import checked_weights

# Tails are right to fewer than this many units of the logarithm; the level is lowered by as
# much, so that rounding noise never narrows an interval.
NOISE = 1e-11
# Counts of errors are whole; a mean times n is so only up to rounding noise.
NEARLY_WHOLE = 1e-9
# For chances that differ from row to row the exact limits are proved at levels of at most 1/4, so
# one side of an interval has no larger one.
LARGEST_SIDE = math.log(0.25)


def exact_upper(errors: int, n: int, log_level: float) -> float:
    """Return the exact upper confidence limit of a binomial proportion.

    Clopper & Pearson 1934: the p at which as few as ``errors`` errors have the probability
    of the level. For n - 1 errors it is 1 - level/n, a hair further out: so it holds for the
    mean of chances that differ from row to row as well (Hoeffding 1956), at levels up to 1/4.

    Parameters
    ----------
    errors : int
        Number of errors, in 0 to n.
    n : int
        Number of examples, at least 1.
    log_level : float
        Natural logarithm of the one-sided level, negative; it may be far below -745, where
        the level itself is no float any more.

    Returns
    -------
    float
        In [0, 1]; 1 where all are errors. Rounded outward.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(exact_upper(50, 1000, math.log(0.025)), 6)
    0.06539
    >>> round(exact_upper(50, 1000, -1000.0), 6)
    0.710804
    """
    logit = _exact_logit(*_counted(errors, n, log_level))
    return math.nextafter(scipy.special.expit(logit), 1.0)


def exact_lower(errors: int, n: int, log_level: float) -> float:
    """Return the exact lower confidence limit of a binomial proportion.

    It mirrors `exact_upper` and takes the same arguments; for one error it is level/n.

    Examples
    --------
    >>> round(exact_lower(50, 1000, math.log(0.025)), 6)
    0.037335
    """
    errors, n, log_level = _counted(errors, n, log_level)
    return math.nextafter(scipy.special.expit(-_exact_logit(n - errors, n, log_level)), 0.0)


def kl_upper(mean: float, n: float, log_level: float) -> float:
    """Return the Chernoff upper confidence limit of a mean of losses in [0, 1].

    Hoeffding 1963, Theorem 1: the p above the mean with n kl(mean, p) = -log_level, where
    kl is the relative entropy of two coins.

    Parameters
    ----------
    mean : float
        Observed mean, in [0, 1].
    n : float
        Number of examples, positive; for a weighted mean the sum of the weights over the
        largest of them.
    log_level : float
        Natural logarithm of the one-sided level, negative.

    Returns
    -------
    float
        In [0, 1]. Rounded outward.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(kl_upper(0.05, 1000, math.log(0.025)), 6)
    0.070956
    """
    mean, n, log_level = _averaged(mean, n, log_level)
    return math.nextafter(scipy.special.expit(_kl_logit(mean, 1.0 - mean, n, log_level)), 1.0)


def kl_lower(mean: float, n: float, log_level: float) -> float:
    """Return the Chernoff lower confidence limit of a mean of losses in [0, 1].

    It mirrors `kl_upper` and takes the same arguments.

    Examples
    --------
    >>> round(kl_lower(0.05, 1000, math.log(0.025)), 6)
    0.033454
    """
    mean, n, log_level = _averaged(mean, n, log_level)
    return math.nextafter(scipy.special.expit(-_kl_logit(1.0 - mean, mean, n, log_level)), 0.0)


def bounded_upper(mean: float, n: int, log_level: float) -> float:
    """Return an upper confidence limit of a mean of n losses in [0, 1].

    It is the smaller of `kl_upper` and of Bentkus 2004, Theorem 1.2: a tail of such a mean is at
    most e times the tail of a binomial with the same mean, rounded up to a whole count.
    Both bound one and the same probability, so taking the better costs nothing.

    Parameters
    ----------
    mean : float
        Observed mean, in [0, 1].
    n : int
        Number of examples.
    log_level : float
        Natural logarithm of the one-sided level, negative.

    Returns
    -------
    float
        In [0, 1]. Rounded outward.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(bounded_upper(0.05, 1000, -20.0), 5), round(kl_upper(0.05, 1000, -20.0), 5)
    (0.10359, 0.10575)
    """
    chernoff = kl_upper(mean, whole("n", n), log_level)
    return min(chernoff, exact_upper(math.ceil(mean * n - NEARLY_WHOLE), n, log_level - 1.0))


def bounded_lower(mean: float, n: int, log_level: float) -> float:
    """Return a lower confidence limit of a mean of n losses in [0, 1].

    It is the larger of both limits that `bounded_upper` names, of the same arguments.

    Examples
    --------
    >>> round(bounded_lower(0.05, 1000, -20.0), 5)
    0.01858
    """
    chernoff = kl_lower(mean, whole("n", n), log_level)
    others = math.ceil((1.0 - mean) * n - NEARLY_WHOLE)
    return max(chernoff, exact_lower(n - others, n, log_level - 1.0))


def _counted(errors: int, n: int, log_level: float) -> tuple[int, int, float]:
    n = whole("n", n)
    if errors != 0:
        errors = whole("errors", errors)
    if errors > n:
        raise InvalidArgument("errors", f"a whole number of at most n = {n}", "larger")
    return errors, n, _lowered(log_level)


def _averaged(mean: float, n: float, log_level: float) -> tuple[float, float, float]:
    if not 0.0 <= mean <= 1.0:
        # The value stays out of the message: it may be a risk.
        raise InvalidArgument("mean", "a number in [0, 1]", "not")
    if not 0.0 < n < math.inf:
        raise InvalidArgument("n", "a positive finite number", as_given(n))
    return float(mean), float(n), _lowered(log_level)


def _lowered(log_level: float) -> float:
    if not -math.inf < log_level < 0.0:
        raise InvalidArgument("log_level", "a negative finite number", as_given(log_level))
    return log_level - NOISE * (1.0 - log_level)


def weighted_upper(mean: float, weights: ArrayLike, log_level: float) -> float:
    """Return an upper confidence limit of a weighted mean.

    It is the smaller of two limits for the same tail: Chernoff's with the sum of the weights over
    the largest of them for n, and Hoeffding's (1963, Theorem 2) with Kish's effective size,
    the squared sum of the weights over the sum of their squares. With equal weights both
    sizes are n.

    Parameters
    ----------
    mean : float
        Observed weighted mean, in [0, 1].
    weights : array-like of shape (n,)
        Non-negative, not all zero, in any scale. Given them, the losses are independent: with
        the features held fixed where the weights were made from those, with the labels held
        fixed where they were made from labels.
    log_level : float
        Natural logarithm of the one-sided level, negative.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(weighted_upper(0.1, [1.0] * 500 + [2.0] * 500, -10.0), 4)
    0.156
    """
    chances, kish = _sizes(weights)
    return min(kl_upper(mean, chances, log_level), mean + math.sqrt(-log_level / (2.0 * kish)), 1.0)


def weighted_lower(mean: float, weights: ArrayLike, log_level: float) -> float:
    """Return a lower confidence limit of a weighted mean.

    It mirrors `weighted_upper` and takes the same arguments.

    Examples
    --------
    >>> round(weighted_lower(0.1, [1.0] * 500 + [2.0] * 500, -10.0), 4)
    0.0581
    """
    chances, kish = _sizes(weights)
    return max(kl_lower(mean, chances, log_level), mean - math.sqrt(-log_level / (2.0 * kish)), 0.0)


def _sizes(weights: ArrayLike) -> tuple[float, float]:
    array: NDArray[np.float64] = np.asarray(weights, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InvalidArgument("weights", "one number for each row", f"of shape {array.shape}")
    array = checked_weights(array, array.size, "weights")
    scaled = array / array.max()
    total = float(scaled.sum())
    return total, total * total / float((scaled * scaled).sum())


# Beyond this logit the smaller of p and 1 - p is no float with all its digits any more.
FARTHEST_LOGIT = 700.0


def _exact_logit(errors: int, n: int, log_level: float) -> float:
    """Return the logit of the exact upper limit of a binomial proportion.

    Where all are errors but one the limit is 1 - level/n: a hair outside of the binomial one,
    and exact for chances that differ from row to row.
    """
    if errors == n - 1:
        # Rows that err for certain and one that does not always: the union bound is met. For
        # chances that are all alike the limit would be (1 - level)^(1/n), a hair inside.
        share = log_level - math.log(n)
        return math.log1p(-math.exp(share)) - share
    right = n - errors
    # Chernoff's tail is the larger one, so its limit lies outside; at both ends it is exact.
    start = _kl_logit(errors / n, right / n, n, log_level)
    if errors in (0, n):
        return start
    constant = 0.5 * math.log(n / (2.0 * math.pi * errors * right))
    constant += _stirling_error(n) - _stirling_error(errors) - _stirling_error(right)

    def log_tail(logit: float) -> tuple[float, float]:
        p, q = float(scipy.special.expit(logit)), float(scipy.special.expit(-logit))
        # Loader's saddle point: no large logarithms cancel.
        log_probability = constant - n * _relative_entropy(errors / n, right / n, p, q)
        fraction = _beta_fraction(right, errors + 1, q, p)
        return log_probability + math.log(right * p / fraction), -fraction

    # SciPy's betainccinv takes a tenth of the time, but no level below exp(-745), and for 20
    # errors in 200 rows its limit at exp(-690) lies 7 nats inside. Differences of its gammaln lose
    # 1e-8 at ten million rows. (Measured with SciPy 1.17.)
    return _newton(log_tail, log_level, start)


def _kl_logit(mean: float, rest: float, n: float, log_level: float) -> float:
    """Return the logit of Chernoff's upper limit of a mean, whose distance to 1 is ``rest``."""
    most = -log_level / n
    if rest == 0.0:
        return math.inf
    if mean == 0.0:
        return _logit(-most)
    entropy = -mean * math.log(mean) - rest * math.log(rest)
    # Pinsker's inequality, and kl(m, p) >= -entropy - (1 - m) log(1 - p): both lie outside.
    start = _logit(-(most + entropy) / rest)
    if (pinsker := math.sqrt(most / 2.0)) < rest:
        start = min(start, math.log((mean + pinsker) / (rest - pinsker)))

    def log_tail(logit: float) -> tuple[float, float]:
        p, q = float(scipy.special.expit(logit)), float(scipy.special.expit(-logit))
        return -n * _relative_entropy(mean, rest, p, q), n * (mean - p)

    return _newton(log_tail, log_level, start)


def _logit(log_rest: float) -> float:
    """Return the logit of p, given the logarithm of 1 - p."""
    rest = math.exp(log_rest)
    return math.log(-math.expm1(log_rest) / rest) if rest > 0.0 else math.inf


def _newton(
    log_tail: Callable[[float], tuple[float, float]], log_level: float, start: float
) -> float:
    """Follow a falling log-concave tail from outside down to the level.

    ``log_tail`` returns its logarithm and the derivative of that by the logit. The tangent of a
    concave function lies above it, so no step goes too far.
    """
    logit = start
    while logit < FARTHEST_LOGIT:
        value, slope = log_tail(logit)
        step = (log_level - value) / slope if slope < 0.0 else 0.0
        # Steps lead inward as long as the tail differs from the level.
        if not step < -1e-15 * max(1.0, abs(logit)):
            break
        logit += step
    return logit


def _relative_entropy(mean: float, rest: float, p: float, q: float) -> float:
    """Return the relative entropy of two coins in nats, kl(mean, p).

    The chances of both sides of both coins are given, so that one near 1 loses no digits. None
    is 0.
    """
    # One difference for both parts, from the side with more digits: they nearly cancel.
    change = p - mean if p < q else rest - q
    entropy = 0.0
    for share, chance, more in ((mean, p, change), (rest, q, -change)):
        near = abs(more) < share / 2.0
        entropy += share * (-math.log1p(more / share) if near else math.log(share / chance))
    return max(entropy, 0.0)


def _stirling_error(n: int) -> float:
    """Return log(n!) less its leading term."""
    if n < 16:
        return math.lgamma(n + 1.0) - (n + 0.5) * math.log(n) + n - 0.5 * math.log(2.0 * math.pi)
    square = 1.0 / (n * n)
    series = 1 / 1260 - square * (1 / 1680 - square * (1 / 1188 - square * 691 / 360360))
    return (1 / 12 - square * (1 / 360 - square * series)) / n


def _beta_fraction(a: int, b: int, x: float, y: float) -> float:
    """Return x^a y^b / (B(a, b) I_x(a, b)) for x about a/(a + b) or below; y is 1 - x.

    The continued fraction of DiDonato & Morris 1992, by Lentz's method from left to right. Its
    terms are positive, so no digits are lost; it ends of itself at the b-th one.
    """
    # From the smaller of x and y, which has more digits: near 1 the difference loses them.
    first = 1.0 + (a - (a + b) * x if x < y else (a + b) * y - b)
    value = a / (a + 1.0) * first
    above, below = value, 0.0
    for i in range(1, b):
        odd = a + 2.0 * i - 1.0
        alpha = (a + i - 1.0) * (a + b + i - 1.0) * i * (b - i) * (x / odd) ** 2
        beta = i + i * (b - i) * x / odd + (a + i) / (odd + 2.0) * (first + i * (1.0 + y))
        above = beta + alpha / above
        below = 1.0 / (beta + alpha * below)
        value *= above * below
        if abs(above * below - 1.0) < 1e-16:
            break
    return value
