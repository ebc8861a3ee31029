"""Looks at the reserve: measured on rows that steered nothing, recorded, then shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import (
    ReserveGrid,
    bayesian_bootstrap,
    drawn_interval,
    reserve_assumptions,
    reserve_interval,
    reserve_log_count,
)
from ladderholdout.certificates.reserve import DRAWN_LEVEL
from ladderholdout.errors import HoldoutConflict, InvalidArgument, LadderHoldoutError
from ladderholdout.holdout.certificate import ScoreCertificate
from ladderholdout.holdout.guard import Guard, bare
from ladderholdout.holdout.handle import Handle, note_glance
from ladderholdout.holdout.marks import same_ladder
from ladderholdout.holdout.parts import Part
from ladderholdout.holdout.telling import RESTORED
from ladderholdout.ledger import Access, LadderRecord, ReserveEvidence, ReserveLook, Transaction
from ladderholdout.mechanisms.arithmetic import inside
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Metric
from ladderholdout.metrics.losses import zero_one


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a look would be at: an incumbent, after the looks there were."""

    ladder: LadderRecord
    about: tuple[str | None, ...]
    looks: tuple[ReserveLook, ...]

    @property
    def answer(self) -> ReserveLook | None:
        """The look at these predictions under this metric, if there was one."""
        return next((look for look in self.looks if look.about == self.about), None)


class ReserveHandle(Handle):
    """A handle that can look at the reserve."""

    def certify(self, confidence: float = 0.95) -> ScoreCertificate:
        """Spend one look at the reserve on the incumbent: an interval from untouched rows.

        The reserve is shared by all ladders and accounts of the holdout, and so is the count of
        looks at it: each pays for what the earlier ones showed. Asking again about the same
        incumbent, with any confidence, is answered from the ledger and costs nothing.

        Parameters
        ----------
        confidence : float, default=0.95
            In (0, 1): the chance that all looks at this reserve hold at once.

        Returns
        -------
        ScoreCertificate
            Its score is that on the reserve, rounded. Exact for means of bounded losses; for
            other metrics a Bayesian bootstrap, marked as approximate. The look is durable in
            the ledger before you see it.

        Raises
        ------
        InvalidArgument
            The confidence is refused.
        HoldoutConflict
            The holdout was registered without a reserve, or was retired.
        LedgerError, VaultError
            The record or the rows cannot be read; nothing was shown.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> X, y = np.arange(1000).reshape(-1, 1), np.arange(1000) % 2
        >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory", reserve=0.3)
        >>> holdout.submit(y).score
        1.0
        >>> found = holdout.certify()
        >>> found.look, found.score, round(found.low, 3)
        (1, 1.0, 0.985)
        """
        note_glance()
        try:
            return _certify(self._guard(), confidence)
        except LadderHoldoutError as error:
            raise bare(error) from None


def _certify(guard: Guard, confidence: float) -> ScoreCertificate:
    confidence = inside("confidence", confidence)
    if guard.reserve is None:
        raise HoldoutConflict(
            f"{guard.holdout.name!r} was registered without a reserve. Register fresh rows with "
            "one, LadderHoldout(X, y, reserve=0.3, ...); of these rows certificate() tells what "
            "may be believed."
        )
    asked = _answered(guard, guard.reserve)
    if asked is None:
        return ScoreCertificate(None, None, None, confidence, None, missing="nothing stands yet")
    if asked.answer is None:
        number = asked.ladder.incumbent
        return ScoreCertificate(None, None, None, confidence, number, missing=RESTORED)
    return _certificate(guard, guard.reserve, asked, confidence)


def _answered(guard: Guard, reserve: Part) -> _Asked | None:
    """Return the question with its answer in the ledger; None before the first release."""
    while True:
        asked, predictions, restored = guard.ledger.transact(
            partial(_asking, guard=guard), Access.READ
        )
        if asked is None or asked.answer is not None or restored:
            return asked
        assert predictions is not None
        # A bootstrap takes its time, and nobody else should have to wait for it.
        evidence = _measured(guard, reserve, predictions, len(asked.looks) + 1)
        guard.write(partial(_record, asked=asked, evidence=evidence))


