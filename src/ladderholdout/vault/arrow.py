"""Arrow streams, whose messages are read by the format's own description of them (Message.fbs).

A message states its rows, and how long a compressed part will be, in its first bytes. Arrow itself
makes what is stated and checks the bytes later, if at all: 224 bytes are 300 million rows of
nothing, and a kilobyte is a gigabyte of zeros. So what comes from elsewhere is checked here
before Arrow gets it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import as_given
from ladderholdout.extras import needed

SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""Kinds of messages."""

# None has columns within it, or rows without bytes. A zone is a name, and no path to a file.
_TYPE = re.compile(
    r"(dictionary<values=)?(u?int\d+|halffloat|float|double|bool|(large_)?(string|binary)|"
    r"decimal\d+\([\d, -]+\)|date(32|64)\[\w+\]|"
    r"(duration|timestamp)\[\w+(, tz=(?!dateutil/)[\w+\-/:]+)?\])(, indices=\w+, ordered=\d>)?"
)
_CONTINUES = b"\xff\xff\xff\xff"


class Damaged(Exception):
    """A file whose description and parts do not fit each other."""


class NotData(Exception):
    """A value that cannot be kept as data; the text is " with ..." or " of ...", and its place."""


def package() -> Any:
    """Import pyarrow."""
    with needed("A column of Arrow"):
        import pyarrow

    return pyarrow


def stream_of(table: Any) -> NDArray[Any]:
    """Write a table.

    Raises
    ------
    NotData
        A column has columns within it, or is of another type that is not kept.
    """
    for column in table.schema:
        if not _TYPE.fullmatch(str(column.type)):
            where = f" in the column {as_given(column.name)}" if column.name else ""
            raise NotData(f" of dtype {column.type}{where}")
    return np.frombuffer(written(table), dtype="<u8")


def written(table: Any) -> Any:
    """Return the buffer of a table that is written as a stream, whatever its columns are."""
    sink = package().BufferOutputStream()
    with package().ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def table_of(stream: NDArray[Any]) -> Any:
    """Read a table.

    Raises
    ------
    Damaged
        It is none, has compressed parts, or columns that `stream_of` refuses.
    """
    with package().ipc.open_stream(package().py_buffer(checked(stream))) as reader:
        table = reader.read_all()
    table.validate(full=True)  # else a place outside of the file could be read
    if not all(_TYPE.fullmatch(str(kind)) for kind in table.schema.types):
        raise Damaged
    return table


def checked(stream: NDArray[Any]) -> NDArray[Any]:
    """Return a stream, none of whose parts is compressed: what it becomes is as long as it is.

    Raises
    ------
    Damaged
        It is no stream, or has compressed parts.
    """
    data = stream.view(np.uint8)
    try:
        for message in messages(data.data, len(data)):
            if message.kind != SCHEMA and message.batch().has(3):
                raise Damaged
    except struct.error:
        raise Damaged from None
    return data


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its kind, the table that describes it, and its bytes."""

    kind: int
    header: Table
    body: memoryview

    def batch(self) -> Table:
        """Return the table that describes the rows, of a dictionary or a batch."""
        return self.header if self.kind == BATCH else self.header.table(1)


def messages(view: memoryview, longest: int) -> Iterator[Message]:
    """Yield the messages of a stream; none is described in more bytes than the longest."""
    offset = 0
    while offset < len(view):
        if view[offset : offset + 4] != _CONTINUES:
            raise Damaged
        (size,) = struct.unpack_from("<i", view, offset + 4)
        if size == 0:
            return
        offset += 8
        if not 8 <= size <= min(longest, len(view) - offset):
            raise Damaged
        data = view[offset : offset + size]
        message = Table(data, struct.unpack_from("<I", data)[0])
        offset += size
        length = message.number(3, "<q")
        if not 0 <= length <= len(view) - offset or message.has(4):
            raise Damaged
        yield Message(message.number(1, "<B"), message.table(2), view[offset : offset + length])
        offset += length


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a flat buffer; of places outside of it reading fails with `struct.error`."""

    data: memoryview
    place: int

    def _field(self, number: int) -> int:
        """Return the place of a field, 0 for one that is left out."""
        back = int(struct.unpack_from("<i", self.data, self.place)[0])
        fields = self.place - back
        if not 0 <= fields < len(self.data):
            raise struct.error
        entry = 4 + 2 * number
        if entry >= struct.unpack_from("<H", self.data, fields)[0]:
            return 0
        offset = int(struct.unpack_from("<H", self.data, fields + entry)[0])
        return self.place + offset if offset else 0

    def has(self, number: int) -> bool:
        """Return whether a field is stated."""
        return bool(self._field(number))

    def number(self, number: int, form: str) -> int:
        """Return a number, 0 where it is left out."""
        place = self._field(number)
        return int(struct.unpack_from(form, self.data, place)[0]) if place else 0

    def table(self, number: int) -> Table:
        """Return a table within this one."""
        place = self._field(number)
        if not place:
            raise struct.error
        return Table(self.data, place + int(struct.unpack_from("<I", self.data, place)[0]))

    def vector(self, number: int) -> tuple[int, int]:
        """Return where the entries of a vector begin, and how many it has."""
        place = self._field(number)
        if not place:
            return 0, 0
        start = place + int(struct.unpack_from("<I", self.data, place)[0])
        return start + 4, int(struct.unpack_from("<I", self.data, start)[0])

    def tables(self, number: int) -> Iterator[Table]:
        """Yield the tables of a vector."""
        start, count = self.vector(number)
        for place in range(start, start + 4 * count, 4):
            yield Table(self.data, place + int(struct.unpack_from("<I", self.data, place)[0]))

    def count(self, number: int) -> int:
        """Return how many entries a vector has."""
        return self.vector(number)[1]
