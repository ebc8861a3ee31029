"""Explicit batches: submissions that are all fixed before any of them is answered."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.context import describe_estimator, jsonable
from ladderholdout.guard.groups import look_for_groups
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.submission import Waiting
from ladderholdout.guard.views import Release
from ladderholdout.ledger import LadderRecord, Transaction


class Batch:
    """Submissions that query the holdout together, when the block ends.

    Parameters
    ----------
    ladder : OpenLadder

    Attributes
    ----------
    releases : tuple of Release
        In the order of the submissions; empty until the block has ended.
    """

    def __init__(self, ladder: OpenLadder) -> None:
        self._ladder, self._id = ladder, uuid4().hex
        self._waiting: list[Waiting] = []
        self._open = False
        self.releases: tuple[Release, ...] = ()

    def submit(self, predictions: Any, *, context: Mapping[str, Any] | None = None) -> None:
        """Take predictions, as `LadderHoldout.submit` does; answered when the block ends."""
        self._take(predictions, context, ordered=False)

    def evaluate(self, estimator: Any, *, context: Mapping[str, Any] | None = None) -> None:
        """Take a fitted estimator, as `LadderHoldout.evaluate` does."""
        described = describe_estimator(estimator) | jsonable(context)
        self._check_open()
        look_for_groups(self._ladder, estimator, {})
        self.add(self._ladder.predictions(estimator), described)

    def add(self, predictions: Any, context: Mapping[str, Any]) -> None:
        """Take what `OpenLadder.predictions` returned."""
        self._take(predictions, context, ordered=True)

    def held(self) -> tuple[int | None, tuple[bool, ...]]:
        """Return the number of the incumbent, and whether each submission of the batch is it."""
        return held_by(self._ladder, self.releases)

    def _take(self, predictions: Any, context: Mapping[str, Any] | None, *, ordered: bool) -> None:
        taken = Waiting(copy.deepcopy(predictions), jsonable(context), ordered)
        self._check_open()
        self._waiting.append(taken)

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidArgument(
                "batch",
                "used inside of its block",
                "used outside",
                "Write `with holdout.batch() as batch:` and submit in the block.",
            )

    def __enter__(self) -> Self:
        """Begin: nothing is answered before the block ends."""
        if self.releases or self._open:
            raise InvalidArgument("batch", "used once", "used before", "Take another one.")
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Query the holdout, unless the block failed: then nothing was submitted."""
        self._open = False
        if kind is not None:
            return
        if self._waiting:
            for release in self._ladder.together(self._id, self._waiting):
                self.releases = (*self.releases, release)


def held_by(ladder: OpenLadder, releases: Sequence[Release]) -> tuple[int | None, tuple[bool, ...]]:
    """Return the number of the incumbent, and whether each of these submissions is it.

    A submission that repeats the incumbent's predictions is.
    """

    def read(tx: Transaction, record: LadderRecord) -> tuple[int | None, tuple[bool, ...]]:
        numbers = [release.submission for release in releases]
        entries = tx.entries(record.id, after=min(numbers) - 1)
        firsts = {one.number: one.repeat_of or one.number for one in entries}
        return record.incumbent, tuple(firsts[one] == record.incumbent for one in numbers)

    return ladder.read(read)
