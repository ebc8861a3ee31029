"""Queries of the reserve: measured on rows that steered nothing, recorded, then shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import (
    DRAWN_LEVEL,
    ReserveGrid,
    bayesian_bootstrap,
    drawn_interval,
    reserve_assumptions,
    reserve_interval,
    reserve_log_count,
)
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.certify.certification import (
    Level,
    doubts_about,
    level_of,
    price_of_others,
)
from ladderholdout.guard.certify.others import Moment
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.opening import Amended, Part, amended_before
from ladderholdout.guard.query import Guard, LedgerLadder
from ladderholdout.guard.shown import AN_OLDER_COPY, ScoreCertificate, uncertified
from ladderholdout.ledger import (
    LadderRecord,
    ReserveEvidence,
    ReserveQuery,
    Transaction,
)
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import scale_of


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a query would be about: an incumbent, after the queries there were.

    `finals` are the places of finals in the chain and what they showed, in nats;
    `released` is the risk that the ladder has released of it, if it shows one; `others` is what
    holdouts that share rows with this one had revealed before the answer, or
    until now where there is none; `missing` states why there can be no certificate.
    """

    ladder: LadderRecord
    about: tuple[str | None, ...]
    queries: tuple[ReserveQuery, ...]
    finals: tuple[tuple[int, float], ...]
    answer: ReserveQuery | None
    released: float | None
    others: float
    missing: str | None


def certify(ladder: LedgerLadder, confidence: float | None) -> ScoreCertificate:
    """Query the reserve once; see `LadderHoldout.reserve_certificate`."""
    with without_frames:
        guard = ladder.guard()
        if guard.reserve is None and guard.holdout.estimand is not None:
            raise HoldoutConflict(
                f"{guard.holdout.name!r} has groups, and so no reserve: certificate() gives an "
                "interval by groups."
            )
        if guard.reserve is None:
            raise HoldoutConflict(
                f"{guard.holdout.name!r} was registered without a reserve. Register fresh rows "
                "with one, LadderHoldout(X, y, reserve=0.3, ...); for these rows "
                "certificate() gives an interval."
            )
        return _certify(ladder, guard, level_of(ladder, confidence))


def _certify(ladder: LedgerLadder, guard: Guard, level: Level) -> ScoreCertificate:
    asked, confidence = _answered(ladder, guard), level.confidence
    if asked is None:
        return uncertified("the ladder has no incumbent yet", confidence)
    if asked.missing is not None:
        return uncertified(asked.missing, confidence, asked.ladder.incumbent)
    assert guard.reserve is not None
    return _certificate(ladder, guard, guard.reserve, asked, level)


def _answered(ladder: LedgerLadder, guard: Guard) -> _Asked | None:
    """Return the question with its answer in the ledger; None before the first release."""
    while True:
        asked, predictions = ladder.read(_asking)
        if asked is None or asked.answer is not None or asked.missing is not None:
            return asked
        assert predictions is not None
        # A bootstrap takes its time, and nobody else should have to wait for it.
        labelled = guard.labelled
        assert labelled.reserve is not None
        evidence = _measured(guard, labelled.reserve, predictions, asked)
        record = partial(_record, asked=asked, evidence=evidence, version=labelled.version)
        if not ladder.write(record):
            guard.reload()


def _asking(tx: Transaction, ladder: LadderRecord) -> tuple[_Asked | None, NDArray[Any] | None]:
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
    if replace(still, ladder=asked.ladder, others=asked.others) == asked:
        tx.reserve.add(still.ladder, len(still.queries) + 1, evidence)
    return True


def _ask(tx: Transaction, ladder: LadderRecord) -> _Asked | None:
    if ladder.incumbent is None:
        return None
    about, queries = tx.reserve.about_incumbent(ladder), tx.reserve.all(ladder.holdout_id)
    held = tx.finals.all(ladder.holdout_id)
    finals = tuple((record.position, record.shown.log_values) for record in held)
    answer = next((query for query in queries if query.about == about), None)
    if answer is None and tx.restorings(ladder.holdout_id):
        return _Asked(ladder, about, queries, finals, None, None, 0.0, AN_OLDER_COPY)
    last = tx.chains.latest() if answer is None else answer.after
    moment = Moment(last + 1, {} if answer is None else dict(answer.others))
    price, missing = price_of_others(tx, ladder.holdout_id, moment)
    released = None
    if tx.released(ladder) is not None:
        (incumbent,) = tx.entries(ladder.id, after=ladder.incumbent - 1, limit=1)
        released = incumbent.risk
    return _Asked(ladder, about, queries, finals, answer, released, price, missing)


def _measured(
    guard: Guard, reserve: Part, predictions: NDArray[Any], asked: _Asked
) -> ReserveEvidence:
    metric, n, number = guard.metric, len(reserve.targets), len(asked.queries) + 1
    # What a query can show; of shares of rows without weights, all of them.
    counts = metric.counts and reserve.weights is None
    grid = ReserveGrid(
        n,
        metric.risk_range,
        drawn=not _is_exact(metric),
        scale=None if counts else scale_of(metric),
        released=asked.released,
        ladder_rows=len(guard.part.targets),
        query=number,
    )
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


def _is_exact(metric: Metric) -> bool:
    return metric.is_mean and metric.bounded


def _certificate(
    ladder: LedgerLadder, guard: Guard, reserve: Part, asked: _Asked, level: Level
) -> ScoreCertificate:
    query, metric, confidence = asked.answer, guard.metric, level.confidence
    assert query is not None
    number = query.number

    def refused(missing: str) -> ScoreCertificate:
        certificate = uncertified(missing, confidence, asked.ladder.incumbent)
        return replace(certificate, reserve_query=number)

    if query.risk is None:
        return refused(f"{metric.name} has no value for these predictions on the reserve's rows")
    position, weights = query.position, reserve.weights
    amended, doubts = ladder.read(
        lambda tx, asking: (
            amended_before(tx, asking.holdout_id, position, weights, reserve=True),
            doubts_about(tx, asking.holdout_id),
        )
    )
    if amended.count and not _is_exact(metric):
        return refused(f"labels of the reserve were amended before, and {metric.name} is no mean")
    shown = sum(earlier.log_values for earlier in asked.queries if earlier.number < query.number)
    shown += sum(values for place, values in asked.finals if place < position)
    log_count = reserve_log_count(query.number, shown) + asked.others + level.price
    bound, low, high = _interval(metric, reserve, query, log_count, confidence, amended)
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
        doubts=doubts,
        clipping=metric.clipping,
        shown_in_steps=_step(query),
    )


def _step(query: ReserveQuery) -> float:
    """Return the step in which a query showed a share of rows; 0 where it showed it as it is."""
    assert query.risk is not None
    return query.grid.rounding(query.risk) if query.grid.step > 1 else 0.0


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
            rounding=query.grid.rounding(query.risk) / unit,
        )
        for risk in set(risks)
    }
    (bound, low, _), (_, _, high) = by_risk[risks[0]], by_risk[risks[2]]
    return bound, least + unit * low, least + unit * high
