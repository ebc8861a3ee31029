"""Where a ledger is kept, a file, a PostgreSQL server or memory; and what it is opened for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from uuid import uuid4

import platformdirs

from ladderholdout.errors import InvalidArgument

TIMEOUT = 60.0
"""Seconds a writer waits for the others: SQLite is unfair under load, and a waiter was
seen to take seven."""

_LONGEST_TIMEOUT = 86_400.0
_MEMORY = "memory"
_SERVER = "postgresql"
# What a URL may set for libpq besides user, password, host, port and database. No other
# password: what is shown of a URL must hide all of them.
_OF_SERVERS = {
    *("host", "port", "hostaddr", "passfile", "service", "options", "require_auth"),
    *("connect_timeout", "tcp_user_timeout", "application_name", "target_session_attrs"),
    *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "channel_binding"),
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
}
_ELSEWHERE = "A ledger is a file, or for several machines a PostgreSQL database: postgresql://user@host/base."
_CONNECTED = (
    "To a server of this library one connects: LadderHoldout.connect(url), or --server URL."
)
_REMEDIES = {
    "postgres": "Write postgresql:// for postgres://.",
    "sqlite": "Name its file, as in sqlite:////folder/ledger.db.",
    "file": "Give the path alone.",
    "http": _CONNECTED,
    "https": _CONNECTED,
}


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL of a database."""

    scheme: str
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    host: str | None = None
    port: int | None = None
    query: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Url:
        """Read a URL; ValueError where it is none, or states something twice."""
        scheme, _, rest = text.partition("://")
        if not scheme.replace("+", "").isalnum():
            raise ValueError("no scheme")
        rest, _, query = rest.partition("?")
        parts = urlsplit(f"//{rest.replace('#', '%23')}")
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        settings = dict(pairs)
        if len(settings) < len(pairs):
            raise ValueError("stated twice")
        user, password = (name and unquote(name) for name in (parts.username, parts.password))
        place = unquote(parts.path[1:]), user, password, parts.hostname, parts.port
        return cls(scheme, *place, settings)

    def __str__(self) -> str:
        user = "" if self.user is None else quote(self.user, safe="")
        user += "" if self.password is None else f":{quote(self.password, safe='*')}"
        host = f"[{self.host}]" if self.host and ":" in self.host else self.host or ""
        port = "" if self.port is None else f":{self.port}"
        place = f"{user}@{host}{port}" if user else f"{host}{port}"
        query = f"?{urlencode(sorted(self.query.items()), quote_via=quote)}" if self.query else ""
        return f"{self.scheme}://{place}/{quote(self.database, safe='/ ')}{query}"


class Access(Enum):
    """What a transaction means to do; a file has one writer, whichever it is."""

    READ = auto()
    """See one state of the ledger; block nobody."""
    LADDER = auto()
    """Write to one holdout, whose row it locks: others go on with other holdouts."""
    ALL = auto()
    """Be alone in writing: whatever a query finds stays as it is until the end."""


def default_path() -> Path:
    """Return the ledger's place when none is named: one file in the user's data folder."""
    return platformdirs.user_data_path("ladderholdout") / "ledger.db"


def resolve_url(ledger: str | os.PathLike[str] | None) -> str:
    """Bring any way of naming a ledger to one URL.

    Parameters
    ----------
    ledger : str, path or None
        A path, a URL, ``"memory"`` (a new one each time, for simulation;
        ``"memory:NAME"`` is one for all handles of this process that name it), or
        None for ``LADDERHOLDOUT_LEDGER`` and, without it, the user's data folder.

    Returns
    -------
    str

    Raises
    ------
    InvalidArgument
        It is none of these.

    Examples
    --------
    >>> resolve_url("sqlite:////data/ledger.db")
    'sqlite:////data/ledger.db'
    >>> resolve_url("postgresql://ada@db.example/team")
    'postgresql://ada@db.example/team'
    """
    if ledger is None:
        ledger = os.environ.get("LADDERHOLDOUT_LEDGER") or default_path()
    try:
        text = os.fspath(ledger) if isinstance(ledger, str | os.PathLike) else None
    except Exception:  # whatever its own method raises
        text = None
    if not isinstance(text, str):
        raise _refused(type(ledger).__name__)
    text = str.__str__(text)
    if not text.strip() or "\0" in text or text != text.encode(errors="replace").decode():
        broken = "a text with a zero byte or half a character"
        raise _refused(broken if text.strip() else "an empty text")
    if text == _MEMORY:
        return f"{_MEMORY}:{uuid4().hex}"
    if text.startswith(f"{_MEMORY}:"):
        return text
    url = _parsed(text) if "://" in text else Url("sqlite", text)
    if url.scheme != _SERVER:
        url = replace(url, database=_absolute(url.database))
    return str(url)


