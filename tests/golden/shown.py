"""Answers as JSON: what a session returned, without clocks, paths, random names and hashes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import numpy as np

# What depends on the clock, on the place or on the ledger's format.
LEFT_OUT = {
    *("created", "due", "expires", "since", "started", "time"),
    *("fingerprint", "head", "holdout_id", "home", "id", "ladder_id", "ledger", "position"),
    *("token", "token_hash", "token_key", "until", "valid"),
}
# Random names, of which the order in which they are first shown is all that counts.
NAMED_BY_CHANCE = {"batch", "name_of_batch", "search"}
# Floats that have to be equal to the bit. Any other may differ where a processor rounds exp or log
# in another way.
RELEASED = {"accuracies", "after", "before", "released", "revealed", "score"}
CLOSE = 1e-12
WIDTH = 160
BEGINS = 30


class Shown:
    """Turns what a session returns into JSON; random names become batch 1, batch 2 and so on."""

    def __init__(self, place: Mapping[str, str]) -> None:
        self._place, self._names = place, dict[str, str]()
        self.texts: dict[str, str] = {}
        """Assumptions in full, by how they begin: most certificates have the same ones."""

    def __call__(self, thing: Any) -> Any:
        """Return a thing as JSON; fields that are empty, None or false are left out."""
        match thing:
            case np.generic() | np.ndarray():
                return self(thing.tolist())
            case None | bool() | int() | float():
                return thing
            case str():
                return self._without_place(thing)
            case datetime():
                return "a moment"
            case Mapping():
                return {str(name): self(value) for name, value in thing.items()}
            case Sequence() | set() | frozenset():
                return [self(value) for value in thing]
        if is_dataclass(thing):
            return dict(self._fields(thing))
        raise TypeError(f"cannot show a {type(thing).__name__}")

    def _fields(self, thing: Any) -> Iterator[tuple[str, Any]]:
        for field in fields(thing):
            value = getattr(thing, field.name)
            if field.name in LEFT_OUT or value is None or value is False:
                continue
            if field.name == "metric" and not isinstance(value, str):
                value = value.name
            if field.name in NAMED_BY_CHANCE:
                value = self._names.setdefault(value, f"{field.name} {len(self._names) + 1}")
            if field.name == "latest":
                value = [submission.number for submission in value]
            shown = self(value)
            if field.name == "assumptions":
                self.texts |= {text[:BEGINS]: text for text in shown}
                shown = [text[:BEGINS] for text in shown]
            if shown not in ("", [], {}):
                yield field.name, shown

    def _without_place(self, text: str) -> str:
        for place, name in self._place.items():
            text = text.replace(place, name)
        return re.sub(r"\b\d{4}-\d\d-\d\d\b", "DATE", text)


def differences(
    expected: Any, found: Any, where: str = "", *, to_the_bit: bool = False
) -> Iterator[str]:
    """Yield where two answers differ: texts, counts and released scores exactly, floats nearly."""
    match expected, found:
        case dict(), dict():
            for name in [*expected, *(name for name in found if name not in expected)]:
                place = f"{where}.{name}" if where else name
                if name not in found or name not in expected:
                    yield f"{place}: {'missing' if name in expected else 'new'}"
                else:
                    inside = expected[name], found[name]
                    yield from differences(*inside, place, to_the_bit=to_the_bit)
        case list(), list():
            if len(expected) != len(found):
                yield f"{where}: {len(found)} items for {len(expected)}"
            for place, inside in enumerate(zip(expected, found, strict=False)):
                yield from differences(*inside, f"{where}[{place}]", to_the_bit=to_the_bit)
        case float(), float():
            exact = to_the_bit or where.rpartition(".")[2].partition("[")[0] in RELEASED
            near = math.isclose(expected, found, rel_tol=0 if exact else CLOSE)
            if not near and not (math.isnan(expected) and math.isnan(found)):
                yield f"{where}: {found!r} for {expected!r}"
        case _:
            if type(expected) is not type(found) or expected != found:
                yield f"{where}: {found!r} for {expected!r}"


def written(answer: Any, indent: str = "") -> str:
    """Return JSON in which whatever fits into a line is one, so that a difference can be read."""
    short = json.dumps(answer, ensure_ascii=False)
    if len(indent) + len(short) <= WIDTH or not isinstance(answer, dict | list) or not answer:
        return short
    inside = indent + " "
    if isinstance(answer, list):
        return "[\n" + ",\n".join(inside + written(one, inside) for one in answer) + f"\n{indent}]"
    named = (
        f"{inside}{json.dumps(name, ensure_ascii=False)}: {written(value, inside)}"
        for name, value in answer.items()
    )
    return "{\n" + ",\n".join(named) + f"\n{indent}}}"
