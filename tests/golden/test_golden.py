"""Attacks the record: whatever holds it, these sessions are answered as they were."""

from __future__ import annotations

import pytest

from tests.golden.sessions import ANSWERS, ON_A_SERVER, SESSIONS, answer_of, recorded
from tests.golden.shown import differences


@pytest.mark.parametrize("name", [name for name in SESSIONS if name != ON_A_SERVER])
def test_a_session_is_answered_as_it_was(name: str) -> None:
    assert list(differences(recorded(name), answer_of(name))) == []


def test_a_session_on_a_server_is_answered_as_it_was(database: str) -> None:
    assert list(differences(recorded(ON_A_SERVER), answer_of(ON_A_SERVER, database))) == []


def test_every_answer_is_of_a_session() -> None:
    assert sorted(path.stem for path in ANSWERS.iterdir()) == sorted(SESSIONS)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"score": 0.5}, {"score": 0.5 + 1e-15}, ["score: 0.500000000000001 for 0.5"]),
        ({"low": 0.5}, {"low": 0.5 + 1e-15}, []),
        ({"low": 0.5}, {"low": 0.5 + 1e-9}, ["low: 0.500000001 for 0.5"]),
        ({"low": 0.5}, {"low": None}, ["low: None for 0.5"]),
        ({"n": 1}, {"n": True}, ["n: True for 1"]),
        ({"n": [1]}, {"n": [1, 2]}, ["n: 2 items for 1"]),
        ({"a": {"b": "x"}}, {"a": {"c": "x"}}, ["a.b: missing", "a.c: new"]),
        ({"revealed": [0.5]}, {"revealed": [0.25]}, ["revealed[0]: 0.25 for 0.5"]),
    ],
)
def test_differences_are_found(before: object, after: object, found: list[str]) -> None:
    assert list(differences(before, after)) == found
