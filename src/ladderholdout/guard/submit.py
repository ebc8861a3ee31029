"""One submission: predictions in, one transaction, one release out."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout import errors
from ladderholdout.certificates.group_limits import Groups
from ladderholdout.certificates.metric_limits import Rows as ScoredRows
from ladderholdout.guard import containment, counting, open_ladder, seen
from ladderholdout.guard.rows import Part, parts_of, read_kept, with_labels
from ladderholdout.guard.views import Decision, Release
from ladderholdout.identity.copies import held_digest
from ladderholdout.ledger import fold, log, place, store
from ladderholdout.ledger.arrays import digests_of
from ladderholdout.ledger.events import Submitted
from ladderholdout.ledger.rules import not_improved, rules_of, state_from, state_to
from ladderholdout.ledger.transaction import HELD, KNOWN, NOT_IMPROVED, Asked, Transaction
from ladderholdout.mechanisms.base import Evidence, State
from ladderholdout.mechanisms.rules import LadderRules, rng_of
from ladderholdout.metrics import Evaluation, Metric, arrays, table, verdicts
from ladderholdout.vault import Rows

T = TypeVar("T")

_EVIDENCE = [known.name for known in fields(Evidence)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Labelled:
    """One version of the labels of the rows, in parts: of the ladders, and of the reserve."""

    version: int
    part: Part
    reserve: Part | None
    digest: int


def _digest_of(*parts: Part | None) -> int:
    """Return a quick digest of the targets and weights of parts."""
    digest = 0
    for part in parts:
        for array in () if part is None else (part.targets, part.weights):
            if array is not None:
                digest = zlib.crc32(array.reshape(-1).view(np.uint8).data, digest)
    return digest


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
    origin: open_ladder.Origin
    labelled: Labelled
    # When it came, and not when it was decided: how long that took must not be on record.
    time: datetime
    waited: fold.Waiting | None = None  # for the end of a round


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answer:
    """The answer to a submission inside its transaction, and the ladder after it.

    `spent` is true where it used up the budget; `incumbent` is there where this transaction has
    changed it. `first` is what repeats of the predictions are answered from, unless a key was.
    `price` is what was shown beside a gate's decisions (`shown_beside`). The others are of a gate,
    too, and of what it retries under a key: `against` was the incumbent before, `margin` the gain
    that was tested for, `was_spent` whether nothing could be accepted; `withdrawn` is whether it
    was since.
    """

    release: Release
    ladder: fold.LadderRecord
    spent: bool
    incumbent: _Known | None
    first: Submitted | None
    price: float = 0.0
    against: int | None = None
    margin: float = 0.0
    was_spent: bool = False
    withdrawn: bool = False


def refuse_beyond(
    tx: Transaction,
    ladder: fold.LadderRecord,
    per_day: int | None,
    waits: tuple[fold.LadderRecord, str] | None = None,
) -> None:
    """Refuse one more submission or comparison than a day may have, before anything is decided.

    `waits` are the ladder of a board and the account, if its submissions wait for a round.
    """
    if per_day is None:
        return
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day, compared = tx.fold(ladder.holdout_id).compared.get(ladder.id, ("", 0))
    left = per_day - (compared if day >= today.date().isoformat() else 0)
    if waits is not None:
        home, account = waits
        rounds = tx.fold(home.holdout_id).rounds[home.id].waiting
        left -= sum(one.event.account == account and one.event.time >= today for one in rounds)
    if left <= 0 or tx.has_made(ladder, left, today):
        raise errors.DailyLimit(
            f"This account has made its {per_day} submissions of today, of which comparisons are "
            "counted. It may submit again from 00:00 UTC on."
        )


# How many answers a process remembers of its own submissions to a ladder.
_REMEMBERED = 250


@dataclass(slots=True, repr=False)
class _Course:
    """What a process knows of a ladder on a server from its own last submission to it.

    Who submits alone need not read the ladder first: the server refuses what rests on a ladder
    that has changed. Where others submit meanwhile, that would be in vain each time. Where there is
    a reserve all is read: how long it takes must not show which predictions differ on its rows
    alone.
    """

    left: fold.Head | None = None
    # Whether the last submission could have rested on the one before it.
    alone: bool = True
    # By their digests. What repeats are answered changes with a withdrawal alone, and after one it
    # is read (`Transaction.first`).
    firsts: dict[str, Submitted] = field(default_factory=dict)

    def note(
        self, answers: Sequence[Answer], asked: Sequence[Asked], before: fold.Head, left: fold.Head
    ) -> None:
        """Take note of what was committed, from which end of the chain on, and what it left."""
        self.alone = self.left is None or self.left == before
        self.left = left
        for searched, answer in zip(asked, answers, strict=True):
            first, number = answer.first, answer.release.submission
            # What the ledger alone knows is refused, and there may be more of it.
            if first is None or not (first.number == number or searched.digest in self.firsts):
                self.alone = False
            if first is not None:
                self.firsts[searched.digest] = first
        if len(self.firsts) > _REMEMBERED:
            self.firsts.clear()


@dataclass(slots=True, repr=False)
class Guard:
    """A ladder as one process holds it: the rules, the labels, the incumbent.

    Predictions are kept in the order of the content of the rows as first registered, not in
    anybody's row order, so that shuffled rows, and views with other features, continue the same
    ladder. The ladder measures its `part` of them; those for the reserve are kept for the
    incumbent, and queried by `reserve_certificate` alone.
    """

    ledger: store.Ledger
    holdout: fold.HoldoutRecord
    # As it was when it was opened.
    ladder: fold.LadderRecord
    metric: Metric
    rows: Rows
    view: int
    # Of the rows, sorted.
    hashes: NDArray[np.uint64]
    # That of the content, and so is that of the groups.
    order: NDArray[np.intp]
    groups: Groups | None
    rules: LadderRules = field(init=False)
    labelled: Labelled = field(init=False)
    # Of the features as this process holds them, to find out whether something wrote into them.
    digest: int = field(init=False)
    _incumbent: _Known | None = field(default=None, init=False)
    course: _Course | None = field(init=False)

    def __post_init__(self) -> None:
        """Read the labels; know of no submission yet."""
        self.digest = held_digest(self.rows.X)
        self._label(self.holdout)
        self._take_up(self.ladder)

    def _take_up(self, ladder: fold.LadderRecord) -> None:
        self.ladder, self.rules = ladder, rules_of(ladder.settings)
        alone = place.is_server(self.ledger.url) and self.holdout.reserve is None
        self._incumbent, self.course = None, _Course() if alone else None

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

    def decision(self, answer: Answer, origin: open_ladder.Origin) -> Decision:
        """Return the decision of a gate, from its answer to a submission of this origin."""
        release, incumbent = self.take_note(answer), answer.ladder.incumbent
        assert incumbent is not None
        # A retry of what was accepted and replaced since is not better than the incumbent.
        better = release.improved and release.is_incumbent
        baseline, unchanged = better and answer.against is None, release.is_incumbent and not better
        # Nothing was compared: no loop keeps a change for that, unless it asked for a baseline.
        accepted = better and (not baseline or origin.baseline)
        spent = answer.was_spent and not release.is_incumbent
        reason = self._reason(answer, spent and not release.improved)
        return Decision(accepted, release.submission, spent, reason, incumbent, unchanged, baseline)

    def _reason(self, answer: Answer, spent: bool) -> str:
        """Return why a gate accepted a candidate or not, from its decisions alone."""
        release, incumbent = answer.release, answer.ladder.incumbent
        first, retried = release.repeat_of, answer.first is None
        if release.is_incumbent and not release.improved:
            those = f"they are those of submission {first}, the incumbent"
            return f"It alters no prediction on these rows: {those}."
        if release.has_held and not release.is_incumbent:
            replaced = f"submission {incumbent} has replaced it since, and is to be kept"
            return f"The same predictions were accepted as submission {first}; {replaced}."
        if answer.withdrawn and first is not None:
            return f"The same predictions were withdrawn, as submission {first}."
        if spent:
            horizon = getattr(self.rules.mechanism, "horizon", None)
            why = f"the budget of {self.rules.budget} acceptances is used up"
            if not math.isfinite(answer.price):
                why = (
                    "what was shown of these rows beside decisions cannot be counted, such as raw "
                    "scores in an audit"
                )
            elif horizon is not None:
                why = (
                    f"the {horizon} candidates that were announced as the horizon have been "
                    "decided on"
                )
            return f"Nothing is accepted any more: {why}. Submission {incumbent} is to be kept."
        if retried and first is None:
            return "It is not shown to be better, nor tested: its key is that of other predictions."
        if first is not None and not retried:
            same = f"submission {first} had the same predictions"
            return (
                f"It is not shown to be better than submission {incumbent}, nor tested again: "
                f"{same}."
            )
        if answer.against is None:
            return "It is the baseline: there was nothing to compare it with."
        margin = answer.margin * (self.rules.unit or 1.0)
        more = f" by more than {margin:g}" if margin else ""
        more += f", with {self.metric.clipping}" if self.metric.clipping else ""
        better = "better" if release.improved else "not shown to be better"
        return f"It is {better} than submission {answer.against}{more}."

    def asker(self, account: str | None = None) -> str:
        """Return on whose behalf a judge is asked."""
        return f"{self.holdout.secret!r} {self.ladder.id} {account}"

    def aligned(self, predictions: Any, order: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Return predictions in the order of the content, or refuse them.

        `order` is that of the caller's rows; None for the order of `rows`.
        """
        canonical = self.metric.canonical(predictions, self.holdout.n, self.holdout.classes)
        return canonical.take(self.order if order is None else order, axis=0)

    def measure(
        self, predictions: Any, origin: open_ladder.Origin, order: NDArray[np.intp] | None = None
    ) -> Measured:
        """Measure predictions, or refuse them, as `aligned` does; nothing is written."""
        if origin.batch is None:
            # From within a fit, perhaps: what is scored next may depend on the answer.
            seen.note_answer()
        time, secret, labelled = log.now(), self.holdout.secret, self.labelled
        if _digest_of(labelled.part, labelled.reserve) != labelled.digest:
            raise self._written_into("labels or weights")
        aligned = self.aligned(predictions, order)
        asked = Asked(*digests_of(secret, aligned, self.holdout.reserve), origin.key)
        with verdicts.asked_by(self.asker(origin.account)):
            evaluation = labelled.part.evaluate(self.metric, aligned)
        if origin.account is not None:
            evaluation = evaluation.by(origin.account)
        return Measured(aligned, asked, evaluation, origin, labelled, time)

    def best_first(
        self, tx: Transaction, ladder: fold.LadderRecord, measured: Sequence[Measured]
    ) -> tuple[list[int], int]:
        """Return the order in which the members of a batch are judged, and how many are queries.

        The best of an announced batch comes first if it improves the ladder, so that no member is
        refused for the margin over another one (docs/background/certificates.md, best of a batch).
        If it does not, the order is that of the batch and reveals nothing.
        """
        order, queries, rule, new = list(range(len(measured))), set(), self.rules.mechanism, []
        each = rule.needs_account or rule.flags_alone
        for index, submission in enumerate(measured):
            first, is_known, _ = self._first_of(tx, ladder, submission)
            new += [index] * (first is None)
            if not is_known or rule.flags_alone:
                queries.add(index if each else submission.asked[:2])
        if each or rule.discloses or not new:
            return order, len(queries)
        best = min(new, key=lambda index: measured[index].evaluation.risk)
        state, _ = self._state_of(tx, ladder, measured[best].labelled, None)
        rng = rng_of(self.rules, self.holdout.secret, ladder.id, ladder.queries + 1)
        if not self.rules.step(state, measured[best].evaluation, rng)[1].improved:
            return order, len(queries)
        return [best, *(index for index in order if index != best)], len(queries)

    def judge(
        self,
        tx: Transaction,
        ladder: fold.LadderRecord,
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
        members = () if origin.size is None else tx.fold(ladder.holdout_id).members.values()
        if origin.size and origin.size <= sum(it.get(origin.batch or "", 0) for it in members):
            # A candidate that was fitted twice, and differs: its batch has no place for it.
            origin = replace(origin, batch=None, size=None)
        first, is_known, keyed = self._first_of(tx, ladder, measured)
        known = before.incumbent if before else None
        state, incumbent = self._state_of(tx, ladder, labelled, known)
        rules, price, same = self.rules, 0.0, True
        if origin.margin is not None:
            rules = rules.with_margin(origin.margin)
        margin, against, again = getattr(rules.mechanism, "margin", 0.0), ladder.incumbent, keyed
        reason, was_spent = None if first is None else ladder.why_withdrawn(first), False
        withdrawn = reason is not None
        if first is not None and withdrawn and ladder.incumbent is None:
            raise errors.InvalidSubmission(
                "predictions",
                "others than those of a submission that was withdrawn, while there is no incumbent",
                f"those of submission {first.number}",
                f"It was withdrawn for this reason: {reason}",
            )
        if rules.mechanism.flags_alone:
            price = before.price if before else counting.shown_beside(tx, ladder)
            state = replace(state, price=price)
            least = tx.least_margin(ladder.id, measured.asked.digest)
            if keyed and first is not None:
                same = (first.digest, first.reserve_digest) == measured.asked[:2]
                tested = first.evidence.get("margin") or 0.0
                again = same and (margin <= tested or not first.improved)
                then, against = _then(state, ladder, first)
                margin, was_spent = tested, rules.is_spent(then)
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
            told = {name: getattr(outcome.evidence, name) for name in _EVIDENCE}
            if told["margin"] is None:  # it is of gates alone, and left out for other rules
                del told["margin"]
            evidence: Mapping[str, Any] = told
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
        chosen = slice(None) if labelled.part.chosen is None else labelled.part.chosen
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
            size=origin.size,
            raw=measured.evaluation.risk,
            evidence=dict(evidence),
            risk=risk,
            improved=improved,
            disagreement=disagreement(
                predictions[chosen], None if incumbent is None else incumbent[chosen]
            ),
            context=dict(origin.context),
            **change,
        )
        ladder = tx.append(ladder, submitted, predictions_kept, more=more)
        budget = self.rules.budget
        left = None if budget is None else max(0, budget - ladder.state["releases"])
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
        tx: Transaction, ladder: fold.LadderRecord, measured: Measured
    ) -> tuple[Submitted | None, bool, bool]:
        """Return the first submission that this one repeats, if it repeats any.

        Also whether who submits it knows that, for then it costs nothing, and whether it is one
        more attempt under the same key: then it has the first answer again, whatever it predicts.
        """
        origin, asked = measured.origin, measured.asked
        retried = [] if origin.key is None else tx.found(ladder.id, "key", origin.key)
        if retried:
            return retried[0], True, True
        if origin.per_day is not None:
            refuse_beyond(tx, ladder, origin.per_day)
        first, everywhere = tx.first(ladder, asked.digest, asked.reserve_digest)
        # Nobody knows which rows are the reserve's, nor what another account has submitted.
        return first, first is not None and everywhere and origin.account is None, False

    def take_note(self, answer: Answer) -> Release:
        """Take note of an answer that was committed, and return the release."""
        # It is in the ledger by now: the next submission need not read it back.
        self._incumbent = answer.incumbent or self._incumbent
        spent = self.rules.budget if answer.spent else None
        warn_of(answer.release, spent, has_reserve=self.holdout.reserve is not None)
        return answer.release

    def check_rows(self) -> None:
        """Refuse features that something wrote into since they were opened; HoldoutConflict."""
        if held_digest(self.rows.X) != self.digest:
            raise self._written_into("features")

    def _written_into(self, what: str) -> errors.HoldoutConflict:
        return errors.HoldoutConflict(
            f"The {what} of {self.holdout.name!r} that this process holds were written into since "
            "it was opened. Nothing was submitted. Open it again with its rows, "
            "LadderHoldout(X, y, ...)."
        )

    def of_ladder(self, ladder: fold.LadderRecord, metric: Metric) -> Guard:
        """Return the guard of another ladder on the same rows, which are in memory once."""
        guard = copy(self)
        guard._take_up(ladder)
        if metric != self.metric:
            guard.metric = metric
            guard._label(self.holdout)
        return guard

    def reload(self) -> None:
        """Read the labels again: they were amended."""
        kept = self.ledger.transact(
            lambda tx: read_kept(tx, self.holdout.id, self.view), place.Access.READ
        )
        if kept.view.vault_path is None:
            raise errors.HoldoutConflict(
                f"Labels of {kept.record.name!r} were amended since it was opened here, and no "
                "copy of the rows is kept (vault=False). Open it again with its rows and labels "
                "as they are now: LadderHoldout(X, y, ...)."
            )
        stored = kept.rows()
        self.rows = with_labels(self.rows, self.order, stored.y[kept.order(stored)])
        self._label(kept.record)

    def _label(self, holdout: fold.HoldoutRecord) -> None:
        """Bring the labels of the rows into the order of the content, and into parts."""
        metric, weights, first = self.metric, self.rows.sample_weight, None
        with containment.without_autologging():
            targets = metric.targets(self.rows.labels, holdout.classes)
        if metric.is_classification:
            # Positions of classes, as of predictions, in half the bytes until they are in order.
            targets = targets.astype(np.int32)
            targets = targets[self.order].astype(np.intp)
        else:
            targets = targets[self.order]
        if not table.is_named(metric):
            index = arrays.index_of(self.rows.X)
            targets = targets if index is None else arrays.indexed(targets, index.take(self.order))
            first = self.ledger.transact(lambda tx: tx.known(holdout.id), place.Access.READ).places
        weights = None if weights is None else weights[self.order]
        part, reserve = parts_of(targets, weights, holdout.reserve, self.groups, first)
        digest = _digest_of(part, reserve)
        self.labelled = Labelled(holdout.labels_version, part, reserve, digest)

    def _state_of(
        self, tx: Transaction, ladder: fold.LadderRecord, labelled: Labelled, known: _Known | None
    ) -> tuple[State, NDArray[Any] | None]:
        """Return the state of a ladder, and the predictions of its incumbent."""
        n = len(labelled.part.targets)
        if ladder.incumbent is None:
            return state_from(ladder.state, n, None), None
        # The incumbent's predictions are read again only when another process replaced them.
        versions = ladder.version, labelled.version
        known = known or self._incumbent
        if known is None or known[0] != versions:
            stored = tx.incumbent_predictions(ladder.id)
            assert stored is not None
            known = versions, stored, labelled.part.evaluate(self.metric, stored)
            self._incumbent = known
        _, predictions, evaluation = known
        return state_from(ladder.state, n, evaluation), predictions


