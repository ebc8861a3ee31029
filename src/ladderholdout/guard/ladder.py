"""`LocalLadder`: a ladder on a ledger that this process reaches, small enough to pass around."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, LedgerError
from ladderholdout.feedback import check_policy
from ladderholdout.guard import registration
from ladderholdout.guard.certification import certificate_or_why
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.estimation import estimate
from ladderholdout.guard.named_rows import NamedPredictions, are_named, order_by_ids
from ladderholdout.guard.open_ladder import (
    Facts,
    HeldRows,
    OpenLadder,
    Origin,
    Place,
    Predictions,
    SeenGroups,
    SeenRows,
    State,
    transformed,
)
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
from ladderholdout.guard.shown import note_answer, note_shown, settle
from ladderholdout.guard.stored_rows import in_first_order, read_kept
from ladderholdout.guard.submission import Guard, make_guard
from ladderholdout.guard.views import (
    Estimate,
    Release,
    ScoreCertificate,
    Status,
    Submission,
    score_of,
)
from ladderholdout.guard.withdrawal import Withdrawn, reason_of, withdraw
from ladderholdout.ledger import (
    Access,
    HoldoutRecord,
    LadderRecord,
    LadderSettings,
    Ledger,
    Transaction,
    is_memory,
    resolve_url,
    same_ladder,
)
from ladderholdout.ledger import shown as url_shown
from ladderholdout.ledger.replay import rules_of
from ladderholdout.mechanisms.arithmetic import whole
from ladderholdout.metrics import Metric
from ladderholdout.metrics.indexes import by_index
from ladderholdout.process import PerProcess
from ladderholdout.vault import Rows

# The feedback on a candidate that did not improve: there is no inner score here.

T = TypeVar("T")
Body: TypeAlias = Callable[[Transaction, LadderRecord], T]
Key: TypeAlias = tuple[str, int, datetime]

# One guard per ladder, view and process: scikit-learn unpickles the ladder for every task. One
# whose rows are in another order than the registered one is kept apart: ladders without
# rows take the registered order for granted. So are those in the order of the first registration.
_guards: dict[tuple[Key, int, bool, bool], Guard] = {}
_facts: dict[Key, Facts] = {}
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
    # The rows themselves, where the user allowed no copy of them.
    carried: Rows | None = None
    # How the rows of this caller are ordered; other processes know only the vault's order.
    order: NDArray[np.intp] | None = None
    foreign: bool = False
    # Whether the rows are in the order of the first registration, whatever view it is: so files
    # mean the same for ever.
    first_order: bool = False

    @property
    def by_metric(self) -> Mapping[str, OpenLadder]:
        """Nothing: it is of one metric."""
        return {}

    @property
    def facts(self) -> Facts:
        """What never changes, read once for each process."""
        facts = _facts.get(self._key)
        if facts is None:
            facts = self.read(lambda tx, one: facts_of(tx.holdout(one.holdout_id), one))
            _facts[self._key] = facts
        return facts

    def verified(self) -> Facts:
        """Return that, once the ledger was found to be there, and the one that it is of."""
        self.read(lambda tx, one: None)
        return self.facts

    @property
    def place(self) -> Place:
        """The ledger and the holdout."""
        return self.ledger, self.holdout_id

    @property
    def _key(self) -> Key:
        return self.ledger, self.id, self.since

    @property
    def _place_of_guard(self) -> tuple[Key, int, bool, bool]:
        return self._key, self.view, self.foreign, self.first_order

    def settings(self) -> LadderSettings:
        """Return the settings of the ladder as the ledger keeps them, for a server's clients."""
        return self.read(lambda tx, one: one.settings)

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit `Predictions`, or what a caller gives."""
        settle()
        with without_frames:
            values, order = self._in_order(predictions)
            return self.guard().submit(values, origin, order=order)

    def submit_rounds(
        self, outputs: Sequence[Any], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit the rounds of one training run, in the order of `rows`; all of them, or none."""
        # The candidate that is being fitted depends on the answer from here on.
        note_answer()
        with without_frames:
            return self.guard().submit_rounds(outputs, origins)

    def submit_batch(
        self, batch: str, predictions: Sequence[Predictions], origins: Sequence[Origin]
    ) -> Iterator[Release]:
        """Submit a batch, all of which is here before any of it is answered."""
        if not self._has_begun(batch, origins):
            self.announce(batch, len(predictions))
        return one_by_one(self, batch, predictions, origins)

    def _has_begun(self, batch: str, origins: Sequence[Origin]) -> bool:
        """Return whether a batch is submitted again, by the key of its first submission."""
        key = origins[0].key if origins else None
        if key is None:
            return False

        def read(tx: Transaction, one: LadderRecord) -> bool:
            first = tx.first_by_key(one, key)
            if first is None:
                return False
            (entry,) = tx.entries(one.id, after=first.number - 1, limit=1)
            return entry.batch == batch

        return self.read(read)

    def announce(self, batch: str, size: int) -> None:
        """Put on record how many submissions a batch will have, so that each costs ln(size)."""
        self.write(lambda tx, one: tx.batches.announce(one, batch, size))

    def _in_order(self, predictions: Any) -> tuple[Any, NDArray[np.intp] | None]:
        """Return predictions and the order that they are in, as the guard takes them."""
        if not isinstance(predictions, Predictions):
            return self.placed(predictions)
        if predictions.placed:
            return predictions.values, None
        return self.placed(predictions.values)

    def placed(self, predictions: Any) -> tuple[Any, NDArray[np.intp] | None]:
        """Return predictions in the order of the rows, and that order, as the guard takes them."""
        if isinstance(predictions, NamedPredictions):
            guard = self.guard()
            if not predictions.by_ids:
                return predictions.in_order_of(guard.rows.X), guard.order
            known = self.read(lambda tx, one: tx.rows.known(one.holdout_id))
            places = order_by_ids(known, predictions)[fp.inverse(guard.order)]
            return fp.take(predictions.values, places), guard.order
        if not self._knows_order:
            raise InvalidArgument(
                "predictions",
                "submitted where the rows were given",
                "in another process",
                "The rows came in another order than the registered one, which this process "
                "does not know; use evaluate(estimator), or give the rows in their first order.",
            )
        return by_index(predictions, self.guard().rows.X), self.order

    @property
    def _knows_order(self) -> bool:
        return self.order is not None or not self.foreign

    def predict(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Predictions:
        """Return what an estimator predicts on the rows, as these fitted pipelines leave them."""
        with without_frames:
            guard = self.guard()
            guard.check_rows()
            with without_autologging():
                X = transformed(guard.rows.X, steps)
                return Predictions(self.metric.respond(estimator, X, guard.holdout.classes), True)

    def fix(self, predictions: Any) -> Predictions:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        with without_frames:
            placed = are_named(predictions)
            if isinstance(predictions, Predictions):
                predictions, placed = predictions.values, predictions.placed
            else:
                predictions, _ = self.placed(predictions)
            holdout = self.guard().holdout
            with without_autologging():
                aligned = self.metric.canonical(predictions, holdout.n, holdout.classes)
            return Predictions(self.metric.as_submitted(aligned, holdout.classes), placed)

    # -- what is shown ----------------------------------------------------------------

    def state(self, *, shown: bool = False) -> State:
        """Return what changes, as the ledger has it now."""
        return self.read(partial(state_of, metric=self.metric), shown=shown)

    def status(self, *, shown: bool = True) -> Status:
        """Return the released score and what queried the holdout."""
        if shown:
            note_shown()
        certify, place = certificate_or_why(self), url_shown(self.ledger)
        return self.read(lambda tx, one: status_of(tx, one, self.metric, certify(tx, one), place))

    def history(
        self, after: int, limit: int | None, *, search: str | None = None, shown: bool = True
    ) -> tuple[Submission, ...]:
        """Return the submissions after a number, as the analyst may see them."""
        entries = self.read(
            lambda tx, one: tx.entries(one.id, after=after, limit=limit, search=search),
            shown=shown,
        )
        return tuple(submission_of(entry, self.metric) for entry in entries)

    def certificate(self, confidence: float | None, *, reserve: bool = False) -> ScoreCertificate:
        """Certify the incumbent by what was released, or by a query of the reserve."""
        note_shown()
        return certify(self, confidence) if reserve else certificate(self, confidence)

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection."""
        note_shown()
        return estimate(self)

    def reveal(self) -> float | None:
        """Show the released score of a ladder that shows none, and put that on record."""
        note_shown()

        def ask(tx: Transaction, one: LadderRecord) -> LadderRecord:
            tx.ask(one)
            return one

        one = self.write(ask)
        return self.metric.to_score(one.state["standing"]) if one.incumbent else None

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, in one transaction."""
        return self.read(
            lambda tx, one: unsent(tx, one, self.metric, after=after, raw=raw, limit=limit)
        )

    # -- what is put on record ----------------------------------------------------------

    def note(self, seen: SeenRows | SeenGroups) -> None:
        """Put on record what was seen of the rows."""
        if isinstance(seen, SeenGroups):
            if seen.by not in self.read(lambda tx, one: tx.grouped(one.holdout_id)):
                self.write(lambda tx, one: tx.note_grouped(one.holdout_id, seen.by))
            return

        def note(tx: Transaction) -> None:
            same_ladder(tx.ladder(self.id), self.since)
            tx.rows.note_overlap(self.holdout_id, seen.source, seen.rows)

        with without_frames:
            Ledger.opened(self.ledger).transact(note)

    def withdraw(self, number: int, reason: str) -> Withdrawn:
        """Withdraw a submission."""
        number, reason = whole("number", number), reason_of(reason)
        note_shown()
        return self.write(lambda tx, one: withdraw(tx, one, self.metric, number, reason))

    def retire(self) -> datetime:
        """Take no more submissions on this holdout; return since when."""
        retired = self.write(lambda tx, one: tx.retire(one.holdout_id)).retired
        assert retired is not None
        return retired

    # -- the ledger -------------------------------------------------------------------

    def read(self, body: Body[T], *, shown: bool = False) -> T:
        """Read one state of the ledger, once more where its server was lost on the way.

        What is `shown` to somebody may decide what is built from then on.
        """
        if shown:
            note_shown()

        def read(tx: Transaction) -> T:
            return body(tx, same_ladder(tx.ladder_with_holdout(self.id), self.since))

        with without_frames:
            return Ledger.opened(self.ledger).transact(read, Access.READ)

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

    # -- the rows, once for each process ----------------------------------------------

    def rows(self, *, checked: bool = False) -> HeldRows:
        """Return the rows as this process holds them; on request, check that they are unchanged."""
        guard = self.guard()
        if checked:
            guard.check_rows()
            if self.order is not None and not np.array_equal(self.order, guard.order):
                raise InvalidArgument(
                    "holdout",
                    "the one that was opened last",
                    "older: the same rows were opened in yet another order since",
                    "Open it again with its rows, LadderHoldout(X, y, ...).",
                )
        rows = guard.rows
        return HeldRows(rows.X, guard.hashes, self.view, self._knows_order, rows.y)

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
        rows = self.carried or kept.rows()
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
        self.keep(guard.of_ladder(self.read(lambda tx, one: one), self.metric))

    def beside(self, ladder: LadderRecord) -> LocalLadder:
        """Return another ladder on this holdout with the same settings."""
        found = replace(self, id=ladder.id, since=ladder.created)
        guard = replace(self.guard(), ladder_id=ladder.id, since=ladder.created)
        with _lock():
            _guards.setdefault(found._place_of_guard, guard)  # the rows are in memory once
        return found

    # -- passing it around ------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        if is_memory(self.ledger):
            raise LedgerError(
                'A holdout on a ledger in memory ("memory") cannot be pickled, nor go to other '
                "processes. Give ledger= a path."
            )
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        return type(self), tuple((state | {"order": None}).values())

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
            f"ledger={url_shown(self.ledger)!r})"
        )


