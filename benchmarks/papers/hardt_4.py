"""Hardt 2017, Figure 4: the majority attack by the noise, for several numbers of queries.

    python benchmarks/papers/hardt_4.py [--quick]

The paper's attack on noisy answers (see _majority.py); the mechanisms themselves are attacked
in hardt_mechanisms.py. 100 repetitions, as in the paper. Claim: 3 standard deviations take
most of the harm. The table also says which share of the attack's gain is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import _common as common
from _majority import QUICK, REPETITIONS, N, errors

QUERIES = (100, 200, 500, 1000)
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    once = partial(errors, queries=QUERIES, levels=LEVELS)
    mean, deviation = common.spread(common.repeated(once, repetitions, asked))
    left = (0.5 - mean) / (0.5 - mean[0])
    print(f"n = {N}, {repetitions} repetitions: error of the vote, deviation, gain that is left")
    rows = []
    for place, level in enumerate(LEVELS):
        row: list[object] = [level]
        for column in range(len(QUERIES)):
            row += [each[place, column] for each in (mean, deviation, left)]
        rows.append(row)
    heads = [head for queries in QUERIES for head in (f"k = {queries}", "sd", "left")]
    common.table(("sqrt(n) sigma", *heads), rows)
    figure, (ax,) = common.panels()
    for column, queries in enumerate(QUERIES):
        bars = {"color": common.COLOURS[column], "capsize": 2, "label": f"{queries} queries"}
        ax.errorbar(LEVELS, mean[:, column], yerr=deviation[:, column], **bars)
    ax.set(xlabel="noise, in 1/sqrt(n)", ylabel="error of the vote")
    ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "hardt_4")


if __name__ == "__main__":
    main()
