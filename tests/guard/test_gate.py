"""Attacks decisions: what they say, what they pay for, what a repeat gets, and who may ask."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier

from ladderholdout import Decision, LadderHoldout
from ladderholdout.errors import (
    BudgetWarning,
    HoldoutConflict,
    InvalidArgument,
    InvalidSubmission,
    KnownHoldoutWarning,
    OpenedWarning,
)
from ladderholdout.guard import submit as submission
from ladderholdout.guard.batches import read_submission
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.mechanisms import GateLadder, RoundedDisclosure
from ladderholdout.mechanisms.gate import log_chance
from tests.support.holdouts import assert_replays
from tests.support.ledgers import paid_beside, record
from tests.support.processes import at_once

N = 1000
UNCHANGED = "It alters no prediction on these rows: they are those of submission {}, the incumbent."
X, Y = np.arange(N).reshape(-1, 1), np.random.default_rng(34).integers(0, 2, N)


def right_on(count: int, y: NDArray[Any] = Y) -> NDArray[Any]:
    return np.where(np.arange(len(y)) < count, y, 1 - y)


def gate(ledger: Any = "memory", y: NDArray[Any] = Y, **given: Any) -> LadderHoldout:
    given = {"scoring": "accuracy", "mechanism": GateLadder(), "name": "gate", **given}
    return LadderHoldout(X, y, ledger=ledger, **given)


def test_a_run_of_decisions_and_their_reasons() -> None:
    holdout = gate(mechanism=GateLadder(horizon=4))
    asked = [(700, None), (705, None), (760, 0.01), (760, 0.01), (760, 0.05), (700, None)]
    found = [holdout.gate(right_on(count), margin=margin, baseline=True) for count, margin in asked]
    first = "It is the baseline: there was nothing to compare it with."
    assert found == [
        Decision(True, 1, False, first, 1, baseline=True),
        Decision(False, 2, False, "It is not shown to be better than submission 1.", 1),
        Decision(True, 3, False, "It is better than submission 1 by more than 0.01.", 3),
        Decision(False, 4, False, UNCHANGED.format(3), 3, unchanged=True),
        Decision(False, 5, False, UNCHANGED.format(3), 3, unchanged=True),
        Decision(
            False,
            6,
            False,
            "The same predictions were accepted as submission 1; submission 3 has replaced it "
            "since, and is to be kept.",
            3,
        ),
    ]
    assert [bool(decision) for decision in found] == [True, False, True, False, False, False]
    verdicts = ["accepted", "not accepted", "accepted", "unchanged", "unchanged", "not accepted"]
    assert [decision.verdict for decision in found] == verdicts
    assert holdout.gate(right_on(761)).spent is False
    assert holdout.gate(right_on(900)).accepted, "the fourth candidate"
    last = holdout.gate(right_on(1000))
    assert (last.accepted, last.spent, last.incumbent) == (False, True, 8)
    assert "the 4 candidates that were announced" in last.reason
    assert "not accepted" in str(last) and "incumbent" in last._repr_html_()
    assert_replays(holdout)


def test_a_margin_that_was_not_tested_is_tested() -> None:
    """A gain of 150 rows is no gain of .3 and one of .05, as a sign test by hand shows, too."""
    holdout = gate(mechanism=GateLadder(horizon=20))
    holdout.gate(right_on(600))
    rejected = [holdout.gate(right_on(750), margin=margin) for margin in (0.3, 0.3, 0.4)]
    assert [decision.accepted for decision in rejected] == [False] * 3
    assert rejected[0].reason.endswith("better than submission 1 by more than 0.3.")
    for decision in rejected[1:]:
        assert decision.reason.endswith("nor tested again: submission 2 had the same predictions.")
    state = record(holdout)[1].state
    assert state["candidates"] == 1, "what is not tested again is no candidate"
    assert holdout.gate(right_on(750), margin=0.05) == Decision(
        True, 5, False, "It is better than submission 1 by more than 0.05.", 5
    )
    again = holdout.gate(right_on(750), margin=0.01)
    assert (again.verdict, again.reason) == ("unchanged", UNCHANGED.format(5))
    assert_replays(holdout)
    assert verify_holdout(holdout.ledger, "gate").findings == ()


def keyed(holdout: LadderHoldout, key: str, count: int, margin: float | None = None) -> Decision:
    """Decide under a key, as a client of the server does."""
    ladder = holdout.__ladder__
    assert isinstance(ladder, LocalLadder)
    return ladder.decide(right_on(count), Origin(key=key, margin=margin, baseline=True))


def test_a_retry_under_a_key_is_told_what_was_decided() -> None:
    holdout = gate(mechanism=GateLadder(horizon=3))
    asked = [("b", 600, None), ("w", 500, None), ("m", 750, 0.3), ("a", 760, 0.01)]
    first = {key: keyed(holdout, key, *rest) for key, *rest in asked}
    assert [first[key].accepted for key, *_ in asked] == [True, False, False, True]
    for key, *rest in asked[1:]:
        again = keyed(holdout, key, *rest)
        expected = replace(first[key], submission=again.submission, incumbent=4)
        assert again == expected, key
    assert holdout.status().queries == 4
    # What was accepted and replaced is not better than what replaced it.
    replaced = keyed(holdout, "b", 600)
    assert not replaced.accepted and "submission 4 has replaced it" in replaced.reason
    # The horizon is reached: that is the answer to new candidates, and not to these.
    spent = keyed(holdout, "s", 900)
    assert spent.spent and "the 3 candidates" in spent.reason
    assert keyed(holdout, "w", 500).reason == first["w"].reason
    assert keyed(holdout, "s", 900).reason == spent.reason
    # Another question under the key was not decided on.
    other = keyed(holdout, "a", 990)
    assert (other.verdict, other.unchanged) == ("not accepted", False)
    assert other.reason.endswith("its key is that of other predictions.")
    larger = keyed(holdout, "a", 760, 0.2)
    assert larger.verdict == "unchanged"
    assert holdout.status().queries == 5
    assert_replays(holdout)


def test_what_was_withdrawn_is_not_accepted_again() -> None:
    holdout = gate()
    for key, count in (("a", 500), ("b", 700), ("c", 900)):
        assert keyed(holdout, key, count).accepted
    holdout.owner.withdraw(3, reason="a bug")
    for decision in (holdout.gate(right_on(900)), keyed(holdout, "c", 900)):
        assert (decision.verdict, decision.incumbent) == ("not accepted", 2)
        assert decision.reason == "The same predictions were withdrawn, as submission 3."
    assert keyed(holdout, "d", 600).reason == "It is not shown to be better than submission 2."
    assert keyed(holdout, "d", 600).reason == "It is not shown to be better than submission 2."


@pytest.mark.parametrize("seed", range(3))
def test_changes_that_alter_no_prediction_are_never_accepted(seed: int) -> None:
    """Each step spoils one cell of the features' space, and many cells hold no row."""
    rng = np.random.default_rng(seed)
    cell, table = rng.integers(0, 400, 100), rng.integers(0, 2, 400)
    holdout = LadderHoldout(
        *(np.column_stack([cell, np.arange(100)]), table[cell]),
        scoring="accuracy",
        mechanism=GateLadder(),
        ledger="memory",
    )
    assert holdout.gate(table[cell], baseline=True)
    empty = [at for at in range(100) if at not in cell]
    for at in range(100):
        changed = table.copy()
        changed[at] = 1 - changed[at]
        decision = holdout.gate(changed[cell])
        assert decision.verdict == ("unchanged" if at in empty else "not accepted")
    assert 50 < len(empty) < 100
    assert record(holdout)[1].state["candidates"] == 100 - len(empty)


