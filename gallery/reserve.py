"""A reserve.

With `reserve=0.5` half of the rows steer the ladder, and the other half is queried once, at the
end. What was released to the search cannot have fitted them, so their interval pays for nothing. A
climb on 600 rows in truth gets better and better; its ladder releases freely, which makes the
certificate of all releases wide, and `reserve_certificate()` narrow. Twelve searches.

    python gallery/reserve.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np

from ladderholdout import LadderHoldout

ROWS, QUERIES, RUNS = 600, 150, 12


def search(seed: int) -> tuple[float, tuple[float, float], tuple[float, float]]:
    """Climb; return the true score, the ladder's certificate and that of the reserve."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(ROWS, 2)), rng.integers(0, 2, ROWS)
    holdout = LadderHoldout(X, y, scoring="accuracy", reserve=0.5, ledger="memory")
    difficulty, skill = rng.random(ROWS), 0.7
    for _ in range(QUERIES):
        tried = min(skill + rng.normal(scale=0.02), 0.9)
        own = np.where(rng.random(ROWS) < 0.8, difficulty, rng.random(ROWS))
        if holdout.submit(np.where(own < tried, y, 1 - y)).improved:
            skill = tried
    steered, kept = holdout.certificate(), holdout.reserve_certificate()
    return skill, (steered.low, steered.high), (kept.low, kept.high)


def main() -> None:
    found = [search(seed) for seed in range(RUNS)]
    true = np.array([one[0] for one in found])
    ways = {
        "certificate()": np.array([one[1] for one in found]),
        "reserve_certificate()": np.array([one[2] for one in found]),
    }
    style.table(
        ("", "width", "intervals that hold"),
        [
            (
                name,
                float((ends[:, 1] - ends[:, 0]).mean()),
                f"{np.sum((ends[:, 0] <= true) & (true <= ends[:, 1]))} of {RUNS}",
            )
            for name, ends in ways.items()
        ],
    )
    figure, ax = style.panels()
    places = np.arange(1, RUNS + 1)
    for (name, ends), shift, colour in zip(
        ways.items(), (-0.15, 0.15), (style.ORANGE, style.BLUE), strict=True
    ):
        ax.vlines(places + shift, *ends.T, color=colour, lw=3, label=name)
    ax.plot(places, true, "_", color=style.INK, ms=16, mew=2, label="true score of the incumbent")
    ax.set(xlabel="search", ylabel="accuracy")
    style.counts(ax)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    style.show(
        figure,
        "Two intervals for each of twelve searches: that of all releases is wide, that of the "
        "reserve narrow, and both hold the true score.",
    )


if __name__ == "__main__":
    main()
