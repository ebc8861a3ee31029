"""What a metric is, before it meets any data."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

from ladderholdout.arguments import as_given, choice, finite, flag, function
from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics import scores as of
from ladderholdout.metrics.arrays import LARGEST, Array, Support

Response: TypeAlias = Literal["labels", "probabilities", "scores", "values"]
# Losses that are powers of an error, and scores that are ratios of squared errors.
_POWERS: dict[Any, int] = {of.absolute: 1, of.squared: 2}
_RATIOS = (of.r2, of.explained_variance, of.concordance)
# Of 1 less a ratio score: below a score of -1 it makes no difference to anybody.
_RATIO_RANGE = (0.0, 2.0)


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """The settings of a metric, and what follows from them alone; see `Metric`."""

    name: str
    response: Response
    loss: Callable[..., Any] | None = None
    score: Callable[..., Any] | None = None
    loss_range: tuple[float, float] | None = None
    offset: float = 0.0
    root: bool = False
    in_units_of_y: bool = False
    clip: bool = False
    binary: bool = False
    multioutput: bool = False
    support: Support | None = None
    two_class_range: tuple[float, float] | None = None
    target_range: tuple[float, float] | None = None
    largest_error: float | None = None
    alike_rows: bool = False
    pos_label: str | float | None = None
    # The range of the target that states the range of the error, for checks where it is stated.
    stated_targets: tuple[float, float] | None = field(default=None, compare=False, repr=False)
    # The stated range in the unit of a single loss: squared where the score is a root.
    risk_range: tuple[float, float] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_settings(self)
        limits = self.loss_range
        if limits is not None:
            power = 2 if self.root else 1
            low, high = (float(limit) ** power for limit in limits)
            object.__setattr__(self, "risk_range", (low, high))

    @property
    def is_mean(self) -> bool:
        """Whether the risk is a mean of per-example losses."""
        return self.loss is not None

    @property
    def counts(self) -> bool:
        """Whether the loss of an example is 0 or 1."""
        return self.loss is of.zero_one or getattr(self.score, "counts", False)

    @property
    def is_classification(self) -> bool:
        """Whether targets are classes."""
        return self.response != "values"

    @property
    def bounded(self) -> bool:
        """Whether the range of the loss is known."""
        return self.risk_range is not None

    @property
    def released_range(self) -> tuple[float, float] | None:
        """The range of the risk that is released; None where a stated one is for limits alone.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("neg_mean_absolute_error").with_range((0, 50)).released_range is None
        True
        """
        return None if self.clip else self.risk_range

    @property
    def unit(self) -> float | None:
        """The unit in which a ladder on this metric thinks; None adapts to the risk."""
        if self.risk_range is not None:
            low, high = self.risk_range
            return high - low
        return None if self.in_units_of_y else 1.0

    def with_range(self, loss_range: tuple[float, float]) -> Self:
        """Return this metric with a stated range, to which limits of its score clip the losses.

        The score itself is that of the losses as they are.

        Parameters
        ----------
        loss_range : tuple of (float, float)
            0 and the largest loss of an example, in the unit that the metric shows: for
            RMSE the largest absolute error, in units of the target; for MSE the largest
            squared one.

        Returns
        -------
        Metric

        Raises
        ------
        InvalidArgument
            If the range is no such pair, or the metric has a range or no losses.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("neg_mean_absolute_error").with_range((0, 50)).loss_range
        (0.0, 50.0)
        >>> rmse = get_metric("neg_root_mean_squared_error").with_range((0, 200))
        >>> rmse.loss_range, rmse.risk_range
        ((0.0, 200.0), (0.0, 40000.0))
        """
        if self.takes_target_range:
            raise InvalidArgument(
                "target_range",
                f"stated together with loss_range for {self.name}",
                "missing",
                "target_range=(low, high) holds every target; loss_range=(0, high) is then the "
                "largest absolute error.",
            )
        if self.bounded or not self.is_mean:
            reason = "bounded already" if self.bounded else "no mean of losses"
            raise InvalidArgument(
                "loss_range", "left out for this metric", f"given: it is {reason}"
            )
        low, high = _checked_range("loss_range", loss_range, root=self.root)
        if low != 0:
            raise InvalidArgument("loss_range", "a pair (0, high)", f"a pair from {low:g}")
        return replace(self, loss_range=(low, high), clip=True)

    def with_target_range(
        self,
        target_range: tuple[float, float],
        loss_range: tuple[float, float] | None = None,
    ) -> Self:
        """Return this metric for targets that lie in a stated range.

        R2, the explained variance and the concordance need it for a certificate, which clips errors
        larger than the largest one to it. The score itself is of the errors as they are. For
        absolute and squared errors it states the `loss_range`: no error of a prediction within the
        range is larger than the range is wide.

        Parameters
        ----------
        target_range : tuple of (float, float)
            The least and the largest target, in units of the target.
        loss_range : tuple of (0, float), optional
            0 and the largest absolute error, in units of the target; by default as large as the
            range of the target is wide. The narrower, the narrower certificates are.

        Returns
        -------
        Metric

        Raises
        ------
        InvalidArgument
            If a range is no such pair, or the metric has no use for it.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> r2 = get_metric("r2").with_target_range((0, 50), loss_range=(0, 20))
        >>> r2.target_range, r2.largest_error, r2.loss_range
        ((0.0, 50.0), 20.0, (0.0, 2.0))
        >>> get_metric("neg_mean_squared_error").with_target_range((0, 50)).loss_range
        (0.0, 2500.0)
        """
        least, most = _checked_range("target_range", target_range, root=False)
        if self.is_mean:
            power = _POWERS.get(self.loss)
            if power is None or self.bounded:
                raise InvalidArgument(
                    "target_range",
                    "left out for this metric",
                    "given",
                    "It is of use for absolute and squared errors, R2, explained variance and "
                    "concordance; state loss_range=(0, largest) for other losses.",
                )
            high = (most - least) ** (1 if self.root else power)
            metric = self.with_range((0.0, high) if loss_range is None else loss_range)
            return replace(metric, stated_targets=(least, most))
        if self.prepare not in _RATIOS:
            raise InvalidArgument(
                "target_range", "left out for this metric", "given: it does not depend on it"
            )
        stated = (0.0, most - least) if loss_range is None else loss_range
        low, largest = _checked_range("loss_range", stated, root=True)
        if low != 0:
            raise InvalidArgument("loss_range", "a pair (0, high)", f"a pair from {low:g}")
        return replace(
            self,
            target_range=(least, most),
            largest_error=largest,
            loss_range=_RATIO_RANGE,
            clip=True,
        )

    def with_alike_rows(self) -> Self:
        """Return this metric with the statement that no split drew the holdout's rows by strata.

        The certificate of a mean loss of classes is then narrower, and for new rows alone
        (Proposition B2 of docs/background/metric_certificates.md). Without the statement it
        holds after a split that was stratified by the label, too.

        Returns
        -------
        Metric

        Raises
        ------
        InvalidArgument
            If the certificate of the metric does not depend on it.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("neg_brier_score").with_alike_rows().alike_rows
        True
        """
        return replace(self, alike_rows=True)

    def with_pos_label(self, label: Any) -> Self:
        """Return this metric with its positive class, by default the second of the sorted ones.

        Parameters
        ----------
        label : str, bool, int or float
            One of the two classes.

        Returns
        -------
        Metric

        Raises
        ------
        InvalidArgument
            If the metric is not about one of two classes, or this is no label.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> f1 = get_metric("f1").with_pos_label("bad")
        >>> f1.score_from(["bad", "good", "good"], ["bad", "bad", "good"])
        0.666666666666667
        """
        return replace(self, pos_label=label.item() if isinstance(label, np.generic) else label)

    @property
    def takes_target_range(self) -> bool:
        """Whether a certificate of it needs the range of the target."""
        return self.prepare in _RATIOS

    @property
    def clipping(self) -> str:
        """How limits of the score clip larger losses, in words; empty without a range.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("neg_root_mean_squared_error").with_range((0, 300_000)).clipping
        'errors clipped at 300000'
        """
        if not self.clip or self.loss_range is None:
            return ""
        if self.largest_error is not None:
            return f"errors clipped at {self.largest_error:.12g}"
        is_error = self.loss is of.absolute or (self.loss is of.squared and self.root)
        what = "errors" if is_error else "losses"
        return f"{what} clipped at {self.loss_range[1]:.12g}"

    @property
    def prepare(self) -> Any:
        """What prepares the score, where it is one of the library's own."""
        return getattr(self.score, "prepare", None)

    def with_risk_range(self, risk_range: tuple[float, float]) -> Self:
        """Return this metric with the range of a single loss, as a ledger stores it.

        Ledgers have always stored the range in the unit of the risk, to the bit. Losses are
        clipped to it.

        Parameters
        ----------
        risk_range : tuple of (float, float)
            Of squared errors where the score is a root.

        Returns
        -------
        Metric

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("neg_root_mean_squared_error").with_risk_range((0, 40000)).loss_range
        (0.0, 200.0)
        """
        low, high = (float(limit) for limit in risk_range)
        stated = (math.sqrt(max(low, 0.0)), math.sqrt(high)) if self.root else (low, high)
        metric = replace(self, loss_range=stated, clip=self.is_mean or self.clip)
        object.__setattr__(metric, "risk_range", (low, high))
        return metric

    def for_classes(self, classes: Array | None) -> Self:
        """Return this metric with the range of its loss for these classes.

        The Brier score lies in [0, 1] for two classes and in [0, 2] for more.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("neg_brier_score").for_classes([False, True]).loss_range
        (0.0, 1.0)
        """
        if self.two_class_range is None or classes is None or len(classes) != 2:
            return self
        return replace(self, loss_range=self.two_class_range)

    def to_score(self, risk: float) -> float:
        """Return the score that belongs to a risk, in the metric's own sign.

        For ``root`` metrics a risk below zero (it was noisy) counts as zero. Fifteen digits:
        1 - 0.42 is not 0.58 in binary, and nobody should have to read the difference.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("neg_root_mean_squared_error").to_score(9.0)
        -3.0
        """
        shown = math.sqrt(max(risk, 0.0)) if self.root else risk
        # As decimals: 1 less 1.005 is -.005.
        score = Decimal(repr(float(self.offset))) - Decimal(repr(float(shown)))
        return float(f"{score:.15g}")

    def to_risk(self, score: float) -> float:
        """Return the risk that belongs to a score: the inverse of `to_score`.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("accuracy").to_risk(0.75)
        0.25
        """
        distance = self.offset - score
        return float(distance**2 if self.root else distance)


