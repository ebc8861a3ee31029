"""Read a ladder's record into a frozen `Audit`: only this module reads raw scores to show them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import inside
from ladderholdout.audit import statistics
from ladderholdout.audit.fresh import Firsts, Fresh, evaluated, tested
from ladderholdout.audit.records import Audit, HoldoutTest, LadderUse
from ladderholdout.audit.submissions import (
    NONE,
    Array,
    AuditedSubmissions,
    Contexts,
    GrowingColumns,
    coded,
    moments,
    names_of,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import commands
from ladderholdout.guard.certify import guard_if_here
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.ladder import LocalLadder, beside_ledger
from ladderholdout.guard.open_ladder import HasLadder, ladder_of
from ladderholdout.guard.record_views import status_of
from ladderholdout.guard.submit import Guard
from ladderholdout.guard.views import Status
from ladderholdout.ledger.events import FAULTS, Damaged, Opened, Submitted
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.log import Progress, now
from ladderholdout.ledger.place import shown
from ladderholdout.ledger.transaction import HELD, NOT_IMPROVED, Transaction
from ladderholdout.metrics import METRICS, Metric

NEAR = 0.01
"""A share of the rows, or a difference of probabilities, that is hardly one."""


def open_audit(
    holdout: HasLadder,
    fresh: Any = None,
    model: Any = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Audit:
    """Mark a ladder as opened, read its raw scores, and compare them with what was released.

    `holdout.owner.audit`, which calls it, states its parameters, result and errors. Where one of
    these errors is raised for an argument, nothing was opened.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> open_audit(holdout).verdict.finding
    'nothing'
    """
    confidence = inside("confidence", confidence)
    ladder = beside_ledger(ladder_of(holdout), "Raw scores are opened")
    with without_frames, without_autologging():
        return _open(ladder, fresh, model, confidence, progress)


def _open(
    holdout: LocalLadder, fresh: Any, model: Any, confidence: float, progress: Progress | None
) -> Audit:
    rows = _fresh(holdout, fresh, model)
    guard = guard_if_here(holdout)
    # The one that can compute, where the handle's came from the ledger alone.
    metric = holdout.metric if guard is None else guard.metric
    if guard is not None:
        holdout.execute(commands.Certify())  # puts the interval on record, which the audit shows
    scores = {} if rows is None else {n: metric.to_score(e.risk) for n, e in rows.models.items()}
    place = shown(holdout.ledger)
    read = partial(_read, metric=metric, guard=guard, place=place, progress=progress)
    ladder, status, collected, opened_after, ladders, stored = holdout.write(read)
    columns, batches, contexts = collected
    _compare(columns, metric, guard, status.n_ladder)
    columns |= {
        "near_duplicate": _near(columns, metric),
        "after_opening": columns["number"] > (math.inf if opened_after is None else opened_after),
        "fresh": _fresh_scores(columns, scores),
    }
    account = ladder.settings.account
    submissions = AuditedSubmissions(columns, batches, contexts, account, {})
    audit = Audit(status, submissions, ladders, confidence, None, None)
    if guard is None or stored is None:
        return audit
    rng = np.random.default_rng(0)  # the same audit gives the same intervals
    # What the ladders measured: an audit shows nothing of the reserve.
    targets, weights = guard.part.targets, guard.part.weights
    on_holdout = guard.part.evaluate(metric, stored)
    constant = statistics.best_constant(metric, targets, weights, guard.holdout.classes)
    if constant is not None:
        flat = metric.evaluate(targets, statistics.everywhere(constant, len(targets)), weights)
        compared = sum(use.submissions - use.repeats for use in ladders)
        gain = statistics.paired(metric, on_holdout, flat, 1 - (1 - confidence) / compared, rng)
        audit = replace(audit, on_holdout=HoldoutTest(metric.to_score(flat.risk), gain, compared))
    if rows is not None:
        (incumbent,) = submissions[submissions["number"] == ladder.incumbent]
        test = tested(rows, submissions, incumbent, on_holdout, constant, confidence, rng)
        audit = replace(audit, fresh=test)
    return audit


def _read(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    guard: Guard | None,
    place: str,
    progress: Progress | None,
) -> tuple[
    LadderRecord,
    Status,
    tuple[dict[str, Array], tuple[str, ...], Contexts],
    int | None,
    tuple[LadderUse, ...],
    NDArray[Any] | None,
]:
    # Marked before anything is read: whoever saw raw scores is known to have seen them.
    if ladder.opened is None:
        tx.add(ladder.holdout_id, Opened(ladder=ladder.id, time=now()))
        ladder = tx.ladder(ladder.id)
    return (
        ladder,
        status_of(tx, ladder, metric, guard, place),
        _columns(tx.pages(ladder.id), metric, progress, ladder.submissions),
        ladder.opened_after,
        tuple(_uses(tx, ladder.holdout_id)),
        tx.incumbent_predictions(ladder.id),
    )


def _fresh(holdout: LocalLadder, fresh: Any, model: Any) -> Fresh | None:
    if fresh is None:
        if model is not None:
            raise InvalidArgument("fresh", "given with model=", "missing", "Give fresh=(X, y).")
        return None
    ladder, firsts = holdout.read(lambda tx, ladder: (ladder, Firsts.of(tx.submissions(ladder.id))))
    guard = holdout.guard()
    return evaluated(guard, fresh, model, firsts, ladder.incumbent, holdout.overlap)


def _uses(tx: Transaction, holdout_id: int) -> Iterator[LadderUse]:
    for ladder in tx.ladders(holdout_id):
        yield LadderUse(
            ladder.settings.account,
            ladder.settings.name,
            ladder.settings.metric,
            ladder.submissions,
            ladder.repeats,
            ladder.state["releases"],
            ladder.opened,
        )


def _columns(
    blocks: Iterable[Sequence[Submitted]], metric: Metric, progress: Progress | None, total: int
) -> tuple[dict[str, Array], tuple[str, ...], Contexts]:
    """Collect in columns what the ledger holds of the submissions."""
    growing = GrowingColumns(total)
    batches: dict[str | None, int] = {}
    contexts = []
    for block in chain(blocks, [()]):  # the last one gives empty columns their type
        try:
            # Few scores are released, and to many submissions the same.
            shown = {risk: metric.to_score(risk) for risk in {row.risk for row in block}}
            values = {
                "number": np.array([row.number for row in block], np.int64),
                "time": moments(row.time for row in block),
                "batch": coded((row.batch for row in block), batches),
                "repeat_of": np.array([_or(row.repeat_of, NONE) for row in block], np.int32),
                "improved": np.array(
                    [row.improved and row.repeat_of is None for row in block], np.bool_
                ),
                "repeats": np.array(
                    [
                        NONE if row.evidence == NOT_IMPROVED else _or(row.repeat_of, NONE)
                        for row in block
                    ],
                    np.int32,
                ),
                "held": np.array([row.improved or row.evidence == HELD for row in block], np.bool_),
                "score": np.array([shown[row.risk] for row in block], np.float64),
                "raw": np.array([metric.to_score(row.raw) for row in block], np.float64),
                "risk": np.array([row.raw for row in block], np.float64),
                "disagreement": _reals(row.disagreement for row in block),
                "spread": _reals(row.evidence.get("spread") for row in block),
                "clipped": np.array(
                    [_or(row.evidence.get("clipped"), NONE) for row in block], np.int32
                ),
            }
        except FAULTS:  # in evidence that was changed; their text shows it
            raise Damaged from None
        growing.add(values)
        contexts.append((len(block), Contexts.packed(json.dumps(row.context) for row in block)))
        if progress is not None:
            progress(len(growing), total)
    return growing.columns(), names_of(batches), Contexts(contexts)


def _reals(values: Iterable[float | None]) -> Array:
    return np.fromiter((_or(value, math.nan) for value in values), np.float64)


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _compare(columns: dict[str, Array], metric: Metric, guard: Guard | None, n: int) -> None:
    """Add what follows for each submission from those before it."""
    risks, spreads = columns.pop("risk"), columns.pop("spread")
    distinct = columns["repeat_of"] == NONE
    places = np.arange(len(risks), dtype=np.int32)
    latest = np.maximum.accumulate(np.where(columns["improved"] & distinct, places, NONE))
    # Before the first release, what the first submission was answered.
    columns["incumbent_score"] = columns["score"][np.maximum(latest, 0)]
    before = np.append(NONE, latest[:-1])[: len(risks)]
    compared = (before != NONE) & distinct
    # Differences of scores as they are printed, nan where they are not compared.
    differences = columns["raw"] - columns["raw"][before]
    differences[~compared] = np.nan
    columns["gain"] = np.fromiter(
        map(statistics.plain, differences.data), np.float64, len(differences)
    )
    gains = np.where(compared, risks[before] - risks, np.nan)
    # Of the accuracy without weights, which the rows alone show, the labels that differ give the
    # standard error of a gain.
    accuracy = METRICS["accuracy"].loss
    if guard is not None and guard.part.weights is None and metric.loss is accuracy:
        by_labels = statistics.spread_of_labels(columns["disagreement"], gains, n)
        spreads = np.where(np.isnan(spreads), by_labels, spreads)
    del risks
    p_values = statistics.improvement_p(gains, spreads, n)
    del spreads, gains
    # What cannot be tested was tried all the same, and counts in the correction.
    unknown = np.isnan(p_values)
    corrected = np.full(len(p_values), np.nan)
    corrected[compared] = statistics.holm(np.where(unknown, 1.0, p_values)[compared])
    corrected[unknown] = np.nan
    columns |= {"p_value": p_values, "corrected": corrected}


def _near(columns: Mapping[str, Array], metric: Metric) -> Array:
    """Return which new predictions hardly differ from the incumbent's."""
    differs = np.where(columns["repeat_of"] == NONE, columns["disagreement"], np.nan)
    known = differs[~np.isnan(differs)]
    by_share = metric.response in ("labels", "probabilities")
    limit = NEAR * (1.0 if by_share or not len(known) else float(np.median(known)))
    return differs <= limit


def _fresh_scores(columns: Mapping[str, Array], scores: Mapping[int, float]) -> Array:
    """Return the score on fresh rows of each submission, nan where its model was not given."""
    if not scores:
        return np.broadcast_to(np.nan, len(columns["number"]))
    fresh_scores = np.full(len(columns["number"]), np.nan)
    firsts = np.where(columns["repeat_of"] == NONE, columns["number"], columns["repeat_of"])
    numbers = np.array(sorted(scores))
    places = np.minimum(np.searchsorted(numbers, firsts), len(numbers) - 1)
    given = numbers[places] == firsts
    fresh_scores[given] = np.array([scores[int(number)] for number in numbers])[places[given]]
    return fresh_scores
