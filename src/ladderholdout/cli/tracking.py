"""Commands about MLflow: export brings it up to date, doctor looks whether all is well."""

from __future__ import annotations

from typing import Annotated

import typer

from ladderholdout.cli.common import (
    AccountOption,
    JsonOption,
    LadderOption,
    LedgerOption,
    NameArgument,
    app,
    console,
    print_json,
    said,
)
from ladderholdout.errors import LadderHoldoutError
from ladderholdout.holdout import LadderHoldout
from ladderholdout.holdout.health import Finding, ledger_findings
from ladderholdout.ledger import resolve_url

TrackingOption = Annotated[
    str | None,
    typer.Option(
        "--tracking-uri",
        help="MLflow's tracking server; by default MLflow's own choice: MLFLOW_TRACKING_URI, "
        "else a database in this folder.",
    ),
]
AuditTrackingOption = Annotated[
    str | None,
    typer.Option("--audit-tracking-uri", help="That of the audit experiment, if it is another."),
]


@app.command()
def export(
    name: NameArgument,
    account: AccountOption = "default",
    ladder: LadderOption = "main",
    ledger: LedgerOption = None,
    tracking_uri: TrackingOption = None,
    audit_tracking_uri: AuditTrackingOption = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            help="Your run; by default the newest that is tied to this ladder, else a new one."
        ),
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option(help="Where a new run goes; by default the one called like the holdout."),
    ] = None,
    raw: Annotated[
        str | None,
        typer.Option(
            help="live or sealed: whether raw scores go into the audit experiment before an "
            "audit. By default as the run was tracked, else live."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring MLflow up to date with the ledger; a second time it adds nothing."""
    with said(as_json):
        from ladderholdout.integrations.mlflow import export as bring

        holdout = LadderHoldout.open(name, account=account, ladder=ladder, ledger=ledger)
        done = bring(
            holdout,
            run_id=run_id,
            experiment=experiment,
            tracking_uri=tracking_uri,
            audit_tracking_uri=audit_tracking_uri,
            raw=raw,
        )
        if as_json:
            print_json(done)
            return
        for one in done:
            told = f"{one.kind} run {one.run_id}: {one.sent} submissions sent, {one.entries} in all"
            console().print(told, soft_wrap=True)
        if len(done) == 1:
            console().print("audit run: sealed until an audit opens the raw scores", soft_wrap=True)


@app.command()
def doctor(
    ledger: LedgerOption = None,
    tracking_uri: TrackingOption = None,
    audit_tracking_uri: AuditTrackingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look whether the ledger, the vaults and MLflow are in working order; 1 where not."""
    with said(as_json):
        found = _findings(ledger, tracking_uri, audit_tracking_uri)
        if as_json:
            print_json(found)
        else:
            for one in found:
                mark = "ok   " if one.ok else "FAULT"
                told = f"{mark}  {one.what}: {one.said} {one.remedy}".rstrip()
                console().print(told, soft_wrap=True)
    raise typer.Exit(0 if all(one.ok for one in found) else 1)


def _findings(
    ledger: str | None, tracking_uri: str | None, audit_tracking_uri: str | None
) -> list[Finding]:
    from ladderholdout.integrations.mlflow.health import mlflow_findings

    try:
        found = list(ledger_findings(resolve_url(ledger)))
    except LadderHoldoutError as error:
        found = [Finding("ledger", False, str(error))]
    return [*found, *mlflow_findings(tracking_uri, audit_tracking_uri)]
