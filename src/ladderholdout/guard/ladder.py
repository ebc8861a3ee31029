"""`LocalLadder`: a ladder on a ledger that this process reaches, small enough to pass around."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, LedgerError
from ladderholdout.feedback import check_policy
from ladderholdout.guard import registration, rounds
from ladderholdout.guard.certification import certificate_or_why, reveal
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.estimation import estimate
from ladderholdout.guard.named_rows import NamedPredictions, are_named, order_by_ids
from ladderholdout.guard.open_ladder import Body, OpenLadder, T, one_by_one
from ladderholdout.guard.pipelines import take, transformed
from ladderholdout.guard.points import Unsent, unsent
from ladderholdout.guard.record_views import status_of, submission_of
from ladderholdout.guard.reserve import certify
from ladderholdout.guard.score_intervals import certificate
from ladderholdout.guard.settings import (
    HoldoutSettings,
    asked_for,
    going_on,
    text,
)
from ladderholdout.guard.stored_rows import in_first_order, read_kept
from ladderholdout.guard.submission import Guard, Origin, Waiting, make_guard
from ladderholdout.guard.views import Estimate, Release, ScoreCertificate, Status, Submission
from ladderholdout.ledger import (
    Access,
    HoldoutRecord,
    LadderRecord,
    Ledger,
    Transaction,
    is_memory,
    refuse_retired,
    resolve_url,
    same_ladder,
    shown,
)
from ladderholdout.ledger.replay import rules_of
from ladderholdout.mechanisms import LadderRules
from ladderholdout.mechanisms.arithmetic import whole
from ladderholdout.metrics import Metric
from ladderholdout.metrics.indexes import by_index
from ladderholdout.process import PerProcess
from ladderholdout.vault import Rows

# The feedback on a candidate that did not improve: there is no inner score here.

Key: TypeAlias = tuple[str, int, datetime]

# One guard per ladder, view and process: scikit-learn unpickles the ladder for every task. One
# whose rows are in another order than the registered one is kept apart: ladders without
# rows take the registered order for granted. So are those in the order of the first registration.
_guards: dict[tuple[Key, int, bool, bool], Guard] = {}
_lock = PerProcess(threading.Lock)
# The ladders that were opened in this process, for the tags of runs that are made beside them.
# Held by their identity: equal ones are several, and each of them keeps its ladder open.
_opened: weakref.WeakValueDictionary[int, LocalLadder] = weakref.WeakValueDictionary()


@dataclass(eq=False, repr=False)
class LocalLadder:
    """A ladder as it can be passed around: a URL and an id, and nothing of the holdout.

    The rows travel along only where the user allowed no copy of them (``vault=False``).
    """

    ledger: str
    id: int
    holdout_id: int
    # When it was started: a replaced ledger has other ladders under the same numbers.
    since: datetime
    metric: Metric
    feedback: str
    overlap: str
    # Which features of the rows it predicts on.
    view: int
    rows: Rows | None = None
    # How the rows of this caller are ordered; other processes know only the vault's order.
    order: NDArray[np.intp] | None = None
    foreign: bool = False
    # What a search's worker has to know.
    opened: bool = False
    # Whether the rows are in the order of the first registration, whatever view it is: so files
    # mean the same for ever.
    first_order: bool = False

    @property
    def by_metric(self) -> Mapping[str, OpenLadder]:
        """Nothing: it is of one metric."""
        return {}

    @property
    def name(self) -> str:
        """The holdout's name."""
        return self.records()[0].name

    @property
    def fingerprint(self) -> str:
        """The holdout's fingerprint."""
        return self.records()[0].fingerprint

    @property
    def rules(self) -> LadderRules:
        """The mechanism, its budget and its unit."""
        return rules_of(self.records()[1].settings)

    @property
    def place(self) -> tuple[str, int]:
        """The ledger and the holdout."""
        return self.ledger, self.holdout_id

    @property
    def _key(self) -> Key:
        return self.ledger, self.id, self.since

    @property
    def _place_of_guard(self) -> tuple[Key, int, bool, bool]:
        return self._key, self.view, self.foreign, self.first_order

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit predictions in the order of the caller's rows, or named ones in any."""
        rounds.settle()
        with without_frames:
            predictions, order = self.placed(predictions)
            return self.guard().submit(predictions, origin, order=order)

    def placed(self, predictions: Any) -> tuple[Any, NDArray[np.intp] | None]:
        """Return predictions in the order of the rows, and that order, as the guard takes them."""
        if isinstance(predictions, NamedPredictions):
            guard = self.guard()
            if not predictions.by_ids:
                return predictions.in_order_of(guard.rows.X), guard.order
            known = self.read(lambda tx, one: tx.rows.known(one.holdout_id))
            places = order_by_ids(known, predictions)[fp.inverse(guard.order)]
            return take(predictions.values, places), guard.order
        if self.foreign and self.order is None:
            raise InvalidArgument(
                "predictions",
                "submitted where the rows were given",
                "in another process",
                "The rows came in another order than the registered one, which this process "
                "does not know; use evaluate(estimator), or give the rows in their first order.",
            )
        return by_index(predictions, self.guard().rows.X), self.order

    def predictions(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Any:
        """Return what an estimator predicts on the rows, as these fitted pipelines leave them."""
        with without_frames:
            guard = self.guard()
            guard.check_rows()
            with without_autologging():
                X = transformed(guard.rows.X, steps)
                return self.metric.respond(estimator, X, guard.holdout.classes)

    def answer(self, predictions: Any, origin: Origin) -> Release:
        """Submit what `predictions` returned."""
        rounds.settle()
        with without_frames:
            return self.guard().submit(predictions, origin)

    def evaluate(self, estimator: Any, origin: Origin, steps: tuple[Any, ...] = ()) -> Release:
        """Submit what an estimator predicts on the rows, as these fitted pipelines leave them."""
        return self.answer(self.predictions(estimator, steps), origin)

    def fixed(self, predictions: Any, *, ordered: bool) -> tuple[Any, bool]:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        with without_frames:
            named = are_named(predictions)
            if not ordered:
                predictions, _ = self.placed(predictions)
            holdout = self.guard().holdout
            with without_autologging():
                aligned = self.metric.canonical(predictions, holdout.n, holdout.classes)
            return self.metric.as_submitted(aligned, holdout.classes), ordered or named

    def announce(self, batch: str, size: int) -> None:
        """Put on record how many submissions a batch will have, so that each costs ln(size)."""
        self.write(lambda tx, one: tx.batches.announce(one, batch, size))

    def together(self, batch: str, waiting: Sequence[Waiting]) -> Iterator[Release]:
        """Submit a batch, all of which is here before any of it is answered."""
        return one_by_one(self, batch, waiting)

    def check_open(self) -> None:
        """Refuse a holdout that takes no more submissions; HoldoutConflict."""
        refuse_retired(self.records()[0])

    def status(self) -> Status:
        """Return the released score and what queried the holdout."""
        rounds.note_shown()
        return self.status_for_copy()

    def status_for_copy(self) -> Status:
        """Return the same for a tracker's page, whose readers this process does not count."""
        certify, place = certificate_or_why(self), shown(self.ledger)
        return self.read(lambda tx, one: status_of(tx, one, self.metric, certify(tx, one), place))

    def history(self, after: int, limit: int | None) -> tuple[Submission, ...]:
        """Return the submissions after a number, as the analyst may see them."""
        entries = self.showing(lambda tx, one: tx.entries(one.id, after=after, limit=limit))
        return tuple(submission_of(entry, self.metric) for entry in entries)

    def certificate(self, confidence: float | None) -> ScoreCertificate:
        """Certify the incumbent."""
        return certificate(self, confidence)

    def certify(self, confidence: float | None) -> ScoreCertificate:
        """Query the reserve about the incumbent."""
        return certify(self, confidence)

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection."""
        return estimate(self)

    def reveal(self) -> float | None:
        """Show the released score of a ladder that shows none."""
        return reveal(self)

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, in one transaction."""
        return self.read(
            lambda tx, one: unsent(tx, one, self.metric, after=after, raw=raw, limit=limit)
        )

    # -- the ledger -------------------------------------------------------------------

    def records(self) -> tuple[HoldoutRecord, LadderRecord]:
        """Return the holdout and the ladder as the ledger has them now."""
        return self.read(lambda tx, ladder: (tx.holdout(ladder.holdout_id), ladder))

    def read(self, body: Body[T]) -> T:
        """Read one state of the ledger, once more where its server was lost on the way."""

        def read(tx: Transaction) -> T:
            return body(tx, same_ladder(tx.ladder_with_holdout(self.id), self.since))

        with without_frames:
            return Ledger.opened(self.ledger).transact(read, Access.READ)

    def showing(self, body: Body[T]) -> T:
        """Read what is shown to somebody: what is built from then on may depend on it."""
        rounds.note_shown()
        return self.read(body)

    def write(self, body: Body[T]) -> T:
        """Write to the ladder."""
        with without_frames:
            return Ledger.opened(self.ledger).write_to(self.id, self.since, body)

    def alone(self, body: Callable[[], T]) -> T:
        """Do something while nobody else does it on this ladder."""

        def locked(tx: Transaction) -> T:
            same_ladder(tx.locked_ladder(self.id), self.since)
            return body()

        with without_frames:
            return Ledger.opened(self.ledger).transact(locked, Access.LADDER)

    def has_ids(self) -> bool:
        """Return whether the rows were registered with ids."""
        return self.read(lambda tx, one: tx.rows.known(one.holdout_id).ids is not None)

    def note_overlap(self, source: str, rows: int) -> None:
        """Put on record how many rows of the holdout were seen elsewhere."""

        def note(tx: Transaction) -> None:
            same_ladder(tx.ladder(self.id), self.since)
            tx.rows.note_overlap(self.holdout_id, source, rows)

        with without_frames:
            Ledger.opened(self.ledger).transact(note)

    def note_groups(self, by: str) -> None:
        """Put on record what shows that the rows of the holdout come in groups."""
        if by not in self.read(lambda tx, ladder: tx.grouped(ladder.holdout_id)):
            self.write(lambda tx, ladder: tx.note_grouped(ladder.holdout_id, by))

    # -- the rows, once for each process ----------------------------------------------

    def guard(self) -> Guard:
        """Return the rows, labels and rules as this process holds them."""
        place = self._place_of_guard
        with without_frames, _lock():
            if place not in _guards:
                _guards[place] = self._load()
            return _guards[place]

    def keep(self, guard: Guard) -> None:
        """Take these rows for the ladder's, which they were found to be."""
        with _lock():
            _guards[self._place_of_guard] = guard

    def _load(self) -> Guard:
        """Bring the ladder back in a process that was not given the rows."""
        ladder, kept = self.read(
            lambda tx, ladder: (ladder, read_kept(tx, ladder.holdout_id, self.view))
        )
        rows = self.rows or kept.rows()
        store, order = Ledger.opened(self.ledger), kept.order(rows)
        if self.first_order:
            rows, order = in_first_order(kept.known, rows, order)
        hashes = np.sort(kept.view.row_hashes)
        return make_guard(store, kept.record, ladder, self.metric, rows, self.view, hashes, order)

    def share(self, guard: Guard) -> None:
        """Take the rows of another ladder of the holdout, unless they are here already."""
        with _lock():
            if self._place_of_guard in _guards:
                return
        self.keep(guard.of_ladder(self.records()[1], self.metric))

    def beside(self, ladder: LadderRecord) -> LocalLadder:
        """Return another ladder on this holdout with the same settings."""
        found = replace(self, id=ladder.id, since=ladder.created)
        guard = replace(self.guard(), ladder_id=ladder.id, since=ladder.created)
        with _lock():
            _guards.setdefault(found._place_of_guard, guard)  # the rows are in memory once
        return found

    def was_opened(self) -> bool:
        """Return whether a guarded split of this holdout was opened in this search."""
        return self.opened or rounds.was_opened(self.place)

    # -- passing it around ------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        if is_memory(self.ledger):
            raise LedgerError(
                'A holdout on a ledger in memory ("memory") cannot be pickled, nor go to other '
                "processes. Give ledger= a path."
            )
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        state |= {"order": None, "opened": self.was_opened()}
        return type(self), tuple(state.values())

    def __deepcopy__(self, memo: Any) -> Self:
        # Copies of a search must go on with the same ladder, not with one of their own.
        return self

    def __copy__(self) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalLadder) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return (
            f"LocalLadder(ladder={self.id}, metric={self.metric.name!r}, "
            f"ledger={shown(self.ledger)!r})"
        )


