"""Attacks the short cuts of the record: counts, indices, snapshots, connections, predictions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladderholdout import LadderHoldout
from ladderholdout.errors import LedgerError
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.ledger import Ledger, log, store
from ladderholdout.ledger.arrays import packed, to_bytes, unpacked
from tests.support import ledgers
from tests.support.holdouts import coins, guesses

# What certificates count


def batched(path: Path) -> LadderHoldout:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=path)
    for at, one in enumerate(guesses(1, 12)):
        batch = ("grid", "grid", None, "study")[at % 4]
        holdout.__ladder__.submit(one, Origin(batch=batch))
    return holdout


def plans_of(path: Path, asked: list[str]) -> list[str]:
    """Return how SQLite finds the rows of each statement that reads."""
    with Ledger(ledgers.url_of(path)).read() as tx:
        return [
            " ".join(row[3] for row in tx.db.send(f"EXPLAIN QUERY PLAN {one}").fetchall())
            for one in asked
            if one.startswith("SELECT")
        ]


def test_what_a_submission_or_a_certificate_reads_is_found_by_an_index(tmp_path: Path) -> None:
    """Else SQLite would read all entries: a thousand times as long at a million."""
    holdout = batched(tmp_path / "ledger.db")
    again = LadderHoldout.open("coins", ledger=holdout.ledger)
    with ledgers.statements_of(holdout) as asked:
        holdout.__ladder__.submit(coins()[1], Origin(batch="study", key="trial"))
        holdout.submit(guesses(1, 1)[0])
        again.certificate()
        again.history()
    assert len(asked) > 10
    plans = plans_of(tmp_path / "ledger.db", asked)
    assert [one for one in plans if re.search("SCAN (log|piece)", one)] == []


def test_pages_of_verify_come_in_the_order_of_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each page sorts all entries, and a million take four times as long an entry."""
    holdout = batched(tmp_path / "ledger.db")
    monkeypatch.setattr(log, "AT_A_TIME", 4)
    with ledgers.statements_of(holdout) as asked:
        assert verify_holdout(holdout.ledger, "coins").findings == ()
    pages = [one for one in asked if re.search("ORDER BY position, seq", one)]
    assert len(pages) > 3
    assert [one for one in plans_of(tmp_path / "ledger.db", pages) if "TEMP B-TREE" in one] == []


def test_shared_rows_are_counted_by_indices_too(tmp_path: Path) -> None:
    X, y = coins()
    holdout = batched(tmp_path / "ledger.db")
    more = {"overlap": "ignore", "vault": False, "scoring": "accuracy", "ledger": holdout.ledger}
    other = LadderHoldout(np.vstack([X[:9], X + 9]), np.append(y[:9], 1 - y), name="b", **more)
    other.submit(guesses(0, 1, 69)[0])
    holdout.submit(y)
    with ledgers.statements_of(holdout) as asked:
        assert holdout.certificate().log_count is not None
    plans = plans_of(tmp_path / "ledger.db", asked)
    assert [one for one in plans if re.search("SCAN (log|piece)", one)] == []


def test_a_submission_reads_no_more_of_a_board_that_lasts(tmp_path: Path) -> None:
    """Else each costs more than the one before it."""
    X, y = coins()
    board = Leaderboard(
        X, y, ledger=tmp_path / "ledger.db", scoring="accuracy", name="spring", rounds=True
    )
    counts = []
    for turn in range(4):
        with ledgers.statements_of(board) as asked:
            board.submit("Ada", guesses(turn, 1)[0])
        counts.append(len(asked))
        board.close_round()
    assert counts[1:] == [counts[1]] * 3


# Snapshots


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladderholdout.ledger.log.SNAPSHOT_EVERY", 5)


