"""One compilation of a statement for all ledgers of a run, each of which has an engine of its own.

A program opens a few ledgers and a run of the tests opens thousands: half of a registration would
be SQLAlchemy's writing of the same statements. What is run stays what it was.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Compiled, Connection, Engine, event
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite as Dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.ddl import ExecutableDDLElement


def share() -> None:
    """Let all engines on SQLite have the statements that one of them has compiled."""
    # Two dialects are alike, so that the key of a statement is the same for both.
    Dialect.__eq__ = lambda one, other: type(one) is type(other)
    Dialect.__hash__ = lambda one: hash(type(one))
    statements: dict[Any, Any] = {}

    @event.listens_for(Engine, "engine_connect")
    def _shared(conn: Connection) -> None:
        if type(conn.dialect) is Dialect:
            conn.execution_options(compiled_cache=statements)

    made_once: dict[Any, Compiled] = {}
    compile_anew = ExecutableDDLElement.compile

    def compiled(made: Any, bind: Any = None, dialect: Any = None, **wish: Any) -> Compiled:
        if type(dialect) is not Dialect or type(made) not in (CreateTable, CreateIndex):
            return compile_anew(made, bind=bind, dialect=dialect, **wish)
        key = type(made), made.element
        if key not in made_once:
            made_once[key] = compile_anew(made, bind=bind, dialect=dialect, **wish)
        return made_once[key]

    ExecutableDDLElement.compile = compiled
