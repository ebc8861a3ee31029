"""From what a caller states to the settings that a ladder keeps permanently."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import identity as fp
from ladderholdout.arguments import as_given, choice, folder, inside, text, whole
from ladderholdout.certificates.group_limits import ESTIMANDS
from ladderholdout.errors import InvalidArgument, PredictionWarning, warn
from ladderholdout.ledger.events import LadderSettings
from ladderholdout.ledger.rules import stored_metric
from ladderholdout.mechanisms import LadderRules, Mechanism
from ladderholdout.mechanisms.base import a_mechanism, takes_groups
from ladderholdout.mechanisms.defaults import default_mechanism
from ladderholdout.mechanisms.rules import SHOWN
from ladderholdout.metrics import ItemMetric, Metric, get_metric
from ladderholdout.metrics.arrays import LARGEST, check_index, has_mask, refuse_masked
from ladderholdout.metrics.table import METRICS, is_named
from ladderholdout.vault import Rows

LARGEST_NUMBER = 2**31 - 1
"""Of a submission or a budget: what the columns of every ledger hold."""
SEARCH_POLICIES = ("auto", "penalised", "incumbent")
OVERLAP_POLICIES = ("auto", "warn", "error", "ignore")
_OPTIONAL = {"name", "vault", "reserve", "confidence", "estimand"}


class DefaultRule(Protocol):
    """The rule of a new ladder where none is stated."""

    def __call__(self, metric: Metric, n: int, *, reserved: bool = False) -> Mechanism:
        """Choose by metric, number of rows, and whether others are kept in reserve."""


A = TypeVar("A")
Scoring: TypeAlias = str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric]
"""One metric, or several: in a list, or under names of the user's own."""
Each: TypeAlias = A | Mapping[str, A]
"""The same for all metrics, or by the name of the metric."""


@dataclass(frozen=True, slots=True)
class LadderWish:
    """What a caller states of one ladder, validated; None where nothing was stated."""

    common: HoldoutSettings
    name: str
    metric: Metric | None
    mechanism: Mechanism | None
    budget: int | None
    show: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class HoldoutSettings:
    """What a caller states of a holdout and its ladders: the parameters of `LadderHoldout`.

    This is the one list of them. It is handed on whole, from the signature to where each is used.
    """

    scoring: Scoring | None = None
    name: str | None = None
    mechanism: Each[Mechanism] | None = None
    account: str = "default"
    ladder: str = "main"
    show: Each[str] | None = None
    budget: Each[int] | None = None
    sample_weight: ArrayLike | None = None
    classes: ArrayLike | None = None
    loss_range: Each[tuple[float, float]] | None = None
    target_range: Each[tuple[float, float]] | None = None
    pos_label: Each[Any] | None = None
    feedback: str = "auto"
    overlap: str = "auto"
    ledger: str | os.PathLike[str] | None = None
    vault: str | os.PathLike[str] | bool | None = None
    reserve: float | None = None
    confidence: float | None = None
    ids: Any = None
    groups: Any = None
    estimand: str | None = None
    default: DefaultRule = default_mechanism

    def __post_init__(self) -> None:
        """Validate what does not depend on the metric."""
        proposed: Any = self.loss_range
        if hasattr(proposed, "target_range"):  # as a search proposed it, with what belongs to it
            object.__setattr__(self, "loss_range", proposed.loss_range)
            object.__setattr__(self, "target_range", self.target_range or proposed.target_range)
            if self.ladder == "main":
                object.__setattr__(self, "ladder", proposed.ladder)
        checks: dict[str, Callable[[Any], Any]] = {
            "name": partial(text, "name"),
            "account": partial(text, "account"),
            "ladder": partial(text, "ladder"),
            "feedback": partial(choice, "feedback", allowed=SEARCH_POLICIES),
            "overlap": partial(choice, "overlap", allowed=OVERLAP_POLICIES),
            "vault": partial(folder, "vault"),
            "reserve": partial(inside, "reserve", what="a share of the rows"),
            "confidence": partial(inside, "confidence"),
            "estimand": partial(choice, "estimand", allowed=ESTIMANDS),
        }
        for parameter, check in checks.items():
            value = getattr(self, parameter)
            if value is not None or parameter not in _OPTIONAL:
                object.__setattr__(self, parameter, check(value))

    @property
    def several(self) -> bool:
        """Whether several metrics are named, in a list or a mapping."""
        return are_several(self.scoring)

    def ladders(self) -> tuple[LadderWish, ...]:
        """Return what is stated of each ladder, one for each metric.

        Raises
        ------
        InvalidArgument
            A metric, or a setting of one, is outside of what is allowed.
        """
        own = ("mechanism", "budget", "show", "loss_range", "target_range", "pos_label")
        if not self.several:
            return (self._ladder(self.ladder, self.scoring, *(getattr(self, key) for key in own)),)
        metrics = metrics_of(self.scoring)
        plain = {"mechanism", "budget", "show", "pos_label"}
        stated = [_each(key, getattr(self, key), list(metrics), plain=key in plain) for key in own]
        about_one = {name for name, metric in metrics.items() if get_metric(metric).binary}
        if about_one and not isinstance(self.pos_label, Mapping):  # the others need none
            stated[-1] |= dict.fromkeys(set(metrics) - about_one)
        return tuple(
            self._ladder(f"{self.ladder}{BETWEEN}{name}", metric, *(each[name] for each in stated))
            for name, metric in metrics.items()
        )

    def _ladder(
        self, name: str, scoring: Any, mechanism: Any, budget: Any, show: Any, *ranges: Any
    ) -> LadderWish:
        return LadderWish(
            self,
            name=text("ladder", name),
            metric=metric_for(scoring, *ranges),
            mechanism=None if mechanism is None else a_mechanism(mechanism),
            budget=None if budget is None else whole("budget", budget, most=LARGEST_NUMBER),
            show=None if show is None else choice("show", show, SHOWN),
        )


