"""Attacks the count of safe submissions: attacks that miss, labels that leak in, wrong verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from numpy.typing import NDArray
from scipy.stats import ttest_1samp
from sklearn.linear_model import LinearRegression

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import InvalidArgument
from ladderholdout.lab.rehearsal import (
    Attack,
    RowSource,
    SafeSubmissions,
    _attack,
    _grid,
    _submissions,
    optimism,
    safe_submissions,
)
from ladderholdout.lab.screening import ForwardRegression
from ladderholdout.mechanisms import (
    FullDisclosure,
    Ladder,
    LadderRules,
    PairedTestLadder,
    ParameterFreeLadder,
    ShakyLadder,
    Thresholdout,
)
from ladderholdout.metrics import METRICS, get_metric
from tests.support.commands import CliRunner

ROWS, FEATURES = 80, 24


def table(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(ROWS, FEATURES)) @ rng.normal(size=(FEATURES, FEATURES))
    return mixed, rng.normal(size=ROWS)


def source(metric: str, y: NDArray[Any] | None = None) -> RowSource:
    X, values = table()
    y = values if y is None else y
    found = get_metric(metric)
    return RowSource(X, y, found, found.classes_of(y))


# -- the attack -------------------------------------------------------------------------------


def test_a_candidate_is_the_least_squares_fit_with_one_feature_more() -> None:
    rng = np.random.default_rng(1)
    train, rows = rng.normal(size=(40, 6)), rng.normal(size=(15, 6))
    responses = rng.normal(size=(40, 2))
    model, selected = ForwardRegression(train, responses, rows), []
    for feature in (4, 0, 5):
        for candidate in set(range(6)) - set(selected):
            chosen = [*selected, candidate]
            fitted = LinearRegression().fit(train[:, chosen], responses).predict(rows[:, chosen])
            assert model.candidate(candidate) == pytest.approx(fitted, abs=1e-9)
        selected.append(feature)
        model.add(feature)


def mixed(rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
    """Three features, a mixture of the first two, a constant, and the first one again."""
    X = rng.normal(size=(rows, 3))
    return np.column_stack([X, X[:, 0] - 2 * X[:, 1] / 3, np.ones(rows), 7 * X[:, 0]])


def test_a_feature_that_says_nothing_new_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        model = ForwardRegression(mixed(rng, 30), rng.normal(size=(30, 1)), mixed(rng, 25))
        for feature in (0, 1):
            model.add(feature)
        before = model.fitted
        for feature in (3, 4, 5, 0):
            assert model.candidate(feature) == pytest.approx(before, abs=1e-9)
            model.add(feature)
        assert np.ptp(model.candidate(2) - before) > 1e-3


def literal(
    train: NDArray[Any], y: NDArray[Any], rows: NDArray[Any], targets: NDArray[Any], rounds: int
) -> list[int]:
    """Algorithm 7 without its line 5, word by word, on a ladder with a step."""
    remain, selected, standing = list(range(train.shape[1])), [], np.inf
    for _ in range(rounds):
        last = None
        for feature in remain:
            chosen = [*selected, feature]
            fit = LinearRegression().fit(train[:, chosen], y).predict(rows[:, chosen])
            risk = float(np.mean((fit - targets) ** 2))
            if risk < standing - 0.02:
                standing, last = round(risk / 0.02) * 0.02, feature
        if last is None:
            break
        selected.append(last)
        remain.remove(last)
    return selected


def test_the_attack_is_algorithm_7() -> None:
    lengths = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        train, rows = rng.normal(size=(30, 12)), rng.normal(size=(25, 12))
        y, targets = rng.normal(size=30), rng.normal(size=25)
        held = RowSource(train, y, get_metric("neg_mean_squared_error"), None)
        model = ForwardRegression(train, y[:, None], rows)
        rules = LadderRules(Ladder(step=0.02))
        found = _attack(model, held, rules, targets, 12, 4, np.random.default_rng(0))
        assert found == literal(train, y, rows, targets, 4)
        lengths.add(len(found))
    assert len(lengths) > 1  # some attacks end early


def test_full_disclosure_shows_the_best_of_each_round() -> None:
    rng = np.random.default_rng(0)
    train, rows, y, targets = (rng.normal(size=shape) for shape in ((30, 8), (20, 8), 30, 20))
    held = RowSource(train, y, get_metric("neg_mean_squared_error"), None)
    rules = LadderRules(FullDisclosure())
    model = ForwardRegression(train, y[:, None], rows)
    first = _attack(model, held, rules, targets, 8, 1, rng)
    fits = [LinearRegression().fit(train[:, [f]], y).predict(rows[:, [f]]) for f in range(8)]
    assert first == [int(np.argmin([np.mean((fit - targets) ** 2) for fit in fits]))]


def test_rows_and_labels_are_drawn_apart() -> None:
    """In the source the label is the first feature; in what is drawn they do not agree."""
    X = np.arange(1000.0)[:, None]
    held = RowSource(X, X[:, 0], get_metric("r2"), None)
    drawn = held.draw(4000, np.array([0]), np.random.default_rng(0))
    # 4 standard errors of a correlation of independent rows: 6 in 100,000.
    assert abs(np.corrcoef(drawn.X[:, 0], drawn.y)[0, 1]) < 4 / np.sqrt(4000)


def test_without_any_choice_there_is_no_optimism() -> None:
    """One feature, one submission: the holdout is not used to choose anything."""
    held = source("neg_mean_squared_error")
    rules = LadderRules(FullDisclosure(), unit=None)
    rngs = map(np.random.default_rng, np.random.SeedSequence(0).spawn(200))
    found = [optimism(held, rules, 40, 80, 1, 1, rng) for rng in rngs]
    assert ttest_1samp(found, 0.0).pvalue > 1e-3  # a false alarm of 1 in 1,000


def test_choosing_among_more_overfits_more() -> None:
    held = source("r2")
    rules = LadderRules(FullDisclosure())
    medians = []
    for features, iterations in ((1, 1), (8, 1), (24, 4)):
        rngs = map(np.random.default_rng, np.random.SeedSequence(1).spawn(20))
        found = [optimism(held, rules, 40, 80, features, iterations, rng) for rng in rngs]
        medians.append(float(np.median(found)))
    assert medians[0] < 0.03 < medians[1] < medians[2]


def test_a_rule_that_releases_nothing_gives_nothing_to_choose_by() -> None:
    rules = LadderRules(ShakyLadder(step=1.0, noise=1e-6))
    held = source("accuracy", np.arange(ROWS) % 2)
    assert optimism(held, rules, 40, 80, 5, 2, np.random.default_rng(0)) == 0.0


# -- the procedure ----------------------------------------------------------------------------


def labels_for(name: str) -> NDArray[Any]:
    metric = METRICS[name]
    if metric.is_classification:
        return np.arange(ROWS) % (2 if metric.binary or metric.response == "scores" else 3)
    # Far from zero, where ratios and logarithms of fitted values are defined.
    return 50.0 + table()[1]


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_metric_can_be_rehearsed(name: str) -> None:
    found = safe_submissions(
        table()[0], labels_for(name), name, Ladder(step=0.1), n=60, threshold=1e6, repetitions=1
    )
    assert found.metric == name
    assert np.isfinite([one.optimism for one in found.attacks]).all()
    assert (found.safe, found.unsafe) == (FEATURES, None)


@pytest.mark.parametrize(
    ("features", "share", "expected"),
    [
        (2150, 0.02, [(50, 1), (100, 2), (150, 3), (200, 4), (250, 5), (300, 6)]),
        (4, 0.02, [(1, 1), (2, 1), (3, 1), (4, 1)]),
        (60, 0.1, [(10, 1), (20, 2), (30, 3), (40, 4), (50, 5), (60, 6)]),
    ],
)
def test_the_grid_is_the_papers(
    features: int, share: float, expected: list[tuple[int, int]]
) -> None:
    assert _grid(features, share) == expected


def test_the_numbers_of_submissions_are_the_papers() -> None:
    found = [_submissions(*setting) for setting in _grid(300, 0.02)]
    assert found == [50, 199, 447, 794, 1240, 1785]


def concluded(medians: list[float]) -> SafeSubmissions:
    attacks = tuple(
        Attack(many, 1, many, (median - 1, median, median + 1))
        for many, median in zip((50, 199, 447), medians, strict=True)
    )
    return SafeSubmissions(100, 100, "r2", FullDisclosure(), 0.05, 10, attacks)


@pytest.mark.parametrize(
    ("medians", "safe", "unsafe", "said"),
    [
        ([0.01, 0.02, 0.03], 447, None, "the longest made 447 submissions"),
        ([0.01, 0.06, 0.03], 50, 199, "199 submissions came to more than an optimism of 0.05"),
        ([0.06, 0.01, 0.01], 0, 50, "50 submissions came to more"),
        ([0.05, 0.05, 0.051], 199, 447, "447 submissions"),
    ],
)
def test_what_exceeds_the_threshold_and_all_beyond_is_not_safe(
    medians: list[float], safe: int, unsafe: int | None, said: str
) -> None:
    found = concluded(medians)
    assert (found.safe, found.unsafe) == (safe, unsafe)
    assert said in str(found)
    assert all(f"{one.submissions:>13}" in str(found) for one in found.attacks)


@pytest.fixture(scope="module")
def found() -> SafeSubmissions:
    X, y = table()
    return safe_submissions(
        X, y, "r2", FullDisclosure(), n=40, threshold=0.1, share=0.15, repetitions=6
    )


def test_the_same_seed_gives_the_same_answer_and_another_another(found: SafeSubmissions) -> None:
    X, y = table()
    asked = {"n": 40, "threshold": 0.1, "share": 0.15, "repetitions": 6}
    assert safe_submissions(X, y, get_metric("r2"), FullDisclosure(), **asked) == found
    assert safe_submissions(X, y, "r2", FullDisclosure(), seed=1, **asked) != found


def test_the_unit_of_the_labels_does_not_matter() -> None:
    """A step is relative where the range of the losses is not known, as on a real ladder."""
    X, y = table()
    small, large = (
        safe_submissions(
            X, scale * y, "neg_mean_squared_error", Ladder(0.05), n=40, threshold=1, repetitions=4
        )
        for scale in (1.0, 1000.0)
    )
    for one, other in zip(small.attacks, large.attacks, strict=True):
        assert other.optimism == pytest.approx(np.multiply(1e6, one.optimism), rel=1e-6)


def test_the_true_connection_of_labels_and_features_is_not_used() -> None:
    """Labels that are a feature would be fitted perfectly, here and on fresh rows."""
    X, _ = table()
    found = safe_submissions(
        X, X[:, 0], "r2", Ladder(step=0.05), n=40, threshold=0.1, repetitions=10
    )
    assert all(0.0 < one.median < 0.3 for one in found.attacks)


@pytest.mark.parametrize(
    ("features", "repetitions"), [(40, 8), pytest.param(120, 25, marks=pytest.mark.nightly)]
)
def test_stricter_rules_allow_more_as_in_the_paper(features: int, repetitions: int) -> None:
    """Figure S11: the stricter the test of the Ladder, the less its step-forward attack fits."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, features)), rng.normal(size=300)
    asked = {"n": 150, "threshold": 0.05, "repetitions": repetitions, "share": 0.05}
    rules = PairedTestLadder(0.01), PairedTestLadder(0.5), FullDisclosure()
    last = [
        safe_submissions(X, y, "neg_mean_squared_error", rule, **asked).attacks[-1].median
        for rule in rules
    ]
    assert last[0] < last[1] < last[2]


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"X": [["a"], ["b"]]}, "X"),
        ({"X": [1.0, 2.0]}, "X"),
        ({"X": [[np.nan], [1.0]]}, "X"),
        ({"X": np.zeros((2, 0))}, "X"),
        ({"y": [1.0]}, "y"),
        ({"y": 1.0}, "y"),
        ({"n": 0}, "n"),
        ({"n_train": 0}, "n_train"),
        ({"threshold": 0.0}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"share": 1.5}, "share"),
        ({"repetitions": 0}, "repetitions"),
        ({"seed": -1}, "seed"),
        ({"metric": "no such"}, "scoring"),
        ({"mechanism": "Ladder"}, "mechanism"),
        ({"mechanism": Thresholdout(threshold=0.1, noise=0.1, budget=3)}, "mechanism"),
        ({"mechanism": ParameterFreeLadder()}, "mechanism"),  # r2 is no mean of losses
    ],
)
def test_bad_input_is_refused_by_name(change: dict[str, Any], argument: str) -> None:
    asked: dict[str, Any] = {
        "X": [[0.0], [1.0]],
        "y": [1.0, 2.0],
        "metric": "r2",
        "mechanism": Ladder(step=0.1),
        "n": 10,
        "threshold": 0.1,
        "repetitions": 1,
    }
    with pytest.raises(InvalidArgument) as refused:
        safe_submissions(**(asked | change))
    assert argument in str(refused.value).split()[0]


