"""Hardt 2017, Figure 3: the majority attack by the number of queries, for three noise levels.

    python benchmarks/papers/hardt_3.py [--quick]

The paper's attack on noisy answers (see _majority.py); the mechanisms themselves are attacked
in hardt_mechanisms.py. 100 repetitions, as in the paper. Claim: noise of 3/sqrt(n) mostly
neutralises the attack, which without noise works well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import _common as common
from _majority import QUICK, REPETITIONS, N, errors, foretold

QUERIES = (10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
LEVELS = (0.0, 1.0, 3.0)
NAMES = ("no noise", "1/sqrt(n)", "3/sqrt(n)")


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    once = partial(errors, queries=QUERIES, levels=LEVELS)
    mean, deviation = common.spread(common.repeated(once, repetitions, asked))
    print(f"n = {N}, {repetitions} repetitions: error of the vote, deviation, what is foretold")
    rows = []
    for column, queries in enumerate(QUERIES):
        row: list[object] = [queries]
        for place, level in enumerate(LEVELS):
            row += [mean[place, column], deviation[place, column], foretold(queries, level)]
        rows.append(row)
    heads = [head for name in NAMES for head in (name, "sd", "foretold")]
    common.table(("queries", *heads), rows)
    figure, (ax,) = common.panels()
    for place, name in enumerate(NAMES):
        bars = {"color": common.COLOURS[place], "capsize": 2, "label": name}
        ax.errorbar(QUERIES, mean[place], yerr=deviation[place], **bars)
    ax.set(xlabel="queries", ylabel="error of the vote")
    ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "hardt_3")


if __name__ == "__main__":
    main()
