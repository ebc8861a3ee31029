"""Identity of rows: a hash for each, and how sets of hashes are named, compared and ordered."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.identity.cells import (
    CHUNK,
    GOLDEN,
    Refused,
    UInt64Array,
    canonical,
    mix,
    mix_in_place,
)

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


# The cells of a table of which columns are compared, and the share of distinct rows that it needs.
_MOST_CELLS, _DISTINCT, _SAMPLE = 20_000_000, 0.9, 400


def rows_in_other_columns(
    first: Any, second: Any
) -> tuple[tuple[UInt64Array, UInt64Array], bool] | None:
    """Find rows again whose columns were put in another order, added or dropped.

    Parameters
    ----------
    first, second : array-like or DataFrame of n rows
        Columns are taken for the same where they have the same values in whatever order.

    Returns
    -------
    hashes : tuple of two ndarrays of uint64, shape (n,)
        Of each row by its cells in the columns that both have, whatever order those are in.
    all_columns : bool
        Whether both have the same columns.

        None in place of both where these are not the same rows, or where it is not clear: where
        fewer than half of the columns are in common, or where many rows are alike.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(20, 4))
    >>> found = rows_in_other_columns(rows[::-1, [2, 0, 1, 3]], rows)
    >>> bool((found[0][0] == found[0][1][::-1]).all()), found[1]
    (True, True)
    >>> rows_in_other_columns(rows, rows + 1) is None
    True
    """
    first_cells, second_cells = _canonical_cells(first), _canonical_cells(second)
    if first_cells is None or second_cells is None or len(first_cells) != len(second_cells):
        return None
    tables = first_cells, second_cells
    digests = [[hash(np.sort(column).tobytes()) for column in table.T] for table in tables]
    # Of columns with the same values there have to be as many: else it is not known which is which.
    counts, others = map(Counter, digests)
    common = {digest for digest, count in counts.items() if others[digest] == count}
    chosen = [
        [column for column, digest in enumerate(of_table) if digest in common]
        for of_table in digests
    ]
    if len(chosen[0]) < max(2, max(map(len, digests)) / 2):
        return None
    hashes, other_hashes = (
        mix(table[:, columns] + GOLDEN).sum(axis=1, dtype=np.uint64)
        for table, columns in zip(tables, chosen, strict=True)
    )
    if len(np.unique(hashes)) < _DISTINCT * len(hashes):
        return None
    if not np.array_equal(np.sort(hashes), np.sort(other_hashes)):
        return None
    return (hashes, other_hashes), len(chosen[0]) == max(map(len, digests))


def shared_columns(first: Any, second: Any) -> list[tuple[int, int]]:
    """Return the places in two tables of the columns that both have: by name, else by values.

    Columns without names have to be nearly distinct in each row to be found by their values.
    """
    names, others = column_names(first), column_names(second)
    if names and others and len({*names} & {*others}) > 1:
        return [(names.index(name), others.index(name)) for name in names if name in others]
    cells, other_cells = _canonical_cells(first), _canonical_cells(second)
    if cells is None or other_cells is None:
        return []
    known = [np.unique(column) for column in other_cells.T]
    pairs: dict[int, int] = {}
    for place, column in enumerate(cells[:: max(1, len(cells) // _SAMPLE)].T):
        shares = [
            overlap(column, values) / len(column) if 2 * len(values) > len(other_cells) else 0.0
            for values in known
        ]
        best = int(np.argmax(shares)) if shares else 0
        if shares and shares[best] > 1 - _DISTINCT:
            pairs.setdefault(best, place)
    return [(place, other) for other, place in pairs.items()]


def rows_again(first: Any, second: Any) -> NDArray[np.bool_]:
    """Return which rows of a table are in another one whose columns were moved, added or dropped.

    Parameters
    ----------
    first, second : array-like or DataFrame of n and m rows

    Returns
    -------
    ndarray of bool, shape (n,)
        All false where fewer than two columns, or half of those of the narrower table, are in both
        (`shared_columns`), where rows are alike in them, and for sparse or very large tables.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(40, 4))
    >>> int(rows_again(np.vstack([rows[20:], rows + 1])[:, [2, 0, 3]], rows).sum())
    20
    """
    cells, other_cells = _canonical_cells(first), _canonical_cells(second)
    if cells is None or other_cells is None:
        return np.zeros(first.shape[0] if hasattr(first, "shape") else len(first), dtype=bool)
    pairs, none = shared_columns(first, second), np.zeros(len(cells), dtype=bool)
    if len(pairs) < max(2.0, min(cells.shape[1], other_cells.shape[1]) / 2):
        return none
    seeds = _seeds(np.arange(len(pairs)))
    hashes, others = (
        mix(table[:, list(places)] ^ seeds).sum(axis=1, dtype=np.uint64)
        for table, places in zip((cells, other_cells), zip(*pairs, strict=True), strict=True)
    )
    if len(np.unique(others)) < _DISTINCT * len(others):
        return none
    return np.isin(hashes, others)


def _canonical_cells(X: Any) -> UInt64Array | None:
    """Return the canonical value of each cell of a table; None of what is sparse or too large."""
    if scipy.sparse.issparse(X):
        return None
    n, readers = table_of(X)
    blocks = list(readers)
    width = sum(len(columns) for columns, _ in blocks)
    if n * width > _MOST_CELLS:
        return None
    cells = np.empty((n, width), dtype=np.uint64)
    for columns, read in blocks:
        cells[:, columns] = canonical(read(slice(0, n)).reshape(n, len(columns)), columns)
    return cells


IntArray: TypeAlias = NDArray[np.intp]

# Of the rows of a holdout, what it is worth less if copies are one row each; and of the pairs
# of rows with equal features, how many have the same label where the rows are copies.
_EFFECTIVE, _ALIKE = 0.9, 0.95


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
    >>> from ladderholdout.identity import row_hashes
    >>> fingerprint(row_hashes([[1], [2]])) == fingerprint(row_hashes([[2.0], [1.0]]))
    True
    """
    return hashlib.sha256(_sorted_bytes(row_hashes)).hexdigest()


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
    >>> from ladderholdout.identity import row_hashes
    >>> rows = row_hashes([[1], [2]])
    >>> bool((content_hashes(rows, [0, 1]) == content_hashes(rows, [1, 0])).any())
    False
    """
    n = len(row_hashes)
    # One after the other, so that a label and a weight cannot change places.
    labelled = _with_labels(row_hashes, _column_of(y, "y", n))
    if sample_weight is None:
        labelled += mix(_column_of(np.ones(1), "sample_weight", 1))
    else:
        labelled += mix(_column_of(sample_weight, "sample_weight", n))
    return mix_in_place(labelled)


def content_digest(secret: bytes, content_hashes: UInt64Array) -> bytes:
    """Digest rows and labels so that only the holder of the secret can compare them.

    Parameters
    ----------
    secret : bytes
        The holdout's secret. Without a key, anyone with the rows could try labels until
        the digest fits.
    content_hashes : ndarray of uint64, shape (n,)
        What ``content_hashes`` gave.

    Returns
    -------
    bytes
        32 bytes, HMAC-SHA256 over the sorted hashes: the same for any order of the rows.

    Examples
    --------
    >>> from ladderholdout.identity import row_hashes
    >>> hashes = content_hashes(row_hashes([[1], [2]]), [0, 1])
    >>> content_digest(b"one", hashes) == content_digest(b"another", hashes)
    False
    """
    return hmac.digest(secret, _sorted_bytes(content_hashes), "sha256")


def overlap(rows: UInt64Array, known: UInt64Array) -> int:
    """Count the rows that are known already.

    Parameters
    ----------
    rows, known : ndarray of uint64, shapes (n,) and (m,)
        Row hashes.

    Returns
    -------
    int
        How many of ``rows`` are in ``known``, each repeated row counted again.

    Examples
    --------
    >>> from ladderholdout.identity import row_hashes
    >>> overlap(row_hashes([[1], [1], [2]]), row_hashes([[1], [3]]))
    2
    """
    # NumPy's isin looks for repeated rows first, which takes several times as long.
    ordered = np.sort(known)
    places = np.searchsorted(ordered, rows)
    return int(np.count_nonzero(ordered.take(places, mode="clip") == rows)) if len(ordered) else 0


def copied_rows(row_hashes: UInt64Array, y: ArrayLike, ordered: UInt64Array | None = None) -> int:
    """Count the rows that equal another one in features and label, where that is not by chance.

    Few categories make rows equal by chance, but then rows with the same features differ in
    their labels now and then.

    Parameters
    ----------
    row_hashes : ndarray of uint64, shape (n,)
        The hashes of the features.
    y : array-like of n labels or rows of targets
        Of any type that ``row_hashes`` takes.
    ordered : ndarray of uint64, shape (n,), optional
        Hashes that are equal where features and labels are, sorted.

    Returns
    -------
    int
        0 where copies, taken for one row each, would leave the holdout worth more than nine
        tenths of its rows (Kish's effective size); and where more than one pair in twenty of
        rows with the same features has different labels, and more than one in twenty of those
        with the same label different features.

    Raises
    ------
    InvalidArgument
        If the lengths differ or a label is of a type that has no hash.

    Examples
    --------
    >>> from ladderholdout.identity import row_hashes
    >>> copied_rows(row_hashes([[1], [1], [2], [3]]), [0, 0, 1, 0])
    2
    >>> copied_rows(row_hashes([[1], [1], [1], [2]]), [0, 0, 1, 1])
    0
    """
    if ordered is None:
        ordered = np.sort(_with_labels(row_hashes, _column_of(y, "y", len(row_hashes))))
    times = _multiplicities(ordered)
    squares = len(row_hashes) - times.sum() + times @ times  # the other rows are there once
    if _EFFECTIVE * squares < len(row_hashes):
        return 0
    labels = _column_of(y, "y", len(row_hashes))
    by_chance = min(_equal_pairs(_multiplicities(np.sort(part))) for part in (row_hashes, labels))
    return int(times.sum()) if _equal_pairs(times) >= _ALIKE * by_chance else 0


def _with_labels(row_hashes: UInt64Array, labels: UInt64Array) -> UInt64Array:
    """Hash rows together with the hashes of their labels, into the array of these."""
    labelled = mix_in_place(labels)
    labelled += row_hashes
    return mix_in_place(labelled)


def _multiplicities(ordered: UInt64Array) -> NDArray[np.int64]:
    """Count how often each of sorted hashes is there, without those that are there once."""
    again = ordered[1:] == ordered[:-1]
    if not again.any():
        return np.zeros(0, dtype=np.int64)
    # Where a run of equal ones begins and ends.
    edges = np.diff(again.astype(np.int8), prepend=0, append=0)
    return np.asarray(np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0) + 1, dtype=np.int64)


def _equal_pairs(times: NDArray[np.int64]) -> int:
    return int(times @ (times - 1)) // 2


def counterparts(
    rows: UInt64Array, labels: UInt64Array, others: UInt64Array, other_labels: UInt64Array
) -> IntArray:
    """Find each row among the same rows in another order, though a few labels may differ.

    Parameters
    ----------
    rows, others : ndarray of uint64, shape (n,)
        Row hashes of the same rows.
    labels, other_labels : ndarray of uint64, shape (n,)
        Hashes or digests of their labels.

    Returns
    -------
    ndarray of int, shape (n,)
        ``to`` with ``others[to] == rows``. Of rows with equal features those with equal labels
        go together as far as there are any, and equal rows keep their order.

    Raises
    ------
    InvalidArgument
        If the features are not of the same rows.

    Examples
    --------
    >>> rows, labels = np.array([[5, 5, 7], [0, 1, 1]], dtype=np.uint64)
    >>> counterparts(rows, labels, rows[::-1], labels[::-1]).tolist()
    [2, 1, 0]
    """
    pairs = (rows, labels), (others, other_labels)
    both = [mix(hashes + mix(of_labels + GOLDEN)) for hashes, of_labels in pairs]
    if (known := placed(*both)) is not None:
        return known  # no label differs, as nearly always: large rows are opened again in less
    if not np.array_equal(np.sort(rows), np.sort(others)):
        raise InvalidArgument("rows", "those of others in any order", "another set of rows")
    keys, other_keys = map(_numbered, both)
    _, paired, paired_others = np.intersect1d(
        keys, other_keys, assume_unique=True, return_indices=True
    )
    to = np.full(len(rows), -1, dtype=np.intp)
    to[paired] = paired_others
    unpaired = np.flatnonzero(to < 0)
    unpaired_others = np.setdiff1d(np.arange(len(others)), paired_others, assume_unique=True)
    by_row = (
        np.argsort(rows[unpaired], kind="stable"),
        np.argsort(others[unpaired_others], kind="stable"),
    )
    to[unpaired[by_row[0]]] = unpaired_others[by_row[1]]
    return to


def taken(values: UInt64Array, order: NDArray[Any]) -> UInt64Array:
    """Return values in another order, without a copy of it as indices of NumPy's own size.

    Examples
    --------
    >>> taken(np.array([5, 7, 6], dtype=np.uint64), np.array([0, 2, 1], dtype=np.uint32)).tolist()
    [5, 6, 7]
    """
    reordered = np.empty_like(values)
    for start in range(0, len(order), CHUNK):
        piece = slice(start, start + CHUNK)
        reordered[piece] = values[order[piece]]
    return reordered


def inverse(order: NDArray[Any]) -> NDArray[Any]:
    """Return the permutation that undoes another one, as integers of the same size.

    Examples
    --------
    >>> inverse(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    back = np.empty_like(order)
    # A piece at a time: the numbers of all rows would be as long as the result.
    for start in range(0, len(order), CHUNK):
        piece = order[start : start + CHUNK]
        back[piece] = np.arange(start, start + len(piece))
    return back


def placed(these: UInt64Array, among: UInt64Array) -> IntArray | None:
    """Return where each of these hashes is among the same hashes in another order.

    Parameters
    ----------
    these, among : ndarray of uint64

    Returns
    -------
    ndarray of int, shape (n,), or None
        ``to`` with ``among[to] == these``; equal hashes keep their order. None where they are
        not the same hashes, each as often.

    Examples
    --------
    >>> these, among = np.array([[7, 5, 5], [5, 7, 5]], dtype=np.uint64)
    >>> placed(these, among).tolist()
    [1, 0, 2]
    >>> placed(these, among[:2]) is None
    True
    """
    if these.shape != among.shape or these.dtype != among.dtype:
        return None
    if np.array_equal(these, among):
        return np.arange(len(these))
    order, other_order = np.argsort(these, kind="stable"), np.argsort(among, kind="stable")
    if not np.array_equal(these[order], among[other_order]):
        return None
    to: IntArray = other_order[inverse(order)]
    return to


def _numbered(keys: UInt64Array) -> UInt64Array:
    """Distinguish equal keys by how many of them came before."""
    order = np.argsort(keys, kind="stable")
    _, starts = np.unique(keys[order], return_index=True)
    sizes = np.diff(starts, append=len(keys))
    place = np.empty(len(keys), dtype=np.uint64)
    place[order] = np.arange(1, len(keys) + 1) - np.repeat(starts, sizes)
    return mix(keys + place * GOLDEN)


def _sorted_bytes(hashes: UInt64Array) -> memoryview:
    return np.sort(hashes).astype("<u8", copy=False).data


def _column_of(values: ArrayLike, argument: str, n: int) -> UInt64Array:
    hashes = row_hashes(values, argument)
    if len(hashes) != n:
        raise InvalidArgument(argument, f"{n} entries, one for each row", len(hashes))
    return hashes
