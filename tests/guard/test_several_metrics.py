"""Attacks holdouts of several metrics: halves of submissions, false certificates, wrong winners."""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from click.testing import Result
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_val_score,
    cross_validate,
)
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, Metric, SearchStopped
from ladderholdout.certificates.transcript import Transcript, certify
from ladderholdout.cli import app
from ladderholdout.errors import (
    BudgetWarning,
    HoldoutConflict,
    InvalidSubmission,
    KnownHoldoutWarning,
    LadderHoldoutWarning,
    LedgerError,
    NoImprovementWarning,
    UnknownHoldout,
)
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.submit import Guard
from ladderholdout.integrations.staged import ladder_stopping
from ladderholdout.mechanisms import (
    FullDisclosure,
    Ladder,
    PairedTestLadder,
    ParameterFreeLadder,
    SimplifiedLadder,
)
from ladderholdout.server.accounts import home_of
from tests.conftest import Binary
from tests.support.beyond_plain import needs_pandas, pd
from tests.support.commands import CliRunner
from tests.support.holdouts import assert_replays
from tests.support.ledgers import counts, entries_of, raw
from tests.support.postgres import Server
from tests.support.processes import elsewhere

THREE = ["accuracy", "roc_auc", "neg_brier_score"]
RULE = SimplifiedLadder(step=0.01)
GRID = {"max_depth": [1, 2, 3, 4], "min_samples_leaf": [1, 5]}


def rows(n: int = 200, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + rng.normal(size=n) > 0).astype(int)


def holdout_of(
    scoring: Any = ("roc_auc", "neg_brier_score"), seed: int = 0, **settings: Any
) -> LadderHoldout:
    given = {"ledger": "memory", "mechanism": RULE, "name": "several"} | settings
    return LadderHoldout(*rows(seed=seed), scoring=scoring, **given)


def models(count: int, seed: int = 1, n: int = 200) -> NDArray[np.float64]:
    """Probabilities by linear models of growing skill, with repeats among them."""
    rng, (X, _) = np.random.default_rng(seed), rows(n)
    weights = rng.normal(size=(count, 3)) + np.linspace(0, 2, count)[:, None] * [1, 0, 0]
    weights[count // 2] = weights[0]
    return expit(weights @ X.T)


def both(probabilities: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    return {"labels": (probabilities > 0.5).astype(int), "probabilities": probabilities}


def tree() -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore what the library says of plain scores and of winners that were beaten."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LadderHoldoutWarning)
        yield


def registered(binary: Binary, ledger: Path | str = "memory", **settings: Any) -> LadderHoldout:
    given = {"scoring": THREE, "mechanism": RULE, "name": "cancer"} | settings
    return LadderHoldout(binary.X_holdout, binary.y_holdout, ledger=ledger, **given)


# One submission, all ladders


def test_one_submission_is_answered_by_each_metric() -> None:
    holdout = holdout_of()
    release = holdout.submit(models(1)[0])
    assert list(release.by_metric) == ["roc_auc", "neg_brier_score"]
    _, y = rows()  # the first query improves, and is rounded to the step
    assert release["roc_auc"].score == pytest.approx(roc_auc_score(y, models(1)[0]), abs=0.0051)
    assert (release.score, release.improved) == (release["roc_auc"].score, True)
    with pytest.raises(InvalidArgument, match="'roc_auc', 'neg_brier_score'"):
        release["f1"]


def test_each_metric_is_answered_as_a_holdout_of_that_metric_alone_would_be() -> None:
    scoring = {"hits": "accuracy", "area": "roc_auc", "brier": "neg_brier_score"}
    rules = {"hits": ParameterFreeLadder(), "area": Ladder(step=0.1), "brier": Ladder(step=0.002)}
    together = holdout_of(scoring, mechanism=rules)
    alone = {
        name: holdout_of(metric, mechanism=rules[name], name=name)
        for name, metric in scoring.items()
    }
    found: dict[str, list[Any]] = {name: [] for name in scoring}
    for one in models(40):
        releases = together.submit(both(one))
        for name, single in alone.items():
            response = "labels" if name == "hits" else "probabilities"
            expected = single.submit(both(one)[response])
            assert releases[name] == expected
            found[name].append(expected.improved)
    # The ladders disagree, so each has a state of its own, and one model was submitted twice.
    assert len({tuple(one) for one in found.values()}) == 3
    for name, single in alone.items():
        ours, theirs = entries_of(together[name]), entries_of(single)
        shown = [(one.number, one.risk, one.improved, one.repeat_of) for one in ours]
        assert shown == [(one.number, one.risk, one.improved, one.repeat_of) for one in theirs]
        assert any(one.repeat_of for one in ours)
        assert_replays(together[name])


def test_the_history_has_each_submission_with_all_of_its_answers() -> None:
    holdout = holdout_of()
    for one in models(3):
        holdout.submit(one, context={"idea": "steeper"})
    holdout["neg_brier_score"].submit(models(4)[3])  # to one of them alone
    last = holdout.submit(models(5)[4])
    assert (last["roc_auc"].submission, last["neg_brier_score"].submission) == (4, 5)
    history = holdout.history()
    assert [one.number for one in history] == [1, 2, 3, 4]
    assert [one["neg_brier_score"].number for one in history] == [1, 2, 3, 5]
    assert history[0].context["idea"] == "steeper"
    assert history[-1]["neg_brier_score"].improved == last["neg_brier_score"].improved
    assert [one.number for one in holdout.history(after=2, limit=1)] == [3]
    assert len(holdout["neg_brier_score"].history()) == 5
    # A ladder's own number is in the table where it is another one: withdraw takes it.
    firsts = [line.split()[0] for line in str(history).splitlines()[1:]]
    assert [first for first in firsts if first.isdigit()] == ["1", "2", "3", "4", "5"]


def test_predictions_for_metrics_that_take_different_things() -> None:
    holdout, one = holdout_of(THREE), models(1)[0]
    table = np.column_stack([1 - one, one])
    release = holdout.submit({"labels": one > 0.5, "probabilities": table})
    named = {"accuracy": one > 0.5, "roc_auc": one, "neg_brier_score": table}
    again = holdout.submit(named)
    _, y = rows()
    assert release["accuracy"].score == pytest.approx(accuracy_score(y, one > 0.5), abs=0.0051)
    # The same predictions, said otherwise: the same answers, and no ladder was stepped.
    assert [one.score for one in again.by_metric.values()] == [
        one.score for one in release.by_metric.values()
    ]
    assert holdout.status().releases == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda one: one, "is one array"),
        (lambda one: {"labels": one > 0.5}, "a mapping without 'probabilities'"),
        (lambda one: {"accuracy": one > 0.5, "roc_auc": one}, "'accuracy', 'roc_auc'"),
        (lambda one: both(one) | {"values": one}, "'values' as well"),
        (lambda one: both(one) | {"probabilities": 2 * one}, "predictions for 'neg_brier_score'"),
        (lambda one: both(one) | {"labels": one[:-1] > 0.5}, "predictions for 'accuracy'"),
    ],
)
def test_what_one_metric_refuses_goes_to_none(given: Any, said: str) -> None:
    holdout, one = holdout_of(THREE), models(1)[0]
    with pytest.raises(InvalidSubmission, match=said):
        holdout.submit(given(one))
    assert [holdout.status()[name].submissions for name in THREE] == [0, 0, 0]


