"""How operations are asked for over HTTP: their places, who may ask, and the bodies they take.

`View` (views.py) has the operations themselves, and enters each of them here once. The API with its
OpenAPI description and the forms of the pages are made from `OPERATIONS`.

FastAPI reads a body before it knows who sent it, so the routes read bodies themselves, and
describe them here for OpenAPI.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ladderholdout.errors import HoldoutConflict
from ladderholdout.guard import STATED_BY, TRAINING_ROWS, SeenRows
from ladderholdout.ledger.fold import Overlap
from ladderholdout.remote.wire import ARROW, BLOCK, CONTEXT, CSV, JSON, KEY, NPY
from ladderholdout.server.bodies import MOST_IN_A_BATCH

ANALYST, OWNER = frozenset({"analyst"}), frozenset({"owner"})
SUBMITTING = ANALYST | {"host"}
ANYONE = SUBMITTING | OWNER | {"reader"}

LONGEST_KEY = 200
"""Characters of an idempotency key."""

F = TypeVar("F", bound=Callable[..., Any])


def _parameter(place: str, name: str, described: str, **schema: Any) -> dict[str, Any]:
    """Describe a parameter for OpenAPI."""
    shape = {"type": "string", **schema}
    return {
        "in": place,
        "name": name,
        "description": described,
        "required": place == "path",
        "schema": shape,
    }


_NAME = _parameter("path", "name", "Of the holdout.")
_KEY = _parameter("header", KEY, "Makes a retry a repeat.", maxLength=LONGEST_KEY)
_CONTEXT = _parameter("header", CONTEXT, "Notes for the history, as JSON.")
_BLOCK = _parameter(
    "header", BLOCK, "Of the rows that are meant; refused where fresh ones took their place."
)


_PREDICTIONS = {
    "description": "One for each row of the holdout, in the order of the first registration, or "
    "in that of `ids`.",
    "anyOf": [
        {"type": "array", "items": {}},
        {
            "type": "object",
            "properties": {"npy": {"type": "string", "contentEncoding": "base64"}},
            "required": ["npy"],
        },
    ],
}
_SUBMISSION = {
    "type": "object",
    "properties": {
        "predictions": _PREDICTIONS,
        "ids": {
            "description": "Of the rows, where they were registered with ids.",
            "type": "array",
            "items": {"type": ["number", "string"]},
        },
        "context": {"type": "object"},
        "search": {"type": "string", "maxLength": 32},
    },
    "required": ["predictions"],
    "additionalProperties": False,
}
_BATCH = {
    "type": "object",
    "properties": {
        "submissions": {
            "type": "array",
            "items": _SUBMISSION,
            "minItems": 1,
            "maxItems": MOST_IN_A_BATCH,
        }
    },
    "required": ["submissions"],
}


class Sent(BaseModel):
    """A small object as it is sent; an error states the description of a value as allowed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class FoundRows(Sent):
    """How many rows of the holdout are among somebody's training rows."""

    rows: int = Field(description="a whole number, at least 1", json_schema_extra={"minimum": 1})


class Sign(Sent):
    """What showed that rows come in groups."""

    by: str = Field(
        description="a text of 1 to 100 characters",
        json_schema_extra={"minLength": 1, "maxLength": 100},
    )


class AccountName(Sent):
    """An account."""

    account: str = Field(description="the name of an account")


class Rotated(AccountName):
    """An account that is given a new token."""

    expires: str | None = Field(None, description="the last day of the token, as 2026-12-31")


class Limited(AccountName):
    """How much an account may submit a day."""

    per_day: int | None = Field(None, description="a whole number, or none for any number of them")


class Added(Rotated, Limited):
    """An account that is added."""

    role: str = Field(description="analyst, program, host, reader or owner")
    budget: int | None = Field(None, description="a whole number, or none for that of the holdout")
    show: str | None = Field(None, description="scores or improvements, or none for the holdout's")


class Withdrawal(Sent):
    """A submission that is withdrawn."""

    account: str | None = Field(None, description="the name of an account, or none")
    submission: int = Field(description="the number of a submission")
    reason: str = Field(description="a text")


class Confirmed(Sent):
    """The name of a holdout, to confirm what cannot be undone."""

    name: str = Field(description="the name of the holdout")


class HeldFinals(Confirmed):
    """Finals that are held."""

    best: int | None = Field(None, description="a whole number, or none for all accounts")
    entries: dict[str, int | list[int] | None] | None = Field(
        None, description="by account numbers of submissions, or none"
    )
    again: bool = Field(False, description="true or false")


