"""Attacks the ledger with eight submitters of which one is killed every so often."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

STORM = Path(__file__).parents[2] / "benchmarks" / "storm.py"


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
