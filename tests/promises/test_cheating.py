"""Attacks of an agent that cheats: all of them fail, or are on record, and the page states so."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stranger import interpreter, is_root

ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks" / "cheating.py"
PAGE = ROOT / "docs" / "background" / "cheating.md"


def cells(text: str) -> list[tuple[str, str, str]]:
    """Of each line of the table what was attacked, what success is, and the outcome."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [(line[0], line[2], line[3]) for line in lines]


@pytest.mark.nightly
@pytest.mark.skipif(not is_root(), reason="only root can start another user")
def test_no_attack_succeeds_and_the_page_has_their_outcomes() -> None:
    if interpreter() is None:
        pytest.skip("no Python here that another user can run")
    # By the chances that the benchmark states, less than one run in 10^5 fails without a defect.
    done = subprocess.run(
        [sys.executable, str(BENCHMARK)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = cells(done.stdout)
    assert {outcome for _, _, outcome in found[2:]} == {"failed", "on record"}
    assert found == cells(PAGE.read_text("utf-8"))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users are not numbered here")
def test_who_cannot_start_another_user_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [str(BENCHMARK)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARK), run_name="__main__")
    said = capsys.readouterr()
    assert said.out == ""
    assert "Only root can start a process of another user" in f"{ended.value.code} {said.err}"
    assert ended.value.code not in (0, None)
