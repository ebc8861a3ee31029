"""Neto et al. 2016, Figure S12: releases of LadderBoot for a good and for a bad prediction.

A lasso and 3 nearest neighbours on simulated data, each released 10,000 times for b of 10, 100
and 1,000. The simulation is that of the other figures, since the paper says no more of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from _common import options, table, write
from _neto_data import Floats, split
from _neto_drawing import FINAL, PUBLIC, grid, label, repetitions
from _neto_ladders import BOOTSTRAPS
from _neto_spread import all_releases
from sklearn.linear_model import LassoCV
from sklearn.neighbors import KNeighborsRegressor

MODELS = {"lasso": LassoCV(eps=0.02, cv=10), "knn": KNeighborsRegressor(3)}


def losses(name: str, seed: int) -> Floats:
    parts = split("simulated", np.random.default_rng(seed))
    model = MODELS[name].fit(parts.train.X, parts.train.y)
    return np.asarray((model.predict(parts.public.X) - parts.public.y) ** 2)


def main(argv: Sequence[str] | None = None) -> None:
    asked = options(__doc__, argv)
    count = repetitions(asked, 10_000, 1000)
    print(f"standard deviation of {count} releases for b of 10, 100 and 1,000")
    picture, axes = grid(len(MODELS), len(BOOTSTRAPS))
    rows = []
    for name, line in zip(MODELS, axes, strict=True):
        one = losses(name, asked.seed)
        drawn = all_releases(one, count, np.random.default_rng(asked.seed))
        rows.append([name, float(one.mean()), *drawn.std(axis=1, ddof=1)])
        for b, ax, values in zip(BOOTSTRAPS, line, drawn, strict=True):
            ax.hist(values, 50, color=FINAL)
            ax.axvline(one.mean(), color=PUBLIC)
            ax.set_xlim(one.mean() - 0.2, one.mean() + 0.2)
            label(ax, f"{name}, b = {b}", "released MSE")
    table(["model", "public MSE", *(f"b = {b}" for b in BOOTSTRAPS)], rows)
    write(picture, asked, "neto_figureS12")


if __name__ == "__main__":
    main()
