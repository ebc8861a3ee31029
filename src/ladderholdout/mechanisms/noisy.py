"""Mechanisms that add noise: the Shaky and the Gaussian Ladder, and Thresholdout."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import scipy

from ladderholdout.arguments import whole, within
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import below, round_half_up
from ladderholdout.mechanisms.base import (
    Decided,
    Evidence,
    Mechanism,
    Outcome,
    State,
    released,
    unchanged,
)
from ladderholdout.metrics import Evaluation

# In units of 1/sqrt(n): what benchmarks/calibration.py found.
_CALIBRATED_STEP, _CALIBRATED_NOISE = 0.37, 0.35


@dataclass(frozen=True, slots=True)
class _Noisy(Mechanism):
    """A rule that adds noise to risks in the unit interval."""

    step: float
    noise: float
    needs_bounded_risk: ClassVar[bool] = True
    noisy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        object.__setattr__(self, "step", within("step", self.step, 1.0))
        remedy = "Without noise, take Ladder."
        object.__setattr__(self, "noise", within("noise", self.noise, 1.0, remedy))


@dataclass(frozen=True, slots=True)
class ShakyLadder(_Noisy):
    """Release a noisy risk if, with noise on both sides, it is below the released one.

    Hardt 2017, Figure 1. Releases are as published, neither rounded nor clipped: one may
    be outside of the range of the risk, or above the release before it. The first
    submission competes with a released risk of 1.

    Parameters
    ----------
    step : float
        The margin lambda, in (0, 1].
    noise : float
        Scale sigma of the Laplace noise, in (0, 1]; the paper finds 1/sqrt(n) to 3/sqrt(n)
        enough in its simulations (Section 4), on correlations: half of it on risks.

    Raises
    ------
    InvalidArgument
        If a setting is outside (0, 1].

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[0.5, 0.5], [0.25, 0.25]]
    >>> run(ShakyLadder(step=0.1, noise=0.01), losses, np.random.default_rng(7)).round(3).tolist()
    [0.508, 0.264]
    """

    counted: ClassVar[Literal["falling", "any"] | None] = "any"

    @classmethod
    def from_theory(cls, n: int, k: int, beta: float = 0.05) -> ShakyLadder:
        """Take step and noise from the theory: Hardt 2017, Equation (2).

        With sigma = sqrt(log(1/delta)) / (epsilon n), which the rate of Theorem 2.7 needs.

        Parameters
        ----------
        n : int
            Number of examples in the holdout.
        k : int
            Upper bound on the number of submissions.
        beta : float, default=0.05
            Failure probability, in (0, 1).

        Returns
        -------
        ShakyLadder
            With a step of 4 log(4k/beta) sigma.

        Raises
        ------
        InvalidArgument
            If the theory is vacuous at this n: a step above 1 releases nothing.

        Examples
        --------
        >>> ladder = ShakyLadder.from_theory(n=1_000_000, k=1000)
        >>> round(ladder.step, 4), round(ladder.noise, 5)
        (0.0856, 0.00189)
        """
        n, k = whole("n", n), whole("k", k)
        beta = within("beta", beta, math.nextafter(1.0, 0.0))
        _, step, noise = shaky_settings(n, k, beta)
        if step > 1.0:
            raise InvalidArgument(
                "n",
                f"at least {_smallest_n(k, beta)} for the theory to release anything at all"
                f" (k = {k}, beta = {beta:g})",
                f"{n}, where its step is {step:.3g}",
                "Set step and noise by hand: 1/sqrt(n) to 3/sqrt(n) is usual for the noise.",
            )
        return cls(step=step, noise=noise)

    @classmethod
    def calibrated(cls, n: int, k: int) -> ShakyLadder:
        """Take step and noise from simulations, for practical holdouts.

        ``python benchmarks/calibration.py`` plays an attack that spends its queries on
        patience and easy rows, and an honest search, for 250 to 4,000 rows and 30 to 3,000
        queries, over a grid of settings. A noise of 0.35/sqrt(n) and a step of 0.37
        ln(2k)/sqrt(n) come close to the best of the grid everywhere; docs/background/mechanisms.md
        has the table. Unlike those of `from_theory`, they carry no guarantee.

        Parameters
        ----------
        n : int
            Number of examples in the holdout.
        k : int
            Upper bound on the number of submissions.

        Returns
        -------
        ShakyLadder
            Its step is 1 at most, where n is tiny.

        Raises
        ------
        InvalidArgument
            If n or k is not a whole number of at least 1.

        Examples
        --------
        >>> ladder = ShakyLadder.calibrated(n=1000, k=300)
        >>> round(ladder.step, 4), round(ladder.noise, 5)
        (0.0748, 0.01107)
        """
        root = math.sqrt(whole("n", n))
        step = _CALIBRATED_STEP * math.log(2 * whole("k", k)) / root
        return cls(step=min(1.0, step), noise=_CALIBRATED_NOISE / root)

    def start(self, n_examples: int) -> State:
        """Return the state before the first submission: the released risk is 1.

        The threshold's noise is drawn with the first submission, as there is no generator
        before it.
        """
        return State(n=whole("n_examples", n_examples), standing=1.0)

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Compare and release under noise; `Mechanism.decide` has the parameters."""
        threshold = laplace(self.noise, rng) if state.noise is None else state.noise
        # All three are drawn whatever happens, so that the outcome does not show in how
        # much of the generator is used up.
        comparison, release, redrawn = (laplace(self.noise, rng) for _ in range(3))
        if below(evidence.risk + comparison, state.standing - self.step + threshold):
            return released(replace(state, noise=redrawn), evidence, evidence.risk + release)
        return unchanged(replace(state, noise=threshold), evidence)

    def least_gain(self, state: State, variance: float) -> float:
        """Return the step; the noise is centred on it."""
        return self.step

    def allowance(self, log_level: float) -> float:
        """Return the quantile of the noise; see `Mechanism.allowance`."""
        return -log_level * self.noise


