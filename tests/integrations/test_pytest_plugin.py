"""Attacks the plugin of pytest and the action of a forge: real runs, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ladderholdout import LadderHoldout
from ladderholdout.mechanisms import GateLadder
from ladderholdout.server.accounts import add_account
from tests.support import server

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
N = 400
X, Y = np.arange(N).reshape(-1, 1), np.random.default_rng(34).integers(0, 2, N)

TESTS = """
import numpy as np
import pytest

y = np.load("y.npy")
n = len(y)

@pytest.mark.parametrize("right", [250, 252, 320])
def test_the_change_is_kept(holdout, right):
    candidate = np.where(np.arange(n) < right, y, 1 - y)
    assert holdout.accepts(candidate, margin=0.01, baseline=right == 250)
"""


def registered(folder: Path, name: str = "churn") -> Path:
    ledger = folder / "ledger.db"
    given: Any = {"scoring": "accuracy", "mechanism": GateLadder()}
    LadderHoldout(X, Y, name=name, ledger=ledger, **given)
    np.save(folder / "y.npy", Y)
    (folder / "test_change.py").write_text(TESTS)
    return ledger


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *words],
        cwd=folder,
        env=dict(os.environ) | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_failed_assertion_shows_the_reason_and_the_summary_all_decisions(tmp_path: Path) -> None:
    ledger = registered(tmp_path)
    done = run(tmp_path, "--ladderholdout", "churn", "--ladderholdout-ledger", str(ledger))
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout
    assert "It is not shown to be better than submission 1 by more than 0.01." in done.stdout
    summary = done.stdout.partition("decisions of the holdout")[2].splitlines()[1:4]
    assert sorted(line.partition(": ")[2][:26] for line in summary) == [
        "accepted (submission 1): I",
        "accepted (submission 3): I",
        "not accepted (submission 2",
    ]


def test_the_configuration_names_a_server_and_workers_report(tmp_path: Path) -> None:
    ledger = registered(tmp_path)
    token = add_account(str(ledger), "churn", "ci", "program").token
    with server.serving(ledger, tmp_path) as running:
        stated = f"[pytest]\nladderholdout = churn\nladderholdout_server = {running.url}\n"
        (tmp_path / "pytest.ini").write_text(stated)
        # One worker, so that the candidates come in their order.
        done = run(tmp_path, "-n", "1", LADDERHOLDOUT_TOKEN=token)
    assert "1 failed, 2 passed" in done.stdout
    assert done.stdout.count("accepted (submission") == 3


def test_without_a_name_it_fails_and_says_what_to_state(tmp_path: Path) -> None:
    ledger = registered(tmp_path)
    done = run(tmp_path, LADDERHOLDOUT_LEDGER=str(ledger))
    assert done.returncode == 1 and "pytest --ladderholdout NAME" in done.stdout
    assert LadderHoldout.open("churn", ledger=ledger).status().submissions == 0


def test_what_was_not_decided_ends_the_session_and_fails_no_test(tmp_path: Path) -> None:
    registered(tmp_path)
    words = ["--ladderholdout", "churn", "--ladderholdout-ledger"]
    (tmp_path / "broken.db").write_bytes(b"no database, but longer than a header" * 9)
    done = run(tmp_path, *words, "broken.db")
    assert done.returncode == 4 and "not decided: LedgerError" in done.stdout
    assert "1 failed" not in done.stdout and "1 error" not in done.stdout


def test_a_project_may_have_options_named_holdout(tmp_path: Path) -> None:
    """The plugin is loaded in every run of pytest of the environment."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--holdout', type=float, default=0.2)\n"
        "    parser.addini('holdout', 'rows to hold out', default='x')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nholdout = rows.csv\n")
    (tmp_path / "test_own.py").write_text(
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.getoption('holdout') == 0.3\n"
        "    assert pytestconfig.getini('holdout') == 'rows.csv'\n"
    )
    done = run(tmp_path, "--holdout", "0.3")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_without_a_holdout_does_not_import_the_library(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_it():\n    assert 'ladderholdout' not in sys.modules\n"
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout


def step(inputs: dict[str, str], folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Run one step of the action by its own text, as a forge's runner does."""
    action = yaml.safe_load((ROOT / "integrations" / "ci" / "action.yml").read_text("utf-8"))
    values = {key: str(known.get("default", "")) for key, known in action["inputs"].items()}
    assert set(inputs) <= set(values)
    values |= inputs
    (found,) = (entry for entry in action["runs"]["steps"] if entry["name"] == name)
    stated = {
        key: values[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        for key, text in found["env"].items()
    }
    path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    places = {key: str(folder / key) for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", found["run"]],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder), **own, **stated, **places},
        capture_output=True,
        text=True,
        timeout=120,
    )


def outputs(folder: Path) -> dict[str, str]:
    """Read what the last step gave out."""
    lines = (folder / "GITHUB_OUTPUT").read_text().splitlines()[-3:]
    return dict(line.split("=", 1) for line in lines)


def test_the_action_ends_with_the_decision(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    ledger = registered(private)
    token = add_account(str(ledger), "churn", "ci", "program").token
    for right in (250, 252, 320):
        guess = np.where(np.arange(N) < right, Y, 1 - Y)
        np.save(tmp_path / f"{right}.npy", guess)
    with server.serving(ledger, tmp_path) as running:
        inputs = {"holdout": "churn", "server": running.url, "token": token, "context": "pr=7"}
        found = []
        for right in (250, 252, 320):
            more = {"predictions": f"{right}.npy", "baseline": str(right == 250).lower()}
            done = step(inputs | more, tmp_path, "Decide")
            found.append((done.returncode, outputs(tmp_path)["accepted"]))
            assert outputs(tmp_path)["reason"].startswith("It is ") and token not in done.stdout
        refused = step(inputs | {"predictions": "none.npy"}, tmp_path, "Decide")
        # What begins with a dash is a name or a file: help ends with 0, and accepts nothing.
        for more in ({"ids": "--help"}, {"holdout": "--version"}):
            done = step(inputs | {"predictions": "250.npy"} | more, tmp_path, "Decide")
            found.append((done.returncode, outputs(tmp_path)["accepted"]))
    (tmp_path / "broken.db").write_bytes(b"no database, but longer than a header" * 9)
    broken = {"holdout": "churn", "predictions": "320.npy", "ledger": "broken.db"}
    found.append((step(broken, tmp_path, "Decide").returncode, outputs(tmp_path)["status"]))
    assert found[:3] == [(0, "true"), (1, "false"), (0, "true")]
    assert found[3:] == [(2, "false")] * 2 + [(4, "4")]
    assert refused.returncode == 2 and "none.npy" in refused.stdout
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text().count("**Gate:**") == 7
    history = LadderHoldout.open("churn", account="ci", ledger=ledger).history()
    assert {line.context["pr"] for line in history} == {"7"}


def test_the_hook_is_a_command_that_is_there() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    program, *words = hook["entry"].split()
    path = Path(sys.executable).with_name(program)
    done = subprocess.run([path, *words, "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "may replace the incumbent" in " ".join(done.stdout.split())
    assert hook["pass_filenames"] is False
