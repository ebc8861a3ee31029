"""Attacks the reference: names without an example, missing names, commands that differ."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import cli_page

from tests.support import tree

MLFLOW = mlflow.__name__
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ENTRY = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)
# What these import, `make test` does not install.
DEEP = re.compile(r"\.integrations\.(inspect_ai|keras|lightning|skorch|torch)\b")
# Needs models of language; docs/guide/prompts.md is run by `make test-clients`.
PROMPTS = "ladderholdout.integrations.prompts."
# Shown by scikit-learn for every estimator.
OF_SKLEARN = {"get_metadata_routing", "set_score_request"}


def resolved(path: str) -> Any:
    """Return what a dotted path names: a module, or something in one."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = (
                inspect.getattr_static(found, name)
                if inspect.isclass(found)
                else getattr(found, name)
            )
        return found
    raise ModuleNotFoundError(path)


def function_of(member: Any) -> Any:
    return getattr(member, "__func__", getattr(member, "fget", member))


def entries() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield each public name of the pages, with the options that it is shown with."""
    for page in sorted(REFERENCE.glob("*.md")):
        for path, text in ENTRY.findall(tree.source(page)):
            if DEEP.search(path) or path.startswith(PROMPTS):
                continue
            options = (yaml.safe_load(text) or {}).get("options", {})
            found = resolved(path)
            if not inspect.ismodule(found):
                yield path, found, options
                continue
            names = getattr(found, "__all__", None) or [
                name
                for name, one in vars(found).items()
                if not name.startswith("_") and getattr(one, "__module__", "") == found.__name__
            ]
            for name in names:
                yield f"{path}.{name}", getattr(found, name), {}


def documented() -> Iterator[tuple[str, str, str]]:
    """Yield each name with its docstring, and the examples of the class that it is of."""
    for path, found, options in entries():
        one = function_of(found)
        if not (inspect.isclass(one) or inspect.isfunction(one)):
            continue  # a constant
        yield path, inspect.getdoc(one) or "", ""
        members = options.get("members", True)
        if not inspect.isclass(one) or members is False:
            continue
        inherited = {name for base in one.__mro__[1:] for name in vars(base)}
        for name, member in vars(one).items():
            listed = members is True or name in members
            if listed and not name.startswith("_") and inspect.isfunction(function_of(member)):
                overrides = name in inherited or name in OF_SKLEARN
                if not overrides and not isinstance(member, property):
                    yield f"{path}.{name}", function_of(member).__doc__ or "", one.__doc__ or ""


def code_of(text: str) -> str:
    return "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.) .*", text, re.MULTILINE))


def test_every_public_name_has_an_example() -> None:
    """A class and a function have their own; a method may be in that of its class."""
    names = {path: (own, of_class) for path, own, of_class in documented()}
    assert len(names) > 350
    missing = [
        path
        for path, (own, of_class) in names.items()
        if ">>>" not in own and not re.search(rf"\b{path.rsplit('.', 1)[1]}\(", code_of(of_class))
    ]
    assert missing == []


def test_the_methods_of_the_holdout_are_each_on_one_page() -> None:
    holdout = "ladderholdout.LadderHoldout"
    shown = [path.rsplit(".", 1)[1] for path, *_ in entries() if path.startswith(f"{holdout}.")]
    (options,) = (options for path, _, options in entries() if path == holdout)
    shown += options["members"]
    from ladderholdout import LadderHoldout

    public = {name for name in dir(LadderHoldout) if not name.startswith("_")}
    assert len(shown) == len(set(shown))
    assert public - set(shown) == OF_SKLEARN


def test_the_page_of_the_command_line_is_that_of_the_commands() -> None:
    written = cli_page.PAGE.read_text(encoding="utf-8")
    assert written == cli_page.page(), "python tests/project/cli_page.py --write"


def test_every_parameter_of_a_command_has_a_help() -> None:
    commands = cli_page.get_command(cli_page.app).commands.items()
    nameless = [
        (name, one.name) for name, command in commands for one in command.params if not one.help
    ]
    assert nameless == [("account", "action")]  # its values are their own names
