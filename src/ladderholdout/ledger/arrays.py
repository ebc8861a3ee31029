"""Arrays as bytes: predictions are kept short, and whatever was changed is refused when read."""

from __future__ import annotations

import hmac
import io
import math
import struct
import tokenize
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.ledger.events import Damaged


def to_bytes(array: NDArray[Any]) -> bytes:
    """Write an array without pickling it."""
    buffer = io.BytesIO()
    # Labels that are Python strings come as objects, which only a pickle could keep.
    np.save(buffer, array.astype(str) if array.dtype == object else array, allow_pickle=False)
    return buffer.getvalue()


def from_bytes(stored: bytes) -> NDArray[Any]:
    """Read an array that `to_bytes` wrote; ValueError where it is none.

    Its header may state no more than there is.
    """
    file = io.BytesIO(stored)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("another version of the format")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    except (EOFError, KeyError, OSError, SyntaxError, tokenize.TokenError) as fault:
        raise ValueError(type(fault).__name__) from None
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError("objects, or nothing")
    if math.prod(shape) * dtype.itemsize != len(stored) - file.tell():
        raise ValueError("another length")
    flat = np.frombuffer(stored, dtype, offset=file.tell()).copy()
    return flat.reshape(shape, order="F" if by_columns else "C")


# One column of two: the first is one minus it, as probabilities of two classes are.
_SECOND = np.dtype([("second", "<f8")])
# Positions of classes: a bit for each of two, else a byte. The number of bits and of rows follow.
_CODES = b"\x93CODES"
_WIDTH_AND_LENGTH = struct.Struct("<BQ")


def packed(predictions: NDArray[Any]) -> bytes:
    """Write canonical predictions as `unpacked` reads them, in few bytes."""
    if predictions.ndim == 2 and predictions.shape[1] == 2 and predictions.dtype == np.float64:
        second = np.ascontiguousarray(predictions[:, 1])
        if np.array_equal(predictions[:, 0], 1 - second):
            return to_bytes(second.view(_SECOND))
    if predictions.ndim == 1 and predictions.dtype == np.int32 and predictions.size:
        short = predictions.astype(np.uint8)
        if np.array_equal(short, predictions):
            width = 1 if short.max() <= 1 else 8
            head = _CODES + _WIDTH_AND_LENGTH.pack(width, len(short))
            return head + (np.packbits(short) if width == 1 else short).tobytes()
    return to_bytes(predictions)


def unpacked(stored: bytes) -> NDArray[Any]:
    """Read what `packed` wrote; LedgerError where somebody changed it."""
    if stored.startswith(_CODES):
        return _codes(stored)
    try:
        array = from_bytes(stored)
    except ValueError:
        raise Damaged from None
    if array.dtype != _SECOND:
        return array
    second = array["second"]
    return np.column_stack([1 - second, second])


def _codes(stored: bytes) -> NDArray[np.int32]:
    start = len(_CODES) + _WIDTH_AND_LENGTH.size
    if len(stored) < start:
        raise Damaged
    width, n = _WIDTH_AND_LENGTH.unpack_from(stored, len(_CODES))
    codes = np.frombuffer(stored, dtype=np.uint8, offset=start)
    if width not in (1, 8) or len(codes) != -(-n * width // 8):
        raise Damaged
    if len(codes) and codes[-1] & (1 << -n * width % 8) - 1:  # bits of no row
        raise Damaged
    return (np.unpackbits(codes, count=n) if width == 1 else codes).astype(np.int32)


def booleans(stored: bytes, n: int) -> NDArray[np.bool_]:
    """Read n booleans that `numpy.packbits` wrote."""
    return np.unpackbits(np.frombuffer(stored, dtype=np.uint8), count=n).astype(bool)


def digest_of(secret: bytes, predictions: NDArray[Any]) -> str:
    """Return the HMAC-SHA256 of canonical predictions, 64 hex characters.

    Keyed, since the history shows it: predictions are in the order of the content, which
    depends on the labels, and whoever could try orders until a digest fits would read them.
    """
    head = f"{predictions.dtype.str}{predictions.shape}".encode()
    return hmac.digest(secret, head + predictions.tobytes(), "sha256").hex()


def digests_of(
    secret: bytes, predictions: NDArray[Any], reserve: NDArray[np.bool_] | None
) -> tuple[str, str | None]:
    """Return the digests of what ladders measure, and of the reserve's predictions.

    The first decides what is a repeat. With one digest over all rows, a rule with noise could
    be asked again and again about what it measures, by changing what it does not.
    """
    if reserve is None:
        return digest_of(secret, predictions), None
    return digest_of(secret, predictions[~reserve]), digest_of(secret, predictions[reserve])
