"""Attacks finals: other rows, other entries, held twice, at once, cut short, changed records."""

from __future__ import annotations

import csv
import html
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ladderholdout import LadderHoldout
from ladderholdout.certificates.reserve_intervals import reserve_log_count
from ladderholdout.errors import HoldoutConflict, InvalidArgument, KnownHoldoutWarning
from ladderholdout.leaderboard import Finals, Leaderboard
from tests.cli.test_cli import call, output
from tests.support import ledgers
from tests.support.ledgers import die_when, events, raw, reserve_of, shown_of, tamper, url_of
from tests.support.processes import at_once

N = 800
Ints = NDArray[np.int64]
pytestmark = pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")


def rows(n: int = N) -> tuple[NDArray[np.float64], Ints]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 3)), rng.integers(0, 2, n)


def started(**given: Any) -> tuple[Leaderboard, Ints]:
    X, y = rows()
    stated = {"scoring": "accuracy", "name": "spring", "ledger": "memory", "reserve": 0.5} | given
    return Leaderboard(X, y, **stated), y


def right(y: Ints, rate: float, seed: int) -> Ints:
    """Return predictions of which about such a share is right."""
    return np.where(np.random.default_rng(seed).random(len(y)) < rate, y, 1 - y)


def filled(board: Leaderboard, y: Ints) -> None:
    for seed, (account, rate) in enumerate(
        [("Ada", 0.6), ("Ada", 0.9), ("Ben", 0.88), ("Cyd", 0.58), ("Dan", 0.57)]
    ):
        board.submit(account, right(y, rate, seed))


def findings(board: Leaderboard) -> list[str]:
    (name,) = ledgers.names(board)
    return ledgers.findings(board, name)


def sets(finals: Finals) -> dict[str, tuple[int, int]]:
    return {row.account: (row.best_rank, row.worst_rank) for row in finals}


@pytest.mark.parametrize("per", ["team", "rank"])
def test_finals_tell_apart_what_a_board_does_not(per: str) -> None:
    board, y = started(per=per)
    filled(board, y)
    finals = board.finals()
    assert sets(finals) == {"Ada": (1, 2), "Ben": (1, 2), "Cyd": (3, 4), "Dan": (3, 4)}
    ties = {row.account: row.ties for row in finals}
    assert ties == {"Ada": ("Ben",), "Ben": ("Ada",), "Cyd": ("Dan",), "Dan": ("Cyd",)}
    assert (finals.separated, finals.pairs, finals.n) == (4, 6, N // 2)
    assert findings(board) == []


def test_only_rows_of_the_reserve_are_measured() -> None:
    board, y = started()
    kept = reserve_of(board)
    assert kept is not None
    reserve = np.empty(N, dtype=bool)
    reserve[board._home.guard().order] = kept
    board.submit("Ada", np.where(reserve, y, 1 - y))
    board.submit("Ben", np.where(reserve, 1 - y, y))
    first, second = board.finals()
    assert (first.account, first.score, second.score) == ("Ada", 1.0, 0.0)
    assert [row.account for row in board.standings()] == ["Ben", "Ada"]


def test_finals_are_held_once_and_read_from_then_on(tmp_path: Path) -> None:
    board, y = started(ledger=tmp_path / "ledger.db")
    filled(board, y)
    finals = board.finals()
    board.submit("Dan", y)  # better than all, and too late
    for again in (board, Leaderboard.open("spring", ledger=tmp_path / "ledger.db")):
        assert again.finals() == finals
        assert again.finals_held() == (finals,)
    with pytest.raises(HoldoutConflict, match="Finals of other entries are on record"):
        board.finals(2)
    later = board.finals(again=True)
    assert (later.number, later[0].account) == (2, "Dan")
    assert later.log_count - finals.log_count >= finals.log_values > 0.0
    assert board.finals() == later and board.finals_held() == (finals, later)


def test_a_query_of_the_reserve_and_finals_pay_for_each_other() -> None:
    board, y = started()
    filled(board, y)
    ada, ben = (
        LadderHoldout.open("spring", account=name, ladder="leaderboard", ledger=board.ledger)
        for name in ("Ada", "Ben")
    )
    alone = ada.reserve_certificate()
    finals = board.finals()
    (query,) = shown_of(board, "reserve queries")
    assert finals.log_count == pytest.approx(np.log(1.25) + query.log_values)
    after = ben.reserve_certificate()
    assert after.log_count == pytest.approx(
        reserve_log_count(2, query.log_values + finals.log_values)
    )
    assert ada.reserve_certificate() == alone


def test_a_team_names_several_entries_and_is_as_good_as_the_best() -> None:
    board, y = started()
    filled(board, y)
    finals = board.finals({"Ada": [1, 2], "Dan": None, "Ben": 1})
    assert [(row.account, row.submission) for row in finals] == [("Ada", 2), ("Ben", 1), ("Dan", 1)]
    assert sets(finals)["Dan"] == (3, 3)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"Ada": 9, "Ben": 1}, "numbers of submissions that the account made"),
        ({"Eve": None, "Ben": 1}, "accounts with a released score"),
        ({"Eve": 1, "Ben": 1}, "numbers of submissions that the account made"),
        ({"Ada": 3, "Ben": 1}, "those that improved"),
        ({"Ada": 1}, "2 to 1000 submissions"),
        (1, "2 to 1000 submissions"),
        ({"Ada": 0, "Ben": 1}, "a whole number"),
    ],
)
def test_entries_that_cannot_be_are_refused(entries: Any, message: str) -> None:
    board, y = started()
    filled(board, y)
    board.submit("Ada", right(y, 0.3, 9))
    with pytest.raises(InvalidArgument, match=message):
        board.finals(entries)
    assert board.finals_held() == ()