@pytest.mark.parametrize("seed", range(3))
def test_repeats_change_no_decision_and_no_forecast(seed: int) -> None:
    """An attack that sends what was decided before again, now and then, buys and costs nothing."""
    rng = np.random.default_rng(seed)
    models = [np.where(rng.random(N) < right, Y, 1 - Y) for right in np.linspace(0.5, 0.8, 8)]
    found = []
    for repeats in (0, 3):
        holdout, decisions = gate(mechanism=GateLadder(horizon=8)), []
        for place, model in enumerate(models):
            decision = holdout.gate(model, baseline=True)
            decisions.append((decision.accepted, decision.spent))
            for again in rng.integers(0, place + 1, repeats):
                assert not holdout.gate(models[again]).accepted
        state = record(holdout)[1].state
        holdout.reveal()
        certificate, health = holdout.certificate(), holdout.health(spent_at=0.05)
        assert certificate.log_count is not None
        ends = certificate.log_count, certificate.low, certificate.high
        found.append((decisions, state, ends, replace(health, submissions=8), health.queries_left))
    assert found[0] == found[1]
    assert sum(accepted for accepted, _ in found[0][0]) > 1


def test_a_first_candidate_is_accepted_by_request_alone() -> None:
    """A loop that asks for no baseline keeps nothing that was compared with nothing."""
    holdout = gate()
    first = holdout.gate(right_on(600))
    assert (bool(first), first.verdict, first.baseline) == (False, "baseline", True)
    assert first.incumbent == first.submission == 1
    # It is what others are compared with all the same, and a baseline is one once.
    again = holdout.gate(right_on(600), baseline=True)
    assert (bool(again), again.verdict, again.baseline) == (False, "unchanged", False)
    assert not holdout.gate(right_on(500), baseline=True)
    assert holdout.gate(right_on(700)).verdict == "accepted"


