"""The chain of a holdout: each link's hash covers the one before, so no entry changes unseen.

There is one chain for each holdout, through all of its ladders: what may be claimed of one
ladder depends on the queries of the others, and a ladder that was deleted with all of its
entries must be missed. Its links are the registration, which rows are the reserve, what is
known of the rows and where their copy is, that they come in groups, every view of them with
other features, every amendment of their labels, the class labels once they are fixed, the start
of every ladder with its settings, every submission, every query of the reserve, every asking for
a score that is shown on demand alone, every opening of raw scores, every confidence that was
stated later, every withdrawal, the teams, rounds and finals of leaderboards, every finding that the
ledger is an older copy, the retirement, and that fresh rows took the place of these. The
registration of fresh rows covers where the chain of the rows before them ended, so that the chains
of all blocks of a holdout are one.

The hashes are keyed with the holdout's secret. They cover raw risks, and their last one is
shown and anchored in other places: without a key, raw risks could be tried until one fits.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import json
import json.encoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    func,
    insert,
    select,
    type_coerce,
)

from ladderholdout.errors import HoldoutConflict
from ladderholdout.ledger.marks import mark_of
from ladderholdout.ledger.prepared import Prepared, run
from ladderholdout.ledger.records import (
    AT_A_TIME,
    EMPTY,
    FORGOTTEN,
    End,
    Head,
    LadderRecord,
    parted_name,
    select_holdouts,
    utc,
)
from ladderholdout.ledger.tables import (
    FAULTS,
    RAW,
    chains,
    events,
    holdouts,
    ladders,
    reserve_looks,
    submissions,
    views,
)

Row: TypeAlias = Mapping[str, Any]
Content: TypeAlias = tuple[Any, ...]
T = TypeVar("T")

# No prediction digest and no seed is a hash of the same bytes under the same secret.
_PURPOSE = "ladderholdout chain 1"
_BLOCK = 64  # bytes, of SHA-256


# What writes JSON in pieces as `json.dumps` does, which makes such an encoder anew each time. What
# a link covers is flat: nothing in it can contain itself.
_plain = json.JSONEncoder()
_pieces: Callable[[Any, int], Iterable[str]] = _plain.iterencode  # type: ignore[assignment]
if (make_encoder := getattr(json.encoder, "c_make_encoder", None)) is not None:
    _pieces = make_encoder(
        None, _plain.default, json.encoder.encode_basestring_ascii, None,
        ": ", ", ", False, False, True,
    )  # fmt: skip


class Unsorted(Exception):
    """Submissions are not stored in the order of their links: an id or a position was changed."""


SPENT_AT = "spent"
"""The kind of a link that records from which width on the owner takes rows for used up."""

RESTORED = "restored"
"""The kind of a link that records that an older copy of the ledger was found; a length follows."""

GROUPED = "grouped"
"""The kind of a link that records that the rows come in groups, and what showed it."""

WITHDRAWN = "withdrawn"
"""The kind of a link that records that a submission was withdrawn."""


MERGED = "merged"
"""The kind of a link that records that accounts of a leaderboard are of one team."""

LEFT = "left"
"""The kind of a link that records that an account left a leaderboard."""

ROUNDS = "rounds"
"""The kind of a link that records that a leaderboard answers by rounds."""

ROUND = "round"
"""The kind of a link that records that a round of a leaderboard was closed."""

FINALS = "finals"
"""The kind of a link that records the finals of a leaderboard."""

FOLLOWED = "followed"
"""The kind of a link that records that fresh rows took the place of these."""


@dataclass(slots=True)  # a frozen one takes three times as long to make, and there are millions
class Link:
    """One link of a chain, with its content as it is in the ledger now.

    Attributes
    ----------
    position : int
        In the chain, from 1.
    kind : str
        One of holdout, reserve, rows, view, grouped, amended, classes, ladder, submission,
        ``look``, asked, opened, confidence, withdrawn, merged, left, rounds, round, finals,
        retired, spent, followed, forgotten, or restored with the number of links that were known.
    ladder : str or None
        Account and name, as ``default/main``; None for what concerns the holdout.
    number : int or None
        The submission's, or that of the query of the reserve.
    hash : str
        As it was written.
    content : tuple or None
        What the hash covers; None where it is gone or cannot be read. Raw, so not shown.
    """

    position: int
    kind: str
    ladder: str | None
    number: int | None
    hash: str
    content: Content | None = field(repr=False)

    def __str__(self) -> str:
        of_ladder = f" of ladder {self.ladder}" if self.ladder else " of a ladder that is gone"
        return {
            "holdout": "the registration",
            "reserve": "the choice of the reserve",
            "rows": "a note on the rows",
            "view": "a note on a view of the rows",
            GROUPED: "a note that the rows come in groups",
            "amended": "an amendment of the labels",
            "look": f"query {self.number} of the reserve",
            FINALS: f"finals{of_ladder}",
            MERGED: f"the merging of accounts{of_ladder}",
            LEFT: f"the leaving of an account{of_ladder}",
            ROUNDS: f"the start of rounds{of_ladder}",
            ROUND: f"the end of a round{of_ladder}",
            "classes": "the list of classes",
            "ladder": f"the settings{of_ladder}",
            "submission": f"submission {self.number}{of_ladder}",
            "asked": f"the asking for the released score{of_ladder}",
            "opened": f"the opening{of_ladder}",
            "confidence": "a confidence that was stated later",
            SPENT_AT: "a rule about when rows are used up",
            WITHDRAWN: f"a withdrawal{of_ladder}",
            "retired": "the retirement",
            "forgotten": "the taking back of the registration",
            FOLLOWED: "the note that fresh rows took its place",
            RESTORED: "the finding of an older copy",
        }.get(self.kind.split(" ")[0], "an entry of no known kind")


def extend(secret: bytes, end: Head, kind: str, content: Content) -> Head:
    """Return the end of a chain after one more link.

    Parameters
    ----------
    secret : bytes
        The holdout's.
    end : Head
        The chain so far; `EMPTY` for the first link.
    kind : str
    content : tuple
        Texts, numbers, booleans and None. Floats count to the last bit.

    Returns
    -------
    Head

    Examples
    --------
    >>> first = extend(b"secret", EMPTY, "submission", (1, 0.1 + 0.2))
    >>> first == extend(b"secret", EMPTY, "submission", (1, 0.3))
    False
    """
    length = end.length + 1
    return Head(length, link_hash(secret, length, end.hash, kind, content))


def link_hash(secret: bytes, position: int, before: str, kind: str, content: Content) -> str:
    """Return the hash of a link after the one of another hash, 64 hex characters."""
    # What `hmac.digest` with SHA-256 does in twice the time.
    inner_of_key, outer_of_key = _padded(secret)
    inner, outer = inner_of_key.copy(), outer_of_key.copy()
    inner.update("".join(_pieces([_PURPOSE, position, before, kind, *content], 0)).encode())
    outer.update(inner.digest())
    return str(outer.hexdigest())


@lru_cache(16)
def _padded(secret: bytes) -> tuple[Any, Any]:
    """Return both hashes of an HMAC (RFC 2104) after their first block, which is of the key."""
    key = hashlib.sha256(secret).digest() if len(secret) > _BLOCK else secret
    inner, outer = (bytes(byte ^ pad for byte in key.ljust(_BLOCK, b"\0")) for pad in (0x36, 0x5C))
    return hashlib.sha256(inner), hashlib.sha256(outer)


def heads(secret: bytes, links: Iterable[Link]) -> Iterator[Head]:
    """Recompute a chain from what the ledger holds now.

    Parameters
    ----------
    secret : bytes
    links : iterable of Link
        In their order.

    Yields
    ------
    Head
        After each link. They differ from the recorded ones from the first change on.
    """
    end = EMPTY
    for link in links:
        end = extend(secret, end, link.kind, link.content or ())
        yield end


def holdout_content(row: Mapping[str, Any]) -> Content:
    """Return what the registration of a holdout covers: its rows, its name and its size."""
    return (
        row["id"],
        # That of an earlier block has its number since fresh rows took its place.
        parted_name(row["name"].partition(FORGOTTEN)[0])[0],
        *(row[name] for name in ("fingerprint", "n", "block")),
        row["content_digest"].hex(),
        hashlib.sha256(row["row_hashes"]).hexdigest(),
        moment(row["created"]),
    )


FACTS_OF_ROWS = (
    *("confidence", "ids", "labels_digest", "label_digests", "weight_digests", "places"),
    *("groups", "estimand", "labels_version", "vault_path", "vault_digest"),
)
"""The columns of a holdout that may change after its registration, or that it may lack."""

FACTS_OF_VIEW = ("number", "fingerprint", "row_hashes", "places", "vault_path", "vault_digest")
"""The columns of a view, but for the time of its first opening."""


def facts_of_rows(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a holdout's rows or of a view of them as it is now.

    Long columns by their SHA-256.
    """
    return {
        name: hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value
        for name, value in row.items()
    }


