"""Queries of the reserve: measured on rows that steered nothing, recorded, then shown."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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
    until now where there is none; `amended` is how many labels of the reserve were amended before;
    `missing` states why there can be no certificate.
    """

    ladder: LadderRecord
    about: tuple[str | None, ...]
    queries: tuple[ReserveQuery, ...]
    finals: tuple[tuple[int, float], ...]
    answer: ReserveQuery | None
    released: float | None
    others: float
    amended: int
    missing: str | None

    def log_count(self, number: int, level: Level, position: float = math.inf) -> float:
        """Return L of the query of a number, at a place of the chain: the level is over exp(L)."""
        shown = sum(query.log_values for query in self.queries if query.number < number)
        shown += sum(values for place, values in self.finals if place < position)
        return reserve_log_count(number, shown) + self.others + level.price


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
        return _certify(ladder, guard, level_of(ladder, confidence))


def _certify(ladder: LedgerLadder, guard: Guard, level: Level) -> ScoreCertificate:
    asked, confidence = _answered(ladder, guard, level), level.confidence
    if asked is None:
        return uncertified("the ladder has no incumbent yet", confidence)
    if asked.missing is not None:
        return uncertified(asked.missing, confidence, asked.ladder.incumbent)
    assert guard.reserve is not None
    return _certificate(ladder, guard, guard.reserve, asked, level)


def _answered(ladder: LedgerLadder, guard: Guard, level: Level) -> _Asked | None:
    """Return the question with its answer in the ledger; None before the first release."""
    while True:
        asked, predictions = ladder.read(partial(_asking, level=level))
        if asked is None or asked.answer is not None or asked.missing is not None:
            return asked
        assert predictions is not None
        # A bootstrap takes its time, and nobody else should have to wait for it.
        labelled = guard.labelled
        assert labelled.reserve is not None
        evidence = _measured(guard, labelled.reserve, predictions, asked, level)
        record = partial(
            _record, asked=asked, level=level, evidence=evidence, version=labelled.version
        )
        if not ladder.write(record):
            guard.reload()


def _asking(
    tx: Transaction, ladder: LadderRecord, level: Level
) -> tuple[_Asked | None, NDArray[Any] | None]:
    asked = _ask(tx, ladder, level)
    return asked, None if asked is None else tx.incumbent_predictions(ladder.id)


def _record(
    tx: Transaction,
    ladder: LadderRecord,
    asked: _Asked,
    level: Level,
    evidence: ReserveEvidence,
    version: int,
) -> bool:
    """Record a query, unless another process queried it meanwhile, or the incumbent changed.

    Returns whether it was measured with the labels as they are.
    """
    if tx.chains.end(ladder.holdout_id).labels_version != version:
        return False
    still = _ask(tx, ladder, level)
    if still is None or still.missing is not None:
        return True
    # Limits that the rows gave are for what other holdouts had revealed by then.
    others = still.others if evidence.bound else asked.others
    if replace(still, ladder=asked.ladder, others=asked.others) == replace(asked, others=others):
        tx.reserve.add(still.ladder, len(still.queries) + 1, evidence)
    return True


def _ask(tx: Transaction, ladder: LadderRecord, level: Level) -> _Asked | None:
    if ladder.incumbent is None:
        return None
    about, queries = tx.reserve.about_incumbent(ladder), tx.reserve.all(ladder.holdout_id)
    held = tx.finals.all(ladder.holdout_id)
    finals = tuple((record.position, record.shown.log_values) for record in held)
    answers = (query for query in queries if query.about == about)
    answer = next((q for q in answers if q.confidence in (None, level.confidence)), None)
    if answer is None and tx.restorings(ladder.holdout_id):
        return _Asked(ladder, about, queries, finals, None, None, 0.0, 0, AN_OLDER_COPY)
    last = tx.chains.latest() if answer is None else answer.after
    moment = Moment(last + 1, {} if answer is None else dict(answer.others))
    price, missing = price_of_others(tx, ladder.holdout_id, moment)
    released = None
    if tx.released(ladder) is not None:
        (incumbent,) = tx.entries(ladder.id, after=ladder.incumbent - 1, limit=1)
        released = incumbent.risk
    position = None if answer is None else answer.position
    amended = amended_before(tx, ladder.holdout_id, position, None, reserve=True).count
    return _Asked(ladder, about, queries, finals, answer, released, price, amended, missing)


def _measured(
    guard: Guard, reserve: Part, predictions: NDArray[Any], asked: _Asked, level: Level
) -> ReserveEvidence:
    metric, n, number = guard.metric, len(reserve.targets), len(asked.queries) + 1
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
                return _with_limits(evidence, metric, rows, asked.log_count(number, level), level)
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
    query, metric, confidence = asked.answer, guard.metric, level.confidence
    assert query is not None
    number, grouped = query.number, reserve.groups is not None

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
    if amended.count and (grouped or not _is_exact(metric)):
        why = f"{metric.name} is no mean in a range, which its limits clip its losses to"
        if grouped or not metric.is_mean:
            why = "its rows are in groups" if grouped else f"{metric.name} is no mean"
        return refused(f"labels of the reserve were amended before, and {why}")
    log_count = asked.log_count(number, level, query.position)
    if query.bound:
        assert query.low is not None and query.high is not None
        bound, low, high = query.bound, query.low, query.high
        estimand = None if reserve.groups is None else reserve.groups.estimand
        assumptions = assumptions_of(metric, estimand=estimand, labels=RESERVE_LABELS)
    else:
        bound, low, high = _interval(metric, reserve, query, log_count, confidence, amended)
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
        clipping=clipping_of(metric, query.clipped, len(reserve.targets)) if query.bound else "",
        clipped=query.clipped,
        shown_in_steps=_step(query),
        mean_over=None if reserve.groups is None else reserve.groups.estimand,
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
            rounding=query.grid.rounding(query.risk) / unit,
        )
        for risk in set(risks)
    }
    (bound, low, _), (_, _, high) = by_risk[risks[0]], by_risk[risks[2]]
    return bound, least + unit * low, least + unit * high
