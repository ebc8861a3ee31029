"""Commands that maintain a ledger: verify, backup, export to MLflow, doctor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ladderholdout.cli import common
from ladderholdout.errors import LadderHoldoutError, TrackingError
from ladderholdout.guard.health import Check, ledger_findings, verify_holdout
from ladderholdout.guard.opening import named
from ladderholdout.holdout import LadderHoldout
from ladderholdout.ledger.fold import Head
from ladderholdout.ledger.place import resolve_url, shown
from ladderholdout.ledger.store import Ledger, backup
from ladderholdout.ledger.verify import Finding
from ladderholdout.metrics import verdicts_of

_MANY = 20


def back_up(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist yet.")
    ],
    ledger: common.LedgerOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Copy the ledger, in use or not. The holdouts' rows are in the vault, and are not copied."""
    url = resolve_url(ledger)
    written = backup(url, file)
    if as_json:
        common.print_json({"ledger": shown(url), "file": str(written)})
    else:
        common.print_lines(f"written: {written}")


def verify(
    name: common.NameArgument,
    mlflow: Annotated[
        bool,
        typer.Option("--mlflow", help="Compare with the chain's ends that exports left in MLflow."),
    ] = False,
    tracking_uri: common.TrackingOption = None,
    audit_tracking_uri: common.AuditTrackingOption = None,
    verdicts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check a judge's file of verdicts, too."),
    ] = None,
    ledger: common.LedgerOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Check that a holdout's record is as it was written; exit status 1 where it is not.

    Replays every ladder, recomputes the chain of hashes, and checks the vault's rows, of all blocks
    that the holdout has had.
    """
    url = resolve_url(ledger)
    with common.progress("Verifying") as step:
        verification = verify_holdout(url, name, step)
    findings, compared = list(verification.findings), None
    if mlflow:
        compared, changed = _compared(url, name, tracking_uri, audit_tracking_uri)
        findings += changed
    record = None if verdicts is None else verdicts_of(verdicts)
    if record is not None and record.changed:
        what = f"the verdicts are not as they were written: {record.changed}"
        findings.append(Finding(what))
    if as_json:
        common.print_json(
            {
                "holdout": verification.holdout,
                "intact": not findings,
                "findings": findings,
                "submissions": verification.submissions,
                "blocks": verification.blocks,
                "head": verification.head,
                "anchors": compared,
                "verdicts": record,
            }
        )
        raise typer.Exit(1 if findings else 0)
    common.print_lines(*(f"FOUND: {finding}" for finding in findings[:_MANY]))
    if len(findings) > _MANY:
        common.print_lines(f"... and {len(findings) - _MANY} more")
    anchored = "" if compared is None else f", {compared} heads anchored in MLflow"
    blocks = f" to {verification.blocks} blocks" if verification.blocks > 1 else ""
    links = "links in the chain of the newest" if blocks else "links in the chain"
    common.print_lines(
        f"{verification.holdout}: {verification.submissions} submissions{blocks}, "
        f"{verification.head.length} {links}{anchored}: "
        f"{'NOT as written' if findings else 'all as written'}",
        f"head: {verification.head}",
    )
    if record is not None:
        common.print_lines(f"verdicts: {record.verdicts}, head: {record.head}")
    raise typer.Exit(1 if findings else 0)


def _compared(
    url: str, name: str, tracking_uri: str | None, audit_tracking_uri: str | None
) -> tuple[int, list[Finding]]:
    """Compare a holdout's chains with every head that an export left in MLflow, and count them.

    The owner of the ledger's file can rebuild its chain whole; MLflow, in other hands, still
    holds the ends that the chain had.
    """
    anchors = list(_anchored(url, name, tracking_uri, audit_tracking_uri))
    if not anchors:
        raise TrackingError(
            f"MLflow holds nothing of {name!r} to compare with. Is --tracking-uri right? "
            "ladder-holdout export leaves the end of the chain there, for the next time."
        )
    with Ledger(url).read() as tx:
        findings = [
            Finding(
                f"the first {head.length} links of the chain of {block} are not those that were "
                f"sent to MLflow's {run} of ladder {place}: the ledger was rebuilt or replaced "
                "since",
                place,
            )
            for block, run, head, place in anchors
            if tx.head_at(named(tx, block).id, head.length) != head
        ]
    return len(anchors), findings


def _anchored(
    url: str, name: str, tracking_uri: str | None, audit_tracking_uri: str | None
) -> Iterator[tuple[str, str, Head, str]]:
    """Yield the name of a block, the run that has a head, that head, and whose ladder it is of."""
    from ladderholdout.integrations.mlflow import anchors

    with Ledger(url).read() as tx:
        blocks = tx.blocks(named(tx, name).name)
        ladders = [(block.name, one.settings) for block in blocks for one in tx.ladders(block.id)]
    for block, settings in ladders:
        account, ladder = settings.account, settings.name
        holdout = LadderHoldout.open(block, account=account, ladder=ladder, ledger=url)
        for anchor in anchors(
            holdout, tracking_uri=tracking_uri, audit_tracking_uri=audit_tracking_uri
        ):
            place = f"{account}/{ladder}"
            yield block, f"{anchor.kind} run {anchor.run_id}", anchor.head, place


@common.on_ladder(scoring=False, server=False, single=True)
def export(
    holdout: LadderHoldout,
    tracking_uri: common.TrackingOption = None,
    audit_tracking_uri: common.AuditTrackingOption = None,
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
    as_json: common.JsonOption = False,
) -> None:
    """Send a ladder's submissions to MLflow; those that are there already are not sent again."""
    from ladderholdout.integrations.mlflow import export as bring

    with common.progress("Sending the submissions") as step:
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
        common.print_json(done)
        return
    for copied in done:
        sent = f"{copied.sent} submissions sent, {copied.entries} in all"
        common.print_lines(f"{copied.kind} run {copied.run_id}: {sent}, in {copied.store}")
    if len(done) == 1:
        common.print_lines("audit run: sealed until an audit opens the raw scores")


def doctor(
    ledger: common.LedgerOption = None,
    tracking_uri: common.TrackingOption = None,
    audit_tracking_uri: common.AuditTrackingOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Check that the ledger, the vaults and MLflow work; exit status 1 where one does not."""
    checks = _findings(ledger, tracking_uri, audit_tracking_uri)
    if as_json:
        common.print_json(checks)
    else:
        for check in checks:
            mark = "ok   " if check.ok else "FAULT"
            common.print_lines(f"{mark}  {check.what}: {check.found} {check.remedy}".rstrip())
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


def _findings(
    ledger: str | None, tracking_uri: str | None, audit_tracking_uri: str | None
) -> list[Check]:
    from ladderholdout.integrations.mlflow.service import mlflow_findings

    try:
        checks = list(ledger_findings(resolve_url(ledger)))
    except LadderHoldoutError as error:
        checks = [Check("ledger", False, str(error))]
    return [*checks, *mlflow_findings(tracking_uri, audit_tracking_uri)]
