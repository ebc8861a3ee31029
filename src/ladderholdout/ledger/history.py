"""The submissions on a holdout in their order, over all its ladders: what certificates count.

There may be millions of them, of which few improved. These are read; the others are counted by
the queries and the runs that each submission's row keeps, so that a certificate takes as
long at the millionth. Of holdouts that share rows all submissions are read, for they are in one
order together. A repeat whose answer was known to who submitted it is no query, and counts nowhere.

Holdouts that share rows are read together, in the order of the ids of their submissions: what
was known when a submission was made has a smaller one. Files have one writer, and a server
gives an id while a transaction is open, so after whatever its caller knew was committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
    text,
)

from ladderholdout.errors import LedgerError
from ladderholdout.ledger.prepared import Prepared
from ladderholdout.ledger.records import (
    AT_A_TIME,
    Asked,
    AuditRow,
    Decided,
    Recorded,
    Withdrawal,
    is_known,
    read_all,
    utc,
)
from ladderholdout.ledger.tables import (
    MARKED,
    events,
    ladders,
    read_json,
    submissions,
)


@dataclass(frozen=True, slots=True)
class ImprovementRecord:
    """A submission that improved its ladder.

    Attributes
    ----------
    ladder_id, number : int
    query : int
        Its number among the ladder's queries.
    position : int
        Of its link in the holdout's chain.
    risk : float
        The released one.
    batch : str or None
        Its batch, if it was in one.
    """

    ladder_id: int
    number: int
    query: int
    position: int
    risk: float = field(repr=False)
    batch: str | None


@dataclass(frozen=True, slots=True)
class LadderQueries:
    """The queries of one ladder that had been answered at some moment.

    After the withdrawal of an incumbent another record begins: only up to there do the released
    risks fall.

    Attributes
    ----------
    ladder_id : int
    count : int
    improved : tuple of ImprovementRecord
        Those that became the incumbent, oldest first.
    start : int
        How many queries came before the first of them.
    releases : int
        How many had improved the ladder up to that one.
    """

    ladder_id: int
    count: int
    improved: tuple[ImprovementRecord, ...]
    start: int = 0
    releases: int = 0


class LadderEvents(NamedTuple):
    """What is counted among the submissions to one ladder to number a holdout's events.

    Attributes
    ----------
    ladder_id : int
    alone : int
        Queries without a batch that improved it.
    queries : int
        All of them.
    """

    ladder_id: int
    alone: int
    queries: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """A submission, with all that had been answered when it was chosen.

    Attributes
    ----------
    id : int
        Its place in the one order of all submissions.
    position : int
        Of its link in the holdout's chain.
    until : int
        The id of the last query before it that was not of its batch, 0 without any.
    before : int
        Queries up to that one.
    place : int
        Its own place in its batch; where that is not on record, its place among the
        queries after those, from 1.
    batch : str or None
    runs : int
        Runs of queries of one batch that had begun before, over all ladders.
    events : tuple of LadderEvents
        Of the queries before.
    ladders : tuple of LadderQueries
        Those queries by ladder; with a count of 0 for a ladder that was only used since. The
        one without a batch is the last of its own ladder's.
    """

    id: int
    position: int
    until: int
    before: int
    place: int
    batch: str | None
    runs: int
    events: tuple[LadderEvents, ...]
    ladders: tuple[LadderQueries, ...]


@dataclass(frozen=True, slots=True)
class Used:
    """Some holdouts and their ladders.

    Attributes
    ----------
    holdout_ids : tuple of int
    returns : mapping of int to sequence of int
        By ladder, after how many of its queries it went back to an earlier incumbent.
    """

    holdout_ids: tuple[int, ...]
    returns: Mapping[int, Sequence[int]]


ALL = 2**31 - 1
"""More entries than a ledger holds."""

is_marked: ColumnElement[bool] = text(MARKED)  # type: ignore[assignment]  # as in its index


def read_chosen(conn: Connection, used: Used, ladder_id: int, number: int | None) -> Chosen | None:
    """Read what these holdouts had revealed when a submission was chosen; None without one."""
    values = _ids(used.holdout_ids) | {"ladder": ladder_id, "number": number}
    rows = _chosen(len(used.holdout_ids)).rows(conn, values)
    if not rows:
        return None
    chosen = rows[0]
    batch, until, alone = chosen.own_batch, chosen.until, chosen.own_batch is None
    answered, arrival = _answered(rows)
    released = _segments(answered, used.returns)
    before, events = -alone, []
    for segment in released:
        before += segment.count
    for queries in answered:
        # The last one of its own ladder is the submission itself.
        own = alone and queries.ladder_id == ladder_id
        improved_alone = [record for record in queries.improved if record.batch is None]
        count = len(improved_alone) - own
        events.append(LadderEvents(queries.ladder_id, count, queries.count - own))
    return Chosen(
        id=chosen.own_id,
        position=chosen.own_position,
        until=until,
        before=before,
        place=1 if alone else chosen.own_place or arrival,
        batch=batch,
        runs=chosen.own_runs or 0 if len(used.holdout_ids) == 1 else _runs(conn, used, until),
        events=tuple(events),
        ladders=released,
    )


def _ids(ids: Sequence[int]) -> dict[str, int]:
    """Give ids the names that `_is_one_of` has for them."""
    return {f"id{index}": value for index, value in enumerate(ids)}


def _is_one_of(column: ColumnElement[Any], count: int) -> ColumnElement[bool]:
    """Compare a column with so many ids, in a statement that is made once for each count."""
    return column.in_([bindparam(f"id{index}") for index in range(count)])


@cache
def _chosen(holdouts: int) -> Prepared:
    """Select a submission with what had been answered by then: at least a row for each ladder.

    In its columns `until` is the last one before it that was not of its batch.
    """
    own = submissions.alias("own")
    # The ids are in the one order of all submissions, and the rows are stored by them.
    before_own = (
        select(submissions.c.id)
        .select_from(submissions.join(ladders))
        .where(
            _is_one_of(ladders.c.holdout_id, holdouts),
            submissions.c.id < own.c.id,
            ~is_known,
            or_(own.c.batch.is_(None), submissions.c.batch.is_distinct_from(own.c.batch)),
        )
        .order_by(submissions.c.id.desc())
        .limit(1)
        .correlate(own)
        .scalar_subquery()
    )
    columns = (own.c.id, own.c.position, own.c.batch, own.c.place)
    is_chosen = (own.c.ladder_id == bindparam("ladder"), own.c.number == bindparam("number"))
    chosen = (
        select(
            *(column.label(f"own_{column.name}") for column in columns),
            func.coalesce(before_own, 0).label("until"),
        )
        .where(*is_chosen)
        .limit(1)
        .subquery("chosen")
    )
    runs = select(submissions.c.runs).where(submissions.c.id == chosen.c.until).scalar_subquery()
    # Without a batch, that it improved is part of what is paid for.
    last = case((chosen.c.own_batch.is_(None), chosen.c.own_id), else_=chosen.c.until)
    return _answers(holdouts, last, chosen.c.own_id, *chosen.c, runs.label("own_runs"))


def _runs(conn: Connection, used: Used, until: int) -> int:
    """Count the runs of queries of one batch up to a submission."""
    entry = submissions.c
    last = func.lag(entry.batch).over(order_by=entry.id).label("last")
    # Named, for SQLAlchemy draws a name otherwise, anew for each statement.
    query = _submitted(used.holdout_ids, entry.batch, last).where(entry.id <= until, ~is_known)
    batch = query.subquery("submitted").c
    begins = batch.batch.is_not(None) & batch.batch.is_distinct_from(batch.last)
    return int(conn.execute(select(func.count()).where(begins)).scalar_one())


def read_answered(conn: Connection, used: Used, until: int) -> tuple[LadderQueries, ...]:
    """Read the submissions on some holdouts up to that of this id, by ladder."""
    rows = _up_to(len(used.holdout_ids)).rows(conn, _ids(used.holdout_ids) | {"until": until})
    answered, _ = _answered(rows)
    return _segments(answered, used.returns)


@cache
def _up_to(holdouts: int) -> Prepared:
    """Select what had been answered up to a submission."""
    return _answers(holdouts, bindparam("until"), bindparam("until"))


def _answers(
    holdouts: int, last: ColumnElement[Any], latest: ColumnElement[Any], *more: ColumnElement[Any]
) -> Prepared:
    """Select by ladder how many queries there were up to two submissions, and the marked ones.

    Each marked submission up to the first of the two, `last`, has a row, and so has a ladder
    without any.
    """

    def number(most: ColumnElement[Any], name: str, what: str = "queries") -> ColumnElement[Any]:
        entry = submissions.c
        numbers = select(entry[what]).where(entry.ladder_id == ladders.c.id, entry.id <= most)
        # What the last submission's row keeps counts them.
        return numbers.order_by(entry.id.desc()).limit(1).scalar_subquery().label(name)

    counted = (
        select(
            *more,
            last.label("last"),
            ladders.c.id.label("ladder_id"),
            number(last, "latest", "number"),
            number(last, "counted"),
            number(latest, "every"),
        )
        .where(_is_one_of(ladders.c.holdout_id, holdouts))
        # For each row of the answer anew the databases would count without a limit.
        .limit(ALL)
        .subquery("counts")
    )
    entry = submissions.c
    marked = and_(
        entry.ladder_id == counted.c.ladder_id,
        is_marked,
        # By the index of ids, with no bounds on numbers, SQLite might read all entries.
        entry.number.between(1, counted.c.latest),
    )
    query = select(*counted.c, *_OF_MARKED).select_from(
        counted.join(submissions, marked, isouter=True)
    )
    return Prepared(query.order_by(counted.c.ladder_id, entry.number))


_OF_MARKED = tuple(
    submissions.c[name] for name in ("number", "queries", "position", "released_risk", "batch")
)


def _answered(rows: Sequence[Any]) -> tuple[list[LadderQueries], int]:
    """Return the queries by ladder up to a submission, and how many came from there to another."""
    counts, later = {}, 0
    for row in rows:
        if row.every and row.ladder_id not in counts:
            counts[row.ladder_id] = row.counted or 0
            later += row.every - counts[row.ladder_id]
    improved: dict[int, list[ImprovementRecord]] = {ladder_id: [] for ladder_id in counts}
    for row in rows:
        if row.number:
            about = row.ladder_id, row.number, row.queries, row.position
            improved[row.ladder_id].append(ImprovementRecord(*about, row.released_risk, row.batch))
    answered = [
        LadderQueries(ladder_id, count, tuple(improved[ladder_id]))
        for ladder_id, count in counts.items()
    ]
    return answered, later


def _segments(
    answered: Sequence[LadderQueries], returns: Mapping[int, Sequence[int]]
) -> tuple[LadderQueries, ...]:
    """Cut the queries of each ladder where it went back: only up to there do values fall."""
    segments = []
    for queries in answered:
        if not queries.count or queries.ladder_id not in returns:
            segments.append(queries)
            continue
        start = 0
        for until in [*returns[queries.ladder_id], queries.count]:
            end = min(until, queries.count)
            if end > start:
                segments.append(
                    replace(
                        queries,
                        count=end - start,
                        improved=tuple(r for r in queries.improved if start < r.query <= end),
                        start=start,
                        releases=sum(r.query <= start for r in queries.improved),
                    )
                )
            start = end
    return tuple(segments)


def read_used(
    conn: Connection, holdout_ids: Sequence[int], withdrawn: Iterable[EventRecord]
) -> Used:
    """Read after how many queries the ladders of some holdouts went back."""
    returns: dict[int, list[int]] = {}
    for event in withdrawn:
        withdrawal = read_withdrawal(event)
        if withdrawal.replaced and event.ladder_id is not None:
            queries = _queries_up_to(conn, event.ladder_id, withdrawal.until)
            returns.setdefault(event.ladder_id, []).append(queries)
    return Used(tuple(holdout_ids), returns)


def _queries_up_to(conn: Connection, ladder_id: int, number: int) -> int:
    """Return how many queries a ladder had answered up to a submission."""
    entry = submissions.c
    query = select(entry.queries).where(entry.ladder_id == ladder_id, entry.number == number)
    return int(conn.execute(query).scalar_one())


def read_decided(
    conn: Connection, ladder_id: int, number: int, asked: Asked, withdrawn: Iterable[Withdrawal]
) -> Decided:
    """Read what a gate decided on in a submission."""
    entry = submissions.c
    gone = [withdrawal.number for withdrawal in withdrawn if withdrawal.until < number]
    before = entry.ladder_id == ladder_id, entry.number < number, is_marked
    count = select(func.count()).where(*before)
    incumbent = select(func.max(entry.number)).where(*before, entry.number.not_in(gone))
    is_it = entry.ladder_id == ladder_id, entry.number == number
    digests = conn.execute(select(entry.digest, entry.reserve_digest).where(*is_it)).one()
    return Decided(
        same=tuple(digests) == (asked.digest, asked.reserve_digest),
        against=conn.execute(incumbent).scalar_one(),
        margin=read_margins(conn, ladder_id, number=number)[0],
        # The baseline is no candidate.
        candidates=max(_queries_up_to(conn, ladder_id, number) - 2, 0),
        releases=conn.execute(count).scalar_one(),
    )


def read_margins(conn: Connection, ladder_id: int, **which: Any) -> list[float]:
    """Read the gains that a gate tested some queries for; 0 if it tested none."""
    query = select(submissions.c.evidence).filter_by(ladder_id=ladder_id, repeat_of=None, **which)
    queried = conn.execute(query).scalars()
    return [read_json(evidence).get("margin") or 0.0 for evidence in queried]


def read_improved(conn: Connection, holdout_id: int) -> tuple[ImprovementRecord, ...]:
    """Read the submissions that improved a ladder of a holdout, oldest first."""
    entry = submissions.c
    names = ("ladder_id", "number", "queries", "position", "released_risk", "batch")
    query = _submitted([holdout_id], *(entry[name] for name in names)).where(is_marked)
    return tuple(ImprovementRecord(*row) for row in conn.execute(query.order_by(entry.id)))


class IncumbentRecord(NamedTuple):
    """The submission that is the incumbent of a ladder.

    Attributes
    ----------
    ladder_id : int
    id : int
        Its place in the one order of all submissions.
    time : datetime
    """

    ladder_id: int
    id: int
    time: datetime


def read_incumbents(conn: Connection, holdout_id: int) -> dict[int, IncumbentRecord]:
    """Read the incumbents of all ladders of a holdout, by ladder."""
    entry = submissions.c
    query = _submitted([holdout_id], entry.ladder_id, entry.id, entry.time)
    rows = conn.execute(query.where(entry.number == ladders.c.incumbent))
    return {ladder_id: IncumbentRecord(ladder_id, id_, utc(time)) for ladder_id, id_, time in rows}


def _submitted(holdout_ids: Sequence[int], *columns: ColumnElement[Any]) -> Select[Any]:
    return (
        select(*columns)
        .select_from(submissions.join(ladders))
        .where(ladders.c.holdout_id.in_(holdout_ids))
    )


def read_recorded(conn: Connection, ladder_id: int) -> Iterator[Recorded]:
    """Read the submissions to a ladder in their order, some at a time, as a replay needs them."""
    columns = ("number", "repeat_of", "improved", "released_risk", "evidence")
    for rows in _blocks(conn, ladder_id, *columns, "digest", "reserve_digest", "queries"):
        yield from read_all(rows, _recorded)


def _recorded(row: Sequence[Any]) -> Recorded:
    number, repeat_of, improved, risk, evidence, *others = row
    return Recorded(number, repeat_of, improved, risk, read_json(evidence), *others)


def read_audited(conn: Connection, ladder_id: int) -> Iterator[tuple[AuditRow, ...]]:
    """Read the submissions to a ladder in their order, some at a time, as an audit needs them."""
    columns = ("number", "time", "batch", "repeat_of", "improved", "released_risk", "raw_risk")
    for rows in _blocks(conn, ladder_id, *columns, "disagreement", "context", "evidence"):
        yield read_all(rows, _audit_row)


def _audit_row(row: Sequence[Any]) -> AuditRow:
    number, time, batch, repeat_of, improved, released, risk, distance, context, evidence = row
    read_json(context)  # whether it can be read
    values = (number, utc(time), batch, repeat_of, improved, released, risk, distance)
    return AuditRow(*values, read_json(evidence), context)


def _blocks(conn: Connection, ladder_id: int, *columns: str) -> Iterator[Sequence[Any]]:
    """Select columns of a ladder's submissions; on a server the rest waits in a cursor there."""
    query = select(*(submissions.c[name] for name in columns))
    ordered = query.where(submissions.c.ladder_id == ladder_id).order_by(submissions.c.number)
    with conn.execute(ordered, execution_options={"yield_per": AT_A_TIME}) as rows:
        yield from rows.partitions(AT_A_TIME)


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event of a holdout, with its places in two orders.

    Attributes
    ----------
    ladder_id : int or None
    position : int
        Of its link in the holdout's chain.
    after : int
        The id of the last submission to any holdout before it.
    kind : str
    detail : str or None
        What else is known of it, as JSON: of an asking, which submission was the incumbent.
    """

    ladder_id: int | None
    position: int
    after: int
    kind: str
    detail: str | None


def read_events(conn: Connection, holdout_id: int, *kinds: str) -> tuple[EventRecord, ...]:
    """Read the events of a holdout of these kinds (of a kind's first word), oldest first."""
    return tuple(EventRecord(*row) for row in _noted(kinds).rows(conn, {"holdout": holdout_id}))


def is_of(kinds: Iterable[str]) -> ColumnElement[bool]:
    """Return whether an event is of one of these kinds, by its first word."""
    kind = events.c.kind
    return or_(*(fits for word in kinds for fits in (kind == word, kind.startswith(f"{word} "))))


@cache
def _noted(kinds: tuple[str, ...]) -> Prepared:
    query = (
        select(
            events.c.ladder_id,
            events.c.position,
            events.c.after,
            events.c.kind,
            events.c.detail,
        )
        .where(events.c.holdout_id == bindparam("holdout"), is_of(kinds))
        .order_by(events.c.position)
    )
    return Prepared(query)


def read_withdrawal(event: Any) -> Withdrawal:
    """Read a withdrawal from its event."""
    try:
        values = json.loads(event.detail)
        values["time"] = utc(datetime.fromisoformat(values["time"]))
        return Withdrawal(**values, position=event.position)
    except (KeyError, TypeError, ValueError):
        raise LedgerError(
            "The ledger holds a withdrawal that was changed and cannot be read any more. "
            "`ladder-holdout verify NAME` names it; restore the ledger from a backup."
        ) from None
