"""What holdouts that share rows with one had revealed at some moment."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from ladderholdout.ledger.counts import Sharing
from ladderholdout.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Others:
    """What the holdouts that share rows with one had revealed at some moment.

    Attributes
    ----------
    holdouts : tuple of Sharing
    asked : set of (ladder id, number)
        The values that were shown on demand.
    log_values : float
        Sum of the logarithms of the numbers of values that queries of their reserves could show.
    missing : str or None
        What cannot be counted, if anything.
    """

    holdouts: tuple[Sharing, ...] = ()
    asked: Set[tuple[int, int]] = frozenset()
    log_values: float = 0.0
    missing: str | None = None


def others_of(tx: Transaction, holdout_id: int, lengths: Mapping[int, int]) -> Others:
    """Read what the holdouts that share rows with one had revealed, but for their releases.

    `lengths` is how long the chains of all of them were at that moment.
    """
    sharing = tx.sharing(holdout_id)
    asked: set[tuple[int, int]] = set()
    log_values, missing = 0.0, None
    for other in sharing:
        known, until = tx.fold(other.holdout_id), lengths[other.holdout_id] + 1
        opened = any((ladder.opened_at or until) < until for ladder in known.ladders.values())
        if opened or any(position < until for position, _ in known.restored):
            missing = missing or _not_counted(other, opened=opened)
        asked |= known.revealed(until)
        for values in (*known.reserve_prices(until), *known.prices(until)):
            log_values += values
    return Others(sharing, asked, log_values, missing)


def _not_counted(other: Sharing, *, opened: bool) -> str:
    if opened:
        return f"an audit had shown raw scores of {named_as(other)}"
    copy = "an older copy of the ledger was put in place"
    return f"{copy}, and not all is on record of {named_as(other)}"


def named_as(other: Sharing) -> str:
    """Return how a message names a holdout that shares rows."""
    return f"the holdout {other.name!r}, which has {other.rows} of these rows,"
