"""One submission: predictions in, one transaction, one release out."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout import fingerprint as fp
from ladderholdout.errors import BudgetWarning, LadderHoldoutError, OpenedWarning
from ladderholdout.holdout.marks import mark_of, watched
from ladderholdout.holdout.parts import Part, parts_of
from ladderholdout.holdout.views import Release, releases_left
from ladderholdout.ledger import (
    Entry,
    HoldoutRecord,
    LadderRecord,
    Ledger,
    Transaction,
    digests_of,
)
from ladderholdout.ledger.replay import rules_of, state_from, state_to
from ladderholdout.mechanisms.base import State
from ladderholdout.mechanisms.rules import LadderRules, fresh_rng, unit_of
from ladderholdout.metrics import Evaluation, Metric
from ladderholdout.vault import Rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a submission came from; but for its account that changes nothing about the answer."""

    batch: str | None = None
    search: str | None = None
    key: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    # Whose it is on a ladder that serves many accounts, where that does matter.
    account: str | None = None


@dataclass(slots=True, repr=False)
class Guard:
    """A ladder as one process holds it: the rules, the labels, the incumbent.

    Predictions are kept in the order of the content of the rows, not in anybody's row
    order, so that shuffled rows continue the same ladder. The ladder measures its `part` of
    them; those for the reserve are kept for the incumbent, and looked at by `certify` alone.
    """

    ledger: Ledger
    holdout: HoldoutRecord
    ladder_id: int
    since: datetime
    metric: Metric
    rules: LadderRules
    rows: Rows
    order: NDArray[np.intp]
    part: Part
    reserve: Part | None
    hashes: NDArray[np.uint64]
    _incumbent: tuple[int, NDArray[Any], Evaluation] | None = None

    def submit(
        self, predictions: Any, origin: Origin, *, order: NDArray[np.intp] | None = None
    ) -> Release:
        """Judge one set of predictions; the release is in the ledger before it returns.

        Parameters
        ----------
        predictions : array-like, shape (n,) or (n, n_classes)
            One for each row, in the order that `order` sorts.
        origin : Origin
        order : ndarray or None
            The order of the caller's rows; None for the order of `rows`.
        """
        from ladderholdout.integrations import rounds
        from ladderholdout.integrations.mlflow.quiet import without_autologging

        if origin.batch is None:
            # From within a fit, perhaps: what is scored next may depend on the answer.
            rounds.loosen()
        aligned = self.metric.canonical(predictions, self.holdout.n, self.holdout.classes)
        aligned = aligned.take(self.order if order is None else order, axis=0)
        digests = digests_of(self.holdout.secret, aligned, self.holdout.reserve)
        # A rule may measure once more, with other weights, so it steps under this as well.
        with without_autologging():
            evaluation = self.part.evaluate(self.metric, aligned)
            if origin.account is not None:
                evaluation = evaluation.by(origin.account)

            def judge(tx: Transaction, ladder: LadderRecord) -> tuple[LadderRecord, Release, bool]:
                first = tx.first(ladder.id, digests[0], origin.key)
                given = (aligned, digests, evaluation, origin)
                if first is not None:
                    return ladder, self._repeat(tx, ladder, first, *given), False
                return ladder, *self._step(tx, ladder, *given)

            ladder, release, spent = self.write(judge)
        if release.repeat:
            return release
        if release.improved:
            # It is in the ledger by now: the next submission need not read it back.
            self._incumbent = ladder.version + 1, aligned, evaluation
        if spent:
            warnings.warn(
                f"The {self.rules.budget} releases of this ladder are used up: the standing "
                "score stays, whatever is submitted from now on.",
                BudgetWarning,
                stacklevel=4,
            )
        if release.opened:
            warnings.warn(
                "An audit has shown raw scores of this ladder: the submission is recorded, but "
                + ("certified by the reserve alone." if self.reserve else "can not be certified."),
                OpenedWarning,
                stacklevel=4,
            )
        return release

    def write(self, body: Callable[[Transaction, LadderRecord], T]) -> T:
        """Write to the ladder, and find out whether the ledger is an older copy."""
        mark = mark_of(self.ledger.url, self.holdout)
        return watched(self.ledger, mark, self.ladder_id, self.since, body)

    def step_at(self, score: float) -> float:
        """Return the score by which one grid step of risk lies below a standing one."""
        risk, n = self.metric.to_risk(score), self.holdout.n_ladder
        step = (self.rules.mechanism.resolution(n) or 1 / n) * (
            self.rules.unit or unit_of(math.inf, risk)
        )
        # Beside a score of -1e20 (a diverged model) a step is nothing, but it must be one.
        return max(score - self.metric.to_score(risk + step), sys.float_info.min)

    def _step(
        self,
        tx: Transaction,
        ladder: LadderRecord,
        predictions: NDArray[Any],
        digests: tuple[str, str | None],
        evaluation: Evaluation,
        origin: Origin,
    ) -> tuple[Release, bool]:
        standing, incumbent = self._standing(tx, ladder)
        rng = fresh_rng(self.holdout.secret, ladder.id, ladder.submissions + 1)
        state, outcome = self.rules.step(standing, evaluation, rng)
        number = tx.append(
            ladder,
            entry={
                "digest": digests[0],
                "reserve_digest": digests[1],
                "key": origin.key,
                "batch": origin.batch,
                "search": origin.search,
                "raw_risk": evaluation.risk,
                "released_risk": outcome.risk,
                "improved": outcome.improved,
                "disagreement": self._differs(predictions, incumbent),
                "context": origin.context,
            },
            evidence=asdict(outcome.evidence),
            state=state_to(state),
            incumbent=predictions if outcome.improved else None,
        )
        left = releases_left(ladder, state.releases)
        opened = ladder.opened is not None
        release = Release(
            self._told(outcome.risk), outcome.improved, number, False, left, opened,
            ladder.version + outcome.improved,
        )  # fmt: skip
        return release, left == 0 and state.releases > standing.releases

    def _repeat(
        self,
        tx: Transaction,
        ladder: LadderRecord,
        first: Entry,
        predictions: NDArray[Any],
        digests: tuple[str, str | None],
        evaluation: Evaluation,
        origin: Origin,
    ) -> Release:
        _, incumbent = self._standing(tx, ladder)
        assert first.risk is not None
        tx.append(
            ladder,
            entry={
                "digest": digests[0],
                "reserve_digest": digests[1],
                "batch": origin.batch,
                "search": origin.search,
                "repeat_of": first.number,
                "raw_risk": evaluation.risk,
                "released_risk": first.risk,
                "improved": first.improved,
                "disagreement": self._differs(predictions, incumbent),
                "context": origin.context,
            },
            evidence={},
        )
        left = releases_left(ladder, ladder.state["releases"])
        after = None if ladder.opened is None else tx.opened_after(ladder.id)
        opened = after is not None and first.number > after
        return Release(
            self._told(first.risk), first.improved, first.number, True, left, opened,
            tx.improvements(ladder.id, first.number),
        )  # fmt: skip

    def _told(self, risk: float) -> float | None:
        return self.metric.to_score(risk) if self.rules.mechanism.tells_values else None

    def _standing(self, tx: Transaction, ladder: LadderRecord) -> tuple[State, NDArray[Any] | None]:
        if ladder.version == 0:
            return state_from(ladder.state, self.holdout.n_ladder, None), None
        # The incumbent's predictions are read again only when another process replaced them.
        if self._incumbent is None or self._incumbent[0] != ladder.version:
            stored = tx.incumbent_predictions(ladder.id)
            assert stored is not None
            evaluation = self.part.evaluate(self.metric, stored)
            self._incumbent = ladder.version, stored, evaluation
        _, predictions, evaluation = self._incumbent
        return state_from(ladder.state, self.holdout.n_ladder, evaluation), predictions

    def _differs(self, predictions: NDArray[Any], incumbent: NDArray[Any] | None) -> float | None:
        """Return the disagreement on what the ladder measures."""
        theirs = None if incumbent is None else self.part.of(incumbent)
        return disagreement(self.part.of(predictions), theirs)


