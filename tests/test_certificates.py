"""Attacks the certificates' arithmetic: limits that are not exact, codes that give out too much."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaincinv
from scipy.stats import binom

from ladderholdout.certificates import (
    Grid,
    LadderTranscript,
    Look,
    Transcript,
    bayesian_bootstrap,
    blum_hardt,
    bounded_lower,
    bounded_upper,
    certify,
    compare,
    exact_lower,
    exact_upper,
    falls_length,
    flags_length,
    grid_of,
    hardt,
    kl_lower,
    kl_upper,
    lower_bound,
    mixed,
    place_length,
    reserve_log_count,
    sample_splitting,
    transcript_before,
    weighted_lower,
    weighted_upper,
    worst_log_count,
    zheng,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import (
    FullDisclosure,
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
    run,
)
from ladderholdout.metrics import Evaluation

Limit = Callable[[float, np.ndarray, float], float]

EXTREME = -300 * math.log(10)
LEVELS = (math.log(0.3), math.log(0.025), -20.0, -150.0, EXTREME, -3000.0)
COUNTS = (
    (1, 0),
    (2, 1),
    (10, 3),
    (100, 99),
    (5000, 0),
    (5000, 250),
    (5000, 2500),
    (5000, 4999),
    (10**5, 1),
    (10**6, 50_000),
    (10**7, 1),
    (10**7, 500_000),
    (10**7, 5_000_000),
    (10**7, 10**7 - 1),
)


def log_tail(errors: int, n: int, p: mp.mpf, q: mp.mpf) -> mp.mpf:
    """Log of P(Bin(n, p) <= errors), term by term and with 50 digits; q is 1 - p."""
    with mp.workdps(50):
        term, total = mp.mpf(1), mp.mpf(1)
        for i in range(errors):
            term *= (errors - i) * q / ((n - errors + 1 + i) * p)
            total += term
            if term < total * mp.mpf(10) ** -40:
                break
        ways = mp.loggamma(n + 1) - mp.loggamma(errors + 1) - mp.loggamma(n - errors + 1)
        return ways + errors * mp.log(p) + (n - errors) * mp.log(q) + mp.log(total)


# Exact limits


@pytest.mark.parametrize("log_level", LEVELS)
@pytest.mark.parametrize(("n", "errors"), COUNTS)
def test_exact_limits_meet_their_level_from_outside(n: int, errors: int, log_level: float) -> None:
    """The tails at the limits are at most the level, and a hair inside they are above it."""
    upper, lower = exact_upper(errors, n, log_level), exact_lower(errors, n, log_level)
    with mp.workdps(50):
        if upper < 1.0:
            assert log_tail(errors, n, mp.mpf(upper), 1 - mp.mpf(upper)) <= log_level
            p = mp.mpf(upper) - hair(upper)
            assert log_tail(errors, n, p, 1 - p) > log_level
        if lower > 0.0:
            assert log_tail(n - errors, n, 1 - mp.mpf(lower), mp.mpf(lower)) <= log_level
            p = mp.mpf(lower) + hair(lower)
            assert log_tail(n - errors, n, 1 - p, p) > log_level


def hair(limit: float) -> mp.mpf:
    """Return 1e-8 of the limit or of its distance from 1, or a few of its last digits."""
    return mp.mpf(min(limit, 1 - limit)) / 10**8 + 4 * mp.mpf(math.ulp(limit))


@pytest.mark.parametrize(("n", "errors"), COUNTS)
@pytest.mark.parametrize("level", [0.3, 0.025, 1e-9, 1e-100])
def test_exact_limits_are_those_of_scipy(n: int, errors: int, level: float) -> None:
    if errors > 0:
        theirs = betaincinv(errors, n - errors + 1, level)
        assert exact_lower(errors, n, math.log(level)) == pytest.approx(theirs, rel=1e-8)
    if errors < n and level > 1e-10:
        theirs = 1 - betaincinv(n - errors, errors + 1, level)
        assert exact_upper(errors, n, math.log(level)) == pytest.approx(theirs, rel=1e-8)


@pytest.mark.parametrize("log_level", LEVELS)
def test_risks_of_zero_and_one(log_level: float) -> None:
    for n in (1, 5000, 10**7):
        assert exact_lower(0, n, log_level) == 0.0 == kl_lower(0.0, n, log_level)
        assert exact_upper(n, n, log_level) == 1.0 == kl_upper(1.0, n, log_level)
        # (1 - p)^n is the level.
        truth = -math.expm1(log_level / n)
        assert exact_upper(0, n, log_level) == pytest.approx(truth, rel=1e-9)
        assert kl_upper(0.0, n, log_level) == pytest.approx(truth, rel=1e-9)


@given(
    n=st.integers(1, 10**7),
    share=st.floats(0, 1),
    log_level=st.floats(-5000, -1.4),
)
def test_limits_are_in_order(n: int, share: float, log_level: float) -> None:
    """Chernoff's lie outside of the exact ones; both hold the risk; lower levels are wider."""
    errors = round(share * n)
    risk = errors / n
    assert (
        0.0
        <= kl_lower(risk, n, log_level)
        <= exact_lower(errors, n, log_level)
        <= risk
        <= exact_upper(errors, n, log_level)
        <= kl_upper(risk, n, log_level)
        <= 1.0
    )
    assert exact_upper(errors, n, 1.1 * log_level) >= exact_upper(errors, n, log_level)
    mirrored = 1.0 - exact_lower(n - errors, n, log_level)
    assert exact_upper(errors, n, log_level) == pytest.approx(mirrored, rel=1e-9)


