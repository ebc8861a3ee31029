"""What is typed after an option, read as Python would read it, without running any of it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import MECHANISMS, Mechanism, mechanism_from

_ALLOWED = 'a mechanism with its settings, such as "Ladder(step=0.01)"'


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
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _refused(text) from None
    if isinstance(call, ast.Name):
        call = ast.Call(call, [], [])
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise _refused(text)
    name = call.func.id
    if name not in MECHANISMS:
        raise InvalidArgument("--mechanism", f"one of {', '.join(MECHANISMS)}", repr(name))
    try:
        return mechanism_from(name, _settings(name, call))
    except InvalidArgument:
        raise
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _refused(text) from None


def _settings(name: str, call: ast.Call) -> dict[str, Any]:
    names = [one.name for one in fields(MECHANISMS[name])][: len(call.args)]
    names += [str(one.arg) for one in call.keywords]
    values = [*call.args, *(one.value for one in call.keywords)]
    if len(set(names)) != len(values):
        raise ValueError
    return dict(zip(names, map(ast.literal_eval, values), strict=True))


def context_of(pairs: Sequence[str]) -> dict[str, str]:
    """Read ``key=value`` pairs.

    Examples
    --------
    >>> context_of(["idea=more trees", "note=a=b"])
    {'idea': 'more trees', 'note': 'a=b'}
    """
    parted = [pair.partition("=") for pair in pairs]
    for pair, (key, equals, _) in zip(pairs, parted, strict=True):
        if not key or not equals:
            raise InvalidArgument("--context", "of the form key=value", repr(pair))
    return {key: value for key, _, value in parted}


def _refused(text: str) -> InvalidArgument:
    return InvalidArgument("--mechanism", _ALLOWED, repr(text))
