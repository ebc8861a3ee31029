"""Attacks the callback of scikit-learn: lost tasks, lost batches, raw scores, other versions."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from ladderholdout.errors import OlderPackage
from ladderholdout.integrations.sklearn_callback import FitRun, LadderCallback
from tests.conftest import Binary
from tests.support.holdouts import entries_of, record

pytestmark = pytest.mark.processes  # a callback opens a socket
pytest.importorskip("sklearn.callback", reason="scikit-learn has no callbacks before 1.9")

GRID = {"max_depth": [1, 2, 3, 5, 8, 12]}
TREE = DecisionTreeClassifier(random_state=0)


@pytest.fixture
def holdout(binary: Binary) -> LadderHoldout:
    return LadderHoldout(binary.X_holdout, binary.y_holdout, scoring="accuracy", name="tumours")


def grid(holdout: LadderHoldout, **settings: Any) -> GridSearchCV:
    return GridSearchCV(
        TREE, GRID, scoring=holdout, cv=holdout.split(), refit=holdout.select, **settings
    )


def raw_scores(holdout: LadderHoldout) -> set[str]:
    """Raw scores and risks that were not released, as text."""
    shown = {entry.risk for entry in entries_of(holdout)}
    hidden = {one.raw_risk for one in record(holdout)[2]} - shown
    assert hidden, "all of it was released, so that the test shows nothing"
    return {repr(value) for risk in hidden for value in (risk, 1 - risk)}


def names_of(run: FitRun) -> list[str]:
    assert all(one.seconds is not None and one.seconds >= 0 for one in run.tasks)
    return [one.name for one in run.tasks]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_grid_that_asks_the_holdout_is_followed_and_stays_a_batch(
    holdout: LadderHoldout, binary: Binary, n_jobs: int
) -> None:
    seen = LadderCallback(holdout, verbose=0)
    search = grid(holdout, n_jobs=n_jobs).set_callbacks(seen)
    search.fit(binary.X_train, binary.y_train)
    (run,) = seen.runs
    kinds = ["fit", "search", *["candidate-split-evaluation"] * 6, "refit-with-best-params"]
    assert sorted(names_of(run)) == sorted(kinds)
    assert len({one.path for one in run.tasks}) == len(run.tasks)
    assert run.estimator == "GridSearchCV" and run.submissions == 6
    status = holdout.status()
    assert run.status == status
    made = holdout.history()
    assert run.improvements == tuple((one.number, one.score) for one in made if one.improved)
    # Nothing was read before the end, so that the candidates are one batch, as without it.
    (batch,) = {entry.batch for entry in entries_of(holdout)}
    assert batch is not None
    kept = pickle.dumps(seen) + repr(seen.runs).encode() + str(run).encode()
    assert not [value for value in raw_scores(holdout) if value.encode() in kept]
    assert str(status.incumbent) in str(run) and run._repr_html_().startswith("<table>")
    search.fit(binary.X_train, binary.y_train)
    assert [one.submissions for one in seen.runs] == [6, 6]
    assert seen.runs[1].begun > run.begun


def test_what_is_shown_are_tasks_and_then_releases(
    holdout: LadderHoldout, binary: Binary, capsys: pytest.CaptureFixture[str]
) -> None:
    grid(holdout).set_callbacks(LadderCallback(holdout)).fit(binary.X_train, binary.y_train)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "9/9" in shown.err  # the tasks, all of them
    said = re.sub(r"\s+", " ", shown.err)
    status = holdout.status()
    assert f"submissions 6, {sum(one.improved for one in holdout.history())} improved" in said
    assert f"released score {status.score:.6g} (submission {status.incumbent})" in said
    assert "certificate true score in" in said
    assert not [value for value in raw_scores(holdout) if value[:8] in shown.err]


@pytest.mark.parametrize(("depth", "candidates"), [(0, 0), (1, 12)])
def test_a_guarded_search_is_followed_to_its_finalists(
    holdout: LadderHoldout, binary: Binary, depth: int, candidates: int
) -> None:
    from sklearn.callback import ProgressBar

    seen = LadderCallback(holdout, verbose=0, max_propagation_depth=depth)
    search = holdout.guard(GridSearchCV(TREE, GRID, cv=2), finalists=2)
    search.set_callbacks(seen, ProgressBar(max_propagation_depth=0))
    search.fit(binary.X_train, binary.y_train)
    (run,) = seen.runs
    names = names_of(run)
    assert names.count("finalist") == len(search.finalists_) == run.submissions == 2
    assert names.count("candidate-split-evaluation") == candidates
    assert {"fit", "finalists"} <= set(names)
    assert run.estimator == "GuardedSearch"
    assert run.status is not None and run.status.incumbent == holdout.status().incumbent
    again = pickle.loads(pickle.dumps(search))
    assert np.array_equal(again.predict(binary.X_test), search.predict(binary.X_test))


def test_a_guarded_search_is_the_same_without_callbacks(binary: Binary, tmp_path: Path) -> None:
    found = []
    for with_callback in (False, True):
        ledger = tmp_path / f"{with_callback}.db"
        rows = binary.X_holdout, binary.y_holdout
        holdout = LadderHoldout(*rows, scoring="accuracy", name="same", ledger=ledger)
        search = holdout.guard(GridSearchCV(TREE, GRID, cv=2), finalists=3)
        if with_callback:
            search.set_callbacks(LadderCallback(holdout, verbose=0, max_propagation_depth=1))
        search.fit(binary.X_train, binary.y_train)
        found.append((search.best_params_, [one.candidate for one in search.finalists_]))
        assert len({entry.batch for entry in entries_of(holdout)}) == 1
    assert found[0] == found[1]


def test_a_ledger_in_memory_is_not_sent_to_workers(binary: Binary) -> None:
    rows = binary.X_holdout, binary.y_holdout
    holdout = LadderHoldout(*rows, scoring="accuracy", ledger="memory")
    seen = LadderCallback(holdout, verbose=0, max_propagation_depth=1)
    search = holdout.guard(GridSearchCV(TREE, GRID, cv=2, n_jobs=2), finalists=2)
    search.set_callbacks(seen).fit(binary.X_train, binary.y_train)
    assert names_of(seen.runs[0]).count("candidate-split-evaluation") == 12
    assert seen.runs[0].submissions == 2
    alone = pickle.loads(pickle.dumps(seen))
    alone.max_propagation_depth = 0
    GridSearchCV(TREE, GRID, cv=2).set_callbacks(alone).fit(binary.X_train, binary.y_train)
    assert "another process" in str(alone.runs[-1])


def test_a_fit_that_fails_is_over_as_well(holdout: LadderHoldout, binary: Binary) -> None:
    seen = LadderCallback(holdout, verbose=0)
    search = grid(holdout).set_callbacks(seen)
    with pytest.raises(SearchStopped), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(binary.X_train, binary.y_train + 5)  # classes that the holdout does not have
    (run,) = seen.runs
    assert run.submissions == 0 and any(one.seconds is None for one in run.tasks)
    assert " of " in str(run)


def test_a_ledger_that_is_gone_fails_no_fit_that_does_not_ask_it(
    holdout: LadderHoldout, binary: Binary, default_ledger: Path
) -> None:
    seen = LadderCallback(holdout, verbose=0)
    search = GridSearchCV(TREE, GRID, cv=2).set_callbacks(seen)
    default_ledger.rename(default_ledger.with_name("gone.db"))
    search.fit(binary.X_train, binary.y_train)
    (run,) = seen.runs
    assert run.status is None and run.fault is not None and "not read" in str(run)


class Stopping:
    """A callback that asks to stop at the end of each task."""

    def setup(self, estimator: Any, context: Any) -> None: ...

    def teardown(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        return True


def test_no_estimator_of_scikit_learn_heeds_a_callback_that_asks_to_stop(binary: Binary) -> None:
    """Where one does, stopping belongs into `LadderCallback`, and this fails."""
    X, y = StandardScaler().fit_transform(binary.X_train), binary.y_train
    logistic = LogisticRegression(max_iter=500)
    plain = logistic.fit(X, y).n_iter_[0]
    assert plain > 3
    assert LogisticRegression(max_iter=500).set_callbacks(Stopping()).fit(X, y).n_iter_[0] == plain
    search = GridSearchCV(TREE, GRID, cv=2).set_callbacks(Stopping()).fit(X, y)
    assert len(search.cv_results_["params"]) == 6 and search.best_estimator_ is not None
    piped = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    piped.set_callbacks(Stopping()).fit(binary.X_train, y)
    assert piped[-1].n_iter_[0] == plain


def test_one_object_follows_the_copies_of_a_search(holdout: LadderHoldout) -> None:
    from sklearn.base import clone

    seen = LadderCallback(holdout, verbose=0)
    assert copy.deepcopy(seen) is seen
    search = grid(holdout).set_callbacks(seen)
    assert clone(search)._skl_callbacks == [seen]
    assert repr(seen).startswith("LadderCallback(")


@pytest.mark.parametrize(
    ("argument", "settings"),
    [
        ("verbose", {"verbose": -1}),
        ("verbose", {"verbose": "much"}),
        ("max_propagation_depth", {"max_propagation_depth": -1}),
        ("max_propagation_depth", {"max_propagation_depth": 1.5}),
    ],
)
def test_arguments_are_checked(
    holdout: LadderHoldout, argument: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        LadderCallback(holdout, **settings)
    assert refused.value.args[0] == argument
    with pytest.raises(InvalidArgument, match="a LadderHoldout"):
        LadderCallback(grid(holdout))  # type: ignore[arg-type]


# -- scikit-learn before 1.9 ---------------------------------------------------------------

SEARCHES = "ladderholdout.integrations.guarded_search"


@pytest.fixture
def before_1_9(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the callbacks, as an older scikit-learn has none, and import the searches anew."""
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    known = sys.modules.pop(SEARCHES, None)
    yield
    sys.modules.pop(SEARCHES, None)
    if known is not None:
        sys.modules[SEARCHES] = known


def test_an_older_scikit_learn_is_named_with_what_to_do(
    holdout: LadderHoldout, before_1_9: None
) -> None:
    with pytest.raises(OlderPackage, match=r"needs scikit-learn 1\.9 or newer.*pip install") as old:
        LadderCallback(holdout)
    assert isinstance(old.value, ImportError) and old.value.name == "scikit-learn"
    assert str(pickle.loads(pickle.dumps(old.value))) == str(old.value)


def test_guarded_searches_need_no_callbacks(
    holdout: LadderHoldout, binary: Binary, before_1_9: None
) -> None:
    anew = importlib.import_module(SEARCHES)
    search = anew.GuardedSearch(GridSearchCV(TREE, GRID, cv=2), holdout, finalists=2)
    assert not hasattr(search, "set_callbacks")
    assert len(search.fit(binary.X_train, binary.y_train).finalists_) == 2
