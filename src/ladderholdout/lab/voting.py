"""Attacks that vote: many guesses at labels or at scores, each a little better than chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ladderholdout.arguments import inside
from ladderholdout.lab.analyst import Analyst, CoinFlips, Floats, Play, Problem, Seen, Submissions
from ladderholdout.lab.bits import Bits, Tally
from ladderholdout.metrics import Evaluation, get_metric


@dataclass(frozen=True, slots=True)
class Boosting(Analyst):
    """Guess labels, and submit the majority vote of the guesses whose released risk is good.

    Blum & Hardt 2015, Section 5. Good is a released risk of at most one half. Against a
    ladder, which releases the incumbent's risk, the authors take the guesses that improved.

    Parameters
    ----------
    guesses : int, default=400
        How many; the vote is one submission more.
    improvers : bool, default=False
        Whether the good ones are those that improved.
    opposites : bool, default=False
        Whether to count the opposite of each other guess, as the majority attack of Hardt
        2017 (Appendix B) and Zheng (Section 2.1) do.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import RoundedDisclosure
    >>> course = simulate(Boosting(guesses=400), RoundedDisclosure(), n=4000, repetitions=10)
    >>> round(float(course.believed.mean()), 2)
    0.43
    """

    guesses: int = 400
    improvers: bool = False
    opposites: bool = False

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield the guesses, then their vote; see `Analyst.play`."""
        tally = Tally(seen.repetitions, seen.n)
        for _ in range(self.guesses):
            guess = Bits.random(rng, seen.repetitions, seen.n)
            answers = yield Submissions(guess)
            good = answers.improved if self.improvers else answers.risk <= 0.5
            if self.opposites:
                tally.add(guess.where(good, ~guess))
            else:
                tally.add(guess, good)
        yield Submissions(tally.majority(Bits.random(rng, seen.repetitions, seen.n)))
        return None


@dataclass(frozen=True, slots=True)
class WeightedVote(Analyst):
    """Guess labels, and submit the vote in which each guess counts by its released risk.

    The boosting attack with weights of one half less the risk, which may be negative. A
    guess that did not improve a ladder has none of its own, and does not count.

    Parameters
    ----------
    guesses : int, default=400
        How many; the vote is one submission more.
    improvers : bool, default=False
        Whether to count the guesses that improved, and no others.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> for analyst in (WeightedVote(400), Boosting(400)):
    ...     course = simulate(analyst, FullDisclosure(), n=4000, repetitions=10)
    ...     print(round(float(course.believed.mean()), 2))
    0.38
    0.43
    """

    guesses: int = 400
    improvers: bool = False

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield the guesses, then their vote; see `Analyst.play`."""
        votes = np.zeros((seen.repetitions, seen.n))
        for _ in range(self.guesses):
            guess = Bits.random(rng, seen.repetitions, seen.n)
            answers = yield Submissions(guess)
            counts = answers.improved if self.improvers else np.full(seen.repetitions, True)
            weights = np.where(counts, 0.5 - np.nan_to_num(answers.risk, nan=0.5), 0.0)
            votes += weights[:, None] * (guess.unpack() - 0.5)
        ties = Bits.random(rng, seen.repetitions, seen.n)
        yield Submissions(Bits.pack(votes > 0) | (Bits.pack(votes == 0) & ties))
        return None


@dataclass(frozen=True, slots=True)
class ManyAccounts(Analyst):
    """Guess labels, each guess from an account of its own, and submit their vote from one more.

    Zheng, Sections 2.1 and 5: every ladder releases the first risk of a new account, so a ladder
    for each account gives away as much as full disclosure does. Of a guess that is
    worse than chance the opposite counts.

    Parameters
    ----------
    guesses : int, default=400
        How many; there is one account more.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> course = simulate(ManyAccounts(400), ParameterFreeLadder(), n=1000, repetitions=10)
    >>> bool(course.believed.mean() < 0.33)
    True
    """

    guesses: int = 400

    @property
    def accounts(self) -> int:
        """One for each guess, and one for the vote."""
        return self.guesses + 1

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield the guesses, then their vote; see `Analyst.play`."""
        tally = Tally(seen.repetitions, seen.n)
        for account in range(self.guesses):
            guess = Bits.random(rng, seen.repetitions, seen.n)
            answers = yield Submissions(guess, account)
            tally.add(guess.where(answers.risk <= 0.5, ~guess))
        vote = tally.majority(Bits.random(rng, seen.repetitions, seen.n))
        yield Submissions(vote, self.guesses)
        return None


