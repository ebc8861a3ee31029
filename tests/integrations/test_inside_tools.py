"""Attacks guarded searches inside other tools: what they ask must be about the rows they saw.

A search that is a part of something else may get other columns, rows or labels than the
holdout has. Then it asks about a model that the holdout's own rows are no input of. Each
test here either finds the answer of the whole model, or a refusal and an untouched ledger.
"""

from __future__ import annotations

import heapq
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import optuna
import pandas as pd
import pytest
from joblib import Parallel, delayed, parallel_config
from optuna_integration import OptunaSearchCV
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFECV, SelectKBest, SequentialFeatureSelector
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge, RidgeCV
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from skopt import BayesSearchCV

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from ladderholdout.integrations.stopping import LadderStopping
from tests.support.holdouts import repeats
from tests.support.ledgers import counts, entries_of

# Workers of loky cannot import this file: what it defines travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LEVELS = {"C": [1e-3, 0.1, 10.0]}
WORKERS = [("threading", 1), ("threading", 2), ("loky", 2)]
Open = Callable[..., LadderHoldout]


@pytest.fixture
def holdout(binary: Any, opened: Open) -> LadderHoldout:
    """A guard that tells the truth, to compare with."""
    return opened(binary.X_holdout, binary.y_holdout)


@pytest.fixture
def untouched(tmp_path: Path) -> Callable[[], bool]:
    """Tell whether the ledger has nothing in it but what was registered."""

    def look() -> bool:
        found = counts(tmp_path / "ledger.db")
        return found["submissions"] == found["overlaps"] == 0

    return look


def logistic(**settings: Any) -> LogisticRegression:
    return LogisticRegression(max_iter=2000, **settings)


def guarded(holdout: LadderHoldout, model: Any = None, values: Any = None, **settings: Any) -> Any:
    settings = {"cv": holdout.split(), "refit": holdout.select, **settings}
    return GridSearchCV(model or logistic(), values or LEVELS, scoring=holdout, **settings)


def truths(binary: Any, *steps: Any) -> list[float]:
    """Score the whole pipeline with each candidate on the holdout."""
    whole = [make_pipeline(*map(clone, steps), logistic(C=C)) for C in LEVELS["C"]]
    fitted = [one.fit(binary.X_train, binary.y_train) for one in whole]
    return [one.score(binary.X_holdout, binary.y_holdout) for one in fitted]


# -- as a step of a pipeline -----------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), WORKERS)
def test_a_search_that_is_a_step_is_answered_for_the_whole_pipeline(
    holdout: LadderHoldout, binary: Any, backend: str, jobs: int
) -> None:
    search = guarded(holdout, n_jobs=jobs)
    with parallel_config(backend):
        whole = make_pipeline(StandardScaler(), search).fit(binary.X_train, binary.y_train)
    expected = truths(binary, StandardScaler())
    assert len(set(expected)) > 1 and min(expected) > 0.8
    assert whole[-1].cv_results_["mean_test_score"] == pytest.approx(expected, abs=1e-12)
    history = holdout.history()
    assert [one.context["after"] for one in history] == [["StandardScaler"]] * 3
    assert len({one.batch for one in history} - {None}) == 1
    # The very predictions of the whole are the incumbent's.
    again = holdout.submit(whole)
    assert entries_of(holdout)[again.submission - 1].repeat_of == holdout.status().incumbent


def test_pipelines_within_pipelines_and_frames_with_names(opened: Open, binary: Any) -> None:
    names = [f"x{at}" for at in range(30)]
    X, held = (pd.DataFrame(one, columns=names) for one in (binary.X_train, binary.X_holdout))
    holdout = opened(held, binary.y_holdout)
    columns = ColumnTransformer([("half", MinMaxScaler(), names[:15])]).set_output(
        transform="pandas"
    )
    inner = make_pipeline(SelectKBest(k=7), StandardScaler(), guarded(holdout))
    whole = make_pipeline(columns, "passthrough", inner).fit(X, binary.y_train)
    told = whole[-1][-1].cv_results_["mean_test_score"]
    for C, score in zip(LEVELS["C"], told, strict=True):
        plain = clone(whole)
        plain.steps[-1][1].steps[-1] = ("model", logistic(C=C))
        plain.fit(X, binary.y_train)
        assert score == pytest.approx(plain.score(held, binary.y_holdout), abs=1e-12)
    assert [one.context["after"] for one in holdout.history()] == [
        ["ColumnTransformer", "str", "SelectKBest", "StandardScaler"]
    ] * 3


