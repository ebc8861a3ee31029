"""Attacks the guard with scikit-learn's own tests: what passes without it passes with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1] / "clients" / "sklearn_suite"
sys.path.insert(0, str(SUITE))
import run  # noqa: E402

sys.path.remove(str(SUITE))


@pytest.mark.nightly
def test_scikit_learns_installed_tests_fail_nowhere_else_than_on_the_list() -> None:
    done = subprocess.run(
        [sys.executable, str(SUITE / "run.py")], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_known_failure_has_its_reason() -> None:
    known = run.known_failures()
    modules = {Path(module).name for module in run.MODULES}
    assert {pattern.partition("::")[0] for pattern in known} <= modules
    assert all(len(reason) > 20 for reason in known.values())


def test_a_new_failure_a_crash_and_a_missing_guard_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = '<testcase name="test_pickle"><failure/></testcase><testcase name="test_x"/>'

    def ran(cases: str, status: int, guarded: int) -> int:
        def write(module: str, way: str, report: Path) -> tuple[int, int, str]:
            report.write_text(f"<testsuites>{cases}</testsuites>", "utf-8")
            return status, guarded, ""

        monkeypatch.setattr(run, "MODULES", {"model_selection/tests/test_search.py": "folds"})
        monkeypatch.setattr(run, "ran", write)
        return run.main()

    assert ran(cases, 1, 3) == 0
    assert ran(cases + '<testcase name="test_y"><error/></testcase>', 1, 3) == 1
    assert "NEW FAILURE test_search.py::test_y" in capsys.readouterr().out
    assert ran(cases, 1, 0) == 1
    assert ran(cases, 3, 3) == 1
