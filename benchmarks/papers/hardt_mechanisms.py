"""Hardt 2017, Section 4: the attacks against the mechanisms themselves.

    python benchmarks/papers/hardt_mechanisms.py [--quick]

The paper runs its attack on noisy answers only. Here the boosting attack (of all guesses released
to be good, or of those that improved) and the shifted majority attack, half of whose rows are
easy, meet the rules themselves; 1,000 guesses at 1,000 rows, 100 repetitions. Shown for each:
"released", by how much the released risk is below the true one in the end; "fitted", by how much
the incumbent's empirical risk is, which leaves out the noise of the release; and the number of
releases.
Claims: the shifted attack does far more harm to the Ladder than the plain one; the
parameter-free Ladder fares worse than the Ladder; the Shaky Ladder withstands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import _common as common
import numpy as np

from ladderholdout.lab import Analyst, Boosting, Course, ShiftedMajority, simulate
from ladderholdout.mechanisms import (
    FullDisclosure,
    GaussianLadder,
    Ladder,
    LadderBoot,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    ShakyLadder,
    SimplifiedLadder,
    State,
)

N = GUESSES = 1000
REPETITIONS, QUICK = 100, 10
ROOT = 1 / math.sqrt(N)

RULES: dict[str, Mechanism] = {
    "full disclosure": FullDisclosure(),
    "Ladder, 1/n": Ladder(step=1 / N),
    "Ladder, 0.25/sqrt(n)": Ladder(step=0.25 * ROOT),
    "Ladder, 1/sqrt(n)": Ladder(step=ROOT),
    "Ladder, n^(-1/3)": Ladder(step=N ** (-1 / 3)),
    "simplified, 0.25/sqrt(n)": SimplifiedLadder(step=0.25 * ROOT),
    "parameter-free": ParameterFreeLadder(),
    "paired test, 0.01": PairedTestLadder(alpha=0.01),
    "priced": PricedLadder(),
    "Gaussian, step and noise 1/sqrt(n)": GaussianLadder(step=ROOT, noise=ROOT),
    "Shaky, step and noise 1/sqrt(n)": ShakyLadder(step=ROOT, noise=ROOT),
    "Shaky, step 1/sqrt(n), noise 3/sqrt(n)": ShakyLadder(step=ROOT, noise=3 * ROOT),
    "Shaky, calibrated": ShakyLadder.calibrated(N, GUESSES),
    "LadderBoot, 0.15, b = 10": LadderBoot(0.15, n_bootstrap=10),
}

ATTACKS = ("good", "improved", "shifted")


def attacks(mechanism: Mechanism) -> tuple[Analyst, ...]:
    """Return the attacks; the last knows the margin of the rule for a typical guess."""
    # Two guesses at coin flips differ on half of the rows.
    standing = State(N, 0.5, releases=5)
    margin = min(max(mechanism.least_gain(standing, 0.5), 1 / N), 0.5)
    return (
        Boosting(GUESSES),
        Boosting(GUESSES, improvers=True),
        ShiftedMajority(GUESSES, easy=0.5, margin=margin),
    )


def once(name: str, seed: np.random.SeedSequence, repetitions: int) -> list[Course]:
    """Attack one rule; all rules meet the same labels and guesses."""
    entropy = int(seed.entropy)
    rule = RULES[name]
    return [simulate(attack, rule, N, repetitions, seed=entropy) for attack in attacks(rule)]


def draw(found: dict[str, list[Course]], asked: Any) -> None:
    figure, (ax,) = common.panels()
    figure.set_size_inches(7.5, 4.0)
    places = np.arange(len(found))
    for turn, label in enumerate(ATTACKS):
        fitted = [courses[turn].true - courses[turn].empirical for courses in found.values()]
        mean, deviation = np.array([common.spread(each) for each in fitted]).T
        ax.barh(
            places + 0.27 * turn,
            mean,
            0.25,
            xerr=deviation,
            color=common.COLOURS[turn],
            label=label,
        )
    ax.set_yticks(places + 0.27, list(found))
    ax.invert_yaxis()
    ax.set(xlabel="true risk of the incumbent minus its empirical one")
    ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "hardt_mechanisms")


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    courses = common.mapped(partial(once, repetitions=repetitions), list(RULES), asked)
    found = dict(zip(RULES, courses, strict=True))
    print(f"n = {N}, {GUESSES} guesses, {repetitions} repetitions: true risk minus ...")
    rows = []
    for name, each in found.items():
        row: list[object] = [name]
        for course in each:
            fitted = (course.true - course.empirical).mean()
            row += [course.bias.mean(), fitted, f"{course.releases.mean():.0f}"]
        rows.append(row)
    heads = [head for name in ATTACKS for head in (f"{name}: released", "fitted", "rel.")]
    common.table(("rule", *heads), rows)
    draw(found, asked)


if __name__ == "__main__":
    main()