@needs_pandas
def test_ids_and_indexes_name_the_rows_of_every_metric() -> None:
    (X, y), one = rows(), models(1)[0]
    ids = [f"row {at}" for at in range(len(y))]
    holdout = LadderHoldout(X, y, scoring=THREE, ids=ids, mechanism=RULE, ledger="memory")
    plain = holdout.submit(both(one))
    order = np.random.default_rng(3).permutation(len(y))
    shuffled = {name: values[order] for name, values in both(one).items()}
    again = holdout.submit(shuffled, ids=[ids[at] for at in order])
    assert [again[name].score for name in THREE] == [plain[name].score for name in THREE]
    assert again["accuracy"].repeat_of == 1  # the same predictions, known again
    frames = {
        name: pd.DataFrame({"value": values, "id": np.array(ids)[: len(values)]})
        for name, values in both(one).items()
    }
    assert holdout.submit(frames, ids="id")["roc_auc"].repeat_of == 1
    frames["labels"] = frames["labels"].iloc[::-1]
    # Each table has ids of its own, and may come in an order of its own.
    again = holdout.submit(frames, ids="id")
    assert [again[name].score for name in THREE] == [plain[name].score for name in THREE]


def test_a_fault_between_two_ladders_leaves_neither_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holdout = holdout_of(THREE)
    holdout.submit(both(models(1)[0]))
    judge, calls = Guard.judge, []

    def failing(self: Guard, *given: Any, **named: Any) -> Any:
        calls.append(self.metric.name)
        if len(calls) == 3:
            raise LedgerError("the disk is full")
        return judge(self, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Guard, "judge", failing)
        with pytest.raises(LedgerError, match="disk is full"):
            holdout.submit(both(models(2)[1]))
    assert calls == THREE
    assert [holdout.status()[name].submissions for name in THREE] == [1, 1, 1]
    release = holdout.submit(both(models(2)[1]))
    assert {one.submission for one in release.by_metric.values()} == {2}


def _dies(ledger: str) -> None:
    judge, calls = Guard.judge, []

    def dying(self: Guard, *given: Any, **named: Any) -> Any:
        calls.append(self)
        answer = judge(self, *given, **named)
        if len(calls) == 2:  # both are written, and nothing is committed
            os._exit(9)
        return answer

    Guard.judge = dying  # type: ignore[method-assign]
    LadderHoldout.open("several", ledger=ledger).submit(models(2)[1])


@pytest.mark.processes
def test_a_process_that_dies_between_two_ladders_leaves_neither_written(tmp_path: Path) -> None:
    holdout = holdout_of(ledger=tmp_path / "ledger.db")
    holdout.submit(models(1)[0])
    with pytest.raises(Exception, match=r"terminated|abruptly"):
        elsewhere(_dies, holdout.ledger)
    assert [one.submissions for one in holdout.status().by_metric.values()] == [1, 1]
    release = holdout.submit(models(2)[1])
    assert [one.submission for one in release.by_metric.values()] == [2, 2]
    assert verify_holdout(holdout.ledger, "several").findings == ()


def _amends(ledger: str, X: NDArray[Any], y: NDArray[Any], scoring: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KnownHoldoutWarning)
        LadderHoldout(X, y, scoring=scoring, ledger=ledger)


