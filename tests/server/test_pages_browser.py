"""The pages in a real Chromium: what people do, by mouse, by keyboard and on a phone.

Screenshots are written to the folder that LADDERHOLDOUT_SCREENSHOTS names, for eyes to look at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page

from ladderholdout import LadderHoldout
from ladderholdout.leaderboard import Leaderboard
from tests.support.server import N, local_pages, registered, rows, serving, token_of

pytestmark = pytest.mark.processes

# Each theme and each width once; `make nightly` has them the other way round, too.
LOOKS = [("light", 390), ("dark", 1280), ("light", 1280), ("dark", 390)]


def looks(gated: int) -> pytest.MarkDecorator:
    """One look in the gate, another for each thing that is done, and all of them at night."""
    others = [one for one in range(len(LOOKS)) if one != gated]
    nightly = [pytest.param(*LOOKS[one], marks=pytest.mark.nightly) for one in others]
    return pytest.mark.parametrize(("theme", "width"), [LOOKS[gated], *nightly])


@dataclass(slots=True)
class Site:
    """A server with a holdout that was queried, and how somebody visits it."""

    url: str
    ledger: Path
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    ledger, (X, y) = folder / "ledger.db", rows()
    Leaderboard(X, np.array(["no", "yes"])[y], scoring="accuracy", name="churn", ledger=ledger)
    roles = {"ada": "analyst", "ben": "analyst", "rita": "reader", "olga": "owner"}
    tokens = {name: token_of(ledger, name, role) for name, role in roles.items()}
    rng = np.random.default_rng(0)
    for place in range(24):
        right = rng.random(N) < 0.6 + 0.01 * place
        held = LadderHoldout.open(
            "churn", account="ada" if place % 3 else "ben", ladder="leaderboard", ledger=ledger
        )
        guess = np.array(["no", "yes"])[np.where(right, y, 1 - y)]
        held.submit(guess, context={"idea": f"model {place}"})
    with serving(ledger, folder, "--allow-estimates", "*") as server:
        yield Site(server.url, ledger, tokens)


@contextmanager
def visiting(chromium: Browser, **context: Any) -> Iterator[Page]:
    """A browser of somebody's own, whose console has nothing to complain of."""
    # A colour on its way to another is no colour to judge.
    opened: BrowserContext = chromium.new_context(reduced_motion="reduce", **context)
    page, said = opened.new_page(), list[str]()
    page.on("console", lambda one: said.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda one: said.append(str(one)))
    try:
        yield page
    finally:
        opened.close()
    # A refused form is an answer with a status, which Chromium notes.
    assert [one for one in said if "the server responded with a status of 4" not in one] == []


def look(theme: str, width: int) -> dict[str, Any]:
    return {"color_scheme": theme, "viewport": {"width": width, "height": 900}}


Kept = Callable[[Page, str], None]


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Kept:
    """Judge a page by axe and by its width, and keep what it looks like where that is wished."""
    wished = os.environ.get("LADDERHOLDOUT_SCREENSHOTS")
    stated = getattr(request.node, "callspec", None)
    mark = "-".join(map(str, stated.params.values())) if stated else "light-1280"

    def keep(page: Page, name: str) -> None:
        if wished:
            Path(wished).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(wished) / f"{name}-{mark}.png", full_page=True)
        found = Axe().run(page).response["violations"]
        severe = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in severe] == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name

    return keep


def sign_in(page: Page, site: Site, name: str) -> None:
    page.goto(site.url)
    page.get_by_label("Token").fill(site.tokens[name])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site.url}/")


def predictions(folder: Path, seed: int) -> Path:
    file = folder / f"predictions-{seed}.csv"
    guess = np.random.default_rng(seed).choice(["no", "yes"], N)
    file.write_text("\n".join(["label", *guess]))
    return file


