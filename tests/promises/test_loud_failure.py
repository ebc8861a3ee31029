"""Attack promise 7: a guard that cannot answer stops the search, and says what to do.

Every fault is a real one: files are removed, replaced and overwritten, disks filled, locks
held and processes interrupted while a search runs. A stopped search has no scores of nan,
no winner and no cv_results_; and whatever it was told before stands in the ledger.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from ladderholdout.errors import LedgerError
from ladderholdout.mechanisms import Ladder
from tests.support import ledgers
from tests.support.ledgers import entries_of
from tests.support.processes import elsewhere

pytestmark = pytest.mark.processes

CANDIDATES = 8
FAULTY = 3
"""The candidate in whose fit the fault happens: some were told their score by then."""

Fault = Callable[[], None]

# In the gate every fault meets one worker, and one of a ledger that is gone two of them.
SLOWLY = pytest.mark.nightly


def with_workers(names: Iterable[str], quick: str = "") -> list[Any]:
    """Pair each fault with one and with two workers."""
    pairs = [pytest.param(name, 1, id=f"{name}-1") for name in names]
    for name in names:
        marks = () if name == quick else SLOWLY
        pairs.append(pytest.param(name, 2, id=f"{name}-2", marks=marks))
    return pairs


# -- a search with a fault in it -----------------------------------------------------------


def classifier(fault: Fault | None = None) -> type[BaseEstimator]:
    """Make a classifier by one threshold whose fit does damage at one of them.

    The class and the faults are local, so that joblib's workers get them by value.
    """

    class Threshold(ClassifierMixin, BaseEstimator):
        def __init__(self, level: int = 0) -> None:
            self.level = level

        def fit(self, X: Any, y: Any) -> Threshold:
            self.classes_ = np.array([0, 1])
            if self.level == FAULTY and fault is not None:
                fault()
            return self

        def predict(self, X: Any) -> Any:
            # Each candidate is better than the one before it.
            return (X[:, 0] > 0.9 - 0.05 * self.level).astype(int)

    return Threshold


def recording(holdout: LadderHoldout, told: Path) -> Callable[..., float]:
    """Make a scorer that keeps what the guard told, from whatever process."""

    def scorer(estimator: Any, X: Any, y: Any) -> float:
        score = holdout(estimator, X, y)
        with open(told, "a") as file:
            file.write(f"{score!r}\n")
        return score

    return scorer


@dataclass(frozen=True)
class Bench:
    """A holdout on a ledger of its own, a search on it, and what the search was told."""

    holdout: LadderHoldout
    folder: Path
    X: NDArray[np.float64]
    y: NDArray[np.int64]

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def vault(self) -> Path:
        (found,) = (self.folder / "vault").glob("*.vault")
        return found

    def told(self) -> int:
        path = self.folder / "told"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def search(self, fault: Fault | None, n_jobs: int) -> GridSearchCV:
        return GridSearchCV(
            classifier(fault)(),
            {"level": list(range(CANDIDATES))},
            scoring=recording(self.holdout, self.folder / "told"),
            cv=self.holdout.split(),
            n_jobs=n_jobs,
        )

    def stopped(self, fault: Fault | None, n_jobs: int = 1) -> str:
        """Run a search that has to be stopped, and return what it says."""
        search = self.search(fault, n_jobs)
        with pytest.raises(SearchStopped) as info:
            search.fit(self.X, self.y)
        assert not hasattr(search, "best_estimator_") and not hasattr(search, "cv_results_")
        assert self.told() < CANDIDATES
        return str(info.value)

    def entries(self) -> int:
        return replayed(self.ledger)


def replayed(ledger: Path) -> int:
    """Count the entries of a ledger with one ladder, all of which have to replay to the bit."""
    (name,) = ledgers.names(ledger)
    ((account, ladder_name),) = ledgers.ladders_at(ledger)
    holdout = LadderHoldout.open(name, account=account, ladder=ladder_name, ledger=ledger)
    steps, (_, ladder, _) = ledgers.replayed(holdout), ledgers.record(holdout)
    assert all(step.agrees for step in steps)
    assert [step.number for step in steps] == list(range(1, ladder.submissions + 1))
    assert not steps or steps[-1].state == ladder.state
    return len(steps)


def rows(n: int = 60) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    X = np.random.default_rng(0).random((n, 3))
    return X, (X[:, 0] > 0.5).astype(np.int64)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    X, y = rows()
    url = f"sqlite:///{tmp_path}/ledger.db?timeout=1"
    holdout = LadderHoldout(
        X, y, scoring="accuracy", mechanism=Ladder(step=0.01), ledger=url, name="bench"
    )
    X_train, y_train = np.random.default_rng(1).random((50, 3)), np.arange(50) % 2
    return Bench(holdout, tmp_path, X_train, y_train)


def in_another_process(code: str, *arguments: object) -> None:
    """Run some lines elsewhere: a ledger opened and closed in here would lose its locks."""
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True)


CHECKPOINT = """
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
assert c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
c.close()
"""


def test_the_search_runs_through_without_a_fault(bench: Bench) -> None:
    # Otherwise none of what follows would show anything.
    for n_jobs, entries in ((1, CANDIDATES), (2, 2 * CANDIDATES)):
        search = bench.search(None, n_jobs).fit(bench.X, bench.y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert bench.entries() == bench.told() == entries
    assert search.best_index_ == CANDIDATES - 1


# -- the ledger's files --------------------------------------------------------------------


MISSING = ["deleted", "moved", "replaced", "replaced by another ledger"]


@pytest.mark.parametrize(("how", "n_jobs"), with_workers(MISSING, quick="deleted"))
def test_a_ledger_that_goes_missing_stops_the_search(bench: Bench, how: str, n_jobs: int) -> None:
    ledger, kept, other = (str(bench.folder / name) for name in ("ledger.db", "kept", "other.db"))
    os.link(ledger, kept)
    if how == "replaced by another ledger":
        X, y = rows()
        LadderHoldout(X, y, scoring="accuracy", mechanism=Ladder(step=0.01), ledger=other)
        in_another_process(CHECKPOINT, other)
    else:
        Path(other).touch()

    def fault() -> None:
        import os

        if how == "deleted":
            os.unlink(ledger)
        elif how == "moved":
            os.rename(ledger, ledger + ".moved")
        else:
            os.replace(other, ledger)

    said = bench.stopped(fault, n_jobs)
    # A worker that opens it anew finds no file, and one that held it finds another.
    assert ledger in said and ("Put it back" in said or "Restore the file" in said)
    assert "start" in said or "open" in said.lower()
    # As the message says: with the file put back, all that was told is found in it.
    os.replace(kept, ledger)
    assert bench.entries() >= bench.told() >= (FAULTY if n_jobs == 1 else 0)
    bench.search(None, n_jobs=1).fit(bench.X, bench.y)


@pytest.mark.parametrize(("suffix", "n_jobs"), with_workers(["-wal", "-shm"]))
def test_a_lost_companion_of_the_ledger_stops_the_search(
    bench: Bench, suffix: str, n_jobs: int
) -> None:
    # The newest entries lie in the -wal file; SQLite writes on into the one that was deleted.
    companion, kept = f"{bench.ledger}{suffix}", str(bench.folder / "kept")
    os.link(companion, kept)

    def fault() -> None:
        import os

        os.unlink(companion)

    said = bench.stopped(fault, n_jobs)
    assert str(bench.ledger) in said
    if n_jobs == 1:
        assert "Put it back, then start again" in said
        Path(companion).unlink(missing_ok=True)
        os.link(kept, companion)
        assert bench.entries() >= bench.told() == FAULTY


OVERWRITE = """
import os, sys
path, start = sys.argv[1], int(sys.argv[2])
with open(path, "r+b") as file:
    file.seek(start)
    file.write(os.urandom(max(4096, os.path.getsize(path) - start)))
