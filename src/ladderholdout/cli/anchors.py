"""What MLflow's runs say about a ledger, beside what the ledger says now."""

from __future__ import annotations

from collections.abc import Iterator

from ladderholdout.errors import TrackingError
from ladderholdout.holdout import LadderHoldout
from ladderholdout.holdout.registration import named
from ladderholdout.ledger import Finding, Head, Ledger


def compare(
    url: str, name: str, tracking_uri: str | None, audit_tracking_uri: str | None
) -> tuple[int, list[Finding]]:
    """Compare the chain of a holdout with every head that an export left in MLflow.

    Whoever owns the ledger's file can rebuild its chain whole; MLflow still says what the
    chain was, where it is in other hands.

    Returns
    -------
    int
        How many heads were compared.
    list of Finding

    Raises
    ------
    TrackingError
        MLflow does not answer, or has nothing to compare with.
    """
    found = list(_anchored(url, name, tracking_uri, audit_tracking_uri))
    if not found:
        raise TrackingError(
            f"MLflow holds nothing of {name!r} to compare with. Is --tracking-uri right? "
            f"ladder-holdout export leaves the end of the chain there, for the next time."
        )
    with Ledger(url).read() as tx:
        record = named(tx, name)
        findings = [
            _finding(run, head, place)
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


def _finding(run: str, head: Head, place: str) -> Finding:
    return Finding(
        f"the first {head.length} links of the chain are not those that MLflow's {run} "
        f"of ladder {place} was told of: the ledger was rebuilt or replaced since",
        place,
    )
