"""Intervals and tests of an audit: pure functions of evaluations and counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from ladderholdout.errors import InvalidSubmission
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.limits.trinomial import paired_limits
from ladderholdout.metrics import Evaluation, Metric

Array = NDArray[Any]


def best_constant(
    metric: Metric, targets: Array, weights: Array | None, classes: Array | None
) -> Array | None:
    """Return the constant prediction with the smallest risk on these rows.

    Parameters
    ----------
    metric : Metric
    targets : ndarray of shape (n,) or (n, m)
        The targets in canonical form.
    weights : ndarray of shape (n,) or None
    classes : ndarray of shape (C,) or None

    Returns
    -------
    ndarray or None
        The prediction for one row; None where the metric has no value for any constant.
        Labels: each class is tried; probabilities: the frequencies of the classes; scores:
        0; values: mean and median.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> best_constant(get_metric("accuracy"), np.array([0, 1, 1]), None, np.array(["a", "b"]))
    array(1, dtype=int32)
    """
    if classes is None or metric.response == "values":
        centres = np.average(targets, axis=0, weights=weights), np.median(targets, axis=0)
        rows = [np.asarray(centre, dtype=np.float64) for centre in centres]
    elif metric.response == "labels":
        rows = [np.asarray(code, dtype=np.int32) for code in range(len(classes))]
    elif metric.response == "probabilities":
        # One more of each, so that a class the holdout lacks costs no infinite loss.
        counts = np.bincount(targets, weights, minlength=len(classes)) + 1
        rows = [counts / counts.sum()]
    else:
        rows = [np.asarray(0.0)]
    evaluated = ((evaluated_everywhere(row, metric, targets, weights), row) for row in rows)
    found = [(evaluation.risk, row) for evaluation, row in evaluated if evaluation is not None]
    return min(found, key=itemgetter(0))[1] if found else None


def evaluated_everywhere(
    row: Array, metric: Metric, targets: Array, weights: Array | None
) -> Evaluation | None:
    """Evaluate the prediction of one row for all of them; None where the metric has no value.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> evaluated_everywhere(np.array(1), get_metric("accuracy"), np.array([0, 1]), None).risk
    0.5
    """
    try:
        return metric.evaluate(targets, everywhere(row, len(targets)), weights)
    except InvalidSubmission:
        return None


def everywhere(row: Array, n: int) -> Array:
    """Return the prediction of one row for n of them.

    Examples
    --------
    >>> everywhere(np.array([1.0, 2.0]), 3).tolist()
    [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    """
    return np.repeat(np.asarray(row)[np.newaxis], n, axis=0)


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
        Whether it rests on a bootstrap: right only for many rows.

    Examples
    --------
    >>> print(Interval(0.1, 0.05, 0.15, 0.95, "paired t").line())
    0.1 (95 % interval 0.05 to 0.15), paired t
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

    def line(self, rows: str = "") -> str:
        """Return it in a line, with the rows and how it was computed."""
        return f"{self}{rows}, {self.method}"


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
        Source of the Bayesian bootstrap.

    Returns
    -------
    Interval
        Exact binomial (Clopper & Pearson 1934) for losses of 0 and 1, by Student's t for
        other means of losses, by a Bayesian bootstrap (Rubin 1981) for all else, and for
        all where whole groups of rows were drawn, which it weighs then.

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

        def resampled(weights: FloatArray) -> float:
            return metric.to_score(evaluation.risk_under(weights))

        draws = _bootstrapped(resampled, evaluation, rng)
        return _normal(score, draws, confidence, "Bayesian bootstrap")
    if _zero_one(losses):
        errors, log_level = int(losses.sum()), math.log((1 - confidence) / 2)
        low, high = (
            metric.to_score(end(errors, len(losses), log_level))
            for end in (exact_upper, exact_lower)
        )
        return Interval(score, low, high, confidence, "exact binomial")
    return _student(score, losses, confidence, "Student's t")


def paired(
    metric: Metric,
    evaluation: Evaluation,
    other: Evaluation,
    confidence: float,
    rng: np.random.Generator,
) -> Interval:
    """Return how much better one model is than another on the same rows.

    Parameters
    ----------
    metric : Metric
    evaluation, other : Evaluation
        Evaluations on the same rows in the same order.
    confidence : float
    rng : numpy.random.Generator
        Source of the Bayesian bootstrap.

    Returns
    -------
    Interval
        The score of the first minus that of the second: exact limits (`paired_limits`) for losses
        of 0 and 1, a paired t interval for other means of losses, and a Bayesian bootstrap with
        the same weights for both for all else.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> ours, theirs = (Evaluation.from_losses([1] * wrong + [0] * (100 - wrong))
    ...                 for wrong in (10, 30))
    >>> print(paired(get_metric("accuracy"), ours, theirs, 0.95, np.random.default_rng(0)))
    0.2 (95 % interval 0.1184 to 0.2933)
    """
    score = metric.to_score
    value = plain(score(evaluation.risk) - score(other.risk))
    losses, other_losses = _linear_losses(metric, evaluation), _linear_losses(metric, other)
    if losses is None or other_losses is None:

        def difference(weights: FloatArray) -> float:
            return score(evaluation.risk_under(weights)) - score(other.risk_under(weights))

        draws = _bootstrapped(difference, evaluation, rng)
        return _normal(value, draws, confidence, "paired Bayesian bootstrap")
    gains = other_losses - losses
    if _zero_one(losses) and _zero_one(other_losses):
        better, worse = int((gains > 0).sum()), int((gains < 0).sum())
        limits = paired_limits(better, worse, len(gains), (1 - confidence) / 2)
        return Interval(value, limits.low, limits.high, confidence, "paired, exact")
    return _student(value, gains, confidence, "paired t")


def two_samples(stated: float, first: Interval, second: Interval) -> Interval:
    """Return the difference of two scores that were found on different rows.

    Nothing can be paired there. The interval combines those of the two scores (Zou & Donner
    2008; with binomial ones it is Newcombe's of 1998).

    Parameters
    ----------
    stated : float
        The first score as it was stated; it may be the rounded value of `first`.
    first, second : Interval
        The two scores, with the same confidence.

    Returns
    -------
    Interval
        Of `stated` minus the value of `second`.

    Examples
    --------
    >>> ours, theirs = (Interval(x, x - 0.3, x + 0.4, 0.95, "t") for x in (0.6, 0.5))
    >>> print(two_samples(0.6, ours, theirs))
    0.1 (95 % interval -0.4 to 0.6)
    """
    value = plain(stated - second.value)
    low = value - math.hypot(first.value - first.low, second.high - second.value)
    high = value + math.hypot(first.high - first.value, second.value - second.low)
    approximate = first.approximate or second.approximate
    return Interval(value, low, high, first.confidence, "two samples", approximate)


def _linear_losses(metric: Metric, evaluation: Evaluation) -> FloatArray | None:
    """Return losses of independent rows of which the score is the mean, if there are any.

    A root is none, and rows of one group are not independent.
    """
    return None if metric.root or evaluation.groups is not None else evaluation.losses


def _zero_one(losses: FloatArray) -> bool:
    return bool(np.isin(losses, (0.0, 1.0)).all())


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
    units = evaluation.n_draws  # whole groups, where these were drawn
    weights = (rng.dirichlet(np.ones(units)) * units for _ in range(DRAWS))
    return np.array([statistic(evaluation.of_examples(draw[None])[0]) for draw in weights])


def _normal(value: float, draws: FloatArray, confidence: float, method: str) -> Interval:
    # From the standard deviation and not from the percentiles: a correction for many tests
    # asks for tails that no thousand draws reach.
    width = -float(ndtri((1 - confidence) / 2)) * float(np.std(draws, ddof=1))
    return Interval(value, value - width, value + width, confidence, method, approximate=True)


def improvement_p(gain: Any, spread: Any, n: int) -> Any:
    """Return the p-value of a paired t-test for "no better than the incumbent".

    Blum & Hardt 2015, Section 4.1: heuristic as soon as a submission was chosen with the
    help of earlier answers, and in need of a correction where many are tested.

    Parameters
    ----------
    gain : float or ndarray
        Risk of the incumbent minus that of the submission.
    spread : float or ndarray
        Standard error of the mean difference of their losses; nan where it is not known.
    n : int
        Number of rows.

    Returns
    -------
    float or ndarray
        One-sided; nan where the spread is.

    Examples
    --------
    >>> round(float(improvement_p(0.02, 0.01, 1000)), 4)
    0.0229
    """
    gain, spread = np.asarray(gain, dtype=np.float64), np.asarray(spread, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = np.atleast_1d(gain / spread)
    # In place: there may be millions.
    stdtr(max(n - 1, 1), np.negative(p_values, out=p_values), out=p_values)
    np.copyto(p_values, gain <= 0, where=spread == 0)
    np.copyto(p_values, 1.0, where=np.isinf(spread) | (n < 2))
    np.copyto(p_values, np.nan, where=np.isnan(spread))
    return p_values.reshape(np.broadcast_shapes(gain.shape, spread.shape))[()]


def spread_of_labels(disagreement: Any, gain: Any, n: int) -> Any:
    """Return the spread of `improvement_p` for the accuracy, from the labels that differ.

    With two classes exactly one of two labels that differ is right, so the share of rows in
    which the losses differ is the disagreement; with more classes it is less, and the spread
    that comes out is too large rather than too small.

    Parameters
    ----------
    disagreement : float or ndarray
        Share of the rows in which the labels differ.
    gain : float or ndarray
        Difference of the two risks.
    n : int
        Number of rows.

    Returns
    -------
    float or ndarray

    Examples
    --------
    >>> losses = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 0]])
    >>> exact = np.std(losses[0] - losses[1], ddof=1) / np.sqrt(5)
    >>> bool(np.isclose(spread_of_labels(3 / 5, 1 / 5, 5), exact))
    True
    """
    variance = np.maximum(disagreement - gain * gain, 0.0)
    return np.sqrt(variance / (n - 1)) if n > 1 else variance + math.inf


def holm(p_values: Sequence[float] | FloatArray) -> FloatArray:
    """Correct p-values for being many, by Holm's procedure (1979).

    Parameters
    ----------
    p_values : sequence of float or ndarray
        All tests that were made.

    Returns
    -------
    ndarray
        The corrected p-values in the same order; each is compared with the level itself.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    corrected = np.empty_like(p)
    corrected[order] = adjusted
    return corrected


def leaderboard_error(true: Sequence[float] | Array, stated: Sequence[float] | Array) -> float:
    """Return how far the stated best score was ever from the best true one.

    Blum & Hardt 2015, Section 2.1, in scores instead of losses.

    Parameters
    ----------
    true : sequence of float
        True score of each submission.
    stated : sequence of float
        The released score after each.

    Returns
    -------
    float
        Largest distance of a stated score from the best true score up to there.

    Examples
    --------
    >>> leaderboard_error([0.5, 0.7, 0.6], [0.5, 0.5, 0.8])
    0.2
    """
    best = np.maximum.accumulate(np.asarray(true, dtype=np.float64))
    return plain(float(np.max(np.abs(best - np.asarray(stated, dtype=np.float64)))))


def plain(difference: float) -> float:
    """Return a difference of scores without the noise of its last binary digits.

    Examples
    --------
    >>> 0.9 - 0.7, plain(0.9 - 0.7)
    (0.20000000000000007, 0.2)
    """
    return float(f"{difference:.12g}")
