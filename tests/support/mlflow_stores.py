"""Real MLflow for the tests: SQLite stores, and a tracking server that can be killed."""

from __future__ import annotations

import functools
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from ladderholdout import LadderHoldout
from ladderholdout.integrations.mlflow import places
from tests.support.ledgers import record

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
PATIENCE = 120.0

ANALYST = "analyst"
AUDIT = "tiny (audit)"
RELEASED, RAW = "ladder_released", "ladder_raw"

Series = dict[int, float]


@functools.cache
def _empty_store() -> bytes:
    """Make MLflow's tables once: it takes seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlflow.db"
        MlflowClient(places(f"sqlite:///{path}").analyst).search_experiments()
        with closing(sqlite3.connect(path)) as store:
            store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()


def new_store(folder: Path) -> str:
    """Return the tracking URI of an empty store in a new folder."""
    folder.mkdir(exist_ok=True)
    path = folder / "mlflow.db"
    path.write_bytes(_empty_store())
    with closing(sqlite3.connect(path)) as store, store:
        # Not the working folder of the process that made the tables.
        store.execute("UPDATE experiments SET artifact_location = ?", (str(folder / "artifacts"),))
    return f"sqlite:///{path}"


@dataclass
class Server:
    """A tracking server on loopback with SQLite behind it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        if not (self.folder / "mlflow.db").exists():
            new_store(self.folder)  # else the server makes its tables itself, for seconds
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        self._wait()

    def _wait(self) -> None:
        assert self.process is not None
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise AssertionError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        """SIGKILL the server with its workers: they are a session of their own."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def server_in(folder: Path) -> Server:
    return Server(folder, free_port())


def all_runs(client: MlflowClient, experiment: str | None = None) -> list[Run]:
    """Return the runs of an experiment, or of all, oldest first."""
    known = client.search_experiments()
    places = [one.experiment_id for one in known if experiment in (None, one.name)]
    runs = client.search_runs(places) if places else []
    return sorted(runs, key=lambda run: run.info.start_time)


def series(client: MlflowClient, run_id: str, key: str) -> Series:
    """Return a metric of a run by step, which it may hold once each."""
    history = client.get_metric_history(run_id, key)
    found = {one.step: one.value for one in history}
    assert len(found) == len(history)
    return found


def released(holdout: LadderHoldout) -> Series:
    """Return what the ledger says was released, after repeats the score of then too."""
    return {one.number: one.score for one in holdout.history()}


def raw(holdout: LadderHoldout) -> Series:
    """Return what the ledger says was not."""
    _, _, entries = record(holdout)
    return {one.entry.number: holdout.metric.to_score(one.raw_risk) for one in entries}


def rows_of(store: str, table: str = "metrics") -> int:
    """Count what a store in a file holds: metric values, whatever they are of."""
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return count


def store_bytes(store: str) -> bytes:
    """Return all bytes of a store, and of what lies beside it."""
    folder = Path(store.removeprefix("sqlite:///")).parent
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def assert_complete(holdout: LadderHoldout, store: str, audit: str | None = None) -> None:
    """One audit run, and the newest run of the analyst, hold what the ledger holds."""
    client, auditor = MlflowClient(store), MlflowClient(audit or store)
    (theirs,) = all_runs(auditor, AUDIT)
    kinds = [(run.data.tags.get("ladderholdout.kind"), run) for run in all_runs(client)]
    ours = next(run for kind, run in reversed(kinds) if kind == ANALYST)
    assert series(client, ours.info.run_id, RELEASED) == released(holdout)
    assert series(auditor, theirs.info.run_id, RELEASED) == released(holdout)
    assert series(auditor, theirs.info.run_id, RAW) == raw(holdout)
    last = str(holdout.status().submissions)
    assert {run.data.tags["ladderholdout.entries"] for run in (ours, theirs)} == {last}


def python(code: str, *words: str, **environment: str) -> str:
    """Run a program in a fresh interpreter, and return what it prints."""
    status, shown = program(code, *words, **environment)
    assert status == 0, shown
    return shown


def program(code: str, *words: str, **environment: str) -> tuple[int, str]:
    """Run a program in a fresh interpreter; return its exit status and what it prints."""
    with tempfile.TemporaryDirectory() as folder:  # where MLflow puts artifacts
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    return done.returncode, done.stdout or done.stderr
