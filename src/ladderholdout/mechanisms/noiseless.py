"""The mechanisms without noise: disclosure, and ladders that release improvements, rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout.arguments import whole, within
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import below, round_half_up
from ladderholdout.mechanisms.base import (
    Decided,
    Evidence,
    Mechanism,
    Outcome,
    State,
    Stepped,
    released,
    unchanged,
)
from ladderholdout.metrics import Evaluation


@dataclass(frozen=True, slots=True)
class FullDisclosure(Mechanism):
    """Release every risk as it is: no protection.

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[0.25, 0.5], [0.5, 1.0]]
    >>> run(FullDisclosure(), losses, np.random.default_rng(0)).tolist()
    [0.375, 0.75]
    """

    discloses: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "any"

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release the risk; `Mechanism.decide` has the parameters."""
        return _disclosed(state, evidence, evidence.risk)


@dataclass(frozen=True, slots=True)
class RoundedDisclosure(Stepped):
    """Release every risk, rounded: the Kaggle mechanism of Blum & Hardt 2015, Algorithm 3.

    Parameters
    ----------
    step : float, default=1e-5
        Releases are multiples of it, in (0, 1], or the number of the metric's grid that is nearer.

    Raises
    ------
    InvalidArgument
        If the step is outside (0, 1].

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[0.25, 0.5], [0.5, 1.0]]
    >>> run(RoundedDisclosure(step=0.1), losses, np.random.default_rng(0)).tolist()
    [0.4, 0.8]
    """

    step: float = 1e-5
    discloses: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "any"
    takes_scale: ClassVar[bool] = True

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release the rounded risk; `Mechanism.decide` has the parameters."""
        # A step of a range that is much wider than the risk would show nothing of it.
        rounded = round_half_up(evidence.risk, self.step), state.released_as(evidence, self.step)
        nearest = min(rounded, key=lambda risk: abs(risk - evidence.risk))
        return _disclosed(state, evidence, nearest)


def _disclosed(state: State, evidence: Evidence, risk: float) -> Decided:
    """Release the submission's own risk; ``standing`` is the smallest of all."""
    improved = below(risk, state.standing)
    standing = risk if improved else state.standing
    after = replace(state, standing=standing, releases=state.releases + 1)
    return after, Outcome(risk, improved, evidence)


@dataclass(frozen=True, slots=True)
class Ladder(Stepped):
    """Release the rounded risk if it is below the released one by more than a step.

    Blum & Hardt 2015, Algorithm 1. A difference of exactly one step is a tie and does not
    improve: with a step of 0.1, a risk of 0.7 leaves a release of 0.8 as it is.

    Parameters
    ----------
    step : float
        The margin, in (0, 1]; for losses of 0 and 1 the grid of the releases too.

    Raises
    ------
    InvalidArgument
        If the step is outside (0, 1].

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[0.62, 0.62], [0.55, 0.55], [0.41, 0.41]]
    >>> run(Ladder(step=0.1), losses, np.random.default_rng(0)).tolist()
    [0.6, 0.6, 0.4]
    """

    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "falling"
    takes_scale: ClassVar[bool] = True

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release below the last risk less the step; `Mechanism.decide` has the parameters."""
        return climbed(state, evidence, state.standing - self.step, self.step)

    def bar(self, state: State) -> float:
        """Return the released risk less the step."""
        return state.standing - self.step


@dataclass(frozen=True, slots=True)
class SimplifiedLadder(Stepped):
    """Release the rounded risk if it is below the released one.

    Zheng, Algorithm 2: the best risk so far, at a stated precision. Half a step is enough
    for an improvement.

    Parameters
    ----------
    step : float
        Risks are compared as multiples of it, in (0, 1]; for losses of 0 and 1 the grid of
        the releases too.

    Raises
    ------
    InvalidArgument
        If the step is outside (0, 1].

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[0.62, 0.62], [0.58, 0.58], [0.54, 0.54]]
    >>> run(SimplifiedLadder(step=0.1), losses, np.random.default_rng(0)).tolist()
    [0.6, 0.6, 0.5]
    """

    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "falling"
    takes_scale: ClassVar[bool] = True

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release any rounded improvement; `Mechanism.decide` has the parameters."""
        rounded = round_half_up(evidence.risk, self.step)
        lower = below(rounded, round_half_up(state.standing, self.step))
        return climbed(state, evidence, math.inf if lower else -math.inf, self.step)

    def bar(self, state: State) -> float:
        """Return the least risk that is rounded to the released one."""
        return round_half_up(state.standing, self.step) - self.step / 2


