"""Attacks Thresholdout, the Gaussian and the calibrated Shaky Ladder: pseudo-code and noise."""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import (
    Evidence,
    GaussianLadder,
    Ladder,
    LadderRules,
    Mechanism,
    ShakyLadder,
    Thresholdout,
    fresh_rng,
    mechanism_from,
    run,
)
from ladderholdout.mechanisms.noisy import gaussian
from ladderholdout.metrics import Evaluation
from tests.support import literal

FALSE_ALARM = 1e-6
RISKS = st.integers(0, 20).map(lambda twentieth: twentieth / 20)


def answers(
    mechanism: Thresholdout, pairs: list[tuple[float, float]], seed: int
) -> Iterator[float]:
    state, rng = mechanism.start(3), np.random.default_rng(seed)
    for training, holdout in pairs:
        evaluation = Evaluation.from_losses([holdout] * 3).with_inner_score(training)
        state, outcome = mechanism.advance(state, evaluation, rng)
        assert state.releases <= mechanism.budget
        yield outcome.risk


@given(
    pairs=st.lists(st.tuples(RISKS, RISKS), min_size=1, max_size=12),
    budget=st.integers(1, 4),
    sigma=st.sampled_from([1e-4, 0.01, 0.1]),
    seed=st.integers(0, 2**32),
)
def test_thresholdout_is_figure_1_of_dwork_and_others(
    pairs: list[tuple[float, float]], budget: int, sigma: float, seed: int
) -> None:
    # One uniform number for the first threshold, three for each query.
    uniforms = np.random.default_rng(seed).random(1 + 3 * len(pairs))
    noise = iter(stats.laplace.ppf(uniforms).tolist())
    expected = literal.thresholdout(pairs, 0.13, budget, noise, sigma)
    found = answers(Thresholdout(0.13, sigma, budget), pairs, seed)
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is None:
            assert math.isnan(ours)
        else:
            assert ours == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("seed", range(15))
def test_thresholdout_follows_figure_1_along_many_queries(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(float(a), float(b)) for a, b in rng.random((60, 2)) * 0.5]
    uniforms = np.random.default_rng(seed).random(1 + 3 * len(pairs))
    noise = iter(stats.laplace.ppf(uniforms).tolist())
    expected = literal.thresholdout(pairs, 0.15, 12, noise, 0.05)
    told = [math.nan if answer is None else answer for answer in expected]
    found = list(answers(Thresholdout(0.15, 0.05, 12), pairs, seed))
    assert found == pytest.approx(told, abs=1e-9, nan_ok=True)
    assert 0 < sum(map(math.isnan, told)) < 60


def test_an_answer_is_the_training_risk_itself_or_the_holdouts_under_noise() -> None:
    same = list(answers(Thresholdout(0.5, 1e-3, 1), [(0.3, 0.31)] * 50, 0))
    assert same == [0.3] * 50
    apart = np.array(list(answers(Thresholdout(0.01, 1e-3, 1000), [(0.3, 0.6)] * 1000, 0)))
    assert stats.kstest(apart - 0.6, stats.laplace(scale=1e-3).cdf).pvalue > FALSE_ALARM
    # The last answers are none, and the state stands still.
    spent = list(answers(Thresholdout(0.01, 1e-3, 2), [(0.3, 0.6)] * 4, 0))
    assert [math.isnan(answer) for answer in spent] == [False, False, True, True]


def test_the_threshold_is_passed_with_the_chance_of_the_published_noise() -> None:
    # A gap of T + x is answered from the holdout if Lap(2 sigma) + Lap(4 sigma) < x.
    sigma, x, draws = 0.01, 0.03, 1500
    count = 0
    for seed in range(draws):
        (answer,) = answers(Thresholdout(0.1, sigma, 1), [(0.2, 0.3 + x)], seed)
        count += answer != 0.2

    def density(t: float) -> float:
        return math.exp(-abs(t) / (4 * sigma)) / (8 * sigma)

    grid = np.linspace(-2, 2, 100_001)
    chance = np.trapezoid(
        [density(t) * stats.laplace.cdf(x - t, scale=2 * sigma) for t in grid[::20]], grid[::20]
    )
    assert stats.binomtest(count, draws, float(chance)).pvalue > FALSE_ALARM


