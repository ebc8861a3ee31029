"""How a released score is shown, and what stands in its place where it is not told."""

from __future__ import annotations

from ladderholdout.metrics import Metric

NOT_ASKED = "not asked for; reveal shows it, and later certificates pay for that"
"""What stands in the place of a score that a ladder tells on demand alone."""


def score_of(risk: float | None, metric: Metric) -> float | None:
    """Show a released risk in the metric's own sign, if it may be shown.

    Parameters
    ----------
    risk : float or None
        None where it is not told and was not asked for.
    metric : Metric

    Returns
    -------
    float or None

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> score_of(0.25, get_metric("accuracy")), score_of(None, get_metric("accuracy"))
    (0.75, None)
    """
    return None if risk is None else metric.to_score(risk)
