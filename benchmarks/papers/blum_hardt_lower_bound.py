"""Blum & Hardt 2015, Theorem 3.3: an error that no leaderboard avoids, adaptive or not.

    python benchmarks/papers/blum_hardt_lower_bound.py [--quick]

k models are fixed in advance: coins that show an error with a chance of one half, or all but
one of them, which errs less by epsilon. Nobody can tell the two worlds apart well, so every
estimate of the least risk is off by epsilon/2 or more with a chance of a quarter at least, in
one of the two (lower_bound in _bounds.py). Shown for five estimates, the
last of which is the likeliest world's least risk: the share of such errors in the worse world,
and the mean error over sqrt(ln(k)/n), which the theorem keeps away from zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import _common as common
import numpy as np
from _bounds import lower_bound
from scipy.special import logsumexp

N = 1000
MODELS = (2, 10, 100, 1000)
REPETITIONS, QUICK = 2000, 200
STEP = 1 / math.sqrt(N)
WRONG = 0.25  # the chance of an error so large

Estimate = Callable[[np.ndarray, float], np.ndarray]


def likelier(risks: np.ndarray, epsilon: float) -> np.ndarray:
    """Weigh "one of them errs less" against "all are fair" by their likelihoods."""
    errors = N * risks
    logs = errors * math.log1p(-2 * epsilon) + (N - errors) * math.log1p(2 * epsilon)
    better = logsumexp(logs, axis=1) > math.log(risks.shape[1])
    return np.where(better, 0.5 - epsilon, 0.5)


ESTIMATES: dict[str, Estimate] = {
    "least empirical risk": lambda risks, _: risks.min(axis=1),
    "the same, to 1/sqrt(n)": lambda risks, _: np.round(risks.min(axis=1) / STEP) * STEP,
    "always 1/2": lambda risks, _: np.full(len(risks), 0.5),
    "always 1/2 - epsilon/2": lambda risks, epsilon: np.full(len(risks), 0.5 - epsilon / 2),
    "of the likelier world": likelier,
}


def worlds(k: int, repetitions: int, rng: np.random.Generator) -> dict[float, np.ndarray]:
    """Return the empirical risks of k models by the least true risk of their world."""
    epsilon = 2.0 * lower_bound(N, k, WRONG)
    chances = np.full((repetitions, k), 0.5)
    fair = rng.binomial(N, chances) / N
    chances[np.arange(repetitions), rng.integers(0, k, repetitions)] -= epsilon
    return {0.5: fair, 0.5 - epsilon: rng.binomial(N, chances) / N}


def shares(k: int, repetitions: int, rng: np.random.Generator) -> list[tuple[object, ...]]:
    """Return a row of the table for each estimate."""
    bound = lower_bound(N, k, WRONG)
    held = worlds(k, repetitions, rng)
    rows: list[tuple[object, ...]] = []
    for name, estimate in ESTIMATES.items():
        errors = [np.abs(estimate(risks, 2 * bound) - least) for least, risks in held.items()]
        # An error of exactly epsilon/2 counts, up to the last digit.
        worse = max(float((error >= bound - 1e-12).mean()) for error in errors)
        mean = max(float(error.mean()) for error in errors)
        rows.append((name, k, bound, worse, mean / math.sqrt(math.log(k) / N)))
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    repetitions = QUICK if asked.quick else REPETITIONS
    rng = np.random.default_rng(asked.seed)
    print(f"n = {N}, {repetitions} repetitions; the worse of the two worlds")
    rows = [row for k in MODELS for row in shares(k, repetitions, rng)]
    heads = ("estimate", "k", "epsilon/2", "share of errors so large", "error/sqrt(ln k/n)")
    common.table(heads, rows)
    figure, (ax,) = common.panels()
    for colour, name in zip(common.COLOURS, ESTIMATES, strict=False):
        mine = [row for row in rows if row[0] == name]
        ax.plot(MODELS, [row[3] for row in mine], "o-", ms=4, color=colour, label=name)
    ax.axhline(WRONG, color=common.COLOURS[4], ls="--", lw=0.8)
    ax.set(xscale="log", xlabel="models", ylabel="share of errors of epsilon/2", ylim=(0, 1.05))
    figure.legend(frameon=False, fontsize="small", loc="outside upper center", ncols=2)
    common.write(figure, asked, "blum_hardt_lower_bound")


if __name__ == "__main__":
    main()