def _check_settings(metric: MetricSettings) -> None:
    """Refuse settings that are empty or contradict each other."""
    if not isinstance(metric.name, str) or not metric.name:
        raise InvalidArgument("name", "a text that is not empty", as_given(metric.name))
    choice("response", metric.response, get_args(Response))
    for name in ("loss", "score"):
        if getattr(metric, name) is not None:
            function(name, getattr(metric, name))
    if metric.score is not None and not _takes_weights(metric.score):
        raise InvalidArgument(
            "score",
            "a function of (targets, predictions, sample_weight)",
            "one without sample_weight, by which draws of the rows are weighed",
            "Add the parameter, sample_weight=None, and hand it on to the function that you call.",
        )
    if callable(metric.loss) == callable(metric.score):
        raise InvalidArgument("loss", "a function exactly where score is none", "not so")
    for name in ("root", "in_units_of_y", "clip", "binary", "multioutput", "alike_rows"):
        flag(name, getattr(metric, name))
    if metric.support is not None and not isinstance(metric.support, Support):
        raise InvalidArgument("support", "a Support", as_given(metric.support))
    finite("offset", metric.offset)
    for name in ("loss_range", "two_class_range"):
        if getattr(metric, name) is not None:
            _checked_range(name, getattr(metric, name), root=metric.root)
    if metric.clip and (
        (metric.loss is None and metric.target_range is None) or metric.loss_range is None
    ):
        raise InvalidArgument("clip", "False without loss and loss_range", True)
    if metric.alike_rows and (metric.loss is None or metric.counts or not metric.is_classification):
        raise InvalidArgument(
            "alike_rows",
            "False but for a mean loss of classes that is not 0 or 1",
            True,
            f"The certificate of {metric.name} does not depend on it: leave it out.",
        )
    if metric.pos_label is not None and not metric.binary:
        raise InvalidArgument("pos_label", f"left out for {metric.name}", "stated")
    if not isinstance(metric.pos_label, str | int | float | None):
        raise InvalidArgument("pos_label", "a label of y", as_given(metric.pos_label))
    if (metric.target_range is None) != (metric.largest_error is None):
        raise InvalidArgument("largest_error", "given exactly where target_range is", "not so")


def _takes_weights(score: Callable[..., Any]) -> bool:
    """Return whether a function takes a ``sample_weight``, as far as that can be known."""
    try:
        parameters = inspect.signature(score).parameters
    except (TypeError, ValueError):  # one of C
        return True
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return any_name or "sample_weight" in parameters


def _checked_range(name: str, given: Any, *, root: bool) -> tuple[float, float]:
    """Return a pair of finite numbers, the smaller first; of roots, none below 0."""
    least = 0.0 if root else -LARGEST
    try:
        low, high = (float(limit) for limit in given)
    except Exception:  # whatever its own methods raise
        low, high = math.nan, math.nan
    if not least <= low < high <= LARGEST:
        allowed = "a pair of finite numbers, the smaller first"
        if root:
            allowed += ", neither below 0 (errors in the unit that the metric shows)"
        raise InvalidArgument(name, allowed, as_given(given))
    return low, high
