"""The submissions on a holdout in their order, over all its ladders: what certificates count.

There may be millions of them, of which few improved. These are read; the others are counted by
their numbers and by the runs that each submission's row keeps, so that a certificate takes as
long at the millionth. All of them are read of holdouts that share rows, whose submissions are in
one order together, and all repeats where they are answered in their own way.

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

import numpy as np
from numpy.typing import NDArray
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

from ladderholdout.certificates.transcript import COUNT_NOISE
from ladderholdout.errors import LedgerError
from ladderholdout.ledger.prepared import Prepared
from ladderholdout.ledger.records import (
    AT_A_TIME,
    AuditRow,
    Recorded,
    Withdrawal,
    booleans,
    read_all,
    utc,
)
from ladderholdout.ledger.tables import (
    MARKED,
    events,
    ladders,
    read_json,
    reserve_looks,
    submissions,
)


@dataclass(frozen=True, slots=True)
class ImprovementRecord:
    """A submission that improved its ladder.

    Attributes
    ----------
    ladder_id, number : int
    position : int
        Of its link in the holdout's chain.
    risk : float
        The released one.
    alone : bool
        Whether it was in no batch.
    """

    ladder_id: int
    number: int
    position: int
    risk: float = field(repr=False)
    alone: bool


@dataclass(frozen=True, slots=True)
class RepeatRecord:
    """A submission that got the answer of an earlier one.

    Attributes
    ----------
    ladder_id, number : int
    improved : bool
    risk : float
        The released one.
    """

    ladder_id: int
    number: int
    improved: bool
    risk: float = field(repr=False)


@dataclass(frozen=True, slots=True)
class LadderQueries:
    """The submissions to one ladder that had been answered at some moment.

    After the withdrawal of an incumbent another record begins: only up to there do the released
    risks fall.

    Attributes
    ----------
    ladder_id : int
    count : int
        How many, with repeats.
    improved : tuple of ImprovementRecord
        Those that became the incumbent, oldest first.
    repeats : tuple of RepeatRecord
        Those that got the answer of an earlier one, oldest first.
    start : int
        The number of the submission before the first of them; 0 for the ladder's first ones.
    releases : int
        How many had improved the ladder up to that one.
    """

    ladder_id: int
    count: int
    improved: tuple[ImprovementRecord, ...]
    repeats: tuple[RepeatRecord, ...] = ()
    start: int = 0
    releases: int = 0


class LadderEvents(NamedTuple):
    """What is counted among the submissions to one ladder to number a holdout's events.

    Attributes
    ----------
    ladder_id : int
    alone : int
        Submissions without a batch that improved it.
    submissions : int
        All of them.
    """

    ladder_id: int
    alone: int
    submissions: int


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
        Submissions up to that one.
    place : int
        Its own place in its batch; where that is not on record, its place among the
        submissions after those, from 1.
    batch : str or None
    runs : int
        Runs of submissions of one batch that had begun before, over all ladders.
    events : tuple of LadderEvents
        Of the submissions before.
    ladders : tuple of LadderQueries
        Those submissions by ladder; with a count of 0 for a ladder that was only used since. The
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
    plain : mapping of int to bool
        By ladder, whether all repeats that count are among the marked submissions.
    returns : mapping of int to sequence of int
        By ladder, after which of its submissions it went back to an earlier incumbent.
    """

    holdout_ids: tuple[int, ...]
    plain: Mapping[int, bool]
    returns: Mapping[int, Sequence[int]]


ALL = 2**31 - 1
"""More entries than a ledger holds."""

is_marked: ColumnElement[bool] = text(MARKED)  # type: ignore[assignment]  # as in its index


def read_chosen(conn: Connection, used: Used, ladder_id: int, number: int | None) -> Chosen | None:
    """Read what these holdouts had revealed when a submission was chosen; None without one."""
    given = _named(used.holdout_ids) | {"ladder": ladder_id, "number": number}
    rows = _chosen(len(used.holdout_ids)).rows(conn, given)
    if not rows:
        return None
    own = rows[0]
    batch, until = own.own_batch, own.until
    answered, arrival = _answered(conn, used, rows)
    released = tuple(part for one in answered for part in _segments(one, used.returns))
    before = sum(ladder.count for ladder in released) - (batch is None)
    place = 1 if batch is None else own.own_place or arrival
    runs = own.own_runs or 0 if len(used.holdout_ids) == 1 else _runs(conn, used, until)
    events = tuple(_events(one, batch is None and one.ladder_id == ladder_id) for one in answered)
    return Chosen(own.own_id, own.own_position, until, before, place, batch, runs, events, released)


