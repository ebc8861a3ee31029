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
    "audit": 1_618,
    "bundles": 315,
    "certificates": 2_375,
    "cli": 2_479,
    "errors": 82,
    "estimates": 255,
    "extras": 44,
    "feedback": 62,
    "guard": 8_276,
    "holdout": 308,
    "identity": 993,
    "integrations": 7_073,
    "lab": 1_518,
    "leaderboard": 1_191,
    "ledger": 3_666,
    "limits": 391,
    "mechanisms": 1_277,
    "metrics": 2_526,
    "owner": 46,
    "pictures": 288,
    "planning": 1_072,
    "process": 114,
    "remote": 1_099,
    "server": 2_498,
    "testing": 121,
    "thirdparty": 413,
    "vault": 611,
}


def test_no_package_grows_and_a_smaller_size_is_recorded() -> None:
    house = runpy.run_path(str(ROOT / "benchmarks" / "house.py"))
    lines: Counter[str] = Counter()
    for module in house["modules_in"](ROOT / "src"):
        lines[module.room] += len(module.code)
    assert dict(sorted(lines.items())) == MOST
