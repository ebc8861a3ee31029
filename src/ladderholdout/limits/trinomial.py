"""Exact confidence limits for the difference of two risks on the same rows, for losses of 0 and 1.

The statement and its proof are the theorem of docs/background/paired_limits.md.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from ladderholdout.arguments import as_given, inside, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits
from ladderholdout.limits.intervals import NOISE, exact_lower, exact_upper
from ladderholdout.metrics.arrays import FloatArray

# The part of the level for a wrong range of the nuisance.
_RANGE = 1 / 32
# Cells of the nuisance are this part of the asymptotic width, and a limit is found to that.
_CELL = 0.01
# The limit is first looked for with so many values of the nuisance, and so many steps at most.
_SAMPLED, _SECANTS = 9, 8
# All steps at most; later ones halve what is left.
_STEPS = 60
# The order takes the squared quantile as further discordant rows, and completes the square with a
# quarter of it. Without them the limits are wider where few rows are discordant.
_ADDED = 1.0 + 1 / 4
# A part of a sum of chances that rounding does not reach.
_ROUNDING = 1e-6
# Counts within the quantile of the level and so many standard deviations are summed up.
_REACH = 3.0
# What decides and shows no limit takes so many cells, and windows of few sizes: how long it takes
# must not reveal the data.
_CELLS, _LEAST_WINDOW = 256, 64
# Lower levels are not distinguished from this one, which is about the smallest float.
LEAST_LEVEL = 1e-280
# On more rows differences are left to bets.
MOST_ROWS = 1_000_000


def paired_limits(first: int, second: int, n: int, level: float) -> Limits:
    """Return exact limits of the difference of two chances that exclude each other.

    Rows are independent and alike. On a row either the first model alone is right, or the second
    alone is, or both are alike. The difference of their accuracies is that of the first two
    chances; the rate of rows on which they differ is not known, and is maximised over.

    Parameters
    ----------
    first, second : int
        Rows on which the first model alone is right, and on which the second alone is.
    n : int
        All rows, at most 1,000,000.
    level : float
        Of each side, in [1e-280, 0.5].

    Returns
    -------
    Limits
        Of the accuracy of the first model less that of the second, in [-1, 1]. Each end is on the
        wrong side of it with a chance of at most the level.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> limits = paired_limits(90, 60, 1000, 0.025)
    >>> round(limits.low, 3), round(limits.high, 3), limits.bound
    (0.006, 0.055, 'trinomial')
    """
    n = whole("n", n, most=MOST_ROWS)
    first = whole("first", first, least=0, most=n)
    second = whole("second", second, least=0, most=n - first)
    level = inside("level", level)
    if not LEAST_LEVEL <= level <= 0.5:
        raise InvalidArgument("level", f"a number in [{LEAST_LEVEL:g}, 0.5]", as_given(level))
    level *= 1.0 - NOISE
    low, high = _lower(first, second, n, level), -_lower(second, first, n, level)
    return Limits(low, high, "trinomial")


def exceeds(first: int, second: int, n: int, difference: float, level: float) -> bool:
    """Return whether the lower limit of `paired_limits` is above a difference.

    That takes one step of the search for the limit: the chance of such data is largest at the
    difference itself among all that are not above it.

    Parameters
    ----------
    first, second, n : int
        As for `paired_limits`.
    difference : float
        In [0, 1).
    level : float
        In (0, 0.5]; at levels below 1e-280 the answer is no.

    Returns
    -------
    bool

    Examples
    --------
    >>> exceeds(90, 60, 1000, 0.005, 0.025), exceeds(90, 60, 1000, 0.007, 0.025)
    (True, False)
    """
    level *= 1.0 - NOISE
    if level < LEAST_LEVEL:
        return False
    z, discordant = -float(scipy.special.ndtri(level)), first + second
    is_above = (first - second) / n > difference
    # Where the answer is no anyway, the same work is done for data that are a little above.
    most = max(discordant - math.floor(n * difference) - 1, 0) // 2
    second = min(second, most)
    nuisance = _nuisance(second, n, level)
    counts = 2.0 * (z + _REACH) * (math.sqrt(max(discordant, 2.0 * z * z)) + 1.0)
    window = 1 << math.ceil(math.log2(max(counts, _LEAST_WINDOW)))
    # The ends are in the cells, so that rounding makes no further one.
    width = (nuisance.high - nuisance.low) / _CELLS * (1.0 + NOISE)
    order = order_of(discordant - second, second, n, z)
    chance = _largest_chance(difference, nuisance, order, n, z, None, width, window)
    return (chance <= level * (1.0 - _RANGE)) & is_above


def _lower(up: int, down: int, n: int, level: float) -> float:
    """Return the lower limit of the chance of `up` less that of `down`."""
    z, target = (-float(scipy.special.ndtri(part)) for part in (level, level * (1.0 - _RANGE)))
    estimate = (up - down) / n
    scale = math.sqrt(max(up + down - (up - down) ** 2 / n, z * z, 1.0)) / n
    width = _CELL * max(z, 1.0) * scale
    order, nuisance = order_of(up, down, n, z), _nuisance(down, n, level)
    cells: int | None = _SAMPLED
    low, high, value = -1.0, estimate, estimate - z * scale
    for step in range(_STEPS):
        if not low < value < high:
            value = (low + high) / 2.0
        chance = _largest_chance(value, nuisance, order, n, z, cells, width)
        # As a normal quantile the chance is about linear in the value.
        over = float(scipy.special.ndtri(min(max(chance, 1e-300), 0.5))) + target
        if over > 0.0:
            high = value
        elif cells is None:
            low = value
        if cells is None and (high - low <= width or -width < over * scale <= 0.0):
            break
        if cells is not None and (abs(over) * scale < width / 4.0 or step >= _SECANTS):
            # What the cells add to the chance is about their width.
            cells, high, value = None, estimate, value - over * scale - width
        elif cells is None and step > 2 * _SECANTS:
            value = (low + high) / 2.0
        else:
            value -= over * scale + (width / 4.0 if cells is None and over > 0.0 else 0.0)
    return low


def _nuisance(down: int, n: int, level: float) -> Limits:
    """Return the range of the chance of `down`, at the part of the level that it is given."""
    log_level = math.log(level * _RANGE / 2)
    return Limits(exact_lower(down, n, log_level), exact_upper(down, n, log_level), "trinomial")


def order_of(up: int, down: int, n: int, z: float) -> FloatArray:
    """Return for each count of `down` from which count of `up` on data are as extreme or more.

    Parameters
    ----------
    up, down : int
        The data.
    n : int
        All rows.
    z : float
        The normal quantile of the level, at least 0.

    Returns
    -------
    ndarray of shape (n + 1,)
        Whole numbers that do not fall.

    Examples
    --------
    >>> order_of(5, 0, 6, 1.0)
    array([ 5.,  7.,  8., 10., 11., 12., 14.])
    """
    spread, counts = z * z, np.arange(n + 1, dtype=np.float64)

    def curve(place: float) -> FloatArray:
        inner = np.maximum(spread * _ADDED + 2 * counts + n * place * (1 - place), 0.0)
        return np.asarray(counts + n * place + spread / 2 + z * np.sqrt(inner))

    low, high = -1.0 - spread - z, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        inner = max(spread * _ADDED + 2 * down + n * middle * (1 - middle), 0.0)
        if down + n * middle + spread / 2 + z * math.sqrt(inner) <= up:
            low = middle
        else:
            high = middle
    # What rounding could leave out is counted: more data than are as extreme raise the chance.
    return np.maximum(np.ceil(curve(low) - 1e-6), 0.0)


def _largest_chance(
    difference: float,
    nuisance: Limits,
    order: FloatArray,
    n: int,
    z: float,
    points: int | None,
    width: float,
    window: int = 0,
) -> float:
    """Return no less than the largest chance of such data, or about it where points are given."""
    first, last = max(nuisance.low, -difference), nuisance.high
    if first > last:
        return 0.0
    if points is not None:
        downs = aboves = np.linspace(first, min(last, max(first, (1 - difference) / 2)), points)
    else:
        edges = np.linspace(first, last, 1 + max(math.ceil((last - first) / width), 1))
        downs, aboves = edges[:-1], edges[1:]
    ups = np.clip(aboves + difference, 0.0, 1.0 - downs)
    pairs = zip(ups.tolist(), downs.tolist(), strict=True)
    return max(chance_of(up, down, order, n, z, window) for up, down in pairs)


def chance_of(
    up: float, down: float, order: FloatArray, n: int, z: float, window: int = 0
) -> float:
    """Return no less than the chance of the data that an order calls as extreme.

    Parameters
    ----------
    up, down : float
        Chances on a row, with a sum of at most 1.
    order : ndarray of shape (n + 1,)
        From `order_of`.
    n : int
        All rows.
    z : float
        The normal quantile of the level; the farther counts are bounded and not summed up.
    window : int, default=0
        At least so many counts are summed up, if there are.

    Returns
    -------
    float

    Examples
    --------
    >>> round(chance_of(0.5, 0.0, order_of(5, 0, 6, 1.0), 6, 1.0), 6) == round(7 / 64, 6)
    True
    """
    middle, reach = n * down, (z + _REACH) * (math.sqrt(n * down) + 1.0)
    first, last = max(math.floor(middle - reach), 0), min(math.ceil(middle + reach), n)
    first = max(min(first, n - window), 0)
    last = max(last, min(first + window, n))
    counts = np.arange(first, last + 1, dtype=np.float64)
    rest, needed = n - counts, order[first : last + 1]
    share = min(up / (1.0 - down), 1.0) if down < 1.0 else 0.0
    between = (needed >= 1) & (needed <= rest)
    tails = scipy.special.betainc(
        np.where(between, needed, 1.0), np.where(between, rest - needed + 1.0, 1.0), share
    )
    tails = np.where(between, tails, np.where(needed < 1, 1.0, 0.0))
    gammaln = scipy.special.gammaln
    logs = gammaln(n + 1.0) - gammaln(counts + 1.0) - gammaln(rest + 1.0)
    logs += scipy.special.xlogy(counts, down) + scipy.special.xlog1py(rest, -down)
    # The tails fall with the count, so those that are left out are bounded by these.
    left = float(scipy.special.bdtr(first - 1, n, down)) if first else 0.0
    right = float(scipy.special.bdtrc(last, n, down)) * float(tails[-1]) if last < n else 0.0
    return (float(np.exp(logs) @ tails) + left + right) * (1.0 + _ROUNDING)
