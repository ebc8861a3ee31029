"""Attacks leaderboards: ranks finer than releases, copies, crowds of accounts, lost order."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, binomtest

from ladderholdout import LadderHoldout
from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.transcript import Transcript, certify
from ladderholdout.errors import (
    BudgetWarning,
    HoldoutConflict,
    InvalidArgument,
    InvalidSubmission,
    KnownHoldoutWarning,
    OpenedWarning,
    UnknownHoldout,
)
from ladderholdout.leaderboard import Leaderboard, Standings
from ladderholdout.limits.intervals import exact_upper
from ladderholdout.mechanisms import (
    Ladder,
    Outcome,
    ParameterFreeLadder,
    PricedLadder,
    RankLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
    mechanism_from,
)
from ladderholdout.metrics import Evaluation
from tests.cli.test_cli import call, output
from tests.support import ledgers
from tests.support.holdouts import assert_replays, coins, guesses
from tests.support.ledgers import counts, ladders_at
from tests.support.processes import at_once

N, FEW = 100, 49
Ints = NDArray[np.int64]
BOTH = pytest.mark.parametrize("per", ["team", "rank"])


def started(per: str = "team", n: int = N, **given: Any) -> tuple[Leaderboard, Ints]:
    X, y = coins(n)
    stated = {"scoring": "accuracy", "name": "spring", "ledger": "memory", "per": per} | given
    return Leaderboard(X, y, **stated), y


def hits(y: Ints, count: int) -> Ints:
    """Return predictions of which so many are right."""
    return np.where(np.arange(len(y)) < count, y, 1 - y)


def shown(board: Leaderboard) -> list[tuple[int, str, float, int]]:
    return [(row.rank, row.account, round(row.score, 9), row.ties) for row in board.standings()]


def findings(board: Leaderboard) -> tuple[Any, ...]:
    (name,) = ledgers.names(board)
    return tuple(ledgers.findings(board, name))


# The rule of the ranks


def literal(
    step: Fraction, places: int, submissions: list[tuple[str, Fraction]]
) -> Iterator[tuple[Fraction, bool, list[tuple[Fraction, str]]]]:
    """Blum & Hardt 2015, Section 2.1, with Zheng's Algorithm 2 as the instance of each rank."""
    board: list[tuple[Fraction, str]] = []
    for account, risk in submissions:
        rounded = math.floor(risk / step + Fraction(1, 2)) * step
        taken = beaten = None
        for i in range(places):
            if i == len(board) or rounded < board[i][0]:
                taken = i
                break
            beaten = board[i][0]
            if board[i][1] == account:
                break
        if taken is not None:
            own = [entry for entry in board if entry[1] == account]
            board.insert(taken, (rounded, account))
            for entry in own:
                del board[max(i for i, one in enumerate(board) if one == entry)]
            del board[places:]
            beaten = rounded
        assert beaten is not None
        yield beaten, taken is not None, list(board)


submissions_of = st.lists(
    st.tuples(st.sampled_from("ABCDE"), st.integers(0, 24).map(lambda k: Fraction(k, 24))),
    min_size=1,
    max_size=40,
)


@given(submissions_of, st.integers(1, 6), st.sampled_from([Fraction(1, 10), Fraction(1, 4)]))
def test_a_submission_climbs_the_ranks_as_in_the_paper(
    submissions: list[tuple[str, Fraction]], places: int, step: Fraction
) -> None:
    rule, rng = RankLadder(float(step), places), np.random.default_rng(0)
    state = rule.start(24)
    for (account, risk), (told, improved, board) in zip(
        submissions, literal(step, places, submissions), strict=True
    ):
        losses = np.arange(24) < risk * 24
        state, outcome = rule.advance(state, Evaluation.from_losses(losses).by(account), rng)
        assert outcome == Outcome(pytest.approx(float(told)), improved, outcome.evidence)
        assert [(at * step, who) for at, who in state.places] == board


