"""What an analyst is shown of a ladder, and what of it is copied into trackers."""

from __future__ import annotations

from ladderholdout.guard.shown.comparisons import Comparison
from ladderholdout.guard.shown.context import describe_estimator, jsonable
from ladderholdout.guard.shown.decisions import Decision, reason_of, why_spent
from ladderholdout.guard.shown.health import Health
from ladderholdout.guard.shown.next_release import step_at
from ladderholdout.guard.shown.of_metrics import of_metric, together
from ladderholdout.guard.shown.points import Unsent, unsent
from ladderholdout.guard.shown.record_views import (
    ESTIMATED_BY,
    OTHERWISE,
    estimate_of,
    estimate_on_record,
    releases_left,
    status_of,
    submission_of,
    why_not_estimated,
)
from ladderholdout.guard.shown.score_certificate import (
    INDEPENDENT,
    ScoreCertificate,
    uncertified,
)
from ladderholdout.guard.shown.views import (
    AN_OLDER_COPY,
    TOGETHER,
    Estimate,
    Release,
    Status,
    Submission,
    incumbent_named,
    overtaken,
    score_of,
)
from ladderholdout.guard.shown.withdrawal import Withdrawn, is_withdrawn, withdraw

__all__ = [
    "AN_OLDER_COPY",
    "ESTIMATED_BY",
    "INDEPENDENT",
    "OTHERWISE",
    "TOGETHER",
    "Comparison",
    "Decision",
    "Estimate",
    "Health",
    "Release",
    "ScoreCertificate",
    "Status",
    "Submission",
    "Unsent",
    "Withdrawn",
    "describe_estimator",
    "estimate_of",
    "estimate_on_record",
    "incumbent_named",
    "is_withdrawn",
    "jsonable",
    "of_metric",
    "overtaken",
    "reason_of",
    "releases_left",
    "score_of",
    "status_of",
    "step_at",
    "submission_of",
    "together",
    "uncertified",
    "unsent",
    "why_not_estimated",
    "why_spent",
    "withdraw",
]