"""
EMPTY = "import os, sys; os.truncate(sys.argv[1], 0)"
# What SQLite does to an emptied file, when a process connects to it at that moment.
EMPTY_WITHOUT_COMPANION = EMPTY + "; os.unlink(sys.argv[1] + '-wal')"
COPY = "import shutil, sys; shutil.copyfile(sys.argv[2], sys.argv[1])"
DAMAGE = {
    "garbage": (OVERWRITE, 0),
    "garbage behind the header": (OVERWRITE, 4096),
    "nothing": (EMPTY,),
    "nothing, and its -wal removed": (EMPTY_WITHOUT_COMPANION,),
    "another file": (COPY, "note"),
}


@pytest.mark.parametrize(("with_what", "n_jobs"), with_workers(DAMAGE))
def test_an_overwritten_ledger_stops_the_search(bench: Bench, with_what: str, n_jobs: int) -> None:
    # SQLite's page cache would serve the search to its end, and the entries be lost then.
    ledger, folder = str(bench.ledger), str(bench.folder)
    (bench.folder / "note").write_text("This was no place for a note.\n" * 300)
    fill(bench.holdout)
    in_another_process(CHECKPOINT, ledger)
    code, *arguments = DAMAGE[with_what]

    def fault() -> None:
        import subprocess
        import sys

        subprocess.run(
            [sys.executable, "-c", code, ledger, *map(str, arguments)], check=True, cwd=folder
        )

    said = bench.stopped(fault, n_jobs)
    assert ledger in said and "Restore it from a backup" in said
    # The other worker may come far while the damage is done.
    assert bench.told() == FAULTY or n_jobs == 2


def test_an_older_copy_put_over_the_ledger_stops_the_search(bench: Bench) -> None:
    # A sound ledger, and the last forty entries are missing in it.
    ledger, older, code = str(bench.ledger), str(bench.folder / "older"), COPY
    in_another_process(CHECKPOINT, ledger)
    in_another_process(COPY, older, ledger)
    fill(bench.holdout)
    in_another_process(CHECKPOINT, ledger)
    assert bench.entries() == 40
    said = bench.stopped(lambda: in_another_process(code, ledger, older))
    assert ledger in said and "was overwritten" in said and "Restore it from a backup" in said
    assert bench.told() == FAULTY


def fill(holdout: LadderHoldout, submissions: int = 40) -> None:
    """Let a ledger grow by some pages."""
    rng = np.random.default_rng(2)
    for _ in range(submissions):
        holdout.submit(rng.integers(0, 2, 60), context={"note": "x" * 500})


LOCK = """
import sqlite3, sys, time
from pathlib import Path
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("BEGIN IMMEDIATE")
Path(sys.argv[2]).touch()
for _ in range(600):
    if not Path(sys.argv[2]).exists():
        break
    time.sleep(0.05)
