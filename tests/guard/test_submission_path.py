"""Attacks the short cuts of a submission and of its certificate: each keeps what it must."""

from __future__ import annotations

import errno
import gc
import os
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladderholdout import LadderHoldout
from ladderholdout.errors import (
    KnownHoldoutWarning,
    LedgerError,
    OverlapWarning,
    RestoredWarning,
)
from ladderholdout.guard.open_ladder import Origin, SeenRows
from ladderholdout.guard.opening.health import verify_holdout
from ladderholdout.ledger import Ledger, Transaction, marks, statements
from ladderholdout.ledger.connections import source
from ladderholdout.ledger.history import _chosen, _up_to
from ladderholdout.ledger.prepared import Prepared, driver_of
from ladderholdout.ledger.records import (
    compressed,
    decompressed,
    packed,
    to_bytes,
    unpacked,
)
from ladderholdout.mechanisms import MECHANISMS, Evaluation, Ladder, Mechanism
from ladderholdout.mechanisms.base import State, draws
from ladderholdout.mechanisms.rules import LadderRules
from tests.support.holdouts import EVERY, assert_replays, coins, entries_of, guesses, undone
from tests.support.interrupts import aside, in_transactions, interrupted, lines_of

NOISELESS = tuple(one for one in EVERY if not draws(type(one)))


@dataclass(frozen=True, slots=True)
class Moody(Ladder):
    """Somebody's own rule: it draws, as its base class does not."""

    def decide(self, state: State, evidence: Any, rng: np.random.Generator) -> Any:
        mood = float(rng.normal(scale=0.05))
        return Ladder.decide(self, state, type(evidence)(evidence.risk + mood), rng)


@dataclass(frozen=True, slots=True)
class Calm(Ladder):
    """Another, which states that it draws nothing."""

    draws: ClassVar[bool] = False

    def decide(self, state: State, evidence: Any, rng: np.random.Generator) -> Any:
        return Ladder.decide(self, state, evidence, rng)


class Untouchable:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a rule that draws nothing asked for {name}")


@pytest.mark.parametrize("rule", NOISELESS, ids=lambda one: one.name)
def test_a_rule_that_is_given_no_generator_needs_none(rule: Mechanism) -> None:
    state, rules, rng = rule.start(50), LadderRules(rule, unit=1.0), np.random.default_rng(0)
    for _ in range(30):
        evaluation = Evaluation.from_losses(rng.integers(0, 2, 50))
        state, _ = rules.step(state, evaluation, Untouchable())  # type: ignore[arg-type]


def test_a_rule_of_ones_own_draws_unless_it_states_that_it_does_not() -> None:
    assert (draws(Ladder), draws(Moody), draws(Calm)) == (False, True, False)
    assert len(NOISELESS) >= 7


def test_what_a_rule_of_ones_own_draws_is_drawn_anew_and_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MECHANISMS, "Moody", Moody)
    X, y = coins()
    holdout = LadderHoldout(
        X, y, scoring="accuracy", mechanism=Moody(step=0.01), ledger=tmp_path / "ledger.db"
    )
    for one in guesses(0, 20):
        holdout.submit(one)
    assert_replays(holdout)


def test_the_best_of_an_announced_batch_comes_first_if_it_improves_by_its_own_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MECHANISMS, "Moody", Moody)
    X, y = coins()
    rule = Moody(step=0.01)
    holdout = LadderHoldout(X, y, scoring="accuracy", mechanism=rule, ledger="memory")
    candidates = guesses(1, 80)
    for at in range(0, 80, 2):
        with holdout.batch() as batch:
            for one in candidates[at : at + 2]:
                batch.submit(one)
    judged = entries_of(holdout)
    first = [judged[at] for at in range(0, 80, 2)]
    assert [one for one in first if one.place == 2 and not one.improved] == []
    assert first[0].place == 2, "the very first one improves whatever is drawn"


