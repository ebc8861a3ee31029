"""Columns of rows beside those of a holdout: their number, names, order and kinds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import filterfalse, islice
from typing import Any, TypeAlias

import numpy as np
import scipy

from ladderholdout.errors import InvalidArgument

_ENTRIES = 1000
"""How many entries of a column of Python objects are read to know of what kind they are."""

_Families: TypeAlias = Sequence[str | None]
"""The kind of each column's entries, None where it cannot be known."""


def check_columns(X: Any, holdout_rows: Any) -> None:
    """Refuse a table whose columns differ from the holdout's in number, names, order or kinds."""
    names, known = names_of(X), names_of(holdout_rows)
    width, expected = width_of(X), width_of(holdout_rows)
    if width is None or expected is None:
        return  # no tables, whose first fit will fail
    if names is not None and known is not None and names != known:
        _refuse_names(names, known)
    if width != expected:
        raise refused(
            f"rows of {_shown(expected)}, as the holdout's are",
            f"of {_shown(width)}",
            "Give both the same columns in the same order, or let a step of the pipeline choose "
            "them.",
        )
    check_families(names, families_of(X), families_of(holdout_rows))


def in_order_of(X: Any, known: Any) -> Any:
    """Return a table with its columns in the order of another one that has the same names."""
    names, wanted = names_of(X), names_of(known)
    if not names or not wanted or names == wanted or sorted(names) != sorted(wanted):
        return X
    return X[wanted] if len(set(names)) == len(names) else X


refused = partial(InvalidArgument, "X")


def _shown(width: tuple[int, ...]) -> str:
    if len(width) == 1:
        return f"{width[0]} column{'s' * (width[0] != 1)}"
    return f"shape {width}" if width else "one text or number each"


def listed(names: Sequence[str]) -> str:
    """Return up to three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(str(name)) for name in names[:3]) + more


def _refuse_names(names: list[str], known: list[str]) -> None:
    if sorted(names) == sorted(known):
        raise refused(
            "a table with its columns in the order of the holdout's",
            "one with the same columns in another order",
            "Bring them to one order before the search: X_train[list(X_holdout.columns)].",
        )
    lacking, more = sorted(set(known) - set(names)), sorted(set(names) - set(known))
    parts = ("without", lacking), ("with", more)
    raise refused(
        "a table with the columns of the holdout",
        "one " + " and ".join(f"{word} {listed(columns)}" for word, columns in parts if columns),
        "Give both the same columns under the same names."
        if lacking
        else f"Leave them out, X.drop(columns={more[:3]!r}): a column that groups= or the target "
        "names is none of the holdout's features.",
    )


def check_families(names: list[str] | None, of_training: _Families, of_holdout: _Families) -> None:
    """Refuse columns of texts where the holdout has numbers or dates, and the like."""
    pairs = zip(of_training, of_holdout, strict=False)
    for place, (family, expected) in enumerate(pairs):
        if None not in (family, expected) and family != expected:
            column = f"column {place}" if names is None else f"column {names[place]!r}"
            raise refused(
                f"a table with {expected} in {column}, as the holdout has there",
                f"one with {family}",
                "Read both from one source, or convert one of them before it is registered or "
                "searched on.",
            )


def names_of(X: Any) -> list[str] | None:
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


def width_of(X: Any) -> tuple[int, ...] | None:
    """Return the shape of one row; None where it has none."""
    shape = getattr(X, "shape", None)
    if shape is None:
        with suppress(Exception):  # of whatever kind it is
            shape = np.asarray(X).shape
    return None if not shape else tuple(map(int, shape[1:]))


def families_of(X: Any) -> list[str | None]:
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
            return [KINDS.get(table.dtype.kind)] * table.shape[1]
    return []


KINDS = {
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
        return KINDS.get(values.dtype.kind)
    kinds = {_kind(entry) for entry in islice(filterfalse(_is_missing, values), _ENTRIES)}
    return kinds.pop() if len(kinds) == 1 else None


def _is_missing(entry: Any) -> bool:
    return entry is None or type(entry).__name__ in ("NAType", "NaTType") or entry != entry


def _kind(entry: Any) -> str | None:
    if isinstance(entry, str | bytes):
        return "texts"
    return KINDS.get(np.asarray(entry).dtype.kind)