def test_a_withdrawn_entry_takes_no_part() -> None:
    board, y = started()
    filled(board, y)
    ada = LadderHoldout.open("spring", account="Ada", ladder="leaderboard", ledger=board.ledger)
    ada.owner.withdraw(2, reason="a leak")
    with pytest.raises(InvalidArgument, match="withdrawn"):
        board.finals({"Ada": 2, "Ben": 1})
    assert {row.account: row.submission for row in board.finals()}["Ada"] == 1


def test_a_retry_is_the_entry_that_it_repeats() -> None:
    board, y = started()
    filled(board, y)
    board.submit("Ada", right(y, 0.6, 0))  # the first one again, as number 3
    finals = board.finals({"Ada": 3, "Ben": 1})
    assert {row.account: row.submission for row in finals} == {"Ada": 1, "Ben": 1}


def test_finals_that_nothing_is_known_for_are_refused() -> None:
    board, y = started(reserve=None)
    filled(board, y)
    with pytest.raises(HoldoutConflict, match="has no reserve"):
        board.finals()
    board, y = started(sample_weight=np.arange(1, N + 1), name="weighted")
    filled(board, y)
    with pytest.raises(HoldoutConflict, match="rows with weights"):
        board.finals()
    X, _ = rows()
    LadderHoldout(
        X, y, scoring="accuracy", reserve=0.5, groups=np.arange(N) // 2, ledger="memory:g"
    )
    with pytest.warns(KnownHoldoutWarning):
        board = Leaderboard(X, y, scoring="accuracy", ledger="memory:g")
    filled(board, y)
    with pytest.raises(HoldoutConflict, match="these rows are in groups"):
        board.finals()
    target = X[:, 0]
    board = Leaderboard(
        X, target, scoring="neg_mean_absolute_error", reserve=0.5, name="open", ledger="memory"
    )
    for account, noise in (("Ada", 0.1), ("Ben", 1.0)):
        board.submit(account, target + noise)
    with pytest.raises(HoldoutConflict, match="loss_range"):
        board.finals()


