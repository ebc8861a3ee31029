"""The papers' pseudo-code, slow and word for word, for the tests and benchmarks to compare with.

Line numbers are the papers'. Noise is an argument, or drawn one number at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import comb, floor, prod

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Row = list[Fraction]
Risk = Callable[[Floats], float]


def mean(row: Row) -> Fraction:
    return sum(row, Fraction(0)) / len(row)


def paired_t_improves(losses: Row, best: Row, alpha: float) -> bool:
    """Neto's Algorithm 4, line 11, with the upper quantile; squared, to stay exact."""
    n = len(losses)
    if n == 1:  # no standard deviation
        return False
    difference = [mine - theirs for mine, theirs in zip(losses, best, strict=True)]
    centre = mean(difference)
    variance = sum(((d - centre) ** 2 for d in difference), Fraction(0)) / (n - 1)
    critical = Fraction(float(stats.t.isf(alpha, n - 1)))
    return centre < 0 and centre**2 > critical**2 * variance / n


def bootstrap_estimate(losses: Floats, b: int, rng: np.random.Generator) -> float:
    """Neto's Algorithm 4, lines 12 and 13."""
    n = len(losses)
    means = []
    for _ in range(b):
        replication = losses[rng.integers(0, n, n)]
        means.append(float(replication.mean()))
    return sum(means) / b


def ladder_boot(
    rows: Sequence[Row], alpha: float, b: int, rng: np.random.Generator
) -> Iterator[tuple[float, bool]]:
    """Neto's Algorithm 4; yields the release and whether the submission became the best."""
    best: Row | None = None
    for losses in rows:
        improves = best is None or paired_t_improves(losses, best, alpha)
        best = losses if improves or best is None else best
        yield bootstrap_estimate(np.array(best, dtype=float), b, rng), improves


def exact_probability(losses: Row, best: Row) -> Fraction:
    """Return P(sum of e_i (l_i - b_i) < 0) for exponential e_i: a sum of partial fractions.

    The differences that are not 0 have to differ from each other.
    """
    differences = [mine - theirs for mine, theirs in zip(losses, best, strict=True)]
    live = [d for d in differences if d != 0]
    total = Fraction(0)
    for at, d in enumerate(live):
        if d < 0:
            others = live[:at] + live[at + 1 :]
            total += prod((d / (d - other) for other in others), start=Fraction(1))
    return total


def exact_probability_of_hits(losses: Row, best: Row) -> Fraction:
    """The same for losses of 0 and 1: of a gains and b costs in random order, P(Bin >= b)."""
    a = sum(mine < theirs for mine, theirs in zip(losses, best, strict=True))
    b = sum(mine > theirs for mine, theirs in zip(losses, best, strict=True))
    if a == 0 or b == 0:
        return Fraction(int(a > 0))
    tosses = a + b - 1
    return Fraction(sum(comb(tosses, heads) for heads in range(b, tosses + 1)), 2**tosses)


def bayes_boot_ladder(rows: Sequence[Row], odds: Fraction, published: bool) -> list[Fraction]:
    """Neto's Algorithm 5 on losses of 0 and 1, with infinitely many draws.

    Unless as published, a submission whose release would not be smaller than the standing
    one does not become the best.
    """
    n, standing, best = len(rows[0]), Fraction(10**9), None
    releases = []
    for row in rows:
        rounded = floor(mean(row) * n + Fraction(1, 2)) * Fraction(1, n)
        probability = Fraction(1) if best is None else exact_probability_of_hits(row, best)
        if probability >= odds * (1 - probability) and (published or rounded < standing):
            standing, best = rounded, row
        releases.append(standing)
    return releases


def posterior_probability(
    new: Risk, best: Risk, n: int, draws: int, rng: np.random.Generator
) -> float:
    """Neto's Algorithms 5 and 6, line 9: the share of Dirichlet draws with a smaller risk."""
    better = 0
    for _ in range(draws):
        weights = rng.dirichlet(np.ones(n))
        better += new(weights) < best(weights)
    return better / draws