# What certificates count


def batched(path: Path) -> LadderHoldout:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=path)
    for at, one in enumerate(guesses(1, 12)):
        batch = ("grid", "grid", None, "study")[at % 4]
        holdout.__ladder__.submit(one, Origin(batch=batch))
    return holdout


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount


SMALLER = (
    "UPDATE submissions SET runs = runs - 1 WHERE number = 5",
    "UPDATE submissions SET runs = 0",
    "UPDATE chains SET runs = runs - 1",
    "UPDATE chains SET batch = 'another'",
)


def test_a_count_that_was_made_smaller_is_found(tmp_path: Path) -> None:
    """With fewer runs a certificate would be narrower than it may be."""
    path = tmp_path / "ledger.db"
    holdout = batched(path)
    assert verify_holdout(holdout.ledger, "coins").findings == ()
    for statement in SMALLER:
        with undone(path):
            change(path, statement)
            assert verify_holdout(holdout.ledger, "coins").findings, statement


@pytest.mark.parametrize(
    "query", [_chosen(1), _chosen(3), _up_to(1), _up_to(3), statements.IMPROVEMENTS]
)
def test_what_a_certificate_names_is_read_by_its_index(tmp_path: Path, query: Prepared) -> None:
    """By any other one SQLite would read all entries: a thousand times as long at a million."""
    path = tmp_path / "ledger.db"
    holdout = batched(path)
    plans: list[str] = []
    with Ledger(holdout.ledger).read() as tx:
        driver = driver_of(tx.conn)
        given = {"id0": 1, "id1": 2, "id2": 3, "until": 9, "ladder": 1, "number": 9}
        asked: list[str] = []
        driver.set_trace_callback(asked.append)
        query.rows(tx.conn, given)
        driver.set_trace_callback(None)
        plans += [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {asked[0]}")]
    assert any("INDEX ix_submissions_marked" in one for one in plans), plans


def asked_of(holdout: LadderHoldout, work: Callable[[], Any]) -> list[str]:
    """Return the queries that something asks the ledger in one transaction."""
    (conn,) = source(holdout.ledger)._idle  # type: ignore[union-attr]
    asked: list[str] = []
    driver = driver_of(conn)
    driver.set_trace_callback(asked.append)
    try:
        work()
    finally:
        driver.set_trace_callback(None)
    return [one for one in asked if one.startswith(("SELECT", "WITH"))]


def test_status_asks_three_times_and_a_certificate_twice(tmp_path: Path) -> None:
    """On a server each goes to and fro once; what a holdout has none of is not asked for."""
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=tmp_path / "ledger.db")
    for one in guesses(0, 30):
        holdout.submit(one)
    holdout.status()
    assert len(asked_of(holdout, holdout.status)) == 3
    assert len(asked_of(holdout, holdout.certificate)) == 2


def test_what_a_holdout_is_said_to_have_none_of_it_has_none_of(tmp_path: Path) -> None:
    """The row of a ladder says so, and then nothing is read: it must not say so too often."""
    X, y = coins()
    ledger = tmp_path / "ledger.db"
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=ledger)
    holdout.submit(guesses(0, 1)[0])
    ladder = holdout.__ladder__

    def told() -> tuple[Any, ...]:
        def read(tx: Transaction, one: Any) -> tuple[Any, ...]:
            of = one.holdout_id
            return tx._events(of), tx.overlaps(of), tx.sharing(of), tx.ladders(of)

        def plainly() -> tuple[Any, ...]:
            with Ledger(holdout.ledger).read() as tx:
                return read(tx, tx.ladder(ladder.id))

        found = ladder.read(read)
        assert found == plainly()
        return found

    assert told()[:3] == ((), (), ())
    assert len(told()[3]) == 1
    holdout.certificate(confidence=0.9)
    assert len(told()[0]) == 1
    ladder.note(SeenRows("training rows", 3))
    assert len(told()[1]) == 1
    with pytest.warns(KnownHoldoutWarning):
        LadderHoldout(X, y, scoring="accuracy", name="coins", account="ben", ledger=ledger)
    assert len(told()[3]) == 2
    more, labels = np.concatenate([X[:2], X + 1000]), np.concatenate([y[:2], 1 - y])
    with pytest.warns(OverlapWarning):
        LadderHoldout(more, labels, scoring="accuracy", name="part", ledger=ledger)
    assert len(told()[2]) == 1


