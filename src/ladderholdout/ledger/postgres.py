"""Ledgers on a PostgreSQL server: how a process talks to it, and what its faults are called.

The tables are in a schema of their own, so that a study of Optuna or a tracking store, which
have an ``alembic_version`` as well, may share the database.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from ladderholdout.errors import LedgerBusy, LedgerError, LedgerUnreachable
from ladderholdout.extras import needed
from ladderholdout.ledger.place import Access, shown, timeout_of

SCHEMA = "ladderholdout"
"""The schema of the database that a ledger's tables are in."""

# Any number, as long as all of this library's versions take the same one.
_LOCK = 0x1ADDE2
_PATIENCE_AT_FIRST = 10.0
_FIRST_PAUSE = 0.05
# How many connections a process keeps that nobody uses.
_IDLE = 5

_ALONE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN = {
    Access.READ: ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",),
    Access.LADDER: (_ALONE, f"SELECT pg_advisory_xact_lock_shared({_LOCK})"),
    Access.ALL: (_ALONE, f"SELECT pg_advisory_xact_lock({_LOCK})"),
}
# Where a connection keeps what it has sent and not yet seen the answers of.
_SENT = "ladderholdout sent"
# A dead client is noticed after half a minute rather than two hours, and one that sleeps in
# mid-transaction after ten minutes: all the others are waiting for its lock.
_SETTINGS = f"""
SET search_path TO {SCHEMA};
SET TimeZone TO 'UTC';
SET lock_timeout TO {{timeout:.0f}};
SET idle_in_transaction_session_timeout TO 600000;
SET tcp_keepalives_idle TO 10; SET tcp_keepalives_interval TO 5; SET tcp_keepalives_count TO 4;
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off';
"""
# The same from this end: a server that vanished must not be waited for without end.
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
}
# SQLSTATE, or its class, and what to do about it.
_FAULTS = {
    "53100": "the server's disk is full. Free some space there and run this again",
    "25006": "it is read-only, perhaps a standby. Name the primary server",
    "42501": "this user lacks a right. Let the owner of the database grant it: CREATE on the "
    f"database for the first opening, and all rights on the schema {SCHEMA}",
    "42P01": "a table of it is missing. Restore it from a backup",
    "XX": "the server reports that it is damaged. Restore it from a backup",
    "58": "the server's disk reports a fault",
    "57014": "the server cancelled a statement (statement_timeout?)",
}
# `statements.UNCHANGED` alone divides.
_DIVIDED_BY_ZERO = "22012"
_UNDONE = ("40", "55006")
_LOST = ("08", "57P", "53300", "25P03", "25P04")
# A server that cannot be reached may come back; these answers will not change.
_FINAL = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "pg_hba.conf",
    "could not translate host name",
    "permission denied",
    "SSL",
    "invalid",
)


class Undone(LedgerBusy):
    """The server undid a transaction in favour of another one."""


class Stale(LedgerError):
    """Nothing was committed: a ladder is not as a process took it up (`Transaction.locked_ladder`).

    Nobody is shown it.
    """


