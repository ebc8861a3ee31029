"""Cases of rows, labels and predictions that are handed in and out, each with the right value.

The right value is scikit-learn's and NumPy's alone, on arrays of their own.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from joblib import parallel_config
from sklearn import datasets
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    mean_absolute_error,
    roc_auc_score,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from ladderholdout import LadderHoldout, LadderStopping
from ladderholdout.errors import (
    CopiedRowsWarning,
    HoldoutConflict,
    InvalidArgument,
    InvalidSubmission,
    KnownHoldoutWarning,
    NotConsultedWarning,
    OverlapError,
    OverlapWarning,
    SearchStopped,
)
from ladderholdout.identity.matching import near_copies
from ladderholdout.mechanisms import FullDisclosure, Ladder
from ladderholdout.metrics import Metric
from tests.support.ledgers import shared_as_counted

RNG = np.random.default_rng(0)
ALL = 5 + 3 * RNG.normal(size=(400, 5))
TARGET = (ALL[:, 0] + 3 * RNG.normal(size=400) > 5).astype(int)
N = 150
NAMES = list("abcde")


def train() -> tuple[Any, Any]:
    return ALL[N:].copy(), TARGET[N:].copy()


def rows() -> tuple[Any, Any]:
    return ALL[:N].copy(), TARGET[:N].copy()


def holdout_of(X: Any, y: Any, scoring: Any = "accuracy", **given: Any) -> LadderHoldout:
    """Return a holdout that shows every score as it is."""
    given = {"ledger": "memory", "mechanism": FullDisclosure(), "name": "rows", **given}
    return LadderHoldout(X, y, scoring=scoring, **given)


def scores_of(releases: Any) -> dict[str, float]:
    """Return the released scores by metric."""
    return {name: one.score for name, one in releases.by_metric.items()}


def frame(X: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


# -- rows that are handed out -------------------------------------------------------------


def in_place(X: Any) -> Any:
    X -= 4.9
    return X


def new_column_values(X: pd.DataFrame) -> pd.DataFrame:
    X["a"] = X["a"] * 10
    return X


def polars_in_place(X: pl.DataFrame) -> pl.DataFrame:
    X.replace_column(0, (X["a"] * 10).alias("a"))
    return X


def sparse_in_place(X: Any) -> Any:
    X.data -= 4.9
    return X


def of_lists(X: Any) -> Any:
    for row in X:
        row[0] *= -1
    return X


WRITERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "StandardScaler": (StandardScaler(copy=False), np.array),
    "MinMaxScaler": (MinMaxScaler(copy=False), np.array),
    "MaxAbsScaler": (MaxAbsScaler(copy=False), np.array),
    "RobustScaler": (RobustScaler(copy=False), np.array),
    "Normalizer": (Normalizer(copy=False), np.array),
    "PowerTransformer": (PowerTransformer(copy=False), np.array),
    "QuantileTransformer": (QuantileTransformer(copy=False, n_quantiles=20), np.array),
    "PCA": (PCA(2, copy=False), np.array),
    "imputers": (
        make_pipeline(
            SimpleImputer(copy=False), KNNImputer(copy=False), StandardScaler(copy=False)
        ),
        np.array,
    ),
    "a function": (FunctionTransformer(in_place), np.array),
    "a Fortran array": (StandardScaler(copy=False), np.asfortranarray),
    "float32": (StandardScaler(copy=False), lambda X: X.astype(np.float32)),
    "an array of objects": (FunctionTransformer(in_place), lambda X: X.astype(object)),
    "a DataFrame": (FunctionTransformer(new_column_values), frame),
    "polars": (FunctionTransformer(polars_in_place), lambda X: pl.DataFrame(X, schema=NAMES)),
    "a sparse matrix": (
        StandardScaler(copy=False, with_mean=False),
        lambda X: scipy.sparse.csr_matrix(np.where(X > 3, X, 0)),
    ),
    "a sparse function": (FunctionTransformer(sparse_in_place), scipy.sparse.csr_array),
    "lists": (FunctionTransformer(of_lists), lambda X: X.tolist()),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_pipeline_that_writes_into_its_rows_scores_what_it_predicts(writer: str) -> None:
    step, wrap = WRITERS[writer]
    X, y = train()
    models = [
        make_pipeline(step, LogisticRegression(C=C)).fit(wrap(X.copy()), y) for C in (0.01, 1)
    ]
    own, labels = rows()
    right = [accuracy_score(labels, model.predict(wrap(own.copy()))) for model in models]
    holdout = holdout_of(wrap(own), labels)
    assert [holdout.submit(model).score for model in models * 2] == pytest.approx(right * 2)
    with holdout.batch() as batch:
        for model in models:
            batch.submit(model)
    assert [one.score for one in batch.releases] == pytest.approx(right)
    assert [one.release.score for one in holdout.finalists(models)] == pytest.approx(right)


def test_opened_by_its_name_rows_are_copies_too(tmp_path: Path) -> None:
    X, y = train()
    model = make_pipeline(StandardScaler(copy=False), LogisticRegression()).fit(X.copy(), y)
    own, labels = rows()
    right = accuracy_score(labels, model.predict(own.copy()))
    for vault in (True, False):
        place = tmp_path / f"{vault}.db"
        first = holdout_of(own, labels, ledger=place, vault=vault)
        holdout = LadderHoldout.open("rows", ledger=place) if vault else first
        assert [holdout.submit(model).score for _ in range(3)] == pytest.approx([right] * 3)


def test_a_grid_on_the_holdout_shows_the_scores_of_scikit_learn() -> None:
    X, y = train()
    pipeline = make_pipeline(MinMaxScaler(copy=False), LogisticRegression())
    grid = {"logisticregression__C": [0.01, 0.1, 1, 10]}
    own, labels = rows()
    right = [
        accuracy_score(
            labels,
            pipeline.set_params(logisticregression__C=C).fit(X.copy(), y).predict(own.copy()),
        )
        for C in grid["logisticregression__C"]
    ]
    holdout = holdout_of(own, labels)
    search = GridSearchCV(pipeline, grid, scoring=holdout, cv=holdout.split(), refit=False)
    found = search.fit(X.copy(), y).cv_results_["mean_test_score"]
    assert found.tolist() == pytest.approx(right)


def test_candidates_that_write_into_one_shared_frame_are_refused() -> None:
    """With pandas 3 all candidates are fitted on one DataFrame: one may change it for the next."""
    X, y = train()
    grid = {"logisticregression__C": [0.01, 1.0, 100.0]}

    def searched(copy: bool) -> Any:
        holdout = holdout_of(frame(rows()[0]), rows()[1])
        model = make_pipeline(StandardScaler(copy=copy), LogisticRegression())
        search = GridSearchCV(model, grid, scoring=holdout, cv=holdout.split(), refit=False)
        return search.fit(frame(X.copy()), y).cv_results_["mean_test_score"].tolist()

    right = [
        accuracy_score(
            rows()[1],
            make_pipeline(StandardScaler(), LogisticRegression(C=C)).fit(X, y).predict(rows()[0]),
        )
        for C in grid["logisticregression__C"]
    ]
    assert searched(copy=True) == pytest.approx(right)  # the remedy
    try:
        shown = searched(copy=False)
    except SearchStopped as stopped:
        assert "copy=True" in str(stopped)
    else:  # a pandas that hands each candidate a copy
        assert shown == pytest.approx(right)


@pytest.mark.processes
def test_so_it_is_in_workers(tmp_path: Path) -> None:
    X, y = train()
    pipeline = make_pipeline(MinMaxScaler(copy=False), LogisticRegression())
    grid = {"logisticregression__C": [0.01, 1.0, 10.0]}
    own, labels = rows()
    right = [
        accuracy_score(
            labels,
            pipeline.set_params(logisticregression__C=C).fit(X.copy(), y).predict(own.copy()),
        )
        for C in grid["logisticregression__C"]
    ]
    holdout = holdout_of(own, labels, ledger=tmp_path / "ledger.db")
    with parallel_config("loky", n_jobs=2):
        search = GridSearchCV(pipeline, grid, scoring=holdout, cv=holdout.split(), refit=False)
        found = search.fit(X.copy(), y).cv_results_["mean_test_score"]
    assert found.tolist() == pytest.approx(right)


def test_each_finalist_of_a_guarded_search_is_fitted_on_the_rows_as_they_were() -> None:
    X, y = train()
    pipeline = make_pipeline(MinMaxScaler(copy=False), LogisticRegression())
    grid = {"logisticregression__C": [0.01, 0.1, 1, 10]}
    own, labels = rows()
    holdout = holdout_of(own, labels)
    given = X.copy()
    guarded = holdout.guard(GridSearchCV(pipeline, grid, cv=3), finalists=4).fit(given, y)
    for one in guarded.finalists_:
        C = guarded.cv_results_["params"][one.candidate]["logisticregression__C"]
        model = pipeline.set_params(logisticregression__C=C).fit(X.copy(), y)
        assert one.release.score == pytest.approx(accuracy_score(labels, model.predict(own.copy())))
    assert np.array_equal(given, X)


def test_a_study_scores_what_its_models_predict() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    X, y = train()
    own, labels = rows()

    def build(trial: Any) -> Any:
        C = trial.suggest_float("C", 0.01, 10)
        return make_pipeline(StandardScaler(copy=False), LogisticRegression(C=C))

    holdout = holdout_of(own, labels)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(holdout.optuna.objective(build, train=(X.copy(), y)), n_trials=3)
    right = [
        accuracy_score(
            labels,
            build(optuna.trial.FixedTrial(one.params)).fit(X.copy(), y).predict(own.copy()),
        )
        for one in study.trials
    ]
    assert [one.value for one in study.trials] == pytest.approx(right)


def test_of_several_metrics_each_method_is_given_rows_of_its_own() -> None:
    X, y = train()
    model = make_pipeline(StandardScaler(copy=False), LogisticRegression()).fit(X.copy(), y)
    own, labels = rows()
    right = {
        "accuracy": accuracy_score(labels, model.predict(own.copy())),
        "roc_auc": roc_auc_score(labels, model.decision_function(own.copy())),
        "f1": f1_score(labels, model.predict(own.copy())),
    }
    holdout = holdout_of(own, labels, list(right))
    for _ in range(2):
        found = scores_of(holdout.submit(model))
        assert found == pytest.approx(right)


def test_early_stopping_predicts_on_rows_of_its_own() -> None:
    X, y = train()
    own, labels = rows()
    holdout = holdout_of(own, labels)
    stopping = LadderStopping(holdout, patience=9).start()
    stopping.X[:] = 0.0  # a copy
    model = make_pipeline(StandardScaler(copy=False), LogisticRegression()).fit(X.copy(), y)
    right = accuracy_score(labels, model.predict(own.copy()))
    for _ in range(2):
        stopping.evaluate(model)
        stopping.update(model.predict(stopping.X))
    assert [one.score for one in stopping.releases] == pytest.approx([right] * 4)


def test_early_stopping_in_a_pipeline_that_writes_into_its_rows() -> None:
    from ladderholdout.integrations.staged import ladder_stopping

    X, y = train()
    own, labels = rows()
    holdout = holdout_of(own, labels)
    stages = ladder_stopping(holdout, patience=2)

    class Stopped(ClassifierMixin, BaseEstimator):
        def fit(self, X: Any, y: Any) -> Any:
            model = SGDClassifier(random_state=0)
            self.model = stages.partial_fit(model, X, y, rounds=6)
            self.classes_ = self.model.classes_
            return self

        def predict(self, X: Any) -> Any:
            return self.model.predict(X)

    model = make_pipeline(StandardScaler(copy=False), Stopped()).fit(X.copy(), y)
    right = accuracy_score(labels, model.predict(own.copy()))
    assert max(stages.stopping.releases).score == pytest.approx(right)
    assert holdout.submit(model).score == pytest.approx(right)


def test_a_metric_that_writes_into_what_it_is_given_scores_right() -> None:
    own, labels = rows()

    def share(targets: Any, predictions: Any, sample_weight: Any = None) -> float:
        score = float(np.average(targets == predictions, weights=sample_weight))
        targets[:] = predictions[:] = 0
        if sample_weight is not None:
            sample_weight[:] = 1
        return score

    def losses(targets: Any, predictions: Any) -> Any:
        targets -= predictions
        return np.abs(targets, out=targets)

    weights = np.random.default_rng(1).uniform(1, 3, N)
    metric = Metric("share", "labels", score=share, loss_range=(0.0, 1.0), offset=1.0)
    guess = np.random.default_rng(2).integers(0, 2, N)
    right = accuracy_score(labels, guess, sample_weight=weights)
    holdout = holdout_of(own, labels, metric, sample_weight=weights)
    assert [holdout.submit(guess).score, holdout.submit(1 - guess).score] == pytest.approx(
        [right, 1 - right]
    )
    target, values = own[:, 1], own[:, 2]
    absolute = Metric("absolute", "values", loss=losses, loss_range=(0.0, 100.0))
    other = holdout_of(own, target, absolute, name="absolute")
    right = -mean_absolute_error(target, values)
    assert [other.submit(values).score for _ in range(2)] == pytest.approx([right, right])


@pytest.mark.parametrize("wrap", ["array", "frame", "sparse", "lists", "polars"])
def test_what_the_caller_writes_after_registering_changes_nothing(wrap: str) -> None:
    X, y = train()
    own, labels = rows()
    weights = np.random.default_rng(3).uniform(1, 2, N)
    model = LogisticRegression().fit(X, y)
    right = accuracy_score(labels, model.predict(own), sample_weight=weights)
    columns = [column.copy() for column in own.T]
    given = {
        "array": own.copy(),
        "frame": frame(own.copy()),
        "sparse": scipy.sparse.csr_array(own),
        "lists": own.tolist(),
        "polars": pl.DataFrame(dict(zip(NAMES, columns, strict=True))),
    }[wrap]
    answers, weighing = labels.copy(), weights.copy()
    holdout = holdout_of(given, answers, sample_weight=weighing)
    if wrap == "array":
        given[:] = 0
    elif wrap == "frame":
        given.loc[:, :] = 0.0
    elif wrap == "sparse":
        given.data[:] = 0
    elif wrap == "lists":
        for row in given:
            row[:] = [0.0] * 5
    for column in columns:  # whose memory polars goes on with
        column[:] = 0
    answers[:], weighing[:] = 1 - answers, 7
    assert holdout.submit(Named(model)).score == pytest.approx(right)
    assert holdout.submit(labels).score == 1.0


class Named:
    """A model that takes whatever has names of columns."""

    classes_ = np.array([0, 1])

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, X: Any) -> Any:
        return self.model.predict(np.asarray(X.toarray() if hasattr(X, "toarray") else X))


def test_rows_that_were_written_into_all_the_same_are_found_out() -> None:
    own, labels = rows()
    holdout = holdout_of(frame(own), labels)
    model = Named(LogisticRegression().fit(*train()))
    right = holdout.submit(model).score
    held = holdout.__ladder__.guard().rows.X
    held.iloc[7, 0] += 1.0
    with pytest.raises(HoldoutConflict, match=r"features of 'rows'.*written into"):
        holdout.submit(model)
    again = holdout_of(frame(own), labels, ledger=holdout.ledger)
    assert again.submit(model).score == right and again.status().submissions == 2
    targets = again.__ladder__.guard().part.targets
    with pytest.raises(ValueError, match="read-only"):
        targets[0] = 1
    targets.flags.writeable = True
    targets[0] = 1 - targets[0]
    with pytest.raises(HoldoutConflict, match="labels or weights of 'rows'"):
        again.submit(labels)


# -- an order that is known ----------------------------------------------------------------


class Wrapped(ClassifierMixin, BaseEstimator):
    """A model whose answers have an index, in an order of their own."""

    def __init__(self, how: str = "own", C: float = 1.0) -> None:
        self.how, self.C = how, C

    def fit(self, X: Any, y: Any) -> Any:
        self.model = LogisticRegression(C=self.C).fit(np.asarray(X), np.asarray(y))
        self.classes_ = self.model.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.indexed(self.model.predict(np.asarray(X)), X)

    def predict_proba(self, X: Any) -> Any:
        table = self.model.predict_proba(np.asarray(X))
        columns = [1, 0] if self.how == "columns" else [0, 1]
        found = pd.DataFrame(table[:, columns], index=X.index, columns=columns)
        return found.sort_index() if self.how == "sorted" else found

    def indexed(self, answer: Any, X: Any) -> Any:
        if self.how == "plain":
            return pd.Series(answer)
        found = pd.Series(answer, index=X.index)
        if self.how == "frame":
            return found.sort_index().to_frame("answer")
        if self.how == "other":
            return found.rename(index=lambda one: one + "?")
        return found.sort_index() if self.how == "sorted" else found


def named_rows() -> tuple[pd.DataFrame, pd.Series]:
    own, labels = rows()
    names = [f"p{at:03}" for at in np.random.default_rng(4).permutation(N)]
    return pd.DataFrame(own, columns=NAMES, index=names), pd.Series(labels, index=names)


@pytest.mark.parametrize("how", ["own", "sorted", "frame", "plain"])
def test_predictions_with_an_index_are_taken_by_it(how: str) -> None:
    X, y = named_rows()
    model = Wrapped(how).fit(frame(train()[0]), train()[1])
    right = accuracy_score(y.to_numpy(), model.model.predict(X.to_numpy()))
    holdout = holdout_of(X, y)
    assert holdout.submit(model).score == pytest.approx(right)
    assert holdout.submit(model.predict(X)).score == pytest.approx(right)
    search = GridSearchCV(
        Wrapped(how), {"C": [1.0]}, scoring=holdout, cv=holdout.split(), refit=holdout.select
    ).fit(frame(train()[0]), train()[1])
    assert search.cv_results_["mean_test_score"].tolist() == pytest.approx([right])
    stopping = LadderStopping(holdout, patience=9).start()
    stopping.update(model.predict(X))
    stopping.evaluate(model)
    assert [one.score for one in stopping.releases] == pytest.approx([right] * 2)
    found = holdout.finalists([model, model.predict(X)])
    assert [one.release.score for one in found] == pytest.approx([right] * 2)
    study = optuna.create_study(direction="maximize")
    study.optimize(holdout.optuna.objective(lambda trial: model), n_trials=1)
    study.optimize(holdout.optuna.objective(lambda trial: model.predict(X)), n_trials=1)
    assert [one.value for one in study.trials] == pytest.approx([right] * 2)


@pytest.mark.parametrize("how", ["sorted", "columns"])
def test_probabilities_with_an_index_and_names_are_taken_by_them(how: str) -> None:
    X, y = named_rows()
    model = Wrapped(how).fit(frame(train()[0]), train()[1])
    right = {
        "accuracy": accuracy_score(y.to_numpy(), model.model.predict(X.to_numpy())),
        "roc_auc": roc_auc_score(y.to_numpy(), model.model.predict_proba(X.to_numpy())[:, 1]),
    }
    several = holdout_of(X, y, list(right))
    found = scores_of(several.submit(model))
    assert found == pytest.approx(right)
    with several.batch() as batch:
        batch.submit({"labels": model.predict(X), "probabilities": model.predict_proba(X)})
    assert batch.releases[0]["roc_auc"].score == pytest.approx(right["roc_auc"])


def test_an_index_of_other_rows_is_refused_as_submit_does() -> None:
    X, y = named_rows()
    model = Wrapped("other").fit(frame(train()[0]), train()[1])
    holdout = holdout_of(X, y)
    for ask in (
        lambda: holdout.submit(model.predict(X)),
        lambda: holdout.submit(model),
        lambda: holdout.finalists([model]),
        lambda: LadderStopping(holdout, patience=2).start().update(model.predict(X)),
    ):
        with pytest.raises(InvalidSubmission, match="indexed by other rows"):
            ask()
    assert holdout.status().submissions == 0


@pytest.mark.parametrize("argument", ["y", "sample_weight", "ids"])
def test_labels_weights_and_ids_in_another_order_are_refused(argument: str) -> None:
    X, y = named_rows()
    given = {
        "y": y,
        "sample_weight": pd.Series(np.arange(1.0, N + 1), index=X.index),
        "ids": pd.Series(np.arange(N), index=X.index),
    }
    shuffled = {**given, argument: given[argument].sort_index()}
    with pytest.raises(InvalidArgument, match=f"{argument} must be in the order of the rows"):
        holdout_of(X, shuffled.pop("y"), **shuffled)
    mended = {**given, argument: shuffled.get(argument, y.sort_index()).loc[X.index]}
    assert holdout_of(X, mended.pop("y"), **mended).status().n == N


def test_weights_in_another_order_than_the_labels_are_refused_for_an_array_of_rows() -> None:
    X, y = named_rows()
    weights = pd.Series(np.arange(1.0, N + 1), index=X.index).sort_index()
    with pytest.raises(InvalidArgument, match="sample_weight must be in the order"):
        holdout_of(X.to_numpy(), y, sample_weight=weights)


# -- masks ---------------------------------------------------------------------------------

HALF = np.arange(N) < 40


class Lazy:
    """Makes its values when it is read."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.make()


