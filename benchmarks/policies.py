"""The policies of benchmarks/feedback.py: what a search is told, and who judges it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from problems import Model

from ladderholdout.feedback import feedback_of
from ladderholdout.mechanisms import (
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    SimplifiedLadder,
)
from ladderholdout.metrics import Evaluation

# --- what a search is told ----------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What is known of one trial: inner score, whether it improved, what stands after it."""

    inner_score: float
    improved: bool
    standing: float


Tell = Callable[[Seen, Sequence[Seen]], float]


def by_library(policy: str, margin: float) -> Tell:
    def tell(now: Seen, past: Sequence[Seen]) -> float:
        return feedback_of(policy, now.standing, now.improved, margin, now.inner_score)

    return tell


def inner_only(now: Seen, past: Sequence[Seen]) -> float:
    return now.inner_score


def inner_but_improvers(now: Seen, past: Sequence[Seen]) -> float:
    return now.standing if now.improved else now.inner_score


def bias(past: Iterable[Seen]) -> float:
    """Mean of release - inner score over past improvers, shrunk as if by one more of 0."""
    gaps = [seen.standing - seen.inner_score for seen in past if seen.improved]
    return sum(gaps) / (len(gaps) + 1)


def corrected(now: Seen, past: Sequence[Seen]) -> float:
    return now.standing if now.improved else now.inner_score + bias(past)


def corrected_capped(margin: float) -> Tell:
    def tell(now: Seen, past: Sequence[Seen]) -> float:
        return now.standing if now.improved else min(now.standing - margin, corrected(now, past))

    return tell


def softly_capped(margin: float) -> Tell:
    """Below the released score, yet in the order of the inner scores: a smooth minimum."""

    def tell(now: Seen, past: Sequence[Seen]) -> float:
        if now.improved:
            return now.standing
        below = (now.standing - now.inner_score - bias(past)) / margin
        return now.standing - margin * float(np.logaddexp(0.0, below))

    return tell


TELLS: dict[str, Tell] = {
    "incumbent": by_library("incumbent", 0.01),
    **{f"penalised {m}": by_library("penalised", m) for m in (0.001, 0.01, 0.05)},
    **{f"capped {m}": by_library("capped", m) for m in (0.0001, 0.001, 0.01, 0.05)},
    "inner, improvers release": inner_but_improvers,
    "corrected": corrected,
    **{f"corrected capped {m}": corrected_capped(m) for m in (0.001, 0.01)},
    "softly capped 0.01": softly_capped(0.01),
    "inner": inner_only,
}
MAIN = ("incumbent", "capped 0.001", "inner")  # where studies are dear


# --- who judges a finished study -------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """One winner: what is true of it, what is believed, and what it cost the holdout."""

    truth: float
    believed: float
    looks: int
    releases: int
    offset: float = 0.0


Judge = Callable[[Sequence[Model]], Found]
# Of a trial's inner score, the best one so far and the incumbent's.
Gate = Callable[[float, float, float], bool]

GATES: dict[str, Gate] = {
    "all": lambda inner_score, best, incumbent: True,
    "challengers": lambda inner_score, best, incumbent: inner_score > incumbent,
    "records": lambda inner_score, best, incumbent: inner_score > best,
}
MECHANISMS: dict[str, Callable[[int], Mechanism]] = {
    "parameter-free": lambda n: ParameterFreeLadder(),
    "paired .05": lambda n: PairedTestLadder(alpha=0.05),
    "paired .15": lambda n: PairedTestLadder(alpha=0.15),
    "paired .30": lambda n: PairedTestLadder(alpha=0.30),
    "ladder .01": lambda n: Ladder(step=0.01),
    "ladder .002": lambda n: Ladder(step=0.002),
    "simplified 1/n": lambda n: SimplifiedLadder(step=1.0 / n),
}


