"""Cases of MLflow as people have it set: experiments, runs, stores, and what was deleted."""

from __future__ import annotations

import logging.config
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import optuna
import pytest
from mlflow import MlflowClient
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import TrackingError, TrackingWarning
from ladderholdout.integrations.mlflow import export, places
from ladderholdout.integrations.mlflow.service import mlflow_findings
from tests.support.mlflow_stores import all_runs, new_store

optuna.logging.set_verbosity(optuna.logging.ERROR)

X, Y = load_breast_cancer(return_X_y=True)
X_TRAIN, X_HOLDOUT, Y_TRAIN, Y_HOLDOUT = train_test_split(
    X, Y, test_size=200, stratify=Y, random_state=0
)
SETTINGS = ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID")


@pytest.fixture
def holdout(tmp_path: Path) -> LadderHoldout:
    ledger = tmp_path / "ledger.db"
    return LadderHoldout(X_HOLDOUT, Y_HOLDOUT, scoring="accuracy", name="tumours", ledger=ledger)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store that is MLflow's own setting; what a test sets beside is taken back."""
    from mlflow.tracking import fluent

    uri = new_store(tmp_path / "store")
    mlflow.set_tracking_uri(None)  # what an earlier test of this process set
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    for name in SETTINGS:
        # Set once, so that what MLflow itself sets there is removed at the end.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(fluent, "_active_experiment_id", None)
    yield uri
    mlflow.set_tracking_uri(None)


def analysts(store: str, experiment: str) -> list[str]:
    """The analyst's runs in an experiment."""
    return [
        run.info.run_id
        for run in all_runs(MlflowClient(store), experiment)
        if run.data.tags.get("ladderholdout.kind") == "analyst"
    ]


def tracked(holdout: LadderHoldout, **settings: Any) -> str:
    with holdout.track(**settings) as tracking:
        holdout.submit(np.ones(200, dtype=int))
    return str(tracking.run_id)


def exported(holdout: LadderHoldout, **settings: Any) -> str:
    holdout.submit(np.ones(200, dtype=int))
    return export(holdout, **settings)[0].run_id


WAYS: dict[str, Callable[..., str]] = {"track": tracked, "export": exported}


# MLflow's own settings


def name_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "chosen")


def name_of_one_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow.create_experiment("chosen")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "chosen")


def number_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", mlflow.create_experiment("chosen"))


def set_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow.set_experiment("chosen")


def set_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "another")
    mlflow.set_experiment("chosen")


CHOICES = [
    name_in_environment,
    name_of_one_that_is_there,
    number_in_environment,
    set_by_name,
    set_over_the_environment,
]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("choose", "way"),
    [*zip(CHOICES, cycle(WAYS), strict=False)],
    ids=lambda it: it if isinstance(it, str) else it.__name__,
)
def test_a_new_run_goes_where_mlflow_is_set_to(
    holdout: LadderHoldout, store: str, monkeypatch: pytest.MonkeyPatch, choose: Any, way: str
) -> None:
    choose(monkeypatch)
    run_id = WAYS[way](holdout)
    assert analysts(store, "chosen") == [run_id] and analysts(store, "tumours") == []
    with mlflow.start_run() as own:  # where MLflow itself puts a run
        assert mlflow.get_run(run_id).info.experiment_id == own.info.experiment_id
    # What is stated is stronger, and what is of another server is not asked.
    assert WAYS[way](holdout, experiment="stated") in [*analysts(store, "stated"), run_id]


@pytest.mark.processes
@pytest.mark.parametrize("way", ["track"])
def test_a_setting_of_another_server_is_not_asked(
    holdout: LadderHoldout, store: str, tmp_path: Path, way: str
) -> None:
    mlflow.set_experiment("chosen")
    other = new_store(tmp_path / "other")
    run_id = WAYS[way](holdout, tracking_uri=other)
    assert analysts(other, "tumours") == [run_id]


@pytest.mark.processes
@pytest.mark.parametrize(("how", "way"), [("MLFLOW_RUN_ID", "export"), ("active", "track")])
def test_a_run_that_mlflow_is_set_to_is_the_analysts(
    holdout: LadderHoldout, store: str, monkeypatch: pytest.MonkeyPatch, how: str, way: str
) -> None:
    client = MlflowClient(store)
    earlier = tracked(holdout)
    mine = client.create_run(client.create_experiment("mine")).info.run_id
    if how == "active":
        with mlflow.start_run(mine):
            assert WAYS[way](holdout) == mine
            assert client.get_run(mine).info.status == "RUNNING"
    else:
        monkeypatch.setenv("MLFLOW_RUN_ID", mine)
        assert WAYS[way](holdout) == mine
    number = str(holdout.status().submissions)
    assert client.get_run(mine).data.tags["ladderholdout.entries"] == number
    assert client.get_run(earlier).data.tags["ladderholdout.entries"] == "1"


