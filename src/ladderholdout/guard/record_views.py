"""Views of a ladder, made from its records: status, history, estimate, health, a copy's lacks.

An estimate is worked out from the rows, and put on record before it is shown.
"""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout import estimates
from ladderholdout.arguments import whole, within
from ladderholdout.certificates.codes import event_length
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import commands
from ladderholdout.guard.certificate import Health, together
from ladderholdout.guard.certify import certificate_of
from ladderholdout.guard.context import APART
from ladderholdout.guard.on_record import Question, kept_predictions, on_record
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.submit import Guard, LedgerLadder
from ladderholdout.guard.views import Estimate, Status, Submission, Unsent, score_of
from ladderholdout.ledger.events import Shown, Submitted
from ladderholdout.ledger.fold import HoldoutRecord, LadderRecord
from ladderholdout.ledger.rules import rule_shown, rules_of
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.mechanisms import MECHANISMS
from ladderholdout.mechanisms.base import State
from ladderholdout.mechanisms.noiseless import Ladder, PricedLadder, SimplifiedLadder
from ladderholdout.mechanisms.rules import LadderRules, unit_of
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import LARGEST
from ladderholdout.metrics.scales import Scale, scale_of
from ladderholdout.metrics.scores import zero_one
from ladderholdout.metrics.table import is_named
from ladderholdout.planning.course import MOST_MORE, Course

_LATEST = 3


