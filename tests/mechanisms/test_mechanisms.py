"""Attacks the mechanisms: the papers' pseudo-code in exact fractions, ties, refusals."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import (
    MECHANISMS,
    Evidence,
    FullDisclosure,
    Ladder,
    Mechanism,
    Outcome,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
    State,
    mechanism_from,
    run,
)
from ladderholdout.mechanisms.arithmetic import below, round_half_up
from ladderholdout.mechanisms.noisy import laplace
from ladderholdout.metrics import Evaluation

pytestmark = pytest.mark.quick
# Examples of a property for each mechanism: the algorithms have 100 each, and their long climbs.
FEW = 25

EVERY: tuple[Mechanism, ...] = (
    FullDisclosure(),
    RoundedDisclosure(step=0.01),
    Ladder(step=0.1),
    SimplifiedLadder(step=0.1),
    ParameterFreeLadder(),
    PairedTestLadder(alpha=0.15),
    PricedLadder(),
    ShakyLadder(step=0.05, noise=0.02),
)
CLIMBING = tuple(m for m in EVERY if not m.discloses and not isinstance(m, ShakyLadder))

Rows = list[list[Fraction]]


# The pseudo-code of the papers, word for word and exact.


def nearest(x: Fraction, step: Fraction) -> Fraction:
    return math.floor(x / step + Fraction(1, 2)) * step


def mean(row: list[Fraction]) -> Fraction:
    return sum(row, Fraction(0)) / len(row)


def blum_hardt_1(rows: Rows, step: Fraction) -> list[Fraction]:
    standing, releases = Fraction(10**9), []
    for row in rows:
        if mean(row) < standing - step:
            standing = nearest(mean(row), step)
        releases.append(standing)
    return releases


def zheng_2(rows: Rows, step: Fraction) -> list[Fraction]:
    return [
        min(nearest(mean(row), step) for row in rows[: number + 1]) for number in range(len(rows))
    ]


def blum_hardt_3(rows: Rows, step: Fraction) -> list[Fraction]:
    return [nearest(mean(row), step) for row in rows]


def paired(rows: Rows, critical: Fraction, published: bool) -> list[Fraction]:
    """Blum & Hardt's Algorithm 2 (critical = 1), Neto's Algorithm 3.

    Unless as published, a submission whose release would be the standing one again does not
    become the incumbent.
    """
    n = len(rows[0])
    standing, best, releases = Fraction(10**9), [Fraction(0)] * n, []
    for row in rows:
        difference = [mine - theirs for mine, theirs in zip(row, best, strict=True)]
        centre = mean(difference)
        gap = standing - mean(row)
        if n > 1:
            variance = sum(((d - centre) ** 2 for d in difference), Fraction(0)) / (n - 1)
            fires = gap > 0 and gap**2 > critical**2 * variance / n
        else:
            fires = not releases
        if fires and (published or nearest(mean(row), Fraction(1, n)) < standing):
            standing, best = nearest(mean(row), Fraction(1, n)), row
        releases.append(standing)
    return releases


def priced(rows: Rows, weight: Fraction) -> list[Fraction]:
    """Decision 17: what is smaller than the standing risk by more than weight times the price.

    The price is sqrt(r(1 - r)/n) (sqrt(2 L) - sqrt(2 (L - 10))), with L = 14 + 10 nats for
    each release so far; in sixty digits, as it is a root.
    """
    n, standing, releases = len(rows[0]), None, []
    count = 0
    with localcontext() as exact:
        exact.prec = 60
        for row in rows:
            rounded = nearest(mean(row), Fraction(1, n))
            if standing is None:
                fires = True
            else:
                paid = Decimal(14 + 10 * count)
                wider = (2 * paid).sqrt() - (2 * (paid - 10)).sqrt()
                width = decimal(standing * (1 - standing) / n).sqrt() * wider
                gap = decimal(standing - mean(row))
                fires = gap > decimal(weight) * width and rounded < standing
            if fires:
                standing, count = rounded, count + 1
            assert standing is not None
            releases.append(standing)
    return releases


def decimal(fraction: Fraction) -> Decimal:
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def hardt(risks: list[float], step: float, sigma: float, uniforms: list[float]) -> list[float]:
    noise = iter(stats.laplace.ppf(uniforms, scale=sigma).tolist())
    standing, threshold, releases = 1.0, next(noise), []
    for risk in risks:
        comparison, release, redrawn = next(noise), next(noise), next(noise)
        if risk + comparison < standing - step + threshold:
            standing, threshold = risk + release, redrawn
        releases.append(standing)
    return releases


FROM_0_TO_10 = st.integers(0, 10)


@st.composite
def tenths(draw: st.DrawFn, values: st.SearchStrategy[int] = FROM_0_TO_10) -> Rows:
    """Losses in tenths, so that ties, halves and constant losses come up often."""
    n, k = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    row = st.lists(values, min_size=n, max_size=n)
    return [
        [Fraction(t, 10) for t in tenth] for tenth in draw(st.lists(row, min_size=k, max_size=k))
    ]


def hits_and_misses() -> st.SearchStrategy[Rows]:
    return tenths(st.sampled_from([0, 10]))


def climb(seed: int, n: int, k: int, zero_one: bool) -> Rows:
    """Submissions that get better, so that long ladders of releases come up."""
    rng = np.random.default_rng(seed)
    difficulty = rng.random(n)
    rows = []
    for level in np.linspace(1.0, 0.0, k):
        chance = np.clip(level + 0.3 * (difficulty - 0.5), 0, 1)
        parts = rng.binomial(1 if zero_one else 10, chance)
        rows.append([Fraction(int(part), 1 if zero_one else 10) for part in parts])
    return rows


def released(mechanism: Mechanism, rows: Rows, seed: int = 0) -> list[float]:
    losses = [[float(loss) for loss in row] for row in rows]
    return run(mechanism, losses, np.random.default_rng(seed)).tolist()


def exactly(releases: list[Fraction]) -> list[float]:
    return [float(release) for release in releases]


class Fixed(np.random.Generator):
    """A generator whose next uniform number is known."""

    def __init__(self, uniform: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.uniform = uniform

    def random(self, *args: object, **kwargs: object) -> float:  # type: ignore[override]
        return self.uniform


STEPS = [Fraction(1, 10), Fraction(1, 4), Fraction(3, 10), Fraction(1, 3), Fraction(1)]
WEIGHTS = [Fraction(7, 10), Fraction(1), Fraction(1, 100), Fraction(2)]
ONES = [[Fraction(1)] * 3] * 3
IMPROVING_PAIR = [[Fraction(1)], [Fraction(0)]]


@given(step=st.sampled_from(STEPS), rows=tenths())
@example(step=STEPS[2], rows=ONES)
@example(step=STEPS[4], rows=IMPROVING_PAIR)
def test_the_ladder_is_algorithm_1_of_blum_and_hardt(step: Fraction, rows: Rows) -> None:
    assert released(Ladder(float(step)), rows) == exactly(blum_hardt_1(rows, step))


@given(step=st.sampled_from(STEPS), rows=tenths())
@example(step=STEPS[2], rows=ONES)
def test_the_simplified_ladder_is_zhengs_algorithm_2(step: Fraction, rows: Rows) -> None:
    assert released(SimplifiedLadder(float(step)), rows) == exactly(zheng_2(rows, step))


@given(step=st.sampled_from(STEPS), rows=tenths())
def test_rounded_disclosure_is_algorithm_3_of_blum_and_hardt(step: Fraction, rows: Rows) -> None:
    assert released(RoundedDisclosure(float(step)), rows) == exactly(blum_hardt_3(rows, step))


@given(rows=hits_and_misses())
@example(rows=ONES)
@example(rows=IMPROVING_PAIR)
def test_the_parameter_free_ladder_is_algorithm_2_on_hits_and_misses(rows: Rows) -> None:
    assert released(ParameterFreeLadder(), rows) == exactly(paired(rows, Fraction(1), True))


@given(rows=tenths())
@example(rows=ONES)
def test_the_parameter_free_ladder_keeps_its_incumbent_while_the_release_stays(rows: Rows) -> None:
    assert released(ParameterFreeLadder(), rows) == exactly(paired(rows, Fraction(1), False))


@given(alpha=st.sampled_from([0.01, 0.15, 0.4, 0.5]), rows=tenths())
def test_the_paired_test_ladder_is_netos_algorithm_3(alpha: float, rows: Rows) -> None:
    n = len(rows[0])
    critical = Fraction(float(stats.t.isf(alpha, n - 1))) if n > 1 else Fraction(1)
    assert released(PairedTestLadder(alpha), rows) == exactly(paired(rows, critical, False))


@given(weight=st.sampled_from(WEIGHTS), rows=tenths())
@example(weight=WEIGHTS[0], rows=ONES)
@example(weight=WEIGHTS[0], rows=IMPROVING_PAIR)
@example(weight=WEIGHTS[0], rows=[[Fraction(1)] * 2, [Fraction(1), Fraction(0)], [Fraction(0)] * 2])
def test_the_priced_ladder_is_the_rule_of_decision_17(weight: Fraction, rows: Rows) -> None:
    assert released(PricedLadder(float(weight)), rows) == exactly(priced(rows, weight))


def test_the_priced_ladder_at_its_ends() -> None:
    """No risk is free of a price but 0 and 1; from 1 all improve, from 0 nothing does."""
    one = [[Fraction(1)], [Fraction(0)], [Fraction(0)]]
    assert released(PricedLadder(), one) == [1, 0, 0]
    # Two rows: 0.7 * 1.64 * sqrt(1/8) is .41 of a risk, and half a risk is more.
    pair = [[Fraction(1), Fraction(0)], [Fraction(1), Fraction(1, 5)], [Fraction(0)] * 2]
    assert released(PricedLadder(), pair) == [0.5, 0.5, 0]
    assert released(PricedLadder(weight=2.0), pair) == [0.5, 0.5, 0.5]
    # The second release costs 1.64, the third 1.32: the margin falls as releases go on.
    first, later = State(100, 0.5, releases=1), State(100, 0.5, releases=9)
    assert PricedLadder().least_gain(first, 0.0) == pytest.approx(0.7 * 1.6367 * 0.05, rel=1e-4)
    assert PricedLadder().least_gain(later, 0.0) < PricedLadder().least_gain(first, 0.0) / 2
    assert PricedLadder().least_gain(State(100, 0.0, releases=1), 1.0) == 0.0


@pytest.mark.parametrize(("seed", "zero_one"), [(0, True), (1, False), (6, False), (7, True)])
def test_long_climbs_follow_the_pseudo_code_too(seed: int, zero_one: bool) -> None:
    n = 40 + seed
    rows = climb(seed, n, 60, zero_one)
    expected = exactly(paired(rows, Fraction(1), published=zero_one))
    assert released(ParameterFreeLadder(), rows) == expected
    assert len(set(expected)) > 5
    critical = Fraction(float(stats.t.isf(0.3, n - 1)))
    assert released(PairedTestLadder(0.3), rows) == exactly(paired(rows, critical, zero_one))
    step = Fraction(1, 25)
    assert released(Ladder(0.04), rows) == exactly(blum_hardt_1(rows, step))
    assert released(SimplifiedLadder(0.04), rows) == exactly(zheng_2(rows, step))
    assert released(PricedLadder(), rows) == exactly(priced(rows, Fraction(7, 10)))


@given(rows=tenths(), seed=st.integers(0, 2**32), noise=st.sampled_from([1e-3, 0.05, 0.5]))
def test_the_shaky_ladder_is_figure_1_of_hardt(rows: Rows, seed: int, noise: float) -> None:
    uniforms = np.random.default_rng(seed).random(1 + 3 * len(rows)).tolist()
    expected = hardt(exactly([mean(row) for row in rows]), 0.05, noise, uniforms)
    assert released(ShakyLadder(0.05, noise), rows, seed) == pytest.approx(expected, abs=1e-12)


# What holds for every mechanism.


@pytest.mark.parametrize("mechanism", CLIMBING, ids=lambda mechanism: mechanism.name)
@settings(max_examples=FEW)
@given(rows=tenths())
def test_releases_of_a_ladder_fall_exactly_when_it_says_improved(
    mechanism: Mechanism, rows: Rows
) -> None:
    state = mechanism.start(len(rows[0]))
    for row in rows:
        evaluation = Evaluation.from_losses([float(loss) for loss in row])
        before, rng = state, np.random.default_rng(0)
        state, outcome = mechanism.advance(state, evaluation, rng)
        assert outcome.improved == (state.standing < before.standing)
        assert outcome.improved == (state.releases == before.releases + 1)
        assert outcome.risk == state.standing <= before.standing
        assert state.incumbent is (evaluation if outcome.improved else before.incumbent)
        assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda mechanism: mechanism.name)
@settings(max_examples=FEW)
@given(rows=tenths(), seed=st.integers(0, 99))
def test_a_step_is_pure(mechanism: Mechanism, rows: Rows, seed: int) -> None:
    state = mechanism.start(len(rows[0]))
    for row in rows:
        evaluation = Evaluation.from_losses([float(loss) for loss in row])
        known = (state.n, state.standing, state.incumbent, state.noise, state.releases)
        once = mechanism.advance(state, evaluation, np.random.default_rng(seed))
        again = mechanism.advance(state, evaluation, np.random.default_rng(seed))
        assert once == again and once[0].incumbent is again[0].incumbent
        assert known == (state.n, state.standing, state.incumbent, state.noise, state.releases)
        assert evaluation.losses is not None
        assert evaluation.losses.tolist() == [float(loss) for loss in row]
        state = once[0]


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda mechanism: mechanism.name)
def test_settings_survive_json(mechanism: Mechanism) -> None:
    settings = json.loads(json.dumps(mechanism.settings()))
    assert mechanism_from(mechanism.name, settings) == mechanism
    assert MECHANISMS[mechanism.name] is type(mechanism)


def test_numpy_settings_become_plain_numbers() -> None:
    ladder = Ladder(step=np.float32(0.5))  # type: ignore[arg-type]
    assert ladder == Ladder(0.5) and type(ladder.step) is float
    assert json.dumps(SimplifiedLadder(step=1).settings()) == '{"step": 1.0}'


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda mechanism: mechanism.name)
def test_every_rounded_release_lies_on_the_grid_it_names(mechanism: Mechanism) -> None:
    grid = mechanism.resolution(41)
    releases = np.array(released(mechanism, climb(3, 41, 60, zero_one=False)))
    rounded = not isinstance(mechanism, FullDisclosure | ShakyLadder)
    assert (grid > 0) == rounded
    if rounded:
        assert np.abs(releases / grid - np.round(releases / grid)).max() < 1e-9


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda mechanism: mechanism.name)
def test_no_text_of_a_ladder_shows_what_was_not_released(mechanism: Mechanism) -> None:
    evaluation = Evaluation.from_losses([0.123456, 0.654321, 0.123456])
    state, outcome = mechanism.advance(mechanism.start(3), evaluation, np.random.default_rng(1))
    shown = f"{state!r} {outcome!r} {outcome.evidence!r} {mechanism!r}"
    assert "noise" not in repr(state) and "incumbent" not in repr(state)
    assert repr(outcome.evidence) == "Evidence()"
    if not isinstance(mechanism, FullDisclosure):
        assert str(evaluation.risk)[:6] not in shown


# What holds for one of them.


def test_a_difference_of_one_step_is_a_tie() -> None:
    # In binary 0.8 - 0.1 is a little more than 0.7.
    for high, low in [("0.8", "0.7"), ("0.4", "0.3"), ("1.0", "0.9"), ("0.2", "0.1")]:
        assert released(Ladder(0.1), [[Fraction(high)], [Fraction(low)]]) == [float(high)] * 2
    assert released(Ladder(0.1), [[Fraction("0.8")], [Fraction("0.699")]]) == [0.8, 0.7]


def test_the_same_submission_never_improves_twice() -> None:
    # The release of 0.32 on 4 examples is 0.25, that of 0.4 is 0.5: above the risk itself.
    for mechanism in CLIMBING:
        for loss in ("0.32", "0.4", "0.125", "1", "0"):
            releases = released(mechanism, [[Fraction(loss)] * 4] * 3)
            assert len(set(releases)) == 1
            state, rng = mechanism.start(4), np.random.default_rng(0)
            evaluation = Evaluation.from_losses([float(loss)] * 4)
            state, first = mechanism.advance(state, evaluation, rng)
            state, second = mechanism.advance(state, evaluation, rng)
            assert (first.improved, second.improved, state.releases) == (True, False, 1)


def test_on_one_example_nothing_follows_the_first_release() -> None:
    for mechanism in (ParameterFreeLadder(), PairedTestLadder(0.15), PairedTestLadder(0.5)):
        assert released(mechanism, [[Fraction(1)], [Fraction(0)]]) == [1.0, 1.0]


def test_the_spread_is_the_standard_error_of_the_paired_difference() -> None:
    ladder, rng = ParameterFreeLadder(), np.random.default_rng(0)
    first, second = [1.0, 1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0, 0.0]
    state, outcome = ladder.advance(ladder.start(5), Evaluation.from_losses(first), rng)
    assert outcome.evidence == Evidence(0.6, None)
    # The differences -1, 0, 1, 0, -1 have a mean of -0.2 and a variance of 2.8 / 4.
    evidence = ladder.measure(state, Evaluation.from_losses(second), rng)
    assert evidence.spread == pytest.approx(math.sqrt(0.7 / 5))


def test_evidence_without_a_comparison_cannot_beat_a_standing_release() -> None:
    rng = np.random.default_rng(0)
    for mechanism in (ParameterFreeLadder(), PairedTestLadder(0.5)):
        for spread in (None, math.inf):
            state = State(n=5, standing=0.8, releases=1)
            evidence = Evidence(0.0, spread)
            expected = (state, Outcome(0.8, False, evidence))
            assert mechanism.decide(state, evidence, rng) == expected


def test_the_upper_quantile_makes_the_paired_test_stricter_with_a_smaller_level() -> None:
    # On 1,000 examples with 40 fewer errors of 100 changes: t = -4.0.
    old, new = [1.0] * 70 + [0.0] * 930, [0.0] * 70 + [1.0] * 30 + [0.0] * 900
    for alpha, improves in [(0.15, True), (1e-3, True), (1e-6, False)]:
        releases = run(PairedTestLadder(alpha), [old, new], np.random.default_rng(0)).tolist()
        assert releases == ([0.07, 0.03] if improves else [0.07, 0.07])


def test_disclosures_tell_every_submission_and_remember_the_best() -> None:
    state, rng = RoundedDisclosure(0.1).start(1), np.random.default_rng(0)
    seen = []
    for loss in (0.52, 0.71, 0.33, 0.34):
        state, outcome = RoundedDisclosure(0.1).advance(state, Evaluation.from_losses([loss]), rng)
        seen.append((outcome.risk, outcome.improved, state.standing, state.releases))
    assert seen == [
        (0.5, True, 0.5, 1),
        (0.7, False, 0.5, 2),
        (0.3, True, 0.3, 3),
        (0.3, False, 0.3, 4),
    ]
    assert released(FullDisclosure(), [[Fraction(1, 3)], [Fraction(2, 3)]]) == [1 / 3, 2 / 3]


def test_the_shaky_ladder_uses_the_same_noise_whatever_happens() -> None:
    ladder = ShakyLadder(step=0.1, noise=0.01)
    for losses in ([0.0], [1.0]):
        rng, reference = np.random.default_rng(5), np.random.default_rng(5)
        state, outcome = ladder.advance(ladder.start(1), Evaluation.from_losses(losses), rng)
        reference.random(4)
        assert rng.bit_generator.state == reference.bit_generator.state
        assert outcome.improved == (losses == [0.0])
        ladder.advance(state, Evaluation.from_losses(losses), rng)
        reference.random(3)
        assert rng.bit_generator.state == reference.bit_generator.state


def test_a_release_of_the_shaky_ladder_may_rise_above_the_one_before() -> None:
    # A threshold noise of 2 lets any risk pass, and every other noise is positive.
    state = State(n=1, standing=0.5, noise=2.0, releases=1)
    after, outcome = ShakyLadder(0.01, 0.1).decide(state, Evidence(0.5), Fixed(0.9))
    assert outcome.improved and outcome.risk > 0.5
    assert (after.standing, after.releases) == (outcome.risk, 2)
    assert after.noise == pytest.approx(outcome.risk - 0.5)


def test_laplace_noise_has_the_quantiles_of_its_distribution() -> None:
    rng, draws = np.random.default_rng(20150706), 20_000
    noise = np.array([laplace(0.3, rng) for _ in range(draws)])
    # The count below a quantile is binomial: exact two-sided tests, five of them at a
    # false-alarm rate of 1e-6 each.
    for probability in (0.001, 0.1, 0.5, 0.9, 0.999):
        bound = stats.laplace.ppf(probability, scale=0.3)
        count = int((noise < bound).sum())
        assert stats.binomtest(count, draws, probability).pvalue > 1e-6


@pytest.mark.parametrize("uniform", [2.0**-53, 0.1, 0.25, 0.5, 0.75, 0.9, 1 - 2.0**-53])
def test_laplace_noise_is_the_inverse_of_the_distribution_function(uniform: float) -> None:
    assert laplace(2.0, Fixed(uniform)) == pytest.approx(stats.laplace.ppf(uniform, scale=2.0))


def test_laplace_noise_of_a_uniform_zero_is_finite() -> None:
    assert -200.0 < laplace(2.0, Fixed(0.0)) <= laplace(2.0, Fixed(2.0**-53))


def test_the_theory_of_the_shaky_ladder_by_hand() -> None:
    # n = 10^6, k = 1000, beta = 0.05, with logarithms to 40 digits:
    # log(1/delta) = log(2e10) = 23.7189981, its root 4.8702154; log(k/beta) = 9.9034876;
    # epsilon = (9.9034876 * 4.8702154 / 10^6)^(3/5) = 0.0025704064;
    # sigma = 4.8702154 / (0.0025704064 * 10^6); lambda = 4 log(80000) sigma = 45.1591277 sigma.
    ladder = ShakyLadder.from_theory(n=10**6, k=1000, beta=0.05)
    assert ladder.noise == pytest.approx(0.00189472581, rel=1e-8)
    assert ladder.step == pytest.approx(0.08556416491, rel=1e-8)


def test_the_theory_has_the_rate_of_theorem_2_7() -> None:
    # Up to logarithms the margin falls like n^(-2/5): 10^5 times the data, 100 times less.
    small, large = (ShakyLadder.from_theory(n, k=100).step for n in (10**5, 10**10))
    assert 60 < small / large < 100


@pytest.mark.parametrize(("k", "beta"), [(1, 0.05), (1000, 0.05), (10**6, 0.01), (1, 0.99)])
def test_where_the_theory_is_vacuous_it_says_from_which_n_on_it_is_not(k: int, beta: float) -> None:
    with pytest.raises(InvalidArgument, match=r"where its step is [1-9]") as caught:
        ShakyLadder.from_theory(1, k, beta)
    found = re.search(r"at least (\d+)", str(caught.value))
    assert found is not None
    smallest = int(found[1])
    assert 0.99 < ShakyLadder.from_theory(smallest, k, beta).step <= 1.0
    with pytest.raises(InvalidArgument, match=f"at least {smallest} .* but is {smallest - 1},"):
        ShakyLadder.from_theory(smallest - 1, k, beta)


def test_the_theory_is_vacuous_at_a_thousand_examples() -> None:
    with pytest.raises(InvalidArgument, match=r"but is 1000, where its step is 1\.27\."):
        ShakyLadder.from_theory(1000, 1000)


# Rounding and ties.


@pytest.mark.parametrize(
    ("x", "step", "rounded"),
    [
        (0.15, 0.1, 0.2),
        (0.25, 0.1, 0.3),
        (0.35, 0.1, 0.4),
        (0.3, 0.1, 0.3),
        (0.6, 0.1, 0.6),
        (0.7, 0.1, 0.7),
        (0.149999, 0.1, 0.1),
        (0.0, 0.1, 0.0),
        (0.045, 0.01, 0.05),
        (0.123455, 1e-5, 0.12346),
        (1.1, 0.3, 1.2),
        (0.21, 0.07, 0.21),
        (-0.25, 0.1, -0.2),
        (0.5, 1.0, 1.0),
        (0.3, 1e-300, 0.3),
        (0.0, 5e-324, 0.0),
    ],
)
def test_rounding_is_to_the_nearest_multiple_and_halves_are_never_flattering(
    x: float, step: float, rounded: float
) -> None:
    assert round_half_up(x, step) == rounded


@given(
    x=st.fractions(min_value=-5, max_value=5, max_denominator=400),
    step=st.fractions(min_value=Fraction(1, 1000), max_value=1, max_denominator=1000),
)
@example(x=Fraction(1, 6), step=Fraction(1, 3))
def test_rounding_agrees_with_exact_fractions(x: Fraction, step: Fraction) -> None:
    expected = nearest(x, step)
    assert round_half_up(float(x), float(step)) == pytest.approx(float(expected), rel=1e-14)


@given(k=st.integers(0, 10**6), n=st.integers(1, 10**6))
def test_a_multiple_of_one_nth_is_left_exactly_as_it_is(k: int, n: int) -> None:
    assert round_half_up(k / n, 1.0 / n) == k / n


def test_comparison_is_strict_and_takes_rounding_noise_for_a_tie() -> None:
    assert below(0.5, math.inf) and not below(math.inf, math.inf)
    assert not below(0.7, 0.8 - 0.1) and not below(0.3 - 1e-13, 0.3)
    assert below(0.3 - 1e-11, 0.3) and not below(0.3, 0.3 - 1e-11)
    assert not below(math.nan, 1.0) and not below(0.0, math.nan) and not below(0.0, -math.inf)


# Refusals.


@pytest.mark.parametrize(
    "step", [0, 0.0, -0.1, 1.5, math.nan, math.inf, True, "0.1", None, 10**400]
)
def test_a_step_outside_of_its_range_is_refused(step: object) -> None:
    for kind in (Ladder, SimplifiedLadder, RoundedDisclosure):
        with pytest.raises(InvalidArgument, match=r"step must be a number in \(0, 1\]"):
            kind(step=step)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="step must be"):
        ShakyLadder(step=step, noise=0.1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"noise must be .* take Ladder"):
        ShakyLadder(step=0.1, noise=step)  # type: ignore[arg-type]


@pytest.mark.parametrize("alpha", [0, 0.51, -0.1, math.nan, False, "0.1"])
def test_a_level_outside_of_its_range_is_refused(alpha: object) -> None:
    with pytest.raises(InvalidArgument, match=r"alpha must be a number in \(0, 0.5\]"):
        PairedTestLadder(alpha=alpha)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 10, 0.05), "n must"),
        ((10**6, 0, 0.05), "k must"),
        ((10**6, 1.5, 0.05), "k must"),
        ((10**6, 10, 0.0), "beta must"),
        ((10**6, 10, 1.0), "beta must"),
        ((10**6, 10, math.nan), "beta must"),
    ],
)
def test_the_theory_refuses_what_is_no_count_or_probability(
    arguments: tuple[int, int, float], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        ShakyLadder.from_theory(*arguments)


@pytest.mark.parametrize("n", [0, -3, 2.0, True, None])
def test_a_ladder_starts_on_a_whole_number_of_examples(n: object) -> None:
    for mechanism in EVERY:
        with pytest.raises(InvalidArgument, match="n_examples must be a whole number"):
            mechanism.start(n)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("Stairs", {}, "mechanism must be one of FullDisclosure, RoundedDisclosure, Ladder"),
        ("Ladder", {}, r"settings must be those of Ladder \(step\), but is empty"),
        ("Ladder", {"step": 0.1, "noise": 1}, r"those of Ladder \(step\), but is noise, step"),
        ("ParameterFreeLadder", {"step": 0.1}, r"those of ParameterFreeLadder \(none\)"),
        ("Ladder", {"step": 7}, "step must be"),
        ("PricedLadder", {"weight": 3}, r"weight must be a number in \(0, 2\]"),
    ],
)
def test_unknown_names_and_settings_are_refused(
    name: str, settings: dict[str, float], said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        mechanism_from(name, settings)


def test_a_default_may_be_left_out_of_the_settings() -> None:
    assert mechanism_from("RoundedDisclosure", {}) == RoundedDisclosure(step=1e-5)
    assert mechanism_from("PricedLadder", {}) == PricedLadder(weight=0.7)


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda mechanism: mechanism.name)
def test_rules_on_losses_refuse_a_metric_without_them(mechanism: Mechanism) -> None:
    bare = Evaluation(n=3, risk=0.123456, losses=None, _function=lambda weights: 0.123456)
    state, rng = mechanism.start(3), np.random.default_rng(0)
    if not mechanism.needs_losses:
        assert mechanism.advance(state, bare, rng)[1].evidence == Evidence(0.123456)
        return
    with pytest.raises(InvalidArgument, match=r"mechanism must be .* ShakyLadder") as caught:
        mechanism.advance(state, bare, rng)
    assert mechanism.name in str(caught.value) and "0.123" not in str(caught.value)


@pytest.mark.parametrize("risk", [math.nan, math.inf])
def test_a_risk_that_is_not_finite_is_refused(risk: float) -> None:
    broken = Evaluation(n=3, risk=risk, losses=None, _function=lambda weights: risk)
    for mechanism in EVERY:
        with pytest.raises(InvalidArgument, match="evaluation must be of finite risk"):
            mechanism.advance(mechanism.start(3), broken, np.random.default_rng(0))


def test_an_evaluation_of_another_size_is_refused() -> None:
    for mechanism in EVERY:
        with pytest.raises(InvalidArgument, match="of the holdout's 3 examples, but is of 2"):
            mechanism.advance(
                mechanism.start(3), Evaluation.from_losses([0.0, 1.0]), np.random.default_rng(0)
            )


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([0.1, 0.2], "of shape"),
        ([[], []], "of shape"),
        ([[0.1, math.nan]], "finite"),
        ([[0.1], [math.inf]], "finite"),
        ([["sick"]], "not numeric"),
        ([[0.1, 0.2], [0.3]], "not numeric"),
    ],
)
def test_a_run_refuses_what_is_no_finite_matrix(losses: object, said: str) -> None:
    with pytest.raises(InvalidArgument, match="losses must be .*" + said) as caught:
        run(FullDisclosure(), losses, np.random.default_rng(0))  # type: ignore[arg-type]
    # NumPy's own error quotes the entry, so it must not hang on to ours.
    assert "sick" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_run_without_submissions_releases_nothing() -> None:
    assert run(Ladder(0.1), np.empty((0, 3)), np.random.default_rng(0)).shape == (0,)


def test_a_run_takes_whole_numbers_and_truth_values() -> None:
    for kind in (int, bool, np.float32):
        losses = np.array([[1, 1, 0, 1], [0, 0, 0, 0]]).astype(kind)
        releases = run(ParameterFreeLadder(), losses, np.random.default_rng(0))
        assert releases.tolist() == [0.75, 0.0] and releases.dtype == np.float64


def test_releases_along_a_climb_fall_and_stay() -> None:
    for mechanism in CLIMBING:
        releases = released(mechanism, climb(1, 50, 80, zero_one=False))
        assert all(later <= earlier for earlier, later in pairwise(releases))
        assert len(set(releases)) > 3
