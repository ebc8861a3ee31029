"""False acceptances and power of keep-or-revert rules, by simulation.

    python benchmarks/decisions.py [--runs 1000] [--candidates 200]

Tables of docs/explanation/decisions.md. The first has runs of candidates that are all exactly
as good as the baseline: labels are coins, and a candidate turns some predictions p of the last
one that was kept to 1 - p, which changes no expected loss. The proposer sees which candidates were
kept and goes on from them. The others have true gains. It takes about 20 minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from ladderholdout.mechanisms import (
    GateLadder,
    LadderRules,
    Mechanism,
    ParameterFreeLadder,
    PricedLadder,
)
from ladderholdout.mechanisms.gate import log_chance
from ladderholdout.metrics import Evaluation

Accepts = Callable[[np.ndarray, np.ndarray], bool]
"""Whether a candidate is kept, by the incumbent's losses and its own."""

GAINS = (1, 2, 5, 15)
SHARES = (0.02, 0.1, 0.3, 0.5)
LOSSES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "accuracy": lambda p, y: ((p > 0.5) != y).astype(np.float64),
    "Brier": lambda p, y: (p - y) ** 2,
    "MAE": lambda p, y: np.abs(p - y),
}


def greedy(old: np.ndarray, new: np.ndarray) -> bool:
    """Keep what scores better."""
    return bool(new.mean() < old.mean())


def tested_each(level: float) -> Accepts:
    """Keep what a paired test of its own rejects at a level: McNemar's, or the t-test."""

    def accepts(old: np.ndarray, new: np.ndarray) -> bool:
        gains = old - new
        if set(np.unique(gains)) <= {-1.0, 0.0, 1.0}:
            better, worse = int((gains > 0).sum()), int((gains < 0).sum())
            p = special.bdtrc(better - 1, better + worse, 0.5) if better else 1.0
        else:
            deviation = gains.std(ddof=1) / np.sqrt(len(gains))
            p = special.stdtr(len(gains) - 1, -gains.mean() / deviation) if deviation else 1.0
        return bool(p <= level)

    return accepts


@dataclass(slots=True)
class Course:
    """A rule with its state, as it answers one candidate after the other."""

    rule: Mechanism | Accepts
    counts: bool
    state: object = None

    def keeps(self, old: np.ndarray | None, new: np.ndarray) -> bool:
        """Return whether a candidate is kept; the first one is the baseline."""
        if not isinstance(self.rule, Mechanism):
            return old is None or self.rule(old, new)
        rules = LadderRules(self.rule, show="improvements")
        state = rules.start(len(new)) if self.state is None else self.state
        evaluation = Evaluation(len(new), float(new.mean()), new, counts=self.counts)
        rng = np.random.default_rng(0)  # none of these rules draws
        self.state, outcome = rules.step(state, evaluation, rng)
        return outcome.improved


def kept_of_null(
    rule: Mechanism | Accepts, metric: str, n: int, candidates: int, seed: int
) -> np.ndarray:
    """Return for each candidate whether it was kept, though none is better."""
    rng = np.random.default_rng([seed, n, 34])
    y, kept = rng.integers(0, 2, n), rng.random(n)
    loss, course = LOSSES[metric], Course(rule, metric == "accuracy")
    losses = loss(kept, y)
    course.keeps(None, losses)
    flags, share = np.zeros(candidates, dtype=bool), float(rng.choice(SHARES))
    for place in range(candidates):
        proposed = np.where(rng.random(n) < share, 1.0 - kept, kept)
        new = loss(proposed, y)
        flags[place] = course.keeps(losses, new)
        if flags[place]:
            kept, losses = proposed, new
        else:
            # What was kept is tried again; what was not is not.
            share = float(rng.choice(SHARES))
    return flags


def rules(metric: str, candidates: int) -> dict[str, Mechanism | Accepts]:
    """Return what is compared, by its name in the table."""
    default = PricedLadder() if metric == "accuracy" else ParameterFreeLadder()
    return {
        "greedy": greedy,
        "a test at .05 each": tested_each(0.05),
        "the default ladder": default,
        f"GateLadder(horizon={candidates})": GateLadder(horizon=candidates),
        "GateLadder()": GateLadder(),
    }


def false_acceptances(runs: int, candidates: int) -> None:
    """Print the first table."""
    print(f"{runs} runs of {candidates} candidates that are no better; alpha = .05")
    heads = f"{'':<28}{'kept a run':>12}{'runs with any':>16}"
    for metric in LOSSES:
        for n in (300, 1000):
            print(f"{f'{metric}, n = {n}':<28}{heads[28:]}")
            for name, rule in rules(metric, candidates).items():
                flags = [kept_of_null(rule, metric, n, candidates, seed) for seed in range(runs)]
                kept = np.array([flag.sum() for flag in flags])
                print(f"  {name:<26}{kept.mean():>12.3f}{(kept > 0).mean():>16.3f}", flush=True)


