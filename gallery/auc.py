"""Certificates of AUC.

An area under the ROC curve is no mean of losses, and has a certificate all the same. Here models
of different strength rank 200 to 5,000 rows. Each bar is the 95 % interval of the best of 20
finalists, drawn from the holdout's rows and from nothing else; the mark is the true area, which is
known because the scores are drawn from two normal distributions.

    python gallery/auc.py [--picture FILE]
"""

from __future__ import annotations

import math

import _style as style
import numpy as np
from scipy.stats import norm

from ladderholdout.certificates import Rows, Transcript, score_limits
from ladderholdout.metrics import get_metric

SIZES = (200, 500, 1000, 2000, 5000)
STRENGTHS = {"weak": 0.5, "good": 1.5, "strong": 2.5}
FINALISTS = 20


def main() -> None:
    metric = get_metric("roc_auc")
    level = math.log(0.025) - Transcript(before=0, place=FINALISTS, ladders=()).log_count()
    figure, ax = style.panels()
    rows = []
    for turn, (name, strength) in enumerate(STRENGTHS.items()):
        true = float(norm.cdf(strength / math.sqrt(2)))
        for place, n in enumerate(SIZES):
            rng = np.random.default_rng(place)
            y = np.repeat([0, 1], n // 2)
            scores = y * strength + rng.normal(size=n)
            targets = metric.targets(y, np.array([0, 1]))
            found = score_limits(metric, Rows(targets, scores, np.random.default_rng(0)), level)
            rows.append((name, n, true, float(found.low), float(found.high)))
            spot, colour = place + 0.2 * (turn - 1), style.COLOURS[turn]
            ax.vlines(spot, found.low, found.high, color=colour, lw=4,
                      label=f"{name} model" if place == 0 else None)  # fmt: skip
            ax.plot(spot, true, "_", color=style.INK, ms=12, mew=2,
                    label="true area" if (turn, place) == (2, 0) else None)  # fmt: skip
    style.table(("model", "rows", "true", "certified from", "to"), rows)
    ax.set_xticks(range(len(SIZES)), [f"{n:,}" for n in SIZES])
    ax.set(
        xlabel="rows of the holdout, half of them positive",
        ylabel="area under the ROC curve",
        ylim=(0.45, 1.01),
    )
    ax.legend(loc="lower right", ncols=2)
    style.show(
        figure,
        "Certificates of AUC for weak, good and strong models at 200 to 5,000 rows: they become "
        "narrower with the rows and for stronger models, and hold the true areas.",
    )


if __name__ == "__main__":
    main()