@pytest.mark.processes
@pytest.mark.parametrize("how", ["MLFLOW_TRACKING_URI", "set_tracking_uri"])
def test_the_server_that_mlflow_is_set_to(
    holdout: LadderHoldout, store: str, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_store(tmp_path / "other")
    if how == "set_tracking_uri":
        mlflow.set_tracking_uri(other)
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", other)
    run_id = tracked(holdout)
    assert analysts(other, "tumours") == [run_id] and analysts(store, "tumours") == []


@pytest.mark.processes
def test_what_is_not_there_is_said_and_the_remedy_helps(
    holdout: LadderHoldout, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    with pytest.raises(TrackingError, match=r"Run with id=0+ not found"):
        exported(holdout)
    with pytest.warns(TrackingWarning, match=r"Run with id=0+ not found"):
        tracked(holdout)
    monkeypatch.delenv("MLFLOW_RUN_ID")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "77")
    with pytest.raises(TrackingError, match=r"No Experiment with id=77 exists"):
        exported(holdout)
    with pytest.warns(TrackingWarning, match=r"MLFLOW_EXPERIMENT_ID=77 ladder-holdout export"):
        tracked(holdout)
    mlflow.set_experiment("there")
    run_id = exported(holdout)
    assert analysts(store, "there") == [run_id]


# Parameters


def params_of(store: str, run_id: str) -> dict[str, str]:
    return MlflowClient(store).get_run(run_id).data.params


@pytest.mark.processes
@pytest.mark.parametrize("steps", [False, True])
def test_a_guarded_searchs_run_has_the_parameters_of_its_best(
    holdout: LadderHoldout, store: str, steps: bool
) -> None:
    model: Any = LogisticRegression(max_iter=5000)
    grid = {"C": [0.001, 1.0]}
    if steps:
        model, grid = make_pipeline(StandardScaler(), model), {"logisticregression__C": [1e-4, 1.0]}
    search = holdout.guard(GridSearchCV(model, grid, cv=2))
    with holdout.track() as tracking:
        search.fit(X_TRAIN, Y_TRAIN)
    found = params_of(store, str(tracking.run_id))
    assert {name: found[name] for name in grid} == {
        k: str(v) for k, v in search.best_params_.items()
    }
    right = {name: str(value) for name, value in search.best_estimator_.get_params().items()}
    plain = {name: value for name, value in right.items() if "(" not in value}
    assert {name: found[name] for name in plain} == plain


def tree(trial: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=trial.suggest_int("how deep", 1, 8), random_state=0)


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["finalists", "objective", "gate", "predictions"])
def test_a_studys_run_has_the_parameters_of_its_winner(
    holdout: LadderHoldout, store: str, kind: str
) -> None:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))

    def predictions(trial: Any) -> Any:
        score = cross_val_score(tree(trial), X_TRAIN, Y_TRAIN, cv=2).mean()
        return tree(trial).fit(X_TRAIN, Y_TRAIN).predict(X_HOLDOUT), score

    objective = holdout.optuna.objective(tree, inner=2, train=(X_TRAIN, Y_TRAIN))
    if kind == "predictions":
        objective = holdout.optuna.objective(predictions)
    with holdout.track() as tracking:
        if kind == "gate":
            study.optimize(
                objective.inner_score, n_trials=3, callbacks=[holdout.optuna.gate(objective)]
            )
        elif kind == "finalists":
            study.optimize(objective.inner_score, n_trials=3)
            holdout.optuna.finalists(study, objective, k=2)
        else:
            study.optimize(objective, n_trials=3)
    found = params_of(store, str(tracking.run_id))
    depth = str(holdout.optuna.best_params(study)["how deep"])
    assert found["how deep"] == depth
    assert found.get("max_depth") == (None if kind == "predictions" else depth)


