"""Withdrawn submissions: on record, the ladder goes back, what was revealed stays counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from ladderholdout import LadderHoldout
from ladderholdout.certificates.transcript import Grid, Transcript, certify, ladder_transcript
from ladderholdout.errors import HoldoutConflict, InvalidArgument, InvalidSubmission
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.mechanisms import (
    FullDisclosure,
    GaussianLadder,
    Ladder,
    PairedTestLadder,
    SimplifiedLadder,
)
from tests.support.commands import CliRunner
from tests.support.holdouts import assert_replays, coins, guesses, repeats_first
from tests.support.ledgers import (
    chosen,
    entries_of,
    findings,
    predictions_kept,
    remove,
    tamper,
    undone,
)

WHY = "trained on the holdout's rows"


def right(y: Any, k: int) -> Any:
    """Predictions with k of them right, the first ones."""
    return np.where(np.arange(len(y)) < k, y, 1 - y)


def opened(path: Path, **settings: Any) -> tuple[LadderHoldout, Any]:
    X, y = coins()
    settings = {"mechanism": Ladder(step=0.01), "name": "coins"} | settings
    return LadderHoldout(X, y, scoring="accuracy", ledger=path / "ledger.db", **settings), y


def intact(holdout: LadderHoldout) -> bool:
    assert_replays(holdout)
    return verify_holdout(holdout.ledger, holdout.name).findings == ()


def test_the_ladder_goes_back_and_nothing_is_removed(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    first = holdout.submit(right(y, 40))
    leaked = holdout.submit(y)
    worse = holdout.submit(right(y, 45))
    assert not worse.improved
    done = holdout.owner.withdraw(leaked.submission, reason=WHY)
    assert (done.incumbent, done.score, done.again) == (1, first.score, (3,))
    status = holdout.status()
    assert (status.incumbent, status.score, status.submissions) == (1, first.score, 3)
    assert [one.withdrawn for one in holdout.history()] == [None, WHY, None]
    assert [one.score for one in holdout.history()] == [first.score, 1.0, 1.0]
    assert intact(holdout)
    # What was compared with it is a query again, and its own predictions never improve again.
    again = holdout.submit(right(y, 45))
    assert (again.improved, again.submission) == (True, 4)
    assert repeats_first(holdout, holdout.submit(right(y, 45)), again)
    taken = holdout.submit(y)
    assert (taken.improved, taken.score) == (False, again.score)
    assert holdout.status().incumbent == 4
    assert intact(holdout)


def test_one_that_is_not_the_incumbent_is_recorded_and_never_gone_back_to(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    scores = [holdout.submit(right(y, k)).score for k in (30, 40, 50)]
    done = holdout.owner.withdraw(2, reason=WHY)
    assert (done.incumbent, done.score, done.again) == (3, scores[2], ())
    assert holdout.owner.withdraw(3, reason=WHY).incumbent == 1
    assert holdout.status().score == scores[0]
    assert holdout.owner.withdraw(1, reason=WHY).incumbent is None
    assert holdout.status().score is None
    assert holdout.certificate().missing is not None
    before = holdout.history()
    with pytest.raises(InvalidSubmission, match="submission 1.*" + WHY):
        holdout.submit(right(y, 30))
    assert holdout.history() == before
    assert holdout.submit(right(y, 20)).improved
    assert intact(holdout)


def test_two_withdrawals_on_end_and_one_after_new_incumbents(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    for k in (30, 40, 50, 55):
        holdout.submit(right(y, k))
    assert holdout.owner.withdraw(4, reason=WHY).incumbent == 3
    assert holdout.owner.withdraw(3, reason=WHY).incumbent == 2
    assert holdout.submit(right(y, 45)).submission == 5
    assert holdout.owner.withdraw(5, reason=WHY).incumbent == 2
    assert [one.withdrawn for one in holdout.history()] == [None, None, WHY, WHY, WHY]
    assert intact(holdout)


def test_a_repeat_of_it_counts_as_it(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    holdout.submit(right(y, 30))
    holdout.submit(y)
    holdout.submit(y)
    assert holdout.owner.withdraw(3, reason=WHY).submission == 2
    assert [one.withdrawn for one in holdout.history()] == [None, WHY, WHY]
    assert [one.has_held for one in holdout.history()] == [True, False, False]


def test_another_process_sees_the_former_incumbent(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path, mechanism=None)
    other = LadderHoldout.open("coins", ledger=tmp_path / "ledger.db", account="default")
    first, _ = holdout.submit(right(y, 40)), holdout.submit(y)
    other.owner.withdraw(2, reason=WHY)
    # The handle of before has cached the predictions of the withdrawn one.
    assert holdout.submit(right(y, 41)).score == first.score
    assert holdout.submit(right(y, 59)).improved
    assert intact(holdout)


def test_numbers_and_reasons_that_are_none_are_refused(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    holdout.submit(right(y, 40))
    for number in (0, -1, 3, 10**400, 1.5, None, "1", True):
        with pytest.raises(InvalidArgument, match="number"):
            holdout.owner.withdraw(number, reason=WHY)  # type: ignore[arg-type]
    for reason in (None, "", "  ", "a\nb", "\x1b[2J", "\ud800", "x" * 1001, 7):
        with pytest.raises(InvalidArgument, match="reason"):
            holdout.owner.withdraw(1, reason=reason)  # type: ignore[arg-type]
    assert holdout.history()[0].withdrawn is None
    assert intact(holdout)


def test_withdrawn_twice_and_retired_are_refused(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    holdout.submit(right(y, 40))
    holdout.submit(right(y, 50))
    holdout.owner.withdraw(2, reason=WHY)
    with pytest.raises(HoldoutConflict, match="withdrawn already"):
        holdout.owner.withdraw(2, reason="another")
    holdout.owner.retire()
    with pytest.raises(HoldoutConflict, match="retired"):
        holdout.owner.withdraw(1, reason=WHY)
    assert intact(holdout)


def test_releases_of_a_budget_stay_spent(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path, budget=2)
    holdout.submit(right(y, 40))
    with pytest.warns(UserWarning, match="used up"):
        holdout.submit(y)
    holdout.owner.withdraw(2, reason=WHY)
    assert not holdout.submit(right(y, 50)).improved
    assert holdout.status().releases == 2
    assert holdout.certificate().low is not None
    assert intact(holdout)


def test_noise_is_not_drawn_again(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path, mechanism=GaussianLadder(step=0.1, noise=0.05))
    holdout.submit(right(y, 30))
    holdout.submit(y)
    refused = holdout.submit(right(y, 32))
    assert holdout.owner.withdraw(2, reason=WHY).again == ()
    assert holdout.submit(right(y, 32)).improved == refused.improved
    assert entries_of(holdout)[-1].repeat_of == 3
    assert intact(holdout)


def test_a_search_and_its_pick_leave_it_out(tmp_path: Path) -> None:
    holdout, _ = opened(tmp_path)
    X, _ = coins(seed=5)
    grid = {"constant": [0, 1]}
    search = GridSearchCV(
        DummyClassifier(strategy="constant"), grid, scoring=holdout, cv=holdout.split(), refit=False
    )
    search.fit(X, np.arange(60) % 2)
    improvers = [one.number for one in holdout.history() if one.improved]
    holdout.owner.withdraw(improvers[-1], reason=WHY)
    if len(improvers) == 1:
        with pytest.warns(UserWarning, match="No candidate"):
            holdout.select(search.cv_results_)
    else:
        assert holdout.select(search.cv_results_) == improvers[0] - 1


def test_a_search_keeps_each_of_its_incumbents(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    for at, k in enumerate((30, 35, 40, 45)):
        holdout.__ladder__.submit(right(y, k), Origin(batch="grid", place=at + 1))
    assert holdout.owner.withdraw(4, reason=WHY).incumbent == 3
    assert holdout.owner.withdraw(3, reason=WHY).incumbent == 2
    assert intact(holdout)


def test_rounds_of_one_batch_keep_what_preceded_the_batch(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    holdout.submit(right(y, 30))
    for k in (35, 40, 45):
        holdout.__ladder__.submit(right(y, k), Origin(batch="fit", context={"round": k}))
    assert predictions_kept(holdout) == [1, 4]
    assert holdout.owner.withdraw(4, reason=WHY).incumbent == 1
    assert intact(holdout)


def test_a_ladder_without_values_reveals_nothing_by_it(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path, mechanism=PairedTestLadder(alpha=0.3), show="improvements")
    holdout.submit(right(y, 30))
    holdout.submit(right(y, 50))
    shown = holdout.reveal()
    assert holdout.owner.withdraw(2, reason=WHY).score is None
    assert holdout.status().score is None
    assert holdout.submit(right(y, 58)).improved
    assert [one.score for one in holdout.history()] == [None, shown, None]
    assert intact(holdout)


def another_reason(detail: str) -> str:
    return detail.replace("trained", "trainee")


def another_bit(predictions: bytes) -> bytes:
    return predictions[:-1] + bytes([predictions[-1] ^ 1])


CHANGED: tuple[Callable[[Path], int], ...] = (
    lambda path: tamper(path, "event", "detail", another_reason, kind="withdrawn"),
    lambda path: remove(path, "event", kind="withdrawn"),
    lambda path: tamper(path, "ladder", "withdrawals", 0),
    lambda path: tamper(path, "incumbent", "predictions", another_bit, number=1),
)


def test_what_was_changed_is_found(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    for k in (30, 40, 50):
        holdout.submit(right(y, k))
    holdout.owner.withdraw(3, reason=WHY)
    assert intact(holdout)
    path = tmp_path / "ledger.db"
    for number, change in enumerate(CHANGED):
        with undone(path):
            change(path)
            assert verify_holdout(holdout.ledger, "coins").findings, number


# What certificates count


def test_what_was_revealed_stays_counted(tmp_path: Path) -> None:
    """The incumbent's own certificate is as before; that of a later one pays for all of it."""
    holdout, y = opened(tmp_path)
    holdout.submit(right(y, 40))
    before = holdout.certificate()
    for one in guesses(3, 20):
        holdout.submit(one)
    holdout.submit(y)
    holdout.owner.withdraw(22, reason=WHY)
    assert holdout.certificate() == before
    holdout.submit(right(y, 45))
    found = chosen(holdout)
    assert found is not None
    parts = [(one.count, one.start, one.releases) for one in found.ladders]
    # It improved what was left after the withdrawal, and that is paid for.
    assert parts == [(22, 0, 0), (1, 22, 2)]
    holdout.submit(right(y, 50))
    found = chosen(holdout)
    assert found is not None
    parts = [(one.count, one.start, one.releases) for one in found.ladders]
    assert parts == [(22, 0, 0), (2, 22, 2)]
    assert holdout.certificate().log_count > before.log_count + 5


