"""What all routes share: they read bodies with limits, and answer errors as problems."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from ladderholdout.errors import (
    AccessDenied,
    DailyLimit,
    HoldoutConflict,
    InvalidArgument,
    LadderHoldoutError,
    LedgerBusy,
    LedgerError,
    LedgerUnreachable,
    MissingExtra,
    UnknownHoldout,
)
from ladderholdout.extras import needed
from ladderholdout.remote.wire import PROBLEM, problem_of

with needed("The server", extra="server"):
    from fastapi import HTTPException, Request

LOG = logging.getLogger("ladderholdout.server")
MEGABYTE = 2**20
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of every answer that does not state its own ones."""

_SLOW = 60.0  # seconds that a request may pause while it is being sent
_STATUS: tuple[tuple[type[LadderHoldoutError], int], ...] = (
    (AccessDenied, 401),
    (DailyLimit, 429),
    (InvalidArgument, 422),
    (UnknownHoldout, 404),
    (HoldoutConflict, 409),
    (MissingExtra, 415),
    (LedgerBusy, 503),
    (LedgerUnreachable, 503),
)


_PROBLEM = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}},
    "required": ["title", "status"],
}
_MEANINGS = {
    401: "There is no valid token.",
    404: "It is not there, or not for this token.",
    409: "The state of the holdout does not allow it.",
    415: "The server cannot read or write this form.",
    422: "What was sent is refused, and the problem names it.",
    429: "A limit is reached; Retry-After has the seconds.",
    500: "The server failed; its log has the details.",
    503: "The server cannot read or write its record now.",
}
_OF_BODIES = {408: "The request was not sent to its end.", 413: "The request is too large."}


def responses_of(method: str) -> dict[int | str, dict[str, Any]]:
    """Describe for OpenAPI each status that an operation may be refused with."""
    meanings = _MEANINGS | (_OF_BODIES if method == "POST" else {})
    content = {PROBLEM: {"schema": _PROBLEM}}
    return {status: {"description": said, "content": content} for status, said in meanings.items()}


@dataclass(frozen=True, slots=True)
class Body:
    """What a request sent: its bytes, and what they are."""

    data: bytes
    media: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as it is answered: problem details, and headers."""

    problem: dict[str, Any]
    headers: dict[str, str]

    @property
    def status(self) -> int:
        """The status of the answer."""
        return int(self.problem["status"])


def stated_size(request: Request, unstated: int) -> float:
    """Return how many bytes a request states to have; infinity where that is no number."""
    stated = request.headers.get("content-length", str(unstated))
    return int(stated) if re.fullmatch(r"[0-9]{1,18}", stated) else math.inf


async def read_body(request: Request, most: int, largest: int | None = None) -> Body:
    """Read a body that is not too long, from a client that goes on sending it.

    Parameters
    ----------
    request : Request
    most : int
        Bytes that it may have here.
    largest : int, optional
        Bytes that any request may have. Where `most` is less, up to so many are received and
        dropped: a client that still sends reads no answer.
    """
    too_large = HTTPException(413, f"Such a request may have {most / MEGABYTE:.3g} megabytes.")
    stated = stated_size(request, 0)
    if stated > max(most, largest or 0):
        raise too_large
    parts, size = [], 0
    async for part in _parts_of(request):
        size += len(part)
        if size > max(most, largest or 0):
            raise too_large
        if max(size, stated) <= most:
            parts.append(part)
        else:
            parts.clear()
    if size > most:
        raise too_large
    request.state.read = size
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Body(b"".join(parts), media)


async def _parts_of(request: Request) -> AsyncIterator[bytes]:
    """Yield the parts of a body; end the request of a client that pauses for long."""
    stream = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(_SLOW):
                part = await anext(stream, None)
        except TimeoutError:
            raise HTTPException(408, "The request was not sent to its end.") from None
        if part is None:
            return
        yield part


def not_found() -> Refusal:
    """Return the one answer for what is not there, or not for this account."""
    return refused(UnknownHoldout("There is nothing here for this token."))


def of_forms(error: LadderHoldoutError) -> LadderHoldoutError:
    """Name an argument as bodies and forms do, where the error names an option of a command."""
    if not isinstance(error, InvalidArgument):
        return error
    option, *parts = error.args
    if option == "NAME":
        return InvalidArgument("account", *parts)
    if option.startswith("--"):
        return InvalidArgument(option.removeprefix("--").replace("-", "_"), *parts)
    return error


def refused(error: LadderHoldoutError, *, whole: bool = False) -> Refusal:
    """Return the answer for an error of the library.

    Parameters
    ----------
    error : LadderHoldoutError
    whole : bool
        Whether what is of this machine alone, such as the names of its files, is for the reader.
    """
    error = of_forms(error)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, DailyLimit):
        headers["Retry-After"] = str(int(86400 - time.time() % 86400) + 1)
    if status == 503 and not whole:
        # Its text may name files of this machine, which its owner reads in the log.
        LOG.error(json.dumps({"error": type(error).__name__, "text": str(error)}))
        kind = LedgerBusy if isinstance(error, LedgerBusy) else LedgerError
        error = kind("The server cannot read or write its record now. Its log has the reason.")
        headers["Retry-After"] = "1"
    return Refusal(problem_of(error, status), headers)


def refused_by_http(error: HTTPException) -> Refusal:
    """Return the answer for what the framework refused."""
    if error.status_code == 404:
        return not_found()
    headers = {"Connection": "close"} if error.status_code in (408, 413) else {}
    headers |= error.headers or {}
    return Refusal({"title": str(error.detail), "status": error.status_code}, headers)
