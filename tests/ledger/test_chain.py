"""Attacks the chain: entries edited, removed, inserted, swapped, rebuilt; ledgers upgraded."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import math
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from ladderholdout import LadderHoldout, SearchStopped
from ladderholdout.errors import (
    HoldoutConflict,
    InvalidArgument,
    KnownHoldoutWarning,
    LedgerError,
)
from ladderholdout.guard.opening.health import verify_holdout
from ladderholdout.ledger import Head, Ledger, Verification, backup, resolve_url, verify
from ladderholdout.ledger.chain import FACTS_OF_ROWS, Unsorted, extend, link_hash
from ladderholdout.ledger.records import EMPTY
from ladderholdout.ledger.tables import DateTime, holdouts, ladders, submissions
from ladderholdout.ledger.verification import _Numbers, repeated_queries
from tests.support.holdouts import assert_replays, coins, guesses, is_repeat, undone
from tests.support.processes import at_once
from tests.support.schema import rechain

BEN = "ben/main"
MAIN = "default/main"


def make(place: Path) -> Path:
    """Two ladders on one holdout that take turns: eight submissions, two of them repeats."""
    X, y = coins()
    first = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=place)
    with pytest.warns(KnownHoldoutWarning):
        second = LadderHoldout(X, y, scoring="accuracy", account="ben", budget=9, ledger=place)
    tries = guesses(3, 3)
    first.submit(tries[0], context={"idea": "ü"})
    for one in tries:
        second.submit(one)
        first.submit(one)
    first.submit(y)
    return place


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("template") / "ledger.db")


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    """A copy of the ledger that `make` makes; its vault is that of all the copies."""
    for mark in (template.parent / "vault").glob("*.mark"):
        mark.unlink()  # each copy is meant to be the only one
    return backup(resolve_url(template), tmp_path / "ledger.db")


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, statement


def verified(path: Path) -> Verification:
    with Ledger(resolve_url(path)).read() as tx:
        return verify(tx, 1)


def found(path: Path) -> set[tuple[str | None, int | None]]:
    """Say which ladders and submissions the findings name."""
    return {(one.ladder, one.number) for one in verified(path).findings}


def fetch(path: Path, query: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchone()


# What was left alone


def test_a_ledger_that_nobody_touched_is_intact(path: Path) -> None:
    whole = verified(path)
    assert whole.findings == ()
    assert (whole.holdout, whole.submissions) == ("coins", 8)
    # The registration, the classes, the note on the rows, two ladders and the submissions.
    assert whole.head.length == 13
    assert verify_holdout(resolve_url(path), "coins") == whole


def test_every_way_of_writing_keeps_the_chain(path: Path) -> None:
    heads = [verified(path).head]
    holdout = LadderHoldout.open("coins", ledger=path)
    holdout.owner.audit()
    holdout.owner.audit()  # the first opening stands, and is one link
    heads.append(verified(path).head)
    holdout.owner.retire()
    holdout.owner.retire()
    heads.append(verified(path).head)
    assert [head.length for head in heads] == [13, 14, 15]
    assert verified(path).findings == ()


def submit_some(ledger: Path) -> None:
    holdout = LadderHoldout.open("coins", ledger=ledger)
    for one in guesses([7, os.getpid()], 10):
        holdout.submit(one)


@pytest.mark.processes
def test_processes_that_submit_at_once_make_one_chain(path: Path) -> None:
    at_once([(submit_some, path)] * 3)
    whole = verified(path)
    assert (whole.submissions, whole.head.length, whole.findings) == (38, 43, ())


def test_the_head_of_every_moment_can_be_recomputed(tmp_path: Path) -> None:
    holdout = LadderHoldout(*coins(), scoring="accuracy", ledger=tmp_path / "ledger.db")
    seen = []
    for one in guesses(1, 4):
        holdout.submit(one)
        with Ledger(holdout.ledger).read() as tx:
            seen.append(tx.head(1))
    with Ledger(holdout.ledger).read() as tx:
        assert [tx.head_at(1, head.length) for head in seen] == seen
        assert tx.head_at(1, seen[-1].length + 1) is None
        assert tx.head_at(1, 0) is None
    assert len({head.hash for head in seen}) == 4


# What the hashes give away


def test_a_hash_is_no_way_to_try_raw_risks(tmp_path: Path) -> None:
    """The same rows, labels and predictions in two ledgers: all hashes differ, by the secret."""
    told = []
    for place in ("one", "two"):
        path = tmp_path / place / "ledger.db"
        LadderHoldout(*coins(), scoring="accuracy", ledger=path).submit(guesses(1, 1)[0])
        change(path, "UPDATE submissions SET time = '2026-01-01 00:00:00.000000'")
        told.append(fetch(path, "SELECT hash FROM submissions")[0])
    assert told[0] != told[1]
    content = (1, 0.25)
    assert extend(b"one", EMPTY, "submission", content) != extend(
        b"two", EMPTY, "submission", content
    )
    covered = json.dumps(["ladderholdout chain 1", 1, "", "submission", *content]).encode()
    assert extend(b"", EMPTY, "submission", content).hash != hashlib.sha256(covered).hexdigest()


# The quick ways


CONTENTS: list[tuple[Any, ...]] = [
    (),
    ("", "plain", '"\\\n\t\x00\x7f/', "ü€\U0001f600\u2028", "\udc80\ud800"),
    (0.0, -0.0, 0.1 + 0.2, 1e16, 1e-7, 5e-324, math.inf, -math.inf, math.nan),
    (True, False, None, 0, -1, 2**64, -(10**40), np.float64(0.1)),
    ([], {}, [1, [None, "x"]], {"a": 1.5, "ü": {"": []}, "1": True}),
]


SECRETS = (b"", b"k", bytes(32), b"x" * 64, b"y" * 65, b"z" * 200)


def test_a_link_is_the_hmac_of_its_json() -> None:
    wrong = []
    for secret, content in itertools.product(SECRETS, CONTENTS):
        covered = ["ladderholdout chain 1", 7, "9f", "submission", *content]
        written = json.JSONEncoder().encode(covered).encode()
        expected = hmac.digest(secret, written, "sha256").hex()
        for _ in range(2):  # what is kept of a secret is not what was hashed with it
            if link_hash(secret, 7, "9f", "submission", content) != expected:
                wrong.append((secret, content))
    assert wrong == []


@pytest.mark.parametrize("value", [b"bytes", object(), {1, 2}])
def test_a_link_of_what_is_no_json_is_refused_each_time(value: Any) -> None:
    for _ in range(2):
        with pytest.raises(TypeError):
            link_hash(b"secret", 1, "", "submission", (value,))
    assert len(link_hash(b"secret", 1, "", "submission", ("text",))) == 64


SWAPPED_IDS = (
    "UPDATE submissions SET id = -1 WHERE id = 3",
    "UPDATE submissions SET id = 3 WHERE id = 5",
    "UPDATE submissions SET id = 5 WHERE id = -1",
)


def test_entries_that_are_stored_in_another_order_are_read_by_their_links(path: Path) -> None:
    with Ledger(resolve_url(path)).read() as tx:
        stored = list(tx.chains.links(1, sort=False))
        assert stored == list(tx.chains.links(1))
    change(path, *SWAPPED_IDS)
    with Ledger(resolve_url(path)).read() as tx:
        with pytest.raises(Unsorted):
            list(tx.chains.links(1, sort=False))
        assert list(tx.chains.links(1)) == stored
        steps: list[int] = []
        assert verify(tx, 1, lambda done, total: steps.append(done)).findings == ()


def unfound(path: Path, statements: Iterable[str]) -> list[str]:
    """Return the statements of a list after each of which a ledger verifies as intact."""
    missed = []
    for statement in statements:
        with undone(path):
            change(path, statement)
            if not verified(path).findings:
                missed.append(statement)
    return missed


def test_a_position_of_any_kind_is_found(path: Path) -> None:
    positions = ("'x'", "1.5", "4", "-1", "99")
    update = "UPDATE submissions SET position = {} WHERE id = 5"
    assert unfound(path, map(update.format, positions)) == []


FAR = (
    ("submissions SET number = {far} WHERE number = 3",),
    ("submissions SET number = {far} WHERE number = 3", "chains SET length = {far}"),
    ("ladders SET submissions = {far}",),
)


def test_a_number_far_beyond_the_last_takes_neither_time_nor_memory(path: Path) -> None:
    for changes, far in itertools.product(FAR, (2**40, 2**63 - 1)):
        with undone(path):
            change(path, *(f"UPDATE {one.format(far=far)}" for one in changes))
            found = [str(one) for one in verified(path).findings]
        assert 0 < len(found) < 30, (changes, far)
        assert not any("its chain was changed beyond reading" in one for one in found)


def test_each_of_some_removed_submissions_is_named(path: Path) -> None:
    change(path, "DELETE FROM submissions WHERE ladder_id = 1 AND number IN (2, 4, 5)")
    found = [str(one) for one in verified(path).findings if "was removed" in str(one)]
    assert found == [f"submission {one} of ladder default/main was removed" for one in (2, 4, 5)]


@given(st.integers(0, 20), st.lists(st.integers(-3, 30)))
def test_gaps_are_what_has_not_come(largest: int, numbers: list[int]) -> None:
    came = _Numbers()
    for number in numbers:
        came.add(number)
    came.reach(largest)
    missing = [number for gap in came.gaps for number in gap]
    assert missing == sorted(set(range(1, max([largest, *numbers]) + 1)) - set(numbers))


def test_an_entry_of_a_ladder_that_only_begins_with_a_number_is_gone(path: Path) -> None:
    change(path, "UPDATE submissions SET ladder_id = '1x' WHERE ladder_id = 1 AND number = 3")
    assert str(verified(path).findings[0]) == "submission 3 of ladder default/main was removed"


def test_what_is_counted_of_batches_is_named_where_it_changed(path: Path) -> None:
    change(path, "UPDATE submissions SET runs = 1 WHERE ladder_id = 1 AND number = 3")
    what = "what is counted of batches up to submission 3 of ladder default/main was changed"
    assert [str(one) for one in verified(path).findings] == [what]
    change(path, "UPDATE submissions SET runs = 'x' WHERE ladder_id = 1 AND number = 3")
    what = "what is counted of its batches was changed beyond reading"
    assert [str(one) for one in verified(path).findings] == [what]
    change(path, "UPDATE submissions SET runs = 0 WHERE ladder_id = 1 AND number = 3")
    change(path, "UPDATE chains SET runs = 1")
    what = "what is counted of its batches at the end of its chain was changed"
    assert [str(one) for one in verified(path).findings] == [what]


def test_what_is_counted_of_queries_is_named_where_it_changed(path: Path) -> None:
    for value, found in (
        ("7", "what is counted of queries up to submission 3 of ladder default/main was changed"),
        ("'x'", "ladder default/main cannot be replayed"),
    ):
        change(path, f"UPDATE submissions SET queries = {value} WHERE ladder_id = 1 AND number = 3")
        assert found in [str(one) for one in verified(path).findings]


# Edited


def other(column: Any, value: Any) -> str:
    """Return a value for a column that differs, as SQL."""
    if value is None:
        return {str: "'7'", bytes: "x'07'"}.get(column.type.kinds[0], "7")
    if isinstance(value, bytes):
        return f"x'{bytes([value[0] ^ 1, *value[1:]]).hex()}'"
    if isinstance(value, float):
        return repr(float(np.nextafter(value, 9.0)))  # by the last bit
    if isinstance(value, int):
        return str(1 - value if value in (0, 1) else value + 1)
    if isinstance(column.type, DateTime):
        return f"'{value[:-1]}{(int(value[-1]) + 1) % 10}'"
    if value.startswith("{"):
        return """'{"risk": 0.5, "spread": 0.125, "step": 0.5}'"""
    return "'x" + value[1:] + "'"


def edit(path: Path, table: str, column: Any, where: str) -> None:
    value = fetch(path, f"SELECT {column.name} FROM {table} WHERE {where}")[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            f"UPDATE {table} SET {column.name} = {other(column, value)} WHERE {where}"
        )


ENTRY = [one for one in submissions.c if one.name not in ("id", "ladder_id", "number")]


def test_an_edited_entry_is_found_and_named(path: Path) -> None:
    missed = []
    for column in ENTRY:
        with undone(path):
            edit(path, "submissions", column, "ladder_id = 1 AND number = 3")
            named = found(path)
        others = named - {(MAIN, 3)}
        # Position and hash spoil what refers to them as well.
        if (MAIN, 3) not in named or (others and column.name not in ("position", "hash")):
            missed.append((column.name, named))
    assert missed == []


def test_an_entry_given_to_another_ladder_or_number_is_found(path: Path) -> None:
    change(
        path, "UPDATE submissions SET ladder_id = 1, number = 6 WHERE ladder_id = 2 AND number = 3"
    )
    assert {(BEN, 3), (MAIN, 6)} <= found(path)


def test_an_entry_changed_beyond_reading_is_named_without_a_fault(path: Path) -> None:
    columns = ("time", "raw_risk", "evidence", "context", "digest")
    missed = []
    for column, value in itertools.product(columns, ("'garbage'", "''", "'{'", "x'00'")):
        with undone(path):
            update = f"UPDATE submissions SET {column} = {value}"
            change(path, f"{update} WHERE ladder_id = 1 AND number = 3")
            if (named := found(path)) != {(MAIN, 3)}:
                missed.append((column, value, named))
    assert missed == []


STATE = ["submissions", "queries", "state", "version", "incumbent", "predictions", "withdrawals"]
SETTING = [one for one in ladders.c if one.name not in ("id", "opened", *STATE)]


def test_an_edited_setting_is_found_and_named(path: Path) -> None:
    # A holdout that the ladder can be given to.
    LadderHoldout(*coins(seed=1), scoring="accuracy", name="others", ledger=path)
    missed = []
    for column in SETTING:
        with undone(path):
            edit(path, "ladders", column, "id = 2")
            findings = verified(path).findings
        named = bool(findings) and (
            column.name in ("holdout_id", "account", "name")
            or (
                {one.ladder for one in findings} == {BEN}
                and "the settings of ladder ben/main was" in str(findings[0])
            )
        )
        if not named:
            missed.append((column.name, findings))
    assert missed == []


def test_an_edited_state_is_found(path: Path) -> None:
    missed = []
    for name in STATE:
        with undone(path):
            edit_state(path, name)
            if (named := {ladder for ladder, _ in found(path)}) != {MAIN}:
                missed.append((name, named))
    assert missed == []


def edit_state(path: Path, name: str) -> None:
    if name == "state":
        state = json.loads(fetch(path, "SELECT state FROM ladders WHERE id = 1")[0])
        state["standing"] = float(np.nextafter(state["standing"], 1))
        change(path, f"UPDATE ladders SET state = '{json.dumps(state)}' WHERE id = 1")
    elif name == "predictions":
        own = "ladder_id = 1 AND number = (SELECT incumbent FROM ladders WHERE id = 1)"
        kept = bytearray(fetch(path, f"SELECT predictions FROM incumbents WHERE {own}")[0])
        kept[-4] ^= 1
        change(path, f"UPDATE incumbents SET predictions = x'{kept.hex()}' WHERE {own}")
    else:
        change(path, f"UPDATE ladders SET {name} = {name} + 1 WHERE id = 1")


OF_HOLDOUT = [one for one in holdouts.c if one.name not in ("id", "retired")]


def test_an_edited_registration_is_found(path: Path) -> None:
    missed = []
    for column in OF_HOLDOUT:
        with undone(path):
            edit_registration(path, column)
            said = [str(one) for one in verified(path).findings]
        if not names_registration(column.name, said):
            missed.append((column.name, said))
    assert missed == []


def edit_registration(path: Path, column: Any) -> None:
    if column.name == "classes":
        kept = bytearray(fetch(path, "SELECT classes FROM holdouts")[0])
        kept[-1] ^= 1
        change(path, f"UPDATE holdouts SET classes = x'{kept.hex()}'")
    else:
        edit(path, "holdouts", column, "id = 1")


def names_registration(column: str, said: list[str]) -> bool:
    """Return whether the findings name what this column holds."""
    if column == "classes":
        return said == ["the list of classes was changed or moved"]
    if column in FACTS_OF_ROWS:
        return said == [f"what is recorded of the rows ({column}) was changed"]
    if column == "reserve":
        return said != [] and said[0].startswith("the choice of the reserve was inserted")
    return said != [] if column == "secret" else any("the registration" in one for one in said)


@pytest.mark.parametrize("undo", ["opened", "retired"])
def test_what_was_opened_or_retired_stays_so(path: Path, undo: str) -> None:
    holdout = LadderHoldout.open("coins", ledger=path)
    holdout.owner.audit()
    holdout.owner.retire()
    assert verified(path).findings == ()
    table = "ladders" if undo == "opened" else "holdouts"
    noun = "the opening of ladder default/main" if undo == "opened" else "the retirement"
    for value in ("NULL", "'2026-01-01 00:00:00.000000'"):
        change(path, f"UPDATE {table} SET {undo} = {value} WHERE id = 1")
        assert [str(one).split(" was ")[0] for one in verified(path).findings] == [noun]
    change(path, f"DELETE FROM events WHERE kind = '{undo}'")
    assert verified(path).findings


@pytest.mark.parametrize("column", ["opened", "retired"])
def test_what_was_never_opened_nor_retired_is_found_to_be_neither(path: Path, column: str) -> None:
    table = "ladders" if column == "opened" else "holdouts"
    change(path, f"UPDATE {table} SET {column} = '2026-01-01 00:00:00.000000' WHERE id = 1")
    (finding,) = verified(path).findings
    assert str(finding).endswith("was inserted: it is no entry of the chain")


STATEMENTS = (
    "UPDATE chains SET head = 'x' || substr(head, 2)",
    "UPDATE chains SET length = length - 1",
    "UPDATE chains SET length = length + 1",
    "DELETE FROM chains",
    "UPDATE events SET hash = 'x' || substr(hash, 2) WHERE position = 3",
    "UPDATE events SET kind = 'note' WHERE position = 3",
    "UPDATE events SET position = 99 WHERE position = 3",
    "UPDATE events SET ladder_id = 2 WHERE position = 3",
    "DELETE FROM events WHERE position = 3",
    "DELETE FROM events WHERE position = 1",
    "DELETE FROM events",
)


def test_the_chain_itself_cannot_be_edited(path: Path) -> None:
    assert unfound(path, STATEMENTS) == []


# Removed, inserted, moved


def test_a_removed_entry_is_found_and_named(path: Path) -> None:
    for number in (1, 3, 5):
        with undone(path):
            change(path, f"DELETE FROM submissions WHERE ladder_id = 1 AND number = {number}")
            findings = verified(path).findings
        assert (MAIN, number) in {(one.ladder, one.number) for one in findings}
        assert str(findings[0]) == f"submission {number} of ladder default/main was removed"
        assert len([one for one in findings if "was removed" in str(one)]) == 1


def test_a_removed_entry_is_found_where_the_later_ones_close_the_gap(path: Path) -> None:
    change(
        path,
        "DELETE FROM submissions WHERE ladder_id = 1 AND number = 3",
        "UPDATE submissions SET number = 3 WHERE ladder_id = 1 AND number = 4",
        "UPDATE submissions SET number = 4 WHERE ladder_id = 1 AND number = 5",
        "UPDATE ladders SET submissions = 4 WHERE id = 1",
        "UPDATE ladders SET incumbent = incumbent - 1 WHERE id = 1 AND incumbent > 3",
    )
    assert (MAIN, 3) in found(path)


def test_the_latest_entries_are_missed_with_the_state_set_back(path: Path, tmp_path: Path) -> None:
    """Even where state, counts and predictions are put back as they were before them."""
    old = tmp_path / "old.db"
    backup(resolve_url(path), old)
    LadderHoldout.open("coins", ledger=path).submit(1 - coins()[1])
    assert verified(path).submissions == 9
    state = [name for name in STATE if name != "predictions"]
    before = dict(zip(state, fetch(old, f"SELECT {', '.join(state)} FROM ladders"), strict=True))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM submissions WHERE ladder_id = 1 AND number = 6")
        names = ", ".join(f"{name} = ?" for name in state)
        connection.execute(f"UPDATE ladders SET {names} WHERE id = 1", list(before.values()))
    assert [str(one) for one in verified(path).findings] == [
        "1 more entries of the chain were removed"
    ]


def test_a_ladder_removed_with_all_it_had_is_missed(path: Path) -> None:
    """The looks of a second account, made away with: the first one's entries are whole."""
    change(
        path,
        "DELETE FROM submissions WHERE ladder_id = 2",
        "DELETE FROM ladders WHERE id = 2",
    )
    said = [str(one) for one in verified(path).findings]
    assert said == [
        "3 more entries of the chain were removed",
        "the settings of a ladder that is gone was removed, or changed beyond reading",
    ]
    change(path, "DELETE FROM events WHERE ladder_id = 2")
    assert [str(one) for one in verified(path).findings] == [
        "4 more entries of the chain were removed"
    ]