# Connections and marks that are kept open


def test_a_statement_that_was_left_open_holds_no_later_transaction(tmp_path: Path) -> None:
    """A connection goes from one to the next: a cursor must not keep it at an older state."""
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger=tmp_path / "ledger.db")
    for one in guesses(0, 5):
        holdout.submit(one)
    held = []
    with pytest.raises(ZeroDivisionError), Ledger(holdout.ledger).read() as tx:
        entries = tx.recorded(1)
        held.append((entries, next(entries)))
        raise ZeroDivisionError
    assert holdout.submit(y).submission == 6
    assert holdout.status().submissions == 6


def test_connections_are_opened_once(tmp_path: Path) -> None:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger=tmp_path / "ledger.db")
    holdout.submit(y)
    known = source(holdout.ledger)
    kept = list(known._idle)  # type: ignore[union-attr]
    for one in guesses(0, 20):
        holdout.submit(one)
        holdout.status()
    assert known._idle == kept  # type: ignore[union-attr]
    assert len(kept) == 1


@aside
def test_an_interrupt_at_any_line_of_a_transaction_leaves_no_lock(tmp_path: Path) -> None:
    """Between a begin and the block that ends it as well; no collection of garbage helps."""
    X, y = coins()
    path = tmp_path / "ledger.db"
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger=path)
    places = lines_of(lambda: holdout.submit(y), in_transactions)
    hits = 0
    gc.disable()
    try:
        for place in places:
            fault = interrupted(lambda: holdout.submit(y), place, in_transactions)
            hits += isinstance(fault, KeyboardInterrupt)
            # Another process could not wait for it either.
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
    finally:
        gc.enable()
    assert hits > 40
    assert holdout.submit(y).submission <= len(places) + 3


def test_a_mark_that_may_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = coins()
    path = tmp_path / "ledger.db"
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=path)
    holdout.submit(guesses(0, 1)[0])
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as ledger, closing(sqlite3.connect(copy)) as older:
        ledger.backup(older)
    holdout.submit(guesses(0, 2)[1])
    with closing(sqlite3.connect(path)) as ledger, closing(sqlite3.connect(copy)) as older:
        older.backup(ledger)
    real = os.open

    def refusing(name: Any, flags: int, *more: Any, **named: Any) -> int:
        if str(name).endswith(".mark") and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "it may only be read", str(name))
        return real(name, flags, *more, **named)

    monkeypatch.setattr(marks, "_descriptors", {})
    monkeypatch.setattr(os, "open", refusing)
    with pytest.warns(RestoredWarning):
        holdout.submit(y)


def test_a_mark_that_was_replaced_is_read_as_it_is_now(tmp_path: Path) -> None:
    """The process that has it open would otherwise not see what another machine wrote."""
    X, y = coins()
    path = tmp_path / "ledger.db"
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=path)
    holdout.submit(guesses(0, 1)[0])
    (mark,) = (tmp_path / "vault").glob("*.mark")
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as ledger, closing(sqlite3.connect(copy)) as older:
        ledger.backup(older)
    holdout.submit(guesses(0, 2)[1])
    newer = mark.read_bytes()
    # The older copy is put back, row by row, under the same file; the mark comes from elsewhere.
    with closing(sqlite3.connect(path)) as ledger, closing(sqlite3.connect(copy)) as older:
        older.backup(ledger)
    other = tmp_path / "other.mark"
    other.write_bytes(newer)
    other.replace(mark)
    with pytest.warns(RestoredWarning):
        holdout.submit(y)


