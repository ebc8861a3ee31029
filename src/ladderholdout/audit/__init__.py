"""Opening the raw scores, knowingly: what was earned, and what was picked.

`open_audit` is what `holdout.owner.audit` calls; `Audit` is what it returns. `plots` draws
it, and `write_report` puts all of it into one HTML file.
"""

from __future__ import annotations

from ladderholdout.audit.opening import open_audit
from ladderholdout.audit.records import (
    Audit,
    AuditedBatch,
    FreshTest,
    HoldoutTest,
    LadderUse,
    Record,
    Verdict,
)
from ladderholdout.audit.report import record_of, write_report
from ladderholdout.audit.statistics import Interval
from ladderholdout.audit.submissions import AuditedSubmission, AuditedSubmissions, History

__all__ = [
    "Audit",
    "AuditedBatch",
    "AuditedSubmission",
    "AuditedSubmissions",
    "FreshTest",
    "History",
    "HoldoutTest",
    "Interval",
    "LadderUse",
    "Record",
    "Verdict",
    "open_audit",
    "record_of",
    "write_report",
]
