"""The promises of every mechanism: purity, replay, and nothing beyond its releases."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, asdict, fields, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import (
    MECHANISMS,
    Evidence,
    LadderRules,
    Mechanism,
    Outcome,
    State,
    fresh_rng,
    mechanism_from,
)
from ladderholdout.metrics import Evaluation

N_ROWS, SUBMISSIONS = 60, 40


class MechanismContract:
    """The promises of a mechanism as tests. Derive a class whose name begins with ``Test``.

    It overrides the fixture `mechanism`. The submissions are guesses of rising accuracy, so
    that most mechanisms release some and not others.

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder
    >>> class TestLadder(MechanismContract):
    ...     @pytest.fixture
    ...     def mechanism(self):
    ...         return Ladder(step=0.05)
    """

    @pytest.fixture
    def mechanism(self) -> Mechanism:
        """Return the mechanism."""
        raise NotImplementedError("override the fixture mechanism")

    @pytest.fixture
    def losses(self) -> NDArray[np.float64]:
        """Return 0/1 losses, shape (submissions, rows); others that suit the mechanism may do."""
        rng = np.random.default_rng(0)
        risks = np.linspace(0.6, 0.2, SUBMISSIONS) + rng.normal(0, 0.1, SUBMISSIONS)
        return (rng.random((SUBMISSIONS, N_ROWS)) < risks[:, None]).astype(float)

    def test_the_ledger_can_store_it(self, mechanism: Mechanism) -> None:
        """Name and settings, as JSON, make an equal mechanism again."""
        assert MECHANISMS.get(mechanism.name) is type(mechanism), "add it to MECHANISMS"
        written = json.dumps(mechanism.settings())
        assert mechanism_from(mechanism.name, json.loads(written)) == mechanism

    def test_its_settings_are_frozen(self, mechanism: Mechanism) -> None:
        """No step can change the rule for the next one."""
        assert hash(mechanism) == hash(type(mechanism)(**mechanism.settings()))
        for setting in fields(mechanism):
            with pytest.raises(FrozenInstanceError):
                setattr(mechanism, setting.name, None)
        with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
            mechanism.memory = 1  # type: ignore[attr-defined]

    def test_the_first_submission_improves(
        self, mechanism: Mechanism, losses: NDArray[np.float64]
    ) -> None:
        """It improves, for nothing was released before it."""
        (_, outcome), *_ = _steps(mechanism, losses)
        assert outcome.improved
        assert math.isfinite(outcome.risk)

    def test_the_same_noise_gives_the_same_releases(
        self, mechanism: Mechanism, losses: NDArray[np.float64]
    ) -> None:
        """It draws from its generator alone, and leaves NumPy's global one as it was."""
        np.random.seed(0)
        before = np.random.get_state(legacy=False)
        first, second = _steps(mechanism, losses), _steps(mechanism, losses)
        assert [outcome for _, outcome in first] == [outcome for _, outcome in second]
        assert repr(np.random.get_state(legacy=False)) == repr(before)

    def test_every_release_replays_from_its_evidence(
        self, mechanism: Mechanism, losses: NDArray[np.float64]
    ) -> None:
        """The evidence gives each release bit for bit, through JSON and without the data."""
        rules = LadderRules(mechanism)
        state = rules.start(N_ROWS)
        for number, (live, outcome) in enumerate(_steps(mechanism, losses), 1):
            written = json.dumps(asdict(outcome.evidence))
            evidence = Evidence(**json.loads(written))
            state, again = rules.replay(state, evidence, fresh_rng(b"contract", 1, number))
            assert (again.risk.hex(), again.improved) == (outcome.risk.hex(), outcome.improved)
            assert repr(asdict(_numbers(state))) == repr(asdict(_numbers(live)))

    def test_who_does_not_improve_changes_nothing(
        self, mechanism: Mechanism, losses: NDArray[np.float64]
    ) -> None:
        """The incumbent stays, and so does the released risk unless the rule redraws it."""
        before = LadderRules(mechanism).start(N_ROWS)
        for after, outcome in _steps(mechanism, losses):
            if not outcome.improved:
                assert after.incumbent is before.incumbent
                assert mechanism.redraws or after.standing == before.standing
                assert mechanism.discloses or outcome.risk == after.standing
            before = after

    def test_a_state_is_not_changed_by_a_step(
        self, mechanism: Mechanism, losses: NDArray[np.float64]
    ) -> None:
        """Two steps from one state do not meet."""
        rules, rng = LadderRules(mechanism), np.random.default_rng
        state, _ = rules.step(rules.start(N_ROWS), _evaluation(losses[0]), rng(1))
        seen = repr(asdict(_numbers(state)))
        first = rules.step(state, _evaluation(losses[-1]), rng(2))[1]
        assert repr(asdict(_numbers(state))) == seen
        assert rules.step(state, _evaluation(losses[-1]), rng(2))[1] == first

    def test_a_budget_ends_the_releases(
        self, mechanism: Mechanism, losses: NDArray[np.float64]
    ) -> None:
        """When it is used up the last release stays."""
        steps = _steps(mechanism, losses, budget=1)
        (_, first), *others = steps
        assert {(outcome.risk, outcome.improved) for _, outcome in others} == {(first.risk, False)}

    def test_what_does_not_fit_is_refused(
        self, mechanism: Mechanism, losses: NDArray[np.float64]
    ) -> None:
        """An evaluation of another number of rows is refused."""
        rng = np.random.default_rng(0)
        with pytest.raises(InvalidArgument, match="evaluation must be"):
            mechanism.advance(mechanism.start(N_ROWS + 1), _evaluation(losses[0]), rng)

    def test_nothing_raw_is_shown(self, mechanism: Mechanism, losses: NDArray[np.float64]) -> None:
        """Neither state, evidence nor outcome prints a raw risk."""
        weights = np.random.default_rng(1).uniform(0.5, 1.5, N_ROWS)
        state, rules = mechanism.start(N_ROWS), LadderRules(mechanism)
        for number, row in enumerate(losses):
            evaluation = _evaluation(row * weights / 2)
            state, outcome = rules.step(state, evaluation, np.random.default_rng(number))
            if outcome.risk != evaluation.risk:
                assert repr(evaluation.risk)[:8] not in repr((state, outcome, outcome.evidence))


def _steps(
    mechanism: Mechanism, losses: NDArray[np.float64], budget: int | None = None
) -> list[tuple[State, Outcome]]:
    """Run a ladder as the guard does: noise by the submission's number."""
    rules = LadderRules(mechanism, budget)
    state, steps = rules.start(losses.shape[1]), []
    for number, row in enumerate(losses, 1):
        rng = fresh_rng(b"contract", 1, number)
        state, outcome = rules.step(state, _evaluation(row), rng)
        steps.append((state, outcome))
    return steps


def _evaluation(losses: NDArray[np.float64]) -> Evaluation:
    """Return a submission of somebody, as rules for leaderboards want to know."""
    return Evaluation.from_losses(losses).by("somebody")


def _numbers(state: State) -> State:
    """Leave out the incumbent, which a replay does not know."""
    return replace(state, incumbent=None)
