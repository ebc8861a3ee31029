"""A ledger on a PostgreSQL server: any number of machines, in a schema of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ladderholdout.errors import LedgerBusy, LedgerError, LedgerUnreachable
from ladderholdout.extras import needed
from ladderholdout.ledger.log import Connection, Source
from ladderholdout.ledger.place import Access, Url, shown, timeout_of

SCHEMA = "ladderholdout"
"""The schema of the database that a ledger's tables are in."""

_LOCK = 0x1ADDE2
_SERIAL = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
# Seconds that a server is waited for which this process has never reached.
_PATIENCE_AT_FIRST = 10.0
_FIRST_PAUSE = 0.05
_IDLE = 5  # connections that are kept

_ALONE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN = {
    Access.READ: ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",),
    Access.LADDER: (_ALONE, f"SELECT pg_advisory_xact_lock_shared({_LOCK})"),
    Access.ALL: (_ALONE, f"SELECT pg_advisory_xact_lock({_LOCK})"),
}
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
# `log.UNCHANGED` alone divides.
_DIVIDED_BY_ZERO = "22012"
_UNDONE = ("40", "55006")
_LOST = ("08", "57P", "53300", "25P03", "25P04")
_NO_HOST = "failed to resolve host"
# A server that cannot be reached may come back; these answers will not change.
_FINAL = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "pg_hba.conf",
    "could not translate host name",
    _NO_HOST,
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


