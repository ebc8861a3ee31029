"""Scores of predicted labels, from hits, true and predicted weight of each class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ladderholdout.metrics.evaluation import Array, FloatArray
from ladderholdout.metrics.scores import Weighted, divided, totals

Ratio = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def _tally(
    targets: Array, predictions: Array
) -> Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]:
    size = 1 + max(1, int(targets.max()), int(predictions.max()))
    hit = np.flatnonzero(targets == predictions)
    labels, guesses = targets.astype(np.intp), predictions.astype(np.intp)

    def weighted(weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return (
            totals(labels[hit], weights[hit], size),
            totals(labels, weights, size),
            totals(guesses, weights, size),
        )

    return weighted


def precision(
    hits: FloatArray, true: FloatArray, guessed: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return numerator and denominator of the precision."""
    return hits, guessed


def recall(
    hits: FloatArray, true: FloatArray, guessed: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return numerator and denominator of the recall."""
    return hits, true


def f1(hits: FloatArray, true: FloatArray, guessed: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return numerator and denominator of the F1 score."""
    return 2 * hits, true + guessed


def jaccard(
    hits: FloatArray, true: FloatArray, guessed: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return numerator and denominator of the Jaccard index."""
    return hits, true + guessed - hits


@dataclass(frozen=True, slots=True)
class Averaged:
    """A ratio of each class, averaged over the classes.

    Parameters
    ----------
    ratio : callable
        Numerator and denominator from hits, true and predicted weight of each class.
    average : {"binary", "macro", "micro", "weighted"}
        As in scikit-learn; "binary" is the second of two classes.
    """

    ratio: Ratio
    average: str

    def __call__(self, targets: Array, predictions: Array) -> Weighted:
        """Prepare the score."""
        tally = _tally(targets, predictions)
        return lambda weights: self._averaged(*tally(weights))

    def _averaged(self, hits: FloatArray, true: FloatArray, guessed: FloatArray) -> float:
        numerator, denominator = self.ratio(hits, true, guessed)
        if self.average == "micro":
            return float(numerator.sum() / denominator.sum())
        ratios = divided(numerator, denominator)
        if self.average == "binary":
            return float(ratios[1])
        share = true if self.average == "weighted" else np.sign(true + guessed)
        return float((ratios * share).sum() / share.sum())


def balanced_accuracy(targets: Array, predictions: Array) -> Weighted:
    """Prepare the mean recall over the classes that occur."""
    tally = _tally(targets, predictions)

    def weighted(weights: FloatArray) -> float:
        hits, true, _ = tally(weights)
        return float(divided(hits, true).sum() / np.count_nonzero(true))

    return weighted


def matthews(targets: Array, predictions: Array) -> Weighted:
    """Prepare Matthews' correlation coefficient for any number of classes (Gorodkin 2004)."""
    tally = _tally(targets, predictions)

    def weighted(weights: FloatArray) -> float:
        hits, true, guessed = tally(weights)
        total = guessed.sum()
        both = hits.sum() * total - (true * guessed).sum()
        spread = _unlike(true) * _unlike(guessed)
        return float(both / np.sqrt(spread)) if spread > 0 else 0.0

    return weighted


def _unlike(weights: FloatArray) -> float:
    """Return the weight of ordered pairs of two classes: exactly 0 if there is one class."""
    return float((weights * (weights.sum() - weights)).sum())
