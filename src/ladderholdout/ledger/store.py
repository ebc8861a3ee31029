"""The ledger: every query and every write, each inside one transaction.

`Ledger.read` and `Ledger.write` open a transaction; what is done in it stands on the
`Transaction` they yield. A write commits when its block ends, before anyone is told
anything (promise 2), and holds the holdout's row for its whole length (promise 3).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, CursorResult, func, insert, select, update

from ladderholdout.errors import LedgerError, UnknownHoldout
from ladderholdout.ledger import engine, schema
from ladderholdout.ledger.place import shown
from ladderholdout.ledger.records import (
    AuditEntry,
    Entry,
    HoldoutRecord,
    LadderRecord,
    LadderSettings,
    Overlap,
)
from ladderholdout.ledger.rows import (
    entry_record,
    from_bytes,
    holdout_record,
    ladder_record,
    now,
    select_entries,
    select_holdouts,
    select_ladders,
    to_bytes,
    utc,
)
from ladderholdout.ledger.tables import SCHEMA, holdouts, ladders, overlaps, submissions


class Ledger:
    """A durable, ordered record of all submissions.

    Parameters
    ----------
    url : str
        As `resolve_url` returns it.
    create : bool, default=False
        Make an empty ledger where there is none; otherwise a missing one is an error, so
        that a ledger deleted in mid-search never comes back empty.

    Raises
    ------
    LedgerError
        The ledger is missing, unreadable or of a newer schema.

    Examples
    --------
    >>> ledger = Ledger("memory:example", create=True)
    >>> with ledger.read() as tx:
    ...     tx.holdouts()
    ()
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        self.url = url
        source = engine.create(url) if create else engine.source(url)
        with engine.connection(source, write=False) as conn:
            version = schema.version_of(conn)
        if version == SCHEMA:
            return
        if version is None and not create:
            raise LedgerError(
                f"The ledger {shown(url)} is empty. Restore the file, or open the holdout "
                "with its rows, LadderHoldout(X, y, ...), to start a new one."
            )
        with engine.connection(source, write=True) as conn:
            schema.ensure(conn)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that sees one state of the ledger and blocks no writer."""
        with engine.connection(engine.source(self.url), write=False) as conn:
            yield Transaction(conn)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open a transaction that is alone in writing, and durable when its block ends."""
        with engine.connection(engine.source(self.url), write=True) as conn:
            yield Transaction(conn)


