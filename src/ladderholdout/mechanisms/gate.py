"""The gate: a ladder that accepts a change with one error for the whole life of the holdout.

The statements and proofs are in docs/background/decisions.md; numbers of theorems are those there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout.arguments import as_number, inside, whole, within
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.trinomial import MOST_ROWS, exceeds
from ladderholdout.mechanisms.base import Decided, Evidence, State
from ladderholdout.mechanisms.noiseless import PairedLadder, climbed, losses_of
from ladderholdout.metrics import Evaluation

LARGEST_HORIZON = 100_000
# What a single acceptance is given of an announced horizon; m > 1 share the rest.
_SINGLE = 2 / 3
# The largest bet leaves this much of the wealth on the worst row, so that no logarithm is infinite.
_KEPT = 0.01
# Neighbouring bets differ by this factor: at wealths of e^8 to e^15 one of them is near the best.
_RATIO = 1.25
# A difference of losses beyond their range by less is rounding, and so is a part of a level.
_SLACK = 1e-9


@lru_cache(4096)
def log_chance(candidates: int, accepted: int, horizon: int | None) -> float:
    """Return the logarithm of the chance that the code gives to one transcript of flags.

    It depends on these counts alone, so transcripts with equal counts have equal chances.
    Without a horizon it is Laplace's rule of succession, under which the next flag is an acceptance
    with a chance of (accepted + 1) / (candidates + 2). With one, the number of acceptances M within
    it is 1 with a chance of 2/3 and m > 1 with one of 1 / (3 m (m - 1)), and given M each set of
    places is as likely as another.

    Parameters
    ----------
    candidates : int
        Flags in the transcript.
    accepted : int
        How many of them are acceptances, at most `candidates`.
    horizon : int or None
        How many candidates were announced; None where none were.

    Returns
    -------
    float
        In nats, not positive; minus infinity beyond the horizon.

    Examples
    --------
    >>> round(math.exp(-log_chance(200, 1, None))), round(math.exp(-log_chance(200, 1, 200)))
    (40200, 300)
    """
    if horizon is None:
        return -math.log(candidates + 1) - float(_log_choose(candidates, accepted))
    if candidates > horizon:
        return -math.inf
    left = horizon - candidates
    # The number M of acceptances in the whole transcript, as this part of it allows; at least 1.
    total = np.arange(max(accepted, 1), accepted + left + 1, dtype=np.float64)
    if not len(total):
        return -math.inf
    several = np.maximum(total, 2.0)
    prior = np.where(total == 1, _SINGLE, (1 - _SINGLE) / (several * (several - 1.0)))
    logs = np.log(prior) + _log_choose(left, total - accepted) - _log_choose(horizon, total)
    return float(scipy.special.logsumexp(logs))


def _log_choose(n: float, k: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the number of sets of k of n."""
    gammaln = scipy.special.gammaln
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def sign_test(better: int, worse: int) -> float:
    """Return the p-value of the exact one-sided sign test on discordant rows (theorem 2).

    Parameters
    ----------
    better, worse : int
        Rows on which the candidate alone is right, and on which the incumbent alone is.

    Returns
    -------
    float
        The chance that heads come up `better` times or more in so many tosses of a fair coin.

    Examples
    --------
    >>> sign_test(5, 0), sign_test(0, 0)
    (0.03125, 1.0)
    """
    # Of the mirrored rows as well: how long a refusal takes must not reveal which side they favour.
    both = scipy.special.bdtrc(np.array([better - 1, worse - 1]), better + worse, 0.5)
    return float(both[0])


def mean_test(gains: NDArray[np.float64], margin: float) -> float:
    """Return a p-value for "the mean gain is at most the margin", by a mixture of bets (theorem 3).

    The wealth of a fixed bet on all rows is a product, so no order of the rows matters, and the
    mean of the wealths of several bets has an expectation of at most 1 where the statement is true.

    Parameters
    ----------
    gains : ndarray of shape (n,)
        Losses of the incumbent less those of the candidate, in [-1, 1].
    margin : float
        In [0, 1).

    Returns
    -------
    float
        One over the wealth, at most 1.

    Examples
    --------
    >>> mean_test(np.full(100, 0.2), 0.0) < 1e-4, mean_test(np.full(100, 0.2), 0.2)
    (True, 1.0)
    """
    return _test_of_excess(gains - margin, margin)


def _test_of_excess(excess: NDArray[np.float64], margin: float) -> float:
    """Return a p-value for "no mean is above 0" of numbers from -(1 + margin) to 1 - margin."""
    n = len(excess)
    bets = 1 + math.ceil(math.log(math.sqrt(n)) / math.log(_RATIO))  # down to one over the root
    largest = (1.0 - _KEPT) / (1.0 + margin)
    wealth = [float(np.log1p(largest / _RATIO**bet * excess).sum()) for bet in range(bets)]
    return math.exp(min(math.log(bets) - float(scipy.special.logsumexp(wealth)), 0.0))


