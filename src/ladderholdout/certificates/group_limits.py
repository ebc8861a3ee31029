"""Limits of scores where whole groups of rows were drawn: sums over groups, or one row of each.

The groups are independent draws, and their rows may depend on each other in any way. What is bet on
is one bounded number for each group (Propositions G1 to G3 of docs/background/groups.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import choice
from ladderholdout.certificates.regression_limits import ratio_lower_in_order
from ladderholdout.certificates.targeted_bets import ordered_mean_limits
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits, target_of
from ladderholdout.metrics.arrays import Array, FloatArray, shares_of_groups

ESTIMANDS = ("rows", "groups")
"""What a certificate of grouped rows is for: the mean over rows, or the mean over groups."""
BY_GROUPS = "bets on groups"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Groups:
    """Which rows were drawn together, and over what the mean is taken.

    Attributes
    ----------
    codes : ndarray of int, shape (n,)
        The number of each row's group, from 0 on; each number occurs.
    estimand : {"rows", "groups"}
        Whether every row of the population counts alike, or every group of it.
    names : ndarray, shape (n_groups,)
        What each group is called, sorted.

    Examples
    --------
    >>> groups = Groups.of(["Ada", "Ada", "Bob"], "rows")
    >>> groups.sizes.tolist(), groups.sums(np.array([1.0, 0.0, 1.0])).tolist()
    ([2, 1], [0.5, 0.5])
    """

    codes: NDArray[np.intp]
    estimand: str
    names: Array

    @classmethod
    def of(cls, names: Array | list[object], estimand: str) -> Groups:
        """Return the groups that the rows name.

        Parameters
        ----------
        names : array-like of shape (n,)
        estimand : {"rows", "groups"}

        Returns
        -------
        Groups

        Raises
        ------
        InvalidArgument
            The estimand is another.
        """
        found, codes = np.unique(np.asarray(names), return_inverse=True)
        return cls(codes.astype(np.intp), choice("estimand", estimand, ESTIMANDS), found)

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Array) -> Groups:
        """Return the groups of some of the rows, by a mask or by places."""
        return Groups.of(self.names[self.codes[rows]], self.estimand)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """How many rows each group has."""
        return np.bincount(self.codes)

    @property
    def by_mean(self) -> bool:
        """Whether the mean of one number for each group is the mean that is wanted."""
        sizes = self.sizes
        return self.estimand == "groups" or bool((sizes == sizes[0]).all())

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sum of each group as a share of the most that it can be.

        Of values in [0, 1]: of the group's own size where every group counts alike, and of the
        largest size where every row does.
        """
        return shares_of_groups(self.codes, values, alike=self.estimand == "groups")

    def one_of_each(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw one row of each group (Proposition G3); the rows are independent draws.

        Where every row of the population counts alike, a group is kept with the chance of its size
        over the largest one, so that a larger group is found more often.

        Parameters
        ----------
        rng : numpy.random.Generator
            It must not depend on the rows.

        Returns
        -------
        ndarray of int
            Places of the rows.

        Examples
        --------
        >>> groups = Groups.of(["Ada", "Ada", "Bob", "Bob"], "rows")
        >>> groups.one_of_each(np.random.default_rng(0)).tolist()
        [0, 2]
        """
        order = rng.permutation(len(self.codes))
        _, firsts = np.unique(self.codes[order], return_index=True)
        rows, sizes = order[firsts], self.sizes
        if self.estimand == "rows":
            rows = rows[rng.random(len(rows)) < sizes / sizes.max()]
        return np.asarray(rows, dtype=np.intp)


def share_of_groups(
    tops: FloatArray,
    bottoms: FloatArray,
    groups: Groups,
    log_level: float,
    *,
    rng: np.random.Generator,
) -> Limits:
    """Return limits of a share: one mean over another one that is never the smaller.

    Propositions G1 and G2. The accuracy has bottoms of 1 throughout; the precision has tops of 1 at
    true positives, and bottoms of 1 at the rows that are predicted positive.

    Parameters
    ----------
    tops, bottoms : ndarray of shape (n,)
        Of the rows, with 0 <= top <= bottom <= 1.
    groups : Groups
    log_level : float
        Natural logarithm of the level of each side, negative.
    rng : numpy.random.Generator
        Brings the groups in an order; it must not depend on the rows.

    Returns
    -------
    Limits
        [0, 1] where all bottoms are 0.

    Raises
    ------
    InvalidArgument
        The tops or bottoms are others.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> patients = Groups.of(np.repeat(np.arange(200), 10), "rows")
    >>> hits = rng.random(2000) < np.repeat(rng.beta(8, 2, 200), 10)
    >>> limits = share_of_groups(hits * 1.0, np.ones(2000), patients, -4.4, rng=rng)
    >>> round(limits.low, 2), round(limits.high, 2), limits.bound
    (0.79, 0.84, 'bets on groups')
    """
    if not ((tops >= 0.0) & (tops <= bottoms) & (bottoms <= 1.0)).all():
        raise InvalidArgument("tops", "from 0 to the bottoms, which are at most 1", "others")
    gains, costs = groups.sums(tops), groups.sums(bottoms)
    if not costs.any():
        return Limits(0.0, 1.0, BY_GROUPS)
    if groups.by_mean and (bottoms == 1.0).all():
        found = ordered_mean_limits(np.minimum(gains, 1.0), log_level, rng=rng)
        return Limits(found.low, found.high, BY_GROUPS)
    target, order = target_of(log_level), rng.permutation(len(costs))
    gains, costs = gains[order], np.minimum(costs[order], 1.0)
    low = ratio_lower_in_order(gains, costs, target)
    rest = ratio_lower_in_order(np.maximum(costs - gains, 0.0), costs, target)
    return Limits(min(low, 1.0), max(1.0 - rest, 0.0), BY_GROUPS)


def ratio_of_groups(
    tops: FloatArray,
    bottoms: FloatArray,
    groups: Groups,
    log_level: float,
    *,
    largest: tuple[float, float],
    rng: np.random.Generator,
) -> Limits:
    """Return limits of one mean over another one, by Proposition G2 in both directions.

    Parameters
    ----------
    tops, bottoms : ndarray of shape (n,)
        Of the rows, none below 0.
    groups, log_level, rng
        As for `share_of_groups`.
    largest : tuple of (float, float)
        The largest possible top and bottom, stated before they were seen.

    Returns
    -------
    Limits
        The upper one may be infinity.

    Raises
    ------
    InvalidArgument
        A number is outside of its range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> patients = Groups.of(np.repeat(np.arange(200), 10), "rows")
    >>> b = rng.uniform(0, 2, 2000)
    >>> a = b * (rng.random(2000) < 0.7)
    >>> limits = ratio_of_groups(a, b, patients, -4.4, largest=(2.0, 2.0), rng=rng)
    >>> limits.low < 0.7 < limits.high
    True
    """
    most_top, most_bottom = largest
    if tops.min() < 0 or bottoms.min() < 0 or tops.max() > most_top or bottoms.max() > most_bottom:
        raise InvalidArgument("largest", "numbers that no part exceeds", "less")
    target, order = target_of(log_level), rng.permutation(len(groups))
    a = np.minimum(groups.sums(tops / most_top)[order], 1.0)
    b = np.minimum(groups.sums(bottoms / most_bottom)[order], 1.0)
    low = ratio_lower_in_order(a, b, target) * most_top / most_bottom
    inverse = ratio_lower_in_order(b, a, target) * most_bottom / most_top
    return Limits(low, 1.0 / inverse if inverse > 0.0 else np.inf, BY_GROUPS)
