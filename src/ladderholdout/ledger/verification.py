"""Whether a ledger still says what was written to it: its chain, its replay, its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from ladderholdout.errors import LedgerError
from ladderholdout.ledger.chain import EMPTY, RESTORED, Head, Link, digests_of, extend
from ladderholdout.ledger.records import AuditEntry, HoldoutRecord, LadderRecord
from ladderholdout.ledger.replay import Replayed, replay, rules_of, state_to

if TYPE_CHECKING:
    from ladderholdout.ledger.transaction import Transaction


Note: TypeAlias = tuple[str, str | None]
"""The kind of a link, and whose it is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the ledger that is not as it was written.

    Attributes
    ----------
    what : str
        In a sentence, without anything raw.
    ladder : str or None
        Account and name, as ``default/main``; None for what concerns the holdout.
    number : int or None
        The submission's; without a ladder, that of the look at the reserve.
    """

    what: str
    ladder: str | None = None
    number: int | None = None

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class LadderRecords:
    """All that a ledger holds of one ladder; raw, so not shown.

    Its entries are gone through once.
    """

    ladder: LadderRecord
    entries: Iterable[AuditEntry] = field(repr=False)
    incumbent: NDArray[Any] | None = field(repr=False)


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
    """

    holdout: str
    submissions: int
    head: Head
    findings: tuple[Finding, ...]


def verify(tx: Transaction, holdout_id: int) -> Verification:
    """Compare what stands in a ledger about a holdout with its chain and with its replay.

    Parameters
    ----------
    tx : Transaction
    holdout_id : int

    Returns
    -------
    Verification
        Whoever owns the file can rebuild the whole chain; that is found by comparing with
        a `head` that was kept elsewhere.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> from ladderholdout.ledger import Ledger
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> release = holdout.submit([0, 0])
    >>> with Ledger(holdout.ledger).read() as tx:
    ...     verify(tx, 1).findings
    ()
    """
    holdout, head = tx.holdout(holdout_id), tx.head(holdout_id)
    findings: list[Finding] = []
    try:
        ladders = tx.ladders(holdout_id)
    except LedgerError:  # said by the chain, where it is a setting
        ladders = ()
        findings.append(Finding("a ladder of it was changed beyond reading"))
    counts = {place_of(ladder): ladder.submissions for ladder in ladders}
    noted: set[Note] = set()
    links = _noting(tx.links(holdout_id), noted)
    findings += check_chain(holdout.secret, links, head, counts)
    findings += check_notes(holdout, ladders, noted)
    findings += check_looks(findings, tx.reserve_replays(holdout_id))
    # Of entries that were changed no replay is needed, and maybe none is possible.
    changed = {one.ladder for one in findings}
    for ladder in ladders:
        if place_of(ladder) not in changed:
            entries = tx.each_audit_entry(ladder.id)
            incumbent = tx.incumbent_predictions(ladder.id)
            findings += check_ladder(holdout, LadderRecords(ladder, entries, incumbent))
    return Verification(holdout.name, sum(counts.values()), head, tuple(findings))


def place_of(ladder: LadderRecord) -> str:
    """Return account and name of a ladder, as a finding names it."""
    return f"{ladder.settings.account}/{ladder.settings.name}"


def check_chain(
    secret: bytes, links: Iterable[Link], head: Head, counts: Mapping[str, int]
) -> Iterator[Finding]:
    """Find the links that were changed, removed, inserted or moved.

    Parameters
    ----------
    secret : bytes
        The holdout's.
    links : iterable of Link
        By position, as they stand now. They are gone through once.
    head : Head
        The end of the chain that was written last.
    counts : mapping of str to int
        How many submissions each ladder says it has, by account and name.

    Yields
    ------
    Finding
    """
    numbers = {place: _Numbers() for place in counts}
    mismatches: list[Finding] = []
    within, end, before = 0, EMPTY, EMPTY
    for link in links:
        if link.ladder in numbers and link.number is not None:
            numbers[link.ladder].add(link.number)
        if problem := _problem(secret, before, link, head.length):
            mismatches.append(Finding(f"{link} {problem}", link.ladder, link.number))
        # From the recorded hash: what comes after a change is judged by itself.
        before = Head(link.position, link.hash)
        if link.position <= head.length:
            within, end = within + 1, before
    gone = list(_removed(numbers, counts))
    yield from gone
    more = head.length - within - len(gone)
    if more > 0:
        yield Finding(f"{more} more entries of the chain were removed")
    yield from mismatches
    if end != head and within == head.length:
        yield Finding("the end of the chain is not that of its last entry")


def check_notes(
    holdout: HoldoutRecord, ladders: Iterable[LadderRecord], noted: Set[Note]
) -> Iterator[Finding]:
    """Find what stands in the ledger without the link that is written with it."""
    there: dict[Note, bool] = {
        ("holdout", None): True,
        ("reserve", None): holdout.reserve is not None,
        ("classes", None): holdout.classes is not None,
        ("retired", None): holdout.retired is not None,
    }
    for ladder in ladders:
        place = place_of(ladder)
        there |= {("ladder", place): True, ("opened", place): ladder.opened is not None}
    for length in sorted(kind.split()[1] for kind, _ in noted if kind.startswith(f"{RESTORED} ")):
        yield Finding(f"an older copy was put in place where link {length} had been known")
    for (kind, of_ladder), stands in there.items():
        if stands and (kind, of_ladder) not in noted:
            found = Link(0, kind, of_ladder, None, "", None)
            yield Finding(f"{found} was inserted: it is no entry of the chain", of_ladder)