@pytest.mark.processes
def test_a_later_incumbents_parameters_stand_beside_the_first_ones(
    holdout: LadderHoldout, store: str
) -> None:
    trees = [DecisionTreeClassifier(max_depth=depth, random_state=0) for depth in (1, 4)]
    with holdout.track() as tracking:
        holdout.submit(trees[0].fit(X_TRAIN, Y_TRAIN))
    run_id = str(tracking.run_id)
    assert params_of(store, run_id)["max_depth"] == "1"
    assert holdout.submit(trees[1].fit(X_TRAIN, Y_TRAIN)).improved
    for _ in range(2):
        assert export(holdout)[0].run_id == run_id
        found = params_of(store, run_id)
        assert (found["max_depth"], found["2.max_depth"]) == ("1", "4")
    assert MlflowClient(store).get_run(run_id).data.tags["ladderholdout.parameters_of"] == "1 2"


@pytest.mark.processes
def test_in_a_run_of_ones_own_they_are_in_nobodys_way(holdout: LadderHoldout, store: str) -> None:
    with mlflow.start_run() as run:
        mlflow.log_param("max_depth", "mine")
        with holdout.track():
            model = DecisionTreeClassifier(max_depth=3, random_state=0)
            holdout.submit(model.fit(X_TRAIN, Y_TRAIN))
        mlflow.log_param("criterion", "mine too")
    found = params_of(store, run.info.run_id)
    assert (found["max_depth"], found["criterion"]) == ("mine", "mine too")
    assert (found["ladder.max_depth"], found["ladder.criterion"]) == ("3", "gini")


# Stores that MLflow does not take


