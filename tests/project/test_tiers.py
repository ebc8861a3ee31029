"""Attacks the tiers: a test that none of them runs, or that starts what its tier does without."""

from __future__ import annotations

import ast
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.beyond_plain import NEEDED

ROOT = Path(__file__).parents[2]
MARKS = ("deep", "nightly", "processes", "long", "quick")
# The modules that are files and no packages have their tests in `facade`.
FOLDERS = {"clients", "deep", "facade", "golden", "project", "promises", "support"}
pytestmark = pytest.mark.quick


def selections() -> dict[str, str]:
    """The marks that each target of the Makefile selects by, of those that run in .venv."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        options = tomllib.load(file)["tool"]["pytest"]["ini_options"]["addopts"]
    found = {}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = re.findall(r"^([a-z-]+):.*\n\t(\$\(BIN\).* -m pytest.*)$", makefile, re.M)
    for target, command in commands:
        chosen = re.search(r'-m pytest .*-m (?:"(.*)"|(\w+))$', command)
        found[target] = (chosen[1] or chosen[2]) if chosen else options[options.index("-m") + 1]
    return found


def selects(expression: str, marks: frozenset[str]) -> bool:
    """What pytest makes of `-m`: the grammar is a part of Python's."""
    return bool(eval(expression, {"__builtins__": {}}, {mark: mark in marks for mark in MARKS}))


def targets_of_ci() -> list[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    check = re.search(r"^check: (.*?) ##", makefile, re.M)
    run = re.findall(r"\bmake ([a-z-]+)", (ROOT / ".ci" / "run").read_text("utf-8"))
    assert check is not None
    return [target for one in run for target in (check[1].split() if one == "check" else [one])]


def test_every_test_is_in_one_tier_that_ci_runs_or_nightly(
    collected: dict[str, frozenset[str]],
) -> None:
    gated = {"test", "test-processes", "test-long", "test-deep"}
    assert gated <= set(targets_of_ci()) and "nightly" not in targets_of_ci()
    tiers = {target: marks for target, marks in selections().items() if target != "quick"}
    assert set(tiers) == gated | {"nightly"}
    for test, marks in collected.items():
        of = [target for target, expression in tiers.items() if selects(expression, marks)]
        assert len(of) == 1, f"{test} is in {of}"


def test_other_peoples_software_is_tested_in_an_environment_of_its_own(
    collected: dict[str, frozenset[str]],
) -> None:
    assert "test-clients" in targets_of_ci() and (ROOT / "tests" / "clients").is_dir()
    assert not any(test.startswith("tests/clients") for test in collected)


def test_what_is_quick_is_a_part_of_make_test(collected: dict[str, frozenset[str]]) -> None:
    found = selections()
    quick = [marks for marks in collected.values() if selects(found["quick"], marks)]
    assert quick and all(selects(found["test"], marks) for marks in quick)


def test_what_is_quick_is_where_make_quick_looks_for_it(
    collected: dict[str, frozenset[str]],
) -> None:
    places = re.search(r"src/ladderholdout/,(.*)\)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert places is not None
    rooms = tuple(f"src/ladderholdout/{one}" for one in places[1].split())
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if "mark.quick" in path.read_text("utf-8")
    }
    quick = selections()["quick"]
    for test, marks in collected.items():
        if selects(quick, marks):
            assert test.startswith(rooms) or test.split("::")[0] in marked, test


def test_every_test_file_is_in_the_folder_of_a_room_or_of_a_kind() -> None:
    rooms = {path.parent.name for path in (ROOT / "src" / "ladderholdout").glob("*/__init__.py")}
    paths = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")]
    astray = [path for path in paths if path.parts[0] not in rooms | FOLDERS]
    assert {path.as_posix() for path in astray} == {"__init__.py", "conftest.py"}
    assert not [path for path in paths if "support" in path.parts and path.match("test_*.py")]


def imported_at_the_top(statements: list[ast.stmt]) -> Iterator[str]:
    """Packages that are imported when a module is, and not by the reader of types alone."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name.split(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield str(statement.module).split(".")[0]
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
                continue
            inner = [*statement.body, *getattr(statement, "orelse", [])]
            inner += [line for one in getattr(statement, "handlers", []) for line in one.body]
            yield from imported_at_the_top(inner)


@pytest.mark.parametrize("file", ["conftest.py", "tests/conftest.py"])
def test_every_test_can_be_collected_with_the_plain_installation(file: str) -> None:
    with (ROOT / "pyproject.toml").open("rb") as project:
        stated = tomllib.load(project)["project"]["dependencies"]
    plain = {re.match(r"[\w.-]+", one)[0].lower() for one in stated}
    plain.add("pytest")
    brought = packages_distributions()
    imported = set(imported_at_the_top(ast.parse((ROOT / file).read_text("utf-8")).body))
    assert "pytest" in imported
    for package in imported - sys.stdlib_module_names - {"ladderholdout", "tests"}:
        assert plain & {one.lower() for one in brought.get(package, [])}, package


@pytest.mark.parametrize("package", NEEDED)
def test_no_test_of_make_test_is_skipped_for_a_package(package: str) -> None:
    assert find_spec(package) is not None


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def spawn() -> None:
    multiprocessing.get_context("spawn").Process(target=os.getpid).start()


def serve() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "--version"], check=True),
        lambda: os.system("true"),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        fork,
        spawn,
        serve,
    ],
    ids=["subprocess", "system", "posix_spawn", "fork", "spawn", "server"],
)
def test_a_test_of_this_tier_starts_no_process_and_no_server(
    start: Callable[[], object], refused: list[str]
) -> None:
    with pytest.raises(RuntimeError, match="only tests marked `processes`"):
        start()
    assert refused
    refused.clear()  # or it would fail this test too


def test_what_was_refused_fails_the_test_even_where_the_code_goes_on(refused: list[str]) -> None:
    with pytest.raises(RuntimeError):
        subprocess.run([sys.executable, "--version"], check=True)
    assert len(refused) == 1
    refused.clear()
