"""Attacks the site: dead links, pages that nobody can read, answers that nobody finds.

Screenshots are written to the folder that LADDERHOLDOUT_SCREENSHOTS names, for eyes to look at.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
HOST = "http://site"
ADDRESS = re.search(r"^site_url: (\S+?)/?$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)[1]


class Question(NamedTuple):
    """What a newcomer asks, written down before looking for the answer.

    It is answered on `page`, which has `words`, and which is reached by `clicks`, the names of at
    most two links from the landing page, or found by `search`.
    """

    asked: str
    page: str
    words: str
    clicks: tuple[str, ...] = ()
    search: str = ""


QUESTIONS = (
    Question(
        "What does it do for me that a test set by itself does not?",
        "gallery/tuning_by_hand/",
        "believed too much",
        clicks=("The script, and its figures",),
    ),
    Question(
        "How do I put it around my GridSearchCV?",
        "guide/guard/",
        "holdout.guard(",
        clicks=("Search with scikit-learn",),
    ),
    Question(
        "And around my study of Optuna?",
        "guide/optuna/",
        "holdout.optuna.finalists(study",
        clicks=("Study with Optuna",),
    ),
    Question(
        "How many rows does my holdout need, and how often may I query it?",
        "gallery/planning/",
        "how many rows",
        search="how many rows",
    ),
    Question(
        "The search is over. Which number may I report?",
        "tutorial/",
        "What may be believed",
        clicks=("The tutorial",),
    ),
    Question(
        "I have a CSV and no Python. Does it work from the command line?",
        "guide/cli/",
        "ladder-holdout register",
        search="register csv",
    ),
    Question(
        "My training stops early on the holdout. Is that covered?",
        "which_way/",
        "ladder_stopping",
        clicks=("Which way?",),
    ),
    Question(
        "I submitted by mistake. Can I take it back?",
        "explanation/mistakes/",
        "withdraw",
        search="withdraw",
    ),
    Question(
        "My features changed. Do I start afresh?",
        "tutorial/",
        "new features",
        clicks=("The tutorial",),
    ),
    Question(
        "Can an agent or another team use the holdout without seeing its labels?",
        "guide/agents/",
        "token",
        clicks=("Which way?", "Give an agent a holdout"),
    ),
    Question(
        "How do I start over with the same rows?",
        "explanation/reset/",
        "You cannot start over",
        search="start over",
    ),
    Question(
        "I have 150 test rows. Is it of any use?",
        "explanation/small/",
        "rows",
        search="few rows",
    ),
    Question(
        "Does nested cross-validation not do this already?",
        "explanation/one_test/",
        "nested cross-validation",
        search="nested cross-validation",
    ),
    Question(
        "Does it run on Windows?",
        "background/support/",
        "Windows",
        search="windows",
    ),
    Question(
        "What does it cost me?",
        "explanation/price/",
        "width",
        search="what does it cost",
    ),
    Question(
        "May I train the final model on all rows?",
        "guide/guard/",
        "refit_all",
        search="refit on all rows",
    ),
    Question(
        "New labelled rows come every month. What then?",
        "guide/years/",
        "replenish",
        search="fresh rows",
    ),
    Question(
        "Is my new model better than the old one?",
        "guide/keep_or_revert/",
        "better",
        search="keep or revert",
    ),
    Question(
        "My rows are visits, several of each patient.",
        "guide/groups_time/",
        "patients",
        search="patients",
    ),
    Question(
        "What do I write into the report for my boss?",
        "explanation/manager/",
        "interval",
        search="boss",
    ),
)


class Read(HTMLParser):
    """The links, the ids and the links' names of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.named: list[tuple[str, str]] = []
        self._open: list[str] = []
        self._name = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.targets.append(found["href"])
            self._open, self._name = [found["href"]], ""
        if tag in ("img", "script") and "src" in found:
            self.fetched.append(found["src"])
        if tag == "link" and found.get("rel") != "canonical":
            self.fetched.append(found["href"])

    def handle_data(self, data: str) -> None:
        self._name += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._open:
            self.named.append((" ".join(self._name.split()), self._open[0]))
            self._open = []


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all workers of a run; what scripts showed is in its cache.

    LADDERHOLDOUT_SITE names one that `make docs` has built of the same checkout.
    """
    if built := os.environ.get("LADDERHOLDOUT_SITE"):
        assert (Path(built) / "index.html").is_file(), built
        return Path(built)
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", str(folder)],
                cwd=ROOT,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[str, Read]:
    """Each page, by its address in the site."""
    return {
        f"/{path.relative_to(site).as_posix()}".removesuffix("index.html"): Read(
            path.read_text("utf-8")
        )
        for path in site.rglob("*.html")
        if path.name != "404.html"
    }


def inside(base: str, target: str) -> tuple[str, str] | None:
    """The address that a link of a page leads to, and its anchor; None if it leaves the site."""
    address, anchor = urldefrag(urljoin(HOST + base, target))
    if not address.startswith(f"{HOST}/"):
        return None
    return unquote(urlsplit(address).path), unquote(anchor)


def test_no_link_in_the_site_is_dead(site: Path, pages: dict[str, Read]) -> None:
    dead = []
    for base, page in pages.items():
        for target in (*page.targets, *page.fetched):
            found = inside(base, target)
            if found is None:
                continue
            path, anchor = found
            there = path in pages or (site / path.lstrip("/")).is_file()
            # Pictures carry the scheme in their anchor, and a page's own top is everywhere.
            known = not anchor or path not in pages or anchor in pages[path].ids
            if not there or not known:
                dead.append(f"{base} -> {target}")
    assert len(pages) > 80
    assert dead == []


def test_the_site_fetches_nothing_from_elsewhere(pages: dict[str, Read]) -> None:
    elsewhere = {
        target
        for base, page in pages.items()
        for target in page.fetched
        if not target.startswith("data:") and inside(base, target) is None
    }
    assert elsewhere == set()


def test_an_address_that_is_not_there_leads_to_pages_that_are(
    site: Path, pages: dict[str, Read]
) -> None:
    text = (site / "404.html").read_text("utf-8")
    base = urlsplit(ADDRESS).path
    content = text.partition("<article")[2].partition("</article")[0]
    reached = [urlsplit(urljoin(HOST, target)).path for target in Read(content).targets]
    links = [path.removeprefix(base) for path in reached]
    assert len(links) == 5 and set(links) <= set(pages)
    assert "md-search__input" in text


def test_a_posted_link_shows_title_text_and_picture(site: Path, pages: dict[str, Read]) -> None:
    seen = set()
    for base in pages:
        text = (site / base.lstrip("/") / "index.html").read_text("utf-8")
        shown = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)"', text))
        assert shown["url"] == f"{ADDRESS}{base}", base
        assert shown["image"] == f"{ADDRESS}/assets/social.png"
        assert 20 <= len(shown["description"]) <= 220, base
        seen.add(shown["title"])
    assert len(seen) > 0.95 * len(pages)
    picture = (site / "assets" / "social.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (1200, 630)


def test_links_of_the_pages_at_the_root_lead_to_files() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text("utf-8")):
            path = target.split("#")[0]
            assert target.startswith("https://") or not path or (ROOT / path).exists(), target


def test_the_navigation_has_seven_entries_at_most(site: Path) -> None:
    text = (site / "index.html").read_text("utf-8")
    tabs = re.findall(r'<li class="md-tabs__item', text)
    assert 5 <= len(tabs) <= 7


def test_a_newcomers_question_is_answered_in_two_clicks_or_one_search(
    site: Path, pages: dict[str, Read]
) -> None:
    failures = {one.asked: fault for one in QUESTIONS if (fault := unanswered(one, site, pages))}
    assert failures == {}


def unanswered(question: Question, site: Path, pages: dict[str, Read]) -> str:
    """Return why a question is not answered where it has to be, or nothing."""
    if question.words.lower() not in text_of(site / question.page / "index.html").lower():
        return f"{question.page} does not have {question.words}"
    here = "/" if question.clicks else f"/{question.page}"  # TYPED finds it by a search
    assert len(question.clicks) <= 2
    for click in question.clicks:
        links = [to for name, to in pages[here].named if click.lower() in name.lower()]
        found = inside(here, links[0]) if links else None
        if found is None:
            return f"{here} has no link {click}"
        here = found[0]
    return "" if here == f"/{question.page}" else f"the clicks lead to {here}"


def text_of(page: Path) -> str:
    """What a page says, without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.read_text("utf-8")))