def insert(path: Path, **given: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.row_factory = sqlite3.Row
        query = "SELECT * FROM submissions WHERE ladder_id = 1 AND number = 5"
        row = dict(connection.execute(query).fetchone()) | {"id": None} | given
        marks = ", ".join("?" * len(row))
        names = ", ".join(f'"{name}"' for name in row)
        connection.execute(f"INSERT INTO submissions ({names}) VALUES ({marks})", [*row.values()])


def test_an_inserted_entry_is_found_and_named(path: Path) -> None:
    what = "submission 6 of ladder default/main was inserted: it is no entry of the chain"
    for position in (12, 13, 99):
        with undone(path):
            insert(path, number=6, position=position)
            change(path, "UPDATE ladders SET submissions = 6 WHERE id = 1")
            findings = verified(path).findings
        said = [str(one) for one in findings if (one.ladder, one.number) == (MAIN, 6)]
        assert said == [what], position


def test_an_entry_without_a_link_cannot_be_written(path: Path) -> None:
    """So an older version of this library that still runs is stopped, and says so."""
    for column in ("position", "hash"):
        with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
            insert(path, number=6, **{column: None})


def test_two_swapped_entries_are_found_and_named(path: Path) -> None:
    for content in ("digest", "time", "raw_risk, evidence"):
        with undone(path):
            swap(path, content)
            assert found(path) == {(MAIN, 3), (MAIN, 4)}, content


def swap(path: Path, content: str) -> None:
    names = content.split(", ")
    query = f"SELECT {content} FROM submissions WHERE ladder_id = 1 AND number = "
    rows = {number: fetch(path, f"{query}{number}") for number in (3, 4)}
    assert rows[3] != rows[4]
    with closing(sqlite3.connect(path)) as connection, connection:
        for here, there in ((3, 4), (4, 3)):
            values = ", ".join(f"{name} = ?" for name in names)
            where = f"ladder_id = 1 AND number = {here}"
            connection.execute(f"UPDATE submissions SET {values} WHERE {where}", rows[there])


def test_swapped_numbers_are_found_and_named(path: Path) -> None:
    change(
        path,
        "UPDATE submissions SET number = 99 WHERE ladder_id = 1 AND number = 2",
        "UPDATE submissions SET number = 2 WHERE ladder_id = 1 AND number = 4",
        "UPDATE submissions SET number = 4 WHERE ladder_id = 1 AND number = 99",
    )
    assert found(path) == {(MAIN, 2), (MAIN, 4)}


# Rebuilt


def test_a_chain_that_was_rebuilt_whole_is_found_by_a_head_kept_elsewhere(path: Path) -> None:
    anchored = verified(path).head
    with Ledger(resolve_url(path)).read() as tx:
        assert tx.head_at(1, anchored.length) == anchored
    change(path, """UPDATE submissions SET context = '{"idea": "mine"}' WHERE id = 1""")
    rechain(path)
    assert verified(path).findings == ()
    with Ledger(resolve_url(path)).read() as tx:
        assert tx.head_at(1, anchored.length) != anchored


# The vault


def test_the_vault_is_looked_at_as_well(tmp_path: Path) -> None:
    path = make(tmp_path / "ledger.db")
    url, file = resolve_url(path), Path(fetch(path, "SELECT vault_path FROM holdouts")[0])
    kept = file.read_bytes()
    file.write_bytes(kept + b"x")
    (finding,) = verify_holdout(url, "coins").findings
    assert "is not the file that was written" in str(finding)
    file.unlink()
    (finding,) = verify_holdout(url, "coins").findings
    assert "cannot be read" in str(finding)


def test_other_labels_in_the_vault_are_found(path: Path, tmp_path: Path) -> None:
    """The labels are no part of the fingerprint: a vault with others is that of a twin."""
    X, y = coins()
    twin = LadderHoldout(X, 1 - y, scoring="accuracy", ledger=tmp_path / "twin" / "ledger.db")
    place, digest = fetch(
        tmp_path / "twin" / "ledger.db", "SELECT vault_path, vault_digest FROM holdouts"
    )
    change(path, f"UPDATE holdouts SET vault_path = '{place}', vault_digest = '{digest}'")
    path_there, digest_there, finding = verify_holdout(resolve_url(path), "coins").findings
    assert "(vault_path) was changed" in str(path_there)
    assert "(vault_digest) was changed" in str(digest_there)
    assert "other labels or weights" in str(finding)
    assert fetch(path, "SELECT fingerprint FROM holdouts") == (twin.status().fingerprint,)


# Indices, which a chain does not cover


def empty_index(path: Path, name: str, columns: str, unique: str = "", some: str = "") -> None:
    """Leave an index in place that finds nothing, as a damaged one may."""
    whole = f"CREATE {unique} INDEX {name} ON submissions ({columns})"
    change_schema = "UPDATE sqlite_master SET sql = ? WHERE name = ?"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"DROP INDEX {name}")
        connection.execute(f"{whole} WHERE 0")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(change_schema, (whole + some, name))
        connection.commit()


