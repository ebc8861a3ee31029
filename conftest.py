"""For the tests and for the examples in the docstrings alike."""

from __future__ import annotations

import ast
import os
import platform
import re
import signal
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.fixed_secrets import secrets_of
from tests.support.leavings import Leavings

try:
    import _posixsubprocess
except ImportError:  # not a POSIX system
    _posixsubprocess = None

ROOT = Path(__file__).parent

collect_ignore_glob = ["tests/*/probe_*.py"]
# Its examples need Inspect; make test-clients runs them.
collect_ignore_glob += ["src/ladderholdout/integrations/inspect_ai.py"]

# What imports PyTorch, which `make test` does not install.
DEEP = {ROOT / "tests" / "deep"} | {
    ROOT / "src" / "ladderholdout" / "integrations" / f"{tool}.py"
    for tool in ("keras", "lightning", "skorch", "torch")
}
# Keras and Lightning on the PyTorch and NumPy of today; not of this library's making.
DEEP_WARNINGS = (
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning",
    "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
    "ignore:The '\\w+_dataloader' does not have many workers:UserWarning",
)
os.environ.setdefault("KERAS_BACKEND", "torch")
# Models in tests are small, and on a busy machine threads of BLAS and OpenMP only wait for
# each other: minutes for seconds.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell starts what it runs in the background deaf to Ctrl-C, and some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Audit events of what starts processes, or a server in this one.
STARTS = {
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "socket.bind",
    "subprocess.Popen",
}
# Pure, and their examples take seconds together.
QUICK_ROOMS = {
    *("errors", "feedback", "metrics", "mechanisms", "certificates"),
    *("ledger", "vault"),
}
# Examples in docstrings that are of another tier than the rest.
LONG_EXAMPLES = {
    "ladderholdout.guard.tracking.TrackedHandle.track",
    "ladderholdout.guard.views.Submission.own_score",
    "ladderholdout.integrations.mlflow.export.export",
    "ladderholdout.integrations.mlflow.registry.certify_version",
    "ladderholdout.planning",
    "ladderholdout.planning.plans.plan",
}
TIERS = ("deep", "nightly", "processes", "long", "quick")
# Marks of all tests that were collected, those too that are not of the tier that runs.
COLLECTED = pytest.StashKey[dict[str, frozenset[str]]]()
LEAVINGS = pytest.StashKey[Leavings]()


def _rows(part: slice) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a made-up task: 60 for the holdout, then 120 to train on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(180, 2))
    return X[part], (X[:, 0] + rng.normal(size=180) > 0).astype(int)[part]


TRAIN = slice(60, None)


def _holdout() -> Any:
    from ladderholdout import LadderHoldout

    return LadderHoldout(*_rows(slice(60)), scoring="accuracy", ledger="memory", name="tiny")


def _tree(depth: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=depth, random_state=0)


def _study() -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))


# What the examples in docstrings share; docs/reference/submitting.md states it for the readers.
EXAMPLES: dict[str, Callable[[], Any]] = {
    "holdout": _holdout,
    "X": lambda: _rows(TRAIN)[0],
    "y": lambda: _rows(TRAIN)[1],
    "model": lambda: _tree(2).fit(*_rows(TRAIN)),
    "study": _study,
    "build": lambda: lambda trial: _tree(trial.suggest_int("depth", 1, 3)),
}


class Watch:
    """Refuses what would start processes or servers while a test runs that is not marked so."""

    def __init__(self) -> None:
        self.watching = False
        self.refused: list[str] = []
        sys.addaudithook(self.hear)
        if _posixsubprocess is not None:
            # multiprocessing's and loky's spawn call this, and it has no audit event.
            start = _posixsubprocess.fork_exec

            def fork_exec(*arguments: Any) -> int:
                self.refuse("fork_exec")
                return start(*arguments)

            _posixsubprocess.fork_exec = fork_exec

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        # Matplotlib lists the fonts of a machine once, in whichever test draws first.
        lists_fonts = arguments[:1] in (("fc-list",), ("system_profiler",))
        if event in STARTS and not lists_fonts:
            self.refuse(event)

    def refuse(self, event: str) -> None:
        if self.watching:
            self.refused.append(event)
            raise RuntimeError(f"{event}: only tests marked `processes` start processes or servers")


