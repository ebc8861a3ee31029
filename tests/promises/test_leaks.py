"""Attack promise 1: nothing that depends on the holdout's labels gets out, except releases.

The holdout's labels, its secret and every raw risk are canaries: a class that stands in
the holdout alone, and weighted accuracies of which no two share six digits. Every way out
is turned to bytes and searched for them. The same search finds them where they do lie, in
the ledger, in an audit and in what an unguarded search leaves behind; so it can fail.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import random
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import cloudpickle
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, LadderHoldoutError, Metric, SearchStopped
from ladderholdout.cli import app
from ladderholdout.mechanisms import (
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    ShakyLadder,
    SimplifiedLadder,
)
from tests.support.canaries import (
    ONLY_HERE,
    Canaries,
    all_logs,
    canaries_of,
    chain,
    folder_bytes,
    pickles,
    texts_of,
    words_of,
)
from tests.support.commands import CliRunner
from tests.support.ledgers import FAULTS, entries_of, sabotage, secret_of, write_past_the_library
from tests.support.mlflow_stores import new_store

pytestmark = pytest.mark.processes

CANARY = "canary-7731"
YES, NO = f"{CANARY}-yes", f"{CANARY}-no"
GRID = {"max_depth": [1, 2, 3], "random_state": [0, 1, 2, 3]}


# -- the data -----------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Data:
    X_train: NDArray[np.float64]
    y_train: NDArray[Any]
    X: NDArray[np.float64]
    y: NDArray[Any]
    weights: NDArray[np.float64]

    def open(self, ledger: Path | str, **settings: Any) -> LadderHoldout:
        chosen = {"scoring": "accuracy", "mechanism": Ladder(step=0.05), "name": "canaries"}
        return LadderHoldout(
            self.X, self.y, sample_weight=self.weights, ledger=ledger, **(chosen | settings)
        )

    def search(self, holdout: LadderHoldout, **settings: Any) -> GridSearchCV:
        chosen = {"scoring": holdout, "cv": holdout.split(), "refit": holdout.select}
        tree = DecisionTreeClassifier(max_features=1)
        return GridSearchCV(tree, GRID, **(chosen | settings)).fit(self.X_train, self.y_train)

    def raw_scores(self) -> list[float]:
        """What no analyst may see, by scikit-learn's own reckoning."""
        trees = (
            DecisionTreeClassifier(max_features=1, max_depth=depth, random_state=seed)
            for depth in GRID["max_depth"]
            for seed in GRID["random_state"]
        )
        guesses = (tree.fit(self.X_train, self.y_train).predict(self.X) for tree in trees)
        return [accuracy_score(self.y, guess, sample_weight=self.weights) for guess in guesses]


@pytest.fixture(scope="module")
def data(binary: Any) -> Data:
    """Breast cancer with named classes; five rows of the holdout are of a class of its own."""
    y_train = np.where(binary.y_train == 1, YES, NO)
    y = np.where(binary.y_holdout == 1, YES, NO).astype(object)
    y[::29] = ONLY_HERE
    weights = np.random.default_rng(7731).uniform(0.5, 1.5, len(y))
    return Data(binary.X_train, y_train, binary.X_holdout, y.astype(str), weights)


# -- everything that a search leaves behind ----------------------------------------------


@dataclass(frozen=True)
class Searched:
    """What an analyst has in hand after a search, as bytes, and what must not be in it."""

    channels: dict[str, bytes]
    canaries: Canaries
    raw_scores: list[float]
    ledger: Path


MECHANISMS: list[Mechanism] = [
    Ladder(step=0.05),
    SimplifiedLadder(step=0.05),
    ParameterFreeLadder(),
    PricedLadder(),
    PairedTestLadder(alpha=0.05),
    ShakyLadder(step=0.05, noise=0.01),
]


