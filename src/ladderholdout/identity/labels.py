"""What rows are known by beside their features: the user's ids, and the sequence of the labels."""

from __future__ import annotations

import datetime
import hmac
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.identity.hashing import CHUNK, UInt64Array, columns_of, row_hashes
from ladderholdout.identity.spelling import named_value

ENOUGH_BITS = 30.0
"""From here on two sequences of labels are equal by chance less often than once in 1e9."""

Codes: TypeAlias = NDArray[np.int64]

# How many shifts of a sequence against itself are tried, those at which most entries agree.
_LAGS = 8
# By so many bits a wrong code is shorter once in 256 times (Kraft's inequality).
_LUCK = 8.0
# So many labels are enough, where they are.
_LONG = 1 << 16


_KIND_BITS = np.uint64(15)
_KINDS = {1: "numbers", 2: "texts", 3: "dates", 4: "durations", 5: "bytes"}
_OF_DTYPES = dict.fromkeys("biuf", 1) | dict.fromkeys("UT", 2) | {"M": 3, "m": 4, "S": 5}
_OF_TYPES = {str: 2, bytes: 5, datetime.date: 3, np.datetime64: 3}
_OF_TYPES |= {datetime.timedelta: 4, np.timedelta64: 4}
_SEVERAL = 8  # from here on: of several columns, by the kind of each
_CONVERT = {1: "{}.astype(int)", 2: "{}.astype(str)", 3: "pandas.to_datetime({})"}


def id_hashes(ids: Any, *, may_repeat: bool = False, argument: str = "ids") -> UInt64Array:
    """Hash the ids of rows, or their groups, by what they name and of what kind they are.

    Parameters
    ----------
    ids : array-like of n values
        Numbers, strings, dates, UUIDs, all of one kind, or tuples of these; each once.
    may_repeat : bool, default=False
        Whether some may come repeatedly, as those of groups do.
    argument : {"ids", "groups"}, default="ids"
        What is named in an error.

    Returns
    -------
    ndarray of uint64, shape (n,)
        The last four bits are the kind (`check_kinds`). The others (`by_value`) are the same for
        the number 7 and the texts "7", "007" and "7.0", unless two of these are among the ids.

    Raises
    ------
    InvalidArgument
        An id is missing or of another type, one comes twice, or they are of several kinds.

    Examples
    --------
    >>> bool((id_hashes(["a", "b"]) == id_hashes(("a", "b"))).all())
    True
    >>> bool((by_value(id_hashes(["007", "8"])) == by_value(id_hashes([7.0, 8.0]))).all())
    True
    """
    remedy = "Give one value for each row, such as a column with the number of the customer."
    # Each level of an index of pandas is a column.
    values = ids = ids.to_frame() if getattr(ids, "nlevels", 1) > 1 else ids
    if not hasattr(ids, "dtype") and not hasattr(ids, "columns"):
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            allowed = "a list of values, one for each row, or the name of a column of X"
            raise InvalidArgument(argument, allowed, f"a {type(ids).__name__}", remedy)
        values = [str(value) if isinstance(value, UUID) else value for value in ids]
    elif str(getattr(ids, "dtype", "")) == "object":
        values = np.array([str(i) if isinstance(i, UUID) else i for i in np.ravel(ids)], object)
        values = values.reshape(np.shape(ids))
    hashes = row_hashes(values, argument)
    missing = int(np.count_nonzero(hashes == row_hashes([None])))
    if missing:
        came = f"a list in which {missing} {'is' if missing == 1 else 'are'} missing"
        raise InvalidArgument(argument, "there for each row", came, remedy)
    columns, kind = columns_of(values), 0
    for place, column in enumerate(columns):
        of_column = _kind_of(column, argument)
        kind = of_column if len(columns) == 1 else _SEVERAL + (kind + of_column * 3**place) % 8
        if of_column in (2, 5):
            columns[place] = _named(column)
    if any(column.dtype == object for column in columns):
        hashes = row_hashes(np.stack([np.array([*cells], object) for cells in columns], axis=1))
    hashes = by_value(hashes) | np.uint64(kind)
    if not may_repeat and len(np.unique(hashes)) < len(hashes):
        twice = len(hashes) - len(np.unique(hashes))
        raise InvalidArgument(argument, "distinct", f"a list that repeats {twice} of them", remedy)
    return hashes


def by_value(hashes: UInt64Array) -> UInt64Array:
    """Return hashes of ids without their kind, as ids of two sides are compared."""
    return hashes & ~_KIND_BITS