def _named(ids: Sequence[int]) -> dict[str, int]:
    """Give ids the names that `_one_of` has for them."""
    return {f"id{at}": one for at, one in enumerate(ids)}


def _one_of(column: ColumnElement[Any], count: int) -> ColumnElement[bool]:
    """Compare a column with so many ids: a statement for each count is made once."""
    return column.in_([bindparam(f"id{at}") for at in range(count)])


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
            _one_of(ladders.c.holdout_id, holdouts),
            submissions.c.id < own.c.id,
            or_(own.c.batch.is_(None), submissions.c.batch.is_distinct_from(own.c.batch)),
        )
        .order_by(submissions.c.id.desc())
        .limit(1)
        .correlate(own)
        .scalar_subquery()
    )
    columns = (own.c.id, own.c.position, own.c.batch, own.c.place)
    asked = (own.c.ladder_id == bindparam("ladder"), own.c.number == bindparam("number"))
    chosen = (
        select(
            *(one.label(f"own_{one.name}") for one in columns),
            func.coalesce(before_own, 0).label("until"),
        )
        .where(*asked)
        .limit(1)
        .subquery("chosen")
    )
    runs = select(submissions.c.runs).where(submissions.c.id == chosen.c.until).scalar_subquery()
    # Without a batch, that it improved is part of what is paid for.
    last = case((chosen.c.own_batch.is_(None), chosen.c.own_id), else_=chosen.c.until)
    return _answers(holdouts, last, chosen.c.own_id, *chosen.c, runs.label("own_runs"))


def _events(queries: LadderQueries, own: bool) -> LadderEvents:
    """Count the events of a ladder; its last one is left out where it is the incumbent's own."""
    alone = sum(one.alone for one in queries.improved)
    return LadderEvents(queries.ladder_id, alone - own, queries.count - own)


def _runs(conn: Connection, used: Used, until: int) -> int:
    """Count the runs of submissions of one batch up to a submission."""
    entry = submissions.c
    last = func.lag(entry.batch).over(order_by=entry.id).label("last")
    # Named, for SQLAlchemy draws a name otherwise, anew for each statement.
    every = _submitted(used.holdout_ids, entry.batch, last).where(entry.id <= until)
    batch = every.subquery("submitted").c
    begins = batch.batch.is_not(None) & batch.batch.is_distinct_from(batch.last)
    return int(conn.execute(select(func.count()).where(begins)).scalar_one())


def read_answered(conn: Connection, used: Used, until: int) -> tuple[LadderQueries, ...]:
    """Read the submissions on some holdouts up to that of this id, by ladder."""
    given = _named(used.holdout_ids) | {"until": until}
    answered, _ = _answered(conn, used, _up_to(len(used.holdout_ids)).rows(conn, given))
    return tuple(part for one in answered for part in _segments(one, used.returns))


@cache
def _up_to(holdouts: int) -> Prepared:
    """Select what had been answered up to a submission."""
    return _answers(holdouts, bindparam("until"), bindparam("until"))


def _answers(
    holdouts: int, last: ColumnElement[Any], latest: ColumnElement[Any], *more: ColumnElement[Any]
) -> Prepared:
    """Select by ladder how many submissions there were up to two of them, and the marked ones.

    Of the latter those up to the first of the two, `last`: a row for each, and one for a ladder
    without any.
    """

    def number(most: ColumnElement[Any], name: str) -> ColumnElement[Any]:
        entry = submissions.c
        own = select(entry.number).where(entry.ladder_id == ladders.c.id, entry.id <= most)
        # By the number of its last one.
        return own.order_by(entry.id.desc()).limit(1).scalar_subquery().label(name)

    counted = (
        select(
            *more,
            last.label("last"),
            ladders.c.id.label("counted_id"),
            number(last, "counted"),
            number(latest, "every"),
        )
        .where(_one_of(ladders.c.holdout_id, holdouts))
        # For each row of the answer anew the databases would count without a limit.
        .limit(ALL)
        .subquery("counts")
    )
    entry = submissions.c
    marked = and_(
        entry.ladder_id == counted.c.counted_id,
        is_marked,
        # By the index of ids, with no bounds on numbers, SQLite might read all entries.
        entry.number.between(1, counted.c.counted),
    )
    query = select(*counted.c, *_OF_MARKED).select_from(
        counted.join(submissions, marked, isouter=True)
    )
    return Prepared(query.order_by(counted.c.counted_id, entry.number))


