"""Scores under many weightings at once, where a matrix product or a running sum will do.

`weighted_many` computes for each of the named metrics what its one-at-a-time form in the
neighbouring modules does, some two to fifty times faster. Rounding differs in the last
digits; where a difference could matter, the one-at-a-time form decides. How much work it is
depends on the predictions alone, and not on how well they agree with the targets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ladderholdout.metrics import scores as of
from ladderholdout.metrics.arrays import Array, FloatArray, IntArray

Many = Callable[[FloatArray], FloatArray]
# Of all rows, by how much a tally is moved for a derivative.
_DIFFERENCE = 1e-6
# Below this share of the plain variance, moments have lost too many digits to cancellation.
_CANCELLED = 1e-6
# Weights in between two whole numbers mean little for ranks, and nothing for a maximum.
_OF_WHOLE_WEIGHTS = (of.spearman, of.max_error)


def needs_whole_weights(prepare: object) -> bool:
    """Return whether a score is about rows repeated whole times, so that it is resampled."""
    return prepare in _OF_WHOLE_WEIGHTS


def weighted_many(prepare: object, targets: Array, predictions: Array, single: of.Weighted) -> Many:
    """Return the score as a function of weights (b, n), nan where a weighting has none.

    ``single`` is what ``prepare`` returned for these targets and predictions.
    """
    if isinstance(prepare, of.Tallied):
        tally = of.tallies(targets, predictions)
        return lambda weights: prepare.of_tally(*tally(weights))
    if prepare in _RATIOS:
        return _of_moments(targets, predictions, single, _RATIOS[prepare])
    if prepare in (of.r2, of.explained_variance):
        return _explained(targets, predictions, single, shifted=prepare is of.r2)
    if prepare in _RUNNING:
        return _RUNNING[prepare](targets, predictions)
    return one_by_one(single)


def one_by_one(single: of.Weighted) -> Many:
    """Return the loop over a score that knows one weighting at a time."""
    return lambda weights: np.array([single(row) for row in weights], dtype=np.float64)


def influences(prepare: object, targets: Array, predictions: Array) -> FloatArray | None:
    """Return what a little more weight of each row does to a score: its influence function.

    Of mean 0; None for scores whose influences are not known here, or not finite.
    """
    if isinstance(prepare, of.Tallied):
        values = _tallied_influences(prepare.of_tally, targets, predictions)
    elif prepare in _INFLUENCES:
        values = _INFLUENCES[prepare](targets, predictions)
    else:
        return None
    return values if np.isfinite(values).all() else None


def _tallied_influences(
    score: Callable[..., FloatArray], targets: Array, predictions: Array
) -> FloatArray:
    """Differentiate a score by each tally, numerically: a row adds to three of them at most."""
    labels, guesses, hit, size = of.coded(targets, predictions)
    sums = [np.bincount(labels, hit, size), np.bincount(labels, minlength=size)]
    counts = np.concatenate([*sums, np.bincount(guesses, minlength=size)]).astype(np.float64)
    step = _DIFFERENCE * len(labels) * np.eye(len(counts))
    above, below = (score(*np.split(counts + change, 3, axis=1)) for change in (step, -step))
    # To a tally of nothing no row adds.
    slopes = np.where(counts > 0, (above - below) / (2 * _DIFFERENCE), 0.0)
    values = hit * slopes[labels] + slopes[size + labels] + slopes[2 * size + guesses]
    return np.asarray(values - values.mean())


def _roc_auc_influences(targets: Array, scores: Array) -> FloatArray:
    """Return placement values (DeLong et al. 1988): how much of the other class a row beats."""
    positive = targets == 1
    positives, negatives = np.sort(scores[positive]), np.sort(scores[~positive])

    def beaten(rows: Array, by: Array) -> FloatArray:
        least, most = np.searchsorted(rows, by, "left"), np.searchsorted(rows, by, "right")
        return np.asarray((least + most) / (2 * len(rows)))

    values = np.empty(len(targets))
    values[positive] = beaten(negatives, scores[positive])
    values[~positive] = 1 - beaten(positives, scores[~positive])
    sizes = np.where(positive, len(positives), len(negatives))
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


def _taken(rows: FloatArray, places: IntArray) -> FloatArray:
    """Return these columns; "clip" spares a check, as all places are there."""
    return np.take(rows, places, axis=1, mode="clip")


def _roc_auc(targets: Array, scores: Array) -> Many:
    """Prepare the Mann-Whitney statistic: for each positive the negatives below it."""
    positive, negative = np.flatnonzero(targets == 1), np.flatnonzero(targets == 0)
    # In the order of the scores, so that memory is read from front to back.
    positive = positive[np.argsort(scores[positive], kind="stable")]
    negative = negative[np.argsort(scores[negative], kind="stable")]
    least = np.searchsorted(scores[negative], scores[positive], side="left")
    most = np.searchsorted(scores[negative], scores[positive], side="right")
    # Ties of any rows, whatever their classes: time would reveal if two tied ones are alike.
    tied = len(np.unique(scores)) < len(scores)

    def many(weights: FloatArray) -> FloatArray:
        up = _taken(weights, positive)
        below = np.zeros((len(weights), len(negative) + 1))
        np.cumsum(_taken(weights, negative), axis=1, out=below[:, 1:])
        beaten = _taken(below, least)
        if tied:
            beaten = (beaten + _taken(below, most)) / 2
        wins = np.einsum("ij,ij->i", up, beaten)
        return np.asarray(wins / (up.sum(axis=1) * below[:, -1]))

    return many


def _average_precision(targets: Array, scores: Array) -> Many:
    """Prepare the sum of precisions over the steps of recall, from running sums."""
    order = np.argsort(-scores, kind="stable")
    positive, groups = (targets == 1)[order], scores[order]
    ends = np.append(np.flatnonzero(groups[1:] != groups[:-1]), len(order) - 1)

    def many(weights: FloatArray) -> FloatArray:
        ranked = _taken(weights, order)
        seen = _taken(np.cumsum(ranked, axis=1), ends)
        hits = _taken(np.cumsum(ranked * positive, axis=1), ends)
        precisions = hits / np.where(seen > 0, seen, 1.0)
        # Each step of recall counts with the precision where it ends.
        total = hits[:, 0] * precisions[:, 0]
        total += np.einsum("ij,ij->i", np.diff(hits, axis=1), precisions[:, 1:])
        return np.asarray(total / hits[:, -1])

    return many


def _explained(targets: Array, predictions: Array, single: of.Weighted, *, shifted: bool) -> Many:
    """Prepare r2, where a shift of all predictions counts, or the explained variance."""
    y, residual = of.columns(targets), of.columns(targets - predictions)
    y, scale = y - y.mean(axis=0), np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)
    y, residual = y / scale, residual / scale
    shift = np.zeros(y.shape[1]) if shifted else residual.mean(axis=0)
    residual = residual - shift
    sums_of = np.hstack([np.ones((len(y), 1)), y, y**2, residual, residual**2])
    least = _CANCELLED * y.var(axis=0), _CANCELLED * residual.var(axis=0)

    def many(weights: FloatArray) -> FloatArray:
        sums = weights @ sums_of
        moments = np.split(sums[:, 1:] / sums[:, :1], 4, axis=1)
        spread = moments[1] - moments[0] ** 2
        left = moments[3] - (0.0 if shifted else moments[2] ** 2)
        scores = of.explained(left, spread)
        doubtful = ~((spread > least[0]) & (left > least[1])).all(axis=1)
        if doubtful.any():
            scores[doubtful] = one_by_one(single)(weights[doubtful])
        return scores

    return many


def _max_error(targets: Array, predictions: Array) -> Many:
    errors = np.abs(targets - predictions)
    return lambda weights: -np.where(weights > 0, errors, 0.0).max(axis=1)


def _spearman(targets: Array, predictions: Array) -> Many:
    """Prepare the correlation of ranks, whose mean is half of the weight."""
    sides = [_ranking(targets), _ranking(predictions)]

    def many(weights: FloatArray) -> FloatArray:
        (first, varies), (second, differs) = (side(weights) for side in sides)
        cov = np.einsum("ij,ij,ij->i", weights, first, second)
        var = [np.einsum("ij,ij,ij->i", weights, ranks, ranks) for ranks in (first, second)]
        scores = np.clip(cov / np.sqrt(var[0] * var[1]), -1.0, 1.0)
        return np.where(varies, np.where(differs, scores, 0.0), np.nan)

    return many


def _ranking(
    values: Array,
) -> Callable[[FloatArray], tuple[FloatArray, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]]:
    """Return weighted ranks less half of the weight, and whether there are two of them."""
    groups, size = of.tie_groups(values)
    order: IntArray = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(size))

    def ranked(
        weights: FloatArray,
    ) -> tuple[FloatArray, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
        counts = np.add.reduceat(_taken(weights, order), starts, axis=1)
        running = np.cumsum(counts, axis=1)
        ranks = running - counts / 2 - running[:, -1:] / 2
        return _taken(ranks, groups), (counts > 0).sum(axis=1) > 1

    return ranked


def _of_moments(
    x: FloatArray, y: FloatArray, single: of.Weighted, ratio: Callable[..., FloatArray]
) -> Many:
    """Prepare a score of two columns' weighted means, variances and covariance."""
    centre, scale = float(x.mean()), float(x.std()) or 1.0
    u, v = (x - centre) / scale, (y - centre) / scale
    sums_of = np.column_stack([np.ones(len(u)), u, v, u * u, v * v, u * v])
    least = _CANCELLED * u.var(), _CANCELLED * (v.var() + v.mean() ** 2)

    def many(weights: FloatArray) -> FloatArray:
        sums = weights @ sums_of
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


_RATIOS: dict[object, Callable[..., FloatArray]] = {
    of.pearson: _correlation,
    of.concordance: _concordance,
}
_RUNNING: dict[object, Callable[[Array, Array], Many]] = {
    of.roc_auc: _roc_auc,
    of.average_precision: _average_precision,
    of.max_error: _max_error,
    of.spearman: _spearman,
}
_INFLUENCES: dict[object, Callable[[Array, Array], FloatArray]] = {
    of.roc_auc: _roc_auc_influences,
    of.pearson: _pearson_influences,
    of.concordance: _concordance_influences,
}
