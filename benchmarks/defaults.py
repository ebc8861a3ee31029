"""Which rule leaves the user with the best certified score, and with the best true one?

    python benchmarks/defaults.py --quick
    python benchmarks/defaults.py --seeds 20 --jobs 2

A row has a label of two, and 40 features, normal around the label times a mean of their own.
A model is a vector of weights, from 100 training rows; whatever its weights are, its true
score is known in closed form, and its holdout errors are real ones. Five searches on each
holdout:

- grid: 144 models (an exponent and a threshold for the weights, four resamples of the
  training rows); one batch.
- random: 300 models, parameters and resamples at random; one batch.
- TPE: 100 trials of Optuna, steered by the score on 300 training-side rows (the inner score alone,
  as is the library's default), each shown to the holdout.
- forward: each round tries every feature that is left, and keeps what improved last.
- climb: 500 changes to the incumbent's weights, by a twentieth to a half of them.

Every rule meets the same holdouts and, but for forward and climb, the same models. The rules
called "one bit" are ladders that tell of a model whether it improved; somebody asks for the score
that stands when the search is over or, "asked", before every 50th look as well, and what was
asked for before the last incumbent is paid for. The column "one bit" is the same search under the
same rule, certified as if no value had been told before its end.
With a reserve, the ladder climbs on the other rows, and one look at the reserve certifies.
Behind a mean stands its standard error over the seeds. All numbers depend on the seeds alone.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.reserve_intervals import reserve_log_count
from ladderholdout.certificates.transcript import Transcript, certify, grid_of
from ladderholdout.limits.intervals import exact_upper
from ladderholdout.mechanisms import (
    Evidence,
    Ladder,
    Mechanism,
    Outcome,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    SimplifiedLadder,
    State,
)
from ladderholdout.mechanisms.arithmetic import round_half_up

SIZES = (200, 1000, 5000, 50_000)
SIGNALS = {"strong": 0.05, "weak": 0.35}  # the least risk of any model
FEATURES, TRAIN, INNER = 40, 100, 300
RANDOM, TRIALS, STEPS, FINALISTS = 300, 100, 500, 3
CONFIDENCE = 0.95

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counted = Literal["falling"]


# --- the population -----------------------------------------------------------------------


@dataclass
class World:
    """One population, its training rows and its holdout."""

    n: int
    least: float
    seed: int

    def __post_init__(self) -> None:
        # Models and training rows are the same for all sizes of the holdout.
        rng = np.random.default_rng([self.seed, round(100 * self.least)])
        means = rng.choice([-1.0, 1.0], FEATURES) / np.arange(1, FEATURES + 1) ** 0.7
        self.means = rng.permutation(means) * (-ndtri(self.least) / np.linalg.norm(means))
        self.train = self._rows(TRAIN, rng)
        self.inner_rows = self._rows(INNER, rng)
        rng = np.random.default_rng([self.seed, round(100 * self.least), self.n])
        self.holdout = self._rows(self.n, rng).astype(np.float32)

    def _rows(self, count: int, rng: np.random.Generator) -> Floats:
        """Features times label: a model errs on a row where its weighted sum is negative."""
        return rng.standard_normal((count, FEATURES)) + self.means

    def truth(self, weights: Floats) -> float:
        length = float(np.linalg.norm(weights))
        return float(ndtr(weights @ self.means / length)) if length else 0.5

    def losses(self, weights: Floats) -> Flags:
        return np.asarray(self.holdout @ weights.astype(np.float32).T < 0.0).T

    def inner_score(self, weights: Floats) -> float:
        return float(np.mean(self.inner_rows @ weights >= 0.0))

    def trained(self, rng: np.random.Generator | None = None) -> Floats:
        if rng is None:
            return self.train.mean(axis=0)
        return self.train[rng.integers(0, TRAIN, TRAIN)].mean(axis=0)


def shaped(means: Floats, exponent: float, threshold: float) -> Floats:
    """Weights from estimated means: those below a quantile are dropped."""
    size = np.abs(means)
    kept = size >= np.quantile(size, threshold)
    return np.where(kept, np.sign(means) * size**exponent, 0.0)


# --- who judges -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpentTestLadder(PairedTestLadder):
    """A paired test whose level is spent: alpha / j^2 for release j after the first."""

    counted: ClassVar[Counted] = "falling"

    def decide(
        self, state: State, evidence: Evidence, rng: np.random.Generator
    ) -> tuple[State, Outcome]:
        level = self.alpha / max(state.releases, 1) ** 2
        return PairedTestLadder(level).decide(state, evidence, rng)


@dataclass(frozen=True, slots=True)
class CoarseTestLadder(PairedTestLadder):
    """A paired test whose releases are rounded to a step."""

    step: float = 0.01
    counted: ClassVar[Counted] = "falling"

    def decide(
        self, state: State, evidence: Evidence, rng: np.random.Generator
    ) -> tuple[State, Outcome]:
        after, outcome = PairedTestLadder(self.alpha).decide(state, evidence, rng)
        risk = round_half_up(outcome.risk, self.step)
        if not outcome.improved or not risk < state.standing:
            return state, Outcome(state.standing, False, evidence)
        return State(state.n, risk, releases=after.releases), Outcome(risk, True, evidence)

    def resolution(self, n: int) -> float:
        return self.step


@dataclass(frozen=True, slots=True)
class Variant:
    """A rule with its settings, as a function of the number of rows and of submissions."""

    rule: Callable[[int], Mechanism]
    reserve: float = 0.0
    profits: bool = False  # releases only what raises the certified score
    silent: bool = False  # shows improvements alone
    asks: int = 0  # of one that does so: looks between two requests; 0 for none
    one_bit: bool = False  # and that with the prices of a ladder that tells no values
    combined: str = ""  # with a reserve: the level split between both certificates, or a product


def root(n: int, parts: float) -> float:
    return max(1.0 / (parts * math.sqrt(n)), 1.0 / n)


VARIANTS: dict[str, Variant] = {
    "parameter-free": Variant(lambda n: ParameterFreeLadder()),
    "paired .05": Variant(lambda n: PairedTestLadder(0.05)),
    "paired .01": Variant(lambda n: PairedTestLadder(0.01)),
    "paired .001": Variant(lambda n: PairedTestLadder(0.001)),
    "ladder 1/sqrt n": Variant(lambda n: Ladder(root(n, 1))),
    "ladder 1/(2 sqrt n)": Variant(lambda n: Ladder(root(n, 2))),
    "ladder 1/(4 sqrt n)": Variant(lambda n: Ladder(root(n, 4))),
    "ladder .01": Variant(lambda n: Ladder(0.01)),
    "simplified 1/n": Variant(lambda n: SimplifiedLadder(1 / n)),
    "paired, level spent": Variant(lambda n: SpentTestLadder(0.05)),
    "paired .05, coarse": Variant(lambda n: CoarseTestLadder(0.05, root(n, 4))),
    "paired .01, coarse": Variant(lambda n: CoarseTestLadder(0.01, root(n, 4))),
    "priced, weight 1": Variant(lambda n: PricedLadder(1.0)),
    "priced, weight .7": Variant(lambda n: PricedLadder(0.7)),
    "priced, weight .5": Variant(lambda n: PricedLadder(0.5)),
    "priced, weight .3": Variant(lambda n: PricedLadder(0.3)),
    "profit": Variant(lambda n: SimplifiedLadder(1 / n), profits=True),
    "profit, one bit": Variant(lambda n: SimplifiedLadder(1 / n), profits=True, one_bit=True),
    "one bit .15": Variant(lambda n: PairedTestLadder(0.15), silent=True),
    "one bit .05": Variant(lambda n: PairedTestLadder(0.05), silent=True),
    "one bit .01": Variant(lambda n: PairedTestLadder(0.01), silent=True),
    "one bit .001": Variant(lambda n: PairedTestLadder(0.001), silent=True),
    "one bit .05, asked": Variant(lambda n: PairedTestLadder(0.05), silent=True, asks=50),
    "parameter-free, reserve .1": Variant(lambda n: ParameterFreeLadder(), reserve=0.1),
    "parameter-free, reserve .3": Variant(lambda n: ParameterFreeLadder(), reserve=0.3),
    "parameter-free, reserve .5": Variant(lambda n: ParameterFreeLadder(), reserve=0.5),
    "simplified, reserve .3": Variant(lambda n: SimplifiedLadder(1 / n), reserve=0.3),
    "simplified, reserve .5": Variant(lambda n: SimplifiedLadder(1 / n), reserve=0.5),
    "paired .05, reserve .3": Variant(lambda n: PairedTestLadder(0.05), reserve=0.3),
    "simplified, res. .5, split": Variant(
        lambda n: SimplifiedLadder(1 / n), reserve=0.5, combined="split"
    ),
    "simplified, res. .5, product": Variant(
        lambda n: SimplifiedLadder(1 / n), reserve=0.5, combined="product"
    ),
}


class Found(NamedTuple):
    """What one search came to: scores, and what its certificate rests on."""

    true: float
    released: float
    certified: float
    one_bit: float
    releases: float

    @property
    def optimism(self) -> float:
        return self.released - self.true


@dataclass
class Guard:
    """A ladder climbed by one search, and its certificates."""

    world: World
    variant: Variant
    submissions: int
    batch: bool = False
    announced: bool = False  # of a batch: its length is on record before its first answer
    looks: int = 0
    improved: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    asked: set[int] = field(default_factory=set)
    truth: float = 0.5

    def __post_init__(self) -> None:
        n = self.world.n
        self.kept = round(self.variant.reserve * n)
        self.n = n - self.kept
        self.mechanism = self.variant.rule(self.n)
        self.step = self.mechanism.resolution(self.n)
        grid = grid_of(self.mechanism, self.n, binary=True)
        assert grid is not None
        self.n_values = grid.n_values
        self.state = self.mechanism.start(self.n)
        self.losses: Flags = np.zeros(n, dtype=bool)
        self.best_high = math.inf
        self.rng = np.random.default_rng(0)  # no rule here draws

    def show(self, losses: Flags, truth: float) -> bool:
        """Submit a model; return whether it improved."""
        self.looks += 1
        if self.variant.asks and self.looks % self.variant.asks == 0:
            self.asked.add(len(self.improved) - 1)
        risk = np.count_nonzero(losses[: self.n]) / self.n
        # None of the rules releases what is not below the standing risk.
        if not risk < self.state.standing:
            return False
        after, outcome = self.mechanism.decide(self.state, self._evidence(losses, risk), self.rng)
        if not outcome.improved:
            return False
        if self.variant.profits:
            high = self._high(outcome.risk, self.looks, len(self.improved), self.variant.one_bit)
            if high >= self.best_high:
                return False
            self.best_high = high
        self.state, self.losses, self.truth = after, losses, truth
        self.improved.append(self.looks)
        self.values.append(round(outcome.risk / self.step))
        return True

    def _evidence(self, losses: Flags, risk: float) -> Evidence:
        if not self.improved:
            return Evidence(risk)
        ours, theirs = losses[: self.n], self.losses[: self.n]
        mean = risk - np.count_nonzero(theirs) / self.n
        differing = np.count_nonzero(ours != theirs) / self.n
        variance = max(differing - mean * mean, 0.0) / (self.n - 1)
        return Evidence(risk, math.sqrt(variance))

    def _transcript(self, look: int, told: int, one_bit: bool) -> Transcript:
        before = 0 if self.batch else look - 1
        if not before:
            size = self.submissions if self.batch and self.announced else None
            return Transcript(0, look, (), size=size, event=1) if self.batch else Transcript.alone()
        known = sorted(self.asked & set(range(told))) if self.variant.silent else range(told)
        values = () if one_bit else tuple(self.values[i] for i in known)
        improved = tuple(self.improved[:told])
        ladder = LadderTranscript(before, improved, values, self.n_values)
        return Transcript.alone(ladder)

    def _high(
        self, risk: float, look: int, told: int, one_bit: bool, confidence: float = CONFIDENCE
    ) -> float:
        transcript = self._transcript(look, told, one_bit)
        return certify(risk, self.n, transcript, confidence=confidence, rounding=self.step).high

    def found(self) -> Found:
        last, told = self.improved[-1], len(self.improved) - 1
        released = self.state.standing
        if not self.kept:
            ends = [self._high(released, last, told, bits) for bits in (False, True)]
        else:
            errors = int(np.count_nonzero(self.losses[self.n :]))
            ends = [self._combined(errors, bits) for bits in (False, True)]
            released = errors / self.kept
        return Found(self.truth, 1 - released, 1 - ends[0], 1 - ends[1], len(self.improved))

    def _combined(self, errors: int, one_bit: bool) -> float:
        """An upper limit from the reserve, and where it is asked for from the ladder as well."""
        log_level = math.log((1.0 - CONFIDENCE) / 2.0) - reserve_log_count(1)
        if not self.variant.combined:
            return exact_upper(errors, self.kept, log_level)
        last, told = self.improved[-1], len(self.improved) - 1
        risk = self.state.standing
        if self.variant.combined == "split":
            reserve = exact_upper(errors, self.kept, log_level - math.log(2.0))
            level = 1.0 - (1.0 - CONFIDENCE) / 2.0
            return min(reserve, self._high(risk, last, told, one_bit, level))
        # Both tails are p-values, the second one given the first: their product c has the
        # chance c (1 - ln c).
        price = self._transcript(last, told, one_bit).log_count()
        goal = float(brentq(lambda c: c + math.log1p(-c) - log_level, 3 * log_level - 9, log_level))

        def excess(p: float) -> float:
            first = min(0.0, price + float(binom.logcdf(round(risk * self.n), self.n, p)))
            return first + float(binom.logcdf(errors, self.kept, p)) - goal

        return 1.0 if excess(1 - 1e-9) > 0.0 else float(brentq(excess, 1e-9, 1 - 1e-9))


# --- the searches ---------------------------------------------------------------------------


def grid(world: World) -> Floats:
    rng = np.random.default_rng([world.seed, 1])
    means = [world.trained(), *(world.trained(rng) for _ in range(3))]
    return np.array(
        [
            shaped(one, exponent, threshold)
            for one in means
            for exponent in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
            for threshold in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
        ]
    )


def random(world: World) -> Floats:
    rng = np.random.default_rng([world.seed, 2])
    return np.array(
        [shaped(world.trained(rng), rng.uniform(0, 3), rng.uniform(0, 0.95)) for _ in range(RANDOM)]
    )


@lru_cache(maxsize=4)
def _study(seed: int, least: float) -> Floats:
    """The inner score alone steers, so that a study does not depend on the holdout at all."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    world = World(1, least, seed)
    rng = np.random.default_rng([seed, 3])
    parts = [world.trained(rng) for _ in range(4)]
    tried: list[Floats] = []

    def objective(trial: Any) -> float:
        mix = [trial.suggest_float(f"mix{i}", -0.5, 1.5) for i in range(4)]
        means = sum(share * part for share, part in zip(mix, parts, strict=True))
        weights = shaped(
            np.asarray(means),
            trial.suggest_float("exponent", 0, 3),
            trial.suggest_float("cut", 0, 0.95),
        )
        tried.append(weights)
        return world.inner_score(weights)

    sampler = optuna.samplers.TPESampler(seed=seed)
    optuna.create_study(direction="maximize", sampler=sampler).optimize(objective, TRIALS)
    return np.array(tried)


