# Install: pip install '.[report]'
"""A loop that keeps or reverts changes: by what scores better, and by a gate.

A scripted proposer changes one weight of a linear model at a time, 200 times, and goes on from
what was kept. It begins with a model that lacks one of eight features, where nearly all changes
are worth nothing, and with one that lacks five, where many are true gains. The truth is measured
on 100,000 other rows, which no loop of yours will have.

    python examples/keep_or_revert.py [--picture keep_or_revert.svg]

To make it yours, replace `proposed` by whatever writes the next candidate, and `predictions` by
your model. A loop in a shell asks `ladder-holdout gate NAME predictions.csv` and goes by its exit
status: 0 is keep, 1 and 5 are revert, all others end the loop (docs/guide/keep_or_revert.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ladderholdout import LadderHoldout
from ladderholdout.mechanisms import GateLadder

ROWS, OTHERS, FEATURES, CANDIDATES = 2000, 100_000, 40, 200
USEFUL, WEIGHT = 8, 0.6


def drawn(rng: np.random.Generator, n: int, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows and noisy labels."""
    X = rng.normal(size=(n, FEATURES))
    return X, (X @ truth + rng.normal(size=n) > 0).astype(int)


def predictions(weights: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The model: which side of a plane a row is on."""
    return (X @ weights > 0).astype(int)


def proposed(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The proposer: the model that was kept, with another weight for one feature."""
    changed = weights.copy()
    changed[rng.integers(FEATURES)] = rng.normal(scale=0.5)
    return changed


@dataclass
class Course:
    """What a loop kept, and how good that truly is."""

    kept: int = 0
    false: int = 0
    true: list[float] = field(default_factory=list)


def loop(
    known: int, keeps: Callable[[np.ndarray], bool], truth_of: Callable[[np.ndarray], float]
) -> Course:
    """Propose, and keep or revert; the candidates are drawn alike for every way to decide."""
    rng, course = np.random.default_rng(1), Course()
    weights = np.where(np.arange(FEATURES) < known, WEIGHT, 0.0)
    keeps(weights)  # the baseline
    course.true.append(truth_of(weights))
    for _ in range(CANDIDATES):
        candidate = proposed(weights, rng)
        if keeps(candidate):
            course.kept += 1
            course.false += truth_of(candidate) <= course.true[-1]
            weights = candidate
        course.true.append(truth_of(weights))
    return course


def greedy(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], bool]:
    """Keep what scores better on the holdout than all before."""
    best = -1.0

    def keeps(weights: np.ndarray) -> bool:
        nonlocal best
        score = float(np.mean(predictions(weights, X) == y))
        better = score > best
        best = max(best, score)
        return better

    return keeps


def gated(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], bool]:
    """Keep what a gate accepts, with one error of 5 % for all decisions together."""
    rule = GateLadder(alpha=0.05, horizon=CANDIDATES)
    holdout = LadderHoldout(X, y, scoring="accuracy", mechanism=rule, ledger="memory")

    def keeps(weights: np.ndarray) -> bool:
        return holdout.gate(predictions(weights, X), baseline=True).accepted

    return keeps


def draw(panels: dict[str, dict[str, Course]], path: Path) -> None:
    """Draw how good the kept model truly is, after each candidate."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(9, 3.6), layout="constrained")
    for ax, (title, courses) in zip(axes, panels.items(), strict=True):
        for name, course in courses.items():
            ax.step(range(len(course.true)), course.true, label=name, where="post")
        ax.set(title=title, xlabel="candidates", ylabel="true accuracy of what was kept")
    axes[0].legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, help="draw the true accuracies into this file")
    stated = parser.parse_args()
    rng = np.random.default_rng(0)
    truth = np.where(np.arange(FEATURES) < USEFUL, WEIGHT, 0.0)
    (X, y), (others, labels) = drawn(rng, ROWS, truth), drawn(rng, OTHERS, truth)

    def truth_of(weights: np.ndarray) -> float:
        return float(np.mean(predictions(weights, others) == labels))

    panels: dict[str, dict[str, Course]] = {}
    print(f"{CANDIDATES} candidates on {ROWS} rows")
    print("                           kept  falsely  true accuracy, from  to")
    for known in (7, 3):
        ways = {"greedy": greedy(X, y), "gate": gated(X, y)}
        title = f"{USEFUL - known} of {USEFUL} features missing"
        panels[title] = {name: loop(known, keeps, truth_of) for name, keeps in ways.items()}
        print(f"  {title}")
        for name, course in panels[title].items():
            first, last = course.true[0], course.true[-1]
            print(f"    {name:<20} {course.kept:6} {course.false:8} {first:20.3f} {last:.3f}")
    if stated.picture is not None:
        draw(panels, stated.picture)


if __name__ == "__main__":
    main()
