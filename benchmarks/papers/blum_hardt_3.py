"""Blum & Hardt 2015, Figure 3: what a fresh split of the private rows does to the scores.

    python benchmarks/papers/blum_hardt_3.py [--quick]

On a simulated competition of the same size, as the real submissions cannot be had; see
_competition.py. The private rows are split into halves, 20 times, and the 50 best submissions
scored on both. Claims: the chance of the split moves a score by more than public and private
scores differ in the mean; the gap of the original split lies within one standard deviation;
the best submissions move together, as their models err on the same rows. The picture shows
the first competition, the table all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import _common as common
import numpy as np
from _competition import Competition, competition

COMPETITIONS, QUICK, SPLITS = 20, 2, 20


class Found(NamedTuple):
    """What one competition shows, for each of the best submissions."""

    ladder: np.ndarray
    original: np.ndarray  # all private rows
    tests: np.ndarray  # (splits, submissions)
    kaggles: np.ndarray


def once(seed: np.random.SeedSequence) -> Found:
    held = competition(seed)
    top = held.top()
    tests, kaggles = fresh_splits(held, top, np.random.default_rng(seed.spawn(1)[0]))
    original = held.private[top].mean(axis=1, dtype=float)
    return Found(held.ladder()[top], original, tests, kaggles)


def fresh_splits(
    held: Competition, top: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Score on two random halves of the private rows, again and again."""
    losses = held.private[top].astype(float)
    half = losses.shape[1] // 2
    orders = [rng.permutation(losses.shape[1]) for _ in range(SPLITS)]
    tests = np.array([losses[:, order[:half]].mean(axis=1) for order in orders])
    kaggles = np.array([losses[:, order[half:]].mean(axis=1) for order in orders])
    return tests, kaggles


def together(kaggles: np.ndarray) -> float:
    """Return the mean correlation of two submissions' scores over the splits."""
    correlations = np.corrcoef(kaggles.T)
    return float(correlations[np.triu_indices_from(correlations, 1)].mean())


def draw(found: Found, asked: Any) -> None:
    figure, (ax,) = common.panels()
    (x, _), (y, error) = common.spread(found.tests), common.spread(found.kaggles)
    bars = {"fmt": "o", "ms": 3, "lw": 0.6, "color": common.COLOURS[1]}
    ax.errorbar(x, y, yerr=error, label="Kaggle, fresh splits", **bars)
    ladder = {"ms": 4, "color": common.COLOURS[0]}
    ax.plot(found.original, found.ladder, "x", label="Ladder, original split", **ladder)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    ax.plot(ends, ends, color=common.COLOURS[4], lw=0.8)
    ax.set(xlabel="loss on the test half", ylabel="loss on the public rows")
    figure.legend(frameon=False, fontsize="small", loc="outside upper center", ncols=3)
    common.write(figure, asked, "blum_hardt_3")


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    competitions = QUICK if asked.quick else COMPETITIONS
    found = common.repeated(once, competitions, asked)
    print(f"{competitions} simulated competitions, {SPLITS} fresh splits of each; losses")
    deviation = [common.spread(one.kaggles)[1].mean() for one in found]
    mean_gap = [np.abs(one.kaggles.mean(axis=0) - one.tests.mean(axis=0)).mean() for one in found]
    original = [np.abs(one.ladder - one.original).mean() for one in found]
    measures = {
        "standard deviation over the splits": deviation,
        "|Kaggle - test|, of the means": mean_gap,
        "|Ladder - private|, original split": original,
        "correlation of two submissions": [together(one.kaggles) for one in found],
    }
    rows = [(name, np.mean(each), np.min(each), np.max(each)) for name, each in measures.items()]
    common.table(("", "mean", "least", "most"), rows)
    within = sum(gap <= size for gap, size in zip(original, deviation, strict=True))
    print(f"the original gap is within one standard deviation in {within} of {competitions}")
    draw(found[0], asked)


if __name__ == "__main__":
    main()
