"""What the rows of a holdout are known by, and which holdouts share rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from ladderholdout.errors import HoldoutConflict, UnknownHoldout
from ladderholdout.identity import by_value, overlap, same_partition
from ladderholdout.ledger.chain import GROUPED, SPENT_AT, Chains, refuse_retired
from ladderholdout.ledger.prepared import driver_of, run
from ladderholdout.ledger.records import (
    FORGOTTEN,
    HoldoutRecord,
    KnownRows,
    Overlap,
    ViewRecord,
    holdout_record,
    is_standing,
    now,
    parted_name,
    read_all,
    select_holdouts,
    utc,
)
from ladderholdout.ledger.tables import accounts, events, holdouts, ladders, overlaps, shared, views

Pieces: TypeAlias = tuple[int, Iterable[Any]]
"""The length of a value in bytes, and the bytes one after the other."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """A holdout that has rows of another one.

    Attributes
    ----------
    holdout_id, name : int, str
    rows : int
        How many rows of the other one it has.
    """

    holdout_id: int
    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class _Keys:
    """What rows are known by: hashes of their features in each view, of ids, and of labels.

    Labels show how they divide the rows, whatever they are called.
    """

    views: tuple[NDArray[np.uint64], ...]
    ids: NDArray[np.uint64] | None
    labels: NDArray[np.uint64] | None

    def rows_in(self, other: _Keys) -> int:
        """Count the rows that are known from another holdout, by what finds most of them."""
        known = np.concatenate(other.views)
        counts = [overlap(view, known) for view in self.views]
        if self.ids is not None and other.ids is not None:
            counts.append(overlap(by_value(self.ids), by_value(other.ids)))
        if self.labels is not None and other.labels is not None:
            counts.append(len(self.labels) * same_partition(self.labels, other.labels))
        return max(counts)


def _shared(conn: Connection, holdout_id: int) -> dict[int, tuple[int, int]]:
    """Return by other holdout how many rows of this one it has, and this one of its rows."""
    standing = conn.execute(select(holdouts.c.id).where(is_standing())).scalars().all()
    others = [other for other in standing if other != holdout_id]
    if not others or holdout_id not in standing:
        return {}
    keys, shared_with = _keys(conn, holdout_id), {}
    for other_id in others:
        other_keys = _keys(conn, other_id)
        # Equal rows may be in one of them many times. What counts is whether there are any.
        counts = keys.rows_in(other_keys), other_keys.rows_in(keys)
        if any(counts):
            shared_with[other_id] = counts
    return shared_with


def _keys(conn: Connection, holdout_id: int) -> _Keys:
    columns = holdouts.c.row_hashes, holdouts.c.ids, holdouts.c.label_digests
    row = conn.execute(select(*columns).where(holdouts.c.id == holdout_id)).one()
    of_views = select(views.c.row_hashes).where(views.c.holdout_id == holdout_id)
    return _Keys(
        tuple(map(_read_hashes, (row.row_hashes, *conn.execute(of_views).scalars()))),
        None if row.ids is None else _read_hashes(row.ids),
        None if row.label_digests is None else _read_hashes(row.label_digests),
    )


def _read_hashes(stored: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(stored, dtype="<u8")


_OF_ROWS = ("n", "ids", "labels_digest", "label_digests", "weight_digests", "places", "groups")
_OF_VIEW = ("fingerprint", "row_hashes", "places", "vault_path", "vault_digest", "created")


_SET_KNOWN = (
    "UPDATE holdouts SET ids = :ids, labels_digest = :labels_digest, "
    "label_digests = :label_digests, weight_digests = :weight_digests, places = :places "
    "WHERE id = :holdout"
)


# Kinds of events by which nothing was shown to anybody.
_BEFORE_QUERIES = {"holdout", "reserve", "rows", "view", "classes", "ladder", GROUPED, SPENT_AT}


class HoldoutRows:
    """What can be read of the rows of holdouts and written about them, inside one transaction."""

    def __init__(self, conn: Connection, chains: Chains) -> None:
        self._conn = conn
        self._chains = chains

    def start(
        self,
        name: str,
        fingerprint: str,
        content_digest: bytes,
        secret: bytes,
        row_hashes: NDArray[np.uint64],
        confidence: float,
        estimand: str | None = None,
        block: int = 1,
        after: Mapping[str, Any] | None = None,
    ) -> int:
        """Register a holdout without what is as long as its rows: `fill` comes last.

        `block` and `after` are what `Blocks.pass_on` returns for fresh rows.
        """
        values = {
            "name": name,
            "fingerprint": fingerprint,
            "content_digest": content_digest,
            "secret": secret,
            "n": len(row_hashes),
            "row_hashes": b"",
            "created": now(),
            "confidence": confidence,
            "estimand": estimand,
            "block": block,
        }
        inserted = self._conn.execute(insert(holdouts).values(values)).inserted_primary_key
        holdout_id = int(inserted[0])  # type: ignore[index]  # Core inserts have one
        self._chains.start(holdout_id, as_bytes(row_hashes), after)
        return holdout_id

    def with_features(self, fingerprint: str) -> tuple[HoldoutRecord, ...]:
        """Return the holdouts that have a view of these features, oldest first."""
        of_views = select(views.c.holdout_id).where(views.c.fingerprint == fingerprint)
        where = or_(holdouts.c.fingerprint == fingerprint, holdouts.c.id.in_(of_views))
        return self._holdouts_where(where)

    def of_size(self, n: int) -> tuple[HoldoutRecord, ...]:
        """Return the holdouts of n rows, oldest first."""
        return self._holdouts_where(holdouts.c.n == n)

    def _holdouts_where(self, where: ColumnElement[bool]) -> tuple[HoldoutRecord, ...]:
        query = select_holdouts().where(where, is_standing()).order_by(holdouts.c.id)
        return read_all(self._conn.execute(query), holdout_record)

    def known(self, holdout_id: int) -> KnownRows:
        """Return what the rows of a holdout are known by."""
        columns = (holdouts.c[name] for name in _OF_ROWS)
        query = select(*columns).where(holdouts.c.id == holdout_id)
        return read_all(self._conn.execute(query), _known_rows)[0]

    def has_ids(self, holdout_id: int) -> bool:
        """Return whether the rows of a holdout were registered with ids."""
        query = select(holdouts.c.ids.is_not(None)).where(holdouts.c.id == holdout_id)
        return bool(self._conn.execute(query).scalar_one())

    def set_known(self, holdout_id: int, known: KnownRows) -> None:
        """Keep what the rows of a holdout are known by."""
        values = {
            "ids": known.ids,
            "label_digests": known.label_digests,
            "weight_digests": known.weight_digests,
            "places": known.places,
        }
        stored: dict[str, Any] = {
            name: None if array is None else as_bytes(array) for name, array in values.items()
        }
        stored["labels_digest"] = known.labels_digest
        # SQLAlchemy would keep the values until garbage is collected. Python's driver of SQLite
        # keeps a copy of them until the statement runs again, as it does here for no row.
        run(self._conn, _SET_KNOWN, {**stored, "holdout": holdout_id})
        run(self._conn, _SET_KNOWN, {**dict.fromkeys(stored), "holdout": -1})
        self.count_shared(holdout_id)

    def fill(self, holdout_id: int, values: Mapping[str, Pieces]) -> dict[str, str]:
        """Keep what the rows of a new holdout are known by.

        It comes last: whatever changes the row afterwards copies all of it.

        Parameters
        ----------
        holdout_id : int
        values : mapping of str to Pieces
            By column; they are read in this order.

        Returns
        -------
        dict of str to str
            The SHA-256 of each column, 64 hexadecimal digits.
        """
        written = _fill(self._conn, holdout_id, values)
        self.count_shared(holdout_id)
        return written

    def forget(self, holdout_id: int) -> tuple[str, ...]:
        """Take back a registration that was never queried; return where copies of its rows are.

        Its chain stays, under a name that is free of all others, and its rows are known no more.

        Raises
        ------
        HoldoutConflict
            Something was asked of it, or it is one of several blocks.
        """
        end = self._chains.end(holdout_id)
        if FORGOTTEN in end.name or parted_name(end.name)[1] is not None:
            refuse_retired(end.name, end.retired or now())
        block = select(holdouts.c.block).where(holdouts.c.id == holdout_id)
        of_ladders = select(func.sum(ladders.c.submissions))
        of_ladders = of_ladders.where(ladders.c.holdout_id == holdout_id)
        queries = self._conn.execute(of_ladders).scalar_one()
        kinds = select(events.c.kind).where(events.c.holdout_id == holdout_id)
        others = {*self._conn.execute(kinds).scalars()} - _BEFORE_QUERIES
        why = (
            (queries and f"it has {queries} submissions")
            or (self._conn.execute(block).scalar_one() > 1 and "its rows follow others")
            or (others and f"there is more than its registration on record ({min(others)})")
        )
        if why:
            raise HoldoutConflict(
                f"{end.name!r} cannot be forgotten, for {why}: what was learned of its rows "
                "stays known. Retire it, or let fresh rows take its place (replenish)."
            )
        kept = [view for view in self.views(holdout_id) if view.vault_path is not None]
        for view in kept:
            self.set_vault(holdout_id, None, None, view.number)
        self._chains.note_rows(holdout_id)
        end.name, end.retired = f"{end.name}{FORGOTTEN}{holdout_id}", end.retired or now()
        values = {"name": end.name, "retired": end.retired}
        self._conn.execute(update(holdouts).where(holdouts.c.id == holdout_id).values(values))
        self._chains.note(holdout_id, "retired")
        self._chains.note(holdout_id, "forgotten")
        self._conn.execute(delete(accounts).where(accounts.c.holdout_id == holdout_id))
        self.count_shared(holdout_id)
        return tuple(str(view.vault_path) for view in kept)

    # -- rows that holdouts share -----------------------------------------------------

    def sharing(self, holdout_id: int) -> tuple[Sharing, ...]:
        """Return the other holdouts that have rows of this one, oldest first."""
        query = (
            select(shared.c.other_id, holdouts.c.name, shared.c.rows)
            .join(holdouts, holdouts.c.id == shared.c.other_id)
            .where(shared.c.holdout_id == holdout_id)
            .order_by(shared.c.other_id)
        )
        return tuple(Sharing(*row) for row in self._conn.execute(query))

    def count_shared(self, holdout_id: int) -> None:
        """Count anew what a holdout shares with each of the others, and keep it both ways."""
        either = or_(shared.c.holdout_id == holdout_id, shared.c.other_id == holdout_id)
        self._conn.execute(delete(shared).where(either))
        pairs = [
            {"holdout_id": first, "other_id": second, "rows": rows}
            for other_id, counts in _shared(self._conn, holdout_id).items()
            for first, second, rows in zip(
                (holdout_id, other_id), (other_id, holdout_id), counts, strict=True
            )
        ]
        if pairs:
            self._conn.execute(insert(shared), pairs)

    def shared_as_counted(self, holdout_id: int) -> bool:
        """Return whether what is kept of the rows that a holdout shares agrees with its rows.

        Rows that were changed beyond reading are found by the chains that cover them.
        """
        kept = {sharing.holdout_id: sharing.rows for sharing in self.sharing(holdout_id)}
        try:
            counted = _shared(self._conn, holdout_id)
        except (TypeError, ValueError):
            return True
        return kept == {other_id: rows for other_id, (rows, _) in counted.items()}

    # -- overlaps ---------------------------------------------------------------------

    def overlaps(self, holdout_id: int) -> tuple[Overlap, ...]:
        """Return where rows of this holdout were seen, largest count first."""
        query = (
            select(overlaps)
            .where(overlaps.c.holdout_id == holdout_id)
            .order_by(overlaps.c.rows.desc(), overlaps.c.id)
        )
        rows = self._conn.execute(query)
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

    # -- views ------------------------------------------------------------------------

    def views(self, holdout_id: int) -> tuple[ViewRecord, ...]:
        """Return the views of a holdout by number; the first is what was registered."""
        columns = (holdouts.c[name] for name in ("n", *_OF_VIEW))
        registered = select(*columns).where(holdouts.c.id == holdout_id)
        first = read_all(self._conn.execute(registered), lambda row: _view(1, row))
        others = (
            select(holdouts.c.n, views.c.number, *(views.c[name] for name in _OF_VIEW))
            .join(holdouts)
            .where(views.c.holdout_id == holdout_id)
            .order_by(views.c.number)
        )
        return first + read_all(self._conn.execute(others), lambda row: _view(row.number, row))

    def view(self, holdout_id: int, number: int | None = None) -> ViewRecord:
        """Return one view of a holdout, by default the newest."""
        views = self.views(holdout_id)
        for view in reversed(views):
            if number in (None, view.number):
                return view
        raise UnknownHoldout(
            f"This holdout has no view {number}. It has 1 to {views[-1].number}: leave view= out "
            "for the newest."
        )

    def add_view(
        self,
        holdout_id: int,
        fingerprint: str,
        row_hashes: NDArray[np.uint64],
        places: NDArray[np.intp],
    ) -> ViewRecord:
        """Record the rows of a holdout with other features."""
        number = self.views(holdout_id)[-1].number + 1
        values = {
            "holdout_id": holdout_id,
            "number": number,
            "fingerprint": fingerprint,
            "row_hashes": as_bytes(row_hashes),
            "places": as_bytes(places),
            "created": now(),
        }
        self._conn.execute(insert(views).values(values))
        self.count_shared(holdout_id)
        return self.view(holdout_id, number)

    def set_vault(
        self, holdout_id: int, path: str | None, digest: str | None, view: int = 1
    ) -> None:
        """Note where the rows of a view are kept, and their file's SHA-256."""
        values = {"vault_path": path, "vault_digest": digest}
        if view == 1:
            self._chains.end(holdout_id).vault_path = path
            changed = update(holdouts).where(holdouts.c.id == holdout_id)
        else:
            changed = update(views).where(views.c.holdout_id == holdout_id, views.c.number == view)
        self._conn.execute(changed.values(values))

    # -- labels -----------------------------------------------------------------------

    def amend(self, holdout_id: int, known: KnownRows, amended: NDArray[np.bool_]) -> None:
        """Record that labels of a holdout were amended.

        Parameters
        ----------
        holdout_id : int
        known : KnownRows
            What the rows are known by from now on.
        amended : ndarray of bool, shape (n,)
            Which labels were amended, in the order of the content.
        """
        self.set_known(holdout_id, known)
        version = holdouts.c.labels_version + 1
        changed = update(holdouts).where(holdouts.c.id == holdout_id)
        self._conn.execute(changed.values(labels_version=version))
        detail = {"count": int(amended.sum()), "rows": np.packbits(amended).tobytes().hex()}
        self._chains.note(holdout_id, "amended", detail=detail)


