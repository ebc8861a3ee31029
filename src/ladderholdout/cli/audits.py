"""Commands that may open the raw scores: audit and report."""

from __future__ import annotations

import re
from pathlib import Path

from ladderholdout.audit import Audit, Record, record_of, records, write_report
from ladderholdout.cli import common, options
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard import commands, open_ladder
from ladderholdout.holdout import LadderHoldout
from ladderholdout.leaderboard import Leaderboard


@options.on_ladder(scoring=False, server=False, single=True)
def audit(holdout: LadderHoldout, *, yes: bool = False) -> None:
    """Open a ladder's raw scores, permanently: compare them with what was released.

    Answers whether the incumbent beats a constant prediction, and how much too good the best
    raw score was. Submissions after it cannot be certified without a reserve.
    """
    result = _opened(holdout, yes)
    if common.as_json():
        common.print_json_of(result.summary(), "submissions", result.rows(), records.plain_value)
    else:
        common.print_pages(result.lines())


@options.on_ladder(scoring=False, server=False, single=True)
def report(
    holdout: LadderHoldout,
    *,
    opened: bool = False,
    output: Path | None = None,
    certificate: bool = False,
    attach: bool = False,
    audit_tracking_uri: str | None = None,
    yes: bool = False,
) -> None:
    """Write a report as one HTML file; without --opened it holds no raw score.

    Parameters
    ----------
    opened
        With the raw scores; this opens them, permanently.
    output
        The file; by default one in this folder, named after the holdout.
    certificate
        Put the range on record first; certificates of later incumbents pay for that.
    attach
        Attach it to the ladder's audit run in MLflow.
    """
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
    lines = [f"written: {file}"]
    if not opened and shown.status.incumbent and shown.status.certificate.missing:
        lines.append(f"no range is in it: {shown.status.certificate.missing}; see --certificate")
    if run is not None:
        lines.append(f"attached to the audit run {run}")
    written = {"file": str(file), "opened": opened, "audit_run": run}
    common.print_result(written, *lines)


def _opened(holdout: LadderHoldout, yes: bool) -> Audit:
    """Audit a ladder, after asking where that is what opens it."""
    ladder = open_ladder.ladder_of(holdout, several=True)
    if ladder.execute(commands.State()).opened is None and not yes:
        reserve = ladder.facts.n_reserve
        common.confirm(
            "This shows the raw scores, and marks the ladder as opened permanently: what is "
            "submitted afterwards is recorded, but "
            + ("only a reserve can certify it." if reserve else "can not be certified."),
            "Open it?",
        )
    with common.progress("Reading the submissions") as step:
        return holdout.owner.audit(progress=step)
