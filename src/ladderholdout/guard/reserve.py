"""Queries of the reserve: measured on rows that steered nothing, recorded, then shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import (
    ReserveGrid,
    bayesian_bootstrap,
    drawn_interval,
    reserve_assumptions,
    reserve_interval,
    reserve_log_count,
)
from ladderholdout.certificates.reserve_intervals import DRAWN_LEVEL
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.certification import (
    Level,
    Moment,
    doubts_about,
    level_of,
    price_of_others,
)
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.reserved_rows import Part
from ladderholdout.guard.stored_rows import Amended, amended_before
from ladderholdout.guard.submission import Guard, LedgerLadder
from ladderholdout.guard.views import AN_OLDER_COPY, ScoreCertificate
from ladderholdout.ledger import (
    Access,
    LadderRecord,
    ReserveEvidence,
    ReserveQuery,
    Transaction,
    same_ladder,
)
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import scale_of


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a query would be about: an incumbent, after the queries there were.

    `others` is what holdouts that share rows with this one had revealed before the answer, or
    until now where there is none; `missing` states why there can be no certificate.
    """

    ladder: LadderRecord
    about: tuple[str | None, ...]
    queries: tuple[ReserveQuery, ...]
    answer: ReserveQuery | None
    others: float
    missing: str | None


def certify(ladder: LedgerLadder, confidence: float | None) -> ScoreCertificate:
    """Query the reserve once; see `LadderHoldout.certify`."""
    with without_frames:
        guard = ladder.guard()
        if guard.reserve is None:
            raise HoldoutConflict(
                f"{guard.holdout.name!r} was registered without a reserve. Register fresh rows "
                "with one, LadderHoldout(X, y, reserve=0.3, ...); for these rows "
                "certificate() gives an interval."
            )
        return _certify(guard, level_of(ladder, confidence))


def _certify(guard: Guard, level: Level) -> ScoreCertificate:
    asked, confidence = _answered(guard), level.confidence
    if asked is None:
        return ScoreCertificate(
            None, None, None, confidence, None, missing="the ladder has no incumbent yet"
        )
    if asked.missing is not None:
        number = asked.ladder.incumbent
        return ScoreCertificate(None, None, None, confidence, number, missing=asked.missing)
    assert guard.reserve is not None
    return _certificate(guard, guard.reserve, asked, level)


def _answered(guard: Guard) -> _Asked | None:
    """Return the question with its answer in the ledger; None before the first release."""
    while True:
        asked, predictions = guard.ledger.transact(partial(_asking, guard=guard), Access.READ)
        if asked is None or asked.answer is not None or asked.missing is not None:
            return asked
        assert predictions is not None
        # A bootstrap takes its time, and nobody else should have to wait for it.
        labelled = guard.labelled
        assert labelled.reserve is not None
        evidence = _measured(guard, labelled.reserve, predictions, len(asked.queries) + 1)
        record = partial(_record, asked=asked, evidence=evidence, version=labelled.version)
        if not guard.write(record):
            guard.reload()


def _asking(tx: Transaction, guard: Guard) -> tuple[_Asked | None, NDArray[Any] | None]:
    ladder = same_ladder(tx.ladder(guard.ladder_id), guard.since)
    asked = _ask(tx, ladder)
    return asked, None if asked is None else tx.incumbent_predictions(ladder.id)


def _record(
    tx: Transaction, ladder: LadderRecord, asked: _Asked, evidence: ReserveEvidence, version: int
) -> bool:
    """Record a query, unless another process queried it meanwhile, or the incumbent changed.

    Returns whether it was measured with the labels as they are.
    """
    if tx.chains.end(ladder.holdout_id).labels_version != version:
        return False
    still = _ask(tx, ladder)
    if still is None or still.missing is not None:
        return True
    if (still.about, still.queries) == (asked.about, asked.queries):
        tx.reserve.add(still.ladder, len(still.queries) + 1, evidence)
    return True


def _ask(tx: Transaction, ladder: LadderRecord) -> _Asked | None:
    if ladder.incumbent is None:
        return None
    about, queries = tx.reserve.about_incumbent(ladder), tx.reserve.all(ladder.holdout_id)
    answer = next((query for query in queries if query.about == about), None)
    if answer is None and tx.restorings(ladder.holdout_id):
        return _Asked(ladder, about, queries, None, 0.0, AN_OLDER_COPY)
    last = tx.chains.latest() if answer is None else answer.after
    moment = Moment(last + 1, {} if answer is None else dict(answer.others))
    price, missing = price_of_others(tx, ladder.holdout_id, moment)
    return _Asked(ladder, about, queries, answer, price, missing)