def ladder_content(row: Mapping[str, Any]) -> Content:
    """Return what the start of a ladder covers: all of its settings."""
    return (
        *(row[name] for name in ("id", "holdout_id", "account", "name", "metric")),
        *(row[name] for name in ("metric_settings", "mechanism", "mechanism_settings", "budget")),
        None if row["unit"] is None else float(row["unit"]),
        row["show"],
        moment(row["created"]),
    )


_SUBMITTED = (
    *("ladder_id", "number", "digest", "batch", "search", "key", "repeat_of", "evidence"),
    *("context", "improved", "raw_risk", "released_risk", "disagreement", "time"),
    *("reserve_digest", "place"),
)
submitted = itemgetter(*_SUBMITTED)
"""Returns the columns of a submission that its link covers."""


def submission_content(values: Iterable[Any]) -> Content:
    """Return what a submission covers: what `submitted` returns of its row, as it is hashed."""
    *plain, improved, raw, released, disagreement, time, reserve, place = values
    return (
        *plain,
        bool(improved),
        float(raw),
        float(released),
        None if disagreement is None else float(disagreement),
        moment(time),
        # What a submission does not have is left out.
        *((reserve,) if reserve else ()),
        *(() if place is None else ("place", place)),
    )


def look_content(row: Mapping[str, Any]) -> Content:
    """Return what a query of the reserve covers: every column."""
    shown = (row[name] for name in ("low", "risk", "high", "log_values"))
    return (
        *(row[name] for name in ("holdout_id", "number", "ladder_id", "submission", "evidence")),
        *(None if value is None else float(value) for value in shown),
        moment(row["time"]),
        *_named_values(row, "after", "others"),
    )


