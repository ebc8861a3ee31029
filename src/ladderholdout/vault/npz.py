"""The file of a vault: an .npz, with a description in JSON of what its arrays are.

The file is a zip archive whose members are not compressed. Arrays are `.npy` members, cells of
Python's own types are `.json` members, columns of pandas' and polars' types are `.arrow` members.
Each member begins at a multiple of 64 bytes, so that arrays are read in place, in one copy of the
file. Nothing is unpickled, and what a header states is compared with the bytes that are there
before memory is taken for it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

PLAIN = "biufcmMSU"
"""Kinds of dtypes whose bytes are the values."""

_BEGINNING = b"PK\x03\x04"
_DESCRIPTION = "rows.json"
_ALIGNMENT = 64
_LOCAL_HEADER, _ZIP64 = 30, 20  # bytes; zipfile adds the second to what `extra` has
_HEADER = 2**14  # bytes that hold any header of .npy that NumPy reads
_LAST_CHARACTER = 0x10FFFF

Node: TypeAlias = dict[str, Any]
"""How a value is described: its kind under "is", and what that kind needs."""


class NotData(Exception):
    """A value that cannot be kept as data; the text is what it has, "with ..." or "of ..."."""


class Damaged(Exception):
    """A file whose description and members do not fit each other."""


@dataclass(slots=True)
class Hashed:
    """A file that is written once from its beginning to its end, and hashed meanwhile."""

    file: BinaryIO
    sha256: Any = field(default_factory=hashlib.sha256)
    size: int = 0

    def write(self, data: Any) -> int:
        """Write some bytes."""
        self.sha256.update(data)
        self.size += len(data)
        return self.file.write(data)

    def flush(self) -> None:
        """Do what zipfile asks of a file."""


class Parts(dict[str, Callable[[Any], object]]):
    """The members of a file by their names, each as what writes it."""

    def add_array(self, name: str, array: NDArray[Any]) -> None:
        """Keep an array."""
        self[f"{name}.npy"] = lambda file: np.lib.format.write_array(
            file, array, version=(1, 0), allow_pickle=False
        )

    def add_json(self, name: str, value: Any) -> None:
        """Keep a value of JSON; a text may have surrogates without a partner."""
        text = json.dumps(value, ensure_ascii=False, check_circular=False, separators=(",", ":"))
        data = text.encode("utf-8", "surrogatepass")
        self[f"{name}.json"] = lambda file: file.write(data)


def write(file: BinaryIO, parts: Parts, content: Mapping[str, Node]) -> str:
    """Write the members and the description of their values; return SHA-256 in hexadecimal."""
    description = json.dumps(content).encode()
    # zipfile takes a file without `tell` for a stream, and goes back to no earlier place.
    stream: Any = Hashed(file)
    with zipfile.ZipFile(stream, "w") as archive:
        for name, put in (parts | {_DESCRIPTION: lambda member: member.write(description)}).items():
            info = zipfile.ZipInfo(name)
            start = stream.size + _LOCAL_HEADER + len(name.encode()) + _ZIP64 + 4
            padding = -start % _ALIGNMENT
            info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=True) as member:
                put(member)
    digest: str = stream.sha256.hexdigest()
    return digest


class Source:
    """The members of a file that was read. Arrays share its memory.

    Parameters
    ----------
    file : BytesIO
        The whole file.

    Raises
    ------
    Damaged
        It is no such file, or has members outside of it.
    """

    def __init__(self, file: io.BytesIO) -> None:
        if not is_npz(file):
            raise Damaged
        data = np.frombuffer(file.getbuffer(), dtype=np.uint8)
        self._members: dict[str, NDArray[np.uint8]] = {}
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                lengths = struct.unpack_from(
                    "<HH", data.data, info.header_offset + _LOCAL_HEADER - 4
                )
                start = info.header_offset + _LOCAL_HEADER + sum(lengths)
                # What is compressed might become any number of bytes.
                if info.compress_type or not 0 <= start <= len(data) - info.file_size:
                    raise Damaged
                self._members[info.filename] = data[start : start + info.file_size]
        self.content: dict[str, Node] = json.loads(self.member(_DESCRIPTION).tobytes())

    def member(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a member, writable."""
        return self._members[name]

    def json(self, name: str) -> Any:
        """Read a value of JSON."""
        text = self.member(f"{name}.json").tobytes().decode("utf-8", "surrogatepass")
        return json.loads(text)

    def array(self, name: str) -> NDArray[Any]:
        """Read an array, whose memory is that of the file."""
        member = self.member(f"{name}.npy")
        header = io.BytesIO(member[:_HEADER].tobytes())
        if np.lib.format.read_magic(header) != (1, 0):
            raise Damaged
        shape, turned, dtype = np.lib.format.read_array_header_1_0(header)
        if dtype.kind not in PLAIN or dtype.subdtype or not dtype.itemsize:
            raise Damaged
        values = member[header.tell() :]
        flat = values.view(dtype)
        if math.prod(shape) != flat.size:
            raise Damaged
        # What no array of Python's own holds would end some later step in an error of its own.
        if dtype.kind == "b" and flat.size and values.max() > 1:
            raise Damaged
        if dtype.kind == "U" and flat.size:
            characters = values.view(np.dtype("u4").newbyteorder(dtype.byteorder))
            if characters.max() > _LAST_CHARACTER:
                raise Damaged
        return flat.reshape(shape[::-1]).T if turned else flat.reshape(shape)


def is_npz(file: io.BytesIO) -> bool:
    """Return whether a file begins as an archive does."""
    return bytes(file.getbuffer()[: len(_BEGINNING)]) == _BEGINNING
