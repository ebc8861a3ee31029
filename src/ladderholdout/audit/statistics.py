"""Tests of releases, their correction, and the leaderboard error: pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtr


def improvement_p(gain: float, spread: float, n: int) -> float:
    """Return the p-value of a paired t-test for "no better than the incumbent".

    Blum & Hardt 2015, Section 4.1: heuristic as soon as a submission was chosen with the
    help of earlier answers, and in need of a correction where many are tested.

    Parameters
    ----------
    gain : float
        Risk of the incumbent minus that of the submission.
    spread : float
        Standard error of the mean difference of their losses.
    n : int
        Number of rows.

    Returns
    -------
    float
        One-sided.

    Examples
    --------
    >>> round(improvement_p(0.02, 0.01, 1000), 4)
    0.0229
    """
    if n < 2 or not math.isfinite(spread):
        return 1.0
    if spread == 0:
        return 0.0 if gain > 0 else 1.0
    return float(stdtr(n - 1, -gain / spread))


def spread_of_labels(disagreement: float, gain: float, n: int) -> float:
    """Return the spread of `improvement_p` for the accuracy, from the labels that differ.

    With two classes exactly one of two labels that differ is right, so the share of rows in
    which the losses differ is the disagreement; with more classes it is less, and the spread
    that comes out is too large rather than too small.

    Parameters
    ----------
    disagreement : float
        Share of the rows in which the labels differ.
    gain : float
        Difference of the two risks.
    n : int
        Number of rows.

    Returns
    -------
    float

    Examples
    --------
    >>> losses = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 0]])
    >>> exact = np.std(losses[0] - losses[1], ddof=1) / np.sqrt(5)
    >>> bool(np.isclose(spread_of_labels(3 / 5, 1 / 5, 5), exact))
    True
    """
    return math.sqrt(max(disagreement - gain**2, 0.0) / (n - 1)) if n > 1 else math.inf


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for being many, by Holm's procedure (1979).

    Parameters
    ----------
    p_values : sequence of float
        All tests that were made.

    Returns
    -------
    list of float
        In the same order, each compared with the level itself.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    corrected = np.empty_like(p)
    corrected[order] = adjusted
    return [float(one) for one in corrected]


def leaderboard_error(true: Sequence[float], stated: Sequence[float]) -> float:
    """Return how far the stated best score was ever from the best true one.

    Blum & Hardt 2015, Section 2.1, in scores instead of losses.

    Parameters
    ----------
    true : sequence of float
        True score of each submission.
    stated : sequence of float
        The score that stood after each.

    Returns
    -------
    float
        Largest distance of a stated score from the best true score up to there.

    Examples
    --------
    >>> leaderboard_error([0.5, 0.7, 0.6], [0.5, 0.5, 0.8])
    0.2
    """
    best = np.maximum.accumulate(np.asarray(true, dtype=np.float64))
    return plain(float(np.max(np.abs(best - np.asarray(stated, dtype=np.float64)))))


def plain(difference: float) -> float:
    """Return a difference of scores without the noise of its last binary digits.

    Examples
    --------
    >>> 0.9 - 0.7, plain(0.9 - 0.7)
    (0.20000000000000007, 0.2)
    """
    return float(f"{difference:.12g}")
