"""Attacks vaults behind URLs, and searches whose workers are other programs: Dask, loky."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from ladderholdout import LadderHoldout
from ladderholdout.errors import VaultError
from ladderholdout.vault import PLACE
from tests.support.processes import elsewhere

GRID = {"C": [0.001, 0.01, 0.1, 1.0, 10.0, 100.0]}


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    return X, (X[:, 0] + rng.normal(size=600) > 0).astype(int)


def opened(ledger: Path, **more: Any) -> LadderHoldout:
    X, y = problem()
    return LadderHoldout(X[300:], y[300:], scoring="accuracy", name="far", ledger=ledger, **more)


def searched(holdout: LadderHoldout, **more: Any) -> GridSearchCV:
    X, y = problem()
    search = GridSearchCV(
        LogisticRegression(),
        GRID,
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
        **more,
    )
    return search.fit(X[:300], y[:300])


def evaluated(ledger: str) -> int:
    """Ask from a process that was not given the rows."""
    X, y = problem()
    holdout = LadderHoldout.open("far", ledger=ledger)
    holdout.submit(LogisticRegression().fit(X[:300], y[:300]))
    return holdout.status().submissions


def evaluated_with(place: str, ledger: str) -> int:
    os.environ[PLACE] = place
    return evaluated(ledger)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A real HTTP server on loopback for the files of a folder."""
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def vault(folder: Path) -> Path:
    (path,) = folder.glob("*.vault")
    return path


@pytest.mark.processes
def test_a_vault_may_lie_behind_a_url(tmp_path: Path) -> None:
    far = tmp_path / "far"
    holdout = opened(tmp_path / "ledger.db", vault=f"file://{far}/")
    assert not (tmp_path / "vault").exists() or not list((tmp_path / "vault").glob("*.vault"))
    assert elsewhere(evaluated, holdout.ledger) == 1
    written = vault(far)
    opened(tmp_path / "ledger.db")  # going on leaves it where it is
    assert vault(far) == written
    opened(tmp_path / "ledger.db", vault=tmp_path / "near")
    assert list(far.glob("*.vault")) == []
    assert elsewhere(evaluated, holdout.ledger) == 2


@pytest.mark.processes
@pytest.mark.parametrize("how", ["swapped", "cut"])
def test_what_comes_from_a_url_is_checked(tmp_path: Path, how: str) -> None:
    far = tmp_path / "far"
    holdout = opened(tmp_path / "ledger.db", vault=f"file://{far}")
    path = vault(far)
    data = path.read_bytes()
    path.write_bytes(data[:-1] if how == "cut" else data[:-9] + b"\1" + data[-8:])
    with pytest.raises(VaultError, match="not the file that was written"):
        elsewhere(evaluated, holdout.ledger)


@pytest.mark.processes
def test_workers_find_the_rows_where_the_user_says(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    away = tmp_path / "away"
    (tmp_path / "vault").rename(away)  # what is on the parent's disk is not on the worker's
    with pytest.raises(VaultError, match="cannot be read"):
        elsewhere(evaluated, holdout.ledger)
    with served(away) as url:
        assert elsewhere(evaluated_with, url, holdout.ledger) == 1
    assert elsewhere(evaluated_with, str(away), holdout.ledger) == 2
    with pytest.raises(VaultError, match=r"http://127\.0\.0\.1:9/.*cannot be read"):
        elsewhere(evaluated_with, "http://user:hidden@127.0.0.1:9", holdout.ledger)


def test_an_error_never_shows_a_password(tmp_path: Path) -> None:
    with pytest.raises(VaultError) as refused:
        opened(tmp_path / "ledger.db", vault="nonsense://me:hidden@host/vault?key=hidden")
    assert "nonsense://host/vault" in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.processes
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_a_search_under_joblib_looks_once_for_each_candidate(tmp_path: Path, backend: str) -> None:
    holdout = opened(tmp_path / "ledger.db")
    with joblib.parallel_config(backend, n_jobs=2):
        search = searched(holdout)
    check(holdout, search)


@pytest.mark.nightly
def test_a_search_on_a_cluster_of_dask_looks_once_for_each_candidate(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    holdout = opened(tmp_path / "ledger.db", vault=f"file://{tmp_path}/far")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path),
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        search = searched(holdout)
    check(holdout, search)


def check(holdout: LadderHoldout, search: GridSearchCV) -> None:
    history = holdout.history()
    assert [one.number for one in history] == list(range(1, len(GRID["C"]) + 1))
    assert len({one.batch for one in history}) == 1
    assert {one.context["parameters"]["C"] for one in history} == set(GRID["C"])
    best = next(one for one in history if one.number == holdout.status().incumbent)
    assert search.best_params_ == {"C": best.context["parameters"]["C"]}
