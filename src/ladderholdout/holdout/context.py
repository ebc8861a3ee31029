"""Where a submission came from, as JSON small enough to keep with every one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ladderholdout.errors import InvalidArgument

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
    said: dict[str, Any] = {"estimator": type(estimator).__name__}
    if hasattr(estimator, "get_params") and not isinstance(estimator, type):
        # Deep: the parameters of nested estimators stand among them. All of them: a search's
        # candidates are found again by theirs.
        parameters = estimator.get_params(deep=True)
        said["parameters"] = {name: describe(value) for name, value in parameters.items()}
    return said


def describe_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a candidate's parameters, those of estimators among them spelt out beside them."""
    said = {}
    for name, value in parameters.items():
        said[name] = describe(value)
        if _is_estimator(value):
            nested = {f"{name}__{key}": v for key, v in value.get_params(deep=True).items()}
            said |= describe_parameters(nested)
    return said


def describe(value: Any) -> Any:
    """Return one parameter as a JSON value that two equal ones share, in any process.

    Examples
    --------
    >>> import numpy as np
    >>> describe(np.float64(0.5)), describe("rbf"), describe(float("nan"))
    (0.5, 'rbf', 'nan')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return _short(value) if isinstance(value, str) else value
    if _is_estimator(value):
        # Its parameters stand beside it; the repr of an estimator takes milliseconds.
        return type(value).__name__
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(repr(value.tolist()).encode()).hexdigest()[:12]
        return f"array{value.shape}:{digest}"
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)  # its own order changes from process to process
    if type(value) in (list, tuple):
        return _short(repr(type(value)(map(describe, value))))
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return _short(_ADDRESS.sub("", repr(value)))


def jsonable(context: Mapping[str, Any]) -> dict[str, Any]:
    """Validate what a user wants to find in the history beside a submission."""
    try:
        written = json.dumps(dict(context), allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidArgument(
            "context", "a mapping that JSON can hold", "not", "Use texts and finite numbers."
        ) from None
    if len(written) > _LARGEST:
        raise InvalidArgument(
            "context", f"at most {_LARGEST} characters as JSON", f"{len(written)} long"
        )
    said: dict[str, Any] = json.loads(written)
    return said


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}...:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
