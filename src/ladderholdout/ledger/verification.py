"""Whether a ledger still holds what was written to it: its chain, its replay, its indices."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from numpy.typing import NDArray
from sqlalchemy import Connection, func, select, text, type_coerce
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from ladderholdout.errors import (
    LadderHoldoutError,
    LedgerBusy,
    LedgerError,
    LedgerUnreachable,
    printable,
)
from ladderholdout.ledger.chain import (
    FACTS_OF_VIEW,
    RESTORED,
    Link,
    Unsorted,
    digests_of,
    link_hash,
    read_facts,
    read_noted_facts,
    read_noted_views,
    read_views,
)
from ladderholdout.ledger.history import read_margins
from ladderholdout.ledger.records import (
    AT_A_TIME,
    EMPTY,
    NOT_IMPROVED,
    Head,
    HoldoutRecord,
    LadderRecord,
    Progress,
    Recorded,
    Withdrawal,
    decompressed,
    is_known,
    select_incumbents,
)
from ladderholdout.ledger.replay import Replayed, replay, rules_of, state_to
from ladderholdout.ledger.tables import (
    FAULTS,
    RAW,
    chains,
    damaged,
    holdouts,
    incumbents,
    ladders,
    metadata,
    submissions,
)

if TYPE_CHECKING:
    from ladderholdout.ledger.transaction import Transaction


T = TypeVar("T")
# How many submissions in a row are named one by one where they were removed.
_LONG_GAP = 1000

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
        The submission's; without a ladder, that of the query of the reserve.
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
    >>> from ladderholdout.guard.opening.health import verify_holdout
    >>> place = "memory:verified"
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=place)
    >>> found = verify_holdout(place, "coins")
    >>> found.holdout, found.submissions, found.findings
    ('coins', 0, ())
    """

    holdout: str
    submissions: int
    head: Head
    findings: tuple[Finding, ...]
    blocks: int = 1