@pytest.mark.parametrize("log_level", LEVELS)
@pytest.mark.parametrize("mean", [1e-7, 0.05, 0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("n", [1, 5000, 10**7])
def test_chernoff_limits_meet_their_level_from_outside(
    n: int, mean: float, log_level: float
) -> None:
    def exponent(p: mp.mpf) -> mp.mpf:
        m = mp.mpf(mean)
        return -n * (m * mp.log(m / p) + (1 - m) * mp.log((1 - m) / (1 - p)))

    with mp.workdps(50):
        for limit, inward in (
            (kl_upper(mean, n, log_level), -1),
            (kl_lower(mean, n, log_level), 1),
        ):
            if 0.0 < limit < 1.0:
                assert exponent(mp.mpf(limit)) <= log_level
                assert exponent(mp.mpf(limit) + inward * hair(limit)) > log_level


def test_limits_take_microseconds_to_milliseconds() -> None:
    """A median of 20, in the time of this process alone; the bound is ten times the usual."""
    for n, errors, log_level in ((5000, 250, -90.0), (10**7, 5_000_000, math.log(0.025))):
        times = []
        for _ in range(20):
            start = time.process_time_ns()
            exact_upper(errors, n, log_level)
            exact_lower(errors, n, log_level)
            times.append((time.process_time_ns() - start) / 1e6)
        assert statistics.median(times) < 10.0


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("level", [0.2, 0.01])
def test_exact_limits_cover_every_coin(n: int, level: float) -> None:
    """By enumeration: no coin is missed on one side more often than the level."""
    uppers = np.array([exact_upper(errors, n, math.log(level)) for errors in range(n + 1)])
    lowers = np.array([exact_lower(errors, n, math.log(level)) for errors in range(n + 1)])
    for p in np.linspace(0, 1, 501):
        chances = binom.pmf(np.arange(n + 1), n, p)
        assert chances[uppers < p].sum() <= level
        assert chances[lowers > p].sum() <= level


@pytest.mark.parametrize("level", [0.2, 0.01, 1e-4])
def test_exact_limits_cover_coins_that_are_not_alike(level: float) -> None:
    """The rows being given, each has a chance of its own: Hoeffding 1956, by convolution."""
    rng = np.random.default_rng(5)
    for n in (3, 20, 60):
        uppers = np.array([exact_upper(errors, n, math.log(level)) for errors in range(n + 1)])
        for _ in range(200):
            chances = rng.beta(rng.choice([0.1, 1.0]), rng.choice([0.1, 1.0]), n)
            if not 1 / n <= chances.mean() <= 1 - 1 / n:
                continue
            counts = np.ones(1)
            for p in chances:
                counts = np.convolve(counts, [1 - p, p])
            assert counts[uppers < chances.mean()].sum() <= level


def test_bounded_limits_are_the_better_of_two() -> None:
    for mean, n, log_level in itertools.product((0.0, 0.013, 0.5, 1.0), (10, 3000), (-3.0, -80.0)):
        upper, lower = bounded_upper(mean, n, log_level), bounded_lower(mean, n, log_level)
        assert kl_lower(mean, n, log_level) <= lower <= mean <= upper
        assert upper <= kl_upper(mean, n, log_level)
        assert upper == pytest.approx(1.0 - bounded_lower(1.0 - mean, n, log_level))
    assert bounded_upper(0.05, 5000, -80.0) < kl_upper(0.05, 5000, -80.0)
    # A count that is no whole number counts as the next one.
    assert bounded_upper(0.0501, 1000, -80.0) >= exact_upper(51, 1000, -80.0)


@pytest.mark.parametrize("level", [0.2, 0.01, 1e-4])
def test_bounded_limits_cover_losses_of_many_values(level: float) -> None:
    """By convolution: losses of 0, 1/4, ..., 1 that differ from row to row."""
    rng = np.random.default_rng(6)
    for n in (4, 15, 40):
        means = np.arange(4 * n + 1) / (4 * n)
        uppers = np.array([bounded_upper(mean, n, math.log(level)) for mean in means])
        lowers = np.array([bounded_lower(mean, n, math.log(level)) for mean in means])
        for _ in range(100):
            rows = rng.dirichlet(np.full(5, rng.choice([0.05, 0.3, 2.0])), n)
            rows = rows if rng.random() < 0.5 else np.repeat(rows[:1], n, axis=0)
            truth = float((rows @ np.arange(5) / 4).mean())
            sums = np.ones(1)
            for row in rows:
                sums = np.convolve(sums, row)
            assert sums[uppers < truth].sum() <= level
            assert sums[lowers > truth].sum() <= level


@pytest.mark.parametrize("level", [0.2, 0.01])
def test_weighted_limits_cover_by_enumeration(level: float) -> None:
    """All 2^12 outcomes of 12 rows with weights and chances of their own, 200 times."""
    rng = np.random.default_rng(3)
    outcomes = np.array(list(itertools.product((0, 1), repeat=12)))
    for _ in range(200):
        weights = rng.exponential(size=12) ** rng.choice([0.3, 1.0, 2.0])
        p = rng.beta(0.5, 0.5, 12)
        chances = np.where(outcomes == 1, p, 1 - p).prod(axis=1)
        means = np.clip(outcomes @ weights / weights.sum(), 0.0, 1.0)
        truth = float(p @ weights / weights.sum())
        upper = [weighted_upper(mean, weights, math.log(level)) for mean in means[::50]]
        lower = [weighted_lower(mean, weights, math.log(level)) for mean in means[::50]]
        assert all(
            low <= mean <= high for low, mean, high in zip(lower, means[::50], upper, strict=True)
        )
        # A limit grows with the mean, so those that miss lie beyond some mean.
        assert chances[means <= missing(weighted_upper, truth, weights, level)].sum() <= level
        mirrored = missing(weighted_upper, 1 - truth, weights, level)
        assert chances[1 - means <= mirrored].sum() <= level


def missing(limit: Limit, truth: float, weights: np.ndarray, level: float) -> float:
    """Return the largest mean whose limit is below the truth, by bisection."""
    low, high = -1.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        below = middle < 0 or limit(middle, weights, math.log(level)) < truth
        low, high = (middle, high) if below else (low, middle)
    return low


def test_lower_limits_mirror_upper_ones() -> None:
    weights = np.linspace(1, 9, 300)
    for mean in (0.0, 0.003, 0.4, 1.0):
        mirrored = 1 - weighted_lower(1 - mean, weights, -9.0)
        assert weighted_upper(mean, weights, -9.0) == pytest.approx(mirrored)


def test_equal_weights_are_no_weights() -> None:
    assert weighted_upper(0.1, np.full(700, 3.0), -9.0) == kl_upper(0.1, 700, -9.0)
    assert weighted_lower(0.1, np.full(700, 3.0), -9.0) == kl_lower(0.1, 700, -9.0)


# Codes


def test_places_share_one_chance() -> None:
    """The sum telescopes: 1 less 1/(1 + ln(N + 1)) after N places."""
    total = math.fsum(math.exp(-place_length(place)) for place in range(1, 5001))
    assert total == pytest.approx(1 - 1 / (1 + math.log(5001)), rel=1e-12)


@pytest.mark.parametrize("looks", [1, 2, 5, 12])
def test_flags_share_one_chance(looks: int) -> None:
    every = itertools.product((False, True), repeat=looks)
    total = math.fsum(
        math.exp(-flags_length([i for i, flag in enumerate(flags, 1) if flag], looks))
        for flags in every
    )
    assert total == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("looks", [1, 4, 9])
def test_flags_are_a_code_that_can_stop_anywhere(looks: int) -> None:
    """A chance goes on to its two continuations, whole: only then may batches begin anywhere."""
    for flags in itertools.product((False, True), repeat=looks):
        improved = [i for i, flag in enumerate(flags, 1) if flag]
        here = math.exp(-flags_length(improved, looks))
        kept = math.exp(-flags_length(improved, looks + 1))
        better = math.exp(-flags_length([*improved, looks + 1], looks + 1))
        assert kept + better == pytest.approx(here, rel=1e-12)


def falling(top: int, length: int) -> Iterator[tuple[int, ...]]:
    return (values[::-1] for values in itertools.combinations(range(top), length))


@pytest.mark.parametrize("start", [1, 2, 9, 40])
@pytest.mark.parametrize("more", [1, 2])
def test_falls_share_at_most_one_chance(start: int, more: int) -> None:
    total = math.fsum(math.exp(-falls_length([start, *rest])) for rest in falling(start, more))
    assert total <= 1.0 + 1e-12


@pytest.mark.parametrize("values", [(9,), (9, 5), (30, 12, 11)])
def test_falls_are_a_code_that_can_stop_anywhere(values: tuple[int, ...]) -> None:
    total = math.fsum(math.exp(-falls_length([*values, v])) for v in range(values[-1]))
    assert total <= math.exp(-falls_length(values)) * (1 + 1e-12)


def transcripts(looks: int, n_values: int) -> Iterator[LadderTranscript]:
    """All that one ladder can tell in so many looks."""
    for flags in itertools.product((False, True), repeat=looks - 1):
        improved = (1, *(i for i, flag in enumerate(flags, 2) if flag))
        for values in falling(n_values, len(improved)):
            yield LadderTranscript(looks, improved, values, n_values)


@pytest.mark.parametrize("looks", [1, 3, 5])
def test_transcripts_of_a_ladder_share_at_most_one_chance(looks: int) -> None:
    total = math.fsum(math.exp(-one.length()) for one in transcripts(looks, 6))
    assert total <= 1.0 + 1e-12


def test_batches_that_begin_after_the_first_gain_share_one_chance() -> None:
    """The analyst who opens a batch once something improves.

    Its transcripts differ in length. Counting them by C(s, J) with s the length itself hands
    out a harmonic sum instead of 1, and a certificate built on it is void.
    """
    gains = [tuple(range(2, look + 1)) for look in range(2, 60)]
    ours = math.fsum(math.exp(-flags_length([len(gain)], len(gain))) for gain in gains)
    naive = math.fsum(1 / math.comb(len(gain), 1) for gain in gains)
    assert ours <= 1.0 < 4.0 < naive


Told = tuple[tuple[str, int | None], ...]


@pytest.mark.parametrize("seed", range(25))
def test_every_model_of_a_small_game_is_paid_for_once(seed: int) -> None:
    """All that an analyst might ever submit, by enumeration: the chances add up to at most 1.

    Two ladders, up to four looks; what is told decides the ladder, when a batch opens, how
    large it is and where it is broken off.
    """
    nodes = set(small_game((), seed))
    spent = math.fsum(math.exp(-node_of(*node).log_count()) for node in nodes)
    assert 0.05 < spent <= 1.0


def small_game(told: Told, seed: int) -> Iterator[tuple[Told, int]]:
    """Everything from here on, as what was told before a batch and the place in it."""
    if len(told) == 4:
        yield from ((told, place) for place in range(1, 30))
        return
    size, who = 1 + choice(told, seed) % 3, "AB"[choice(told, seed + 1000) % 2]
    ends: list[Told] = [told]
    for place in range(1, size + 1):
        if ends:
            yield told, place
        ends = [answered for end in ends for answered in answers(end, who)]
        stopped = [end for end in ends if place == size or choice(end, seed + 2000) % 3 == 0]
        for end in stopped:
            yield from small_game(end, seed)
        ends = [end for end in ends if end not in stopped and len(end) < 4]


def choice(told: Told, seed: int) -> int:
    return int(np.random.default_rng([seed, *repr(told).encode()]).integers(1000))


def answers(told: Told, who: str, n_values: int = 3) -> Iterator[Told]:
    """All that the ladder can say next: a first look improves, and values fall."""
    seen = [value for ladder, value in told if ladder == who and value is not None]
    for value in range(seen[-1] if seen else n_values):
        yield (*told, (who, value))
    if seen:
        yield (*told, (who, None))


def node_of(told: Told, place: int) -> Transcript:
    looks = [Look(who, value is not None, value) for who, value in told]
    batch = [Look("A", False, None, "batch")] * place
    grids = {"A": Grid(3), "B": Grid(3)}
    return transcript_before(looks + batch, len(told) + place - 1, grids)


@given(st.lists(st.floats(0, 2000), min_size=1, max_size=8))
def test_a_mixture_costs_at_most_the_logarithm_of_its_size(lengths: list[float]) -> None:
    slack = 1e-9
    assert min(lengths) - slack <= mixed(lengths) <= min(lengths) + math.log(len(lengths)) + slack


def test_disclosure_pays_for_every_value_and_one_bit_for_none() -> None:
    disclosed = LadderTranscript(50, None, (3,) * 50, 101, falling=False)
    assert disclosed.length() == pytest.approx(50 * math.log(101))
    one_bit = LadderTranscript(50, (1, 20), (), 101)
    shown = LadderTranscript(50, (1, 20), (40,), 101)
    assert shown.length() - one_bit.length() == pytest.approx(math.log(101))
    assert one_bit.length() == pytest.approx(flags_length([19], 49))


def test_a_rule_whose_first_look_may_fail_pays_for_its_flag() -> None:
    sure = LadderTranscript(9, (1, 4), (), 11)
    open_ = LadderTranscript(9, (1, 4), (), 11, first_improves=False)
    assert open_.length() == pytest.approx(flags_length([1, 4], 9)) != sure.length()
    assert LadderTranscript(9, (), (), 11, first_improves=False).length() > 0


@given(st.integers(2, 2000), st.data())
def test_the_worst_count_is_the_worst(looks: int, data: st.DataObject) -> None:
    releases = data.draw(st.integers(1, min(looks, 12)))
    later = st.sets(st.integers(2, looks), min_size=releases - 1, max_size=releases - 1)
    improved = (1, *sorted(data.draw(later)))
    told = st.sets(st.integers(0, 500), min_size=releases, max_size=releases)
    values = tuple(sorted(data.draw(told), reverse=True))
    ladder = LadderTranscript(looks, improved, values, 501)
    happened = Transcript(looks, 1, (ladder,)).log_count()
    assert happened <= worst_log_count(looks, releases, 501) + 1e-9
    silent = Transcript(looks, 1, (LadderTranscript(looks, improved, (), 501),)).log_count()
    assert silent <= worst_log_count(looks, releases, None) + 1e-9


# Certificates


def test_a_first_look_is_a_fresh_look_but_for_its_names() -> None:
    first = certify(0.05, 5000, Transcript(0, 1, ()))
    assert first.log_count == pytest.approx(2 * place_length(1))
    assert first.high == exact_upper(250, 5000, math.log(0.025) - first.log_count)
    assert first.low == exact_lower(250, 5000, math.log(0.025) - first.log_count)
    assert first.bound == "exact binomial"


def test_rounding_is_taken_in() -> None:
    """The raw risk may lie anywhere that rounds to the release."""
    nothing = Transcript(0, 1, ())
    rounded = certify(0.05, 5000, nothing, rounding=0.01)
    level = math.log(0.025) - rounded.log_count
    assert rounded.high == exact_upper(275, 5000, level)
    assert rounded.low == exact_lower(225, 5000, level)
    # Releases on the grid of the counts are exact, whether their rounding is named or not.
    assert certify(0.05, 5000, nothing, rounding=1 / 5000) == certify(0.05, 5000, nothing)


@pytest.mark.parametrize("step", [0.3, 0.02])
def test_a_rounded_release_is_certified_like_the_worst_risk_behind_it(step: float) -> None:
    n = 700
    for errors in range(0, n + 1, 7):
        losses = np.repeat([1.0, 0.0], [errors, n - errors])
        told = run(SimplifiedLadder(step), losses[None], np.random.default_rng(0))[0]
        rounded = certify(told, n, Transcript(0, 1, ()), rounding=step)
        exact = certify(errors / n, n, Transcript(0, 1, ()))
        assert rounded.low <= exact.low < exact.high <= rounded.high


def test_noise_is_taken_in_and_paid_for() -> None:
    noisy = certify(0.05, 5000, Transcript(0, 1, ()), noise=0.001)
    half = 0.001 * (math.log(2 / 0.05) + place_length(1))
    level = math.log(0.0125) - noisy.log_count
    assert noisy.high == exact_upper(math.floor((0.05 + half) * 5000), 5000, level)
    # A noisy release may lie outside of the range of a risk.
    assert certify(-0.01, 5000, Transcript(0, 1, ()), noise=0.001).low == 0.0


def test_losses_between_0_and_1_and_weights_have_wider_bounds() -> None:
    transcript = Transcript(0, 1000, ())
    exact = certify(0.05, 5000, transcript)
    real = certify(0.05, 5000, transcript, binary=False)
    weighted = certify(0.05, 5000, transcript, weights=np.linspace(1, 2, 5000))
    assert weighted.low < real.low < exact.low < exact.high < real.high < weighted.high
    assert real.bound == "Chernoff and Bentkus"
    assert weighted.bound == "Chernoff and Hoeffding, weighted"


def test_a_certificate_says_what_it_stands_on() -> None:
    alone = certify(0.05, 5000, Transcript(0, 1, ()))
    grid = certify(0.05, 5000, Transcript(0, 144, ()))
    assert not any("batch" in text for text in alone.assumptions)
    assert any("batch" in text for text in grid.assumptions)
    assert any(
        "weights" in text
        for text in certify(0.1, 2, Transcript(0, 1, ()), weights=[1, 2]).assumptions
    )
    assert alone.confidence == 0.95


def test_levels_that_are_no_floats_any_more() -> None:
    values = tuple(range(2000, 0, -1))
    ladder = LadderTranscript(4000, tuple(range(1, 2001)), values, 5001)
    endless = certify(0.0002, 5000, Transcript(4000, 1, (ladder,)))
    assert endless.log_count > 1000
    assert 0.0 < endless.high < 1.0


BAD = [
    lambda: exact_upper(-1, 10, -1.0),
    lambda: exact_upper(11, 10, -1.0),
    lambda: exact_upper(1, 0, -1.0),
    lambda: exact_lower(1, 10, 0.0),
    lambda: exact_lower(1, 10, -math.inf),
    lambda: kl_upper(1.1, 10, -1.0),
    lambda: kl_upper(math.nan, 10, -1.0),
    lambda: kl_lower(0.5, -1, -1.0),
    lambda: weighted_upper(0.5, [0, 0], -1.0),
    lambda: weighted_upper(0.5, [1, -1], -1.0),
    lambda: place_length(0),
    lambda: LadderTranscript(5, (1, 6), (), 11),
    lambda: LadderTranscript(5, (2,), (), 11),
    lambda: LadderTranscript(5, (1, 3), (4, 4), 11),
    lambda: LadderTranscript(5, (1, 3), (4, 12), 11),
    lambda: LadderTranscript(5, (1, 3, 2), (), 11),
    lambda: Transcript(4, 1, (LadderTranscript(5, (1,), (), 11),)),
    lambda: Transcript(4, 1, ()),
    lambda: Transcript(-1, 1, ()),
    lambda: Transcript(0, 0, ()),
    lambda: certify(0.1, 100, Transcript(0, 1, ()), confidence=1.0),
    lambda: certify(math.nan, 100, Transcript(0, 1, ())),
    lambda: certify(0.1, 100, Transcript(0, 1, ()), rounding=-0.1),
    lambda: certify(0.1, 100, Transcript(0, 1, ()), weights=[1.0, 2.0]),
    lambda: zheng(100, 10, accounts=0),
    lambda: blum_hardt(100, 10, beta=1.0),
    lambda: sample_splitting(100, 10, 1.5),
    lambda: worst_log_count(5, 6, 11),
    lambda: reserve_log_count(0, 11),
    lambda: bayesian_bootstrap(lambda w: 0.0, 10, -0.1, np.random.default_rng(0)),
]


@pytest.mark.parametrize("call", BAD)
def test_bad_arguments_are_refused(call: object) -> None:
    with pytest.raises(InvalidArgument):
        call()  # type: ignore[operator]


# The papers


def test_the_published_bounds_reach_their_failure_probability() -> None:
    """Each half-width put back into the inequality as it is printed."""
    n, k, beta = 5000, 1000, 0.05
    step = 0.08
    epsilon = blum_hardt(n, k, beta, step) - step
    exponent = -2 * epsilon**2 * n + (1 / step + 2) * math.log(4 * k / step) + 1
    assert math.exp(exponent) == pytest.approx(beta)
    assert blum_hardt(n, k, beta) <= blum_hardt(n, k, beta, step)
    for accounts in (1, 5):
        half = zheng(n, k, accounts, beta)
        exponent = -(half**2) * n / 2 + (accounts / half + 1) * math.log(2 * k) + 1
        assert math.exp(exponent) == pytest.approx(beta)
    assert zheng(10, 1000) == 1.0


def test_hardts_bound_has_his_settings() -> None:
    n, k, beta = 10**7, 1000, 0.05
    ladder = ShakyLadder.from_theory(n, k, beta)
    epsilon = math.sqrt(math.log(k * n / beta)) / (ladder.noise * n)
    by_hand = 18 * epsilon * math.sqrt(4 / ladder.step) + 1.5 * ladder.step
    assert hardt(n, k, beta) == pytest.approx(by_hand)
    # The rate of Theorem 2.7, up to its logarithms: n^(-2/5).
    rate = math.log(hardt(10**12, k) / hardt(10**8, k)) / math.log(10**4)
    assert -0.4 <= rate <= -0.36


def test_the_lower_bound_is_met_by_the_best_test() -> None:
    """Two worlds, 16 coins, 40 rows: even the likelihood ratio errs in one of them.

    200,000 draws of each world. The best test errs with a chance of at least 1/4 on average;
    5 standard errors of the simulation are 0.004, a false alarm in 3 million.
    """
    n, k = 40, 16
    epsilon = 2 * lower_bound(n, k)
    rng = np.random.default_rng(0)
    fair = rng.binomial(n, 0.5, (200_000, k))
    biased = rng.binomial(n, 0.5, (200_000, k))
    biased[:, 0] = rng.binomial(n, 0.5 - epsilon, 200_000)

    def ratio(counts: np.ndarray) -> np.ndarray:
        return np.mean((1 - 2 * epsilon) ** counts * (1 + 2 * epsilon) ** (n - counts), axis=1)

    wrong = (np.mean(ratio(fair) > 1) + np.mean(ratio(biased) <= 1)) / 2
    assert wrong >= 0.25 - 0.004


def test_the_widths_of_the_issue() -> None:
    """n = 5,000, k = 1,000, J = 8, risk .05: upper half-widths, and the papers'."""
    rows = {row.name: row for row in compare(5000, 1000, 8, 0.05)}
    grid, adaptive = rows["a grid of 1000"], rows["1000 adaptive, step 0.01"]
    assert grid.width < 0.018 < 0.033
    assert adaptive.width < 0.061 < 0.093
    assert rows["1000 adaptive, one bit"].width < 0.041
    # Improvements that thin out, as they do in a search: about .05.
    values = (50, 24, 16, 12, 10, 8, 6, 5)
    ladder = LadderTranscript(999, (1, 2, 5, 12, 30, 80, 200, 500), values, 101)
    usual = certify(0.05, 5000, Transcript(999, 1, (ladder,)), rounding=0.01)
    assert usual.high - 0.05 < 0.051
    published = [rows["Ladder, best step"], rows["1 account(s), best step"], rows["ShakyLadder"]]
    assert min(row.width for row in published) > 0.15
    fresh = rows["one fresh look"]
    assert fresh.ratio == 1.0
    assert grid.ratio == pytest.approx(grid.width / fresh.width)


# The reserve


def test_each_look_at_the_reserve_pays_for_the_ones_before() -> None:
    assert reserve_log_count(1, 1001) == pytest.approx(math.log(2))
    assert reserve_log_count(3, 1001) == pytest.approx(math.log(12) + 2 * math.log(1001))


def test_the_bootstrap_is_near_the_exact_interval_for_a_mean() -> None:
    losses = np.repeat([0.0, 1.0], [1800, 200])

    def risk(weights: np.ndarray) -> float:
        return float(weights @ losses / weights.sum())

    for log_level in (math.log(0.025), -9.0, -30.0):
        low, high = bayesian_bootstrap(risk, 2000, log_level, np.random.default_rng(1))
        assert low == pytest.approx(exact_lower(200, 2000, log_level), abs=0.006)
        assert high == pytest.approx(exact_upper(200, 2000, log_level), abs=0.012)


def test_the_bootstrap_covers_an_auc() -> None:
    """400 holdouts of 200 rows, confidence 0.9: the true AUC of two normals is Phi(1/sqrt 2).

    Were the coverage 0.88 (it is approximate), fewer than 330 of 400 would hold with a chance
    below 1e-3.
    """
    rng = np.random.default_rng(2)
    truth = statistics.NormalDist().cdf(1 / math.sqrt(2))
    held = 0
    for _ in range(400):
        scores = rng.normal(np.repeat([0.0, 1.0], 100))
        order = np.argsort(scores)
        positive = order >= 100

        def risk(weights: np.ndarray, order=order, positive=positive) -> float:
            mass = weights[order]
            below = np.cumsum(mass * ~positive)
            total = mass[positive].sum() * mass[~positive].sum()
            return 1.0 - float((mass * below)[positive].sum() / total)

        low, high = bayesian_bootstrap(risk, 200, math.log(0.05), rng, draws=400)
        held += low <= 1 - truth <= high
    assert held >= 330


# Transcripts of real ladders

RULES = [
    ParameterFreeLadder(),
    PricedLadder(),
    PairedTestLadder(0.05),
    Ladder(0.02),
    SimplifiedLadder(0.02),
    RoundedDisclosure(0.3),
]


@pytest.mark.parametrize("mechanism", RULES, ids=lambda rule: type(rule).__name__)
def test_what_a_ladder_tells_is_a_transcript(mechanism: Mechanism) -> None:
    """First looks improve, values fall and lie on the grid: what the codes build on is so."""
    rng = np.random.default_rng(4)
    for n in (50, 400):
        grid, step = grid_of(mechanism, n, binary=True), mechanism.resolution(n)
        assert grid is not None
        state, looks = mechanism.start(n), []
        for _ in range(200):
            losses = rng.random(n) < rng.uniform(0, 1)
            state, outcome = mechanism.advance(state, Evaluation.from_losses(losses), rng)
            told = outcome.improved or mechanism.discloses
            value = round(outcome.risk / step) if told else None
            looks.append(Look("A", outcome.improved, value))
        for last in range(200):
            transcript = transcript_before(looks, last, {"A": grid})
            assert (transcript.before, transcript.place) == (last, 1)
            assert 0 < transcript.log_count() < math.inf


def test_grids_of_mechanisms() -> None:
    assert grid_of(ParameterFreeLadder(), 50, binary=False) == Grid(51)
    # Rounding to 0.3 tells 0, 0.3, 0.6 or 0.9 of risks up to 1.
    assert grid_of(Ladder(0.3), 50, binary=True, budget=4) == Grid(4, budget=4)
    assert grid_of(Ladder(0.4), 50, binary=True) == Grid(4)
    assert grid_of(FullDisclosure(), 50, binary=True) == Grid(51, False, True, True)
    noisy = ShakyLadder(0.1, 0.1)
    assert grid_of(noisy, 50, binary=True) == Grid(51, falling=False, first_improves=False)
    assert grid_of(noisy, 50, binary=False) is None


def test_a_batch_is_the_run_of_looks_right_before() -> None:
    """A look that is not of the batch, wherever it came from, ends what the batch covers."""
    hand, grid, other = Look("A", False), Look("A", False, None, 1), Look("B", False, None, 2)
    grids = {name: Grid(101, first_improves=False) for name in "AB"}
    for looks, expected in (
        ([hand, hand], (1, 1)),
        ([hand, grid, grid, grid], (1, 3)),
        ([grid, grid, hand], (2, 1)),
        ([grid, other, grid, grid], (2, 2)),
        ([grid, grid, other], (2, 1)),
    ):
        transcript = transcript_before(looks, len(looks) - 1, grids)
        assert (transcript.before, transcript.place) == expected
    with pytest.raises(InvalidArgument):
        transcript_before([hand], 1, grids)


def test_what_a_batch_told_itself_costs_its_members_nothing() -> None:
    looks = [Look("A", True, 60)] + [Look("A", True, 50 - i, "grid") for i in range(10)]
    alone = [Look("A", True, 60)] + [Look("A", i == 9, 41, "grid") for i in range(10)]
    grids = {"A": Grid(101)}
    assert transcript_before(looks, 10, grids) == transcript_before(alone, 10, grids)
    adaptive = [Look("A", True, 60)] + [Look("A", True, 50 - i) for i in range(10)]
    climbed = transcript_before(adaptive, 10, grids).log_count()
    assert climbed > 2 * transcript_before(looks, 10, grids).log_count()


def test_looks_after_the_budget_tell_nothing() -> None:
    grids = {"A": Grid(101, budget=2)}
    used_up = [Look("A", True, 60), Look("A", False), Look("A", True, 50)]
    silence = [Look("A", False)] * 500
    (ladder,) = transcript_before([*used_up, *silence], 400, grids).ladders
    assert (ladder.looks, ladder.improved) == (3, (1, 3))
