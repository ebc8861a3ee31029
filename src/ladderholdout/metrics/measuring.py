"""Run the function of a metric: quietly, and with nothing of its messages in an error."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from ladderholdout.errors import InvalidArgument, InvalidSubmission, LadderHoldoutError, MetricError
from ladderholdout.metrics import batched
from ladderholdout.metrics.arrays import Array, FloatArray, Indexed, index_of, indexed, read_only
from ladderholdout.metrics.evaluation import Evaluation, checked_weights
from ladderholdout.metrics.scores import WeightedScore, concordance
from ladderholdout.metrics.settings import MetricSettings
from ladderholdout.process import PerProcess

# A risk outside of its range by less is rounding.
_SLACK = 1e-9
# warnings.catch_warnings swaps filters of the whole process: two threads that interleave
# would leave them silenced permanently.
_FILTERS = PerProcess(threading.RLock)


def measure(
    metric: MetricSettings,
    targets: Array,
    predictions: Array,
    weights: FloatArray | None = None,
) -> Evaluation:
    """Return the evaluation of canonical predictions under the holdout's own weights."""
    # Views: MLflow knows what predict returned by its identity, and nobody's function may write
    # to the holdout.
    targets, predictions = read_only(targets), read_only(predictions)
    if isinstance(targets, Indexed):
        predictions = indexed(predictions, targets.index)
    loss = metric.loss
    if loss is None:
        return _of_score(metric, targets, predictions, weights)
    given = (targets, predictions) if is_ours(metric) else (_copy(targets), _copy(predictions))
    # A copy of what is returned: the function may write to its array again.
    losses: FloatArray = called(metric, lambda: np.array(loss(*given), dtype=np.float64))
    n, clipped, bounded = len(targets), None, None
    if losses.shape != (n,):
        came = f"one that returned shape {losses.shape}"
        raise InvalidArgument("loss", "a function that returns one loss for each row", came)
    if metric.clip and metric.risk_range is not None:
        bounded = np.clip(losses, *metric.risk_range)
        # Losses of nan are refused below, and are equal to nothing.
        clipped = int(np.count_nonzero(losses != bounded))
    losses = _within_range(metric, losses)
    if weights is not None:
        weights = weights * (n / weights.sum())
        losses = losses * weights
        bounded = None if bounded is None else bounded * weights
    # As `mean` adds them up, without what it does around it.
    risk = float(np.add.reduce(losses)) / n
    if not math.isfinite(risk):
        raise _undefined(metric, "the mean of its losses overflows")
    counts = metric.counts and weights is None
    return Evaluation(
        *(n, risk, read_only(losses), weights), clipped=clipped, _bounded=bounded, counts=counts
    )


def _copy(values: Array) -> Array:
    return indexed(values.copy(), index_of(values))


def _within_range(metric: MetricSettings, values: FloatArray) -> FloatArray:
    """Refuse values that are not finite or leave the range, but one to which limits clip them."""
    limits = metric.risk_range
    least, most = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    if not math.isfinite(most - least):
        raise _undefined(metric, "it returned no finite number")
    if limits is None or metric.clip or (limits[0] <= least and most <= limits[1]):
        return values
    if least < limits[0] - _SLACK or most > limits[1] + _SLACK:
        remedy = "State a wider range, or set clip=True."
        raise InvalidArgument("loss_range", f"wide enough for {metric.name!r}", "left", remedy)
    return np.clip(values, *limits)


def _scorer(
    metric: MetricSettings, targets: Array, predictions: Array
) -> Callable[[FloatArray | None], float]:
    """Return the score as a function of the weights; None is one for each row."""
    score = metric.score
    assert score is not None
    if isinstance(score, WeightedScore):
        prepared = called(metric, lambda: score.prepare(targets, predictions))
        ones = np.ones(len(targets))
        return lambda weights: prepared(ones if weights is None else weights)

    def weighted(weights: FloatArray | None) -> float:
        if weights is None or weights.all():
            # Copies: it is somebody else's function, and may write into what it is given.
            given = None if weights is None else weights.copy()
            return float(score(_copy(targets), _copy(predictions), sample_weight=given))
        # A row that does not count must not bring its class into an average.
        counts = weights > 0
        return float(score(targets[counts], predictions[counts], sample_weight=weights[counts]))

    return weighted


