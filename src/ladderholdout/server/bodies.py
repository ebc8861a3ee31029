"""Predictions as they come in a request: JSON, .npy without objects, CSV, Arrow."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission, LadderHoldoutError
from ladderholdout.extras import needed
from ladderholdout.guard.context import jsonable
from ladderholdout.remote.wire import (
    ARROW,
    CSV,
    JSON,
    NPY,
    array_from,
    not_read,
    unpacked,
)
from ladderholdout.server.arrow import columns_in
from ladderholdout.server.space import Space

MOST_IN_A_BATCH = 1000
SEARCH = "a printable text of at most 32 characters"
MOST_OF_A_FORM = 2**16
"""Bytes of a form without a file."""
_MOST_FIELDS = 32
_MOST_DIGITS = 400  # more have no float of their own
_BLOCK = 128
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_NO_TEXT = re.compile(rb"\\u([dD][89a-fA-F]|0000)")

_ONE = 'an object {"predictions": [...], "context": {...}}'
_MANY = f'an object {{"submissions": [...]}} with 1 to {MOST_IN_A_BATCH} of {_ONE}'


@dataclass(frozen=True, slots=True)
class Asked:
    """One submission as it was asked for.

    Attributes
    ----------
    predictions : array-like
    notes : str
        The context, as JSON: all of a batch are here at once, and values take ten times as much.
    search : str or None
        Under what a search finds it again.
    """

    predictions: Any
    notes: str = "{}"
    search: str | None = None

    @property
    def context(self) -> dict[str, Any]:
        """What is noted in the history."""
        return dict(json.loads(self.notes))


def submission_in(
    data: bytes, media: str, classes: NDArray[Any] | None, context: str | None, space: Space
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
    space : Space
        What there may be in it.

    Raises
    ------
    InvalidArgument
        The body is in no known form.
    """
    if media in ("", JSON):
        space.check_json(data)
        return _asked(_json(data, _ONE), space)
    noted = {} if context is None else _object(_json(context.encode(), "an object"), "an object")
    if media == NPY:
        return Asked(space.check_array(array_from(data)), _notes(noted))
    if media == CSV:
        space.check_csv(data)
        return Asked(_table(*_csv(data), classes, space), _notes(noted))
    if media == ARROW:
        return Asked(_table(*columns_in(data, space), classes, space), _notes(noted))
    raise InvalidArgument("Content-Type", f"{JSON}, {NPY}, {CSV} or {ARROW}", "another one")


def batch_in(data: bytes, space: Space) -> tuple[Asked, ...]:
    """Read several submissions, all fixed before feedback on any of them."""
    space.check_batch(data, MOST_IN_A_BATCH)
    listed = _object(_json(data, _MANY, partial(_made_small, space)), _MANY).get("submissions")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_IN_A_BATCH:
        raise not_read("the body", _MANY)
    # By what rule a training run stopped is known where the run is, and not from afar.
    return tuple(_asked(one, space, without="stopping") for one in listed)


def _made_small(space: Space, found: dict[str, Any]) -> dict[str, Any]:
    """Bring one submission of a batch to few bytes, as soon as it is read."""
    predictions, context = found.get("predictions"), found.get("context")
    if isinstance(predictions, list) and len(predictions) == space.rows:
        found["predictions"] = space.check_list(predictions)
    if predictions is not None and isinstance(context, dict):
        found["context"] = _Notes(json.dumps(context))
    return found


class _Notes(str):
    """A context that was an object, as JSON."""


def object_in(data: bytes, **wanted: type) -> dict[str, Any]:
    """Read an object with these values, each of a type; what is left out is None."""
    allowed = f"an object with {', '.join(wanted)}"
    found = _object(_json(data, allowed), allowed)
    for name, value in found.items():
        if name not in wanted or not (value is None or type(value) is wanted[name]):
            raise InvalidArgument("the body", allowed, "in another form")
    return {name: found.get(name) for name in wanted}


