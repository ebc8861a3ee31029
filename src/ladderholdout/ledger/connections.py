"""Connections to a ledger, one way for files and servers.

Connections are opened lazily, once a process: none survives a fork or a pickle, so handles
carry the URL alone and find the engine here.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import Connection

from ladderholdout.errors import LedgerError, LedgerUnreachable
from ladderholdout.ledger import postgres as servers
from ladderholdout.ledger import sqlite as files
from ladderholdout.ledger import tables as cells
from ladderholdout.ledger.place import Access, file_of, is_memory, is_server
from ladderholdout.process import PerProcess, around_fork

# The engine's own logger would print rows, and with them what no analyst may read, as
# soon as somebody turns on debug logging for everything. A filter, since `dictConfig`
# resets the levels of loggers below those it names.
_logger = logging.getLogger("sqlalchemy.engine.Engine.ladderholdout")
_logger.setLevel(logging.WARNING)
_logger.addFilter(lambda record: record.levelno >= logging.WARNING)


# An engine of this process, and what is particular to its database.
Source: TypeAlias = files.FileSource | servers.ServerSource

PASSING = (LedgerUnreachable, servers.Undone)
"""What may go well when it is tried again."""

# Kept alive on purpose: closing a connection that the parent still uses could release the
# parent's locks, or end its talk with the server.
_inherited: list[dict[str, Source]] = []
# Files that a thread of the parent was writing to: SQLite counts its locks in memory, so they stay
# locked in this process.
_locked: set[Path] = set()
# For so many seconds a fork waits for the writers of its process.
_WAIT = 1.0


def _inherit(parents: dict[str, Source]) -> None:
    """Keep what is the parent's, for closing it here would give up the parent's locks."""
    _inherited.append(parents)
    for one in parents.values():
        if isinstance(one, files.FileSource) and one.path is not None and one.is_writing:
            _locked.add(one.path)


_sources: PerProcess[dict[str, Source]] = PerProcess(dict, drop=_inherit)
_held = threading.local()


def _hold() -> None:
    """Wait until no other thread of this process writes, and let none begin."""
    locks = [one.lock for one in [*_sources().values()] if isinstance(one, files.FileSource)]
    _held.locks = [lock for lock in locks if lock.acquire(timeout=_WAIT)]


def _let_go() -> None:
    for lock in _held.__dict__.pop("locks", ()):
        lock.release()


around_fork(_hold, _let_go)
_guard = PerProcess(threading.Lock)


def _at_exit() -> None:
    # A server's connections are closed; a file needs no such thing.
    for known in _sources().values():
        if isinstance(known, servers.ServerSource):
            known.dispose()


atexit.register(_at_exit)


def create(url: str) -> Source:
    """Open a ledger, making an empty one where there is none."""
    path = file_of(url)
    if path is not None:
        files.make(path)
    with _guard():
        if is_memory(url) and url not in _sources():
            _sources()[url] = files.memory_source()
        elif url in _sources() and not _sources()[url].current():
            _sources().pop(url).dispose()
    return source(url)


def source(url: str) -> Source:
    """Return this process's engine on an existing ledger."""
    if _locked and (path := file_of(url)) in _locked:
        raise LedgerError(
            f"This process was forked while a thread of its parent wrote to the ledger {path}, "
            "which stays locked in it. Nothing was recorded. Fork between submissions, or start "
            "processes by 'spawn'."
        )
    with _guard():
        if url not in _sources():
            _sources()[url] = servers.source(url) if is_server(url) else files.file_source(url)
        return _sources()[url]


@contextmanager
def connection(source: Source, access: Access) -> Iterator[Connection]:
    """Open one transaction: committed at the end of the block, undone by any exception.

    Raises
    ------
    LedgerBusy
        Another process held the lock for longer than the timeout.
    LedgerUnreachable
        The server did not answer for longer than the timeout, or was lost on the way.
    LedgerError
        The ledger is missing, replaced, damaged, read-only or out of space.
    """
    # `with` lets no interrupt between taking the lock and the promise to give it back.
    turn = source.turn(write=access is not Access.READ)
    try:
        with turn:
            # What is in it is undone: an interrupt may come between any two steps.
            taken: list[Connection] = []
            try:
                try:
                    _begin(source, access, taken)
                    yield taken[0]
                    source.commit(taken[0])
                except Exception:
                    _undo(source, taken)
                    raise
            except BaseException:
                # Ctrl-C, perhaps in the midst of undoing, may leave a statement open, and bar later
                # writes by it.
                _undo(source, taken, interrupted=True)
                raise
    except (UnicodeEncodeError, OverflowError):
        raise LedgerError(
            "A text with a lone surrogate, or a number of more than 64 bits, was asked for: no "
            "ledger holds one."
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        # In SQLite's own words on a damaged schema; in a text that is read as JSON.
        raise cells.damaged() from None
    except source.faults as fault:
        # The driver's own error stays inside, also as context: it holds the refused row.
        error = source.translated(fault)
        try:
            raise error from None
        finally:
            error.__context__ = None


def _begin(source: Source, access: Access, taken: list[Connection]) -> None:
    """Connect and begin, again while a server may come back: nothing was done by then."""
    pauses = source.pauses()
    while True:
        try:
            taken.append(source.connect())
            source.begin(taken[0], access)
            return
        except source.faults as fault:
            pause = next(pauses, None)
            if pause is None or not isinstance(source.translated(fault), PASSING):
                raise
        _undo(source, taken)
        time.sleep(pause)


def _undo(source: Source, taken: list[Connection], *, interrupted: bool = False) -> None:
    """Take back what was not committed on connections, which are not undone again."""
    while taken:
        source.undo(taken[-1], interrupted=interrupted)
        taken.pop()
