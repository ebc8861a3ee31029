"""From what a caller states to the settings that a ladder keeps permanently."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import as_given, choice, folder, inside, text, whole
from ladderholdout.certificates.group_limits import ESTIMANDS
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.identity.copies import copy_of, unwritable
from ladderholdout.identity.labels import id_hashes
from ladderholdout.ledger.events import LadderSettings
from ladderholdout.ledger.rules import stored_metric
from ladderholdout.mechanisms import LadderRules, Mechanism, default_mechanism, mechanism_from
from ladderholdout.mechanisms.base import a_mechanism, takes_groups
from ladderholdout.mechanisms.rules import SHOWN
from ladderholdout.metrics import ItemMetric, Metric, get_metric, table
from ladderholdout.metrics.arrays import LARGEST, check_index, has_mask, index_of, refuse_masked
from ladderholdout.vault import Rows

LARGEST_NUMBER = 2**31 - 1
"""Of a submission or a budget: what the columns of every ledger hold."""


SEARCH_POLICIES = ("auto", "penalised", "incumbent")


OVERLAP_POLICIES = ("auto", "warn", "error", "ignore")


_OPTIONAL = {"name", "vault", "reserve", "confidence", "estimand"}


DefaultRule: TypeAlias = Callable[..., Mechanism]
"""The rule of a new ladder where none is stated: by its metric and its number of rows, and by
whether others are kept in reserve (``reserved=``)."""


A = TypeVar("A")


Scoring: TypeAlias = str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric]
"""One metric, or several: in a list, or under names of the user's own."""


