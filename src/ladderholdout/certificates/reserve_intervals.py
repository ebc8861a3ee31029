"""Intervals from a reserve: queries of rows that steered no search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.certificates.transcript import FEATURES, RANGE, ROWS, WEIGHTS, widened
from ladderholdout.errors import InvalidArgument, as_given
from ladderholdout.mechanisms.arithmetic import HALFWAY, whole
from ladderholdout.metrics.scales import Scale

RESERVE_LABELS = (
    "The search knew nothing of the labels of the reserve's rows but what queries of them showed."
)
APPROXIMATE = "The interval is approximate: it has no proof for a finite n."

# A quantile of simulated draws is read where this many of them lie beyond it.
DRAWS_BEYOND = 20
# The level of each side at which an approximate interval is drawn, shown and recorded; other
# levels follow from it, so that asking for many confidences reveals nothing more.
DRAWN_LEVEL = math.log(0.025)
# What is shown of a risk without a range.
DIGITS = 4
# Decimal exponents of floats, the smallest denormal included.
_EXPONENTS = 308 + 324 + 1


@dataclass(frozen=True, slots=True)
class ReserveGrid:
    """The numbers that a query of the reserve can show: finitely many, since each is paid for.

    Parameters
    ----------
    n : int
        Rows of the reserve.
    limits : tuple of (float, float) or None
        Range of the risk: n + 1 numbers at equal distances, so that shares of errors are shown
        as they are. None without one: numbers of four significant digits.
    drawn : bool, default=False
        Whether a query shows the ends of an interval, too.
    scale : Scale or None, default=None
        The grid of the metric's released scores, for the risk; None takes the numbers above, which
        are those of the ends of an interval.

    Examples
    --------
    >>> grid = ReserveGrid(300, (0.0, 1.0))
    >>> round(grid.nearest(0.1234), 4), round(grid.log_values, 3)
    (0.1233, 5.71)
    >>> ReserveGrid(300, None).below(12.3456), ReserveGrid(300, None).above(12.3456)
    (12.34, 12.35)
    """

    n: int
    limits: tuple[float, float] | None
    drawn: bool = False
    scale: Scale | None = None

    def nearest(self, risk: float) -> float:
        """Return the number nearest to a risk, halves towards the larger one."""
        if self.scale is not None:
            least, most = self.limits or (-math.inf, math.inf)
            return self.scale.nearest(min(max(risk, least), most), self.n)
        return self._rounded(risk, ROUND_HALF_UP)

    def below(self, risk: float) -> float:
        """Return the next number that is not larger."""
        return self._rounded(risk, ROUND_FLOOR)

    def above(self, risk: float) -> float:
        """Return the next number that is not smaller."""
        return self._rounded(risk, ROUND_CEILING)

    @property
    def log_values(self) -> float:
        """Logarithm of the number of possible answers to a query: that there is no value, too."""
        one = self.n + 1 if self.limits else 2 * 9 * 10 ** (DIGITS - 1) * _EXPONENTS + 3
        risks = one if self.scale is None else self.scale.values(self.n, self.limits)
        return math.log(risks * one ** (2 if self.drawn else 0) + 1)

    def rounding(self, risk: float) -> float:
        """Return the distance between two numbers beside a risk.

        Examples
        --------
        >>> ReserveGrid(300, (0.0, 1.0)).rounding(0.5) == 1 / 300
        True
        """
        if self.scale is not None:
            return self.scale.width(risk, self.n)
        assert self.limits is not None
        return (self.limits[1] - self.limits[0]) / self.n

    def _rounded(self, risk: float, way: str) -> float:
        if self.limits is None:
            return float(Context(prec=DIGITS, rounding=way).create_decimal_from_float(risk))
        low, high = self.limits
        place = (risk - low) / (high - low) * self.n
        ways = {ROUND_FLOOR: math.floor, ROUND_CEILING: math.ceil}
        number = ways.get(way, lambda at: math.floor(at + 0.5 + HALFWAY))(place)
        return low + (high - low) * (min(max(number, 0), self.n) / self.n)


def reserve_log_count(query: int, n_values: int) -> float:
    """Return the logarithm of the price of a query of the reserve.

    Parameters
    ----------
    query : int
        Its number, from 1.
    n_values : int
        Number of values that a query can show.

    Returns
    -------
    float
        ln(c (c + 1)) + (c - 1) ln G for query c: each earlier one showed one of G values.

    Raises
    ------
    InvalidArgument
        If one of them is no whole number from 1.

    Examples
    --------
    >>> [round(reserve_log_count(query, n_values=1001), 2) for query in (1, 2, 3)]
    [0.69, 8.7, 16.3]
    """
    query, n_values = whole("query", query), whole("n_values", n_values)
    return math.log(query * (query + 1)) + (query - 1) * math.log(n_values)


def reserve_interval(
    risk: float,
    n: int,
    log_count: float,
    *,
    confidence: float = 0.95,
    binary: bool = True,
    weights: ArrayLike | None = None,
    rounding: float | None = None,
) -> tuple[str, float, float]:
    """Return an interval from a query of rows that steered no search.

    Parameters
    ----------
    risk : float
        As the query showed it, of a loss in [0, 1].
    n : int
        Rows of the reserve.
    log_count : float
        What `reserve_log_count` returns; where earlier queries could show different numbers of
        values, the sum of their logarithms for the second term.
    confidence : float, default=0.95
        For both sides, and for all queries together.
    binary : bool, default=True
        Whether each loss is 0 or 1; if not, it lies in between.
    weights : array-like of shape (n,) or None, default=None
        Weights of the reserve's rows.
    rounding : float or None, default=None
        Distance between two risks that can be shown; None is 1/n.

    Returns
    -------
    tuple of (str, float, float)
        The bound's name and the ends of the interval.

    Examples
    --------
    >>> bound, low, high = reserve_interval(0.2, 300, reserve_log_count(1, 301))
    >>> bound, round(low, 3), round(high, 3)
    ('exact binomial', 0.151, 0.257)
    """
    half = (0.5 + HALFWAY) * (1.0 / n if rounding is None else rounding)
    low, high = max(risk - half, 0.0), min(risk + half, 1.0)
    log_level = math.log1p(-confidence) - log_count - math.log(2.0)
    return widened(low, high, n, log_level, binary, weights)


def drawn_interval(
    low: float, risk: float, high: float, log_count: float, confidence: float = 0.95
) -> tuple[str, float, float]:
    """Return an approximate interval from one that was drawn at `DRAWN_LEVEL`.

    Its distances from the risk grow like those of a normal distribution.

    Parameters
    ----------
    low, risk, high : float
        As the query showed them.
    log_count, confidence : float
        As for `reserve_interval`.

    Returns
    -------
    tuple of (str, float, float)
        The bound's name and the ends of the interval, not clipped to any range.

    Examples
    --------
    >>> drawn_interval(0.08, 0.1, 0.12, log_count=0.0)
    ('Bayesian bootstrap, approximate', 0.08, 0.12)
    """
    log_level = math.log1p(-confidence) - log_count - math.log(2.0)
    factor = float(scipy.special.ndtri_exp(log_level) / scipy.special.ndtri_exp(DRAWN_LEVEL))
    ends = risk - factor * (risk - low), risk + factor * (high - risk)
    low, high = (float(f"{end:.12g}") for end in ends)
    return "Bayesian bootstrap, approximate", low, high


def reserve_assumptions(*, exact: bool, binary: bool, weighted: bool) -> tuple[str, ...]:
    """Name what an interval from the reserve rests on.

    Examples
    --------
    >>> len(reserve_assumptions(exact=True, binary=True, weighted=False))
    3
    """
    named = [ROWS, RESERVE_LABELS, WEIGHTS if weighted else FEATURES]
    return tuple(named + ([RANGE] * (not binary) if exact else [APPROXIMATE]))


def bayesian_bootstrap(
    risk_under: Callable[[NDArray[np.float64]], float],
    n: int,
    log_level: float,
    rng: np.random.Generator,
    draws: int = 4000,
) -> tuple[float, float]:
    """Return an approximate interval for a risk that is no mean of losses.

    Rubin 1981: the risk under weights from a flat Dirichlet distribution. Quantiles beyond
    those that the draws can show are extrapolated: the distance from the median grows like
    that of a normal distribution.

    Parameters
    ----------
    risk_under : callable
        Returns the risk under (n,) non-negative weights, as `Evaluation.risk_under` does.
    n : int
        Number of examples.
    log_level : float
        Natural logarithm of the level of each side, below that of 1/2.
    rng : numpy.random.Generator
        Source of the weights.
    draws : int, default=4000
        Number of draws, at least 100.

    Returns
    -------
    low, high : float
        Not clipped to the range of the risk. The interval is approximate: it has no proof
        for a finite n.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> losses = np.repeat([0.0, 1.0], [900, 100])
    >>> risk = lambda weights: float(weights @ losses / weights.sum())
    >>> low, high = bayesian_bootstrap(risk, 1000, np.log(0.025), np.random.default_rng(0))
    >>> round(low, 2), round(high, 2)
    (0.08, 0.12)
    """
    n, draws = whole("n", n), whole("draws", draws)
    if draws < 100:
        raise InvalidArgument("draws", "at least 100", draws)
    if not -math.inf < log_level < math.log(0.5):
        raise InvalidArgument("log_level", "finite and below ln(1/2)", as_given(log_level))
    risks = np.array([risk_under(rng.standard_exponential(n)) for _ in range(draws)])
    seen = max(log_level, math.log(DRAWS_BEYOND / draws))
    factor = float(scipy.special.ndtri_exp(log_level) / scipy.special.ndtri_exp(seen))
    tail = math.exp(seen)
    low, median, high = np.quantile(risks, [tail, 0.5, 1.0 - tail])
    return float(median - factor * (median - low)), float(median + factor * (high - median))
