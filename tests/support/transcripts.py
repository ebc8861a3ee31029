"""A transcript from the list of all submissions: the slow way to what the ledger counts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.transcript import Grid, Transcript, ladder_transcript
from ladderholdout.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Answered:
    """One submission, as it was answered.

    Parameters
    ----------
    ladder : hashable
        The ladder, over all accounts.
    improved : bool
        Whether it became the incumbent there.
    value : int or None, default=None
        The number of the released value, in 0 to n_values - 1; None where nothing was released
        but whether it improved. Where values are neither rounded nor falling, any number will
        do: how many were released is what counts.
    batch : hashable or None, default=None
        The batch it belongs to.
    choices : int or None, default=None
        How many values it could have been, as was known before; None where that is what the
        ladder can release.
    repeat : bool, default=False
        Whether who submitted it knows that it repeats earlier predictions, so that it is left out
        of all counts. Any other repeat is a submission that did not improve.
    place : int or None, default=None
        Its own place in its batch, from 1; None where that is the order in which they came.

    Examples
    --------
    >>> Answered("accuracy", improved=True, value=12, batch="grid", place=7).place
    7
    """

    ladder: Hashable
    improved: bool
    value: int | None = None
    batch: Hashable | None = None
    choices: int | None = None
    repeat: bool = False
    place: int | None = None


def transcript_before(
    entries: Sequence[Answered], incumbent: int, grids: Mapping[Hashable, Grid]
) -> Transcript:
    """Return what had been released of a holdout when one of its submissions was chosen.

    The certificate of a submission without a batch that did not improve is valid, too.

    Parameters
    ----------
    entries : sequence of Answered
        All submissions on the holdout in the ledger's order, over all its ladders, with repeats.
    incumbent : int
        The index of the submission among them, from 0.
    grids : mapping of hashable to Grid
        What each ladder can release.

    Returns
    -------
    Transcript
        Of those up to the last one before it that was not of its batch.

    Raises
    ------
    InvalidArgument
        If there is no such submission, or what was released cannot have been.

    Examples
    --------
    A grid of three after a submission by hand; its first submission improved, and so did its last:

    >>> grid = [Answered("A", i != 1, 30 - i, "grid") for i in range(3)]
    >>> entries, values = [Answered("A", True, 40), *grid], Grid(n_values=101)
    >>> transcript = transcript_before(entries, 3, {"A": values})
    >>> transcript.before, transcript.place, transcript.ladders[0].values
    (1, 3, (40,))
    """
    if not 0 <= incumbent < len(entries):
        raise InvalidArgument("incumbent", f"an index below {len(entries)}", incumbent)
    chosen = entries[incumbent]
    entries = [entry for entry in entries[:incumbent] if not entry.repeat] + [chosen]
    before = incumbent = len(entries) - 1
    while chosen.batch is not None and before > 0 and entries[before - 1].batch == chosen.batch:
        before -= 1
    found = by_ladder(entries[:before], grids)
    if chosen.batch is None:
        nothing = _released([], grids[chosen.ladder])
        found[chosen.ladder] = found.get(chosen.ladder, nothing).improving()
    event = 1 + _events(entries[:before], grids)
    # Without a batch the place is known, as of a batch that was announced to have one submission.
    size = 1 if chosen.batch is None else None
    place = 1 if chosen.batch is None else chosen.place or incumbent - before + 1
    return Transcript(before, place, tuple(found.values()), size=size, event=event)


def by_ladder(
    entries: Sequence[Answered], grids: Mapping[Hashable, Grid]
) -> dict[Hashable, LadderTranscript]:
    """Return what each ladder released in these submissions."""
    released: dict[Hashable, list[Answered]] = {}
    for entry in entries:
        if not entry.repeat:
            released.setdefault(entry.ladder, []).append(entry)
    return {name: _released(own, grids[name]) for name, own in released.items()}


def _events(entries: Sequence[Answered], grids: Mapping[Hashable, Grid]) -> int:
    """Return how many events these submissions were, as `Transcript.event` numbers them."""
    batches = [None, *(entry.batch for entry in entries)]
    begun = sum(now is not None and now != last for last, now in pairwise(batches))
    return begun + sum(
        grids[entry.ladder].discloses or (entry.improved and entry.batch is None)
        for entry in entries
    )


def _released(entries: Sequence[Answered], grid: Grid) -> LadderTranscript:
    improved = tuple(i for i, entry in enumerate(entries, 1) if entry.improved)
    valued = [
        entry for entry in entries if entry.value is not None and (entry.improved or grid.discloses)
    ]
    values = tuple(entry.value for entry in valued if entry.value is not None)
    choices = tuple(entry.choices or grid.n_values for entry in valued)
    return ladder_transcript(len(entries), improved, values, grid, choices)
