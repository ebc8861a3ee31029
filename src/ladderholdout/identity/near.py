"""Rows that are nearly copies of each other: one row, moved a little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.identity.cells import UInt64Array, canonical, mix
from ladderholdout.identity.rows import (
    column_names,
    columns_of,
    row_hashes,
    shared_columns,
    table_of,
)

Floats: TypeAlias = NDArray[np.float64]

# Of so many rows the others near them are counted, drawn with a fixed seed: of all rows where
# they are few, and of the more the fewer rows there are in all.
_SAMPLE, _FEWEST, _DISTANCES = 400, 20, 5_000_000
# A copy is nearer than this share of the median distance between two rows; and between this
# distance and so many times it, there are hardly any more rows.
_NEAR, _EMPTY, _MORE = 0.02, 6.0, 1.1
# So many neighbours there have to be: a few may be near by chance.
_PAIRS = 12
# As for copies: what the rows are worth less, and the share of pairs with equal labels.
_EFFECTIVE, _ALIKE = 0.9, 0.95
# A column that varies by a smaller share of the median one is noise upon a constant.
_CONSTANT = 1e-4
_LARGEST = 20_000_000
# Of more rows so many are compared with each other: all of them would be kept as numbers twice.
_ROWS = 50_000
_AT_A_TIME, _CELLS = 1 << 14, 1 << 17
_MISSING = frozenset({"NoneType", "NAType"})


def near_copies(X: Any, y: ArrayLike, before: int | None = None) -> int:
    """Estimate how many rows are another one with the same label, moved a little.

    Rows of ordinary data have more neighbours the further one looks. Copies that were moved by
    small noise have a few at once, and then none for a long way: that gap is looked for.

    Parameters
    ----------
    X : array-like or DataFrame of n rows
        Numbers are compared by their distance, in units of each column's spread; other cells,
        and which are missing, have to be equal.
    y : array-like of n labels or rows of targets
    before : int, optional
        Count copies across this place alone: rows from it on that are near one before it.

    Of more than 50,000 rows as many are compared, drawn with a fixed seed.

    Returns
    -------
    int
        0 where there is no such gap, where such copies, taken for one row each, would leave the
        holdout worth more than nine tenths of its rows, where more than one in twenty of them
        have another label, and for sparse rows, or more than 20 million cells.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows, labels = rng.normal(size=(100, 5)), rng.integers(0, 2, 100)
    >>> moved = np.vstack([rows, rows + 1e-4 * rng.normal(size=rows.shape)])
    >>> near_copies(moved, np.tile(labels, 2)), near_copies(rows, labels)
    (200, 0)
    """
    rng, labels = np.random.default_rng(0), np.asarray(y)
    drawn = rng.permutation(np.arange(len(labels)) < _ROWS) if len(labels) > _ROWS else None
    read = _numbers_of(X, drawn)
    if read is None or len(read[0]) < 10:
        return 0
    numbers, others = read
    n = len(numbers)
    # A row has its copy among those drawn less often than among all of them.
    whole = len(labels) / n
    count = min(n, _SAMPLE, max(_FEWEST, _DISTANCES // n))
    chosen = rng.permutation(n)[:count]
    typical = _typical(numbers, rng)
    pairs, distances = _neighbours(numbers, others, chosen, _EMPTY * _NEAR * typical)
    if before is not None:
        place = before if drawn is None else int(drawn[:before].sum())
        across = (pairs[0] >= place) != (pairs[1] >= place)
        pairs, distances = pairs[:, across], distances[across]
    radius = _gap(distances, _NEAR * typical)
    if radius is None:
        return 0
    of, to = pairs[:, distances <= radius]
    # Each row counts for one with those near it.
    effective = before is not None or _EFFECTIVE * (1 + whole * len(of) / count) >= 1
    if len(of) < _PAIRS or not effective:
        return 0
    hashes = row_hashes(labels if drawn is None else labels[drawn], "y")
    alike = hashes[of] == hashes[to]
    if alike.mean() < _ALIKE:
        return 0
    return round(len(labels) * min(1.0, whole * len(np.unique(of[alike])) / count))


def near_rows(first: Any, y: ArrayLike, second: Any, other_y: ArrayLike) -> int:
    """Estimate how many rows of a table are those of another one with its label, moved a little.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows, labels = rng.normal(size=(100, 5)), rng.integers(0, 2, 100)
    >>> near_rows(rows.round(6), labels, rows, labels), near_rows(rows + 1, labels, rows, labels)
    (100, 0)
    """
    if scipy.sparse.issparse(first) or scipy.sparse.issparse(second):
        return 0
    columns, others = columns_of(first), columns_of(second)
    if sum(column.size for column in (*columns, *others)) > _LARGEST:
        return 0
    pairs = [(place, place) for place in range(len(columns))]
    if len(columns) != len(others) or column_names(first) != column_names(second):
        pairs = shared_columns(first, second)
    stacked = [_after(others[other], columns[place]) for place, other in pairs]
    if len(stacked) < max(1.0, min(len(columns), len(others)) / 2):
        return 0
    labels = _after(np.asarray(other_y), np.asarray(y))
    found = near_copies(np.stack(stacked, axis=1), labels, len(np.asarray(other_y)))
    return min(-(-found // 2), len(np.asarray(y)))  # each of a pair was counted


def _after(column: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Return two columns one after the other, as objects unless both are numbers."""
    if {column.dtype.kind, other.dtype.kind} <= set("biuf"):
        return np.concatenate([column, other])
    return np.concatenate([np.array([*column], object), np.array([*other], object)])


