"""Views of a ladder, made from its records: status, history, estimate, what a copy lacks."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

from ladderholdout.estimates import N_BOOTSTRAP
from ladderholdout.guard.certificate import ScoreCertificate
from ladderholdout.guard.context import APART
from ladderholdout.guard.views import Estimate, Status, Submission, Unsent, score_of
from ladderholdout.ledger.events import Shown, Submitted
from ladderholdout.ledger.fold import HoldoutRecord, LadderRecord
from ladderholdout.ledger.rules import rule_shown, rules_of
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms import MECHANISMS
from ladderholdout.mechanisms.base import State
from ladderholdout.mechanisms.noiseless import Ladder, PricedLadder, SimplifiedLadder
from ladderholdout.mechanisms.rules import LadderRules, unit_of
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scores import zero_one
from ladderholdout.metrics.table import is_named

_LATEST = 3


def status_of(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    certificate: ScoreCertificate,
    ledger: str,
) -> Status:
    """Read the state of a ladder."""
    holdout, known = tx.holdout(ladder.holdout_id), tx.fold(ladder.holdout_id)
    seen = {(query.ladder, query.submission): query.risk for _, query in known.looks}
    return Status(
        name=holdout.name,
        fingerprint=holdout.fingerprint,
        n=holdout.n,
        account=ladder.settings.account,
        ladder=ladder.settings.name,
        metric=metric.name,
        mechanism=rule_shown(ladder.settings),
        submissions=ladder.submissions,
        releases=ladder.state["releases"],
        budget=ladder.settings.budget,
        score=score_of(ladder.released, metric),
        incumbent=ladder.incumbent,
        ladders=tuple(
            (one.settings.account, one.settings.name, one.submissions)
            for one in tx.ladders(holdout.id)
        ),
        overlaps=tuple(known.overlaps),
        opened=ladder.opened,
        retired=holdout.retired,
        latest=tuple(
            submission_of(entry, ladder, metric)
            for entry in tx.entries(ladder.id, after=ladder.submissions - _LATEST)
        ),
        certificate=certificate,
        ledger=ledger,
        reserve=holdout.n_reserve,
        reserve_queries=len(known.looks),
        reserve_score=score_of(seen.get((ladder.id, ladder.incumbent or 0)), metric),
        restored=tuple(length for _, length in known.restored),
        # How many of the rows each of the others has, and the queries there.
        sharing=tuple(
            (other.name, other.rows, sum(one.queries for one in tx.ladders(other.holdout_id)))
            for other in tx.sharing(holdout.id)
        ),
        estimate=shown_estimate(tx, ladder, metric),
        next_release=_next_release(tx, ladder, metric, holdout),
        block=holdout.block,
        spent_at=known.spent_at.get(metric.name),
        queries=ladder.queries,
    )


def _next_release(
    tx: Transaction, ladder: LadderRecord, metric: Metric, holdout: HoldoutRecord
) -> str:
    """Return what has to be gained to improve; nothing where no submission will."""
    if ladder.incumbent is None or holdout.retired is not None:
        return ""
    releases, budget = ladder.state["releases"], ladder.settings.budget
    # A mechanism that this process has not imported can be shown, and not asked.
    is_known = ladder.settings.mechanism in MECHANISMS
    if not is_known or (budget is not None and releases >= budget):
        return ""
    rules = rules_of(ladder.settings)
    risk = ladder.released
    if risk is None:
        return "depends on the released score, which reveal shows, and on the submission"
    return next_release(rules, metric, holdout.n_ladder, risk, releases)


OTHERWISE = (
    "a reserve gives a score without selection bias (LadderHoldout(X, y, reserve=0.3, ...), "
    "then reserve_certificate()), and certificate() allows for all that was released"
)
ESTIMATED_BY = "bootstrap of the selection"


def estimate_of(shown: Shown, metric: Metric) -> Estimate:
    """Return an estimate as it was shown."""
    more = shown.more
    batch, submissions = more["batch"], more["submissions"]
    if more["risk"] is None:
        return Estimate(None, ESTIMATED_BY, 0, batch, submissions, more["refused"])
    score = metric.to_score(more["risk"])
    return Estimate(score, ESTIMATED_BY, N_BOOTSTRAP, batch, submissions)


def estimates_of(tx: Transaction, ladder: LadderRecord) -> list[Shown]:
    """Return the estimates that were shown of a ladder, oldest first."""
    shown = tx.fold(ladder.holdout_id).shown_of("estimate")
    return [estimate for estimate in shown if estimate.ladder == ladder.id]


def shown_estimate(tx: Transaction, ladder: LadderRecord, metric: Metric) -> Estimate | None:
    """Return the estimate that was shown and still is that of the ladder's batch."""
    if not any(shown.submission == ladder.incumbent for shown in estimates_of(tx, ladder)):
        return None
    reason, entries = why_not_estimated(tx, ladder)
    known = estimate_on_record(tx, ladder, len(entries))
    return None if known is None or reason is not None else estimate_of(known, metric)


