"""Run the scripts of this folder, one after the other, and say how long each took.

    python benchmarks/papers [--quick] [--only NAME]

--only takes the beginning of a script's name and may be repeated. Ends with status 1 if a
script failed; the others run all the same.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


def scripts() -> list[str]:
    """Return the names of all scripts; a file with an underscore in front is none."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def chosen(beginnings: Sequence[str]) -> list[str]:
    return [name for name in scripts() if name.startswith(tuple(beginnings) or "")]


def run(name: str, words: Sequence[str]) -> bool:
    """Run one script and return whether it ended well."""
    print(f"== {name}", flush=True)
    started = time.perf_counter()
    try:
        importlib.import_module(name).main(words)
        fine = True
    except Exception:
        traceback.print_exc()
        fine = False
    took = time.perf_counter() - started
    print(f"== {name}: {'done' if fine else 'FAILED'} after {took:.1f} s\n", flush=True)
    return fine


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/papers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    asked, words = parser.parse_known_args(argv)
    names = chosen(asked.only)
    if not names:
        parser.error(f"no such script; there are {', '.join(scripts())}")
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    failed = [name for name in names if not run(name, words)]
    print(f"{len(names)} scripts, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
