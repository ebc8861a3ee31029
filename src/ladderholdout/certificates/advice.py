"""What would make a wide interval narrower, in words: the number that was stated too wide."""

from __future__ import annotations

import math

from ladderholdout.metrics import Metric
from ladderholdout.metrics.scores import absolute, squared

# `guard` proposes four root mean squared errors as the largest error; a mean absolute error is .8
# of such an error where errors are about normal. An interval is called wide for its range from
# twice that on, and one of R2 from this width on.
_PROPOSED, _MEAN, _WIDE, _WIDE_RATIO = 4.0, 0.8, 2.0, 0.4
# Below so many standard deviations on each side a range leaves targets out; and what limits of
# variances need, in nats of their level for each row.
_SPREADS, _FAR = 3.0, 4.0
_REMEDY = (
    "holdout.guard proposes one by the errors on the training rows (proposed_loss_range_), for a "
    "ladder of its own"
)


def stated_range(metric: Metric) -> str:
    """Return the argument that stated the range of the loss, with its value.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rmse, r2 = get_metric("neg_root_mean_squared_error"), get_metric("r2")
    >>> stated_range(rmse.with_target_range((0, 50))), stated_range(rmse.with_range((0, 50)))
    ('target_range=(0.0, 50.0)', 'loss_range=(0, 50)')
    >>> stated_range(r2.with_target_range((0, 50), (0, 20)))
    'loss_range=(0, 20)'
    """
    targets = metric.target_range or metric.stated_targets
    largest = metric.largest_error
    if largest is None:
        assert metric.loss_range is not None
        largest = metric.loss_range[1]
    if targets is None:
        return f"loss_range=(0, {largest:.12g})"
    power = 2 if metric.loss is squared and not metric.root else 1
    if largest == (targets[1] - targets[0]) ** power:
        return f"target_range={targets}"
    return f"loss_range=(0, {largest:.12g})"


def narrowed_by(
    metric: Metric, score: float, ends: tuple[float, float], n: int, log_level: float
) -> str:
    """Return what would narrow an interval that its stated range makes wide; empty if it does not.

    It is made of what is shown anyway.

    Parameters
    ----------
    metric : Metric
    score : float
        The released score.
    ends : tuple of (float, float)
    n : int
        Rows.
    log_level : float
        Natural logarithm of the level of each side, negative.

    Returns
    -------
    str

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rmse = get_metric("neg_root_mean_squared_error").with_range((0, 2000))
    >>> print(narrowed_by(rmse, -50.0, (-330.0, -42.0), 200, -6.0))
    It is wide for loss_range=(0, 2000), which is 40 times the released error. A largest error of \
four root mean squared errors, stated from the start, would make it roughly 0.06 times as wide; \
holdout.guard proposes one by the errors on the training rows (proposed_loss_range_), for a ladder \
of its own
    """
    if metric.takes_target_range:
        return _of_a_ratio(metric, score, ends, n, log_level)
    if metric.loss not in (absolute, squared) or not metric.clip or metric.loss_range is None:
        return ""
    is_square = metric.loss is squared and not metric.root
    error, largest = abs(score), metric.loss_range[1]
    if is_square:
        error, largest = math.sqrt(error), math.sqrt(largest)
    proposed = _PROPOSED / (_MEAN if metric.loss is absolute else 1.0)
    if error == 0.0 or largest < _WIDE * proposed * error:
        return ""
    share = _width(metric, proposed, n, log_level) / _width(metric, largest / error, n, log_level)
    return (
        f"It is wide for {stated_range(metric)}, which is {largest / error:.0f} times the released "
        "error. A largest error of four root mean squared errors, stated from the start, would "
        f"make it roughly {share:.1g} times as wide; {_REMEDY}"
    )


def _width(metric: Metric, largest: float, n: int, log_level: float) -> float:
    """Return about the half-width for normal errors and a largest error, in released errors.

    By Bernstein's inequality: the standard deviation of the losses and their range.
    """
    is_absolute = metric.loss is absolute
    deviation, power = (0.75, 1) if is_absolute else (math.sqrt(2.0), 2)
    share = -log_level / n
    half = deviation * math.sqrt(2.0 * share) + largest**power * share / 1.5
    return math.sqrt(1.0 + half) - 1.0 if metric.root else half


def _of_a_ratio(
    metric: Metric, score: float, ends: tuple[float, float], n: int, log_level: float
) -> str:
    """Return the same for R2 and its like, whose unit is a variance that is not shown."""
    low, high = ends
    if high - low < _WIDE_RATIO:
        return ""
    largest = f"{metric.largest_error:.12g}"
    if low > -math.inf:
        return (
            f"It is wide for errors of up to {largest} (loss_range=(0, {largest})). A smaller "
            f"largest error, or more rows, make it narrower; {_REMEDY}"
        )
    # So far from 0 squares may be, in their means, that limits above -1 come out in simulations.
    spreads = math.sqrt(-n / (_FAR * log_level))
    errors = spreads * math.sqrt(max(1.0 + score, 0.0) / max(1.0 - score, 1e-9))
    why = (
        f"There is no lower end because none above -1 is proved: on {n} rows, at a level of "
        f"exp({log_level:.1f}), with errors of up to {largest} (loss_range=(0, {largest}))"
    )
    if errors < _PROPOSED or spreads < _SPREADS:
        return f"{why}. No range gives this score one on so few rows at that level"
    return (
        f"{why}. loss_range=(0, {errors:.0f} root mean squared errors) with a target_range of "
        f"{2.0 * spreads:.0f} standard deviations of the target, both by the training rows, would "
        f"give one; {_REMEDY}"
    )