def check_looks(
    findings: Iterable[Finding], replayed: Iterable[tuple[int, bool]]
) -> tuple[Finding, ...]:
    """Find looks at the reserve that show something else than their replay.

    Parameters
    ----------
    findings : iterable of Finding
        What was found by now: a look that was changed is not named twice.
    replayed : iterable of (int, bool)
        Number of each look, and whether its replay shows the same.

    Returns
    -------
    tuple of Finding
    """
    changed = {one.number for one in findings if one.ladder is None}
    return tuple(
        Finding(f"what look {number} at the reserve showed is not its replay", None, number)
        for number, agrees in replayed
        if not agrees and number not in changed
    )


def check_ladder(holdout: HoldoutRecord, found: LadderRecords) -> Iterator[Finding]:
    """Replay a ladder, and compare with every release and with the state that stands.

    Parameters
    ----------
    holdout : HoldoutRecord
    found : LadderRecords

    Yields
    ------
    Finding
    """
    ladder, place = found.ladder, place_of(found.ladder)
    last = _Last(_state_at_start(holdout, ladder))
    try:
        for one in replay(holdout, ladder, last.seen(found.entries)):
            last.replayed = one
            if not one.agrees:
                what = f"the release of submission {one.number} of ladder {place} is not its replay"
                yield Finding(what, place, one.number)
    except Exception:  # anything can stand in a changed entry, and any text in its error
        yield Finding(f"ladder {place} cannot be replayed", place)
        return
    if _standing(ladder) != last.standing():
        yield Finding(f"the state of ladder {place} is not that of its last submission", place)
    if not _is_incumbent(holdout, found, last):
        yield Finding(f"the incumbent's predictions on ladder {place} were changed", place)


def _noting(links: Iterable[Link], noted: set[Note]) -> Iterator[Link]:
    """Note the kinds of links as they go by."""
    for link in links:
        noted.add((link.kind, link.ladder))
        yield link


@dataclass(slots=True)
class _Numbers:
    """Which of the numbers from 1 have come, by those that have not."""

    largest: int = 0
    missing: set[int] = field(default_factory=set)

    def add(self, number: int) -> None:
        self.missing.discard(number)
        self.reach(number - 1)
        self.largest = max(self.largest, number)

    def reach(self, number: int) -> None:
        self.missing.update(range(self.largest + 1, number + 1))
        self.largest = max(self.largest, number)


def _removed(numbers: Mapping[str, _Numbers], counts: Mapping[str, int]) -> Iterator[Finding]:
    for place, came in numbers.items():
        came.reach(counts[place])
        for number in sorted(came.missing):
            yield Finding(f"submission {number} of ladder {place} was removed", place, number)


def _problem(secret: bytes, end: Head, link: Link, length: int) -> str:
    if link.content is None:
        return "was removed, or changed beyond reading"
    if link.position > length or link.position == end.length:
        return "was inserted: it is no entry of the chain"
    same = extend(secret, end, link.kind, link.content).hash == link.hash
    if link.position == end.length + 1:
        return "" if same else "was changed or moved"
    # Behind a gap: it is the next one with its place edited, or what came before it is gone
    # and nothing can be said of it.
    return "was changed or moved" if same else ""


def _standing(ladder: LadderRecord) -> tuple[Any, ...]:
    return (ladder.submissions, ladder.version, ladder.incumbent, _bits(ladder.state))


def _state_at_start(holdout: HoldoutRecord, ladder: LadderRecord) -> Mapping[str, Any]:
    return state_to(rules_of(ladder.settings).start(holdout.n_ladder))


@dataclass(slots=True)
class _Last:
    """Where the replay of a ladder stands: what its entries come to."""

    start: Mapping[str, Any]
    count: int = 0
    version: int = 0
    improver: AuditEntry | None = field(default=None, repr=False)
    replayed: Replayed | None = field(default=None, repr=False)

    def seen(self, entries: Iterable[AuditEntry]) -> Iterator[AuditEntry]:
        for one in entries:
            self.count += 1
            if one.entry.improved and one.entry.repeat_of is None:
                self.version, self.improver = self.version + 1, one
            yield one

    def standing(self) -> tuple[Any, ...]:
        state = self.start if self.replayed is None else self.replayed.state
        improver = None if self.improver is None else self.improver.entry.number
        return (self.count, self.version, improver, _bits(state))


def _bits(state: Mapping[str, Any]) -> dict[str, str]:
    """Show a state to the last bit."""
    return {
        name: value.hex() if isinstance(value, float) else repr(value)
        for name, value in state.items()
    }


def _is_incumbent(holdout: HoldoutRecord, found: LadderRecords, last: _Last) -> bool:
    if found.incumbent is None:
        return found.ladder.incumbent is None
    one = last.improver
    if len(found.incumbent) != holdout.n or one is None:
        return False
    digests = digests_of(holdout.secret, found.incumbent, holdout.reserve)
    return one.entry.number == found.ladder.incumbent and (
        (one.entry.digest, one.reserve_digest) == digests
    )
