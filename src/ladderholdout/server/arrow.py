"""Predictions in Arrow: what a stream states is read before any of its values is.

Arrow allocates what a message states, and checks the bytes later, if at all. So `vault.arrow` reads
the messages first, and Arrow gets a stream that keeps within the space.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ladderholdout.errors import LadderHoldoutError
from ladderholdout.extras import needed
from ladderholdout.guard import commands
from ladderholdout.ledger.events import FAULTS
from ladderholdout.remote.tables import Table, cells_of, table_of
from ladderholdout.server.space import Space
from ladderholdout.vault.arrow import BATCH, DICTIONARY, SCHEMA, Damaged, messages
from ladderholdout.vault.arrow import Table as ArrowTable

if TYPE_CHECKING:
    import pyarrow

_FILE = b"ARROW1"
# Bytes of what describes a message: pandas describes each column in some hundred of them.
_DESCRIPTION, _OF_A_COLUMN = 2**14, 2**10
_MESSAGES, _ROWS_OF_ONE = 1000, 64  # so many messages, and one more for so many rows
_WIDEST = 16  # bytes of a value: decimals, and the places of texts
_LONGEST = commands.LONGEST_ID + 1  # characters of a text: longer ones are no ids
_VIEWS = "string_view"
# Types by their number in Schema.fbs: whole numbers, fractions, texts, booleans, decimals, and
# texts in two other layouts. Nothing that has other columns within it, or rows without bytes.
_SIMPLE = {2, 3, 5, 6, 7, 20, 24}
_LABELS = 64  # notes on a schema or a column
_FORMS = "an Arrow stream or file with columns of numbers or texts"


def table_in(data: bytes, space: Space) -> Table:
    """Read a stream or a file.

    Parameters
    ----------
    data : bytes
    space : Space

    Raises
    ------
    InvalidSubmission
        It is neither, or holds anything else than the predictions have space for.
    """
    with needed("A body in Arrow"):
        import pyarrow
        from pyarrow import ipc
    # A file is a stream between a mark and a list of its parts, which is not needed.
    view = memoryview(data)[8 if data.startswith(_FILE) else 0 :]
    try:
        _check(view, space)
        with ipc.open_stream(pyarrow.py_buffer(view)) as reader:
            batches = list(reader)
        table = pyarrow.Table.from_batches(batches, reader.schema)
        for column in table.columns:
            _check_views(column, len(view))
        table.validate(full=True)  # else a place outside of the body could be read
        space.check_rows(len(table))
        return table_of(table, partial(_values, space=space))
    except LadderHoldoutError:
        raise
    # Notes of pandas on an index are JSON, which may be of any form.
    except (pyarrow.ArrowException, Damaged, struct.error, OSError, MemoryError, *FAULTS):
        raise commands.not_read("predictions", _FORMS) from None


def _is_text(kind: pyarrow.DataType) -> bool:
    """Return whether a column holds texts, in any of three layouts."""
    return str(kind) in ("string", "large_string", _VIEWS)


def _check_views(column: pyarrow.ChunkedArray, size: int) -> None:
    """Refuse texts that are many times as long together as the body: all in the same place."""
    long = 0
    for chunk in _parts(column):
        if str(chunk.type) == _VIEWS and (views := chunk.buffers()[1]) is not None:
            lengths = np.frombuffer(views, dtype="<i4", count=views.size // 4)[::4]
            long += int(np.maximum(lengths, 0).sum(dtype=np.int64))
    if long > 4 * size + 2**16:
        raise commands.not_read("predictions", _FORMS)


def _parts(column: pyarrow.ChunkedArray) -> list[pyarrow.Array]:
    """Return the arrays of a column; where it has dictionaries, return each of these once."""
    if not hasattr(column.type, "value_type"):
        return list(column.chunks)
    return list({_place(part.dictionary): part.dictionary for part in column.chunks}.values())


def _place(array: pyarrow.Array) -> tuple[int, ...]:
    """Return where an array is in memory, for all batches after a dictionary share it."""
    held = (0 if buffer is None else buffer.address for buffer in array.buffers())
    return (array.offset, len(array), *held)


def _values(column: pyarrow.ChunkedArray, space: Space) -> Sequence[Any]:
    """Return the values of a column; texts are cut as `Space.cut` does, far behind any id."""
    with needed("A body in Arrow"):
        import pyarrow

    if column.null_count:
        raise commands.not_read("predictions", "without missing values")
    if hasattr(column.type, "value_type"):
        known = {
            _place(part): _values(pyarrow.chunked_array([part]), space) for part in _parts(column)
        }
        codes = (
            (known[_place(part.dictionary)], part.indices.to_pylist()) for part in column.chunks
        )
        return [values[place] for values, places in codes for place in places]
    if _is_text(column.type):
        return [space.cut(text.as_py(), _LONGEST) for chunk in column.chunks for text in chunk]
    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    return cells_of(column)


# -- what messages state ------------------------------------------------------------------


def _check(view: memoryview, space: Space) -> None:
    """Refuse a stream that states more than there is space for, or has parts without a use."""
    rows = named = made = 0
    # Compressed parts become so many bytes: of each column values, their places and their texts.
    space_for = 2**16 + space.rows * (space.columns + 1) * (_WIDEST + 4 * (space.longest + 1))
    longest = _DESCRIPTION + _OF_A_COLUMN * space.columns
    most = _MESSAGES + space.rows // _ROWS_OF_ONE
    for number, message in enumerate(messages(view, longest)):
        if message.kind == SCHEMA:
            _check_schema(message.header, space)
            continue
        if message.kind not in (BATCH, DICTIONARY) or number > most:
            raise commands.not_read("predictions", _FORMS)
        # A dictionary that grows would be kept once for each batch between.
        if message.kind == DICTIONARY and message.header.number(2, "<B"):
            raise commands.not_read("predictions", _FORMS)
        batch = message.batch()
        made += _made(batch, message.body, 4 * (space.columns + 2))
        length = max(batch.number(0, "<q"), 0)
        if message.kind == BATCH:
            rows += length
        else:
            named += length
        if rows > space.rows:
            space.check_rows(rows)
        if named > 2 * space.rows + 2**10 or made > space_for:
            raise commands.not_read(
                "predictions", f"{_FORMS}, a value for each of {space.rows} rows"
            )


def _check_schema(schema: ArrowTable, space: Space) -> None:
    """Refuse columns that are no numbers or texts, before any is made."""
    space.check_columns(schema.count(1))
    fields = list(schema.tables(1))
    simple = all(each.number(2, "<B") in _SIMPLE and not each.count(5) for each in fields)
    notes = (schema.count(2), *(each.count(6) for each in fields))
    if not simple or any(count > _LABELS for count in notes):
        raise commands.not_read("predictions", _FORMS)


def _made(batch: ArrowTable, body: memoryview, most: int) -> int:
    """Return how many bytes the compressed parts of a batch state to become."""
    if not batch.has(3):
        return 0
    start, count = batch.vector(2)
    if count > most:
        raise commands.not_read("predictions", _FORMS)
    made = 0
    for part in range(count):
        offset, length = struct.unpack_from("<qq", batch.data, start + 16 * part)
        if length > 0:
            if not 0 <= offset <= len(body) - 8:
                raise commands.not_read("predictions", _FORMS)
            made += max(struct.unpack_from("<q", body, offset)[0], 0)
    return made
