"""The guard: metrics, mechanism and ledger together, one transaction per submission.

Other packages import from here. `OpenLadder` is the seam: what goes through it is plain data.
"""

from __future__ import annotations

from ladderholdout.guard.certify.bill import without_others
from ladderholdout.guard.certify.certification import (
    Level,
    certificate_of,
    certificates_alike,
    level_of,
    no_certificate,
    registered,
)
from ladderholdout.guard.certify.comparing import number_of
from ladderholdout.guard.certify.counting import Bars, bars_on
from ladderholdout.guard.certify.finals import Contestants, finals_of, finals_on_record
from ladderholdout.guard.certify.health import health_of, price_of
from ladderholdout.guard.certify.score_intervals import known_certificate
from ladderholdout.guard.containment import strip, without_autologging, without_frames
from ladderholdout.guard.ladder import LocalLadder, by_first_order, reopen_ladder
from ladderholdout.guard.open_ladder import (
    STATED_BY,
    TRAINING_ROWS,
    Facts,
    FreshRows,
    HasLadder,
    HeldRows,
    OpenLadder,
    Origin,
    Place,
    Predictions,
    SeenGroups,
    SeenRows,
    SpentAt,
    State,
    check_decides,
    check_open,
    ladder_of,
    margin_of,
    of_one_metric,
    transformed,
)
from ladderholdout.guard.opening import columns
from ladderholdout.guard.opening.groups import is_of_groups, look_for_groups
from ladderholdout.guard.opening.health import Check, ledger_findings, verify_holdout
from ladderholdout.guard.opening.named_rows import NamedPredictions, predictions_of, values_of
from ladderholdout.guard.opening.registration import judge_overlap, named
from ladderholdout.guard.opening.settings import (
    LARGEST_NUMBER,
    SEARCH_POLICIES,
    DefaultRule,
    Each,
    HoldoutSettings,
    Scoring,
    count_rows,
    metric_for,
    parted,
    rows_of,
    stated_in,
)
from ladderholdout.guard.query.batches import Batch, held_by, read_submission
from ladderholdout.guard.query.finalists import Finalist, confirm, ranked, winner_of
from ladderholdout.guard.query.rounds import close_round, collect
from ladderholdout.guard.query.seen import (
    latest,
    new_batch,
    note_answer,
    note_shown,
    on_answer,
    settle,
    shown_last,
    submit_later,
    submitted,
)
from ladderholdout.guard.query.submission import Guard
from ladderholdout.guard.several import one_of, register, reopen, warn_of_labels
from ladderholdout.guard.shown.comparisons import Comparison
from ladderholdout.guard.shown.context import (
    APART,
    describe_estimator,
    describe_parameters,
    jsonable,
)
from ladderholdout.guard.shown.decisions import Decision
from ladderholdout.guard.shown.health import Health
from ladderholdout.guard.shown.history_table import Submissions, number, origin, origin_of, varied
from ladderholdout.guard.shown.next_release import smallest_step
from ladderholdout.guard.shown.of_metrics import together
from ladderholdout.guard.shown.pictures import picture_of
from ladderholdout.guard.shown.points import RAW_POLICIES, Point, Unsent
from ladderholdout.guard.shown.record_views import status_of
from ladderholdout.guard.shown.score_certificate import ScoreCertificate, html_table, interval
from ladderholdout.guard.shown.views import (
    Estimate,
    Release,
    Status,
    Submission,
    incumbent_named,
    outcome,
    overtaken,
)
from ladderholdout.guard.shown.withdrawal import Withdrawn

__all__ = [
    "APART",
    "LARGEST_NUMBER",
    "RAW_POLICIES",
    "SEARCH_POLICIES",
    "STATED_BY",
    "TRAINING_ROWS",
    "Bars",
    "Batch",
    "Check",
    "Comparison",
    "Contestants",
    "Decision",
    "DefaultRule",
    "Each",
    "Estimate",
    "Facts",
    "Finalist",
    "FreshRows",
    "Guard",
    "HasLadder",
    "Health",
    "HeldRows",
    "HoldoutSettings",
    "Level",
    "LocalLadder",
    "NamedPredictions",
    "OpenLadder",
    "Origin",
    "Place",
    "Point",
    "Predictions",
    "Release",
    "ScoreCertificate",
    "Scoring",
    "SeenGroups",
    "SeenRows",
    "SpentAt",
    "State",
    "Status",
    "Submission",
    "Submissions",
    "Unsent",
    "Withdrawn",
    "bars_on",
    "by_first_order",
    "certificate_of",
    "certificates_alike",
    "check_decides",
    "check_open",
    "close_round",
    "collect",
    "columns",
    "confirm",
    "count_rows",
    "describe_estimator",
    "describe_parameters",
    "finals_of",
    "finals_on_record",
    "health_of",
    "held_by",
    "html_table",
    "incumbent_named",
    "interval",
    "is_of_groups",
    "jsonable",
    "judge_overlap",
    "known_certificate",
    "ladder_of",
    "latest",
    "ledger_findings",
    "level_of",
    "look_for_groups",
    "margin_of",
    "metric_for",
    "named",
    "new_batch",
    "no_certificate",
    "note_answer",
    "note_shown",
    "number",
    "number_of",
    "of_one_metric",
    "on_answer",
    "one_of",
    "origin",
    "origin_of",
    "outcome",
    "overtaken",
    "parted",
    "picture_of",
    "predictions_of",
    "price_of",
    "ranked",
    "read_submission",
    "register",
    "registered",
    "reopen",
    "reopen_ladder",
    "rows_of",
    "settle",
    "shown_last",
    "smallest_step",
    "stated_in",
    "status_of",
    "strip",
    "submit_later",
    "submitted",
    "together",
    "transformed",
    "values_of",
    "varied",
    "verify_holdout",
    "warn_of_labels",
    "winner_of",
    "without_autologging",
    "without_frames",
    "without_others",
]
