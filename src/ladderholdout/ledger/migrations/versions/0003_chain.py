"""Entries are chained by hash, one chain a holdout; a holdout may be retired.

What is in the ledger already is chained as it is: from then on no change goes unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from alembic import op

from ladderholdout.ledger import chain

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

Row: TypeAlias = Mapping[str, Any]


def upgrade() -> None:
    op.add_column("holdouts", sa.Column("retired", sa.DateTime(timezone=True)))
    op.create_table(
        "chains",
        sa.Column("holdout_id", sa.Integer, sa.ForeignKey("holdouts.id"), primary_key=True),
        sa.Column("length", sa.Integer, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("holdout_id", sa.Integer, sa.ForeignKey("holdouts.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("ladder_id", sa.Integer, sa.ForeignKey("ladders.id")),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.add_column("submissions", sa.Column("position", sa.Integer))
    op.add_column("submissions", sa.Column("hash", sa.String(64)))
    _chain_all(op.get_bind())
    with op.batch_alter_table("submissions") as batch:
        batch.alter_column("position", existing_type=sa.Integer, nullable=False)
        batch.alter_column("hash", existing_type=sa.String(64), nullable=False)


def downgrade() -> None:
    with op.batch_alter_table("submissions") as batch:
        batch.drop_column("hash")
        batch.drop_column("position")
    op.drop_table("events")
    op.drop_table("chains")
    op.drop_column("holdouts", "retired")


def _chain_all(conn: sa.Connection) -> None:
    # As they are now: the tables of the library may have moved on since.
    found = sa.MetaData()
    found.reflect(conn)
    for holdout in conn.execute(sa.select(found.tables["holdouts"])).all():
        _chain(conn, found.tables, holdout._asdict())


def _chain(conn: sa.Connection, tables: Mapping[str, sa.Table], holdout: Row) -> None:
    ladders, submissions = tables["ladders"], tables["submissions"]
    of_holdout = sa.select(ladders).where(ladders.c.holdout_id == holdout["id"])
    started = [row._asdict() for row in conn.execute(of_holdout.order_by(ladders.c.id))]
    theirs = submissions.c.ladder_id.in_([ladder["id"] for ladder in started])
    of_ladders = sa.select(submissions).where(theirs).order_by(submissions.c.id)
    entries = [row._asdict() for row in conn.execute(of_ladders)]
    end, placed, noted = chain.EMPTY, [], []
    for kind, content, row in _links(holdout, started, entries):
        end = chain.extend(holdout["secret"], end, kind, content)
        if kind == "submission":
            placed.append({"entry": row["id"], "position": end.length, "hash": end.hash})
        else:
            about = {"holdout_id": holdout["id"], "position": end.length, "kind": kind}
            ladder_id = None if row is holdout else row["id"]
            noted.append(about | {"ladder_id": ladder_id, "hash": end.hash})
    conn.execute(sa.insert(tables["events"]), noted)
    if placed:
        where = submissions.c.id == sa.bindparam("entry")
        conn.execute(sa.update(submissions).where(where), placed)
    values = {"holdout_id": holdout["id"], "length": end.length, "head": end.hash}
    conn.execute(sa.insert(tables["chains"]), values)


def _links(
    holdout: Row, started: Sequence[Row], entries: Sequence[Row]
) -> Iterator[tuple[str, chain.Content, Row]]:
    """Put what happened in order; the order of the submissions is that of their ids."""
    yield "holdout", chain.holdout_content(holdout), holdout
    if holdout["classes"] is not None:
        yield "classes", chain.classes_content(holdout), holdout
    for ladder in started:
        yield "ladder", chain.ladder_content(ladder), ladder
    opened = sorted((one for one in started if one["opened"]), key=lambda one: one["opened"])
    for entry in entries:
        while opened and opened[0]["opened"] <= entry["time"]:
            yield "opened", chain.opened_content(opened[0]), opened.pop(0)
        yield "submission", chain.submission_content(entry), entry
    for ladder in opened:
        yield "opened", chain.opened_content(ladder), ladder