@pytest.mark.parametrize(
    ("scoring", "bound"),
    [
        ("neg_mean_absolute_error", "bets on differences"),
        ("neg_root_mean_squared_error", "bets on differences"),
        ("r2", "bets"),
    ],
)
def test_measured_targets_are_compared_by_what_has_a_proof(scoring: str, bound: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.random((2000, 2))
    target = X[:, 0]
    board = Leaderboard(
        X, target, scoring=scoring, target_range=(0, 1), reserve=0.5, ledger="memory"
    )
    for account, noise in (("Ada", 0.05), ("Ben", 0.06), ("Cyd", 0.3)):
        board.submit(account, np.clip(target + noise * rng.standard_normal(2000), 0, 1))
    finals = board.finals()
    assert bound in finals.bound
    assert sets(finals)["Cyd"] == (3, 3)
    for row in finals:
        assert row.low is not None and row.low <= row.score <= row.high
    assert findings(board) == []


def test_areas_are_compared_by_their_intervals() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.random((3000, 2)), rng.integers(0, 2, 3000)
    board = Leaderboard(X, y, scoring="roc_auc", reserve=0.5, ledger="memory")
    for account, noise in (("Ada", 0.4), ("Ben", 3.0), ("Cyd", 3.1)):
        board.submit(account, y + noise * rng.standard_normal(3000))
    finals = board.finals()
    assert sets(finals) == {"Ada": (1, 1), "Ben": (2, 3), "Cyd": (2, 3)}
    assert findings(board) == []


def test_amended_labels_count_against_whoever_they_help(tmp_path: Path) -> None:
    board, y = started(ledger=tmp_path / "ledger.db")
    filled(board, y)
    better, X = y.copy(), rows()[0]
    better[:40] = 1 - better[:40]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KnownHoldoutWarning)
        board = Leaderboard(
            X, better, scoring="accuracy", name="spring", ledger=tmp_path / "ledger.db", reserve=0.5
        )
    finals = board.finals()
    assert "amended" in finals.assumptions[-1]
    assert finals[0].high - finals[0].low > 0.1  # type: ignore[operator]
    assert findings(board) == []


def change(path: Path, detail: dict[str, Any]) -> None:
    assert tamper(path, "event", "detail", json.dumps(detail), kind="finals") == 1


def test_a_changed_record_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    board, y = started(ledger=path)
    filled(board, y)
    board.finals()
    (held,) = events(board, "finals")
    for what in ("evidence", "shown", "entries"):
        noted = json.loads(held.detail or "")
        if what == "evidence":
            noted["evidence"]["risks"][0] = 0.4
        elif what == "shown":
            noted["shown"]["better"][0] = []
        else:
            noted["entries"][0][0] = "Eve"
        change(path, noted)
        found = findings(board)
        assert any("the finals of ladder board/leaderboard" in finding for finding in found)
        replay = any("what finals number 1 showed is not their replay" in one for one in found)
        assert replay == (what != "entries")


def test_no_label_and_no_raw_score_is_in_what_is_shown() -> None:
    board, y = started()
    filled(board, y)
    finals = board.finals()
    texts = (
        f"{finals} {finals!r} {finals._repr_html_()} {finals.to_csv()} {finals.picture().file()}"
    )
    risks = set(raw(board))
    assert risks
    shown = {f"{row.score}" for row in finals}  # of other rows, and as many of them
    for risk in risks:
        for value in {f"{risk}", f"{1 - risk:.6g}"} - shown:
            assert len(value) < 5 or value not in texts


def test_a_picture_has_a_bar_for_each_and_texts_for_who_does_not_see_it() -> None:
    board, y = started()
    filled(board, y)
    board.submit("<b>Eve", right(y, 0.5, 8))
    drawn = board.finals().picture().file()
    assert drawn.count("<rect") == 5
    assert "Ada: rank 1, by true scores 1 to 2" in drawn and "<title" in drawn
    assert "<b>" not in drawn
    assert board.standings().picture().file().count("<rect") == 5


