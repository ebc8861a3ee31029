"""The record: one append-only table of events, chained, and what is long beside it in pieces.

The hash of each event covers the one before it, so that no event changes unseen. There is one chain
for each holdout, through all of its ladders: what may be claimed of one ladder depends on the
queries of the others, and a ladder that was deleted with all of its events must be missed. The
registration of fresh rows covers where the chain of the rows before them ended.

The hashes are keyed with the holdout's secret: they cover raw risks, and the last one is shown and
anchored in other places. Without a key, raw risks could be tried until one fits.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic_core import to_json

from ladderholdout.errors import LedgerError, UnknownHoldout
from ladderholdout.ledger import arrays, marks
from ladderholdout.ledger import events as e
from ladderholdout.ledger.fold import Head, Holdout, HoldoutRecord, Improvement, LadderRecord

FORMAT = 2
"""The number of the format that this version reads and writes."""

TABLES = """
CREATE TABLE ledger_format (number INTEGER PRIMARY KEY);
CREATE TABLE holdout (
  id {serial}, name TEXT NOT NULL UNIQUE, n BIGINT NOT NULL, secret {bytes} NOT NULL,
  length BIGINT NOT NULL, head {bytes} NOT NULL);
CREATE TABLE ladder (id {serial}, holdout BIGINT NOT NULL);
CREATE TABLE log (
  seq {serial}, holdout BIGINT NOT NULL, position BIGINT NOT NULL, kind TEXT NOT NULL,
  ladder BIGINT, number BIGINT, query BIGINT, batch TEXT, digest TEXT, whole TEXT, key TEXT,
  search TEXT, body {bytes} NOT NULL, hash {bytes} NOT NULL);
CREATE UNIQUE INDEX log_position ON log (holdout, position);
CREATE UNIQUE INDEX log_number ON log (ladder, number) WHERE number IS NOT NULL;
CREATE INDEX log_query ON log (ladder, position, query) WHERE query IS NOT NULL;
CREATE INDEX log_digest ON log (ladder, digest) WHERE digest IS NOT NULL;
CREATE INDEX log_whole ON log (ladder, whole) WHERE whole IS NOT NULL;
CREATE INDEX log_key ON log (key, ladder) WHERE key IS NOT NULL;
CREATE INDEX log_search ON log (ladder, search) WHERE search IS NOT NULL;
CREATE TABLE piece (
  holdout BIGINT NOT NULL, position BIGINT NOT NULL, name TEXT NOT NULL, part BIGINT NOT NULL,
  content {bytes} NOT NULL, PRIMARY KEY (holdout, position, name, part));
CREATE TABLE snapshot (holdout BIGINT PRIMARY KEY, position BIGINT NOT NULL, body {bytes} NOT NULL,
  mac {bytes} NOT NULL);
