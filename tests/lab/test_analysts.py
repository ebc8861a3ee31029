"""Attacks the attacks: ladders in step that differ from single ones, and votes that miscount."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import InvalidArgument
from ladderholdout.lab import (
    ANALYSTS,
    Analyst,
    Answers,
    Averaging,
    Boosting,
    Enumeration,
    ForwardSelection,
    Freedman,
    HillClimb,
    KnobClimb,
    LogLossOracle,
    ManyAccounts,
    RandomSearch,
    RowByRow,
    ScoreSum,
    Seen,
    ShiftedMajority,
    StepForward,
    Submissions,
    TwoAccounts,
    WeightedVote,
    attack,
    engine,
    play,
    simulate,
)
from ladderholdout.lab.bits import Bits, Tally
from ladderholdout.lab.honest import model_of
from ladderholdout.lab.lockstep import Evaluations, below, ladders, losses_of, rounded
from ladderholdout.mechanisms import (
    MECHANISMS,
    BayesBootLadder,
    FullDisclosure,
    GaussianLadder,
    Ladder,
    LadderBoot,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RankLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
    Thresholdout,
    arithmetic,
    mechanism_from,
    run,
)
from ladderholdout.metrics import Evaluation
from tests.support.commands import CliRunner
from tests.support.holdouts import is_repeat

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


@settings(max_examples=40)
@given(losses=matrices())
def test_ladders_in_step_are_the_single_ladders(losses: Any) -> None:
    rng = np.random.default_rng(0)
    for mechanism in DETERMINISTIC:
        expected = [run(mechanism, part, rng).tolist() for part in losses]
        assert in_step(mechanism, losses, rng).tolist() == expected, mechanism


@pytest.mark.parametrize("mechanism", [*DETERMINISTIC, *NOISY], ids=repr)
def test_one_ladder_in_step_uses_the_generator_as_a_single_one(mechanism: Mechanism) -> None:
    rng = np.random.default_rng(5)
    losses = rng.integers(0, 2, (1, 60, 80))
    losses[0, 0] = 1  # a first submission of risk 1
    expected = run(mechanism, losses[0], np.random.default_rng(1))
    found = in_step(mechanism, losses, np.random.default_rng(1))[0]
    assert found.tolist() == expected.tolist()


class Streams:
    """A generator for each ladder, which go in step as the ladders do."""

    def __init__(self, seeds: range) -> None:
        self.each = [np.random.default_rng(seed) for seed in seeds]

    def random(self, size: int) -> Any:
        assert size == len(self.each)
        return np.array([one.random() for one in self.each])


@pytest.mark.parametrize("mechanism", NOISY[:2], ids=repr)
def test_noisy_ladders_in_step_are_the_single_ladders_bit_for_bit(mechanism: Mechanism) -> None:
    losses = np.random.default_rng(6).random((4, 300, 20)) < np.linspace(0.6, 0.2, 300)[:, None]
    found = in_step(mechanism, losses.astype(int), Streams(range(4)))  # type: ignore[arg-type]
    for seed in range(4):
        expected = run(mechanism, losses[seed], np.random.default_rng(seed))
        assert found[seed].tolist() == expected.tolist()
        assert len(np.unique(expected)) > 2


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
    cast, counted = rng.integers(0, 2, (votes, 9, n)), rng.random((votes, 9)) < rng.random()
    tally, everywhere, ties = Tally(9, n), Tally(9, n), Bits.random(rng, 9, n)
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


def test_improvements_alone_tell_no_value() -> None:
    class Listener(Boosting):
        def play(self, seen: Seen, rng: np.random.Generator) -> Any:
            answers = yield Submissions(Bits.random(rng, seen.repetitions, seen.n))
            assert np.isnan(answers.risk).all() and answers.improved.all()

    rule = PairedTestLadder(alpha=0.1)
    course = simulate(Listener(), rule, n=50, repetitions=3, show="improvements")
    assert (course.believed == course.empirical).all()


def test_a_real_holdout_answers_as_the_engine_does() -> None:
    attacker, mechanism = Enumeration(120), ParameterFreeLadder()
    problem = attacker.problem(300, 1, np.random.default_rng(0))
    holdout = LadderHoldout(
        np.arange(300.0)[:, None],
        problem.labels.unpack()[0],  # type: ignore[attr-defined]
        scoring="accuracy",
        mechanism=mechanism,
        ledger="memory",
    )
    releases = attack(attacker, holdout, problem.seen, np.random.default_rng(1))
    guessing, noise = np.random.default_rng(1), np.random.default_rng(2)
    course = play(attacker, mechanism, problem, guessing, noise, trace=True)
    assert course.trace is not None
    expected = 1 - course.trace[:, 0]
    assert [release.score for release in releases] == pytest.approx(expected.tolist())
    assert len(set(expected)) > 10
    with pytest.raises(InvalidArgument, match="of one repetition"):
        attack(attacker, holdout, Seen(300, 2), np.random.default_rng(1))


# The attacks


def test_every_analyst_plays_against_every_mechanism() -> None:
    """Nothing is refused but losses without a range, and nobody knows a coin flip."""
    small: list[Analyst] = [
        Boosting(6), Boosting(6, improvers=True), Boosting(6, opposites=True), WeightedVote(6),
        WeightedVote(6, improvers=True), ManyAccounts(6), ShiftedMajority(6), Enumeration(6),
        HillClimb(6, changes=3), TwoAccounts(6), Averaging(6), LogLossOracle(), RandomSearch(6),
        KnobClimb(6), ForwardSelection(6, features=3), ScoreSum(6), RowByRow(),
        Freedman(features=6, top=2), StepForward(features=6, rounds=2, change_points=True),
    ]  # fmt: skip
    assert {type(analyst) for analyst in small} == set(ANALYSTS.values())
    for analyst in small:
        for name, kind in MECHANISMS.items():
            if kind.needs_losses and isinstance(analyst, ScoreSum | RowByRow):
                continue
            given = {
                "alpha": 0.2,
                "places": 2,
                "step": 0.05,
                "noise": 0.05,
                "odds": 3,
                "n_posterior": 50,
            }
            known = {key: given[key] for key in given if key in kind.__dataclass_fields__}
            # Log losses and squared errors have no range, which a gate needs.
            if kind.flags_alone and isinstance(analyst, LogLossOracle | Freedman | StepForward):
                with pytest.raises(InvalidArgument, match="in a range that is 1 wide"):
                    simulate(analyst, mechanism_from(name, known), n=30, repetitions=2)
                continue
            course = simulate(analyst, mechanism_from(name, known), n=30, repetitions=2)
            assert course.believed.shape == course.true.shape == course.releases.shape == (2,)
            assert np.isfinite(course.empirical).all() and np.isfinite(course.true).all()


def test_votes_of_opposites_are_the_majority_attack_of_the_reference() -> None:
    """Hardt 2017, Appendix B, transcribed: 60 runs of each, compared by ranks."""
    rng, found = np.random.default_rng(0), []
    for _ in range(60):
        hidden = 2.0 * rng.integers(0, 2, 500) - 1.0
        queries = 2.0 * rng.integers(0, 2, (200, 500)) - 1.0
        answers = queries.dot(hidden) / 500
        weighted = np.vstack([queries[answers > 0.0], -1.0 * queries[answers <= 0.0]])
        final = np.where(weighted.T.dot(np.ones(200)) < 0.0, -1.0, 1.0)
        found.append(np.mean(final != hidden))
    for analyst, mechanism in (
        (Boosting(200, opposites=True), FullDisclosure()),
        (ManyAccounts(200), ParameterFreeLadder()),
    ):
        ours = simulate(analyst, mechanism, n=500, repetitions=60).believed
        assert stats.mannwhitneyu(found, ours).pvalue > FALSE_ALARM
        assert ours.mean() < 0.35


def test_the_shifted_majority_gets_more_answers_than_guesses_that_stay() -> None:
    for mechanism, show, leaked in (
        (Ladder(0.01), "scores", 0.03),
        (ParameterFreeLadder(), "scores", 0.03),
        (PairedTestLadder(0.3), "improvements", 0.005),
    ):
        searches = {"n": 1000, "repetitions": 20, "show": show}
        plain = simulate(Boosting(300, improvers=True), mechanism, **searches)
        shifted = simulate(ShiftedMajority(300, margin=0.01), mechanism, **searches)
        assert shifted.releases.mean() > 2 * plain.releases.mean()
        assert shifted.bias.mean() > leaked
    # The last one has to count for himself what stands, and comes as far with the easy rows.
    assert shifted.submissions == 301


def test_the_easy_rows_are_right_in_the_end() -> None:
    analyst = ShiftedMajority(300, margin=0.01)
    course = simulate(analyst, Ladder(0.01), n=1000, repetitions=5)
    assert (course.true == 0.25).all() and (course.believed < 0.25).all()


def test_single_rows_tie_on_the_parameter_free_ladder_and_pairs_do_not() -> None:
    single, pairs = (
        simulate(Enumeration(800, changes), ParameterFreeLadder(), n=400, repetitions=10)
        for changes in (1, 2)
    )
    assert (single.releases == 1).all()
    assert pairs.believed.max() < 0.25 and pairs.releases.min() > 40
    full = simulate(Enumeration(401, 1), FullDisclosure(), n=400, repetitions=10)
    assert (full.believed == 0).all()


def test_a_changed_label_is_another_label() -> None:
    """After one change of every row at once, nothing that was guessed stands."""
    climb = HillClimb(submissions=2, changes=1, classes=3)
    seen = Seen(1, 50)
    play = climb.play(seen, np.random.default_rng(0))
    first = next(play).predictions
    again = play.send(Answers(np.full(50, 0.5), np.full(50, True))).predictions
    assert (first != again).all() and set(again.ravel()) == {0, 1, 2}


def test_two_accounts_read_all_labels_off_exact_ranks_and_none_off_coarse_ones() -> None:
    exact = simulate(TwoAccounts(151), SimplifiedLadder(1 / 150), n=150, repetitions=5)
    assert (exact.empirical == 0).all() and exact.submissions == 151
    coarse = simulate(TwoAccounts(151), Ladder(0.1), n=150, repetitions=5)
    assert coarse.empirical.min() > 0.3


def test_accounts_share_the_places_of_a_ladder_per_rank() -> None:
    """One state for all: many accounts are told few risks, where a ladder each tells all."""
    crowd = ManyAccounts(150)
    each = simulate(crowd, SimplifiedLadder(1 / 150), n=150, repetitions=5)
    for places in (1, 2):
        ranks = simulate(crowd, RankLadder(1 / 150, places=places), n=150, repetitions=5)
        assert (each.releases == 151).all() and (ranks.releases < 30).all()
        assert (ranks.believed > each.believed).all()


def test_two_accounts_climb_the_same_on_real_holdouts() -> None:
    attacker, rng = TwoAccounts(41), np.random.default_rng(0)
    labels, X = rng.integers(0, 2, 40), np.arange(40.0)[:, None]
    handles = [
        LadderHoldout(
            X, labels, scoring="accuracy", name="ranked", account=account, ledger="memory",
            mechanism=SimplifiedLadder(1 / 40),
        )
        for account in ("A", "B")
    ]  # fmt: skip
    releases = attack(attacker, handles, Seen(40, 1), rng)
    assert max(release.score or 0.0 for release in releases) == 1.0
    with pytest.raises(InvalidArgument, match="2 handles, one for each account"):
        attack(attacker, handles[0], Seen(40, 1), rng)


@pytest.mark.long
def test_averaging_over_repeats_breaks_ladder_boot_but_not_the_guard() -> None:
    """The error of what is believed, in 300 simulations and on 20 real holdouts.

    Its variance falls by the number of repeats; before the guard all answers are the first.
    By the distribution of a ratio of variances, each bound has a false-alarm rate of 1e-6.
    """
    mechanism, n, repeats = LadderBoot(0.15, n_bootstrap=1), 100, 20
    once, often = (
        simulate(Averaging(count), mechanism, n, repetitions=300) for count in (1, repeats)
    )
    errors = [course.believed - course.empirical for course in (once, often)]
    ratio = float(np.var(errors[0]) / np.var(errors[1])) / repeats
    assert stats.f.ppf(FALSE_ALARM, 299, 299) < ratio < stats.f.isf(FALSE_ALARM, 299, 299)

    guarded, rng = [], np.random.default_rng(1)
    for _ in range(20):
        labels = rng.integers(0, 2, n)
        holdout = LadderHoldout(
            rng.random((n, 1)), labels, scoring="accuracy", mechanism=mechanism, ledger="memory",
            overlap="ignore",
        )  # fmt: skip
        seed = int(rng.integers(2**32))
        releases = attack(Averaging(repeats), holdout, Seen(n, 1), np.random.default_rng(seed))
        guess = Bits.random(np.random.default_rng(seed), 1, n).unpack()[0]
        assert len({release.score for release in releases}) == 1
        again = [is_repeat(holdout, release) for release in releases]
        assert again == [False] + [True] * (repeats - 1)
        guarded.append(float(np.mean(guess == labels)) - np.mean([one.score for one in releases]))
    # The noise of the guard is drawn from a secret, so this cannot be fixed by a seed.
    ratio = float(np.var(errors[0]) / np.var(guarded))
    assert stats.f.ppf(FALSE_ALARM, 299, 19) < ratio < stats.f.isf(FALSE_ALARM, 299, 19)


def test_the_log_loss_oracle_reads_every_label_that_is_told_and_no_other() -> None:
    for mechanism, precision in (
        (FullDisclosure(), 1e-9), (RoundedDisclosure(1e-5), 1e-5), (RoundedDisclosure(1e-4), 1e-4),
    ):  # fmt: skip
        course = simulate(LogLossOracle(precision), mechanism, n=300, repetitions=10)
        assert course.believed == pytest.approx(np.full(10, -math.log(0.999)), abs=1e-4)
    assert simulate(LogLossOracle(1e-9), FullDisclosure(), n=300, repetitions=2).submissions < 15
    blind = simulate(LogLossOracle(), ParameterFreeLadder(), n=300, repetitions=10)
    assert blind.believed.min() > 0.6


def test_the_true_risk_of_a_linear_model_is_that_of_fresh_rows() -> None:
    """20,000 rows each: five standard errors, a false alarm in 600,000."""
    analyst = KnobClimb(features=6, least=0.1)
    problem = analyst.problem(20_000, 3, np.random.default_rng(0))
    submission = model_of(problem.seen, problem.seen.known.weights)
    losses = losses_of(problem.losses(submission))
    true = problem.true_risk(submission)
    assert abs(losses.risks - true).max() < 5 * math.sqrt(0.25 / 20_000)
    assert (true > 0.1).all() and (true < 0.3).all()


@pytest.mark.long
def test_areas_are_summed_up_and_climbed_row_by_row() -> None:
    """On a plain ladder a single row is too little; the Bayesian bootstrap is sure of it."""
    told = simulate(ScoreSum(100), FullDisclosure(), n=200, repetitions=10)
    held = simulate(ScoreSum(100, improvers=True), Ladder(0.03), n=200, repetitions=10)
    assert told.believed.mean() < 0.3 < 0.4 < held.believed.mean()
    sure, plain = (
        simulate(RowByRow(), mechanism, n=40, repetitions=5)
        for mechanism in (BayesBootLadder(odds=99), Ladder(0.1))
    )
    assert sure.believed.max() < 0.1 and plain.believed.min() > 0.2


def test_honest_searchers_find_better_models_and_believe_a_little_too_much() -> None:
    for search in (KnobClimb(200, features=30), RandomSearch(200, features=30)):
        course = simulate(search, FullDisclosure(), n=2000, repetitions=30, trace=True)
        first = simulate(type(search)(1, features=30), FullDisclosure(), n=2000, repetitions=30)
        assert course.true.mean() < first.true.mean() - 0.003
        assert 0 < course.bias.mean() < 0.03 and course.trace is not None
        assert (np.diff(course.trace, axis=0) <= 0).all()
    search = ForwardSelection(60, features=10)
    forward = simulate(search, FullDisclosure(), n=2000, repetitions=5, trace=True)
    assert forward.submissions <= 60 and forward.true.max() < 0.35
    # A round without an improvement is the last: ten rounds would be 55 submissions.
    strict = simulate(search, PairedTestLadder(0.001), n=300, repetitions=1)
    assert strict.submissions < 55
    # Some end sooner, and stand where they ended.
    assert forward.trace is not None and (forward.trace[-1] == forward.believed).all()


def test_portions_are_smaller_where_more_is_kept() -> None:
    for analyst, portion in (
        (Boosting(9), 4194), (ManyAccounts(9999), 26), (KnobClimb(), 419), (TwoAccounts(), 1),
    ):  # fmt: skip
        assert engine._portion(analyst, 1000) == portion
    assert engine._portion(KnobClimb(features=10**6), 10**6) == 1


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Boosting(0), "guesses"),
        (lambda: ManyAccounts(2.5), "guesses"),
        (lambda: ShiftedMajority(easy=1.0), "easy"),
        (lambda: ShiftedMajority(margin=0.0), "margin"),
        (lambda: Enumeration(changes=0), "changes"),
        (lambda: HillClimb(classes=1), "classes"),
        (lambda: HillClimb(classes="five"), "classes"),
        (lambda: TwoAccounts(True), "submissions"),
        (lambda: Averaging(-1), "repeats"),
        (lambda: LogLossOracle(2.0), "precision"),
        (lambda: KnobClimb(least=0.5), "least"),
        (lambda: simulate(Boosting(), FullDisclosure(), 0, 1), "n"),
        (lambda: simulate(Boosting(), FullDisclosure(), 10, 0), "repetitions"),
        (lambda: simulate(Boosting(), FullDisclosure(), 10, 1, seed=-1), "seed"),
    ],
)
def test_settings_are_checked(make: Any, named: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{named} must be"):
        make()


# The commands


def test_the_command_prints_the_scores_of_a_simulation(tmp_path: Path) -> None:
    words = ["Boosting(30)", "--mechanism", "FullDisclosure", "--mechanism", "Ladder(.01)"]
    words += ["--rows", "100", "--repetitions", "5", "--seed", "3"]
    shown = CliRunner().invoke(app, ["attack", *words], env={"COLUMNS": "120"})
    assert shown.exit_code == 0
    course = simulate(Boosting(30), FullDisclosure(), n=100, repetitions=5, seed=3)
    error = course.believed.std(ddof=1) / math.sqrt(5)
    assert f"31.0  {1 - course.believed.mean():.4f} ({error:.4f})" in shown.output
    assert shown.output.startswith("accuracy  ")

    picture = tmp_path / "course.svg"
    asked = ["attack", *words, "--json", "--plot", str(picture)]
    found = json.loads(CliRunner().invoke(app, asked).output)
    assert found["analyst"].startswith("Boosting(guesses=30") and found["repetitions"] == 5
    assert found["metric"] == "accuracy"
    assert found["matches"][0]["believed_score"] == {
        "mean": pytest.approx(1 - course.believed.mean()), "error": pytest.approx(error)
    }  # fmt: skip
    assert picture.read_text().count("FullDisclosure") >= 1
    single = CliRunner().invoke(app, ["attack", "Averaging(2)", "--repetitions", "1", "--json"])
    assert json.loads(single.output)["matches"][0]["true_score"] == {"mean": 0.5, "error": None}


@pytest.mark.parametrize(
    ("analyst", "metric", "rule"),
    [
        ("Boosting(20)", "accuracy", "PricedLadder(weight=0.7)"),
        ("LogLossOracle()", "neg_log_loss", "ParameterFreeLadder()"),
        ("Freedman(features=20, top=5)", "neg_mean_squared_error", "ParameterFreeLadder()"),
        ("ScoreSum(5)", "roc_auc", "BayesBootLadder(odds=5.66"),
    ],
)
def test_the_command_shows_the_analysts_metric_and_takes_its_default_rule(
    analyst: str, metric: str, rule: str
) -> None:
    """The rule is that of a `LadderHoldout` to which none is stated; greater scores are better."""
    words = ["attack", analyst, "--rows", "40", "--repetitions", "2"]
    head, line = CliRunner().invoke(app, words).output.splitlines()
    assert head.split() == [metric, "releases", "believed", "true", "bias"]
    assert line.startswith(rule)
    X, y = np.arange(40.0)[:, None], np.arange(40) % 2
    holdout = LadderHoldout(X, y, scoring=metric, ledger="memory")
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    match = found["matches"][0]
    assert (found["metric"], match["mechanism"]) == (metric, repr(holdout.rules.mechanism))
    means = {name: match[name]["mean"] for name in ("believed_score", "true_score", "bias")}
    assert means["bias"] == pytest.approx(means["believed_score"] - means["true_score"])
    assert (means["true_score"] < 0) == metric.startswith("neg_")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Boost"], "ANALYST must be one of Boosting, WeightedVote"),
        (["Boosting(guesses=)"], "such as"),
        (["Boosting(patience=3)"], "such as"),
        (["Boosting(guesses=0)"], "guesses must be a whole number"),
        (["Boosting", "--mechanism", "Ladder"], "step"),
        (["Boosting", "--plot", "picture.txt"], "--plot must be a file ending in"),
        (["Boosting", "--seed", "-1"], "seed must be"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(words: list[str], said: str) -> None:
    shown = CliRunner().invoke(app, ["attack", *words])
    assert shown.exit_code == 1 and said in shown.stderr and "Traceback" not in shown.stderr
