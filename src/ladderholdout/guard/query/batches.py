"""Explicit batches: submissions that are all fixed before any of them is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.open_ladder import OpenLadder, Origin, Predictions
from ladderholdout.guard.opening import look_for_groups, predictions_of
from ladderholdout.guard.query.seen import new_batch
from ladderholdout.guard.shown import Release, describe_estimator, jsonable
from ladderholdout.metrics.responses import is_model


class Batch:
    """Submissions that query the holdout together, when the block ends.

    Parameters
    ----------
    ladder : OpenLadder

    Attributes
    ----------
    releases : tuple of Release
        In the order of the submissions; empty until the block has ended.

    Examples
    --------
    >>> with holdout.batch() as batch:
    ...     batch.submit(model)
    >>> [release.submission for release in batch.releases]
    [1]
    """

    def __init__(self, ladder: OpenLadder) -> None:
        self._ladder = ladder
        self._waiting: list[tuple[Predictions, Origin]] = []
        self._open = False
        self.releases: tuple[Release, ...] = ()

    def submit(
        self, predictions: Any, *, context: Mapping[str, Any] | None = None, ids: Any = None
    ) -> None:
        """Take predictions or a fitted estimator, as `LadderHoldout.submit` does.

        They are read now and answered when the block ends: what is changed later, or refused, is
        not in the batch.
        """
        self._check_open()
        self.add(*read_submission(self._ladder, predictions, context, ids))

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
            predictions, origins = zip(*self._waiting, strict=True)
            self.releases = self._ladder.submit_batch(new_batch(), predictions, origins)


def read_submission(
    ladder: OpenLadder, predictions: Any, context: Mapping[str, Any] | None, ids: Any
) -> tuple[Any, dict[str, Any]]:
    """Return what a caller submits as `OpenLadder.submit` takes it, and its whole context."""
    if not is_model(predictions):
        return predictions_of(predictions, ids), jsonable(context)
    if ids is not None:
        raise InvalidArgument(
            "ids",
            "left out with an estimator",
            as_given(ids),
            "An estimator predicts on the rows of the holdout, in their order.",
        )
    described = describe_estimator(predictions) | jsonable(context)
    look_for_groups(ladder, predictions, {})
    return ladder.predict(predictions), described


def held_by(ladder: OpenLadder, releases: Sequence[Release]) -> tuple[int | None, tuple[bool, ...]]:
    """Return the number of the incumbent, and whether each of these submissions is it.

    A submission that repeats the incumbent's predictions is.
    """
    numbers = [release.submission for release in releases]
    incumbent = ladder.state().incumbent
    entries = ladder.history(min(numbers) - 1, None, shown=False)
    firsts = {entry.number: entry.first for entry in entries}
    return incumbent, tuple(firsts[number] == incumbent for number in numbers)
