"""Run scikit-learn's installed tests under the guard, and compare with the list of known failures.

    python tests/clients/sklearn_suite/run.py

The status is 1 where a test fails that is not on the list `known_failures.txt`, where a module ran
no guarded fold, no scorer of a holdout or no callback, or where pytest itself failed. Each line of
the list is a pattern of tests and the reason. The versions of scikit-learn differ in their tests:
a line without a failure is printed and is no fault.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import sklearn

HERE = Path(__file__).parent
MODULES = {
    "model_selection/tests/test_search.py": "folds",
    "model_selection/tests/test_validation.py": "folds",
    "metrics/tests/test_score_objects.py": "scorers",
}


def known_failures() -> dict[str, str]:
    """Return the patterns of the list with their reasons."""
    found = {}
    for line in (HERE / "known_failures.txt").read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, _, reason = line.partition("  # ")
            assert reason.strip(), f"no reason: {line}"
            found[pattern.strip()] = reason.strip()
    return found


def ran(module: str, way: str, report: Path) -> tuple[int, int, str]:
    """Run a module; return pytest's status, how often the guard was there, and the output."""
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    settings = {"LADDERHOLDOUT_SUITE": way, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    installed = Path(sklearn.__file__).parent
    command = [
        *(sys.executable, "-m", "pytest", str(installed / module), "-p", "guarded_plugin"),
        # Neither the settings nor the fixtures of this repository, whose environment may lie in it.
        *("-c", os.devnull, "--rootdir", str(installed), "--confcutdir", str(installed)),
        *("-p", "no:cacheprovider", "-q", "--tb=line", f"--junitxml={report}"),
        *("-W", "ignore::ladderholdout.errors.NotConsultedWarning"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, env=os.environ | settings, capture_output=True, text=True, cwd=folder
        )
    counted = re.search(r"with the guard: (\d+)", done.stdout)
    return done.returncode, int(counted[1]) if counted else 0, done.stdout + done.stderr


def failures(report: Path) -> tuple[dict[str, int], set[str]]:
    """Return how many tests ended in which way, and the names of those that failed."""
    counts, failed = {"passed": 0, "failed": 0, "skipped": 0}, set()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {part.tag for part in case}
        ended = "failed" if kinds & {"failure", "error"} else "passed"
        ended = "skipped" if "skipped" in kinds else ended
        counts[ended] += 1
        if ended == "failed":
            failed.add(str(case.get("name")))
    return counts, failed


def main() -> int:
    known, used, faults = known_failures(), set(), 0
    for module, way in MODULES.items():
        if not (Path(sklearn.__file__).parent / module).exists():
            print(f"{module}: not in scikit-learn {sklearn.__version__}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            status, guarded, output = ran(module, way, report)
            if status not in (0, 1) or not guarded or not report.exists():
                print(output)
                print(f"{module}: pytest ended with {status}, and the guard was there {guarded}x")
                faults += 1
                continue
            counts, failed = failures(report)
        name = Path(module).name
        print(f"{name}: {counts}, with the guard {guarded} times")
        for test in sorted(failed):
            fits = [one for one in known if fnmatch.fnmatchcase(f"{name}::{test}", one)]
            used |= set(fits)
            if not fits:
                faults += 1
                print(f"  NEW FAILURE {name}::{test}")
    for pattern in sorted(set(known) - used):
        print(f"  passes now, or is not in this version: {pattern}")
    print("as expected" if not faults else f"{faults} faults")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
