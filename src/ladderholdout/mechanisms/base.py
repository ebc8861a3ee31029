"""What every mechanism is: frozen settings, a state, and two pure functions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from ladderholdout.arguments import as_given, whole, within
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import round_half_up
from ladderholdout.metrics import Evaluation


@dataclass(frozen=True, slots=True)
class State:
    """What a ladder remembers between two submissions.

    Parameters
    ----------
    n : int
        Number of examples in the holdout.
    standing : float
        The released risk; infinite before the first release.
    incumbent : Evaluation or None, default=None
        The submission behind the released risk. Not compared and not shown: a replay
        from the ledger does without it.
    noise : float or None, default=None
        Threshold noise of `ShakyLadder` and `Thresholdout`, None before it is drawn. Secret,
        so not shown.
    releases : int, default=0
        How many releases were given.
    places : tuple of (int, str), default=()
        For `RankLadder`: the released risk of each place, the best first, as a number of steps,
        and whose it is.
    candidates, accepted : int, default=0
        For `GateLadder`: how many were compared with an incumbent, and replaced it.
    unit : float, default=1.0
        For `GateLadder`: the width of the range of losses, set by `LadderRules` before it measures.
    price : float, default=0.0
        For `GateLadder`: the code length of what was shown of the rows beside its own decisions, in
        nats. Whoever holds the record of that sets it before the ladder measures.

    Examples
    --------
    >>> State(n=100, standing=0.25, noise=0.01, releases=3)
    State(n=100, standing=0.25, releases=3)
    """

    n: int
    standing: float
    incumbent: Evaluation | None = field(default=None, compare=False, repr=False)
    noise: float | None = field(default=None, repr=False)
    releases: int = 0
    places: tuple[tuple[int, str], ...] = field(default=(), repr=False)
    candidates: int = field(default=0, repr=False)
    accepted: int = field(default=0, repr=False)
    unit: float = field(default=1.0, compare=False, repr=False)
    price: float = field(default=0.0, compare=False, repr=False)
    # What the next submission would be released as, where the metric has a grid of its own:
    # `LadderRules` sets it before each decision.
    on_grid: float | None = field(default=None, compare=False, repr=False)

    def released_as(self, evidence: Evidence, step: float) -> float:
        """Return the number that a submission is released as, if it is.

        Parameters
        ----------
        evidence : Evidence
        step : float
            The mechanism's own grid, where the metric has none.

        Returns
        -------
        float

        Examples
        --------
        >>> State(n=100, standing=0.25).released_as(Evidence(0.2001), step=0.1)
        0.2
        """
        return round_half_up(evidence.risk, step) if self.on_grid is None else self.on_grid

    def released_at(self, standing: float, on_grid: float | None = None) -> State:
        """Return the same state with another released risk.

        Parameters
        ----------
        standing : float
        on_grid : float or None, default=None
            What the next submission would be released as, on the grid of the metric.

        Returns
        -------
        State

        Examples
        --------
        >>> State(n=100, standing=0.25, releases=3).released_at(0.2).standing
        0.2
        >>> State(100, 0.25).released_at(0.25, 0.2).released_as(Evidence(0.2001), step=0.1)
        0.2
        """
        # Not by `replace`, which takes five times as long: every decision does this.
        carried = self.incumbent, self.noise, self.releases, self.places
        gate = self.candidates, self.accepted, self.unit, self.price
        return State(self.n, standing, *carried, *gate, on_grid)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a rule needs to know of one submission; the ledger records it.

    Parameters
    ----------
    risk : float
        The empirical risk. Raw, so not shown.
    spread : float or None, default=None
        Standard error of the mean difference from the incumbent's losses, for the rules
        that use it; None where there is no incumbent. Raw, so not shown.
    p_null : float or None, default=None
        How likely it is no better than the incumbent, for the rules that bootstrap: the
        p-value of a test or a posterior probability. Raw, so not shown.
    estimate : float or None, default=None
        A bootstrap estimate of the risk, to be released. Not shown before it is.
    inner_score : float or None, default=None
        The risk on the training rows, for `Thresholdout`.
    account : str or None, default=None
        Who submits, for `RankLadder`.
    clipped : int or None, default=None
        How many losses were clipped to the stated range, for an audit: no rule goes by it.
        None where none can be. Raw, so not shown.
    margin : float or None, default=None
        Of `GateLadder`: the gain that was tested for; None for other rules.

    Examples
    --------
    >>> Evidence(risk=0.25, spread=0.01)
    Evidence()
    """

    risk: float = field(repr=False)
    spread: float | None = field(default=None, repr=False)
    p_null: float | None = field(default=None, repr=False)
    estimate: float | None = field(default=None, repr=False)
    inner_score: float | None = field(default=None, repr=False)
    account: str | None = field(default=None, repr=False)
    clipped: int | None = field(default=None, repr=False)
    margin: float | None = field(default=None, repr=False)

    def per(self, unit: float) -> Evidence:
        """Express the evidence in another unit of risk.

        Parameters
        ----------
        unit : float
            The size of the new unit in the present one.

        Returns
        -------
        Evidence
            The same evidence, divided by the unit.

        Examples
        --------
        >>> Evidence(risk=25.0, spread=1.0).per(100.0) == Evidence(risk=0.25, spread=0.01)
        True
        """

        def divided(number: float | None) -> float | None:
            return None if number is None else number / unit

        risk, spread = self.risk / unit, divided(self.spread)
        estimate, inner_score = divided(self.estimate), divided(self.inner_score)
        others = self.account, self.clipped, self.margin
        return Evidence(risk, spread, self.p_null, estimate, inner_score, *others)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step comes to.

    Parameters
    ----------
    risk : float
        The released risk.
    improved : bool
        Whether this submission is the incumbent now.
    evidence : Evidence
        What the decision rests on. Raw, so not shown.

    Examples
    --------
    >>> Outcome(risk=0.25, improved=True, evidence=Evidence(0.2501))
    Outcome(risk=0.25, improved=True)
    """

    risk: float
    improved: bool
    evidence: Evidence = field(repr=False)


Decided: TypeAlias = tuple[State, Outcome]
"""The state after a submission, and what came of it."""


@dataclass(frozen=True, slots=True)
class Mechanism(ABC):
    """Base of all mechanisms: a frozen dataclass of settings with pure functions.

    Risks are losses, smaller is better, mostly in [0, 1]; `LadderRules` brings other
    ranges there. A subclass writes `decide`, and `measure` where the risk alone is not
    enough. Only one of the two may use ``rng``, so that a replay with the same generator
    meets the same numbers. `measure` must be equivariant to the unit of the losses.

    Attributes
    ----------
    discloses : bool
        Whether each submission's own risk is released.
    redraws : bool
        Whether a new number is released for a submission that does not improve, too.
    needs_losses : bool
        Whether `measure` needs per-example losses.
    needs_inner_score : bool
        Whether `measure` needs the risk on the training rows.
    needs_account : bool
        Whether `measure` needs to know who submits.
    needs_bounded_risk : bool
        Whether the rule means nothing unless the range of the risk is known.
    flags_alone : bool
        Whether the rule's promise holds where nothing but whether submissions improved is shown.
        Then `LadderHoldout` shows that alone, weighs no rows, and judges batches in their order.
    counted : {"falling", "any"} or None
        How a certificate counts what is released: the empirical risk, on the grid of
        `resolution` (0.0: unrounded), each smaller than the one before, or in any order. None
        where it is another number, or one of which there is no end: then there is no
        certificate. A subclass with a `measure` or `decide` of its own states it anew.
    noisy : bool
        Whether noise is added to the risk that is released; `allowance` is how much.
    takes_scale : bool
        Whether a release is `State.released_as`, and so on the grid of the metric
        (`ladderholdout.metrics.scales.Scale`) where `LadderRules` has one; a mechanism that
        releases numbers of its own does not. A subclass with a `decide` of its own states it anew.
    draws : bool
        Whether `measure` or `decide` uses ``rng``. A subclass with either of its own states it
        anew: by default it does.
    by_groups : bool
        Whether a `measure` of its own compares or resamples whole groups of rows, where the
        evaluation has groups. A subclass with a `measure` or `decide` of its own states it anew.

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder
    >>> ladder = Ladder(step=0.1)
    >>> rng = np.random.default_rng(0)
    >>> state = ladder.start(4)
    >>> state, outcome = ladder.advance(state, Evaluation.from_losses([1, 0, 1, 0]), rng)
    >>> outcome
    Outcome(risk=0.5, improved=True)
    >>> state, outcome = ladder.advance(state, Evaluation.from_losses([1, 1, 1, 0]), rng)
    >>> outcome
    Outcome(risk=0.5, improved=False)
    """

    discloses: ClassVar[bool] = False
    redraws: ClassVar[bool] = False
    needs_losses: ClassVar[bool] = False
    needs_inner_score: ClassVar[bool] = False
    needs_account: ClassVar[bool] = False
    needs_bounded_risk: ClassVar[bool] = False
    flags_alone: ClassVar[bool] = False
    counted: ClassVar[Literal["falling", "any"] | None] = None
    noisy: ClassVar[bool] = False
    takes_scale: ClassVar[bool] = False
    draws: ClassVar[bool] = True
    by_groups: ClassVar[bool] = False

    def with_margin(self, margin: float) -> Mechanism:
        """Return the rule that tests for another gain; rules that test for none refuse.

        Parameters
        ----------
        margin : float
            In units of the range of the loss.

        Returns
        -------
        Mechanism

        Raises
        ------
        InvalidArgument
            This rule tests for no gain.

        Examples
        --------
        >>> from ladderholdout.mechanisms import GateLadder
        >>> GateLadder().with_margin(0.02).margin
        0.02
        """
        remedy = "Leave it out, or start a ladder with mechanism=GateLadder()."
        raise InvalidArgument("margin", f"left out for {self.name}", repr(margin), remedy)

    def is_spent(self, state: State) -> bool:
        """Return whether the rule accepts nothing any more, whatever is submitted.

        Parameters
        ----------
        state : State

        Returns
        -------
        bool

        Examples
        --------
        >>> from ladderholdout.mechanisms import GateLadder
        >>> GateLadder(horizon=5).is_spent(State(100, 0.2, candidates=5))
        True
        """
        return False

    @property
    def name(self) -> str:
        """The name under which the ledger knows this mechanism: that of its class."""
        return type(self).__name__

    def start(self, n_examples: int) -> State:
        """Return the state before the first submission.

        Parameters
        ----------
        n_examples : int
            Number of examples in the holdout, at least 1.

        Returns
        -------
        State
            Nothing is released yet, so any first submission improves.

        Raises
        ------
        InvalidArgument
            If ``n_examples`` is not a whole number of at least 1.
        """
        return State(n=whole("n_examples", n_examples), standing=math.inf)

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Read what the rule needs to know from the data.

        Parameters
        ----------
        state : State
            The state before this submission.
        evaluation : Evaluation
            The submission.
        rng : numpy.random.Generator
            Source of noise, unless `decide` uses it.

        Returns
        -------
        Evidence
            By default the risk alone.

        Examples
        --------
        >>> from ladderholdout.mechanisms import Ladder
        >>> from ladderholdout.metrics import Evaluation
        >>> import numpy as np
        >>> rng, ladder = np.random.default_rng(0), Ladder(step=0.1)
        >>> state = ladder.start(4)
        >>> ladder.measure(state, Evaluation.from_losses([1, 0, 0, 0]), rng).risk
        0.25
        """
        return Evidence(evaluation.risk)

    @abstractmethod
    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Turn state and evidence into a release, without the data.

        Parameters
        ----------
        state : State
            The state before this submission; its incumbent is not used.
        evidence : Evidence
            What `measure` found.
        rng : numpy.random.Generator
            Source of noise, unless `measure` uses it.

        Returns
        -------
        state : State
            The state after it, still with the former incumbent.
        outcome : Outcome
            The release.

        Examples
        --------
        >>> from ladderholdout.mechanisms import Ladder
        >>> from ladderholdout.metrics import Evaluation
        >>> import numpy as np
        >>> rng, ladder = np.random.default_rng(0), Ladder(step=0.1)
        >>> state = ladder.start(4)
        >>> evidence = ladder.measure(state, Evaluation.from_losses([1, 0, 0, 0]), rng)
        >>> ladder.decide(state, evidence, rng)[1].improved
        True
        """

    def advance(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Decided:
        """Take one submission: measure, decide, and on improvement remember it.

        Not called `step`, which is the name of a setting.

        Parameters
        ----------
        state : State
            The state before this submission.
        evaluation : Evaluation
            The submission.
        rng : numpy.random.Generator
            Source of noise.

        Returns
        -------
        state : State
            The state after it.
        outcome : Outcome
            The release.

        Raises
        ------
        InvalidArgument
            If the evaluation is of another number of examples, has no finite risk, or
            lacks the losses which the rule needs.
        """
        check_fits(state, evaluation)
        after, outcome = self.decide(state, self.measure(state, evaluation, rng), rng)
        return (replace(after, incumbent=evaluation) if outcome.improved else after), outcome

    def resolution(self, n: int) -> float:
        """Return the distance between two risks that can be released.

        Parameters
        ----------
        n : int
            Number of examples in the holdout.

        Returns
        -------
        float
            The step of the grid; 0.0 where releases are not rounded, as here.

        Examples
        --------
        >>> from ladderholdout.mechanisms import Ladder, PricedLadder
        >>> Ladder(step=0.1).resolution(400), PricedLadder().resolution(400)
        (0.1, 0.0025)
        """
        return 0.0

    def least_gain(self, state: State, variance: float) -> float:
        """Return by how much a risk has to be smaller than the released one to improve.

        Parameters
        ----------
        state : State
            Of a ladder with a release; the incumbent is not used.
        variance : float
            Of the difference of two losses on one example.

        Returns
        -------
        float
            Here one step of the grid, whatever the variance. Where the rule's own margin is less
            than the distance between two values that can be released, that is what counts.

        Examples
        --------
        >>> from ladderholdout.mechanisms import Ladder
        >>> Ladder(step=0.1).least_gain(State(n=400, standing=0.3, releases=1), 0.25)
        0.1
        """
        return self.resolution(state.n)

    def bar(self, state: State) -> float:
        """Return what a risk has to be below to be released next, as far as releases show it.

        Certificates pay for a value as one of those below this number.

        Parameters
        ----------
        state : State
            Of a ladder with a release; the incumbent is not used.

        Returns
        -------
        float
            Here the released risk.

        Examples
        --------
        >>> from ladderholdout.mechanisms import Ladder, ParameterFreeLadder
        >>> state = State(n=400, standing=0.3, releases=1)
        >>> round(Ladder(step=0.1).bar(state), 12), ParameterFreeLadder().bar(state)
        (0.2, 0.3)
        """
        return state.standing

    def allowance(self, log_level: float) -> float:
        """Return how far noise moves a release, but for a small chance.

        Parameters
        ----------
        log_level : float
            Natural logarithm of that chance, for both sides together.

        Returns
        -------
        float
            Here 0.0: without noise.

        Examples
        --------
        >>> from ladderholdout.mechanisms import GaussianLadder, Ladder
        >>> Ladder(step=0.1).allowance(-3.0)
        0.0
        """
        return 0.0

    def settings(self) -> dict[str, Any]:
        """Return the settings as a dictionary that JSON can hold.

        Returns
        -------
        dict
            With `mechanism_from` it makes an equal mechanism.

        Examples
        --------
        >>> from ladderholdout.mechanisms import Ladder
        >>> Ladder(step=0.1).settings()
        {'step': 0.1}
        """
        return {setting.name: getattr(self, setting.name) for setting in fields(self)}


def counting_of(mechanism: Mechanism) -> Literal["falling", "any"] | None:
    """Return how the releases of a mechanism are counted, as its own class states it.

    Parameters
    ----------
    mechanism : Mechanism

    Returns
    -------
    {"falling", "any"} or None
        `Mechanism.counted`; None where a class decides in its own way and does not state it.

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder
    >>> class Mine(Ladder):
    ...     def decide(self, state, evidence, rng):
    ...         return released(state, evidence, evidence.risk)
    >>> counting_of(Ladder(step=0.1)), counting_of(Mine(step=0.1))
    ('falling', None)
    """
    return mechanism.counted if _states(type(mechanism), "counted") else None


def bar_of(mechanism: Mechanism, state: State) -> float:
    """Return `Mechanism.bar` as the class that decides states it, else the released risk.

    Parameters
    ----------
    mechanism : Mechanism
    state : State
        Of a ladder with a release.

    Returns
    -------
    float

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder
    >>> class Mine(Ladder):
    ...     counted = "falling"
    ...
    ...     def decide(self, state, evidence, rng):
    ...         return released(state, evidence, evidence.risk)
    >>> bar_of(Mine(step=0.1), State(n=400, standing=0.3, releases=1))
    0.3
    """
    return mechanism.bar(state) if _states(type(mechanism), "bar") else state.standing


@cache
def draws(rule: type[Mechanism]) -> bool:
    """Return whether a class of mechanisms uses ``rng``, as it states itself; else it may.

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder, ShakyLadder
    >>> draws(Ladder), draws(ShakyLadder)
    (False, True)
    """
    return rule.draws or not _states(rule, "draws")


@cache
def takes_scale(rule: type[Mechanism]) -> bool:
    """Return whether a class of mechanisms releases on the metric's grid, as it states itself.

    Examples
    --------
    >>> from ladderholdout.mechanisms import FullDisclosure, Ladder
    >>> takes_scale(Ladder), takes_scale(FullDisclosure)
    (True, False)
    """
    return rule.takes_scale and _states(rule, "takes_scale")


@cache
def takes_groups(rule: type[Mechanism]) -> bool:
    """Return whether a class of mechanisms is right for rows that were drawn in groups.

    It is where it goes by the risk alone, or states that it takes groups for its units.

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder, PairedTestLadder, ParameterFreeLadder
    >>> [takes_groups(rule) for rule in (Ladder, ParameterFreeLadder, PairedTestLadder)]
    [True, True, False]
    """
    return rule.measure is Mechanism.measure or (rule.by_groups and _states(rule, "by_groups"))


def _states(rule: type[Mechanism], name: str) -> bool:
    """Return whether the class that measures and decides states this itself, not a parent."""
    for cls in rule.__mro__:
        if name in vars(cls):
            return True
        if vars(cls).keys() & {"measure", "decide"}:
            return False
    return False


def a_mechanism(mechanism: object) -> Mechanism:
    """Validate a mechanism.

    Raises
    ------
    InvalidArgument
        If it is something else.

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder
    >>> a_mechanism(Ladder(0.1))
    Ladder(step=0.1)
    """
    if not isinstance(mechanism, Mechanism):
        raise InvalidArgument(
            "mechanism",
            "a Mechanism, such as Ladder(step=0.01)",
            as_given(mechanism),
            "See ladderholdout.mechanisms.",
        )
    return mechanism


def check_fits(state: State, evaluation: Evaluation) -> None:
    """Refuse an evaluation that is not one of this ladder's holdout."""
    if evaluation.n != state.n:
        raise InvalidArgument(
            "evaluation", f"of the holdout's {state.n} examples", f"of {evaluation.n}"
        )
    if not math.isfinite(evaluation.risk):
        raise InvalidArgument(
            "evaluation", "of finite risk", "not", "Check for nan or infinite predictions."
        )


def released(state: State, evidence: Evidence, risk: float) -> Decided:
    """Give a release to a submission that improved.

    Parameters
    ----------
    state : State
        The state before.
    evidence : Evidence
        What the decision rests on.
    risk : float
        The risk to release.

    Returns
    -------
    state : State
        The state after, with one release more.
    outcome : Outcome
        The release.
    """
    after = replace(state, standing=risk, releases=state.releases + 1)
    return after, Outcome(risk, True, evidence)


def unchanged(state: State, evidence: Evidence) -> Decided:
    """Leave the release as it is.

    Parameters
    ----------
    state : State
        The state, returned as it is.
    evidence : Evidence
        What the decision rests on.

    Returns
    -------
    state : State
        The same state.
    outcome : Outcome
        The same release.
    """
    return state, Outcome(state.standing, False, evidence)


@dataclass(frozen=True, slots=True)
class Stepped(Mechanism):
    """A mechanism whose releases are multiples of a step in (0, 1]."""

    step: float

    def __post_init__(self) -> None:
        """Validate the step."""
        object.__setattr__(self, "step", within("step", self.step, 1.0))

    def resolution(self, n: int) -> float:
        """Return the step, whatever the holdout's size."""
        return self.step