CREATE TABLE session (digest TEXT PRIMARY KEY, until TEXT NOT NULL);
INSERT INTO ledger_format VALUES ({number})
"""

COLUMNS = ("ladder", "number", "query", "batch", "digest", "whole", "key", "search")
_ADD = (
    f"INSERT INTO log (holdout, position, kind, {', '.join(COLUMNS)}, body, hash) "
    f"VALUES ({', '.join('?' * (5 + len(COLUMNS)))})"
)
# With the format and the end of the chain, also if there are no events.
_NEXT = (
    "SELECT ledger_format.number, length, head, position, kind, body, hash FROM holdout "
    "CROSS JOIN ledger_format LEFT JOIN (SELECT position, kind, body, hash FROM log "
    "WHERE holdout = ? AND position > ? ORDER BY position LIMIT ?) AS next ON TRUE "
    "WHERE holdout.id = ? ORDER BY position"
)
_KEEP = "INSERT INTO piece (holdout, position, name, part, content) VALUES (?, ?, ?, ?, ?)"
PIECES = "SELECT content FROM piece WHERE holdout = ? AND position = ? AND name = ? ORDER BY part"
_END = "UPDATE holdout SET length = ?, head = ? WHERE id = ?"

_SNAPSHOT = "SELECT body, mac FROM snapshot WHERE holdout = ?"

# What is found of submissions and accounts.
ENTRIES = "SELECT body FROM log WHERE ladder = ? AND number > ? ORDER BY number LIMIT ?"
OF_SEARCH = ENTRIES.replace("ORDER", "AND search = ? ORDER")
PLACED = "SELECT position, body FROM log WHERE ladder = ? AND number = ?"
_RELEASED = "SELECT body FROM log WHERE ladder = ? AND digest IS NOT NULL AND position <= ?"
FOUND = (
    "SELECT body FROM log WHERE ladder = ? AND {0} = ? AND number IS NOT NULL ORDER BY number + 0"
)
# Divides by zero where others wrote since, or where a submission is known there and not here.
UNCHANGED = (
    "SELECT 1 / count(*) FROM (SELECT 1 FROM holdout, ledger_format WHERE id = ? AND length = ? "
    "AND head = ? AND number = ? "
    "AND NOT EXISTS (SELECT 1 FROM log WHERE ladder = ? AND digest = ?) "
    "AND NOT EXISTS (SELECT 1 FROM log WHERE ladder = ? AND key = ?) FOR UPDATE OF holdout) AS same"
)
TOKENS = "SELECT holdout FROM log WHERE key = ? AND kind = ? ORDER BY seq DESC LIMIT 1"
# A name of bytes, which nobody of ours has written, is read as a text.
HOLDOUTS = "SELECT id, CAST(name AS TEXT) FROM holdout{} ORDER BY id"
DROP = "DELETE FROM piece WHERE holdout = ? AND position = ?"

# What is counted.
# Of each ladder the last query up to a position counts them.
_COUNTS = (
    "SELECT ladder.id, (SELECT query FROM log WHERE log.ladder = ladder.id AND position <= ? "
    "AND query IS NOT NULL ORDER BY position DESC LIMIT 1) FROM ladder WHERE ladder.holdout = ?"
)
# By the index of positions from the newest on, which seq follows.
_BEFORE = (
    "SELECT (SELECT position FROM log AS one WHERE one.holdout = ? AND one.seq < own.seq "
    "ORDER BY one.position DESC LIMIT 1) FROM log AS own WHERE own.holdout = ? AND own.position = ?"
)
_OTHER_BATCH = (
    "SELECT coalesce(max(seq), 0) FROM log WHERE holdout = ? AND position <= ? "
    "AND query IS NOT NULL AND batch IS DISTINCT FROM ?"
)
_UP_TO = "SELECT coalesce(max(position), 0) FROM log WHERE holdout = ? AND seq <= ?"
_BATCHES = "SELECT seq, batch FROM log WHERE holdout = ? AND position <= ? AND query IS NOT NULL"

# What is verified.
STATED = "SELECT secret, length, head, name, n FROM holdout WHERE id = ?"
# By the index of positions. Of the same position there are several only if somebody took it out.
FIRST_PAGE = (
    f"SELECT seq, position, kind, body, hash, {', '.join(COLUMNS)} FROM log WHERE holdout = ? "
    "ORDER BY position, seq LIMIT ?"
)
NEXT_PAGE = FIRST_PAGE.replace("ORDER", "AND (position, seq) > (?, ?) ORDER")
KEPT = "SELECT DISTINCT position, name FROM piece WHERE holdout = ?"
LADDERS = "SELECT id FROM ladder WHERE holdout = ? ORDER BY id"
TWICE = (
    "SELECT {0} FROM log WHERE ladder = ? AND {0} IS NOT NULL AND number IS NOT NULL "
    "GROUP BY {0} HAVING count(*) > 1"
)

PART = 1 << 20
"""Bytes of one piece of what is kept beside an event."""

AT_A_TIME = 1000
"""Events that are held in memory where there may be millions."""

SNAPSHOT_EVERY = 1000
"""Events between two snapshots of what they come to."""

Progress: TypeAlias = Callable[[int, int], None]
"""Is called with how many events were gone through, and of how many."""


def now() -> datetime:
    """Return this moment, in UTC."""
    return datetime.now(UTC)


@dataclass(slots=True, eq=False, repr=False)  # it knows secrets
class Connection:
    """A connection to a database, and what it knows of the holdouts there.

    Whether it `answers_at_once` or over a wire, where statements are sent before answers are read.
    """

    driver: Any
    folds: dict[int, Holdout] = field(default_factory=dict, init=False)

    answers_at_once: ClassVar[bool]
    types: ClassVar[dict[str, str]]
    names: ClassVar[str]  # the query for the names of the tables

    def send(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Send a statement with ? for its values; its rows are read from what is returned."""
        return self.driver.execute(statement, values)

    def make_tables(self) -> None:
        """Make the tables of an empty ledger."""
        for statement in TABLES.format(**self.types, number=FORMAT).split(";"):
            self.send(statement)

    def close(self) -> None:
        """Close the connection, whatever it did."""
        with suppress(Exception):
            self.driver.close()


