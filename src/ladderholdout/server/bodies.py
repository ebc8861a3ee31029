"""Commands as requests have them: JSON, .npy without objects, CSV, Arrow, the form of a page.

How much a body holds is counted before any of its values is made. A few bytes can state a million
values: in Arrow a column of nothing, in JSON a list of empty lists. What a submission needs is
known from the holdout, so that whatever states more is refused at the cost of counting it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission, LadderHoldoutError
from ladderholdout.extras import needed
from ladderholdout.guard import commands, open_ladder
from ladderholdout.guard.rows import NamedPredictions
from ladderholdout.ledger.events import FAULTS
from ladderholdout.metrics import ItemMetric
from ladderholdout.remote import tables
from ladderholdout.remote.wire import ARROW, CSV, JSON, NPY
from ladderholdout.vault import arrow

if TYPE_CHECKING:
    import pyarrow

MOST_OF_A_FORM = 2**16
"""How many bytes a form without a file may have."""
_MOST_FIELDS = 32
_MOST_DIGITS = 400  # more have no float of their own
_BLOCK = 128
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_NO_TEXT = re.compile(rb"\\u([dD][89a-fA-F]|0000)")


@dataclass(frozen=True, slots=True)
class Sent:
    """A command as a request has it: the body, and the fields in the address.

    Attributes
    ----------
    data : bytes
    media : str
        The media type, without its parameters.
    query : mapping of str to str
        All of the address but the account. A body that is no JSON is the predictions: all other
        fields are here.
    """

    data: bytes
    media: str
    query: Mapping[str, str]


def command_in(
    kind: type[commands.Command[Any]],
    sent: Sent,
    space: Space | None,
    wanted: Callable[[], tables.Form],
) -> Any:
    """Read a command.

    Parameters
    ----------
    kind : type
    sent : Sent
    space : Space or None
        What predictions have space for; None for a command without any.
    wanted : callable
        Return what predictions have to be for the ladder; it is asked for the sake of tables alone.

    Raises
    ------
    InvalidArgument
        The body is in no known form, or a field is missing, or none that it may be.
    """
    if any("\0" in text for text in sent.query.values()):  # no ledger holds it
        raise commands.not_read("the address", "of texts without a zero")
    stated: dict[str, Any] = dict(sent.query)
    if "context" in stated:
        stated["context"] = _json(stated["context"].encode(), kind)
    if sent.media in ("", JSON) or not sent.data:
        stated |= _object(kind, sent.data, space) if sent.data else {}
    elif space is None or "predictions" not in commands.names_of(kind):
        raise InvalidArgument("Content-Type", JSON, "another one")
    else:
        stated["predictions"], ids = _table(sent, space, wanted, stated.pop("ids", None))
        if ids is not None:
            stated["ids"] = ids
    return commands.checked(kind, stated, commands.Reading(space, texts=bool(sent.query)))


def _object(kind: type[commands.Command[Any]], data: bytes, space: Space | None) -> dict[str, Any]:
    """Read an object; what it has is counted before any of it is made."""
    hook = None
    if space is not None:
        space.check_json(data) if kind.sets == 1 else space.check_batch(data, kind.sets)
        hook = partial(_made_small, space)
    value = _json(data, kind, hook)
    if not isinstance(value, dict):
        raise _not_read(kind)
    return value


def _not_read(kind: type[commands.Command[Any]]) -> InvalidArgument:
    listed = ", ".join(commands.names_of(kind))
    return commands.not_read("the body", f"JSON, an object with {listed}")


def _table(
    sent: Sent, space: Space, wanted: Callable[[], tables.Form], ids: str | None
) -> tuple[Any, Any]:
    """Read predictions, and the ids beside them in a table."""
    if sent.media == NPY:
        return space.check_array(commands.array_from(sent.data)), ids
    if sent.media not in (CSV, ARROW):
        raise InvalidArgument("Content-Type", f"{JSON}, {NPY}, {CSV} or {ARROW}", "another one")
    if sent.media == CSV:
        space.check_csv(sent.data)
        table = tables.read_csv(sent.data, "predictions")
    else:
        table = table_in(sent.data, space)
    return tables.predictions_in(table, wanted(), ids), None


def upload_media(data: bytes) -> str:
    """Return what a file of predictions is, by its first bytes."""
    if data.startswith(b"\x93NUMPY"):
        return NPY
    return ARROW if data.startswith((b"ARROW1", b"\xff\xff\xff\xff")) else CSV


def _made_small(space: Space, submission: dict[str, Any]) -> dict[str, Any]:
    """Bring one submission of a batch to few bytes, as soon as it is read."""
    predictions, context = submission.get("predictions"), submission.get("context")
    if isinstance(predictions, list) and len(predictions) == space.rows:
        submission["predictions"] = space.check_list(predictions)
    if predictions is not None and isinstance(context, dict):
        submission["context"] = commands.Notes(_checked_text(context))
    return submission


def form_in(data: bytes, content_type: str) -> Form:
    """Read a form that a browser sent: its fields, and the file in it if there is one.

    Raises
    ------
    InvalidArgument
        It is no form.
    """
    media, _, _ = content_type.partition(";")
    try:
        if media.strip().lower() == "multipart/form-data":
            return _multipart(data, content_type)
        if len(data) > MOST_OF_A_FORM:
            raise ValueError
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        return Form(_texts(dict(pairs)))
    except (ValueError, KeyError):
        raise InvalidArgument("the form", "as its page sends it", "another") from None


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form by their names, and the bytes and the name of its file."""

    fields: Mapping[str, str]
    file: bytes | None = None
    file_name: str = ""


