"""One mechanism in many repetitions at once: ladders that go in step, and the losses they see.

Most submissions improve nothing, and a risk that is not below the released one never does
under the rules of the Ladder family without noise. So these rules are asked themselves, but
only about the others (`Climbing`). Four rules that disclose or add noise are written again for
arrays: a boosting attack takes 5 to 12 times as long where each ladder asks the rule about its
risk, and the releases are the same bit for bit (tests/lab/test_analysts.py). All other rules
advance one by one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ladderholdout.lab.analyst import Floats
from ladderholdout.lab.bits import Bits, Flags, Ints
from ladderholdout.mechanisms import (
    Evidence,
    FullDisclosure,
    GaussianLadder,
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
    State,
)
from ladderholdout.mechanisms.arithmetic import TIE, round_half_up
from ladderholdout.metrics import Evaluation


class Losses(ABC):
    """What a mechanism may ask of R submissions, one in each repetition.

    Attributes
    ----------
    n : int
        Rows of a holdout.
    risks : ndarray of shape (R,)
        Empirical risks.
    """

    n: int
    risks: Floats

    @abstractmethod
    def evaluation(self, repetition: int) -> Evaluation:
        """Return one submission as a mechanism sees it by itself."""


class Comparable(Losses):
    """Losses of single rows, which can be compared with an incumbent's of the same kind."""

    @abstractmethod
    def spreads(self, incumbent: Self, chosen: NDArray[np.intp]) -> Floats:
        """Return the standard error of the mean difference from the incumbent's losses.

        It is that of the chosen repetitions, and infinite on one row.
        """

    @abstractmethod
    def instead(self, flags: Flags, incumbent: Self) -> Self:
        """Return these losses where the flag is set, and the incumbent's elsewhere."""


@dataclass(frozen=True, slots=True, eq=False)
class Errors(Comparable):
    """Losses of 0 and 1."""

    bits: Bits
    n: int = field(init=False)
    risks: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Count the errors."""
        object.__setattr__(self, "n", self.bits.n)
        object.__setattr__(self, "risks", self.bits.count() / self.n)

    def evaluation(self, repetition: int) -> Evaluation:
        """Unpack one row."""
        return Evaluation.from_losses(self.bits.take(np.array([repetition])).unpack()[0])

    def spreads(self, incumbent: Self, chosen: NDArray[np.intp]) -> Floats:
        """Compute them from counts: the differences are -1, 0 and 1."""
        if self.n == 1:
            return np.full(len(chosen), math.inf)
        differing = (self.bits.take(chosen) ^ incumbent.bits.take(chosen)).count()
        gain = self.n * (self.risks[chosen] - incumbent.risks[chosen])
        squares = np.maximum(differing - gain * gain / self.n, 0.0)
        return np.sqrt(squares / (self.n - 1) / self.n)

    def instead(self, flags: Flags, incumbent: Self) -> Self:
        """Choose row by row."""
        return type(self)(self.bits.where(flags, incumbent.bits))


@dataclass(frozen=True, slots=True, eq=False)
class Numbers(Comparable):
    """Losses of any size."""

    array: Floats
    n: int = field(init=False)
    risks: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Take the means; on rows that are together they are those of single rows."""
        object.__setattr__(self, "array", np.ascontiguousarray(self.array, dtype=np.float64))
        object.__setattr__(self, "n", self.array.shape[1])
        object.__setattr__(self, "risks", self.array.mean(axis=1))

    def evaluation(self, repetition: int) -> Evaluation:
        """Take one row."""
        return Evaluation.from_losses(self.array[repetition])

    def spreads(self, incumbent: Self, chosen: NDArray[np.intp]) -> Floats:
        """Compute them as one ladder does by itself."""
        if self.n == 1:
            return np.full(len(chosen), math.inf)
        deviations = np.std(self.array[chosen] - incumbent.array[chosen], axis=1, ddof=1)
        return np.asarray(deviations / math.sqrt(self.n))

    def instead(self, flags: Flags, incumbent: Self) -> Self:
        """Choose row by row."""
        return type(self)(np.where(flags[:, None], self.array, incumbent.array))