_OF_MARKED = tuple(
    submissions.c[name]
    for name in ("number", "position", "released_risk", "improved", "repeat_of", "batch")
)


def _answered(
    conn: Connection, used: Used, rows: Sequence[Any]
) -> tuple[tuple[LadderQueries, ...], int]:
    """Return the submissions by ladder up to one, and how many came from there to a later one."""
    counts = {row.counted_id: (row.counted or 0, row.every) for row in rows if row.every}
    odd = [one for one in counts if not used.plain[one]]
    named = [(row.counted_id, row) for row in rows if row.number and row.counted_id not in odd]
    if odd:
        every = _repeated(len(odd)).rows(conn, _named(odd) | {"until": rows[0].last})
        named += [(row.ladder_id, row) for row in every]
    improved: dict[int, list[ImprovementRecord]] = {}
    repeats: dict[int, list[RepeatRecord]] = {}
    for ladder, one in named:
        if one.repeat_of is None:
            better = ImprovementRecord(
                ladder, one.number, one.position, one.released_risk, one.batch is None
            )
            improved.setdefault(ladder, []).append(better)
        else:
            again = RepeatRecord(ladder, one.number, one.improved, one.released_risk)
            repeats.setdefault(ladder, []).append(again)
    found = tuple(
        LadderQueries(one, count, tuple(improved.get(one, ())), tuple(repeats.get(one, ())))
        for one, (count, _) in counts.items()
    )
    return found, sum(every - count for count, every in counts.values())


@cache
def _repeated(count: int) -> Prepared:
    """Select the submissions to ladders of which a certificate names all repeats."""
    entry = submissions.c
    query = select(entry.ladder_id, *_OF_MARKED).where(
        _one_of(entry.ladder_id, count),
        or_(entry.improved, entry.repeat_of.is_not(None)),
        entry.id + 0 <= bindparam("until"),
    )
    return Prepared(query.order_by(entry.ladder_id, entry.number))


def _segments(
    queries: LadderQueries, returns_of: Mapping[int, Sequence[int]]
) -> Iterator[LadderQueries]:
    """Cut the submissions to a ladder where it went back: only up to there do values fall."""
    returns = returns_of.get(queries.ladder_id, ())
    if not queries.count:
        yield queries
    start = 0
    for at in [*returns, queries.count]:
        end = min(at, queries.count)
        if end > start:
            # The number before the first of them is left free, for a repeat is never the first.
            yield replace(
                queries,
                count=end - start + (start > 0),
                improved=tuple(one for one in queries.improved if start < one.number <= end),
                repeats=tuple(one for one in queries.repeats if start < one.number <= end),
                start=start - (start > 0),
                releases=sum(one.number <= start for one in queries.improved),
            )
        start = end


def read_improved(conn: Connection, holdout_id: int) -> tuple[ImprovementRecord, ...]:
    """Read the submissions that improved a ladder of a holdout, oldest first."""
    entry = submissions.c
    columns = (entry.ladder_id, entry.number, entry.position, entry.released_risk)
    query = _submitted([holdout_id], *columns, entry.batch.is_(None)).where(
        is_marked, entry.improved, entry.repeat_of.is_(None)
    )
    return tuple(ImprovementRecord(*row) for row in conn.execute(query.order_by(entry.id)))


def _submitted(holdout_ids: Sequence[int], *columns: ColumnElement[Any]) -> Select[Any]:
    return (
        select(*columns)
        .select_from(submissions.join(ladders))
        .where(ladders.c.holdout_id.in_(holdout_ids))
    )


def read_recorded(conn: Connection, ladder_id: int) -> Iterator[Recorded]:
    """Read the submissions to a ladder in their order, some at a time, as a replay needs them."""
    columns = ("number", "repeat_of", "improved", "released_risk", "evidence")
    for some in _blocks(conn, ladder_id, *columns, "digest", "reserve_digest"):
        yield from read_all(some, _recorded)


