"""What all commands share: the console, questions, errors in a sentence."""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.text import Text

from ladderholdout.errors import LadderHoldoutError, LadderHoldoutWarning, printable
from ladderholdout.guard import commands
from ladderholdout.ledger.log import AT_A_TIME

T = TypeVar("T")

# In a pipe each line stays whole, for grep.
_PIPE = 10_000
# A range as the library's argument states it, which is an option here.
_RANGE = re.compile(r"\b(loss|target)_range=\((\S+), (\S+)\)")
_LONGEST_CELL = 2_000


class _Console(Console):
    """A console on which no text does anything but to be read."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, with whatever acts on a terminal escaped."""
        super().print(
            *(printable(part) if isinstance(part, str) else part for part in objects), **options
        )


def cell(text: str | Text) -> Text:
    """Return a text as a table shows it: in one line, and not without end."""
    shown = text if isinstance(text, Text) else Text(text)
    shown.plain = printable(shown.plain, longest=_LONGEST_CELL).replace("\n", "\\n")
    return shown


def json_of(value: Any) -> str:
    """Return JSON in which what acts on a terminal, or is no Unicode, is escaped."""
    return _escaped(_ENCODE(commands.plain(value)))


# Made once: for what is not the default, json.dumps makes an encoder each time.
_ENCODE = json.JSONEncoder(allow_nan=False, ensure_ascii=False, default=commands.plain).encode


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def console(*, stderr: bool = False) -> Console:
    """Return where results are printed, or errors and warnings."""
    # Without markup and emojis: names are shown as they are.
    out = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = _PIPE
    return out


def print_json(value: Any) -> None:
    """Print JSON that any parser takes: dataclasses as objects, times in ISO 8601."""
    typer.echo(json_of(value))


def print_lines(*lines: str) -> None:
    """Print each line whole, however narrow the terminal is."""
    for line in lines:
        console().print(line, soft_wrap=True)


def print_pages(lines: Iterable[str]) -> None:
    """Print what may be millions of lines, some at a time: to print one costs more than to make it.

    No line is held back while the next one is worked out for long, for they come from memory.
    """
    rest = iter(lines)
    while some := list(islice(rest, AT_A_TIME)):
        typer.echo("\n".join(some))


def print_json_of(
    value: Mapping[str, Any], name: str, rows: Iterable[T], finite: Callable[[T], Any]
) -> None:
    """Print a JSON object whose last member is a list of rows, some at a time.

    They may have times in them. Where they have numbers that JSON does not know, `finite` is
    asked for other ones.
    """
    typer.echo(f'{json_of(value)[:-1]}, "{name}": [', nl=False)
    rest, before = iter(rows), ""
    while some := list(islice(rest, AT_A_TIME)):
        try:
            text = _ENCODE(some)
        except ValueError:  # to check each value before takes as long as to write it
            text = _ENCODE(list(map(finite, some)))
        typer.echo(before + _escaped(text)[1:-1], nl=False)
        before = ", "
    typer.echo("]}")


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal, on standard error; nothing elsewhere."""
    out = console(stderr=True)
    with Bar(console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# Whether the command that runs has --json.
_OUTPUT = {"as_json": False}


def as_json() -> bool:
    """Return whether the command that runs prints JSON."""
    return _OUTPUT["as_json"]


def print_result(result: Any, *lines: str) -> None:
    """Print a result as JSON, or in these lines, by default in the text that it has for people."""
    if as_json():
        print_json(result)
    else:
        print_lines(*(lines or (str(result),)))


def confirm(consequence: str, question: str) -> None:
    """State what cannot be undone, and end the command unless somebody confirms it."""
    typer.echo(consequence, err=True)
    typer.confirm(question, abort=True, err=True)


def reported(
    command: Callable[..., None], status: Callable[[Exception], int] | None = None
) -> Callable[..., None]:
    """Make a command print the library's own errors and warnings, without a traceback.

    Both go to standard error, as sentences, or as JSON objects with --json; an error ends with
    exit status 1, or with the `status` of it, which faults of any kind have then.
    """

    @functools.wraps(command)
    def run(*, as_json: bool = False, **options: Any) -> None:
        _OUTPUT["as_json"] = as_json

        def report(what: str, message: str, kind: str) -> None:
            if as_json:
                typer.echo(json_of({what: message, "kind": kind}), err=True)
            else:
                console(stderr=True).print(f"{what.capitalize()}: {message}", soft_wrap=True)

        def warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            report("warning", _RANGE.sub(r"--\1-range \2 \3", str(message)), category.__name__)

        try:
            with warnings.catch_warnings(), _collecting_seldom():
                warnings.simplefilter("always", LadderHoldoutWarning)
                warnings.showwarning = warn
                command(**options)
        except LadderHoldoutError as error:
            report("error", str(error), type(error).__name__)
            raise typer.Exit(1 if status is None else status(error)) from None
        except Exception as error:
            # Whoever goes by the exit status must not take a fault for an answer.
            if isinstance(error, typer.Exit | typer.Abort | typer.BadParameter) or status is None:
                raise
            traceback.print_exc()
            raise typer.Exit(status(error)) from None

    return run


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Let Python look for cycles after as many objects as some rows of a ledger have.

    After 700 it would go through all that was imported dozens of times while a million rows pass.
    """
    first, *rest = gc.get_threshold()
    gc.set_threshold(max(first, 10 * AT_A_TIME) if first else 0, *rest)  # 0: it is turned off
    try:
        yield
    finally:
        gc.set_threshold(first, *rest)
