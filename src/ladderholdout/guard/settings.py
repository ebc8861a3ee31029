"""From what a caller states to the settings that a ladder keeps permanently."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import InvalidArgument, PredictionWarning, as_given, warn
from ladderholdout.ledger import LadderSettings
from ladderholdout.ledger.replay import stored_metric
from ladderholdout.mechanisms import LadderRules, Mechanism
from ladderholdout.metrics import Metric, get_metric
from ladderholdout.metrics.arrays import LARGEST, has_mask, refuse_masked
from ladderholdout.metrics.indexes import check_index
from ladderholdout.metrics.table import METRICS, is_named
from ladderholdout.vault import Rows

LARGEST_NUMBER = 2**31 - 1
"""Of a submission or a budget: what the columns of every ledger hold."""
_LONGEST = 200
_LONGEST_SEGMENT = 255  # bytes of a name in the file systems of today
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


class DefaultRule(Protocol):
    """The rule of a new ladder where none is stated."""

    def __call__(self, metric: Metric, n: int, *, reserved: bool = False) -> Mechanism:
        """Choose by metric, number of rows, and whether others are kept in reserve."""


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
    confidence: float | None
    ids: NDArray[np.uint64] | None
    default: DefaultRule

    @property
    def repeats_ids(self) -> bool:
        """Whether ids repeat: those name groups, and no row is known by them."""
        return self.ids is not None and len(np.unique(self.ids)) < len(self.ids)


def text(argument: str, value: object) -> str:
    """Validate a name: what people type again months later."""
    allowed = f"a printable text of 1 to {_LONGEST} characters"
    if not isinstance(value, str):
        raise InvalidArgument(argument, allowed, type(value).__name__)
    if not value.strip() or len(value) > _LONGEST:
        raise InvalidArgument(argument, allowed, f"of {len(value)} characters")
    if not value.isprintable():
        # Among them lone surrogates, escape sequences and marks of the direction of writing.
        wrong = ", ".join(
            sorted({f"U+{ord(one):04X}" for one in value if not one.isprintable()})[:3]
        )
        raise InvalidArgument(argument, allowed, f"one with a character that is not ({wrong})")
    return str.__str__(value)  # of a kind of str, the text itself


def segment(argument: str, value: object) -> str:
    """Validate the name of something new, which is a part of addresses, and may be of a file.

    A ledger of before may hold others, which `text` lets through where something is looked up.
    """
    name = text(argument, value)
    came = None
    if name in (".", ".."):
        came = "a name for a folder"
    elif "/" in name or "\\" in name:
        came = "one with a slash"
    elif _ESCAPE.search(name):
        came = "one with a character in the form of addresses, as %2F"
    elif len(name.encode()) > _LONGEST_SEGMENT:
        came = f"one of {len(name.encode())} bytes"
    if came is not None:
        raise InvalidArgument(
            argument,
            f"a text of at most {_LONGEST_SEGMENT} bytes that can be a part of an address",
            came,
            "Take letters, digits, spaces, dots and hyphens.",
        )
    return name


BETWEEN = ":"
"""In the name of a ladder of several metrics, between the name of all of them and its own."""


def parted(ladder: str) -> tuple[str, str | None]:
    """Return the name that the ladders of several metrics share, and this one's metric.

    Examples
    --------
    >>> parted("main:roc_auc"), parted("main")
    (('main', 'roc_auc'), ('main', None))
    """
    base, between, metric = ladder.rpartition(BETWEEN)
    return (base, metric) if between else (ladder, None)


def choice(argument: str, value: object, allowed: tuple[str, ...]) -> str:
    """Validate a setting with few values."""
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(argument, "one of " + ", ".join(map(repr, allowed)), as_given(value))
    return str.__str__(value)


def _is_path(text: str) -> bool:
    """Return whether a text can be the name of a file on every system."""
    return "\0" not in text and text.encode(errors="ignore").decode() == text


def folder(vault: object) -> str | os.PathLike[str] | bool:
    """Validate a place for the rows."""
    if isinstance(vault, bool):
        return vault
    try:
        place = os.fspath(vault) if isinstance(vault, str | os.PathLike) else None
    except Exception:  # whatever its own method raises
        place = None
    if not isinstance(place, str) or not place.strip() or not _is_path(place):
        raise InvalidArgument("vault", "a folder, True or False", as_given(vault))
    return place


def metric_for(
    scoring: str | Metric | None,
    loss_range: tuple[float, float] | None,
    target_range: tuple[float, float] | None = None,
) -> Metric | None:
    """Return the metric a caller names, with the ranges that are stated."""
    if scoring is not None:
        metric = get_metric(scoring)
        if target_range is not None:
            return metric.with_target_range(target_range, loss_range)
        return metric if loss_range is None else metric.with_range(loss_range)
    if loss_range is not None or target_range is not None:
        raise InvalidArgument(
            "loss_range" if target_range is None else "target_range",
            "stated together with scoring",
            "stated alone",
            "Name the metric too, or leave both out to go on with the ladder's.",
        )
    return None


def rows_of(X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Rows:
    """Bring rows, labels and weights together, validated as a whole.

    They are copies: whatever the caller does to what was given changes no holdout.
    """
    for argument, given in (("X", X), ("y", y), ("sample_weight", sample_weight)):
        refuse_masked(argument, given)
    labels = _labels_of(y)
    n = count_rows(X)
    for argument, values in (("y", y), ("sample_weight", sample_weight)):
        check_index(argument, values, X)
    check_index("sample_weight", sample_weight, y)  # where X has no index
    if n != len(labels):
        raise InvalidArgument(
            "y", f"as long as X ({n} rows)", f"of length {len(labels)}", "Give one value a row."
        )
    weights = None if sample_weight is None else fp.unwritable(weights_of(sample_weight, n))
    own = fp.copy_of(X)
    if isinstance(own, np.ndarray):
        fp.unwritable(own)
    return Rows(own, fp.unwritable(labels), weights)


def ids_of(X: Any, ids: Any, argument: str = "X") -> tuple[Any, Any, NDArray[np.uint64] | None]:
    """Return the features, or predictions, and the ids and their hashes where there are any.

    A column that has the ids is no feature.
    """
    if ids is None:
        return X, None, None
    if isinstance(ids, str):
        if not hasattr(X, "columns") or ids not in X.columns:
            raise InvalidArgument(
                "ids",
                f"the name of a column of {argument}, or a list of values",
                "a text that names none",
                f"Give {argument} as a DataFrame with that column, or the ids themselves.",
            )
        X, ids = X.drop(columns=[ids]) if hasattr(X, "iloc") else X.drop(ids), X[ids]
    refuse_masked("ids", ids)
    check_index("ids", ids, X)
    # Ids of predictions name rows. Those of a holdout may turn out to name groups of them.
    hashes, n = fp.id_hashes(ids, may_repeat=argument == "X"), count_rows(X)
    if len(hashes) != n:
        raise InvalidArgument(
            "ids", f"as long as {argument} ({n} rows)", f"of length {len(hashes)}"
        )
    return X, ids, hashes


def are_hard_labels(predictions: Any) -> bool:
    """Return whether predictions that were taken for scores are two whole numbers throughout.

    Examples
    --------
    >>> are_hard_labels([0, 1, 1]), are_hard_labels([0.2, 0.9, 0.9]), are_hard_labels([1, 1])
    (True, False, False)
    """
    values = np.unique(np.asarray(predictions, dtype=np.float64))
    return len(values) == 2 and bool((values == np.round(values)).all())


def _labels_of(y: ArrayLike) -> NDArray[Any]:
    allowed = "an array with a value for each row"
    try:
        made = np.asanyarray(y)
        labels: NDArray[Any] = fp.copy_of(np.asarray(made))
    except Exception:  # its text may show labels
        raise InvalidArgument("y", allowed, f"a {type(y).__name__} that is none") from None
    refuse_masked("y", made)
    if labels.ndim == 0 or len(labels) == 0:
        raise InvalidArgument("y", allowed, f"of shape {labels.shape}")
    return labels


def count_rows(X: Any) -> int:
    """Return the number of rows of an array, a DataFrame, a sparse matrix or a list."""
    try:
        return int(X.shape[0]) if hasattr(X, "shape") else len(X)
    except Exception:  # whatever its own methods raise
        raise InvalidArgument("X", "a table of rows", f"a {type(X).__name__}") from None


def weights_of(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """Validate the weights of a holdout's rows."""
    refuse_masked("sample_weight", sample_weight)
    try:
        made = np.asanyarray(sample_weight)
        weights = np.array(made, dtype=np.float64)
        if has_mask(made):
            weights = np.empty(0)
    except Exception:  # whatever an entry raises
        weights = np.empty(0)
    # So small that no sum of them overflows.
    fine = weights.shape == (n,) and bool(((weights >= 0) & (weights <= LARGEST)).all())
    if not fine or not weights.any():
        raise InvalidArgument(
            "sample_weight",
            f"{n} finite numbers up to {LARGEST:g}, none negative and not all zero",
            f"an array of shape {weights.shape} that is not",
        )
    return weights


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


