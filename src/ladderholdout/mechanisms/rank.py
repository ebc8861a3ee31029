"""The ladder of a leaderboard: one rule for each of its places."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import round_half_up, whole
from ladderholdout.mechanisms.base import Evidence, Outcome, State, released
from ladderholdout.mechanisms.stepped import Stepped
from ladderholdout.metrics import Evaluation

BY_ACCOUNT = 'Give the account that submits: ladderholdout.leaderboard.Leaderboard(per="rank").'


@dataclass(frozen=True, slots=True)
class RankLadder(Stepped):
    """One `SimplifiedLadder` for each place of a leaderboard; accounts take the places.

    Blum & Hardt 2015, Section 2.1: an instance of the algorithm for each rank, against which
    a submission is evaluated in descending order. It takes the first place whose standing
    risk it improves, and those from there on move down by one. An account holds one place at
    most, its best: what moves down stops where it stood before. A submission that takes no
    place is told what it had to beat: what its account has, or what stands at the last place.

    So no place's risk ever grows. At most ``places`` times as many releases are given as
    there are steps in the range of the risk, however many accounts there are. Equal numbers
    of steps stand in the order in which they came.

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
    counted: ClassVar[Literal["falling", "any"] | None] = "any"
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

    def decide(
        self, state: State, evidence: Evidence, rng: np.random.Generator
    ) -> tuple[State, Outcome]:
        """Climb the places from the first; `Mechanism.decide` says what the parts are."""
        account = evidence.account
        assert account is not None  # `measure` refuses without
        risk, bar = round_half_up(evidence.risk, self.step), self.to_beat(state, account)
        steps = round(risk / self.step)
        if bar is not None and steps >= bar:
            return state, Outcome(round_half_up(bar * self.step, self.step), False, evidence)
        place = sum(at <= steps for at, _ in state.places)
        others = [(at, who) for at, who in state.places if who != account]
        now = (*others[:place], (steps, account), *others[place:])
        return released(replace(state, places=now[: self.places]), evidence, risk)

    def to_beat(self, state: State, account: str) -> int | None:
        """Return what an account has to be below to take a place.

        Parameters
        ----------
        state : State
        account : str

        Returns
        -------
        int or None
            A number of steps: what it has, or what stands at the last place. None where a
            place is empty: that is improved by anything, as a ladder by its first submission.
        """
        own = [at for at, who in state.places if who == account]
        if own or len(state.places) == self.places:
            return own[0] if own else state.places[-1][0]
        return None
