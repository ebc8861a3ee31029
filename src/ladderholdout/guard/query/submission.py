"""One submission: predictions in, one transaction, one release out."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import Rows as ScoredRows
from ladderholdout.certificates.group_limits import Groups
from ladderholdout.errors import BudgetWarning, HoldoutConflict, OpenedWarning, warn
from ladderholdout.guard.containment import without_autologging
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.guard.opening import Part, parts_of, read_kept, with_labels
from ladderholdout.guard.query.seen import note_answer, refuse_beyond
from ladderholdout.guard.shown import (
    Decision,
    Release,
    is_withdrawn,
    reason_of,
    releases_left,
    why_spent,
)
from ladderholdout.identity import held_digest
from ladderholdout.ledger.arrays import digests_of
from ladderholdout.ledger.events import BatchAnnounced, Submitted
from ladderholdout.ledger.fold import Head, HoldoutRecord, LadderRecord, Waiting, refuse_retired
from ladderholdout.ledger.log import now
from ladderholdout.ledger.place import Access, is_server
from ladderholdout.ledger.postgres import Stale
from ladderholdout.ledger.rules import not_improved, rules_of, state_from, state_to
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import HELD, KNOWN, NOT_IMPROVED, Asked, Left, Transaction
from ladderholdout.mechanisms.base import Evidence, State
from ladderholdout.mechanisms.rules import LadderRules, rng_of
from ladderholdout.metrics import Evaluation, Metric
from ladderholdout.metrics.arrays import index_of, indexed
from ladderholdout.metrics.table import is_named
from ladderholdout.metrics.verdicts import asked_by
from ladderholdout.vault import Rows

T = TypeVar("T")

# The margin is of gates alone, and left out for other rules.
_EVIDENCE = [known.name for known in fields(Evidence) if known.name != "margin"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Labelled:
    """The rows with one version of their labels, in parts."""

    version: int
    rows: Rows
    part: Part
    reserve: Part | None
    digest: int
    # Of all rows, in the order of the content.
    groups: Groups | None


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
    # What the ledger is searched for.
    asked: Asked
    evaluation: Evaluation
    origin: Origin
    labelled: Labelled
    # When it came, and not when it was decided: how long that took must not be on record.
    time: datetime
    waited: Waiting | None = None  # for the end of a round


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answer:
    """The answer to a submission inside its transaction, and the ladder after it.

    `spent` is true where it used up the budget; `incumbent` is there where this transaction has
    changed it. `first` is what repeats of the predictions are answered from, unless a key was.
    `price` is what was shown beside the decisions of a gate (`PriceOf`). The others are of a gate,
    too, and of what it retries under a key: `against` was the incumbent before, `margin` the gain
    that was tested for, `was_spent` whether nothing could be accepted; `withdrawn` is whether it
    was since.
    """

    release: Release
    ladder: LadderRecord
    spent: bool
    incumbent: _Known | None
    first: Submitted | None
    price: float = 0.0
    against: int | None = None
    margin: float = 0.0
    was_spent: bool = False
    withdrawn: bool = False


def _number(answer: Answer) -> int:
    return answer.release.submission


def announce(tx: Transaction, ladder: LadderRecord, origin: Origin, size: int) -> None:
    """Put on record how many queries an announced batch has; none if it is submitted again."""
    if origin.announced and size:
        assert origin.batch is not None
        known = tx.hold(ladder.holdout_id)
        refuse_retired(known.name, known.retired)
        announced = BatchAnnounced(ladder=ladder.id, batch=origin.batch, size=size)
        tx.add(ladder.holdout_id, announced)


class _Judged(NamedTuple):
    """What a transaction answered, from which end of the chain on, and what it left."""

    answers: list[Answer]
    before: Head
    left: Left


PriceOf: TypeAlias = Callable[[Transaction, LadderRecord], float]
"""Returns the code length of what was shown of the rows beside the decisions of one ladder."""

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
    _firsts: dict[str, Submitted] = field(default_factory=dict)

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
        self._alone = self._left is None or self._left.end == judged.before
        self._left = judged.left
        for searched, answer in zip(asked, judged.answers, strict=True):
            first, number = answer.first, answer.release.submission
            # What the ledger alone knows is refused, and there may be more of it.
            if first is None or not (first.number == number or searched.digest in self._firsts):
                self._alone = False
            if first is not None:
                self._firsts[searched.digest] = first
        if len(self._firsts) > _REMEMBERED:
            self._firsts.clear()


@dataclass(slots=True, repr=False)
class Guard:
    """A ladder as one process holds it: the rules, the labels, the incumbent.

    Predictions are kept in the order of the content of the rows as first registered, not in
    anybody's row order, so that shuffled rows, and views with other features, continue the same
    ladder. The ladder measures its `part` of them; those for the reserve are kept for the
    incumbent, and queried by `reserve_certificate` alone.
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
    price_of: PriceOf
    _incumbent: _Known | None = field(default=None, init=False)
    # The batch of the ladder's first submission, which stays that one.
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

    def scored(self, part: Part, predictions: NDArray[Any]) -> ScoredRows:
        """Return some of the rows with predictions for all, as a bound of a score takes them."""
        classes = self.holdout.classes
        n_classes = 2 if classes is None else len(classes)
        own = part.of(predictions)
        return ScoredRows(part.targets, own, part.order_rng(), n_classes, part.groups)

    def submit(
        self, placed: Sequence[tuple[Any, NDArray[np.intp] | None]], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Judge sets of predictions, in one transaction.

        All releases are in the ledger before it returns, or none.

        Parameters
        ----------
        placed : sequence of (array-like, ndarray or None)
            Predictions for each row, shape (n,) or (n, n_classes), and the order of the caller's
            rows, in which they are; None for the order of `rows`.
        origins : sequence of Origin
            An announced batch is judged with its best member first (`best_first`).

        Returns
        -------
        tuple of Release
            In the order of `placed`.
        """
        return tuple(map(self.take_note, self._answered(placed, origins)))

    def decide(self, placed: tuple[Any, NDArray[np.intp] | None], origin: Origin) -> Decision:
        """Judge one set of predictions by a gate; the arguments as for `submit`."""
        (answer,) = self._answered([placed], [origin])
        release, incumbent = self.take_note(answer), answer.ladder.incumbent
        assert incumbent is not None
        # A retry of what was accepted and replaced since is not better than the incumbent.
        better = release.improved and release.is_incumbent
        baseline, unchanged = better and answer.against is None, release.is_incumbent and not better
        # Nothing was compared: no loop keeps a change for that, unless it asked for a baseline.
        accepted = better and (not baseline or origin.baseline)
        is_spent = answer.was_spent and not release.is_incumbent
        reason = reason_of(
            release,
            answer.against,
            incumbent,
            answer.margin * (self.rules.unit or 1.0),
            why_spent(self.rules, is_counted=math.isfinite(answer.price)) if is_spent else None,
            self.metric.clipping,
            retried=answer.first is None,
            withdrawn=answer.withdrawn,
        )
        number = release.submission
        return Decision(accepted, number, is_spent, reason, incumbent, unchanged, baseline)

    def _answered(
        self, placed: Sequence[tuple[Any, NDArray[np.intp] | None]], origins: Sequence[Origin]
    ) -> list[Answer]:
        """Measure and answer, once more where labels were amended meanwhile."""
        # A rule may measure once more, with other weights, so it steps under this as well.
        with without_autologging():
            while True:
                measured = [
                    self.measure(values, origin, order)
                    for (values, order), origin in zip(placed, origins, strict=True)
                ]
                answers = self._answers_to(measured)
                if answers is not None:
                    return answers
                self.reload()

    def _answers_to(self, measured: Sequence[Measured]) -> list[Answer] | None:
        """Answer what was measured, in one transaction; None where labels were amended since."""
        body = partial(self._judge_all, measured=measured)
        answer = partial(self.ledger.write_to, self.ladder_id, self.since, body)
        asked, course = [submission.asked for submission in measured], self._course
        announced = measured[0].origin.announced
        judged, left = None, None if announced else course and course.left_for(asked)
        if course and left:
            with suppress(Stale):
                judged = answer(asked=[*map(course.remembered, asked)], left=left)
        # Where there is a reserve, rounds that agree on all other rows are asked for one by one.
        ahead = asked if self.holdout.reserve is None or len(asked) == 1 else ()
        judged = judged or answer(asked=ahead)
        if judged is None:
            return None
        if course and not announced:
            course.note(judged, asked)
        return judged.answers

    def asker(self, account: str | None = None) -> str:
        """Return on whose behalf a judge is asked."""
        return f"{self.holdout.secret!r} {self.ladder_id} {account}"

    def measure(
        self, predictions: Any, origin: Origin, order: NDArray[np.intp] | None = None
    ) -> Measured:
        """Measure predictions, or refuse them; nothing is written.

        `order` is that of the caller's rows; None for the order of `rows`.
        """
        if origin.batch is None:
            # From within a fit, perhaps: what is scored next may depend on the answer.
            note_answer()
        time, holdout, labelled = now(), self.holdout, self.labelled
        if _digest_of(labelled.part, labelled.reserve) != labelled.digest:
            raise _written_into(holdout.name, "labels or weights")
        aligned = self.metric.canonical(predictions, holdout.n, holdout.classes)
        aligned = aligned.take(self.order if order is None else order, axis=0)
        asked = Asked(*digests_of(holdout.secret, aligned, holdout.reserve), origin.key)
        with asked_by(self.asker(origin.account)):
            evaluation = labelled.part.evaluate(self.metric, aligned)
        if origin.account is not None:
            evaluation = evaluation.by(origin.account)
        return Measured(aligned, asked, evaluation, origin, labelled, time)

    def _judge_all(
        self, tx: Transaction, ladder: LadderRecord, measured: Sequence[Measured]
    ) -> _Judged | None:
        """Answer inside a transaction; None where labels were amended meanwhile."""
        if tx.hold(self.holdout.id).labels_version != measured[0].labelled.version:
            return None
        before = tx.ends[self.holdout.id]
        order, size = self.best_first(tx, ladder, measured)
        announce(tx, ladder, measured[0].origin, size)
        answers = self.judge_all(tx, ladder, measured, order)
        last = max(answers, key=_number).ladder
        return _Judged(answers, before, Left(last, tx.ends[self.holdout.id]))

    def judge_all(
        self,
        tx: Transaction,
        ladder: LadderRecord,
        measured: Sequence[Measured],
        places: Sequence[int],
    ) -> list[Answer]:
        """Answer what was measured, in an order of its places; return the answers by place."""
        answers: dict[int, Answer] = {}
        answer = None
        for place in places:
            submission, more = measured[place], len(answers) + 1 < len(measured)
            answer = answers[place] = self.judge(tx, ladder, submission, answer, more=more)
            ladder = answer.ladder
            tx.remember(ladder.id, submission.asked, answer.first)
        return [answers[place] for place in range(len(measured))]

    def best_first(
        self, tx: Transaction, ladder: LadderRecord, measured: Sequence[Measured]
    ) -> tuple[list[int], int]:
        """Return the order in which the members of a batch are judged, and how many are queries.

        The best of an announced batch comes first if it improves the ladder, so that no member is
        refused for the margin over another one (docs/background/certificates.md, best of a batch).
        If it does not, the order is that of the batch and reveals nothing.
        """
        places = list(range(len(measured)))
        if not measured[0].origin.announced:
            return places, len(places)
        rule, new, queries = self.rules.mechanism, [], set()
        each = rule.needs_account or rule.flags_alone
        for place, submission in enumerate(measured):
            first, is_known, _ = self._first_of(tx, ladder, submission)
            new += [place] * (first is None)
            if not is_known or rule.flags_alone:
                queries.add(place if each else submission.asked[:2])
        if each or rule.discloses or not new:
            return places, len(queries)
        best = min(new, key=lambda place: measured[place].evaluation.risk)
        state, _ = self._state_of(tx, ladder, measured[best].labelled, None)
        rng = rng_of(self.rules, self.holdout.secret, ladder.id, ladder.queries + 1)
        if not self.rules.step(state, measured[best].evaluation, rng)[1].improved:
            return places, len(queries)
        return [best, *(place for place in places if place != best)], len(queries)

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
        origin, predictions, labelled = measured.origin, measured.predictions, measured.labelled
        first, is_known, keyed = self._first_of(tx, ladder, measured)
        known = before.incumbent if before else None
        state, incumbent = self._state_of(tx, ladder, labelled, known)
        rules, price, same = self.rules.with_margin(origin.margin), 0.0, True
        margin, against, again = getattr(rules.mechanism, "margin", 0.0), ladder.incumbent, keyed
        withdrawn, was_spent = is_withdrawn(first, ladder), False
        if rules.mechanism.flags_alone:
            price = before.price if before else self.price_of(tx, ladder)
            state = replace(state, price=price)
            least = tx.least_margin(ladder.id, measured.asked.digest)
            if keyed and first is not None:
                same = (first.digest, first.reserve_digest) == measured.asked[:2]
                tested = first.evidence.get("margin") or 0.0
                again = same and (margin <= tested or not first.improved)
                against, margin = _against(ladder, first.number), tested
                was_spent = rules.is_spent(_state_then(state, ladder, first))
            else:
                was_spent = rules.is_spent(state)
                if first and not first.improved and not withdrawn and margin < least:
                    first, is_known = None, False  # for so small a gain it was not tested
        spent, level, repeat_of = False, None, None
        if first is None or labelled.reserve is not None:
            # Of what differs on the reserve alone as well, whose answer needs as long as a new one.
            rng = rng_of(self.rules, self.holdout.secret, ladder.id, ladder.queries + 1)
            after, outcome = rules.step(state, measured.evaluation, rng)
        change: dict[str, Any] = {}
        predictions_kept = None
        if first is None:
            of_first = origin.batch is not None and (
                not ladder.submissions or ladder.first_batch == origin.batch
            )
            risk, improved, spent = outcome.risk, outcome.improved, after.releases > state.releases
            evidence: Mapping[str, Any] = _recorded(outcome.evidence)
            change = {"key": origin.key, "state": state_to(after), "candidate": of_first}
            if improved or of_first:
                predictions_kept = predictions
        else:
            if is_known:
                repeat_of = first.number if same else None
                level = ladder.improvements(first.number) if first.improved else None
            change = {"repeat_of": first.number}
            if again and not withdrawn:
                risk, improved, evidence = first.risk, first.improved, {}
            else:  # without that count, whose time would reveal what repeats on the ladder's rows
                risk, improved = not_improved(self.rules, ladder.state["standing"], first.risk)
                known_as = HELD if first.improved else KNOWN
                evidence = known_as if is_known else NOT_IMPROVED
        if measured.waited is not None:  # what a round answers is kept since it was collected
            predictions_kept, waited = None, measured.waited
            change |= {"waited": waited.position, "predictions": waited.event.predictions}
        part = labelled.part
        submitted = Submitted(
            ladder=ladder.id,
            number=ladder.submissions + 1,
            query=ladder.queries + 1 if first is None or evidence == NOT_IMPROVED else None,
            time=measured.time,
            digest=measured.asked.digest,
            reserve_digest=measured.asked.reserve_digest,
            batch=origin.batch,
            search=origin.search,
            place=origin.place,
            raw=measured.evaluation.risk,
            evidence=dict(evidence),
            risk=risk,
            improved=improved,
            disagreement=disagreement(
                part.of(predictions), None if incumbent is None else part.of(incumbent)
            ),
            context=dict(origin.context),
            **change,
        )
        ladder = tx.append(ladder, submitted, predictions_kept, more=more)
        left = releases_left(ladder, ladder.state["releases"])
        release = Release(
            score=self.metric.to_score(risk) if self.rules.shows_scores else None,
            improved=improved,
            submission=ladder.submissions,
            releases_left=left,
            opened=ladder.opened is not None,
            improvements=ladder.version if level is None else level,
            repeat_of=repeat_of,
            is_incumbent=ladder.incumbent == (repeat_of or ladder.submissions),
            has_held=improved or bool(repeat_of and first and first.improved and not withdrawn),
        )
        if first is None:
            if improved:
                known = (ladder.version, labelled.version), predictions, measured.evaluation
            first = submitted
        return Answer(
            *(release, ladder, spent and left == 0, known, None if keyed else first),
            *(price, against, margin, was_spent, withdrawn),
        )

    @staticmethod
    def _first_of(
        tx: Transaction, ladder: LadderRecord, measured: Measured
    ) -> tuple[Submitted | None, bool, bool]:
        """Return the first submission that this one repeats, if it repeats any.

        Also whether who submits it knows that, for then it costs nothing, and whether it is one
        more attempt under the same key: then it has the first answer again, whatever it predicts.
        """
        origin, asked = measured.origin, measured.asked
        first = None if origin.key is None else tx.first_by_key(ladder, origin.key)
        if first is not None:
            return first, True, True
        refuse_beyond(tx, ladder, origin.per_day)
        first, everywhere = tx.first(ladder, asked.digest, asked.reserve_digest)
        # Nobody knows which rows are the reserve's, nor what another account has submitted.
        return first, first is not None and everywhere and origin.account is None, False

    def take_note(self, answer: Answer) -> Release:
        """Take note of an answer that was committed, and return the release."""
        # It is in the ledger by now: the next submission need not read it back.
        self._incumbent = answer.incumbent or self._incumbent
        if answer.spent:
            warn(
                f"The {self.rules.budget} releases of this ladder are used up: the released "
                "score stays, whatever is submitted from now on.",
                BudgetWarning,
            )
        if answer.release.opened:
            kept = self.holdout.reserve is not None
            warn(
                "An audit has shown raw scores of this ladder: the submission is recorded, but "
                + ("certified by the reserve alone." if kept else "can not be certified."),
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
            labelled=_labelled(
                *(self.ledger, self.holdout, metric, self.rows, self.order, self.labelled.groups)
            ),
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
        stored = kept.rows()
        rows = with_labels(self.rows, self.order, stored.y[kept.order(stored)])
        groups = self.labelled.groups
        self.labelled = _labelled(
            *(self.ledger, kept.record, self.metric, rows, self.order, groups)
        )

    def _state_of(
        self, tx: Transaction, ladder: LadderRecord, labelled: Labelled, known: _Known | None
    ) -> tuple[State, NDArray[Any] | None]:
        """Return the state of a ladder, and the predictions of its incumbent."""
        if ladder.incumbent is None:
            return state_from(ladder.state, self.holdout.n_ladder, None), None
        # The incumbent's predictions are read again only when another process replaced them.
        versions = ladder.version, labelled.version
        known = known or self._incumbent
        if known is None or known[0] != versions:
            stored = tx.incumbent_predictions(ladder.id)
            assert stored is not None
            known = versions, stored, labelled.part.evaluate(self.metric, stored)
            self._incumbent = known
        _, predictions, evaluation = known
        return state_from(ladder.state, self.holdout.n_ladder, evaluation), predictions


class LedgerLadder(Protocol):
    """A ladder beside its ledger, as the other modules of the guard use it."""

    metric: Metric

    def guard(self) -> Guard:
        """Return the rows, labels and rules as this process holds them."""

    def read(self, body: Callable[[Transaction, LadderRecord], T]) -> T:
        """Read one state of the ledger."""

    def write(self, body: Callable[[Transaction, LadderRecord], T]) -> T:
        """Write to the ladder."""


def _recorded(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as the ledger keeps it."""
    known = {name: getattr(evidence, name) for name in _EVIDENCE}
    return known if evidence.margin is None else {**known, "margin": evidence.margin}


def _against(ladder: LadderRecord, number: int) -> int | None:
    """Return what was the incumbent when a submission was decided on."""
    gone = {one.event.number for one in ladder.withdrawn if one.event.until < number}
    before = (one.number for one in ladder.improved if one.number < number)
    return max((one for one in before if one not in gone), default=None)


def _state_then(state: State, ladder: LadderRecord, first: Submitted) -> State:
    """Return the state of a gate when a submission was decided on."""
    candidates = max((first.query or 0) - 2, 0)  # the baseline is none
    releases = sum(one.number < first.number for one in ladder.improved)
    return replace(state, price=0.0, candidates=candidates, releases=releases)


def make_guard(
    ledger: Ledger,
    holdout: HoldoutRecord,
    ladder: LadderRecord,
    metric: Metric,
    rows: Rows,
    view: int,
    hashes: NDArray[np.uint64],
    order: NDArray[np.intp],
    groups: Groups | None,
    price_of: PriceOf,
) -> Guard:
    """Bring a ladder, its metric and its rows together, with the sorted hashes of the rows.

    `order` is that of the content, and so is that of the groups.
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
        _labelled(ledger, holdout, metric, rows, order, groups),
        held_digest(rows.X),
        price_of,
    )


def _labelled(
    ledger: Ledger,
    holdout: HoldoutRecord,
    metric: Metric,
    rows: Rows,
    order: NDArray[np.intp],
    groups: Groups | None,
) -> Labelled:
    weights = None if rows.sample_weight is None else rows.sample_weight[order]
    with without_autologging():
        # Positions of classes, as of predictions, in half the bytes until they are in order.
        targets = (
            metric.targets(rows.labels, holdout.classes).astype(np.int32)[order].astype(np.intp)
            if metric.is_classification
            else metric.targets(rows.labels, holdout.classes)[order]
        )
    first = None
    if not is_named(metric):
        index = index_of(rows.X)
        targets = targets if index is None else indexed(targets, index.take(order))
        known = ledger.transact(lambda tx: tx.known(holdout.id), Access.READ)
        first = known.places
    part, reserve = parts_of(targets, weights, holdout.reserve, groups, first)
    digest = _digest_of(part, reserve)
    return Labelled(holdout.labels_version, rows, part, reserve, digest, groups)


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
