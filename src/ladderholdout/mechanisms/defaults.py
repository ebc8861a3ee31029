"""The rule of a new ladder where none is stated: one for the holdout, the planner and the lab."""

from __future__ import annotations

import math

from ladderholdout.mechanisms.base import Mechanism
from ladderholdout.mechanisms.noiseless import (
    Ladder,
    ParameterFreeLadder,
    PricedLadder,
    SimplifiedLadder,
)
from ladderholdout.mechanisms.resampling import BayesBootLadder
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scores import zero_one
from ladderholdout.metrics.table import is_named

# Areas for each class or each pair of classes: a hundredth of a second and more on many rows.
_SLOW = "roc_auc_ov"


FINALISTS = 3
"""How many candidates `LadderHoldout.guard` shows to the holdout at most, by default."""


def default_mechanism(metric: Metric, n: int, *, reserved: bool = False) -> Mechanism:
    """Return the rule for a metric on n rows, as decision 17 has it.

    Parameters
    ----------
    metric : Metric
    n : int
        Rows that the ladder measures.
    reserved : bool, default=False
        Whether others are kept in reserve, which certify whatever the ladder releases.

    Returns
    -------
    Mechanism

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> default_mechanism(get_metric("accuracy"), 400)
    PricedLadder(weight=0.7)
    >>> default_mechanism(get_metric("accuracy"), 400, reserved=True)
    SimplifiedLadder(step=0.0025)
    >>> default_mechanism(get_metric("neg_brier_score"), 400)
    ParameterFreeLadder()
    >>> default_mechanism(get_metric("roc_auc"), 400).step
    0.025
    """
    if metric.is_mean and metric.bounded and reserved and not metric.clip:
        return SimplifiedLadder(step=1 / n)
    # A stated range may be much wider than the losses, so no share of it is a margin.
    if metric.is_mean:
        # Losses between 0 and 1 vary less than its price takes for granted.
        return PricedLadder() if metric.loss is zero_one else ParameterFreeLadder()
    if not is_named(metric) or metric.name.startswith(_SLOW):
        # It would be measured up to a thousand times for one decision, whatever that takes.
        return Ladder(step=1 / math.sqrt(n))
    half_a_root = float(f"{0.5 / math.sqrt(n):.2g}")
    return BayesBootLadder(odds=17 / 3, n_posterior=1000, step=half_a_root)
