"""A guarded holdout on a study of Optuna: a callback, and a picture of what was released."""

from __future__ import annotations

from typing import Any

from ladderholdout import LadderHoldout
from ladderholdout.integrations.optuna import Gate
from ladderholdout.integrations.optuna import plots
from matplotlib.axes import Axes
import optuna


__all__ = ["LadderGateCallback", "plot_ladder"]


class LadderGateCallback:
    """Query the holdout when the study's own best improves, and warn when it confirms nothing.

    Args:
        holdout: The guarded holdout.
        build: From a finished trial to a fitted estimator or to predictions.
        patience: Improvements in a row that the holdout may leave unconfirmed.
        stop: Whether to stop the study then.
    """

    def __init__(
        self, holdout: LadderHoldout, build: Any, *, patience: int = 3, stop: bool = False
    ) -> None:
        self._gate: Gate = holdout.optuna.gate(build, patience=patience, stop=stop)

    @property
    def releases(self) -> list[Any]:
        """The answers of the holdout so far."""
        return self._gate.releases

    def __call__(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        self._gate(study, trial)


def plot_ladder(study: optuna.Study, holdout: LadderHoldout) -> Axes:
    """Plot what the holdout released against the inner scores of the trials.

    Args:
        study: A study with one objective.
        holdout: The holdout that it queried.

    Returns
    -------
        Axes of Matplotlib. No raw score is in them.
    """
    return plots.plot_ladder(holdout, study)