@dataclass(frozen=True, slots=True, eq=False)
class Evaluations(Losses):
    """What a metric comes to that is no mean of losses."""

    each: tuple[Evaluation, ...]
    n: int = field(init=False)
    risks: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Collect the risks."""
        object.__setattr__(self, "n", self.each[0].n)
        object.__setattr__(self, "risks", np.array([evaluation.risk for evaluation in self.each]))

    def evaluation(self, repetition: int) -> Evaluation:
        """Take one."""
        return self.each[repetition]


def losses_of(losses: Bits | Floats | Sequence[Evaluation]) -> Losses:
    """Wrap what a problem's `losses` returned.

    Examples
    --------
    >>> losses_of(Bits.pack([[1, 0, 0, 0]])).risks.tolist()
    [0.25]
    """
    if isinstance(losses, Bits):
        return Errors(losses)
    return Numbers(losses) if isinstance(losses, np.ndarray) else Evaluations(tuple(losses))


CLIMBING = (
    Ladder,
    SimplifiedLadder,
    ParameterFreeLadder,
    PairedTestLadder,
    PricedLadder,
)


class Ladders(ABC):
    """R ladders of one account.

    Attributes
    ----------
    released : ndarray of shape (R,)
        The released risks.
    releases : ndarray of int of shape (R,)
        How many releases were given.
    """

    def __init__(self, mechanism: Mechanism, n: int, repetitions: int) -> None:
        start = mechanism.start(n)
        self.mechanism, self.n = mechanism, n
        self.released = np.full(repetitions, start.standing)
        self.releases: Ints = np.zeros(repetitions, dtype=np.int64)

    @abstractmethod
    def advance(
        self, losses: Losses, inner: Floats | None, rng: np.random.Generator
    ) -> tuple[Floats, Flags]:
        """Take one submission in each repetition; return the released risks, and which improved.

        For mechanisms that ask for them, `inner` has the risks on the training rows.
        """

    def _take(self, risks: Floats, improved: Flags) -> tuple[Floats, Flags]:
        """Take over a new risk where it improves."""
        self.released = np.where(improved, risks, self.released)
        self.releases = self.releases + improved
        return self.released, improved


class Climbing(Ladders):
    """The ladders without noise: the rule itself decides on what is below the released risk."""

    incumbent: Comparable | None = None

    def advance(
        self, losses: Losses, inner: Floats | None, rng: np.random.Generator
    ) -> tuple[Floats, Flags]:
        """Ask the rule where there may be an improvement; see `Ladders.advance`."""
        assert isinstance(losses, Comparable)
        promising = np.flatnonzero(losses.risks < self.released)
        # At the first submission every repetition improves, so all or none have an incumbent.
        spreads: Sequence[float | None] = [None] * len(promising)
        if self.incumbent is not None:
            spreads = losses.spreads(self.incumbent, promising).tolist()
        risks, improved = self.released.copy(), np.zeros(len(self.released), dtype=bool)
        for i, spread in zip(promising.tolist(), spreads, strict=True):
            state = State(self.n, float(self.released[i]), releases=int(self.releases[i]))
            evidence = Evidence(float(losses.risks[i]), spread)
            _, outcome = self.mechanism.decide(state, evidence, rng)
            risks[i], improved[i] = outcome.risk, outcome.improved
        if self.mechanism.needs_losses and improved.any():
            before = self.incumbent
            self.incumbent = losses if before is None else losses.instead(improved, before)
        return self._take(risks, improved)


class Disclosing(Ladders):
    """Each submission's own risk is released, rounded or not."""

    def advance(
        self, losses: Losses, inner: Floats | None, rng: np.random.Generator
    ) -> tuple[Floats, Flags]:
        """Round and release; see `Ladders.advance`."""
        step = self.mechanism.resolution(self.n)
        risks = rounded(losses.risks, step) if step else losses.risks
        improved = below(risks, self.released)
        self._take(risks, improved)
        self.releases = self.releases + ~improved
        return risks, improved


class Shaky(Ladders):
    """The Shaky Ladder: its draws in the order of `ShakyLadder.decide`."""

    threshold: Floats | None = None

    def advance(
        self, losses: Losses, inner: Floats | None, rng: np.random.Generator
    ) -> tuple[Floats, Flags]:
        """Compare and release under noise; see `Ladders.advance`."""
        rule = self.mechanism
        assert isinstance(rule, ShakyLadder)
        if self.threshold is None:
            self.threshold = self._laplace(rule.noise, rng)
        comparison, release, redrawn = (self._laplace(rule.noise, rng) for _ in range(3))
        improved = below(losses.risks + comparison, self.released - rule.step + self.threshold)
        self.threshold = np.where(improved, redrawn, self.threshold)
        return self._take(losses.risks + release, improved)

    def _laplace(self, scale: float, rng: np.random.Generator) -> Floats:
        uniform = rng.random(len(self.released))
        tail = np.maximum(2.0 * np.minimum(uniform, 1.0 - uniform), 2.0**-53)
        # Not NumPy's logarithm, whose last bit may be another one.
        logs = np.fromiter(map(math.log, tail.tolist()), np.float64, len(tail))
        return np.copysign(scale * logs, uniform - 0.5)


