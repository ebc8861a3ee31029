"""Starting a server: uvicorn with TLS, several processes, a log in JSON, and a graceful stop."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import warnings
from collections.abc import Callable
from typing import Any

from ladderholdout import errors, extras
from ladderholdout.ledger.store import Ledger
from ladderholdout.server.settings import STARTED_WITH, ServerSettings

_LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": "ladderholdout.server.running.Lines"}},
    "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "loggers": {
        name: {"handlers": ["lines"], "level": "INFO", "propagate": False}
        for name in ("ladderholdout.server", "uvicorn")
    },
}
# Seconds that requests under way may take when the server is stopped.
_GRACE = 30
# Of both applications: no other kind of connection is taken, and none that states without end.
_CONNECTIONS: dict[str, Any] = {
    "http": "ladderholdout.server.protocol:Prompt",
    "ws": "none",
    "h11_max_incomplete_event_size": 2**16,
    "access_log": False,
    "server_header": False,
}


class Lines(logging.Formatter):
    """Formats a message, ours as its parts and uvicorn's as text, in JSON without tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        kind = record.exc_info[0] if record.exc_info else None
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "event": record.msg if isinstance(record.msg, dict) else record.getMessage(),
        }
        return json.dumps(line if kind is None else line | {"error": kind.__name__})


def check_packages() -> Any:
    """Return uvicorn; refuse to start without a package that a page or a form would need later.

    Raises
    ------
    MissingExtra
        One is not installed: the extra that is named brings all of them.
    """
    with extras.needed("The server", extra="server"):
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn
    return uvicorn


def run_ui(url: str, port: int, started: Callable[[str], None]) -> None:
    """Serve the pages of a ledger to one person on this machine, until the process is stopped.

    Parameters
    ----------
    url : str
        Of the ledger.
    port : int
        Of 127.0.0.1; 0 for one that is free.
    started : callable
        Called with the address, once a browser may ask for it: it lets in once.

    Raises
    ------
    LedgerError
        There is no such ledger.
    InvalidArgument
        Something else listens at the port.
    """
    uvicorn = check_packages()
    from ladderholdout.server.app import create_ui

    Ledger(url)
    token = secrets.token_urlsafe(32)
    with socket.socket() as listening:
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            raise errors.InvalidArgument("--port", "a port that is free", port) from None
        listening.listen()
        port = listening.getsockname()[1]
        app = create_ui(url, port, token)
        config = uvicorn.Config(app, log_level="warning", **_CONNECTIONS)
        started(f"http://127.0.0.1:{port}/enter?token={token}")
        warnings.simplefilter("ignore", errors.LadderHoldoutWarning)  # the clients' matter
        uvicorn.Server(config).run(sockets=[listening])


def run(settings: ServerSettings) -> None:
    """Serve until the process is stopped; requests under way are answered first.

    Parameters
    ----------
    settings : ServerSettings

    Raises
    ------
    LedgerError
        There is no such ledger.
    """
    uvicorn = check_packages()
    Ledger(settings.url)  # raises what is wrong with it before the first request
    os.environ[STARTED_WITH] = settings.to_json()
    uvicorn.run(
        "ladderholdout.server.app:from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        log_config=_LOGGING,
        timeout_graceful_shutdown=_GRACE,
        **_CONNECTIONS,
    )
