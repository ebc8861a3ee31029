"""The command that attacks: an analyst against mechanisms, on labels that are drawn for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ladderholdout.analysts import ANALYSTS
from ladderholdout.analysts.report import analyst_of, matches, plain, plot, table
from ladderholdout.cli.common import JsonOption, app, console, print_json, said
from ladderholdout.cli.options import mechanism_of
from ladderholdout.planning.pictures import picture_file, save


@app.command()
def attack(
    analyst: Annotated[
        str, typer.Argument(metavar="ANALYST", help=f"With settings: {', '.join(ANALYSTS)}.")
    ],
    mechanism: Annotated[
        list[str] | None,
        typer.Option(help='With settings, such as "Ladder(step=0.01)"; several may be named.'),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="Rows of the holdout.")] = 1000,
    repetitions: Annotated[int, typer.Option(help="Holdouts to play on.")] = 100,
    seed: Annotated[int, typer.Option(help="Of labels, guesses and noise.")] = 0,
    picture: Annotated[
        Path | None, typer.Option("--plot", help="Draw what stood after each submission.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play an attack or an honest search against mechanisms, and show what it believes."""
    with said(as_json):
        player = analyst_of(analyst)
        rules = [mechanism_of(text) for text in mechanism or ("ParameterFreeLadder",)]
        file = None if picture is None else picture_file(picture)
        played = matches(player, rules, n, repetitions, seed, trace=file is not None)
        if file is not None:
            save(plot(played), file)
        if as_json:
            print_json(plain(player, n, played))
        else:
            console().print(table(played), soft_wrap=True)
