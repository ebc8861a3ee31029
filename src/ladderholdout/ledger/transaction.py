"""What can be read of a ledger and written to it, inside one transaction."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import HoldoutConflict, UnknownHoldout
from ladderholdout.identity.hashing import UInt64Array
from ladderholdout.identity.matching import IntArray, Keys
from ladderholdout.ledger import arrays, fold, log
from ladderholdout.ledger import events as e
from ladderholdout.ledger.log import AT_A_TIME, FORMAT, PIECES, as_bytes, blob, now

NOT_IMPROVED: Mapping[str, Any] = {"answer": "not improved"}
"""The evidence of a repeat that nobody knows to be one: it is answered and counted as a query."""
KNOWN: Mapping[str, Any] = {"answer": "known"}
"""The evidence of a repeat whose answer was known to who submitted it, and which costs nothing."""
HELD: Mapping[str, Any] = {"answer": "known", "held": True}
"""The same, of what had improved its ladder when it was submitted first."""

_MOST_KEPT = 2**26  # bytes of predictions of one batch


class Asked(NamedTuple):
    """A submission that is about to be searched, by its digests and its key.

    `first` is the first submission of these predictions where a process remembers it.
    """

    digest: str
    reserve_digest: str | None
    key: str | None
    first: e.Submitted | None = None


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

    label_digests: UInt64Array
    places: IntArray
    ids: UInt64Array | None = None
    weight_digests: UInt64Array | None = None
    labels_digest: bytes | None = None
    groups: UInt64Array | None = None


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
    row_hashes: UInt64Array
    places: IntArray
    vault_path: str | None
    vault_digest: str | None


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the rows of a holdout: its id, its name, and its number from 1."""

    id: int
    name: str
    number: int


