"""What a ladder adds to its mechanism: a budget of releases, and the unit of the risk.

`LadderRules.step` is what a live ladder runs, `LadderRules.replay` what an auditor runs
from the ledger; both end in the same code.
"""

from __future__ import annotations

import hmac
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ladderholdout.arguments import as_given, as_number, choice, whole, within
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.base import (
    Decided,
    Evidence,
    Mechanism,
    Outcome,
    State,
    a_mechanism,
    check_fits,
    draws,
    takes_scale,
    unchanged,
)
from ladderholdout.metrics import Evaluation
from ladderholdout.metrics.scales import Scale

# Beyond these powers of ten a double loses digits or overflows.
LEAST_EXPONENT, LARGEST_EXPONENT = -300, 300
SHOWN = ("scores", "improvements")


@dataclass(frozen=True, slots=True)
class LadderRules:
    """A mechanism with a bound on its releases and a unit for its risks.

    Mechanisms think in risks of about [0, 1]. Risks are divided by the unit before the
    mechanism sees them, and releases are multiplied by it; the state's released risk and
    incumbent and the evidence stay in the metric's own scale.

    Parameters
    ----------
    mechanism : Mechanism
        The rule.
    budget : int or None, default=None
        How many releases may be given; None is no bound. Afterwards the last one stays.
    unit : float or None, default=1.0
        Width of the range of the losses, positive; 1.0 for 0/1 losses. With None the range is not
        known (a squared error in the target's own unit): then each step takes its unit
        from `unit_of`, so that steps and rounding are relative to the risk.
    scale : Scale or None, default=None
        The grid of releases: that of the metric, which is finer than chance. A mechanism's own
        step is then the margin alone. None where releases are on the mechanism's grid, as in the
        papers.
    show : {"scores", "improvements"}, default="scores"
        What the answer to a submission has. With "improvements" it is whether it improved, and the
        released risk is shown on request alone. The decisions are the same.

    Raises
    ------
    InvalidArgument
        If a setting is refused, or the mechanism needs a known range and there is none.

    Examples
    --------
    >>> from ladderholdout.mechanisms import SimplifiedLadder
    >>> rules = LadderRules(SimplifiedLadder(step=0.01), budget=2, unit=None)
    >>> rng = np.random.default_rng(0)
    >>> state = rules.start(2)
    >>> for losses in ([8123.0, 8321.0], [61.2, 61.4], [0.5, 0.5]):
    ...     state, outcome = rules.step(state, Evaluation.from_losses(losses), rng)
    ...     print(outcome)
    Outcome(risk=8200.0, improved=True)
    Outcome(risk=61.0, improved=True)
    Outcome(risk=61.0, improved=False)
    """

    mechanism: Mechanism
    budget: int | None = None
    unit: float | None = 1.0
    scale: Scale | None = None
    show: str = "scores"

    def __post_init__(self) -> None:
        """Validate the settings."""
        a_mechanism(self.mechanism)
        choice("show", self.show, SHOWN)
        if self.budget is not None:
            object.__setattr__(self, "budget", whole("budget", self.budget))
        if self.unit is not None:
            object.__setattr__(self, "unit", within("unit", self.unit, 10.0**LARGEST_EXPONENT))
        elif self.mechanism.needs_bounded_risk:
            raise InvalidArgument(
                "loss_range",
                f"stated for {self.mechanism.name}, which goes by the scale of the losses",
                None,
                "State loss_range=(low, high).",
            )

    @property
    def shows_scores(self) -> bool:
        """Whether answers have the released score; else it is shown on request."""
        return self.show == "scores"

    def with_margin(self, margin: float | None) -> LadderRules:
        """Return the rules by which a gate tests for one gain.

        Parameters
        ----------
        margin : float or None
            In the metric's own units; None for that of the mechanism.

        Returns
        -------
        LadderRules

        Raises
        ------
        InvalidArgument
            The mechanism tests for no gain, or the margin is refused.

        Examples
        --------
        >>> from ladderholdout.mechanisms import GateLadder
        >>> LadderRules(GateLadder(), unit=10.0).with_margin(0.5).mechanism
        GateLadder(alpha=0.05, horizon=None, margin=0.05)
        """
        if margin is None:
            return self
        unit = self.unit or 1.0
        number = as_number(margin)
        if not 0.0 <= number < unit:  # nan is refused too
            allowed = f"a number from 0 to below {unit:g}, in the unit of the metric"
            raise InvalidArgument("margin", allowed, as_given(margin))
        return replace(self, mechanism=self.mechanism.with_margin(number / unit))

    def is_spent(self, state: State) -> bool:
        """Return whether nothing can improve the ladder any more, whatever is submitted.

        Parameters
        ----------
        state : State

        Returns
        -------
        bool

        Examples
        --------
        >>> from ladderholdout.mechanisms import GateLadder
        >>> rules = LadderRules(GateLadder(horizon=20))
        >>> [rules.is_spent(State(100, 0.1, candidates=count)) for count in (19, 20)]
        [False, True]
        """
        used_up = self.budget is not None and state.releases >= self.budget
        return used_up or self.mechanism.is_spent(state)

    def start(self, n: int) -> State:
        """Return the state before the first submission.

        Parameters
        ----------
        n : int
            Number of examples in the holdout.

        Returns
        -------
        State
            In the metric's own scale.

        Raises
        ------
        InvalidArgument
            If n is not a whole number of at least 1.
        """
        state = self.mechanism.start(n)
        return replace(state, standing=_times(state.standing, self.unit or 1.0))

    def step(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Decided:
        """Take one submission.

        Parameters
        ----------
        state : State
            The state before this submission.
        evaluation : Evaluation
            The submission.
        rng : numpy.random.Generator
            Source of noise; not touched when the budget is used up.

        Returns
        -------
        state : State
            The state after it; the same one when the budget is used up.
        outcome : Outcome
            The release, and the evidence that `replay` needs.

        Raises
        ------
        InvalidArgument
            If the evaluation does not fit the state or the mechanism.
        """
        check_fits(state, evaluation)
        evidence = Evidence(evaluation.risk, clipped=evaluation.clipped)
        if self.budget is None or state.releases < self.budget:
            # A range is public: what a rule knows of it depends on no loss.
            before = replace(state, unit=self.unit or 1.0) if self.mechanism.flags_alone else state
            evidence = self.mechanism.measure(before, evaluation, rng)
            if evaluation.clipped is not None:
                evidence = replace(evidence, clipped=evaluation.clipped)
        after, outcome = self.replay(state, evidence, rng)
        return (replace(after, incumbent=evaluation) if outcome.improved else after), outcome

    def replay(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Take one submission again, from its recorded evidence.

        Parameters
        ----------
        state : State
            The state before this submission; its incumbent is not needed.
        evidence : Evidence
            As recorded.
        rng : numpy.random.Generator
            The generator that `step` was given.

        Returns
        -------
        state : State
            Equal to the state that `step` returned.
        outcome : Outcome
            Equal to the outcome that `step` returned, bit for bit.

        Examples
        --------
        >>> from ladderholdout.mechanisms import Ladder
        >>> rules, rng = LadderRules(Ladder(step=0.1)), np.random.default_rng(0)
        >>> rules.replay(rules.start(4), Evidence(0.25), rng)[1].improved
        True
        """
        if self.budget is not None and state.releases >= self.budget:
            return unchanged(state, evidence)
        after, outcome = self._decided(state, evidence, rng)
        if self.shows_scores or outcome.improved:
            return after, outcome
        # A rule may release a number for what does not improve. No answer has it, so that a
        # request shows the same number until something improves.
        kept = replace(after, standing=state.standing, releases=state.releases)
        return kept, Outcome(state.standing, False, evidence)

    def _decided(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Decide in the mechanism's unit, and bring the result back."""
        grid, unit = self.grid(state.n), self.unit
        on_grid = None if grid is None else grid.nearest(evidence.risk, state.n)
        if unit == 1.0:  # nothing has to be divided, whatever the evidence
            before = state.released_at(state.standing, on_grid)
            after, outcome = self.mechanism.decide(before, evidence, rng)
            risk = state.standing if outcome.risk == state.standing else outcome.risk  # 0.0, -0.0
            return after, Outcome(risk, outcome.improved, evidence)
        if unit is None:
            # A disclosed risk is rounded by its own size, whatever was released before it.
            unit = unit_of(math.inf if self.mechanism.discloses else state.standing, evidence.risk)
        before = state.released_at(
            state.standing / unit, None if on_grid is None else on_grid / unit
        )
        after, outcome = self.mechanism.decide(before, evidence.per(unit), rng)

        def multiplied(risk: float) -> float:
            # The last release and the number on the grid go through unchanged: dividing and
            # multiplying could move their last digit. Either way the same work is done.
            is_on_grid = risk == before.on_grid
            product = on_grid if on_grid is not None and is_on_grid else _times(risk, unit)
            return state.standing if risk == before.standing else product

        return (
            after.released_at(multiplied(after.standing)),
            Outcome(multiplied(outcome.risk), outcome.improved, evidence),
        )

    def grid(self, n: int) -> Scale | None:
        """Return the grid of what is released, where it is the metric's.

        Parameters
        ----------
        n : int
            Number of examples in the holdout.

        Returns
        -------
        Scale or None
            None where the mechanism releases numbers of its own, and where its step was stated
            and losses are 0 or 1, so that the step is in the unit of the score.

        Examples
        --------
        >>> from ladderholdout.mechanisms import Ladder, PricedLadder
        >>> counts = Scale("counts")
        >>> LadderRules(PricedLadder(), scale=counts).grid(100).kind
        'counts'
        >>> LadderRules(Ladder(step=0.05), scale=counts).grid(100) is None
        True
        """
        scale = self.scale
        if scale is None or not takes_scale(type(self.mechanism)):
            return None
        step_is_stated = scale.kind == "counts" and self.mechanism.resolution(n) * n != 1.0
        return None if step_is_stated else scale

    def spacing(self, risk: float, n: int) -> float:
        """Return the distance between two risks that can be released, beside a released one.

        Parameters
        ----------
        risk : float
        n : int
            Number of examples in the holdout.

        Returns
        -------
        float
            For shares of errors one of n, where the mechanism states no step.

        Examples
        --------
        >>> from ladderholdout.mechanisms import BayesBootLadder, PricedLadder
        >>> LadderRules(PricedLadder(), scale=Scale("counts")).spacing(0.2, 400)
        0.0025
        >>> LadderRules(BayesBootLadder(3, step=0.02), scale=Scale("shares")).spacing(0.2, 400)
        0.002
        """
        grid = self.grid(n)
        if grid is not None and grid.kind != "counts":
            return grid.width(risk, n)
        unit = self.unit or unit_of(math.inf, risk)
        return (self.mechanism.resolution(n) or 1.0 / n) * unit


def unit_of(released: float, risk: float) -> float:
    """Return the unit of one step where the range of the losses is not known.

    The power of ten at or above the smaller of released and new risk. The new release then
    shows its unit by its own size, and reveals nothing more.

    Parameters
    ----------
    released : float
        The released risk, infinite before the first release.
    risk : float
        The new risk.

    Returns
    -------
    float
        A power of ten, by the magnitude of a negative risk; 1.0 for a risk of 0.

    Examples
    --------
    >>> unit_of(float("inf"), 8123.0), unit_of(0.002, 0.5), unit_of(100.0, 250.0)
    (10000.0, 0.01, 100.0)
    """
    smaller = min(released, risk)
    if smaller == 0.0:
        return 1.0
    # Twelve digits, so that the rounding noise of a sum does not lift 0.1 to the next power.
    digits, exponent = f"{abs(smaller):.11e}".split("e")
    power = int(exponent) + (float(digits) > 1.0)
    return float(f"1e{min(max(power, LEAST_EXPONENT), LARGEST_EXPONENT)}")


# For rules that draw nothing: to make a generator takes longer than all that they do.
_UNUSED = np.random.default_rng(0)


def rng_of(rules: LadderRules, secret: bytes, ladder: int, number: int) -> np.random.Generator:
    """Return the generator of one submission, as `fresh_rng` makes it; any where none is used."""
    if not draws(type(rules.mechanism)):
        return _UNUSED
    return fresh_rng(secret, ladder, number)


def fresh_rng(secret: bytes, ladder: int, number: int) -> np.random.Generator:
    """Return the generator of one submission: replayable with the secret, unknown without.

    Parameters
    ----------
    secret : bytes
        Drawn from the operating system when the ladder was registered.
    ladder : int
        The ladder's number in the ledger.
    number : int
        The submission's number.

    Returns
    -------
    numpy.random.Generator
        Philox, keyed with 16 bytes of the HMAC-SHA256 of both numbers.

    Examples
    --------
    >>> first, again = fresh_rng(b"secret", 1, 2), fresh_rng(b"secret", 1, 2)
    >>> first.random() == again.random()
    True
    """
    key = int.from_bytes(_key(secret, ladder, number), "little")
    return np.random.Generator(np.random.Philox(key=key))


def _key(secret: bytes, ladder: int, number: int) -> bytes:
    return hmac.digest(secret, f"{ladder}:{number}".encode(), "sha256")[:16]


class FreshRngs:
    """What `rng_of` returns, for one submission of a ladder after the other: it is quicker.

    It is one generator: the next one takes the place of the last.

    Parameters
    ----------
    rules : LadderRules
    secret : bytes
    ladder : int

    Examples
    --------
    >>> from ladderholdout.mechanisms import ShakyLadder
    >>> rules = LadderRules(ShakyLadder(step=0.1, noise=0.1))
    >>> FreshRngs(rules, b"secret", 1).of(2).random() == fresh_rng(b"secret", 1, 2).random()
    True
    """

    __slots__ = ("_bits", "_ladder", "_rng", "_secret", "_start")

    def __init__(self, rules: LadderRules, secret: bytes, ladder: int) -> None:
        self._secret, self._ladder = secret, ladder
        self._bits = np.random.Philox(key=0)
        self._start: Any = self._bits.state if draws(type(rules.mechanism)) else None
        self._rng = np.random.Generator(self._bits)

    def of(self, number: int) -> np.random.Generator:
        """Return the generator of the submission of this number."""
        if self._start is None:
            return _UNUSED
        key = _key(self._secret, self._ladder, number)
        self._start["state"]["key"] = np.frombuffer(key, "<u8")
        self._bits.state = self._start
        return self._rng


def _times(risk: float, unit: float) -> float:
    """Multiply, and take off the rounding noise: 0.07 * 100 is not 7.0 in binary."""
    scaled = float(f"{risk * unit:.15g}")
    return risk if unit == 1.0 else scaled
