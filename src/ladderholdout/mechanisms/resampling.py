"""The frequentist bootstrap: a mechanism's noise, as large as the holdout is small."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics import Evaluation

FloatArray = NDArray[np.float64]
# Numbers in one chunk of weights: half a MB, so that a handful of such arrays stays in the cache,
# and a product with a few columns is too small for BLAS to wake up other threads.
CHUNK = 2**16
# So often a resample on which the metric has no value is replaced by another.
_ATTEMPTS = 100


def bootstrap_mean(evaluation: Evaluation, replications: int, rng: np.random.Generator) -> float:
    """Return the mean risk over bootstrap replications of the holdout.

    Neto et al. 2016, Algorithms 4 and 6, lines 12 and 13. The mean of b means of n draws is
    the mean of b n draws: for means of losses one multinomial number of draws of each loss,
    and one binomial number where there are two losses only.

    Parameters
    ----------
    evaluation : Evaluation
        A submission.
    replications : int
        How many resamples of n examples, with replacement.
    rng : numpy.random.Generator
        Source of the resamples.

    Returns
    -------
    float
        In the unit of the risk.

    Raises
    ------
    InvalidArgument
        If the metric has no value on nearly any resample.

    Examples
    --------
    >>> evaluation = Evaluation.from_losses([0, 1, 0, 0])
    >>> bootstrap_mean(evaluation, 10, np.random.default_rng(0))
    0.275
    """
    if evaluation.losses is not None:
        return _mean_of_draws(evaluation.losses, replications * evaluation.n, rng)
    total, found = 0.0, 0
    for _ in range(_ATTEMPTS):
        for count in chunks(replications - found, evaluation.n):
            risks = evaluation.risks_under(resamples(count, evaluation.n, rng))
            defined = risks[np.isfinite(risks)]
            total, found = total + float(defined.sum()), found + len(defined)
    if not found:
        raise InvalidArgument(
            "mechanism",
            "one without a bootstrap, where the metric has no value on nearly any resample",
            "one that bootstraps",
            "Take BayesBootLadder.",
        )
    return total / found


def resamples(count: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Return how often each of n examples occurs in resamples of the holdout.

    Parameters
    ----------
    count : int
        Number of resamples.
    n : int
        Number of examples.
    rng : numpy.random.Generator
        Source of the draws.

    Returns
    -------
    ndarray of shape (count, n)
        Whole numbers; each row adds up to n.

    Examples
    --------
    >>> resamples(2, 3, np.random.default_rng(0))
    array([[0., 2., 1.],
           [3., 0., 0.]])
    """
    drawn = rng.integers(0, n, (count, n))
    # Each row counts into places of its own.
    drawn += n * np.arange(count)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=count * n)
    return counts.reshape(count, n).astype(np.float64)


def chunks(total: int, n: int) -> Iterator[int]:
    """Split a number of draws of n weights so that each part fits into the memory.

    Parameters
    ----------
    total : int
        Number of draws.
    n : int
        Number of weights in one.

    Yields
    ------
    int
        Sizes of the parts, at least 1.

    Examples
    --------
    >>> list(chunks(5, n=2**15))
    [2, 2, 1]
    """
    size = max(1, CHUNK // n)
    for start in range(0, total, size):
        yield min(size, total - start)


def _mean_of_draws(losses: FloatArray, draws: int, rng: np.random.Generator) -> float:
    low, high = float(losses.min()), float(losses.max())
    above = losses == high
    if (losses[~above] == low).all():
        share = float(rng.binomial(draws, above.mean())) / draws
        return low + (high - low) * share
    counts = rng.multinomial(draws, np.full(len(losses), 1.0 / len(losses)))
    return float((counts * losses).sum()) / draws
