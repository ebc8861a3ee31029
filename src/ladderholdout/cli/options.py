"""What is typed after an option."""

from __future__ import annotations

from collections.abc import Sequence

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.typed import mechanism_of

__all__ = ["context_of", "mechanism_of"]


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