def _many(
    metric: MetricSettings,
    targets: Array,
    predictions: Array,
    scorer: Callable[[FloatArray | None], float],
) -> batched.Many:
    """Return the score as a function of many weightings, nan where there is none."""
    score = metric.score
    if isinstance(score, WeightedScore):
        # Few submissions are ever weighed, so nothing is prepared before one is.
        prepared = cache(lambda: batched.weighted_many(score.prepare, targets, predictions, scorer))
        return lambda weights: np.asarray(called(metric, lambda: prepared()(weights)))

    def single(weights: FloatArray) -> float:
        try:
            return float(called(metric, lambda: scorer(weights)))
        except InvalidSubmission:
            return math.nan

    return batched.one_by_one(single)


def _of_score(
    metric: MetricSettings, targets: Array, predictions: Array, row_weights: FloatArray | None
) -> Evaluation:
    n = len(targets)
    _, clipped = within_stated(metric, targets, predictions)
    scorer = _scorer(metric, targets, predictions)
    many = _many(metric, targets, predictions, scorer)

    def risk_of(weights: FloatArray | None) -> float:
        risk = metric.offset - called(metric, lambda: scorer(weights))
        return float(_within_range(metric, np.asarray(risk)))

    def reweighted(weights: FloatArray) -> float:
        combined = (
            weights if row_weights is None else checked_weights(weights * row_weights, n, "weights")
        )
        return risk_of(combined)

    def many_reweighted(weights: FloatArray) -> FloatArray:
        combined = weights if row_weights is None else weights * row_weights
        live = combined.sum(axis=1) > 0
        risks = np.full(len(weights), np.nan)
        # Without a copy where, as nearly always, all have some weight.
        risks[live] = metric.offset - many(combined if live.all() else combined[live])
        defined = np.isfinite(risks)
        if defined.any():
            risks[defined] = _within_range(metric, risks[defined])
        return risks

    def influences_on_risk() -> FloatArray | None:
        if row_weights is not None or metric.prepare is None:
            return None
        on_score = called(metric, lambda: batched.influences(metric.prepare, targets, predictions))
        return None if on_score is None else -on_score

    return Evaluation(
        n,
        risk_of(row_weights),
        None,
        clipped=clipped,
        _function=reweighted,
        _many=many_reweighted,
        _influences=influences_on_risk,
        needs_whole_weights=batched.needs_whole_weights(metric.prepare),
    )


def within_stated(
    metric: MetricSettings, targets: Array, predictions: Array
) -> tuple[Array, int | None]:
    """Clip predictions to the stated largest error, and count the rows where that changed them."""
    if metric.target_range is None or metric.largest_error is None:
        return predictions, None
    clipped = np.clip(predictions, targets - metric.largest_error, targets + metric.largest_error)
    if metric.prepare is concordance:  # it goes by their spread, too
        clipped = np.clip(clipped, *metric.target_range)
    changed = clipped != predictions
    return read_only(clipped), int(np.count_nonzero(changed.reshape(len(targets), -1).any(axis=1)))


def called(metric: MetricSettings, run: Callable[[], Any]) -> Any:
    """Run a function of the metric; what it raises for want of a value is a refusal.

    Anything else, such as a full memory or disk, has nothing to do with the predictions: taken for
    a missing value, a draw of a bootstrap would silently count against the submission.
    """
    try:
        # Warnings of a user's function are held back; ours know only those of NumPy.
        with np.errstate(all="ignore") if is_ours(metric) else _silence():
            return run()
    except LadderHoldoutError:  # holds nothing that may not be seen
        raise
    except Exception as error:
        kind = type(error).__name__
        missing = isinstance(error, ValueError | ArithmeticError) and not isinstance(error, OSError)
    # Raised after the handler, so that not even __context__ holds the text.
    if missing:
        raise _undefined(metric, f"it raised {kind}")
    raise MetricError(
        f"The metric {metric.name!r} failed: it raised {kind}. Nothing was written. Where it has "
        "no value for some predictions, its function has to raise ValueError or to return nan."
    )


def _undefined(metric: MetricSettings, reason: str) -> InvalidSubmission:
    allowed = f"such that {metric.name!r} has a value"
    return InvalidSubmission("predictions", allowed, f"such that {reason}")


def is_ours(metric: MetricSettings) -> bool:
    """Return whether the function of a metric is one of this library's."""
    function = metric.loss or metric.score
    function = getattr(function, "prepare", function)
    return str(getattr(function, "__module__", "")).startswith(__package__)


@contextmanager
def _silence() -> Iterator[None]:
    with _FILTERS(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
