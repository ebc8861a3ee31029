"""Opening the raw scores, knowingly: what was earned, and what was picked.

`open_audit` is what `LadderHoldout.audit` calls; `Audit` is what it returns. `plots` draws
it, and `write_report` puts all of it into one HTML file.
"""

from __future__ import annotations

from ladderholdout.audit.findings import Audit
from ladderholdout.audit.html import record_of, write_report
from ladderholdout.audit.intervals import Interval
from ladderholdout.audit.opening import open_audit
from ladderholdout.audit.records import (
    AuditedSubmission,
    Batch,
    FreshTest,
    HoldoutTest,
    LadderUse,
    Record,
)
from ladderholdout.audit.verdict import Verdict

__all__ = [
    "Audit",
    "AuditedSubmission",
    "Batch",
    "FreshTest",
    "HoldoutTest",
    "Interval",
    "LadderUse",
    "Record",
    "Verdict",
    "open_audit",
    "record_of",
    "write_report",
]