@given(submissions_of, st.integers(1, 6))
def test_no_rank_ever_falls_back_and_releases_are_few(
    submissions: list[tuple[str, Fraction]], places: int
) -> None:
    rule, rng = RankLadder(0.25, places), np.random.default_rng(0)
    state = rule.start(24)
    for account, risk in submissions:
        before = state
        losses = np.arange(24) < risk * 24
        evaluation = Evaluation.from_losses(losses).by(account)
        state, outcome = rule.advance(state, evaluation, rng)
        was = [at for at, _ in before.places] + [5] * (places - len(before.places))
        now = [at for at, _ in state.places] + [5] * (places - len(state.places))
        assert all(new <= old for new, old in zip(now, was, strict=True))
        assert (sum(now) < sum(was)) == outcome.improved
        assert len({who for _, who in state.places}) == len(state.places)
    assert state.releases <= 5 * places  # however many accounts there are


def test_a_rank_ladder_is_known_to_the_ledger_by_its_settings() -> None:
    rule = RankLadder(step=0.1, places=3)
    assert mechanism_from(rule.name, json.loads(json.dumps(rule.settings()))) == rule
    for settings in ({"step": 0, "places": 3}, {"step": 0.1, "places": 0}, {"step": 0.1}):
        with pytest.raises(InvalidArgument):
            mechanism_from("RankLadder", settings)


def test_a_rank_ladder_refuses_who_names_no_account() -> None:
    X, y = coins(N)
    rule = RankLadder(step=0.1, places=3)
    holdout = LadderHoldout(X, y, scoring="accuracy", mechanism=rule, ledger="memory")
    with pytest.raises(InvalidArgument, match=r"names none.*Leaderboard"):
        holdout.submit(y)
    assert holdout.status().submissions == 0


# Per team


def test_a_team_is_told_what_a_ladder_of_its_own_would_tell() -> None:
    board, y = started(mechanism=Ladder(step=0.05))
    alone = {
        team: LadderHoldout(
            *coins(N), scoring="accuracy", mechanism=Ladder(step=0.05), ledger="memory"
        )
        for team in "AB"
    }
    for i, predictions in enumerate([*guesses(1, 10, N), *(hits(y, k) for k in range(50, 90, 4))]):
        team = "AB"[i % 2]
        assert board.submit(team, predictions) == alone[team].submit(predictions)
    assert findings(board) == ()


@BOTH
def test_a_new_account_starts_without_warning_that_the_holdout_is_used(per: str) -> None:
    board, y = started(per)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(5):
            board.submit(f"team {i}", hits(y, 50 + i))


def test_refused_predictions_start_no_ladder(default_ledger: Path) -> None:
    board, y = started(ledger=None)
    before = counts(default_ledger)
    with pytest.raises(InvalidSubmission):
        board.submit("Ada", y[:-1])
    assert counts(default_ledger) == before
    assert board.standings().accounts == 0


def test_each_team_has_a_budget_of_its_own() -> None:
    board, y = started(budget=1)
    for account in ("Ada", "Ben"):
        with pytest.warns(BudgetWarning):
            assert board.submit(account, hits(y, 60)).releases_left == 0


# Ranks are no finer than releases


def exact_ranks() -> Callable[[str, Ints, Ints], dict[str, int]]:
    """A board that shows nothing but exact ranks: by the best raw score of each account."""
    best: dict[str, float] = {}

    def submit(account: str, predictions: Ints, y: Ints) -> dict[str, int]:
        score = float((predictions == y).mean())
        best[account] = max(best.get(account, 0.0), score)
        return {who: 1 + sum(other > own for other in best.values()) for who, own in best.items()}

    return submit


def ranks_of(board: Leaderboard) -> Callable[[str, Ints, Ints], dict[str, int]]:
    def submit(account: str, predictions: Ints, y: Ints) -> dict[str, int]:
        board.submit(account, predictions)
        return {row.account: row.rank for row in board.standings()}

    return submit


def two_accounts(
    submit: Callable[[str, Ints, Ints], dict[str, int]], y: Ints, seed: int
) -> tuple[float, float]:
    """Zheng, Section 2.2: flip one label at a time, and keep what brings the other past.

    Returns the scores of the first and of the last guess.
    """
    best = np.random.default_rng(seed).integers(0, 2, len(y))
    first, ahead, behind = best, "A", "B"
    submit(ahead, best, y)
    for i in range(len(y)):
        flipped = best.copy()
        flipped[i] = 1 - flipped[i]
        ranks = submit(behind, flipped, y)
        if ranks.get(behind, math.inf) < ranks[ahead]:
            best, ahead, behind = flipped, behind, ahead
    return float((first == y).mean()), float((best == y).mean())


