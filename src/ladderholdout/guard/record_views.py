"""Views of a ladder, made from its records."""

from __future__ import annotations

from collections.abc import Iterator

from ladderholdout.estimates import N_BOOTSTRAP
from ladderholdout.guard.context import APART
from ladderholdout.guard.next_release import next_release
from ladderholdout.guard.views import Estimate, ScoreCertificate, Status, Submission, score_of
from ladderholdout.ledger import (
    Entry,
    EstimateRecord,
    HoldoutRecord,
    LadderRecord,
    Transaction,
)
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
    # Of a rule that shows no value the text needs none.
    known = 0.5 * (rules.unit or 1.0) if risk is None else risk
    return next_release(rules, metric, holdout.n_ladder, known, releases)


OTHERWISE = (
    "a reserve gives a score without selection bias (LadderHoldout(X, y, reserve=0.3, ...), "
    "then certify()), and certificate() allows for all that was released"
)
ESTIMATED_BY = "bootstrap of the selection"


def estimate_of(one: EstimateRecord, metric: Metric) -> Estimate:
    """Return a corrected score as it was recorded."""
    score = metric.to_score(one.risk)
    return Estimate(score, ESTIMATED_BY, N_BOOTSTRAP, one.batch, one.submissions)


def shown_estimate(tx: Transaction, ladder: LadderRecord, metric: Metric) -> Estimate | None:
    """Return the corrected score of a ladder's incumbent, if it was asked for and there is one."""
    if not any(one.submission == ladder.incumbent for one in tx.batches.estimates_of(ladder)):
        return None
    reason, entries = why_not_estimated(tx, ladder)
    known = estimate_on_record(tx, ladder, len(entries))
    return None if known is None or reason is not None else estimate_of(known, metric)


def estimate_on_record(
    tx: Transaction, ladder: LadderRecord, submissions: int
) -> EstimateRecord | None:
    """Return what was shown before of this incumbent among so many submissions."""
    for one in tx.batches.estimates_of(ladder):
        if (one.submission, one.submissions) == (ladder.incumbent, submissions):
            return one
    return None


def why_not_estimated(
    tx: Transaction, ladder: LadderRecord
) -> tuple[str | None, tuple[Entry, ...]]:
    """Return why there is no corrected score, if so, and the submissions of the batch."""
    if ladder.incumbent is None:
        return "the ladder has no incumbent yet", ()
    mechanism = rules_of(ladder.settings).mechanism
    if mechanism.needs_account or mechanism.needs_guide:
        return f"a batch cannot be replayed under {mechanism.name}", ()
    entries = tuple(one for one in tx.entries(ladder.id) if one.repeat_of is None)
    batch = entries[0].batch
    outside = tx.batches.queries_outside(ladder.holdout_id, batch) - (
        len(entries) == 1 and batch is None
    )
    if outside:
        why = next((f" ({one.context[APART]})" for one in entries if APART in one.context), "")
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
    for one in tx.sharing(holdout_id):
        found = tx.answered([one.holdout_id], tx.chains.latest())
        yield one.name, one.rows, sum(ladder.count for ladder in found)


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
        # Not of a repeat of what did not improve: both would show that it is one.
        withdrawn=entry.withdrawn if entry.improved or entry.repeat_of is None else None,
        repeat_of=entry.repeat_of if entry.improved else None,
        search=entry.search,
        place=entry.place,
    )