def _typical(numbers: Floats, rng: np.random.Generator) -> float:
    """Return the median distance between two rows."""
    first, second = rng.integers(0, len(numbers), (2, 2000))
    apart = numbers[first[first != second]] - numbers[second[first != second]]
    return float(np.median(np.sqrt((apart**2).sum(axis=1))))


def _neighbours(
    numbers: Floats, others: UInt64Array, chosen: NDArray[np.intp], most: float
) -> tuple[NDArray[np.intp], Floats]:
    """Return the pairs of a chosen row and another that are so near, and their distances."""
    lengths = np.einsum("ij,ij->i", numbers, numbers)
    chosen_lengths, near_pairs = lengths[chosen][:, None], []
    rows_at_once = max(_CELLS // len(chosen), 1)
    for start in range(0, len(numbers), rows_at_once):
        part = slice(start, start + rows_at_once)
        squares = chosen_lengths + lengths[part] - 2 * (numbers[chosen] @ numbers[part].T)
        # By this formula those of nearly equal rows are rounding: they are worked out below.
        close = squares <= most**2 + 1e-9 * (chosen_lengths + lengths[part])
        of, to = np.nonzero(close & (others[chosen][:, None] == others[part]))
        near_pairs.append(np.stack([chosen[of], to + start]))
    pairs = np.hstack(near_pairs)
    pairs = pairs[:, pairs[0] != pairs[1]]
    distances = np.empty(pairs.shape[1])
    for start in range(0, len(distances), _AT_A_TIME):
        first, second = pairs[:, start : start + _AT_A_TIME]
        apart = numbers[first] - numbers[second]
        distances[start : start + _AT_A_TIME] = np.sqrt((apart**2).sum(axis=1))
    return pairs, distances


def _gap(distances: Floats, most: float) -> float | None:
    """Return a distance up to which there are rows, and beyond which hardly any for a while."""
    ordered = np.sort(distances)
    inner = np.unique(ordered[(ordered > 0) & (ordered <= most)])
    within = np.searchsorted(ordered, inner, side="right")
    beyond = np.searchsorted(ordered, _EMPTY * inner, side="right")
    apart = np.flatnonzero(beyond <= _MORE * within)
    return float(inner[apart[-1]]) if len(apart) else None


def _numbers_of(X: Any, drawn: NDArray[np.bool_] | None) -> tuple[Floats, UInt64Array] | None:
    """Return the columns of numbers in units of their spread, and a hash of all else of a row."""
    if scipy.sparse.issparse(X):
        return None
    n_all, blocks = table_of(X)
    n = n_all if drawn is None else int(drawn.sum())
    number_columns, others, cells = [], np.zeros(n, dtype=np.uint64), 0
    for columns, read in blocks:
        cells += n * len(columns)
        if cells > _LARGEST:
            return None
        block = _rows_of(read, n_all, drawn).reshape(n, len(columns))
        parts = [block] if block.dtype != object else np.split(block, len(columns), axis=1)
        for place, part in enumerate(parts):
            real = _as_numbers(part)
            if real is not None:
                number_columns.append(real)
                part = ~np.isfinite(real)
            of_part = columns if len(parts) == 1 else columns[[place]]
            seeds = mix((of_part + 1).astype(np.uint64))
            others += mix(canonical(part, of_part) ^ seeds).sum(axis=1, dtype=np.uint64)
    return (_in_units(np.hstack(number_columns)), others) if number_columns else None


def _rows_of(
    read: Callable[[slice], NDArray[Any]], n: int, drawn: NDArray[np.bool_] | None
) -> NDArray[Any]:
    """Read all rows of a block, or those that were drawn, some at a time."""
    if drawn is None:
        return read(slice(0, n))
    parts = (slice(start, min(start + _AT_A_TIME, n)) for start in range(0, n, _AT_A_TIME))
    return np.concatenate([read(part)[drawn[part]] for part in parts])


def _in_units(numbers: Floats) -> Floats:
    """Return columns that vary, in units of their spread and without their mean."""
    known = np.isfinite(numbers)
    count = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, numbers, 0.0)
    centred = np.where(known, numbers - centred.sum(axis=0) / count, 0.0)
    with np.errstate(all="ignore"):  # beyond what can be squared nothing is near
        spread = np.sqrt((centred**2).sum(axis=0) / count)
    varying = np.isfinite(spread) & (spread > 0)
    varying &= spread > _CONSTANT * (np.median(spread[varying]) if varying.any() else 0.0)
    return np.asarray(centred[:, varying] / spread[varying])


def _as_numbers(block: NDArray[Any]) -> Floats | None:
    """Return cells as numbers, nan for what is missing; None where they are something else."""
    if block.dtype.kind in "biuf":
        return np.asarray(block, dtype=np.float64)
    if block.dtype != object:
        return None
    kinds = set(map(type, block.flat))
    if not all(_is_number(kind) or kind.__name__ in _MISSING for kind in kinds):
        return None
    missing = np.array([type(cell).__name__ in _MISSING for cell in block.flat])
    return np.where(missing.reshape(block.shape), np.nan, block).astype(np.float64)


def _is_number(kind: type) -> bool:
    return issubclass(kind, int | float | np.number | np.bool_)