def _measured(
    guard: Guard, reserve: Part, predictions: NDArray[Any], number: int
) -> ReserveEvidence:
    metric, n = guard.metric, len(reserve.targets)
    grid = _grid(metric, reserve)
    try:
        with without_autologging():
            evaluation = reserve.evaluate(metric, predictions)
            if not grid.drawn:
                return ReserveEvidence(grid, evaluation.risk)
            rng = fresh_rng(guard.holdout.secret, 0, number)
            low, high = bayesian_bootstrap(evaluation.risk_under, n, DRAWN_LEVEL, rng)
    except InvalidArgument:
        # As where a class is missing among these rows: a fact about labels, and so one of the
        # things that a query can show, counted like the others.
        return ReserveEvidence(grid, None)
    return ReserveEvidence(grid, evaluation.risk, low, high)


def _grid(metric: Metric, reserve: Part) -> ReserveGrid:
    """Return what a query can show; of shares of rows without weights, all of them."""
    counts = metric.counts and reserve.weights is None
    scale = None if counts else scale_of(metric)
    drawn = not _is_exact(metric)
    return ReserveGrid(len(reserve.targets), metric.risk_range, drawn=drawn, scale=scale)


def _is_exact(metric: Metric) -> bool:
    return metric.is_mean and metric.bounded


def _certificate(guard: Guard, reserve: Part, asked: _Asked, level: Level) -> ScoreCertificate:
    query, metric, confidence = asked.answer, guard.metric, level.confidence
    assert query is not None
    if query.risk is None:
        missing = f"{metric.name} has no value for these predictions on the reserve's rows"
        return ScoreCertificate(
            None,
            None,
            None,
            confidence,
            asked.ladder.incumbent,
            missing=missing,
            reserve_query=query.number,
        )
    amended = guard.ledger.transact(
        lambda tx: amended_before(
            *(tx, guard.holdout.id, query.position, reserve.weights), reserve=True
        ),
        Access.READ,
    )
    if amended.count and not _is_exact(metric):
        missing = f"labels of the reserve were amended before, and {metric.name} is no mean"
        return ScoreCertificate(
            None,
            None,
            None,
            confidence,
            asked.ladder.incumbent,
            missing=missing,
            reserve_query=query.number,
        )
    shown = sum(one.log_values for one in asked.queries if one.number < query.number)
    log_count = reserve_log_count(query.number, 1) + shown + asked.others + level.price
    bound, low, high = _interval(metric, reserve, query, log_count, confidence, amended)
    about = partial(doubts_about, holdout_id=guard.holdout.id)
    return ScoreCertificate(
        score=metric.to_score(query.risk),
        low=metric.to_score(high),
        high=metric.to_score(low),
        confidence=confidence,
        submission=asked.ladder.incumbent,
        bound=bound,
        log_count=log_count,
        assumptions=(
            *reserve_assumptions(
                exact=_is_exact(metric),
                binary=metric.counts,
                weighted=reserve.weights is not None,
            ),
            *amended.assumptions(),
        ),
        reserve_query=query.number,
        price=level.price,
        doubts=guard.ledger.transact(about, Access.READ),
        clipping=metric.clipping,
    )


def _interval(
    metric: Metric,
    reserve: Part,
    query: ReserveQuery,
    log_count: float,
    confidence: float,
    amended: Amended,
) -> tuple[str, float, float]:
    """Return the bound and the ends of the interval, in the risk's own units."""
    least, most = metric.risk_range or (-np.inf, np.inf)
    assert query.risk is not None
    if query.low is not None and query.high is not None:
        bound, low, high = drawn_interval(query.low, query.risk, query.high, log_count, confidence)
        return bound, max(low, least), min(high, most)
    unit, weights = most - least, reserve.weights
    risks = amended.around((query.risk - least) / unit)
    by_risk = {
        risk: reserve_interval(
            risk,
            len(reserve.targets),
            log_count,
            confidence=confidence,
            binary=metric.counts and weights is None,
            weights=weights,
            rounding=_grid(metric, reserve).rounding(query.risk) / unit,
        )
        for risk in set(risks)
    }
    (bound, low, _), (_, _, high) = by_risk[risks[0]], by_risk[risks[2]]
    return bound, least + unit * low, least + unit * high
