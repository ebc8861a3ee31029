"""Queries of the reserve: measured on rows that steered nothing, recorded, then shown."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import (
    DRAWN_LEVEL,
    RESERVE_LABELS,
    Bound,
    ReserveGrid,
    Rows,
    assumptions_of,
    bayesian_bootstrap,
    bound_of,
    clipping_of,
    drawn_interval,
    reserve_assumptions,
    reserve_interval,
    reserve_log_count,
    shown_limits,
)
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.certify.certification import (
    Level,
    doubts_about,
    level_of,
    price_of_others,
)
from ladderholdout.guard.certify.on_record import Question, on_record
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.opening import Amended, Part, amended_before
from ladderholdout.guard.query import Guard, LedgerLadder
from ladderholdout.guard.shown import AN_OLDER_COPY, ScoreCertificate, uncertified
from ladderholdout.ledger.events import ReserveQueried
from ladderholdout.ledger.evidence import ReserveEvidence
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.log import now
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import scale_of


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A query about an incumbent, after the queries and finals there were before it.

    `answer` is the query on record with its position, `shown` what the reserve had shown before in
    nats, and `others` what holdouts that share rows had revealed; `released` is the risk that the
    ladder has released of it, if it shows one; `amended` is how many labels of the reserve were
    amended before; `missing` states why there can be no certificate.
    """

    ladder: LadderRecord
    about: tuple[str | None, ...]
    number: int
    answer: tuple[int, ReserveQueried] | None = None
    released: float | None = None
    shown: float = 0.0
    others: float = 0.0
    amended: int = 0
    missing: str | None = None

    def log_count(self, level: Level) -> float:
        """Return L of the query: the level is over exp(L)."""
        return reserve_log_count(self.number, self.shown) + self.others + level.price


def certify(ladder: LedgerLadder, confidence: float | None) -> ScoreCertificate:
    """Query the reserve once; see `LadderHoldout.reserve_certificate`."""
    with without_frames:
        guard = ladder.guard()
        if guard.reserve is None:
            raise HoldoutConflict(
                f"{guard.holdout.name!r} was registered without a reserve. Register fresh rows "
                "with one, LadderHoldout(X, y, reserve=0.3, ...); for these rows "
                "certificate() gives an interval."
            )
        level = level_of(ladder, confidence)
        asked = on_record(ladder, partial(_asking, level=level))
        if asked.missing is not None:
            return uncertified(asked.missing, level.confidence, asked.ladder.incumbent)
        return _certificate(ladder, guard, guard.reserve, asked, level)


def _asking(
    tx: Transaction, ladder: LadderRecord, guard: Guard, *, level: Level
) -> _Asked | Question:
    """Return the query with its answer on record, else what it has to be worked out from."""
    asked, reserve, predictions = _ask(tx, ladder, level), guard.labelled.reserve, None
    if asked.answer is not None or asked.missing is not None:
        return asked
    predictions = tx.incumbent_predictions(ladder.id)
    assert predictions is not None and reserve is not None
    by_rows = _is_by_rows(guard.metric, reserve, amended=asked.amended > 0)
    about = asked.about, asked.number, asked.shown, asked.released, asked.amended
    work = partial(_queried, guard, reserve, predictions, asked, level)
    return Question((*about, asked.others if by_rows else None), work)


def _ask(tx: Transaction, ladder: LadderRecord, level: Level) -> _Asked:
    chosen, known = ladder.chosen, tx.fold(ladder.holdout_id)
    if chosen is None:
        return _Asked(ladder, (), 1, missing="the ladder has no incumbent yet")
    settings = ladder.settings.metric, json.dumps(ladder.settings.metric_settings)
    about = (*settings, chosen.digest, chosen.reserve_digest)
    answer = None
    for at, query in known.looks:
        if query.about == about and query.evidence["confidence"] in (None, level.confidence):
            answer = at, query
            break
    if answer is None and known.restored:
        return _Asked(ladder, about, 1, missing=AN_OLDER_COPY)
    position = math.inf if answer is None else answer[0]
    lengths = tx.lengths(known.id)
    if answer is not None:
        lengths |= tx.lengths_at(known.id, answer[0])
    others, missing = price_of_others(tx, known.id, lengths)
    before = [query for at, query in known.looks if at < position]
    shown: float = sum(query.log_values for query in before)
    shown += sum(finals.shown["log_values"] for at, finals in known.finals if at < position)
    return _Asked(
        ladder,
        about,
        len(before) + 1,
        answer,
        chosen.risk if ladder.released is not None else None,
        shown,
        others,
        amended_before(tx, known.id, position, None, reserve=True).count,
        missing,
    )


def _queried(
    guard: Guard, reserve: Part, predictions: NDArray[Any], asked: _Asked, level: Level
) -> ReserveQueried:
    """Measure an incumbent on the reserve."""
    evidence = _measured(guard, reserve, predictions, asked, level)
    low, risk, high = evidence.shown()
    assert asked.ladder.incumbent is not None
    return ReserveQueried(
        ladder=asked.ladder.id,
        number=asked.number,
        submission=asked.ladder.incumbent,
        about=asked.about,
        evidence=json.loads(json.dumps(asdict(evidence))),
        low=low,
        risk=risk,
        high=high,
        log_values=evidence.price(),
        time=now(),
    )


