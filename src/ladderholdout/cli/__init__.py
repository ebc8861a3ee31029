"""The command line: parse, call, print. Each command is a function in a module of its kind."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from ladderholdout.cli import audits, boards, challenges, holdouts, planning, serving, upkeep
from ladderholdout.cli.common import reported
from ladderholdout.cli.options import described

app = typer.Typer(
    name="ladder-holdout",
    help="Query a holdout as often as you like, and still have a score that you can believe.\n\n"
    "Register the holdout's rows once, then submit predictions for them. You are shown the "
    "released score: that of the incumbent, the last submission that improved on the one before "
    "by more than the rule asks for. Raw scores stay in the ledger until an audit opens them.",
    epilog="First steps:\n\n"
    "ladder-holdout register holdout.csv --target label --scoring accuracy --name demo\n\n"
    "ladder-holdout submit demo predictions.csv\n\n"
    "ladder-holdout certificate demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Before a search": {
        "plan": planning.plan,
        "safe": planning.safe,
        "attack": planning.attack,
    },
    "Query a holdout": {
        "register": holdouts.register,
        "submit": holdouts.submit,
        "gate": holdouts.gate,
        "status": holdouts.status,
        "history": holdouts.history,
        "certificate": holdouts.certificate,
        "compare": holdouts.compare,
        "withdraw": holdouts.withdraw,
        "replenish": holdouts.replenish,
        "retire": holdouts.retire,
        "leaderboard": boards.leaderboard,
        "close-round": boards.close_round,
        "finals": boards.finals,
    },
    "Open the raw scores": {
        "audit": audits.audit,
        "report": audits.report,
    },
    "Serve holdouts": {
        "account": serving.account,
        "serve": serving.serve,
        "bundle": challenges.bundle,
        "mcp": serving.mcp,
        "ui": serving.ui,
    },
    "Maintain the ledger": {
        "verify": upkeep.verify,
        "backup": upkeep.back_up,
        "export": upkeep.export,
    },
}


def _print_version(wished: bool) -> None:
    if wished:
        typer.echo(f"ladderholdout {version('ladderholdout')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print it, and end."
        ),
    ] = False,
) -> None:
    """Take the options that come before a command; the help above is that of the app."""


for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        _status = holdouts.status_of_refusal if _name == "gate" else None
        app.command(_name, rich_help_panel=_panel)(reported(described(_command), _status))

__all__ = ["app"]
