# Install: pip install .
"""What the guard buys: handwritten digits, split twenty times, one grid of trees, three ways.

Each split has 400 rows to train on, a holdout of 150, and 1,247 fresh rows that no search sees:
they give each winner's true score. The same grid is searched by the holdout's raw scores, as
people do; with every candidate through a ladder; and by `guard`, on the training rows alone with
the finalists confirmed on the holdout. Then a search that learns from its answers guesses labels
that are coin flips. With --picture it draws the splits, and it writes nothing else.

    python examples/demo.py [--splits 20] [--picture demo.svg]
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, fmean, stdev

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, ParameterGrid, train_test_split
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout

GRID = {
    "criterion": ["gini", "entropy"],
    "max_depth": [6, 8, 10, None],
    "max_features": [0.1, 0.3, 1.0],
    "min_samples_leaf": [1, 2],
    "random_state": [0],
}
WAYS = ("raw scores", "ladder for all", "guard")
N, GUESSES = 150, 400


@dataclass(frozen=True)
class Split:
    """What each way believes of its winner, and what is true of it."""

    believed: tuple[float, float, float]
    true: tuple[float, float, float]
    estimate: float
    naive: tuple[float, float]
    certified: tuple[float, float]


def holdout_of(X: np.ndarray, y: np.ndarray) -> LadderHoldout:
    """Register rows in a ledger that ends with this process."""
    return LadderHoldout(X, y, scoring="accuracy", ledger="memory", vault=False)


def one_split(seed: int) -> Split:
    """Search the grid three ways."""
    warnings.simplefilter("ignore")
    X, X_rest, y, y_rest = train_test_split(
        *load_digits(return_X_y=True), train_size=400, random_state=seed
    )
    X_held, X_fresh, y_held, y_fresh = train_test_split(
        X_rest, y_rest, train_size=N, random_state=seed
    )
    tree = DecisionTreeClassifier()

    models = [DecisionTreeClassifier(**one).fit(X, y) for one in ParameterGrid(GRID)]
    raw = max(models, key=lambda model: model.score(X_held, y_held))

    every = holdout_of(X_held, y_held)
    ladder = GridSearchCV(tree, GRID, scoring=every, cv=every.split(), refit=every.select)
    ladder.fit(X, y)

    holdout = holdout_of(X_held, y_held)
    search = holdout.guard(GridSearchCV(tree, GRID, cv=5)).fit(X, y)

    score, certificate = raw.score(X_held, y_held), search.certificate_
    half = NormalDist().inv_cdf(0.975) * math.sqrt(score * (1 - score) / N)
    return Split(
        (score, every.status().score, search.best_score_),
        tuple(one.score(X_fresh, y_fresh) for one in (raw, ladder.best_estimator_, search)),
        holdout.estimate().score,
        (score - half, score + half),
        (certificate.low, certificate.high),
    )


def climb(improves: Callable[[np.ndarray], bool], rng: np.random.Generator) -> np.ndarray:
    """Change some labels at random, and keep what the answers say is better."""
    best = rng.integers(0, 2, N)
    improves(best)
    for _ in range(GUESSES - 1):
        guess = np.where(rng.random(N) < 0.1, 1 - best, best)
        if improves(guess):
            best = guess
    return best


def one_climb(seed: int) -> tuple[float, float, bool]:
    """Return what is believed of coin flips by raw scores, by a ladder, and if that is certified.

    The truth is .5: certified is an interval that holds it.
    """
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(N, 1)), rng.integers(0, 2, N)
    known = [0.0]

    def raw(guess: np.ndarray) -> bool:
        known.append(max(known[-1], float((guess == y).mean())))
        return known[-1] > known[-2]

    climb(raw, np.random.default_rng(seed))
    holdout = holdout_of(X, y)
    climb(lambda guess: holdout.submit(guess).improved, np.random.default_rng(seed))
    certificate = holdout.certificate()
    return known[-1], holdout.status().score, certificate.low <= 0.5 <= certificate.high


def runs(work: Callable[[int], object], count: int, title: str) -> list:
    """Run one call for each seed on two cores, with a bar."""
    parallel = Parallel(n_jobs=2, return_as="generator")
    found = parallel(delayed(work)(seed) for seed in range(count))
    return list(track(found, title, total=count, transient=True, console=Console(stderr=True)))


def mean(values: Iterator[float], sign: str = "") -> str:
    """Write a mean with its standard error."""
    values = list(values)
    return f"{fmean(values):{sign}.3f} ({stdev(values) / math.sqrt(len(values)):.3f})"


def table(found: list[Split]) -> Table:
    """Compare the three ways."""
    shown = Table(title=f"{len(list(ParameterGrid(GRID)))} trees, {len(found)} splits of digits")
    for column in ("", *WAYS):
        shown.add_column(column, justify="right" if column else "left")
    each = range(len(WAYS))
    shown.add_row("believed", *(mean(one.believed[way] for one in found) for way in each))
    shown.add_row("true", *(mean(one.true[way] for one in found) for way in each))
    gaps = (mean((one.believed[way] - one.true[way] for one in found), "+") for way in each)
    shown.add_row("[bold]believed too much[/]", *gaps)
    errors = mean((one.estimate - one.true[2] for one in found), "+")
    shown.add_row("error of estimate()", "", "", errors)
    naive = sum(one.naive[0] <= one.true[0] <= one.naive[1] for one in found)
    right = sum(one.certified[0] <= one.true[2] <= one.certified[1] for one in found)
    shown.add_row("95 % intervals that hold", f"{naive} naive", "", f"{right} certified")
    widths = (
        mean(one.naive[1] - one.naive[0] for one in found),
        mean(one.certified[1] - one.certified[0] for one in found),
    )
    shown.add_row("their widths", widths[0], "", widths[1])
    return shown


def picture(found: list[Split]) -> str:
    """Draw believed against true for each way, as SVG."""
    values = [value for one in found for value in (*one.believed, *one.true)]
    low, high = math.floor(min(values) * 20) / 20, math.ceil(max(values) * 20) / 20
    side, pad = 240, 46

    def at(value: float) -> float:
        return side * (value - low) / (high - low)

    parts = []
    for way, title in enumerate(WAYS):
        dots = "".join(
            f'<circle cx="{at(one.true[way]):.1f}" cy="{side - at(one.believed[way]):.1f}" r="4"/>'
            for one in found
        )
        gap = fmean(one.believed[way] - one.true[way] for one in found)
        parts.append(
            f'<g transform="translate({pad + way * (side + pad)},{pad})">'
            f'<rect width="{side}" height="{side}" fill="none" stroke="#999"/>'
            f'<line x1="0" y1="{side}" x2="{side}" y2="0" stroke="#999" stroke-dasharray="4"/>'
            f'<g fill="#2a78b5" fill-opacity=".7">{dots}</g>'
            f'<text x="{side / 2}" y="-12" text-anchor="middle" font-weight="bold">{title}: '
            f"{gap:+.3f}</text>"
            f'<text x="{side / 2}" y="{side + 30}" text-anchor="middle">true accuracy</text>'
            f'<text x="0" y="{side + 16}" text-anchor="middle">{low:.2f}</text>'
            f'<text x="{side}" y="{side + 16}" text-anchor="middle">{high:.2f}</text></g>'
        )
    width, height = 3 * (side + pad) + pad, side + 2 * pad
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13" fill="#444">'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
        f'<text transform="translate(16,{pad + side / 2}) rotate(-90)" text-anchor="middle">'
        f"believed accuracy</text>{''.join(parts)}</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What the guard buys, on real data.")
    parser.add_argument("--splits", type=int, default=20, help="how many [default: 20]")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the splits, as SVG")
    asked = parser.parse_args()
    started, console = time.perf_counter(), Console(highlight=False)
    found = runs(one_split, asked.splits, "Searching the grid three ways")
    console.print(table(found))
    climbs = runs(one_climb, 10, "Guessing labels")
    raw, ladder, held = (fmean(one[way] for one in climbs) for way in (0, 1, 2))
    console.print(
        f"A search that learns from its answers, {GUESSES} guesses at coin flips: by raw scores "
        f"it believes {raw:.3f}, by a ladder {ladder:.3f}. The truth is .500, and the ladder's "
        f"95 % certificate holds it in {held:.0%} of {len(climbs)} runs."
    )
    if asked.picture is not None:
        asked.picture.write_text(picture(found), encoding="utf-8")
        console.print(
            f"Believed against true for each split: {asked.picture.resolve()}", soft_wrap=True
        )
    console.print(f"Took {time.perf_counter() - started:.0f} s.")


if __name__ == "__main__":
    main()
