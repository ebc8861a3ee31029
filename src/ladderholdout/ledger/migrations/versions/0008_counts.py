"""What certificates count is counted as it comes, and found without reading all entries.

The incumbent's predictions are beside those of earlier ones, and not in the ladder's row, which
changes with each submission.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_INDEXES = {"search": "search IS NOT NULL", "key": "key IS NOT NULL"}
_MARKED = "(improved OR (repeat_of IS NOT NULL AND evidence = '{}'))"

# A run begins where the batch is not that of the holdout's submission before.
_COUNT = """
UPDATE submissions SET runs = counted.runs FROM (
    SELECT id, sum(begins) OVER (PARTITION BY holdout_id ORDER BY id) AS runs FROM (
        SELECT one.id, ladders.holdout_id, CASE WHEN coalesce(one.batch, '') IN (
            '', coalesce(lag(one.batch) OVER (PARTITION BY holdout_id ORDER BY one.id), '')
        ) THEN 0 ELSE 1 END AS begins
        FROM submissions AS one JOIN ladders ON ladders.id = one.ladder_id
    ) AS begun
) AS counted WHERE counted.id = submissions.id
"""
_LAST = """
UPDATE chains SET {column} = last.{column} FROM (
    SELECT ladders.holdout_id, one.{column} FROM submissions AS one
    JOIN ladders ON ladders.id = one.ladder_id
    WHERE one.id IN (
        SELECT max(one.id) FROM submissions AS one
        JOIN ladders ON ladders.id = one.ladder_id GROUP BY ladders.holdout_id
    )
) AS last WHERE last.holdout_id = chains.holdout_id
"""


_MOVE = """
INSERT INTO incumbents (ladder_id, number, predictions, state)
SELECT id, incumbent, incumbent_predictions, state FROM ladders
WHERE incumbent IS NOT NULL AND incumbent_predictions IS NOT NULL
"""
_BACK = """
UPDATE ladders SET incumbent_predictions = kept.predictions FROM incumbents AS kept
WHERE kept.ladder_id = ladders.id AND kept.number = ladders.incumbent
"""
_FORGET = """
DELETE FROM incumbents WHERE EXISTS (
    SELECT 1 FROM ladders
    WHERE ladders.id = incumbents.ladder_id AND ladders.incumbent = incumbents.number
)
"""


def upgrade() -> None:
    op.execute(_MOVE)
    op.drop_column("ladders", "incumbent_predictions")
    for table in ("submissions", "chains"):
        op.add_column(table, sa.Column("runs", sa.Integer, nullable=False, server_default="0"))
    op.add_column("chains", sa.Column("batch", sa.String(32)))
    op.execute(_COUNT)
    for column in ("runs", "batch"):
        op.execute(_LAST.format(column=column))
    op.create_index("ix_submissions_order", "submissions", ["ladder_id", "id"])
    for column, which in _INDEXES.items():
        op.drop_index(f"ix_submissions_{column}", "submissions")
        _index(column, column, which, unique=column == "key")
    _index("marked", "number", _MARKED, unique=False)


def downgrade() -> None:
    op.add_column("ladders", sa.Column("incumbent_predictions", sa.LargeBinary))
    op.execute(_BACK)
    op.execute(_FORGET)
    for name in ("order", "marked", *_INDEXES):
        op.drop_index(f"ix_submissions_{name}", "submissions")
    for column in _INDEXES:
        columns, unique = ["ladder_id", column], column == "key"
        op.create_index(f"ix_submissions_{column}", "submissions", columns, unique=unique)
    op.drop_column("submissions", "runs")
    op.drop_column("chains", "runs")
    op.drop_column("chains", "batch")


def _index(name: str, column: str, which: str, *, unique: bool) -> None:
    where, columns = sa.text(which), ["ladder_id", column]
    op.create_index(
        f"ix_submissions_{name}",
        "submissions",
        columns,
        unique=unique,
        sqlite_where=where,
        postgresql_where=where,
    )
