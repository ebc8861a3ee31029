"""Attacks the chain: entries edited, removed, inserted, swapped, rebuilt; copies."""

from __future__ import annotations

import hmac
import itertools
import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from ladderholdout import LadderHoldout, SearchStopped
from ladderholdout.errors import (
    HoldoutConflict,
    InvalidArgument,
    KnownHoldoutWarning,
    LedgerError,
    RestoredWarning,
)
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.ledger import Ledger, backup, resolve_url
from ladderholdout.ledger.fold import Head
from ladderholdout.ledger.log import COLUMNS, linked
from ladderholdout.ledger.verify import Verification, verify
from tests.support import ledgers
from tests.support.holdouts import assert_replays, coins, guesses, is_repeat
from tests.support.ledgers import edit, undone
from tests.support.processes import at_once

BEN = "ben/main"
MAIN = "default/main"
THIRD = "ladder = 1 AND number = 3"


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


def verified(path: Path) -> Verification:
    with Ledger(resolve_url(path)).read() as tx:
        return verify(tx, 1)


def said(path: Path) -> list[str]:
    return [str(one) for one in verified(path).findings]


def found(path: Path) -> set[tuple[str | None, int | None]]:
    """Say which ladders and submissions the findings name."""
    return {(one.ladder, one.number) for one in verified(path).findings}