@pytest.mark.parametrize(
    ("name", "columns", "unique"),
    [
        ("ix_submissions_digest", "ladder_id, digest", ""),
        ("ix_submissions_key", "ladder_id, key", "UNIQUE"),
        ("ix_submissions_search", "ladder_id, search", ""),
    ],
)
def test_a_damaged_index_is_found(path: Path, name: str, columns: str, unique: str) -> None:
    empty_index(path, name, columns, unique)
    findings = verified(path).findings
    said = f"the database: row 1 missing from index {name}"
    assert said in [str(one) for one in findings]


def test_a_repeat_that_a_damaged_index_made_a_query_is_found_for_good(path: Path) -> None:
    name, columns = "ix_submissions_digest", "ladder_id, digest"
    empty_index(path, name, columns)
    LadderHoldout.open("coins", ledger=path).submit(guesses(3, 3)[0])
    assert fetch(path, "SELECT repeat_of FROM submissions ORDER BY id DESC") == (None,)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DROP INDEX {name}")  # mended since
        connection.execute(f"CREATE INDEX {name} ON submissions ({columns})")
    (finding,) = verified(path).findings
    said = "submission 6 of ladder default/main repeats submission 1, and was taken for new"
    assert (str(finding), finding.ladder, finding.number) == (said, MAIN, 6)


