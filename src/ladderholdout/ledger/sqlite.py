"""A ledger in a file of SQLite: one writer at a time, in turns, on a file that stays the same."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from ladderholdout import process
from ladderholdout.errors import InvalidArgument, LedgerBusy, LedgerError
from ladderholdout.ledger.log import Connection, Source
from ladderholdout.ledger.place import Access, file_of, timeout_of

_FAULTS = {
    "SQLITE_READONLY": "it is read-only. Give this user write access to the file and its folder",
    "SQLITE_NOTADB": "it is no SQLite database. Restore it from a backup, or name another ledger",
    "SQLITE_CORRUPT": "it is damaged. Restore it from a backup",
    "SQLITE_FULL": "the disk is full. Free some space and run this again: nothing was recorded",
    "SQLITE_IOERR": "the disk reports a fault. Nothing was recorded",
    "SQLITE_CANTOPEN": "it cannot be opened. Check that the file and its folder are there",
}
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
# Longest pause between two attempts to begin to write, in seconds.
_PAUSE = 0.008
# Which byte of the file is the turn: beyond those that SQLite locks, and far from all data.
_BYTE = 0x40000000 + 0x300
_HEADER = b"SQLite format 3\0"
_WAITER = "ladderholdout-turn"
# A text that was changed to other bytes is read all the same, for `verify` to name it.
_text = partial(str, encoding="utf-8", errors="surrogateescape")

Identity: TypeAlias = tuple[int, int]
"""What identifies a file: its device and its inode."""


class Turns:
    """Turns at writing to a file, among threads and processes, in the order of asking.

    SQLite lets whoever tries next at the right moment write, so that one of many writers may wait
    for seconds. A lock on one byte of the file has a queue.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._change = threading.Lock()
        self._waiting: threading.Thread | None = None
        self._awaited = False

    def take(self, seconds: float) -> None:
        """Wait for a turn, at most so many seconds; then SQLite decides."""
        with self._change:
            waiting = self._waiting
            if waiting is not None and not waiting.is_alive():
                waiting = None
            self._awaited = waiting is not None or not process.lock_byte(
                self._descriptor, _BYTE, wait=False
            )
        if not self._awaited:
            return
        try:
            if waiting is None:
                # A thread waits, for a lock that is waited for cannot be given up.
                waiting = threading.Thread(target=self._wait, name=_WAITER, daemon=True)
                self._waiting = waiting
                waiting.start()
            waiting.join(seconds)
        except RuntimeError:  # where no thread can be had, there are no turns
            pass
        finally:
            self._awaited = False

    def leave(self) -> None:
        """Let the next one write."""
        process.unlock_byte(self._descriptor, _BYTE)

    def _wait(self) -> None:
        process.lock_byte(self._descriptor, _BYTE, wait=True)
        with self._change:
            self._waiting = None
            if not self._awaited:
                self.leave()


@dataclass(slots=True, eq=False, repr=False)
class SqliteConnection(Connection):
    """A connection to a file."""

    companions: list[Identity | None]

    answers_at_once = True
    types: ClassVar = {"serial": "INTEGER PRIMARY KEY", "bytes": "BLOB"}
    names = "SELECT name FROM sqlite_master WHERE type = 'table'"