def test_ridge_in_a_pipeline_and_logistic_regression_with_folds_of_its_own(
    opened: Open, binary: Any
) -> None:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    ridges = opened(X[:150], y[:150], "r2")
    alphas = [0.1, 10.0, 1000.0]
    ridge = RidgeCV(alphas=alphas, scoring=ridges, cv=ridges.split())
    whole = make_pipeline(StandardScaler(), ridge).fit(X[150:], y[150:])
    plain = [make_pipeline(StandardScaler(), Ridge(a)).fit(X[150:], y[150:]) for a in alphas]
    best = max(plain, key=lambda one: one.score(X[:150], y[:150]))
    assert whole[-1].alpha_ == best[-1].alpha
    assert ridges.status().score == pytest.approx(best.score(X[:150], y[:150]))
    assert best.score(X[:150], y[:150]) > 0.4  # without the scaling: -73,687
    assert ridges.status().submissions == 3

    holdout = opened(binary.X_holdout, binary.y_holdout)
    model = LogisticRegressionCV(
        Cs=LEVELS["C"],
        scoring=holdout,
        cv=holdout.split(),
        l1_ratios=(0,),
        use_legacy_attributes=False,
        max_iter=2000,
        n_jobs=2,
    )
    with parallel_config("threading"):
        whole = make_pipeline(StandardScaler(), model).fit(binary.X_train, binary.y_train)
    assert whole[-1].scores_.ravel() == pytest.approx(truths(binary, StandardScaler()), abs=0.01)


def test_a_pipeline_inside_the_search_is_asked_as_ever(holdout: LadderHoldout, binary: Any) -> None:
    model = make_pipeline(StandardScaler(), logistic())
    search = guarded(holdout, model, {"logisticregression__C": LEVELS["C"]})
    search.fit(binary.X_train, binary.y_train)
    expected = truths(binary, StandardScaler())
    assert search.cv_results_["mean_test_score"] == pytest.approx(expected, abs=1e-12)
    assert all("after" not in one.context for one in holdout.history())


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_pipeline_with_a_search_may_be_a_candidate_itself(
    holdout: LadderHoldout, binary: Any, jobs: int
) -> None:
    step = make_pipeline(StandardScaler(), guarded(holdout))
    values = {"standardscaler__with_mean": [True, False]}
    outer = guarded(holdout, step, values, n_jobs=jobs, refit=False)
    with parallel_config("threading"):
        make_pipeline(MinMaxScaler(), outer).fit(binary.X_train, binary.y_train)
    inner = [one for one in holdout.history() if one.context["estimator"] == "LogisticRegression"]
    assert len(inner) == 6
    for one in inner:
        assert one.context["after"] == ["MinMaxScaler", "StandardScaler"]
    expected = truths(binary, MinMaxScaler(), StandardScaler())
    assert {round(one.score, 9) for one in inner if one.score} <= {
        round(score, 9)
        for score in (*expected, *truths(binary, MinMaxScaler(), StandardScaler(with_mean=False)))
    }


