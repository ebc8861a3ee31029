"""What is worked out from the rows: put on record, then shown; the same way for every kind.

Intervals and comparisons, which certificates pay for, estimates, which are none, and what the
reserve is asked, on rows that steered nothing: one incumbent, or the entries of finals.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import as_given, whole
from ladderholdout.certificates import finals, metric_limits, reserve_intervals, score_intervals
from ladderholdout.certificates.advice import stated_range
from ladderholdout.certificates.codes import event_length
from ladderholdout.certificates.comparisons import FAMILY, certify_difference
from ladderholdout.certificates.reserve_intervals import ReserveGrid
from ladderholdout.errors import HoldoutConflict, InvalidArgument, RangeWarning, warn
from ladderholdout.guard import certify, counting, rows, views
from ladderholdout.guard.certificate import ALONE, Comparison, ScoreCertificate, uncertified
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.open_ladder import Predictions
from ladderholdout.guard.seen import note_shown
from ladderholdout.guard.submit import Guard, LedgerLadder, refuse_beyond
from ladderholdout.ledger import evidence
from ladderholdout.ledger.arrays import digests_of
from ladderholdout.ledger.events import FinalsHeld, ReserveQueried, Shown, Submitted
from ladderholdout.ledger.fold import Holdout, LadderRecord, refuse_retired
from ladderholdout.ledger.log import now
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.limits.betting import Limits
from ladderholdout.limits.intervals import LARGEST_SIDE
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import scale_of

T = TypeVar("T")


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
            answer: T | Question | None = ladder.read(lambda tx, record: ask(tx, record, guard))
            if isinstance(answer, Question):
                answer = _worked_out(ladder, ask, guard, answer)
            if answer is None:
                guard.reload()
            elif not isinstance(answer, Question):
                return answer


def _worked_out(
    ladder: LedgerLadder,
    ask: Callable[[Transaction, LadderRecord, Guard], T | Question],
    guard: Guard,
    asked: Question,
) -> T | Question | None:
    """Work an answer out and put it on record, unless something changed; None where labels did."""
    version = guard.labelled.version
    with without_autologging():  # it takes its time, and nobody else should wait for it
        event = asked.work()

    def add(tx: Transaction, record: LadderRecord) -> T | Question | None:
        known = tx.hold(record.holdout_id)
        if known.labels_version != version:
            return None
        again = ask(tx, record, guard)
        if not isinstance(again, Question) or again.about != asked.about:
            return again
        if not isinstance(event, Shown):
            refuse_retired(known.name, known.retired)
        tx.add(record.holdout_id, event)
        # As others will read it; nobody sees it before all of this is committed.
        return ask(tx, record, guard)

    return ladder.write(add)


def _to_show(what: str, ladder: int, limits: Limits, **more: Any) -> Shown:
    """Return the event of an interval that was worked out; an infinite end is None there."""
    low, high = (float(it) if math.isfinite(it) else None for it in (limits.low, limits.high))
    return Shown(
        what=what,
        ladder=ladder,
        confidence=limits.confidence,
        low=low,
        high=high,
        bound=limits.bound,
        log_count=limits.log_count,
        log_values=limits.log_values,
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
    stated = None if confidence is None else certify.level_of(ladder, confidence)
    certified = on_record(ladder, partial(_ask_interval, confidence=stated))
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
    known = ladder.read(lambda tx, record: certify.selection_of(tx, record, metric, guard))
    if isinstance(known, ScoreCertificate):
        return known, False
    return (known.certificate(), True) if known.adds else (certify.itemised(known), False)


def _ask_interval(
    tx: Transaction, ladder: LadderRecord, guard: Guard, *, confidence: float | None
) -> ScoreCertificate | Question:
    selection = certify.selection_of(tx, ladder, guard.metric, guard, confidence)
    if isinstance(selection, ScoreCertificate):
        return selection
    if not selection.adds:
        return certify.itemised(selection)
    predictions = tx.incumbent_predictions(ladder.id)
    assert predictions is not None and ladder.incumbent is not None
    entry = tx.submission(ladder.id, ladder.incumbent)
    rows.check_predictions(tx.holdout(ladder.holdout_id), entry, predictions)

    def work() -> Shown:
        interval = score_intervals.certify_score(
            guard.metric,
            guard.scored(guard.part, predictions),
            selection.transcript,
            released=selection.score,
            confidence=selection.confidence,
            price=selection.price,
        )
        more = {
            "clipped": None if interval.clipped is None else list(interval.clipped),
            "place": selection.transcript.place,
        }
        return _to_show("interval", ladder.id, interval, submission=ladder.incumbent, more=more)

    return Question((ladder.incumbent,), work)


# -- comparisons -------------------------------------------------------------------------------

Side: TypeAlias = int | Predictions
"""One side of a comparison: a numbered submission, or predictions of one metric."""


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
    stated = certify.level_of(ladder, confidence)
    ask = partial(_ask_difference, sides=sides, confidence=stated, per_day=per_day)
    return on_record(ladder, ask)


def _ask_difference(
    tx: Transaction,
    ladder: LadderRecord,
    guard: Guard,
    *,
    sides: tuple[Side, Side],
    confidence: float,
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
        if (shown.ladder, shown.confidence) != (ladder.id, confidence):
            continue
        pair, limits = [shown.more["first"], shown.more["second"]], certify.limits_of(shown)
        if pair[::-1] == digests != pair:
            pair, limits = digests, limits.through(operator.neg)
        if pair == digests:
            assumed = score_intervals.assumptions_of(guard.metric, estimand=holdout.estimand)
            return Comparison(
                *(first, second, limits.low, limits.high, confidence, limits.bound),
                *(limits.log_count, limits.log_values, (*assumed, FAMILY), guard.metric.clipping),
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
    log_count = event_length(number) + price + certify.price_of(tx, ladder, confidence)

    def work() -> Shown:
        difference = certify_difference(
            guard.metric,
            guard.scored(guard.part, models[0]),
            guard.scored(guard.part, models[1]),
            log_count,
            confidence=confidence,
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
        return guard.aligned(side.values[ALONE], side.order)
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


# -- the reserve: rows that steered nothing -----------------------------------------------------

MOST_ENTRIES = 1000
Contestants: TypeAlias = Callable[[Transaction, LadderRecord], Sequence[tuple[str, int, int]]]
"""Reads who takes part: of each entry the account, the ladder and the number of a submission.

