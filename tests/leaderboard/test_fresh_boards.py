"""A leaderboard on fresh rows: rounds, teams and finals go on, and nothing that waits is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ladderholdout import LadderHoldout
from ladderholdout.errors import HoldoutConflict, InvalidArgument, OverlapError
from ladderholdout.leaderboard import Leaderboard
from tests.cli.test_cli import output
from tests.support import ledgers

BOTH = pytest.mark.parametrize("per", ["team", "rank"])
Floats, Ints = NDArray[np.float64], NDArray[np.int64]


def rows(n: int, seed: int) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.integers(0, 2, n)


def predicted(y: Ints, share: float, seed: int = 0) -> Ints:
    return np.where(np.random.default_rng(seed).random(len(y)) < share, y, 1 - y)


def board_on(y: Ints, X: Floats, **given: Any) -> Leaderboard:
    return Leaderboard(X, y, **{"scoring": "accuracy", "name": "spring"} | given)


def findings(board: Leaderboard) -> list[str]:
    return ledgers.findings(board)


@BOTH
def test_a_board_by_rounds_goes_on_by_rounds(per: str) -> None:
    (X, y), (X_fresh, y_fresh) = rows(400, 0), rows(300, 1)
    board = board_on(y, X, rounds=24, per=per)
    for account, share in (("Ada", 0.6), ("Ben", 0.8), ("Ben too", 0.7), ("Cyd", 0.5)):
        board.submit(account, predicted(y, share))
    board.close_round()
    board.merge("Ben", "Ben too")
    board.leave("Cyd")
    fresh = board.replenish(X_fresh, y_fresh)
    rounds = fresh.rounds()
    assert rounds is not None and (rounds.number, rounds.hours, fresh.per) == (1, 24, per)
    for account, share in (("Ada", 0.7), ("Ben too", 0.9), ("Cyd", 0.95)):
        fresh.submit(account, predicted(y_fresh, share))
    assert fresh.close_round() is not None
    assert [row.account for row in fresh.standings()] == ["Ben", "Ada"]
    assert [row.account for row in Leaderboard.open("spring@1").standings()] == ["Ben", "Ada"]
    assert [
        each.name
        for each in Leaderboard.on(
            LadderHoldout.open("spring", account="board", ladder="leaderboard")
        )
    ] == ["spring"]
    assert findings(fresh) == []


def test_what_waits_for_a_round_is_not_left_behind() -> None:
    (X, y), (X_fresh, y_fresh) = rows(400, 0), rows(300, 1)
    board = board_on(y, X, rounds=True)
    board.submit("Ada", predicted(y, 0.6))
    with pytest.raises(HoldoutConflict, match=r"1 submission waits .*close_round"):
        board.replenish(X_fresh, y_fresh)
    assert board.name == "spring" and board.waiting() == {"Ada": 1}
    board.close_round()
    assert board.replenish(X_fresh, y_fresh).waiting() == {}
    assert findings(board) == []


@pytest.mark.parametrize("rounds", [False, True])
def test_finals_are_held_on_a_fresh_block(rounds: bool) -> None:
    """A board without a reserve gets one with the fresh rows, which no submission was about."""
    (X, y), (X_fresh, y_fresh) = rows(400, 0), rows(1000, 1)
    board = board_on(y, X, rounds=rounds)
    board.submit("Ada", predicted(y, 0.6))
    board.close_round() if rounds else None
    with pytest.raises(HoldoutConflict, match="reserve"):
        board.finals()
    last = board.replenish(X_fresh, y_fresh, reserve=0.8)
    sent = {"Ada": 0.6, "Ben": 0.9, "Cyd": 0.75}
    for account, share in sent.items():
        last.submit(account, predicted(y_fresh, share))
    last.close_round() if rounds else None
    finals = last.finals()
    assert finals.n == 800
    assert [(row.account, row.rank_set) for row in finals] == [
        ("Ben", "1"),
        ("Cyd", "2"),
        ("Ada", "3"),
    ]
    for row in finals:
        assert row.score == pytest.approx(sent[row.account], abs=0.06)
        assert row.low is not None and row.low < sent[row.account] < (row.high or 0)
    assert findings(last) == []


def test_another_share_of_the_fresh_rows_is_kept_in_reserve(tmp_path: Path) -> None:
    (X, y), (X_fresh, y_fresh) = rows(400, 0), rows(300, 1)
    holdout = LadderHoldout(X, y, scoring="accuracy", name="spring", reserve=0.5)
    for share in (0.0, 1.0, -1, "half"):
        with pytest.raises(InvalidArgument, match=r"reserve must be a share of the rows"):
            holdout.replenish(X_fresh, y_fresh, reserve=share)
    with pytest.raises(InvalidArgument, match="reserve must be a share that leaves"):
        holdout.replenish(X_fresh, y_fresh, reserve=0.001)
    assert holdout.name == "spring" and holdout.status().retired is None
    file = tmp_path / "fresh.csv"
    lines = [",".join(map(str, [*row, label])) for row, label in zip(X_fresh, y_fresh, strict=True)]
    file.write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    shown = output("replenish", "spring", str(file), "--target", "y", "--reserve", "0.2", "--yes")
    assert "reserve" in shown
    fresh = LadderHoldout.open("spring")
    assert fresh.__ladder__.facts.n_reserve == 60
    with pytest.raises(OverlapError):
        fresh.replenish(X_fresh, y_fresh, reserve=0.5)


def test_finals_and_comparisons_take_what_rounds_keep() -> None:
    X, y = rows(1000, 0)
    board = board_on(y, X, rounds=True, reserve=0.5)
    for account, share in (("Ada", 0.9), ("Ada", 0.6), ("Ben", 0.7)):
        board.submit(account, predicted(y, share, seed=round(100 * share)))
    closed = board.close_round()
    assert closed is not None
    by_number = {r.submission: r.improved for account, r in closed.releases if account == "Ada"}
    (other,) = [number for number, improved in by_number.items() if not improved]
    finals = board.finals({"Ada": other, "Ben": 1})
    assert [(row.account, row.submission) for row in finals] == [("Ben", 1), ("Ada", other)]
    assert finals[1].score == pytest.approx(0.6, abs=0.06)
    ada = LadderHoldout.open("spring", account="Ada", ladder="leaderboard")
    assert ada.compare(3 - other, other).low > 0