@looks(0)
def test_an_analyst_signs_in_uploads_and_sees_the_release(
    chromium: Browser, site: Site, kept: Kept, tmp_path: Path, theme: str, width: int
) -> None:
    with visiting(chromium, **look(theme, width)) as page:
        page.goto(f"{site.url}/holdouts/churn")
        assert "/sign-in" in page.url
        page.get_by_label("Token").fill("lh_wrong")
        page.get_by_role("button", name="Sign in").click()
        assert page.get_by_role("alert").is_visible()
        kept(page, "sign-in")
        page.get_by_label("Token").fill(site.tokens["ada"])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{site.url}/holdouts/churn")
        assert page.locator("[data-plot] svg:visible").count() == 1
        page.get_by_text("The improvements as a table").click()
        page.get_by_text("What it assumes, and its price").click()
        kept(page, "holdout")
        before = int(page.locator(".figures dd").nth(2).inner_text())
        page.get_by_label("File").set_input_files(
            predictions(tmp_path, LOOKS.index((theme, width)))
        )
        page.get_by_label("Note for the history").fill("coins, thrown by a person")
        page.get_by_role("button", name="Submit").click()
        page.wait_for_url(f"{site.url}/holdouts/churn/submissions/{before + 1}")
        assert "did not improve on the incumbent" in page.inner_text("main")
        assert "coins, thrown by a person" in page.inner_text("main")
        kept(page, "submission")
        page.get_by_text("Back to churn").click()
        page.get_by_label("File").set_input_files(
            {"name": "a.csv", "mimeType": "text/csv", "buffer": b"label\nno\nyes\n"}
        )
        page.get_by_role("button", name="Submit").click()
        assert "400 rows" in page.get_by_role("alert").inner_text()
        kept(page, "refused")
        page.get_by_role("link", name="Leaderboard").click()
        assert {"ada", "ben"} <= set(page.locator("tbody th").all_inner_texts())
        kept(page, "leaderboard")
        page.get_by_role("link", name="All holdouts").click()
        kept(page, "holdouts")
        page.goto(f"{site.url}/nowhere")
        kept(page, "nothing")
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url(f"{site.url}/sign-in")
        page.goto(f"{site.url}/docs")
        kept(page, "docs")


@looks(1)
def test_an_owner_adds_and_revokes_an_account(
    chromium: Browser, site: Site, kept: Kept, theme: str, width: int
) -> None:
    name = f"eve-{theme}-{width}"
    with visiting(chromium, **look(theme, width)) as page, visiting(chromium) as theirs:
        sign_in(page, site, "olga")
        page.goto(f"{site.url}/holdouts/churn/manage")
        form = page.locator("section", has_text="Add an account")
        form.get_by_label("Name").fill(name)
        form.get_by_label("Submissions a day").fill("7")
        form.get_by_role("button", name="Add").click()
        token = page.locator("#secret").inner_text()
        kept(page, "token")
        page.reload()  # asks for the page of the accounts, and for no other token
        assert page.url.endswith("/manage") and token not in page.content()
        card = page.locator("li", has_text=name)
        assert "7 submissions" in card.inner_text()
        card.get_by_text(f"Change {name}").click()
        kept(page, "manage")
        sign_in(theirs, Site(site.url, site.ledger, {"eve": token}), "eve")
        theirs.get_by_role("link", name="churn").click()
        assert theirs.get_by_role("heading", name="Submit predictions").is_visible()
        card.get_by_role("button", name=f"Revoke {name}").click()
        assert "revoked" in page.locator("li", has_text=name).inner_text()
        theirs.reload()
        assert "/sign-in" in theirs.url
        page.goto(f"{site.url}/holdouts/churn/submissions/1?account=ben")
        page.get_by_text("Withdraw this submission").click()
        kept(page, "withdraw")


