"""Attacks the papers' figures: scripts that do not run, numbers that are not those expected."""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest

PAPERS = Path(__file__).parents[2] / "benchmarks" / "papers"

# Each script in a tiny setting: which of its constants are changed.
TINY: dict[str, dict[str, Any]] = {
    "blum_hardt_1": {"GUESSES": (10, 30), "QUICK": 2},
    "blum_hardt_2": {"QUICK": 1},
    "blum_hardt_3": {"QUICK": 1},
    "blum_hardt_lower_bound": {"MODELS": (2, 10), "QUICK": 20},
    "blum_hardt_theorems": {"SIZES": (500, 2000), "VOTES": ((50, 500),), "QUICK": 2},
    "errors_in_the_texts": {"QUICK": 50},
    "hardt_3": {"QUERIES": (10, 30), "QUICK": 2},
    "hardt_4": {"QUERIES": (10, 30), "QUICK": 2},
    "hardt_mechanisms": {"GUESSES": 30, "QUICK": 2},
    "hardt_reduction": {"ALPHAS": (0.2, 0.1), "QUICK": 2},
    "hardt_theorem": {"FEW": (10_000, 20_000), "GUESSES": 20, "QUICK": 2},
    "zheng_1": {"GUESSES": (10, 30), "MORE": (60,), "QUICK": 2},
    "zheng_2": {"FEW": 60, "CHANGES": (2, 20)},
    "zheng_theorem": {"ACCOUNTS": (1, 20), "GUESSES": 40, "RANKED": 40, "QUICK": 2},
}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import the scripts as they import each other, and forget them afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(PAPERS))
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(PAPERS)):
            del sys.modules[name]


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


