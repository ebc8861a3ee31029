"""Training rows beside a holdout: whether they fit it, and whether they are its own.

All of it is found out before anything is fitted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import commands, recognition
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.recognition import judge_overlap
from ladderholdout.guard.rows import names_of
from ladderholdout.identity import hashing, labels, matching
from ladderholdout.metrics.arrays import codes_of, is_text, label_vector

_CHOOSES = ("sklearn.compose", "ColumnTransformer")
_KNOWN = {"sklearn", "imblearn", "xgboost", "lightgbm", "catboost"}
"""Libraries whose estimators take columns by their places, or check the names."""


@without_frames
def check_fit(holdout: OpenLadder, model: Any, X: Any, y: Any) -> None:
    """Refuse training rows that the holdout's rows, or its labels, do not fit.

    Every model that is fitted on such rows would be refused, or would fail, once the search is
    over. What some models can make use of is left to them: columns by name, in any order.

    Raises
    ------
    InvalidArgument
        Number, names, order or kinds of columns differ, or labels have another form; or the rows
        are behind a server that does not share them.
    """
    parts = list(_parts(model))
    need_rows(holdout)
    _check_columns(parts, X, holdout.rows().X)
    ladders = list(holdout.by_metric.values()) or [holdout]
    if y is not None and any(ladder.metric.is_classification for ladder in ladders):
        _check_labels(parts, y, holdout.facts.classes)
    elif y is not None and labels.kind_named(np.asarray(y).dtype) in ("texts", "bytes"):
        raise InvalidArgument(
            "y", "numbers, as the holdout's are", "text", "Convert them before the search."
        )


def need_rows(holdout: OpenLadder) -> None:
    """Refuse to fit models that nothing here could predict the holdout's rows with."""
    if holdout.rows().X is None:
        raise InvalidArgument(
            "X",
            "given to LadderHoldout.connect, for this server does not share the rows",
            "missing",
            "Or submit predictions: holdout.submit(predictions).",
        )


def _parts(model: Any) -> Iterator[Any]:
    """Yield an estimator and all that are within it."""
    yield model
    values = model.get_params(deep=True).values() if hasattr(model, "get_params") else ()
    for value in values:
        if hasattr(value, "get_params") and not isinstance(value, type):
            yield value


# -- columns ----------------------------------------------------------------------------------


def _check_columns(parts: Sequence[Any], X: Any, holdout_rows: Any) -> None:
    """Compare number, names, order and kinds of columns, as far as a model has to go by them."""
    names, known = names_of(X), names_of(holdout_rows)
    if any(map(_may_choose, parts)):
        # It takes of the columns what it wants, and what it wants may be named.
        _check_named(parts, names, known)
        if names is None or known is None or not all(map(_is_known, parts)):
            return
        shared = [name for name in names if name in known]
        of_training, of_holdout = _by_name(X, names, shared), _by_name(holdout_rows, known, shared)
        recognition.check_families(shared, of_training, of_holdout)
        return
    recognition.check_columns(X, holdout_rows)


def _is_known(part: Any) -> bool:
    """Return whether an estimator is one of a known library, or derives from one."""
    return any(
        kind.__module__.partition(".")[0] in _KNOWN
        and not kind.__module__.startswith(("sklearn.base", "sklearn.utils"))
        for kind in type(part).__mro__
    )


def is_a(part: Any, module: str, name: str) -> bool:
    """Return whether something is of a class, whose module is imported by whoever has one."""
    imported = sys.modules.get(module)
    return imported is not None and isinstance(part, getattr(imported, name))


def _may_choose(part: Any) -> bool:
    """Return whether an estimator may choose some of its columns, by name or otherwise."""
    if is_a(part, *_CHOOSES) or is_a(part, "sklearn.preprocessing", "FunctionTransformer"):
        return True
    transforms = hasattr(type(part), "transform") and not hasattr(part, "estimator")
    return transforms and not _is_known(part)


