"""The looks at a holdout in their order, over all its ladders: what certificates count."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from ladderholdout.ledger.tables import events, ladders, submissions


@dataclass(frozen=True, slots=True)
class LookRecord:
    """A submission that was no repeat.

    Attributes
    ----------
    ladder_id, number : int
    position : int
        Of its link in the holdout's chain.
    batch : str or None
    improved : bool
    risk : float
        The released one.
    """

    ladder_id: int
    number: int
    position: int
    batch: str | None
    improved: bool
    risk: float


def read_looks(conn: Connection, holdout_id: int) -> tuple[LookRecord, ...]:
    """Read the looks at a holdout, oldest first."""
    entry = submissions.c
    columns = (entry.ladder_id, entry.number, entry.position, entry.batch)
    query = (
        select(*columns, entry.improved, entry.released_risk)
        .join(ladders)
        .where(ladders.c.holdout_id == holdout_id, entry.repeat_of.is_(None))
        .order_by(entry.position)
    )
    return tuple(LookRecord(*row) for row in conn.execute(query))


def read_openings(conn: Connection, holdout_id: int) -> tuple[int, ...]:
    """Read where in the chain of a holdout audits showed raw scores."""
    query = select(events.c.position).where(
        events.c.holdout_id == holdout_id, events.c.kind == "opened"
    )
    return tuple(conn.execute(query).scalars())