@pytest.fixture(scope="module", params=MECHANISMS, ids=lambda mechanism: mechanism.name)
def searched(
    request: pytest.FixtureRequest, data: Data, tmp_path_factory: pytest.TempPathFactory
) -> Searched:
    path = tmp_path_factory.mktemp("searched") / "ledger.db"
    with all_logs() as records, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        holdout = data.open(path, mechanism=request.param)
        search = data.search(holdout)
        release = holdout.submit(search.best_estimator_)
        other = data.open(path, mechanism=request.param, ladder="second", name="other")
        other.submit(np.full(len(data.y), YES))
        holdout.submit(np.full(len(data.y), YES))
        with pytest.raises(LadderHoldoutError):
            holdout.submit(data.y[:7])
        status, history = holdout.status(), holdout.history()
        logging.getLogger("sqlite3").debug("heard")  # the library itself says nothing to a log
    split = holdout.split(inner=2)
    shown = [holdout, split, search, search.cv_results_, release, status, *history]
    channels = {
        "cv_results_": repr(search.cv_results_).encode() + pickles(search.cv_results_),
        "search": pickles(search),
        "scorer": pickles(holdout) + pickles(search.scorer_),
        "splitter": pickles(split),
        "releases": pickles(release) + pickles(status) + pickles(history),
        "texts": "\n".join(f"{one!r}\n{one}" for one in shown).encode(),
        "views": repr([holdout.metric, holdout.rules, holdout.ledger, status.lines()]).encode(),
        "html": search._repr_html_().encode(),
        "warnings": "\n".join(str(one) for one in warned).encode(),
        "logs": "\n".join(records.texts).encode(),
    }
    return Searched(channels, canaries_of(holdout, data.y), data.raw_scores(), path)


def test_a_search_leaves_nothing_raw_behind(searched: Searched) -> None:
    assert [name for name, channel in searched.channels.items() if not channel] == []
    found = {name: searched.canaries.found_in(one) for name, one in searched.channels.items()}
    assert {name: canaries for name, canaries in found.items() if canaries} == {}


def test_the_searched_logs_and_warnings_are_not_empty(searched: Searched) -> None:
    assert b"heard" in searched.channels["logs"]
    assert b"KnownHoldoutWarning" in searched.channels["warnings"]


def test_what_holds_no_model_holds_no_class_name_either(searched: Searched) -> None:
    # The fitted trees know the names of the training classes; these have no such excuse.
    channels = ("scorer", "splitter", "releases", "warnings", "logs", "views")
    assert [name for name in channels if CANARY.encode() in searched.channels[name]] == []


def test_the_search_for_canaries_finds_them_where_they_lie(searched: Searched) -> None:
    ledger = b"".join(path.read_bytes() for path in searched.ledger.parent.glob("ledger.db*"))
    assert searched.canaries.found_in(ledger) >= {"raw risk", "secret"}
    assert searched.canaries.found_in(*searched.raw_scores) == {"raw score"}
    assert "label" in searched.canaries.found_in(folder_bytes(searched.ledger.parent / "vault"))


def test_an_unguarded_search_and_an_audit_show_what_a_guarded_one_hides(
    data: Data, tmp_path: Path
) -> None:
    holdout = data.open(tmp_path / "ledger.db")
    data.search(holdout)
    canaries = canaries_of(holdout, data.y)

    def unguarded(estimator: Any, X: Any, y: Any) -> float:
        return accuracy_score(data.y, estimator.predict(data.X), sample_weight=data.weights)

    naive = data.search(holdout, scoring=unguarded, refit=True)
    assert canaries.found_in(repr(naive.cv_results_["mean_test_score"])) == {"raw score"}
    assert canaries.found_in(pickle.dumps(naive.cv_results_)) == {"raw score"}
    assert canaries.found_in(cloudpickle.dumps(naive)) >= {"raw score", "label"}
    assert canaries.found_in(holdout.owner.audit()) == {"raw score"}
    assert canaries.found_in(repr(list(holdout.owner.audit().submissions))) == {"raw score"}


