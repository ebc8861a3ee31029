"""Made-up registrations, ladders and submissions, written by a ledger's own transactions."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ladderholdout.ledger import events as e
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.log import as_bytes, now
from ladderholdout.ledger.transaction import KnownRows, Transaction

START = {"standing": 1.0, "noise": None, "releases": 0}


def registered(tx: Transaction, name: str, n: int = 3, secret: bytes = b"\0secret\xff") -> int:
    """Register rows with the hashes 0, 1, 2, ...; return the number of the holdout."""
    hashes = np.arange(n, dtype=np.uint64)
    rows = e.Registered(
        name=name,
        fingerprint="f" * 64,
        content="c0ffee",
        n=n,
        row_hashes=hashlib.sha256(as_bytes(hashes)).hexdigest(),
        confidence=0.95,
        time=now(),
    )
    number = tx.start(rows, secret, as_bytes(hashes))
    tx.set_known(number, KnownRows(hashes, np.arange(n), labels_digest=b"labels"))
    return number


def settings_of(name: str, account: str = "default") -> e.LadderSettings:
    """Return settings of a ladder."""
    rule = "Ladder", {"step": 0.1}
    return e.LadderSettings(account, name, "accuracy", {}, *rule, None, 1.0, "scores")


def submitted(ladder: LadderRecord, digest: str, **more: Any) -> e.Submitted:
    """Return the next submission to a ladder, a query with made-up risks."""
    stated: dict[str, Any] = {
        "ladder": ladder.id,
        "number": ladder.submissions + 1,
        "query": ladder.queries + 1,
        "time": now(),
        "digest": digest,
        "raw": 0.5,
        "evidence": {"risk": 0.5},
        "risk": 0.5,
        "improved": False,
        "context": {"note": "ü\0"},
    }
    return e.Submitted(**stated | more)