def fetch(path: Path, query: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchone()


def unfound(path: Path, statements: Iterable[str]) -> list[str]:
    """Return the statements of a list after each of which a ledger verifies as intact."""
    missed = []
    for statement in statements:
        with undone(path):
            edit(path, statement)
            if not verified(path).findings:
                missed.append(statement)
    return missed


# What was left alone


def test_a_ledger_that_nobody_touched_is_intact(path: Path) -> None:
    whole = verified(path)
    assert whole.findings == ()
    assert (whole.holdout, whole.submissions) == ("coins", 8)
    assert whole.head == ledgers.head(path)
    assert whole.head.length == len(ledgers.chained(path))
    assert verify_holdout(resolve_url(path), "coins") == whole


def test_every_way_of_writing_keeps_the_chain(path: Path) -> None:
    heads = [verified(path).head]
    holdout = LadderHoldout.open("coins", ledger=path)
    for act in (holdout.owner.audit, holdout.owner.retire):
        for _ in range(2):  # the first time stands, and is one link
            act()
        heads.append(verified(path).head)
    assert [head.length - heads[0].length for head in heads] == [0, 1, 2]
    assert verified(path).findings == ()


def submit_some(ledger: Path) -> None:
    holdout = LadderHoldout.open("coins", ledger=ledger)
    for one in guesses([7, os.getpid()], 10):
        holdout.submit(one)


@pytest.mark.processes
def test_processes_that_submit_at_once_make_one_chain(path: Path) -> None:
    length = verified(path).head.length
    at_once([(submit_some, path)] * 3)
    whole = verified(path)
    assert (whole.submissions, whole.head.length, whole.findings) == (38, length + 30, ())


# What the hashes give away


def test_a_hash_is_no_way_to_try_raw_risks(tmp_path: Path) -> None:
    """The same bytes at the same place under another secret, or under none, have another hash."""
    content = b"before", 7, "submitted", b'{"raw":0.25}'
    hashes = {linked(secret, *content) for secret in (b"", b"k", b"x" * 64, b"y" * 65, b"z" * 200)}
    assert len(hashes) == 5
    covered = b"before" + (7).to_bytes(8, "big") + b"submitted\0" + content[3]
    for _ in range(2):  # what is kept of a secret is not what was hashed with it
        code = hmac.digest(b"k", b"ladderholdout chain 2" + covered, "sha256")
        assert linked(b"k", *content) == code


def test_a_link_covers_its_place_its_kind_and_what_is_before_it() -> None:
    links = {
        linked(b"secret", *changed)
        for changed in (
            (b"", 1, "noted", b"{}"),
            (b"x", 1, "noted", b"{}"),
            (b"", 2, "noted", b"{}"),
            (b"", 1, "opened", b"{}"),
            (b"", 1, "noted", b"{ }"),
        )
    }
    assert len(links) == 5


# Edited


def test_an_edited_column_is_found_and_named(path: Path) -> None:
    """All that an event is found by, and all that the chain covers."""
    missed = []
    for column in (*COLUMNS, "body", "hash", "kind", "position", "holdout"):
        for value in ("'x'", "x'07'", "7", "NULL", "-1", "9223372036854775807", "1.5"):
            with undone(path):
                try:
                    edit(path, f"UPDATE log SET {column} = {value} WHERE {THIRD}")
                except sqlite3.IntegrityError:
                    continue
                before = column in ("batch", "whole", "key", "search") and value == "NULL"
                if not before and not verified(path).findings:
                    missed.append((column, value))
    assert missed == []


def other(value: Any) -> Any:
    """Return a value that differs as little as it can."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return float(np.nextafter(value, 9.0))  # by the last bit
        case str():
            return f"x{value[1:]}"
        case dict():
            return {name: other(one) for name, one in value.items()} or {"x": 1}
        case list():
            return [*value, 1]
    return 7


def edited(path: Path, seq: int, change: Callable[[dict[str, Any]], Any]) -> None:
    body = json.loads(fetch(path, f"SELECT body FROM log WHERE seq = {seq}")[0])
    change(body)
    text = json.dumps(body, separators=(",", ":")).encode().hex()
    edit(path, f"UPDATE log SET body = x'{text}' WHERE seq = {seq}")


def test_any_field_of_any_event_that_is_edited_is_found(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT seq, kind, body FROM log").fetchall()
    missed = []
    for seq, kind, body in {row[1]: row for row in rows}.values():
        for name in json.loads(body):
            with undone(path):
                edited(
                    path, seq, lambda fields, name=name: fields.update({name: other(fields[name])})
                )
                if not any("changed" in one for one in said(path)):
                    missed.append((kind, name))
    assert len(rows) > 12
    assert missed == []


def test_an_edited_submission_is_named_and_no_other_is(path: Path) -> None:
    (seq,) = fetch(path, f"SELECT seq FROM log WHERE {THIRD}")
    for name, value in (("raw", 0.0), ("risk", 0.0), ("evidence", {}), ("context", {"a": 1})):
        with undone(path):
            edited(path, seq, lambda fields, n=name, v=value: fields.update({n: v}))
            assert found(path) == {(MAIN, 3)}


@pytest.mark.parametrize("text", ["", "{", "garbage", "[]", "null"])
def test_an_entry_changed_beyond_reading_is_named_without_a_fault(path: Path, text: str) -> None:
    edit(path, f"UPDATE log SET body = x'{text.encode().hex()}' WHERE {THIRD}")
    assert (MAIN, 3) in found(path)
    assert "submission 3 of ladder default/main was changed" in said(path)[0]


def test_an_edited_setting_is_found_and_named(path: Path) -> None:
    (seq,) = fetch(path, "SELECT seq FROM log WHERE kind = 'ladderstarted' AND ladder = 2")
    settings = json.loads(fetch(path, f"SELECT body FROM log WHERE seq = {seq}")[0])["settings"]
    for name in set(settings) - {"account", "name"}:
        with undone(path):
            edited(
                path,
                seq,
                lambda fields, n=name: fields["settings"].update({n: other(fields["settings"][n])}),
            )
            assert any("the settings" in one for one in said(path)), name


def test_what_is_kept_beside_entries_cannot_be_edited(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        pieces = connection.execute("SELECT rowid, name FROM piece").fetchall()
    assert {"row_hashes", "label_digests", "places", "predictions"} <= {name for _, name in pieces}
    changes = (
        "UPDATE piece SET content = substr(content, 2)",
        "UPDATE piece SET content = 7",
        "UPDATE piece SET position = 99",
        "UPDATE piece SET part = 1, content = x'00'",
        "UPDATE piece SET name = 'mask'",
        "DELETE FROM piece",
    )
    for row, change in itertools.product([row for row, _ in pieces], changes):
        assert unfound(path, [f"{change} WHERE rowid = {row}"]) == []
    insert = "INSERT INTO piece VALUES (1, 3, 'mask', 0, x'00')"
    assert unfound(path, [insert]) == []


def test_predictions_that_were_changed_are_named(path: Path) -> None:
    edit(path, "UPDATE piece SET content = x'00' WHERE name = 'predictions' AND rowid = "
         "(SELECT max(rowid) FROM piece WHERE name = 'predictions')")  # fmt: skip
    what = "the predictions kept of submission 5 of ladder default/main were changed"
    assert said(path) == [what]
    assert found(path) == {(MAIN, 5)}


STATEMENTS = (
    "UPDATE holdout SET head = x'00' || substr(head, 2)",
    "UPDATE holdout SET head = 'x'",
    "UPDATE holdout SET length = length - 1",
    "UPDATE holdout SET length = length + 1",
    "UPDATE holdout SET length = 'x'",
    "UPDATE holdout SET secret = x'00'",
    "UPDATE holdout SET secret = 7",
    "UPDATE holdout SET name = 'other'",
    "UPDATE holdout SET n = n + 1",
    "UPDATE ladder SET holdout = 2 WHERE id = 1",
    "INSERT INTO ladder (holdout) VALUES (1)",
    "DELETE FROM ladder WHERE id = 2",
    "DELETE FROM log WHERE position = 1",
    "DELETE FROM log WHERE position = 3",
    "DELETE FROM log",
    "DELETE FROM log WHERE number IS NULL",
    "UPDATE log SET position = position + 1 WHERE position = (SELECT max(position) FROM log)",
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_is_beside_the_log_cannot_be_edited(path: Path, statement: str) -> None:
    """Whether `verify` finds it, or the ledger cannot be read at all."""
    edit(path, statement)
    with suppress(LedgerError):
        assert verified(path).findings


@pytest.mark.parametrize("far", [2**40, 2**63 - 1])
def test_a_number_far_beyond_the_last_takes_neither_time_nor_memory(path: Path, far: int) -> None:
    for change in (
        f"UPDATE log SET number = {far} WHERE {THIRD}",
        f"UPDATE log SET position = {far} WHERE {THIRD}",
        f"UPDATE holdout SET length = {far}",
    ):
        with undone(path):
            edit(path, change)
            assert 0 < len(said(path)) < 30, change


# Removed, inserted, moved


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_removed_entry_is_found_and_named(path: Path, number: int) -> None:
    edit(path, f"DELETE FROM log WHERE ladder = 1 AND number = {number}")
    if number < 5:
        assert said(path)[0] == f"submission {number} of ladder default/main was removed"
        assert (MAIN, number) in found(path)
    else:
        assert said(path)[0] == "1 entries at the end of the chain were removed"


def test_each_of_some_removed_submissions_is_named(path: Path) -> None:
    edit(path, "DELETE FROM log WHERE ladder = 1 AND number IN (2, 3)")
    removed = [one for one in said(path) if "was removed" in one]
    assert removed == [f"submission {one} of ladder default/main was removed" for one in (2, 3)]


def test_a_removed_entry_is_found_where_the_later_ones_close_the_gap(path: Path) -> None:
    (position,) = fetch(path, f"SELECT position FROM log WHERE {THIRD}")
    edit(
        path,
        f"DELETE FROM log WHERE {THIRD}",
        "UPDATE log SET number = number - 1 WHERE ladder = 1 AND number > 3",
        f"UPDATE log SET position = -position WHERE position > {position}",
        "UPDATE log SET position = -position - 1 WHERE position < 0",
        "UPDATE holdout SET length = length - 1",
    )
    assert verified(path).findings


def test_the_latest_entries_are_missed_with_all_else_set_back(path: Path, tmp_path: Path) -> None:
    """Even if the end is put back as it was before them, the mark of this machine shows it."""
    holdout = LadderHoldout.open("coins", ledger=path)
    before = fetch(path, "SELECT length, hex(head) FROM holdout")
    holdout.submit(1 - coins()[1])
    edit(path, "DELETE FROM log WHERE ladder = 1 AND number = 6")
    assert said(path) == ["1 entries at the end of the chain were removed"]
    edit(path, f"UPDATE holdout SET length = {before[0]}, head = x'{before[1]}'")
    assert verified(path).findings == ()
    (older,) = verify_holdout(resolve_url(path), "coins").findings
    assert "this is an older copy" in str(older)


def test_a_ladder_removed_with_all_it_had_is_missed(path: Path) -> None:
    """The queries of a second account, made away with: the first one's entries are whole."""
    edit(path, "DELETE FROM log WHERE ladder = 2", "DELETE FROM ladder WHERE id = 2")
    assert any("removed" in one for one in said(path))


@pytest.mark.parametrize("position", [5, 99])
def test_an_inserted_entry_is_found_and_named(path: Path, position: int) -> None:
    if position == 5:
        edit(path, "UPDATE log SET position = position + 100 WHERE position >= 5")
    ledgers.insert(path, "submission", like=5, number=6, position=position)
    assert any("submission 6 of ladder default/main was" in one for one in said(path))


def test_an_entry_without_a_link_cannot_be_written(path: Path) -> None:
    """So an older version of this library that still runs is stopped, and says so."""
    for column in ("position", "hash", "body", "kind"):
        with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
            ledgers.insert(
                path, "submission", like=5, **({"number": 6, "position": 99} | {column: None})
            )


def test_two_swapped_entries_are_found_and_named(path: Path) -> None:
    for names in (("body",), ("hash",), ("body", "hash"), ("digest",)):
        with undone(path):
            rows = {n: fetch(path, f"SELECT {', '.join(f'hex({one})' for one in names)} FROM log "
                           f"WHERE ladder = 1 AND number = {n}") for n in (3, 4)}  # fmt: skip
            for here, there in ((3, 4), (4, 3)):
                kind = "CAST(x'{}' AS TEXT)" if names == ("digest",) else "x'{}'"
                values = ", ".join(
                    f"{name} = {kind.format(value)}"
                    for name, value in zip(names, rows[there], strict=True)
                )
                edit(path, f"UPDATE log SET {values} WHERE ladder = 1 AND number = {here}")
            assert {(MAIN, 3), (MAIN, 4)} <= found(path), names


# Rebuilt


def test_a_chain_that_was_rebuilt_whole_is_found_by_a_head_kept_elsewhere(path: Path) -> None:
    anchored = verified(path).head
    assert ledgers.head(path, anchored.length) == anchored
    ledgers.tamper(path, "submission", "context", {"idea": "mine"}, number=1)
    ledgers.rechain(path)
    assert verified(path).findings == ()
    assert ledgers.head(path, anchored.length) != anchored


def test_an_answer_that_is_not_its_replay_is_found_in_a_whole_chain(path: Path) -> None:
    ledgers.tamper(path, "submission", "answer", 0.125, number=3)
    ledgers.rechain(path)
    assert "the release of submission 3 of ladder default/main is not its replay" in said(path)
    assert not any("was changed or moved" in one for one in said(path))


# The vault


def test_the_vault_is_looked_at_as_well(tmp_path: Path) -> None:
    path = make(tmp_path / "ledger.db")
    url, file = resolve_url(path), Path(ledgers.stored(path, "holdout", "vault"))
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
    there = tmp_path / "twin" / "ledger.db"
    LadderHoldout(X, 1 - y, scoring="accuracy", ledger=there)
    query = "SELECT body FROM log WHERE kind = 'vaultset'"
    twin = json.loads(fetch(there, query)[0])
    for field, name in (("vault", "path"), ("vault digest", "digest")):
        ledgers.tamper(path, "holdout", field, twin[name])
    findings = [str(one) for one in verify_holdout(resolve_url(path), "coins").findings]
    assert any("a note on the vault was changed" in one for one in findings)
    ledgers.rechain(path)
    (finding,) = verify_holdout(resolve_url(path), "coins").findings
    assert "other labels or weights" in str(finding)


# Indices, which a chain does not cover


INDICES = {
    "log_digest": "(ladder, digest) WHERE digest IS NOT NULL",
    "log_key": "(key, ladder) WHERE key IS NOT NULL",
}


def empty_index(path: Path, name: str) -> None:
    """Leave an index in place that finds nothing, as a damaged one may."""
    columns, _, some = INDICES[name].partition(" WHERE ")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"DROP INDEX {name}")
        connection.execute(f"CREATE INDEX {name} ON log {columns} WHERE {some} AND 0")
        connection.execute("PRAGMA writable_schema = ON")
        whole = f"CREATE INDEX {name} ON log {INDICES[name]}"
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (whole, name))
        connection.commit()
    ledgers.forget_connections(path)


