"""Where a submission came from, as JSON small enough to keep with every one."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument

APART = "no_batch"
"""The key of a submission's context that states why it is of no batch, where one was expected."""

_LONGEST = 120
_LARGEST = 16_384
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def describe_estimator(estimator: Any) -> dict[str, Any]:
    """Return an estimator's class and its parameters.

    Parameters
    ----------
    estimator : object
        One with ``get_params``, or anything else: then the class alone.

    Returns
    -------
    dict
        ``{"estimator": class name, "parameters": {name: value}}``.
    """
    described: dict[str, Any] = {"estimator": type(estimator).__name__}
    # Deep: the parameters of nested estimators are among them. All of them: a search's
    # candidates are found again by theirs.
    parameters = parameters_of(estimator)
    if parameters is not None:
        described["parameters"] = {str(name): describe(value) for name, value in parameters.items()}
    return described


def parameters_of(estimator: Any) -> Mapping[str, Any] | None:
    """Return the parameters of an estimator; None where it has none or cannot name them."""
    try:
        if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
            return None
        parameters = estimator.get_params(deep=True)
    except Exception:  # what it is called by is no reason to lose the submission
        return None
    return parameters if isinstance(parameters, Mapping) else None


def describe_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a candidate's parameters, those of estimators among them spelt out beside them."""
    described = {}
    for name, value in parameters.items():
        described[name] = describe(value)
        nested = parameters_of(value)
        if nested is not None:
            described |= describe_parameters({f"{name}__{key}": v for key, v in nested.items()})
    return described


def describe(value: Any) -> Any:
    """Return one parameter as a JSON value that two equal ones share, in any process.

    Examples
    --------
    >>> import numpy as np
    >>> describe(np.float64(0.5)), describe("rbf"), describe(float("nan"))
    (0.5, 'rbf', 'nan')
    """
    try:
        return _described(value)
    except Exception:  # its repr raises, or it holds itself
        return f"a {type(value).__name__}"


def _described(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and abs(value) >= 2**63:
        return as_given(value)  # a JSON that a database takes
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return _short(value) if isinstance(value, str) else value
    if _is_estimator(value):
        # Its parameters are beside it; the repr of an estimator takes milliseconds.
        return type(value).__name__
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(repr(value.tolist()).encode()).hexdigest()[:12]
        return f"array{value.shape}:{digest}"
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)  # its own order changes from process to process
    if type(value) in (list, tuple):
        return _short(repr(type(value)(map(_described, value))))
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return _short(_ADDRESS.sub("", repr(value)))


def jsonable(context: Mapping[str, Any] | None) -> dict[str, Any]:
    """Validate what a user wants to find in the history beside a submission; None is nothing."""
    if context is None:
        return {}
    if not isinstance(context, Mapping):
        raise InvalidArgument("context", "a mapping that JSON can hold", as_given(context))
    try:
        written = json.dumps(dict(context), allow_nan=False, default=_plain)
    except Exception:  # whatever its entries raise; a recursive one goes too deep
        raise InvalidArgument(
            "context",
            "a mapping that JSON can hold",
            "one that it cannot",
            "Use texts, finite numbers, and lists of such.",
        ) from None
    if len(written) > _LARGEST:
        raise InvalidArgument(
            "context", f"at most {_LARGEST} characters as JSON", f"{len(written)} long"
        )
    return dict(json.loads(written))


def _plain(value: Any) -> Any:
    """Return a number of NumPy as Python's, and a date or a path as a text."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError


def _is_estimator(value: Any) -> bool:
    try:
        return hasattr(value, "get_params") and not isinstance(value, type)
    except Exception:
        return False


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}...:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
