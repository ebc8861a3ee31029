"""The certificate of a ladder: what its ledger tells is brought to the bounds, and back."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import Grid, Look, certify, grid_of, transcript_before
from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.holdout.certificate import ScoreCertificate
from ladderholdout.holdout.choices import stored_metric
from ladderholdout.holdout.guard import same_ladder
from ladderholdout.holdout.handle import Handle
from ladderholdout.holdout.telling import NOT_ASKED, score_of
from ladderholdout.ledger import LadderRecord, LadderSettings, Ledger, LookRecord, Transaction
from ladderholdout.ledger.replay import rules_of
from ladderholdout.mechanisms import (
    BayesBootLadder,
    FullDisclosure,
    Ladder,
    Mechanism,
    OneBitLadder,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
)
from ladderholdout.mechanisms.arithmetic import inside
from ladderholdout.mechanisms.rules import LARGEST_EXPONENT, LEAST_EXPONENT
from ladderholdout.metrics import Metric
from ladderholdout.metrics.losses import zero_one

# Rules whose releases can be counted. The others draw numbers anew for what they tell, or
# tell numbers of which there is no end.
_COUNTED = (
    BayesBootLadder,
    FullDisclosure,
    Ladder,
    OneBitLadder,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
)

NO_CERTIFICATE = ScoreCertificate(
    None,
    None,
    None,
    0.95,
    None,
    missing="the holdout's rows, or a metric of your own, are not at hand",
)
"""Of a handle that cannot compute one."""


class CertifiedHandle(Handle):
    """A handle that says what may be believed."""

    def certificate(self, confidence: float = 0.95) -> ScoreCertificate:
        """Return an interval for the true score of the incumbent, however it was searched for.

        It is worked out from what was released, never from a raw score, so that to look at it
        costs nothing; with the given confidence all certificates of a holdout hold at once.
        A ladder that tells no values has one when its standing score was asked for (`reveal`).

        Parameters
        ----------
        confidence : float, default=0.95
            In (0, 1).

        Returns
        -------
        ScoreCertificate
            Where none can be given it says why.

        Raises
        ------
        InvalidArgument
            The confidence is refused.
        LedgerError, VaultError
            The record or the rows (whose weights count) cannot be read.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> X, y = np.arange(1000).reshape(-1, 1), np.arange(1000) % 2
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        >>> holdout.submit(np.where(np.arange(1000) < 900, y, 1 - y)).score
        0.9
        >>> found = holdout.certificate()
        >>> round(found.low, 3), round(found.high, 3)
        (0.872, 0.923)
        """
        weights = self._guard().part.weights
        with self._reading() as (tx, ladder):
            return certificate_of(tx, ladder, self._metric, weights, confidence)

    def reveal(self) -> float | None:
        """Show the standing score of a ladder that does not tell it, and put that on record.

        That somebody asked is durable in the ledger before the score is seen: certificates of
        later incumbents pay for what it told, that of this one does not. Asked again, the
        same score costs nothing more; nor does it where the ladder tells its values anyway.

        Returns
        -------
        float or None
            In the metric's own sign and units; None where nothing stands yet.

        Raises
        ------
        LedgerError
            The ledger cannot be written; nothing was shown.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> from ladderholdout.mechanisms import OneBitLadder
        >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
        ...                         mechanism=OneBitLadder(alpha=0.05), ledger="memory")
        >>> holdout.submit([0, 1, 1, 1])
        Release(score=None, improved=True, submission=1, repeat=False, releases_left=None)
        >>> holdout.reveal()
        0.75
        """
        with Ledger(self._url).write() as tx:
            ladder = same_ladder(tx.ladder(self._ladder_id, lock=True), self._since)
            tx.ask(ladder)
        return self._metric.to_score(ladder.state["standing"]) if ladder.version else None

    def _certificate_or_why(self) -> ScoreCertificate:
        """Return the certificate for the status, which is shown whatever the vault holds."""
        try:
            return self.certificate()
        except (VaultError, InvalidArgument):
            return NO_CERTIFICATE


def certificate_of(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    weights: NDArray[np.float64] | None,
    confidence: float,
) -> ScoreCertificate:
    """Certify the standing release of a ladder.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord
    metric : Metric
    weights : ndarray, shape (n,), or None
        Of the holdout's rows.
    confidence : float
        In (0, 1).

    Returns
    -------
    ScoreCertificate
        Where none can be given it says why.

    Raises
    ------
    InvalidArgument
        If the confidence is refused.
    """
    confidence = inside("confidence", confidence)
    looks = tx.looks(ladder.holdout_id)
    own = (ladder.id, ladder.incumbent)
    place = next((i for i, look in enumerate(looks) if (look.ladder_id, look.number) == own), None)
    if place is None:
        return ScoreCertificate(None, None, None, confidence, None, missing="nothing stands yet")
    score = score_of(tx.standing(ladder), metric)
    asked = {look for look, at in tx.asked(ladder.holdout_id).items() if at < looks[place].position}
    tellers = _tellers(tx, ladder, looks[: place + 1], asked, weighted=weights is not None)
    missing = _missing(tx, ladder, metric, looks[place], tellers)
    if score is None and missing is None:
        missing = f"the standing score was {NOT_ASKED}"
    if missing is not None:
        return ScoreCertificate(score, None, None, confidence, ladder.incumbent, missing=missing)
    return _certified(ladder, metric, weights, confidence, looks[: place + 1], tellers)


@dataclass(frozen=True, slots=True)
class _Teller:
    """A ladder as what it tells is counted.

    `least` is the smallest risk of its metric, `asked` has the looks whose value was asked
    for, of a ladder that does not tell it, by the time that counts.
    """

    settings: LadderSettings
    rule: Mechanism
    n: int
    least: float
    grid: Grid | None
    asked: Set[tuple[int, int]]

    def look(self, record: LookRecord) -> Look:
        assert self.grid is not None
        value = None
        told = self.rule.tells_values or (record.ladder_id, record.number) in self.asked
        if told and (record.improved or self.grid.discloses):
            value = self._number(record.risk) if self.grid.falling else 0
        return Look(record.ladder_id, record.improved, value, record.batch)

    def _number(self, risk: float) -> int:
        """Return the number of a released risk on the ladder's grid."""
        unit = self.settings.unit or 1.0
        return round((risk - self.least) / unit / self.rule.resolution(self.n))