def test_thresholdout_keeps_the_best_answer_as_the_standing_one() -> None:
    mechanism, rng = Thresholdout(0.9, 1e-6, 3), np.random.default_rng(0)
    state, seen = mechanism.start(1), []
    for training in (0.5, 0.6, 0.4, 0.4):
        evaluation = Evaluation.from_losses([0.5]).with_inner_score(training)
        state, outcome = mechanism.advance(state, evaluation, rng)
        seen.append((outcome.risk, outcome.improved, state.standing))
    assert seen == [(0.5, True, 0.5), (0.6, False, 0.5), (0.4, True, 0.4), (0.4, False, 0.4)]


def test_thresholdout_refuses_a_submission_without_a_training_risk() -> None:
    mechanism = Thresholdout()
    assert mechanism.needs_inner_score
    with pytest.raises(
        InvalidArgument, match=r"without a training risk.*with_inner_score\(risk\)"
    ) as caught:
        mechanism.advance(
            mechanism.start(1), Evaluation.from_losses([0.123]), np.random.default_rng(0)
        )
    assert "0.123" not in str(caught.value)
    with pytest.raises(InvalidArgument, match="risk must be a finite number"):
        Evaluation.from_losses([0.1]).with_inner_score(math.nan)


# The Gaussian Ladder.


