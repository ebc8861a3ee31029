"""Attacks rounds: answers before the end, order, places, kills, retries, labels that change."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ladderholdout import LadderHoldout
from ladderholdout.errors import (
    DailyLimit,
    HoldoutConflict,
    InvalidArgument,
    InvalidSubmission,
    MetricError,
)
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.leaderboard import Collected, Leaderboard
from ladderholdout.metrics import metric_of_items
from tests.cli.test_cli import output
from tests.support import ledgers
from tests.support.holdouts import assert_replays, coins
from tests.support.ledgers import die_when
from tests.support.processes import at_once

N = 400
Ints = NDArray[np.int64]
BOTH = pytest.mark.parametrize("per", ["team", "rank"])
pytestmark = pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")


def started(per: str = "team", **given: Any) -> tuple[Leaderboard, Ints]:
    X, y = coins(N)
    stated = {"scoring": "accuracy", "name": "spring", "ledger": "memory", "rounds": True}
    return Leaderboard(X, y, **stated | {"per": per} | given), y


def hits(y: Ints, count: int) -> Ints:
    return np.where(np.arange(len(y)) < count, y, 1 - y)


def findings(board: Leaderboard) -> tuple[Any, ...]:
    (name,) = ledgers.names(board)
    return tuple(ledgers.findings(board, name))


def send(board: Leaderboard, y: Ints, *sent: tuple[str, int]) -> None:
    for account, count in sent:
        waiting = board.submit(account, hits(y, count))
        assert isinstance(waiting, Collected)


@BOTH
def test_nothing_is_shown_before_a_round_is_closed(per: str) -> None:
    board, y = started(per)
    before = str(board.standings())
    send(board, y, ("Ada", 300), ("Ben", 390), ("Ada", 320))
    after = board.standings()
    assert str(after).replace(" 1 accounts", "") == before.replace(" 1 accounts", "")
    assert (len(after), after.submissions, board.waiting()) == (0, 0, {"Ada": 2, "Ben": 1})
    closed = board.close_round()
    assert closed is not None and board.waiting() == {}
    assert [account for account, _ in closed.releases] == ["Ada", "Ben", "Ada"]
    best = {row.account: row.score for row in board.standings()}
    assert best == {"Ada": 0.8, "Ben": pytest.approx(0.95)}
    assert findings(board) == ()


@BOTH
def test_the_members_of_a_round_pay_for_their_place_and_not_for_each_other(per: str) -> None:
    board, y = started(per)
    sent = [(f"team {i}", 200 + 10 * i) for i in range(8)]
    send(board, y, *sent)
    board.close_round()
    for account, _ in sent if per == "team" else sent[-1:]:
        certificate = board.certificate(account)
        # The event's number, and a place of 8: as for any announced batch.
        assert certificate.log_count == pytest.approx(math.log(1.25) + math.log(8))
    single, _ = started(per, rounds=False, name="single")
    for account, count in sent:
        single.submit(account, hits(y, count))
    alone = single.certificate("team 7").log_count
    assert alone is not None and alone > certificate.log_count


def test_a_later_round_pays_for_those_before_it() -> None:
    board, y = started()
    send(board, y, ("Ada", 300), ("Ben", 310))
    board.close_round()
    send(board, y, ("Ada", 380))
    board.close_round()
    first, later = board.certificate("Ben"), board.certificate("Ada")
    assert first.log_count == pytest.approx(math.log(1.25) + math.log(2))
    assert later.log_count is not None and later.log_count > first.log_count + 2.0
    rounds = board.rounds()
    assert rounds is not None
    assert [(one.number, one.submissions, one.improved) for one in rounds.closed] == [
        (1, 2, 2),
        (2, 1, 1),
    ]
    assert [board.metric.to_score(one.best) for one in rounds.closed if one.best is not None] == [
        pytest.approx(0.75),
        pytest.approx(0.95),
    ]


def test_a_round_is_the_batch_that_one_ladder_would_have(tmp_path: Path) -> None:
    """For one account, a round releases what `LadderHoldout.batch` does."""
    board, y = started()
    X, _ = coins(N)
    plain = LadderHoldout(X, y, scoring="accuracy", mechanism=board.mechanism, ledger="memory:one")
    with plain.batch() as batch:
        for count in (210, 350, 300, 351):
            batch.submit(hits(y, count))
    send(board, y, *[("Ada", count) for count in (210, 350, 300, 351)])
    closed = board.close_round()
    assert closed is not None
    mine = [(release.score, release.improved) for _, release in closed.releases]
    assert mine == [(release.score, release.improved) for release in batch.releases]
    assert_replays(
        LadderHoldout.open("spring", account="Ada", ladder="leaderboard", ledger=board.ledger)
    )


def test_predictions_are_read_when_they_come() -> None:
    board, y = started()
    mutable = hits(y, 390)
    board.submit("Ada", mutable)
    mutable[:] = 1 - y
    closed = board.close_round()
    assert closed is not None and closed.releases[0][1].score == pytest.approx(0.95)
    with pytest.raises(InvalidSubmission):
        board.submit("Ada", mutable[1:])
    assert board.waiting() == {}


def test_an_empty_round_goes_on() -> None:
    board, _ = started()
    assert board.close_round() is None
    rounds = board.rounds()
    assert rounds is not None and rounds.number == 1


def test_what_a_board_is_stays(tmp_path: Path) -> None:
    _, y = started(ledger=tmp_path / "ledger.db")
    again = Leaderboard.open("spring", ledger=tmp_path / "ledger.db")
    assert again.by_rounds and isinstance(again.submit("Ada", hits(y, 300)), Collected)
    with pytest.raises(HoldoutConflict, match="rounds=True"):
        started(ledger=tmp_path / "ledger.db", rounds=24)
    single, _ = started(ledger="memory:single", rounds=False)
    single.submit("Ada", hits(y, 300))
    with pytest.raises(HoldoutConflict, match="answered at once before"):
        started(ledger="memory:single")
    with pytest.raises(HoldoutConflict, match="answers at once"):
        single.close_round()
    with pytest.raises(InvalidArgument, match="number of hours"):
        started(rounds=-1, ledger="memory:other")


def test_a_round_ends_after_its_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    board, y = started(rounds=24)
    waiting = board.submit("Ada", hits(y, 390))
    assert isinstance(waiting, Collected) and waiting.due is not None
    assert len(board.standings()) == 0 and board.close_if_due() is None
    import ladderholdout.leaderboard.board as module

    class Later(module.datetime):  # type: ignore[misc,name-defined]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return super().now(tz) + timedelta(hours=24)

    monkeypatch.setattr(module, "datetime", Later)
    assert [row.account for row in board.standings()] == ["Ada"]


def test_labels_that_were_amended_measure_the_round(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    board, y = started(ledger=ledger)
    send(board, y, ("Ada", N))
    better, X = y.copy(), coins(N)[0]
    better[:20] = 1 - better[:20]
    Leaderboard(X, better, scoring="accuracy", name="spring", ledger=ledger)
    closed = board.close_round()
    assert closed is not None and closed.releases[0][1].score == pytest.approx(0.95)


def close(board: Leaderboard) -> int:
    closed = board.close_round()
    return 0 if closed is None else closed.record.submissions


def close_and_die(board: Leaderboard) -> None:
    die_when("round")
    board.close_round()


def submit(board: Leaderboard, y: Ints, account: str) -> None:
    for count in range(200, 300, 10):
        board.submit(account, hits(y, count))


@pytest.mark.processes
@BOTH
def test_a_round_is_closed_once_whoever_closes_it(per: str, default_ledger: Path) -> None:
    board, y = started(per, ledger=None)
    send(board, y, ("Ada", 300), ("Ben", 310), ("Cyd", 250))
    assert sorted(at_once([(close, board)] * 3)) == [0, 0, 3]
    assert findings(board) == ()


@pytest.mark.processes
def test_a_round_that_was_cut_short_is_answered_later(default_ledger: Path) -> None:
    board, y = started(ledger=None)
    send(board, y, ("Ada", 300), ("Ben", 310))
    with pytest.raises(Exception, match="terminated"):
        at_once([(close_and_die, board)])
    assert len(board.standings()) == 0 and board.waiting() == {"Ada": 1, "Ben": 1}
    assert close(board) == 2 and findings(board) == ()


@pytest.mark.processes
def test_whatever_comes_while_a_round_is_closed_is_in_this_one_or_the_next(
    default_ledger: Path,
) -> None:
    board, y = started(ledger=None)
    names = ("Ada", "Ben", "Cyd")
    at_once([(submit, board, y, name) for name in names] + [(close, board)] * 2)
    board.close_round()
    rounds, found = board.rounds(), board.standings()
    assert rounds is not None
    assert sum(one.submissions for one in rounds.closed) == found.submissions == 30
    assert findings(board) == ()


def test_the_command_line_closes_a_round(default_ledger: Path) -> None:
    board, y = started(ledger=None)
    assert "no submission waits" in output("close-round", "spring")
    send(board, y, ("Ada", 300))
    assert "no submission waits" in output("close-round", "spring", "--if-due")
    text = output("close-round", "spring")
    assert "Ada, submission 1: 0.75, improved" in text and text.startswith("round 1, closed")
    send(board, y, ("Ben", 300))
    shown = json.loads(output("close-round", "spring", "--json"))
    assert shown["round"]["number"] == 2 and shown["releases"][0][0] == "Ben"


REFERENCES = [f"r{place}" for place in range(60)]


def judge(reference: str, answer: str) -> Any:
    """Judge answers, of which each has another way to fail."""
    failures: dict[str, Any] = {"none": lambda: int("x"), "key": lambda: {}["x"], "half": float}
    if answer in failures:
        return failures[answer]() or 0.5
    return reference == answer


def judged(per: str = "team", name: str = "judged", **given: Any) -> Leaderboard:
    stated = {"ledger": "memory", "rounds": True} | given
    return Leaderboard(
        np.arange(60).reshape(-1, 1),
        REFERENCES,
        scoring=metric_of_items("mine", judge),
        name=name,
        per=per,
        **stated,
    )


@BOTH
@pytest.mark.parametrize("way", ["none", "key", "half"])
def test_what_cannot_be_measured_is_left_out_and_blocks_nobody(per: str, way: str) -> None:
    board = judged(per)
    for account, answers in (
        ("Eve", [way, *REFERENCES[1:]]),
        ("Ada", REFERENCES),
        ("Eve", ["?"] * 60),
        ("Ben", [*REFERENCES[:30], *["?"] * 30]),
        ("Eve", [*REFERENCES[:-1], way]),
    ):
        board.submit(account, answers)
    closed = board.close_round()
    assert closed is not None and board.waiting() == {} and board.close_round() is None
    assert [account for account, _ in closed.releases] == ["Ada", "Eve", "Ben"]
    assert closed.record.left_out == ("Eve", "Eve") and closed.record.submissions == 3
    assert str(closed).splitlines()[0].endswith("left out, not answered: Eve, Eve")
    certificate = board.certificate("Ada")
    assert certificate.log_count == pytest.approx(math.log(1.25) + math.log(3))
    assert findings(board) == () and "left out, not answered: Eve, Eve" in board.page()


def test_a_metric_that_fails_on_all_decides_nothing_and_refuses_nobody() -> None:
    board = judged(name="due", rounds=1e-9)
    board.submit("Eve", ["key"] * 60)
    with pytest.raises(MetricError, match=r"KeyError.*take_out"):
        board.close_round()
    # Whoever reads the board or submits to it, when its round is due, is not refused for that.
    assert len(board.standings()) == 0 and board.waiting() == {"Eve": 1}
    board.submit("Ada", REFERENCES)
    assert [row.account for row in board.standings()] == ["Ada"]


def test_a_round_of_which_all_is_left_out_is_closed() -> None:
    board = judged(name="none")
    board.submit("Eve", ["none"] * 60)
    closed = board.close_round()
    assert closed is not None and (closed.record.submissions, closed.best) == (0, None)
    assert closed.record.left_out == ("Eve",) and findings(board) == ()
    board.submit("Ada", REFERENCES)
    assert close(board) == 1 and findings(board) == ()


def test_the_owner_takes_out_what_waits(default_ledger: Path) -> None:
    board, y = started(ledger=None)
    send(board, y, ("Ada", 300), ("Eve", 390), ("Eve", 380))
    with pytest.raises(InvalidArgument, match=r"one that waits \(Ada, Eve\), but is Evie"):
        board.take_out("Evie")
    shown = json.loads(output("close-round", "spring", "--take-out", "Eve", "--json"))
    assert shown["round"]["left_out"] == ["Eve", "Eve"] and shown["round"]["submissions"] == 1
    assert [row.account for row in board.standings()] == ["Ada"] and findings(board) == ()
    send(board, y, ("Eve", 390))
    assert close(board) == 1


@BOTH
def test_a_retry_is_no_new_submission_of_the_day(per: str) -> None:
    board, y = started(per)
    once = Origin(key="k", per_day=1)
    for waiting in (1, 1):
        assert board.collect("Ada", hits(y, 300), once).waiting == waiting
    with pytest.raises(DailyLimit):
        board.collect("Ada", hits(y, 300), Origin(key="other", per_day=1))
    assert close(board) == 1
    assert "answered in a round before" in board.collect("Ada", hits(y, 300), once).line()
    assert board.waiting() == {}


def test_the_best_of_a_round_is_that_of_the_standings() -> None:
    board, y = started()
    send(board, y, ("Ada", 300), ("Cyd", 390))
    with pytest.raises(InvalidArgument, match="take_out"):
        board.leave("Cyd")
    board.close_round()
    board.leave("Cyd")
    send(board, y, ("Ada", 320))
    closed = board.close_round()
    assert closed is not None and closed.best == board.standings()[0].score == 0.8


def test_finals_wait_for_what_waits() -> None:
    board, y = started(reserve=0.5, name="finals")
    send(board, y, ("Ada", 300), ("Ben", 340))
    board.close_round()
    send(board, y, ("Ada", 390))
    with pytest.raises(HoldoutConflict, match=r"1 submission waits .*close-round"):
        board.finals()
    assert board.finals_held() == ()
    board.close_round()
    held = board.finals()
    assert [row.account for row in held] == ["Ada", "Ben"]
    send(board, y, ("Ben", 395))
    assert board.finals() == held
    with pytest.raises(HoldoutConflict, match="1 submission waits"):
        board.finals(again=True)
