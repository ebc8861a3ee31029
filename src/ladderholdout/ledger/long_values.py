"""Values as long as the rows of a holdout, which go into the ledger a piece at a time.

A database takes a long value as a whole, copies it, and copies it again into the row that it
makes. SQLite can also set aside the space for a value and have it filled later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ladderholdout.ledger.prepared import driver_of, run

Pieces: TypeAlias = tuple[int, Iterable[Any]]
"""The length of a value in bytes, and the bytes one after the other."""


def fill_holdout(conn: Connection, holdout_id: int, values: Mapping[str, Pieces]) -> dict[str, str]:
    """Set columns of a holdout's row, and return their SHA-256, 64 hexadecimal digits each.

    It comes last: whatever changes the row afterwards copies all of it.

    Parameters
    ----------
    conn : Connection
    holdout_id : int
    values : Mapping
        Column -> `Pieces`. They are read in this order.
    """
    hashed = {name: hashlib.sha256() for name in values}
    if conn.dialect.name == "sqlite":
        _set(conn, holdout_id, "zeroblob(:{0})", {name: one[0] for name, one in values.items()})
        for name, (_, pieces) in values.items():
            with driver_of(conn).blobopen("holdouts", name, holdout_id) as blob:
                for piece in pieces:
                    hashed[name].update(piece)
                    blob.write(piece)
                assert blob.tell() == len(blob)
    else:
        whole = {name: b"".join(map(bytes, pieces)) for name, (_, pieces) in values.items()}
        for name, value in whole.items():
            hashed[name].update(value)
        _set(conn, holdout_id, ":{0}", whole)
    return {name: one.hexdigest() for name, one in hashed.items()}


def _set(conn: Connection, holdout_id: int, form: str, values: Mapping[str, Any]) -> None:
    stated = ", ".join(f"{name} = {form.format(name)}" for name in values)
    run(
        conn,
        f"UPDATE holdouts SET {stated} WHERE id = :holdout",
        {**values, "holdout": holdout_id},
    )