def test_a_damaged_index_is_found_and_what_it_did_for_good(tmp_path: Path) -> None:
    """Predictions, or a key, that a damaged index did not find were answered anew."""
    path = tmp_path / "ledger.db"
    holdout = LadderHoldout(*coins(), scoring="accuracy", name="coins", ledger=path)
    first, second, third = guesses(3, 3)
    holdout.submit(first)
    holdout.__ladder__.submit(second, Origin(key="trial"))
    for name in INDICES:
        empty_index(path, name)
    findings = [str(one) for one in verify_holdout(resolve_url(path), "coins").findings]
    for name in INDICES:
        assert any(f"missing from index {name}" in one for one in findings), findings
    again = LadderHoldout.open("coins", ledger=path)
    again.submit(first)
    again.__ladder__.submit(third, Origin(key="trial"))
    for name, rest in INDICES.items():  # mended since
        edit(path, f"DROP INDEX {name}", f"CREATE INDEX {name} ON log {rest}")
    ledgers.forget_connections(path)
    assert [str(one) for one in verify_holdout(resolve_url(path), "coins").findings] == [
        "submission 3 of ladder default/main repeats submission 1, and was taken for new",
        "submission 4 of ladder default/main repeats submission 2, and was taken for new",
    ]


CELLS = (
    *(("holdout", name) for name in ("secret", "name", "n", "length", "head")),
    *(("ladder", name) for name in ("holdout",)),
    *(("log", name) for name in ("kind", "position", "body", "hash", "number", "digest")),
    *(("piece", name) for name in ("content", "position", "name")),
)
VALUES = ("'x'", "x'ff'", "-1", "CAST(x'ff00fe' AS TEXT)", "1e999", "9000000000000")


