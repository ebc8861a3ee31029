"""A leaderboard under attack.

A challenge on 1,000 rows, whose labels are coin flips. One participant submits guesses and then
their vote: those that scored well count. A board that shows every score gives the labels away. A
ladder for each account does so too, if a new account may be opened for each guess, because the
first score of every account is released. One ladder for one account shows nearly nothing. So a
board needs a rule about who may open accounts, and certificates that count all of them, as
`Leaderboard` does.

    python gallery/leaderboard_attack.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np

from ladderholdout.lab import Boosting, ManyAccounts, simulate
from ladderholdout.mechanisms import FullDisclosure, RoundedDisclosure, SimplifiedLadder

ROWS, RUNS, STEP = 1000, 20, 0.02
GUESSES = (1, 10, 30, 100, 200, 400, 700, 1000)
WAYS = {
    "all scores shown": (FullDisclosure(), lambda k: Boosting(k, opposites=True)),
    "two digits shown": (RoundedDisclosure(0.01), lambda k: Boosting(k, opposites=True)),
    "a ladder, an account for each guess": (SimplifiedLadder(STEP), ManyAccounts),
    "a ladder, one account": (SimplifiedLadder(STEP), lambda k: Boosting(k, improvers=True)),
}


def main() -> None:
    figure, ax = style.panels()
    rows = []
    looks = zip(style.COLOURS[1:] + style.COLOURS[:1], "osD^v", strict=True)
    for (name, (rule, attack)), (colour, marker) in zip(WAYS.items(), looks, strict=False):
        scores = np.array([1 - simulate(attack(k), rule, ROWS, RUNS).empirical for k in GUESSES])
        mean, spread = scores.mean(axis=1), scores.std(axis=1, ddof=1)
        ax.errorbar(GUESSES, mean, yerr=spread, fmt=f"{marker}-", color=colour, label=name)
        rows.append((name, *map(float, mean[[1, 3, 5, 7]])))
    style.table(
        ("accuracy of the leader on the holdout", *("10", "100", "400", "1,000 guesses")), rows
    )
    style.truth(ax, 0.5, "on other rows")
    ax.set(xlabel="guesses submitted before the vote", ylabel="accuracy on the holdout")
    style.counts(ax)
    ax.legend(loc="upper left")
    style.show(
        figure,
        "Accuracy of an attacker's vote on a leaderboard over the number of guesses: near .9 where "
        "scores are shown or accounts are free, near one half with one ladder.",
    )


if __name__ == "__main__":
    main()
