"""Comparisons of two models: worked out, put on record, then shown."""

from __future__ import annotations

import math
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
from ladderholdout.guard.certify.certification import Level, level_of, shown_by_now
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.opening import check_predictions
from ladderholdout.guard.query import Guard, LedgerLadder, refuse_beyond
from ladderholdout.guard.shown import Comparison, Decision, Release
from ladderholdout.ledger import LadderRecord, Transaction, digests_of
from ladderholdout.ledger.batches import ComparisonRecord
from ladderholdout.ledger.records import now
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
        while True:
            ask = partial(_asking, guard=guard, sides=sides, level=level, per_day=per_day)
            asked = ladder.read(ask)
            if isinstance(asked, Comparison):
                return asked
            version, noted = guard.labelled.version, _worked_out(guard, asked)
            # What another process showed meanwhile is to be counted: it is read again.
            if not ladder.write(partial(_record, asked=asked, noted=noted, version=version)):
                guard.reload()


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


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """What is compared, after what was shown."""

    ladder: LadderRecord
    digests: tuple[str, str]
    numbers: tuple[int | None, int | None]
    predictions: tuple[NDArray[Any], NDArray[Any]]
    level: Level
    number: int
    shown: float


def _asking(
    tx: Transaction,
    ladder: LadderRecord,
    *,
    guard: Guard,
    sides: _Sides,
    level: Level,
    per_day: int | None,
) -> Comparison | _Question:
    """Return the comparison on record, or what it has to be worked out from."""
    holdout = tx.holdout(ladder.holdout_id)
    models = [_predictions(tx, ladder, guard, side) for side in sides]
    digests = [digests_of(holdout.secret, values, holdout.reserve)[0] for values in models]
    known = tx.batches.comparisons(ladder.holdout_id)
    numbers = sides[0].number, sides[1].number
    if holdout.retired is not None and None in numbers:
        # Whoever made them may have fitted models on these rows since.
        raise HoldoutConflict(
            f"Nothing was compared: {holdout.name!r} takes no submissions any more, so only two "
            "of its submissions are compared. Give their numbers: holdout.compare(2, 1)."
        )
    for record in known:
        if (record.ladder_id, record.confidence) != (ladder.id, level.confidence):
            continue
        for pair, turned in (((record.first, record.second), False), (_turned(record), True)):
            if pair == tuple(digests):
                return _comparison(record, guard.metric, holdout.estimand, numbers, turned)
    budget, own = ladder.settings.budget, sum(record.ladder_id == ladder.id for record in known)
    if budget is not None and own + ladder.state["releases"] >= budget:
        raise HoldoutConflict(
            f"Nothing was compared: releases and comparisons of this ladder have used up its "
            f"budget of {budget}, since all later certificates pay for either. What was compared "
            "before is shown again."
        )
    refuse_beyond(tx, ladder, per_day)
    shown = shown_by_now(tx, ladder)
    if isinstance(shown, str):
        raise HoldoutConflict(f"Nothing was compared: {shown}.")
    return _Question(
        ladder,
        (digests[0], digests[1]),
        numbers,
        (models[0], models[1]),
        level,
        len(known) + 1,
        shown,
    )


def _turned(record: ComparisonRecord) -> tuple[str, str]:
    return record.second, record.first


def _predictions(
    tx: Transaction, ladder: LadderRecord, guard: Guard, side: Compared
) -> NDArray[Any]:
    """Return the predictions of one side, in the order of the content."""
    if side.number is None:
        assert side.predictions is not None
        holdout = guard.holdout
        aligned = guard.metric.canonical(side.predictions, holdout.n, holdout.classes)
        return aligned.take(guard.order if side.order is None else side.order, axis=0)
    if not 1 <= side.number <= ladder.submissions:
        allowed = f"the number of one of {ladder.submissions} submissions, or predictions"
        raise InvalidArgument("a submission", allowed, side.number)
    (entry,) = tx.entries(ladder.id, after=side.number - 1, limit=1)
    number = entry.repeat_of or side.number
    stored = tx.batches.predictions_of(ladder.id, number)
    if stored is None:
        raise InvalidArgument(
            "a submission",
            "one whose predictions are kept: that improved, or was in the first batch or a round",
            side.number,
            "Give its predictions instead of its number.",
        )
    if number != side.number:
        (entry,) = tx.entries(ladder.id, after=number - 1, limit=1)
    check_predictions(tx.holdout(ladder.holdout_id), entry, stored)
    return stored


def _worked_out(guard: Guard, asked: _Question) -> dict[str, Any]:
    """Return what is to be noted of the comparison."""
    with without_autologging():
        first, second = (guard.scored(guard.part, values) for values in asked.predictions)
        difference = certify_difference(
            guard.metric,
            first,
            second,
            event_length(asked.number) + asked.shown + asked.level.price,
            confidence=asked.level.confidence,
        )
    return {
        "first": asked.digests[0],
        "second": asked.digests[1],
        "numbers": list(asked.numbers),
        "confidence": difference.confidence,
        "low": difference.low if math.isfinite(difference.low) else None,
        "high": difference.high if math.isfinite(difference.high) else None,
        "bound": difference.bound,
        "log_count": difference.log_count,
        "log_values": difference.log_values,
        "time": now().isoformat(),
    }


def _record(
    tx: Transaction,
    ladder: LadderRecord,
    *,
    asked: _Question,
    noted: dict[str, Any],
    version: int,
) -> bool:
    """Record a comparison unless something changed meanwhile; False where labels did."""
    if tx.chains.end(ladder.holdout_id).labels_version != version:
        return False
    known = len(tx.batches.comparisons(ladder.holdout_id))
    if known + 1 == asked.number and shown_by_now(tx, ladder) == asked.shown:
        tx.batches.note_comparison(ladder, noted)
    return True


def _comparison(
    record: ComparisonRecord,
    metric: Metric,
    estimand: str | None,
    numbers: tuple[int | None, int | None],
    turned: bool,
) -> Comparison:
    """Return a comparison as it was shown, from the side from which it is asked for."""
    low, high = (-record.high, -record.low) if turned else (record.low, record.high)
    assumptions = assumptions_of(metric, estimand=estimand)
    return Comparison(
        *(*numbers, low, high, record.confidence, record.bound, record.log_count),
        *(record.log_values, (*assumptions, FAMILY), metric.clipping),
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
