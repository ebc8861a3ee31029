"""Views of a ladder, made from its records."""

from __future__ import annotations

from collections.abc import Iterator

from ladderholdout.estimates import N_BOOTSTRAP
from ladderholdout.guard.shown.context import APART
from ladderholdout.guard.shown.next_release import next_release
from ladderholdout.guard.shown.score_certificate import ScoreCertificate
from ladderholdout.guard.shown.views import Estimate, Status, Submission, score_of
from ladderholdout.ledger.events import Shown, Submitted
from ladderholdout.ledger.fold import HoldoutRecord, LadderRecord
from ladderholdout.ledger.rules import rule_shown, rules_of
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms import MECHANISMS
from ladderholdout.metrics import Metric

_LATEST = 3


def releases_left(ladder: LadderRecord, releases: int) -> int | None:
    """Return what is left of a ladder's budget after so many releases."""
    budget = ladder.settings.budget
    return None if budget is None else max(0, budget - releases)


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
        sharing=tuple(_shared(tx, holdout.id)),
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
    releases = ladder.state["releases"]
    # A mechanism that this process has not imported can be shown, and not asked.
    if ladder.settings.mechanism not in MECHANISMS or releases_left(ladder, releases) == 0:
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
    outside = _queries_outside(tx, ladder.holdout_id, batch) - (len(entries) == 1 and batch is None)
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


def _queries_outside(tx: Transaction, holdout_id: int, batch: str | None) -> int:
    """Count the submissions to all ladders of a holdout that repeat none and are not of a batch."""
    return sum(
        entry.repeat_of is None and (batch is None or entry.batch != batch)
        for ladder in tx.ladders(holdout_id)
        for entry in tx.submissions(ladder.id)
    )


def _revealed(tx: Transaction, ladder: LadderRecord, entries: tuple[Submitted, ...]) -> str | None:
    """Return what showed more than the batch's own answers, if anything did."""
    if any(ladder.why_withdrawn(entry) is not None for entry in entries):
        return f"a submission of the batch was withdrawn: {OTHERWISE}"
    for other in tx.sharing(ladder.holdout_id):
        if any(one.queries for one in tx.ladders(other.holdout_id)):
            return f"the holdout {other.name!r} has {other.rows} of these rows and was queried"
    return None


def _shared(tx: Transaction, holdout_id: int) -> Iterator[tuple[str, int, int]]:
    """Yield the holdouts that have rows of this one, how many, and the queries there."""
    for other in tx.sharing(holdout_id):
        queries = sum(ladder.queries for ladder in tx.ladders(other.holdout_id))
        yield other.name, other.rows, queries


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