@pytest.mark.processes
def test_amended_labels_are_those_of_every_metric(tmp_path: Path) -> None:
    holdout = holdout_of(ledger=tmp_path / "ledger.db", mechanism=FullDisclosure())
    X, y = rows()
    better = y.copy()
    better[:4] = 1 - better[:4]
    elsewhere(_amends, holdout.ledger, X, better, list(holdout.metrics))
    one = models(1)[0]
    release = holdout.submit(one)  # by a process that knew the labels before
    assert release["roc_auc"].score == pytest.approx(roc_auc_score(better, one))
    brier = -float(np.mean((one - better) ** 2))
    assert release["neg_brier_score"].score == pytest.approx(brier)
    assert [one.submissions for one in holdout.status().by_metric.values()] == [1, 1]


def test_a_retry_under_a_key_is_answered_as_before_by_each_metric() -> None:
    from ladderholdout.guard.open_ladder import Origin

    ladder = holdout_of().__ladder__
    first = ladder.submit(models(1)[0], Origin(key="trial"))
    again = ladder.submit(models(2)[1], Origin(key="trial"))
    assert [again[name].score for name in ("roc_auc", "neg_brier_score")] == [
        first[name].score for name in ("roc_auc", "neg_brier_score")
    ]


@pytest.mark.processes
def test_submissions_to_all_and_to_one_do_not_lock_each_other_on_a_server(
    database: str, postgres: Server
) -> None:
    holdout, predictions = holdout_of(ledger=database), models(48)
    brier = holdout["neg_brier_score"]

    def submit(at: int) -> None:
        (brier if at % 2 else holdout).submit(predictions[at])

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(submit, range(48)))
    assert [one.submissions for one in holdout.status().by_metric.values()] == [24, 48]
    name = database.partition("?")[0].rpartition("/")[2]
    (deadlocks,) = postgres.sql(f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{name}'")
    assert deadlocks == (0,)
    assert_replays(holdout["roc_auc"])
    assert_replays(brier)


# The rows and the ledger


def test_a_holdout_is_opened_by_its_name_with_the_same_metrics() -> None:
    own = Metric(
        "precise",
        "probabilities",
        loss=lambda y, p, sample_weight=None: (p[:, 1] - y) ** 4,
        loss_range=(0, 1),
    )
    holdout = holdout_of({"area": "roc_auc", "own": own})
    holdout.submit(models(1)[0])
    again = LadderHoldout.open("several", scoring={"own": own}, ledger=holdout.ledger)
    assert list(again.metrics) == ["own"]
    every = LadderHoldout.open(
        "several", scoring={"area": "roc_auc", "own": own}, ledger=holdout.ledger
    )
    assert every == holdout
    assert list(every.metrics) == list(LadderHoldout.open("several", ledger=holdout.ledger).metrics)
    area = LadderHoldout.open("several", scoring="area", ledger=holdout.ledger)
    assert area == holdout["area"]
    assert area.metric.name == "roc_auc"
    assert holdout_of({"area": "roc_auc", "own": own}, ledger=holdout.ledger) == holdout
    with pytest.raises(UnknownHoldout, match="'area', 'own'"):
        LadderHoldout.open("several", scoring=["f1"], ledger=holdout.ledger)


def test_a_metric_may_be_added_and_starts_with_nothing() -> None:
    holdout = holdout_of()
    holdout.submit(models(1)[0])
    more = holdout_of(["roc_auc", "neg_brier_score", "neg_log_loss"], ledger=holdout.ledger,
                      mechanism=None)  # fmt: skip
    assert more.status()["neg_log_loss"].submissions == 0
    assert more.submit(models(2)[1])["neg_log_loss"].improved
    assert more.history()[-1]["neg_log_loss"].number == 1


def test_one_metric_and_several_do_not_share_a_name() -> None:
    holdout = holdout_of()
    with pytest.raises(HoldoutConflict, match=r"scoring=\['roc_auc', 'neg_brier_score'\]"):
        holdout_of("roc_auc", ledger=holdout.ledger)
    with pytest.raises(InvalidArgument, match="scoring= takes a list"):
        holdout_of("f1", ladder="main:f1", ledger=holdout.ledger)
    settings = {"seed": 1, "name": "single", "ledger": holdout.ledger}
    single = holdout_of("accuracy", **settings)
    with pytest.raises(HoldoutConflict, match="ladder='several'"):
        holdout_of(**settings)
    with pytest.warns(KnownHoldoutWarning, match="count together"):
        beside = holdout_of(ladder="several", **settings)
    assert beside.status().ladders[0] == ("default", "main", 0)
    assert single.status().submissions == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scoring": []}, "an empty one"),
        ({"scoring": ["roc_auc", "roc_auc"]}, "a metric twice"),
        ({"scoring": {"a:b": "roc_auc"}}, "without ':'"),
        ({"scoring": {"": "roc_auc"}}, "printable text"),
        ({"scoring": ["roc_auc", "no such"]}, "no such"),
        ({"mechanism": {"f1": RULE}}, "names of metrics"),
        ({"loss_range": (0, 1)}, r"\{'roc_auc': \.\.\.\}"),
        ({"scoring": ["accuracy", "r2"], "mechanism": {"r2": PairedTestLadder(0.1)}}, "mean"),
    ],
)
def test_what_cannot_be_several_metrics_registers_nothing(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.db"
    with pytest.raises((InvalidArgument, HoldoutConflict), match=said):
        holdout_of(ledger=ledger, **settings)
    if ledger.exists():
        assert (counts(ledger)["holdouts"], counts(ledger)["ladders"]) == (0, 0)


def test_a_range_may_be_stated_for_each_metric() -> None:
    X, _ = rows()
    holdout = LadderHoldout(
        X,
        X[:, 0],
        scoring=["neg_mean_absolute_error", "r2"],
        loss_range={"neg_mean_absolute_error": (0, 4)},
        target_range={"r2": (-4, 4)},
        budget={"r2": 1},
        ledger="memory",
    )
    with pytest.warns(BudgetWarning):
        holdout.submit(X[:, 0] + 0.1)
    status = holdout.status()
    assert (status["r2"].budget, status["neg_mean_absolute_error"].budget) == (1, None)
    found = holdout.certificate()
    assert all(found[name].missing is None for name in holdout.metrics)


def test_what_is_of_one_metric_names_the_way_to_it(binary: Binary, tmp_path: Path) -> None:
    holdout = registered(binary)
    remedy = r"holdout\['accuracy'\]"
    for refused in (
        holdout.owner.audit,
        holdout.track,
        holdout.optuna.error_evaluator,
        holdout.reveal,
        lambda: holdout.owner.withdraw(1, reason="trained on it"),
        lambda: ladder_stopping(holdout),
    ):
        with pytest.raises(InvalidArgument, match=remedy):
            refused()
    with pytest.raises(HoldoutConflict, match="a server answers by one"):
        home_of(registered(binary, tmp_path / "served.db").ledger, "cancer")
    # And there it works.
    stopped = ladder_stopping(holdout["accuracy"], patience=2)
    assert stopped is not None
    holdout.submit(tree().fit(binary.X_train, binary.y_train))
    assert holdout["accuracy"].owner.audit().status.submissions == 1


# Searches


class Counting(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A tree that counts how often each of its methods is called."""

    calls: list[str] = []  # noqa: RUF012  # of all copies

    def __init__(self, max_depth: int = 1) -> None:
        self.max_depth = max_depth

    def fit(self, X: Any, y: Any) -> Counting:
        self.tree_ = DecisionTreeClassifier(max_depth=self.max_depth, random_state=0).fit(X, y)
        self.classes_ = self.tree_.classes_
        return self

    def predict(self, X: Any) -> Any:
        self.calls.append("predict")
        return self.tree_.predict(X)

    def predict_proba(self, X: Any) -> Any:
        self.calls.append("predict_proba")
        return self.tree_.predict_proba(X)


def test_a_model_predicts_once_for_all_metrics_that_ask_the_same(binary: Binary) -> None:
    scoring = ["accuracy", "f1", "roc_auc", "neg_brier_score", "neg_log_loss"]
    holdout = registered(binary, scoring=scoring, mechanism=None)
    model = Counting(3).fit(binary.X_train, binary.y_train)
    for score in (
        lambda: holdout.submit(model),
        lambda: holdout(model, binary.X_test, binary.y_test),
    ):
        Counting.calls.clear()
        with _quiet():
            score()
        assert sorted(Counting.calls) == ["predict", "predict_proba"]
    Counting.calls.clear()
    grid = GridSearchCV(
        Counting(), {"max_depth": [1, 2, 3]}, scoring=holdout, cv=holdout.split(), refit=False
    )
    grid.fit(binary.X_train, binary.y_train)
    assert sorted(Counting.calls) == 3 * ["predict"] + 3 * ["predict_proba"]


def test_plain_scores_are_those_of_each_metric(binary: Binary) -> None:
    holdout = registered(binary)
    model = tree().fit(binary.X_train, binary.y_train)
    with _quiet():
        found = holdout(model, binary.X_test, binary.y_test)
    hits = accuracy_score(binary.y_test, model.predict(binary.X_test))
    assert found["accuracy"] == pytest.approx(hits)
    areas = model.predict_proba(binary.X_test)[:, 1]
    assert found["roc_auc"] == pytest.approx(roc_auc_score(binary.y_test, areas))
    with _quiet():
        scores = cross_validate(tree(), binary.X_train, binary.y_train, scoring=holdout, cv=3)
    assert set(scores) >= {f"test_{name}" for name in THREE}
    assert holdout.status().submissions == 0


@pytest.mark.parametrize("kind", [GridSearchCV, RandomizedSearchCV])
def test_a_search_has_each_metrics_feedback_and_picks_by_name(kind: Any, binary: Binary) -> None:
    holdout = registered(binary)
    given = {"n_iter": 8, "random_state": 0} if kind is RandomizedSearchCV else {}
    search = kind(tree(), GRID, scoring=holdout, cv=holdout.split(), refit="roc_auc", **given)
    search.fit(binary.X_train, binary.y_train)
    status = holdout.status()
    assert [status[name].submissions for name in THREE] == [8, 8, 8]
    for name in THREE:
        fed = search.cv_results_[f"mean_test_{name}"]
        history = holdout[name].history()
        # What improved gets its release, what did not a step less than the released score.
        assert [one.score for one in history if one.improved] == fed[
            [one.improved for one in history]
        ].tolist()
        assert all(
            value < one.score or one.repeat_of is not None
            for value, one in zip(fed, history, strict=True)
            if not one.improved
        )
    picked = search.cv_results_["params"][search.best_index_]
    incumbent = holdout["roc_auc"].history()[status["roc_auc"].incumbent - 1]
    assert incumbent.context["parameters"].items() >= picked.items()


def test_select_goes_by_the_first_metric_or_by_the_one_that_is_asked(binary: Binary) -> None:
    scoring = {"first": "neg_log_loss", "second": "accuracy"}
    holdout = registered(binary, scoring=scoring, mechanism=FullDisclosure())
    # Without a limit of depth it is right more often, and more sure where it errs.
    grid = {"max_depth": [1, 2, 8], "min_samples_leaf": [5]}
    chosen = {}
    for name, refit in {"first": holdout.select, "second": holdout["second"].select}.items():
        search = GridSearchCV(tree(), grid, scoring=holdout, cv=holdout.split(), refit=refit)
        with _quiet():
            chosen[name] = search.fit(binary.X_train, binary.y_train).best_params_["max_depth"]
        incumbent = holdout[name].history()[holdout.status()[name].incumbent - 1]
        assert incumbent.context["parameters"]["max_depth"] == chosen[name]
        assert search.cv_results_["is_incumbent"].any()
    assert chosen["first"] != chosen["second"]


def test_without_an_improvement_select_goes_by_the_first_metrics_inner_folds(
    binary: Binary,
) -> None:
    holdout = registered(binary)
    perfect = 0.8 * binary.y_holdout + np.linspace(0, 0.1, len(binary.y_holdout))
    holdout.submit(both(perfect))
    holdout["accuracy"].submit(binary.y_holdout)  # nothing is better
    grid = GridSearchCV(
        tree(), {"max_depth": [1, 4]}, scoring=holdout, cv=holdout.split(inner=3),
        refit=holdout.select,
    )  # fmt: skip
    with pytest.warns(NoImprovementWarning):
        grid.fit(binary.X_train, binary.y_train)
    means = np.mean([grid.cv_results_[f"split{at}_test_accuracy"] for at in range(3)], axis=0)
    assert grid.best_index_ == int(np.argmax(means))


def test_a_named_refit_that_is_not_the_incumbent_is_said_of_its_own_ladder(
    binary: Binary,
) -> None:
    holdout = registered(binary)
    # The best there can be is submitted before, to one ladder alone.
    perfect = binary.y_holdout + np.linspace(0, 0.5, len(binary.y_holdout))
    holdout["roc_auc"].submit(perfect)
    search = GridSearchCV(tree(), GRID, scoring=holdout, cv=holdout.split(), refit="roc_auc")
    with pytest.warns(NoImprovementWarning, match="refit='roc_auc'"):
        search.fit(binary.X_train, binary.y_train)
    other = registered(binary, ledger="memory:other")
    other["roc_auc"].submit(perfect)
    search = GridSearchCV(tree(), GRID, scoring=other, cv=other.split(), refit="accuracy")
    search.fit(binary.X_train, binary.y_train)  # no warning: the incumbent of accuracy is its own


def test_one_number_is_not_made_of_several(binary: Binary) -> None:
    holdout = registered(binary)
    refused = r"holdout\['accuracy'\]"
    with pytest.raises(SearchStopped, match=refused):
        cross_val_score(tree(), binary.X_train, binary.y_train, scoring=holdout, cv=holdout.split())
    grid = GridSearchCV(tree(), GRID, scoring={"mine": holdout}, cv=holdout.split(), refit="mine")
    with pytest.raises(SearchStopped, match=refused):
        grid.fit(binary.X_train, binary.y_train)
    assert not hasattr(holdout, "_score_func")
    assert holdout.status().submissions == 0


def test_a_copy_of_a_search_goes_on_with_the_same_ladders(binary: Binary) -> None:
    holdout = registered(binary)
    search = GridSearchCV(tree(), GRID, scoring=holdout, cv=holdout.split(), refit=holdout.select)
    copy = clone(search).fit(binary.X_train, binary.y_train)
    assert copy.scoring == holdout
    assert holdout.status().submissions == 8
    assert len(repr(copy)) < 1000


def test_guard_shows_the_finalists_to_all_metrics(binary: Binary) -> None:
    holdout = registered(binary)
    inner = GridSearchCV(tree(), GRID, cv=3, scoring=["roc_auc", "accuracy"], refit="roc_auc")
    search = holdout.guard(inner, finalists=3).fit(binary.X_train, binary.y_train)
    assert [holdout.status()[name].submissions for name in THREE] == [3, 3, 3]
    assert search.best_score_ == holdout.status()["roc_auc"].score  # the search's own metric
    assert list(search.certificate_.by_metric) == list(holdout.metrics)
    results = search.cv_results_
    for name in THREE:
        shown = results[f"released_score_{name}"]
        assert np.isfinite(shown).sum() == 3
        assert np.nanmax(shown) == holdout.status()[name].score
        found = search.certificate_[name]
        mine = results[f"is_incumbent_{name}"][search.best_index_]
        # Of a metric whose incumbent is another model, nothing is certified of the winner.
        assert (found.missing is None) == mine
    for column in ("is_incumbent", "released_score", "improved"):
        assert np.array_equal(results[column], results[f"{column}_roc_auc"], equal_nan=True)
    assert results["is_incumbent"][search.best_index_]
    ranked = roc_auc_score(binary.y_test, search.predict_proba(binary.X_test)[:, 1])
    assert search.score(binary.X_test, binary.y_test) == pytest.approx(ranked)
    estimates = holdout.estimate()
    assert all(estimates[name].score is not None for name in THREE)


@pytest.mark.processes
def test_workers_go_on_with_all_ladders(binary: Binary, tmp_path: Path) -> None:
    holdout = registered(binary, tmp_path / "ledger.db")
    search = GridSearchCV(
        tree(), GRID, scoring=holdout, cv=holdout.split(), refit=holdout.select, n_jobs=2
    ).fit(binary.X_train, binary.y_train)
    status = holdout.status()
    assert [status[name].submissions for name in THREE] == [8, 8, 8]
    numbers = [one["neg_brier_score"].number for one in holdout.history()]
    assert numbers == list(range(1, 9))
    described = holdout["accuracy"].history()[status.incumbent - 1].context["parameters"]
    results = search.cv_results_
    asked = [described.items() >= params.items() for params in results["params"]]
    # Depths 3 and 4 predict alike with 5 rows in a leaf: the incumbent is the one that came
    # first, of two workers either, and the other repeats it.
    assert results["is_incumbent"][asked.index(True)]
    assert results["is_incumbent"][search.best_index_]
    # Whatever order they came in, each is one of so many: by which metric is a part of the choice.
    assert {one.size for name in THREE for one in entries_of(holdout[name])} == {24}


# Studies


def build(trial: optuna.Trial) -> DecisionTreeClassifier:
    depth = trial.suggest_int("max_depth", 1, 6)
    return DecisionTreeClassifier(max_depth=depth, random_state=0)


@pytest.fixture
def quiet_optuna() -> Any:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


@pytest.mark.usefixtures("quiet_optuna")
def test_a_study_receives_a_value_for_each_metric(binary: Binary) -> None:
    holdout = registered(binary)
    study = optuna.create_study(
        directions=["maximize", "minimize", "maximize"],
        sampler=optuna.samplers.RandomSampler(seed=0),
    )

    def fitted(trial: optuna.Trial) -> DecisionTreeClassifier:
        return build(trial).fit(binary.X_train, binary.y_train)

    study.optimize(holdout.optuna.objective(fitted), n_trials=6)
    status = holdout.status()
    assert [status[name].submissions for name in THREE] == [6, 6, 6]
    for at, name in enumerate(THREE):
        sign = -1 if at == 1 else 1
        best = max(sign * trial.values[at] for trial in study.trials)
        assert best == status[name].score
        chosen = holdout[name].optuna.best_trial(study)
        assert chosen.user_attrs["ladder_submission"][name] == status[name].incumbent
    assert (
        holdout.optuna.best_trial(study).number
        == holdout["accuracy"].optuna.best_trial(study).number
    )
    noted = study.trials[0].user_attrs
    assert noted["ladder_released"] == {name: noted["ladder_released"][name] for name in THREE}
    # Trials learn from answers here, so none of them is of a batch.
    assert {one.batch for one in holdout.history()} == {None}


@pytest.mark.usefixtures("quiet_optuna")
def test_a_study_by_inner_scores_of_each_metric_is_a_batch(binary: Binary) -> None:
    holdout = registered(binary)
    study = optuna.create_study(directions=["maximize"] * 3)
    train = binary.X_train, binary.y_train
    objective = holdout.optuna.objective(build, inner=3, train=train)
    study.optimize(objective, n_trials=4)
    trial = study.trials[0]
    scores = cross_validate(
        DecisionTreeClassifier(max_depth=trial.params["max_depth"], random_state=0),
        *train, cv=3, scoring=THREE,
    )  # fmt: skip
    expected = [float(np.mean(scores[f"test_{name}"])) for name in THREE]
    assert trial.values == pytest.approx(expected)
    assert len({one.batch for one in holdout.history()} - {None}) == 1
    assert "ladder_released" not in trial.user_attrs
    assert len(objective.inner_score(study.ask())) == 3  # type: ignore[arg-type]


@pytest.mark.usefixtures("quiet_optuna")
def test_other_objectives_stand_beside_the_guarded_ones(binary: Binary) -> None:
    from ladderholdout.integrations.optuna import Candidate

    holdout = registered(binary, scoring=["roc_auc", "neg_brier_score"])
    study = optuna.create_study(directions=["minimize", "maximize", "maximize"])

    def sized(trial: optuna.Trial) -> Candidate:
        model = build(trial).fit(binary.X_train, binary.y_train)
        return Candidate(model, others=(float(model.tree_.node_count),))

    study.optimize(holdout.optuna.objective(sized, guarded=1), n_trials=3)
    assert all(trial.values[0] >= 3 for trial in study.trials)
    assert max(trial.values[1] for trial in study.trials) == holdout.status().score
    loop = holdout.optuna.ask_tell(study, guarded=1)
    trial = loop.ask()
    model = build(trial).fit(binary.X_train, binary.y_train)
    release = loop.tell(trial, model, others=(1.0,))
    assert release["neg_brier_score"].submission == 4


@pytest.mark.usefixtures("quiet_optuna")
def test_a_study_that_has_no_room_for_all_metrics_is_refused_before_it_submits(
    binary: Binary,
) -> None:
    holdout = registered(binary)
    fitted = tree().fit(binary.X_train, binary.y_train)
    study = optuna.create_study(direction="maximize")
    with pytest.raises(InvalidArgument, match="directions="):
        study.optimize(holdout.optuna.objective(lambda trial: fitted), n_trials=1)
    study = optuna.create_study(directions=["maximize"] * 3)
    with pytest.raises(InvalidArgument, match="'accuracy', 'roc_auc', 'neg_brier_score'"):
        study.optimize(holdout.optuna.objective(lambda trial: (fitted, 0.9)), n_trials=1)
    assert holdout.status().submissions == 0


# Certificates


def test_a_certificate_counts_what_the_other_metrics_revealed() -> None:
    together = holdout_of(["accuracy", "neg_brier_score"])
    alone = holdout_of("accuracy", name="alone")
    for one in models(30):
        together.submit(both(one))
        alone.submit(both(one)["labels"])
    ours, theirs = together.certificate()["accuracy"], alone.certificate()
    assert ours.score == theirs.score
    assert ours.log_count is not None and theirs.log_count is not None
    assert ours.log_count > theirs.log_count + 1
    assert ours.low < theirs.low < theirs.high < ours.high  # type: ignore[operator]
    # And it is what two holdouts on the same rows would have had.
    first = holdout_of("accuracy", name="apart", ladder="one")
    with pytest.warns(KnownHoldoutWarning, match="count together"):
        second = LadderHoldout(
            *rows(), scoring="neg_brier_score", mechanism=RULE, ladder="two", ledger=first.ledger
        )
    for one in models(30):
        first.submit(both(one)["labels"])
        second.submit(one)
    assert first.certificate().log_count == ours.log_count


def test_a_batch_pays_for_the_choice_of_a_model_and_a_metric() -> None:
    together, alone = holdout_of(["neg_brier_score", "roc_auc"]), holdout_of("neg_brier_score")
    finalists = list(models(9)[:4])
    together.finalists(finalists)
    alone.finalists(finalists)
    ours, theirs = together.status().certificate, alone.status().certificate
    assert ours.log_count is not None and theirs.log_count is not None
    # ln 8 places instead of ln 4, and nothing for the answers of the other metric.
    assert ours.log_count - theirs.log_count == pytest.approx(math.log(2))
    # A place is a model and a metric: no two submissions share one.
    places = [one.place for name in together.metrics for one in entries_of(together[name])]
    assert sorted(places) == list(range(1, 9))  # type: ignore[type-var]


def test_certificates_are_shown_together() -> None:
    holdout = holdout_of(confidence=0.9)
    holdout.submit(models(1)[0])
    found = holdout.certificate()
    assert "hold together with a confidence of 0.9" in str(found)
    assert found == holdout.certificate()  # nothing new is shown, and nothing is paid
    assert [found[name].low for name in holdout.metrics] == [
        holdout[name].certificate().low for name in holdout.metrics
    ]
    status = holdout.status()
    assert status["roc_auc"].certificate.low == found["roc_auc"].low
    text = str(status)
    assert text.count("certificate") == 2 and text.count("\nmetric ") == 2
    assert "<th" in status._repr_html_() and "<th" in holdout._repr_html_()


RUNS, STEPS, ROWS = 40, 25, 60


@pytest.mark.long
def test_all_certificates_of_a_climb_hold_together() -> None:
    """Labels are coins, so that the truth of every model is known: .5, .5 and its Brier score.

    If a tenth of the runs had a false certificate of any metric, which is the most that 90 %
    allows, more than 10 of 40 would have one with a probability of 1 in 600.
    """
    most = 10
    assert binom.sf(most, RUNS, 0.1) < 1 / 400
    rng, false, naive = np.random.default_rng(7), 0, 0
    grid = np.linspace(-8, 8, 4001)
    density = np.exp(-(grid**2) / 2) / np.exp(-(grid**2) / 2).sum()
    for run in range(RUNS):
        X, y = rng.normal(size=(ROWS, 8)), rng.integers(0, 2, ROWS)
        holdout = LadderHoldout(
            X, y, scoring=THREE, mechanism=SimplifiedLadder(step=1 / ROWS), confidence=0.9,
            name=f"run {run}", ledger=f"memory:{run}",
        )  # fmt: skip
        weights, submitted = np.zeros(8), {}
        for step in range(1, STEPS + 1):
            tried = weights + rng.normal(size=8)
            release = holdout.submit(both(expit(X @ tried)))
            submitted[step] = tried
            if any(one.improved for one in release.by_metric.values()):
                weights = tried
        found = holdout.certificate()
        best = submitted[found["neg_brier_score"].submission or 0]
        spread = expit(np.linalg.norm(best) * grid)
        truth = {
            "accuracy": 0.5,
            "roc_auc": 0.5,
            "neg_brier_score": -float(density @ ((spread - 0.5) ** 2 + 0.25)),
        }
        ends = {name: (found[name].low, found[name].high) for name in THREE}
        false += any(not low <= truth[name] <= high for name, (low, high) in ends.items())  # type: ignore[operator]
        released = 1 - (found["accuracy"].score or 0.0)
        alone = certify(
            released, ROWS, Transcript.alone(), confidence=0.9, rounding=1 / ROWS, binary=True
        )
        naive += not alone.low <= 0.5 <= alone.high
    assert false <= most
    # The climb does overfit: what ignores the search is false far more often.
    assert naive > 2 * most


# Leaks


def test_neither_repr_nor_pickle_nor_views_hold_a_raw_score(tmp_path: Path) -> None:
    holdout = holdout_of(ledger=tmp_path / "ledger.db", mechanism=SimplifiedLadder(step=0.2))
    releases = [holdout.submit(one) for one in models(8)]
    needles = [
        abs(metric.to_score(risk))
        for name, metric in holdout.metrics.items()
        for risk in raw(holdout[name])
    ]
    shown = " ".join(
        [
            repr(holdout),
            *map(repr, releases),
            repr(holdout.status()),
            str(holdout.status()),
            repr(holdout.history()),
            holdout._repr_html_(),
            *(one._repr_html_() for one in releases),
        ]
    )
    pickled = pickle.dumps((holdout, releases, holdout.status(), holdout.history()))
    assert len(needles) == 16
    for score in needles:
        assert repr(score) not in shown
        assert f"{score:.6g}" not in shown
        assert struct.pack(">d", score) not in pickled
    alone = pickle.dumps(holdout)
    assert len(alone) < 2000
    assert pickle.loads(alone) == holdout


def test_rows_that_travel_are_pickled_once(tmp_path: Path) -> None:
    given = {"ledger": tmp_path / "ledger.db", "vault": False}
    (X, y), three = rows(), holdout_of(["roc_auc", "neg_brier_score", "neg_log_loss"], **given)
    assert X.nbytes < len(pickle.dumps(three)) < 2 * X.nbytes + y.nbytes
    assert pickle.loads(pickle.dumps(three)).submit(models(1)[0]).improved


# The command line


def call(*words: str) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"}, catch_exceptions=False)


@needs_pandas
def test_the_commands_show_all_metrics_or_one(tmp_path: Path, default_ledger: Path) -> None:
    (X, y), one = rows(), models(1)[0]
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    pd.DataFrame({"p": one}).to_csv(tmp_path / "p.csv", index=False)
    pd.DataFrame({"label": (one > 0.5).astype(int)}).to_csv(tmp_path / "labels.csv", index=False)
    scoring = [word for name in THREE for word in ("--scoring", name)]
    made = call(
        "register", str(tmp_path / "rows.csv"), "--target", "y", "--name", "churn", *scoring,
        "--mechanism", "SimplifiedLadder(step=0.01)",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    refused = call("submit", "churn", str(tmp_path / "p.csv"))
    assert refused.exit_code == 1 and "--labels" in refused.stderr
    done = call(
        "submit", "churn", str(tmp_path / "p.csv"), "--labels", str(tmp_path / "labels.csv")
    )
    assert done.exit_code == 0, done.output
    assert all(name in done.stdout for name in THREE)
    holdout = LadderHoldout.open("churn")
    assert holdout.status().submissions == 1
    assert all(name in call("status", "churn").stdout for name in THREE)
    single = call("status", "churn", "--scoring", "roc_auc").stdout
    assert "roc_auc" in single and "released score" in single
    assert single.count("metric") == 1
    listed = call("history", "churn").stdout
    assert listed.count("1 submissions in all") == 3
    assert "together" not in listed
    assert call("history", "churn", "--scoring", "accuracy").stdout.count("in all") == 1
    told = json.loads(call("history", "churn", "--json").stdout)
    assert list(told) == list(THREE) and {one["total"] for one in told.values()} == {1}
    assert "hold together" in call("certificate", "churn").stdout
    assert "hold together" not in call("certificate", "churn", "--scoring", "roc_auc").stdout
    assert '"by_metric"' in call("certificate", "churn", "--json").stdout
    assert "--ladder main:accuracy" in call("audit", "churn", "--yes").stderr
    assert call("audit", "churn", "--ladder", "main:accuracy", "--yes").exit_code == 0
    submitted = call("submit", "churn", str(tmp_path / "labels.csv"), "--scoring", "accuracy")
    assert submitted.exit_code == 0, submitted.output
    assert [holdout.status()[name].submissions for name in THREE] == [2, 1, 1]


def test_the_estimator_of_a_pipeline_is_asked_as_of_one_metric(binary: Binary) -> None:
    holdout = registered(binary, scoring=["roc_auc", "neg_log_loss"], mechanism=None)
    model = LogisticRegression(max_iter=5000).fit(binary.X_train, binary.y_train)
    release = holdout.submit(model)
    # Its own decision function ranks, as of a holdout of roc_auc alone.
    alone = LadderHoldout(
        binary.X_holdout, binary.y_holdout, scoring="roc_auc", ledger="memory:alone",
        mechanism=holdout["roc_auc"].rules.mechanism,
    )  # fmt: skip
    assert release["roc_auc"].score == alone.submit(model).score
    assert holdout.history()[0].context["estimator"] == "LogisticRegression"


def test_a_history_shows_each_metric_in_its_table() -> None:
    X, y = [[0], [1], [2], [3]], [0, 1, 0, 1]
    holdout = LadderHoldout(X, y, ledger="memory", scoring=["roc_auc", "neg_brier_score"])
    for predictions in ([0.1, 0.9, 0.6, 0.5], [0.1, 0.2, 0.3, 0.4]):
        holdout.submit(predictions)
    heads, *lines = str(holdout.history()).splitlines()
    assert heads.split()[2:5] == ["(UTC)", "metric", "own"]
    shown = [
        (word, line) for line in lines for word in ("roc_auc", "neg_brier_score") if word in line
    ]
    assert [word for word, _ in shown] == ["roc_auc", "neg_brier_score"] * 2
    assert "0.74" in shown[0][1] and "-0.158" in shown[1][1]
    assert holdout.history()._repr_html_().count("<tr>") == 5
    assert "metric" not in str(holdout["roc_auc"].history())
