"""Scores corrected for selection: what the winner of a batch is worth on other rows.

The winner of a long batch scores too high by chance, with or without a ladder. The submissions did
not depend on each other's answers, so the selection can be repeated on rows that are drawn
anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.mechanisms import Evidence, LadderRules, Mechanism, fresh_rng
from ladderholdout.metrics import Evaluation, Metric

N_BOOTSTRAP = 300
"""Draws of the rows."""

# A rule that resamples takes so many draws of its own within each draw of the rows.
_INNER_DRAWS = 100
# Below this share of draws on which every score exists, there is no estimate.
_LEAST_SHARE = 0.5

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stopping:
    """When a training run whose rounds are the batch stops.

    Attributes
    ----------
    patience, min_rounds : int
        As in `LadderStopping`.
    """

    patience: int
    min_rounds: int


@dataclass(frozen=True, slots=True)
class Correction:
    """The risk of a batch's winner, as it was and corrected.

    Attributes
    ----------
    risk, corrected : float
        On the holdout's rows, and what is left of it; smaller is better.
    left_out : float
        The first of the two estimates whose mean `corrected` is.
    draws : int
        On how many of the drawn sets of rows every submission had a score.
    """

    risk: float
    corrected: float
    left_out: float
    draws: int


class _Replay:
    """The rule of a ladder on drawn rows: a batch in, its incumbent out."""

    def __init__(self, rules: LadderRules, n: int, stopping: Stopping | None, secret: bytes):
        mechanism = rules.mechanism
        for name in ("n_bootstrap", "n_posterior"):
            if getattr(mechanism, name, 0) > _INNER_DRAWS:
                mechanism = replace(mechanism, **{name: _INNER_DRAWS})
        self.resamples = any(hasattr(mechanism, one) for one in ("n_bootstrap", "n_posterior"))
        # Whether the rule goes by the risk of a submission alone.
        self.needs_risk_alone = type(mechanism).measure is Mechanism.measure
        self._skips = not (mechanism.noisy or mechanism.redraws or mechanism.discloses)
        self._rules = replace(rules, mechanism=mechanism)
        self._start, self._stopping, self._secret = rules.start(n), stopping, secret

    def winner(self, submissions: Sequence[Evaluation] | FloatArray, draw: int) -> int:
        """Return the place of the incumbent after these submissions, or risks of submissions."""
        state, best, at = self._start, 0, 0
        rng = fresh_rng(self._secret, draw, 1)
        while at < len(submissions):
            if self._skips and isinstance(submissions, np.ndarray):
                # Without noise, what is not below the released risk changes nothing.
                below = np.flatnonzero(submissions[at:] < state.standing)
                at = at + int(below[0]) if len(below) else len(submissions)
            if at == len(submissions) or self._has_stopped(at, best):
                break
            one = submissions[at]
            if isinstance(one, Evaluation):
                state, outcome = self._rules.step(state, one, rng)
            else:
                state, outcome = self._rules.replay(state, Evidence(float(one)), rng)
            best = at if outcome.improved else best
            at += 1
        return best

    def _has_stopped(self, rounds: int, best: int) -> bool:
        """Return whether a training run ended before so many rounds, the best one being this."""
        return self._stopping is not None and rounds >= max(
            self._stopping.min_rounds, best + 1 + self._stopping.patience
        )


def corrected(
    metric: Metric,
    rules: LadderRules,
    targets: NDArray[Any],
    predictions: Sequence[NDArray[Any]],
    *,
    winner: int,
    weights: ArrayLike | None = None,
    stopping: Stopping | None = None,
    secret: bytes = b"",
    n_bootstrap: int = N_BOOTSTRAP,
) -> Correction | None:
    """Correct the risk of a batch's winner for the selection.

    The mean of two estimates, of which one errs low and the other high where candidates differ:

    - Tsamardinos, Greasidou & Borboudakis 2018, Algorithm 5 (bootstrap bias correction): draw
      rows with replacement, replay the ladder's rule on them, and take the risk of its incumbent
      on the rows that were not drawn. It picks on .63 of the rows and so a worse winner.
    - The same draws as noise around risks that are shrunken towards each other by as much as
      their spread exceeds what chance alone makes (James & Stein 1961): replay the rule on them,
      and take off the winner's risk the mean noise of the replayed winners.

    Parameters
    ----------
    metric : Metric
    rules : LadderRules
        Of the ladder.
    targets : ndarray, shape (n,)
        In canonical form.
    predictions : sequence of ndarray
        Of each submission of the batch, in its order, in canonical form.
    winner : int
        The place of the incumbent among them, from 0.
    weights : array-like of shape (n,), optional
        Of the rows.
    stopping : Stopping, optional
        For a batch of rounds of a training run.
    secret : bytes, default=b""
        From which the draws come.
    n_bootstrap : int, default=300

    Returns
    -------
    Correction or None
        None where the metric has no value on too many of the draws.

    Examples
    --------
    Twenty coins, each flipped a hundred times:

    >>> from ladderholdout.mechanisms import FullDisclosure, SimplifiedLadder
    >>> from ladderholdout.metrics import get_metric
    >>> rng = np.random.default_rng(0)
    >>> y, coins = np.zeros(100, int), rng.integers(0, 2, (20, 100))
    >>> rules = LadderRules(SimplifiedLadder(step=0.01))
    >>> best = int(coins.mean(axis=1).argmin())
    >>> found = corrected(get_metric("accuracy"), rules, y, [*coins], winner=best)
    >>> round(1 - found.risk, 2), round(1 - found.corrected, 2)
    (0.59, 0.5)
    """
    n = len(targets)
    held = None if weights is None else np.asarray(weights, dtype=np.float64)
    full = [metric.evaluate(targets, one, held) for one in predictions]
    batch = _Batch(metric, targets, predictions, held, full)
    replay = _Replay(rules, n, stopping, secret)
    risks = np.array([one.risk for one in full])
    rng = fresh_rng(secret, 0, 0)
    if replay.resamples:
        n_bootstrap = max(1, n_bootstrap // 3)
    drawn: list[Sequence[Evaluation] | FloatArray] = []
    apart: list[float] = []
    for draw in range(1, n_bootstrap + 1):
        rows = rng.integers(0, n, n)
        try:
            found = batch.risks(rows) if replay.needs_risk_alone else batch.on_all(rows)
            out = np.setdiff1d(np.arange(n), rows)
            apart.append(batch.on(out, replay.winner(found, draw)).risk)
        except Exception:  # one class alone was drawn, or no variance: there is no such score
            continue
        drawn.append(found)
    if len(drawn) < _LEAST_SHARE * n_bootstrap:
        return None
    noise = _noise_of_winners(replay, risks, drawn)
    risk = float(risks[winner])
    left_out = float(np.mean(apart))
    return Correction(risk, (left_out + risk - noise) / 2, left_out, len(drawn))


class _Batch:
    """The submissions of a batch, to be measured on some of the rows."""

    def __init__(
        self,
        metric: Metric,
        targets: NDArray[Any],
        predictions: Sequence[NDArray[Any]],
        weights: FloatArray | None,
        full: Sequence[Evaluation],
    ) -> None:
        self._metric, self._targets, self._weights = metric, targets, weights
        self._predictions = predictions
        losses = [one.losses for one in full]
        plain = weights is None and all(one is not None for one in losses)
        self._losses = np.asarray(losses) if plain else None

    def on(self, rows: NDArray[np.intp], at: int) -> Evaluation:
        """Measure a submission, by its place."""
        if self._losses is not None:
            return Evaluation.from_losses(self._losses[at, rows])
        weights = None if self._weights is None else self._weights[rows]
        return self._metric.evaluate(self._targets[rows], self._predictions[at][rows], weights)

    def on_all(self, rows: NDArray[np.intp]) -> list[Evaluation]:
        """Measure all of them."""
        return [self.on(rows, at) for at in range(len(self._predictions))]

    def risks(self, rows: NDArray[np.intp]) -> FloatArray:
        """Return the risks of all of them."""
        if self._losses is None:
            return np.array([one.risk for one in self.on_all(rows)])
        counts = np.bincount(rows, minlength=len(self._targets))
        return np.asarray(self._losses @ counts / len(rows))


def _noise_of_winners(
    replay: _Replay, risks: FloatArray, drawn: Sequence[Sequence[Evaluation] | FloatArray]
) -> float:
    """Return the mean noise of the draws in the risk of those that win on them.

    Negative: the winner's score was partly chance.
    """
    on_draws = [
        found if isinstance(found, np.ndarray) else [one.risk for one in found] for found in drawn
    ]
    noises = np.asarray(on_draws) - risks
    shift = _shrunken(risks, noises) - risks
    winners = [replay.winner(_shifted(found, shift), draw) for draw, found in enumerate(drawn, 1)]
    return float(noises[np.arange(len(winners)), winners].mean())


def _shifted(
    found: Sequence[Evaluation] | FloatArray, shift: FloatArray
) -> Sequence[Evaluation] | FloatArray:
    if isinstance(found, np.ndarray):
        return np.asarray(found + shift)
    return [one.shifted(float(by)) for one, by in zip(found, shift, strict=True)]


def _shrunken(risks: FloatArray, noises: FloatArray) -> FloatArray:
    """Shrink risks towards their mean by the share of their variance that is noise."""
    count = len(risks)
    if count < 2:
        return risks
    centred = noises - noises.mean(axis=0)
    # Of differences between submissions: what all have in common moves none ahead of another.
    centred = centred - centred.mean(axis=1, keepdims=True)
    noise = (centred**2).sum(axis=1).mean() / (count - 1)
    spread = risks.var(ddof=1)
    kept = 0.0 if spread == 0 else max(0.0, 1.0 - float(noise / spread))
    return np.asarray(risks.mean() + kept * (risks - risks.mean()))