def are_texts(hashes: UInt64Array | None) -> bool:
    """Return whether ids that were hashed are texts."""
    return hashes is not None and int(hashes[0] & _KIND_BITS) == 2


def check_kinds(hashes: UInt64Array, known: UInt64Array, argument: str) -> None:
    """Refuse ids or groups of another kind than the holdout's: none would be found again.

    Raises
    ------
    InvalidArgument
        With both kinds.
    """
    kind, known_kind = (int(side[0] & _KIND_BITS) for side in (hashes, known))
    if kind != known_kind:
        raise InvalidArgument(
            argument,
            f"{_KINDS.get(known_kind, 'tuples of the same kinds')}, as the holdout's are",
            _KINDS.get(kind, "tuples of several columns"),
            "Give both in one kind, such as " + _CONVERT.get(known_kind, "{}").format(argument),
        )


def kind_named(dtype: np.dtype[Any]) -> str | None:
    """Return of what kind the cells of an array are, if its dtype shows that."""
    return _KINDS.get(_OF_DTYPES.get(dtype.kind, 0))


def _kind_of(column: NDArray[Any], argument: str) -> int:
    """Return of which kind the cells of a column are; refuse several."""
    kind = column.dtype.kind
    if kind == "f" and bool((np.abs(column) >= 2.0 ** (np.finfo(column.dtype).nmant + 1)).any()):
        came = f"numbers that {column.dtype.name} has no digits for"
        raise InvalidArgument(argument, "whole", came, "Read the column as int64, or as texts.")
    kinds = {_OF_DTYPES.get(kind, 1)}
    if kind == "O":
        kinds = {_of_type(cell) for cell in set(map(type, column))}
    if len(kinds) > 1:
        came = " and ".join(_KINDS[each] for each in sorted(kinds))
        raise InvalidArgument(
            argument, "of one kind", came, f"Convert them: {_CONVERT[2]}.".format(argument)
        )
    return kinds.pop() if kinds else 1


def _of_type(cell: type) -> int:
    return next((kind for known, kind in _OF_TYPES.items() if issubclass(cell, known)), 1)


def _named(column: NDArray[Any]) -> NDArray[Any]:
    """Return what the texts of a column name; of two spellings of one thing the second as it is."""
    texts = [
        t if isinstance(t, str) else bytes(t).decode("utf-8", "surrogateescape") for t in column
    ]
    values: dict[str, Any] = {}
    taken: set[Any] = set()
    for text in sorted(set(texts)):
        value = named_value(text)
        values[text] = text if value in taken else value
        taken.add(value)
    return np.array([values[text] for text in texts], dtype=object)


def label_digests(secret: bytes, hashes: UInt64Array) -> UInt64Array:
    """Digest labels or weights one by one, so that the holder of the secret can compare them.

    Parameters
    ----------
    secret : bytes
        The holdout's.
    hashes : ndarray of uint64, shape (n,)
        What ``row_hashes`` gave for them.

    Returns
    -------
    ndarray of uint64, shape (n,)
        SipHash-2-4 of each: equal for equal values, and for nothing else.

    Examples
    --------
    >>> first, second, third = label_digests(b"secret", row_hashes([0, 1, 0])).tolist()
    >>> first == third, first == second
    (True, False)
    """
    key = hmac.digest(secret, b"ladderholdout labels 1", "sha256")[:16]
    return siphash(key, hashes)


def sequence_digest(secret: bytes, digests: UInt64Array) -> bytes:
    """Digest a sequence of `label_digests`: 32 bytes that depend on the order.

    Examples
    --------
    >>> digests = label_digests(b"secret", row_hashes([0, 1]))
    >>> sequence_digest(b"secret", digests) == sequence_digest(b"secret", digests[::-1])
    False
    """
    plain = np.ascontiguousarray(digests, dtype="<u8")
    return hmac.digest(secret, plain.data, "sha256")


def same_partition(labels: UInt64Array, others: UInt64Array) -> bool:
    """Return whether two sequences divide the rows alike, and could hardly do so by chance.

    Labels that got other names, or other numbers, do.

    Parameters
    ----------
    labels, others : ndarray of uint64
        Hashes or digests of the labels, one for each row.

    Examples
    --------
    >>> labels = np.random.default_rng(0).integers(0, 2, 100).astype(np.uint64)
    >>> same_partition(labels, 7 - labels), same_partition(labels, labels[::-1])
    (True, False)
    >>> same_partition(labels[:9], 7 - labels[:9])  # too few to tell
    False
    """
    if len(labels) != len(others):
        return False
    ranks = _by_first(labels)
    if not np.array_equal(ranks, _by_first(others)):
        return False
    # So many names for the same division there are that each of them would have been equal.
    names = float(_log_factorial(int(ranks.max()) + 1))
    return sequence_bits(ranks) - names >= ENOUGH_BITS


