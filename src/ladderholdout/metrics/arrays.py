"""Labels and predictions in whatever container, as checked and canonical NumPy arrays.

Values with an index of pandas are brought to the order of the rows, or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.identity.spelling import any_number

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Array = NDArray[Any]
_TEXT, _NUMBERS = "U", "biuf"


class Indexed(np.ndarray):
    """Values of rows with their index, by which a function of the user's looks rows up."""

    index: Any = None

    def __getitem__(self, key: Any) -> Any:
        """Return some values; those of some rows have their index."""
        taken = super().__getitem__(key)
        if self.index is not None and isinstance(key, np.ndarray):
            taken.index = self.index[key]
        return taken


def indexed(values: Array, index: Any) -> Array:
    """Return values with the index of their rows, if there is one."""
    if index is None:
        return values
    view = values.view(Indexed)
    view.index = index
    return view


def read_only(array: Array) -> Array:
    """Return another array object over the same memory that refuses writes."""
    view = array.view()
    if isinstance(array, Indexed):
        view = indexed(view, array.index)
    view.flags.writeable = False
    return view


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


_SURVIVAL = (
    "For events and times, give one signed time for each row, np.where(event, time, -time), and a "
    "ladderholdout.Metric of your own that reads it."
)


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
            "Submit the model itself, holdout.submit(model), or what it predicts.",
        )
    refuse_masked(argument, values)
    try:
        # NumPy makes text of [1, "a"], so lists are read entry by entry.
        as_objects = object if isinstance(values, list | tuple) else None
        array: Array | None = np.asanyarray(values, dtype=as_objects)
    except Exception:  # its text may show entries, so what came is described below
        array = None
    if array is not values:  # what an object makes of itself may be masked, too
        refuse_masked(argument, array)
    array = None if array is None else np.asarray(array)
    if array is not None and array.dtype.kind in "OT":
        array = _of_one_type(array)
    if array is None or array.dtype.kind not in _TEXT + _NUMBERS:
        came = f"a {type(values).__name__} that holds something else, or missing values, or a mix"
        remedy = _SURVIVAL if argument == "y" and array is not None and array.dtype.names else ""
        raise refusal(argument, "an array of real numbers or an array of text", came, remedy)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _of_one_type(array: Array) -> Array | None:
    """Return objects as an array of NumPy's own types; None where there is none for all."""
    try:
        objects = array.astype(object)  # NumPy's strings of any length may hold missing values
        are_texts = {isinstance(entry, str) for entry in objects.flat}
        if are_texts == {True}:
            return objects.astype(str)
        return None if True in are_texts else np.array(objects.tolist())
    except Exception:  # its text may show entries
        return None


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
        two = argument == "y" and labels.ndim == 2 and labels.shape[1] == 2
        raise refusal(argument, allowed, described(labels), _SURVIVAL if two else "")
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
    are_consecutive = (
        classes.dtype.kind in "bi"
        and int(classes[-1]) - int(classes[0]) == len(classes) - 1
        and abs(int(classes[0])) < 2**31  # small enough to subtract
    )
    if are_consecutive and labels.dtype.kind in "bi":
        codes: IntArray = np.subtract(labels, classes[0], dtype=np.int64)
        # Read as if there were no signs, those below zero are the largest.
        if codes.size and np.maximum.reduce(codes.view(np.uint64)) < len(classes):
            return codes
        return np.where((codes >= 0) & (codes < len(classes)), codes, -1)
    codes = np.searchsorted(classes, labels)
    codes[codes == len(classes)] = 0
    return np.where(classes[codes] == labels, codes, -1)


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
    classes = sorted_classes(y)
    if known is None:
        return classes
    if is_text(classes) != is_text(known):
        raise InvalidArgument(
            "y", "labels like those of the fit", "text for numbers or the reverse"
        )
    return np.unique(np.concatenate([classes, known]))


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


def _check_shape(array: Array, n: int, dimensions: int, allowed: str, remedy: str) -> None:
    """Refuse predictions of another length, or of more dimensions."""
    if not 1 <= array.ndim <= dimensions or len(array) != n:
        raise InvalidSubmission("predictions", allowed, described(array), remedy)


def canonical_labels(predictions: Any, n: int, classes: Array) -> NDArray[np.int32]:
    """Return the codes of predicted labels, int32 of shape (n,)."""
    labels = readable(predictions, "predictions")
    allowed = f"one label for each of the {n} rows"
    remedy = "Submit predict(X); probabilities and scores need another metric."
    _check_shape(labels, n, 1, allowed, remedy)
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


