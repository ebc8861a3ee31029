"""`GuardedSearch.refit_all`: the winner on all rows, and the end of the holdout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import HoldoutConflict

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
def test_the_winner_is_fitted_on_all_rows_after_the_holdout_was_retired(
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
    assert weights is None and was_retired
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


@pytest.mark.parametrize(
    ("X_cut", "y_cut", "weights", "argument"),
    [
        (lambda X: X[:, :3], lambda y: y, None, "X_train"),
        (lambda X: X, lambda y: y[:-1], None, "y_train"),
        (lambda X: X, lambda y: np.column_stack([y, y]), None, "y_train"),
        (lambda X: X, lambda y: y, [1.0], "sample_weight"),
        (scipy.sparse.csr_array, lambda y: y, None, "X_train"),
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
