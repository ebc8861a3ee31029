"""What can be read of a ledger and written to it, inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    func,
    insert,
    select,
    update,
)

from ladderholdout.errors import UnknownHoldout
from ladderholdout.ledger import statements
from ladderholdout.ledger.accounts import Accounts
from ladderholdout.ledger.batches import Batches, NewIncumbent, keep_incumbent
from ladderholdout.ledger.chain import (
    EMPTY,
    GROUPED,
    RESTORED,
    WITHDRAWN,
    Chains,
    End,
    Head,
    Left,
    end_of,
    heads,
)
from ladderholdout.ledger.history import (
    ALL,
    Chosen,
    EventRecord,
    LadderQueries,
    Used,
    asked_values,
    is_on_grid,
    read_amended,
    read_answered,
    read_audited,
    read_chosen,
    read_events,
    read_improved,
    read_recorded,
    read_shown,
    read_withdrawal,
)
from ladderholdout.ledger.known_rows import HoldoutRows, Sharing, as_bytes
from ladderholdout.ledger.prepared import Prepared, in_file, run, stored_time
from ladderholdout.ledger.records import (
    Asked,
    AuditEntry,
    AuditRow,
    Entry,
    First,
    HoldoutRecord,
    LadderRecord,
    LadderSettings,
    Overlap,
    Recorded,
    Withdrawal,
    decompressed,
    entry_record,
    holdout_record,
    ladder_record,
    now,
    read_all,
    select_entries,
    select_holdouts,
    select_incumbents,
    to_bytes,
)
from ladderholdout.ledger.replay import repeats_alike, rules_of
from ladderholdout.ledger.reserve_queries import ReserveQueries, refuse_retired
from ladderholdout.ledger.tables import (
    FORMAT,
    chains,
    check_format,
    damaged,
    events,
    holdouts,
    incumbents,
    ladders,
    read_json,
    submissions,
)
from ladderholdout.ledger.withdrawals import Withdrawals

P = ParamSpec("P")
T = TypeVar("T")


def _once(
    read: Callable[Concatenate[Transaction, P], T],
) -> Callable[Concatenate[Transaction, P], T]:
    """Read once what a transaction that cannot write asks for again: it sees one state."""

    @wraps(read)
    def reading(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if tx.known is None:
            return read(tx, *args, **kwargs)
        key = (read.__name__, *args, *kwargs.items())
        if key not in tx.known:
            tx.known[key] = read(tx, *args, **kwargs)
        found: T = tx.known[key]
        return found

    return reading


class Transaction:
    """What can be read of a ledger and written to it; made by `Ledger` alone.

    Parameters
    ----------
    conn : Connection
        In a transaction.
    writes : bool
        Whether it may write.
    seen : callable
        As for `Chains`.

    Attributes
    ----------
    chains : Chains
        The ends of the chains, and their links.
    known : dict or None
        What was read already, where nothing is written.
    """

    __slots__ = ("_ahead", "_unkept", "chains", "conn", "known")

    def __init__(
        self, conn: Connection, *, writes: bool, seen: Callable[[End], Head | None]
    ) -> None:
        self.conn = conn
        self.chains = Chains(conn, seen)
        self.known: dict[Any, Any] | None = None if writes else {}
        # The incumbent that a later round of its fit may replace before it is written.
        self._unkept: NewIncumbent | None = None
        # What was asked for before it is needed.
        self._ahead: dict[tuple[Any, ...], Callable[[], list[First]]] = {}

    @property
    def rows(self) -> HoldoutRows:
        """The rows of holdouts: what they are known by, their views, labels and sharing."""
        return HoldoutRows(self.conn, self.chains)

    @property
    def reserve(self) -> ReserveQueries:
        """The reserves of holdouts, and the queries of them."""
        return ReserveQueries(self.conn, self.chains)

    @property
    def batches(self) -> Batches:
        """The announced sizes of batches, their kept predictions, and corrected scores."""
        return Batches(self.conn, self.chains, self.events)

    @property
    def withdrawals(self) -> Withdrawals:
        """What was withdrawn of ladders."""
        return Withdrawals(self.conn, self.chains)

    @property
    def accounts(self) -> Accounts:
        """The accounts of a server."""
        return Accounts(self.conn)

    # -- holdouts ---------------------------------------------------------------------

    def holdouts(self, *, name: str | None = None) -> tuple[HoldoutRecord, ...]:
        """Return the registered holdouts, oldest first, or the one of a name."""
        query = select_holdouts().order_by(holdouts.c.id)
        if name is not None:
            query = query.where(holdouts.c.name == name)
        return read_all(self.conn.execute(query), holdout_record)

    def holdout_id(self, name: str) -> int | None:
        """Return the id of a holdout, whatever else of it can be read."""
        query = select(holdouts.c.id).where(holdouts.c.name == name)
        return self.conn.execute(query).scalar_one_or_none()

    @_once
    def holdout(self, holdout_id: int) -> HoldoutRecord:
        """Return one holdout by its id."""
        found = statements.HOLDOUT.rows(self.conn, {"holdout": holdout_id})
        for record in read_all(found, holdout_record):
            return record
        raise UnknownHoldout(f"The ledger holds no holdout number {holdout_id}.")

    def row_hashes(self, holdout_id: int) -> NDArray[np.uint64]:
        """Return the row hashes of a holdout in the order it was registered, shape (n,)."""
        query = select(holdouts.c.row_hashes).where(holdouts.c.id == holdout_id)
        return np.frombuffer(self.conn.execute(query).scalar_one(), dtype="<u8")

    def start_holdout(
        self,
        name: str,
        fingerprint: str,
        content_digest: bytes,
        secret: bytes,
        row_hashes: NDArray[np.uint64],
        confidence: float,
    ) -> int:
        """Register a holdout without what is as long as its rows: `HoldoutRows.fill` comes last."""
        values = {
            "name": name,
            "fingerprint": fingerprint,
            "content_digest": content_digest,
            "secret": secret,
            "n": len(row_hashes),
            "row_hashes": b"",
            "created": now(),
            "confidence": confidence,
        }
        holdout_id = _key(self.conn.execute(insert(holdouts).values(values)))
        self.chains.start(holdout_id, as_bytes(row_hashes))
        return holdout_id

    def set_classes(self, holdout_id: int, classes: NDArray[Any]) -> HoldoutRecord:
        """Fix the class labels of a holdout, sorted."""
        values = {"classes": to_bytes(classes)}
        self.conn.execute(update(holdouts).where(holdouts.c.id == holdout_id).values(values))
        self.chains.note(holdout_id, "classes")
        return self.holdout(holdout_id)

    def retire(self, holdout_id: int) -> HoldoutRecord:
        """Take no more submissions on a holdout, through any ladder; the first time counts."""
        unretired = (holdouts.c.id == holdout_id) & holdouts.c.retired.is_(None)
        if self.conn.execute(update(holdouts).where(unretired).values(retired=now())).rowcount:
            self.chains.note(holdout_id, "retired")
        return self.holdout(holdout_id)

    # -- ladders ----------------------------------------------------------------------

    @_once
    def ladders(self, holdout_id: int) -> tuple[LadderRecord, ...]:
        """Return the ladders on a holdout, oldest first."""
        found = statements.LADDERS.rows(self.conn, {"holdout": holdout_id})
        return read_all(found, ladder_record)

    @_once
    def ladder(self, ladder_id: int) -> LadderRecord:
        """Return a ladder."""
        rows = statements.ONE_LADDER.rows(self.conn, {"ladder": ladder_id})
        (record,) = read_all([_checked_row(rows, ladder_id)], ladder_record)
        return record

    def locked_ladder(
        self,
        ladder_id: int,
        *,
        asked: Sequence[Asked] = (),
        left: Left | None = None,
    ) -> LadderRecord:
        """Return a ladder, and hold it and its holdout until the transaction ends.

        Parameters
        ----------
        ladder_id : int
        asked : sequence of Asked
            What is about to be searched: a server is asked for all of it at once.
        left : Left, optional
            The ladder as this process left it, which is not waited for: the server commits nothing
            where that has changed, or where what is asked for is known and not remembered
            (`postgres.Stale`).
        """
        if left is not None:
            return self._taken_up(left, asked)
        return self._locking(ladder_id, asked)()

    def locked_ladders(self, asked: Mapping[int, Sequence[Asked]]) -> tuple[LadderRecord, ...]:
        """Return several ladders of a holdout, by their ids, as `locked_ladder` returns one."""
        waiting = [self._locking(ladder_id, each) for ladder_id, each in asked.items()]
        return tuple(found() for found in waiting)

    def _locking(self, ladder_id: int, asked: Sequence[Asked]) -> Callable[[], LadderRecord]:
        """Ask for a ladder and its lock; return what waits for it."""
        found = statements.LOCKED_LADDER.send(self.conn, {"ladder": ladder_id})
        # Statements of their own, for each sees what was committed when it begins: the first
        # waits for others to commit.
        for one in () if in_file(self.conn) else asked:
            for query, given in _questions(ladder_id, one):
                self._ahead[query, *given.values()] = self._firsts(query, given)

        def read() -> LadderRecord:
            row = _checked_row(found(), ladder_id)
            (record,) = read_all([row], ladder_record)
            self.chains.hold(record.holdout_id, end_of(row))
            return record

        return read

    def _taken_up(self, left: Left, asked: Sequence[Asked]) -> LadderRecord:
        """Return a ladder as it was left, if all that is written rests on nothing else."""
        ladder, end = left.ladder, left.end
        rests = {"ladder": ladder.id, "length": end.head.length, "head": end.head.hash}
        for one in asked:
            unknown = {"digest": None if one.first else one.digest, "key": one.key}
            statements.UNCHANGED.send(self.conn, {**rests, **unknown, "format": FORMAT})
            for query, given in _questions(ladder.id, one):
                self._ahead[query, *given.values()] = list
            self.remember(ladder, one, one.first)
        self.chains.hold(ladder.holdout_id, replace(end))
        return ladder

    def ladder_with_holdout(self, ladder_id: int) -> LadderRecord:
        """Return a ladder, and read its holdout at once: `holdout` asks nothing any more."""
        rows = statements.LADDER_WITH_HOLDOUT.rows(self.conn, {"ladder": ladder_id})
        row = _checked_row(rows, ladder_id)
        (record,) = read_all([row], ladder_record)
        if self.known is not None:
            (holdout,) = read_all([row], lambda row: holdout_record(row, statements.OF_HOLDOUT))
            self.known |= {("ladder", ladder_id): record, ("holdout", holdout.id): holdout}
            # What the row shows to be empty, or to have no other, need not be asked for.
            if row.ladders == 1:
                self.known["ladders", holdout.id] = (record,)
            for name in statements.MISSING:
                if not getattr(row, f"with_{name}"):
                    self.known[name, holdout.id] = ()
        return record

    def add_ladder(
        self, holdout_id: int, settings: LadderSettings, state: Mapping[str, Any]
    ) -> LadderRecord:
        """Start a ladder on a holdout."""
        end = self.chains.end(holdout_id)
        refuse_retired(end.name, end.retired)
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
        ladder_id = _key(self.conn.execute(insert(ladders).values(values)))
        self.chains.note(holdout_id, "ladder", ladder_id)
        return self.ladder(ladder_id)

    def mark_opened(self, ladder_id: int) -> LadderRecord:
        """Note that the raw scores of a ladder were shown; the first time counts."""
        unopened = (ladders.c.id == ladder_id) & ladders.c.opened.is_(None)
        changed = self.conn.execute(update(ladders).where(unopened).values(opened=now())).rowcount
        ladder = self.ladder(ladder_id)
        if changed:
            self.chains.note(ladder.holdout_id, "opened", ladder_id)
        return ladder

    def incumbent_predictions(self, ladder_id: int) -> NDArray[Any] | None:
        """Return the canonical predictions behind the released score."""
        query = select_incumbents(ladder_id).where(incumbents.c.number == ladders.c.incumbent)
        row = self.conn.execute(query).one_or_none()
        if row is not None:
            return decompressed(row.predictions)
        if self.ladder(ladder_id).incumbent is not None:
            raise damaged()
        return None

    # -- submissions ------------------------------------------------------------------

    def remember(self, ladder: LadderRecord, asked: Asked, first: First | None) -> None:
        """Take note of the first submission of some predictions, which need not be asked for."""
        if first is not None and asked.reserve_digest is None:
            by_digest = statements.FIRST_BY_DIGEST[1]
            self._ahead[by_digest, ladder.id, asked.digest] = partial(list, (first,))

    def first_by_key(self, ladder: LadderRecord, key: str) -> First | None:
        """Return the submission under a key, if there was one.

        For the guard, which hides what the ladder does not release.
        """
        return self._in_force(ladder, statements.FIRST_BY_KEY, {"key": key}, ())

    def first(
        self, ladder: LadderRecord, digest: str, reserve_digest: str | None
    ) -> tuple[First | None, bool]:
        """Return the first submission of these predictions, and whether on all rows.

        None where there was none, and where a withdrawal has set its answer aside. Where
        predictions differ on rows of the reserve alone, it is the first one that was the same on
        those that the ladder measures, and False. For the guard.
        """
        gone = self.withdrawals.of(ladder)
        if reserve_digest is not None:
            # As long with known predictions as with others, for it must not show which they are.
            both = {"digest": digest, "reserve_digest": reserve_digest}
            found = self._in_force(ladder, statements.OF_ALL_ROWS, both, gone)
            if found is not None:
                return found, True
        found = self._in_force(ladder, statements.FIRST_BY_DIGEST, {"digest": digest}, gone)
        return found, reserve_digest is None

    def _in_force(
        self,
        ladder: LadderRecord,
        queries: tuple[Prepared, Prepared],
        asked: Mapping[str, Any],
        gone: Sequence[Withdrawal],
    ) -> First | None:
        """Return the first submission found whose answer no withdrawal has set aside."""
        query, given = queries[0 if gone else 1], {"ladder": ladder.id, **asked}
        ahead = self._ahead.pop((query, *given.values()), None)
        for found in (ahead or self._firsts(query, given))():
            if not any(one.sets_aside(found.number) for one in gone):
                reasons = self.withdrawals.reasons(ladder)
                return found._replace(withdrawn=reasons.get(found.repeat_of or found.number))
        return None

    def _firsts(self, query: Prepared, given: Mapping[str, Any]) -> Callable[[], list[First]]:
        """Ask for submissions; return what waits for them."""
        found = query.send(self.conn, given)
        return lambda: [First(*row) for row in found()]

    def append(
        self,
        ladder: LadderRecord,
        *,
        entry: Mapping[str, Any],
        evidence: Mapping[str, Any],
        state: Mapping[str, Any] | None = None,
        incumbent: NDArray[Any] | None = None,
        candidate: NDArray[Any] | None = None,
        more: bool = False,
    ) -> LadderRecord:
        """Record one submission and the state it leaves; return the ladder after it.

        Parameters
        ----------
        ladder : LadderRecord
            As read under lock in this transaction.
        entry : Mapping
            The columns of the submission: digest, reserve_digest, key, batch, search,
            repeat_of, place, raw_risk, released_risk, improved, disagreement, context; and the
            time at which it came, by default now.
        evidence : Mapping
            What the rule's decision rested on, so that it can be replayed; for a repeat, what
            it was answered as.
        state : Mapping or None
            The mechanism's new state; None for a repeat, which steps nothing.
        incumbent : ndarray or None
            The predictions of the new incumbent; None where it stays.
        candidate : ndarray or None
            The predictions of a submission of the ladder's first batch, which are kept.
        more : bool, default=False
            Whether another round of the same training run follows in this transaction: of those
            that become the incumbent, the last one's predictions are written.

        Returns
        -------
        LadderRecord
            Its `submissions` is the number of this one.

        Raises
        ------
        HoldoutConflict
            The holdout was retired.
        """
        end = self.chains.end(ladder.holdout_id)
        refuse_retired(end.name, end.retired)
        number = ladder.submissions + 1
        time = entry.get("time") or now()
        values = {
            **statements.OPTIONAL,
            **entry,
            "ladder_id": ladder.id,
            "number": number,
            "time": time,
            "evidence": json.dumps(evidence),
            "context": json.dumps(entry["context"]),
        }
        values |= self.chains.add_submission(ladder.holdout_id, values)
        values["time"] = stored_time(self.conn, time)
        run(self.conn, statements.ADD_SUBMISSION, values)
        kept = candidate is not None and self.batches.keep(ladder, number, candidate)
        changes: dict[str, Any] = {"ladder": ladder.id, "number": number}
        new: dict[str, Any] = {"submissions": number}
        if state is None:
            run(self.conn, statements.COUNT_SUBMISSION, changes)
        else:
            changes["state"] = stored = json.dumps(state)
            new["state"] = json.loads(stored)
        if state is not None and incumbent is None:
            run(self.conn, statements.STEP_LADDER, changes)
        elif state is not None:
            new |= {"version": ladder.version + 1, "incumbent": number}
            run(self.conn, statements.IMPROVE_LADDER, {**changes, "version": new["version"]})
            fit = entry.get("batch") if "round" in entry["context"] else None
            # Of a run of one fit's incumbents what was there before it is replaced.
            before = ladder if self._unkept is None else self._unkept.ladder
            self._unkept = NewIncumbent(before, number, None if kept else incumbent, stored, fit)
        if self._unkept is not None and not (more and self._unkept.fit is not None):
            keep_incumbent(self.conn, self._unkept)
            self._unkept = None
        return replace(ladder, **new)

    def entries(
        self,
        ladder_id: int,
        *,
        after: int = 0,
        limit: int | None = None,
        search: str | None = None,
    ) -> tuple[Entry, ...]:
        """Return submissions in their order, without anything raw or not asked for."""
        query = statements.OF_SEARCH if search is not None else statements.ENTRIES
        given = {"ladder": ladder_id, "after": after, "search": search}
        given["most"] = ALL if limit is None else limit
        # First what may be shown: should reading it fail, no frame holds what may not.
        ladder = self.ladder(ladder_id)
        shown = self.shown_risks(ladder)
        found = read_all(query.rows(self.conn, given), entry_record)
        if shown is not None:
            # A risk that two incumbents had, as is possible after a withdrawal, is shown once
            # both were asked for.
            found = tuple(one if one.risk in shown else replace(one, risk=None) for one in found)
        reasons = self.withdrawals.reasons(ladder)
        if not reasons:
            return found
        return tuple(
            replace(one, withdrawn=reasons.get(one.repeat_of or one.number)) for one in found
        )

    def audit_entries(
        self, ladder_id: int, *, after: int = 0, limit: int | None = None
    ) -> tuple[AuditEntry, ...]:
        """Return submissions with their raw risks: for audits and replays alone."""
        raw = (submissions.c.raw_risk, submissions.c.evidence, submissions.c.reserve_digest)
        query = select_entries(ladder_id, *raw).where(submissions.c.number > after)
        rows = self.conn.execute(query.order_by(submissions.c.number).limit(limit))

        def read(row: Any) -> AuditEntry:
            evidence = read_json(row.evidence)
            risk = float(row.raw_risk)
            return AuditEntry(entry_record(row), risk, evidence, row.reserve_digest)

        return read_all(rows, read)

    def recorded(self, ladder_id: int) -> Iterator[Recorded]:
        """Yield all submissions to a ladder in their order, for a replay.

        There may be millions, of which few are in memory at a time. A value that was changed ends
        the reading in a LedgerError.
        """
        return read_recorded(self.conn, ladder_id)

    def audited(self, ladder_id: int) -> Iterator[tuple[AuditRow, ...]]:
        """Yield the same some at a time, for an audit."""
        return read_audited(self.conn, ladder_id)

    # -- what certificates count ------------------------------------------------------

    def chosen(self, ladder: LadderRecord) -> Chosen | None:
        """Return what was revealed of the holdout's rows when a ladder's incumbent was chosen.

        By its own ladders and by those of all holdouts that share rows with it.
        """
        others = (one.holdout_id for one in self.sharing(ladder.holdout_id))
        used = self._used((ladder.holdout_id, *others))
        return read_chosen(self.conn, used, ladder.id, ladder.incumbent)

    def answered(self, holdout_ids: Sequence[int], until: int) -> tuple[LadderQueries, ...]:
        """Return the queries of these holdouts up to the submission of this id, by ladder."""
        return read_answered(self.conn, self._used(holdout_ids), until)

    def _used(self, holdout_ids: Sequence[int]) -> Used:
        """Return the ladders of some holdouts, as their submissions are counted."""
        returns: dict[int, list[int]] = {}
        for event in (one for each in holdout_ids for one in self.events(each, WITHDRAWN)):
            one = read_withdrawal(event)
            if one.replaced and event.ladder_id is not None:
                returns.setdefault(event.ladder_id, []).append(one.until)
        every = [one for each in holdout_ids for one in self.ladders(each)]
        plain = {one.id: not one.withdrawals and repeats_alike(one.settings) for one in every}
        return Used(tuple(holdout_ids), plain, returns)

    def is_on_grid(self, ladder_id: int, until: int, n: int) -> bool:
        """Return whether all that a ladder released up to a submission are shares of n rows."""
        return is_on_grid(self.conn, ladder_id, until, n)

    def shown_values(self, holdout_id: int) -> tuple[tuple[int, int, float], ...]:
        """Return position, `EventRecord.after` and ln(values) of the queries of a reserve."""
        return read_shown(self.conn, holdout_id)

    @_once
    def sharing(self, holdout_id: int) -> tuple[Sharing, ...]:
        """Return the other holdouts that have rows of this one, oldest first."""
        return self.rows.sharing(holdout_id)

    @_once
    def overlaps(self, holdout_id: int) -> tuple[Overlap, ...]:
        """Return where else rows of a holdout were seen, largest count first."""
        return self.rows.overlaps(holdout_id)

    # -- events: what was shown on demand, amended, stated, opened, found -------------

    def events(self, holdout_id: int, *kinds: str) -> tuple[EventRecord, ...]:
        """Return the events of a holdout of these kinds (of a kind's first word), oldest first."""
        found = self._events(holdout_id)
        return tuple(one for one in found if one.kind.partition(" ")[0] in kinds)

    @_once
    def _events(self, holdout_id: int) -> tuple[EventRecord, ...]:
        return read_events(self.conn, holdout_id, *statements.KINDS)

    def confidences(self, holdout_id: int) -> tuple[float, ...]:
        """Return the confidences that were asked for beside the registered one, in order."""
        noted = self.events(holdout_id, "confidence")
        return read_all(noted, lambda event: float(read_json(event.detail or "")["confidence"]))

    def note_confidence(self, holdout_id: int, confidence: float) -> tuple[float, ...]:
        """Note that another confidence than the registered one was asked for, if it is new."""
        known = self.confidences(holdout_id)
        if confidence in known:
            return known
        self.chains.note(holdout_id, "confidence", detail={"confidence": confidence})
        return (*known, confidence)

    def grouped(self, holdout_id: int) -> tuple[str, ...]:
        """Return what showed that the rows of a holdout come in groups, if anything did."""
        noted = self.events(holdout_id, GROUPED)
        return read_all(noted, lambda event: str(read_json(event.detail or "")["by"]))

    def note_grouped(self, holdout_id: int, by: str) -> None:
        """Note what shows that the rows of a holdout come in groups, if it is new."""
        if by not in self.grouped(holdout_id):
            self.chains.note(holdout_id, GROUPED, detail={"by": by})

    def amended(self, holdout_id: int, before: int | None = None) -> NDArray[np.bool_] | None:
        """Return which labels of a holdout were ever amended; None where none was.

        Parameters
        ----------
        holdout_id : int
        before : int, optional
            Only amendments of before this link of the holdout's chain.

        Returns
        -------
        ndarray of bool, shape (n,), or None
            In the order of the content.
        """
        noted = self.events(holdout_id, "amended")
        noted = tuple(one for one in noted if before is None or one.position < before)
        if not noted:
            return None
        n = self.holdout(holdout_id).n
        found: NDArray[np.bool_] = np.logical_or.reduce(
            read_all(noted, lambda one: read_amended(one, n))
        )
        return found

    def restorings(self, holdout_id: int) -> tuple[tuple[int, int], ...]:
        """Return where older copies were found in place, and how many links there had been."""
        noted = self.events(holdout_id, RESTORED)
        return read_all(noted, lambda event: (event.position, int(event.kind.split()[1])))

    def opened_after(self, ladder_id: int) -> int | None:
        """Return how many submissions a ladder had when an audit opened it; None: none did.

        By the places in the chain, for clocks jump.
        """
        links = select(events.c.position).where(
            events.c.ladder_id == ladder_id, events.c.kind == "opened"
        )
        opened = self.conn.execute(links).scalar_one_or_none()
        if opened is None:
            return None
        return self._count(submissions.c.ladder_id == ladder_id, submissions.c.position < opened)

    # -- releases ---------------------------------------------------------------------

    def asked(self, holdout_id: int) -> dict[tuple[int, int], EventRecord]:
        """Return which values of ladders that release none were asked for, and when.

        Returns
        -------
        dict of (ladder id, number of the submission) to EventRecord
        """
        return asked_values(self.events(holdout_id, "asked"))

    def ask(self, ladder: LadderRecord) -> None:
        """Note that the released score of a ladder is shown; the first time counts.

        Parameters
        ----------
        ladder : LadderRecord
            As read under lock in this transaction.
        """
        if ladder.incumbent is not None and self.released(ladder) is None:
            about = {"submission": ladder.incumbent}
            self.chains.note(ladder.holdout_id, "asked", ladder.id, about)

    def released(self, ladder: LadderRecord) -> float | None:
        """Return the released risk as the analyst may see it.

        None before the first release, and where it is not released and was not asked for.
        """
        if ladder.incumbent is None:
            return None
        if _releases_values(ladder) or (ladder.id, ladder.incumbent) in self.asked(
            ladder.holdout_id
        ):
            return float(ladder.state["standing"])
        return None

    def shown_risks(self, ladder: LadderRecord) -> frozenset[float] | None:
        """Return the released risks of a ladder that were asked for; None where all are shown."""
        if _releases_values(ladder):
            return None
        asked = self.asked(ladder.holdout_id)
        improved = read_improved(self.conn, ladder.holdout_id) if asked else ()
        own = [one for one in improved if one.ladder_id == ladder.id]
        hidden = {one.risk for one in own if (ladder.id, one.number) not in asked}
        return frozenset(one.risk for one in own) - hidden

    def improvements(self, ladder_id: int, number: int) -> int:
        """Count the submissions that had improved a ladder up to this one, repeats left out."""
        found = statements.IMPROVEMENTS.one(self.conn, {"ladder": ladder_id, "number": number})
        return int(found.count)  # type: ignore[union-attr]  # a count is one row

    def repeats(self, ladder_id: int) -> int:
        """Count the submissions that repeated earlier predictions: for audits."""
        entry = submissions.c
        return self._count(entry.ladder_id == ladder_id, entry.repeat_of.is_not(None))

    def _count(self, *where: ColumnElement[bool]) -> int:
        query = select(func.count()).select_from(submissions).where(*where)
        return int(self.conn.execute(query).scalar_one())

    # -- the chain --------------------------------------------------------------------

    def head(self, holdout_id: int) -> Head:
        """Return where the chain of a holdout ends, as it was written last.

        The text of it, ``length:hash``, is what is anchored outside of the ledger.
        """
        query = select(chains.c.length, chains.c.head).where(chains.c.holdout_id == holdout_id)
        row = self.conn.execute(query).one_or_none()
        return EMPTY if row is None else Head(row.length, row.head)

    def head_at(self, holdout_id: int, length: int) -> Head | None:
        """Recompute where that chain ended after so many links; None where it has fewer."""
        found = heads(self.holdout(holdout_id).secret, self.chains.links(holdout_id))
        return next((head for head in found if head.length == length), None)


def _checked_row(found: Sequence[Any], ladder_id: int) -> Any:
    """Return the row of a ladder; refuse where there is none, or where its ledger was replaced."""
    if not found:
        raise UnknownHoldout(f"The ledger holds no ladder number {ladder_id}.")
    # With the row, for it costs no statement: another process may put another ledger in place.
    check_format(found[0].format)
    return found[0]


def _questions(ladder_id: int, one: Asked) -> Iterator[tuple[Prepared, dict[str, Any]]]:
    """Yield what a submission is searched by: the query, and what it is given."""
    by_digest = {"ladder": ladder_id, "digest": one.digest}
    if one.key is not None:
        yield statements.FIRST_BY_KEY[1], {"ladder": ladder_id, "key": one.key}
    if one.reserve_digest is not None:
        yield statements.OF_ALL_ROWS[1], {**by_digest, "reserve_digest": one.reserve_digest}
    yield statements.FIRST_BY_DIGEST[1], by_digest


def _releases_values(ladder: LadderRecord) -> bool:
    """Return whether all values of a ladder are known: released, or opened by an audit."""
    return rules_of(ladder.settings).mechanism.shows_values or ladder.opened is not None


def _key(result: CursorResult[Any]) -> int:
    return int(result.inserted_primary_key[0])  # type: ignore[index]  # Core inserts have one
