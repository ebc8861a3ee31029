"""Corrects labels after rounds were answered: every round again, differences, prices, kills."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ladderholdout import LadderHoldout
from ladderholdout.errors import HoldoutConflict, LedgerError
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.ledger import Ledger
from ladderholdout.ledger.records import compressed
from ladderholdout.ledger.verification import verify
from tests.cli.test_cli import output
from tests.support.holdouts import coins
from tests.support.processes import at_once

N, WRONG = 400, 16
Ints = NDArray[np.int64]
BOTH = pytest.mark.parametrize("per", ["team", "rank"])
pytestmark = pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
X, Y = coins(N)
RIGHT = np.where(np.arange(N) < WRONG, 1 - Y, Y)
# Rounds of accounts, each with the share of labels that it predicts as they were at first.
SENT = (
    (("Ada", 0.6), ("Ben", 0.7), ("Ada", 0.65)),
    (("Cyd", 0.9), ("Ben", 0.72), ("Cyd", 0.85)),
    (("Ada", 0.8), ("Ben", 0.75)),
)


def predicted(share: float) -> Ints:
    """Predict a share of the labels, with hits that differ from share to share."""
    hit = np.random.default_rng(round(1000 * share)).random(N) < share
    return np.where(hit, Y, 1 - Y)


def board_with(y: Ints, **given: Any) -> Leaderboard:
    """Return a board that has answered all rounds by these labels."""
    stated = {"scoring": "accuracy", "name": "spring", "rounds": True}
    board = Leaderboard(X, y, **stated | given)
    for sent in SENT:
        for account, share in sent:
            board.submit(account, predicted(share))
        board.close_round()
    return board


def corrected(board: Leaderboard) -> Leaderboard:
    """Give the rows with the right labels, which amends the record."""
    return Leaderboard(X, RIGHT, name="spring", ledger=board.ledger, per=board.per)


def releases(board: Leaderboard) -> list[tuple[Any, ...]]:
    """Return all that a board released, in order."""
    names = ["board"] if board.per == "rank" else ["Ada", "Ben", "Cyd"]
    shown: list[tuple[Any, ...]] = []
    for name in names:
        ladder = board._home.facts.ladder
        holdout = LadderHoldout.open("spring", account=name, ladder=ladder, ledger=board.ledger)
        shown += [(name, e.number, e.score, e.improved) for e in holdout.history()]
    return shown


def findings(board: Leaderboard) -> list[str]:
    with Ledger(board.ledger).read() as tx:
        return [finding.what for finding in verify(tx, 1).findings]


@BOTH
def test_all_rounds_are_answered_as_if_the_labels_had_been_right(per: str, tmp_path: Path) -> None:
    board = corrected(board_with(Y, per=per))
    corrections = board.replay_rounds("corrected")
    again = Leaderboard.open("spring", ladder="corrected", ledger=board.ledger)
    fresh = board_with(RIGHT, per=per, ledger=tmp_path / "fresh.db")
    assert releases(again) == releases(fresh)
    assert releases(board) != releases(again)
    ranks = [(row.rank, row.account, row.score) for row in again.standings()]
    assert ranks == [(row.rank, row.account, row.score) for row in fresh.standings()]
    assert (corrections.labels, len(corrections.answers)) == (WRONG, 8)
    assert findings(board) == []


def test_what_improves_is_released_on_the_grid_around_its_accuracy_by_either_labels() -> None:
    board = corrected(board_with(Y))
    corrections, step = board.replay_rounds("corrected"), 1 / 20

    def near(score: float | None, y: Ints, number: int, account: str) -> bool:
        shares = [share for name, share in SENT[number - 1] if name == account]
        return any(abs((score or 0) - np.mean(predicted(share) == y)) <= step for share in shares)

    for answer in corrections.answers:
        where = answer.round, answer.account
        assert not answer.improved_before or near(answer.before, Y, *where)
        assert not answer.improved_after or near(answer.after, RIGHT, *where)
    assert sum(answer.improved_after for answer in corrections.answers) >= 3
    changed = [answer for answer in corrections.answers if answer.changed]
    assert changed and len(changed) < len(corrections.answers)
    text = str(corrections)
    assert all(answer.line() in text for answer in changed)
    for rank in corrections.ranks:
        assert rank.line() in text


@BOTH
def test_what_was_shown_of_both_boards_is_paid_for(per: str) -> None:
    board = board_with(Y, per=per)
    before = board.certificate().log_count
    corrected(board).replay_rounds("corrected")
    again = Leaderboard.open("spring", ladder="corrected", ledger=board.ledger)
    after = again.certificate()
    assert before is not None and after.log_count is not None and after.log_count > before + 1
    assert any(f"{WRONG} labels were amended" in text for text in after.assumptions)
    assert board.certificate().log_count == before  # fixed before the correction


def test_a_replay_is_made_once_and_goes_on_with_later_rounds() -> None:
    board = corrected(board_with(Y))
    corrections = board.replay_rounds("corrected")
    again = Leaderboard.open("spring", ladder="corrected", ledger=board.ledger)
    shown = releases(again)
    assert board.replay_rounds("corrected") == corrections
    assert releases(again) == shown
    again.submit("Dot", RIGHT)
    closed = again.close_round()
    assert closed is not None and closed.record.number == 4 and closed.best == 1.0
    assert "by corrected labels, those of the board 'leaderboard':" not in board.page()
    assert "those of the board &#x27;leaderboard&#x27;" in again.page()
    assert board.replay_rounds("corrected").answers == corrections.answers


def test_teams_leavers_and_what_was_withdrawn_are_as_they_were() -> None:
    board = board_with(Y)
    board.merge("Ada", "Cyd")
    board.leave("Ben")
    cyd = LadderHoldout.open("spring", account="Cyd", ladder="leaderboard", ledger=board.ledger)
    best = next(entry.number for entry in cyd.history() if entry.improved)
    cyd.owner.withdraw(best, reason="another task's file")
    corrections = corrected(board).replay_rounds("corrected")
    again = Leaderboard.open("spring", ladder="corrected", ledger=board.ledger)
    standings = again.standings()
    assert [row.account for row in standings] == ["Ada"] and standings.left == 1
    assert len(corrections.answers) == 7
    assert (standings.submissions, standings.accounts) == (7, 2)


def test_what_cannot_be_replayed_is_refused(tmp_path: Path) -> None:
    single = Leaderboard(X, Y, scoring="accuracy", name="single", ledger="memory")
    single.submit("Ada", predicted(0.6))
    with pytest.raises(HoldoutConflict, match=r"answers at once.*ladder="):
        single.replay_rounds("corrected")
    board = Leaderboard(X, Y, scoring="accuracy", name="spring", rounds=True)
    with pytest.raises(HoldoutConflict, match=r"No round .* was closed"):
        board.replay_rounds("corrected")
    board.submit("Ada", predicted(0.6))
    board.close_round()
    with pytest.raises(HoldoutConflict, match=r"No label was amended"):
        board.replay_rounds("corrected")
    board = corrected(board)
    board.submit("Ada", predicted(0.7))
    with pytest.raises(HoldoutConflict, match=r"1 submission waits.*close_round"):
        board.replay_rounds("corrected")
    board.close_round()
    with pytest.raises(HoldoutConflict, match=r"no replay of this board"):
        board.replay_rounds("leaderboard")
    assert board.replay_rounds("corrected").labels == WRONG


@pytest.mark.parametrize("removed", [False, True])
def test_predictions_that_were_changed_are_found_and_not_replayed(
    tmp_path: Path, removed: bool
) -> None:
    board = board_with(Y, ledger=tmp_path / "ledger.db")
    statement = "DELETE FROM collected WHERE id = 2"
    if not removed:
        statement = "UPDATE collected SET predictions = :other WHERE id = 2"
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
        connection.execute(statement, () if removed else {"other": compressed(Y)})
    (what,) = findings(board)
    assert what == (
        "submissions that round 1 had were removed"
        if removed
        else "what a round kept of submission 1 of ladder Ben/leaderboard was changed"
    )
    if not removed:
        with pytest.raises(LedgerError, match=r"round 1 kept of submission 1 of 'Ben'.*verify"):
            corrected(board).replay_rounds("corrected")


def replay_and_die(board: Leaderboard, rounds: int) -> None:
    """Replay so many rounds, and die while the next one is answered."""
    import os

    from ladderholdout.ledger.rounds import Rounds

    close, closed = Rounds.close, iter(range(rounds))

    def close_or_die(*given: Any) -> Any:
        if next(closed, None) is None:
            os._exit(9)
        return close(*given)

    Rounds.close = close_or_die  # type: ignore[method-assign]
    board.replay_rounds("corrected")


@pytest.mark.processes
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_replay_that_was_cut_short_goes_on(tmp_path: Path, rounds: int) -> None:
    board = corrected(board_with(Y))
    with pytest.raises(Exception, match=r"terminated"):
        at_once([(replay_and_die, board, rounds)])
    assert len(board.replay_rounds("corrected").answers) == 8
    again = Leaderboard.open("spring", ladder="corrected", ledger=board.ledger)
    assert releases(again) == releases(board_with(RIGHT, ledger=tmp_path / "fresh.db"))
    assert findings(board) == []


def test_postgresql_keeps_and_replays_rounds_as_a_file_does(database: str, tmp_path: Path) -> None:
    board = corrected(board_with(Y, ledger=database))
    assert len(board.replay_rounds("corrected").answers) == 8
    again = Leaderboard.open("spring", ladder="corrected", ledger=database)
    assert releases(again) == releases(board_with(RIGHT, ledger=tmp_path / "fresh.db"))
    assert findings(board) == []


def test_the_command_line_answers_rounds_again() -> None:
    board = corrected(board_with(Y))
    text = output("replay-rounds", "spring", "--into", "corrected")
    assert text.startswith("16 labels were amended; 8 submissions in 3 rounds were answered again")
    shown = json.loads(output("replay-rounds", "spring", "--into", "corrected", "--json"))
    assert len(shown["answers"]) == 8 and shown["of"] == "leaderboard"
    assert "Cyd" in output("leaderboard", "spring", "--ladder", "corrected")
    assert findings(board) == []