def settings_for(wish: Wish, metric: Metric, n: int, n_reserve: int) -> LadderSettings:
    """Return the settings of a new ladder on n rows and a reserve, validated as a whole."""
    mechanism = wish.mechanism or wish.default(metric, n, reserved=n_reserve > 0)
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
    """Return what makes a metric of this name this one, as JSON can hold it.

    The range is that of a single loss, squared where the score is a root.
    """
    settings: dict[str, Any] = {}
    custom = not is_named(metric)
    limits = metric.risk_range
    if custom and metric.two_class_range is not None:
        limits = metric.two_class_range  # the same before and after `Metric.for_classes`
    if limits is not None and (custom or metric.clip):
        settings["loss_range"] = list(limits)
    if metric.target_range is not None:
        settings["target_range"] = list(metric.target_range)
        settings["largest_error"] = metric.largest_error
    if custom:
        settings["custom"] = {
            "response": metric.response,
            "offset": metric.offset,
            "root": metric.root,
            "counts": metric.counts,
        }
    return settings


def going_on(metric: Metric | None, settings: LadderSettings) -> Metric:
    """Return the metric of a ladder for a caller who left it out, or its range."""
    stored = stored_metric(settings)
    if metric is None or metric == _without_ranges(stored):
        return stored
    # The root of a stored range, as it is shown, may have lost the last digit of its square.
    return stored if metric == replace(stored) else metric


def _without_ranges(metric: Metric) -> Metric:
    """Return a metric as its name alone states it."""
    known = METRICS.get(metric.name)
    limits = None if known is None or metric.target_range is None else known.loss_range
    return replace(metric, loss_range=limits, clip=False, target_range=None, largest_error=None)


def warn_of_hard_labels(metric: Metric, predictions: Any) -> None:
    """Warn of labels where scores to rank by are wanted: a fact about predictions alone."""
    ranks = metric.response == "scores" or metric.name.startswith("roc_auc")
    if ranks and are_hard_labels(predictions):
        warn(
            f"{metric.name} ranks the rows, and these predictions have two values only, like "
            "labels: submit decision_function(X) or predict_proba(X) instead of predict(X).",
            PredictionWarning,
        )


def a_function(build: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Validate what builds a model of a trial."""
    if not callable(build):
        raise InvalidArgument("build", "a function of a trial", type(build).__name__)
    return build
