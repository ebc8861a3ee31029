"""One rule on one order of a history: what it releases, and what may be believed of its winner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates.transcript import (
    Grid,
    Transcript,
    certify,
    grid_of,
    ladder_transcript,
)
from ladderholdout.estimates import corrected
from ladderholdout.mechanisms import (
    Evidence,
    Ladder,
    LadderRules,
    Mechanism,
    Outcome,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    SimplifiedLadder,
    State,
)
from ladderholdout.mechanisms.arithmetic import round_half_up
from ladderholdout.metrics import Evaluation, get_metric

CONFIDENCE = 0.95

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RoundedTestLadder(PairedTestLadder):
    """A paired test whose releases are rounded to a step."""

    step: float = 0.01
    counted: ClassVar[Literal["falling", "any"] | None] = "falling"

    def decide(
        self, state: State, evidence: Evidence, rng: np.random.Generator
    ) -> tuple[State, Outcome]:
        after, outcome = PairedTestLadder(self.alpha).decide(state, evidence, rng)
        risk = round_half_up(outcome.risk, self.step)
        if not outcome.improved or not risk < state.standing:
            return state, Outcome(state.standing, False, evidence)
        return replace(after, standing=risk), Outcome(risk, True, evidence)

    def resolution(self, n: int) -> float:
        return self.step


@dataclass(frozen=True, slots=True)
class Rule:
    """A mechanism as a function of the number of rows, and how much of a release it shows.

    Attributes
    ----------
    mechanism : callable
    shows : {"values", "bits"} or callable
        The released values; whether a model improved, and the score of the winner at the end; or
        that with the score rounded to a step, a function of the number of rows.
    """

    mechanism: Callable[[int], Mechanism]
    shows: Literal["values", "bits"] | Callable[[int], float] = "values"


def root(n: int, part: int = 1) -> float:
    return 1.0 / (part * math.sqrt(n))


RULES = {
    "priced .7 (default)": Rule(lambda n: PricedLadder(0.7)),
    "priced 1": Rule(lambda n: PricedLadder(1.0)),
    "priced 2": Rule(lambda n: PricedLadder(2.0)),
    "simplified 1/n": Rule(lambda n: SimplifiedLadder(1 / n)),
    "simplified .01": Rule(lambda n: SimplifiedLadder(0.01)),
    "simplified .02": Rule(lambda n: SimplifiedLadder(0.02)),
    "simplified .03": Rule(lambda n: SimplifiedLadder(0.03)),
    "simplified 1/(2 sqrt n)": Rule(lambda n: SimplifiedLadder(root(n, 2))),
    "ladder 1/(2 sqrt n)": Rule(lambda n: Ladder(root(n, 2))),
    "ladder 1/sqrt n": Rule(lambda n: Ladder(root(n))),
    "parameter-free": Rule(lambda n: ParameterFreeLadder()),
    "paired .05": Rule(lambda n: PairedTestLadder(0.05)),
    "paired .01": Rule(lambda n: PairedTestLadder(0.01)),
    "paired .05, rounded": Rule(lambda n: RoundedTestLadder(0.05, step=root(n, 4))),
    "priced .7, shown to 1/sqrt n": Rule(lambda n: PricedLadder(0.7), root),
    "priced 2, shown to 1/sqrt n": Rule(lambda n: PricedLadder(2.0), root),
    "one bit .05": Rule(lambda n: PairedTestLadder(0.05), "bits"),
    "one bit .15": Rule(lambda n: PairedTestLadder(0.15), "bits"),
    "one bit, priced .7": Rule(lambda n: PricedLadder(0.7), "bits"),
    "one bit, simplified 1/n": Rule(lambda n: SimplifiedLadder(1 / n), "bits"),
}


@dataclass(frozen=True)
class Shown:
    """A list of models on the rows of a holdout, in the order in which they are submitted.

    Attributes
    ----------
    losses : ndarray of bool, shape (models, rows)
    truths : ndarray of float, shape (models,)
        Their scores in the population.
    evaluations : sequence of Evaluation
    """

    losses: Flags
    truths: NDArray[np.float64]
    evaluations: Sequence[Evaluation]

    @classmethod
    def of(cls, losses: Flags, truths: NDArray[np.float64]) -> Shown:
        return cls(losses, truths, [Evaluation.from_losses(one) for one in losses])

    def ordered(self, order: NDArray[np.intp]) -> Shown:
        evaluations = [self.evaluations[i] for i in order]
        return Shown(self.losses[order], self.truths[order], evaluations)


@dataclass(frozen=True)
class Climb:
    """What a rule released of a list.

    Attributes
    ----------
    improved : tuple of int
        The models that improved, from 0; the last one is the winner.
    values : tuple of int
        What was released, in steps.
    released : float
        The last released risk.
    mechanism : Mechanism
    grid : Grid
        What the values could have been.
    rounding : float
        The distance between two risks that the certificate cannot tell apart.
    """

    improved: tuple[int, ...]
    values: tuple[int, ...]
    released: float
    mechanism: Mechanism
    grid: Grid
    rounding: float

    @property
    def winner(self) -> int:
        return self.improved[-1]


def climb(rule: Rule, shown: Shown) -> Climb:
    """Submit a list to a ladder, one model after the other."""
    n = shown.losses.shape[1]
    mechanism, rng = rule.mechanism(n), np.random.default_rng(0)  # no rule here draws
    rules = LadderRules(mechanism)
    state, step = rules.start(n), mechanism.resolution(n)
    coarse = rule.shows(n) if callable(rule.shows) else step
    improved, values = [], []
    for i, one in enumerate(shown.evaluations):
        # None of the rules releases what is not below the released risk.
        if one.risk >= state.standing:
            continue
        state, outcome = rules.step(state, one, rng)
        if outcome.improved:
            improved.append(i)
            values.append(math.floor(outcome.risk / coarse + 0.5 + 1e-9))
    grid = grid_of(mechanism, n, binary=True)
    assert grid is not None
    if callable(rule.shows):
        # The rounded score may stay the same where a model improved.
        grid = replace(grid, n_values=round(1 / coarse) + 1, falling=False)
    kept = () if rule.shows == "bits" else tuple(values)
    return Climb(tuple(improved), kept, float(state.standing), mechanism, grid, step)


def limits(found: Climb, shown: Shown, announced: bool) -> tuple[float, float]:
    """Return the limits of the winner's true score, as a batch or as single queries."""
    n, place = shown.losses.shape[1], found.winner + 1
    if announced:
        transcript = Transcript(0, place, (), size=len(shown.losses), event=1)
    elif place == 1:
        transcript = Transcript.alone()
    else:
        before, values = tuple(i + 1 for i in found.improved[:-1]), found.values[:-1]
        # Without falling values each is one of those up to the one before it.
        most = (found.grid.n_values, *(one + 1 for one in values))[: len(values)]
        ladder = ladder_transcript(place - 1, before, values, found.grid, most)
        transcript = Transcript.alone(ladder)
    certificate = certify(
        found.released, n, transcript, confidence=CONFIDENCE, rounding=found.rounding
    )
    return 1.0 - certificate.high, 1.0 - certificate.low


def estimate(found: Climb, shown: Shown, draws: int) -> float:
    """Return the corrected score of the winner of a batch."""
    targets = np.zeros(shown.losses.shape[1], dtype=int)
    correction = corrected(
        get_metric("accuracy"),
        LadderRules(found.mechanism),
        targets,
        list(shown.losses.astype(int)),
        winner=found.winner,
        secret=b"history",
        n_bootstrap=draws,
    )
    assert correction is not None
    return 1.0 - correction.corrected
