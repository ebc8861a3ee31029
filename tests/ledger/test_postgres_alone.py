"""Attacks submissions that read nothing first: who submits alone rests on what it left itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from ladderholdout import LadderHoldout
from ladderholdout.errors import (
    HoldoutConflict,
    KnownHoldoutWarning,
    LedgerBusy,
    LedgerError,
    LedgerUnreachable,
    OpenedWarning,
)
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.ledger import Ledger, resolve_url, store
from ladderholdout.ledger.place import Access
from ladderholdout.ledger.postgres import ServerConnection, Stale
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms import FullDisclosure
from tests.support.holdouts import assert_replays, coins, guesses, is_repeat
from tests.support.ledgers import entries_of, predictions_kept, record
from tests.support.postgres import Server, name_of, proxied

pytestmark = pytest.mark.processes


def opened(ledger: str, **given: Any) -> LadderHoldout:
    settings = {"scoring": "accuracy", "name": "coins", "mechanism": FullDisclosure()} | given
    return LadderHoldout(*coins(), ledger=ledger, **settings)


def elsewhere(ledger: str) -> LadderHoldout:
    """Open the same ladder as another process does: with connections and rows of its own."""
    return LadderHoldout.open("coins", ledger=f"{ledger}&timeout=77")


def alone(ledger: str, **given: Any) -> LadderHoldout:
    """Open a ladder, and submit to it until the next submission reads nothing first."""
    holdout = opened(ledger, **given)
    for guess in guesses(1, 2):
        holdout.submit(guess)
    return holdout


@dataclass
class Trips:
    """What was sent to the server, and how often it was waited for, the commits beside."""

    sent: list[str]
    waits: int = 0
    commits: int = 0

    def clear(self) -> None:
        self.sent.clear()
        self.waits = self.commits = 0


class Cursor:
    """A cursor that counts the waits for its rows; what came with other rows is there already."""

    def __init__(self, cursor: Any, trips: Trips) -> None:
        self._cursor, self._trips = cursor, trips

    def __getattr__(self, name: str) -> Any:
        self._trips.waits += name.startswith("fetch") and self._cursor.pgresult is None
        return getattr(self._cursor, name)

    def __iter__(self) -> Any:
        return iter(self.fetchall())


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    trips = Trips([])
    send, settle = ServerConnection.send, ServerConnection.settle

    def sending(conn: ServerConnection, statement: str, values: Any = ()) -> Any:
        trips.sent.append(statement)
        return Cursor(send(conn, statement, values), trips)

    def settling(conn: ServerConnection) -> None:
        trips.commits += conn.sent is not None
        settle(conn)

    monkeypatch.setattr(ServerConnection, "send", sending)
    monkeypatch.setattr(ServerConnection, "settle", settling)
    return trips


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[Stale]:
    """What the server did not commit, since it rested on a ladder that had changed."""
    found: list[Stale] = []
    first = Stale.__init__

    def made(error: Stale, *given: Any) -> None:
        found.append(error)
        first(error, *given)

    monkeypatch.setattr(Stale, "__init__", made)
    return found


def assert_whole(holdout: LadderHoldout) -> None:
    assert verify_holdout(holdout.ledger, "coins").findings == ()
    assert_replays(holdout)


def test_who_submits_alone_waits_for_nothing_before_the_commit(database: str, trips: Trips) -> None:
    holdout = alone(database)
    trips.clear()
    for number, guess in enumerate(guesses(2, 20), 3):
        assert holdout.submit(guess).submission == number
    assert (trips.waits, trips.commits) == (0, 20)
    assert_whole(holdout)


def test_two_who_submit_in_turn_read_first_and_lose_nothing(
    database: str, trips: Trips, refused: list[Stale]
) -> None:
    both = [alone(database), elsewhere(database)]
    for number, guess in enumerate(guesses(2, 20), 3):
        assert both[number % 2].submit(guess).submission == number
    trips.clear()
    refused.clear()
    for number, guess in enumerate(guesses(3, 4), 23):
        assert both[number % 2].submit(guess).submission == number
    # One trip for the events that are new and for what is known of the predictions, and one to
    # commit: nothing was sent in vain.
    assert (trips.waits, trips.commits, refused) == (4, 4, [])
    both[0].submit(guesses(4, 1)[0])
    both[0].submit(guesses(5, 1)[0])
    trips.clear()
    both[0].submit(guesses(6, 1)[0])
    assert trips.waits == 0
    assert_whole(both[0])


def test_a_repeat_is_answered_from_memory(
    database: str, refused: list[Stale], trips: Trips
) -> None:
    holdout = alone(database)
    first = holdout.submit(coins()[1])
    assert first.improved and first.score == 1.0
    (worse,) = guesses(2, 1)
    holdout.submit(worse)
    trips.clear()
    again, no_better = holdout.submit(coins()[1]), holdout.submit(worse)
    assert trips.waits == 0 and refused == []
    assert is_repeat(holdout, again) and again.is_incumbent and again.score == first.score
    assert again.improvements == first.improvements
    assert is_repeat(holdout, no_better) and not no_better.improved
    # One that was submitted elsewhere, which is not remembered here.
    theirs = elsewhere(database).submit(guesses(3, 1)[0])
    for guess in guesses(4, 3):
        holdout.submit(guess)
    refused.clear()
    late = holdout.submit(guesses(3, 1)[0])
    assert entries_of(holdout)[late.submission - 1].repeat_of == theirs.submission
    assert len(refused) == 1
    assert_whole(holdout)


def test_who_repeats_what_others_submitted_is_refused_once(
    database: str, refused: list[Stale], trips: Trips
) -> None:
    holdout, other = alone(database), elsewhere(database)
    rows = [*guesses(2, 9), coins()[1]]
    for row in rows:
        other.submit(row)
    for guess in guesses(3, 3):
        holdout.submit(guess)
    refused.clear()
    numbers = [holdout.submit(row).submission for row in rows]
    assert len(refused) == 1
    assert [entries_of(holdout)[one - 1].repeat_of for one in numbers] == [*range(3, 13)]
    # Now they are remembered here as well.
    trips.clear()
    holdout.submit(guesses(4, 1)[0])
    trips.clear()
    again = [holdout.submit(row) for row in rows]
    assert trips.waits == 0 and len(refused) == 1
    assert all(is_repeat(holdout, one) for one in again) and again[-1].is_incumbent
    assert_whole(holdout)


def test_what_was_withdrawn_elsewhere_is_not_answered_from_memory(
    database: str, tmp_path: Path
) -> None:
    holdout, same = alone(database), opened(str(tmp_path / "same.db"))
    for guess in guesses(1, 2):
        same.submit(guess)
    found = []
    for one, other in ((holdout, elsewhere(database)), (same, same)):
        best = one.submit(coins()[1])
        other.owner.withdraw(best.submission, reason="leaked")
        answers = [one.submit(guess) for guess in (*guesses(2, 3), coins()[1])]
        found.append((answers, [entry.repeat_of for entry in entries_of(one)]))
        assert_whole(one)
    assert found[0] == found[1]


def test_rounds_of_a_fit_and_candidates_of_a_batch_are_written_unread(
    database: str, tmp_path: Path, trips: Trips
) -> None:
    found = []
    rows, y = [*guesses(5, 4)], coins()[1]
    # Of one transaction, some twice, some known before; the last ones improve.
    together = [[rows[0], rows[1], rows[1], y], [rows[2], y, rows[0], rows[3]]]
    for ledger in (database, str(tmp_path / "file.db")):
        holdout = opened(ledger)
        ladder = holdout.__ladder__
        trips.clear()
        ladder.submit_all(list(guesses(6, 2)), [Origin(batch="search")] * 2)
        trips.clear()
        answers = [
            ladder.submit_all([guess], [Origin(batch="search")])[0] for guess in guesses(7, 3)
        ]
        for at, each in enumerate(together):
            context = [{"round": number} for number, _ in enumerate(each)]
            origins = [Origin(batch=f"fit {at}", context=one) for one in context]
            answers += ladder.submit_all(each, origins)
        if ledger == database:
            assert trips.waits == 0
        assert predictions_kept(holdout, of="candidates") == [1, 2, 3, 4, 5]
        found.append((answers, [entry.repeat_of for entry in entries_of(holdout)]))
        assert_whole(holdout)
    assert found[0] == found[1]


def test_several_are_asked_for_before_any_is_waited_for(database: str, trips: Trips) -> None:
    """The ladders of several metrics; and the rows of a reserve beside all others."""
    several = opened(database, scoring=["accuracy", "f1", "roc_auc"], mechanism=None)
    several.submit({"labels": coins()[1], "scores": coins()[1] / 2})
    trips.clear()
    several.submit({"labels": guesses(1, 1)[0], "scores": coins()[1] / 3})
    # The first ladder, and then the two others at once.
    assert trips.waits == 2
    X, y = coins(seed=1)
    reserved = LadderHoldout(
        X, y, scoring="accuracy", name="reserved", reserve=0.5, ledger=database
    )
    for guess in (guesses(1, 1)[0], y, y):
        reserved.submit(guess)
        trips.clear()
        reserved.submit(guess)
        assert trips.waits == 1


def test_with_a_reserve_rounds_that_agree_elsewhere_are_asked_for_as_others_are(
    database: str, trips: Trips
) -> None:
    holdout = opened(database, reserve=0.5)
    kept = record(holdout)[0].reserve
    ladder, order, found = holdout.__ladder__, holdout.__ladder__.guard().order, []
    ladder.submit_all(list(guesses(1, 1)), [Origin()])
    for at, both in enumerate(guesses((2, at), 2) for at in range(2)):
        if at:
            # They agree on what the ladder measures. The reserve is by the order of the content.
            ordered = both[0][order].copy()
            ordered[kept] = 1 - ordered[kept]
            both[1][order] = ordered
        trips.clear()
        ladder.submit_all(both, [Origin()] * 2)
        found.append([one for one in trips.sent if one.startswith("SELECT")])
    assert found[0] == found[1]
    last = record(holdout)[2][-2:]
    assert last[0].entry.digest == last[1].entry.digest
    assert last[0].reserve_digest != last[1].reserve_digest


def test_the_batch_of_a_ladder_is_known_from_what_was_committed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = opened(database), elsewhere(database)
    append, calls = Transaction.append, []

    def appending(*given: Any, **settings: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise LedgerBusy("at the second round")
        return append(*given, **settings)

    monkeypatch.setattr(Transaction, "append", appending)
    ladder = ours.__ladder__
    with pytest.raises(LedgerBusy):
        ladder.submit_all(list(guesses(1, 2)), [Origin(batch="a")] * 2)
    theirs.__ladder__.submit_all(list(guesses(2, 1)), [Origin(batch="b")])
    for at, batch in enumerate("ab"):
        ladder.submit_all(list(guesses((3, at), 1)), [Origin(batch=batch)])
    assert predictions_kept(ours, of="candidates") == [1, 3]


def test_a_key_that_is_known_gets_its_first_answer(database: str) -> None:
    holdout = alone(database)
    ladder, key = holdout.__ladder__, Origin(key="trial 1")
    first = ladder.submit_all([coins()[1]], [key])[0]
    for guess in guesses(2, 3):
        ladder.submit_all([guess], [Origin()])
    again = ladder.submit_all(list(guesses(3, 1)), [key])[0]
    assert entries_of(holdout)[again.submission - 1].repeat_of == first.submission
    assert again.score == first.score == 1.0
    # These predictions themselves are no repeat.
    for guess in guesses(4, 2):
        ladder.submit_all([guess], [Origin()])
    assert not is_repeat(holdout, ladder.submit_all(list(guesses(3, 1)), [Origin()])[0])
    assert_whole(holdout)


def by_another_submission(holdout: LadderHoldout) -> None:
    assert holdout.submit(coins()[1]).improved


def by_an_audit(holdout: LadderHoldout) -> None:
    holdout.owner.audit()


def by_another_ladder(holdout: LadderHoldout) -> None:
    with pytest.warns(KnownHoldoutWarning, match="They count together"):
        opened(holdout.ledger, account="other")


def by_a_withdrawal(holdout: LadderHoldout) -> None:
    assert holdout.status().incumbent is not None
    holdout.owner.withdraw(holdout.status().incumbent, reason="leaked")


CHANGES = [by_another_submission, by_an_audit, by_another_ladder, by_a_withdrawal]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_a_ladder_that_was_changed_elsewhere_is_read_before_the_answer(
    database: str, tmp_path: Path, change: Callable[[LadderHoldout], None]
) -> None:
    holdout, same = alone(database), opened(str(tmp_path / "same.db"))
    for guess in guesses(1, 2):
        same.submit(guess)
    change(elsewhere(database))
    change(same)
    guess = guesses(2, 1)[0]
    if change is by_an_audit:
        with pytest.warns(OpenedWarning):
            found = holdout.submit(guess)
        with pytest.warns(OpenedWarning):
            expected = same.submit(guess)
    else:
        found, expected = holdout.submit(guess), same.submit(guess)
    assert found == expected
    assert_whole(holdout)


def test_labels_that_were_amended_elsewhere_measure_the_next_submission(database: str) -> None:
    holdout = alone(database)
    X, y = coins()
    y[0] = 1 - y[0]
    with pytest.warns(KnownHoldoutWarning, match="amend"):
        LadderHoldout(
            X, y, scoring="accuracy", name="coins", mechanism=FullDisclosure(),
            ledger=f"{database}&timeout=77",
        )  # fmt: skip
    assert holdout.submit(y).score == 1.0
    assert_whole(holdout)


def test_a_holdout_that_was_retired_elsewhere_takes_no_more(database: str) -> None:
    holdout = alone(database)
    elsewhere(database).owner.retire()
    with pytest.raises(HoldoutConflict):
        holdout.submit(guesses(2, 1)[0])
    assert len(entries_of(holdout)) == 2


def test_a_ledger_that_got_another_format_meanwhile_is_refused(
    database: str, postgres: Server
) -> None:
    holdout = alone(database)
    Ledger(resolve_url(database)).transact(
        lambda tx: tx.db.send("UPDATE ledger_format SET number = 9999")
    )
    with pytest.raises(LedgerError, match="format 9999"):
        holdout.submit(guesses(2, 1)[0])


def test_threads_that_submit_at_once_get_one_order(database: str) -> None:
    holdout, other = alone(database), elsewhere(database)
    other.submit(guesses(2, 1)[0])

    def submit(at: int) -> list[int]:
        one = holdout if at % 2 else other
        return [one.submit(guess).submission for guess in guesses((3, at), 15)]

    with ThreadPoolExecutor(6) as pool:
        numbers = sorted(number for own in pool.map(submit, range(6)) for number in own)
    assert numbers == list(range(4, 4 + 6 * 15))
    assert_whole(holdout)


def test_who_waited_for_another_submission_does_not_answer_as_of_before(
    database: str, refused: list[Stale]
) -> None:
    """The lock is free only when the other one has committed: what was left is old by then."""
    holdout, other = alone(database), elsewhere(database)
    locked = threading.Event()
    other.__ladder__.guard()

    def hold(tx: Transaction) -> None:
        tx.locked_ladder(other.__ladder__.id)
        locked.set()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not tx.db.send(waiting).fetchone()[0]:
            tx.db.send("SELECT pg_sleep(0.01), pg_stat_clear_snapshot()")
        tx.note(other.__ladder__.facts.place[1], "something")

    ledger = Ledger.opened(other.ledger)
    holding = threading.Thread(target=lambda: ledger.transact(hold, Access.LADDER))
    holding.start()
    locked.wait()
    assert holdout.submit(guesses(2, 1)[0]).submission == 3
    holding.join()
    assert len(refused) == 1
    assert_whole(holdout)


def test_statements_are_sound_after_an_error_at_each_age_of_a_connection(database: str) -> None:
    """What the server skipped after an error, the driver takes for prepared."""
    holdout, other = alone(database), elsewhere(database)
    for age in range(12):
        for guess in guesses((7, age), age):
            holdout.submit(guess)
        for guess in guesses((8, age), 2):
            holdout.submit(guess)
        other.submit(guesses((9, age), 1)[0])
        holdout.submit(guesses((10, age), 1)[0])
    assert_whole(holdout)


def test_statements_are_sound_after_a_wait_in_vain(database: str) -> None:
    holdout = opened(f"{database}&timeout=0.2")
    ledger = Ledger(resolve_url(database))
    for age in range(8):
        with ledger.write(Access.LADDER) as tx:
            tx.locked_ladder(holdout.__ladder__.id)
            with pytest.raises(LedgerBusy):
                holdout.submit(guesses((1, age), 1)[0])
        holdout.submit(guesses((1, age), 1)[0])
    assert_whole(holdout)


def test_a_connection_that_is_cut_at_any_message_loses_and_doubles_nothing(
    database: str, postgres: Server
) -> None:
    sent, most = [0], [float("inf")]  # bytes; each is cut once

    def cut(said: bytes) -> bool:
        sent[0] += len(said)
        if sent[0] <= most[0]:
            return False
        most[0] = float("inf")
        return True

    alone(database)
    places = range(0, 900, 60)
    with proxied(postgres, cut) as proxy:
        far = LadderHoldout.open("coins", ledger=postgres.url(name_of(database), proxy.folder))
        for at, place in enumerate(places):
            for guess in guesses((2, at), 2):
                far.submit(guess)
            sent[0], most[0] = 0, place
            assert far.submit(guesses((3, at), 1)[0]).submission == 5 + 3 * at
        assert proxy.cuts == len(places)
        assert_whole(far)


@pytest.mark.parametrize("arrives", ["before it is asked for", "after it was asked for"])
def test_a_submission_whose_message_was_lost_on_its_way_is_not_doubled(
    database: str, monkeypatch: pytest.MonkeyPatch, arrives: str
) -> None:
    """Asked for when nobody can write, so that one that comes later comes after the repetition."""
    holdout = alone(database)
    before = len(holdout.history())
    connect, transact = store.connection, Ledger.transact
    bodies: list[Callable[[Transaction], Any]] = []
    tries, lengths = list[Access](), list[int]()

    def late() -> None:
        with connect(store.source(database), Access.LADDER) as conn:
            tx = Transaction(conn, database)
            if arrives.startswith("before"):
                bodies[0](tx)
            lengths.append(tx.hold(holdout.__ladder__.facts.place[1]).length)

    @contextmanager
    def lost(source: Any, access: Access) -> Iterator[Any]:
        tries.append(access)
        message = threading.Thread(target=late)
        if len(tries) == 2 and arrives.startswith("before"):
            late()
        with connect(source, access) as conn:
            if len(tries) == 2 and arrives.startswith("after"):
                Transaction(conn, database).holdouts()  # it has its lock
                message.start()
                message.join(0.2)
                assert message.is_alive()
            yield conn
            if len(tries) == 1:
                raise LedgerUnreachable("the message is on its way, and the connection lost")
        if message.ident is not None:
            message.join()

    def noted(self: Ledger, body: Any, access: Access = Access.ALL) -> Any:
        bodies.append(body)
        return transact(self, body, access)

    monkeypatch.setattr(store, "connection", lost)
    monkeypatch.setattr(Ledger, "transact", noted)
    release = holdout.submit(guesses(3, 1)[0])
    monkeypatch.undo()
    assert tries == [Access.LADDER, Access.ALL]
    assert len(holdout.history()) == before + 1 == release.submission
    with Ledger(database).read() as tx:
        assert lengths == [tx.holdouts()[0] and tx.fold(holdout.__ladder__.facts.place[1]).length]
    assert_whole(holdout)


def test_a_search_of_one_batch_is_as_beside_a_file(database: str, tmp_path: Path) -> None:
    found = []
    for ledger in (database, str(tmp_path / "file.db")):
        holdout = opened(ledger)
        grid = {"constant": [0, 1], "strategy": ["constant"]}
        search = GridSearchCV(
            DummyClassifier(), grid, scoring=holdout, cv=holdout.split(), refit=holdout.select
        )
        search.fit(*coins(seed=1))
        found.append((search.best_params_, search.cv_results_["mean_test_score"].tolist()))
        assert_whole(holdout)
    assert found[0] == found[1]