def event_content(row: Mapping[str, Any]) -> Content:
    """Return what every event covers of its own row: what had happened, and its detail."""
    return tuple(_named_values(row, "after", "detail"))


def _named_values(row: Mapping[str, Any], *columns: str) -> Iterator[Any]:
    """Yield the name and the value of each of these columns that has a value."""
    for column in columns:
        if row.get(column) is not None:
            yield from (column, row[column])


def digest_of(secret: bytes, predictions: NDArray[Any]) -> str:
    """Return the HMAC-SHA256 of canonical predictions, 64 hex characters.

    Keyed, since the history shows it: predictions are in the order of the content, which
    depends on the labels, and whoever could try orders until a digest fits would read them.
    """
    head = f"{predictions.dtype.str}{predictions.shape}".encode()
    return hmac.digest(secret, head + predictions.tobytes(), "sha256").hex()


def digests_of(
    secret: bytes, predictions: NDArray[Any], reserve: NDArray[np.bool_] | None
) -> tuple[str, str | None]:
    """Return the digests of what ladders measure, and of the reserve's predictions.

    The first decides what is a repeat. With one digest over all rows, a rule with noise could
    be asked again and again about what it measures, by changing what it does not.
    """
    if reserve is None:
        return digest_of(secret, predictions), None
    return digest_of(secret, predictions[~reserve]), digest_of(secret, predictions[reserve])