def tpe(world: World) -> Floats:
    return _study(world.seed, world.least)


def finalists(world: World) -> Floats:
    weights = tpe(world)
    inner_scores = np.array([world.inner_score(one) for one in weights])
    return weights[np.argsort(-inner_scores, kind="stable")[:FINALISTS]]


# How candidates come, and whether they are one batch.
FIXED: dict[str, tuple[Callable[[World], Floats], bool]] = {
    "grid": (grid, True),
    "random": (random, True),
    "TPE": (tpe, False),
    "TPE, one batch": (tpe, True),
    "TPE, 3 finalists": (finalists, True),
}


def forward(guard: Guard, world: World) -> None:
    rng = np.random.default_rng([world.seed, 4])
    means = world.trained()
    chosen = np.zeros(FEATURES, dtype=bool)
    sums = np.zeros(world.n, dtype=np.float32)
    while not chosen.all():
        adopted = None
        for j in rng.permutation(np.flatnonzero(~chosen)):
            losses = sums + world.holdout[:, j] * np.float32(means[j]) < 0.0
            weights = np.where(chosen, means, 0.0)
            weights[j] = means[j]
            if guard.show(losses, world.truth(weights)):
                adopted = j
        if adopted is None:
            return
        chosen[adopted] = True
        sums += world.holdout[:, adopted] * np.float32(means[adopted])


