"""Attacks the guard inside scikit-learn: its searches, inputs, workers, routing and pickles."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from joblib import parallel_config
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.metrics import accuracy_score, get_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    KFold,
    PredefinedSplit,
    RandomizedSearchCV,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from ladderholdout.errors import NotConsultedWarning, OverlapError
from ladderholdout.mechanisms import FullDisclosure
from tests.support.holdouts import repeats
from tests.support.ledgers import entries_of

WORKERS = [("loky", 2), ("threading", 2)]
JOBS = [1, pytest.param(2, marks=pytest.mark.processes)]
DEPTHS = {"max_depth": [1, 2, 4]}
Open = Callable[..., LadderHoldout]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def make(X: Any, y: Any, scoring: str = "accuracy", **wishes: Any) -> LadderHoldout:
        wishes = {"ledger": tmp_path / "ledger.db", **wishes}
        return LadderHoldout(X, y, scoring=scoring, **wishes)

    return make


@pytest.fixture
def holdout(binary: Any, opened: Open) -> LadderHoldout:
    return opened(binary.X_holdout, binary.y_holdout)


@pytest.fixture
def disclosing(binary: Any, opened: Open) -> LadderHoldout:
    """A guard that tells the truth, to compare with."""
    return opened(binary.X_holdout, binary.y_holdout, mechanism=FullDisclosure())


def tree(**wishes: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0, **wishes)


def looks(holdout: LadderHoldout) -> int:
    return holdout.status().submissions


# -- wherever scoring= is taken ------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), WORKERS)
def test_every_tool_that_takes_scoring_asks_once_for_each_model(
    disclosing: LadderHoldout, binary: Any, backend: str, jobs: int
) -> None:
    X, y = binary.X_train, binary.y_train
    guarded = {"scoring": disclosing, "cv": disclosing.split()}
    depths = DEPTHS["max_depth"]
    truth = [
        accuracy_score(binary.y_holdout, tree(max_depth=d).fit(X, y).predict(binary.X_holdout))
        for d in depths
    ]
    with parallel_config(backend, n_jobs=jobs):
        grid = GridSearchCV(tree(), DEPTHS, return_train_score=True, **guarded).fit(X, y)
        assert grid.cv_results_["mean_test_score"] == pytest.approx(truth, abs=1e-12)
        assert looks(disclosing) == 3

        found = cross_validate(tree(max_depth=4), X, y, return_train_score=True, **guarded)
        assert found["test_score"] == pytest.approx(truth[2:], abs=1e-12)
        assert found["train_score"] == pytest.approx(tree(max_depth=4).fit(X, y).score(X, y))
        assert looks(disclosing) == 4

        scores = cross_val_score(tree(max_depth=2), X, y, **guarded)
        assert scores == pytest.approx(truth[1:2], abs=1e-12)

        train, test = validation_curve(
            tree(), X, y, param_name="max_depth", param_range=depths, **guarded
        )
        assert test.ravel() == pytest.approx(truth, abs=1e-12)
        assert train.ravel() == pytest.approx(grid.cv_results_["mean_train_score"])
        assert looks(disclosing) == 8

        sizes, _, test = learning_curve(tree(max_depth=4), X, y, train_sizes=[0.5, 1.0], **guarded)
        assert sizes.tolist() == [len(X) // 2, len(X)]
        assert test[1] == pytest.approx(truth[2:], abs=1e-12)
        assert looks(disclosing) == 10

        curve = learning_curve(
            SGDClassifier(random_state=0),
            X,
            y,
            train_sizes=[0.5, 1.0],
            exploit_incremental_learning=True,
            **guarded,
        )
        assert np.isfinite(curve[2]).all()
        assert looks(disclosing) == 12

        random = RandomizedSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression()),
            {"logisticregression__C": loguniform(1e-3, 1e2)},
            n_iter=4,
            random_state=0,
            **guarded,
        ).fit(X, y)
    assert looks(disclosing) == 16
    assert random.best_score_ == random.cv_results_["mean_test_score"].max()


def in_process(cases: list[Any]) -> list[Any]:
    """Each case with one job, which starts no process."""
    return [pytest.param(case, 1) for case in cases]


def in_workers(case: Any) -> Any:
    """One case with two workers of loky: they get a search whatever it is of."""
    return pytest.param(case, 2, marks=pytest.mark.processes)


CLASSIFICATION = ["accuracy", "roc_auc", "neg_log_loss", "f1_macro", "balanced_accuracy"]
REGRESSION = ["r2", "neg_mean_squared_error", "neg_mean_absolute_error"]


@pytest.mark.parametrize(("name", "jobs"), [*in_process(CLASSIFICATION), in_workers("roc_auc")])
def test_inner_folds_and_training_scores_are_those_of_scikit_learn(
    opened: Open, binary: Any, name: str, jobs: int
) -> None:
    holdout = opened(binary.X_holdout, binary.y_holdout, name)
    values = {"max_depth": [1, 3], "min_samples_leaf": [5, 40]}
    compare_with_plain(holdout, tree(), values, binary.X_train, binary.y_train, jobs)
    assert looks(holdout) == 4


@pytest.mark.parametrize(("name", "jobs"), [*in_process(REGRESSION), in_workers("r2")])
def test_also_in_regression(opened: Open, name: str, jobs: int) -> None:
    X, y = load_diabetes(return_X_y=True)
    holdout = opened(X[:150], y[:150], name)
    model = make_pipeline(StandardScaler(), Ridge())
    compare_with_plain(holdout, model, {"ridge__alpha": [1e-3, 10, 1e5]}, X[150:], y[150:], jobs)
    assert looks(holdout) == 3


def compare_with_plain(
    holdout: LadderHoldout, model: Any, values: Any, X: Any, y: Any, jobs: int
) -> None:
    settings = {"return_train_score": True, "n_jobs": jobs}
    ours = GridSearchCV(
        model,
        values,
        scoring=holdout,
        cv=holdout.split(inner=3),
        refit=holdout.select,
        **settings,
    ).fit(X, y)
    plain = GridSearchCV(model, values, scoring=holdout.metric.name, cv=3, **settings).fit(X, y)
    for side in ("train", "test"):
        for fold in range(3):
            column = f"split{fold}_{side}_score"
            assert ours.cv_results_[column] == pytest.approx(plain.cv_results_[column], abs=1e-9)
    told = ours.cv_results_["split3_test_score"]
    assert told.max() == told[ours.best_index_] == holdout.status().score
    new = X[:30], y[:30]
    expected = get_scorer(holdout.metric.name)(ours.best_estimator_, *new)
    assert ours.score(*new) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("jobs", JOBS)
def test_one_handle_in_a_dictionary_of_scorers(
    holdout: LadderHoldout, binary: Any, jobs: int
) -> None:
    search = GridSearchCV(
        tree(),
        DEPTHS,
        scoring={"held": holdout},
        cv=holdout.split(),
        refit="held",
        n_jobs=jobs,
        return_train_score=True,
    ).fit(binary.X_train, binary.y_train)
    assert search.best_score_ == holdout.status().score
    found = cross_validate(
        tree(max_depth=2),
        binary.X_train,
        binary.y_train,
        scoring={"held": holdout},
        cv=holdout.split(),
        n_jobs=jobs,
    )
    assert found["test_held"] == search.cv_results_["mean_test_held"][1]
    assert [one.repeat_of is None for one in entries_of(holdout)] == [True, True, True, False]


@pytest.mark.parametrize("jobs", JOBS)
def test_two_metrics_of_one_holdout_in_a_dictionary(
    holdout: LadderHoldout, opened: Open, binary: Any, jobs: int
) -> None:
    with pytest.warns(UserWarning, match="count together"):
        area = opened(binary.X_holdout, binary.y_holdout, "roc_auc", ladder="area")
    search = GridSearchCV(
        tree(),
        DEPTHS,
        scoring={"hits": holdout, "area": area},
        cv=holdout.split(inner=3),
        refit=area.select,
        n_jobs=jobs,
    ).fit(binary.X_train, binary.y_train)
    plain = GridSearchCV(
        tree(), DEPTHS, scoring=["accuracy", "roc_auc"], cv=3, refit=False, n_jobs=jobs
    ).fit(binary.X_train, binary.y_train)
    for fold in range(3):
        for ours, theirs in {"hits": "accuracy", "area": "roc_auc"}.items():
            assert search.cv_results_[f"split{fold}_test_{ours}"] == pytest.approx(
                plain.cv_results_[f"split{fold}_test_{theirs}"]
            )
    assert search.cv_results_["split3_test_hits"].max() == holdout.status().score
    assert search.cv_results_["split3_test_area"].max() == area.status().score
    assert looks(holdout) == looks(area) == 3


@pytest.mark.parametrize("jobs", JOBS)
def test_what_the_guard_cannot_judge_stops_the_search(opened: Open, binary: Any, jobs: int) -> None:
    loss = opened(binary.X_holdout, binary.y_holdout, "neg_log_loss")
    search = GridSearchCV(
        SVC(), {"C": [1, 10]}, scoring=loss, cv=loss.split(), n_jobs=jobs, error_score=np.nan
    )
    with pytest.raises(SearchStopped, match="predict_proba"):
        search.fit(binary.X_train, binary.y_train)
    assert looks(loss) == 0


# -- input of every kind -------------------------------------------------------------------


def frames(seed: int) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {
            "age": rng.integers(18, 90, 240).astype(float),
            "income": rng.lognormal(10, 1, 240),
            "town": rng.choice(["Bern", "Oslo", "Rome"], 240),
        }
    )
    rows.loc[rng.choice(240, 9, replace=False), "town"] = "Bonn"
    rich = rows["income"] * np.where(rows["town"] == "Oslo", 2, 1) > 25_000
    return rows, pd.Series(np.where(rich, "yes", "no"), name="buys")


@pytest.mark.parametrize("jobs", JOBS)
def test_pandas_frames_with_columns_by_name(opened: Open, jobs: int) -> None:
    (X, y), (X_held, y_held) = frames(1), frames(2)
    holdout = opened(X_held, y_held)
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["age", "income"]), ("towns", OneHotEncoder(), ["town"])]
    )
    search = GridSearchCV(
        make_pipeline(columns, LogisticRegression()),
        {"logisticregression__C": [1e-6, 1.0], "columntransformer__towns__drop": [None, "first"]},
        scoring=holdout,
        cv=holdout.split(inner=2),
        refit=holdout.select,
        n_jobs=jobs,
    ).fit(X, y)
    assert looks(holdout) == 4
    assert search.best_params_["logisticregression__C"] == 1.0
    assert search.score(X, y) == pytest.approx(accuracy_score(y, search.predict(X)))
    assert looks(holdout) == 4
    shuffled = X_held.sample(frac=1, random_state=0)
    holdout(search, shuffled, y_held[shuffled.index])
    assert looks(holdout) == 5


@pytest.mark.parametrize("jobs", [1])
def test_sparse_rows(opened: Open, binary: Any, jobs: int) -> None:
    scaler = StandardScaler().fit(binary.X_train)
    full = [scaler.transform(X) for X in (binary.X_train, binary.X_holdout)]
    thin = [np.where(np.abs(X) > 0.2, X, 0) for X in full]
    for form in (scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.csc_matrix):
        train, held = map(form, thin)
        holdout = opened(held, binary.y_holdout)
        search = GridSearchCV(
            LogisticRegression(max_iter=1000),
            {"C": [1e-4, 1]},
            scoring=holdout,
            cv=holdout.split(inner=2),
            refit=holdout.select,
            n_jobs=jobs,
        ).fit(train, binary.y_train)
        assert search.score(train, binary.y_train) > 0.9
        assert search.best_params_ == {"C": 1}
    assert looks(holdout) == 6
    assert repeats(holdout) == 4


@pytest.mark.parametrize(("form", "jobs"), [*in_process([list, pd.Series]), in_workers(np.array)])
def test_texts(opened: Open, form: Callable[[Any], Any], jobs: int) -> None:
    def letters(seed: int) -> tuple[list[str], list[str]]:
        rng = np.random.default_rng(seed)
        words = {"dull": ["grey", "slow", "rain"], "fine": ["sun", "sea", "slow"]}
        labels = rng.choice(list(words), 80).tolist()
        texts = [" ".join(rng.choice(words[one], 6)) for one in labels]
        return [f"{text} {seed} {i}" for i, text in enumerate(texts)], labels

    (X, y), (X_held, y_held) = letters(1), letters(2)
    holdout = opened(form(X_held), y_held)
    search = GridSearchCV(
        make_pipeline(TfidfVectorizer(), LogisticRegression()),
        {"tfidfvectorizer__ngram_range": [(1, 1), (1, 2)]},
        scoring=holdout,
        cv=holdout.split(inner=2),
        refit=holdout.select,
        n_jobs=jobs,
    ).fit(form(X), y)
    assert search.score(form(X), y) > 0.9
    assert looks(holdout) == 2


# -- the folds -----------------------------------------------------------------------------


def same_folds(ours: Any, theirs: Any, n: int) -> bool:
    *inner, (rows, none) = ours
    pairs = list(zip(inner, theirs, strict=True))
    equal = all(np.array_equal(a[i], b[i]) for a, b in pairs for i in (0, 1))
    return equal and np.array_equal(rows, np.arange(n)) and none.tolist() == []


SPLITTERS: list[Any] = [
    2,
    np.int64(5),
    KFold(3, shuffle=True, random_state=1),
    RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
    TimeSeriesSplit(3),
    PredefinedSplit(np.arange(284) % 3),
    [(np.arange(100), np.arange(100, 150)), (np.arange(150), np.arange(200, 284))],
]


def test_inner_folds_are_those_of_the_splitter(holdout: LadderHoldout, binary: Any) -> None:
    X, y = binary.X_train, binary.y_train
    for inner in SPLITTERS:
        expected = StratifiedKFold(int(inner)) if isinstance(inner, int | np.integer) else inner
        expected = expected if isinstance(expected, list) else list(expected.split(X, y))
        cv = holdout.split(inner=inner)
        assert cv.get_n_splits(X, y) == len(expected) + 1, inner
        for _ in range(2):
            assert same_folds(cv.split(X, y), expected, len(X)), inner
        unguarded = holdout.split(inner=inner, guarded=False)
        assert unguarded.get_n_splits(X, y) == len(expected), inner
        assert len(list(unguarded.split(X, y))) == len(expected), inner


def test_a_generator_of_folds_serves_more_than_one_search(
    holdout: LadderHoldout, binary: Any
) -> None:
    X, y = binary.X_train, binary.y_train
    cv = holdout.split(inner=KFold(3).split(X))
    for _ in range(2):
        assert same_folds(cv.split(X, y), KFold(3).split(X), len(X))


def test_a_regression_holdout_has_plain_inner_folds(opened: Open) -> None:
    X, y = load_diabetes(return_X_y=True)
    holdout = opened(X[:100], y[:100], "r2")
    classes = (y[100:] > 100).astype(int)  # even where the targets look like classes
    assert same_folds(holdout.split(inner=4).split(X[100:], classes), KFold(4).split(X[100:]), 342)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.GroupedRowsWarning")
@pytest.mark.parametrize("routing", [False, True])
def test_groups_reach_the_inner_splitter(
    holdout: LadderHoldout, binary: Any, routing: bool
) -> None:
    X, y, groups = binary.X_train, binary.y_train, np.arange(284) // 10
    folds = list(GroupKFold(4).split(X, y, groups))
    assert same_folds(holdout.split(inner=GroupKFold(4)).split(X, y, groups), folds, 284)
    cv = holdout.split(inner=GroupKFold(4))
    search = GridSearchCV(tree(), DEPTHS, scoring=holdout, cv=cv, refit=False)
    plain = GridSearchCV(tree(), DEPTHS, scoring="accuracy", cv=GroupKFold(4))
    with sklearn.config_context(enable_metadata_routing=routing):
        search.fit(X, y, groups=groups)
        plain.fit(X, y, groups=groups)
        for fold in range(4):
            column = f"split{fold}_test_score"
            assert search.cv_results_[column] == pytest.approx(plain.cv_results_[column])
    assert looks(holdout) == 3


def test_what_makes_no_folds_is_refused_at_once(holdout: LadderHoldout) -> None:
    taken = []
    for inner in (1, -1, True, False, None, "five", 2.5, object):
        for guarded in (True, False):
            try:
                holdout.split(inner=inner, guarded=guarded)
            except InvalidArgument as refused:
                if "inner must be at least 2 folds" in str(refused):
                    continue
            taken.append((inner, guarded))
    assert taken == []


def test_no_folds_at_all_are_refused(holdout: LadderHoldout) -> None:
    with pytest.raises(InvalidArgument, match="inner"):
        holdout.split(guarded=False)


# -- Halving -------------------------------------------------------------------------------


HALVING = [
    lambda **wishes: HalvingGridSearchCV(tree(), DEPTHS, **wishes),
    lambda **wishes: HalvingRandomSearchCV(tree(), DEPTHS, n_candidates=3, **wishes),
]


@pytest.mark.parametrize("halving", HALVING)
@pytest.mark.parametrize("inner", [0, 3])
def test_halving_is_told_to_search_on_inner_folds_only(
    holdout: LadderHoldout, binary: Any, halving: Any, inner: int
) -> None:
    search = halving(scoring=holdout, cv=holdout.split(inner=inner), random_state=0)
    with pytest.raises(InvalidArgument, match=r"(?s)inner folds.*guarded=False.*submit"):
        search.fit(binary.X_train, binary.y_train)
    assert looks(holdout) == 0


@pytest.mark.processes
@pytest.mark.parametrize("halving", HALVING)
@pytest.mark.parametrize("jobs", [1, 2])
def test_halving_on_inner_folds_then_asks_once(
    holdout: LadderHoldout, binary: Any, halving: Any, jobs: int
) -> None:
    plain = halving(scoring="accuracy", cv=5, random_state=0, n_jobs=jobs)
    expected = plain.fit(binary.X_train, binary.y_train).cv_results_["mean_test_score"]
    for cv in (holdout.split(inner=5, guarded=False), 5):
        search = halving(scoring=holdout, cv=cv, random_state=0, n_jobs=jobs)
        search.fit(binary.X_train, binary.y_train)
        assert search.cv_results_["mean_test_score"] == pytest.approx(expected)
    assert looks(holdout) == 0
    assert holdout.submit(search).improved
    assert looks(holdout) == 1


# -- the scorer rule -----------------------------------------------------------------------


def test_rows_of_ones_own_cost_no_look(holdout: LadderHoldout, binary: Any) -> None:
    holdout.split()
    model = tree(max_depth=3).fit(binary.X_train, binary.y_train)
    for X, y in [(binary.X_test, binary.y_test), (binary.X_train, binary.y_train)]:
        for rows in (slice(None), slice(7), slice(1)):
            expected = accuracy_score(y[rows], model.predict(X[rows]))
            assert holdout(model, X[rows], y[rows]) == pytest.approx(expected)
    assert looks(holdout) == 0


def test_the_empty_fold_and_the_holdout_itself_are_looks(
    disclosing: LadderHoldout, binary: Any
) -> None:
    X, y = binary.X_holdout, binary.y_holdout
    model = tree(max_depth=3).fit(binary.X_train, binary.y_train)
    truth = accuracy_score(y, model.predict(X))
    order = np.random.default_rng(0).permutation(len(X))
    asked = [
        (X[:0], y[:0]),
        (pd.DataFrame(X).iloc[:0], y[:0]),
        (scipy.sparse.csr_array(X)[:0], None),
        (X, y),
        (X, None),
        (X[order], y[order]),
        (pd.DataFrame(X), pd.Series(y)),
        (X.tolist(), y.tolist()),
        (np.asfortranarray(X), y),
    ]
    for rows, labels in asked:
        assert disclosing(model, rows, labels) == pytest.approx(truth, abs=1e-12)
    assert looks(disclosing) == len(asked)
    assert repeats(disclosing) == len(asked) - 1


HIDDEN: list[Callable[[Any, Any], Any]] = [
    lambda own, held: held[:71],
    lambda own, held: held[:1],
    lambda own, held: held[1:],
    lambda own, held: np.vstack([held, held]),
    lambda own, held: np.vstack([held[1:], held[1:2]]),
    lambda own, held: np.vstack([own, held]),
    lambda own, held: np.vstack([held[:80], own]),
    lambda own, held: np.random.default_rng(0).permutation(np.vstack([own, held])),
    lambda own, held: np.vstack([*(own + i for i in range(99)), held, own]),
    lambda own, held: np.random.default_rng(1).permutation(
        np.vstack([held, *(own + i for i in range(200))])
    ),
]


def test_a_part_of_the_holdout_or_all_of_it_among_other_rows_is_refused(
    holdout: LadderHoldout, binary: Any
) -> None:
    holdout.split()
    model = tree(max_depth=3).fit(binary.X_train, binary.y_train)
    scored = []
    for number, hide in enumerate(HIDDEN):
        rows = hide(binary.X_train, binary.X_holdout)
        for X in (rows, pd.DataFrame(rows)) if number < 2 else (rows,):
            try:
                holdout(model, X, np.zeros(len(X), dtype=int))
            except SearchStopped as refused:
                if "holdout's" in str(refused):
                    continue
            scored.append((number, type(X)))
    assert scored == []
    assert looks(holdout) == 0


@pytest.mark.parametrize("jobs", JOBS)
def test_a_search_on_rows_that_hold_the_holdout_stops(
    holdout: LadderHoldout, binary: Any, jobs: int
) -> None:
    X = np.vstack([binary.X_train, binary.X_holdout])
    y = np.concatenate([binary.y_train, binary.y_holdout])
    with pytest.raises(OverlapError, match="142 of the 142"):
        GridSearchCV(tree(), DEPTHS, scoring=holdout, cv=holdout.split(), n_jobs=jobs).fit(X, y)
    parts = PredefinedSplit([-1] * len(binary.X_train) + [0] * 142)
    search = GridSearchCV(tree(), DEPTHS, scoring=holdout, cv=parts, n_jobs=jobs)
    search.fit(X, y)  # the holdout itself as the test fold: three looks
    assert looks(holdout) == 3
    with pytest.raises(SearchStopped, match="holdout's"):
        search.set_params(return_train_score=True, cv=KFold(2)).fit(X, y)
    assert looks(holdout) == 3


def test_a_few_equal_rows_are_honest(holdout: LadderHoldout, binary: Any) -> None:
    holdout.split()
    model = tree(max_depth=3).fit(binary.X_train, binary.y_train)
    for few in (1, 20, 70):
        X = np.vstack([binary.X_test, binary.X_holdout[:few]])
        y = np.concatenate([binary.y_test, binary.y_holdout[:few]])
        assert holdout(model, X, y) == pytest.approx(accuracy_score(y, model.predict(X)))
    assert looks(holdout) == 0


@pytest.mark.processes
def test_where_rows_look_alike_their_owner_can_say_so(opened: Open) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (600, 4))  # sixteen different rows
    y = X[:, 0] ^ (rng.random(600) < 0.1)
    wary = opened(X[:200], y[:200])
    with pytest.raises(OverlapError, match='overlap="warn"'):
        list(wary.split(inner=3).split(X[200:], y[200:]))
    model = tree().fit(X[200:], y[200:])
    with pytest.raises(SearchStopped, match='overlap="warn"'):
        wary(model, X[200:], y[200:])
    calm = opened(X[:200], y[:200], overlap="ignore")
    search = GridSearchCV(
        tree(),
        DEPTHS,
        scoring=calm,
        cv=calm.split(inner=3),
        refit=calm.select,
        return_train_score=True,
        n_jobs=2,
    ).fit(X[200:], y[200:])
    assert search.score(X[200:], y[200:]) == pytest.approx(
        search.best_estimator_.score(X[200:], y[200:])
    )
    assert looks(calm) == 3
    calm(model, X[:200], y[:200])
    assert looks(calm) == 4


# -- the reminder --------------------------------------------------------------------------


def test_a_search_that_never_asks_is_reminded_once(holdout: LadderHoldout, binary: Any) -> None:
    X, y = binary.X_train, binary.y_train
    with pytest.warns(NotConsultedWarning, match=r"cv=holdout\.split\(\)") as said:
        GridSearchCV(tree(), DEPTHS, scoring=holdout, cv=3).fit(X, y)
        cross_val_score(tree(), X, y, scoring=holdout)
    assert len(said) == 1
    assert looks(holdout) == 0


def test_nobody_is_reminded_who_opened_a_split(holdout: LadderHoldout, binary: Any) -> None:
    holdout.split()
    cross_val_score(tree(), binary.X_train, binary.y_train, scoring=holdout)
    again = LadderHoldout.open(holdout.name, ledger=holdout.ledger)
    cross_val_score(tree(), binary.X_train, binary.y_train, scoring=again)


WORKERS_REMINDED = """
import sys
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier
from ladderholdout import LadderHoldout

