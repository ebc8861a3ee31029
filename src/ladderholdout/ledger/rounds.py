"""Rounds of leaderboards: what waits for its answer, and the rounds that were closed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, insert, select

from ladderholdout.ledger.chain import ROUND, ROUNDS, Chains, refuse_retired
from ladderholdout.ledger.history import EventRecord, read_events
from ladderholdout.ledger.records import (
    LadderRecord,
    compressed,
    decompressed,
    now,
    read_all,
    utc,
)
from ladderholdout.ledger.tables import read_json, waiting


@dataclass(frozen=True, slots=True, eq=False)
class WaitingRecord:
    """A submission that waits for its round to be closed.

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
    """

    id: int
    ladder_id: int
    account: str
    time: datetime
    key: str | None
    context: Mapping[str, Any]
    predictions: NDArray[Any] = field(repr=False)


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
        The smallest released risk of the board after it.
    """

    number: int
    time: datetime
    batch: str
    submissions: int
    accounts: int
    improved: int
    best: float | None


@dataclass(frozen=True, slots=True)
class RoundsRecord:
    """The rounds of a leaderboard.

    Attributes
    ----------
    hours : float or None
        After how many hours a round is due to be closed; None where the owner closes it alone.
    started : datetime
    closed : tuple of RoundRecord
    """

    hours: float | None
    started: datetime
    closed: tuple[RoundRecord, ...]

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

    def begin(self, home: LadderRecord, hours: float | None) -> None:
        """Note that a board answers by rounds from now on."""
        detail = {"hours": hours, "time": now().isoformat()}
        self._chains.note(home.holdout_id, ROUNDS, home.id, detail)

    def of(self, home: LadderRecord) -> RoundsRecord | None:
        """Return the rounds of a board; None where it answers at once."""
        noted = read_events(self._conn, home.holdout_id, ROUNDS, ROUND)
        own = [event for event in noted if event.ladder_id == home.id]
        begun = read_all([event for event in own if event.kind == ROUNDS], _begun)
        if not begun:
            return None
        closed = read_all([event for event in own if event.kind == ROUND], _round)
        return RoundsRecord(*begun[0], closed)

    def wait(
        self,
        home: LadderRecord,
        ladder: LadderRecord,
        account: str,
        key: str | None,
        context: Mapping[str, Any],
        predictions: NDArray[Any],
    ) -> None:
        """Let a submission wait; one under a key that waits already is left as it is."""
        end = self._chains.end(home.holdout_id)
        refuse_retired(end.name, end.retired)
        entry = waiting.c
        if key is not None:
            known = select(entry.id).where(entry.ladder_id == ladder.id, entry.key == key)
            if self._conn.execute(known).first() is not None:
                return
        values = {
            "home_id": home.id,
            "ladder_id": ladder.id,
            "account": account,
            "time": now(),
            "key": key,
            "context": json.dumps(context),
            "predictions": compressed(predictions),
        }
        self._conn.execute(insert(waiting).values(values))

    def counts(self, home: LadderRecord) -> dict[str, int]:
        """Return by account how many submissions wait."""
        entry = waiting.c
        query = select(entry.account, func.count()).where(entry.home_id == home.id)
        rows = self._conn.execute(query.group_by(entry.account).order_by(func.min(entry.id)))
        return {account: count for account, count in rows}

    def waiting_since(self, home: LadderRecord, account: str, since: datetime) -> int:
        """Count the submissions of an account that came since a moment and wait."""
        entry = waiting.c
        query = select(entry.time).where(entry.home_id == home.id, entry.account == account)
        return sum(utc(time) >= since for time in self._conn.execute(query).scalars())

    def waiting(self, home: LadderRecord) -> tuple[WaitingRecord, ...]:
        """Return what waits, oldest first."""
        query = select(waiting).where(waiting.c.home_id == home.id).order_by(waiting.c.id)
        return read_all(self._conn.execute(query), _waiting)

    def ids(self, home: LadderRecord) -> list[int]:
        """Return the ids of what waits, oldest first."""
        query = select(waiting.c.id).where(waiting.c.home_id == home.id).order_by(waiting.c.id)
        return list(self._conn.execute(query).scalars())

    def close(
        self, home: LadderRecord, until: int, batch: str, counts: Mapping[str, Any]
    ) -> RoundRecord:
        """Note that a round was answered, and forget what waited for it."""
        known = self.of(home)
        detail = {
            "number": 1 if known is None else known.number,
            "time": now().isoformat(),
            "batch": batch,
            **counts,
        }
        self._chains.note(home.holdout_id, ROUND, home.id, detail)
        gone = (waiting.c.home_id == home.id) & (waiting.c.id <= until)
        self._conn.execute(delete(waiting).where(gone))
        return _record(detail)


def _begun(event: EventRecord) -> tuple[float | None, datetime]:
    noted = read_json(event.detail or "")
    hours = noted["hours"]
    return None if hours is None else float(hours), utc(datetime.fromisoformat(noted["time"]))


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
    )


def _waiting(row: Any) -> WaitingRecord:
    return WaitingRecord(
        row.id,
        row.ladder_id,
        row.account,
        utc(row.time),
        row.key,
        read_json(row.context),
        decompressed(row.predictions),
    )
