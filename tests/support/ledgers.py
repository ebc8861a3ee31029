"""What tests do to a ledger and read of it, in verbs without the words of a format.

Tests outside of tests/ledger look behind the library's back through these alone, so that another
record of the same things needs other verbs and no other tests. A place is a path, a URL, a holdout
or a board. Things and fields have plain names (`FIELDS`); a holdout is named, or numbered in the
order of registration.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ladderholdout import LadderHoldout
from ladderholdout.guard.health import verify_holdout
from ladderholdout.ledger import arrays, holdout_names, log, marks, rules, store, transaction
from ladderholdout.ledger import backup as _backup
from ladderholdout.ledger import events as e
from ladderholdout.ledger.evidence import ReserveEvidence
from ladderholdout.ledger.fold import Head, HoldoutRecord, LadderRecord
from ladderholdout.ledger.log import Chosen, linked
from ladderholdout.ledger.place import Access, file_of, resolve_url
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import Transaction

# The kinds of events by what a thing is.
_THINGS = {
    "view": "viewadded",
    "ladder": "ladderstarted",
    "submission": "submitted",
    "reserve query": "reservequeried",
    "collected": "collected",
    "amendment": "amended",
}
# Where the fields of things are in their events, if not under their names.
FIELDS = {
    "answer": "risk",
    "raw score": "raw",
    "rule": "settings.mechanism",
    "settings of the rule": "settings.mechanism_settings",
    "account": "settings.account",
    "name": "settings.name",
    "show": "settings.show",
}
Shown = e.Shown
Restored = e.Restored

KINDS = {
    "asked": "revealed",
    "batch": "batchannounced",
    "compared": "shown",
    "finals": "finalsheld",
    "confidence": "noted",
    "estimate": "shown",
    "interval": "shown",
    "view": "viewadded",
}
COUNTED = (
    *("holdouts", "ladders", "submissions", "overlaps", "reserve queries", "views"),
    "incumbents",
)


@dataclass(frozen=True)
class Entry:
    """A submission as the ledger knows it, without anything raw."""

    number: int
    time: datetime
    account: str
    batch: str | None
    search: str | None
    digest: str
    risk: float | None
    improved: bool
    repeat_of: int | None
    disagreement: float | None
    context: Mapping[str, Any]
    withdrawn: str | None
    place: int | None
    size: int | None
    known: bool
    held: bool


@dataclass(frozen=True)
class Audited:
    """A submission with what is raw of it."""

    entry: Entry
    raw_risk: float
    evidence: Mapping[str, Any]
    reserve_digest: str | None
    submitted: e.Submitted


@dataclass(frozen=True)
class Replayed:
    """A submission with what its replay gives."""

    number: int
    recorded: tuple[float, bool]
    recomputed: tuple[float, bool]
    state: Mapping[str, Any]

    @property
    def agrees(self) -> bool:
        """Whether the recorded release is the recomputed one, bit for bit."""
        return self.recorded == self.recomputed


@dataclass(frozen=True)
class Noted:
    """An event beside submissions."""

    kind: str
    position: int
    event: Any

    @property
    def detail(self) -> str:
        """Its fields as JSON."""
        return e.written(self.event)[1].decode()


# Where it is


def ladder_at(place: Any) -> Any:
    """Return the ladder behind a holdout or a board, and any other thing as it is."""
    return getattr(place, "_home", None) or getattr(place, "__ladder__", place)


def url_of(place: Any) -> str:
    """Return the URL of a ledger."""
    return resolve_url(place) if isinstance(place, str | Path) else str(ladder_at(place).ledger)


def _file(place: Any) -> Path:
    found = file_of(url_of(place))
    assert found is not None, "this verb is for ledgers in files"
    return found


@contextmanager
def _reading(place: Any) -> Iterator[Transaction]:
    with Ledger(url_of(place)).read() as tx:
        yield tx


@contextmanager
def _editing(place: Any) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(_file(place))) as connection, connection:
        yield connection


def _number(tx: Transaction, place: Any) -> int:
    """Return the number of a holdout; that of the only one of a path."""
    facts = getattr(ladder_at(place), "facts", None)
    return tx.holdouts()[0].id if facts is None else int(facts.place[1])


# Reading


def names(place: Any) -> list[str]:
    """Return the names of all holdouts in a ledger, in the order of registration."""
    return list(holdout_names(url_of(place)))


def findings(place: Any, name: str | None = None) -> list[str]:
    """Return what verify finds of one holdout, or of all in the ledger."""
    found = [name] if name is not None else names(place)
    return [str(f) for each in found for f in verify_holdout(url_of(place), each).findings]


def _entry(one: e.Submitted, ladder: LadderRecord) -> Entry:
    return Entry(
        *(one.number, one.time, ladder.settings.account, one.batch, one.search, one.digest),
        *(one.risk, one.improved, one.repeat_of, one.disagreement, one.context),
        *(ladder.why_withdrawn(one), one.place, one.size, one.is_known, one.held),
    )


def record(
    holdout: LadderHoldout,
) -> tuple[HoldoutRecord, LadderRecord, tuple[Audited, ...]]:
    """Read all that the ledger holds of a ladder, as an auditor can."""
    with _reading(holdout) as tx:
        ladder = tx.ladder(ladder_at(holdout).id)
        entries = tuple(
            Audited(_entry(one, ladder), one.raw, one.evidence, one.reserve_digest, one)
            for one in tx.submissions(ladder.id)
        )
        return tx.holdout(ladder.holdout_id), ladder, entries


def entries_of(holdout: LadderHoldout) -> list[Entry]:
    """Read the submissions of a ladder with what the analyst is not shown of them."""
    return [one.entry for one in record(holdout)[2]]


def entry_by_key(holdout: LadderHoldout, key: str) -> Any:
    """Return the submission that was made under a key, as far as the guard needs it."""
    with _reading(holdout) as tx:
        return next(iter(tx.found(ladder_at(holdout).id, "key", key)), None)


def raw(place: Any) -> list[float]:
    """Return the raw risks of a ladder's submissions; of all ladders of a path or a board."""
    with _reading(place) as tx:
        if isinstance(place, LadderHoldout):
            ladders = [ladder_at(place).id]
        else:
            ladders = [ladder.id for each in tx.holdouts() for ladder in tx.ladders(each.id)]
        return [one.raw for ladder in ladders for one in tx.submissions(ladder)]


