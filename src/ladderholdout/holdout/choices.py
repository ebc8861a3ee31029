"""From what a caller states to the settings that a ladder keeps for good."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.ledger import LadderSettings
from ladderholdout.mechanisms import (
    Ladder,
    LadderRules,
    Mechanism,
    ParameterFreeLadder,
)
from ladderholdout.metrics import METRICS, Metric, get_metric
from ladderholdout.vault import Rows

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller asks for, validated one by one; None where nothing was stated."""

    name: str | None
    account: str
    ladder: str
    metric: Metric | None
    mechanism: Mechanism | None
    budget: int | None
    classes: ArrayLike | None
    overlap: str
    vault: str | os.PathLike[str] | bool | None
    reserve: float | None


def text(argument: str, value: object) -> str:
    """Validate a name: what people type again months later."""
    allowed = f"a printable text of 1 to {_LONGEST} characters"
    if not isinstance(value, str):
        raise InvalidArgument(argument, allowed, type(value).__name__)
    if not value.strip() or len(value) > _LONGEST:
        raise InvalidArgument(argument, allowed, f"of {len(value)} characters")
    if not value.isprintable():
        raise InvalidArgument(argument, allowed, "one with a line break or the like")
    return value


def choice(argument: str, value: object, allowed: tuple[str, ...]) -> str:
    """Validate a setting with few values."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(argument, "one of " + ", ".join(map(repr, allowed)), repr(value))
    return value


def rule(mechanism: object) -> Mechanism:
    """Validate a mechanism."""
    if not isinstance(mechanism, Mechanism):
        raise InvalidArgument(
            "mechanism",
            "a Mechanism, such as Ladder(step=0.01)",
            type(mechanism).__name__,
            "See ladderholdout.mechanisms.",
        )
    return mechanism


def folder(vault: object) -> str | os.PathLike[str] | bool:
    """Validate a place for the rows."""
    if isinstance(vault, bool):
        return vault
    place = os.fspath(vault) if isinstance(vault, str | os.PathLike) else None
    if not isinstance(place, str) or not place.strip() or "\0" in place:
        came = type(vault).__name__ if not isinstance(place, str) else repr(place)
        raise InvalidArgument("vault", "a folder, True or False", came)
    return place


def metric_for(
    scoring: str | Metric | None, loss_range: tuple[float, float] | None
) -> Metric | None:
    """Return the metric a caller names, clipped to the range if one is stated."""
    if scoring is not None:
        metric = get_metric(scoring)
        return metric if loss_range is None else metric.with_range(loss_range)
    if loss_range is not None:
        raise InvalidArgument(
            "loss_range",
            "stated together with scoring",
            "stated alone",
            "Name the metric too, or leave both out to go on with the ladder's.",
        )
    return None


def rows_of(X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Rows:
    """Bring rows, labels and weights together, validated as a whole."""
    labels = _labels_of(y)
    n = count_rows(X)
    if n != len(labels):
        raise InvalidArgument(
            "y", f"as long as X ({n} rows)", f"of length {len(labels)}", "Give one value a row."
        )
    return Rows(X, labels, None if sample_weight is None else weights_of(sample_weight, n))


def _labels_of(y: ArrayLike) -> NDArray[Any]:
    allowed = "an array with a value for each row"
    try:
        labels = np.asarray(y)
    except Exception:  # its text may show labels
        raise InvalidArgument("y", allowed, f"a {type(y).__name__} that is none") from None
    if labels.ndim == 0 or len(labels) == 0:
        raise InvalidArgument("y", allowed, f"of shape {labels.shape}")
    return labels


def count_rows(X: Any) -> int:
    """Return the number of rows of an array, a DataFrame, a sparse matrix or a list."""
    try:
        return int(X.shape[0]) if hasattr(X, "shape") else len(X)
    except (TypeError, IndexError):
        raise InvalidArgument("X", "a table of rows", f"a {type(X).__name__}") from None


def weights_of(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """Validate the weights of a holdout's rows."""
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    fine = weights.shape == (n,) and np.isfinite(weights).all() and (weights >= 0).all()
    if not fine or weights.sum() <= 0:
        raise InvalidArgument(
            "sample_weight",
            f"{n} finite numbers, none negative and not all zero",
            f"an array of shape {weights.shape} that is not",
        )
    return weights


