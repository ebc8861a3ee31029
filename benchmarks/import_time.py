"""How long `import ladderholdout` takes, beside what people import of scikit-learn anyway.

    python benchmarks/import_time.py [--runs 7]

Each import runs in a fresh interpreter; the smallest of several times is the one that other
work on the machine disturbed least. The start of the interpreter itself is taken off both. All
modules are compiled before, as pip does it when it installs them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

from ladderholdout.extras import EXTRAS

OURS = "import ladderholdout"
THEIRS = "import sklearn.model_selection, sklearn.metrics"
HEAVY = ("mlflow", "optuna", "sklearn", *EXTRAS)
TARGET = 0.6


def seconds(code: str) -> float:
    """Return how long a fresh interpreter takes to run some code."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started


def imported() -> list[str]:
    """Return which of the heavy packages `import ladderholdout` brings along."""
    code = f"{OURS}; import sys; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return run.stdout.split()


def main() -> None:
    parser = argparse.ArgumentParser(description="How long the package takes to import.")
    parser.add_argument("--runs", type=int, default=7)
    runs = range(parser.parse_args().runs)
    codes = ("pass", OURS, THEIRS)
    with tempfile.TemporaryDirectory() as compiled:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        for code in codes:
            seconds(code)
        # One after the other in turn, so that a busy moment meets all three.
        times = [[seconds(code) for code in codes] for _ in runs]
    bare, ours, theirs = (min(column) for column in zip(*times, strict=True))
    ratio = (ours - bare) / (theirs - bare)
    print(f"ladderholdout {ours - bare:.3f} s, scikit-learn {theirs - bare:.3f} s")
    print(f"ratio {ratio:.2f}, target at most {TARGET}")
    print(f"imported along with it: {', '.join(imported()) or 'none'} of {', '.join(HEAVY)}")
    sys.exit(ratio > TARGET)


if __name__ == "__main__":
    main()
