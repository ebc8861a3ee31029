"""One hash a row, whatever container holds the rows.

Containers are told apart by what they can do (``iloc``, ``get_columns``) and are read a
chunk of rows at a time, so that temporary memory does not grow with the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.fingerprint.cells import CHUNK, GOLDEN, Refused, UInt64Array, canonical, mix

# Some columns, and how to read a slice of the rows of them.
_Block: TypeAlias = tuple[NDArray[np.intp], Callable[[slice], NDArray[Any]]]


def row_hashes(X: Any, argument: str = "X") -> UInt64Array:
    """Hash every row by its content, whatever container holds it.

    Parameters
    ----------
    X : array-like, DataFrame or sparse matrix of n rows
        Numbers, booleans, strings, bytes, dates, durations and missing values, mixed at
        will. One-dimensional input is one column (texts, for example); of more than two
        dimensions, each row is flattened.
    argument : str, default="X"
        What the caller calls this input, for the error.

    Returns
    -------
    ndarray of uint64, shape (n,)
        One hash for each row, in order. It depends on the features alone: it may be
        shown and stored.

    Raises
    ------
    InvalidArgument
        If a cell is something else (a dict, a list, an arbitrary object), rows differ in
        length, or ``X`` is no table at all.

    Notes
    -----
    Integers of up to 64 bits are hashed exactly, in integer and in float columns alike.
    Other reals are first rounded to float32, unless that makes them zero or infinite: a
    holdout cast to float32 is the same holdout. All missing values are one value, and -0.0
    is 0.0. Dates are hashed as instants (those without a zone count as UTC) to the
    nanosecond. A string of digits is a string.

    Examples
    --------
    >>> import scipy.sparse
    >>> rows = [[1, 0.0], [0, 2.5]]
    >>> bool((row_hashes(rows) == row_hashes(scipy.sparse.csr_array(rows))).all())
    True
    >>> texts = row_hashes(["one text", "another", "one text"])
    >>> len(texts), len(set(texts.tolist()))
    (3, 2)
    """
    try:
        totals = _sparse_totals(X) if scipy.sparse.issparse(X) else _dense_totals(*_table(X))
    except Refused as refusal:
        raise InvalidArgument(
            argument,
            "a table of numbers, booleans, strings, dates and missing values",
            str(refusal),
            "Give an array, a DataFrame, a sparse matrix or a list of equally long rows, "
            "and encode or drop the columns that hold anything else.",
        ) from None
    totals += GOLDEN
    return mix(totals)


def _seeds(columns: NDArray[Any]) -> UInt64Array:
    return mix((columns.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def _contributions(values: UInt64Array, seeds: UInt64Array) -> UInt64Array:
    mixed = mix(values ^ seeds)
    mixed *= values != 0
    return mixed


def _dense_totals(n: int, blocks: Iterable[_Block]) -> UInt64Array:
    totals = np.zeros(n, dtype=np.uint64)
    for columns, read in blocks:
        seeds = _seeds(columns)
        step = max(1, CHUNK // max(1, len(columns)))
        for start in range(0, n, step):
            rows = slice(start, start + step)
            cells = read(rows)
            cells = cells.reshape(len(cells), len(columns))
            totals[rows] += _contributions(canonical(cells, columns), seeds).sum(axis=1)
    return totals


def _sparse_totals(X: Any) -> UInt64Array:
    table = X if X.ndim == 2 else X.tocoo().reshape((X.shape[0], math.prod(X.shape[1:])))
    table = table.tocsr()
    if not table.has_canonical_format:
        table = table.copy()
        table.sum_duplicates()
    ends = table.indptr.astype(np.int64)
    totals = np.zeros(table.shape[0], dtype=np.uint64)
    start = 0
    while start < len(totals):
        stop = int(np.searchsorted(ends, ends[start] + CHUNK, side="right")) - 1
        stop = max(stop, start + 1)
        stored = slice(ends[start], ends[stop])
        values = canonical(table.data[stored], table.indices[stored])
        parts = _contributions(values, _seeds(table.indices[stored]))
        # Differences of running sums are exact modulo 2**64 and handle empty rows.
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(parts, dtype=np.uint64)])
        totals[start:stop] = np.diff(running[ends[start : stop + 1] - ends[start]])
        start = stop
    return totals


def _table(X: Any) -> tuple[int, Iterable[_Block]]:
    if hasattr(X, "to_frame"):
        X = X.to_frame()
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        return len(X), _frame_blocks(X)
    if hasattr(X, "get_columns"):
        return len(X), _series_blocks(X.get_columns())
    cells = _array(X)
    width = math.prod(cells.shape[1:])
    return len(cells), [(np.arange(width), cells.__getitem__)]


def _array(X: Any) -> NDArray[Any]:
    """Make an array without the promotions that lose content (1 and "a" to "1" and "a")."""
    try:
        if not isinstance(X, Sequence) or isinstance(X, str | bytes):
            cells = np.asarray(X)
        elif X and all(isinstance(row, np.ndarray) for row in X):
            cells = np.stack(X)
        else:
            cells = np.array(X, dtype=object)
    except ValueError:
        raise Refused("one with rows of several shapes") from None
    if cells.ndim == 0:
        raise Refused(f"an object of type {type(X).__name__}")
    return cells


def _frame_blocks(frame: Any) -> Iterator[_Block]:
    """Group the columns by the NumPy dtype that holds all of their content."""
    groups: dict[np.dtype[Any], list[int]] = {}
    for position, dtype in enumerate(frame.dtypes):
        groups.setdefault(_numpy_dtype(dtype), []).append(position)
    for dtype, positions in groups.items():
        yield np.array(positions), partial(_read_frame, frame, positions, dtype)


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    if isinstance(dtype, np.dtype):
        return dtype
    # Instants with a zone come out in UTC this way; as objects it takes a hundred times as long.
    return np.dtype(f"M8[{dtype.unit}]" if hasattr(dtype, "tz") else object)


def _read_frame(
    frame: Any, positions: list[int], dtype: np.dtype[Any], rows: slice
) -> NDArray[Any]:
    cells: NDArray[Any] = frame.iloc[rows, positions].to_numpy(dtype=dtype)
    return cells


def _series_blocks(columns: Iterable[Any]) -> Iterator[_Block]:
    for position, series in enumerate(columns):
        yield np.array([position]), partial(_read_series, series, position)


def _read_series(series: Any, position: int, rows: slice) -> NDArray[Any]:
    part = series[rows]
    if part.null_count() and part.dtype.is_integer():
        # The floats that to_numpy gives for integers with nulls lose their last digits.
        return np.array(part.to_list(), dtype=object)
    cells: NDArray[Any] = part.to_numpy()
    if cells.ndim > 1:
        raise Refused(f"one with cells of type {type(part.dtype).__name__} in column {position}")
    return cells