def climb(guard: Guard, world: World) -> None:
    rng = np.random.default_rng([world.seed, 5])
    best = world.trained()
    guard.show(world.losses(best), world.truth(best))
    for _ in range(STEPS - 1):
        size = math.exp(rng.uniform(math.log(0.05), math.log(0.5)))
        change = rng.standard_normal(FEATURES) * np.linalg.norm(best) / math.sqrt(FEATURES)
        candidate = best + size * change
        if guard.show(world.losses(candidate), world.truth(candidate)):
            best = candidate


LEARNING: dict[str, tuple[Callable[[Guard, World], None], int]] = {
    "forward": (forward, FEATURES * (FEATURES + 1) // 2),
    "climb": (climb, STEPS),
}


class Task(NamedTuple):
    """All searches on one holdout."""

    n: int
    signal: str
    seed: int


def searched(
    task: Task, chosen: frozenset[str], announced: bool = False
) -> list[tuple[str, str, Found]]:
    """Return search, variant and what was found."""
    variants = {label: one for label, one in VARIANTS.items() if label in chosen}
    world = World(task.n, SIGNALS[task.signal], task.seed)
    found = []
    for name, (models, batch) in FIXED.items():
        weights = models(world)
        losses, truths = world.losses(weights), [world.truth(one) for one in weights]
        for label, variant in variants.items():
            guard = Guard(world, variant, len(weights), batch, announced)
            for own, truth in zip(losses, truths, strict=True):
                guard.show(own, truth)
            found.append((name, label, guard.found()))
    for name, (search, submissions) in LEARNING.items():
        for label, variant in variants.items():
            guard = Guard(world, variant, submissions)
            search(guard, world)
            found.append((name, label, guard.found()))
    return found


# --- the report -----------------------------------------------------------------------------

Key = tuple[int, str, str, str]  # n, signal, search, rule
Results = dict[Key, list[Found]]
Chosen = Callable[[Key], bool]
BASE = "parameter-free"
NOT_BATCHED = ("TPE", "forward", "climb")


def rules_in(results: Results) -> list[str]:
    found = {key[3] for key in results}
    return [rule for rule in VARIANTS if rule in found]


def pooled(results: Results, rule: str, value: str, chosen: Chosen) -> Floats:
    """Means over the chosen cells, one for each seed."""
    cells = [found for key, found in results.items() if key[3] == rule and chosen(key)]
    return np.mean([[getattr(one, value) for one in found] for found in cells], axis=0)


def with_error(values: Floats) -> str:
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{values.mean():+.4f} ({error:.4f})"


def summary(results: Results, title: str, chosen: Chosen) -> Iterator[str]:
    """A line for each rule; gains are those over the base, on the same holdouts."""
    yield title
    heads = ("releases", "true", "released", "certified", "one bit")
    gains = ("optimism", "true gain", "certified gain")
    yield " " * 28 + "".join(f"{h:>10}" for h in heads) + "".join(f"{h:>18}" for h in gains)
    for rule in rules_in(results):
        true, certified, optimism = (
            pooled(results, rule, value, chosen) for value in ("true", "certified", "optimism")
        )
        shown = f"{pooled(results, rule, 'releases', chosen).mean():>10.1f}"
        for value in ("true", "released", "certified", "one_bit"):
            shown += f"{pooled(results, rule, value, chosen).mean():>10.4f}"
        true_gain = true - pooled(results, BASE, "true", chosen)
        certified_gain = certified - pooled(results, BASE, "certified", chosen)
        for values in (optimism, true_gain, certified_gain):
            shown += f"{with_error(values):>18}"
        yield f"{rule:28}{shown}"
    yield ""


def by_size(results: Results, value: str) -> Iterator[str]:
    """A line for each rule, a column for each size and kind of search."""
    kinds = {"not one batch": True, "one batch": False}
    yield f"{value} score; columns are n, for searches that are not one batch and that are"
    sizes = sorted({key[0] for key in results})
    yield " " * 28 + "".join(f"{n:>9}" for _ in kinds for n in sizes)
    for rule in rules_in(results):
        means = [
            pooled(
                results, rule, value, lambda k, n=n, o=o: k[0] == n and (k[2] in NOT_BATCHED) == o
            ).mean()
            for o in kinds.values()
            for n in sizes
        ]
        yield f"{rule:28}" + "".join(f"{mean:>9.4f}" for mean in means)
    yield ""


def misses(results: Results) -> str:
    """How often a certified score was above the true one: at most 2.5 in 100 would be fair."""
    everything = [one for found in results.values() for one in found]
    missed = sum(one.certified > one.true for one in everything)
    return f"{missed} of {len(everything)} certified scores are above the true one"


def report(results: Results, full: bool) -> Iterator[str]:
    yield misses(results)
    yield ""
    yield from summary(
        results,
        f"Searches that are not one batch: {', '.join(NOT_BATCHED)}",
        lambda key: key[2] in NOT_BATCHED,
    )
    yield from summary(
        results, "Searches that are one batch", lambda key: key[2] not in NOT_BATCHED
    )
    for value in ("certified", "true"):
        yield from by_size(results, value)
    for name in (*FIXED, *LEARNING):
        for signal in SIGNALS:
            yield from summary(
                results,
                f"{name}, {signal} signal, all sizes",
                lambda key, c=(signal, name): key[1:3] == c,
            )
    if full:
        for cell in dict.fromkeys(key[:3] for key in results):
            n, signal, name = cell
            title = f"n = {n}, {signal} signal, {name}"
            yield from summary(results, title, lambda key, c=cell: key[:3] == c)


def main() -> None:
    parser = argparse.ArgumentParser(description="Which rule should be the default?")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="two seeds, without n = 50,000")
    parser.add_argument("--announced", action="store_true", help="batches announce their length")
    parser.add_argument("--full", action="store_true", help="a table for each cell as well")
    parser.add_argument("--records", help="write what each search came to into this CSV file")
    parser.add_argument(
        "--rules", nargs="+", choices=VARIANTS, default=VARIANTS, help="these, and the base"
    )
    asked = parser.parse_args()
    chosen = frozenset({BASE, *asked.rules})
    seeds = 2 if asked.quick else asked.seeds
    sizes = SIZES[:-1] if asked.quick else SIZES
    tasks = [Task(n, s, seed) for seed in range(seeds) for s in SIGNALS for n in sizes]
    results: Results = defaultdict(list)
    with ProcessPoolExecutor(asked.jobs) as pool:
        answers = pool.map(searched, tasks, repeat(chosen), repeat(asked.announced))
        for task, found in zip(tasks, answers, strict=True):
            for search, rule, one in found:
                results[task.n, task.signal, search, rule].append(one)
    if asked.records:
        write(asked.records, results)
    print(f"{seeds} seeds; in brackets the standard errors over seeds")
    print("\n".join(report(results, asked.full)))


def write(file: str, results: Results) -> None:
    with open(file, "w", newline="") as written:
        out = csv.writer(written)
        out.writerow(("n", "signal", "search", "rule", "seed", *Found._fields))
        for key, found in results.items():
            out.writerows((*key, seed, *one) for seed, one in enumerate(found))


if __name__ == "__main__":
    main()