@dataclass(frozen=True, slots=True)
class GateLadder(PairedLadder):
    """Accept a candidate if it is shown to be better, with one error for the whole ladder.

    Not from a paper: docs/background/decisions.md. A candidate replaces the incumbent if an exact
    paired test rejects "it is not better by more than the margin" at alpha times the chance of the
    transcript of flags that ends in this acceptance. As long as nothing but these flags is shown,
    the chance of any false acceptance is at most alpha, however the candidates are proposed. The
    first submission is the baseline and is not tested. Losses of 0 and 1 without a margin are
    compared by the sign test on the rows where the models differ, with a margin by the exact limits
    of a trinomial, and all others by bets on the differences, losses beyond a stated range clipped
    to it. Where whole groups of rows were
    drawn, bets are on one number for each group.

    Parameters
    ----------
    alpha : float, default=0.05
        The chance of any false acceptance, in (0, 0.5].
    horizon : int or None, default=None
        How many candidates there will be, at most 100,000: the first acceptance then costs about
        ln(horizon) nats wherever it is, and after so many candidates nothing is accepted. None
        is no limit: the first acceptance of candidate t costs ln(t (t + 1)) nats.
    margin : float, default=0.0
        The gain that a candidate has to exceed, in [0, 1), in units of the range of the loss.

    Raises
    ------
    InvalidArgument
        If a setting is refused.

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = np.zeros((3, 100))
    >>> losses[0, :40] = losses[1, :35] = losses[2, :20] = 1
    >>> run(GateLadder(), losses, np.random.default_rng(0)).tolist()
    [0.4, 0.4, 0.2]
    """

    alpha: float = 0.05
    horizon: int | None = None
    margin: float = 0.0
    flags_alone: ClassVar[bool] = True
    needs_bounded_risk: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "falling"
    takes_scale: ClassVar[bool] = True
    by_groups: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        object.__setattr__(self, "alpha", within("alpha", self.alpha, 0.5))
        if self.horizon is not None:
            most = whole("horizon", self.horizon, most=LARGEST_HORIZON)
            object.__setattr__(self, "horizon", most)
        zero = as_number(self.margin) == 0.0
        margin = 0.0 if zero else inside("margin", self.margin, what="0 or a number")
        object.__setattr__(self, "margin", margin)

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Measure the risk, and the p-value of the test against the incumbent."""
        losses = losses_of(self.name, evaluation, bounded=True)
        if state.incumbent is None:
            return Evidence(evaluation.risk)
        gains = losses_of(self.name, state.incumbent, bounded=True) - losses
        p_null = self._p_null(state, evaluation, gains)
        # What else was shown of the rows is part of the transcript, and so of its code.
        paid = min(math.log(p_null) + state.price, 0.0) if p_null > 0.0 else -math.inf
        return Evidence(evaluation.risk, p_null=math.exp(paid), margin=self.margin)

    def _p_null(self, state: State, evaluation: Evaluation, gains: NDArray[np.float64]) -> float:
        """Return a p-value for "the candidate is not better by more than the margin"."""
        assert state.incumbent is not None
        grouped = evaluation.groups is not None
        counts = not grouped and evaluation.is_count & state.incumbent.is_count
        if counts and (not self.margin or state.n <= MOST_ROWS):
            better, worse = int(np.count_nonzero(gains > 0)), int(np.count_nonzero(gains < 0))
            if not self.margin:
                return sign_test(better, worse)
            # The order of the data behind the limits goes by the level, so this is its test alone.
            level = self.level(state) * math.exp(-state.price)
            rejects = exceeds(better, worse, state.n, self.margin, level)
            return level * (1.0 - _SLACK) if rejects else 1.0
        gains = gains / state.unit
        if float(np.abs(gains).max()) > 1.0 + _SLACK:
            allowed = f"of losses in a range that is {state.unit:g} wide"
            remedy = "State the range of the losses."
            raise InvalidArgument("evaluation", allowed, "of losses that differ by more", remedy)
        gains = np.clip(gains, -1.0, 1.0)
        if grouped:
            return _test_of_excess(evaluation.shares(gains - self.margin), self.margin)
        return mean_test(gains, self.margin)

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Accept if the test rejects at its level; `Mechanism.decide` has the parameters."""
        if math.isinf(state.standing):
            return climbed(state, evidence, math.inf, 1.0 / state.n)
        level = self.level(state)
        rejects = evidence.p_null is not None and level > 0.0 and evidence.p_null <= level
        bound = math.inf if rejects else -math.inf
        after, outcome = climbed(state, evidence, bound, 1.0 / state.n)
        accepted = state.accepted + outcome.improved
        return replace(after, candidates=state.candidates + 1, accepted=accepted), outcome

    def level(self, state: State) -> float:
        """Return the level at which the next candidate is tested (theorem 1).

        Parameters
        ----------
        state : State

        Returns
        -------
        float
            Alpha times the chance of the transcript that ends in its acceptance.

        Examples
        --------
        >>> ladder = GateLadder(alpha=0.05)
        >>> round(ladder.level(ladder.start(100)), 6)
        0.025
        """
        counts = state.candidates + 1, state.accepted + 1
        return self.alpha * math.exp(log_chance(*counts, self.horizon))

    def with_margin(self, margin: float) -> GateLadder:
        """Return the gate that tests for another gain; `Mechanism.with_margin` has the parameters.

        The proof of theorem 1 does not ask that all candidates are tested for the same one.
        """
        return replace(self, margin=margin)

    def is_spent(self, state: State) -> bool:
        """Return whether the horizon is reached, or more was shown than can be counted."""
        return math.isinf(state.price) or self.level(state) <= 0.0

    def least_gain(self, state: State, variance: float) -> float:
        """Return about the least gain that is accepted: margin, and a normal quantile."""
        level = self.level(state)
        if level <= 0.0:
            return math.inf
        return self.margin - float(scipy.special.ndtri(level)) * math.sqrt(variance / state.n)