@looks(0)
def test_one_person_looks_at_a_ledger(
    chromium: Browser, kept: Kept, tmp_path: Path, theme: str, width: int
) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger, "spring", seed=1)
    holdout = registered(ledger, "churn", scoring="roc_auc")
    _, y = rows()
    rng = np.random.default_rng(0)
    for place in range(6):
        holdout.submit(0.1 * place * y + rng.uniform(size=N), context={"idea": f"model {place}"})
    with (
        local_pages(ledger, tmp_path) as (server, printed),
        visiting(chromium, **look(theme, width)) as page,
        visiting(chromium) as late,
    ):
        page.goto(printed)
        page.wait_for_url(f"{server.url}/")
        assert page.locator("tbody tr").count() == 2
        kept(page, "ui-holdouts")
        late.goto(printed)
        assert "It works once" in late.inner_text("main")
        page.get_by_role("link", name="spring").click()
        kept(page, "ui-empty")
        page.goto(f"{server.url}/holdouts/churn")
        page.get_by_role("button", name="Work it out").click()
        page.wait_for_url(re.compile("#certificate"))
        assert "however it was searched for" in page.inner_text("#certificate ~ p")
        kept(page, "ui-holdout")
        page.get_by_role("link", name="Report", exact=True).click()
        assert "This report holds no raw score" in page.inner_text("main")
    assert holdout.status().opened is None


def test_all_of_it_goes_by_keyboard(chromium: Browser, site: Site, tmp_path: Path) -> None:
    with visiting(chromium) as page:
        press = page.keyboard.press
        # The browser hands file choosers over only while somebody listens, and takes a moment to
        # begin: a key that is pressed before would open a window that nobody sees.
        page.on("filechooser", lambda _: None)

        def focused() -> str:
            return str(
                page.evaluate(
                    "(e => e.id || e.getAttribute('aria-label') || e.textContent.trim())"
                    "(document.activeElement)"
                )
            )

        def tab_to(name: str) -> None:
            for _ in range(80):
                press("Tab")
                if focused() == name:
                    return
            raise AssertionError(f"{name} is not reached")

        page.goto(site.url)
        press("Tab")
        assert focused() == "To the content"
        press("Enter")
        tab_to("token")
        page.keyboard.type(site.tokens["rita"])
        press("Enter")
        page.wait_for_url(f"{site.url}/")
        tab_to("churn")
        press("Enter")
        page.wait_for_url(f"{site.url}/holdouts/churn/leaderboard")
        tab_to("Holdout")
        press("Enter")
        page.wait_for_url(f"{site.url}/holdouts/churn")
        tab_to("Sign out")
        press("Enter")
        page.wait_for_url(f"{site.url}/sign-in")

        tab_to("token")
        page.keyboard.type(site.tokens["ben"])
        press("Enter")
        page.wait_for_url(f"{site.url}/")
        page.goto(f"{site.url}/holdouts/churn")
        tab_to("Improvements: arrow keys go from one to the next")
        texts = []
        for key in ("End", "ArrowLeft", "Home"):
            press(key)
            texts.append(page.locator("[data-plot-text]").inner_text())
        assert len(set(texts)) == 3 and texts[2].startswith("Submission 1,")
        assert page.locator("svg:visible .dot.on").count() == 1
        tab_to("file")
        with page.expect_file_chooser() as chooser:
            press("Enter")
        chooser.value.set_files(predictions(tmp_path, 99))
        tab_to("note")
        page.keyboard.type("by keyboard")
        press("Enter")
        page.wait_for_url(re.compile("/submissions/"))
        assert "by keyboard" in page.inner_text("main")


def test_it_works_without_javascript(chromium: Browser, site: Site, tmp_path: Path) -> None:
    with visiting(chromium, java_script_enabled=False) as page:
        sign_in(page, site, "ben")
        page.get_by_role("link", name="churn").click()
        page.get_by_label("File").set_input_files(predictions(tmp_path, 98))
        page.get_by_role("button", name="Submit").click()
        page.wait_for_url(re.compile("/submissions/"))
        assert page.get_by_role("heading", name="What it means").is_visible()
        assert page.locator("button:visible").all_inner_texts() == ["Sign out"]


def test_a_theme_that_was_chosen_stays(chromium: Browser, site: Site) -> None:
    with visiting(chromium, color_scheme="light") as page:
        paper = "getComputedStyle(document.body).backgroundColor"
        page.goto(site.url)
        light = page.evaluate(paper)
        page.get_by_role("button", name="Dark theme").click()
        assert page.evaluate(paper) != light
        page.reload()
        assert page.evaluate(paper) != light
        page.get_by_role("button", name="Light theme").click()
        assert page.evaluate(paper) == light