Each: TypeAlias = A | Mapping[str, A]
"""The same for all metrics, or by the name of the metric."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class HoldoutSettings:
    """What a caller states of a holdout and its ladders: the parameters of `LadderHoldout`.

    This is the one list of them. It is handed on whole, from the signature to where each is used.
    What may be stated for each of several metrics is of one metric in those of `ladders`.
    """

    scoring: Scoring | None = None
    name: str | None = None
    mechanism: Any = None
    account: str = "default"
    ladder: str = "main"
    show: Any = None
    budget: Any = None
    sample_weight: ArrayLike | None = None
    classes: ArrayLike | None = None
    loss_range: Any = None
    target_range: Any = None
    pos_label: Any = None
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
            **{name: partial(text, name) for name in ("name", "account", "ladder")},
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
    def metrics(self) -> dict[str, str | Metric]:
        """Several metrics by the names under which they are shown, in their order; none if one is.

        Raises
        ------
        InvalidArgument
            There is none, or a name is missing, taken or cannot be one.

        Examples
        --------
        >>> HoldoutSettings(scoring=["roc_auc", "neg_brier_score"]).metrics
        {'roc_auc': 'roc_auc', 'neg_brier_score': 'neg_brier_score'}
        """
        scoring: Any = self.scoring
        if isinstance(scoring, Mapping):
            pairs = list(scoring.items())
        elif isinstance(scoring, Sequence) and not isinstance(scoring, str | bytes):
            pairs = [(get_metric(one).name, one) for one in scoring]
        else:
            return {}
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

    @property
    def metric(self) -> Metric | None:
        """The metric of a ladder of one, with its ranges and its positive class."""
        scoring: Any = self.scoring
        if scoring is not None:
            metric = get_metric(scoring)
            if self.pos_label is not None:
                metric = metric.with_pos_label(self.pos_label)
            if self.target_range is not None:
                return metric.with_target_range(self.target_range, self.loss_range)
            return metric if self.loss_range is None else metric.with_range(self.loss_range)
        for argument in ("loss_range", "target_range", "pos_label"):
            if getattr(self, argument) is not None:
                raise InvalidArgument(
                    argument,
                    "stated together with scoring",
                    "stated alone",
                    "Name the metric too, or leave it out to go on with the ladder's.",
                )
        return None

    def ladders(self) -> tuple[HoldoutSettings, ...]:
        """Return what is stated of each ladder, one for each metric, validated.

        Raises
        ------
        InvalidArgument
            A metric, or a setting of one, is outside of what is allowed.
        """
        metrics = self.metrics
        if not metrics:
            return (self._checked(),)
        plain = ("mechanism", "budget", "show", "pos_label")
        stated = {
            key: _each(key, getattr(self, key), list(metrics), plain=key in plain)
            for key in (*plain, "loss_range", "target_range")
        }
        about_one = {name for name, metric in metrics.items() if get_metric(metric).binary}
        if about_one and not isinstance(self.pos_label, Mapping):  # the others need none
            stated["pos_label"] |= dict.fromkeys(set(metrics) - about_one)
        return tuple(
            replace(
                self,
                scoring=metric,
                ladder=f"{self.ladder}{BETWEEN}{name}",
                **{key: each[name] for key, each in stated.items()},
            )._checked()
            for name, metric in metrics.items()
        )

    def asked(self, metric: Metric) -> dict[str, Any]:
        """Return what is stated of a ladder by this metric, in the words of `LadderSettings`."""
        asked = {"metric": metric.name, "metric_settings": metric_settings(metric)}
        if self.mechanism is not None:
            asked["mechanism"] = self.mechanism.name
            asked["mechanism_settings"] = self.mechanism.settings()
        others = {"budget": self.budget, "show": self.show}
        return asked | {name: value for name, value in others.items() if value is not None}

    def going_on(self, holdout: str, settings: LadderSettings) -> Metric:
        """Return the metric of a ladder; refuse what contradicts that which it was started under.

        Left out, or without its range, the metric is the ladder's.
        """
        stored, metric = stored_metric(settings), self.metric
        # The root of a stored range, as it is shown, may have lost the last digit of its square.
        if metric is None or metric in (_without_ranges(stored), replace(stored)):
            metric = stored
        there, asked = asdict(settings), self.asked(metric)
        for field in asked:
            if asked[field] != there[field]:
                argument, before = _stated(there, field, asked)
                _, now = _stated(there | asked, field, there)
                raise HoldoutConflict(
                    f"The ladder {settings.name!r} of account {settings.account!r} on "
                    f"{holdout!r} is in the ledger with {argument} {before}, and you ask for "
                    f"{now}. Leave {argument} out to go on with it, or start a second ladder, "
                    'ladder="another name", which counts against the same holdout.'
                )
        return metric

    def _checked(self) -> HoldoutSettings:
        """Return these settings of one ladder with what depends on the metric validated."""
        _ = self.metric
        mechanism, budget, show = self.mechanism, self.budget, self.show
        return replace(
            self,
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


def rows_of(X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Rows:
    """Bring rows, labels and weights together, validated as a whole.

    They are copies: whatever the caller does to what was given changes no holdout.
    """
    for argument, given in (("X", X), ("y", y), ("sample_weight", sample_weight)):
        refuse_masked(argument, given)
    allowed = "an array with a value for each row"
    try:
        made = np.asanyarray(y)
        if isinstance(y, list | tuple) and made.dtype.kind in "US":
            # NumPy makes texts of [1, "a"] and of what is missing among texts: it is refused.
            entries = np.asanyarray(y, dtype=object)
            made = made if all(isinstance(one, str | bytes) for one in entries.flat) else entries
        labels: NDArray[Any] = copy_of(np.asarray(made))
    except Exception:  # its text may show labels
        raise InvalidArgument("y", allowed, f"a {type(y).__name__} that is none") from None
    refuse_masked("y", made)
    if labels.ndim == 0 or len(labels) == 0:
        raise InvalidArgument("y", allowed, f"of shape {labels.shape}")
    n = count_rows(X)
    for argument, values in (("y", y), ("sample_weight", sample_weight)):
        check_index(argument, values, X)
    check_index("sample_weight", sample_weight, y, "y")  # where X has no index
    if n != len(labels):
        raise InvalidArgument(
            "y", f"as long as X ({n} rows)", f"of length {len(labels)}", "Give one value a row."
        )
    weights = None if sample_weight is None else unwritable(_weights_of(sample_weight, n))
    own = copy_of(X)
    if isinstance(own, np.ndarray):
        unwritable(own)
    return Rows(own, unwritable(labels), weights, index_of(y))


def names_of_rows(
    X: Any, names: Any, what: str, argument: str = "X"
) -> tuple[Any, Any, NDArray[np.uint64] | None]:
    """Return features, or predictions, with the ids or groups of their rows and hashes of those.

    A column that is named for them is no feature.
    """
    if isinstance(names, str):
        if not hasattr(X, "columns") or names not in X.columns:
            raise InvalidArgument(
                what,
                f"the name of a column of {argument}, or a list of values",
                "a text that names none",
                f"Give {argument} as a DataFrame with that column, or the {what} themselves.",
            )
        X, names = X.drop(columns=[names]) if hasattr(X, "iloc") else X.drop(names), X[names]
    if names is None:
        return X, None, None
    refuse_masked(what, names)
    check_index(what, names, X)
    # Ids of predictions name rows. Those of a holdout may turn out to name groups of them.
    hashes, n = id_hashes(names, may_repeat=argument == "X", argument=what), count_rows(X)
    if len(hashes) != n:
        raise InvalidArgument(what, f"as long as {argument} ({n} rows)", f"of length {len(hashes)}")
    if what == "groups" and len(np.unique(hashes)) == 1:
        raise InvalidArgument(
            "groups",
            "of two groups or more, for groups are the units that were drawn",
            "the same for all rows",
            "Hold out more groups; of one group nothing is known about others.",
        )
    return X, names, hashes


def count_rows(X: Any) -> int:
    """Return the number of rows of an array, a DataFrame, a sparse matrix or a list."""
    try:
        rows = X if hasattr(X, "shape") or hasattr(X, "__len__") else np.asarray(X)
        return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)
    except Exception:  # whatever its own methods raise
        raise InvalidArgument("X", "a table of rows", f"a {type(X).__name__}") from None


def _weights_of(sample_weight: ArrayLike, n: int) -> NDArray[np.float64]:
    """Validate the weights of a holdout's rows."""
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


