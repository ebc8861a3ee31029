"""Does the priced ladder suit losses between 0 and 1 as well as it does losses of 0 or 1?

Populations and searches of benchmarks/defaults.py, but the loss is the Brier score of two
classes: a model says how likely the label is, by its weighted sum, scaled as the best model's
would be. A grid of 144 models and a random search of 300 are one batch each, the climb of 200
steps is none. Certificates of 95% go by the mean alone (Chernoff and Bentkus). Gains are over
the parameter-free ladder on the same holdouts; behind them their standard errors over seeds.

    python benchmarks/graded.py [--seeds 8]
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from defaults import FEATURES, SIGNALS, Floats, World, grid, random

from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.transcript import Transcript, certify
from ladderholdout.mechanisms import (
    Mechanism,
    ParameterFreeLadder,
    PricedLadder,
    SimplifiedLadder,
    State,
)
from ladderholdout.metrics import Evaluation

SIZES, STEPS = (200, 1000, 5000), 200
NODES, SHARES = np.polynomial.hermite_e.hermegauss(80)
BASE = "parameter-free"
RULES: dict[str, Callable[[int], Mechanism]] = {
    BASE: lambda n: ParameterFreeLadder(),
    "priced, weight .7": lambda n: PricedLadder(),
    "priced, weight 1": lambda n: PricedLadder(weight=1.0),
    "simplified 1/n": lambda n: SimplifiedLadder(step=1 / n),
}


@dataclass
class Graded:
    """A population whose models are asked for chances."""

    world: World

    def losses(self, weights: Floats) -> Floats:
        logits = 2.0 * (self.world.holdout @ self._scaled(weights).astype(np.float32))
        return np.asarray((1.0 + np.exp(logits.astype(np.float64))) ** -2.0)

    def truth(self, weights: Floats) -> float:
        own = self._scaled(weights)
        logits = 2.0 * (own @ self.world.means + np.linalg.norm(own) * NODES)
        return 1.0 - float(np.average((1.0 + np.exp(logits)) ** -2.0, weights=SHARES))

    def _scaled(self, weights: Floats) -> Floats:
        length = np.linalg.norm(weights)
        return weights * (np.linalg.norm(self.world.means) / length if length else 0.0)


@dataclass
class Climb:
    """What was submitted to one ladder, and released."""

    rule: Mechanism
    n: int
    batch: bool
    looks: int = 0
    truth: float = 0.5
    improved: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state: State = self.rule.start(self.n)
        self.rng = np.random.default_rng(0)  # no rule here draws

    def show(self, losses: Floats, truth: float) -> bool:
        self.looks += 1
        evaluation = Evaluation.from_losses(losses)
        self.state, outcome = self.rule.advance(self.state, evaluation, self.rng)
        if outcome.improved:
            self.truth = truth
            self.improved.append(self.looks)
            self.values.append(round(outcome.risk * self.n))
        return outcome.improved

    def found(self) -> tuple[float, float, float]:
        """Return the true score, the certified one, and how many releases there were."""
        last, released = self.improved[-1], tuple(self.values[:-1])
        transcript = Transcript(0, last, (), event=1) if self.batch else Transcript.alone()
        if not self.batch and last > 1:
            ladder = LadderTranscript(last - 1, tuple(self.improved[:-1]), released, self.n + 1)
            transcript = Transcript.alone(ladder)
        risk, step = self.state.standing, 1 / self.n
        high = certify(risk, self.n, transcript, rounding=step, binary=False).high
        return self.truth, 1.0 - high, len(self.improved)


def batched(models: Callable[[World], Floats], one: Graded) -> Iterator[tuple[str, Climb]]:
    weights = models(one.world)
    shown = [(one.losses(own), one.truth(own)) for own in weights]
    for name, rule in RULES.items():
        climb = Climb(rule(one.world.n), one.world.n, batch=True)
        for losses, truth in shown:
            climb.show(losses, truth)
        yield name, climb


def climbed(one: Graded) -> Iterator[tuple[str, Climb]]:
    for name, rule in RULES.items():
        climb = Climb(rule(one.world.n), one.world.n, batch=False)
        rng, best = np.random.default_rng([one.world.seed, 5]), one.world.trained()
        climb.show(one.losses(best), one.truth(best))
        for _ in range(STEPS - 1):
            size = math.exp(rng.uniform(math.log(0.05), math.log(0.5)))
            change = rng.standard_normal(FEATURES) * np.linalg.norm(best) / math.sqrt(FEATURES)
            candidate = best + size * change
            if climb.show(one.losses(candidate), one.truth(candidate)):
                best = candidate
        yield name, climb


SEARCHES: dict[str, Callable[[Graded], Iterator[tuple[str, Climb]]]] = {
    "grid": lambda one: batched(grid, one),
    "random": lambda one: batched(random, one),
    "climb": climbed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="The priced ladder on graded losses.")
    parser.add_argument("--seeds", type=int, default=8)
    seeds = parser.parse_args().seeds
    print(f"Brier score, {seeds} seeds, means over {SIZES} rows and both signals")
    heads = f"{'releases':>10}{'true':>9}{'certified':>11}{'true gain':>18}{'certified gain':>18}"
    print(f"{'':26}{heads}")
    for search, searched in SEARCHES.items():
        found: dict[str, list[list[tuple[float, float, float]]]] = defaultdict(list)
        for seed in range(seeds):
            cells = [(n, least) for n in SIZES for least in SIGNALS.values()]
            of_seed: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
            for n, least in cells:
                for name, climb in searched(Graded(World(n, least, seed))):
                    of_seed[name].append(climb.found())
            for name, ends in of_seed.items():
                found[name].append(ends)
        base = np.mean(found[BASE], axis=1)
        for name, ends in found.items():
            own = np.mean(ends, axis=1)  # one row for each seed
            true, certified, releases = own.mean(axis=0)
            gains = "".join(f"{with_error(gain):>18}" for gain in (own - base).T[:2])
            print(f"{search:8}{name:18}{releases:>10.1f}{true:>9.4f}{certified:>11.4f}{gains}")


def with_error(values: Floats) -> str:
    return f"{values.mean():+.4f} ({values.std(ddof=1) / math.sqrt(len(values)):.4f})"


if __name__ == "__main__":
    main()