def secret_of(place: Any) -> bytes:
    """Return the secret by which a holdout draws noise and reserves."""
    with _reading(place) as tx:
        return tx.holdout(_number(tx, place)).secret


def ladders_at(place: Any) -> list[tuple[str, str]]:
    """Return account and name of each ladder on a holdout, in the order of their start."""
    with _reading(place) as tx:
        found = tx.ladders(_number(tx, place))
    return [(ladder.settings.account, ladder.settings.name) for ladder in found]


def order_of_all(place: Any) -> list[tuple[int, int, int]]:
    """Return place, number of the ladder and own number of all submissions, in their one order."""
    with _editing(place) as connection:
        rows = connection.execute(
            "SELECT seq, ladder, number FROM log WHERE number IS NOT NULL ORDER BY seq"
        )
        return [(place, *row[1:]) for place, row in enumerate(rows, 1)]


def counts(ledger: Path) -> dict[str, int]:
    """Count what a ledger holds, by kind, and the files in the vault beside it."""
    found = dict.fromkeys(COUNTED, 0)
    if ledger.exists():
        with _reading(ledger) as tx:
            for (number,) in tx.db.send("SELECT id FROM holdout").fetchall():
                known = tx.fold(number)
                found["holdouts"] += 1
                found["ladders"] += len(known.ladders)
                found["overlaps"] += len(known.overlaps)
                found["reserve queries"] += len(known.looks)
                found["views"] += len(known.views) - 1
                for ladder in known.ladders.values():
                    found["submissions"] += ladder.submissions
                    gone = {one.number for one in ladder.withdrawn}
                    kept = (one for one in ladder.improved if one.kept)
                    found["incumbents"] += sum(one.number not in gone for one in kept)
    vault = ledger.parent / "vault"
    kept_files = vault.iterdir() if vault.exists() else ()
    return found | {"vault": sum(path.suffix != ".mark" for path in kept_files)}


def events(holdout: Any, *kinds: str) -> list[Noted]:
    """Return what was noted of a holdout beside submissions, of these kinds, oldest first."""
    named = [KINDS.get(kind, kind) for kind in kinds]
    with _reading(holdout) as tx:
        rows = tx.db.send(
            "SELECT kind, position, body FROM log WHERE holdout = ? ORDER BY position",
            (_number(tx, holdout),),
        ).fetchall()
    return [Noted(kind, at, e.read(kind, bytes(body))) for kind, at, body in rows if kind in named]


def chained(holdout: Any) -> list[str]:
    """Return the kinds of all entries in the chain of a holdout, oldest first."""
    with _reading(holdout) as tx:
        query = "SELECT kind FROM log WHERE holdout = ? ORDER BY position"
        return [kind for (kind,) in tx.db.send(query, (_number(tx, holdout),)).fetchall()]


