"""A chain that was made anew, as whoever owns the file and knows this library can."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import Connection, select, text, update

from ladderholdout.ledger import Access, resolve_url
from ladderholdout.ledger import connections as engine
from ladderholdout.ledger.chain import Chains, extend, read_facts
from ladderholdout.ledger.records import EMPTY
from ladderholdout.ledger.tables import chains, events, holdouts

TABLES = {"submission": "submissions", "look": "reserve_looks"}


def rechain(path: Path) -> None:
    """Chain each holdout of a ledger anew over what its tables hold now."""
    with engine.connection(engine.source(resolve_url(path)), Access.ALL) as conn:
        for (holdout_id,) in conn.execute(select(holdouts.c.id)).all():
            _note_what_is_there(conn, holdout_id)
            _chain(conn, holdout_id)


def _note_what_is_there(conn: Connection, holdout_id: int) -> None:
    """Let the last note on the rows state what is stored of them now."""
    of_rows = (events.c.holdout_id == holdout_id) & (events.c.kind == "rows")
    last = select(events.c.position).where(of_rows).order_by(events.c.position.desc())
    position = conn.execute(last).scalars().first()
    detail = json.dumps(read_facts(conn, holdout_id))
    conn.execute(update(events).where(of_rows, events.c.position == position).values(detail=detail))


def _chain(conn: Connection, holdout_id: int) -> None:
    own = select(holdouts.c.secret).where(holdouts.c.id == holdout_id)
    secret, end = conn.execute(own).scalar_one(), EMPTY
    for link in list(Chains(conn, str(conn.engine.url)).links(holdout_id)):
        assert link.content is not None
        end = extend(secret, end, link.kind, link.content)
        table = TABLES.get(link.kind, "events")
        whose = (
            "ladder_id IN (SELECT id FROM ladders WHERE holdout_id = :holdout)"
            if table == "submissions"
            else "holdout_id = :holdout"
        )
        values = {"to": end.length, "hash": end.hash, "at": link.position, "holdout": holdout_id}
        moved = f"UPDATE {table} SET position = :to, hash = :hash WHERE position = :at AND {whose}"
        conn.execute(text(moved), values)
    ends = update(chains).where(chains.c.holdout_id == holdout_id)
    conn.execute(ends.values(length=end.length, head=end.hash))
