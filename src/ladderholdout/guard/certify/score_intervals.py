"""Certificates from the incumbent's predictions: worked out, put on record, then shown."""

from __future__ import annotations

from functools import partial
from typing import Any

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
from ladderholdout.guard.certify.on_record import Question, on_record, to_show
from ladderholdout.guard.opening import check_predictions, stated_range
from ladderholdout.guard.query import Guard, LedgerLadder
from ladderholdout.guard.shown import ScoreCertificate
from ladderholdout.ledger.events import Shown
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.transaction import Transaction


def certificate(ladder: LedgerLadder, confidence: float | None) -> ScoreCertificate:
    """Certify the incumbent of a ladder; see `LadderHoldout.certificate`.

    An interval that depends on more than the released score is on record before it is shown.
    """
    level = None if confidence is None else level_of(ladder, confidence)
    certified = on_record(ladder, partial(_asking, level=level))
    if certified.clipped is not None and certified.clipped[0]:
        _warn_of_clipped(certified, ladder.guard())
    return certified


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
    read = ladder.read(lambda tx, record: _selected(tx, record, guard, None))
    if isinstance(read, ScoreCertificate):
        return read, False
    return read.certificate(None), True


def _selected(
    tx: Transaction, ladder: LadderRecord, guard: Guard, level: Level | None
) -> ScoreCertificate | Selection:
    """Return the certificate as far as it is on record, or what it has to be worked out from."""
    selection = selection_of(tx, ladder, guard.metric, guard.part.weights, level)
    if isinstance(selection, ScoreCertificate):
        return selection
    recorded = selection.recorded(tx)
    if recorded is not None or not selection.by_rows:
        return itemised(selection.certificate(recorded), selection)
    return selection


def _asking(
    tx: Transaction, ladder: LadderRecord, guard: Guard, *, level: Level | None
) -> ScoreCertificate | Question:
    selection = _selected(tx, ladder, guard, level)
    if isinstance(selection, ScoreCertificate):
        return selection
    predictions = tx.incumbent_predictions(ladder.id)
    assert predictions is not None and ladder.incumbent is not None
    entry = tx.submission(ladder.id, ladder.incumbent)
    check_predictions(tx.holdout(ladder.holdout_id), entry, predictions)
    about = (ladder.incumbent,)
    return Question(about, partial(_worked_out, guard, selection, predictions))


def _worked_out(guard: Guard, selection: Selection, predictions: NDArray[Any]) -> Shown:
    """Return the interval of an incumbent."""
    interval = certify_score(
        selection.metric,
        guard.scored(guard.part, predictions),
        selection.transcript,
        released=selection.score,
        confidence=selection.level.confidence,
        price=selection.level.price,
    )
    more = {
        "clipped": None if interval.clipped is None else list(interval.clipped),
        "place": selection.transcript.place,
    }
    ladder = selection.ladder
    return to_show("interval", ladder.id, interval, submission=ladder.incumbent, more=more)