def head(holdout: Any, length: int | None = None) -> Head | None:
    """Return where the chain of a holdout ends, or ended after so many entries."""
    with _reading(holdout) as tx:
        number = _number(tx, holdout)
        if length is None:
            return tx.fold(number).end
        at = "SELECT hash FROM log WHERE holdout = ? AND position = ?"
        rows = tx.db.send(at, (number, length)).fetchall()
        return Head(length, bytes(rows[0][0]).hex()) if rows else None


def shown_of(holdout: Any, what: str) -> tuple[Any, ...]:
    """Return what was shown of a holdout and is on record, oldest first.

    `what`: "comparisons", "confidences", "estimates", "intervals", "groups" (what showed that the
    rows come in groups) or "reserve queries".
    """
    with _reading(holdout) as tx:
        known = tx.fold(_number(tx, holdout))
        match what:
            case "confidences":
                return known.confidences
            case "groups":
                return tuple(known.grouped())
            case "reserve queries":
                return tuple(query for _, query in known.looks)
        return tuple(known.shown_of(what.removesuffix("s")))


def reserve_replays(place: Any) -> dict[int, bool]:
    """Return of each query of the reserve whether what it showed is its replay."""
    found, ladders = {}, record(LadderHoldout.open("coins", ledger=place))[1:2]
    released = {one.number: one.risk for ladder in ladders for one in ladder.improved}
    for at, noted in enumerate(events(place, "reservequeried"), 1):
        evidence = ReserveEvidence.of(noted.event)
        fits = noted.event.number == at
        found[at] = fits and evidence.agrees(noted.event, released[noted.event.submission])
    return found


def asked_at(holdout: Any) -> dict[tuple[int, int], int]:
    """Return the places in the chain of requests for a score, by ladder and submission."""
    with _reading(holdout) as tx:
        ladders = tx.ladders(_number(tx, holdout))
    return {(one.id, number): at for one in ladders for number, at in one.revealed.items()}


def shared(holdout: Any) -> dict[str, int]:
    """Return how many rows other holdouts have of this one, by their names."""
    with _reading(holdout) as tx:
        return {other.name: rows for other, rows in tx.sharing(_number(tx, holdout))}


def shared_as_counted(holdout: Any) -> bool:
    """Return whether the rows shared with others are as many as a new count finds."""
    with _reading(holdout) as tx:
        number = _number(tx, holdout)
        counted = {other: ours for other, (ours, _) in tx.shared(number).items() if ours}
        return counted == tx.fold(number).sharing


def chosen(holdout: LadderHoldout) -> Chosen | None:
    """Return what is counted of all that happened before the incumbent was chosen."""
    with _reading(holdout) as tx:
        return tx.chosen(tx.ladder(ladder_at(holdout).id))


def answered(holdouts: Sequence[LadderHoldout], until: int | None = None) -> tuple[Any, ...]:
    """Return by ladder what was answered up to a submission to any holdout.

    By default up to the last but one.
    """
    with _reading(holdouts[0]) as tx:
        query = "SELECT seq FROM log WHERE number IS NOT NULL ORDER BY seq"
        order = [seq for (seq,) in tx.db.send(query).fetchall()]
        last = order[-2] if until is None else order[until - 1]
        at = "SELECT coalesce(max(position), 0) FROM log WHERE holdout = ? AND seq <= ?"
        numbers = [_number(tx, holdout) for holdout in holdouts]
        lengths = {n: tx.db.send(at, (n, last)).fetchall()[0][0] for n in numbers}
        return tx.answered(lengths)


def transcripts(holdout: LadderHoldout, found: Chosen, grid: Any) -> dict[int, Any]:
    """Return by ladder, from 0, what was told by then, as certificates count it on a grid."""
    from ladderholdout.guard.counting import moment

    with _reading(holdout) as tx:
        counted = moment(tx, _number(tx, holdout), chosen=found).ladders
    chosen = found.own if found.own.batch is None else None
    return {
        one.ladder_id - 1: replace(counted[one.ladder_id], grid=grid).transcript(one, chosen)
        for one in found.ladders
        if one.count
    }


def paid_beside(holdout: LadderHoldout) -> Any:
    """Return what a gate pays for what was shown beside its decisions, or why it is unknown."""
    from ladderholdout.guard.counting import shown_beside

    with _reading(holdout) as tx:
        return shown_beside(tx, tx.ladder(ladder_at(holdout).id))


def copied(holdout: LadderHoldout) -> Any:
    """Return what a copy of a ladder holds of its submissions, without anything raw."""
    from ladderholdout.guard.record_views import unsent

    with _reading(holdout) as tx:
        ladder = tx.ladder(ladder_at(holdout).id)
        return unsent(tx, ladder, holdout.metric, after=0, raw=False, limit=99)


