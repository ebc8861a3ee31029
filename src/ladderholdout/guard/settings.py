"""From what a caller states to the settings that a ladder keeps permanently."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import InvalidArgument, PredictionWarning, as_given, warn
from ladderholdout.ledger import LadderSettings
from ladderholdout.mechanisms import LadderRules, Mechanism
from ladderholdout.metrics import Metric, get_metric
from ladderholdout.metrics.arrays import LARGEST, refusal
from ladderholdout.metrics.table import METRICS, is_named
from ladderholdout.vault import Rows

LARGEST_NUMBER = 2**31 - 1
"""Of a submission or a budget: what the columns of every ledger hold."""
_LONGEST = 200


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
    """Bring rows, labels and weights together, validated as a whole."""
    labels = _labels_of(y)
    n = count_rows(X)
    for argument, values in (("y", y), ("sample_weight", sample_weight)):
        check_index(argument, values, X)
    if n != len(labels):
        raise InvalidArgument(
            "y", f"as long as X ({n} rows)", f"of length {len(labels)}", "Give one value a row."
        )
    return Rows(X, labels, None if sample_weight is None else weights_of(sample_weight, n))


def ids_of(X: Any, ids: Any, argument: str = "X") -> tuple[Any, NDArray[np.uint64] | None]:
    """Return the features, or predictions, and the hashes of the ids where there are any.

    A column that has the ids is neither.
    """
    if ids is None:
        return X, None
    if isinstance(ids, str):
        if not hasattr(X, "columns") or ids not in X.columns:
            raise InvalidArgument(
                "ids",
                f"the name of a column of {argument}, or a list of values",
                "a text that names none",
                f"Give {argument} as a DataFrame with that column, or the ids themselves.",
            )
        X, ids = X.drop(columns=[ids]) if hasattr(X, "iloc") else X.drop(ids), X[ids]
    # Ids of predictions name rows. Those of a holdout may turn out to name groups of them.
    hashes, n = fp.id_hashes(ids, may_repeat=argument == "X"), count_rows(X)
    if len(hashes) != n:
        raise InvalidArgument(
            "ids", f"as long as {argument} ({n} rows)", f"of length {len(hashes)}"
        )
    return X, hashes


def predictions_of(predictions: Any, ids: Any) -> tuple[Any, NDArray[np.uint64] | None]:
    """Return predictions without a column of ids, and the hashes of the ids if there are any.

    Those of a mapping have the same ids, in one order.
    """
    if ids is not None and isinstance(predictions, Mapping):
        found = {name: predictions_of(one, ids) for name, one in predictions.items()}
        every = [hashes for _, hashes in found.values() if hashes is not None]
        if any(not np.array_equal(one, every[0]) for one in every[1:]):
            raise InvalidArgument(
                "ids", "the same and in one order in all of the predictions", "others"
            )
        return {name: values for name, (values, _) in found.items()}, every[0] if every else None
    left, hashes = ids_of(predictions, ids, "predictions")
    if hashes is None:
        return predictions, None
    values = np.asarray(left)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values, hashes


def by_index(predictions: Any, X: Any) -> Any:
    """Return predictions in the order of the rows, where both have the same index of their own.

    Raises
    ------
    InvalidSubmission
        The two contradict each other, and nobody can know what is meant.
    """
    theirs, own = _index_of(predictions), _index_of(X)
    if theirs is not None and own is not None and _is_reordered(theirs, own):
        return predictions.iloc[theirs.get_indexer(own)]
    check_index("predictions", predictions, X)
    return predictions


def _is_reordered(theirs: Any, own: Any) -> bool:
    """Return whether an index has the entries of another one, each once, in another order."""
    if len(theirs) != len(own) or own.equals(theirs):
        return False
    if not (theirs.is_unique and own.is_unique) or (theirs.get_indexer(own) < 0).any():
        return False
    # Positions that somebody counted name no rows.
    return not any(list(index) == list(range(len(own))) for index in (own, theirs))


def check_index(argument: str, values: Any, X: Any) -> None:
    """Refuse a pandas index that contradicts that of the rows.

    Values are taken by position, as scikit-learn takes them. Where the index has the rows in
    another order, or other rows, that is not what is meant, or nobody can know.
    """
    theirs, own = _index_of(values), _index_of(X)
    if theirs is None or own is None or len(own) != len(theirs):
        return
    if own.equals(theirs):
        return
    same = own.sort_values().equals(theirs.sort_values()) if _sortable(own, theirs) else False
    counted = range(len(own))
    if not same and any(list(index) == list(counted) for index in (own, theirs)):
        return  # one of the two was never given an index, and holds its rows by position
    raise refusal(
        argument,
        "in the order of the rows by its index too",
        "indexed like the rows, in another order" if same else "indexed by other rows",
        f"Bring it to their order, {argument}.loc[X.index], or give {argument}.to_numpy() to take "
        "it by position.",
    )


def _index_of(values: Any) -> Any:
    """Return the index of a pandas object; None of all else."""
    try:
        index = getattr(values, "index", None)
        return index if hasattr(index, "equals") and hasattr(index, "sort_values") else None
    except Exception:  # of an object of any kind
        return None


def are_hard_labels(predictions: Any) -> bool:
    """Return whether predictions that were taken for scores are two whole numbers throughout.

    Examples
    --------
    >>> are_hard_labels([0, 1, 1]), are_hard_labels([0.2, 0.9, 0.9]), are_hard_labels([1, 1])
    (True, False, False)
    """
    values = np.unique(np.asarray(predictions, dtype=np.float64))
    return len(values) == 2 and bool((values == np.round(values)).all())


def _sortable(*indexes: Any) -> bool:
    try:
        return all(index.sort_values() is not None for index in indexes)
    except TypeError:  # entries of several types
        return False


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
    except Exception:  # whatever its own methods raise
        raise InvalidArgument("X", "a table of rows", f"a {type(X).__name__}") from None


def weights_of(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """Validate the weights of a holdout's rows."""
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
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

    The range is that of a single loss, squared where the score is a root, as it always was: so
    a ladder of version 0.1, where it was stated like this, keeps its meaning.
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


def stored_metric(settings: LadderSettings) -> Metric:
    """Return the metric of a ladder from the ledger alone.

    A metric of the user's own is known by its name and sign, not by its function: the one
    that comes back can show scores, and refuses to compute any.
    """
    stated = settings.metric_settings.get("loss_range")
    if custom := settings.metric_settings.get("custom"):
        metric = Metric(name=settings.metric, score=_unavailable, **custom)
    else:
        metric = get_metric(settings.metric)
    if (targets := settings.metric_settings.get("target_range")) is not None:
        largest = float(settings.metric_settings["largest_error"])
        return metric.with_target_range((targets[0], targets[1]), (0.0, largest))
    return metric if stated is None else metric.with_risk_range((stated[0], stated[1]))


def _unavailable(*_: Any, **__: Any) -> NoReturn:
    raise InvalidArgument(
        "scoring",
        "given again for a metric of your own",
        "missing",
        "The ledger keeps its name, not its function: LadderHoldout.open(name, scoring=metric).",
    )


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
