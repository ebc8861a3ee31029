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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from ladderholdout.errors import LedgerError, UnknownHoldout
from ladderholdout.ledger import arrays
from ladderholdout.ledger import events as e
from ladderholdout.ledger.fold import FORGOTTEN, Head, Holdout, HoldoutRecord, LadderRecord
from ladderholdout.ledger.marks import Mark, mark_of

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

NUMBER = "SELECT number FROM ledger_format"
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
_RENAME = "UPDATE holdout SET name = ? WHERE id = ?"

_SNAPSHOT = "SELECT body, mac FROM snapshot WHERE holdout = ?"

# What is found of submissions and accounts.
ENTRIES = "SELECT body FROM log WHERE ladder = ? AND number > ? ORDER BY number LIMIT ?"
OF_SEARCH = ENTRIES.replace("ORDER", "AND search = ? ORDER")
PLACED = "SELECT position, body FROM log WHERE ladder = ? AND number = ?"
RELEASED = "SELECT body FROM log WHERE ladder = ? AND digest IS NOT NULL AND position <= ?"
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
HOLDOUTS = "SELECT id, name FROM holdout ORDER BY id"
NEW_LADDER = "INSERT INTO ladder (holdout) VALUES (?) RETURNING id"
DROP = "DELETE FROM piece WHERE holdout = ? AND position = ?"
NEW_SESSION = "INSERT INTO session VALUES (?, ?) ON CONFLICT DO NOTHING"
OLD_SESSIONS = "DELETE FROM session WHERE until < ?"
SESSION = "SELECT until FROM session WHERE digest = ?"

# What is counted.
# Of each ladder the last query up to a position counts them.
COUNTS = (
    "SELECT ladder.id, (SELECT query FROM log WHERE log.ladder = ladder.id AND position <= ? "
    "AND query IS NOT NULL ORDER BY position DESC LIMIT 1) FROM ladder WHERE ladder.holdout = ?"
)
# By the index of positions from the newest on, which seq follows.
BEFORE = (
    "SELECT (SELECT position FROM log AS one WHERE one.holdout = ? AND one.seq < own.seq "
    "ORDER BY one.position DESC LIMIT 1) FROM log AS own WHERE own.holdout = ? AND own.position = ?"
)
OTHER_BATCH = (
    "SELECT coalesce(max(seq), 0) FROM log WHERE holdout = ? AND position <= ? "
    "AND query IS NOT NULL AND batch IS DISTINCT FROM ?"
)
UP_TO = "SELECT coalesce(max(position), 0) FROM log WHERE holdout = ? AND seq <= ?"
BATCHES = "SELECT seq, batch FROM log WHERE holdout = ? AND position <= ? AND query IS NOT NULL"

# What is verified.
STATED = "SELECT secret, length, head, name, n FROM holdout WHERE id = ?"
PAGE = (
    f"SELECT seq, position, kind, body, hash, {', '.join(COLUMNS)} FROM log WHERE holdout = ? "
    "AND seq > ? ORDER BY seq LIMIT ?"
)
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
    secrets: dict[int, bytes] = field(default_factory=dict, init=False)
    rows: dict[tuple[int, int], HoldoutRecord] = field(default_factory=dict, init=False)

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

    def forget(self) -> None:
        """Forget what is known of the holdouts: it may be what was undone."""
        for known in (self.folds, self.secrets, self.rows):
            known.clear()

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


@lru_cache(64)
def _keyed(secret: bytes) -> Any:
    return hmac.new(secret, b"ladderholdout chain 2", hashlib.sha256)


def linked(secret: bytes, before: bytes, position: int, kind: str, body: bytes) -> bytes:
    """Return the hash of an event: of the one before it, its place, its kind and its very bytes."""
    link = _keyed(secret).copy()
    link.update(before + position.to_bytes(8, "big") + kind.encode() + b"\0" + body)
    return bytes(link.digest())


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
    names = (name for name in _KEPT if hasattr(happened, name))
    return {name: digest for name in names if (digest := getattr(happened, name)) is not None}


