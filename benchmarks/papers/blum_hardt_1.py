"""Blum & Hardt 2015, Figure 1: the boosting attack on Kaggle's mechanism and on the Ladder.

    python benchmarks/papers/blum_hardt_1.py [--quick]

12,000 labels that are coin flips, 4,000 of them public. Against Kaggle's mechanism (rounding
to 1e-5) the vote counts the guesses that were released as at least as good as chance, against
the parameter-free Ladder those that improved. The text does not say how many repetitions the
figure shows: 20 here. Claims: Kaggle's mechanism falls far below 1/2 as the guesses grow, the
Ladder hardly, and the vote is worth nothing on the 8,000 other labels. Beside it, what the
votes should come to by the normal approximation: Phi(-2 m sqrt(v/n)) with v votes counted,
each better than chance by m/sqrt(n) in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import _common as common
import numpy as np
from scipy.special import ndtr

from ladderholdout.lab import Bits, Boosting, Problem, Seen, Submissions, play
from ladderholdout.mechanisms import Mechanism, ParameterFreeLadder, RoundedDisclosure

LABELS, PUBLIC = 12_000, 4_000
GUESSES = (10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
REPETITIONS, QUICK = 20, 4

ATTACKS: dict[str, tuple[Mechanism, bool]] = {
    "Kaggle": (RoundedDisclosure(), False),
    "Ladder": (ParameterFreeLadder(), True),
}


@dataclass(frozen=True, eq=False)
class Competition(Problem):
    """Coin flips; the first are public, and what a submission is truly worth shows in the rest."""

    labels: Bits

    @property
    def seen(self) -> Seen:
        return Seen(LABELS, len(self.labels.words))

    def losses(self, submission: Submissions) -> Bits:
        wrong = self._wrong(submission).unpack()
        return Bits.pack(wrong[:, :PUBLIC])

    def true_risk(self, submission: Submissions) -> np.ndarray:
        return np.asarray(self._wrong(submission).unpack()[:, PUBLIC:].mean(axis=1))

    def _wrong(self, submission: Submissions) -> Bits:
        return submission.predictions ^ self.labels


def once(task: tuple[str, int], seed: np.random.SeedSequence, repetitions: int) -> np.ndarray:
    """Return the believed and the true risk of each repetition."""
    mechanism, improvers = ATTACKS[task[0]]
    hidden, guessing, noise = map(np.random.default_rng, seed.spawn(3))
    problem = Competition(Bits.random(hidden, repetitions, LABELS))
    course = play(Boosting(task[1], improvers=improvers), mechanism, problem, guessing, noise)
    return np.array([course.believed, course.true])


def foretold(guesses: int) -> float:
    """Return the risk of Kaggle's vote: half of the guesses count, by sqrt(2/pi)/2 each."""
    return float(ndtr(-math.sqrt(2.0 / math.pi) * math.sqrt(guesses / 2.0 / PUBLIC)))


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    found = {}
    for name in ATTACKS:
        tasks = [(name, guesses) for guesses in GUESSES]
        # Of shape (tasks, believed or true, repetitions).
        found[name] = np.array(common.mapped(partial(once, repetitions=repetitions), tasks, asked))
    print(f"n = {PUBLIC} of {LABELS} labels, {repetitions} repetitions: loss and its deviation")
    kaggle, ladder = (values.mean(axis=2).T for values in found.values())
    deviations = [values[:, 0].std(axis=1, ddof=1) for values in found.values()]
    columns = (kaggle[0], deviations[0], kaggle[1], ladder[0], deviations[1], ladder[1])
    heads = ("guesses", "foretold", "Kaggle", "sd", "fresh", "Ladder", "sd", "fresh")
    theory = list(map(foretold, GUESSES))
    common.table(heads, list(zip(GUESSES, theory, *columns, strict=True)))
    draw(found, asked)


def draw(found: dict[str, np.ndarray], asked: Any) -> None:
    figure, (ax,) = common.panels()
    lines = {
        "fresh labels": found["Kaggle"][:, 1],
        "Ladder": found["Ladder"][:, 0],
        "Kaggle": found["Kaggle"][:, 0],
    }
    for colour, (name, values) in zip(common.COLOURS[2::-1], lines.items(), strict=True):
        deviation = values.std(axis=1, ddof=1)
        ax.errorbar(GUESSES, values.mean(axis=1), yerr=deviation, color=colour, label=name)
    ax.set(xlabel="guesses", ylabel="loss of the vote")
    ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "blum_hardt_1")


if __name__ == "__main__":
    main()