def settings_for(
    wish: HoldoutSettings, metric: Metric, n: int, draws: int, *, reserved: bool
) -> LadderSettings:
    """Return the settings of a new ladder that measures n rows, validated as a whole.

    `draws` are those rows, or their groups where whole groups were drawn; `reserved` is whether
    there are others that no ladder measures.
    """
    # A mean of losses is released as a share of rows; steps of other scores go by their error.
    size = n if metric.is_mean else draws
    mechanism: Mechanism = wish.mechanism or wish.default(metric, size, reserved=reserved)
    refused = partial(InvalidArgument, "mechanism")
    if draws < n and not takes_groups(type(mechanism)):
        raise refused(
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
        raise refused(
            f"one that works for {metric.name}, which is no mean of per-example losses",
            mechanism.name,
            remedy,
        )
    if mechanism.needs_bounded_risk and not metric.bounded:
        raise refused(
            f"one that works without a known range of the loss ({metric.name} has none)",
            mechanism.name,
            "State loss_range=(0, largest), or take ParameterFreeLadder() or Ladder(step).",
        )
    if mechanism.needs_inner_score:
        raise refused(
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
    show = wish.show or SHOWN[mechanism.flags_alone]
    rules = LadderRules(mechanism, wish.budget, metric.unit, show=show)
    if mechanism.needs_account and not rules.shows_scores:
        raise InvalidArgument(
            "show",
            "'scores' for a rule whose places are shown to all",
            f"{rules.show!r} with {mechanism.name}",
            "Leave show out, or take a rule for one account.",
        )
    wish = replace(wish, mechanism=mechanism, budget=rules.budget, show=rules.show)
    return LadderSettings(
        **{"budget": None, **wish.asked(metric)},
        account=wish.account,
        name=wish.ladder,
        unit=rules.unit,
    )


def metric_settings(metric: Metric) -> dict[str, Any]:
    """Return what makes a metric of this name this one, as JSON can hold it.

    The range is that of a single loss, squared where the score is a root.
    """
    settings: dict[str, Any] = {}
    custom = not table.is_named(metric)
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


def _without_ranges(metric: Metric) -> Metric:
    """Return a metric as its name alone states it."""
    known = table.METRICS.get(metric.name)
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


def _stated(settings: Mapping[str, Any], field: str, other: Mapping[str, Any]) -> tuple[str, str]:
    """Return the argument behind a field that others have otherwise, and what is given for it."""
    value = settings[field]
    if field == "metric_settings" and "custom" not in value:
        if value.get("alike_rows") != other[field].get("alike_rows"):
            named = f"get_metric({settings['metric']!r})"
            return "scoring", f"{named}.with_alike_rows()" if value.get("alike_rows") else named
        if value.get("pos_label") != other[field].get("pos_label"):
            return "pos_label", repr(value.get("pos_label"))
        if (stored := value.get("target_range")) is not None:
            return "target_range", f"{tuple(stored)!r}, loss_range={(0, value['largest_error'])!r}"
        # As it would be stated: in the unit that the metric shows.
        if (limits := value.get("loss_range")) is not None:
            limits = get_metric(settings["metric"]).with_risk_range(tuple(limits)).loss_range
        return "loss_range", repr(limits)
    if field.startswith("metric"):
        return "scoring", repr(value)
    if field.startswith("mechanism"):
        found = mechanism_from(settings["mechanism"], settings["mechanism_settings"])
        return "mechanism", repr(found)
    return field, repr(value)