def _multipart(data: bytes, content_type: str) -> Form:
    with needed("An upload", extra="server"):
        from python_multipart.exceptions import FormParserError
        from python_multipart.multipart import create_form_parser
    parts: list[Any] = []

    def enter(part: Any) -> None:
        if len(parts) >= _MOST_FIELDS:
            raise ValueError
        parts.append(part)

    headers, memory = {"Content-Type": content_type.encode()}, {"MAX_MEMORY_FILE_SIZE": len(data)}
    try:
        # A file stays in memory: as many bytes are here already.
        parser = create_form_parser(headers, enter, enter, config=memory)
        parser.write(data)
        parser.finalize()
    except FormParserError:
        raise ValueError from None
    files = [part for part in parts if hasattr(part, "file_object")]
    fields = [part for part in parts if part not in files]
    texts = _texts({part.field_name.decode(): (part.value or b"").decode() for part in fields})
    if not files:
        return Form(texts)
    name = (files[-1].file_name or b"").decode(errors="replace")
    return Form(texts, files[-1].file_object.getvalue(), name)


def _texts(fields: dict[str, str]) -> dict[str, str]:
    """Refuse what no ledger holds as a text."""
    if any("\0" in text for text in fields.values()):
        raise ValueError
    return fields


def _json(
    data: bytes,
    kind: type[commands.Command[Any]],
    hook: Callable[[dict[str, Any]], Any] | None = None,
) -> Any:
    try:
        whole = _whole if _has_long_values(data) else None
        value = json.loads(data.decode("utf-8-sig"), object_hook=hook, parse_int=whole)
        # What no ledger holds: half a character, and the end of a text within it.
        if _NO_TEXT.search(data):
            _checked_text(value)
        return value
    except LadderHoldoutError:
        raise
    except (ValueError, RecursionError):
        raise _not_read(kind) from None


def _checked_text(value: Any) -> str:
    """Return a value as JSON, unless it has half a character, or the end of a text within it."""
    text = json.dumps(value, ensure_ascii=False, default=lambda array: None)
    if _ZERO.search(text) or not text.encode():
        raise ValueError
    return text


