"""All submissions of a ladder, some at a time: there may be millions.

For replays and audits, which need other columns than whoever is shown an entry. On a server
the rest waits in a cursor there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import Connection, select

from ladderholdout.ledger.records import AT_A_TIME, Recorded, read_all, utc
from ladderholdout.ledger.tables import read_json, submissions

T = TypeVar("T")
Progress: TypeAlias = Callable[[int, int], None]
"""Is called with how many submissions were gone through, and of how many."""

_ENTRY = submissions.c
_OF_REPLAYS = (
    *(_ENTRY.number, _ENTRY.repeat_of, _ENTRY.improved, _ENTRY.released_risk, _ENTRY.evidence),
    *(_ENTRY.digest, _ENTRY.reserve_digest),
)
_OF_AUDITS = (
    *(_ENTRY.number, _ENTRY.time, _ENTRY.batch, _ENTRY.repeat_of, _ENTRY.improved),
    *(_ENTRY.released_risk, _ENTRY.raw_risk, _ENTRY.disagreement, _ENTRY.evidence),
    _ENTRY.context,
)


class AuditRow(NamedTuple):
    """What an audit needs of one submission, its context as JSON; raw."""

    number: int
    time: datetime
    batch: str | None
    repeat_of: int | None
    improved: bool
    released: float
    risk: float
    disagreement: float | None
    evidence: Mapping[str, Any]
    context: str


class Streams:
    """The submissions of ladders in their order, inside one transaction.

    A value that was changed ends the reading in a LedgerError.
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def recorded(self, ladder_id: int) -> Iterator[Recorded]:
        """Read what a replay needs."""
        return chain.from_iterable(self._blocks(ladder_id, _OF_REPLAYS, _recorded))

    def audited(self, ladder_id: int) -> Iterator[tuple[AuditRow, ...]]:
        """Read what an audit needs."""
        return self._blocks(ladder_id, _OF_AUDITS, _audit_row)

    def _blocks(
        self, ladder_id: int, columns: tuple[Any, ...], make: Callable[[Any], T]
    ) -> Iterator[tuple[T, ...]]:
        query = select(*columns).where(_ENTRY.ladder_id == ladder_id).order_by(_ENTRY.number)
        with self._conn.execute(query, execution_options={"yield_per": AT_A_TIME}) as rows:
            for some in rows.partitions(AT_A_TIME):
                yield read_all(some, make)


def _recorded(row: Sequence[Any]) -> Recorded:
    number, repeat_of, improved, risk, evidence, *digests = row
    return Recorded(number, repeat_of, improved, risk, read_json(evidence), *digests)


def _audit_row(row: Sequence[Any]) -> AuditRow:
    number, time, batch, repeat_of, improved, released, risk, distance, evidence, context = row
    read_json(context)  # whether it can be read
    found = (number, utc(time), batch, repeat_of, improved, released, risk, distance)
    return AuditRow(*found, read_json(evidence), context)
