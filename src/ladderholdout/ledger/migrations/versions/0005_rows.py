"""A holdout is its rows: views, labels and ids; one confidence; withdrawals; details of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sqlalchemy as sa
from alembic import op
from scipy.sparse import csr_array

from ladderholdout.errors import LedgerError

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NEW: tuple[tuple[str, str, Any, str | None], ...] = (
    ("holdouts", "confidence", sa.Float, "0.95"),
    ("holdouts", "ids", sa.LargeBinary, None),
    ("holdouts", "labels_digest", sa.LargeBinary, None),
    ("holdouts", "label_digests", sa.LargeBinary, None),
    ("holdouts", "weight_digests", sa.LargeBinary, None),
    ("holdouts", "places", sa.LargeBinary, None),
    ("holdouts", "labels_version", sa.Integer, "1"),
    ("ladders", "withdrawals", sa.Integer, "0"),
    ("submissions", "place", sa.Integer, None),
    ("events", "after", sa.Integer, None),
    ("events", "detail", sa.Text, None),
    ("reserve_looks", "after", sa.Integer, None),
    ("reserve_looks", "others", sa.Text, None),
)


def upgrade() -> None:
    for table, name, kind, default in _NEW:
        column = sa.Column(name, kind, nullable=default is None, server_default=default)
        op.add_column(table, column)
    op.create_table(
        "views",
        sa.Column("holdout_id", sa.Integer, sa.ForeignKey("holdouts.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("fingerprint", sa.String(64), nullable=False, index=True),
        sa.Column("row_hashes", sa.LargeBinary, nullable=False),
        sa.Column("places", sa.LargeBinary, nullable=False),
        sa.Column("vault_path", sa.Text),
        sa.Column("vault_digest", sa.String(64)),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "incumbents",
        sa.Column("ladder_id", sa.Integer, sa.ForeignKey("ladders.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("predictions", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
    )
    shared = op.create_table(
        "shared",
        sa.Column("holdout_id", sa.Integer, sa.ForeignKey("holdouts.id"), primary_key=True),
        sa.Column("other_id", sa.Integer, sa.ForeignKey("holdouts.id"), primary_key=True),
        sa.Column("rows", sa.Integer, nullable=False),
    )
    op.bulk_insert(shared, list(_shared(op.get_bind())))


def _shared(conn: sa.Connection) -> Iterator[dict[str, int]]:
    """Count the rows that holdouts of before share with each other."""
    found = conn.execute(sa.text("SELECT id, row_hashes FROM holdouts ORDER BY id")).all()
    if not found:
        return
    hashes = [np.frombuffer(row.row_hashes, dtype="<u8") for row in found]
    owners = np.repeat(np.arange(len(found)), [len(one) for one in hashes])
    _, values = np.unique(np.concatenate(hashes), return_inverse=True)
    counts = csr_array((np.ones(len(values), dtype=np.int64), (owners, values)))
    both = (counts @ (counts > 0).astype(np.int64).T).tocoo()
    for ours, theirs, rows in zip(*both.coords, both.data, strict=True):
        if ours != theirs:
            ids = {"holdout_id": found[ours].id, "other_id": found[theirs].id}
            yield {**ids, "rows": int(rows)}


def downgrade() -> None:
    # An older library would break their chains, and lose what they record.
    told = sa.text("SELECT count(*) FROM events WHERE after IS NOT NULL OR detail IS NOT NULL")
    if op.get_bind().execute(told).scalar():
        raise LedgerError("A ledger that was written to since cannot go back to schema 0004.")
    op.drop_table("shared")
    op.drop_table("incumbents")
    op.drop_table("views")
    for table, name, _, _ in _NEW:
        op.drop_column(table, name)
