"""A guarded holdout on a study of Optuna: callbacks, and a figure of what was released."""

from __future__ import annotations

from typing import Any

from ladderholdout import LadderHoldout
from ladderholdout.integrations.optuna import dashboard
from ladderholdout.integrations.optuna import Gate
import optuna
import plotly.graph_objects as go


__all__ = ["DashboardCallback", "LadderGateCallback", "plot_ladder"]


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


class DashboardCallback(dashboard.Dashboard):
    """Keep a note and a figure on the study up to date, for Optuna Dashboard.

    Args:
        holdout: The guarded holdout.
        every: After so many trials.
    """


def plot_ladder(study: optuna.Study, holdout: LadderHoldout) -> go.Figure:
    """Plot what the holdout released against the inner scores of the trials.

    Args:
        study: A study with one objective.
        holdout: The holdout that it queried.

    Returns
    -------
        A figure of Plotly. No raw score is in it.
    """
    return dashboard.plot_ladder(holdout, study)