class Gaussian(Ladders):
    """The Ladder on noisy risks."""

    def advance(
        self, losses: Losses, inner: Floats | None, rng: np.random.Generator
    ) -> tuple[Floats, Flags]:
        """Release below the released risk less a step, under noise; see `Ladders.advance`."""
        rule = self.mechanism
        assert isinstance(rule, GaussianLadder)
        uniform = np.maximum(rng.random(len(self.released)), 2.0**-54)
        risks = losses.risks + rule.noise * ndtri(uniform)
        improved = below(risks, self.released - rule.step)
        risks[improved] = rounded(risks[improved], rule.step)
        return self._take(risks, improved)


class OneByOne(Ladders):
    """Any other rule: each repetition advances by itself."""

    def __init__(self, mechanism: Mechanism, n: int, repetitions: int) -> None:
        super().__init__(mechanism, n, repetitions)
        self.states = [mechanism.start(n)] * repetitions

    def advance(
        self, losses: Losses, inner: Floats | None, rng: np.random.Generator
    ) -> tuple[Floats, Flags]:
        """Advance each; see `Ladders.advance`."""
        risks, improved = np.empty(len(self.states)), np.zeros(len(self.states), dtype=bool)
        for i, state in enumerate(self.states):
            evaluation = self._evaluation(losses, i)
            if inner is not None:
                evaluation = evaluation.with_inner_score(float(inner[i]))
            self.states[i], outcome = self.mechanism.advance(state, evaluation, rng)
            risks[i], improved[i] = outcome.risk, outcome.improved
        self._note(risks, improved)
        return risks, improved

    def _evaluation(self, losses: Losses, repetition: int) -> Evaluation:
        return losses.evaluation(repetition)

    def _note(self, risks: Floats, improved: Flags) -> None:
        self.released = np.array([state.standing for state in self.states])
        self.releases = np.array([state.releases for state in self.states])


class Shared(OneByOne):
    """A rule with one state for all accounts, which knows whose submission it is."""

    account = "0"

    def join(self, others: Ladders, account: int) -> None:
        """Go on with the states of another account, which both change from now on."""
        assert isinstance(others, Shared)
        self.states, self.account = others.states, str(account)

    def _evaluation(self, losses: Losses, repetition: int) -> Evaluation:
        return losses.evaluation(repetition).by(self.account)

    def _note(self, risks: Floats, improved: Flags) -> None:
        # The states hold what all accounts have; this is what one has.
        self._take(risks, improved)


def ladders(mechanism: Mechanism, losses: Losses) -> Ladders:
    """Start the ladders of one account.

    Examples
    --------
    >>> from ladderholdout.lab.bits import Bits
    >>> losses = losses_of(Bits.pack([[1, 0, 1, 0], [1, 0, 0, 0]]))
    >>> two = ladders(Ladder(step=0.1), losses)
    >>> risks, improved = two.advance(losses, None, np.random.default_rng(0))
    >>> risks.tolist(), improved.tolist()
    ([0.5, 0.3], [True, True])
    """
    return _kind(mechanism, losses)(mechanism, losses.n, len(losses.risks))


def _kind(mechanism: Mechanism, losses: Losses) -> type[Ladders]:
    # By type and not by isinstance: a subclass may decide otherwise.
    rule = type(mechanism)
    if rule in CLIMBING and isinstance(losses, Comparable):
        return Climbing
    if rule in (FullDisclosure, RoundedDisclosure):
        return Disclosing
    if mechanism.needs_account:
        return Shared
    if rule is ShakyLadder:
        return Shaky
    return Gaussian if rule is GaussianLadder else OneByOne


def below(risks: Floats, bounds: Floats) -> Flags:
    """Compare as `mechanisms.arithmetic.below` does, entry by entry.

    Examples
    --------
    >>> below(np.array([0.7, 0.7]), np.array([0.8 - 0.1, np.inf])).tolist()
    [False, True]
    """
    finite = np.where(np.isinf(bounds), 0.0, bounds)
    size = np.maximum(1.0, np.maximum(np.abs(risks), np.abs(finite)))
    tie = np.isfinite(bounds) & (np.abs(risks - finite) <= TIE * size)
    return np.asarray((risks < bounds) & ~tie)


def rounded(risks: Floats, step: float) -> Floats:
    """Round as `mechanisms.arithmetic.round_half_up` does, which rounds each value once.

    Examples
    --------
    >>> rounded(np.array([0.15, 0.3, 0.15]), 0.1).tolist()
    [0.2, 0.3, 0.2]
    """
    values, places = np.unique(risks, return_inverse=True)
    return np.array([round_half_up(value, step) for value in values.tolist()])[places]