A repeat has the number of the first submission of its predictions.
"""
_Entry: TypeAlias = tuple[tuple[str, int, int, str], NDArray[Any], float | None]
"""A submission that takes part, as `FinalsHeld` names it, its predictions and its released risk."""


def _is_exact(metric: Metric) -> bool:
    """Return whether the risk that is shown has exact limits: not if it may leave the range."""
    return metric.is_mean and metric.released_range is not None


def _shown_of_reserve(known: Holdout, position: float = math.inf) -> float:
    """Return what the reserve had shown before a position, in nats."""
    shown: float = sum(query.log_values for at, query in known.looks if at < position)
    shown += sum(held.shown["log_values"] for at, held in known.finals if at < position)
    return shown


def _grid(guard: Guard, query: int, released: float | None, drawn: bool) -> ReserveGrid:
    """Return what a query can show of a risk; of shares of rows without weights, all of them."""
    metric, reserve = guard.metric, guard.reserve
    assert reserve is not None
    scale = None if metric.counts and reserve.weights is None else scale_of(metric)
    own = released, len(guard.part.targets), query
    return ReserveGrid(len(reserve.targets), metric.released_range, drawn, scale, *own)


def reserve_certificate(ladder: LedgerLadder, confidence: float | None) -> ScoreCertificate:
    """Query the reserve once; see `LadderHoldout.reserve_certificate`."""
    with without_frames:
        guard = ladder.guard()
        if guard.reserve is None:
            raise HoldoutConflict(
                f"{guard.holdout.name!r} was registered without a reserve. Register fresh rows "
                "with one, LadderHoldout(X, y, reserve=0.3, ...); for these rows "
                "certificate() gives an interval."
            )
        ask = partial(_ask_reserve, confidence=certify.level_of(ladder, confidence))
        return on_record(ladder, ask)


def _ask_reserve(
    tx: Transaction, ladder: LadderRecord, guard: Guard, *, confidence: float
) -> ScoreCertificate | Question:
    """Return the certificate by the query on record, else what it has to be worked out from."""
    chosen, known, metric = ladder.chosen, tx.fold(ladder.holdout_id), guard.metric
    reserve = guard.reserve
    assert reserve is not None
    refused = partial(uncertified, confidence=confidence, submission=ladder.incumbent)
    if chosen is None:
        return refused("the ladder has no incumbent yet")
    settings = ladder.settings.metric, json.dumps(ladder.settings.metric_settings)
    about = (*settings, chosen.digest, chosen.reserve_digest)
    levels: tuple[float | None, ...] = None, confidence
    same = (look for look in known.looks if look[1].about == about)
    fits = (look for look in same if look[1].evidence["confidence"] in levels)
    position, query = next(fits, (math.inf, None))
    if query is None and known.restored:
        return refused(views.AN_OLDER_COPY)
    others = counting.shown_of_others(tx, known.id, position)
    if isinstance(others, str):
        return refused(others)
    number = 1 + sum(at < position for at, _ in known.looks)
    shown = _shown_of_reserve(known, position)
    price = certify.price_of(tx, ladder, confidence)
    # The level is over exp of this.
    log_count = reserve_intervals.reserve_log_count(number, shown) + others + price
    amended = rows.amended_before(tx, known.id, position, reserve.weights, reserve=True)
    if query is not None:
        certificate = _by_query(metric, reserve, query, amended, log_count, confidence)
        if certificate.missing is None:
            doubts = certify.doubts_about(tx, known.id)
            certificate = replace(certificate, price=price, doubts=doubts)
        return replace(certificate, submission=ladder.incumbent, reserve_query=query.number)
    # Limits are by the rows if there is a bound, and the risk alone has no better one. Labels that
    # were amended may have other values, which a mean alone can allow for.
    depends = reserve.groups is not None or not metric.counts
    by_rows = depends and certify.why_not_by_rows(metric, reserve, amended) is None
    released = chosen.risk if ladder.released is not None else None
    predictions = tx.incumbent_predictions(ladder.id)
    assert predictions is not None

    def measured(grid: ReserveGrid) -> evidence.ReserveEvidence:
        """Measure the incumbent, with limits by its rows if there are such."""
        evaluation = reserve.evaluate(metric, predictions)
        found = evidence.ReserveEvidence(grid, evaluation.risk)
        if by_rows:
            log_level = math.log1p(-confidence) - log_count - math.log(2.0)
            risk, scored = found.shown()[1], guard.scored(reserve, predictions)
            assert risk is not None
            limits = score_intervals.shown_limits(
                metric, scored, log_level, near=metric.to_score(risk)
            )
            ends = metric.to_risk(limits.high), metric.to_risk(limits.low)
            shown = *ends, limits.bound, confidence, limits.log_values, limits.clipped
            return evidence.ReserveEvidence(grid, evaluation.risk, *shown)
        if not grid.drawn:
            return found

        def risk_under(weights: NDArray[np.float64]) -> float:
            return evaluation.risk_under(evaluation.of_examples(weights[None])[0])

        rng = fresh_rng(guard.holdout.secret, 0, number)
        level = reserve_intervals.DRAWN_LEVEL
        ends = reserve_intervals.bayesian_bootstrap(risk_under, evaluation.n_draws, level, rng)
        return replace(found, low=ends[0], high=ends[1])

    def work() -> ReserveQueried:
        grid = _grid(guard, number, released, not (by_rows or _is_exact(metric)))
        try:
            found = measured(grid)
        except InvalidArgument:
            # As where a class is missing among these rows: a fact about labels, and so one of the
            # things that a query can show, counted like the others.
            found = evidence.ReserveEvidence(grid, None)
        low, risk, high = found.shown()
        return ReserveQueried(
            ladder=ladder.id,
            number=number,
            submission=chosen.number,
            about=about,
            evidence=json.loads(json.dumps(asdict(found))),
            low=low,
            risk=risk,
            high=high,
            log_values=found.price(),
            time=now(),
        )

    asked = about, number, shown, released, amended.count, others if by_rows else None
    return Question(asked, work)


def _by_query(
    metric: Metric,
    reserve: rows.Part,
    query: ReserveQueried,
    amended: rows.Amended,
    log_count: float,
    confidence: float,
) -> ScoreCertificate:
    """Return the interval by a query of the reserve."""
    exact, groups, weights = _is_exact(metric), reserve.groups, reserve.weights
    refused = partial(uncertified, confidence=confidence)
    if query.risk is None:
        return refused(f"{metric.name} has no value for these predictions on the reserve's rows")
    if amended.count and (groups is not None or not exact):
        why = f"{metric.name} is no mean in a range, which its limits clip its losses to"
        if groups is not None or not metric.is_mean:
            why = f"{metric.name} is no mean" if groups is None else "its rows are in groups"
        return refused(f"labels of the reserve were amended before, and {why}")
    measured = evidence.ReserveEvidence.of(query)
    n, grid, clipping = len(reserve.targets), measured.grid, ""
    estimand = None if groups is None else groups.estimand
    least, most = metric.released_range or (-math.inf, math.inf)
    assumptions = reserve_intervals.reserve_assumptions(
        exact=exact, binary=metric.counts, weighted=weights is not None, grouped=groups is not None
    )
    if query.low is None or query.high is None:
        unit = most - least
        limits_of_share = partial(
            reserve_intervals.reserve_interval,
            n=n,
            log_count=log_count,
            confidence=confidence,
            binary=metric.counts and weights is None,
            weights=weights,
            rounding=grid.rounding(query.risk) / unit,
        )
        limits = certify.with_amended(amended, (query.risk - least) / unit, limits_of_share)
        limits = limits.through(lambda share: least + unit * share)
    elif measured.bound:
        labels = reserve_intervals.RESERVE_LABELS
        assumptions = score_intervals.assumptions_of(metric, estimand=estimand, labels=labels)
        clipping = score_intervals.clipping_of(metric, measured.clipped, n)
        limits = Limits(query.low, query.high, measured.bound)
    else:
        ends = query.low, query.risk, query.high
        limits = reserve_intervals.drawn_interval(*ends, log_count, confidence)
        limits = replace(limits, low=max(limits.low, least), high=min(limits.high, most))
    limits = limits.through(metric.to_score)
    return ScoreCertificate(
        *(metric.to_score(query.risk), limits.low, limits.high, confidence, None),
        *(limits.bound, log_count, (*assumptions, *amended.assumptions())),
        clipping=clipping,
        clipped=measured.clipped,
        # 0 for the reserve's own grid.
        shown_in_steps=grid.rounding(query.risk) if grid.step > 1 else 0.0,
        mean_over=estimand,
    )


# -- finals: fixed entries are compared --------------------------------------------------------


def finals_of(
    ladder: LedgerLadder, contestants: Contestants, confidence: float, *, again: bool
) -> FinalsHeld:
    """Return the latest finals of a board; hold them where there are none, or once more.

    Parameters
    ----------
    ladder : LedgerLadder
        That which holds the rules of the board.
    contestants : callable
        Who takes part in finals that are held now.
    confidence : float
        As `certify.level_of` returns it.
    again : bool
        Whether to hold finals although there are some.
    """
    note_shown()
    known = len(ladder.read(finals_on_record)) if again else 0
    ask = partial(_ask_finals, contestants=contestants, confidence=confidence, known=known)
    return on_record(ladder, ask)


def finals_on_record(tx: Transaction, ladder: LadderRecord) -> tuple[FinalsHeld, ...]:
    """Return the finals of a board, oldest first."""
    held = tx.fold(ladder.holdout_id).finals
    return tuple(finals for _, finals in held if finals.ladder == ladder.id)


def _ask_finals(
    tx: Transaction,
    ladder: LadderRecord,
    guard: Guard,
    *,
    contestants: Contestants,
    confidence: float,
    known: int,
) -> FinalsHeld | Question:
    """Return the finals on record, or what is compared after what the reserve had shown."""
    held = finals_on_record(tx, ladder)
    if len(held) > known:
        return held[-1]
    holdout, record = tx.holdout(ladder.holdout_id), tx.fold(ladder.holdout_id)
    _refuse(guard, holdout.name)
    named = contestants(tx, ladder)
    if not 2 <= len(named) <= MOST_ENTRIES:
        raise InvalidArgument("entries", f"2 to {MOST_ENTRIES} submissions", len(named))
    others = views.AN_OLDER_COPY if record.restored else counting.shown_of_others(tx, holdout.id)
    if isinstance(others, str):
        raise HoldoutConflict(f"No finals are held: {others}.")
    number, shown = len(record.finals) + 1, _shown_of_reserve(record) + others
    entries = [_entry(tx, *entry) for entry in named]
    amended = tx.amended(holdout.id)
    if amended is not None and holdout.reserve is not None:
        amended = amended[holdout.reserve]
    log_count = event_length(number) + shown + certify.price_of(tx, ladder, confidence)

    def work() -> FinalsHeld:
        metric, reserve, bound = guard.metric, guard.reserve, metric_limits.bound_of(guard.metric)
        assert reserve is not None and isinstance(bound, metric_limits.Bound)
        # Models are compared row by row by a mean of losses in a range; a root of such a mean has
        # the same order. Of a share of rows the intervals follow from the risk.
        paired, counts = metric.is_mean and metric.bounded, metric.counts
        some = np.zeros(len(reserve.targets), dtype=bool) if amended is None else amended
        if some.any() and not paired:
            raise HoldoutConflict(
                "No finals are held: labels of the reserve were amended before, and "
                f"{metric.name} is no mean of losses."
            )
        share, count = float(some.mean()), len(entries)
        own = log_count + finals.interval_price(count, paired=paired)
        log_side = min(math.log1p(-confidence) - own - math.log(2.0), LARGEST_SIDE)
        measured = []
        for _, predictions, released in entries:
            grid = _grid(guard, number, released, not counts)
            risk = loss = low = high = None
            try:
                evaluation = reserve.evaluate(metric, predictions)
                risk, loss = evaluation.risk, evaluation.bounded_losses
            except InvalidArgument:
                pass  # as where a class is missing among these rows: a fact about labels, counted
            if risk is not None and not counts:
                scored = guard.scored(reserve, predictions)
                limits = metric_limits.score_limits(metric, scored, log_side)
                low, high = sorted((metric.to_risk(limits.low), metric.to_risk(limits.high)))
                slack = share * (metric.unit or 1.0)
                low, high = low - slack, high + slack
            measured.append((grid, risk, loss, low, high))
        grids, risks, losses, lows, highs = zip(*measured, strict=True)
        pairs = None
        if paired:
            log_level = math.log1p(-confidence) + math.log(finals.OF_PAIRS) - log_count
            tested = np.asarray(losses), np.array(risks), some, log_level, reserve.order_rng()
            pairs = finals.pair_evidence(*tested, counts=counts, unit=metric.unit or 1.0)
        found = finals.FinalsEvidence(grids, risks, lows, highs, pairs, share)
        test = "sign tests; " if counts else "bets on differences; " if paired else ""
        return FinalsHeld(
            ladder=ladder.id,
            number=number,
            confidence=confidence,
            bound=f"{test}{bound.name}" + (f", with {metric.clipping}" if metric.clip else ""),
            log_count=log_count,
            amended=int(some.sum()),
            entries=tuple(name for name, _, _ in entries),
            evidence=evidence.of_finals(found),
            shown=evidence.finals_shown(found.shown(confidence, log_count)),
            time=now(),
        )

    return Question((number, shown, [name for name, _, _ in entries]), work)


def _refuse(guard: Guard, name: str) -> None:
    """Refuse finals that nothing is known for."""
    metric, reserve = guard.metric, guard.reserve
    if reserve is None:
        raise HoldoutConflict(
            f"{name!r} has no reserve, and finals are held on rows that no submission was "
            "answered from. Register fresh rows with one, Leaderboard(X, y, reserve=0.5, ...)."
        )
    bound, why = metric_limits.bound_of(metric), None
    if isinstance(bound, str):
        why = bound
    elif reserve.weights is not None:
        why = "of rows with weights no paired test is known. Register the rows without weights"
    elif reserve.groups is not None:
        why = (
            "pairs of entries are compared row by row, and these rows are in groups. "
            "reserve_certificate() gives each team an interval by groups"
        )
    elif bound.needs_ranges and metric.target_range is None:
        why = f"{metric.name} needs target_range=(low, high), which holds every target"
    if why is not None:
        raise HoldoutConflict(f"No finals are held: {why}.")


def _entry(tx: Transaction, account: str, ladder_id: int, number: int) -> _Entry:
    ladder, submission = tx.ladder(ladder_id), tx.submission(ladder_id, number)
    if ladder.why_withdrawn(submission) is not None:
        raise InvalidArgument("entries", "submissions that were not withdrawn", number)
    stored = kept_predictions(tx, ladder, submission)
    if stored is None:
        raise InvalidArgument(
            "entries",
            "submissions whose predictions are kept: those that improved, and those of rounds",
            f"submission {number} of {account!r}",
            "Name one that improved, or leave the account's number out.",
        )
    released = ladder.shown(submission) if submission.improved else None
    return (account, ladder_id, number, submission.digest), stored, released