def test_two_queries_of_one_key_are_found_without_its_index(path: Path) -> None:
    name, columns = "ix_submissions_key", "ladder_id, key"
    change(path, "UPDATE submissions SET key = NULL")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DROP INDEX {name}")
        connection.execute("UPDATE submissions SET key = 'k' WHERE repeat_of IS NULL")
        connection.execute(f"CREATE INDEX {name} ON submissions (number)")
    empty_index(path, name, columns, some=" WHERE key IS NOT NULL")
    with Ledger(resolve_url(path)).read() as tx:
        firsts = [first for _, first in repeated_queries(tx.conn, 1)]
    assert firsts
    assert set(firsts) == {1}


CELLS = (
    *(("holdouts", name) for name in ("secret", "created", "n", "classes", "confidence")),
    *(("ladders", name) for name in ("state", "metric_settings", "submissions", "account")),
    *(("submissions", name) for name in ("raw_risk", "evidence", "improved", "number")),
    *(("chains", name) for name in ("length", "head")),
    *(("events", name) for name in ("kind", "position", "hash")),
)
VALUES = ("'x'", "x'ff'", "-1", "CAST(x'ff00fe' AS TEXT)", "1e999")


def test_a_cell_beyond_reading_is_a_finding_and_no_fault(path: Path) -> None:
    missed = []
    # Each cell once, and each value three times: all pairs take five times as long.
    for (table, column), value in zip(CELLS, itertools.cycle(VALUES), strict=False):
        with undone(path):
            row = f"(SELECT max(rowid) FROM {table})"
            change(path, f"UPDATE {table} SET {column} = {value} WHERE rowid = {row}")
            if not verify_holdout(resolve_url(path), "coins").findings:
                missed.append((table, column, value))
    assert missed == []


