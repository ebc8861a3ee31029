"""Whether the record of a holdout, its rows and the ledger are in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ladderholdout import errors
from ladderholdout import vault as vaults
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.opening import named
from ladderholdout.guard.rows import Kept, read_kept
from ladderholdout.ledger.log import Progress
from ladderholdout.ledger.place import file_of, shown
from ladderholdout.ledger.store import Ledger
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
    except errors.LadderHoldoutError as error:
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
    if path is not None and is_open_to_others(path.stat()):  # it contains raw scores
        yield Check(
            "ledger's privacy",
            False,
            f"other users of this machine may read {path}",
            f"Run chmod 600 {path}.",
        )
    for holdout, view in views:
        what = f"vault of {holdout.name}" + (f", view {view.number}" if view.number > 1 else "")
        is_fine, found = True, "none is kept (vault=False)"
        if view.vault_path is not None and view.vault_digest is not None:
            try:
                rows = vaults.read(view.vault_path, view.vault_digest, view.fingerprint)
                found = f"{len(rows.y)} rows, private and unchanged"
            except errors.LadderHoldoutError as error:
                is_fine, found = False, str(error)
        yield Check(what, is_fine, found)


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
    ledger, findings = Ledger(url), []
    with ledger.read() as tx:
        if tx.holdout_id(name) is None:
            named(tx, name)  # refuses the name, and lists those there are
        blocks = tx.blocks(name)
    submissions = 0
    for block in blocks:
        verified = ledger.verify(block.id, progress)
        try:
            with ledger.read() as tx:
                kept = [read_kept(tx, block.id, view.number) for view in tx.views(block.id)]
        except (errors.LedgerBusy, errors.LedgerUnreachable):
            raise
        except errors.LedgerError:  # the check of the chain reports it
            kept = []
        submissions += verified.submissions
        place = "" if block.name == name else f"in {block.name}: "
        in_vaults = (finding for one in kept for finding in _vault_findings(one))
        for finding in (*verified.findings, *in_vaults):
            findings.append(replace(finding, what=f"{place}{finding.what}"))
    return replace(
        verified,
        holdout=name,
        submissions=submissions,
        findings=tuple(findings),
        blocks=len(blocks),
    )


def _vault_findings(kept: Kept) -> Iterator[Finding]:
    if kept.view.vault_path is None or kept.view.vault_digest is None:
        return
    try:
        kept.order(kept.rows())
    except (errors.VaultError, errors.InvalidArgument) as error:
        yield Finding(str(error).rstrip("."))
    except errors.HoldoutConflict:
        yield Finding("the vault holds other labels or weights than are on record")