def test_a_refusal_holds_no_label() -> None:
    secret = "canary-5d1e"
    with pytest.raises(InvalidArgument) as refused:
        safe_submissions([[secret], ["b"]], [0, 1], "accuracy", Ladder(0.1), n=5, threshold=0.1)
    assert secret not in str(refused.value)


# -- the command ------------------------------------------------------------------------------


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["safe", *words], catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path) -> str:
    X, y = table()
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(FEATURES)]).assign(y=y)
    frame.to_csv(tmp_path / "numbers.csv", index=False)
    frame.assign(city="Oslo").to_csv(tmp_path / "texts.csv", index=False)
    return str(tmp_path / "numbers.csv")


ASKED = ("--target", "y", "--rows", "40", "--threshold", "0.1", "--repetitions", "3")


def test_the_command_says_what_the_function_finds(file: str) -> None:
    words = (file, *ASKED, "--scoring", "r2", "--mechanism", "FullDisclosure")
    told = call(*words)
    assert told.exit_code == 0, told.stderr
    frame = pd.read_csv(file)
    expected = safe_submissions(
        frame.drop(columns="y"), frame["y"], "r2", FullDisclosure(), n=40, threshold=0.1,
        repetitions=3,
    )  # fmt: skip
    assert told.stdout == f"{expected}\n"
    parsed = json.loads(call(*words, "--json").stdout)
    assert parsed["attacks"] == [
        {**one._asdict(), "optimism": list(one.optimism)} for one in expected.attacks
    ]
    assert (parsed["safe"], parsed["unsafe"]) == (expected.safe, expected.unsafe)
    assert parsed["mechanism"] == "FullDisclosure()"


