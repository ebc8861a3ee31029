"""Rows that are found again: in another order, in other columns, as copies and as near copies."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.identity import copies, hashing
from ladderholdout.identity.hashing import CHUNK, GOLDEN, UInt64Array
from ladderholdout.identity.labels import by_value, same_partition

IntArray: TypeAlias = NDArray[np.intp]

# The cells of a table of which columns are compared, and the share of distinct rows that it needs.
_MOST_CELLS, _DISTINCT, _SAMPLE = 20_000_000, 0.9, 400
# Of the rows of a holdout, what it is worth less if copies are one row each; and of the pairs
# of rows with equal features, how many have the same label where the rows are copies.
_EFFECTIVE, _ALIKE = 0.9, 0.95


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
        hashing.mix(table[:, columns] + GOLDEN).sum(axis=1, dtype=np.uint64)
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
    names, others = hashing.column_names(first), hashing.column_names(second)
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


def are_too_few(shared: int, *widths: int) -> bool:
    """Return whether so many shared columns of tables of these widths are too few to compare by."""
    return shared < max(2.0, min(widths) / 2)


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
    if are_too_few(len(pairs), cells.shape[1], other_cells.shape[1]):
        return none
    seeds = hashing.seeds_of(np.arange(len(pairs)))
    hashes, others = (
        hashing.mix(table[:, list(places)] ^ seeds).sum(axis=1, dtype=np.uint64)
        for table, places in zip((cells, other_cells), zip(*pairs, strict=True), strict=True)
    )
    if len(np.unique(others)) < _DISTINCT * len(others):
        return none
    return np.isin(hashes, others)


def _columns_of(X: Any) -> list[NDArray[Any]]:
    """Return the columns of a table; none of what is sparse or too large."""
    if scipy.sparse.issparse(X):
        return []
    n, blocks = hashing.table_of(X)
    few = n * sum(len(columns) for columns, _ in blocks) <= _MOST_CELLS
    return hashing.columns_of(X) if few else []


def _canonical_cells(X: Any) -> UInt64Array | None:
    """Return the canonical value of each cell of a table; None of what is sparse or too large."""
    columns = _columns_of(X)
    if not columns:
        return None
    return np.stack(
        [hashing.canonical(column, np.array([place])) for place, column in enumerate(columns)],
        axis=1,
    )


class Keys(NamedTuple):
    """What rows are compared by: hashes of their features in each view, of ids, and of labels."""

    views: list[UInt64Array]
    ids: UInt64Array | None
    labels: UInt64Array | None

    def among(self, others: Keys) -> list[NDArray[np.bool_]]:
        """Return which of these rows are among others, by each view and by ids."""
        known = np.concatenate(others.views)
        found = [among(view, known) for view in self.views]
        if self.ids is not None and others.ids is not None:
            found.append(among(by_value(self.ids), by_value(others.ids)))
        return found

    def alike(self, others: Keys) -> bool:
        """Return whether all rows are by their labels, which may be so under other names."""
        mine, theirs = self.labels, others.labels
        return mine is not None and theirs is not None and same_partition(mine, theirs)

    def count(self, others: Keys) -> int:
        """Count the rows that are among others, by whatever shows most of them."""
        n, most = len(self.views[0]), max(int(rows.sum()) for rows in self.among(others))
        return n if most == n or self.alike(others) else most


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
    >>> from ladderholdout.identity.hashing import row_hashes
    >>> overlap(row_hashes([[1], [1], [2]]), row_hashes([[1], [3]]))
    2
    """
    return int(np.count_nonzero(among(rows, known)))


def among(rows: UInt64Array, known: UInt64Array) -> NDArray[np.bool_]:
    """Return which rows are known already, by their hashes."""
    # NumPy's isin looks for repeated rows first, which takes several times as long.
    ordered = np.sort(known)
    places = np.searchsorted(ordered, rows)
    return ordered.take(places, mode="clip") == rows if len(ordered) else np.zeros(len(rows), bool)


def copied_rows(row_hashes: UInt64Array, y: ArrayLike) -> int:
    """Count the rows that equal another one in features and label, where that is not by chance.

    Few categories make rows equal by chance, but then rows with the same features differ in
    their labels now and then.

    Parameters
    ----------
    row_hashes : ndarray of uint64, shape (n,)
        The hashes of the features.
    y : array-like of n labels or rows of targets
        Of any type that ``row_hashes`` takes.

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
    >>> from ladderholdout.identity.hashing import row_hashes
    >>> copied_rows(row_hashes([[1], [1], [2], [3]]), [0, 0, 1, 0])
    2
    >>> copied_rows(row_hashes([[1], [1], [1], [2]]), [0, 0, 1, 1])
    0
    """
    ordered = hashing.with_labels(row_hashes, hashing.column_of(y, "y", len(row_hashes)))
    ordered.sort()
    times = _multiplicities(ordered)
    squares = len(row_hashes) - times.sum() + times @ times  # the other rows are there once
    if _EFFECTIVE * squares < len(row_hashes):
        return 0
    labels = hashing.column_of(y, "y", len(row_hashes))
    by_chance = min(_equal_pairs(_multiplicities(np.sort(part))) for part in (row_hashes, labels))
    return int(times.sum()) if _equal_pairs(times) >= _ALIKE * by_chance else 0


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
    if np.array_equal(rows, others) and np.array_equal(labels, other_labels):
        return np.arange(len(rows))  # as nearly always: large rows are opened again in less
    pairs = (rows, labels), (others, other_labels)
    both = [hashing.mix(hashes + hashing.mix(of_labels + GOLDEN)) for hashes, of_labels in pairs]
    if (known := placed(*both)) is not None:
        return known  # no label differs
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
    by_row = placed(rows[unpaired], others[unpaired_others])
    assert by_row is not None  # the same rows, less the same of them
    to[unpaired] = unpaired_others[by_row]
    return to


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
    return hashing.mix(keys + place * GOLDEN)


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