"""


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=SLOWLY)])
def test_a_ledger_locked_beyond_its_timeout_stops_the_search(bench: Bench, n_jobs: int) -> None:
    ledger, flag, code = str(bench.ledger), str(bench.folder / "locked"), LOCK

    def fault() -> None:
        import subprocess
        import sys
        import time
        from pathlib import Path

        subprocess.Popen([sys.executable, "-c", code, ledger, flag])
        while not Path(flag).exists():
            time.sleep(0.01)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the locking process outlives its handle
        said = bench.stopped(fault, n_jobs)
    assert "locked by another process" in said and "timeout=300" in said
    os.unlink(flag)
    assert bench.entries() == bench.told()
    bench.search(None, n_jobs=1).fit(bench.X, bench.y)


def test_a_lock_that_is_given_back_in_time_only_delays(bench: Bench, tmp_path: Path) -> None:
    flag = tmp_path / "locked"
    code = LOCK.replace("range(600)", "range(6)")
    with subprocess.Popen([sys.executable, "-c", code, str(bench.ledger), str(flag)]):
        while not flag.exists():
            pass
        assert bench.holdout.submit(np.zeros(60)).submission == 1


def test_every_way_to_search_is_stopped(bench: Bench) -> None:
    bench.ledger.rename(bench.folder / "elsewhere")
    model = classifier()()
    for n_jobs in (1, 2):
        with pytest.raises(SearchStopped, match="ledger"):
            cross_val_score(
                model,
                bench.X,
                bench.y,
                scoring=bench.holdout,
                cv=bench.holdout.split(),
                n_jobs=n_jobs,
            )
    grid = {"level": [1, 2]}
    for settings in ({"refit": bench.holdout.select}, {"error_score": "raise"}, {"error_score": 0}):
        with pytest.raises(SearchStopped, match="ledger"):
            GridSearchCV(
                model, grid, scoring=bench.holdout, cv=bench.holdout.split(), **settings
            ).fit(bench.X, bench.y)
    several = {"guarded": bench.holdout, "plain": "accuracy"}
    with pytest.raises(SearchStopped, match="ledger"):
        GridSearchCV(
            model, grid, scoring=several, cv=bench.holdout.split(inner=2), refit=False
        ).fit(bench.X, bench.y)
    with pytest.raises(LedgerError, match="ledger"):
        bench.holdout.submit(np.zeros(60))
    with pytest.raises(LedgerError, match="ledger"):
        bench.holdout.submit(model.fit(bench.X, bench.y))


# -- faults that need a process of their own -----------------------------------------------


SCRIPT = """
import joblib, json, os, sys, warnings
from pathlib import Path
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV
from ladderholdout import (LadderHoldout, SearchStopped)
from ladderholdout.errors import LedgerError
from ladderholdout.mechanisms import Ladder

