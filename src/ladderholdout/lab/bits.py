"""Rows of bits, 64 in an integer: guesses at labels, and losses of 0 and 1, of many repetitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORD = 64
_ONE = np.uint64(1)

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Bits:
    """R rows of n bits.

    Parameters
    ----------
    words : ndarray of shape (R, ceil(n / 64))
        Row by row; the bits beyond n are 0.
    n : int
        Bits of a row.

    Examples
    --------
    >>> guesses = Bits.pack([[1, 0, 1], [0, 0, 1]])
    >>> (guesses ^ Bits.pack([[1, 1, 1], [1, 1, 1]])).count().tolist()
    [1, 2]
    """

    words: Words
    n: int

    @classmethod
    def random(cls, rng: np.random.Generator, rows: int, n: int) -> Bits:
        """Throw a coin for each bit; the generator gives one word for 64 coins."""
        words = rng.integers(0, 2**WORD, (rows, _n_words(n)), dtype=np.uint64)
        return cls(_cut(words, n), n)

    @classmethod
    def pack(cls, array: ArrayLike) -> Bits:
        """Pack an array of shape (R, n), in which what is not zero is a one."""
        dense = np.asarray(array)
        rows, n = dense.shape
        octets = np.zeros((rows, _n_words(n) * WORD // 8), dtype=np.uint8)
        packed = np.packbits(dense != 0, axis=1, bitorder="little")
        octets[:, : packed.shape[1]] = packed
        return cls(octets.view("<u8").astype(np.uint64, copy=False), n)

    @classmethod
    def first(cls, counts: ArrayLike, n: int) -> Bits:
        """Set the first bits of each row, as many as its count of 0 to n.

        Examples
        --------
        >>> Bits.first([0, 2], 3).unpack().tolist()
        [[0, 0, 0], [1, 1, 0]]
        """
        left = np.asarray(counts)[:, None] - WORD * np.arange(_n_words(n))
        filled = np.clip(left, 0, WORD).astype(np.uint64)
        # A shift by 64 is not defined, so full words are made by another.
        partial = (_ONE << (filled % np.uint64(WORD))) - _ONE
        return cls(np.where(filled == WORD, ~np.uint64(0), partial), n)

    def unpack(self) -> NDArray[np.uint8]:
        """Return the bits as an array of shape (R, n)."""
        octets = self.words.astype("<u8", copy=False).view(np.uint8)
        return np.unpackbits(octets, axis=1, count=self.n, bitorder="little")

    def count(self) -> Ints:
        """Return the number of ones in each row, of shape (R,)."""
        return np.asarray(np.bitwise_count(self.words).sum(axis=1, dtype=np.int64))

    def take(self, rows: NDArray[Any]) -> Bits:
        """Return some of the rows, by number or by flag."""
        return Bits(self.words[rows], self.n)

    def where(self, flags: Flags, other: Bits) -> Bits:
        """Return these rows where the flag is set, and the other's elsewhere."""
        return Bits(np.where(flags[:, None], self.words, other.words), self.n)

    def flip(self, columns: Ints) -> Bits:
        """Turn over the bits of each row that `columns` (R, m) names, one named twice twice.

        Examples
        --------
        >>> Bits.pack([[1, 0, 1]]).flip(np.array([[0, 1]])).unpack().tolist()
        [[0, 1, 1]]
        """
        words = self.words.copy()
        bits = _ONE << (columns % WORD).astype(np.uint64)
        rows = np.arange(len(words))
        for place, bit in zip((columns // WORD).T, bits.T, strict=True):
            words[rows, place] ^= bit
        return Bits(words, self.n)

    def __xor__(self, other: Bits) -> Bits:
        """Return where the two differ."""
        return Bits(self.words ^ other.words, self.n)

    def __and__(self, other: Bits) -> Bits:
        """Return where both are set."""
        return Bits(self.words & other.words, self.n)

    def __or__(self, other: Bits) -> Bits:
        """Return where one of them is set."""
        return Bits(self.words | other.words, self.n)

    def __invert__(self) -> Bits:
        """Return the opposite."""
        return Bits(_cut(~self.words, self.n), self.n)


@dataclass(slots=True)
class Tally:
    """Votes counted by place, in many repetitions at once.

    The counts are binary digits, a plane of bits for each, and a vote is added with a
    carry: a few operations on words instead of n additions.

    Examples
    --------
    >>> tally = Tally(2, 3)
    >>> for _ in range(3):
    ...     tally.add(Bits.pack([[1, 0, 1], [0, 0, 1]]))
    >>> tally.counts().tolist()
    [[3, 0, 3], [0, 0, 3]]
    """

    rows: int
    n: int
    planes: list[Words] = field(default_factory=list)
    votes: Ints = field(init=False)

    def __post_init__(self) -> None:
        """Start with no votes."""
        self.votes = np.zeros(self.rows, dtype=np.int64)

    def add(self, bits: Bits, where: Flags | None = None) -> None:
        """Add a vote in each repetition, or in those of `where` alone."""
        counted = np.ones(self.rows, dtype=bool) if where is None else where
        self.votes += counted
        # Few rows are picked out; of many, the others are set to zero, which is quicker.
        few = 4 * np.count_nonzero(counted) < self.rows
        chosen = np.flatnonzero(counted) if few else slice(None)
        carry = bits.words[chosen] if few else np.where(counted[:, None], bits.words, 0)
        for plane in self.planes:
            total, carry = plane[chosen] ^ carry, plane[chosen] & carry
            plane[chosen] = total
            if not carry.any():
                return
        if carry.any():
            self.planes.append(np.zeros_like(bits.words))
            self.planes[-1][chosen] = carry

    def counts(self) -> Ints:
        """Return how many voted for a one, of shape (R, n)."""
        total = np.zeros((self.rows, self.n), dtype=np.int64)
        for digit, plane in enumerate(self.planes):
            total += Bits(plane, self.n).unpack().astype(np.int64) << digit
        return total

    def majority(self, ties: Bits) -> Bits:
        """Return the majority of each place, and where it is even the vote of `ties`."""
        lead = 2 * self.counts() - self.votes[:, None]
        return Bits.pack(lead > 0) | (Bits.pack(lead == 0) & ties)


def _n_words(n: int) -> int:
    return -(-n // WORD)


def _cut(words: Words, n: int) -> Words:
    """Clear the bits beyond n, in place."""
    if n % WORD:
        words[:, -1] &= (_ONE << np.uint64(n % WORD)) - _ONE
    return words
