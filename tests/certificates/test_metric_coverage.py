"""Attacks the certificates of single metrics by draws and by adaptive searches.

A population is a list of rows with known predictions, so that the true score of a model is known
without any error. Draws have fixed seeds. With other seeds a bound that keeps its level would fail
with a probability of at most 1e-6 for each side of each metric. What passes are misses of up to
8.6 % where 5 % are allowed, and of 14.8 % where 10 % are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy.stats import binom

from ladderholdout.certificates.metric_limits import Rows, bound_of, score_limits
from ladderholdout.certificates.transcript import Grid, Transcript, ladder_transcript
from ladderholdout.limits.betting import Limits
from ladderholdout.mechanisms import Evidence, SimplifiedLadder
from ladderholdout.metrics import METRICS, MeanOfPairs, Metric, RatioOfMeans
from ladderholdout.metrics.arrays import Array

DRAWS, ROWS, LEVEL = 1000, 80, 0.05
FEW = 12  # draws of each metric in make test-long
MOST = int(binom.isf(1e-6, DRAWS, LEVEL))
NAMES = [
    name
    for name, metric in METRICS.items()
    if not isinstance(bound_of(metric), str) or metric.is_mean
]
# Intervals that are shrunk to this part about the score are seen to miss too often: exact ones
# at once, others only where they are much too narrow, since they miss less often than they may.
SHRUNK = {"exact binomial": 0.7, "joint binomial": 0.5, "bands": 0.1}
ELSE = 0.25


def score_within(metric: Metric, y: Array, guesses: Array) -> float:
    """Return the score with losses clipped to the stated range, which is what limits hold."""
    evaluation = metric.evaluate(y, guesses)
    if not evaluation.clipped:
        return metric.to_score(evaluation.risk)
    return metric.to_score(float(np.clip(evaluation.losses, *metric.risk_range).mean()))


@dataclass(frozen=True)
class Population:
    """Rows that are drawn with replacement, and what is known of them before."""

    metric: Metric
    targets: Array
    predictions: Array
    classes: int

    def truth(self) -> float:
        return score_within(self.metric, self.targets, self.predictions)

    def drawn(self, rng: np.random.Generator) -> tuple[Array, Array]:
        chosen = rng.integers(0, len(self.targets), ROWS)
        return self.targets[chosen], self.predictions[chosen]


def population(name: str, rng: np.random.Generator) -> Population:
    metric, size = METRICS[name], 150
    if not metric.is_classification:
        guesses = np.round(rng.uniform(-1, 1, size), 1) + (3 if metric.support else 0)
        y = guesses + np.round(rng.uniform(-0.5, 0.5, size), 1)
        if metric.is_mean:
            metric = metric.with_range((0, 1.0))
        elif metric.takes_target_range:
            metric = metric.with_target_range((-1.5, 1.5), loss_range=(0, 0.51))
        return Population(metric, y, guesses, 2)
    classes = 2 if metric.binary or metric.response == "scores" else 3
    y = rng.integers(0, classes, size)
    y[: 3 * classes] = np.arange(3 * classes) % classes
    if metric.response == "labels":
        noise = rng.integers(0, classes, size)
        guesses = np.where(rng.random(size) < 0.6, y, noise).astype(np.int32)
    elif metric.response == "scores":
        guesses = np.round(y + rng.normal(size=size), 1)
    else:
        table = np.exp(np.eye(classes)[y] + np.round(rng.normal(size=(size, classes)), 1))
        guesses = table / table.sum(axis=1, keepdims=True)
        metric = metric.for_classes(np.arange(classes)) if metric.is_mean else metric
        if metric.is_mean and not metric.bounded:
            metric = metric.with_range((0, 3.0))
    return Population(metric, y, guesses, classes)


def misses(
    one: Population,
    limits: Callable[[Array, Array, np.random.Generator], Limits],
    shrunk: float,
    truth: float | None = None,
    draws: int = DRAWS,
    seed: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Count how often each side misses, and how often it would if the interval were shrunk."""
    rng, own = np.random.default_rng(seed), one.metric
    truth = one.truth() if truth is None else truth
    found, narrow = np.zeros(2, dtype=int), np.zeros(2, dtype=int)
    for _ in range(draws):
        y, guesses = one.drawn(rng)
        interval = limits(y, guesses, rng)
        found += (interval.low > truth, interval.high < truth)
        try:
            score = score_within(own, y, guesses)
        except ValueError:  # a class did not occur
            continue
        low = score - shrunk * (score - interval.low)
        narrow += (low > truth, score + shrunk * (interval.high - score) < truth)
    return found, narrow


