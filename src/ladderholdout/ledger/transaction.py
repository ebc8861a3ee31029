"""What can be read of a ledger and written to it, inside one transaction."""

from __future__ import annotations

import hashlib
import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import HoldoutConflict, UnknownHoldout
from ladderholdout.identity import by_value, overlap, same_partition
from ladderholdout.ledger import arrays, fold
from ladderholdout.ledger import events as e
from ladderholdout.ledger.counts import Counts
from ladderholdout.ledger.fold import (
    FORGOTTEN,
    Head,
    Holdout,
    HoldoutRecord,
    Improvement,
    LadderRecord,
    Waiting,
    refuse_retired,
)
from ladderholdout.ledger.log import AT_A_TIME, FORMAT, PIECES, as_bytes, blob, now, refuse

NOT_IMPROVED: Mapping[str, Any] = {"answer": "not improved"}
"""The evidence of a repeat that nobody knows to be one: it is answered and counted as a query."""
KNOWN: Mapping[str, Any] = {"answer": "known"}
"""The evidence of a repeat whose answer was known to who submitted it, and which costs nothing."""
HELD: Mapping[str, Any] = {"answer": "known", "held": True}
"""The same, of what had improved its ladder when it was submitted first."""

_FOUND = (
    "SELECT body FROM log WHERE ladder = ? AND {0} = ? AND number IS NOT NULL ORDER BY number + 0"
)
# Divides by zero where others wrote since, or where a submission is known there and not here.
UNCHANGED = (
    "SELECT 1 / count(*) FROM (SELECT 1 FROM holdout, ledger_format WHERE id = ? AND length = ? "
    "AND head = ? AND number = ? "
    "AND NOT EXISTS (SELECT 1 FROM log WHERE ladder = ? AND digest = ?) "
    "AND NOT EXISTS (SELECT 1 FROM log WHERE ladder = ? AND key = ?) FOR UPDATE OF holdout) AS same"
)
_MOST_KEPT = 2**26  # bytes of predictions of one batch


class Asked(NamedTuple):
    """A submission that is about to be searched, by its digests and its key.

    `first` is the first submission of these predictions where a process remembers it.
    """

    digest: str
    reserve_digest: str | None
    key: str | None
    first: e.Submitted | None = None


