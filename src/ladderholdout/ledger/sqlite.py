"""Ledgers in SQLite: one file, or one process's memory."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from ladderholdout.errors import InvalidArgument, LedgerBusy, LedgerError
from ladderholdout.ledger.place import Access, file_of, is_memory, timeout_of
from ladderholdout.process import (
    HAS_QUEUES,
    lock_byte,
    make_private,
    open_private,
    open_to_read,
    read_start,
    sync,
    unlock_byte,
)

_FAULTS = {
    "SQLITE_READONLY": "it is read-only. Give this user write access to the file and its folder",
    "SQLITE_NOTADB": "it is no SQLite database. Restore it from a backup, or name another ledger",
    "SQLITE_CORRUPT": "it is damaged. Restore it from a backup",
    "SQLITE_FULL": "the disk is full. Free some space and run this again: nothing was recorded",
    "SQLITE_IOERR": "the disk reports a fault. Nothing was recorded",
    "SQLITE_CANTOPEN": "it cannot be opened. Check that the file and its folder are there",
}
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
# Seconds between two questions for the lock of one who does not take turns, at most.
_PAUSE = 0.008
# The byte of a file that turns lock. SQLite neither locks nor writes it: it is in the page of
# SQLite's own locks, behind them.
_BYTE = 0x40000000 + 0x300

_HEADER = b"SQLite format 3\0"
# Without a frame of Python: a ledger of a million entries has ten million texts.
_text = partial(str, encoding="utf-8", errors="surrogateescape")

Identity: TypeAlias = tuple[int, int]
"""What identifies a file: its device and its inode."""


class Turns:
    """The turns that the processes of one machine take at writing to a file.

    SQLite asks for a lock again after a pause: nobody may ask in the moment in which the file is
    free, and of many processes one may wait for seconds. The operating system keeps a queue of
    those that wait for a lock, and wakes the first one as soon as it is free. One thread of a
    process at a time may take a turn.

    Turns protect nothing: SQLite's own lock does, for which a process asks when it has a turn, or
    has waited for one in vain. So nothing is lost where there are none: on other systems, on a file
    that cannot be written to, or where another connection of this process is closed, which gives up
    all that a process has locked of a file (POSIX).

    Parameters
    ----------
    descriptor : int
        The open file, to read and write; it is kept open.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # It is held to change the two below.
        self._change = threading.Lock()
        # The thread that waits for the system's lock, and whether anybody waits for that thread.
        self._waiting: threading.Thread | None = None
        self._awaited = False

    def take(self, seconds: float) -> None:
        """Wait for a turn, for so many seconds at most; `leave` has to follow in any case."""
        if not HAS_QUEUES:
            return
        with self._change:
            waiting = self._waiting
            if waiting is not None and not waiting.is_alive():
                waiting = None
            # It is set before a new thread starts, which may have the lock at once. There is no
            # `try` in here: CPython 3.11 leaves a block without giving up its lock where one is
            # interrupted at its first line.
            self._awaited = waiting is not None or not lock_byte(
                self._descriptor, _BYTE, wait=False
            )
        if not self._awaited:
            return
        try:
            (waiting or self._start_waiting()).join(seconds)
        except RuntimeError:  # where no thread can be had, there are no turns
            pass
        finally:
            self._awaited = False

    def leave(self) -> None:
        """Let the next process have its turn."""
        unlock_byte(self._descriptor, _BYTE)

    def _start_waiting(self) -> threading.Thread:
        """Let a thread wait, since nobody can give up a wait for the system's lock."""
        waiting = threading.Thread(target=self._wait, name="ladderholdout-turn", daemon=True)
        self._waiting = waiting
        waiting.start()
        return waiting

    def _wait(self) -> None:
        """Wait for the system's lock, and give it back where nobody waits for a turn any more."""
        lock_byte(self._descriptor, _BYTE, wait=True)
        with self._change:
            self._waiting = None
            if not self._awaited:
                self.leave()


@dataclass(slots=True, eq=False)
class _Kept:
    """What is known of a connection that stays open from one transaction to the next.

    SQLAlchemy's own begin, commit and pool take several times as long as SQLite's. So to SQLAlchemy
    the connection is in one transaction as long as it is open.
    """

    driver: sqlite3.Connection
    # How long SQLite itself waits for a lock.
    patience: float
    # The -wal and the -shm beside the file: they stay while anybody is connected.
    companions: list[Identity | None]
    # Whether its transaction has a turn at writing.
    writes: bool = False


