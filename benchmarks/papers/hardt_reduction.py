"""Hardt 2017, Theorem 3.3: a leaderboard that estimates any mean (the reduction of Figure 2).

    python benchmarks/papers/hardt_reduction.py [--quick]

Queries with values in [0, 1] and means between 0 and 1 are answered through a leaderboard
(AdaptiveEstimator in _adaptive.py): if it is accurate to alpha/2 for 1/alpha^2
submissions, the answers are to alpha, for 1/(3 alpha) queries. Shown by alpha and rule: the
share of runs in which all these answers were within alpha, the largest error, the submissions
of the longest run beside 1/alpha^2, and how many queries were answered before the threshold
fell to zero. The last column is how many of the answers needed offsets beyond those of the
published loop, which ends too early for means near 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import _common as common
import numpy as np
from _adaptive import AdaptiveEstimator

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import Ladder, Mechanism, ShakyLadder

N = 2_000
ALPHAS = (0.2, 0.1, 0.05, 0.02)
REPETITIONS, QUICK = 50, 5


class Run(NamedTuple):
    """What one run came to: up to the promised number of queries, and until the end."""

    error: float
    submissions: int
    beyond: int
    answered: int


def rules(alpha: float) -> dict[str, Mechanism]:
    return {
        "Ladder, step alpha/4": Ladder(alpha / 4),
        "Shaky, step alpha/4, noise alpha/40": ShakyLadder(alpha / 4, alpha / 40),
    }


def once(task: tuple[float, str], seed: np.random.SeedSequence, repetitions: int) -> list[Run]:
    return [asking(*task, np.random.default_rng(child)) for child in seed.spawn(repetitions)]


def asking(alpha: float, name: str, rng: np.random.Generator) -> Run:
    """Ask until no query is answered any more."""
    estimator = AdaptiveEstimator(rules(alpha)[name], alpha)
    promised, published = math.floor(1 / (3 * alpha)), math.ceil(1 / alpha)
    state, run = estimator.start(N), Run(0.0, 0, 0, 0)
    while True:
        mean = rng.uniform()
        query = (rng.random(N) < mean).astype(float)
        before = state.submissions
        try:
            state, found = estimator.answer(state, query, rng)
        except InvalidArgument:  # the threshold has fallen to zero
            return run
        if run.answered < promised:
            error = max(run.error, abs(found - mean))
            beyond = run.beyond + (state.submissions - before > published)
            run = Run(error, state.submissions, beyond, run.answered)
        run = run._replace(answered=run.answered + 1)


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    print(f"n = {N}, {repetitions} runs")
    tasks = [(alpha, name) for alpha in ALPHAS for name in rules(alpha)]
    found = common.mapped(partial(once, repetitions=repetitions), tasks, asked)
    rows = [row(*task, runs) for task, runs in zip(tasks, found, strict=True)]
    heads = (
        "alpha",
        "queries",
        "within",
        "error",
        "submissions",
        "1/alpha^2",
        "answered",
        "beyond",
    )
    common.table(("rule", *heads), rows)
    draw(rows, asked)


def row(alpha: float, name: str, runs: Sequence[Run]) -> tuple[Any, ...]:
    promised = math.floor(1 / (3 * alpha))
    kept = [run.error <= alpha and run.answered >= promised for run in runs]
    return (
        name,
        f"{alpha:g}",
        promised,
        float(np.mean(kept)),
        max(run.error for run in runs),
        max(run.submissions for run in runs),
        round(1 / alpha**2),
        min(run.answered for run in runs),
        float(np.mean([run.beyond for run in runs])) / promised,
    )


def draw(rows: Sequence[tuple[Any, ...]], asked: Any) -> None:
    figure, (ax,) = common.panels()
    for colour, name in zip(common.COLOURS, rules(ALPHAS[0]), strict=False):
        errors = [row[4] for row in rows if row[0] == name]
        ax.plot(ALPHAS, errors, "o-", ms=4, color=colour, label=name)
    ax.plot(ALPHAS, ALPHAS, ls="--", lw=0.8, color=common.COLOURS[4], label="alpha")
    ax.set(xlabel="alpha", ylabel="largest error of an answer")
    ax.legend(frameon=False, fontsize="small")
    common.write(figure, asked, "hardt_reduction")


if __name__ == "__main__":
    main()
