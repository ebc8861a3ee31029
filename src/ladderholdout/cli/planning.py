"""Commands before a search: plan, safe and attack."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ladderholdout.arguments import whole
from ladderholdout.cli import common
from ladderholdout.cli.files import read_rows, target_of
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.settings import HoldoutSettings
from ladderholdout.lab import ANALYSTS
from ladderholdout.lab.rehearsal import safe_submissions
from ladderholdout.lab.report import analyst_of, matches, plain, plot, table
from ladderholdout.mechanisms import default_mechanism, mechanism_of
from ladderholdout.metrics import get_metric
from ladderholdout.pictures import picture_file, save
from ladderholdout.planning import plan as planned
from ladderholdout.planning import plan_decisions
from ladderholdout.planning import plot as drawn
from ladderholdout.planning.decisions import DISCORDANCE


def plan(
    n: Annotated[int | None, typer.Option("--rows", help="How many rows the holdout has.")] = None,
    submissions: Annotated[
        int | None, typer.Option(help="How many models will be submitted.")
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(help="How far the true score may be below the released one, such as 0.03."),
    ] = None,
    risk: Annotated[float, typer.Option(help="The error rate expected of the winner.")] = 0.1,
    confidence: Annotated[float, typer.Option(help="Confidence of the certificate.")] = 0.95,
    scoring: Annotated[
        str, typer.Option(help="The metric for which a reserve is advised.")
    ] = "accuracy",
    improvements: Annotated[
        int, typer.Option(help="How many submissions improve where answers steer the search.")
    ] = 5,
    groups: Annotated[
        int | None, typer.Option(help="Of how many groups the rows are, such as patients.")
    ] = None,
    correlation: Annotated[
        float, typer.Option(help="With --groups: of the errors within a group, from 0 to 1.")
    ] = 1.0,
    picture: Annotated[
        Path | None, typer.Option("--plot", help="Draw width against rows into this file.")
    ] = None,
    gain: Annotated[
        float | None,
        typer.Option(help="Plan decisions instead: the true gain that a gate is to accept."),
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(help="With --gain: how many candidates there will be.")
    ] = None,
    discordance: Annotated[
        float,
        typer.Option(help="With --gain: the share of rows on which models differ."),
    ] = DISCORDANCE,
    as_json: common.JsonOption = False,
) -> None:
    """Compare ways to search a holdout of this size by how wide their certificates can be.

    Also what a reserve would give, and how many rows a certificate of --width needs. With --gain
    and --horizon instead: how many rows a gate needs to accept that gain in accuracy.
    """
    if gain is not None or horizon is not None:
        if gain is None or horizon is None or submissions is not None or picture is not None:
            raise InvalidArgument(
                "--gain",
                "stated with --horizon, and without --submissions and --plot",
                "stated otherwise",
            )
        error = 1.0 - confidence
        decided = plan_decisions(
            gain=gain,
            horizon=horizon,
            n=n,
            discordance=discordance,
            alpha=round(error, 12),
            groups=groups,
            correlation=correlation,
        )
        common.print_result(decided, as_json)
        return
    if n is None or submissions is None:
        missing = "--rows" if n is None else "--submissions"
        remedy = "State --rows and --submissions, or --gain and --horizon."
        raise InvalidArgument(missing, "stated", "missing", remedy)
    file = None if picture is None else picture_file(picture)
    comparison = planned(
        n=whole("--rows", n),
        submissions=submissions,
        width=width,
        risk=risk,
        confidence=confidence,
        scoring=scoring,
        improvements=improvements,
        groups=groups,
        correlation=correlation,
    )
    if file is not None:
        save(drawn(comparison), file)
    common.print_result(comparison, as_json)


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
    loss_range: common.LossRangeOption = None,
    n_train: Annotated[
        int | None,
        typer.Option("--train-rows", help="Rows to train on; by default as many as the file has."),
    ] = None,
    share: Annotated[
        float, typer.Option(help="The share of the features that the attack selects.")
    ] = 0.02,
    repetitions: Annotated[int, typer.Option(help="How often each attack is repeated.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    missing: common.MissingOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Count the submissions that are safe on a planned holdout, by attacks on random labels.

    Rows and labels are drawn from the file independently of each other, so whatever score above
    chance an attack reaches is overfitting.
    """
    rows = read_rows(file, {"--target": [target]})
    metric = HoldoutSettings(scoring=scoring, loss_range=loss_range).metric
    assert metric is not None  # a name was given
    numbers = not metric.is_classification
    labels = target_of(rows, "--target", target, numbers=numbers, missing_texts=missing or ())
    rule = (
        default_mechanism(metric, whole("--rows", n))
        if mechanism is None
        else mechanism_of(mechanism)
    )
    result = safe_submissions(
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
        attacks = [attack._asdict() for attack in result.attacks]
        derived = {"attacks": attacks, "safe": result.safe, "unsafe": result.unsafe}
        common.print_json(asdict(result) | {"mechanism": repr(result.mechanism)} | derived)
    else:
        common.print_lines(str(result))


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
    as_json: common.JsonOption = False,
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
        common.print_json(plain(player, n, played))
    else:
        common.print_lines(table(played))
