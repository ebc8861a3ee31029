"""Commands that may open the raw scores, audit and report; and a leaderboard's standings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ladderholdout.audit import Audit, Record, record_of, write_report
from ladderholdout.audit.records import plain_value
from ladderholdout.cli.common import (
    AccountOption,
    AuditTrackingOption,
    ConfidenceOption,
    JsonOption,
    LadderOption,
    LedgerOption,
    NameArgument,
    YesOption,
    opened_one,
    print_json,
    print_json_of,
    print_lines,
    print_pages,
    print_result,
    progress,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.holdout import LadderHoldout
from ladderholdout.leaderboard import Leaderboard


def audit(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    ledger: LedgerOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Open a ladder's raw scores, permanently: compare them with what was released.

    Answers whether the incumbent beats a constant prediction, and how much too good the best
    raw score was. Submissions after it cannot be certified without a reserve.
    """
    holdout = opened_one(name, account, ladder, ledger)
    found = _opened(holdout, yes)
    if as_json:
        print_json_of(found.summary(), "submissions", found.rows(), plain_value)
    else:
        print_pages(found.lines())


def report(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    ledger: LedgerOption = None,
    opened: Annotated[
        bool, typer.Option("--opened", help="With the raw scores; this opens them, permanently.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="The file; by default one in this folder, named after the holdout."),
    ] = None,
    attach: Annotated[
        bool, typer.Option("--attach", help="Attach it to the ladder's audit run in MLflow.")
    ] = False,
    audit_tracking_uri: AuditTrackingOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a report as one HTML file; without --opened it holds no raw score."""
    holdout = opened_one(name, account, ladder, ledger)
    kind = "audit" if opened else "report"
    place = _checked(output or Path(f"{_file_name(name)}-{kind}.html"))
    if opened:
        shown: Audit | Record = _opened(holdout, yes)
    else:
        with progress("Reading the submissions") as step:
            shown = record_of(holdout, step)
    file = write_report(shown, place)
    run = None
    if attach:
        from ladderholdout.integrations.mlflow import attach as attached

        run = attached(holdout, file, audit_tracking_uri=audit_tracking_uri)
    if as_json:
        print_json({"file": str(file), "opened": opened, "audit_run": run})
        return
    print_lines(f"written: {file}")
    if run is not None:
        print_lines(f"attached to the audit run {run}")


def _opened(holdout: LadderHoldout, yes: bool) -> Audit:
    """Audit a ladder, after asking where that is what opens it."""
    ladder = holdout.open_ladder
    if ladder.state().opened is None and not yes:
        reserve = ladder.facts.n_reserve
        typer.echo(
            "This shows the raw scores, and marks the ladder as opened permanently: what is "
            "submitted afterwards is recorded, but "
            + ("only a reserve can certify it." if reserve else "can not be certified."),
            err=True,
        )
        typer.confirm("Open it?", abort=True, err=True)
    with progress("Reading the submissions") as step:
        return holdout.audit(progress=step)


def _checked(file: Path) -> Path:
    """Refuse a place that cannot be, before a ladder is opened for it."""
    if file.is_dir() or not file.parent.is_dir():
        raise InvalidArgument("--output", "a file in a folder that is there", file)
    return file


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "holdout"


def leaderboard(
    name: NameArgument,
    ladder: Annotated[
        str, typer.Option(help="The name of the leaderboard's ladders.")
    ] = "leaderboard",
    confidence: ConfidenceOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a leaderboard: each account's rank and released score, with certificates."""
    board = Leaderboard.open(name, ladder=ladder, ledger=ledger)
    found = board.standings(confidence)
    print_result(found, as_json)