MASKED: dict[str, Callable[[Any], Any]] = {
    "array": lambda values: np.ma.array(values, mask=HALF),
    "list": lambda values: list(np.ma.array(values, mask=HALF)),
    "list of arrays": lambda values: [
        np.ma.array([one], mask=[masked]) for one, masked in zip(values, HALF, strict=True)
    ],
    "objects": lambda values: np.ma.array(values.astype(object), mask=HALF),
    "Series of objects": lambda values: pd.Series(
        list(np.ma.array(values, mask=HALF)), dtype=object
    ),
    "lazy": lambda values: Lazy(lambda: np.ma.array(values, mask=HALF)),
    "nullable": lambda values: pd.array(np.where(HALF, None, values), dtype="Int64"),
    "polars": lambda values: pl.Series(np.where(HALF, None, values).tolist()),
}


@pytest.mark.parametrize("how", MASKED)
def test_what_is_masked_is_refused(how: str) -> None:
    own, labels = rows()
    masked = MASKED[how](labels)
    with pytest.raises(InvalidArgument, match="y must be"):
        holdout_of(own, masked)
    with pytest.raises(InvalidArgument, match="sample_weight must be"):
        holdout_of(own, labels, sample_weight=MASKED[how](labels + 1))
    holdout = holdout_of(own, labels)
    model = Named(LogisticRegression().fit(*train()))
    answering = type("Answering", (), {"predict": lambda self, X: masked})()
    stopping = LadderStopping(holdout, patience=2).start()
    for ask in (
        lambda: holdout.submit(masked),
        lambda: holdout.submit(answering),
        lambda: holdout.finalists([labels, masked]),
        lambda: stopping.update(masked),
        lambda: stopping.answer(masked),
        lambda: holdout(answering, own + 1, labels),
        lambda: holdout(model, own + 1, masked),
    ):
        with pytest.raises(InvalidArgument), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConsultedWarning)
            ask()
    with holdout.batch() as batch, pytest.raises(InvalidSubmission):
        batch.submit(masked)
    assert batch.releases == () and holdout.status().submissions == 0


