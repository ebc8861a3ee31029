"""Hold the lines of code of each package: a change may lower a number, only an issue raises one."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Lines with a token that is neither a comment nor part of a docstring.
MOST = {
    "__init__": 51,
    "__main__": 2,
    "arguments": 141,
    "audit": 1_579,
    "bundles": 322,
    "certificates": 2_383,
    "cli": 2_503,
    "errors": 92,
    "estimates": 255,
    "extras": 44,
    "feedback": 62,
    "guard": 7_541,
    "holdout": 300,
    "identity": 826,
    "integrations": 7_223,
    "lab": 1_518,
    "leaderboard": 1_304,
    "ledger": 5_294,
    "limits": 381,
    "mechanisms": 1_273,
    "metrics": 2_373,
    "owner": 40,
    "pictures": 288,
    "planning": 1_043,
    "process": 120,
    "remote": 1_260,
    "server": 2_849,
    "testing": 516,
    "thirdparty": 432,
    "vault": 735,
}


def test_no_package_grows_and_a_smaller_size_is_recorded() -> None:
    house = runpy.run_path(str(ROOT / "benchmarks" / "house.py"))
    lines: Counter[str] = Counter()
    for module in house["modules_in"](ROOT / "src"):
        lines[module.room] += len(module.code)
    assert dict(sorted(lines.items())) == MOST