def test_what_is_told_depends_on_released_values_alone(data: Data, tmp_path: Path) -> None:
    # The few values below are all that a ladder of step .05 can give; nothing else is told.
    holdout = data.open(tmp_path / "ledger.db")
    search = data.search(holdout)
    told = {*search.cv_results_["mean_test_score"], *(one.score for one in holdout.history())}
    assert len(told) < len(search.cv_results_["mean_test_score"]) == 12
    assert np.allclose(np.array(sorted(told)) * 20, np.round(np.array(sorted(told)) * 20))


# -- other processes ----------------------------------------------------------------------


PREAMBLE = """
import json, sys, warnings
import numpy as np
from pathlib import Path
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier
from ladderholdout import (LadderHoldout, Metric)
from ladderholdout.mechanisms import Ladder

given = np.load(sys.argv[1])
X_train, y_train, X, y, weights = (given[name] for name in ("X_train", "y_train", "X", "y", "w"))
grid, yes = json.loads(sys.argv[2]), sys.argv[3]
"""


def run(script: str, data: Data, holdout: LadderHoldout, **environment: str) -> str:
    """Run a script beside the ledger of a holdout; return all that it prints."""
    folder = Path(holdout.status().ledger).parent
    np.savez(
        folder / "given.npz",
        X_train=data.X_train,
        y_train=data.y_train,
        X=data.X,
        y=data.y,
        w=data.weights,
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", PREAMBLE + textwrap.dedent(script)),
            *(str(folder / "given.npz"), json.dumps(GRID), YES),
        ],
        cwd=folder,
        env=os.environ | {"LADDERHOLDOUT_LEDGER": holdout.status().ledger} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_talkative_search_with_two_workers_prints_nothing_raw(data: Data, tmp_path: Path) -> None:
    holdout = data.open(tmp_path / "ledger.db")
    said = run(
        """
        import logging.config
        # A configuration for everything: dictConfig puts the loggers below those that it names
        # back to their parent's level.
        logging.config.dictConfig({
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"marked": {"format": "configured: %(name)s %(message)s"}},
            "handlers": {"all": {"class": "logging.StreamHandler", "formatter": "marked"}},
            "root": {"level": "DEBUG", "handlers": ["all"]},
            "loggers": {"psycopg": {"level": "DEBUG"}, "psycopg.pool": {"level": "DEBUG"}},
        })
        logging.getLogger("psycopg").debug("heard")
        holdout = LadderHoldout.open("canaries")
        holdout.submit(np.full(len(X), yes))
        holdout.history(), holdout.status()
        logging.root.setLevel(1)
        tree = DecisionTreeClassifier(max_features=1)
        search = GridSearchCV(tree, grid, scoring=holdout, cv=holdout.split(),
                              refit=holdout.select, n_jobs=2, verbose=10)
        search.fit(X_train, y_train)
        print(search, holdout, search.cv_results_, holdout.history(), holdout.status())
        holdout.owner.audit()
        """,
        data,
        holdout,
        PYTHONWARNINGS="always",
    )
    assert said.count("[CV 1/1") == 24  # the start and the end of each candidate
    assert "score=0." in said
    assert len(holdout.history()) == 13
    assert "configured: psycopg heard" in said
    assert "SELECT" not in said and "INSERT" not in said
    assert CANARY not in said
    assert not canaries_of(holdout, data.y).found_in(said)


def test_the_command_line_prints_nothing_raw(data: Data, tmp_path: Path) -> None:
    holdout = data.open(tmp_path / "ledger.db")
    data.search(holdout)
    place = ["--ledger", str(tmp_path / "ledger.db")]
    said = ""
    for command in (
        ["status"],
        ["status", "canaries"],
        ["history", "canaries"],
        ["status", "none"],
    ):
        result = CliRunner().invoke(app, [*command, *place], env={"COLUMNS": "400"})
        said += result.output + texts_of(result.exception or Exception())
    assert "canaries" in said and "improved" in said and "has no holdout" in said
    assert CANARY not in said
    assert not canaries_of(holdout, data.y).found_in(said)


