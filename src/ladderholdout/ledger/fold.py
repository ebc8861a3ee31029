"""What a holdout is after some events; everything that is read of a ledger is read from here.

`Holdout.apply` is the only place where state changes. Nothing raw is kept here, and nothing that
grows with the number of submissions, but for the sizes of batches.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from ladderholdout.errors import HoldoutConflict
from ladderholdout.ledger import events as e

FORGOTTEN = "\x1f"
"""Between the name of a holdout that was forgotten and its number: no other name has it."""

_OF_BLOCK = re.compile(r"(.+)@([1-9][0-9]{0,8})", re.DOTALL)


def block_name(holdout: str, number: int) -> str:
    """Return the name of a block that fresh rows took the place of."""
    return f"{holdout}@{number}"


def parted_name(name: str) -> tuple[str, int | None]:
    """Return the name of a holdout and the number of an earlier block of it, None without one."""
    parts = _OF_BLOCK.fullmatch(name)
    return (name, None) if parts is None else (parts[1], int(parts[2]))


def refuse_retired(name: str, retired: datetime | None) -> None:
    """Refuse what would add a submission to rows that accept none any more."""
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


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain ends: what is anchored outside of the ledger.

    Attributes
    ----------
    length : int
        Number of links.
    hash : str
        Of the last link, 64 hex characters; it covers all of the others.

    Examples
    --------
    >>> print(Head(12, "9f3a"))
    12:9f3a
    """

    length: int
    hash: str

    def __str__(self) -> str:
        return f"{self.length}:{self.hash}"


EMPTY = Head(0, "")
"""Where a chain without links ends."""


@dataclass(frozen=True, slots=True)
class HoldoutRecord:
    """The rows of a holdout, without themselves.

    Attributes
    ----------
    id, name : int, str
    fingerprint : str
        64 hex characters over the rows' features; labels never enter it.
    secret : bytes
        The key of all that is keyed, which also seeds the noise.
    n : int
        Number of rows.
    classes : ndarray or None
        All class labels, sorted; None where no metric has needed them.
    vault_path : str or None
        The private file; None where no copy of the rows is kept.
    created : datetime
    retired : datetime or None
        Since when it takes no submissions.
    reserve : ndarray of bool, shape (n,), or None
        Which rows no ladder measures, in the order of the content.
    confidence : float
        Of all certificates, fixed at registration.
    labels_version : int
        One more than the number of amendments of its labels.
    estimand : {"rows", "groups"} or None
        Which mean certificates are of, where whole groups of rows were drawn; None where each row
        is a draw of its own.
    block : int
        Which block of rows of its holdout it is, from 1.
    """

    id: int
    name: str
    fingerprint: str
    secret: bytes = field(repr=False)
    n: int
    classes: NDArray[Any] | None = field(repr=False, compare=False)
    vault_path: str | None
    created: e.Moment
    retired: e.Moment | None
    reserve: NDArray[np.bool_] | None = field(repr=False, compare=False)
    confidence: float = 0.95
    labels_version: int = 1
    estimand: str | None = None
    block: int = 1

    @property
    def n_reserve(self) -> int:
        """Number of rows that no ladder measures."""
        return 0 if self.reserve is None else int(self.reserve.sum())

    @property
    def n_ladder(self) -> int:
        """Number of rows that the ladders measure."""
        return self.n - self.n_reserve


class Improvement(NamedTuple):
    """A submission that became the incumbent, with what had been answered when it was chosen.

    `query` is its number among the ladder's queries, and `position` is that of its event.
    `until` is the position of the last query of the holdout before it that was not of its batch,
    and `place` its own place in its batch, or among the queries after those. `runs` is how many
    runs of queries of one batch had begun before, `size` the announced size of its batch.
    `risk` is the ladder's released risk from then on, and `kept` whether its predictions are kept.
    """

    ladder_id: int
    number: int
    query: int
    position: int
    risk: float
    time: e.Moment
    batch: str | None
    place: int
    stated_place: int | None
    until: int
    runs: int
    size: int | None
    digest: str
    reserve_digest: str | None
    kept: bool