def test_masked_rows_ids_and_classes_are_refused() -> None:
    own, labels = rows()
    masked = np.ma.array(own, mask=np.repeat(HALF[:, None], 5, axis=1))
    for X in (masked, list(masked)):
        with pytest.raises(InvalidArgument, match="X must be without masked"):
            holdout_of(X, labels)
    for ids in (
        np.ma.array(np.arange(N), mask=HALF),
        list(np.ma.array(np.arange(N), mask=np.arange(N) < 1)),
        [None, *map(str, range(N - 1))],
        [np.nan, *range(N - 1)],
        pd.array([None, *range(N - 1)], dtype="Int64"),
        pd.Series([pd.NaT, *pd.date_range("2026", periods=N - 1)]),
    ):
        with pytest.raises(InvalidArgument, match="ids must be"):
            holdout_of(own, labels, ids=ids)
    with pytest.raises(InvalidArgument, match="classes must be"):
        holdout_of(own, labels, classes=np.ma.array([0, 1, 2], mask=[0, 0, 1]))
    holdout = holdout_of(own, labels, ids=np.arange(N))
    with pytest.raises(InvalidSubmission, match="masked"):
        holdout.submit(np.ma.array(labels, mask=HALF), ids=np.arange(N))
    model = LogisticRegression().fit(*train())
    weights = np.ma.array(np.ones(N), mask=HALF)
    with pytest.raises(InvalidArgument, match="masked"):
        holdout(model, masked, labels)
    with pytest.raises(InvalidArgument, match="masked"):
        holdout(model, own + 1, labels, sample_weight=weights)