def laplace(scale: float, rng: np.random.Generator) -> float:
    """Draw from the Laplace distribution around 0, from one uniform number.

    By the inverse of the distribution function: a replay then depends on the generator's
    bits alone, not on how a version of NumPy turns them into Laplace numbers.

    Examples
    --------
    >>> round(laplace(1.0, np.random.default_rng(0)), 4)
    0.3201
    """
    uniform = rng.random()
    # The uniform may be 0, whose quantile is infinite.
    tail = max(2.0 * min(uniform, 1.0 - uniform), 2.0**-53)
    return math.copysign(scale * math.log(tail), uniform - 0.5)


def shaky_settings(n: int, k: int, beta: float) -> tuple[float, float, float]:
    """Return epsilon, lambda (the step) and sigma (the noise) of Equation (2)."""
    root = math.sqrt(math.log(k * n / beta))
    epsilon = (math.log(k / beta) * root / n) ** 0.6
    sigma = root / (epsilon * n)
    return epsilon, 4.0 * math.log(4.0 * k / beta) * sigma, sigma


def _smallest_n(k: int, beta: float) -> int:
    """Search for the smallest n with a step of at most 1; the step falls with n."""
    high = 1
    while shaky_settings(high, k, beta)[1] > 1.0:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if shaky_settings(middle, k, beta)[1] > 1.0 else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class GaussianLadder(_Noisy):
    """Run the Ladder on the risk plus a Gaussian number, drawn once for each submission.

    The noise of Hardt 2017, Section 4 and Appendix B, in front of Algorithm 1 of Blum &
    Hardt 2015. Comparison and release see the same noisy risk, so all that an analyst
    learns follows from noisy answers to his submissions, and the ladder resists whatever
    noise of that size resists. Of many equal submissions the one with the best noise is the
    incumbent.

    Parameters
    ----------
    step : float
        The margin, and the grid of the releases, in (0, 1].
    noise : float
        Standard deviation of the noise, in (0, 1]; the paper tries 1/sqrt(n) and finds
        3/sqrt(n) to neutralise its attack mostly, on correlations: half of it on risks.

    Raises
    ------
    InvalidArgument
        If a setting is outside (0, 1].

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[0.5, 0.5], [0.5, 0.5], [0.25, 0.25]]
    >>> run(GaussianLadder(step=0.1, noise=0.05), losses, np.random.default_rng(0)).tolist()
    [0.5, 0.5, 0.2]
    """

    counted: ClassVar[Literal["falling", "any"] | None] = "any"

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release below the last risk less the step; `Mechanism.decide` has the parameters."""
        risk = evidence.risk + gaussian(self.noise, rng)
        if below(risk, state.standing - self.step):
            return released(state, evidence, round_half_up(risk, self.step))
        return unchanged(state, evidence)

    def resolution(self, n: int) -> float:
        """Return the step, whatever the holdout's size."""
        return self.step

    def allowance(self, log_level: float) -> float:
        """Return the quantile of the noise; see `Mechanism.allowance`."""
        return -self.noise * float(scipy.special.ndtri_exp(log_level - math.log(2.0)))


