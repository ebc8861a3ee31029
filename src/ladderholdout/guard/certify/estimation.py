"""The corrected score of a batch's winner: worked out, put on record, then shown."""

from __future__ import annotations

import hmac
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.estimates import Correction, Stopping, corrected
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.opening import check_predictions
from ladderholdout.guard.query import Guard, LedgerLadder
from ladderholdout.guard.shown import (
    ESTIMATED_BY,
    OTHERWISE,
    Estimate,
    estimate_of,
    estimate_on_record,
    why_not_estimated,
)
from ladderholdout.ledger import (
    Entry,
    EstimateRecord,
    HoldoutRecord,
    LadderRecord,
    Transaction,
)
from ladderholdout.ledger.replay import rules_of
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import Scale, scale_of

if TYPE_CHECKING:
    from rich.progress import Progress

# Seconds before a bar is shown.
_PATIENCE = 2.0
# With fewer rows of the rarest class an estimate of a score that is no mean of losses errs by
# about as much as the winner's raw score or by more (benchmarks/estimates.py --rare).
LEAST_OF_A_CLASS = 10


@dataclass(frozen=True, slots=True)
class _Question:
    """What is to be estimated: the winner among these submissions, unless something is missing."""

    ladder: LadderRecord
    reason: str | None = None
    batch: str | None = None
    entries: tuple[Entry, ...] = ()
    predictions: tuple[NDArray[Any], ...] = ()
    stopping: Stopping | None = None
    announced: bool = False
    # What was shown of it before.
    known: EstimateRecord | None = None

    def refused(self) -> Estimate:
        return Estimate(None, ESTIMATED_BY, 0, self.batch, len(self.entries), self.reason)


def estimate(ladder: LedgerLadder) -> Estimate:
    """Correct the incumbent's score for the selection; see `LadderHoldout.estimate`."""
    with without_frames:
        guard = ladder.guard()
        while True:
            asked = ladder.read(_asking)
            if asked.reason is not None:
                return asked.refused()
            if asked.known is not None:
                return estimate_of(asked.known, guard.metric)
            # It takes its time, and nobody else should have to wait for it.
            version, noted = guard.labelled.version, _worked_out(guard, asked)
            if not ladder.write(partial(_record, asked=asked, noted=noted, version=version)):
                guard.reload()


def _asking(tx: Transaction, ladder: LadderRecord) -> _Question:
    """Read the batch; where there is no estimate, return why."""
    reason, entries = why_not_estimated(tx, ladder)
    batch = entries[0].batch if entries else None
    if reason is not None:
        return _Question(ladder, reason, batch, entries)
    if (known := estimate_on_record(tx, ladder, len(entries))) is not None:
        return _Question(ladder, None, batch, entries, known=known)
    predictions = _predictions(tx, ladder, entries, tx.holdout(ladder.holdout_id))
    if predictions is None:
        return _Question(
            ladder,
            f"not all predictions of this batch were kept (they were too many): {OTHERWISE}",
            batch,
            entries,
        )
    announced = batch is not None and batch in tx.batches.sizes([ladder.holdout_id])
    return _Question(ladder, None, batch, entries, predictions, _stopping(entries), announced)


def _predictions(
    tx: Transaction, ladder: LadderRecord, entries: tuple[Entry, ...], holdout: HoldoutRecord
) -> tuple[NDArray[Any], ...] | None:
    """Return what was predicted in each submission; None where not all of it was kept."""
    kept = tx.batches.kept(ladder.id)
    if len(entries) == 1 and entries[0].batch is None:
        stored = tx.incumbent_predictions(ladder.id)
        kept = {} if stored is None else {entries[0].number: stored}
    if any(entry.number not in kept for entry in entries):
        return None
    for entry in entries:
        check_predictions(holdout, entry, kept[entry.number])
    return tuple(kept[entry.number] for entry in entries)


def _stopping(entries: tuple[Entry, ...]) -> Stopping | None:
    """Return the rule by which a training run stopped, where the batch is its rounds."""
    rules = {tuple(entry.context.get("stopping", ())) for entry in entries}
    if len(rules) == 1 and (rule := rules.pop()):
        return Stopping(*rule)
    return None


def _worked_out(guard: Guard, asked: _Question) -> dict[str, Any]:
    """Return what is to be noted: a corrected risk, or why there is none, and what it costs."""
    # The labels decide whether there is an estimate. A code fixed in advance gives a half to all
    # estimates and a quarter to each reason ("Corrected scores" in docs/background/certificates).
    # A mean of losses over rows without weights always has an estimate.
    may_fail = not guard.metric.is_mean or guard.part.weights is not None
    risk, refused, price = None, _too_rare(guard), math.log(4.0)
    if refused is None:
        found = _corrected(guard, asked)
        if found is None:
            refused = f"{guard.metric.name} has no value on too many of the draws of these rows"
        else:
            risk, values = on_grid(found.corrected, guard.metric, guard.holdout.n_ladder)
            price = math.log(values) + may_fail * math.log(2.0)
    return {
        "submission": asked.ladder.incumbent,
        "submissions": len(asked.entries),
        "batch": asked.batch,
        "risk": risk,
        "log_values": price,
        "refused": refused,
    }


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


def _corrected(guard: Guard, asked: _Question) -> Correction | None:
    metric, part = guard.metric, guard.part
    rules = rules_of(asked.ladder.settings)
    winner = [one.number for one in asked.entries].index(asked.ladder.incumbent or 0)
    with without_autologging(), _Shown("Estimating") as progress:
        # A key of its own: the streams of the holdout's secret are the ladder's noise.
        return corrected(
            metric,
            rules,
            part.targets,
            [part.of(one) for one in asked.predictions],
            winner=winner,
            weights=part.weights,
            groups=None if part.groups is None else part.groups.codes,
            stopping=asked.stopping,
            best_first=asked.announced,
            secret=hmac.digest(guard.holdout.secret, b"estimate", "sha256"),
            progress=progress,
        )


class _Shown:
    """How much of some work is done: a bar after two seconds, where somebody looks on."""

    def __init__(self, what: str) -> None:
        self._what, self._begun = what, time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, share: float) -> None:
        """Show that this share is done."""
        if self._bar is None:
            if time.monotonic() - self._begun < _PATIENCE:
                return
            # Imported here: the package itself is imported without it.
            from rich.console import Console
            from rich.progress import Progress

            console = Console(stderr=True)
            if not console.is_terminal:
                return
            self._bar = Progress(console=console, transient=True)
            self._bar.add_task(self._what, total=1.0)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=share)


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


def _record(
    tx: Transaction, ladder: LadderRecord, asked: _Question, noted: dict[str, Any], version: int
) -> bool:
    """Record an estimate unless something changed meanwhile; False where labels did."""
    if tx.chains.end(ladder.holdout_id).labels_version != version:
        return False
    # Where nothing was submitted meanwhile, the incumbent is the same unless it was withdrawn.
    before = asked.ladder.incumbent, asked.ladder.submissions
    same = (ladder.incumbent, ladder.submissions) == before
    if same and estimate_on_record(tx, ladder, len(asked.entries)) is None:
        tx.batches.note_estimate(ladder, noted)
    return True