def test_folds_listed_before_are_answered_where_what_is_around_can_be_seen(
    holdout: LadderHoldout, binary: Any, untouched: Any
) -> None:
    listed = list(holdout.split().split(binary.X_train, binary.y_train))
    for folds in (listed, [(np.arange(284), np.empty(0, dtype=np.intp))]):
        search = guarded(holdout, cv=folds, n_jobs=2)
        with parallel_config("threading"), pytest.raises(SearchStopped, match="n_jobs must be 1"):
            make_pipeline(StandardScaler(), search).fit(binary.X_train, binary.y_train)
        assert untouched()
    for folds in (listed, [(np.arange(284), np.empty(0, dtype=np.intp))]):
        whole = make_pipeline(StandardScaler(), guarded(holdout, cv=folds, refit=False))
        whole.fit(binary.X_train, binary.y_train)
        found = whole[-1].cv_results_["mean_test_score"]
        assert found == pytest.approx(truths(binary, StandardScaler()), abs=1e-12)


# The same candidates come again, and refit=True says that none of them improved.
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.NoImprovementWarning")
def test_a_search_in_a_worker_of_another_search_inside_a_pipeline_is_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any
) -> None:
    search = guarded(holdout, refit=True)
    plain = GridSearchCV(search, {"estimator__tol": [1e-4, 1e-3]}, cv=2, n_jobs=2)
    with parallel_config("threading"), pytest.raises(SearchStopped, match="n_jobs must be 1"):
        make_pipeline(StandardScaler(), plain).fit(binary.X_train, binary.y_train)
    assert untouched()
    plain.set_params(n_jobs=1)
    whole = make_pipeline(StandardScaler(), plain).fit(binary.X_train, binary.y_train)
    assert {tuple(one.context["after"]) for one in holdout.history()} == {("StandardScaler",)}
    assert whole.score(binary.X_holdout, binary.y_holdout) > 0.9


# -- inside what changes rows or labels in its own way -----------------------------------------


class Scaling(ClassifierMixin, BaseEstimator):
    """A person's own estimator around a search, which changes the rows in its fit."""

    def __init__(self, search: Any, rebind: bool = False) -> None:
        self.search = search
        self.rebind = rebind

    def fit(self, X: Any, y: Any) -> Scaling:
        self.scaler_ = StandardScaler().fit(X)
        self.search_ = clone(self.search).fit(self.scaler_.transform(X), y)
        return self


class Rebinding(Scaling):
    def fit(self, X: Any, y: Any) -> Rebinding:
        X = StandardScaler().fit_transform(X)
        self.search_ = clone(self.search).fit(X, y)
        return self


class Relabelling(Scaling):
    def fit(self, X: Any, y: Any) -> Relabelling:
        self.search_ = clone(self.search).fit(X, 1 - y)
        return self


class OwnPipeline(Pipeline):
    """A pipeline that samples, as imbalanced-learn's do."""

    def fit(self, X: Any, y: Any = None, **params: Any) -> OwnPipeline:
        kept = StandardScaler().fit_transform(X)
        self.steps[-1][1].fit(kept[::2], y[::2])
        return self


class HandingOn(Scaling):
    """A person's own estimator whose search gets what it got: nobody sees that it does."""

    def fit(self, X: Any, y: Any) -> HandingOn:
        self.search_ = clone(self.search).fit(X[::2], y[::2])
        return self


def around(search: Any) -> dict[str, Any]:
    """Return what may be around a search for two classes."""
    lda = clone(search).set_params(
        estimator=LinearDiscriminantAnalysis(), param_grid={"tol": [1e-4, 1e-2]}
    )
    subsets = {"n_estimators": 2, "max_features": 0.5, "random_state": 0}
    stump = DecisionTreeClassifier(max_depth=1)
    return {
        "OneVsRest": OneVsRestClassifier(search),
        "OneVsOne": OneVsOneClassifier(search),
        "Bagging": BaggingClassifier(search, **subsets),
        "Bagging in workers": BaggingClassifier(search, n_jobs=2, **subsets),
        "Bagging of rows": BaggingClassifier(search, n_estimators=2, random_state=0),
        "ClassifierChain": ClassifierChain(search),
        "Stacking": StackingClassifier([("stump", stump)], final_estimator=search),
        "Voting": VotingClassifier([("search", search), ("stump", stump)]),
        "Voting in workers": VotingClassifier([("search", search), ("stump", stump)], n_jobs=2),
        "Calibrated": CalibratedClassifierCV(search, cv=3),
        "ColumnTransformer": make_pipeline(
            ColumnTransformer([("some", lda, [0, 1, 2])]), clone(stump)
        ),
        "FeatureUnion": make_pipeline(FeatureUnion([("some", lda)]), clone(stump)),
        "FeatureUnion in workers": make_pipeline(
            FeatureUnion([("some", lda), ("all", FunctionTransformer())], n_jobs=2), clone(stump)
        ),
        "an earlier step": make_pipeline(StandardScaler(), lda, clone(stump)),
        "one's own": Scaling(search),
        "one's own that hands on": HandingOn(search),
        "one's own, rebinding": Rebinding(search),
        "one's own, other labels": Relabelling(search),
        "one's own pipeline": OwnPipeline([("scale", StandardScaler()), ("search", search)]),
        "in a pipeline": make_pipeline(StandardScaler(), OneVsRestClassifier(search)),
    }


