"""Ranges of the loss, proposed from the training rows alone before the holdout is asked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from sklearn.model_selection import check_cv, cross_validate

from ladderholdout.errors import RangeWarning, warn
from ladderholdout.guard.containment import without_autologging
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.identity.copies import take
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import FloatArray
from ladderholdout.metrics.scores import absolute, squared

# The proposed largest error, in root mean squared errors of the inner folds; and a stated one is
# called far wider that is more than so many times the proposed one.
_ERRORS, _FAR_WIDER = 4.0, 2.0
# Of the targets' standard deviation: below that many of them are farther from their mean.
_SPREADS = 3.0
# By how much of its width a range of training targets is widened on each side: it has to hold the
# holdout's targets, and costs the lower limit of R2 next to nothing.
_BESIDE = 0.5
# By how much of its standard error clipping may move a score on the folds, and draws of the latter.
_MOVED, _DRAWS = 0.1, 100

Folds: TypeAlias = tuple[FloatArray, FloatArray]
"""Targets of training rows, and what models that did not see them predicted."""
Range: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ProposedRange:
    """Ranges that make certificates narrower, or possible; no label of the holdout was read.

    Attributes
    ----------
    loss_range, target_range : tuple of (float, float), mapping of str to tuple, or None
        As the parameters of `LadderHoldout` take them; of several metrics mappings.
    ladder : str
        The name of the ladder that has them: the ranges of a ladder do not change.
    error : float
        The root mean squared error of the best candidate on the inner folds.

    Examples
    --------
    >>> print(ProposedRange((0.0, 220.0), None, "errors to 220", 54.3))
    LadderHoldout(..., loss_range=(0, 220), ladder="errors to 220")
    """

    loss_range: Range | Mapping[str, Range]
    target_range: Range | Mapping[str, Range] | None
    ladder: str
    error: float

    def __str__(self) -> str:
        """Return the call that opens a ladder with them."""
        targets = f", target_range={_shown(self.target_range)}" if self.target_range else ""
        ranges = f"loss_range={_shown(self.loss_range)}{targets}"
        return f'LadderHoldout(..., {ranges}, ladder="{self.ladder}")'


def proposed_range(
    ladder: OpenLadder, y: Any, on_folds: Callable[[], Folds]
) -> ProposedRange | None:
    """Propose ranges for a ladder, and warn, if it has none or far wider ones.

    None is proposed for a metric whose score clipped errors would change.

    Parameters
    ----------
    ladder : OpenLadder
    y : array-like
        Targets of the training rows.
    on_folds : callable
        Returns targets and predictions of folds of the training rows. It is called if a metric is
        one of errors alone, for it takes its time.

    Returns
    -------
    ProposedRange or None
        None if nothing would be gained; or if `on_folds` failed or clipping would change the
        score, which a warning names.
    """
    metrics = {name: of_metric.metric for name, of_metric in ladder.by_metric.items()}
    metrics = metrics or {"": ladder.metric}
    if y is None or not any(map(_is_of_errors, metrics.values())):
        return None
    try:
        folds = on_folds()
        error = math.sqrt(float(np.mean((folds[0] - folds[1]) ** 2)))
    except Exception as fault:  # whatever a model or a splitter raises
        warn(
            "No range of the loss could be proposed: the best candidate could not be measured on "
            f"folds of the training rows ({type(fault).__name__}: {fault}). The search goes on.",
            RangeWarning,
        )
        return None
    largest = _rounded_up(_ERRORS * error)
    if not 0.0 < largest < math.inf:
        return None
    reasons = {name: _reason(metric, largest, error) for name, metric in metrics.items()}
    for name, reason in reasons.items():
        if reason and (moved := _moved(metrics[name], *folds, largest)) >= _MOVED:
            reasons[name] = ""
            _warn_that_none(metrics[name], largest, moved)
    if not any(reasons.values()):
        return None
    losses, targets = {}, {}
    for name, metric in metrics.items():
        # A call that states ranges of some metrics has to state those of the others, too.
        stated_loss, stated_targets = _stated(metric)
        loss = _loss_range(metric, largest) if reasons[name] else stated_loss
        if metric.takes_target_range and reasons[name]:
            stated_targets = stated_targets or _around(y)
        if loss is not None:
            losses[name] = loss
        if stated_targets is not None:
            targets[name] = stated_targets
    several = bool(ladder.by_metric)
    proposed = ProposedRange(
        losses if several else losses[""],
        (targets if several else targets[""]) if targets else None,
        f"errors to {largest:.12g}",
        error,
    )
    is_narrow = largest < _SPREADS * float(np.std(np.asarray(y, dtype=np.float64)))
    _warn_of(proposed, [reason for reason in reasons.values() if reason], is_narrow)
    return proposed


def predicted_on_folds(
    model: Any,
    X: Any,
    y: Any,
    cv: Any,
    groups: Any = None,
    params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
) -> Folds:
    """Return targets and predictions of an unfitted model on inner folds of these rows."""
    # As a list, so that groups reach the splitter whether or not scikit-learn routes metadata.
    folds = list(check_cv(cv, y, classifier=False).split(X, y, groups))
    with without_autologging(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the search gave them already
        measured = cross_validate(
            model,
            X,
            y,
            cv=folds,
            scoring=_nothing,
            params=dict(params or {}),
            n_jobs=n_jobs,
            error_score="raise",
            return_estimator=True,
        )
        models = zip(measured["estimator"], folds, strict=True)
        predicted = [fitted.predict(take(X, test)) for fitted, (_, test) in models]
    targets = np.asarray(y, dtype=np.float64)[np.concatenate([test for _, test in folds])]
    targets = targets[:, 0] if targets.shape[1:] == (1,) else targets
    return targets, np.concatenate(predicted).astype(np.float64).reshape(targets.shape)


def _nothing(model: Any, X: Any, y: Any) -> float:
    """Score nothing: the predictions are what is needed."""
    return 0.0


def _moved(metric: Metric, targets: FloatArray, predictions: FloatArray, largest: float) -> float:
    """Return by how much clipped errors move a score, in its standard errors.

    The standard error is that of a Bayesian bootstrap with fixed draws.
    """
    clipped = np.clip(predictions, targets - largest, targets + largest)
    whole, rng = metric.evaluate(targets, predictions), np.random.default_rng(0)
    n = len(targets)
    drawn = [metric.to_score(whole.risk_under(rng.exponential(size=n))) for _ in range(_DRAWS)]
    kept = metric.to_score(metric.evaluate(targets, clipped).risk)
    moved, error = abs(kept - metric.to_score(whole.risk)), float(np.std(drawn))
    return moved / error if moved else 0.0


def _warn_that_none(metric: Metric, largest: float, moved: float) -> None:
    warn(
        f"No range of the error is proposed for {metric.name}: with errors clipped at "
        f"{largest:.12g}, four root mean squared errors of the best candidate on folds of the "
        f"training rows, its score there is {moved:.2g} standard errors from what it is, so the "
        "interval would be for another number. These give an interval: reserve= (approximate, "
        "for the score itself), "
        f"{'target_range=(low, high) and ' * metric.takes_target_range}"
        "loss_range=(0, largest) if you know an error that none exceeds, or "
        'scoring="neg_median_absolute_error" (exact, without a range).',
        RangeWarning,
    )


def _warn_of(proposed: ProposedRange, reasons: list[str], is_narrow: bool) -> None:
    beside = ""
    if is_narrow:
        beside = (
            " Opening it may warn that this is narrow for the mean of the targets, as it is: it is "
            "a range for models as good as that candidate."
        )
    if proposed.target_range is not None:
        beside += (
            " Where target_range is not yours, it is that of the training targets and half as much "
            "on each side: state one that holds all targets."
        )
    warn(
        f"{'; '.join(reasons)}. Four root mean squared errors of the best candidate on folds of "
        f"the training rows make a range: {proposed} opens a ladder with it on the same holdout, "
        "where ... are your other arguments as before, and guard(search) on that certifies the "
        f"score with larger errors clipped.{beside}",
        RangeWarning,
    )


def _is_of_errors(metric: Metric) -> bool:
    """Return whether the range of a metric's loss follows from the largest absolute error."""
    return metric.loss in (absolute, squared) or metric.takes_target_range


