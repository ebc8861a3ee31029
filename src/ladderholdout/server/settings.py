"""What a server is started with: flags first, then the environment, then a TOML file."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ladderholdout.errors import InvalidArgument
from ladderholdout.ledger import is_memory, is_server, resolve_url

PREFIX = "LADDERHOLDOUT_SERVE_"
"""Of environment variables: ``LADDERHOLDOUT_SERVE_PORT``. Lists are separated by commas."""
STARTED_WITH = "LADDERHOLDOUT_SERVE"
"""In which a server's worker processes find the settings, as JSON."""

_ALL = "*"
_LARGEST_PORT = 65535
_COARSEST = 10_000


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server, validated when they are made.

    Attributes
    ----------
    ledger : str or None
        A path or a URL; by default ``LADDERHOLDOUT_LEDGER``, else the user's ledger.
    host : str
    port : int
    workers : int
        Processes.
    tls_cert, tls_key : str or None
        Files in PEM.
    max_body : int
        Megabytes that a request may have.
    time_grid : int
        Milliseconds: each answer is sent at a multiple of them after its request.
    max_refusals : int
        Requests of an account that may be refused in a minute before the next is not read; one of
        some megabytes counts as so many more.
    share_rows, allow_estimates, allow_reveals : tuple of str
        Names of the holdouts whose features are served, whose corrected score or whose score on
        a ladder that releases none may be asked for; ``*`` for all.

    Examples
    --------
    >>> settings = ServerSettings(ledger="ledger.db", share_rows=("coins",))
    >>> settings.port, settings.allows("share_rows", "coins"), settings.allows("share_rows", "dice")
    (8765, True, False)
    >>> ServerSettings.from_json(settings.to_json()).share_rows
    ('coins',)
    """

    ledger: str | None = None
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1
    tls_cert: str | None = None
    tls_key: str | None = None
    max_body: int = 64
    time_grid: int = 25
    max_refusals: int = 100
    share_rows: tuple[str, ...] = ()
    allow_estimates: tuple[str, ...] = ()
    allow_reveals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if is_memory(url := resolve_url(self.ledger)):
            raise InvalidArgument("ledger", "a file or a URL", "in memory")
        if not 0 <= self.port <= _LARGEST_PORT:
            raise InvalidArgument("port", f"a number from 0 to {_LARGEST_PORT}", self.port)
        if self.workers < 1 or (self.workers > 1 and os.name == "nt" and not is_server(url)):
            raise InvalidArgument("workers", "at least 1", self.workers)
        if self.max_body < 1:
            raise InvalidArgument("max-body", "at least 1 megabyte", self.max_body)
        if not 1 <= self.time_grid <= _COARSEST:
            allowed = f"from 1 to {_COARSEST} milliseconds"
            raise InvalidArgument("time-grid", allowed, self.time_grid)
        if self.max_refusals < 1:
            raise InvalidArgument("max-refusals", "at least 1 a minute", self.max_refusals)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidArgument("tls-cert", "stated together with tls-key", "one without")
        for name in ("tls_cert", "tls_key"):
            place = getattr(self, name)
            if place is not None and not Path(place).is_file():
                raise InvalidArgument(name.replace("_", "-"), "a file", place)

    @property
    def url(self) -> str:
        """The URL of the ledger."""
        return resolve_url(self.ledger)

    def allows(self, what: str, holdout: str) -> bool:
        """Return whether a holdout is in one of the lists."""
        listed = getattr(self, what)
        return _ALL in listed or holdout in listed

    def to_json(self) -> str:
        """Write the settings for another process."""
        return json.dumps(asdict(self) | {"ledger": self.url})

    @classmethod
    def from_json(cls, text: str) -> ServerSettings:
        """Read what `to_json` wrote."""
        return cls(**_read(json.loads(text), "JSON"))


def settings_from(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
) -> ServerSettings:
    """Bring flags, environment and file together, the former before the latter.

    Parameters
    ----------
    flags : mapping
        By the names of `ServerSettings`; None or an empty list where nothing was stated.
    environment : mapping
        ``LADDERHOLDOUT_SERVE_HOST`` and its like.
    file : Path or None
        TOML with the same names.

    Raises
    ------
    InvalidArgument
        A name or a value is none of a server's.

    Examples
    --------
    >>> settings_from({"port": 9000}, {"LADDERHOLDOUT_LEDGER": "ledger.db"}, None).port
    9000
    """
    found: dict[str, Any] = {} if file is None else _read(_toml(file), str(file))
    named = {PREFIX + one.name.upper(): one.name for one in fields(ServerSettings)}
    stated = {named[name]: text for name, text in environment.items() if name in named}
    found |= _read(stated, "the environment")
    found |= _read({k: v for k, v in flags.items() if v not in (None, [], ())}, "the flags")
    return ServerSettings(**found)


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        raise InvalidArgument("--config", "a TOML file that can be read", file) from None


def _read(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Check names and types; texts are read as numbers and lists where these are wanted."""
    defaults = {one.name: one.default for one in fields(ServerSettings)}
    found = {}
    for name, value in given.items():
        if name not in defaults:
            allowed = ", ".join(defaults)
            raise InvalidArgument(f"a setting in {source}", f"one of {allowed}", repr(name))
        if isinstance(defaults[name], tuple) and isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        found[name] = _as(name, value, defaults[name], source)
    return found


def _as(name: str, value: Any, default: Any, source: str) -> Any:
    if isinstance(default, tuple):
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return tuple(value)
        raise InvalidArgument(name, "a list of names", f"another value in {source}")
    if isinstance(default, int):
        try:
            return int(value)
        except (TypeError, ValueError):
            raise InvalidArgument(name, "a whole number", f"another value in {source}") from None
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(name, "a text", f"another value in {source}")
    return value
