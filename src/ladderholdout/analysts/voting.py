"""Attacks that vote: what many guesses at coin flips, each a little lucky, know together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ladderholdout.analysts.base import Analyst, CoinFlips, Play, Seen, Submission
from ladderholdout.analysts.bits import Bits, Tally
from ladderholdout.mechanisms.arithmetic import inside, whole


@dataclass(frozen=True, slots=True)
class Boosting(Analyst):
    """Guess labels, and submit the majority vote of the guesses that were told to be good.

    Blum & Hardt 2015, Section 5. Good is what is told a risk of at most one half. Against a
    ladder, whose answer is the standing risk, the authors take the guesses that improved.

    Parameters
    ----------
    guesses : int, default=400
        How many; the vote is one submission more.
    improvers : bool, default=False
        Whether to count the guesses that improved, and no others.

    Raises
    ------
    InvalidArgument
        If the number of guesses is not a whole number of at least 1.

    Examples
    --------
    >>> from ladderholdout.analysts import simulate
    >>> from ladderholdout.mechanisms import RoundedDisclosure
    >>> course = simulate(Boosting(guesses=400), RoundedDisclosure(), n=4000, repetitions=10)
    >>> round(float(course.believed.mean()), 2)
    0.43
    """

    guesses: int = 400
    improvers: bool = False

    def __post_init__(self) -> None:
        """Validate the number of guesses."""
        object.__setattr__(self, "guesses", whole("guesses", self.guesses))

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Guess, and vote; `Analyst.play` says what the parts are."""
        tally = Tally(seen.repetitions, seen.n)
        for _ in range(self.guesses):
            guess = Bits.random(rng, seen.repetitions, seen.n)
            told = yield Submission(guess)
            tally.add(guess, told.improved if self.improvers else told.risk <= 0.5)
        ties = Bits.random(rng, seen.repetitions, seen.n)
        yield Submission(tally.majority(ties))
        return None


@dataclass(frozen=True, slots=True)
class ShiftedMajority(Analyst):
    """Keep a ladder answering by giving up easy rows, and learn from each answer.

    Hardt 2017, Section 4, with the offsets of Figure 2 made of an easy set. Some rows are
    easy: the analyst knows their labels, and the others are coin flips. He begins with all
    easy rows wrong. Each next guess has just so many of them wrong that it improves if it is
    better than most guesses at the coin flips. Guesses that improve are counted, the
    opposites of the others as well. The last submission is the vote, and all easy rows right.

    Parameters
    ----------
    guesses : int, default=400
        How many at most; he stops when no easy rows are left to give back.
    easy : float, default=0.5
        Share of easy rows, in (0, 1).
    margin : float or None, default=None
        By how much a risk has to be smaller than the standing one to be released; None is
        one over the root of n.

    Raises
    ------
    InvalidArgument
        If a setting is refused.

    Examples
    --------
    >>> from ladderholdout.analysts import simulate
    >>> from ladderholdout.mechanisms import Ladder
    >>> attack = ShiftedMajority(guesses=200, margin=0.005)
    >>> course = simulate(attack, Ladder(step=0.005), n=1000, repetitions=20)
    >>> bool(course.bias.mean() > 0.04)
    True
    """

    guesses: int = 400
    easy: float = 0.5
    margin: float | None = None

    def __post_init__(self) -> None:
        """Validate the settings."""
        object.__setattr__(self, "guesses", whole("guesses", self.guesses))
        object.__setattr__(self, "easy", inside("easy", self.easy))
        if self.margin is not None:
            object.__setattr__(self, "margin", inside("margin", self.margin))

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> CoinFlips:
        """Draw coin flips, and show those of the easy rows."""
        return CoinFlips(Bits.random(rng, repetitions, n), easy=self._easy(n))

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Guess with fewer and fewer easy rows wrong, and vote; see `Analyst.play`."""
        n, repetitions, easy = seen.n, seen.repetitions, self._easy(seen.n)
        known = Bits.first(np.full(repetitions, easy), n)
        margin = 1 / math.sqrt(n) if self.margin is None else self.margin
        tally = Tally(repetitions, n)
        standing = np.full(repetitions, np.inf)
        for _ in range(self.guesses):
            guess = Bits.random(rng, repetitions, n)
            # A guess of average luck lies on the threshold.
            wrong = np.floor(n * (standing - margin) - (n - easy) / 2)
            asked = wrong >= 0
            if not asked.any():
                break
            given_up = Bits.first(np.clip(wrong, 0, easy).astype(np.int64), n)
            labels = (guess & ~known) | ((seen.known ^ given_up) & known)
            told = yield Submission(labels)
            shifted = asked & np.isfinite(standing)
            tally.add(guess.where(told.improved, ~guess), shifted)
            # Where no value is told, half of the coin flips are taken to be wrong.
            expected = np.clip(wrong, 0, easy) / n + (n - easy) / 2 / n
            released = np.where(np.isnan(told.risk), expected, told.risk)
            standing = np.where(told.improved, released, standing)
        vote = tally.majority(Bits.random(rng, repetitions, n))
        yield Submission((vote & ~known) | (seen.known & known))
        return None

    def _easy(self, n: int) -> int:
        return min(max(round(self.easy * n), 1), n)
