"""Attacks on the area under the ROC curve: no mean of losses, and every row moves it a little."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ladderholdout.analysts.base import Analyst, Floats, Play, Problem, Seen, Submission
from ladderholdout.analysts.bits import Bits
from ladderholdout.mechanisms.arithmetic import whole
from ladderholdout.metrics import Evaluation, get_metric

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
    >>> problem.losses(Submission(np.array([[0.9, 0.1, 0.2, 0.3]])))[0].risk
    0.25
    """

    labels: Bits
    seen: Seen = field(init=False)

    def __post_init__(self) -> None:
        """Show the size."""
        object.__setattr__(self, "seen", Seen(self.labels.n, len(self.labels.words)))

    def losses(self, submission: Submission) -> tuple[Evaluation, ...]:
        """Evaluate each repetition; see `Problem.losses`."""
        area = get_metric("roc_auc")
        pairs = zip(self.labels.unpack(), submission.predictions, strict=True)
        return tuple(area.evaluate(labels, scores) for labels, scores in pairs)

    def true_risk(self, submission: Submission) -> Floats:
        """Return one half."""
        return np.full(self.seen.repetitions, 0.5)


@dataclass(frozen=True, slots=True)
class ScoreSum(Analyst):
    """Guess scores, and submit the sum of the guesses that were told to be good.

    The boosting attack of Blum & Hardt 2015 (Section 5) on an area under the curve.

    Parameters
    ----------
    guesses : int, default=200
        How many; the sum is one submission more.
    improvers : bool, default=False
        Whether the good ones are those that improved, and not those told an area above one
        half.

    Raises
    ------
    InvalidArgument
        If the number of guesses is not a whole number of at least 1.

    Examples
    --------
    >>> from ladderholdout.analysts import simulate
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> course = simulate(ScoreSum(50), FullDisclosure(), n=200, repetitions=5)
    >>> bool(course.believed.mean() < 0.4)
    True
    """

    guesses: int = 200
    improvers: bool = False

    def __post_init__(self) -> None:
        """Validate the number of guesses."""
        object.__setattr__(self, "guesses", whole("guesses", self.guesses))

    @property
    def bits_per_row(self) -> int:
        """Scores of a guess, of the sum and of the incumbent."""
        return 192

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> Problem:
        """Draw coin flips, and ask for scores."""
        return AreaFlips(Bits.random(rng, repetitions, n))

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Guess, and sum up; `Analyst.play` says what the parts are."""
        total = np.zeros((seen.repetitions, seen.n))
        for _ in range(self.guesses):
            guess = rng.standard_normal(total.shape)
            told = yield Submission(guess)
            good = told.improved if self.improvers else told.risk < 0.5
            total += good[:, None] * guess
        yield Submission(total)
        return None


@dataclass(frozen=True, slots=True)
class RowByRow(Analyst):
    """Move one row at a time to the top of all scores, then to the bottom; keep what improves.

    An area moves with each single row, by an amount that under every weighting of the rows
    has the same sign: `BayesBootLadder` without a step is certain of it.

    Examples
    --------
    >>> from ladderholdout.analysts import simulate
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> course = simulate(RowByRow(), FullDisclosure(), n=50, repetitions=5)
    >>> course.submissions, bool(course.believed.max() < 0.1)
    (101, True)
    """

    @property
    def bits_per_row(self) -> int:
        """Scores of two submissions."""
        return 128

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> Problem:
        """Draw coin flips, and ask for scores."""
        return AreaFlips(Bits.random(rng, repetitions, n))

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Move, and keep or not; `Analyst.play` says what the parts are."""
        best = rng.standard_normal((seen.repetitions, seen.n))
        yield Submission(best)
        for score in (EXTREME, -EXTREME):
            for row in range(seen.n):
                moved = best.copy()
                moved[:, row] = score
                told = yield Submission(moved)
                best = np.where(told.improved[:, None], moved, best)
        return None
