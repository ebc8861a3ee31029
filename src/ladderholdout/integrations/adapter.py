"""What the adapters of early stopping share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from ladderholdout.arguments import function
from ladderholdout.errors import InvalidArgument, LadderHoldoutError
from ladderholdout.integrations.stopping import LadderStopping, check_classes, count_round
from ladderholdout.metrics import Metric

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

Link: TypeAlias = Callable[[Any], Any]
"""From the logits of a network to probabilities or values."""


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
    others : bool, default=False
        Whether something else may change the model after its last round, as the early stopping of
        a library does. The round to keep is then copied, and put back, in any case.
    """

    def __init__(
        self,
        stopping: LadderStopping,
        copy: Callable[[Any], Any],
        put: Callable[[Any, Any], Any],
        others: bool = False,
    ) -> None:
        self._stopping, self._copy, self._put, self._others = stopping, copy, put, others
        self._copied: tuple[Any] | None = None

    def snapshot(self, model: Any) -> bool:
        """Copy the model if the round just submitted is the best; return whether it is."""
        best = self._stopping._last_is_best
        if best or (self._others and self._stopping._last_is_kept):
            self._copied = (self._copy(model),)
        return best

    def restore(self, model: Any, again: bool = False) -> Any:
        """Return the model as it was after its best round, and let the copy go.

        Within a fit this ends the batch of the rounds so far. Where no round improved, the
        model stays as it is. With `again` the copy is still held, for another call.
        """
        best_round, copied = self._stopping.best_round, self._copied
        if not again:
            self._copied = None
        if copied is None or (not self._others and best_round == self._stopping.rounds):
            return model
        restored = self._put(model, *copied)
        return model if restored is None else restored


def again_at_the_end(entry: Any, callbacks: list[Any]) -> bool:
    """Have a callback called once more after all others; return whether it will be.

    For a callback that gives a model its best weights when training is over: others may give it
    theirs later. A second call finds it at the end, and takes it from there.

    Parameters
    ----------
    entry : object
        The entry of the list that is being called.
    callbacks : list
        What the library goes through now.

    Returns
    -------
    bool

    Examples
    --------
    >>> callbacks = ["ladder", "other"]
    >>> [(it, it == "ladder" and again_at_the_end(it, callbacks)) for it in callbacks]
    [('ladder', True), ('other', False), ('ladder', False)]
    >>> callbacks
    ['ladder', 'other']
    """
    places = [place for place, callback in enumerate(callbacks) if callback is entry]
    if len(places) > 1:
        del callbacks[-1]
    elif places and places[0] < len(callbacks) - 1:
        callbacks.append(entry)
        return True
    return False


class Adapter:
    """The rule, and how a library's outputs are read.

    Parameters
    ----------
    stopping : LadderStopping
    classes : array-like, optional
        The model's classes in the order of its columns; by default the holdout's.
    link : callable, optional
        From the logits of a network, as a NumPy array, to probabilities or values.
    """

    def __init__(
        self, stopping: LadderStopping, classes: ArrayLike | None = None, link: Link | None = None
    ) -> None:
        self.stopping, self._classes = stopping, classes
        self._link = None if link is None else function("link", link)
        self._forget()

    _remedy_for_classes = (
        "Fit the model on the holdout's labels, or give ladder_stopping(holdout, classes=[...]) "
        "the holdout's class for each class of the model, in the model's order."
    )

    def _check_classes(self, known: ArrayLike | None = None) -> None:
        """Refuse, before any round, classes of a model that are not the holdout's.

        Those that the user stated count before those that the model is known to have; a model
        of which nobody knows them has learned 0 to k - 1.
        """
        self._here.classes = known if self._classes is None else self._classes
        check_classes(self.stopping, self._here.classes, self._remedy_for_classes)

    def _submit(self, output: Any) -> bool:
        """Submit a model's output as a round; return whether to stop."""
        return self.stopping.update(self._answer(output))

    def _submit_later(self, outputs: Callable[[int], Iterable[Any]]) -> bool:
        """Count a round whose output is asked for later; return whether to stop."""
        return count_round(self.stopping, lambda count: [*map(self._answer, outputs(count))])

    def _answer(self, output: Any) -> NDArray[Any]:
        """Return a model's output as what the metric asks for, by the classes last checked."""
        classes = getattr(self._here, "classes", self._classes)
        output = output if self._link is None else self._link(output)
        return self.stopping.answer(output, classes=classes)

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


