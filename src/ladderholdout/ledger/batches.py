"""Batches in a ledger: their announced sizes, kept predictions, and corrected scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, func, select

from ladderholdout.ledger.chain import Chains, refuse_retired
from ladderholdout.ledger.history import Chosen, EventRecord
from ladderholdout.ledger.prepared import Prepared, run
from ladderholdout.ledger.records import (
    LadderRecord,
    compressed,
    decompressed,
    is_known,
    packed,
    read_all,
    select_incumbents,
)
from ladderholdout.ledger.tables import (
    candidates,
    collected,
    incumbents,
    ladders,
    read_json,
    submissions,
)

Events: TypeAlias = Callable[..., tuple[EventRecord, ...]]

# How many bytes of predictions are kept of one batch.
_MOST_KEPT = 2**26


@dataclass(frozen=True, slots=True)
class EstimateRecord:
    """A corrected score that was shown, or that there is none, where the labels decided that.

    Attributes
    ----------
    ladder_id : int or None
    position, after : int
        As in `EventRecord`.
    submission : int
        The incumbent whose score it is.
    submissions : int
        How many the batch has.
    batch : str or None
    risk : float or None
        What was shown, as a risk; None where there is none.
    log_values : float
        What it costs later certificates, in nats.
    refused : str or None
        Why there is none.
    """

    ladder_id: int | None
    position: int
    after: int
    submission: int
    submissions: int
    batch: str | None
    risk: float | None
    log_values: float
    refused: str | None


@dataclass(frozen=True, slots=True)
class IntervalRecord:
    """A certificate that was shown and depends on more than the released score.

    Attributes
    ----------
    ladder_id : int or None
    position, after : int
        As in `EventRecord`.
    submission : int
        The incumbent whose certificate it is.
    confidence : float
    low, high : float
        Ends of the interval, as scores.
    bound : str
        The inequality behind it.
    log_count : float
        L, with what was paid for the confidence.
    log_values : float
        What later certificates pay for it, in nats.
    clipped : tuple of (int, float) or None
        How many rows were clipped, and what share of the score they are.
    place : int
        Which of its batch the incumbent was.
    """

    ladder_id: int | None
    position: int
    after: int
    submission: int
    confidence: float
    low: float
    high: float
    bound: str
    log_count: float
    log_values: float
    clipped: tuple[int, float] | None
    place: int


@dataclass(frozen=True, slots=True)
class ComparisonRecord:
    """An interval for the difference of two models that was shown.

    Attributes
    ----------
    ladder_id : int or None
    position, after : int
        As in `EventRecord`.
    first, second : str
        Digests of what was compared.
    numbers : tuple of (int or None, int or None)
        The submissions that were named, where they were.
    confidence : float
    low, high : float
        Ends of the interval for the score of the first less that of the second.
    bound : str
        The inequality behind it.
    log_count : float
        L, with what was paid for the confidence.
    log_values : float
        What later certificates pay for it, in nats.
    time : str
        When it was put on record, as ISO 8601 in UTC; empty if that is not on record.
    """

    ladder_id: int | None
    position: int
    after: int
    first: str
    second: str
    numbers: tuple[int | None, int | None]
    confidence: float
    low: float
    high: float
    bound: str
    log_count: float
    log_values: float
    time: str = ""


_FIRST_BATCH = Prepared(
    select(submissions.c.batch).where(
        submissions.c.ladder_id == bindparam("ladder"), submissions.c.number == 1
    )
)
_KEEP = (
    "INSERT INTO candidates (ladder_id, number, predictions) "
    "VALUES (:ladder_id, :number, :predictions)"
)


class NewIncumbent(NamedTuple):
    """A new incumbent that is not written yet.

    `ladder` is as it was before this one and before the earlier rounds of its fit that it replaces.
    `predictions` are None where they are among a batch's kept candidates.
    """

    ladder: LadderRecord
    number: int
    predictions: NDArray[Any] | None
    state: str
    fit: str | None


_DROP_INCUMBENT = (
    "DELETE FROM incumbents WHERE ladder_id = :ladder AND number = :number AND EXISTS (SELECT id "
    "FROM submissions WHERE ladder_id = :ladder AND number = :number AND batch = :fit)"
)
_KEEP_INCUMBENT = (
    "INSERT INTO incumbents (ladder_id, number, predictions, state) "
    "VALUES (:ladder, :number, :predictions, :state)"
)


def keep_incumbent(conn: Connection, new: NewIncumbent) -> None:
    """Keep a new incumbent beside those before it.

    The rounds of one training run may improve hundreds of times. For the batch of a `fit`, the
    incumbent before it is kept, and those that its own rounds replaced are not.
    """
    ladder = new.ladder
    if new.fit is not None and ladder.incumbent is not None:
        run(
            conn,
            _DROP_INCUMBENT,
            {"ladder": ladder.id, "number": ladder.incumbent, "fit": new.fit},
        )
    predictions = b"" if new.predictions is None else packed(new.predictions)
    values = {"ladder": ladder.id, "number": new.number, "state": new.state}
    run(conn, _KEEP_INCUMBENT, {**values, "predictions": predictions})


class Batches:
    """What is known of batches inside one transaction; `Transaction.batches` makes it.

    Parameters
    ----------
    conn : Connection
    chains : Chains
    events : callable
        `Transaction.events`, which reads the events of a holdout once.
    """

    __slots__ = ("_chains", "_conn", "_events")

    def __init__(self, conn: Connection, chains: Chains, events: Events) -> None:
        self._conn, self._chains, self._events = conn, chains, events

    # -- sizes ------------------------------------------------------------------------

    def announce(self, ladder: LadderRecord, batch: str, size: int) -> None:
        """Note how many queries a batch will have, before the first of them is answered.

        Parameters
        ----------
        ladder : LadderRecord
            As read under lock in this transaction.
        batch : str
        size : int

        Raises
        ------
        HoldoutConflict
            The holdout was retired.
        """
        end = self._chains.end(ladder.holdout_id)
        refuse_retired(end.name, end.retired)
        self._chains.note(ladder.holdout_id, "batch", ladder.id, {"batch": batch, "size": size})

    def size(self, holdout_id: int, chosen: Chosen) -> int | None:
        """Return the announced size of a submission's batch; None where it was not announced."""
        if chosen.batch is None:
            return None
        for batch, size, position in read_all(self._events(holdout_id, "batch"), _announced):
            if batch == chosen.batch and position < chosen.position:
                return size
        return None

    def sizes(self, holdout_ids: Iterable[int]) -> dict[str, int]:
        """Return the announced sizes of all batches on some holdouts, by name."""
        return {
            batch: size
            for holdout_id in holdout_ids
            for batch, size, _ in read_all(self._events(holdout_id, "batch"), _announced)
        }

    def members(self, holdout_ids: Sequence[int]) -> dict[tuple[int, str], int]:
        """Return how many queries of announced batches went to each ladder."""
        sizes = self.sizes(holdout_ids)
        if not sizes:
            return {}
        entry, count = submissions.c, func.count()
        query = (
            select(entry.ladder_id, entry.batch, count)
            .select_from(submissions.join(ladders))
            .where(ladders.c.holdout_id.in_(holdout_ids), entry.batch.in_(sizes), ~is_known)
            .group_by(entry.ladder_id, entry.batch)
        )
        return {
            (ladder_id, batch): min(members, sizes[batch])
            for ladder_id, batch, members in self._conn.execute(query)
        }

    # -- predictions ------------------------------------------------------------------

    def first(self, ladder_id: int) -> str | None:
        """Return the batch of a ladder's first submission."""
        rows = _FIRST_BATCH.rows(self._conn, {"ladder": ladder_id})
        return rows[0].batch if rows else None

    def keep(self, ladder: LadderRecord, number: int, predictions: NDArray[Any]) -> bool:
        """Keep predictions of the first batch, unless that grew too large; return whether."""
        stored = compressed(predictions)
        if number * len(stored) > _MOST_KEPT:
            return False
        values = {"ladder_id": ladder.id, "number": number, "predictions": stored}
        run(self._conn, _KEEP, values)
        return True

    def kept(self, ladder_id: int) -> dict[int, NDArray[Any]]:
        """Return the kept predictions of a ladder's first batch, by number of the submission."""
        query = select(candidates.c.number, candidates.c.predictions).where(
            candidates.c.ladder_id == ladder_id
        )
        return {number: decompressed(stored) for number, stored in self._conn.execute(query)}

    def predictions_of(self, ladder_id: int, number: int) -> NDArray[Any] | None:
        """Return the predictions of a submission; None where they are not kept.

        Those of incumbents are, of this one and of earlier ones, those of a first batch, and what
        rounds of a leaderboard answered.
        """
        of_ladder = (collected.c.ladder_id == ladder_id) & (collected.c.number == number)
        of_incumbent = select_incumbents(ladder_id).where(incumbents.c.number == number)
        for query in (of_incumbent, select(collected.c.predictions).where(of_ladder)):
            row = self._conn.execute(query).first()
            if row is not None:
                return decompressed(row.predictions)
        return self.kept(ladder_id).get(number)

    def queries_outside(self, holdout_id: int, batch: str | None) -> int:
        """Count the queries of a holdout, over all its ladders, that are not of a batch."""
        entry = submissions.c
        query = (
            select(func.count())
            .select_from(submissions.join(ladders))
            .where(ladders.c.holdout_id == holdout_id, entry.repeat_of.is_(None))
        )
        if batch is not None:
            query = query.where(entry.batch.is_distinct_from(batch))
        return int(self._conn.execute(query).scalar_one())

    # -- corrected scores -------------------------------------------------------------

    def note_estimate(self, ladder: LadderRecord, detail: Mapping[str, Any]) -> None:
        """Note that a corrected score is shown; the ladder as read under lock."""
        self._chains.note(ladder.holdout_id, "estimate", ladder.id, detail)

    def estimates(self, holdout_id: int) -> tuple[EstimateRecord, ...]:
        """Return the corrected scores that were shown of a holdout's ladders, oldest first."""
        return read_all(self._events(holdout_id, "estimate"), _estimate)

    def estimates_of(self, ladder: LadderRecord) -> tuple[EstimateRecord, ...]:
        """Return the corrected scores that were shown of one ladder, oldest first."""
        records = self.estimates(ladder.holdout_id)
        return tuple(record for record in records if record.ladder_id == ladder.id)

    # -- certificates that depend on the rows -----------------------------------------

    def note_interval(self, ladder: LadderRecord, detail: Mapping[str, Any]) -> None:
        """Note that a certificate is shown; the ladder as read under lock."""
        self._chains.note(ladder.holdout_id, "interval", ladder.id, detail)

    def intervals(self, holdout_id: int) -> tuple[IntervalRecord, ...]:
        """Return the certificates that were noted of a holdout's ladders, oldest first."""
        return read_all(self._events(holdout_id, "interval"), _interval)

    def note_comparison(self, ladder: LadderRecord, detail: Mapping[str, Any]) -> None:
        """Note that two models are compared; the ladder as read under lock."""
        self._chains.note(ladder.holdout_id, "compared", ladder.id, detail)

    def comparisons(self, holdout_id: int) -> tuple[ComparisonRecord, ...]:
        """Return the comparisons that were shown of a holdout's ladders, oldest first."""
        return read_all(self._events(holdout_id, "compared"), _comparison)

    def shown(self, holdout_id: int) -> tuple[Shown, ...]:
        """Return what was shown of a holdout's ladders beside their answers."""
        noted = self.estimates(holdout_id), self.intervals(holdout_id), self.comparisons(holdout_id)
        return tuple(record for records in noted for record in records)