def takes(
    *media: str, json: Mapping[str, Any] | None = None, model: type[Sent] | None = None
) -> dict[str, Any]:
    """Describe the body of a request for OpenAPI: what it has as JSON, and other forms."""
    schemas: dict[str, Any] = {form: {"schema": {}} for form in media}
    if model is not None:
        json = model.model_json_schema()
    if json is not None:
        schemas = {JSON: {"schema": json}} | schemas
    return {"requestBody": {"required": True, "content": schemas}}


_IDS = _parameter("query", "ids", "The column of a table that has the ids of the rows.")
_QUERY = takes(NPY, CSV, ARROW, json=_SUBMISSION)
_ACCOUNT = _parameter("query", "account", "For hosts: for whom it is submitted.")
A_SUBMISSION = _QUERY | {"parameters": [_NAME, _KEY, _CONTEXT, _BLOCK, _IDS, _ACCOUNT]}
_MARGIN = _parameter(
    "query", "margin", "The gain that is tested for; by default that of the ladder.", type="number"
)
_BASELINE = _parameter(
    "query", "baseline", "Accept the ladder's first submission as the baseline.", type="boolean"
)
A_CANDIDATE = _QUERY | {"parameters": [_NAME, _KEY, _CONTEXT, _BLOCK, _IDS, _MARGIN, _BASELINE]}
A_BATCH = takes(json=_BATCH)
_MODEL = {
    "description": "The number of a submission whose predictions are kept, or predictions.",
    "anyOf": [{"type": "integer", "minimum": 1}, _SUBMISSION],
}
COMPARED = takes(
    json={
        "type": "object",
        "properties": {"first": _MODEL, "second": _MODEL},
        "required": ["first", "second"],
        "additionalProperties": False,
    }
)
HASHES = takes(NPY)


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of `View` as it is asked for over HTTP.

    Attributes
    ----------
    name : str
        By which the API and the pages know it.
    method, path : str
        The path follows the address of a holdout.
    tag : str
        Under which OpenAPI lists it.
    roles : frozenset of str
        Accounts of other roles are answered as if there was no such holdout.
    does : callable
        The method of `View`; it takes the fields of the body as keyword arguments.
    model : type or None
        The body, where that is a small object.
    setting : str or None
        The setting of the server that has to allow it (`ServerSettings.allows`).
    any_ladder : bool
        Whether readers and owners may name the account whose ladder is meant.
    openapi : mapping
        What OpenAPI cannot see in the signature of the route.
    """

    name: str
    method: str
    path: str
    tag: str
    roles: frozenset[str]
    does: Callable[..., Any]
    model: type[Sent] | None = None
    setting: str | None = None
    any_ladder: bool = False
    openapi: Mapping[str, Any] = field(default_factory=dict)

    @property
    def described(self) -> str:
        """What it does, for OpenAPI."""
        return inspect.getdoc(self.does) or ""


OPERATIONS: dict[str, Operation] = {}
"""All operations on a holdout by their names, as `View` enters them."""


def operation(
    method: str,
    path: str,
    tag: str,
    roles: frozenset[str],
    *,
    name: str | None = None,
    model: type[Sent] | None = None,
    openapi: Mapping[str, Any] | None = None,
    **more: Any,
) -> Callable[[F], F]:
    """Enter a method of `View` into `OPERATIONS`; the arguments are the attributes of one.

    The name is that of the method, if none is stated.
    """
    if openapi is None:
        openapi = {} if model is None else takes(model=model)

    def enter(does: F) -> F:
        known = name or does.__name__
        OPERATIONS[known] = Operation(
            known, method, path, tag, roles, does, model, openapi=openapi, **more
        )
        return does

    return enter


MOST_SIGNS = 5


def training_note(holder: str, rows: int) -> SeenRows:
    """Return an account's note that rows of the holdout are among its training rows."""
    return SeenRows(signed(TRAINING_ROWS, holder, ()), rows)


def of_training(overlaps: Sequence[Overlap], reader: str | None) -> tuple[Overlap, ...]:
    """Return what was noted of training rows; an analyst sees no note of another one."""
    own = training_note(reader or "", 0).source
    known = (seen for seen in overlaps if seen.source.startswith(TRAINING_ROWS))
    return tuple(seen for seen in known if reader is None or seen.source in (TRAINING_ROWS, own))


def signed(by: str, holder: str, known: Sequence[str]) -> str:
    """Return a note as its account's; refuse one more than an account may leave."""
    stated = STATED_BY + holder
    if by + stated not in known and sum(one.endswith(stated) for one in known) >= MOST_SIGNS:
        raise HoldoutConflict(
            f"This account has {MOST_SIGNS} notes of groups on record, and no more are taken. "
            "Write to the owner what else shows groups."
        )
    return by + stated
