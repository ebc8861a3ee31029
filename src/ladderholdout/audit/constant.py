"""The best prediction that is the same for every row: what any finding has to beat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidSubmission
from ladderholdout.metrics import Metric

Array = NDArray[Any]


def best_constant(
    metric: Metric, targets: Array, weights: Array | None, classes: Array | None
) -> Array | None:
    """Return the constant prediction with the smallest risk on these rows.

    Parameters
    ----------
    metric : Metric
    targets : ndarray of shape (n,) or (n, m)
        In canonical form.
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
    risks: list[tuple[float, int, Array]] = []
    for row in _candidates(metric, targets, weights, classes):
        try:
            predictions = everywhere(row, len(targets))
            risks.append((metric.evaluate(targets, predictions, weights).risk, len(risks), row))
        except InvalidSubmission:
            continue
    return min(risks)[2] if risks else None


def everywhere(row: Array, n: int) -> Array:
    """Return the prediction of one row for n of them."""
    return np.repeat(np.asarray(row)[np.newaxis], n, axis=0)


def _candidates(
    metric: Metric, targets: Array, weights: Array | None, classes: Array | None
) -> Iterator[Array]:
    if classes is None or metric.response == "values":
        yield np.asarray(np.average(targets, axis=0, weights=weights), dtype=np.float64)
        yield np.asarray(np.median(targets, axis=0), dtype=np.float64)
    elif metric.response == "labels":
        yield from (np.asarray(code, dtype=np.int32) for code in range(len(classes)))
    elif metric.response == "probabilities":
        # One more of each, so that a class the holdout lacks costs no infinite loss.
        counts = np.bincount(targets, weights, minlength=len(classes)) + 1
        yield counts / counts.sum()
    else:
        yield np.asarray(0.0)
