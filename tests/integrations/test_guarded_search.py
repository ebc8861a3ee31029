"""`holdout.guard(search)`: the search sees training rows alone, its finalists query the holdout."""

from __future__ import annotations

import io
import pickle
import re
import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
from joblib import parallel_config, register_parallel_backend
from joblib.parallel import ThreadingBackend
from optuna.distributions import IntDistribution
from optuna_integration import OptunaSearchCV
from scipy.stats import randint
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier, is_regressor
from sklearn.datasets import load_diabetes
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    ShuffleSplit,
    cross_val_score,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator
from skopt import BayesSearchCV

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import (
    HoldoutConflict,
    NoImprovementWarning,
    NotIncumbentWarning,
    OverlapWarning,
)
from ladderholdout.guard.batches import ranked
from ladderholdout.integrations.guarded_search import GuardedSearch
from ladderholdout.mechanisms import FINALISTS, PairedTestLadder
from tests.support.ledgers import entries_of

optuna.logging.set_verbosity(optuna.logging.ERROR)

DEPTHS = {"max_depth": [1, 2, 3, 4, 6, 8]}


@pytest.fixture
def holdout(binary: Any, tmp_path: Path) -> LadderHoldout:
    ledger = tmp_path / "ledger.db"
    return LadderHoldout(binary.X_holdout, binary.y_holdout, scoring="accuracy", ledger=ledger)


def tree(**settings: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0, **settings)


