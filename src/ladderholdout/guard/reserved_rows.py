"""The rows of a new holdout: copies among them, and those that are set apart, its reserve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import (
    CopiedRowsWarning,
    GroupedRowsWarning,
    HoldoutConflict,
    InvalidArgument,
    RangeWarning,
    TargetWarning,
    as_given,
    as_number,
    warn,
)
from ladderholdout.identity import copied_rows
from ladderholdout.ledger import HoldoutRecord, Transaction
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Evaluation, Metric
from ladderholdout.vault import Rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """Some rows of a holdout, in the order of their content; raw, so not shown.

    Attributes
    ----------
    chosen : ndarray of bool, shape (n,), or None
        Which rows of the holdout; None for all of them.
    targets : ndarray
        Canonical targets of these rows.
    weights : ndarray or None
        Their weights.
    """

    chosen: NDArray[np.bool_] | None
    targets: NDArray[Any]
    weights: NDArray[np.float64] | None

    def of(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Return the predictions for these rows out of those for the whole holdout."""
        return predictions if self.chosen is None else predictions[self.chosen]

    def evaluate(self, metric: Metric, predictions: NDArray[Any]) -> Evaluation:
        """Measure predictions for the whole holdout on these rows."""
        return metric.evaluate(self.targets, self.of(predictions), self.weights)


def parts_of(
    targets: NDArray[Any], weights: NDArray[np.float64] | None, reserve: NDArray[np.bool_] | None
) -> tuple[Part, Part | None]:
    """Return what the ladders measure, and the reserve if there is one.

    Parameters
    ----------
    targets, weights : ndarray
        Of all rows, in the order of their content.
    reserve : ndarray of bool, shape (n,), or None
    """
    if reserve is None:
        return Part(None, targets, weights), None

    def part(chosen: NDArray[np.bool_]) -> Part:
        return Part(chosen, targets[chosen], None if weights is None else weights[chosen])

    return part(~reserve), part(reserve)


# The share of clipped losses from which on a range is called narrow.
_MANY = 0.05
# From so many numbers on, with so few rows for each, they are hardly names of classes.
_FEW, _ROWS_FOR_EACH = 20, 5


def warn_of_copies(
    name: str, hashes: NDArray[np.uint64], rows: Rows, contents: NDArray[np.uint64]
) -> None:
    """Warn where rows are copies of each other: a certificate takes each for a draw of its own.

    `contents` are sorted hashes of rows, labels and weights.
    """
    # Without weights those are equal where rows and labels are, and need not be made again.
    ordered = contents if rows.sample_weight is None else None
    if count := copied_rows(hashes, rows.y, ordered):
        warn(
            f"{count} of the {len(hashes)} rows of {name!r} equal another one in features and "
            "label, and if they are copies of it, certificates are narrower than they may be: keep "
            "one of each, with the number of its copies as sample_weight.",
            CopiedRowsWarning,
        )


def warn_of_groups(by: str) -> None:
    """Warn that rows come in groups where a holdout takes them as independent."""
    warn(
        f"The rows come in groups ({by}), and the holdout takes each row as a draw of its own: "
        "where it has several rows of one group, its certificates are narrower than they may be, "
        "and their lines name that. Register one row of each group.",
        GroupedRowsWarning,
    )


def share(reserve: object) -> float:
    """Validate a share of the rows."""
    number = as_number(reserve)
    if not 0.0 < number < 1.0:
        raise InvalidArgument("reserve", "a share of the rows in (0, 1)", as_given(reserve))
    return number


def _rows(reserve: float, n: int) -> int:
    """Return how many of n rows a share is; both parts must have one."""
    count = math.floor(reserve * n + 0.5)
    if not 0 < count < n:
        allowed = f"a share that leaves the ladders and the reserve a row each, of {n}"
        raise InvalidArgument("reserve", allowed, as_given(reserve))
    return count


def draw(secret: bytes, n: int, count: int) -> NDArray[np.bool_]:
    """Draw the rows of a reserve, by their places among the rows as they were given.

    By the secret alone: no label is read, so that which rows they are shows nothing of it. Strata
    would.
    """
    # No ladder has the number 0, and no submission: this is nobody's noise.
    return fresh_rng(secret, 0, 0).permutation(n) < count


