"""The hash of a row: the same for equal cells, whatever container holds them.

Every cell has a canonical 64-bit value, zero for the number zero and for nothing else; every
column has a seed; and the hash of a row is the sum of its mixed cells modulo 2**64. A zero adds
nothing, so a sparse matrix hashes as its dense form does and never has to become one. Containers
are known by what they can do and not by their types: no DataFrame package is imported.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument

UInt64Array: TypeAlias = NDArray[np.uint64]

# Half a megabyte of 64 bits: all temporary arrays of a chunk stay in the second-level cache.
CHUNK = 1 << 16

# The constants of SplitMix64 (Steele, Lea and Flood 2014: Fast splittable generators).
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

# Tags keep cells of different kinds apart.
_MISSING = np.uint64(0x7FF8000000000000)
_INSTANT = np.uint64(0x1B56C4E9F3A7D285)
_DURATION = np.uint64(0x2D98A3F1C6B4E70B)
_POSITIVE = np.uint64(0x3C6EF372FE94F82B)
_NEGATIVE = np.uint64(0x510E527FADE682D1)

# By name, so that neither pandas nor another package has to be imported.
MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType"})


class Refused(Exception):
    """A cell or a container without a canonical value; the text ends "but is ..."."""


def mix(values: UInt64Array) -> UInt64Array:
    """Scramble the bits, one to one (the finaliser of SplitMix64)."""
    return mix_in_place(values.copy(order="C"))


def mix_in_place(values: UInt64Array) -> UInt64Array:
    """Do the same to the array itself, which is contiguous; return it."""
    cells = values.reshape(-1)
    # A piece at a time, so that the intermediate arrays stay in the cache, and small.
    for start in range(0, cells.size, CHUNK):
        piece = cells[start : start + CHUNK]
        piece ^= piece >> np.uint64(30)
        piece *= _MIX_1
        piece ^= piece >> np.uint64(27)
        piece *= _MIX_2
        piece ^= piece >> np.uint64(31)
    return values


def canonical(cells: NDArray[Any], columns: NDArray[Any]) -> UInt64Array:
    """Give every cell its canonical value.

    Parameters
    ----------
    cells : ndarray, any shape and dtype
    columns : ndarray of int, shape (d,)
        The columns that the cells, in order, belong to, over and over: for the error.

    Returns
    -------
    ndarray of uint64, shape of ``cells``

    Raises
    ------
    Refused
        If a cell has none.

    Examples
    --------
    >>> values = canonical(np.array([[0, 1.5, "a"]], dtype=object), np.arange(3))
    >>> (values == 0).tolist()
    [[True, False, False]]
    """
    kind = cells.dtype.kind
    if kind in "biu":
        return _integers(cells)
    if kind == "f":
        return _reals(cells)
    if kind in "mM":
        return _times(cells)
    if kind in "OSTU":
        return _objects(cells.astype(object), columns)
    raise Refused(f"one of dtype {cells.dtype.name}")


def _integers(cells: NDArray[Any]) -> UInt64Array:
    values: UInt64Array = cells.astype(np.float64).view(np.uint64)
    if cells.dtype.itemsize < 8:
        return values
    size = np.abs(cells).astype(np.uint64)
    large = size > 2**53
    if large.any():
        odd_part = size[large]
        odd_part //= odd_part & (~odd_part + np.uint64(1))
        # No float64 is equal to these: their digits represent them instead.
        large[large] = odd_part >= 2**53
        values[large] = mix(size[large] ^ np.where(cells[large] < 0, _NEGATIVE, _POSITIVE))
    return values


def _reals(cells: NDArray[Any]) -> UInt64Array:
    # Whole numbers of 64 bits may have been integers elsewhere, so they stay exact; the
    # rest may have been float32 elsewhere.
    with np.errstate(all="ignore"):
        exact = cells.astype(np.float64)
        rounded = exact.astype(np.float32).astype(np.float64)
    whole = (exact == np.rint(exact)) & (np.abs(exact) < 2.0**64)
    np.copyto(rounded, exact, where=whole | (rounded == 0) | np.isinf(rounded))
    rounded += 0.0  # -0.0 becomes 0.0
    values: UInt64Array = rounded.view(np.uint64)
    values[np.isnan(exact)] = _MISSING
    return values


def _times(cells: NDArray[Any], nanoseconds: NDArray[np.int64] | None = None) -> UInt64Array:
    """Count nanoseconds modulo 2**64, in two parts: a far date overflows 64 bits of them."""
    kind = cells.dtype.kind
    coarse = cells.astype(f"{kind}8[us]")
    if nanoseconds is None:
        nanoseconds = (cells - coarse).astype("m8[ns]").astype(np.int64)
    total = coarse.astype(np.uint64) * np.uint64(1000) + nanoseconds.astype(np.uint64)
    values = mix(total ^ (_INSTANT if kind == "M" else _DURATION))
    values[np.isnat(cells)] = _MISSING
    return values


def _objects(cells: NDArray[Any], columns: NDArray[Any]) -> UInt64Array:
    flat = cells.ravel()
    kinds = {kind: code for code, kind in enumerate(set(map(type, flat)))}
    codes = np.fromiter((kinds[type(cell)] for cell in flat), dtype=np.intp, count=flat.size)
    values = np.empty(flat.size, dtype=np.uint64)
    for kind, code in kinds.items():
        where = np.flatnonzero(codes == code)
        try:
            values[where] = _of_one_type(kind, flat[where])
        except (TypeError, ValueError, OverflowError):
            column = columns[where[0] % len(columns)]
            raise Refused(f"one with cells of type {kind.__name__} in column {column}") from None
    return values.reshape(cells.shape)


def _of_one_type(kind: type, cells: NDArray[Any]) -> UInt64Array:
    if kind.__name__ in MISSING_TYPES:
        return np.full(len(cells), _MISSING)
    if issubclass(kind, str | bytes):
        digests = {text: _digest(text) for text in set(cells)}
        return np.fromiter(map(digests.__getitem__, cells), dtype=np.uint64, count=len(cells))
    if issubclass(kind, np.datetime64 | np.timedelta64):
        return _times(np.array(cells.tolist()))
    if issubclass(kind, datetime.date | datetime.timedelta):
        return _calendar(kind, cells)
    if issubclass(kind, int | np.integer | np.bool_):
        return _python_integers(cells)
    if issubclass(kind, numbers.Real | decimal.Decimal):
        return _reals(cells.astype(np.float64))
    raise TypeError


def _digest(text: str | bytes) -> int:
    if isinstance(text, str):
        kind, data = b"text", text.encode("utf-8", "surrogatepass")
    else:
        kind, data = b"bytes", text
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, person=kind).digest(), "little")


def _calendar(kind: type, cells: NDArray[Any]) -> UInt64Array:
    unit = "m8[us]" if issubclass(kind, datetime.timedelta) else "M8[us]"
    # pandas keeps the last three digits beside the standard library's microseconds.
    fine = [getattr(cell, "nanosecond", getattr(cell, "nanoseconds", 0)) for cell in cells]
    return _times(np.array([_in_utc(cell) for cell in cells], dtype=unit), np.array(fine, np.int64))


def _in_utc(cell: Any) -> Any:
    if getattr(cell, "tzinfo", None) is None:
        return cell
    return cell.astimezone(datetime.UTC).replace(tzinfo=None)


def _python_integers(cells: NDArray[Any]) -> UInt64Array:
    """Take 64 bits, signed or not, for all cells together if that is enough."""
    for dtype in (np.int64, np.uint64):
        with suppress(OverflowError):
            return _integers(cells.astype(dtype))
    if len(cells) > 1:
        return np.concatenate([_python_integers(cells[[i]]) for i in range(len(cells))])
    return np.array([_digest(f"{cells[0]:#x}".encode())], dtype=np.uint64)


# -- rows

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
        totals = _sparse_totals(X) if scipy.sparse.issparse(X) else _dense_totals(*table_of(X))
    except Refused as refusal:
        raise InvalidArgument(
            argument,
            "a table of numbers, booleans, strings, dates and missing values",
            str(refusal),
            "Give an array, a DataFrame, a sparse matrix or a list of equally long rows, "
            "and encode or drop the columns that hold anything else.",
        ) from None
    totals += GOLDEN
    return mix_in_place(totals)


def seeds_of(columns: NDArray[Any]) -> UInt64Array:
    """Seeds of columns, by their places."""
    return mix((columns.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def _contributions(values: UInt64Array, seeds: UInt64Array) -> UInt64Array:
    mixed = mix(values ^ seeds)
    mixed *= values != 0
    return mixed


def _dense_totals(n: int, blocks: Iterable[_Block]) -> UInt64Array:
    totals = np.zeros(n, dtype=np.uint64)
    for columns, read in blocks:
        seeds = seeds_of(columns)
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
        parts = _contributions(values, seeds_of(table.indices[stored]))
        # Differences of running sums are exact modulo 2**64 and handle empty rows.
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(parts, dtype=np.uint64)])
        totals[start:stop] = np.diff(running[ends[start : stop + 1] - ends[start]])
        start = stop
    return totals


def table_of(X: Any) -> tuple[int, Iterable[_Block]]:
    """Return the number of rows, and how to read the columns in groups of one type.

    Examples
    --------
    >>> n, blocks = table_of([[1, "a"], [2, "b"]])
    >>> n, [columns.tolist() for columns, _ in blocks]
    (2, [[0, 1]])
    """
    if hasattr(X, "to_frame"):
        X = X.to_frame()
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        return len(X), _frame_blocks(X)
    if hasattr(X, "get_columns"):
        columns = enumerate(X.get_columns())
        return len(X), ((np.array([at]), partial(_read_series, one, at)) for at, one in columns)
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
        if not isinstance(dtype, np.dtype):
            # Instants with a zone come out in UTC: as objects it takes a hundred times as long.
            dtype = np.dtype(f"M8[{dtype.unit}]" if hasattr(dtype, "tz") else object)
        groups.setdefault(dtype, []).append(position)
    for dtype, positions in groups.items():
        yield np.array(positions), partial(_read_frame, frame, positions, dtype)


def _read_frame(
    frame: Any, positions: list[int], dtype: np.dtype[Any], rows: slice
) -> NDArray[Any]:
    return np.asarray(frame.iloc[rows, positions].to_numpy(dtype=dtype))


def _read_series(series: Any, position: int, rows: slice) -> NDArray[Any]:
    part = series[rows]
    if part.null_count() and part.dtype.is_integer():
        # The floats that to_numpy gives for integers with nulls lose their last digits.
        return np.array(part.to_list(), dtype=object)
    cells: NDArray[Any] = part.to_numpy()
    if cells.ndim > 1:
        raise Refused(f"one with cells of type {type(part.dtype).__name__} in column {position}")
    return cells


def columns_of(values: Any) -> list[NDArray[Any]]:
    """Return the columns of a table, which was hashed, in their order."""
    n, blocks = table_of(values)
    columns: dict[int, NDArray[Any]] = {}
    for places, read in blocks:
        columns |= zip(places.tolist(), read(slice(0, n)).reshape(n, len(places)).T, strict=True)
    return [columns[place] for place in sorted(columns)]


def column_names(X: Any) -> list[str]:
    """Return the names of the columns of a table as texts, none where they have none."""
    return [*map(str, getattr(X, "columns", ()))]


def fingerprint(row_hashes: UInt64Array) -> str:
    """Name a set of rows by its content: SHA-256 over the sorted row hashes.

    Parameters
    ----------
    row_hashes : ndarray of uint64, shape (n,)
        What ``row_hashes`` gave.

    Returns
    -------
    str
        64 hexadecimal digits, the same for the same rows in any order.

    Examples
    --------
    >>> fingerprint(row_hashes([[1], [2]])) == fingerprint(row_hashes([[2.0], [1.0]]))
    True
    """
    return hashlib.sha256(np.sort(row_hashes).astype("<u8", copy=False).data).hexdigest()


def content_hashes(
    row_hashes: UInt64Array, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> UInt64Array:
    """Hash every row together with its label and weight. For inside use only.

    Parameters
    ----------
    row_hashes : ndarray of uint64, shape (n,)
        The hashes of the features.
    y : array-like of n labels or rows of targets
        Of any type that ``row_hashes`` takes.
    sample_weight : array-like of n numbers, optional
        None means weights of one.

    Returns
    -------
    ndarray of uint64, shape (n,)
        These depend on the labels and can be searched for them: never show or store them.

    Raises
    ------
    InvalidArgument
        If the lengths differ or a label is of a type that has no hash.

    Examples
    --------
    >>> rows = row_hashes([[1], [2]])
    >>> bool((content_hashes(rows, [0, 1]) == content_hashes(rows, [1, 0])).any())
    False
    """
    n = len(row_hashes)
    # One after the other, so that a label and a weight cannot change places.
    labelled = with_labels(row_hashes, column_of(y, "y", n))
    if sample_weight is None:
        labelled += mix(column_of(np.ones(1), "sample_weight", 1))
    else:
        labelled += mix(column_of(sample_weight, "sample_weight", n))
    return mix_in_place(labelled)


def with_labels(row_hashes: UInt64Array, labels: UInt64Array) -> UInt64Array:
    """Hash rows together with the hashes of their labels, into the array of these."""
    labelled = mix_in_place(labels)
    labelled += row_hashes
    return mix_in_place(labelled)


def column_of(values: ArrayLike, argument: str, n: int) -> UInt64Array:
    """Hash labels or weights, of which there is one for each of n rows."""
    hashes = row_hashes(values, argument)
    if len(hashes) != n:
        raise InvalidArgument(argument, f"{n} entries, one for each row", len(hashes))
    return hashes
