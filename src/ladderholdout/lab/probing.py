"""Attacks that probe: small changes, repeats, and submissions whose loss spells labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import inside
from ladderholdout.errors import InvalidArgument
from ladderholdout.lab.analyst import Analyst, Floats, Play, Problem, Seen, Submissions
from ladderholdout.lab.bits import Bits, Ints

# Log-odds beyond this are no probabilities of use to anybody: exp(-30) is 1e-13.
LARGEST = 30.0
# The last submission: so sure, and no surer, that a row which is wrong after all can be paid.
SURE = 0.999


@dataclass(frozen=True, slots=True)
class Enumeration(Analyst):
    """Turn over a few labels at a time, through all rows and again, and go on from what improves.

    Zheng, Section 3, on the parameter-free Ladder. One label more that is right lowers the
    risk by just its standard error, 1/n, which is a tie: so two labels are turned at a time
    (Zheng has a one and a zero change places, which turns two over as well). Each pass goes
    through the rows in a new random order.

    Parameters
    ----------
    submissions : int, default=1000
        How many, with the guess that he begins with.
    changes : int, default=2
        How many labels are turned over at a time; at most n.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> course = simulate(Enumeration(2000), ParameterFreeLadder(), n=1000, repetitions=5)
    >>> bool(course.believed.mean() < 0.25)
    True
    """

    submissions: int = 1000
    changes: int = 2

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield labels with a few turned over, and keep what improves; see `Analyst.play`."""
        best = Bits.random(rng, seen.repetitions, seen.n)
        yield Submissions(best)
        changes = min(self.changes, seen.n)
        places = np.tile(np.arange(seen.n), (seen.repetitions, 1))
        groups = seen.n // changes
        for turn in range(self.submissions - 1):
            if turn % groups == 0:
                rng.permuted(places, axis=1, out=places)
            first = turn % groups * changes
            candidate = best.flip(places[:, first : first + changes])
            answers = yield Submissions(candidate)
            best = candidate.where(answers.improved, best)
        return None


@dataclass(frozen=True, slots=True)
class HillClimb(Analyst):
    """Change the labels of some rows at random, and go on from what improves.

    The labels are those of `Classes`: each has the same chance, and a prediction names the
    class that it rules out. So nobody can do better than a risk of one over the number of
    classes, however he climbs. One row at a time is the climb on single labels.

    Parameters
    ----------
    submissions : int, default=300
        How many, with the guess that he begins with.
    changes : int, default=50
        How many rows get another label at a time.
    classes : int, default=5
        How many classes there are; at least 2.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> course = simulate(HillClimb(), ParameterFreeLadder(), n=2000, repetitions=5)
    >>> bool(course.releases.mean() > 15), bool(course.bias.mean() > 0.04)
    (True, True)
    """

    submissions: int = 300
    changes: int = 50
    classes: int = 5

    def __post_init__(self) -> None:
        """Validate the numbers."""
        Analyst.__post_init__(self)
        if self.classes == 1:
            raise InvalidArgument("classes", "2 or more", 1)

    @property
    def bits_per_row(self) -> int:
        """The bits of two sets of labels, of eight bytes each."""
        return 128

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> Problem:
        """Draw labels of several classes."""
        return Classes(rng.integers(0, self.classes, (repetitions, n)), self.classes)

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield labels with some changed, and keep what improves; see `Analyst.play`."""
        best = rng.integers(0, self.classes, (seen.repetitions, seen.n))
        yield Submissions(best)
        repetitions = np.arange(seen.repetitions)[:, None]
        for _ in range(self.submissions - 1):
            rows = rng.integers(0, seen.n, (seen.repetitions, self.changes))
            candidate = best.copy()
            candidate[repetitions, rows] += rng.integers(1, self.classes, rows.shape)
            candidate[repetitions, rows] %= self.classes
            answers = yield Submissions(candidate)
            best = np.where(answers.improved[:, None], candidate, best)
        return None


@dataclass(frozen=True, slots=True)
class TwoAccounts(Analyst):
    """Climb by two accounts that see ranks alone.

    Zheng, Section 2.2. The account behind submits what the leader has, with one label turned
    over, until it leads: then the label is right. Where ranks are exact, as with a
    `SimplifiedLadder` and a step of 1/n, each label takes one submission.

    Parameters
    ----------
    submissions : int, default=1000
        How many, with the two that he begins with.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import SimplifiedLadder
    >>> for step in (1 / 200, 0.1):
    ...     course = simulate(TwoAccounts(201), SimplifiedLadder(step), n=200, repetitions=3)
    ...     print(course.empirical.max() == 0.0)
    True
    False
    """

    submissions: int = 1000
    sees_ranks: ClassVar[bool] = True
    in_step: ClassVar[bool] = False

    @property
    def accounts(self) -> int:
        """The leader and the one behind, in turn."""
        return 2

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield the leader's labels with one turned over, until it leads; see `Analyst.play`."""
        best, behind = Bits.random(rng, 1, seen.n), 1
        yield Submissions(best, 0)
        for turn in range(self.submissions - 1):
            candidate = best.flip(np.array([[turn % seen.n]]))
            answers = yield Submissions(candidate, behind)
            assert answers.rank is not None  # he asks to see it
            if answers.rank[0] == 1:
                best, behind = candidate, 1 - behind
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Classes(Problem):
    """Labels of several classes, all alike; a prediction names the class that it rules out.

    Parameters
    ----------
    labels : ndarray of int of shape (R, n)
        From 0.
    classes : int
        How many there are; the true risk of any predictions is one over it.

    Examples
    --------
    >>> problem = Classes(np.array([[0, 4, 2]]), classes=5)
    >>> guess = Submissions(np.array([[0, 1, 2]]))
    >>> problem.losses(guess).count().tolist(), problem.true_risk(guess).tolist()
    ([2], [0.2])
    """

    labels: Ints
    classes: int

    @property
    def seen(self) -> Seen:
        """The number of rows."""
        return Seen(*self.labels.shape[::-1])

    def losses(self, submission: Submissions) -> Bits:
        """Return where the true class was ruled out; see `Problem.losses`."""
        predictions: NDArray[np.int64] = submission.predictions
        return Bits.pack(predictions == self.labels)

    def true_risk(self, submission: Submissions) -> Floats:
        """Return one over the number of classes."""
        return np.full(len(self.labels), 1.0 / self.classes)


