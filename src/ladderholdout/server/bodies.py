"""Predictions as they come in a request: JSON, .npy without objects, CSV, Arrow."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import numpy as np
from pydantic import BaseModel, ValidationError

from ladderholdout.errors import InvalidArgument, LadderHoldoutError
from ladderholdout.extras import needed
from ladderholdout.guard import NamedPredictions, jsonable
from ladderholdout.remote.predictions import Form as Wanted
from ladderholdout.remote.predictions import check_lengths, predictions_in
from ladderholdout.remote.tables import read_csv
from ladderholdout.remote.wire import (
    ARROW,
    CSV,
    JSON,
    NPY,
    array_from,
    not_read,
    unpacked,
)
from ladderholdout.server.arrow import table_in
from ladderholdout.server.space import Space

MOST_IN_A_BATCH = 1000
SEARCH = "a printable text of at most 32 characters"
MOST_OF_A_FORM = 2**16
"""How many bytes a form without a file may have."""
_MOST_FIELDS = 32
_MOST_DIGITS = 400  # more have no float of their own
_BLOCK = 128
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_NO_TEXT = re.compile(rb"\\u([dD][89a-fA-F]|0000)")

M = TypeVar("M", bound=BaseModel)

_SUBMISSION = 'an object {"predictions": [...], "ids": [...], "context": {...}}'
_COMPARED = f'an object {{"first": ..., "second": ...}}, each a number or {_SUBMISSION}'
_BATCH = f'an object {{"submissions": [...]}} with 1 to {MOST_IN_A_BATCH} of {_SUBMISSION}'


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
    margin : float or None
        The gain that a gate tests for; None for that of the ladder.
    """

    predictions: Any
    notes: str = "{}"
    search: str | None = None
    margin: float | None = None
    baseline: bool = False

    @property
    def context(self) -> dict[str, Any]:
        """What is noted in the history."""
        return dict(json.loads(self.notes))


def submission_in(
    data: bytes,
    media: str,
    wanted: Callable[[], Wanted],
    context: str | None,
    space: Space,
    ids: str | None = None,
) -> Asked:
    """Read one submission.

    Parameters
    ----------
    data : bytes
    media : str
        The media type, without its parameters.
    wanted : callable
        Return what predictions have to be for the ladder; it is asked for the sake of tables alone.
    context : str or None
        JSON from a header, for bodies that hold predictions alone.
    space : Space
        How much the body may hold.
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
        space.check_json(data)
        return _asked(_json(data, _SUBMISSION), space)
    noted = {} if context is None else _object(_json(context.encode(), "an object"), "an object")
    if media == NPY:
        return Asked(space.check_array(array_from(data)), _notes(noted))
    if media == CSV:
        space.check_csv(data)
        table = read_csv(data, "predictions").table
        return Asked(predictions_in(table, wanted(), ids), _notes(noted))
    if media == ARROW:
        return Asked(predictions_in(table_in(data, space), wanted(), ids), _notes(noted))
    raise InvalidArgument("Content-Type", f"{JSON}, {NPY}, {CSV} or {ARROW}", "another one")


def batch_in(data: bytes, space: Space) -> tuple[Asked, ...]:
    """Read several submissions, all fixed before feedback on any of them."""
    space.check_batch(data, MOST_IN_A_BATCH)
    listed = _object(_json(data, _BATCH, partial(_made_small, space)), _BATCH).get("submissions")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_IN_A_BATCH:
        raise not_read("the body", _BATCH)
    # By what rule a training run stopped is known where the run is, and not from afar.
    return tuple(_asked(submission, space, without="stopping") for submission in listed)


def comparison_in(data: bytes, space: Space) -> tuple[Any, Any]:
    """Read what is to be compared: numbers of submissions, or predictions."""
    space.check_batch(data, 2)
    body = _object(_json(data, _COMPARED, partial(_made_small, space)), _COMPARED)
    if body.keys() != {"first", "second"}:
        raise not_read("the body", _COMPARED)
    return _model(body["first"], space), _model(body["second"], space)


def _model(value: Any, space: Space) -> Any:
    """Return one side of a comparison."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _asked(value, space).predictions


