"""Answering adaptive queries about a population with nothing but a leaderboard."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ladderholdout.arguments import within
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import below
from ladderholdout.mechanisms.base import Mechanism, State, a_mechanism
from ladderholdout.metrics import Evaluation

# At a mean close to 1 the published 1/alpha offsets end before the leaderboard can answer.
_MORE = 3


@dataclass(frozen=True, slots=True)
class Answered:
    """What an `AdaptiveEstimator` remembers between two queries.

    Parameters
    ----------
    ladder : State
        The state of its mechanism.
    threshold : float, default=0.5
        The last value that the mechanism released: c in the paper.
    submissions : int, default=0
        How many submissions the queries came to.
    """

    ladder: State
    threshold: float = 0.5
    submissions: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class AdaptiveEstimator:
    """Estimate means of queries in [0, 1], chosen adaptively, from a leaderboard's releases.

    Hardt 2017, Figure 2. A query g is submitted as losses c + (g - i alpha) / 2 for i = 0, 1,
    2, ..., until one of them beats the last release c by alpha / 2; from what is
    released then follows the answer. If the mechanism's leaderboard error is alpha / 2, the
    error of the answers is alpha, for 1 / (3 alpha) queries (Theorem 3.3).

    The losses may leave [0, 1] below 0 by up to 1/2. The loop runs three offsets longer than
    published: otherwise means above 1 - 3 alpha may stay without an answer. One that does
    nevertheless is answered with 1.

    Parameters
    ----------
    mechanism : Mechanism
        Any that steps without a training risk.
    alpha : float, default=0.1
        Accuracy aimed at, in (0, 0.5].

    Raises
    ------
    InvalidArgument
        If alpha is outside (0, 0.5].

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder
    >>> estimator, rng = AdaptiveEstimator(Ladder(step=0.01), alpha=0.05), np.random.default_rng(0)
    >>> state = estimator.start(4)
    >>> for query in ([0.0, 1.0, 0.0, 0.0], [0.5, 1.0, 0.5, 0.4]):
    ...     state, mean = estimator.answer(state, query, rng)
    ...     print(round(mean, 3))
    0.25
    0.6
    >>> state.submissions
    23
    """

    mechanism: Mechanism
    alpha: float = 0.1

    def __post_init__(self) -> None:
        """Validate alpha."""
        a_mechanism(self.mechanism)
        object.__setattr__(self, "alpha", within("alpha", self.alpha, 0.5))

    def start(self, n_examples: int) -> Answered:
        """Return the state before the first query.

        Parameters
        ----------
        n_examples : int
            Number of examples.

        Returns
        -------
        Answered

        Raises
        ------
        InvalidArgument
            If it is no whole number of at least 1.
        """
        return Answered(self.mechanism.start(n_examples))

    def answer(
        self, state: Answered, query: ArrayLike, rng: np.random.Generator
    ) -> tuple[Answered, float]:
        """Answer one query.

        Parameters
        ----------
        state : Answered
            The state before it.
        query : array-like of shape (n,)
            Its value on each example, in [0, 1].
        rng : numpy.random.Generator
            Source of the mechanism's noise.

        Returns
        -------
        state : Answered
            The state after it.
        mean : float
            The estimated mean over the population.

        Raises
        ------
        InvalidArgument
            If the query is not n numbers in [0, 1], or the releases have fallen to 0: the
            mechanism has answered as many queries as it can.

        """
        values = _values(query, state.ladder.n)
        c, ladder = state.threshold, state.ladder
        if c <= 0:
            raise InvalidArgument(
                "alpha", "smaller for so many queries", f"{self.alpha:g}", "Start afresh."
            )
        offsets = math.ceil(1.0 / self.alpha) + _MORE
        release = c
        for i in range(offsets):
            losses = c + (values - i * self.alpha) / 2.0
            ladder, outcome = self.mechanism.advance(ladder, Evaluation.from_losses(losses), rng)
            release = outcome.risk
            if below(release, c - self.alpha / 2.0):
                mean = 2.0 * (release - c + i * self.alpha / 2.0)
                return Answered(ladder, release, state.submissions + i + 1), mean
        return Answered(ladder, release, state.submissions + offsets), 1.0


def _values(query: ArrayLike, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.asarray(query, dtype=np.float64)
    if values.shape != (n,):
        raise InvalidArgument("query", f"of shape ({n},)", f"of shape {values.shape}")
    if not (values.min() >= 0 and values.max() <= 1):
        raise InvalidArgument("query", "of numbers in [0, 1]", "partly outside")
    return values
