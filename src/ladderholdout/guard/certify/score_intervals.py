"""Certificates from the incumbent's predictions: worked out, put on record, then shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import certify_score
from ladderholdout.errors import InvalidArgument, RangeWarning, VaultError, warn
from ladderholdout.guard.certify.bill import itemised
from ladderholdout.guard.certify.certification import (
    Level,
    Selection,
    level_of,
    no_certificate,
    selection_of,
)
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.opening import check_predictions, stated_range
from ladderholdout.guard.query import Guard, LedgerLadder
from ladderholdout.guard.shown import ScoreCertificate
from ladderholdout.ledger import LadderRecord, Transaction


def certificate(ladder: LedgerLadder, confidence: float | None) -> ScoreCertificate:
    """Certify the incumbent of a ladder; see `LadderHoldout.certificate`.

    An interval that depends on more than the released score is on record before it is shown.
    """
    level = None if confidence is None else level_of(ladder, confidence)
    with without_frames:
        guard = ladder.guard()
        while True:
            asked = ladder.read(partial(_asking, guard=guard, level=level))
            if isinstance(asked, ScoreCertificate):
                if asked.clipped is not None and asked.clipped[0]:
                    _warn_of_clipped(asked, guard)
                return asked
            # It takes its time, and nobody else should have to wait for it.
            version, noted = guard.labelled.version, _worked_out(guard, asked)
            if not ladder.write(partial(_record, asked=asked, noted=noted, version=version)):
                guard.reload()


def _warn_of_clipped(certificate: ScoreCertificate, guard: Guard) -> None:
    """Warn where errors of the incumbent are beyond the range: that much the certificate shows."""
    warn(
        f"The released score is of the incumbent's errors as they are, and the certificate is of "
        f"{certificate.clipping} ({stated_range(guard.metric)}): the interval need not hold the "
        "released score. Name both, or start another ladder with a wider range: "
        'LadderHoldout(X, y, ..., ladder="wider").',
        RangeWarning,
    )


def known_certificate(ladder: LedgerLadder) -> tuple[ScoreCertificate, bool]:
    """Return the certificate as far as it is on record, and whether `certificate` adds one.

    Nothing is worked out and nothing is written.
    """
    try:
        guard = ladder.guard()
    except (VaultError, InvalidArgument):
        return no_certificate(level_of(ladder, None).confidence), False
    asked = ladder.read(partial(_asking, guard=guard, level=None))
    if isinstance(asked, ScoreCertificate):
        return asked, False
    return asked.selection.certificate(None), True


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """Whose interval is asked for."""

    selection: Selection
    predictions: NDArray[Any]


def _asking(
    tx: Transaction, ladder: LadderRecord, *, guard: Guard, level: Level | None
) -> ScoreCertificate | _Question:
    """Return the certificate, or what it has to be worked out from."""
    selection = selection_of(tx, ladder, guard.metric, guard.part.weights, level)
    if isinstance(selection, ScoreCertificate):
        return selection
    recorded = selection.recorded(tx)
    if recorded is not None or not selection.by_rows:
        return itemised(selection.certificate(recorded), selection)
    predictions = tx.incumbent_predictions(ladder.id)
    assert predictions is not None and ladder.incumbent is not None
    (entry,) = tx.entries(ladder.id, after=ladder.incumbent - 1, limit=1)
    check_predictions(tx.holdout(ladder.holdout_id), entry, predictions)
    return _Question(selection, predictions)


def _worked_out(guard: Guard, asked: _Question) -> dict[str, Any]:
    """Return what is to be noted of the interval."""
    selection = asked.selection
    with without_autologging():
        rows = guard.scored(guard.part, asked.predictions)
        interval = certify_score(
            selection.metric,
            rows,
            selection.transcript,
            released=selection.score,
            confidence=selection.level.confidence,
            price=selection.level.price,
        )
    return {
        "submission": selection.ladder.incumbent,
        "confidence": interval.confidence,
        "low": _finite(interval.low),
        "high": _finite(interval.high),
        "bound": interval.bound,
        "log_count": interval.log_count,
        "log_values": interval.log_values,
        "clipped": interval.clipped,
        "place": selection.transcript.place,
    }


def _finite(end: float) -> float | None:
    """Return an end as JSON can hold it."""
    return float(np.float64(end)) if math.isfinite(end) else None


def _record(
    tx: Transaction,
    ladder: LadderRecord,
    *,
    asked: _Question,
    noted: dict[str, Any],
    version: int,
) -> bool:
    """Record an interval unless something changed meanwhile; False where labels did."""
    if tx.chains.end(ladder.holdout_id).labels_version != version:
        return False
    same = ladder.incumbent == asked.selection.ladder.incumbent
    if same and asked.selection.recorded(tx) is None:
        tx.batches.note_interval(ladder, noted)
    return True
