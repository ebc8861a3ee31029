"""Slips that used to pass in silence: each is refused or warned of, without a label in the text."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV, cross_validate
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.errors import (
    InvalidArgument,
    InvalidSubmission,
    PredictionWarning,
    TargetWarning,
)
from tests.support.holdouts import is_repeat

N = 60
rng = np.random.default_rng(11)
X = rng.normal(size=(N, 2))
y = (X[:, 0] > 0).astype(int)
names = np.array(["malign", "benign"])[y]
order = rng.permutation(N)


@pytest.fixture(autouse=True)
def _loud() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def opened(X: Any = X, y: Any = y, **given: Any) -> LadderHoldout:
    return LadderHoldout(X, y, **{"scoring": "accuracy", "ledger": "memory", **given})


# -- an index in another order -----------------------------------------------------------

FRAME = pd.DataFrame(X, index=1000 + order)
TRUE = pd.Series(y, index=FRAME.index)
OTHERS = {
    "the same rows in another order": TRUE.sort_index(),
    "other rows": pd.Series(y, index=np.arange(N) + 7),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_series_in_another_order_is_refused(kind: str) -> None:
    other = OTHERS[kind]
    holdout = opened(FRAME, TRUE)
    if kind == "other rows":
        with pytest.raises(InvalidSubmission, match=r"predictions\.loc\[X\.index\]"):
            holdout.submit(other)
        assert holdout.status().submissions == 0
    else:  # predictions alone are brought to the order of the rows: tests/facade/test_row_order.py
        assert holdout.submit(other).score == 1.0
    with pytest.raises(InvalidArgument, match=r"^y must be in the order"):
        opened(FRAME, other)
    with pytest.raises(InvalidArgument, match=r"^sample_weight must be in the order"):
        opened(FRAME, TRUE, sample_weight=other + 1.0)
    assert holdout.submit(other.to_numpy()).score is not None


def test_a_series_without_an_index_of_its_own_is_taken_by_position() -> None:
    holdout = opened(FRAME, pd.Series(y))
    assert holdout.submit(TRUE).score == 1.0
    assert is_repeat(holdout, holdout.submit(pd.Series(y)))
    assert is_repeat(holdout, holdout.submit(list(y)))
    reset = opened(FRAME.reset_index(drop=True), TRUE)
    assert reset.submit(TRUE).score == 1.0
    shuffled = FRAME.set_axis(order)  # 0 to n - 1, shuffled: nobody can know what is meant
    with pytest.raises(InvalidArgument, match="in another order"):
        opened(shuffled, pd.Series(y))


def test_an_index_of_several_types_is_compared_all_the_same() -> None:
    mixed = pd.Index([*range(N - 1), "last"], dtype=object)
    assert opened(FRAME.set_axis(mixed), TRUE.set_axis(mixed)).submit(y).score == 1.0
    with pytest.raises(InvalidArgument, match="by other rows"):
        opened(FRAME.set_axis(mixed), TRUE)


# -- targets -----------------------------------------------------------------------------


def test_measured_targets_with_accuracy_are_said() -> None:
    prices = np.round(1000 * rng.random(N))
    with pytest.warns(TargetWarning, match="regression metric"):
        opened(y=prices)
    opened(y=np.arange(N) % 12)  # twelve classes are some


def test_one_class_is_said() -> None:
    with pytest.warns(TargetWarning, match="the same class") as caught:
        opened(y=np.full(N, "malign"))
    assert "malign" not in str(caught[0].message) and caught[0].filename == __file__
    with pytest.warns(TargetWarning, match="the same class"):
        opened(y=np.zeros(N), classes=[0, 1])


def test_text_labels_without_a_stated_positive_class_are_said() -> None:
    for scoring in ("f1", "precision", "recall", "jaccard", "average_precision"):
        with pytest.warns(TargetWarning, match="order of the alphabet") as caught:
            opened(y=names, scoring=scoring)
        assert not any(name in str(caught[0].message) for name in names), scoring
    opened(y=names, scoring=scoring, classes=["benign", "malign"])
    opened(y=names == "benign", scoring=scoring)
    opened(y=names, scoring="f1_macro")
    with pytest.raises(InvalidArgument, match="in another order") as refused:
        opened(y=names, scoring=scoring, classes=["malign", "benign"])
    assert "benign" not in str(refused.value)


def test_a_ladder_that_goes_on_says_nothing_again(tmp_path: Path) -> None:
    with pytest.warns(TargetWarning):
        opened(y=names, scoring="f1", ledger=tmp_path / "l.db")
    opened(y=names, scoring="f1", ledger=tmp_path / "l.db")


# -- predictions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scoring", "labels"),
    [("roc_auc", [0, 1]), ("average_precision", [-1.0, 1.0]), ("roc_auc", [False, True])],
)
def test_hard_labels_for_a_metric_of_ranks_are_said(scoring: str, labels: list[Any]) -> None:
    holdout = opened(scoring=scoring)
    with pytest.warns(PredictionWarning, match="two values only") as caught:
        holdout.submit(np.array(labels)[y])
    assert caught[0].filename == __file__


def test_scores_for_a_metric_of_ranks_are_taken_in_silence() -> None:
    holdout = opened(scoring="roc_auc")
    holdout.submit(np.where(y, 0.8, 0.3))  # a stump's
    holdout.submit(np.zeros(N))
    holdout.submit(DecisionTreeClassifier().fit(X, y))  # its probabilities are 0 and 1
    opened().submit(y)


def test_submit_takes_models_and_predictions_and_says_what_is_neither() -> None:
    for scoring in ("accuracy", "roc_auc", "neg_log_loss"):
        holdout, model = opened(scoring=scoring), LogisticRegression().fit(X, y)
        predictions = model.predict(X) if scoring == "accuracy" else model.predict_proba(X)[:, 1]
        assert holdout.submit(model).score == holdout.submit(predictions).score
        for wrong, says in (
            (LogisticRegression, "the class LogisticRegression itself.* Fit one of it"),
            (StandardScaler().fit(X), r"an estimator with .*holdout\.submit\(predictions\)"),
            ([model] * len(X), "an array of"),
            (None, "an array of"),
        ):
            with pytest.raises(InvalidSubmission, match=says):
                holdout.submit(wrong)
        with pytest.raises(NotFittedError):
            holdout.submit(LogisticRegression())
        with pytest.raises(InvalidArgument, match="ids must be left out with an estimator"):
            holdout.submit(model, ids=range(len(X)))
        assert holdout.status().submissions == 2


def test_a_model_of_numbers_for_labels_of_text_is_told_what_helps() -> None:
    holdout, model = opened(y=names), LogisticRegression().fit(X, 1 - y)
    with pytest.raises(InvalidSubmission) as refused:
        holdout.submit(model)
    said = str(refused.value)
    assert "classes=" not in said and "which are text, but is from one fitted on numbers" in said
    assert not any(name in said for name in names)
    sorted_names = np.unique(names)
    assert holdout.submit(sorted_names[model.predict(X)]).score > 0.9  # as it advises
    with pytest.raises(InvalidSubmission, match="which are numbers, but is from one fitted on tex"):
        opened().submit(LogisticRegression().fit(X, names))


# -- searches ----------------------------------------------------------------------------


def test_select_is_not_to_be_called() -> None:
    holdout = opened()
    with pytest.raises(InvalidArgument, match=r"refit=holdout\.select, without calling it"):
        GridSearchCV(LogisticRegression(), {}, scoring=holdout, refit=holdout.select())


@pytest.mark.processes
@pytest.mark.parametrize("stated", [True, False])
def test_a_memory_ledger_is_refused_where_other_processes_would_score(stated: bool) -> None:
    holdout = opened()
    given: dict[str, Any] = {"scoring": holdout, "cv": holdout.split()}
    search = GridSearchCV(
        DecisionTreeClassifier(), {"max_depth": [1, 2]}, n_jobs=2 if stated else None, **given
    )
    with parallel_config("loky", n_jobs=2):
        with pytest.raises(InvalidArgument, match=r"^n_jobs must be 1") as refused:
            search.fit(X, y)
        with pytest.raises(InvalidArgument, match=r"^n_jobs"):
            cross_validate(DecisionTreeClassifier(), X, y, n_jobs=2, **given)
    assert "ledger= a path" in str(refused.value)
    assert holdout.status().submissions == 0
    with parallel_config("threading", n_jobs=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training rows are the holdout's
        other = opened(X + 1)
        search.set_params(scoring=other, cv=other.split()).fit(X, y)


def test_a_new_ladder_without_scoring_is_told_what_is_missing() -> None:
    with pytest.raises(InvalidArgument, match="scoring must be stated for a new ladder"):
        LadderHoldout(X, y, ledger="memory")


FIELDS = np.array(list(zip(y == 1, X[:, 1], strict=True)), dtype=[("event", bool), ("time", float)])


@pytest.mark.parametrize("targets", [FIELDS, np.c_[y, X[:, 1]]], ids=["fields", "columns"])
def test_events_with_times_are_told_of_a_signed_time(targets: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"np\.where\(event, time, -time\).*Metric"):
        LadderHoldout(X, targets, scoring="accuracy", ledger="memory")


def test_an_answer_stands_for_its_submission_in_a_comparison() -> None:
    holdout = opened()
    released = holdout.submit(y)
    found = holdout.compare(released, 1 - y)
    assert (found.first, found.second, found.better) == (1, None, "first")
    assert found == holdout.compare(1, 1 - y)


def test_several_metrics_are_no_scorer_of_one_and_say_so() -> None:
    holdout = LadderHoldout(X, y, scoring=["roc_auc", "f1"], ledger="memory")
    assert not hasattr(holdout, "_score_func") and hasattr(holdout["f1"], "_score_func")
    tuned = TunedThresholdClassifierCV(LogisticRegression(), scoring=holdout, cv=3)
    with pytest.raises(AttributeError, match=r"Name one metric: holdout\['f1'\]"):
        tuned.fit(X + 1, y)


def test_an_ending_that_all_metrics_share_makes_none_of_them_alike() -> None:
    with pytest.raises(InvalidArgument, match="METRICS lists them") as refused:
        LadderHoldout(X, y, scoring="v_measure_score", ledger="memory")
    assert "Did you mean" not in str(refused.value)
    with pytest.raises(InvalidArgument, match="Did you mean 'accuracy'"):
        LadderHoldout(X, y, scoring="acuracy_score", ledger="memory")


def test_a_column_that_named_the_groups_is_to_be_left_out_of_the_training_rows() -> None:
    table = pd.DataFrame(X, columns=["a", "b"]).assign(patient=np.arange(N) // 3)
    holdout = LadderHoldout(table, y, scoring="accuracy", groups="patient", ledger="memory")
    train = table + 1.5
    with pytest.raises(InvalidArgument, match=r"X\.drop\(columns=\['patient'\]\).*groups="):
        holdout.guard(GridSearchCV(LogisticRegression(), {"C": [1.0]})).fit(train, y)