class Transaction:
    """What can be asked of a ledger and written to it; made by `Ledger` alone."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    # -- holdouts ---------------------------------------------------------------------

    def holdouts(
        self, *, name: str | None = None, fingerprint: str | None = None
    ) -> tuple[HoldoutRecord, ...]:
        """Return the registered holdouts, oldest first, of one name or fingerprint if given."""
        query = select_holdouts().order_by(holdouts.c.id)
        if name is not None:
            query = query.where(holdouts.c.name == name)
        if fingerprint is not None:
            query = query.where(holdouts.c.fingerprint == fingerprint)
        return tuple(holdout_record(row) for row in self._conn.execute(query))

    def holdout(self, holdout_id: int) -> HoldoutRecord:
        """Return one holdout by its id."""
        row = self._conn.execute(select_holdouts().where(holdouts.c.id == holdout_id)).one_or_none()
        if row is None:
            raise UnknownHoldout(f"The ledger holds no holdout number {holdout_id}.")
        return holdout_record(row)

    def row_hashes(self, holdout_id: int) -> NDArray[np.uint64]:
        """Return the row hashes of a holdout in the order it was registered, shape (n,)."""
        query = select(holdouts.c.row_hashes).where(holdouts.c.id == holdout_id)
        return np.frombuffer(self._conn.execute(query).scalar_one(), dtype="<u8")

    def add_holdout(
        self,
        name: str,
        fingerprint: str,
        content_digest: bytes,
        secret: bytes,
        row_hashes: NDArray[np.uint64],
    ) -> int:
        """Register a holdout and return its id."""
        values = {
            "name": name,
            "fingerprint": fingerprint,
            "content_digest": content_digest,
            "secret": secret,
            "n": len(row_hashes),
            "row_hashes": row_hashes.astype("<u8").tobytes(),
            "created": now(),
        }
        return _key(self._conn.execute(insert(holdouts).values(values)))

    def set_vault(self, holdout_id: int, path: str | None, digest: str | None) -> None:
        """Note where the holdout's rows lie, and their file's SHA-256."""
        values = {"vault_path": path, "vault_digest": digest}
        self._conn.execute(update(holdouts).where(holdouts.c.id == holdout_id).values(values))

    def set_classes(self, holdout_id: int, classes: NDArray[Any]) -> HoldoutRecord:
        """Fix the class labels of a holdout, sorted."""
        values = {"classes": to_bytes(classes)}
        self._conn.execute(update(holdouts).where(holdouts.c.id == holdout_id).values(values))
        return self.holdout(holdout_id)

    # -- overlaps ---------------------------------------------------------------------

    def overlaps(self, holdout_id: int) -> tuple[Overlap, ...]:
        """Return where rows of this holdout were seen, largest count first."""
        query = select(overlaps).where(overlaps.c.holdout_id == holdout_id)
        rows = self._conn.execute(query.order_by(overlaps.c.rows.desc(), overlaps.c.id))
        return tuple(Overlap(row.source, row.rows, utc(row.time)) for row in rows)

    def note_overlap(self, holdout_id: int, source: str, rows: int) -> None:
        """Keep the largest count of shared rows seen with a source."""
        place = (overlaps.c.holdout_id == holdout_id) & (overlaps.c.source == source)
        known = self._conn.execute(select(overlaps.c.rows).where(place)).scalar_one_or_none()
        if known is None:
            values = {"holdout_id": holdout_id, "source": source, "rows": rows, "time": now()}
            self._conn.execute(insert(overlaps).values(values))
        elif rows > known:
            self._conn.execute(update(overlaps).where(place).values(rows=rows, time=now()))

    # -- ladders ----------------------------------------------------------------------

    def ladders(self, holdout_id: int) -> tuple[LadderRecord, ...]:
        """Return the ladders on a holdout, oldest first."""
        query = select_ladders().where(ladders.c.holdout_id == holdout_id).order_by(ladders.c.id)
        return tuple(ladder_record(row) for row in self._conn.execute(query))

    def ladder(self, ladder_id: int, *, lock: bool = False) -> LadderRecord:
        """Return a ladder; with `lock`, hold it and its holdout until the transaction ends."""
        query = select_ladders().where(ladders.c.id == ladder_id)
        if lock:
            # All ladders of a holdout take turns, so that the ids of their submissions are in
            # one order. That the holdout's row still reads also tells a damaged file.
            query = query.join(holdouts).add_columns(holdouts.c.fingerprint).with_for_update()
        row = self._conn.execute(query).one_or_none()
        if row is None:
            raise UnknownHoldout(f"The ledger holds no ladder number {ladder_id}.")
        return ladder_record(row)

    def add_ladder(
        self, holdout_id: int, settings: LadderSettings, state: Mapping[str, Any]
    ) -> LadderRecord:
        """Start a ladder on a holdout."""
        values = {
            "holdout_id": holdout_id,
            "account": settings.account,
            "name": settings.name,
            "metric": settings.metric,
            "metric_settings": json.dumps(settings.metric_settings),
            "mechanism": settings.mechanism,
            "mechanism_settings": json.dumps(settings.mechanism_settings),
            "budget": settings.budget,
            "unit": settings.unit,
            "created": now(),
            "submissions": 0,
            "state": json.dumps(state),
            "version": 0,
        }
        return self.ladder(_key(self._conn.execute(insert(ladders).values(values))))

    def mark_opened(self, ladder_id: int) -> LadderRecord:
        """Note that the raw scores of a ladder were shown; the first time stands."""
        unopened = (ladders.c.id == ladder_id) & ladders.c.opened.is_(None)
        self._conn.execute(update(ladders).where(unopened).values(opened=now()))
        return self.ladder(ladder_id)

    def incumbent_predictions(self, ladder_id: int) -> NDArray[Any] | None:
        """Return the canonical predictions behind the standing release."""
        query = select(ladders.c.incumbent_predictions).where(ladders.c.id == ladder_id)
        stored = self._conn.execute(query).scalar_one()
        return None if stored is None else from_bytes(stored)

    # -- submissions ------------------------------------------------------------------

    def first(self, ladder_id: int, digest: str, key: str | None = None) -> Entry | None:
        """Return the first submission under this key or of these predictions, if there was one."""
        firsts = select_entries(ladder_id).where(submissions.c.repeat_of.is_(None))
        asked = [] if key is None else [submissions.c.key == key]
        for condition in (*asked, submissions.c.digest == digest):
            row = self._conn.execute(firsts.where(condition)).first()
            if row is not None:
                return entry_record(row)
        return None

    def append(
        self,
        ladder: LadderRecord,
        *,
        entry: Mapping[str, Any],
        evidence: Mapping[str, Any],
        state: Mapping[str, Any] | None = None,
        incumbent: NDArray[Any] | None = None,
    ) -> int:
        """Record one submission and the state it leaves; return its number.

        Parameters
        ----------
        ladder : LadderRecord
            As read under lock in this transaction.
        entry : Mapping
            The columns of the submission: digest, key, batch, search, repeat_of, raw_risk,
            released_risk, improved, disagreement, context.
        evidence : Mapping
            What the rule's decision rested on, so that it can be replayed.
        state : Mapping or None
            The mechanism's new state; None for a repeat, which steps nothing.
        incumbent : ndarray or None
            The predictions of the new incumbent; None where it stays.
        """
        number = ladder.submissions + 1
        values = {
            **entry,
            "ladder_id": ladder.id,
            "number": number,
            "time": now(),
            "evidence": json.dumps(evidence),
            "context": json.dumps(entry["context"]),
        }
        self._conn.execute(insert(submissions).values(values))
        changes: dict[str, Any] = {"submissions": number}
        if state is not None:
            changes["state"] = json.dumps(state)
        if incumbent is not None:
            changes["incumbent_predictions"] = to_bytes(incumbent)
            changes["version"], changes["incumbent"] = ladder.version + 1, number
        self._conn.execute(update(ladders).where(ladders.c.id == ladder.id).values(changes))
        return number

    def entries(
        self,
        ladder_id: int,
        *,
        after: int = 0,
        limit: int | None = None,
        search: str | None = None,
    ) -> tuple[Entry, ...]:
        """Return submissions in their order, without anything raw."""
        query = select_entries(ladder_id).where(submissions.c.number > after)
        if search is not None:
            query = query.where(submissions.c.search == search)
        query = query.order_by(submissions.c.number).limit(limit)
        return tuple(entry_record(row) for row in self._conn.execute(query))

    def audit_entries(self, ladder_id: int) -> tuple[AuditEntry, ...]:
        """Return all submissions with their raw risks: for audits and replays alone."""
        query = select_entries(ladder_id, submissions.c.raw_risk, submissions.c.evidence)
        rows = self._conn.execute(query.order_by(submissions.c.number))
        return tuple(
            AuditEntry(entry_record(row), row.raw_risk, json.loads(row.evidence)) for row in rows
        )

    def repeats(self, ladder_id: int) -> int:
        """Count the submissions that repeated earlier predictions."""
        query = select(func.count()).where(
            submissions.c.ladder_id == ladder_id, submissions.c.repeat_of.is_not(None)
        )
        return int(self._conn.execute(query).scalar_one())


def _key(result: CursorResult[Any]) -> int:
    return int(result.inserted_primary_key[0])  # type: ignore[index]  # Core inserts have one