def test_what_changes_rows_or_labels_around_a_search_is_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any
) -> None:
    fitted = []
    for kind, whole in around(guarded(holdout)).items():
        y = np.column_stack([binary.y_train] * 2) if kind == "ClassifierChain" else binary.y_train
        try:
            with parallel_config("threading"):
                whole.fit(binary.X_train, y)
        except SearchStopped as refused:
            if "submit(whole" in str(refused) and untouched():
                continue
        fitted.append(kind)
    assert fitted == []


@pytest.mark.processes
def test_also_in_workers_of_loky(holdout: LadderHoldout, binary: Any, untouched: Any) -> None:
    bag = BaggingClassifier(guarded(holdout), n_estimators=2, max_features=0.5, n_jobs=2)
    with parallel_config("loky"), pytest.raises(SearchStopped, match=r"submit\(whole_model"):
        bag.fit(binary.X_train, binary.y_train)
    assert untouched()


def test_also_in_regression(opened: Open, untouched: Any) -> None:
    X, y = load_diabetes(return_X_y=True)
    holdout = opened(X[:150], y[:150], "r2")
    search = guarded(holdout, Ridge(), {"alpha": [0.1, 1.0]})
    ridge = RidgeCV(scoring=holdout, cv=holdout.split())
    for whole in (
        TransformedTargetRegressor(search, func=np.log, inverse_func=np.exp),
        TransformedTargetRegressor(ridge, func=np.log, inverse_func=np.exp),
        AdaBoostRegressor(ridge, n_estimators=2),
    ):
        with pytest.raises(SearchStopped, match=rf"inside {type(whole).__name__}"):
            whole.fit(X[150:], y[150:])
    assert untouched()


def test_three_classes_split_in_two_are_refused(opened: Open, untouched: Any) -> None:
    # Before, the search was answered about models of "this class or another" (1/3 and less).
    X, y = load_iris(return_X_y=True)
    holdout = opened(X[::2], y[::2], overlap="ignore")
    for whole in (OneVsRestClassifier(guarded(holdout)), OneVsOneClassifier(guarded(holdout))):
        with pytest.raises(SearchStopped, match="may have changed rows or labels"):
            whole.fit(X[1::2], y[1::2])
    assert untouched()
    # The remedy of the message: that estimator inside the search.
    search = guarded(holdout, OneVsRestClassifier(logistic()), {"estimator__C": LEVELS["C"]})
    assert search.fit(X[1::2], y[1::2]).score(X[1::2], y[1::2]) > 0.9


@pytest.mark.parametrize("tool", [RFECV, SequentialFeatureSelector])
def test_tools_that_score_on_some_columns_are_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any, tool: Any
) -> None:
    selector = tool(DecisionTreeClassifier(max_depth=1), scoring=holdout, cv=holdout.split())
    with pytest.raises(SearchStopped, match=f"inside {tool.__name__}"):
        selector.fit(binary.X_train[:, :4], binary.y_train)
    assert untouched()


