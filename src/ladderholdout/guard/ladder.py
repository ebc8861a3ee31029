"""`LocalLadder`: a ladder on a ledger that this process reaches, small enough to pass around."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout import vault as vaults
from ladderholdout.arguments import text, whole
from ladderholdout.errors import InvalidArgument, LedgerError, VaultError
from ladderholdout.feedback import check_policy
from ladderholdout.guard.certify import (
    Compared,
    certificate,
    certificate_or_why,
    certify,
    compared,
    estimate,
    number_of,
    shown_beside,
)
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.open_ladder import (
    Facts,
    FreshRows,
    HeldRows,
    OpenLadder,
    Origin,
    OtherBlocks,
    Predictions,
    SeenGroups,
    SeenRows,
    SpentAt,
    State,
    check_decides,
    transformed,
)
from ladderholdout.guard.opening import (
    HoldoutSettings,
    NamedPredictions,
    add_block,
    are_named,
    asked_for,
    going_on,
    groups_on_record,
    in_first_order,
    order_by_ids,
    read_kept,
    registration,
)
from ladderholdout.guard.query import Guard, make_guard, note_answer, note_shown, settle
from ladderholdout.guard.shown import (
    Comparison,
    Decision,
    Estimate,
    Release,
    ScoreCertificate,
    Status,
    Submission,
    Unsent,
    Withdrawn,
    score_of,
    status_of,
    submission_of,
    unsent,
    withdraw,
)
from ladderholdout.ledger.events import LadderSettings
from ladderholdout.ledger.fold import HoldoutRecord, LadderRecord, parted_name
from ladderholdout.ledger.place import Access, is_memory, resolve_url
from ladderholdout.ledger.place import shown as url_shown
from ladderholdout.ledger.rules import rules_of
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import Transaction, same_ladder
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import by_index
from ladderholdout.metrics.verdicts import asked_by
from ladderholdout.process import PerProcess
from ladderholdout.vault import Rows

T = TypeVar("T")
Body: TypeAlias = Callable[[Transaction, LadderRecord], T]
Key: TypeAlias = tuple[str, int, datetime]

# One guard per ladder, view and process: scikit-learn unpickles the ladder for every task. One
# whose rows are in another order than the registered one is kept apart: ladders without
# rows take the registered order for granted. So are those in the order of the first registration.
_guards: dict[tuple[str, int, datetime, int, bool, bool], Guard] = {}
_facts: dict[Key, Facts] = {}
_blocks: dict[tuple[Key, int], tuple[NDArray[np.uint64], ...]] = {}
_lock = PerProcess(threading.Lock)


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
        """The ladders of several metrics: none, for this one is of one metric."""
        return {}

    @property
    def facts(self) -> Facts:
        """What never changes, read once for each process."""
        return _facts.get(self._key) or self.verified()

    def verified(self) -> Facts:
        """Read the facts again, which fails unless the ledger is still the one they are of."""
        facts = self.read(
            lambda tx, record: facts_of(self.ledger, tx.holdout(record.holdout_id), record)
        )
        _facts[self._key] = facts
        return facts

    @property
    def _key(self) -> Key:
        return self.ledger, self.id, self.since

    @property
    def _place_of_guard(self) -> tuple[str, int, datetime, int, bool, bool]:
        return self.ledger, self.id, self.since, self.view, self.foreign, self.first_order

    def settings(self) -> LadderSettings:
        """Return the settings of the ladder as the ledger keeps them, for a server's clients."""
        return self.read(lambda tx, record: record.settings)

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit `Predictions`, or what a caller gives."""
        settle()
        with without_frames:
            (release,) = self.guard().submit([self.placed(predictions)], [origin])
            return release

    def decide(self, predictions: Any, origin: Origin) -> Decision:
        """Submit predictions to a gate, and return whether they may replace the incumbent."""
        settle()
        with without_frames:
            guard = self.guard()
            check_decides(guard.rules, guard.holdout.name)
            guard.rules.with_margin(origin.margin)
            return guard.decide(self.placed(predictions), origin)

    def submit_rounds(
        self, outputs: Sequence[Any], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit the rounds of one training run, in the order of `rows`; all of them, or none."""
        # The candidate that is being fitted depends on the answer from here on.
        note_answer()
        with without_frames:
            return self.guard().submit([(output, None) for output in outputs], origins)

    def submit_batch(
        self, batch: str, predictions: Sequence[Predictions], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit a batch, all of which is here before any of it is answered."""
        settle()
        with without_frames:
            placed = [self.placed(values) for values in predictions]
            return self.guard().submit(placed, in_batch(batch, origins))

    def placed(self, predictions: Any) -> tuple[Any, NDArray[np.intp] | None]:
        """Return predictions in the order of the rows, and that order, as the guard takes them."""
        if isinstance(predictions, Predictions):
            if predictions.placed:
                return predictions.values, None
            predictions = predictions.values
        if isinstance(predictions, NamedPredictions):
            guard = self.guard()
            if not predictions.by_ids:
                return predictions.in_order_of(guard.rows.X), guard.order
            known = self.read(lambda tx, ladder: tx.known(ladder.holdout_id))
            places = order_by_ids(known, predictions)[fp.inverse(guard.order)]
            return fp.take(predictions.values, places), guard.order
        if self.foreign and self.order is None:
            raise InvalidArgument(
                "predictions",
                "submitted where the rows were given",
                "in another process",
                "The rows came in another order than the registered one, which this process "
                "does not know; submit an estimator, or give the rows in their first order.",
            )
        return by_index(predictions, self.guard().rows.X), self.order

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
        return self.read(
            lambda tx, record: status_of(tx, record, self.metric, certify(tx, record), place)
        )

    def history(
        self, after: int, limit: int | None, *, search: str | None = None, shown: bool = True
    ) -> tuple[Submission, ...]:
        """Return the submissions after a number, as the analyst may see them."""

        def read(tx: Transaction, record: LadderRecord) -> tuple[Submission, ...]:
            entries = tx.entries(record.id, after=after, limit=limit, search=search)
            return tuple(submission_of(entry, record, self.metric) for entry in entries)

        return self.read(read, shown=shown)

    def certificate(self, confidence: float | None, *, reserve: bool = False) -> ScoreCertificate:
        """Certify the incumbent by what was released, or by a query of the reserve."""
        note_shown()
        return certify(self, confidence) if reserve else certificate(self, confidence)

    def compare(
        self, first: Any, second: Any, confidence: float | None, per_day: int | None = None
    ) -> Comparison:
        """Compare two models, each the number of a submission or what `submit` takes.

        With ``per_day``, an account has so many submissions and comparisons a day.
        """
        note_shown()
        with without_frames:
            sides = self._side(first), self._side(second)
            with asked_by(self.guard().asker()):
                return compared(self, sides, confidence, per_day)

    def _side(self, model: Any) -> Compared:
        """Return one side of a comparison."""
        number = number_of(model)
        return Compared(number, None) if number is not None else Compared(None, *self.placed(model))

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection."""
        note_shown()
        return estimate(self)

    def reveal(self) -> float | None:
        """Show the released score of a ladder that shows none, and put that on record."""
        note_shown()

        def ask(tx: Transaction, record: LadderRecord) -> LadderRecord:
            return tx.reveal(record)

        record = self.write(ask)
        return self.metric.to_score(record.state["standing"]) if record.incumbent else None

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, in one transaction."""
        return self.read(
            lambda tx, record: unsent(tx, record, self.metric, after=after, raw=raw, limit=limit)
        )

    # -- what is put on record ----------------------------------------------------------

    def note(self, seen: SeenRows | SeenGroups | SpentAt) -> None:
        """Put on record what was seen of the rows, or when they are used up."""
        if isinstance(seen, SpentAt):
            widths = {seen.metric: seen.width}
            self.write(lambda tx, record: tx.note(record.holdout_id, "spent", widths=widths))
            return
        if isinstance(seen, SeenGroups):
            if seen.withdrawn is not None:
                self.write(partial(_withdraw_note, seen=seen))
            elif seen.by not in self.read(lambda tx, record: tx.fold(record.holdout_id).grouped()):
                self.write(lambda tx, record: tx.note_grouped(record.holdout_id, seen.by))
            return

        def note(tx: Transaction) -> None:
            same_ladder(tx.ladder(self.id), self.since)
            tx.note_overlap(self.holdout_id, seen.source, seen.rows)

        with without_frames:
            Ledger.opened(self.ledger).transact(note)

    def withdraw(self, number: int, reason: str) -> Withdrawn:
        """Withdraw a submission."""
        number = whole("number", number)
        reason = text("reason", reason, 1000, "Auditors will read it: write what happened.")
        note_shown()
        return self.write(lambda tx, record: withdraw(tx, record, self.metric, number, reason))

    def retire(self) -> datetime:
        """Take no more submissions on this holdout; return since when."""
        retired = self.write(lambda tx, record: tx.retire(record.holdout_id)).retired
        assert retired is not None
        return retired

    def forget(self) -> None:
        """Take back the registration, and remove the copies of the rows."""
        for path in self.write(lambda tx, record: tx.forget(record.holdout_id)):
            vaults.remove(path)

    def replenish(self, fresh: FreshRows) -> LocalLadder:
        """Let fresh rows take the place of these; return the ladder that follows this one."""
        (following,) = replenished([self], fresh)
        return following

    # -- the ledger -------------------------------------------------------------------

    def read(self, body: Body[T], *, shown: bool = False) -> T:
        """Read one state of the ledger, once more where its server was lost on the way.

        What is `shown` to somebody may decide what is built from then on.
        """
        if shown:
            note_shown()

        def read(tx: Transaction) -> T:
            return body(tx, same_ladder(tx.ladder(self.id), self.since))

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
        order_known = self.order is not None or not self.foreign
        groups = guard.labelled.groups
        names = None if groups is None else groups.names
        held = rows.X, guard.hashes, self.view, order_known, rows.y, names
        return HeldRows(*held, self._other_blocks)

    def _other_blocks(self) -> OtherBlocks:
        """Return the rows of earlier and of later blocks, each of which is read once."""
        parts: OtherBlocks = [], []

        def read(tx: Transaction, record: LadderRecord) -> OtherBlocks:
            own = tx.holdout(record.holdout_id)
            for block in tx.blocks(parted_name(own.name)[0]):
                place = self._key, block.id
                if block.id != own.id and place not in _blocks:
                    views = tx.views(block.id)
                    _blocks[place] = tuple(np.sort(view.row_hashes) for view in views)
                if block.id != own.id:
                    parts[block.number > own.block].extend(_blocks[place])
            return parts

        return self.read(read)

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
        groups = groups_on_record(kept.known, kept.record.estimand)
        return make_guard(
            *(store, kept.record, ladder, self.metric, rows, self.view, hashes, order, groups),
            shown_beside,
        )

    def share(self, guard: Guard) -> None:
        """Take the rows of another ladder of the holdout, unless they are here already."""
        with _lock():
            if self._place_of_guard in _guards:
                return
        self.keep(guard.of_ladder(self.read(lambda tx, record: record), self.metric))

    def beside(self, ladder: LadderRecord) -> LocalLadder:
        """Return another ladder on this holdout by the same metric, under its own rules."""
        beside = replace(self, id=ladder.id, since=ladder.created)
        rules = rules_of(ladder.settings)
        # Rows that are missing are missed where they are needed, and not by who reads releases.
        with suppress(VaultError, InvalidArgument):
            guard = replace(self.guard(), ladder_id=ladder.id, since=ladder.created, rules=rules)
            with _lock():
                _guards.setdefault(beside._place_of_guard, guard)  # the rows are in memory once
        return beside

    # -- passing it around ------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        if is_memory(self.ledger):
            raise LedgerError(
                'A holdout on a ledger in memory ("memory") cannot be pickled, nor go to other '
                "processes. Give ledger= a path."
            )
        state = {setting.name: getattr(self, setting.name) for setting in fields(self)}
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
    store: Ledger, rows: Rows, known: registration.Opened, stated: HoldoutSettings
) -> Iterator[LocalLadder]:
    """Yield the ladders that were opened with these rows, which are in memory once."""
    guard: Guard | None = None
    known.hashes.sort()
    view, hashes, order = known.view, known.hashes, known.order
    for record, metric in known.ladders:
        ladder = opened_as(store.url, known.holdout, record, metric, stated, view)
        if guard is None:
            guard = make_guard(
                *(store, known.holdout, record, metric, rows, view, hashes, order, known.groups),
                shown_beside,
            )
        else:
            guard = guard.of_ladder(record, metric)
        ladder.order, ladder.foreign = guard.order, known.foreign
        ladder.carried = rows if known.vault_path is None else None
        ladder.keep(guard)
        yield ladder


def replenished(ladders: Sequence[LocalLadder], fresh: FreshRows) -> list[LocalLadder]:
    """Let fresh rows take the place of those of a holdout; return what follows these ladders."""
    first = ladders[0]
    stated = HoldoutSettings(feedback=first.feedback, overlap=first.overlap)
    with without_frames:
        store = Ledger.opened(first.ledger)
        before = {ladder.id: (ladder.since, ladder.metric) for ladder in ladders}
        rows, opened = add_block(store, before, fresh, first.overlap, first.guard().rows)
        return list(with_rows(store, rows, opened, stated))


def reopen_ladder(stated: HoldoutSettings, view: int | None = None) -> LocalLadder:
    """Go on with a ladder of a registered holdout, by what `LadderHoldout.open` takes."""
    name, store = text("name", stated.name), Ledger(resolve_url(stated.ledger))
    (wish,), number = stated.ladders(), None if view is None else whole("view", view)
    with without_frames:
        holdout, record, seen = store.transact(
            lambda tx: registration.find(tx, name, stated.account, wish.name, number), Access.READ
        )
    metric = going_on(wish.metric, record.settings)
    registration.agree(holdout, record, asked_for(metric))
    metric = metric.for_classes(holdout.classes)
    return opened_as(store.url, holdout, record, metric, stated, seen.number)


def by_first_order(ladder: OpenLadder) -> None:
    """Take predictions in the order of the first registration, as all files have them."""
    for local in ladder.by_metric.values() or [ladder]:
        if isinstance(local, LocalLadder):
            local.first_order = True


def opened_as(
    url: str,
    holdout: HoldoutRecord,
    record: LadderRecord,
    metric: Metric,
    stated: HoldoutSettings,
    view: int,
) -> LocalLadder:
    """Return a ladder of the ledger, and remember it among those of this process."""
    facts = facts_of(url, holdout, record)
    check_policy(stated.feedback, shows_scores=facts.rules.shows_scores)
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
    return ladder


def facts_of(url: str, holdout: HoldoutRecord, ladder: LadderRecord) -> Facts:
    """Return what never changes of a ladder and its holdout."""
    settings = ladder.settings
    return Facts(
        place=(url, holdout.id),
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
        estimand=holdout.estimand,
        block=holdout.block,
    )


def state_of(tx: Transaction, ladder: LadderRecord, metric: Metric) -> State:
    """Return what changes of a ladder and its holdout."""
    return State(
        submissions=ladder.submissions,
        releases=ladder.state["releases"],
        incumbent=ladder.incumbent,
        released=score_of(ladder.released, metric),
        opened=ladder.opened,
        retired=tx.holdout(ladder.holdout_id).retired,
        has_ids=tx.has_ids(ladder.holdout_id),
    )


def in_batch(batch: str, origins: Sequence[Origin]) -> list[Origin]:
    """Return the origins of the members of an announced batch, each with its place."""
    return [
        replace(origin, batch=batch, place=place, announced=True)
        for place, origin in enumerate(origins, 1)
    ]


def _withdraw_note(tx: Transaction, record: LadderRecord, *, seen: SeenGroups) -> None:
    notes = tx.fold(record.holdout_id).grouped()
    if seen.by not in notes:
        raise InvalidArgument("by", f"one of the notes of groups on record, {notes}", seen.by)
    tx.note(record.holdout_id, "grouped", by=seen.by, withdrawn=seen.withdrawn)
