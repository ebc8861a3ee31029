"""`GuardedSearch.refit_all`: the winner on all rows, and the end of the holdout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import HoldoutConflict, OverlapError
from ladderholdout.integrations.all_rows import joined

DEPTHS = {"max_depth": [1, 2, 4]}


class Spy(DecisionTreeClassifier):
    """Notes what it is fitted on last, and whether the holdout was retired by then."""

    seen: tuple[Any, ...] = ()
    holdout: LadderHoldout | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Spy:
        assert Spy.holdout is not None
        Spy.seen = (X, y, sample_weight, Spy.holdout.status().retired is not None)
        return super().fit(X, y, sample_weight=sample_weight)


def rows() -> tuple[Any, Any, Any, Any]:
    X, y = make_classification(300, 5, random_state=0)
    return X[:200], np.where(y, "yes", "no")[:200], X[200:], np.where(y, "yes", "no")[200:]


def guarded(form: Any, ledger: Any = "memory", **settings: Any) -> Any:
    X, y, X_holdout, y_holdout = rows()
    holdout = LadderHoldout(
        form(X_holdout), y_holdout, scoring="accuracy", ledger=ledger, **settings
    )
    Spy.holdout = holdout
    search = GridSearchCV(Spy(random_state=0), DEPTHS, cv=3)
    return holdout, holdout.guard(search, finalists=2).fit(form(X), y)


def frame(X: Any) -> Any:
    return pd.DataFrame(X, columns=list("abcde"))


@pytest.mark.parametrize(
    "form",
    [np.asarray, frame, lambda X: pl.DataFrame(X, schema=list("abcde")), scipy.sparse.csr_array],
    ids=["array", "pandas", "polars", "sparse"],
)
def test_the_winner_is_fitted_on_all_rows_before_the_holdout_is_retired(
    form: Any, tmp_path: Path
) -> None:
    X, y, X_holdout, y_holdout = rows()
    holdout, search = guarded(form, tmp_path / "ledger.db")
    before, certified = search.best_estimator_, search.certificate_
    assert not Spy.seen[3] and "fitted on" not in str(search)
    assert search.refit_all(form(X), y) is search
    seen_X, seen_y, weights, was_retired = Spy.seen
    dense = seen_X.toarray() if scipy.sparse.issparse(seen_X) else np.asarray(seen_X)
    assert np.array_equal(dense, np.vstack([X, X_holdout]))
    assert np.array_equal(seen_y, np.concatenate([y, y_holdout]))
    assert weights is None and not was_retired and holdout.status().retired is not None
    assert type(seen_X) is type(form(X))
    assert search.best_estimator_.get_params() == before.get_params()
    assert search.certificate_ == certified and search.is_fitted_on_all_
    assert "they are of the model before" in str(search)
    again = DecisionTreeClassifier(random_state=0, **search.best_params_).fit(
        np.vstack([X, X_holdout]), np.concatenate([y, y_holdout])
    )
    assert np.array_equal(search.predict(form(X)), again.predict(X))
    with pytest.raises(HoldoutConflict):
        holdout.submit(search)
    # What has ended once stays ended, and its rows may be used again.
    assert search.refit_all(form(X), y).is_fitted_on_all_


def test_weights_of_training_rows_go_with_those_of_the_holdout() -> None:
    X, y, _, y_holdout = rows()
    of_holdout = np.linspace(1, 2, len(y_holdout))
    _, search = guarded(np.asarray, sample_weight=of_holdout)
    search.refit_all(X, y, sample_weight=np.full(len(y), 3.0))
    assert np.array_equal(Spy.seen[2], [*np.full(len(y), 3.0), *of_holdout])
    _, search = guarded(np.asarray, overlap="warn")
    search.refit_all(X, y, sample_weight=np.full(len(y), 3.0))
    assert np.array_equal(Spy.seen[2], [*np.full(len(y), 3.0), *np.ones(len(y_holdout))])


def test_categories_and_columns_are_joined_by_name() -> None:
    X, y, X_holdout, y_holdout = rows()

    def form(X: Any) -> pd.DataFrame:
        table = frame(X)
        table["a"] = pd.Categorical.from_codes((X[:, 0] > 0).astype(int), ["left", "right"])
        return table

    holdout = LadderHoldout(form(X_holdout), y_holdout, scoring="accuracy", ledger="memory")
    model = make_column_transformer(("passthrough", ["b", "c"]))
    pipe = make_pipeline(model, LogisticRegression())
    grid = GridSearchCV(pipe, {"logisticregression__C": [0.1, 1.0]}, cv=3)
    search = holdout.guard(grid).fit(form(X), y)
    search.refit_all(form(X)[list("edcba")], y)
    assert list(search.best_estimator_.feature_names_in_) == list("edcba")


@pytest.mark.filterwarnings("ignore:X has feature names:UserWarning")
def test_columns_are_joined_as_the_fit_compared_them() -> None:
    X, y, X_holdout, y_holdout = rows()
    texts = pd.DataFrame(X_holdout, columns=[str(place) for place in range(X.shape[1])])
    holdout = LadderHoldout(texts, y_holdout, scoring="accuracy", ledger="memory")
    grid = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3)
    search = holdout.guard(grid).fit(pd.DataFrame(X), y).refit_all(pd.DataFrame(X), y)
    ends = [*X, *X_holdout], [*y, *y_holdout]
    expected = LogisticRegression(**search.best_params_).fit(*ends)
    assert np.allclose(search.best_estimator_.coef_, expected.coef_)
    # A column that the model does not choose may be in the holdout alone.
    more = frame(X_holdout).assign(more="x")
    holdout = LadderHoldout(more, y_holdout, scoring="accuracy", ledger="memory")
    pipe = make_pipeline(make_column_transformer(("passthrough", ["b"])), LogisticRegression())
    search = holdout.guard(GridSearchCV(pipe, {"logisticregression__C": [1.0]}, cv=3))
    search.fit(frame(X), y).refit_all(frame(X), y)
    assert list(search.best_estimator_.feature_names_in_) == list(frame(X).columns)
    with pytest.raises(InvalidArgument, match="the holdout has no column 'f'"):
        joined("X_train", frame(X).assign(f=1.0), more)


@pytest.mark.parametrize(
    ("X_cut", "y_cut", "weights", "argument"),
    [
        (lambda X: X[:, :3], lambda y: y, None, "X_train"),
        (lambda X: X, lambda y: y[:-1], None, "y_train"),
        (lambda X: X, lambda y: np.column_stack([y, y]), None, "y_train"),
        (lambda X: X, lambda y: y, [1.0], "sample_weight"),
    ],
)
def test_what_does_not_go_together_is_refused_before_the_holdout_ends(
    X_cut: Any, y_cut: Any, weights: Any, argument: str
) -> None:
    X, y, _, y_holdout = rows()
    holdout, search = guarded(np.asarray)
    with pytest.raises(InvalidArgument, match=f"^{argument} must be"):
        search.refit_all(X_cut(X), y_cut(y), sample_weight=weights)
    assert holdout.status().retired is None
    assert holdout.submit(y_holdout).improved


def data(n: int = 300, noise: float = 0.8) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return X, (X[:, 0] + noise * rng.normal(size=n) > 0).astype(int)


def search_on(
    model: Any, X: Any, y: Any, fit: Any = None, **settings: Any
) -> tuple[LadderHoldout, Any]:
    """Return a holdout of the last third of these rows, and a search guarded by it."""
    n = 2 * len(y) // 3
    cut = slice(n, None)
    holdout = LadderHoldout(X[cut], y[cut], scoring="accuracy", ledger="memory", **settings)
    search = GridSearchCV(model, {}, cv=2)
    return holdout, holdout.guard(search, finalists=1).fit(X[:n], y[:n], **(fit or {}))


def test_weights_of_a_step_are_fitted_with_again_or_asked_for() -> None:
    X, y = data()
    w = np.where(y == 1, 9.0, 1.0)
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    name = "logisticregression__sample_weight"
    registered = w[200:] + 1
    for weights, stated, expected in (
        (registered, {}, registered),
        (None, {"fit_params": {name: w}}, w[200:]),
        (None, {"sample_weight": w[:200]}, np.ones(100)),
    ):
        holdout, search = search_on(pipe, X, y, {name: w[:200]}, sample_weight=weights)
        if weights is None:
            with pytest.raises(InvalidArgument, match=f"{name} of the holdout's rows too"):
                search.refit_all(X[:200], y[:200])
            with pytest.raises(InvalidArgument, match="of all 300 rows"):
                search.refit_all(X[:200], y[:200], fit_params={name: w[:200]})
            assert holdout.status().retired is None
        search.refit_all(X[:200], y[:200], **stated)
        again = clone(pipe).fit(X, y, **{name: np.concatenate([w[:200], expected])})
        assert np.allclose(search.predict_proba(X), again.predict_proba(X))


def boosters() -> list[Any]:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    catboost = pytest.importorskip("catboost")
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    stop = {"callbacks": [lightgbm.early_stopping(3, verbose=False)]}
    return [
        (
            lightgbm.LGBMClassifier(num_iterations=60, verbose=-1, n_jobs=1),
            stop,
            lambda model: model.booster_.current_iteration(),
            lambda model: model.best_iteration_,
            {},
        ),
        (
            xgboost.XGBClassifier(n_estimators=60, early_stopping_rounds=3, n_jobs=1),
            {"verbose": False},
            lambda model: model.get_booster().num_boosted_rounds(),
            lambda model: model.best_iteration + 1,
            {"early_stopping_rounds": None},
        ),
        (
            catboost.CatBoostClassifier(iterations=60, depth=2, use_best_model=True, **quiet),
            {"early_stopping_rounds": 3},
            lambda model: model.tree_count_,
            lambda model: model.tree_count_,
            None,
        ),
    ]


@pytest.mark.parametrize("place", range(3), ids=["lightgbm", "xgboost", "catboost"])
def test_rows_to_stop_by_are_left_out_and_the_rounds_stay(place: int) -> None:
    model, fit, rounds, best, off = boosters()[place]
    X, y = data()
    extra, target = data(400)
    rows = (extra[300:], target[300:])
    fit |= {"eval_X": rows[0], "eval_y": rows[1]} if place == 0 else {"eval_set": [rows]}
    _, search = search_on(model, X, y, fit)
    count, before = best(search.best_estimator_), search.best_estimator_
    assert 0 < count < 60
    search.refit_all(X[:200], y[:200])
    assert rounds(search.best_estimator_) == count
    # CatBoost's own rate depends on the rounds.
    if off is None:
        off = {"learning_rate": before.learning_rate_, "use_best_model": False}
    name = "iterations" if place == 2 else "num_iterations" if place == 0 else "n_estimators"
    again = clone(model).set_params(**{name: count}, **off).fit(X, y)
    assert np.allclose(search.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize(
    ("model", "rounds", "off"),
    [
        (
            HistGradientBoostingClassifier(max_iter=40, early_stopping=True, n_iter_no_change=2),
            ("max_iter", "n_iter_"),
            {"early_stopping": False},
        ),
        (
            GradientBoostingClassifier(n_estimators=40, n_iter_no_change=2),
            ("n_estimators", "n_estimators_"),
            {"n_iter_no_change": None},
        ),
        (
            SGDClassifier(max_iter=40, early_stopping=True, n_iter_no_change=2),
            ("max_iter", "n_iter_"),
            {"early_stopping": False, "tol": None},
        ),
    ],
    ids=["histogram", "gradient", "sgd"],
)
def test_a_winner_that_stopped_by_itself_trains_as_long_as_it_did(
    model: Any, rounds: tuple[str, str], off: Any
) -> None:
    X, y = data()
    model = model.set_params(random_state=0)
    pipe = make_pipeline(StandardScaler(), model)
    _, search = search_on(pipe, X, y)
    count = getattr(search.best_estimator_[-1], rounds[1])
    assert count < 40
    search.refit_all(X[:200], y[:200])
    again = make_pipeline(StandardScaler(), clone(model).set_params(**{rounds[0]: count}, **off))
    assert np.array_equal(search.decision_function(X), again.fit(X, y).decision_function(X))


class Patient(LogisticRegression):
    """Takes rows to stop by, and nobody knows what it does with them."""

    def fit(self, X: Any, y: Any, eval_set: Any = None) -> Patient:
        return super().fit(X, y)


def test_rounds_that_nobody_knows_are_asked_for() -> None:
    X, y = data()
    holdout, search = search_on(Patient(), X, y, {"eval_set": [(X[:9] + 1, y[:9])]})
    with pytest.raises(InvalidArgument, match="rounds are known"):
        search.refit_all(X[:200], y[:200])
    assert holdout.status().retired is None
    assert search.refit_all(X[:200], y[:200], fit_params={"eval_set": None}).is_fitted_on_all_


@pytest.mark.parametrize("name", [["c"], [1]])
def test_categorical_features_are_named_again(name: Any) -> None:
    catboost = pytest.importorskip("catboost")
    X, y = data()
    letters = np.array(list("abc"))[np.random.default_rng(1).integers(0, 3, len(y))]
    table = pd.DataFrame({"a": X[:, 0], "c": letters})
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    model = catboost.CatBoostClassifier(iterations=3, depth=2, **quiet)
    _, search = search_on(model, table, y, {"cat_features": name})
    search.refit_all(table[:200], y[:200])
    assert search.best_estimator_.get_cat_feature_indices() == [1]
    again = clone(model).fit(table, y, cat_features=name)
    assert np.allclose(search.predict_proba(table), again.predict_proba(table))


class Grouped(LogisticRegression):
    """Notes the groups that it is fitted with."""

    seen: Any = None

    def fit(self, X: Any, y: Any, groups: Any = None) -> Grouped:
        Grouped.seen = groups
        return super().fit(X, y)


def test_groups_of_the_holdout_go_with_those_of_the_fit() -> None:
    X, y = data()
    groups = np.repeat(np.arange(100), 3)
    groups[200] = 67
    order = np.random.default_rng(2).permutation(np.arange(200, 300))
    order = np.concatenate([np.arange(200), order])
    X, y, groups = X[order], y[order], groups[order]
    with config_context(enable_metadata_routing=True):
        model = Grouped().set_fit_request(groups=True)
        _, search = search_on(model, X, y, {"groups": groups[:200]}, groups=groups[200:])
    search.refit_all(X[:200], y[:200])  # routed as in the fit
    same = groups[:, None] == groups[None, :]
    assert np.array_equal(Grouped.seen[:, None] == Grouped.seen[None, :], same)


class Failing(LogisticRegression):
    """Cannot be fitted on more than 200 rows."""

    def fit(self, X: Any, y: Any) -> Failing:
        if len(y) > 200:
            raise MemoryError("too many rows")
        return super().fit(X, y)


def test_a_fit_that_fails_leaves_the_holdout_as_it_was() -> None:
    X, y = data()
    holdout, search = search_on(Failing(), X, y)
    fitted, status = search.best_estimator_, holdout.status()
    with pytest.raises(MemoryError, match="too many rows") as failed:
        search.refit_all(X[:200], y[:200])
    assert "not retired" in "".join(failed.value.__notes__)
    # No frame holds the holdout's labels.
    frames = [frame.name for frame in failed.traceback]
    assert "fit" not in frames
    assert holdout.status() == status
    assert search.best_estimator_ is fitted and not search.is_fitted_on_all_


def test_the_checks_of_the_first_fit_are_made_again() -> None:
    X, y = data()
    holdout, search = search_on(LogisticRegression(), X, y)
    with pytest.raises(OverlapError, match="100 of the 100 rows"):
        search.refit_all(X, y)
    with pytest.raises(InvalidArgument, match="classes"):
        search.refit_all(X[:200], y[:200] + 1)
    assert holdout.status().retired is None


def test_labels_keep_their_type_and_shape() -> None:
    X, y = data()
    holdout = LadderHoldout(X[200:], y[200:], scoring="accuracy", ledger="memory")
    grid = GridSearchCV(DecisionTreeClassifier(max_depth=1), {}, cv=2)
    search = holdout.guard(grid, finalists=1).fit(X[:200], y[:200, None] == 1)
    search.refit_all(X[:200], y[:200, None] == 1)
    assert search.classes_.tolist() == [False, True] and search.classes_.dtype == bool


def test_columns_keep_their_type_of_the_fit() -> None:
    sizes = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    first = pd.DataFrame(
        {
            "ordered": pd.Series(["low", "high"], dtype=sizes),
            "text": ["a", "b"],
            "flag": [True, False],
            "plain": pd.Series(["p", "q"], dtype="category"),
        }
    )
    second = pd.DataFrame(
        {
            "plain": ["r"],
            "flag": [1],
            "text": pd.Series(["c"], dtype="category"),
            "ordered": pd.Series(["mid"], dtype=pd.CategoricalDtype(["mid"])),
        }
    )
    whole = joined("X_train", first, second)
    assert whole["ordered"].dtype == sizes and whole["ordered"].tolist() == ["low", "high", "mid"]
    assert whole["text"].dtype == first["text"].dtype and whole["flag"].dtype == bool
    assert whole["plain"].cat.categories.tolist() == ["p", "q", "r"]
    assert not whole["plain"].cat.ordered and list(whole.columns) == list(first.columns)
    with pytest.raises(InvalidArgument, match="column 'ordered' has ordered categories"):
        joined("X_train", first, second.assign(ordered=["huge"]))
    # Tables, arrays and matrices of the same columns go together in the form of the fit.
    numbers = pd.DataFrame({"a": [1.0], "b": [2.0]})
    assert joined("X_train", numbers, np.array([[3.0, 4.0]])).to_numpy().tolist() == [
        [1, 2],
        [3, 4],
    ]
    assert joined("X_train", scipy.sparse.csc_array(numbers), np.eye(2)).format == "csc"
    assert joined("X_train", numbers.to_numpy(), scipy.sparse.eye_array(2)).shape == (3, 2)
    texts = joined("X_train", pd.Series(["a b"]), np.array(["c"], dtype=object))
    assert isinstance(texts, pd.Series) and texts.tolist() == ["a b", "c"]


def test_columns_of_polars_keep_their_type_of_the_fit() -> None:
    sizes = pl.Enum(["low", "high"])
    first = pl.DataFrame(
        {"a": [1.5], "b": [1], "c": ["low"]}, schema={"a": pl.Float32, "b": pl.Int32, "c": sizes}
    )
    second = pl.DataFrame({"c": ["high"], "b": [2], "a": [0.1]})
    whole = joined("X_train", first, second)
    assert whole.schema == {"a": pl.Float64, "b": pl.Int32, "c": sizes}
    assert whole.rows() == [(1.5, 1, "low"), (0.1, 2, "high")]
    with pytest.raises(InvalidArgument, match="column 'c' is Enum"):
        joined("X_train", first, second.with_columns(c=pl.lit("huge")))
    assert joined("X_train", first, second.to_pandas()).schema == whole.schema
