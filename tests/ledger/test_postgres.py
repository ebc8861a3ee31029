"""Attacks ledgers on PostgreSQL: secrets in sight, lost connections, restarts, races, forks."""

from __future__ import annotations

import gc
import itertools
import json
import os
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from ladderholdout.cli import app
from ladderholdout.errors import (
    HoldoutConflict,
    LedgerBusy,
    LedgerError,
    LedgerUnreachable,
    OverlapError,
)
from ladderholdout.guard.health import ledger_findings, verify_holdout
from ladderholdout.ledger import Ledger, backup, holdout_names, resolve_url, shown, store
from ladderholdout.ledger import postgres as servers
from ladderholdout.ledger.place import Access, file_of
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms import FullDisclosure, PairedTestLadder
from tests.support.commands import CliRunner
from tests.support.holdouts import assert_replays, coins, guesses, is_repeat, repeats
from tests.support.interrupts import aside, in_transactions, interrupted, lines_of
from tests.support.ledgers import chained, entries_of
from tests.support.mlflow_stores import new_store
from tests.support.postgres import Server, name_of, proxied, server
from tests.support.processes import PATIENCE, at_once, elsewhere

pytestmark = pytest.mark.processes

CANARY = "canary-7f3a"
# As it is sent; BEGIN speaks of READ COMMITTED.
COMMIT = b"COMMIT\0"


def opened(ledger: str, seed: int = 0, **given: Any) -> LadderHoldout:
    settings = {"scoring": "accuracy", "name": "coins", "mechanism": FullDisclosure()} | given
    return LadderHoldout(*coins(seed=seed), ledger=ledger, **settings)


def with_options(url: str, **options: str) -> str:
    return url + "".join(f"&{name}={value}" for name, value in options.items())


# Where it lies


def test_a_url_names_a_server_a_database_and_a_timeout() -> None:
    url = resolve_url("postgresql://ada@db.example:5433/team?sslmode=verify-full&timeout=5")
    assert url.startswith("postgresql://ada@db.example:5433/team?")
    assert resolve_url(url) == url == resolve_url(url.replace("://", "+psycopg://"))
    assert file_of(url) is None


@pytest.mark.parametrize(
    "ledger",
    [
        f"postgresql://ada:{CANARY}@db.example/team",
        f"postgresql+psycopg://ada:{CANARY}@db.example/team?sslmode=require&timeout=3",
        f"postgresql://ada@db.example/team?password={CANARY}",
        f"postgresql://ada@/team?host=/run&password={CANARY}",
    ],
)
def test_a_password_is_shown_nowhere(ledger: str) -> None:
    url = resolve_url(ledger)
    assert CANARY in url
    assert CANARY not in shown(url)
    assert "ada:***@" in shown(url)


