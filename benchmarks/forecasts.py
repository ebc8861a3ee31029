"""How well `holdout.health()` forecasts the width of a certificate, on published histories.

    python benchmarks/forecasts.py                # the histories in benchmarks/external/data
    python benchmarks/forecasts.py --data FOLDER  # those whose arrays are in a folder

For each history 20 holdouts of at most 1,000 items are drawn and queried by its models in turn, in
their order or, where that is not known, the weakest first. From the third improvement on the width
is forecast for as many more improvements as there were, as far as the history goes, and compared
with what the certificate then was. Columns: improvements of a holdout on average, forecasts,
their mean error and mean absolute error as shares of the true width, and how many are within a
fifth of it. Of the 22 searches for prompts each has a holdout of its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from ladderholdout import LadderHoldout
from ladderholdout.planning.course import Course

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "external"))

from histories import DATA, History, load, present  # noqa: E402

HOLDOUTS, ROWS, LEAST = 20, 1000, 3


def errors_on(history: History, rng: np.random.Generator) -> tuple[int, list[float]]:
    """Return how many models improved one holdout, and the errors of the forecasts."""
    right = history.correct
    if not history.dated:
        right = right[np.argsort(right.mean(axis=1))]
    n = min(ROWS, right.shape[1])
    sample = right[:, rng.choice(right.shape[1], n, replace=False)]
    y = rng.integers(0, 2, n)
    holdout = LadderHoldout(rng.normal(size=(n, 1)), y, scoring="accuracy", ledger="memory")
    risks, courses = [], []
    for queries, model in enumerate(sample, 1):
        release = holdout.submit(np.where(model, y, 1 - y))
        if not release.improved:
            continue
        risks.append(1 - release.score)
        found = holdout.certificate()
        width, price = found.high - found.low, found.log_count
        courses.append(Course(width, price, 0.95, n, queries, len(risks), risks[-1], risks[0]))
    errors = [
        courses[seen - 1].width_after(more) / courses[seen + more - 1].width - 1
        for seen in range(LEAST, len(courses))
        for more in range(1, min(seen, len(courses) - seen) + 1)
    ]
    return len(courses), errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    folder = parser.parse_args().data
    print("history    improved forecasts   error  absolute  within .2")
    for name in present(folder):
        histories, rng = load(name, folder), np.random.default_rng(0)
        found = [
            errors_on(histories[number % len(histories)], rng)
            for number in range(max(HOLDOUTS, len(histories)))
        ]
        improved = np.mean([count for count, _ in found])
        errors = np.array([error for _, errors in found for error in errors])
        line = f"{name:<10}{improved:>9.1f}{len(errors):>10}"
        if len(errors):
            within = np.mean(np.abs(errors) <= 0.2)
            line += f"{errors.mean():>+8.3f}{np.abs(errors).mean():>10.3f}{within:>11.2f}"
        print(line)


if __name__ == "__main__":
    main()