def _tellers(
    tx: Transaction,
    ladder: LadderRecord,
    looks: Sequence[LookRecord],
    asked: Set[tuple[int, int]],
    *,
    weighted: bool,
) -> dict[int, _Teller]:
    """Return the ladders of these looks."""
    n, used = tx.holdout(ladder.holdout_id).n_ladder, {look.ladder_id for look in looks}
    ladders = tx.ladders(ladder.holdout_id)
    return {one.id: _teller(one.settings, n, asked, weighted) for one in ladders if one.id in used}


def _teller(
    settings: LadderSettings, n: int, asked: Set[tuple[int, int]], weighted: bool
) -> _Teller:
    metric, rule = stored_metric(settings), rules_of(settings).mechanism
    least = metric.loss_range[0] if metric.loss_range else 0.0
    grid = None
    if isinstance(rule, _COUNTED) and settings.unit is None:
        grid = _adaptive(rule, n, settings.budget)
    elif isinstance(rule, _COUNTED):
        # Without weights a mean of losses of 0 and 1 is a count of errors.
        counts = metric.loss is zero_one and not weighted
        grid = grid_of(rule, n, binary=counts, budget=settings.budget)
    return _Teller(settings, rule, n, least, grid, asked)


def _adaptive(rule: Mechanism, n: int, budget: int | None) -> Grid | None:
    """Return the grid of a ladder whose unit is a power of ten that follows the risk."""
    step = rule.resolution(n)
    if step == 0.0:
        return None
    units = LARGEST_EXPONENT - LEAST_EXPONENT + 1
    # Risks of either sign, and up to ten units, since it is the smaller one that sets them.
    values = 2 * units * (math.floor(10.0 / step) + 1)
    return Grid(values, falling=False, discloses=rule.discloses, budget=budget)


def _missing(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    incumbent: LookRecord,
    tellers: Mapping[int, _Teller],
) -> str | None:
    """Say why a ladder has no certificate, if so."""
    if any(opened < incumbent.position for opened in tx.openings(ladder.holdout_id)):
        return "an audit had shown raw scores of this holdout before the incumbent was submitted"
    if not metric.is_mean:
        own = " (or was opened without its function: scoring=)"
        said = own if "custom" in ladder.settings.metric_settings else ""
        return f"{metric.name} is no mean of losses{said}"
    if ladder.settings.unit is None:
        return f"the losses of {metric.name} have no bound; state loss_range="
    for teller in tellers.values():
        if teller.grid is None:
            where = f"{teller.settings.account}/{teller.settings.name}"
            return f"what {teller.rule.name} tells (ladder {where}) can not be counted"
    return None


def _certified(
    ladder: LadderRecord,
    metric: Metric,
    weights: NDArray[np.float64] | None,
    confidence: float,
    looks: Sequence[LookRecord],
    tellers: Mapping[int, _Teller],
) -> ScoreCertificate:
    own, standing = tellers[ladder.id], ladder.state["standing"]
    unit = ladder.settings.unit or 1.0
    grids: dict[Hashable, Grid] = {}
    for ladder_id, teller in tellers.items():
        assert teller.grid is not None
        grids[ladder_id] = teller.grid
    told = [tellers[look.ladder_id].look(look) for look in looks]
    found = certify(
        (standing - own.least) / unit,
        own.n,
        transcript_before(told, len(told) - 1, grids),
        confidence=confidence,
        rounding=own.rule.resolution(own.n),
        noise=own.rule.noise if isinstance(own.rule, ShakyLadder) else 0.0,
        binary=metric.loss is zero_one and weights is None,
        weights=weights,
    )
    return ScoreCertificate(
        score=metric.to_score(standing),
        low=metric.to_score(own.least + unit * found.high),
        high=metric.to_score(own.least + unit * found.low),
        confidence=found.confidence,
        submission=ladder.incumbent,
        bound=found.bound,
        log_count=found.log_count,
        assumptions=found.assumptions,
    )
