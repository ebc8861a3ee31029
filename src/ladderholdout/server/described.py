"""What FastAPI cannot read off a function: bodies of several forms, as OpenAPI describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ladderholdout.remote.wire import ARROW, CONTEXT, CSV, JSON, KEY, NPY
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
    "description": "One for each row of the holdout, in the registered order.",
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
_COUNT = {
    "type": "object",
    "properties": {"rows": {"type": "integer", "minimum": 1}},
    "required": ["rows"],
}


_SIGN = {
    "type": "object",
    "properties": {"by": {"type": "string", "minLength": 1, "maxLength": 100}},
    "required": ["by"],
}


def takes(*media: str, json: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Describe the body of a request for OpenAPI: what it has as JSON, and other forms."""
    schemas: dict[str, Any] = {one: {"schema": {}} for one in media}
    if json is not None:
        schemas = {JSON: {"schema": json}} | schemas
    return {"requestBody": {"required": True, "content": schemas}}


A_SUBMISSION = takes(NPY, CSV, ARROW, json=_ONE) | {"parameters": [_NAME, _KEY, _CONTEXT]}
A_BATCH = takes(json=_MANY)
A_COUNT = takes(json=_COUNT)
A_SIGN = takes(json=_SIGN)
A_FORM = takes(json={"type": "object"})
