"""The format of a ledger: its tables are made, and every other format is refused."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, inspect, select

from ladderholdout.errors import InvalidArgument, LedgerError
from ladderholdout.ledger import postgres as servers
from ladderholdout.ledger import tables


def format_of(conn: Connection) -> int | None:
    """Return the number of a ledger's format, None for an empty database.

    Raises
    ------
    LedgerError
        It is a database, and no ledger, or one that was written before 0.1.0.
    """
    names = set(inspect(conn).get_table_names())
    if not names:
        return None
    if {"alembic_version", "holdouts", "ladders"} <= names:
        raise LedgerError(
            "This ledger was written before ladderholdout 0.1.0, which does not read it. The last "
            "commit whose changelog has no version reads it: `ladder-holdout export` of that "
            "commit takes its record to MLflow. Name another place for a new ledger with ledger= "
            "or LADDERHOLDOUT_LEDGER."
        )
    if not {"ledger_format", "holdouts", "ladders"} <= names:
        raise LedgerError(
            "This database belongs to another program: it holds tables, and none of a ledger. "
            "Name another place with ledger= or LADDERHOLDOUT_LEDGER."
        )
    return conn.execute(select(tables.NUMBER)).scalar()


def check_format(number: object) -> None:
    """Refuse a ledger of another format, or one that got another format since it was opened."""
    if number != tables.FORMAT:
        raise LedgerError(
            f"This ledger has format {number}, and this version of ladderholdout reads format "
            f"{tables.FORMAT}. Upgrade the package where the ledger is newer."
        )


def ensure(conn: Connection) -> None:
    """Make the tables in an empty database, inside the caller's transaction.

    Raises
    ------
    LedgerError
        The ledger has another format.
    """
    number = format_of(conn)
    if number is not None:
        check_format(number)
        return
    if conn.dialect.name == "postgresql":
        servers.make_schema(conn)
    tables.create(conn)


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
        os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
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
    descriptor, temporary = tempfile.mkstemp(".part", f"{target.name}.", target.parent)
    try:
        os.close(descriptor)
        _back_up(path, temporary)
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _back_up(path: Path, temporary: str) -> None:
    with (
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=60)) as source,
        closing(sqlite3.connect(temporary)) as copied,
    ):
        source.backup(copied)
        # One file: the copy does without the -wal file that a ledger in use has beside it.
        copied.execute("PRAGMA journal_mode=DELETE")
        if copied.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError
    with open(temporary, "rb") as written:
        os.fsync(written.fileno())


def _failed(target: Path, why: str) -> LedgerError:
    return LedgerError(
        f"The copy {target} cannot be written ({why}). Name another place, or check that the "
        "ledger itself can be read."
    )
