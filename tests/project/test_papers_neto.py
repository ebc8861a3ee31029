"""Attacks the scripts on Neto et al.: quick forms that differ from literal ones, or do not run."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ruptures
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ladderholdout import LadderHoldout
from ladderholdout.errors import InvalidArgument
from ladderholdout.lab import (
    Analyst,
    Answers,
    Freedman,
    StepForward,
    Submissions,
    attack,
    play,
    simulate,
)
from ladderholdout.lab.screening import Known, PureNoise, change_points
from ladderholdout.mechanisms import (
    BayesBootLadder,
    BayesBootLadderBoot,
    FullDisclosure,
    LadderBoot,
    Mechanism,
    PairedTestLadder,
    run,
)
from ladderholdout.metrics import Evaluation
from tests.support.holdouts import is_repeat

PAPERS = Path(__file__).parents[2] / "benchmarks" / "papers"
SCRIPTS = sorted(path.stem for path in PAPERS.glob("neto_*.py"))
RULES: list[Mechanism] = [
    FullDisclosure(),
    PairedTestLadder(0.01),
    PairedTestLadder(0.15),
    PairedTestLadder(0.5),
    LadderBoot(0.15, 10),
    LadderBoot(0.5, 100),
]


@pytest.fixture(scope="module")
def papers() -> Iterator[Callable[[str], Any]]:
    """Import a module of the scripts' folder by its name, as they import each other."""
    sys.path.insert(0, str(PAPERS))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(PAPERS))


def parts_of(papers: Any, rng: np.random.Generator, n: int = 30, p: int = 12) -> Any:
    data = papers("_neto_data")
    X = rng.standard_normal((3, n, p)) + rng.standard_normal((3, n, 1))
    y = X[:, :, 0] + rng.standard_normal((3, n))
    return data.Parts(
        *(data.Part(data.scaled(a), data.scaled(b)) for a, b in zip(X, y, strict=True))
    )


# Rounds at once


@pytest.mark.parametrize("rule", RULES, ids=repr)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), ties=st.booleans(), cut=st.integers(1, 39))
def test_a_round_at_once_is_what_the_mechanism_releases_one_by_one(
    papers: Any, rule: Any, seed: int, ties: bool, cut: int
) -> None:
    ladders = papers("_neto_ladders")
    rng = np.random.default_rng(seed)
    # A trend, so that there are improvements, and some submissions twice.
    losses = rng.chisquare(1, (40, 12)) * np.linspace(2, 0.5, 40)[:, None]
    if ties:
        losses = np.round(losses, 1)[rng.integers(0, 40, 40)]
    expected = run(rule, losses, np.random.default_rng(1))
    noise = np.random.default_rng(1)
    first = ladders.climb(rule, ladders.Incumbent(), losses[:cut], noise)
    second = ladders.climb(rule, first.incumbent, losses[cut:], noise)
    found = np.concatenate([first.releases, second.releases])
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rule", RULES[1:], ids=repr)
def test_jumps_are_where_the_mechanism_improves(papers: Any, rule: Any) -> None:
    ladders = papers("_neto_ladders")
    losses = np.random.default_rng(0).chisquare(1, (60, 20)) * np.linspace(2, 0.5, 60)[:, None]
    state, expected = rule.start(20), []
    for t, row in enumerate(losses):
        evaluation = Evaluation.from_losses(row)
        state, outcome = rule.advance(state, evaluation, np.random.default_rng(t))
        expected += [t] * outcome.improved
    found = ladders.climb(rule, ladders.Incumbent(), losses, np.random.default_rng(0)).jumps
    assert len(expected) > 1 and found == expected


