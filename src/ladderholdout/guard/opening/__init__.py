"""From rows and settings that are stated to a holdout that is registered, or known again."""

from __future__ import annotations

from ladderholdout.guard.opening.fresh_rows import add_block
from ladderholdout.guard.opening.groups import look_for_groups
from ladderholdout.guard.opening.named_rows import (
    NamedPredictions,
    are_named,
    order_by_ids,
    predictions_of,
    values_of,
)
from ladderholdout.guard.opening.reserved_rows import Part, parts_of, stated_range
from ladderholdout.guard.opening.settings import (
    BETWEEN,
    HoldoutSettings,
    asked_for,
    going_on,
    groups_of,
    ids_of,
    metrics_of,
    rows_of,
    warn_of_hard_labels,
)
from ladderholdout.guard.opening.stored_rows import (
    Amended,
    amended_before,
    check_predictions,
    groups_on_record,
    in_first_order,
    read_kept,
    with_labels,
)

__all__ = [
    "BETWEEN",
    "Amended",
    "HoldoutSettings",
    "NamedPredictions",
    "Part",
    "add_block",
    "amended_before",
    "are_named",
    "asked_for",
    "check_predictions",
    "going_on",
    "groups_of",
    "groups_on_record",
    "ids_of",
    "in_first_order",
    "look_for_groups",
    "metrics_of",
    "order_by_ids",
    "parts_of",
    "predictions_of",
    "read_kept",
    "rows_of",
    "stated_range",
    "values_of",
    "warn_of_hard_labels",
    "with_labels",
]
