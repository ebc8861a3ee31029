"""What all commands share: the app, its common options, the console, errors in a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from ladderholdout.errors import LadderHoldoutError

# In a pipe each line stays whole, for grep.
_PIPE = 10_000

app = typer.Typer(
    name="ladder-holdout",
    help="Look at your holdout as often as you like, and still have a number you can believe.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

LedgerOption = Annotated[
    str | None,
    typer.Option(
        help="The ledger: a file or a URL. By default LADDERHOLDOUT_LEDGER, else the one in "
        "your data folder."
    ),
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The holdout's name, as list prints it.")
]
AccountOption = Annotated[str, typer.Option(help="Whose ladder.")]
LadderOption = Annotated[str, typer.Option(help="Which of the account's ladders.")]


def console() -> Console:
    """Return where results are printed."""
    # Without markup and emojis: names are shown as they are.
    out = Console(highlight=False, markup=False, emoji=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = _PIPE
    return out


@contextmanager
def said() -> Iterator[None]:
    """Show the library's own errors as one sentence, without a traceback."""
    try:
        yield
    except LadderHoldoutError as error:
        err = Console(stderr=True, highlight=False, markup=False, emoji=False)
        err.print(f"Error: {error}", soft_wrap=True)
        raise typer.Exit(1) from None
