"""Thresholdout: the training risk, as long as the holdout agrees with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import below, whole, within
from ladderholdout.mechanisms.base import Evidence, Mechanism, Outcome, State
from ladderholdout.mechanisms.shaky import laplace
from ladderholdout.metrics import Evaluation


@dataclass(frozen=True, slots=True)
class Thresholdout(Mechanism):
    """Tell the training risk, or a noisy holdout risk where the two lie too far apart.

    Dwork et al. 2015 (Generalization in adaptive data analysis and holdout reuse, Figure
    1). It answers every submission, not only the improvements, and compares with the risk
    on the training rows: each evaluation has to bring one (`Evaluation.guided`). Once the
    budget is used up it answers nan, the paper's "no answer". Releases count the answers
    from the holdout. ``standing`` is the smallest answer so far.

    Parameters
    ----------
    threshold : float, default=0.04
        The difference T that is put up with, in (0, 1].
    noise : float, default=0.01
        Scale sigma, in (0, 1]: Laplace noise of 2 sigma on the threshold, 4 sigma on the
        comparison, sigma on an answer.
    budget : int, default=100
        Number B of answers from the holdout.

    Raises
    ------
    InvalidArgument
        If a setting is out of its range.

    Examples
    --------
    >>> rng, mechanism = np.random.default_rng(0), Thresholdout(0.1, noise=0.01, budget=1)
    >>> state = mechanism.start(2)
    >>> for guide in (0.45, 0.2, 0.2):
    ...     evaluation = Evaluation.from_losses([0.5, 0.5]).guided(guide)
    ...     state, outcome = mechanism.advance(state, evaluation, rng)
    ...     print(round(outcome.risk, 3))
    0.45
    0.517
    nan
    """

    threshold: float = 0.04
    noise: float = 0.01
    budget: int = 100
    discloses: ClassVar[bool] = True
    needs_guide: ClassVar[bool] = True
    needs_bounded_risk: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        object.__setattr__(self, "threshold", within("threshold", self.threshold, 1.0))
        object.__setattr__(self, "noise", within("noise", self.noise, 1.0))
        object.__setattr__(self, "budget", whole("budget", self.budget))

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Read the risks on holdout and training rows."""
        if evaluation.guide is None:
            raise InvalidArgument(
                "mechanism",
                "one that needs the holdout alone, for a submission without a training risk",
                self.name,
                "Give it one, Evaluation.guided(risk), or take another mechanism.",
            )
        return Evidence(evaluation.risk, guide=evaluation.guide)

    def decide(
        self, state: State, evidence: Evidence, rng: np.random.Generator
    ) -> tuple[State, Outcome]:
        """Answer from either side; `Mechanism.decide` says what the parts are."""
        assert evidence.guide is not None  # `measure` refuses without
        first = laplace(2.0 * self.noise, rng) if state.noise is None else state.noise
        # All are drawn whatever happens, as in `ShakyLadder`.
        comparison, answer = laplace(4.0 * self.noise, rng), laplace(self.noise, rng)
        redrawn = laplace(2.0 * self.noise, rng)
        if state.releases >= self.budget:
            return state, Outcome(math.nan, False, evidence)
        gap = abs(evidence.risk - evidence.guide)
        if below(self.threshold + first + comparison, gap):
            after = replace(state, noise=redrawn, releases=state.releases + 1)
            return _answered(after, evidence, evidence.risk + answer)
        return _answered(replace(state, noise=first), evidence, evidence.guide)


def _answered(state: State, evidence: Evidence, risk: float) -> tuple[State, Outcome]:
    improved = below(risk, state.standing)
    after = replace(state, standing=risk) if improved else state
    return after, Outcome(risk, improved, evidence)