def default_mechanism(metric: Metric, n: int) -> Mechanism:
    """Return the rule for a metric: paired where there are losses, else a step of 1/sqrt(n)."""
    return ParameterFreeLadder() if metric.is_mean else Ladder(step=1 / math.sqrt(n))


def asked_for(
    metric: Metric | None, mechanism: Mechanism | None, budget: int | None
) -> dict[str, Any]:
    """Return what a caller stated, in the words of `LadderSettings`."""
    asked: dict[str, Any] = {}
    if metric is not None:
        asked |= {"metric": metric.name, "metric_settings": metric_settings(metric)}
    if mechanism is not None:
        asked |= {"mechanism": mechanism.name, "mechanism_settings": mechanism.settings()}
    return asked if budget is None else asked | {"budget": budget}


def settings_for(wish: Wish, metric: Metric, n: int) -> LadderSettings:
    """Return the settings of a new ladder on n rows, validated as a whole."""
    mechanism = wish.mechanism or default_mechanism(metric, n)
    if mechanism.needs_losses and not metric.is_mean:
        raise InvalidArgument(
            "mechanism",
            f"one that works for {metric.name}, which is no mean of per-example losses",
            mechanism.name,
            "Take Ladder(step), SimplifiedLadder(step) or BayesBootLadder(odds, step=step).",
        )
    if mechanism.needs_bounded_risk and not metric.bounded:
        raise InvalidArgument(
            "mechanism",
            f"one that works without a known range of the loss ({metric.name} has none)",
            mechanism.name,
            "State loss_range=(0, largest), or take ParameterFreeLadder() or Ladder(step).",
        )
    if mechanism.needs_guide:
        raise InvalidArgument(
            "mechanism",
            "one that goes by the holdout alone",
            f"{mechanism.name}, which compares it with the training rows",
            "Take it for simulations, and ShakyLadder(step, noise) here.",
        )
    rules = LadderRules(mechanism, wish.budget, metric.unit)
    asked = asked_for(metric, mechanism, rules.budget)
    return LadderSettings(
        **{"budget": None, **asked}, account=wish.account, name=wish.ladder, unit=rules.unit
    )


def metric_settings(metric: Metric) -> dict[str, Any]:
    """Return what makes a metric of this name this one, as JSON can hold it."""
    settings: dict[str, Any] = {}
    custom = not _is_named(metric)
    limits = metric.loss_range
    if custom and metric.two_class_range is not None:
        limits = metric.two_class_range  # the same before and after `Metric.for_classes`
    if limits is not None and (custom or metric.clip):
        settings["loss_range"] = list(limits)
    if custom:
        settings["custom"] = {
            "response": metric.response,
            "offset": metric.offset,
            "root": metric.root,
        }
    return settings


def going_on(metric: Metric | None, settings: LadderSettings) -> Metric:
    """Return the metric of a ladder for a caller who left it out, or its range."""
    stored = stored_metric(settings)
    if metric is None or metric == replace(stored, loss_range=None, clip=False):
        return stored
    return metric


def stored_metric(settings: LadderSettings) -> Metric:
    """Return the metric of a ladder from the ledger alone.

    A metric of the user's own is known by its name and sign, not by its function: the one
    that comes back can show scores, and refuses to compute any.
    """
    stated = settings.metric_settings.get("loss_range")
    limits = None if stated is None else (stated[0], stated[1])
    if custom := settings.metric_settings.get("custom"):
        return Metric(name=settings.metric, score=_unavailable, loss_range=limits, **custom)
    metric = get_metric(settings.metric)
    return metric if limits is None else metric.with_range(limits)


def _unavailable(*_: Any, **__: Any) -> NoReturn:
    raise InvalidArgument(
        "scoring",
        "given again for a metric of your own",
        "missing",
        "The ledger keeps its name, not its function: LadderHoldout.open(name, scoring=metric).",
    )


def _is_named(metric: Metric) -> bool:
    known = METRICS.get(metric.name)
    if known is None:
        return False
    return replace(metric, loss_range=known.loss_range, clip=known.clip) == known