def _recorded(row: Sequence[Any]) -> Recorded:
    number, repeat_of, improved, risk, evidence, *digests = row
    return Recorded(number, repeat_of, improved, risk, read_json(evidence), *digests)


def read_audited(conn: Connection, ladder_id: int) -> Iterator[tuple[AuditRow, ...]]:
    """Read the submissions to a ladder in their order, some at a time, as an audit needs them."""
    columns = ("number", "time", "batch", "repeat_of", "improved", "released_risk", "raw_risk")
    for some in _blocks(conn, ladder_id, *columns, "disagreement", "context", "evidence"):
        yield read_all(some, _audit_row)


def _audit_row(row: Sequence[Any]) -> AuditRow:
    number, time, batch, repeat_of, improved, released, risk, distance, context, evidence = row
    read_json(context)  # whether it can be read
    found = (number, utc(time), batch, repeat_of, improved, released, risk, distance)
    return AuditRow(*found, read_json(evidence), context)


def _blocks(conn: Connection, ladder_id: int, *columns: str) -> Iterator[Sequence[Any]]:
    """Select columns of a ladder's submissions; on a server the rest waits in a cursor there."""
    query = select(*(submissions.c[name] for name in columns))
    ordered = query.where(submissions.c.ladder_id == ladder_id).order_by(submissions.c.number)
    with conn.execute(ordered, execution_options={"yield_per": AT_A_TIME}) as rows:
        yield from rows.partitions(AT_A_TIME)


def is_on_grid(conn: Connection, ladder_id: int, until: int, n: int) -> bool:
    """Return whether all that a ladder released up to a submission are shares of n rows.

    Where they are, they are counted as such, whatever weights its rows may have: a code for
    shares alone gives no chance to anything else.
    """
    entry = submissions.c
    query = select(entry.released_risk).where(
        entry.ladder_id == ladder_id, entry.repeat_of.is_(None), entry.id <= until
    )
    counts = n * np.array(conn.execute(query).scalars().all(), dtype=np.float64)
    return bool((np.abs(counts - np.rint(counts)) < COUNT_NOISE).all())


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
    return or_(*(fits for one in kinds for fits in (kind == one, kind.startswith(f"{one} "))))


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


def read_shown(conn: Connection, holdout_id: int) -> tuple[tuple[int, int, float], ...]:
    """Read position, `EventRecord.after` and logarithm of the values of queries of a reserve."""
    shown = reserve_looks.c
    query = select(shown.position, shown.after, shown.log_values).where(
        shown.holdout_id == holdout_id
    )
    return tuple((row[0], row[1], row[2]) for row in conn.execute(query))


def asked_values(askings: Iterable[EventRecord]) -> dict[tuple[int, int], EventRecord]:
    """Return when the value of each improvement was first asked for, if it was.

    Parameters
    ----------
    askings : iterable of EventRecord
        Oldest first. Each is about the submission that was the incumbent then.

    Returns
    -------
    dict of (ladder id, number) to EventRecord
    """
    first: dict[tuple[int, int], EventRecord] = {}
    for asking in askings:
        if asking.ladder_id is not None:
            number = int(json.loads(asking.detail or "")["submission"])
            first.setdefault((asking.ladder_id, number), asking)
    return first


def read_withdrawal(event: Any) -> Withdrawal:
    """Read a withdrawal from its event."""
    try:
        found = json.loads(event.detail)
        found["time"] = utc(datetime.fromisoformat(found["time"]))
        return Withdrawal(**found, position=event.position)
    except (KeyError, TypeError, ValueError):
        raise LedgerError(
            "The ledger holds a withdrawal that was changed and cannot be read any more. "
            "`ladder-holdout verify NAME` names it; restore the ledger from a backup."
        ) from None


def read_amended(event: EventRecord, n: int) -> NDArray[np.bool_]:
    """Read which of the n labels an event amended."""
    try:
        return booleans(bytes.fromhex(json.loads(event.detail or "")["rows"]), n)
    except (KeyError, AttributeError):
        raise LedgerError("The ledger holds an amendment that cannot be read any more.") from None