class Left(NamedTuple):
    """A ladder as a process left it, with the end of its chain."""

    ladder: LadderRecord
    end: Head


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KnownRows:
    """What the rows of a holdout are known by beside their features.

    Attributes
    ----------
    label_digests : ndarray of uint64, shape (n,)
        A keyed digest of each label, in the order of registration.
    places : ndarray of int, shape (n,)
        Of the rows in the order of the content, in which predictions are kept.
    ids : ndarray of uint64, shape (n,), or None
        A hash of each id; None where the user gave none.
    weight_digests : ndarray of uint64, shape (n,), or None
        Like those of the labels; None where all weights are one.
    labels_digest : bytes or None
        Of all labels in that order; None where another sequence may well be the same.
    groups : ndarray of uint64, shape (n,), or None
        A hash of each row's group; None where each row is a draw of its own.
    """

    label_digests: NDArray[np.uint64]
    places: NDArray[np.intp]
    ids: NDArray[np.uint64] | None = None
    weight_digests: NDArray[np.uint64] | None = None
    labels_digest: bytes | None = None
    groups: NDArray[np.uint64] | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ViewRecord:
    """The rows of a holdout with one set of features.

    Attributes
    ----------
    number : int
        From 1, which is what was registered.
    fingerprint : str
    row_hashes : ndarray of uint64, shape (n,)
        In the order in which the view was given first.
    places : ndarray of int, shape (n,)
        Of those rows in the order of the content.
    vault_path, vault_digest : str or None
    """

    number: int
    fingerprint: str
    row_hashes: NDArray[np.uint64]
    places: NDArray[np.intp]
    vault_path: str | None
    vault_digest: str | None


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the rows of a holdout: its id, its name, and its number from 1."""

    id: int
    name: str
    number: int


class Transaction(Counts):
    """What can be read of a ledger and written to it, inside one transaction; made by `Ledger`."""

    __slots__ = ()

    # -- rows -----------------------------------------------------------------------------

    def _hashes(self, holdout_id: int, position: int, name: str, n: int) -> NDArray[np.uint64]:
        """Return numbers that are kept, one for each row, without a second copy of them."""
        found = np.empty(n, dtype="<u8")
        into, start = found.view(np.uint8), 0
        for (content,) in self.db.send(PIECES, (holdout_id, position, name)):
            part = np.frombuffer(blob(content), dtype=np.uint8)
            if start + len(part) > len(into):
                raise e.Damaged
            into[start : start + len(part)] = part
            start += len(part)
        if start != len(into):
            raise e.Damaged
        return found

    def _places(self, holdout_id: int, position: int, n: int) -> NDArray[np.intp]:
        places = self._hashes(holdout_id, position, "places", n)
        seen = np.zeros(n, dtype=bool)
        try:
            seen[places] = True
        except IndexError:
            raise e.Damaged from None
        if not seen.all():
            raise e.Damaged
        return places.astype(np.intp, copy=False)

    def known(self, holdout_id: int) -> KnownRows:
        """Return what the rows of a holdout are known by beside their features."""
        record = self.fold(holdout_id)
        assert record.registered is not None
        if record.known is None:
            raise e.Damaged
        (position, noted), n = record.known, record.registered.n

        def read(name: str) -> NDArray[np.uint64] | None:
            stated = getattr(noted, name) is not None
            return self._hashes(holdout_id, position, name, n) if stated else None

        return KnownRows(
            self._hashes(holdout_id, position, "label_digests", n),
            self._places(holdout_id, position, n),
            read("ids"),
            read("weight_digests"),
            None if noted.sequence is None else bytes.fromhex(noted.sequence),
            read("groups"),
        )

    def has_ids(self, holdout_id: int) -> bool:
        """Return whether the rows of a holdout have ids."""
        known = self.fold(holdout_id).known
        return known is not None and known[1].ids is not None

    def views(self, holdout_id: int) -> tuple[ViewRecord, ...]:
        """Return the views of a holdout, oldest first."""
        return tuple(self.view(holdout_id, view.number) for view in self.fold(holdout_id).views)

    def view(self, holdout_id: int, number: int | None = None) -> ViewRecord:
        """Return a view of a holdout by its number, or the newest."""
        record = self.fold(holdout_id)
        assert record.registered is not None
        n, views = record.registered.n, record.views
        view = next((view for view in reversed(views) if number in (None, view.number)), None)
        if view is None:
            raise UnknownHoldout(
                f"This holdout has no view {number}. It has 1 to {len(views)}: leave view= out "
                "for the newest."
            )
        place = view.position if view.number > 1 or record.known is None else record.known[0]
        return ViewRecord(
            *(view.number, view.fingerprint),
            self._hashes(holdout_id, view.position, "row_hashes", n),
            self._places(holdout_id, place, n),
            *(view.vault_path, view.vault_digest),
        )

    def amended(self, holdout_id: int, before: float | None = None) -> NDArray[np.bool_] | None:
        """Return which labels were amended (before a position), in the order of the content."""
        amended, n = None, self.holdout(holdout_id).n
        for position, _ in self.fold(holdout_id).amended:
            if before is None or position < before:
                labels = arrays.booleans(self.piece(holdout_id, position, "mask"), n)
                amended = labels if amended is None else amended | labels
        return amended

    # -- submissions ----------------------------------------------------------------------

    def entries(
        self,
        ladder_id: int,
        *,
        after: int = 0,
        limit: int | None = None,
        search: str | None = None,
    ) -> tuple[e.Submitted, ...]:
        """Return the submissions of a ladder after a number, those of a search if it is named."""
        of_search, values = ("", ()) if search is None else (" AND search = ?", (search,))
        query = (
            f"SELECT body FROM log WHERE ladder = ? AND number > ?{of_search} "
            "ORDER BY number LIMIT ?"
        )
        most = 2**62 if limit is None else limit
        rows = self.rows(query, ladder_id, after, *values, most)
        return tuple(e.read("submitted", blob(body)) for (body,) in rows)

    def submission(self, ladder_id: int, number: int) -> e.Submitted:
        """Return a submission."""
        (found,) = self.entries(ladder_id, after=number - 1, limit=1)
        return found

    def pages(self, ladder_id: int) -> Iterator[tuple[e.Submitted, ...]]:
        """Yield all submissions of a ladder, some at a time."""
        after = 0
        while page := self.entries(ladder_id, after=after, limit=AT_A_TIME):
            yield page
            after = page[-1].number

    def submissions(self, ladder_id: int) -> Iterator[e.Submitted]:
        """Yield all submissions of a ladder, one by one."""
        return itertools.chain.from_iterable(self.pages(ladder_id))

    def send_ahead(self, ladder_id: int, asked: Asked) -> None:
        """Send the searches of a submission before their rows are needed."""
        searched = {"key": asked.key, "whole": asked.reserve_digest, "digest": asked.digest}
        for by, value in searched.items():
            if value is not None:
                sent = self.db.send(_FOUND.format(by), (ladder_id, value))
                self._ahead[ladder_id, by, value] = sent

    def remember(self, ladder_id: int, asked: Asked, first: e.Submitted | None) -> None:
        """Take note of the first submission of some predictions, which need not be asked for."""
        if first is not None and asked.reserve_digest is None:
            self._ahead[ladder_id, "digest", asked.digest] = [first]

    def found(self, ladder_id: int, by: str, value: str) -> list[e.Submitted]:
        """Return the submissions of a ladder under a digest or a key, oldest first."""
        sent = self._ahead.pop((ladder_id, by, value), None)
        if isinstance(sent, list):
            return sent
        sent = sent or self.db.send(_FOUND.format(by), (ladder_id, value))
        return [e.read("submitted", blob(body)) for (body,) in sent.fetchall()]

    def first_by_key(self, ladder: LadderRecord, key: str) -> e.Submitted | None:
        """Return the submission under a key."""
        return next(iter(self.found(ladder.id, "key", key)), None)

    def first(
        self, ladder: LadderRecord, digest: str, reserve_digest: str | None
    ) -> tuple[e.Submitted | None, bool]:
        """Return the first submission of these predictions, and whether on all rows.

        None where there was none, and where a withdrawal has set its answer aside. Where
        predictions differ on rows of the reserve alone, it is the first one that was the same on
        those that the ladder measures, and False.
        """
        if reserve_digest is not None:
            # It takes as long with known predictions as with others, for the time must not show
            # which they are.
            alike = self.found(ladder.id, "whole", reserve_digest)
            first = _in_force(ladder, (one for one in alike if one.digest == digest))
            if first is not None:
                return first, True
        return _in_force(ladder, self.found(ladder.id, "digest", digest)), reserve_digest is None

    def least_margin(self, ladder_id: int, digest: str) -> float:
        """Return the least gain that a gate tested some predictions for; infinite if it did not."""
        sent = self.db.send(_FOUND.format("digest"), (ladder_id, digest))
        tested = (e.read("submitted", blob(body)) for (body,) in sent.fetchall())
        return min((one.evidence.get("margin") or 0.0 for one in tested), default=math.inf)

    def predictions(self, ladder: LadderRecord, number: int) -> NDArray[Any] | None:
        """Return the predictions of a submission; None where they are not kept.

        Those of incumbents are, of this one and of earlier ones, those of a first batch, and what
        rounds of a leaderboard answered.
        """
        at = "SELECT position, body FROM log WHERE ladder = ? AND number = ?"
        for position, body in self.rows(at, ladder.id, number):
            submission: e.Submitted = e.read("submitted", blob(body))
            kept = {one.number: one.kept for one in ladder.improved}.get(number, True)
            if submission.predictions is None or not (kept or submission.candidate):
                return None
            position = submission.waited or position
            return arrays.unpacked(self.piece(ladder.holdout_id, position, "predictions"))
        return None

    def incumbent_predictions(self, ladder_id: int) -> NDArray[Any] | None:
        """Return the predictions behind the released score."""
        ladder = self.ladder(ladder_id)
        chosen = ladder.chosen
        if chosen is None:
            return None
        found = self.predictions(ladder, chosen.number)
        if found is None:
            raise e.Damaged
        return found

    def waiting_predictions(self, holdout_id: int, waiting: Waiting) -> NDArray[Any]:
        """Return the predictions of what waits for the end of a round."""
        return arrays.unpacked(self.piece(holdout_id, waiting.position, "predictions"))

    # -- writing --------------------------------------------------------------------------

    def locked_ladder(
        self, ladder_id: int, *, asked: Sequence[Asked] = (), left: Left | None = None
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
        if left is not None and self._taken_up(left, asked):
            return left.ladder
        home = self._home(ladder_id)
        if not self.db.answers_at_once:
            # In statements of their own, since each sees what was committed when it begins: the
            # statement that locks waits until others have committed.
            self.db.send("SELECT 1 FROM holdout WHERE id = ? FOR UPDATE", (home,))
            sent = self.send_for_news(self.db.folds[home]) if home in self.db.folds else None
            for submission in asked:
                self.send_ahead(ladder_id, submission)
            self._catch_up(home, sent)
            if home not in self.held:
                self._held(home)
        else:
            self.hold(home)
        return self.db.folds[home].ladders[ladder_id]

    def _taken_up(self, left: Left, asked: Sequence[Asked]) -> bool:
        """Write on from what this process knows; the server checks that nobody else has written."""
        ladder, home = left.ladder, left.ladder.holdout_id
        known = self.db.folds.get(home)
        if known is None or (known.length, known.head.hex()) != (left.end.length, left.end.hash):
            return False
        for one in asked:
            digest = None if one.first else one.digest
            values = home, known.length, known.head, FORMAT, ladder.id, digest, ladder.id, one.key
            self.db.send(UNCHANGED, values)
            for by, value in (("key", one.key), ("digest", one.digest)):
                if value is not None:
                    self._ahead[ladder.id, by, value] = []
            self.remember(ladder.id, one, one.first)
        self._seen.add(home)
        self._held(home)
        return True

    def add_ladder(
        self, holdout_id: int, settings: e.LadderSettings, state: Mapping[str, Any]
    ) -> LadderRecord:
        """Start a ladder on a holdout."""
        known = self.hold(holdout_id)
        refuse(known)
        rows = self.rows("INSERT INTO ladder (holdout) VALUES (?) RETURNING id", holdout_id)
        started = e.LadderStarted(
            ladder=int(rows[0][0]), settings=settings, state=dict(state), time=now()
        )
        self.add(holdout_id, started)
        return known.ladders[started.ladder]

    def append(
        self,
        ladder: LadderRecord,
        submitted: e.Submitted,
        predictions: NDArray[Any] | None = None,
        *,
        more: bool = False,
    ) -> LadderRecord:
        """Add a submission, as it was answered, to a ladder that is held.

        Parameters
        ----------
        ladder : LadderRecord
        submitted : Submitted
        predictions : ndarray, optional
            What is kept of it: of a new incumbent or of the first batch.
        more : bool, default=False
            Whether others of its batch follow in this transaction.
        """
        known = self.hold(ladder.holdout_id)
        refuse(known)
        before, stored = ladder.chosen, None
        if predictions is not None:
            stored = arrays.packed(predictions)
            kept = submitted.improved or submitted.number * len(stored) <= _MOST_KEPT
            stored = stored if kept else None
            candidate = submitted.candidate and submitted.number * len(stored or b"") <= _MOST_KEPT
            digest = hashlib.sha256(stored).hexdigest() if stored is not None else None
            submitted = replace(submitted, predictions=digest, candidate=candidate)
        position = known.length + 1
        self.add(ladder.holdout_id, submitted)
        after = known.ladders[ladder.id]
        of_fit = submitted.improved and submitted.repeat_of is None and after.improved[-1].of_fit
        if submitted.improved and before is not None and submitted.repeat_of is None:
            self._drop_replaced(after, before)
        if stored is not None:
            if of_fit and more and not submitted.candidate:
                self._pending = ladder.holdout_id, position, stored
            else:
                self._pending = None if of_fit else self._pending
                self._keep(ladder.holdout_id, position, "predictions", stored)
        if not more:
            self._flush()
        return after

    def _drop_replaced(self, ladder: LadderRecord, before: Improvement) -> None:
        """Forget the predictions of an incumbent that a later round of its own fit replaced."""
        if any(one.position == before.position and one.kept for one in ladder.improved):
            return
        if self._pending is not None and self._pending[1] == before.position:
            self._pending = None
            return
        if not self.submission(ladder.id, before.number).candidate:
            drop = "DELETE FROM piece WHERE holdout = ? AND position = ?"
            self.db.send(drop, (ladder.holdout_id, before.position))

    def _flush(self) -> None:
        if self._pending is not None:
            holdout_id, position, stored = self._pending
            self._pending = None
            self._keep(holdout_id, position, "predictions", stored)

    def withdraw(
        self, ladder: LadderRecord, number: int, reason: str, *, again: bool
    ) -> LadderRecord:
        """Withdraw a submission that is no repeat; where it is the incumbent, the ladder goes back.

        Nothing is removed: the submission and its release stay in the ledger, and count in every
        certificate. What changes is the incumbent.
        """
        known = self.hold(ladder.holdout_id)
        refuse(known)
        gone = {one.event.number for one in ladder.withdrawn} | {number}
        left = [one.number for one in ladder.improved if one.kept and one.number not in gone]
        replaced = ladder.incumbent == number
        withdrawn = e.Withdrawn(
            ladder=ladder.id,
            number=number,
            reason=reason,
            time=now(),
            until=ladder.submissions,
            replaced=replaced,
            incumbent=max(left, default=None) if replaced else None,
            again=again,
        )
        self.add(ladder.holdout_id, withdrawn)
        return known.ladders[ladder.id]

    def note(self, holdout_id: int, what: str, ladder: int | None = None, **detail: Any) -> None:
        """Note something that was stated about a holdout."""
        self.add(holdout_id, e.Noted(what=what, ladder=ladder, detail=detail))

    def note_overlap(self, holdout_id: int, source: str, rows: int) -> None:
        """Note that rows of a holdout were seen elsewhere; of one source the most rows count."""
        known = {one.source: one.rows for one in self.hold(holdout_id).overlaps}
        if rows > known.get(source, 0):
            time = now().isoformat()
            self.note(holdout_id, "overlap", source=source, rows=rows, time=time)

    def note_grouped(self, holdout_id: int, by: str) -> None:
        """Note a sign that rows come in groups; one that was withdrawn is not noted again."""
        if by not in self.hold(holdout_id).grouped(withdrawn=True):
            self.note(holdout_id, "grouped", by=by)

    def reveal(self, ladder: LadderRecord) -> LadderRecord:
        """Show the released score of a ladder that shows none; the first time counts."""
        if ladder.incumbent is not None and ladder.released is None:
            self.add(ladder.holdout_id, e.Revealed(ladder=ladder.id, submission=ladder.incumbent))
        return self.ladder(ladder.id)

    def retire(self, holdout_id: int) -> HoldoutRecord:
        """Take no more submissions on a holdout, through any ladder; the first time counts."""
        if self.hold(holdout_id).retired is None:
            self.add(holdout_id, e.Retired(time=now()))
        return self.holdout(holdout_id)

    def set_known(self, holdout_id: int, known: KnownRows) -> None:
        """Replace what the rows of a holdout are known by beside their features."""
        values = {
            name: getattr(known, name) for name in _OF_KNOWN if getattr(known, name) is not None
        }
        pieces = {name: [as_bytes(values[name])] for name in values}
        self.fill(holdout_id, pieces, known.labels_digest)

    def fill(
        self,
        holdout_id: int,
        pieces: Mapping[str, Iterable[Any]],
        sequence: bytes | Callable[[], bytes | None] | None,
    ) -> None:
        """Note what the rows are known by, from bytes that come one after the other."""
        position, digests = self.hold(holdout_id).length + 1, {}
        for name, parts in pieces.items():
            hashed = hashlib.sha256()
            self._keep(holdout_id, position, name, _hashing(parts, hashed))
            digests[name] = hashed.hexdigest()
        sequence = sequence() if callable(sequence) else sequence
        known = e.RowsKnown(**digests, sequence=None if sequence is None else sequence.hex())
        self.add(holdout_id, known)
        self.count_shared(holdout_id)

    def add_view(
        self,
        holdout_id: int,
        fingerprint: str,
        row_hashes: NDArray[np.uint64],
        places: NDArray[np.intp],
    ) -> ViewRecord:
        """Note another view of the rows."""
        kept = {"row_hashes": as_bytes(row_hashes), "places": as_bytes(places)}
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in kept.items()}
        view = e.ViewAdded(fingerprint=fingerprint, **digests, time=now())
        self.add(holdout_id, view, pieces=kept)
        self.count_shared(holdout_id)
        return self.view(holdout_id)

    def set_vault(self, holdout_id: int, path: str | None, digest: str | None, view: int) -> None:
        """Note where the copy of a view is; None where there is none."""
        now_there = self.hold(holdout_id).views[view - 1][-2:]
        if now_there != (path, digest):
            self.add(holdout_id, e.VaultSet(view=view, path=path, digest=digest))
            if view == 1:
                self._held(holdout_id, checked=False)

    def amend(self, holdout_id: int, known: KnownRows, amended: NDArray[np.bool_]) -> None:
        """Note which labels became others, and what the rows are known by since."""
        mask = np.packbits(amended).tobytes()
        noted = e.Amended(count=int(amended.sum()), mask=hashlib.sha256(mask).hexdigest())
        self.add(holdout_id, noted, pieces={"mask": mask})
        self.set_known(holdout_id, known)

    def set_reserve(self, holdout_id: int, reserve: NDArray[np.bool_]) -> HoldoutRecord:
        """Note which rows no ladder measures."""
        rows = np.packbits(reserve).tobytes()
        drawn = e.ReserveDrawn(reserve=hashlib.sha256(rows).hexdigest())
        self.add(holdout_id, drawn, pieces={"reserve": rows})
        return self.holdout(holdout_id)

    def set_classes(self, holdout_id: int, classes: NDArray[Any]) -> HoldoutRecord:
        """Fix the class labels of a holdout, sorted."""
        buffer = io.BytesIO()
        np.save(
            buffer, classes.astype(str) if classes.dtype == object else classes, allow_pickle=False
        )
        self.add(holdout_id, e.ClassesFixed(classes=buffer.getvalue().hex()))
        return self.holdout(holdout_id)

    def count_shared(self, holdout_id: int) -> None:
        """Count anew how many rows of a holdout are rows of others, and theirs of it."""
        counts = self.shared(holdout_id)
        for other in sorted({*counts, *self.fold(holdout_id).sharing}):
            ours, theirs = counts.get(other, (0, 0))
            for own, of, rows in ((holdout_id, other, ours), (other, holdout_id, theirs)):
                if self.hold(own).sharing.get(of, 0) != rows:
                    self.add(own, e.SharingCounted(other=of, rows=rows))

    def shared(self, holdout_id: int) -> dict[int, tuple[int, int]]:
        """Count the rows of a holdout that are rows of others, and theirs of it, by their ids."""
        others = [rows.id for rows in self.holdouts() if rows.id != holdout_id]
        if not others or FORGOTTEN in self.fold(holdout_id).name:
            return {}
        keys, found = self._keys(holdout_id), {}
        for other in others:
            theirs = self._keys(other)
            counts = keys.rows_in(theirs), theirs.rows_in(keys)
            if any(counts):
                found[other] = counts
        return found

    def _keys(self, holdout_id: int) -> _Keys:
        record = self.fold(holdout_id)
        assert record.registered is not None
        n, known = record.registered.n, record.known
        views = tuple(
            self._hashes(holdout_id, view.position, "row_hashes", n) for view in record.views
        )
        if known is None:
            return _Keys(views, None, None)
        has_ids = known[1].ids is not None
        return _Keys(
            views,
            self._hashes(holdout_id, known[0], "ids", n) if has_ids else None,
            self._hashes(holdout_id, known[0], "label_digests", n),
        )

    def forget(self, holdout_id: int) -> tuple[str, ...]:
        """Take a registration back; return the files of its vault, which may go then."""
        known = self.hold(holdout_id)
        if known.forgotten or known.followed is not None:
            refuse_retired(known.name, known.retired or now())
        assert known.registered is not None
        queries = sum(ladder.submissions for ladder in known.ladders.values())
        why = (
            (queries and f"it has {queries} submissions")
            or (known.registered.block > 1 and "its rows follow others")
            or (known.more and f"there is more than its registration on record ({known.more})")
        )
        if why:
            raise HoldoutConflict(
                f"{known.name!r} cannot be forgotten, for {why}: what was learned of its rows "
                "stays known. Retire it, or let fresh rows take its place (replenish)."
            )
        kept = [view for view in known.views if view.vault_path is not None]
        for view in kept:
            self.set_vault(holdout_id, None, None, view.number)
        self.retire(holdout_id)
        self.add(holdout_id, e.Forgotten())
        self.renamed(holdout_id)
        self.count_shared(holdout_id)
        return tuple(str(view.vault_path) for view in kept)

    # -- blocks ---------------------------------------------------------------------------

    def blocks(self, name: str) -> tuple[Block, ...]:
        """Return the blocks of a holdout up to that of this name, oldest first.

        They are found by their names, so that one that is gone hides none of the others.
        """
        whole, last = fold.parted_name(name)
        blocks, newest = [], None
        for number, known in self.rows("SELECT id, name FROM holdout"):
            base, block = fold.parted_name(known)
            if base == whole and block is None:
                newest = number
            elif base == whole and block is not None and (last is None or block <= last):
                blocks.append(Block(number, known, block))
        blocks.sort(key=lambda block: block.number)
        if newest is not None and last is None:
            blocks.append(Block(newest, whole, blocks[-1].number + 1 if blocks else 1))
        return tuple(blocks)

    def pass_on(self, holdout_id: int) -> tuple[int, tuple[int, int, str]]:
        """End the newest block of a holdout, whose name is free then.

        Returns
        -------
        block : int
            The number of the next one.
        after : tuple
            What the registration of the fresh rows has to cover.
        """
        known = self.newest(holdout_id)
        assert known.registered is not None
        number = known.registered.block + 1
        self.retire(holdout_id)
        self.add(holdout_id, e.Followed(block=number))
        self.renamed(holdout_id)
        return number, (holdout_id, known.length, known.head.hex())

    def newest(self, holdout_id: int) -> Holdout:
        """Return the newest block of a holdout, which is locked from here on.

        Raises
        ------
        HoldoutConflict
            This is an earlier block, or was forgotten.
        """
        known = self.hold(holdout_id)
        if known.followed is not None or known.forgotten:
            refuse_retired(known.name, known.retired or now())
        return known

    def hand_over(self, holdout_id: int, to: int, ladder_ids: Mapping[int, int]) -> None:
        """Let the accounts of a server go on with the ladders of the next block."""
        accounts = list(self.hold(holdout_id).accounts.values())
        if accounts:
            moved = (replace(one, ladder=ladder_ids.get(one.ladder or 0)) for one in accounts)
            self.add(to, *moved)
            self.add(holdout_id, e.AccountsMoved())

    # -- accounts -------------------------------------------------------------------------

    def by_token(self, token_key: str) -> tuple[int, e.AccountChanged] | None:
        """Return the holdout and the account whose token has this key."""
        query = "SELECT holdout FROM log WHERE key = ? AND kind = ? ORDER BY seq DESC LIMIT 1"
        for (holdout_id,) in self.rows(query, token_key, "accountchanged"):
            for account in self.fold(holdout_id).accounts.values():
                if account.token_key == token_key:
                    return holdout_id, account
        return None

    def has_made(self, ladder: LadderRecord, count: int, since: datetime) -> bool:
        """Return whether an account has made so many submissions since a moment."""
        count -= self._on_earlier_blocks(ladder, since)
        if count <= 0:
            return True
        number = ladder.submissions - count + 1
        return number > 0 and self.submission(ladder.id, number).time >= since

    def _on_earlier_blocks(self, ladder: LadderRecord, since: datetime) -> int:
        place, count = (ladder.settings.account, ladder.settings.name), 0
        for block in self.blocks(fold.parted_name(self.fold(ladder.holdout_id).name)[0]):
            known = self.fold(block.id)
            if block.id == ladder.holdout_id or known.retired is None or known.retired < since:
                continue
            for other in known.ladders.values():
                if (other.settings.account, other.settings.name) == place:
                    count += sum(one.time >= since for one in self.submissions(other.id))
        return count

    def end_session(self, digest: str, until: datetime) -> None:
        """Note that a session on the pages was ended; forget those that are over by themselves."""
        self.db.send("DELETE FROM session WHERE until < ?", (now().isoformat(),))
        values = digest, until.isoformat()
        self.db.send("INSERT INTO session VALUES (?, ?) ON CONFLICT DO NOTHING", values)

    def has_ended(self, digest: str) -> bool:
        """Return whether a session was ended."""
        return bool(self.rows("SELECT until FROM session WHERE digest = ?", digest))


_OF_KNOWN = ("label_digests", "places", "ids", "weight_digests", "groups")


@dataclass(frozen=True, slots=True)
class _Keys:
    """What rows of two holdouts are compared by."""

    views: tuple[NDArray[np.uint64], ...]
    ids: NDArray[np.uint64] | None
    labels: NDArray[np.uint64] | None

    def rows_in(self, other: _Keys) -> int:
        """Count the rows that are in another holdout, by whatever shows most of them."""
        known = np.concatenate(other.views)
        counts = [overlap(view, known) for view in self.views]
        if self.ids is not None and other.ids is not None:
            counts.append(overlap(by_value(self.ids), by_value(other.ids)))
        if self.labels is not None and other.labels is not None:
            counts.append(len(self.labels) * same_partition(self.labels, other.labels))
        return max(counts)


def _in_force(ladder: LadderRecord, found: Iterable[e.Submitted]) -> e.Submitted | None:
    """Return the first submission that is not set aside, one that improved if any did."""
    standing = [one for one in found if not ladder.sets_aside(one.number)]
    return min(standing, key=lambda one: (not one.improved, one.number), default=None)


def same_ladder(ladder: LadderRecord, since: datetime) -> LadderRecord:
    """Refuse a ladder that is not the one that was opened: the ledger was replaced."""
    if ladder.created != since:
        raise HoldoutConflict(
            "The ledger was replaced by another one since this holdout was opened. Open the "
            "holdout again with its rows, LadderHoldout(X, y, ...), or put the old file back."
        )
    return ladder


def _hashing(parts: Iterable[Any], hashed: Any) -> Iterator[Any]:
    for part in parts:
        hashed.update(part)
        yield part
