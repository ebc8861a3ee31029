"""The parts of a holdout: the rows that its ladders measure, and those of its reserve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.metrics import Evaluation, Metric


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """Some rows of a holdout, in the order of their content; raw, so not shown.

    Attributes
    ----------
    chosen : ndarray of bool, shape (n,), or None
        Which rows of the holdout; None for all of them.
    targets : ndarray
        Canonical targets of these rows.
    weights : ndarray or None
        Their weights.
    """

    chosen: NDArray[np.bool_] | None
    targets: NDArray[Any]
    weights: NDArray[np.float64] | None

    def of(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Return the predictions for these rows out of those for the whole holdout."""
        return predictions if self.chosen is None else predictions[self.chosen]

    def evaluate(self, metric: Metric, predictions: NDArray[Any]) -> Evaluation:
        """Measure predictions for the whole holdout on these rows."""
        return metric.evaluate(self.targets, self.of(predictions), self.weights)


def parts_of(
    targets: NDArray[Any], weights: NDArray[np.float64] | None, reserve: NDArray[np.bool_] | None
) -> tuple[Part, Part | None]:
    """Return what the ladders measure, and the reserve if there is one.

    Parameters
    ----------
    targets, weights : ndarray
        Of all rows, in the order of their content.
    reserve : ndarray of bool, shape (n,), or None
    """
    if reserve is None:
        return Part(None, targets, weights), None

    def part(chosen: NDArray[np.bool_]) -> Part:
        return Part(chosen, targets[chosen], None if weights is None else weights[chosen])

    return part(~reserve), part(reserve)
