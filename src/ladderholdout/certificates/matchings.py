"""Limits of the area under the ROC curve, of Cohen's kappa and of Matthews' coefficient.

All three are about pairs of independent rows. The mean over all matchings of rows to rows of
the product of bets on the pairs is an e-value: the permanent of a matrix over N!. Van der
Waerden's inequality bounds it from below by what Sinkhorn's algorithm finds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits, last_rejected, log_mean, stakes, target_of
from ladderholdout.limits.intervals import kl_lower, kl_upper
from ladderholdout.metrics.arrays import FloatArray, IntArray

# More groups of scores than this are joined.
GROUPS = 512
# Sinkhorn's algorithm ends where what it may still lack is this part of the target.
LACKING, ROUNDS, NEGLIGIBLE = 1e-3, 200, 8.0
# What rounding errors of sums over n rows may add to a logarithm, for each row.
ROUNDING = 1e-12
# Neighbouring edges of cells of the ratio of two spreads, in the upper limit of Matthews'
# coefficient, differ by this times the fourth root of target/n in their logarithms.
CELL = 0.25
# Pairs of a block of which all matchings are taken, where a function of two rows is general.
PAIRS = 400
# For as many kinds of rows a sum is faster than a product of matrices.
SMALL = 16

Product = Callable[[FloatArray], FloatArray]


@dataclass(slots=True)
class Scaling:
    """A lower bound of ln(perm(A)/N!) for positive matrices A with equal rows and columns.

    Parameters
    ----------
    rows, columns : ndarray of shape (r,) and (s,)
        How often each kind of row and of column occurs; both add up to N.

    Examples
    --------
    For a matrix of one value that is (N ln of it), exactly:

    >>> scaling = Scaling(np.array([5.0]), np.array([2.0, 3.0]))
    >>> table = np.full((1, 2), 2.0)
    >>> bound = scaling.log_mean(lambda z: z @ table.T, lambda x: x @ table, np.zeros(1), 0.0)
    >>> round(float(bound[0] / np.log(2)), 6)
    5.0
    """

    rows: FloatArray
    columns: FloatArray
    _last: FloatArray | None = field(default=None, repr=False)

    def log_mean(
        self, over_columns: Product, over_rows: Product, log_ratio: FloatArray, enough: float
    ) -> FloatArray:
        """Return the bound for several matrices at once.

        With F(u) = sum_i ln mean_j A_ij exp(u_j) - sum_j u_j the minimum of F is a lower bound
        (van der Waerden), and F is convex: its value at any u, less half of sum |gradient| times
        the ranges of u and of the best u, is one as well. The latter is at most ln(max A/min A).

        Parameters
        ----------
        over_columns, over_rows : callable
            A times z, of shape (k, s) to (k, r), and its transpose times x.
        log_ratio : ndarray of shape (k,)
            At least ln(max A/min A) of each matrix.
        enough : float
            Below this what is lacking does not matter.

        Returns
        -------
        ndarray of shape (k,)
        """
        size = float(self.rows.sum())
        z = np.ones((len(log_ratio), len(self.columns))) if self._last is None else self._last
        best = np.full(len(log_ratio), -np.inf)
        for _ in range(ROUNDS):
            means = over_columns(z * self.columns) / size
            sums = over_rows(self.rows / means) / size
            logs = np.log(z)
            lacking = (log_ratio + logs.max(axis=-1) - logs.min(axis=-1)) / 2.0
            lacking *= np.abs(z * sums - 1.0) @ self.columns
            value = np.log(means) @ self.rows - logs @ self.columns
            best = np.maximum(best, value - lacking)
            z = 1.0 / sums
            # A capital that is far below another one adds nothing to their mean.
            if ((lacking <= enough) | (value < best.max() - NEGLIGIBLE)).all():
                break
        self._last = z
        return best - ROUNDING * size


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Scores in groups, from the lowest: how many rows of each class, and pairs within."""

    positive: FloatArray
    negative: FloatArray
    wins: FloatArray
    ties: FloatArray

    @classmethod
    def of(cls, positive: FloatArray, negative: FloatArray) -> _Ranks:
        """Group the scores of two classes; what is in one group differs in nothing that counts."""
        scores, places = np.unique(np.concatenate([positive, negative]), return_inverse=True)
        up = np.bincount(places[: len(positive)], minlength=len(scores))
        down = np.bincount(places[len(positive) :], minlength=len(scores))
        both = (up > 0) & (down > 0)
        # Positives alone and then negatives alone: all rows of a class are alike, no pair wins.
        new = both[1:] | both[:-1] | ((up[1:] > 0) & (down[:-1] > 0))
        starts = np.flatnonzero(np.concatenate([[True], new]))
        if len(starts) > GROUPS:
            chosen = np.linspace(0, len(starts), GROUPS, endpoint=False).astype(np.intp)
            starts = starts[chosen]
        first = np.repeat(starts, np.diff(np.append(starts, len(scores))))
        before = np.cumsum(down) - down
        wins = up * (before - before[first]).astype(np.float64)
        parts = (up, down, wins, np.where(both, up * down.astype(np.float64), 0.0))
        return cls(*(np.add.reduceat(part, starts).astype(np.float64) for part in parts))

    def turned(self) -> _Ranks:
        """Return the groups by the negated scores."""
        losses = self.positive * self.negative - self.wins - self.ties
        parts = self.positive, self.negative, losses, self.ties
        return _Ranks(*(part[::-1].copy() for part in parts))

    def area(self) -> float:
        """Return the area under the curve."""
        below = np.cumsum(self.negative) - self.negative
        pairs = self.positive.sum() * self.negative.sum()
        return float(((self.positive * below) + self.wins + self.ties / 2.0).sum() / pairs)

    def lower(self, target: float) -> float:
        """Return a lower limit of the area."""
        ups, downs = self.positive.sum(), self.negative.sum()
        size = max(ups, downs)
        scaling = Scaling(
            np.append(self.positive, size - ups), np.append(self.negative, size - downs)
        )
        bets = stakes(target, 2.0 * ups * downs / (ups + downs))
        pairs = np.maximum(self.positive * self.negative, 1.0)
        won, tied = self.wins / pairs, self.ties / pairs
        lost = 1.0 - won - tied

        def log_capital(area: float) -> float:
            low = 1.0 - bets[:, None]
            high, middle = low + bets[:, None] / area, low + bets[:, None] / (2.0 * area)
            within = np.exp(won * np.log(high) + tied * np.log(middle) + lost * np.log(low))
            capitals = scaling.log_mean(
                lambda z: _ordered(z, low, high, within),
                lambda x: _ordered(x, high, low, within),
                np.log(np.maximum(high, 1.0) / low)[:, 0],
                LACKING * target,
            )
            return float(log_mean(capitals))

        return last_rejected(log_capital, target, 0.0, self.area())