def estimate_on_record(tx: Transaction, ladder: LadderRecord, submissions: int) -> Shown | None:
    """Return the estimate of the incumbent among so many submissions."""
    for shown in estimates_of(tx, ladder):
        if (shown.submission, shown.more["submissions"]) == (ladder.incumbent, submissions):
            return shown
    return None


def why_not_estimated(
    tx: Transaction, ladder: LadderRecord
) -> tuple[str | None, tuple[Submitted, ...]]:
    """Return why there is no corrected score, if so, and the submissions of the batch."""
    if ladder.incumbent is None:
        return "the ladder has no incumbent yet", ()
    mechanism = rules_of(ladder.settings).mechanism
    if mechanism.needs_account or mechanism.needs_inner_score:
        return f"a batch cannot be replayed under {mechanism.name}", ()
    entries = tuple(entry for entry in tx.entries(ladder.id) if entry.repeat_of is None)
    batch = entries[0].batch
    # Of all ladders of the holdout; repeats are none.
    outside = sum(
        entry.repeat_of is None and (batch is None or entry.batch != batch)
        for other in tx.ladders(ladder.holdout_id)
        for entry in tx.submissions(other.id)
    )
    outside -= len(entries) == 1 and batch is None
    if outside:
        why = next(
            (f" ({entry.context[APART]})" for entry in entries if APART in entry.context), ""
        )
        reason = (
            f"{outside} queries of this holdout are not of one batch{why}, and to replay what "
            f"learned from answers would leave most of the optimism in: {OTHERWISE}"
        )
        return reason, ()
    return _revealed(tx, ladder, entries), entries


def _revealed(tx: Transaction, ladder: LadderRecord, entries: tuple[Submitted, ...]) -> str | None:
    """Return what showed more than the batch's own answers, if anything did."""
    if any(ladder.why_withdrawn(entry) is not None for entry in entries):
        return f"a submission of the batch was withdrawn: {OTHERWISE}"
    for other in tx.sharing(ladder.holdout_id):
        if any(one.queries for one in tx.ladders(other.holdout_id)):
            return f"the holdout {other.name!r} has {other.rows} of these rows and was queried"
    return None


def submission_of(entry: Submitted, ladder: LadderRecord, metric: Metric) -> Submission:
    """Return what the analyst is shown of a submission.

    Digests and disagreement depend on the holdout's features, and `repeat_of` is shown only if the
    predictions are known to be the same on all rows: then who submitted them has both.
    """
    withdrawn, is_known = ladder.why_withdrawn(entry), entry.is_known
    return Submission(
        number=entry.number,
        time=entry.time,
        account=ladder.settings.account,
        batch=entry.batch,
        score=score_of(ladder.shown(entry), metric),
        improved=entry.improved and entry.repeat_of is None,
        context=entry.context,
        withdrawn=withdrawn if is_known or entry.repeat_of is None else None,
        repeat_of=entry.repeat_of if is_known else None,
        search=entry.search,
        place=entry.place,
        has_held=entry.held and withdrawn is None,
    )


# Rules whose margin follows from the released score; those of all others depend on the submission.
_FIXED = (Ladder, PricedLadder, SimplifiedLadder)


def smallest_step(rules: LadderRules, metric: Metric, state: State) -> float:
    """Return how much better than the released score a submission has to be.

    Rules that compare in pairs need the variance of the differences of losses, which
    nobody outside the guard may see. It is bounded by what was released alone: losses in
    [0, 1] of mean r have a variance of at most r(1 - r), so that the difference of two of them
    that are not negatively correlated has at most twice that. Squared errors of a normal
    distribution, and losses that vary less, have one of at most twice r squared, which is less
    where the stated range is wide.

    Parameters
    ----------
    rules : LadderRules
    metric : Metric
    state : State
        Of the ladder, with the released risk.

    Returns
    -------
    float
        In the units of the score, not negative.

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder, ParameterFreeLadder, State
    >>> from ladderholdout.metrics import get_metric
    >>> accuracy = get_metric("accuracy")
    >>> state = State(n=400, standing=0.2, releases=1)
    >>> smallest_step(LadderRules(Ladder(step=0.02)), accuracy, state)
    0.02
    >>> smallest_step(LadderRules(ParameterFreeLadder()), accuracy, state)
    0.028284271247
    """
    released = state.standing
    unit = rules.unit or unit_of(math.inf, released)
    share = min(max(released / unit, 0.0), 1.0)
    variance = share * (1.0 - share)
    # Of a metric of the caller's own the ledger has no function: the answer must not need it.
    if is_named(metric) and metric.is_mean and metric.loss is not zero_one:
        variance = min(variance, 2.0 * share * share)
    within = replace(state, standing=released / unit)
    margin = rules.mechanism.least_gain(within, 2.0 * variance) * unit
    # A rule with noise, or that rounds nothing, has no grid.
    rounds = rules.mechanism.resolution(state.n) > 0.0
    step = max(margin, rules.spacing(released, state.n)) if rounds else margin
    better = max(released - step, 0.0) if metric.root else released - step
    return round(metric.to_score(better) - metric.to_score(released), 12)


