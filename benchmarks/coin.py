"""What would a coin make of the certificate of an AUC? Decision 62.

The randomised Markov inequality (Ramdas & Manole 2023, Theorem 1.2) rejects where the capital
reaches U exp(T) for a uniform number U that has nothing to do with the rows. Printed are the mean
half-width at small L with and without the coin, that of one coin in twenty on each side, and how
often an interval of 90 % misses whose coin is the smallest of some: a holdout that is registered
again under another secret has another coin.

    python benchmarks/coin.py [--draws 300]
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy.stats import norm

from ladderholdout.certificates.matchings import auc_limits

CASES = ((0.9, 0.5), (0.75, 0.5), (0.9, 0.12))
PRICES = (math.log(2.0), 1.5, 3.4)
COINS = (1, 5, 20)
LEAST = 1e-3


def drawn(area: float, share: float, n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    y = np.arange(n) < round(share * n)
    scores = rng.normal(size=n) + y * math.sqrt(2.0) * norm.ppf(area)
    return scores[y], scores[~y]


def half(sample: tuple[np.ndarray, ...], target: float) -> float:
    """Return the half-width; at a target of 0 or less everything is rejected."""
    if target <= LEAST:
        return 0.0
    found = auc_limits(*sample, -target)
    return (found.high - found.low) / 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=300)
    draws = parser.parse_args().draws
    print("AUC  share     n     L   today   coin  change   5 %   95 % of coins")
    for area, share in CASES:
        for n in (200, 1000):
            for price in PRICES:
                rng, target = np.random.default_rng(n), price + math.log(40.0)
                samples = [drawn(area, share, n, rng) for _ in range(max(draws // 20, 4))]
                today = np.mean([half(one, target) for one in samples])
                coins = (np.arange(20) + 0.5) / 20
                widths = np.array(
                    [[half(one, target + math.log(u)) for u in coins] for one in samples]
                ).mean(axis=0)
                print(
                    f"{area:4} {share:5} {n:6} {price:5.2f} {today:7.3f}{widths.mean():7.3f}"
                    f" {100 * (widths.mean() / today - 1):+6.0f} %"
                    f"{widths[0]:6.3f}{widths[-1]:7.3f}",
                    flush=True,
                )
    print("\nmisses of an interval of 90 %, in %, AUC .75, share .5, n = 200:")
    missed, rng = np.zeros(1 + len(COINS)), np.random.default_rng(1)
    for _ in range(draws):
        sample, tosses = drawn(0.75, 0.5, 200, rng), rng.random(max(COINS))
        least = [1.0, *(tosses[:count].min() for count in COINS)]
        for place, u in enumerate(least):
            target = math.log(20.0) + math.log(u)
            found = None if target <= LEAST else auc_limits(*sample, -target)
            missed[place] += found is None or not found.low <= 0.75 <= found.high
    for name, count in zip(("today", *(f"best of {c} coins" for c in COINS)), missed, strict=True):
        print(f"{name:18}{100 * count / draws:6.1f}")


if __name__ == "__main__":
    main()
