"""Hardt 2017, Theorem 2.7, held against the boosting attack at the theory's own settings.

    python benchmarks/papers/hardt_theorem.py [--quick]

Shown by n: the step and the noise of Equation (2), the bound of the theorem with its constants
(a half-width of 1 or more says nothing), that of Theorem 3.1 of Blum & Hardt for the Ladder,
and the leaderboard error that 19 in 20 attacks keep to, of the Shaky Ladder at these settings,
of the calibrated one, and of the Ladder at its best step. All labels are coin flips. The last
lines fit exponents of n to the columns: the theorems promise -2/5 and -1/3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import _common as common
import numpy as np
from _bounds import blum_hardt, hardt
from blum_hardt_theorems import best_step

from ladderholdout.lab import Boosting, simulate
from ladderholdout.mechanisms import Ladder, Mechanism, ShakyLadder

GUESSES = 100
SIZES, FEW = (10_000, 100_000, 1_000_000), (10_000, 100_000)
BEYOND = (10**8, 10**10)  # for the bounds alone
REPETITIONS, QUICK = 40, 8


def error(mechanism: Mechanism, n: int, repetitions: int, seed: int) -> float:
    """Return the leaderboard error that 19 in 20 attacks keep to."""
    attack = Boosting(GUESSES, improvers=True)
    course = simulate(attack, mechanism, n, repetitions, seed=seed, trace=True)
    assert course.trace is not None
    # A Shaky Ladder shows 1 until something is released: that is no claim of the attack's.
    released = np.where(course.trace == mechanism.start(n).standing, 0.5, course.trace)
    return float(np.quantile(np.abs(released - 0.5).max(axis=0), 0.95))


def once(n: int, seed: np.random.SeedSequence, repetitions: int) -> tuple[float, ...]:
    entropy = int(seed.generate_state(1)[0])
    theory = ShakyLadder.from_theory(n, GUESSES)
    rules = (theory, ShakyLadder.calibrated(n, GUESSES), Ladder(best_step(n, GUESSES)))
    errors = (error(rule, n, repetitions, entropy) for rule in rules)
    return theory.step, theory.noise, *bounds(n), *errors


def bounds(n: int) -> tuple[float, float]:
    return hardt(n, GUESSES), blum_hardt(n, GUESSES)


def exponents(ends: tuple[int, int]) -> tuple[float, float]:
    """Return the powers of n by which the two bounds shrink between two sizes."""
    (shaky, ladder), (shaky_after, ladder_after) = map(bounds, ends)
    run = math.log(ends[1] / ends[0])
    return math.log(shaky_after / shaky) / run, math.log(ladder_after / ladder) / run


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    sizes = FEW if asked.quick else SIZES
    found = common.mapped(partial(once, repetitions=repetitions), sizes, asked)
    print(f"{GUESSES} guesses, {repetitions} repetitions")
    heads = ("step", "noise", "Thm 2.7", "Thm 3.1", "Shaky", "calibrated", "Ladder")
    common.table(("n", *heads), [(n, *each) for n, each in zip(sizes, found, strict=True)])
    for ends in ((sizes[0], sizes[-1]), BEYOND):
        shaky, ladder = exponents(ends)
        print(f"n from {ends[0]:.0e} to {ends[1]:.0e}: Thm 2.7 {shaky:.3f}, Thm 3.1 {ladder:.3f}")
    draw(sizes, np.array(found), asked)


def draw(sizes: Sequence[int], found: np.ndarray, asked: Any) -> None:
    figure, (ax,) = common.panels()
    names = ("bound, Shaky Ladder", "bound, Ladder", "error, Shaky Ladder")
    for colour, name, column in zip(common.COLOURS, names, found.T[2:5], strict=False):
        ax.plot(sizes, column, "o-", ms=4, color=colour, label=name)
    ax.axhline(1.0, color=common.COLOURS[4], ls="--", lw=0.8)
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="leaderboard error")
    ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "hardt_theorem")


if __name__ == "__main__":
    main()
