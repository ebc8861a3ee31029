"""The majority attack of Hardt 2017, Appendix B: on noisy answers, without a mechanism.

The answer to a query of signs is its correlation with the hidden signs, plus Gaussian noise.
The vote takes each query with the sign of its answer. In these units the chance of an answer
is 1/sqrt(n), and noise of c/sqrt(n) is noise of c/(2 sqrt(n)) in a risk.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

N = 1000  # the text does not say; only the ratio of queries to n matters
REPETITIONS, QUICK = 100, 10


def errors(
    seed: np.random.SeedSequence, queries: tuple[int, ...], levels: tuple[float, ...]
) -> NDArray[np.float64]:
    """Return the share of wrong signs in the vote, by noise (in 1/sqrt(n)) and queries.

    All see the same queries, in one order.
    """
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 2, N).astype(np.float32) * 2 - 1
    asked = rng.integers(0, 2, (max(queries), N), dtype=np.int8).astype(np.float32) * 2 - 1
    correlations = asked @ hidden / N
    noise = rng.normal(size=len(asked)) / math.sqrt(N)
    found = np.empty((len(levels), len(queries)))
    for place, level in enumerate(levels):
        signed = np.where(correlations + level * noise > 0, 1, -1)[:, None] * asked
        weights = np.zeros(N)
        for column, (start, end) in enumerate(zip((0, *queries), queries, strict=False)):
            weights += signed[start:end].sum(axis=0)
            found[place, column] = np.mean(np.where(weights < 0, -1, 1) != hidden)
    return found


def foretold(queries: int, level: float) -> float:
    """Return what the errors come to by the normal approximation."""
    return float(ndtr(-math.sqrt(2 / math.pi) * math.sqrt(queries / N / (1 + level**2))))
