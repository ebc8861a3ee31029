"""What the extracted texts of the papers say that cannot be meant, and how one can tell.

    python benchmarks/papers/errors_in_the_texts.py [--quick]

Hardt 2017, Figure 1: sigma = sqrt(log(1/delta)/(epsilon n)) as extracted, against
sqrt(log(1/delta))/(epsilon n). With Equation (2) the second gives the rate n^(-2/5) of
Theorem 2.7, the first does not; and at practical n either makes the margin lambda larger than
any risk.

Neto et al. 2016: c_alpha as the alpha quantile of a t distribution, against the upper one.
With the first a submission that is no better is released with a chance of 1 - alpha instead
of alpha; with the second, alpha = 0.15 is nearly the parameter-free Ladder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import _common as common
import numpy as np
from scipy.special import stdtrit

K, BETA = 1000, 0.05
SIZES = (10**3, 10**4, 10**6, 10**8, 10**10)
ALPHAS = (0.01, 0.05, 0.15, 0.5)
ROWS, PAIRS, QUICK = 1000, 20_000, 2_000


def margin(n: int, sigma: Callable[[float, float, int], float]) -> float:
    """Return lambda of Hardt's Equation (2) for a reading of sigma."""
    root = math.sqrt(math.log(K * n / BETA))  # of log(1/delta)
    epsilon = (math.log(K / BETA) * root / n) ** 0.6
    return 4.0 * math.log(4.0 * K / BETA) * sigma(root, epsilon, n)


READINGS: dict[str, Callable[[float, float, int], float]] = {
    "sqrt(log(1/delta)/(epsilon n))": lambda root, epsilon, n: root / math.sqrt(epsilon * n),
    "sqrt(log(1/delta))/(epsilon n)": lambda root, epsilon, n: root / (epsilon * n),
}


def shaky() -> dict[str, list[float]]:
    """Print lambda by n for both readings, and the exponent of n between the last two."""
    margins = {name: [margin(n, sigma) for n in SIZES] for name, sigma in READINGS.items()}
    print(f"Shaky Ladder, lambda at k = {K}, beta = {BETA}")
    rows = []
    for name, values in margins.items():
        slope = math.log(values[-1] / values[-2]) / math.log(SIZES[-1] / SIZES[-2])
        rows.append((name, *values, slope))
    common.table(("sigma", *(f"n = {n:.0e}" for n in SIZES), "exponent"), rows)
    return margins


def released(factor: float, means: np.ndarray, errors: np.ndarray) -> float:
    """Return how often a mean difference is below so many standard errors."""
    return float((means < -factor * errors).mean())


def paired(pairs: int, rng: np.random.Generator) -> None:
    """Print how often the test fires for equally good models, with either quantile."""
    # Rows on which only the incumbent errs, only the newcomer, and the others.
    mended, broken, _ = rng.multinomial(ROWS, [0.1, 0.1, 0.8], size=pairs).T
    means = (broken - mended) / ROWS
    errors = np.sqrt(((mended + broken) / ROWS - means**2) / (ROWS - 1))
    rows = []
    for alpha in ALPHAS:
        lower = float(stdtrit(ROWS - 1, alpha))
        tests = (released(factor, means, errors) for factor in (lower, -lower))
        rows.append((alpha, lower, *tests))
    rows.append((math.nan, 1.0, math.nan, released(1.0, means, errors)))
    print(f"\nPaired test, {pairs} pairs of equally good models on {ROWS} rows: share released")
    heads = ("alpha", "alpha quantile", "c = alpha quantile", "c = upper quantile")
    common.table(heads, rows)
    print("(the last line: a factor of 1, the parameter-free Ladder)")


def main(argv: Sequence[str] | None = None) -> None:
    asked = common.options(__doc__, argv)
    margins = shaky()
    paired(QUICK if asked.quick else PAIRS, np.random.default_rng(asked.seed))
    figure, (ax,) = common.panels()
    for colour, (name, values) in zip(common.COLOURS, margins.items(), strict=False):
        ax.plot(SIZES, values, "o-", ms=4, color=colour, label=name)
    ax.axhline(1.0, color=common.COLOURS[4], ls="--", lw=0.8)
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="margin lambda")
    figure.legend(frameon=False, fontsize="small", loc="outside upper center")
    common.write(figure, asked, "errors_in_the_texts")


if __name__ == "__main__":
    main()
