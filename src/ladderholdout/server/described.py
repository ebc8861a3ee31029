"""OpenAPI: the commands as their schemas describe them."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import metadata
from typing import Any

from ladderholdout.guard import commands
from ladderholdout.remote.wire import ARROW, BLOCK, CSV, JSON, NPY, PROBLEM, ROWS

SUMMARY = "Submit predictions for holdouts whose labels stay on this machine."
_MEANINGS = {
    401: "There is no valid token.",
    404: "It is not there, or not for this token.",
    408: "The request was not sent to its end.",
    409: "The state of the holdout does not allow it.",
    413: "The request is too large.",
    415: "The server cannot read or write this form.",
    422: "What was sent is refused, and the problem names it.",
    429: "A limit is reached; Retry-After has the seconds.",
    500: "The server failed; its log has the details.",
    503: "The server cannot read or write its record now.",
}
_PROBLEM = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}},
    "required": ["title", "status"],
}
_REFUSED = {
    str(status): {"description": said, "content": {PROBLEM: {"schema": _PROBLEM}}}
    for status, said in _MEANINGS.items()
}
_PLACES = "#/components/schemas/{model}"


@cache
def openapi() -> dict[str, Any]:
    """Describe the API."""
    known = commands.COMMANDS
    asked: Any = [(kind, "validation", commands.adapter(kind)) for kind in known.values()]
    told: Any = [
        (kind, "serialization", commands.adapter(kind.answer))
        for kind in known.values()
        if kind.answer is not bytes
    ]
    schemas, shared = commands.schemas_of([*asked, *told], _PLACES)
    paths = {
        f"/v1/holdouts/{{name}}/{word}": {"post": _operation(word, kind, schemas)}
        for word, kind in known.items()
    }
    listed = _answered("The holdouts of the token.", {JSON: {"schema": {"type": "object"}}})
    health = {"200": {"description": "The server runs."}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ladderholdout",
            "version": metadata.version("ladderholdout"),
            "summary": SUMMARY,
        },
        "paths": {
            "/healthz": {"get": {"summary": "Health", "tags": ["server"], "responses": health}},
            "/v1/holdouts": {
                "get": {"summary": "List the holdouts of the token.", "responses": listed}
            },
            **paths,
        },
        "components": {"schemas": shared.get("$defs", {})},
    }


def _operation(word: str, kind: type[commands.Command[Any]], schemas: Any) -> dict[str, Any]:
    content = {JSON: {"schema": schemas[kind, "validation"]}}
    parameters = [
        _parameter("path", "name", "Of the holdout."),
        _parameter("header", BLOCK, "Of the rows that are meant; others are refused."),
        _parameter("query", "account", "Whose ladder; for hosts, readers and owners."),
    ]
    if "predictions" in (names := commands.names_of(kind)):
        # A table or an array is the predictions, and the other fields are in the address.
        content |= {form: {"schema": {}} for form in (NPY, CSV, ARROW)}
        parameters += [_parameter("query", name, "As in JSON.") for name in names[1:]]
    answer: dict[str, Any] = {form: {"schema": {}} for form in (ROWS, ARROW, NPY)}
    if kind.answer is not bytes:
        answer = {JSON: {"schema": schemas[kind, "serialization"]}}
    return {
        "summary": word,
        "description": inspect.getdoc(kind),
        "operationId": word,
        "tags": ["commands"],
        "parameters": parameters,
        "requestBody": {"content": content},
        "responses": _answered("What was asked for.", answer),
        "x-roles": sorted(kind.roles),
        "x-setting": kind.setting,
    }


def _answered(said: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": said, "content": content}} | _REFUSED


def _parameter(place: str, name: str, said: str) -> dict[str, Any]:
    shape = {"in": place, "name": name, "description": said, "schema": {"type": "string"}}
    return shape | {"required": place == "path"}
