"""Connections of the server: how much a request may state before anything reads it."""

from __future__ import annotations

import json
import socket
from http import HTTPStatus
from typing import Any

from ladderholdout.extras import needed
from ladderholdout.remote.wire import PROBLEM
from ladderholdout.server.answers import LOG

with needed("The server", extra="server"):
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

LARGEST_HEAD = 2**16
"""Bytes of a request line with all headers, or of the trailers after a body in pieces."""

_PATIENCE = 1.0  # seconds for whoever sends to read the answer
_COUNTED = hasattr(AutoHTTPProtocol, "on_headers_complete")  # by this class: it is httptools


class Prompt(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Sends each part of an answer at once, and refuses headers that do not end.

    asyncio sends at once where it opens the socket itself. What uvicorn hands to its workers held
    the second part of every answer back until the first was acknowledged: 40 ms.

    httptools keeps a header of any length, and copies all of it for each part that comes. So bytes
    are counted before it has them, from the first of a request on: whoever has no token is read
    no further than whoever has one. h11 counts by itself (`h11_max_incomplete_event_size`).
    """

    _head = 0  # bytes since a request began, or since the last part of its body
    _dropped = 0  # bytes since a request was refused

    def connection_made(self, transport: Any) -> None:
        """Begin with a connection."""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Hand on what came, in parts that cannot hide a long header."""
        if self._dropped:
            self._drop(len(data))
            return
        view = memoryview(data)
        while view and not self.transport.is_closing():
            part = view[: LARGEST_HEAD + 1 - self._head]
            view = view[len(part) :]
            self._head += len(part) if _COUNTED else 0
            super().data_received(bytes(part))
            if self._head > LARGEST_HEAD:
                self._refuse()
                return

    # -- what httptools reports ----------------------------------------------------------

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._head = 0
        super().on_message_complete()

    def _refuse(self) -> None:
        """Answer that the headers are too long, and hang up.

        Not at once, while a little is still on its way: whoever sends would only see that the
        connection broke.
        """
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        title = f"The headers of a request may have {LARGEST_HEAD // 2**10} kilobytes."
        body = json.dumps({"title": title, "status": int(status)}).encode()
        head = (
            f"HTTP/1.1 {int(status)} {status.phrase}\r\ncontent-type: {PROBLEM}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        LOG.info({"error": "headers that are too long", "status": int(status)})
        if self.cycle is None or self.cycle.response_complete:  # else it would be in another answer
            self.transport.write(head.encode() + body)
        self._dropped = 1
        self.loop.call_later(_PATIENCE, self.transport.close)

    def _drop(self, count: int) -> None:
        """Leave unread what comes after a refusal, and no more than a few times what may come."""
        self._dropped += count
        if self._dropped > 2**4 * LARGEST_HEAD:
            self.transport.close()
