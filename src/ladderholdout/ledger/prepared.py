"""The few statements that every submission runs, past SQLAlchemy.

SQLAlchemy takes several times as long over such a statement as SQLite itself, so the driver is
given it. On a server it waits for each answer, where the driver can send several statements at
once (`postgres.ServerSource.begin`).
"""

from __future__ import annotations

import datetime
import re
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import Connection, Dialect, Select
from sqlalchemy.dialects import postgresql, sqlite

# Values by name, as the drivers take them.
_DIALECTS: Mapping[str, Dialect] = {
    "sqlite": sqlite.dialect(paramstyle="named"),
    "postgresql": postgresql.psycopg.dialect(),  # type: ignore[no-untyped-call]
}

# What PostgreSQL calls the type of all real numbers here; other types do not ask for their name.
_FLOAT = 701

Pending: TypeAlias = Callable[[], list[Any]]
"""The rows of a query that was sent; it waits for them."""


class Prepared:
    """A query that is compiled once; what it returns is checked as SQLAlchemy's types check it.

    Parameters
    ----------
    query : Select
        Its values as `bindparam`.
    """

    __slots__ = ("_compiled", "_query")

    def __init__(self, query: Select[Any]) -> None:
        self._query = query
        self._compiled: dict[str, _Compiled] = {}

    def send(self, conn: Connection, values: Mapping[str, Any]) -> Pending:
        """Send the query; return what waits for its rows, with the columns as attributes."""
        name = conn.dialect.name
        if name not in self._compiled:
            self._compiled[name] = _Compiled(self._query, _DIALECTS[name])
        compiled, driver = self._compiled[name], driver_of(conn)
        cursor = driver.execute(compiled.text, {**compiled.values, **values})
        return lambda: compiled.read(cursor.fetchall())

    def rows(self, conn: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Return all rows."""
        return self.send(conn, values)()

    def one(self, conn: Connection, values: Mapping[str, Any]) -> Any | None:
        """Return the first row; None where there is none."""
        found = self.rows(conn, values)
        return found[0] if found else None


class _Compiled:
    """A query as one driver takes it."""

    __slots__ = ("_make", "_readers", "text", "values")

    def __init__(self, query: Select[Any], dialect: Dialect) -> None:
        compiled, columns = query.compile(dialect=dialect), query.selected_columns
        make: Any = namedtuple("Row", columns.keys(), rename=True)  # type: ignore[misc]
        self._make = make
        self._readers: list[Callable[[Any], Any] | None] = [
            column.type.dialect_impl(dialect).result_processor(dialect, _FLOAT)
            for column in columns
        ]
        self.text = str(compiled)
        self.values = {name: one for name, one in compiled.params.items() if one is not None}

    def read(self, rows: list[Any]) -> list[Any]:
        """Check the values of each row; nothing is wrong with none."""
        return [
            self._make(
                *[
                    value if value is None or reader is None else reader(value)
                    for reader, value in zip(self._readers, row, strict=True)
                ]
            )
            for row in rows
        ]


def driver_of(conn: Connection) -> Any:
    """Return the driver's own connection."""
    return conn.connection.driver_connection


def in_file(conn: Connection) -> bool:
    """Return whether a statement is answered at once: there is no server to wait for."""
    return conn.dialect.name == "sqlite"


def run(conn: Connection, statement: str, values: Mapping[str, Any]) -> None:
    """Send a literal statement that returns nothing, with its values as ``:name``.

    Parameters
    ----------
    conn : Connection
    statement : str
    values : Mapping
        Times as `stored_time` returns them.
    """
    if not in_file(conn):
        statement = _by_percent(statement)
    driver_of(conn).execute(statement, values)


@cache
def _by_percent(statement: str) -> str:
    return re.sub(r":(\w+)", r"%(\1)s", statement)


def stored_time(conn: Connection, time: datetime.datetime) -> Any:
    """Return a time in UTC as `run` takes it: in a file SQLAlchemy keeps it as a text."""
    if not in_file(conn):
        return time
    return time.replace(tzinfo=None).isoformat(" ", "microseconds")
