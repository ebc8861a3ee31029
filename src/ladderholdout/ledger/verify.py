"""Whether a record is as it was written: its chain, what is beside it, its replay."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ladderholdout.errors import LadderHoldoutError, LedgerBusy, LedgerUnreachable, printable
from ladderholdout.ledger import events as e
from ladderholdout.ledger import fold, log, rules, transaction
from ladderholdout.ledger.evidence import ReserveEvidence, finals_evidence, finals_shown

_FAR = 2**62  # more entries than there are


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was changed.

    Attributes
    ----------
    what : str
        Without anything raw.
    ladder : str or None
        Account and name, as ``default/main``; None for what concerns the holdout.
    number : int or None
        The submission's, or that of the query of the reserve.
    """

    what: str
    ladder: str | None = None
    number: int | None = None

    def __str__(self) -> str:
        return printable(self.what)


@dataclass(frozen=True, slots=True)
class Verification:
    """What became of the record of a holdout since it was written.

    Attributes
    ----------
    holdout : str
    submissions : int
        Through all of its ladders.
    head : Head
        The end of the chain, to compare with what was anchored outside of the ledger.
    findings : tuple of Finding
        None where all is as it was written.
    blocks : int
        How many blocks of rows were verified: all up to that of this name.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> from ladderholdout.guard.health import verify_holdout
    >>> place = "memory:verified"
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=place)
    >>> found = verify_holdout(place, "coins")
    >>> found.holdout, found.submissions, found.findings
    ('coins', 0, ())
    """

    holdout: str
    submissions: int
    head: fold.Head
    findings: tuple[Finding, ...]
    blocks: int = 1


def verify(
    tx: transaction.Transaction,
    holdout_id: int,
    progress: log.Progress | None = None,
    seen: fold.Head | None = None,
) -> Verification:
    """Compare what a ledger holds of a holdout with its chain and with its replay.

    Whoever changes an entry and lacks the holdout's secret cannot make its hash; whoever has the
    secret is found by a head that was anchored elsewhere.

    Parameters
    ----------
    tx : Transaction
    holdout_id : int
    progress : callable, optional
        Is called with how many entries were gone through, and of how many.
    seen : Head, optional
        Where this machine has seen the chain end.

    Returns
    -------
    Verification

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> from ladderholdout.ledger import Ledger
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory:checked")
    >>> with Ledger("memory:checked").read() as tx:
    ...     verify(tx, tx.holdouts()[0].id).findings
    ...
    ()
    """
    check = _Check(tx, holdout_id, progress)
    findings = [*check.entries(), *check.beside()]
    known, older = check.known, "an older copy was put in place where link {} had been known"
    findings += [Finding(older.format(length)) for _, length in known.restored]
    if seen is not None and check.end != fold.EMPTY and tx.lacks(holdout_id, check.end, seen):
        what = f"this is an older copy: link {seen.length} was seen on this machine"
        findings.append(Finding(what))
    count = sum(ladder.submissions for ladder in known.ladders.values())
    return Verification(known.name, count, check.end, tuple(findings))


