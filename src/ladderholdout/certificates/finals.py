"""Finals of a leaderboard: which of some fixed models are better than which, all at once.

Theorems F1 to F3 of docs/background/finals.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout.certificates.reserve_intervals import ReserveGrid, reserve_interval
from ladderholdout.certificates.targeted_bets import ordered_mean_evidence
from ladderholdout.metrics.arrays import FloatArray

Bools = NDArray[np.bool_]

OF_PAIRS = 4 / 5
"""The share of the level for pairs, where there are paired tests; the rest is for intervals."""
# Evidence is kept in whole hundredths of a nat, rounded down; rounding of its own is below this.
_PARTS, _ROUNDING = 100, 1e-6
_LEAST_CHANCE = 1e-300


def sign_evidence(wins: NDArray[np.int64], against: int = 0) -> FloatArray:
    """Return the evidence of exact sign tests that the one model is better than the other.

    Theorem F1 of docs/background/finals.md: of the rows on which exactly one of two models is
    right, more than half are expected to be those of the better one.

    Parameters
    ----------
    wins : ndarray of shape (m, m)
        On how many rows the first model of a pair is right and the second one is wrong.
    against : int, default=0
        Further rows, which count as won by the second model of each pair.

    Returns
    -------
    ndarray of shape (m, m)
        Minus the logarithm of the p-value of "the first model is not better", in nats.

    Examples
    --------
    >>> sign_evidence(np.array([[0, 10], [0, 0]])).round(2).tolist()
    [[0.0, 6.93], [0.0, 0.0]]
    """
    chances = scipy.special.bdtrc(wins - 1.0, wins + wins.T + against, 0.5)
    nats = -np.log(np.clip(chances, _LEAST_CHANCE, 1.0))
    return np.asarray(np.where(wins > 0, nats, 0.0))


def in_parts(nats: float) -> int:
    """Return evidence in whole hundredths of a nat, rounded down.

    Examples
    --------
    >>> in_parts(6.938), in_parts(0.0)
    (693, 0)
    """
    return max(0, math.floor(nats * _PARTS - _ROUNDING))


def step_down(nats: FloatArray, log_level: float) -> Bools:
    """Return which pairs Holm's procedure separates.

    Holm 1979: hypotheses are rejected one after the other, the one with the smallest p-value
    first, as long as it is at most the level over the number of those that are left. With a chance
    of at most the level any true one is among them, however the p-values depend on each other.

    Parameters
    ----------
    nats : ndarray of shape (m, m)
        As `sign_evidence` returns it; the diagonal is left out.
    log_level : float
        Natural logarithm of the level for all pairs together.

    Returns
    -------
    ndarray of bool, shape (m, m)
        Whether the first model of a pair is shown to be better than the second.

    Examples
    --------
    >>> nats = np.array([[0, 9.0, 4.5], [0, 0, 1.0], [0, 0, 0]])
    >>> step_down(nats, np.log(0.05)).tolist()
    [[False, True, False], [False, False, False], [False, False, False]]
    """
    count = len(nats)
    pairs = np.flatnonzero(~np.eye(count, dtype=bool).ravel())
    evidence = nats.ravel()[pairs]
    order = np.argsort(-evidence, kind="stable")
    needed = np.log(len(pairs) - np.arange(len(pairs))) - log_level
    shown = np.logical_and.accumulate(evidence[order] >= needed)
    better = np.zeros(count * count, dtype=bool)
    better[pairs[order[shown]]] = True
    return better.reshape(count, count)


def closed(better: Bools) -> Bools:
    """Return what follows: who is better than somebody is better than whoever that one is.

    Examples
    --------
    >>> closed(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool))[0].tolist()
    [False, True, True]
    """
    while True:
        more = better | (better.astype(np.float32) @ better.astype(np.float32) > 0.0)
        if (more == better).all():
            return better
        better = more


def rank_sets(better: Bools) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last rank that each may have.

    Mogstad, Romano, Shaikh & Wilhelm 2024, Theorem 3.1: if all that is shown is true, the rank of
    each is from one more than the number of those that are better to all but the number
    of those that are worse.

    Parameters
    ----------
    better : ndarray of bool, shape (m, m)
        Whether the first one of a pair is shown to be better.

    Returns
    -------
    tuple of (ndarray of int, ndarray of int), each of shape (m,)

    Examples
    --------
    >>> best, worst = rank_sets(np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]], dtype=bool))
    >>> best.tolist(), worst.tolist()
    ([1, 1, 3], [2, 2, 3])
    """
    return 1 + better.sum(axis=0), len(better) - better.sum(axis=1)