@pytest.mark.parametrize("seed", range(2))
def test_two_accounts_climb_exact_ranks_to_the_top(seed: int) -> None:
    _, y = coins(FEW)
    _, last = two_accounts(exact_ranks(), y, seed)
    assert last == 1.0


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_two_accounts_do_not_climb_a_leaderboard(per: str, seed: int) -> None:
    board, y = started(per, FEW)
    first, last = two_accounts(ranks_of(board), y, seed)
    assert last - first <= 2 * board.mechanism.resolution(FEW) < 0.3


@BOTH
def test_scores_that_round_alike_share_a_rank_and_look_alike(per: str) -> None:
    """What is shown of two contests, whose raw scores differ within a step, is the same."""
    texts = []
    for more in (0, 1):
        board, y = started(per, mechanism=None)
        for account, count in (("Ada", 60), ("Ben", 58), ("Cyd", 70), ("Dan", 59), ("Ada", 61)):
            board.submit(account, hits(y, count + more))
        assert [row[:2] for row in shown(board)] == [
            (1, "Cyd"), (2, "Ada"), (2, "Ben"), (2, "Dan"),
        ]  # fmt: skip
        assert [row.ties for row in board.standings()] == [0, 2, 2, 2]
        texts.append((str(board.standings()), board.standings()._repr_html_()))
    assert texts[0] == texts[1]


@pytest.mark.long
def test_the_default_grid_is_that_of_zhengs_leaderboard() -> None:
    assert started()[0].mechanism == SimplifiedLadder(step=0.1)
    assert started("rank")[0].mechanism == RankLadder(step=0.1, places=10)
    reserved = started(reserve=0.5)[0]
    assert reserved.mechanism == SimplifiedLadder(step=1 / 7)


@pytest.mark.parametrize(
    ("per", "mechanism"),
    [
        ("team", ParameterFreeLadder()),
        ("team", PricedLadder()),
        ("team", ShakyLadder(step=0.1, noise=0.01)),
        ("team", RoundedDisclosure(step=0.1)),
        ("team", RankLadder(step=0.1, places=3)),
        ("rank", SimplifiedLadder(step=0.1)),
        ("rank", "RankLadder"),
    ],
)
def test_rules_that_tell_more_than_a_grid_are_refused(per: str, mechanism: Any) -> None:
    with pytest.raises(InvalidArgument, match="on a grid and without noise"):
        started(per, mechanism=mechanism)


# Copies


def test_equal_predictions_are_told_equal_scores_by_all_teams() -> None:
    board, y = started()
    board.submit("Ada", hits(y, 58))
    told = board.submit("Ada", hits(y, 77)).score
    for thief in ("Ben", "Cyd"):
        release = board.submit(thief, hits(y, 77))
        assert (release.score, release.improved) == (told, True)
        assert board.submit(thief, hits(y, 77)).improvements == release.improvements
    assert {row[2] for row in shown(board)} == {told}
    assert [row[1] for row in shown(board)] == ["Ada", "Ben", "Cyd"]  # whoever was there first


def test_a_copy_takes_no_rank_and_steps_nothing() -> None:
    board, y = started("rank")
    first = board.submit("Ada", hits(y, 77))
    board.submit("Ben", hits(y, 84))
    before = shown(board)
    for account in ("Ada", "Cyd"):
        release = board.submit(account, hits(y, 77))
        # Answered as what does not improve: whose predictions they repeat shows nobody.
        assert (release.score, release.improved, release.improvements) == (first.score, False, 2)
        assert (release.repeat_of, release.is_incumbent) == (None, False)
    assert shown(board) == before
    assert board.standings().submissions == 4
    assert findings(board) == ()


