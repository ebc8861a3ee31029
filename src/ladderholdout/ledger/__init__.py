"""The durable, ordered record of all submissions: the only room with SQL.

`Ledger` opens transactions on it; `resolve_url` says where it lies; `replay` recomputes
every release from it.
"""

from __future__ import annotations

from ladderholdout.ledger.place import default_path, file_of, is_memory, resolve_url, shown
from ladderholdout.ledger.records import (
    AuditEntry,
    Entry,
    HoldoutRecord,
    LadderRecord,
    LadderSettings,
    Overlap,
)
from ladderholdout.ledger.store import Ledger, Transaction

__all__ = [
    "AuditEntry",
    "Entry",
    "HoldoutRecord",
    "LadderRecord",
    "LadderSettings",
    "Ledger",
    "Overlap",
    "Transaction",
    "default_path",
    "file_of",
    "is_memory",
    "resolve_url",
    "shown",
]
