"""What all routes share: they read bodies with limits, and answer errors as problems.

A refusal is not recorded, so the limits of submissions do not count it, and it costs the server
time. So bodies that somebody sends in vain have a limit of their own: beyond it, the next one is
not read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ladderholdout import errors, extras
from ladderholdout.errors import InvalidArgument, LadderHoldoutError
from ladderholdout.remote.wire import problem_of
from ladderholdout.server import bodies, views

with extras.needed("The server", extra="server"):
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
    (errors.AccessDenied, 401),
    (errors.DailyLimit, 429),
    (InvalidArgument, 422),
    (errors.UnknownHoldout, 404),
    (errors.HoldoutConflict, 409),
    (errors.MissingExtra, 415),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as it is answered: problem details, and headers."""

    problem: dict[str, Any]
    headers: dict[str, str]

    @property
    def status(self) -> int:
        """The status of the answer."""
        return int(self.problem["status"])


async def read_body(request: Request, here: int, most: int) -> bodies.Sent:
    """Read a body that is not too long, from a client that goes on sending it.

    Parameters
    ----------
    request : Request
    here : int
        Bytes that it may have here.
    most : int
        Bytes that any request may have. If `here` is less, up to so many are received and
        dropped: a client that still sends reads no answer.
    """
    here = min(here, most)
    too_large = HTTPException(413, f"Such a request may have {here / MEGABYTE:.3g} megabytes.")
    size_stated = request.headers.get("content-length", "0")
    stated = int(size_stated) if re.fullmatch(r"[0-9]{1,18}", size_stated) else math.inf
    if stated > most:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(_SLOW) as pause:
            async for part in request.stream():
                pause.reschedule(asyncio.get_running_loop().time() + _SLOW)
                size += len(part)
                if size > most:
                    raise too_large
                if max(size, stated) <= here:
                    parts.append(part)
                else:
                    parts.clear()
    except TimeoutError:
        raise HTTPException(408, "The request was not sent to its end.") from None
    if size > here:
        raise too_large
    request.state.read = size
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = {name: text for name, text in request.query_params.items() if name != "account"}
    return bodies.Sent(b"".join(parts), media, query)


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


def refused(error: Any, *, whole: bool = False) -> Refusal:
    """Return the answer for an error.

    What is not there, and what is not for this account, have one answer.

    Parameters
    ----------
    error : LadderHoldoutError, NotThere or HTTPException
    whole : bool
        Whether what is of this machine alone, such as the names of its files, is for the reader.
    """
    if isinstance(error, views.NotThere) or getattr(error, "status_code", None) == 404:
        error = errors.UnknownHoldout("There is nothing here for this token.")
    if not isinstance(error, LadderHoldoutError):  # of HTTP: the framework raised it, or a route
        closing = {"Connection": "close"} if error.status_code in (408, 413) else {}
        problem = {"title": str(error.detail), "status": error.status_code}
        return Refusal(problem, closing | dict(error.headers or {}))
    error = of_forms(error)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.DailyLimit):
        headers["Retry-After"] = str(int(86400 - time.time() % 86400) + 1)
    if status == 503 and not whole:
        # Its text may name files of this machine, which its owner reads in the log.
        LOG.error({"error": type(error).__name__, "text": str(error)})
        kind = errors.LedgerBusy if isinstance(error, errors.LedgerBusy) else errors.LedgerError
        error = kind("The server cannot read or write its record now. Its log has the reason.")
        headers["Retry-After"] = "1"
    return Refusal(problem_of(error, status), headers)


# -- bodies that are sent in vain ------------------------------------------------------------

COUNTED = (400, 408, 413, 415, 422)
"""The statuses of answers to bodies that were not taken."""

_SPAN = 60  # seconds


class Refusals:
    """Counts what was refused in this minute: a point for each body, and one for each megabyte.

    Each process of a server counts by itself.

    Parameters
    ----------
    most : int or None
        Points of an account, or of an address without one, in a minute; None for any number.
    """

    def __init__(self, most: int | None) -> None:
        self._most, self._minute = most, 0
        self._points: Counter[str] = Counter()
        self._lock = threading.Lock()

    def check(self, request: Request) -> None:
        """Refuse to read a body of somebody who sent too many in vain.

        Raises
        ------
        HTTPException
            With 429, and the seconds to wait.
        """
        if self._most is None or request.method != "POST":
            return
        with self._lock:
            self._begin()
            points = self._points[_sender(request)]
        if points >= self._most:
            raise HTTPException(
                429,
                f"Too many requests were refused: {self._most} a minute may be, of small ones. "
                "Wait for the next minute, and correct what the refusals name.",
                {"Retry-After": str(_SPAN - int(time.time()) % _SPAN)},
            )

    def note(self, request: Request, status: int) -> None:
        """Count an answer, where it refuses a body."""
        if self._most is None or request.method != "POST" or status not in COUNTED:
            return
        with self._lock:
            self._begin()
            self._points[_sender(request)] += 1 + getattr(request.state, "read", 0) // MEGABYTE

    def _begin(self) -> None:
        minute = int(time.time()) // _SPAN
        if minute != self._minute:
            self._minute = minute
            self._points.clear()


def _sender(request: Request) -> str:
    """Name the account of a request, or the address where it has no account."""
    account = getattr(request.state, "account", None)
    if account is not None:
        return f"account {account.name} of {account.holdout_id}"
    return f"address {'' if request.client is None else request.client.host}"
