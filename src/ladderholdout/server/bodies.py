"""Predictions as they come in a request: JSON, .npy without objects, CSV, Arrow."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.extras import needed
from ladderholdout.guard.context import jsonable
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

_ONE = 'an object {"predictions": [...], "context": {...}}'
_MANY = f'an object {{"submissions": [...]}} with 1 to {MOST_IN_A_BATCH} of {_ONE}'


@dataclass(frozen=True, slots=True)
class Asked:
    """One submission as it was asked for; `search` is under what a search finds it again."""

    predictions: Any
    context: Mapping[str, Any] = field(default_factory=dict)
    search: str | None = None


def submission_in(
    data: bytes, media: str, classes: NDArray[Any] | None, context: str | None
) -> Asked:
    """Read one submission.

    Parameters
    ----------
    data : bytes
    media : str
        The media type, without its parameters.
    classes : ndarray or None
        Of the holdout: whether labels are texts, and what columns of probabilities are named.
    context : str or None
        JSON from a header, for bodies that hold predictions alone.

    Raises
    ------
    InvalidArgument
        The body is in no known form.
    """
    if media in ("", JSON):
        return _asked(_json(data, _ONE))
    noted = {} if context is None else _object(_json(context.encode(), "an object"), "an object")
    if media == NPY:
        return Asked(array_from(data), jsonable(noted))
    if media == CSV:
        return Asked(_table(*_csv(data), classes), jsonable(noted))
    if media == ARROW:
        return Asked(_table(*_arrow(data), classes), jsonable(noted))
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


def upload_in(data: bytes, classes: NDArray[Any] | None, context: Mapping[str, Any]) -> Asked:
    """Read a file of predictions; what it is, is seen by how it begins.

    Parameters
    ----------
    data : bytes
        A .npy file without objects, an Arrow stream or file, or CSV with a header.
    classes : ndarray or None
        As for `submission_in`.
    context : mapping
        Notes for the history.
    """
    media = NPY if data.startswith(b"\x93NUMPY") else CSV
    if data.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        media = ARROW
    return submission_in(data, media, classes, json.dumps(context))


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
    unknown = value.keys() - {"predictions", "context", "search"}
    if "predictions" not in value or unknown:
        raise not_read("the body", _ONE)
    context, search = value.get("context") or {}, value.get("search")
    if search is not None and not (isinstance(search, str) and len(search) <= 32):
        raise not_read("search", "a text of at most 32 characters")
    predictions = unpacked(value["predictions"])
    if not isinstance(predictions, list | np.ndarray):
        raise not_read("predictions", "a list")
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


def _csv(data: bytes) -> tuple[list[str], list[Sequence[Any]]]:
    """Read a header and columns."""
    try:
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig")), strict=True))
    except (UnicodeDecodeError, csv.Error):
        lines = []
    lines = [line for line in lines if line]
    if len(lines) < 2 or len({len(line) for line in lines}) != 1:
        raise InvalidSubmission(
            "predictions",
            "CSV with a header, and a line for each row of the holdout",
            "in another form",
            "Submit one column, or one for each class.",
        )
    return lines[0], list(zip(*lines[1:], strict=True))


def _arrow(data: bytes) -> tuple[list[str], list[Sequence[Any]]]:
    with needed("A body in Arrow"):
        import pyarrow
    try:
        table = arrow_table(data, "A body in Arrow")
        return list(table.column_names), [one.to_pylist() for one in table.columns]
    except (pyarrow.ArrowException, ValueError, OSError):
        raise not_read("predictions", "an Arrow stream or file") from None


def _table(
    names: list[str], columns: list[Sequence[Any]], classes: NDArray[Any] | None
) -> NDArray[Any]:
    """Return columns as predictions: in the order of the classes, where they are named so."""
    known = [] if classes is None else [str(one) for one in classes]
    # Names such as "1" and "2" are texts in a ledger that holds texts, and numbers in others.
    texts = known if classes is not None and classes.dtype.kind in "UO" else []
    arrays = [_numbers_or_text(one, texts) for one in columns]
    if len(arrays) == 1:
        return arrays[0]
    if sorted(names) == sorted(known):
        arrays = [arrays[names.index(name)] for name in known]
    if any(one.dtype.kind not in "biuf" for one in arrays) or not arrays:
        raise not_read("predictions", "columns of numbers, where there are several")
    return np.column_stack(arrays)


def _numbers_or_text(cells: Sequence[Any], texts: list[str]) -> NDArray[Any]:
    """Return numbers where all cells are some; names of classes as they are."""
    if any(one is None for one in cells):
        raise not_read("predictions", "without missing values")
    try:
        numbers = np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        return np.asarray([str(one) for one in cells])
    named = isinstance(cells[0], str) and set(cells) <= set(texts)
    return np.asarray(cells, dtype=str) if named else numbers