@dataclass(slots=True)
class FileSource:
    """The connections of this process, with the identity of the file they were opened on."""

    engine: Engine
    path: Path | None
    identity: Identity | None
    timeout: float = 0.0
    # Reads the file past SQLite's own cache, and locks a byte of it. Never closed: closing any
    # descriptor of a file drops all locks that SQLite holds on it in this process (POSIX).
    descriptor: int = -1
    changes: int = 0
    # Whether this process has found the tables there, as this version reads them.
    ready: bool = False
    # One writer of a process at a time: SQLite's own waiting is unfair.
    lock: threading.RLock = field(default_factory=threading.RLock)
    _turns: Turns = field(init=False)
    _idle: list[Connection] = field(default_factory=list)
    # Weakly: those that are closed are let go.
    _kept: MutableMapping[Connection, _Kept] = field(default_factory=WeakKeyDictionary)
    _places: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Name the three files of a ledger."""
        self._turns = Turns(self.descriptor)
        self._places = () if self.path is None else _places(self.path)

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """The errors that a statement may raise, from SQLAlchemy or from the driver."""
        return SQLAlchemyError, sqlite3.Error

    @property
    def is_writing(self) -> bool:
        """Whether a connection of this process is about to write."""
        return self.path is not None and any(kept.writes for kept in self._kept.values())

    def turn(self, *, write: bool) -> AbstractContextManager[Any]:
        """Wait for the other writers of this process."""
        return self.lock if write or self.path is None else nullcontext()

    def pauses(self) -> Iterator[float]:
        """Return how long to wait before trying again what failed: a file is there or not."""
        return iter(())

    def current(self) -> bool:
        """Whether the file is still the one that was opened."""
        return self.path is None or _identities(self._places)[0] == self.identity

    def connect(self) -> Connection:
        """Return a connection that nobody uses, and that has locked nothing yet."""
        with suppress(IndexError):
            while (conn := self._idle.pop()).closed:  # an interrupt came as it was kept
                pass
            return conn
        return self._connected()

    def begin(self, conn: Connection, access: Access) -> None:
        """Begin a transaction, which `commit` or `undo` ends, also where this fails."""
        kept = self._kept[conn]
        self.check(conn)
        if self.path is not None:
            # Ten microseconds: cached pages would hide that those on disk are damaged.
            kept.driver.execute("PRAGMA shrink_memory")
        # How long SQLite itself waits for a lock; for turns at writing this process waits.
        patience = self.timeout if access is Access.READ else 0.0
        if kept.patience != patience:
            kept.driver.execute(f"PRAGMA busy_timeout={1000 * patience:.0f}")
            kept.patience = patience
        if access is Access.READ:
            kept.driver.execute("BEGIN")
        else:
            self._begin_alone(kept)

    def commit(self, conn: Connection) -> None:
        """Make what was written durable; return when it is, and the files are still there."""
        kept = self._kept[conn]
        kept.driver.commit()
        self._leave(kept)
        self.check(conn)
        self._idle.append(conn)

    def undo(self, conn: Connection, *, interrupted: bool = False) -> None:
        """Take back what was not committed; after an interrupt the connection is given up."""
        kept = self._kept[conn]
        try:
            with suppress(sqlite3.Error):
                kept.driver.rollback()
        finally:
            self._leave(kept)
        if interrupted and self.path is not None:  # without it one in memory would be gone
            _close(conn)
        else:
            self._idle.append(conn)

    def dispose(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            _close(self._idle.pop())
        self.engine.dispose()

    def check(self, conn: Connection) -> None:
        """Refuse to go on with files that were removed, replaced or overwritten since.

        SQLite notices none of it: its page cache and its open files serve it to the end of
        the process, and only then are the entries gone. This costs some ten microseconds.
        """
        if self.path is None:
            return
        identities = _identities(self._places)
        # It is read last and compared first: SQLite itself removes the -wal beside an emptied file.
        changes = _changes(self.descriptor)
        if changes < self.changes:
            raise LedgerError(
                f"The ledger {self.path} was overwritten while it was in use; what is written "
                "to it now would be lost. Restore it from a backup, then start again in a new "
                "process."
            )
        if identities != [self.identity, *self._kept[conn].companions]:
            raise LedgerError(
                f"The ledger {self.path}, or the -wal or -shm file beside it, was removed or "
                "replaced while it was in use; what is written to it now would be lost. Put "
                "it back, then start again."
            )
        self.changes = changes

    def _begin_alone(self, kept: _Kept) -> None:
        """Begin to write, with the lock: a deferred BEGIN would take it too late.

        A process that does not take turns may hold the lock even then.
        """
        end = time.monotonic() + self.timeout
        if self.path is not None:
            kept.writes = True
            self._turns.take(self.timeout)
        while True:
            try:
                kept.driver.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as fault:
                if not _is_busy(fault) or time.monotonic() > end:
                    raise
            time.sleep(random.uniform(0, _PAUSE))

    def _leave(self, kept: _Kept) -> None:
        """Let the next process write."""
        if kept.writes:
            kept.writes = False
            self._turns.leave()

    def _connected(self) -> Connection:
        conn = self.engine.connect()
        conn.begin()
        driver = conn.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        companions: list[Identity | None] = []
        if self.path is not None:
            # The first statement makes both files.
            driver.execute("PRAGMA schema_version")
            companions = _identities(self._places)[1:]
        self._kept[conn] = _Kept(driver, self.timeout, companions)
        return conn

    def translated(self, fault: Exception) -> LedgerError:
        """Return what is wrong, without the refused row."""
        place = self.path or "memory"
        original = fault.orig if isinstance(fault, DBAPIError) else fault
        name = getattr(original, "sqlite_errorname", None) or type(original).__name__
        if name.startswith(_BUSY):
            return LedgerBusy(
                f"The ledger {place} stayed locked by another process for longer than the "
                "timeout. Nothing was recorded; run this again, or give more time: ledger="
                f'"sqlite:///{place}?timeout=300".'
            )
        remedy = next((text for key, text in _FAULTS.items() if name.startswith(key)), None)
        return LedgerError(
            f"The ledger {place} cannot be used: {remedy or 'SQLite refuses'} ({name})."
        )


def make(path: Path) -> None:
    """Make an empty file where there is none."""
    if path.exists():
        return
    try:
        make_private(path.parent)
        # This file will hold raw scores: it is created private.
        os.close(open_private(path))
    except OSError as fault:
        raise LedgerError(
            f"The ledger {path} cannot be made ({fault.strerror}). Name another place "
            "with ledger= or LADDERHOLDOUT_LEDGER."
        ) from None


def memory_source() -> FileSource:
    """Open a new ledger in memory."""
    engine = create_engine(
        "sqlite://",
        poolclass=StaticPool,
        connect_args={"check_same_thread": False},
        hide_parameters=True,
        logging_name="ladderholdout",
    )
    _prepare(engine)
    return FileSource(engine, None, None)


def file_source(url: str) -> FileSource:
    """Open an existing file."""
    if is_memory(url):
        raise LedgerError(
            'A ledger in memory ("memory") lives in the process that made it. For searches '
            "with several processes (n_jobs, loky, fork) give ledger= a path."
        )
    path, timeout = file_of(url), timeout_of(url)
    assert path is not None
    identity, descriptor = _opened(path)

    def connect() -> sqlite3.Connection:
        # mode=rw: a ledger that was deleted must never come back empty.
        opened = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=timeout, check_same_thread=False
        )
        # SQLite takes the -wal file beside an empty database for a leftover and deletes it at
        # the first statement, and with it the newest entries of the ledger that was there.
        of_file, of_wal, _ = _identities(_places(path))
        emptied = _changes(descriptor) < 0 and of_wal is not None
        if emptied or of_file != identity:
            opened.close()
            raise LedgerError(
                f"The ledger {path} was emptied or replaced by another file. Put it back, or "
                "restore it from a backup, with the -wal file beside it, then start "
                "again."
            )
        return opened

    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=NullPool,
        hide_parameters=True,
        logging_name="ladderholdout",
    )
    _prepare(engine, timeout)
    return FileSource(engine, path, identity, timeout, descriptor)


def _opened(path: Path) -> tuple[Identity, int]:
    try:
        try:
            descriptor = open_private(path, create=False)
        except PermissionError:  # the file is read then, without turns at writing
            descriptor = open_to_read(path)
    except FileNotFoundError:
        raise LedgerError(
            f"The ledger {path} is not there. Restore the file, or open the holdout with its "
            "rows, LadderHoldout(X, y, ...), to start a new one."
        ) from None
    except OSError as fault:
        raise LedgerError(
            f"The ledger {path} cannot be used ({fault.strerror}). Give this user access to "
            "the file and its folder."
        ) from None
    status = os.fstat(descriptor)
    return (status.st_dev, status.st_ino), descriptor


def _prepare(engine: Engine, timeout: float = 0.0) -> None:
    @event.listens_for(engine, "connect")
    def settings(connection: sqlite3.Connection, _: Any) -> None:
        # What was changed to be no text comes as one that shows it, and ends no reading.
        connection.text_factory = _text
        connection.isolation_level = None  # the driver's own BEGIN would be a deferred one
        _write_ahead(connection, timeout)
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "close")
    def give_up(connection: sqlite3.Connection, _: Any) -> None:
        # A statement that an interrupt left open keeps even a closed connection alive, and
        # its transaction with the lock, until the garbage is collected.
        with suppress(sqlite3.Error):
            connection.rollback()


def _close(conn: Connection) -> None:
    with suppress(SQLAlchemyError, sqlite3.Error):
        conn.close()


def _is_busy(fault: BaseException | None) -> bool:
    return getattr(fault, "sqlite_errorname", "").startswith(_BUSY)


def _write_ahead(connection: sqlite3.Connection, timeout: float) -> None:
    """Turn write-ahead logging on, which two who make a ledger at once cannot do at once.

    SQLite does not wait here: it would be waiting for one that waits for it.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as fault:
            if not _is_busy(fault) or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _changes(descriptor: int) -> int:
    """Return the change counter of a database: an older copy has a smaller one, no database -1."""
    try:
        header = read_start(descriptor, 28)
    except OSError:
        return -1
    return int.from_bytes(header[24:], "big") if header.startswith(_HEADER) else -1


