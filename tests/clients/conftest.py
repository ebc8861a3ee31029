"""A ledger of its own for each test, digits in three parts, and the rows of the page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tests.support.seeded import same_draws

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

RESULTS = Path(__file__).parents[2] / ".venv-clients" / "results.json"
_rows: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def default_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A default ledger of its own for each test, which its worker processes inherit."""
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ledger.db"


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same secrets and searches in each run: some searchers take no seed."""
    with same_draws(request.node.nodeid):
        yield


@pytest.fixture
def names() -> dict[str, Any]:
    """What the first block of a page defines: digits, of whose rows 211 are held out.

    A prime number, so that no score of other rows equals one of these by chance.
    """
    X, y = load_digits(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(
        X, y, train_size=400, stratify=y, random_state=0
    )
    X_holdout, X_test, y_holdout, y_test = train_test_split(
        X_rest, y_rest, train_size=211, stratify=y_rest, random_state=0
    )
    return {
        **{"X_train": X_train, "y_train": y_train, "X_holdout": X_holdout},
        **{"y_holdout": y_holdout, "X_test": X_test, "y_test": y_test, "__name__": "__main__"},
    }


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[[str, object], None]:
    """Note something of a row for the page."""
    return record_property


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hand the marks on to the reports, which come from workers as well."""
    for item in items:
        mark = item.get_closest_marker("row")
        if mark is not None:
            client, line, *distributions = mark.args
            versions = {one: metadata.version(one) for one in distributions}
            row = {"client": client, "line": line, "versions": versions}
            item.user_properties.append(("row", row))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the rows of tests that passed, and of those that did not."""
    found = dict(report.user_properties)
    if "row" not in found or (report.when != "call" and report.passed):
        return
    row = dict(found.pop("row"))
    _rows.append({**row, **found, "outcome": report.outcome, "test": report.nodeid})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write down what came out, for page.py."""
    if hasattr(session.config, "workerinput") or not _rows or session.config.option.keyword:
        return
    if RESULTS.parent.is_dir():
        RESULTS.write_text(json.dumps(_rows, indent=1, sort_keys=True), "utf-8")
