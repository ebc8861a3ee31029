"""Views of a ladder, made from its records."""

from __future__ import annotations

from collections.abc import Iterator

from ladderholdout.estimates import N_BOOTSTRAP
from ladderholdout.guard.shown.context import APART
from ladderholdout.guard.shown.next_release import next_release
from ladderholdout.guard.shown.score_certificate import ScoreCertificate
from ladderholdout.guard.shown.views import Estimate, Status, Submission, score_of
from ladderholdout.ledger import (
    Entry,
    EstimateRecord,
    HoldoutRecord,
    LadderRecord,
    Transaction,
)
from ladderholdout.ledger.blocks import spent_at
from ladderholdout.ledger.chain import SPENT_AT
from ladderholdout.ledger.replay import rule_shown, rules_of
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
    holdout = tx.holdout(ladder.holdout_id)
    queries = () if holdout.reserve is None else tx.reserve.all(holdout.id)
    seen = {(one.ladder_id, one.submission): one.risk for one in queries}
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
        score=score_of(tx.released(ladder), metric),
        incumbent=ladder.incumbent,
        ladders=tuple(
            (one.settings.account, one.settings.name, one.submissions)
            for one in tx.ladders(holdout.id)
        ),
        overlaps=tx.overlaps(holdout.id),
        opened=ladder.opened,
        retired=holdout.retired,
        latest=tuple(
            submission_of(entry, metric)
            for entry in tx.entries(ladder.id, after=ladder.submissions - _LATEST)
        ),
        certificate=certificate,
        ledger=ledger,
        reserve=holdout.n_reserve,
        reserve_queries=len(queries),
        reserve_score=score_of(seen.get((ladder.id, ladder.incumbent or 0)), metric),
        restored=tuple(length for _, length in tx.restorings(holdout.id)),
        sharing=tuple(_shared(tx, holdout.id)),
        estimate=shown_estimate(tx, ladder, metric),
        next_release=_next_release(tx, ladder, metric, holdout),
        block=holdout.block,
        spent_at=spent_at(tx.events(holdout.id, SPENT_AT)).get(metric.name),
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
    risk = tx.released(ladder)
    if risk is None:
        return "depends on the released score, which reveal shows, and on the submission"
    return next_release(rules, metric, holdout.n_ladder, risk, releases)


OTHERWISE = (
    "a reserve gives a score without selection bias (LadderHoldout(X, y, reserve=0.3, ...), "
    "then reserve_certificate()), and certificate() allows for all that was released"
)
ESTIMATED_BY = "bootstrap of the selection"


def estimate_of(record: EstimateRecord, metric: Metric) -> Estimate:
    """Return a corrected score as it was recorded."""
    batch, submissions = record.batch, record.submissions
    if record.risk is None:
        return Estimate(None, ESTIMATED_BY, 0, batch, submissions, record.refused)
    score = metric.to_score(record.risk)
    return Estimate(score, ESTIMATED_BY, N_BOOTSTRAP, batch, submissions)


def shown_estimate(tx: Transaction, ladder: LadderRecord, metric: Metric) -> Estimate | None:
    """Return the corrected score of a ladder's incumbent, if it was asked for and there is one."""
    if not any(record.submission == ladder.incumbent for record in tx.batches.estimates_of(ladder)):
        return None
    reason, entries = why_not_estimated(tx, ladder)
    known = estimate_on_record(tx, ladder, len(entries))
    return None if known is None or reason is not None else estimate_of(known, metric)


def estimate_on_record(
    tx: Transaction, ladder: LadderRecord, submissions: int
) -> EstimateRecord | None:
    """Return what was shown before of this incumbent among so many submissions."""
    for record in tx.batches.estimates_of(ladder):
        if (record.submission, record.submissions) == (ladder.incumbent, submissions):
            return record
    return None


def why_not_estimated(
    tx: Transaction, ladder: LadderRecord
) -> tuple[str | None, tuple[Entry, ...]]:
    """Return why there is no corrected score, if so, and the submissions of the batch."""
    if ladder.incumbent is None:
        return "the ladder has no incumbent yet", ()
    mechanism = rules_of(ladder.settings).mechanism
    if mechanism.needs_account or mechanism.needs_inner_score:
        return f"a batch cannot be replayed under {mechanism.name}", ()
    entries = tuple(entry for entry in tx.entries(ladder.id) if entry.repeat_of is None)
    batch = entries[0].batch
    outside = tx.batches.queries_outside(ladder.holdout_id, batch) - (
        len(entries) == 1 and batch is None
    )
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


def _revealed(tx: Transaction, ladder: LadderRecord, entries: tuple[Entry, ...]) -> str | None:
    """Return what was revealed of these rows beside the batch, if anything was."""
    if any(one.withdrawn is not None for one in entries):
        return f"a submission of the batch was withdrawn: {OTHERWISE}"
    for one in tx.sharing(ladder.holdout_id):
        if tx.batches.queries_outside(one.holdout_id, None):
            return f"the holdout {one.name!r} has {one.rows} of these rows and was queried"
    return None


def _shared(tx: Transaction, holdout_id: int) -> Iterator[tuple[str, int, int]]:
    for other in tx.sharing(holdout_id):
        answered = tx.answered([other.holdout_id], tx.chains.latest())
        yield other.name, other.rows, sum(ladder.count for ladder in answered)


def submission_of(entry: Entry, metric: Metric) -> Submission:
    """Show an entry of the ledger in the metric's own sign."""
    return Submission(
        number=entry.number,
        time=entry.time,
        account=entry.account,
        batch=entry.batch,
        score=score_of(entry.risk, metric),
        improved=entry.improved and entry.repeat_of is None,
        context=entry.context,
        # Not of what nobody knows to be a repeat: both would show that it is one.
        withdrawn=entry.withdrawn if entry.known or entry.repeat_of is None else None,
        repeat_of=entry.repeat_of if entry.known else None,
        search=entry.search,
        place=entry.place,
        has_held=entry.held and entry.withdrawn is None,
    )
