"""Attacks the pages: sessions that do not run, outputs that are not real, commands not there."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.main import get_command

from ladderholdout.cli import app
from tests.support.commands import CliRunner
from tests.support.fixed_secrets import fixed_secrets
from tests.support.tree import pages, source

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
# Run by make test-clients, which has what they import.
ELSEWHERE = {
    "evaluations",
    "mlflow_registry",
    "persistence",
    "prompts",
    "searchers",
    "works_with",
}
SESSIONS = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "which_way.md",
    *(
        one
        for part in ("guide", "explanation", "background")
        for one in sorted((ROOT / "docs" / part).glob("*.md"))
        if one.stem not in ELSEWHERE
    ),
]
# What the pages show where a run shows a path of this machine, or a moment.
LEDGER = "~/.local/share/ladderholdout/ledger.db"
MOMENT = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?")

# Pages with simulations that draw binomials, and the sum of some that NumPy before 2.5 draws.
SIMULATED = {"attacks", "mechanisms", "rehearsal"}
BINOMIALS = 119932

# Blocks that simulate for seconds, by page: make nightly runs these pages whole.
SIMULATIONS = {
    "attacks": ("Enumeration", "ShiftedMajority", "HillClimb", "not_ruled_out", "KnobClimb"),
}

number = re.compile(r"\d+(?:\.\d+)?")
block = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page, and the output that is shown under it."""

    language: str
    text: str
    shown: str


def runs(one: Block) -> bool:
    return one.language in ("python", "console")


def blocks(page: Path) -> Iterator[Block]:
    found = [Block(*match.groups(), "") for match in block.finditer(source(page))]
    for one, after in itertools.zip_longest(found, found[1:]):
        if one.language != "text":
            is_shown = after is not None and after.language == "text"
            yield one._replace(shown=after.text if is_shown else "")


def plain(output: str, ledger: Path) -> str:
    """Take out what differs from run to run; lines may be wrapped on a page."""
    return " ".join(MOMENT.sub("MOMENT", output.replace(str(ledger), LEDGER)).split())