def _check_named(parts: Sequence[Any], names: list[str] | None, known: list[str] | None) -> None:
    """Refuse a holdout without columns that a ColumnTransformer names."""
    asked = {
        name
        for part in parts
        if is_a(part, *_CHOOSES)
        for *_, columns in part.transformers
        for name in ([columns] if isinstance(columns, str) else _texts(columns))
    }
    if names is None or not asked <= set(names):
        return  # a transformer before it makes them, or its first fit will fail
    if known is None:
        raise recognition.refused(
            "a table without names of columns, as the holdout's",
            "a DataFrame of which the model takes columns by name",
            "Register the holdout with a DataFrame that has the same columns.",
        )
    lacking = sorted(asked - set(known))
    if lacking:
        raise recognition.refused(
            "a table of which the model takes columns that the holdout has too",
            f"one of which it takes {recognition.listed(lacking)}",
            "Register the holdout with these columns, or leave them out of the model.",
        )


def _texts(columns: Any) -> list[str]:
    if not isinstance(columns, list | tuple | np.ndarray):
        return []  # a selector, a slice, a mask
    return [column for column in columns if isinstance(column, str)]


def _by_name(X: Any, names: Sequence[str], chosen: Sequence[str]) -> list[str | None]:
    families = dict(zip(names, recognition.families_of(X), strict=False))
    return [families.get(name) for name in chosen]


# -- labels -----------------------------------------------------------------------------------


def _check_labels(parts: Sequence[Any], y: Any, classes: Any) -> None:
    """Refuse labels of another type than the holdout's, or of classes that it does not know."""
    shape = np.asarray(y).shape
    if classes is None or not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
        return
    labels = np.unique(label_vector(y, "y"))
    if is_text(labels) != is_text(classes):
        kinds = ["text" if is_text(values) else "numbers" for values in (classes, labels)]
        raise InvalidArgument(
            "y",
            f"labels like the holdout's, which are {kinds[0]}",
            kinds[1],
            "Give the labels of both as they are in one source.",
        )
    if any(type(part).__module__.startswith("sklearn.semi_supervised") for part in parts):
        labels = labels[labels != -1]  # it is no class there, but the mark of a row without one
    unknown = np.count_nonzero(codes_of(labels, classes) < 0)
    if unknown:
        raise InvalidArgument(
            "y",
            f"labels of the holdout's {len(classes)} classes",
            f"labels of {unknown} more",
            "Pass classes= with all classes when registering the holdout.",
        )


# -- the holdout's own rows -------------------------------------------------------------------

_DEEPEST, _MOST = 6, 1000
"""How far containers are opened, and how many entries of one are."""

_TABLES_OF = ("tensors", "dataset", "X", "data")
"""Where data sets of other libraries have their rows."""


_DROP = (
    "To drop them: from ladderholdout.identity import row_hashes; "
    "keep = ~np.isin(row_hashes(X_train), row_hashes(X_holdout)); X_train[keep], y_train[keep]."
)

_REMEDY = (
    "Where equal rows belong together, such as visits of one patient, keep whole groups on one "
    "side of the split, as GroupShuffleSplit does, and register with groups=. If the overlap is "
    'meant, pass overlap="warn".'
)


