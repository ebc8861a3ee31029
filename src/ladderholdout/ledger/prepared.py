"""The few statements that every submission runs, past SQLAlchemy where the ledger is a file.

SQLAlchemy takes several times as long over such a statement as SQLite itself, so the driver is
given it. A server answers over a network, where that is no matter.
"""

from __future__ import annotations

import datetime
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Select, text
from sqlalchemy.dialects import sqlite

# Values by name, as SQLite's driver takes them.
_DIALECT = sqlite.dialect(paramstyle="named")


class Prepared:
    """A query that is compiled once; what it returns is checked as SQLAlchemy's types check it.

    Parameters
    ----------
    query : Select
        Its values as `bindparam`.
    """

    __slots__ = ("_make", "_query", "_readers", "_text", "_values")

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._text: str | None = None

    def rows(self, conn: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Return all rows, with the columns as attributes."""
        if conn.dialect.name != "sqlite":
            return list(conn.execute(self._query, values))
        if self._text is None:
            self._compile()
        driver: Any = conn.connection.dbapi_connection
        found = driver.execute(self._text, {**self._values, **values}).fetchall()
        return [self._make(*map(_read, self._readers, row)) for row in found]

    def one(self, conn: Connection, values: Mapping[str, Any]) -> Any | None:
        """Return the first row; None where there is none."""
        found = self.rows(conn, values)
        return found[0] if found else None

    def _compile(self) -> None:
        compiled = self._query.compile(dialect=_DIALECT)
        columns = self._query.selected_columns
        self._readers: list[Callable[[Any], Any] | None] = [
            column.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None)
            for column in columns
        ]
        make: Any = namedtuple("Row", columns.keys(), rename=True)  # type: ignore[misc]
        self._make = make
        self._values: Mapping[str, Any] = {
            name: value for name, value in compiled.params.items() if value is not None
        }
        self._text = str(compiled)


def _read(reader: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if reader is None else reader(value)


def run(conn: Connection, statement: str, values: Mapping[str, Any]) -> Any:
    """Run a literal statement, with its values as ``:name``; of what it returns nothing is checked.

    Parameters
    ----------
    conn : Connection
    statement : str
    values : Mapping
        Times with their zone, in UTC.
    """
    if conn.dialect.name != "sqlite":
        return conn.execute(text(statement), values)
    driver: Any = conn.connection.dbapi_connection
    return driver.execute(statement, values)


def stored_time(conn: Connection, time: datetime.datetime) -> Any:
    """Return a time in UTC as `run` takes it: in a file SQLAlchemy keeps it as a text."""
    if conn.dialect.name != "sqlite":
        return time
    return time.replace(tzinfo=None).isoformat(" ", "microseconds")