def with_rows(
    store: Ledger, rows: Rows, found: registration.Opened, stated: HoldoutSettings
) -> Iterator[LocalLadder]:
    """Yield the ladders that were opened with these rows, which are in memory once."""
    guard: Guard | None = None
    found.hashes.sort()
    view, hashes, order = found.view, found.hashes, found.order
    for record, metric in found.ladders:
        ladder = opened_as(store.url, found.holdout, record, metric, stated, view)
        if guard is None:
            guard = make_guard(store, found.holdout, record, metric, rows, view, hashes, order)
        else:
            guard = guard.of_ladder(record, metric)
        ladder.order, ladder.foreign = guard.order, found.foreign
        ladder.carried = rows if found.vault_path is None else None
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
    return opened_as(store.url, found, record, metric, stated, seen.number)


def by_first_order(ladder: OpenLadder) -> None:
    """Take predictions in the order of the first registration, as all files have them."""
    for one in ladder.by_metric.values() or [ladder]:
        if isinstance(one, LocalLadder):
            one.first_order = True


def opened_as(
    url: str,
    holdout: HoldoutRecord,
    record: LadderRecord,
    metric: Metric,
    stated: HoldoutSettings,
    view: int,
) -> LocalLadder:
    """Return a ladder of the ledger, and remember it among those of this process."""
    facts = facts_of(holdout, record)
    check_policy(stated.feedback, shows_values=facts.rules.mechanism.shows_values)
    ladder = LocalLadder(
        ledger=url,
        id=record.id,
        holdout_id=holdout.id,
        since=record.created,
        metric=metric,
        feedback=stated.feedback,
        overlap=stated.overlap,
        view=view,
    )
    _facts[ladder._key] = facts
    _opened[id(ladder)] = ladder
    return ladder


