"""Predictions in one canonical form: equal predictions have equal bytes.

List, array, frame, integer or float: whatever they came in, the same predictions are the
same submission, or a repeat would pass for a new look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.metrics.arrays import (
    codes_of,
    described,
    is_text,
    label_vector,
    number_array,
    readable,
    refusal,
)
from ladderholdout.metrics.evaluation import Array, FloatArray

# Within these limits no loss overflows. Beyond them it would for some targets and not for
# others, and a refusal, which no ledger counts, would tell which.
LARGEST, SMALLEST = 1e100, 1e-100
_SUM_TOLERANCE = 1e-3
# Models in single precision miss the ends of [0, 1] by their rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Support:
    """The half-line of values on which a metric is defined.

    Parameters
    ----------
    lower : float
        Predictions lie above it.
    targets_may_touch : bool, default=False
        Whether a target may equal ``lower``.

    Examples
    --------
    >>> Support(0.0).count_outside(np.array([0.0, 1.0, -2.0]))
    2
    """

    lower: float
    targets_may_touch: bool = False

    def count_outside(self, values: Array, touching: bool = False) -> int:
        """Return how many values are not above the limit, nor (if ``touching``) on it."""
        distance = values - self.lower
        near = distance < SMALLEST
        return int(np.count_nonzero(near & (distance != 0) if touching else near))


def _check_length(array: Array, n: int, allowed: str, remedy: str = "") -> None:
    if array.ndim == 0 or len(array) != n:
        raise InvalidSubmission("predictions", allowed, described(array), remedy)


def canonical_labels(predictions: Any, n: int, classes: Array) -> NDArray[np.int32]:
    """Return the codes of predicted labels, int32 of shape (n,)."""
    labels = readable(predictions, "predictions")
    allowed = f"one label for each of the {n} rows"
    remedy = "Submit predict(X); probabilities and scores need another metric."
    _check_length(labels, n, allowed, remedy)
    if labels.ndim != 1:
        raise InvalidSubmission("predictions", allowed, described(labels), remedy)
    codes = codes_of(labels, classes)
    unknown = np.flatnonzero(codes < 0)
    if len(unknown):
        raise _unknown_labels(labels, classes, unknown)
    return codes.astype(np.int32)


def _unknown_labels(labels: Array, classes: Array, unknown: Array) -> InvalidSubmission:
    came = f"{len(unknown)} of {len(labels)} outside of them, the first at position {unknown[0]}"
    remedy = "If the training rows hold more classes, pass classes= when registering the holdout."
    if is_text(labels) != is_text(classes):
        kinds = [("text" if is_text(array) else "numbers") for array in (labels, classes)]
        came = f"{kinds[0]} where the classes are {kinds[1]}"
        remedy = "Submit labels as they stand in y."
    elif labels.dtype.kind == "f" and np.any(labels != np.round(labels)):
        remedy = "They hold fractions or nan: submit predict(X), not probabilities or scores."
    return InvalidSubmission("predictions", "labels of the holdout's classes", came, remedy)


def canonical_probabilities(predictions: Any, n: int, classes: Array) -> FloatArray:
    """Return class probabilities in the order of ``classes``, float64 of shape (n, C)."""
    width = len(classes)
    allowed = f"probabilities of shape ({n}, {width}), columns in the order of the sorted classes"
    if width == 2:
        allowed += f", or of shape ({n},) for the second class"
    remedy = "Submit predict_proba(X); labels need a metric such as 'accuracy'."
    table = number_array(predictions, "predictions", allowed, remedy)
    _check_length(table, n, allowed, remedy)
    _check_unit_interval(table)
    if table.ndim == 1 and width == 2:
        second = np.clip(table, 0.0, 1.0)
        return np.column_stack([1 - second, second])
    if table.shape != (n, width):
        raise InvalidSubmission("predictions", allowed, described(table), remedy)
    return _normal_rows(_by_column_names(predictions, table, classes))


def _by_column_names(predictions: Any, table: FloatArray, classes: Array) -> FloatArray:
    """Bring a frame's columns in the order of the classes they are named after."""
    names = getattr(predictions, "columns", None)
    if names is None or len(names) != len(classes):
        return table
    try:
        codes = codes_of(label_vector(names, "predictions"), classes)
    except InvalidArgument:  # no names of classes: the order has to be right already
        return table
    return table[:, np.argsort(codes)] if len(set(codes) - {-1}) == len(codes) else table


def _check_unit_interval(table: FloatArray) -> None:
    outside = np.count_nonzero((table < -_ROUNDING) | (table > 1 + _ROUNDING))
    if outside:
        remedy = "Submit predict_proba(X); labels, margins and percentages need another form."
        came = f"an array with {outside} values outside"
        raise InvalidSubmission("predictions", "probabilities in [0, 1]", came, remedy)


def _normal_rows(table: FloatArray) -> FloatArray:
    unequal = np.count_nonzero(np.abs(table.sum(axis=1) - 1) > _SUM_TOLERANCE)
    if unequal:
        came = f"an array with {unequal} rows that do not"
        remedy = "Divide each row by its sum, or leave a class in that is missing."
        raise InvalidSubmission("predictions", "rows that sum to 1 within 0.001", came, remedy)
    table = np.clip(table, 0.0, 1.0)
    if table.shape[1] == 2:
        # One vector or two columns: the second class decides, as in scikit-learn.
        table[:, 0] = 1 - table[:, 1]
    return np.ascontiguousarray(table)


def canonical_scores(predictions: Any, n: int) -> FloatArray:
    """Return scores of the second class, float64 of shape (n,)."""
    allowed = f"one score of the second class for each of the {n} rows"
    remedy = "Submit decision_function(X) or predict_proba(X)[:, 1]."
    scores = number_array(predictions, "predictions", allowed, remedy)
    _check_length(scores, n, allowed, remedy)
    if scores.ndim != 1:
        raise InvalidSubmission("predictions", allowed, described(scores), remedy)
    return scores


def canonical_values(
    predictions: Any, n: int, multioutput: bool, support: Support | None
) -> FloatArray:
    """Return predicted values, float64 of shape (n,) or (n, m)."""
    allowed = f"one number for each of the {n} rows" + (" and outputs" if multioutput else "")
    remedy = "Submit predict(X)."
    values = number_array(predictions, "predictions", allowed, remedy)
    _check_length(values, n, allowed, remedy)
    if values.ndim > 1 + multioutput:
        raise InvalidSubmission("predictions", allowed, described(values), remedy)
    check_magnitude(values, "predictions")
    outside = support.count_outside(values) if support is not None else 0
    if support is not None and outside:
        allowed = f"numbers above {support.lower:g}, by {SMALLEST:g} at least"
        came = f"an array with {outside} that are not"
        remedy = "Clip them, or take a metric without a logarithm."
        raise InvalidSubmission("predictions", allowed, came, remedy)
    return values


def check_magnitude(values: FloatArray, argument: str) -> None:
    """Refuse numbers so large that their squares or ratios may overflow."""
    outside = np.count_nonzero(np.abs(values) > LARGEST)
    if outside:
        allowed = f"numbers between {-LARGEST:g} and {LARGEST:g}"
        raise refusal(argument, allowed, f"an array with {outside} outside")