def _reason(metric: Metric, largest: float, error: float) -> str:
    """Return why a range is proposed for a metric; empty where none is."""
    if not _is_of_errors(metric):
        return ""
    loss, _ = _stated(metric)
    if loss is None:
        return f"{metric.name} has no stated range of the error, and so no certificate"
    is_square = metric.loss is squared and not metric.root
    stated = math.sqrt(loss[1]) if is_square else loss[1]
    if stated <= _FAR_WIDER * largest:
        return ""
    return (
        f"The stated range of {metric.name} allows errors of {stated:.3g}, {stated / error:.0f} "
        "times the inner root mean squared error, and the certificate is the wider for it"
    )


def _loss_range(metric: Metric, largest: float) -> Range:
    is_square = metric.loss is squared and not metric.root
    return 0.0, _rounded_up(largest**2) if is_square else largest


def _stated(metric: Metric) -> tuple[Range | None, Range | None]:
    """Return the stated ranges of the loss and of the targets, as `LadderHoldout` takes them."""
    if not metric.clip or metric.loss_range is None:
        return None, None
    if metric.largest_error is not None:
        return (0.0, metric.largest_error), metric.target_range
    return metric.loss_range, None


def _around(y: Any) -> Range:
    """Return a range about training targets, rounded outwards to two digits of its width."""
    values = np.asarray(y, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    beside = _BESIDE * (high - low) or 1.0
    grain = 10.0 ** (math.floor(math.log10(high - low + 2.0 * beside)) - 1)
    ends = math.floor((low - beside) / grain) * grain, math.ceil((high + beside) / grain) * grain
    return float(f"{ends[0]:.12g}"), float(f"{ends[1]:.12g}")


def _rounded_up(number: float) -> float:
    """Round a number up to two digits.

    Examples
    --------
    >>> _rounded_up(217.3), _rounded_up(0.0121), _rounded_up(5.0)
    (220.0, 0.013, 5.0)
    """
    if not 0.0 < number < math.inf:
        return number
    grain = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(float(f'{number / grain:.9g}')) * grain:.12g}")


def _shown(ranges: Any) -> str:
    """Return a range, or one of each metric, as Python reads it."""
    if isinstance(ranges, Mapping):
        return "{" + ", ".join(f'"{name}": {_shown(one)}' for name, one in ranges.items()) + "}"
    return f"({ranges[0]:.12g}, {ranges[1]:.12g})"