@dataclass(slots=True)
class ServerSource:
    """The connections of this process to a server.

    As with files, each is to SQLAlchemy in one transaction as long as it is open.
    """

    engine: Engine
    shown: str
    timeout: float
    # How many connections this process has made.
    made: int = 0
    # Whether it found the tables there as this version reads them.
    ready: bool = False
    _idle: list[Connection] = field(default_factory=list)

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """The errors that a statement may raise, from SQLAlchemy or from the driver."""
        return SQLAlchemyError, self.engine.dialect.loaded_dbapi.Error

    def turn(self, *, write: bool) -> AbstractContextManager[Any]:
        """Wait for nobody: the server lets writers in, in the order in which they come."""
        return nullcontext()

    def pauses(self) -> Iterator[float]:
        """Yield how long to wait before each new try, until the time is up."""
        patience = self.timeout if self.made else min(self.timeout, _PATIENCE_AT_FIRST)
        end, longest = time.monotonic() + patience, _FIRST_PAUSE
        while time.monotonic() < end:
            made = self.made
            # At random: those who lost the same server must not come back all at once.
            yield random.uniform(0.01, longest)
            # A server that lets this process in again is there: what was lost were connections,
            # and to wait longer would only lose the time that is left.
            longest = min(2 * longest, 1.0) if made == self.made else _FIRST_PAUSE

    def current(self) -> bool:
        """Whether this is the database that was opened, which its ladders show by themselves."""
        return True

    def connect(self) -> Connection:
        """Return a connection that nobody uses, and that has locked nothing yet."""
        with suppress(IndexError):
            while (conn := self._idle.pop()).closed:  # an interrupt came as it was kept
                pass
            return conn
        conn = self.engine.connect()
        self.made += 1
        conn.begin()
        return conn

    def begin(self, conn: Connection, access: Access) -> None:
        """Begin a transaction, which `commit` or `undo` ends, also where this fails.

        What goes to the driver from now on is sent and not waited for, up to the first rows that
        are read, the first statement of SQLAlchemy's, or the commit: so a submission goes to and
        fro twice, to be decided in between, and once where it rests on what this process left.
        """
        driver: Any = conn.connection.driver_connection
        conn.info[_SENT] = sent = driver.pipeline()
        sent.__enter__()
        for statement in _BEGIN[access]:
            driver.execute(statement)

    def commit(self, conn: Connection) -> None:
        """Make what was written durable; return when the server confirms it."""
        driver: Any = conn.connection.driver_connection
        done = driver.execute("COMMIT")
        _settle(conn)
        if done.statusmessage != "COMMIT":
            raise Undone(f"The ledger {self.shown} undid what was to be committed.")
        self._keep(conn)

    def undo(self, conn: Connection, *, interrupted: bool = False) -> None:
        """Take back what was not committed; a connection that may be of no use is given up."""
        if not interrupted and _is_rolled_back(conn):
            self._keep(conn)
            return
        with suppress(SQLAlchemyError):
            conn.invalidate()
        conn.close()

    def dispose(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            _close(self._idle.pop())

    def _keep(self, conn: Connection) -> None:
        if len(self._idle) < _IDLE:
            self._idle.append(conn)
        else:
            _close(conn)

    def translated(self, fault: Exception) -> LedgerError:
        """Return what is wrong, without the refused row and without a password."""
        original = fault.orig if isinstance(fault, DBAPIError) else fault
        state = getattr(original, "sqlstate", None) or ""
        # SQLAlchemy connects: whatever the driver reports by itself, it was connected.
        past = not isinstance(fault, SQLAlchemyError) and not state
        lost = fault.connection_invalidated if isinstance(fault, DBAPIError) else past
        if state == _DIVIDED_BY_ZERO:
            return Stale(f"The ledger {self.shown} has gone on.")
        if state == "55P03":
            return LedgerBusy(
                f"The ledger {self.shown} stayed locked by another process for longer than the "
                "timeout. Nothing was recorded; run this again, or give more time: ?timeout=300 "
                "at the end of its URL."
            )
        if state.startswith(_UNDONE):
            return Undone(
                f"The ledger {self.shown} undid this for others' sake, again and again. Nothing "
                "was recorded; run this again when there is less to do."
            )
        if lost or state.startswith(_LOST):
            return LedgerUnreachable(
                f"The connection to the ledger {self.shown} was lost. What was not answered may "
                "be recorded: run this again, and it will be answered as it was the first time."
            )
        if not state and type(original).__name__ in ("OperationalError", "ConnectionTimeout"):
            return _unreachable(self.shown, str(original))
        remedy = next((text for key, text in _FAULTS.items() if state.startswith(key)), None)
        name = state or type(original).__name__
        return LedgerError(
            f"The ledger {self.shown} cannot be used: {remedy or 'PostgreSQL refuses'} ({name})."
        )


def _unreachable(place: str, message: str) -> LedgerError:
    if any(answer in message for answer in _FINAL):
        return LedgerError(
            f"The ledger {place} cannot be opened: the server refuses, or it cannot be "
            "reached. Check user, password (in PGPASSWORD or ~/.pgpass), database and host "
            "with psql."
        )
    return LedgerUnreachable(
        f"The server of the ledger {place} does not answer. Check that it runs, with "
        "pg_isready, and that host and port are right, then run this again."
    )


def source(url: str) -> ServerSource:
    """Return a way to a server; nothing is asked of it yet."""
    parsed, timeout = make_url(url), timeout_of(url)
    defaults = {name: value for name, value in _PATIENCE.items() if name not in parsed.query}
    # SQLAlchemy imports the driver here.
    with needed(f"The ledger {shown(url)}", LedgerError), _with_library(shown(url)):
        engine = create_engine(
            parsed.difference_update_query(["timeout"]),
            connect_args=defaults,
            poolclass=NullPool,
            use_native_hstore=False,
            hide_parameters=True,
            logging_name="ladderholdout",
        )
    _prepare(engine, timeout)
    return ServerSource(engine, shown(url), timeout)


@contextmanager
def _with_library(place: str) -> Iterator[None]:
    """Name what brings the library of PostgreSQL, which psycopg alone does not."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except ImportError:
        raise LedgerError(
            f"The ledger {place} needs libpq, which psycopg does not find: "
            "pip install 'ladderholdout[postgres]'"
        ) from None


def _prepare(engine: Engine, timeout: float) -> None:
    @event.listens_for(engine, "connect")
    def settings(connection: Any, _: Any) -> None:
        connection.autocommit = True  # the driver's own BEGIN would know of no lock
        # Zero would mean to wait for ever.
        connection.execute(_SETTINGS.format(timeout=max(1.0, 1000 * timeout)))

    @event.listens_for(engine, "before_cursor_execute")
    def settle(connection: Connection, *_: Any) -> None:
        _settle(connection)


def _settle(conn: Connection) -> None:
    """Wait for the answers to all statements that were sent; later ones are sent one by one."""
    sent = None if conn.invalidated else conn.info.pop(_SENT, None)
    if sent is not None:
        sent.__exit__(None, None, None)


def _is_rolled_back(conn: Connection) -> bool:
    """Take back what a connection had begun; return whether it can be used again."""
    if conn.invalidated:
        return False
    driver: Any = conn.connection.driver_connection
    with suppress(Exception):  # what was asked failed, perhaps, and that was raised already
        _settle(conn)
    with suppress(Exception):
        if driver.info.transaction_status.name == "INTRANS":
            driver.execute("ROLLBACK")
        # After an error the server skipped what had been sent, and the driver takes statements for
        # prepared of which the server knows nothing.
        return bool(driver.info.transaction_status.name == "IDLE")
    return False


def _close(conn: Connection) -> None:
    with suppress(Exception):
        conn.close()


def unsafe_settings(conn: Connection) -> tuple[str, ...]:
    """Return settings of a server under which a power cut may take back what was released."""
    names = ("fsync", "full_page_writes", "synchronous_commit")
    return tuple(name for name in names if conn.execute(text(f"SHOW {name}")).scalar_one() == "off")


def make_schema(conn: Connection) -> None:
    """Make the schema of the ledger's tables, unless an administrator did."""
    if conn.execute(text("SELECT to_regnamespace(:name)"), {"name": SCHEMA}).scalar() is None:
        conn.execute(text(f"CREATE SCHEMA {SCHEMA}"))
