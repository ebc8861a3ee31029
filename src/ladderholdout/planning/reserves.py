"""Whether a reserve is worth its rows: the widths of certificates with one and without."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from ladderholdout.arguments import inside, whole
from ladderholdout.certificates.metric_limits import Rows, bound_of, score_limits
from ladderholdout.certificates.reserve_intervals import reserve_log_count
from ladderholdout.certificates.transcript import Transcript, grid_of, ladder_transcript
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.intervals import exact_upper
from ladderholdout.mechanisms import FINALISTS, default_mechanism
from ladderholdout.metrics import Metric, get_metric
from ladderholdout.metrics.arrays import Array
from ladderholdout.metrics.scales import scale_of
from ladderholdout.metrics.scores import absolute, median_error, squared

# The reserve that certified most in simulations of searches that are steered by answers,
# at nearly every size. On fewer rows than these it certified no more than a search without.
HALF, FEWEST_ROWS = 0.5, 500
# It is recommended where it leaves at most this part of the width: the search misses its rows.
WORTH = 2.0 / 3.0
# What typical rows are: the largest error in root mean squared errors, and half of the range of
# the target in its standard deviations.
LARGEST, HALF_RANGE = 4.0, 3.35
# A climb begins with a model whose risk is so many times that of the last one.
BEGINNING = 1.5


@dataclass(frozen=True, slots=True)
class Widths:
    """How far the true score may be below the shown one, with a reserve and without.

    Attributes
    ----------
    log_count : float
        L of the certificate without a reserve, in nats.
    without, reserved : float
        By a certificate on all rows, and by the first query of a reserve.

    Examples
    --------
    >>> widths = reserve_advice(n=1000).finalists
    >>> round(widths.log_count, 1), round(widths.without, 3), round(widths.reserved, 3)
    (1.3, 0.026, 0.034)
    """

    log_count: float
    without: float
    reserved: float


@dataclass(frozen=True, slots=True)
class ReserveAdvice:
    """Which reserve to state at registration, and the widths that it leads to.

    Attributes
    ----------
    metric : str
    n : int
        Rows of the holdout.
    share : float
        Of the rows, for a search that is steered by answers; 0 recommends none.
    finalists : Widths
        For the winner of an announced batch, as `LadderHoldout.guard` has one.
    climb : Widths
        For a search in which each answer may steer the next submission.
    improvements : int
        Of the climb.

    Examples
    --------
    >>> advice = reserve_advice(n=5000, metric="roc_auc")
    >>> advice.share, advice.climb.without > 1.5 * advice.climb.reserved
    (0.5, True)
    """

    metric: str
    n: int
    share: float
    finalists: Widths
    climb: Widths
    improvements: int

    def __str__(self) -> str:
        """Return both widths for both uses, and the recommendation."""
        finalists, climb = self.finalists, self.climb
        head = f"reserve={HALF:g}"
        lines = [
            f"A reserve, {self.metric}: how far the true score may be below the shown one.",
            f"{'':34}{head:>12}{'all rows':>12}",
            f"{f'finalists of guard (L = {finalists.log_count:.1f})':34}"
            f"{finalists.reserved:>12.3g}{finalists.without:>12.3g}",
            f"{f'climb, {self.improvements} improvements (L = {climb.log_count:.1f})':34}"
            f"{climb.reserved:>12.3g}{climb.without:>12.3g}",
            "The winner of guard is certified on all rows: little was released before it.",
            f"If answers steer the search: reserve={self.share:g}."
            if self.share
            else "If answers steer the search: no reserve, it is not worth its rows.",
        ]
        return "\n".join(lines)


def reserve_advice(
    *,
    n: int,
    metric: str | Metric = "accuracy",
    submissions: int = 100,
    improvements: int = 5,
    risk: float = 0.1,
    confidence: float = 0.95,
) -> ReserveAdvice | None:
    """Recommend a reserve for a metric, with the widths either way.

    The widths are those of the library's certificates on typical rows: two classes of half of the
    rows each and scores with an AUC of 1 - risk; errors that are normal and at most four root mean
    squared errors large. No row of a holdout is read. The climb improves at submissions 1 to the
    last one at equal ratios, under the default rule.

    Parameters
    ----------
    n : int
        Rows of the holdout, at least 10.
    metric : str or Metric, default="accuracy"
        By name, or with its ranges. Where a range is needed and none is stated, it is four root
        mean squared errors, in units of such an error.
    submissions, improvements : int, default=100 and 5
        Of a search that is steered by answers; about so many improve under the default rules.
    risk : float, default=0.1
        The error rate expected of the winner, in (0, 1); 1 - risk is its AUC or R2.
    confidence : float, default=0.95
        In (0, 1).

    Returns
    -------
    ReserveAdvice or None
        None for a metric without a certificate, and for one of your own.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> print(reserve_advice(n=1000))
    A reserve, accuracy: how far the true score may be below the shown one.
                                       reserve=0.5    all rows
    finalists of guard (L = 1.3)            0.0341      0.0258
    climb, 5 improvements (L = 39.8)        0.0341       0.107
    The winner of guard is certified on all rows: little was released before it.
    If answers steer the search: reserve=0.5.
    """
    n, submissions = whole("n", n), whole("submissions", submissions)
    if n < 10:
        raise InvalidArgument("n", "a whole number of at least 10", n)
    improvements = min(whole("improvements", improvements), submissions)
    risk, confidence = inside("risk", risk), inside("confidence", confidence)
    typical = _Typical.of(get_metric(metric), n, risk)
    if typical is None:
        return None
    releases = typical.releases(submissions, improvements)
    # The winner of an announced batch, before which nothing was released.
    batch = Transcript(0, 1, (), size=FINALISTS, event=1)
    prices = batch.log_count(), releases.log_count()
    without = [typical.without(price, confidence) for price in prices]
    reserved = typical.reserved(confidence)
    share = HALF if reserved <= WORTH * without[1] and n >= FEWEST_ROWS else 0.0
    finalists, climb = (
        Widths(price, width, reserved) for price, width in zip(prices, without, strict=True)
    )
    return ReserveAdvice(typical.metric.name, n, share, finalists, climb, improvements)


@dataclass(frozen=True, slots=True, eq=False)
class _Typical:
    """Rows that are typical for a metric, in canonical form; nothing of a holdout is in them."""

    metric: Metric
    targets: Array
    predictions: Array

    @classmethod
    def of(cls, metric: Metric, n: int, risk: float) -> _Typical | None:
        """Make n rows; None where the metric has no certificate, or they are not known."""
        ranged = _with_ranges(metric, risk)
        if ranged is None or isinstance(bound_of(ranged), str):
            return None
        rng = np.random.default_rng(0)
        if not ranged.is_classification:
            known = ranged.loss in (absolute, squared) or ranged.prepare is median_error
            return (
                cls(ranged, *_errors(ranged, n, rng))
                if known or ranged.takes_target_range
                else None
            )
        if ranged.prepare is None and not ranged.is_mean:
            return None  # a score of one's own
        y = np.arange(n) % 2
        if ranged.response == "labels":
            # As many errors in each class.
            wrong = np.diff(np.floor(np.arange(n // 2 + 2) * risk)).astype(bool)[np.arange(n) // 2]
            return cls(ranged, y, np.where(wrong, 1 - y, y).astype(np.int32))
        shift = math.sqrt(2.0) * float(scipy.special.ndtri(1.0 - risk))
        scores = shift * (rng.standard_normal(n) + shift * (y - 0.5))
        if ranged.response == "scores":
            return cls(ranged, y, scores)
        chance = scipy.special.expit(scores)
        ranged = ranged.for_classes(np.array([0, 1])) if ranged.is_mean else ranged
        return cls(ranged, y, np.column_stack([1.0 - chance, chance]))

    def score(self) -> float:
        """Return the score on these rows."""
        return self.metric.to_score(self.metric.evaluate(self.targets, self.predictions).risk)

    def without(self, log_count: float, confidence: float) -> float:
        """Return how far the true score may be below the one on these rows."""
        level, n = math.log((1.0 - confidence) / 2.0) - log_count, len(self.targets)
        if self.metric.counts:
            errors = round(self.metric.evaluate(self.targets, self.predictions).risk * n)
            return exact_upper(errors, n, level) - errors / n
        rows = Rows(self.targets, self.predictions, np.random.default_rng(0))
        return self.score() - score_limits(self.metric, rows, level).low

    def reserved(self, confidence: float) -> float:
        """Return the same for the first query of a reserve of half of the rows."""
        n = max(1, math.floor(HALF * len(self.targets) + 0.5))
        part = _Typical(self.metric, self.targets[:n], self.predictions[:n])
        return part.without(reserve_log_count(1), confidence)

    def releases(self, submissions: int, improvements: int) -> Transcript:
        """Return what a climb on these rows had released before its last improvement."""
        n, metric = len(self.targets), self.metric
        last = metric.evaluate(self.targets, self.predictions).risk
        numbers = np.unique(np.ceil(np.geomspace(1, submissions, improvements)).astype(int))
        while len(numbers) < improvements:  # the first ones follow each other
            free = np.setdiff1d(np.arange(1, submissions + 1), numbers)
            numbers = np.sort(np.append(numbers, free[0]))
        before = int(numbers[-1]) - 1
        if not before:
            return Transcript.alone(None)
        rule = default_mechanism(metric, n)
        grid = grid_of(rule, n, binary=metric.counts)
        assert grid is not None  # no default rule hides how its releases are counted
        risks = np.linspace(BEGINNING * last, last, len(numbers))[:-1].tolist()
        if metric.counts:
            places = [round(risk * n) for risk in risks]
        else:
            scale, limits = scale_of(metric), metric.risk_range
            # Half of the chance is for values beyond a stated range.
            grid = replace(grid, n_values=scale.values(n, limits) * (1 + metric.clip))
            first = scale.number(0.0 if limits is None else limits[0], n)
            places = [scale.number(risk, n) - first for risk in risks]
        values = np.minimum(places, grid.n_values - 1)
        # Releases fall: on few rows by a step at least.
        values = np.minimum.accumulate(values + np.arange(len(values))) - np.arange(len(values))
        shown = values[values >= 0].tolist()
        improved = tuple(numbers[: len(shown)].tolist())
        return Transcript.alone(ladder_transcript(before, improved, tuple(shown), grid))


def _with_ranges(metric: Metric, risk: float) -> Metric | None:
    """Return a metric with the ranges that its certificate needs, in units of a typical error."""
    if metric.takes_target_range:
        if metric.target_range is not None:
            return metric
        largest = LARGEST * math.sqrt(risk)
        return metric.with_target_range((-HALF_RANGE, HALF_RANGE), (0.0, largest))
    if not metric.is_mean or metric.bounded:
        return metric
    if metric.loss is squared and not metric.root:
        return metric.with_range((0.0, LARGEST**2))
    return metric.with_range((0.0, LARGEST))


def _errors(metric: Metric, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return targets and predictions whose largest error is four root mean squared errors."""
    error = np.clip(rng.standard_normal(n) / LARGEST, -1.0, 1.0)
    if metric.target_range is not None and metric.largest_error is not None:
        low, high = metric.target_range
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        y = np.clip(middle + half * rng.standard_normal(n) / HALF_RANGE, low, high)
        return y, np.clip(y + metric.largest_error * error, low, high)
    assert metric.risk_range is not None or not metric.is_mean
    most = 1.0 if metric.risk_range is None else metric.risk_range[1]
    largest = math.sqrt(most) if metric.loss is squared else most
    return np.zeros(n), largest * error
