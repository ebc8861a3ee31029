"""Rounds of leaderboards: what was collected for them, and the rounds that were closed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, update

from ladderholdout.errors import HoldoutConflict
from ladderholdout.ledger.chain import LEFT, MERGED, ROUND, ROUNDS, Chains, refuse_retired
from ladderholdout.ledger.history import EventRecord, read_events
from ladderholdout.ledger.records import (
    LadderRecord,
    compressed,
    decompressed,
    now,
    read_all,
    utc,
)
from ladderholdout.ledger.tables import collected, read_json, submissions

# Predictions are large: so many are held at a time.
_A_FEW = {"yield_per": 16}


@dataclass(frozen=True, slots=True, eq=False)
class CollectedRecord:
    """A submission that waits for its round to be closed, or was answered by one.

    Attributes
    ----------
    id : int
        In the order in which they came.
    ladder_id : int
        Which ladder will answer it.
    account : str
    time : datetime
    key : str or None
        As in a submission.
    context : mapping
    predictions : ndarray
        Canonical, in the order of the content.
    number : int or None
        Which submission of its ladder it became; None while it waits.
    """

    id: int
    ladder_id: int
    account: str
    time: datetime
    key: str | None
    context: Mapping[str, Any]
    predictions: NDArray[Any] = field(repr=False)
    number: int | None = None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A round that was closed.

    Attributes
    ----------
    number : int
        From 1.
    time : datetime
        When it was closed.
    batch : str
        Of its submissions.
    submissions, accounts, improved : int
        How many there were, of how many accounts, and how many improved.
    best : float or None
        The smallest released risk of the standings after it.
    left_out : tuple of str
        The accounts of submissions that were not answered: they have no value by the metric, or
        the owner took them out.
    """

    number: int
    time: datetime
    batch: str
    submissions: int
    accounts: int
    improved: int
    best: float | None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundsRecord:
    """The rounds of a leaderboard.

    Attributes
    ----------
    hours : float or None
        After how many hours a round is due to be closed; None where the owner closes it alone.
    started : datetime
    closed : tuple of RoundRecord
    position : int
        Of the link of the chain with which they began.
    of : str or None
        The board whose rounds it answers again, by labels that were amended since.
    """

    hours: float | None
    started: datetime
    closed: tuple[RoundRecord, ...]
    position: int
    of: str | None = None

    @property
    def number(self) -> int:
        """The number of the open round."""
        return len(self.closed) + 1

    @property
    def since(self) -> datetime:
        """When the open round began."""
        return self.closed[-1].time if self.closed else self.started