# One of each text; `.ci/run` runs every script with --quick.
IN_THE_GATE = {"blum_hardt_1", "hardt_4", "zheng_1"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.nightly] * (one not in IN_THE_GATE)) for one in TINY],
)
def test_a_script_prints_its_numbers_and_writes_its_picture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script(name)
    for constant, value in TINY[name].items():
        assert hasattr(module, constant)
        monkeypatch.setattr(module, constant, value)
    module.main(["--quick", "--jobs", "1", "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    assert len(re.findall(r"\b\d\.\d{3}\b", shown)) >= 4
    assert "nan" not in shown
    assert (tmp_path / f"{name}.png").stat().st_size > 5_000
    assert shown.rstrip().endswith(f"picture: {tmp_path / name}.png")


def test_every_script_is_run_here_but_those_of_neto() -> None:
    assert {name for name in _runner().scripts() if not name.startswith("neto")} == set(TINY)


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("papers_runner", PAPERS / "__main__.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_runner_goes_on_after_a_failure_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = _runner()
    words: list[list[str]] = []
    monkeypatch.setitem(sys.modules, "first", SimpleNamespace(main=lambda _: 1 / 0))
    monkeypatch.setitem(sys.modules, "second", SimpleNamespace(main=words.append))
    monkeypatch.setattr(runner, "scripts", lambda: ["first", "second", "third"])
    assert runner.main(["--quick", "--only", "first", "--only", "sec"]) == 1
    assert words == [["--quick"]]
    shown = capsys.readouterr()
    assert "== first: FAILED" in shown.out and "== second: done" in shown.out
    assert "ZeroDivisionError" in shown.err
    assert "2 scripts, 1 failed: first" in shown.out
    assert runner.main(["--only", "second"]) == 0


@pytest.mark.processes
def test_the_runner_refuses_a_name_that_no_script_begins_with() -> None:
    ran = subprocess.run(
        [sys.executable, str(PAPERS), "--only", "nobody"], capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert "zheng_1" in ran.stderr


@pytest.mark.processes
def test_results_depend_on_the_seed_and_not_on_the_number_of_processes() -> None:
    common, majority = script("_common"), script("hardt_3")
    once = majority.partial(majority.errors, queries=(10, 20), levels=(0.0, 1.0))
    alone = common.repeated(once, 3, SimpleNamespace(seed=5, jobs=1))
    spread_out = common.repeated(once, 3, SimpleNamespace(seed=5, jobs=2))
    other = common.repeated(once, 3, SimpleNamespace(seed=6, jobs=1))
    assert np.array_equal(alone, spread_out)
    assert not np.array_equal(alone, other)


# -- the figures that are known ---------------------------------------------------------------


def test_the_boosting_attack_comes_to_what_is_foretold_and_fresh_labels_to_one_half() -> None:
    """n = 4,000, 400 guesses, 10 repetitions: rounding .43, parameter-free .48, fresh .50."""
    figure = script("blum_hardt_1")
    seed = np.random.SeedSequence(0)
    believed, true = figure.once(("Kaggle", 400), seed, 10)
    # The foretold risk is exact up to O(1/n); a vote of 4,000 rows has a standard deviation
    # of sqrt(.25/4000) at most. Five standard errors of ten votes: less than 1 in a million.
    assert abs(believed.mean() - figure.foretold(400)) < 5 * math.sqrt(0.25 / 4000 / 10)
    assert round(float(believed.mean()), 2) == 0.43
    assert round(float(figure.once(("Ladder", 400), seed, 10)[0].mean()), 2) == 0.48
    # The votes on 8,000 fresh labels are coin flips: a false alarm of 1 in 1,000.
    wrong = round(float(true.sum()) * (figure.LABELS - figure.PUBLIC))
    assert binomtest(wrong, 10 * (figure.LABELS - figure.PUBLIC), 0.5).pvalue > 1e-3


@pytest.mark.parametrize(("level", "place"), [(0.0, 0), (3.0, 1)])
def test_the_majority_attack_comes_to_what_is_foretold(level: float, place: int) -> None:
    majority = script("_majority")
    seeds = np.random.SeedSequence(1).spawn(10)
    found = np.array([majority.errors(seed, (200, 1000), (0.0, 3.0)) for seed in seeds])
    for column, queries in enumerate((200, 1000)):
        mean = found[:, place, column].mean()
        # A vote's error on 1,000 rows deviates by sqrt(.25/1000) from chance alone, and by as
        # much again from the luck of its answers: five standard errors of ten votes.
        assert abs(mean - majority.foretold(queries, level)) < 5 * math.sqrt(0.5 / 1000 / 10)


def test_noise_takes_its_share_of_the_attack_by_the_formula() -> None:
    majority = script("_majority")
    assert majority.foretold(1000, 0.0) == pytest.approx(ndtr(-math.sqrt(2 / math.pi)))
    assert majority.foretold(1000, 3.0) == pytest.approx(majority.foretold(100, 0.0))


def test_misleading_answers_within_the_theorems_error_defeat_its_attack() -> None:
    """Theorem 5.1 of Blum & Hardt asks only that answers are within 1/sqrt(n)."""
    theorems = script("blum_hardt_theorems")
    risks = np.linspace(0.3, 0.7, 41)
    for answer in theorems.ANSWERS.values():
        assert (np.abs(answer(risks, 0.05) - risks) <= 0.05 + 1e-12).all()
    gaps = {
        name: theorems.vote(400, 1000, answer, 10, np.random.default_rng(0))
        for name, answer in theorems.ANSWERS.items()
    }
    assert gaps["exact"].min() > 0.15 and gaps["rounded"].min() > 0.15
    assert gaps["misleading"].max() < -0.1


def test_no_estimate_beats_the_lower_bound() -> None:
    """Le Cam: in one of two worlds a quarter of the errors are epsilon/2 or more."""
    bound = script("blum_hardt_lower_bound")
    for k in (2, 100):
        for name, _, _, share, _ in bound.shares(k, 2000, np.random.default_rng(k)):
            # 2,000 draws: a share of .25 falls below .21 with a chance of 1 in 50,000.
            assert share > 0.21, name


@pytest.mark.parametrize(
    ("name", "begins", "ends"),
    [
        ("errors_in_the_texts", "- **Hardt, Figure 1**", "- **Blum & Hardt, Algorithm 2**"),
        pytest.param("hardt_3", "| Figure 3: noise", "All points", marks=pytest.mark.nightly),
        pytest.param("hardt_4", "| Figure 4: a sweet", "The curve", marks=pytest.mark.nightly),
        ("blum_hardt_lower_bound", "| Theorem 3.3: no", "the error over"),
    ],
)
def test_the_page_quotes_what_the_script_printed(
    name: str, begins: str, ends: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quicker scripts, at the repetitions and the seed of the page."""
    page = (PAPERS.parents[1] / "docs" / "background" / "papers.md").read_text()
    quoted = re.findall(r"(?<![\d.])\.\d{3}\b", page.partition(begins)[2].partition(ends)[0])
    script(name).main(["--jobs", "1", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert quoted
    assert [number for number in quoted if f"0{number}" not in printed] == []


def test_the_reading_of_sigma_decides_the_rate() -> None:
    texts = script("errors_in_the_texts")
    rates = {}
    for name, sigma in texts.READINGS.items():
        margins = [texts.margin(n, sigma) for n in (10**12, 10**14)]
        rates[name] = math.log(margins[1] / margins[0]) / math.log(100)
    as_extracted, meant = rates.values()
    assert meant == pytest.approx(-0.4, abs=0.01)
    assert as_extracted == pytest.approx(-0.2, abs=0.01)


def test_an_honest_competition_has_the_size_of_the_real_one() -> None:
    held = script("_competition").competition(np.random.SeedSequence(3))
    assert held.losses.shape == (1785, 12_000)
    assert (held.public.shape[1], held.private.shape[1]) == (3600, 8400)
    assert np.array_equal(np.unique(held.team), np.arange(200))
    assert held.losses.min() >= 0.01 and held.losses.max() <= -math.log(0.01) + 1e-6
    ladder, kaggle = held.ladder(), held.kaggle()
    first = np.unique(held.team, return_index=True)[1]
    # A team's first submission is told its own score, and later ones never more than before.
    assert np.abs(ladder[first] - kaggle[first]).max() <= 0.5 / 3600 + 1e-5
    later = np.setdiff1d(np.arange(len(ladder)), first)
    assert (ladder[later] <= ladder[later - 1]).all()


def test_two_accounts_that_see_exact_ranks_get_everything() -> None:
    ranks = script("zheng_theorem")
    seed = np.random.SeedSequence(0)
    for step, right in ((1 / 60, True), (0.1, False)):
        ranks.RANKED = 60
        assert (ranks.ranked(step, seed, 3).empirical.max() == 0.0) == right


@pytest.mark.processes
@pytest.mark.nightly
def test_all_figures_are_quick_enough_for_every_change(tmp_path: Path) -> None:
    """As CI runs them; the time that it takes is printed, not tested."""
    words = [str(PAPERS), "--quick", "--out", str(tmp_path)]
    for name in ("blum", "errors", "hardt", "zheng"):
        words += ["--only", name]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(TINY)} scripts, 0 failed" in ran.stdout
    assert {picture.stem for picture in tmp_path.glob("*.png")} == set(TINY)