C = TypeVar("C", bound=Connection)


@dataclass(slots=True)
class Source(Generic[C]):
    """Connections to one database.

    Attributes
    ----------
    ready : bool
        Whether it was found to hold a ledger of this format.
    """

    ready: bool = field(default=False, init=False)
    _idle: list[C] = field(default_factory=list, init=False)

    def pauses(self) -> Iterator[float]:
        """Return the pauses between attempts to reach it."""
        return iter(())

    def turn(self, *, write: bool) -> AbstractContextManager[Any]:
        """Return what threads of this process take turns by, if the database does not see to it."""
        return nullcontext()

    def current(self) -> bool:
        """Return whether it is still the database that was opened."""
        return True

    def dispose(self) -> None:
        """Close the connections that nobody has."""
        while self._idle:
            self._idle.pop().close()

    def risks(self) -> tuple[str, ...]:
        """Return the settings that may let the database forget what was released."""
        return ()


def linked(secret: bytes, before: bytes, position: int, kind: str, body: bytes) -> bytes:
    """Return the hash of an event: of the one before it, its place, its kind and its very bytes."""
    place = position.to_bytes(8, "big") + kind.encode()
    return hmac.digest(secret, b"ladderholdout chain 2%b%b\0%b" % (before, place, body), "sha256")


def columns_of(happened: e.Event) -> tuple[Any, ...]:
    """Return by what an event is found: the values of `COLUMNS`."""
    match happened:
        case e.Submitted(ladder=ladder, number=number, query=query, batch=batch, search=search):
            digest = happened.digest if happened.repeat_of is None else None
            whole = None if query is None else happened.reserve_digest
            return ladder, number, query, batch, digest, whole, happened.key, search
        case e.Registered() | e.ViewAdded():
            return None, None, None, None, happened.fingerprint, None, None, None
        case e.AccountChanged():
            return happened.ladder, None, None, None, None, None, happened.token_key, None
    return (getattr(happened, "ladder", None), *[None] * 7)


def pieces_of(happened: e.Event) -> dict[str, str]:
    """Return the SHA-256 of what is kept beside an event, by the names of its fields."""
    digests = {name: getattr(happened, name, None) for name in _KEPT}
    return {name: digest for name, digest in digests.items() if digest is not None}


_KEPT = (
    *("row_hashes", "reserve", "label_digests", "places", "ids", "weight_digests", "groups"),
    *("mask", "predictions"),
)