class Rounds:
    """The rounds of leaderboards; `Transaction.rounds` makes it.

    Parameters
    ----------
    conn : Connection
    chains : Chains
    """

    __slots__ = ("_chains", "_conn")

    def __init__(self, conn: Connection, chains: Chains) -> None:
        self._conn, self._chains = conn, chains

    def begin(self, home: LadderRecord, hours: float | None, of: str | None = None) -> None:
        """Note that a board answers by rounds from now on: at first the rounds of another one."""
        detail = {"hours": hours, "time": now().isoformat(), "of": of}
        self._chains.note(home.holdout_id, ROUNDS, home.id, detail)

    def carry_over(self, before: LadderRecord, after: LadderRecord) -> None:
        """Let a board go on upon the next block of rows: by rounds, with its teams."""
        known = self.of(before)
        if known is not None:
            self.refuse_waiting(before)
            self.begin(after, known.hours)
        for event in read_events(self._conn, before.holdout_id, MERGED, LEFT):
            if event.ladder_id == before.id:
                detail = read_json(event.detail or "")
                self._chains.note(after.holdout_id, event.kind, after.id, detail)

    def refuse_waiting(self, home: LadderRecord) -> None:
        """Refuse to end anything while submissions wait for their round."""
        count = sum(self.counts(home).values())
        if count:
            raise HoldoutConflict(
                f"{'1 submission waits' if count == 1 else f'{count} submissions wait'} for the "
                f"end of the round of leaderboard {home.settings.name!r}: close it first, with "
                "close_round() or ladder-holdout close-round."
            )

    def of(self, home: LadderRecord) -> RoundsRecord | None:
        """Return the rounds of a board; None where it answers at once."""
        noted = read_events(self._conn, home.holdout_id, ROUNDS, ROUND)
        own = [event for event in noted if event.ladder_id == home.id]
        begun = read_all([event for event in own if event.kind == ROUNDS], _begun)
        if not begun:
            return None
        closed = read_all([event for event in own if event.kind == ROUND], _round)
        return replace(begun[0], closed=closed)

    def wait(
        self,
        home: LadderRecord,
        ladder: LadderRecord,
        account: str,
        key: str | None,
        context: Mapping[str, Any],
        predictions: NDArray[Any],
        time: datetime | None = None,
    ) -> None:
        """Let a submission wait; the `time` is that when it was made, and by default now."""
        end = self._chains.end(home.holdout_id)
        refuse_retired(end.name, end.retired)
        values = {
            "home_id": home.id,
            "ladder_id": ladder.id,
            "account": account,
            "time": time or now(),
            "key": key,
            "context": json.dumps(context),
            "predictions": compressed(predictions),
        }
        self._conn.execute(insert(collected).values(values))

    def knows(self, home: LadderRecord, ladder: LadderRecord, key: str) -> bool:
        """Return whether a submission under a key waits, or was answered."""
        waiting, answered = collected.c, submissions.c
        of_ladder = _waits(home) & (waiting.ladder_id == ladder.id) & (waiting.key == key)
        known = (answered.ladder_id == ladder.id) & (answered.key == key)
        queries = select(waiting.id).where(of_ladder), select(answered.id).where(known)
        return any(self._conn.execute(query).first() is not None for query in queries)

    def take_out(self, home: LadderRecord, account: str) -> int:
        """Leave what an account has waiting out of the open round; return how many there were."""
        known = self.of(home)
        number = 1 if known is None else known.number
        entry = collected.c
        taken = update(collected).where(_waits(home), entry.account == account)
        return self._conn.execute(taken.values(round=number)).rowcount

    def counts(self, home: LadderRecord) -> dict[str, int]:
        """Return by account how many submissions wait."""
        entry = collected.c
        query = select(entry.account, func.count()).where(_waits(home))
        rows = self._conn.execute(query.group_by(entry.account).order_by(func.min(entry.id)))
        return {account: count for account, count in rows}

    def waiting_since(self, home: LadderRecord, account: str, since: datetime) -> int:
        """Count the submissions of an account that came since a moment and wait."""
        entry = collected.c
        query = select(entry.time).where(_waits(home), entry.account == account)
        return sum(utc(time) >= since for time in self._conn.execute(query).scalars())

    def waiting(self, home: LadderRecord) -> tuple[CollectedRecord, ...]:
        """Return what waits, oldest first."""
        query = select(collected).where(_waits(home)).order_by(collected.c.id)
        return read_all(self._conn.execute(query), _collected)

    def answered(self, home: LadderRecord, number: int) -> tuple[CollectedRecord, ...]:
        """Return what a closed round answered, oldest first."""
        query = select(collected).where(_answered(home, number))
        entry = collected.c
        return read_all(self._conn.execute(query.order_by(entry.id)), _collected)

    def count(self, home: LadderRecord, number: int) -> int:
        """Count what is kept of a closed round."""
        query = select(func.count()).select_from(collected).where(_answered(home, number))
        return int(self._conn.execute(query).scalar_one())

    def kept(self, ladder_id: int) -> Iterator[CollectedRecord]:
        """Yield what rounds kept of a ladder's submissions, by their numbers."""
        entry = collected.c
        query = select(collected).where(entry.ladder_id == ladder_id, entry.number.is_not(None))
        rows = self._conn.execute(query.order_by(entry.number), execution_options=_A_FEW)
        with rows:
            yield from map(_collected, rows)

    def ids(self, home: LadderRecord) -> list[int]:
        """Return the ids of what waits, oldest first."""
        query = select(collected.c.id).where(_waits(home)).order_by(collected.c.id)
        return list(self._conn.execute(query).scalars())

    def close(
        self,
        home: LadderRecord,
        numbers: Mapping[int, int],
        without: Sequence[int],
        batch: str,
        counts: Mapping[str, Any],
    ) -> RoundRecord:
        """Note that a round was answered, and which submission each that waited became.

        Those `without` an answer are left out, as are those that the owner took out before.
        """
        known, entry = self.of(home), collected.c
        number = 1 if known is None else known.number
        left_out = update(collected).where(entry.id.in_(without)).values(round=number)
        if without:
            self._conn.execute(left_out)
        named = select(entry.account).where(
            entry.home_id == home.id, entry.round == number, entry.number.is_(None)
        )
        detail = {
            "number": number,
            "time": now().isoformat(),
            "batch": batch,
            **counts,
            "left_out": list(self._conn.execute(named.order_by(entry.id)).scalars()),
        }
        self._chains.note(home.holdout_id, ROUND, home.id, detail)
        became = [
            {"waited": waited, "became": number, "closed": detail["number"]}
            for waited, number in numbers.items()
        ]
        answered = update(collected).where(collected.c.id == bindparam("waited"))
        values: dict[str, Any] = {"round": bindparam("closed"), "number": bindparam("became")}
        if became:
            self._conn.execute(answered.values(values), became)
        return _record(detail)


def _waits(home: LadderRecord) -> ColumnElement[bool]:
    return (collected.c.home_id == home.id) & collected.c.round.is_(None)


def _answered(home: LadderRecord, number: int) -> ColumnElement[bool]:
    entry = collected.c
    return (entry.home_id == home.id) & (entry.round == number) & entry.number.is_not(None)


def _begun(event: EventRecord) -> RoundsRecord:
    noted = read_json(event.detail or "")
    hours, of = noted["hours"], noted["of"]
    return RoundsRecord(
        hours=None if hours is None else float(hours),
        started=utc(datetime.fromisoformat(noted["time"])),
        closed=(),
        position=event.position,
        of=None if of is None else str(of),
    )


def _round(event: EventRecord) -> RoundRecord:
    return _record(read_json(event.detail or ""))


def _record(noted: Mapping[str, Any]) -> RoundRecord:
    return RoundRecord(
        number=int(noted["number"]),
        time=utc(datetime.fromisoformat(noted["time"])),
        batch=str(noted["batch"]),
        submissions=int(noted["submissions"]),
        accounts=int(noted["accounts"]),
        improved=int(noted["improved"]),
        best=None if noted["best"] is None else float(noted["best"]),
        left_out=tuple(map(str, noted["left_out"])),
    )


def _collected(row: Any) -> CollectedRecord:
    return CollectedRecord(
        row.id,
        row.ladder_id,
        row.account,
        utc(row.time),
        row.key,
        read_json(row.context),
        decompressed(row.predictions),
        row.number,
    )
