"""Checks of arguments: each returns a value that may be used, or refuses it.

A refusal is an `InvalidArgument` and names the argument, what is allowed, what came instead and,
where that is not plain, what to do.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ladderholdout.errors import InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])

# Counts are stored as 64-bit numbers, and a float holds each of them up to here.
LARGEST_COUNT = 2**53
_LONGEST_SHOWN = 60
_LONGEST_NAME = 200
_LONGEST_SEGMENT = 255  # bytes of a name in the file systems of today
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


def as_given(value: Any) -> str:
    """Describe what came for an argument: small numbers and texts as they are, else the type.

    Nothing of the value's own runs (its ``repr`` may raise, or be as long as a book), and an
    array is not shown, for it may hold labels.

    Parameters
    ----------
    value : object

    Returns
    -------
    str

    Examples
    --------
    >>> as_given(2.5), as_given("wide"), as_given((0, 1)), as_given([[0], [1]])
    ('2.5', "'wide'", '(0, 1)', 'a list')
    >>> as_given(10**400), as_given(None)
    ('a whole number of about 401 digits', 'None')
    """
    plain = _plain(value)
    if plain is None and type(value) in (list, tuple) and len(value) <= 4:
        parts = [_plain(part) for part in value]
        if None not in parts:
            inside = ", ".join(str(part) for part in parts)
            plain = f"[{inside}]" if type(value) is list else f"({inside})"
    return plain or f"a {type(value).__name__}"


def _plain(value: Any) -> str | None:
    """Return a number, a short text, a truth value or None as Python writes it."""
    if value is None or isinstance(value, bool | np.bool_):
        return str(value)
    if isinstance(value, int | np.integer):
        number = int(value)
        if number.bit_length() > 200:
            return f"a whole number of about {number.bit_length() * math.log10(2) + 0.5:.0f} digits"
        return int.__repr__(number)
    if isinstance(value, float | np.floating):
        return float.__repr__(float(value))
    if isinstance(value, str):
        text, more = str.__repr__(value[:_LONGEST_SHOWN]), len(value) - _LONGEST_SHOWN
        return f"{text} and {more} more" if more > 0 else text
    return None


def as_number(value: Any) -> float:
    """Return a real number as a float of Python; nan for all else, and beyond what floats hold.

    Truth values are no numbers here, and no method of an unknown type is called.

    Parameters
    ----------
    value : object

    Returns
    -------
    float

    Examples
    --------
    >>> as_number(np.float32(0.5)), as_number("0.5"), as_number(10**400), as_number(True)
    (0.5, nan, nan, nan)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def whole(argument: str, value: Any, *, least: int = 1, most: float = LARGEST_COUNT) -> int:
    """Return a whole number from ``least`` to ``most``: a count, or a seed.

    Parameters
    ----------
    argument : str
    value : object
    least : int, default=1
    most : int or inf, default=2**53

    Returns
    -------
    int

    Raises
    ------
    InvalidArgument
        The value is something else.

    Examples
    --------
    >>> whole("n", np.int64(3)), whole("seed", 0, least=0)
    (3, 0)
    >>> whole("n", 0)
    Traceback (most recent call last):
    ...
    ladderholdout.errors.InvalidArgument: n must be a whole number of at least 1, but is 0.
    """
    try:
        number = operator.index(value)
    except Exception:  # whatever its own method raises
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        allowed = f"a whole number of at least {least}"
        if number > most:
            allowed += f" and at most {most}"
        raise InvalidArgument(argument, allowed, as_given(value))
    return number


def seed_sequence(seed: Any) -> np.random.SeedSequence:
    """Return the source of the generators of a simulation, from a whole number of at least 0.

    Examples
    --------
    >>> seed_sequence(0).entropy
    0
    """
    return np.random.SeedSequence(whole("seed", seed, least=0, most=math.inf))


def whole_or_auto(argument: str, value: Any, *others: str) -> int | str:
    """Return a whole number from 1, or the text "auto", or another one that is allowed.

    Examples
    --------
    >>> whole_or_auto("finalists", "auto"), whole_or_auto("finalists", 5)
    ('auto', 5)
    """
    if not isinstance(value, str):
        return whole(argument, value)
    if value not in ("auto", *others):
        texts = '", "'.join(("auto", *others))
        raise InvalidArgument(argument, f'"{texts}" or a whole number from 1', as_given(value))
    return value


