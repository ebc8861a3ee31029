"""Whether a holdout's record and its rows are what was registered, and unchanged since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ladderholdout import fingerprint as fp
from ladderholdout import vault as vaults
from ladderholdout.errors import VaultError
from ladderholdout.holdout.marks import is_gone, mark_of
from ladderholdout.holdout.registration import named
from ladderholdout.ledger import Finding, HoldoutRecord, Ledger, Verification, verify


def verify_holdout(url: str, name: str) -> Verification:
    """Verify the record of a holdout, with all of its ladders, and its vault.

    Parameters
    ----------
    url : str
        Of the ledger, as `resolve_url` returns it.
    name : str
        The holdout's.

    Returns
    -------
    Verification

    Raises
    ------
    UnknownHoldout
        The ledger holds no such holdout.
    LedgerError
        The ledger cannot be read.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory",
    ...                         name="tiny")
    >>> verify_holdout(holdout.ledger, "tiny").findings
    ()
    """
    with Ledger(url).read() as tx:
        record = named(tx, name)
    mark = mark_of(url, record)
    seen = mark.seen()  # before the ledger, which never lags behind its mark
    with Ledger(url).read() as tx:
        found = verify(tx, record.id)
        older = is_gone(tx, record.id, found.head, seen)
    said = (*found.findings, *_vault_findings(record))
    if older and seen is not None:
        what = f"this is an older copy: link {seen.length} was seen on this machine"
        said = (*said, Finding(what))
    return replace(found, findings=said)


def _vault_findings(record: HoldoutRecord) -> Iterator[Finding]:
    if record.vault_path is None or record.vault_digest is None:
        return
    try:
        rows = vaults.read(record.vault_path, record.vault_digest, record.fingerprint)
    except VaultError as error:
        yield Finding(str(error).rstrip("."))
        return
    contents = fp.content_hashes(fp.row_hashes(rows.X), rows.y, rows.sample_weight)
    if fp.content_digest(record.secret, contents) != record.content_digest:
        yield Finding("the vault holds other labels or weights than were registered")
