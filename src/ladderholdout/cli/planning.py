"""Commands before a search: plan, safe and attack."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ladderholdout.cli.common import JsonOption, MissingOption, print_json, print_lines
from ladderholdout.cli.files import read_rows, target_of
from ladderholdout.guard.settings import metric_for
from ladderholdout.lab import ANALYSTS
from ladderholdout.lab.rehearsal import SafeSubmissions, safe_submissions
from ladderholdout.lab.report import analyst_of, matches, plain, plot, table
from ladderholdout.mechanisms import Mechanism
from ladderholdout.mechanisms.arithmetic import whole
from ladderholdout.mechanisms.defaults import default_mechanism
from ladderholdout.mechanisms.parsing import mechanism_of
from ladderholdout.metrics import get_metric
from ladderholdout.pictures import picture_file, save
from ladderholdout.planning import Plan, Way
from ladderholdout.planning import plan as planned
from ladderholdout.planning import plot as drawn


def plan(
    n: Annotated[int, typer.Option("--rows", help="How many rows the holdout has.")],
    submissions: Annotated[int, typer.Option(help="How many models will be submitted.")],
    width: Annotated[
        float | None,
        typer.Option(help="How far the true score may be below the released one, such as 0.03."),
    ] = None,
    risk: Annotated[float, typer.Option(help="The error rate expected of the winner.")] = 0.1,
    confidence: Annotated[float, typer.Option(help="Confidence of the certificate.")] = 0.95,
    searches: Annotated[
        int, typer.Option(help="How many searches to simulate for each rule.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    picture: Annotated[
        Path | None, typer.Option("--plot", help="Draw width against rows into this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare rules for a holdout of this size by how wide their certificates will be.

    Also what a reserve would give, and how many rows a certificate of --width needs.
    """
    file = None if picture is None else picture_file(picture)
    found = planned(
        n=whole("--rows", n),
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
        print_lines(str(found))


def _plain(found: Plan | Way) -> dict[str, Any]:
    """Return a plan as objects and lists, its rules as they are typed."""
    kept = {one.name: getattr(found, one.name) for one in fields(found)}
    for name, value in kept.items():
        if isinstance(value, Way):
            kept[name] = _plain(value)
        elif isinstance(value, Mechanism):
            kept[name] = repr(value)
    return kept


def safe(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A .csv or .parquet file of rows to train on; never the holdout."
        ),
    ],
    target: Annotated[str, typer.Option(help="The column with the labels.")],
    scoring: Annotated[str, typer.Option(help="A metric's name as in scikit-learn.")],
    n: Annotated[int, typer.Option("--rows", help="How many rows the planned holdout has.")],
    threshold: Annotated[
        float, typer.Option(help="How much overfitting is accepted, in the metric's own unit.")
    ],
    mechanism: Annotated[
        str | None,
        typer.Option(
            help='The rule that answers submissions, written as in Python: "Ladder(step=0.01)".'
        ),
    ] = None,
    loss_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="For unbounded losses: they are clipped to it, in the metric's own unit.",
        ),
    ] = None,
    n_train: Annotated[
        int | None,
        typer.Option("--train-rows", help="Rows to train on; by default as many as the file has."),
    ] = None,
    share: Annotated[
        float, typer.Option(help="The share of the features that the attack selects.")
    ] = 0.02,
    repetitions: Annotated[int, typer.Option(help="How often each attack is repeated.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    missing: MissingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the submissions that are safe on a planned holdout, by attacks on random labels.

    Rows and labels are drawn from the file independently of each other, so whatever score above
    chance an attack reaches is overfitting.
    """
    rows = read_rows(file, {"--target": [target]})
    metric = metric_for(scoring, loss_range)
    assert metric is not None  # a name was given
    numbers = not metric.is_classification
    labels = target_of(rows, "--target", target, numbers=numbers, missing_texts=missing or ())
    rule = (
        default_mechanism(metric, whole("--rows", n))
        if mechanism is None
        else mechanism_of(mechanism)
    )
    found = safe_submissions(
        rows.features,
        labels,
        metric,
        rule,
        n=whole("--rows", n),
        threshold=threshold,
        n_train=n_train,
        share=share,
        repetitions=repetitions,
        seed=seed,
    )
    if as_json:
        print_json(_counts_of(found))
    else:
        print_lines(str(found))


def _counts_of(found: SafeSubmissions) -> dict[str, object]:
    """Return what was found as objects and lists, the rule as it is typed."""
    attacks = [one._asdict() for one in found.attacks]
    settings = {"mechanism": repr(found.mechanism), "attacks": attacks}
    return asdict(found) | settings | {"safe": found.safe, "unsafe": found.unsafe}


_ANALYST_HELP = f"Who searches, such as 'Boosting(guesses=400)': one of {', '.join(ANALYSTS)}."


def attack(
    analyst: Annotated[str, typer.Argument(metavar="ANALYST", help=_ANALYST_HELP)],
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            help='A rule, such as "Ladder(step=0.01)"; repeat it for several. By default that '
            "of a holdout with the analyst's metric."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--rows", help="How many rows the holdout has.")] = 1000,
    repetitions: Annotated[int, typer.Option(help="On how many random holdouts.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of labels, guesses and noise.")] = 0,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Draw the released score after each submission into this file."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate an attack or an honest search against rules: what it believes, and what is true.

    The scores are those of the analyst's metric, greater is better.
    """
    player = analyst_of(analyst)
    rules = [mechanism_of(text) for text in mechanism or ()]
    if not rules:
        rules = [default_mechanism(get_metric(player.metric), whole("--rows", n))]
    file = None if picture is None else picture_file(picture)
    played = matches(player, rules, n, repetitions, seed, trace=file is not None)
    if file is not None:
        save(plot(played), file)
    if as_json:
        print_json(plain(player, n, played))
    else:
        print_lines(table(played))