@dataclass(slots=True)
class _Check:
    """A holdout's entries, gone through one after the other."""

    tx: transaction.Transaction
    id: int
    progress: log.Progress | None
    known: fold.Holdout = field(init=False)
    secret: bytes = field(default=b"", repr=False)
    end: fold.Head = fold.EMPTY
    broken: bool = False  # whether the rest can still be understood by what came before
    replays: dict[int, rules.Replay] = field(default_factory=dict)
    kept: dict[tuple[int, str], tuple[str, str]] = field(default_factory=dict)
    predictions: dict[int, e.Submitted] = field(default_factory=dict)
    changed: set[str | None] = field(default_factory=set)
    # Entries that are gone, how many of them are named, and the last submission of each ladder.
    gone: int = 0
    named: int = 0
    numbers: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = fold.Holdout(self.id)

    def _found(self, what: str, ladder: int | None = None, number: int | None = None) -> Finding:
        place = self._place(ladder)
        self.changed.add(place)
        if ladder is not None:
            self.replays.pop(ladder, None)
        return Finding(what, place, number)

    def _place(self, ladder: int | None) -> str | None:
        known = self.known.ladders.get(ladder or 0)
        return None if known is None else f"{known.settings.account}/{known.settings.name}"

    def entries(self) -> Iterator[Finding]:
        """Go through the entries in the order in which they were added."""
        for row in self.tx.rows(log.STATED, self.id):
            try:
                self.secret = log.blob(row[0])
                if type(row[1]) is not int:
                    raise e.Damaged
                self.end = fold.Head(row[1], log.blob(row[2]).hex())
            except e.Damaged:
                yield Finding("the end of its chain was changed beyond reading")
        # Without its end the entries are gone through all the same.
        length = _FAR if self.end == fold.EMPTY else self.end.length
        expected, last, before, within = 1, 0, b"", 0
        for seq, position, kind, body, link, *columns in self._all():
            if type(position) is not int or not expected <= position <= length or seq <= last:
                yield Finding(f"{self._named(kind, body, columns)} was inserted or moved")
                self.broken = True
                continue
            if position > expected:
                self.gone += position - expected
                self.broken = True
            elif (
                not all(isinstance(cell, bytes) for cell in (before, body, link))
                or kind not in e.KINDS
                or log.linked(self.secret, before, position, kind, body) != link
            ):
                yield self._found(
                    f"{self._named(kind, body, columns)} was changed or moved", *columns[:2]
                )
            yield from self._numbers(kind, columns)
            expected, last, within = position + 1, seq, within + 1
            before = link if isinstance(link, bytes) else b""
            yield from self._entry(position, kind, body, link, columns)
            if self.progress is not None and not position % log.AT_A_TIME:
                self.progress(position, self.end.length)
        if self.gone > self.named:
            yield Finding(f"{self.gone - self.named} more entries of the chain were removed")
        if self.end == fold.EMPTY:
            return
        missing = length - within - self.gone
        if missing > 0:
            yield Finding(f"{missing} entries at the end of the chain were removed")
        elif before.hex() != self.end.hash:
            yield Finding("the end of the chain is not that of its last entry")

    def _all(self) -> Iterator[tuple[Any, ...]]:
        rows = self.tx.rows(log.FIRST_PAGE, self.id, log.AT_A_TIME)
        while rows:
            yield from rows
            seq, position = rows[-1][:2]
            if type(position) is not int:  # texts and bytes come last, and each is a finding
                return
            rows = self.tx.rows(log.NEXT_PAGE, self.id, position, seq, log.AT_A_TIME)

    def _numbers(self, kind: Any, columns: list[Any]) -> Iterator[Finding]:
        """Yield the submissions that are missing before one of the same ladder."""
        ladder, number = columns[:2]
        if kind != "submitted" or type(number) is not int or ladder not in self.known.ladders:
            return
        first = self.numbers.get(ladder, 0) + 1
        for missing in range(first, min(number, first + self.gone - self.named)):
            self.named += 1
            what = f"submission {missing} of ladder {self._place(ladder)} was removed"
            yield self._found(what, ladder, missing)
        self.numbers[ladder] = number

    def _named(self, kind: Any, body: Any, columns: list[Any]) -> str:
        place = self._place(columns[0] if type(columns[0]) is int else None)
        of = f" of ladder {place}" if place else ""
        if kind == "submitted":
            return f"submission {columns[1]}{of}"
        if kind == "reservequeried" and isinstance(body, bytes):
            number = body.partition(b'"number":')[2].partition(b",")[0].decode(errors="replace")
            return f"query {number[:20]} of the reserve"
        if kind == "noted" and isinstance(body, bytes):
            what = body.partition(b'"what":"')[2].partition(b'"')[0].decode(errors="replace")
            return _NOTES.get(what, "a note") + of
        return _NAMES.get(kind, f"an entry of the kind {kind!r}") + of

    def _entry(
        self, position: int, kind: Any, body: Any, link: Any, columns: list[Any]
    ) -> Iterator[Finding]:
        try:
            one = e.read(kind, body)
        except (e.Damaged, TypeError):
            self.broken = True
            if "changed" not in (name := self._named(kind, body, columns)):
                yield self._found(f"{name} was changed beyond reading", *columns[:2])
            return
        if tuple(columns) != log.columns_of(one):
            where = f"what finds {self._named(kind, body, list(log.columns_of(one)))} was changed"
            yield self._found(where, getattr(one, "ladder", None), getattr(one, "number", None))
        for name, digest in log.pieces_of(one).items():
            if isinstance(one, e.Submitted):
                self.predictions[one.waited or position] = one
            else:
                view = f"view {len(self.known.views) + 1} of the rows"
                of = view if isinstance(one, e.ViewAdded) else "the rows"
                self.kept[position, name] = digest, f"what is recorded of {of} ({name})"
        if self.broken:
            self.known.length, self.known.head = position, link
        try:
            self.known.apply(position, link, one)
        except e.Damaged:
            self.broken = True
        yield from self._replayed(one)

    def _replayed(self, one: e.Event) -> Iterator[Finding]:
        """Compare an answer with its replay."""
        try:
            match one:
                case e.LadderStarted():
                    n, reserve = self.known.registered.n, self.known.reserve
                    if reserve is not None:
                        stored = self.tx.piece(self.id, reserve, "reserve")
                        n -= sum(byte.bit_count() for byte in stored)
                    replay = rules.Replay(one.settings, n, self.secret, one.ladder)
                    self.replays[one.ladder] = replay
                case e.Submitted(ladder=ladder, number=number) if ladder in self.replays:
                    if self.replays[ladder].answer(one) != (one.risk, one.improved):
                        what = f"the release of submission {number} of ladder {self._place(ladder)}"
                        yield self._found(f"{what} is not its replay", ladder, number)
                case e.Withdrawn(ladder=ladder) if ladder in self.replays:
                    self.replays[ladder].back(one)
                case e.ReserveQueried():
                    improved = self.known.ladders[one.ladder].improved
                    released = {made.number: made.risk for made in improved}.get(one.submission)
                    place = len(self.known.looks)
                    agrees = ReserveEvidence.of(one).agrees(one, released)
                    if one.number != place or not agrees:
                        what = f"what query {place} of the reserve showed is not its replay"
                        yield Finding(what, None, place)
                case e.FinalsHeld():
                    place, evidence = len(self.known.finals), finals_evidence(one.evidence)
                    shown = finals_shown(evidence.shown(one.confidence, one.log_count))
                    same = len(one.entries) == len(evidence.grids) and one.number == place
                    if not same or shown != one.shown:
                        yield Finding(f"what finals number {place} showed is not their replay")
        except Exception:  # a changed entry can hold anything, and its error any text
            ladder = one.ladder  # type: ignore[attr-defined]  # it is one of the three
            yield self._found(f"ladder {self._place(ladder)} cannot be replayed", ladder)

    # -- what is beside the entries -------------------------------------------------------

    def beside(self) -> Iterator[Finding]:
        """Compare all that is kept beside the entries with what they state."""
        checks = (
            (self._pieces, "what is kept beside its entries"),
            (self._places_of, "where it is found"),
            (self._states, "the states of its ladders"),
            (self._repeats, "its repeats"),
            (self._shared, "the rows that it shares"),
            (self._blocks, "its place among the blocks of its holdout"),
        )
        for check, what in checks:
            try:
                yield from check()
            except (LedgerBusy, LedgerUnreachable):
                raise
            except (
                LadderHoldoutError,
                AssertionError,
                MemoryError,
                *e.FAULTS,
            ):  # their text may show what is there
                yield Finding(f"{what} was changed beyond reading")

    def _pieces(self) -> Iterator[Finding]:
        kept = dict(self.kept)
        gone = {
            one.position
            for ladder in self.known.ladders.values()
            for one in ladder.improved
            if not one.kept
        }
        for position, one in self.predictions.items():
            if position not in gone or one.candidate:
                assert one.predictions is not None
                of_ladder = f"submission {one.number} of ladder {self._place(one.ladder)}"
                what = f"the predictions kept of {of_ladder}"
                kept[position, "predictions"] = one.predictions, what
        there = self.tx.rows(log.KEPT, self.id)
        for position, name in sorted({*kept, *map(tuple, there)}):
            digest, what = kept.get((position, name), ("", f"what is kept as {name}"))
            hashed = hashlib.sha256()
            for (content,) in self.tx.rows(log.PIECES, self.id, position, name):
                hashed.update(content if isinstance(content, bytes | memoryview) else b"")
            if hashed.hexdigest() != digest:
                of = self.predictions.get(position)
                place = (None, None) if of is None else (of.ladder, of.number)
                verb = "were" if name == "predictions" else "was"
                became = "changed" if digest else "inserted"
                yield self._found(f"{what} {verb} {became}", *place)

    def _places_of(self) -> Iterator[Finding]:
        known, registered = self.known, self.known.registered
        name, n = self.tx.rows(log.STATED, self.id)[0][3:]
        if not self.broken and name != known.name:
            whole = fold.parted_name(known.name)[0]
            yield Finding(f"its name was changed: it is block {registered.block} of {whole!r}")
        if n != registered.n:
            yield Finding("its number of rows was changed")
        ladders = self.tx.rows(log.LADDERS, self.id)
        if not self.broken and [number for (number,) in ladders] != sorted(known.ladders):
            yield Finding("the list of its ladders was changed")
        for snapshot in self.tx.snapshots(self.id, self.secret):
            if snapshot is None:
                yield Finding("its snapshot was changed")

    def _states(self) -> Iterator[Finding]:
        for ladder, replay in self.replays.items():
            known = self.known.ladders[ladder]
            if not self.broken and _bits(replay.state) != _bits(known.state):
                place = self._place(ladder)
                what = f"the state of ladder {place} is not that of its last submission"
                yield self._found(what, ladder)

    def _repeats(self) -> Iterator[Finding]:
        """Yield the submissions that were taken for new, and were not."""
        ladders = [
            ladder
            for ladder in self.known.ladders.values()
            if self._place(ladder.id) not in self.changed
        ]
        twice = (
            (ladder, by, self.tx.found(ladder.id, by, value))
            for ladder, by in itertools.product(ladders, ("digest", "key"))
            for (value,) in self.tx.rows(log.TWICE.format(by), ladder.id)
        )
        for ladder, by, (first, *others) in twice:
            for one in others:
                tested, before = (each.evidence.get("margin") or 0.0 for each in (one, first))
                if by == "key" or not (ladder.sets_aside(first.number) or tested < before):
                    what = f"submission {one.number} of ladder {self._place(ladder.id)} repeats"
                    taken = f"{what} submission {first.number}, and was taken for new"
                    yield self._found(taken, ladder.id, one.number)

    def _shared(self) -> Iterator[Finding]:
        if self.broken or self.changed or fold.FORGOTTEN in self.known.name:
            return  # nothing is read of a chain that was changed
        try:
            counted = {other: ours for other, (ours, _) in self.tx.shared(self.id).items() if ours}
        except e.Damaged:  # the check of that holdout names what was changed there
            return
        if counted != self.known.sharing:
            what = "the count of rows that it shares with other holdouts was changed"
            yield Finding(what)

    def _blocks(self) -> Iterator[Finding]:
        registered, known = self.known.registered, self.known
        whole, number = fold.parted_name(known.name)[0], registered.block
        if number > 1:
            before = self.tx.holdout_id(fold.block_name(whole, number - 1))
            if registered.after is None or before != registered.after[0]:
                yield Finding(f"block {number - 1} of {whole!r} was removed")
            elif not self.tx.has(before, fold.Head(*registered.after[1:])):
                yield Finding(
                    f"block {number - 1} of {whole!r} has lost the end that its chain had"
                )
        if known.followed is None:
            return
        names = whole, fold.block_name(whole, known.followed)
        others = filter(None, map(self.tx.holdout_id, names))
        follows = (self.tx.fold(other).registered.after for other in others)
        if not any(after is not None and after[0] == self.id for after in follows):
            yield Finding(f"block {known.followed} of {whole!r}, which took its place, was removed")


