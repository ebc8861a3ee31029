"""What all commands share: the app, its common options, the console, errors in a sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from ladderholdout.errors import LadderHoldoutError, LadderHoldoutWarning
from ladderholdout.ledger import holdout_names, resolve_url

# In a pipe each line stays whole, for grep.
_PIPE = 10_000

app = typer.Typer(
    name="ladder-holdout",
    help="Look at your holdout as often as you like, and still have a number you can believe.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _known_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a holdout's name; a ledger that cannot be read has none to offer."""
    try:
        names = holdout_names(resolve_url(ctx.params.get("ledger")))
    except LadderHoldoutError:
        return []
    return [name for name in names if name.startswith(incomplete)]


LedgerOption = Annotated[
    str | None,
    typer.Option(
        help="The ledger: a file or a URL. By default LADDERHOLDOUT_LEDGER, else the one in "
        "your data folder."
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The holdout's name, as list prints it.",
        autocompletion=_known_names,
    ),
]
AccountOption = Annotated[str, typer.Option(help="Whose ladder.")]
LadderOption = Annotated[str, typer.Option(help="Which of the account's ladders.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def console(*, stderr: bool = False) -> Console:
    """Return where results are printed, or what is said about them."""
    # Without markup and emojis: names are shown as they are.
    out = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = _PIPE
    return out


def print_json(value: Any) -> None:
    """Print JSON that any parser takes: dataclasses as objects, times in ISO 8601."""
    typer.echo(json.dumps(_plain(value), allow_nan=False, ensure_ascii=False))


def print_found(found: Any, as_json: bool) -> None:
    """Print what says itself in sentences, whole lines, or as JSON."""
    if as_json:
        print_json(found)
    else:
        console().print(str(found), soft_wrap=True)


@contextmanager
def said(as_json: bool = False) -> Iterator[None]:
    """Show the library's own errors and warnings as sentences, without a traceback.

    Both go to standard error, as JSON objects if so asked; an error ends with status 1.
    """

    def warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        _tell("warning", str(message), category.__name__, as_json)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", LadderHoldoutWarning)
            warnings.showwarning = warn
            yield
    except LadderHoldoutError as error:
        _tell("error", str(error), type(error).__name__, as_json)
        raise typer.Exit(1) from None


def _tell(what: str, message: str, kind: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({what: message, "kind": kind}, ensure_ascii=False), err=True)
    else:
        console(stderr=True).print(f"{what.capitalize()}: {message}", soft_wrap=True)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat()
    # What a diverged model scores is no number that JSON knows.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