def look_into(folder: Path, caught: Path) -> type[BaseEstimator]:
    """Make a classifier that copies a folder whenever it is fitted.

    The class is local, so that joblib's workers get it by value.
    """

    class Looking(ClassifierMixin, BaseEstimator):
        def __init__(self, seed: int = 0) -> None:
            self.seed = seed

        def fit(self, X: Any, y: Any) -> Looking:
            import shutil
            from uuid import uuid4

            shutil.copytree(folder, caught / uuid4().hex)
            self.classes_ = np.unique(y)
            return self

        def predict(self, X: Any) -> Any:
            return np.random.default_rng(self.seed).choice(self.classes_, len(X))

    return Looking


@pytest.mark.parametrize("vault", [True, False])
def test_joblibs_folder_never_holds_the_rows_of_a_holdout_in_the_vault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vault: bool
) -> None:
    # joblib writes arguments of more than a megabyte to its folder. The training rows are
    # found there, and with vault=False, where the rows travel with the handle, the holdout's.
    folder, caught = tmp_path / "joblib", tmp_path / "caught"
    folder.mkdir()
    monkeypatch.setenv("JOBLIB_TEMP_FOLDER", str(folder))
    rng = np.random.default_rng(7731)
    X_train, X = rng.normal(size=(20_000, 8)), rng.normal(size=(60_000, 8))
    y_train, y = rng.choice([YES, NO], 20_000), rng.choice([YES, NO], 60_000)
    holdout = LadderHoldout(
        X,
        y,
        scoring="accuracy",
        mechanism=Ladder(step=0.05),
        ledger=tmp_path / "ledger.db",
        vault=vault,
    )
    search = GridSearchCV(
        look_into(folder, caught)(),
        {"seed": [1, 2]},
        scoring=holdout,
        cv=holdout.split(),
        refit=False,
        n_jobs=2,
    ).fit(X_train, y_train)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    found = folder_bytes(caught)
    assert X_train[:3].tobytes() in found
    assert (X[:3].tobytes() in found) is not vault
    assert (y[:24].tobytes() in found) is not vault
    if vault:
        assert not canaries_of(holdout, y, class_name=CANARY * 2).found_in(found)


def test_the_handle_carries_nothing_of_a_large_holdout(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200_000, 2)), rng.choice([YES, NO, ONLY_HERE], 200_000)
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger=tmp_path / "ledger.db")
    holdout.submit(rng.choice([YES, NO], 200_000))
    for written in (
        pickle.dumps(holdout),
        cloudpickle.dumps(holdout),
        pickle.dumps(holdout.split()),
    ):
        assert len(written) < 2000
        assert CANARY.encode() not in written


MLFLOW = """
warnings.simplefilter("ignore")
import mlflow, mlflow.sklearn
mlflow.sklearn.autolog(log_models=MODELS)
import sklearn.metrics

tree = DecisionTreeClassifier(max_features=1, random_state=99)
def in_store(name):
    mlflow.set_tracking_uri(f"sqlite:///{name}/mlflow.db")
    place = (Path(name) / "artifacts").absolute().as_uri()
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("e", artifact_location=place))

in_store("guarded")
holdout = LadderHoldout.open("canaries")
search = GridSearchCV(tree, grid, scoring=holdout, cv=holdout.split(), refit=holdout.select)
search.fit(X_train, y_train)
# Autologging has replaced this function by one that logs.
kappa = Metric("kappa", "labels", score=sklearn.metrics.cohen_kappa_score, loss_range=(0, 2),
               offset=1)
own = LadderHoldout(X, y, sample_weight=weights, scoring=kappa, ladder="kappa",
                    mechanism=Ladder(step=0.05))
with mlflow.start_run():
    tree.fit(X_train, y_train)
    guesses = tree.predict(X)
    for guarded in (holdout, own):
        guarded.submit(tree)
        guarded.submit(guesses)

in_store("unguarded")
with mlflow.start_run():
    tree.fit(X_train, y_train)
    guesses = tree.predict(X)
    sklearn.metrics.accuracy_score(y, guesses, sample_weight=weights)
"""


