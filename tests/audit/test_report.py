"""Attacks the report: raw scores in a closed one, names that are markup, pages that break."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from mlflow import MlflowClient

from ladderholdout import InvalidArgument, LadderHoldout, LadderHoldoutError, Metric
from ladderholdout.audit import record_of, write_report
from ladderholdout.audit.report import LONGEST_TABLE, page_of
from ladderholdout.cli import app
from ladderholdout.guard import ladder as ladders
from ladderholdout.leaderboard import Leaderboard
from tests.support.browser import rendered, screenshot
from tests.support.canaries import Canaries
from tests.support.commands import CliRunner
from tests.support.holdouts import coins

NAME = "churn <b>2026<b> & $co$"


def climbed(name: str = NAME, k: int = 30, seed: int = 0) -> tuple[LadderHoldout, list[float]]:
    """A ladder whose raw risks have six digits each; n is a prime."""
    rng, n = np.random.default_rng(seed), 997
    X, y = rng.normal(size=(n, 3)), rng.integers(0, 2, n)
    holdout = LadderHoldout(X, y, scoring="accuracy", name=name)
    risks = []
    for luck in np.linspace(0.5, 0.8, k):
        guess = np.where(rng.random(n) < luck, y, 1 - y)
        holdout.submit(guess, context={"idea": "<script>alert(1)</script>"})
        risks.append(float(np.mean(guess != y)))
    return holdout, risks


def call(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, words, input=answer, catch_exceptions=False)


def released(holdout: LadderHoldout) -> set[float]:
    return {one.score for one in holdout.history()}


class Strict(HTMLParser):
    """Collect what a page would fetch or run, and the names of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.names.append(str(value))
            if name in ("src", "href", "xlink:href", "action"):
                self.links.append(str(value))
            if name.startswith("on"):
                self.handlers.append(name)


def parsed(page: str) -> Strict:
    parser = Strict()
    parser.feed(page)
    return parser


# -- what a closed report may not hold ----------------------------------------------------


def test_a_closed_report_holds_nothing_raw(tmp_path: Path) -> None:
    holdout, risks = climbed("plain")
    told = released(holdout)
    hidden = [risk for risk in risks if not any(np.isclose(1 - risk, one) for one in told)]
    assert len(hidden) > 10
    canaries = Canaries.of(np.array([0, 1]), hidden, b"no secret is looked for here")
    forms = {form for form, what in canaries.forms.items() if what.startswith("raw")}
    closed = write_report(record_of(holdout), tmp_path / "closed.html").read_bytes()
    assert not any(form in closed for form in forms)
    opened = write_report(holdout.owner.audit(), tmp_path / "opened.html").read_bytes()
    # The same search finds them where they are: every single one of them.
    for risk in hidden:
        assert f"{1 - risk:.6g}".encode() in opened
    assert any(form in opened for form in forms)


