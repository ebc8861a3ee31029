"""Attacks what a first user reads: tables, digits, the next release, typing errors, axes."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from ladderholdout import LadderHoldout, mechanisms
from ladderholdout.audit import plots
from ladderholdout.cli import app
from ladderholdout.errors import BudgetWarning, UnknownHoldout
from ladderholdout.guard.certificate import interval
from ladderholdout.guard.record_views import next_release
from ladderholdout.lab.report import analyst_of, matches, plot
from ladderholdout.mechanisms import Ladder, LadderRules
from ladderholdout.metrics import get_metric
from tests.support.commands import CliRunner
from tests.support.mlflow_stores import new_store

N = 400
X = np.arange(N).reshape(-1, 1)


def climbed(y: np.ndarray, *right: int, **settings: Any) -> LadderHoldout:
    """Submit predictions of which so many rows are right, the first ones by position."""
    settings = {"scoring": "accuracy", "ledger": "memory", "overlap": "ignore"} | settings
    holdout = LadderHoldout(X, y, **settings)
    for count in right:
        holdout.submit(np.where(np.arange(N) < count, y, 1 - y), context={"idea": f"<{count}>"})
    return holdout


@pytest.fixture
def labels() -> np.ndarray:
    return np.arange(N) % 2


def test_history_is_a_tuple_and_a_table(labels: np.ndarray) -> None:
    history = climbed(labels, 300, 280, 360).history()
    assert isinstance(history, tuple) and history[1:][0].number == 2
    html = history._repr_html_()
    assert html.count("<tr>") == 4 and "&lt;360&gt;" in html and "<360>" not in html
    lines = str(history).splitlines()
    assert lines[0].split() == ["number", "time", "(UTC)", "own", "score", "released", "from"]
    assert [line.split()[3] for line in lines[1:]] == ["0.75", "-", "0.9"]


def test_a_long_history_shows_its_end(labels: np.ndarray) -> None:
    history = climbed(labels, *range(200, 310)).history()
    assert str(history).splitlines()[-1] == "the last 100 of 110"
    assert history._repr_html_().count("<tr>") == 101


def test_a_certificate_begins_with_what_matters(labels: np.ndarray) -> None:
    certificate = climbed(labels, 300, 360).certificate()
    first, second, *_ = str(certificate).splitlines()
    assert first.startswith("The true score of submission 2 is in ") and certificate.ends() in first
    assert second.startswith("Released: 0.9; bound: exact binomial")
    before, after = certificate._repr_html_().split("<details>")
    assert certificate.ends() in before and before.count("<tr>") == 2
    assert all(escape(one) in after for one in certificate.assumptions)


def test_a_missing_certificate_is_a_table_too(labels: np.ndarray) -> None:
    assert "none: " in climbed(labels).certificate()._repr_html_()


def test_shown_ends_contain_the_interval() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        low, high = np.sort(rng.normal(scale=10.0 ** rng.integers(-3, 4), size=2))
        shown = [float(one) for one in interval(low, high).split(" to ")]
        assert shown[0] <= low < high <= shown[1], seed
        assert shown[1] - shown[0] <= 1.3 * (high - low), seed


def test_the_next_release_is_what_the_rule_asks_for(labels: np.ndarray) -> None:
    holdout = climbed(labels, 300, mechanism=mechanisms.PricedLadder())
    least = float(holdout.status().next_release.split()[-1])
    enough = next(count for count in range(301, N) if count / N > least)
    below, above = climbed(labels, 300, enough - 2), climbed(labels, 300, enough + 1)
    assert not below.history()[-1].improved and above.history()[-1].improved


RULES = {
    "BayesBootLadder": mechanisms.BayesBootLadder(5),
    "BayesBootLadderBoot": mechanisms.BayesBootLadderBoot(5),
    "GaussianLadder": mechanisms.GaussianLadder(0.1, 0.1),
    "Ladder": mechanisms.Ladder(0.1),
    "LadderBoot": mechanisms.LadderBoot(0.15),
    "PairedTestLadder": mechanisms.PairedTestLadder(0.15),
    "ShakyLadder": mechanisms.ShakyLadder(0.1, 0.1),
    "SimplifiedLadder": mechanisms.SimplifiedLadder(0.1),
}


@pytest.mark.parametrize(
    "rule",
    # A gate shows no score, so that nothing is stated of the next one.
    [
        one
        for one in mechanisms.MECHANISMS
        if one not in ("GateLadder", "RankLadder", "Thresholdout")
    ],
)
def test_the_next_release_knows_the_releases_alone(rule: str, labels: np.ndarray) -> None:
    """Other labels and other submissions with the same releases give the same words."""
    made = RULES.get(rule) or mechanisms.MECHANISMS[rule]()
    rules, metric = LadderRules(made), get_metric("accuracy")
    assert next_release(rules, metric, N, 0.25, 1)
    first = climbed(labels, 300, mechanism=made, name="first").status()
    other = climbed(1 - labels[::-1], 300, mechanism=made, name="other").status()
    if first.score == other.score:  # noise is another for each holdout
        assert first.next_release == other.next_release != ""


def test_nothing_is_stated_where_nothing_will_be_released(labels: np.ndarray) -> None:
    assert climbed(labels).status().next_release == ""
    with pytest.warns(BudgetWarning):
        used_up = climbed(labels, 300, budget=1)
    assert used_up.status().next_release == ""
    retired = climbed(labels, 300)
    assert retired.status().next_release and retired.owner.retire().next_release == ""


def test_stated_steps_are_explained_where_they_show(labels: np.ndarray) -> None:
    coarse = LadderHoldout(X, labels, scoring="accuracy", mechanism=Ladder(0.025), ledger="memory")
    coarse.submit(labels)
    assert "scores are released in steps of 0.025" in str(coarse.status())
    area = LadderHoldout(X[:, ::-1], labels, scoring="roc_auc", ledger="memory")
    area.submit(labels + np.random.default_rng(0).normal(size=N))
    assert "in steps of" not in str(area.status())


@pytest.fixture
def ledger(labels: np.ndarray, default_ledger: Path) -> Path:
    climbed(labels, 300, name="tumours", ledger=default_ledger)
    return default_ledger


TYPING_ERRORS = (
    (("statsu", "tumours"), "status"),
    (("status", "tumors"), "Did you mean 'tumours'?"),
    (("status", "tumours", "--ledgr", "x"), "--ledger"),
    (("history", "tumours", "--ladder", "mian"), "Did you mean 'default/main'?"),
    (("attack", "Bosting"), "Did you mean 'Boosting'?"),
    (("attack", "Boosting", "--mechanism", "Lader(step=0.1)"), "Did you mean 'Ladder'"),
    (("account", "revoke", "Ad", "--holdout", "tumours"), "There is no account 'Ad'"),
)


def test_a_typing_error_is_answered_with_what_was_meant(ledger: Path) -> None:
    for words, meant in TYPING_ERRORS:
        found = CliRunner().invoke(app, list(words))
        assert found.exit_code in (1, 2), words
        assert meant in " ".join((found.output + found.stderr).replace("│", " ").split()), words


def test_a_name_of_a_metric_and_of_a_holdout_in_python(ledger: Path, labels: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'accuracy'\?"):
        LadderHoldout(X, labels, scoring="acuracy", ledger="memory")
    with pytest.raises(UnknownHoldout, match=r"Did you mean 'tumours'\?"):
        LadderHoldout.open("tumour")


def test_export_names_the_store(ledger: Path, tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copy(new_store(tmp_path / "empty").removeprefix("sqlite:///"), tmp_path / "runs.db")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(
        app, ["export", "tumours", "--tracking-uri", "sqlite:///runs.db", "--raw", "sealed"]
    )
    assert f"in sqlite:///{tmp_path / 'runs.db'}" in found.output, found.output


def test_axes_that_count_have_whole_numbers(labels: np.ndarray) -> None:
    audit = climbed(labels, 300, 320, 360).owner.audit()
    played = matches(analyst_of("Boosting(3)"), [mechanisms.FullDisclosure()], 50, 2, trace=True)
    drawn = [plots.scores(audit, ax=Figure().subplots()), plot(played, ax=Figure().subplots())]
    for ax in drawn:
        ticks = ax.get_xticks()
        assert len(ticks) > 1 and (ticks == ticks.round()).all(), ticks
