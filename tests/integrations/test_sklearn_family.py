"""Attacks the guard in the rest of scikit-learn: each tool works, or is refused with the way out.

Each test states what the tool finds, how many submissions it made, and the text of a refusal.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn
from joblib import parallel_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier, StackingClassifier
from sklearn.feature_selection import RFECV, SequentialFeatureSelector
from sklearn.linear_model import (
    ElasticNetCV,
    LarsCV,
    Lasso,
    LassoCV,
    LassoLarsCV,
    LogisticRegression,
    LogisticRegressionCV,
    MultiTaskLassoCV,
    OrthogonalMatchingPursuitCV,
    RidgeClassifierCV,
    RidgeCV,
)
from sklearn.metrics import get_scorer, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    ValidationCurveDisplay,
    cross_val_predict,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout, SearchStopped
from ladderholdout.errors import RoutingDisabled

Open = Callable[..., LadderHoldout]
METRICS = ["accuracy", "balanced_accuracy", "f1", "roc_auc", "neg_log_loss", "neg_brier_score"]


@pytest.fixture
def holdout(binary: Any, opened: Open) -> LadderHoldout:
    found = opened(binary.X_holdout, binary.y_holdout)
    found.split()  # so that nobody is reminded of it
    return found


@pytest.fixture
def diabetes(opened: Open) -> tuple[LadderHoldout, Any, Any]:
    X, y = load_diabetes(return_X_y=True)
    found = opened(X[:150], y[:150], "r2")
    found.split()
    return found, X[150:], y[150:]


def submissions(holdout: LadderHoldout) -> int:
    return holdout.status().submissions


def tree(**settings: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0, **settings)


def logistic(**settings: Any) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(**settings))


# -- what others read of a scorer ----------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
def test_it_has_what_scorers_have(opened: Open, binary: Any, name: str) -> None:
    holdout = opened(binary.X_holdout, binary.y_holdout, name)
    assert holdout.__name__ == name
    assert (holdout._sign, holdout._kwargs) == (1, {})
    theirs = get_scorer(name)
    response = theirs._response_method
    assert holdout._response_method == response or set(holdout._response_method) == set(response)
    model = logistic().fit(binary.X_train, binary.y_train)
    again = make_scorer(holdout._score_func, response_method=holdout._response_method)
    expected = theirs(model, binary.X_test, binary.y_test)
    assert again(model, binary.X_test, binary.y_test) == pytest.approx(expected)
    weights = np.arange(1.0, 1 + len(binary.y_test))
    assert again(model, binary.X_test, binary.y_test, sample_weight=weights) == pytest.approx(
        theirs(model, binary.X_test, binary.y_test, sample_weight=weights)
    )
    assert submissions(holdout) == 0
    assert not hasattr(holdout, "_no_such_attribute")


def test_its_score_function_is_no_way_around_the_guard(holdout: LadderHoldout) -> None:
    function = holdout._score_func
    # LogisticRegressionCV would build a scorer of its own around one that takes labels.
    taken = {"y_true", "y_pred", "sample_weight", "pos_label"}
    assert set(inspect.signature(function).parameters) == taken
    assert pickle.loads(pickle.dumps(function)) == function == holdout._score_func
    assert hash(function) == hash(holdout._score_func)
    assert repr(function) == "PlainScore('accuracy')"
    assert pickle.loads(pickle.dumps(holdout)) == holdout == clone(holdout, safe=False)
    assert len(pickle.dumps(function)) < 2000  # it has no rows


def test_a_request_without_routing_is_refused_as_by_scikit_learn(holdout: LadderHoldout) -> None:
    for scorer, error in ((holdout, RoutingDisabled), (get_scorer("accuracy"), RuntimeError)):
        with pytest.raises(error, match="only available when metadata routing is enabled") as said:
            scorer.set_score_request(sample_weight=True)
        assert isinstance(said.value, RuntimeError)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = holdout.set_score_request(sample_weight=True).get_metadata_routing()
        assert asked.score.requests == {"sample_weight": True}
        assert holdout.set_score_request(sample_weight=None) is holdout


# -- thresholds ----------------------------------------------------------------------------


def test_a_threshold_is_tuned_on_inner_folds_and_confirmed_by_one_query(
    opened: Open, binary: Any
) -> None:
    holdout = opened(binary.X_holdout, binary.y_holdout, "balanced_accuracy")
    holdout.split()
    folds = StratifiedKFold(3)
    settings = {"estimator": logistic(C=0.01), "store_cv_results": True}
    tuned, plain = (
        TunedThresholdClassifierCV(scoring=scoring, cv=cv, **settings).fit(
            binary.X_train, binary.y_train
        )
        for scoring, cv in (
            (holdout, holdout.split(inner=folds, guarded=False)),
            ("balanced_accuracy", folds),
        )
    )
    assert tuned.best_threshold_ == plain.best_threshold_ != 0.5
    assert tuned.cv_results_["scores"] == pytest.approx(plain.cv_results_["scores"])
    assert submissions(holdout) == 0
    release = holdout.submit(tuned)
    truth = get_scorer("balanced_accuracy")(tuned, binary.X_holdout, binary.y_holdout)
    assert release.score == pytest.approx(truth)
    assert submissions(holdout) == 1


def test_a_threshold_may_be_tuned_inside_a_search(holdout: LadderHoldout, binary: Any) -> None:
    tuned = TunedThresholdClassifierCV(tree(), scoring=holdout, cv=3, thresholds=9)
    values = {"estimator__max_depth": [1, 3]}
    search = GridSearchCV(
        tuned, values, scoring=holdout, cv=holdout.split(), refit=holdout.select
    ).fit(binary.X_train, binary.y_train)
    found = search.cv_results_["mean_test_score"]
    for depth, score in zip((1, 3), found, strict=True):
        one = clone(tuned).set_params(estimator__max_depth=depth, scoring="accuracy")
        one.fit(binary.X_train, binary.y_train)
        assert score == pytest.approx(one.score(binary.X_holdout, binary.y_holdout))
    assert search.best_index_ == found.argmax()
    assert submissions(holdout) == 2


# -- selection of features -----------------------------------------------------------------


@pytest.mark.parametrize(
    "selector",
    [
        SequentialFeatureSelector(tree(max_depth=2), n_features_to_select=1),
        RFECV(tree(max_depth=2), min_features_to_select=2),
    ],
    ids=["SequentialFeatureSelector", "RFECV"],
)
def test_features_are_selected_on_inner_folds_and_confirmed_by_one_query(
    holdout: LadderHoldout, binary: Any, selector: Any
) -> None:
    X, y = binary.X_train, binary.y_train
    rows = "which scores models on some of the columns.*submit\\(make_pipeline\\(selector, model"
    guarded = clone(selector).set_params(scoring=holdout, cv=holdout.split())
    with pytest.raises(SearchStopped, match=f"inside {type(selector).__name__}, {rows}"):
        guarded.fit(X[:, :6], y)
    cv = holdout.split(inner=3, guarded=False)
    ours = clone(selector).set_params(scoring=holdout, cv=cv).fit(X[:, :6], y)
    plain = clone(selector).set_params(scoring="accuracy", cv=3).fit(X[:, :6], y)
    assert np.array_equal(ours.support_, plain.support_)
    assert submissions(holdout) == 0
    whole = make_pipeline(clone(selector).set_params(scoring=holdout, cv=cv), tree(max_depth=2))
    release = holdout.submit(whole.fit(X, y))
    assert release.score == pytest.approx(whole.score(binary.X_holdout, binary.y_holdout))
    assert submissions(holdout) == 1


# -- estimators that search by themselves ----------------------------------------------------


def test_logistic_regression_with_folds_goes_by_the_guard(
    holdout: LadderHoldout, binary: Any
) -> None:
    X, y = binary.X_train, binary.y_train
    settings = {"Cs": [1e-4, 0.1, 10.0], "max_iter": 5000, "l1_ratios": (0,)}
    if "use_legacy_attributes" in LogisticRegressionCV().get_params():  # from 1.8 on
        settings["use_legacy_attributes"] = False
    else:
        del settings["l1_ratios"]
    scaled = StandardScaler().fit(X)
    own = LogisticRegressionCV(scoring=holdout, cv=holdout.split(), **settings)
    whole = make_pipeline(StandardScaler(), own).fit(X, y)
    scores = [
        LogisticRegression(C=C, max_iter=5000)
        .fit(scaled.transform(X), y)
        .score(scaled.transform(binary.X_holdout), binary.y_holdout)
        for C in settings["Cs"]
    ]
    assert np.ravel(whole[-1].C_)[0] == settings["Cs"][int(np.argmax(scores))]
    assert submissions(holdout) == 3
    inner = {"cv": holdout.split(inner=3, guarded=False), **settings}
    LogisticRegressionCV(scoring=holdout, **inner).fit(scaled.transform(X), y)
    for cv, scoring, said in (
        (holdout.split(), None, r"scoring must be this holdout.*give scoring=holdout"),
        (holdout.split(), "accuracy", r"scoring must be this holdout.*give scoring=holdout"),
        (holdout.split(inner=2), holdout, r"is given cv=holdout\.split\(\)"),
    ):
        with pytest.raises(SearchStopped, match=said):
            LogisticRegressionCV(scoring=scoring, cv=cv, **settings).fit(X, y)
    assert submissions(holdout) == 3


def test_ridge_goes_by_the_guard(diabetes: Any, holdout: LadderHoldout, binary: Any) -> None:
    ridges, X, y = diabetes
    alphas = [1e-3, 1.0, 1e3]
    own = RidgeCV(alphas=alphas, scoring=ridges, cv=ridges.split()).fit(X, y)
    assert own.alpha_ in alphas and own.best_score_ == ridges.status().score
    assert submissions(ridges) == 3
    # Without folds of its own it scores each row left out, and queries nothing.
    RidgeCV(alphas=alphas, scoring=ridges).fit(X, y)
    with pytest.raises(SearchStopped, match=r"is given cv=holdout\.split\(\)"):
        RidgeCV(alphas=alphas, scoring=ridges, cv=ridges.split(inner=2)).fit(X, y)
    with pytest.raises(SearchStopped, match="give scoring=holdout"):
        RidgeCV(alphas=alphas, cv=ridges.split()).fit(X, y)
    assert submissions(ridges) == 3
    classes = RidgeClassifierCV(alphas=alphas, scoring=holdout, cv=holdout.split())
    classes.fit(binary.X_train, binary.y_train)
    assert submissions(holdout) == 3


LASSOS = [LassoCV, ElasticNetCV, LarsCV, LassoLarsCV, OrthogonalMatchingPursuitCV, MultiTaskLassoCV]


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.NoImprovementWarning")
@pytest.mark.parametrize("kind", LASSOS, ids=lambda kind: kind.__name__)
def test_the_lassos_are_refused_with_the_two_ways_that_are_right(diabetes: Any, kind: Any) -> None:
    holdout, X, y = diabetes
    target = np.column_stack([y, y]) if kind is MultiTaskLassoCV else y
    with pytest.raises(SearchStopped) as said:
        kind(cv=holdout.split()).fit(X, target)
    assert f"without the guarded fold in {kind.__name__}" in str(said.value)
    assert "cv=holdout.split(inner=5, guarded=False)" in str(said.value)
    assert "GridSearchCV(model, grid, scoring=holdout, cv=holdout.split())" in str(said.value)
    assert submissions(holdout) == 0
    if kind not in (LassoCV, OrthogonalMatchingPursuitCV):  # the ways are the same for all
        return
    ours = kind(cv=holdout.split(inner=4, guarded=False)).fit(X, y)
    plain = kind(cv=KFold(4)).fit(X, y)
    assert np.array_equal(ours.coef_, plain.coef_)
    assert holdout.submit(ours).improved
    search = GridSearchCV(Lasso(), {"alpha": [0.1, 1]}, scoring=holdout, cv=holdout.split())
    assert search.fit(X, y).best_params_ in ({"alpha": 0.1}, {"alpha": 1})
    assert submissions(holdout) == 3


# -- what uses the rows of the test folds ----------------------------------------------------


USERS: dict[str, Callable[[Any], Any]] = {
    "StackingClassifier": lambda cv: StackingClassifier([("tree", tree(max_depth=2))], cv=cv),
    "CalibratedClassifierCV": lambda cv: CalibratedClassifierCV(tree(max_depth=2), cv=cv),
    "TunedThresholdClassifierCV": lambda cv: TunedThresholdClassifierCV(
        tree(max_depth=2), cv=cv, thresholds=9
    ),
    "TargetEncoder": lambda cv: make_pipeline(TargetEncoder(cv=cv), tree(max_depth=2)),
}
if "cv" not in inspect.signature(TargetEncoder).parameters or not hasattr(
    TargetEncoder().set_params(cv=KFold(2)).cv, "split"
):  # pragma: no cover
    del USERS["TargetEncoder"]


@pytest.mark.parametrize("kind", USERS)
def test_what_uses_the_test_rows_itself_is_refused_and_works_on_inner_folds(
    holdout: LadderHoldout, binary: Any, kind: str
) -> None:
    X, y = np.round(binary.X_train[:, :5]), binary.y_train
    model = USERS[kind]
    with pytest.raises(SearchStopped) as said:
        model(holdout.split()).fit(X, y)
    assert f"without the guarded fold in {kind}" in str(said.value)
    assert "holdout.submit(model)" in str(said.value)
    # Nor does a search around it take the refusal for a failed fit.
    outer = GridSearchCV(model(holdout.split()), {}, cv=2, error_score=np.nan)
    with pytest.raises(SearchStopped, match=kind):
        outer.fit(X, y)
    assert submissions(holdout) == 0


@pytest.mark.parametrize("kind", [kind for kind in USERS if kind != "TargetEncoder"])
def test_it_may_be_the_model_of_a_guarded_search(
    holdout: LadderHoldout, binary: Any, kind: str
) -> None:
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    model = USERS[kind](folds)
    name = "tree__max_depth" if kind == "StackingClassifier" else "estimator__max_depth"
    search = GridSearchCV(
        model, {name: [1, 4]}, scoring=holdout, cv=holdout.split(), refit=holdout.select
    ).fit(binary.X_train, binary.y_train)
    truth = [
        clone(model).set_params(**{name: depth}).fit(binary.X_train, binary.y_train)
        .score(binary.X_holdout, binary.y_holdout)
        for depth in (1, 4)
    ]  # fmt: skip
    assert search.cv_results_["mean_test_score"] == pytest.approx(truth)
    assert search.best_index_ == int(np.argmax(truth))
    assert submissions(holdout) == 2
    # On folds of the training rows it works as it is, shuffled ones too.
    own = USERS[kind](holdout.split(inner=StratifiedKFold(3, shuffle=True), guarded=False))
    holdout.submit(own.fit(binary.X_train, binary.y_train))
    assert submissions(holdout) == 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_predictions_of_the_folds_are_refused(
    holdout: LadderHoldout, binary: Any, jobs: int
) -> None:
    given = tree(max_depth=2), binary.X_train, binary.y_train
    with parallel_config("threading"), pytest.raises(SearchStopped) as said:
        cross_val_predict(*given, cv=holdout.split(), n_jobs=jobs)
    assert "without the guarded fold in cross_val_predict" in str(said.value)
    found = cross_val_predict(*given, cv=holdout.split(inner=4, guarded=False), n_jobs=1)
    assert np.array_equal(found, cross_val_predict(*given, cv=4))
    assert submissions(holdout) == 0


def test_displays_of_curves_are_answered(holdout: LadderHoldout, binary: Any) -> None:
    pytest.importorskip("matplotlib").use("agg")
    shown = ValidationCurveDisplay.from_estimator(
        *(tree(), binary.X_train, binary.y_train),
        **{"param_name": "max_depth", "param_range": [1, 3]},
        **{"scoring": holdout, "cv": holdout.split()},
    )
    assert shown.test_scores.shape == (2, 1)
    assert shown.ax_.get_ylabel() == "Accuracy"
    assert submissions(holdout) == 2


# -- HistGradientBoosting --------------------------------------------------------------------


@pytest.mark.parametrize("stopping", [False, True])
def test_hist_gradient_boosting_inside_a_search(
    holdout: LadderHoldout, binary: Any, stopping: bool
) -> None:
    model = HistGradientBoostingClassifier(
        max_iter=15, early_stopping=stopping, n_iter_no_change=3, random_state=0
    )
    values = {"learning_rate": [0.01, 0.3]}
    search = GridSearchCV(
        model, values, scoring=holdout, cv=holdout.split(inner=2), refit=holdout.select
    ).fit(binary.X_train, binary.y_train)
    truth = [
        clone(model).set_params(learning_rate=rate).fit(binary.X_train, binary.y_train)
        .score(binary.X_holdout, binary.y_holdout)
        for rate in values["learning_rate"]
    ]  # fmt: skip
    assert search.cv_results_["split2_test_score"] == pytest.approx(truth)
    assert search.best_index_ == int(np.argmax(truth))
    assert submissions(holdout) == 2


# -- several scorers -------------------------------------------------------------------------


def test_a_holdout_beside_scorers_of_scikit_learn(holdout: LadderHoldout, binary: Any) -> None:
    found = cross_validate(
        *(tree(max_depth=2), binary.X_train, binary.y_train),
        scoring={"held": holdout, "area": "roc_auc"},
        cv=holdout.split(inner=3, guarded=False),
    )
    plain = cross_validate(
        *(tree(max_depth=2), binary.X_train, binary.y_train),
        scoring={"held": "accuracy", "area": "roc_auc"},
        cv=3,
    )
    for name in ("held", "area"):
        assert found[f"test_{name}"] == pytest.approx(plain[f"test_{name}"])
    assert submissions(holdout) == 0
