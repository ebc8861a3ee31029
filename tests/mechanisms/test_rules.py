"""Attacks what a ladder adds to its mechanism: budgets, units, replay, the noise's generator."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import (
    Evidence,
    FullDisclosure,
    Ladder,
    LadderRules,
    Mechanism,
    Outcome,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
    State,
    fresh_rng,
    unit_of,
)
from ladderholdout.metrics import Evaluation

SECRET = bytes(range(32))
FEW = 25  # examples of a property for each mechanism
SCALE_FREE: tuple[Mechanism, ...] = (
    FullDisclosure(),
    RoundedDisclosure(step=0.01),
    Ladder(step=0.05),
    SimplifiedLadder(step=0.01),
    ParameterFreeLadder(),
    PairedTestLadder(alpha=0.15),
)
MECHANISMS = (*SCALE_FREE, PricedLadder(), ShakyLadder(step=0.05, noise=0.02))

budgets = st.none() | st.integers(1, 4)
units = st.none() | st.sampled_from([1.0, 7.0, 1e-6, 1e9])


@st.composite
def submissions(draw: st.DrawFn) -> np.ndarray:
    """Tenths between 0 and 1, so that ties and exact halves come up."""
    n, k = draw(st.integers(1, 6)), draw(st.integers(1, 10))
    tenths = st.lists(st.integers(0, 10), min_size=n, max_size=n)
    return np.array(draw(st.lists(tenths, min_size=k, max_size=k)), dtype=float) / 10


def rules_for(mechanism: Mechanism, budget: int | None, unit: float | None) -> LadderRules:
    if mechanism.needs_bounded_risk and unit is None:
        unit = 1.0
    return LadderRules(mechanism, budget, unit)


def live(rules: LadderRules, losses: np.ndarray) -> tuple[list[State], list[Outcome]]:
    """Run a ladder as the guard does: a fresh generator for each submission."""
    states, outcomes = [rules.start(losses.shape[1])], []
    for number, row in enumerate(losses, start=1):
        rng = fresh_rng(SECRET, 1, number)
        state, outcome = rules.step(states[-1], Evaluation.from_losses(row), rng)
        states.append(state)
        outcomes.append(outcome)
    return states, outcomes


def bits(state: State) -> tuple[object, ...]:
    """Everything a ledger keeps of a state, exact to the last bit."""
    noise = None if state.noise is None else state.noise.hex()
    return state.n, state.standing.hex(), noise, state.releases


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
@settings(max_examples=FEW)
@given(losses=submissions(), budget=budgets, unit=units)
def test_a_replay_from_the_evidence_alone_is_exact_to_the_last_bit(
    mechanism: Mechanism, losses: np.ndarray, budget: int | None, unit: float | None
) -> None:
    rules = rules_for(mechanism, budget, unit)
    states, outcomes = live(rules, losses * (rules.unit or 1234.5))
    state = rules.start(losses.shape[1])
    for number, (expected, outcome) in enumerate(zip(states[1:], outcomes, strict=True), start=1):
        recorded = Evidence(outcome.evidence.risk, outcome.evidence.spread)
        state, again = rules.replay(state, recorded, fresh_rng(SECRET, 1, number))
        assert state == expected and bits(state) == bits(expected)
        assert again.risk.hex() == outcome.risk.hex()
        assert again.improved == outcome.improved
        assert again.evidence == outcome.evidence


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
@settings(max_examples=FEW)
@given(losses=submissions(), budget=st.integers(1, 4), unit=units)
def test_a_budget_is_never_exceeded_and_then_nothing_moves(
    mechanism: Mechanism, losses: np.ndarray, budget: int, unit: float | None
) -> None:
    bounded, free = rules_for(mechanism, budget, unit), rules_for(mechanism, None, unit)
    states, outcomes = live(bounded, losses)
    free_states, free_outcomes = live(free, losses)
    for before, after, outcome, free_before, free_outcome in zip(
        states[:-1], states[1:], outcomes, free_states[:-1], free_outcomes, strict=True
    ):
        assert after.releases <= budget
        if before.releases < budget:
            assert bits(before) == bits(free_before)
            assert (outcome.risk, outcome.improved) == (free_outcome.risk, free_outcome.improved)
        else:
            assert after is before
            assert (outcome.risk, outcome.improved) == (before.standing, False)


def test_a_used_up_budget_leaves_the_generator_alone_and_records_the_risk() -> None:
    rules = LadderRules(ShakyLadder(step=0.1, noise=0.1), budget=1)
    state, rng = replace(rules.start(2), releases=1), np.random.default_rng(0)
    before = rng.bit_generator.state
    for rules_step in (
        rules.step(state, Evaluation.from_losses([0.0, 0.5]), rng),
        rules.replay(state, Evidence(0.25), rng),
    ):
        assert rules_step == (state, Outcome(1.0, False, Evidence(0.25)))
    assert rng.bit_generator.state == before


@given(losses=submissions(), budget=budgets, unit=units)
def test_the_incumbent_is_the_submission_behind_the_last_improvement(
    losses: np.ndarray, budget: int | None, unit: float | None
) -> None:
    states, outcomes = live(LadderRules(SimplifiedLadder(step=0.1), budget, unit), losses)
    row = losses[[outcome.improved for outcome in outcomes]][-1]
    incumbent = states[-1].incumbent
    assert incumbent is not None and incumbent.losses is not None
    assert incumbent.losses.tolist() == row.tolist()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
@settings(max_examples=FEW)
@given(losses=submissions(), unit=st.sampled_from([7.0, 100.0, 1e-6, 1e9, 0.3]))
def test_a_known_range_of_losses_only_rescales_the_ladder(
    mechanism: Mechanism, losses: np.ndarray, unit: float
) -> None:
    states, outcomes = live(LadderRules(mechanism, unit=1.0), losses)
    scaled_states, scaled = live(LadderRules(mechanism, unit=unit), losses * unit)
    for ours, theirs in zip(scaled, outcomes, strict=True):
        assert ours.improved == theirs.improved
        assert ours.risk == pytest.approx(theirs.risk * unit, rel=1e-9, abs=1e-12 * unit)
    assert scaled_states[-1].standing == pytest.approx(
        states[-1].standing * unit, rel=1e-9, abs=1e-12 * unit
    )


@pytest.mark.parametrize("mechanism", SCALE_FREE, ids=lambda mechanism: mechanism.name)
@settings(max_examples=FEW)
@given(losses=submissions(), power=st.integers(-12, 12))
def test_without_a_known_range_a_power_of_ten_multiplies_the_releases(
    mechanism: Mechanism, losses: np.ndarray, power: int
) -> None:
    # A risk of 0 has no size of its own, and its unit of 1 does not scale.
    losses = losses + 0.1
    rules = LadderRules(mechanism, unit=None)
    _, outcomes = live(rules, losses)
    _, scaled = live(rules, losses * 10.0**power)
    for ours, theirs in zip(scaled, outcomes, strict=True):
        assert ours.improved == theirs.improved
        assert ours.risk == pytest.approx(theirs.risk * 10.0**power, rel=1e-9, abs=0)


@pytest.mark.parametrize("mechanism", SCALE_FREE, ids=lambda mechanism: mechanism.name)
@settings(max_examples=FEW)
@given(losses=submissions(), unit=units)
def test_releases_of_a_ladder_never_increase_in_any_unit(
    mechanism: Mechanism, losses: np.ndarray, unit: float | None
) -> None:
    states, _ = live(LadderRules(mechanism, unit=unit), losses * 123.456)
    standing = [state.standing for state in states]
    assert standing == sorted(standing, reverse=True)


def test_squared_errors_of_house_prices_and_of_small_quantities_are_rounded_by_their_size() -> None:
    rules = LadderRules(SimplifiedLadder(step=0.01), unit=None)
    risks = np.array([[7.1234e9], [6.9876e9], [6.9875e9], [4.321e-6]])
    _, outcomes = live(rules, risks)
    assert [outcome.risk for outcome in outcomes] == [7.1e9, 7.0e9, 7.0e9, 4.3e-6]


def test_negative_risks_are_measured_by_their_magnitude() -> None:
    rules = LadderRules(SimplifiedLadder(step=0.1), unit=None)
    _, outcomes = live(rules, np.array([[0.52], [-0.52], [-34.0], [-31.0]]))
    assert [outcome.risk for outcome in outcomes] == [0.5, -0.5, -30.0, -30.0]


def test_a_disclosed_risk_is_rounded_by_its_own_size() -> None:
    _, outcomes = live(
        LadderRules(RoundedDisclosure(step=0.1), unit=None), np.array([[0.1234], [777.0]])
    )
    assert [outcome.risk for outcome in outcomes] == [0.1, 800.0]
    assert [outcome.improved for outcome in outcomes] == [True, False]


def test_a_standing_release_keeps_every_bit_through_any_number_of_refusals() -> None:
    rules = LadderRules(ParameterFreeLadder(), unit=7.1)
    losses = np.full((200, 3), 7.0)
    losses[0] = [0.1, 2.2, 1.3]
    states, _ = live(rules, losses)
    assert {state.standing for state in states[1:]} == {states[1].standing}


def test_a_standing_release_keeps_every_bit_when_the_unit_changes() -> None:
    rules = LadderRules(PairedTestLadder(alpha=0.01), unit=None)
    states, outcomes = live(rules, np.array([[0.0, 1.0, 1.0], [0.29, 0.0, 0.0]]))
    assert [outcome.risk for outcome in outcomes] == [2 / 3, 2 / 3]
    assert unit_of(2 / 3, 0.29 / 3) == 0.1 and states[2] is not states[1]


def test_a_release_in_another_unit_carries_no_rounding_noise() -> None:
    # 0.07 * 100 is 7.000000000000001.
    _, outcomes = live(LadderRules(SimplifiedLadder(step=0.01), unit=100.0), np.array([[7.2]]))
    assert outcomes[0].risk == 7.0


def test_the_shaky_ladder_starts_at_the_top_of_the_known_range() -> None:
    assert LadderRules(ShakyLadder(0.1, 0.1), unit=40.0).start(3).standing == 40.0
    assert LadderRules(Ladder(0.1), unit=40.0).start(3).standing == math.inf
    assert LadderRules(Ladder(0.1), unit=None).start(3).standing == math.inf


@pytest.mark.parametrize(
    ("standing", "risk", "unit"),
    [
        (math.inf, 8123.0, 1e4),
        (math.inf, 0.1, 0.1),
        (math.inf, 0.1 + 1e-16, 0.1),
        (math.inf, 0.1 + 1e-9, 1.0),
        (1000.0, 2000.0, 1000.0),
        (1000.0, 999.0, 1000.0),
        (1000.0, 1e-6, 1e-6),
        (math.inf, -250.0, 1000.0),
        (math.inf, 0.0, 1.0),
        (0.0, 5.0, 1.0),
        (math.inf, 5e-324, 1e-300),
        (math.inf, 1.7e308, 1e300),
    ],
)
def test_the_unit_is_the_power_of_ten_at_or_above(
    standing: float, risk: float, unit: float
) -> None:
    assert unit_of(standing, risk) == unit


@given(risk=st.floats(min_value=1e-290, max_value=1e290))
@example(risk=1.0)
@example(risk=math.nextafter(1.0, 2.0))
def test_in_its_unit_a_risk_lies_between_a_tenth_and_one(risk: float) -> None:
    unit = unit_of(math.inf, risk)
    assert risk / unit * (1 + 1e-11) > 0.1 and risk / unit <= 1 + 1e-11


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "3", math.nan])
def test_a_budget_must_be_a_whole_number_of_at_least_one(budget: object) -> None:
    with pytest.raises(InvalidArgument, match="budget must be a whole number"):
        LadderRules(ParameterFreeLadder(), budget=budget)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [0.0, -1.0, math.nan, math.inf, True, "1"])
def test_a_unit_must_be_positive_and_finite(unit: object) -> None:
    with pytest.raises(InvalidArgument, match="unit must be a number"):
        LadderRules(ParameterFreeLadder(), unit=unit)  # type: ignore[arg-type]


def test_noise_of_a_fixed_size_is_refused_where_the_range_is_not_known() -> None:
    with pytest.raises(InvalidArgument, match=r"State loss_range=\(low, high\)"):
        LadderRules(ShakyLadder(0.1, 0.1), unit=None)


def test_an_evaluation_of_another_holdout_is_refused_even_when_the_budget_is_used_up() -> None:
    rules = LadderRules(Ladder(0.1), budget=1)
    for state in (rules.start(3), replace(rules.start(3), standing=0.5, releases=1)):
        with pytest.raises(InvalidArgument, match="evaluation must be of the holdout's 3 examples"):
            rules.step(state, Evaluation.from_losses([0.0, 1.0]), np.random.default_rng(0))


def test_the_generator_depends_on_secret_ladder_and_number_and_on_nothing_else() -> None:
    def draw(secret: bytes, ladder: int, number: int) -> float:
        return fresh_rng(secret, ladder, number).random()

    keys = [(SECRET, 1, 1), (SECRET, 1, 2), (SECRET, 2, 1), (SECRET, 11, 1), (SECRET, 1, 11)]
    keys += [(SECRET[::-1], 1, 1)]
    first = [draw(*key) for key in keys]
    assert first == [draw(*key) for key in keys]
    assert len(set(first)) == len(keys)


def test_the_generators_of_successive_submissions_look_independent_and_uniform() -> None:
    draws = np.array([fresh_rng(SECRET, 1, number).random() for number in range(2000)])
    # One exact Kolmogorov-Smirnov test and one rank correlation: each has a false-alarm
    # rate of 1e-6, and the secret is fixed.
    assert stats.kstest(draws, "uniform", method="exact").pvalue > 1e-6
    assert stats.spearmanr(draws[:-1], draws[1:]).pvalue > 1e-6


def test_the_generator_of_a_ledger_written_today_is_the_same_tomorrow() -> None:
    # Worked out once with hmac, hashlib and Philox by themselves.
    assert fresh_rng(b"secret", 1, 2).random() == 0.34686906007261786