def verify(tx: Transaction, holdout_id: int, progress: Progress | None = None) -> Verification:
    """Compare what a ledger holds of a holdout with its chain and with its replay.

    Parameters
    ----------
    tx : Transaction
    holdout_id : int
    progress : callable, optional
        Called with how many entries were gone through, and of how many: each is replayed after
        its link in the chain.

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
    findings = _Findings([])
    with _database_beside(tx.conn) as database:
        try:
            verified = _verified(tx, holdout_id, findings, progress)
            damage = database()
            if not damage and not findings.items:
                # A batch that was changed spoils the counts of all that follow.
                findings.add(
                    "what is counted of its batches", partial(_check_runs, tx.conn, holdout_id)
                )
        except (SQLAlchemyError, sqlite3.Error):
            damage = database()
            if not damage:
                raise
            # A page of it does not read; what the database found is all that is known of it.
            verified = Verification("", 0, EMPTY, ())
            findings.items.append(Finding("the rest of it cannot be read"))
    return replace(verified, findings=(*damage, *findings.items))


def _verified(
    tx: Transaction, holdout_id: int, findings: _Findings, progress: Progress | None
) -> Verification:
    """Compare a holdout's entries with its chain and their replay; add to the findings."""
    head = findings.read("the end of its chain", lambda: tx.head(holdout_id), EMPTY)
    holdout = findings.read("the record of the holdout", lambda: tx.holdout(holdout_id), None)
    of_secret = select(holdouts.c.secret).where(holdouts.c.id == holdout_id)
    secret = findings.read(
        "its secret", lambda: bytes(tx.conn.execute(of_secret).scalar_one()), b""
    )
    of_ladders = select(ladders.c.id).where(ladders.c.holdout_id == holdout_id)
    none: Sequence[int] = ()
    ladder_ids = findings.read(
        "the list of its ladders",
        lambda: tx.conn.execute(of_ladders.order_by(ladders.c.id)).scalars().all(),
        none,
    )
    readable = []
    for ladder_id in ladder_ids:
        what = f"the record of ladder number {ladder_id}"
        ladder = findings.read(what, partial(tx.ladder, ladder_id), None)
        if ladder is not None:
            readable.append(ladder)
    counts = {place_of(ladder): ladder.submissions for ladder in readable}
    noted: set[Note] = set()
    steps = _Steps(progress, head.length + sum(counts.values()))

    def links(*, sort: bool = False) -> list[Finding]:
        seen = steps.of(_noting(tx.chains.links(holdout_id, sort=sort), noted))
        try:
            return list(_check_chain(secret, seen, head, counts))
        except Unsorted:  # somebody changed it: what that is can be seen in the chain's order
            steps.done = 0
            return links(sort=True)

    def rows() -> Iterator[Finding]:
        for what in _changed_facts(tx.conn, holdout_id):
            yield Finding(f"what is recorded of {what} was changed")

    def shared() -> Iterator[Finding]:
        if not tx.rows.shared_as_counted(holdout_id):
            what = "the count of rows that it shares with other holdouts was changed"
            yield Finding(what)

    def reserve() -> Iterator[Finding]:
        # A query that was changed is not named twice.
        changed = {finding.number for finding in findings.items if finding.ladder is None}
        for number, agrees in tx.reserve.replays(holdout_id):
            if not agrees and number not in changed:
                what = f"what query {number} of the reserve showed is not its replay"
                yield Finding(what, None, number)

    def finals() -> Iterator[Finding]:
        for number, agrees in tx.finals.replays(holdout_id):
            if not agrees:
                yield Finding(f"what finals number {number} showed is not their replay")

    findings.add("its chain", links)
    if holdout is not None:
        # Replays need nothing of what is wrong already, and maybe none is possible.
        findings.add("its notes", partial(_check_notes, holdout, readable, noted))
    findings.add("what is recorded of the rows", rows)
    findings.add("the openings of its reserve", reserve)
    findings.add("its finals", finals)

    def blocks() -> Iterator[Finding]:
        yield from map(Finding, tx.blocks.findings(holdout_id))

    findings.add("the rows that it shares", shared)
    findings.add("its place among the blocks of its holdout", blocks)
    for ladder in readable if holdout is not None else ():
        place = place_of(ladder)
        findings.add(f"ladder {place}", partial(_check_firsts, tx, ladder, findings.items))
        if holdout is not None:
            findings.add(f"rounds of ladder {place}", partial(_check_rounds, tx, holdout, ladder))
        if holdout is not None and place not in {finding.ladder for finding in findings.items}:
            entries = steps.of(tx.recorded(ladder.id))
            findings.add(f"ladder {place}", partial(_check_ladder, tx, holdout, ladder, entries))
    name = "" if holdout is None else holdout.name
    return Verification(name, sum(counts.values()), head, ())


def _check_runs(conn: Connection, holdout_id: int) -> Iterator[Finding]:
    """Count again the runs of queries of one batch, which certificates pay for."""
    entry = submissions.c
    place = ladders.c.account + "/" + ladders.c.name
    of_ladders = select(ladders.c.id, place).where(ladders.c.holdout_id == holdout_id)
    places = {row[0]: row[1] for row in conn.execute(of_ladders)}
    columns = (entry.ladder_id, entry.number, entry.runs, entry.batch, is_known)
    query = select(*(type_coerce(column, RAW) for column in columns)).order_by(entry.id)
    query = query.where((entry.ladder_id + 0).in_(places))
    count, last = 0, None
    # They are counted here: a window of the database takes three times as long.
    with conn.execute(query, execution_options={"yield_per": AT_A_TIME}) as rows:
        for ladder_id, number, runs, batch, known in rows:
            ladder = places.get(ladder_id)
            if ladder is None:  # to a database a text that begins with a number can equal it
                continue
            if not known:
                count += batch is not None and batch != last
                last = batch
            if runs != count:
                if type(runs) is not int:
                    raise damaged()
                what = f"what is counted of batches up to submission {number} of ladder {ladder}"
                yield Finding(f"{what} was changed", ladder, number)
    end = select(chains.c.runs, chains.c.batch).where(chains.c.holdout_id == holdout_id)
    if (count, last) != conn.execute(end).first():
        yield Finding("what is counted of its batches at the end of its chain was changed")


