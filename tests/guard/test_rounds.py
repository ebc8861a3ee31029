"""Attacks batches: which submissions share one, and above all which must not.

A batch says that its models were chosen before any feedback on any of them. One that is
claimed wrongly makes a certificate false, so most tests here look for one where none is due.
"""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from scipy.stats import randint
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.model_selection._search import BaseSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout, SearchStopped
from ladderholdout.guard.views import Submission

# Workers of loky cannot import this file: what it defines travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

DEPTHS = {"max_depth": [1, 2, 3]}
WORKERS = [("loky", 1), ("loky", 2), ("threading", 2)]
# Of tests about what one of these does as the others: processes, which share nothing, and this one.
PROCESSES = [("loky", 2)]
IN_PROCESSES_AND_HERE = [("loky", 1), ("loky", 2)]
Data = tuple[np.ndarray, np.ndarray]


class Patient(DecisionTreeClassifier):
    """A tree that says when its fit begins, and waits there until it is told to go on."""

    began = threading.Event()
    go_on = threading.Event()

    def fit(self, X: Any, y: Any, **params: Any) -> Patient:
        self.began.set()
        assert self.go_on.wait(60)
        return super().fit(X, y, **params)


class Asking(ClassifierMixin, BaseEstimator):
    """A tree whose fit does something else first: look at the holdout, perhaps."""

    def __init__(self, ask: Callable[[Any, Any], object] | None = None, max_depth: int = 1) -> None:
        self.ask = ask
        self.max_depth = max_depth

    def fit(self, X: Any, y: Any) -> Asking:
        if self.ask is not None:
            self.ask(X, y)
        self.tree_ = DecisionTreeClassifier(max_depth=self.max_depth, random_state=0).fit(X, y)
        self.classes_ = self.tree_.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.tree_.predict(X)


class Parts(ClassifierMixin, BaseEstimator):
    """Some models, fitted in workers of its own, of which it takes one."""

    def __init__(self, parts: Any, best: int = 0) -> None:
        self.parts = parts
        self.best = best

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        named = {f"part{at}__scoring": one.scoring for at, one in enumerate(self.parts)}
        return super().get_params(deep=False) | (named if deep else {})

    def fit(self, X: Any, y: Any) -> Parts:
        models = Parallel(n_jobs=2)(delayed(fitted)(part, X, y) for part in self.parts)
        self.model_ = models[self.best]
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)


def fitted(model: Any, X: Any, y: Any) -> Any:
    return clone(model).fit(X, y)


class Rounds(BaseSearchCV):
    """A search whose second round of candidates follows from the scores of the first."""

    def __init__(self, estimator: Any, *, scoring: Any, cv: Any, refit: Any = False) -> None:
        super().__init__(estimator, scoring=scoring, cv=cv, refit=refit)

    def _run_search(self, evaluate_candidates: Any) -> None:
        first = evaluate_candidates([{"max_depth": 1}, {"max_depth": 4}])
        best = first["params"][int(np.argmax(first["mean_test_score"]))]["max_depth"]
        evaluate_candidates([{"max_depth": best + 1}, {"max_depth": best + 2}])


@pytest.fixture
def train(binary: Any) -> Data:
    return binary.X_train, binary.y_train


@pytest.fixture
def holdout(binary: Any, tmp_path: Path) -> LadderHoldout:
    return LadderHoldout(
        binary.X_holdout, binary.y_holdout, scoring="accuracy", ledger=tmp_path / "ledger.db"
    )


@pytest.fixture
def since(holdout: LadderHoldout) -> Callable[[], list[Submission]]:
    """Return the submissions since it was last asked."""
    seen = 0

    def new() -> list[Submission]:
        nonlocal seen
        found = list(holdout.history(after=seen))
        seen += len(found)
        return found

    return new


@pytest.fixture
def patient() -> Iterator[type[Patient]]:
    Patient.began.clear()
    Patient.go_on.clear()
    yield Patient
    Patient.go_on.set()


def tree(**settings: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0, **settings)


def grid(holdout: LadderHoldout, estimator: Any = None, values: Any = None, **settings: Any) -> Any:
    settings = {"cv": holdout.split(), "refit": False, **settings}
    return GridSearchCV(estimator or tree(), values or DEPTHS, scoring=holdout, **settings)


def on(backend: str, jobs: int) -> AbstractContextManager[Any]:
    return parallel_config(backend, n_jobs=jobs)