def commands(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").split(" #")[0].strip() for line in lines if line.strip()]


def run_python(text: str, names: dict[str, object]) -> str:
    def say(message: Warning | str, category: type[Warning], *_: object) -> None:
        print(f"{category.__name__}: {message}")

    output = io.StringIO()
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("always")
        # Optuna closes none of its own, and Python 3.13 warns of it.
        warnings.filterwarnings("ignore", "unclosed database", ResourceWarning)
        warnings.showwarning = say
        exec(compile(text, "<page>", "exec"), names)
    return output.getvalue()


def run_command(line: str) -> str:
    """Run a command as in a terminal, and those of the package in this process: it is imported."""
    program, *words = shlex.split(line)
    if program == "ladder-holdout":
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (line, done.output, done.exception)
        return done.stdout
    words[:0] = [{"python": sys.executable}[program]]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    "page",
    [page for page in SESSIONS if any(map(runs, blocks(page)))],
    ids=lambda page: f"{page.parent.name}-{page.stem}",
)
def test_the_sessions_of_a_page_give_the_output_it_shows(
    page: Path, default_ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    slow = SIMULATIONS.get(page.stem, ())
    quick = [one for one in blocks(page) if not any(part in one.text for part in slow)]
    compare(page, quick, default_ledger, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SIMULATIONS)
def test_the_simulations_of_a_page_give_the_output_it_shows(
    name: str, default_ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (page,) = (one for one in SESSIONS if one.stem == name)
    found = list(blocks(page))
    for part in SIMULATIONS[name]:
        assert any(part in one.text for one in found), part
    monkeypatch.chdir(tmp_path)
    compare(page, found, default_ledger, monkeypatch)


def compare(
    page: Path, found: list[Block], default_ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run blocks of a page one after the other, and compare what they print with the page."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(os, "urandom", fixed_secrets(page.stem))
    names: dict[str, object] = {"__name__": "__main__"}
    for one in found:
        if one.language == "python":
            came = run_python(one.text, names)
        elif one.language == "console":
            came = "".join(map(run_command, commands(one.text)))
        else:
            continue
        came, shown = plain(came, default_ledger), plain(one.shown, default_ledger)
        assert came == shown or draws_differ(page, came, shown), one.text


def draws_differ(page: Path, came: str, shown: str) -> bool:
    """Whether only the numbers of a simulation differ, by less than its draws' own noise.

    NumPy 2.5 draws other binomials from a seed than the versions before, by which the pages show
    what they show; there they have to be the same to the last digit.
    """
    as_before = np.random.default_rng(5).binomial(400, 0.3, 1000).sum() == BINOMIALS
    if as_before or page.stem not in SIMULATED or number.sub("0", came) != number.sub("0", shown):
        return False
    pairs = zip(number.findall(came), number.findall(shown), strict=True)
    return all(float(one) == pytest.approx(float(other), rel=0.3) for one, other in pairs)


def test_the_readme_shows_a_session_and_the_two_commands_on_a_screen_or_two() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80
    readme = list(blocks(ROOT / "README.md"))
    assert any(one.language == "python" and one.shown for one in readme)
    first = next(one for one in readme if one.language == "sh")
    assert commands(first.text) == ["make demo", "make test"]


def shell_lines() -> Iterator[tuple[Path, str]]:
    for page in pages():
        for one in blocks(page):
            if one.language in ("sh", "console"):
                yield from ((page, line) for line in commands(one.text))
        # Commands in running text count as well.
        text = block.sub("", source(page))
        for line in re.findall(r"`((?:ladder-holdout|make|python \S+\.py)\b[^`]*)`", text):
            yield page, " ".join(line.split())


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", source(ROOT / "Makefile"), re.MULTILINE)
    assert {word for word in words if "=" not in word} <= set(targets)  # and settings, A=B


def check_script(words: list[str]) -> None:
    script = ROOT / words[0]
    script = script / "__main__.py" if script.is_dir() else script
    assert script.is_file()
    options = [word for word in words[1:] if word.startswith("-")]
    assert all(option in script.read_text() for option in options)


@cache
def subcommands() -> dict[str, Any]:
    return get_command(app).commands  # type: ignore[attr-defined, no-any-return]


def check_ladder_holdout(words: list[str]) -> None:
    if not words or words[0].startswith("-") or words[0].isupper():
        return
    options = {name for option in subcommands()[words[0]].params for name in option.opts}
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= options | {"--help"}


def test_the_commands_on_the_pages_exist() -> None:
    checks = {"make": check_make, "python": check_script, "ladder-holdout": check_ladder_holdout}
    seen = set()
    for page, line in shell_lines():
        first, *words = shlex.split(line)
        if first in checks:
            try:
                checks[first](words)
            except (AssertionError, KeyError) as error:
                raise AssertionError(f"{page.relative_to(ROOT)}: {line}") from error
            seen.add(first)
    assert seen == set(checks)


def test_the_links_of_the_readme_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text()):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_page_of_the_mechanisms_shows_what_the_benchmark_printed() -> None:
    page = (ROOT / "docs" / "background" / "mechanisms.md").read_text()
    printed = next(
        found[1] for found in block.findall(page) if found[1].startswith("A fixed grid of")
    )
    benchmark = runpy.run_path(str(ROOT / "benchmarks" / "optimism.py"))
    candidates = np.prod([len(values) for values in benchmark["GRID"].values()])
    assert f"A fixed grid of {candidates} candidates" in printed
    for n in (150, benchmark["GUESSED_ROWS"]):
        assert all(name in printed for name in benchmark["mechanisms"](n))


def test_the_promises_name_each_file_of_tests_that_tries_to_break_them() -> None:
    named = set(re.findall(r"`(tests/\S+\.py)`", (ROOT / "docs" / "promises.md").read_text()))
    files = {f"tests/promises/{one.name}" for one in (ROOT / "tests/promises").glob("test_*.py")}
    assert files - named == set()
    assert [file for file in named if not (ROOT / file).is_file()] == []