def moment(time: datetime | str) -> str:
    """Return a time in one spelling, whatever the database gives it back as."""
    if type(time) is str and len(time) == 26 and time[10] == " " and time[19:] != ".000000":
        return f"{time[:10]}T{time[11:]}+00:00"  # as SQLite has it, without reading it
    time = datetime.fromisoformat(time) if isinstance(time, str) else time
    return utc(time).isoformat()


# -- in the tables -------------------------------------------------------------------------


def _id(row: Row) -> Content:
    """Return whose an event is, where its kind, its detail or its place has the rest."""
    return (row["id"],)


# What the link of each kind covers, by the row that is read for it.
_OF_HOLDOUT: Mapping[str, Callable[[Row], Content]] = {
    **dict.fromkeys(("rows", "view", GROUPED, "amended", "confidence", RESTORED), _id),
    **dict.fromkeys((SPENT_AT, FOLLOWED, "forgotten"), _id),
    "holdout": holdout_content,
    "reserve": lambda row: (row["id"], hashlib.sha256(row["reserve"]).hexdigest()),
    "classes": lambda row: (row["id"], hashlib.sha256(row["classes"]).hexdigest()),
    "retired": lambda row: (row["id"], moment(row["retired"])),
}
_OF_LADDER: Mapping[str, Callable[[Row], Content]] = {
    **dict.fromkeys(("asked", "batch", "compared", "estimate", "interval", WITHDRAWN), _id),
    **dict.fromkeys((FINALS, LEFT, MERGED, ROUNDS, ROUND), _id),
    "ladder": ladder_content,
    "opened": lambda row: (row["id"], moment(row["opened"])),
}


def refuse_retired(name: str, retired: datetime | None) -> None:
    """Refuse to add to a holdout that was retired, or to rows whose place fresh ones took."""
    if retired is None:
        return
    before, forgotten, _ = name.partition(FORGOTTEN)
    if forgotten:
        raise HoldoutConflict(
            f"The registration of {before!r} was forgotten on {retired:%Y-%m-%d}. Register the "
            "rows again, LadderHoldout(X, y, ...)."
        )
    whole, number = parted_name(name)
    if number is not None:
        raise HoldoutConflict(
            f"Fresh rows took the place of these: they are block {number} of {whole!r}, whose "
            "status, history and audit stay, and take no more submissions. To go on with the fresh "
            f"rows open {whole!r}, LadderHoldout.open({whole!r}); behind a server connect again."
        )
    raise HoldoutConflict(
        f"The holdout {name!r} was retired on {retired:%Y-%m-%d} and takes no more "
        "submissions. Its status, history and audit stay; register fresh rows to go on, or let "
        "them take its place (replenish)."
    )


class Left(NamedTuple):
    """A ladder, and the end of its chain, as they were when a transaction was committed."""

    ladder: LadderRecord
    end: End


END_COLUMNS = (
    holdouts.c.name.label("holdout_name"),
    holdouts.c.retired,
    holdouts.c.labels_version,
    holdouts.c.secret,
    holdouts.c.fingerprint,
    holdouts.c.vault_path,
    chains.c.length,
    chains.c.head,
    chains.c.runs,
    chains.c.batch,
)


def _at_place(table: Any, entries: Any, holdout: ColumnElement[int]) -> Select[Any]:
    """Select the hash of the link at a position of a chain, if this table has it."""
    of_position = table.c.position == bindparam("position")
    of_holdout = holdout == bindparam("holdout")
    return select(table.c.hash).select_from(entries).where(of_holdout, of_position)