def _measured(
    guard: Guard, reserve: Part, predictions: NDArray[Any], asked: _Asked, level: Level
) -> ReserveEvidence:
    metric, n, number = guard.metric, len(reserve.targets), asked.number
    by_rows = _is_by_rows(metric, reserve, amended=asked.amended > 0)
    # What a query can show; of shares of rows without weights, all of them.
    counts = metric.counts and reserve.weights is None
    grid = ReserveGrid(
        n,
        metric.released_range,
        drawn=not (by_rows or _is_exact(metric)),
        scale=None if counts else scale_of(metric),
        released=asked.released,
        ladder_rows=len(guard.part.targets),
        query=number,
    )
    rng = fresh_rng(guard.holdout.secret, 0, number)
    try:
        with without_autologging():
            evaluation = reserve.evaluate(metric, predictions)
            evidence = ReserveEvidence(grid, evaluation.risk)
            if by_rows:
                rows = guard.scored(reserve, predictions)
                return _with_limits(evidence, metric, rows, asked.log_count(level), level)
            if not grid.drawn:
                return evidence

            def risk_under(weights: NDArray[np.float64]) -> float:
                return evaluation.risk_under(evaluation.of_examples(weights[None])[0])

            low, high = bayesian_bootstrap(risk_under, evaluation.n_draws, DRAWN_LEVEL, rng)
    except InvalidArgument:
        # As where a class is missing among these rows: a fact about labels, and so one of the
        # things that a query can show, counted like the others.
        return ReserveEvidence(grid, None)
    return replace(evidence, low=low, high=high)


def _with_limits(
    evidence: ReserveEvidence, metric: Metric, rows: Rows, log_count: float, level: Level
) -> ReserveEvidence:
    """Return what was measured with limits by the rows, as they are shown beside the risk."""
    log_level = math.log1p(-level.confidence) - log_count - math.log(2.0)
    risk = evidence.shown()[1]
    assert risk is not None
    limits = shown_limits(metric, rows, log_level, near=metric.to_score(risk))
    return replace(
        evidence,
        low=metric.to_risk(limits.high),
        high=metric.to_risk(limits.low),
        bound=limits.bound,
        confidence=level.confidence,
        price_of_ends=limits.price,
        clipped=limits.clipped,
    )


def _is_by_rows(metric: Metric, reserve: Part, *, amended: bool) -> bool:
    """Return whether limits are by the rows: there is a bound, and the risk alone has no better.

    Labels that were amended may have other values, which a mean alone can allow for.
    """
    if reserve.weights is not None or amended or (reserve.groups is None and metric.counts):
        return False
    bound = bound_of(metric, grouped=reserve.groups is not None)
    return isinstance(bound, Bound) and not (bound.needs_ranges and metric.target_range is None)


def _is_exact(metric: Metric) -> bool:
    """Return whether the risk that is shown has exact limits: not if it may leave the range."""
    return metric.is_mean and metric.released_range is not None


def _certificate(
    ladder: LedgerLadder, guard: Guard, reserve: Part, asked: _Asked, level: Level
) -> ScoreCertificate:
    metric, confidence = guard.metric, level.confidence
    assert asked.answer is not None
    position, query = asked.answer
    number, grouped = query.number, reserve.groups is not None
    evidence = ReserveEvidence.of(query)

    def refused(missing: str) -> ScoreCertificate:
        certificate = uncertified(missing, confidence, asked.ladder.incumbent)
        return replace(certificate, reserve_query=number)

    if query.risk is None:
        return refused(f"{metric.name} has no value for these predictions on the reserve's rows")
    weights = reserve.weights
    amended, doubts = ladder.read(
        lambda tx, asking: (
            amended_before(tx, asking.holdout_id, position, weights, reserve=True),
            doubts_about(tx, asking.holdout_id),
        )
    )
    if amended.count and (grouped or not _is_exact(metric)):
        why = f"{metric.name} is no mean in a range, which its limits clip its losses to"
        if grouped or not metric.is_mean:
            why = "its rows are in groups" if grouped else f"{metric.name} is no mean"
        return refused(f"labels of the reserve were amended before, and {why}")
    log_count = asked.log_count(level)
    if evidence.bound:
        assert query.low is not None and query.high is not None
        bound, low, high = evidence.bound, query.low, query.high
        estimand = None if reserve.groups is None else reserve.groups.estimand
        assumptions = assumptions_of(metric, estimand=estimand, labels=RESERVE_LABELS)
    else:
        bound, low, high = _interval(
            *(metric, reserve, query, evidence.grid, log_count, confidence, amended)
        )
        assumptions = reserve_assumptions(
            exact=_is_exact(metric),
            binary=metric.counts,
            weighted=reserve.weights is not None,
            grouped=grouped,
        )
    return ScoreCertificate(
        score=metric.to_score(query.risk),
        low=metric.to_score(high),
        high=metric.to_score(low),
        confidence=confidence,
        submission=asked.ladder.incumbent,
        bound=bound,
        log_count=log_count,
        assumptions=(*assumptions, *amended.assumptions()),
        reserve_query=number,
        price=level.price,
        doubts=doubts,
        clipping=clipping_of(metric, evidence.clipped, len(reserve.targets))
        if evidence.bound
        else "",
        clipped=evidence.clipped,
        shown_in_steps=_step(query.risk, evidence.grid),
        mean_over=None if reserve.groups is None else reserve.groups.estimand,
    )


def _step(risk: float, grid: ReserveGrid) -> float:
    """Return in which steps the reserve shows a score; 0 for its own grid."""
    return grid.rounding(risk) if grid.step > 1 else 0.0


def _interval(
    metric: Metric,
    reserve: Part,
    query: ReserveQueried,
    grid: ReserveGrid,
    log_count: float,
    confidence: float,
    amended: Amended,
) -> tuple[str, float, float]:
    """Return the bound and the ends of the interval, in the risk's own units."""
    least, most = metric.released_range or (-np.inf, np.inf)
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
            rounding=grid.rounding(query.risk) / unit,
        )
        for risk in set(risks)
    }
    (bound, low, _), (_, _, high) = by_risk[risks[0]], by_risk[risks[2]]
    return bound, least + unit * low, least + unit * high