def open_ladders() -> Iterator[Facts]:
    """Yield what is known of the ladders that were opened in this process, each of them once."""
    seen = set()
    for ladder in list(_opened.values()):
        # One whose ledger is gone raises its own error when it is used.
        with suppress(LadderHoldoutError):
            if ladder._key not in seen:
                seen.add(ladder._key)
                yield ladder.read(lambda tx, one: facts_of(tx.holdout(one.holdout_id), one))


def facts_of(holdout: HoldoutRecord, ladder: LadderRecord) -> Facts:
    """Return what never changes of a ladder and its holdout."""
    settings = ladder.settings
    return Facts(
        name=holdout.name,
        fingerprint=holdout.fingerprint,
        n=holdout.n,
        n_reserve=holdout.n_reserve,
        classes=holdout.classes,
        confidence=holdout.confidence,
        account=settings.account,
        ladder=settings.name,
        created=ladder.created,
        rules=rules_of(settings),
    )


def state_of(tx: Transaction, ladder: LadderRecord, metric: Metric) -> State:
    """Return what changes of a ladder and its holdout."""
    return State(
        submissions=ladder.submissions,
        releases=ladder.state["releases"],
        incumbent=ladder.incumbent,
        released=score_of(tx.released(ladder), metric),
        opened=ladder.opened,
        retired=tx.holdout(ladder.holdout_id).retired,
        has_ids=tx.rows.has_ids(ladder.holdout_id),
    )


def one_by_one(
    ladder: OpenLadder,
    batch: str,
    predictions: Sequence[Predictions],
    origins: Sequence[Origin],
) -> Iterator[Release]:
    """Submit an announced batch to a ladder beside its ledger."""
    for place, (values, origin) in enumerate(zip(predictions, origins, strict=True), 1):
        yield ladder.submit(values, replace(origin, batch=batch, place=place))