folder, n_jobs = Path(sys.argv[1]), int(sys.argv[2])
ledger = folder / "ledger.db"

def become_nobody():
    # Permissions count for nobody, and not for root.
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, 65534)
        # joblib's own helper process has to be started while a Python can be.
        joblib.Parallel(2, backend="multiprocessing")([joblib.delayed(abs)(1)] * 2)
        os.setgroups([]), os.setgid(65534), os.setuid(65534)

X = np.random.default_rng(0).random((60, 3))
holdout = LadderHoldout(X, (X[:, 0] > 0.5).astype(int), scoring="accuracy", name="bench",
                        mechanism=Ladder(step=0.01), ledger=ledger)

def fault():
    pass
FAULT

def classifier():
    class Threshold(ClassifierMixin, BaseEstimator):
        def __init__(self, level=0, note=""):
            self.level, self.note = level, note
        def fit(self, X, y):
            self.classes_ = np.array([0, 1])
            if self.level == 3:
                fault()
            return self
        def predict(self, X):
            return (X[:, 0] > 0.9 - 0.001 * self.level).astype(int)
    return Threshold

told = folder / "told"
def scorer(estimator, X, y):
    score = holdout(estimator, X, y)
    with open(os.environ.get("TOLD", told), "a") as file:
        file.write(f"{score!r}\\n")
    return score

Threshold = classifier()
if os.geteuid() == 65534:
    Threshold.__qualname__ = "Threshold"  # forks pickle by name
search = GridSearchCV(Threshold(), {"level": list(range(200)), "note": ["x" * 100]},
                      scoring=scorer, cv=holdout.split(), n_jobs=n_jobs)
said = ""
try:
    # It can be that only root may start a Python; forks need not.
    backend = "loky" if os.geteuid() != 65534 else "multiprocessing"
    with joblib.parallel_config(backend=backend):
        search.fit(np.random.default_rng(1).random((50, 3)), np.arange(50) % 2)
except SearchStopped as stopped:
    said = str(stopped)
AFTER
print(json.dumps({"said": said, "finished": hasattr(search, "best_estimator_")}))
"""
"""A search of 200 candidates, large enough to fill a small disk."""


def run_script(
    folder: Path, fault: str, n_jobs: int = 1, after: str = "", *prefix: str, **settings: Any
) -> dict[str, Any]:
    script = SCRIPT.replace("FAULT", textwrap.dedent(fault)).replace(
        "AFTER", textwrap.dedent(after)
    )
    done = subprocess.run(
        [*prefix, sys.executable, "-c", script, str(folder), str(n_jobs)],
        capture_output=True,
        text=True,
        cwd=folder,
        **settings,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


SMALL_DISK = """
mount -t tmpfs -o size=1m tmpfs "$0" && cd "$0" && "$@" && cp -r . ../saved
"""


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=SLOWLY)])
def test_a_full_disk_stops_the_search(tmp_path: Path, n_jobs: int) -> None:
    # A file system of one megabyte, in a mount namespace that ends with the process.
    disk = tmp_path / "disk"
    disk.mkdir()
    small = ("unshare", "--mount", "sh", "-c", SMALL_DISK, str(disk))
    if (
        not shutil.which("unshare")
        or subprocess.run([*small, "true"], capture_output=True).returncode
    ):
        pytest.skip("needs the right to mount")
    shutil.rmtree(tmp_path / "saved")
    result = run_script(
        disk,
        """
        def fault():
            with open(folder / "filler", "wb") as file:
                try:
                    while True:
                        file.write(b"x" * 1024)
                        file.flush()
                except OSError:
                    pass
        """,
        n_jobs,
        "(folder / 'filler').unlink()",
        *small,
        env=os.environ | {"TOLD": str(tmp_path / "told")},
    )
    assert "the disk is full" in result["said"] and "Free some space" in result["said"]
    assert not result["finished"]
    told = (tmp_path / "told").read_text().splitlines()
    assert FAULTY * (n_jobs == 1) <= len(told) == replayed(tmp_path / "saved" / "ledger.db") < 200


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=SLOWLY)])
def test_a_quota_that_is_reached_stops_the_search(tmp_path: Path, n_jobs: int) -> None:
    # No right to mount is needed for a limit on the size of files.
    result = run_script(
        tmp_path,
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
        """,
        n_jobs,
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)",
    )
    assert "The ledger" in result["said"] and "Nothing was recorded" in result["said"]
    assert not result["finished"]
    told = (tmp_path / "told").read_text().splitlines()
    assert 10 < len(told) == replayed(tmp_path / "ledger.db") < 200


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own are private."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="ladderholdout-"))
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