def test_a_password_stays_out_of_all_that_is_said(
    database: str, postgres: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    url = database.replace("postgres@", f"postgres:{CANARY}@")
    holdout = opened(url)
    with holdout.track(tracking_uri=new_store(tmp_path / "mlflow")):
        holdout.submit(guesses(0, 1)[0])
    tracked = b"".join(path.read_bytes() for path in (tmp_path / "mlflow").glob("mlflow.db*"))
    assert b"postgres:***@" in tracked and CANARY.encode() not in tracked
    said = [
        repr(holdout),
        str(holdout.status()),
        repr(holdout.status()),
        repr(holdout.owner.audit()),
    ]
    said += [str(one) for one in ledger_findings(holdout.ledger)]
    runner = CliRunner(env={"LADDERHOLDOUT_LEDGER": url})
    for words in (
        ["status"],
        ["status", "coins", "--json"],
        ["verify", "--installation"],
        ["backup", "x"],
    ):
        said.append(runner.invoke(app, words).output)
    missing = url.replace(name_of(url), "nowhere")
    for nowhere in (missing, url.replace("host=", "host=/nowhere") + "&timeout=0.1"):
        with pytest.raises(LedgerError) as caught:
            Ledger(resolve_url(nowhere))
        said += [str(caught.value), repr(caught.value.__context__)]
    with pytest.raises(LedgerError) as caught, Ledger(holdout.ledger).write() as tx:
        tx.db.send("SELECT 1/0")
    said += [str(caught.value), caplog.text]
    assert CANARY not in "\n".join(said)
    assert "postgres:***@" in said[0] and "postgres:***@" in said[1]


def test_a_missing_driver_is_named(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"pip install 'ladderholdout\[postgres\]'"):
        Ledger(resolve_url(database + "&application_name=bare"))


def test_two_programs_may_share_a_database(database: str, postgres: Server) -> None:
    """Optuna and MLflow have a table of Alembic's, too."""
    name = name_of(database)
    postgres.sql("CREATE TABLE alembic_version (version_num TEXT)", name)
    postgres.sql("CREATE TABLE studies (id INTEGER)", name)
    assert opened(database).submit(guesses(0, 1)[0]).submission == 1
    tables = postgres.sql(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'ladderholdout'", name
    )
    assert ("log",) in tables and len(tables) == 7


def test_an_empty_database_is_no_ledger_until_it_is_given_rows(database: str) -> None:
    for way_in in (
        lambda: Ledger(resolve_url(database)),
        lambda: LadderHoldout.open("coins", ledger=database),
    ):
        with pytest.raises(LedgerError, match=r"is empty.*LadderHoldout\(X, y, \.\.\.\)"):
            way_in()
    assert holdout_names(resolve_url(database)) == ()


def test_the_schema_of_another_program_is_refused_and_left_alone(
    database: str, postgres: Server
) -> None:
    postgres.sql("CREATE SCHEMA ladderholdout", name_of(database))
    postgres.sql("CREATE TABLE ladderholdout.trials (id INTEGER)", name_of(database))
    with pytest.raises(LedgerError, match="belongs to another program"):
        opened(database)


def test_a_user_without_rights_is_told_which(database: str, postgres: Server) -> None:
    name = name_of(database)
    postgres.sql("DROP ROLE IF EXISTS ada; CREATE ROLE ada LOGIN")
    as_ada = database.replace("postgres@", "ada@")
    with pytest.raises(LedgerError, match=r"lacks a right.*CREATE on the database"):
        opened(as_ada)
    # An administrator can make the schema, so that nobody else needs a right on the database.
    postgres.sql("CREATE SCHEMA ladderholdout AUTHORIZATION ada", name)
    assert opened(as_ada).submit(guesses(0, 1)[0]).submission == 1


# How it is opened


def settings_of(url: str, *names: str) -> list[str]:
    with Ledger(resolve_url(url)).read() as tx:
        return [tx.db.send(f"SHOW {name}").fetchone()[0] for name in names]


def test_a_commit_is_durable_whatever_the_server_defaults_to(
    database: str, postgres: Server
) -> None:
    name = name_of(database)
    postgres.sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    postgres.sql(f"ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'")
    holdout = opened(database)
    assert settings_of(database, "synchronous_commit", "timezone") == ["on", "UTC"]
    holdout.submit(guesses(0, 1)[0])
    assert verify_holdout(holdout.ledger, "coins").findings == ()
    # A server that waits for its standbys goes on doing so.
    postgres.sql(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    assert settings_of(database + "&application_name=later", "synchronous_commit") == [
        "remote_apply"
    ]


def connections(postgres: Server, url: str) -> int:
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name_of(url)}'"
    ((found,),) = postgres.sql(query)
    assert isinstance(found, int)
    return found


def test_a_process_keeps_one_connection_and_a_fork_opens_its_own(
    database: str, postgres: Server
) -> None:
    assert elsewhere(fork_and_submit, opened(database).ledger) == [1, 2, 3, 4, 5]
    assert connections(postgres, database) == 1  # ours: those of the dead are gone


def fork_and_submit(url: str) -> list[int]:
    """Submit in turn with a fork that inherits an open connection, and ends as forks do."""
    holdout = LadderHoldout.open("coins", ledger=url)
    numbers = []
    for turn in range(5):
        one = guesses([1, turn], 1)[0]
        if turn % 2 == 0:
            numbers.append(holdout.submit(one).submission)
            continue
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            store._inherited.clear()  # as when the interpreter ends
            os.write(writer, bytes([holdout.submit(one).submission]))
            os._exit(0)
        os.waitpid(child, 0)
        numbers.append(os.read(reader, 1)[0])
    return numbers


# Waiting for others


def test_a_writer_gives_up_after_the_timeout(database: str) -> None:
    holdout, url = opened(database), resolve_url(database)
    other = LadderHoldout.open("coins", ledger=with_options(database, timeout="0.2"))
    for access in (Access.LADDER, Access.ALL):
        with Ledger(url).write(access) as tx:
            tx.locked_ladder(holdout.__ladder__.id)
            with pytest.raises(LedgerBusy, match=r"stayed locked.*timeout=300"):
                other.submit(guesses(1, 1)[0])
            assert other.status().submissions == 0  # looking is free
    assert other.submit(guesses(1, 1)[0]).submission == 1


def test_holdouts_do_not_wait_for_each_other(database: str) -> None:
    ours, theirs = opened(database), opened(database, seed=1, name="others")
    with Ledger(ours.ledger).write(Access.LADDER) as tx:
        tx.locked_ladder(ours.__ladder__.id)
        assert theirs.submit(guesses(0, 1)[0]).submission == 1


def test_those_who_wait_for_each_other_are_both_served(database: str) -> None:
    """The server undoes one of two that hold what the other wants; it is done again."""
    url = with_options(database, options="-c%20deadlock_timeout%3D20ms")
    ladders = [opened(url).__ladder__.id, opened(url, seed=1, name="others").__ladder__.id]
    both, tries = threading.Barrier(2), []

    def take(order: list[int]) -> None:
        def body(tx: Transaction) -> None:
            tries.append(order)
            tx.locked_ladder(order[0])
            if tries.count(order) == 1:
                both.wait(PATIENCE)
            tx.locked_ladder(order[1])

        Ledger(resolve_url(url)).transact(body, Access.LADDER)

    with ThreadPoolExecutor(2) as pool:
        for one in [pool.submit(take, ladders), pool.submit(take, ladders[::-1])]:
            one.result(PATIENCE)
    assert len(tries) == 3


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_what_the_server_undoes_is_done_again(database: str, state: str, tmp_path: Path) -> None:
    holdout, tries = opened(database), []

    def body(tx: Transaction) -> int:
        ladder = tx.locked_ladder(holdout.__ladder__.id)
        tx.set_vault(1, str(tmp_path / f"try {len(tries)}"), None, 1)
        tries.append(ladder)
        if len(tries) < 4:
            tx.db.send(f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$")
        return len(tries)

    assert Ledger(holdout.ledger).transact(body) == 4
    with Ledger(holdout.ledger).read() as tx:
        assert tx.holdout(1).vault_path == str(tmp_path / "try 3")


# Connections that are lost


class Deaf:
    """Cuts connections at commits while it is armed: at half of them, never at three on end."""

    def __init__(self) -> None:
        self.armed, self._moments = False, itertools.cycle([True, False, True, True, False, False])

    def __call__(self, said: bytes) -> bool:
        return self.armed and COMMIT in said and next(self._moments)


def test_a_commit_whose_answer_was_lost_is_answered_once(database: str, postgres: Server) -> None:
    """The entry stands, and is found again: no repeat of itself, and no second one."""
    holdout, deaf = (
        opened(database, mechanism=PairedTestLadder(alpha=0.3), show="improvements", reserve=0.5),
        Deaf(),
    )
    with proxied(postgres, deaf) as proxy:
        distant = LadderHoldout.open("coins", ledger=postgres.url(name_of(database), proxy.folder))
        distant.submit(guesses(0, 1)[0])
        # A connection that has said COMMIT five times prepares it, and says its name from then on.
        store.source(distant.__ladder__.ledger).dispose()
        deaf.armed = True
        for turn, one in enumerate([*guesses(1, 5), *guesses(1, 5)]):
            told = distant.submit(one)
            assert (told.submission, is_repeat(holdout, told)) == (2 + turn, turn >= 5)
        assert proxy.cuts > 5
        assert distant.reserve_certificate().reserve_query == 1
        assert distant.reveal() is not None
        assert distant.owner.retire().retired is not None
        assert proxy.cuts > 10
    assert [one.repeat_of for one in entries_of(holdout)] == [None] * 6 + [2, 3, 4, 5, 6]
    kinds = chained(holdout)
    assert [kinds.count(kind) for kind in ("reservequeried", "revealed", "retired")] == [1, 1, 1]
    assert verify_holdout(holdout.ledger, "coins").findings == ()


def test_a_connection_that_is_cut_at_any_message_loses_and_doubles_nothing(
    database: str, postgres: Server
) -> None:
    holdout = opened(database)
    messages, deadly = itertools.count(), -1

    def cut(_: bytes) -> bool:
        return next(messages) == deadly

    with proxied(postgres, cut) as proxy:
        distant = LadderHoldout.open("coins", ledger=postgres.url(name_of(database), proxy.folder))
        distant.submit(guesses(0, 1)[0])
        # More turns than a submission has messages. A late one of a connection that is gone already
        # may be the deadly one, so the first turn that cuts nothing is not the end.
        for turn in range(1, 13):
            holdout.submit(guesses([2, turn], 1)[0])  # so that the next one reads first
            deadly = next(messages) + turn
            told = distant.submit(guesses([1, turn], 1)[0])
            assert (told.submission, is_repeat(holdout, told)) == (2 * turn + 1, False)
        assert proxy.cuts > 2  # what begins and asks, what is written and committed, their answers
    assert len(holdout.history()) == 2 * turn + 1
    assert_replays(holdout)


def test_a_commit_of_which_nothing_can_be_learnt_is_not_called_undone(
    database: str, postgres: Server
) -> None:
    """Somebody holds the ledger for longer than the timeout, right after the answer was lost."""
    holdout, over = opened(database), threading.Event()

    def hold() -> None:
        with Ledger(holdout.ledger).write():
            over.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        held: list[Any] = []

        def cut(said: bytes) -> bool:
            if COMMIT in said and b"submit" in stage and not held:
                held.append(pool.submit(hold))  # waits for the commit, and then holds on
                return True
            return False

        stage = b""
        with proxied(postgres, cut) as proxy:
            url = postgres.url(name_of(database), proxy.folder) + "&timeout=0.5"
            distant = LadderHoldout.open("coins", ledger=url)
            distant.__ladder__.guard()  # the rows are read before the fault
            store.source(distant.__ladder__.ledger).dispose()  # as above
            stage = b"submit"
            try:
                with pytest.raises(LedgerUnreachable, match=r"Run this again|run this again"):
                    distant.submit(guesses(0, 1)[0])
            finally:
                over.set()
            held[0].result(PATIENCE)
            again = distant.submit(guesses(0, 1)[0])
    assert (again.submission, is_repeat(holdout, again)) == (2, True)


def submit_all(url: str, seed: Any, k: int) -> list[tuple[int, float, bool]]:
    holdout = LadderHoldout.open("coins", ledger=url)
    releases = [holdout.submit(one) for one in guesses(seed, k)]
    return [(one.submission, float(one.score or 0), one.improved) for one in releases]


def test_connections_that_the_server_ends_at_random_moments_lose_nothing(
    database: str, postgres: Server
) -> None:
    """Moments of the server's: each time that eight more submissions are on record."""
    holdout, over = opened(database), threading.Event()
    killed = [0]

    def kill() -> None:
        for moment in range(8, 80, 8):
            while holdout.status().submissions < moment and not over.wait(0.001):
                pass
            found = postgres.sql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                f"WHERE datname = '{name_of(database)}'"
            )
            killed[0] += int(str(found[0][0]))

    with ThreadPoolExecutor(1) as killer:
        running = killer.submit(kill)
        try:
            told = at_once([(submit_all, holdout.ledger, [2, i], 50) for i in range(2)])
        finally:
            over.set()
            running.result(PATIENCE)
    check_told(holdout, told, 100)
    assert killed[0] > 5


def test_pauses_grow_only_while_no_connection_is_made(database: str) -> None:
    source = servers.source(database)
    pauses, waited = source.pauses(), []
    for _ in range(20):
        source.undo(source.connect(), interrupted=True)
        waited.append(next(pauses))
    assert max(waited) <= 0.05
    assert max(itertools.islice(pauses, 20)) > 0.05  # 20 below it: once in 1e17


def check_told(holdout: LadderHoldout, told: list[Any], entries: int) -> None:
    """Every answer is an entry of its own, and there are no others."""
    history = holdout.history()
    assert [one.number for one in history] == list(range(1, entries + 1))
    numbers = [number for answers in told for number, *_ in answers]
    assert sorted(numbers) == list(range(1, entries + 1))
    for number, score, improved in (one for answers in told for one in answers):
        kept = history[number - 1]
        assert (kept.score, kept.improved) == (score, improved)
    assert repeats(holdout) == 0
    assert_replays(holdout)
    assert verify_holdout(holdout.ledger, "coins").findings == ()


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that can be stopped: whoever stops it starts it again."""
    with server() as running:
        yield running


def test_a_server_that_restarts_in_mid_search_only_delays(
    own: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    holdout = opened(own.database())
    over, restarts = threading.Event(), []

    def restart() -> None:
        for how, moment in (("immediate", 20), ("fast", 60)):
            while holdout.status().submissions < moment and not over.is_set():
                time.sleep(0.01)
            own.stop(how)
            restarts.append(over.is_set())
            own.start()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(restart)
        try:
            # So many that the second restart comes in their midst on a fast machine too.
            told = at_once([(submit_all, holdout.ledger, [3, i], 300) for i in range(2)])
        finally:
            over.set()
        running.result(PATIENCE)
    assert restarts == [False, False]
    check_told(holdout, told, 600)


@pytest.mark.nightly
def test_a_grid_search_goes_on_when_the_server_restarts_under_it(
    own: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    holdout = opened(own.database())
    deadly = {5: "immediate", 20: "fast"}

    class Guess(DummyClassifier):
        def __init__(self, level: int = 0) -> None:
            super().__init__()
            self.level = level

        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            if self.level in deadly:
                own.stop(deadly[self.level])
                own.start()
            return super().fit(X, y, sample_weight)

        def predict(self, X: Any) -> Any:
            return np.random.default_rng(self.level).integers(0, 2, len(X))

    search = GridSearchCV(
        Guess(),
        {"level": list(range(40))},
        scoring=holdout,
        cv=holdout.split(),
        refit=False,
        n_jobs=2,
    )
    search.fit(*coins(seed=5))
    history = entries_of(holdout)
    assert sorted(one.context["parameters"]["level"] for one in history) == list(range(40))
    assert [one.repeat_of for one in history] == [None] * 40
    assert verify_holdout(holdout.ledger, "coins").findings == ()


def test_a_server_that_stays_away_stops_the_search_and_loses_nothing(
    own: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    holdout = opened(own.database() + "&timeout=0.5")

    class Fatal(DummyClassifier):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            if self.constant == 1:
                own.stop()
            return super().fit(X, y, sample_weight)

    X, y = coins(seed=5)
    search = GridSearchCV(
        Fatal(strategy="constant"),
        {"constant": [0, 1]},
        scoring=holdout,
        cv=holdout.split(),
        refit=False,
    )
    with pytest.raises(SearchStopped, match=r"does not answer.*pg_isready"):
        search.fit(X, y)
    assert not hasattr(search, "cv_results_")
    with pytest.raises(LedgerUnreachable, match="does not answer"):
        holdout.submit(guesses(1, 1)[0])
    own.start()
    assert holdout.submit(guesses(1, 1)[0]).submission == 2
    assert_replays(holdout)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("53100", "the server's disk is full. Free some space"),
        ("58030", "the server's disk reports a fault"),
        ("XX001", "damaged. Restore it from a backup"),
        ("57014", "cancelled a statement"),
        ("22003", "PostgreSQL refuses (22003)"),
    ],
)
def test_what_a_server_says_is_put_in_words(database: str, state: str, said: str) -> None:
    holdout = opened(database)

    def body(tx: Transaction) -> None:
        tx.set_vault(1, "nowhere", None, 1)
        tx.db.send(f"DO $$ BEGIN RAISE '{CANARY}' USING ERRCODE = '{state}'; END $$")

    with pytest.raises(LedgerError, match=re.escape(said)) as caught:
        Ledger(holdout.ledger).transact(body)
    assert CANARY not in str(caught.value)
    assert (
        holdout.__ladder__.read(lambda tx, one: tx.holdout(one.holdout_id)).vault_path != "nowhere"
    )


def test_a_server_that_was_never_there_is_said_to_be_away(tmp_path: Path) -> None:
    """The test would not end if it were waited for beyond the timeout."""
    with pytest.raises(LedgerUnreachable, match="does not answer"):
        opened(f"postgresql://ada@/team?host={tmp_path}&timeout=0.3")
    with pytest.raises(LedgerError, match="the server refuses, or it cannot be reached"):
        opened("postgresql://ada@no-such-host.invalid/team")


def test_a_read_only_server_is_refused(database: str, postgres: Server) -> None:
    holdout = opened(database)
    url = with_options(database, options="-c%20transaction_read_only%3Don")
    postgres.sql(f"ALTER DATABASE {name_of(database)} SET default_transaction_read_only = on")
    late = LadderHoldout.open("coins", ledger=url)
    assert late.status().submissions == 0
    with pytest.raises(LedgerError, match="read-only, perhaps a standby"):
        late.submit(guesses(0, 1)[0])
    assert holdout.status().submissions == 0


# The schema


def test_holdouts_that_share_rows_are_counted_on_a_server_too(database: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 1)), rng.integers(0, 2, 60)
    settings = {"scoring": "accuracy", "overlap": "ignore", "vault": False, "reserve": 0.4}
    a = LadderHoldout(X[:40], y[:40], name="A", ledger=database, **settings)
    b = LadderHoldout(X[20:], y[20:], name="B", ledger=database, **settings)
    a.submit(1 - y[:40])
    alone = a.certificate().log_count, a.reserve_certificate().log_count
    for wrong in (20, 10):
        b.submit(np.where(np.arange(40) < wrong, 1 - y[20:], y[20:]))
    b.reserve_certificate()
    a.submit(y[:40])
    found, looked = a.certificate(), a.reserve_certificate()
    assert None not in (found.log_count, looked.log_count, *alone)
    assert found.log_count > alone[0] + 2 and looked.log_count > alone[1] + 2
    b.owner.audit()
    assert (a.certificate(), a.reserve_certificate()) == (found, looked)
    assert dict(a.status().lines())["counted with it"] == "queries of B (20 rows): 2"


def test_fresh_rows_take_the_place_of_those_that_a_process_submits_to(database: str) -> None:
    """Who submits alone rests on the ladder as it was left: it is refused, and nothing is lost."""
    first = opened(database)
    for predictions in guesses(0, 3):
        first.submit(predictions)
    holdout = LadderHoldout.open("coins", ledger=database).replenish(*coins(seed=7))
    with pytest.raises(HoldoutConflict, match="Fresh rows took the place"):
        first.submit(guesses(1, 1)[0])
    assert [holdout.submit(guess).submission for guess in guesses(2, 3)] == [1, 2, 3]
    with pytest.raises(OverlapError):
        holdout.replenish(*coins(seed=7))
    third = holdout.replenish(*coins(seed=8))
    assert third.status().block == 3
    verified = verify_holdout(third.ledger, "coins")
    assert (verified.findings, verified.blocks, verified.submissions) == ((), 3, 6)


def test_another_format_is_refused(database: str, postgres: Server) -> None:
    holdout = opened(database)
    postgres.sql("UPDATE ladderholdout.ledger_format SET number = 9999", name_of(database))
    for use in (holdout.status, lambda: opened(database), lambda: Ledger(holdout.ledger)):
        with pytest.raises(LedgerError, match=r"format 9999.*Upgrade the package"):
            use()


# Looking after it


def test_the_doctor_sees_a_server_that_may_forget(database: str, postgres: Server) -> None:
    opened(database)
    found = {one.what: one for one in ledger_findings(resolve_url(database))}
    # The tests' own server does not wait for its disk.
    assert "fsync is off" in found["server's durability"].found
    assert found["ledger"].ok and found["vault of coins"].ok


def test_a_backup_says_what_does_it(database: str, postgres: Server, tmp_path: Path) -> None:
    holdout = opened(database)
    holdout.submit(guesses(0, 1)[0])
    with pytest.raises(LedgerError, match=r"pg_dump --schema=ladderholdout"):
        backup(holdout.ledger, tmp_path / "copy")
    name, copy = name_of(database), str(postgres.folder / f"{name_of(database)}.dump")
    place = ("-h", str(postgres.folder), "-U", "postgres")
    postgres.run("pg_dump", *place, "--schema=ladderholdout", "--format=custom", f"--file={copy}",
                 name)  # fmt: skip
    other = postgres.database()
    postgres.run("pg_restore", *place, "-d", name_of(other), copy)
    again = LadderHoldout.open("coins", ledger=other)
    assert is_repeat(again, again.submit(guesses(0, 1)[0]))
    assert verify_holdout(again.ledger, "coins").findings == ()


def test_a_handle_pickles_small_and_goes_on(database: str) -> None:
    holdout = opened(database)
    sent = pickle.dumps(holdout)
    assert len(sent) < 1000
    assert pickle.loads(sent) == holdout


def test_the_command_line_takes_its_url(database: str) -> None:
    holdout = opened(database)
    holdout.submit(guesses(0, 1)[0])
    runner = CliRunner(env={"LADDERHOLDOUT_LEDGER": database})
    found = json.loads(runner.invoke(app, ["status", "coins", "--json"]).output)
    assert (found["submissions"], found["ledger"]) == (1, shown(holdout.ledger))
    assert runner.invoke(app, ["verify", "coins"]).exit_code == 0


def test_a_driver_that_is_not_psycopg_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"pg8000.*which takes psycopg"):
        resolve_url("postgresql+pg8000://ada@db.example/team")


# Connections that stay open


def used(url: str, fault: BaseException | None = None) -> int:
    """The server's process that a transaction ran in; it ends with a fault, if there is one."""
    found: list[int] = []

    def ask(tx: Transaction) -> None:
        found.append(tx.db.send("SELECT pg_backend_pid()").fetchone()[0])
        if fault is not None:
            raise fault

    with suppress(KeyboardInterrupt, ZeroDivisionError):
        Ledger.opened(resolve_url(url)).transact(ask)
    return found[0]


def test_a_connection_goes_from_one_transaction_to_the_next(database: str) -> None:
    opened(database)
    assert used(database) == used(database)
    assert used(database, ZeroDivisionError()) == used(database)


def test_a_transaction_that_failed_leaves_nothing_on_its_connection(
    database: str, postgres: Server
) -> None:
    holdout = opened(database)

    def write(tx: Transaction) -> None:
        tx.locked_ladder(holdout.__ladder__.id)
        tx.db.send("UPDATE holdout SET length = 7")
        tx.db.send("SELECT 1 / 0")

    with pytest.raises(LedgerError):
        Ledger.opened(resolve_url(database)).transact(write, Access.LADDER)
    idle = "SELECT state FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    assert postgres.sql(idle) == []
    assert holdout.submit(coins()[1]).submission == 1


def test_a_connection_is_given_up_after_an_interrupt(database: str) -> None:
    opened(database)
    assert used(database, KeyboardInterrupt()) != used(database)


def assert_none_is_left_open(
    server: Server, holdout: LadderHoldout, prepare: Callable[[], None]
) -> int:
    """Interrupt a submission at each line, prepared each time; return how many lines there are."""
    y = coins()[1]
    left = (
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
        f"AND datname = '{name_of(holdout.ledger)}'"
    )
    prepare()
    places = lines_of(lambda: holdout.submit(y), in_transactions)
    hits = 0
    gc.disable()
    try:
        for place in places:
            prepare()
            fault = interrupted(lambda: holdout.submit(y), place, in_transactions)
            hits += isinstance(fault, KeyboardInterrupt)
            end = time.monotonic() + PATIENCE
            while server.sql(left) != [(0,)]:  # the server takes a moment to end it
                assert time.monotonic() < end, place
                time.sleep(0.01)
    finally:
        gc.enable()
    assert hits > 30
    return len(places)


@aside
def test_an_interrupt_at_any_line_of_a_transaction_leaves_none_open(
    database: str, postgres: Server
) -> None:
    holdout = opened(database)
    places = assert_none_is_left_open(postgres, holdout, lambda: None)
    assert holdout.submit(coins()[1]).submission <= places + 3


@aside
def test_an_interrupt_at_any_line_after_the_server_refused_leaves_none_open(
    database: str, postgres: Server
) -> None:
    """What rests on a ladder that has gone on is taken back, and done again."""
    holdout, other = opened(database), opened(f"{database}&timeout=77")

    def prepare() -> None:
        for one in (holdout, holdout, other):
            one.submit(coins()[1])

    assert_none_is_left_open(postgres, holdout, prepare)


def test_a_process_keeps_a_few_connections(database: str, postgres: Server) -> None:
    opened(database)
    waiting = threading.Barrier(12)

    def meet(_: int) -> None:
        with Ledger.opened(resolve_url(database)).read() as tx:
            tx.holdouts()
            waiting.wait()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(meet, range(12)))
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name_of(database)}'"
    end = time.monotonic() + PATIENCE
    while postgres.sql(query) != [(5,)]:  # the server takes a moment to end the others
        assert time.monotonic() < end
        time.sleep(0.05)
