"""How much a transcript of releases reveals, in nats: code lengths fixed before the search.

A certificate pays for every model that the analyst could have submitted in this place, and
there is one for each transcript. Chances are handed out to transcripts by rules which are
fixed in advance and whose sum is at most 1; minus the logarithm of a chance is what its
transcript costs. Any such rule is valid, and a mixture of several costs at most the
logarithm of their number. docs/background/certificates.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import whole

# Improvements thin out like rate / t: the mean number of them in e-fold time.
THINNING_RATES = (1.0, 2.0, 4.0, 8.0)
# Falls of the value are sums of so many geometric ones.
FALL_SHAPES = (1, 2, 4, 8)
# The chance that is set aside for transcripts with distinguishable repeats: the others pay
# .004 nats for it, and they 5.5.
REPEATS_SHARE = 1 / 256
# The limits are proved for levels of at most 1/4 for one side, whatever the confidence is.
LEAST_LOG_COUNT = math.log(2.0)


@dataclass(frozen=True, slots=True)
class LadderTranscript:
    """What one ladder had released before a batch began.

    Parameters
    ----------
    queries : int
        Submissions whose answer was open: all but those after the budget was used up. A
        repeat that is answered like a submission that did not improve is one of them.
    improved : tuple of int or None
        Which of them improved, counted from 1 and increasing; None for a mechanism that
        releases each submission's own risk, where the values show it.
    values : tuple of int
        The released values, in order, as numbers of the grid in 0 to n_values - 1. A ladder
        releases one for each improvement; a one-bit ladder those that were asked for.
    n_values : int
        Number of values that could have been released.
    falling : bool, default=True
        Whether each value must be smaller than the one before.
    first_improves : bool, default=True
        Whether the first submission improves whatever it is: then that reveals nothing.
    choices : tuple of int or None, default=None
        How many values each could have been, the smallest of all, as was known when it was
        released; None where that is n_values, or where values fall.
    repeats : tuple of int, default=()
        The distinguishable repeats: submissions that were answered as earlier ones of the
        same predictions, and not like one that does not improve. Numbers among all
        submissions to the ladder from 2, increasing; none of them improved anew.
    submissions : int or None, default=None
        All submissions to the ladder, with those after the budget was used up; None where
        that is `queries`.
    releases : int, default=0
        How many had improved the ladder before these submissions: 0 but after the withdrawal
        of an incumbent.

    Raises
    ------
    InvalidArgument
        If the parts contradict each other.

    Examples
    --------
    >>> ladder = LadderTranscript(queries=100, improved=(1, 7), values=(30, 22), n_values=101)
    >>> round(ladder.length(), 2)
    16.41
    """

    queries: int
    improved: tuple[int, ...] | None
    values: tuple[int, ...]
    n_values: int
    falling: bool = True
    first_improves: bool = True
    choices: tuple[int, ...] | None = None
    repeats: tuple[int, ...] = ()
    submissions: int | None = None
    releases: int = 0

    def __post_init__(self) -> None:
        """Validate that the parts fit together."""
        if self.queries != 0:
            whole("queries", self.queries)
        # A value may be any number of 64 bits, or one of many units of many steps.
        whole("n_values", self.n_values, most=2**1000)
        if self.improved is not None:
            _check_increasing("improved", (0, *self.improved, self.queries + 1))
            if self.first_improves and self.queries and self.improved[:1] != (1,):
                raise InvalidArgument("improved", "with 1 where the first query improves", "not")
        if any(not 0 <= value < self.n_values for value in self.values):
            raise InvalidArgument("values", f"numbers in 0 to {self.n_values - 1}", "not")
        if self.choices is not None and not (
            len(self.choices) == len(self.values)
            and all(value < most for value, most in zip(self.values, self.choices, strict=True))
        ):
            raise InvalidArgument("choices", "one above each value", "not")
        if self.falling:
            _check_increasing("values", (-1, *reversed(self.values)), "falling")
        self._check_repeats()

    def length(self) -> float:
        """Return the code length of all that this ladder released, in nats.

        Returns
        -------
        float
            Of the improvements, of the values and of the repeats.
        """
        return sum(self.lengths())

    def lengths(self) -> tuple[float, float]:
        """Return the two parts of `length`: which queries improved, and what was released.

        Returns
        -------
        tuple of (float, float)
            Of the improvements and the repeats, and of the values.

        Examples
        --------
        >>> ladder = LadderTranscript(queries=100, improved=(1, 7), values=(30, 22), n_values=101)
        >>> [round(part, 2) for part in ladder.lengths()]
        [7.93, 8.48]
        """
        flags = 0.0 if self.improved is None else self._flags() + self._repeats()
        if self.falling:
            return flags, _falling(self)
        choices = self.choices or (self.n_values,) * len(self.values)
        return flags, sum(map(math.log, choices))

    def improving(self) -> LadderTranscript:
        """Return this transcript and one query more, which improved, its value not counted.

        Returns
        -------
        LadderTranscript
            For the certificate of that query: how likely it was to improve is part of the price.

        Examples
        --------
        >>> LadderTranscript(queries=9, improved=(1, 7), values=(30, 22), n_values=101).improving()
        ... # doctest: +ELLIPSIS
        LadderTranscript(queries=10, improved=(1, 7, 10), values=(30, 22), n_values=101, ...)
        """
        if self.improved is None:
            # What the others released shows that they improved, and so does this one's value.
            return self
        total = self.queries if self.submissions is None else self.submissions
        now = total + 1
        return replace(self, queries=now, improved=(*self.improved, now), submissions=now)

    def events(self) -> int:
        """Return how many queries without a batch were events, if none of them had a batch.

        Examples
        --------
        >>> LadderTranscript(queries=5, n_values=101, improved=(1, 3), values=(60, 50)).events()
        2
        """
        return self.queries if self.improved is None else len(self.improved)

    def _flags(self) -> float:
        assert self.improved is not None
        certain = 1 if self.first_improves and self.queries else 0
        return flags_length([i - certain for i in self.improved[certain:]], self.queries - certain)

    def _repeats(self) -> float:
        assert self.improved is not None
        total = self.queries if self.submissions is None else self.submissions
        return repeats_length(self.repeats, self.improved, total, self.releases)

    def _check_repeats(self) -> None:
        total = self.queries if self.submissions is None else self.submissions
        if total < self.queries:
            raise InvalidArgument("submissions", "at least queries", "fewer")
        if not self.repeats:
            return
        _check_increasing("repeats", (1, *self.repeats, total + 1))
        if self.improved is None or set(self.repeats) & set(self.improved):
            raise InvalidArgument("repeats", "none that improved, of a ladder with flags", "not")


def _check_increasing(argument: str, numbers: Iterable[int], order: str = "increasing") -> None:
    if any(not before < after for before, after in pairwise(numbers)):
        raise InvalidArgument(argument, f"strictly {order} and within the range", "not")


def place_length(place: int) -> float:
    """Return the code length of a number that is not bounded in advance.

    The chance of t is 1/(1 + ln t) - 1/(1 + ln(t + 1)); the sum over all t is 1.

    Parameters
    ----------
    place : int
        A number from 1.

    Returns
    -------
    float
        About ln t + 2 ln(1 + ln t) nats.

    Raises
    ------
    InvalidArgument
        If it is no whole number from 1.

    Examples
    --------
    >>> [round(place_length(place), 2) for place in (1, 2, 100, 10_000)]
    [0.89, 2.17, 8.06, 13.86]
    """
    place = whole("place", place)
    here, there = math.log1p(math.log(place)), math.log1p(math.log(place + 1))
    return here + there - math.log(math.log1p(1.0 / place))


def event_length(number: int) -> float:
    """Return the code length of the number of a certified event of a holdout.

    The first one has a chance of 2/3, and the m-th of 1/(3 m (m - 1)); the sum is 1. Most holdouts
    certify one batch, and events that come late cost more for other reasons.

    Parameters
    ----------
    number : int
        From 1, as `Transcript.event`.

    Returns
    -------
    float
        In nats.

    Raises
    ------
    InvalidArgument
        If it is no whole number from 1.

    Examples
    --------
    >>> [round(event_length(number), 2) for number in (1, 2, 3, 10)]
    [0.41, 1.79, 2.89, 5.6]
    """
    number = whole("number", number)
    return math.log(1.5) if number == 1 else math.log(3 * number * (number - 1))


def flags_length(improved: Sequence[int], queries: int) -> float:
    """Return the code length of which queries improved.

    A mixture of two views, half the chance to each: a steady rate that is not known
    (Krichevsky & Trofimov 1981), and rates that fall like c / (t + c).

    Parameters
    ----------
    improved : sequence of int
        Numbers in 1 to queries, increasing.
    queries : int
        How many queries there were.

    Returns
    -------
    float
        In nats.

    Examples
    --------
    >>> round(flags_length([1, 3, 9, 30, 90, 270], 1000), 2)
    25.66
    """
    steady = steady_length(len(improved), queries)
    logs = float(np.log(np.asarray(improved, dtype=np.float64)).sum())
    thinning = mixed([_thinning(rate, logs, len(improved), queries) for rate in THINNING_RATES])
    return mixed([steady, thinning])


def repeats_length(
    repeats: Sequence[int],
    improved: Sequence[int],
    submissions: int,
    releases: int = 0,
) -> float:
    """Return the code length of which submissions were distinguishable repeats, and of what.

    A share of 1/256 of the chance goes to transcripts that have some: at a steady rate that is
    not known, each with one of at most 2J answers after J improvements.

    Parameters
    ----------
    repeats : sequence of int
        Numbers in 2 to submissions, increasing.
    improved : sequence of int
        The submissions that improved, increasing.
    submissions : int
        How many there were.
    releases : int, default=0
        How many others had improved before them.

    Returns
    -------
    float
        In nats; 0 for fewer than two submissions.

    Examples
    --------
    A search of 144 candidates, three of which improved, run again as a whole:

    >>> round(repeats_length([145, 149, 184], [1, 5, 40], 288), 2)
    30.66
    >>> round(repeats_length([], [1, 5, 40], 144), 3)
    0.004
    """
    if submissions < 2:
        return 0.0
    if not repeats:
        return -math.log1p(-REPEATS_SHARE)
    rate = steady_length(len(repeats), submissions - 1)
    before = releases + np.searchsorted(np.asarray(improved), np.asarray(repeats))
    return rate + float(np.log(np.maximum(2 * before, 1)).sum()) - math.log(REPEATS_SHARE)


def steady_length(count: int, queries: int) -> float:
    """Return the code length of ``count`` improvements among ``queries``, wherever they are.

    Krichevsky & Trofimov 1981: the mean chance of the sequence over all rates, weighted by
    Beta(1/2, 1/2).

    Parameters
    ----------
    count : int
        Number of improvements.
    queries : int
        Number of queries, at least as many.

    Returns
    -------
    float
        In nats: ln C(queries, count) and about ln(pi sqrt(count queries)).

    Examples
    --------
    >>> round(steady_length(7, 999), 2)
    45.39
    """
    return float(
        scipy.special.betaln(0.5, 0.5) - scipy.special.betaln(count + 0.5, queries - count + 0.5)
    )


def mixed(lengths: Sequence[float]) -> float:
    """Return the code length of an equal mixture of codes.

    Parameters
    ----------
    lengths : sequence of float
        Code lengths of one message, in nats.

    Returns
    -------
    float
        At most the shortest and the logarithm of their number.

    Examples
    --------
    >>> round(mixed([3.0, 100.0]), 4), mixed([3.0, 3.0])
    (3.6931, 3.0)
    """
    shortest = min(lengths)
    total = sum(math.exp(shortest - length) for length in lengths)
    return shortest - math.log(total / len(lengths))


def _thinning(rate: float, logs: float, count: int, queries: int) -> float:
    """Code length under independent improvements, at query t with chance rate/(t + rate)."""
    # The product of t/(t + rate) over all queries, and rate/t more for each that improved.
    none = math.lgamma(queries + 1.0) + math.lgamma(1.0 + rate) - math.lgamma(queries + 1.0 + rate)
    return logs - count * math.log(rate) - none


def _falling(ladder: LadderTranscript) -> float:
    """Code length of falling values: the first one uniform, then the falls."""
    if not ladder.values:
        return 0.0
    return math.log(ladder.n_values) + falls_length(ladder.values)


def falls_length(values: Sequence[int]) -> float:
    """Return the code length of how falling values go on after the first.

    A mixture of five views of a fall d >= 1: of any order of magnitude alike (a chance in
    proportion to 1/d), or negative binomial with a scale that is not known (averaged by
    Beta(1/2, 1/2)) and one of four shapes.

    Parameters
    ----------
    values : sequence of int
        Numbers of the grid, falling.

    Returns
    -------
    float
        In nats.

    Examples
    --------
    >>> round(falls_length([1000, 950, 930, 925]), 2)
    15.23
    """
    before = np.asarray(values[:-1], dtype=np.float64)
    falls = before - np.asarray(values[1:], dtype=np.float64)
    # The harmonic number of v is the sum of 1/d over all the falls that are possible.
    orders = np.log(falls * (scipy.special.digamma(before + 1.0) + np.euler_gamma)).sum()
    return mixed([float(orders), *(_scaled_falls(falls, shape) for shape in FALL_SHAPES)])


def _scaled_falls(falls: NDArray[np.float64], shape: int) -> float:
    # C(d + shape - 2, shape - 1) = 1 / ((d + shape - 1) B(d, shape)).
    ways = -(np.log(falls + shape - 1.0) + scipy.special.betaln(falls, float(shape))).sum()
    total = scipy.special.betaln(shape * falls.size + 0.5, falls.sum() - falls.size + 0.5)
    return float(scipy.special.betaln(0.5, 0.5) - total - ways)


def worst_log_count(queries: int, releases: int, n_values: int | None) -> float:
    """Return the largest L of one ladder with so many releases before the incumbent, and no batch.

    Wherever the improvements are and whatever values were released.

    Parameters
    ----------
    queries : int
        Submissions before the incumbent, without repeats.
    releases : int
        Improvements among them; the first query is one.
    n_values : int or None
        Number of values that a release can have; None for a ladder that only shows that
        there was an improvement.

    Returns
    -------
    float
        In nats; `Transcript.log_count` is smaller where improvements thin out or falls are
        small.

    Raises
    ------
    InvalidArgument
        If there are more releases than queries.

    Examples
    --------
    >>> round(worst_log_count(999, 8, 101), 1), round(worst_log_count(999, 8, None), 1)
    (90.5, 56.3)
    """
    if queries == 0 == releases:
        return LEAST_LOG_COUNT
    queries, releases = whole("queries", queries), whole("releases", releases)
    if releases > queries:
        raise InvalidArgument("releases", f"at most {queries}, the number of queries", releases)
    # The later an improvement, the more it costs; the incumbent is the last one.
    last = range(queries - releases + 1, queries + 1)
    flags = flags_length(last, queries) + repeats_length((), (), queries + 1)
    return (
        event_length(releases + 1)
        + flags
        + (0.0 if n_values is None else _most_for_values(releases, n_values))
    )


def _most_for_values(releases: int, n_values: int) -> float:
    most = math.log(whole("n_values", n_values))
    if releases == 1 or n_values == 1:
        return most
    # Geometric falls are one of the mixed codes, and cost most when they go all the way down.
    falls = min(releases - 1, n_values - 1)
    codes = 1 + len(FALL_SHAPES)
    return most + math.log(codes) + steady_length(falls, n_values - 1)
