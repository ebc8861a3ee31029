"""What is worked out from the rows: put on record, then shown; the same way for every kind.

Intervals and comparisons, which certificates pay for, and estimates, which are none.
"""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout import estimates
from ladderholdout.arguments import as_given, whole
from ladderholdout.certificates import comparisons, metric_limits, score_intervals, transcript
from ladderholdout.certificates.advice import stated_range
from ladderholdout.certificates.codes import event_length
from ladderholdout.errors import HoldoutConflict, InvalidArgument, RangeWarning, warn
from ladderholdout.guard import certify, counting, record_views, rows, views
from ladderholdout.guard.certificate import Comparison, ScoreCertificate
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.submit import Guard, LedgerLadder, refuse_beyond
from ladderholdout.ledger.arrays import digests_of
from ladderholdout.ledger.events import FinalsHeld, ReserveQueried, Shown, Submitted
from ladderholdout.ledger.fold import LadderRecord, refuse_retired
from ladderholdout.ledger.log import now
from ladderholdout.ledger.rules import rules_of
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import Scale, scale_of

T = TypeVar("T")

# Seconds before a bar is shown.
_PATIENCE = 2.0
# With fewer rows of the rarest class an estimate of a score that is no mean of losses errs by
# about as much as the winner's raw score or by more (benchmarks/estimates.py --rare).
LEAST_OF_A_CLASS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Something that is asked for and not on record.

    Attributes
    ----------
    about : tuple
        All that the answer depends on: where it is another one by the time that the answer is
        known, nothing is put on record and the question is asked again.
    work : callable
        Works the answer out.
    """

    about: tuple[Any, ...]
    work: Callable[[], Shown | ReserveQueried | FinalsHeld]


def on_record(
    ladder: LedgerLadder, ask: Callable[[Transaction, LadderRecord, Guard], T | Question]
) -> T:
    """Return what is on record; else work it out, put it on record, and return it.

    Parameters
    ----------
    ladder : LedgerLadder
    ask : callable
        Returns what is on record, or a `Question`; it reads the ledger and changes nothing.

    Returns
    -------
    object
        What `ask` returned that is no `Question`.
    """
    with without_frames:
        guard = ladder.guard()
        while True:
            asked = ladder.read(lambda tx, record: ask(tx, record, guard))
            if not isinstance(asked, Question):
                return asked
            if not _worked_out(ladder, ask, guard, asked):
                guard.reload()


def _worked_out(
    ladder: LedgerLadder,
    ask: Callable[[Transaction, LadderRecord, Guard], Any],
    guard: Guard,
    asked: Question,
) -> bool:
    """Work an answer out, and record it unless something changed; False where labels did."""
    version = guard.labelled.version
    with without_autologging():  # it takes its time, and nobody else should wait for it
        answer = asked.work()

    def add(tx: Transaction, record: LadderRecord) -> bool:
        known = tx.hold(record.holdout_id)
        if known.labels_version != version:
            return False
        again = ask(tx, record, guard)
        if isinstance(again, Question) and again.about == asked.about:
            if not isinstance(answer, Shown):
                refuse_retired(known.name, known.retired)
            tx.add(record.holdout_id, answer)
        return True

    return ladder.write(add)


def _to_show(what: str, ladder: int, certificate: transcript.Certificate, **more: Any) -> Shown:
    """Return the event of an interval that was worked out; an infinite end is None there."""
    ends = certificate.low, certificate.high
    low, high = (float(end) if math.isfinite(end) else None for end in ends)
    return Shown(
        what=what,
        ladder=ladder,
        confidence=certificate.confidence,
        low=low,
        high=high,
        bound=certificate.bound,
        log_count=certificate.log_count,
        log_values=certificate.log_values,
        **more,
    )


def kept_predictions(
    tx: Transaction, ladder: LadderRecord, entry: Submitted
) -> NDArray[Any] | None:
    """Return the predictions of a submission, checked; None where they are not kept."""
    stored = tx.predictions(ladder, entry.number)
    if stored is not None:
        rows.check_predictions(tx.holdout(ladder.holdout_id), entry, stored)
    return stored


# -- certificates from the incumbent's predictions ---------------------------------------------


def certificate(ladder: LedgerLadder, confidence: float | None) -> ScoreCertificate:
    """Certify the incumbent of a ladder; see `LadderHoldout.certificate`.

    An interval that depends on more than the released score is on record before it is shown.
    """
    level = None if confidence is None else certify.level_of(ladder, confidence)
    certified = on_record(ladder, partial(_ask_interval, level=level))
    if certified.clipped is not None and certified.clipped[0]:
        warn(
            "The released score is of the incumbent's errors as they are, and the certificate is "
            f"of {certified.clipping} ({stated_range(ladder.guard().metric)}): the interval need "
            "not hold the released score. Name both, or start another ladder with a wider range: "
            'LadderHoldout(X, y, ..., ladder="wider").',
            RangeWarning,
        )
    return certified


def known_certificate(ladder: LedgerLadder) -> tuple[ScoreCertificate, bool]:
    """Return the certificate as far as it is on record, and whether `certificate` adds one.

    Nothing is worked out and nothing is written.
    """
    metric, guard = ladder.metric, certify.guard_if_here(ladder)
    read = ladder.read(lambda tx, record: _selected(tx, record, metric, guard))
    if isinstance(read, ScoreCertificate):
        return read, False
    return read.certificate(None), True


def _selected(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    guard: Guard | None,
    level: certify.Level | None = None,
) -> ScoreCertificate | certify.Selection:
    """Return the certificate as far as it is on record, or what it has to be worked out from."""
    selection = certify.selection_of(tx, ladder, metric, guard, level)
    if isinstance(selection, ScoreCertificate):
        return selection
    recorded = selection.recorded(tx)
    if recorded is not None or not selection.by_rows:
        return certify.itemised(selection.certificate(recorded), selection)
    return selection


def _ask_interval(
    tx: Transaction, ladder: LadderRecord, guard: Guard, *, level: certify.Level | None
) -> ScoreCertificate | Question:
    selection = _selected(tx, ladder, guard.metric, guard, level)
    if isinstance(selection, ScoreCertificate):
        return selection
    predictions = tx.incumbent_predictions(ladder.id)
    assert predictions is not None and ladder.incumbent is not None
    entry = tx.submission(ladder.id, ladder.incumbent)
    rows.check_predictions(tx.holdout(ladder.holdout_id), entry, predictions)

    def work() -> Shown:
        interval = score_intervals.certify_score(
            selection.metric,
            guard.scored(guard.part, predictions),
            selection.transcript,
            released=selection.score,
            confidence=selection.level.confidence,
            price=selection.level.price,
        )
        more = {
            "clipped": None if interval.clipped is None else list(interval.clipped),
            "place": selection.transcript.place,
        }
        return _to_show("interval", ladder.id, interval, submission=ladder.incumbent, more=more)

    return Question((ladder.incumbent,), work)


# -- comparisons -------------------------------------------------------------------------------

Side: TypeAlias = "int | tuple[Any, NDArray[np.intp] | None]"
"""One side of a comparison: a numbered submission, or predictions and the order they are in."""


def compared(
    ladder: LedgerLadder, sides: tuple[Side, Side], confidence: float | None, per_day: int | None
) -> Comparison:
    """Compare two models; see `LadderHoldout.compare`."""
    guard = ladder.guard()
    metric, estimand = guard.metric, guard.holdout.estimand
    bound, reason = metric_limits.bound_of(metric, grouped=estimand is not None), None
    if isinstance(bound, str):
        reason = bound
    elif guard.part.weights is not None:
        reason = "no comparison of rows with weights is known"
    elif bound.needs_ranges and metric.target_range is None:
        reason = "its interval needs target_range=(low, high), which holds every target"
    if reason is not None:
        raise HoldoutConflict(f"Nothing was compared: {reason}.")
    level = certify.level_of(ladder, confidence)
    return on_record(ladder, partial(_ask_difference, sides=sides, level=level, per_day=per_day))


def _ask_difference(
    tx: Transaction,
    ladder: LadderRecord,
    guard: Guard,
    *,
    sides: tuple[Side, Side],
    level: certify.Level,
    per_day: int | None,
) -> Comparison | Question:
    """Return the comparison if it is on record, else what it has to be worked out from."""
    holdout = tx.holdout(ladder.holdout_id)
    models = [_predictions_of(tx, ladder, guard, side) for side in sides]
    digests = [digests_of(holdout.secret, values, holdout.reserve)[0] for values in models]
    known = list(tx.fold(holdout.id).shown_of("comparison"))
    first, second = (side if isinstance(side, int) else None for side in sides)
    if holdout.retired is not None and None in (first, second):
        raise HoldoutConflict(
            f"Nothing was compared: {holdout.name!r} takes no submissions any more, so only two "
            "of its submissions are compared. Give their numbers: holdout.compare(2, 1)."
        )
    for shown in known:
        if (shown.ladder, shown.confidence) != (ladder.id, level.confidence):
            continue
        pair, (low, high) = [shown.more["first"], shown.more["second"]], certify.ends_of(shown)
        for ordered, ends in ((pair, (low, high)), (pair[::-1], (-high, -low))):
            if ordered == digests:
                assumed = score_intervals.assumptions_of(guard.metric, estimand=holdout.estimand)
                return Comparison(
                    *(first, second, *ends, level.confidence, shown.bound, shown.log_count),
                    *(shown.log_values, (*assumed, comparisons.FAMILY), guard.metric.clipping),
                )
    budget, own = ladder.settings.budget, sum(shown.ladder == ladder.id for shown in known)
    if budget is not None and own + ladder.state["releases"] >= budget:
        raise HoldoutConflict(
            f"Nothing was compared: releases and comparisons of this ladder have used up its "
            f"budget of {budget}, since all later certificates pay for either. What was compared "
            "before is shown again."
        )
    refuse_beyond(tx, ladder, per_day)
    price = counting.shown_by_now(tx, ladder)
    if isinstance(price, str):
        raise HoldoutConflict(f"Nothing was compared: {price}.")
    number = len(known) + 1

    def work() -> Shown:
        log_count = event_length(number) + price + level.price
        difference = comparisons.certify_difference(
            guard.metric,
            guard.scored(guard.part, models[0]),
            guard.scored(guard.part, models[1]),
            log_count,
            confidence=level.confidence,
        )
        numbers, moment = [first, second], now().isoformat()
        more = {"first": digests[0], "second": digests[1], "numbers": numbers, "time": moment}
        return _to_show("comparison", ladder.id, difference, more=more)

    # What another process showed meanwhile is to be counted: then it is asked again.
    return Question((number, price), work)


def _predictions_of(
    tx: Transaction, ladder: LadderRecord, guard: Guard, side: Side
) -> NDArray[Any]:
    if not isinstance(side, int):
        (predictions, order), holdout = side, guard.holdout
        aligned = guard.metric.canonical(predictions, holdout.n, holdout.classes)
        return aligned.take(guard.order if order is None else order, axis=0)
    if not 1 <= side <= ladder.submissions:
        allowed = f"the number of one of {ladder.submissions} submissions, or predictions"
        raise InvalidArgument("a submission", allowed, side)
    entry = tx.submission(ladder.id, side)
    if entry.repeat_of is not None:
        entry = tx.submission(ladder.id, entry.repeat_of)
    stored = kept_predictions(tx, ladder, entry)
    if stored is None:
        raise InvalidArgument(
            "a submission",
            "one whose predictions are kept: that improved, or was in the first batch or a round",
            side,
            "Give its predictions instead of its number.",
        )
    return stored


def number_of(model: Any) -> int | None:
    """Return the number of a submission, if that or its answer was given for a model."""
    if isinstance(model, views.Release | views.Decision):
        model = model.submission
    if isinstance(model, bool | np.bool_):
        raise InvalidArgument("a model", "a number, predictions or an estimator", as_given(model))
    if isinstance(model, int | np.integer):
        return whole("a submission", model)
    return None


# -- estimates: the corrected score of a batch's winner ----------------------------------------


def estimate(ladder: LedgerLadder) -> views.Estimate:
    """Correct the incumbent's score for the selection; see `LadderHoldout.estimate`."""
    return on_record(ladder, _ask_estimate)


