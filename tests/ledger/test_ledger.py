"""Attacks the ledger: where it lies, how it is opened, locks, schemas, replaced files, forks."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import (
    HoldoutConflict,
    KnownHoldoutWarning,
    LedgerBusy,
    LedgerError,
    UnknownHoldout,
)
from ladderholdout.ledger import Ledger, arrays, log, resolve_url, shown, store
from ladderholdout.ledger import events as e
from ladderholdout.ledger.log import FORMAT
from ladderholdout.ledger.place import Access, default_path, file_of, is_memory
from ladderholdout.ledger.rules import rules_of, stored_metric
from ladderholdout.ledger.transaction import Transaction
from tests.support.holdouts import coins, guesses, is_repeat
from tests.support.ledgers import counts, dump, locked
from tests.support.processes import PATIENCE, at_once, elsewhere
from tests.support.records import START, registered, settings_of, submitted

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="no mode bits and no fork here")
CANARY = "canary-7f3a"


def opened(ledger: Any, seed: int = 0, **given: Any) -> LadderHoldout:
    settings = {"scoring": "accuracy", "name": "coins"} | given
    return LadderHoldout(*coins(seed=seed), ledger=ledger, **settings)


# Where it lies


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = tmp_path / "a" / "ledger.db"
    for named in (place, str(place), "a/ledger.db", Path("a") / "ledger.db", "./a/ledger.db"):
        assert file_of(resolve_url(named)) == place
    for named in (f"sqlite:///{place}", "sqlite:///a/ledger.db", f"sqlite+pysqlite:///{place}"):
        assert file_of(resolve_url(named)) == place
    at_home = tmp_path / "home" / "ledger.db"
    for named in ("~/ledger.db", Path("~/ledger.db"), "sqlite:///~/ledger.db"):
        assert file_of(resolve_url(named)) == at_home
    assert shown(resolve_url(place)) == str(place)


def test_the_environment_names_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", str(tmp_path / "named.db"))
    assert file_of(resolve_url(None)) == tmp_path / "named.db"
    assert file_of(resolve_url(tmp_path / "other.db")) == tmp_path / "other.db"
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", f"sqlite:///{tmp_path}/url.db?timeout=5")
    assert resolve_url(None).endswith("/url.db?timeout=5")
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", "memory")
    assert is_memory(resolve_url(None))


@pytest.mark.skipif(sys.platform != "linux", reason="the folder differs from system to system")
@pytest.mark.parametrize("empty", [False, True])
def test_the_default_lies_in_the_data_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    if empty:
        monkeypatch.setenv("LADDERHOLDOUT_LEDGER", "")
    else:
        monkeypatch.delenv("LADDERHOLDOUT_LEDGER")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    at_home = tmp_path / ".local" / "share" / "ladderholdout" / "ledger.db"
    assert file_of(resolve_url(None)) == default_path() == at_home
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    in_data = tmp_path / "data" / "ladderholdout" / "ledger.db"
    assert file_of(resolve_url(None)) == in_data
    holdout = opened(None)
    assert holdout.status().ledger == str(in_data)
    assert [path.name for path in in_data.parent.glob("vault/*.vault")] != []


def test_each_memory_is_a_new_one_unless_it_is_named() -> None:
    first, second = resolve_url("memory"), resolve_url("memory")
    assert first != second
    assert resolve_url(first) == first
    assert (shown(first), file_of(first)) == ("memory", None)
    ours, theirs = opened("memory"), opened("memory")
    ours.submit(guesses(0, 1)[0])
    assert (ours.status().submissions, theirs.status().submissions) == (1, 0)
    assert opened(ours.ledger).status().submissions == 1


@given(name=st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1))
def test_any_file_name_survives_the_way_through_a_url(name: str) -> None:
    path = Path("/some folder") / f"x{name}"
    url = resolve_url(path)
    assert file_of(url) == path
    assert resolve_url(url) == url
    assert shown(url) == str(path)


BAD = [
    "",
    "   ",
    "a\0b",
    3,
    b"ledger.db",
    object,
    "://",
    "sqlite://",
    "sqlite:///",
    "sqlite:///:memory:",
    "sqlite://somewhere/ledger.db",
    "sqlite://somewhere:port/ledger.db",
    "sqlite:////ledger.db?mode=ro",
    "sqlite:////ledger.db?timeout=soon",
    "sqlite:////ledger.db?timeout=nan",
    "sqlite:////ledger.db?timeout=-1",
    "sqlite:////ledger.db?timeout=1e9",
    "sqlite:////ledger.db?timeout=1&timeout=2",
    f"postgresql+asyncpg://user:{CANARY}@host/database",
    f"postgresql://user:{CANARY}@host",
    f"postgresql://host/database?sslpassword={CANARY}",
    "postgresql://host/database?timeout=-1",
    f"https://host/database?password={CANARY}",
    "mysql://host/database",
    "~nobody-of-that-name/ledger.db",
]


@pytest.mark.parametrize("ledger", BAD, ids=repr)
def test_a_place_that_is_none_is_refused(ledger: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^ledger must be a") as caught:
        resolve_url(ledger)
    assert CANARY not in str(caught.value)
    with pytest.raises(InvalidArgument, match=r"^ledger must be a"):
        opened(ledger)


ODD_NAMES = [
    "with space.db",
    "ünïcode ☃.db",
    "what?.db",
    "what?mode=memory",
    "hash#tag.db",
    "per%cent.db",
    "per%20cent.db",
    "plus+and&co=1.db",
    "at@colon:.db",
    "back\\slash.db",
    "quote'\".db",
    "no suffix",
    ".hidden",
    "line\nbreak.db",
]


@pytest.mark.processes
@posix
def test_ledgers_of_odd_names_lie_where_they_should(tmp_path: Path) -> None:
    places = [tmp_path / f"folder of {name}" / name for name in ODD_NAMES]
    for place in places:
        opened(place).submit(guesses(0, 1)[0])
        assert sorted(path.name for path in place.parent.iterdir()) == sorted(
            [place.name, f"{place.name}-shm", f"{place.name}-wal", "vault"]
        )
        assert counts(place)["submissions"] == 1
    assert elsewhere(submit_to_all, [str(place) for place in places]) == [(2, True)] * len(places)


def submit_to_all(ledgers: list[str]) -> list[tuple[int, bool]]:
    told = [LadderHoldout.open("coins", ledger=one).submit(guesses(0, 1)[0]) for one in ledgers]
    return [(release.submission, release.improvements == 1) for release in told]


# How it is opened


@posix
def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        holdout = opened(tmp_path / "new" / "ledger.db")
        holdout.submit(guesses(0, 1)[0])
    finally:
        os.umask(before)
    folder = tmp_path / "new"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {
        "ledger.db": 0o600,
        "ledger.db-wal": 0o600,
        "ledger.db-shm": 0o600,
        "vault": 0o700,
    }


def pragmas(url: str) -> dict[str, Any]:
    ledger = Ledger(url)
    found: dict[str, Any] = {}
    for open_one in (ledger.read, ledger.write):
        with open_one() as tx:
            for name in ("journal_mode", "synchronous"):
                (value,) = tx.db.send(f"PRAGMA {name}").fetchone()
                assert found.setdefault(name, value) == value
    return found


@pytest.mark.processes
def test_every_connection_syncs_every_commit(tmp_path: Path) -> None:
    """WAL alone loses the last commits in a power cut; synchronous=FULL (2) does not."""
    holdout = opened(tmp_path / "ledger.db")
    expected = {"journal_mode": "wal", "synchronous": 2}
    assert pragmas(holdout.ledger) == expected
    assert elsewhere(pragmas, holdout.ledger) == expected
    found: list[dict[str, Any]] = []
    with Ledger(holdout.ledger).read():  # the first connection is taken
        thread = threading.Thread(target=lambda: found.append(pragmas(holdout.ledger)))
        thread.start()
        thread.join()
    assert found == [expected]


def test_a_writer_is_alone_from_its_first_moment_on(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    with (
        Ledger(holdout.ledger).write(),
        closing(sqlite3.connect(tmp_path / "ledger.db", timeout=0)) as other,
    ):
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        assert other.execute("SELECT count(*) FROM holdout").fetchone() == (1,)


@pytest.mark.processes
def test_a_reader_sees_one_state_and_blocks_nobody(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    with Ledger(holdout.ledger).read() as tx:
        assert tx.entries(1) == ()
        elsewhere(submit_to_all, [str(tmp_path / "ledger.db")])
        assert tx.entries(1) == ()
    assert len(holdout.history()) == 1


def test_a_block_that_fails_writes_nothing(tmp_path: Path) -> None:
    ledger = Ledger(resolve_url(tmp_path / "ledger.db"), create=True)
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), ledger.write() as tx:
            registered(tx, "first")
            raise error
    with ledger.read() as tx:
        assert tx.holdouts() == ()


def test_nothing_is_remembered_of_what_was_undone(tmp_path: Path) -> None:
    """The next registration has the number of the one that was undone, and no more of it."""
    ledger = Ledger(resolve_url(tmp_path / "ledger.db"), create=True)
    with pytest.raises(ValueError), ledger.write() as tx:
        assert tx.holdout(registered(tx, "first", n=5, secret=b"first")).secret == b"first"
        raise ValueError
    with ledger.write() as tx:
        assert registered(tx, "second", secret=b"second") == 1
    with ledger.read() as tx:
        found = tx.holdout(1)
        assert (found.name, found.n, found.secret) == ("second", 3, b"second")
        assert tx.fold(1).secret == b"second"


def test_a_refused_row_is_not_quoted(tmp_path: Path) -> None:
    ledger = Ledger(resolve_url(tmp_path / "ledger.db"), create=True)
    with ledger.write() as tx:
        ladder = tx.add_ladder(registered(tx, CANARY), settings_of(CANARY), START)
        tx.append(ladder, submitted(ladder, CANARY))

    def of_another(tx: Transaction) -> None:
        """Its number is taken, by a submission that the fold does not know."""
        tx.db.send("UPDATE log SET ladder = 2 WHERE number IS NOT NULL")
        other = tx.add_ladder(1, settings_of("other"), START)
        tx.append(other, submitted(other, CANARY))

    for action in (
        lambda tx: registered(tx, CANARY),
        of_another,
    ):
        with pytest.raises(LedgerError) as caught, ledger.write() as tx:
            action(tx)
        assert CANARY not in f"{caught.value!r} {caught.value}"
        assert caught.value.__context__ is None


# The schema


def create_at(ledger: str, moment: float) -> int | None:
    while time.time() < moment:
        pass
    Ledger(resolve_url(ledger), create=True)
    with closing(sqlite3.connect(ledger)) as connection:
        return connection.execute("SELECT number FROM ledger_format").fetchone()[0]


@pytest.mark.processes
def test_processes_that_make_one_ledger_at_once_make_one(tmp_path: Path) -> None:
    for turn in range(4):
        place, moment = str(tmp_path / str(turn) / "ledger.db"), time.time() + 0.3
        assert at_once([(create_at, place, moment)] * 3) == [FORMAT] * 3


def ways_in(path: Path) -> list[Callable[[], Any]]:
    return [
        lambda: opened(path),
        lambda: LadderHoldout.open("coins", ledger=path),
        lambda: Ledger(resolve_url(path)),
    ]


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    holdout = opened(path)
    change(path, "UPDATE ledger_format SET number = 9999")
    before = dump(path)
    for way_in in ways_in(path):
        with pytest.raises(LedgerError, match=r"format 9999.*reads format 2.*Upgrade the package"):
            way_in()
    with pytest.raises(LedgerError, match="format 9999"):
        holdout.status()
    assert dump(path) == before


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_an_empty_file_is_no_ledger_until_it_is_given_rows(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    for way_in in ways_in(path)[1:]:
        with pytest.raises(LedgerError, match=r"is empty.*LadderHoldout\(X, y, \.\.\.\)"):
            way_in()
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []
    assert opened(path).submit(guesses(0, 1)[0]).submission == 1


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("what I believe about my models\n" * 100)
    for way_in in ways_in(path):
        with pytest.raises(LedgerError, match=r"cannot be used: it is no SQLite database"):
            way_in()
        assert path.read_text() == "what I believe about my models\n" * 100


@pytest.mark.parametrize("table", ["trials", "holdout", "holdouts", "alembic_version"])
def test_the_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, table: str
) -> None:
    """Also that of an earlier version, whose tables had other names."""
    path = tmp_path / "ledger.db"
    change(path, f"CREATE TABLE {table} (id INTEGER)")
    before = dump(path)
    for way_in in ways_in(path):
        with pytest.raises(LedgerError, match="belongs to another program"):
            way_in()
        assert dump(path) == before


def test_a_missing_ledger_is_not_made_by_looking_for_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for way_in in ways_in(path)[1:]:
        with pytest.raises(LedgerError, match="is not there"):
            way_in()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_ledger(tmp_path: Path) -> None:
    for way_in in ways_in(tmp_path):
        with pytest.raises(LedgerError, match="cannot be used"):
            way_in()


def test_a_place_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match=r"cannot be made .*LADDERHOLDOUT_LEDGER"):
        opened(tmp_path / "file" / "ledger.db")


# Waiting for others


def test_a_writer_gives_up_after_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    holdout = opened(f"sqlite:///{path}?timeout=0.3")
    told = holdout.submit(guesses(0, 1)[0])
    with locked(path):
        for action in (
            lambda: holdout.submit(guesses(1, 1)[0]),
            lambda: holdout.submit(guesses(0, 1)[0]),
            lambda: opened(holdout.ledger),
            lambda: holdout.owner.audit(),
        ):
            start = time.monotonic()
            with pytest.raises(LedgerBusy, match=r"stayed locked.*timeout=300"):
                action()
            # It waited; a test that hangs ends by pytest's own limit.
            assert time.monotonic() - start > 0.25
        # Looking is free all the while.
        assert holdout.status().submissions == len(holdout.history()) == 1
    assert holdout.submit(guesses(1, 1)[0]).submission == 2
    assert holdout.submit(guesses(0, 1)[0]).score == told.score


def while_locked(path: Path, action: Callable[[], Any]) -> Any:
    """Start an action while somebody holds the lock; see it wait, and finish afterwards."""
    with ThreadPoolExecutor(1) as pool:
        with locked(path):
            running = pool.submit(action)
            with pytest.raises(TimeoutError):
                running.result(0.5)
        return running.result(PATIENCE)


def test_a_writer_waits_for_others_to_finish(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    told = while_locked(tmp_path / "ledger.db", lambda: holdout.submit(guesses(0, 1)[0]))
    assert told.submission == 1


def test_a_maker_waits_for_another_one_to_finish(tmp_path: Path) -> None:
    """SQLite itself does not wait for the lock that turns write-ahead logging on."""
    (tmp_path / "ledger.db").touch()
    holdout = while_locked(tmp_path / "ledger.db", lambda: opened(tmp_path / "ledger.db"))
    assert pragmas(holdout.ledger)["journal_mode"] == "wal"
    assert holdout.submit(guesses(0, 1)[0]).submission == 1


def test_a_maker_gives_up_after_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    with locked(path), pytest.raises(LedgerBusy, match="stayed locked"):
        opened(f"sqlite:///{path}?timeout=0.3")


# Removed, replaced, made again


def every_use(holdout: LadderHoldout) -> list[Callable[[], Any]]:
    return [
        lambda: holdout.submit(guesses(3, 1)[0]),
        lambda: holdout.status(),
        lambda: holdout.history(),
        lambda: holdout.owner.audit(),
        lambda: holdout.name,
        lambda: holdout.status().fingerprint,
        lambda: holdout.rules,
        lambda: list(holdout.split().split(*coins())),
    ]


def remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


@pytest.mark.processes
def test_a_removed_ledger_is_not_made_again_by_the_way(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    holdout = opened(path)
    sent = pickle.dumps(holdout)
    remove(path)
    for use in every_use(holdout):
        with pytest.raises(LedgerError, match="removed or replaced"):
            use()
    with pytest.raises(LedgerError, match="is not there"):
        elsewhere(submit_unpickled, sent)
    assert not path.exists()


def submit_unpickled(sent: bytes) -> Any:
    return pickle.loads(sent).submit(guesses(3, 1)[0])


@pytest.mark.processes
@pytest.mark.parametrize("seed", [0, 1])
def test_a_ledger_made_again_does_not_answer_for_the_old_one(tmp_path: Path, seed: int) -> None:
    """The new ledger's first ladder has the old one's number, maybe even its rows."""
    path = tmp_path / "ledger.db"
    old = opened(path)
    old.submit(guesses(0, 1)[0])
    sent = pickle.dumps(old)
    remove(path)
    new = opened(path, seed=seed)
    assert new.submit(guesses(0, 1)[0]).submission == 1
    before = counts(path)
    for use in every_use(old):
        with pytest.raises(HoldoutConflict, match="replaced by another one"):
            use()
    with pytest.raises(HoldoutConflict, match="replaced by another one"):
        elsewhere(submit_unpickled, sent)
    assert counts(path) == before
    assert new != old
    assert is_repeat(new, new.submit(guesses(0, 1)[0]))


def test_a_ledger_put_back_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    holdout = opened(path)
    told = holdout.submit(guesses(0, 1)[0])
    away = tmp_path / "away"
    away.mkdir()
    for file in tmp_path.glob("ledger.db*"):
        file.rename(away / file.name)
    with pytest.raises(LedgerError):
        holdout.submit(guesses(0, 1)[0])
    for file in away.iterdir():
        file.rename(tmp_path / file.name)
    assert holdout.submit(guesses(0, 1)[0]).score == told.score


# Memory


def test_a_ledger_in_memory_cannot_be_pickled_and_says_so() -> None:
    holdout = opened("memory")
    with pytest.raises(LedgerError, match=r'in memory \("memory"\) cannot be pickled.*a path'):
        pickle.dumps(holdout)
    assert copy.deepcopy(holdout) is holdout


def told_in_a_fork(action: Callable[[], Any]) -> tuple[bytes, int]:
    """Return what a fork is told that does something, an answer or an error, and how it ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # it may wait for a lock that nobody has
        try:
            said = str(action())
        except LedgerError as error:
            said = str(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        return pipe.read(), os.waitpid(child, 0)[1]


def submit_in_a_fork() -> tuple[bytes, int]:
    holdout = opened("memory")
    holdout.submit(guesses(0, 1)[0])
    said, _ = told_in_a_fork(lambda: holdout.submit(guesses(0, 1)[0]))
    return said, holdout.submit(guesses(0, 1)[0]).submission


@pytest.mark.processes
@posix
def test_a_ledger_in_memory_is_refused_in_a_fork() -> None:
    said, submission = elsewhere(submit_in_a_fork)
    assert b"lives in the process that made it" in said
    assert b"give ledger= a path" in said
    assert submission == 2


def submit_beside_a_writer(folder: str, seconds: float) -> tuple[bytes, int]:
    """Fork while a thread is in the midst of a transaction; return what the child was told."""
    url = f"sqlite:///{folder}/ledger.db"
    holdout = opened(url)
    holdout.submit(guesses(0, 1)[0])
    began, store._WAIT = threading.Event(), 2.0 if seconds < 1 else 0.1

    def write() -> None:
        with store.connection(store.source(url), Access.ALL):
            began.set()
            time.sleep(seconds)

    threading.Thread(target=write, daemon=True).start()
    began.wait()
    return told_in_a_fork(lambda: holdout.submit(guesses(1, 1)[0]).submission)


@pytest.mark.processes
@posix
@pytest.mark.parametrize(
    ("seconds", "told"), [(0.2, b"2"), (20.0, b"was forked while a thread of its parent wrote")]
)
def test_a_child_that_was_forked_beside_a_writer_answers_or_raises(
    tmp_path: Path, seconds: float, told: bytes
) -> None:
    said, status = elsewhere(submit_beside_a_writer, str(tmp_path), seconds)
    assert told in said and status == 0


# What stands in it


@contextmanager
def written() -> Iterator[Transaction]:
    with Ledger(resolve_url("memory"), create=True).write() as tx:
        yield tx


def test_what_is_written_is_read() -> None:
    with written() as tx:
        number = registered(tx, "first", n=5)
        assert tx.view(number).row_hashes.tolist() == [0, 1, 2, 3, 4]
        holdout = tx.set_classes(number, np.array(["b", "äöü"]))
        assert holdout.classes is not None
        assert holdout.classes.tolist() == ["b", "äöü"]
        assert (holdout.name, holdout.n) == ("first", 5)
        assert timedelta(0) <= datetime.now(UTC) - holdout.created < timedelta(minutes=1)
        tx.set_vault(number, "/somewhere", "d" * 64, 1)
        assert tx.holdout(number).vault_path == "/somewhere"
        reserve = np.array([True, False, False, True, False])
        assert tx.holdout(number).reserve is None
        tx.set_reserve(number, reserve)
        drawn = tx.holdout(number)
        assert drawn.reserve is not None and drawn.n_reserve == 2
        np.testing.assert_array_equal(drawn.reserve, reserve)


def test_entries_are_found_by_number_search_digest_and_key() -> None:
    with written() as tx:
        first = tx.add_ladder(registered(tx, "first"), settings_of("main"), START)
        second = tx.add_ladder(1, settings_of("second"), START)
        for at, (digest, search, repeat_of) in enumerate(
            (("a", "x", None), ("b", "x", None), ("a", "y", 1), ("c", None, None))
        ):
            more = {"search": search, "repeat_of": repeat_of, "key": f"key {at}"}
            tx.append(tx.ladder(first.id), submitted(tx.ladder(first.id), digest, **more))
        tx.append(second, submitted(second, "d"))

        def numbers(**asked: Any) -> list[int]:
            return [one.number for one in tx.entries(first.id, **asked)]

        assert numbers() == [1, 2, 3, 4]
        assert numbers(after=2) == [3, 4]
        assert numbers(after=1, limit=2) == [2, 3]
        assert numbers(search="x") == [1, 2]
        assert numbers(search="x", after=1) == [2]
        assert [one.number for one in tx.entries(second.id)] == [1]
        repeated, everywhere = tx.first(first, "a", None)
        assert repeated is not None and everywhere
        assert (repeated.number, repeated.repeat_of) == (1, None)
        assert tx.first(first, "d", None)[0] is None
        assert tx.first(second, "a", None)[0] is None
        assert [tx.ladder(one.id).repeats for one in (first, second)] == [1, 0]
        (found,) = tx.found(first.id, "key", "key 1")
        assert found is not None and found.number == 2
        assert tx.found(second.id, "key", "key 1") == []


def test_a_number_is_given_once() -> None:
    """Two that read the ladder in the same state cannot both append to it."""
    with written() as tx:
        ladder = tx.add_ladder(registered(tx, "first"), settings_of("main"), START)
        tx.append(ladder, submitted(ladder, "a"))
        with pytest.raises(e.Damaged):
            tx.append(ladder, submitted(ladder, "b"))


def test_the_largest_overlap_and_the_first_retirement_stand() -> None:
    with written() as tx:
        number = registered(tx, "first")
        for rows in (3, 7, 5):
            tx.note_overlap(number, "training rows", rows)
        tx.note_overlap(number, "the holdout other", 9)
        found = [(one.source, one.rows) for one in tx.fold(number).overlaps]
        assert found == [("the holdout other", 9), ("training rows", 7)]
        retired = tx.retire(number).retired
        assert retired is not None
        assert tx.retire(number).retired == retired


def test_unknown_numbers_are_refused() -> None:
    with written() as tx:
        for look in (tx.holdout, tx.ladder):
            with pytest.raises(UnknownHoldout, match="number 7"):
                look(7)


def test_what_is_long_is_kept_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut or put together, whatever parts the bytes come in."""
    monkeypatch.setattr(log, "PART", 10)
    with written() as tx:
        number = registered(tx, "first")
        whole = bytes(range(64))
        for at, step in enumerate((1, 7, 10, 33, 64), 10):
            tx._keep(number, at, "mask", (whole[i : i + step] for i in range(0, 64, step)))
            lengths = [len(row[0]) for row in tx.rows(log.PIECES, number, at, "mask")]
            assert lengths == [10] * 6 + [4]
            assert tx.piece(number, at, "mask") == whole


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "äöü", ""], dtype=object),
        np.array(["a", "bc"]),
        np.arange(4, dtype=np.int32),
        np.array([0.1, -0.0, 1e-300]),
        np.eye(3)[:, ::2],
        np.array([True, False]),
    ],
)
def test_arrays_are_kept_without_pickling(array: Any) -> None:
    stored = arrays.to_bytes(array)
    found = arrays.from_bytes(stored)
    assert found.tolist() == array.tolist()
    assert not re.search(rb"numpy\.core|numpy\._core|_reconstruct", stored)
    for other in (pickle.dumps(array), b"", stored[:-1], stored + b"0", stored[:40]):
        with pytest.raises(ValueError):
            arrays.from_bytes(other)
        with pytest.raises(LedgerError):
            arrays.unpacked(other)


def test_the_rules_of_a_ladder_are_made_once(tmp_path: Path) -> None:
    """They are asked for several times in each submission, and never change."""
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger=tmp_path / "ledger.db")
    with pytest.warns(KnownHoldoutWarning):
        LadderHoldout(X, y, scoring="balanced_accuracy", ladder="other", ledger=holdout.ledger)
    read = []
    for _ in range(2):
        with Ledger(holdout.ledger).read() as tx:
            read.append([one.settings for one in tx.ladders(1)])
    (first, other), (again, _) = read
    assert rules_of(first) is rules_of(again)
    assert stored_metric(first) is stored_metric(again)
    assert stored_metric(other).name == "balanced_accuracy"