FOLDER, SLASHES, UNKNOWN = "filesystem tracking backend", "three slashes", "unsupported URI"
EMPTY = "must be a tracking URI"
REFUSED = {
    "./mlruns": FOLDER,
    "mlruns": FOLDER,
    "file:./mlruns": FOLDER,
    "results/mlruns": FOLDER,
    "mlflow.db": FOLDER,
    "./mlflow.sqlite": FOLDER,
    "127.0.0.1:5000": FOLDER,
    "sqlite://mlflow.db": SLASHES,
    "sqlite:/mlflow.db": SLASHES,
    "sqlite:mlflow.db": SLASHES,
    "": EMPTY,
    "  ": EMPTY,
    "sqllite:///mlflow.db": UNKNOWN,
    "nonsense://x": UNKNOWN,
    "htp://127.0.0.1:5000": UNKNOWN,
    "localhost:5000": UNKNOWN,
    "postgres://ada:secret@host/db": UNKNOWN,
}


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, and an MLflow that takes no folders."""
    if tuple(map(int, mlflow.__version__.split(".")[:2])) < (3, 13):
        pytest.skip("this MLflow writes into folders")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)


@pytest.mark.usefixtures("refusing")
def test_what_is_no_store_is_refused_at_once_in_the_words_of_mlflow(
    holdout: LadderHoldout, tmp_path: Path
) -> None:
    for uri, words in REFUSED.items():
        for argument in ("tracking_uri", "audit_tracking_uri"):
            with pytest.raises(InvalidArgument, match=f"^{argument} must be") as refusal:
                holdout.track(**{argument: uri})
            said = str(refusal.value)
            assert words in said and "such as http://127.0.0.1:5000 or sqlite:///mlflow.db" in said
            assert "secret" not in said, uri
            with pytest.raises(InvalidArgument):
                export(holdout, **{argument: uri})
    for right in ("http://127.0.0.1:5000", "sqlite:///mlflow.db", "postgresql://ada@host/db"):
        places(right)  # is taken, there or not
    left = {one.name for one in tmp_path.iterdir()}
    assert not left & {"mlruns", "results", "mlflow.db", "mlflow.sqlite"}


@pytest.mark.parametrize("uri", ["./mlruns", "localhost:5000"])
@pytest.mark.usefixtures("refusing")
def test_mlflows_own_setting_is_named_where_it_is_refused(
    holdout: LadderHoldout, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(InvalidArgument, match=r"MLflow's own setting \(MLFLOW_TRACKING_URI"):
        holdout.track()
    checks = [one for one in mlflow_findings() if not one.ok]
    assert [one.what for one in checks] == ["tracking server"]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("name", ["mlruns", "mlflow.db"])
def test_a_path_is_read_as_its_text(holdout: LadderHoldout, name: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"a database backend \(e.g., 'sqlite:///mlflow.db'\)"
    ):
        holdout.track(tracking_uri=Path(name))


@pytest.mark.processes
@pytest.mark.usefixtures("refusing")
def test_runs_of_earlier_that_are_in_a_folder_do_not_lose_the_search(
    holdout: LadderHoldout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow itself takes ./mlruns where there are runs in it, and then refuses it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("name: Default\n")
    with pytest.raises(InvalidArgument) as refusal:
        holdout.track()
    said = re.search(r"a database backend \(e.g., '(\S+)'\)", str(refusal.value))
    assert said is not None and tracked(holdout, tracking_uri=said[1])
    assert (tmp_path / "mlflow.db").exists()


@pytest.mark.processes
def test_a_relative_file_stays_the_same_file_wherever_one_goes(
    holdout: LadderHoldout, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(store.removeprefix("sqlite:///"))
    monkeypatch.chdir(file.parent)
    tracking = holdout.track(tracking_uri="sqlite:///mlflow.db")
    monkeypatch.chdir(tmp_path)
    holdout.submit(np.ones(200, dtype=int))
    tracking.close()
    assert analysts(store, "tumours") == [tracking.run_id]
    assert not (tmp_path / "mlflow.db").exists()


@pytest.mark.processes
def test_a_missing_driver_is_named(holdout: LadderHoldout) -> None:
    pytest.importorskip("mlflow")
    if any(name in sys.modules for name in ("MySQLdb",)):
        pytest.skip("the driver is here")
    with pytest.raises(TrackingError, match=r"No module named 'MySQLdb'"):
        exported(holdout, tracking_uri="mysql://ada@127.0.0.1:1/db")


# What was deleted


def restored(message: str) -> None:
    """Do what a message says, in Python."""
    said = re.search(r"(mlflow\.MlflowClient\(.*?\)\.restore_\w+\('\w+'\))", message)
    assert said is not None, message
    eval(said[1], {"mlflow": mlflow})


@pytest.mark.processes
@pytest.mark.parametrize(
    ("what", "way"),
    [("experiment", "track"), ("audit", "export"), ("run", "track"), ("run", "export")],
)
def test_what_was_deleted_is_named_and_the_remedy_helps(
    holdout: LadderHoldout, store: str, what: str, way: str
) -> None:
    client = MlflowClient(store)
    run_id = tracked(holdout)
    settings = {"run_id": run_id} if what == "run" else {}
    if what == "run":
        client.delete_run(run_id)
    else:
        name = "tumours (audit)" if what == "audit" else "tumours"
        client.delete_experiment(client.get_experiment_by_name(name).experiment_id)
    if way == "export":
        with pytest.raises(TrackingError, match="is deleted") as refusal:
            exported(holdout, **settings)
        message = str(refusal.value)
    else:
        with pytest.warns(TrackingWarning, match="is deleted") as caught:
            tracked(holdout, **settings)
        message = str(caught[0].message)
    restored(message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = WAYS[way](holdout, **settings)
    assert what != "run" or again == run_id
    number = str(holdout.status().submissions)
    assert client.get_run(again).data.tags["ladderholdout.entries"] == number


@pytest.mark.processes
def test_a_run_that_is_deleted_in_the_midst_is_named_and_both_remedies_help(
    holdout: LadderHoldout, store: str
) -> None:
    client = MlflowClient(store)
    tracking = holdout.track()
    holdout.submit(np.ones(200, dtype=int))
    assert tracking.flush()
    client.delete_run(str(tracking.run_id))
    holdout.submit(np.zeros(200, dtype=int))
    with pytest.warns(TrackingWarning, match="is deleted") as caught:
        tracking.close()
    message = str(caught[0].message)
    restored(message)
    command = re.search(r"ladder-holdout (export .*) brings MLflow", message)
    assert command is not None
    words = command[1].split()
    code = "from ladderholdout.cli import app; app()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tags = client.get_run(str(tracking.run_id)).data.tags
    assert tags["ladderholdout.entries"] == "2"


@pytest.mark.processes
def test_a_deleted_run_that_nobody_named_is_replaced(holdout: LadderHoldout, store: str) -> None:
    first = exported(holdout)
    MlflowClient(store).delete_run(first)
    second = exported(holdout)
    assert second != first and analysts(store, "tumours") == [second]


# Where raw scores go


@pytest.mark.processes
def test_where_raw_scores_go_is_logged_though_loggers_were_disabled(
    holdout: LadderHoldout, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As `logging.config` does to the loggers that are there: Alembic's, Optuna's, a server's."""
    logger = logging.getLogger("ladderholdout.mlflow")
    others = {
        one: one.disabled
        for one in logging.root.manager.loggerDict.values()
        if isinstance(one, logging.Logger)
    }
    try:
        logging.config.dictConfig({"version": 1})
        assert logger.disabled
        tracked(holdout)
    finally:
        for one, disabled in others.items():
            one.disabled = disabled
    assert any("raw scores of ladder" in one.getMessage() for one in caplog.records)