def _ask_estimate(tx: Transaction, ladder: LadderRecord, guard: Guard) -> views.Estimate | Question:
    """Return the estimate if it is on record, or why there is none, else the batch."""
    reason, entries = record_views.why_not_estimated(tx, ladder)
    batch, count = entries[0].batch if entries else None, len(entries)
    known = record_views.estimate_on_record(tx, ladder, count) if reason is None else None
    if known is not None:
        return record_views.estimate_of(known, guard.metric)
    kept: list[NDArray[Any]] = []
    for entry in entries if reason is None else ():
        is_kept = entry.candidate or (count == 1 and batch is None)
        stored = kept_predictions(tx, ladder, entry) if is_kept else None
        if stored is None:
            why = "not all predictions of this batch were kept (they were too many)"
            reason = f"{why}: {record_views.OTHERWISE}"
            break
        kept.append(stored)
    if reason is not None:
        return views.Estimate(None, record_views.ESTIMATED_BY, 0, batch, count, reason)
    announced = batch in tx.fold(ladder.holdout_id).sizes
    work = partial(_estimated, guard, ladder, entries, kept, announced=announced)
    return Question((ladder.incumbent, ladder.submissions), work)


def _estimated(
    guard: Guard,
    ladder: LadderRecord,
    entries: tuple[Submitted, ...],
    predictions: list[NDArray[Any]],
    *,
    announced: bool,
) -> Shown:
    """Return the corrected score, or why the labels allow none."""
    metric, part = guard.metric, guard.part
    # Its certificate would show a score, the number of its grid, or that there is none.
    risk, refused, price = None, _too_rare(guard), math.log(4.0)
    if refused is None:
        # The rule by which a training run stopped, where the batch is its rounds.
        rules = {tuple(entry.context.get("stopping", ())) for entry in entries}
        stopping = rules.pop() if len(rules) == 1 else ()
        with _bar("Estimating") as progress:
            found = estimates.corrected(
                metric,
                rules_of(ladder.settings),
                part.targets,
                [part.of(values) for values in predictions],
                winner=[entry.number for entry in entries].index(ladder.incumbent or 0),
                weights=part.weights,
                groups=None if part.groups is None else part.groups.codes,
                stopping=estimates.Stopping(*stopping) if stopping else None,
                best_first=announced,
                secret=hmac.digest(guard.holdout.secret, b"estimate", "sha256"),
                progress=progress,
            )
        if found is None:
            refused = f"{metric.name} has no value on too many of the draws of these rows"
        else:
            may_fail = not metric.is_mean or part.weights is not None
            risk, values = on_grid(found.corrected, metric, guard.holdout.n_ladder)
            price = math.log(values) + may_fail * math.log(2.0)
    more = {"risk": risk, "refused": refused}
    more |= {"submissions": len(entries), "batch": entries[0].batch}
    return Shown(
        what="estimate", ladder=ladder.id, submission=ladder.incumbent, log_values=price, more=more
    )