@dataclass(frozen=True)
class LadderRecord:
    """A ladder with its state.

    Attributes
    ----------
    id, holdout_id : int
    settings : LadderSettings
    created : datetime
    state : dict
        The mechanism's state in numbers (released risk, noise, releases).
    start : float
        The released risk of a ladder without an incumbent.
    submissions, queries, repeats : int
        All entries, those whose answer was not known before, and those that repeat an earlier one.
    version : int
        How many incumbents there have been.
    incumbent : int or None
        The number of the incumbent's submission.
    improved : tuple of Improvement
    withdrawn : tuple of Withdrawn
    returns : tuple of int
        After how many of its queries the ladder went back to an earlier incumbent.
    revealed : mapping
        The positions at which scores were asked for, by the numbers of their submissions.
    opened : datetime or None
        When an audit showed its raw scores; then `opened_at` is the position, and `opened_after`
        how many submissions there were.
    first_batch : str or None
        The batch of its first submission.
    """

    id: int
    holdout_id: int
    settings: e.LadderSettings
    created: e.Moment
    state: Mapping[str, Any] = field(repr=False)
    start: float = field(repr=False)
    submissions: int = 0
    queries: int = 0
    repeats: int = 0
    version: int = 0
    incumbent: int | None = None
    improved: tuple[Improvement, ...] = field(default=(), repr=False)
    withdrawn: tuple[e.Withdrawn, ...] = ()
    returns: tuple[int, ...] = ()
    revealed: Mapping[int, int] = field(default_factory=dict)
    opened: e.Moment | None = None
    opened_at: int | None = None
    opened_after: int | None = None
    first_batch: str | None = None

    @property
    def chosen(self) -> Improvement | None:
        """The improvement that made the incumbent."""
        numbers = (one for one in reversed(self.improved) if one.number == self.incumbent)
        return next(numbers, None)

    @property
    def shows_scores(self) -> bool:
        """Whether answers show, or an audit has shown, the released scores."""
        return self.settings.shows_scores or self.opened is not None

    @property
    def released(self) -> float | None:
        """The released risk, where it may be shown."""
        if self.incumbent is None:
            return None
        if self.shows_scores or self.incumbent in self.revealed:
            return float(self.state["standing"])
        return None

    def shown(self, submission: e.Submitted) -> float | None:
        """Return the released risk of a submission, where it may be shown."""
        if self.shows_scores or submission.risk in self.shown_risks():
            return submission.risk
        return None

    def shown_risks(self) -> frozenset[float]:
        """Return the released risks that were asked for, of a ladder that shows none."""
        if not self.revealed:
            return frozenset()
        hidden = {one.risk for one in self.improved if one.number not in self.revealed}
        return frozenset(one.risk for one in self.improved) - hidden

    def why_withdrawn(self, submission: e.Submitted) -> str | None:
        """Return why a submission, or the one that it repeats, was withdrawn."""
        number = submission.repeat_of or submission.number
        reasons = {one.number: one.reason for one in self.withdrawn}
        return reasons.get(number)

    def sets_aside(self, number: int) -> bool:
        """Return whether a withdrawal has set the answer to a submission aside."""
        return any(one.sets_aside(number) for one in self.withdrawn)

    def improvements(self, number: int) -> int:
        """Return how many submissions had improved the ladder up to one of them."""
        return sum(one.number <= number for one in self.improved)


def refuse_waiting(rounds: Rounds, board: str) -> None:
    """Refuse to go on while submissions wait for the end of a round."""
    count = len(rounds.waiting)
    if count:
        raise HoldoutConflict(
            f"{'1 submission waits' if count == 1 else f'{count} submissions wait'} for the "
            f"end of the round of leaderboard {board!r}: close it first, with "
            "close_round() or ladder-holdout close-round."
        )


