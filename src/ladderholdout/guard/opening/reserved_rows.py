"""The rows of a new holdout: copies among them, and those that are set apart, its reserve."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import as_given
from ladderholdout.certificates.group_limits import Groups
from ladderholdout.errors import (
    CopiedRowsWarning,
    GroupedRowsWarning,
    HoldoutConflict,
    InvalidArgument,
    RangeWarning,
    TargetWarning,
    warn,
)
from ladderholdout.identity import content_hashes, copied_rows, inverse, near_copies, unwritable
from ladderholdout.ledger.fold import HoldoutRecord
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Evaluation, Metric
from ladderholdout.metrics.arrays import IntArray, index_of, indexed
from ladderholdout.metrics.scores import squared
from ladderholdout.vault import Rows

_ORDER = b"ladderholdout: the order of bets"


class _OfContent(np.random.Generator):
    """A generator that permutes rows as if they were in the order of their content."""

    def __init__(self, key: int, places: IntArray) -> None:
        super().__init__(np.random.Philox(key=key))
        self._places = places

    def permutation(self, x: Any, axis: int = 0) -> Any:
        drawn = super().permutation(x, axis)
        # Groups are in the order of their names.
        return self._places[drawn] if x == len(self._places) else drawn


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part:
    """Some rows of a holdout, in the order of their content; raw, so not shown.

    For a function of the user's they are in the order of the first registration: it may know more
    of each row, such as an amount, than its target.

    Attributes
    ----------
    chosen : ndarray of bool, shape (n,), of int, or None
        Which rows of the holdout, or their places in the order of the first registration; None for
        all of them.
    targets : ndarray
        Canonical targets of these rows.
    weights : ndarray or None
        Their weights.
    groups : Groups or None
        Which of them were drawn together.
    """

    chosen: NDArray[np.bool_] | IntArray | None
    targets: NDArray[Any]
    weights: NDArray[np.float64] | None
    groups: Groups | None = None

    def of(self, predictions: NDArray[Any]) -> NDArray[Any]:
        """Return the predictions for these rows out of those for the whole holdout."""
        own = predictions if self.chosen is None else predictions[self.chosen]
        return indexed(own, index_of(self.targets))

    def order_rng(self) -> np.random.Generator:
        """Return the generator that orders these rows for bounds: a function of them alone.

        Their targets in the order of their content are the key, and what it permutes is that order:
        in any ledger the same rows get the same order, and nobody knows it without all targets.
        """
        # Places are there for a function of the user's, whose rows are in another order.
        chosen = np.arange(len(self.targets)) if self.chosen is None else self.chosen
        places = np.arange(len(self.targets)) if chosen.dtype == np.bool_ else np.argsort(chosen)
        targets = np.asarray(self.targets, dtype="<f8")[places]
        content = hashlib.sha256(_ORDER + targets.tobytes()).digest()
        return _OfContent(int.from_bytes(content[:16], "little"), places)

    def evaluate(self, metric: Metric, predictions: NDArray[Any]) -> Evaluation:
        """Measure predictions for the whole holdout on these rows."""
        evaluation = metric.evaluate(self.targets, self.of(predictions), self.weights)
        if self.groups is None:
            return evaluation
        return evaluation.in_groups(self.groups.codes, alike=self.groups.estimand == "groups")


def parts_of(
    targets: NDArray[Any],
    weights: NDArray[np.float64] | None,
    reserve: NDArray[np.bool_] | None,
    groups: Groups | None = None,
    first: IntArray | None = None,
) -> tuple[Part, Part | None]:
    """Return what the ladders measure, and the reserve if there is one.

    Parameters
    ----------
    targets, weights : ndarray
        Of all rows, in the order of their content.
    reserve : ndarray of bool, shape (n,), or None
    groups : Groups or None
        Of all rows, in the same order.
    first : ndarray of int, shape (n,), or None
        The places of all rows in the order of the first registration, where it matters.
    """
    # Nobody's function may write into them.
    for array in (targets, weights):
        if array is not None:
            unwritable(array)
    if reserve is None and first is None:
        return Part(None, targets, weights, groups), None

    def part(chosen: NDArray[Any]) -> Part:
        chosen = chosen if first is None else first[chosen[first]]
        own_weights = None if weights is None else unwritable(weights[chosen])
        own_groups = None if groups is None else groups.take(chosen)
        return Part(chosen, unwritable(targets[chosen]), own_weights, own_groups)

    if reserve is None:
        return part(np.ones(len(targets), dtype=bool)), None
    return part(~reserve), part(reserve)


# The share of clipped losses from which on a range is called narrow.
_MANY = 0.05
# From so many numbers on, with so few rows for each, they are hardly names of classes.
_FEW, _ROWS_FOR_EACH = 20, 5


def warn_of_slips(before: HoldoutRecord, rows: Rows, n: int) -> None:
    """Warn of fresh rows that look like a part of what was meant, before a block ends."""
    if 10 * n < before.n:
        warn(f"The fresh rows are {n}, less than a tenth of the {before.n} before.", TargetWarning)
    if before.classes is not None and len({*np.ravel(rows.y).tolist()}) == 1:
        warn("The fresh rows are of one class alone.", TargetWarning)


def warn_of_copies(
    name: str,
    hashes: NDArray[np.uint64],
    rows: Rows,
    contents: NDArray[np.uint64],
    groups: NDArray[np.uint64] | None = None,
) -> None:
    """Warn where rows are copies of each other, or nearly: each is taken for a draw of its own.

    `contents` are sorted hashes of rows, labels and weights. Rows of one group may be equal.
    """
    if groups is not None:
        _warn_of_copies_across(name, hashes, rows, groups)
        return
    # Without weights those are equal where rows and labels are, and need not be made again.
    ordered = contents if rows.sample_weight is None else None
    if count := copied_rows(hashes, rows.y, ordered):
        warn(
            f"{count} of the {len(hashes)} rows of {name!r} equal another one in features and "
            "label, and if they are copies of it, certificates are narrower than they may be: keep "
            "one of each, with the number of its copies as sample_weight.",
            CopiedRowsWarning,
        )
    elif count := near_copies(rows.X, rows.y):
        warn(
            f"About {count} of the {len(hashes)} rows of {name!r} are near another one with the "
            "same label, much nearer than any other row is, and if they are copies of it that were "
            "moved a little, certificates are narrower than they may be: keep one of each, with "
            "the number of its copies as sample_weight.",
            CopiedRowsWarning,
        )


def _warn_of_copies_across(
    name: str, hashes: NDArray[np.uint64], rows: Rows, groups: NDArray[np.uint64]
) -> None:
    """Warn where rows of several groups are equal, of each group once."""
    pairs = np.stack([content_hashes(hashes, rows.y), groups], axis=1)
    _, firsts = np.unique(pairs, axis=0, return_index=True)
    if count := copied_rows(hashes[firsts], rows.y[firsts]):
        warn(
            f"{count} of the {len(hashes)} rows of {name!r} equal one of another group in features "
            "and label, and if they are copies of it, certificates are narrower than they may be: "
            "keep each row in one group.",
            CopiedRowsWarning,
        )


def warn_of_groups(by: str) -> None:
    """Warn that rows come in groups where a holdout takes them as independent."""
    warn(
        f"The rows come in groups ({by}), and the holdout takes each row as a draw of its own: "
        "where it has several rows of one group, its certificates are narrower than they may be, "
        "and their lines name that. Register fresh rows with groups=, the group of each row.",
        GroupedRowsWarning,
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Draws:
    """What was drawn independently: the rows of a holdout, or whole groups of them.

    Attributes
    ----------
    n : int
        Rows of the holdout.
    groups : ndarray of uint64, shape (n,), or None
        A hash of the group of each row, in the order of the content.
    """

    n: int
    groups: NDArray[np.uint64] | None = None

    @classmethod
    def of(
        cls, groups: NDArray[np.uint64] | None, order: NDArray[Any], record: HoldoutRecord
    ) -> Draws:
        """Return those of rows with groups as they were given, and their order by content."""
        return cls(record.n, None if groups is None else groups[order])

    @classmethod
    def on_record(cls, tx: Transaction, record: HoldoutRecord) -> Draws:
        """Return those of the rows of a holdout."""
        if record.estimand is None:
            return cls(record.n)
        known = tx.known(record.id)
        return cls.of(known.groups, inverse(known.places), record)

    def __len__(self) -> int:
        return self.n if self.groups is None else len(np.unique(self.groups))

    @property
    def kind(self) -> str:
        """What they are called."""
        return "rows" if self.groups is None else "groups"

    @property
    def least(self) -> str:
        """How many of them there have to be, in words."""
        return "a row each" if self.groups is None else "a group each"

    def of_ladders(self, record: HoldoutRecord) -> int:
        """Return how many of them the ladders measure."""
        if self.groups is None:
            return record.n_ladder
        return len(self) if record.reserve is None else len(np.unique(self.groups[~record.reserve]))

    def set_reserve(
        self, tx: Transaction, record: HoldoutRecord, order: NDArray[Any], count: int
    ) -> HoldoutRecord:
        """Draw so many of them for the reserve of a new holdout, which the ledger keeps.

        In the order of the content: so it is found again in whatever order the rows come.
        """
        drawn = draw(record.secret, len(self), count)
        if self.groups is not None:
            order = np.unique(self.groups, return_inverse=True)[1]
        return tx.set_reserve(record.id, drawn[order])


def draw(secret: bytes, n: int, count: int) -> NDArray[np.bool_]:
    """Draw the reserve out of n rows as they were given, or out of n groups in order.

    By the secret alone: no label is read, so that which rows they are shows nothing of it. Strata
    would.
    """
    # No ladder has the number 0, and no submission: this is nobody's noise.
    return fresh_rng(secret, 0, 0).permutation(n) < count


def reserve_of(draws: Draws, known: HoldoutRecord | None, asked: float | None) -> int:
    """Return how many of the draws the reserve has: those registered, or those asked for first."""
    count = 0
    if asked is not None:
        count = math.floor(asked * len(draws) + 0.5)
        if not 0 < count < len(draws):
            allowed = f"a share that leaves the ladders and the reserve {draws.least}"
            raise InvalidArgument("reserve", f"{allowed}, of {len(draws)}", as_given(asked))
    if known is None:
        return count
    kept = len(draws) - draws.of_ladders(known)
    if asked is not None and count != kept:
        registered = f"a reserve of {kept} {draws.kind}" if kept else "no reserve"
        raise HoldoutConflict(
            f"{known.name!r} was registered with {registered} out of {len(draws)}, and you ask for "
            f"{count}. Leave reserve= out to go on with that: rows that ladders have measured are "
            "no reserve any more, and those of a reserve must not be measured."
        )
    return kept


def warn_of_narrow_range(metric: Metric, rows: Rows, reserve: NDArray[np.bool_] | None) -> None:
    """Warn where the mean target, predicted for every row, has losses outside of the range.

    Once, to whoever starts the ladder and so holds the labels: how many losses of a submission
    were clipped is for an audit alone.
    """
    if not metric.clip or metric.is_classification:
        return
    targets = metric.targets(rows.labels, None)
    if reserve is not None:
        targets = targets[~reserve]
    means = np.broadcast_to(targets.mean(axis=0), targets.shape)
    clipped = metric.evaluate(targets, means).clipped
    if clipped is not None and clipped > _MANY * len(targets):
        warn(
            f"{stated_range(metric)} is narrow for these targets: many losses are beyond it where "
            f"their mean is predicted for every row. Intervals and gates, not released scores, are "
            f"of {metric.clipping}, in the unit that {metric.name} shows.",
            RangeWarning,
        )


def stated_range(metric: Metric) -> str:
    """Return the argument that stated the range of the loss, with its value.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rmse, r2 = get_metric("neg_root_mean_squared_error"), get_metric("r2")
    >>> stated_range(rmse.with_target_range((0, 50))), stated_range(rmse.with_range((0, 50)))
    ('target_range=(0.0, 50.0)', 'loss_range=(0, 50)')
    >>> stated_range(r2.with_target_range((0, 50), (0, 20)))
    'loss_range=(0, 20)'
    """
    targets = metric.target_range or metric.stated_targets
    largest = metric.largest_error
    if largest is None:
        assert metric.loss_range is not None
        largest = metric.loss_range[1]
    if targets is None:
        return f"loss_range=(0, {largest:.12g})"
    power = 2 if metric.loss is squared and not metric.root else 1
    if largest == (targets[1] - targets[0]) ** power:
        return f"target_range={targets}"
    return f"loss_range=(0, {largest:.12g})"


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
    counts, n = np.bincount(metric.targets(rows.labels, classes)), len(rows.y)
    n_classes = np.count_nonzero(counts)
    if n_classes == 1 and n > 1:
        _warn(
            "All rows of this holdout have the same class: a prediction of it for every row has "
            "the best score there is, and no search can be judged. Take rows of every class."
        )
    if classes.dtype.kind in "iuf" and n_classes > _FEW and n < _ROWS_FOR_EACH * n_classes:
        _warn(
            f"The targets are numbers with many values, and {metric.name} takes each for a class "
            'of its own. For measured targets take a regression metric, such as "r2".'
        )
    if metric.binary and classes.dtype.kind == "U" and not stated and metric.pos_label is None:
        _warn(
            f"{metric.name} is about one of two classes, and here that is the second in the order "
            "of the alphabet. If the first is meant, start another ladder with it: pos_label= with "
            'that class, and ladder="another name". If the second is meant, pos_label= states it.'
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
        metric.targets(rows.labels[~reserve], classes)
    except InvalidArgument:
        raise InvalidArgument(
            "reserve",
            f"one that leaves the ladders rows on which {metric.name!r} has a value",
            "another",
            "Take a smaller share, more rows, or a metric that needs less of them.",
        ) from None
