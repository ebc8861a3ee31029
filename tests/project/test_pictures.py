"""Attacks the pictures of the explanation: numbers that the pages do not show, unreadable files."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "explanation"
ASSETS = ROOT / "docs" / "assets"


def printed_on(name: str) -> str:
    """Return what the page shows under the command that draws its picture."""
    page = (PAGES / f"{name}.md").read_text("utf-8")
    shown = re.search(
        rf"--only {name}`\s+draws\s+it and prints:\*\n\n```text\n(.*?)```", page, re.S
    )
    assert shown is not None
    return shown[1]


def drawn(name: str, out: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Draw a picture, and return what was printed before its name."""
    script = runpy.run_path(str(ROOT / "benchmarks" / "pictures.py"))
    script["main"]([*words, "--only", name, "--out", str(out)])
    return capsys.readouterr().out.partition("picture:")[0]


def plain(text: str) -> str:
    return " ".join(text.split())


PICTURES = ("adaptivity", "mechanisms", "certificates", "decisions")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_no_background_and_the_heads_of_its_page(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = drawn(name, tmp_path, capsys, "--quick")
    picture = (tmp_path / f"{name}.svg").read_text()
    assert "#ffffff" not in picture
    assert "<dc:date>" not in picture
    first = printed_on(name).splitlines()[0]
    assert re.sub(r"\d+", "N", first) == re.sub(r"\d+", "N", printed.splitlines()[0])


# One seed and one style are for all of them.
@pytest.mark.parametrize(
    "name",
    ["decisions", *(pytest.param(name, marks=pytest.mark.nightly) for name in PICTURES[:3])],
)
def test_a_picture_is_drawn_the_same_twice(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = [drawn(name, tmp_path / again, capsys, "--quick") for again in ("once", "twice")]
    once, twice = ((tmp_path / again / f"{name}.svg").read_text() for again in ("once", "twice"))
    assert printed[0] == printed[1]
    assert once == twice


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["adaptivity", "mechanisms", "decisions"])
def test_the_page_shows_what_the_command_printed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plain(drawn(name, tmp_path, capsys)) == plain(printed_on(name))


def test_the_pictures_are_small_and_on_their_pages() -> None:
    for name in PICTURES:
        assert (ASSETS / f"{name}.svg").stat().st_size < 100_000, name
        assert f"../assets/{name}.svg" in (PAGES / f"{name}.md").read_text("utf-8"), name
