"""`LocalLadder`: the ladder of one metric, or of several, on a ledger that this process reaches."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout import vault as vaults
from ladderholdout.arguments import text, whole
from ladderholdout.errors import HoldoutConflict, InvalidArgument, LedgerError, VaultError
from ladderholdout.guard import answering, batches, certify, commands, on_record, open_ladder, seen
from ladderholdout.guard.certificate import ALONE, OfMetrics, ScoreCertificate, together
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.open_ladder import Origin, Predictions
from ladderholdout.guard.record_views import estimate, health_of, status_of, submission_of, unsent
from ladderholdout.guard.rows import NamedPredictions, are_named, order_by_ids, read_kept
from ladderholdout.guard.submit import Guard
from ladderholdout.guard.views import TOGETHER, Decision, Release, Status, Unsent, score_of
from ladderholdout.identity import copies, hashing, matching
from ladderholdout.ledger import place, rules, store
from ladderholdout.ledger.fold import LadderRecord, parted_name
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric, get_metric, verdicts
from ladderholdout.metrics.arrays import by_index, index_of, read_once
from ladderholdout.process import PerProcess
from ladderholdout.vault import Rows

A = TypeVar("A")
S = TypeVar("S", bound=OfMetrics)
T = TypeVar("T")
Body: TypeAlias = Callable[[Transaction, LadderRecord], T]

# One guard per ladder, view and process: scikit-learn unpickles the ladder for every task. One
# whose rows are in another order than the registered one is kept apart: ladders without
# rows take the registered order for granted. So are those in the order of the first registration.
_guards: dict[tuple[Any, ...], Guard] = {}
_facts: dict[tuple[Any, ...], open_ladder.Facts] = {}
_blocks: dict[tuple[Any, ...], tuple[NDArray[np.uint64], ...]] = {}
_lock = PerProcess(threading.Lock)


@dataclass(eq=False, repr=False)
class LocalLadder:
    """A ladder as it can be passed around: a URL and an id, and nothing of the holdout.

    The ladders of several metrics on one holdout are the first of them with `by_metric`: what is
    submitted goes to all, or to none. What there can only be one of, as the incumbent by which a
    search ends, is that of the metric named first.

    The rows travel along only where the user allowed no copy of them (``vault=False``).
    """

    ledger: str
    id: int
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
    # The ladder of each of several metrics; empty for the ladder of one.
    by_metric: Mapping[str, LocalLadder] = field(default_factory=dict)

    @property
    def each(self) -> Mapping[str, LocalLadder]:
        """The ladder of each metric; of one metric this one, `ALONE`."""
        return self.by_metric or {ALONE: self}

    @property
    def facts(self) -> open_ladder.Facts:
        """What never changes, read once for each process."""
        return _facts.get(self._key) or self.verified()

    def verified(self) -> open_ladder.Facts:
        """Read the facts again, which fails unless the ledger is still the one they are of."""
        holdout, ladder = self.read(lambda tx, it: (tx.holdout(it.holdout_id), it))
        return self.remember(open_ladder.facts_of((self.ledger, holdout.id), holdout, ladder))

    def remember(self, facts: open_ladder.Facts) -> open_ladder.Facts:
        """Take facts that were read for those of this ladder in this process; return them."""
        _facts[self._key] = facts
        return facts

    @property
    def _key(self) -> tuple[str, int, datetime]:
        return self.ledger, self.id, self.since

    @property
    def _place_of_guard(self) -> tuple[Any, ...]:
        return *self._key, self.view, self.foreign, self.first_order

    def _of_each(self, answer: Callable[[LocalLadder], S]) -> S:
        """Return the answer of the ladder of each metric, together."""
        return together({name: answer(ladder) for name, ladder in self.each.items()})

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit `Predictions`, or what a caller gives.

        Of several metrics one array where all of them take it, else a mapping by metric or by
        response.
        """
        seen.settle()
        return self._submit([predictions], [origin])[0]

    def submit_all(self, sets: Sequence[Any], origins: Sequence[Origin]) -> tuple[Release, ...]:
        """Submit the rounds of one training run, or a batch; all of it, or none."""
        if origins[0].announced:
            seen.settle()
        else:  # the candidate that is being fitted depends on the answer from here on
            seen.note_answer()
        return self._submit(sets, origins)

    def _submit(self, sets: Sequence[Any], origins: Sequence[Origin]) -> tuple[Release, ...]:
        """Submit sets of predictions to the ladders of all metrics."""
        with without_frames:
            guards = self.guards()
            answers = answering.answered(guards, [self._placed(given) for given in sets], origins)
            noted = (map(Guard.take_note, guards.values(), own) for own in answers)
            return tuple(together(dict(zip(guards, own, strict=True))) for own in noted)

    def decide(self, predictions: Any, origin: Origin) -> Decision:
        """Submit predictions to a gate, and return whether they may replace the incumbent."""
        open_ladder.of_one_metric(self)
        seen.settle()
        with without_frames:
            guard = self.guard()
            if not guard.rules.mechanism.flags_alone:
                raise HoldoutConflict(
                    f"The ladder of {guard.holdout.name!r} has the rule "
                    f"{guard.rules.mechanism.name}, which bounds no error of decisions. Start one "
                    "beside it that does, LadderHoldout(X, y, ..., ladder='gate', "
                    "mechanism=GateLadder()), and give it the baseline first."
                )
            guard.rules.with_margin(origin.margin)
            ((answer,),) = answering.answered({ALONE: guard}, [self._placed(predictions)], [origin])
            return guard.decision(answer, origin)

    def _placed(self, predictions: Any) -> Predictions:
        """Return predictions for each metric, and the order they are in."""
        if isinstance(predictions, Predictions):
            return predictions
        given, placed, order = {}, dict[int, Any](), self.order
        for name, (source, as_scores) in batches.sources_of(self, predictions).items():
            if id(source) not in placed:
                # What makes its values when it is read is read once for all metrics.
                is_read = not self.by_metric or are_named(source)
                placed[id(source)], order = self.placed(source if is_read else read_once(source))
            values = placed[id(source)]
            given[name] = self.each[name]._ranking(values) if as_scores else values
        return Predictions(given, order)

    def placed(self, predictions: Any) -> answering.Placed:
        """Return one set of predictions in the order of the rows, and that order."""
        if isinstance(predictions, NamedPredictions):
            guard = self.guard()
            if not predictions.by_ids:
                return predictions.in_order_of(guard.rows.X), guard.order
            known = self.read(lambda tx, ladder: tx.known(ladder.holdout_id))
            places = order_by_ids(known, predictions)[matching.inverse(guard.order)]
            return copies.take(predictions.values, places), guard.order
        if self.foreign and self.order is None:
            raise InvalidArgument(
                "predictions",
                "submitted where the rows were given",
                "in another process",
                "The rows came in another order than the registered one, which this process "
                "does not know; submit an estimator, or give the rows in their first order.",
            )
        if index_of(predictions) is not None:
            predictions = by_index(predictions, self.guard().rows)
        return predictions, self.order

    def _ranking(self, predictions: Any) -> Any:
        """Return the probabilities of the positive class, which rank the rows as scores do."""
        if np.ndim(predictions) != 2:
            return predictions
        holdout = self.guard().holdout
        table = get_metric("neg_brier_score").canonical(predictions, holdout.n, holdout.classes)
        return table[:, self.metric.positive_place(holdout.classes)]

    def predict(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Predictions:
        """Return what an estimator predicts on the rows, as these fitted pipelines leave them.

        It is asked once for all metrics that take the same.
        """
        with without_frames:
            guards, lead = self.guards(), self.guard()
            lead.check_rows()
            with without_autologging():
                X, answers = open_ladder.transformed(lead.rows.X, steps), dict[str, Any]()
                by_name = {
                    name: guard.metric.respond(estimator, X, lead.holdout.classes, answers)
                    for name, guard in guards.items()
                }
                return Predictions(by_name)

    def fix(self, predictions: Any) -> Predictions:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        with without_frames:
            given, fixed = self._placed(predictions), {}
            for name, guard in self.guards().items():
                n, classes = guard.holdout.n, guard.holdout.classes
                with answering.naming(name), without_autologging():
                    aligned = guard.metric.canonical(given.values[name], n, classes)
                fixed[name] = guard.metric.as_submitted(aligned, classes)
            return Predictions(fixed, given.order)

    # -- commands ---------------------------------------------------------------------

    def execute(
        self,
        command: commands.Command[A],
        *,
        confidence: float | None = None,
        shown: bool = True,
        per_day: int | None = None,
    ) -> A:
        """Do what a command asks for, and return its answer.

        Parameters
        ----------
        command : Command
        confidence, shown
            As for `OpenLadder.execute`.
        per_day : int, optional
            How much the account may submit a day.
        """
        if isinstance(command, _OF_ONE_METRIC):
            open_ladder.of_one_metric(self)
        if shown and command.shows:
            seen.note_shown()
        answer: Any = self._answer(command, confidence, per_day)
        return answer  # type: ignore[no-any-return]

    def _answer(
        self, command: commands.Command[Any], confidence: float | None, per_day: int | None
    ) -> Any:
        match command:
            case commands.Submit():
                return self.submit(command.given, command.origin(command.key, per_day))
            case commands.Decide():
                gate = {"margin": command.margin, "baseline": command.baseline}
                origin = command.origin(command.key, per_day, **gate)
                return self.decide(command.given, origin)
            case commands.SubmitBatch():
                return self._batch(command, per_day)
            case commands.State():
                return self.read(partial(state_of, metric=self.metric))
            case commands.Status():
                return self._status()
            case commands.History():
                return self.read(partial(page_of, self, command))
            case commands.Health():
                return health_of(self, command.more, command.spent_at)
            case commands.Certificate():
                return on_record.known_certificate(self)[0]
            case commands.Certify():
                return self._of_each(partial(on_record.certificate, confidence=confidence))
            case commands.Estimate():
                return self._of_each(estimate)
            case commands.Reveal():
                record = self.write(lambda tx, record: tx.reveal(record))
                return self.metric.to_score(record.state["standing"]) if record.incumbent else None
            case commands.Compare():
                with without_frames:
                    first, second = (
                        side if isinstance(side, int) else self._placed(side.given)
                        for side in (command.first, command.second)
                    )
                    with verdicts.asked_by(self.guard().asker()):
                        return on_record.compared(self, (first, second), confidence, per_day)
            case commands.Withdraw():
                return self.write(partial(withdraw, self.metric, command))
            case commands.Retire():
                return self.write(lambda tx, record: tx.retire(record.holdout_id)).retired
            case commands.Rows():
                return self.rows().X
            case commands.RowGroups():
                groups = self.rows().groups
                return np.zeros(0, dtype=np.uint64) if groups is None else groups
            case commands.RowOrder():
                return order_of(self.rows().X, command.hashes)
            case commands.NoteRows():
                return self.note_rows(command.rows, open_ladder.TRAINING_ROWS)
            case commands.NoteGroups():
                return self.note_groups(command.by)
        raise TypeError(f"{command.word} is no command of a ladder alone")

    def _status(self) -> Status:
        shown_at = place.shown(self.ledger)
        guards = {name: certify.guard_if_here(one) for name, one in self.each.items()}

        def read(tx: Transaction, _: LadderRecord) -> Status:
            statuses = {}
            for name, record in self.records(tx).items():
                metric, guard = self.each[name].metric, guards[name]
                statuses[name] = status_of(tx, record, metric, guard, shown_at)
            return together(statuses)

        return self.read(read)

    def _batch(self, command: commands.SubmitBatch, per_day: int | None) -> tuple[Release, ...]:
        """Submit a batch: it is refused as a whole, or accepted as a whole."""
        key = command.key or np.random.default_rng().bytes(16).hex()
        fixed = [self.fix(member.given) for member in command.submissions]
        # Under the same key, other predictions are another batch: they may know the answers.
        name = hashlib.sha256(f"batch {self.facts.account} {key}".encode())
        for predictions in fixed:
            values = predictions.values[ALONE]
            name.update((values.astype(str) if values.dtype.kind == "O" else values).tobytes())
        origins = []
        for number, member in enumerate(command.submissions, 1):
            origin = member.origin(f"{key} {number}", per_day)
            # By what rule a training run stopped is known where the run is, and not from afar.
            context = {k: v for k, v in origin.context.items() if k != "stopping"}
            origins.append(replace(origin, context=context))
        return self.submit_all(fixed, open_ladder.announced(name.hexdigest()[:32], origins))

    def reserve_certificate(self, confidence: float | None) -> ScoreCertificate:
        """Certify the incumbent of each metric by a query of the reserve."""
        seen.note_shown()
        return self._of_each(partial(on_record.reserve_certificate, confidence=confidence))

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, in one transaction."""
        open_ladder.of_one_metric(self)
        return self.read(
            lambda tx, record: unsent(tx, record, self.metric, after=after, raw=raw, limit=limit)
        )

    # -- what is put on record ----------------------------------------------------------

    def note_groups(self, by: str, holder: str | None = None) -> None:
        """Put on record what shows that the rows come in groups, and which account states it."""
        if by not in self.read(lambda tx, it: tx.fold(it.holdout_id).grouped()):
            self.write(lambda tx, it: tx.note_grouped(it.holdout_id, by, holder))

    def note_rows(self, rows: int, source: str) -> None:
        """Put on record how many rows of the holdout were seen elsewhere, and where."""
        self.write(lambda tx, record: tx.note_overlap(record.holdout_id, source, rows))

    def forget(self) -> None:
        """Take back the registration, and remove the copies of the rows."""
        for path in self.write(lambda tx, record: tx.forget(record.holdout_id)):
            vaults.remove(path)

    # -- the ledger -------------------------------------------------------------------

    def read(self, body: Body[T], *, shown: bool = False) -> T:
        """Read one state of the ledger, once more where its server was lost on the way.

        What is `shown` to somebody may decide what is built from then on.
        """
        if shown:
            seen.note_shown()
        with without_frames:
            return store.Ledger.opened(self.ledger).transact(
                lambda tx: body(tx, tx.ladder(self.id, self.since)), place.Access.READ
            )

    def records(self, tx: Transaction) -> dict[str, LadderRecord]:
        """Return the record of the ladder of each metric."""
        return {name: tx.ladder(one.id, one.since) for name, one in self.each.items()}

    def write(self, body: Body[T]) -> T:
        """Write to the ladder."""
        with without_frames:
            return store.Ledger.opened(self.ledger).transact(
                lambda tx: body(tx, tx.locked_ladder(self.id, self.since)), place.Access.LADDER
            )

    def alone(self, body: Callable[[], T]) -> T:
        """Do something while nobody else does it on this ladder."""
        return self.write(lambda *_: body())

    # -- the rows, once for each process ----------------------------------------------

    def rows(self, *, checked: bool = False) -> open_ladder.HeldRows:
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
        order_known = self.order is not None or not self.foreign
        names = None if guard.groups is None else guard.groups.names
        held = guard.rows.X, guard.hashes, self.view, order_known, guard.rows.y, names
        return open_ladder.HeldRows(*held, self._other_blocks)

    def _other_blocks(self) -> open_ladder.OtherBlocks:
        """Return the rows of earlier and of later blocks, each of which is read once."""
        parts: open_ladder.OtherBlocks = [], []

        def read(tx: Transaction, record: LadderRecord) -> open_ladder.OtherBlocks:
            own = tx.holdout(record.holdout_id)
            for block in tx.blocks(parted_name(own.name)[0]):
                if block.id == own.id:
                    continue
                if (key := (*self._key, block.id)) not in _blocks:
                    _blocks[key] = tuple(np.sort(view.row_hashes) for view in tx.views(block.id))
                parts[block.number > own.block].extend(_blocks[key])
            return parts

        return self.read(read)

    def guard(self, like: Guard | None = None, record: LadderRecord | None = None) -> Guard:
        """Return the rows, labels and rules as this process holds them.

        Parameters
        ----------
        like : Guard, optional
            That of another ladder of the holdout, by which the rows are in memory once.
        record : LadderRecord, optional
            That of this ladder, where it was read.
        """
        key = self._place_of_guard
        with without_frames, _lock():
            if key not in _guards and like is not None:
                record = record or self.read(lambda tx, record: record)
                _guards[key] = like.of_ladder(record, self.metric)
            if key not in _guards:
                _guards[key] = self._load()
            return _guards[key]

    def keep(self, guard: Guard) -> None:
        """Take these rows for the ladder's, which they were found to be."""
        with _lock():
            _guards[self._place_of_guard] = guard

    def guards(self) -> dict[str, Guard]:
        """Return the guard of each metric."""
        lead = self.guard()
        if not self.by_metric:
            return {ALONE: lead}
        return {name: ladder.guard(lead) for name, ladder in self.by_metric.items()}

    def _load(self) -> Guard:
        """Bring the ladder back in a process that was not given the rows."""
        ladder, kept = self.read(
            lambda tx, ladder: (ladder, read_kept(tx, ladder.holdout_id, self.view))
        )
        rows = self.carried or kept.rows()
        opened, order = store.Ledger.opened(self.ledger), kept.order(rows)
        if self.first_order:
            rows, order = kept.in_first_order(rows, order)
        hashes = np.sort(kept.view.row_hashes)
        found = opened, kept.record, ladder, self.metric, rows, self.view, hashes, order
        return Guard(*found, kept.groups)

    def beside(self, ladder: LadderRecord) -> LocalLadder:
        """Return another ladder on this holdout by the same metric, under its own rules."""
        beside = replace(self, id=ladder.id, since=ladder.created)
        # Rows that are missing are missed where they are needed, and not by who reads releases.
        with suppress(VaultError, InvalidArgument):
            beside.guard(self.guard(), ladder)
        return beside

    # -- passing it around ------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        if place.is_memory(self.ledger):
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
        own = self._key, self.by_metric
        return isinstance(other, LocalLadder) and own == (other._key, other.by_metric)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        ledger = f"ledger={place.shown(self.ledger)!r}"
        if self.by_metric:
            ids = [one.id for one in self.by_metric.values()]
            return f"LocalLadder(ladders={ids}, metrics={list(self.by_metric)}, {ledger})"
        return f"LocalLadder(ladder={self.id}, metric={self.metric.name!r}, {ledger})"


def withdraw(
    metric: Metric, asked: commands.Withdraw, tx: Transaction, ladder: LadderRecord
) -> commands.Withdrawn:
    """Withdraw a submission of a ladder that was read under lock; see `holdout.owner.withdraw`."""
    number, reason = whole("number", asked.submission), reason_in(asked.reason)
    rule = rules.rules_of(ladder.settings).mechanism
    if rule.needs_account:
        raise HoldoutConflict(
            "A ladder for each rank compares accounts with each other, so that no submission of "
            "one can be withdrawn. Retire the holdout, or go on."
        )
    if number > ladder.submissions:
        allowed = f"the number of one of the {ladder.submissions} submissions of this ladder"
        raise InvalidArgument("number", allowed, "a larger one", "history() lists them.")
    entry = tx.submission(ladder.id, number)
    first = entry.repeat_of or entry.number
    if (before := ladder.why_withdrawn(entry)) is not None:
        raise HoldoutConflict(f"Submission {first} is withdrawn already: {before}")
    # Noise that is drawn anew for the same predictions could be averaged away.
    after = tx.withdraw(ladder, first, reason, again=not (rule.noisy or rule.redraws))
    done, again = after.withdrawn[-1], tuple[int, ...]()
    if done.replaced and done.again:
        since = tx.entries(ladder.id, after=done.number, limit=done.until - done.number)
        others = (one for one in since if one.repeat_of is None and not one.improved)
        again = tuple(one.number for one in others if after.why_withdrawn(one) is None)
    score = score_of(after.released, metric)
    return commands.Withdrawn(first, reason, after.incumbent, score, again)


def reason_in(reason: object) -> str:
    """Return a reason that is put on record, if it is one."""
    return text("reason", reason, 1000, "Auditors will read it: write what happened.")


def withdraw_note(tx: Transaction, ladder: LadderRecord, by: str, reason: str) -> None:
    """Withdraw a note that the rows come in groups."""
    notes = tuple(tx.fold(ladder.holdout_id).grouped())
    if by not in notes:
        raise InvalidArgument("by", f"one of the notes of groups on record, {notes}", by)
    tx.note(ladder.holdout_id, "grouped", by=by, withdrawn=reason)


_OF_ONE_METRIC = commands.Reveal, commands.Compare, commands.Withdraw
"""A score that is shown is paid for, and a submission is withdrawn from one ladder."""


def page_of(
    ladder: LocalLadder, asked: commands.History, tx: Transaction, first: LadderRecord
) -> commands.Page:
    """Return a page of the history, each submission with all of its metrics."""
    entries = tx.entries(first.id, after=asked.after, limit=asked.limit, search=asked.search)
    lead, *others = records = ladder.records(tx)
    # The number of each on each ladder that it went to; a note of the user may have this name.
    notes = (entry.context.get(TOGETHER) for entry in entries)
    links = [note if isinstance(note, Mapping) else {} for note in notes]
    by_metric = [{lead: entry} for entry in entries]
    for name in others:
        numbers = [link[name] for link in links if name in link]
        start, end = min(numbers, default=1) - 1, max(numbers, default=0)
        beside = tx.entries(records[name].id, after=start, limit=end - start)
        known = {entry.number: entry for entry in beside}
        for own, link in zip(by_metric, links, strict=True):
            if link.get(name) in known:
                own[name] = known[link[name]]
    metrics = {name: each.metric for name, each in ladder.each.items()}
    lines = tuple(
        together({name: submission_of(own[name], records[name], metrics[name]) for name in own})
        for own in by_metric
    )
    return commands.Page(lines, first.submissions, first.incumbent)


def order_of(X: Any, hashes: Any) -> NDArray[np.int64]:
    """Return where each row of a holdout is among rows of these hashes."""
    known = hashing.row_hashes(X)
    # Of rows with equal features the first is taken for the first.
    order = matching.placed(known, np.asarray(hashes))
    if order is None:
        raise InvalidArgument(
            "X",
            f"the {len(known)} rows of the holdout, in any order",
            "others, or some of them with other values",
            "Give the rows with the features that were registered, or leave X out where the "
            "owner shares them.",
        )
    return order


def beside_ledger(ladder: open_ladder.OpenLadder, what: str) -> LocalLadder:
    """Return a ladder whose ledger this process reaches; refuse others with what is done there."""
    if isinstance(ladder, LocalLadder):
        return ladder
    raise HoldoutConflict(
        f"{what} where the ledger is, by its owner: this holdout is behind {ladder.ledger}."
    )


def state_of(tx: Transaction, ladder: LadderRecord, metric: Metric) -> open_ladder.State:
    """Return what changes of a ladder and its holdout."""
    return open_ladder.State(
        submissions=ladder.submissions,
        releases=ladder.state["releases"],
        incumbent=ladder.incumbent,
        released=score_of(ladder.released, metric),
        opened=ladder.opened,
        retired=tx.holdout(ladder.holdout_id).retired,
        has_ids=tx.has_ids(ladder.holdout_id),
    )
