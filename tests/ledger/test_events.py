"""Attacks the events: what is written is read again equal, and nothing else is read."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import ladderholdout
from ladderholdout.errors import LedgerError
from ladderholdout.ledger import events as e
from tests.support.records import settings_of

MOMENT = datetime(2026, 11, 28, 12, 30, 1, 123456, tzinfo=UTC)
HINTS = {kind: typing.get_type_hints(made) for kind, made in e.KINDS.items()}


def example(hint: Any, place: int) -> Any:
    """Return a value of a type that no default has."""
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return example(within[0], place)
    if origin is tuple:
        if within[-1] is ...:
            return (example(within[0], place), None) if type(None) in within else (
                example(within[0], place), example(within[0], place + 1))  # fmt: skip
        return tuple(example(one, place + at) for at, one in enumerate(within))
    if origin is dict:
        return {"ü": [1, 0.1 + 0.2, None, True], "\0": {"x": "\U0001f600"}, "n": place}
    return {
        str: f'text {place} ü\u2028\0"\\',
        int: 2**53 + place,
        float: 1 / 3 + place,
        bool: True,
        datetime: MOMENT + timedelta(days=place),
        e.LadderSettings: settings_of(f"name {place}"),
    }[hint]


def examples(kind: str) -> Iterator[e.Event]:
    """Yield an event with all of its fields, and one with those that it needs alone."""
    made = e.KINDS[kind]
    whole = {name: example(hint, at) for at, (name, hint) in enumerate(HINTS[kind].items())}
    yield made(**whole)
    needed = {
        field.name
        for field in dataclasses.fields(made)  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    yield made(**{name: value for name, value in whole.items() if name in needed})


KINDS = sorted(e.KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_again_equal(kind: str) -> None:
    for happened in examples(kind):
        name, body = e.written(happened)
        assert name == kind
        again = e.read(name, body)
        assert again == happened
        assert type(again) is type(happened)
        assert e.written(again) == (name, body)


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_left_out_and_read_from_old_bytes(kind: str) -> None:
    """So the bytes of events that were written before a field was added stay, and read."""
    whole, least = examples(kind)
    names = set(json.loads(e.written(least)[1]))
    rest = {field.name for field in dataclasses.fields(whole)} - names  # type: ignore[arg-type]
    stored = json.loads(e.written(whole)[1])
    for name in rest:
        old = {one: value for one, value in stored.items() if one != name}
        body = json.dumps(old, ensure_ascii=False).encode()
        assert e.read(kind, body) == dataclasses.replace(whole, **{name: getattr(least, name)})


def test_a_new_field_with_a_default_reads_old_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e, "KINDS", dict(e.KINDS))
    e.adapter.cache_clear()
    _, old = e.written(e.Followed(block=2))

    class Followed(e.Event):
        block: int
        why: str = "fresh"

    try:
        assert e.read("followed", old) == Followed(block=2)
        assert e.written(Followed(block=2)) == ("followed", old)
    finally:
        monkeypatch.undo()
        e.adapter.cache_clear()
    # The older version refuses what has more than it knows.
    with pytest.raises(e.Damaged):
        e.read("followed", b'{"block":2,"why":"else"}')


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1e16, 0.1 + 0.2])
def test_numbers_are_kept_to_the_last_bit(value: float) -> None:
    (submitted, _) = examples("submitted")
    evidence = {"spread": value, "within": [value]}
    more = {"raw": value, "risk": value, "state": {"standing": value}, "evidence": evidence}
    happened = dataclasses.replace(submitted, **more)  # type: ignore[type-var]
    again = e.read(*e.written(happened))
    for found in (again.raw, again.risk, again.state["standing"], again.evidence["within"][0]):
        assert found.hex() == value.hex()


@pytest.mark.parametrize("place", ["raw", "evidence"])
def test_nan_is_refused(place: str) -> None:
    (submitted, _) = examples("submitted")
    value: Any = math.nan if place == "raw" else {"spread": [math.nan]}
    with pytest.raises(LedgerError, match="nan"):
        e.written(dataclasses.replace(submitted, **{place: value}))  # type: ignore[type-var]
    stored = json.loads(e.written(submitted)[1]) | {place: value}
    with pytest.raises(e.Damaged):
        e.read("submitted", json.dumps(stored).encode())
    named = dataclasses.replace(submitted, context={"NaN": "NaN"})  # type: ignore[type-var]
    assert e.read(*e.written(named)) == named


@pytest.mark.parametrize("kind", KINDS)
def test_what_this_version_did_not_write_is_refused(kind: str) -> None:
    """A field that it does not know, one that is missing, and values of other types."""
    whole, least = examples(kind)
    stored = json.loads(e.written(whole)[1])
    needed = json.loads(e.written(least)[1])
    wrong: list[Any] = [stored | {"another": 1}, [stored], None]
    wrong += [{one: needed[one] for one in needed if one != name} for name in needed]
    wrong += [
        stored | {name: []} for name, hint in HINTS[kind].items() if hint in (str, int, float)
    ]
    wrong += [stored | {name: "7"} for name, hint in HINTS[kind].items() if hint in (int, float)]
    wrong += [stored | {name: 1} for name, hint in HINTS[kind].items() if hint in (str, bool)]
    for one in wrong:
        with pytest.raises(e.Damaged):
            e.read(kind, json.dumps(one).encode())
    for body in (b"", b"{", b"\xff", e.written(whole)[1][:-1]):
        with pytest.raises(e.Damaged):
            e.read(kind, body)


@pytest.mark.parametrize("kind", ["", "Submitted", "event", "a newer kind"])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(e.Damaged, match="restore the ledger"):
        e.read(kind, b"{}")


def test_a_moment_is_kept_in_utc() -> None:
    there = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    again = e.read(*e.written(e.Retired(time=there)))
    assert again.time == MOMENT
    assert again.time.tzinfo is UTC


# What is raw


def test_nothing_raw_is_shown_of_an_event() -> None:
    for kind in KINDS:
        for field in dataclasses.fields(e.KINDS[kind]):  # type: ignore[arg-type]
            assert not (field.name in e.RAW and field.repr), (kind, field.name)
    (submitted, _) = examples("submitted")
    shown = repr(submitted)
    assert str(submitted.raw) not in shown and "evidence" not in shown  # type: ignore[attr-defined]


READERS: Mapping[str, set[str]] = {
    # Replays, audits, the certificates' own work, and what a user asks an audit for.
    "raw": {
        "audit/opening.py",
        "audit/records.py",
        "audit/report.py",
        "guard/record_views.py",
        "integrations/mlflow/runs.py",
    },
    "evidence": {
        "audit/opening.py",
        "guard/on_record.py",
        "guard/submit.py",
        "ledger/events.py",
        "ledger/evidence.py",
        "ledger/fold.py",
        "ledger/transaction.py",
        "ledger/rules.py",
        "ledger/verify.py",
    },
}
# Attributes of other things that have the same name: what a rule decides from, and a bet's wealth.
OTHERS = {
    "evidence": {"certificates/targeted_bets.py", "testing/mechanisms.py"},
}


def readers(field: str) -> set[str]:
    """Return the modules that read an attribute of this name."""
    root = Path(ladderholdout.__file__).parent
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == field
        and isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("ledgers", "ledger"))
    }


def test_every_raw_field_has_a_list_of_its_readers() -> None:
    assert set(READERS) == set(e.RAW)


@pytest.mark.parametrize("field", e.RAW)
def test_raw_fields_are_read_by_these_modules_alone(field: str) -> None:
    assert readers(field) - OTHERS.get(field, set()) == READERS[field]
