"""Read a ladder's record into a frozen `Audit`: only this module reads raw scores to show them.

With fresh rows, it has what the models of submissions predict there, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ladderholdout.arguments import inside
from ladderholdout.audit import statistics
from ladderholdout.audit.records import Audit, FreshTest, HoldoutTest, LadderUse
from ladderholdout.audit.submissions import NONE, Array, AuditedSubmissions, Readers, collected
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import commands, settings
from ladderholdout.guard.certify import guard_if_here
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.ladder import LocalLadder, beside_ledger
from ladderholdout.guard.open_ladder import HasLadder, ladder_of
from ladderholdout.guard.recognition import judge_overlap
from ladderholdout.guard.record_views import status_of
from ladderholdout.guard.submit import Guard
from ladderholdout.identity import hashing, matching
from ladderholdout.ledger.arrays import digests_of
from ladderholdout.ledger.events import Opened
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.log import Progress, now
from ladderholdout.ledger.place import shown
from ladderholdout.ledger.transaction import HELD, NOT_IMPROVED, Transaction
from ladderholdout.metrics import METRICS, Evaluation, Metric
from ladderholdout.metrics.arrays import by_index
from ladderholdout.metrics.responses import predicts

NEAR = 0.01
"""A share of the rows, or a difference of probabilities, that is hardly one."""


@without_frames
@without_autologging()
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
    local = beside_ledger(ladder_of(holdout), "Raw scores are opened")
    if fresh is None and model is not None:
        raise InvalidArgument("fresh", "given with model=", "missing", "Give fresh=(X, y).")
    rows = None if fresh is None else _evaluated(local, fresh, model)
    guard = guard_if_here(local)
    # The one that can compute, where the handle's came from the ledger alone.
    metric = local.metric if guard is None else guard.metric
    if guard is not None:
        local.execute(commands.Certify())  # puts the interval on record, which the audit shows

    def read(tx: Transaction, ladder: LadderRecord) -> tuple[Any, ...]:
        # Marked before anything is read: whoever saw raw scores is known to have seen them.
        if ladder.opened is None:
            tx.add(ladder.holdout_id, Opened(ladder=ladder.id, time=now()))
            ladder = tx.ladder(ladder.id)
        account = ladder.settings.account
        return (
            ladder,
            status_of(tx, ladder, metric, guard, shown(local.ledger)),
            collected(tx.pages(ladder.id), ladder.submissions, account, _columns(metric), progress),
            tuple(map(_use, tx.ladders(ladder.holdout_id))),
            tx.incumbent_predictions(ladder.id),
        )

    ladder, status, (columns, texts), ladders, stored = local.write(read)
    _compare(columns, metric, guard, status.n_ladder)
    opened_after = math.inf if ladder.opened_after is None else ladder.opened_after
    columns |= {
        "after_opening": columns["number"] > opened_after,
        "fresh": _fresh_scores(columns, metric, rows),
        "released": columns["score"],
        "withdrawn": np.broadcast_to(np.int32(NONE), len(columns["number"])),
    }
    submissions = AuditedSubmissions(columns, texts)
    audit = Audit(status, submissions, ladders, confidence, None, None)
    if guard is None or stored is None:
        return audit
    rng = np.random.default_rng(0)  # the same audit gives the same intervals
    # What the ladders measured: an audit shows nothing of the reserve.
    measured = metric, guard.part.targets, guard.part.weights
    on_holdout = guard.part.evaluate(metric, stored)
    constant = statistics.best_constant(*measured, guard.holdout.classes)
    flat = None if constant is None else statistics.evaluated_everywhere(constant, *measured)
    if flat is not None:
        compared = sum(use.submissions - use.repeats for use in ladders)
        gain = statistics.paired(metric, on_holdout, flat, 1 - (1 - confidence) / compared, rng)
        audit = replace(audit, on_holdout=HoldoutTest(metric.to_score(flat.risk), gain, compared))
    if rows is not None:
        audit = replace(audit, fresh=_tested(rows, audit, on_holdout, constant, rng))
    return audit


def _use(ladder: LadderRecord) -> LadderUse:
    named, counts = ladder.settings, (ladder.submissions, ladder.repeats, ladder.state["releases"])
    return LadderUse(named.account, named.name, named.metric, *counts, ladder.opened)


def _columns(metric: Metric) -> Readers:
    """Return what is read of each submission: what was shown of it, and what is raw."""
    return {
        "score": (np.float64, lambda row: metric.to_score(row.risk)),
        "improved": (np.bool_, lambda row: row.improved and row.repeat_of is None),
        "known_repeat_of": (
            np.int32,
            lambda row: None if row.evidence == NOT_IMPROVED else row.repeat_of,
        ),
        "has_held": (np.bool_, lambda row: row.improved or row.evidence == HELD),
        "repeat_of": (np.int32, lambda row: row.repeat_of),
        "raw": (np.float64, lambda row: metric.to_score(row.raw)),
        "risk": (np.float64, lambda row: row.raw),
        "disagreement": (np.float64, lambda row: row.disagreement),
        "spread": (np.float64, lambda row: row.evidence.get("spread")),
        "clipped": (np.int32, lambda row: row.evidence.get("clipped")),
    }


def _compare(columns: dict[str, Array], metric: Metric, guard: Guard | None, n: int) -> None:
    """Add what follows for each submission from those before it."""
    risks, spreads = columns.pop("risk"), columns.pop("spread")
    distinct = columns["repeat_of"] == NONE
    places = np.arange(len(risks), dtype=np.int32)
    latest = np.maximum.accumulate(np.where(columns["improved"], places, NONE))
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
    # New predictions that hardly differ from the incumbent's.
    differs = np.where(distinct, columns["disagreement"], np.nan)
    known = differs[~np.isnan(differs)]
    by_share = metric.response in ("labels", "probabilities")
    limit = NEAR * (1.0 if by_share or not len(known) else float(np.median(known)))
    columns |= {"p_value": p_values, "corrected": corrected, "near_duplicate": differs <= limit}


def _fresh_scores(columns: Mapping[str, Array], metric: Metric, fresh: Fresh | None) -> Array:
    """Return the score on fresh rows of each submission, nan where its model was not given."""
    numbers, firsts = columns["number"], columns["repeat_of"]
    if fresh is None:
        return np.broadcast_to(np.nan, len(numbers))
    scores = np.full(len(numbers) + 1, np.nan)
    for number, evaluation in fresh.models.items():
        scores[number] = metric.to_score(evaluation.risk)
    return scores[np.where(firsts == NONE, numbers, firsts)]


# -- fresh rows -----------------------------------------------------------------------------


class Fresh(NamedTuple):
    """Fresh rows with the evaluations of the models that were given for submissions."""

    metric: Metric
    targets: Array
    weights: Array | None
    models: Mapping[int, Evaluation]
    refitted: tuple[int, ...]


def _evaluated(holdout: LocalLadder, fresh: Any, model: Any) -> Fresh:
    """Evaluate the given models on the fresh rows; nothing of the holdout is scored here.

    Raises
    ------
    InvalidArgument
        Fresh rows or models are not what they should be.
    OverlapError
        Half of the fresh rows or more are rows of the holdout.
    """
    guard = holdout.guard()
    if not isinstance(fresh, tuple | list) or len(fresh) not in (2, 3):
        allowed = "a tuple (X, y), or (X, y, sample_weight)"
        raise InvalidArgument("fresh", allowed, f"a {type(fresh).__name__}")
    rows = settings.rows_of(*fresh, *[None] * (3 - len(fresh)))
    hashes = hashing.row_hashes(rows.X)
    shared = matching.overlap(hashes, guard.hashes)
    if shared:
        message = (
            f"{shared} of these {len(hashes)} fresh rows are in the holdout "
            f"{guard.holdout.name!r}: what they show was known before."
        )
        judge_overlap(holdout.overlap, shared, len(hashes), message)
    given = holdout.read(partial(_by_submission, model=model))
    metric, classes, weights = guard.metric, guard.holdout.classes, rows.sample_weight
    targets = metric.targets(rows.labels, classes)
    models, refitted = {}, []
    for number, (digest, submitted) in given.items():
        has_model = predicts(submitted)
        answer = (
            metric.respond(submitted, rows.X, classes) if has_model else by_index(submitted, rows)
        )
        predictions = metric.canonical(answer, len(rows.y), classes)
        models[number] = metric.evaluate(targets, predictions, weights)
        # Predictions on other rows do not show whose they are.
        if has_model and _is_refitted(holdout, guard, submitted, number, digest):
            refitted.append(number)
    return Fresh(metric, targets, weights, models, tuple(refitted))


def _by_submission(tx: Transaction, ladder: LadderRecord, model: Any) -> dict[int, tuple[str, Any]]:
    """Return the given models, by the number of the first submission of their predictions.

    Each has the digest of these beside it.
    """
    incumbent, last = ladder.incumbent, ladder.submissions
    if incumbent is None:
        came = "given where nothing was released yet"
        raise InvalidArgument("fresh", "left out before the first release", came)
    if model is None:
        raise InvalidArgument(
            "model",
            "given with fresh=",
            "missing",
            f"The ledger keeps no models: give that of the incumbent, submission {incumbent}, or "
            "a mapping from numbers of submissions to models.",
        )
    given = dict(model) if isinstance(model, Mapping) else {incumbent: model}
    by_first = {}
    for number, submitted in given.items():
        if number not in range(1, last + 1):
            allowed = f"a mapping from numbers of submissions, 1 to {last}"
            raise InvalidArgument("model", allowed, f"one with {number!r}")
        first = tx.submission(ladder.id, int(number))
        if first.repeat_of is not None:
            first = tx.submission(ladder.id, first.repeat_of)
        by_first[first.number] = first.digest, submitted
    if incumbent not in by_first:
        allowed = f"a mapping that holds the incumbent, submission {incumbent}"
        raise InvalidArgument("model", allowed, "one without it")
    return by_first


def _is_refitted(holdout: LocalLadder, guard: Guard, model: Any, number: int, digest: str) -> bool:
    """Return whether a model predicts on the holdout what was never submitted.

    Raises
    ------
    InvalidArgument
        It predicts what was submitted under another number than its own.
    """
    metric, known = guard.metric, guard.holdout
    answer = metric.respond(model, guard.rows.X, known.classes)
    aligned = metric.canonical(answer, known.n, known.classes)[guard.order]
    found, _ = digests_of(known.secret, np.ascontiguousarray(aligned), known.reserve)
    if found == digest:
        return False
    same = holdout.read(lambda tx, ladder: tx.found(ladder.id, "digest", found))
    other = next((one.number for one in same if one.repeat_of is None), None)
    if other is None:
        return True
    allowed = f"the one behind submission {number}"
    remedy = f"Give it under its own number, model={{{other}: ...}}."
    raise InvalidArgument("model", allowed, f"the one behind submission {other}", remedy)


def _tested(
    fresh: Fresh,
    audit: Audit,
    on_holdout: Evaluation,
    constant: Array | None,
    rng: np.random.Generator,
) -> FreshTest:
    """Compare the released score, the raw pick and a constant with what fresh rows show."""
    metric, submissions, confidence = fresh.metric, audit.submissions, audit.confidence
    (incumbent,) = submissions[submissions["number"] == audit.status.incumbent]
    at_incumbent, pick, flat = fresh.models[incumbent.number], audit.picked, None

    def scored(evaluation: Evaluation) -> statistics.Interval:
        return statistics.score_interval(metric, evaluation, confidence, rng)

    def over(other: Evaluation | None) -> statistics.Interval | None:
        if other is None:
            return None
        return statistics.paired(metric, at_incumbent, other, confidence, rng)

    released, before = scored(at_incumbent), scored(on_holdout)
    # The pick may be the released model itself: then there is nothing to compare.
    raw_pick = None if pick is None or pick == incumbent else fresh.models.get(pick.number)
    if constant is not None:
        flat = statistics.evaluated_everywhere(constant, metric, fresh.targets, fresh.weights)
    distinct = submissions[~submissions.is_repeat]
    true, errors = distinct["fresh"], dict[str, float]()
    if not np.isnan(true).any():  # of every submission
        best = np.maximum.accumulate(distinct["raw"])
        errors = {
            "leaderboard_error": statistics.leaderboard_error(true, distinct["incumbent_score"]),
            "raw_leaderboard_error": statistics.leaderboard_error(true, best),
        }
    return FreshTest(
        n=len(fresh.targets),
        released=released,
        gap=statistics.two_samples(incumbent.incumbent_score, before, released),
        constant=None if flat is None else metric.to_score(flat.risk),
        gain=over(flat),
        picked=None if raw_pick is None else scored(raw_pick),
        over_picked=over(raw_pick),
        refitted=fresh.refitted,
        **errors,
    )
