"""Intervals from a reserve: queries of rows that steered no search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import as_given, whole
from ladderholdout.certificates import transcript
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits
from ladderholdout.mechanisms.arithmetic import HALFWAY
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
# A query is coded by normals around the score that the ladder has released of the same incumbent,
# of so many standard errors; the last share goes to all answers alike.
WIDTHS, SHARE_ALIKE = (1.0, 2.0, 4.0), 0.1
# A step of a metric's own grid is at most this part of a standard error.
_STEPS_OF_SCALE = 4.0
# Steps of a grid of shares are parts of one row.
_PARTS = 8
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
    released : float or None, default=None
        The risk that a ladder has released of the same incumbent, around which the query is coded;
        None where it shows none.
    ladder_rows : int, default=1
        How many rows that ladder measures.
    query : int, default=1
        The number of the query. Where means of losses of 0 and 1 have a released risk, the first
        query shows the risk as it is, the second in steps of half a standard error, and later ones
        in steps of one: the less they show, the less later ones pay.

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
    released: float | None = None
    ladder_rows: int = 1
    query: int = 1

    def nearest(self, risk: float) -> float:
        """Return the number nearest to a risk that can be shown, halves towards the larger one.

        Examples
        --------
        >>> third = ReserveGrid(500, (0.0, 1.0), released=0.2, ladder_rows=500, query=3)
        >>> third.step, third.nearest(103 / 500), 99 / 500
        (9, 0.198, 0.198)
        """
        least, most = self.limits or (-math.inf, math.inf)
        if self.step > 1:
            parts = self._parts()
            number = min(self._index(risk) * self.step, parts)
            return least + (most - least) * (number / parts)
        if self.scale is not None:
            return self.scale.nearest(min(max(risk, least), most), self.n)
        return self._rounded(risk, ROUND_HALF_UP)

    @property
    def step(self) -> int:
        """How many numbers of the grid two risks are apart that this query can show."""
        if self.released is None or not self._parts():
            return 1
        return max(1, round(min((self.query - 1) / 2.0, 1.0) * self._error()))

    def price(self, risk: float | None) -> float:
        """Return what it costs that a query showed a risk, or None for no value, in nats.

        It is minus the logarithm of its chance, which depends on what was released before.

        Examples
        --------
        >>> near = ReserveGrid(500, (0.0, 1.0), released=0.2, ladder_rows=500, query=3)
        >>> alike = ReserveGrid(500, (0.0, 1.0))
        >>> [round(grid.price(risk), 2) for grid in (near, alike) for risk in (0.198, 0.9)]
        [1.91, 6.36, 6.22, 6.22]
        """
        if self.released is None or (self.limits is None and self.scale is None):
            return self.log_values
        chance = SHARE_ALIKE * math.exp(-self.log_values)
        if risk is not None:
            # Ends of an interval are beside it, each of them as likely as another.
            ends = self._ends() ** (2 if self.drawn else 0)
            chance += (1.0 - SHARE_ALIKE) * self._near(risk) / ends
        return -math.log(chance)

    def _near(self, risk: float) -> float:
        """Return the mean chance of a risk by normals around the released one."""
        assert self.released is not None
        distance = self._index(risk) - self._number(self.released) / self.step
        error = self._error() * math.sqrt(1.0 + self.n / self.ladder_rows) / self.step
        ends = np.array([distance - 0.5, distance + 0.5]) / (error * np.array(WIDTHS)[:, None])
        # Of the upper tail, where numbers next to 1 would have no digits left.
        ends = np.where(ends.sum(axis=1, keepdims=True) > 0, -ends[:, ::-1], ends)
        return float(np.diff(scipy.special.ndtr(ends), axis=1).mean())

    def _error(self) -> float:
        """Return a standard error of the risk on these rows, in steps of the grid."""
        parts = self._parts()
        if not parts:
            return _STEPS_OF_SCALE
        assert self.limits is not None and self.released is not None
        low, high = self.limits
        share = min(max((self.released - low) / (high - low), 0.0), 1.0)
        return math.sqrt(max(self.n * share * (1.0 - share), 0.25)) * (parts / self.n)

    def _parts(self) -> int:
        """Return how many equal steps the range has; 0 where they are not equal."""
        if self.scale is not None:
            return _PARTS * self.n if self.scale.kind == "counts" and self.limits else 0
        return self.n if self.limits else 0

    def _number(self, risk: float) -> float:
        """Return the number of a risk on the grid; one of equal steps need not be whole."""
        parts = self._parts()
        if not parts:
            assert self.scale is not None
            return self.scale.number(risk, self.n)
        assert self.limits is not None
        low, high = self.limits
        return (min(max(risk, low), high) - low) / (high - low) * parts

    def _index(self, risk: float) -> int:
        """Return the number of a risk among those that this query can show."""
        return math.floor(self._number(risk) / self.step + 0.5 + HALFWAY)

    def below(self, risk: float) -> float:
        """Return the next number that is not larger."""
        return self._rounded(risk, ROUND_FLOOR)

    def above(self, risk: float) -> float:
        """Return the next number that is not smaller."""
        return self._rounded(risk, ROUND_CEILING)

    @property
    def log_values(self) -> float:
        """Logarithm of the number of possible answers to a query: that there is no value, too."""
        risks = self._ends() if self.scale is None else self.scale.values(self.n, self.limits)
        if self.step > 1:
            risks = (risks - 1) // self.step + 2
        return math.log(risks * self._ends() ** (2 if self.drawn else 0) + 1)

    def _ends(self) -> int:
        """Return how many numbers an end of an interval can be."""
        return self.n + 1 if self.limits else 2 * 9 * 10 ** (DIGITS - 1) * _EXPONENTS + 3

    def rounding(self, risk: float) -> float:
        """Return the distance between two numbers beside a risk that can be shown.

        Examples
        --------
        >>> ReserveGrid(300, (0.0, 1.0)).rounding(0.5) == 1 / 300
        True
        """
        if self.scale is not None:
            return self.step * self.scale.width(risk, self.n)
        assert self.limits is not None
        return self.step * (self.limits[1] - self.limits[0]) / self.n

    def _rounded(self, risk: float, rounding: str) -> float:
        if self.limits is None:
            context = Context(prec=DIGITS, rounding=rounding)
            return float(context.create_decimal_from_float(risk))
        low, high = self.limits
        steps = (risk - low) / (high - low) * self.n
        if rounding == ROUND_HALF_UP:
            steps = steps + 0.5 + HALFWAY
        number = math.ceil(steps) if rounding == ROUND_CEILING else math.floor(steps)
        return low + (high - low) * (min(max(number, 0), self.n) / self.n)


def reserve_log_count(query: int, shown: float = 0.0) -> float:
    """Return the logarithm of the price of a query of the reserve.

    Parameters
    ----------
    query : int
        Its number, from 1.
    shown : float, default=0.0
        The sum of `ReserveGrid.price` over what earlier queries showed.

    Returns
    -------
    float
        ln(c (c + 1)) and what was shown, for query c.

    Raises
    ------
    InvalidArgument
        If the number is no whole number from 1, or the sum is not finite or below 0.

    Examples
    --------
    >>> [round(reserve_log_count(*asked), 2) for asked in ((1,), (2, 4.0), (3, 7.0))]
    [0.69, 5.79, 9.48]
    """
    query = whole("query", query)
    transcript.check_nats("shown", shown)
    return math.log(query * (query + 1)) + shown


def reserve_interval(
    risk: float,
    n: int,
    log_count: float,
    *,
    confidence: float = 0.95,
    binary: bool = True,
    weights: ArrayLike | None = None,
    rounding: float | None = None,
) -> Limits:
    """Return an interval from a query of rows that steered no search.

    Parameters
    ----------
    risk : float
        As the query showed it, of a loss in [0, 1].
    n : int
        Rows of the reserve.
    log_count : float
        What `reserve_log_count` returns.
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
    Limits

    Examples
    --------
    >>> found = reserve_interval(0.2, 300, reserve_log_count(1))
    >>> found.bound, round(found.low, 3), round(found.high, 3)
    ('exact binomial', 0.151, 0.257)
    """
    half = (0.5 + HALFWAY) * (1.0 / n if rounding is None else rounding)
    low, high = max(risk - half, 0.0), min(risk + half, 1.0)
    log_level = math.log1p(-confidence) - log_count - math.log(2.0)
    return transcript.widened(low, high, n, log_level, binary, weights)


def drawn_interval(
    low: float, risk: float, high: float, log_count: float, confidence: float = 0.95
) -> Limits:
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
    Limits
        Not clipped to any range.

    Examples
    --------
    >>> drawn_interval(0.08, 0.1, 0.12, log_count=0.0)
    Limits(low=0.08, high=0.12, bound='Bayesian bootstrap, approximate')
    """
    log_level = math.log1p(-confidence) - log_count - math.log(2.0)
    factor = float(scipy.special.ndtri_exp(log_level) / scipy.special.ndtri_exp(DRAWN_LEVEL))
    low, high = risk - factor * (risk - low), risk + factor * (high - risk)
    low, high = float(f"{low:.12g}"), float(f"{high:.12g}")
    return Limits(low, high, "Bayesian bootstrap, approximate")


def reserve_assumptions(
    *, exact: bool, binary: bool, weighted: bool, grouped: bool = False
) -> tuple[str, ...]:
    """Return what must be true for an interval from the reserve that its score determines.

    Or that a bootstrap of its rows, or of their groups, has drawn.

    Examples
    --------
    >>> len(reserve_assumptions(exact=True, binary=True, weighted=False))
    3
    """
    rows = transcript.WHOLE_GROUPS if grouped else transcript.ROWS
    assumptions = [rows, RESERVE_LABELS, transcript.WEIGHTS if weighted else transcript.FEATURES]
    assumptions += [transcript.RANGE] * (not binary) if exact else [APPROXIMATE]
    return tuple(assumptions)


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
    read_level = max(log_level, math.log(DRAWS_BEYOND / draws))
    factor = float(scipy.special.ndtri_exp(log_level) / scipy.special.ndtri_exp(read_level))
    tail = math.exp(read_level)
    low, median, high = np.quantile(risks, [tail, 0.5, 1.0 - tail])
    return float(median - factor * (median - low)), float(median + factor * (high - median))
