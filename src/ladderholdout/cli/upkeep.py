"""Commands that maintain a ledger: verify, backup, export to MLflow, doctor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ladderholdout.cli.common import (
    AccountOption,
    AuditTrackingOption,
    JsonOption,
    LadderOption,
    LedgerOption,
    NameArgument,
    TrackingOption,
    opened_one,
    print_json,
    print_lines,
    progress,
)
from ladderholdout.errors import LadderHoldoutError, TrackingError
from ladderholdout.guard.health import Check, ledger_findings, verify_holdout
from ladderholdout.guard.registration import named
from ladderholdout.holdout import LadderHoldout
from ladderholdout.ledger import Finding, Head, Ledger, Verification, backup, resolve_url, shown

_MANY = 20


def back_up(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist yet.")
    ],
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the ledger, in use or not. The holdouts' rows are in the vault, and are not copied."""
    url = resolve_url(ledger)
    written = backup(url, file)
    if as_json:
        print_json({"ledger": shown(url), "file": str(written)})
    else:
        print_lines(f"written: {written}")


def verify(
    name: NameArgument,
    mlflow: Annotated[
        bool,
        typer.Option("--mlflow", help="Compare with the chain's ends that exports left in MLflow."),
    ] = False,
    tracking_uri: TrackingOption = None,
    audit_tracking_uri: AuditTrackingOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a holdout's record is as it was written; exit status 1 where it is not.

    Replays every ladder, recomputes the chain of hashes, and checks the vault's rows.
    """
    url = resolve_url(ledger)
    with progress("Verifying") as step:
        found = verify_holdout(url, name, step)
    findings, compared = list(found.findings), 0
    if mlflow:
        compared, changed = _compared(url, name, tracking_uri, audit_tracking_uri)
        findings += changed
    _show_verification(found, findings, compared if mlflow else None, as_json)
    raise typer.Exit(1 if findings else 0)


def _show_verification(
    found: Verification, findings: list[Finding], compared: int | None, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "holdout": found.holdout,
                "intact": not findings,
                "findings": findings,
                "submissions": found.submissions,
                "head": found.head,
                "anchors": compared,
            }
        )
        return
    print_lines(*(f"FOUND: {one}" for one in findings[:_MANY]))
    if len(findings) > _MANY:
        print_lines(f"... and {len(findings) - _MANY} more")
    anchored = "" if compared is None else f", {compared} heads anchored in MLflow"
    print_lines(
        f"{found.holdout}: {found.submissions} submissions, {found.head.length} links in the "
        f"chain{anchored}: {'NOT as written' if findings else 'all as written'}",
        f"head: {found.head}",
    )


def _compared(
    url: str, name: str, tracking_uri: str | None, audit_tracking_uri: str | None
) -> tuple[int, list[Finding]]:
    """Compare a holdout's chain with every head that an export left in MLflow, and count them.

    The owner of the ledger's file can rebuild its chain whole; MLflow, in other hands, still
    holds the ends that the chain had.
    """
    found = list(_anchored(url, name, tracking_uri, audit_tracking_uri))
    if not found:
        raise TrackingError(
            f"MLflow holds nothing of {name!r} to compare with. Is --tracking-uri right? "
            "ladder-holdout export leaves the end of the chain there, for the next time."
        )
    with Ledger(url).read() as tx:
        record = named(tx, name)
        findings = [
            Finding(
                f"the first {head.length} links of the chain are not those that were sent to "
                f"MLflow's {run} of ladder {place}: the ledger was rebuilt or replaced since",
                place,
            )
            for run, head, place in found
            if tx.head_at(record.id, head.length) != head
        ]
    return len(found), findings


def _anchored(
    url: str, name: str, tracking_uri: str | None, audit_tracking_uri: str | None
) -> Iterator[tuple[str, Head, str]]:
    from ladderholdout.integrations.mlflow import anchors

    with Ledger(url).read() as tx:
        ladders = [one.settings for one in tx.ladders(named(tx, name).id)]
    for one in ladders:
        holdout = LadderHoldout.open(name, account=one.account, ladder=one.name, ledger=url)
        for anchor in anchors(
            holdout, tracking_uri=tracking_uri, audit_tracking_uri=audit_tracking_uri
        ):
            place = f"{one.account}/{one.name}"
            yield f"{anchor.kind} run {anchor.run_id}", anchor.head, place


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
            help="live: raw scores go into the audit experiment at once; sealed: after an audit "
            "opens them. By default as the run was tracked, else live."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send a ladder's submissions to MLflow; those that are there already are not sent again."""
    from ladderholdout.integrations.mlflow import export as bring

    holdout = opened_one(name, account, ladder, ledger)
    with progress("Sending the submissions") as step:
        done = bring(
            holdout,
            run_id=run_id,
            experiment=experiment,
            tracking_uri=tracking_uri,
            audit_tracking_uri=audit_tracking_uri,
            raw=raw,
            progress=step,
        )
    if as_json:
        print_json(done)
        return
    for one in done:
        sent = f"{one.sent} submissions sent, {one.entries} in all"
        print_lines(f"{one.kind} run {one.run_id}: {sent}, in {one.store}")
    if len(done) == 1:
        print_lines("audit run: sealed until an audit opens the raw scores")


def doctor(
    ledger: LedgerOption = None,
    tracking_uri: TrackingOption = None,
    audit_tracking_uri: AuditTrackingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that the ledger, the vaults and MLflow work; exit status 1 where one does not."""
    found = _findings(ledger, tracking_uri, audit_tracking_uri)
    if as_json:
        print_json(found)
    else:
        for one in found:
            mark = "ok   " if one.ok else "FAULT"
            print_lines(f"{mark}  {one.what}: {one.found} {one.remedy}".rstrip())
    raise typer.Exit(0 if all(one.ok for one in found) else 1)


def _findings(
    ledger: str | None, tracking_uri: str | None, audit_tracking_uri: str | None
) -> list[Check]:
    from ladderholdout.integrations.mlflow.service import mlflow_findings

    try:
        found = list(ledger_findings(resolve_url(ledger)))
    except LadderHoldoutError as error:
        found = [Check("ledger", False, str(error))]
    return [*found, *mlflow_findings(tracking_uri, audit_tracking_uri)]
