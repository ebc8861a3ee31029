"""What an analyst is: a generator that yields submissions and is sent what is released.

All that is done here is done in R independent repetitions at once, which go in step: an
analyst yields the predictions of each, and is sent the release of each. With R = 1 the same
generator plays against a real holdout (`attack`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import whole
from ladderholdout.lab.bits import Bits, Flags, Ints
from ladderholdout.metrics import Evaluation

Floats = NDArray[np.float64]


class Submissions(NamedTuple):
    """One submission in each repetition.

    Attributes
    ----------
    predictions : Bits or ndarray of shape (R, n)
        Predictions for the holdout's rows, of the kind that the problem asks for.
    account : int, default=0
        Who submits; each account has a ladder of its own.
    model : object, optional
        What made the predictions, if the problem needs it to compute their true score.
    """

    predictions: Any
    account: int = 0
    model: Any = None


@dataclass(frozen=True, slots=True)
class Answers:
    """What is released for one submission, in each repetition.

    Parameters
    ----------
    risk : ndarray of shape (R,)
        The released risk: smaller is better. It is nan where improvements alone are shown.
    improved : ndarray of bool of shape (R,)
        Whether the submission is the account's incumbent now.
    rank : ndarray of int of shape (R,), optional
        The account's place among all accounts, from 1; ties share the better one. For
        analysts that use it.
    """

    risk: Floats
    improved: Flags
    rank: Ints | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What an analyst knows of a problem before anything is released.

    Parameters
    ----------
    n : int
        Rows of the holdout.
    repetitions : int
        How many are played at once: R.
    known : object, optional
        What else the problem shows, such as features.
    """

    n: int
    repetitions: int
    known: Any = None


class Problem(ABC):
    """The hidden side: R holdouts, one in each repetition."""

    @property
    @abstractmethod
    def seen(self) -> Seen:
        """The side that the analyst sees."""

    @abstractmethod
    def losses(self, submission: Submissions) -> Bits | Floats | Sequence[Evaluation]:
        """Score a submission on the holdouts.

        Returns
        -------
        Bits, ndarray of shape (R, n), or R evaluations
            Losses of 0 and 1; other losses, about in [0, 1]; or what a metric that is no
            mean of losses comes to.
        """

    @abstractmethod
    def true_risk(self, submission: Submissions) -> Floats:
        """Return the risk of a submission on rows that nobody has seen, of shape (R,)."""


Play = Generator[Submissions, Answers, Floats | None]


@dataclass(frozen=True, slots=True)
class Analyst(ABC):
    """Base of all analysts: a frozen dataclass of settings with one generator.

    Attributes
    ----------
    metric : str
        The name of the metric whose losses his problem has: in its unit are the scores of a
        report, and its rule is the default.
    sees_ranks : bool
        Whether he uses ranks.
    in_step : bool
        Whether his generator can play several repetitions at once.

    Raises
    ------
    InvalidArgument
        A setting is refused: whole numbers are at least 1, shares are in (0, 1).

    Examples
    --------
    >>> from ladderholdout.lab import Boosting, simulate
    >>> from ladderholdout.mechanisms import RoundedDisclosure
    >>> course = simulate(Boosting(guesses=100), RoundedDisclosure(), n=1000, repetitions=20)
    >>> bool(course.believed.mean() < 0.45), float(course.true.mean())
    (True, 0.5)
    """

    metric: ClassVar[str] = "accuracy"
    sees_ranks: ClassVar[bool] = False
    in_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings that are whole numbers: each is at least 1."""
        for setting in fields(self):
            if setting.type == "int":
                number = whole(setting.name, getattr(self, setting.name))
                object.__setattr__(self, setting.name, number)

    @property
    def name(self) -> str:
        """The name under which he can be asked for: that of his class."""
        return type(self).__name__

    @property
    def accounts(self) -> int:
        """How many accounts he uses."""
        return 1

    @property
    def bits_per_row(self) -> int:
        """How many bits of each holdout's rows are held in memory, about."""
        return self.accounts

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> Problem:
        """Draw the problem that he is made for: by default labels that are coin flips."""
        return CoinFlips(Bits.random(rng, repetitions, n))

    @abstractmethod
    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Play one game in each repetition.

        Parameters
        ----------
        seen : Seen
            What he knows.
        rng : numpy.random.Generator
            Source of his guesses.

        Yields
        ------
        Submissions
            He is sent a `Answers` for it.

        Returns
        -------
        ndarray of shape (R,) or None
            The risk that he believes in, in the end; None for the released one.
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings by name."""
        return {setting.name: getattr(self, setting.name) for setting in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class CoinFlips(Problem):
    """Labels that are coin flips, except in some easy rows that the analyst knows.

    A prediction is a label, 0 or 1, the loss is 0 or 1. Nobody can know a coin flip, so the
    true risk of any predictions is one half on those rows.

    Parameters
    ----------
    labels : Bits
        Of R holdouts.
    easy : int, default=0
        How many rows are easy, from the first; what is `known` of the problem are the
        labels, with the others' set to 0.

    Examples
    --------
    >>> problem = CoinFlips(Bits.pack([[1, 0, 1, 1]]), easy=2)
    >>> guess = Submissions(Bits.pack([[1, 1, 1, 0]]))
    >>> problem.losses(guess).count().tolist(), problem.true_risk(guess).tolist()
    ([2], [0.5])
    >>> problem.seen.known.unpack().tolist()
    [[1, 0, 0, 0]]
    """

    labels: Bits
    easy: int = 0

    @property
    def seen(self) -> Seen:
        """The labels of the easy rows."""
        return Seen(self.labels.n, len(self.labels.words), self.labels & self._easy)

    @property
    def _easy(self) -> Bits:
        return Bits.first(np.full(len(self.labels.words), self.easy), self.labels.n)

    def losses(self, submission: Submissions) -> Bits:
        """Return where the predictions are wrong; see `Problem.losses`."""
        return errors_in(submission, self.labels)

    def true_risk(self, submission: Submissions) -> Floats:
        """Return the share of easy rows that are wrong and half of the others."""
        wrong = np.full(len(self.labels.words), (self.labels.n - self.easy) / 2)
        if self.easy:
            wrong += (self.losses(submission) & self._easy).count()
        return wrong / self.labels.n


def errors_in(submission: Submissions, labels: Bits) -> Bits:
    """Return where predicted labels, which may be an array of shape (R, n), are wrong."""
    predictions = submission.predictions
    return labels ^ (predictions if isinstance(predictions, Bits) else Bits.pack(predictions))
