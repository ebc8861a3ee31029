"""Comparisons of two models: worked out, put on record, then shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import as_given, whole
from ladderholdout.certificates import assumptions_of, bound_of, certify_difference
from ladderholdout.certificates.codes import event_length
from ladderholdout.certificates.comparisons import FAMILY
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.certify.certification import Level, ends_of, level_of, shown_by_now
from ladderholdout.guard.certify.on_record import Question, on_record, to_show
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.opening import check_predictions
from ladderholdout.guard.query import Guard, LedgerLadder, refuse_beyond
from ladderholdout.guard.shown import Comparison, Decision, Release
from ladderholdout.ledger.arrays import digests_of
from ladderholdout.ledger.events import Shown
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.log import now
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """One side of a comparison: a numbered submission, or predictions in the order of the rows."""

    number: int | None
    predictions: NDArray[Any] | None
    order: NDArray[np.intp] | None = None


_Sides: TypeAlias = tuple[Compared, Compared]


def compared(
    ladder: LedgerLadder, sides: _Sides, confidence: float | None, per_day: int | None
) -> Comparison:
    """Compare two models; see `LadderHoldout.compare`."""
    with without_frames:
        guard = ladder.guard()
        reason = _why_not(guard)
        if reason is not None:
            raise HoldoutConflict(f"Nothing was compared: {reason}.")
        level = level_of(ladder, confidence)
    return on_record(ladder, partial(_asking, sides=sides, level=level, per_day=per_day))


def _why_not(guard: Guard) -> str | None:
    metric = guard.metric
    bound = bound_of(metric, grouped=guard.holdout.estimand is not None)
    if isinstance(bound, str):
        return bound
    if guard.part.weights is not None:
        return "no comparison of rows with weights is known"
    if bound.needs_ranges and metric.target_range is None:
        return "its interval needs target_range=(low, high), which holds every target"
    return None


def _asking(
    tx: Transaction,
    ladder: LadderRecord,
    guard: Guard,
    *,
    sides: _Sides,
    level: Level,
    per_day: int | None,
) -> Comparison | Question:
    """Return the comparison if it is on record, else what it has to be worked out from."""
    holdout = tx.holdout(ladder.holdout_id)
    models = [_predictions(tx, ladder, guard, side) for side in sides]
    digests = [digests_of(holdout.secret, values, holdout.reserve)[0] for values in models]
    known = list(tx.fold(ladder.holdout_id).shown_of("comparison"))
    numbers = sides[0].number, sides[1].number
    if holdout.retired is not None and None in numbers:
        raise HoldoutConflict(
            f"Nothing was compared: {holdout.name!r} takes no submissions any more, so only two "
            "of its submissions are compared. Give their numbers: holdout.compare(2, 1)."
        )
    for shown in known:
        if (shown.ladder, shown.confidence) != (ladder.id, level.confidence):
            continue
        pair = [shown.more["first"], shown.more["second"]]
        for turned in (False, True):
            if (pair[::-1] if turned else pair) == digests:
                return _comparison(shown, guard.metric, holdout.estimand, numbers, turned)
    budget, own = ladder.settings.budget, sum(shown.ladder == ladder.id for shown in known)
    if budget is not None and own + ladder.state["releases"] >= budget:
        raise HoldoutConflict(
            f"Nothing was compared: releases and comparisons of this ladder have used up its "
            f"budget of {budget}, since all later certificates pay for either. What was compared "
            "before is shown again."
        )
    refuse_beyond(tx, ladder, per_day)
    price = shown_by_now(tx, ladder)
    if isinstance(price, str):
        raise HoldoutConflict(f"Nothing was compared: {price}.")
    number = len(known) + 1

    def work() -> Shown:
        first, second = (guard.scored(guard.part, values) for values in models)
        log_count = event_length(number) + price + level.price
        difference = certify_difference(
            guard.metric, first, second, log_count, confidence=level.confidence
        )
        more = {
            "first": digests[0],
            "second": digests[1],
            "numbers": list(numbers),
            "time": now().isoformat(),
        }
        return to_show("comparison", ladder.id, difference, more=more)

    # What another process showed meanwhile is to be counted: then it is asked again.
    return Question((number, price), work)


def _predictions(
    tx: Transaction, ladder: LadderRecord, guard: Guard, side: Compared
) -> NDArray[Any]:
    if side.number is None:
        assert side.predictions is not None
        holdout = guard.holdout
        aligned = guard.metric.canonical(side.predictions, holdout.n, holdout.classes)
        return aligned.take(guard.order if side.order is None else side.order, axis=0)
    if not 1 <= side.number <= ladder.submissions:
        allowed = f"the number of one of {ladder.submissions} submissions, or predictions"
        raise InvalidArgument("a submission", allowed, side.number)
    entry = tx.submission(ladder.id, side.number)
    if entry.repeat_of is not None:
        entry = tx.submission(ladder.id, entry.repeat_of)
    stored = tx.predictions(ladder, entry.number)
    if stored is None:
        raise InvalidArgument(
            "a submission",
            "one whose predictions are kept: that improved, or was in the first batch or a round",
            side.number,
            "Give its predictions instead of its number.",
        )
    check_predictions(tx.holdout(ladder.holdout_id), entry, stored)
    return stored


def _comparison(
    shown: Shown,
    metric: Metric,
    estimand: str | None,
    numbers: tuple[int | None, int | None],
    turned: bool,
) -> Comparison:
    low, high = ends_of(shown)
    low, high = (-high, -low) if turned else (low, high)
    assumptions = assumptions_of(metric, estimand=estimand)
    assert shown.confidence is not None
    return Comparison(
        *(*numbers, low, high, shown.confidence, shown.bound, shown.log_count),
        *(shown.log_values, (*assumptions, FAMILY), metric.clipping),
    )


def number_of(model: Any) -> int | None:
    """Return the number of a submission, if that or its answer was given for a model."""
    if isinstance(model, Release | Decision):
        model = model.submission
    if isinstance(model, bool | np.bool_):
        raise InvalidArgument("a model", "a number, predictions or an estimator", as_given(model))
    if isinstance(model, int | np.integer):
        return whole("a submission", model)
    return None