def refuse_folds(model: object, kind: type, tool: str) -> None:
    """Refuse the models of a library's cross-validation, which are not of its own class."""
    if not isinstance(model, kind):
        raise InvalidArgument(
            "callbacks",
            "given to train or an estimator",
            f"given to {tool}.cv",
            "Its models learn from parts of the rows, and none of them is kept.",
        )


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


def refuse_margins(metric: Metric, tool: str, known: str) -> None:
    """Refuse an objective whose margins nobody but its author turns into probabilities.

    Parameters
    ----------
    metric : Metric
        One of ranks reads margins as they are, and one of regression has no probabilities.
    tool, known : str
        The library, and an objective of which it knows them.
    """
    if metric.is_classification and metric.response != "scores":
        raise InvalidArgument(
            "objective",
            f"one whose probabilities {tool} knows, such as {known}, for {metric.name}",
            "one that yields raw margins",
            "Or score by ranks (roc_auc), or submit what you make of the margins of each round: "
            "LadderStopping(holdout).update(probabilities).",
        )


def columns_of(X: Any) -> list[str] | None:
    """Return the names of a table's columns; None where it has none.

    Examples
    --------
    >>> columns_of([[1.0, 2.0]]) is None
    True
    """
    names = getattr(X, "column_names", None)  # pyarrow, where columns are the values
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None else [str(name) for name in names]


def width_of(X: Any) -> int | None:
    """Return how many columns rows have; None where they have none.

    Examples
    --------
    >>> width_of([[1.0, 2.0]]), width_of(["a text", "another"])
    (2, None)
    """
    shape = np.shape(X)
    return int(shape[1]) if len(shape) == 2 else None


def refuse_columns(
    X: Any,
    names: Sequence[str] | None,
    width: int | None,
    *,
    known: Sequence[str] | None = None,
    any_order: bool = False,
) -> None:
    """Refuse rows of a holdout that have other columns than the training rows.

    Parameters
    ----------
    X : array-like
        The holdout's rows.
    names : sequence of str or None
        Of the training rows' columns, where they have any.
    width : int or None
        How many columns the training rows have, where that is known.
    known : sequence of str, optional
        The names of the holdout's columns as the library has them; by default those of the table.
    any_order : bool, default=False
        Whether the library finds columns by their names.

    Raises
    ------
    InvalidArgument
        Columns are missing, unknown, or in another order.
    """
    known = columns_of(X) if known is None else known
    if known is None or names is None:
        count = width_of(X)
        same = count == width or None in (count, width)
        differs = "" if same else f"with {count} columns for {width}"
    else:
        more, fewer = len(set(known) - set(names)), len(set(names) - set(known))
        parts = [f"with {more} more"] if more and not any_order else []
        parts += [f"without {fewer} of them"] if fewer else []
        other_order = not any_order and list(known) != list(names)
        differs = " and ".join(parts) or ("with them in another order" if other_order else "")
    if differs:
        raise InvalidArgument(
            "X",
            f"with the columns of the training rows{'' if any_order else ', in their order'}",
            differs,
            "Register the holdout with these columns: "
            "LadderHoldout(X_holdout[list(X_train.columns)], y_holdout, ...).",
        )


@contextmanager
def understood(tool: str) -> Iterator[None]:
    """Refuse rows of a holdout that a library cannot read, before any round is made of them.

    Parameters
    ----------
    tool : str
        The library.
    """
    try:
        yield
    except (LadderHoldoutError, Warning):
        raise
    except Exception as error:
        raise InvalidArgument(
            "X",
            "rows that the model can predict on",
            f"refused by {tool} ({type(error).__name__})",
            "Register the holdout with the columns of the training rows, and with their types: "
            "categories, numbers or text as there.",
        ) from error
