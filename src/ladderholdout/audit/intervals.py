"""Intervals for scores and their differences: pure functions of evaluations.

All differences are of scores, greater is better, so that a positive one is an improvement.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from ladderholdout.audit.statistics import plain
from ladderholdout.certificates import exact_lower, exact_upper
from ladderholdout.metrics import Evaluation, Metric

FloatArray = NDArray[np.float64]

DRAWS = 1000
"""Draws of a Bayesian bootstrap: its standard deviation is then known to about 2 %."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with a two-sided confidence interval.

    Attributes
    ----------
    value, low, high : float
    confidence : float
    method : str
        How it was computed.
    approximate : bool
        Whether it stands on a bootstrap: right only for many rows.

    Examples
    --------
    >>> print(Interval(0.1, 0.05, 0.15, 0.95, "paired t"))
    0.1 (95 % interval 0.05 to 0.15)
    """

    value: float
    low: float
    high: float
    confidence: float
    method: str
    approximate: bool = False

    def __str__(self) -> str:
        kind = "approximate interval" if self.approximate else "interval"
        share = f"{100 * self.confidence:.4g} %"
        return f"{self.value:.4g} ({share} {kind} {self.low:.4g} to {self.high:.4g})"


def score_interval(
    metric: Metric, evaluation: Evaluation, confidence: float, rng: np.random.Generator
) -> Interval:
    """Return the score of a model that the rows did not choose, with its interval.

    Parameters
    ----------
    metric : Metric
    evaluation : Evaluation
    confidence : float
    rng : numpy.random.Generator
        For the Bayesian bootstrap.

    Returns
    -------
    Interval
        Exact binomial (Clopper & Pearson 1934) for losses of 0 and 1, by Student's t for
        other means of losses, by a Bayesian bootstrap (Rubin 1981) for all else.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> right = Evaluation.from_losses([0] * 20)
    >>> found = score_interval(get_metric("accuracy"), right, 0.95, np.random.default_rng(0))
    >>> found.value, round(found.low, 3), found.high, found.method
    (1.0, 0.832, 1.0, 'exact binomial')
    """
    score = metric.to_score(evaluation.risk)
    losses = _linear_losses(metric, evaluation)
    if losses is None:
        found = _bootstrapped(lambda w: metric.to_score(evaluation.risk_under(w)), evaluation, rng)
        return _normal(score, found, confidence, "Bayesian bootstrap")
    if _zero_one(losses):
        best, worst = _clopper_pearson(int(losses.sum()), len(losses), confidence)
        ends = metric.to_score(worst), metric.to_score(best)
        return Interval(score, *ends, confidence, "exact binomial")
    return _student(score, losses, confidence, "Student's t")


def paired(
    metric: Metric,
    ours: Evaluation,
    theirs: Evaluation,
    confidence: float,
    rng: np.random.Generator,
) -> Interval:
    """Return how much better one model is than another on the same rows.

    Parameters
    ----------
    metric : Metric
    ours, theirs : Evaluation
        On the same rows in the same order.
    confidence : float
    rng : numpy.random.Generator
        For the Bayesian bootstrap.

    Returns
    -------
    Interval
        Of the score of ours minus that of theirs: an adjusted Wald interval (Agresti & Min
        2005) for losses of 0 and 1, a paired t interval for other means of losses, and a
        Bayesian bootstrap with the same weights for both for all else.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> ours, theirs = (Evaluation.from_losses([1] * wrong + [0] * (100 - wrong))
    ...                 for wrong in (10, 30))
    >>> print(paired(get_metric("accuracy"), ours, theirs, 0.95, np.random.default_rng(0)))
    0.2 (95 % interval 0.1167 to 0.2755)
    """
    value = plain(metric.to_score(ours.risk) - metric.to_score(theirs.risk))
    mine, other = _linear_losses(metric, ours), _linear_losses(metric, theirs)
    if mine is None or other is None:

        def difference(weights: FloatArray) -> float:
            return metric.to_score(ours.risk_under(weights)) - metric.to_score(
                theirs.risk_under(weights)
            )

        found = _bootstrapped(difference, ours, rng)
        return _normal(value, found, confidence, "paired Bayesian bootstrap")
    gains = other - mine
    if _zero_one(mine) and _zero_one(other):
        low, high = _agresti_min(int((gains > 0).sum()), int((gains < 0).sum()), len(gains),
                                 confidence)  # fmt: skip
        return Interval(value, low, high, confidence, "paired, adjusted Wald")
    return _student(value, gains, confidence, "paired t")


def two_samples(stated: float, ours: Interval, theirs: Interval) -> Interval:
    """Return the difference of two scores that were found on different rows.

    Nothing can be paired there. The interval combines those of the two scores (Zou & Donner
    2008; with binomial ones it is Newcombe's of 1998).

    Parameters
    ----------
    stated : float
        The first score as it was stated; it may be the rounded value of `ours`.
    ours, theirs : Interval
        The two scores, with the same confidence.

    Returns
    -------
    Interval
        Of `stated` minus the value of `theirs`.

    Examples
    --------
    >>> ours, theirs = (Interval(x, x - 0.3, x + 0.4, 0.95, "t") for x in (0.6, 0.5))
    >>> print(two_samples(0.6, ours, theirs))
    0.1 (95 % interval -0.4 to 0.6)
    """
    value = plain(stated - theirs.value)
    below = math.hypot(ours.value - ours.low, theirs.high - theirs.value)
    above = math.hypot(ours.high - ours.value, theirs.value - theirs.low)
    return Interval(
        value,
        value - below,
        value + above,
        ours.confidence,
        "two samples",
        ours.approximate or theirs.approximate,
    )


def _linear_losses(metric: Metric, evaluation: Evaluation) -> FloatArray | None:
    """Return losses of which the score is the mean, if there are any; a root is none."""
    return None if metric.root else evaluation.losses


def _zero_one(losses: FloatArray) -> bool:
    return bool(np.isin(losses, (0.0, 1.0)).all())


def _clopper_pearson(errors: int, n: int, confidence: float) -> tuple[float, float]:
    """Return the interval of an error rate."""
    log_level = math.log((1 - confidence) / 2)
    return exact_lower(errors, n, log_level), exact_upper(errors, n, log_level)


def _agresti_min(better: int, worse: int, n: int, confidence: float) -> tuple[float, float]:
    """Add half an observation to each cell of the table of the two models' errors."""
    size = n + 2
    middle = (better - worse) / size
    variance = ((better + worse + 1) / size - middle**2) / size
    width = -float(ndtri((1 - confidence) / 2)) * math.sqrt(variance)
    return max(middle - width, -1.0), min(middle + width, 1.0)


def _student(value: float, each: FloatArray, confidence: float, method: str) -> Interval:
    n = len(each)
    if n < 2:
        return Interval(value, -math.inf, math.inf, confidence, method)
    error = float(np.std(each, ddof=1)) / math.sqrt(n)
    width = -float(stdtrit(n - 1, (1 - confidence) / 2)) * error
    return Interval(value, value - width, value + width, confidence, method)


def _bootstrapped(
    statistic: Callable[[FloatArray], float], evaluation: Evaluation, rng: np.random.Generator
) -> FloatArray:
    weights = (rng.dirichlet(np.ones(evaluation.n)) * evaluation.n for _ in range(DRAWS))
    return np.array([statistic(one) for one in weights])


def _normal(value: float, draws: FloatArray, confidence: float, method: str) -> Interval:
    # From the standard deviation and not from the percentiles: a correction for many tests
    # asks for tails that no thousand draws reach.
    width = -float(ndtri((1 - confidence) / 2)) * float(np.std(draws, ddof=1))
    return Interval(value, value - width, value + width, confidence, method, approximate=True)