def read_anew(path: Path) -> tuple[list[str], Any]:
    """Return what a process sends that knows nothing of a ledger, and what it reads."""
    ledgers.forget_connections(path)
    holdout = LadderHoldout.open("coins", ledger=path)
    with ledgers.statements_of(holdout):
        pass
    (conn,) = store.source(holdout.ledger)._idle
    conn.folds.clear()
    with ledgers.statements_of(holdout) as asked:
        found = holdout.status(), holdout.history()
    return asked, found


def test_a_snapshot_is_gone_on_from(tmp_path: Path, often: None) -> None:
    path = tmp_path / "ledger.db"
    batched(path)
    asked, found = read_anew(path)
    starts = [one for one in asked if "position > " in one]
    assert starts and all("position > 0" not in one for one in starts)
    ledgers.edit(path, "DELETE FROM snapshot")
    asked, without = read_anew(path)
    assert any("position > 0" in one for one in asked)
    assert found == without


DOUBTFUL = (
    "UPDATE snapshot SET mac = x'00'",
    "UPDATE snapshot SET body = CAST(body AS BLOB) || ' '",
    "UPDATE snapshot SET body = x'ff', mac = x'ff'",
    "UPDATE snapshot SET holdout = 7",
    "UPDATE snapshot SET position = position - 1",
)


@pytest.mark.parametrize("doubt", DOUBTFUL)
def test_a_snapshot_in_doubt_is_thrown_away(tmp_path: Path, often: None, doubt: str) -> None:
    path = tmp_path / "ledger.db"
    batched(path)
    _, whole = read_anew(path)
    ledgers.edit(path, doubt)
    asked, found = read_anew(path)
    assert found == whole
    if "position" not in doubt:
        assert any("position > 0" in one for one in asked)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.RestoredWarning")
def test_a_snapshot_of_another_chain_is_thrown_away(tmp_path: Path, often: None) -> None:
    """Put back from a copy that went another way, with its own secret and so a right code."""
    path = tmp_path / "ledger.db"
    holdout = batched(path)
    copy = ledgers.copy(path, tmp_path / "copy.db")
    for one in guesses(2, 6):
        LadderHoldout.open("coins", ledger=copy).submit(one)
        holdout.submit(1 - one)
    ledgers.edit(path, "DELETE FROM snapshot")
    ledgers.edit(
        path,
        f"ATTACH '{copy}' AS other",
        "INSERT INTO snapshot SELECT * FROM other.snapshot",
    )
    asked, (status, _) = read_anew(path)
    assert any("position > 0" in one for one in asked)
    assert status == holdout.status()


# Connections that are kept open


def test_a_statement_that_was_left_open_holds_no_later_transaction(tmp_path: Path) -> None:
    """A connection goes from one to the next: a cursor must not keep it at an older state."""
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger=tmp_path / "ledger.db")
    for one in guesses(0, 5):
        holdout.submit(one)
    held = []
    with pytest.raises(ZeroDivisionError), Ledger(holdout.ledger).read() as tx:
        cursor = tx.db.send("SELECT body FROM log")
        held.append((cursor, cursor.fetchone()))
        raise ZeroDivisionError
    assert holdout.submit(y).submission == 6
    assert holdout.status().submissions == 6


def test_connections_are_opened_once(tmp_path: Path) -> None:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger=tmp_path / "ledger.db")
    holdout.submit(y)
    known = store.source(holdout.ledger)
    kept = list(known._idle)
    for one in guesses(0, 20):
        holdout.submit(one)
        holdout.status()
    assert known._idle == kept
    assert len(kept) == 1


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
    back = unpacked(packed(given))
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
    for stored in (packed(codes), to_bytes(codes)):
        back = unpacked(stored)
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


def test_one_column_of_two_is_kept_where_it_tells_the_other() -> None:
    second = np.random.default_rng(0).random(1000)
    both = np.column_stack([1 - second, second])
    assert len(packed(both)) < 0.6 * both.nbytes
    both[3, 0] = np.nextafter(both[3, 0], 1)
    assert len(packed(both)) > both.nbytes
    assert np.array_equal(unpacked(packed(both)), both)