@given(
    risks=st.lists(RISKS, min_size=1, max_size=12),
    step=st.sampled_from([0.05, 0.2]),
    noise=st.sampled_from([1e-3, 0.05, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_the_gaussian_ladder_is_the_ladder_on_noisy_risks(
    risks: list[float], step: float, noise: float, seed: int
) -> None:
    added = stats.norm.ppf(np.random.default_rng(seed).random(len(risks)), scale=noise)
    losses = np.array(risks)[:, None]
    expected = run(Ladder(step), losses + added[:, None], np.random.default_rng(0))
    found = run(GaussianLadder(step, noise), losses, np.random.default_rng(seed))
    assert found == pytest.approx(expected, abs=1e-12)


def test_gaussian_noise_has_the_quantiles_of_its_distribution() -> None:
    rng = np.random.default_rng(1)
    noise = [gaussian(0.3, rng) for _ in range(20_000)]
    assert stats.kstest(noise, stats.norm(scale=0.3).cdf).pvalue > FALSE_ALARM

    class Zero(np.random.Generator):
        def random(self, *args: Any, **kwargs: Any) -> float:  # type: ignore[override]
            return 0.0

    assert -9 < gaussian(1.0, Zero(np.random.PCG64(0))) < -8


def test_noise_of_three_standard_errors_holds_off_the_majority_attack() -> None:
    """Hardt, Section 4 and Appendix B, against the ladder itself: see what leaks per answer.

    The attack offsets its queries so that each would be released; a first release of each of
    many ladders is the same as many such answers.
    """
    n, k, rng = 1000, 300, np.random.default_rng(0)
    bias = {}
    for noise in (1e-9, 3 / math.sqrt(n)):
        found = []
        for _ in range(20):
            hidden, queries = rng.integers(0, 2, n), rng.integers(0, 2, (k, n))
            mechanism = GaussianLadder(step=1e-6, noise=noise)
            told = [run(mechanism, [row], rng)[0] for row in (queries != hidden).astype(float)]
            signs = np.where(np.array(told) < 0.5, 1, -1)
            vote = (signs @ (2 * queries - 1) >= 0).astype(int)
            found.append(0.5 - float((vote != hidden).mean()))
        bias[noise] = float(np.mean(found))
    assert bias[1e-9] > 0.15 and bias[3 / math.sqrt(n)] < bias[1e-9] / 3


# The calibrated Shaky Ladder.


def test_the_calibrated_settings_shrink_with_rows_and_grow_with_looks() -> None:
    few, many = ShakyLadder.calibrated(1000, 30), ShakyLadder.calibrated(1000, 3000)
    large = ShakyLadder.calibrated(100_000, 30)
    assert few.noise == many.noise == pytest.approx(10 * large.noise)
    assert few.step == pytest.approx(10 * large.step) and few.step < many.step < 2.5 * few.step
    assert ShakyLadder.calibrated(1, 10**9).step == 1.0
    assert 0 < ShakyLadder.calibrated(1, 1).step < 1
    for arguments, named in (((0, 5), "n must"), ((5, 0), "k must"), ((5.0, 5), "n must")):
        with pytest.raises(InvalidArgument, match=named):
            ShakyLadder.calibrated(*arguments)  # type: ignore[arg-type]


def test_the_calibrated_settings_withstand_what_others_do_not() -> None:
    calibration = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "calibration.py"))
    errors, n, k = calibration["errors"], 250, 300
    chosen = errors(ShakyLadder.calibrated(n, k), n, k, 10)
    assert chosen.larger < 1.0
    # Too quiet, and too noisy: one believes the attack, the other nobody.
    assert errors(ShakyLadder(0.5 / n**0.5, 0.05 / n**0.5), n, k, 10).attack > chosen.larger
    assert errors(ShakyLadder(3 / n**0.5, 3 / n**0.5), n, k, 10).larger > 2 * chosen.larger


# What holds for both.

EVERY: tuple[Mechanism, ...] = (
    Thresholdout(0.05, 0.02, budget=3),
    Thresholdout(),
    GaussianLadder(0.05, 0.1),
)


@pytest.mark.parametrize("mechanism", EVERY, ids=repr)
@settings(max_examples=25)
@given(
    pairs=st.lists(st.tuples(RISKS, RISKS), min_size=1, max_size=12),
    budget=st.none() | st.integers(1, 3),
    unit=st.sampled_from([1.0, 7.0, 1e-6]),
)
def test_a_replay_is_exact_to_the_last_bit(
    mechanism: Mechanism, pairs: list[tuple[float, float]], budget: int | None, unit: float
) -> None:
    rules = LadderRules(mechanism, budget, unit)
    state = again = rules.start(2)
    for number, (training, holdout) in enumerate(pairs):
        evaluation = Evaluation.from_losses([holdout * unit] * 2).with_inner_score(training * unit)
        state, outcome = rules.step(state, evaluation, fresh_rng(b"s", 1, number))
        recorded = Evidence(**json.loads(json.dumps(asdict(outcome.evidence))))
        again, replayed = rules.replay(again, recorded, fresh_rng(b"s", 1, number))
        assert replayed.risk.hex() == outcome.risk.hex() and replayed.improved == outcome.improved
        assert again == state and again.standing.hex() == state.standing.hex()


@pytest.mark.parametrize("mechanism", EVERY, ids=repr)
def test_settings_survive_json(mechanism: Mechanism) -> None:
    settings = json.loads(json.dumps(mechanism.settings()))
    assert mechanism_from(mechanism.name, settings) == mechanism


@pytest.mark.parametrize("value", [0, -0.1, 1.5, math.nan, True, "0.1", None])
def test_settings_outside_of_their_range_are_refused(value: Any) -> None:
    for make, named in (
        (lambda: Thresholdout(threshold=value), "threshold"),
        (lambda: Thresholdout(noise=value), "noise"),
        (lambda: GaussianLadder(value, 0.1), "step"),
        (lambda: GaussianLadder(0.1, value), "noise"),
    ):
        with pytest.raises(InvalidArgument, match=rf"{named} must be a number in \(0, 1\]"):
            make()
    with pytest.raises(InvalidArgument, match="budget must be a whole number"):
        Thresholdout(budget=value)


def test_noise_of_a_fixed_size_is_refused_where_the_range_is_not_known() -> None:
    for mechanism in EVERY:
        with pytest.raises(InvalidArgument, match=r"State loss_range=\(low, high\)"):
            LadderRules(mechanism, unit=None)
