"""Connections to a ledger: where it lies, how it is opened, what its faults are called.

Connections are opened lazily, once a process: SQLite connections survive neither a fork
nor a pickle, so handles carry the URL alone and find the engine here.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import platformdirs
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from ladderholdout.errors import InvalidArgument, LedgerBusy, LedgerError

TIMEOUT = 60.0
"""Seconds a writer waits for the others: SQLite is unfair under load, and a waiter was
seen to take seven."""

_MEMORY = "memory"
_FAULTS = {
    "SQLITE_READONLY": "it is read-only. Give this user write access to the file and its folder",
    "SQLITE_NOTADB": "it is no SQLite database. Restore it from a backup, or name another ledger",
    "SQLITE_CORRUPT": "it is damaged. Restore it from a backup",
    "SQLITE_FULL": "the disk is full. Make room and run this again: nothing was recorded",
    "SQLITE_IOERR": "the disk reports a fault. Nothing was recorded",
    "SQLITE_CANTOPEN": "it cannot be opened. Check that the file and its folder are there",
}
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")

# The engine's own logger would print rows, and with them what no analyst may read, as
# soon as somebody turns on debug logging for everything.
logging.getLogger("sqlalchemy.engine.Engine.ladderholdout").setLevel(logging.WARNING)


@dataclass(slots=True)
class _Source:
    """An engine of this process, with the identity of the file it was opened on."""

    engine: Engine
    path: Path | None
    identity: tuple[int, int] | None
    # One writer of a process at a time: SQLite's own waiting is unfair.
    lock: threading.RLock = field(default_factory=threading.RLock)

    def current(self) -> bool:
        """Whether the file is still the one that was opened."""
        return self.path is None or _identity(self.path) == self.identity

    def check(self) -> None:
        """Refuse to go on with a file that was removed or replaced under the connection."""
        if not self.current():
            raise LedgerError(
                f"The ledger {self.path} was removed or replaced while it was in use; "
                "what is written to it now would be lost. Put the file back, then start again."
            )


_sources: dict[str, _Source] = {}
_guard = threading.Lock()
_inherited: list[dict[str, _Source]] = []


def _after_fork() -> None:
    # Kept alive on purpose: closing a connection that the parent still uses could
    # release the parent's locks.
    global _sources, _guard
    _inherited.append(_sources)
    _sources, _guard = {}, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


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

    Examples
    --------
    >>> resolve_url("sqlite:////data/ledger.db")
    'sqlite:////data/ledger.db'
    """
    ledger = ledger or os.environ.get("LADDERHOLDOUT_LEDGER") or default_path()
    text = os.fspath(ledger)
    if text == _MEMORY:
        return f"{_MEMORY}:{uuid4().hex}"
    if text.startswith(f"{_MEMORY}:"):
        return text
    if "://" not in text:
        return URL.create(
            "sqlite", database=str(Path(text).expanduser().absolute())
        ).render_as_string()
    try:
        url = make_url(text)
    except ArgumentError:
        raise InvalidArgument(
            "ledger", "a path or an SQLAlchemy URL", "a URL that does not parse", ""
        ) from None
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        raise InvalidArgument(
            "ledger",
            'a path, "memory" or a URL like sqlite:////folder/ledger.db',
            url.render_as_string(hide_password=True),
            "",
        )
    path = Path(url.database).expanduser().absolute()
    return url.set(database=str(path)).render_as_string(hide_password=False)


def is_memory(url: str) -> bool:
    """Tell whether a ledger lives in this process alone."""
    return url.startswith(f"{_MEMORY}:")


def file_of(url: str) -> Path | None:
    """Return the SQLite file behind a URL, or None for a ledger that has none."""
    return None if is_memory(url) else Path(str(make_url(url).database))


def shown(url: str) -> str:
    """Return the ledger's place as it may be printed."""
    return _MEMORY if is_memory(url) else str(file_of(url))


def create(url: str) -> _Source:
    """Open a ledger, making an empty one where there is none."""
    path = file_of(url)
    if path is not None and not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Raw scores lie in this file: it is born private.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as fault:
            raise LedgerError(
                f"The ledger {path} cannot be made ({fault.strerror}). Name another place "
                "with ledger= or LADDERHOLDOUT_LEDGER."
            ) from None
    with _guard:
        if is_memory(url) and url not in _sources:
            _sources[url] = _memory_source()
        elif path is not None and url in _sources and not _sources[url].current():
            _sources.pop(url).engine.dispose()
    return source(url)


def source(url: str) -> _Source:
    """Return this process's engine on an existing ledger."""
    with _guard:
        if url not in _sources:
            _sources[url] = _file_source(url)
        return _sources[url]


def _memory_source() -> _Source:
    engine = create_engine(
        "sqlite://",
        poolclass=StaticPool,
        connect_args={"check_same_thread": False},
        hide_parameters=True,
        logging_name="ladderholdout",
    )
    _prepare(engine)
    return _Source(engine, None, None)


def _file_source(url: str) -> _Source:
    if is_memory(url):
        raise LedgerError(
            'A ledger in memory ("memory") lives in the process that made it. For searches '
            "with several processes (n_jobs, loky, fork) give ledger= a path."
        )
    path, timeout = file_of(url), float(str(make_url(url).query.get("timeout", TIMEOUT)))
    assert path is not None
    identity = _identity(path)
    if identity is None:
        raise LedgerError(
            f"The ledger {path} is not there. Restore the file, or open the holdout with its "
            "rows, LadderHoldout(X, y, ...), to start a new one."
        )

    def connect() -> sqlite3.Connection:
        # mode=rw: a ledger that was deleted must never come back empty.
        return sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=timeout, check_same_thread=False
        )

    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        max_overflow=-1,
        hide_parameters=True,
        logging_name="ladderholdout",
    )
    _prepare(engine)
    return _Source(engine, path, identity)


def _prepare(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def settings(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # the driver's own BEGIN would be a deferred one
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A deferred BEGIN takes the write lock too late, and fails at once where another
        # writer came in between.
        reading = connection.get_execution_options().get("reading", False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def connection(source: _Source, *, write: bool) -> Iterator[Connection]:
    """Open one transaction: committed at the end of the block, undone by any exception.

    Raises
    ------
    LedgerBusy
        Another process held the write lock for longer than the timeout.
    LedgerError
        The ledger is missing, replaced, damaged, read-only or out of space.
    """
    place = source.path or _MEMORY
    source.lock.acquire() if write or source.path is None else None
    try:
        source.check()
        with source.engine.connect() as conn:
            conn = conn.execution_options(reading=not write)
            with conn.begin():
                yield conn
        source.check()
    except (SQLAlchemyError, sqlite3.Error) as fault:
        # The driver's own text stays inside: it can quote the row that was refused.
        raise _translated(place, fault) from None
    finally:
        source.lock.release() if write or source.path is None else None


def _translated(place: Path | str, fault: Exception) -> LedgerError:
    original = fault.orig if isinstance(fault, DBAPIError) else fault
    name = getattr(original, "sqlite_errorname", None) or type(original).__name__
    if name.startswith(_BUSY):
        return LedgerBusy(
            f"The ledger {place} stayed locked by another process for longer than the timeout. "
            "Nothing was recorded; run this again, or give more time: ledger="
            f'"sqlite:///{place}?timeout=300".'
        )
    said = next((text for key, text in _FAULTS.items() if name.startswith(key)), None)
    return LedgerError(f"The ledger {place} cannot be used: {said or name}.")
