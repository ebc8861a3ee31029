"""Attacks repeats: they improve nothing and cost nothing, whoever sends them, however dressed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout, Release
from ladderholdout.mechanisms import (
    MECHANISMS,
    Mechanism,
    ParameterFreeLadder,
)
from tests.support.fixed_secrets import secrets_of
from tests.support.holdouts import EVERY, SHAKY, assert_replays, bits, coins, is_repeat, repeats
from tests.support.ledgers import entries_of, incumbent_predictions, record, replayed
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
    incumbent = incumbent_predictions(holdout)
    assert incumbent is not None
    return bits(ladder.state), ladder.version, ladder.incumbent, incumbent.tobytes()


def submit_all(ledger: str, given: list[Any]) -> list[Release]:
    holdout = LadderHoldout.open("coins", ledger=ledger)
    return [holdout.submit(one) for one in given]


def bits_of(score: float | None) -> str | None:
    return None if score is None else score.hex()


def assert_repeats(holdout: LadderHoldout, again: Release, first: Release) -> None:
    """Check a repeat after which nothing stepped: not improved, the present score, what it is."""
    entries, (_, ladder, _) = entries_of(holdout), record(holdout)
    rule = holdout.rules.mechanism
    score = first.score if rule.discloses or rule.redraws else holdout.status().score
    assert bits_of(again.score) == bits_of(score)
    level = first.improvements if first.improved else ladder.version
    assert (again.improved, again.improvements) == (False, level)
    is_incumbent = ladder.incumbent == first.submission
    assert (again.repeat_of, again.is_incumbent) == (first.submission, is_incumbent)
    assert again.has_held == first.improved
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
    told = [holdout.submit(one).score for one in (first, second, better)]
    assert told[0] != told[2]
    for one in (first, second, better):
        answers = [holdout.submit(one) for _ in range(50)]
        assert {answer.score for answer in answers} == {told[2]}
        assert not any(answer.improved for answer in answers)
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
def test_whatever_the_order_others_are_answered_as_without_repeats(
    mechanism: Mechanism, order: list[int]
) -> None:
    given = predictions("accuracy")
    with secrets_of("repeats"):
        holdout = opened("accuracy", "memory", mechanism)
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
    with secrets_of("repeats"):
        without = opened("accuracy", "memory", mechanism)
    told = {which: without.submit(given[which]) for which in first}
    assert {at: (one.score, one.improved) for at, one in told.items()} == {
        at: (one.score, one.improved) for at, one in first.items()
    }
    assert bits(replayed(without)[-1].state) == bits(replayed(holdout)[-1].state)


# What repeats cost

SEQUENCE = (0, 2, 1, 4, 3, 7)


def with_repeats(rng: np.random.Generator) -> list[int]:
    """Return the sequence with repeats of what came before, but none after the last query."""
    sent: list[int] = []
    for which in SEQUENCE:
        sent += [int(again) for again in rng.choice(sent, 4)] if sent else []
        sent.append(which)
    return sent


@pytest.mark.parametrize("show", ["scores", "improvements"])
@pytest.mark.parametrize("mechanism", EVERY, ids=lambda one: one.name)
def test_a_certificate_is_the_same_with_repeats_and_without(
    mechanism: Mechanism, show: Any
) -> None:
    given, found = predictions("accuracy"), []
    for sent in (SEQUENCE, with_repeats(np.random.default_rng(5))):
        with secrets_of("prices"):
            holdout = opened("accuracy", "memory", mechanism, show=show)
        for which in sent:
            holdout.submit(given[which])
        if show == "improvements":
            holdout.reveal()
        certificate, status = holdout.certificate(), holdout.status()
        ends = certificate.log_count, certificate.low, certificate.high, certificate.missing
        found.append((ends, status.score, status.releases, holdout.health(spent_at=0.9)))
        assert (status.queries, status.submissions) == (len(SEQUENCE), len(sent))
    assert found[0][:-1] == found[1][:-1]
    assert replace(found[1][-1], submissions=len(SEQUENCE)) == found[0][-1]


def priced(*sent: Any, **given: Any) -> tuple[Any, ...]:
    """Return the price and the ends after single submissions and batches of predictions."""
    with secrets_of("prices"):
        holdout = opened("accuracy", "memory", ParameterFreeLadder(), **given)
    for one in sent:
        holdout.finalists(one) if isinstance(one, list) else holdout.submit(one)
    certificate = holdout.certificate()
    assert certificate.log_count is not None
    assert_replays(holdout)
    return certificate.log_count, certificate.low, certificate.high


def test_a_batch_costs_what_its_new_members_cost() -> None:
    a, b, c, d = predictions("accuracy")[::2]
    assert priced(a, [b, c, d]) == priced(a, [a, b, b, c, a, d, d])
    assert priced([a, b], [c, d]) == priced([a, b], [b, a], [c, a, d, b])
    # One new member has no place to be told.
    assert priced(a, b, [d]) == priced(a, b, [a, b, d])
    assert priced([a, b], [c], d) == priced([a, b], [a, c, b], d)


def test_predictions_that_differ_on_the_reserve_alone_count_as_queries() -> None:
    """Nobody knows that they repeat: the price is that of another query that does not improve."""
    given = predictions("accuracy")
    holdout = opened("accuracy", "memory", ParameterFreeLadder(), reserve=0.5)
    known = holdout.__ladder__.guard().holdout.reserve  # type: ignore[attr-defined]
    order = holdout.__ladder__.guard().order  # type: ignore[attr-defined]
    row = int(order[np.flatnonzero(known)[0]])
    hidden = given[4].copy()
    hidden[row] = 1 - hidden[row]
    first, again = holdout.submit(given[4]), holdout.submit(hidden)
    assert (again.improved, again.repeat_of, again.is_incumbent) == (False, None, False)
    assert (again.score, again.improvements) == (first.score, 1)
    assert holdout.status().queries == 2 and repeats(holdout) == 1
    assert [one.repeat_of for one in holdout.history()] == [None, None]
    # Sent again as it is, it repeats itself.
    assert holdout.submit(hidden).repeat_of == 2
    assert holdout.status().queries == 2
    holdout.submit(given[7])
    with secrets_of("prices"):
        plain = opened("accuracy", "memory", ParameterFreeLadder(), reserve=0.5)
    for which in (4, 0, 7):
        plain.submit(given[which])
    counted = [one.certificate().log_count for one in (holdout, plain)]
    assert counted[0] == pytest.approx(counted[1], abs=0.5)


# What a loop keeps


@pytest.mark.parametrize("seed", range(10))
def test_a_loop_that_keeps_what_improved_ends_on_the_incumbent(seed: int) -> None:
    """A climb over few models, most of which come again; NumPy knows which is the best."""
    rng, (X, y) = np.random.default_rng(seed), coins(200)
    models = [np.where(rng.random(200) < right, y, 1 - y) for right in rng.uniform(0.4, 0.9, 25)]
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    keep, places = None, rng.integers(0, 25, 100)
    for place in places:
        release = holdout.submit(models[place])
        if release.improved:
            keep = place
        assert release.is_incumbent == (models[place] is models[keep])
    right = [np.mean(models[place] == y) for place in places]
    assert keep is not None and holdout.history()[holdout.status().incumbent - 1].improved
    assert np.mean(models[keep] == y) == holdout.status().score
    # A sequential rule may miss a gain of a few rows, and no more.
    assert np.mean(models[keep] == y) >= max(right) - 0.02


def test_searches_that_are_run_twice_end_on_the_incumbent(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 4))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=500) > 0).astype(int)
    train, rows = (X[:300], y[:300]), (X[300:], y[300:])
    grid = {"max_depth": [1, 2, 4, 6], "min_samples_leaf": [1, 20]}
    tree = DecisionTreeClassifier(random_state=0)

    def told(holdout: LadderHoldout, model: Any) -> bool:
        return holdout.submit(model).is_incumbent

    plain = LadderHoldout(*rows, scoring="accuracy", ledger="memory")
    for _ in range(2):
        cv, refit = plain.split(), plain.select
        search = GridSearchCV(tree, grid, scoring=plain, cv=cv, refit=refit).fit(*train)
        assert search.cv_results_["is_incumbent"][search.best_index_]
        assert told(plain, search.best_estimator_)
        # What the search is fed back names it as well.
        assert search.cv_results_["mean_test_score"].argmax() == search.best_index_
    guarded = LadderHoldout(*rows, scoring="accuracy", ledger="memory")
    for _ in range(2):
        outer = guarded.guard(GridSearchCV(tree, grid, cv=3), finalists=4).fit(*train)
        assert outer.is_incumbent_ and told(guarded, outer.best_estimator_)


def test_a_study_that_is_run_twice_ends_on_the_incumbent() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    X, y = coins(200)

    class Right(Fixed):
        def __init__(self, share: int) -> None:
            super().__init__(np.where(np.arange(200) < share, y, 1 - y))

    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    for _ in range(2):
        study = optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.GridSampler({"share": [110, 150, 120, 180, 130]}, seed=0),
        )
        study.optimize(
            holdout.optuna.objective(lambda trial: Right(trial.suggest_int("share", 100, 200))),
            n_trials=5,
        )
        assert holdout.optuna.best_trial(study).params == {"share": 180}
        assert study.best_trial.params == {"share": 180}
