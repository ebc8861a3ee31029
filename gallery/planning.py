"""How many rows a holdout needs.

Before anybody queries a holdout, `plan` says how far the true score may lie below the released
one, for each way to use it: finalists alone, a list that is fixed in advance, a search that learns
from its answers, and such a search with a reserve. The line marks the 2,000 rows that are planned
for.

    python gallery/planning.py [--picture FILE]
"""

from __future__ import annotations

import _style as style

from ladderholdout.planning import plan, plot


def main() -> None:
    found = plan(n=2_000, submissions=300, width=0.03, risk=0.15)
    style.table(
        ("way", "proved width"),
        [
            (name, float(way.width))
            for name, way in zip(
                (
                    "finalists on the holdout",
                    "fixed in advance",
                    "learning",
                    "learning, with a reserve",
                ),
                found.ways,
                strict=True,
            )
        ],
    )
    print(f"most releases for a width of {found.width}: {found.most_releases}")
    print(f"least reserve for it: {found.least_reserve}")
    figure, ax = style.panels()
    plot(found, ax=ax)
    ax.legend(loc="upper right", ncols=2, fontsize=8)
    style.show(
        figure,
        "The proved width over the number of rows, on logarithmic axes, for finalists, a fixed "
        "list, searches that learn with 2 to 50 releases, and a reserve.",
    )


if __name__ == "__main__":
    main()
