"""Opening the raw scores, knowingly."""

from __future__ import annotations

from ladderholdout.audit.report import Audit, AuditedSubmission, open_audit

__all__ = ["Audit", "AuditedSubmission", "open_audit"]
