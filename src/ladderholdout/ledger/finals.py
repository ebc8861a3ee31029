"""Finals of leaderboards in a ledger: adding them, reading them, replaying them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import Connection

from ladderholdout.certificates import FinalsEvidence, FinalsShown, ReserveGrid
from ladderholdout.ledger.chain import FINALS, Chains, refuse_retired
from ladderholdout.ledger.history import EventRecord, read_events
from ladderholdout.ledger.records import LadderRecord, now, read_all, utc
from ladderholdout.ledger.reserve_queries import grid_from
from ladderholdout.ledger.tables import read_json


@dataclass(frozen=True, slots=True)
class FinalsEntry:
    """A submission that was compared in finals.

    Attributes
    ----------
    account : str
    ladder_id, submission : int
        The ladder, and the number of the submission there.
    digest : str
        Of its predictions for the rows that ladders measure.
    """

    account: str
    ladder_id: int
    submission: int
    digest: str


@dataclass(frozen=True, slots=True, eq=False)
class FinalsRecord:
    """Finals as anybody may see them.

    Attributes
    ----------
    number : int
        Among all finals of the holdout, from 1.
    ladder_id : int or None
        The ladder that holds the rules of the board.
    position, after : int
        As in `EventRecord`.
    time : datetime
    confidence : float
    bound : str
        The inequalities behind it.
    log_count : float
        L, with what was paid for the confidence.
    amended : int
        How many labels of the reserve had been amended before.
    entries : tuple of FinalsEntry
    shown : FinalsShown
    """

    number: int
    ladder_id: int | None
    position: int
    after: int
    time: datetime
    confidence: float
    bound: str
    log_count: float
    amended: int
    entries: tuple[FinalsEntry, ...]
    shown: FinalsShown = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class NewFinals:
    """Finals that were worked out and are not on record yet.

    Attributes
    ----------
    entries : sequence of FinalsEntry
    evidence : FinalsEvidence
    confidence, bound, log_count, amended
        As in `FinalsRecord`.
    """

    entries: Sequence[FinalsEntry]
    evidence: FinalsEvidence
    confidence: float
    bound: str
    log_count: float
    amended: int


class FinalsRecords:
    """The finals of holdouts; `Transaction.finals` makes it.

    Parameters
    ----------
    conn : Connection
    chains : Chains
    """

    __slots__ = ("_chains", "_conn")

    def __init__(self, conn: Connection, chains: Chains) -> None:
        self._conn, self._chains = conn, chains

    def all(self, holdout_id: int) -> tuple[FinalsRecord, ...]:
        """Return the finals of a holdout, oldest first, without anything raw."""
        return read_all(read_events(self._conn, holdout_id, FINALS), _record)

    def add(self, ladder: LadderRecord, number: int, new: NewFinals) -> None:
        """Note finals, which are shown once they are here; the ladder as read under lock."""
        end = self._chains.end(ladder.holdout_id)
        refuse_retired(end.name, end.retired)
        detail = {
            "number": number,
            "time": now().isoformat(),
            "confidence": new.confidence,
            "bound": new.bound,
            "log_count": new.log_count,
            "amended": new.amended,
            "entries": [
                [entry.account, entry.ladder_id, entry.submission, entry.digest]
                for entry in new.entries
            ],
            "evidence": _stored(new.evidence),
            "shown": _shown(new.evidence.shown(new.confidence, new.log_count)),
        }
        self._chains.note(ladder.holdout_id, FINALS, ladder.id, detail)

    def replays(self, holdout_id: int) -> Iterator[tuple[int, bool]]:
        """Replay the finals of a holdout: yield their places, and whether they show the same."""
        for place, event in enumerate(read_events(self._conn, holdout_id, FINALS), 1):
            yield place, _agrees(event, place)


def _stored(evidence: FinalsEvidence) -> dict[str, Any]:
    """Return evidence as JSON holds it: what grids have in common is there once."""
    return {
        "grid": asdict(replace(evidence.grids[0], released=None)),
        "released": [grid.released for grid in evidence.grids],
        "risks": list(evidence.risks),
        "lows": list(evidence.lows),
        "highs": list(evidence.highs),
        "pairs": None if evidence.pairs is None else list(evidence.pairs),
        "amended": evidence.amended,
    }


def _evidence(stored: Mapping[str, Any]) -> FinalsEvidence:
    grid: ReserveGrid = grid_from(stored["grid"])
    return FinalsEvidence(
        tuple(replace(grid, released=released) for released in stored["released"]),
        tuple(stored["risks"]),
        tuple(stored["lows"]),
        tuple(stored["highs"]),
        None if stored["pairs"] is None else tuple(stored["pairs"]),
        float(stored["amended"]),
    )


def _shown(shown: FinalsShown) -> dict[str, Any]:
    return {
        "risks": list(shown.risks),
        "lows": list(shown.lows),
        "highs": list(shown.highs),
        # Of each entry the places of those that it is better than, from 0.
        "better": [np.flatnonzero(row).tolist() for row in shown.better],
        "log_values": shown.log_values,
    }


def _agrees(event: EventRecord, place: int) -> bool:
    try:
        noted = read_json(event.detail or "")
        evidence = _evidence(noted["evidence"])
        shown = evidence.shown(float(noted["confidence"]), float(noted["log_count"]))
        same = len(noted["entries"]) == len(evidence.grids) and noted["number"] == place
    except Exception:  # a changed entry can hold anything
        return False
    return bool(same and _shown(shown) == noted["shown"])


def _record(event: EventRecord) -> FinalsRecord:
    noted = read_json(event.detail or "")
    shown, count = noted["shown"], len(noted["entries"])
    better = np.zeros((count, count), dtype=bool)
    for place, beaten in enumerate(shown["better"]):
        better[place, beaten] = True
    return FinalsRecord(
        number=int(noted["number"]),
        ladder_id=event.ladder_id,
        position=event.position,
        after=event.after,
        time=utc(datetime.fromisoformat(noted["time"])),
        confidence=float(noted["confidence"]),
        bound=str(noted["bound"]),
        log_count=float(noted["log_count"]),
        amended=int(noted["amended"]),
        entries=tuple(
            FinalsEntry(str(account), int(ladder_id), int(number), str(digest))
            for account, ladder_id, number, digest in noted["entries"]
        ),
        shown=FinalsShown(
            tuple(shown["risks"]),
            tuple(shown["lows"]),
            tuple(shown["highs"]),
            better,
            float(shown["log_values"]),
        ),
    )
