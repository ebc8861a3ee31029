"""Attacks comparisons: who may be compared, what is on record, what is paid, what repeats cost."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.metrics import get_scorer

from ladderholdout import Comparison, LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import HoldoutConflict, InvalidArgument, InvalidSubmission
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.limits.trinomial import paired_limits
from ladderholdout.mechanisms import GateLadder, RoundedDisclosure
from ladderholdout.server.accounts import add_account
from tests.support import server
from tests.support.commands import CliRunner
from tests.support.ledgers import shown_of

N = 1000
X, Y = np.arange(N).reshape(-1, 1), np.random.default_rng(34).integers(0, 2, N)


def right_on(count: int, y: NDArray[Any] = Y) -> NDArray[Any]:
    return np.where(np.arange(len(y)) < count, y, 1 - y)


def holdout_of(ledger: Any = "memory", **given: Any) -> LadderHoldout:
    given = {"scoring": "accuracy", "name": "pair", "show": "improvements", **given}
    return LadderHoldout(X, given.pop("y", Y), ledger=ledger, **given)


def test_two_models_are_compared_row_by_row(tmp_path: Path) -> None:
    """The first comparison of fresh rows costs .22 nats, and holds the limits at that level."""
    holdout = holdout_of(tmp_path / "ledger.db")
    found = holdout.compare(right_on(850), right_on(800))
    exact = paired_limits(50, 0, N, 0.025 / 1.25)
    assert found.low <= exact.low <= exact.high <= found.high
    assert found.high - found.low < 1.3 * (exact.high - exact.low)
    assert found.log_count == pytest.approx(math.log(1.25))
    assert (found.first, found.second, found.better) == (None, None, "first")
    assert holdout.status().submissions == 0, "nothing was submitted"
    # Asked again, in either order and by another process's handle, it is what was shown.
    again = LadderHoldout.open("pair", ledger=tmp_path / "ledger.db")
    assert again.compare(right_on(850), right_on(800)) == found
    turned = again.compare(right_on(800), right_on(850))
    assert (turned.low, turned.high, turned.better) == (-found.high, -found.low, "second")
    second = again.compare(right_on(850), right_on(790))
    assert second.log_count == pytest.approx(math.log(10) + found.log_values)
    words = ["verify", "pair", "--ledger", str(tmp_path / "ledger.db")]
    assert CliRunner().invoke(app, words).exit_code == 0


def test_submissions_are_named_by_number_where_their_predictions_are_kept() -> None:
    holdout = holdout_of()
    for count in (700, 760, 755, 820):
        holdout.submit(right_on(count))
    found = holdout.compare(4, 1)
    assert (found.first, found.second, found.better) == (4, 1, "first")
    assert "submission 4 less submission 1" in str(found) and "first is better" in str(found)
    # The same models as predictions are the same comparison, by the names that were given.
    same = holdout.compare(right_on(820), 1)
    assert (same.low, same.high, same.first) == (found.low, found.high, None)
    for number, said in (
        (3, "Give its predictions"),
        (5, "one of 4 submissions"),
        (0, "at least 1"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            holdout.compare(number, 1)
    assert holdout.compare(right_on(755), 2).better is None
    with pytest.raises(InvalidArgument, match="an estimator"):
        holdout.compare(True, 1)
    with pytest.raises(InvalidSubmission):
        holdout.compare(right_on(700)[:-1], 1)
    model = DummyClassifier().fit(X, Y)
    assert holdout.compare(4, model).better == "first"


def test_later_certificates_and_decisions_pay_for_it() -> None:
    prices = []
    for compares in (False, True):
        holdout = holdout_of()
        holdout.submit(right_on(700))
        shown = holdout.compare(right_on(750), right_on(700)) if compares else None
        holdout.submit(right_on(800))
        holdout.reveal()
        prices.append(holdout.certificate().log_count)
    assert shown is not None
    assert prices[1] - prices[0] == pytest.approx(shown.log_values)
    gate = holdout_of(name="gate", show=None, mechanism=GateLadder(), y=1 - Y)
    gate.gate(right_on(700, 1 - Y))
    for count in range(300, 340, 4):  # each costs about 9 nats
        gate.compare(right_on(count, 1 - Y), right_on(200, 1 - Y))
    assert not gate.gate(right_on(760, 1 - Y)), "60 gains are worth less than was shown"
    assert gate.gate(right_on(1000, 1 - Y))


def test_what_was_shown_before_is_in_its_price() -> None:
    """A search on shown scores makes a comparison wide, and one on improvements hardly does."""
    widths = {}
    for show in ("scores", "improvements"):
        holdout = holdout_of(show=show)
        for count in range(600, 900, 30):
            holdout.submit(right_on(count))
        found = holdout.compare(10, 1)
        widths[show] = found.high - found.low
    assert widths["scores"] > 1.5 * widths["improvements"]


def test_scores_that_are_no_means_are_compared_by_two_intervals() -> None:
    rng = np.random.default_rng(0)
    good, bad = Y + rng.normal(size=N), 0.2 * Y + rng.normal(size=N)
    holdout = holdout_of(scoring="roc_auc")
    found = holdout.compare(good, bad)
    assert found.bound == "difference of two intervals, matchings" and found.better == "first"
    errors = holdout_of(scoring="neg_mean_absolute_error", y=Y * 1.0, loss_range=(0, 4), name="e")
    found = errors.compare(Y + 0.1, Y + 1.0)
    assert found.bound == "bets" and found.low < 0.9 < found.high and found.better == "first"


def test_what_cannot_be_compared_is_refused_with_a_reason() -> None:
    weighted = holdout_of(sample_weight=np.arange(1.0, N + 1), name="w")
    with pytest.raises(HoldoutConflict, match="rows with weights"):
        weighted.compare(right_on(700), right_on(600))
    unbounded = holdout_of(scoring="neg_mean_squared_error", y=Y * 1.0, name="u")
    with pytest.raises(HoldoutConflict, match="loss_range"):
        unbounded.compare(Y + 0.1, Y + 1.0)
    opened = holdout_of(name="o")
    opened.submit(right_on(600))
    opened.owner.audit()
    with pytest.raises(HoldoutConflict, match="an audit had shown raw scores"):
        opened.compare(right_on(700), right_on(600))
    several = holdout_of(scoring=["accuracy", "f1"], name="s")
    with pytest.raises(InvalidArgument, match=r"holdout\['accuracy'\]"):
        several.compare(right_on(700), right_on(600))


def test_only_submissions_are_compared_after_the_last_one() -> None:
    """A model that was fitted on the rows since would be certified as better."""
    holdout = holdout_of(reserve=0.2)
    for count in (700, 800):
        holdout.submit(right_on(count))
    known = holdout.compare(2, 1)
    holdout.owner.retire()
    for first, second in ((Y, 2), (2, Y), (Y, right_on(600)), (right_on(800), right_on(700))):
        with pytest.raises(HoldoutConflict, match=r"Give their numbers: holdout.compare\(2, 1\)"):
            holdout.compare(first, second)
    assert holdout.compare(2, 1) == known and holdout.compare(2, 1, confidence=0.99).low > 0
    rows, ledger = np.random.default_rng(0).normal(size=(2, 100, 3)), "memory:fresh"
    earlier = LadderHoldout(rows[0], Y[:100], scoring="accuracy", name="fresh", ledger=ledger)
    earlier.submit(right_on(70, Y[:100]))
    earlier.replenish(rows[1], Y[100:200])
    with pytest.raises(HoldoutConflict, match="Give their numbers"):
        LadderHoldout.open("fresh@1", ledger=ledger).compare(Y[:100], 1)


def test_comparisons_count_towards_a_budget() -> None:
    """Everybody pays for them: an account with one release compared without an end."""
    holdout = holdout_of(budget=2)
    first = holdout.compare(right_on(700), right_on(600))
    holdout.submit(right_on(700))
    with pytest.raises(HoldoutConflict, match="its budget of 2"):
        holdout.compare(right_on(710), right_on(600))
    assert holdout.compare(right_on(700), right_on(600)) == first, "it is on record"


def test_what_it_will_cost_is_told_before_in_width(tmp_path: Path) -> None:
    """Right within a fifth, against the certificate that comes after the comparison."""
    widths, told = [], ""
    for compares in (False, True):
        holdout = holdout_of(tmp_path / f"{compares}.db", show="scores")
        told = holdout.price()
        assert holdout.status().submissions == 0
        if compares:
            holdout.compare(right_on(900), right_on(880))
        holdout.submit(right_on(900))
        found = holdout.certificate()
        assert found.low is not None and found.high is not None
        widths.append(found.high - found.low)
    after, before = map(float, re.findall(r"about (\S+) wide instead of (\S+) ", told)[0])
    assert before == pytest.approx(widths[0], rel=0.2) and after == pytest.approx(
        widths[1], rel=0.2
    )
    words = ["compare", "pair", "1", "1", "--dry-run", "--ledger", str(tmp_path / "False.db")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0 and "wide instead of 0.04 (" in shown.output
    assert holdout_of(name="n").price("reveal").startswith("The next") and holdout.price("reveal")
    with pytest.raises(InvalidArgument, match="certificate"):
        holdout.price("audit")


def test_another_confidence_has_a_price() -> None:
    holdout = holdout_of()
    usual = holdout.compare(right_on(850), right_on(800))
    other = holdout.compare(right_on(850), right_on(800), confidence=0.99)
    assert other.confidence == 0.99 and other.log_count > usual.log_count
    assert other.high - other.low > usual.high - usual.low


def misses(seed: int, pays: bool) -> bool:
    """Whether a comparison misses 0, of two models of coins: a vote of scores, and a guess."""
    rng = np.random.default_rng([seed, 34])
    y = rng.integers(0, 2, 300)
    rows, rule = np.arange(300).reshape(-1, 1), RoundedDisclosure(0.001)
    given: Any = {"scoring": "accuracy", "mechanism": rule, "ledger": "memory"}
    holdout = LadderHoldout(rows, y, name=f"{seed} {pays}", **given)
    votes = np.zeros(300)
    for _ in range(60):
        guess = rng.integers(0, 2, 300)
        score = holdout.submit(guess).score
        assert score is not None
        votes += np.sign(score - 0.5) * (2 * guess - 1)
    best, other = (votes > 0).astype(int), rng.integers(0, 2, 300)
    if not pays:
        gains = (best == y).astype(int) - (other == y)
        return paired_limits(int((gains > 0).sum()), int((gains < 0).sum()), 300, 0.025).low > 0.0
    return holdout.compare(best, other).better is not None


@pytest.mark.long
def test_comparisons_hold_though_models_were_picked_by_answers() -> None:
    """12 runs at 5 %: chance brings 5 misses once in 5,000 times; plain limits miss in most."""
    assert sum(misses(seed, True) for seed in range(12)) < 5
    assert sum(misses(seed, False) for seed in range(12)) >= 9


def test_the_command_compares_numbers_and_files(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    holdout = holdout_of(ledger)
    for count in (700, 800):
        holdout.submit(right_on(count))
    file = tmp_path / "other.csv"
    file.write_text("prediction\n" + "\n".join(map(str, right_on(600))) + "\n")
    words = ["compare", "pair", "2", str(file), "--ledger", str(ledger)]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0 and shown.output.startswith("submission 2 less second: ")
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert found["first"] == 2 and found["low"] > 0
    refused = CliRunner().invoke(app, ["compare", "pair", "2", "9", "--ledger", str(ledger)])
    assert refused.exit_code == 1 and "one of 2 submissions" in refused.stderr


@pytest.mark.processes
def test_a_server_compares_where_its_owner_allows_it(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    given: Any = {"show": "improvements"}
    server.registered(ledger, **given)
    y, n = server.rows()[1], server.N
    token = add_account(str(ledger), "churn", "ada", "analyst").token
    good, bad = right_on(350, y), right_on(250, y)
    with server.serving(ledger, tmp_path) as running:
        holdout = LadderHoldout.connect(running.url, token)
        with pytest.raises(HoldoutConflict, match="--allow-comparisons"):
            holdout.compare(good, bad)
    with server.serving(ledger, tmp_path, "--allow-comparisons", "*") as running:
        holdout = LadderHoldout.connect(running.url, token)
        holdout.submit(bad)
        found = holdout.compare(good, 1)
        assert isinstance(found, Comparison) and found.better == "first"
        address = "/v1/holdouts/churn/compare"
        body = {"first": {"predictions": good.tolist()}, "second": 1}
        answer = running.ask("POST", address, token, json=body)
        assert answer.json()["low"] == found.low
        for bad_body in ({"first": 1}, {"first": True, "second": 1}, [1, 1], {"first": "a"}):
            assert running.ask("POST", address, token, json=bad_body).status_code == 422
    local = LadderHoldout.open("churn", account="ada", ledger=ledger)
    assert local.compare(good, 1) == found
    ladder = local.__ladder__
    assert isinstance(ladder, LocalLadder) and n == 400
    assert len(shown_of(local, "comparisons")) == 1


@pytest.mark.parametrize("scoring", ["r2", "explained_variance"])
def test_scores_without_a_least_one_may_differ_by_more_than_two(scoring: str) -> None:
    rng = np.random.default_rng(0)
    y = np.clip(rng.normal(size=N), -3, 3)
    good, bad = np.clip(0.9 * y + 0.1 * rng.normal(size=N), -3, 3), np.where(X[:, 0] % 2, 3.0, -3.0)
    holdout = LadderHoldout(X, y, scoring=scoring, target_range=(-3, 3), ledger="memory")
    plain = get_scorer(scoring)._score_func
    difference = plain(y, good) - plain(y, bad)
    found = holdout.compare(good, bad)
    assert difference > 10.0 and 2.0 < found.low < difference < found.high
    assert "with errors clipped at 6" in found.line()
    turned = holdout.compare(bad, good)
    assert (turned.low, turned.high) == (-found.high, -found.low)