@dataclass(frozen=True, slots=True)
class PairedLadder(Mechanism):
    """A mechanism that compares each loss of a submission with the incumbent's."""

    needs_losses: ClassVar[bool] = True

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Measure the risk, and the standard error of its difference from the incumbent's."""
        return compared(self.name, state, evaluation)

    def resolution(self, n: int) -> float:
        """Return 1/n."""
        return 1.0 / n


@dataclass(frozen=True, slots=True)
class ParameterFreeLadder(PairedLadder):
    """Release if the risk is below the released one by more than a standard error.

    Blum & Hardt 2015, Algorithm 2. The standard error is that of the mean difference
    between the losses of the submission and of the incumbent, which stays the best one
    accepted; the release is rounded to 1/n. On one example nothing after the first
    submission improves. A submission that would repeat the last release does not
    become the incumbent, as it would in the paper; with losses of 0 and 1 this
    cannot happen.

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    >>> run(ParameterFreeLadder(), losses, np.random.default_rng(0)).tolist()
    [0.75, 0.75, 0.0]
    """

    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "falling"
    by_groups: ClassVar[bool] = True
    takes_scale: ClassVar[bool] = True

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release below the last risk less the spread; see `Mechanism.decide`."""
        return climbed(state, evidence, _threshold(state, evidence, 1.0), 1.0 / state.n)

    def least_gain(self, state: State, variance: float) -> float:
        """Return one standard error of the mean difference."""
        return math.sqrt(variance / state.n)


@dataclass(frozen=True, slots=True)
class PairedTestLadder(PairedLadder):
    """Release if a one-sided paired t-test against the incumbent rejects.

    Neto et al. 2016, Algorithm 3, with the upper quantile of the t distribution (the
    published lower one is negative for alpha below 0.5). An alpha near 0.16 reproduces
    `ParameterFreeLadder` on large holdouts.

    Parameters
    ----------
    alpha : float
        Level of the test, in (0, 0.5].

    Raises
    ------
    InvalidArgument
        If alpha is outside (0, 0.5].

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[1, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 0]]
    >>> run(PairedTestLadder(alpha=0.05), losses, np.random.default_rng(0)).tolist()
    [0.8, 0.8, 0.2]
    """

    alpha: float
    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "falling"
    takes_scale: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate alpha."""
        remedy = "0.15 is close to the parameter-free ladder."
        object.__setattr__(self, "alpha", within("alpha", self.alpha, 0.5, remedy))

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release if the test rejects; `Mechanism.decide` has the parameters."""
        # On one example it is nan, but then the spread is infinite, and no threshold is
        # worked out.
        critical = self._critical(state.n)
        return climbed(state, evidence, _threshold(state, evidence, critical), 1.0 / state.n)

    def least_gain(self, state: State, variance: float) -> float:
        """Return the critical difference of the test."""
        n = state.n
        return math.inf if n == 1 else self._critical(n) * math.sqrt(variance / n)

    def _critical(self, n: int) -> float:
        return -float(scipy.special.stdtrit(n - 1, self.alpha))  # by symmetry the upper quantile


def climbed(state: State, evidence: Evidence, threshold: float, step: float) -> Decided:
    """Release the rounded risk if the risk is below the threshold.

    Where the rounded risk would be the released one again, a paper's rule may still fire
    (never `Ladder`'s, nor any with losses of 0 and 1). Nothing new is released then, so it
    is no improvement here, and the incumbent stays the submission that earned the release.
    The papers would compare the next losses with those of the newcomer: on real-valued
    losses a later release can therefore come at another time than theirs.
    """
    risk = state.released_as(evidence, step)
    # Both are always worked out: how long a rejection takes must not reveal why.
    if below(evidence.risk, threshold) & below(risk, state.standing):
        return released(state, evidence, risk)
    return unchanged(state, evidence)


def _threshold(state: State, evidence: Evidence, factor: float) -> float:
    if math.isinf(state.standing):
        return state.standing
    # Without a comparison to the incumbent nothing can be known to be better than it.
    if evidence.spread is None or math.isinf(evidence.spread):
        return -math.inf
    return state.standing - factor * evidence.spread


def compared(mechanism: str, state: State, evaluation: Evaluation) -> Evidence:
    """Measure the risk, and the standard error of its difference from the incumbent's."""
    losses = losses_of(mechanism, evaluation)
    if state.incumbent is None:
        return Evidence(evaluation.risk)
    draws = evaluation.n_draws
    if draws == 1:
        return Evidence(evaluation.risk, spread=math.inf)
    difference = losses - losses_of(mechanism, state.incumbent)
    if evaluation.groups is not None:
        # Of a ratio of sums over groups: each group by its rows less what their number explains.
        difference = evaluation.of_draws(difference - difference.mean()) * (draws / state.n)
    return Evidence(evaluation.risk, _deviation(difference) / math.sqrt(draws))


def _deviation(values: NDArray[np.float64]) -> float:
    """Return what `numpy.std` does with ddof=1, to the bit, without a second array as long."""
    values -= values.sum() / len(values)
    np.multiply(values, values, out=values)
    return math.sqrt(values.sum() / (len(values) - 1))


def losses_of(
    mechanism: str, evaluation: Evaluation, *, bounded: bool = False
) -> NDArray[np.float64]:
    """Return the losses of a submission, for proofs in their range; refuse a metric without any."""
    losses = evaluation.bounded_losses if bounded else evaluation.losses
    if losses is None:
        raise InvalidArgument(
            "mechanism",
            "one that needs the risk alone, for a metric that is no mean of per-example losses",
            mechanism,
            "Ladder, ShakyLadder, BayesBootLadder and more work for any metric.",
        )
    return losses


# About what a certificate of 95% pays before the first release, and for each one, in nats: so
# it was in searches of 100 to 1,000 queries (benchmarks/defaults.py).
_BEFORE, _EACH = 14.0, 10.0


@dataclass(frozen=True, slots=True)
class PricedLadder(Mechanism):
    """Release if the risk is below the released one by more than the release will cost.

    Not from a paper: docs/decisions/0017-the-default-mechanism.md. A certificate that pays L
    nats is about sqrt(2 L r (1 - r) / n) wide, r being the released risk, and each release
    adds about ten nats to those of all later incumbents. The margin is a share of what the
    next one adds to the width: sqrt(r (1 - r) / n) times 1.64 for the second release, 1.32
    for the third and .92 for the sixth. It needs the risk alone, and its range. Releases are
    rounded to 1/n. Where r is 0 nothing improves any more; where it is 1 anything does.

    Parameters
    ----------
    weight : float, default=0.7
        The share, in (0, 2].

    Raises
    ------
    InvalidArgument
        If the weight is outside (0, 2].

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = np.zeros((3, 1000))
    >>> losses[0, :100] = losses[1, :95] = losses[2, :80] = 1
    >>> run(PricedLadder(), losses, np.random.default_rng(0)).tolist()
    [0.1, 0.1, 0.08]
    """

    weight: float = 0.7
    needs_bounded_risk: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "falling"
    takes_scale: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the weight."""
        remedy = "0.7 certifies most without loss of truth; 1.0 is stricter."
        object.__setattr__(self, "weight", within("weight", self.weight, 2.0, remedy))

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release below the last risk less the price; see `Mechanism.decide`."""
        threshold = state.standing - self.least_gain(state, 0.0) if state.releases else math.inf
        return climbed(state, evidence, threshold, 1.0 / state.n)

    def bar(self, state: State) -> float:
        """Return the released risk less the price of the next release."""
        return state.standing - self.least_gain(state, 0.0)

    def resolution(self, n: int) -> float:
        """Return 1/n."""
        return 1.0 / n

    def least_gain(self, state: State, variance: float) -> float:
        """Return the price of the next release, whatever the variance."""
        paid = _BEFORE + _EACH * state.releases
        wider = math.sqrt(2.0 * paid) - math.sqrt(2.0 * (paid - _EACH))
        # The mean of losses in [0, 1] may be outside of it by a rounding error.
        largest_variance = max(state.standing * (1.0 - state.standing), 0.0)
        return self.weight * wider * math.sqrt(largest_variance / state.n)


BY_ACCOUNT = 'Give the account that submits: ladderholdout.leaderboard.Leaderboard(per="rank").'


@dataclass(frozen=True, slots=True)
class RankLadder(Stepped):
    """One `SimplifiedLadder` for each place of a leaderboard; accounts take the places.

    Blum & Hardt 2015, Section 2.1: an instance of the algorithm for each rank, against which
    a submission is evaluated in descending order. It takes the first place whose released
    risk it improves, and those from there on move down by one. An account holds one place at
    most, its best: what moves down stops at its former place. A submission that takes no
    place is answered with what it had to beat: what its account has, or the last place.

    So no place's risk ever grows. At most ``places`` times as many releases are given as
    there are steps in the range of the risk, however many accounts there are. Equal numbers
    of steps are ranked in the order in which they came.

    Parameters
    ----------
    step : float
        The grid of the releases, in (0, 1].
    places : int
        Number of places, at least 1.

    Raises
    ------
    InvalidArgument
        If a setting is refused.

    Examples
    --------
    >>> ladder, rng = RankLadder(step=0.1, places=2), np.random.default_rng(0)
    >>> state = ladder.start(2)
    >>> for account, risk in (("Ada", 0.5), ("Ben", 0.3), ("Cyd", 0.6), ("Ada", 0.2)):
    ...     evaluation = Evaluation.from_losses([risk, risk]).by(account)
    ...     state, outcome = ladder.advance(state, evaluation, rng)
    ...     print(outcome, state.places)
    Outcome(risk=0.5, improved=True) ((5, 'Ada'),)
    Outcome(risk=0.3, improved=True) ((3, 'Ben'), (5, 'Ada'))
    Outcome(risk=0.5, improved=False) ((3, 'Ben'), (5, 'Ada'))
    Outcome(risk=0.2, improved=True) ((2, 'Ada'), (3, 'Ben'))
    """

    places: int
    needs_account: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = "any"
    by_groups: ClassVar[bool] = True
    needs_bounded_risk: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate step and places."""
        Stepped.__post_init__(self)
        object.__setattr__(self, "places", whole("places", self.places))

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Read the risk, and who submits."""
        if evaluation.account is None:
            allowed = "one for a single account, for a submission that names none"
            raise InvalidArgument("mechanism", allowed, self.name, BY_ACCOUNT)
        return Evidence(evaluation.risk, account=evaluation.account)

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Climb the places from the first; `Mechanism.decide` has the parameters."""
        account = evidence.account
        assert account is not None  # `measure` refuses without
        risk, bar = round_half_up(evidence.risk, self.step), self.to_beat(state, account)
        steps = round(risk / self.step)
        if bar is not None and steps >= bar:
            return state, Outcome(round_half_up(bar * self.step, self.step), False, evidence)
        place = sum(known <= steps for known, _ in state.places)
        others = [(known, holder) for known, holder in state.places if holder != account]
        places = (*others[:place], (steps, account), *others[place:])
        return released(replace(state, places=places[: self.places]), evidence, risk)

    def to_beat(self, state: State, account: str) -> int | None:
        """Return what an account has to be below to take a place.

        Parameters
        ----------
        state : State
        account : str

        Returns
        -------
        int or None
            A number of steps: what it has, or what the last place has. None where a
            place is empty: that is improved by anything, as a ladder by its first submission.

        Examples
        --------
        >>> ladder = RankLadder(step=0.1, places=2)
        >>> ladder.to_beat(ladder.start(2), "Ada") is None
        True
        """
        for steps, holder in state.places:
            if holder == account:
                return steps
        return state.places[-1][0] if len(state.places) == self.places else None
