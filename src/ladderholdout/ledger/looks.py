"""The looks at a holdout in their order, over all its ladders: what certificates count.

There may be millions of them, of which few improved. So the others are counted where they
lie, and no query reads beyond the look that is asked about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from ladderholdout.ledger.chain import RESTORED
from ladderholdout.ledger.tables import events, ladders, submissions


@dataclass(frozen=True, slots=True)
class LookRecord:
    """A submission that was no repeat.

    Attributes
    ----------
    ladder_id, number : int
    place : int
        Among the looks through its ladder, from 1.
    position : int
        Of its link in the holdout's chain.
    risk : float
        The released one.
    """

    ladder_id: int
    number: int
    place: int
    position: int
    risk: float = field(repr=False)


@dataclass(frozen=True, slots=True)
class LadderLooks:
    """The looks through one ladder that had been answered at some moment.

    Attributes
    ----------
    ladder_id : int
    count : int
        How many.
    improved : tuple of LookRecord
        Those that became the incumbent, oldest first.
    """

    ladder_id: int
    count: int
    improved: tuple[LookRecord, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A look, with all that had been answered when it was chosen.

    Attributes
    ----------
    position : int
        Of its link in the holdout's chain.
    before : int
        Looks at the holdout up to the last one before it that was not of its batch.
    place : int
        Its place among the looks after those, from 1.
    ladders : tuple of LadderLooks
        Those looks by ladder; with a count of 0 for a ladder that was only looked at since.
    """

    position: int
    before: int
    place: int
    ladders: tuple[LadderLooks, ...]


def read_chosen(
    conn: Connection, holdout_id: int, ladder_id: int, number: int | None
) -> Chosen | None:
    """Read what had been told of a holdout when a submission was chosen; None without one."""
    entry = submissions.c
    query = select(entry.id, entry.position, entry.batch).where(
        entry.ladder_id == ladder_id, entry.number == number
    )
    own = conn.execute(query).one_or_none()
    if own is None:
        return None
    # The ids are in the one order of all submissions on a holdout, and the rows lie by them.
    until = _last_of_others(conn, holdout_id, own)
    counts = conn.execute(_counts(holdout_id, own.id, until)).all()
    improved = read_improved(conn, holdout_id, until)
    told = tuple(
        LadderLooks(one, count, tuple(look for look in improved if look.ladder_id == one))
        for one, count, _ in counts
    )
    before = sum(ladder.count for ladder in told)
    return Chosen(own.position, before, sum(row.looks for row in counts) - before, told)


def read_improved(
    conn: Connection, holdout_id: int, until: int | None = None
) -> tuple[LookRecord, ...]:
    """Read the looks that improved a ladder of a holdout, oldest first.

    Parameters
    ----------
    conn : Connection
    holdout_id : int
    until : int or None
        The id of the last submission that counts; None for all.
    """
    entry = submissions.c
    place = func.row_number().over(partition_by=entry.ladder_id, order_by=entry.number)
    looks = _looks(
        holdout_id,
        entry.id,
        entry.ladder_id,
        entry.number,
        place.label("place"),
        entry.position,
        entry.released_risk,
        entry.improved,
    )
    if until is not None:
        looks = looks.where(entry.id <= until)
    found = looks.subquery().c
    query = select(
        found.ladder_id, found.number, found.place, found.position, found.released_risk
    ).where(found.improved)
    return tuple(LookRecord(*row) for row in conn.execute(query.order_by(found.id)))


def _looks(holdout_id: int, *columns: ColumnElement[Any]) -> Select[Any]:
    return (
        select(*columns)
        .select_from(submissions.join(ladders))
        .where(ladders.c.holdout_id == holdout_id, submissions.c.repeat_of.is_(None))
    )


def _last_of_others(conn: Connection, holdout_id: int, own: Any) -> int:
    """Return the id of the last look before one that is not of its batch, 0 without any."""
    query = _looks(holdout_id, submissions.c.id).where(submissions.c.id < own.id)
    if own.batch is not None:
        query = query.where(submissions.c.batch.is_distinct_from(own.batch))
    return conn.execute(query.order_by(submissions.c.id.desc()).limit(1)).scalar() or 0


def _counts(holdout_id: int, own: int, until: int) -> Select[Any]:
    entry = submissions.c
    told = func.count().filter(entry.id <= until)
    counted = (entry.ladder_id, told.label("told"), func.count().label("looks"))
    query = _looks(holdout_id, *counted).where(entry.id <= own)
    return query.group_by(entry.ladder_id).order_by(entry.ladder_id)


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
    improved: Iterable[LookRecord], askings: Iterable[AskRecord]
) -> dict[tuple[int, int], int]:
    """Return where in the chain the value of each look was first asked for, if it was.

    Parameters
    ----------
    improved : iterable of LookRecord
        Oldest first.
    askings : iterable of AskRecord

    Returns
    -------
    dict of (ladder id, number) to position
        What is asked for is the incumbent: the last look of the ladder that improved.
    """
    improvers = list(improved)
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


def read_restorings(conn: Connection, holdout_id: int) -> tuple[tuple[int, int], ...]:
    """Read where older copies of the ledger were found in place, and what length was known."""
    query = select(events.c.position, events.c.kind).where(
        events.c.holdout_id == holdout_id, events.c.kind.startswith(f"{RESTORED} ")
    )
    found = conn.execute(query.order_by(events.c.position))
    return tuple((row.position, int(row.kind.split()[1])) for row in found)
