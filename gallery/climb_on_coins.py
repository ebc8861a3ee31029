"""A climb on coin labels, guarded and not.

The labels of 500 rows are coin flips, so that every model is right half of the time on other rows.
A climb changes ten predictions at a time and goes on from what scores better. By raw scores it
believes in an accuracy of far more than one half. A ladder answers with a new score only where a
submission is better by more than a step, and hardly any is.

    python gallery/climb_on_coins.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np

from ladderholdout.lab import HillClimb, simulate
from ladderholdout.mechanisms import (
    FullDisclosure,
    ParameterFreeLadder,
    PricedLadder,
    SimplifiedLadder,
)

ROWS, STEPS, RUNS = 500, 1000, 40
RULES = {
    "raw scores": FullDisclosure(),
    "parameter-free ladder": ParameterFreeLadder(),
    "simplified ladder": SimplifiedLadder(1 / np.sqrt(ROWS)),
    "priced ladder, the default": PricedLadder(),
}


def main() -> None:
    figure, ax = style.panels()
    rows = []
    colours = (style.ORANGE, style.GREEN, style.PURPLE, style.BLUE)
    for (name, rule), colour in zip(RULES.items(), colours, strict=True):
        course = simulate(HillClimb(STEPS, changes=10, classes=2), rule, ROWS, RUNS, trace=True)
        believed = 1 - course.trace.T
        style.band(ax, np.arange(1, believed.shape[1] + 1), believed, colour, name)
        rows.append((name, float(believed[:, -1].mean()), 0.5, float(course.releases.mean())))
    style.table(("", "believed", "true", "releases"), rows)
    style.truth(ax, 0.5)
    ax.set(xlabel="queries of the holdout", ylabel="believed accuracy")
    style.counts(ax)
    ax.legend(loc="upper left")
    style.show(
        figure,
        "Believed accuracy of a climb on coin labels over 1,000 queries: by raw scores it rises "
        "far above one half, through the default ladder it stays there.",
    )


if __name__ == "__main__":
    main()