def next_release(rules: LadderRules, metric: Metric, n: int, risk: float, releases: int) -> str:
    """Describe the gain that a submission needs to become the incumbent.

    Parameters
    ----------
    rules : LadderRules
    metric : Metric
    n : int
        Rows that the ladder measures.
    risk : float
        The released one.
    releases : int
        How many there were.

    Returns
    -------
    str
        A number where the rule has one. Where it depends on the submission, the largest usual one.

    Examples
    --------
    >>> from ladderholdout.mechanisms import BayesBootLadder, Ladder, ParameterFreeLadder
    >>> from ladderholdout.metrics import get_metric
    >>> accuracy, area = get_metric("accuracy"), get_metric("roc_auc")
    >>> print(next_release(LadderRules(Ladder(step=0.02)), accuracy, 400, 0.2, 1))
    a score above 0.82; scores are released in steps of 0.02
    >>> print(next_release(LadderRules(ParameterFreeLadder()), accuracy, 400, 0.2, 1))
    depends on the submission: a score above about 0.8283, or less where it resembles the incumbent
    >>> print(next_release(LadderRules(BayesBootLadder(17 / 3, step=0.025)), area, 400, 0.1, 2))
    depends on the submission and on random draws: a score above about 0.925; scores are released \
in steps of 0.025
    """
    rule, state = rules.mechanism, State(n=n, standing=risk, releases=releases)
    if rules.shows_scores and (rule.discloses or rule.redraws):
        return "any: each submission's own score is released"
    if rule.needs_account or rule.needs_inner_score:
        return "depends on the submission"
    gain = smallest_step(rules, metric, state)
    if isinstance(rule, SimplifiedLadder):
        gain /= 2  # rounding does the rest
    score = metric.to_score(risk)
    above = f"a score above {'' if rules.unit else 'about '}{score + gain:.4g}"
    if not isinstance(rule, _FIXED):
        why = "the submission and on random draws" if rule.draws else "the submission"
        above = f"depends on {why}: a score above about {score + gain:.4g}"
        if rule.needs_losses:
            above += ", or less where it resembles the incumbent"
    if rule.noisy:
        return f"{above}; scores are released with noise"
    step = rule.resolution(n) * (rules.unit or 1.0)
    if rules.grid(n) is not None or not rules.unit or metric.root or step <= rules.unit / n:
        return above
    return f"{above}; scores are released in steps of {step:.3g}"


def step_at(metric: Metric, rules: LadderRules, n: int, score: float) -> float:
    """Return the score by which one grid step of risk is below a released one, on n rows."""
    risk = metric.to_risk(score)
    step = rules.spacing(risk, n)
    # Beside a score of -1e20 (a diverged model) a step is nothing, but it must be one.
    return max(score - metric.to_score(risk + step), sys.float_info.min)


def unsent(
    tx: Transaction, ladder: LadderRecord, metric: Metric, *, after: int, raw: bool, limit: int
) -> Unsent:
    """Read the next submissions of a ladder after a number.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord
    metric : Metric
    after : int
    raw : bool
        Whether they are for an auditor's eyes.
    limit : int
        At most so many: there may be millions.

    Returns
    -------
    Unsent
    """
    entries: tuple[Submitted, ...] = ()
    if ladder.submissions > after:
        entries = tx.entries(ladder.id, after=after, limit=limit)
    submissions = tuple(submission_of(entry, ladder, metric) for entry in entries)
    raw_scores = {}
    if raw:
        raw_scores = {entry.number: metric.to_score(entry.raw) for entry in entries}
        submissions = tuple(
            replace(submission, score=metric.to_score(entry.risk))
            for submission, entry in zip(submissions, entries, strict=True)
        )
    looks = tx.fold(ladder.holdout_id).looks
    reserve = {one.submission: one.risk for _, one in looks if one.ladder == ladder.id}
    estimate = shown_estimate(tx, ladder, metric)
    shown = -1 if ladder.shows_scores else len(ladder.shown_risks())
    return Unsent(
        submissions,
        tx.fold(ladder.holdout_id).end,
        (shown, len(reserve), len(estimates_of(tx, ladder))),
        {number: score_of(risk, metric) for number, risk in reserve.items()},
        {ladder.incumbent: None if estimate is None else estimate.score},
        raw_scores,
    )