def test_more_accounts_tell_nothing_once_the_ranks_are_taken() -> None:
    """A crowd with a guess each is told all scores by ladders per team, none by full ranks."""
    told: dict[str, int] = {}
    for per, mechanism in (("team", SimplifiedLadder(0.1)), ("rank", RankLadder(0.1, 3))):
        board, y = started(per, mechanism=mechanism)
        for i in range(3):
            board.submit(f"leader {i}", np.roll(hits(y, 90), i))  # three different ones
            board.submit(f"leader {i}", hits(y, 90 - i))
        releases = [board.submit(f"{i}", guess) for i, guess in enumerate(guesses(3, 50, N))]
        told[per] = sum(release.improved for release in releases)
        if per == "rank":
            # What there is to beat stands at the last place, for all to see.
            assert {release.score for release in releases} == {board.standings()[-1].score}
    assert told == {"team": 50, "rank": 0}


# The record


@BOTH
def test_a_board_replays_from_the_ledger_alone(per: str, default_ledger: Path) -> None:
    board, y = started(per, ledger=None)
    for i, guess in enumerate([*guesses(5, 30, N), *(hits(y, k) for k in range(50, 90))]):
        board.submit("ABCDEFGHIJKLMNOP"[i * 7 % 16], guess)
    assert findings(board) == ()
    assert_replays(board._home)
    if per == "rank":
        assert len(board.standings()) == 10
        _, ladder, _ = ledgers.record(board)  # type: ignore[arg-type]
        assert [row.account for row in board.standings()] == [
            account for _, account in ladder.state["places"]
        ]


@BOTH
def test_another_process_goes_on_where_the_board_stood(per: str, default_ledger: Path) -> None:
    board, y = started(per, ledger=None)
    board.submit("Ada", hits(y, 60))
    again = Leaderboard.open("spring")
    copied = pickle.loads(pickle.dumps(board))
    with pytest.warns(KnownHoldoutWarning, match="another order"):
        X, _ = coins(N)
        turned = Leaderboard(X[::-1], y[::-1], name="spring", per=per)
    again.submit("Ben", hits(y, 70))
    copied.submit("Cyd", hits(y, 80))
    turned.submit("Dan", hits(y, 90)[::-1])
    assert [row[:2] for row in shown(board)] == [(1, "Dan"), (2, "Cyd"), (3, "Ben"), (4, "Ada")]
    assert board.per == again.per == copied.per == turned.per == per
    assert again.mechanism == board.mechanism
    assert again.metric.name == "accuracy"


def crowd(board: Leaderboard, y: Ints, seed: int) -> None:
    """One of several processes that submit at once, for the same accounts."""
    rng = np.random.default_rng(seed)
    for _ in range(12):
        board.submit(f"team {rng.integers(4)}", np.where(rng.random(len(y)) < 0.7, y, 1 - y))


@pytest.mark.processes
@BOTH
def test_processes_that_submit_at_once_get_one_order(per: str, default_ledger: Path) -> None:
    board, y = started(per, ledger=None)
    at_once([(crowd, board, y, seed) for seed in (1, 2, 3)])
    found = board.standings()
    assert (found.submissions, found.accounts) == (36, 4)
    assert findings(board) == ()
    names = ladders_at(board)
    assert len(names) == len(set(names)) == (5 if per == "team" else 1)


def test_a_board_is_its_holdout_and_its_kind() -> None:
    board, y = started()
    X, _ = coins(N)
    with pytest.raises(HoldoutConflict, match="per='team'"):
        Leaderboard(X, y, per="rank", ledger=board.ledger)
    with pytest.raises(HoldoutConflict, match="mechanism"):
        Leaderboard(X, y, mechanism=Ladder(step=0.01), ledger=board.ledger)
    with pytest.warns(KnownHoldoutWarning, match="count together"):
        second = Leaderboard(
            X, y, scoring="accuracy", per="rank", ladder="ranks", ledger=board.ledger
        )
    board.submit("Ada", hits(y, 60))
    second.submit("Ada", hits(y, 62))
    # What the first board told is paid for on the second.
    assert second.certificate().log_count > board.certificate().log_count