def test_a_search_around_the_search_does_not_take_the_refusal_for_a_failed_fit(
    holdout: LadderHoldout, binary: Any, untouched: Any
) -> None:
    bag = BaggingClassifier(guarded(holdout), max_features=0.5)
    outer = GridSearchCV(bag, {"n_estimators": [1, 2]}, cv=2, error_score=np.nan)
    with pytest.raises(SearchStopped, match="BaggingClassifier"):
        outer.fit(binary.X_train, binary.y_train)
    assert untouched()


# The same candidates come again, and refit=True says that none of them improved.
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.NoImprovementWarning")
def test_what_hands_on_rows_and_labels_is_answered(holdout: LadderHoldout, binary: Any) -> None:
    X, y = binary.X_train, binary.y_train
    tree = DecisionTreeClassifier(random_state=0)
    settings = {"values": {"max_depth": [1, 2]}, "model": tree, "refit": True}
    half = guarded(holdout, **settings).fit(X[::2], y[::2]).cv_results_["mean_test_score"]
    assert holdout.status().submissions == 2

    def of_ones_own(X: Any, y: Any) -> Any:
        return guarded(holdout, **settings).fit(X, y).cv_results_["mean_test_score"]

    found = Parallel(n_jobs=2, backend="threading")(
        delayed(of_ones_own)(X[::2], y[::2]) for _ in range(2)
    )
    assert found[0] == pytest.approx(half) == found[1]
    cross_val_score(guarded(holdout, **settings), X, y, cv=2)
    assert holdout.status().submissions == 2 + 4 + 4


# -- early stopping ----------------------------------------------------------------------------


class Asks(LogisticRegression):
    """A model that asks about itself at the end of its fit, as early stopping does."""

    def __init__(self, stopping: Any = None, tol: float = 1e-4) -> None:
        super().__init__(max_iter=2000, tol=tol)
        self.stopping = stopping

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Asks:
        super().fit(X, y, sample_weight)
        self.stopping.start().evaluate(self)
        return self


def test_early_stopping_is_refused_where_rows_or_labels_may_be_others(
    opened: Open, binary: Any, untouched: Any
) -> None:
    X, y = load_iris(return_X_y=True)
    holdout = opened(X[::2], y[::2], overlap="ignore")
    model = Asks(LadderStopping(holdout))
    for whole in (
        OneVsRestClassifier(model),
        BaggingClassifier(model, max_features=0.5),
        StackingClassifier([("a", DecisionTreeClassifier())], final_estimator=model),
    ):
        with pytest.raises((InvalidArgument, SearchStopped), match=type(whole).__name__):
            whole.fit(X[1::2], y[1::2])
    assert untouched()
    GridSearchCV(model, {"stopping": [model.stopping]}, cv=2, refit=False).fit(X[1::2], y[1::2])
    assert holdout.status().submissions == 2


SEARCHES: dict[str, Callable[[Any], Any]] = {
    "halving": lambda model: HalvingGridSearchCV(model, {"tol": [1e-4, 1e-3]}, cv=2, refit=False),
    "bayes": lambda model: BayesSearchCV(model, {"tol": (1e-4, 1e-3)}, n_iter=2, cv=2, refit=False),
    "workers": lambda model: GridSearchCV(model, {"tol": [1e-4]}, cv=2, refit=False, n_jobs=2),
}


@pytest.mark.parametrize("kind", SEARCHES)
def test_early_stopping_is_answered_inside_whatever_derives_from_scikit_learns_searches(
    opened: Open, kind: str
) -> None:
    X, y = load_iris(return_X_y=True)
    holdout = opened(X[::2], y[::2], overlap="ignore")
    with parallel_config("threading"):
        SEARCHES[kind](Asks(LadderStopping(holdout))).fit(X[1::2], y[1::2])
    assert holdout.status().submissions >= 2


