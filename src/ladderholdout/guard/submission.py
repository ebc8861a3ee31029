"""One submission: predictions in, one transaction, one release out."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import BudgetWarning, DailyLimit, HoldoutConflict, OpenedWarning, warn
from ladderholdout.guard.containment import without_autologging
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.guard.record_views import releases_left
from ladderholdout.guard.reserved_rows import Part, parts_of
from ladderholdout.guard.shown import note_answer
from ladderholdout.guard.stored_rows import read_kept, with_labels
from ladderholdout.guard.views import Release
from ladderholdout.guard.withdrawal import is_withdrawn
from ladderholdout.identity import held_digest
from ladderholdout.ledger import (
    Access,
    Asked,
    First,
    Head,
    HoldoutRecord,
    LadderRecord,
    Ledger,
    Left,
    Stale,
    Transaction,
    digests_of,
    is_server,
)
from ladderholdout.ledger.records import now
from ladderholdout.ledger.replay import NOT_IMPROVED, not_improved, rules_of, state_from, state_to
from ladderholdout.mechanisms.base import Evidence, Outcome, State
from ladderholdout.mechanisms.rules import LadderRules, rng_of
from ladderholdout.metrics import Evaluation, Metric
from ladderholdout.vault import Rows

T = TypeVar("T")

_EVIDENCE = [one.name for one in fields(Evidence)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Labelled:
    """The rows with one version of their labels, in parts."""

    version: int
    rows: Rows
    part: Part
    reserve: Part | None
    digest: int

    def check(self, name: str) -> None:
        """Refuse labels or weights that something wrote into since they were read."""
        if _digest_of(self.part, self.reserve) != self.digest:
            raise _written_into(name, "labels or weights")


def _digest_of(*parts: Part | None) -> int:
    """Return a quick digest of the targets and weights of parts."""
    digest = 0
    for part in parts:
        for array in () if part is None else (part.targets, part.weights):
            if array is not None:
                digest = zlib.crc32(array.reshape(-1).view(np.uint8).data, digest)
    return digest


def _written_into(name: str, what: str) -> HoldoutConflict:
    return HoldoutConflict(
        f"The {what} of {name!r} that this process holds were written into since it was opened. "
        "Nothing was submitted. Open it again with its rows, LadderHoldout(X, y, ...)."
    )


_Known: TypeAlias = tuple[tuple[int, int], NDArray[Any], Evaluation]
"""An incumbent: the versions of ladder and labels, its predictions, what they measure."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Measured:
    """What was submitted, measured on one version of the labels.

    `predictions` are in the order of the content.
    """

    predictions: NDArray[Any]
    digests: tuple[str, str | None]
    evaluation: Evaluation
    origin: Origin
    version: int
    # When it came, and not when it was decided: how long that took must not be on record.
    time: datetime

    @property
    def asked(self) -> Asked:
        """What it is searched by."""
        return Asked(*self.digests, self.origin.key)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answer:
    """The answer to a submission inside its transaction, and the ladder after it.

    `spent` is true where it used up the budget; `incumbent` is there where this transaction has
    changed it. `first` is what repeats of the predictions are answered from, unless a key was;
    `began` has the batch of the ladder's first submission, where it was asked for.
    """

    release: Release
    ladder: LadderRecord
    spent: bool
    incumbent: _Known | None
    first: First | None
    began: tuple[str | None] | None


class _Judged(NamedTuple):
    """What a transaction answered, from which end of the chain on, and what it left."""

    answers: list[Answer]
    before: Head
    left: Left


# How many answers a process remembers of its own submissions to a ladder.
_REMEMBERED = 250


@dataclass(slots=True, repr=False)
class _Course:
    """What a process knows of a ladder on a server from its own last submission to it.

    Who submits alone need not read the ladder first: the server refuses what rests on a ladder
    that has changed. Where others submit meanwhile, that would be in vain each time.
    """

    _left: Left | None = None
    # Whether the last submission could have rested on the one before it.
    _alone: bool = True
    # By their digests. What repeats are answered changes with a withdrawal alone, and after one it
    # is read (`Transaction.first`).
    _firsts: dict[str, First] = field(default_factory=dict)

    def left_for(self, asked: Sequence[Asked]) -> Left | None:
        """Return the ladder as it was left, for submissions that may rest on it."""
        # Where there is a reserve all is read: how long it takes must not show which predictions
        # differ on its rows alone.
        return self._left if self._alone and not asked[0].reserve_digest else None

    def remembered(self, asked: Asked) -> Asked:
        """Return what is asked for with what is known of it here."""
        return asked._replace(first=self._firsts.get(asked.digest))

    def note(self, judged: _Judged, asked: Sequence[Asked]) -> None:
        """Take note of what was committed."""
        self._alone = self._left is None or self._left.end.head == judged.before
        self._left = judged.left
        for one, answer in zip(asked, judged.answers, strict=True):
            first, number = answer.first, answer.release.submission
            # What the ledger alone knows is refused, and there may be more of it.
            if first is None or not (first.number == number or one.digest in self._firsts):
                self._alone = False
            if first is not None:
                self._firsts[one.digest] = first
        if len(self._firsts) > _REMEMBERED:
            self._firsts.clear()