def make_guard(
    ledger: Ledger,
    holdout: HoldoutRecord,
    ladder: LadderRecord,
    metric: Metric,
    rows: Rows,
    hashes: NDArray[np.uint64],
) -> Guard:
    """Bring a ladder, its metric and its rows together."""
    from ladderholdout.integrations.mlflow.quiet import without_autologging

    order = content_order(fp.content_hashes(hashes, rows.y, rows.sample_weight))
    weights = None if rows.sample_weight is None else rows.sample_weight[order]
    with without_autologging():
        targets = metric.targets(rows.y, holdout.classes)[order]
    part, reserve = parts_of(targets, weights, holdout.reserve)
    return Guard(
        ledger,
        holdout,
        ladder.id,
        ladder.created,
        metric,
        rules_of(ladder.settings),
        rows,
        order,
        part,
        reserve,
        np.sort(hashes),
    )


def content_order(contents: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the order that sorts rows by content, whatever order they came in."""
    return np.argsort(contents, kind="stable")


def bare(error: LadderHoldoutError) -> LadderHoldoutError:
    """Return an error without what lies below it.

    Verbose tracebacks, and services that collect errors, show the variables of every frame,
    and those of the guard and the metric hold labels and raw risks.
    """
    error.__context__ = None
    return error.with_traceback(None)


def disagreement(predictions: NDArray[Any], incumbent: NDArray[Any] | None) -> float | None:
    """Return how far predictions lie from the incumbent's; labels play no part.

    Returns
    -------
    float or None
        For class codes the share of examples that differ, for real values the mean
        absolute difference; None without a comparable incumbent.
    """
    if incumbent is None or incumbent.shape != predictions.shape:
        return None
    if predictions.dtype.kind == "f":
        return _mean_in_any_order(np.abs(predictions - incumbent))
    return float((predictions != incumbent).mean())


def _mean_in_any_order(values: NDArray[np.float64]) -> float:
    """Return the mean of numbers that are not negative, whatever order they come in.

    Summed in the order of the content, which the labels decide, the last digit would tell
    about them. As whole numbers of so many bits that no sum is rounded, it does not.
    """
    largest = float(values.max())
    if largest == 0:
        return 0.0
    bits = 62 - values.size.bit_length() - math.frexp(largest)[1]
    total = int(np.ldexp(values, bits).astype(np.int64).sum())
    return math.ldexp(total / values.size, -bits)
