"""Neto et al. 2016, Figure S11: how many submissions are safe, by simulation.

The step-forward attack with 2% of the features in as many rounds: 50 submissions to 1,785; b is
100 where there is a bootstrap. 1,000 permutations of each setting, each with features of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from _common import options, repeated, table, write
from _neto_attacks import step_forward
from _neto_data import DATA, Floats, fixed_split, permuted, some_features
from _neto_drawing import FINAL, PUBLIC, boxes, grid, label, lines, median, repetitions
from _neto_ladders import ALPHAS, BOOTS, LADDERS, Rule
from matplotlib.axes import Axes

SETTINGS = [(rounds, 50 * rounds) for rounds in range(1, 7)]
ACCEPTED = -0.05
RULES = LADDERS | {f"LadderBoot {alpha}": BOOTS[f"LadderBoot {alpha}, b = 100"] for alpha in ALPHAS}


def submissions(rounds: int, features: int) -> int:
    return sum(features - past for past in range(rounds))


NUMBERS = [submissions(*setting) for setting in SETTINGS]


def once(seed: np.random.SeedSequence, data: str) -> list[list[float]]:
    """Return public - final for each setting and rule."""
    seeds = seed.spawn(len(SETTINGS))
    return [_setting(child, data, *setting) for child, setting in zip(seeds, SETTINGS, strict=True)]


def _setting(seed: np.random.SeedSequence, data: str, rounds: int, features: int) -> list[float]:
    ours, *theirs = [np.random.default_rng(child) for child in seed.spawn(1 + len(RULES))]
    parts = permuted(some_features(fixed_split(data, everything=True), features, ours), ours)

    def gap(rule: Rule, rng: np.random.Generator) -> float:
        public, final = step_forward(parts, rule, rounds, rng).errors[-1]
        return float(public - final)

    return [gap(rule, rng) for rule, rng in zip(RULES.values(), theirs, strict=True)]


def safe(medians: Floats) -> str:
    """Say up to how many submissions the median gap is accepted, as the paper reads it off."""
    bad = np.flatnonzero(medians < ACCEPTED)
    if not len(bad):
        return f"{NUMBERS[-1]} or more"
    return str(NUMBERS[bad[0] - 1]) if bad[0] else "none"


def main(argv: Sequence[str] | None = None) -> None:
    asked = options(__doc__, argv)
    count = repetitions(asked, 1000, 10)
    print(f"{count} permutations: median of public - final MSE by the number of submissions,")
    print(f"and how many are safe if {ACCEPTED} is accepted")
    picture, axes = grid(len(DATA), len(ALPHAS))
    rows = []
    for data, line in zip(DATA, axes, strict=True):
        gaps = np.array(repeated(partial(once, data=data), count, asked))
        for place, name in enumerate(RULES):
            medians = [median(column) for column in gaps[:, :, place].T]
            rows.append([data, name, *medians, safe(np.array(medians))])
        for place, (alpha, ax) in enumerate(zip(ALPHAS, line, strict=True)):
            _panel(ax, gaps[:, :, place], gaps[:, :, place + len(ALPHAS)])
            label(ax, f"{data}, {alpha}", "submissions", "public - final")
    table(["data", "mechanism", *map(str, NUMBERS), "safe"], rows)
    write(picture, asked, "neto_figureS11")


def _panel(ax: Axes, ladder: Floats, boot: Floats) -> None:
    names = [str(number) for number in NUMBERS]
    boxes(ax, ladder, names, PUBLIC, -0.2)
    boxes(ax, boot, names, FINAL, 0.2)
    lines(ax, 0.0, ACCEPTED)


if __name__ == "__main__":
    main()
