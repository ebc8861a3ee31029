"""The ladders of Neto et al. on a whole round of submissions at once.

None of the submissions of a round depends on an answer to another, so their losses are one
matrix, and the library's rules decide only on those that are better than the incumbent; all
numbers are those of single submissions (tests/project/test_papers_neto.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from _neto_data import Floats

from ladderholdout.mechanisms import Evidence, FullDisclosure, LadderBoot, PairedTestLadder, State
from ladderholdout.mechanisms.resampling import paired_p

Rule = FullDisclosure | PairedTestLadder | LadderBoot
ALPHAS, BOOTSTRAPS = (0.01, 0.15, 0.5), (10, 100, 1000)
FULL: dict[str, Rule] = {"full disclosure": FullDisclosure()}
LADDERS: dict[str, Rule] = {f"Ladder {alpha}": PairedTestLadder(alpha) for alpha in ALPHAS}
BOOTS: dict[str, Rule] = {
    f"LadderBoot {alpha}, b = {b}": LadderBoot(alpha, b) for b in BOOTSTRAPS for alpha in ALPHAS
}


class Incumbent(NamedTuple):
    """What a ladder remembers between two rounds: a risk to be below, and the losses."""

    risk: float = math.inf
    losses: Floats | None = None


class Round(NamedTuple):
    """The releases of a round, and at which of its submissions the ladder improved."""

    releases: Floats
    jumps: list[int]
    incumbent: Incumbent


def climb(rule: Rule, incumbent: Incumbent, losses: Floats, rng: np.random.Generator) -> Round:
    """Submit a round of losses (k, n) to a ladder."""
    risks = losses.mean(axis=1)
    if isinstance(rule, FullDisclosure):
        return Round(risks, [], incumbent)
    jumps: list[int] = []
    releases: list[Floats] = []
    at = 0
    while at < len(losses):
        improver, risk = _next(rule, incumbent, losses, risks, at, rng)
        releases.append(_waiting(rule, incumbent, improver - at, rng))
        if improver == len(losses):
            break
        incumbent = Incumbent(risk, losses[improver])
        jumps.append(improver)
        releases.append(_waiting(rule, incumbent, 1, rng))
        at = improver + 1
    return Round(np.concatenate(releases), jumps, incumbent)


def _next(
    rule: PairedTestLadder | LadderBoot,
    incumbent: Incumbent,
    losses: Floats,
    risks: Floats,
    at: int,
    rng: np.random.Generator,
) -> tuple[int, float]:
    """Return the next submission that improves and its risk, or how many there are."""
    n = losses.shape[1]
    # No test passes what is not better. This one compares with the rounded risk, or the true.
    promising = at + np.flatnonzero(risks[at:] < incumbent.risk)
    spreads = np.zeros(len(promising))
    if incumbent.losses is not None:
        spreads = (losses[promising] - incumbent.losses).std(axis=1, ddof=1) / math.sqrt(n)
    for i, spread in zip(promising.tolist(), spreads.tolist(), strict=True):
        risk = float(risks[i])
        p_null = paired_p(risk, incumbent.risk, spread, n)
        # A release of the risk itself: what a ladder that bootstraps compares the next ones with.
        evidence = Evidence(risk, spread, p_null, estimate=risk)
        _, outcome = rule.decide(State(n, incumbent.risk), evidence, rng)
        if outcome.improved:
            return i, outcome.risk
    return len(losses), incumbent.risk


def _waiting(
    rule: PairedTestLadder | LadderBoot, incumbent: Incumbent, count: int, rng: np.random.Generator
) -> Floats:
    """Return the releases while nothing improves: drawn anew each time, or the last one."""
    if isinstance(rule, PairedTestLadder) or incumbent.losses is None:
        return np.full(count, incumbent.risk)
    n = len(incumbent.losses)
    draws = rule.n_bootstrap * n
    counts = rng.multinomial(draws, np.full(n, 1 / n), size=count)
    return np.asarray(counts @ incumbent.losses / draws)