@pytest.mark.parametrize("kind", ["bagging", "voting"])
def test_early_stopping_is_refused_in_workers_of_what_may_change_rows(
    opened: Open, untouched: Any, kind: str
) -> None:
    """There the function that the worker runs is all that shows what began it."""
    X, y = load_iris(return_X_y=True)
    model = Asks(LadderStopping(opened(X[::2], y[::2], overlap="ignore")))
    whole = {
        "bagging": BaggingClassifier(model, n_estimators=2, n_jobs=2),
        "voting": VotingClassifier([("a", model), ("b", logistic())], n_jobs=2),
    }[kind]
    with (
        parallel_config("threading"),
        pytest.raises(InvalidArgument, match="may have changed rows or labels"),
    ):
        whole.fit(X[1::2], y[1::2])
    assert untouched()


# -- permutations ------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_permutation_test_is_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any, jobs: int
) -> None:
    model, train = DecisionTreeClassifier(max_depth=2), (binary.X_train, binary.y_train)
    for cv in (holdout.split(), holdout.split(inner=2)):
        with parallel_config("threading"), pytest.raises(SearchStopped, match="p-value"):
            permutation_test_score(
                model, *train, scoring=holdout, cv=cv, n_permutations=5, n_jobs=jobs
            )
    rows = np.vstack([binary.X_train, binary.X_holdout])
    labels = np.concatenate([binary.y_train, binary.y_holdout])
    own = [(np.arange(284), np.arange(284, 426))]  # the holdout's rows themselves
    with pytest.raises(SearchStopped, match="p-value"):
        permutation_test_score(model, rows, labels, scoring=holdout, cv=own, n_permutations=5)
    assert untouched()
    # The way that the message names.
    plain = holdout.split(inner=3, guarded=False)
    _, _, p = permutation_test_score(
        model, *train, scoring=holdout, cv=plain, n_permutations=19, random_state=0
    )
    assert p == pytest.approx(1 / 20)
    assert untouched() or holdout.status().submissions == 0


# Whatever the backend, scikit-learn starts processes for two jobs.
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_permutation_importance_of_the_holdouts_rows_is_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any, jobs: int
) -> None:
    holdout.split()  # so that nobody is reminded of it
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(binary.X_train, binary.y_train)
    settings = {"n_repeats": 2, "random_state": 0, "n_jobs": jobs}
    with parallel_config("threading"), pytest.raises(SearchStopped, match="training side"):
        permutation_importance(
            model, binary.X_holdout, binary.y_holdout, scoring=holdout, **settings
        )
    assert untouched()
    ours, plain = (
        permutation_importance(model, binary.X_test, binary.y_test, scoring=one, **settings)
        for one in (holdout, "accuracy")
    )
    assert ours["importances"] == pytest.approx(plain["importances"])
    assert untouched()


# -- other labels than the holdout's -----------------------------------------------------------


def test_the_holdouts_rows_with_other_labels_are_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any
) -> None:
    X, y = binary.X_holdout, binary.y_holdout
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(binary.X_train, binary.y_train)
    flipped = y.copy()
    flipped[0] = 1 - flipped[0]
    order = np.random.default_rng(0).permutation(len(X))
    for rows, labels in [(X, flipped), (X, 1 - y), (X[order], y), (X, np.zeros(142)), (X, y[:-1])]:
        with pytest.raises(SearchStopped, match="y must be") as said:
            holdout(model, rows, labels)
        assert "142 entries" in str(said.value) or "registered labels alone" in str(said.value)
    assert untouched()
    same = [y, y.tolist(), y.astype(float), y.astype(bool), pd.Series(y), pd.Series(y == 1), None]
    for labels in same:
        holdout(model, X, labels)
    holdout(model, X[order], y[order])
    assert holdout.status().submissions == len(same) + 1
    assert repeats(holdout) == len(same)


