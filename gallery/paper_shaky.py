"""Climbing a shaky ladder: three attacks on the rules.

After Section 4 of Hardt (2017). Three attacks of 1,000 guesses meet the rules on 1,000 rows: votes
of the guesses that were released to be good, votes of those that improved, and the shifted
majority, which gives up easy rows so that a ladder goes on answering. The bars say how far the
incumbent was fitted to the holdout. The shifted attack does far more harm to a plain ladder than
the others, and the shaky ladder withstands it.

    python gallery/paper_shaky.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import hardt_mechanisms as section_4
import numpy as np

RUNS = 4
RULES = {
    "full disclosure": "full disclosure",
    "Ladder, 0.25/sqrt(n)": "Ladder",
    "simplified, 0.25/sqrt(n)": "simplified",
    "parameter-free": "parameter-free",
    "paired test, 0.01": "paired test, 1 %",
    "priced": "priced (default)",
    "Shaky, step and noise 1/sqrt(n)": "shaky",
}


def main() -> None:
    found = {
        title: section_4.once(name, np.random.SeedSequence(0), RUNS)
        for name, title in RULES.items()
    }
    fitted = np.array(
        [[(one.true - one.empirical).mean() for one in courses] for courses in found.values()]
    )
    attacks = ("good guesses", "improving guesses", "shifted majority")
    style.table(
        ("fitted to the holdout by", *attacks),
        [(name, *map(float, each)) for name, each in zip(found, fitted, strict=True)],
    )
    figure, ax = style.panels()
    places = np.arange(len(found))
    for turn, name in enumerate(attacks):
        ax.barh(
            places + 0.27 * (turn - 1), fitted[:, turn], 0.25, color=style.COLOURS[turn], label=name
        )
    ax.set_yticks(places, list(found))
    ax.invert_yaxis()
    ax.set_xlabel("true risk of the incumbent less its risk on the holdout")
    ax.legend(loc="lower right")
    style.show(
        figure,
        "How far three attacks fit the incumbent to the holdout, for seven rules: most under full "
        "disclosure, and by the shifted majority under plain ladders.",
    )


if __name__ == "__main__":
    main()