class Transaction(log.Log):
    """What can be read of a ledger and written to it, inside one transaction; made by `Ledger`."""

    __slots__ = ()

    # -- rows -----------------------------------------------------------------------------

    def holdouts(self, **stated: Any) -> tuple[fold.HoldoutRecord, ...]:
        """Return the registered holdouts, oldest first: all, or those of a `name` or size `n`."""
        where = "".join(f" WHERE {column} = ?" for column in stated)
        rows = self.rows(log.HOLDOUTS.format(where), *stated.values())
        found = (row[0] for row in rows if "name" in stated or fold.FORGOTTEN not in row[1])
        return tuple(map(self.holdout, found))

    def holdout_id(self, name: str) -> int | None:
        """Return the id of a holdout, whatever else of it can be read."""
        rows = self.rows("SELECT id FROM holdout WHERE name = ?", name)
        return rows[0][0] if rows else None

    def _hashes(self, holdout_id: int, position: int, name: str) -> UInt64Array:
        """Return numbers that are kept, one for each row, without a second copy of them."""
        found = np.empty(self.fold(holdout_id).registered.n, dtype="<u8")
        into, start = found.view(np.uint8), 0
        for (content,) in self.db.send(PIECES, (holdout_id, position, name)):
            part = np.frombuffer(blob(content), dtype=np.uint8)
            into[start : start + len(part)] = part[: max(0, len(into) - start)]
            start += len(part)
        if start != len(into):
            raise e.Damaged
        return found

    def _known(self, holdout_id: int, *names: str) -> dict[str, NDArray[Any]]:
        """Read what the rows of a holdout are known by, as far as it is on record."""
        position, noted = self.fold(holdout_id).known or (0, None)
        stated = [name for name in names if getattr(noted, name, None) is not None]
        return {name: self._hashes(holdout_id, position, name) for name in stated}

    def known(self, holdout_id: int) -> KnownRows:
        """Return what the rows of a holdout are known by beside their features."""
        known, values = self.fold(holdout_id).known, self._known(holdout_id, *_OF_KNOWN)
        if known is None:
            raise e.Damaged
        sequence = None if known[1].sequence is None else bytes.fromhex(known[1].sequence)
        values["places"] = _as_places(values["places"])
        return KnownRows(**values, labels_digest=sequence)

    def has_ids(self, holdout_id: int) -> bool:
        """Return whether the rows of a holdout have ids."""
        known = self.fold(holdout_id).known
        return known is not None and known[1].ids is not None

    def views(self, holdout_id: int) -> tuple[ViewRecord, ...]:
        """Return the views of a holdout, oldest first."""
        return tuple(self.view(holdout_id, view.number) for view in self.fold(holdout_id).views)

    def view(self, holdout_id: int, number: int | None = None) -> ViewRecord:
        """Return a view of a holdout by its number, or the newest."""
        known = self.fold(holdout_id)
        most = len(known.views)
        if number is not None and not 1 <= number <= most:
            raise UnknownHoldout(
                f"This holdout has no view {number}. It has 1 to {most}: leave view= out for the "
                "newest."
            )
        view = known.views[(number or most) - 1]
        place = view.position if view.number > 1 or known.known is None else known.known[0]
        return ViewRecord(
            *(view.number, view.fingerprint),
            self._hashes(holdout_id, view.position, "row_hashes"),
            _as_places(self._hashes(holdout_id, place, "places")),
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
        self, ladder_id: int, *, after: int = 0, limit: int | None = None, search: str | None = None
    ) -> tuple[e.Submitted, ...]:
        """Return the submissions of a ladder after a number, those of a search if it is named."""
        query, named = (log.ENTRIES, ()) if search is None else (log.OF_SEARCH, (search,))
        most = 2**62 if limit is None else limit
        return tuple(log.submissions_in(self.rows(query, ladder_id, after, *named, most)))

    def submission(self, ladder_id: int, number: int) -> e.Submitted:
        """Return a submission."""
        return self.entries(ladder_id, after=number - 1, limit=1)[0]

    def pages(self, ladder_id: int) -> Iterator[tuple[e.Submitted, ...]]:
        """Yield all submissions of a ladder, some at a time."""
        after = 0
        while page := self.entries(ladder_id, after=after, limit=AT_A_TIME):
            yield page
            after = page[-1].number

    def submissions(self, ladder_id: int) -> Iterator[e.Submitted]:
        """Yield all submissions of a ladder, one by one."""
        return (one for page in self.pages(ladder_id) for one in page)

    def send_ahead(self, ladder_id: int, asked: Asked) -> None:
        """Send the searches of a submission before their rows are needed."""
        searched = {"key": asked.key, "whole": asked.reserve_digest, "digest": asked.digest}
        for by, value in searched.items():
            if value is not None:
                sent = self.db.send(log.FOUND.format(by), (ladder_id, value))
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
        sent = sent or self.db.send(log.FOUND.format(by), (ladder_id, value))
        return log.submissions_in(sent.fetchall())

    def first(
        self, ladder: fold.LadderRecord, digest: str, reserve_digest: str | None
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
        tested = log.submissions_in(self.rows(log.FOUND.format("digest"), ladder_id, digest))
        return min((one.evidence.get("margin") or 0.0 for one in tested), default=math.inf)

    def predictions(self, ladder: fold.LadderRecord, number: int) -> NDArray[Any] | None:
        """Return the predictions of a submission; None where they are not kept.

        Those of incumbents are, of this one and of earlier ones, those of a first batch, and what
        rounds of a leaderboard answered.
        """
        for position, body in self.rows(log.PLACED, ladder.id, number):
            (submission,) = log.submissions_in([(body,)])
            kept = {one.number: one.kept for one in ladder.improved}.get(number, True)
            if submission.predictions is None or not (kept or submission.candidate):
                return None
            position = submission.waited or position
            return arrays.unpacked(self.piece(ladder.holdout_id, position, "predictions"))
        return None

    def incumbent_predictions(self, ladder_id: int) -> NDArray[Any] | None:
        """Return the predictions behind the released score."""
        ladder = self.ladder(ladder_id)
        if ladder.incumbent is None:
            return None
        found = self.predictions(ladder, ladder.incumbent)
        if found is None:
            raise e.Damaged
        return found

    # -- writing --------------------------------------------------------------------------

    def locked_ladder(
        self,
        ladder_id: int,
        since: datetime | None = None,
        *,
        asked: Sequence[Asked] = (),
        left: fold.Head | None = None,
    ) -> fold.LadderRecord:
        """Return a ladder, and hold it and its holdout until the transaction ends.

        Parameters
        ----------
        ladder_id : int
        since : datetime, optional
            When it was created: another one in its place is refused.
        asked : sequence of Asked
            The submissions that are about to be searched: a server is asked for all at once.
        left : Head, optional
            Where this process left the chain, which is not waited for: the server commits nothing
            where it has gone on, or where a submission that is asked for is known there and
            not remembered here (`postgres.Stale`).
        """
        home = self._home(ladder_id)
        known = self.db.folds.get(home)
        if left is not None and known is not None and known.end == left:
            self._take_up(known, ladder_id, asked)
        else:
            known = self.hold(home, [partial(self.send_ahead, ladder_id, one) for one in asked])
        return known.ladder(ladder_id, since)

    def _take_up(self, known: fold.Holdout, ladder_id: int, asked: Sequence[Asked]) -> None:
        """Write on from what this process knows; the server checks that nobody else has written."""
        for one in asked:
            digest = None if one.first else one.digest
            place = known.id, known.length, known.head, FORMAT
            self.db.send(log.UNCHANGED, (*place, ladder_id, digest, ladder_id, one.key))
            for by, value in (("key", one.key), ("digest", one.digest)):
                if value is not None:
                    self._ahead[ladder_id, by, value] = []
            self.remember(ladder_id, one, one.first)
        self._seen.add(known.id)
        self._held(known.id)

    def add_ladder(
        self, holdout_id: int, settings: e.LadderSettings, state: Mapping[str, Any]
    ) -> fold.LadderRecord:
        """Start a ladder on a holdout."""
        known = self.hold(holdout_id)
        fold.refuse_retired(known.name, known.retired)
        ((ladder,),) = self.rows("INSERT INTO ladder (holdout) VALUES (?) RETURNING id", holdout_id)
        started = e.LadderStarted(ladder=ladder, settings=settings, state=dict(state), time=now())
        self.add(holdout_id, started)
        return known.ladders[ladder]

    def append(
        self,
        ladder: fold.LadderRecord,
        submitted: e.Submitted,
        predictions: NDArray[Any] | None = None,
        *,
        more: bool = False,
    ) -> fold.LadderRecord:
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
        fold.refuse_retired(known.name, known.retired)
        before, stored = ladder.chosen, None
        if predictions is not None:
            stored = arrays.packed(predictions)
            fits = submitted.number * len(stored) <= _MOST_KEPT
            stored = stored if fits or submitted.improved else None
            digest = None if stored is None else hashlib.sha256(stored).hexdigest()
            candidate = submitted.candidate and fits
            submitted = replace(submitted, predictions=digest, candidate=candidate)
        position = known.length + 1
        self.add(ladder.holdout_id, submitted)
        after = known.ladders[ladder.id]
        if stored is not None and submitted.candidate:
            self._keep(ladder.holdout_id, position, "predictions", stored)
        elif stored is not None:
            self._unkept[position] = stored
        if submitted.improved and before is not None:
            self._drop_replaced(after, before)
        if not more:
            for place, content in self._unkept.items():
                self._keep(ladder.holdout_id, place, "predictions", content)
            self._unkept.clear()
        return after

    def _drop_replaced(self, ladder: fold.LadderRecord, before: fold.Improvement) -> None:
        """Forget the predictions of an incumbent that a later round of its own fit replaced."""
        if any(one.position == before.position and one.kept for one in ladder.improved):
            return
        if self._unkept.pop(before.position, None) is not None:
            return
        if not self.submission(ladder.id, before.number).candidate:
            self.db.send(log.DROP, (ladder.holdout_id, before.position))

    def withdraw(
        self, ladder: fold.LadderRecord, number: int, reason: str, *, again: bool
    ) -> fold.LadderRecord:
        """Withdraw a submission that is no repeat; where it is the incumbent, the ladder goes back.

        Nothing is removed: the submission and its release stay in the ledger, and count in every
        certificate. What changes is the incumbent.
        """
        known = self.hold(ladder.holdout_id)
        fold.refuse_retired(known.name, known.retired)
        gone = {one.number for one in ladder.withdrawn} | {number}
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

    def note_grouped(self, holdout_id: int, by: str, holder: str | None = None) -> None:
        """Note a sign that rows come in groups; one that was withdrawn is not noted again."""
        if by not in self.hold(holdout_id).grouped(withdrawn=True):
            self.add(holdout_id, e.Noted(what="grouped", holder=holder, detail={"by": by}))

    def reveal(self, ladder: fold.LadderRecord) -> fold.LadderRecord:
        """Show the released score of a ladder that shows none; the first time counts."""
        if ladder.incumbent is not None and ladder.released is None:
            self.add(ladder.holdout_id, e.Revealed(ladder=ladder.id, submission=ladder.incumbent))
        return self.ladder(ladder.id)

    def retire(self, holdout_id: int) -> fold.HoldoutRecord:
        """Take no more submissions on a holdout, through any ladder; the first time counts."""
        if self.hold(holdout_id).retired is None:
            self.add(holdout_id, e.Retired(time=now()))
        return self.holdout(holdout_id)

    def set_known(self, holdout_id: int, known: KnownRows) -> None:
        """Replace what the rows of a holdout are known by beside their features."""
        values = ((name, getattr(known, name)) for name in _OF_KNOWN)
        pieces = {name: as_bytes(array) for name, array in values if array is not None}
        self.fill(holdout_id, pieces, lambda: known.labels_digest)

    def fill(
        self, holdout_id: int, pieces: Mapping[str, Any], sequence: Callable[[], bytes | None]
    ) -> None:
        """Note what the rows are known by, from bytes that come one after the other."""
        digests, found = self.beside(holdout_id, **pieces), sequence()
        whole = None if found is None else found.hex()
        self.add(holdout_id, e.RowsKnown(**digests, sequence=whole))
        self.count_shared(holdout_id)

    def add_view(
        self, holdout_id: int, fingerprint: str, row_hashes: UInt64Array, places: IntArray
    ) -> ViewRecord:
        """Note another view of the rows."""
        kept = self.beside(holdout_id, row_hashes=as_bytes(row_hashes), places=as_bytes(places))
        self.add(holdout_id, e.ViewAdded(fingerprint=fingerprint, **kept, time=now()))
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
        kept = self.beside(holdout_id, mask=np.packbits(amended).data)
        self.add(holdout_id, e.Amended(count=int(amended.sum()), **kept))
        self.set_known(holdout_id, known)

    def set_reserve(self, holdout_id: int, reserve: NDArray[np.bool_]) -> None:
        """Note which rows no ladder measures."""
        kept = self.beside(holdout_id, reserve=np.packbits(reserve).data)
        self.add(holdout_id, e.ReserveDrawn(**kept))

    def set_classes(self, holdout_id: int, classes: NDArray[Any]) -> fold.HoldoutRecord:
        """Fix the class labels of a holdout, sorted."""
        self.add(holdout_id, e.ClassesFixed(classes=arrays.to_bytes(classes).hex()))
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
        if not others or fold.FORGOTTEN in self.fold(holdout_id).name:
            return {}
        keys, found = self.keys(holdout_id), {}
        for other in others:
            theirs = self.keys(other)
            counts = keys.count(theirs), theirs.count(keys)
            if any(counts):
                found[other] = counts
        return found

    def keys(self, holdout_id: int) -> Keys:
        """Return what the rows of a holdout are compared by."""
        positions = [view.position for view in self.fold(holdout_id).views]
        views = [self._hashes(holdout_id, position, "row_hashes") for position in positions]
        known = self._known(holdout_id, "ids", "label_digests")
        return Keys(views, known.get("ids"), known.get("label_digests"))

    def forget(self, holdout_id: int) -> tuple[str, ...]:
        """Take a registration back; return the files of its vault, which may go then."""
        known = self.newest(holdout_id)
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
        self.count_shared(holdout_id)
        return tuple(str(view.vault_path) for view in kept)

    # -- blocks ---------------------------------------------------------------------------

    def blocks(self, name: str) -> tuple[Block, ...]:
        """Return the blocks of a holdout up to that of this name, oldest first.

        They are found by their names, so that one that is gone hides none of the others.
        """
        whole, last = fold.parted_name(name)
        blocks, newest = [], None
        for number, known in self.rows(log.HOLDOUTS.format("")):
            base, block = fold.parted_name(known)
            if base == whole and block is None:
                newest = number
            elif base == whole and block is not None and (last is None or block <= last):
                blocks.append(Block(number, known, block))
        blocks.sort(key=lambda block: block.number)
        if newest is not None and last is None:
            blocks.append(Block(newest, whole, blocks[-1].number + 1 if blocks else 1))
        return tuple(blocks)

    def pass_on(self, holdout_id: int) -> dict[str, Any]:
        """End the newest block of a holdout, whose name is free then.

        Returns
        -------
        dict
            What the registration of the fresh rows has to state and to cover: ``block``, the number
            of the next one, and ``after``.
        """
        known = self.newest(holdout_id)
        number = known.registered.block + 1
        self.retire(holdout_id)
        self.add(holdout_id, e.Followed(block=number))
        return {"block": number, "after": (holdout_id, known.length, known.head.hex())}

    def newest(self, holdout_id: int) -> fold.Holdout:
        """Return the newest block of a holdout, which is locked from here on.

        Raises
        ------
        HoldoutConflict
            This is an earlier block, or was forgotten.
        """
        known = self.hold(holdout_id)
        if known.followed is not None or fold.FORGOTTEN in known.name:
            fold.refuse_retired(known.name, known.retired or now())
        return known

    # -- accounts -------------------------------------------------------------------------

    def by_token(self, token_key: str) -> tuple[int, e.AccountChanged] | None:
        """Return the holdout and the account whose token has this key."""
        for (holdout_id,) in self.rows(log.TOKENS, token_key, "accountchanged"):
            for account in self.fold(holdout_id).accounts.values():
                if account.token_key == token_key:
                    return holdout_id, account
        return None

    def has_made(self, ladder: fold.LadderRecord, count: int, since: datetime) -> bool:
        """Return whether an account has made so many submissions since a moment."""
        own, name = ladder.settings, fold.parted_name(self.fold(ladder.holdout_id).name)[0]
        for known in (self.fold(block.id) for block in self.blocks(name)):
            if known.id == ladder.holdout_id or known.retired is None or known.retired < since:
                continue
            for other in known.ladders.values():
                if (other.settings.account, other.settings.name) == (own.account, own.name):
                    count -= sum(one.time >= since for one in self.submissions(other.id))
        if count <= 0:
            return True
        number = ladder.submissions - count + 1
        return number > 0 and self.submission(ladder.id, number).time >= since

    def end_session(self, digest: str, until: datetime) -> None:
        """Note that a session on the pages was ended; forget those that are over by themselves."""
        self.db.send("DELETE FROM session WHERE until < ?", (now().isoformat(),))
        add = "INSERT INTO session VALUES (?, ?) ON CONFLICT DO NOTHING"
        self.db.send(add, (digest, until.isoformat()))

    def has_ended(self, digest: str) -> bool:
        """Return whether a session was ended."""
        return bool(self.rows("SELECT 1 FROM session WHERE digest = ?", digest))


_OF_KNOWN = ("label_digests", "places", "ids", "weight_digests", "groups")


def _as_places(places: UInt64Array) -> IntArray:
    """Return an order of rows; Damaged if it names one of them never, or twice."""
    seen = np.zeros(len(places), dtype=bool)
    try:
        seen[places] = True
    except IndexError:
        raise e.Damaged from None
    if not seen.all():
        raise e.Damaged
    return places.astype(np.intp, copy=False)


def _in_force(ladder: fold.LadderRecord, found: Iterable[e.Submitted]) -> e.Submitted | None:
    """Return the first submission that is not set aside, one that improved if any did."""
    standing = [one for one in found if not ladder.sets_aside(one.number)]
    return min(standing, key=lambda one: (not one.improved, one.number), default=None)