@dataclass(frozen=True, slots=True)
class ShiftedMajority(Analyst):
    """Make a ladder improve again and again by giving up easy rows, and learn from each answer.

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
        By how much a risk has to be smaller than the released one to improve; None is
        one over the root of n.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
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
        Analyst.__post_init__(self)
        object.__setattr__(self, "easy", inside("easy", self.easy))
        if self.margin is not None:
            object.__setattr__(self, "margin", inside("margin", self.margin))

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> CoinFlips:
        """Draw coin flips, and show those of the easy rows."""
        return CoinFlips(Bits.random(rng, repetitions, n), easy=self._easy(n))

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield guesses with fewer easy rows wrong each time, then a vote; see `Analyst.play`."""
        n, repetitions, easy = seen.n, seen.repetitions, self._easy(seen.n)
        known = Bits.first(np.full(repetitions, easy), n)
        margin = 1 / math.sqrt(n) if self.margin is None else self.margin
        tally = Tally(repetitions, n)
        released = np.full(repetitions, np.inf)
        for _ in range(self.guesses):
            guess = Bits.random(rng, repetitions, n)
            # A guess of average accuracy is on the threshold.
            wrong = np.floor(n * (released - margin) - (n - easy) / 2)
            asked = wrong >= 0
            if not asked.any():
                break
            given_up = Bits.first(np.clip(wrong, 0, easy).astype(np.int64), n)
            labels = (guess & ~known) | ((seen.known ^ given_up) & known)
            answers = yield Submissions(labels)
            shifted = asked & np.isfinite(released)
            tally.add(guess.where(answers.improved, ~guess), shifted)
            # Where no value is released, half of the coin flips are taken to be wrong.
            expected = np.clip(wrong, 0, easy) / n + (n - easy) / 2 / n
            risk = np.where(np.isnan(answers.risk), expected, answers.risk)
            released = np.where(answers.improved, risk, released)
        vote = tally.majority(Bits.random(rng, repetitions, n))
        yield Submissions((vote & ~known) | (seen.known & known))
        return None

    def _easy(self, n: int) -> int:
        return min(max(round(self.easy * n), 1), n)


# A score beyond all that are drawn.
EXTREME = 9.0


@dataclass(frozen=True, slots=True, eq=False)
class AreaFlips(Problem):
    """Labels that are coin flips; predictions are scores, the risk is one less their area.

    Parameters
    ----------
    labels : Bits
        Of R holdouts; each has to have both.

    Examples
    --------
    >>> problem = AreaFlips(Bits.pack([[1, 0, 1, 0]]))
    >>> problem.losses(Submissions(np.array([[0.9, 0.1, 0.2, 0.3]])))[0].risk
    0.25
    """

    labels: Bits

    @property
    def seen(self) -> Seen:
        """The number of rows."""
        return Seen(self.labels.n, len(self.labels.words))

    def losses(self, submission: Submissions) -> tuple[Evaluation, ...]:
        """Evaluate each repetition; see `Problem.losses`."""
        area = get_metric("roc_auc")
        pairs = zip(self.labels.unpack(), submission.predictions, strict=True)
        return tuple(area.evaluate(labels, scores) for labels, scores in pairs)

    def true_risk(self, submission: Submissions) -> Floats:
        """Return one half."""
        return np.full(len(self.labels.words), 0.5)


@dataclass(frozen=True, slots=True)
class _Scorer(Analyst):
    """Base of the analysts that submit scores and are measured by the area under the curve."""

    metric: ClassVar[str] = "roc_auc"

    @property
    def bits_per_row(self) -> int:
        """Scores of a guess, of the sum and of the incumbent, of eight bytes each."""
        return 192

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> Problem:
        """Draw labels that are coin flips, and ask for scores."""
        return AreaFlips(Bits.random(rng, repetitions, n))


@dataclass(frozen=True, slots=True)
class ScoreSum(_Scorer):
    """Guess scores, and submit the sum of the guesses whose released risk is good.

    The boosting attack of Blum & Hardt 2015 (Section 5) on an area under the curve.

    Parameters
    ----------
    guesses : int, default=200
        How many; the sum is one submission more.
    improvers : bool, default=False
        Whether the good ones are those that improved, and not those with a released area above one
        half.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> course = simulate(ScoreSum(50), FullDisclosure(), n=200, repetitions=5)
    >>> bool(course.believed.mean() < 0.4)
    True
    """

    guesses: int = 200
    improvers: bool = False

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield the guesses, then their sum; see `Analyst.play`."""
        total = np.zeros((seen.repetitions, seen.n))
        for _ in range(self.guesses):
            guess = rng.standard_normal(total.shape)
            answers = yield Submissions(guess)
            good = answers.improved if self.improvers else answers.risk < 0.5
            total += good[:, None] * guess
        yield Submissions(total)
        return None


@dataclass(frozen=True, slots=True)
class RowByRow(_Scorer):
    """Move single rows to the top of all scores, then to the bottom; go on from what improves.

    An area moves with each single row, by an amount that under every weighting of the rows
    has the same sign: `BayesBootLadder` without a step is certain of it.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> course = simulate(RowByRow(), FullDisclosure(), n=50, repetitions=5)
    >>> course.submissions, bool(course.believed.max() < 0.1)
    (101, True)
    """

    @property
    def bits_per_row(self) -> int:
        """Scores of two submissions."""
        return 128

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield scores with a row moved, and keep what improves; see `Analyst.play`."""
        best = rng.standard_normal((seen.repetitions, seen.n))
        yield Submissions(best)
        for score in (EXTREME, -EXTREME):
            for row in range(seen.n):
                moved = best.copy()
                moved[:, row] = score
                answers = yield Submissions(moved)
                best = np.where(answers.improved[:, None], moved, best)
        return None