def test_a_ladder_that_was_started_by_hand_does_not_stand_on_the_board() -> None:
    board, y = started()
    X, _ = coins(N)
    with pytest.warns(KnownHoldoutWarning):
        by_hand = LadderHoldout(
            X, y, scoring="accuracy", account="Eve", ladder="leaderboard",
            mechanism=RoundedDisclosure(step=0.01), ledger=board.ledger,
        )  # fmt: skip
    by_hand.submit(hits(y, 99))
    assert shown(board) == []
    with pytest.raises(HoldoutConflict, match="started by hand"):
        board.submit("Eve", hits(y, 98))


def test_a_ladder_of_another_kind_is_no_board() -> None:
    X, y = coins(N)
    LadderHoldout(X, y, scoring="accuracy", name="h", account="board", ladder="leaderboard")
    with pytest.raises(HoldoutConflict, match="PricedLadder"):
        Leaderboard.open("h")


@pytest.mark.parametrize(
    ("account", "said"), [("board", "taken"), ("", "characters"), ("a\nb", r"U\+000A"), (3, "int")]
)
def test_odd_accounts_are_refused(account: Any, said: str) -> None:
    board, y = started()
    with pytest.raises(InvalidArgument, match=said):
        board.submit(account, y)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="per must be"):
        started("league")
    with pytest.raises(InvalidArgument, match="budget"):
        started("rank", budget=3)
    with pytest.raises(InvalidArgument, match="loss_range"):
        started("rank", scoring="neg_log_loss")
    with pytest.raises(InvalidArgument, match="confidence"):
        started()[0].standings(1.5)
    with pytest.raises(InvalidArgument, match="confidence"):
        started()[0].certificate(confidence=0)


def test_unknown_boards_say_how_one_is_started(default_ledger: Path) -> None:
    X, y = coins(N)
    LadderHoldout(X, y, scoring="accuracy", name="plain")
    for name in ("plain", "other"):
        with pytest.raises(UnknownHoldout, match=r"started with its rows: Leaderboard\("):
            Leaderboard.open(name)


# Certificates


def test_the_winners_certificate_counts_all_accounts() -> None:
    """By hand: teams with one release and with two, then the winner's first."""
    board, y = started(mechanism=SimplifiedLadder(0.1))
    for account, count in (("A", 60), ("B", 50), ("C", 50), ("C", 70), ("B", 49), ("D", 80)):
        board.submit(account, hits(y, count))
    first = board.certificate()
    ladders = (
        LadderTranscript(queries=1, improved=(1,), values=(4,), n_values=11),
        LadderTranscript(queries=2, improved=(1,), values=(5,), n_values=11),
        # The first predictions of C were those of B; on the ladder of C they are a look.
        LadderTranscript(queries=2, improved=(1, 2), values=(5, 3), n_values=11),
    )
    by_hand = certify(0.2, N, Transcript.alone(None, ladders), rounding=0.1)
    assert (first.score, first.log_count) == (0.8, pytest.approx(by_hand.log_count))
    assert (1 - first.high, 1 - first.low) == (
        pytest.approx(by_hand.low), pytest.approx(by_hand.high),
    )  # fmt: skip
    assert first.log_count > certify(0.2, N, Transcript.alone(None, ladders[:1])).log_count
    assert board.certificate("A").log_count < first.log_count
    assert board.certificate("A", 0.99).confidence == 0.99


def test_the_certificates_of_ranks_count_what_all_were_told() -> None:
    board, y = started("rank", mechanism=RankLadder(0.1, 2))
    for account, count in (("A", 60), ("B", 70), ("C", 50), ("C", 80), ("A", 90)):
        board.submit(account, hits(y, count))
    assert [row[1] for row in shown(board)] == ["A", "C"]
    # While a place was empty anything could have been told; then C had to beat what A had.
    before = LadderTranscript(4, (1, 2, 4), (4, 3, 2), 11, falling=False, choices=(11, 11, 4))
    by_hand = certify(0.1, N, Transcript.alone(before), rounding=0.1)
    assert board.certificate().log_count == pytest.approx(by_hand.log_count)
    # That of the second place is of its submission, the fourth of all.
    before = LadderTranscript(3, (1, 2), (4, 3), 11, falling=False)
    by_hand = certify(0.2, N, Transcript.alone(before), rounding=0.1)
    found = board.certificate("C")
    assert (found.submission, found.score) == (4, pytest.approx(0.8))
    assert found.log_count == pytest.approx(by_hand.log_count)
    assert (found.low, found.high) == (
        pytest.approx(1 - by_hand.high), pytest.approx(1 - by_hand.low),
    )  # fmt: skip
    assert board.certificate("B").missing == "nothing was released to 'B'"


