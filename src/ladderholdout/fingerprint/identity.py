"""What row hashes are for: naming, comparing and ordering sets of rows."""

from __future__ import annotations

import hashlib
import hmac
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.fingerprint.cells import UInt64Array, mix
from ladderholdout.fingerprint.rows import row_hashes as hash_rows

IntArray: TypeAlias = NDArray[np.intp]


def fingerprint(row_hashes: UInt64Array) -> str:
    """Name a set of rows by its content: SHA-256 over the sorted row hashes.

    Parameters
    ----------
    row_hashes : ndarray of uint64, shape (n,)
        What ``row_hashes`` gave.

    Returns
    -------
    str
        64 hexadecimal digits, the same for the same rows in any order.

    Examples
    --------
    >>> from ladderholdout.fingerprint import row_hashes
    >>> fingerprint(row_hashes([[1], [2]])) == fingerprint(row_hashes([[2.0], [1.0]]))
    True
    """
    return hashlib.sha256(_sorted_bytes(row_hashes)).hexdigest()


def content_hashes(
    row_hashes: UInt64Array, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> UInt64Array:
    """Hash every row together with its label and weight. For inside use only.

    Parameters
    ----------
    row_hashes : ndarray of uint64, shape (n,)
        The hashes of the features.
    y : array-like of n labels or rows of targets
        Of any type that ``row_hashes`` takes.
    sample_weight : array-like of n numbers, optional
        None stands for weights of one.

    Returns
    -------
    ndarray of uint64, shape (n,)
        These depend on the labels and can be searched for them: never show or store them.

    Raises
    ------
    InvalidArgument
        If the lengths differ or a label is of a type that has no hash.

    Examples
    --------
    >>> from ladderholdout.fingerprint import row_hashes
    >>> rows = row_hashes([[1], [2]])
    >>> bool((content_hashes(rows, [0, 1]) == content_hashes(rows, [1, 0])).any())
    False
    """
    n = len(row_hashes)
    weights = np.ones(n) if sample_weight is None else sample_weight
    # One after the other, so that a label and a weight cannot change places.
    labelled = mix(row_hashes + mix(_column_of(y, "y", n)))
    return mix(labelled + mix(_column_of(weights, "sample_weight", n)))


def content_digest(secret: bytes, content_hashes: UInt64Array) -> bytes:
    """Digest rows and labels so that only the holder of the secret can compare them.

    Parameters
    ----------
    secret : bytes
        The holdout's secret. Without a key, anyone with the rows could try labels until
        the digest fits.
    content_hashes : ndarray of uint64, shape (n,)
        What ``content_hashes`` gave.

    Returns
    -------
    bytes
        32 bytes, HMAC-SHA256 over the sorted hashes: the same for any order of the rows.

    Examples
    --------
    >>> from ladderholdout.fingerprint import row_hashes
    >>> hashes = content_hashes(row_hashes([[1], [2]]), [0, 1])
    >>> content_digest(b"one", hashes) == content_digest(b"another", hashes)
    False
    """
    return hmac.digest(secret, _sorted_bytes(content_hashes), "sha256")


def overlap(rows: UInt64Array, known: UInt64Array) -> int:
    """Count the rows that are known already.

    Parameters
    ----------
    rows, known : ndarray of uint64, shapes (n,) and (m,)
        Row hashes.

    Returns
    -------
    int
        How many of ``rows`` stand in ``known``, each repeated row counted again.

    Examples
    --------
    >>> from ladderholdout.fingerprint import row_hashes
    >>> overlap(row_hashes([[1], [1], [2]]), row_hashes([[1], [3]]))
    2
    """
    return int(np.count_nonzero(np.isin(rows, known)))


def order_between(here: UInt64Array, there: UInt64Array) -> IntArray | None:
    """Find the permutation that brings rows into another order.

    Parameters
    ----------
    here, there : ndarray of uint64, shape (n,)
        Content hashes of the same rows.

    Returns
    -------
    ndarray of int, shape (n,), or None
        ``order`` with ``here[order] == there``; equal rows keep their order. None if
        they stand in the same order already.

    Raises
    ------
    InvalidArgument
        If the two are not the same rows.

    Examples
    --------
    >>> from ladderholdout.fingerprint import row_hashes
    >>> hashes = row_hashes([[1], [2], [3]])
    >>> order_between(hashes, hashes[[2, 0, 1]]).tolist()
    [2, 0, 1]
    >>> order_between(hashes, hashes) is None
    True
    """
    if np.array_equal(here, there):
        return None
    from_here = np.argsort(here, kind="stable")
    from_there = np.argsort(there, kind="stable")
    if not np.array_equal(here[from_here], there[from_there]):
        raise InvalidArgument("here", "the rows of there in any order", "another set of rows")
    order = np.empty_like(from_here)
    order[from_there] = from_here
    return order


def _sorted_bytes(hashes: UInt64Array) -> memoryview:
    return np.sort(hashes).astype("<u8", copy=False).data


def _column_of(values: ArrayLike, argument: str, n: int) -> UInt64Array:
    hashes = hash_rows(values, argument)
    if len(hashes) != n:
        raise InvalidArgument(argument, f"{n} entries, one for each row", len(hashes))
    return hashes