# -- rows that are nearly copies of each other: one row, moved a little

Floats: TypeAlias = NDArray[np.float64]

# Of so many rows the others near them are counted, drawn with a fixed seed: of all rows where
# they are few, and of the more the fewer rows there are in all.
_FEWEST, _DISTANCES = 20, 5_000_000
# A copy is nearer than this share of the median distance between two rows; and between this
# distance and so many times it, there are hardly any more rows.
_NEAR, _EMPTY, _MORE = 0.02, 6.0, 1.1
# So many neighbours there have to be: a few may be near by chance.
_PAIRS = 12
# As for copies: what the rows are worth less, and the share of pairs with equal labels.
# A column that varies by a smaller share of the median one is noise upon a constant.
_CONSTANT = 1e-4
# Of more rows so many are compared with each other: all of them would be kept as numbers twice.
_ROWS = 50_000
_AT_A_TIME, _CELLS = 1 << 14, 1 << 17


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
    if scipy.sparse.issparse(X):
        return 0
    rng, labels = np.random.default_rng(0), np.asarray(y)
    n_all = len(labels)
    if n_all > _ROWS:
        drawn = np.flatnonzero(rng.permutation(np.arange(n_all) < _ROWS))
        X, labels = copies.take(X, drawn), labels[drawn]
        before = None if before is None else int(np.searchsorted(drawn, before))
    read = _numbers_of(_columns_of(X))
    if read is None or len(read[0]) < 10:
        return 0
    numbers, others = read
    n = len(numbers)
    # A row has its copy among those drawn less often than among all of them.
    whole = n_all / n
    count = min(n, _SAMPLE, max(_FEWEST, _DISTANCES // n))
    chosen = rng.permutation(n)[:count]
    first, second = rng.integers(0, n, (2, 2000))
    apart = numbers[first[first != second]] - numbers[second[first != second]]
    typical = float(np.median(np.sqrt((apart**2).sum(axis=1))))  # distance between two rows
    pairs, distances = _neighbours(numbers, others, chosen, _EMPTY * _NEAR * typical)
    if before is not None:
        across = (pairs[0] >= before) != (pairs[1] >= before)
        pairs, distances = pairs[:, across], distances[across]
    radius = _gap(distances, _NEAR * typical)
    if radius is None:
        return 0
    of, to = pairs[:, distances <= radius]
    # Each row counts for one with those near it.
    effective = before is not None or _EFFECTIVE * (1 + whole * len(of) / count) >= 1
    if len(of) < _PAIRS or not effective:
        return 0
    hashes = hashing.row_hashes(labels, "y")
    alike = hashes[of] == hashes[to]
    if alike.mean() < _ALIKE:
        return 0
    return round(n_all * min(1.0, whole * len(np.unique(of[alike])) / count))


def near_rows(first: Any, y: ArrayLike, second: Any, other_y: ArrayLike) -> int:
    """Estimate how many rows of a table are those of another one with its label, moved a little.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows, labels = rng.normal(size=(100, 5)), rng.integers(0, 2, 100)
    >>> near_rows(rows.round(6), labels, rows, labels), near_rows(rows + 1, labels, rows, labels)
    (100, 0)
    """
    columns, others = _columns_of(first), _columns_of(second)
    cells = sum(column.size for column in (*columns, *others))
    if not columns or not others or cells > _MOST_CELLS:
        return 0
    pairs = [(place, place) for place in range(len(columns))]
    if len(columns) != len(others) or hashing.column_names(first) != hashing.column_names(second):
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


def _neighbours(
    numbers: Floats, others: UInt64Array, chosen: NDArray[np.intp], most: float
) -> tuple[NDArray[np.intp], Floats]:
    """Return the pairs of a chosen row and another that are so near, and their distances."""
    lengths = (1 - 1e-9) * np.einsum("ij,ij->i", numbers, numbers)
    twice, least = 2 * numbers[chosen], (lengths[chosen] - most**2)[:, None]
    near_pairs, rows_at_once = [], max(_CELLS // len(chosen), 1)
    for start in range(0, len(numbers), rows_at_once):
        part = slice(start, start + rows_at_once)
        # For nearly equal rows this is rounding, so it allows for some: they are worked out below.
        close = twice @ numbers[part].T >= least + lengths[part]
        of, to = np.divmod(np.flatnonzero(close), close.shape[1])
        near = np.stack([chosen[of], to + start])
        near_pairs.append(near[:, others[near[0]] == others[near[1]]])
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


def _numbers_of(columns: list[NDArray[Any]]) -> tuple[Floats, UInt64Array] | None:
    """Return the columns of numbers in units of their spread, and a hash of all else of a row."""
    numbers, others = [], np.zeros(len(columns[0]) if columns else 0, dtype=np.uint64)
    for place, column in enumerate(columns):
        real = _as_numbers(column)
        if real is not None:
            numbers.append(real)
            column = ~np.isfinite(real)
            if not column.any():
                continue  # in all rows alike
        seed = hashing.mix(np.array([place + 1], dtype=np.uint64))
        others += hashing.mix(hashing.canonical(column, np.array([place])) ^ seed)
    return (_in_units(np.stack(numbers, axis=1)), others) if numbers else None


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
    missing = np.array([type(cell).__name__ in hashing.MISSING_TYPES for cell in block.flat])
    kinds = set(map(type, block.ravel()[~missing]))
    if not all(issubclass(kind, int | float | np.number | np.bool_) for kind in kinds):
        return None
    return np.where(missing.reshape(block.shape), np.nan, block).astype(np.float64)
