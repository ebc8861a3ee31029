"""The durable, ordered record of all submissions: the only package with SQL.

`Ledger` opens transactions on it; `resolve_url` returns its place; `replay` recomputes
every release from it; `verify` finds what was changed in it.
"""

from __future__ import annotations

from ladderholdout.ledger.accounts import AccountRecord
from ladderholdout.ledger.batches import EstimateRecord, IntervalRecord
from ladderholdout.ledger.blocks import Block
from ladderholdout.ledger.chain import Left, digests_of, refuse_retired
from ladderholdout.ledger.finals import FinalsEntry, FinalsRecord, NewFinals
from ladderholdout.ledger.history import Chosen, ImprovementRecord, LadderQueries
from ladderholdout.ledger.known_rows import Sharing
from ladderholdout.ledger.place import (
    Access,
    file_of,
    is_memory,
    is_server,
    resolve_url,
    shown,
    vault_beside,
)
from ladderholdout.ledger.postgres import Stale
from ladderholdout.ledger.records import (
    AT_A_TIME,
    Asked,
    AuditEntry,
    Entry,
    First,
    Head,
    HoldoutRecord,
    KnownRows,
    LadderRecord,
    LadderSettings,
    Overlap,
    Progress,
    ViewRecord,
    block_name,
    parted_name,
    same_ladder,
)
from ladderholdout.ledger.reserve_queries import ReserveEvidence, ReserveQuery
from ladderholdout.ledger.store import Ledger, backup, holdout_names
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.ledger.verification import Finding, Verification, verify

__all__ = [
    "AT_A_TIME",
    "Access",
    "AccountRecord",
    "Asked",
    "AuditEntry",
    "Block",
    "Chosen",
    "Entry",
    "EstimateRecord",
    "FinalsEntry",
    "FinalsRecord",
    "Finding",
    "First",
    "Head",
    "HoldoutRecord",
    "ImprovementRecord",
    "IntervalRecord",
    "KnownRows",
    "LadderQueries",
    "LadderRecord",
    "LadderSettings",
    "Ledger",
    "Left",
    "NewFinals",
    "Overlap",
    "Progress",
    "ReserveEvidence",
    "ReserveQuery",
    "Sharing",
    "Stale",
    "Transaction",
    "Verification",
    "ViewRecord",
    "backup",
    "block_name",
    "digests_of",
    "file_of",
    "holdout_names",
    "is_memory",
    "is_server",
    "parted_name",
    "refuse_retired",
    "resolve_url",
    "same_ladder",
    "shown",
    "vault_beside",
    "verify",
]
