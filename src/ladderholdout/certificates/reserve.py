"""The second tier: looks at rows that steered no search."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import whole

# A quantile of simulated draws is read where this many of them lie beyond it.
DRAWS_BEYOND = 20


def reserve_log_count(look: int, n_values: int) -> float:
    """Return the logarithm of the price of a look at the reserve.

    Parameters
    ----------
    look : int
        Its number, from 1.
    n_values : int
        Number of values that a look can show.

    Returns
    -------
    float
        ln(c (c + 1)) + (c - 1) ln G for look c: each earlier look told one of G values.

    Raises
    ------
    InvalidArgument
        If one of them is no whole number from 1.

    Examples
    --------
    >>> [round(reserve_log_count(look, n_values=1001), 2) for look in (1, 2, 3)]
    [0.69, 8.7, 16.3]
    """
    look, n_values = whole("look", look), whole("n_values", n_values)
    return math.log(look * (look + 1)) + (look - 1) * math.log(n_values)


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
        raise InvalidArgument("log_level", "finite and below ln(1/2)", repr(log_level))
    risks = np.array([risk_under(rng.standard_exponential(n)) for _ in range(draws)])
    seen = max(log_level, math.log(DRAWS_BEYOND / draws))
    factor = float(ndtri_exp(log_level) / ndtri_exp(seen))
    tail = math.exp(seen)
    low, median, high = np.quantile(risks, [tail, 0.5, 1.0 - tail])
    return float(median - factor * (median - low)), float(median + factor * (high - median))
