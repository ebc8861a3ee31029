"""Finals: fixed entries are compared on the reserve, put on record, then shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import (
    FinalsEvidence,
    ReserveGrid,
    Rows,
    bound_of,
    event_length,
    interval_price,
    score_limits,
    sign_evidence,
    upper_triangle,
)
from ladderholdout.certificates.finals import OF_PAIRS
from ladderholdout.certificates.targeted_bets import ordered_mean_evidence
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.certify.certification import Level, price_of_others
from ladderholdout.guard.certify.on_record import Question, on_record
from ladderholdout.guard.opening import Part, check_predictions
from ladderholdout.guard.query import Guard, LedgerLadder, note_shown
from ladderholdout.guard.shown import AN_OLDER_COPY
from ladderholdout.ledger.events import FinalsHeld
from ladderholdout.ledger.evidence import finals_shown, of_finals
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.log import now
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.limits.intervals import LARGEST_SIDE
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import FloatArray
from ladderholdout.metrics.scales import scale_of

MOST_ENTRIES = 1000
Contestants: TypeAlias = Callable[[Transaction, LadderRecord], Sequence[tuple[str, int, int]]]
"""Reads who takes part: of each entry the account, the ladder and the number of a submission.

A repeat has the number of the first submission of its predictions.
"""


def finals_of(
    ladder: LedgerLadder, contestants: Contestants, level: Level, *, again: bool
) -> FinalsHeld:
    """Return the latest finals of a board; hold them where there are none, or once more.

    Parameters
    ----------
    ladder : LedgerLadder
        That which holds the rules of the board.
    contestants : callable
        Who takes part in finals that are held now.
    level : Level
    again : bool
        Whether to hold finals although there are some.
    """
    note_shown()
    known = len(ladder.read(finals_on_record)) if again else 0
    return on_record(ladder, partial(_asking, contestants=contestants, level=level, known=known))


def finals_on_record(tx: Transaction, ladder: LadderRecord) -> tuple[FinalsHeld, ...]:
    """Return the finals of a board, oldest first."""
    held = tx.fold(ladder.holdout_id).finals
    return tuple(finals for _, finals in held if finals.ladder == ladder.id)


def _asking(
    tx: Transaction,
    ladder: LadderRecord,
    guard: Guard,
    *,
    contestants: Contestants,
    level: Level,
    known: int,
) -> FinalsHeld | Question:
    """Return the finals on record, or what is compared after what the reserve had shown."""
    held = finals_on_record(tx, ladder)
    if len(held) > known:
        return held[-1]
    holdout = tx.holdout(ladder.holdout_id)
    _refuse(guard, holdout.name)
    named = contestants(tx, ladder)
    if not 2 <= len(named) <= MOST_ENTRIES:
        raise InvalidArgument("entries", f"2 to {MOST_ENTRIES} submissions", len(named))
    number, shown = _price(tx, ladder)
    entries = [_entry(tx, *entry) for entry in named]
    amended, reserve = tx.amended(ladder.holdout_id), holdout.reserve
    if amended is not None and reserve is not None:
        amended = amended[reserve]
    log_count = event_length(number) + shown + level.price
    work = partial(_worked_out, guard, ladder.id, number, entries, log_count, amended, level)
    return Question((number, shown, [entry.name for entry in entries]), work)


def _price(tx: Transaction, ladder: LadderRecord) -> tuple[int, float]:
    """Return the number of the next finals of a holdout, and what was shown of its reserve."""
    known = tx.fold(ladder.holdout_id)
    if known.restored:
        raise HoldoutConflict(f"No finals are held: {AN_OLDER_COPY}.")
    others, missing = price_of_others(tx, known.id, tx.lengths(known.id))
    if missing is not None:
        raise HoldoutConflict(f"No finals are held: {missing}.")
    shown = sum(query.log_values for _, query in known.looks)
    shown += sum(finals.shown["log_values"] for _, finals in known.finals)
    return len(known.finals) + 1, shown + others


def _refuse(guard: Guard, name: str) -> None:
    """Refuse finals that nothing is known for."""
    metric, reserve = guard.metric, guard.reserve
    if reserve is None:
        raise HoldoutConflict(
            f"{name!r} has no reserve, and finals are held on rows that no submission was "
            "answered from. Register fresh rows with one, Leaderboard(X, y, reserve=0.5, ...)."
        )
    bound = bound_of(metric)
    if isinstance(bound, str):
        raise HoldoutConflict(f"No finals are held: {bound}.")
    if reserve.weights is not None:
        raise HoldoutConflict(
            "No finals are held: of rows with weights no paired test is known. Register the rows "
            "without weights."
        )
    if reserve.groups is not None:
        raise HoldoutConflict(
            "No finals are held: pairs of entries are compared row by row, and these rows are in "
            "groups. reserve_certificate() gives each team an interval by groups."
        )
    if bound.needs_ranges and metric.target_range is None:
        raise HoldoutConflict(
            f"No finals are held: {metric.name} needs target_range=(low, high), which holds "
            "every target."
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A submission that takes part, as `FinalsHeld` names it, with its predictions."""

    name: tuple[str, int, int, str]
    predictions: NDArray[Any]
    released: float | None


def _entry(tx: Transaction, account: str, ladder_id: int, number: int) -> _Entry:
    ladder = tx.ladder(ladder_id)
    submission = tx.submission(ladder_id, number)
    stored = tx.predictions(ladder, number)
    if ladder.why_withdrawn(submission) is not None:
        raise InvalidArgument("entries", "submissions that were not withdrawn", number)
    if stored is None:
        raise InvalidArgument(
            "entries",
            "submissions whose predictions are kept: those that improved, and those of rounds",
            f"submission {number} of {account!r}",
            "Name one that improved, or leave the account's number out.",
        )
    check_predictions(tx.holdout(ladder.holdout_id), submission, stored)
    released = ladder.shown(submission) if submission.improved else None
    return _Entry((account, ladder_id, number, submission.digest), stored, released)


