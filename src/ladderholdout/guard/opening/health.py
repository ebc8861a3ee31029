"""Whether a holdout's record, its rows and the ledger are in working order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ladderholdout import vault as vaults
from ladderholdout.errors import (
    HoldoutConflict,
    InvalidArgument,
    LadderHoldoutError,
    LedgerBusy,
    LedgerError,
    LedgerUnreachable,
    UnknownHoldout,
    VaultError,
)
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.opening.registration import named
from ladderholdout.guard.opening.stored_rows import Kept, read_kept
from ladderholdout.ledger.fold import HoldoutRecord
from ladderholdout.ledger.log import Progress
from ladderholdout.ledger.place import file_of, shown
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import Block, Transaction, ViewRecord
from ladderholdout.ledger.verify import Finding, Verification
from ladderholdout.process import is_open_to_others


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found.

    Attributes
    ----------
    what : str
        What was checked.
    ok : bool
        Whether it is in working order.
    found : str
        What was found; an error of this library also states what to do.
    remedy : str
        What to do about anything else.

    Examples
    --------
    >>> Check("ledger", True, "3 holdouts").ok
    True
    """

    what: str
    ok: bool
    found: str
    remedy: str = ""


def ledger_findings(url: str) -> Iterator[Check]:
    """Check the ledger and the vaults of all its holdouts.

    Parameters
    ----------
    url : str
        As `resolve_url` returns it.

    Yields
    ------
    Check
    """
    path = file_of(url)
    if path is not None and not path.exists():
        yield Check("ledger", True, f"none yet; the first LadderHoldout makes {path}")
        return
    try:
        store = Ledger(url)
        # A writer's transaction: it fails where the ledger is locked, read-only or on a full disk.
        with store.write() as tx:
            known = tx.holdouts()
            views = [(one, view) for one in known for view in tx.views(one.id)]
    except LadderHoldoutError as error:
        yield Check("ledger", False, str(error))
        return
    yield Check("ledger", True, f"{shown(url)} is readable and writable; holdouts: {len(known)}")
    for setting in store.risks():
        yield Check(
            "server's durability",
            False,
            f"{setting} is off on the server: a power cut there may take back what was released",
            f"Run ALTER SYSTEM SET {setting} = on; SELECT pg_reload_conf().",
        )
    if path is not None:
        yield from _privacy(path)
    for holdout, view in views:
        yield vault_finding(holdout, view)


def vault_finding(holdout: HoldoutRecord, view: ViewRecord) -> Check:
    """Check the private copy of a holdout's rows: there, private, unchanged, readable."""
    what = f"vault of {holdout.name}" + (f", view {view.number}" if view.number > 1 else "")
    if view.vault_path is None or view.vault_digest is None:
        return Check(what, True, "none is kept (vault=False)")
    try:
        rows = vaults.read(view.vault_path, view.vault_digest, view.fingerprint)
    except LadderHoldoutError as error:
        return Check(what, False, str(error))
    return Check(what, True, f"{len(rows.y)} rows, private and unchanged")


def _privacy(path: Path) -> Iterator[Check]:
    """Check that nobody else can read the ledger's file, which contains raw scores."""
    if is_open_to_others(path.stat()):
        yield Check(
            "ledger's privacy",
            False,
            f"other users of this machine may read {path}",
            f"Run chmod 600 {path}.",
        )


@without_frames
def verify_holdout(url: str, name: str, progress: Progress | None = None) -> Verification:
    """Verify the record of a holdout, with all of its ladders and blocks, and its vault.

    Parameters
    ----------
    url : str
        Of the ledger, as `resolve_url` returns it.
    name : str
        The holdout's.
    progress : callable, optional
        As for `ledger.verify`.

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
    ledger = Ledger(url)
    with ledger.read() as tx:
        if tx.holdout_id(name) is None:
            named(tx, name)  # its message lists them
            raise UnknownHoldout(f"The ledger has no holdout {name!r}.")
        blocks = tx.blocks(name)
    verified = [_verified(ledger, block, block.name != name, progress) for block in blocks]
    return replace(
        verified[-1],
        holdout=name,
        submissions=sum(of_block.submissions for of_block in verified),
        findings=tuple(finding for of_block in verified for finding in of_block.findings),
        blocks=len(blocks),
    )


def _verified(ledger: Ledger, block: Block, named: bool, progress: Progress | None) -> Verification:
    """Verify one block of a holdout and its vault; findings name the block where there are more."""
    verified = ledger.verify(block.id, progress)
    with ledger.read() as tx:
        kept = _kept(tx, block.id)
    findings = (*verified.findings, *(finding for one in kept for finding in _vault_findings(one)))
    if named:
        findings = tuple(
            replace(finding, what=f"in {block.name}: {finding.what}") for finding in findings
        )
    return replace(verified, findings=findings)


def _kept(tx: Transaction, holdout_id: int) -> list[Kept]:
    try:
        return [read_kept(tx, holdout_id, view.number) for view in tx.views(holdout_id)]
    except (LedgerBusy, LedgerUnreachable):
        raise
    except LedgerError:  # the check of the chain reports it
        return []


def _vault_findings(kept: Kept) -> Iterator[Finding]:
    if kept.view.vault_path is None or kept.view.vault_digest is None:
        return
    try:
        kept.order(kept.rows())
    except (VaultError, InvalidArgument) as error:
        yield Finding(str(error).rstrip("."))
    except HoldoutConflict:
        yield Finding("the vault holds other labels or weights than are on record")