def _has_long_values(data: bytes) -> bool:
    """Return whether a stretch of some hundred bytes is without a comma; most bodies have none."""
    bytes_ = np.frombuffer(data, dtype=np.uint8)
    for start in range(0, len(bytes_), 2**20):
        part = bytes_[start : start + 2**20]
        blocks = part[: len(part) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
        if not (blocks == ord(",")).any(axis=1).all():
            return True
    return False


def _whole(digits: str) -> int:
    """Read a whole number, unless it is so long that reading it takes the square of its length."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError
    return int(digits)


# -- what predictions have space for ----------------------------------------------------

_SMALL = 2**20  # bytes of a body that are taken whatever the holdout is
_OF_A_ROW, _OF_A_CELL = 1024, 64
_OF_AN_ANSWER = 4096  # characters of a text that a judge reads
_NOTES = 2**14  # marks beside predictions: a context may have as many characters
_LIST = re.compile(rb'"predictions"\s*:\s*\[')
_NUMBERS = {bool, int, float}


@dataclass(frozen=True, slots=True)
class Space:
    """What predictions for a holdout may hold.

    Attributes
    ----------
    rows, columns : int
        The shape of an array of predictions, in which a class or an output has a column.
    longest : int
        The characters of the longest name of a class.
    marks : int
        The most commas and the like in the name of a class.
    items : bool
        Whether a prediction is a text that a judge reads, of which `longest` characters are fine.
    """

    rows: int
    columns: int
    longest: int = 0
    marks: int = 0
    items: bool = False

    @classmethod
    def of(cls, ladder: open_ladder.OpenLadder) -> Space:
        """Return what the holdout of a ladder has space for."""
        n, classes = ladder.facts.n, ladder.facts.classes
        if isinstance(ladder.metric, ItemMetric):
            return cls(n, 1, _OF_AN_ANSWER, _OF_AN_ANSWER, items=True)
        if classes is None:
            return cls(n, ladder.rows().n_outputs)
        columns = max(len(classes), 2)
        if classes.dtype.kind not in "UO":
            return cls(n, columns)
        names = [str(label) for label in classes.tolist()]
        marks = max(sum(name.encode().count(mark) for mark in b",:[{;\t\r\n") for name in names)
        return cls(n, columns, max(map(len, names)), marks)

    @property
    def largest(self) -> int:
        """How many bytes a body of one submission may have."""
        return _SMALL + self.rows * (_OF_A_ROW + _OF_A_CELL * self.columns + 12 * self.longest)

    def read(self, value: Any) -> Any:
        """Read the predictions of a command; refuse others than there is space for."""
        if isinstance(value, Mapping):
            text = value.get("npy")
            # In base64: four characters for three bytes.
            if isinstance(text, str) and len(text) > self.largest * 4 // 3:
                raise self.refused("a body with more bytes")
            return self.check_array(commands.unpacked(value))
        if isinstance(value, list):
            return self.check_list(value)
        if not isinstance(value, np.ndarray | NamedPredictions):
            raise commands.not_read("predictions", "a list")
        return value

    def check_json(self, data: bytes, *, large: bool | None = None) -> None:
        """Refuse JSON of more values than one submission and its notes have.

        Parameters
        ----------
        data : bytes
        large : bool, optional
            Whether too short a list is refused unread: others are worth their own message.
        """
        large = len(data) > _SMALL if large is None else large
        values = data.count(b",") + data.count(b":")
        lists = data.count(b"[") + data.count(b"{")
        of_names = 1 + self.marks
        # Beside its numbers each row may have a text that names it.
        if values > 4 * self.rows * (self.columns + 1) * of_names + _NOTES:
            raise self.refused("a body with more values")
        if lists > self.rows * of_names + _NOTES:
            raise self.refused("a body with more lists")
        if data.count(b"\\") > self.rows * (2 * self.longest + 2) + _NOTES:
            raise self.refused("a body with more characters that are written as numbers")
        if large and data.count(b",") < self.rows - 1 and _LIST.search(data):
            raise self.refused("a body with fewer values")

    def check_batch(self, data: bytes, most: int) -> None:
        """Refuse JSON of more submissions, or of more values in any of them.

        Parameters
        ----------
        data : bytes
        most : int
            Submissions.
        """
        name, start = b'"predictions"', 0
        # Notes may have the name too.
        if data.count(name) > 4 * most:
            raise InvalidSubmission("the body", f"a batch of at most {most}", "of more")
        view = data[: data.find(name)] if name in data else data
        while view:
            self.check_json(view, large=len(data) > _SMALL)
            start += len(view)
            end = data.find(name, start + len(name))
            view = data[start : len(data) if end < 0 else end]

    def check_csv(self, data: bytes) -> None:
        """Refuse CSV of more lines or cells than predictions have."""
        lines = max(data.count(b"\n"), data.count(b"\r"))
        if lines > 2 * (self.rows + 2) * (1 + self.marks):
            raise self.refused("a body with more lines")
        cells = sum(data.count(mark) for mark in (b",", b";", b"\t"))
        if cells > (self.rows + 1) * (self.columns + 4) * (1 + self.marks):
            raise self.refused("a body with more cells")

    def check_array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Refuse an array of another shape; cut texts, as `cut` does."""
        if self.items:
            raise self._no_texts()
        if (
            array.shape[:1] != (self.rows,)
            or not self.rows <= array.size <= self.rows * self.columns
        ):
            raise self.refused(f"an array of shape {array.shape}")
        if array.dtype.kind == "U" and array.dtype.itemsize > 4 * (self.longest + 1):
            array = array.astype(f"U{self.longest + 1}")
        return array

    def check_list(self, values: list[Any]) -> list[Any] | NDArray[Any]:
        """Refuse a list of another length or depth; return numbers in few bytes, and cut texts."""
        if len(values) != self.rows:
            raise self.refused(f"a list of {len(values)}")
        if self.items:
            # None is cut: another text would be judged than was sent.
            if any(not isinstance(text, str) or len(text) > self.longest for text in values):
                raise self._no_texts()
            return values
        inner = [value for row in values if isinstance(row, list) for value in row]
        if any(isinstance(value, list | dict) for value in inner):
            raise self.refused("lists within lists")
        # Of texts NumPy would make an array before it could be seen how long they are.
        if set(map(type, [row for row in values if not isinstance(row, list)] + inner)) <= _NUMBERS:
            numbers = _array(values)
            if numbers is not None:
                return self.check_array(numbers)
        return [self.cut(row) for row in values]

    def cut(self, value: Any, least: int = 0) -> Any:
        """Return a text that is no name of a class with one character more than all of these.

        An array of texts takes for each of them what the longest one needs. Of a list each text is
        cut, and what is no text stays.
        """
        if isinstance(value, list):
            return [self.cut(inner, least) for inner in value]
        return value[: max(self.longest, least) + 1] if isinstance(value, str) else value

    def check_rows(self, rows: int) -> None:
        """Refuse another number of rows."""
        if rows != self.rows:
            raise self.refused(f"a table of {rows} rows")

    def _no_texts(self) -> InvalidSubmission:
        allowed = f"a list of texts of at most {self.longest} characters, one for each row"
        remedy = "Send an object as its JSON, which the judge reads."
        return InvalidSubmission("predictions", allowed, "something else", remedy)

    def refused(self, came: str) -> InvalidSubmission:
        """Return the error for other predictions than there is space for."""
        allowed = f"one for each of the {self.rows} rows"
        if self.columns > 1:
            allowed += f", or up to {self.columns} columns"
        return InvalidSubmission("predictions", allowed, came)


def _array(values: list[Any]) -> NDArray[Any] | None:
    """Return numbers as an array, in few bytes where they are whole; None for anything else."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        return None
    if array.dtype == np.int64:
        small = array.astype(np.int32)
        return small if np.array_equal(small, array) else array
    return array if array.dtype.kind in "bf" else None


# -- Arrow ---------------------------------------------------------------------------------
# Arrow allocates what a message states, and checks the bytes later, if at all. So `vault.arrow`
# reads the messages first, and Arrow gets a stream that keeps within the space.

_FILE = b"ARROW1"
# Bytes of what describes a message: pandas describes each column in some hundred of them.
_DESCRIPTION, _OF_A_COLUMN = 2**14, 2**10
_MESSAGES, _ROWS_OF_ONE = 1000, 64  # so many messages, and one more for so many rows
_WIDEST = 16  # bytes of a value: decimals, and the places of texts
_LONGEST = commands.LONGEST_ID + 1  # characters of a text: longer ones are no ids
_VIEWS = "string_view"
_TEXTS = ("string", "large_string", _VIEWS)
# Types by their number in Schema.fbs: whole numbers, fractions, texts, booleans, decimals, and
# texts in two other layouts. Nothing that has other columns within it, or rows without bytes.
_SIMPLE = {2, 3, 5, 6, 7, 20, 24}
_LABELS = 64  # notes on a schema or a column
_FORMS = "an Arrow stream or file with columns of numbers or texts"


def table_in(data: bytes, space: Space) -> tables.Table:
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
        _check_stream(view, space)
        with ipc.open_stream(pyarrow.py_buffer(view)) as reader:
            batches = list(reader)
        table = pyarrow.Table.from_batches(batches, reader.schema)
        for column in table.columns:
            _check_views(column, len(view))
        table.validate(full=True)  # else a place outside of the body could be read
        space.check_rows(len(table))
        return tables.table_of(table, partial(_column_values, space=space))
    except LadderHoldoutError:
        raise
    # Notes of pandas on an index are JSON, which may be of any form.
    except (pyarrow.ArrowException, arrow.Damaged, struct.error, OSError, MemoryError, *FAULTS):
        raise commands.not_read("predictions", _FORMS) from None


def _check_views(column: pyarrow.ChunkedArray, size: int) -> None:
    """Refuse texts that are many times as long together as the body: all in the same place."""
    long = 0
    for chunk in _arrays_of(column):
        if str(chunk.type) == _VIEWS and (views := chunk.buffers()[1]) is not None:
            lengths = np.frombuffer(views, dtype="<i4", count=views.size // 4)[::4]
            long += int(np.maximum(lengths, 0).sum(dtype=np.int64))
    if long > 4 * size + 2**16:
        raise commands.not_read("predictions", _FORMS)


def _arrays_of(column: pyarrow.ChunkedArray) -> list[pyarrow.Array]:
    """Return the arrays of a column; where it has dictionaries, return each of these once."""
    if not hasattr(column.type, "value_type"):
        return list(column.chunks)
    return list({_address(part.dictionary): part.dictionary for part in column.chunks}.values())


def _address(array: pyarrow.Array) -> tuple[int, ...]:
    """Return where an array is in memory, for all batches after a dictionary share it."""
    held = (0 if buffer is None else buffer.address for buffer in array.buffers())
    return (array.offset, len(array), *held)


def _column_values(column: pyarrow.ChunkedArray, space: Space) -> Sequence[Any]:
    """Return the values of a column; texts are cut as `Space.cut` does, far behind any id."""
    with needed("A body in Arrow"):
        import pyarrow

    if column.null_count:
        raise commands.not_read("predictions", "without missing values")
    if hasattr(column.type, "value_type"):
        known = {
            _address(part): _column_values(pyarrow.chunked_array([part]), space)
            for part in _arrays_of(column)
        }
        codes = (
            (known[_address(part.dictionary)], part.indices.to_pylist()) for part in column.chunks
        )
        return [values[place] for values, places in codes for place in places]
    if str(column.type) in _TEXTS:
        return [space.cut(text.as_py(), _LONGEST) for chunk in column.chunks for text in chunk]
    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    return tables.cells_of(column)


# -- what messages state ------------------------------------------------------------------


def _check_stream(view: memoryview, space: Space) -> None:
    """Refuse a stream that states more than there is space for, or has parts without a use."""
    rows = named = made = 0
    # Compressed parts become so many bytes: of each column values, their places and their texts.
    space_for = 2**16 + space.rows * (space.columns + 1) * (_WIDEST + 4 * (space.longest + 1))
    longest = _DESCRIPTION + _OF_A_COLUMN * space.columns
    most = _MESSAGES + space.rows // _ROWS_OF_ONE
    for number, message in enumerate(arrow.messages(view, longest)):
        if message.kind == arrow.SCHEMA:
            _check_schema(message.header, space)
            continue
        if message.kind not in (arrow.BATCH, arrow.DICTIONARY) or number > most:
            raise commands.not_read("predictions", _FORMS)
        # A dictionary that grows would be kept once for each batch between.
        if message.kind == arrow.DICTIONARY and message.header.number(2, "<B"):
            raise commands.not_read("predictions", _FORMS)
        batch = message.batch()
        made += _inflated(batch, message.body, 4 * (space.columns + 2))
        length = max(batch.number(0, "<q"), 0)
        if message.kind == arrow.BATCH:
            rows += length
        else:
            named += length
        if rows > space.rows:
            space.check_rows(rows)
        if named > 2 * space.rows + 2**10 or made > space_for:
            raise commands.not_read(
                "predictions", f"{_FORMS}, a value for each of {space.rows} rows"
            )


def _check_schema(schema: arrow.Table, space: Space) -> None:
    """Refuse columns that are no numbers or texts, before any is made."""
    fields = list(schema.tables(1))
    if not 1 <= len(fields) <= space.columns + 1:
        raise space.refused(f"a table of {len(fields)} columns")
    simple = all(each.number(2, "<B") in _SIMPLE and not each.count(5) for each in fields)
    notes = (schema.count(2), *(each.count(6) for each in fields))
    if not simple or any(count > _LABELS for count in notes):
        raise commands.not_read("predictions", _FORMS)


def _inflated(batch: arrow.Table, body: memoryview, most: int) -> int:
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
