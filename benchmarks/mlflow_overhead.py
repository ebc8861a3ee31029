"""How much longer a guarded search takes when it is copied into MLflow while it runs.

    python benchmarks/mlflow_overhead.py [--candidates 300] [--runs 5]

The fits sleep for 20 ms. The tracking server is a real one on loopback, with SQLite behind
it; the time is that of the search with the opening and the closing of the copy. MLflow is
imported before: who tracks has it anyway. The smallest of several times is the one that
other work on the machine disturbed least.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
from mlflow import MlflowClient
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV

from ladderholdout import LadderHoldout

FIT = 0.020
ROWS = 500
TARGET = 1.05


class Sleeper(ClassifierMixin, BaseEstimator):
    """Fits for 20 ms without work, and guesses."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> Sleeper:
        time.sleep(FIT)
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.random.default_rng(self.seed).integers(0, 2, len(X))


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Run a tracking server on a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"]
    command += ["--port", str(port), "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(uri, process)
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def wait_for(uri: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"{uri}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    sys.exit("The tracking server did not start.")


def seconds(candidates: int, ledger: Path, uri: str | None) -> float:
    """Return how long one search takes, on a ledger of its own."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2 * ROWS, 5)), rng.integers(0, 2, 2 * ROWS)
    holdout = LadderHoldout(X[ROWS:], y[ROWS:], scoring="accuracy", name="sleepers", ledger=ledger)
    search = GridSearchCV(
        Sleeper(),
        {"seed": range(candidates)},
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
    )
    started = time.perf_counter()
    with nullcontext() if uri is None else holdout.track(tracking_uri=uri) as tracking:
        search.fit(X[:ROWS], y[:ROWS])
    took = time.perf_counter() - started
    if uri is not None:
        history = MlflowClient(uri).get_metric_history(tracking.run_id, "ladder_released")
        assert len(history) == candidates
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description="What tracking costs a search of 20 ms fits.")
    parser.add_argument("--candidates", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as uri:
        # One after the other in turn, so that a busy moment meets both.
        times = [
            [
                seconds(given.candidates, Path(folder) / f"{run}-{tracked is None}.db", tracked)
                for tracked in (None, uri)
            ]
            for run in range(given.runs)
        ]
    bare, tracked = (min(column) for column in zip(*times, strict=True))
    print(f"{given.candidates} fits of 20 ms: {bare:.2f} s, with MLflow {tracked:.2f} s")
    print(f"ratio {tracked / bare:.3f}, target at most {TARGET}")
    sys.exit(tracked / bare > TARGET)


if __name__ == "__main__":
    main()
