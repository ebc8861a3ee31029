"""Neto et al. 2016, Figure S13: the better a prediction, the less its releases scatter.

Eight predictions with the paper's correlations, 0.18 to 0.92: the labels with noise, scaled to
variance 1 (only then is an MSE of 1.64 one with a correlation of 0.18). Each is released 10,000
times for b of 10, 100 and 1,000.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from _common import COLOURS, options, table, write
from _neto_data import Floats, scaled, split
from _neto_drawing import FINAL, boxes, grid, label, repetitions
from _neto_ladders import BOOTSTRAPS
from _neto_spread import all_releases

CORRELATIONS = np.linspace(0.18, 0.92, 8)


def prediction(y: Floats, correlation: float, noise: Floats) -> Floats:
    """Mix the labels with noise so that the correlation is exact."""
    other = scaled(noise - y * (noise @ y) / (y @ y))
    return np.asarray(correlation * y + np.sqrt(1 - correlation**2) * other)


def main(argv: Sequence[str] | None = None) -> None:
    asked = options(__doc__, argv)
    count = repetitions(asked, 10_000, 1000)
    rng = np.random.default_rng(asked.seed)
    y = split("simulated", rng).public.y
    noise = rng.standard_normal(len(y))
    losses = [(prediction(y, float(c), noise) - y) ** 2 for c in CORRELATIONS]
    drawn = np.array([all_releases(one, count, rng) for one in losses])
    spreads = drawn.std(axis=2, ddof=1)
    print(f"standard deviation of {count} releases for b of 10, 100 and 1,000")
    rows = [
        [float(one.mean()), float(c), *spread]
        for one, c, spread in zip(losses, CORRELATIONS, spreads, strict=True)
    ]
    table(["public MSE", "correlation", *(f"b = {b}" for b in BOOTSTRAPS)], rows)
    falls = int((np.diff(spreads, axis=0) < 0).all(axis=0).sum())
    print(f"falls from each prediction to the next better one for {falls} of 3 sizes")
    picture, (line,) = grid(1, len(BOOTSTRAPS) + 1)
    names = [f"{one.mean():.2f}" for one in losses]
    for place, b in enumerate(BOOTSTRAPS):
        boxes(line[place], drawn[:, place].T, names, FINAL)
        label(line[place], f"b = {b}", "MSE", "released MSE")
        line[-1].plot(names, spreads[:, place], "o-", color=COLOURS[place], label=f"b = {b}")
    line[-1].legend(fontsize=6)
    label(line[-1], "standard deviation", "MSE")
    write(picture, asked, "neto_figureS13")


if __name__ == "__main__":
    main()
