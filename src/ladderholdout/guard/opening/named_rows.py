"""Predictions whose rows have names, ids or an index, and may come in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.guard.opening.settings import count_rows, ids_of
from ladderholdout.ledger.transaction import KnownRows
from ladderholdout.metrics.arrays import index_of, names_of, refuse_masked

IntArray: TypeAlias = NDArray[np.intp]

_IN_ORDER = (
    "Write the predictions without an index (index=False), in the order in which the rows were "
    "first registered, or with a column of ids, and name it by ids."
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NamedPredictions:
    """Predictions with the names of their rows.

    Attributes
    ----------
    values : array-like
        Of n rows.
    names : array-like of n values
        The ids of the rows, or their index.
    by_ids : bool
        Which of the two.
    lines : sequence of int or None
        Where each row begins in the file that it was read from.
    """

    values: Any
    names: Any
    by_ids: bool = True
    lines: Sequence[int] | None = None

    def where(self, place: int) -> str:
        """Name the place of a row in what was given."""
        return f"row {place + 1}" if self.lines is None else f"line {self.lines[place]}"

    def in_order_of(self, X: Any) -> Any:
        """Return the values in the order of rows with the same index.

        Raises
        ------
        InvalidSubmission
            The rows have another index, and it is not known which prediction is whose.
        """
        names, index = list(self.names), index_of(X)
        labels = list(range(count_rows(X))) if index is None else index.tolist()
        if all(isinstance(name, str) for name in names):
            labels = [str(label) for label in labels]
        if names == labels:
            return self.values
        places = {name: place for place, name in enumerate(names)}
        same = len(places) == len(names) == len(labels) and set(places) == set(labels)
        counted = _are_counted(names) or _are_counted(labels)
        if not same and _are_counted(names):
            return self.values  # it has the rows in their order, and was never given an index
        if not same or counted:
            # As `by_index`: of positions that somebody counted it is not known what they name.
            came = "with an index in another order" if same else "with the index of other rows"
            raise InvalidSubmission("predictions", "in the order of the rows", came, _IN_ORDER)
        return fp.take(self.values, np.array([places[label] for label in labels], dtype=np.intp))


def values_of(predictions: Any) -> Any:
    """Return predictions without the names of their rows."""
    return predictions.values if isinstance(predictions, NamedPredictions) else predictions


def are_named(predictions: Any) -> bool:
    """Return whether predictions, or those of a mapping, have the names of their rows."""
    if isinstance(predictions, Mapping):
        return any(map(are_named, predictions.values()))
    return isinstance(predictions, NamedPredictions)


def predictions_of(predictions: Any, ids: Any) -> Any:
    """Return predictions together with their ids, if there are any; those of a mapping each."""
    if ids is None:
        return predictions
    if isinstance(predictions, Mapping):
        return {name: predictions_of(one, ids) for name, one in predictions.items()}
    left, names, _ = ids_of(predictions, ids, "predictions")
    refuse_masked("predictions", left)
    if names_of(left):  # it has names of classes, perhaps
        return NamedPredictions(left, names)
    values = np.asarray(left)
    flat = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    return NamedPredictions(flat, names)


def order_by_ids(known: KnownRows, given: NamedPredictions) -> IntArray:
    """Return what brings predictions with ids into the order of the content.

    Raises
    ------
    InvalidArgument
        The holdout was registered without ids, or has others.
    """
    if known.ids is None:
        raise InvalidArgument(
            "ids",
            "left out for a holdout that was registered without ids",
            "given",
            "Submit predictions in the order of its rows, or register it with ids=.",
        )
    hashes, ids = fp.by_value(fp.id_hashes(given.names)), fp.by_value(known.ids)
    to = fp.placed(hashes, ids)
    if to is not None:
        return fp.inverse(known.places[to])
    known_ids = np.isin(hashes, ids)
    missing, unknown = len(ids) - int(known_ids.sum()), np.flatnonzero(~known_ids)
    came = f"without {missing} of them"
    if len(unknown):
        came += f", and with {len(unknown)} others, the first in {given.where(unknown[0])}"
    raise InvalidArgument("ids", "those of all rows of the holdout, each once", came)


def _are_counted(names: list[Any]) -> bool:
    """Return whether an index only counts the rows, in their order."""
    texts = list(map(str, names))
    return any(texts == list(map(str, range(first, first + len(names)))) for first in (0, 1))