def test_also_with_names_weights_and_targets(opened: Open, binary: Any) -> None:
    names = np.where(binary.y_holdout == 1, "benign", "malignant")
    weights = np.random.default_rng(0).uniform(1, 2, 142)
    texts = opened(binary.X_holdout, names, sample_weight=weights, name="texts", ladder="texts")
    model = DecisionTreeClassifier(max_depth=2, random_state=0)
    model.fit(binary.X_train, np.where(binary.y_train == 1, "benign", "malignant"))
    for labels in (names, names.astype(object), pd.Series(names), pd.Categorical(names)):
        texts(model, binary.X_holdout, labels, weights)
    with pytest.raises(SearchStopped, match="others") as said:
        texts(model, binary.X_holdout, names[::-1])
    assert "benign" not in str(said.value) and "malignant" not in str(said.value)
    assert texts.status().submissions == 4


# -- a search that would not ask ----------------------------------------------------------------


def plain_function(estimator: Any, X: Any, y: Any) -> float:
    return 0.5


FORGOTTEN = {
    "none": None,
    "a name": "accuracy",
    "a scorer": make_scorer(accuracy_score),
    "names": ["accuracy", "roc_auc"],
    "a dictionary": {"a": "accuracy", "b": make_scorer(accuracy_score)},
}


@pytest.mark.parametrize("scoring", FORGOTTEN.values(), ids=FORGOTTEN.keys())
def test_a_search_without_the_holdout_as_its_scorer_is_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any, scoring: Any
) -> None:
    train, cv = (binary.X_train, binary.y_train), holdout.split()
    tree, depths = DecisionTreeClassifier(), {"max_depth": [1, 2]}
    several = isinstance(scoring, list | dict)
    one = {"param_name": "max_depth", "param_range": [1, 2]}
    tools: list[Callable[[], Any]] = [
        lambda: GridSearchCV(tree, depths, scoring=scoring, cv=cv, refit=False).fit(*train),
        lambda: RandomizedSearchCV(
            tree, depths, n_iter=2, scoring=scoring, cv=holdout.split(inner=2), refit=False
        ).fit(*train),
        lambda: cross_validate(tree, *train, scoring=scoring, cv=cv, error_score=np.nan),
    ]
    if not several:
        tools += [
            lambda: cross_val_score(tree, *train, scoring=scoring, cv=cv),
            lambda: validation_curve(tree, *train, scoring=scoring, cv=cv, **one),
            lambda: learning_curve(tree, *train, scoring=scoring, cv=cv),
            lambda: RidgeCV(scoring=scoring, cv=cv).fit(*train),
        ]
    for tool in tools:
        with pytest.raises(SearchStopped, match=r"scoring must be this holdout.*scoring=holdout"):
            tool()
    assert untouched()


def test_also_with_another_holdout_as_its_scorer(
    holdout: LadderHoldout, opened: Open, binary: Any, untouched: Any
) -> None:
    other = opened(binary.X_test, binary.y_test, name="other")
    search = GridSearchCV(logistic(), LEVELS, scoring=other, cv=holdout.split())
    with pytest.raises(SearchStopped, match="scoring must be this holdout"):
        search.fit(binary.X_train, binary.y_train)
    assert untouched()


def test_a_scorer_among_others_a_copy_and_a_function_of_ones_own_are_let_through(
    holdout: LadderHoldout, binary: Any
) -> None:
    train, tree = (binary.X_train, binary.y_train), DecisionTreeClassifier(random_state=0)
    depths, copy = {"max_depth": [1, 2]}, pickle.loads(pickle.dumps(holdout))
    for scoring in (
        {"held": holdout, "size": plain_function},
        copy,
        lambda *asked: holdout(*asked),
    ):
        GridSearchCV(tree, depths, scoring=scoring, cv=holdout.split(), refit=False).fit(*train)
    assert holdout.status().submissions == 6
    # Inner folds alone hold rows, so any scorer will do.
    inner = holdout.split(inner=2, guarded=False)
    GridSearchCV(tree, depths, scoring="accuracy", cv=inner).fit(*train)
    for _, test in holdout.split().split(*train):  # by hand
        assert len(test) == 0


