"""The winner of a search on all rows, those of the holdout too, which ends the holdout."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from sklearn.base import clone

from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard import LocalLadder, OpenLadder, count_rows


def fitted_on_all(
    ladder: OpenLadder, model: Any, X_train: Any, y_train: Any, sample_weight: Any
) -> Any:
    """Retire a holdout and return a model that is fitted anew on training and holdout rows."""
    ladder = next(iter(ladder.by_metric.values()), ladder)
    if not isinstance(ladder, LocalLadder):
        raise HoldoutConflict(
            f"The labels of this holdout are on the server {ladder.facts.place}, which hands them "
            "to nobody, so that no model can be fitted on them here. Take the winner as it is, or "
            "let the owner of the server fit it there."
        )
    rows = ladder.guard().rows
    # All that can be refused is refused before the holdout ends.
    X = joined("X_train", X_train, rows.X)
    y = joined("y_train", np.asarray(y_train), np.asarray(rows.y))
    n_train = len(y) - len(rows.y)
    if count_rows(X) != len(y):
        raise InvalidArgument(
            "y_train", "one label for each row of X_train", f"{n_train} labels", "Give both whole."
        )
    params = {}
    if sample_weight is not None:
        weights = np.asarray(sample_weight, dtype=np.float64)
        if weights.shape != (n_train,):
            raise InvalidArgument(
                "sample_weight",
                f"one weight for each of the {n_train} training rows",
                f"an array of shape {weights.shape}",
                "The holdout's rows have the weights that they were registered with, or 1.",
            )
        of_holdout = np.ones(len(rows.y)) if rows.sample_weight is None else rows.sample_weight
        params["sample_weight"] = np.concatenate([weights, of_holdout])
    # Before any code of the model sees a label.
    ladder.retire()
    return clone(model).fit(X, y, **params)


def joined(argument: str, first: Any, second: Any) -> Any:
    """Return the training rows followed by those of the holdout, in the form of the former."""
    try:
        if hasattr(first, "iloc") and hasattr(second, "iloc"):
            return _joined_frames(first, second)
        if hasattr(first, "vstack") and hasattr(second, "select"):  # both of Polars
            return first.vstack(second.select(first.columns))
        if all(map(scipy.sparse.issparse, (first, second))):
            return scipy.sparse.vstack([first, second], format="csr")
        if isinstance(first, list) and isinstance(second, list):
            return first + second
        if not any(map(scipy.sparse.issparse, (first, second))):
            return np.concatenate([np.asarray(first), np.asarray(second)])
    except (KeyError, TypeError, ValueError):
        pass
    except Exception as error:
        # Polars has errors of its own, which it does not derive from those of Python.
        if not type(error).__module__.startswith("polars"):
            raise
    raise InvalidArgument(
        argument,
        f"of the same form as the holdout's: {_form(second)}",
        _form(first),
        "Give the training rows and labels that the search was fitted on.",
    ) from None


def _joined_frames(first: Any, second: Any) -> Any:
    """Join two frames of pandas by the names of their columns; categories stay categories."""
    with needed("A frame"):
        import pandas as pd

    if set(first.columns) != set(second.columns):
        raise KeyError
    whole = pd.concat([first, second[list(first.columns)]], ignore_index=True)
    lost = [name for name in whole if first[name].dtype == "category" != whole[name].dtype]
    return whole.astype(dict.fromkeys(lost, "category"))


def _form(rows: Any) -> str:
    shape = getattr(rows, "shape", None)
    wide = "" if shape is None or len(shape) < 2 else f" with {shape[1]} columns"
    return f"{type(rows).__name__}{wide}"
