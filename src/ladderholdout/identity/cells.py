"""The canonical 64-bit value of a cell: zero for the number zero and for nothing else."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import numbers
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
_MISSING_TYPES = frozenset({"NoneType", "NAType", "NaTType"})


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
    if kind.__name__ in _MISSING_TYPES:
        return np.full(len(cells), _MISSING)
    if issubclass(kind, str | bytes):
        return _texts(cells)
    if issubclass(kind, np.datetime64 | np.timedelta64):
        return _times(np.array(cells.tolist()))
    if issubclass(kind, datetime.date | datetime.timedelta):
        return _calendar(kind, cells)
    if issubclass(kind, int | np.integer | np.bool_):
        return _python_integers(cells)
    if issubclass(kind, numbers.Real | decimal.Decimal):
        return _reals(cells.astype(np.float64))
    raise TypeError


def _texts(cells: NDArray[Any]) -> UInt64Array:
    digests = {text: _digest(text) for text in set(cells)}
    return np.fromiter(map(digests.__getitem__, cells), dtype=np.uint64, count=len(cells))


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