def within(
    argument: str, value: Any, most: float, remedy: str = "", *, least: float | None = None
) -> float:
    """Return a number in (0, most], such as a step; in [least, most] where ``least`` is given.

    Examples
    --------
    >>> within("step", 1, 1.0), within("odds", 1.0, 1e6, least=1.0)
    (1.0, 1.0)
    """
    number = as_number(value)
    enough = number > 0 if least is None else number >= least
    if not (enough and value <= most):  # compared before it is rounded to a float
        interval = f"(0, {most:g}]" if least is None else f"[{least:g}, {most:g}]"
        raise InvalidArgument(argument, f"a number in {interval}", as_given(value), remedy)
    return number


def inside(
    argument: str, value: Any, low: float = 0.0, high: float = 1.0, *, what: str = "a number"
) -> float:
    """Return a number in (low, high), such as a confidence.

    Examples
    --------
    >>> inside("confidence", 0.95), inside("margin", 3, high=math.inf)
    (0.95, 3.0)
    """
    number = as_number(value)
    if not low < number < high:
        raise InvalidArgument(argument, f"{what} in ({low:g}, {high:g})", as_given(value))
    return number


def finite(argument: str, value: Any, remedy: str = "") -> float:
    """Return a finite number, such as a score.

    Examples
    --------
    >>> finite("released", np.float32(0.5))
    0.5
    """
    number = as_number(value)
    if not math.isfinite(number):
        raise InvalidArgument(argument, "a finite number", as_given(value), remedy)
    return number


def flag(argument: str, value: Any) -> bool:
    """Return a truth value.

    Examples
    --------
    >>> flag("clip", np.True_)
    True
    """
    if not isinstance(value, bool | np.bool_):
        raise InvalidArgument(argument, "True or False", as_given(value))
    return bool(value)


def function(argument: str, value: F | None, allowed: str = "a function") -> F:
    """Return what can be called.

    Examples
    --------
    >>> function("build", abs)(-1)
    1
    """
    if not callable(value):
        raise InvalidArgument(argument, allowed, as_given(value))
    return value


def choice(argument: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return one of a few texts.

    Examples
    --------
    >>> choice("overlap", "warn", ("warn", "error"))
    'warn'
    """
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(argument, "one of " + ", ".join(map(repr, allowed)), as_given(value))
    return str.__str__(value)


def text(argument: str, value: Any, longest: int = _LONGEST_NAME, remedy: str = "") -> str:
    """Return a printable text, such as a name that people will type again months later.

    Examples
    --------
    >>> text("name", "churn 2026")
    'churn 2026'
    """
    came = None
    if not isinstance(value, str):
        came = type(value).__name__
    elif not value.strip() or len(value) > longest:
        came = f"of {len(value)} characters"
    elif not value.isprintable():
        # Among them lone surrogates, escape sequences and marks of the direction of writing.
        wrong = sorted({f"U+{ord(letter):04X}" for letter in value if not letter.isprintable()})
        came = f"one with a character that is not ({', '.join(wrong[:3])})"
    if came is not None:
        allowed = f"a printable text of 1 to {longest} characters"
        raise InvalidArgument(argument, allowed, came, remedy)
    return str.__str__(value)  # of a kind of str, the text itself


def segment(argument: str, value: Any) -> str:
    """Return the name of something new, which is a part of addresses, and may be of a file.

    A ledger of before may hold others, which `text` lets through where something is looked up.

    Examples
    --------
    >>> segment("name", "churn 2026")
    'churn 2026'
    """
    name = text(argument, value)
    came = None
    if name in (".", ".."):
        came = "a name for a folder"
    elif "/" in name or "\\" in name:
        came = "one with a slash"
    elif _ESCAPE.search(name):
        came = "one with a character in the form of addresses, as %2F"
    elif len(name.encode()) > _LONGEST_SEGMENT:
        came = f"one of {len(name.encode())} bytes"
    if came is not None:
        raise InvalidArgument(
            argument,
            f"a text of at most {_LONGEST_SEGMENT} bytes that can be a part of an address",
            came,
            "Take letters, digits, spaces, dots and hyphens.",
        )
    return name


def folder(argument: str, value: Any) -> str | bool:
    """Return the path of a folder, or whether there shall be one.

    Examples
    --------
    >>> folder("vault", "rows"), folder("vault", False)
    ('rows', False)
    """
    if isinstance(value, bool):
        return value
    try:
        path = os.fspath(value)
    except Exception:  # whatever its own method raises
        path = None
    if not isinstance(path, str) or not path.strip() or "\0" in path or _has_surrogates(path):
        raise InvalidArgument(argument, "a folder, True or False", as_given(value))
    return path


def _has_surrogates(path: str) -> bool:
    """Return whether a text has lone surrogates, so that it cannot name a file on every system."""
    return path.encode(errors="ignore").decode() != path
