"""The command that plans: how to spend a holdout before anybody looks at it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ladderholdout.cli.common import JsonOption, app, console, print_json, said
from ladderholdout.mechanisms import Mechanism
from ladderholdout.planning import Plan, Way
from ladderholdout.planning import plan as planned
from ladderholdout.planning import plot as drawn
from ladderholdout.planning.pictures import picture_file, save


@app.command()
def plan(
    n: Annotated[int, typer.Option("--n", help="Rows of the holdout.")],
    submissions: Annotated[int, typer.Option(help="Models that will be submitted.")],
    width: Annotated[
        float | None,
        typer.Option(help="How far the true score may lie below the one shown, such as 0.03."),
    ] = None,
    risk: Annotated[float, typer.Option(help="The error rate expected of the winner.")] = 0.1,
    confidence: Annotated[float, typer.Option(help="Of the certificate.")] = 0.95,
    searches: Annotated[int, typer.Option(help="Searches to simulate for each rule.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 0,
    picture: Annotated[
        Path | None, typer.Option("--plot", help="Draw width against rows into this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan the rule, the releases and the reserve, and say what may then be believed."""
    with said(as_json):
        file = None if picture is None else picture_file(picture)
        found = planned(
            n=n,
            submissions=submissions,
            width=width,
            risk=risk,
            confidence=confidence,
            searches=searches,
            seed=seed,
        )
        if file is not None:
            save(drawn(found), file)
        if as_json:
            print_json(_plain(found))
        else:
            console().print(str(found), soft_wrap=True)


def _plain(found: Plan | Way) -> dict[str, Any]:
    """Return a plan as objects and lists, its rules as they are typed."""
    kept = {one.name: getattr(found, one.name) for one in fields(found)}
    for name, value in kept.items():
        if isinstance(value, Way):
            kept[name] = _plain(value)
        elif isinstance(value, Mechanism):
            kept[name] = repr(value)
    return kept
