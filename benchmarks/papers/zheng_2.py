"""Zheng, Figure 2: enumeration attacks on the Ladder, for two sizes and precisions.

    python benchmarks/papers/zheng_2.py [--quick]

n = 1,000 with a precision of 0.01, and n = 20,000 with 0.001; ten attacks each. The text does
not say how many labels an attack turns over at a time nor how long it goes on: 2, 20 and 100
labels and 20,000 submissions here, and both the Ladder and the simplified one. What an attack
cannot see is lost to it: a change shows only if the rounded score moves. Claim: enumeration
climbs the Ladder, but not very efficiently, although the rows are fewer than the theorem asks
for (its step at this n and k is printed beside the precision).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import _common as common
import numpy as np
from _bounds import zheng

from ladderholdout.lab import Enumeration, simulate
from ladderholdout.mechanisms import Ladder, SimplifiedLadder

CASES = ((1_000, 0.01), (20_000, 0.001))
CHANGES = (2, 20, 100)
SUBMISSIONS, FEW = 20_000, 1_000
ATTACKS = 10
RULES = (SimplifiedLadder, Ladder)

Task = tuple[tuple[int, float], type[SimplifiedLadder] | type[Ladder], int]


def once(task: Task, seed: np.random.SeedSequence, submissions: int) -> np.ndarray:
    """Return the scores as they stood, of shape (submissions, attacks)."""
    (n, precision), rule, changes = task
    attack, entropy = Enumeration(submissions, changes), int(seed.generate_state(1)[0])
    course = simulate(attack, rule(precision), n, ATTACKS, seed=entropy, trace=True)
    assert course.trace is not None
    return np.asarray(1.0 - course.trace, dtype=np.float32)


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    submissions = FEW if asked.quick else SUBMISSIONS
    tasks: list[Task] = [
        (case, rule, changes) for case in CASES for rule in RULES for changes in CHANGES
    ]
    traces = common.mapped(partial(once, submissions=submissions), tasks, asked)
    print(f"{ATTACKS} attacks each: score after so many submissions, least and most in the end")
    marks = [submissions // 20, submissions // 4, submissions]
    rows = []
    for ((n, precision), rule, changes), trace in zip(tasks, traces, strict=True):
        after = [float(trace[mark - 1].mean()) for mark in marks]
        ends = float(trace[-1].min()), float(trace[-1].max())
        rows.append((rule.__name__, n, precision, changes, *after, *ends))
    common.table(("rule", "n", "precision", "labels", *map(str, marks), "least", "most"), rows)
    for n, precision in CASES:
        print(f"n = {n}: the theorem's step is {zheng(n, submissions):.3f}, not {precision}")
    draw(dict(zip(tasks, traces, strict=True)), asked)


def draw(found: dict[Task, np.ndarray], asked: Any) -> None:
    figure, axes = common.panels(2)
    for case, ax in zip(CASES, axes, strict=True):
        for colour, changes in zip(common.COLOURS, CHANGES, strict=False):
            trace = found[case, SimplifiedLadder, changes]
            after = np.arange(1, len(trace) + 1)
            label = [f"{changes} labels at a time", *[None] * (ATTACKS - 1)]
            ax.plot(after, trace, color=colour, lw=0.6, label=label)
        ax.set(xlabel="submissions", ylabel="score", title=f"n = {case[0]:,}, precision {case[1]}")
        ax.locator_params(axis="x", nbins=4)
        ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "zheng_2")


if __name__ == "__main__":
    main()
