"""Commands as requests have them: JSON, .npy without objects, CSV, Arrow, the form of a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from ladderholdout.errors import InvalidArgument, LadderHoldoutError
from ladderholdout.extras import needed
from ladderholdout.guard import commands
from ladderholdout.remote.predictions import Form as Wanted
from ladderholdout.remote.predictions import predictions_in
from ladderholdout.remote.tables import read_csv
from ladderholdout.remote.wire import ARROW, CSV, JSON, NPY
from ladderholdout.server.arrow import table_in
from ladderholdout.server.space import Space

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
        A body that is no JSON is the predictions: all other fields are here.
    """

    data: bytes
    media: str
    query: Mapping[str, str]


def command_in(
    kind: type[commands.Command[Any]],
    sent: Sent,
    space: Callable[[], Space],
    wanted: Callable[[], Wanted],
) -> Any:
    """Read a command.

    Parameters
    ----------
    kind : type
    sent : Sent
    space : callable
        Return what predictions have space for.
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
    known = space() if kind.sets else None
    if sent.media in ("", JSON) or not sent.data:
        stated |= _object(kind, sent.data, known) if sent.data else {}
    elif known is None or "predictions" not in commands.names_of(kind):
        raise InvalidArgument("Content-Type", JSON, "another one")
    else:
        stated["predictions"], ids = _table(sent, known, wanted, stated.pop("ids", None))
        if ids is not None:
            stated["ids"] = ids
    return commands.checked(kind, stated, commands.Reading(known, texts=bool(sent.query)))


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
    sent: Sent, space: Space, wanted: Callable[[], Wanted], ids: str | None
) -> tuple[Any, Any]:
    """Read predictions, and the ids beside them in a table."""
    if sent.media == NPY:
        return space.check_array(commands.array_from(sent.data)), ids
    if sent.media not in (CSV, ARROW):
        raise InvalidArgument("Content-Type", f"{JSON}, {NPY}, {CSV} or {ARROW}", "another one")
    if sent.media == CSV:
        space.check_csv(sent.data)
        table = read_csv(sent.data, "predictions").table
    else:
        table = table_in(sent.data, space)
    return predictions_in(table, wanted(), ids), None


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