def climb(rng: np.random.Generator, n: int, k: int, every: int) -> tuple[float, float]:
    """Search coin labels, withdrawing every so often: what was learned stays with the analyst.

    Returns the misses of the certificate and of a fresh interval for the last incumbent.
    """
    y = rng.integers(0, 2, n)
    best = rng.integers(0, 2, n)
    standing, kept, parts = 1.0 + 1 / n, [], []
    looks, improved, values, fresh = 0, [], [], True
    chosen: tuple[float, list[Any]] = (1.0, [])
    for t in range(k):
        trial = best.copy()
        flip = rng.choice(n, 3, replace=False)
        trial[flip] = 1 - trial[flip]
        risk = float((trial != y).mean())
        looks += 1
        if risk < standing - 0.5 / n:
            chosen = risk, [*parts, (looks - 1, tuple(improved), tuple(values), fresh)]
            kept.append(standing)
            standing = risk
            improved.append(looks)
            values.append(round(risk * n))
            best = trial
        if t % every == every - 1 and len(kept) > 1:
            # Taken back, and remembered: `best` stays, the released risk rises again.
            parts.append((looks, tuple(improved), tuple(values), fresh))
            standing = kept.pop()
            looks, improved, values, fresh = 0, [], [], False
    risk, told = chosen
    grid = Grid(n + 1)
    pieces = [
        ladder_transcript(count, which, what, Grid(n + 1, first_improves=first))
        for count, which, what, first in told
    ]
    before = sum(one.queries for one in pieces)
    event = 1 + sum(len(which) for _, which, _, _ in told)
    transcripts = (*(one for one in pieces[:-1] if one.queries), pieces[-1].improving())
    assert grid.falling
    found = certify(risk, n, Transcript(before, 1, transcripts, size=1, event=event))
    naive = certify(risk, n, Transcript.alone())
    return not found.low <= 0.5 <= found.high, not naive.low <= 0.5 <= naive.high


