"""Which known holdouts have rows of some given ones, though features and labels changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import VaultError
from ladderholdout.guard.opening.stored_rows import digests_of, known_digests, read_kept
from ladderholdout.ledger.fold import HoldoutRecord
from ladderholdout.ledger.transaction import KnownRows, Transaction
from ladderholdout.vault import Rows
from ladderholdout.vault.remote import is_url


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Given:
    """Rows as a caller gave them, with what they may be known by."""

    rows: Rows
    hashes: NDArray[np.uint64]
    ids: NDArray[np.uint64] | None
    groups: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.hashes)


@dataclass(frozen=True, slots=True)
class Shared:
    """A holdout that has rows in common with n given ones.

    `inside` of the given rows are its rows, and `covered` of its rows are among the given; of the
    `of_weight` given rows that have weight it has `weighing`.
    """

    known: HoldoutRecord
    n: int
    inside: int
    covered: int
    of_weight: int
    weighing: int
    # Whether the labels divide the rows as they do there, under other names.
    renamed: bool = False

    @property
    def counts(self) -> tuple[int, int]:
        """The rows shared and those there are, where that is more. Rows may come repeatedly."""
        # Rows without weight decide nothing, and any number of them may be beside the others.
        both = (self.weighing, self.of_weight), (self.covered, self.known.n)
        return max(both, key=lambda it: it[0] / it[1])

    @property
    def share(self) -> float:
        """The same as a share."""
        return self.counts[0] / self.counts[1]


def shared_with(tx: Transaction, given: Given) -> list[Shared]:
    """Return the holdouts that have rows of these, by features of any view, ids or labels."""
    n, found, weights = len(given), [], given.rows.sample_weight
    labels = fp.row_hashes(given.rows.y, "y")
    heavy = slice(None) if weights is None else weights > 0
    for known in tx.holdouts():
        there = [(given.hashes, view.row_hashes) for view in tx.views(known.id)]
        recorded = tx.known(known.id)
        ids, digests = recorded.ids, recorded.label_digests
        if given.ids is not None and ids is not None:
            there.append((fp.by_value(given.ids), fp.by_value(ids)))
        inside = max(fp.overlap(here, theirs) for here, theirs in there)
        covered = max(fp.overlap(theirs, here) for here, theirs in there)
        if max(inside, covered) < n and digests is not None and fp.same_partition(labels, digests):
            of_weight = len(given.hashes[heavy])
            found.append(Shared(known, n, n, n, of_weight, of_weight, renamed=True))
        elif inside:
            weighing = max(fp.overlap(here[heavy], theirs) for here, theirs in there)
            of_weight = len(given.hashes[heavy])
            found.append(Shared(known, n, inside, covered, of_weight, weighing))
    return found


def listed(shared: list[Shared]) -> str:
    """List the holdouts that have some of the rows, those with most of them by name."""
    first, *others = sorted(shared, key=lambda one: -one.inside)
    rows = f"{first.inside} of these {first.n} rows"
    if first.of_weight < first.n:
        rows += f" ({first.weighing} of the {first.of_weight} that have weight)"
    rows += f" are in the holdout {dated(first.known)}"
    if first.renamed:
        rows += " by their labels, which are the same under other names and in the same order"
    named = "".join(f", {one.inside} in {dated(one.known)}" for one in others[:2])
    more = f", and some in {len(others) - 2} more" if len(others) > 2 else ""
    return rows + named + more


# So many holdouts of as many rows are looked into for rows in other columns, the newest.
_LOOKED_INTO = 10


def in_other_columns(
    tx: Transaction, given: Given
) -> Iterator[tuple[HoldoutRecord, KnownRows, NDArray[np.intp], bool]]:
    """Find rows that a holdout has in other columns, where a copy of its rows is kept.

    Yields
    ------
    record, known
    to : ndarray of int, shape (n,)
        For each given row its place in the order of registration.
    all_columns : bool
        Whether the columns only have another order.
    """
    for record in tx.of_size(len(given))[-_LOOKED_INTO:]:
        kept = read_kept(tx, record.id, 1)
        recorded, places = known_digests(kept.known), kept.view.places
        path = kept.view.vault_path
        # What is not beside this process may take long to read, and others wait meanwhile.
        if path is None or is_url(path) or recorded is None or places is None:
            continue
        try:
            there = kept.rows().X
        except VaultError:  # rows that cannot be read are not compared
            continue
        found = fp.rows_in_other_columns(given.rows.X, there)
        if found is None:
            continue
        assert kept.known.places is not None
        (mine, theirs), all_columns = found
        of_view = fp.inverse(kept.known.places)[places]
        here = digests_of(record.secret, given.rows)
        labels = here.of_pairs(), recorded.take(of_view).of_pairs()
        to = fp.counterparts(mine, labels[0], theirs, labels[1])
        yield record, kept.known, of_view[to], all_columns


def dated(known: HoldoutRecord) -> str:
    """Return a holdout with its size and its date."""
    return f"{known.name!r} ({known.n} rows, registered {known.created:%Y-%m-%d})"
