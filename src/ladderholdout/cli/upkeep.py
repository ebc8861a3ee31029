"""Commands that maintain a ledger: verify, backup, export to MLflow.

Parameters
----------
tracking_uri
    MLflow's tracking server; by default MLflow's own choice: MLFLOW_TRACKING_URI, else a database
    in this folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import typer

from ladderholdout.cli import common, options
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, TrackingError
from ladderholdout.guard import health, opening
from ladderholdout.holdout import LadderHoldout
from ladderholdout.ledger import fold, store
from ladderholdout.ledger.place import resolve_url, shown
from ladderholdout.ledger.verify import Finding
from ladderholdout.metrics import verdicts_of

_MANY = 20


def back_up(file: Path, *, ledger: str | None = None) -> None:
    """Copy the ledger, in use or not. The holdouts' rows are in the vault, and are not copied.

    Parameters
    ----------
    file : FILE
        The file to write; it must not exist yet.
    """
    url = resolve_url(ledger)
    written = store.backup(url, file)
    copied = {"ledger": shown(url), "file": str(written)}
    common.print_result(copied, f"written: {written}")


def verify(
    name: options.AnyName = None,
    *,
    installation: bool = False,
    mlflow: bool = False,
    tracking_uri: str | None = None,
    audit_tracking_uri: str | None = None,
    verdicts: Path | None = None,
    ledger: str | None = None,
) -> None:
    """Check that a holdout's record is as it was written; exit status 1 if it is not.

    Replays every ladder, recomputes the chain of hashes, and checks the vault's rows, of all blocks
    that the holdout has had.

    Parameters
    ----------
    installation
        Check instead, without NAME, that the ledger, the vaults and MLflow work.
    mlflow
        Compare with the chain's ends that exports left in MLflow.
    verdicts : FILE
        Check a judge's file of verdicts, too.
    """
    if installation:
        if name is not None or mlflow or verdicts is not None:
            allowed = "stated without NAME, --mlflow and --verdicts"
            raise InvalidArgument("--installation", allowed, "stated with one of them")
        _check_installation(ledger, tracking_uri, audit_tracking_uri)
    if name is None:
        raise typer.BadParameter("Missing argument 'NAME'; or state --installation.")
    url = resolve_url(ledger)
    with common.progress("Verifying") as step:
        verification = health.verify_holdout(url, name, step)
    findings, compared = list(verification.findings), None
    if mlflow:
        compared, changed = _compared(url, name, tracking_uri, audit_tracking_uri)
        findings += changed
    record = None if verdicts is None else verdicts_of(verdicts)
    if record is not None and record.changed:
        what = f"the verdicts are not as they were written: {record.changed}"
        findings.append(Finding(what))
    shown_as = {
        "holdout": verification.holdout,
        "intact": not findings,
        "findings": findings,
        "submissions": verification.submissions,
        "blocks": verification.blocks,
        "head": verification.head,
        "anchors": compared,
        "verdicts": record,
    }
    lines = [f"FOUND: {finding}" for finding in findings[:_MANY]]
    if len(findings) > _MANY:
        lines.append(f"... and {len(findings) - _MANY} more")
    anchored = "" if compared is None else f", {compared} heads anchored in MLflow"
    blocks = f" to {verification.blocks} blocks" if verification.blocks > 1 else ""
    links = "links in the chain of the newest" if blocks else "links in the chain"
    lines.append(
        f"{verification.holdout}: {verification.submissions} submissions{blocks}, "
        f"{verification.head.length} {links}{anchored}: "
        f"{'NOT as written' if findings else 'all as written'}"
    )
    lines.append(f"head: {verification.head}")
    if record is not None:
        lines.append(f"verdicts: {record.verdicts}, head: {record.head}")
    common.print_result(shown_as, *lines)
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
    with store.Ledger(url).read() as tx:
        findings = [
            Finding(
                f"the first {head.length} links of the chain of {block} are not those that were "
                f"sent to MLflow's {run} of ladder {place}: the ledger was rebuilt or replaced "
                "since",
                place,
            )
            for block, run, head, place in anchors
            if not tx.has(opening.named(tx, block).id, head)
        ]
    return len(anchors), findings


def _anchored(
    url: str, name: str, tracking_uri: str | None, audit_tracking_uri: str | None
) -> Iterator[tuple[str, str, fold.Head, str]]:
    """Yield the name of a block, the run that has a head, that head, and whose ladder it is of."""
    from ladderholdout.integrations.mlflow import anchors

    with store.Ledger(url).read() as tx:
        blocks = tx.blocks(opening.named(tx, name).name)
        ladders = [(block.name, one.settings) for block in blocks for one in tx.ladders(block.id)]
    for block, settings in ladders:
        account, ladder = settings.account, settings.name
        holdout = LadderHoldout.open(block, account=account, ladder=ladder, ledger=url)
        for anchor in anchors(
            holdout, tracking_uri=tracking_uri, audit_tracking_uri=audit_tracking_uri
        ):
            place = f"{account}/{ladder}"
            yield block, f"{anchor.kind} run {anchor.run_id}", anchor.head, place


@options.on_ladder(scoring=False, server=False, single=True)
def export(
    holdout: LadderHoldout,
    *,
    tracking_uri: str | None = None,
    audit_tracking_uri: str | None = None,
    run_id: str | None = None,
    experiment: str | None = None,
    raw: str | None = None,
) -> None:
    """Send a ladder's submissions to MLflow; those that are there already are not sent again.

    Parameters
    ----------
    run_id
        Your run; by default the newest that is tied to this ladder, else a new one.
    experiment
        Where a new run goes; by default the one called like the holdout.
    raw
        live: raw scores go into the audit experiment at once; sealed: after an audit opens them. By
        default as the run was tracked, else live.
    """
    from ladderholdout.integrations.mlflow import export as bring

    with common.progress("Sending the submissions") as step:
        done = bring(holdout, progress=step, **options.taken(bring, locals()))
    lines = [
        f"{copied.kind} run {copied.run_id}: {copied.sent} submissions sent, {copied.entries} in "
        f"all, in {copied.store}"
        for copied in done
    ]
    if len(done) == 1:
        lines.append("audit run: sealed until an audit opens the raw scores")
    common.print_result(done, *lines)


def _check_installation(
    ledger: str | None, tracking_uri: str | None, audit_tracking_uri: str | None
) -> NoReturn:
    """Check that the ledger, the vaults and MLflow work."""
    from ladderholdout.integrations.mlflow.service import mlflow_findings

    try:
        checks = list(health.ledger_findings(resolve_url(ledger)))
    except LadderHoldoutError as error:
        checks = [health.Check("ledger", False, str(error))]
    checks += mlflow_findings(tracking_uri, audit_tracking_uri)
    lines = (
        f"{'ok   ' if check.ok else 'FAULT'}  {check.what}: {check.found} {check.remedy}".rstrip()
        for check in checks
    )
    common.print_result(checks, *lines)
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)