# What is kept of rows and predictions


def reserve_of(place: Any) -> Any:
    """Return which rows are the reserve, in the order of the content; None without one."""
    with _reading(place) as tx:
        return tx.holdout(_number(tx, place)).reserve


def row_places(holdout: Any) -> Any:
    """Return the place of each row in the order of the content, in which predictions are kept."""
    with _reading(holdout) as tx:
        return tx.known(_number(tx, holdout)).places


def labels_amended(place: Any) -> tuple[int, Any]:
    """Return how many versions of the labels there were, and which labels were ever amended."""
    with _reading(place) as tx:
        number = _number(tx, place)
        return tx.holdout(number).labels_version, tx.amended(number)


def incumbent_predictions(holdout: LadderHoldout) -> Any:
    """Return the predictions of the incumbent, in the order of the content."""
    with _reading(holdout) as tx:
        return tx.incumbent_predictions(ladder_at(holdout).id)


def predictions_kept(holdout: LadderHoldout, *, of: str = "incumbents") -> list[int]:
    """Return the numbers of submissions whose predictions are kept.

    `of`: "incumbents", to go back to, or "candidates", those of the first batch.
    """
    with _reading(holdout) as tx:
        ladder = tx.ladder(ladder_at(holdout).id)
        if of == "candidates":
            candidates = (one.number for one in tx.submissions(ladder.id) if one.candidate)
            return [number for number in candidates if tx.predictions(ladder, number) is not None]
        gone = {one.number for one in ladder.withdrawn}
        kept = (one.number for one in ladder.improved if one.kept and one.number not in gone)
        return [number for number in kept if tx.predictions(ladder, number) is not None]


def as_kept(predictions: Any) -> bytes:
    """Return predictions as a ledger stores them."""
    return arrays.packed(predictions)


def from_kept(stored: bytes) -> Any:
    """Return the predictions that a ledger stores so."""
    return arrays.unpacked(stored)


def keep_no_more_than(patch: pytest.MonkeyPatch, size: int) -> None:
    """Let a ledger keep so many bytes of predictions of a first batch."""
    patch.setattr(transaction, "_MOST_KEPT", size)


# Replay


def replayed(holdout: LadderHoldout) -> list[Replayed]:
    """Replay a ladder from the ledger alone."""
    known, ladder, entries = record(holdout)
    replay = rules.Replay(ladder.settings, known.n_ladder, known.secret, ladder.id)
    returns, found = list(ladder.withdrawn), []
    for audited in entries:
        one = audited.submitted
        answer = replay.answer(one)
        while returns and returns[0].until == one.number:
            replay.back(returns.pop(0))
        found.append(Replayed(one.number, (one.risk, one.improved), answer, replay.state))
    return found


def returns_of(holdout: LadderHoldout) -> int:
    """Count the withdrawals after which a ladder went back to an earlier incumbent."""
    return len(record(holdout)[1].returns)


# Copies


def copy(place: Any, target: Path) -> Path:
    """Copy a ledger while it is in use, as the command backup does."""
    return _backup(url_of(place), target)


def overwrite(place: Any, older: Path) -> None:
    """Put a copy's content into a ledger, under the file that processes have open."""
    with closing(sqlite3.connect(older)) as kept, closing(sqlite3.connect(_file(place))) as here:
        kept.backup(here)


@contextmanager
def undone(path: Path) -> Iterator[None]:
    """Undo what the block does to a ledger: one for each case would cost many times as much."""
    with closing(sqlite3.connect(path)) as here, closing(sqlite3.connect(":memory:")) as kept:
        here.backup(kept)
        yield
        kept.backup(here)
    forget_connections(path)  # they know what was undone


def dump(place: Any) -> str:
    """Return all that a ledger in a file holds, as text."""
    with closing(sqlite3.connect(_file(place))) as connection:
        return "\n".join(connection.iterdump())


