"""What each rule releases, certifies and loses on published histories of models.

    python benchmarks/external [--quick] [--only NAME] [--draws 200]

data/ says which items each of a sequence of models got right, data/sources.json where that is
from. A holdout is n items, drawn independently of each other; the population is all items of the
history, so that the true score of each model is known. The models come weakest first, as a field
progresses; in a random order; and as they came, where that is known. Every rule meets the same
holdouts and orders. Columns:

- releases: how many models improved.
- true: the true score of the winner; lost: how much that of the best raw score is above it.
- released: the last released score less the true one.
- corrected: the corrected score of a batch less the true one, in the random order: what the
  correction took off on the first draws, from the mean of all. It goes by the decisions alone, so
  rules that only show less have none of their own.
- certified, width, covered: the lower end of the winner's certificate at 95 %, how wide it is, and
  how often it holds the true score: for single queries, and for the same list as one batch whose
  length was announced.

Rules named "one bit" show whether a model improved, and the score when the search is over; those
"shown to 1/sqrt n" show the score rounded so far, and exactly when the search is over.
All numbers depend on the seeds alone.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from histories import DATA, History, load, present, sources  # noqa: E402
from rules import CONFIDENCE, RULES, Shown, climb, estimate, limits  # noqa: E402

from ladderholdout.limits.intervals import exact_lower, exact_upper  # noqa: E402

SIZES = (200, 1000)
DRAWS, CORRECTED, BOOTSTRAPS = 200, 20, 60
QUICK = 2
ORDERS = ("weakest first", "random", "as they came")
DEFAULT = next(iter(RULES))


class Found(NamedTuple):
    """What one rule came to on one holdout; nan where nothing was computed.

    ``corrected`` is less the released score on one holdout, and less the true one in the mean.
    """

    releases: float
    true: float
    lost: float
    released: float
    corrected: float
    certified: float
    width: float
    covered: float
    batch_certified: float
    batch_width: float
    batch_covered: float


class Cell(NamedTuple):
    """A history, the rows of its holdouts, and the order of its models."""

    history: str
    n: int
    order: str


class Means(NamedTuple):
    """The means over the holdouts of a cell, and the width of one fresh query."""

    rules: dict[str, Found]
    fresh: float


Results = dict[Cell, Means]


def judged(label: str, shown: Shown, best: float, draws: int) -> Found:
    """Let a rule judge a list; ``draws`` for the corrected score, or 0."""
    found = climb(RULES[label], shown)
    true = float(shown.truths[found.winner])
    ends = [limits(found, shown, announced) for announced in (False, True)]
    kinds = [(low, high - low, float(low <= true <= high)) for low, high in ends]
    released = 1.0 - found.released - true
    corrected = estimate(found, shown, draws) - (1.0 - found.released) if draws else math.nan
    return Found(len(found.improved), true, best - true, released, corrected, *kinds[0], *kinds[1])


def draw(history: History, n: int, order: str, seed: int) -> Shown:
    """Draw a holdout, and put the models into an order."""
    rng = np.random.default_rng([seed, n])
    items = rng.integers(0, history.correct.shape[1], n)
    truths = history.correct.mean(axis=1)
    orders = {
        "weakest first": np.argsort(truths, kind="stable"),
        "random": rng.permutation(len(truths)),
        "as they came": np.arange(len(truths)),
    }
    return Shown.of(~history.correct[:, items], truths).ordered(orders[order])


def single_query(shown: Shown) -> tuple[float, float]:
    """Return the score of the best raw model and the width of one fresh query of it."""
    n, best = shown.losses.shape[1], int(np.argmin(shown.losses.sum(axis=1)))
    errors, level = int(shown.losses[best].sum()), math.log((1.0 - CONFIDENCE) / 2.0)
    return float(shown.truths[best]), exact_upper(errors, n, level) - exact_lower(errors, n, level)


def run(cell: Cell, searches: Sequence[History], draws: int, few: int) -> Means:
    found: dict[str, list[Found]] = {label: [] for label in RULES}
    fresh = []
    for seed in range(draws):
        shown = draw(searches[seed % len(searches)], cell.n, cell.order, seed)
        best, width = single_query(shown)
        fresh.append(width)
        bootstraps = BOOTSTRAPS if cell.order == "random" and seed < few else 0
        for label, rule in RULES.items():
            own = bootstraps if rule.shows == "values" else 0
            found[label].append(judged(label, shown, best, own))
    return Means({label: averaged(one) for label, one in found.items()}, float(np.mean(fresh)))


def averaged(found: Sequence[Found]) -> Found:
    values: NDArray[np.float64] = np.array(found)
    counts = (~np.isnan(values)).sum(axis=0)
    sums = np.nansum(values, axis=0)
    means = Found(*(s / c if c else math.nan for s, c in zip(sums, counts, strict=True)))
    return means._replace(corrected=means.released + means.corrected)


# --- the tables -----------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"| --- |{' ---: |' * (len(heads) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def score(value: float, places: int = 4, sign: str = "") -> str:
    return "" if math.isnan(value) else f"{value:{sign}.{places}f}".replace("0.", ".", 1)


def one_cell(cell: Cell, means: Means) -> Iterator[str]:
    """Print all columns of one cell."""
    yield f"### {cell.history}, n = {cell.n:,}, {cell.order}"
    yield ""
    yield f"One fresh query of the best model would have an interval {score(means.fresh)} wide."
    yield ""
    heads: tuple[str, ...] = ("rule", "releases", "true", "lost", "released", "corrected")
    kinds = ("certified", "width", "covered")
    rows = []
    for label, one in means.rules.items():
        shown = [label, f"{one.releases:.1f}", score(one.true), score(one.lost)]
        shown += [score(one.released, sign="+"), score(one.corrected, sign="+")]
        for low, width, covered in (one[5:8], one[8:11]):
            shown += [score(low), score(width), f"{covered:.3f}"]
        rows.append(shown)
    if cell.order != "random":
        heads, rows = heads[:-1], [row[:5] + row[6:] for row in rows]
    yield from table((*heads, *kinds, *(f"{kind}, batch" for kind in kinds)), rows)


def summary(results: Results, n: int) -> Iterator[str]:
    """Compare the rules over all histories: single queries as they came, and batches."""
    names = list(dict.fromkeys(cell.history for cell in results))
    kinds = (("single queries", 5, 6), ("one announced batch", 8, 9))
    for title, low, width in kinds:
        cells = [_compared(results, name, n, low == 8) for name in names]
        yield f"### All histories, n = {n:,}, {title}"
        yield ""
        yield "Width / truth lost; the mean gains in certified and in true score over the default."
        yield ""
        rows = [["one fresh query", *(score(one.fresh, 3) for one in cells), "", ""]]
        for label in RULES:
            found = [one.rules[label] for one in cells]
            row = [label, *(f"{score(one[width], 3)} / {score(one.lost)}" for one in found)]
            for at in (low, 1):
                gains = [
                    one[at] - base.rules[DEFAULT][at]
                    for one, base in zip(found, cells, strict=True)
                ]
                row.append(score(float(np.mean(gains)), sign="+"))
            rows.append(row)
        yield from table(("rule", *names, "certified", "true"), rows)


def _compared(results: Results, name: str, n: int, batch: bool) -> Means:
    """A batch is a list in no order; single queries come as they came, or weakest first."""
    orders = ("random",) if batch else ("as they came", "weakest first")
    return next(results[Cell(name, n, one)] for one in orders if Cell(name, n, one) in results)


def misses(results: Results, draws: int) -> str:
    """Count the certificates that do not hold the true score; one in twenty would be fair."""
    kinds = [
        draws * sum(1 - one[at] for means in results.values() for one in means.rules.values())
        for at in (7, 10)
    ]
    number = draws * sum(len(means.rules) for means in results.values())
    return (
        f"Of {number:,} certificates {round(kinds[0])} do not hold the true score for single "
        f"queries, and {round(kinds[1])} for announced batches."
    )


def about() -> Iterator[str]:
    rows = []
    for name, one in sources().items():
        first = one["sources"][0]
        models = f"{one['models']} in {one['searches']}" if one["searches"] > 1 else one["models"]
        counts = (str(models), f"{one['items']:,}")
        rows.append(
            (name, one["title"], *counts, one["order"], first["repository"], first["licence"])
        )
    yield from table(("name", "history", "models", "items", "order", "source", "licence"), rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/external",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few draws, n = 200 alone")
    parser.add_argument("--only", choices=sources(), action="append", metavar="NAME")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the arrays")
    asked = parser.parse_args(argv)
    draws, few = (QUICK, 1) if asked.quick else (asked.draws, CORRECTED)
    print("\n".join(about()))
    results: Results = {}
    for name in asked.only or present(asked.data):
        searches = load(name, asked.data)
        for n in SIZES[:1] if asked.quick else SIZES:
            for order in ORDERS if searches[0].dated else ORDERS[:2]:
                cell = Cell(name, n, order)
                results[cell] = run(cell, searches, draws, few)
                print("\n".join(one_cell(cell, results[cell])), flush=True)
    for n in SIZES[:1] if asked.quick else SIZES:
        print("\n".join(summary(results, n)))
    print(misses(results, draws))


if __name__ == "__main__":
    main()