# It runs `uname` once for each process and is asked for by libraries at odd moments.
platform.processor()
WATCH = Watch()


def pytest_configure(config: pytest.Config) -> None:
    """Watch what the run leaves; the workers of pytest-xdist inherit its temporary folder.

    Without workers this process itself has pools and folders that end with it, so nothing is told.
    """
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.stash[LEAVINGS] = Leavings()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Fail a run that left something, when its workers and shared fixtures have ended."""
    if LEAVINGS in config.stash and (found := config.stash[LEAVINGS].found()):
        raise pytest.UsageError("The tests left outside their folders: " + "; ".join(found))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the deep files alone unless they are asked for; then a missing package fails."""
    asked = re.search(r"(?<!not )\bdeep\b", config.option.markexpr) or not config.option.markexpr
    return True if _is_deep(collection_path) and not asked else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the examples in docstrings, which cannot say so themselves, and note all marks.

    It comes before pytest selects by the marks.
    """
    for item in items:
        if _is_deep(item.path):
            item.add_marker(pytest.mark.deep)
            for warning in DEEP_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))
        if isinstance(item, pytest.DoctestItem):
            if item.name in LONG_EXAMPLES:
                item.add_marker(pytest.mark.long)
            if _room(item.path) in QUICK_ROOMS:
                item.add_marker(pytest.mark.quick)
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.processes)  # the fixture starts a server
    config.stash[COLLECTED] = {
        item.nodeid: frozenset(mark.name for mark in item.iter_markers()) & set(TIERS)
        for item in items
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let only tests of the tiers of processes start any; fixtures are watched as well."""
    WATCH.refused.clear()
    WATCH.watching = not any(item.get_closest_marker(tier) for tier in TIERS[:3])
    try:
        # Noise and reserves are drawn by a secret: a red run can be run again.
        with secrets_of(item.nodeid):
            return (yield)
    finally:
        WATCH.watching = False


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Fix the secrets of what several tests share, whichever of them runs first."""
    shared = request.scope != "function"
    with secrets_of(f"{fixturedef.baseid} {fixturedef.argname}") if shared else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test whose process was refused, even if the code under test went on without it."""
    outcome = yield
    if WATCH.refused:
        pytest.fail(f"{WATCH.refused} in a test that is not marked `processes`", pytrace=False)
    return outcome


def _is_deep(path: Path) -> bool:
    return path in DEEP or path.parent in DEEP


def _room(path: Path) -> str:
    """The module or package of ladderholdout that a file belongs to."""
    package = ROOT / "src" / "ladderholdout"
    return path.relative_to(package).parts[0].removesuffix(".py") if package in path.parents else ""


@pytest.fixture(autouse=True)
def default_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A default ledger of its own for each test, so that none writes into the user's.

    Processes that a test starts inherit it. The examples of one Hypothesis test share it. Where a
    ledger is in no file, its marks are among the user's data; with a fixed secret the next run
    would find those of this one.
    """
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", str(path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return path


@pytest.fixture(autouse=True)
def shared_by_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Give an example in a docstring what it uses without making it, anew for each docstring."""
    test = getattr(request.node, "dtest", None)
    doctest_namespace.clear()
    if test is not None:
        names = _names_used(example.source for example in test.examples)
        doctest_namespace.update({name: EXAMPLES[name]() for name in names & EXAMPLES.keys()})


def _names_used(sources: Iterable[str]) -> set[str]:
    """Return the names that a program reads and does not make."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return {name.id for name in names} - made


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let MLflow put the artifacts of new experiments into the test's folder, not where it runs."""
    monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", str(tmp_path / "mlruns"))


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the terminal's width, which pytest-xdist hands to its workers."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> dict[str, frozenset[str]]:
    """The marks of each collected test, those too that are of another tier."""
    return request.config.stash[COLLECTED]


@pytest.fixture
def refused() -> list[str]:
    """What the running test tried to start; one that means to empties it."""
    return WATCH.refused