def made_of(path: Path, text: str) -> None:
    """Make a ledger of what `dump` returned."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(text)
    path.chmod(0o600)


def rows_dumped(place: Any) -> list[str]:
    """Return the content line by line."""
    with closing(sqlite3.connect(_file(place))) as connection:
        return [line for line in connection.iterdump() if line.startswith("INSERT")]


# Attacks


def edit(place: Any, *statements: str) -> None:
    """Change the tables themselves, of a ledger that no other verb is made for."""
    with closing(sqlite3.connect(_file(place))) as connection:
        for statement in statements:
            changed = connection.execute(statement).rowcount
            connection.commit()  # a database is not attached within a transaction
            assert changed, f"{statement} changes nothing"


def tables() -> frozenset[str]:
    """Return the names that only SQL has for what a ledger holds."""
    return frozenset({"log", "piece", "snapshot", "ledger_format"})


def _where(
    thing: str, number: int | None, holdout: int | str | None, kind: str | None
) -> tuple[str, list[Any]]:
    """Return the condition that chooses events of a thing, with its values."""
    conditions, values = [], list[Any]()
    if thing != "event" or kind is not None:
        named = KINDS.get(kind or "", kind) if thing == "event" else _THINGS[thing]
        conditions.append("kind = ?")
        values.append(named)
    if named_what := {"confidence": "confidence"}.get(kind or ""):
        conditions.append("CAST(body AS TEXT) LIKE ?")
        values.append(f'{{"what":"{named_what}"%')
    if isinstance(holdout, str):
        conditions.append("holdout IN (SELECT id FROM holdout WHERE name = ?)")
        values.append(holdout)
    elif holdout is not None:
        conditions.append("holdout = ?")
        values.append(holdout)
    if number is not None and thing == "submission":
        conditions.append("number = ?")
        values.append(number)
    return " AND ".join(conditions) or "1 = 1", values


def _rows(
    connection: sqlite3.Connection, thing: str, number: int | None, holdout: Any, kind: str | None
) -> list[tuple[int, int, int, bytes]]:
    """Return rowid, holdout, position and body of the events of a thing."""
    condition, values = _where(thing, number, holdout, kind)
    query = f"SELECT seq, holdout, position, body FROM log WHERE {condition} ORDER BY seq"
    found = connection.execute(query, values).fetchall()
    if number is not None and thing != "submission":
        found = found[number - 1 : number]
    return found


def _kept_beside(
    connection: sqlite3.Connection, thing: str, field: str, number: int | None, holdout: Any
) -> list[tuple[int, bytes]]:
    """Return rowid and bytes of what is kept beside events."""
    kind = {
        *("incumbent", "candidate"),
    }
    if thing in kind:
        rows = _rows(connection, "submission", number, holdout, None)
    elif thing == "collected":
        rows = _rows(connection, "collected", number, holdout, None)
    elif thing == "view":
        rows = _rows(connection, "view", number, holdout, None)
    else:
        of = {"reserve": "reservedrawn", "row hashes": "registered"}.get(field, "rowsknown")
        condition, values = "kind = ?", [of]
        if holdout is not None:
            condition, values = "kind = ? AND holdout = ?", [of, holdout]
        query = f"SELECT seq, holdout, position, body FROM log WHERE {condition} ORDER BY seq"
        rows = connection.execute(query, values).fetchall()
    name, found = field.replace(" ", "_"), []
    for _, of_holdout, position, _ in rows:
        query = "SELECT rowid, content FROM piece WHERE holdout = ? AND position = ? AND name = ?"
        found += connection.execute(query, (of_holdout, position, name)).fetchall()
    return found


_BESIDE = {
    *("predictions", "row hashes", "places", "label digests", "ids", "weight digests"),
    *("groups", "reserve"),
}


def stored(
    place: Any, thing: str, field: str, *, number: int | None = None, kind: str | None = None
) -> Any:
    """Return a field of a thing as it is stored: of the newest that fits."""
    with _editing(place) as connection:
        if thing == "format":
            return connection.execute("SELECT number FROM ledger_format").fetchone()[0]
        if field in _BESIDE:
            found = _kept_beside(connection, thing, field, number, None)
            return found[-1][1] if found else None
        if field == "vault":
            rows = _rows(connection, "event", None, None, "vaultset")
            stated = (json.loads(body) for *_, body in rows)
            return [one["path"] for one in stated if one["view"] == 1][-1]
        if thing == "holdout" and field == "labels digest":
            rows = _rows(connection, "event", None, None, "rowsknown")
            return bytes.fromhex(json.loads(rows[-1][3])["sequence"])
        rows = _rows(connection, thing, number, None, kind)
        if field == "detail":
            return rows[-1][3].decode()
        value = json.loads(rows[-1][3])
        for part in _path(thing, field):
            value = value.get(part)
        return value


def _path(thing: str, field: str) -> list[str]:
    named = FIELDS.get(field, field.replace(" ", "_")) if thing != "holdout" else field
    if thing == "submission" and field == "name":
        named = "name"
    return named.split(".")


def tamper(
    place: Any,
    thing: str,
    field: str,
    value: Any,
    *,
    number: int | None = None,
    holdout: int | str | None = None,
    kind: str | None = None,
) -> int:
    """Change a field of all things that fit, behind the library's back; return how many.

    A function makes the new value of the old one. The chain stays as it was.
    """
    count = 0
    with _editing(place) as connection:
        if thing == "format":
            return connection.execute("UPDATE ledger_format SET number = ?", (value,)).rowcount
        if field in _BESIDE:
            found = _kept_beside(connection, thing, field, number, holdout)
            for row, old in found:
                new = value(old) if callable(value) else value
                if new is None:
                    connection.execute("DELETE FROM piece WHERE rowid = ?", (row,))
                else:
                    connection.execute("UPDATE piece SET content = ? WHERE rowid = ?", (new, row))
            assert found, f"no {field} to change"
            return len(found)
        if thing == "holdout":
            of = {"vault": "vaultset", "vault digest": "vaultset"}.get(field, "registered")
            names_of = {"vault": "path", "vault digest": "digest"}
            rows = _rows(connection, "event", None, holdout, of)
            path = [names_of.get(field, field)]
            if field in ("name", "registered name"):
                assert len(rows) == 1
                update = "UPDATE holdout SET name = ? WHERE id = ?"
                connection.execute(update, (value, rows[0][1]))
            if field == "name":  # where it is found alone
                rows, count = [], 1
            path = [path[0].removeprefix("registered ")]
        else:
            rows, path = _rows(connection, thing, number, holdout, kind), _path(thing, field)
        assert rows or count, f"no {thing} to change"
        for row, _, _, body in rows:
            if field in ("hash", "position", "digest column"):
                column = field.split()[0]
                query = f"SELECT {column} FROM log WHERE seq = ?"
                (old,) = connection.execute(query, (row,)).fetchone()
                new = value(old) if callable(value) else value
                connection.execute(f"UPDATE log SET {column} = ? WHERE seq = ?", (new, row))
            else:
                changed = _changed(body, path, value, whole=field == "detail")
                connection.execute("UPDATE log SET body = ? WHERE seq = ?", (changed, row))
            count += 1
    forget_connections(place)  # another process knows nothing of what was there before
    return count


def _changed(body: bytes, path: list[str], value: Any, *, whole: bool) -> bytes:
    """Return the body of an event with another value."""
    if whole:
        text = value(body.decode()) if callable(value) else value
        return text.encode() if isinstance(text, str) else text
    fields = json.loads(body)
    inside = fields
    for part in path[:-1]:
        inside = inside[part]
    old = inside.get(path[-1])
    new = value(old) if callable(value) else value
    if isinstance(new, bytes):
        new = new.decode("latin-1")
    if isinstance(new, str) and new == "{":  # half of an object
        return body[: len(body) // 2]
    inside[path[-1]] = new
    return json.dumps(fields, separators=(",", ":")).encode()


def rechain(place: Any) -> None:
    """Make all chains of a ledger anew over what it holds now, as whoever owns the file can."""
    with _editing(place) as connection:
        for (holdout,) in connection.execute("SELECT id FROM holdout").fetchall():
            _sign(connection, holdout)
    forget_connections(place)


def _sign(connection: sqlite3.Connection, holdout: int) -> None:
    of_holdout = "SELECT secret FROM holdout WHERE id = ?"
    (secret,) = connection.execute(of_holdout, (holdout,)).fetchone()
    query = "SELECT seq, position, kind, body FROM log WHERE holdout = ? ORDER BY position"
    before = b""
    for row, position, kind, body in connection.execute(query, (holdout,)).fetchall():
        before = linked(secret, before, position, kind, body)
        columns = dict(zip(log.COLUMNS, log.columns_of(e.read(kind, body)), strict=True))
        stated = ", ".join(f"{name} = ?" for name in columns)
        connection.execute(
            f"UPDATE log SET hash = ?, {stated} WHERE seq = ?", (before, *columns.values(), row)
        )
    connection.execute("UPDATE holdout SET head = ? WHERE id = ?", (before, holdout))
    connection.execute("DELETE FROM snapshot WHERE holdout = ?", (holdout,))


def remove(
    place: Any,
    thing: str,
    *,
    number: int | None = None,
    holdout: int | str | None = None,
    kind: str | None = None,
) -> int:
    """Remove all things that fit; of a holdout, also what hangs on it. Return how many."""
    with _editing(place) as connection:
        if thing == "holdout":
            for table in ("log", "piece", "snapshot", "ladder"):
                connection.execute(f"DELETE FROM {table} WHERE holdout = ?", (holdout,))
            count = connection.execute("DELETE FROM holdout WHERE id = ?", (holdout,)).rowcount
        elif thing in ("candidate", "incumbent"):
            found = _kept_beside(connection, thing, "predictions", number, holdout)
            for row, _ in found:
                connection.execute("DELETE FROM piece WHERE rowid = ?", (row,))
            count = len(found)
        elif thing == "sharing":
            rows = _rows(connection, "event", None, holdout, "sharingcounted")
            for row, *_ in rows:
                connection.execute("DELETE FROM log WHERE seq = ?", (row,))
            count = len(rows)
        else:
            rows = _rows(connection, thing, number, holdout, kind)
            for row, *_ in rows:
                connection.execute("DELETE FROM log WHERE seq = ?", (row,))
            count = len(rows)
    assert count, f"no {thing} to remove"
    forget_connections(place)
    return count


def insert(place: Any, thing: str, *, like: int, **fields: Any) -> None:
    """Insert a thing with these columns, the others being those of another one by its number."""
    with _editing(place) as connection:
        rows = _rows(connection, thing, like, None, None)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(log)")][1:]
        chosen_ = ", ".join("?" if name in fields else name for name in columns)
        given = [fields[name] for name in columns if name in fields]
        query = f"INSERT INTO log ({', '.join(columns)}) SELECT {chosen_} FROM log WHERE seq = ?"
        connection.execute(query, [*given, rows[0][0]])


def add(holdout: Any, *happened: e.Event) -> None:
    """Put events into the chain, as the library itself would."""
    with Ledger(url_of(holdout)).write(Access.ALL) as tx:
        tx.add(_number(tx, holdout), *happened)


def note_overlap(holdout: Any, source: str, rows: int) -> None:
    """Note that rows of a holdout were seen elsewhere."""
    with Ledger(url_of(holdout)).write(Access.ALL) as tx:
        tx.note_overlap(_number(tx, holdout), source, rows)


def stated_ids(values: dict[LadderHoldout, Any], count: LadderHoldout) -> None:
    """Let holdouts have other hashes of ids, none for None; then count what one shares anew."""
    with Ledger(url_of(count)).write() as tx:
        for holdout, ids in values.items():
            number = _number(tx, holdout)
            tx.set_known(number, replace(tx.known(number), ids=ids))
        tx.count_shared(_number(tx, count))


def add_view(holdout: LadderHoldout, hashes: Any, places: Any) -> None:
    """Give a holdout a second view with these hashes of rows, and count what it shares anew."""
    with Ledger(url_of(holdout)).write() as tx:
        tx.add_view(_number(tx, holdout), "f" * 64, hashes, places)


def row_hashes(holdout: Any) -> Any:
    """Return the hashes of a holdout's rows, in the order of registration."""
    with _reading(holdout) as tx:
        return tx.view(_number(tx, holdout), 1).row_hashes


