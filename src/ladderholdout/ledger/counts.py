"""The queries of holdouts in their order, over all their ladders: what certificates count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ladderholdout.ledger import events as e
from ladderholdout.ledger import log
from ladderholdout.ledger.fold import Improvement, LadderRecord


@dataclass(frozen=True, slots=True)
class Sharing:
    """Another holdout that has rows of this one, and how many."""

    holdout_id: int
    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class LadderQueries:
    """The queries of one ladder that had been answered at some moment.

    After the withdrawal of an incumbent another record begins: only up to there do the released
    risks fall.

    Attributes
    ----------
    ladder_id : int
    count : int
    improved : tuple of Improvement
        Those that became the incumbent, oldest first.
    start : int
        How many queries came before the first of them.
    releases : int
        How many had improved the ladder up to that one.
    """

    ladder_id: int
    count: int
    improved: tuple[Improvement, ...]
    start: int = 0
    releases: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The incumbent, with all that had been answered when it was chosen.

    Attributes
    ----------
    own : Improvement
    lengths : dict
        By holdout up to which position it had been answered.
    before : int
        Queries up to the last one that was not of its batch.
    place : int
        Its own place in its batch; where that is not on record, its place among the queries after
        those, from 1.
    runs : int
        Runs of queries of one batch that had begun before, over all ladders.
    ladders : tuple of LadderQueries
        Those queries by ladder; with a count of 0 for a ladder that was only used since. The one
        without a batch is the last of its own ladder's.
    """

    own: Improvement
    lengths: Mapping[int, int]
    before: int
    place: int
    runs: int
    ladders: tuple[LadderQueries, ...]


class Counts(log.Log):
    """What had been answered of holdouts, at some lengths of their chains."""

    __slots__ = ()

    def sharing(self, holdout_id: int) -> tuple[Sharing, ...]:
        """Return the other holdouts that have rows of this one."""
        shared = sorted(self.fold(holdout_id).sharing.items())
        return tuple(Sharing(other, self.fold(other).name, rows) for other, rows in shared)

    def chosen(self, ladder: LadderRecord) -> Chosen | None:
        """Return the incumbent, with what had been answered of its rows; None without one."""
        own = ladder.chosen
        if own is None:
            return None
        known, alone = self.fold(ladder.holdout_id), own.batch is None
        lengths = {known.id: own.position if alone else own.until}
        place, runs = own.stated_place or own.place, own.runs
        every = {known.id: own.position, **self.lengths_at(known.id, own.position)}
        if known.sharing:
            lengths = every if alone else self._until(every, own)
            if not alone and own.stated_place is None:
                counts = [self._counts(ends) for ends in (every, lengths)]
                place = sum(counts[0].values()) - sum(counts[1].values())
            runs = self._runs(lengths, {known.id: own.position - 1} if alone else {})
        answered = self._answered(lengths, every)
        before = sum(queries.count for queries in answered) - alone
        ladders = self._segments(answered)
        return Chosen(own, lengths, before, 1 if alone else place, runs, ladders)

    def answered(self, lengths: Mapping[int, int]) -> tuple[LadderQueries, ...]:
        """Return the queries by ladder that holdouts had answered at these lengths."""
        return self._segments(self._answered(lengths))

    def lengths(self, holdout_id: int) -> dict[int, int]:
        """Return how long the chains are now, of a holdout and of those that share its rows."""
        ids = (holdout_id, *self.fold(holdout_id).sharing)
        return {number: self.fold(number).length for number in ids}

    def lengths_at(self, holdout_id: int, position: int) -> dict[int, int]:
        """Return how long the chains of sharing holdouts were when an event was added here."""
        return {
            other: self.rows(log.BEFORE, other, holdout_id, position)[0][0] or 0
            for other in sorted(self.fold(holdout_id).sharing)
        }

    def _counts(self, lengths: Mapping[int, int]) -> dict[int, int]:
        counts: dict[int, int] = {}
        for holdout, length in lengths.items():
            of_holdout = {
                number: count or 0 for number, count in self.rows(log.COUNTS, length, holdout)
            }
            if of_holdout.keys() != self.fold(holdout).ladders.keys():
                raise e.Damaged  # else the queries of a ladder would not be counted
            counts |= of_holdout
        return counts

    def _answered(
        self, lengths: Mapping[int, int], every: Mapping[int, int] | None = None
    ) -> list[LadderQueries]:
        """Return the queries up to some lengths, of ladders that were used up to others."""
        counts = self._counts(lengths)
        used = counts if every is None else self._counts(every)
        answered = [
            LadderQueries(
                number,
                counts[number],
                tuple(one for one in ladder.improved if one.query <= counts[number]),
            )
            for holdout in lengths
            for number, ladder in self.fold(holdout).ladders.items()
            if used[number]
        ]
        return sorted(answered, key=lambda queries: queries.ladder_id)

    def _segments(self, answered: Iterable[LadderQueries]) -> tuple[LadderQueries, ...]:
        """Cut the queries of each ladder where it went back: only up to there do values fall."""
        segments = []
        for queries in answered:
            returns = self.ladder(queries.ladder_id).returns
            if not queries.count or not returns:
                segments.append(queries)
                continue
            start = 0
            for until in [*returns, queries.count]:
                end = min(until, queries.count)
                if end > start:
                    improved = tuple(one for one in queries.improved if start < one.query <= end)
                    releases = sum(one.query <= start for one in queries.improved)
                    segments.append(
                        replace(
                            queries,
                            count=end - start,
                            improved=improved,
                            start=start,
                            releases=releases,
                        )
                    )
                start = end
        return tuple(segments)

    def _until(self, lengths: Mapping[int, int], own: Improvement) -> dict[int, int]:
        """Return the lengths up to the last query of several holdouts that is not of a batch."""
        seq = max(self.rows(log.OTHER_BATCH, *pair, own.batch)[0][0] for pair in lengths.items())
        return {holdout: self.rows(log.UP_TO, holdout, seq)[0][0] for holdout in lengths}

    def _runs(self, lengths: Mapping[int, int], others: Mapping[int, int]) -> int:
        """Count the runs of queries of one batch in several holdouts, in the order of all."""
        queries, last, count = [], None, 0
        for holdout, length in {**lengths, **others}.items():
            queries += self.rows(log.BATCHES, holdout, length)
        for _, batch in sorted(queries, key=lambda row: row[0]):
            count += batch is not None and batch != last
            last = batch
        return count

    def members(self, lengths: Iterable[int]) -> dict[tuple[int, str], int]:
        """Return how many queries of announced batches went to each ladder of some holdouts."""
        return {
            (ladder, batch): min(count, known.sizes[batch])
            for known in map(self.fold, lengths)
            for ladder, batches in known.members.items()
            for batch, count in batches.items()
        }

    def is_on_grid(self, ladder_id: int, length: int, n: int, noise: float) -> bool:
        """Return whether all that a ladder had released is a number of rows out of n."""
        entries = log.submissions_in(self.rows(log.RELEASED, ladder_id, length))
        released = [one.risk for one in entries]
        counts = n * np.array(released, dtype=np.float64)
        return bool((np.abs(counts - np.rint(counts)) < noise).all())
