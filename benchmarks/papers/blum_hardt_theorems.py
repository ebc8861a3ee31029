"""Blum & Hardt 2015, Theorems 3.1 and 5.1, held against the boosting attack.

    python benchmarks/papers/blum_hardt_theorems.py [--quick]

Theorem 3.1 bounds the leaderboard error of the Ladder against every analyst. Shown: the bound
at confidence 0.95 and its best step, and the error of 19 in 20 attacks at most; all labels are
coin flips, so the error is how far a standing risk ever was from one half.

Theorem 5.1 says that the vote comes to 1/2 - c sqrt(k/n) at least two times in three, if the
answers are within 1/sqrt(n) of the risks. Shown: c in the mean, and the c that two votes in
three reach, for answers that are exact, that are rounded to 1/sqrt(n), and that are chosen
within 1/sqrt(n) to mislead: just so that good guesses look bad, and bad ones good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import _common as common
import numpy as np
from _bounds import blum_hardt

from ladderholdout.lab import Answers, Boosting, CoinFlips, simulate
from ladderholdout.mechanisms import Ladder

SIZES = (500, 2_000, 8_000, 32_000)
GUESSES = 400
VOTES = ((100, 1_000), (400, 1_000), (1_000, 1_000), (400, 4_000), (1_000, 16_000))
REPETITIONS, QUICK = 200, 20

Answer = Callable[[np.ndarray, float], np.ndarray]


def rounded(risks: np.ndarray, root: float) -> np.ndarray:
    return np.round(risks / root) * root


def misleading(risks: np.ndarray, root: float) -> np.ndarray:
    """Say of every risk that it lies on the other side of one half, or as near as allowed."""
    return np.where(risks <= 0.5, risks + root, risks - root)


ANSWERS: dict[str, Answer] = {
    "exact": lambda risks, _: risks,
    "rounded": rounded,
    "misleading": misleading,
}


def best_step(n: int, k: int) -> float:
    """Return the step at which Theorem 3.1 bounds the error best."""
    steps = np.geomspace(1e-3, 1.0, 301)
    return float(min(steps, key=lambda step: blum_hardt(n, k, step=float(step))))


def ladder_error(n: int, seed: np.random.SeedSequence, repetitions: int) -> tuple[float, ...]:
    """Return bound, step, and the leaderboard error that 19 in 20 attacks keep to."""
    step = best_step(n, GUESSES)
    attack = Boosting(GUESSES, improvers=True)
    entropy = int(seed.generate_state(1)[0])
    course = simulate(attack, Ladder(step), n, repetitions, seed=entropy, trace=True)
    assert course.trace is not None
    error = np.abs(course.trace - 0.5).max(axis=0)
    return blum_hardt(n, GUESSES), step, float(np.quantile(error, 0.95)), float(error.max())


def vote(k: int, n: int, answer: Answer, repetitions: int, rng: np.random.Generator) -> np.ndarray:
    """Play the boosting attack on answers of any kind; return c of each vote."""
    attack = Boosting(k)
    problem = attack.problem(n, repetitions, rng)
    assert isinstance(problem, CoinFlips)
    playing = attack.play(problem.seen, rng)
    submission = next(playing)
    for _ in range(k):
        risks = problem.losses(submission).count() / n
        risks_shown = answer(risks, 1.0 / math.sqrt(n))
        submission = playing.send(Answers(risks_shown, np.zeros(repetitions, dtype=bool)))
    gap = 0.5 - problem.losses(submission).count() / n
    return gap / math.sqrt(k / n)


def votes(
    case: tuple[int, int], seed: np.random.SeedSequence, repetitions: int
) -> list[np.ndarray]:
    seeds = seed.spawn(1) * len(ANSWERS)  # the same guesses for all
    return [
        vote(*case, answer, repetitions, np.random.default_rng(one))
        for answer, one in zip(ANSWERS.values(), seeds, strict=True)
    ]


def draw(errors: Sequence[tuple[float, ...]], asked: Any) -> None:
    figure, (ax,) = common.panels()
    bound, step, usual, _ = np.array(errors).T
    for colour, (label, values) in zip(
        common.COLOURS,
        {"Theorem 3.1": bound, "its step": step, "19 in 20 attacks": usual}.items(),
        strict=False,
    ):
        ax.plot(SIZES, values, "o-", ms=4, color=colour, label=label)
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="leaderboard error")
    ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "blum_hardt_theorems")


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    errors = common.mapped(partial(ladder_error, repetitions=repetitions), SIZES, asked)
    print(f"Theorem 3.1: {GUESSES} guesses, {repetitions} repetitions")
    heads = ("n", "bound", "step", "19 in 20", "largest")
    common.table(heads, [(n, *each) for n, each in zip(SIZES, errors, strict=True)])
    found = common.mapped(partial(votes, repetitions=repetitions), VOTES, asked)
    print(f"\nTheorem 5.1: c in 1/2 - c sqrt(k/n), {repetitions} repetitions")
    rows = []
    for case, each in zip(VOTES, found, strict=True):
        # Two votes in three are above the lower third.
        rows.append((*case, *(part(c) for c in each for part in (np.mean, _lower_third))))
    heads = tuple(head for name in ANSWERS for head in (name, "2 in 3"))
    common.table(("k", "n", *heads), rows)
    draw(errors, asked)


def _lower_third(values: np.ndarray) -> float:
    return float(np.quantile(values, 1.0 / 3.0))


if __name__ == "__main__":
    main()
