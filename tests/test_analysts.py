"""Attacks the attacks: ladders in step that differ from single ones, and votes that miscount."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ladderholdout import LadderHoldout
from ladderholdout.analysts import (
    Boosting,
    Seen,
    ShiftedMajority,
    Submission,
    attack,
    simulate,
)
from ladderholdout.analysts.bits import Bits, Tally
from ladderholdout.analysts.lockstep import below, ladders, rounded
from ladderholdout.analysts.losses import Evaluations, losses_of
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import (
    BayesBootLadder,
    FullDisclosure,
    GaussianLadder,
    Ladder,
    LadderBoot,
    Mechanism,
    OneBitLadder,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
    Thresholdout,
    arithmetic,
    run,
)
from ladderholdout.metrics import Evaluation

# Of each statistical test below.
FALSE_ALARM = 1e-6

DETERMINISTIC: list[Mechanism] = [
    FullDisclosure(),
    RoundedDisclosure(step=0.1),
    RoundedDisclosure(step=0.3),
    Ladder(step=0.1),
    Ladder(step=0.07),
    SimplifiedLadder(step=0.1),
    SimplifiedLadder(step=0.3),
    ParameterFreeLadder(),
    PairedTestLadder(alpha=0.05),
    PairedTestLadder(alpha=0.5),
    OneBitLadder(alpha=0.2),
    PricedLadder(weight=0.7),
    PricedLadder(weight=0.01),
]
NOISY: list[Mechanism] = [
    ShakyLadder(step=0.05, noise=0.1),
    GaussianLadder(step=0.05, noise=0.1),
    LadderBoot(0.3, n_bootstrap=2),
    BayesBootLadder(odds=3),
]


@st.composite
def matrices(draw: st.DrawFn, kinds: tuple[str, ...] = ("bits", "numbers")) -> Any:
    """Losses of k submissions on n rows in R repetitions, ties and constants among them."""
    n, k, repetitions = draw(st.integers(1, 7)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    values = st.integers(0, 1) if draw(st.sampled_from(kinds)) == "bits" else st.integers(0, 10)
    cells = st.lists(values, min_size=n, max_size=n)
    rows = st.lists(cells | st.builds(lambda v: [v] * n, values), min_size=k, max_size=k)
    found = np.array(draw(st.lists(rows, min_size=repetitions, max_size=repetitions)))
    return found if found.max() <= 1 else found / 10  # of shape (R, k, n)


def in_step(mechanism: Mechanism, losses: Any, rng: np.random.Generator) -> Any:
    """What R ladders in step release, of shape (R, k)."""
    packed = losses.dtype.kind == "i"
    wrapped = [losses_of(Bits.pack(part) if packed else part) for part in losses.swapaxes(0, 1)]
    both = ladders(mechanism, wrapped[0])
    return np.array([both.advance(one, None, rng)[0] for one in wrapped]).T


@pytest.mark.parametrize("mechanism", DETERMINISTIC, ids=repr)
@given(losses=matrices())
def test_ladders_in_step_are_the_single_ladders(mechanism: Mechanism, losses: Any) -> None:
    rng = np.random.default_rng(0)
    expected = [run(mechanism, part, rng).tolist() for part in losses]
    assert in_step(mechanism, losses, rng).tolist() == expected


@pytest.mark.parametrize("mechanism", [*DETERMINISTIC, *NOISY], ids=repr)
def test_one_ladder_in_step_uses_the_generator_as_a_single_one(mechanism: Mechanism) -> None:
    rng = np.random.default_rng(5)
    losses = rng.integers(0, 2, (1, 60, 80))
    losses[0, 0] = 1  # a first submission of risk 1
    expected = run(mechanism, losses[0], np.random.default_rng(1))
    found = in_step(mechanism, losses, np.random.default_rng(1))[0]
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("mechanism", NOISY[:2], ids=repr)
def test_noisy_ladders_in_step_release_alike(mechanism: Mechanism) -> None:
    """What stands after ten submissions in 2,000 ladders, against as many single ones."""
    rng = np.random.default_rng(2)
    losses = np.tile(rng.integers(0, 2, (10, 40)), (2000, 1, 1))
    single = [run(mechanism, losses[0], rng)[-1] for _ in range(2000)]
    found = in_step(mechanism, losses, rng)[:, -1]
    assert stats.ks_2samp(single, found).pvalue > FALSE_ALARM
    assert len(np.unique(found)) > 5


@given(
    risks=st.lists(st.integers(-20, 20).map(lambda x: x / 20), min_size=1, max_size=9),
    moved=st.sampled_from([0.0, 1e-13, -1e-13, 3e-12, 0.05]),
    step=st.sampled_from([1e-5, 0.07, 0.1, 0.3, 1.0, 1 / 7]),
)
def test_rounding_and_comparing_are_those_of_single_risks(
    risks: list[float], moved: float, step: float
) -> None:
    array = np.array(risks) * 3 + moved
    assert rounded(array, step).tolist() == [arithmetic.round_half_up(x, step) for x in array]
    for bounds in (array[::-1] + moved, np.full(len(array), math.inf)):
        expected = [arithmetic.below(*pair) for pair in zip(array, bounds, strict=True)]
        assert below(array, bounds).tolist() == expected


def test_a_rule_that_needs_losses_refuses_a_metric_without() -> None:
    evaluations = Evaluations((Evaluation(n=3, risk=0.2, losses=None),))
    with pytest.raises(InvalidArgument, match="mechanism must be one that needs the risk alone"):
        ladders(ParameterFreeLadder(), evaluations).advance(
            evaluations, None, np.random.default_rng(0)
        )


# Bits


@given(n=st.integers(1, 200), rows=st.integers(1, 3), seed=st.integers(0, 99), m=st.integers(1, 4))
def test_bits_do_what_arrays_do(n: int, rows: int, seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 2, (2, rows, n))
    one, two = Bits.pack(a), Bits.pack(b)
    assert (one.unpack() == a).all() and (one.count() == a.sum(axis=1)).all()
    assert ((one ^ two).unpack() == (a ^ b)).all() and ((one & two).unpack() == (a & b)).all()
    assert ((one | two).unpack() == (a | b)).all() and ((~one).count() == n - a.sum(axis=1)).all()
    counts = rng.integers(0, n + 1, rows)
    assert (Bits.first(counts, n).unpack() == (np.arange(n) < counts[:, None])).all()
    columns = rng.integers(0, n, (rows, m))
    turned = a.copy()
    for row, column in zip(np.repeat(np.arange(rows), m), columns.ravel(), strict=True):
        turned[row, column] ^= 1
    assert (one.flip(columns).unpack() == turned).all()
    flags = rng.integers(0, 2, rows).astype(bool)
    assert (one.where(flags, two).unpack() == np.where(flags[:, None], a, b)).all()
    drawn = Bits.random(rng, rows, n)
    assert (Bits.pack(drawn.unpack()).words == drawn.words).all()


@given(votes=st.integers(1, 20), n=st.integers(1, 70), seed=st.integers(0, 99))
def test_votes_are_counted(votes: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cast, counted = rng.integers(0, 2, (votes, 3, n)), rng.integers(0, 2, (votes, 3)).astype(bool)
    tally, everywhere, ties = Tally(3, n), Tally(3, n), Bits.random(rng, 3, n)
    for vote, where in zip(cast, counted, strict=True):
        tally.add(Bits.pack(vote), where)
        everywhere.add(Bits.pack(vote))
    assert (everywhere.counts() == cast.sum(axis=0)).all() and (everywhere.votes == votes).all()
    counts = (cast * counted[:, :, None]).sum(axis=0)
    assert (tally.counts() == counts).all() and (tally.votes == counted.sum(axis=0)).all()
    lead = 2 * counts - counted.sum(axis=0)[:, None]
    expected = np.where(lead == 0, ties.unpack(), lead > 0)
    assert (tally.majority(ties).unpack() == expected).all()


# The engine


def test_a_simulation_is_that_of_single_runs() -> None:
    """The boosting attack in plain arrays, on the labels and guesses that the engine draws."""
    attacker, mechanism = Boosting(guesses=30, improvers=True), ParameterFreeLadder()
    course = simulate(attacker, mechanism, n=200, repetitions=8, seed=3, trace=True)
    hidden, guessing, _ = map(np.random.default_rng, np.random.SeedSequence(3).spawn(1)[0].spawn(3))
    labels = Bits.random(hidden, 8, 200).unpack()
    guesses = [Bits.random(guessing, 8, 200).unpack() for _ in range(30)]
    ties = Bits.random(guessing, 8, 200).unpack()
    for i in range(8):
        losses = np.array([guess[i] != labels[i] for guess in guesses])
        told = run(mechanism, losses, guessing)
        good = np.diff(told, prepend=1.0) < 0
        share = np.mean([guess[i] for guess in guesses], axis=0, where=good[:, None])
        vote = np.where(share == 0.5, ties[i], share > 0.5)
        released = run(mechanism, np.vstack([losses, vote != labels[i]]), guessing)
        assert course.trace is not None and course.trace[:, i].tolist() == released.tolist()
        assert course.believed[i] == course.empirical[i] == released[-1]
        assert course.releases[i] == np.count_nonzero(np.diff(released, prepend=1.0))
    assert course.submissions == 31 and set(course.true) == {0.5}


def test_portions_are_joined_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    draw = Boosting.problem

    def noted(self: Boosting, n: int, repetitions: int, rng: np.random.Generator) -> Any:
        asked.append(repetitions)
        return draw(self, n, repetitions, rng)

    monkeypatch.setattr(Boosting, "problem", noted)
    course = simulate(Boosting(guesses=3), FullDisclosure(), n=2**20, repetitions=9, trace=True)
    assert asked == [4, 4, 1]
    assert course.believed.shape == course.true.shape == (9,) and course.trace is not None
    assert course.trace.shape == (4, 9) and len(set(course.believed)) > 5


def test_the_same_seed_brings_the_same_labels_and_guesses() -> None:
    full, rounded_ = (
        simulate(Boosting(guesses=20), mechanism, n=100, repetitions=5, seed=1)
        for mechanism in (FullDisclosure(), RoundedDisclosure())
    )
    assert full.believed == pytest.approx(rounded_.believed)
    other = simulate(Boosting(guesses=20), FullDisclosure(), n=100, repetitions=5, seed=2)
    assert other.believed.tolist() != full.believed.tolist()


def test_a_mechanism_that_compares_with_training_rows_sees_the_true_risk() -> None:
    course = simulate(Boosting(guesses=30), Thresholdout(0.2, 0.01), n=500, repetitions=5)
    assert abs(course.believed - 0.5).max() < 0.2


def test_one_bit_ladders_tell_no_value() -> None:
    class Listener(Boosting):
        def play(self, seen: Seen, rng: np.random.Generator) -> Any:
            told = yield Submission(Bits.random(rng, seen.repetitions, seen.n))
            assert np.isnan(told.risk).all() and told.improved.all()

    course = simulate(Listener(), OneBitLadder(alpha=0.1), n=50, repetitions=3)
    assert (course.believed == course.empirical).all()


def test_a_real_holdout_answers_as_the_engine_does() -> None:
    attacker = Boosting(guesses=40, improvers=True)
    problem = attacker.problem(300, 1, np.random.default_rng(0))
    holdout = LadderHoldout(
        np.arange(300.0)[:, None],
        problem.labels.unpack()[0],  # type: ignore[attr-defined]
        scoring="accuracy",
        mechanism=ParameterFreeLadder(),
        ledger="memory",
    )
    releases = attack(attacker, holdout, problem.seen, np.random.default_rng(1))
    guesses = np.random.default_rng(1)
    drawn = [Bits.random(guesses, 1, 300) for _ in range(40)]
    losses = np.array([(guess ^ problem.labels).unpack()[0] for guess in drawn])  # type: ignore[attr-defined]
    expected = 1 - run(ParameterFreeLadder(), losses, guesses)
    assert [release.score for release in releases][:40] == pytest.approx(expected.tolist())
    with pytest.raises(InvalidArgument, match="of one repetition"):
        attack(attacker, holdout, Seen(300, 2), np.random.default_rng(1))


# The attacks


def test_the_shifted_majority_gets_more_answers_than_guesses_that_stay() -> None:
    for mechanism in (Ladder(0.01), ParameterFreeLadder(), SimplifiedLadder(0.01)):
        plain = simulate(Boosting(300, improvers=True), mechanism, n=1000, repetitions=20)
        shifted = simulate(ShiftedMajority(300, margin=0.01), mechanism, n=1000, repetitions=20)
        assert shifted.releases.mean() > 2 * plain.releases.mean()
        assert shifted.believed.mean() < shifted.true.mean()