@dataclass(frozen=True, slots=True)
class LadderQueries:
    """The queries of one ladder that had been answered at some moment.

    After the withdrawal of an incumbent another record begins: only up to there do the released
    risks fall.

    Attributes
    ----------
    ladder_id : int
    count : int
    improved : tuple of Improvement
        Those that became the incumbent, oldest first.
    start : int
        How many queries came before the first of them.
    releases : int
        How many had improved the ladder up to that one.
    """

    ladder_id: int
    count: int
    improved: tuple[Improvement, ...]
    start: int = 0
    releases: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The incumbent, with all that had been answered when it was chosen.

    Attributes
    ----------
    own : Improvement
    lengths : dict
        By holdout up to which position it had been answered.
    before : int
        Queries up to the last one that was not of its batch.
    place : int
        Its own place in its batch; where that is not on record, its place among the queries after
        those, from 1.
    runs : int
        Runs of queries of one batch that had begun before, over all ladders.
    ladders : tuple of LadderQueries
        Those queries by ladder; with a count of 0 for a ladder that was only used since. The one
        without a batch is the last of its own ladder's.
    """

    own: Improvement
    lengths: Mapping[int, int]
    before: int
    place: int
    runs: int
    ladders: tuple[LadderQueries, ...]


class Log:
    """The chains of a ledger inside one transaction: what they come to, and adding to them.

    Attributes
    ----------
    held, ends : dict
        The marks of the holdouts that are locked, and where their chains end now, by their ids.
    lost : list of Head
        Where longer chains were seen on this machine.
    last : tuple of (int, Head) or None
        The last event that was added, with its holdout.
    """

    __slots__ = ("_ahead", "_seen", "_unkept", "db", "ends", "held", "last", "lost", "url")

    def __init__(self, db: Connection, url: str) -> None:
        self.db, self.url = db, url
        self.held: dict[int, marks.Mark] = {}
        self.ends: dict[int, Head] = {}
        self.lost: list[Head] = []
        self.last: tuple[int, Head] | None = None
        self._seen: set[int] = set()
        self._ahead: dict[tuple[int, str, str], Any] = {}
        # By position, predictions that a later round of their fit may replace before they are kept.
        self._unkept: dict[int, bytes] = {}

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        return list(self.db.send(statement, values).fetchall())

    # -- what is known of a holdout -----------------------------------------------------

    def fold(self, holdout_id: int) -> Holdout:
        """Return all that is known of a holdout by now."""
        if holdout_id not in self._seen:
            self._catch_up(holdout_id)
        return self.db.folds[holdout_id]

    def _catch_up(self, holdout_id: int, sent: Any = None) -> None:
        """Read what is new; all of it anew if what is known here is not in this chain."""
        folds, known = self.db.folds, self.db.folds.pop(holdout_id, None)
        if known is None:
            rows = self.rows("SELECT secret FROM holdout WHERE id = ?", holdout_id)
            if not rows:
                raise UnknownHoldout(f"The ledger holds no holdout number {holdout_id}.")
            new = Holdout(holdout_id, blob(rows[0][0]))
            kept = self.snapshots(holdout_id, new.secret)
            known = next((one for one in kept if one and self.has(holdout_id, one.end)), None)
        else:
            new = Holdout(holdout_id, known.secret)
        try:
            folds[holdout_id] = self._read_on(known or new, sent)
        except e.Damaged:
            if known is None:
                raise
            folds[holdout_id] = self._read_on(new)
        self._seen.add(holdout_id)

    def _read_on(self, known: Holdout, sent: Any = None) -> Holdout:
        """Return what is known after all events, up to the end that is on record."""
        while True:
            rows = (sent or self.send_for_news(known)).fetchall()
            if not rows:
                raise e.Damaged
            refuse_other_format(rows[0][0])
            for *_, position, kind, body, link in rows:
                if position is None:
                    break
                if position != known.length + 1 or kind not in e.KINDS:
                    raise e.Damaged
                expected = linked(known.secret, known.head, position, kind, blob(body))
                if expected != blob(link):
                    raise e.Damaged
                known.apply(position, expected, e.read(kind, blob(body)))
            if len(rows) < AT_A_TIME:
                break
            sent = None
        if known.first is None or (known.length, known.head) != tuple(rows[0][1:3]):
            raise e.Damaged
        return known

    def send_for_news(self, known: Holdout) -> Any:
        """Send for what follows what is known of a holdout, and for the end of its chain."""
        return self.db.send(_NEXT, (known.id, known.length, AT_A_TIME, known.id))

    def snapshots(self, holdout_id: int, secret: bytes) -> list[Holdout | None]:
        """Return the snapshot that is kept of a holdout; None for one that was changed."""
        return [read_snapshot(secret, *row) for row in self.rows(_SNAPSHOT, holdout_id)]

    def holdout(self, holdout_id: int) -> HoldoutRecord:
        """Return what is known of the rows of a holdout."""
        known = self.fold(holdout_id)
        if known.record is None:
            registered, reserve, classes = known.registered, None, None
            if known.classes is not None:
                classes = arrays.from_bytes(bytes.fromhex(known.classes))
            if known.reserve is not None:
                stored = self.piece(holdout_id, known.reserve, "reserve")
                reserve = arrays.booleans(stored, registered.n)
            known.record = HoldoutRecord(
                *(holdout_id, known.name, registered.fingerprint, known.secret),
                *(registered.n, classes, known.views[0].vault_path, registered.time),
                *(known.retired, reserve, registered.confidence),
                *(known.labels_version, registered.estimand, registered.block),
            )
        record: HoldoutRecord = known.record
        return record

    def ladder(self, ladder_id: int, since: datetime | None = None) -> LadderRecord:
        """Return a ladder; refuse another one in the place of that which was created `since`."""
        return self.fold(self._home(ladder_id)).ladder(ladder_id, since)

    def _home(self, ladder_id: int) -> int:
        """Return the holdout of a ladder."""
        for known in self.db.folds.values():
            if ladder_id in known.ladders:
                return known.id
        rows = self.rows("SELECT holdout FROM ladder WHERE id = ?", ladder_id)
        if not rows:
            raise UnknownHoldout(f"The ledger holds no ladder number {ladder_id}.")
        return int(rows[0][0])

    def ladders(self, holdout_id: int) -> tuple[LadderRecord, ...]:
        """Return the ladders on a holdout, oldest first."""
        return tuple(self.fold(holdout_id).ladders.values())

    def piece(self, holdout_id: int, position: int, name: str) -> bytes:
        """Return what is kept beside an event under the name of its field."""
        parts = [blob(row[0]) for row in self.rows(PIECES, holdout_id, position, name)]
        if not parts:
            raise e.Damaged
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # -- ends -----------------------------------------------------------------------------

    def has(self, holdout_id: int, head: Head) -> bool:
        """Return whether a chain has this link."""
        at = "SELECT hash FROM log WHERE holdout = ? AND position = ?"
        rows = self.rows(at, holdout_id, head.length)
        return bool(rows) and blob(rows[0][0]).hex() == head.hash

    def lacks(self, holdout_id: int, end: Head, seen: Head) -> bool:
        """Return whether a chain with this end has lost what was seen of it."""
        return seen != end and (seen.length >= end.length or not self.has(holdout_id, seen))

    # -- writing --------------------------------------------------------------------------

    def hold(self, holdout_id: int, ahead: Sequence[Callable[[], None]] = ()) -> Holdout:
        """Lock a holdout until the transaction ends, and return what is known of it then.

        `ahead` sends to a server what is asked for besides.
        """
        if holdout_id not in self.held:
            sent = None
            if not self.db.answers_at_once:
                # In statements of their own, since each sees what was committed when it begins: the
                # statement that locks waits until others have committed.
                self.db.send("SELECT 1 FROM holdout WHERE id = ? FOR UPDATE", (holdout_id,))
                if holdout_id in self.db.folds:
                    sent = self.send_for_news(self.db.folds[holdout_id])
                for send in ahead:
                    send()
            self._catch_up(holdout_id, sent)
            self._held(holdout_id)
        return self.db.folds[holdout_id]

    def mark(self, holdout_id: int) -> marks.Mark:
        """Return the mark of a holdout."""
        known = self.fold(holdout_id)
        path, fingerprint = known.views[0].vault_path, known.views[0].fingerprint
        return marks.mark_of(self.url, fingerprint, path, known.secret)

    def _held(self, holdout_id: int, *, checked: bool = True) -> None:
        known, mark = self.db.folds[holdout_id], self.mark(holdout_id)
        self.held[holdout_id], self.ends[holdout_id] = mark, known.end
        seen = mark.seen() if checked else None
        if seen is not None and self.lacks(holdout_id, known.end, seen):
            self.lost.append(seen)
            self.add(holdout_id, e.Restored(length=seen.length))

    def add(self, holdout_id: int, *happened: e.Event) -> None:
        """Add events to the chain of a holdout."""
        known = self.hold(holdout_id)
        secret, name = known.secret, known.name
        for one in happened:
            position = known.length + 1
            kind, body = e.written(one)
            link = linked(secret, known.head, position, kind, body)
            known.apply(position, link, one)
            self.db.send(_ADD, (holdout_id, position, kind, *columns_of(one), body, link))
        self.db.send(_END, (known.length, known.head, holdout_id))
        if known.name != name:
            self.db.send("UPDATE holdout SET name = ? WHERE id = ?", (known.name, holdout_id))
        self.ends[holdout_id] = known.end
        self.last = holdout_id, self.ends[holdout_id]
        if known.length // SNAPSHOT_EVERY > (known.length - len(happened)) // SNAPSHOT_EVERY:
            self.db.send("DELETE FROM snapshot WHERE holdout = ?", (known.id,))
            values = known.id, known.length, *written_snapshot(secret, known)
            self.db.send("INSERT INTO snapshot VALUES (?, ?, ?, ?)", values)

    def beside(self, holdout_id: int, **pieces: Any) -> dict[str, str]:
        """Keep bytes, or iterables of them, beside the next event; return their SHA-256 by name."""
        position = self.hold(holdout_id).length + 1
        return {
            name: self._keep(holdout_id, position, name, parts) for name, parts in pieces.items()
        }

    def _keep(self, holdout_id: int, position: int, name: str, parts: Any) -> str:
        whole = [parts] if isinstance(parts, bytes | memoryview) else parts
        hashed = hashlib.sha256()
        for number, part in enumerate(_in_parts(whole)):
            hashed.update(part)
            self.db.send(_KEEP, (holdout_id, position, name, number, part))
        return hashed.hexdigest()

    def start(self, registered: e.Registered, secret: bytes, row_hashes: memoryview) -> int:
        """Register rows; return the id of the holdout."""
        add = "INSERT INTO holdout (name, n, secret, length, head) VALUES (?, ?, ?, ?, ?)"
        values = registered.name, registered.n, secret, 0, b""
        holdout_id = int(self.rows(f"{add} RETURNING id", *values)[0][0])
        self.db.folds[holdout_id] = Holdout(holdout_id, secret)
        self._seen.add(holdout_id)
        self.held[holdout_id] = marks.Mark(None, secret)
        self.beside(holdout_id, row_hashes=row_hashes)
        self.add(holdout_id, registered)
        self._held(holdout_id)
        return holdout_id

    # -- queries, in their order over all ladders: what certificates count ------------------

    def sharing(self, holdout_id: int) -> list[tuple[Holdout, int]]:
        """Return the other holdouts that have rows of this one, and how many."""
        shared = sorted(self.fold(holdout_id).sharing.items())
        return [(self.fold(other), rows) for other, rows in shared]

    def chosen(self, ladder: LadderRecord) -> Chosen | None:
        """Return the incumbent, with what had been answered of its rows; None without one."""
        own = ladder.chosen
        if own is None:
            return None
        known, alone = self.fold(ladder.holdout_id), own.batch is None
        lengths = {known.id: own.position if alone else own.until}
        place, runs = own.stated_place or own.place, own.runs
        every = self.lengths(known.id, own.position)
        if known.sharing:
            if alone:
                lengths = every
            else:  # up to the last query of all that is not of its batch
                seq = max(self.rows(_OTHER_BATCH, *end, own.batch)[0][0] for end in every.items())
                lengths = {number: self.rows(_UP_TO, number, seq)[0][0] for number in every}
            if not alone and own.stated_place is None:
                counts = [self._counts(ends) for ends in (every, lengths)]
                place = sum(counts[0].values()) - sum(counts[1].values())
            runs = self._runs(lengths, {known.id: own.position - 1} if alone else {})
        ladders = self.answered(lengths, every)
        before = sum(queries.count for queries in ladders) - alone
        return Chosen(own, lengths, before, 1 if alone else place, runs, ladders)

    def answered(
        self, lengths: Mapping[int, int], every: Mapping[int, int] | None = None
    ) -> tuple[LadderQueries, ...]:
        """Return the queries up to some lengths, of ladders that were used up to `every` one.

        Those of each ladder are cut where it went back: only up to there do values fall.
        """
        counts = self._counts(lengths)
        used = counts if every in (None, lengths) else self._counts(every)
        queries = []
        for number in sorted(number for number in counts if used[number]):
            ladder, count, start = self.ladder(number), counts[number], 0
            if not count:
                queries.append(LadderQueries(number, 0, ()))
            for until in (*ladder.returns, count):
                end = min(until, count)
                if end > start:
                    improved = tuple(one for one in ladder.improved if start < one.query <= end)
                    releases = sum(one.query <= start for one in ladder.improved)
                    queries.append(LadderQueries(number, end - start, improved, start, releases))
                start = end
        return tuple(queries)

    def lengths(self, holdout_id: int, position: int | None = None) -> dict[int, int]:
        """Return how long the chains of these rows are, or were when an event was added here."""
        shared = sorted(self.fold(holdout_id).sharing)
        if position is None:
            return {number: self.fold(number).length for number in (holdout_id, *shared)}
        before = {number: self.rows(_BEFORE, number, holdout_id, position) for number in shared}
        return {holdout_id: position, **{number: at[0][0] or 0 for number, at in before.items()}}

    def _counts(self, lengths: Mapping[int, int]) -> dict[int, int]:
        counts: dict[int, int] = {}
        for holdout, length in lengths.items():
            known = {number: count or 0 for number, count in self.rows(_COUNTS, length, holdout)}
            if known.keys() != self.fold(holdout).ladders.keys():
                raise e.Damaged  # else the queries of a ladder would not be counted
            counts |= known
        return counts

    def _runs(self, lengths: Mapping[int, int], others: Mapping[int, int]) -> int:
        """Count the runs of queries of one batch in several holdouts, in the order of all."""
        queries, last, count = [], None, 0
        for holdout, length in {**lengths, **others}.items():
            queries += self.rows(_BATCHES, holdout, length)
        for _, batch in sorted(queries, key=lambda row: row[0]):
            count += batch is not None and batch != last
            last = batch
        return count

    def members(self, lengths: Iterable[int]) -> dict[tuple[int, str], int]:
        """Return how many queries of announced batches went to each ladder of some holdouts."""
        return {
            (ladder, batch): min(count, known.sizes.get(batch, 1))
            for known in map(self.fold, lengths)
            for ladder, batches in known.members.items()
            for batch, count in batches.items()
        }

    def is_on_grid(self, ladder_id: int, length: int, n: int, noise: float) -> bool:
        """Return whether all that a ladder had released is a number of rows out of n."""
        entries = submissions_in(self.rows(_RELEASED, ladder_id, length))
        released = [one.risk for one in entries]
        counts = n * np.array(released, dtype=np.float64)
        return bool((np.abs(counts - np.rint(counts)) < noise).all())


def refuse_other_format(number: Any) -> None:
    """Refuse a ledger whose format has another number than this version's."""
    if number != FORMAT:
        found = number if isinstance(number, int) else "an unknown one"
        raise LedgerError(
            f"This ledger has format {found}, and this version of ladderholdout reads format "
            f"{FORMAT}. Upgrade the package where the ledger is newer."
        )


