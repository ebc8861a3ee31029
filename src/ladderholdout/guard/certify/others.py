"""What holdouts that share rows with one had revealed at some moment."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial

from ladderholdout.ledger import Sharing, Transaction
from ladderholdout.ledger.chain import RESTORED


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment in the one order of submissions, for what happened to other holdouts.

    Attributes
    ----------
    before : int
        The id of a submission: what happened before it counts.
    lengths : mapping of int to int
        How long the chains of holdouts were at that moment, where it is known: it decides what
        came first of two things that happened after the same submission.
    """

    before: int
    lengths: Mapping[int, int] = field(default_factory=dict)

    def follows(self, holdout_id: int, position: int, after: int) -> bool:
        """Return whether it follows this place in the chain of a holdout."""
        length = self.lengths.get(holdout_id)
        return after < self.before if length is None else position <= length


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


def others_of(tx: Transaction, holdout_id: int, moment: Moment) -> Others:
    """Read what the holdouts that share rows with one had revealed, but for their releases."""
    sharing = tx.sharing(holdout_id)
    asked: set[tuple[int, int]] = set()
    log_values, missing = 0.0, None
    for other in sharing:
        follows = partial(moment.follows, other.holdout_id)
        for event in tx.events(other.holdout_id, "opened", RESTORED):
            if follows(event.position, event.after):
                missing = missing or _not_counted(other, event.kind)
        asked |= {
            query
            for query, event in tx.asked(other.holdout_id).items()
            if follows(event.position, event.after)
        }
        for position, after, values in tx.shown_values(other.holdout_id):
            log_values += values if follows(position, after) else 0.0
        for shown in tx.batches.shown(other.holdout_id):
            log_values += shown.log_values if follows(shown.position, shown.after) else 0.0
    return Others(sharing, asked, log_values, missing)


def _not_counted(other: Sharing, kind: str) -> str:
    if kind == "opened":
        return f"an audit had shown raw scores of {named_as(other)}"
    copy = "an older copy of the ledger was put in place"
    return f"{copy}, and not all is on record of {named_as(other)}"


def named_as(other: Sharing) -> str:
    """Return how a message names a holdout that shares rows."""
    return f"the holdout {other.name!r}, which has {other.rows} of these rows,"