def gaussian(scale: float, rng: np.random.Generator) -> float:
    """Draw from the normal distribution around 0, from one uniform number.

    By the inverse of the distribution function, as `laplace` does and for the same
    reason: a replay depends on the generator's bits alone.

    Examples
    --------
    >>> round(gaussian(1.0, np.random.default_rng(0)), 4)
    0.3503
    """
    # The uniform may be 0, whose quantile is infinite.
    return scale * float(scipy.special.ndtri(max(rng.random(), 2.0**-54)))


@dataclass(frozen=True, slots=True)
class Thresholdout(Mechanism):
    """Answer with the training risk, or a noisy holdout risk where the two are too far apart.

    Dwork et al. 2015 (Generalization in adaptive data analysis and holdout reuse, Figure
    1). It answers every submission, not only the improvements, and compares with the risk
    on the training rows: each evaluation has to bring one (`Evaluation.with_inner_score`). Once the
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
    >>> for inner_score in (0.45, 0.2, 0.2):
    ...     evaluation = Evaluation.from_losses([0.5, 0.5]).with_inner_score(inner_score)
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
    needs_inner_score: ClassVar[bool] = True
    needs_bounded_risk: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        object.__setattr__(self, "threshold", within("threshold", self.threshold, 1.0))
        object.__setattr__(self, "noise", within("noise", self.noise, 1.0))
        object.__setattr__(self, "budget", whole("budget", self.budget))

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Read the risks on holdout and training rows."""
        if evaluation.inner_score is None:
            raise InvalidArgument(
                "mechanism",
                "one that needs the holdout alone, for a submission without a training risk",
                self.name,
                "Give it one, Evaluation.with_inner_score(risk), or take another mechanism.",
            )
        return Evidence(evaluation.risk, inner_score=evaluation.inner_score)

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Answer from either side; `Mechanism.decide` has the parameters."""
        assert evidence.inner_score is not None  # `measure` refuses without
        first = laplace(2.0 * self.noise, rng) if state.noise is None else state.noise
        # All are drawn whatever happens, as in `ShakyLadder`.
        comparison, answer = laplace(4.0 * self.noise, rng), laplace(self.noise, rng)
        redrawn = laplace(2.0 * self.noise, rng)
        if state.releases >= self.budget:
            return state, Outcome(math.nan, False, evidence)
        gap = abs(evidence.risk - evidence.inner_score)
        if below(self.threshold + first + comparison, gap):
            after = replace(state, noise=redrawn, releases=state.releases + 1)
            return _answered(after, evidence, evidence.risk + answer)
        return _answered(replace(state, noise=first), evidence, evidence.inner_score)


def _answered(state: State, evidence: Evidence, risk: float) -> Decided:
    improved = below(risk, state.standing)
    after = replace(state, standing=risk) if improved else state
    return after, Outcome(risk, improved, evidence)