@pytest.mark.parametrize("refit", [True, "held"])
def test_the_mean_over_inner_folds_and_the_guarded_one_picks_nobody(
    holdout: LadderHoldout, binary: Any, untouched: Any, refit: Any
) -> None:
    train, tree = (binary.X_train, binary.y_train), DecisionTreeClassifier(random_state=0)
    scoring = {"held": holdout} if refit == "held" else holdout
    settings = {"scoring": scoring, "cv": holdout.split(inner=2)}
    search = GridSearchCV(tree, {"max_depth": [1, 2]}, refit=refit, **settings)
    with pytest.raises(SearchStopped, match=r"refit must be holdout\.select or False"):
        search.fit(*train)
    assert untouched()
    for fine in (holdout.select, False):
        search.set_params(refit=fine).fit(*train)
    cross_validate(tree, *train, **settings)  # picks nobody
    search.set_params(refit=refit, cv=holdout.split()).fit(*train)
    assert holdout.status().submissions == 2 + 2 + 1 + 2


# -- searches of other libraries -----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("jobs", [1, 2])
def test_optunas_search_as_a_step_is_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any, jobs: int
) -> None:
    space = {"C": optuna.distributions.FloatDistribution(1e-3, 10, log=True)}
    search = OptunaSearchCV(
        logistic(), space, scoring=holdout, cv=holdout.split(), n_trials=2, n_jobs=jobs
    )
    with pytest.raises(SearchStopped, match="Put the pipeline inside it"):
        make_pipeline(StandardScaler(), search).fit(binary.X_train, binary.y_train)
    with pytest.raises(SearchStopped, match="BaggingClassifier"):
        BaggingClassifier(search).fit(binary.X_train, binary.y_train)
    assert untouched()


@pytest.mark.parametrize("inner", [0, 3])
def test_dask_mls_search_is_refused(
    holdout: LadderHoldout, binary: Any, untouched: Any, inner: int
) -> None:
    # It weighs folds by their test rows, so that the guarded one counts for nothing.
    searches = pytest.importorskip("dask_ml.model_selection")
    search = searches.GridSearchCV(
        DecisionTreeClassifier(),
        {"max_depth": [1, 2]},
        scoring=holdout,
        cv=holdout.split(inner=inner),
    )
    with pytest.raises(SearchStopped, match=r"parallel_config\('dask'\)"):
        search.fit(binary.X_train, binary.y_train)
    assert untouched()


# -- the best of several releases ----------------------------------------------------------------


def test_the_largest_release_is_the_incumbents(binary: Any, tmp_path: Path) -> None:
    holdout = LadderHoldout(
        binary.X_holdout, binary.y_holdout, scoring="accuracy", ledger=tmp_path / "ledger.db"
    )
    y = binary.y_holdout
    made = [np.where(np.arange(142) < right, y, 1 - y) for right in (70, 60, 120, 100, 119, 50)]
    releases = [holdout.submit(one) for one in made]
    assert [one.improved for one in releases] == [True, False, True, False, False, False]
    scores = [one.score for one in releases]
    assert scores.count(max(scores)) == 4  # one incumbent, three that share its released score
    rng = np.random.default_rng(0)
    for _ in range(50):
        order = rng.permutation(6)
        shuffled = [releases[at] for at in order]
        assert max(shuffled) is releases[2]
        assert sorted(shuffled)[-2:] == [releases[0], releases[2]]
    first, loser, best, *_ = releases
    assert loser < first < best and best > first >= first <= best
    assert not loser < releases[3] and not releases[3] < loser  # nothing is known between them
    assert loser <= releases[3] <= loser
    assert best.submission == holdout.status().incumbent
    # However somebody reduces or sorts them, in whatever order they come.
    for _ in range(20):
        shuffled = [releases[at] for at in rng.permutation(6)]
        assert heapq.nlargest(1, shuffled) == [best] == sorted(shuffled, reverse=True)[:1]
        assert np.max(np.array(shuffled, dtype=object)) is best
        assert pd.Series(shuffled).max() is best
        assert max(enumerate(shuffled), key=lambda it: it[1])[1] is best
    mixed: list[Any] = [best, 0.5]
    with pytest.raises(TypeError):
        sorted(mixed)