@pytest.mark.long
def test_a_closed_report_is_the_same_whatever_the_labels_say(tmp_path: Path) -> None:
    """Two holdouts with other labels, and the same releases: the first submission only."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    swapped = y.copy()
    ones, zeros = np.flatnonzero(y == 1)[:5], np.flatnonzero(y == 0)[:5]
    swapped[[*ones, *zeros]] = y[[*zeros, *ones]]
    first = np.ones(200, int)
    later = [np.where(rng.random(200) < 0.3, y, 1 - y) for _ in range(5)]
    pages = []
    for place, labels in enumerate((y, swapped)):
        folder = tmp_path / str(place)
        folder.mkdir()
        holdout = LadderHoldout(
            X, labels, scoring="accuracy", name="same", ledger=folder / "l.db", vault=False
        )
        answers = [holdout.submit(guess) for guess in (first, *later)]
        assert not any(one.improved for one in answers[1:])
        page = write_report(record_of(holdout), folder / "r.html").read_text()
        page = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", page).replace(str(folder), "")
        pages.append(page)
    assert pages[0] == pages[1]


def test_a_closed_report_marks_nothing_as_opened(tmp_path: Path) -> None:
    holdout, _ = climbed()
    write_report(record_of(holdout), tmp_path / "r.html")
    result = call("report", NAME, "--output", str(tmp_path / "s.html"))
    assert result.exit_code == 0, result.output
    assert holdout.status().opened is None
    assert holdout.submit(np.ones(997, int)).opened is False


# -- what any report must be -----------------------------------------------------------------


@pytest.mark.parametrize("opened", [False, True])
def test_a_report_needs_nothing_else_and_runs_nothing(tmp_path: Path, opened: bool) -> None:
    holdout, _ = climbed()
    page = write_report(
        holdout.owner.audit() if opened else record_of(holdout), tmp_path / "r.html"
    ).read_text(encoding="utf-8")
    found = parsed(page)
    assert "script" not in found.tags
    assert not found.handlers
    # Links lead into the page itself, or hold their data.
    assert found.links
    assert all(link.startswith(("#", "data:")) for link in found.links)
    assert "@import" not in page
    assert not re.search(r"url\((?!#|'#|\"#)", page)
    assert len(found.names) == len(set(found.names))
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.names)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(found.names)
    assert found.tags.count("svg") == (4 if opened else 1)
    # Names and contexts are text.
    assert "churn &lt;b&gt;2026&lt;b&gt; &amp; $co$" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    # Colours of the pictures are those of the page.
    assert not re.search(r"(?:stroke|fill): #(?!ffffff)", page)


def test_a_report_of_a_metric_with_an_odd_name_is_drawn(tmp_path: Path) -> None:
    X, y = np.arange(40)[:, None], np.tile([0, 1], 20)
    metric = Metric("$cost$ <i> $x", "labels", loss=cost, loss_range=(0, 1))
    holdout = LadderHoldout(X, y, scoring=metric, name="odd")
    for wrong in (3, 1):
        holdout.submit(np.where(np.arange(40) < wrong, 1 - y, y))
    audit = holdout.owner.audit()
    page = write_report(audit, tmp_path / "r.html").read_text()
    assert page.count("score ($cost$ &lt;i&gt; $x)") == 1
    # And from the ledger alone, where no process holds the function.
    ladders._guards.clear()
    again = LadderHoldout.open("odd").owner.audit()
    assert again.on_holdout is None
    assert again.verdict.finding == "undecided"
    write_report(again, tmp_path / "s.html")


def cost(targets: Any, predictions: Any) -> Any:
    return 0.5 * (targets != predictions)


def test_a_report_before_the_first_submission_says_so(tmp_path: Path) -> None:
    holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="empty")
    closed = write_report(record_of(holdout), tmp_path / "c.html").read_text()
    assert "Nothing was released yet." in closed
    assert "<svg" not in closed
    opened = write_report(holdout.owner.audit(), tmp_path / "o.html").read_text()
    assert "Nothing was released." in opened
    assert "<svg" not in opened


@pytest.mark.parametrize("metric", ["accuracy", "roc_auc"])
def test_the_range_comes_first_and_then_the_model(tmp_path: Path, metric: str) -> None:
    """AUC's range is worked out on request alone; the file holds no place on this machine."""
    rng, ledger, file = np.random.default_rng(0), tmp_path / "private.db", tmp_path / "page.html"
    X, y = rng.normal(size=(200, 3)), np.arange(200) % 2
    holdout = LadderHoldout(X, y, scoring=metric, name="page", ledger=ledger)
    for depth, right in ((1, 120), (2, 180), (3, 130)):
        noted = {"estimator": "Tree", "parameters": {"max_depth": depth, "seed": 0}}
        guess = np.where(np.arange(200) < right, y, 1 - y)
        ranks = guess + np.linspace(0, 0.3, 200) if metric == "roc_auc" else guess
        holdout.submit(ranks, context=noted)
    words = ["report", "page", "--ledger", str(ledger), "--output", str(file)]
    told = call(*words).output
    assert ("no range is in it" in told) == (metric == "roc_auc")
    assert call(*words, "--certificate").exit_code == 0
    page = file.read_text()
    sentence = f"the true score ({metric}) of submission 2 is in {holdout.certificate().ends()}"
    first, second = (
        page.index(sentence),
        page.index("The model: Tree max_depth=2 (released score 0.9"),
    )
    assert first < second < page.index("Tried: 3 submissions on 200 rows") < page.index("Facts")
    assert "seed=0" not in page and "private.db" not in page and str(tmp_path) not in page


def test_a_long_table_is_cut_and_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), rng.integers(0, 2, 80)
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    guesses = rng.integers(0, 2, (LONGEST_TABLE + 7, 80))
    for guess in guesses:
        holdout.submit(guess)
    page = write_report(record_of(holdout), tmp_path / "r.html").read_text()
    assert f"The latest {LONGEST_TABLE}; 7 earlier ones are in the ledger." in page
    assert parsed(page).tags.count("tr") == LONGEST_TABLE + 1


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    holdout, _ = climbed(k=2)
    with pytest.raises(InvalidArgument, match="path must be a file that can be written"):
        write_report(record_of(holdout), tmp_path / "nowhere" / "r.html")
    with pytest.raises(InvalidArgument, match="shown must be an Audit"):
        write_report(holdout, tmp_path / "r.html")  # type: ignore[arg-type]
    assert list(tmp_path.glob("*.html")) == []


@pytest.mark.parametrize(
    ("missing", "said"),
    [("jinja2", "report needs jinja2"), ("matplotlib", "report needs matplotlib")],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, said: str
) -> None:
    holdout, _ = climbed(k=2)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(LadderHoldoutError, match=said + r".*ladderholdout\[report\]"):
        write_report(record_of(holdout), tmp_path / "r.html")


