"""The winner of a search on all rows, those of the holdout too, which ends the holdout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse
from sklearn import config_context, get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard import commands
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.recognition import look_for_groups
from ladderholdout.guard.settings import count_rows
from ladderholdout.identity import matching
from ladderholdout.identity.labels import id_hashes
from ladderholdout.integrations.training_rows import check_fit, look_for_overlap

_ROUNDS = (
    *("num_iterations", "num_iteration", "num_tree", "num_trees", "num_round", "num_rounds"),
    *("nrounds", "num_boost_round", "n_iter", "max_iter", "iterations", "n_estimators"),
)
_STOPS = ("early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change")
_OF_EVALUATION = {"X_val", "y_val", "sample_weight_val", "use_best_model", "early_stopping_rounds"}


def given_to(X: Any, y: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a fit was given besides its rows, as far as a fit on all rows has a use for it.

    Rows for early stopping are named alone: the rounds are those of the fitted model then.
    """
    values, dropped = {}, []
    for name, value in params.items():
        tail = name.rpartition("__")[2]
        if tail.startswith("eval_") or "_eval_set" in tail or tail in _OF_EVALUATION:
            dropped.append(name)
        else:
            values[name] = _without_stops(value) if tail == "callbacks" else value
    return {
        "params": values,
        "dropped": dropped,
        "rows": count_rows(X),
        "has_labels": y is not None,
        "routed": get_config()["enable_metadata_routing"],
    }


def fitted_on_all(
    ladder: OpenLadder,
    model: Any,
    given: Mapping[str, Any],
    X_train: Any,
    y_train: Any,
    sample_weight: Any = None,
    stated: Mapping[str, Any] | None = None,
) -> Any:
    """Return a model that is fitted anew on training and holdout rows, and retire the holdout.

    `given` is from `given_to`, `stated` takes the place of parameters there. Whatever fails,
    the fit included, leaves the holdout as it was.
    """
    several = ladder
    ladder = next(iter(ladder.by_metric.values()), ladder)
    if not isinstance(ladder, LocalLadder):
        raise HoldoutConflict(
            f"The labels of this holdout are on the server {ladder.ledger}, which hands them "
            "to nobody, so that no model can be fitted on them here. Take the winner as it is, or "
            "let the owner of the server fit it there."
        )
    if given["has_labels"] != (y_train is not None):
        kind = "the labels" if given["has_labels"] else "None, as"
        raise InvalidArgument(
            "y_train",
            f"{kind} that fit was given",
            "None" if y_train is None else "labels",
            "Give the training rows and labels that the search was fitted on.",
        )
    rows = ladder.guard().rows
    X = joined("X_train", X_train, rows.X)
    labels = () if y_train is None else (_all_labels(y_train, rows.y),)
    n = count_rows(X)
    n_train = n - len(rows.y)
    if labels and len(labels[0]) != n:
        raise InvalidArgument(
            "y_train",
            "one label for each row of X_train",
            f"{len(labels[0]) - len(rows.y)} labels",
            "Give both whole.",
        )
    stated = stated or {}
    dropped = [name for name in given["dropped"] if name not in stated]
    again = clone(model).set_params(**_settings(model, dropped))
    params = _params(ladder, again, given, n_train, sample_weight, stated)
    look_for_overlap(several, X_train)
    look_for_groups(several, None, given["params"])
    check_fit(several, again, X_train, y_train)
    try:
        with without_frames, config_context(enable_metadata_routing=given["routed"]):
            fitted = again.fit(X, *labels, **params)
    except BaseException as error:
        error.add_note("The fit on all rows failed; the holdout was not retired.")
        raise
    ladder.execute(commands.Retire(name=ladder.facts.name))
    return fitted


def _all_labels(y_train: Any, of_holdout: Any) -> Any:
    """Return all labels, in the form and of the type of the former if nothing is lost by it."""
    first, second = np.asarray(y_train), np.asarray(of_holdout)
    if first.ndim == 2 and first.shape[1] == 1 and second.ndim == 1:
        second = second[:, None]
    whole = joined("y_train", first, second)
    if first.dtype.kind in "biuf" and whole.dtype.kind in "biuf":
        same = whole.astype(first.dtype)
        return same if np.array_equal(same, whole) else whole
    return whole


