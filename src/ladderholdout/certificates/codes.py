"""How much a transcript of releases reveals, in nats: code lengths fixed before the search.

A certificate pays for every model that the analyst could have submitted in this place, and
there is one for each transcript. Chances are handed out to transcripts by rules which are
fixed in advance and whose sum is at most 1; minus the logarithm of a chance is what its
transcript costs. Any such rule is valid, and a mixture of several costs at most the
logarithm of their number. docs/background/certificates.md has the proofs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import whole
from ladderholdout.errors import InvalidArgument

# Improvements thin out like rate / t: the rate is their mean number while t grows e-fold.
THINNING_RATES = (1.0, 2.0, 4.0, 8.0)
# A fall of the value is a sum of so many geometric ones.
FALL_SHAPES = np.array([1, 2, 4, 8])
# The same below the bar of the rule; and the weight that the falls before the last one keep.
SHAPES_BELOW, MEMORIES = np.array([1, 2, 4, 8, 16]), (1.0, 0.8)


@dataclass(frozen=True)
class LadderTranscript:
    """What one ladder had released before a batch began.

    Parameters
    ----------
    queries : int
        Submissions whose answer was open: all but repeats and those after the budget was used up.
    improved : tuple of int or None
        Which of them improved, counted from 1 and increasing; None for a mechanism that
        releases each submission's own risk, where the values show it.
    values : tuple of int
        The released values, in order, as numbers of the grid in 0 to n_values - 1. A ladder
        releases one for each improvement; one that shows improvements alone those that were
        requested.
    n_values : int
        Number of values that could have been released.
    falling : bool, default=True
        Whether each value must be smaller than the one before.
    first_improves : bool, default=True
        Whether the first submission improves whatever it is: then that reveals nothing.
    choices : tuple of int or None, default=None
        How many values each could have been, the smallest of all, as was known when it was
        released. None where that is n_values, or where values fall and nothing is known but
        that.

    Raises
    ------
    InvalidArgument
        If the parts contradict each other.

    Examples
    --------
    >>> ladder = LadderTranscript(queries=100, improved=(1, 7), values=(30, 22), n_values=101)
    >>> round(ladder.length(), 2)
    16.46
    """

    queries: int
    improved: tuple[int, ...] | None
    values: tuple[int, ...]
    n_values: int
    falling: bool = True
    first_improves: bool = True
    choices: tuple[int, ...] | None = None

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
        if self.values and not 0 <= min(self.values) <= max(self.values) < self.n_values:
            raise InvalidArgument("values", f"numbers in 0 to {self.n_values - 1}", "not")
        if self.choices is not None and (
            len(self.choices) != len(self.values)
            or any(map(operator.ge, self.values, self.choices))
        ):
            raise InvalidArgument("choices", "one above each value", "not")
        if self.falling:
            _check_increasing("values", self.values[::-1], "falling")

    def length(self) -> float:
        """Return the code length of all that this ladder released, in nats.

        Returns
        -------
        float
            Of the improvements and of the values.
        """
        return sum(self.lengths)

    @cached_property
    def lengths(self) -> tuple[float, float]:
        """The two parts of `length`: of which queries improved, and of what was released.

        Examples
        --------
        >>> ladder = LadderTranscript(queries=100, improved=(1, 7), values=(30, 22), n_values=101)
        >>> [round(part, 2) for part in ladder.lengths]
        [7.93, 8.54]
        """
        flags = 0.0
        if self.improved is not None:
            # The first query reveals nothing where it improves whatever it is.
            certain = 1 if self.first_improves and self.queries else 0
            uncertain = np.array(self.improved[certain:]) - certain
            flags = flags_length(uncertain, self.queries - certain)
        if not self.falling:
            choices = self.choices or (self.n_values,) * len(self.values)
            return flags, sum(map(math.log, choices))
        if not self.values:
            return flags, 0.0
        most = None if self.choices is None else self.choices[1:]
        return flags, math.log(self.n_values) + falls_length(self.values, most)

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
        latest = self.queries + 1
        return replace(self, queries=latest, improved=(*self.improved, latest))


def _check_increasing(argument: str, numbers: Sequence[int], order: str = "increasing") -> None:
    if list(numbers) != sorted(set(numbers)):
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
    scale, next_scale = math.log1p(math.log(place)), math.log1p(math.log(place + 1))
    return scale + next_scale - math.log(math.log1p(1.0 / place))


def event_length(number: int) -> float:
    """Return the code length of the number of a certified event of a holdout.

    The first one has a chance of 4/5, and the m-th of 1/(5 m (m - 1)); the sum is 1. Most holdouts
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
    [0.22, 2.3, 3.4, 6.11]
    """
    number = whole("number", number)
    return math.log(1.25) if number == 1 else math.log(5 * number * (number - 1))


def flags_length(improved: ArrayLike, queries: int) -> float:
    """Return the code length of which queries improved.

    A mixture of two views, half the chance to each: a steady rate that is not known
    (Krichevsky & Trofimov 1981), and rates that fall like c / (t + c).

    Parameters
    ----------
    improved : array-like of int
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
    places = np.asarray(improved, dtype=np.float64)
    count, log_places = len(places), float(np.log(places).sum())
    # Improvements are independent, at query t with the chance rate/(t + rate): the product of
    # t/(t + rate) over all queries, and rate/t more for each that improved.
    all_queries = math.lgamma(queries + 1.0)
    thinning = [
        log_places
        - count * math.log(rate)
        - (all_queries + math.lgamma(1.0 + rate) - math.lgamma(queries + 1.0 + rate))
        for rate in THINNING_RATES
    ]
    return mixed([steady_length(count, queries), mixed(thinning)])


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