def misses_of(name: str, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    one = population(name, np.random.default_rng(0))
    bound = bound_of(one.metric)
    assert not isinstance(bound, str)

    def limits(y: Array, guesses: Array, rng: np.random.Generator) -> Limits:
        rows = Rows(y, guesses, rng, one.classes)
        return score_limits(one.metric, rows, math.log(LEVEL))

    return misses(one, limits, SHRUNK.get(bound.name, ELSE), draws=draws, seed=seed)


@pytest.mark.long
def test_few_draws_of_each_metric_miss_at_most_as_often_as_they_may() -> None:
    """All metrics together, each with draws of its own: a false alarm in 10^6 runs of a side.

    A miss rate of .13 of all of them is seen in 95 of 100 runs, one of .7 of a single metric in
    nine of ten.
    """
    found = np.array([misses_of(name, FEW, [7, place])[0] for place, name in enumerate(NAMES)])
    assert found.sum(axis=0).max() <= binom.isf(1e-6, FEW * len(NAMES), LEVEL)
    assert found.max() <= binom.isf(1e-6, FEW, LEVEL), dict(zip(NAMES, found, strict=True))


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_limits_miss_at_most_as_often_as_they_may(name: str) -> None:
    found, narrow = misses_of(name, DRAWS, 1)
    assert found.max() <= MOST
    assert narrow.max() > MOST


def amount(y: Array, guesses: Array) -> Array:
    return np.abs(y) * (np.abs(y - guesses) < 0.2)


def size_of(y: Array, guesses: Array) -> Array:
    return np.abs(y)


def ordered(y: Array, guesses: Array, z: Array, others: Array) -> Array:
    return ((y - z) * (guesses - others) > 0).astype(float)


OWN = {
    "ratio": Metric(
        "ratio", "values", score=RatioOfMeans(amount, size_of, (1.5, 1.5)), loss_range=(0, 1),
        offset=1,
    ),
    "pairs": Metric("pairs", "values", score=MeanOfPairs(ordered, (0, 1)), offset=1),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", OWN)
def test_scores_of_ones_own_miss_at_most_as_often_as_they_may(name: str) -> None:
    one = replace(population("r2", np.random.default_rng(0)), metric=OWN[name])
    if name == "pairs":
        # Rows are drawn with replacement: a row may meet itself, which is no pair of all others.
        table = ordered(
            *(one.targets[:, None], one.predictions[:, None]),
            *(one.targets[None, :], one.predictions[None, :]),
        )
        truth = float(table.mean())
    else:
        truth = one.truth()

    def limits(y: Array, guesses: Array, rng: np.random.Generator) -> Limits:
        return score_limits(one.metric, Rows(y, guesses, rng), math.log(LEVEL))

    found, narrow = misses(one, limits, ELSE, truth)
    assert found.max() <= MOST
    assert narrow.max() > MOST


# -- adaptive searches -----------------------------------------------------------------

SEARCHES, QUERIES, CONFIDENCE = 1000, 30, 0.9
# Labels are coins that no model knows anything of: the true scores are known.
TRUTHS = {
    "roc_auc": 0.5,
    "f1": 0.5,
    "balanced_accuracy": 0.5,
    "matthews_corrcoef": 0.0,
    "r2": -0.27,
    "neg_root_mean_squared_error": -math.sqrt(1 / 3 + 0.09),
}


@dataclass
class Search:
    """One search on one holdout; its ladder is the real rule."""

    metric: Metric
    rng: np.random.Generator
    mechanism: SimplifiedLadder = field(default_factory=lambda: SimplifiedLadder(step=0.01))
    improved: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    queries: int = 0
    best: Array | None = None
    before: int = 0
    told: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def __post_init__(self) -> None:
        self.state = self.mechanism.start(ROWS)
        if self.metric.is_classification:
            self.y = self.rng.integers(0, 2, ROWS)
        else:
            self.y = self.rng.uniform(-1.0, 1.0, ROWS)

    def guess(self) -> Array:
        return self.rng.integers(0, 2, ROWS)

    def predictions(self, bits: Array) -> Array:
        if not self.metric.is_classification:
            return np.where(bits == 1, 0.3, -0.3)
        return bits.astype(np.float64 if self.metric.response == "scores" else np.int32)

    def submit(self, bits: Array) -> bool:
        risk = self.metric.evaluate(self.y, self.predictions(bits)).risk
        low, high = self.limits
        before, told = self.queries, (tuple(self.improved), tuple(self.values))
        self.queries += 1
        evidence = Evidence((risk - low) / (high - low))
        self.state, outcome = self.mechanism.decide(self.state, evidence, self.rng)
        if outcome.improved:
            self.improved.append(self.queries)
            self.values.append(round(outcome.risk / 0.01))
            self.best, self.before, self.told = bits, before, told
        return outcome.improved

    @property
    def limits(self) -> tuple[float, float]:
        found = self.metric.risk_range or (0.0, 4.0)
        return found

    def misses(self, *, forgets: bool) -> bool:
        """Tell whether the certificate of the incumbent is false."""
        assert self.best is not None
        count = 0.0
        if not forgets:
            ladder = ladder_transcript(self.before, *self.told, Grid(101))
            count = Transcript.alone(ladder if self.before else None).log_count()
        level = math.log((1.0 - CONFIDENCE) / 2.0) - count
        own, truth = self.predictions(self.best), TRUTHS[self.metric.name]
        found = score_limits(self.metric, Rows(self.y, own, self.rng), level)
        return not found.low <= truth <= found.high


def climb(one: Search) -> None:
    bits = one.guess()
    one.submit(bits)
    for _ in range(QUERIES - 1):
        # Each row is changed with the same chance, so that the true score stays what it is.
        changed = np.where(one.rng.random(ROWS) < 0.1, 1 - bits, bits)
        if one.submit(changed):
            bits = changed


def vote(one: Search) -> None:
    kept = []
    for _ in range(QUERIES - 1):
        bits = one.guess()
        # What improved is voted for, all else against.
        kept.append(bits if one.submit(bits) else 1 - bits)
    one.submit((np.mean([*kept, one.guess()][: QUERIES - 1], axis=0) > 0.5).astype(int))


def luck(one: Search) -> None:
    for _ in range(QUERIES):
        one.submit(one.guess())


@pytest.mark.nightly
@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("analyst", [climb, vote, luck])
def test_certificates_after_a_search_miss_at_most_a_tenth(
    name: str, analyst: Callable[[Search], None]
) -> None:
    metric = METRICS[name]
    if metric.is_mean:
        metric = metric.with_range((0, 1.3))
    elif metric.takes_target_range:
        metric = metric.with_target_range((-1.0, 1.0), loss_range=(0, 1.3))
    missed = [0, 0]
    for seed in range(SEARCHES):
        one = Search(metric, np.random.default_rng(seed))
        analyst(one)
        missed[0] += one.misses(forgets=False)
        missed[1] += one.misses(forgets=True)
    most = int(binom.isf(1e-6, SEARCHES, 1.0 - CONFIDENCE))
    assert missed[0] <= most
    if analyst is climb and name != "r2":
        # Intervals that forget the search fail the same test; those of R2 are too wide for that.
        assert missed[1] > most
