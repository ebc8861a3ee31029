"""The first schema: holdouts, ladders, submissions, overlaps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "holdouts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("content_digest", sa.LargeBinary, nullable=False),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("classes", sa.LargeBinary),
        sa.Column("row_hashes", sa.LargeBinary, nullable=False),
        sa.Column("vault_path", sa.Text),
        sa.Column("vault_digest", sa.String(64)),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_holdouts_fingerprint", "holdouts", ["fingerprint"])
    op.create_table(
        "ladders",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("holdout_id", sa.Integer, sa.ForeignKey("holdouts.id"), nullable=False),
        sa.Column("account", sa.String(200), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("metric", sa.String(200), nullable=False),
        sa.Column("metric_settings", sa.Text, nullable=False),
        sa.Column("mechanism", sa.String(200), nullable=False),
        sa.Column("mechanism_settings", sa.Text, nullable=False),
        sa.Column("budget", sa.Integer),
        sa.Column("unit", sa.Float),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("opened", sa.DateTime(timezone=True)),
        sa.Column("submissions", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("incumbent", sa.Integer),
        sa.Column("incumbent_predictions", sa.LargeBinary),
        sa.UniqueConstraint("holdout_id", "account", "name", name="uq_ladders_place"),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("ladder_id", sa.Integer, sa.ForeignKey("ladders.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("batch", sa.String(32)),
        sa.Column("search", sa.String(32)),
        sa.Column("repeat_of", sa.Integer),
        sa.Column("raw_risk", sa.Float, nullable=False),
        sa.Column("evidence", sa.Text, nullable=False),
        sa.Column("released_risk", sa.Float, nullable=False),
        sa.Column("improved", sa.Boolean, nullable=False),
        sa.Column("disagreement", sa.Float),
        sa.Column("context", sa.Text, nullable=False),
        sa.UniqueConstraint("ladder_id", "number", name="uq_submissions_number"),
    )
    op.create_index("ix_submissions_digest", "submissions", ["ladder_id", "digest"])
    op.create_index("ix_submissions_search", "submissions", ["ladder_id", "search"])
    op.create_table(
        "overlaps",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("holdout_id", sa.Integer, sa.ForeignKey("holdouts.id"), nullable=False),
        sa.Column("source", sa.String(250), nullable=False),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("holdout_id", "source", name="uq_overlaps_source"),
    )


def downgrade() -> None:
    for table in ("overlaps", "submissions", "ladders", "holdouts"):
        op.drop_table(table)
