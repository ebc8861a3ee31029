"""Identity of rows: what makes a holdout the same holdout, whatever it is kept in.

A row is known by one 64-bit hash of its features. Every cell has a canonical value
(`cells`), every column a seed, and the row's hash is the sum of the mixed cells modulo
2**64 (`rows`). A zero adds nothing, so a sparse matrix hashes as its dense form does and
never has to become one. Equal data give equal hashes in arrays, lists, DataFrames and
sparse matrices, by what those can do and not by their types: no DataFrame package is
imported. `identity` names, compares and aligns sets of rows by these hashes, and `labels` has
what rows are known by where their features changed.
"""

from __future__ import annotations

from ladderholdout.identity.copies import copy_of, held_digest, take, unwritable
from ladderholdout.identity.labels import (
    ENOUGH_BITS,
    are_texts,
    by_value,
    check_kinds,
    id_hashes,
    label_digests,
    same_partition,
    sequence_bits,
    sequence_digest,
)
from ladderholdout.identity.near import near_copies, near_rows
from ladderholdout.identity.rows import (
    content_digest,
    content_hashes,
    copied_rows,
    counterparts,
    fingerprint,
    inverse,
    overlap,
    placed,
    row_hashes,
    rows_again,
    rows_in_other_columns,
    taken,
)

__all__ = [
    "ENOUGH_BITS",
    "are_texts",
    "by_value",
    "check_kinds",
    "content_digest",
    "content_hashes",
    "copied_rows",
    "copy_of",
    "counterparts",
    "fingerprint",
    "held_digest",
    "id_hashes",
    "inverse",
    "label_digests",
    "near_copies",
    "near_rows",
    "overlap",
    "placed",
    "row_hashes",
    "rows_again",
    "rows_in_other_columns",
    "same_partition",
    "sequence_bits",
    "sequence_digest",
    "take",
    "taken",
    "unwritable",
]