X, y = load_iris(return_X_y=True)
for state in ("opened", "never"):
    ledger = f"{sys.argv[1]}-{state}.db"
    holdout = LadderHoldout(X[::2], y[::2], scoring="accuracy", ledger=ledger, overlap="ignore")
    if state == "opened":
        holdout.split()
    cross_val_score(DecisionTreeClassifier(), X[1::2], y[1::2], scoring=holdout, n_jobs=2)
    print("-- searched --", file=sys.stderr, flush=True)
"""


@pytest.mark.processes
def test_workers_of_loky_know_whether_a_split_was_opened(tmp_path: Path) -> None:
    said = run(WORKERS_REMINDED, tmp_path / "ledger").stderr.split("-- searched --")
    assert ["NotConsultedWarning" in one for one in said] == [False, True, False]


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


# -- weights and metadata routing ----------------------------------------------------------


def weights(n: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(0.1, 5, n)


@pytest.mark.parametrize(("multimetric", "jobs"), [*in_process([False, True]), in_workers(False)])
def test_routed_weights_reach_the_inner_folds_and_leave_the_guarded_one_alone(
    disclosing: LadderHoldout, binary: Any, multimetric: bool, jobs: int
) -> None:
    X, y, w = binary.X_train, binary.y_train, weights(284)
    values = {"C": [1e-7, 1e-3]}
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = get_scorer("accuracy").set_score_request(sample_weight=True)
        model = LogisticRegression(solver="liblinear").set_fit_request(sample_weight=True)
        disclosing.set_score_request(sample_weight=True)
        ours, theirs = disclosing, scorer
        if multimetric:
            ours, theirs = {"score": disclosing}, {"score": scorer}
        cv, refit = disclosing.split(inner=3), disclosing.select
        search = GridSearchCV(model, values, scoring=ours, cv=cv, refit=refit, n_jobs=jobs)
        search.fit(X, y, sample_weight=w)
        plain = GridSearchCV(model, values, scoring=theirs, cv=3, refit=False, n_jobs=jobs)
        plain.fit(X, y, sample_weight=w)
        for fold in range(3):
            column = f"split{fold}_test_score"
            assert search.cv_results_[column] == pytest.approx(plain.cv_results_[column])
        for at, C in enumerate(values["C"]):
            fitted = clone(model).set_params(C=C).fit(X, y, sample_weight=w)
            truth = fitted.score(binary.X_holdout, binary.y_holdout)
            assert search.cv_results_["split3_test_score"][at] == pytest.approx(truth)
        if not multimetric:
            expected = scorer(search.best_estimator_, X, y, sample_weight=w)
            assert search.score(X, y, sample_weight=w) == pytest.approx(expected)


def test_routed_weights_in_cross_validate(disclosing: LadderHoldout, binary: Any) -> None:
    X, y, w = binary.X_train, binary.y_train, weights(284)
    model = tree(max_depth=2)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True)
        found = [
            cross_validate(
                model,
                X,
                y,
                scoring=scorer.set_score_request(sample_weight=True),
                cv=cv,
                params={"sample_weight": w},
            )["test_score"]
            for scorer, cv in [(disclosing, disclosing.split(inner=3)), (get_scorer("accuracy"), 3)]
        ]
    assert found[0][:3] == pytest.approx(found[1])
    truth = model.fit(X, y, sample_weight=w).score(binary.X_holdout, binary.y_holdout)
    assert found[0][3] == pytest.approx(truth)


def test_weights_that_nobody_asked_for_are_refused_by_scikit_learn_itself(
    holdout: LadderHoldout, binary: Any
) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = tree().set_fit_request(sample_weight=True)
        cv = holdout.split(inner=3)
        search = GridSearchCV(model, DEPTHS, scoring=holdout, cv=cv, refit=holdout.select)
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            search.fit(binary.X_train, binary.y_train, sample_weight=weights(284))
        holdout.set_score_request(sample_weight=False)
        search.fit(binary.X_train, binary.y_train, sample_weight=weights(284))
        plain = GridSearchCV(
            model,
            DEPTHS,
            scoring=get_scorer("accuracy").set_score_request(sample_weight=False),
            cv=3,
        ).fit(binary.X_train, binary.y_train, sample_weight=weights(284))
    column = "split0_test_score"
    assert search.cv_results_[column] == pytest.approx(plain.cv_results_[column])
    assert looks(holdout) == 3


@pytest.mark.parametrize(("multimetric", "jobs"), [*in_process([False]), in_workers(True)])
def test_without_routing_weights_reach_the_fit_and_the_inner_folds_too(
    disclosing: LadderHoldout, binary: Any, multimetric: bool, jobs: int
) -> None:
    X, y, w = binary.X_train, binary.y_train, weights(284)
    settings = {"refit": False, "n_jobs": jobs}
    searches = [
        GridSearchCV(
            tree(), DEPTHS, scoring={"score": scorer} if multimetric else scorer, cv=cv, **settings
        ).fit(X, y, sample_weight=w)
        for scorer, cv in [(disclosing, disclosing.split(inner=3)), (get_scorer("accuracy"), 3)]
    ]
    ours, plain = (search.cv_results_ for search in searches)
    for fold in range(3):
        assert ours[f"split{fold}_test_score"] == pytest.approx(plain[f"split{fold}_test_score"])
    for at, depth in enumerate(DEPTHS["max_depth"]):
        fitted = tree(max_depth=depth).fit(X, y, sample_weight=w)
        truth = fitted.score(binary.X_holdout, binary.y_holdout)
        assert ours["split3_test_score"][at] == pytest.approx(truth)


# -- copies --------------------------------------------------------------------------------


def test_the_page_of_a_search_shows_the_guard_and_none_of_its_rows(
    holdout: LadderHoldout, binary: Any
) -> None:
    cv = holdout.split(inner=2)
    search = GridSearchCV(tree(), DEPTHS, scoring=holdout, cv=cv, refit=holdout.select)
    for shown in (search, search.fit(binary.X_train, binary.y_train)):
        page = shown._repr_html_()
        assert "LadderHoldout" in page
        assert len(page) < 100_000
        assert "LadderHoldout" in repr(shown)


def test_a_clone_goes_on_with_the_same_ladder(holdout: LadderHoldout, binary: Any) -> None:
    search = GridSearchCV(tree(), DEPTHS, scoring=holdout, cv=holdout.split())
    copy = clone(search)
    assert copy.scoring is holdout
    search.fit(binary.X_train, binary.y_train)
    copy.fit(binary.X_train, binary.y_train)
    assert looks(holdout) == 6
    assert repeats(holdout) == 3
    assert np.array_equal(
        copy.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"]
    )


ELSEWHERE = """
import pickle, sys, warnings
warnings.simplefilter("error")
search, X, y = pickle.load(open(sys.argv[1], "rb"))
print(repr(float(search.score(X, y))))
holdout = search.scorer_
assert holdout.status().submissions == 3
holdout(search.best_estimator_, X[:0], y[:0])
search.set_params(n_jobs=2).fit(X, y)
print(holdout.status().submissions)
"""


@pytest.mark.processes
def test_a_fitted_search_goes_on_in_another_process(
    holdout: LadderHoldout, binary: Any, tmp_path: Path
) -> None:
    search = GridSearchCV(
        tree(),
        DEPTHS,
        scoring=holdout,
        cv=holdout.split(),
    ).fit(binary.X_train, binary.y_train)
    expected = search.score(binary.X_test, binary.y_test)
    path = tmp_path / "search.pickle"
    path.write_bytes(pickle.dumps((search, binary.X_test, binary.y_test)))
    score, submissions = run(ELSEWHERE, path).stdout.split()
    assert (float(score), int(submissions)) == (expected, 7)
    assert looks(holdout) == 7
    assert entries_of(holdout)[3].repeat_of is not None


# -- HistGradientBoosting ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["real", "uint8"])
def test_hist_gradient_boosting_may_not_stop_by_the_holdout(
    opened: Open, binary: Any, kind: str
) -> None:
    # In mid-fit it hands the scorer binned rows, which pass for those of a small holdout.
    X, y = binary.X_train, binary.y_train
    held = binary.X_holdout, binary.y_holdout
    if kind == "uint8":
        X, y = load_digits(return_X_y=True)
        X, y = X.astype(np.uint8), y > 4
        X, y, held = X[500:], y[500:], (X[:500], y[:500])
    holdout = opened(*held)
    holdout.split()
    model = HistGradientBoostingClassifier(scoring=holdout, early_stopping=True, max_iter=9)
    with pytest.raises(SearchStopped, match=r"integrations\.staged\.ladder_stopping"):
        model.fit(X, y)
    values, cv = {"learning_rate": [0.01, 0.3]}, holdout.split(inner=2)
    search = GridSearchCV(model, values, scoring=holdout, cv=cv, refit=holdout.select)
    with pytest.raises(SearchStopped, match=r"integrations\.staged\.ladder_stopping"):
        search.fit(X, y)
    assert looks(holdout) == 0
    # Its own rows, scored by its own metric, are its own business.
    own = clone(model).set_params(scoring="loss").fit(X, y)
    assert holdout.submit(own).improved


@pytest.mark.filterwarnings("ignore:refit=True refits candidate 0, which is not the incumbent")
def test_a_diverged_incumbent_does_not_stop_the_search(opened: Open) -> None:
    # Beside a score of -1e40 one step of the grid is lost in the last digit.
    X, y = load_diabetes(return_X_y=True)
    holdout = opened(X[:100], y[:100], scoring="r2")
    assert holdout.submit(y[:100] + 1e22).score < -1e39
    search = GridSearchCV(Ridge(), {"alpha": [1.0]}, scoring=holdout, cv=holdout.split())
    assert search.fit(X[100:], y[100:] * 1e25).cv_results_["split0_test_score"][0] < -1e39
    assert search.fit(X[100:], y[100:]).best_score_ == holdout.status().score