def stated_in(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of `LadderHoldout` among the variables of a function, by their names.

    Examples
    --------
    >>> def opened(file, name, ladder="main"):
    ...     return stated_in(locals())
    >>> opened("rows.csv", "churn")
    {'name': 'churn', 'ladder': 'main'}
    """
    return {
        key.name: variables[key.name] for key in fields(HoldoutSettings) if key.name in variables
    }


def are_several(scoring: object) -> bool:
    """Return whether a user names metrics in a list or a mapping, and not one of them."""
    return isinstance(scoring, Mapping | Sequence) and not isinstance(scoring, str | bytes)


def metrics_of(scoring: Any) -> dict[str, str | Metric]:
    """Return several metrics by the names under which they are shown, in their order.

    Raises
    ------
    InvalidArgument
        There is none, or a name is missing, taken or cannot be one.

    Examples
    --------
    >>> metrics_of(["roc_auc", "neg_brier_score"])
    {'roc_auc': 'roc_auc', 'neg_brier_score': 'neg_brier_score'}
    """
    if isinstance(scoring, Mapping):
        pairs = list(scoring.items())
    else:
        pairs = [(get_metric(one).name, one) for one in scoring]
    names = [name for name, _ in pairs]
    if not pairs or len(set(map(str, names))) < len(pairs):
        raise InvalidArgument(
            "scoring",
            "a metric, or a list or mapping of distinct ones",
            "one that names a metric twice" if pairs else "an empty one",
        )
    for name in names:
        if BETWEEN in text("scoring", name):
            raise InvalidArgument("scoring", f"with names without {BETWEEN!r}", as_given(name))
    return dict(pairs)


def _each(argument: str, stated: Any, names: Sequence[str], *, plain: bool) -> dict[str, Any]:
    """Return a setting of each metric: the same for all, or that under its name."""
    if stated is None or (plain and not isinstance(stated, Mapping)):
        return dict.fromkeys(names, stated)
    listed = ", ".join(map(repr, names))
    if not isinstance(stated, Mapping) or not set(stated) <= set(names):
        raise InvalidArgument(
            argument,
            f"a mapping from names of metrics ({listed}), where there are several",
            as_given(list(stated) if isinstance(stated, Mapping) else stated),
            f"State it as {{{names[0]!r}: ...}}.",
        )
    return {name: stated.get(name) for name in names}


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


def metric_for(
    scoring: str | Metric | None,
    loss_range: tuple[float, float] | None,
    target_range: tuple[float, float] | None = None,
    pos_label: Any = None,
) -> Metric | None:
    """Return the metric a caller names, with the ranges and the positive class that are stated."""
    if scoring is not None:
        metric = get_metric(scoring)
        if pos_label is not None:
            metric = metric.with_pos_label(pos_label)
        if target_range is not None:
            return metric.with_target_range(target_range, loss_range)
        return metric if loss_range is None else metric.with_range(loss_range)
    stated = {"loss_range": loss_range, "target_range": target_range, "pos_label": pos_label}
    if argument := next((name for name, value in stated.items() if value is not None), None):
        raise InvalidArgument(
            argument,
            "stated together with scoring",
            "stated alone",
            "Name the metric too, or leave it out to go on with the ladder's.",
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
    X, ids = _column_of(X, ids, "ids", argument)
    # Ids of predictions name rows. Those of a holdout may turn out to name groups of them.
    hashes, n = fp.id_hashes(ids, may_repeat=argument == "X"), count_rows(X)
    if len(hashes) != n:
        raise InvalidArgument(
            "ids", f"as long as {argument} ({n} rows)", f"of length {len(hashes)}"
        )
    return X, ids, hashes


def groups_of(X: Any, groups: Any) -> tuple[Any, NDArray[np.uint64] | None]:
    """Return the features, and a hash of the group of each row where there are groups.

    A column that has the groups is no feature.
    """
    if groups is None:
        return X, None
    X, groups = _column_of(X, groups, "groups", "X")
    hashes, n = fp.id_hashes(groups, may_repeat=True, argument="groups"), count_rows(X)
    if len(hashes) != n:
        raise InvalidArgument("groups", f"as long as X ({n} rows)", f"of length {len(hashes)}")
    if len(np.unique(hashes)) == 1:
        raise InvalidArgument(
            "groups",
            "of two groups or more, for groups are the units that were drawn",
            "the same for all rows",
            "Hold out more groups; of one group nothing is known about others.",
        )
    return X, hashes


def _column_of(X: Any, values: Any, what: str, argument: str) -> tuple[Any, Any]:
    """Return a table without the column that is named, and the column; or values as given."""
    if isinstance(values, str):
        if not hasattr(X, "columns") or values not in X.columns:
            raise InvalidArgument(
                what,
                f"the name of a column of {argument}, or a list of values",
                "a text that names none",
                f"Give {argument} as a DataFrame with that column, or the {what} themselves.",
            )
        name = values
        X, values = X.drop(columns=[name]) if hasattr(X, "iloc") else X.drop(name), X[name]
    refuse_masked(what, values)
    check_index(what, values, X)
    return X, values


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
        rows = X if hasattr(X, "shape") or hasattr(X, "__len__") else np.asarray(X)
        return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)
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
    metric: Metric | None,
    mechanism: Mechanism | None = None,
    budget: int | None = None,
    show: str | None = None,
) -> dict[str, Any]:
    """Return what a caller stated, in the words of `LadderSettings`."""
    asked: dict[str, Any] = {}
    if metric is not None:
        asked |= {"metric": metric.name, "metric_settings": metric_settings(metric)}
    if mechanism is not None:
        asked |= {"mechanism": mechanism.name, "mechanism_settings": mechanism.settings()}
    others = {"budget": budget, "show": show}
    return asked | {name: value for name, value in others.items() if value is not None}


def settings_for(
    wish: LadderWish, metric: Metric, n: int, n_reserve: int, draws: int
) -> LadderSettings:
    """Return the settings of a new ladder on n rows and a reserve, validated as a whole.

    `draws` are the rows, or the groups where whole groups were drawn.
    """
    # A mean of losses is released as a share of rows; steps of other scores go by their error.
    size = n if metric.is_mean else draws
    mechanism = wish.mechanism or wish.common.default(metric, size, reserved=n_reserve > 0)
    if draws < n and not takes_groups(type(mechanism)):
        raise InvalidArgument(
            "mechanism",
            "one that goes by the risk alone, or compares groups, where there are groups",
            f"{mechanism.name}, which compares or resamples single rows",
            "Take ParameterFreeLadder() or GateLadder() for means of losses, "
            "BayesBootLadder(odds, step=step) for any metric, or Ladder(step).",
        )
    if mechanism.needs_losses and not metric.is_mean:
        remedy = "Take Ladder(step), SimplifiedLadder(step) or BayesBootLadder(odds, step=step)."
        if mechanism.flags_alone:
            remedy += (
                " Rows are compared in pairs for accuracy, neg_brier_score, and, with loss_range=, "
                "neg_log_loss and neg_mean_absolute_error."
            )
        raise InvalidArgument(
            "mechanism",
            f"one that works for {metric.name}, which is no mean of per-example losses",
            mechanism.name,
            remedy,
        )
    if mechanism.needs_bounded_risk and not metric.bounded:
        raise InvalidArgument(
            "mechanism",
            f"one that works without a known range of the loss ({metric.name} has none)",
            mechanism.name,
            "State loss_range=(0, largest), or take ParameterFreeLadder() or Ladder(step).",
        )
    if mechanism.needs_inner_score:
        raise InvalidArgument(
            "mechanism",
            "one that goes by the holdout alone",
            f"{mechanism.name}, which compares it with the training rows",
            "Take it for simulations, and ShakyLadder(step, noise) here.",
        )
    if mechanism.flags_alone and wish.show == SHOWN[0]:
        raise InvalidArgument(
            "show",
            f"'improvements' for {mechanism.name}, whose error counts nothing else that is shown",
            repr(wish.show),
            "Leave show out; reveal() shows the score when the search is over.",
        )
    shown = wish.show or SHOWN[mechanism.flags_alone]
    rules = LadderRules(mechanism, wish.budget, metric.unit, show=shown)
    if mechanism.needs_account and not rules.shows_scores:
        raise InvalidArgument(
            "show",
            "'scores' for a rule whose places are shown to all",
            f"{rules.show!r} with {mechanism.name}",
            "Leave show out, or take a rule for one account.",
        )
    asked = asked_for(metric, mechanism, rules.budget, rules.show)
    return LadderSettings(
        **{"budget": None, **asked}, account=wish.common.account, name=wish.name, unit=rules.unit
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
    if metric.alike_rows:
        settings["alike_rows"] = True
    if metric.pos_label is not None:
        settings["pos_label"] = metric.pos_label
    if custom:
        settings["custom"] = {
            "response": metric.response,
            "offset": metric.offset,
            "root": metric.root,
            "counts": metric.counts,
        }
        if isinstance(metric, ItemMetric):
            settings["custom"]["items"] = True
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
    limits = None if metric.clip else metric.loss_range
    if known is not None and metric.target_range is not None:
        limits = known.loss_range
    return replace(
        metric,
        loss_range=limits,
        clip=False,
        target_range=None,
        largest_error=None,
        alike_rows=False,
        pos_label=None,
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
