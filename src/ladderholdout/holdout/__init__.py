"""The guard: metrics, mechanism and ledger together, one transaction per submission."""

from __future__ import annotations

from ladderholdout.holdout.facade import LadderHoldout
from ladderholdout.holdout.stopping import LadderStopping
from ladderholdout.holdout.views import Release, Status, Submission

__all__ = ["LadderHoldout", "LadderStopping", "Release", "Status", "Submission"]