def with_rows(
    store: Ledger, rows: Rows, found: registration.Opened, stated: HoldoutSettings
) -> Iterator[LocalLadder]:
    """Yield the ladders that were opened with these rows, which are in memory once."""
    guard: Guard | None = None
    found.hashes.sort()
    view, hashes, order = found.view, found.hashes, found.order
    for record, metric in found.ladders:
        ladder = opened_as(store.url, record, metric, stated.feedback, stated.overlap, view)
        if guard is None:
            guard = make_guard(store, found.holdout, record, metric, rows, view, hashes, order)
        else:
            guard = guard.of_ladder(record, metric)
        ladder.order, ladder.foreign = guard.order, found.foreign
        ladder.rows = rows if found.vault_path is None else None
        ladder.keep(guard)
        yield ladder


def reopen(stated: HoldoutSettings, view: int | None = None) -> LocalLadder:
    """Go on with a ladder of a registered holdout, by what `LadderHoldout.open` takes."""
    name, store = text("name", stated.name), Ledger(resolve_url(stated.ledger))
    (wish,), number = stated.ladders(), None if view is None else whole("view", view)
    with without_frames:
        found, record, seen = store.transact(
            lambda tx: registration.find(tx, name, stated.account, wish.name, number), Access.READ
        )
    metric = going_on(wish.metric, record.settings)
    registration.agree(found, record, asked_for(metric, None, None))
    metric = metric.for_classes(found.classes)
    return opened_as(store.url, record, metric, stated.feedback, stated.overlap, seen.number)


def by_first_order(ladder: OpenLadder) -> None:
    """Take predictions in the order of the first registration, as all files have them."""
    for one in ladder.by_metric.values() or [ladder]:
        if isinstance(one, LocalLadder):
            one.first_order = True


def opened_as(
    url: str, ladder: LadderRecord, metric: Metric, feedback: str, overlap: str, view: int
) -> LocalLadder:
    """Return a ladder of the ledger, and remember it among those of this process."""
    check_policy(feedback, shows_values=rules_of(ladder.settings).mechanism.shows_values)
    found = LocalLadder(
        url, ladder.id, ladder.holdout_id, ladder.created, metric, feedback, overlap, view
    )
    _opened[id(found)] = found
    return found


def open_ladders() -> Iterator[tuple[HoldoutRecord, LadderRecord]]:
    """Yield the ladders that were opened in this process, each of them once."""
    seen = set()
    for one in list(_opened.values()):
        # One whose ledger is gone raises its own error when it is used.
        with suppress(LadderHoldoutError):
            holdout, ladder = one.records()
            if (one.ledger, ladder.id) not in seen:
                seen.add((one.ledger, ladder.id))
                yield holdout, ladder
