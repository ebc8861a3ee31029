"""A grid of time for answers, so that how long one took shows nothing of what it needed."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Scope]]
Send: TypeAlias = Callable[[Scope], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def due(begun: float, now: float, step: float) -> float:
    """Return the first moment after now that is a whole number of steps after another one.

    Examples
    --------
    >>> due(100.0, 100.003, 0.025), due(100.0, 100.026, 0.025)
    (100.025, 100.05)
    """
    return begun + step * (math.floor((now - begun) / step) + 1)


class OnGrid:
    """Sends each answer, whatever it is, at a multiple of some milliseconds after its request.

    That is after the last part of the request was here, so that its sender cannot choose where
    in the grid its work ends.

    Parameters
    ----------
    app : ASGIApp
    milliseconds : int
    """

    def __init__(self, app: ASGIApp, milliseconds: int) -> None:
        self._app, self._step, self._alarms = app, milliseconds / 1000, Alarms()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()

        async def received() -> Scope:
            nonlocal begun
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                begun = time.monotonic()
            return message

        async def sent(message: Scope) -> None:
            if message["type"] == "http.response.start":
                await self._alarms.at(due(begun, time.monotonic(), self._step))
            await send(message)

        await self._app(scope, received, sent)


class Alarms:
    """Wakes tasks of event loops at given moments, from one thread for all of them.

    A loop's own timer counts whole milliseconds from the moment at which it is set. It would end
    as much later as the work before it did.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._thread: threading.Thread | None = None

    async def at(self, moment: float) -> None:
        """Wait until a moment of `time.monotonic`; meanwhile the loop and its threads are free."""
        future = asyncio.get_running_loop().create_future()
        with self._changed:
            heapq.heappush(self._heap, (moment, next(self._count), future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._ring, name="answers", daemon=True)
                self._thread.start()
            self._changed.notify()
        await future

    def _ring(self) -> None:
        while True:
            with self._changed:
                while not self._heap or (rest := self._heap[0][0] - time.monotonic()) > 0:
                    self._changed.wait(rest if self._heap else None)
                _, _, future = heapq.heappop(self._heap)
            with suppress(RuntimeError):  # its loop was closed
                future.get_loop().call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():  # its task was cancelled
        future.set_result(None)