def test_withdrawing_as_one_climbs_makes_no_false_certificate() -> None:
    rng = np.random.default_rng(18)
    found = np.array([climb(rng, 60, 150, 20) for _ in range(200)])
    misses, naive = found.sum(axis=0)
    # At a level of .05 more than 21 misses of 200 come by chance in 3e-4 of all runs.
    assert binom.sf(21, 200, 0.05) < 1e-3
    assert misses <= 21
    # The teeth: without the price of what was told nearly all of them miss.
    assert naive > 150


# The command


def run(*arguments: str) -> Any:
    from ladderholdout.cli import app

    return CliRunner().invoke(app, [*arguments])


def test_the_command_withdraws(tmp_path: Path) -> None:
    holdout, y = opened(tmp_path)
    holdout.submit(right(y, 40))
    holdout.submit(y)
    at = ["--ledger", str(tmp_path / "ledger.db")]
    result = run("withdraw", "coins", "2", "--reason", WHY, "--json", *at)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["submission"], said["incumbent"]) == (2, 1)
    assert run("withdraw", "coins", "2", "--reason", WHY, *at).exit_code == 1
    assert run("withdraw", "coins", "1", *at).exit_code == 2
    shown = run("history", "coins", *at)
    assert "withdrawn" in shown.stdout
    assert run("verify", "coins", *at).exit_code == 0


def test_other_rules_replay_over_withdrawals(tmp_path: Path) -> None:
    for number, rule in enumerate((FullDisclosure(), SimplifiedLadder(step=0.02))):
        holdout, y = opened(tmp_path / str(number), mechanism=rule)
        for k in (30, 40, 35, 60):
            holdout.submit(right(y, k))
        holdout.owner.withdraw(4, reason=WHY)
        holdout.submit(right(y, 50))
        assert intact(holdout)
        assert findings(tmp_path / str(number) / "ledger.db") == []