def _by_first(labels: UInt64Array) -> Codes:
    """Return the labels by the order in which they come first."""
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    return np.asarray(ranks[codes.reshape(-1)])


def siphash(key: bytes, messages: UInt64Array) -> UInt64Array:
    """Compute SipHash-2-4 of messages of eight bytes (Aumasson and Bernstein 2012).

    Parameters
    ----------
    key : bytes
        16 of them.
    messages : ndarray of uint64, shape (n,)

    Returns
    -------
    ndarray of uint64, shape (n,)

    Examples
    --------
    >>> message = np.frombuffer(bytes(range(8)), "<u8")  # the vector of the paper's authors
    >>> siphash(bytes(range(16)), message).astype("<u8").tobytes().hex()
    '6224939a79f5f593'
    """
    low, high = np.frombuffer(key, "<u8").astype(np.uint64)
    initial = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    digests = np.empty(len(messages), dtype=np.uint64)
    # A piece at a time: the state is four times as long as what goes in.
    for start in range(0, len(messages), CHUNK):
        piece = messages[start : start + CHUNK].astype(np.uint64)
        v = [np.full(len(piece), np.uint64(constant)) for constant in initial]
        for part, word in zip(v, (low, high, low, high), strict=True):
            part ^= word
        # The last block holds the length alone.
        for block in (piece, np.full(len(piece), np.uint64(8 << 56))):
            v[3] ^= block
            _rounds(v, 2)
            v[0] ^= block
        v[2] ^= np.uint64(0xFF)
        _rounds(v, 4)
        digests[start : start + CHUNK] = v[0] ^ v[1] ^ v[2] ^ v[3]
    return digests


def _rounds(v: list[UInt64Array], count: int) -> None:
    for _ in range(count):
        for a, b, bits in ((0, 1, 13), (2, 3, 16)):
            v[a] += v[b]
            v[b] = _rotated(v[b], bits) ^ v[a]
        v[0] = _rotated(v[0], 32)
        for a, b, bits in ((2, 1, 17), (0, 3, 21)):
            v[a] += v[b]
            v[b] = _rotated(v[b], bits) ^ v[a]
        v[2] = _rotated(v[2], 32)


def _rotated(values: UInt64Array, bits: int) -> UInt64Array:
    rotated: UInt64Array = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return rotated


# -- whether a sequence could come about twice --------------------------------------------


class _Code(NamedTuple):
    """The length of a sequence in a code, in bits: of what it has in common, and of the rest.

    Two holdouts of one kind share the `model`: how many there are of each label, how they
    follow each other, with what period they come. Only the `rest` distinguishes one from another.
    """

    model: float
    rest: float


def are_telling(labels: ArrayLike) -> bool:
    """Return whether no other sequence is likely to be the same as this one."""
    return sequence_bits(labels) >= ENOUGH_BITS


def sequence_bits(labels: ArrayLike) -> float:
    """Estimate how many bits distinguish a sequence of labels from others of its kind.

    It is described in each of several codes: by the counts of the labels, as a Markov chain of
    order one and two, by runs of equal labels, by a shift against itself, and all of that for
    the differences between neighbours too. Each code that is shorter than the one by counts
    alone, and not just by chance, explains the sequence, and the estimate is the least that any of
    them leaves open beyond its model. Two sequences of such a kind that have nothing to do with
    each other are equal with a probability of ``2**-bits``.

    Parameters
    ----------
    labels : array-like of n labels or rows of targets

    Returns
    -------
    float
        0 for sequences that are constant, sorted, periodic or in equal blocks. No estimate
        sees every pattern: digits of pi have many bits here.

    Examples
    --------
    >>> sequence_bits([0, 1] * 500), sequence_bits([0] * 300 + [1] * 700)
    (0.0, 0.0)
    >>> labels = np.random.default_rng(0).integers(0, 2, 100)
    >>> 80 < sequence_bits(labels) < 100
    True
    """
    values = np.asarray(labels)
    if len(values) > _LONG:
        # That others follow takes no bits away.
        bits = sequence_bits(values[:_LONG])
        if bits >= ENOUGH_BITS:
            return bits
    codes = _codes(values)
    if len(codes) < 2:
        return 0.0
    plain, *others = _descriptions(codes)
    explaining = (code.rest for code in others if code.model + code.rest <= plain.rest - _LUCK)
    return max(min([plain.rest, *explaining]), 0.0)