def test_other_predictions_under_a_key_are_neither_accepted_nor_unchanged() -> None:
    holdout = gate()
    ladder = holdout.__ladder__
    assert isinstance(ladder, LocalLadder)

    def asked(count: int, key: str, margin: float = 0.0) -> Decision:
        read, _ = read_submission(ladder, right_on(count), None, None)
        return ladder.decide(read, Origin(key=key, margin=margin, baseline=True))

    assert [asked(*one).verdict for one in ((600, "a"), (800, "b"), (800, "b"))] == [
        "accepted",
        "accepted",
        "accepted",
    ]
    other = asked(0, "b")
    assert (other.verdict, other.unchanged) == ("not accepted", False)
    assert other.reason.endswith("its key is that of other predictions.")
    assert asked(800, "b", 0.3).verdict == asked(800, "c").verdict == "unchanged"


def test_the_budget_spends_a_gate() -> None:
    holdout = gate(budget=1)
    with pytest.warns(BudgetWarning):
        assert holdout.gate(right_on(600), baseline=True)
    decision = holdout.gate(right_on(900))
    assert decision.spent and "budget of 1 acceptances" in decision.reason


def test_an_estimator_and_ids_are_taken() -> None:
    names = [f"row {number}" for number in range(N)]
    holdout = gate(ids=names)
    model = DummyClassifier().fit(X, Y)
    assert holdout.gate(model, baseline=True, context={"idea": "none"}).accepted
    back = holdout.gate(right_on(900)[::-1], ids=names[::-1], context={"idea": "much better"})
    assert back.accepted
    assert [one.context["idea"] for one in holdout.history()] == ["none", "much better"]


def test_a_margin_is_in_the_unit_of_the_metric() -> None:
    """Errors of 3.0 fall to 2.0 on a range of 10, so a gain of .9 is shown and one of 1.1 not."""
    y = np.zeros(N)
    errors = np.random.default_rng(0).normal([[3.0], [2.0]], 0.3, (2, N))
    for margin, accepted in ((0.9, True), (1.1, False)):
        given: dict[str, Any] = {"scoring": "neg_mean_absolute_error", "loss_range": (0, 10)}
        holdout = gate(y=y, **given)
        assert holdout.gate(errors[0]).baseline
        decision = holdout.gate(errors[1], margin=margin)
        assert decision.accepted is accepted
        assert decision.reason.endswith(f"by more than {margin}, with errors clipped at 10.")
    with pytest.raises(InvalidArgument, match="margin must be a number from 0 to below 10"):
        holdout.gate(errors[1], margin=10)


