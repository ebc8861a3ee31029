"""What the adapters of early stopping share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.early_stopping import LadderStopping, Link

Floats: TypeAlias = NDArray[np.float64]


def exponential(margins: Floats) -> Floats:
    """Return exp of each margin as the C library has it."""
    # The complex one calls it; on the real axis it is the real one.
    powers: Floats = np.exp(margins.astype(np.complex128)).real
    return powers


def logistic(margins: Floats) -> Floats:
    """Return 1 / (1 + exp(-m)) for each margin.

    Examples
    --------
    >>> logistic(np.array([0.0, 40.0])).tolist()
    [0.5, 1.0]
    """
    probabilities: Floats = expit(margins)
    return probabilities


def softmax(margins: Floats) -> Floats:
    """Return probabilities of each row's classes, margins of shape (n, C).

    Examples
    --------
    >>> softmax(np.zeros((1, 4))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    powers = exponential(margins - margins.max(axis=1, keepdims=True))
    # Column by column, as a loop over the classes adds them.
    total = np.zeros(len(powers))
    for column in powers.T:
        total += column
    quotients: Floats = powers / total[:, None]
    return quotients


Predict: TypeAlias = Callable[[Any, Any], Any]
"""From a model and the holdout's rows to the model's output on them."""


class BestRound:
    """Holds the model of a fit's best round, while training goes on to later ones.

    One object serves one fit.

    Parameters
    ----------
    stopping : LadderStopping
    copy : callable
        ``copy(model)`` returns what is needed to have this round's model back.
    put : callable
        ``put(model, copied)`` puts it back: in place, returning nothing, or as another object.
    """

    def __init__(
        self,
        stopping: LadderStopping,
        copy: Callable[[Any], Any],
        put: Callable[[Any, Any], Any],
    ) -> None:
        self._stopping, self._copy, self._put = stopping, copy, put
        self._copied: tuple[Any] | None = None

    def snapshot(self, model: Any) -> bool:
        """Copy the model if the round just submitted is the best; return whether it is."""
        best = self._stopping._last_is_best
        if best:
            self._copied = (self._copy(model),)
        return best

    def restore(self, model: Any) -> Any:
        """Return the model as it was after its best round, and let the copy go.

        Within a fit this ends the batch of the rounds so far. Where no round improved, the
        model stays as it is.
        """
        best_round = self._stopping.best_round
        copied, self._copied = self._copied, None
        if copied is None or best_round == self._stopping.rounds:
            return model
        found = self._put(model, *copied)
        return model if found is None else found


class Adapter:
    """The rule, and how a library's outputs are read.

    Parameters
    ----------
    stopping : LadderStopping
    classes : array-like, optional
        The model's classes in the order of its columns; by default the holdout's.
    link : callable, optional
        From raw margins to probabilities or values, for objectives that yield margins.
    """

    def __init__(
        self, stopping: LadderStopping, classes: ArrayLike | None = None, link: Link | None = None
    ) -> None:
        self.stopping, self._classes = stopping, classes
        self._link = function_or_none("link", link)
        self._forget()

    def _submit(self, output: Any) -> bool:
        """Submit a model's output as a round; return whether to stop."""
        return self.stopping.update(self._answer(output))

    def _submit_later(self, outputs: Callable[[int], Iterable[Any]]) -> bool:
        """Count a round whose output is asked for later; return whether to stop."""
        return self.stopping._later(lambda count: [*map(self._answer, outputs(count))])

    def _answer(self, output: Any) -> NDArray[Any]:
        """Return a model's output as what the metric asks for."""
        return self.stopping.answer(output, classes=self._classes, link=self._link)

    def _forget(self) -> None:
        # What the running fit needs; threads may share this object.
        self._here = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        kept = vars(self).copy()
        del kept["_here"]
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stopping!r})"


def function_or_none(argument: str, value: Any) -> Any:
    """Validate an optional function."""
    if value is not None and not callable(value):
        raise InvalidArgument(argument, "a function", type(value).__name__)
    return value


def refuse_ranking(objective: str) -> None:
    """Refuse an objective of ranking, whose groups a holdout does not know."""
    words = ("rank", "ndcg", "pairlogit", "pairwise", "query", "lambdamart", "stochasticfilter")
    if any(word in objective.lower() for word in words):
        raise InvalidArgument(
            "objective",
            "one of classification or regression",
            f"{objective}: a ranking within groups, which a holdout does not know",
            "Guard the ranking itself: holdout.submit with a Metric of your own.",
        )