def blob(stored: Any) -> bytes:
    """Return the bytes of a cell; Damaged if it has none, for `bytes` makes some of any number."""
    if not isinstance(stored, bytes):
        raise e.Damaged
    return stored


def submissions_in(rows: Iterable[tuple[Any]]) -> list[e.Submitted]:
    """Read the submissions of which rows have the bodies alone."""
    return [e.read("submitted", blob(body)) for (body,) in rows]


def as_bytes(values: NDArray[Any]) -> memoryview:
    """Write hashes or places as 64 bits each, whatever this machine's order of bytes is."""
    return np.ascontiguousarray(values, dtype="<u8").data.cast("B")


def _in_parts(pieces: Iterable[Any]) -> Iterator[Any]:
    """Cut, or put together, bytes that come one after the other into pieces of `PART`."""
    left = bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while len(left) + len(view) >= PART:
            rest = PART - len(left)
            yield bytes(left + view[:rest]) if left else view[:rest]
            left, view = bytearray(), view[rest:]
        left += view
    if left:
        yield bytes(left)


def snapshot_code(secret: bytes, body: bytes) -> bytes:
    """Return the MAC of a snapshot: that of another version may know less, and counts as none."""
    known = version("ladderholdout").encode()
    return hmac.digest(secret, b"ladderholdout snapshot %b\0" % known + body, "sha256")


def written_snapshot(secret: bytes, known: Holdout) -> tuple[bytes, bytes]:
    """Return a snapshot and its MAC."""
    beside = {"secret", "record"}
    body = to_json(known, exclude=beside, bytes_mode="hex", inf_nan_mode="constants")
    return body, snapshot_code(secret, body)


def read_snapshot(secret: bytes, body: Any, mac: Any) -> Holdout | None:
    """Read a snapshot; None where it is not as it was written."""
    if not (isinstance(body, bytes) and isinstance(mac, bytes)):
        return None
    if snapshot_code(secret, body) != mac:
        return None
    try:
        known: Holdout = e.adapter(Holdout).validate_json(body)
    except (ValidationError, LedgerError):
        return None
    known.secret = secret
    return known