# How predictions are kept


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
    st.sampled_from([np.float64, np.int32]),
    st.booleans(),
)
def test_predictions_are_read_as_they_were_written(
    values: list[float], kind: Any, both: bool
) -> None:
    second = np.array(values, dtype=kind)
    given = np.column_stack([1 - second, second]) if both else second
    for back in (unpacked(packed(given)), decompressed(compressed(given))):
        assert back.dtype == given.dtype
        assert back.tobytes() == given.tobytes()
        assert back.shape == given.shape


@given(
    st.sampled_from([1, 2, 255, 256, 2**31 - 1]).flatmap(
        lambda most: st.lists(st.integers(0, most), min_size=1, max_size=40)
    )
)
def test_positions_of_classes_are_read_as_they_were_written(values: list[int]) -> None:
    codes = np.array(values, dtype=np.int32)
    earlier = to_bytes(codes)  # as ledgers have it that were written before
    for stored in (packed(codes), compressed(codes), earlier, zlib.compress(earlier, 1)):
        back = decompressed(stored)
        assert back.dtype == np.int32 and np.array_equal(back, codes)


def test_two_classes_take_a_bit_for_each_row_and_others_a_byte() -> None:
    n = 1000
    for classes, most in ((2, n / 8), (200, n)):
        codes = np.random.default_rng(0).integers(0, classes, n, dtype=np.int32)
        assert len(packed(codes)) < most + 20


@pytest.mark.parametrize("classes", [2, 200])
def test_positions_of_classes_that_were_changed_are_refused(classes: int) -> None:
    stored = packed(np.arange(20, dtype=np.int32) % classes)
    head = len(stored) - (20 if classes > 2 else 3)
    widths = [bytes([one]) + stored[head - 8 : head] for one in (0, 2, 9, 255)]
    lengths = [stored[head - 9 : head - 8] + n.to_bytes(8, "little") for n in (0, 1, 99, 2**63)]
    wrong = [stored[: head - 9] + one + stored[head:] for one in widths + lengths]
    if classes == 2:  # the last four bits are of no row
        wrong += [stored[:-1] + bytes([stored[-1] ^ 1 << bit]) for bit in range(4)]
    for one in (*wrong, *(stored[:end] for end in range(6, len(stored))), stored + b"0"):
        with pytest.raises(LedgerError):
            unpacked(one)
        with pytest.raises(LedgerError):
            decompressed(one)


def test_one_column_of_two_is_kept_where_it_tells_the_other() -> None:
    second = np.random.default_rng(0).random(1000)
    both = np.column_stack([1 - second, second])
    assert len(packed(both)) < 0.6 * both.nbytes
    both[3, 0] = np.nextafter(both[3, 0], 1)
    assert len(packed(both)) > both.nbytes
    assert np.array_equal(unpacked(packed(both)), both)


def test_the_incumbent_of_a_batch_is_kept_once_and_found_again(tmp_path: Path) -> None:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=tmp_path / "ledger.db")
    for one in guesses(3, 6):
        holdout.__ladder__.submit(one, Origin(batch="grid"))
    improved = [one.number for one in entries_of(holdout) if one.improved]
    with Ledger(holdout.ledger).read() as tx:
        assert np.array_equal(tx.incumbent_predictions(1), _content(holdout, improved[-1]))
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        sizes = ledger.execute("SELECT length(predictions) FROM incumbents").fetchall()
    assert set(sizes) == {(0,)}
    change(tmp_path / "ledger.db", "DELETE FROM candidates")
    assert verify_holdout(holdout.ledger, "coins").findings


def _content(holdout: LadderHoldout, number: int) -> Any:
    return guesses(3, 6)[number - 1][holdout.__ladder__.guard().order]
