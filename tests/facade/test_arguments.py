"""Attacks the checks of arguments: what passes that should not, and what a refusal leaves out."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout.arguments import (
    choice,
    finite,
    flag,
    folder,
    function,
    inside,
    seed_sequence,
    segment,
    text,
    whole,
    whole_or_auto,
    within,
)
from ladderholdout.errors import InvalidArgument

pytestmark = pytest.mark.quick


class Hostile:
    """Whatever is asked of it, it raises an error with a secret in its text."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("secret")

    __index__ = __float__ = __fspath__ = __repr__ = __str__ = __eq__ = __lt__ = _raise  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("check", "allowed"),
    [
        (whole, "a whole number of at least 1"),
        (lambda argument, value: whole(argument, value, least=0), "a whole number of at least 0"),
        (lambda argument, value: within(argument, value, 0.5), "a number in (0, 0.5]"),
        (lambda argument, value: within(argument, value, 9, least=1), "a number in [1, 9]"),
        (inside, "a number in (0, 1)"),
        (lambda argument, value: inside(argument, value, high=math.inf), "a number in (0, inf)"),
        (finite, "a finite number"),
        (flag, "True or False"),
        (function, "a function"),
        (lambda argument, value: choice(argument, value, ("a", "b")), "one of 'a', 'b'"),
        (text, "a printable text of 1 to 200 characters"),
        (segment, "a printable text of 1 to 200 characters"),
        (folder, "a folder, True or False"),
    ],
)
def test_a_refusal_names_the_argument_and_what_is_allowed_and_runs_nothing_of_the_value(
    check: Callable[[str, Any], Any], allowed: str
) -> None:
    for value in (Hostile(), None, b"a", np.array([0.25, 0.5])):
        with pytest.raises(InvalidArgument) as caught:
            check("setting", value)
        assert str(caught.value).startswith(f"setting must be {allowed}, but is ")
        assert "secret" not in str(caught.value) and "0.25" not in str(caught.value)


@pytest.mark.parametrize("value", [True, np.True_, 0, -1, 1.0, "1", Fraction(1), 2**53 + 1])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="n must be a whole number of at least 1"):
        whole("n", value)


def test_a_count_is_a_number_of_python_whatever_it_was() -> None:
    assert [type(whole("n", value)) for value in (1, np.int8(1), np.uint64(1))] == [int] * 3
    with pytest.raises(InvalidArgument, match="at least 1 and at most 3, but is 4"):
        whole("n", 4, most=3)


def test_a_seed_may_be_zero_or_as_long_as_entropy_is() -> None:
    assert seed_sequence(2**127).entropy == 2**127
    assert seed_sequence(0).generate_state(1) == np.random.SeedSequence(0).generate_state(1)
    for value in (-1, 0.0, None, False):
        with pytest.raises(InvalidArgument, match="seed must be a whole number of at least 0"):
            seed_sequence(value)


def test_ends_of_ranges() -> None:
    assert (within("step", 1, 1.0), within("odds", 1, 9, least=1)) == (1.0, 1.0)
    assert inside("confidence", np.nextafter(1.0, 0.0)) < 1.0
    refused: list[Callable[[], Any]] = [
        lambda: within("step", 0.0, 1.0),
        lambda: within("step", np.nextafter(1.0, 2.0), 1.0),
        lambda: within("step", 2**53 + 1, 2.0**53),  # the float of which is allowed
        lambda: within("odds", np.nextafter(1.0, 0.0), 9, least=1),
        lambda: inside("confidence", 0),
        lambda: inside("confidence", 1),
        lambda: inside("margin", math.inf, high=math.inf),
        lambda: finite("score", math.nan),
        lambda: finite("score", 10**400),
    ]
    for call in refused:
        with pytest.raises(InvalidArgument):
            call()


def test_the_remedy_is_the_last_sentence() -> None:
    for check in (
        lambda: within("noise", 0, 1.0, "Take Ladder."),
        lambda: finite("noise", None, "Take Ladder."),
        lambda: text("noise", "", remedy="Take Ladder."),
    ):
        with pytest.raises(InvalidArgument, match=r"\. Take Ladder\.$"):
            check()


def test_auto_is_the_only_text_among_counts() -> None:
    assert whole_or_auto("finalists", "auto") == "auto" and whole_or_auto("finalists", 3) == 3
    for value in ("all", "3", 0, None):
        with pytest.raises(InvalidArgument, match="finalists must be"):
            whole_or_auto("finalists", value)


def test_a_kind_of_text_is_handed_on_as_a_text() -> None:
    class Shouted(str):
        def __str__(self) -> str:
            return self.upper()

    for name in (text("name", Shouted("a")), choice("name", Shouted("a"), ("a",))):
        assert type(name) is str and name == "a"


@pytest.mark.parametrize("name", [".", "..", "a/b", "a\\b", "a%2Fb", "\N{ROCKET}" * 64])
def test_a_name_that_is_no_part_of_an_address_is_refused(name: str) -> None:
    assert text("name", name) == name
    with pytest.raises(InvalidArgument, match="can be a part of an address"):
        segment("name", name)


@pytest.mark.parametrize("value", ["", "  ", "a\0b", "\ud800", b"rows", 1])
def test_a_folder_has_a_name_on_every_system(value: Any) -> None:
    assert folder("vault", Path("rows")) == "rows" and folder("vault", True) is True
    with pytest.raises(InvalidArgument, match="vault must be a folder"):
        folder("vault", value)