def test_a_transcript_refuses_choices_that_its_values_are_not_among() -> None:
    told = {"queries": 2, "improved": (1, 2), "values": (4, 3), "n_values": 11, "falling": False}
    free, bound = LadderTranscript(**told), LadderTranscript(**told, choices=(11, 4))
    assert free.length() - bound.length() == pytest.approx(math.log(11 / 4))
    for choices in ((11, 3), (11,)):
        with pytest.raises(InvalidArgument, match="choices"):
            LadderTranscript(**told, choices=choices)


@BOTH
def test_an_audit_of_a_ladder_voids_what_comes_after_it(per: str, default_ledger: Path) -> None:
    board, y = started(per, ledger=None)
    board.submit("Ada", hits(y, 60))
    account = "board" if per == "rank" else "Ada"
    LadderHoldout.open("spring", account=account, ladder="leaderboard").owner.audit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OpenedWarning)
        board.submit("Ben", hits(y, 80))
    ben, ada = board.standings()
    assert (ben.account, ben.low, ben.best_rank) == ("Ben", None, 1)
    assert ada.low is not None and ada.worst_rank == 2
    assert "an audit had shown raw scores" in board.certificate("Ben").missing


def test_true_ranks_follow_from_the_certificates() -> None:
    board, y = started(n=4000, mechanism=SimplifiedLadder(0.01))
    for account, count in (("low", 2000), ("middle", 3000), ("near", 3100), ("top", 3990)):
        board.submit(account, hits(y, count))
    found = {row.account: (row.best_rank, row.worst_rank) for row in board.standings()}
    assert found == {"top": (1, 1), "near": (2, 3), "middle": (2, 3), "low": (4, 4)}


def test_a_board_without_certificates_says_why() -> None:
    board, y = started(scoring="roc_auc", mechanism=SimplifiedLadder(0.1))
    board.submit("Ada", np.where(y == 1, 0.8, 0.3))
    found = board.standings()
    assert (found[0].low, found[0].best_rank, found[0].score) == (None, None, 1.0)
    assert "no certificates: it depends on more than the released score" in str(found)


def test_an_empty_board_stands_and_certifies_nothing() -> None:
    board, _ = started()
    assert list(board.standings()) == []
    assert board.certificate().missing == "nothing was released yet"
    assert str(board.standings()).splitlines()[-1].startswith("0 submissions of 0 accounts")


def test_a_reserve_gives_the_winning_team_a_second_look(default_ledger: Path) -> None:
    board, y = started(n=400, reserve=0.5, ledger=None)
    board.submit("Ada", hits(y, 390))
    winner = LadderHoldout.open("spring", account="Ada", ladder="leaderboard")
    assert winner.reserve_certificate().reserve_query == 1


# What is shown


def test_standings_are_a_sequence_and_a_table() -> None:
    board, y = started()
    board.submit("Ada", hits(y, 60))
    board.submit("<b>", hits(y, 82))
    found = board.standings()
    assert isinstance(found, Standings)
    assert found[0].since > found[1].since
    assert (len(found), found[0].account, found[-1].account) == (2, "<b>", "Ada")
    assert [row.account for row in found[:1]] == ["<b>"]
    table = pd.DataFrame(found)
    assert list(table["rank"]) == [1, 2]
    assert set(table.columns) == set(type(found[0]).__dataclass_fields__)
    assert "&lt;b&gt;" in found._repr_html_() and "<b>" not in found._repr_html_()
    head, first, second, summary = str(found).splitlines()
    assert head.split()[:3] == ["rank", "account", "score"]
    assert first.split()[:3] == ["1", "<b>", "0.8"]
    assert second.split()[:3] == ["2", "Ada", "0.6"]
    assert summary.startswith("2 submissions of 2 accounts, 2 releases; accuracy, ")