def _changed_facts(conn: Connection, holdout_id: int) -> Iterator[str]:
    """Yield which columns on the rows and their views are not as they were noted last."""
    facts, noted = read_facts(conn, holdout_id), read_noted_facts(conn, holdout_id)
    yield from (f"the rows ({name})" for name in facts if facts[name] != noted.get(name))
    views, noted_views = read_views(conn, holdout_id), read_noted_views(conn, holdout_id)
    for number in sorted(views.keys() | noted_views.keys()):
        now, before = views.get(number, {}), noted_views.get(number, {})
        for name in FACTS_OF_VIEW:
            if now.get(name) != before.get(name):
                yield f"view {number} of the rows ({name})"


@dataclass(slots=True)
class _Steps:
    """How many entries were gone through, for whoever waits."""

    progress: Progress | None
    total: int
    done: int = 0

    def of(self, entries: Iterable[T]) -> Iterator[T]:
        if self.progress is None:
            yield from entries
            return
        for entry in entries:
            self.done += 1
            if not self.done % AT_A_TIME:
                self.progress(self.done, self.total)
            yield entry


@dataclass(frozen=True, slots=True)
class _Findings:
    """The findings so far; a value that was changed ends no reading in a fault."""

    items: list[Finding]

    def read(self, what: str, read: Callable[[], T], default: T) -> T:
        """Read something, or find that it does not read."""
        try:
            return read()
        except (LedgerBusy, LedgerUnreachable):
            raise
        except (LadderHoldoutError, MemoryError, *FAULTS):  # their text may show what is there
            self.items.append(Finding(f"{what} was changed beyond reading"))
            return default

    def add(self, what: str, check: Callable[[], Iterable[Finding]]) -> None:
        """Add what a check finds, up to where it can read no further."""
        nothing: Iterable[Finding] = ()
        findings = iter(self.read(what, check, nothing))
        while (finding := self.read(what, partial(next, findings, None), None)) is not None:
            self.items.append(finding)


