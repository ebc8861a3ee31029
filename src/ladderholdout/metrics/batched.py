"""Scores under many weightings at once, where a matrix product or a running sum will do.

`weighted_many` says for each of the named metrics what its one-at-a-time form in the
neighbouring modules says, some ten to fifty times faster. Rounding differs in the last
digits; where a difference could matter, the one-at-a-time form decides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ladderholdout.metrics.evaluation import Array, FloatArray
from ladderholdout.metrics.ranking_scores import roc_auc
from ladderholdout.metrics.regression_scores import concordance, max_error, pearson, spearman
from ladderholdout.metrics.scores import Weighted

Many = Callable[[FloatArray], FloatArray]
# Below this share of the plain variance, moments have lost too many digits to cancellation.
_CANCELLED = 1e-6
# Weights in between two whole numbers mean little for ranks, and nothing for a maximum.
_OF_WHOLE_WEIGHTS = (spearman, max_error)


def needs_whole_weights(prepare: object) -> bool:
    """Return whether a score is about rows repeated whole times, so that it is resampled."""
    return prepare in _OF_WHOLE_WEIGHTS


def weighted_many(prepare: object, targets: Array, predictions: Array, single: Weighted) -> Many:
    """Return the score as a function of weights of shape (b, n).

    Parameters
    ----------
    prepare : callable
        What prepares the score for one weighting.
    targets, predictions : ndarray
        In canonical form.
    single : callable
        What ``prepare`` returned for them.

    Returns
    -------
    callable
        Returns (b,) scores, nan where a weighting has none.
    """
    if prepare is roc_auc:
        return _roc_auc(targets, predictions)
    if prepare in (pearson, concordance):
        return _of_moments(targets, predictions, single, _RATIOS[prepare])
    return one_by_one(single)


def one_by_one(single: Weighted) -> Many:
    """Return the loop over a score that knows one weighting at a time."""
    return lambda weights: np.array([single(row) for row in weights], dtype=np.float64)


def influences(prepare: object, targets: Array, predictions: Array) -> FloatArray | None:
    """Return what a little more weight of each row does to a score: its influence function.

    Parameters
    ----------
    prepare : callable
        What prepares the score for one weighting.
    targets, predictions : ndarray
        In canonical form.

    Returns
    -------
    ndarray of shape (n,) or None
        Of mean 0. None for scores whose influences are not known here, or not finite.
    """
    if prepare not in _INFLUENCES:
        return None
    values = _INFLUENCES[prepare](targets, predictions)
    return values if np.isfinite(values).all() else None


def _roc_auc_influences(targets: Array, scores: Array) -> FloatArray:
    """Return placement values (DeLong et al. 1988): how much of the other class a row beats."""
    positive = targets == 1
    mine, others = np.sort(scores[positive]), np.sort(scores[~positive])

    def beaten(rows: Array, by: Array) -> FloatArray:
        least, most = np.searchsorted(rows, by, "left"), np.searchsorted(rows, by, "right")
        return np.asarray((least + most) / (2 * len(rows)))

    values = np.empty(len(targets))
    values[positive] = beaten(others, scores[positive])
    values[~positive] = 1 - beaten(mine, scores[~positive])
    sizes = np.where(positive, len(mine), len(others))
    return np.asarray((values - values[positive].mean()) * len(targets) / sizes)


def _pearson_influences(x: FloatArray, y: FloatArray) -> FloatArray:
    u, v = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    return np.asarray(u * v - (u * v).mean() * (u**2 + v**2) / 2)


def _concordance_influences(x: FloatArray, y: FloatArray) -> FloatArray:
    """Differentiate twice the covariance over the sum of variances and squared shift."""
    scale = x.std()
    u, v, shift = (x - x.mean()) / scale, (y - y.mean()) / scale, (y - x).mean() / scale
    spreads = u**2 + v**2 + 2 * shift * (v - u)
    spread = spreads.mean() + shift**2
    ratio = 2 * (u * v).mean() / spread
    return np.asarray((2 * (u * v - (u * v).mean()) - ratio * (spreads - spreads.mean())) / spread)


def _roc_auc(targets: Array, scores: Array) -> Many:
    """Prepare the Mann-Whitney statistic: for each positive the negatives below it."""
    positive, negative = np.flatnonzero(targets == 1), np.flatnonzero(targets == 0)
    # In the order of the scores, so that memory is read from front to back.
    positive = positive[np.argsort(scores[positive], kind="stable")]
    negative = negative[np.argsort(scores[negative], kind="stable")]
    least = np.searchsorted(scores[negative], scores[positive], side="left")
    most = np.searchsorted(scores[negative], scores[positive], side="right")
    tied = bool((least < most).any())

    def many(weights: FloatArray) -> FloatArray:
        up = np.take(weights, positive, axis=1)
        below = np.zeros((len(weights), len(negative) + 1))
        np.cumsum(np.take(weights, negative, axis=1), axis=1, out=below[:, 1:])
        beaten = np.take(below, least, axis=1)
        if tied:
            beaten = (beaten + np.take(below, most, axis=1)) / 2
        wins = np.einsum("ij,ij->i", up, beaten)
        return np.asarray(wins / (up.sum(axis=1) * below[:, -1]))

    return many


def _of_moments(
    x: FloatArray, y: FloatArray, single: Weighted, ratio: Callable[..., FloatArray]
) -> Many:
    """Prepare a score of two columns' weighted means, variances and covariance."""
    centre, scale = float(x.mean()), float(x.std()) or 1.0
    u, v = (x - centre) / scale, (y - centre) / scale
    columns = np.column_stack([np.ones(len(u)), u, v, u * u, v * v, u * v])
    least = _CANCELLED * u.var(), _CANCELLED * (v.var() + v.mean() ** 2)

    def many(weights: FloatArray) -> FloatArray:
        sums = weights @ columns
        mean_u, mean_v, uu, vv, uv = sums[:, 1:].T / sums[:, 0]
        var_u, var_v, cov = uu - mean_u**2, vv - mean_v**2, uv - mean_u * mean_v
        scores = ratio(mean_u - mean_v, var_u, var_v, cov)
        doubtful = ~((var_u > least[0]) & (var_v > least[1]))
        if doubtful.any():
            scores[doubtful] = one_by_one(single)(weights[doubtful])
        return scores

    return many


def _correlation(
    shift: FloatArray, var_u: FloatArray, var_v: FloatArray, cov: FloatArray
) -> FloatArray:
    return np.asarray(np.clip(cov / np.sqrt(var_u * var_v), -1.0, 1.0))


def _concordance(
    shift: FloatArray, var_u: FloatArray, var_v: FloatArray, cov: FloatArray
) -> FloatArray:
    return np.asarray(2 * cov / (var_u + var_v + shift**2))


_RATIOS = {pearson: _correlation, concordance: _concordance}
_INFLUENCES: dict[object, Callable[[Array, Array], FloatArray]] = {
    roc_auc: _roc_auc_influences,
    pearson: _pearson_influences,
    concordance: _concordance_influences,
}