def canonical_probabilities(
    predictions: Any, n: int, classes: Array, *, logs: bool = False
) -> FloatArray:
    """Return class probabilities in the order of ``classes``, float64 of shape (n, C).

    For ``logs`` those of less than double precision are clipped by their own, as scikit-learn does.
    """
    width = len(classes)
    allowed = f"probabilities of shape ({n}, {width}), columns in the order of the sorted classes"
    if width == 2:
        allowed += f", or of shape ({n},) for the second class"
    remedy = "Submit predict_proba(X); labels need a metric such as 'accuracy'."
    array = readable(predictions, "predictions")
    table = number_array(array, "predictions", allowed, remedy)
    _check_shape(table, n, 2, allowed, remedy)
    _check_unit_interval(table)
    # Of double precision what is beyond its own is clipped by the loss.
    eps = float(np.finfo(array.dtype).eps) if logs and array.dtype.char in "ef" else 0.0
    if table.ndim == 1 and width == 2:
        second = np.clip(table, 0.0, 1.0)
        second = 1 - second if is_of_first(names_of(predictions), classes) else second
        table = np.column_stack([1 - second, second])
    elif table.shape != (n, width):
        raise InvalidSubmission("predictions", allowed, described(table), remedy)
    else:
        table = by_column_names(predictions, table, classes)
        first, last = table[:, 0].astype(array.dtype), table[:, -1].astype(array.dtype)
        # Near 1 the second of two may be rounded to less than the first states.
        table = _normal_rows(table, eps, both=eps > 0 and not np.array_equal(first, 1 - last))
    return np.clip(table, eps, 1 - eps) if eps else table


def names_of(predictions: Any) -> list[Any]:
    """Return the names of a table's columns, or that of a Series; none of an array."""
    try:
        of_arrow = not hasattr(predictions, "iloc") and hasattr(predictions, "column_names")
        names = predictions.column_names if of_arrow else getattr(predictions, "columns", None)
        return [predictions.name] if names is None else list(names)
    except Exception:  # of an object of any kind
        return []


def _value_of(name: Any) -> Any:
    """Return what a name spells: a number, true or false, or a text."""
    name = name.item() if isinstance(name, np.generic) else name
    if not isinstance(name, str):
        return name
    number = {"true": 1, "false": 0}.get(name.strip().casefold(), any_number(name))
    return name.strip() if number is None else number


def class_codes(names: Sequence[Any], classes: Array) -> list[int]:
    """Return the place of the class that each name means, however it is spelled; -1 for none.

    Examples
    --------
    >>> class_codes(["1", 0.0, True, "no"], np.array([0, 1])), class_codes([7], np.array(["007"]))
    ([1, 0, 1, -1], [0])
    """
    labels = classes.tolist()
    spelled = {str(label): place for place, label in enumerate(labels)}
    meant = {_value_of(label): place for place, label in enumerate(labels)}
    if len(meant) < len(labels):  # "7" and "007" are two classes here
        meant = {}
    return [spelled.get(str(name), meant.get(_value_of(name), -1)) for name in names]


def is_of_first(names: Sequence[Any], classes: Array) -> bool:
    """Return whether one column is named after the first of two classes.

    Raises
    ------
    InvalidSubmission
        Its name is 0, which pandas writes for the first column of any table, too.
    """
    if len(names) != 1 or len(classes) != 2 or class_codes(names, classes) != [0]:
        return False
    if _value_of(names[0]) == 0:
        allowed = "a column for each class, or one that is named after the second"
        remedy = "Give both columns, or .to_numpy() of that of the second class."
        came = "one named 0, which may be the first class or no name at all"
        raise InvalidSubmission("predictions", allowed, came, remedy)
    return True


def by_column_names(
    predictions: Any, table: Array, classes: Array, *, in_order: bool = False
) -> Array:
    """Bring a table's columns in the order of the classes that they are named after.

    Names that are no classes are refused, unless they count the columns or these are known to be
    ``in_order``.
    """
    names = names_of(predictions)
    if len(names) != len(classes) or table.shape[1:] != (len(names),):
        return table
    codes = class_codes(names, classes)
    if sorted(codes) == list(range(len(codes))):
        return table[:, np.argsort(codes)]
    counted = ([*range(len(names))], [f"column_{place}" for place in range(len(names))])
    if in_order or names in counted:
        return table
    raise InvalidSubmission(
        "predictions",
        f"{len(classes)} columns, each named after one of the holdout's classes",
        f"a table of {len(names)} columns with other names",
        "Write pandas.DataFrame(model.predict_proba(X), columns=model.classes_), or give "
        ".to_numpy() of columns in the order of the sorted classes.",
    )


def _check_unit_interval(table: FloatArray) -> None:
    if table.size and table.min() >= -_ROUNDING and table.max() <= 1 + _ROUNDING:
        return
    outside = np.count_nonzero((table < -_ROUNDING) | (table > 1 + _ROUNDING))
    if outside:
        remedy = "Submit predict_proba(X); labels, margins and percentages need another form."
        came = f"an array with {outside} values outside"
        raise InvalidSubmission("predictions", "probabilities in [0, 1]", came, remedy)