def test_the_command_takes_the_metrics_default_rule(file: str) -> None:
    told = call(file, *ASKED, "--scoring", "neg_mean_squared_error", "--train-rows", "50")
    assert told.stdout.startswith("ParameterFreeLadder() on 40 rows")
    assert "50 rows to train on" in told.stdout
    told = call(file, *ASKED, "--scoring", "r2", "--share", "0.2", "--seed", "3")
    assert told.stdout.startswith("BayesBootLadder(odds=5.66")
    told = call(file, *ASKED, "--scoring", "neg_mean_squared_error", "--loss-range", "0", "4")
    assert told.exit_code == 0


def test_the_default_for_labels_is_that_of_a_holdout(tmp_path: Path) -> None:
    X, y = table()
    path = tmp_path / "labels.csv"
    pd.DataFrame(X).add_prefix("x").assign(y=(y > 0).astype(int)).to_csv(path, index=False)
    holdout = LadderHoldout(X, y > 0, scoring="accuracy", ledger="memory")
    printed = call(str(path), *ASKED, "--scoring", "accuracy").stdout
    assert printed.startswith(f"{holdout.rules.mechanism!r} on 40 rows")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target", "why"), "--target must be"),
        (("--scoring", "no such"), "scoring must be"),
        (("--mechanism", "Nobody()"), "--mechanism must be"),
        (("--rows", "0"), "--rows must be"),
        (("--threshold", "nan"), "threshold must be"),
    ],
)
def test_the_command_refuses_in_a_sentence(file: str, words: tuple[str, str], said: str) -> None:
    told = call(file, *ASKED, "--scoring", "r2", *words)
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr.startswith(f"Error: {said}")


def test_text_is_refused_with_a_way_out(file: str) -> None:
    told = call(str(Path(file).with_name("texts.csv")), *ASKED, "--scoring", "r2")
    assert told.exit_code == 1
    assert "get_dummies" in told.stderr