def _asking(tx: Transaction, guard: Guard) -> tuple[_Asked | None, NDArray[Any] | None, bool]:
    ladder = same_ladder(tx.ladder(guard.ladder_id), guard.since)
    asked = _ask(tx, ladder)
    predictions = None if asked is None else tx.incumbent_predictions(ladder.id)
    return asked, predictions, bool(tx.restorings(ladder.holdout_id))


def _record(
    tx: Transaction, ladder: LadderRecord, asked: _Asked, evidence: ReserveEvidence
) -> None:
    """Record a look, unless another process has looked meanwhile, or the incumbent changed."""
    if tx.restorings(ladder.holdout_id):
        return
    still = _ask(tx, ladder)
    if still is not None and (still.about, still.looks) == (asked.about, asked.looks):
        tx.add_reserve_look(still.ladder, len(still.looks) + 1, evidence)


def _ask(tx: Transaction, ladder: LadderRecord) -> _Asked | None:
    if ladder.incumbent is None:
        return None
    return _Asked(ladder, tx.about_incumbent(ladder), tx.reserve_looks(ladder.holdout_id))


def _measured(
    guard: Guard, reserve: Part, predictions: NDArray[Any], number: int
) -> ReserveEvidence:
    from ladderholdout.integrations.mlflow.quiet import without_autologging

    metric, n = guard.metric, len(reserve.targets)
    grid = ReserveGrid(n, metric.loss_range, drawn=not _is_exact(metric))
    try:
        with without_autologging():
            evaluation = reserve.evaluate(metric, predictions)
            if not grid.drawn:
                return ReserveEvidence(grid, evaluation.risk)
            rng = fresh_rng(guard.holdout.secret, 0, number)
            low, high = bayesian_bootstrap(evaluation.risk_under, n, DRAWN_LEVEL, rng)
    except InvalidArgument:
        # As where a class is missing among these rows: a fact about labels, and so one of the
        # things that a look can show, counted like the others.
        return ReserveEvidence(grid, None)
    return ReserveEvidence(grid, evaluation.risk, low, high)


def _is_exact(metric: Metric) -> bool:
    return metric.is_mean and metric.loss_range is not None


def _certificate(guard: Guard, reserve: Part, asked: _Asked, confidence: float) -> ScoreCertificate:
    look, metric = asked.answer, guard.metric
    assert look is not None
    if look.risk is None:
        missing = f"{metric.name} has no value for these predictions on the reserve's rows"
        return ScoreCertificate(
            None, None, None, confidence, asked.ladder.incumbent, missing=missing, look=look.number
        )
    told = sum(one.log_values for one in asked.looks if one.number < look.number)
    log_count = reserve_log_count(look.number, 1) + told
    bound, low, high = _interval(metric, reserve, look, log_count, confidence)
    return ScoreCertificate(
        score=metric.to_score(look.risk),
        low=metric.to_score(high),
        high=metric.to_score(low),
        confidence=confidence,
        submission=asked.ladder.incumbent,
        bound=bound,
        log_count=log_count,
        assumptions=reserve_assumptions(
            exact=_is_exact(metric),
            binary=metric.loss is zero_one,
            weighted=reserve.weights is not None,
        ),
        look=look.number,
    )


def _interval(
    metric: Metric, reserve: Part, look: ReserveLook, log_count: float, confidence: float
) -> tuple[str, float, float]:
    """Return the bound and the ends of the interval, in the risk's own units."""
    least, most = metric.loss_range or (-np.inf, np.inf)
    assert look.risk is not None
    if look.low is not None and look.high is not None:
        bound, low, high = drawn_interval(look.low, look.risk, look.high, log_count, confidence)
        return bound, max(low, least), min(high, most)
    unit, weights = most - least, reserve.weights
    bound, low, high = reserve_interval(
        (look.risk - least) / unit,
        len(reserve.targets),
        log_count,
        confidence=confidence,
        binary=metric.loss is zero_one and weights is None,
        weights=weights,
    )
    return bound, least + unit * low, least + unit * high