@BOTH
def test_the_command_shows_the_board(per: str, default_ledger: Path) -> None:
    board, y = started(per, ledger=None)
    board.submit("Ada", hits(y, 60))
    board.submit("Ben", hits(y, 82))
    assert output("leaderboard", "spring") == f"{board.standings()}\n"
    found = json.loads(output("leaderboard", "spring", "--json"))
    assert [(row["rank"], row["account"]) for row in found["rows"]] == [(1, "Ben"), (2, "Ada")]
    assert (found["per"], found["accounts"], found["submissions"]) == (per, 2, 2)
    wider = json.loads(output("leaderboard", "spring", "--json", "--confidence", "0.99"))
    assert wider["rows"][0]["low"] < found["rows"][0]["low"]
    result = call("leaderboard", "autumn")
    assert result.exit_code == 1 and "Leaderboard(X, y" in result.stderr


def test_ranks_of_a_ladder_with_errors_in_another_unit() -> None:
    """A risk is counted in steps of its range, and shown in the metric's own unit."""
    X, _ = coins(N)
    y = np.zeros(N)
    board = Leaderboard(
        X, y, scoring="neg_mean_absolute_error", loss_range=(0, 50), per="rank",
        mechanism=RankLadder(0.1, 2), name="m", ledger="memory",
    )  # fmt: skip
    for account, error in (("A", 31.0), ("B", 14.0), ("C", 44.0), ("A", 21.0), ("C", 4.0)):
        board.submit(account, np.full(N, error))
    assert [(row.account, row.score) for row in board.standings()] == [("C", -5.0), ("B", -15.0)]
    assert findings(board) == ()


# Crowds


BOARDS, ROWS, CROWD = 60, 200, 40


def boosted(per: str, seed: int) -> Leaderboard:
    """Zheng, Section 6: a guess from each of many accounts, and a vote of the good ones.

    The labels are coins: every prediction is right with a chance of one half.
    """
    rng = np.random.default_rng([seed, per == "rank"])
    X, y = rng.standard_normal((ROWS, 2)), rng.integers(0, 2, ROWS)
    mechanism = SimplifiedLadder(0.01) if per == "team" else RankLadder(0.01, 5)
    board = Leaderboard(
        X, y, scoring="accuracy", per=per, mechanism=mechanism, name="coins", ledger="memory",
        confidence=0.9,
    )  # fmt: skip
    votes = np.zeros(ROWS)
    for i in range(CROWD):
        guess = rng.integers(0, 2, ROWS)
        release = board.submit(f"{i}", guess)
        if release.improved:
            votes += (release.score - 0.5) * (guess - 0.5)
        if i % 10 == 9:
            board.submit(f"vote {i}", (votes > 0).astype(int))
    return board


def misses(per: str, boards: int) -> tuple[int, int]:
    """Count the winners whose certificate misses, and of which one by their answers alone would."""
    missed = forgetful = 0
    for seed in range(boards):
        board = boosted(per, seed)
        found = board.certificate()
        missed += not found.low <= 0.5 <= found.high
        # As if the winner's had been the only submission.
        errors = round((1 - found.score) * ROWS)
        forgetful += exact_upper(errors, ROWS, math.log(0.05)) < 0.5
    return missed, forgetful


@BOTH
def test_the_certificates_of_a_few_winners_cover(per: str) -> None:
    """More than 3 of 6 would miss with a probability of .0013, if a tenth did."""
    assert binom.sf(3, 6, 0.1) < 0.0014
    missed, forgetful = misses(per, 6)
    assert missed <= 3 < forgetful


@pytest.mark.nightly
@BOTH
def test_the_winners_certificate_covers_whatever_the_crowd_does(per: str) -> None:
    """A false alarm in 10,000 runs, were the coverage no better than it has to be."""

    def tail(missed: int) -> float:
        return float(binomtest(missed, BOARDS, 0.1, alternative="greater").pvalue)

    missed, forgetful = misses(per, BOARDS)
    assert tail(missed) > 1e-4
    assert tail(forgetful) < 1e-9
