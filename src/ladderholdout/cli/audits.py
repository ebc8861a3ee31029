"""Commands that may open the raw scores: audit and report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ladderholdout.audit import Audit, Record, record_of, write_report
from ladderholdout.audit.records import plain_value
from ladderholdout.cli import common
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import ladder_of
from ladderholdout.holdout import LadderHoldout
from ladderholdout.leaderboard import Leaderboard


@common.on_ladder(scoring=False, server=False, single=True)
def audit(
    holdout: LadderHoldout,
    yes: common.YesOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Open a ladder's raw scores, permanently: compare them with what was released.

    Answers whether the incumbent beats a constant prediction, and how much too good the best
    raw score was. Submissions after it cannot be certified without a reserve.
    """
    result = _opened(holdout, yes)
    if as_json:
        common.print_json_of(result.summary(), "submissions", result.rows(), plain_value)
    else:
        common.print_pages(result.lines())


@common.on_ladder(scoring=False, server=False, single=True)
def report(
    holdout: LadderHoldout,
    opened: Annotated[
        bool, typer.Option("--opened", help="With the raw scores; this opens them, permanently.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="The file; by default one in this folder, named after the holdout."),
    ] = None,
    certificate: Annotated[
        bool,
        typer.Option(
            "--certificate",
            help="Put the range on record first; certificates of later incumbents pay for that.",
        ),
    ] = False,
    attach: Annotated[
        bool, typer.Option("--attach", help="Attach it to the ladder's audit run in MLflow.")
    ] = False,
    audit_tracking_uri: common.AuditTrackingOption = None,
    yes: common.YesOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Write a report as one HTML file; without --opened it holds no raw score."""
    kind = "audit" if opened else "report"
    name = re.sub(r"[^\w.-]+", "-", holdout.name).strip(".-") or "holdout"
    place = output or Path(f"{name}-{kind}.html")
    if place.is_dir() or not place.parent.is_dir():  # before a ladder is opened for it
        raise InvalidArgument("--output", "a file in a folder that is there", place)
    if opened:
        shown: Audit | Record = _opened(holdout, yes)
    else:
        if certificate:
            holdout.certificate()
        with common.progress("Reading the submissions") as step:
            shown = record_of(holdout, step)
    file = write_report(shown, place, boards=Leaderboard.on(holdout))
    run = None
    if attach:
        from ladderholdout.integrations.mlflow import attach as attached

        run = attached(holdout, file, audit_tracking_uri=audit_tracking_uri)
    if as_json:
        common.print_json({"file": str(file), "opened": opened, "audit_run": run})
        return
    common.print_lines(f"written: {file}")
    if not opened and shown.status.incumbent and shown.status.certificate.missing:
        common.print_lines(
            f"no range is in it: {shown.status.certificate.missing}; see --certificate"
        )
    if run is not None:
        common.print_lines(f"attached to the audit run {run}")


def _opened(holdout: LadderHoldout, yes: bool) -> Audit:
    """Audit a ladder, after asking where that is what opens it."""
    ladder = ladder_of(holdout, several=True)
    if ladder.execute(commands.State()).opened is None and not yes:
        reserve = ladder.facts.n_reserve
        typer.echo(
            "This shows the raw scores, and marks the ladder as opened permanently: what is "
            "submitted afterwards is recorded, but "
            + ("only a reserve can certify it." if reserve else "can not be certified."),
            err=True,
        )
        typer.confirm("Open it?", abort=True, err=True)
    with common.progress("Reading the submissions") as step:
        return holdout.owner.audit(progress=step)
