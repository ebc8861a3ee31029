"""Calls that are typed on a command line, read as Python would, without running any of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from ladderholdout.errors import InvalidArgument, did_you_mean
from ladderholdout.mechanisms import MECHANISMS, Mechanism, mechanism_from

T = TypeVar("T")


def mechanism_of(text: str) -> Mechanism:
    """Read a mechanism as it is written in Python and as `list` prints it.

    Parameters
    ----------
    text : str
        A name, with settings in brackets or without: numbers, texts, True, False, None.

    Returns
    -------
    Mechanism

    Raises
    ------
    InvalidArgument
        It is something else, or a setting is refused.

    Examples
    --------
    >>> mechanism_of("Ladder(step=0.01)"), mechanism_of("Ladder(0.01)")
    (Ladder(step=0.01), Ladder(step=0.01))
    >>> mechanism_of("ParameterFreeLadder")
    ParameterFreeLadder()
    """
    allowed = 'a mechanism with its settings, such as "Ladder(step=0.01)"'
    return typed(text, "--mechanism", allowed, MECHANISMS, mechanism_from)


def typed(
    text: str,
    argument: str,
    allowed: str,
    kinds: Mapping[str, type],
    make: Callable[[str, dict[str, Any]], T],
) -> T:
    """Read a call of one of several dataclasses.

    Examples
    --------
    >>> typed("Ladder(0.01)", "--rule", "a rule", MECHANISMS, lambda name, settings: settings)
    {'step': 0.01}
    """
    refused = InvalidArgument(argument, allowed, repr(text))
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise refused from None
    if isinstance(call, ast.Name):
        call = ast.Call(call, [], [])
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise refused
    name = call.func.id
    if name not in kinds:
        remedy = did_you_mean(name, kinds)
        raise InvalidArgument(argument, f"one of {', '.join(kinds)}", repr(name), remedy)
    try:
        return make(name, _settings(kinds[name], call))
    except InvalidArgument:
        raise
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise refused from None


def _settings(kind: type, call: ast.Call) -> dict[str, Any]:
    names = [setting.name for setting in fields(kind)][: len(call.args)]
    names += [str(keyword.arg) for keyword in call.keywords]
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if len(set(names)) != len(values):
        raise ValueError
    return dict(zip(names, map(ast.literal_eval, values), strict=True))