def expire(place: Any, account: str) -> None:
    """Let the token of an account end now."""
    with Ledger(url_of(place)).write() as tx:
        for rows in tx.holdouts():
            late = tx.fold(rows.id).accounts.get(account)
            if late is not None:
                tx.add(rows.id, replace(late, expires=datetime.now(UTC)))


def holder(place: Any, token: str) -> Any:
    """Return the account of a token, None if it is of nobody, as a server looks it up."""
    from ladderholdout.server.accounts import holder_of

    return holder_of(Ledger(url_of(place)), token)


def move_vault(path: Path, before: Path, after: Path) -> None:
    """Let the ledger name the vault in another folder."""
    moved = lambda old: old.replace(str(before), str(after))  # noqa: E731
    tamper(path, "holdout", "vault", moved)
    rechain(path)


def destroy(path: Path) -> None:
    """Make a ledger unreadable while it is in use."""
    with _editing(path) as connection:
        connection.execute("DROP TABLE log")


def mutate(path: Path, rng: random.Random, values: Sequence[Any], changed: Any) -> str:
    """Change one stored value, drawn at random, or sometimes remove what it is of; tell which.

    A value is one of `values`, or what the function `changed` makes of its bytes.
    """
    with _editing(path) as connection:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        filled = [
            name
            for (name,) in connection.execute(tables)
            if connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
        ]
        table = rng.choice(sorted(filled))
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = rng.choice(columns)
        row = rng.choice(connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall())
        value = rng.choice(values)
        if isinstance(row[1], str | bytes) and row[1] and rng.random() < 0.4:
            value = changed(row[1].encode() if isinstance(row[1], str) else row[1], rng)
            value = value if isinstance(row[1], bytes) else value.decode("latin-1")
        if rng.random() < 0.1:
            # A text that is none: SQLite does not look.
            statement = f"UPDATE {table} SET {column} = CAST(x'ff00fe' AS TEXT) WHERE rowid = ?"
            given: tuple[Any, ...] = (row[0],)
        else:
            statement, given = f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row[0])
        try:
            connection.execute(statement, given)
        except sqlite3.IntegrityError:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            if rng.random() < 0.5:
                connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row[0],))
    return f"{table}.{column} = {given!r:.80}"