def test_a_page_has_all_of_a_board_and_runs_nothing(default_ledger: Path, tmp_path: Path) -> None:
    board, y = started(ledger=None, rounds=True)
    filled(board, y)
    board.submit("<script>", right(y, 0.5, 8))
    board.close_round()
    finals, file = board.finals(), tmp_path / "board.html"
    output("leaderboard", "spring", "--page", str(file))
    page = file.read_text()
    assert page.count("<table>") == 2 and page.count("<svg") == 2 and "round 1, closed" in page
    assert "<script" not in page and "&lt;script&gt;" in page
    for row in finals:
        assert f'<th scope="row">{html.escape(row.account)}</th>' in page
    assert html.escape(finals.assumptions[0]) in page


def test_a_table_runs_nothing_in_a_spreadsheet() -> None:
    board, y = started()
    filled(board, y)
    board.submit("=1+1", right(y, 0.5, 8))
    for text in (board.finals().to_csv(), board.standings().to_csv()):
        read = list(csv.DictReader(text.splitlines()))
        assert {row["account"] for row in read} == {"Ada", "Ben", "Cyd", "Dan", "'=1+1"}


def hold(board: Leaderboard) -> tuple[int, list[tuple[str, int, int]]]:
    found = board.finals()
    return found.number, [(row.account, row.best_rank, row.worst_rank) for row in found]


def hold_and_die(board: Leaderboard) -> None:
    """Die when the finals are written and not yet committed."""
    die_when("note")
    board.finals()


@pytest.mark.processes
def test_processes_that_hold_finals_at_once_hold_the_same(default_ledger: Path) -> None:
    board, y = started(ledger=None)
    filled(board, y)
    found = at_once([(hold, board)] * 3)
    assert found[0][0] == 1 and found.count(found[0]) == 3
    assert len(board.finals_held()) == 1 and findings(board) == []


@pytest.mark.processes
def test_finals_that_were_cut_short_are_not_on_record(default_ledger: Path) -> None:
    board, y = started(ledger=None)
    filled(board, y)
    with pytest.raises(Exception, match="terminated"):
        at_once([(hold_and_die, board)])
    assert board.finals_held() == () and findings(board) == []
    assert hold(board)[0] == 1


def test_the_command_line_holds_and_shows_them(default_ledger: Path, tmp_path: Path) -> None:
    board, y = started(ledger=None)
    filled(board, y)
    assert call("finals", "spring").exit_code == 1  # nobody confirmed it
    assert board.finals_held() == ()
    drawn, table = tmp_path / "ranks.svg", tmp_path / "finals.csv"
    stated = ["--entry", "Ada", "--entry", "Ben=1", "--entry", "Ada=1"]
    text = output(
        "finals", "spring", *stated, "--yes", "--picture", str(drawn), "--csv", str(table)
    )
    (finals,) = board.finals_held()
    assert text == f"{finals}\n" == output("finals", "spring")
    assert table.read_text() == finals.to_csv() and drawn.read_text().startswith("<svg")
    shown = json.loads(output("finals", "spring", "--json"))
    assert [row["account"] for row in shown["rows"]] == [row.account for row in finals]
    assert "--best" in call("finals", "spring", "--best", "2", "--entry", "Ada").stderr
    assert "ACCOUNT=NUMBER" in call("finals", "spring", "--entry", "Ada=x").stderr


def test_two_boards_of_one_holdout_share_its_reserve() -> None:
    board, y = started()
    filled(board, y)
    first = board.finals()
    other, _ = started(ladder="autumn", ledger=board.ledger)
    filled(other, y)
    second = other.finals()
    assert (first.number, second.number) == (1, 2)
    assert board.finals() == first and other.finals_held() == (second,)
    assert url_of(board.ledger) == board.ledger
