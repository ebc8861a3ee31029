"""Confidence limits by bets that recalculate their target, for independent rows that are alike.

The rows come in an order that does not depend on them. Before each block of them the bet is
chosen that reaches the target in the rows that are left, if these vary like those before. At the
target betting ends (Voracek & Orabona, "STaR-Bets"). Propositions B2 and R6 of the guide
(docs/background/metric_certificates.md) have the proofs that a limit keeps its level, and that
the null values that are rejected are all below one number, so that bisection finds it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike

from ladderholdout.limits.betting import Limits, mean_evidence, mean_limits, shares_of, target_of
from ladderholdout.metrics.arrays import FloatArray

# A block is this part of the rows that are left, and one row at least.
BLOCKS = 32
# The largest bet, as a part of the largest possible one.
LARGEST_BET = 0.98
# Of how many rows the variance is taken to be the largest that their mean allows, before others
# are seen, and how much of a row of 0 is thought to have come before.
WIDEST, ZERO = 4.0, 0.5
# The same of a ratio: a variance of the square of the null value.
HEAD_START = 0.25
# A limit is found to this part of its distance from the estimate.
PRECISION = 1e-3
# Part of a number that rounding may hide.
LEAST = 1e-12
# Where the limit is looked for first, as multiples of the asymptotic distance.
FIRST_TRIED = (1.0, 1.12, 1.4)


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """Rows that are bet on, of which E gain <= null times E cost is the hypothesis.

    Parameters
    ----------
    gains : ndarray of shape (n,)
        In an order that does not depend on them, none below 0.
    costs : ndarray of shape (n,)
        Each in [0, 1], in the same order.
    spread : callable
        Returns for each block, of a null value, the sum of variances that the rows left are
        expected to have. It knows no row of the block or after it, and neither it over the square
        of the null value rises, nor does it fall with the null value. (Where all costs are 1 it
        may be a multiple of null (1 - null).)
    slant : ndarray of shape (n_blocks,)
        By how much bets are smaller for rare losses of the bet, known as the spread is.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sequence_of_mean(rng.beta(2, 8, 1000)).rejects(0.18, 2.3)
    True
    """

    gains: FloatArray
    costs: FloatArray
    spread: Callable[[float], FloatArray]
    slant: FloatArray

    def rejects(self, null: float, target: float) -> bool:
        """Return whether the capital against a null value reaches the target.

        Parameters
        ----------
        null : float
            Above 0.
        target : float
            Logarithm of the capital.

        Returns
        -------
        bool
            True for all null values below one for which it is True (Proposition B2).
        """
        return self.evidence(null, target) >= target

    def evidence(self, null: float, target: float) -> float:
        """Return the logarithm of the largest capital against a null value, up to the target.

        Minus it is the logarithm of a p-value, by Ville's inequality (Proposition B2).

        Parameters
        ----------
        null : float
            Above 0.
        target : float
            Logarithm of the capital at which betting ends.

        Returns
        -------
        float

        Examples
        --------
        >>> sequence = sequence_of_mean(np.full(1000, 0.25))
        >>> sequence.evidence(0.2, 3.0) >= 3.0, sequence.evidence(0.3, 3.0)
        (True, 0.0)
        """
        # All of the last bits of a sum of n numbers, and then some, are against the limit.
        left = target + 1e-12 * len(self.gains)
        least = target
        most, rows = LARGEST_BET / null, self.gains - null * self.costs
        blocks = _blocks(len(rows))
        parts = zip(blocks, self.spread(null).tolist(), self.slant.tolist(), strict=True)
        for (first, last), spread, slant in parts:
            bet = math.sqrt(2.0 * left / spread)
            bet = min(bet / math.sqrt(1.0 + slant * bet), most)
            if last - first == 1:
                left -= math.log1p(bet * rows[first])
            else:
                left -= float(np.log1p(bet * rows[first:last]).sum())
            least = min(least, left)
            if left <= 0.0:
                break
        return target - least

    def lower(self, target: float, below: float = math.inf) -> float:
        """Return the largest null value that is seen to be rejected, or ``below`` if that is.

        Parameters
        ----------
        target : float
            Logarithm of the capital that rejects.
        below : float, default=inf
            A limit that is not to be exceeded.

        Returns
        -------
        float
            0 where none is rejected.
        """
        total, divisor = float(self.gains.sum()), float(self.costs.sum())
        if total == 0.0:
            return 0.0
        estimate = min(total / max(divisor, LEAST * total), 1.0 / LEAST)
        low, high = 0.0, min(estimate, below)
        if below < estimate and (below <= 0.0 or self.rejects(below, target)):
            return below
        deviation = float((self.gains - estimate * self.costs).std()) * math.sqrt(len(self.gains))
        distance = -float(scipy.special.ndtri_exp(-target)) * deviation * estimate / total
        tried = [estimate - times * distance for times in FIRST_TRIED]
        # No value from the estimate on is tried, so that the limit is never beyond it.
        while high - low > max(PRECISION * min(estimate - low, high), LEAST * high) > LEAST**8:
            middle = next((value for value in tried if low < value < high), (low + high) / 2.0)
            if self.rejects(middle, target):
                low = middle
            else:
                high = middle
        return low


@lru_cache(maxsize=32)
def _blocks(n: int) -> tuple[tuple[int, int], ...]:
    """Return the first row of each block and the one after its last, by the number of rows."""
    ends = [0]
    while ends[-1] < n:
        ends.append(ends[-1] + max((n - ends[-1]) // BLOCKS, 1))
    return tuple(itertools.pairwise(ends))


def _before(values: FloatArray) -> FloatArray:
    """Return the sums of the values before each block."""
    firsts = np.array([first for first, _ in _blocks(len(values))])
    return np.asarray(np.concatenate([[0.0], np.cumsum(values)])[firsts])


def sequence_of_mean(values: FloatArray) -> Sequence:
    """Return what is bet on for a lower limit of a mean of numbers in [0, 1], which are in order.

    Of a null value m the variance is taken to be w m (1 - m), where w is the ratio of the variance
    of the rows before to the largest one that their mean allows.
    """
    seen, total, squares = (_before(part) for part in (np.ones_like(values), values, values**2))
    # As if a part of a row of 0 had come before, which is what a bet loses most to.
    mean, square = total / (seen + ZERO), squares / (seen + ZERO)
    most = mean * (1.0 - mean)
    ratio = np.divide(square - mean**2, most, out=np.ones_like(mean), where=most > 0.0)
    ratio = np.clip(ratio, 0.0, 1.0)
    left = (len(values) - seen) * (WIDEST + seen * ratio) / (WIDEST + seen)
    slant = np.maximum(2.0 * mean - 1.0, 0.0) / 2.0
    return Sequence(values, np.ones_like(values), lambda null: left * (null * (1.0 - null)), slant)


def sequence_of_ratio(gains: FloatArray, costs: FloatArray) -> Sequence:
    """Return what is bet on for a lower limit of a ratio of two means.

    Of a null value s the variance is taken to be v s/r, where v is that of gains less r costs
    over the rows before, and r the ratio of their sums.
    """
    parts = (np.ones_like(gains), gains, costs, gains**2, gains * costs, costs**2)
    seen, top, bottom, squares, products, below = (_before(part) for part in parts)
    known = (top > 0.0) & (bottom > 0.0)
    ratio = np.divide(top, bottom, out=np.ones_like(top), where=known)
    varied = np.where(known, (squares - 2.0 * ratio * products + ratio**2 * below) / ratio, 0.0)
    left = (len(gains) - seen) / (HEAD_START + seen)
    # A sum of squares may come out a little below 0.
    own, head = left * np.maximum(varied, 0.0), left * HEAD_START
    return Sequence(gains, costs, lambda null: head * null**2 + own * null, np.zeros_like(head))


def is_targeted(target: float, n: int) -> bool:
    """Return whether bets recalculate their target at this number of rows.

    Where the target is high the bets of a fixed mixture are as good or better.

    Examples
    --------
    >>> is_targeted(4.4, 200), is_targeted(44.0, 1000)
    (True, False)
    """
    return target * target <= n


def ordered_mean_limits(
    losses: ArrayLike,
    log_level: float,
    limits: tuple[float, float] = (0.0, 1.0),
    *,
    rng: np.random.Generator,
) -> Limits:
    """Return both limits of a mean of losses that are independent and alike.

    Proposition B2 of the guide; where the level is too low for that, B1 (`mean_limits`).

    Parameters
    ----------
    losses : array-like of shape (n,)
        Independent draws from one distribution, each within the limits.
    log_level : float
        Natural logarithm of the level of each side, negative.
    limits : tuple of (float, float), default=(0.0, 1.0)
        The range of a loss, which was stated before the losses were seen.
    rng : numpy.random.Generator
        Brings the losses in an order; it must not depend on them, and be the same whenever it is
        asked again.

    Returns
    -------
    Limits

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> losses = np.random.default_rng(0).beta(2, 8, 1000)
    >>> found = ordered_mean_limits(losses, -4.4, rng=np.random.default_rng(1))
    >>> round(found.low, 3), round(found.high, 3), found.bound
    (0.184, 0.202, 'bets')
    """
    target, shares = target_of(log_level), shares_of(losses, limits)
    if not is_targeted(target, len(shares)):
        return mean_limits(losses, log_level, limits)
    shares = shares[rng.permutation(len(shares))]
    low, width = limits[0], limits[1] - limits[0]
    return Limits(
        low + width * sequence_of_mean(shares).lower(target),
        limits[1] - width * sequence_of_mean(1.0 - shares).lower(target),
        "bets",
    )


def ordered_mean_evidence(shares: FloatArray, null: float, target: float) -> float:
    """Return the evidence that the mean of independent shares that are alike is above a value.

    Proposition B2 of the guide; where the target is too high for that, B1.

    Parameters
    ----------
    shares : ndarray of shape (n,)
        In [0, 1], in an order that does not depend on them.
    null : float
        In (0, 1).
    target : float
        Logarithm of the capital that is aimed at.

    Returns
    -------
    float
        Minus the logarithm of a p-value of "the mean is at most the null value".

    Examples
    --------
    >>> shares = np.random.default_rng(0).beta(6, 4, 1000)
    >>> ordered_mean_evidence(shares, 0.5, 8.0) >= 8.0
    True
    """
    if is_targeted(target, len(shares)):
        return sequence_of_mean(shares).evidence(null, target)
    return mean_evidence(shares, null, target)
