"""Randomness and data that several test files share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from optuna.storages import RDBStorage
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from ladderholdout import LadderHoldout
from ladderholdout.mechanisms import FullDisclosure
from tests.support.fixed_secrets import secrets_of
from tests.support.seeded import same_draws

if TYPE_CHECKING:
    from tests.support.postgres import Server


def pytest_configure() -> None:
    """Set up Hypothesis before a test module is imported, where it is installed.

    The tests of a room run with pytest alone, and of some rooms with Hypothesis: this file
    imports at its top what the plain installation brings, and the fixtures the rest.
    """
    if find_spec("hypothesis") is not None:
        from hypothesis import settings

        # No deadline: a busy machine is no defect. Fixed examples: a red run can be run again.
        settings.register_profile("ladderholdout", deadline=None, derandomize=True)
        settings.load_profile("ladderholdout")


@dataclass(frozen=True, slots=True)
class Binary:
    """A real two-class problem in three parts, as in life: train, holdout, and the truth."""

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_holdout: NDArray[np.float64]
    y_holdout: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


@pytest.fixture(autouse=True, scope="module")
def module_seeded(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same secrets in each run, for what the tests of a module share."""
    with secrets_of(request.node.nodeid):
        yield


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same secrets, searches and studies in each run."""
    with same_draws(request.node.nodeid):
        yield


@pytest.fixture(autouse=True)
def studies_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the databases of a test's studies: Optuna never does, and Python 3.13 warns of it."""
    opened: list[RDBStorage] = []
    make = RDBStorage.__init__

    def remembered(self: RDBStorage, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        opened.append(self)

    monkeypatch.setattr(RDBStorage, "__init__", remembered)
    yield
    for one in opened:
        one.remove_session()
        one.engine.dispose()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def binary() -> Binary:
    """Breast cancer: 284 rows to train on, 142 held out, 143 to know the truth by."""
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(
        X, y, train_size=284, stratify=y, random_state=0
    )
    X_holdout, X_test, y_holdout, y_test = train_test_split(
        X_rest, y_rest, train_size=142, stratify=y_rest, random_state=0
    )
    parts = (X_train, y_train, X_holdout, y_holdout, X_test, y_test)
    for part in parts:
        part.setflags(write=False)  # the whole session shares them
    return Binary(*parts)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., LadderHoldout]:
    """Open a ladder that releases every score, to compare with, on a ledger of the test."""

    def make(X: Any, y: Any, scoring: str = "accuracy", **wishes: Any) -> LadderHoldout:
        wishes = {"ledger": tmp_path / "ledger.db", "mechanism": FullDisclosure(), **wishes}
        return LadderHoldout(X, y, scoring=scoring, **wishes)

    return make


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The system's Chromium, steered by Playwright."""
    from playwright.sync_api import sync_playwright

    from tests.support.browser import ARGUMENTS, browser

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=browser(), args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server that all tests share; who stops it starts it again."""
    from tests.support.postgres import server

    with server() as running:
        yield running


@pytest.fixture
def database(postgres: Server) -> str:
    """The URL of an empty database; vaults of ledgers on it lie in the test's folder."""
    return postgres.database()
