"""Certificates of imbalanced classes.

Of 3,000 rows a share of 2 to 50 % is positive, and a model finds four of five of them with a false
alarm in a tenth of the others. Accuracy says little there; recall, balanced accuracy, F1 and
Matthews' coefficient have certificates too. Their width is that of the rare class: the fewer
positives, the less anybody can know.

    python gallery/imbalanced.py [--picture FILE]
"""

from __future__ import annotations

import math

import _style as style
import numpy as np

from ladderholdout.certificates import Rows, Transcript, score_limits
from ladderholdout.metrics import get_metric

ROWS, FINALISTS = 3000, 20
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)
METRICS = {
    "recall": "recall",
    "balanced_accuracy": "balanced accuracy",
    "f1": "F1",
    "matthews_corrcoef": "Matthews' coefficient",
}


def guesses(share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and a model's predictions, with exactly its rates."""
    y = (np.arange(ROWS) < round(share * ROWS)).astype(int)
    found = np.zeros(ROWS, dtype=int)
    positives = int(y.sum())
    found[: round(0.8 * positives)] = 1
    found[positives : positives + round(0.1 * (ROWS - positives))] = 1
    return y, found


def main() -> None:
    level = math.log(0.025) - Transcript(before=0, place=FINALISTS, ladders=()).log_count()
    figure, axes = style.panels(4, sharey=True)
    figure.set_size_inches(9.6, 3.6)
    rows = []
    for ax, (name, title), colour in zip(axes, METRICS.items(), style.COLOURS, strict=False):
        metric = get_metric(name)
        for place, share in enumerate(SHARES):
            y, guess = guesses(share)
            targets = metric.targets(y, np.array([0, 1]))
            found = score_limits(metric, Rows(targets, guess, np.random.default_rng(0)), level)
            ax.vlines(place, max(found.low, -0.05), found.high, color=colour, lw=6)
            rows.append((title, f"{share:.0%}", int(y.sum()), float(found.low), float(found.high)))
        ax.set_xticks(range(len(SHARES)), [f"{100 * share:g}" for share in SHARES])
        ax.set(title=title, xlabel="positives (%)")
    style.table(("metric", "share", "positives", "certified from", "to"), rows)
    axes[0].set(ylabel="certificate, 95 %", ylim=(-0.05, 1.02))
    style.show(
        figure,
        "Certificates of recall, balanced accuracy, F1 and Matthews' coefficient for 2 to 50 % "
        "positives: all are wide where positives are few.",
    )


if __name__ == "__main__":
    main()