def resampled_risk(risk: Risk, n: int, b: int, rng: np.random.Generator) -> float:
    """Neto's Algorithm 6, lines 12 and 13, for any metric."""
    risks = []
    for _ in range(b):
        counts = np.bincount(rng.integers(0, n, n), minlength=n).astype(float)
        risks.append(risk(counts))
    return sum(risks) / b


def thresholdout(
    risks: Sequence[tuple[float, float]],
    threshold: float,
    budget: int,
    noise: Iterator[float],
    sigma: float,
) -> Iterator[float | None]:
    """Dwork et al.'s Figure 1 from (training, holdout) means; None is "no answer".

    ``noise`` yields standard Laplace numbers, in the order: the first threshold, then for
    each query comparison, answer and the threshold drawn anew.
    """
    current = threshold + 2 * sigma * next(noise)
    for training, holdout in risks:
        eta, xi, gamma = 4 * sigma * next(noise), sigma * next(noise), 2 * sigma * next(noise)
        if budget < 1:
            yield None
        elif abs(holdout - training) > current + eta:
            budget -= 1
            current = threshold + gamma
            yield holdout + xi
        else:
            yield training


def reduction(
    leaderboard: Callable[[Floats], float], alpha: float, queries: Sequence[Floats], loops: int
) -> Iterator[float]:
    """Hardt's Figure 2; ``loops`` is 1/alpha there. A query without an answer ends it."""
    c = 0.5
    for query in queries:
        answer = None
        for i in range(loops):
            released = leaderboard(c + (query - i * alpha) / 2)
            if released < c - alpha / 2:
                answer = 2 * (released - c + i * alpha / 2)
                break
        if answer is None:
            return
        yield answer
        c = released


# Weighted metrics, written down once more.


def mean_squared_error(x: Floats, y: Floats) -> Risk:
    def risk(weights: Floats) -> float:
        return float(np.average((x - y) ** 2, weights=weights))

    return risk


def error_rate(x: Floats, y: Floats) -> Risk:
    def risk(weights: Floats) -> float:
        return float(np.average(x != y, weights=weights))

    return risk


def auc_risk(labels: Floats, scores: Floats) -> Risk:
    """Mann-Whitney: each positive against the negatives below it, ties counting half."""

    def risk(weights: Floats) -> float:
        positive, negative = labels == 1, labels == 0
        order = np.argsort(scores[negative], kind="stable")
        below = scores[negative][order]
        cumulative = np.concatenate([[0.0], np.cumsum(weights[negative][order])])
        least = np.searchsorted(below, scores[positive], side="left")
        most = np.searchsorted(below, scores[positive], side="right")
        wins = weights[positive] * (cumulative[least] + cumulative[most]) / 2
        return 1 - float(wins.sum() / (weights[positive].sum() * weights[negative].sum()))

    return risk


def moments(x: Floats, y: Floats, weights: Floats) -> tuple[float, float, float, float, float]:
    w = weights / weights.sum()
    mean_x, mean_y = float((w * x).sum()), float((w * y).sum())
    var_x = float((w * (x - mean_x) ** 2).sum())
    var_y = float((w * (y - mean_y) ** 2).sum())
    return mean_x, mean_y, var_x, var_y, float((w * (x - mean_x) * (y - mean_y)).sum())


def concordance_risk(x: Floats, y: Floats) -> Risk:
    def risk(weights: Floats) -> float:
        mean_x, mean_y, var_x, var_y, cov = moments(x, y, weights)
        return 1 - 2 * cov / (var_x + var_y + (mean_x - mean_y) ** 2)

    return risk


def pearson_risk(x: Floats, y: Floats) -> Risk:
    def risk(weights: Floats) -> float:
        _, _, var_x, var_y, cov = moments(x, y, weights)
        return 1 - cov / (var_x * var_y) ** 0.5

    return risk