# -- what fit was given -----------------------------------------------------------------------


def _params(
    ladder: LocalLadder,
    model: Any,
    given: Mapping[str, Any],
    n_train: int,
    sample_weight: Any,
    stated: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the parameters of a fit on all rows, or refuse what the holdout has no part of."""
    guard, held = ladder.guard(), ladder.rows()
    n = n_train + len(guard.rows.y)
    params, known = dict(given["params"]), set(stated)
    weights = guard.rows.sample_weight
    if sample_weight is not None:
        part = np.asarray(sample_weight, dtype=np.float64)
        if part.shape != (n_train,):
            raise InvalidArgument(
                "sample_weight",
                f"one weight for each of the {n_train} training rows",
                f"an array of shape {part.shape}",
                "The holdout's rows have the weights that they were registered with, or 1.",
            )
        named = [name for name in params if name.rpartition("__")[2] == "sample_weight"]
        if len(named) > 1 or (not named and isinstance(model, Pipeline) and not given["routed"]):
            raise InvalidArgument(
                "sample_weight",
                "of one step, if the winner is a pipeline",
                f"of {len(named) or 'no'} steps",
                "Name the steps, with the weights of all rows, the training rows first: "
                "fit_params={'step__sample_weight': weights}.",
            )
        name = named[0] if named else "sample_weight"
        ones = np.ones(n - n_train) if weights is None else weights
        params[name] = np.concatenate([part, ones])
        known.add(name)
    lacking = []
    for name, value in params.items():
        tail, values = name.rpartition("__")[2], np.asarray(value, dtype=object)
        of_rows = _length(value) == given["rows"]
        # Sizes of consecutive groups, as rankers take them.
        of_rows |= tail == "group" and values.ndim == 1 and sum(values) == given["rows"]
        if name in known or not of_rows:
            continue
        groups = guard.groups
        if given["rows"] == n_train and tail == "sample_weight" and weights is not None:
            params[name] = np.concatenate([np.asarray(value), weights])
        elif given["rows"] == n_train and tail == "groups" and groups is not None:
            part = groups.names[groups.codes[matching.inverse(guard.order)]]
            hashed = id_hashes(value, may_repeat=True, argument="groups")
            params[name] = np.concatenate([hashed, part])
        else:
            lacking.append(name)
    example = f"fit_params={{{(lacking or ['name'])[0]!r}: values}}"
    if lacking:
        raise InvalidArgument(
            "fit_params",
            f"with {', '.join(lacking)} of the holdout's rows too, for fit was given one value "
            "for each training row",
            "without",
            f"State it for all rows, the training rows first: {example}."
            + " Or give sample_weight= of the training rows, and the holdout's weigh 1."
            * lacking[0].endswith("sample_weight"),
        )
    for name, value in stated.items():
        if name not in given["params"] and name not in given["dropped"]:
            of_rows = _length(value) in (n_train, n)
        else:
            of_rows = _length(given["params"].get(name)) == given["rows"]
        if not of_rows or value is None:
            continue
        if _length(value) != n:
            raise InvalidArgument(
                "fit_params",
                f"with {name} of all {n} rows, the training rows first",
                f"with {_length(value)} values",
                "Append its values for the holdout's rows, in their order.",
            )
        if not held.order_known:
            raise InvalidArgument(
                "fit_params",
                "without values of single rows if the holdout was opened without its rows, whose "
                "order is not yours then",
                f"with {name}",
                "Open it with its rows first: "
                "search.set_params(holdout=LadderHoldout(X_holdout, y_holdout, ...)).",
            )
    whole = params | dict(stated)
    return {name: value for name, value in whole.items() if value is not None or name in params}


def _length(value: Any) -> int | None:
    """Return how many entries a list, an array or a table has; None of what is none."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return int(shape[0])
    return len(value) if isinstance(value, list | tuple) else None


# -- rounds of training -----------------------------------------------------------------------


def _settings(model: Any, dropped: list[str]) -> dict[str, Any]:
    """Return the parameters by which a model trains as long as it did, with nothing to stop it."""
    settings: dict[str, Any] = {}
    known = False
    for prefix, part in _fitted_parts(model, ""):
        found = _rounds(part, part.get_params(deep=False), bool(dropped))
        known |= found is not None
        settings |= {prefix + name: value for name, value in (found or {}).items()}
    if dropped and not known:
        raise InvalidArgument(
            "winner",
            "one whose rounds are known, if fit was given rows to stop or choose by "
            f"({', '.join(dropped)})",
            type(model).__name__,
            "State its rounds, search.best_estimator_.set_params(...), and leave these rows out: "
            f"refit_all(..., fit_params={dict.fromkeys(dropped)}).",
        )
    return settings


def _fitted_parts(model: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield a fitted estimator and those within it, with the prefix of their parameters."""
    yield prefix, model
    members = getattr(model, "named_estimators_", {})
    for name, value in model.get_params(deep=True).items():
        if "__" not in name and hasattr(value, "get_params") and not isinstance(value, type):
            fitted = members.get(name, getattr(model, f"{name}_", value))
            if hasattr(fitted, "get_params"):
                yield from _fitted_parts(fitted, f"{prefix}{name}__")


def _rounds(part: Any, stated: Mapping[str, Any], has_dropped: bool) -> dict[str, Any] | None:
    """Return the settings of a fitted part that trains in rounds; None of others."""
    names = {kind.__name__ for kind in type(part).__mro__}
    library = {kind.__module__.partition(".")[0] for kind in type(part).__mro__}
    off: dict[str, Any] = {name: None for name in _STOPS if stated.get(name)}
    if "callbacks" in stated:
        off["callbacks"] = _without_stops(stated["callbacks"])
    count: Any = None
    if "lightgbm" in library:
        count = getattr(part, "best_iteration_", None)
        if count is None:
            return None  # fitted in copies, each of which may have stopped elsewhere
    elif "xgboost" in library:
        if not hasattr(part, "n_features_in_"):
            return None
        best = getattr(part, "best_iteration", None)
        count = None if best is None else best + 1
    elif "catboost" in library:
        if part.tree_count_ is None or not has_dropped:
            return None
        # Its own rate depends on the rows, the rounds and whether there are rows to stop by.
        off = {"use_best_model": False} if "use_best_model" in stated else {}
        if not {"learning_rate", "eta"} & stated.keys():
            off["learning_rate"] = part.learning_rate_
        count = part.tree_count_
    elif "BaseHistGradientBoosting" in names:
        # "auto" stops with more than 10,000 rows.
        stops = getattr(part, "do_early_stopping_", None)
        if stops is None:
            return None
        off, count = {"early_stopping": False}, part.n_iter_ if stops else None
    elif "BaseGradientBoosting" in names:
        count = getattr(part, "n_estimators_", None) if off else None
    elif "BaseSGD" in names and stated["early_stopping"]:
        off, count = {"early_stopping": False, "tol": None}, getattr(part, "n_iter_", None)
    else:
        return None
    if not count:
        return off if "early_stopping" in off else {}
    rounds = [name for name in _ROUNDS if name in stated] or ["iterations"]
    return off | dict.fromkeys(rounds, int(count))


def _without_stops(callbacks: Any) -> Any:
    """Return the callbacks of a fit but for those that end it, which need rows to stop by."""
    if not isinstance(callbacks, list | tuple):
        return callbacks
    return [
        callback
        for callback in callbacks
        if "EarlyStopping" not in type(callback).__name__
        and not type(callback).__module__.startswith("ladderholdout.")
    ]


# -- rows -------------------------------------------------------------------------------------


def joined(argument: str, first: Any, second: Any) -> Any:
    """Return the training rows followed by those of the holdout, in the form of the former."""
    reason, sparse = "", [scipy.sparse.issparse(rows) for rows in (first, second)]
    try:
        if hasattr(first, "columns") and (hasattr(first, "iloc") or hasattr(first, "vstack")):
            return _joined_frames(first, second)
        if hasattr(first, "iloc"):
            with needed("A frame"):
                import pandas as pd
            return pd.concat([first, pd.Series(second)], ignore_index=True)
        if sparse[0]:
            return scipy.sparse.vstack([first, type(first)(second)], format=first.format)
        if isinstance(first, list) and isinstance(second, list):
            return first + second
        second = second.toarray() if sparse[1] else second
        return np.concatenate([np.asarray(first), np.asarray(second)])
    except _Differs as differs:
        reason = f" ({differs})"
    except (KeyError, TypeError, ValueError):
        pass
    except Exception as error:
        # Polars has errors of its own, which it does not derive from those of Python.
        if not type(error).__module__.startswith("polars"):
            raise
    raise InvalidArgument(
        argument,
        f"of the same form as the holdout's: {_form(second)}",
        f"{_form(first)}{reason}",
        "Give the training rows and labels that the search was fitted on.",
    ) from None


class _Differs(ValueError):
    """Names a column of which two tables cannot be joined, with its two types."""


def _joined_frames(first: Any, second: Any) -> Any:
    """Join two frames by the names of their columns, each with the type that it had in the fit."""
    names, kind = list(first.columns), type(first)
    if not hasattr(second, "columns"):
        table = np.asarray(second.toarray() if hasattr(second, "toarray") else second)
        if table.ndim != 2 or table.shape[1] != len(names):
            raise ValueError
        second = kind({name: table[:, place] for place, name in enumerate(names)})
    # Names are compared as texts, as the fit compared them; it may have chosen among the columns.
    known = {str(name): name for name in second.columns}
    if len(set(map(str, names))) < len(names) or len(known) < len(second.columns):
        raise KeyError
    lacking = [str(name) for name in names if str(name) not in known]
    if lacking:
        raise _Differs(f"the holdout has no column {lacking[0]!r}")
    parts = {name: second[known[str(name)]] for name in names}
    if hasattr(first, "vstack") != hasattr(second, "vstack"):
        parts = {name: kind({name: np.asarray(part)})[name] for name, part in parts.items()}
    if hasattr(first, "vstack"):
        return kind([_joined_series(first[name], parts[name]) for name in names])
    with needed("A frame"):
        import pandas as pd
    columns = {name: _joined_columns(pd, name, first[name], parts[name]) for name in names}
    return kind(columns, columns=first.columns)


def _joined_columns(pd: Any, name: Any, one: Any, other: Any) -> Any:
    """Join two columns of pandas; ordered categories stay ordered, and none gets lost."""
    if one.dtype == "category":
        more = [value for value in other.dropna().unique() if value not in one.cat.categories]
        if more and one.cat.ordered:
            raise _Differs(f"column {name!r} has ordered categories, and {len(more)} others there")
        dtype = (
            pd.CategoricalDtype([*one.cat.categories, *more], one.cat.ordered)
            if more
            else one.dtype
        )
        parts = [one.astype(dtype), other.astype(dtype)]
        return pd.concat(parts, ignore_index=True)
    if other.dtype == "category":
        other = other.astype(other.cat.categories.dtype)
    whole = pd.concat([one, other], ignore_index=True)
    return _as_before(whole, one.dtype) if whole.dtype != one.dtype else whole


def _as_before(whole: Any, dtype: Any) -> Any:
    """Return a column in its type of the fit, if that changes no value."""
    try:
        same = whole.astype(dtype)
        return same if bool((same == whole).all()) else whole
    except (TypeError, ValueError):
        return whole


def _joined_series(one: Any, other: Any) -> Any:
    """Join two columns of Polars, in the type of the former or in one that holds both."""
    with needed("A frame of Polars"):
        import polars as pl
    try:
        if one.dtype in (pl.Enum, pl.Categorical):
            return pl.concat([one, other.cast(pl.String).cast(one.dtype)])
        cast = other.cast(one.dtype, strict=False)
        if cast.cast(other.dtype, strict=False).equals(other):
            return pl.concat([one, cast])
        frames = [column.to_frame() for column in (one, other)]
        return pl.concat(frames, how="vertical_relaxed").to_series()
    except pl.exceptions.PolarsError:
        raise _Differs(f"column {one.name!r} is {one.dtype}, and {other.dtype} there") from None


def _form(rows: Any) -> str:
    shape = getattr(rows, "shape", None)
    wide = "" if shape is None or len(shape) < 2 else f" with {shape[1]} columns"
    return f"{type(rows).__name__}{wide}"