READ_ONLY = "ledger.chmod(0o400), folder.chmod(0o500)"


def test_a_read_only_ledger_stops_the_workers_that_find_it(open_folder: Path) -> None:
    result = run_script(
        open_folder,
        f"(folder / 'told').touch(), {READ_ONLY}, become_nobody()",
        2,
        "ledger.chmod(0o600), folder.chmod(0o700)",
    )
    assert "it is read-only" in result["said"] and "write access" in result["said"]
    assert not result["finished"]
    assert (open_folder / "told").read_text() == ""
    assert replayed(open_folder / "ledger.db") == 0


def test_permissions_taken_in_mid_search_lose_nothing_and_stop_the_next_process(
    open_folder: Path,
) -> None:
    # The system asks for permissions when a file is opened: an open ledger is written on.
    result = run_script(
        open_folder,
        f"(folder / 'told').touch(), become_nobody()\ndef fault():\n    {READ_ONLY}",
        1,
        """
        child = os.fork()
        if child == 0:
            try:
                LadderHoldout.open("bench", ledger=ledger).submit(np.zeros(60))
            except LedgerError as error:
                os._exit(7 if "write access" in str(error) else 8)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        ledger.chmod(0o600), folder.chmod(0o700)
        """,
    )
    assert result["finished"] and not result["said"]
    told = (open_folder / "told").read_text().splitlines()
    assert len(told) == replayed(open_folder / "ledger.db") == 200


# -- the vault -----------------------------------------------------------------------------


def scored(holdout: LadderHoldout) -> str:
    """Score a model as a worker does; return why the search was stopped, or nothing."""
    X, y = rows()
    try:
        holdout(classifier()().fit(X, y), X[:0], y[:0])
    except SearchStopped as stopped:
        return str(stopped)
    return ""


@pytest.mark.parametrize(
    ("how", "said", "n_jobs"),
    [
        ("deleted", "cannot be read", 2),
        ("truncated", "is not the file that was written", 1),
        ("changed", "is not the file that was written", 1),
        ("opened to others", "open to other users", 1),
        pytest.param("truncated", "is not the file that was written", 2, marks=SLOWLY),
        pytest.param("changed", "is not the file that was written", 2, marks=SLOWLY),
        pytest.param("opened to others", "open to other users", 2, marks=SLOWLY),
    ],
)
def test_a_vault_that_cannot_be_trusted_stops_the_search(
    bench: Bench, how: str, said: str, n_jobs: int
) -> None:
    vault, holdout = bench.vault, bench.holdout
    if how == "deleted":
        vault.unlink()
    elif how == "truncated":
        os.truncate(vault, 100)
    elif how == "changed":
        vault.write_bytes(vault.read_bytes()[:-10] + b"0123456789")
    else:
        vault.chmod(0o644)
    # One worker is another process all the same: this one has the rows.
    stopped = bench.stopped(None, n_jobs=2) if n_jobs == 2 else elsewhere(scored, holdout)
    assert said in stopped and "LadderHoldout(X, y, ...)" in stopped
    assert bench.told() == bench.entries() == 0
    # As the message says: with the rows, the vault is written anew.
    X, y = rows()
    LadderHoldout(X, y, ledger=holdout.ledger)
    if n_jobs == 2:
        bench.search(None, n_jobs=2).fit(bench.X, bench.y)
    else:
        assert elsewhere(scored, holdout) == ""
    assert bench.entries() == (CANDIDATES if n_jobs == 2 else 1)