def _places(path: Path) -> tuple[str, ...]:
    return str(path), f"{path}-wal", f"{path}-shm"


def _identities(places: tuple[str, ...]) -> list[Identity | None]:
    """Return which files are at the place of a ledger, and as its -wal and its -shm."""
    identities: list[Identity | None] = []
    for place in places:
        try:
            status = os.stat(place)
        except OSError:
            identities.append(None)
        else:
            identities.append((status.st_dev, status.st_ino))
    return identities


def copy(path: Path, target: Path) -> None:
    """Copy a ledger with SQLite's online backup: all of one moment, or nothing.

    Parameters
    ----------
    path : Path
        The ledger; others may be writing to it.
    target : Path
        A file that is not there yet. It is created with mode 0600, for it will hold raw scores.

    Raises
    ------
    InvalidArgument
        The target is there.
    LedgerError
        The copy cannot be written, or would be of a damaged ledger.
    """
    try:
        os.close(open_private(target, new=True))
    except FileExistsError:
        raise InvalidArgument(
            "the copy", "a file that is not there yet", f"{target}, which is", "Name another."
        ) from None
    except OSError as fault:
        raise _failed(target, str(fault.strerror)) from None
    try:
        _replace(path, target)
    except BaseException as fault:
        target.unlink(missing_ok=True)
        if isinstance(fault, OSError | sqlite3.Error):
            why = fault.strerror if isinstance(fault, OSError) else type(fault).__name__
            raise _failed(target, str(why)) from None
        raise


def _replace(path: Path, target: Path) -> None:
    """Copy a ledger into another file, and put that in the place of the target."""
    descriptor, temporary = tempfile.mkstemp(".part", f"{target.name}.", target.parent)
    try:
        os.close(descriptor)
        with (
            closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=60)) as source,
            closing(sqlite3.connect(temporary)) as copied,
        ):
            source.backup(copied)
            # One file: the copy does without the -wal file that a ledger in use has beside it.
            copied.execute("PRAGMA journal_mode=DELETE")
            if copied.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError
        with open(temporary, "rb+") as written:
            sync(written)
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _failed(target: Path, why: str) -> LedgerError:
    return LedgerError(
        f"The copy {target} cannot be written ({why}). Name another place, or check that the "
        "ledger itself can be read."
    )
