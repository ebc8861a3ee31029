"""The command line: parse, call, print. Nothing raw is ever read here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ladderholdout.errors import LadderHoldoutError
from ladderholdout.holdout import LadderHoldout
from ladderholdout.ledger import Ledger, resolve_url, shown
from ladderholdout.ledger.replay import rules_of

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
NameArgument = Annotated[str, typer.Argument(help="The holdout's name (see `list`).")]
AccountOption = Annotated[str, typer.Option(help="Whose ladder.")]
LadderOption = Annotated[str, typer.Option(help="Which of the account's ladders.")]


@app.command("list")
def list_holdouts(ledger: LedgerOption = None) -> None:
    """List the holdouts that the ledger knows, with their ladders."""
    with _said():
        url = resolve_url(ledger)
        table = _table(
            "holdout", "rows", "ladder", "metric", "mechanism", "submissions", "releases"
        )
        with Ledger(url).read() as tx:
            for holdout in tx.holdouts():
                for ladder in tx.ladders(holdout.id):
                    stated = ladder.settings
                    table.add_row(
                        holdout.name,
                        str(holdout.n),
                        f"{stated.account}/{stated.name}",
                        stated.metric,
                        repr(rules_of(stated).mechanism),
                        str(ladder.submissions),
                        str(ladder.state["releases"]),
                    )
        _print(table, f"ledger: {shown(url)}")


@app.command()
def status(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    ledger: LedgerOption = None,
) -> None:
    """Show where a ladder stands, and what else looked at its holdout."""
    with _said():
        found = LadderHoldout.open(name, account=account, ladder=ladder, ledger=ledger).status()
        table = Table(box=None, show_header=False)
        for what, value in found.lines():
            table.add_row(what, value)
        _print(table)


@app.command()
def history(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    last: Annotated[int, typer.Option(min=1, help="Show at most so many, the latest.")] = 50,
    ledger: LedgerOption = None,
) -> None:
    """Show the submissions as the analyst may see them: what was released, and when."""
    with _said():
        holdout = LadderHoldout.open(name, account=account, ladder=ladder, ledger=ledger)
        total = holdout.status().submissions
        table = _table("number", "time (UTC)", "released", "", "disagreement", "batch", "from")
        for one in holdout.history(after=max(0, total - last)):
            mark = "improved" if one.improved else ""
            table.add_row(
                str(one.number),
                f"{one.time:%Y-%m-%d %H:%M:%S}",
                f"{one.score:.6g}",
                f"repeat of {one.repeat_of}" if one.repeat_of else mark,
                "" if one.disagreement is None else f"{one.disagreement:.3g}",
                (one.batch or "")[:8],
                str(one.context.get("estimator", "by hand")),
            )
        _print(table, f"{total} submissions in all")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in ("number", "time (UTC)", "released"))
    return table


def _print(*what: Table | str) -> None:
    # Names are shown as they are: brackets in them are no markup.
    console = Console(highlight=False, markup=False)
    for one in what:
        console.print(one)


@contextmanager
def _said() -> Iterator[None]:
    """Show the library's own errors as one sentence, without a traceback."""
    try:
        yield
    except LadderHoldoutError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"Error: {error}", markup=False)
        raise typer.Exit(1) from None
