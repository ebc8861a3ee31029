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
from ladderholdout.ledger.chain import Chains, look_content, refuse_retired
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
    """What was measured on the reserve, which is raw, and what can be shown of it.

    Attributes
    ----------
    grid : ReserveGrid
    risk : float or None
        None where the metric has no value for these predictions there.
    low, high : float or None
        Ends of an interval that was drawn, or that its rows gave; None where one follows from the
        risk.
    bound : str
        The inequality behind ends that the rows gave, which are as they are shown; else empty.
    confidence : float or None
        At which the rows gave them.
    price_of_ends : float
        What it costs to show them, in nats.
    clipped : tuple of (int, float) or None
        How many rows they clip to the stated range, and what share of the score these are.
    """

    grid: ReserveGrid
    risk: float | None = field(repr=False)
    low: float | None = field(default=None, repr=False)
    high: float | None = field(default=None, repr=False)
    bound: str = ""
    confidence: float | None = None
    price_of_ends: float = 0.0
    clipped: tuple[int, float] | None = None

    def shown(self) -> tuple[float | None, float | None, float | None]:
        """Return low end, risk and high end as they may be shown: on the grid."""
        if self.risk is None:
            return None, None, None
        risk = self.grid.nearest(self.risk)
        if self.low is None or self.high is None:
            return None, risk, None
        low, high = self.low, self.high
        if not self.bound:
            low, high = self.grid.below(low), self.grid.above(high)
        if self.clipped is not None:
            # Of another number than the risk, which may lie beside it.
            return low, risk, high
        return min(low, risk), risk, max(high, risk)

    def price(self) -> float:
        """Return what later queries pay for what is shown, in nats."""
        return self.grid.price(self.shown()[1]) + self.price_of_ends


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
        What later queries pay for what it showed, in nats.
    grid : ReserveGrid
        What it could show.
    bound : str
    confidence : float or None
    clipped : tuple of (int, float) or None
        As in `ReserveEvidence`.
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
    grid: ReserveGrid
    bound: str
    confidence: float | None
    clipped: tuple[int, float] | None
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
        """Return `ReserveQuery.about` of a query about the incumbent of a ladder."""
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
            .add_columns(*(reserve_looks.c[name] for name in (*_SEEN, "evidence", "others")))
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
            The query's number: one more than there were.
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
            "log_values": evidence.price(),
            "after": self._chains.latest(),
            "others": json.dumps(lengths) if lengths else None,
        }
        head = self._chains.add(ladder.holdout_id, "look", look_content(values))
        values |= {"position": head.length, "hash": head.hash}
        self._conn.execute(insert(reserve_looks).values(values))

    def replays(self, holdout_id: int) -> Iterator[tuple[int, bool]]:
        """Replay the queries of a reserve: yield their numbers, and whether they show the same."""
        columns = (reserve_looks.c[name] for name in ("number", "evidence", *_SHOWN))
        place = (reserve_looks.c.ladder_id == submissions.c.ladder_id) & (
            reserve_looks.c.submission == submissions.c.number
        )
        query = (
            select(*columns, submissions.c.released_risk)
            .select_from(reserve_looks.outerjoin(submissions, place))
            .where(reserve_looks.c.holdout_id == holdout_id)
        )
        for row in self._conn.execute(query.order_by(reserve_looks.c.number)):
            yield row.number, _agrees(row)


def _about() -> Select[Any]:
    named = (ladders.c.metric, ladders.c.metric_settings)
    digests = (submissions.c.digest, submissions.c.reserve_digest)
    return select(*named, *digests).select_from(submissions).join(ladders)


def _query(row: Row[Any]) -> ReserveQuery:
    about = (row.metric, row.metric_settings, row.digest, row.reserve_digest)
    seen = {name: getattr(row, name) for name in _SEEN}
    others = tuple(
        (int(holdout_id), int(length))
        for holdout_id, length in json.loads(row.others or "{}").items()
    )
    measured = json.loads(row.evidence)
    return ReserveQuery(
        **{**seen, "time": utc(row.time)},
        grid=grid_from(measured["grid"]),
        bound=measured.get("bound", ""),
        confidence=measured.get("confidence"),
        clipped=_pair(measured.get("clipped")),
        about=about,
        others=others,
    )


def _pair(stored: list[Any] | None) -> tuple[int, float] | None:
    return None if stored is None else (stored[0], stored[1])


def grid_from(stored: dict[str, Any]) -> ReserveGrid:
    """Return a grid from what JSON holds of it."""
    limits, scale = stored["limits"], stored["scale"]
    stated = {
        "limits": None if limits is None else tuple(limits),
        "scale": None if scale is None else Scale(**scale),
    }
    return ReserveGrid(**{**stored, **stated})


def _agrees(row: Any) -> bool:
    try:
        measured = json.loads(row.evidence)
        grid = grid_from(measured.pop("grid"))
        evidence = ReserveEvidence(grid, **measured)
        shown = (*evidence.shown(), evidence.price())
    except Exception:  # a changed entry can hold anything
        return False
    # A query is coded around what the ladder has released of this very submission, or alike.
    fits = grid.query == row.number and grid.released in (None, row.released_risk)
    return fits and shown == (row.low, row.risk, row.high, row.log_values)
