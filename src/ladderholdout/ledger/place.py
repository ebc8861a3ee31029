"""Where a ledger lies: a file, an SQLAlchemy URL, or this process's memory."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import platformdirs
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ladderholdout.errors import InvalidArgument

TIMEOUT = 60.0
"""Seconds a writer waits for the others: SQLite is unfair under load, and a waiter was
seen to take seven."""

_LONGEST_TIMEOUT = 86_400.0
_MEMORY = "memory"


def default_path() -> Path:
    """Return the ledger's place when none is named: one file in the user's data folder."""
    return platformdirs.user_data_path("ladderholdout") / "ledger.db"


def resolve_url(ledger: str | os.PathLike[str] | None) -> str:
    """Bring any way of naming a ledger to one URL.

    Parameters
    ----------
    ledger : str, path or None
        A path, an SQLAlchemy URL, ``"memory"`` (a new one each time, for simulation), or
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
    """
    if ledger is None:
        ledger = os.environ.get("LADDERHOLDOUT_LEDGER") or default_path()
    text = os.fspath(ledger) if isinstance(ledger, str | os.PathLike) else None
    if not isinstance(text, str):
        raise _refused(type(ledger).__name__)
    if not text.strip() or "\0" in text:
        raise _refused("an empty text" if not text.strip() else "a text with a zero byte")
    if text == _MEMORY:
        return f"{_MEMORY}:{uuid4().hex}"
    if text.startswith(f"{_MEMORY}:"):
        return text
    url = _parsed(text) if "://" in text else URL.create("sqlite", database=text)
    return url.set(database=_absolute(str(url.database))).render_as_string(hide_password=False)


def _parsed(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise _refused("a URL that does not parse") from None
    if url.get_backend_name() != "sqlite" or url.host or url.database in (None, "", ":memory:"):
        # Without the query: a password may stand in it.
        raise _refused(url.set(query={}).render_as_string(hide_password=True))
    if set(url.query) - {"timeout"}:
        raise _refused(f"a URL with {', '.join(sorted(set(url.query) - {'timeout'}))}")
    _seconds(url)
    return url


def _seconds(url: URL) -> float:
    try:
        seconds = float(url.query.get("timeout", TIMEOUT))  # type: ignore[arg-type]
    except (TypeError, ValueError):
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


def _refused(came: str) -> InvalidArgument:
    allowed = 'a path, "memory" or a URL like sqlite:////folder/ledger.db'
    return InvalidArgument("ledger", allowed, came)


def is_memory(url: str) -> bool:
    """Tell whether a ledger lives in this process alone."""
    return url.startswith(f"{_MEMORY}:")


def file_of(url: str) -> Path | None:
    """Return the SQLite file behind a URL, or None for a ledger that has none."""
    return None if is_memory(url) else Path(str(make_url(url).database))


def timeout_of(url: str) -> float:
    """Return how many seconds a writer waits for the others."""
    return _seconds(make_url(url))


def shown(url: str) -> str:
    """Return the ledger's place as it may be printed."""
    return _MEMORY if is_memory(url) else str(file_of(url))
