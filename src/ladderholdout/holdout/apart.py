"""Setting rows apart when a holdout is registered: its reserve."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.holdout.guard import content_order
from ladderholdout.ledger import HoldoutRecord, Transaction
from ladderholdout.mechanisms.rules import fresh_rng
from ladderholdout.metrics import Metric
from ladderholdout.vault import Rows


def share(reserve: object) -> float:
    """Validate a share of the rows."""
    if not (isinstance(reserve, int | float) and 0.0 < reserve < 1.0):
        raise InvalidArgument("reserve", "a share of the rows in (0, 1)", repr(reserve))
    return float(reserve)


def _rows(reserve: float, n: int) -> int:
    """Return how many of n rows a share is; both parts must have one."""
    count = math.floor(reserve * n + 0.5)
    if not 0 < count < n:
        allowed = f"a share that leaves the ladders and the reserve a row each, of {n}"
        raise InvalidArgument("reserve", allowed, repr(reserve))
    return count


def draw(secret: bytes, n: int, count: int) -> NDArray[np.bool_]:
    """Draw the rows of a reserve, by their places among the rows as they were given.

    By the secret alone: no label is read, so that which rows they are tells of none. Strata
    would.
    """
    # No ladder has the number 0, and no submission: this is nobody's noise.
    return fresh_rng(secret, 0, 0).permutation(n) < count


def reserve_of(known: HoldoutRecord | None, asked: float | None, n: int) -> int:
    """Return how many rows the reserve has: what stands, or what is asked for at first."""
    count = 0 if asked is None else _rows(asked, n)
    if known is None:
        return count
    if asked is not None and count != known.n_reserve:
        stands = f"a reserve of {known.n_reserve} rows" if known.n_reserve else "no reserve"
        raise HoldoutConflict(
            f"{known.name!r} was registered with {stands} out of {n}, and you ask for {count}. "
            "Leave reserve= out to go on with that: rows that ladders have measured are no "
            "reserve any more, and those of a reserve must not be measured."
        )
    return known.n_reserve


def set_reserve(
    tx: Transaction, record: HoldoutRecord, contents: NDArray[np.uint64], count: int
) -> HoldoutRecord:
    """Draw the reserve of a new holdout, and keep it in the order of the content.

    So it is found again in whatever order the rows come.
    """
    drawn = draw(record.secret, record.n, count)
    tx.set_reserve(record.id, drawn[content_order(contents)])
    return tx.holdout(record.id)


def check_parts(
    metric: Metric,
    rows: Rows,
    classes: NDArray[Any] | None,
    record: HoldoutRecord,
    contents: NDArray[np.uint64],
) -> None:
    """Refuse a reserve that leaves the ladders no rows to measure, or weights of zero only.

    Whoever starts a ladder holds the rows with their labels, so that the refusal tells nothing
    new. At the reserve's own labels nobody looks, neither here nor before a look.
    """
    if record.reserve is None:
        return
    reserve = np.empty_like(record.reserve)
    reserve[content_order(contents)] = record.reserve
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