# Faults


@contextmanager
def refusing(path: Path, thing: str, message: str = "full") -> Iterator[None]:
    """Let the database refuse to write such a thing until the end of the block."""
    condition = "1" if thing == "event" else f"NEW.kind = '{_THINGS[thing]}'"
    with _editing(path) as connection:
        connection.execute(
            f"CREATE TRIGGER refusing BEFORE INSERT ON log WHEN {condition} "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
    try:
        yield
    finally:
        with _editing(path) as connection:
            connection.execute("DROP TRIGGER refusing")


_QUOTES_THE_ROW = """
CREATE TRIGGER fault BEFORE INSERT ON log BEGIN
    SELECT json_extract('{}', CAST(NEW.body AS TEXT)); END
"""
_TAKES_THE_NUMBER = """
INSERT INTO log (holdout, position, kind, ladder, number, body, hash)
SELECT holdout, position + 1000, kind, ladder, number + 1, body, x'00' FROM log
WHERE number IS NOT NULL
"""
FAULTS = {
    "the driver quotes the row": _QUOTES_THE_ROW,
    "a trigger refuses it": """
CREATE TRIGGER fault BEFORE INSERT ON log BEGIN SELECT RAISE(ABORT, 'a fault'); END
""",
    "the end is refused": """
CREATE TRIGGER fault BEFORE UPDATE ON holdout BEGIN
    SELECT json_extract('{}', NEW.length || NEW.name); END
""",
}


def sabotage(path: Path, fault: str) -> None:
    """Let the next submission fail by one of `FAULTS`, from another process."""
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
    )
    subprocess.run([sys.executable, "-c", code, str(path), FAULTS[fault]], check=True)


