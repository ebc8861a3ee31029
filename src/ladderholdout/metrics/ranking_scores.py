"""Scores of a ranking: ties are found once, pairs are weighed for each weighting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ladderholdout.metrics.evaluation import Array, FloatArray, IntArray
from ladderholdout.metrics.scores import Weighted, divided, tie_groups, totals


def _concordant(positive: FloatArray, negative: FloatArray) -> float:
    """Return the weight of pairs in the right order, ties counting half, from group weights."""
    below = np.cumsum(negative) - negative / 2
    return float((positive * below).sum())


def roc_auc(targets: Array, scores: Array) -> Weighted:
    """Prepare the area under the ROC curve as the Mann-Whitney statistic."""
    groups, size = tie_groups(scores)
    positive, negative = np.flatnonzero(targets == 1), np.flatnonzero(targets == 0)

    def weighted(weights: FloatArray) -> float:
        up = totals(groups[positive], weights[positive], size)
        down = totals(groups[negative], weights[negative], size)
        return float(_concordant(up, down) / (up.sum() * down.sum()))

    return weighted


@dataclass(frozen=True, slots=True)
class MulticlassAuc:
    """Area under the ROC curve of class probabilities, averaged over classes or pairs.

    Parameters
    ----------
    pairs : bool
        Average over pairs of classes (Hand & Till 2001), else over each class against
        the rest.
    by_prevalence : bool
        Weigh each class or pair by its share of the rows.
    """

    pairs: bool
    by_prevalence: bool

    def __call__(self, targets: Array, probabilities: Array) -> Weighted:
        """Prepare the score."""
        n_classes = probabilities.shape[1]
        if n_classes == 2:
            return roc_auc(targets, probabilities[:, 1])
        rows = [np.flatnonzero(targets == code) for code in range(n_classes)]
        columns = [tie_groups(column) for column in probabilities.T]
        average = self._over_pairs if self.pairs else self._over_classes

        def weighted(weights: FloatArray) -> float:
            mass = np.array([weights[members].sum() for members in rows])
            return average(_wins(weights, rows, columns), mass)

        return weighted

    def _over_classes(self, wins: FloatArray, mass: FloatArray) -> float:
        areas = wins.sum(axis=1) / (mass * (mass.sum() - mass))
        if not self.by_prevalence:
            return float(areas.mean())
        return float((np.where(mass > 0, areas, 0.0) * mass).sum() / mass.sum())

    def _over_pairs(self, wins: FloatArray, mass: FloatArray) -> float:
        first, second = np.triu_indices(len(mass), k=1)
        areas = (wins + wins.T)[first, second] / (2 * mass[first] * mass[second])
        if not self.by_prevalence:
            return float(areas.mean())
        share = mass[first] + mass[second]
        return float((areas * share).sum() / share.sum())


def _wins(
    weights: FloatArray, rows: list[IntArray], columns: list[tuple[IntArray, int]]
) -> FloatArray:
    """Return for classes (a, b) the weight of pairs that column a orders rightly."""
    wins = np.zeros((len(rows), len(rows)))
    for a, (groups, size) in enumerate(columns):
        counts = [totals(groups[members], weights[members], size) for members in rows]
        for b in range(len(rows)):
            wins[a, b] = _concordant(counts[a], counts[b]) if a != b else 0.0
    return wins


def average_precision(targets: Array, scores: Array) -> Weighted:
    """Prepare the sum of precisions over the steps of recall; ties are one threshold."""
    groups, size = tie_groups(-scores)
    positive = np.flatnonzero(targets == 1)

    def weighted(weights: FloatArray) -> float:
        found = totals(groups[positive], weights[positive], size)
        seen = np.cumsum(totals(groups, weights, size))
        precisions = divided(np.cumsum(found), seen)
        return float((precisions * found).sum() / found.sum())

    return weighted
