"""What a library's model puts out, turned into what a metric asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import described, is_text, label_vector, readable

Link: TypeAlias = Callable[[Any], Any]
# Models in single precision miss the ends of [0, 1] by their rounding.
_ROUNDING = 1e-6


def answer(
    metric: Metric,
    classes: NDArray[Any] | None,
    output: Any,
    known: ArrayLike | None = None,
    link: Link | None = None,
) -> NDArray[Any]:
    """Turn a model's output into predictions as a metric asks for them.

    Parameters
    ----------
    metric : Metric
    classes : ndarray of shape (C,) or None
        The holdout's classes, sorted; None for regression.
    output : array-like, shape (n,), (n, 1) or (n, C)
        Values for regression. For classification probabilities, one column for each class
        or one of the second class alone; a metric of ranks takes margins of the second as
        well.
    known : array-like of shape (C,), optional
        The model's classes in the order of its columns; by default the holdout's.
    link : callable, optional
        From raw margins to such an output, as `scipy.special.expit` or
        `scipy.special.softmax`; for objectives that yield margins.

    Returns
    -------
    ndarray
        Class labels, probabilities, scores or values.

    Raises
    ------
    InvalidArgument
        The output has another form; raw margins came where probabilities should.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout.metrics import get_metric
    >>> classes = np.array(["no", "yes"])
    >>> print(answer(get_metric("accuracy"), classes, [0.2, 0.9]))
    ['no' 'yes']
    >>> print(answer(get_metric("accuracy"), classes, [0.2, 0.9], known=["yes", "no"]))
    ['yes' 'no']
    """
    table = readable(output if link is None else link(output), "predictions")
    if not metric.is_classification or classes is None:
        return table
    if metric.response != "scores":
        _refuse_margins(table)
    order = classes if known is None else label_vector(known, "classes")
    columns = _columns(table, len(order))
    if metric.response == "probabilities" and np.array_equal(order, classes):
        return columns
    return metric.respond(_Answered(order, columns), None, classes)


class _Answered:
    """A fitted classifier that has given its answer, so that one path serves both."""

    def __init__(self, classes: NDArray[Any], columns: NDArray[Any]) -> None:
        self.classes_, self._columns = classes, columns

    def predict_proba(self, _: object) -> NDArray[Any]:
        return self._columns

    def predict(self, _: object) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[self._columns.argmax(axis=1)]
        return labels


def _columns(table: NDArray[Any], width: int) -> NDArray[Any]:
    """Return one column for each class; of the second class alone, the first follows."""
    if table.ndim == 1 and width == 2:
        return np.column_stack([1 - table, table])
    if table.ndim != 2 or table.shape[1] != width:
        raise InvalidSubmission(
            "predictions",
            f"one column for each of {width} classes",
            described(table),
            "Where the model knows other classes than the holdout, give classes= in its order.",
        )
    return table


def _refuse_margins(table: NDArray[Any]) -> None:
    # nan is refused where predictions are made canonical, with a message of its own.
    if is_text(table) or (table < -_ROUNDING).any() or (table > 1 + _ROUNDING).any():
        raise InvalidArgument(
            "link",
            "a function from raw margins to probabilities",
            "missing, or not one",
            "This model yields margins: give link=scipy.special.expit for two classes, or a "
            "softmax over the columns for more.",
        )
