"""Hold the lines of code of each package: a change may lower a number, only an issue raises one."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Lines with a token that is neither a comment nor part of a docstring.
MOST = {
    "__init__": 42,
    "__main__": 2,
    "arguments": 141,
    "audit": 1_326,
    "bundles": 315,
    "certificates": 2_282,
    "cli": 1_803,
    "errors": 82,
    "estimates": 250,
    "extras": 42,
    "feedback": 62,
    "guard": 6_260,
    "holdout": 288,
    "identity": 892,
    "integrations": 6_161,
    "lab": 1_506,
    "leaderboard": 1_102,
    "ledger": 3_142,
    "limits": 391,
    "mechanisms": 1_210,
    "metrics": 2_411,
    "owner": 52,
    "pictures": 263,
    "planning": 663,
    "process": 114,
    "remote": 923,
    "server": 2_255,
    "testing": 121,
    "thirdparty": 191,
    "vault": 600,
}


def test_no_package_grows_and_a_smaller_size_is_recorded() -> None:
    house = runpy.run_path(str(ROOT / "benchmarks" / "house.py"))
    lines: Counter[str] = Counter()
    for module in house["modules_in"](ROOT / "src"):
        lines[module.room] += len(module.code)
    assert dict(sorted(lines.items())) == MOST
