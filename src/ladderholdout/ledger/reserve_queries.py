"""Queries of the reserve of a holdout: adding one, reading them, replaying them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, Select, insert, select, update

from ladderholdout.certificates import ReserveGrid
from ladderholdout.errors import HoldoutConflict
from ladderholdout.ledger.chain import Chains, look_content
from ladderholdout.ledger.records import LadderRecord, now, read_all, utc
from ladderholdout.ledger.tables import (
    chains,
    holdouts,
    ladders,
    reserve_looks,
    shared,
    submissions,
)
from ladderholdout.metrics.scales import Scale

_SHOWN = ("low", "risk", "high", "log_values")
_SEEN = ("number", "ladder_id", "submission", "time", *_SHOWN, "position", "after")


@dataclass(frozen=True, slots=True)
class ReserveEvidence:
    """What was measured on the reserve, and what can be shown of it; raw, so not shown.

    Attributes
    ----------
    grid : ReserveGrid
    risk : float or None
        None where the metric has no value for these predictions there.
    low, high : float or None
        Ends of an interval that was drawn; None where one follows from the risk.
    """

    grid: ReserveGrid
    risk: float | None = field(repr=False)
    low: float | None = field(default=None, repr=False)
    high: float | None = field(default=None, repr=False)

    def shown(self) -> tuple[float | None, float | None, float | None]:
        """Return low end, risk and high end as they may be shown: on the grid."""
        if self.risk is None:
            return None, None, None
        risk = self.grid.nearest(self.risk)
        if self.low is None or self.high is None:
            return None, risk, None
        low, high = self.grid.below(self.low), self.grid.above(self.high)
        return min(low, risk), risk, max(high, risk)


@dataclass(frozen=True, slots=True)
class ReserveQuery:
    """A query of the reserve as anybody may see it.

    Attributes
    ----------
    number : int
        Among all queries of this reserve, from 1.
    ladder_id, submission : int
        Whose incumbent it was about.
    time : datetime
    low, risk, high : float or None
        What was shown. All None: the metric had no value there.
    log_values : float
        Logarithm of the number of values that it could have shown.
    about : tuple of str
        What it was about: the metric, its settings, and the digests of the predictions.
    position : int
        Of its link in the holdout's chain.
    after : int
        The id of the last submission to any holdout before it.
    others : tuple of (int, int)
        Ids of the holdouts that share rows with this one, and how long their chains were.
    """

    number: int
    ladder_id: int
    submission: int
    time: datetime
    low: float | None
    risk: float | None
    high: float | None
    log_values: float
    about: tuple[str | None, ...]
    position: int
    after: int
    others: tuple[tuple[int, int], ...]


class ReserveQueries:
    """What can be read of reserves and written about them, inside one transaction."""

    def __init__(self, conn: Connection, chains: Chains) -> None:
        self._conn = conn
        self._chains = chains

    def choose(self, holdout_id: int, reserve: NDArray[np.bool_]) -> None:
        """Fix which rows of a new holdout no ladder measures, in the order of the content."""
        values = {"reserve": np.packbits(reserve).tobytes()}
        self._conn.execute(update(holdouts).where(holdouts.c.id == holdout_id).values(values))
        self._chains.note(holdout_id, "reserve")

    def about_incumbent(self, ladder: LadderRecord) -> tuple[str | None, ...]:
        """Return what a query about the incumbent of a ladder is about, as in `ReserveQuery`."""
        query = _about().where(
            submissions.c.ladder_id == ladder.id, submissions.c.number == ladder.incumbent
        )
        return tuple(self._conn.execute(query).one())

    def all(self, holdout_id: int) -> tuple[ReserveQuery, ...]:
        """Return the queries of the reserve of a holdout, oldest first, without anything raw."""
        place = (reserve_looks.c.ladder_id == submissions.c.ladder_id) & (
            reserve_looks.c.submission == submissions.c.number
        )
        query = (
            _about()
            .add_columns(*(reserve_looks.c[name] for name in (*_SEEN, "others")))
            .join(reserve_looks, place)
            .where(reserve_looks.c.holdout_id == holdout_id)
            .order_by(reserve_looks.c.number)
        )
        return read_all(self._conn.execute(query), _query)

    def add(self, ladder: LadderRecord, number: int, evidence: ReserveEvidence) -> None:
        """Record a query about the incumbent of a ladder.

        Parameters
        ----------
        ladder : LadderRecord
            As read under lock in this transaction.
        number : int
            Of the query: one more than there were.
        evidence : ReserveEvidence

        Raises
        ------
        HoldoutConflict
            The holdout was retired.
        """
        end = self._chains.end(ladder.holdout_id)
        refuse_retired(end.name, end.retired)
        low, risk, high = evidence.shown()
        sharing = (
            select(chains.c.holdout_id, chains.c.length)
            .join(shared, shared.c.other_id == chains.c.holdout_id)
            .where(shared.c.holdout_id == ladder.holdout_id)
            .order_by(chains.c.holdout_id)
        )
        lengths = {row.holdout_id: row.length for row in self._conn.execute(sharing)}
        values = {
            "holdout_id": ladder.holdout_id,
            "number": number,
            "ladder_id": ladder.id,
            "submission": ladder.incumbent,
            "time": now(),
            "evidence": json.dumps(asdict(evidence)),
            "low": low,
            "risk": risk,
            "high": high,
            "log_values": evidence.grid.log_values,
            "after": self._chains.latest(),
            "others": json.dumps(lengths) if lengths else None,
        }
        head = self._chains.add(ladder.holdout_id, "look", look_content(values))
        values |= {"position": head.length, "hash": head.hash}
        self._conn.execute(insert(reserve_looks).values(values))

    def replays(self, holdout_id: int) -> Iterator[tuple[int, bool]]:
        """Replay the queries of a reserve: for each its number, and whether it shows the same."""
        columns = (reserve_looks.c[name] for name in ("number", "evidence", *_SHOWN))
        query = select(*columns).where(reserve_looks.c.holdout_id == holdout_id)
        for row in self._conn.execute(query.order_by(reserve_looks.c.number)):
            yield row.number, _agrees(row)


def refuse_retired(name: str, retired: datetime | None) -> None:
    """Refuse to add to a holdout that was retired."""
    if retired is not None:
        raise HoldoutConflict(
            f"The holdout {name!r} was retired on {retired:%Y-%m-%d} and takes no more "
            "submissions. Its status, history and audit stay; register fresh rows to go on."
        )


def _about() -> Select[Any]:
    named = (ladders.c.metric, ladders.c.metric_settings)
    digests = (submissions.c.digest, submissions.c.reserve_digest)
    return select(*named, *digests).select_from(submissions).join(ladders)


def _query(row: Row[Any]) -> ReserveQuery:
    about = (row.metric, row.metric_settings, row.digest, row.reserve_digest)
    found = {name: getattr(row, name) for name in _SEEN}
    others = tuple(
        (int(key), int(length)) for key, length in json.loads(row.others or "{}").items()
    )
    return ReserveQuery(**{**found, "time": utc(row.time)}, about=about, others=others)


def _agrees(row: Row[Any]) -> bool:
    try:
        measured = json.loads(row.evidence)
        limits = measured["grid"]["limits"]
        scale = measured["grid"].get("scale")  # none in the entries of earlier layouts
        stated = {
            "limits": None if limits is None else tuple(limits),
            "scale": None if scale is None else Scale(**scale),
        }
        grid = ReserveGrid(**{**measured.pop("grid"), **stated})
        shown = (*ReserveEvidence(grid, **measured).shown(), grid.log_values)
    except Exception:  # a changed entry can hold anything
        return False
    return shown == (row.low, row.risk, row.high, row.log_values)
