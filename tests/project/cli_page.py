"""The reference of the command line, written from the commands: docs/reference/cli.md.

    python tests/project/cli_page.py --write

tests/project/test_reference.py compares the page with the commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from ladderholdout.cli import COMMANDS, app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
HEAD = """# The command line

This page is generated from the commands; `ladder-holdout COMMAND --help` prints the same.
[Commands in a session](../guide/cli.md) shows them at work.

Every command with `--json` prints one JSON value on standard output, with times in ISO 8601 and
`null` for what is missing; a score that is not finite is a text. Errors and warnings are sentences
on standard error, with `--json` objects `{"error": ..., "kind": ...}` and
`{"warning": ..., "kind": ...}`, one a line.

| status | means |
| --- | --- |
| 0 | done; for `verify`, the record is as it was written |
| 1 | refused, or aborted at a question; for `verify`, something was found |
| 2 | a command, an option or a value that cannot be parsed |
"""


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def shown(parameter: Any) -> str:
    """Return an option with its value, as it is typed."""
    if parameter.param_type_name == "argument":
        return f"`{word(parameter)}`"
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" {parameter.metavar or kind(parameter)}"
    return f"`{names}{value}`"


def word(argument: Any) -> str:
    return argument.metavar or argument.name.upper()


def kind(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    named = {int: "NUMBER", float: "NUMBER", Path: "PATH"}
    return named.get(annotation, "TEXT")


def default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if parameter.default is None or parameter.default is False:
        return ""
    return f"`{parameter.default}`"


def usage(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    typed = [word(one) if one.required else f"[{word(one)}]" for one in arguments]
    needed = [
        shown(one).strip("`")
        for one in command.params
        if one.required and one.param_type_name == "option"
    ]
    return " ".join(["ladder-holdout", name, *typed, *needed, "[OPTIONS]"])


def parts() -> Iterator[str]:
    yield HEAD
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for panel, names in COMMANDS.items():
        yield f"\n## {panel}\n"
        for name in names:
            command = commands[name]
            yield f"\n### {name}\n\n```text\n{usage(name, command)}\n```\n"
            yield f"\n{command.help.strip()}\n"
            yield "\n| option | default | meaning |\n| --- | --- | --- |\n"
            for one in command.params:
                again = "; may be repeated" if one.multiple else ""
                yield f"| {shown(one)} | {default(one)}{again} | {cell(one.help or '')} |\n"


def page() -> str:
    return "".join(parts())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the page")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
