"""Commands before a search: plan, safe and attack.

Parameters
----------
n
    How many rows the holdout has.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from ladderholdout import arguments, errors, pictures, planning
from ladderholdout.cli import common, files, options
from ladderholdout.guard.settings import HoldoutSettings
from ladderholdout.lab import ANALYSTS, rehearsal, report
from ladderholdout.mechanisms import default_mechanism, mechanism_of
from ladderholdout.metrics import get_metric
from ladderholdout.planning.decisions import DISCORDANCE


def plan(
    *,
    n: int | None = None,
    submissions: int | None = None,
    width: float | None = None,
    risk: float = 0.1,
    confidence: float = 0.95,
    scoring: str = "accuracy",
    improvements: int = 5,
    groups: int | None = None,
    correlation: float = 1.0,
    plot: Path | None = None,
    gain: float | None = None,
    horizon: int | None = None,
    discordance: float = DISCORDANCE,
) -> None:
    """Compare ways to search a holdout of this size by how wide their certificates can be.

    Also what a reserve would give, and how many rows a certificate of --width needs. With --gain
    and --horizon instead: how many rows a gate needs to accept that gain in accuracy.

    Parameters
    ----------
    submissions
        How many models will be submitted.
    width
        How far the true score may be below the released one, such as 0.03.
    risk
        The error rate expected of the winner.
    confidence
        Confidence of the certificate.
    scoring
        The metric for which a reserve is advised.
    improvements
        How many submissions improve where answers steer the search.
    groups
        Of how many groups the rows are, such as patients.
    correlation
        With --groups: of the errors within a group, from 0 to 1.
    plot
        Draw width against rows into this file.
    gain
        Plan decisions instead: the true gain that a gate is to accept.
    horizon
        With --gain: how many candidates there will be.
    discordance
        With --gain: the share of rows on which models differ.
    """
    if gain is not None or horizon is not None:
        if gain is None or horizon is None or submissions is not None or plot is not None:
            raise errors.InvalidArgument(
                "--gain",
                "stated with --horizon, and without --submissions and --plot",
                "stated otherwise",
            )
        stated = locals() | {"alpha": round(1.0 - confidence, 12)}
        decided = planning.plan_decisions(**options.taken(planning.plan_decisions, stated))
        common.print_result(decided)
        return
    if n is None or submissions is None:
        missing = "--rows" if n is None else "--submissions"
        remedy = "State --rows and --submissions, or --gain and --horizon."
        raise errors.InvalidArgument(missing, "stated", "missing", remedy)
    file = None if plot is None else pictures.picture_file(plot)
    arguments.whole("--rows", n)
    comparison = planning.plan(**options.taken(planning.plan, locals()))
    if file is not None:
        pictures.save(planning.plot(comparison), file)
    common.print_result(comparison)


def safe(
    file: Path,
    *,
    target: str,
    scoring: str,
    n: int,
    threshold: float,
    mechanism: str | None = None,
    loss_range: tuple[float, float] | None = None,
    n_train: int | None = None,
    share: float = 0.02,
    repetitions: int = 50,
    seed: int = 0,
    missing: list[str] | None = None,
) -> None:
    """Count the submissions that are safe on a planned holdout, by attacks on random labels.

    Rows and labels are drawn from the file independently of each other, so whatever score above
    chance an attack reaches is overfitting.

    Parameters
    ----------
    file : FILE
        A .csv or .parquet file of rows to train on; never the holdout.
    target
        The column with the labels.
    scoring
        A metric's name as in scikit-learn.
    n
        How many rows the planned holdout has.
    threshold
        How much overfitting is accepted, in the metric's own unit.
    mechanism
        The rule that answers submissions, written as in Python: "Ladder(step=0.01)".
    n_train
        Rows to train on; by default as many as the file has.
    share
        The share of the features that the attack selects.
    repetitions
        How often each attack is repeated.
    seed
        Seed of the simulation.
    """
    rows = files.read_rows(file, {"--target": [target]})
    metric = HoldoutSettings(scoring=scoring, loss_range=loss_range).metric
    assert metric is not None  # a name was given
    numbers = not metric.is_classification
    labels = files.target_of(rows, "--target", target, numbers=numbers, missing_texts=missing or ())
    rule = None if mechanism is None else mechanism_of(mechanism)
    rule = rule or default_mechanism(metric, arguments.whole("--rows", n))
    arguments.whole("--rows", n)
    stated = options.taken(rehearsal.safe_submissions, locals())
    result = rehearsal.safe_submissions(rows.features, labels, metric, rule, **stated)
    if common.as_json():
        attacks = [attack._asdict() for attack in result.attacks]
        derived = {"attacks": attacks, "safe": result.safe, "unsafe": result.unsafe}
        common.print_json(asdict(result) | {"mechanism": repr(result.mechanism)} | derived)
    else:
        common.print_lines(str(result))


_ANALYST_HELP = f"Who searches, such as 'Boosting(guesses=400)': one of {', '.join(ANALYSTS)}."


def attack(
    analyst: Annotated[str, {"help": _ANALYST_HELP}],
    *,
    mechanism: list[str] | None = None,
    n: int = 1000,
    repetitions: int = 100,
    seed: int = 0,
    plot: Path | None = None,
) -> None:
    """Simulate an attack or an honest search against rules: what it believes, and what is true.

    The scores are those of the analyst's metric, greater is better.

    Parameters
    ----------
    analyst : ANALYST
        Who searches, such as 'Boosting(guesses=400)': one of Boosting, WeightedVote, ManyAccounts,
        ShiftedMajority, Enumeration, HillClimb, TwoAccounts, Averaging, LogLossOracle, Freedman,
        StepForward, ScoreSum, RowByRow, RandomSearch, KnobClimb, ForwardSelection.
    mechanism
        A rule, such as "Ladder(step=0.01)"; repeat it for several. By default that of a holdout
        with the analyst's metric.
    repetitions
        On how many random holdouts.
    seed
        Seed of labels, guesses and noise.
    plot
        Draw the released score after each submission into this file.
    """
    player = report.analyst_of(analyst)
    rules = [mechanism_of(text) for text in mechanism or ()]
    if not rules:
        rules = [default_mechanism(get_metric(player.metric), arguments.whole("--rows", n))]
    file = None if plot is None else pictures.picture_file(plot)
    played = report.matches(player, rules, n, repetitions, seed, trace=file is not None)
    if file is not None:
        pictures.save(report.plot(played), file)
    common.print_result(report.plain(player, n, played), report.table(played))