def look_for_overlap(
    holdout: OpenLadder, X: Any, params: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Warn, and record, how many rows of the holdout a fit is given.

    Parameters
    ----------
    holdout : OpenLadder
    X : array-like
        The training rows.
    params : mapping, optional
        What else it is given, by name: such as ``eval_set``, by which training may stop.

    Raises
    ------
    OverlapError
        Half of the holdout or more is among them, or any of it with ``overlap="error"``.
    """
    overlaps: list[tuple[int, str]] = []
    with without_frames:
        rows = holdout.rows()
        known, n = rows.hashes, holdout.facts.n
        if not len(known):
            return  # of a holdout behind a server that does not share its rows
        shared = _shared(known, [X])
        if names_of(X) != names_of(rows.X):  # as a step of a pipeline may choose of them
            shared = max(shared, int(matching.rows_again(rows.X, X).sum()))
        if shared:
            message = (
                f"are among the training rows ({_places(known, X)}): scores on them are not scores "
                f"on unseen data. {_DROP}"
            )
            overlaps.append((shared, message))
        given = [(name, value) for name, value in params.items() if _may_hold_rows(value)]
        form = recognition.width_of(rows.X) or None if given else None
        for name, value in given:
            if form == (1,) and name.rpartition("__")[2].lower().startswith(("y", "label")):
                continue  # labels of one column look like rows of one
            shared = _shared(known, _tables_in(value, form))
            if shared:
                message = (
                    f"are in {name}, which fits are given: a model that stops or is chosen by "
                    "them has seen them."
                )
                overlaps.append((shared, message))
        if overlaps:
            most = max(shared for shared, _ in overlaps)
            holdout.execute(commands.NoteRows(rows=most))
    for shared, message in overlaps:
        counted = f"{shared} of the {n} rows of the holdout {message}"
        judge_overlap(holdout.overlap, shared, n, counted, _REMEDY)


def _places(known: NDArray[np.uint64], X: Any) -> str:
    """Name the first training rows that a holdout has, by their places."""
    places = np.flatnonzero(np.isin(hashing.row_hashes(X), known)).tolist()
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    return f"places from 0: {', '.join(map(str, places[:5]))}{more}"


def _shared(known: NDArray[np.uint64], tables: Iterable[Any]) -> int:
    """Count the rows of a holdout that are in any of these tables."""
    hashes = []
    for table in tables:
        with suppress(InvalidArgument):  # rows of another kind than any holdout's
            hashes.append(hashing.row_hashes(table))
    return matching.overlap(known, np.concatenate(hashes)) if hashes else 0


def _may_hold_rows(value: Any) -> bool:
    return not (value is None or isinstance(value, str | bytes | int | float | type))


def _tables_in(value: Any, form: tuple[int, ...] | None, depth: int = 0) -> Iterator[Any]:
    """Yield the tables with rows of this form in lists, mappings and data sets, however nested."""
    is_estimator = hasattr(value, "get_params") and hasattr(value, "fit")
    ours = type(value).__module__.startswith("ladderholdout.")  # the holdout itself, or its rounds
    if depth > _DEEPEST or not _may_hold_rows(value) or is_estimator or ours:
        return
    # Rows of its own, as arrays, frames and tensors have; a data set with labels is opened.
    shape = None if hasattr(value, "get_label") else getattr(value, "shape", None)
    if isinstance(value, Mapping):
        inside: Iterable[Any] = value.values()
    elif isinstance(value, partial):
        inside = (*value.args, *value.keywords.values())
    elif isinstance(shape, tuple) and shape:
        width = recognition.width_of(value)
        if (width or None) == form and (form or recognition.families_of(value) == ["texts"]):
            yield value
        return
    elif isinstance(value, list | tuple):
        table = _as_table(value, form)
        if table is not None:
            yield table
            return
        # Labels of one column look like rows of one.
        inside = value[:1] if form == (1,) and isinstance(value, tuple) else value[:_MOST]
    else:
        inside = _of_another_library(value)
    for part in inside:
        yield from _tables_in(part, form, depth + 1)


def _as_table(value: list[Any] | tuple[Any, ...], form: tuple[int, ...] | None) -> Any:
    """Return a list of rows, or of texts, as an array; None where it is none."""
    with suppress(Exception):  # of whatever kind it is
        if form is None and value and isinstance(value[0], str):
            return np.asarray(value, dtype=object)
        # One number may be a row of one column, and a setting as well.
        if form not in (None, (1,)) and value and np.shape(value[0]) == form:
            return np.asarray(value, dtype=object)
    return None


def _of_another_library(value: Any) -> Iterator[Any]:
    """Yield what a data set of another library holds, as far as it still has it."""
    with suppress(Exception):  # LightGBM's may have let its rows go, CatBoost's may hold texts
        if type(value).__module__.startswith("xgboost"):
            yield _of_matrix(value)
        elif type(value).__module__.startswith(("catboost", "_catboost")):
            yield value.get_features()
        else:
            yield from (getattr(value, name, None) for name in _TABLES_OF)


def _of_matrix(matrix: Any) -> NDArray[Any]:
    """Return the rows of XGBoost's DMatrix, in which missing values are left out."""
    kept = matrix.get_data().tocoo()
    rows = np.full(kept.shape, np.nan, dtype=np.float32)
    rows[kept.row, kept.col] = kept.data
    return rows
