"""Training rows beside a holdout: whether they fit it, and whether they are its own.

All of it is found out before anything is fitted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import filterfalse, islice
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import OpenLadder, SeenRows, judge_overlap, without_frames
from ladderholdout.metrics.arrays import codes_of, is_text, label_vector

_CHOOSES = ("sklearn.compose", "ColumnTransformer")
TRAINING_ROWS = "training rows"
"""The source under which rows of the holdout that a fit is given are on record."""

_KNOWN = {"sklearn", "imblearn", "xgboost", "lightgbm", "catboost"}
"""Libraries whose estimators take columns by their places, or check the names."""

_ENTRIES = 1000
"""How many entries of a column of Python objects are read to know of what kind they are."""


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
    elif y is not None and _KINDS.get(np.asarray(y).dtype.kind) == "texts":
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

_Families: TypeAlias = Sequence[str | None]
"""The kind of each column's entries, None where it cannot be known."""


def _check_columns(parts: Sequence[Any], X: Any, holdout_rows: Any) -> None:
    """Compare number, names, order and kinds of columns, as far as a model has to go by them."""
    names, known = _names_of(X), _names_of(holdout_rows)
    if any(map(_may_choose, parts)):
        # It takes of the columns what it wants, and what it wants may be named.
        _check_named(parts, names, known)
        if names is None or known is None or not all(map(_is_known, parts)):
            return
        shared = [name for name in names if name in known]
        of_training, of_holdout = _by_name(X, names, shared), _by_name(holdout_rows, known, shared)
        _check_families(shared, of_training, of_holdout)
        return
    width, expected = _width(X), _width(holdout_rows)
    if width is None or expected is None:
        return  # no tables, whose first fit will fail
    if names is not None and known is not None and names != known:
        _refuse_names(names, known)
    if width != expected:
        raise _refused(
            f"rows of {_shown(expected)}, as the holdout's are",
            f"of {_shown(width)}",
            "Give both the same columns in the same order, or let a step of the pipeline choose "
            "them.",
        )
    _check_families(names, _families_of(X), _families_of(holdout_rows))


_refused = partial(InvalidArgument, "X")


def _shown(width: tuple[int, ...]) -> str:
    if len(width) == 1:
        return f"{width[0]} column{'s' * (width[0] != 1)}"
    return f"shape {width}" if width else "one text or number each"


def _is_known(part: Any) -> bool:
    """Return whether an estimator is one of a known library, or derives from one."""
    return any(
        kind.__module__.partition(".")[0] in _KNOWN
        and not kind.__module__.startswith(("sklearn.base", "sklearn.utils"))
        for kind in type(part).__mro__
    )


def _is_a(part: Any, module: str, name: str) -> bool:
    """Return whether something is of a class, whose module is imported by whoever has one."""
    imported = sys.modules.get(module)
    return imported is not None and isinstance(part, getattr(imported, name))


def _may_choose(part: Any) -> bool:
    """Return whether an estimator may choose some of its columns, by name or otherwise."""
    if _is_a(part, *_CHOOSES) or _is_a(part, "sklearn.preprocessing", "FunctionTransformer"):
        return True
    transforms = hasattr(type(part), "transform") and not hasattr(part, "estimator")
    return transforms and not _is_known(part)


def _check_named(parts: Sequence[Any], names: list[str] | None, known: list[str] | None) -> None:
    """Refuse a holdout without columns that a ColumnTransformer names."""
    asked = {
        name
        for part in parts
        if _is_a(part, *_CHOOSES)
        for *_, columns in part.transformers
        for name in ([columns] if isinstance(columns, str) else _texts(columns))
    }
    if names is None or not asked <= set(names):
        return  # a transformer before it makes them, or its first fit will fail
    if known is None:
        raise _refused(
            "a table without names of columns, as the holdout's",
            "a DataFrame of which the model takes columns by name",
            "Register the holdout with a DataFrame that has the same columns.",
        )
    lacking = sorted(asked - set(known))
    if lacking:
        raise _refused(
            "a table of which the model takes columns that the holdout has too",
            f"one of which it takes {_listed(lacking)}",
            "Register the holdout with these columns, or leave them out of the model.",
        )


def _texts(columns: Any) -> list[str]:
    if not isinstance(columns, list | tuple | np.ndarray):
        return []  # a selector, a slice, a mask
    return [column for column in columns if isinstance(column, str)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(str(name)) for name in names[:3]) + more


def _refuse_names(names: list[str], known: list[str]) -> None:
    if sorted(names) == sorted(known):
        raise _refused(
            "a table with its columns in the order of the holdout's",
            "one with the same columns in another order",
            "Bring them to one order before the search: X_train[list(X_holdout.columns)].",
        )
    lacking, more = sorted(set(known) - set(names)), sorted(set(names) - set(known))
    parts = ("without", lacking), ("with", more)
    raise _refused(
        "a table with the columns of the holdout",
        "one " + " and ".join(f"{word} {_listed(columns)}" for word, columns in parts if columns),
        "Give both the same columns under the same names.",
    )