# -- the command line ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "answer"), [(("audit", NAME), "n\n"), (("report", NAME, "--opened"), "")]
)
def test_opening_asks_first_and_no_is_no(words: tuple[str, ...], answer: str) -> None:
    holdout, risks = climbed(k=5)
    result = call(*words, answer=answer)
    assert result.exit_code == 1
    assert "can not be certified" in result.stderr
    assert result.stdout.strip() == answer.strip()  # the runner's echo, and nothing of ours
    assert holdout.status().opened is None
    assert not any(f"{1 - risk:.6g}" in result.output for risk in risks[1:])


def test_the_question_before_an_opening_knows_of_a_reserve() -> None:
    rows, labels = np.arange(50).reshape(-1, 1), np.arange(50) % 2
    LadderHoldout(rows, labels, scoring="accuracy", name=NAME, reserve=0.2).submit(labels)
    result = call("audit", NAME, answer="n\n")
    assert "only a reserve can certify" in result.stderr


def test_opening_by_yes_and_by_option(tmp_path: Path) -> None:
    holdout, risks = climbed(k=5)
    result = call("audit", NAME, answer="y\n")
    assert result.exit_code == 0
    assert all(f"{1 - risk:.6g}" in result.stdout for risk in risks)
    assert holdout.status().opened is not None
    # What is open is not asked about again.
    assert call("audit", NAME).exit_code == 0
    file = tmp_path / "r.html"
    assert call("report", NAME, "--opened", "--output", str(file)).exit_code == 0
    assert f"{1 - risks[2]:.6g}" in file.read_text()
    other, _ = climbed("other", k=3, seed=1)
    assert call("audit", "other", "--yes").exit_code == 0
    assert other.status().opened is not None


def test_json_is_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, risks = climbed(k=5)
    found = json.loads(call("audit", NAME, "--yes", "--json").stdout, parse_constant=pytest.fail)
    assert [one["raw"] for one in found["submissions"]] == pytest.approx([1 - r for r in risks])
    assert found["verdict"]["finding"] == "signal"
    assert found["picked"] == int(np.argmin(risks)) + 1
    said = json.loads(call("report", NAME, "--json").stdout)
    assert said == {"file": "churn-b-2026-b-co-report.html", "opened": False, "audit_run": None}
    assert (tmp_path / said["file"]).exists()


def test_a_place_that_cannot_be_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    holdout, _ = climbed(k=1)
    for place in (tmp_path, tmp_path / "nowhere" / "r.html"):
        result = call("report", NAME, "--opened", "--yes", "--output", str(place))
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: --output must be a file in a folder that is there")
    assert holdout.status().opened is None


def test_a_wrong_name_is_a_sentence() -> None:
    climbed(k=1)
    for words in (["audit", "none", "--yes"], ["report", "none"]):
        result = call(*words)
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: The ledger has no holdout 'none'")


# -- leaderboards on the rows -----------------------------------------------------------------


def boards(default_ledger: Path) -> tuple[LadderHoldout, list[Leaderboard]]:
    """Return a holdout with submissions and two boards, of which one has rounds and finals."""
    X, y = coins(800)
    holdout = LadderHoldout(X, y, scoring="accuracy", name="spring", reserve=0.5)
    holdout.submit(y)
    made = []
    for ladder, rounds in (("weekly", True), ("<b>daily", False)):
        board = Leaderboard(X, y, scoring="accuracy", ladder=ladder, rounds=rounds)
        for account, hits in (("Ada", 700), ("<i>Ben", 500), ("Cyd", 640)):
            board.submit(account, np.where(np.arange(800) < hits, y, 1 - y))
        made.append(board)
    made[0].close_round()
    made[0].finals()
    return holdout, made


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
def test_a_report_has_the_leaderboards_of_its_rows(tmp_path: Path, default_ledger: Path) -> None:
    holdout, made = boards(default_ledger)
    assert Leaderboard.on(holdout)[0].standings() == made[0].standings()
    output = tmp_path / "r.html"
    result = call("report", "spring", "--output", str(output))
    assert result.exit_code == 0, result.output
    page = output.read_text(encoding="utf-8")
    assert page == page_of(record_of(holdout), made)  # within a minute
    for board in made:
        assert board.section(level=3) in page
    weekly, daily = (board.section(level=3) for board in made)
    assert weekly.count("<svg") == 2 and "<h3>Finals 1</h3>" in weekly and "<h3>Rounds" in weekly
    assert daily.count("<svg") == 1 and "Finals" not in daily and "<h3>Rounds" not in daily
    for row in made[0].standings().lines()[1:]:
        assert all(f">{escape(cell)}<" in weekly for cell in row)
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert "<b>daily" not in page and "<i>Ben" not in page
    home = LadderHoldout.open("spring", account="board", ladder="weekly")
    assert "rules of a leaderboard" in page_of(record_of(home), made)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
