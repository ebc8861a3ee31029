"""Reuse a holdout set safely.

Query your holdout as often as you like, and still have a score you can believe.

`LadderHoldout` is between the holdout and whatever chooses the next model: it answers
through a mechanism from the Ladder family and writes every query into a durable ledger.
"""

from __future__ import annotations

from importlib.metadata import version

from ladderholdout import errors, mechanisms, metrics
from ladderholdout.errors import (
    InvalidArgument,
    LadderHoldoutError,
    LadderHoldoutWarning,
    SearchStopped,
)
from ladderholdout.guard.batches import Batch, Finalist
from ladderholdout.guard.certificate import Comparison, Health, ScoreCertificate
from ladderholdout.guard.commands import Withdrawn
from ladderholdout.guard.printing import Submissions
from ladderholdout.guard.views import Decision, Estimate, Release, Status, Submission
from ladderholdout.holdout import LadderHoldout, LadderStopping
from ladderholdout.metrics import Metric

__version__ = version("ladderholdout")

__all__ = [
    "Batch",
    "Comparison",
    "Decision",
    "Estimate",
    "Finalist",
    "Health",
    "InvalidArgument",
    "LadderHoldout",
    "LadderHoldoutError",
    "LadderHoldoutWarning",
    "LadderStopping",
    "Metric",
    "Release",
    "ScoreCertificate",
    "SearchStopped",
    "Status",
    "Submission",
    "Submissions",
    "Withdrawn",
    "__version__",
    "errors",
    "mechanisms",
    "metrics",
]