@dataclass(slots=True, eq=False, repr=False)
class ServerConnection(Connection):
    """A connection to a server.

    Statements are sent in a pipeline: the server is waited for where rows are read.
    """

    sent: Any = None

    answers_at_once = False
    types: ClassVar = {"serial": _SERIAL, "bytes": "BYTEA"}
    names = f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}'"

    def send(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Send a statement."""
        return self.driver.execute(statement.replace("?", "%s"), values)

    def make_tables(self) -> None:
        """Make the schema and the tables of an empty ledger."""
        if not self.send("SELECT to_regnamespace(?)", (SCHEMA,)).fetchone()[0]:
            self.send(f"CREATE SCHEMA {SCHEMA}")
        Connection.make_tables(self)

    def settle(self) -> None:
        """Wait until all that was sent is answered; raise what failed."""
        sent, self.sent = self.sent, None
        if sent is not None:
            sent.__exit__(None, None, None)


@dataclass(slots=True)
class ServerSource(Source[ServerConnection]):
    """Connections to one server."""

    url: Url
    shown: str
    timeout: float
    driver: Any
    made: int = 0

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """The errors of the driver."""
        return (self.driver.Error,)

    def pauses(self) -> Iterator[float]:
        """Yield pauses between attempts to reach the server, until the timeout."""
        patience = self.timeout if self.made else min(self.timeout, _PATIENCE_AT_FIRST)
        end, longest = time.monotonic() + patience, _FIRST_PAUSE
        while time.monotonic() < end:
            made = self.made
            yield random.uniform(0.01, longest)
            longest = min(2 * longest, 1.0) if made == self.made else _FIRST_PAUSE

    def connect(self) -> ServerConnection:
        """Return a connection that nobody else has."""
        driver = None
        try:
            with suppress(IndexError):
                # An interrupt may have come as one was kept.
                while (driver := (conn := self._idle.pop()).driver).closed:
                    pass
                return conn
            query = {name: value for name, value in self.url.query.items() if name != "timeout"}
            patience = {name: value for name, value in _PATIENCE.items() if name not in query}
            place = str(replace(self.url, query=query))
            # The driver's own BEGIN would know of no lock.
            driver = self.driver.connect(place, autocommit=True, **patience)
            driver.execute(_SETTINGS.format(timeout=max(1.0, 1000 * self.timeout)))
            self.made += 1
            return ServerConnection(driver)
        except BaseException:
            if driver is not None:
                driver.close()
            raise

    def begin(self, conn: ServerConnection, access: Access) -> None:
        """Begin to read one state, or to write alone; nothing is waited for."""
        conn.sent = conn.driver.pipeline()
        conn.sent.__enter__()
        for statement in _BEGIN[access]:
            conn.driver.execute(statement)

    def commit(self, conn: ServerConnection) -> None:
        """Make what was written durable."""
        done = conn.driver.execute("COMMIT")
        conn.settle()
        if done.statusmessage != "COMMIT":
            raise Undone(f"The ledger {self.shown} undid what was to be committed.")
        self._keep(conn)

    def undo(self, conn: ServerConnection, *, interrupted: bool = False) -> None:
        """Undo what was written."""
        conn.folds.clear()  # what was undone may be known there
        if not interrupted and _is_rolled_back(conn):
            self._keep(conn)
        else:
            conn.close()

    def _keep(self, conn: ServerConnection) -> None:
        if len(self._idle) < _IDLE:
            self._idle.append(conn)
        else:
            conn.close()

    def translated(self, fault: Exception) -> LedgerError:
        """Return what is raised for a fault of the server or of the way there."""
        state = getattr(fault, "sqlstate", None) or ""
        name = type(fault).__name__
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
        if not state and not self.made:
            return _unreachable(self.shown, str(fault))
        lost = not state and name in ("OperationalError", "ConnectionTimeout", "InterfaceError")
        # The driver's errors have a connection where it could not be made.
        away = getattr(fault, "pgconn", None) is not None or _NO_HOST in str(fault)
        if state.startswith(_LOST) or (lost and not away):
            return LedgerUnreachable(
                f"The connection to the ledger {self.shown} was lost. What was not answered may "
                "be recorded: run this again, and it will be answered as it was the first time."
            )
        if lost:
            return _unreachable(self.shown, str(fault))
        remedy = next((text for key, text in _FAULTS.items() if state.startswith(key)), None)
        return LedgerError(
            f"The ledger {self.shown} cannot be used: {remedy or 'PostgreSQL refuses'} "
            f"({state or name})."
        )

    def findings(self, most: int) -> Iterator[str]:
        """Yield what the server's own check of indices finds damaged, where it is installed."""
        with closing(self.connect()) as conn:
            known = "SELECT count(*) FROM pg_extension WHERE extname = 'amcheck'"
            if not conn.send(known).fetchone()[0]:
                return
            for name, number in conn.send(_AMCHECK, (SCHEMA,)).fetchall():
                try:
                    conn.send("SELECT bt_index_check(?::oid, true)", (number,))
                except self.driver.Error as fault:
                    if fault.sqlstate != "42501":  # not allowed to ask
                        yield f"the database: index {name} does not agree with its table"

    def risks(self) -> tuple[str, ...]:
        """Return the settings that may let the server forget what was released."""
        names = "fsync", "full_page_writes", "synchronous_commit"
        with closing(self.connect()) as conn:
            return tuple(name for name in names if conn.send(f"SHOW {name}").fetchone()[0] == "off")


_AMCHECK = (
    "SELECT c.oid::regclass::text, c.oid FROM pg_index i "
    "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid "
    "JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'btree' AND i.indisvalid "
    "AND t.relnamespace = ?::regnamespace"
)


def source(url: str) -> ServerSource:
    """Return the source of connections to a server."""
    place = shown(url)
    with needed(f"The ledger {place}", LedgerError):
        try:
            import psycopg
        except ModuleNotFoundError:
            raise
        except ImportError:
            raise LedgerError(
                f"The ledger {place} needs libpq, which psycopg does not find: "
                "pip install 'ladderholdout[postgres]'"
            ) from None
    return ServerSource(Url.read(url), place, timeout_of(url), psycopg)


def _is_rolled_back(conn: ServerConnection) -> bool:
    """Return whether a connection is as if nothing had been begun."""
    with suppress(Exception):  # what was asked failed, perhaps, and that was raised already
        conn.settle()
    with suppress(Exception):
        if conn.driver.info.transaction_status.name == "INTRANS":
            conn.driver.execute("ROLLBACK")
        # After an error the server skipped what had been sent, and the driver takes statements for
        # prepared of which the server knows nothing.
        return bool(conn.driver.info.transaction_status.name == "IDLE")
    return False


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