def _parsed(text: str) -> Url:
    try:
        url = Url.read(text)
    except ValueError:
        raise _refused("a URL that does not parse") from None
    kind, _, driver = url.scheme.partition("+")
    query = dict(url.query)
    if kind == _SERVER:
        password, own, settings = query.pop("password", None), "psycopg", _OF_SERVERS
        remedy = "Write postgresql://, which takes psycopg: pip install 'ladderholdout[postgres]'."
    else:
        # Without the query: a password may be in it.
        known = str(replace(url, query={}, password=url.password and "***"))
        if kind != "sqlite" or url.host or url.database in ("", ":memory:"):
            raise _refused(known, _REMEDIES.get(kind, _ELSEWHERE))
        password, own, settings = None, "pysqlite", set()
        remedy = f"Write sqlite:///{url.database}."
    if driver not in ("", own):
        # What it would do beside, such as to encrypt the file, would be left out.
        raise _refused(f"a URL with the driver {driver}", remedy)
    if not url.database:
        raise _refused(
            "a URL of a server without the name of a database",
            "Add it, as in postgresql://user@host/base.",
        )
    if unknown := set(query) - settings - {"timeout"}:
        raise _refused(f"a URL with {', '.join(sorted(unknown))}")
    _seconds(url)
    return replace(url, scheme=kind, password=url.password or password, query=query)


def _seconds(url: Url) -> float:
    try:
        seconds = float(url.query.get("timeout", TIMEOUT))
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= _LONGEST_TIMEOUT:
        allowed = f"a URL with one timeout of 0 to {_LONGEST_TIMEOUT:.0f} seconds"
        raise InvalidArgument("ledger", allowed, "one with another")
    return seconds


def _absolute(path: str) -> str:
    try:
        return str(Path(path).expanduser().absolute())
    except RuntimeError:
        raise _refused("in the home folder of a user who is not known here") from None


def _refused(came: str, remedy: str = "") -> InvalidArgument:
    allowed = 'a path, "memory" or a URL like sqlite:////folder/ledger.db or postgresql://host/base'
    return InvalidArgument("ledger", allowed, came, remedy)


def is_memory(url: str) -> bool:
    """Return whether a ledger is kept in the memory of this process alone."""
    return url.startswith(f"{_MEMORY}:")


def is_server(url: str) -> bool:
    """Return whether a ledger is on a PostgreSQL server."""
    return url.startswith(f"{_SERVER}://")


@lru_cache(256)
def file_of(url: str) -> Path | None:
    """Return the SQLite file behind a URL, or None for a ledger that has none."""
    return None if is_memory(url) or is_server(url) else Path(Url.read(url).database)


def vault_beside(url: str, path: str | None) -> Path:
    """Return the folder of a vault, or where that of a ledger would be by default.

    A folder that is named and is not on this machine counts as not named: a ledger that somebody
    sent makes no folders.

    Parameters
    ----------
    url : str
        Of the ledger.
    path : str or None
        Of the vault.

    Returns
    -------
    Path

    Examples
    --------
    >>> print(vault_beside("sqlite:////data/ledger.db", None))
    /data/vault
    """
    if path is not None and "://" not in path and (folder := Path(path).parent).is_dir():
        return folder
    ledger = file_of(url)
    parent = ledger.parent if ledger else platformdirs.user_data_path("ladderholdout")
    return parent / "vault"


def timeout_of(url: str) -> float:
    """Return how many seconds a writer waits for the others, or for a server to come back."""
    return _seconds(Url.read(url))


def shown(url: str) -> str:
    """Return the ledger's place as it may be printed: of a server's URL, no secrets.

    Examples
    --------
    >>> shown(resolve_url("postgresql://ada:secret@db.example/team?sslkey=ada.key"))
    'postgresql://ada:***@db.example/team'
    """
    if url.startswith(("http://", "https://")):
        return url  # a server of this library, of whose URL no token is part
    if is_server(url):
        parsed = Url.read(url)
        place = {name: parsed.query[name] for name in ("host", "port") if name in parsed.query}
        return str(replace(parsed, query=place, password=parsed.password and "***"))
    return _MEMORY if is_memory(url) else str(file_of(url))
