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
from ladderholdout.holdout import LadderHoldout, LadderStopping, Release, Status
from ladderholdout.metrics import Metric

__version__ = version("ladderholdout")

__all__ = [
    "InvalidArgument",
    "LadderHoldout",
    "LadderHoldoutError",
    "LadderHoldoutWarning",
    "LadderStopping",
    "Metric",
    "Release",
    "SearchStopped",
    "Status",
    "__version__",
    "errors",
    "mechanisms",
    "metrics",
]