def of_teams(better: Bools, teams: Sequence[int], count: int) -> Bools:
    """Return which teams are shown to be better, from what is shown of their entries.

    The score of a team is that of its best entry: a team is better than another one if one of its
    entries is better than each entry of the other.

    Parameters
    ----------
    better : ndarray of bool, shape (m, m)
        Of entries.
    teams : sequence of int
        The team of each entry, from 0.
    count : int
        How many teams there are.

    Returns
    -------
    ndarray of bool, shape (count, count)

    Examples
    --------
    >>> better = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    >>> of_teams(better, [0, 1, 1], 2).tolist(), of_teams(better, [0, 0, 1], 2).tolist()
    ([[False, True], [False, False]], [[False, True], [False, False]])
    """
    members = np.zeros((count, len(teams)), dtype=np.float32)
    members[list(teams), np.arange(len(teams))] = 1.0
    # For each entry the number of each team's entries that it is better than.
    beaten = better.astype(np.float32) @ members.T
    return np.asarray(members @ (beaten == members.sum(axis=1)) > 0.0)


def relation_length(better: Bools, order: Sequence[int]) -> float:
    """Return the code length of what is shown of all pairs, after the order of the shown scores.

    Each pair is one of three things, and its chance is that of the estimator of Krichevsky and
    Trofimov (1981) among the pairs before that have the same two neighbours.

    Parameters
    ----------
    better : ndarray of bool, shape (m, m)
    order : sequence of int
        By the scores that are shown, the best first.

    Returns
    -------
    float
        In nats.

    Examples
    --------
    >>> round(relation_length(np.zeros((2, 2), dtype=bool), [0, 1]), 3)
    1.099
    """
    placed = better[np.ix_(list(order), list(order))]
    kinds = (placed + 2 * placed.T).astype(int).tolist()
    seen = [[0.5, 0.5, 0.5] for _ in range(9)]
    length, above = 0.0, [0] * len(kinds)
    for first, row in enumerate(kinds):
        left, now = 0, [0] * len(kinds)
        for second in range(first + 1, len(kinds)):
            kind, counts = row[second], seen[3 * left + above[second]]
            length -= math.log(counts[kind] / sum(counts))
            counts[kind] += 1.0
            left = now[second] = kind
        above = now
    return length


@dataclass(frozen=True, slots=True, eq=False)
class FinalsShown:
    """What finals show of their entries.

    Attributes
    ----------
    risks, lows, highs : tuple of float or None
        The risk of each entry and the ends of its interval; None where the metric has no value.
    better : ndarray of bool, shape (m, m)
        Whether the first entry of a pair is shown to be better.
    log_values : float
        What later queries of the reserve pay for it, in nats.

    Examples
    --------
    >>> nobody = np.zeros((2, 2), dtype=bool)
    >>> FinalsShown((0.1, 0.2), (0.0, 0.1), (0.2, 0.3), nobody, 9.0).log_values
    9.0
    """

    risks: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]
    better: Bools
    log_values: float


@dataclass(frozen=True, slots=True, eq=False)
class FinalsEvidence:
    """What was measured of the entries of finals, which is raw, and what is shown of it.

    Attributes
    ----------
    grids : tuple of ReserveGrid
        What can be shown of each entry's risk.
    risks : tuple of float or None
        None where the metric has no value for these predictions.
    lows, highs : tuple of float or None
        Ends of intervals that depend on more than the risk, and were worked out at the level of
        the finals; None where they follow from the risk.
    pairs : tuple of int or None
        The evidence of the paired test of each pair i < j, row by row, in hundredths of a nat:
        above 0 that i is better, below that j is. None where there is no paired test.
    amended : float
        The share of the rows whose labels were amended before.

    Examples
    --------
    >>> grid = ReserveGrid(500, (0.0, 1.0))
    >>> evidence = FinalsEvidence((grid, grid), (0.1, 0.3), (None,) * 2, (None,) * 2, (2500,))
    >>> shown = evidence.shown(0.95, 0.22)
    >>> shown.better.tolist(), round(shown.lows[0], 3), round(shown.highs[0], 3)
    ([[False, True], [False, False]], 0.065, 0.144)
    """

    grids: tuple[ReserveGrid, ...]
    risks: tuple[float | None, ...] = field(repr=False)
    lows: tuple[float | None, ...] = field(repr=False)
    highs: tuple[float | None, ...] = field(repr=False)
    pairs: tuple[int, ...] | None = field(repr=False)
    amended: float = 0.0

    def shown(self, confidence: float, log_count: float) -> FinalsShown:
        """Return what is shown at a level: theorem F3 of docs/background/finals.md.

        Parameters
        ----------
        confidence : float
            At least this is the chance that all that all finals of a holdout show is true.
        log_count : float
            L, for their number and what the reserve had shown before: the level is divided by
            exp(L).

        Returns
        -------
        FinalsShown
        """
        count = len(self.grids)
        own = log_count + interval_price(count, paired=self.pairs is not None)
        entries = [self._entry(place, confidence, own) for place in range(count)]
        risks, lows, highs, price = (tuple(values) for values in zip(*entries, strict=True))
        ends = [(-math.inf if low is None else low) for low in lows]
        others = [(math.inf if high is None else high) for high in highs]
        better = np.asarray(others)[:, None] < np.asarray(ends)[None, :]
        if self.pairs is not None:
            log_level = math.log1p(-confidence) + math.log(OF_PAIRS) - log_count
            better = better | step_down(self._nats(), log_level)
        better = closed(better)
        order = sorted(range(count), key=lambda place: _last_without(risks[place]))
        length = relation_length(better, order)
        return FinalsShown(risks, lows, highs, better, sum(price) + length)

    def _nats(self) -> FloatArray:
        """Return the evidence of the pairs as a square."""
        count = len(self.grids)
        square = np.zeros((count, count))
        square[np.triu_indices(count, 1)] = np.asarray(self.pairs) / _PARTS
        return np.maximum(square - square.T, 0.0)

    def _entry(
        self, place: int, confidence: float, log_count: float
    ) -> tuple[float | None, float | None, float | None, float]:
        """Return risk, ends and price of one entry as they are shown."""
        grid, risk = self.grids[place], self.risks[place]
        if risk is None:
            return None, None, None, grid.price(None)
        shown = grid.nearest(risk)
        low, high = self.lows[place], self.highs[place]
        if low is not None and high is not None:
            low, high = min(grid.below(low), shown), max(grid.above(high), shown)
            return shown, low, high, grid.price(shown)
        assert grid.limits is not None
        least, unit = grid.limits[0], grid.limits[1] - grid.limits[0]
        share, rounding = (shown - least) / unit, grid.rounding(shown) / unit
        limits = reserve_interval(
            share, grid.n, log_count, confidence=confidence, rounding=rounding
        )
        # Whatever the labels were that were amended.
        low, high = max(limits.low - self.amended, 0.0), min(limits.high + self.amended, 1.0)
        return shown, least + unit * low, least + unit * high, grid.price(shown)


