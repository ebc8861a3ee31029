"""Attacks "same predictions, same answer": other processes, other clothes, averaging, races."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ladderholdout import LadderHoldout, Release
from ladderholdout.ledger import Ledger
from ladderholdout.ledger.replay import rules_of
from ladderholdout.mechanisms import (
    MECHANISMS,
    GaussianLadder,
    Mechanism,
    ParameterFreeLadder,
    ShakyLadder,
)
from tests.support.holdouts import (
    EVERY,
    SHAKY,
    assert_replays,
    bits,
    coins,
    entries_of,
    is_repeat,
    record,
    repeats,
    replayed,
)
from tests.support.processes import elsewhere

METRICS = ("accuracy", "neg_brier_score", "neg_log_loss", "roc_auc", "neg_mean_squared_error")
N = 60


def test_every_mechanism_is_attacked() -> None:
    gated = [one.values for one in cases() if not one.marks]
    assert [mechanism for mechanism, _ in gated] == [*EVERY]
    assert {scoring for _, scoring in gated} == {*METRICS}
    # Thresholdout needs the risk on the training rows as well, and guards no holdout; the
    # ladder of a leaderboard is attacked with its accounts, in test_leaderboard, and a gate, which
    # shows no score that a repeat could show again, in test_gate.
    guarding = {
        name
        for name, kind in MECHANISMS.items()
        if not (kind.needs_inner_score or kind.needs_account or kind.flags_alone)
    }
    assert {mechanism.name for mechanism in EVERY} == guarding


def cases() -> list[Any]:
    """Every mechanism with every metric; in the gate each with the metric least used before."""
    found, used = [], dict.fromkeys(reversed(METRICS), 0)
    for mechanism in EVERY:
        taken = [one for one in used if not (mechanism.needs_losses and one == "roc_auc")]
        gated = min(taken, key=lambda one: used[one])
        used[gated] += 1
        for scoring in taken:
            marks = [] if scoring == gated else [pytest.mark.nightly]
            name = f"{mechanism.name}-{scoring}"
            found.append(pytest.param(mechanism, scoring, id=name, marks=marks))
    return found


def opened(scoring: str, ledger: Any, mechanism: Mechanism, **given: Any) -> LadderHoldout:
    X, y = coins(N)
    unbounded = scoring in ("neg_log_loss", "neg_mean_squared_error")
    if mechanism.needs_bounded_risk and unbounded:
        given["loss_range"] = (0, 5 if scoring == "neg_log_loss" else 1)
    return LadderHoldout(
        X, y, scoring=scoring, mechanism=mechanism, name="coins", ledger=ledger, **given
    )


def predictions(scoring: str, k: int = 8) -> list[NDArray[Any]]:
    """Better and better ones, labels or multiples of 1/64, which every float type holds."""
    rng, (_, y) = np.random.default_rng(0), coins(N)
    if scoring == "accuracy":
        return [np.where(rng.random(N) < 0.4 + at / 20, y, 1 - y) for at in range(k)]
    return [
        np.clip(32 + 3 * at * (2 * y - 1) + rng.integers(-8, 9, N), 1, 63) / 64 for at in range(k)
    ]


def standing(holdout: LadderHoldout) -> tuple[Any, ...]:
    _, ladder, _ = record(holdout)
    with Ledger(holdout.ledger).read() as tx:
        incumbent = tx.incumbent_predictions(ladder.id)
    assert incumbent is not None
    return bits(ladder.state), ladder.version, ladder.incumbent, incumbent.tobytes()


def submit_all(ledger: str, given: list[Any]) -> list[Release]:
    holdout = LadderHoldout.open("coins", ledger=ledger)
    return [holdout.submit(one) for one in given]


def bits_of(score: float | None) -> str | None:
    return None if score is None else score.hex()


def assert_repeats(holdout: LadderHoldout, again: Release, first: Release) -> None:
    """Check a repeat after which nothing stepped: its first answer, or what does not improve."""
    entries, (_, ladder, _) = entries_of(holdout), record(holdout)
    rule = rules_of(ladder.settings).mechanism
    score, level = first.score, first.improvements
    if not first.improved:
        level = ladder.version
        if not (rule.discloses or rule.redraws):
            score = holdout.status().score
    assert bits_of(again.score) == bits_of(score)
    assert (again.improved, again.improvements) == (first.improved, level)
    assert entries[again.submission - 1].repeat_of == first.submission
    assert entries[first.submission - 1].repeat_of is None


@pytest.mark.processes
@pytest.mark.parametrize(("mechanism", "scoring"), cases())
def test_another_process_gets_the_same_answers_and_steps_nothing(
    tmp_path: Path, mechanism: Mechanism, scoring: str
) -> None:
    holdout, given = opened(scoring, tmp_path / "ledger.db", mechanism), predictions(scoring)
    told = [holdout.submit(one) for one in given]
    # ShakyLadder has 8 tries at a margin of 10 scales of its noise or more: it fails here in
    # less than one run of a million.
    assert sum(one.improved for one in told) >= 2
    before = standing(holdout)
    # Backwards, so that the one that stands is not the one that was asked for last.
    for again, first in zip(
        elsewhere(submit_all, holdout.ledger, given[::-1]), told[::-1], strict=True
    ):
        assert_repeats(holdout, again, first)
    assert standing(holdout) == before
    status, history = holdout.status(), entries_of(holdout)
    assert (status.submissions, repeats(holdout)) == (16, 8)
    assert status.releases == told[-1].submission if mechanism.discloses else status.releases < 9
    assert [one.repeat_of for one in history] == [None] * 8 + list(range(8, 0, -1))
    assert [one.digest for one in history[8:]] == [one.digest for one in history[7::-1]]
    assert_replays(holdout)
    # What comes next is judged as if nobody had repeated anything.
    assert not is_repeat(holdout, holdout.submit(1 - given[0]))
    assert_replays(holdout)


# Other clothes


def as_text(labels: NDArray[Any]) -> NDArray[np.str_]:
    return np.array(["no", "yes"])[labels]


CLOTHES: dict[str, Callable[[NDArray[Any]], Any]] = {
    "list": list,
    "list of int": lambda labels: [int(one) for one in labels],
    "tuple": tuple,
    "int8": lambda labels: labels.astype(np.int8),
    "uint64": lambda labels: labels.astype(np.uint64),
    "float32": lambda labels: labels.astype(np.float32),
    "bool": lambda labels: labels.astype(bool),
    "object": lambda labels: labels.astype(object),
    "column": lambda labels: labels[:, None],
    "not contiguous": lambda labels: np.repeat(labels, 2)[::2],
    "reversed twice": lambda labels: labels[::-1].copy()[::-1],
    "Series": lambda labels: pd.Series(labels, index=range(7, 7 + len(labels))),
    "nullable Series": lambda labels: pd.Series(labels, dtype="Int64"),
    "category": lambda labels: pd.Series(labels, dtype="category"),
    "DataFrame": lambda labels: pd.DataFrame({"prediction": labels}),
}


def told_apart(
    holdout: LadderHoldout, plain: NDArray[Any], clothes: dict[str, Callable[[Any], Any]]
) -> list[str]:
    """Submit the same predictions in each of the clothes; return those that are no repeat."""
    first, wrong = holdout.submit(plain), []
    for name, dress in clothes.items():
        try:
            assert_repeats(holdout, holdout.submit(dress(plain)), first)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    return wrong


def test_labels_in_other_clothes_are_a_repeat() -> None:
    holdout = opened("accuracy", "memory", SHAKY)
    assert told_apart(holdout, predictions("accuracy")[0], CLOTHES) == []


TEXT_CLOTHES: dict[str, Callable[[NDArray[np.str_]], Any]] = {
    "list": lambda texts: texts.tolist(),
    "object": lambda texts: texts.astype(object),
    "wider": lambda texts: texts.astype("<U20"),
    "Series": pd.Series,
    "category": lambda texts: pd.Series(texts, dtype="category"),
}


def test_text_labels_in_other_clothes_are_a_repeat() -> None:
    X, y = coins(N)
    holdout = LadderHoldout(X, as_text(y), scoring="accuracy", mechanism=SHAKY, ledger="memory")
    assert told_apart(holdout, as_text(predictions("accuracy")[0]), TEXT_CLOTHES) == []


PROBABILITY_CLOTHES: dict[str, Callable[[NDArray[np.float64]], Any]] = {
    "two columns": lambda p: np.column_stack([1 - p, p]),
    "one column": lambda p: p[:, None],
    "float32": lambda p: p.astype(np.float32),
    "float16": lambda p: p.astype(np.float16),
    "list": lambda p: p.tolist(),
    "Fortran order": lambda p: np.asfortranarray(np.column_stack([1 - p, p])),
    "rounding of single precision": lambda p: np.column_stack([np.float32(1 - p) + 1e-9, p]),
    "DataFrame": lambda p: pd.DataFrame({0: 1 - p, 1: p}),
    "DataFrame, columns turned round": lambda p: pd.DataFrame({1: p, 0: 1 - p}),
}


def test_probabilities_in_other_clothes_are_a_repeat() -> None:
    holdout = opened("neg_brier_score", "memory", SHAKY)
    assert told_apart(holdout, predictions("neg_brier_score")[0], PROBABILITY_CLOTHES) == []


def test_minus_zero_is_zero() -> None:
    holdout = opened("neg_mean_squared_error", "memory", SHAKY)
    values = np.where(np.arange(N) % 2, 0.5, 0.0)
    first = holdout.submit(values)
    assert_repeats(holdout, holdout.submit(np.where(values == 0, -0.0, values)), first)


class Fixed:
    """A fitted classifier that knows its answers by heart."""

    def __init__(self, answers: NDArray[Any]) -> None:
        self.answers, self.classes_ = answers, np.array([0, 1])

    def predict(self, X: Any) -> NDArray[Any]:
        return self.answers


def test_an_estimator_repeats_what_was_submitted_by_hand() -> None:
    holdout = opened("accuracy", "memory", SHAKY)
    labels = predictions("accuracy")[0]
    first = holdout.submit(labels)
    assert_repeats(holdout, holdout.submit(Fixed(labels)), first)
    assert_repeats(
        holdout, holdout.submit(Fixed(labels.astype(float)), context={"note": "x"}), first
    )


@pytest.mark.long
@given(where=st.integers(0, N - 1))
@settings(deadline=None, max_examples=10)
def test_one_other_prediction_is_another_submission(where: int) -> None:
    holdout = opened("accuracy", "memory", SHAKY)
    labels = predictions("accuracy")[0]
    assert holdout.submit(labels).submission == 1
    labels[where] = 1 - labels[where]
    again = holdout.submit(labels)
    assert (again.submission, is_repeat(holdout, again)) == (2, False)


def test_repeats_are_told_apart_by_ladder() -> None:
    ours = opened("accuracy", "memory", ParameterFreeLadder())
    labels = predictions("accuracy")[0]
    assert not is_repeat(ours, ours.submit(labels))
    with pytest.warns(match="count together"):
        theirs = opened("accuracy", ours.ledger, ParameterFreeLadder(), account="theirs")
    assert not is_repeat(theirs, theirs.submit(labels))
    assert is_repeat(theirs, theirs.submit(labels))


# What a repeat could be used for


@pytest.mark.long
def test_averaging_gets_one_value() -> None:
    """Resubmitting is the cheapest attack on noise; here it gets one number, 50 times."""
    holdout = opened("accuracy", "memory", SHAKY)
    first, second, better = predictions("accuracy")[0], *predictions("accuracy")[-2:]
    told = {id(one): holdout.submit(one) for one in (first, second, better)}
    assert told[id(first)].score != told[id(better)].score
    for one in (first, second, better):
        answers = [holdout.submit(one) for _ in range(50)]
        assert {answer.score.hex() for answer in answers} == {told[id(one)].score.hex()}
        assert {answer.improved for answer in answers} == {told[id(one)].improved}
        assert all(is_repeat(holdout, answer) for answer in answers[::10])
    assert repeats(holdout) == 150


def test_a_repeat_neither_spends_a_budget_nor_is_refused_without_one() -> None:
    holdout = opened("accuracy", "memory", ParameterFreeLadder(), budget=2)
    given = predictions("accuracy")
    first = holdout.submit(given[0])
    assert holdout.submit(given[0]).releases_left == first.releases_left == 1
    with pytest.warns(match="used up"):
        second = holdout.submit(given[-1])
    third = holdout.submit(coins(N)[1])
    assert (third.improved, third.score, third.releases_left) == (False, second.score, 0)
    for one, told in ((given[0], first), (given[-1], second), (coins(N)[1], third)):
        again = holdout.submit(one)
        assert_repeats(holdout, again, told)
        assert again.releases_left == 0
    assert holdout.status().releases == 2
    assert_replays(holdout)


@pytest.mark.long
@given(order=st.lists(st.integers(0, 4), min_size=1, max_size=15))
@settings(deadline=None, max_examples=5)
@pytest.mark.parametrize("mechanism", EVERY, ids=lambda one: one.name)
def test_whatever_the_order_each_gets_its_first_answer(
    mechanism: Mechanism, order: list[int]
) -> None:
    holdout, given = opened("accuracy", "memory", mechanism), predictions("accuracy")
    first: dict[int, Release] = {}
    for which in order:
        release = holdout.submit(given[which])
        if which in first:
            assert_repeats(holdout, release, first[which])
        else:
            assert not is_repeat(holdout, release)
            first[which] = release
    assert repeats(holdout) == len(order) - len(first)
    assert_replays(holdout)
    # Noise depends on the submission's number.
    if not mechanism.redraws and not isinstance(mechanism, ShakyLadder | GaussianLadder):
        without = opened("accuracy", "memory", mechanism)
        told = {which: without.submit(given[which]) for which in first}
        assert {at: (one.score, one.improved) for at, one in told.items()} == {
            at: (one.score, one.improved) for at, one in first.items()
        }
        assert bits(replayed(without)[-1].state) == bits(replayed(holdout)[-1].state)
