"""Attacks the standings of many accounts: one price for all must not be below anybody's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import ladderholdout.leaderboard.standings as module
from ladderholdout import LadderHoldout
from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.leaderboard import Leaderboard
from tests.cli.test_cli import output
from tests.leaderboard.test_rounds import BOTH, findings
from tests.support.holdouts import coins
from tests.support.processes import elsewhere

N = 300


@pytest.mark.parametrize("rounds", [False, True])
def test_no_certificate_at_the_price_of_the_latest_is_narrower_than_its_own(
    rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = coins(N)
    board = Leaderboard(X, y, scoring="accuracy", rounds=rounds, ledger="memory")
    rng = np.random.default_rng(0)
    for turn in range(4):
        for team in range(9 - turn):
            right = rng.random(N) < 0.5 + 0.04 * team + 0.05 * turn
            board.submit(f"team {team}", np.where(right, y, 1 - y))
        if rounds:
            board.close_round()
    own = board.standings()
    monkeypatch.setattr(module, "MANY", 2)
    module._known.clear()
    alike = board.standings()
    assert [(row.rank, row.account, row.score, row.ties) for row in own] == [
        (row.rank, row.account, row.score, row.ties) for row in alike
    ]
    wider = 0
    for one, other in zip(own, alike, strict=True):
        assert one.low is not None and one.high is not None
        assert other.low is not None and other.high is not None
        assert other.low <= one.low + 1e-12 and one.high - 1e-12 <= other.high
        assert other.best_rank <= one.best_rank and one.worst_rank <= other.worst_rank  # type: ignore[operator]
        wider += other.high - other.low > one.high - one.low + 1e-12
    latest = max(own, key=lambda row: row.since)
    again = next(row for row in alike if row.account == latest.account)
    assert wider and (rounds or again.high - again.low < 1.05 * (latest.high - latest.low))  # type: ignore[operator]


@pytest.mark.parametrize(
    "stated", [{"size": 400}, {"place": 300}], ids=["a size", "a place without one"]
)
def test_nor_where_somebody_searched_the_board_by_a_grid(
    stated: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of a larger batch than that of the latest pays for its own."""
    X, y = coins(N)
    board = Leaderboard(X, y, scoring="accuracy", name="spring", ledger="memory")
    for account, count in (("Ada", 200), ("Ben", 210), ("Cyd", 120)):
        board.submit(account, hits(y, count))
    mine = LadderHoldout.open("spring", account="Ada", ladder="leaderboard", ledger=board.ledger)
    assert mine.__ladder__.submit(hits(y, 270), Origin(batch="a grid", **stated)).improved
    board.submit("Ben", hits(y, 250))
    own = board.standings()
    monkeypatch.setattr(module, "MANY", 2)
    module._known.clear()
    for one, other in zip(own, board.standings(), strict=True):
        assert one.account == other.account
        assert other.low <= one.low + 1e-12 and one.high - 1e-12 <= other.high  # type: ignore[operator]


ladders = st.integers(2, 60).flatmap(
    lambda queries: st.tuples(
        st.just(queries),
        st.sets(st.integers(2, queries), max_size=8),
        st.lists(st.integers(1, 9), min_size=9, max_size=9),
    )
)


@given(ladders, st.data())
def test_the_code_of_what_goes_on_is_not_shorter(
    drawn: tuple[int, set[int], list[int]], data: st.DataObject
) -> None:
    queries, later, falls = drawn
    improved = (1, *sorted(later))
    values = tuple(100 - sum(falls[: place + 1]) for place in range(len(improved)))
    until = data.draw(st.integers(1, queries))
    count = sum(number <= until for number in improved)
    whole = LadderTranscript(queries, improved, values, n_values=101)
    start = LadderTranscript(until, improved[:count], values[:count], n_values=101)
    assert start.length() <= whole.length() + 1e-9


# Teams with several accounts, and who leaves