_KEPT = (
    *("row_hashes", "reserve", "label_digests", "places", "ids", "weight_digests", "groups"),
    *("mask", "predictions"),
)


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
        self.held: dict[int, Mark] = {}
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

    def secret(self, holdout_id: int) -> bytes:
        """Return the key of a holdout."""
        if holdout_id not in self.db.secrets:
            rows = self.rows("SELECT secret FROM holdout WHERE id = ?", holdout_id)
            if not rows:
                raise UnknownHoldout(f"The ledger holds no holdout number {holdout_id}.")
            self.db.secrets[holdout_id] = blob(rows[0][0])
        return self.db.secrets[holdout_id]

    def _catch_up(self, holdout_id: int, sent: Any = None) -> None:
        """Read what is new; all of it anew if what is known here is not in this chain."""
        secret, folds = self.secret(holdout_id), self.db.folds
        known, start = folds.pop(holdout_id, None), None
        if known is None:
            sent, start = None, self._snapshot(holdout_id, secret)
        first = known or start
        try:
            known = self._read_on(first or Holdout(holdout_id), secret, sent)
        except e.Damaged:
            if first is None:
                raise
            known = self._read_on(Holdout(holdout_id), secret)
        folds[holdout_id] = known
        self._seen.add(holdout_id)

    def _read_on(self, known: Holdout, secret: bytes, sent: Any = None) -> Holdout:
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
                expected = linked(secret, known.head, position, kind, blob(body))
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

    def _snapshot(self, holdout_id: int, secret: bytes) -> Holdout | None:
        """Return the last snapshot of a holdout, if its chain still has that place."""
        for known in self.snapshots(holdout_id, secret):
            if known is not None and self.has(holdout_id, known.end):
                return known
        return None

    def snapshots(self, holdout_id: int, secret: bytes) -> list[Holdout | None]:
        """Return the snapshot that is kept of a holdout; None for one that was changed."""
        return [read_snapshot(secret, *row) for row in self.rows(_SNAPSHOT, holdout_id)]

    def holdout(self, holdout_id: int) -> HoldoutRecord:
        """Return what is known of the rows of a holdout."""
        known = self.fold(holdout_id)
        place = holdout_id, known.facts
        if place not in self.db.rows:
            registered, reserve = known.registered, None
            if known.reserve is not None:
                stored = self.piece(holdout_id, known.reserve, "reserve")
                reserve = arrays.booleans(stored, registered.n)
            self.db.rows[place] = HoldoutRecord(
                id=holdout_id,
                name=known.name,
                fingerprint=registered.fingerprint,
                secret=self.secret(holdout_id),
                n=registered.n,
                classes=known.class_labels(),
                vault_path=known.views[0].vault_path,
                created=registered.time,
                retired=known.retired,
                reserve=reserve,
                confidence=registered.confidence,
                labels_version=known.labels_version,
                estimand=registered.estimand,
                block=registered.block,
            )
        return self.db.rows[place]

    def holdouts(self, **stated: Any) -> tuple[HoldoutRecord, ...]:
        """Return the registered holdouts, oldest first: all, or those of a `name` or size `n`."""
        where = "".join(f" WHERE {column} = ?" for column in stated)
        rows = self.rows(f"SELECT id, name FROM holdout{where} ORDER BY id", *stated.values())
        found = (row[0] for row in rows if "name" in stated or FORGOTTEN not in row[1])
        return tuple(map(self.holdout, found))

    def holdout_id(self, name: str) -> int | None:
        """Return the id of a holdout, whatever else of it can be read."""
        rows = self.rows("SELECT id FROM holdout WHERE name = ?", name)
        return rows[0][0] if rows else None

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
        ladders = self.fold(holdout_id).ladders
        return tuple(ladders[number] for number in sorted(ladders))

    def piece(self, holdout_id: int, position: int, name: str) -> bytes:
        """Return what is kept beside an event under the name of its field."""
        parts = [blob(row[0]) for row in self.rows(PIECES, holdout_id, position, name)]
        if not parts:
            raise e.Damaged
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # -- ends -----------------------------------------------------------------------------

    def head_at(self, holdout_id: int, length: int) -> Head | None:
        """Return where a chain ended when it had this length, None where it never had."""
        at = "SELECT hash FROM log WHERE holdout = ? AND position = ?"
        rows = self.rows(at, holdout_id, length)
        return Head(length, blob(rows[0][0]).hex()) if rows else None

    def has(self, holdout_id: int, head: Head) -> bool:
        """Return whether a chain has this link."""
        return self.head_at(holdout_id, head.length) == head

    def lacks(self, holdout_id: int, end: Head, seen: Head) -> bool:
        """Return whether a chain with this end has lost what was seen of it."""
        return seen != end and (seen.length >= end.length or not self.has(holdout_id, seen))

    # -- writing --------------------------------------------------------------------------

    def hold(self, holdout_id: int, ahead: Callable[[], None] | None = None) -> Holdout:
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
                if ahead is not None:
                    ahead()
            self._catch_up(holdout_id, sent)
            self._held(holdout_id)
        return self.db.folds[holdout_id]

    def mark(self, holdout_id: int) -> Mark:
        """Return the mark of a holdout."""
        known = self.fold(holdout_id)
        path, fingerprint = known.views[0].vault_path, known.views[0].fingerprint
        return mark_of(self.url, fingerprint, path, self.secret(holdout_id))

    def _held(self, holdout_id: int, *, checked: bool = True) -> None:
        known, mark = self.db.folds[holdout_id], self.mark(holdout_id)
        self.held[holdout_id], self.ends[holdout_id] = mark, known.end
        seen = mark.seen() if checked else None
        if seen is not None and self.lacks(holdout_id, known.end, seen):
            self.lost.append(seen)
            self.add(holdout_id, e.Restored(length=seen.length))

    def add(self, holdout_id: int, *happened: e.Event) -> None:
        """Add events to the chain of a holdout."""
        known, secret = self.hold(holdout_id), self.secret(holdout_id)
        name = known.name
        for one in happened:
            position = known.length + 1
            kind, body = e.written(one)
            link = linked(secret, known.head, position, kind, body)
            known.apply(position, link, one)
            self.db.send(_ADD, (holdout_id, position, kind, *columns_of(one), body, link))
        self.db.send(_END, (known.length, known.head, holdout_id))
        if known.name != name:
            self.db.send(_RENAME, (known.name, holdout_id))
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
        self.db.secrets[holdout_id] = secret
        self.db.folds[holdout_id] = Holdout(holdout_id)
        self._seen.add(holdout_id)
        self.held[holdout_id] = Mark(None, secret)
        self.beside(holdout_id, row_hashes=row_hashes)
        self.add(holdout_id, registered)
        self._held(holdout_id)
        return holdout_id


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


@cache
def _snapshots() -> TypeAdapter[Holdout]:
    return TypeAdapter(Holdout)


def snapshot_code(secret: bytes, body: bytes) -> bytes:
    """Return the MAC of a snapshot: that of another version may know less, and counts as none."""
    known = version("ladderholdout").encode()
    return hmac.digest(secret, b"ladderholdout snapshot %b\0" % known + body, "sha256")


def written_snapshot(secret: bytes, known: Holdout) -> tuple[bytes, bytes]:
    """Return a snapshot and its MAC."""
    body = to_json(known, bytes_mode="hex", inf_nan_mode="constants")
    return body, snapshot_code(secret, body)


def read_snapshot(secret: bytes, body: Any, mac: Any) -> Holdout | None:
    """Read a snapshot; None where it is not as it was written."""
    if not (isinstance(body, bytes) and isinstance(mac, bytes)):
        return None
    if snapshot_code(secret, body) != mac:
        return None
    try:
        return _snapshots().validate_json(body)
    except (ValidationError, LedgerError):
        return None
