"""Whole copies of a ledger's file, while it is in use."""

from __future__ import annotations

import itertools
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from ladderholdout.errors import InvalidArgument, LedgerError


def copy(path: Path, target: Path) -> None:
    """Copy a ledger with SQLite's online backup: all of one moment, or nothing.

    Parameters
    ----------
    path : Path
        The ledger; others may be writing to it.
    target : Path
        A file that is not there yet. It is born with mode 0600, for raw scores lie in it.

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