SEARCHES = {
    "grid": GridSearchCV(tree(), DEPTHS, cv=3),
    "random": RandomizedSearchCV(tree(), {"max_depth": randint(1, 9)}, n_iter=8, random_state=0),
    "halving grid": HalvingGridSearchCV(tree(), DEPTHS, cv=3, random_state=0),
    "halving random": HalvingRandomSearchCV(
        tree(), {"max_depth": randint(1, 9)}, cv=3, random_state=0
    ),
    "bayes": BayesSearchCV(tree(), {"max_depth": (1, 8)}, n_iter=6, cv=3, random_state=0),
    "of pipelines": GridSearchCV(
        make_pipeline(StandardScaler(), tree()), {"decisiontreeclassifier__max_depth": [1, 3, 5]}
    ),
    "in a pipeline": make_pipeline(StandardScaler(), GridSearchCV(tree(), DEPTHS, cv=3)),
    "in two pipelines": Pipeline(
        [("a", StandardScaler()), ("b", make_pipeline(GridSearchCV(tree(), DEPTHS, cv=3)))]
    ),
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    SEARCHES["optuna"] = OptunaSearchCV(
        tree(), {"max_depth": IntDistribution(1, 8)}, n_trials=6, cv=3, random_state=0
    )


def guarded(holdout: LadderHoldout, binary: Any, search: Any, **settings: Any) -> GuardedSearch:
    return holdout.guard(search, **settings).fit(binary.X_train, binary.y_train)


def test_printed_it_shows_the_certificate_first(holdout: LadderHoldout, binary: Any) -> None:
    search = guarded(holdout, binary, SEARCHES["grid"], finalists=2)
    lines = str(search).splitlines()
    assert lines[0] == f"certificate     {holdout.certificate().line()}"
    assert [line[:16].strip() for line in lines[1:]] == ["winner", "released score", "finalists"]
    assert lines[2].split()[-1] == f"{holdout.status().score:.4g}"
    unfitted = holdout.guard(SEARCHES["grid"])
    assert str(unfitted) == repr(unfitted)
    # One that improves on nothing has neither a released score nor a certificate.
    holdout.submit(binary.y_holdout)
    with pytest.warns(NoImprovementWarning):
        later = guarded(holdout, binary, SEARCHES["random"], finalists=2)
    assert str(later).startswith("certificate     none: ") and "released score  none" in str(later)


# -- what it does ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "finalists"), [*zip(SEARCHES, cycle([2, "auto"]), strict=False)])
def test_the_finalists_of_any_search_are_one_batch_and_the_incumbent_wins(
    holdout: LadderHoldout, binary: Any, name: str, finalists: int | str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # skopt asks for a point twice
        warnings.simplefilter("ignore", FutureWarning)  # optuna's own modules
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        search = guarded(holdout, binary, SEARCHES[name], finalists=finalists)
    entries = entries_of(holdout)
    assert 1 <= len(entries) == len(search.finalists_) <= (2 if finalists == 2 else FINALISTS)
    assert len({one.batch for one in entries}) == 1 and entries[0].batch
    assert sorted(one.place or 0 for one in entries) == [*range(1, len(entries) + 1)]
    # Nothing of the search but its finalists reached the ledger, and none of them twice.
    assert not any(one.repeat_of for one in entries)
    inner = [one.inner_score for one in search.finalists_]
    if "halving" not in name:
        assert inner == sorted(inner, reverse=True)
    [winner] = [one for one in search.finalists_ if one.is_incumbent]
    assert search.is_incumbent_ and winner.candidate == search.best_index_
    assert winner.release.submission == holdout.status().incumbent
    assert search.best_score_ == holdout.status().score
    # The winner is fitted on all training rows, with the parameters that it names.
    again = clone(search.best_estimator_).fit(binary.X_train, binary.y_train)
    assert (again.predict(binary.X_holdout) == search.predict(binary.X_holdout)).all()
    said = again.get_params() if "in " not in name else again[-1].get_params()
    if "two" not in name:
        assert all(said[key] == value for key, value in search.best_params_.items())
    assert (again.predict(binary.X_holdout) == binary.y_holdout).mean() == pytest.approx(
        search.best_score_, abs=0.03
    )
    assert search.certificate_ == holdout.certificate() and search.certificate_.missing is None


def test_the_results_name_what_became_of_each_candidate(
    holdout: LadderHoldout, binary: Any
) -> None:
    search = guarded(holdout, binary, SEARCHES["grid"], finalists=3)
    results = search.cv_results_
    assert all(len(column) == 6 for column in results.values())
    for place, one in enumerate(search.finalists_, 1):
        row = one.candidate
        assert results["finalist"][row] == place
        assert results["submission"][row] == one.release.submission
        assert results["released_score"][row] == one.release.score
        assert results["improved"][row] == one.release.improved
        assert results["is_incumbent"][row] == one.is_incumbent
        assert results["mean_test_score"][row] == one.inner_score
    others = results["finalist"] == 0
    assert others.sum() == 6 - len(search.finalists_)
    assert np.isnan(results["released_score"][others]).all()
    assert not results["submission"][others].any() and not results["improved"][others].any()
    pd.DataFrame(results)


def test_a_search_by_its_own_scores_never_sees_the_holdout(
    holdout: LadderHoldout, binary: Any
) -> None:
    """The inner search is what it would be alone, to the last digit."""
    search = guarded(holdout, binary, SEARCHES["grid"])
    alone = clone(SEARCHES["grid"]).fit(binary.X_train, binary.y_train)
    kept = ("mean_test_score", "split0_test_score", "rank_test_score")
    assert all((search.cv_results_[one] == alone.cv_results_[one]).all() for one in kept)
    assert not hasattr(search.search_, "best_estimator_"), "it does not refit"


class Counted(ClassifierMixin, BaseEstimator):
    """Predicts alike for two settings in a row, and counts its fits."""

    fits = 0

    def __init__(self, level: int = 0, fails: bool = False) -> None:
        self.level, self.fails = level, fails

    def fit(self, X: Any, y: Any) -> Counted:
        if self.fails and len(X) > 200:
            raise RuntimeError("no memory")
        Counted.fits += 1
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        self.middle_ = X.mean(axis=0)
        return self

    def predict(self, X: Any) -> Any:
        return (self.middle_ > X)[:, self.level // 2].astype(int)


def test_finalists_are_distinct_in_their_predictions(holdout: LadderHoldout, binary: Any) -> None:
    levels = {"level": [0, 1, 2, 3, 4, 5]}
    search = guarded(holdout, binary, GridSearchCV(Counted(), levels, cv=3), finalists=3)
    assert len(search.finalists_) == 3
    assert len({one.candidate // 2 for one in search.finalists_}) == 3
    assert not any(one.repeat_of for one in entries_of(holdout))
    # There are no more than three distinct ones to be had.
    search = guarded(holdout, binary, GridSearchCV(Counted(), levels, cv=3), finalists=6)
    assert len(search.finalists_) == 3


def test_equal_candidates_of_a_search_count_once(holdout: LadderHoldout, binary: Any) -> None:
    Counted.fits = 0
    twice = GridSearchCV(Counted(), [{"level": [0]}, {"level": [0]}], cv=2)
    search = guarded(holdout, binary, twice, finalists=5)
    assert len(search.finalists_) == 1 and Counted.fits == 2 * 2 + 1


def test_a_finalist_that_fails_costs_no_other_its_hours(
    holdout: LadderHoldout, binary: Any
) -> None:
    rows = len(binary.y_train)
    assert rows > 200
    grid = GridSearchCV(
        Counted(),
        [{"level": [0], "fails": [True]}, {"level": [2]}],
        cv=[(np.arange(100), np.arange(100, rows))],
    )
    with pytest.warns(FitFailedWarning, match="fails=True.*no memory"):
        search = guarded(holdout, binary, grid, finalists=2)
    assert [one.candidate for one in search.finalists_] == [1]
    grid.set_params(param_grid={"fails": [True]})
    search = holdout.guard(grid)
    failing = pytest.raises(InvalidArgument, match=r"no memory.*search_")
    with pytest.warns(FitFailedWarning), failing:
        search.fit(binary.X_train, binary.y_train)
    assert search.search_.cv_results_["params"] == [{"fails": True}]


# -- all of them ----------------------------------------------------------------------------


def test_all_candidates_are_one_batch_without_inner_folds(
    holdout: LadderHoldout, binary: Any
) -> None:
    Counted.fits = 0
    grid = GridSearchCV(Counted(), [{"level": [0, 2, 4]}, {"level": [0]}], cv=5)
    search = guarded(holdout, binary, grid, finalists="all")
    assert Counted.fits == 3 and not hasattr(search, "search_")
    entries = entries_of(holdout)
    assert len({one.batch for one in entries}) == 1 and entries[0].batch
    assert sorted(one.place or 0 for one in entries) == [1, 2, 3]
    assert [(one.candidate, one.inner_score) for one in search.finalists_] == [
        (0, None),
        (1, None),
        (2, None),
    ]
    assert search.certificate_ == holdout.certificate() and search.certificate_.missing is None
    # As they would be if their models were given as a list.
    other = LadderHoldout(binary.X_holdout, binary.y_holdout, scoring="accuracy", ledger="memory")
    models = [Counted(level).fit(binary.X_train, binary.y_train) for level in (0, 2, 4)]
    releases = [one.release for one in other.finalists(models)]
    assert [one.release.score for one in search.finalists_] == [one.score for one in releases]
    assert search.certificate_.low == other.certificate().low
    results = pd.DataFrame(search.cv_results_)
    assert results["finalist"].tolist() == [1, 2, 3, 0]
    assert results["params"].tolist()[3] == {"level": 0}


@pytest.mark.parametrize("name", ["grid", "random", "of pipelines", "in two pipelines"])
def test_all_are_those_that_the_search_would_try(
    holdout: LadderHoldout, binary: Any, name: str
) -> None:
    search = guarded(holdout, binary, SEARCHES[name], finalists="all")
    alone = clone(SEARCHES[name]).fit(binary.X_train, binary.y_train)
    while isinstance(alone, Pipeline) and not hasattr(alone, "cv_results_"):
        alone = alone[-1]
    assert search.cv_results_["params"] == alone.cv_results_["params"]
    again = clone(search.best_estimator_).fit(binary.X_train, binary.y_train)
    assert (again.predict(binary.X_holdout) == search.predict(binary.X_holdout)).all()
    [winner] = [one for one in search.finalists_ if one.candidate == search.best_index_]
    assert holdout.status().incumbent == winner.release.submission


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("name", ["halving grid", "halving random", "bayes", "optuna"])
def test_all_of_a_search_that_learns_from_scores_is_refused(
    holdout: LadderHoldout, binary: Any, name: str
) -> None:
    with pytest.raises(InvalidArgument, match=r"finalists must be .*known in advance"):
        guarded(holdout, binary, SEARCHES[name], finalists="all")
    assert holdout.status().submissions == 0


def test_all_that_fail_or_improve_on_nothing_say_so(holdout: LadderHoldout, binary: Any) -> None:
    failing = holdout.guard(GridSearchCV(Counted(), {"fails": [True]}), finalists="all")
    with pytest.warns(FitFailedWarning), pytest.raises(InvalidArgument, match="no memory") as said:
        failing.fit(binary.X_train, binary.y_train)
    assert "search_" not in str(said.value)
    for empty in (GridSearchCV(tree(), []), RandomizedSearchCV(tree(), DEPTHS, n_iter=0)):
        with pytest.raises(InvalidArgument, match="search must be one with a candidate at least"):
            guarded(holdout, binary, empty, finalists="all")
    holdout.submit(binary.y_holdout)
    with pytest.warns(NoImprovementWarning, match=r"Picked: the first\."):
        search = guarded(holdout, binary, SEARCHES["grid"], finalists="all")
    assert search.best_index_ == search.finalists_[0].candidate


# -- which candidates are finalists ----------------------------------------------------------


@pytest.mark.parametrize(("fall", "expected"), [(0.2, 3), (0.5, 2), (1.0, 1)])
def test_auto_takes_those_within_two_pooled_standard_errors(fall: float, expected: int) -> None:
    rng = np.random.default_rng(0)
    folds = 0.8 + 0.02 * rng.standard_normal((40, 5)) - np.linspace(0, fall, 40)[:, None]
    means = folds.mean(axis=1)
    order, count = ranked(means, folds)
    best = np.argmax(means)
    # Written once more, from the definition.
    spread = [np.var(folds[best] - one, ddof=1) / 5 for at, one in enumerate(folds) if at != best]
    near = means >= means[best] - 2 * np.sqrt(np.mean(spread))
    assert count == min(near.sum(), FINALISTS) == expected
    assert set(order[:count]) <= set(np.flatnonzero(near))
    assert (np.diff(means[order]) <= 0).all()


@pytest.mark.parametrize("folds", [None, np.zeros((50, 1))])
def test_auto_without_standard_errors_takes_as_many(folds: Any) -> None:
    assert ranked(np.arange(50.0), folds)[1] == FINALISTS


def test_auto_takes_at_most_three_of_equals() -> None:
    folds = np.random.default_rng(0).standard_normal((100, 5))
    assert ranked(np.zeros(100), folds)[1] == FINALISTS == 3


def test_failed_candidates_are_no_finalists() -> None:
    order, count = ranked([np.nan, 0.5, -np.inf, 0.7], finalists=4)
    assert order.tolist() == [3, 1] and count == 2
    with pytest.raises(InvalidArgument, match="scored a candidate"):
        ranked([np.nan, np.nan])


def test_one_split_of_the_training_rows_has_as_many_finalists(
    holdout: LadderHoldout, binary: Any
) -> None:
    grid = GridSearchCV(
        tree(), {"min_samples_leaf": [*range(1, 30)]}, cv=ShuffleSplit(1, random_state=0)
    )
    assert 1 < len(guarded(holdout, binary, grid).finalists_) <= FINALISTS


# -- no silent second best -------------------------------------------------------------------


def test_a_search_without_a_new_incumbent_says_so(holdout: LadderHoldout, binary: Any) -> None:
    holdout.submit(binary.y_holdout)
    with pytest.warns(NoImprovementWarning, match="incumbent is submission 1"):
        search = guarded(holdout, binary, SEARCHES["grid"], finalists=2)
    assert not search.is_incumbent_ and search.best_score_ is None
    assert search.best_index_ == search.finalists_[0].candidate
    assert not search.cv_results_["is_incumbent"].any()
    assert search.certificate_.missing is not None
    assert "not the incumbent" in search.certificate_.missing


def test_a_second_fit_repeats_its_submissions(holdout: LadderHoldout, binary: Any) -> None:
    search = guarded(holdout, binary, SEARCHES["grid"], finalists=2)
    before, first = holdout.status(), search.best_index_
    search.fit(binary.X_train, binary.y_train)
    after = holdout.status()
    assert (after.releases, after.incumbent) == (before.releases, before.incumbent)
    assert search.best_index_ == first and search.is_incumbent_
    assert all(one.repeat_of for one in entries_of(holdout)[2:])


def test_an_incumbent_of_before_that_was_overtaken_is_named(
    holdout: LadderHoldout, binary: Any
) -> None:
    guarded(holdout, binary, SEARCHES["grid"], finalists=2)
    holdout.submit(binary.y_holdout)
    with pytest.warns((NotIncumbentWarning, NoImprovementWarning)):
        search = guarded(holdout, binary, SEARCHES["grid"], finalists=2)
    assert not search.is_incumbent_ and search.best_score_ is None


def test_a_ladder_without_values_has_a_winner_and_no_score(binary: Any, tmp_path: Path) -> None:
    holdout = LadderHoldout(
        *(binary.X_holdout, binary.y_holdout),
        scoring="accuracy",
        mechanism=PairedTestLadder(alpha=0.05),
        show="improvements",
        ledger=tmp_path / "ledger.db",
    )
    search = guarded(holdout, binary, SEARCHES["grid"], finalists=2)
    assert search.is_incumbent_ and search.best_score_ is None
    assert np.isnan(search.cv_results_["released_score"]).all()


# -- what is refused --------------------------------------------------------------------------


def test_what_is_no_search_is_refused(holdout: LadderHoldout, binary: Any) -> None:
    for wrong in (tree(), GridSearchCV, None, make_pipeline(StandardScaler(), tree())):
        with pytest.raises(InvalidArgument, match="search must be"):
            guarded(holdout, binary, wrong)
    for finalists in (0, -1, 1.5, "any", None, True):
        with pytest.raises(InvalidArgument, match="finalists must be"):
            guarded(holdout, binary, SEARCHES["grid"], finalists=finalists)
    asking = GridSearchCV(tree(), DEPTHS, scoring=holdout, cv=holdout.split())
    with pytest.raises(InvalidArgument, match="training rows alone"):
        guarded(holdout, binary, asking)
    several = GridSearchCV(tree(), DEPTHS, scoring=["accuracy", "f1"], refit=False)
    with pytest.raises(InvalidArgument, match="refit='accuracy'"):
        guarded(holdout, binary, several)
    with pytest.raises(InvalidArgument, match="holdout must be"):
        GuardedSearch(SEARCHES["grid"], "my holdout").fit(binary.X_train, binary.y_train)
    assert holdout.status().submissions == 0


def test_a_retired_holdout_is_found_out_before_the_hours_of_a_search(
    holdout: LadderHoldout, binary: Any
) -> None:
    holdout.owner.retire()
    Counted.fits = 0
    with pytest.raises(HoldoutConflict, match="retired"):
        guarded(holdout, binary, GridSearchCV(Counted(), {"level": [0, 2]}))
    assert Counted.fits == 0


def test_the_holdouts_rows_among_the_training_rows_are_found(
    holdout: LadderHoldout, binary: Any
) -> None:
    X, y = np.vstack([binary.X_train, binary.X_holdout]), [*binary.y_train, *binary.y_holdout]
    with pytest.raises(Exception, match="rows of the holdout"):
        holdout.guard(SEARCHES["grid"]).fit(X, y)
    assert holdout.status().submissions == 0


# -- a search like scikit-learn's own ----------------------------------------------------------


def test_several_metrics_go_by_the_one_at_refit(holdout: LadderHoldout, binary: Any) -> None:
    several = GridSearchCV(
        tree(), DEPTHS, scoring=["accuracy", "neg_log_loss"], refit="neg_log_loss", cv=3
    )
    search = guarded(holdout, binary, several, finalists=1)
    assert search.best_index_ == np.argmax(search.cv_results_["mean_test_neg_log_loss"])


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame], ids=["array", "pandas"])
def test_shared_rows_are_named_and_dropped_as_the_warning_says(binary: Any, form: Any) -> None:
    X_train, X_holdout = form(binary.X_train), form(binary.X_holdout)
    holdout = LadderHoldout(X_holdout, binary.y_holdout, scoring="accuracy", ledger="memory")
    X = form(np.concatenate([binary.X_train[:40], binary.X_holdout[[5, 9]], binary.X_train[40:]]))
    y = np.concatenate([binary.y_train[:40], binary.y_holdout[[5, 9]], binary.y_train[40:]])
    search = holdout.guard(GridSearchCV(tree(), {"max_depth": [1]}, cv=2), finalists=1)
    with pytest.warns(OverlapWarning, match=r"2 of .*\(places from 0: 40, 41\)") as caught:
        search.fit(X, y)
    lines = str(caught[0].message).partition("To drop them: ")[2].rstrip(".").split("; ")
    names: dict[str, Any] = {"np": np, "X_train": X, "y_train": y, "X_holdout": X_holdout}
    exec("\n".join(lines[:2]), names)
    left = eval(lines[2], names)
    assert np.array_equal(left[0], X_train) and np.array_equal(left[1], binary.y_train)


class Fixed(ClassifierMixin, BaseEstimator):
    """Predicts probabilities of its own, by a parameter, for two rows in turn."""

    def __init__(self, kind: int = 0) -> None:
        self.kind = kind

    def fit(self, X: Any, y: Any) -> Fixed:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        # The first ranks all rows, and calls all of them positive; the second is right of most.
        rank = [0.6 + 0.3 * X[:, 0], np.where(X[:, 1] > 0, 0.8, 0.2)][self.kind]
        return np.column_stack([1 - rank, rank])

    def predict(self, X: Any) -> Any:
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)]


@pytest.mark.parametrize("refit", ["accuracy", "roc_auc"])
def test_the_winner_of_several_metrics_is_that_of_the_searchs_own(refit: str) -> None:
    y = np.tile([0, 1], 150)
    right = np.where(np.arange(300) % 10 < 8, y, 1 - y)
    X = np.column_stack([y, right - 0.5, np.random.default_rng(0).normal(size=300)])
    holdout = LadderHoldout(X[200:], y[200:], scoring=["roc_auc", "accuracy"], ledger="memory")
    grid = GridSearchCV(
        Fixed(), {"kind": [0, 1]}, scoring=["accuracy", "roc_auc"], refit=refit, cv=2
    )
    search = holdout.guard(grid, finalists=2).fit(X[:200], y[:200])
    assert search.best_params_ == {"kind": 1 if refit == "accuracy" else 0}
    assert search.is_incumbent_ and search.best_score_ == holdout.status()[refit].score
    expected = 0.8 if refit == "accuracy" else 1.0
    assert search.score(X[:200], y[:200]) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_stated_score_of_failed_fits_changes_nothing_of_a_study(
    holdout: LadderHoldout, binary: Any
) -> None:
    space = {"max_depth": IntDistribution(1, 8)}
    settings: dict[str, Any] = {"n_trials": 2, "cv": 2, "random_state": 0}
    best = [
        guarded(holdout, binary, OptunaSearchCV(tree(), space, error_score=score, **settings))
        for score in (np.nan, 0.0)
    ]
    assert best[0].best_params_ == best[1].best_params_
    for score in (np.nan, 0.0):
        failing = OptunaSearchCV(
            tree(criterion="none"), space, error_score=score, **settings, catch=(ValueError,)
        )
        with (
            warnings.catch_warnings(action="ignore"),
            pytest.raises(InvalidArgument, match="in which all failed"),
        ):
            guarded(holdout, binary, failing)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.GroupedRowsWarning")
def test_groups_weights_and_frames_reach_the_search_and_the_winner(tmp_path: Path) -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    ledger = tmp_path / "ledger.db"
    ranges: dict[str, Any] = {"target_range": (0, 350), "loss_range": (0, 200)}
    holdout = LadderHoldout(X[:150], y[:150], scoring="r2", ledger=ledger, **ranges)
    groups, weights = np.arange(len(X) - 150) % 7, np.linspace(0.1, 2, len(X) - 150)
    grid = GridSearchCV(Ridge(), {"alpha": [0.01, 0.1, 1.0]}, cv=GroupKFold(3))
    search = holdout.guard(grid, finalists=1)
    search.fit(X[150:], y[150:], groups=groups, sample_weight=weights)
    expected = Ridge(**search.best_params_).fit(X[150:], y[150:], sample_weight=weights)
    assert np.allclose(search.predict(X[:150]), expected.predict(X[:150]))
    assert list(search.feature_names_in_) == list(X.columns) and search.n_features_in_ == 10
    assert is_regressor(search) and not is_classifier(search)
    with config_context(enable_metadata_routing=True):
        model = Ridge().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        grid = GridSearchCV(model, {"alpha": [0.01, 0.1]}, cv=GroupKFold(3))
        routed = holdout.guard(grid, finalists=1)
        routed.fit(X[150:], y[150:], groups=groups, sample_weight=weights)
        expected = Ridge(**routed.best_params_).fit(X[150:], y[150:], sample_weight=weights)
        assert np.allclose(routed.predict(X[:150]), expected.predict(X[:150]))
        routed.get_metadata_routing()


def test_it_is_cloned_set_pickled_and_shown(holdout: LadderHoldout, binary: Any) -> None:
    search = holdout.guard(GridSearchCV(tree(), {"max_depth": [1, 2]}, cv=3))
    for method in ("predict", "predict_proba", "classes_", "n_features_in_"):
        assert hasattr(search, method) is (method in ("predict", "predict_proba"))
    with pytest.raises(NotFittedError):
        search.predict(binary.X_holdout)
    assert not hasattr(search, "transform") and is_classifier(search)
    copy = clone(search).set_params(search__param_grid={"max_depth": [4]}, finalists=1)
    assert copy.holdout == holdout and search.search.param_grid == {"max_depth": [1, 2]}
    copy.fit(binary.X_train, binary.y_train)
    assert copy.best_params_ == {"max_depth": 4}
    again = pickle.loads(pickle.dumps(copy))
    assert (again.predict_proba(binary.X_holdout) == copy.predict_proba(binary.X_holdout)).all()
    assert again.certificate_ == copy.certificate_
    assert "GuardedSearch" in repr(copy) and "GridSearchCV" in copy._repr_html_()
    fresh = binary.X_train[:50], binary.y_train[:50]
    assert copy.score(*fresh) == (copy.predict(fresh[0]) == fresh[1]).mean()
    assert list(copy.classes_) == [0, 1]


def test_the_page_of_files_names_the_types_of_a_guarded_search(
    holdout: LadderHoldout, binary: Any
) -> None:
    """skops refuses a file with a type that the page does not name, or names at another place."""
    types: set[str] = set()

    class Recording(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            types.add(f"{module}.{name}")
            return super().find_class(module, name)

    search = holdout.guard(GridSearchCV(tree(), {"max_depth": [1, 2]}, cv=3))
    search.fit(binary.X_train, binary.y_train)
    Recording(io.BytesIO(pickle.dumps(search))).load()
    page = Path(__file__).parents[2] / "docs" / "background" / "persistence.md"
    named = set(re.findall(r'^    "(ladderholdout[.\w]+)",', page.read_text("utf-8"), re.M))
    needed = {name for name in types if name.startswith("ladderholdout.")}
    assert "ladderholdout.guard.ladder.LocalLadder" in needed and needed <= named


def test_it_can_be_cross_validated_and_be_a_step(holdout: LadderHoldout, binary: Any) -> None:
    search = holdout.guard(SEARCHES["grid"], finalists=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoImprovementWarning)
        warnings.simplefilter("ignore", NotIncumbentWarning)
        scores = cross_val_score(search, binary.X_train, binary.y_train, cv=3)
    assert (scores > 0.5).all()
    assert holdout.status().submissions == 3, "each fold's search queries for itself"


def test_a_progress_bar_is_shown_where_it_is_asked_for(holdout: LadderHoldout, binary: Any) -> None:
    for verbose, words in ((0, ""), (1, "Fitting the finalists")):
        with redirect_stdout(io.StringIO()) as shown, redirect_stderr(io.StringIO()):
            guarded(holdout, binary, SEARCHES["grid"], finalists=2, verbose=verbose)
        assert words in shown.getvalue() and bool(words) is bool(shown.getvalue())


@pytest.mark.processes
def test_finalists_are_fitted_in_the_searchs_own_workers(
    holdout: LadderHoldout, binary: Any
) -> None:
    grid = clone(SEARCHES["grid"]).set_params(n_jobs=2)
    search = guarded(holdout, binary, grid, finalists=4)
    alone = guarded(holdout, binary, SEARCHES["grid"], finalists=4)
    assert [one.candidate for one in search.finalists_] == [
        one.candidate for one in alone.finalists_
    ]
    assert all(one.repeat_of for one in entries_of(holdout)[len(search.finalists_) :])


class OnItsOwnRows(GuardedSearch):
    """Registers a holdout of the rows that it is fitted on: checks bring rows of their own."""

    _registered = None

    def __init__(self, search: Any = None, finalists: int | str = "auto") -> None:
        super().__init__(search, None, finalists=finalists)

    @property
    def holdout(self) -> Any:
        return self._registered

    @holdout.setter
    def holdout(self, holdout: Any) -> None:
        self._registered = holdout

    def fit(self, X: Any, y: Any = None, **params: Any) -> OnItsOwnRows:
        # The search has to refuse what cannot be searched before anything is registered.
        alone = clone(self.search).fit(X, y, **params)
        scoring = "r2" if is_regressor(alone) else "accuracy"
        held = X.toarray() if hasattr(X, "toarray") else np.array(X)
        labels = np.array(y)
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        ledger = Path(tempfile.mkdtemp()) / "ledger.db"
        self.holdout = LadderHoldout(held, labels, scoring=scoring, ledger=ledger, overlap="ignore")
        return super().fit(X, y, **params)


SEARCHED = (
    GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
    GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2),
)


def checks() -> list[Any]:
    """Those of a regressor that a classifier has as well are nightly."""
    found: list[Any] = []
    known: set[str] = set()
    for search in SEARCHED:
        for estimator, check in estimator_checks_generator(OnItsOwnRows(search)):
            name = getattr(check, "func", check).__name__
            marks = pytest.mark.nightly if name in known else ()
            found.append(pytest.param(estimator, check, marks=marks, id=f"{name}-{len(found)}"))
        known |= {str(one.id).rpartition("-")[0] for one in found}
    return found


@pytest.mark.long
@pytest.mark.parametrize(("estimator", "check"), checks())
def test_the_checks_of_scikit_learn_that_apply_to_searches(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check(clone(estimator.search))
        except Exception:
            pytest.skip("scikit-learn's own search does not pass it")
        check(estimator)


class Changing(GridSearchCV):
    """Changes a parameter when it is made, as GASearchCV of sklearn-genetic-opt 0.12 does."""

    def __init__(self, estimator: Any, param_grid: Any, *, cv: Any = None, refit: Any = True,
                 configs: Any = None) -> None:  # fmt: skip
        super().__init__(estimator, param_grid, cv=cv, refit=refit)
        self.configs = configs or []


def test_a_search_that_cannot_be_cloned_is_copied(holdout: LadderHoldout, binary: Any) -> None:
    search = Changing(tree(), DEPTHS, cv=3)
    with pytest.raises(RuntimeError, match="configs"):
        clone(search)
    guarded = holdout.guard(search).fit(binary.X_train, binary.y_train)
    assert guarded.is_incumbent_ and search.refit is True and not hasattr(search, "cv_results_")


class AllAtOnce(ThreadingBackend):
    """Hands results back all at once, as Ray's backend does."""

    supports_return_generator = False


def test_a_backend_without_generators_fits_the_finalists(
    holdout: LadderHoldout, binary: Any
) -> None:
    register_parallel_backend("all at once", AllAtOnce)
    search = GridSearchCV(tree(), DEPTHS, cv=3)
    with parallel_config("all at once", n_jobs=2):
        guarded = holdout.guard(search, finalists=3).fit(binary.X_train, binary.y_train)
    assert len(guarded.finalists_) == 3 and guarded.is_incumbent_
