"""A limit on the bodies that somebody sends in vain: beyond it, the next one is not read.

A refusal is not recorded, so the limits of submissions do not count it, and it costs the server
time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from ladderholdout.extras import needed
from ladderholdout.server.answers import MEGABYTE

with needed("The server", extra="server"):
    from fastapi import HTTPException, Request

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