class Climb:
    """A ladder climbed by models one after the other."""

    def __init__(self, mechanism: Mechanism, n: int) -> None:
        self.mechanism = mechanism
        self.state = mechanism.start(n)
        self.incumbent: Model | None = None
        self.looks = 0
        self.rng = np.random.default_rng(0)  # none of these mechanisms draws

    def show(self, model: Model, rows: slice = slice(None)) -> bool:
        evaluation = Evaluation.from_losses(model.losses[rows])
        self.state, outcome = self.mechanism.advance(self.state, evaluation, self.rng)
        self.looks += 1
        if outcome.improved:
            self.incumbent = model
        return outcome.improved

    @property
    def standing(self) -> float:
        return 1.0 - self.state.standing

    def found(self, believed: float | None = None) -> Found:
        assert self.incumbent is not None
        believed = self.standing if believed is None else believed
        return Found(self.incumbent.truth(), believed, self.looks, self.state.releases)


def unguarded(models: Sequence[Model]) -> Found:
    best = max(models, key=lambda model: model.raw)
    return Found(best.truth(), best.raw, len(models), len(models))


def ladder(gate: str, mechanism: str, reserve: float = 0.0) -> Judge:
    """Show a ladder what passes the gate; with a reserve, believe what those rows say."""

    def judge(models: Sequence[Model]) -> Found:
        n = len(models[0].losses)
        kept = n - round(reserve * n)
        climb = Climb(MECHANISMS[mechanism](kept), kept)
        best = -math.inf
        for model in models:
            incumbent = climb.incumbent.inner_score if climb.incumbent else -math.inf
            if GATES[gate](model.inner_score, best, incumbent):
                climb.show(model, slice(kept))
            best = max(best, model.inner_score)
        if not reserve or climb.incumbent is None:
            return climb.found()
        return climb.found(1.0 - float(climb.incumbent.losses[kept:].mean()))

    return judge


def finalists(k: int, mechanism: str) -> Judge:
    """Show the k best inner scores at the end, the best first, as one batch."""

    def judge(models: Sequence[Model]) -> Found:
        climb = Climb(MECHANISMS[mechanism](len(models[0].losses)), len(models[0].losses))
        for model in sorted(models, key=lambda model: -model.inner_score)[:k]:
            climb.show(model)
        return climb.found()

    return judge


def veto(gate: str, factor: float) -> Judge:
    """Let what passes the gate take over unless it is clearly worse: no rule of the library.

    The risk may rise by ``factor`` standard errors of the paired difference, so that what
    stands may get worse.
    """

    def judge(models: Sequence[Model]) -> Found:
        incumbent, best, looks, releases = models[0], models[0].inner_score, 1, 1
        for model in models[1:]:
            if GATES[gate](model.inner_score, best, incumbent.inner_score):
                looks += 1
                worse = model.losses - incumbent.losses
                if worse.mean() <= factor * worse.std(ddof=1) / math.sqrt(len(worse)):
                    incumbent, releases = model, releases + 1
            best = max(best, model.inner_score)
        return Found(incumbent.truth(), incumbent.raw, looks, releases)

    return judge


def best_inner_score(models: Sequence[Model]) -> Found:
    """Pick the best inner score of all; what is believed is the release that stands for another."""
    best = max(models, key=lambda model: model.inner_score)
    return replace(ladder("all", "parameter-free")(models), truth=best.truth())


AS_TOLD: dict[str, Judge] = {
    "all, parameter-free": ladder("all", "parameter-free"),
    "pick best inner score": best_inner_score,
}
JUDGES: dict[str, Judge] = {
    **{f"{gate}, {name}": ladder(gate, name) for gate in GATES for name in MECHANISMS},
    **{
        f"{gate}, {name}, reserve .3": ladder(gate, name, reserve=0.3)
        for gate in GATES
        for name in ("parameter-free", "simplified 1/n")
    },
    "finalist 1": finalists(1, "parameter-free"),
    **{
        f"finalists {k}, {name}": finalists(k, name)
        for k in (3, 5, 10)
        for name in ("parameter-free", "simplified 1/n")
    },
    **{f"{g}, veto {f}": veto(g, f) for g in ("challengers", "records") for f in (0.5, 1.0)},
    "pick best inner score": best_inner_score,
}