@given(
    levels=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    lengths=st.lists(st.integers(1, 8), min_size=5, max_size=5),
    changes=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_change_points_are_those_of_ruptures(
    levels: list[float], lengths: list[int], changes: int, seed: int
) -> None:
    signal = np.repeat(levels, lengths[: len(levels)])
    signal = signal + 0.05 * np.random.default_rng(seed).standard_normal(len(signal))
    changes = min(changes, len(signal) - 1)
    found = change_points(signal, changes)
    if not changes:
        assert found == []
        return
    search = ruptures.Binseg(model="l2", jump=1, min_size=1).fit(signal)
    assert found == search.predict(n_bkps=changes)[:-1]


# Regressions at once


def least_squares(parts: Any, features: list[int]) -> Any:
    """What R's lm predicts for the public and the final rows, without an intercept."""
    chosen: list[int] = []
    for feature in features:  # what depends on the features before it gets no coefficient
        X = parts.train.X[:, [*chosen, feature]]
        if np.linalg.matrix_rank(X) == len(chosen) + 1:
            chosen.append(feature)
    solution = np.linalg.lstsq(parts.train.X[:, chosen], parts.train.y, rcond=None)[0]
    return np.vstack([parts.public.X, parts.final.X])[:, chosen] @ solution


@pytest.mark.parametrize("repeated", [False, True])
def test_regressions_at_once_are_single_ones(papers: Any, repeated: bool) -> None:
    models = papers("_neto_models")
    parts = parts_of(papers, np.random.default_rng(0))
    if repeated:  # the same feature in other units
        for part in parts:
            part.X[:, 5] = -2 * part.X[:, 3]
    order = [3, 7, 5, 1]
    nested = models.nested(parts, np.array(order))
    model = models.regression(parts)
    for k, feature in enumerate(order):
        candidates = model.candidates(2 * 30)[:, :, 0]
        for other in set(range(12)) - set(order[:k]):
            assert candidates[other] == pytest.approx(least_squares(parts, [*order[:k], other]))
        model.add(feature)
        assert nested[k] == pytest.approx(least_squares(parts, order[: k + 1]))
        assert model.fitted[:, 0] == pytest.approx(nested[k])


def test_errors_are_of_the_public_and_of_the_final_part(papers: Any) -> None:
    models = papers("_neto_models")
    parts = parts_of(papers, np.random.default_rng(1))
    fitted = np.concatenate([parts.public.y, parts.final.y + 2])[None]
    assert models.errors(parts, fitted)[0] == pytest.approx([0, 4])


# The attacks


def literal_step_forward(
    parts: Any, rule: Mechanism, rounds: int, rng: np.random.Generator
) -> list[tuple[int, list[float]]]:
    """Algorithm 7 with single regressions, single decisions and ruptures."""
    selected: list[int] = []
    remain = list(range(parts.train.X.shape[1]))
    state, found = rule.start(len(parts.public.y)), []
    for _ in range(rounds):
        releases, jumps = [], []
        for place, feature in enumerate(remain):
            fitted = least_squares(parts, [*selected, feature])[: len(parts.public.y)]
            evaluation = Evaluation.from_losses((fitted - parts.public.y) ** 2)
            state, outcome = rule.advance(state, evaluation, rng)
            releases.append(outcome.risk)
            jumps += [place] * outcome.improved
        if not jumps:
            break
        place = jumps[-1]
        if rule.redraws:
            changes = len([jump for jump in jumps if jump > 0])
            search = ruptures.Binseg(model="l2", jump=1, min_size=1).fit(np.array(releases))
            place = search.predict(n_bkps=changes)[-2] if changes else 0
        selected.append(remain.pop(place))
        found.append((place, releases))
    return found


@pytest.mark.parametrize(("seed", "rule"), list(enumerate(RULES[1:])))
def test_the_step_forward_attack_is_algorithm_7(papers: Any, rule: Any, seed: int) -> None:
    attacks = papers("_neto_attacks")
    parts = parts_of(papers, np.random.default_rng(seed))
    expected = literal_step_forward(parts, rule, 4, np.random.default_rng(9))
    course = attacks.step_forward(parts, rule, 4, np.random.default_rng(9))
    assert course.chosen == [place for place, _ in expected]
    for releases, (_, others) in zip(course.releases, expected, strict=False):
        assert releases == pytest.approx(np.array(others))


def problem_of(parts: Any) -> PureNoise:
    """The same data for the library's analyst."""
    known = Known(parts.train.X, parts.train.y[None], parts.public.X)
    return PureNoise(known, parts.public.y[None], correlation=0.5)


@pytest.mark.parametrize(("seed", "rule"), list(enumerate(RULES[1:])))
def test_the_analyst_in_step_is_the_attack_on_whole_rounds(
    papers: Any, rule: Any, seed: int
) -> None:
    parts = parts_of(papers, np.random.default_rng(seed))
    expected = papers("_neto_attacks").step_forward(parts, rule, 4, np.random.default_rng(9))
    analyst = StepForward(features=12, rounds=4, change_points=rule.redraws)
    rng = np.random.default_rng(9)
    course = play(analyst, rule, problem_of(parts), rng, rng, trace=True)
    # The last submission is the model that was chosen, once more.
    releases = np.concatenate(expected.releases)
    assert course.trace is not None
    assert course.trace[:-1, 0] == pytest.approx(releases)


def test_repetitions_in_step_end_their_attacks_by_themselves() -> None:
    """Some of the attacks end early; each has to be what it is alone."""
    analyst, rule = StepForward(features=30, rounds=4), PairedTestLadder(0.5)
    rng = np.random.default_rng(3)
    together = analyst.problem(40, 12, rng)
    course = play(analyst, rule, together, rng, rng, trace=True)
    assert course.trace is not None
    lengths = set()
    for r in range(12):
        known = Known(
            together.known.train, together.known.responses[r : r + 1], together.known.holdout
        )
        alone = PureNoise(known, together.responses[r : r + 1], together.correlation)
        single = play(analyst, rule, alone, rng, rng, trace=True)
        assert single.trace is not None
        lengths.add(single.submissions)
        assert course.trace[: single.submissions - 1, r].tolist() == pytest.approx(
            single.trace[:-1, 0].tolist()
        )
        assert course.believed[r] == pytest.approx(single.believed[0])
        assert course.true[r] == pytest.approx(single.true[0])
    assert len(lengths) > 2


def test_freedmans_analyst_submits_the_regression_of_the_attack(papers: Any) -> None:
    attacks, ladders = papers("_neto_attacks"), papers("_neto_ladders")
    for seed, rule in itertools.product(range(3), RULES[:4]):
        parts = parts_of(papers, np.random.default_rng(seed))
        losses, noise = attacks.univariate_losses(parts), np.random.default_rng(0)
        releases = ladders.climb(rule, ladders.Incumbent(), losses, noise).releases
        expected = attacks.freedman(parts, releases, top=4)[-1, 0]
        told, submitted = played(Freedman(features=12, top=4), rule, problem_of(parts))
        assert told[:-1] == pytest.approx(releases.tolist())
        assert submitted[-1] == pytest.approx(expected)


def played(
    analyst: Analyst, rule: Mechanism, problem: PureNoise
) -> tuple[list[float], list[float]]:
    """Play one repetition by hand; return what was told, and the risk of each submission."""
    rng, told, submitted = np.random.default_rng(0), [], []
    state, generator = rule.start(problem.seen.n), analyst.play(problem.seen, rng)
    submission = next(generator)
    try:
        while True:
            evaluation = Evaluation.from_losses(problem.losses(submission)[0])
            state, outcome = rule.advance(state, evaluation, rng)
            told.append(outcome.risk)
            submitted.append(evaluation.risk)
            answer = Answers(np.array([outcome.risk]), np.array([outcome.improved]))
            submission = generator.send(answer)
    except StopIteration:
        return told, submitted


def test_the_attacks_overfit_full_disclosure_and_the_ladder_stands_against_the_first() -> None:
    """Neto's Figures 2 and 4, in small: means of 40, standard errors below .005 (fixed seed)."""
    first, second = Freedman(features=100, top=10), StepForward(features=100, rounds=5)
    bias = {
        (analyst.name, rule.name): simulate(analyst, rule, n=100, repetitions=40).bias.mean()
        for analyst in (first, second)
        for rule in (FullDisclosure(), PairedTestLadder(0.01))
    }
    assert bias["Freedman", "FullDisclosure"] > 0.05
    assert bias["Freedman", "PairedTestLadder"] < 0.02
    assert bias["StepForward", "FullDisclosure"] > 2 * bias["StepForward", "PairedTestLadder"] > 0


def test_a_real_holdout_is_attacked(tmp_path: Path) -> None:
    analyst, rng = StepForward(features=10, rounds=2), np.random.default_rng(0)
    problem = analyst.problem(80, 1, rng)
    holdout = LadderHoldout(
        problem.known.holdout,
        problem.responses[0],
        scoring="neg_mean_squared_error",
        mechanism=PairedTestLadder(0.15),
        ledger="memory",
    )
    releases = attack(analyst, holdout, problem.seen, rng)
    assert len(releases) == 10 + 9 + 1
    # The chosen model had been submitted in the last round.
    assert is_repeat(holdout, releases[-1])


def test_the_true_risk_is_that_of_fresh_rows() -> None:
    """20,000 fresh rows, seed fixed; 5 standard errors: false alarms below 1e-6 each."""
    rng = np.random.default_rng(0)
    problem = PureNoise.drawn(30, 2, 6, 0.5, rng)
    linear = problem.known.fit(np.array([[0, 1, 3], [5, 2, 5]]))
    fresh = PureNoise.drawn(20_000, 1, 6, 0.5, rng)
    model = np.zeros((2, 6))
    np.add.at(model, (np.arange(2)[:, None], linear.features), linear.coefficients)
    losses = (fresh.known.holdout @ model.T - fresh.responses.T) ** 2
    errors = losses.std(axis=0) / np.sqrt(len(losses))
    expected = problem.true_risk(Submissions(problem.known.predict(linear), model=linear))
    assert (np.abs(losses.mean(axis=0) - expected) < 5 * errors).all()


def test_a_fit_is_the_least_squares_solution_and_a_feature_named_twice_counts_once() -> None:
    problem = PureNoise.drawn(20, 1, 5, 0.3, np.random.default_rng(0))
    known = problem.known
    for features in ([2], [0, 4], [3, 1, 3], [0, 1, 2, 3, 4]):
        own = sorted(set(features))
        solution = np.linalg.lstsq(known.train[:, own], known.responses[0], rcond=None)[0]
        found = known.predict(known.fit(np.array([features])))
        assert found[0] == pytest.approx(known.holdout[:, own] @ solution)


@pytest.mark.parametrize("settings", [{"rounds": 0}, {"features": 0}, {"correlation": 1.0}])
def test_settings_that_are_none_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        StepForward(**settings)
    for name in ("change_points", "best"):
        with pytest.raises(InvalidArgument, match=name):
            StepForward(**{name: "yes"})
    with pytest.raises(InvalidArgument, match="top"):
        Freedman(top=0)


# Data, and the scripts


def test_parts_are_scaled_alone_and_permuting_keeps_features_and_responses(papers: Any) -> None:
    data = papers("_neto_data")
    for name, rows, p in (
        ("simulated", 628, 300),
        ("breast cancer", 569, 300),
        ("small", 120, 1000),
    ):
        fixed = data.fixed_split(name)
        assert sum(len(part.y) for part in fixed) == rows
        mixed = data.permuted(fixed, np.random.default_rng(0))
        for part, other in zip(fixed, mixed, strict=True):
            assert part.X.shape == (len(part.y), p) and np.linalg.matrix_rank(part.X) > 30
            assert np.abs(part.X.mean(axis=0)).max() < 1e-9
            assert part.X.std(axis=0, ddof=1) == pytest.approx(np.ones(p))
            assert part.y.var(ddof=1) == pytest.approx(1)
            assert other.X is part.X and (other.y != part.y).any()
            assert sorted(other.y) == pytest.approx(sorted(part.y))


def test_concordance_is_that_of_the_metric(papers: Any) -> None:
    concordance = papers("_neto_concordance")
    rng = np.random.default_rng(0)
    y, fitted = rng.standard_normal(50), rng.standard_normal((3, 50)) + 0.3
    metric = concordance.METRIC
    expected = [metric.to_score(metric.evaluate(y, row).risk) for row in fitted]
    assert concordance.concordance(y, fitted) == pytest.approx(expected)


def test_releases_of_the_spread_are_those_of_the_mechanism(papers: Any) -> None:
    """Means of 20 resamples; Kolmogorov and Smirnov, seed fixed, false alarms 1e-6."""
    spread, rng = papers("_neto_spread"), np.random.default_rng(0)
    losses = rng.chisquare(1, 25)
    single = run(LadderBoot(0.15, 20), np.tile(losses, (1500, 1)), rng)
    assert stats.ks_2samp(spread.releases(losses, 20, 1500, rng), single).pvalue > 1e-6


# One of each kind of attack, and the one that the library has no rule for; `.ci/run` runs every
# script with --quick.
IN_THE_GATE = {"neto_figure2", "neto_figure4", "neto_figureS9"}


@pytest.mark.long
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(name, marks=[pytest.mark.nightly] * (name not in IN_THE_GATE))
        for name in SCRIPTS
    ],
)
def test_each_script_prints_and_draws(
    papers: Any, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name in [script, "_neto_freedman", "_neto_step_forward", "_neto_concordance"]:
        # Two repetitions on one data set.
        for setting, value in (("repetitions", lambda *_: 2), ("DATA", ("breast cancer",))):
            if hasattr(papers(name), setting):
                monkeypatch.setattr(papers(name), setting, value)
    if script in ("neto_figureS9", "neto_figureS10"):  # a few draws will do
        monkeypatch.setattr(papers(script), "LADDERS", {"one": BayesBootLadder(1, 50)})
        monkeypatch.setattr(papers(script), "BOOTS", {"two": BayesBootLadderBoot(1, 50, 10)})
    papers(script).main(["--quick", "--jobs", "1", "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) > 3 and "nan" not in shown
    assert (tmp_path / f"{script}.png").stat().st_size > 5000


def test_all_figures_have_a_script() -> None:
    figures = [*range(1, 7), *(f"S{number}" for number in range(1, 14))]
    assert sorted(f"neto_figure{figure}" for figure in figures) == SCRIPTS


def test_without_values_the_last_improvers_count_for_the_best() -> None:
    """Improvements alone tell as much as the scores of a ladder: there ties go the same way."""
    found = [
        simulate(
            Freedman(features=40, top=8), PairedTestLadder(0.2),
            n=60, repetitions=20, trace=True, show=show,
        )
        for show in ("scores", "improvements")
    ]  # fmt: skip
    assert found[0].true.tolist() == found[1].true.tolist()
