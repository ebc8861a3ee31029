"""Scores corrected for selection: what the winner of a batch would score on other rows.

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

from ladderholdout import mechanisms
from ladderholdout.mechanisms import Mechanism
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
# The submissions of a batch on drawn rows: all that is measured, or their risks alone.
_Measured = Sequence[Evaluation] | FloatArray
Progress = Callable[[float], None]


def no_progress(share: float) -> None:
    """Ignore how far an estimate is."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The rule by which a training run stops whose rounds are the batch.

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
        The risk on the holdout's rows, and after the correction; smaller is better.
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
    """The rule of a ladder, which finds the incumbent of a batch on drawn rows."""

    def __init__(
        self,
        rules: mechanisms.LadderRules,
        n: int,
        stopping: Stopping | None,
        secret: bytes,
        best_first: bool,
    ):
        mechanism = rules.mechanism
        # Its test is about the difference of two risks, and how that varies over draws of the rows
        # is known from the draws: no draws of its own are needed within each of them.
        self.by_draws = type(mechanism).measure is mechanisms.BayesBootLadder.measure
        counts = [name for name in ("n_bootstrap", "n_posterior") if hasattr(mechanism, name)]
        for name in counts:
            if getattr(mechanism, name) > _INNER_DRAWS:
                mechanism = replace(mechanism, **{name: _INNER_DRAWS})
        self.resamples = bool(counts)
        # Whether the rule goes by the risks of submissions alone.
        self.needs_risk_alone = self.by_draws or type(mechanism).measure is Mechanism.measure
        self._skips = not (mechanism.noisy or mechanism.redraws or mechanism.discloses)
        self._rules = replace(rules, mechanism=mechanism)
        self._n, self._stopping, self._secret = n, stopping, secret
        # The first submission improves, whatever it is, and in an announced batch that is the best.
        self._best_first = best_first and not (mechanism.discloses or mechanism.flags_alone)

    def winner(self, submissions: _Measured, draw: int, spreads: _Spreads | None = None) -> int:
        """Return the place of the incumbent after these submissions, or risks of submissions."""
        if self._best_first:
            if isinstance(submissions, np.ndarray):
                return int(submissions.argmin())
            return min(range(len(submissions)), key=lambda place: submissions[place].risk)
        n = self._n
        if not isinstance(submissions, np.ndarray):
            n = submissions[0].n  # of drawn groups there may be more rows, or fewer
        state, best, place = self._rules.start(n), 0, 0
        rng = mechanisms.fresh_rng(self._secret, draw, 1)
        while place < len(submissions):
            if self._skips and isinstance(submissions, np.ndarray):
                # Without noise, what is not below the released risk changes nothing.
                below = np.flatnonzero(submissions[place:] < state.standing)
                place = place + int(below[0]) if len(below) else len(submissions)
            if place == len(submissions) or self._has_stopped(place, best):
                break
            submission = submissions[place]
            if isinstance(submission, Evaluation):
                state, outcome = self._rules.step(state, submission, rng)
            else:
                p_null = None if spreads is None else spreads.p_null(submissions, place, best)
                evidence = mechanisms.Evidence(float(submission), p_null=p_null)
                state, outcome = self._rules.replay(state, evidence, rng)
            best = place if outcome.improved else best
            place += 1
        return best

    def _has_stopped(self, rounds: int, best: int) -> bool:
        """Return whether a training run ended before so many rounds, given its best round."""
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
    rules: mechanisms.LadderRules,
    targets: NDArray[Any],
    predictions: Sequence[NDArray[Any]],
    *,
    winner: int,
    weights: ArrayLike | None = None,
    groups: NDArray[np.intp] | None = None,
    stopping: Stopping | None = None,
    best_first: bool = False,
    secret: bytes = b"",
    n_bootstrap: int = N_BOOTSTRAP,
    progress: Progress = no_progress,
) -> Correction | None:
    """Correct the risk of a batch's winner for the selection.

    It is the mean of two estimates, of which one errs low and the other high where candidates
    differ:

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
    groups : ndarray of int, shape (n,), optional
        The number of each row's group, from 0 on, where whole groups are to be drawn.
    stopping : Stopping, optional
        For a batch of rounds of a training run.
    best_first : bool, default=False
        Whether the best member of the batch is judged first, as in an announced batch.
    secret : bytes, default=b""
        The draws are made from it.
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

    >>> from ladderholdout.mechanisms import FullDisclosure, LadderRules, SimplifiedLadder
    >>> from ladderholdout.metrics import get_metric
    >>> rng = np.random.default_rng(0)
    >>> y, coins = np.zeros(100, int), rng.integers(0, 2, (20, 100))
    >>> rules = LadderRules(SimplifiedLadder(step=0.01))
    >>> best = int(coins.mean(axis=1).argmin())
    >>> correction = corrected(get_metric("accuracy"), rules, y, [*coins], winner=best)
    >>> round(1 - correction.risk, 2), round(1 - correction.corrected, 2)
    (0.59, 0.5)
    """
    n = len(targets)
    batch = _Batch(metric, targets, predictions, weights, groups)
    replay = _Replay(rules, n, stopping, secret, best_first)
    if replay.resamples:
        n_bootstrap = max(1, n_bootstrap // 3)
    draws = partial(_draws, secret, n, n_bootstrap, groups)
    measured = batch.measured(replay, draws(), n_bootstrap, progress)
    risks_on_draws = [risks for risks in measured if isinstance(risks, np.ndarray)]
    spreads = _Spreads(np.asarray(risks_on_draws)) if replay.by_draws and risks_on_draws else None
    drawn: list[_Measured] = []
    risks_apart: list[float] = []
    for draw, (rows, submissions) in enumerate(zip(draws(), measured, strict=True), 1):
        if submissions is None:
            continue
        apart = np.setdiff1d(np.arange(n), rows)
        try:
            incumbent = replay.winner(submissions, draw, spreads)
            risks_apart.append(batch.on(apart, incumbent).risk)
        except Exception:  # one class alone is left, or no variance: there is no such score
            continue
        drawn.append(submissions)
    if len(drawn) < _LEAST_SHARE * n_bootstrap:
        return None
    noise = _noise_of_winners(replay, batch.risks, drawn, spreads)
    risk = float(batch.risks[winner])
    left_out = float(np.mean(risks_apart))
    return Correction(risk, (left_out + risk - noise) / 2, left_out, len(drawn))


class _Batch:
    """The submissions of a batch, to be measured on some of the rows."""

    def __init__(
        self,
        metric: Metric,
        targets: NDArray[Any],
        predictions: Sequence[NDArray[Any]],
        weights: ArrayLike | None,
        groups: NDArray[np.intp] | None,
    ) -> None:
        # The row with which each group begins, where it is drawn.
        self._firsts: NDArray[np.bool_] | None = None
        if groups is not None:
            self._firsts = np.zeros(len(groups), dtype=bool)
            self._firsts[np.unique(groups, return_index=True)[1]] = True
        self._metric, self._targets, self._predictions = metric, targets, predictions
        self._weights = None if weights is None else np.asarray(weights, dtype=np.float64)
        self._full = [metric.evaluate(targets, guesses, self._weights) for guesses in predictions]
        self.risks = np.array([evaluation.risk for evaluation in self._full])
        losses = [evaluation.losses for evaluation in self._full]
        is_plain = weights is None and all(rows is not None for rows in losses)
        self._losses = np.asarray(losses) if is_plain else None

    def on_drawn(self, rows: NDArray[np.intp], place: int) -> Evaluation:
        """Measure the submission at a place on drawn rows, of which whole groups may be units."""
        evaluation = self.on(rows, place)
        if self._firsts is None:
            return evaluation
        # A group that was drawn twice is two of them.
        return evaluation.in_groups(np.cumsum(self._firsts[rows]) - 1)

    def on(self, rows: NDArray[np.intp], place: int) -> Evaluation:
        """Measure the submission at a place on some of the rows."""
        if self._losses is not None:
            return Evaluation.from_losses(self._losses[place, rows])
        weights = None if self._weights is None else self._weights[rows]
        return self._metric.evaluate(self._targets[rows], self._predictions[place][rows], weights)

    def measured(
        self,
        replay: _Replay,
        draws: Iterator[NDArray[np.intp]],
        count: int,
        progress: Progress,
    ) -> list[_Measured | None]:
        """Measure all of them on drawn rows; None where one has no score there."""
        if replay.needs_risk_alone:
            table = self._risks(draws, count, progress)
            return [risks if np.isfinite(risks).all() else None for risks in table]
        measured: list[_Measured | None] = []
        for number, rows in enumerate(draws):
            progress(number / count)
            try:
                measured.append(
                    [self.on_drawn(rows, place) for place in range(len(self._predictions))]
                )
            except Exception:  # one class alone was drawn, or no variance: there is no such score
                measured.append(None)
        return measured

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
                part[:] = [self._losses @ times / times.sum() for times in counts]
                continue
            weights = np.asarray(counts, dtype=np.float64)
            for place, evaluation in enumerate(self._full):
                progress((start + len(part) * place / len(self._full)) / count)
                part[:, place] = evaluation.risks_under(weights)
        return risks


def _draws(
    secret: bytes, n: int, count: int, groups: NDArray[np.intp] | None
) -> Iterator[NDArray[np.intp]]:
    """Draw rows, or whole groups of them, with replacement; the same whenever it is called.

    All draws are too many to be kept.
    """
    rng = mechanisms.fresh_rng(secret, 0, 0)
    if groups is None:
        for _ in range(count):
            yield rng.integers(0, n, n)
        return
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    for _ in range(count):
        drawn = rng.integers(0, len(members), len(members))
        yield np.concatenate([members[group] for group in drawn])


def _noise_of_winners(
    replay: _Replay,
    risks: FloatArray,
    drawn: Sequence[_Measured],
    spreads: _Spreads | None,
) -> float:
    """Return the mean noise of the draws in the risk of those that win on them.

    It is negative where the winner's score was partly chance.
    """
    on_draws = [
        submissions
        if isinstance(submissions, np.ndarray)
        else [evaluation.risk for evaluation in submissions]
        for submissions in drawn
    ]
    noises = np.asarray(on_draws) - risks
    shift = _shrunken(risks, noises) - risks
    winners = [
        replay.winner(_shifted(submissions, shift), draw, spreads)
        for draw, submissions in enumerate(drawn, 1)
    ]
    return float(noises[np.arange(len(winners)), winners].mean())


def _shifted(submissions: _Measured, shift: FloatArray) -> _Measured:
    if isinstance(submissions, np.ndarray):
        return np.asarray(submissions + shift)
    pairs = zip(submissions, shift.tolist(), strict=True)
    return [evaluation.shifted(by) for evaluation, by in pairs]


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
