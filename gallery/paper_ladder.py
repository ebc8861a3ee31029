"""The Ladder: Kaggle's rounding and the boosting attack.

Figure 1 of Blum and Hardt (2015), computed again. Of 12,000 labels that are coin flips 4,000 are
public. An attacker submits random guesses and then the vote of the good ones. Against scores that
are rounded to five digits the loss of the vote falls far below one half; against the
parameter-free Ladder hardly. On the 8,000 other labels the vote is worth nothing in both.

    python gallery/paper_ladder.py [--picture FILE]
"""

from __future__ import annotations

from itertools import product

import _style as style
import blum_hardt_1 as figure_1
import numpy as np

RUNS = 8
GUESSES = figure_1.GUESSES[::2]


def main() -> None:
    found = {
        (name, guesses): figure_1.once((name, guesses), np.random.SeedSequence(guesses), RUNS)
        for name, guesses in product(figure_1.ATTACKS, GUESSES)
    }
    lines = {
        "parameter-free Ladder": ("Ladder", 0, style.BLUE, "o-"),
        "rounded scores (Kaggle)": ("Kaggle", 0, style.ORANGE, "s-"),
        "the latter on fresh labels": ("Kaggle", 1, style.QUIET, "^--"),
    }
    figure, ax = style.panels()
    rows = []
    for name, (attack, part, colour, look) in lines.items():
        each = np.array([found[attack, guesses][part] for guesses in GUESSES])
        mean, spread = each.mean(axis=1), each.std(axis=1, ddof=1)
        ax.errorbar(GUESSES, mean, yerr=spread, fmt=look, color=colour, label=name)
        rows.append((name, *map(float, mean[[0, 2, 4, 6]])))
    style.table(("loss of the vote after", *(f"{GUESSES[i]} guesses" for i in (0, 2, 4, 6))), rows)
    ax.set(xlabel="guesses before the vote", ylabel="loss of the vote")
    style.counts(ax)
    ax.legend(loc="lower left")
    style.show(
        figure,
        "Loss of a vote over the number of guesses: on rounded scores it falls below .46, on the "
        "Ladder it stays near one half, as on fresh labels.",
    )


if __name__ == "__main__":
    main()