# Retired


def test_a_retired_holdout_takes_no_submission_through_any_ladder(path: Path) -> None:
    X, y = coins()
    first, second = (
        LadderHoldout.open("coins", account=one, ledger=path) for one in ("default", "ben")
    )
    assert first.owner.retire().retired == second.status().retired
    before = [holdout.history() for holdout in (first, second)]
    for holdout in (first, second, LadderHoldout(X, y, ledger=path)):
        for predictions in (y, 1 - y, guesses(3, 1)[0]):  # the last one is a repeat
            with pytest.raises(HoldoutConflict, match=r"was retired on .* no more submissions"):
                holdout.submit(predictions)
    with pytest.raises(HoldoutConflict, match="was retired"):
        LadderHoldout(X, y, scoring="accuracy", account="eve", ledger=path)
    assert [holdout.history() for holdout in (first, second)] == before
    assert first.owner.audit().submissions
    assert_replays(first)
    assert verified(path).findings == ()


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
def test_a_search_on_a_retired_holdout_stops(path: Path) -> None:
    holdout = LadderHoldout.open("coins", ledger=path)
    holdout.owner.retire()
    grid = {"strategy": ["uniform", "prior"]}
    train = np.random.default_rng(9).standard_normal((30, 3)), np.arange(30) % 2
    search = GridSearchCV(DummyClassifier(), grid, scoring=holdout, cv=holdout.split())
    with pytest.raises(SearchStopped, match="was retired"):
        search.fit(*train)