def test_a_cell_beyond_reading_is_a_finding_and_no_fault(path: Path) -> None:
    missed = []
    for (table, column), value in itertools.product(CELLS, VALUES):
        with undone(path):
            row = f"(SELECT max(rowid) FROM {table})"
            edit(path, f"UPDATE {table} SET {column} = {value} WHERE rowid = {row}")
            if column == "name" and table == "holdout":
                intact = not verified(path).findings
            else:
                intact = not verify_holdout(resolve_url(path), "coins").findings
            if intact:
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


# Shorter than it was


def test_a_chain_without_its_last_entries_gives_no_answers(path: Path) -> None:
    edit(path, "DELETE FROM log WHERE ladder = 1 AND number = 5")
    with pytest.raises(LedgerError, match="was changed"):
        LadderHoldout.open("coins", ledger=path)
    assert said(path)[0] == "1 entries at the end of the chain were removed"


def test_an_older_copy_under_an_open_connection_is_read_as_it_is(
    path: Path, tmp_path: Path
) -> None:
    """What this process knows of the chain is in it no more: nothing is built on that."""
    holdout = LadderHoldout.open("coins", ledger=path)
    copy = backup(resolve_url(path), tmp_path / "copy.db")
    holdout.submit(1 - coins()[1])
    kept = [
        f"DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM old.{table};"
        for table in ("holdout", "log", "piece")
    ]
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"ATTACH '{copy}' AS old; {''.join(kept)}")
    assert len(holdout.history()) == 5
    with pytest.warns(RestoredWarning):
        assert holdout.submit(guesses(9, 1)[0]).submission == 6
    (restored,) = said(path)
    assert "an older copy was put in place" in restored


@pytest.mark.parametrize("change", ["holdout = 7", "id = 7", "holdout = 'x'"])
def test_a_ladder_that_is_hidden_leaves_no_certificate(path: Path, change: str) -> None:
    """Its queries would not be counted, and the interval would be too narrow."""
    assert LadderHoldout.open("coins", ledger=path).certificate().low is not None
    edit(path, f"UPDATE ladder SET {change} WHERE id = 2")
    with pytest.raises(LedgerError):
        LadderHoldout.open("coins", ledger=path).certificate(confidence=0.9)