@pytest.mark.parametrize("margin", [-0.1, 1, math.nan, "0.1", True])
def test_margins_outside_of_their_range_are_refused_and_nothing_is_recorded(margin: Any) -> None:
    holdout = gate()
    with pytest.raises(InvalidArgument, match="margin must be a number from 0 to below 1"):
        holdout.gate(right_on(600), margin=margin)
    with pytest.raises(InvalidSubmission):
        holdout.gate(right_on(600)[:-1])
    assert holdout.status().submissions == 0


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
def test_one_alpha_bounds_all_gates_of_a_holdout() -> None:
    """A further gate pays for the flags of the others: all first levels add up to alpha at most."""
    levels = []
    for place in range(6):
        one = gate(ledger="memory:many gates", ladder=f"{place}")
        paid = paid_beside(one)
        assert isinstance(paid, float)
        levels.append(math.exp(log_chance(1, 1, None) - paid))
        one.gate(right_on(500)), one.gate(right_on(480 - place))
    ratio = levels[-1] / levels[-2]
    assert levels[0] == pytest.approx(0.5) and ratio < 0.5
    assert sum(levels) + levels[-1] * ratio / (1 - ratio) <= 1


def test_other_rules_decide_nothing_and_the_remedy_works(tmp_path: Path) -> None:
    plain = gate(tmp_path / "ledger.db", mechanism=None)
    with pytest.raises(HoldoutConflict, match=r"ladder='gate', mechanism=GateLadder\(\)"):
        plain.gate(right_on(600))
    assert plain.status().submissions == 0
    with pytest.warns(KnownHoldoutWarning):
        beside = gate(tmp_path / "ledger.db", ladder="gate")
    assert beside.gate(right_on(600)).baseline
    assert not beside.gate(right_on(601)).accepted
    several = gate(scoring=["accuracy", "f1"], mechanism=None, name="several")
    with pytest.raises(InvalidArgument, match=r"holdout\['accuracy'\]"):
        several.gate(right_on(600))
    only = gate(
        scoring=["accuracy", "neg_brier_score"],
        mechanism={"accuracy": GateLadder()},
        name="one of two",
    )
    assert only["accuracy"].gate(right_on(600), baseline=True).accepted


def test_a_retired_holdout_decides_nothing() -> None:
    holdout = gate()
    holdout.gate(right_on(600))
    holdout.owner.retire()
    with pytest.raises(HoldoutConflict, match="retired"):
        holdout.gate(right_on(900))


def beside(holdout: LadderHoldout) -> float:
    return paid_beside(holdout)


def test_a_gate_pays_for_what_was_shown_beside_its_decisions(tmp_path: Path) -> None:
    """Its own decisions cost nothing more; a value costs the logarithm of how many there are."""
    holdout = gate(tmp_path / "ledger.db")
    for count in (600, 601, 700):
        holdout.gate(right_on(count))
    assert beside(holdout) == 0.0
    holdout.reveal()
    # One of the 1,001 shares of 1,000 rows.
    assert beside(holdout) == pytest.approx(math.log(1001))
    holdout.reveal()
    assert beside(holdout) == pytest.approx(math.log(1001)), "the same value again costs nothing"
    with pytest.warns(KnownHoldoutWarning):
        scores = gate(tmp_path / "ledger.db", ladder="scores", mechanism=RoundedDisclosure(0.001))
    for seed in range(3):
        scores.submit(np.random.default_rng(seed).integers(0, 2, N))
    assert beside(holdout) == pytest.approx(4 * math.log(1001), rel=0.01)


def test_raw_scores_that_were_shown_end_a_gate(tmp_path: Path) -> None:
    holdout = gate(tmp_path / "ledger.db")
    holdout.gate(right_on(600))
    holdout.owner.audit()
    with pytest.warns(OpenedWarning):
        decision = holdout.gate(right_on(900))
    assert decision.spent and not decision.accepted and "cannot be counted" in decision.reason


def attacked(holdout: LadderHoldout, scores: LadderHoldout, y: NDArray[Any]) -> Decision:
    """Add up random guesses by the sign of their disclosed scores, as a boosting attack does."""
    rng, votes = np.random.default_rng(7), np.zeros(N)
    baseline = rng.integers(0, 2, N)
    assert holdout.gate(baseline).baseline
    for _ in range(60):
        guess = rng.integers(0, 2, N)
        score = scores.submit(guess).score
        assert score is not None
        votes += np.sign(score - 0.5) * (2 * guess - 1)
    return holdout.gate((votes > 0).astype(int))