def by_hand(rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Fold that looks like ours and was made by nobody."""
    return [(np.arange(rows), np.empty(0, dtype=np.intp))]


def batches(submissions: list[Submission]) -> list[str | None]:
    return [one.batch for one in submissions]


def the_one_batch(submissions: list[Submission], size: int) -> str:
    (batch,) = set(batches(submissions))
    assert batch is not None
    assert len(submissions) == size
    return batch


# -- what is one batch ---------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), WORKERS)
def test_all_candidates_of_a_grid_are_one_batch(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    with on(backend, jobs):
        grid(holdout).fit(*train)
    the_one_batch(since(), 3)


def test_all_draws_of_a_randomized_search_are_one_batch(
    holdout: LadderHoldout, train: Data, since: Any
) -> None:
    RandomizedSearchCV(
        tree(), {"max_depth": randint(1, 9)}, n_iter=5, scoring=holdout, cv=holdout.split()
    ).fit(*train)
    the_one_batch(since(), 5)


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), PROCESSES)
def test_two_searches_are_two_batches_also_on_one_splitter(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    cv = holdout.split()
    found = set()
    for leaves in (1, 5):
        with on(backend, jobs):
            grid(holdout, tree(min_samples_leaf=leaves), cv=cv).fit(*train)
        found.add(the_one_batch(since(), 3))
    assert len(found) == 2


def test_each_round_of_an_adaptive_search_is_a_batch(
    holdout: LadderHoldout, train: Data, since: Any
) -> None:
    search = Rounds(tree(), scoring=holdout, cv=holdout.split(), refit=holdout.select).fit(*train)
    found = since()
    first, second = the_one_batch(found[:2], 2), the_one_batch(found[2:], 2)
    assert first != second
    last = max((one for one in found if one.improved), key=lambda one: one.number)
    assert search.best_params_["max_depth"] == last.context["parameters"]["max_depth"]


def test_inner_folds_change_nothing_about_the_batch(
    holdout: LadderHoldout, train: Data, since: Any
) -> None:
    grid(holdout, cv=holdout.split(inner=3)).fit(*train)
    the_one_batch(since(), 3)


def test_curves_are_one_batch_each(holdout: LadderHoldout, train: Data, since: Any) -> None:
    settings = {"scoring": holdout, "cv": holdout.split()}
    validation_curve(tree(), *train, param_name="max_depth", param_range=[1, 2], **settings)
    first = the_one_batch(since(), 2)
    learning_curve(tree(), *train, train_sizes=[0.5, 1.0], **settings)
    assert the_one_batch(since(), 2) != first


def test_two_ladders_asked_in_one_search_get_the_same_batch(
    holdout: LadderHoldout, train: Data, binary: Any
) -> None:
    with pytest.warns(UserWarning, match="count together"):
        loss = LadderHoldout(
            binary.X_holdout,
            binary.y_holdout,
            scoring="neg_log_loss",
            ladder="loss",
            ledger=holdout.ledger,
        )
    both = {"accuracy": holdout, "loss": loss}
    GridSearchCV(tree(), DEPTHS, scoring=both, cv=holdout.split(), refit=False).fit(*train)
    one = the_one_batch(list(holdout.history()), 3)
    assert the_one_batch(list(loss.history()), 3) == one


@pytest.mark.nightly
def test_workers_of_dask_get_the_batch(holdout: LadderHoldout, train: Data, since: Any) -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    )
    with cluster, distributed.Client(cluster), on("dask", 2):
        grid(holdout).fit(*train)
    the_one_batch(since(), 3)


# -- what is none --------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), WORKERS)
def test_submissions_by_hand_between_and_after_searches_have_none(
    holdout: LadderHoldout, train: Data, binary: Any, since: Any, backend: str, jobs: int
) -> None:
    fitted = tree(max_depth=5).fit(*train)
    with on(backend, jobs):
        grid(holdout).fit(*train)
        the_one_batch(since(), 3)
        holdout.submit(1 - binary.y_holdout)
        holdout.submit(fitted)
        holdout(fitted, train[0][:0], train[1][:0])
        holdout(fitted, binary.X_holdout, binary.y_holdout)
        assert batches(since()) == [None] * 4
        grid(holdout, tree(min_samples_leaf=9)).fit(*train)
        the_one_batch(since(), 3)
    holdout.submit(np.zeros(len(binary.y_holdout), dtype=int))
    assert batches(since()) == [None]


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), PROCESSES)
def test_folds_listed_by_hand_have_none_however_often_they_are_used(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    folds = list(holdout.split().split(*train))
    with on(backend, jobs), pytest.raises(SearchStopped, match=r"cv=holdout\.split\(\)"):
        # Such a fold does not tell a worker what was done to the rows before.
        grid(holdout, cv=folds).fit(*train)
    for leaves in (1, 5):
        grid(holdout, tree(min_samples_leaf=leaves), cv=folds).fit(*train)
    assert batches(since()) == [None] * 6


def test_folds_given_as_a_generator_have_none(
    holdout: LadderHoldout, train: Data, since: Any
) -> None:
    # scikit-learn lists them while it prepares the search, and may use the list again.
    grid(holdout, cv=holdout.split().split(*train)).fit(*train)
    assert batches(since()) == [None] * 3


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), IN_PROCESSES_AND_HERE)
def test_empty_folds_of_ones_own_after_a_search_have_none(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    # Many times: the memory of a search that ended is soon given to the next one.
    with on(backend, jobs):
        for leaves in range(1, 9):
            grid(holdout, tree(min_samples_leaf=leaves), {"max_depth": [2]}).fit(*train)
            the_one_batch(since(), 1)
            own = grid(holdout, tree(min_samples_leaf=leaves), cv=by_hand(len(train[0])))
            if jobs == 2:  # such a fold does not tell a worker what was done to the rows before
                with pytest.raises(SearchStopped, match=r"cv=holdout\.split\(\)"):
                    own.fit(*train)
                assert since() == []
                break
            own.fit(*train)
            assert batches(since()) == [None] * 3


def test_folds_that_cross_validate_returned_have_none(
    holdout: LadderHoldout, train: Data, since: Any
) -> None:
    settings = {"scoring": holdout, "return_indices": True}
    first = cross_validate(tree(), *train, cv=holdout.split(), **settings)
    folds = list(zip(first["indices"]["train"], first["indices"]["test"], strict=True))
    for depth in range(1, 5):
        cross_validate(tree(max_depth=depth), *train, cv=folds, **settings)
    assert batches(since()) == [None] * 5


def test_a_search_that_failed_leaves_no_batch_behind(
    holdout: LadderHoldout, train: Data, since: Any
) -> None:
    def fail(X: Any, y: Any) -> None:
        raise ZeroDivisionError

    for _ in range(5):
        with pytest.raises(ZeroDivisionError) as kept:  # its traceback keeps the frames alive
            grid(holdout, Asking(fail), error_score="raise").fit(*train)
        grid(holdout, cv=by_hand(len(train[0]))).fit(*train)
        assert batches(since()) == [None] * 3
        assert kept.value.__traceback__ is not None


def test_a_scoring_function_of_ones_own_that_asks_has_none_but_is_found_again(
    holdout: LadderHoldout, train: Data, since: Any
) -> None:
    # It could ask several times, each time after the answer before.
    def scoring(estimator: Any, X: Any, y: Any) -> dict[str, float]:
        return {"held": holdout(estimator, X, y)}

    search = GridSearchCV(
        tree(), DEPTHS, scoring=scoring, cv=holdout.split(), refit=holdout.select
    ).fit(*train)
    found = since()
    assert batches(found) == [None] * 3
    last = max((one for one in found if one.improved), key=lambda one: one.number)
    assert search.best_params_["max_depth"] == last.context["parameters"]["max_depth"]


# -- searches inside searches --------------------------------------------------------------


def nested(holdout: LadderHoldout, inside: LadderHoldout) -> Any:
    inner = grid(inside, refit=inside.select)
    return grid(holdout, inner, {"estimator__min_samples_leaf": [1, 9]})


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.NoImprovementWarning")
@pytest.mark.parametrize(("backend", "jobs"), WORKERS)
def test_a_search_within_a_candidate_leaves_the_candidate_without(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    with on(backend, jobs):
        nested(holdout, holdout).fit(*train)
    found = since()
    outer = [one for one in found if one.context["estimator"] == "GridSearchCV"]
    inner = [one for one in found if one.context["estimator"] != "GridSearchCV"]
    assert batches(outer) == [None, None]
    own = {
        the_one_batch([one for one in inner if leaves == min_leaves(one)], 3) for leaves in (1, 9)
    }
    assert len(own) == 2


def min_leaves(submission: Submission) -> int:
    return int(submission.context["parameters"]["min_samples_leaf"])


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.LadderHoldoutWarning")
@pytest.mark.parametrize(("backend", "jobs"), PROCESSES)
def test_also_where_the_inner_search_asks_through_another_handle(
    holdout: LadderHoldout, train: Data, binary: Any, backend: str, jobs: int
) -> None:
    settings = {"scoring": "accuracy", "ladder": "inner", "ledger": holdout.ledger}
    inside = LadderHoldout(binary.X_holdout, binary.y_holdout, **settings)
    with on(backend, jobs):
        nested(holdout, inside).fit(*train)
    assert batches(list(holdout.history())) == [None, None]
    assert None not in batches(list(inside.history()))


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.NoImprovementWarning")
@pytest.mark.parametrize(
    "backend", ["threading", pytest.param("loky", marks=pytest.mark.processes)]
)
def test_also_where_the_candidate_runs_it_in_workers_of_its_own(
    holdout: LadderHoldout, train: Data, since: Any, backend: str
) -> None:
    parts = [grid(holdout, tree(min_samples_leaf=leaf), refit=holdout.select) for leaf in (1, 9)]
    with parallel_config(backend):
        grid(holdout, Parts(parts), {"best": [0, 1]}).fit(*train)
    outer = [one for one in since() if one.context["estimator"] == "Parts"]
    assert batches(outer) == [None, None]


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), IN_PROCESSES_AND_HERE)
def test_a_candidate_whose_fit_looks_by_hand_has_none(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    def look(X: Any, y: Any) -> None:
        holdout.submit(DecisionTreeClassifier(max_depth=7, random_state=1).fit(X, y))

    with on(backend, jobs):
        grid(holdout, Asking(look)).fit(*train)
    assert batches(since()) == [None] * 6


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), PROCESSES)
def test_a_candidate_whose_fit_calls_the_scorer_by_hand_has_none(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    def look(X: Any, y: Any) -> None:
        holdout(DecisionTreeClassifier(max_depth=7, random_state=1).fit(X, y), X[:0], y[:0])

    with on(backend, jobs):
        grid(holdout, Asking(look)).fit(*train)
    assert batches(since()) == [None] * 6


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), PROCESSES)
def test_a_candidate_whose_fit_searches_on_folds_of_its_own_is_refused(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    def look(X: Any, y: Any) -> None:
        grid(holdout, tree(min_samples_leaf=9), cv=by_hand(len(X))).fit(X, y)

    with on(backend, jobs), pytest.raises(SearchStopped, match="a search inside Asking"):
        grid(holdout, Asking(look)).fit(*train)  # which may have changed the rows
    assert since() == []


def test_candidates_scored_before_one_that_looks_keep_their_batch(
    holdout: LadderHoldout, train: Data, since: Any
) -> None:
    def look(X: Any, y: Any) -> None:
        holdout.submit(DecisionTreeClassifier(max_depth=7, random_state=1).fit(X, y))

    grid(holdout, Asking(), {"ask": [None, look, None]}).fit(*train)
    first, *others = since()
    assert first.batch is not None
    assert batches(others) == [None] * 3


# -- at the same time ----------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.NoImprovementWarning")
@pytest.mark.parametrize(("backend", "jobs"), WORKERS)
def test_two_searches_at_once_on_one_handle_never_mix(
    holdout: LadderHoldout, train: Data, since: Any, backend: str, jobs: int
) -> None:
    together = threading.Barrier(2)

    def search(leaves: int) -> Any:
        together.wait(60)
        with on(backend, jobs):
            found = grid(
                holdout,
                tree(min_samples_leaf=leaves),
                {"max_depth": list(range(1, 9))},
                refit=holdout.select,
            )
            return found.fit(*train)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(search, [1, 9]))
    found = since()
    own = [the_one_batch([e for e in found if min_leaves(e) == leaves], 8) for leaves in (1, 9)]
    assert own[0] != own[1]


@pytest.mark.processes
def test_looks_of_another_thread_during_a_search_have_none(
    holdout: LadderHoldout, train: Data, binary: Any, since: Any, patient: type[Patient]
) -> None:
    fitted = tree(max_depth=7).fit(*train)
    search = grid(holdout, patient(random_state=0))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(search.fit, *train)
        assert patient.began.wait(60)
        holdout.submit(fitted)
        holdout.submit(1 - binary.y_holdout)
        holdout(fitted, train[0][:0], train[1][:0])
        holdout(fitted, binary.X_holdout, binary.y_holdout)
        listed = list(holdout.split().split(*train))
        for leaves, folds in ((9, listed), (8, by_hand(len(train[0])))):
            grid(holdout, tree(min_samples_leaf=leaves), cv=folds).fit(*train)
        assert batches(since()) == [None] * 10
        patient.go_on.set()
        running.result()
    the_one_batch(since(), 3)


# -- what a round costs --------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize(("backend", "jobs"), IN_PROCESSES_AND_HERE)
def test_a_search_that_ended_keeps_no_training_rows_alive(
    holdout: LadderHoldout, train: Data, backend: str, jobs: int
) -> None:
    X, y = train[0].copy(), train[1].copy()
    rows = weakref.ref(X)
    with on(backend, jobs):
        grid(holdout).fit(X, y)
    cross_validate(tree(), X, y, scoring=holdout, cv=holdout.split())
    del X
    until = time.monotonic() + 60  # loky lets go of its last task a moment later
    while rows() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert rows() is None


def test_a_guarded_fold_is_an_empty_array_of_integers_wherever_it_goes(
    holdout: LadderHoldout, train: Data
) -> None:
    ((rows, fold),) = holdout.split().split(*train)
    assert np.array_equal(rows, np.arange(len(train[0])))
    for same in (fold, pickle.loads(pickle.dumps(fold)), fold.copy(), fold[:0], np.asarray(fold)):
        assert same.shape == (0,)
        assert same.dtype == np.intp
        assert train[0][same].shape == (0, train[0].shape[1])
    assert len(pickle.dumps(fold)) < 500
