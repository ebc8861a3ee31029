"""Labels and predictions in whatever container, as checked and canonical NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.metrics.evaluation import Array, FloatArray, IntArray

_TEXT, _NUMBERS = "U", "biuf"


def refusal(argument: str, allowed: str, came: str, remedy: str = "") -> InvalidArgument:
    """Return the error for a bad argument: of predictions, an `InvalidSubmission`."""
    kind = InvalidSubmission if argument == "predictions" else InvalidArgument
    return kind(argument, allowed, came, remedy)


def refuse_masked(argument: str, values: Any) -> None:
    """Refuse a masked array with an entry that is masked, or a list that holds one.

    NumPy would go on with whatever is below the mask.
    """
    if has_mask(values):
        fill = f"np.ma.filled({argument}, value)"
        remedy = f"Leave those rows out, or give {fill} where a value is meant."
        if argument == "predictions":
            remedy = f"Each row needs a prediction: give {fill}."
        came = "a masked array in which some are masked"
        raise refusal(argument, "without masked entries", came, remedy)


def has_mask(values: Any) -> bool:
    """Return whether an array, a list or a cell of them is masked anywhere.

    Examples
    --------
    >>> has_mask(np.ma.array([1, 2], mask=[0, 1])), has_mask([np.ma.array([1, 2])])
    (True, False)
    """
    # Not by recursion: lists may be nested deeper than Python calls, or contain themselves.
    waiting, seen = [values], set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, np.ma.MaskedArray) and np.ma.getmaskarray(part).any():
            return True
        holds = type(part) in (list, tuple) or (
            isinstance(part, np.ndarray) and part.dtype == object
        )
        if not holds or id(part) in seen:
            continue
        seen.add(id(part))
        cells = part if type(part) in (list, tuple) else np.ravel(np.asarray(part))
        # Most hold one type that can have no mask: found out without reading each.
        if any(issubclass(kind, _MAY_HOLD) for kind in set(map(type, cells))):
            waiting += (cell for cell in cells if isinstance(cell, _MAY_HOLD))
    return False


_MAY_HOLD = (np.ndarray, list, tuple)


def described(array: Array) -> str:
    """Return shape and kind of an array in words, without its values."""
    kind = "text" if is_text(array) else array.dtype.name
    return f"an array of shape {array.shape} of {kind}"


def is_text(array: Array) -> bool:
    """Return whether an array holds strings."""
    return array.dtype.kind == _TEXT


def readable(values: Any, argument: str) -> Array:
    """Return ``values`` as an array of text, booleans or real numbers; a column is flat.

    Raises
    ------
    InvalidArgument
        If there are missing, mixed or other entries (`InvalidSubmission` of predictions).
    """
    if argument == "predictions" and hasattr(type(values), "predict"):
        raise refusal(
            argument,
            "an array with a prediction for each row",
            f"a {type(values).__name__}, which is a model",
            "Give the model to holdout.evaluate(model), or its predictions to submit.",
        )
    refuse_masked(argument, values)
    array = _read(values, argument)
    if array is None or array.dtype.kind not in _TEXT + _NUMBERS:
        came = f"a {type(values).__name__} that holds something else, or missing values, or a mix"
        raise refusal(argument, "an array of real numbers or an array of text", came)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _read(values: Any, argument: str) -> Array | None:
    try:
        # NumPy makes text of [1, "a"], so lists are read entry by entry.
        as_object = object if isinstance(values, list | tuple) else None
        # What an object makes of itself may be masked, too.
        array = np.asanyarray(values, dtype=as_object)
        masked = has_mask(array)
        if not masked:
            return _narrowed(np.asarray(array))
    except Exception:  # its text may show entries; `readable` describes what came
        return None
    refuse_masked(argument, array)
    return None


def _narrowed(array: Array) -> Array | None:
    if array.dtype.kind == "T":  # NumPy's strings of any length may hold missing values
        array = array.astype(object)
    if array.dtype.kind != "O":
        return array
    text = {isinstance(entry, str) for entry in array.flat}
    if text == {True, False}:
        return None
    return array.astype(str) if text == {True} else np.array(array.tolist())


def read_once(values: Any) -> Any:
    """Return values of which each reading gives the same; others are read now.

    Examples
    --------
    >>> class Lazy:
    ...     def __array__(self, dtype=None, copy=None):
    ...         return np.random.default_rng().random(3)
    ...
    >>> values = read_once(Lazy())
    >>> bool((np.asarray(values) == np.asarray(values)).all())
    True
    """
    if isinstance(values, np.ndarray | list | tuple) or hasattr(values, "dtype"):
        return values
    if hasattr(values, "columns"):  # a frame
        return values
    try:
        return np.asanyarray(values)
    except Exception:  # `readable` refuses it
        return values


def label_vector(values: Any, argument: str) -> Array:
    """Return class labels as an array of shape (n,), n >= 1: text, booleans or whole numbers."""
    labels = readable(values, argument)
    allowed = "one label for each row: text or whole numbers"
    if labels.ndim != 1 or labels.size == 0:
        raise refusal(argument, allowed, described(labels))
    if labels.dtype.kind == "f" and not _are_whole(labels):
        came = "an array with fractions, nan or infinity"
        raise refusal(argument, allowed, came, "Use a regression metric for measured targets.")
    return labels


def _are_whole(numbers: Array) -> bool:
    return bool(np.all(np.isfinite(numbers) & (np.floor(numbers) == numbers)))


def codes_of(labels: Array, classes: Array) -> IntArray:
    """Return the position of each label in the sorted ``classes``, -1 for those not there."""
    if is_text(labels) != is_text(classes):
        return np.full(labels.shape, -1, dtype=np.intp)
    if _are_consecutive(classes) and labels.dtype.kind in "bi":
        codes: IntArray = np.subtract(labels, classes[0], dtype=np.int64)
        # Read as if there were no signs, those below zero are the largest.
        if codes.size and np.maximum.reduce(codes.view(np.uint64)) < len(classes):
            return codes
        return np.where((codes >= 0) & (codes < len(classes)), codes, -1)
    codes = np.searchsorted(classes, labels)
    codes[codes == len(classes)] = 0
    return np.where(classes[codes] == labels, codes, -1)


def _are_consecutive(classes: Array) -> bool:
    """Return whether classes are whole numbers without a gap, small enough to subtract."""
    if classes.dtype.kind not in "bi":
        return False
    first, last = int(classes[0]), int(classes[-1])
    return last - first == len(classes) - 1 and abs(first) < 2**31


def united(first: Array, second: Array) -> Array | None:
    """Return the sorted union of two sets of classes, None if text would meet numbers."""
    if is_text(first) != is_text(second):
        return None
    return np.unique(np.concatenate([first, second]))


def sorted_classes(y: Any, classes: Any = None) -> Array:
    """Return the classes of labels; given ``classes`` have to hold every label."""
    labels = label_vector(y, "y")
    if classes is None:
        return np.unique(labels)
    stated = label_vector(classes, "classes")
    given = np.unique(stated)
    target_codes(labels, given)
    return given


def union_of_classes(y: Any, known: Array | None) -> Array:
    """Return the classes of labels together with those an estimator knows."""
    found = sorted_classes(y)
    union = found if known is None else united(found, known)
    if union is None:
        raise InvalidArgument(
            "y", "labels like those of the fit", "text for numbers or the reverse"
        )
    return union


def target_codes(y: Any, classes: Array) -> IntArray:
    """Return the positions of labels in ``classes``, intp of shape (n,)."""
    codes = codes_of(label_vector(y, "y"), classes)
    unknown = np.count_nonzero(codes < 0)
    if unknown:
        allowed = f"labels of the {len(classes)} classes"
        remedy = "classes= has to name every class."
        raise InvalidArgument(
            "y", allowed, f"another one in {unknown} of {len(codes)} rows", remedy
        )
    return codes


def number_array(values: Any, argument: str, allowed: str, remedy: str = "") -> FloatArray:
    """Return finite real numbers as a private, C-contiguous float64 array without -0.0."""
    array = readable(values, argument)
    if is_text(array):
        raise refusal(argument, allowed, described(array), remedy)
    numbers = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(numbers).all():
        bad = np.isnan(numbers).sum(), np.isinf(numbers).sum()
        came = f"{described(array)} with {bad[0]} nan and {bad[1]} infinite"
        raise refusal(argument, allowed, came, "Replace or drop them before.")
    numbers += 0.0  # turns -0.0 into 0.0
    return numbers


# Within these limits no loss overflows. Beyond them it would for some targets and not for
# others, and a refusal, which no ledger counts, would reveal which.
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
        Predictions are above it.
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
    if np.minimum.reduce(codes) < 0:
        raise _unknown_labels(labels, classes, np.flatnonzero(codes < 0))
    return codes.astype(np.int32)


def _unknown_labels(labels: Array, classes: Array, unknown: Array) -> InvalidSubmission:
    came = f"{len(unknown)} of {len(labels)} outside of them, the first at position {unknown[0]}"
    remedy = "If the training rows hold more classes, pass classes= when registering the holdout."
    if is_text(labels) != is_text(classes):
        kinds = [("text" if is_text(array) else "numbers") for array in (labels, classes)]
        came = f"{kinds[0]} where the classes are {kinds[1]}"
        remedy = "Submit labels as they are in y."
    elif is_text(labels) and _folded(labels) <= _folded(classes):
        remedy = "They differ from the classes by capitals or spaces: write them as they are in y."
    elif labels.dtype.kind == "f" and np.any(labels != np.round(labels)):
        remedy = "They hold fractions or nan: submit predict(X), not probabilities or scores."
    return InvalidSubmission("predictions", "labels of the holdout's classes", came, remedy)


def _folded(texts: Array) -> set[str]:
    return {text.strip().casefold() for text in np.unique(texts).tolist()}


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
    return _normal_rows(by_column_names(predictions, table, classes))


def by_column_names(predictions: Any, table: FloatArray, classes: Array) -> FloatArray:
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
    if table.size and table.min() >= -_ROUNDING and table.max() <= 1 + _ROUNDING:
        return
    outside = np.count_nonzero((table < -_ROUNDING) | (table > 1 + _ROUNDING))
    if outside:
        remedy = "Submit predict_proba(X); labels, margins and percentages need another form."
        came = f"an array with {outside} values outside"
        raise InvalidSubmission("predictions", "probabilities in [0, 1]", came, remedy)


def _normal_rows(table: FloatArray) -> FloatArray:
    two = table.shape[1] == 2
    # Along rows of two NumPy adds several times as slowly, to the same sums.
    sums = table[:, 0] + table[:, 1] if two else table.sum(axis=1)
    unequal = np.count_nonzero(np.abs(sums - 1) > _SUM_TOLERANCE)
    if unequal:
        came = f"an array with {unequal} rows that do not"
        remedy = "Divide each row by its sum, or leave a class in that is missing."
        raise InvalidSubmission("predictions", "rows that sum to 1 within 0.001", came, remedy)
    if two:
        # One vector or two columns: the second class decides, as in scikit-learn.
        second = np.clip(table[:, 1], 0.0, 1.0)
        return np.column_stack([1 - second, second])
    return np.ascontiguousarray(np.clip(table, 0.0, 1.0))


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