def _worked_out(
    guard: Guard,
    ladder: int,
    number: int,
    entries: list[_Entry],
    log_count: float,
    amended: NDArray[np.bool_] | None,
    level: Level,
) -> FinalsHeld:
    """Compare the entries on the reserve."""
    metric, reserve = guard.metric, guard.labelled.reserve
    assert reserve is not None
    amended = amended if amended is not None and amended.any() else None
    if amended is not None and not _is_paired(metric):
        raise HoldoutConflict(
            "No finals are held: labels of the reserve were amended before, and "
            f"{metric.name} is no mean of losses."
        )
    n, count = len(reserve.targets), len(entries)
    grids = tuple(
        ReserveGrid(
            n,
            metric.released_range,
            drawn=not _counts(metric),
            scale=None if _counts(metric) else scale_of(metric),
            released=entry.released,
            ladder_rows=len(guard.part.targets),
            query=number,
        )
        for entry in entries
    )
    own = log_count + interval_price(count, paired=_is_paired(metric))
    log_side = min(math.log1p(-level.confidence) - own - math.log(2.0), LARGEST_SIDE)
    losses, measured = [], []
    for entry in entries:
        risk, loss = _risk(metric, reserve, entry.predictions)
        low = high = None
        if risk is not None and not _counts(metric):
            rows = guard.scored(reserve, entry.predictions)
            low, high = _ends(metric, rows, log_side, amended)
        losses.append(loss)
        measured.append((risk, low, high))
    pairs = None
    if _is_paired(metric):
        log_level = math.log1p(-level.confidence) + math.log(OF_PAIRS) - log_count
        target = math.log(max(count * (count - 1), 2)) - log_level
        shown = np.array([risk for risk, _, _ in measured])
        rng = reserve.order_rng()
        pairs = _compared(metric, np.asarray(losses), shown, amended, target, rng)
    risks, lows, highs = zip(*measured, strict=True)
    share = 0.0 if amended is None else float(amended.mean())
    evidence = FinalsEvidence(grids, risks, lows, highs, pairs, share)
    bound = bound_of(metric)
    assert not isinstance(bound, str)
    return FinalsHeld(
        ladder=ladder,
        number=number,
        confidence=level.confidence,
        bound=f"{_test(metric)}{bound.name}" + (f", with {metric.clipping}" if metric.clip else ""),
        log_count=log_count,
        amended=0 if amended is None else int(amended.sum()),
        entries=tuple(entry.name for entry in entries),
        evidence=of_finals(evidence),
        shown=finals_shown(evidence.shown(level.confidence, log_count)),
        time=now(),
    )


def _is_paired(metric: Metric) -> bool:
    """Return whether models are compared row by row: by a mean of losses in a range.

    A root of such a mean has the same order.
    """
    return metric.is_mean and metric.bounded


def _counts(metric: Metric) -> bool:
    """Return whether the risk is a share of rows."""
    return metric.is_mean and metric.counts


def _test(metric: Metric) -> str:
    if _counts(metric):
        return "sign tests; "
    return "bets on differences; " if _is_paired(metric) else ""


def _risk(
    metric: Metric, reserve: Part, predictions: NDArray[Any]
) -> tuple[float | None, FloatArray | None]:
    """Return the risk on the reserve, None without one, and the losses where it is their mean."""
    try:
        evaluation = reserve.evaluate(metric, predictions)
    except InvalidArgument:
        # As where a class is missing among these rows: a fact about labels, and counted.
        return None, None
    return evaluation.risk, evaluation.bounded_losses


def _ends(
    metric: Metric, rows: Rows, log_side: float, amended: NDArray[np.bool_] | None
) -> tuple[float, float]:
    """Return the ends of an interval for the risk."""
    limits = score_limits(metric, rows, log_side)
    low, high = sorted((metric.to_risk(limits.low), metric.to_risk(limits.high)))
    slack = 0.0 if amended is None else float(amended.mean()) * (metric.unit or 1.0)
    return low - slack, high + slack


def _compared(
    metric: Metric,
    losses: FloatArray,
    risks: FloatArray,
    amended: NDArray[np.bool_] | None,
    target: float,
    rng: np.random.Generator,
) -> tuple[int, ...]:
    """Return the evidence of all pairs, as `FinalsEvidence.pairs` has it."""
    count = len(losses)
    some = np.zeros(losses.shape[1], dtype=bool) if amended is None else amended
    if _counts(metric):
        # Whatever an amended label was, its row counts for the second model of a pair.
        right = (losses == 0).astype(np.float64)[:, ~some]
        wins = np.rint(right.sum(axis=1)[:, None] - right @ right.T).astype(np.int64)
        nats = sign_evidence(wins, int(some.sum()))
        return upper_triangle(np.where(wins > wins.T, nats, 0.0))
    unit = metric.unit or 1.0
    losses, nats = losses[:, rng.permutation(len(some))], np.zeros((count, count))
    means = losses.mean(axis=1)
    for first in range(count):
        # Clipped losses may point another way than the risks, which nothing contradicts.
        for second in np.flatnonzero((means[first] < means) & (risks[first] < risks)).tolist():
            gains = np.where(some, -unit, losses[second] - losses[first])
            shares = np.clip((gains / unit + 1.0) / 2.0, 0.0, 1.0)
            nats[first, second] = ordered_mean_evidence(shares, 0.5, target)
    return upper_triangle(nats)