def interval_price(entries: int, *, paired: bool) -> float:
    """Return by how much the level of one entry's interval is divided, in nats.

    Examples
    --------
    >>> round(interval_price(10, paired=True), 3), round(interval_price(10, paired=False), 3)
    (3.912, 2.303)
    """
    return math.log(entries) - (math.log1p(-OF_PAIRS) if paired else 0.0)


def upper_triangle(signed: Iterable[Iterable[float]]) -> tuple[int, ...]:
    """Return the evidence of pairs as `FinalsEvidence.pairs` has it, from that of both directions.

    Examples
    --------
    >>> upper_triangle([[0.0, 0.0, 2.0], [6.938, 0.0, 0.0], [0.0, 0.0, 0.0]])
    (-693, 199, 0)
    """
    square = np.asarray([[in_parts(nats) for nats in row] for row in signed], dtype=np.int64)
    signs = square - square.T
    return tuple(signs[np.triu_indices(len(square), 1)].tolist())


def pair_evidence(
    losses: FloatArray,
    risks: FloatArray,
    amended: Bools,
    log_level: float,
    rng: np.random.Generator,
    *,
    counts: bool,
    unit: float = 1.0,
) -> tuple[int, ...]:
    """Return the evidence of paired tests, as `FinalsEvidence.pairs` has it.

    Theorem F1 of docs/background/finals.md: sign tests, or bets on differences.

    Parameters
    ----------
    losses : ndarray of shape (m, n)
        Of each model on each row.
    risks : ndarray of shape (m,)
        What is shown of each model.
    amended : ndarray of bool, shape (n,)
        The rows whose labels were amended: whatever they were, they count for the second model of
        each pair.
    log_level : float
        Natural logarithm of the level for all pairs together.
    rng : numpy.random.Generator
        Orders the rows for bets; it must not depend on them.
    counts : bool
        Whether losses are 0 or 1; if not, bets are on their differences.
    unit : float, default=1.0
        The largest difference of two losses.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> losses, rng = np.repeat([[0.0], [1.0]], 20, axis=1), np.random.default_rng(0)
    >>> few = np.arange(20) < 2
    >>> pair_evidence(losses, losses.mean(axis=1), few, -3.0, rng, counts=True)
    (851,)
    """
    count = len(losses)
    if counts:
        right = (losses == 0).astype(np.float64)[:, ~amended]
        wins = np.rint(right.sum(axis=1)[:, None] - right @ right.T).astype(np.int64)
        nats = sign_evidence(wins, int(amended.sum()))
        return upper_triangle(np.where(wins > wins.T, nats, 0.0))
    target = math.log(max(count * (count - 1), 2)) - log_level
    losses, nats = losses[:, rng.permutation(len(amended))], np.zeros((count, count))
    means = losses.mean(axis=1)
    for first in range(count):
        # Clipped losses may point another way than the risks, which nothing contradicts.
        for second in np.flatnonzero((means[first] < means) & (risks[first] < risks)).tolist():
            gains = np.where(amended, -unit, losses[second] - losses[first])
            shares = np.clip((gains / unit + 1.0) / 2.0, 0.0, 1.0)
            nats[first, second] = ordered_mean_evidence(shares, 0.5, target)
    return upper_triangle(nats)


def _last_without(risk: float | None) -> float:
    return math.inf if risk is None else risk
