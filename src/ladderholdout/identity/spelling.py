"""What texts name: numbers that are written as a number is written, instants, or themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_PADDED = re.compile(r"\s*[+]?(-?[0-9]+)(?:\.0*)?\s*")
_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:]{5,8}(?:\.[0-9]{1,9})?)?)(?:Z|[+]00:00)?"
)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FIRST = frozenset("0123456789+-. \t")
# Beyond this, neighbouring whole numbers are one float.
_EXACT = 2**53
# Python converts no text of more digits.
_LONGEST = 4000
_LARGEST = 2**63


def plain_number(text: str) -> int | float | None:
    """Return the number that a text is the plain spelling of; None of any other text.

    Parameters
    ----------
    text : str

    Returns
    -------
    int, float or None
        Whole numbers as Python writes them, and floats as ``repr`` does.

    Examples
    --------
    >>> [plain_number(text) for text in ("7", "-1.5", "1e-05", "1.0")]
    [7, -1.5, 1e-05, 1.0]
    >>> {plain_number(text) for text in ("007", "1e2", "1.10", "+1", "1_0", "0x10", " 1", "nan")}
    {None}
    """
    if _WHOLE.fullmatch(text):
        return None if text == "-0" or len(text) >= _LONGEST else int(text)
    number = any_number(text)
    if number is None or isinstance(number, int) or repr(number) != text:
        return None
    return number


def any_number(text: str) -> int | float | None:
    """Return the number that a text is in any of the spellings of decimal numbers, or None.

    Parameters
    ----------
    text : str

    Returns
    -------
    int, float or None

    Examples
    --------
    >>> [any_number(text) for text in ("007", "1e2", "1.10", " 5 ", "+1")]
    [7, 100.0, 1.1, 5, 1]
    >>> {any_number(text) for text in ("1_0", "0x10", "5,3", "7%", "", "nan", "inf")}
    {None}
    """
    text = text.strip(" \t")
    if not _NUMBER.fullmatch(text):
        return None
    if text.lstrip("+-").isdigit() and len(text) < _LONGEST:
        return int(text)
    number = float(text)
    return number if abs(number) < float("inf") else None


def named_value(text: str) -> Any:
    """Return what a text names: a whole number or an instant, however it is spelled, or itself.

    Parameters
    ----------
    text : str

    Returns
    -------
    int, float, datetime64 or str
        Other numbers have one spelling each: "1.10" may be a version that is not "1.1".

    Examples
    --------
    >>> [named_value(text) for text in ("7", "007", "7.0", " 7", "1.1", "1.10", "P7")]
    [7, 7, 7, 7, 1.1, '1.10', 'P7']
    >>> bool(named_value("2026-01-02") == named_value("2026-01-02 00:00:00"))
    True
    """
    if text[:1] not in _FIRST:
        return text
    if len(text) < _LONGEST and (whole := _PADDED.fullmatch(text)):
        return int(whole[1])
    if instant := _INSTANT.fullmatch(text):
        with suppress(ValueError):  # a month 13
            return np.datetime64(instant[1], "ns")
    number = plain_number(text)
    return text if number is None else number


def plain_numbers(texts: Sequence[str]) -> list[int | float] | None:
    """Return the numbers that texts are, where each of them is one and no two texts are the same.

    Parameters
    ----------
    texts : sequence of str

    Returns
    -------
    list of int or float, or None
        None where a text is another spelling, where two different texts are one number ("1" and
        "1.0", which may be two versions), and where the numbers have no type in common.

    Examples
    --------
    >>> plain_numbers(["1", "0", "1"]), plain_numbers(["0.5", "2"])
    ([1, 0, 1], [0.5, 2])
    >>> plain_numbers(["007", "7"]), plain_numbers(["1", "1.0"]), plain_numbers(["1", "NA"])
    (None, None, None)
    """
    known = {text: plain_number(text) for text in dict.fromkeys(texts)}
    numbers = [number for number in known.values() if number is not None]
    if len(numbers) < len(known) or len(set(numbers)) < len(known):
        return None
    largest = max((abs(number) for number in numbers if isinstance(number, int)), default=0)
    mixed = any(isinstance(number, float) for number in numbers)
    if largest >= (_EXACT if mixed else _LARGEST):
        return None
    # None is left out for the types: by now there is none.
    return [number for text in texts if (number := known[text]) is not None]