def _made_small(space: Space, submission: dict[str, Any]) -> dict[str, Any]:
    """Bring one submission of a batch to few bytes, as soon as it is read."""
    predictions, context = submission.get("predictions"), submission.get("context")
    if isinstance(predictions, list) and len(predictions) == space.rows:
        submission["predictions"] = space.check_list(predictions)
    if predictions is not None and isinstance(context, dict):
        submission["context"] = _Notes(json.dumps(context))
    return submission


class _Notes(str):
    """A context that was an object, as JSON."""


def object_in(data: bytes, model: type[M]) -> M:
    """Read a small object by its model."""
    allowed = f"an object with {', '.join(model.model_fields)}"
    return checked(model, _object(_json(data, allowed), allowed), strict=True)


def checked(model: type[M], stated: Mapping[str, Any], *, strict: bool) -> M:
    """Check values by a model; an error names the one that is none, and shows nothing of it.

    Parameters
    ----------
    model : type
    stated : mapping
    strict : bool
        Whether a text is refused where a number is wanted; in a form all are texts.

    Raises
    ------
    InvalidArgument
        A value is missing, or none that it may be.
    """
    try:
        return model.model_validate(stated, strict=strict)
    except ValidationError as fault:
        name = str(fault.errors()[0]["loc"][0])
    if name in model.model_fields:
        raise InvalidArgument(name, str(model.model_fields[name].description), "another")
    raise InvalidArgument("the body", f"an object with {', '.join(model.model_fields)}", "another")


def upload_in(
    data: bytes,
    wanted: Callable[[], Wanted],
    context: Mapping[str, Any],
    space: Space,
    ids: str | None = None,
) -> Asked:
    """Read a file of predictions, whose first bytes show what it is.

    Parameters
    ----------
    data : bytes
        A .npy file without objects, an Arrow stream or file, or CSV with a header.
    wanted, ids
        As for `submission_in`.
    context : mapping
        Notes for the history.
    space : Space
        As for `submission_in`.
    """
    media = NPY if data.startswith(b"\x93NUMPY") else CSV
    if data.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        media = ARROW
    return submission_in(data, media, wanted, json.dumps(context), space, ids)


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

    def note(part: int, text: bytes) -> None:
        header[part] += text

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
    if any("\0" in text for text in fields.values()):
        raise ValueError
    return fields


def margin_in(text: str | None) -> float | None:
    """Read the margin of a decision from the address of a request."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument("margin", "a number", "another text") from None


def baseline_in(text: str | None) -> bool:
    """Read from the address of a request whether it may be a baseline."""
    if text not in (None, "true", "false"):
        raise InvalidArgument("baseline", "true or false", "another text")
    return text == "true"


def _asked(value: Any, space: Space, without: str = "") -> Asked:
    value = _object(value, _SUBMISSION)
    unknown = value.keys() - {"predictions", "context", "search", "ids"}
    if "predictions" not in value or unknown:
        raise not_read("the body", _SUBMISSION)
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
    if (ids := value.get("ids")) is not None:
        if not isinstance(ids, list) or len(ids) != len(predictions):
            raise not_read("ids", "a list with one for each prediction")
        check_lengths(ids)
        predictions = NamedPredictions(predictions, ids)
    if isinstance(context, _Notes):
        context = json.loads(context)
    return Asked(predictions, _notes(_object(context, "an object"), without), search)


def is_search(text: str) -> bool:
    """Return whether a text can be what a search finds its submissions by."""
    return len(text) <= 32 and text.isprintable()


def _notes(context: Mapping[str, Any], without: str = "") -> str:
    notes = jsonable(context)
    notes.pop(without, None)
    return json.dumps(notes)


def _object(value: Any, allowed: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise not_read("the body", allowed)
    return value


def _json(data: bytes, allowed: str, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    try:
        whole = _whole if _has_long_values(data) else None
        value = json.loads(data.decode("utf-8-sig"), object_hook=hook, parse_int=whole)
        # What no ledger holds: half a character, and the end of a text within it.
        if _NO_TEXT.search(data):
            text = json.dumps(value, ensure_ascii=False, default=lambda array: None)
            if _ZERO.search(text) or not text.encode():
                raise ValueError
        return value
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