@pytest.mark.parametrize(
    "models",
    [
        pytest.param("False", id="scores"),
        pytest.param("True", id="models", marks=pytest.mark.nightly),
    ],
)
def test_mlflows_autologging_sees_releases_alone(data: Data, tmp_path: Path, models: str) -> None:
    # By hand, the same predictions would have put the raw score into the analyst's run.
    holdout = data.open(tmp_path / "ledger.db")
    for name in ("guarded", "unguarded"):
        new_store(tmp_path / name)
    run(MLFLOW.replace("MODELS", models), data, holdout)
    canaries = canaries_of(holdout, data.y)
    assert len(holdout.history()) == 14
    seen = folder_bytes(tmp_path / "guarded")
    assert b"cv_results.csv" in seen and b"best_cv_score" not in canaries.forms
    assert not canaries.found_in(seen)
    assert "raw score" in canaries.found_in(folder_bytes(tmp_path / "unguarded"))


# -- what refusals say --------------------------------------------------------------------


class Talkative(ClassifierMixin, BaseEstimator):
    """Fails on the holdout's rows with whatever it was given."""

    def fit(self, X: Any, y: Any) -> Talkative:
        return self

    def predict(self, X: Any) -> Any:
        raise ValueError("no such column")


def wrong(data: Data) -> dict[str, Any]:
    """Predictions and models that are refused, by what is wrong with them."""
    guess = np.random.default_rng(0).choice([YES, NO], len(data.y))
    unknown, missing = guess.astype(object), guess.astype(object)
    unknown[3], missing[3] = f"{CANARY}-unknown", None
    fitted = DummyClassifier().fit(data.X_train, np.where(data.y_train == YES, "other", NO))
    return {
        "length": guess[:-1],
        "shape": np.stack([guess, guess], axis=1),
        "nan": np.full(len(guess), np.nan),
        "missing": missing,
        "unknown class": unknown,
        "numbers for text": np.zeros(len(guess)),
        "nothing": None,
        "no predict": BaseEstimator(),
        "class of its own": fitted,
        "unfitted": DummyClassifier(),
        "fails": Talkative(),
    }


REFUSED = ["length", "shape", "nan", "missing", "unknown class", "numbers for text", "nothing"]
REFUSED_MODELS = ["no predict", "class of its own", "unfitted", "fails"]


