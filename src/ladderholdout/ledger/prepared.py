"""Statements that SQLAlchemy compiles once and that the driver is given directly.

SQLAlchemy takes several times as long over such a statement as SQLite itself. On a server it
waits for each answer, where the driver can send several statements at once
(`postgres.ServerSource.begin`).
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, Dialect, Select
from sqlalchemy.dialects import postgresql, sqlite

# Values by name, as the drivers take them.
_DIALECTS: Mapping[str, Dialect] = {
    "sqlite": sqlite.dialect(paramstyle="named"),
    "postgresql": postgresql.psycopg.dialect(),  # type: ignore[no-untyped-call]
}

# What PostgreSQL calls the type of all real numbers here; other types do not ask for their name.
_FLOAT = 701


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

    def send(self, conn: Connection, values: Mapping[str, Any]) -> Any:
        """Send the query; return the driver's cursor, for `read`."""
        name = conn.dialect.name
        if name not in self._compiled:
            self._compiled[name] = _Compiled(self._query, _DIALECTS[name])
        compiled = self._compiled[name]
        driver: Any = conn.connection.driver_connection
        return driver.execute(compiled.text, {**compiled.values, **values})

    def read(self, conn: Connection, cursor: Any) -> list[Any]:
        """Wait for the rows of a query that was sent, and check their values.

        The columns are attributes of the rows. Nothing is wrong with a value that is missing.
        """
        compiled = self._compiled[conn.dialect.name]
        rows = []
        for row in cursor.fetchall():
            values = list(row)
            for index, reader in compiled.readers:
                if values[index] is not None:
                    values[index] = reader(values[index])
            rows.append(compiled.make(*values))
        return rows

    def rows(self, conn: Connection, values: Mapping[str, Any]) -> list[Any]:
        """Send the query and return all rows."""
        return self.read(conn, self.send(conn, values))


class _Compiled:
    """A query as one driver takes it, and what checks the columns that it returns."""

    __slots__ = ("make", "readers", "text", "values")

    def __init__(self, query: Select[Any], dialect: Dialect) -> None:
        compiled, columns = query.compile(dialect=dialect), query.selected_columns
        self.make: Any = namedtuple("Row", columns.keys(), rename=True)  # type: ignore[misc]
        self.readers: list[tuple[int, Any]] = []
        for index, column in enumerate(columns):
            reader = column.type.dialect_impl(dialect).result_processor(dialect, _FLOAT)
            if reader is not None:
                self.readers.append((index, reader))
        self.text = str(compiled)
        self.values = {name: value for name, value in compiled.params.items() if value is not None}


def driver_of(conn: Connection) -> Any:
    """Return the driver's own connection."""
    return conn.connection.driver_connection


def run(conn: Connection, statement: str, values: Mapping[str, Any]) -> None:
    """Send a literal statement that returns nothing, with its values as ``:name``."""
    if conn.dialect.name != "sqlite":
        statement = _by_percent(statement)
    driver: Any = conn.connection.driver_connection
    driver.execute(statement, values)


@cache
def _by_percent(statement: str) -> str:
    return re.sub(r":(\w+)", r"%(\1)s", statement)
