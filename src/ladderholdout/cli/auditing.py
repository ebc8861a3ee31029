"""Commands that may open the raw scores: audit, and report. Both ask before they do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ladderholdout.audit import Audit, Record, record_of, write_report
from ladderholdout.cli.common import (
    AccountOption,
    JsonOption,
    LadderOption,
    LedgerOption,
    NameArgument,
    YesOption,
    app,
    console,
    print_json,
    said,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.holdout import LadderHoldout


@app.command()
def audit(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    ledger: LedgerOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Open the raw scores, for good, and say what was earned and what was picked."""
    with said(as_json):
        holdout = LadderHoldout.open(name, account=account, ladder=ladder, ledger=ledger)
        found = _opened(holdout, yes)
        if as_json:
            print_json(found.to_dict())
        else:
            console().print(str(found), soft_wrap=True)


@app.command()
def report(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    ledger: LedgerOption = None,
    opened: Annotated[
        bool, typer.Option("--opened", help="With the raw scores: that opens them, for good.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="The file; by default one in this folder, called like the holdout."),
    ] = None,
    attach: Annotated[
        bool, typer.Option("--attach", help="Attach it to the ladder's audit run in MLflow.")
    ] = False,
    audit_tracking_uri: Annotated[
        str | None, typer.Option(help="Where that run is; by default where MLflow tracks.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a report into one HTML file; without --opened it holds nothing raw."""
    with said(as_json):
        holdout = LadderHoldout.open(name, account=account, ladder=ladder, ledger=ledger)
        kind = "audit" if opened else "report"
        place = _checked(output or Path(f"{_file_name(name)}-{kind}.html"))
        shown: Audit | Record = _opened(holdout, yes) if opened else record_of(holdout)
        file = write_report(shown, place)
        run = _attached(holdout, file, audit_tracking_uri) if attach else None
        if as_json:
            print_json({"file": str(file), "opened": opened, "audit_run": run})
            return
        console().print(f"written: {file}", soft_wrap=True)
        if run is not None:
            console().print(f"attached to the audit run {run}", soft_wrap=True)


def _attached(holdout: LadderHoldout, file: Path, audit_tracking_uri: str | None) -> str:
    from ladderholdout.integrations.mlflow import attach

    return attach(holdout, file, audit_tracking_uri=audit_tracking_uri)


def _opened(holdout: LadderHoldout, yes: bool) -> Audit:
    """Audit a ladder, after asking where that is what opens it."""
    if holdout._records()[1].opened is None and not yes:
        reserve = holdout._records()[0].n_reserve
        typer.echo(
            "This shows the raw scores, and marks the ladder as opened, for good: what is "
            "submitted afterwards is recorded, but "
            + ("only a reserve can certify it." if reserve else "can not be certified."),
            err=True,
        )
        typer.confirm("Open it?", abort=True, err=True)
    return holdout.audit()


def _checked(file: Path) -> Path:
    """Refuse a place that cannot be, before a ladder is opened for it."""
    if file.is_dir() or not file.parent.is_dir():
        raise InvalidArgument("--output", "a file in a folder that is there", file)
    return file


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "holdout"