def _known_rows(row: Row[Any]) -> KnownRows:
    return KnownRows(
        label_digests=_hashes(row.label_digests, row.n),
        places=_places(row.places, row.n),
        ids=None if row.ids is None else _hashes(row.ids, row.n),
        weight_digests=None if row.weight_digests is None else _hashes(row.weight_digests, row.n),
        labels_digest=row.labels_digest,
        groups=None if row.groups is None else _hashes(row.groups, row.n),
    )


def _view(number: int, row: Row[Any]) -> ViewRecord:
    hashes = _hashes(row.row_hashes, row.n)
    return ViewRecord(
        number=number,
        fingerprint=row.fingerprint,
        row_hashes=hashes,
        places=_places(row.places, row.n),
        vault_path=row.vault_path,
        vault_digest=row.vault_digest,
        created=utc(row.created),
    )


def _fill(conn: Connection, holdout_id: int, values: Mapping[str, Pieces]) -> dict[str, str]:
    """Set columns of a holdout's row that are as long as its rows; return their SHA-256.

    A database takes a long value as a whole, copies it, and copies it again into the row that it
    makes. SQLite can also set aside the space for a value and have it filled later, piece by piece.
    """
    hashed = {name: hashlib.sha256() for name in values}
    if conn.dialect.name == "sqlite":
        _set_columns(
            conn,
            holdout_id,
            "zeroblob(:{0})",
            {name: length for name, (length, _) in values.items()},
        )
        for name, (_, pieces) in values.items():
            with driver_of(conn).blobopen("holdouts", name, holdout_id) as blob:
                for piece in pieces:
                    hashed[name].update(piece)
                    blob.write(piece)
                assert blob.tell() == len(blob)
    else:
        whole = {name: b"".join(map(bytes, pieces)) for name, (_, pieces) in values.items()}
        for name, value in whole.items():
            hashed[name].update(value)
        _set_columns(conn, holdout_id, ":{0}", whole)
    return {name: digest.hexdigest() for name, digest in hashed.items()}


def _set_columns(conn: Connection, holdout_id: int, form: str, values: Mapping[str, Any]) -> None:
    stated = ", ".join(f"{name} = {form.format(name)}" for name in values)
    run(
        conn,
        f"UPDATE holdouts SET {stated} WHERE id = :holdout",
        {**values, "holdout": holdout_id},
    )


def as_bytes(values: NDArray[Any]) -> memoryview:
    """Write hashes or places as 64 bits each, whatever this machine's order of bytes is."""
    return np.ascontiguousarray(values, dtype="<u8").data.cast("B")


def _hashes(stored: bytes, n: int) -> NDArray[np.uint64]:
    hashes = np.frombuffer(stored, dtype="<u8")
    if len(hashes) != n:
        raise ValueError
    return hashes


def _places(stored: bytes, n: int) -> NDArray[np.intp]:
    places = _hashes(stored, n)
    seen = np.zeros(n, dtype=bool)
    seen[places] = True  # IndexError beyond them
    if not seen.all():
        raise ValueError
    return places.astype(np.intp)