def _check_families(names: list[str] | None, of_training: _Families, of_holdout: _Families) -> None:
    """Refuse columns of texts where the holdout has numbers or dates, and the like."""
    pairs = zip(of_training, of_holdout, strict=False)
    for place, (family, expected) in enumerate(pairs):
        if None not in (family, expected) and family != expected:
            column = f"column {place}" if names is None else f"column {names[place]!r}"
            raise _refused(
                f"a table with {expected} in {column}, as the holdout has there",
                f"one with {family}",
                "Read both from one source, or convert one of them before it is registered or "
                "searched on.",
            )


def _names_of(X: Any) -> list[str] | None:
    """Return the names of columns, as scikit-learn takes them: all of them texts."""
    columns = getattr(X, "columns", None)
    columns = getattr(X, "column_names", None) if columns is None else columns
    try:
        names = None if columns is None or callable(columns) else list(columns)
    except TypeError:
        return None
    if not names or not all(isinstance(name, str) for name in names):
        return None
    return [str(name) for name in names]


def _width(X: Any) -> tuple[int, ...] | None:
    """Return the shape of one row; None where it has none."""
    shape = getattr(X, "shape", None)
    if shape is None:
        with suppress(Exception):  # of whatever kind it is
            shape = np.asarray(X).shape
    return None if not shape else tuple(map(int, shape[1:]))


def _by_name(X: Any, names: Sequence[str], chosen: Sequence[str]) -> list[str | None]:
    families = dict(zip(names, _families_of(X), strict=False))
    return [families.get(name) for name in chosen]


def _families_of(X: Any) -> list[str | None]:
    """Return the kind of each column of a table of two dimensions."""
    if scipy.sparse.issparse(X):
        return []  # numbers, as nearly all that comes without names
    names = getattr(X, "columns", None)
    with suppress(Exception):  # of whatever kind it is
        if hasattr(X, "iloc"):
            return [_family(X.iloc[:, place]) for place in range(X.shape[1])]
        if names is not None:
            return [_family(X[name]) for name in names]
        table = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if table.ndim == 1:
            return [_family(table)]
        if table.ndim == 2 and table.dtype.kind == "O":
            return [*map(_family, table.T)]
        if table.ndim == 2:
            return [_KINDS.get(table.dtype.kind)] * table.shape[1]
    return []


_KINDS = {
    **dict.fromkeys("biuf", "numbers"),
    **dict.fromkeys("UST", "texts"),
    "M": "dates",
    "m": "durations",
}


def _family(column: Any) -> str | None:
    """Return of what kind the entries of a column are; None for several, or none."""
    values = np.asarray(column)
    if values.dtype.kind == "f" and len(values) and np.isnan(values[0]) and np.isnan(values).all():
        return None  # as an empty column of a file is read, whatever it is a column of
    if values.dtype.kind != "O":
        return _KINDS.get(values.dtype.kind)
    kinds = {_kind(entry) for entry in islice(filterfalse(_is_missing, values), _ENTRIES)}
    return kinds.pop() if len(kinds) == 1 else None


def _is_missing(entry: Any) -> bool:
    return entry is None or type(entry).__name__ in ("NAType", "NaTType") or entry != entry


def _kind(entry: Any) -> str | None:
    if isinstance(entry, str | bytes):
        return "texts"
    return _KINDS.get(np.asarray(entry).dtype.kind)


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
        if shared:
            message = (
                f"are among the training rows ({_places(known, X)}): scores on them are not scores "
                f"on unseen data. {_DROP}"
            )
            overlaps.append((shared, message))
        given = [(name, value) for name, value in params.items() if _may_hold_rows(value)]
        form = _width(rows.X) or None if given else None
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
            holdout.note(SeenRows(TRAINING_ROWS, max(shared for shared, _ in overlaps)))
    for shared, message in overlaps:
        counted = f"{shared} of the {n} rows of the holdout {message}"
        judge_overlap(holdout.overlap, shared, n, counted, _REMEDY)


def _places(known: NDArray[np.uint64], X: Any) -> str:
    """Name the first training rows that a holdout has, by their places."""
    places = np.flatnonzero(np.isin(fp.row_hashes(X), known)).tolist()
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    return f"places from 0: {', '.join(map(str, places[:5]))}{more}"


def _shared(known: NDArray[np.uint64], tables: Iterable[Any]) -> int:
    """Count the rows of a holdout that are in any of these tables."""
    hashes = []
    for table in tables:
        with suppress(InvalidArgument):  # rows of another kind than any holdout's
            hashes.append(fp.row_hashes(table))
    return fp.overlap(known, np.concatenate(hashes)) if hashes else 0


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
        width = _width(value)
        if (width or None) == form and (form or _families_of(value) == ["texts"]):
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