@dataclass(slots=True)
class FileSource(Source[SqliteConnection]):
    """Connections to one file, or to one ledger in memory (`path` is None)."""

    path: Path | None
    identity: Identity | None = None
    timeout: float = 0.0
    descriptor: int = -1
    changes: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    writer: SqliteConnection | None = None  # of the thread that writes at this moment
    _turns: Turns = field(init=False)
    _places: tuple[str, ...] = ()

    faults = (sqlite3.Error,)

    def __post_init__(self) -> None:
        self._turns = Turns(self.descriptor)
        if self.path is not None:
            self._places = str(self.path), f"{self.path}-wal", f"{self.path}-shm"

    def turn(self, *, write: bool) -> AbstractContextManager[Any]:
        """Return what threads of this process take turns by."""
        return self.lock if write or self.path is None else nullcontext()

    def current(self) -> bool:
        """Return whether the file is still the one that was opened."""
        return self.path is None or _identity(self.path) == self.identity

    def connect(self) -> SqliteConnection:
        """Return a connection that nobody else has."""
        with suppress(IndexError):
            return self._idle.pop()
        return self._connected()

    def begin(self, conn: SqliteConnection, access: Access) -> None:
        """Begin to read one state, or to be alone in writing."""
        self.check(conn)
        if self.path is not None:
            conn.send("PRAGMA shrink_memory")
        patience = self.timeout if access is Access.READ else 0.0
        conn.send(f"PRAGMA busy_timeout={1000 * patience:.0f}")
        if access is Access.READ:
            conn.send("BEGIN")
            return
        end = time.monotonic() + self.timeout
        if self.path is not None:
            self.writer = conn
            self._turns.take(self.timeout)
        _once_free(conn.driver, "BEGIN IMMEDIATE", end)

    def commit(self, conn: SqliteConnection) -> None:
        """Make what was written durable."""
        conn.driver.commit()
        self._leave(conn)
        self.check(conn)
        self._idle.append(conn)

    def undo(self, conn: SqliteConnection, *, interrupted: bool = False) -> None:
        """Undo what was written."""
        try:
            with suppress(sqlite3.Error):
                conn.driver.rollback()
        finally:
            self._leave(conn)
        if interrupted and self.path is not None:  # without it one in memory would be gone
            conn.close()
        else:
            conn.folds.clear()  # what was undone may be known there
            self._idle.append(conn)

    def check(self, conn: SqliteConnection) -> None:
        """Refuse to go on with files that were removed, replaced or overwritten since."""
        if self.path is None:
            return
        changes = _changes(self.descriptor)
        if changes < self.changes:
            raise LedgerError(
                f"The ledger {self.path} was overwritten while it was in use; what is written "
                "to it now would be lost. Restore it from a backup, then start again in a new "
                "process."
            )
        if [*map(_identity, self._places)] != [self.identity, *conn.companions]:
            raise LedgerError(
                f"The ledger {self.path}, or the -wal or -shm file beside it, was removed or "
                "replaced while it was in use; what is written to it now would be lost. Put "
                "it back, then start again."
            )
        self.changes = changes

    def _leave(self, conn: SqliteConnection) -> None:
        if conn is self.writer:
            self.writer = None
            self._turns.leave()

    def _connected(self) -> SqliteConnection:
        if self.path is None:
            driver = sqlite3.connect(":memory:", check_same_thread=False)
        else:
            place = f"{self.path.as_uri()}?mode=rw"
            driver = sqlite3.connect(place, self.timeout, uri=True, check_same_thread=False)
            of_file, of_wal, _ = map(_identity, self._places)
            emptied = _changes(self.descriptor) < 0 and of_wal is not None
            if emptied or of_file != self.identity:
                driver.close()
                raise LedgerError(
                    f"The ledger {self.path} was emptied or replaced by another file. Put it back, "
                    "or restore it from a backup, with the -wal file beside it, then start again."
                )
        driver.text_factory = _text
        driver.isolation_level = None  # the driver's own BEGIN would be a deferred one
        # Readers go on while somebody writes.
        _once_free(driver, "PRAGMA journal_mode=WAL", time.monotonic() + self.timeout)
        driver.execute("PRAGMA synchronous=FULL")
        driver.execute("PRAGMA schema_version")  # it makes the files beside it
        return SqliteConnection(driver, [*map(_identity, self._places[1:])])

    def translated(self, fault: Exception) -> LedgerError:
        """Return what is raised for a fault of the database."""
        place = self.path or "memory"
        name = getattr(fault, "sqlite_errorname", None) or type(fault).__name__
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

    def findings(self, most: int) -> Iterator[str]:
        """Yield what the database itself finds damaged, on a connection of its own."""
        with closing(self._connected()) as conn:
            try:
                for (fault,) in conn.send(f"PRAGMA integrity_check({most})"):
                    if fault != "ok":
                        yield f"the database: {fault}"
            except sqlite3.OperationalError as fault:
                raise self.translated(fault) from None
            except sqlite3.DatabaseError as fault:  # the check itself came to no end
                yield f"the database: {fault}"


def source(url: str, *, create: bool) -> FileSource:
    """Return the source of connections to a file, or to a ledger in memory.

    A file that is not there is made, empty and private, with its folder, if `create` is set.
    """
    path = file_of(url)
    if path is None and create:
        return FileSource(None)
    if path is None:
        raise LedgerError(
            'A ledger in memory ("memory") lives in the process that made it. For searches '
            "with several processes (n_jobs, loky, fork) give ledger= a path."
        )
    try:
        if create and not path.exists():
            process.make_private(path.parent)
            os.close(process.open_private(path))
    except OSError as fault:
        raise LedgerError(
            f"The ledger {path} cannot be made ({fault.strerror}). Name another place "
            "with ledger= or LADDERHOLDOUT_LEDGER."
        ) from None
    try:
        try:
            descriptor = process.open_private(path, create=False)
        except PermissionError:  # the file is read then, without turns at writing
            descriptor = process.open_to_read(path)
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
    return FileSource(path, (status.st_dev, status.st_ino), timeout_of(url), descriptor)


def _once_free(driver: sqlite3.Connection, statement: str, end: float) -> None:
    """Run a statement as soon as nobody bars it: SQLite waits for nobody here by itself."""
    while True:
        try:
            driver.execute(statement)
            return
        except sqlite3.OperationalError as fault:
            if not fault.sqlite_errorname.startswith(_BUSY) or time.monotonic() > end:
                raise
        time.sleep(random.uniform(0, _PAUSE))


def _changes(descriptor: int) -> int:
    """Return the file's change counter, which never falls; -1 where it is no database."""
    try:
        header = process.read_start(descriptor, 28)
    except OSError:
        return -1
    return int.from_bytes(header[24:], "big") if header.startswith(_HEADER) else -1


def _identity(place: str | Path) -> Identity | None:
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def copy(path: Path, target: Path) -> None:
    """Copy a file while it is in use, into a private file of its own."""
    try:
        os.close(process.open_private(target, new=True))
        try:
            _replace(path, target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise InvalidArgument(
            "the copy", "a file that is not there yet", f"{target}, which is", "Name another."
        ) from None
    except (OSError, sqlite3.Error) as fault:
        why = fault.strerror if isinstance(fault, OSError) else type(fault).__name__
        raise LedgerError(
            f"The copy {target} cannot be written ({why}). Name another place, or check that the "
            "ledger itself can be read."
        ) from None


def _replace(path: Path, target: Path) -> None:
    descriptor, temporary = tempfile.mkstemp(".part", f"{target.name}.", target.parent)
    try:
        os.close(descriptor)
        with (
            closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=60)) as source,
            closing(sqlite3.connect(temporary)) as copied,
        ):
            source.backup(copied)
            copied.execute("PRAGMA journal_mode=DELETE")
            if copied.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError
        with open(temporary, "rb+") as written:
            process.sync(written)
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)