_NAMES = {
    "registered": "the registration",
    "reservedrawn": "the choice of the reserve",
    "rowsknown": "a note on the rows",
    "viewadded": "a note on a view of the rows",
    "vaultset": "a note on the vault",
    "amended": "an amendment of the labels",
    "classesfixed": "the list of classes",
    "sharingcounted": "a count of shared rows",
    "noted": "a note",
    "retired": "the retirement",
    "followed": "the note that fresh rows took its place",
    "forgotten": "the taking back of the registration",
    "restored": "the finding of an older copy",
    "ladderstarted": "the settings",
    "batchannounced": "the announcement of a batch",
    "revealed": "the asking for the released score",
    "withdrawn": "a withdrawal",
    "opened": "the opening",
    "shown": "what was shown",
    "reservequeried": "a query of the reserve",
    "finalsheld": "the finals",
    "roundsbegun": "the start of rounds",
    "collected": "a submission that waits for its round",
    "takenout": "the taking out of an account",
    "roundclosed": "the end of a round",
    "accountchanged": "a change of an account",
    "accountsmoved": "the moving of the accounts",
}


_NOTES = {
    "confidence": "a confidence that was stated later",
    "grouped": "a note that the rows come in groups",
    "left": "the leaving of an account",
    "merged": "the merging of accounts",
    "overlap": "a note on rows that were seen elsewhere",
    "spent": "a rule about when rows are used up",
}


def _bits(state: Any) -> dict[str, str]:
    """Write the numbers of a state such that all that differ by a bit differ."""
    return {
        name: value.hex() if isinstance(value, float) else repr(value)
        for name, value in state.items()
    }