@dataclass(frozen=True, slots=True)
class Averaging(Analyst):
    """Submit one guess again and again, and believe the mean of the answers.

    Neto et al. 2016, Discussion: noise that is drawn anew for each submission is averaged
    away by whoever may repeat himself. What he believes comes close to the empirical risk,
    by the root of the number of repeats.

    Parameters
    ----------
    repeats : int, default=100
        How often the guess is submitted.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import LadderBoot
    >>> for repeats in (1, 100):
    ...     course = simulate(Averaging(repeats), LadderBoot(0.15, 1), n=400, repetitions=50)
    ...     print(round(float(np.std(course.believed - course.empirical)), 3))
    0.023
    0.002
    """

    repeats: int = 100

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield one guess again and again, and return the mean answer; see `Analyst.play`."""
        guess, total = Bits.random(rng, seen.repetitions, seen.n), np.zeros(seen.repetitions)
        for _ in range(self.repeats):
            answers = yield Submissions(guess)
            total += answers.risk
        return total / self.repeats


@dataclass(frozen=True, slots=True)
class LogLossOracle(Analyst):
    """Read labels off the log loss of predictions that weigh each row differently.

    Whitehill 2017, Climbing the Kaggle leaderboard by exploiting the log-loss oracle. A
    query predicts one half, but for a few rows whose log-odds are 1, 2, 4, ... units: their
    labels are the binary digits of the loss. The last submission predicts what was read.
    Where not every loss is released, nothing is read.

    Parameters
    ----------
    precision : float, default=1e-5
        How exactly losses are released; as many labels are read at a time as that allows.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import Ladder, RoundedDisclosure
    >>> for mechanism in (RoundedDisclosure(1e-5), Ladder(0.01)):
    ...     course = simulate(LogLossOracle(), mechanism, n=500, repetitions=3)
    ...     print(course.submissions, course.empirical.round(2).tolist())
    47 [0.0, 0.0, 0.0]
    47 [0.69, 0.69, 0.69]
    """

    metric: ClassVar[str] = "neg_log_loss"

    precision: float = 1e-5

    def __post_init__(self) -> None:
        """Validate the precision."""
        object.__setattr__(self, "precision", inside("precision", self.precision))

    @property
    def bits_per_row(self) -> int:
        """Probabilities of a query and of the incumbent, and labels."""
        return 192

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> Problem:
        """Draw coin flips, and ask for probabilities."""
        return LogLossFlips(Bits.random(rng, repetitions, n).unpack())

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield queries for a few rows at a time, then what was read; see `Analyst.play`."""
        n, repetitions = seen.n, seen.repetitions
        unit = min(4.0 * n * self.precision, LARGEST)
        digits = 1 + math.floor(math.log2(LARGEST / unit))
        answer = np.full((repetitions, n), 0.5)
        for first in range(0, n, digits):
            rows = np.arange(first, min(first + digits, n))
            odds = unit * 2.0 ** np.arange(len(rows))
            query = np.full((repetitions, n), 0.5)
            query[:, rows] = 1.0 / (1.0 + np.exp(-odds))
            answers = yield Submissions(query)
            others = (n - len(rows)) * math.log(2.0)
            # n * loss = others + sum(log(1 + exp(odds))) - sum(label * odds)
            read = np.round((others + np.logaddexp(0, odds).sum() - n * answers.risk) / unit)
            fits = (read >= 0) & (read < 2 ** len(rows))
            code = np.where(fits, read, 0).astype(np.int64)
            labels = (code[:, None] >> np.arange(len(rows))) & 1
            guess = np.where(labels == 1, SURE, 1.0 - SURE)
            answer[:, rows] = np.where(fits[:, None], guess, 0.5)
        yield Submissions(answer)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class LogLossFlips(Problem):
    """Labels that are coin flips; a prediction is the probability of a one, the loss its log loss.

    Parameters
    ----------
    labels : ndarray of shape (R, n)
        0 or 1.

    Examples
    --------
    >>> problem = LogLossFlips(np.array([[1, 0]]))
    >>> guess = Submissions(np.array([[0.5, 0.2]]))
    >>> problem.losses(guess).round(2).tolist(), problem.true_risk(guess).round(2).tolist()
    ([[0.69, 0.22]], [0.8])
    """

    labels: np.ndarray[tuple[int, int], np.dtype[np.uint8]]

    @property
    def seen(self) -> Seen:
        """The number of rows."""
        return Seen(*self.labels.shape[::-1])

    def losses(self, submission: Submissions) -> Floats:
        """Return the log losses; see `Problem.losses`."""
        probability = submission.predictions
        return np.asarray(-np.log(np.where(self.labels == 1, probability, 1.0 - probability)))

    def true_risk(self, submission: Submissions) -> Floats:
        """Return the mean over both labels."""
        probability = submission.predictions
        return np.asarray(-(np.log(probability) + np.log1p(-probability)).mean(axis=1) / 2.0)