def falls_length(values: Sequence[int], choices: Sequence[int] | None = None) -> float:
    """Return the code length of how falling values go on after the first.

    An equal mixture of two codes: of the falls (`_falls_length`), and of how far each value is
    below the bar of the rule (`_below_length`).

    Parameters
    ----------
    values : sequence of int
        Numbers of the grid, falling.
    choices : sequence of int or None, default=None
        For each value but the first, how many it could have been, as the rule and the value before
        it show; None where they show no more than that it falls.

    Returns
    -------
    float
        In nats.

    Examples
    --------
    >>> round(falls_length([1000, 950, 930, 925]), 2)
    15.44
    >>> round(falls_length([1000, 950, 930, 925], [960, 935, 926]), 2)
    10.69
    """
    before = np.asarray(values[:-1], dtype=np.float64)
    after = np.asarray(values[1:], dtype=np.float64)
    bars = before if choices is None else np.minimum(before, choices)
    return mixed([_falls_length(before, before - after), _below_length(bars - after)])


def _falls_length(before: NDArray[np.float64], falls: NDArray[np.float64]) -> float:
    """Return the code length of falls d >= 1 from the values before.

    A mixture of five views of a fall: of any order of magnitude alike (a chance in proportion to
    1/d), or negative binomial with a scale that is not known (averaged by Beta(1/2, 1/2)) and one
    of four shapes.
    """
    # The harmonic number of v is the sum of 1/d over all the falls that are possible.
    orders = np.log(falls * (scipy.special.digamma(before + 1.0) + np.euler_gamma)).sum()
    shapes = FALL_SHAPES[:, None]
    # C(d + shape - 2, shape - 1) = 1 / ((d + shape - 1) B(d, shape)).
    ways = -(np.log(falls + shapes - 1.0) + scipy.special.betaln(falls, shapes)).sum(axis=1)
    stopped, went_on = FALL_SHAPES * falls.size + 0.5, falls.sum() - falls.size + 0.5
    scaled = scipy.special.betaln(0.5, 0.5) - scipy.special.betaln(stopped, went_on) - ways
    return mixed([float(orders), *scaled.tolist()])


def _below_length(steps: NDArray[np.float64]) -> float:
    """Return the code length of how many steps d >= 1 values are below their bars.

    A mixture of ten views, "What Q is made of" in docs/background/certificates.md: negative
    binomial of five shapes, with a scale by Beta(1/2, 1/2) and what came before, all of it alike
    or the latest most.
    """
    shapes = SHAPES_BELOW[:, None]
    ways = -(np.log(steps + shapes - 1.0) + scipy.special.betaln(steps, shapes))
    lengths: list[float] = []
    for memory in MEMORIES:
        stopped = shapes * _remembered(np.ones_like(steps), memory) + 0.5
        went_on = _remembered(steps - 1.0, memory) + 0.5
        chances = scipy.special.betaln(stopped + shapes, went_on + steps - 1.0)
        chances = chances - scipy.special.betaln(stopped, went_on) + ways
        lengths += (-chances.sum(axis=1)).tolist()
    return mixed(lengths)


def _remembered(numbers: NDArray[np.float64], memory: float) -> NDArray[np.float64]:
    """Return the sum of the numbers before each one, an earlier one weighted by the memory."""
    kept = [0.0]
    for number in numbers[:-1].tolist():
        kept.append(memory * kept[-1] + number)
    return np.array(kept)


def worst_log_count(queries: int, releases: int, n_values: int | None) -> float:
    """Return the largest L of one ladder with so many releases before the incumbent, and no batch.

    It holds wherever the improvements are and whatever values were released.

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
    (91.7, 56.9)
    """
    if queries == 0 == releases:
        return event_length(1)
    queries, releases = whole("queries", queries), whole("releases", releases)
    if releases > queries:
        raise InvalidArgument("releases", f"at most {queries}, the number of queries", releases)
    # The later an improvement, the more it costs; the incumbent is the last one.
    latest = range(queries - releases + 1, queries + 1)
    flags = flags_length(latest, queries)
    values = 0.0
    if n_values is not None:
        values = math.log(whole("n_values", n_values))
        if releases > 1 and n_values > 1:
            # Geometric falls are one of the mixed codes, in the first half of all, and cost most if
            # they go all the way down.
            falls = min(releases - 1, n_values - 1)
            codes = 2 * (1 + len(FALL_SHAPES))
            values = values + math.log(codes) + steady_length(falls, n_values - 1)
    return event_length(releases + 1) + flags + values