def test_the_remedies_for_masks_work() -> None:
    own, labels = rows()
    holdout = holdout_of(np.ma.array(own), np.ma.array(labels))  # nothing is masked
    guess = np.ma.array(labels, mask=HALF)
    right = accuracy_score(labels, np.where(HALF, 1, labels))
    assert holdout.submit(np.ma.filled(guess, 1)).score == pytest.approx(right)


def test_values_below_a_mask_are_no_predictions() -> None:
    own, _ = rows()
    holdout = holdout_of(own[:, :4], own[:, 4], "r2")
    for masked in (np.ma.masked_equal(own[:, 4], own[3, 4]), np.ma.masked_invalid([np.nan] * N)):
        with pytest.raises(InvalidSubmission, match="masked"):
            holdout.submit(masked)


# -- batches that are fixed ----------------------------------------------------------------


def test_predictions_are_read_before_any_member_is_answered() -> None:
    own, labels = rows()
    holdout, answered = holdout_of(own, labels, mechanism=Ladder(step=0.005)), []

    def make() -> Any:
        answered.append(holdout.status().submissions)
        return labels

    with holdout.batch() as batch:
        for _ in range(4):
            batch.submit(Lazy(make))
    assert answered == [0, 0, 0, 0] and len(batch.releases) == 4
    holdout.finalists([Lazy(make) for _ in range(3)])
    assert answered[4:] == [4, 4, 4]


