"""Attacks other platforms as far as this one can play them, and the oldest versions of others.

What Windows does not have is taken from the standard library before anything is imported, in
workers too. Neither Windows nor macOS ran these tests.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.process import read_start
from ladderholdout.thirdparty import TESTED
from tests.support import platforms, tree
from tests.support.platforms import HIDE
from tests.support.smoke import PARTS

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "tests" / "support" / "smoke.py"

# Where the package reads and writes files, and starts processes: with the contract of ledgers, and
# handles that travel. What asks for a fork or for modes is skipped there, as it is on Windows.
CORE = ("tests/vault/test_vault.py",)
MORE = (
    "tests/testing/test_contracts.py::TestSqlite",
    "tests/ledger/test_ledger.py",
    "tests/guard/test_handle.py::test_everything_is_the_same_in_another_process[accuracy]",
)
# Workers, a study, rows in frames, and the command line.
FIRST = ["grid", "study", "frames", "console"]


def run(python: Path | str, *words: str | Path, **environment: str) -> str:
    """What a program prints, with this checkout's package; its failure is the test's."""
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [str(python), "-W", "ignore", *map(str, words)],
        env=inherited | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def done(text: str) -> list[str]:
    return re.findall(r"^done: (\w+)$", text, re.MULTILINE)


# -- what other platforms lack --------------------------------------------------------

SYSTEM_MODULES = {*platforms.MODULES, "msvcrt", "platform", "signal", "winreg"}
SYSTEM_CALLS = {f"os.{name}" for name in (*platforms.CALLS, *platforms.DIFFER)} | {"sys.platform"}


def system_calls(text: str) -> list[str]:
    """What a module asks of the system that only some systems have, or that differs on them."""
    found = []
    for node in tree.nodes(text):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if alias.name in SYSTEM_MODULES]
            case ast.ImportFrom(module=str(module)) if module in SYSTEM_MODULES:
                found.append(module)
            case ast.Attribute(value=ast.Name(id=of), attr=name) if f"{of}.{name}" in SYSTEM_CALLS:
                found.append(f"{of}.{name}")
            case ast.keyword(arg="mode", value=ast.Constant(value=int())):  # mkdir(mode=0o700)
                found.append("mode")
    return found


def test_one_module_alone_asks_which_system_it_is_on() -> None:
    asking = {
        path.relative_to(tree.SOURCE).as_posix(): calls
        for path in tree.files("src/ladderholdout")
        if (calls := system_calls(tree.source(path)))
    }
    assert set(asking) == {"process.py"}, asking


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import fcntl",
        "from signal import SIGKILL",
        "import os\nif os.name == 'nt':\n    0",
        "import os\nos.fsync(1)",
        "folder.mkdir(mode=0o700)",
    ],
)
def test_what_asks_the_system_is_found(text: str) -> None:
    assert len(system_calls(text)) == 1


@pytest.mark.processes
@pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["first", "whole"]
)
def test_a_session_runs_where_there_is_no_fork(tmp_path: Path, whole: bool) -> None:
    """Searches start their workers anew, which import the package without the functions as well."""
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    path = f"{tmp_path}{os.pathsep}{ROOT / 'src'}"
    check = "import os, ladderholdout; assert not hasattr(os, 'fork')"
    run(sys.executable, "-c", check, PYTHONPATH=path)
    # Dask imports what only other systems lack: psutil has other parts for Windows.
    # A server has tests of its own, and uvicorn asks for the functions that were hidden.
    parts = [part.__name__ for part in PARTS if part.__name__ not in ("dask", "server")]
    parts = [part for part in parts if whole or part in FIRST]
    assert done(run(sys.executable, SMOKE, *parts, PYTHONPATH=path)) == parts


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("tests", "least"),
    [(CORE, 40), (MORE, 40)],
    ids=["vaults", "ledgers"],
)
def test_ledgers_and_vaults_keep_their_promises_without_posix(
    tmp_path: Path, tests: tuple[str, ...], least: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    path = f"{tmp_path}{os.pathsep}{ROOT / 'src'}"
    wanted = ("-m", "not nightly and not long")
    # Without basetemp pytest itself asks who its user is.
    quiet = ("-p", "no:cacheprovider", "-q", "--basetemp", tmp_path / "base")
    files = [str(ROOT / test) for test in tests]
    text = run(sys.executable, "-m", "pytest", *quiet, *wanted, *files, PYTHONPATH=path)
    passed = re.search(r"^(\d+) passed", text, re.MULTILINE)
    assert passed is not None and int(passed[1]) > least


def test_the_start_of_a_file_is_read_the_same_without_pread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"one\r\ntwo")
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        found = [read_start(descriptor, 5)]
        monkeypatch.delattr(os, "pread")
        found += [read_start(descriptor, 5), read_start(descriptor, 5)]
    finally:
        os.close(descriptor)
    assert found == [b"one\r\n"] * 3


def test_a_ledger_under_a_name_in_other_letters_is_the_same_one(tmp_path: Path) -> None:
    """In a folder that ignores case both names open one file, as through a link."""
    (tmp_path / "ledger.db").touch()
    other = tmp_path / "LEDGER.DB"
    if not other.exists():
        other.symlink_to(tmp_path / "ledger.db")
    X, y = np.arange(40.0).reshape(-1, 1), np.arange(40) % 2
    one, two = (
        LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=tmp_path / name)
        for name in ("ledger.db", "LEDGER.DB")
    )
    assert one.submit(y).submission == 1
    again, worse = two.submit(y), one.submit(1 - y)
    assert (again.submission, again.improved, worse.submission) == (2, False, 3)
    assert (again.repeat_of, again.is_incumbent) == (1, True)
    assert [entry.number for entry in two.history()] == [1, 2, 3]


# -- the oldest versions --------------------------------------------------------------

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# What the smoke session needs besides the package, and runs its tests.
EXTRAS = ("boosting", "dask", "mcp", "mlflow", "postgres", "remote", "report")
EXTRAS += ("server", "tables")
TOOLS = ("cloudpickle", "optuna-integration")


def lower_bounds() -> dict[str, str]:
    """Each distribution that an installation brings, with the oldest version that is allowed."""
    optional = PROJECT["optional-dependencies"]
    stated = [*PROJECT["dependencies"], *(one for extra in EXTRAS for one in optional[extra])]
    stated += [one for one in optional["test"] if re.match(r"[\w-]+", one)[0] in TOOLS]
    found = {}
    for one in stated:
        match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", one)
        assert match is not None, f"{one} states no lower bound"
        found[match[1]] = match[2]
    return found


def test_the_tested_versions_begin_at_the_lower_bounds() -> None:
    bounds = lower_bounds()
    stated = [(oldest, bounds[name]) for name, (oldest, _) in TESTED.items() if name in bounds]
    assert all(f"{bound}.0.0".startswith(oldest) for oldest, bound in stated) and len(stated) == 6


@pytest.mark.nightly
def test_a_session_runs_with_the_oldest_versions(tmp_path: Path) -> None:
    began = time.monotonic()
    bounds = tmp_path / "bounds.txt"
    bounds.write_text("".join(f"{one}=={oldest}\n" for one, oldest in lower_bounds().items()))
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", home)
    python = home / "bin" / "python"
    package = f"{ROOT}[{','.join(EXTRAS)}]"
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(python, *pip, "-c", bounds, "--only-binary", ":all:", package, *TOOLS, "pytest")
    print(f"installed after {time.monotonic() - began:.0f} s")
    session = run(python, SMOKE, PYTHONPATH="")
    assert done(session) == [part.__name__ for part in PARTS]
    # Warnings of old versions are no business of ours.
    names = ROOT / "tests" / "facade" / "test_thirdparty.py"
    settings = ("--noconftest", "-o", "filterwarnings=default", "-p", "no:cacheprovider", "-q")
    run(python, "-m", "pytest", *settings, "-k", "installed_version", names, PYTHONPATH="")
    print(f"done after {time.monotonic() - began:.0f} s")


@pytest.mark.processes
def test_the_installation_asks_the_indexes_that_pip_asks(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://a.example/simple\nfind-links = /one\n    /two\n"
    )
    told = "import runpy; print(runpy.run_path('.ci/install.py')['told']())"
    # The environment's settings go before those of the file.
    pip = {
        "PIP_CONFIG_FILE": str(config),
        "PIP_EXTRA_INDEX_URL": "https://b.example https://c.example",
    }
    shown = ast.literal_eval(run(sys.executable, "-c", told, **pip, PIP_FIND_LINKS="/three"))
    assert shown["UV_DEFAULT_INDEX"] == "https://a.example/simple"
    assert shown["UV_INDEX"] == "https://b.example https://c.example"
    assert shown["UV_FIND_LINKS"] == "/three"
