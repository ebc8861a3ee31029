"""Alembic's entry: migrate over the connection that the ledger hands in."""

from __future__ import annotations

from alembic import context

from ladderholdout.ledger.tables import metadata

# The caller owns the transaction (BEGIN IMMEDIATE on SQLite), so that of two processes
# that open a new ledger at once, one migrates and the other finds it done.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