def warn_of(release: Release, spent: int | None, *, has_reserve: bool) -> None:
    """Warn of a release that used up this budget, or that no certificate counts as others."""
    if spent is not None:
        errors.warn(
            f"The {spent} releases of this ladder are used up: the released score stays, whatever "
            "is submitted from now on.",
            errors.BudgetWarning,
        )
    if release.opened:
        errors.warn(
            "An audit has shown raw scores of this ladder: the submission is recorded, but "
            + ("certified by the reserve alone." if has_reserve else "can not be certified."),
            errors.OpenedWarning,
        )


class LedgerLadder(Protocol):
    """A ladder beside its ledger, as the other modules of the guard use it."""

    metric: Metric

    def guard(self) -> Guard:
        """Return the rows, labels and rules as this process holds them."""

    def read(self, body: Callable[[Transaction, fold.LadderRecord], T]) -> T:
        """Read one state of the ledger."""

    def write(self, body: Callable[[Transaction, fold.LadderRecord], T]) -> T:
        """Write to the ladder."""


def _then(state: State, ladder: fold.LadderRecord, first: Submitted) -> tuple[State, int | None]:
    """Return the state of a gate and the incumbent when a submission was decided on."""
    candidates = max((first.query or 0) - 2, 0)  # the baseline is none
    before = {one.number for one in ladder.improved if one.number < first.number}
    gone = {one.number for one in ladder.withdrawn if one.until < first.number}
    state = replace(state, price=0.0, candidates=candidates, releases=len(before))
    return state, max(before - gone, default=None)


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