def _too_rare(guard: Guard) -> str | None:
    """Return why a class with few rows leaves no estimate; None where none is so rare."""
    metric, part, classes = guard.metric, guard.part, guard.holdout.classes
    if metric.is_mean or not metric.is_classification or classes is None:
        return None
    targets = part.targets if part.weights is None else part.targets[part.weights > 0.0]
    if np.bincount(targets.ravel(), minlength=len(classes)).min() >= LEAST_OF_A_CLASS:
        return None
    return (
        f"the rarest class has fewer than {LEAST_OF_A_CLASS} rows here, and on so few an estimate "
        f"of {metric.name} errs about as much as the released score, in the other direction; "
        "certificate() states how far that score can be off"
    )


@contextmanager
def _bar(what: str) -> Iterator[Callable[[float], None]]:
    """Show how much of some work is done: a bar after two seconds, where somebody looks on."""
    begun, bar = time.monotonic(), None

    def show(share: float) -> None:
        nonlocal bar
        if bar is None:
            if time.monotonic() - begun < _PATIENCE:
                return
            # Imported here: the package itself is imported without it.
            from rich.console import Console
            from rich.progress import Progress

            console = Console(stderr=True)
            if not console.is_terminal:
                return
            bar = Progress(console=console, transient=True)
            bar.add_task(what, total=1.0)
            bar.start()
        bar.update(bar.task_ids[0], completed=share)

    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()


def on_grid(risk: float, metric: Metric, n: int) -> tuple[float, int]:
    """Return a rounded risk, and how many values it could have been rounded to.

    Parameters
    ----------
    risk : float
    metric : Metric
    n : int
        Rows that ladders measure.

    Returns
    -------
    risk, values : float, int
        On the grid of released scores. A corrected share of rows is no whole number of them: it
        is on that of other scores that are made of labels.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rmse = get_metric("neg_root_mean_squared_error").with_range((0, 500))
    >>> on_grid(0.23456, get_metric("accuracy"), 100), on_grid(55.4321**2, rmse, 100)[0] ** 0.5
    ((0.235, 164), 55.5)
    """
    scale, limits = scale_of(metric), metric.risk_range
    scale = Scale("shares") if scale.kind == "counts" else scale
    if metric.clip and limits is not None:
        # Half of the chance is for values beyond a stated range.
        within = limits if limits[0] <= risk <= limits[1] else None
        return scale.nearest(risk, n), 2 * scale.values(n, within)
    if limits is not None:
        risk = min(max(risk, limits[0]), limits[1])
    elif metric.root:
        risk = max(risk, 0.0)
    return scale.nearest(risk, n), scale.values(n, limits)