def _ordered(
    mass: FloatArray, above: FloatArray, below: FloatArray, within: FloatArray
) -> FloatArray:
    """Multiply by a matrix of one value on each side of its diagonal, and padding of ones."""
    inner, padding = mass[:, :-1], mass[:, -1:]
    sums = np.cumsum(inner, axis=1)
    total = sums[:, -1:]
    product = below * (sums - inner) + above * (total - sums) + within * inner + padding
    return np.concatenate([product, total + padding], axis=1)


def auc_limits(positive: ArrayLike, negative: ArrayLike, log_level: float) -> Limits:
    """Return confidence limits of the area under the ROC curve.

    Proposition M1 of the guide. Ties count half. The numbers of rows of each class are held
    fixed, so that stratified holdouts and unknown shares of the classes are fine.

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
    >>> limits = auc_limits(rng.normal(1.8, 1, 500), rng.normal(0, 1, 500), -13.7)
    >>> round(limits.low, 3), round(limits.high, 3)
    (0.85, 0.953)
    """
    target = target_of(log_level)
    ranks = _Ranks.of(class_scores(positive), class_scores(negative))
    return Limits(ranks.lower(target), 1.0 - ranks.turned().lower(target), "matchings")


def class_scores(values: ArrayLike) -> FloatArray:
    """Return the scores of the rows of one class; refuse what is none."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise InvalidArgument("scores", "finite, at least one of each class", "not")
    return array


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows of some kinds, split into halves that are matched; kernels over pairs of kinds."""

    true: IntArray
    guessed: IntArray
    first: FloatArray
    second: FloatArray

    @classmethod
    def of(cls, targets: ArrayLike, predictions: ArrayLike, rng: np.random.Generator) -> _Pairs:
        """Count the kinds of rows, a class and a prediction, in two random halves."""
        true, guessed = _codes(targets), _codes(predictions)
        if len(true) != len(guessed) or len(true) < 2:
            raise InvalidArgument("predictions", "one for each of at least two targets", "not")
        width = 1 + int(max(true.max(), guessed.max()))
        kinds, counts = np.unique(true * width + guessed, return_counts=True)
        half = len(true) // 2
        both = rng.multivariate_hypergeometric(counts, 2 * half)
        first = rng.multivariate_hypergeometric(both, half)
        second = (both - first).astype(np.float64)
        return cls(kinds // width, kinds % width, first.astype(np.float64), second)

    @property
    def size(self) -> int:
        """Pairs in a matching."""
        return round(float(self.first.sum()))

    def shares(self) -> FloatArray:
        """Return the shares of the kinds in both halves."""
        return np.asarray((self.first + self.second) / (2.0 * self.size))

    def agreement(self) -> FloatArray:
        """Return the share of the two rows of a pair that are hit."""
        hit = (self.true == self.guessed).astype(np.float64)
        return np.asarray((hit[:, None] + hit[None, :]) / 2.0)

    def chance(self) -> FloatArray:
        """Return how many of the two predictions name the other row's class, halved."""
        crossed = (self.guessed[:, None] == self.true[None, :]).astype(np.float64)
        return np.asarray((crossed + crossed.T) / 2.0)

    def log_capital(self, gains: FloatArray, bets: FloatArray, target: float) -> FloatArray:
        """Return the mean capital, over bets, of gains of at least -1 for each pair of kinds.

        The gains have the shape (..., kinds, kinds), and the capital has the shape (...).
        """
        outer, square = gains.shape[:-2], gains.shape[-2:]
        tables = 1.0 + bets[:, None, None] * gains.reshape(-1, 1, *square)
        tables = tables.reshape(-1, *square)
        turned = np.ascontiguousarray(np.swapaxes(tables, 1, 2))
        ratio = np.log(tables.max(axis=(1, 2)) / tables.min(axis=(1, 2)))
        capitals = Scaling(self.first, self.second).log_mean(
            lambda z: _times(tables, z), lambda x: _times(turned, x), ratio, LACKING * target
        )
        return log_mean(capitals.reshape(*outer, len(bets)))


def _times(tables: FloatArray, values: FloatArray) -> FloatArray:
    """Multiply tables (k, r, s) by vectors (k, s)."""
    if tables.shape[1] <= SMALL:
        return np.asarray((tables * values[:, None, :]).sum(axis=-1))
    return np.asarray(np.matmul(tables, values[:, :, None])[:, :, 0])


def _codes(values: ArrayLike) -> NDArray[np.intp]:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidArgument("targets and predictions", "numbers of classes", "not")
    return array.astype(np.intp)


def kappa_limits(
    targets: ArrayLike, predictions: ArrayLike, log_level: float, rng: np.random.Generator
) -> Limits:
    """Return confidence limits of Cohen's kappa, for any number of classes.

    Proposition M2 of the guide, over pairs from random halves of the rows.

    Parameters
    ----------
    targets, predictions : array-like of int, shape (n,)
        Numbers of classes.
    log_level : float
        Natural logarithm of the level of each side, negative.
    rng : numpy.random.Generator
        Splits the rows; it must not depend on them, and be the same whenever it is asked again.

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
    >>> y = rng.integers(0, 2, 1000)
    >>> limits = kappa_limits(y, np.where(rng.random(1000) < 0.9, y, 1 - y), -13.7, rng)
    >>> round(limits.low, 2), round(limits.high, 2)
    (0.7, 0.9)
    """
    target = target_of(log_level)
    pairs = _Pairs.of(targets, predictions, rng)
    hits, chance, bets = pairs.agreement(), pairs.chance(), stakes(target, pairs.size)
    shares = pairs.shares()
    expected, agreed = float(shares @ chance @ shares), float(shares @ np.diag(hits))
    estimate = 1.0 if expected >= 1.0 else max((agreed - expected) / (1.0 - expected), -1.0)

    def below(kappa: float) -> float:
        return float(pairs.log_capital(hits - kappa - (1.0 - kappa) * chance, bets, target))

    def above(kappa: float) -> float:
        return float(pairs.log_capital((kappa - hits) / (1.0 - kappa) + chance, bets, target))

    low = last_rejected(below, target, -1.0, estimate)
    return Limits(low, last_rejected(above, target, 1.0, estimate), "matchings")


def matthews_limits(
    targets: ArrayLike, predictions: ArrayLike, log_level: float, rng: np.random.Generator
) -> Limits:
    """Return confidence limits of Matthews' correlation coefficient, for any number of classes.

    Proposition M3 of the guide. Where the lower limit is not above 0 it is -1, and the upper
    limit is never below 0.

    Parameters
    ----------
    targets, predictions, log_level, rng
        As for `kappa_limits`.

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
    >>> y = rng.integers(0, 2, 1000)
    >>> limits = matthews_limits(y, np.where(rng.random(1000) < 0.9, y, 1 - y), -13.7, rng)
    >>> round(limits.low, 2), round(limits.high, 2)
    (0.67, 0.9)
    """
    target = target_of(log_level)
    pairs = _Pairs.of(targets, predictions, rng)
    return Limits(_matthews_lower(pairs, target), _matthews_upper(pairs, target), "matchings")


def _matthews(pairs: _Pairs) -> float:
    shares = pairs.shares()
    joint = float(shares @ (pairs.agreement() - pairs.chance()) @ shares)
    spreads = [float(shares @ _unlike(kinds) @ shares) for kinds in (pairs.true, pairs.guessed)]
    product = spreads[0] * spreads[1]
    return joint / math.sqrt(product) if product > 0.0 else 0.0


def _unlike(kinds: IntArray) -> FloatArray:
    return np.asarray(kinds[:, None] != kinds[None, :], dtype=np.float64)


def _matthews_lower(pairs: _Pairs, target: float) -> float:
    estimate = _matthews(pairs)
    if estimate <= 0.0:
        return -1.0
    joint = pairs.agreement() - pairs.chance()
    # Any ratio of the spreads gives a valid bet; near the true one it is a good one.
    ratios = 2.0 ** np.append(np.arange(-6, 7) / 4.0, [-2.5, 2.5])
    ratios = ratios[:, None, None]
    spread = ratios * _unlike(pairs.true) + _unlike(pairs.guessed) / ratios
    most = (ratios + 1.0 / ratios) / 2.0
    bets = stakes(target, pairs.size)

    def below(score: float) -> float:
        gains = (joint - score * spread / 2.0) / (1.0 + score * most)
        return float(log_mean(pairs.log_capital(gains, bets, target)))

    if below(0.0) < target:
        return -1.0
    return last_rejected(below, target, 0.0, min(estimate, 1.0))


def _matthews_upper(pairs: _Pairs, target: float) -> float:
    joint, bets = pairs.agreement() - pairs.chance(), stakes(target, pairs.size)
    spreads = [_unlike(pairs.true), _unlike(pairs.guessed)]
    counts = pairs.first + pairs.second
    total = float(counts.sum())
    # U-statistics over the rows of both halves, each limit at a fortieth of the level.
    fortieth = -target - math.log(40.0)
    means = [
        min(float(counts @ spread @ counts) / (total * (total - 1.0)), 1.0) for spread in spreads
    ]
    least = [kl_lower(mean, pairs.size, fortieth) for mean in means]
    most = [kl_upper(mean, pairs.size, fortieth) for mean in means]
    if least[0] <= 0.0 or least[1] <= 0.0:
        return 1.0
    ends = math.log(least[1] / most[0]) / 2.0, math.log(most[1] / least[0]) / 2.0
    # The edges are powers of a number that depends on n and the target alone, whatever the rows
    # are; a cell on the verge of the ends is left in.
    step = CELL * (target / pairs.size) ** 0.25
    places = np.arange(math.floor(ends[0] / step - 1e-6), math.floor(ends[1] / step + 1e-6) + 1)
    first, last = np.exp(places * step), np.exp((places + 1) * step)
    spread = ((first * last) / (first + last))[:, None, None] * spreads[0]
    spread = spread + spreads[1] / (first + last)[:, None, None]
    largest = ((1.0 + first * last) / (first + last))[:, None, None]
    target = target - math.log(0.9)

    def above(score: float) -> float:
        gains = (score * spread - joint) / np.maximum(1.0 - score * largest, 1e-9)
        # The cell of the true ratio is not known: the bets on all of them have to win.
        return float(pairs.log_capital(gains, bets, target).min())

    return last_rejected(above, target, 1.0, min(max(_matthews(pairs), 0.0), 1.0))


def pair_limits(
    table: Callable[[slice], FloatArray],
    half: int,
    log_level: float,
    kernel_range: tuple[float, float],
) -> Limits:
    """Return confidence limits of the mean of a bounded function of two independent rows.

    Proposition M4 of the guide: within blocks of rows all matchings at once, and the product over
    the blocks, which are independent.

    Parameters
    ----------
    table : callable
        ``table(block)`` returns the function of the pairs of a block of rows of the first half
        with the rows at the same places of the second half, shape (m, m).
    half : int
        Rows of each half.
    log_level : float
        Natural logarithm of the level of each side, negative.
    kernel_range : tuple of (float, float)
        The least and the largest value of the function.

    Returns
    -------
    Limits

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    How often one of two normal numbers is larger than another one:

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(0.5, 1, 500), rng.normal(0.0, 1, 500)
    >>> def larger(block):
    ...     return (x[block, None] > y[None, block]).astype(float)
    >>> limits = pair_limits(larger, 500, -13.7, (0.0, 1.0))
    >>> round(limits.low, 2), round(limits.high, 2)
    (0.56, 0.75)
    """
    target, (low, high) = target_of(log_level), kernel_range
    if half < 1 or not -math.inf < low < high < math.inf:
        raise InvalidArgument("kernel_range", "finite, of at least two rows", "not")
    count = math.ceil(half / PAIRS)
    edges = np.linspace(0, half, count + 1).round().astype(int).tolist()
    blocks = [slice(*ends) for ends in itertools.pairwise(edges)]
    shares = [(np.asarray(table(block)) - low) / (high - low) for block in blocks]
    below = _pairs_lower(shares, target, half)
    above = _pairs_lower([1.0 - block for block in shares], target, half)
    return Limits(low + (high - low) * below, high - (high - low) * above, "matchings")


def _line(low: FloatArray, slope: FloatArray, table: FloatArray, values: FloatArray) -> FloatArray:
    """Multiply tables low + slope * table, one for each bet, by vectors of shape (bets, m)."""
    sums = values.sum(axis=1, keepdims=True)
    return np.asarray(low[:, None] * sums + slope[:, None] * (values @ table))


def _pairs_lower(shares: list[FloatArray], target: float, half: int) -> float:
    """Return a lower limit of the mean of a function in [0, 1], given by its blocks."""
    bets = stakes(target, half)
    scalings = [Scaling(np.ones(len(block)), np.ones(len(block))) for block in shares]
    estimate = float(np.mean([block.mean() for block in shares]))
    low = 1.0 - bets
    lacking = LACKING * target / len(shares)

    def log_capital(mean: float) -> float:
        # Each factor is 1 + c (h/mean - 1), without a table for each bet.
        slope = bets / mean
        ratio, logs = np.log((low + slope) / low), np.zeros(len(bets))
        for block, scaling in zip(shares, scalings, strict=True):
            columns, rows = partial(_line, low, slope, block.T), partial(_line, low, slope, block)
            logs = logs + scaling.log_mean(columns, rows, ratio, lacking)
        return float(log_mean(logs))

    return last_rejected(log_capital, target, 0.0, min(max(estimate, 0.0), 1.0))
