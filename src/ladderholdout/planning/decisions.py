"""How many rows a gate needs to accept a true gain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from ladderholdout.arguments import as_given, inside, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.gate import LARGEST_HORIZON, log_chance, mean_test

MOST_ROWS_OF_A_GATE = 2**27
# Counts of rows on which models differ are summed up to so many standard deviations.
_REACH = 8.0
# Of searches in which the power of bets on groups is simulated.
_DRAWS = 200
DISCORDANCE = 0.15
"""On so many rows do a candidate and the incumbent differ, unless another share is stated."""


@dataclass(frozen=True, slots=True)
class DecisionPlan:
    """What a `GateLadder` accepts of a true gain in accuracy.

    Attributes
    ----------
    gain, discordance : float
        By how much the candidate is truly better, and the share of rows on which it differs from
        the incumbent.
    horizon : int
        How many candidates were announced.
    alpha : float
        The chance of any false acceptance.
    power : float
        With which chance the gain is to be accepted.
    level : float
        At which the last candidate is tested, if none was accepted before.
    rows : int or None
        The rows with which the gain is accepted with that chance, wherever it comes; None where
        134 million do not do.
    rows_of_one : int or None
        Those of a single test at alpha, of one candidate that was fixed before.
    n : int or None
        The rows that were stated.
    chance : float or None
        With which chance the gain is accepted on these rows.
    groups : int or None
        Of how many groups the rows are: the test is then of one number for each group.

    Examples
    --------
    >>> plan_decisions(gain=0.02, horizon=200).rows
    7428
    """

    gain: float
    discordance: float
    horizon: int
    alpha: float
    power: float
    level: float
    rows: int | None
    rows_of_one: int | None
    n: int | None = None
    chance: float | None = None
    groups: int | None = None

    def __str__(self) -> str:
        def shown(rows: int | None) -> str:
            return f"more than {MOST_ROWS_OF_A_GATE:,}" if rows is None else f"{rows:,}"

        lines = [
            f"GateLadder(alpha={self.alpha:g}, horizon={self.horizon}) for losses of 0 and 1, a "
            f"true gain of {self.gain:g}, and models that differ on {self.discordance:.0%} of the "
            "rows:",
            f"  rows needed: {shown(self.rows)}, to accept it with a chance of {self.power:.0%} "
            f"wherever it comes among the {self.horizon:,}",
            f"  a single test at {self.alpha:g} of one candidate: {shown(self.rows_of_one)} rows",
        ]
        if self.chance is not None:
            of = "" if self.groups is None else f" of {self.groups:,} groups"
            chance = f"{self.chance:.1%}" if self.groups is None else f"about {self.chance:.0%}"
            lines.append(f"  on {self.n:,} rows{of} it is accepted with a chance of {chance}")
        return "\n".join(lines)


def plan_decisions(
    *,
    gain: float,
    horizon: int,
    n: int | None = None,
    discordance: float = DISCORDANCE,
    alpha: float = 0.05,
    power: float = 0.8,
    groups: int | None = None,
    correlation: float = 1.0,
) -> DecisionPlan:
    """Return how many rows a gate needs to accept a true gain in accuracy.

    The test is that of `GateLadder` on losses of 0 and 1 without a margin, exact for independent
    rows (docs/background/decisions.md, theorem 2). The last place of the horizon is taken, where
    the level is the smallest. Whole groups of rows are tested by bets on one number for each group,
    whose power is simulated: 200 draws with a fixed seed.

    Parameters
    ----------
    gain : float
        By how much the candidate is truly better, in (0, 1).
    horizon : int
        How many candidates there will be, at most 100,000.
    n : int, optional
        Rows of a holdout, for the chance on these.
    discordance : float, default=0.15
        The share of rows on which the candidate and the incumbent differ, at least `gain`.
    alpha : float, default=0.05
        The chance of any false acceptance, in (0, 0.5].
    power : float, default=0.8
        With which chance the gain is to be accepted, in (0, 1).
    groups : int, optional
        Of how many groups the `n` rows are, such as patients.
    correlation : float, default=1.0
        Of the differences within a group, from 0 to 1.

    Returns
    -------
    DecisionPlan

    Raises
    ------
    InvalidArgument
        An argument is refused.

    Examples
    --------
    >>> plan = plan_decisions(gain=0.05, horizon=200, n=1000)
    >>> plan.rows, round(plan.chance, 2)
    (1190, 0.68)

    Rows of one patient are no independent rows:

    >>> plan_decisions(gain=0.1, horizon=20, n=677, groups=110).chance < 0.2
    True
    """
    gain, power = inside("gain", gain), inside("power", power)
    horizon = whole("horizon", horizon, most=LARGEST_HORIZON)
    discordance = inside("discordance", discordance)
    alpha = inside("alpha", alpha)
    if alpha > 0.5:
        raise InvalidArgument("alpha", "a number in (0, 0.5]", as_given(alpha))
    if discordance < gain:
        raise InvalidArgument("discordance", f"at least {gain:g}, the gain", as_given(discordance))
    level = alpha * math.exp(log_chance(horizon, 1, horizon))
    if n is not None:
        n = whole("n", n, most=MOST_ROWS_OF_A_GATE)

    def accepts(n: int, level: float) -> float:
        if groups is None:
            return chance_of_acceptance(n, gain, discordance, level)
        return _chance_in_groups(max(round(n / size), 1), size, gain, discordance, mix, level)

    size, mix = 1, 1.0
    if groups is not None:
        if n is None:
            raise InvalidArgument("n", "stated together with groups", "missing")
        check_groups(n, groups)
        size, mix = max(round(n / groups), 1), checked_correlation(correlation)
    return DecisionPlan(
        gain,
        discordance,
        horizon,
        alpha,
        power,
        level,
        _rows_needed(gain, discordance, level, power, accepts),
        _rows_needed(gain, discordance, alpha, power, accepts),
        n,
        None if n is None else accepts(n, level),
        groups,
    )


def check_groups(n: int, groups: int) -> None:
    """Refuse a number of groups that n rows cannot be in."""
    if not 2 <= whole("groups", groups) <= n:
        raise InvalidArgument("groups", f"a whole number from 2 to the number of rows, {n}", groups)


def checked_correlation(correlation: float) -> float:
    """Return the correlation within groups, from 0 to 1."""
    return correlation if correlation in (0.0, 1.0) else inside("correlation", correlation)


def _chance_in_groups(
    groups: int, size: int, gain: float, discordance: float, correlation: float, level: float
) -> float:
    """Simulate how often bets on the mean differences of groups reject at a level.

    A group is of one kind with the chance of the correlation, else its rows are independent: then
    the correlation of two of its rows is just that.
    """
    rng, up, down = np.random.default_rng(0), (discordance + gain) / 2, (discordance - gain) / 2
    rejected = 0
    for _ in range(_DRAWS):
        rows = np.where(rng.random(groups) < correlation, 1, size)
        better = rng.binomial(rows, up)
        worse = rng.binomial(rows - better, min(down / (1.0 - up), 1.0) if up < 1.0 else 0.0)
        rejected += mean_test((better - worse) / rows, 0.0) <= level
    return rejected / _DRAWS


def chance_of_acceptance(n: int, gain: float, discordance: float, level: float) -> float:
    """Return the chance that the sign test rejects at a level, for a true gain.

    Parameters
    ----------
    n : int
        Rows.
    gain, discordance : float
        As for `plan_decisions`.
    level : float

    Returns
    -------
    float

    Examples
    --------
    >>> [round(chance_of_acceptance(n, 1.0, 1.0, 0.001), 3) for n in (10, 9)]
    [1.0, 0.0]
    """
    from scipy.stats import binom

    reach = _REACH * (math.sqrt(n * discordance * (1.0 - discordance)) + 1.0)
    middle = n * discordance
    counts = np.arange(max(math.floor(middle - reach), 0), min(math.ceil(middle + reach), n) + 1)
    # The fewest wins at which so many tosses of a fair coin reject.
    least = binom.isf(level, counts, 0.5) + 1
    share = (discordance + gain) / (2.0 * discordance)
    accepts = binom.sf(least - 1, counts, share)
    return float(binom.pmf(counts, n, discordance) @ accepts)


def _rows_needed(
    gain: float,
    discordance: float,
    level: float,
    power: float,
    accepts: Callable[[int, float], float],
) -> int | None:
    """Return the fewest rows with which a gain is accepted often enough; None beyond the most.

    The chance of a count goes up and down by steps, so other numbers of rows nearby may do too.
    """
    ndtri = scipy.special.ndtri
    under_null, under_gain = math.sqrt(discordance), math.sqrt(discordance - gain**2)
    distance = -ndtri(level) * under_null + ndtri(power) * under_gain
    # So many by the normal distribution.
    low, high = 0, min(max(math.ceil((distance / gain) ** 2), 1), MOST_ROWS_OF_A_GATE)
    while accepts(high, level) < power:
        low, high = high, 2 * high
        if high > MOST_ROWS_OF_A_GATE:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if accepts(middle, level) < power:
            low = middle
        else:
            high = middle
    return high
