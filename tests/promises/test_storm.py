"""Attacks the ledger with eight submitters of which one is killed every so often."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ladderholdout import LadderHoldout
from ladderholdout.mechanisms import ShakyLadder

STORM = Path(__file__).parents[2] / "benchmarks" / "storm.py"


@pytest.mark.processes
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_in_a_breeze_nothing_is_lost_or_told_twice(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The same with three submitters and 60 answers, and nobody looks at the clock."""
    monkeypatch.syspath_prepend(STORM.parent)
    monkeypatch.setitem(sys.modules, "storm", None)  # so that it is taken out in the end
    del sys.modules["storm"]
    storm = importlib.import_module("storm")
    url = request.getfixturevalue("database") if where == "postgres" else tmp_path / "ledger.db"
    rule = ShakyLadder(step=0.02, noise=0.005)
    holdout = LadderHoldout(
        *storm.rows(), scoring="accuracy", name=storm.NAME, ledger=url, mechanism=rule,
        vault=tmp_path,
    )  # fmt: skip
    found, _ = storm.run(holdout.ledger, 60, 3, 20)
    storm.check(holdout, found)
    assert len(found.told) >= 60 and found.kills >= 2 + 3


@pytest.mark.nightly
@pytest.mark.parametrize("words", [(), ("--postgres",)], ids=["sqlite", "postgres"])
def test_in_a_storm_nothing_is_lost_told_twice_or_kept_waiting(words: tuple[str, ...]) -> None:
    """`python benchmarks/storm.py` is the same with 10,000 submissions."""
    command = [sys.executable, "-W", "error", str(STORM), "--submissions", "1000", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) answers of 8 processes, (\d+) killed", done.stdout)
    assert found is not None
    assert int(found[1]) >= 1000 and int(found[2]) >= 10 + 8
    print(done.stdout)