# Where a link may be. Submissions come last, and are read from the newest on, since a recent link
# is asked for.
_AT_PLACE = (
    Prepared(_at_place(events, events, events.c.holdout_id).limit(1)),
    Prepared(_at_place(reserve_looks, reserve_looks, reserve_looks.c.holdout_id).limit(1)),
    Prepared(
        _at_place(submissions, submissions.join(ladders), ladders.c.holdout_id)
        .order_by(submissions.c.id.desc())
        .limit(1)
    ),
)

_MOVE_END = (
    "UPDATE chains SET length = :length, head = :head, runs = :runs, batch = :batch "
    "WHERE holdout_id = :holdout"
)


def end_of(row: Any) -> End:
    """Return a row of `END_COLUMNS` as an end."""
    return End(
        row.holdout_name,
        row.retired,
        row.labels_version,
        row.secret,
        row.fingerprint,
        row.vault_path,
        Head(row.length, row.head),
        row.runs,
        row.batch,
    )


class Chains:
    """The chains of a ledger, inside one transaction.

    Parameters
    ----------
    conn : Connection
    url : str
        Of the ledger, by which the marks of its holdouts are found.
    """

    def __init__(self, conn: Connection, url: str) -> None:
        self._conn, self._url = conn, url
        # The ends of the chains that are locked, and the marked links that these chains have lost.
        self.ends: dict[int, End] = {}
        self.lost: list[Head] = []
        # The last link that was added here: it shows later whether this was committed.
        self.last: tuple[int, Head] | None = None

    def hold(self, holdout_id: int, end: End) -> None:
        """Keep the end of a chain that was read under lock.

        A chain that has lost the link which its mark names is an older copy, and that is recorded.
        """
        is_held = holdout_id in self.ends
        self.ends[holdout_id] = end
        seen = None if is_held else mark_of(self._url, end).seen()
        if seen is not None and self.lacks(holdout_id, end.head, seen):
            self.lost.append(seen)
            self.note(holdout_id, f"{RESTORED} {seen.length}")

    def end(self, holdout_id: int) -> End:
        """Return the end of a chain, held until the transaction ends."""
        if holdout_id not in self.ends:
            query = (
                select(*END_COLUMNS).join_from(holdouts, chains).where(holdouts.c.id == holdout_id)
            )
            self.hold(holdout_id, end_of(self._conn.execute(query.with_for_update()).one()))
        return self.ends[holdout_id]

    def start(
        self, holdout_id: int, row_hashes: memoryview, after: Mapping[str, Any] | None = None
    ) -> None:
        """Start the chain of a new holdout, with its registration; the hashes are written later.

        `after` is where the chain of the block before ended, where the rows follow others.
        """
        values = {"holdout_id": holdout_id, "length": 0, "head": ""}
        self._conn.execute(insert(chains).values(values))
        self.note(holdout_id, "holdout", detail=after, later={"row_hashes": row_hashes})

    def note(
        self,
        holdout_id: int,
        kind: str,
        ladder_id: int | None = None,
        detail: Mapping[str, Any] | None = None,
        later: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Add a link about the holdout or one of its ladders, as the row is now.

        `later` are columns that are still to be written.
        """
        if ladder_id is None:
            # Only the first link covers what is as long as the rows.
            columns = holdouts.c if kind == "holdout" else select_holdouts().selected_columns
            row = self._conn.execute(select(*columns).where(holdouts.c.id == holdout_id)).one()
            content = _OF_HOLDOUT[kind.partition(" ")[0]]({**row._asdict(), **later})
        else:
            row = self._conn.execute(select(ladders).where(ladders.c.id == ladder_id)).one()
            content = _OF_LADDER[kind](row._asdict())
        event = {"after": self.latest(), "detail": None if detail is None else json.dumps(detail)}
        head = self.add(holdout_id, kind, (*content, *event_content(event)))
        event |= {"holdout_id": holdout_id, "ladder_id": ladder_id, "kind": kind}
        event |= {"position": head.length, "hash": head.hash}
        self._conn.execute(insert(events).values(event))

    def note_rows(self, holdout_id: int, written: Mapping[str, str] = MappingProxyType({})) -> None:
        """Add links on what is known of a holdout's rows and views, if that has changed.

        `written` are the SHA-256 of columns that were just written, and need not be read.
        """
        facts = read_facts(self._conn, holdout_id, written)
        if facts != read_noted_facts(self._conn, holdout_id):
            self.note(holdout_id, "rows", detail=facts)
        noted = read_noted_views(self._conn, holdout_id)
        for number, view in read_views(self._conn, holdout_id).items():
            if view != noted.get(number):
                self.note(holdout_id, "view", detail=view)

    def latest(self) -> int:
        """Return the id of the last submission to any holdout, 0 without one."""
        return self._conn.execute(select(func.max(submissions.c.id))).scalar() or 0

    def has(self, holdout_id: int, head: Head) -> bool:
        """Return whether a chain has this link: no other has its hash, which covers the moment."""
        values = {"holdout": holdout_id, "position": head.length}
        return any(
            row.hash == head.hash for query in _AT_PLACE for row in query.rows(self._conn, values)
        )

    def lacks(self, holdout_id: int, end: Head, seen: Head) -> bool:
        """Return whether a chain that ends here has lost an end that was seen."""
        return seen != end and (seen.length >= end.length or not self.has(holdout_id, seen))

    def links(self, holdout_id: int, *, sort: bool = True) -> Iterator[Link]:
        """Read a chain by position, each link with what it covers as it is now.

        There may be millions: they come one by one, and the database puts them in order. To sort
        a million submissions takes it seconds, and a file as large as they are: without `sort`
        they come as they are stored, and Unsorted is raised where that is another order.
        """
        conn = self._conn
        of_holdout = _as_they_are(holdouts.c).where(holdouts.c.id == holdout_id)
        holdout = conn.execute(of_holdout).one()._asdict()
        of_ladders = _as_they_are(ladders.c).where(ladders.c.holdout_id == holdout_id)
        known = {row.id: row._asdict() for row in conn.execute(of_ladders)}
        places = {ladder_id: _place(row) for ladder_id, row in known.items()}
        noted = _as_they_are(events.c).where(events.c.holdout_id == holdout_id)
        # As they are stored: by no index, for the one of ladders gives them ladder after ladder.
        of_ladder = submissions.c.ladder_id if sort else submissions.c.ladder_id + 0
        entries = _as_they_are(_OF_ENTRIES).where(of_ladder.in_(known))
        by = None if sort else submissions.c.id
        queries = _as_they_are(reserve_looks.c).where(reserve_looks.c.holdout_id == holdout_id)
        return heapq.merge(
            (_event_link(row, holdout, known) for row in _ordered(conn, noted)),
            _submission_links(_ordered(conn, entries, by), places, sort),
            (_query_link(row._asdict()) for row in _ordered(conn, queries)),
            key=attrgetter("position"),
        )

    def add(self, holdout_id: int, kind: str, content: Content) -> Head:
        """Move the end of a chain by one link; the caller keeps position and hash."""
        end = self.end(holdout_id)
        end.head = head = extend(end.secret, end.head, kind, content)
        self.last = holdout_id, head
        values = {
            "holdout": holdout_id,
            "length": head.length,
            "head": head.hash,
            "runs": end.runs,
            "batch": end.batch,
        }
        run(self._conn, _MOVE_END, values)
        return head


def read_facts(
    conn: Connection, holdout_id: int, written: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Read what is known of a holdout's rows as it is now, but for what was just written."""
    columns = (holdouts.c[name] for name in FACTS_OF_ROWS if name not in written)
    row = conn.execute(select(*columns).where(holdouts.c.id == holdout_id)).one()
    facts = {**facts_of_rows(row._asdict()), **written}
    return {name: facts[name] for name in FACTS_OF_ROWS}


def read_views(conn: Connection, holdout_id: int) -> dict[int, dict[str, Any]]:
    """Read the views of a holdout as they are now, by number, without the first."""
    columns = (views.c[name] for name in FACTS_OF_VIEW)
    query = select(*columns).where(views.c.holdout_id == holdout_id).order_by(views.c.number)
    return {row.number: facts_of_rows(row._asdict()) for row in conn.execute(query)}


def read_noted_facts(conn: Connection, holdout_id: int) -> dict[str, Any]:
    """Read the last note on a holdout's rows; empty where whoever owns the file removed it."""
    noted = list(_details(conn, holdout_id, "rows"))
    return noted[-1] if noted else {}


def read_noted_views(conn: Connection, holdout_id: int) -> dict[int, dict[str, Any]]:
    """Read the last note on each view of a holdout, by number."""
    details = _details(conn, holdout_id, "view")
    return {view["number"]: view for view in details if isinstance(view.get("number"), int)}


def _details(conn: Connection, holdout_id: int, kind: str) -> Iterator[dict[str, Any]]:
    """Read the details of the events of a kind, oldest first; damaged ones as empty."""
    query = (
        select(events.c.detail)
        .where(events.c.holdout_id == holdout_id, events.c.kind == kind)
        .order_by(events.c.position)
    )
    for detail in conn.execute(query).scalars():
        try:
            yield dict(json.loads(detail))
        except (TypeError, ValueError):  # the chain records it
            yield {}


def _ordered(
    conn: Connection, query: Select[Any], by: ColumnElement[Any] | None = None
) -> Iterator[Any]:
    ordered = query.order_by(query.selected_columns["position"] if by is None else by)
    # Closed by whoever stops in the midst: on a server the rest waits in a cursor.
    with conn.execute(ordered, execution_options={"yield_per": AT_A_TIME}) as rows:
        yield from rows


_OF_ENTRIES = [submissions.c[name] for name in ("position", "hash", *_SUBMITTED)]


def _as_they_are(columns: Any) -> Select[Any]:
    # Unchecked: one value that was changed must not hide all the others.
    return select(*(type_coerce(column, RAW).label(column.name) for column in columns))


def _event_link(row: Any, holdout: Row, known: Mapping[int, Row]) -> Link:
    ladder = known.get(row.ladder_id)
    content, word = None, row.kind.partition(" ")[0]
    if word in _OF_HOLDOUT:
        content = _covered(_OF_HOLDOUT[word], holdout)
    elif row.kind in _OF_LADDER and ladder is not None:
        content = _covered(_OF_LADDER[row.kind], ladder)
    if content is not None:
        content += event_content(row._asdict())
    place = None if ladder is None else _place(ladder)
    return Link(row.position, row.kind, place, None, row.hash, content)


def _submission_links(
    rows: Iterable[Sequence[Any]], places: Mapping[int, str], sorted_: bool
) -> Iterator[Link]:
    last = 0
    for row in rows:
        position, written, *values = row
        place = places.get(values[0])
        if place is None:  # to a database a text that begins with a number can equal it
            continue
        if not sorted_:
            if type(position) is not int or position <= last:
                raise Unsorted
            last = position
        content = _covered(submission_content, values)
        yield Link(position, "submission", place, values[1], written, content)


def _query_link(row: Row) -> Link:
    content = _covered(look_content, row)
    return Link(row["position"], "look", None, row["number"], row["hash"], content)


def _covered(read: Callable[[T], Content], row: T) -> Content | None:
    try:
        content = read(row)
    except FAULTS:
        return None
    return None if bytes in map(type, content) else content


def _place(ladder: Row) -> str:
    return f"{ladder['account']}/{ladder['name']}"
