"""The schema's version: made, upgraded, or refused when it is newer than this library."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from ladderholdout.errors import LedgerError
from ladderholdout.ledger import tables


def version_of(conn: Connection) -> str | None:
    """Return the revision a ledger stands at, None for an empty one."""
    if not inspect(conn).has_table("alembic_version"):
        return None
    return conn.execute(text("SELECT version_num FROM alembic_version")).scalar()


def ensure(conn: Connection) -> None:
    """Bring a ledger to this library's schema, inside the caller's transaction.

    Raises
    ------
    LedgerError
        A newer version of the library has written this ledger.
    """
    if version_of(conn) == tables.SCHEMA:
        return
    # Imported here: it takes longer than all else, and only a new ledger needs it.
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = conn
    try:
        command.upgrade(config, "head")
    except CommandError:
        raise LedgerError(
            "This ledger was written by a newer version of ladderholdout (schema "
            f"{version_of(conn)}, this one knows {tables.SCHEMA}). Upgrade the package."
        ) from None
