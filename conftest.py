"""For the tests and for the examples in the docstrings alike."""

from __future__ import annotations

from pathlib import Path

import pytest

# Alembic runs these files inside a migration; imported by pytest, env.py finds no context.
collect_ignore_glob = ["src/ladderholdout/ledger/migrations/*"]


@pytest.fixture(autouse=True)
def default_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A default ledger of its own for each test, so that none writes into the user's.

    Processes that a test starts inherit it. The examples of one Hypothesis test share it.
    """
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", str(path))
    return path