def write_past_the_library(path: Path) -> None:
    """Write a submission with the raw risk of the first one, past all that hides errors."""
    with closing(sqlite3.connect(path)) as direct:
        direct.execute(_TAKES_THE_NUMBER)


@contextmanager
def locked(place: Any, timeout: float = 5.0) -> Iterator[None]:
    """Hold the ledger as another writer does; wait so many seconds for whoever holds it."""
    with closing(sqlite3.connect(_file(place), timeout=timeout, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def wait_for_writers(place: Any) -> None:
    """Wait until whoever is writing has ended."""
    with Ledger(url_of(place)).write():
        pass


def die_when(what: str, after: int = 0) -> None:
    """Kill this process at work: when a round is closed ("round"), or after something is noted.

    `after` so many that pass.
    """
    real, passed = Transaction.add, iter(range(after))

    def dying(tx: Transaction, holdout: int, *happened: e.Event, **named: Any) -> None:
        if what == "round" and not isinstance(happened[0], e.RoundClosed):
            return real(tx, holdout, *happened, **named)
        if what == "note" and isinstance(happened[0], e.Submitted):
            return real(tx, holdout, *happened, **named)
        if next(passed, None) is not None:
            return real(tx, holdout, *happened, **named)
        if what == "note":
            real(tx, holdout, *happened, **named)
        os._exit(9)

    Transaction.add = dying  # type: ignore[method-assign]


def set_clock(patch: pytest.MonkeyPatch, clock: Callable[[], datetime]) -> None:
    """Let a ledger, and the guard when it submits, read this clock."""
    from ladderholdout.audit import opening

    for module in (log, transaction, opening):
        patch.setattr(module, "now", clock)


def improvements_counted(patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of each submission before which somebody counts."""
    counted: list[int] = []
    count = LadderRecord.improvements

    def counting(ladder: LadderRecord, number: int) -> Any:
        counted.append(number)
        return count(ladder, number)

    patch.setattr(LadderRecord, "improvements", counting)
    return counted


@contextmanager
def statements_of(holdout: LadderHoldout) -> Iterator[list[str]]:
    """Collect the statements that the one connection of this process sends in the block."""
    (conn,) = store.source(url_of(holdout))._idle
    sent: list[str] = []
    conn.driver.set_trace_callback(sent.append)
    try:
        yield sent
    finally:
        conn.driver.set_trace_callback(None)


def forget_connections(place: Any) -> None:
    """Close what this process has open of a ledger, whose file may go then."""
    known = store._sources().pop(url_of(place), None)
    if known is not None:
        known.dispose()


def forget_marks(patch: pytest.MonkeyPatch) -> None:
    """Forget the marks that this process has open, until the end of the test."""
    patch.setattr(marks, "_descriptors", {})


def forget_rules() -> None:
    """Forget the rules that were looked up by name, as another process knows none."""
    rules.rules_of.cache_clear()
