"""Holdouts may keep a reserve: rows that no ladder measures, with counted queries of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from ladderholdout.errors import LedgerError

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("holdouts", sa.Column("reserve", sa.LargeBinary))
    op.add_column("submissions", sa.Column("reserve_digest", sa.String(64)))
    op.create_table(
        "reserve_looks",
        sa.Column("holdout_id", sa.Integer, sa.ForeignKey("holdouts.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("ladder_id", sa.Integer, sa.ForeignKey("ladders.id"), nullable=False),
        sa.Column("submission", sa.Integer, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("evidence", sa.Text, nullable=False),
        sa.Column("low", sa.Float),
        sa.Column("risk", sa.Float),
        sa.Column("high", sa.Float),
        sa.Column("log_values", sa.Float, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )


def downgrade() -> None:
    # An older library would let the ladders measure the reserve.
    kept = sa.text("SELECT count(*) FROM holdouts WHERE reserve IS NOT NULL")
    if op.get_bind().execute(kept).scalar():
        raise LedgerError("A ledger with a reserve in it cannot go back to schema 0003.")
    op.drop_table("reserve_looks")
    op.drop_column("submissions", "reserve_digest")
    op.drop_column("holdouts", "reserve")
