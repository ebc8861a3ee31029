"""The looks at a holdout in their order, over all its ladders: what certificates count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

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
    risk: float = field(repr=False)


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


@dataclass(frozen=True, slots=True)
class AskRecord:
    """Somebody asked for the standing score of a ladder that does not tell it.

    Attributes
    ----------
    ladder_id : int
    position : int
        Of its link in the holdout's chain.
    """

    ladder_id: int
    position: int


def read_askings(conn: Connection, holdout_id: int) -> tuple[AskRecord, ...]:
    """Read when standing scores of a holdout's ladders were asked for, oldest first."""
    query = (
        select(events.c.ladder_id, events.c.position)
        .where(events.c.holdout_id == holdout_id, events.c.kind == "asked")
        .order_by(events.c.position)
    )
    return tuple(AskRecord(*row) for row in conn.execute(query))


def asked_looks(
    looks: Iterable[LookRecord], askings: Iterable[AskRecord]
) -> dict[tuple[int, int], int]:
    """Return where in the chain the value of each look was first asked for, if it was.

    Parameters
    ----------
    looks : iterable of LookRecord
    askings : iterable of AskRecord

    Returns
    -------
    dict of (ladder id, number) to position
        What is asked for is the incumbent: the last look of the ladder that improved.
    """
    improvers = [look for look in looks if look.improved]
    found: dict[tuple[int, int], int] = {}
    for one in askings:
        before = [
            look.number
            for look in improvers
            if look.ladder_id == one.ladder_id and look.position < one.position
        ]
        if before:
            found.setdefault((one.ladder_id, max(before)), one.position)
    return found


def read_openings(conn: Connection, holdout_id: int) -> tuple[int, ...]:
    """Read where in the chain of a holdout audits showed raw scores."""
    query = select(events.c.position).where(
        events.c.holdout_id == holdout_id, events.c.kind == "opened"
    )
    return tuple(conn.execute(query).scalars())
