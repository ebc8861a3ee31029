"""What the adapters of early stopping share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import function, whole
from ladderholdout.errors import InvalidArgument, InvalidSubmission, LadderHoldoutError
from ladderholdout.guard.open_ladder import HasLadder
from ladderholdout.integrations.rounds import Loud
from ladderholdout.integrations.stopping import LadderStopping, Rule, check_classes
from ladderholdout.metrics import Metric

Predict: TypeAlias = Callable[[Any, Any], Any]
"""From a model and the holdout's rows to the model's output on them."""

Link: TypeAlias = Callable[[Any], Any]
"""From the logits of a network to probabilities or values."""


class BestRound:
    """Holds the model to keep of a fit, while training goes on to later rounds.

    That is the one of its best round, or of the last one as long as none improved. It is put back
    in any case: a library may change its model once more when training is over, as an optimizer of
    Keras does that ends on averages. One object serves one fit.

    Parameters
    ----------
    stopping : LadderStopping
    copy : callable
        ``copy(model)`` returns what is needed to have this round's model back.
    put : callable
        ``put(model, copied)`` puts it back: in place, returning nothing, or as another object.
    """

    def __init__(
        self, stopping: LadderStopping, copy: Callable[[Any], Any], put: Callable[[Any, Any], Any]
    ) -> None:
        self._stopping, self._copy, self._put = stopping, copy, put
        self._copied: tuple[Any, ...] = ()

    def snapshot(self, model: Any) -> None:
        """Copy the model if it is the one to keep after the round just submitted."""
        fit = self._stopping._fit  # which is not read: this steers nothing, so the batch goes on
        if fit.best_round in (0, len(fit.releases)):
            self._copied = (self._copy(model),)

    def restore(self, model: Any) -> Any:
        """Return the model to keep, and let the copy go.

        Within a fit this ends the batch of the rounds so far.
        """
        self._stopping._read()
        copied, self._copied = self._copied, ()
        restored = self._put(model, *copied) if copied else None
        return model if restored is None else restored


class Settings(Rule, total=False):
    """The keyword settings of an `Adapter`.

    Attributes
    ----------
    classes : array-like or None
    """

    classes: ArrayLike | None


class Adapter:
    """The rule, and how a library's outputs are read.

    Parameters
    ----------
    holdout : LadderHoldout
    patience, **rule
        As for `LadderStopping`.
    classes : array-like, optional
        The model's classes in the order of its columns; by default the holdout's.
    """

    _classes: ArrayLike | None = None
    _link: Link | None = None

    def __init__(
        self,
        holdout: HasLadder,
        patience: int = 10,
        *,
        classes: ArrayLike | None = None,
        **rule: Unpack[Rule],
    ) -> None:
        super().__init__()  # of a callback of the library
        self.stopping, self._classes = LadderStopping(holdout, patience, **rule), classes

    @property
    def _own(self) -> Any:
        """What this adapter keeps of the fit that runs in this thread."""
        return self.stopping._fit.own

    _remedy_for_classes = (
        "Fit the model on the holdout's labels, or give ladder_stopping(holdout, classes=[...]) "
        "the holdout's class for each class of the model, in the model's order."
    )

    def _start(self, known: ArrayLike | None = None, /, **context: Any) -> None:
        """Begin a fit, and refuse classes of a model that are not the holdout's."""
        self.stopping.start(**context)
        self._check_classes(known)

    def _check_classes(self, known: ArrayLike | None = None) -> None:
        """Refuse, before any round, classes of a model that are not the holdout's.

        Those that the user stated count before those that the model is known to have; a model
        of which nobody knows them has learned 0 to k - 1.
        """
        self._own.classes = known if self._classes is None else self._classes
        check_classes(self.stopping, self._own.classes, self._remedy_for_classes)

    def _round(self, output: Callable[[], Any], model: Any) -> bool:
        """Submit an output as a round, later if no model is copied; return whether to stop."""
        best: BestRound | None = getattr(self._own, "best", None)
        if best is None:  # the library can cut off later rounds
            return self.stopping._later(lambda: self._answer(output()))
        with Loud():
            answer = self._answer(output())
        stop = self.stopping.update(answer)
        best.snapshot(model)
        return stop

    def _answer(self, output: Any) -> NDArray[Any]:
        """Return a model's output as what the metric asks for, by the classes last checked."""
        output = output if self._link is None else self._link(output)
        return self.stopping.answer(output, classes=self._own.classes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stopping!r})"


class Network(Adapter):
    """Of a network, whose rounds are epochs, and whose best weights are copied.

    Parameters
    ----------
    holdout, patience, **settings
        As for `Adapter`.
    predict, batch_size, link
        As for the adapters of the libraries.
    """

    _batch_size: int  # by default

    def __init__(
        self,
        holdout: HasLadder,
        patience: int = 10,
        *,
        predict: Any = None,
        batch_size: int | None = None,
        link: Link | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(holdout, patience, **settings)
        self._predict = None if predict is None else self._predicting(predict)
        if batch_size is not None:
            self._batch_size = whole("batch_size", batch_size)
        self._link = None if link is None else function("link", link)

    def _predicting(self, predict: Any) -> Predict:
        given: Predict = function("predict", predict)
        return given

    def predictions(self, model: Any) -> NDArray[Any]:
        """Return a model's predictions on the holdout's rows, as an epoch submits them.

        Parameters
        ----------
        model : object
            Of the library.

        Returns
        -------
        ndarray
            What the metric asks for. Submitted again by hand, it is a repeat.

        Raises
        ------
        InvalidArgument, InvalidSubmission
            The output has another form than the metric asks for.
        """
        self._check_classes()
        return self._answer(self._output(model))

    def _output(self, model: Any) -> Any:
        raise NotImplementedError


def one_output(output: Any, kind: type) -> Any:
    """Return a network's output; refuse what is no single array or tensor."""
    if not isinstance(output, kind):
        raise InvalidSubmission(
            "predictions",
            f"from a model with one output, a {kind.__name__}",
            f"from one that returns a {type(output).__name__}",
            "Pick the output that counts: predict=lambda model, X: ...",
        )
    return output


def refuse_stoppers(
    callbacks: Iterable[object], kinds: Mapping[str, type], **settings: object
) -> None:
    r"""Refuse what would choose the model to keep beside the ladder, before any round.

    Parameters
    ----------
    callbacks : iterable
        All callbacks of the training.
    kinds : mapping
        Those that are refused, by the names under which users make them.
    **settings
        Settings by which a library stops itself, as they are stated; false: not at all.

    Examples
    --------
    >>> try:
    ...     refuse_stoppers([], {}, early_stopping_rounds=4)
    ... except InvalidArgument as error:
    ...     print(str(error).partition(":")[0].replace(". ", ".\n"))
    early stopping must be by the ladder alone, but is by early_stopping_rounds=4 as well.
    Delete early_stopping_rounds=4
    """
    lines = [f"{name}={value!r}" for name, value in settings.items() if value]
    lines += [
        f"{name}(...)" for one in callbacks for name, kind in kinds.items() if isinstance(one, kind)
    ]
    with Loud():
        for line in lines:
            raise InvalidArgument(
                "early stopping",
                "by the ladder alone",
                f"by {line} as well",
                f"Delete {line}: the ladder ends training, and keeps the model of its best round.",
            )


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
