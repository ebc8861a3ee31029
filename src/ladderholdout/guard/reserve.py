"""What the reserve is asked, on rows that steered nothing: one incumbent, or the entries of finals.

Measured, put on record, then shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import finals, metric_limits, reserve_intervals, score_intervals
from ladderholdout.certificates.codes import event_length
from ladderholdout.certificates.reserve_intervals import ReserveGrid
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard import certify, counting, on_record
from ladderholdout.guard.certificate import ScoreCertificate, uncertified
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.rows import Amended, Part, amended_before
from ladderholdout.guard.seen import note_shown
from ladderholdout.guard.submit import Guard, LedgerLadder
from ladderholdout.guard.views import AN_OLDER_COPY
from ladderholdout.ledger import evidence
from ladderholdout.ledger.events import FinalsHeld, ReserveQueried
from ladderholdout.ledger.fold import Holdout, LadderRecord
from ladderholdout.ledger.log import now
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.limits.intervals import LARGEST_SIDE
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import scale_of

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


def _grid(
    guard: Guard, reserve: Part, query: int, released: float | None, drawn: bool
) -> ReserveGrid:
    """Return what a query can show of a risk; of shares of rows without weights, all of them."""
    metric, n = guard.metric, len(reserve.targets)
    scale = None if metric.counts and reserve.weights is None else scale_of(metric)
    own = released, len(guard.part.targets), query
    return ReserveGrid(n, metric.released_range, drawn, scale, *own)


# -- queries of an incumbent -------------------------------------------------------------------


def certificate(ladder: LedgerLadder, confidence: float | None) -> ScoreCertificate:
    """Query the reserve once; see `LadderHoldout.reserve_certificate`."""
    with without_frames:
        guard = ladder.guard()
        if guard.reserve is None:
            raise HoldoutConflict(
                f"{guard.holdout.name!r} was registered without a reserve. Register fresh rows "
                "with one, LadderHoldout(X, y, reserve=0.3, ...); for these rows "
                "certificate() gives an interval."
            )
        ask = partial(_ask, level=certify.level_of(ladder, confidence))
        return on_record.on_record(ladder, ask)


def _ask(
    tx: Transaction, ladder: LadderRecord, guard: Guard, *, level: certify.Level
) -> ScoreCertificate | on_record.Question:
    """Return the certificate by the query on record, else what it has to be worked out from."""
    chosen, known, metric = ladder.chosen, tx.fold(ladder.holdout_id), guard.metric
    reserve = guard.labelled.reserve
    assert reserve is not None
    refused = partial(uncertified, confidence=level.confidence, submission=ladder.incumbent)
    if chosen is None:
        return refused("the ladder has no incumbent yet")
    settings = ladder.settings.metric, json.dumps(ladder.settings.metric_settings)
    about = (*settings, chosen.digest, chosen.reserve_digest)
    levels, position, query = (None, level.confidence), math.inf, None
    for at, look in known.looks:
        if look.about == about and look.evidence["confidence"] in levels:
            position, query = at, look
            break
    if query is None and known.restored:
        return refused(AN_OLDER_COPY)
    others, missing = counting.shown_of_others(tx, known.id, position)
    if missing is not None:
        return refused(missing)
    number = 1 + sum(at < position for at, _ in known.looks)
    shown = _shown_of_reserve(known, position)
    # The level is over exp of this.
    log_count = reserve_intervals.reserve_log_count(number, shown) + others + level.price
    amended = amended_before(tx, known.id, position, reserve.weights, reserve=True)
    if query is not None:
        certificate = _certificate(metric, reserve, query, amended, log_count, level)
        certificate = replace(certificate, submission=ladder.incumbent, reserve_query=query.number)
        if certificate.missing is not None:
            return certificate
        return replace(certificate, doubts=certify.doubts_about(tx, known.id))
    # Limits are by the rows if there is a bound, and the risk alone has no better one. Labels that
    # were amended may have other values, which a mean alone can allow for.
    bound = metric_limits.bound_of(metric, grouped=reserve.groups is not None)
    by_rows = (
        isinstance(bound, metric_limits.Bound)
        and not (bound.needs_ranges and metric.target_range is None)
        and (reserve.groups is not None or not metric.counts)
        and reserve.weights is None
        and not amended.count
    )
    released = chosen.risk if ladder.released is not None else None
    predictions = tx.incumbent_predictions(ladder.id)
    assert predictions is not None

    def work() -> ReserveQueried:
        drawn = not (by_rows or _is_exact(metric))
        grid = _grid(guard, reserve, number, released, drawn)
        log_level = math.log1p(-level.confidence) - log_count - math.log(2.0)
        limits_at = (log_level, level.confidence) if by_rows else None
        measured = _measured(guard, reserve, predictions, grid, limits_at)
        low, risk, high = measured.shown()
        return ReserveQueried(
            ladder=ladder.id,
            number=number,
            submission=chosen.number,
            about=about,
            evidence=json.loads(json.dumps(asdict(measured))),
            low=low,
            risk=risk,
            high=high,
            log_values=measured.price(),
            time=now(),
        )

    depends = about, number, shown, released, amended.count, others if by_rows else None
    return on_record.Question(depends, work)


def _measured(
    guard: Guard,
    reserve: Part,
    predictions: NDArray[Any],
    grid: ReserveGrid,
    limits_at: tuple[float, float] | None,
) -> evidence.ReserveEvidence:
    """Measure an incumbent on the reserve, with limits by its rows at a level if one is given."""
    metric, rng = guard.metric, fresh_rng(guard.holdout.secret, 0, grid.query)
    try:
        evaluation = reserve.evaluate(metric, predictions)
        measured = evidence.ReserveEvidence(grid, evaluation.risk)
        if limits_at is not None:
            log_level, confidence = limits_at
            risk, scored = measured.shown()[1], guard.scored(reserve, predictions)
            assert risk is not None
            limits, price, clipped = score_intervals.shown_limits(
                metric, scored, log_level, near=metric.to_score(risk)
            )
            low, high = metric.to_risk(limits.high), metric.to_risk(limits.low)
            shown = low, high, limits.bound, confidence, price, clipped
            return evidence.ReserveEvidence(grid, evaluation.risk, *shown)
        if not grid.drawn:
            return measured

        def risk_under(weights: NDArray[np.float64]) -> float:
            return evaluation.risk_under(evaluation.of_examples(weights[None])[0])

        level = reserve_intervals.DRAWN_LEVEL
        ends = reserve_intervals.bayesian_bootstrap(risk_under, evaluation.n_draws, level, rng)
        return replace(measured, low=ends[0], high=ends[1])
    except InvalidArgument:
        # As where a class is missing among these rows: a fact about labels, and so one of the
        # things that a query can show, counted like the others.
        return evidence.ReserveEvidence(grid, None)


def _certificate(
    metric: Metric,
    reserve: Part,
    query: ReserveQueried,
    amended: Amended,
    log_count: float,
    level: certify.Level,
) -> ScoreCertificate:
    """Return the interval by a query of the reserve."""
    exact, groups, weights = _is_exact(metric), reserve.groups, reserve.weights
    refused = partial(uncertified, confidence=level.confidence)
    if query.risk is None:
        return refused(f"{metric.name} has no value for these predictions on the reserve's rows")
    if amended.count and (groups is not None or not exact):
        why = f"{metric.name} is no mean in a range, which its limits clip its losses to"
        if groups is not None or not metric.is_mean:
            why = f"{metric.name} is no mean" if groups is None else "its rows are in groups"
        return refused(f"labels of the reserve were amended before, and {why}")
    measured = evidence.ReserveEvidence.of(query)
    n, grid, clipping = len(reserve.targets), measured.grid, ""
    bound, low, high = measured.bound, query.low, query.high
    estimand = None if groups is None else groups.estimand
    least, most = metric.released_range or (-math.inf, math.inf)
    assumptions = reserve_intervals.reserve_assumptions(
        exact=exact, binary=metric.counts, weighted=weights is not None, grouped=groups is not None
    )
    if low is None or high is None:
        unit, binary = most - least, metric.counts and weights is None
        shares = dict.fromkeys(amended.around((query.risk - least) / unit))
        by_share = [
            reserve_intervals.reserve_interval(
                *(share, n, log_count),
                confidence=level.confidence,
                binary=binary,
                weights=weights,
                rounding=grid.rounding(query.risk) / unit,
            )
            for share in shares
        ]
        bound, low, high = by_share[0][0], by_share[0][1], by_share[-1][2]
        low, high = least + unit * low, least + unit * high
    elif bound:
        labels = reserve_intervals.RESERVE_LABELS
        assumptions = score_intervals.assumptions_of(metric, estimand=estimand, labels=labels)
        clipping = score_intervals.clipping_of(metric, measured.clipped, n)
    else:
        ends = low, query.risk, high
        bound, low, high = reserve_intervals.drawn_interval(*ends, log_count, level.confidence)
        low, high = max(low, least), min(high, most)
    return ScoreCertificate(
        score=metric.to_score(query.risk),
        low=metric.to_score(high),
        high=metric.to_score(low),
        confidence=level.confidence,
        submission=None,
        bound=bound,
        log_count=log_count,
        assumptions=(*assumptions, *amended.assumptions()),
        price=level.price,
        clipping=clipping,
        clipped=measured.clipped,
        # 0 for the reserve's own grid.
        shown_in_steps=grid.rounding(query.risk) if grid.step > 1 else 0.0,
        mean_over=estimand,
    )


# -- finals: fixed entries are compared --------------------------------------------------------


def finals_of(
    ladder: LedgerLadder, contestants: Contestants, level: certify.Level, *, again: bool
) -> FinalsHeld:
    """Return the latest finals of a board; hold them where there are none, or once more.

    Parameters
    ----------
    ladder : LedgerLadder
        That which holds the rules of the board.
    contestants : callable
        Who takes part in finals that are held now.
    level : certify.Level
    again : bool
        Whether to hold finals although there are some.
    """
    note_shown()
    known = len(ladder.read(finals_on_record)) if again else 0
    ask = partial(_ask_finals, contestants=contestants, level=level, known=known)
    return on_record.on_record(ladder, ask)


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
    level: certify.Level,
    known: int,
) -> FinalsHeld | on_record.Question:
    """Return the finals on record, or what is compared after what the reserve had shown."""
    held = finals_on_record(tx, ladder)
    if len(held) > known:
        return held[-1]
    holdout, record = tx.holdout(ladder.holdout_id), tx.fold(ladder.holdout_id)
    _refuse(guard, holdout.name)
    named = contestants(tx, ladder)
    if not 2 <= len(named) <= MOST_ENTRIES:
        raise InvalidArgument("entries", f"2 to {MOST_ENTRIES} submissions", len(named))
    missing = AN_OLDER_COPY if record.restored else None
    others, unknown = counting.shown_of_others(tx, holdout.id)
    missing = missing or unknown
    if missing is not None:
        raise HoldoutConflict(f"No finals are held: {missing}.")
    number, shown = len(record.finals) + 1, _shown_of_reserve(record) + others
    entries = [_entry(tx, *entry) for entry in named]
    amended = tx.amended(holdout.id)
    if amended is not None and holdout.reserve is not None:
        amended = amended[holdout.reserve]
    log_count = event_length(number) + shown + level.price
    work = partial(_held, guard, ladder.id, number, entries, log_count, amended, level)
    return on_record.Question((number, shown, [name for name, _, _ in entries]), work)


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
    stored = on_record.kept_predictions(tx, ladder, submission)
    if stored is None:
        raise InvalidArgument(
            "entries",
            "submissions whose predictions are kept: those that improved, and those of rounds",
            f"submission {number} of {account!r}",
            "Name one that improved, or leave the account's number out.",
        )
    released = ladder.shown(submission) if submission.improved else None
    return (account, ladder_id, number, submission.digest), stored, released


def _held(
    guard: Guard,
    ladder: int,
    number: int,
    entries: list[_Entry],
    log_count: float,
    amended: NDArray[np.bool_] | None,
    level: certify.Level,
) -> FinalsHeld:
    """Compare the entries on the reserve."""
    metric, reserve = guard.metric, guard.labelled.reserve
    bound = metric_limits.bound_of(metric)
    assert reserve is not None and isinstance(bound, metric_limits.Bound)
    # Models are compared row by row by a mean of losses in a range; a root of such a mean has the
    # same order. Of a share of rows the intervals follow from the risk.
    paired, counts = metric.is_mean and metric.bounded, metric.counts
    some = np.zeros(len(reserve.targets), dtype=bool) if amended is None else amended
    if some.any() and not paired:
        raise HoldoutConflict(
            "No finals are held: labels of the reserve were amended before, and "
            f"{metric.name} is no mean of losses."
        )
    share, count = float(some.mean()), len(entries)
    own = log_count + finals.interval_price(count, paired=paired)
    log_side = min(math.log1p(-level.confidence) - own - math.log(2.0), LARGEST_SIDE)
    measured = []
    for _, predictions, released in entries:
        grid = _grid(guard, reserve, number, released, not counts)
        risk = loss = low = high = None
        try:
            evaluation = reserve.evaluate(metric, predictions)
            risk, loss = evaluation.risk, evaluation.bounded_losses
        except InvalidArgument:
            pass  # as where a class is missing among these rows: a fact about labels, and counted
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
        log_level = math.log1p(-level.confidence) + math.log(finals.OF_PAIRS) - log_count
        tested = np.asarray(losses), np.array(risks), some, log_level, reserve.order_rng()
        pairs = finals.pair_evidence(*tested, counts=counts, unit=metric.unit or 1.0)
    found = finals.FinalsEvidence(grids, risks, lows, highs, pairs, share)
    test = "sign tests; " if counts else "bets on differences; " if paired else ""
    return FinalsHeld(
        ladder=ladder,
        number=number,
        confidence=level.confidence,
        bound=f"{test}{bound.name}" + (f", with {metric.clipping}" if metric.clip else ""),
        log_count=log_count,
        amended=int(some.sum()),
        entries=tuple(name for name, _, _ in entries),
        evidence=evidence.of_finals(found),
        shown=evidence.finals_shown(found.shown(level.confidence, log_count)),
        time=now(),
    )