Shown: TypeAlias = EstimateRecord | IntervalRecord | ComparisonRecord
"""What is on record of what was shown beside the answers to submissions."""


def _ends(noted: Mapping[str, Any]) -> tuple[float, float]:
    """Return the ends of an interval; JSON has no number for what has no end."""
    return (
        -math.inf if noted["low"] is None else float(noted["low"]),
        math.inf if noted["high"] is None else float(noted["high"]),
    )


def _comparison(event: EventRecord) -> ComparisonRecord:
    noted = read_json(event.detail or "")
    first, second = noted["numbers"]
    return ComparisonRecord(
        event.ladder_id,
        event.position,
        event.after,
        str(noted["first"]),
        str(noted["second"]),
        (None if first is None else int(first), None if second is None else int(second)),
        float(noted["confidence"]),
        *_ends(noted),
        str(noted["bound"]),
        float(noted["log_count"]),
        float(noted["log_values"]),
        str(noted.get("time", "")),
    )


def _interval(event: EventRecord) -> IntervalRecord:
    noted = read_json(event.detail or "")
    return IntervalRecord(
        event.ladder_id,
        event.position,
        event.after,
        int(noted["submission"]),
        float(noted["confidence"]),
        *_ends(noted),
        str(noted["bound"]),
        float(noted["log_count"]),
        float(noted["log_values"]),
        noted["clipped"] and (noted["clipped"][0], noted["clipped"][1]),
        int(noted["place"]),
    )


def _announced(event: EventRecord) -> tuple[str, int, int]:
    """Read the name of a batch, its size, and the position of the link that announced it."""
    noted = read_json(event.detail or "")
    return str(noted["batch"]), int(noted["size"]), event.position


def _estimate(event: EventRecord) -> EstimateRecord:
    noted = read_json(event.detail or "")
    return EstimateRecord(
        event.ladder_id,
        event.position,
        event.after,
        int(noted["submission"]),
        int(noted["submissions"]),
        noted["batch"],
        None if noted["risk"] is None else float(noted["risk"]),
        float(noted["log_values"]),
        noted["refused"],
    )
