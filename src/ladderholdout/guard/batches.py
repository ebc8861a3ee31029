"""Explicit batches: submissions that are all fixed before any of them is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.context import describe_estimator, jsonable
from ladderholdout.guard.groups import look_for_groups
from ladderholdout.guard.named_rows import predictions_of
from ladderholdout.guard.open_ladder import OpenLadder, Origin, Predictions
from ladderholdout.guard.shown import new_batch
from ladderholdout.guard.views import Release


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
        self._ladder = ladder
        self._waiting: list[tuple[Predictions, Origin]] = []
        self._open = False
        self.releases: tuple[Release, ...] = ()

    def submit(
        self, predictions: Any, *, context: Mapping[str, Any] | None = None, ids: Any = None
    ) -> None:
        """Take predictions, as `LadderHoldout.submit` does; answered when the block ends.

        They are read now: what is changed later, or refused, is not in the batch.
        """
        self.add(predictions_of(predictions, ids), jsonable(context))

    def evaluate(self, estimator: Any, *, context: Mapping[str, Any] | None = None) -> None:
        """Take a fitted estimator, as `LadderHoldout.evaluate` does."""
        described = describe_estimator(estimator) | jsonable(context)
        self._check_open()
        look_for_groups(self._ladder, estimator, {})
        self.add(self._ladder.predict(estimator), described)

    def add(self, predictions: Any, context: Mapping[str, Any]) -> None:
        """Take what a caller gives, or what `OpenLadder.predict` returned."""
        self._check_open()
        # Whatever makes them when they are read must not know an answer to the batch.
        fixed = self._ladder.fix(predictions)
        self._waiting.append((fixed, Origin(context=context)))

    def held(self) -> tuple[int | None, tuple[bool, ...]]:
        """Return the number of the incumbent, and whether each submission of the batch is it."""
        return held_by(self._ladder, self.releases)

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
            for release in self._ladder.submit_batch(
                new_batch(), *zip(*self._waiting, strict=True)
            ):
                self.releases = (*self.releases, release)


def held_by(ladder: OpenLadder, releases: Sequence[Release]) -> tuple[int | None, tuple[bool, ...]]:
    """Return the number of the incumbent, and whether each of these submissions is it.

    A submission that repeats the incumbent's predictions is.
    """
    numbers = [release.submission for release in releases]
    incumbent = ladder.state().incumbent
    entries = ladder.history(min(numbers) - 1, None, shown=False)
    firsts = {entry.number: entry.first for entry in entries}
    return incumbent, tuple(firsts[number] == incumbent for number in numbers)