def reserve_of(known: HoldoutRecord | None, asked: float | None, n: int) -> int:
    """Return how many rows the reserve has: those registered, or those asked for at first."""
    count = 0 if asked is None else _rows(asked, n)
    if known is None:
        return count
    if asked is not None and count != known.n_reserve:
        there = f"a reserve of {known.n_reserve} rows" if known.n_reserve else "no reserve"
        raise HoldoutConflict(
            f"{known.name!r} was registered with {there} out of {n}, and you ask for {count}. "
            "Leave reserve= out to go on with that: rows that ladders have measured are no "
            "reserve any more, and those of a reserve must not be measured."
        )
    return known.n_reserve


def set_reserve(
    tx: Transaction, record: HoldoutRecord, order: NDArray[Any], count: int
) -> HoldoutRecord:
    """Draw the reserve of a new holdout, and keep it in the `order` of the content.

    So it is found again in whatever order the rows come.
    """
    drawn = draw(record.secret, record.n, count)
    tx.reserve.choose(record.id, drawn[order])
    return tx.holdout(record.id)


def warn_of_narrow_range(metric: Metric, rows: Rows, reserve: NDArray[np.bool_] | None) -> None:
    """Warn where the mean target, predicted for every row, has losses outside of the range.

    Once, to whoever starts the ladder and so holds the labels: how many losses of a submission
    were clipped is for an audit alone.
    """
    if not metric.clip or metric.is_classification:
        return
    targets = metric.targets(rows.y, None)
    if reserve is not None:
        targets = targets[~reserve]
    means = np.broadcast_to(targets.mean(axis=0), targets.shape)
    clipped = metric.evaluate(targets, means).clipped
    if clipped is not None and clipped > _MANY * len(targets):
        warn(
            f"loss_range={metric.loss_range} is narrow for these targets: many losses are beyond "
            "it where their mean is predicted for every row. It is in the unit that "
            f"{metric.name} shows; released scores and certificates are of the clipped loss.",
            RangeWarning,
        )


def warn_of_targets(
    metric: Metric, rows: Rows, classes: NDArray[Any] | None, *, stated: bool
) -> None:
    """Warn of targets that a metric takes and is not meant for, where a ladder is started.

    Parameters
    ----------
    stated : bool
        Whether the caller named the classes, and so which of two is the second.
    """
    if classes is None:
        return
    counts, n = np.bincount(metric.targets(rows.y, classes)), len(rows.y)
    found = np.count_nonzero(counts)
    if found == 1 and n > 1:
        _warn(
            "All rows of this holdout have the same class: a prediction of it for every row has "
            "the best score there is, and no search can be judged. Take rows of every class."
        )
    if classes.dtype.kind in "iuf" and found > _FEW and n < _ROWS_FOR_EACH * found:
        _warn(
            f"The targets are numbers with many values, and {metric.name} takes each for a class "
            'of its own. For measured targets take a regression metric, such as "r2".'
        )
    if metric.binary and classes.dtype.kind == "U" and not stated:
        _warn(
            f"{metric.name} is about one of two classes, and here that is the second in the order "
            "of the alphabet. State it: give y as True and False with True for the one that is "
            "meant, or classes=[other, meant] where that is the sorted order already."
        )


def _warn(message: str) -> None:
    warn(message, TargetWarning)


def check_parts(
    metric: Metric,
    rows: Rows,
    classes: NDArray[Any] | None,
    reserve: NDArray[np.bool_] | None,
) -> None:
    """Refuse a reserve that leaves the ladders no rows to measure, or weights of zero only.

    Whoever starts a ladder holds the rows with their labels, so that the refusal shows nothing
    new. Nobody reads the reserve's own labels, neither here nor before a query.
    """
    if reserve is None:
        return
    weights = rows.sample_weight
    if weights is not None and not (weights[reserve].any() and weights[~reserve].any()):
        allowed = "positive among the reserve's rows and among the others"
        raise InvalidArgument("sample_weight", allowed, "zero everywhere in one of the two")
    try:
        metric.targets(np.asarray(rows.y)[~reserve], classes)
    except InvalidArgument:
        raise InvalidArgument(
            "reserve",
            f"one that leaves the ladders rows on which {metric.name!r} has a value",
            "another",
            "Take a smaller share, more rows, or a metric that needs less of them.",
        ) from None