def links(path: Path) -> Any:
    with Ledger(resolve_url(path)).read() as tx:
        return tuple(tx.chains.links(1))


# Copies


def test_a_copy_is_private_whole_and_a_ledger(path: Path, tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        written = backup(resolve_url(path), tmp_path / "copy.db")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.glob("copy*")) == ["copy.db"]
    assert verified(written) == verified(path)
    holdout = LadderHoldout.open("coins", ledger=written)
    assert is_repeat(holdout, holdout.submit(guesses(3, 1)[0]))


def test_a_copy_replaces_nothing(path: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    there.write_text("precious")
    with pytest.raises(InvalidArgument, match="not there yet"):
        backup(resolve_url(path), there)
    assert there.read_text() == "precious"
    with pytest.raises(InvalidArgument, match="not there yet"):
        backup(resolve_url(path), path)
    with pytest.raises(LedgerError, match="cannot be written"):
        backup(resolve_url(path), tmp_path / "no" / "folder" / "copy.db")
    assert verified(path).findings == ()


def test_a_damaged_ledger_gives_no_copy(path: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    backup(resolve_url(path), whole)
    damaged = tmp_path / "damaged.db"
    content = bytearray(whole.read_bytes())
    content[8192:16384] = os.urandom(8192)
    damaged.write_bytes(content)
    with pytest.raises(LedgerError):
        backup(resolve_url(damaged), tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy*"))


def test_a_ledger_in_memory_has_no_file_to_copy(tmp_path: Path) -> None:
    holdout = LadderHoldout(*coins(), scoring="accuracy", ledger="memory")
    with pytest.raises(LedgerError, match="in memory"):
        backup(holdout.ledger, tmp_path / "copy.db")


def copy_now(ledger: Path, target: Path) -> bool:
    return verified(backup(resolve_url(ledger), target)).findings == ()


@pytest.mark.processes
def test_a_copy_is_of_one_moment_while_others_write(path: Path, tmp_path: Path) -> None:
    calls: list[tuple[Callable[..., Any], Any, *tuple[Any, ...]]] = [(submit_some, path)]
    calls += [(copy_now, path, tmp_path / f"copy{turn}.db") for turn in range(3)]
    assert at_once(calls)[1:] == [True] * 3


def test_the_end_of_a_chain_reads_as_one_text() -> None:
    assert str(Head(3, "ab")) == "3:ab"
