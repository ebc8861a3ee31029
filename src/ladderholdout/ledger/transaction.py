"""What can be read of a ledger and written to it, inside one transaction."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, CursorResult, func, insert, select, update

from ladderholdout.certificates import COUNT_NOISE
from ladderholdout.errors import UnknownHoldout
from ladderholdout.ledger import history, statements
from ladderholdout.ledger.accounts import Accounts
from ladderholdout.ledger.batches import Batches, NewIncumbent, keep_incumbent
from ladderholdout.ledger.blocks import Blocks
from ladderholdout.ledger.chain import (
    GROUPED,
    RESTORED,
    WITHDRAWN,
    Chains,
    Left,
    end_of,
    heads,
    refuse_retired,
    submission_content,
    submitted,
)
from ladderholdout.ledger.finals import FinalsRecords
from ladderholdout.ledger.known_rows import HoldoutRows, Sharing
from ladderholdout.ledger.prepared import Prepared, run
from ladderholdout.ledger.records import (
    EMPTY,
    NOT_IMPROVED,
    Asked,
    AuditEntry,
    AuditRow,
    Decided,
    Entry,
    First,
    Head,
    HoldoutRecord,
    LadderRecord,
    LadderSettings,
    Overlap,
    Recorded,
    Withdrawal,
    booleans,
    decompressed,
    entry_record,
    holdout_record,
    is_standing,
    ladder_record,
    now,
    read_all,
    select_entries,
    select_holdouts,
    select_incumbents,
    to_bytes,
)
from ladderholdout.ledger.reserve_queries import ReserveQueries
from ladderholdout.ledger.rounds import Rounds
from ladderholdout.ledger.tables import (
    FAULTS,
    FORMAT,
    chains,
    check_format,
    damaged,
    events,
    holdouts,
    incumbents,
    ladders,
    read_json,
    reserve_looks,
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
        value: T = tx.known[key]
        return value

    return reading


class Transaction:
    """What can be read of a ledger and written to it; made by `Ledger` alone.

    Parameters
    ----------
    conn : Connection
        In a transaction.
    url : str
        Of the ledger.
    writes : bool
        Whether it may write.

    Attributes
    ----------
    chains : Chains
        The ends of the chains, and their links.
    known : dict or None
        What was read already, where nothing is written.
    """

    __slots__ = ("_ahead", "_unkept", "chains", "conn", "known")

    def __init__(self, conn: Connection, url: str, *, writes: bool) -> None:
        self.conn = conn
        self.chains = Chains(conn, url)
        self.known: dict[Any, Any] | None = None if writes else {}
        # The incumbent that a later round of its fit may replace before it is written.
        self._unkept: NewIncumbent | None = None
        # By a query of first submissions and its values: the cursor of a query that was sent before
        # its rows are needed, or a list of the submissions where they are known.
        self._ahead: dict[tuple[Any, ...], Any] = {}

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
        """The withdrawals of ladders."""
        return Withdrawals(self.conn, self.chains)

    @property
    def finals(self) -> FinalsRecords:
        """The finals of leaderboards."""
        return FinalsRecords(self.conn, self.chains)

    @property
    def rounds(self) -> Rounds:
        """The rounds of leaderboards."""
        return Rounds(self.conn, self.chains)

    @property
    def accounts(self) -> Accounts:
        """The accounts of a server."""
        return Accounts(self.conn)

    @property
    def blocks(self) -> Blocks:
        """The blocks of rows that holdouts have had, and how fresh ones follow."""
        return Blocks(self.conn, self.chains)

    # -- holdouts ---------------------------------------------------------------------

    def holdouts(self, *, name: str | None = None) -> tuple[HoldoutRecord, ...]:
        """Return the registered holdouts, oldest first, or the one of a name."""
        query = select_holdouts().order_by(holdouts.c.id)
        query = query.where(is_standing() if name is None else holdouts.c.name == name)
        return read_all(self.conn.execute(query), holdout_record)

    def holdout_id(self, name: str) -> int | None:
        """Return the id of a holdout, whatever else of it can be read."""
        query = select(holdouts.c.id).where(holdouts.c.name == name)
        return self.conn.execute(query).scalar_one_or_none()

    @_once
    def holdout(self, holdout_id: int) -> HoldoutRecord:
        """Return a holdout by its id."""
        rows = statements.HOLDOUT.rows(self.conn, {"holdout": holdout_id})
        if not rows:
            raise UnknownHoldout(f"The ledger holds no holdout number {holdout_id}.")
        (record,) = read_all(rows, holdout_record)
        return record

    def row_hashes(self, holdout_id: int) -> NDArray[np.uint64]:
        """Return the row hashes of a holdout in the order it was registered, shape (n,)."""
        query = select(holdouts.c.row_hashes).where(holdouts.c.id == holdout_id)
        return np.frombuffer(self.conn.execute(query).scalar_one(), dtype="<u8")

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
        rows = statements.LADDERS.rows(self.conn, {"holdout": holdout_id})
        return read_all(rows, ladder_record)

    @_once
    def ladder(self, ladder_id: int) -> LadderRecord:
        """Return a ladder."""
        rows = statements.ONE_LADDER.rows(self.conn, {"ladder": ladder_id})
        return _checked_ladder(rows, ladder_id)

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
            The submissions that are about to be searched: a server is asked for all at once.
        left : Left, optional
            The ladder as this process left it, which is not waited for: the server commits nothing
            where the ladder has changed, or where a submission that is asked for is known there and
            not remembered here (`postgres.Stale`).
        """
        if left is not None:
            return self._taken_up(left, asked)
        (ladder,) = self.locked_ladders({ladder_id: asked})
        return ladder

    def locked_ladders(self, asked: Mapping[int, Sequence[Asked]]) -> tuple[LadderRecord, ...]:
        """Return several ladders of a holdout, by their ids, as `locked_ladder` returns one."""
        cursors, ladders = {}, []
        for ladder_id, submissions_of_ladder in asked.items():
            cursors[ladder_id] = statements.LOCKED_LADDER.send(self.conn, {"ladder": ladder_id})
            if self.conn.dialect.name == "sqlite":  # a file answers at once
                continue
            # In statements of their own, since each sees what was committed when it begins: the
            # statement that locks waits until others have committed.
            for submission in submissions_of_ladder:
                for query, values in _questions(ladder_id, submission):
                    self._ahead[query, *values.values()] = query.send(self.conn, values)
        for ladder_id, cursor in cursors.items():
            rows = statements.LOCKED_LADDER.read(self.conn, cursor)
            ladder = _checked_ladder(rows, ladder_id)
            self.chains.hold(ladder.holdout_id, end_of(rows[0]))
            ladders.append(ladder)
        return tuple(ladders)

    def _taken_up(self, left: Left, asked: Sequence[Asked]) -> LadderRecord:
        """Return a ladder as it was left; the server checks that nothing else was written since."""
        ladder, end = left.ladder, left.end
        unchanged = {"ladder": ladder.id, "length": end.head.length, "head": end.head.hash}
        for submission in asked:
            digest = None if submission.first else submission.digest
            unknown = {"digest": digest, "key": submission.key, "format": FORMAT}
            statements.UNCHANGED.send(self.conn, unchanged | unknown)
            for query, values in _questions(ladder.id, submission):
                self._ahead[query, *values.values()] = []
            self.remember(ladder, submission, submission.first)
        self.chains.hold(ladder.holdout_id, replace(end))
        return ladder

    def ladder_with_holdout(self, ladder_id: int) -> LadderRecord:
        """Return a ladder, and read its holdout with it, so that `holdout` asks nothing more."""
        rows = statements.LADDER_WITH_HOLDOUT.rows(self.conn, {"ladder": ladder_id})
        ladder = _checked_ladder(rows, ladder_id)
        if self.known is not None:
            (holdout,) = read_all(rows, statements.holdout_with_ladder)
            self.known |= {("ladder", ladder_id): ladder, ("holdout", holdout.id): holdout}
            # What the row shows to be empty, or to have no other, need not be asked for.
            if rows[0].ladders == 1:
                self.known["ladders", holdout.id] = (ladder,)
            for name in statements.MISSING:
                if not getattr(rows[0], f"with_{name}"):
                    self.known[name, holdout.id] = ()
        return ladder

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
            "show": settings.show,
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
            self._ahead[by_digest, ladder.id, asked.digest] = [first]

    def first_by_key(self, ladder: LadderRecord, key: str) -> First | None:
        """Return the submission under a key, for the guard, which hides what is not released."""
        return self._in_force(ladder, statements.FIRST_BY_KEY, {"key": key}, ())

    def first(
        self, ladder: LadderRecord, digest: str, reserve_digest: str | None
    ) -> tuple[First | None, bool]:
        """Return the first submission of these predictions, and whether on all rows.

        None where there was none, and where a withdrawal has set its answer aside. Where
        predictions differ on rows of the reserve alone, it is the first one that was the same on
        those that the ladder measures, and False. For the guard.
        """
        withdrawals = self.withdrawals.of(ladder) if ladder.withdrawals else ()
        if reserve_digest is not None:
            # It takes as long with known predictions as with others, for the time must not show
            # which they are.
            digests = {"digest": digest, "reserve_digest": reserve_digest}
            first = self._in_force(ladder, statements.OF_ALL_ROWS, digests, withdrawals)
            if first is not None:
                return first, True
        by_digest = statements.FIRST_BY_DIGEST
        first = self._in_force(ladder, by_digest, {"digest": digest}, withdrawals)
        return first, reserve_digest is None

    def _in_force(
        self,
        ladder: LadderRecord,
        queries: tuple[Prepared, Prepared],
        values: Mapping[str, Any],
        withdrawals: Sequence[Withdrawal],
    ) -> First | None:
        """Return the first submission found whose answer no withdrawal has set aside."""
        query, values = queries[0 if withdrawals else 1], {"ladder": ladder.id, **values}
        rows = self._ahead.pop((query, *values.values()), None)
        if not isinstance(rows, list):
            rows = query.read(self.conn, rows or query.send(self.conn, values))
        for row in rows:
            if not any(withdrawal.sets_aside(row.number) for withdrawal in withdrawals):
                reasons = self.withdrawals.reasons(ladder)
                return First(*row)._replace(withdrawn=reasons.get(row.repeat_of or row.number))
        return None

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
        values = {
            **statements.OPTIONAL,
            **entry,
            "ladder_id": ladder.id,
            "number": number,
            "time": entry.get("time") or now(),
            "evidence": json.dumps(evidence),
            "context": json.dumps(entry["context"]),
        }
        queries = ladder.queries
        if entry.get("repeat_of") is None or evidence == NOT_IMPROVED:
            queries += 1
            end.runs += values["batch"] is not None and values["batch"] != end.batch
            end.batch = values["batch"]
        content = submission_content(submitted(values))
        head = self.chains.add(ladder.holdout_id, "submission", content)
        values |= {"position": head.length, "hash": head.hash, "runs": end.runs}
        values["queries"] = queries
        # A text, as SQLAlchemy writes it to a file; the zone of a connection to a server is UTC.
        values["time"] = values["time"].replace(tzinfo=None).isoformat(" ", "microseconds")
        run(self.conn, statements.ADD_SUBMISSION, values)
        kept = candidate is not None and self.batches.keep(ladder, number, candidate)
        changes: dict[str, Any] = {"ladder": ladder.id, "number": number, "queries": queries}
        new: dict[str, Any] = {"submissions": number, "queries": queries}
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
            # Several incumbents of one fit replace what was the incumbent before the first of them.
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
        values = {"ladder": ladder_id, "after": after, "search": search}
        values["most"] = history.ALL if limit is None else limit
        # What may be shown is read first: should that fail, no frame holds what may not be shown.
        ladder = self.ladder(ladder_id)
        shown, reasons = self.shown_risks(ladder), self.withdrawals.reasons(ladder)
        entries = read_all(query.rows(self.conn, values), entry_record)
        if shown is None and not reasons:
            return entries
        # A risk that two incumbents had, as is possible after a withdrawal, is shown once both were
        # asked for.
        return tuple(
            replace(
                entry,
                risk=entry.risk if shown is None or entry.risk in shown else None,
                withdrawn=reasons.get(entry.repeat_of or entry.number),
            )
            for entry in entries
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
        """Yield all submissions to a ladder in their order, for a replay; few are in memory.

        A value that was changed ends the reading in a LedgerError.
        """
        return history.read_recorded(self.conn, ladder_id)

    def audited(self, ladder_id: int) -> Iterator[tuple[AuditRow, ...]]:
        """Yield all submissions to a ladder in their order, some at a time, for an audit."""
        return history.read_audited(self.conn, ladder_id)

    # -- what certificates count ------------------------------------------------------

    def chosen(self, ladder: LadderRecord) -> history.Chosen | None:
        """Return what all holdouts with these rows had revealed before the incumbent was chosen."""
        sharing = self.sharing(ladder.holdout_id)
        used = self._used([ladder.holdout_id, *(other.holdout_id for other in sharing)])
        return history.read_chosen(self.conn, used, ladder.id, ladder.incumbent)

    def answered(self, holdout_ids: Sequence[int], until: int) -> tuple[history.LadderQueries, ...]:
        """Return the queries of these holdouts up to the submission of this id, by ladder."""
        return history.read_answered(self.conn, self._used(holdout_ids), until)

    def _used(self, holdout_ids: Sequence[int]) -> history.Used:
        """Return the ladders of some holdouts, as their submissions are counted."""
        withdrawn = (event for id_ in holdout_ids for event in self.events(id_, WITHDRAWN))
        return history.read_used(self.conn, holdout_ids, withdrawn)

    def is_on_grid(self, ladder_id: int, until: int, n: int) -> bool:
        """Return whether all that a ladder released up to a submission are shares of n rows.

        Where they are, they are counted as such, whatever weights its rows may have: a code for
        shares alone gives no chance to anything else.
        """
        entry = submissions.c
        query = select(entry.released_risk).where(
            entry.ladder_id == ladder_id, entry.repeat_of.is_(None), entry.id <= until
        )
        counts = n * np.array(self.conn.execute(query).scalars().all(), dtype=np.float64)
        return bool((np.abs(counts - np.rint(counts)) < COUNT_NOISE).all())

    def shown_values(self, holdout_id: int) -> tuple[tuple[int, int, float], ...]:
        """Return position, `EventRecord.after` and ln(values) of all queries of a reserve.

        Finals are among them.
        """
        look = reserve_looks.c
        query = select(look.position, look.after, look.log_values)
        rows = self.conn.execute(query.where(look.holdout_id == holdout_id))
        queries = tuple((position, after, values) for position, after, values in rows)
        finals = self.finals.all(holdout_id)
        return (
            *queries,
            *((held.position, held.after, held.shown.log_values) for held in finals),
        )

    @_once
    def sharing(self, holdout_id: int) -> tuple[Sharing, ...]:
        """Return the other holdouts that have rows of this one, oldest first."""
        return self.rows.sharing(holdout_id)

    @_once
    def overlaps(self, holdout_id: int) -> tuple[Overlap, ...]:
        """Return where else rows of a holdout were seen, largest count first."""
        return self.rows.overlaps(holdout_id)

    # -- events: what was shown on demand, amended, stated, opened, found -------------

    def events(self, holdout_id: int, *kinds: str) -> tuple[history.EventRecord, ...]:
        """Return the events of a holdout of these kinds (of a kind's first word), oldest first."""
        events = self._events(holdout_id)
        return tuple([event for event in events if event.kind.partition(" ")[0] in kinds])

    @_once
    def _events(self, holdout_id: int) -> tuple[history.EventRecord, ...]:
        return history.read_events(self.conn, holdout_id, *statements.KINDS)

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

    def grouped(self, holdout_id: int, *, withdrawn: bool = False) -> tuple[str, ...]:
        """Return what showed that the rows of a holdout come in groups, if anything did."""
        return self.withdrawals.notes(self.events(holdout_id, GROUPED), withdrawn=withdrawn)

    def note_grouped(self, holdout_id: int, by: str) -> None:
        """Note what shows that the rows of a holdout come in groups, if it is new."""
        if by not in self.grouped(holdout_id, withdrawn=True):
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
        amended = None
        for event in self.events(holdout_id, "amended"):
            if before is None or event.position < before:
                try:
                    rows = bytes.fromhex(json.loads(event.detail or "")["rows"])
                    labels = booleans(rows, self.holdout(holdout_id).n)
                except FAULTS:
                    raise damaged() from None
                amended = labels if amended is None else amended | labels
        return amended

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

    def asked(self, holdout_id: int) -> dict[tuple[int, int], history.EventRecord]:
        """Return which values of ladders that release none were asked for, and when first.

        Returns
        -------
        dict of (ladder id, number of the submission) to EventRecord
        """
        first: dict[tuple[int, int], history.EventRecord] = {}
        for event in self.events(holdout_id, "asked"):
            if event.ladder_id is not None:
                # Each asking is about the submission that was the incumbent then.
                number = int(json.loads(event.detail or "")["submission"])
                first.setdefault((event.ladder_id, number), event)
        return first

    def ask(self, ladder: LadderRecord) -> None:
        """Note that the released score of a ladder is shown; the first time counts.

        Parameters
        ----------
        ladder : LadderRecord
            As read under lock in this transaction.
        """
        if ladder.incumbent is not None and self.released(ladder) is None:
            detail = {"submission": ladder.incumbent}
            self.chains.note(ladder.holdout_id, "asked", ladder.id, detail)

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
        improved = history.read_improved(self.conn, ladder.holdout_id) if asked else ()
        records = [record for record in improved if record.ladder_id == ladder.id]
        hidden = {record.risk for record in records if (ladder.id, record.number) not in asked}
        return frozenset(record.risk for record in records) - hidden

    def improvements(self, ladder_id: int, number: int) -> int:
        """Count the submissions that had improved a ladder up to this one, repeats left out."""
        values = {"ladder": ladder_id, "number": number}
        (row,) = statements.IMPROVEMENTS.rows(self.conn, values)
        return int(row.count)

    def decided(self, ladder: LadderRecord, number: int, asked: Asked) -> Decided:
        """Return what a gate decided on in a submission."""
        return history.read_decided(
            self.conn, ladder.id, number, asked, self.withdrawals.of(ladder)
        )

    def least_margin(self, ladder_id: int, digest: str) -> float:
        """Return the smallest gain that a gate tested some predictions for; infinity for none."""
        return min(history.read_margins(self.conn, ladder_id, digest=digest), default=math.inf)

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
        every = heads(self.holdout(holdout_id).secret, self.chains.links(holdout_id))
        return next((head for head in every if head.length == length), None)


def _checked_ladder(rows: Sequence[Any], ladder_id: int) -> LadderRecord:
    """Return the ladder of a row; refuse where there is none, or where its ledger was replaced."""
    if not rows:
        raise UnknownHoldout(f"The ledger holds no ladder number {ladder_id}.")
    # With the row, for that costs no statement: another process may put another ledger in place.
    check_format(rows[0].format)
    (ladder,) = read_all(rows, ladder_record)
    return ladder


def _questions(ladder_id: int, asked: Asked) -> Iterator[tuple[Prepared, dict[str, Any]]]:
    """Yield the queries by which a submission is searched, each with its values."""
    by_digest = {"ladder": ladder_id, "digest": asked.digest}
    if asked.key is not None:
        yield statements.FIRST_BY_KEY[1], {"ladder": ladder_id, "key": asked.key}
    if asked.reserve_digest is not None:
        yield statements.OF_ALL_ROWS[1], {**by_digest, "reserve_digest": asked.reserve_digest}
    yield statements.FIRST_BY_DIGEST[1], by_digest


def _releases_values(ladder: LadderRecord) -> bool:
    """Return whether all values of a ladder are known: released, or opened by an audit."""
    return ladder.settings.shows_scores or ladder.opened is not None


def _key(result: CursorResult[Any]) -> int:
    return int(result.inserted_primary_key[0])  # type: ignore[index]  # Core inserts have one
