"""Predictions as they come in a request: JSON, .npy without objects, CSV, Arrow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard.context import jsonable
from ladderholdout.guard.named_rows import NamedPredictions
from ladderholdout.remote.predictions import Form as Wanted
from ladderholdout.remote.predictions import predictions_in
from ladderholdout.remote.tables import Table, read_csv, table_of
from ladderholdout.remote.wire import (
    ARROW,
    CSV,
    JSON,
    NPY,
    array_from,
    arrow_table,
    not_read,
    unpacked,
)

MOST_IN_A_BATCH = 1000
_MOST_FIELDS = 32

_ONE = 'an object {"predictions": [...], "ids": [...], "context": {...}}'
_MANY = f'an object {{"submissions": [...]}} with 1 to {MOST_IN_A_BATCH} of {_ONE}'


@dataclass(frozen=True, slots=True)
class Asked:
    """One submission as it was asked for; `search` is under what a search finds it again."""

    predictions: Any
    context: Mapping[str, Any] = field(default_factory=dict)
    search: str | None = None


def submission_in(
    data: bytes, media: str, wanted: Wanted, context: str | None, ids: str | None = None
) -> Asked:
    """Read one submission.

    Parameters
    ----------
    data : bytes
    media : str
        The media type, without its parameters.
    wanted : Form
        What predictions have to be for the ladder.
    context : str or None
        JSON from a header, for bodies that hold predictions alone.
    ids : str or None
        The column of a table that has the ids of the rows.

    Raises
    ------
    InvalidArgument
        The body is in no known form.
    """
    if ids is not None and media not in (CSV, ARROW):
        allowed = 'left out for a body that is no table; JSON has a list, "ids": [...]'
        raise InvalidArgument("ids", allowed, "given")
    if media in ("", JSON):
        return _asked(_json(data, _ONE))
    noted = {} if context is None else _object(_json(context.encode(), "an object"), "an object")
    if media == NPY:
        return Asked(array_from(data), jsonable(noted))
    if media == CSV:
        table = read_csv(data, "predictions").table
        return Asked(predictions_in(table, wanted, ids), jsonable(noted))
    if media == ARROW:
        return Asked(predictions_in(_arrow(data), wanted, ids), jsonable(noted))
    raise InvalidArgument("Content-Type", f"{JSON}, {NPY}, {CSV} or {ARROW}", "another one")


def batch_in(data: bytes) -> tuple[Asked, ...]:
    """Read several submissions, all fixed before feedback on any of them."""
    listed = _object(_json(data, _MANY), _MANY).get("submissions")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_IN_A_BATCH:
        raise not_read("the body", _MANY)
    found = tuple(map(_asked, listed))
    # By what rule a training run stopped is known where the run is, and not from afar.
    return tuple(
        Asked(one.predictions, {k: v for k, v in one.context.items() if k != "stopping"})
        for one in found
    )


def object_in(data: bytes, **wanted: type) -> dict[str, Any]:
    """Read an object with these values, each of a type; what is left out is None."""
    allowed = f"an object with {', '.join(wanted)}"
    found = _object(_json(data, allowed), allowed)
    for name, value in found.items():
        if name not in wanted or not (value is None or type(value) is wanted[name]):
            raise InvalidArgument("the body", allowed, "in another form")
    return {name: found.get(name) for name in wanted}


def upload_in(
    data: bytes, wanted: Wanted, context: Mapping[str, Any], ids: str | None = None
) -> Asked:
    """Read a file of predictions; what it is, is seen by how it begins.

    Parameters
    ----------
    data : bytes
        A .npy file without objects, an Arrow stream or file, or CSV with a header.
    wanted, ids
        As for `submission_in`.
    context : mapping
        Notes for the history.
    """
    media = NPY if data.startswith(b"\x93NUMPY") else CSV
    if data.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        media = ARROW
    return submission_in(data, media, wanted, json.dumps(context), ids)


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
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        return Form(dict(pairs))
    except (ValueError, KeyError):
        raise InvalidArgument("the form", "as its page sends it", "another") from None


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form by their names, and the bytes and the name of its file."""

    fields: Mapping[str, str]
    file: bytes | None = None
    file_name: str = ""


def _multipart(data: bytes, content_type: str) -> Form:
    with needed("An upload"):
        from python_multipart.exceptions import FormParserError
        from python_multipart.multipart import MultipartParser, parse_options_header
    parts: list[tuple[dict[bytes, bytes], list[bytes]]] = []
    header: list[bytes] = [b"", b""]

    def begin() -> None:
        if len(parts) >= _MOST_FIELDS:
            raise ValueError
        parts.append(({}, []))

    def note(at: int, text: bytes) -> None:
        header[at] += text

    def end_of_header() -> None:
        parts[-1][0][header[0].lower()] = header[1]
        header[:] = b"", b""

    callbacks: Any = {
        "on_part_begin": begin,
        "on_header_field": lambda text, start, end: note(0, text[start:end]),
        "on_header_value": lambda text, start, end: note(1, text[start:end]),
        "on_header_end": end_of_header,
        "on_part_data": lambda text, start, end: parts[-1][1].append(text[start:end]),
    }
    try:
        parser = MultipartParser(parse_options_header(content_type)[1][b"boundary"], callbacks)
        parser.write(data)
        parser.finalize()
    except FormParserError:
        raise ValueError from None
    fields, file, file_name = {}, None, ""
    for headers, chunks in parts:
        _, options = parse_options_header(headers.get(b"content-disposition"))
        name, value = options[b"name"].decode(), b"".join(chunks)
        if b"filename" in options:
            file, file_name = value, options[b"filename"].decode(errors="replace")
        else:
            fields[name] = value.decode()
    return Form(fields, file, file_name)


def _asked(value: Any) -> Asked:
    value = _object(value, _ONE)
    unknown = value.keys() - {"predictions", "context", "search", "ids"}
    if "predictions" not in value or unknown:
        raise not_read("the body", _ONE)
    context, search = value.get("context") or {}, value.get("search")
    if search is not None and not (isinstance(search, str) and len(search) <= 32):
        raise not_read("search", "a text of at most 32 characters")
    predictions = unpacked(value["predictions"])
    if not isinstance(predictions, list | np.ndarray):
        raise not_read("predictions", "a list")
    if (ids := value.get("ids")) is not None:
        if not isinstance(ids, list) or len(ids) != len(predictions):
            raise not_read("ids", "a list with one for each prediction")
        predictions = NamedPredictions(predictions, ids)
    return Asked(predictions, jsonable(_object(context, "an object")), search)


def _object(value: Any, allowed: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise not_read("the body", allowed)
    return value


def _json(data: bytes, allowed: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise not_read("the body", f"JSON, {allowed}") from None


def _arrow(data: bytes) -> Table:
    with needed("A body in Arrow"):
        import pyarrow
    try:
        return table_of(arrow_table(data, "A body in Arrow"))
    except (pyarrow.ArrowException, ValueError, OSError):
        raise not_read("predictions", "an Arrow stream or file") from None