def upload_in(
    data: bytes, classes: NDArray[Any] | None, context: Mapping[str, Any], space: Space
) -> Asked:
    """Read a file of predictions; what it is, is seen by how it begins.

    Parameters
    ----------
    data : bytes
        A .npy file without objects, an Arrow stream or file, or CSV with a header.
    classes : ndarray or None
        As for `submission_in`.
    context : mapping
        Notes for the history.
    space : Space
        As for `submission_in`.
    """
    media = NPY if data.startswith(b"\x93NUMPY") else CSV
    if data.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        media = ARROW
    return submission_in(data, media, classes, json.dumps(context), space)


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
    return Form(_texts(fields), file, file_name)


def _texts(fields: dict[str, str]) -> dict[str, str]:
    """Refuse what no ledger holds as a text."""
    if any("\0" in one for one in fields.values()):
        raise ValueError
    return fields


def _asked(value: Any, space: Space, without: str | None = None) -> Asked:
    value = _object(value, _ONE)
    unknown = value.keys() - {"predictions", "context", "search"}
    if "predictions" not in value or unknown:
        raise not_read("the body", _ONE)
    context, search = value.get("context") or {}, value.get("search")
    if search is not None and not (isinstance(search, str) and is_search(search)):
        raise not_read("search", SEARCH)
    predictions = value["predictions"]
    if isinstance(predictions, Mapping):
        predictions = space.check_array(unpacked(space.check_packed(predictions)))
    elif isinstance(predictions, list):
        predictions = space.check_list(predictions)
    elif not isinstance(predictions, np.ndarray):
        raise not_read("predictions", "a list")
    if isinstance(context, _Notes):
        context = json.loads(context)
    return Asked(predictions, _notes(_object(context, "an object"), without), search)


def is_search(text: str) -> bool:
    """Return whether a text can be what a search finds its submissions by."""
    return len(text) <= 32 and text.isprintable()


def _notes(context: Mapping[str, Any], without: str | None = None) -> str:
    noted = jsonable(context)
    return json.dumps({name: value for name, value in noted.items() if name != without})


def _object(value: Any, allowed: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise not_read("the body", allowed)
    return value


def _json(data: bytes, allowed: str, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    try:
        whole = _whole if _has_long_values(data) else None
        found = json.loads(data.decode("utf-8-sig"), object_hook=hook, parse_int=whole)
        # What no ledger holds: half a character, and the end of a text within it.
        if _NO_TEXT.search(data):
            text = json.dumps(found, ensure_ascii=False, default=lambda array: None)
            if _ZERO.search(text) or not text.encode():
                raise ValueError
        return found
    except LadderHoldoutError:
        raise
    except (ValueError, RecursionError):
        raise not_read("the body", f"JSON, {allowed}") from None


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


def _csv(data: bytes) -> tuple[list[str], list[Sequence[Any]]]:
    """Read a header and columns."""
    try:
        # A StringIO takes four bytes for each character.
        text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")
        lines = list(csv.reader(text, strict=True))
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


def _table(
    names: list[str], columns: list[Sequence[Any]], classes: NDArray[Any] | None, space: Space
) -> NDArray[Any]:
    """Return columns as predictions: in the order of the classes, where they are named so."""
    known = [] if classes is None else [str(one) for one in classes]
    # Names such as "1" and "2" are texts in a ledger that holds texts, and numbers in others.
    texts = known if classes is not None and classes.dtype.kind in "UO" else []
    arrays = [_numbers_or_text(one, texts, space) for one in columns]
    if len(arrays) == 1:
        return arrays[0]
    if sorted(names) == sorted(known):
        arrays = [arrays[names.index(name)] for name in known]
    if any(one.dtype.kind not in "biuf" for one in arrays) or not arrays:
        raise not_read("predictions", "columns of numbers, where there are several")
    return np.column_stack(arrays)


def _numbers_or_text(cells: Sequence[Any], texts: list[str], space: Space) -> NDArray[Any]:
    """Return numbers where all cells are some; names of classes as they are."""
    if any(one is None for one in cells):
        raise not_read("predictions", "without missing values")
    try:
        numbers = np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        return np.asarray([space.cut(str(one)) for one in cells])
    named = isinstance(cells[0], str) and set(cells) <= set(texts)
    return np.asarray(cells, dtype=str) if named else numbers