@dataclass(slots=True, repr=False)
class Guard:
    """A ladder as one process holds it: the rules, the labels, the incumbent.

    Predictions are kept in the order of the content of the rows as first registered, not in
    anybody's row order, so that shuffled rows, and views with other features, continue the same
    ladder. The ladder measures its `part` of
    them; those for the reserve are kept for the incumbent, and queried by `certify` alone.
    """

    ledger: Ledger
    holdout: HoldoutRecord
    ladder_id: int
    since: datetime
    metric: Metric
    rules: LadderRules
    view: int
    order: NDArray[np.intp]
    hashes: NDArray[np.uint64]
    labelled: Labelled
    # Of the features as this process holds them, to find out whether something wrote into them.
    digest: int
    _incumbent: _Known | None = field(default=None, init=False)
    # The batch of the ladder's first submission, which stays that one.
    _began: tuple[str | None] | None = field(default=None, init=False)
    _course: _Course | None = field(init=False)

    def __post_init__(self) -> None:
        """Know of no submission yet."""
        self._course = _Course() if is_server(self.ledger.url) else None

    @property
    def rows(self) -> Rows:
        """The rows of this view."""
        return self.labelled.rows

    @property
    def part(self) -> Part:
        """What the ladders measure."""
        return self.labelled.part

    @property
    def reserve(self) -> Part | None:
        """What no ladder measures."""
        return self.labelled.reserve

    def submit(
        self, predictions: Any, origin: Origin, *, order: NDArray[np.intp] | None = None
    ) -> Release:
        """Judge one set of predictions; the release is in the ledger before it returns.

        Parameters
        ----------
        predictions : array-like, shape (n,) or (n, n_classes)
            One for each row, in the order that `order` sorts.
        origin : Origin
        order : ndarray or None
            The order of the caller's rows; None for the order of `rows`.
        """
        (release,) = self.submit_rounds([predictions], [origin], order=order)
        return release

    def submit_rounds(
        self,
        predictions: Sequence[Any],
        origins: Sequence[Origin],
        *,
        order: NDArray[np.intp] | None = None,
    ) -> tuple[Release, ...]:
        """Judge the rounds of one training run in their order, in one transaction.

        The parameters as for `submit`; all are in the ledger before it returns, or none.
        """
        # A rule may measure once more, with other weights, so it steps under this as well.
        with without_autologging():
            while True:
                measured = [
                    self.measure(one, origin, order)
                    for one, origin in zip(predictions, origins, strict=True)
                ]
                answers = self._answers_to(measured)
                if answers is not None:
                    return tuple(map(self.settle, answers))
                self.reload()

    def _answers_to(self, measured: Sequence[Measured]) -> list[Answer] | None:
        """Answer what was measured, in one transaction; None where labels were amended since."""
        answer = partial(
            self.ledger.write_to,
            self.ladder_id,
            self.since,
            partial(self._judge_rounds, measured=measured),
        )
        asked, course = [one.asked for one in measured], self._course
        judged, left = None, course and course.left_for(asked)
        if course and left:
            with suppress(Stale):
                judged = answer(asked=[*map(course.remembered, asked)], left=left)
        # Where there is a reserve, rounds that agree on all other rows are asked for one by one.
        ahead = asked if self.reserve is None or len(asked) == 1 else ()
        judged = judged or answer(asked=ahead)
        if judged is None:
            return None
        if course:
            course.note(judged, asked)
        return judged.answers

    def measure(
        self, predictions: Any, origin: Origin, order: NDArray[np.intp] | None = None
    ) -> Measured:
        """Measure predictions, or refuse them; nothing is written. The arguments as of `submit`."""
        if origin.batch is None:
            # From within a fit, perhaps: what is scored next may depend on the answer.
            note_answer()
        time, labelled = now(), self.labelled
        labelled.check(self.holdout.name)
        aligned = self.metric.canonical(predictions, self.holdout.n, self.holdout.classes)
        aligned = aligned.take(self.order if order is None else order, axis=0)
        digests = digests_of(self.holdout.secret, aligned, self.holdout.reserve)
        evaluation = labelled.part.evaluate(self.metric, aligned)
        if origin.account is not None:
            evaluation = evaluation.by(origin.account)
        return Measured(aligned, digests, evaluation, origin, labelled.version, time)

    def is_amended(self, tx: Transaction, measured: Measured) -> bool:
        """Return whether labels were amended since something was measured."""
        return tx.chains.end(self.holdout.id).labels_version != measured.version

    def _judge_rounds(
        self, tx: Transaction, ladder: LadderRecord, measured: Sequence[Measured]
    ) -> _Judged | None:
        """Answer inside a transaction; None where labels were amended meanwhile."""
        if self.is_amended(tx, measured[0]):
            return None
        found: list[Answer] = []
        answer, end = None, tx.chains.end(self.holdout.id)
        before = end.head
        for one in measured:
            answer = self.judge(tx, ladder, one, answer, more=len(found) + 1 < len(measured))
            ladder = answer.ladder
            tx.remember(ladder, one.asked, answer.first)
            found.append(answer)
        return _Judged(found, before, Left(ladder, end))

    def judge(
        self,
        tx: Transaction,
        ladder: LadderRecord,
        measured: Measured,
        before: Answer | None = None,
        *,
        more: bool = False,
    ) -> Answer:
        """Answer what was measured, and record it.

        Parameters
        ----------
        tx : Transaction
        ladder : LadderRecord
            As read under lock, or as an earlier answer of this transaction left it.
        measured : Measured
        before : Answer or None
            The answer before it in this transaction.
        more : bool, default=False
            As for `Transaction.append`.
        """
        origin, first = measured.origin, None
        # An attempt under the same key again: its first answer, whatever it predicts.
        if origin.key is not None:
            first = tx.first_by_key(ladder, origin.key)
        keyed = same = first is not None
        if first is None:
            if origin.per_day is not None:
                _refuse_beyond(tx, ladder, origin.per_day)
            first, everywhere = tx.first(ladder, *measured.digests)
            # Any other is answered like a query that does not improve, and so shows
            # nothing of the rows on which predictions agree.
            same = everywhere and first is not None and first.improved
        same = same and not is_withdrawn(first, ladder)
        if first is not None:
            answer = self._repeat(tx, ladder, first, same, measured, before, more)
            return replace(answer, first=None) if keyed else answer
        return self._step(tx, ladder, measured, before, more)

    def settle(self, answer: Answer) -> Release:
        """Take note of an answer that was committed, and return the release."""
        # It is in the ledger by now: the next submission need not read it back.
        self._incumbent = answer.incumbent or self._incumbent
        self._began = answer.began or self._began
        if answer.spent:
            warn(
                f"The {self.rules.budget} releases of this ladder are used up: the released "
                "score stays, whatever is submitted from now on.",
                BudgetWarning,
            )
        if answer.release.opened:
            warn(
                "An audit has shown raw scores of this ladder: the submission is recorded, but "
                + ("certified by the reserve alone." if self.reserve else "can not be certified."),
                OpenedWarning,
            )
        return answer.release

    def check_rows(self) -> None:
        """Refuse features that something wrote into since they were opened; HoldoutConflict."""
        if held_digest(self.rows.X) != self.digest:
            raise _written_into(self.holdout.name, "features")

    def of_ladder(self, ladder: LadderRecord, metric: Metric) -> Guard:
        """Return the guard of another ladder on the same rows, which are in memory once."""
        return replace(
            self,
            ladder_id=ladder.id,
            since=ladder.created,
            metric=metric,
            rules=rules_of(ladder.settings),
            labelled=_labelled(self.holdout, metric, self.rows, self.order),
        )

    def reload(self) -> None:
        """Read the labels again: they were amended."""
        kept = self.ledger.transact(
            lambda tx: read_kept(tx, self.holdout.id, self.view), Access.READ
        )
        if kept.view.vault_path is None:
            raise HoldoutConflict(
                f"Labels of {kept.record.name!r} were amended since it was opened here, and no "
                "copy of the rows is kept (vault=False). Open it again with its rows and labels "
                "as they are now: LadderHoldout(X, y, ...)."
            )
        theirs = kept.rows()
        rows = with_labels(self.rows, self.order, theirs.y[kept.order(theirs)])
        self.labelled = _labelled(kept.record, self.metric, rows, self.order)

    def write(self, body: Callable[[Transaction, LadderRecord], T]) -> T:
        """Write to the ladder."""
        return self.ledger.write_to(self.ladder_id, self.since, body)

    def _step(
        self,
        tx: Transaction,
        ladder: LadderRecord,
        measured: Measured,
        before: Answer | None,
        more: bool,
    ) -> Answer:
        predictions, evaluation = measured.predictions, measured.evaluation
        origin = measured.origin
        known = before.incumbent if before else None
        state, incumbent = self._state_of(tx, ladder, known)
        began = before.began if before else None
        began = began or self._began_with(tx, ladder, origin.batch)
        of_first = origin.batch is not None and began == (origin.batch,)
        after, outcome = self._decided(ladder, state, evaluation)
        ladder = tx.append(
            ladder,
            entry={
                **self._columns(measured, incumbent),
                "key": origin.key,
                "released_risk": outcome.risk,
                "improved": outcome.improved,
            },
            evidence={name: getattr(outcome.evidence, name) for name in _EVIDENCE},
            state=state_to(after),
            incumbent=predictions if outcome.improved else None,
            candidate=predictions if of_first else None,
            more=more,
        )
        left = releases_left(ladder, after.releases)
        opened = ladder.opened is not None
        release = Release(
            self._score_of(outcome.risk), outcome.improved, ladder.submissions, left, opened,
            ladder.version,
        )  # fmt: skip
        if outcome.improved:
            known = (ladder.version, self.labelled.version), predictions, evaluation
        spent = left == 0 and after.releases > state.releases
        level = release.improvements
        first = First(release.submission, outcome.risk, outcome.improved, level=level)
        return Answer(release, ladder, spent, known, first, began)

    def _repeat(
        self,
        tx: Transaction,
        ladder: LadderRecord,
        first: First,
        same: bool,
        measured: Measured,
        before: Answer | None,
        more: bool,
    ) -> Answer:
        known = before.incumbent if before else None
        state, incumbent = self._state_of(tx, ladder, known)
        if self.reserve is not None:
            # For nothing: how long it takes must not show which rows are the reserve's.
            self._decided(ladder, state, measured.evaluation)
        if same:
            level = first.level
            if level is None:
                level = tx.improvements(ladder.id, first.number)
            answer, first = (first.risk, first.improved), first._replace(level=level)
        else:  # without that count, whose time would reveal such a repeat
            answer = not_improved(self.rules, ladder.state["standing"], first.risk)
            level = ladder.version
        ladder = tx.append(
            ladder,
            entry={
                **self._columns(measured, incumbent),
                "repeat_of": first.number,
                "released_risk": answer[0],
                "improved": answer[1],
            },
            evidence={} if same else NOT_IMPROVED,
            more=more,
        )
        left = releases_left(ladder, ladder.state["releases"])
        opened = ladder.opened is not None
        number = ladder.submissions
        release = Release(self._score_of(answer[0]), answer[1], number, left, opened, level)
        return Answer(release, ladder, False, known, first, before.began if before else None)

    def _began_with(
        self, tx: Transaction, ladder: LadderRecord, batch: str | None
    ) -> tuple[str | None] | None:
        """Return the batch of a ladder's first submission; None where that is not of interest."""
        if not ladder.submissions:
            return (batch,)
        if self._began is None and batch is not None:
            return (tx.batches.first(ladder.id),)
        return self._began

    def _columns(self, measured: Measured, incumbent: NDArray[Any] | None) -> dict[str, Any]:
        """Return what an entry records of a submission, whatever it is answered."""
        origin = measured.origin
        return {
            "digest": measured.digests[0],
            "reserve_digest": measured.digests[1],
            "batch": origin.batch,
            "search": origin.search,
            "place": origin.place,
            "raw_risk": measured.evaluation.risk,
            "disagreement": self._differs(measured.predictions, incumbent),
            "context": origin.context,
            "time": measured.time,
        }

    def _decided(
        self, ladder: LadderRecord, state: State, evaluation: Evaluation
    ) -> tuple[State, Outcome]:
        """Take the next submission of a ladder."""
        rng = rng_of(self.rules, self.holdout.secret, ladder.id, ladder.submissions + 1)
        return self.rules.step(state, evaluation, rng)

    def _score_of(self, risk: float) -> float | None:
        return self.metric.to_score(risk) if self.rules.mechanism.shows_values else None

    def _state_of(
        self, tx: Transaction, ladder: LadderRecord, known: _Known | None
    ) -> tuple[State, NDArray[Any] | None]:
        if ladder.incumbent is None:
            return state_from(ladder.state, self.holdout.n_ladder, None), None
        # The incumbent's predictions are read again only when another process replaced them.
        labelled = self.labelled
        place = ladder.version, labelled.version
        found = known or self._incumbent
        if found is None or found[0] != place:
            stored = tx.incumbent_predictions(ladder.id)
            assert stored is not None
            found = place, stored, labelled.part.evaluate(self.metric, stored)
            self._incumbent = found
        _, predictions, evaluation = found
        return state_from(ladder.state, self.holdout.n_ladder, evaluation), predictions

    def _differs(self, predictions: NDArray[Any], incumbent: NDArray[Any] | None) -> float | None:
        """Return the disagreement on what the ladder measures."""
        theirs = None if incumbent is None else self.part.of(incumbent)
        return disagreement(self.part.of(predictions), theirs)