def losses_of_gain(
    rng: np.random.Generator, n: int, gain: float, discordance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return losses of two models of which the second is better by a gain."""
    drawn, better = rng.random(n), (discordance + gain) / 2.0
    wrong = drawn > 0.8
    old = np.where(drawn < better, 1.0, np.where(drawn < discordance, 0.0, wrong))
    new = np.where(drawn < better, 0.0, np.where(drawn < discordance, 1.0, wrong))
    return old, new


def power(runs: int, candidates: int) -> None:
    """Print the second table."""
    rng, accepted, alone = np.random.default_rng(34), dict[str, int](), 0
    gates = [GateLadder(), GateLadder(horizon=candidates)]
    named = dict(zip(("GateLadder()", f"GateLadder(horizon={candidates})"), gates, strict=True))
    for _ in range(runs):
        old, new = losses_of_gain(rng, 1000, 0.05, 0.15)
        place = int(rng.integers(1, candidates + 1))
        alone += tested_each(0.05 / candidates)(old, new)
        for name, rule in named.items():
            course = Course(rule, True)
            course.keeps(None, old)
            for _ in range(place - 1):
                course.keeps(old, np.ones(1000))
            accepted[name] = accepted.get(name, 0) + course.keeps(old, new)
    print(f"\na true gain of .05 on 1,000 rows, .15 discordant, among {candidates}: accepted")
    print(f"  {f'a test at .05/{candidates}':<26}{alone / runs:>12.3f}")
    for name, count in accepted.items():
        print(f"  {name:<26}{count / runs:>12.3f}")
    print("\na climb of ten true gains of .02 on 5,000 rows, .06 discordant: kept of ten")
    for name, rule in {
        "GateLadder()": GateLadder(),
        "GateLadder(horizon=10)": GateLadder(horizon=10),
    }.items():
        kept = [_climb(rule, seed) for seed in range(max(runs // 10, 1))]
        print(f"  {name:<26}{np.mean(kept):>12.2f}")


def _climb(rule: GateLadder, seed: int) -> int:
    """Return how many of ten true gains are kept, each on top of the last one proposed."""
    rng, course = np.random.default_rng([seed, 35]), Course(rule, True)
    losses = (rng.random(5000) < 0.5).astype(np.float64)
    course.keeps(None, losses)
    kept = 0
    for _ in range(10):
        # Right on .04 more and wrong on .02 more, whatever they were.
        drawn = rng.random(5000)
        wrong, right = losses == 1.0, losses == 0.0
        mended = wrong & (drawn < 0.04 / wrong.mean())
        broken = right & (drawn < 0.02 / right.mean())
        losses = np.where(mended, 0.0, np.where(broken, 1.0, losses))
        kept += course.keeps(None, losses)
    return kept


def kept_by_number(runs: int, candidates: int) -> None:
    """Print which share of several true gains is kept; counts of discordant rows are drawn."""
    print("\ntrue gains of .05 on 1,000 rows, .10 discordant, at random places: share that is kept")
    levels: dict[str, Callable[[int, int], float]] = {
        f"a test at .05/{candidates} each": lambda t, accepted: 0.05 / candidates,
        "GateLadder()": lambda t, accepted: 0.05 * np.exp(log_chance(t, accepted + 1, None)),
        f"GateLadder(horizon={candidates})": lambda t, accepted: (
            0.05 * np.exp(log_chance(t, accepted + 1, candidates))
        ),
    }
    print(f"  {'gains among ' + str(candidates):<26}" + "".join(f"{k:>8}" for k in GAINS))
    for name, level in levels.items():
        shares = []
        for gains in GAINS:
            rng, kept = np.random.default_rng([gains, 44]), 0
            for _ in range(runs):
                true = np.isin(np.arange(candidates), rng.permutation(candidates)[:gains])
                better = rng.binomial(1000, np.where(true, 0.075, 0.025))
                both = better + rng.binomial(1000, 0.025, candidates)
                p_values, accepted = special.bdtrc(better - 1.0, both, 0.5), 0
                for place in range(candidates):
                    if p_values[place] <= level(place + 1, accepted):
                        accepted += 1
                        kept += int(true[place])
            shares.append(kept / (runs * gains))
        print(f"  {name:<26}" + "".join(f"{share:>8.2f}" for share in shares))


def confidence_line(runs: int) -> str:
    """Return up to which share of runs a rate of 5 % is not refuted at .001."""
    most = int(stats.binom.isf(1e-3, runs, 0.05))
    return f"at a true 5 % a rate above {most / runs:.3f} is seen once in a thousand times"


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--candidates", type=int, default=200)
    stated = parser.parse_args()
    false_acceptances(stated.runs, stated.candidates)
    print(confidence_line(stated.runs))
    power(stated.runs, stated.candidates)
    kept_by_number(stated.runs, stated.candidates)


if __name__ == "__main__":
    main()
