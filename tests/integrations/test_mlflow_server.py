"""Attacks the copy in MLflow with a real tracking server, with autologging and kill -9."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout.cli import app
from ladderholdout.errors import TrackingWarning
from ladderholdout.integrations.mlflow import certify_version
from tests.integrations.test_mlflow import tiny
from tests.integrations.test_mlflow_registry import PICTURE, tree
from tests.support.canaries import canaries_of
from tests.support.commands import CliRunner
from tests.support.holdouts import coins
from tests.support.ledgers import entries_of
from tests.support.mlflow_stores import (
    ANALYST,
    AUDIT,
    RAW,
    RELEASED,
    Server,
    all_runs,
    assert_complete,
    python,
    raw,
    released,
    rows_of,
    series,
    server_in,
    store_bytes,
)

# A server of MLflow takes half a minute; in the gate its SQLite store defends the same promises.
pytestmark = pytest.mark.nightly


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = server_in(tmp_path / "server")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for the tests that leave it running: each has experiments of its own there."""
    server = server_in(tmp_path_factory.mktemp("shared") / "server")
    server.start()
    yield server
    server.kill()


# The labels are made anew by every program, and never leave the ledger's side of it.
SEARCH = """
import os, sys, warnings
warnings.simplefilter("ignore")
import mlflow
import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier
from ladderholdout import LadderHoldout

uri, audit_uri, candidates = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = np.random.default_rng(1)
X, y = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
grid = {"max_depth": [1, 2, 3], "random_state": list(range(candidates // 3))}
mlflow.set_tracking_uri(uri)
mlflow.set_experiment("analyst")
AUTOLOG
holdout = LadderHoldout.open("tiny")
tree = DecisionTreeClassifier(max_features=1)
search = GridSearchCV(tree, grid, scoring=holdout, cv=holdout.split(), refit=holdout.select,
                      n_jobs=int(sys.argv[4]))
with mlflow.start_run() as run, holdout.track(audit_tracking_uri=audit_uri) as tracking:
    search.fit(X, y)
    by_hand = tree.set_params(random_state=7731).fit(X, y)
    holdout.submit(by_hand)
assert tracking.run_id == run.info.run_id
"""


@pytest.mark.parametrize(
    ("candidates", "jobs", "autolog"),
    [
        # Workers log nothing: the gate does without them.
        (9, 1, "mlflow.sklearn.autolog(log_models=False)"),
        (300, 2, "mlflow.autolog()"),
    ],
    ids=["9", "300"],
)
def test_a_search_with_autologging_leaves_two_runs_and_nothing_raw(
    shared: Server, tmp_path: Path, candidates: int, jobs: int, autolog: str
) -> None:
    holdout = tiny(tmp_path / "ledger.db")
    (tmp_path / "elsewhere").mkdir()
    audit = f"sqlite:///{tmp_path / 'elsewhere' / 'mlflow.db'}"
    python(SEARCH.replace("AUTOLOG", autolog), shared.uri, audit, str(candidates), str(jobs))
    assert len(holdout.history()) == candidates + 1

    client = MlflowClient(shared.uri)
    runs = all_runs(client, "analyst")
    assert AUDIT not in {one.name for one in client.search_experiments()}
    # Autologging puts the five best candidates below the run of their search; no other is there.
    (ours,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    below = [run for run in runs if run is not ours]
    assert {run.data.tags["mlflow.parentRunId"] for run in below} == {ours.info.run_id}
    assert {run.data.tags["mlflow.autologging"] for run in below} == {"sklearn"}
    assert series(client, ours.info.run_id, RELEASED) == released(holdout)
    assert "best_cv_score" not in ours.data.metrics  # a callable refit leaves none
    (theirs,) = all_runs(MlflowClient(audit))
    assert series(MlflowClient(audit), theirs.info.run_id, RAW) == raw(holdout)
    assert series(MlflowClient(audit), theirs.info.run_id, RELEASED) == released(holdout)

    canaries = canaries_of(holdout, coins()[1])
    seen = store_bytes(f"sqlite:///{shared.folder / 'mlflow.db'}")
    assert b"cv_results.csv" in seen and b"estimator.html" in seen
    assert not canaries.found_in(seen)
    assert canaries.found_in(store_bytes(audit)) == {"raw score"}


def test_a_real_registry_and_a_model_that_mlflow_loads(
    shared: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdout = tiny(tmp_path / "ledger.db", name="registered")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", shared.uri)
    monkeypatch.setenv("GIT_PYTHON_REFRESH", "quiet")
    model = tree(4)
    release = holdout.submit(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with mlflow.start_run() as run:
            mlflow.sklearn.log_model(
                model,
                name="tree",
                registered_model_name="coins",
                serialization_format="cloudpickle",
                pip_requirements=["scikit-learn"],
            )
        done = certify_version(holdout, "coins", "1")
    assert done.run_id == run.info.run_id
    assert done.certificate["released_score"] == release.score
    client = MlflowClient(shared.uri)
    paths = [one.path for one in client.list_artifacts(done.run_id, done.folder)]
    assert [path.rpartition("/")[2] for path in paths] == ["certificate.json"]
    assert "ladderholdout.certificate" in client.get_model_version("coins", "1").tags
    assert entries_of(holdout)[-1].context["registered_model"] == "coins"
    with holdout.track() as tracking:  # artifacts go through the server
        pass
    assert [one.path for one in client.list_artifacts(str(tracking.run_id))] == [PICTURE]
    kinds = {run.data.tags["ladderholdout.kind"] for run in all_runs(client, "registered (audit)")}
    assert kinds == {"audit"}
    assert client.get_run(str(tracking.run_id)).data.tags["ladderholdout.kind"] == ANALYST


def test_a_server_killed_in_mid_search_costs_nothing_that_export_does_not_bring(
    server: Server, tmp_path: Path
) -> None:
    holdout = tiny(tmp_path / "ledger.db")
    X, y = coins(seed=1)

    class Deadly(DecisionTreeClassifier):
        def fit(self, X: object, y: object, **other: object) -> Deadly:
            if self.random_state == 20:
                server.kill()
            return super().fit(X, y, **other)

    def search(states: range) -> None:
        GridSearchCV(
            Deadly(max_depth=2, max_features=1),
            {"random_state": list(states)},
            scoring=holdout,
            cv=holdout.split(),
            refit=holdout.select,
        ).fit(X, y)

    client, store = MlflowClient(server.uri), f"sqlite:///{server.folder / 'mlflow.db'}"
    with pytest.warns(TrackingWarning, match="ladder-holdout export tiny"):  # noqa: SIM117
        with holdout.track(tracking_uri=server.uri) as tracking:
            search(range(15))
            assert tracking.flush()
            search(range(15, 40))
    assert len(holdout.history()) == 40
    assert 15 <= tracking.sent < 40
    assert rows_of(store) < 3 * 40

    server.start()
    words = ["export", "tiny", "--tracking-uri", server.uri]
    for _ in range(2):
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0
        assert rows_of(store) == 3 * 40
        assert_complete(holdout, server.uri)
        assert len(all_runs(client)) == 2
    assert result.output.count(": 0 submissions sent, 40 in all") == 2
    assert [run.info.run_id for run in all_runs(client, "tiny")] == [tracking.run_id]
    assert len(all_runs(client, AUDIT)) == 1