def test_a_report_on_a_leaderboard_needs_no_rows(tmp_path: Path, default_ledger: Path) -> None:
    board = Leaderboard(*coins(100), scoring="accuracy", name="spring")
    board.submit("Ada", np.zeros(100, dtype=int))
    shutil.rmtree(default_ledger.with_name("vault"))
    output, words = tmp_path / "r.html", ("--account", "board", "--ladder", "leaderboard")
    result = CliRunner().invoke(app, ["report", "spring", *words, "--output", str(output)])
    assert result.exit_code == 0, result.output
    page = output.read_text(encoding="utf-8")
    assert ">Ada<" in page and "no certificates" in page


def test_a_report_without_a_leaderboard_has_no_part_on_one(tmp_path: Path) -> None:
    holdout, _ = climbed(k=3)
    assert Leaderboard.on(holdout) == ()
    page = write_report(record_of(holdout), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Leaderboard" not in page


@pytest.mark.processes
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
def test_leaderboards_in_a_report_are_laid_out(tmp_path: Path, default_ledger: Path) -> None:
    holdout, made = boards(default_ledger)
    page = write_report(record_of(holdout), tmp_path / "r.html", boards=made)
    for width in (360, 1280):
        seen = rendered(page, tmp_path, width)
        assert seen.console == []
        assert seen.found["needed"] <= width
        assert min(seen.found["texts"]) >= 9


# -- a real browser ---------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.nightly
@pytest.mark.parametrize("opened", [False, True])
def test_a_browser_lays_the_report_out(tmp_path: Path, opened: bool) -> None:
    holdout, _ = climbed()
    page = write_report(
        holdout.owner.audit() if opened else record_of(holdout), tmp_path / "r.html"
    )
    for width in (360, 1280):
        seen = rendered(page, tmp_path, width)
        assert seen.console == []
        found = seen.found
        assert found["width"] == width
        assert found["needed"] <= width  # nothing sticks out: only the table scrolls
        assert found["rows"] == 30
        assert found["title"].startswith("churn <b>2026<b>")
        assert found["fetched"] == []
        assert len(found["figures"]) == (4 if opened else 1)
        for drawn_width, height, shapes in found["figures"]:
            assert min(300, 0.8 * width) <= drawn_width <= width
            assert 150 < height < drawn_width
            assert shapes > 10
        assert min(found["texts"]) >= 9  # pixels: it can be read on a phone


@pytest.mark.processes
@pytest.mark.nightly
def test_the_report_is_dark_where_the_reader_wants_it_dark(tmp_path: Path) -> None:
    holdout, _ = climbed(k=3)
    page = write_report(record_of(holdout), tmp_path / "r.html")
    light = rendered(page, tmp_path, 800).found
    dark = rendered(page, tmp_path, 800, "--blink-settings=preferredColorScheme=0").found
    assert (light["dark"], dark["dark"]) == (False, True)
    assert brightness(light["ink"]) < 80 < 200 < brightness(light["paper"])
    assert brightness(dark["paper"]) < 80 < 200 < brightness(dark["ink"])


@pytest.mark.processes
@pytest.mark.nightly
def test_a_screenshot_shows_more_than_an_empty_page(tmp_path: Path) -> None:
    holdout, _ = climbed()
    page = write_report(holdout.owner.audit(), tmp_path / "r.html")
    blank = tmp_path / "blank.html"
    blank.write_text("<!DOCTYPE html><title>blank</title>")
    shown, empty = (
        screenshot(one, tmp_path, tmp_path / f"{one.stem}.png", 1280, 1600) for one in (page, blank)
    )
    assert shown.startswith(b"\x89PNG")
    assert len(shown) > 10 * len(empty)


@pytest.mark.processes
@pytest.mark.nightly
def test_the_console_is_really_watched(tmp_path: Path) -> None:
    page = tmp_path / "loud.html"
    page.write_text("<!DOCTYPE html><body><script>console.error('boo')</script></body>")
    assert len(rendered(page, tmp_path, 800).console) == 1


def brightness(colour: str) -> float:
    return float(np.mean([int(part) for part in re.findall(r"\d+", colour)[:3]]))


@pytest.mark.long
def test_the_report_goes_to_the_audit_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    climbed(k=5)
    store = f"sqlite:///{tmp_path}/mlflow.db"
    words = ["--opened", "--yes", "--output", "r.html", "--attach", "--audit-tracking-uri", store]
    said = json.loads(call("report", NAME, *words, "--json").stdout)
    assert [one.path for one in MlflowClient(store).list_artifacts(said["audit_run"])] == ["r.html"]
