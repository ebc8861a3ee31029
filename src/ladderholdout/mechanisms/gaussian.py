"""The Ladder on risks with Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtri, ndtri_exp

from ladderholdout.mechanisms.arithmetic import below, round_half_up, within
from ladderholdout.mechanisms.base import Evidence, Mechanism, Outcome, State, kept, released


@dataclass(frozen=True, slots=True)
class GaussianLadder(Mechanism):
    """Run the Ladder on the risk plus a Gaussian number, drawn once for each submission.

    The noise of Hardt 2017, Section 4 and Appendix B, in front of Algorithm 1 of Blum &
    Hardt 2015. Comparison and release see the same noisy risk, so all that an analyst is
    told follows from noisy answers to his submissions, and whatever noise of that size
    withstands, the ladder withstands. Of many equal submissions the luckiest stands.

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

    step: float
    noise: float
    needs_bounded_risk: ClassVar[bool] = True
    noisy: ClassVar[bool] = True
    counted: ClassVar[Literal["falling", "any"] | None] = "any"

    def __post_init__(self) -> None:
        """Validate the settings."""
        object.__setattr__(self, "step", within("step", self.step, 1.0))
        remedy = "Without noise, take Ladder."
        object.__setattr__(self, "noise", within("noise", self.noise, 1.0, remedy))

    def decide(
        self, state: State, evidence: Evidence, rng: np.random.Generator
    ) -> tuple[State, Outcome]:
        """Release below standing - step; `Mechanism.decide` says what the parts are."""
        risk = evidence.risk + gaussian(self.noise, rng)
        if below(risk, state.standing - self.step):
            return released(state, evidence, round_half_up(risk, self.step))
        return kept(state, evidence)

    def resolution(self, n: int) -> float:
        """Return the step, whatever the holdout's size."""
        return self.step

    def allowance(self, log_level: float) -> float:
        """Return the quantile of the noise; `Mechanism.allowance` says of what."""
        return -self.noise * float(ndtri_exp(log_level - math.log(2.0)))


def gaussian(scale: float, rng: np.random.Generator) -> float:
    """Draw from the normal distribution around 0, from one uniform number.

    By the inverse of the distribution function, as `shaky.laplace` does and for the same
    reason: a replay depends on the generator's bits alone.

    Parameters
    ----------
    scale : float
        Standard deviation.
    rng : numpy.random.Generator
        Gives one uniform number.

    Returns
    -------
    float
        The draw.

    Examples
    --------
    >>> round(gaussian(1.0, np.random.default_rng(0)), 4)
    0.3503
    """
    # The uniform may be 0, whose quantile is infinite.
    return scale * float(ndtri(max(rng.random(), 2.0**-54)))
