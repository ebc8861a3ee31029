"""Submissions may carry a key, so that a trial that is run twice is answered once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submissions", sa.Column("key", sa.String(64)))
    op.create_index("ix_submissions_key", "submissions", ["ladder_id", "key"], unique=True)


def downgrade() -> None:
    op.drop_index("ix_submissions_key", "submissions")
    op.drop_column("submissions", "key")