def status_of(
    tx: Transaction, ladder: LadderRecord, metric: Metric, guard: Guard | None, ledger: str
) -> Status:
    """Read the state of a ladder; without its guard there is no certificate."""
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
        certificate=certificate_of(tx, ladder, metric, guard),
        ledger=ledger,
        reserve=holdout.n_reserve,
        reserve_queries=len(known.looks),
        reserve_score=score_of(seen.get((ladder.id, ladder.incumbent or 0)), metric),
        restored=tuple(length for _, length in known.restored),
        # How many of the rows each of the others has, and the queries there.
        sharing=tuple(
            (other.name, rows, sum(one.queries for one in other.ladders.values()))
            for other, rows in tx.sharing(holdout.id)
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


# -- the corrected score of a batch's winner ----------------------------------------------------

# Seconds before a bar is shown.
_PATIENCE = 2.0
# With fewer rows of the rarest class an estimate of a score that is no mean of losses errs by
# about as much as the winner's raw score or by more (benchmarks/estimates.py --rare).
LEAST_OF_A_CLASS = 10
OTHERWISE = (
    "a reserve gives a score without selection bias (LadderHoldout(X, y, reserve=0.3, ...), "
    "then reserve_certificate()), and certificate() allows for all that was released"
)
ESTIMATED_BY = "bootstrap of the selection"


def estimates_of(tx: Transaction, ladder: LadderRecord) -> list[Shown]:
    """Return the estimates that were shown of a ladder, oldest first."""
    shown = tx.fold(ladder.holdout_id).shown_of("estimate")
    return [estimate for estimate in shown if estimate.ladder == ladder.id]


def shown_estimate(tx: Transaction, ladder: LadderRecord, metric: Metric) -> Estimate | None:
    """Return the estimate that was shown and still is that of the ladder's batch."""
    shown = [it.more for it in estimates_of(tx, ladder) if it.submission == ladder.incumbent]
    reason, entries = why_not_estimated(tx, ladder) if shown else (None, ())
    for it in shown:
        if reason is None and it["submissions"] == len(entries):
            score, draws = (
                score_of(it["risk"], metric),
                estimates.N_BOOTSTRAP * (it["risk"] is not None),
            )
            return Estimate(score, ESTIMATED_BY, draws, it["batch"], len(entries), it["refused"])
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
    # What showed more than the batch's own answers.
    if any(ladder.why_withdrawn(entry) is not None for entry in entries):
        return f"a submission of the batch was withdrawn: {OTHERWISE}", entries
    for other, rows in tx.sharing(ladder.holdout_id):
        if any(one.queries for one in other.ladders.values()):
            why = f"the holdout {other.name!r} has {rows} of these rows and was queried"
            return why, entries
    return None, entries


def estimate(ladder: LedgerLadder) -> Estimate:
    """Correct the incumbent's score for the selection; see `LadderHoldout.estimate`."""
    return on_record(ladder, _ask_estimate)


def _ask_estimate(tx: Transaction, ladder: LadderRecord, guard: Guard) -> Estimate | Question:
    """Return the estimate if it is on record, or why there is none, else the batch."""
    known = shown_estimate(tx, ladder, guard.metric)
    if known is not None:
        return known
    reason, entries = why_not_estimated(tx, ladder)
    batch, count = entries[0].batch if entries else None, len(entries)
    kept: list[NDArray[Any]] = []
    for entry in entries if reason is None else ():
        is_kept = entry.candidate or (count == 1 and batch is None)
        stored = kept_predictions(tx, ladder, entry) if is_kept else None
        if stored is None:
            why = "not all predictions of this batch were kept (they were too many)"
            reason = f"{why}: {OTHERWISE}"
            break
        kept.append(stored)
    if reason is not None:
        return Estimate(None, ESTIMATED_BY, 0, batch, count, reason)
    announced = batch in tx.fold(ladder.holdout_id).sizes

    def work() -> Shown:
        metric, part = guard.metric, guard.part
        # Its certificate would show a score, the number of its grid, or that there is none.
        risk, refused, price = None, _too_rare(guard), math.log(4.0)
        if refused is None:
            # The rule by which a training run stopped, where the batch is its rounds.
            rules = {tuple(entry.context.get("stopping", ())) for entry in entries}
            stopping = rules.pop() if len(rules) == 1 else ()
            with _bar("Estimating") as progress:
                found = estimates.corrected(
                    metric,
                    rules_of(ladder.settings),
                    part.targets,
                    [part.of(values) for values in kept],
                    winner=[entry.number for entry in entries].index(ladder.incumbent or 0),
                    weights=part.weights,
                    groups=None if part.groups is None else part.groups.codes,
                    stopping=estimates.Stopping(*stopping) if stopping else None,
                    best_first=announced,
                    secret=hmac.digest(guard.holdout.secret, b"estimate", "sha256"),
                    progress=progress,
                )
            if found is None:
                refused = f"{metric.name} has no value on too many of the draws of these rows"
            else:
                may_fail = not metric.is_mean or part.weights is not None
                risk, values = on_grid(found.corrected, metric, guard.holdout.n_ladder)
                price = math.log(values) + may_fail * math.log(2.0)
        more = {"risk": risk, "refused": refused, "submissions": count, "batch": batch}
        return Shown(
            what="estimate",
            ladder=ladder.id,
            submission=ladder.incumbent,
            log_values=price,
            more=more,
        )

    return Question((ladder.incumbent, ladder.submissions), work)


def _too_rare(guard: Guard) -> str | None:
    """Return why a class with few rows leaves no estimate; None where none is so rare."""
    metric, part, classes = guard.metric, guard.part, guard.holdout.classes
    if metric.is_mean or not metric.is_classification or classes is None:
        return None
    targets = part.targets if part.weights is None else part.targets[part.weights > 0.0]
    if np.bincount(targets.ravel(), minlength=len(classes)).min() >= LEAST_OF_A_CLASS:
        return None
    return (
        f"the rarest class has fewer than {LEAST_OF_A_CLASS} rows here, and on so few an estimate "
        f"of {metric.name} errs about as much as the released score, in the other direction; "
        "certificate() states how far that score can be off"
    )


@contextmanager
def _bar(what: str) -> Iterator[Callable[[float], None]]:
    """Show how much of some work is done: a bar after two seconds, where somebody looks on."""
    begun, bar = time.monotonic(), None

    def show(share: float) -> None:
        nonlocal bar
        if bar is None:
            if time.monotonic() - begun < _PATIENCE:
                return
            # Imported here: the package itself is imported without it.
            from rich.console import Console
            from rich.progress import Progress

            console = Console(stderr=True)
            if not console.is_terminal:
                return
            bar = Progress(console=console, transient=True)
            bar.add_task(what, total=1.0)
            bar.start()
        bar.update(bar.task_ids[0], completed=share)

    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()


def on_grid(risk: float, metric: Metric, n: int) -> tuple[float, int]:
    """Return a rounded risk, and how many values it could have been rounded to.

    Parameters
    ----------
    risk : float
    metric : Metric
    n : int
        Rows that ladders measure.

    Returns
    -------
    risk, values : float, int
        On the grid of released scores. A corrected share of rows is no whole number of them: it
        is on that of other scores that are made of labels.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rmse = get_metric("neg_root_mean_squared_error").with_range((0, 500))
    >>> on_grid(0.23456, get_metric("accuracy"), 100), on_grid(55.4321**2, rmse, 100)[0] ** 0.5
    ((0.235, 164), 55.5)
    """
    scale, limits = scale_of(metric), metric.risk_range
    scale = Scale("shares") if scale.kind == "counts" else scale
    if metric.clip and limits is not None:
        # Half of the chance is for values beyond a stated range.
        within = limits if limits[0] <= risk <= limits[1] else None
        return scale.nearest(risk, n), 2 * scale.values(n, within)
    if limits is not None:
        risk = min(max(risk, limits[0]), limits[1])
    elif metric.root:
        risk = max(risk, 0.0)
    return scale.nearest(risk, n), scale.values(n, limits)


# -- submissions, and what the next one has to gain -------------------------------------------


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


# -- how used up the rows are, and what more use would cost -----------------------------------
# From what the status and the history show alone.


def health_of(ladder: OpenLadder, more: int = 5, spent_at: float | None = None) -> Health:
    """Return how wide the certificate of a ladder is, and forecasts of that.

    What the status and the history show of it is all that goes in, so it depends on labels through
    releases alone.

    Parameters
    ----------
    ladder : OpenLadder
    more : int, default=5
        After how many more improvements a width is forecast.
    spent_at : float, optional
        The width from which on the owner takes the rows for used up, in the metric's own units; by
        default the one on record, if there is one.

    Raises
    ------
    InvalidArgument
        An argument is refused.
    """
    more = whole("more", more, most=MOST_MORE)
    if spent_at is not None:
        spent_at = within("spent_at", spent_at, LARGEST)
    if ladder.by_metric:
        ladders = ladder.by_metric.items()
        return together({name: health_of(one, more, spent_at) for name, one in ladders})
    status = ladder.execute(commands.Status())
    certificate, score = status.certificate, status.score
    spent_at = status.spent_at if spent_at is None else spent_at
    health = Health(
        *(status.name, status.block, status.n_ladder, status.submissions, status.releases),
        *(None, None, more, None, spent_at),
        reason=certificate.missing or "",
    )
    low, high, price = certificate.low, certificate.high, certificate.log_count
    if low is None or high is None or price is None:
        return health
    width = high - low
    if not math.isfinite(width):
        return replace(health, reason="its certificate has one end alone")
    risk = first_risk = None
    if ladder.metric.counts and ladder.facts.estimand is None and score is not None:
        first = next(iter(ladder.execute(commands.History(limit=1)).submissions), None)
        risk = ladder.metric.to_risk(score)
        if first is not None and first.score is not None:
            first_risk = ladder.metric.to_risk(first.score)
    course = Course(
        width=width,
        price=price,
        confidence=certificate.confidence,
        n=status.n_ladder,
        queries=max(status.queries, 1),
        improvements=max(status.releases, 1),
        risk=risk,
        first_risk=first_risk,
    )
    health = replace(
        health,
        width=width,
        price=course.price,
        width_after=course.width_after(more),
        reason="" if course.improvements > 1 else "it takes two improvements to forecast others",
    )
    if spent_at is None:
        return health
    return replace(
        health,
        spent=width > spent_at,
        queries_left=course.queries_until(spent_at),
        fresh_rows=course.fresh_rows(spent_at),
        rows_for_such_use=course.rows_for_such_use(spent_at),
    )


def price_of(ladder: OpenLadder, what: str) -> str:
    """Return about how wide the next certificate becomes; see `LadderHoldout.price`."""
    status = ladder.execute(commands.Status())
    n, found = status.n_ladder, status.certificate
    nats = {"compare": math.log(n) + 2.0, "reveal": math.log(n), "certificate": 9.0}.get(what)
    if nats is None:
        raise InvalidArgument("what", '"compare", "reveal" or "certificate"', what)
    known = found.low is not None and found.high is not None and found.log_count is not None
    if (what == "certificate" and known) or (what == "reveal" and status.score is not None):
        return "It costs nothing: it was shown before, or follows from what was."
    if not known and status.releases:
        return f"It costs about {nats:.0f} nats; there is no certificate yet whose width is known."
    counts, score = ladder.metric.counts, status.score
    errors = round(n * (ladder.metric.to_risk(score) if counts and score is not None else 0.1))
    before = event_length(1) if found.log_count is None else found.log_count
    levels = [math.log((1.0 - found.confidence) / 2.0) - L for L in (before, before + nats)]
    here, there = (exact_upper(errors, n, at) - exact_lower(errors, n, at) for at in levels)
    times, now = there / here, (found.high or 0.0) - (found.low or 0.0) if known else here
    if not math.isfinite(now) or not (known or counts):
        return (
            f"The next certificate becomes about {times:.1f} times as wide ({nats:.0f} nats more)."
        )
    of = "" if known else ", for a model that errs on a tenth of the rows"
    return (
        f"The next certificate becomes about {now * times:.2g} wide instead of {now:.2g} "
        f"({nats:.0f} nats more{of})."
    )