def _check_firsts(
    tx: Transaction, ladder: LadderRecord, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Find repeats that were taken for queries, from the entries and not by an index."""
    place = place_of(ladder)
    withdrawn = tx.withdrawals.noted(ladder.id)
    named = {(finding.ladder, finding.number) for finding in findings}
    for number, first in repeated_queries(tx.conn, ladder.id):
        # What is submitted again after it was withdrawn is meant to be new, and what a gate tests
        # for a smaller gain.
        is_new = any(withdrawal.sets_aside(first) for withdrawal in withdrawn)
        tested = [read_margins(tx.conn, ladder.id, number=one)[0] for one in (number, first)]
        is_new = is_new or tested[0] < tested[1]
        if (place, number) not in named and not is_new:
            what = f"submission {number} of ladder {place} repeats submission {first}, and was "
            yield Finding(f"{what}taken for new", place, number)


def kept_incumbents(conn: Connection, ladder_id: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Read number and predictions of the earlier incumbents to which a ladder can go back."""
    query = select_incumbents(ladder_id).order_by(incumbents.c.number)
    for row in conn.execute(query).all():
        yield row.number, decompressed(row.predictions)


def place_of(ladder: LadderRecord) -> str:
    """Return account and name of a ladder, as a finding names it."""
    return f"{ladder.settings.account}/{ladder.settings.name}"


def _check_chain(
    secret: bytes, links: Iterable[Link], head: Head, counts: Mapping[str, int]
) -> Iterator[Finding]:
    """Find the links that were changed, removed, inserted or moved.

    `links` come by position, as they are now; `head` is the end that was written last, and `counts`
    has by account and name how many submissions a ladder's row states.
    """
    numbers = {place: _Numbers() for place in counts}
    mismatches: list[Finding] = []
    within, end = 0, (EMPTY.length, EMPTY.hash)
    before = end
    for link in links:
        if link.ladder in numbers and link.number is not None:
            numbers[link.ladder].add(link.number)
        if problem := _problem(secret, *before, link, head.length):
            mismatches.append(Finding(f"{link} {problem}", link.ladder, link.number))
        # From the recorded hash: what comes after a change is judged by itself.
        before = link.position, link.hash
        if 1 <= link.position <= head.length:
            within += 1
            end = before
    gone = 0
    for place, of_ladder in numbers.items():
        of_ladder.reach(counts[place])
        for gap in of_ladder.gaps:
            gone += gap.stop - gap.start  # len() is of 63 bits at most
            yield from _removed(place, gap)
    others = head.length - within - gone
    if others > 0:
        yield Finding(f"{others} more entries of the chain were removed")
    yield from mismatches
    if end != (head.length, head.hash) and within == head.length:
        yield Finding("the end of the chain is not that of its last entry")


def _check_notes(
    holdout: HoldoutRecord, ladders: Iterable[LadderRecord], noted: Set[Note]
) -> Iterator[Finding]:
    """Find what is in the ledger without the link that is written with it."""
    is_recorded: dict[Note, bool] = {
        ("holdout", None): True,
        ("reserve", None): holdout.reserve is not None,
        ("classes", None): holdout.classes is not None,
        ("retired", None): holdout.retired is not None,
    }
    for ladder in ladders:
        place = place_of(ladder)
        is_recorded |= {("ladder", place): True, ("opened", place): ladder.opened is not None}
    for length in sorted(kind.split()[1] for kind, _ in noted if kind.startswith(f"{RESTORED} ")):
        yield Finding(f"an older copy was put in place where link {length} had been known")
    for (kind, of_ladder), is_there in is_recorded.items():
        if is_there and (kind, of_ladder) not in noted:
            link = Link(0, kind, of_ladder, None, "", None)
            yield Finding(f"{link} was inserted: it is no entry of the chain", of_ladder)


def _check_ladder(
    tx: Transaction, holdout: HoldoutRecord, ladder: LadderRecord, entries: Iterable[Recorded]
) -> Iterator[Finding]:
    """Replay a ladder, and compare with every release and with the state on record."""
    place, withdrawals = place_of(ladder), tx.withdrawals.noted(ladder.id)
    try:
        incumbent = tx.incumbent_predictions(ladder.id)
    except LedgerError:  # it has none, or none that reads: that is found below
        incumbent = None
    kept = tuple(kept_incumbents(tx.conn, ladder.id))
    last = _Last(state_to(rules_of(ladder.settings).start(holdout.n_ladder)), withdrawals)
    try:
        for replayed in replay(holdout, ladder, last.seen(entries), withdrawals):
            last.replayed, number = replayed, replayed.number
            if not replayed.agrees:
                what = f"the release of submission {number} of ladder {place} is not its replay"
                yield Finding(what, place, number)
    except Exception:  # a changed entry can hold anything, and its error any text
        yield Finding(f"ladder {place} cannot be replayed", place)
        return
    if last.miscounted is not None:
        what = f"what is counted of queries up to submission {last.miscounted} of ladder {place}"
        yield Finding(f"{what} was changed", place, last.miscounted)
    counts = (ladder.submissions, ladder.queries, ladder.version, ladder.withdrawals)
    if (*counts, ladder.incumbent, _bits(ladder.state)) != last.state():
        yield Finding(f"the state of ladder {place} is not that of its last submission", place)

    def digests(predictions: NDArray[Any]) -> tuple[str, str | None]:
        return digests_of(holdout.secret, predictions, holdout.reserve)

    if incumbent is None:
        same = ladder.incumbent is None
    else:
        same = (
            len(incumbent) == holdout.n
            and last.incumbent is not None
            and last.incumbent == ladder.incumbent
            and last.improvers[last.incumbent] == digests(incumbent)
        )
    if not same:
        yield Finding(f"the incumbent's predictions on ladder {place} were changed", place)
    for number, predictions in kept:
        if number != ladder.incumbent and last.improvers.get(number) != digests(predictions):
            what = f"the predictions kept of submission {number} of ladder {place} were changed"
            yield Finding(what, place, number)


def _check_rounds(
    tx: Transaction, holdout: HoldoutRecord, ladder: LadderRecord
) -> Iterator[Finding]:
    """Compare what rounds kept of a ladder's submissions with the digests on record."""
    place, entry = place_of(ladder), submissions.c
    of_ladder = select(entry.digest, entry.reserve_digest).where(entry.ladder_id == ladder.id)
    for collected in tx.rounds.kept(ladder.id):
        number, predictions = collected.number, collected.predictions
        recorded = tx.conn.execute(of_ladder.where(entry.number == number)).first()
        same = len(predictions) == holdout.n and recorded is not None
        if not same or recorded != digests_of(holdout.secret, predictions, holdout.reserve):
            what = f"what a round kept of submission {number} of ladder {place} was changed"
            yield Finding(what, place, number)
    rounds = tx.rounds.of(ladder)
    for closed in () if rounds is None else rounds.closed:
        if tx.rounds.count(ladder, closed.number) != closed.submissions:
            yield Finding(f"submissions that round {closed.number} had were removed", place)


def _noting(links: Iterable[Link], noted: set[Note]) -> Iterator[Link]:
    """Note the kinds of links as they go by."""
    for link in links:
        noted.add((link.kind, link.ladder))
        yield link


@dataclass(slots=True)
class _Numbers:
    """Which of the numbers from 1 a ladder has, by the gaps between them, in order.

    A number that was changed may be any of 64 bits, so no gap is gone through.
    """

    largest: int = 0
    gaps: list[range] = field(default_factory=list)

    def add(self, number: int) -> None:
        if number == self.largest + 1:  # nearly always
            self.largest = number
        elif number > self.largest:
            self.reach(number - 1)
            self.largest = number
        else:
            self._fill(number)

    def reach(self, number: int) -> None:
        if number > self.largest:
            self.gaps.append(range(self.largest + 1, number + 1))
            self.largest = number

    def _fill(self, number: int) -> None:
        index = bisect_right(self.gaps, number, key=lambda gap: gap.start) - 1
        if index >= 0 and number in self.gaps[index]:
            gap = self.gaps[index]
            halves = range(gap.start, number), range(number + 1, gap.stop)
            self.gaps[index : index + 1] = [half for half in halves if half]


def _removed(place: str, gap: range) -> Iterator[Finding]:
    """Name each submission of a gap; of a long one, which no reader goes through, both ends."""
    if len(gap) > _LONG_GAP:
        what = f"submissions {gap[0]} to {gap[-1]} of ladder {place} were removed"
        yield Finding(what, place, gap[0])
        return
    for number in gap:
        yield Finding(f"submission {number} of ladder {place} was removed", place, number)


def _problem(secret: bytes, before: int, hash_before: str, link: Link, length: int) -> str:
    if link.content is None:
        return "was removed, or changed beyond reading"
    if not 1 <= link.position <= length or link.position == before:
        return "was inserted: it is no entry of the chain"
    same = link_hash(secret, before + 1, hash_before, link.kind, link.content) == link.hash
    if link.position == before + 1:
        return "" if same else "was changed or moved"
    # Behind a gap: it is the next one with its place edited, or what came before it is gone
    # and nothing is known of it.
    # A place between two others, as SQLite keeps one, is no entry's own.
    return "was changed or moved" if same or type(link.position) is not int else ""


@dataclass(slots=True)
class _Last:
    """The state in which the replay of a ladder ends."""

    start: Mapping[str, Any]
    withdrawals: tuple[Withdrawal, ...]
    count: int = 0
    queries: int = 0
    # The first submission whose row counts others.
    miscounted: int | None = None
    version: int = 0
    incumbent: int | None = None
    # The digests of the predictions of each submission that improved.
    improvers: dict[int, tuple[str, str | None]] = field(default_factory=dict, repr=False)
    replayed: Replayed | None = field(default=None, repr=False)

    def seen(self, entries: Iterable[Recorded]) -> Iterator[Recorded]:
        returns = [withdrawal for withdrawal in self.withdrawals if withdrawal.replaced]
        for entry in entries:
            while returns and returns[0].until < entry.number:
                self._back(returns.pop(0))
            self.count += 1
            self.queries += entry.repeat_of is None or entry.evidence == NOT_IMPROVED
            if entry.queries != self.queries and self.miscounted is None:
                self.miscounted = entry.number
            if entry.improved and entry.repeat_of is None:
                self.version, self.incumbent = self.version + 1, entry.number
                self.improvers[entry.number] = entry.digest, entry.reserve_digest
            yield entry
        for withdrawal in returns:
            self._back(withdrawal)

    def _back(self, withdrawal: Withdrawal) -> None:
        self.version, self.incumbent = self.version + 1, withdrawal.incumbent

    def state(self) -> tuple[Any, ...]:
        state = self.start if self.replayed is None else self.replayed.state
        counts = (self.count, self.queries, self.version, len(self.withdrawals))
        return (*counts, self.incumbent, _bits(state))


def _bits(state: Mapping[str, Any]) -> dict[str, str]:
    """Show a state to the last bit."""
    return {
        name: value.hex() if isinstance(value, float) else repr(value)
        for name, value in state.items()
    }


# -- whether the database's indices agree with its tables -----------------------------------
# A damaged index hides entries from a query that goes by it, and then a repeat becomes a query of
# the ladder. So nothing here goes by an index of entries.

_MANY = 100
_AMCHECK = text(
    "SELECT c.oid::regclass::text AS name, c.oid AS oid FROM pg_index i "
    "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid "
    "JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'btree' AND i.indisvalid "
    "AND t.relnamespace = current_schema()::regnamespace AND t.relname = ANY(:tables)"
)


@contextmanager
def _database_beside(conn: Connection) -> Iterator[Callable[[], tuple[Finding, ...]]]:
    """Let a file be checked on a connection of its own while its entries are gone through.

    SQLite's check of a million entries takes seconds, in which Python waits for nothing.
    """
    if conn.dialect.name != "sqlite" or isinstance(conn.engine.pool, StaticPool):
        findings = _database_findings(conn)
        yield lambda: findings
        return
    with conn.engine.connect() as other, ThreadPoolExecutor(1) as thread:
        check = thread.submit(_database_findings, other)
        driver = other.connection.driver_connection
        try:
            yield check.result
        finally:
            cast(sqlite3.Connection, driver).interrupt()  # of use where an error ended the reading


def _database_findings(conn: Connection) -> tuple[Finding, ...]:
    """Run the database's own check; what it finds shows no values.

    On PostgreSQL that is the extension amcheck, where this user may use it. Without it nothing is
    found here, and `repeated_queries` still finds repeats that were taken for new.
    """
    if conn.dialect.name == "sqlite":
        told = conn.exec_driver_sql(f"PRAGMA integrity_check({_MANY})").scalars()
        return tuple(Finding(f"the database: {fault}") for fault in told if fault != "ok")
    known = "SELECT count(*) FROM pg_extension WHERE extname = 'amcheck'"
    if not conn.execute(text(known)).scalar():
        return ()
    findings = []
    for row in conn.execute(_AMCHECK, {"tables": sorted(metadata.tables)}).all():
        try:
            with conn.begin_nested():
                conn.execute(text("SELECT bt_index_check(:oid, true)"), {"oid": row.oid})
        except SQLAlchemyError as fault:
            if getattr(fault.__cause__, "sqlstate", None) != "42501":  # not allowed to ask
                what = f"the database: index {row.name} does not agree with its table"
                findings.append(Finding(what))
    return tuple(findings)


def repeated_queries(conn: Connection, ladder_id: int) -> Iterator[tuple[int, int]]:
    """Yield the submissions that were taken for new, each with the first one that was the same."""
    entry = submissions.c
    # Joined to a text, or added to zero, a column is not looked up in an index.
    for column in (entry.digest, entry.key):
        plain = column.concat("")
        is_query = (entry.ladder_id + 0 == ladder_id) & entry.repeat_of.is_(None)
        # A window over all entries reads them once; few of them are left.
        first = func.min(entry.number).over(partition_by=plain).label("first")
        queries = select(entry.number, first).where(is_query, plain.is_not(None)).subquery().c
        repeats = select(queries.number, queries.first).where(queries.number > queries.first)
        for row in conn.execute(repeats.order_by(queries.number)):
            yield row.number, row.first