def test_a_climb_by_lazy_predictions_learns_nothing_in_a_batch() -> None:
    """Coin labels: the true score of whatever is .5, and the certificate has to hold it."""
    false = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(100, 2)), rng.integers(0, 2, 100)
        holdout = holdout_of(X, y, mechanism=Ladder(step=0.005))
        best = rng.integers(0, 2, 100)

        def climb(rng: Any = rng, holdout: Any = holdout, state: Any = [best, None]) -> Any:  # noqa: B006
            entries = holdout.history()
            if entries and entries[-1].improved and state[1] is not None:
                state[0] = state[1]
            state[1] = state[0].copy()
            state[1][rng.choice(100, 5, replace=False)] ^= 1
            return state[1]

        with holdout.batch() as batch:
            batch.submit(best)
            for _ in range(60):
                batch.submit(Lazy(climb))
        certificate = holdout.certificate()
        false += not certificate.low <= 0.5 <= certificate.high
    assert false <= 1


def forms(values: Any, folder: Path) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Yield predictions in many forms, and what changes them afterwards."""
    array = values.copy()
    yield array, lambda: array.__setitem__(slice(None), 1 - array)
    base = np.stack([values, values])
    yield base[0], lambda: base.__setitem__(slice(None), 1 - base)
    listed = values.tolist()
    yield listed, lambda: listed.__setitem__(slice(None), [1 - one for one in listed])
    series = pd.Series(values.copy())
    yield series, lambda: series.update(1 - series)
    table = pd.DataFrame({"answer": values})
    yield table, lambda: table.__setitem__("answer", 1 - table["answer"])
    mapped = np.memmap(folder / "mapped", dtype=values.dtype, mode="w+", shape=values.shape)
    mapped[:] = values
    yield mapped, lambda: mapped.__setitem__(slice(None), 1 - mapped)
    held = [values]
    yield Lazy(lambda: held[0]), lambda: held.__setitem__(0, 1 - values)


def test_what_is_changed_after_it_was_added_is_not_in_the_batch(tmp_path: Path) -> None:
    own, labels = rows()
    guess = np.random.default_rng(5).integers(0, 2, N)
    right = accuracy_score(labels, guess)
    holdout = holdout_of(own, labels)
    with holdout.batch() as batch:
        for given, change in forms(guess, tmp_path):
            batch.submit(given)
            change()
    assert [one.score for one in batch.releases] == pytest.approx([right] * 7)


def test_a_model_that_answers_in_one_buffer_does_not_change_a_batch() -> None:
    own, labels = rows()
    buffer = np.empty(N, dtype=int)
    guesses = np.random.default_rng(6).integers(0, 2, (3, N))

    def model(guess: Any) -> Any:
        def predict(self: Any, X: Any) -> Any:
            buffer[:] = guess
            return buffer

        return type("Model", (), {"predict": predict})()

    right = [accuracy_score(labels, guess) for guess in guesses]
    found = holdout_of(own, labels).finalists([model(guess) for guess in guesses])
    assert [one.release.score for one in found] == pytest.approx(right)


def test_of_several_metrics_lazy_predictions_are_read_once() -> None:
    own, labels = rows()
    reads = []

    def make() -> Any:
        reads.append(np.random.default_rng(len(reads)).integers(0, 2, N))
        return reads[-1]

    holdout = holdout_of(own, labels, ["accuracy", "f1"])
    found = holdout.submit(Lazy(make))
    assert found["accuracy"].score == pytest.approx(accuracy_score(labels, reads[0]))
    assert found["f1"].score == pytest.approx(f1_score(labels, reads[0]))
    with holdout.batch() as batch:
        batch.submit({"labels": Lazy(make)})
        count = len(reads)
    assert len(reads) == count
    last = reads[-1]
    assert batch.releases[0]["f1"].score == pytest.approx(f1_score(labels, last))


def test_what_cannot_be_brought_to_a_form_is_refused_in_its_line() -> None:
    own, labels = rows()
    holdout = holdout_of(own, labels)
    locked = type("Locked", (), {"lock": threading.Lock(), "__array__": lambda *a, **k: labels})()
    with holdout.batch() as batch:
        batch.submit(locked)
        for wrong in ((int(one) for one in labels), labels[:-1], labels + 5, object(), [{}] * N):
            with pytest.raises(InvalidSubmission):
                batch.submit(wrong)
    assert [one.score for one in batch.releases] == [1.0]


def test_texts_probabilities_values_and_items_are_the_same_in_a_batch() -> None:
    own, labels = rows()
    names = np.array(["no", "yes"])
    texts = holdout_of(own, names[labels])
    table = np.random.default_rng(7).dirichlet([1, 1], N)
    auc = holdout_of(own, labels, "roc_auc", name="auc")
    brier = holdout_of(own, labels, "neg_brier_score", name="brier")
    for holdout, given in (
        (texts, names[1 - labels]),
        (texts, list(names[np.arange(N) % 2])),
        (auc, table[:, 1]),
        (brier, table),
        (brier, pd.DataFrame(table[:, ::-1], columns=[1, 0])),
    ):
        with holdout.batch() as batch:
            batch.submit(given)
        assert holdout.submit(given).score == batch.releases[0].score


# -- rows that are known again ---------------------------------------------------------------


def registered(folder: Path, X: Any, y: Any, **given: Any) -> LadderHoldout:
    holdout = LadderHoldout(
        X, y, scoring="accuracy", name="old", ledger=folder / "ledger.db", **given
    )
    holdout.submit(y)
    return holdout


def another(folder: Path, X: Any, y: Any, **given: Any) -> tuple[LadderHoldout, list[Any]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = {"scoring": "accuracy", "name": "new", **given}
        found = LadderHoldout(X, y, ledger=folder / "ledger.db", **given)
    return found, [one.category for one in caught]


CODINGS: dict[str, Callable[[Any], Any]] = {
    "texts": lambda y: np.array(["a", "b", "c"])[y],
    "swapped": lambda y: 2 - y,
    "signed": lambda y: 2 * y - 1,
    "shifted": lambda y: (y + 1) % 3,
    "objects": lambda y: np.array(["x", "y", "z"], dtype=object)[y],
    "floats": lambda y: y.astype(float) * 10,
    "categories": lambda y: pd.Series(np.array(["u", "v", "w"])[y], dtype="category"),
}


@pytest.mark.parametrize("coding", CODINGS)
def test_labels_under_other_names_do_not_start_afresh(coding: str, tmp_path: Path) -> None:
    X, _ = rows()
    y = np.random.default_rng(8).integers(0, 3, N)
    registered(tmp_path, X, y)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for features in (scaled, np.c_[X, X[:, 0]], X[:, ::-1], X[:, :2]):
        with pytest.raises(OverlapError, match="under other names and in the same order"):
            another(tmp_path, features, CODINGS[coding](y))
    fresh, said = another(tmp_path, scaled, CODINGS[coding](y), overlap="warn")
    assert said == [OverlapWarning] and fresh.name == "new"
    # What was released of either counts for both, as the message states.
    assert fresh.status().sharing == (("old", N, 1),)
    assert shared_as_counted(fresh)


def test_the_remedy_for_renamed_labels_works(tmp_path: Path) -> None:
    X, y = rows()
    registered(tmp_path, X, y)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    with pytest.raises(OverlapError, match="with their labels as they were registered"):
        another(tmp_path, scaled, 1 - y)
    found, said = another(tmp_path, scaled, y)
    assert found.name == "old" and set(said) == {KnownHoldoutWarning}


@pytest.mark.parametrize(
    "labels",
    {
        "others": np.random.default_rng(9).integers(0, 3, N),
        "sorted": np.sort(np.random.default_rng(9).integers(0, 3, N)),
        "constant but one": (np.arange(N) == 3).astype(int),
        "alternating": np.arange(N) % 2,
        "all distinct": np.random.default_rng(9).permutation(N),
        "targets": np.round(np.random.default_rng(9).normal(size=N), 6),
    }.items(),
    ids=lambda pair: pair[0],
)
def test_labels_that_many_rows_have_are_no_sign(labels: tuple[str, Any], tmp_path: Path) -> None:
    """Sorted, periodic or distinct labels divide any rows alike."""
    name, y = labels
    X, _ = rows()
    scoring = "accuracy" if y.dtype.kind == "i" and len(set(y)) < 9 else "r2"
    LadderHoldout(X, y, scoring=scoring, name="old", ledger=tmp_path / "ledger.db")
    other = np.random.default_rng(10).normal(size=(N, 5))
    renamed = 7 - y if name != "others" else np.random.default_rng(11).integers(0, 3, N)
    found, said = another(tmp_path, other, renamed, scoring=scoring)
    assert (found.name, said) == ("new", [])


def test_few_labels_are_no_sign(tmp_path: Path) -> None:
    rng = np.random.default_rng(12)
    y = rng.integers(0, 2, 24)
    LadderHoldout(rng.normal(size=(24, 2)), y, scoring="accuracy", ledger=tmp_path / "ledger.db")
    found, said = another(tmp_path, rng.normal(size=(24, 2)), 1 - y)
    assert (found.name, said) == ("new", [])


MOVED: dict[str, Callable[[Any], Any]] = {
    "in another order": lambda X: X[:, [3, 1, 0, 2, 4]],
    "without one": lambda X: X[:, 1:],
    "with another": lambda X: np.c_[np.random.default_rng(13).normal(size=len(X)), X],
    "of a frame": lambda X: frame(X)[list("edcba")],
    "of polars": lambda X: pl.DataFrame(X, schema=NAMES)[list("bcade")],
    "as objects": lambda X: X[:, ::-1].astype(object),
}


@pytest.mark.parametrize("columns", MOVED)
def test_columns_in_another_place_are_the_same_rows(columns: str, tmp_path: Path) -> None:
    X, y = rows()
    registered(tmp_path, X, y)
    order = np.random.default_rng(14).permutation(N)
    found, said = another(tmp_path, MOVED[columns](X[order]), y[order])
    assert found.name == "old" and set(said) == {KnownHoldoutWarning}
    assert found.status().submissions == 1
    again = found.submit(y[order])  # a repeat, in the order that was given here
    assert (again.score, again.improved, again.repeat_of) == (1.0, False, 1)
    assert again.is_incumbent


def test_of_columns_in_another_place_predictions_are_scored_by_their_rows(tmp_path: Path) -> None:
    X, y = rows()
    guess = np.random.default_rng(16).integers(0, 2, N)
    right = accuracy_score(y, guess)
    settings = {"scoring": "accuracy", "ledger": tmp_path / "ledger.db"}
    LadderHoldout(X, y, name="old", mechanism=FullDisclosure(), **settings)
    order = np.random.default_rng(17).permutation(N)
    found, _ = another(tmp_path, X[order][:, ::-1], y[order])
    assert found.submit(guess[order]).score == pytest.approx(right)


def test_columns_in_another_place_and_other_labels_are_an_overlap(tmp_path: Path) -> None:
    X, y = rows()
    registered(tmp_path, X, y)
    order = np.random.default_rng(18).permutation(N)
    with pytest.raises(OverlapError, match="columns in another place"):
        another(tmp_path, X[order][:, ::-1], 1 - y[order])
    found, said = another(tmp_path, X[order][:, ::-1], 1 - y[order], overlap="warn")
    assert found.name == "new" and said == [OverlapWarning]
    assert [one.rows for one in found.status().overlaps] == [N]


def test_other_rows_that_share_columns_are_other_rows(tmp_path: Path) -> None:
    """Two series over the same days, with the same calendar, are two."""
    rng = np.random.default_rng(19)
    days = np.c_[np.arange(N), np.arange(N) % 7, np.arange(N) // 30, np.sin(np.arange(N))]
    for name in ("old", "new"):
        X, y = np.c_[days, rng.normal(size=(N, 2))], rng.integers(0, 2, N)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = LadderHoldout(
                X, y, scoring="accuracy", name=name, ledger=tmp_path / "ledger.db"
            )
        assert found.name == name


def test_rows_of_few_values_are_not_taken_for_each_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    for name in ("old", "new"):
        X = np.eye(4)[rng.permutation(np.repeat(np.arange(4), 25))]
        found = LadderHoldout(
            X, rng.integers(0, 2, 100), scoring="accuracy", name=name, overlap="ignore",
            ledger=tmp_path / "ledger.db",
        )  # fmt: skip
        assert found.name == name


# -- near copies -----------------------------------------------------------------------------

SETS = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
    "breast cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
}


@pytest.mark.parametrize("name", SETS)
def test_near_copies_are_found_and_ordinary_rows_are_none(name: str) -> None:
    X, y = SETS[name](return_X_y=True)
    X, y, rng = X[:500], y[:500], np.random.default_rng(21)
    assert near_copies(X, y) == 0
    twice, spread = np.tile(y, 2), X.std(axis=0)
    for noise in (1e-3, 1e-5, 1e-7):
        moved = np.vstack([X, X + noise * spread * rng.normal(size=X.shape)])
        assert near_copies(moved, twice) >= 0.95 * len(moved), noise
        assert near_copies(moved, rng.permutation(twice)) == 0  # other labels
    some = rng.choice(len(X), len(X) // 3, replace=False)
    partly = np.vstack([X, X[some] + 1e-6 * rng.normal(size=(len(some), X.shape[1]))])
    found = near_copies(partly, np.concatenate([y, y[some]]))
    assert found == pytest.approx(2 * len(some), rel=0.3)


def test_near_copies_are_found_in_frames_and_lists() -> None:
    X, y = rows()
    rng = np.random.default_rng(22)
    table = frame(np.vstack([X, X + 1e-5 * rng.normal(size=X.shape)]))
    table["kind"] = np.tile(rng.choice(list("uvw"), N), 2)
    table["b"] = table["b"].astype("Float64")
    table["c"] = table["c"].where(np.tile(rng.random(N) > 0.1, 2))
    labels = np.tile(y, 2)
    assert near_copies(table, labels) == 2 * N
    assert near_copies(table.iloc[:, :2].to_numpy().tolist(), labels) == 2 * N
    # What differs in a text, or in what is missing, is no copy.
    table["kind"] = rng.permutation(2 * N).astype(str)
    assert near_copies(table, labels) == 0


@pytest.mark.parametrize("seed", range(3))
def test_ordinary_rows_are_no_near_copies(seed: int) -> None:
    rng, n = np.random.default_rng(seed), 300
    constant = np.zeros(n)
    ordinary = {
        "one column": rng.normal(size=(n, 1)),
        "numbers in a row": np.arange(n)[:, None],
        "long tails": rng.standard_cauchy(size=(n, 3)),
        "one-hot": np.hstack([np.eye(k)[rng.integers(0, k, n)] for k in (3, 5, 20)]),
        "one-hot and numbers": np.c_[np.eye(5)[rng.integers(0, 5, n)], rng.normal(size=(n, 2))],
        "counts": rng.poisson(0.2, (n, 10)),
        "rounded": rng.normal(size=(n, 3)).round(1),
        "blobs": datasets.make_blobs(n, centers=20, cluster_std=0.3, random_state=seed)[0],
        "a walk": np.cumsum(rng.normal(size=(n, 3)), axis=0),
        "a grid": np.stack(np.meshgrid(np.arange(20), np.arange(15)), -1).reshape(-1, 2),
    }
    assert {name for name, X in ordinary.items() if near_copies(X, constant)} == set()
    for few in (12, 20, 40):
        assert not any(near_copies(rng.normal(size=(few, d)), constant[:few]) for d in (1, 2, 3))


def test_registration_warns_of_near_copies_as_of_copies() -> None:
    X, y = rows()
    moved = np.vstack([X, X + 1e-4 * np.random.default_rng(23).normal(size=X.shape)])
    with pytest.warns(CopiedRowsWarning, match=f"About {2 * N} of the {2 * N} rows of 'rows'"):
        holdout_of(moved, np.tile(y, 2))
    # And the remedy: one of each, with a weight.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        holdout_of(X, y, sample_weight=np.full(N, 2.0))


# -- who is who, where only the labels have an index ------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
def test_the_index_of_the_labels_names_the_rows_if_the_features_have_none(form: Any) -> None:
    rng = np.random.default_rng(0)
    X, truth = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
    index = [f"r{row}" for row in range(80)]
    guesses = np.where(rng.random(80) < 0.7, truth, 1 - truth)
    y, shuffled = pd.Series(truth, index), pd.Series(guesses, index).sample(frac=1, random_state=0)
    holdout = LadderHoldout(form(X), y, scoring="accuracy", mechanism=FullDisclosure())
    assert holdout.submit(shuffled).score == accuracy_score(truth, guesses)
    groups = pd.Series(np.arange(80) // 4, index).sample(frac=1, random_state=0)
    for argument in ("groups", "ids"):
        remedy = rf"{argument}\.loc\[y\.index\]"
        with pytest.raises(InvalidArgument, match=remedy):
            LadderHoldout(form(X), y, scoring="accuracy", **{argument: groups})
    more = {"groups": groups.loc[y.index], "ledger": f"memory:{form.__name__}"}
    grouped = LadderHoldout(form(X), y, scoring="accuracy", **more)
    assert grouped.submit(shuffled).improved


def test_predictions_on_fresh_rows_are_taken_by_their_index() -> None:
    rng = np.random.default_rng(1)
    index = [f"r{row}" for row in range(90)]
    X, y = pd.DataFrame(rng.normal(size=(90, 2)), index), pd.Series(rng.integers(0, 2, 90), index)
    holdout = LadderHoldout(X + 9, y, scoring="accuracy", mechanism=FullDisclosure())
    holdout.submit(y)
    guesses = y.where(rng.random(90) < 0.8, 1 - y)
    found = holdout.owner.audit((X, y), guesses.sample(frac=1, random_state=0))
    assert found.fresh is not None
    assert found.fresh.released.value == pytest.approx(accuracy_score(y, guesses))


@pytest.mark.parametrize("missing", [float("nan"), None, 1, True])
def test_labels_of_several_kinds_in_a_list_are_refused(missing: Any) -> None:
    labels = ["a", missing, "b", "a"] * 20
    with pytest.raises(InvalidArgument, match="missing values, or a mix"):
        LadderHoldout(np.arange(80)[:, None], labels, scoring="accuracy")


def test_an_index_of_several_levels_names_rows_as_its_columns_do() -> None:
    X, y = np.random.default_rng(2).normal(size=(40, 2)), np.arange(40) % 2
    levels = pd.MultiIndex.from_arrays([np.arange(40) // 2, np.arange(40) % 2])
    first = LadderHoldout(X, y, scoring="accuracy", name="visits", ids=levels)
    ids = levels.to_frame()[::-1].to_numpy()
    with pytest.warns(KnownHoldoutWarning, match="rows of 'visits' in another order"):
        again = LadderHoldout(X[::-1], y[::-1], scoring="accuracy", ids=ids)
    assert again.name == first.name


def test_numbers_of_numpy_dates_and_paths_are_a_context() -> None:
    holdout = LadderHoldout(np.arange(8)[:, None], [0, 1] * 4, scoring="accuracy")
    given = {"depth": np.int64(4), "on": pd.Timestamp("2026-01-02"), "at": Path("a") / "b"}
    holdout.submit([0, 1] * 4, context=given)
    (entry,) = holdout.history()
    assert entry.context == {"depth": 4, "on": "2026-01-02T00:00:00", "at": str(Path("a") / "b")}