def test_the_gallery_has_a_thumbnail_and_a_page_for_each_script(
    site: Path, pages: dict[str, Read]
) -> None:
    scripts = sorted(path.stem for path in (ROOT / "gallery").glob("[!_]*.py"))
    assert len(scripts) >= 16
    shown = " ".join(pages["/gallery/"].fetched)
    for script in scripts:
        assert f"/gallery/{script}/" in pages
        for scheme in ("light", "dark"):
            assert f"{script}-{scheme}.svg#only-{scheme}" in shown
            assert (site / "gallery" / f"{script}-{scheme}.svg").is_file()
        text = (site / "gallery" / script / "index.html").read_text("utf-8")
        assert all(len(alt) > 60 for alt in re.findall(r'<img alt="([^"]*)"', text)), script


def test_pictures_are_drawn_in_colours_that_both_schemes_can_show(site: Path) -> None:
    sys.path.insert(0, str(ROOT / "gallery"))
    try:
        import _style as style
    finally:
        sys.path.remove(str(ROOT / "gallery"))
    for picture in site.rglob("*-light.svg"):
        found = {one.lower() for one in re.findall(r"#[0-9a-fA-F]{6}\b", picture.read_text())}
        assert found <= set(style.DARK), picture
    # 3 to 1 for what is drawn; what is written is INK or QUIET, 4.5 to 1.
    lines = {*style.COLOURS, *style.RAMP[:4]}
    for light, least in [(style.INK, 4.5), (style.QUIET, 4.5), *((one, 3.0) for one in lines)]:
        assert contrast(light, "#ffffff") >= least, light
        assert contrast(style.DARK[light], "#1e2129") >= least, light


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, by WCAG."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_tutorial_is_a_notebook_that_was_run(site: Path) -> None:
    notebook = json.loads((site / "tutorial.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [one for one in outputs if one["output_type"] == "error"]
    kinds = {kind for one in outputs for kind in one.get("data", {})}
    assert {"text/html", "image/svg+xml"} <= kinds
    assert str(ROOT) not in json.dumps(notebook)
    page = text_of(site / "tutorial" / "index.html")
    for promised in ("true score in", "Estimate:", "KnownHoldoutWarning", "fresh rows"):
        assert promised in page, promised


# ---------------------------------------------------------------- in the browser

LOOKS = [
    ("light", 390),
    ("dark", 1280),
    pytest.param("dark", 390, marks=pytest.mark.nightly),
    pytest.param("light", 1280, marks=pytest.mark.nightly),
]
LOOKED_AT = {
    "landing": "",
    "tutorial": "tutorial/",
    "which_way": "which_way/",
    "guide": "guide/guard/",
    "gallery": "gallery/",
    "gallery_page": "gallery/rules_compared/",
}
# What people type, and a page that has to be among the first that are found.
TYPED = {
    "overfitting": "explanation/adaptivity/",
    "test set": "explanation/adaptivity/",
    "early stopping": "early_stopping/",
    "AUC": "auc/",
    "reset": "explanation/reset/",
    "small test set": "explanation/small/",
    "p-hacking": "explanation/adaptivity/",
    "leaderboard": "guide/leaderboard/",
    "nested": "explanation/one_test/",
    "what is a ladder": "explanation/questions/",
    "data sent anywhere": "explanation/questions/",
    "quote the score in a paper": "explanation/questions/",
    "lose the ledger": "explanation/questions/",
    "100 rows": "explanation/small/",
    "cross_val_score": "guide/searchers/",
    "time series": "guide/groups_time/",
    "two people one holdout": "explanation/questions/",
    "which metrics": "explanation/questions/",
    "undo": "explanation/mistakes/",
    **{one.search: one.page for one in QUESTIONS if one.search},
}


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def translate_path(self, path: str) -> str:
            # The page of a lost address cannot know how deep it is: its links begin at the root.
            return super().translate_path(path.removeprefix(urlsplit(ADDRESS).path))

    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def visited(chromium: Browser, scheme: Any = "light", width: int = 1280) -> Page:
    size: Any = {"width": width, "height": 900}
    # A colour on its way to another is no colour to judge.
    context = chromium.new_context(color_scheme=scheme, viewport=size, reduced_motion="reduce")
    return context.new_page()


def faults(page: Page, colours: bool = True) -> list[tuple[str, list[str]]]:
    """What axe finds that is serious, and whether the page is wider than the screen."""
    wanted = {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": colours}}}
    found = [
        (one["id"], [node["html"][:200] for node in one["nodes"]][:5])
        for one in Axe().run(page, options=wanted).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    wide = not page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return found + [("wider than the screen", [])] * wide


@pytest.mark.nightly
def test_every_page_is_readable(chromium: Browser, address: str, pages: dict[str, Read]) -> None:
    """Colours are judged at one width, and not on the decisions: to judge them takes longest."""
    page, found = visited(chromium), {}
    for path in [*pages, "/404.html"]:
        page.goto(address + path.lstrip("/"), wait_until="load")
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            colours = width == 390 and not path.startswith("/decisions/")
            if wrong := faults(page, colours):
                found[path, width] = wrong
    assert found == {}
    page.context.close()


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_the_pages_are_readable(chromium: Browser, address: str, scheme: str, width: int) -> None:
    wanted = os.environ.get("LADDERHOLDOUT_SCREENSHOTS")
    page = visited(chromium, scheme, width)
    said: list[str] = []
    page.on("console", lambda one: said.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda one: said.append(str(one)))
    for name, path in LOOKED_AT.items():
        page.goto(address + path, wait_until="networkidle")
        if wanted:
            shot = Path(wanted) / f"site-{name}-{scheme}-{width}.png"
            page.screenshot(path=shot, full_page=True)
        # Every page has the theme's colours, and to judge them takes longest.
        assert faults(page, colours=name in ("landing", "gallery")) == [], name
        shown = page.evaluate(
            "[...document.querySelectorAll('.md-content img')]"
            ".filter(one => one.offsetParent).map(one => [one.src, one.naturalWidth])"
        )
        assert all(loaded for _, loaded in shown), name
        other = {"light": "dark", "dark": "light"}[scheme]
        assert not [one for one, _ in shown if one.endswith(f"#only-{other}")], name
    assert said == []
    page.context.close()


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_search_finds_what_people_type(chromium: Browser, address: str, every: int) -> None:
    page = visited(chromium)
    for words, wanted in list(TYPED.items())[::every]:
        page.goto(address, wait_until="networkidle")  # no results of the words before
        page.locator("input.md-search__input").focus()
        page.wait_for_timeout(300)  # as people type: what comes before the field is ready is lost
        page.keyboard.type(words, delay=40)
        # The results of the first letters are shown before those of all.
        for _ in range(50):
            found = page.eval_on_selector_all(
                ".md-search-result__item > a.md-search-result__link",
                "all => all.map(one => one.href)",
            )
            if any(wanted in one for one in found):
                break
            page.wait_for_timeout(100)
        else:
            pytest.fail(f"{words}: {found}")
    page.context.close()
