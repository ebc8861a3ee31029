"""Scores corrected for selection: what the winner of a batch is worth on other rows.

The winner of a long batch scores too high by chance, with or without a ladder. The submissions did
not depend on each other's answers, so the selection can be repeated on rows that are drawn
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.mechanisms import (
    BayesBootLadder,
    Evidence,
    LadderRules,
    Mechanism,
    fresh_rng,
)
from ladderholdout.metrics import Evaluation, Metric

N_BOOTSTRAP = 300
"""Draws of the rows."""

# A rule that resamples takes so many draws of its own within each draw of the rows.
_INNER_DRAWS = 100
# Below this share of draws on which every score exists, there is no estimate.
_LEAST_SHARE = 0.5

# So many numbers of weights at a time.
_CHUNK = 2**22

FloatArray = NDArray[np.float64]
Progress = Callable[[float], None]


def no_progress(share: float) -> None:
    """Show nothing of how far an estimate is."""


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
        # Its test is about the difference of two risks, and how that varies over draws of the rows
        # is known from the draws: no draws of its own are needed within each of them.
        self.by_draws = type(mechanism).measure is BayesBootLadder.measure
        for name in ("n_bootstrap", "n_posterior"):
            if getattr(mechanism, name, 0) > _INNER_DRAWS:
                mechanism = replace(mechanism, **{name: _INNER_DRAWS})
        self.resamples = any(hasattr(mechanism, one) for one in ("n_bootstrap", "n_posterior"))
        # Whether the rule goes by the risks of submissions alone.
        self.needs_risk_alone = self.by_draws or type(mechanism).measure is Mechanism.measure
        self._skips = not (mechanism.noisy or mechanism.redraws or mechanism.discloses)
        self._rules = replace(rules, mechanism=mechanism)
        self._start, self._stopping, self._secret = rules.start(n), stopping, secret

    def winner(
        self,
        submissions: Sequence[Evaluation] | FloatArray,
        draw: int,
        spreads: _Spreads | None = None,
    ) -> int:
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
                p_null = None if spreads is None else spreads.p_null(submissions, at, best)
                evidence = Evidence(float(one), p_null=p_null)
                state, outcome = self._rules.replay(state, evidence, rng)
            best = at if outcome.improved else best
            at += 1
        return best

    def _has_stopped(self, rounds: int, best: int) -> bool:
        """Return whether a training run ended before so many rounds, the best one being this."""
        return self._stopping is not None and rounds >= max(
            self._stopping.min_rounds, best + 1 + self._stopping.patience
        )


class _Spreads:
    """How the difference of the risks of two submissions varies over draws of the rows."""

    def __init__(self, drawn: FloatArray) -> None:
        self._drawn = drawn
        self._known: dict[tuple[int, int], float] = {}

    def p_null(self, risks: Any, new: int, incumbent: int) -> float:
        """Return the probability, about normal, that a submission is no better than another."""
        gap = float(risks[new] - risks[incumbent])
        pair = new, incumbent
        if pair not in self._known:
            difference = self._drawn[:, new] - self._drawn[:, incumbent]
            self._known[pair] = float(difference.std(ddof=1)) if len(difference) > 1 else 0.0
        spread = self._known[pair]
        return float(scipy.special.ndtr(gap / spread)) if spread > 0 else float(gap >= 0)


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
    progress: Progress = no_progress,
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
    progress : callable, optional
        Called with the share of the work that is done.

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
    if replay.resamples:
        n_bootstrap = max(1, n_bootstrap // 3)
    draws = partial(_draws, secret, n, n_bootstrap)
    found = batch.measured(replay, draws(), n_bootstrap, progress)
    defined = [one for one in found if isinstance(one, np.ndarray)]
    spreads = _Spreads(np.asarray(defined)) if replay.by_draws and defined else None
    drawn: list[Sequence[Evaluation] | FloatArray] = []
    apart: list[float] = []
    for draw, (rows, one) in enumerate(zip(draws(), found, strict=True), 1):
        if one is None:
            continue
        out = np.setdiff1d(np.arange(n), rows)
        try:
            apart.append(batch.on(out, replay.winner(one, draw, spreads)).risk)
        except Exception:  # one class alone is left, or no variance: there is no such score
            continue
        drawn.append(one)
    if len(drawn) < _LEAST_SHARE * n_bootstrap:
        return None
    noise = _noise_of_winners(replay, risks, drawn, spreads)
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
        self._predictions, self._full = predictions, full
        losses = [one.losses for one in full]
        plain = weights is None and all(one is not None for one in losses)
        self._losses = np.asarray(losses) if plain else None

    def on(self, rows: NDArray[np.intp], at: int) -> Evaluation:
        """Measure a submission, by its place."""
        if self._losses is not None:
            return Evaluation.from_losses(self._losses[at, rows])
        weights = None if self._weights is None else self._weights[rows]
        return self._metric.evaluate(self._targets[rows], self._predictions[at][rows], weights)

    def measured(
        self,
        replay: _Replay,
        draws: Iterator[NDArray[np.intp]],
        count: int,
        progress: Progress,
    ) -> list[Sequence[Evaluation] | FloatArray | None]:
        """Measure all of them on drawn rows; None where one has no score there."""
        if replay.needs_risk_alone:
            risks = self._risks(draws, count, progress)
            return [one if np.isfinite(one).all() else None for one in risks]
        found: list[Sequence[Evaluation] | FloatArray | None] = []
        for number, rows in enumerate(draws):
            progress(number / count)
            try:
                found.append([self.on(rows, at) for at in range(len(self._predictions))])
            except Exception:  # one class alone was drawn, or no variance: there is no such score
                found.append(None)
        return found

    def _risks(
        self, draws: Iterator[NDArray[np.intp]], count: int, progress: Progress
    ) -> FloatArray:
        """Return the risks of all of them on drawn rows, nan where there is none."""
        n = len(self._targets)
        risks = np.empty((count, len(self._full)))
        size = max(1, _CHUNK // n)
        for start in range(0, count, size):
            counts = [np.bincount(rows, minlength=n) for rows in islice(draws, size)]
            part = risks[start : start + size]
            if self._losses is not None:
                progress(start / count)
                part[:] = [self._losses @ one / n for one in counts]
                continue
            weights = np.asarray(counts, dtype=np.float64)
            for at, one in enumerate(self._full):
                progress((start + len(part) * at / len(self._full)) / count)
                part[:, at] = one.risks_under(weights)
        return risks


def _draws(secret: bytes, n: int, count: int) -> Iterator[NDArray[np.intp]]:
    """Draw rows with replacement, again and again the same: they are too many to be kept."""
    rng = fresh_rng(secret, 0, 0)
    for _ in range(count):
        yield rng.integers(0, n, n)


def _noise_of_winners(
    replay: _Replay,
    risks: FloatArray,
    drawn: Sequence[Sequence[Evaluation] | FloatArray],
    spreads: _Spreads | None,
) -> float:
    """Return the mean noise of the draws in the risk of those that win on them.

    Negative: the winner's score was partly chance.
    """
    on_draws = [
        found if isinstance(found, np.ndarray) else [one.risk for one in found] for found in drawn
    ]
    noises = np.asarray(on_draws) - risks
    shift = _shrunken(risks, noises) - risks
    winners = [
        replay.winner(_shifted(found, shift), draw, spreads) for draw, found in enumerate(drawn, 1)
    ]
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