class LedgerLadder(Protocol):
    """A ladder beside its ledger, as the other modules of the guard use it."""

    metric: Metric

    def guard(self) -> Guard:
        """Return the rows, labels and rules as this process holds them."""

    def read(self, body: Callable[[Transaction, LadderRecord], T]) -> T:
        """Read one state of the ledger."""

    def write(self, body: Callable[[Transaction, LadderRecord], T]) -> T:
        """Write to the ladder."""


def _refuse_beyond(tx: Transaction, ladder: LadderRecord, per_day: int) -> None:
    """Refuse one more submission than a day may have, before anything is decided."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if tx.accounts.has_made(ladder, per_day, today):
        raise DailyLimit(
            f"This account has made its {per_day} submissions of today. It may submit again from "
            "00:00 UTC on."
        )


def make_guard(
    ledger: Ledger,
    holdout: HoldoutRecord,
    ladder: LadderRecord,
    metric: Metric,
    rows: Rows,
    view: int,
    hashes: NDArray[np.uint64],
    order: NDArray[np.intp],
) -> Guard:
    """Bring a ladder, its metric and its rows together, with the sorted hashes of the rows.

    `order` is that of the content.
    """
    return Guard(
        ledger,
        holdout,
        ladder.id,
        ladder.created,
        metric,
        rules_of(ladder.settings),
        view,
        order,
        hashes,
        _labelled(holdout, metric, rows, order),
        held_digest(rows.X),
    )


def _labelled(
    holdout: HoldoutRecord, metric: Metric, rows: Rows, order: NDArray[np.intp]
) -> Labelled:
    weights = None if rows.sample_weight is None else rows.sample_weight[order]
    with without_autologging():
        # Positions of classes, as of predictions, in half the bytes until they are in order.
        targets = (
            metric.targets(rows.y, holdout.classes).astype(np.int32)[order].astype(np.intp)
            if metric.is_classification
            else metric.targets(rows.y, holdout.classes)[order]
        )
    part, reserve = parts_of(targets, weights, holdout.reserve)
    digest = _digest_of(part, reserve)
    return Labelled(holdout.labels_version, rows, part, reserve, digest)


def disagreement(predictions: NDArray[Any], incumbent: NDArray[Any] | None) -> float | None:
    """Return how far predictions are from the incumbent's; labels play no part.

    Returns
    -------
    float or None
        For class codes the share of examples that differ, for real values the mean
        absolute difference; None without a comparable incumbent.
    """
    if incumbent is None or incumbent.shape != predictions.shape:
        return None
    if predictions.dtype.kind == "f":
        return _mean_in_any_order(np.abs(predictions - incumbent))
    return np.count_nonzero(predictions != incumbent) / predictions.size


def _mean_in_any_order(values: NDArray[np.float64]) -> float:
    """Return the mean of numbers that are not negative, whatever order they come in.

    Summed in the order of the content, which the labels decide, the last digit would show something
    about them. As whole numbers of so many bits that no sum is rounded, it does not.
    """
    largest = float(values.max())
    if largest == 0:
        return 0.0
    bits = 62 - values.size.bit_length() - math.frexp(largest)[1]
    total = int(np.ldexp(values, bits).astype(np.int64).sum())
    return math.ldexp(total / values.size, -bits)