def raised(do: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as info:
        do()
    return info.value


def test_refused_predictions_are_not_quoted(data: Data, tmp_path: Path) -> None:
    holdout = data.open(tmp_path / "ledger.db")
    holdout.submit(np.full(len(data.y), YES))
    canaries = canaries_of(holdout, data.y)
    for name in REFUSED:
        error = raised(lambda name=name: holdout.submit(wrong(data)[name]))  # type: ignore[misc]
        assert isinstance(error, InvalidArgument), name
        assert CANARY not in words_of(error), name
        assert not canaries.found_in(texts_of(error)), name


def test_refused_models_show_nothing_of_the_holdout(data: Data, tmp_path: Path) -> None:
    holdout = data.open(tmp_path / "ledger.db")
    holdout.submit(np.full(len(data.y), YES))
    for name in REFUSED_MODELS:
        model = wrong(data)[name]
        error = raised(lambda model=model: holdout.submit(model))  # type: ignore[misc]
        assert CANARY not in words_of(error), name
        error = raised(lambda model=model: holdout(model, data.X[:0], data.y[:0]))  # type: ignore[misc]
        assert CANARY not in words_of(error), name


def quoting(targets: Any, predictions: Any, sample_weight: Any = None) -> float:
    """Fail as a careless metric does, with the labels in the text."""
    raise ValueError(f"{targets.tolist()} {targets!r} {ONLY_HERE}")


def undefined(targets: Any, predictions: Any, sample_weight: Any = None) -> float:
    warnings.warn(f"{targets.tolist()} {ONLY_HERE}", stacklevel=1)
    return 0.5 if np.array_equal(targets, predictions) else float("nan")


def late(targets: Any, predictions: Any, sample_weight: Any = None) -> float:
    """Quote the labels from the second submission on: registration tries the metric once."""
    return 0.5 if np.array_equal(targets, predictions) else quoting(targets, predictions)


@pytest.mark.parametrize("function", [quoting, undefined, late])
def test_a_metric_that_fails_is_not_quoted(
    data: Data, tmp_path: Path, function: Callable[..., float]
) -> None:
    metric = Metric("own", "labels", score=function)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")

        def ask() -> None:
            data.open(tmp_path / "ledger.db", scoring=metric).submit(np.full(len(data.y), YES))

        error = raised(ask)
    assert isinstance(error, LadderHoldoutError)
    said = words_of(error) + "".join(map(str, warned))
    canaries = Canaries.of(np.sort(data.y), [], b"no secret")
    assert not canaries.found_in(said) and CANARY not in said


BAD_ROWS: dict[str, Callable[[Data], dict[str, Any]]] = {
    "one label too few": lambda data: {"y": data.y[:-1]},
    "a missing label": lambda data: {"y": [*data.y[:-1], None]},
    "a mix": lambda data: {"y": [*data.y[:-1], 1.5]},
    "a nested label": lambda data: {"y": [*data.y[:-1], [YES]]},
    "a label that is an object": lambda data: {"y": [*data.y[:-1], {YES: lambda: 0}]},
    "classes that lack one": lambda data: {"classes": [YES, NO]},
    "text for a regression": lambda data: {"scoring": "r2"},
    "three classes for two": lambda data: {"scoring": "f1"},
    "three classes for a curve": lambda data: {"scoring": "roc_auc"},
    "constant targets": lambda data: {"scoring": "r2", "y": np.full(len(data.y), 0.377317)},
    "targets below zero": lambda data: {
        "scoring": "neg_mean_gamma_deviance",
        "y": np.full(len(data.y), -0.377317),
    },
    "a weight that is text": lambda data: {"sample_weight": [*data.weights[:-1], YES]},
    "a weight below zero": lambda data: {"sample_weight": -data.weights},
    "rows that are objects": lambda data: {"X": [{YES: 1}] * len(data.y)},
    "other labels": lambda data: {"y": data.y[::-1].copy()},
    "another mechanism": lambda data: {"mechanism": Ladder(step=0.01)},
    "another metric": lambda data: {"scoring": "f1_macro"},
}


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
def test_a_refused_registration_names_no_label(data: Data, tmp_path: Path) -> None:
    known = data.open(tmp_path / "ledger.db")
    known.submit(np.full(len(data.y), YES))
    canaries = canaries_of(known, data.y)
    for case, changed in BAD_ROWS.items():
        wanted = {
            "X": data.X, "y": data.y, "scoring": "accuracy", "sample_weight": data.weights,
            "mechanism": Ladder(step=0.05), "ledger": tmp_path / "ledger.db",
        } | changed(data)  # fmt: skip
        error = raised(lambda wanted=wanted: LadderHoldout(**wanted))  # type: ignore[misc]
        assert isinstance(error, LadderHoldoutError), case
        said = words_of(error)
        assert CANARY not in said and "377317" not in said, case
        assert not canaries.found_in(said), case


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_database_is_told_without_the_row(
    data: Data, tmp_path: Path, fault: str
) -> None:
    # The raw risk of the submission that fails is in no ledger, so it is reckoned here.
    path = tmp_path / "ledger.db"
    holdout = data.open(path)
    holdout.submit(np.full(len(data.y), NO))
    guess = np.full(len(data.y), YES)
    hits = (guess == data.y) @ data.weights / data.weights.sum()
    canaries = Canaries.of(data.y, [1.0 - float(hits)], secret_of(holdout))
    sabotage(path, fault)
    dummy = DummyClassifier(strategy="constant", constant=YES).fit(data.X_train, data.y_train)
    search = GridSearchCV(dummy, {"random_state": [1, 2]}, scoring=holdout, cv=holdout.split())
    ways = [
        lambda: holdout.submit(guess),
        lambda: holdout.submit(dummy),
        lambda: search.fit(data.X_train, data.y_train),
    ]
    if fault == "the driver quotes the row":  # a worker's error is another text around the same one
        ways.append(lambda: search.set_params(n_jobs=2).fit(data.X_train, data.y_train))
    for do in ways:
        with all_logs() as records:
            error = raised(do)
        assert isinstance(error, LadderHoldoutError | SearchStopped)
        assert "The ledger" in str(error) and "cannot be used" in str(error)
        assert not canaries.found_in(texts_of(error), *records.texts)
        assert not any(hasattr(one, "params") for one in chain(error))
    assert len(holdout.history()) == 1


def test_the_searcher_would_find_a_row_that_the_driver_quotes(data: Data, tmp_path: Path) -> None:
    data.open(tmp_path / "ledger.db").submit(np.full(len(data.y), YES))
    hits = (data.y == YES) @ data.weights / data.weights.sum()
    canaries = Canaries.of(data.y, [1.0 - float(hits)], b"no secret")
    sabotage(tmp_path / "ledger.db", "the driver quotes the row")
    error = raised(lambda: write_past_the_library(tmp_path / "ledger.db"))
    assert canaries.found_in(texts_of(error)) == {"raw risk"}


# -- what cannot be computed from what is seen ---------------------------------------------


def seen_by_the_analyst(
    mechanism: Mechanism, y: NDArray[Any], guesses: NDArray[Any], scoring: str
) -> list[tuple[Any, ...]]:
    """Submit the same predictions by hand and by the scorer; return all that is shown.

    The holdout's secret comes from a seeded source, so that only the labels differ.
    """
    X, ledger = np.arange(2.0 * len(y)).reshape(-1, 2), f"memory:{uuid4().hex}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", random.Random(7731).randbytes)
        holdout = LadderHoldout(X, y, scoring=scoring, mechanism=mechanism, ledger=ledger)
    seen: list[tuple[Any, ...]] = [
        (one.score, one.improved, one.submission, one.improvements)
        for one in map(holdout.submit, guesses)
    ]
    for one in holdout.history():
        seen.append((one.number, one.score, one.improved))
    status = holdout.status()
    return [*seen, (status.score, status.releases, status.incumbent, str(holdout.rules))]