def test_a_vault_that_is_gone_stops_a_process_that_was_not_given_the_rows(bench: Bench) -> None:
    bench.vault.unlink()
    code = """
import sys, numpy as np
from ladderholdout import LadderHoldout
LadderHoldout.open("bench", ledger=sys.argv[1]).submit(np.zeros(60))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(bench.ledger)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "VaultError" in done.stderr and "LadderHoldout(X, y, ...)" in done.stderr
    assert bench.entries() == 0


# -- predictions that are no predictions ---------------------------------------------------


class Answers(ClassifierMixin, BaseEstimator):
    """A classifier whose answer to anything is fixed."""

    def __init__(self, answer: Any = None, response: str = "predict") -> None:
        self.answer, self.response = answer, response

    def fit(self, X: Any, y: Any) -> Answers:
        self.classes_ = np.array([0, 1])
        return self

    def __getattr__(self, name: str) -> Any:
        if name != "response" and name == self.response:
            return lambda X: self.answer
        raise AttributeError(name)


ODD = np.array([0.25, np.nan, *[0.5] * 58])
BAD_ANSWERS: list[tuple[str, str, Any]] = [
    ("accuracy", "predict", np.zeros(59)),
    ("accuracy", "predict", np.zeros(61)),
    ("accuracy", "predict", np.zeros((60, 2))),
    ("accuracy", "predict", np.zeros(0)),
    ("accuracy", "predict", np.full(60, np.nan)),
    ("accuracy", "predict", np.full(60, 2)),
    ("accuracy", "predict", np.full(60, "yes")),
    ("accuracy", "predict", np.full(60, 0.3)),
    ("accuracy", "predict", None),
    ("neg_log_loss", "predict_proba", np.full((59, 2), 0.5)),
    ("neg_log_loss", "predict_proba", np.full((60, 3), 1 / 3)),
    ("neg_log_loss", "predict_proba", np.full((60, 2), 0.7)),
    ("neg_log_loss", "predict_proba", np.column_stack([ODD, 1 - ODD])),
    ("neg_log_loss", "predict_proba", np.full((60, 2), "a")),
    ("roc_auc", "decision_function", ODD),
    ("roc_auc", "decision_function", np.full(60, np.inf)),
    ("roc_auc", "decision_function", np.zeros(59)),
    ("r2", "predict", ODD),
    ("r2", "predict", np.full(60, -np.inf)),
    ("r2", "predict", np.zeros((60, 2))),
]


@pytest.mark.parametrize(("scoring", "response", "answer"), BAD_ANSWERS)
def test_bad_predictions_are_refused_and_leave_no_entry(
    tmp_path: Path, scoring: str, response: str, answer: Any
) -> None:
    X, y = rows()
    holdout = LadderHoldout(X, y, scoring=scoring, ledger=tmp_path / "ledger.db")
    probabilities = np.column_stack([1 - X[:, 0], X[:, 0]])
    good = {"predict_proba": probabilities, "decision_function": X[:, 0]}.get(response, y)
    holdout.submit(good)
    before = holdout.status(), holdout.history()
    model = Answers(answer, response).fit(X, y)
    with pytest.raises(InvalidArgument, match="predictions must be"):
        holdout.submit(answer)
    with pytest.raises(InvalidArgument, match="predictions must be"):
        holdout.submit(model)
    search = GridSearchCV(
        Answers(response=response), {"answer": [good, answer]}, scoring=holdout, cv=holdout.split()
    )
    with pytest.raises(SearchStopped, match="predictions must be"):
        search.fit(X + 1, y)
    assert not hasattr(search, "best_estimator_")
    # The search had one good candidate before the bad one: a repeat of what stood there.
    assert holdout.history()[: len(before[1])] == before[1]
    assert [one.repeat_of for one in entries_of(holdout)] == [None, 1]
    assert holdout.status().releases == before[0].releases
    assert replayed(tmp_path / "ledger.db") == 2


@pytest.mark.parametrize(
    ("scoring", "model"),
    [
        ("neg_log_loss", Answers()),
        ("roc_auc", Answers()),
        ("accuracy", BaseEstimator()),
        ("accuracy", DummyClassifier(strategy="constant", constant=7)),
        ("accuracy", LinearRegression()),
    ],
)
def test_a_model_that_answers_something_else_is_refused(
    tmp_path: Path, scoring: str, model: Any
) -> None:
    X, y = rows()
    holdout = LadderHoldout(X, y, scoring=scoring, ledger=tmp_path / "ledger.db")
    labels = np.where(y == 1, 7, 8) if isinstance(model, DummyClassifier) else y
    fitted = model.fit(X, labels) if hasattr(model, "fit") else model
    with pytest.raises(InvalidArgument, match="predictions must be"):
        holdout.submit(fitted)
    with pytest.raises(SearchStopped, match=r"(predictions|estimator) must be"):
        holdout(fitted, X[:0], y[:0])
    assert holdout.status().submissions == 0 == len(holdout.history())


def test_an_unfitted_model_is_refused(bench: Bench) -> None:
    with pytest.raises(NotFittedError):
        bench.holdout.submit(DummyClassifier())
    with pytest.raises(SearchStopped, match="NotFittedError"):
        bench.holdout(DummyClassifier(), bench.X[:0], bench.y[:0])
    assert bench.entries() == 0


def test_a_model_that_fails_on_the_holdout_stops_the_search(bench: Bench) -> None:
    # In scikit-learn's own hands this failure would be a score of nan and a warning.
    def broken() -> type[BaseEstimator]:
        class Broken(classifier()):  # type: ignore[misc]
            def predict(self, X: Any) -> Any:
                if self.level == FAULTY:
                    raise RuntimeError("out of memory")
                return super().predict(X)

        return Broken

    grid = {"level": list(range(CANDIDATES))}
    for n_jobs in (1, 2):
        search = GridSearchCV(
            broken()(), grid, scoring=bench.holdout, cv=bench.holdout.split(), n_jobs=n_jobs
        )
        with pytest.raises(SearchStopped, match="RuntimeError"):
            search.fit(bench.X, bench.y)
        assert not hasattr(search, "best_estimator_")
    assert bench.entries() >= FAULTY


# -- interruptions -------------------------------------------------------------------------


def test_an_interrupted_search_leaves_a_ledger_that_goes_on(bench: Bench) -> None:
    search = bench.search(lambda: os.kill(os.getpid(), signal.SIGINT), n_jobs=1)
    with pytest.raises(KeyboardInterrupt):
        search.fit(bench.X, bench.y)
    assert bench.entries() == bench.told() == FAULTY
    bench.search(None, n_jobs=1).fit(bench.X, bench.y)
    assert bench.entries() == FAULTY + CANDIDATES


INTERRUPTED = """
import json, random, signal, sys, time, warnings
import numpy as np
from ladderholdout import LadderHoldout

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
holdout = LadderHoldout.open("bench", ledger=sys.argv[1])
holdout.status()
rng, chance = np.random.default_rng(0), random.Random(0)
told, interrupted = [], 0
while interrupted < int(sys.argv[2]):
    try:
        # As Ctrl-C does: at any instruction, inside of a transaction too. Again after half a
        # second, since an interrupt inside of a finalizer goes by unheard.
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-4, 4e-3), 0.5)
        while True:
            release = holdout.submit(rng.integers(0, 2, 60))
            told.append([release.submission, release.score])
    except (KeyboardInterrupt, AssertionError) as stopped:
        # SQLAlchemy's commit raises an AssertionError on top of the interrupt.
        while not isinstance(stopped, KeyboardInterrupt):
            stopped = stopped.__context__
        interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if interrupted % 5 == 0:  # in peace now and then, on however busy a machine
        release = holdout.submit(rng.integers(0, 2, 60))
        told.append([release.submission, release.score])
print(json.dumps(told))
"""


@pytest.mark.parametrize("times", [30, pytest.param(150, marks=SLOWLY)])
def test_interruptions_at_any_moment_lose_nothing_that_was_told(bench: Bench, times: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(bench.ledger), str(times)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    recorded = {one.number: one.score for one in bench.holdout.history()}
    assert len(told) >= times // 5
    assert all(recorded[number] == score for number, score in told)
    # An interruption between the commit and the return leaves an entry that nobody saw.
    assert len(told) <= bench.entries() <= len(told) + times