def hits(y: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return np.where(np.arange(N) < count, y, 1 - y)


def started(per: str, **given: Any) -> tuple[Leaderboard, NDArray[np.int64]]:
    X, y = coins(N)
    board = Leaderboard(X, y, scoring="accuracy", per=per, name="spring", ledger="memory", **given)
    for account, count in (("Ada", 200), ("Ben", 210), ("Eve", 120), ("Eve too", 280)):
        board.submit(account, hits(y, count))
    return board, y


@BOTH
def test_accounts_of_one_team_are_one_from_the_start(per: str) -> None:
    board, y = started(per)
    before = board.standings()
    board.merge("Eve", "Eve too")
    after = board.standings()
    assert [row.account for row in after] == ["Eve", "Ben", "Ada"]
    assert after[0].submissions == 2 and after[0].score == before[0].score
    assert (after.accounts, after.submissions, after.releases) == (3, 4, before.releases)
    board.submit("Eve too", hits(y, 295))
    assert board.standings()[0].submissions == 3
    # The certificate pays for all accounts, as it did.
    assert board.certificate("Eve").log_count is not None
    assert findings(board) == ()


@BOTH
def test_a_team_with_several_accounts_has_one_place_in_finals(per: str) -> None:
    board, _ = started(per, reserve=0.5)
    board.merge("Eve", "Eve too")
    assert sorted(row.account for row in board.finals()) == ["Ada", "Ben", "Eve"]
    again = board.finals({"Eve": None, "Ben": None}, again=True)
    assert [row.account for row in again] == ["Eve", "Ben"]


@BOTH
def test_a_team_is_all_of_its_accounts(per: str) -> None:
    board, _ = started(per, reserve=0.5)
    best = board.certificate("Eve too")
    board.merge("Eve", "Eve too")
    (row,) = (row for row in board.standings() if "Eve too" in row.accounts)
    assert (row.account, row.own, row.accounts) == ("Eve", "Eve too", ("Eve", "Eve too"))
    assert board.standings().to_csv().splitlines()[1].endswith(",Eve too,Eve; Eve too")
    assert board.certificate("Eve too") == board.certificate("Eve") == best
    # Each account numbers its own submissions, so an entry of the team names the account.
    finals = board.finals({"Eve": 1 if per == "team" else 3, "Eve too": None, "Ben": None})
    (entry,) = (row for row in finals if row.account == "Eve")
    assert entry.own == "Eve too" and " of Eve too" in str(finals)
    assert ",Eve too" in finals.to_csv() and board.finals_held() == (finals,)
    board.leave("Eve too")  # which is the whole team
    assert {row.account for row in board.standings()} == {"Ada", "Ben"}
    assert board.certificate() == board.certificate(board.standings()[0].account)
    assert "Eve" not in {row.account for row in board.finals(again=True)}
    with pytest.raises(InvalidArgument, match="has not left"):
        board.merge("Eve", "Ada")
    assert findings(board) == ()


def test_whoever_is_no_other_account_is_not_merged() -> None:
    board, _ = started("team")
    for accounts, message in (
        (("Ada", "Nobody"), "one that has submitted"),
        (("Ada", "Ada"), "other accounts"),
        (("Ada",), "other accounts"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            board.merge(*accounts)
    board.merge("Eve", "Eve too")
    for accounts in (("Ada", "Eve too"), ("Ada", "Eve"), ("Eve too", "Ben")):
        with pytest.raises(InvalidArgument, match="of no other team"):
            board.merge(*accounts)


@BOTH
def test_who_leaves_is_not_shown_and_counts(per: str) -> None:
    board, _ = started(per, reserve=0.5)
    before = board.certificate("Ben")
    board.leave("Eve too")
    board.leave("Eve too")
    after = board.standings()
    assert "Eve too" not in [row.account for row in after]
    assert (after.accounts, after.submissions, after.left) == (4, 4, 1)
    assert "1 accounts that left" in after.summary() and "which count, too" in after.summary()
    assert board.certificate("Ben") == before
    assert "Eve too" not in [row.account for row in board.finals()]
    with pytest.raises(InvalidArgument, match="made none or left"):
        board.finals({"Eve too": 1, "Ben": 1}, again=True)
    with pytest.raises(InvalidArgument, match="one that has submitted"):
        board.leave("Nobody")


def test_withdrawn_submissions_are_counted_and_named() -> None:
    board, _ = started("team")
    ben = LadderHoldout.open("spring", account="Ben", ladder="leaderboard", ledger=board.ledger)
    ben.owner.withdraw(1, reason="a leak")
    after = board.standings()
    assert (after.withdrawn, after.submissions) == (1, 4)
    assert "with 1 withdrawn, which count, too" in after.summary()


def test_the_command_line_merges_and_takes_off(default_ledger: Path) -> None:
    X, y = coins(N)
    board = Leaderboard(X, y, scoring="accuracy", name="spring")
    for account, count in (("Ada", 200), ("Ben", 210), ("Cyd", 220)):
        board.submit(account, hits(y, count))
    text = output("leaderboard", "spring", "--merge", "Ada", "Ben", "--leave", "Cyd")
    assert text == f"{board.standings()}\n"
    assert [row.account for row in board.standings()] == ["Ada"]


def submitted(board: Leaderboard, predictions: NDArray[np.int64]) -> None:
    board.submit("Ben", predictions)


@pytest.mark.processes
def test_standings_that_are_remembered_follow_every_change(default_ledger: Path) -> None:
    X, y = coins(N)
    board = Leaderboard(X, y, scoring="accuracy", name="spring")
    board.submit("Ada", hits(y, 200))
    first = board.standings()
    assert board.standings() is first
    other = Leaderboard.open("spring")
    assert other.standings() is first
    elsewhere(submitted, board, hits(y, 220))
    assert [row.account for row in board.standings()] == ["Ben", "Ada"]
    assert board.standings(0.99).confidence == 0.99 and board.standings().confidence == 0.95