@pytest.mark.parametrize("pays", [True, False])
def test_scores_beside_a_gate_buy_no_false_acceptance(
    tmp_path: Path, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels are coins; without the price the attack is accepted, so the test can fail."""
    holdout = gate(tmp_path / "ledger.db")
    with pytest.warns(KnownHoldoutWarning):
        scores = gate(tmp_path / "ledger.db", ladder="scores", mechanism=RoundedDisclosure(0.001))
    if not pays:
        monkeypatch.setattr(submission.counting, "shown_beside", lambda tx, record: 0.0)
    assert attacked(holdout, scores, Y).accepted is not pays


def test_labels_under_which_decisions_are_equal_give_equal_answers() -> None:
    """Nothing but the decisions depends on the labels, whatever is asked."""
    other = Y.copy()
    other[-60:] = 1 - other[-60:]
    answers = []
    for labels in (Y, other):
        holdout = gate(y=labels)
        asked = (right_on(500), right_on(505), right_on(800), right_on(800), right_on(790))
        found = [holdout.gate(predictions) for predictions in asked]
        answers.append((found, [(one.improved, one.score) for one in holdout.history()]))
    assert answers[0] == answers[1]
    assert [decision.verdict for decision in answers[0][0]] == [
        "baseline",
        "not accepted",
        "accepted",
        "unchanged",
        "not accepted",
    ]


def decided(ledger: str, seed: int) -> list[tuple[int, bool, int]]:
    holdout = LadderHoldout.open("gate", ledger=ledger)
    rng, found = np.random.default_rng(seed), []
    for count in rng.permutation(np.arange(500, 1000, 25)):
        decision = holdout.gate(right_on(int(count)))
        found.append((decision.submission, decision.accepted, decision.incumbent))
    return found


@pytest.mark.processes
def test_processes_decide_in_one_order(tmp_path: Path) -> None:
    """Each decision is about the incumbent of that moment, whoever brought it."""
    ledger = str(tmp_path / "ledger.db")
    holdout = gate(ledger)
    holdout.gate(right_on(400))
    runs = at_once([(decided, ledger, seed) for seed in range(3)])
    decisions = [decision for run in runs for decision in run]
    decisions.sort()
    assert [number for number, _, _ in decisions] == list(range(2, 62))
    entries = holdout.history(after=1)
    incumbent = 1
    for (number, accepted, kept), entry in zip(decisions, entries, strict=True):
        if entry.improved and entry.repeat_of is None:
            incumbent = number
        assert kept == incumbent
        assert accepted == (incumbent == number)
    assert_replays(holdout)


DECIDING = """
import sys
import numpy as np
from ladderholdout import LadderHoldout
holdout = LadderHoldout.open("gate", ledger=sys.argv[1])
rng, y = np.random.default_rng(int(sys.argv[2])), np.load(sys.argv[3])
right = 500
while True:
    right = min(right + int(rng.integers(0, 60)), 1000)
    decision = holdout.gate(np.where(rng.permutation(1000) < right, y, 1 - y))
    print(decision.submission, int(decision.accepted), decision.incumbent, flush=True)
"""


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL.")
def test_kills_lose_no_decision_that_was_seen(tmp_path: Path) -> None:
    ledger, labels = tmp_path / "ledger.db", tmp_path / "y.npy"
    np.save(labels, Y)
    holdout = gate(ledger)
    holdout.gate(right_on(500))
    seen: list[tuple[int, ...]] = []
    enough = (1, 3, 7)  # decisions that are read before the kill
    for seed, decisions in enumerate(enough):
        words = [sys.executable, "-c", DECIDING, str(ledger), str(seed), str(labels)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(decisions)]
            process.kill()
            lines += [line for line in process.stdout if line.endswith("\n")]
        seen += [tuple(map(int, line.split())) for line in lines]
    assert len(seen) >= sum(enough)
    history = {submission.number: submission for submission in holdout.history()}
    incumbents = {number: line.improved for number, line in history.items()}
    for number, accepted, incumbent in seen:
        assert incumbents[number] is bool(accepted) and incumbents[incumbent]
    assert sorted(history) == list(range(1, len(history) + 1))
    assert_replays(holdout)
