"""Write docs/background/works_with.md from what the last `make test-clients` found, or compare it.

python tests/clients/page.py [--check]
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".venv-clients" / "results.json"
PAGE = ROOT / "docs" / "background" / "works_with.md"
HEAD = """# Works with

What `make test-clients` found when it last ran, written by `make works-with`: each row is a test
in `tests/clients` on real data, which asserts who won and how often the holdout was queried. Where
the client is given feedback, it asserts that no raw score is in what it keeps. The recipes are in
[searches of other libraries](../guide/searchers.md),
[saved searches](persistence.md), [prompts](../guide/prompts.md), [evaluations](evaluations.md) and
[models in MLflow](mlflow_registry.md).

Other tests run [scikit-learn's own searches](../guide/sklearn.md), [studies of
Optuna](../guide/optuna.md) and [early stopping](../guide/early_stopping.md).

| with | version | this line | |
| --- | --- | --- | --- |
"""
TAIL = """
One environment takes all of them (`tests/clients/requirements.txt`). FLAML is installed without its
extra `automl`, which asks for an XGBoost before 3, and TPOT for one from 3 on; here FLAML runs with
LightGBM and scikit-learn.
"""


def rows(found: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table, those of one client together."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in found:
        grouped.setdefault((one["client"], one["line"]), []).append(one)
    lines = []
    # By name, and what works first: workers finish in any order.
    for (client, line), tests in sorted(
        grouped.items(),
        key=lambda it: (it[0][0].lower(), any("because" in t for t in it[1]), it[0]),
    ):
        versions = tests[0]["versions"]
        shown = ", ".join(_version(name, number, client) for name, number in versions.items())
        lines.append(f"| {client} | {shown} | {_code(line)} | {_outcome(tests)} |")
    return lines


def _version(name: str, number: str, client: str) -> str:
    return number if name.lower() == client.lower() else f"{name} {number}"


def _code(line: str) -> str:
    return f"`{line}`".replace("|", "\\|")


def _outcome(tests: Iterable[dict[str, Any]]) -> str:
    tests = list(tests)
    if any(one["outcome"] != "passed" for one in tests):
        return "**failed**"
    reasons = sorted(one["because"] for one in tests if "because" in one)
    if not reasons:
        return "works"
    # What another library says may look like markup.
    reason = re.sub(r"([|<>])", r"\\\1", reasons[0])
    return f"refused: {reason}"


def main() -> int:
    """Write the page, or say where it differs."""
    found = json.loads(RESULTS.read_text("utf-8"))
    page = HEAD + "\n".join(rows(found)) + "\n" + TAIL
    if "**failed**" in page:
        print("Some rows failed: see the run.", file=sys.stderr)
        return 1
    if "--check" not in sys.argv:
        PAGE.write_text(page, "utf-8")
        return 0
    there = PAGE.read_text("utf-8") if PAGE.exists() else ""
    if sorted(map(_stable, page.splitlines())) == sorted(map(_stable, there.splitlines())):
        return 0
    print(f"{PAGE.name} does not say what came out; write it: make works-with", file=sys.stderr)
    return 1


def _stable(line: str) -> str:
    """Return a line without its versions: the second cell of a row."""
    cells = line.split(" | ")
    return " | ".join(cells[:1] + cells[2:]) if line.startswith("| ") and len(cells) > 3 else line


if __name__ == "__main__":
    sys.exit(main())
