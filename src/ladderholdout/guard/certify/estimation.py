"""The corrected score of a batch's winner: worked out, put on record, then shown."""

from __future__ import annotations

import hmac
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.estimates import Correction, Stopping, corrected
from ladderholdout.guard.certify.on_record import Question, on_record
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
from ladderholdout.ledger.events import Shown, Submitted
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.rules import rules_of
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import Scale, scale_of

if TYPE_CHECKING:
    from rich.progress import Progress

# Seconds before a bar is shown.
_PATIENCE = 2.0
# With fewer rows of the rarest class an estimate of a score that is no mean of losses errs by
# about as much as the winner's raw score or by more (benchmarks/estimates.py --rare).
LEAST_OF_A_CLASS = 10


def estimate(ladder: LedgerLadder) -> Estimate:
    """Correct the incumbent's score for the selection; see `LadderHoldout.estimate`."""
    return on_record(ladder, _asking)


def _asking(tx: Transaction, ladder: LadderRecord, guard: Guard) -> Estimate | Question:
    """Return the estimate if it is on record, or why there is none, else the batch."""
    reason, entries = why_not_estimated(tx, ladder)
    batch = entries[0].batch if entries else None
    if reason is not None:
        return Estimate(None, ESTIMATED_BY, 0, batch, len(entries), reason)
    if (known := estimate_on_record(tx, ladder, len(entries))) is not None:
        return estimate_of(known, guard.metric)
    predictions = _predictions(tx, ladder, entries)
    if predictions is None:
        reason = f"not all predictions of this batch were kept (they were too many): {OTHERWISE}"
        return Estimate(None, ESTIMATED_BY, 0, batch, len(entries), reason)
    announced = batch in tx.fold(ladder.holdout_id).sizes
    work = partial(_worked_out, guard, ladder, entries, predictions, announced=announced)
    return Question((ladder.incumbent, ladder.submissions), work)


def _predictions(
    tx: Transaction, ladder: LadderRecord, entries: tuple[Submitted, ...]
) -> list[NDArray[Any]] | None:
    """Return what was predicted in each submission; None if not all of it was kept."""
    holdout, kept = tx.holdout(ladder.holdout_id), []
    alone = len(entries) == 1 and entries[0].batch is None
    for entry in entries:
        stored = tx.predictions(ladder, entry.number) if alone or entry.candidate else None
        if stored is None:
            return None
        check_predictions(holdout, entry, stored)
        kept.append(stored)
    return kept


def _stopping(entries: tuple[Submitted, ...]) -> Stopping | None:
    """Return the rule by which a training run stopped, where the batch is its rounds."""
    rules = {tuple(entry.context.get("stopping", ())) for entry in entries}
    if len(rules) == 1 and (rule := rules.pop()):
        return Stopping(*rule)
    return None


def _worked_out(
    guard: Guard,
    ladder: LadderRecord,
    entries: tuple[Submitted, ...],
    predictions: list[NDArray[Any]],
    *,
    announced: bool,
) -> Shown:
    """Return the corrected score, or why the labels allow none."""
    may_fail = not guard.metric.is_mean or guard.part.weights is not None
    # Its certificate would show a score, the number of its grid, or that there is none.
    risk, refused, price = None, _too_rare(guard), math.log(4.0)
    if refused is None:
        found = _corrected(guard, ladder, entries, predictions, announced=announced)
        if found is None:
            refused = f"{guard.metric.name} has no value on too many of the draws of these rows"
        else:
            risk, values = on_grid(found.corrected, guard.metric, guard.holdout.n_ladder)
            price = math.log(values) + may_fail * math.log(2.0)
    more = {"risk": risk, "refused": refused}
    more |= {"submissions": len(entries), "batch": entries[0].batch}
    return Shown(
        what="estimate",
        ladder=ladder.id,
        submission=ladder.incumbent,
        log_values=price,
        more=more,
    )


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


def _corrected(
    guard: Guard,
    ladder: LadderRecord,
    entries: tuple[Submitted, ...],
    predictions: list[NDArray[Any]],
    *,
    announced: bool,
) -> Correction | None:
    metric, part = guard.metric, guard.part
    rules = rules_of(ladder.settings)
    winner = [entry.number for entry in entries].index(ladder.incumbent or 0)
    with _Bar("Estimating") as progress:
        return corrected(
            metric,
            rules,
            part.targets,
            [part.of(values) for values in predictions],
            winner=winner,
            weights=part.weights,
            groups=None if part.groups is None else part.groups.codes,
            stopping=_stopping(entries),
            best_first=announced,
            secret=hmac.digest(guard.holdout.secret, b"estimate", "sha256"),
            progress=progress,
        )


class _Bar:
    """How much of some work is done: a bar after two seconds, where somebody looks on."""

    def __init__(self, what: str) -> None:
        self._what, self._begun = what, time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> _Bar:
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
