"""What the API and the pages both ask for: models of small bodies, and what an owner does by them.

FastAPI reads a body before it knows who sent it, so the routes read bodies themselves, and describe
them here for OpenAPI.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ladderholdout.ledger import AccountRecord
from ladderholdout.remote.wire import ARROW, CONTEXT, CSV, JSON, KEY, NPY
from ladderholdout.server.accounts import (
    Issued,
    add_account,
    end_of,
    limit_account,
    revoke_token,
    rotate_token,
)
from ladderholdout.server.bodies import MOST_IN_A_BATCH

LONGEST_KEY = 200
"""Characters of an idempotency key."""


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
_ONE = {
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
_MANY = {
    "type": "object",
    "properties": {
        "submissions": {
            "type": "array",
            "items": _ONE,
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

    @property
    def end(self) -> datetime | None:
        """The end of the token's last day."""
        return None if self.expires is None else end_of(self.expires)


class Limited(AccountName):
    """How much an account may submit a day."""

    per_day: int | None = Field(None, description="a whole number, or none for any number of them")


class Added(Rotated, Limited):
    """An account that is added."""

    role: str = Field(description="analyst, reader or owner")
    budget: int | None = Field(None, description="a whole number, or none for that of the holdout")


class Withdrawal(Sent):
    """A submission that is withdrawn."""

    account: str | None = Field(None, description="the name of an account, or none")
    submission: int = Field(description="the number of a submission")
    reason: str = Field(description="a text")


class Confirmed(Sent):
    """The name of a holdout, to confirm what cannot be undone."""

    name: str = Field(description="the name of the holdout")


@dataclass(frozen=True, slots=True)
class Action:
    """What an owner does with an account: a body, and a function of a ledger's URL and a holdout.

    Attributes
    ----------
    described : str
        For OpenAPI.
    model : type
    does : callable
        Of the URL, the name of the holdout and the body.
    """

    described: str
    model: type[AccountName]
    does: Callable[[str, str, Any], Issued | AccountRecord]


ACTIONS = {
    "add": Action(
        'Add one: {"account", "role", "per_day", "budget", "expires"}; its token is shown once.',
        Added,
        lambda url, holdout, asked: add_account(
            url,
            holdout,
            asked.account,
            asked.role,
            per_day=asked.per_day,
            budget=asked.budget,
            expires=asked.end,
        ),
    ),
    "rotate": Action(
        'Give an account a new token, shown once: {"account", "expires"}.',
        Rotated,
        lambda url, holdout, asked: rotate_token(url, holdout, asked.account, expires=asked.end),
    ),
    "revoke": Action(
        'End the token of an account at once: {"account"}.',
        AccountName,
        lambda url, holdout, asked: revoke_token(url, holdout, asked.account),
    ),
    "limit": Action(
        'Change the submissions a day of an account: {"account", "per_day"}.',
        Limited,
        lambda url, holdout, asked: limit_account(url, holdout, asked.account, asked.per_day),
    ),
}
"""By their names in the addresses of the API and in the forms of the pages."""


def takes(
    *media: str, json: Mapping[str, Any] | None = None, model: type[Sent] | None = None
) -> dict[str, Any]:
    """Describe the body of a request for OpenAPI: what it has as JSON, and other forms."""
    schemas: dict[str, Any] = {one: {"schema": {}} for one in media}
    if model is not None:
        json = model.model_json_schema()
    if json is not None:
        schemas = {JSON: {"schema": json}} | schemas
    return {"requestBody": {"required": True, "content": schemas}}


_IDS = _parameter("query", "ids", "The column of a table that has the ids of the rows.")
A_SUBMISSION = takes(NPY, CSV, ARROW, json=_ONE) | {"parameters": [_NAME, _KEY, _CONTEXT, _IDS]}
A_BATCH = takes(json=_MANY)
