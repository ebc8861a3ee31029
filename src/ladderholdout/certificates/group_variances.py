"""Limits of R2 and the explained variance where whole groups of rows were drawn.

Proposition G4 of docs/background/groups.md: R1 of the guide, with sums over groups for rows.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from ladderholdout.arguments import as_given
from ladderholdout.certificates import regression_limits
from ladderholdout.certificates.group_limits import BY_GROUPS, Groups, share_of_groups
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits, target_of
from ladderholdout.metrics.arrays import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """Values of the rows, of which squares about a centre are summed up over each group.

    `low` and `high` are a range that was stated before; `order` is that of the groups, and does not
    depend on the rows; `centred` is true where the centre is the unknown mean over rows, and not 0.
    """

    values: FloatArray
    low: float
    high: float
    centred: bool
    groups: Groups
    order: np.ndarray[tuple[int, ...], np.dtype[np.intp]]

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sums of the groups in their order, as shares of the most that they can be."""
        return self.groups.sums(values)[self.order]

    def predicted(self) -> tuple[FloatArray, FloatArray]:
        """Return squares about the mean of the groups before, and the largest possible squares.

        The centre and the largest square are known of a group before it is seen.
        """
        if not self.centred:
            return self.sums(self.values**2), np.full(
                len(self.order), max(-self.low, self.high) ** 2
            )
        rows, total = self.sums(np.ones_like(self.values)), self.sums(self.values)
        squares = self.sums(self.values**2)
        middle = (self.low + self.high) / 2.0
        means = (np.cumsum(total) - total + regression_limits.HEAD_START * middle) / (
            regression_limits.HEAD_START + np.cumsum(rows) - rows
        )
        far = np.maximum(means - self.low, self.high - means)
        return np.maximum(squares - 2.0 * means * total + means**2 * rows, 0.0), far**2

    def cells(self, target: float, rng: np.random.Generator) -> tuple[FloatArray, float]:
        """Return the centres of the fixed cells in one of which the mean lies, and half a width."""
        width, log_level = self.high - self.low, math.log(regression_limits.CENTRE / 2.0) - target
        shares = np.clip((self.values - self.low) / width, 0.0, 1.0)
        mean = share_of_groups(shares, np.ones_like(shares), self.groups, log_level, rng=rng)
        count = math.ceil(regression_limits.CELLS * (len(self.order) / target) ** 0.25)
        # A cell on the verge of the interval is left in, whatever the last bits are.
        first = math.floor(mean.low * count - 1e-6)
        last = math.floor(mean.high * count + 1e-6)
        places = np.arange(min(max(first, 0), count - 1), min(last, count - 1) + 1)
        half = width / (2.0 * count)
        return self.low + (2 * places + 1) * half, half

    def least_variance(self, target: float) -> float:
        """Return a crude lower limit of the variance over rows, from pairs of groups."""
        even = 2 * (len(self.order) // 2)
        centred = self.values - (self.low + self.high) / 2.0
        rows, total, squares = (
            part[:even].reshape(-1, 2).T
            for part in map(self.sums, (np.ones_like(centred), centred, centred**2))
        )
        pairs = (rows[0] * squares[1] + rows[1] * squares[0]) / 2.0 - total[0] * total[1]
        most = (self.high - self.low) ** 2 / 2.0
        gains, costs = np.maximum(pairs, 0.0) / most, rows[0] * rows[1]
        return most * regression_limits.ratio_lower_in_order(
            gains, costs, target - math.log(regression_limits.CRUDE)
        )


def _ratio_lower(top: _Values, bottom: _Values, target: float, rng: np.random.Generator) -> float:
    """Return a lower limit of the mean square of one series over that of another."""
    squares, largest = bottom.predicted()
    costs = np.minimum(squares / largest, 1.0)
    if not top.centred:
        return regression_limits.ratio_lower_in_order(
            top.sums(top.values**2) / largest, costs, target
        )
    variance = top.least_variance(target)
    if variance <= 0.0:
        return 0.0
    target_of_cell = target - math.log1p(-regression_limits.CENTRE - regression_limits.CRUDE)
    centres, half = top.cells(target, rng)
    least = math.inf
    for centre in centres:
        gains = top.sums((top.values - centre) ** 2) / largest
        least = regression_limits.ratio_lower_in_order(gains, costs, target_of_cell, least)
    return least / (1.0 + half * half / variance)


def r2_of_groups(
    targets: FloatArray,
    predictions: FloatArray,
    log_level: float,
    *,
    target_range: tuple[float, float],
    largest_error: float,
    rng: np.random.Generator,
    groups: Groups,
    explained: bool = False,
) -> Limits:
    """Return confidence limits of R2, or of the explained variance, by sums over groups.

    Parameters
    ----------
    targets, predictions : ndarray of shape (n,)
        The targets within their range, no error above the largest one.
    log_level : float
        Natural logarithm of the level of each side, negative.
    target_range : tuple of (float, float)
        Stated before the targets were seen.
    largest_error : float
        Stated likewise, in the units of the target.
    rng : numpy.random.Generator
        Brings the groups in an order; it must not depend on the rows.
    groups : Groups
    explained : bool, default=False
        Whether the mean error is taken off: the explained variance.

    Returns
    -------
    Limits
        The lower one may be minus infinity.

    Raises
    ------
    InvalidArgument
        A value lies outside of its range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> patients = Groups.of(np.repeat(np.arange(200), 10), "rows")
    >>> y = rng.uniform(-1, 1, 2000)
    >>> guesses = y + np.repeat(rng.uniform(-0.3, 0.3, 200), 10)
    >>> ranges = {"target_range": (-1.0, 1.0), "largest_error": 0.3}
    >>> limits = r2_of_groups(y, guesses, -4.4, groups=patients, rng=rng, **ranges)
    >>> limits.low < 0.91 < limits.high
    True
    """
    target, (low, high) = target_of(log_level), target_range
    errors = predictions - targets
    if not (low <= targets.min() and targets.max() <= high):
        raise InvalidArgument("target_range", "a pair that holds all targets", "not")
    if not np.abs(errors).max() <= largest_error:
        allowed = "a number that no error exceeds"
        raise InvalidArgument("largest_error", allowed, as_given(largest_error))
    order = rng.permutation(len(groups))
    spread = _Values(targets, low, high, True, groups, order)
    unexplained = _Values(errors, -largest_error, largest_error, explained, groups, order)
    above, below = (
        _ratio_lower(top, bottom, target, rng)
        for top, bottom in itertools.permutations((spread, unexplained))
    )
    return Limits(1.0 - 1.0 / above if above > 0.0 else -math.inf, 1.0 - below, BY_GROUPS)
