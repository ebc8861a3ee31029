"""Nine rules on one history.

A search of 300 queries climbs honestly: each model is a step from the incumbent, better or worse
in truth, and the holdout has 500 rows. The same kind of search runs against nine rules. On the
left: what is believed in the end, and what is true of that model. A rule is good when both are
high and close together. On the right: how many scores each rule has released, which is what later
certificates pay for.

    python gallery/rules_compared.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np

from ladderholdout.lab import KnobClimb, simulate
from ladderholdout.mechanisms import (
    FullDisclosure,
    GaussianLadder,
    Ladder,
    LadderBoot,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    ShakyLadder,
    SimplifiedLadder,
)

ROWS, QUERIES, RUNS = 500, 300, 30
STEP = 1 / np.sqrt(ROWS)
RULES = {
    "full disclosure": FullDisclosure(),
    "Ladder": Ladder(STEP / 2),
    "simplified": SimplifiedLadder(STEP / 2),
    "parameter-free": ParameterFreeLadder(),
    "paired test, 5 %": PairedTestLadder(0.05),
    "priced (default)": PricedLadder(),
    "Gaussian noise": GaussianLadder(step=STEP / 2, noise=STEP / 4),
    "shaky": ShakyLadder(step=STEP / 2, noise=STEP / 4),
    "bootstrap": LadderBoot(0.05, n_bootstrap=20),
}


def main() -> None:
    found = {name: simulate(KnobClimb(QUERIES), rule, ROWS, RUNS) for name, rule in RULES.items()}
    believed, true = (
        np.array([1 - getattr(course, part).mean() for course in found.values()])
        for part in ("believed", "true")
    )
    releases = np.array([course.releases.mean() for course in found.values()])
    style.table(
        ("rule", "believed", "true", "too much", "releases"),
        [
            (name, *map(float, (b, t, b - t)), f"{r:.1f}")
            for name, b, t, r in zip(found, believed, true, releases, strict=True)
        ],
    )
    figure, (left, right) = style.panels(2, sharey=True)
    places = np.arange(len(found))
    left.hlines(
        places, np.minimum(true, believed), np.maximum(true, believed), color=style.GRID, lw=4
    )
    left.plot(true, places, "s", color=style.QUIET, label="true", mfc="none", mew=2)
    left.plot(believed, places, "o", color=style.BLUE, label="believed")
    left.set(yticks=places, yticklabels=list(found), xlabel="accuracy")
    left.invert_yaxis()
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    right.barh(places, releases, color=style.BLUE, height=0.6)
    right.set(xlabel="scores released (logarithmic)", xscale="log")
    right.xaxis.set_major_formatter("{x:,.0f}")
    style.show(
        figure,
        "For nine rules: believed and true accuracy after 300 queries, and how many scores were "
        "released. Full disclosure believes far too much; the ladders are close to the truth.",
    )


if __name__ == "__main__":
    main()