def _codes(values: NDArray[Any]) -> Codes:
    """Return the labels by their ranks; targets of several columns by those of their rows."""
    if values.ndim > 1 or values.dtype == object:
        values = row_hashes(values, "y")
    return np.asarray(np.unique(values, return_inverse=True)[1].reshape(-1), dtype=np.int64)


def _descriptions(codes: Codes, *, deeper: bool = True) -> Iterator[_Code]:
    kinds = int(codes.max()) + 1
    # What neighbours differ by, where the last label is followed by the first.
    steps = np.diff(codes) % kinds
    for sequence, counted in ((codes, 0.0), (steps, _choices(len(steps), kinds))):
        yield _Code(counted, _arrangement(_counts(sequence)))
        for order in (1, 2):
            yield _markov(sequence, kinds, order)
        if deeper:
            yield from _runs(sequence, counted)
    if deeper:
        yield from _shifts(codes, kinds)


def _markov(codes: Codes, kinds: int, order: int) -> _Code:
    """Describe a chain by how often each label follows each context, and then by the order."""
    if len(codes) <= order:
        return _Code(0.0, math.inf)
    contexts = codes[order - 1 : -1]
    if order == 2:
        contexts = contexts * kinds + codes[:-2]
    _, contexts = np.unique(contexts, return_inverse=True)
    sizes = _counts(contexts)
    follow = np.unique(contexts.reshape(-1) * kinds + codes[order:], return_counts=True)[1]
    model = float(_log_choose(sizes + kinds - 1, kinds - 1).sum()) + order * math.log2(kinds)
    rest = float(_log_factorial(sizes).sum() - _log_factorial(follow).sum())
    return _Code(model, rest)


def _runs(codes: Codes, counted: float) -> Iterator[_Code]:
    """Describe the labels of the runs, and the order of the lengths of each label's runs."""
    starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
    lengths = np.diff(starts, append=len(codes))
    labels = codes[starts]
    runs, sizes = (_counts(some)[_counts(codes) > 0] for some in (labels, codes))
    orders = np.unique(labels * (len(codes) + 1) + lengths, return_counts=True)[1]
    rest = float(_log_factorial(runs).sum() - _log_factorial(orders).sum())
    lengths_of_all = float(_log_choose(sizes - 1, runs - 1).sum())
    model = counted + max(lengths_of_all - rest, 0.0) + _choices(len(labels), len(runs))
    if len(labels) == 1:
        yield _Code(model, rest)
        return
    for inner in _descriptions(_codes(labels), deeper=False):
        yield _Code(model + inner.model, rest + inner.rest)


def _shifts(codes: Codes, kinds: int) -> Iterator[_Code]:
    """Describe the first labels, and how each later one differs from the one so far before it."""
    n = len(codes)
    weights = np.random.default_rng(0).standard_normal(kinds)[codes]
    spectrum = np.fft.rfft(weights, 2 * n)
    agreeing = np.fft.irfft(np.abs(spectrum) ** 2)[1 : n // 2 + 1]
    agreeing /= np.arange(n - 1, n - n // 2 - 1, -1)
    for lag in np.argsort(-agreeing, kind="stable")[:_LAGS] + 1:
        steps = (codes[lag:] - codes[:-lag]) % kinds
        model = lag * math.log2(kinds) + _choices(len(steps), kinds) + math.log2(n)
        yield _Code(model, _arrangement(_counts(steps)))


def _counts(codes: Codes) -> Codes:
    counts: Codes = np.bincount(codes.reshape(-1))
    return counts


def _arrangement(counts: Codes) -> float:
    """Return the bits that encode in which order so many of each came."""
    return float(_log_factorial(counts.sum()) - _log_factorial(counts).sum())


def _choices(n: int, kinds: int) -> float:
    """Return the bits that encode how n were split among so many kinds."""
    return float(_log_choose(n + kinds - 1, kinds - 1))


def _log_factorial(n: Any) -> Any:
    return scipy.special.gammaln(np.asarray(n, dtype=np.float64) + 1) / math.log(2)


def _log_choose(n: Any, k: Any) -> Any:
    return _log_factorial(n) - _log_factorial(k) - _log_factorial(np.asarray(n) - k)