def _normal_rows(table: FloatArray, eps: float, *, both: bool) -> FloatArray:
    two = table.shape[1] == 2
    # Along rows of two NumPy adds several times as slowly, to the same sums.
    sums = table[:, 0] + table[:, 1] if two else table.sum(axis=1)
    unequal = np.count_nonzero(np.abs(sums - 1) > _SUM_TOLERANCE + eps * table.shape[1])
    if unequal:
        came = f"an array with {unequal} rows that do not"
        remedy = "Divide each row by its sum, or leave a class in that is missing."
        raise InvalidSubmission("predictions", "rows that sum to 1 within 0.001", came, remedy)
    if two and not both:
        # One vector or two columns: the second class decides, as in scikit-learn.
        second = np.clip(table[:, 1], 0.0, 1.0)
        return np.column_stack([1 - second, second])
    return np.ascontiguousarray(np.clip(table, 0.0, 1.0))


def canonical_scores(predictions: Any, n: int, classes: Array) -> FloatArray:
    """Return scores of the second of two classes, float64 of shape (n,)."""
    allowed = f"one score of the second class for each of the {n} rows"
    remedy = "Submit decision_function(X) or predict_proba(X)[:, 1]."
    scores, names = number_array(predictions, "predictions", allowed, remedy), names_of(predictions)
    if len(names) == 2 and scores.shape == (n, 2):
        scores = np.ascontiguousarray(by_column_names(predictions, scores, classes)[:, 1])
    _check_shape(scores, n, 1, allowed, remedy)
    return 0.0 - scores if is_of_first(names, classes) else scores


def canonical_values(
    predictions: Any, n: int, multioutput: bool, support: Support | None
) -> FloatArray:
    """Return predicted values, float64 of shape (n,) or (n, m)."""
    allowed = f"one number for each of the {n} rows" + (" and outputs" if multioutput else "")
    remedy = "Submit predict(X)."
    values = number_array(predictions, "predictions", allowed, remedy)
    _check_shape(values, n, 1 + multioutput, allowed, remedy)
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


def by_index(predictions: Any, X: Any) -> Any:
    """Return predictions in the order of the rows, where both have the same index of their own.

    Raises
    ------
    InvalidSubmission
        The two contradict each other, and nobody can know what is meant.
    """
    index, rows = index_of(predictions), index_of(X)
    if index is None or rows is None or len(index) != len(rows) or rows.equals(index):
        return predictions
    same_entries = index.is_unique and rows.is_unique and (index.get_indexer(rows) >= 0).all()
    # Positions that somebody counted name no rows.
    if same_entries and not is_counted(index) and not is_counted(rows):
        return predictions.iloc[index.get_indexer(rows)]
    check_index("predictions", predictions, X)
    return predictions


def check_index(argument: str, values: Any, X: Any, of: str = "X") -> None:
    """Refuse a pandas index that contradicts that of the rows.

    Values are taken by position, as scikit-learn takes them. Where the index has the rows in
    another order, or other rows, that is not what is meant, or nobody can know.
    """
    index, rows = index_of(values), index_of(X)
    if index is None or rows is None or len(index) != len(rows) or rows.equals(index):
        return
    same = _sortable(rows, index) and rows.sort_values().equals(index.sort_values())
    if not same and (is_counted(index) or is_counted(rows)):
        return  # one of the two was never given an index, and holds its rows by position
    raise refusal(
        argument,
        "in the order of the rows by its index too",
        "indexed like the rows, in another order" if same else "indexed by other rows",
        f"Bring it to their order, {argument}.loc[{of}.index], or give {argument}.to_numpy() to "
        "take it by position.",
    )


def is_counted(index: Any) -> bool:
    """Return whether an index only counts the rows."""
    return bool(list(index) == list(range(len(index))))


def index_of(values: Any) -> Any:
    """Return the index of a pandas object; None of all else."""
    try:
        index = getattr(values, "index", None)
        return index if hasattr(index, "equals") and hasattr(index, "sort_values") else None
    except Exception:  # of an object of any kind
        return None


def _sortable(*indexes: Any) -> bool:
    try:
        return all(index.sort_values() is not None for index in indexes)
    except TypeError:  # entries of several types
        return False


def shares_of_groups(groups: IntArray, values: FloatArray, *, alike: bool) -> FloatArray:
    """Return the sum of each group as a share of the most that it can be, of values up to 1.

    Parameters
    ----------
    groups : ndarray of int, shape (n,)
        The number of each value's group, from 0 on; each number occurs.
    values : ndarray of shape (n,)
    alike : bool
        Whether every group counts alike: its share is of its own size then, and of the size of the
        largest group otherwise.

    Returns
    -------
    ndarray of shape (n_groups,)

    Examples
    --------
    >>> shares_of_groups(np.array([0, 0, 1]), np.ones(3), alike=False).tolist()
    [1.0, 0.5]
    """
    sizes = np.bincount(groups)
    return np.asarray(np.bincount(groups, values) / (sizes if alike else sizes.max()))
