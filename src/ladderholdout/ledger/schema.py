"""The schema's version: made, upgraded with a copy made first, or refused when it is newer."""

from __future__ import annotations

import itertools
import os
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, inspect, select

from ladderholdout.errors import InvalidArgument, LedgerError
from ladderholdout.ledger import postgres as servers
from ladderholdout.ledger import tables
from ladderholdout.thirdparty import after_fork

# Alembic keeps the running migration in globals of its modules.
_migrating = threading.Lock()


def _after_fork() -> None:
    global _migrating
    _migrating = threading.Lock()


after_fork(_after_fork)


def version_of(conn: Connection) -> str | None:
    """Return the revision of a ledger, None for an empty one.

    Raises
    ------
    LedgerError
        It is a database, and no ledger.
    """
    found = set(inspect(conn).get_table_names())
    if not found:
        return None
    if not {"alembic_version", "holdouts", "ladders"} <= found:
        raise LedgerError(
            "This database belongs to another program: it holds tables, and none of a ledger. "
            "Name another place with ledger= or LADDERHOLDOUT_LEDGER."
        )
    return conn.execute(select(tables.VERSION)).scalar()


def check_version(version: str) -> None:
    """Refuse to go on with a ledger that another version of the library has upgraded since."""
    if version != tables.SCHEMA:
        raise _newer(version)


def _newer(version: str) -> LedgerError:
    return LedgerError(
        "This ledger was written by a newer version of ladderholdout (schema "
        f"{version}, this one knows {tables.SCHEMA}). Upgrade the package."
    )


def ensure(conn: Connection, path: Path | None) -> None:
    """Bring a ledger to this library's schema, inside the caller's transaction.

    A new one gets all tables at once. A ledger that holds something is copied first, beside
    itself: ``ledger.db.0002.bak``, or on a server a schema
    ``ladderholdout_0002_20260314150926_bak``.

    Raises
    ------
    LedgerError
        A newer version of the library has written this ledger.
    """
    version = version_of(conn)
    if version == tables.SCHEMA:
        return
    on_server = conn.dialect.name == "postgresql"
    if version is None:
        if on_server:
            servers.make_schema(conn)
        # The migrations would make the same, at ten times the cost.
        tables.create(conn)
        return
    # Imported here: it takes longer than all else, and only an older ledger needs it.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = conn
    known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
    if version not in known:
        raise _newer(version)
    if path is not None:
        copy(path, free_name(path, version))
    if on_server:
        servers.keep(conn, inspect(conn).get_table_names(), version)
    with _migrating:
        command.upgrade(config, "head")


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


def free_name(path: Path, version: str) -> Path:
    """Return a name for the copy of a ledger before its schema is changed."""
    names = (f".{turn}" if turn > 1 else "" for turn in itertools.count(1))
    found = (path.with_name(f"{path.name}.{version}{name}.bak") for name in names)
    return next(name for name in found if not name.exists())


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