@settings(max_examples=10)
@given(
    mechanism=st.sampled_from(MECHANISMS),
    scoring=st.sampled_from(["accuracy", "neg_brier_score"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_labels_that_change_no_release_change_nothing_that_is_seen(
    mechanism: Mechanism, scoring: str, seed: int
) -> None:
    # Labels are exchanged between rows that every submission treats alike, so every risk
    # stays what it is and any difference comes from elsewhere.
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(40) % 2)
    guesses = rng.random((6, 40)) if scoring == "neg_brier_score" else rng.integers(0, 2, (6, 40))
    guesses = np.where(rng.random(40) < 0.5, guesses[:, :1], guesses)
    alike = np.flatnonzero((guesses == guesses[:, :1]).all(axis=0))
    other = y.copy()
    other[alike] = rng.permutation(y[alike])
    assume(not np.array_equal(y, other))
    first = seen_by_the_analyst(mechanism, y, guesses, scoring)
    second = seen_by_the_analyst(mechanism, other, guesses, scoring)
    # A sum in another order may end on another digit, and a release without a step with it.
    assume(first[:6] == second[:6])
    assert first == second


@pytest.mark.parametrize("scoring", ["accuracy", "neg_mean_squared_error"])
def test_the_digests_in_the_ledger_do_not_tell_how_the_labels_lie(scoring: str) -> None:
    # Predictions are kept in the order of the rows' content, labels included. A digest that
    # anybody can compute could be tried for that order, one marked row at a time.
    y = np.random.default_rng(0).integers(0, 2, 20)
    holdout = LadderHoldout(np.arange(20.0)[:, None], y, scoring=scoring, ledger="memory")
    places = np.eye(20, dtype=np.int32 if scoring == "accuracy" else np.float64)
    holdout.submit(places[7])
    (one,) = entries_of(holdout)
    heads = b"", f"{places.dtype.str}{places[7].shape}".encode()
    tried = {sha256(head + place.tobytes()).hexdigest() for head in heads for place in places}
    assert one.digest not in tried
