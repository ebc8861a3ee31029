"""A file of plain values: a manifest in JSON, and behind it the bytes of arrays and texts.

Nothing in it names code. Every kind of value is looked up in a table of this library; what
is none of them is refused, when it is written as when it is read. The layout is that of
safetensors: a line that names the format, the length of the manifest in eight bytes, the
manifest, then the parts, each at a multiple of 64 bytes, so that arrays are read in place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

MAGIC = b"ladderholdout rows 1\n"
_ALIGNMENT = 64
_SIZE = 8

Node: TypeAlias = dict[str, Any]
"""How a manifest describes a value: its kind under "is", and what that kind needs."""


class NotData(Exception):
    """A value that cannot be kept as data; the text is what it is."""


class Damaged(Exception):
    """A file whose manifest and parts do not fit each other."""


class File(Protocol):
    """What is written to."""

    def write(self, data: Any) -> object:
        """Take some bytes."""


@dataclass(slots=True)
class Parts:
    """The bytes behind a manifest while it is being made."""

    parts: list[Any] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0

    def add(self, data: bytes | NDArray[Any]) -> int:
        """Keep some bytes, or those of an array in C order; return the number of the part."""
        part = data if isinstance(data, bytes) else _bytes_of(data)
        start = _aligned(self.size)
        self.parts.append(part)
        self.places.append((start, len(part)))
        self.size = start + len(part)
        return len(self.parts) - 1


@dataclass(frozen=True, slots=True)
class Source:
    """The parts of a file that was read: checked against its size, and read in place."""

    data: NDArray[np.uint8] = field(repr=False)
    places: tuple[tuple[int, int], ...]

    def part(self, number: int) -> NDArray[np.uint8]:
        """Return the bytes of a part, writable."""
        start, length = self.places[number]
        return self.data[start : start + length]


def write(file: File, content: Callable[[Parts], Mapping[str, Any]]) -> None:
    """Write a manifest and the parts that it needs.

    Parameters
    ----------
    file : File
    content : callable
        Gives the manifest for the parts that it adds.

    Raises
    ------
    NotData
        Something cannot be kept as data; nothing was written.
    """
    parts = Parts()
    manifest = {"content": content(parts), "parts": parts.places}
    header = json.dumps(manifest, allow_nan=False, separators=(",", ":")).encode()
    written = len(MAGIC) + _SIZE + len(header)
    file.write(MAGIC + len(header).to_bytes(_SIZE, "little") + header)
    file.write(bytes(_aligned(written) - written))
    end = 0
    for (start, length), part in zip(parts.places, parts.parts, strict=True):
        file.write(bytes(start - end))
        file.write(part)
        end = start + length


def is_container(data: NDArray[np.uint8]) -> bool:
    """Return whether a file has this format."""
    return data[: len(MAGIC)].tobytes() == MAGIC


def read(data: NDArray[np.uint8]) -> tuple[dict[str, Any], Source]:
    """Read a manifest, and find its parts.

    Parameters
    ----------
    data : ndarray of uint8
        The whole file. Arrays that are read from it share its memory.

    Returns
    -------
    content : dict
    source : Source

    Raises
    ------
    Damaged
        It is no such file, or names parts that it does not have.
    """
    begin = len(MAGIC) + _SIZE
    if not is_container(data):
        raise Damaged
    end = begin + int.from_bytes(data[len(MAGIC) : begin].tobytes(), "little")
    if end > len(data):
        raise Damaged
    try:
        manifest = json.loads(data[begin:end].tobytes())
        content, places = manifest["content"], manifest["parts"]
        found = tuple((int(start), int(length)) for start, length in places)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Damaged from None
    parts = data[_aligned(end) :]
    if not all(0 <= start <= start + length <= len(parts) for start, length in found):
        raise Damaged
    if not isinstance(content, dict):
        raise Damaged
    return content, Source(parts, found)


def total(lengths: Iterable[int]) -> int:
    """Add lengths up, refusing any below zero."""
    found = list(lengths)
    if found and min(found) < 0:
        raise Damaged
    return sum(found)


def shape_of(stated: Any) -> tuple[int, ...]:
    """Read a shape."""
    if not isinstance(stated, Sequence) or not all(type(one) is int and one >= 0 for one in stated):
        raise Damaged
    return tuple(stated)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _bytes_of(array: NDArray[Any]) -> memoryview:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.itemsize and flat.size else memoryview(b"")