class View(NamedTuple):
    """The rows with one set of features; its event's position is where its arrays are kept."""

    number: int
    fingerprint: str
    position: int
    created: e.Moment
    vault_path: str | None = None
    vault_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows of a holdout that were seen elsewhere: in another holdout or in training."""

    source: str
    rows: int
    time: datetime


class Waiting(NamedTuple):
    """A submission that waits for the end of a round."""

    position: int
    event: e.Collected


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a leaderboard.

    Attributes
    ----------
    hours : float or None
    started : datetime
    closed : tuple of RoundClosed
    waiting : tuple of Waiting
    taken_out : tuple of Waiting
        What waited for the round that is open and is not answered.
    """

    hours: float | None
    started: e.Moment
    closed: tuple[e.RoundClosed, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    taken_out: tuple[Waiting, ...] = ()

    @property
    def number(self) -> int:
        """The number of the round that is open."""
        return len(self.closed) + 1

    @property
    def since(self) -> datetime:
        """When the round that is open began."""
        return self.closed[-1].time if self.closed else self.started

    @property
    def counts(self) -> dict[str, int]:
        """How many submissions wait, by account."""
        return dict(Counter(one.event.account for one in self.waiting))


@dataclass(slots=True)
class Holdout:
    """All that is known of one holdout after some of its events.

    `noted` and the lists beside it hold events with their positions; `compared` has by ladder the
    last day with comparisons, and how many it had.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(val_json_bytes="hex")  # of snapshots

    id: int
    # Beside a snapshot: the key, and what `Log.holdout` made of the rows.
    secret: bytes = field(default=b"", repr=False, compare=False)
    record: Any = field(default=None, repr=False, compare=False)
    length: int = 0
    head: bytes = b""
    name: str = ""
    first: e.Registered | None = None
    known: tuple[int, e.RowsKnown] | None = None
    reserve: int | None = None
    classes: str | None = None
    retired: e.Moment | None = None
    labels_version: int = 1
    views: list[View] = field(default_factory=list)
    amended: list[tuple[int, e.Amended]] = field(default_factory=list)
    ladders: dict[int, LadderRecord] = field(default_factory=dict)
    sharing: dict[int, int] = field(default_factory=dict)
    shown: list[tuple[int, e.Shown]] = field(default_factory=list)
    compared: dict[int, tuple[str, int]] = field(default_factory=dict)
    looks: list[tuple[int, e.ReserveQueried]] = field(default_factory=list)
    finals: list[tuple[int, e.FinalsHeld]] = field(default_factory=list)
    noted: list[tuple[int, e.Noted]] = field(default_factory=list)
    restored: list[tuple[int, int]] = field(default_factory=list)
    rounds: dict[int, Rounds] = field(default_factory=dict)
    accounts: dict[str, e.AccountChanged] = field(default_factory=dict)
    followed: int | None = None
    more: str = ""  # the first kind of event that is no part of a registration
    # Queries of batches: announced sizes, members by ladder, and the run that goes on.
    sizes: dict[str, int] = field(default_factory=dict)
    members: dict[int, dict[str, int]] = field(default_factory=dict)
    batch: str | None = None
    runs: int = 0
    until: int = 0
    latest: int = 0
    arrived: int = 0

    def apply(self, position: int, head: bytes, happened: e.Event) -> None:
        """Take note of one more event.

        Raises
        ------
        Damaged
            It does not follow the others.
        """
        self.length, self.head = position, head
        try:
            self._apply(position, happened)
        except (AssertionError, *e.FAULTS):
            raise e.Damaged from None

    def _apply(self, position: int, happened: e.Event) -> None:
        match happened:
            case e.Submitted():
                self._submitted(position, happened)
            case e.BatchAnnounced():
                self.sizes.setdefault(happened.batch, happened.size)
            case e.LadderStarted():
                self.ladders[happened.ladder] = LadderRecord(
                    *(happened.ladder, self.id, happened.settings, happened.time),
                    *(happened.state, float(happened.state["standing"])),
                )
            case e.Revealed():
                ladder = self.ladders[happened.ladder]
                revealed = {happened.submission: position} | dict(ladder.revealed)
                self._change(ladder, revealed=revealed)
            case e.Withdrawn():
                self._withdrawn(happened)
            case e.Opened():
                ladder = self.ladders[happened.ladder]
                self._change(
                    ladder,
                    opened=happened.time,
                    opened_at=position,
                    opened_after=ladder.submissions,
                )
            case e.Shown():
                self.shown.append((position, happened))
                if happened.what == "comparison":
                    day = happened.more["time"][:10]
                    last, count = self.compared.get(happened.ladder, (day, 0))
                    self.compared[happened.ladder] = day, 1 + (count if day == last else 0)
            case e.ReserveQueried():
                raw = {name: None for name in ("risk", "low", "high")}
                stripped = replace(happened, evidence={**happened.evidence, **raw})
                self.looks.append((position, stripped))
            case e.FinalsHeld():
                self.finals.append((position, replace(happened, evidence={})))
            case e.Noted():
                self.noted.append((position, happened))
            case e.Restored():
                self.restored.append((position, happened.length))
            case e.SharingCounted():
                self.sharing.pop(happened.other, None)
                if happened.rows:
                    self.sharing[happened.other] = happened.rows
            case e.RoundsBegun():
                self.rounds[happened.ladder] = Rounds(happened.hours, happened.time)
            case e.Collected() | e.TakenOut() | e.RoundClosed():
                self._of_rounds(position, happened)
            case e.AccountChanged():
                self.accounts[happened.name] = happened
            case e.AccountsMoved():
                self.accounts.clear()
            case _:
                self._of_rows(position, happened)
        noted = isinstance(happened, e.Noted) and happened.what in ("grouped", "spent", "overlap")
        if not (self.more or noted or isinstance(happened, _OF_REGISTRATION)):
            self.more = type(happened).__name__.lower()

    def _of_rows(self, position: int, happened: e.Event) -> None:
        """Take note of what is known of the rows."""
        self.record = None
        match happened:
            case e.Registered() | e.ViewAdded():
                if isinstance(happened, e.Registered):
                    self.first, self.name = happened, happened.name
                number = len(self.views) + 1
                self.views.append(View(number, happened.fingerprint, position, happened.time))
            case e.RowsKnown():
                self.known = position, happened
            case e.ReserveDrawn():
                self.reserve = position
            case e.VaultSet():
                place = happened.view - 1
                moved = self.views[place]._replace(
                    vault_path=happened.path, vault_digest=happened.digest
                )
                self.views[place] = moved
            case e.Amended():
                self.labels_version += 1
                self.amended.append((position, happened))
            case e.ClassesFixed():
                self.classes = happened.classes
            case e.Retired():
                self.retired = self.retired or happened.time
            case e.Followed():
                self.name, self.followed = block_name(self.name, happened.block - 1), happened.block
            case e.Forgotten():
                self.name = f"{self.name}{FORGOTTEN}{self.id}"
                self.accounts.clear()
                self.sharing.clear()

    def _change(self, ladder: LadderRecord, **changes: Any) -> None:
        # As replace() does, in a tenth of the time: it is done for every event.
        changed = self.ladders[ladder.id] = object.__new__(LadderRecord)
        vars(changed).update(vars(ladder), **changes)

    def _submitted(self, position: int, one: e.Submitted) -> None:
        ladder, repeats = self.ladders[one.ladder], one.repeat_of is not None
        if one.number != ladder.submissions + 1:
            raise e.Damaged
        changes: dict[str, Any] = {"submissions": one.number, "repeats": ladder.repeats + repeats}
        if one.number == 1:
            changes["first_batch"] = one.batch
        if one.query is not None:
            if one.query != ladder.queries + 1:
                raise e.Damaged
            changes["queries"] = one.query
            if one.batch is None or one.batch != self.batch:  # what came so far was before this run
                self.until, self.arrived = self.latest, 0
                self.runs += one.batch is not None
                self.batch = one.batch
            self.latest, self.arrived = position, self.arrived + 1
            if one.batch is not None and (one.size is not None or one.batch in self.sizes):
                members = self.members.setdefault(one.ladder, {})
                members[one.batch] = members.get(one.batch, 0) + 1
        if one.state is not None:
            changes["state"] = one.state
        if one.improved and not repeats:
            changes |= self._improved(position, ladder, one)
        self._change(ladder, **changes)

    def _improved(self, position: int, ladder: LadderRecord, one: e.Submitted) -> dict[str, Any]:
        """Return what changes of a ladder with an incumbent."""
        assert one.query is not None and one.state is not None
        improved, alone = ladder.improved, one.batch is None
        if not alone and "round" in one.context:  # the rounds of one fit may improve by hundreds
            gone = ladder.incumbent, one.batch
            improved = tuple(
                before._replace(kept=False) if (before.number, before.batch) == gone else before
                for before in improved
            )
        size = None if one.batch is None else one.size or self.sizes.get(one.batch)
        made = Improvement(
            *(ladder.id, one.number, one.query, position, one.risk, one.time, one.batch),
            *(1 if alone else self.arrived, one.place, self.until, self.runs - (not alone), size),
            *(one.digest, one.reserve_digest, True),
        )
        changes = {"version": ladder.version + 1, "incumbent": one.number}
        return {**changes, "improved": (*improved, made)}

    def _withdrawn(self, one: e.Withdrawn) -> None:
        ladder = self.ladders[one.ladder]
        changes: dict[str, Any] = {"withdrawn": (*ladder.withdrawn, one)}
        if one.replaced:
            risks = {made.number: made.risk for made in ladder.improved}
            standing = ladder.start if one.incumbent is None else risks[one.incumbent]
            changes |= {"incumbent": one.incumbent, "version": ladder.version + 1}
            changes["state"] = {**ladder.state, "standing": standing}
            changes["returns"] = (*ladder.returns, ladder.queries)
        self._change(ladder, **changes)

    def _of_rounds(self, position: int, happened: e.Collected | e.TakenOut | e.RoundClosed) -> None:
        rounds = self.rounds[happened.home]
        waiting = rounds.waiting
        match happened:
            case e.Collected():
                rounds = replace(rounds, waiting=(*waiting, Waiting(position, happened)))
            case e.TakenOut(account=account):
                out = tuple(one for one in waiting if one.event.account == account)
                left = tuple(one for one in waiting if one not in out)
                rounds = replace(rounds, waiting=left, taken_out=(*rounds.taken_out, *out))
            case e.RoundClosed(until=until):
                left = tuple(one for one in waiting if one.position > until)
                closed = (*rounds.closed, happened)
                rounds = replace(rounds, closed=closed, waiting=left, taken_out=())
        self.rounds[happened.home] = rounds

    # -- what is read of it ---------------------------------------------------------------

    @property
    def registered(self) -> e.Registered:
        """The registration of its rows, without which it can be nothing."""
        if self.first is None:
            raise e.Damaged
        return self.first

    @property
    def end(self) -> Head:
        """Where its chain ends."""
        return Head(self.length, self.head.hex())

    def ladder(self, number: int, since: datetime | None = None) -> LadderRecord:
        """Return a ladder; refuse another one in the place of that which was created `since`."""
        ladder = self.ladders[number]
        if since not in (None, ladder.created):
            raise HoldoutConflict(
                "The ledger was replaced by another one since this holdout was opened. Open the "
                "holdout again with its rows, LadderHoldout(X, y, ...), or put the old file back."
            )
        return ladder

    def notes(self, what: str, ladder: int | None = None) -> list[dict[str, Any]]:
        """Return the details of what was noted of one kind, oldest first."""
        return [
            one.detail for _, one in self.noted if one.what == what and one.ladder in (None, ladder)
        ]

    @property
    def confidences(self) -> tuple[float, ...]:
        """The confidences that were stated beside the registered one, in their order."""
        return tuple(float(note["confidence"]) for note in self.notes("confidence"))

    def grouped(self, *, withdrawn: bool = False) -> dict[str, str | None]:
        """Return the signs that rows come in groups, by whom; with or without withdrawn ones."""
        notes = [one for _, one in self.noted if one.what == "grouped"]
        gone = {one.detail["by"] for one in notes if "withdrawn" in one.detail}
        left = (one for one in notes if withdrawn or one.detail["by"] not in gone)
        return {one.detail["by"]: one.holder for one in left if "withdrawn" not in one.detail}

    @property
    def spent_at(self) -> dict[str, float]:
        """From which width on the owner takes rows for used up, by metric."""
        widths = {
            name: width for note in self.notes("spent") for name, width in note["widths"].items()
        }
        return {name: float(width) for name, width in widths.items() if width is not None}

    @property
    def overlaps(self) -> list[Overlap]:
        """Where rows of this holdout were seen as well, the most rows first."""
        most: dict[str, Overlap] = {}
        for note in self.notes("overlap"):
            time = datetime.fromisoformat(note["time"])
            most[note["source"]] = Overlap(note["source"], note["rows"], time)
        return sorted(most.values(), key=lambda overlap: -overlap.rows)

    def revealed(self, position: float = math.inf) -> set[tuple[int, int]]:
        """Return the ladders and submissions whose scores were asked for before a position."""
        return {
            (ladder.id, number)
            for ladder in self.ladders.values()
            for number, at in ladder.revealed.items()
            if at < position
        }

    def prices(self, position: float = math.inf) -> Iterator[float]:
        """Yield what certificates pay for what was shown before a position, kind by kind."""
        for what in ("estimate", "interval", "comparison"):
            yield from (
                one.log_values for at, one in self.shown if one.what == what and at < position
            )

    def reserve_prices(self, position: float = math.inf) -> Iterator[float]:
        """Yield what is paid for queries of the reserve and finals before a position."""
        yield from (one.log_values for at, one in self.looks if at < position)
        yield from (one.shown["log_values"] for at, one in self.finals if at < position)

    def shown_of(self, what: str) -> Iterator[e.Shown]:
        """Yield what was shown of one kind, oldest first."""
        return (one for _, one in self.shown if one.what == what)


_OF_REGISTRATION = (
    *(e.Registered, e.RowsKnown, e.ReserveDrawn, e.ViewAdded, e.VaultSet, e.ClassesFixed),
    *(e.LadderStarted, e.SharingCounted, e.AccountChanged),
)
