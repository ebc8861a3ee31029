"""The ladders that release a bootstrap estimate, drawn anew for each submission."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import stdtr, stdtrit

from ladderholdout.mechanisms.arithmetic import TIE, whole, within
from ladderholdout.mechanisms.base import Evidence, Mechanism, Outcome, State
from ladderholdout.mechanisms.ladder import compared
from ladderholdout.mechanisms.resampling import bootstrap_mean
from ladderholdout.metrics import Evaluation


@dataclass(frozen=True, slots=True)
class LadderBoot(Mechanism):
    """Release a bootstrap estimate of the best, a submission being better if a t-test says so.

    Neto et al. 2016, Algorithm 4, with the upper quantile of the t distribution (the
    published lower one is negative for alpha below 0.5). The test compares with the
    incumbent's empirical risk, which is never released itself. Each submission is told a
    number that was drawn for it, improved or not: an analyst who may repeat himself
    averages the noise away, and no transcript bound holds. Each of these numbers counts as
    a release.

    Parameters
    ----------
    alpha : float
        Level of the test, in (0, 0.5].
    n_bootstrap : int, default=100
        Number b of bootstrap replications in a release: fewer are noisier. The standard
        deviation of the noise is that of a loss over sqrt(b n).
    half_life : int or None, default=None
        After so many submissions b is half of what it was, and so on down to 1, as the
        paper's Discussion proposes. None leaves it.

    Raises
    ------
    InvalidArgument
        If alpha is outside (0, 0.5], or a count is not a whole number of at least 1.

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    >>> run(LadderBoot(0.15, n_bootstrap=10), losses, np.random.default_rng(0)).tolist()
    [0.58, 0.64, 0.0]
    """

    alpha: float
    n_bootstrap: int = 100
    half_life: int | None = None
    needs_losses: ClassVar[bool] = True
    redraws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        remedy = "0.15 is close to the parameter-free ladder."
        object.__setattr__(self, "alpha", within("alpha", self.alpha, 0.5, remedy))
        object.__setattr__(self, "n_bootstrap", whole("n_bootstrap", self.n_bootstrap))
        object.__setattr__(self, "half_life", half_life_of(self.half_life))

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Test, and draw the estimate that is released."""
        evidence = compared(self.name, state, evaluation)
        if state.incumbent is not None and evidence.spread is not None:
            rival = state.incumbent.risk
            p_null = paired_p(evidence.risk, rival, evidence.spread, state.n)
            evidence = replace(evidence, p_null=p_null)
        size = shrunk(self.n_bootstrap, self.half_life, state.releases)
        return estimated(state, evaluation, evidence, self._passes(state, evidence), size, rng)

    def decide(
        self, state: State, evidence: Evidence, rng: np.random.Generator
    ) -> tuple[State, Outcome]:
        """Release the estimate that was drawn; `Mechanism.decide` says what the parts are."""
        return redrawn(state, evidence, self._passes(state, evidence))

    def margin(self, state: State, variance: float) -> float:
        """Return the critical difference of the test."""
        n = state.n  # by symmetry the upper quantile
        return math.inf if n == 1 else -float(stdtrit(n - 1, self.alpha)) * math.sqrt(variance / n)

    def _passes(self, state: State, evidence: Evidence) -> bool:
        if math.isinf(state.standing):
            return True
        return evidence.p_null is not None and evidence.p_null < self.alpha


def paired_p(risk: float, incumbent: float, spread: float, n: int) -> float:
    """Return the p-value of a one-sided paired t-test of two mean losses.

    Parameters
    ----------
    risk, incumbent : float
        The means; small p-values speak for the first being smaller.
    spread : float
        Standard error of their difference, from n differences; infinite if there is one.
    n : int
        Number of examples.

    Returns
    -------
    float
        Without any spread 0 for a smaller risk and 1 for any other.

    Examples
    --------
    >>> round(paired_p(0.2, 0.25, spread=0.02, n=1000), 4)
    0.0063
    >>> paired_p(0.2, 0.25, spread=0.0, n=3), paired_p(0.2, 0.2, spread=0.0, n=3)
    (0.0, 1.0)
    """
    gap = 0.0 if math.isclose(risk, incumbent, rel_tol=TIE) else risk - incumbent
    if math.isinf(spread):
        return 1.0
    return float(stdtr(n - 1, gap / spread)) if spread > 0 else float(gap >= 0)


def half_life_of(value: object) -> int | None:
    """Validate a half-life: None, or a whole number of at least 1."""
    return None if value is None else whole("half_life", value)


def shrunk(n_bootstrap: int, half_life: int | None, releases: int) -> int:
    """Return the number of replications in the next release.

    Parameters
    ----------
    n_bootstrap : int
        In the first one.
    half_life : int or None
        After how many releases it is half of that; None for never.
    releases : int
        How many were given.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> [shrunk(100, 10, releases) for releases in (0, 5, 10, 20, 1000)]
    [100, 71, 50, 25, 1]
    """
    if half_life is None:
        return n_bootstrap
    return max(1, round(n_bootstrap * math.pow(0.5, releases / half_life)))


def estimated(
    state: State,
    evaluation: Evaluation,
    evidence: Evidence,
    improved: bool,
    replications: int,
    rng: np.random.Generator,
) -> Evidence:
    """Add the bootstrap estimate of the submission, or of the incumbent where that stays.

    Parameters
    ----------
    state : State
        Holds the incumbent.
    evaluation : Evaluation
        The submission.
    evidence : Evidence
        What was found so far.
    improved : bool
        Whether the submission becomes the incumbent.
    replications : int
        Number of bootstrap replications.
    rng : numpy.random.Generator
        Source of the resamples.

    Returns
    -------
    Evidence
        With an estimate.
    """
    best = evaluation if improved or state.incumbent is None else state.incumbent
    return replace(evidence, estimate=bootstrap_mean(best, replications, rng))


def redrawn(state: State, evidence: Evidence, improved: bool) -> tuple[State, Outcome]:
    """Release an estimate, whether or not the submission improved.

    Parameters
    ----------
    state : State
        The state before.
    evidence : Evidence
        With the estimate.
    improved : bool
        Whether the submission becomes the incumbent.

    Returns
    -------
    state : State
        The state after: what stands is what was told last, and each is a release.
    outcome : Outcome
        The release.
    """
    assert evidence.estimate is not None  # `measure` always draws one
    after = replace(state, standing=evidence.estimate, releases=state.releases + 1)
    return after, Outcome(evidence.estimate, improved, evidence)
