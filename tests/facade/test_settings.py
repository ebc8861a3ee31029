"""The list of a holdout's parameters is one: that of `LadderHoldout`'s signature."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields

import numpy as np
import pytest

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.guard.settings import HoldoutSettings
from ladderholdout.leaderboard import Leaderboard

X, Y = np.arange(40).reshape(-1, 1), np.arange(40) % 2


def test_the_settings_are_the_parameters_of_the_facade() -> None:
    stated = {field.name: field.default for field in fields(HoldoutSettings)}
    stated.pop("default")  # the rule of a leaderboard is another one
    parameters = inspect.signature(LadderHoldout).parameters
    assert stated == {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert MISSING not in stated.values()


def test_each_parameter_of_opening_is_one_of_registering_but_the_view() -> None:
    opening = set(inspect.signature(LadderHoldout.open).parameters)
    assert opening - {field.name for field in fields(HoldoutSettings)} == {"view"}


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("name", 3),
        ("account", None),
        ("ladder", ""),
        ("feedback", "capped"),
        ("overlap", None),
        ("vault", 3),
        ("reserve", 1.0),
        ("confidence", 0),
        ("budget", 0),
        ("mechanism", "Ladder"),
        ("show", "bits"),
    ],
)
def test_a_wrong_setting_is_refused_before_the_rows_are_read(argument: str, value: object) -> None:
    settings = {"scoring": "accuracy", "ledger": "memory", argument: value}
    with pytest.raises(InvalidArgument, match=f"^{argument} must be "):
        LadderHoldout(object(), None, **settings)


def test_a_leaderboard_has_one_metric() -> None:
    with pytest.raises(InvalidArgument, match=r"^scoring must be "):
        Leaderboard(X, Y, scoring=["accuracy", "f1"], ledger="memory")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^scoring must be "):
        Leaderboard.open("b", scoring=["accuracy"], ledger="memory")  # type: ignore[arg-type]
