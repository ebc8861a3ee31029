"""A model inside a pipeline sees rows that the steps before it have changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ladderholdout.errors import InvalidArgument

_PIPELINE = ("sklearn.pipeline", "Pipeline.fit")
_TARGET = ("sklearn.compose._target", "TransformedTargetRegressor.fit")


def as_the_model_sees(X: Any) -> Any:
    """Return rows as they reach the model that this thread is fitting.

    The pipelines in whose ``fit`` this thread is have fitted their earlier steps by now.

    Parameters
    ----------
    X : array-like, shape (n, n_features)

    Returns
    -------
    array-like

    Raises
    ------
    InvalidArgument
        The model learns a transformed target: what it predicts is no answer yet.
    """
    for place, owner in reversed(list(_fits(sys._getframe(1)))):
        if place == _TARGET:
            raise InvalidArgument(
                "regressor",
                "fitted on the target itself",
                "fitted inside a TransformedTargetRegressor",
                "Transform y before, and give link= the inverse of it.",
            )
        if len(owner.steps) > 1:
            X = owner[:-1].transform(X)
    return X


def _fits(frame: FrameType | None) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield the fits that this thread is in, innermost first."""
    while frame is not None:
        place = str(frame.f_globals.get("__name__")), frame.f_code.co_qualname
        if place in (_PIPELINE, _TARGET):
            yield place, frame.f_locals["self"]
        frame = frame.f_back
