"""Losses of single examples, and scores that are no mean of losses.

All in plain NumPy, so that no warning and no autologging sees them. A loss takes canonical
targets and predictions and returns the (n,) losses, smaller is better; with several outputs
the loss of a row is the mean over its outputs. A score is split into a costly half, which is
prepared once, and one that is repeated for each weighting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from ladderholdout.metrics.arrays import Array, FloatArray, IntArray

Weighted = Callable[[FloatArray], float]
_EPSILON = float(np.finfo(np.float64).eps)


def zero_one(targets: Array, predictions: Array) -> FloatArray:
    """Return 1 for each wrong label."""
    return np.asarray(targets != predictions, dtype=np.float64)


def log_loss(targets: Array, predictions: Array) -> FloatArray:
    """Return minus the log of the probability given to the true class, clipped to epsilon.

    Those of less precision were clipped by their own (`arrays.canonical_probabilities`).
    """
    given = predictions[np.arange(len(targets)), targets]
    return np.asarray(-np.log(np.clip(given, _EPSILON, 1 - _EPSILON)))


def brier(targets: Array, predictions: Array) -> FloatArray:
    """Return the squared distance from the true corner of the simplex; halved for two classes.

    Source: Brier (1950), with the customary half for binary problems.
    """
    if predictions.shape[1] == 2:
        return np.asarray((targets - predictions[:, 1]) ** 2)
    given = predictions[np.arange(len(targets)), targets]
    squares = (predictions**2).sum(axis=1) - 2 * given + 1
    # Rows may sum to 1.001, and the range of the loss is a promise.
    return np.asarray(np.clip(squares, 0.0, 2.0))


def squared(targets: Array, predictions: Array) -> FloatArray:
    """Return squared errors."""
    return _over_outputs((targets - predictions) ** 2)


def squared_log(targets: Array, predictions: Array) -> FloatArray:
    """Return squared differences of log(1 + value)."""
    return squared(np.log1p(targets), np.log1p(predictions))


def absolute(targets: Array, predictions: Array) -> FloatArray:
    """Return absolute errors."""
    return _over_outputs(np.abs(targets - predictions))


def absolute_percentage(targets: Array, predictions: Array) -> FloatArray:
    """Return absolute errors relative to the target (1 is 100 %)."""
    scale = np.maximum(np.abs(targets), _EPSILON)
    return _over_outputs(np.abs(targets - predictions) / scale)


def poisson_deviance(targets: Array, predictions: Array) -> FloatArray:
    """Return unit deviances of the Poisson distribution."""
    # y log(y / p) goes to 0 with y.
    logs = np.log(np.where(targets > 0, targets / predictions, 1.0))
    return np.asarray(2 * (targets * logs - targets + predictions))


def gamma_deviance(targets: Array, predictions: Array) -> FloatArray:
    """Return unit deviances of the gamma distribution."""
    return np.asarray(2 * (np.log(predictions / targets) + targets / predictions - 1))


def _over_outputs(losses: Array) -> FloatArray:
    return losses if losses.ndim == 1 else np.asarray(losses.mean(axis=1))


@dataclass(frozen=True, slots=True)
class WeightedScore:
    """A score function with a preparation that every weighting shares.

    Parameters
    ----------
    prepare : callable
        ``prepare(targets, predictions)`` returns a function of the weights, shape (n,).
    """

    prepare: Callable[[Array, Array], Weighted]

    def __call__(
        self, targets: Array, predictions: Array, sample_weight: FloatArray | None = None
    ) -> float:
        """Return the score under one weighting."""
        weights = np.ones(len(targets)) if sample_weight is None else sample_weight
        return self.prepare(targets, predictions)(weights)


def totals(groups: IntArray, weights: FloatArray, size: int) -> FloatArray:
    """Return the summed weight of each group."""
    return np.bincount(groups, weights, size).astype(np.float64, copy=False)


def divided(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide, with 0 for a denominator of 0 (scikit-learn's zero_division)."""
    return np.divide(numerator, denominator, out=np.zeros(numerator.shape), where=denominator > 0)


def tie_groups(scores: Array) -> tuple[IntArray, int]:
    """Return for each score its place among the distinct ones, and how many those are."""
    values, groups = np.unique(scores, return_inverse=True)
    return groups, len(values)


Ratio = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def _tally(
    targets: Array, predictions: Array
) -> Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]:
    labels, guesses, hit, size = coded(targets, predictions)

    def weighted(weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        # Over all rows: how long it takes must not reveal how many are hit.
        return (
            totals(labels, weights * hit, size),
            totals(labels, weights, size),
            totals(guesses, weights, size),
        )

    return weighted


def tallies(
    targets: Array, predictions: Array
) -> Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]:
    """Return the same under weights of shape (b, n): arrays of shape (b, classes)."""
    labels, guesses, hit, size = coded(targets, predictions)
    columns, n = np.concatenate([labels, size + labels, 2 * size + guesses]), len(labels)
    values, rows = np.concatenate([hit, np.ones(2 * n)]), np.tile(np.arange(n), 3)
    adds = scipy.sparse.csr_array((values, (columns, rows)), shape=(3 * size, n))

    def weighted(weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        hits, true, guessed = np.split(np.asarray(adds @ weights.T).T, 3, axis=1)
        return hits, true, guessed

    return weighted


def coded(targets: Array, predictions: Array) -> tuple[IntArray, IntArray, FloatArray, int]:
    """Return labels, predicted labels, which are equal, and how many classes there may be."""
    size = 1 + max(1, int(targets.max()), int(predictions.max()))
    hit = np.asarray(targets == predictions, dtype=np.float64)
    return targets.astype(np.intp), predictions.astype(np.intp), hit, size


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
class FBeta:
    """The F score with another weight of the recall, as a ratio.

    Parameters
    ----------
    beta : float
        How many times as important recall is as precision.
    """

    beta: float

    def __call__(
        self, hits: FloatArray, true: FloatArray, guessed: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return numerator and denominator."""
        square = self.beta**2
        return (1.0 + square) * hits, square * true + guessed


class Tallied:
    """A score that follows from how often each class is there, predicted and hit."""

    __slots__ = ()
    of_tally: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]

    def __call__(self, targets: Array, predictions: Array) -> Weighted:
        """Prepare the score."""
        tally = _tally(targets, predictions)
        return lambda weights: float(self.of_tally(*tally(weights)))


@dataclass(frozen=True, slots=True)
class OfTally(Tallied):
    """A score that a function of tallies, each of shape (..., classes), computes.

    Parameters
    ----------
    of_tally : callable
        The score from hits, true and predicted weight of each class.
    """

    of_tally: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class Averaged(Tallied):
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

    def of_tally(self, hits: FloatArray, true: FloatArray, guessed: FloatArray) -> FloatArray:
        """Return the score from tallies of shape (..., classes)."""
        numerator, denominator = self.ratio(hits, true, guessed)
        if self.average == "micro":
            return np.asarray(numerator.sum(axis=-1) / denominator.sum(axis=-1))
        ratios = divided(numerator, denominator)
        if self.average == "binary":
            return np.asarray(ratios[..., 1])
        share = true if self.average == "weighted" else np.sign(true + guessed)
        return np.asarray((ratios * share).sum(axis=-1) / share.sum(axis=-1))


def _balance(hits: FloatArray, true: FloatArray, guessed: FloatArray) -> FloatArray:
    """Return the mean recall over the classes that occur."""
    return np.asarray(divided(hits, true).sum(axis=-1) / np.count_nonzero(true, axis=-1))


def _matthews(hits: FloatArray, true: FloatArray, guessed: FloatArray) -> FloatArray:
    """Return Matthews' correlation coefficient for any number of classes (Gorodkin 2004)."""
    both = hits.sum(axis=-1) * guessed.sum(axis=-1) - (true * guessed).sum(axis=-1)
    spread = np.asarray(_unlike(true) * _unlike(guessed))
    return np.asarray(np.where(spread > 0, both / np.sqrt(np.where(spread > 0, spread, 1.0)), 0.0))


def _kappa(hits: FloatArray, true: FloatArray, guessed: FloatArray) -> FloatArray:
    """Return Cohen's kappa for any number of classes, unweighted; 0 where there is one class."""
    total = true.sum(axis=-1)
    chance = (true * guessed).sum(axis=-1)
    left = np.asarray(total**2 - chance)
    both = np.asarray(hits.sum(axis=-1) * total - chance)
    return np.asarray(np.where(left > 0, both / np.where(left > 0, left, 1.0), 0.0))


def _unlike(weights: FloatArray) -> FloatArray:
    """Return the weight of ordered pairs of two classes: exactly 0 if there is one class."""
    others = weights.sum(axis=-1, keepdims=True) - weights
    return np.asarray((weights * others).sum(axis=-1))


balanced_accuracy = OfTally(_balance)
matthews = OfTally(_matthews)
cohen_kappa = OfTally(_kappa)


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
        hits = totals(groups[positive], weights[positive], size)
        seen = np.cumsum(totals(groups, weights, size))
        precisions = divided(np.cumsum(hits), seen)
        return float((precisions * hits).sum() / hits.sum())

    return weighted


def columns(values: Array) -> FloatArray:
    """Return values of shape (n,) or (n, m) as columns."""
    return values.reshape(len(values), -1)


def explained(left: FloatArray, spread: FloatArray) -> FloatArray:
    """Return the mean over outputs, the last axis, of 1 - left / spread.

    A constant target scores 1 if hit and 0 if not.
    """
    exact = (left == 0) | (spread == 0)
    # A target that hardly varies must not make the ratio overflow: see canonical.LARGEST.
    ratio = 1 - np.minimum(left / np.where(exact, 1.0, spread), 1e300)
    return np.asarray(np.where(exact, left == 0, ratio).mean(axis=-1))


def r2(targets: Array, predictions: Array) -> Weighted:
    """Prepare the coefficient of determination."""
    y, residual = columns(targets), columns(targets - predictions)

    def weighted(weights: FloatArray) -> float:
        w = weights[:, None]
        spread = y - (w * y).sum(axis=0) / w.sum()
        return float(explained((w * residual**2).sum(axis=0), (w * spread**2).sum(axis=0)))

    return weighted


def explained_variance(targets: Array, predictions: Array) -> Weighted:
    """Prepare the explained variance: r2 with the mean residual taken off."""
    y, residual = columns(targets), columns(targets - predictions)

    def variance(values: FloatArray, w: FloatArray) -> FloatArray:
        centred = values - (w * values).sum(axis=0) / w.sum()
        return np.asarray((w * centred**2).sum(axis=0))

    def weighted(weights: FloatArray) -> float:
        w = weights[:, None]
        return float(explained(variance(residual, w), variance(y, w)))

    return weighted


def median_error(targets: Array, predictions: Array) -> Weighted:
    """Prepare minus the weighted median of the absolute errors."""
    errors = np.abs(columns(targets - predictions))
    order = np.argsort(errors, axis=0, kind="stable")
    ascending = np.take_along_axis(errors, order, axis=0)

    def median(column: int, weights: FloatArray) -> float:
        cumulative = np.cumsum(weights[order[:, column]])
        half = cumulative[-1] / 2
        # Half of the weight may be exactly between two errors: take their mean.
        lower = np.searchsorted(cumulative, half, side="left")
        upper = np.searchsorted(cumulative, half, side="right")
        return float(ascending[lower, column] + ascending[upper, column]) / 2

    return lambda weights: -float(np.mean([median(j, weights) for j in range(errors.shape[1])]))


def max_error(targets: Array, predictions: Array) -> Weighted:
    """Prepare minus the largest absolute error."""
    errors = np.abs(targets - predictions)
    return lambda weights: -float(errors[weights > 0].max())


def _correlation(x: FloatArray, y: FloatArray, weights: FloatArray) -> float:
    """Return the weighted correlation: 0 for constant predictions y, nan for constant x."""
    live = weights > 0
    x, y, w = x[live], y[live], weights[live]
    if x.min() == x.max():
        return float("nan")
    if y.min() == y.max():
        return 0.0
    dx, dy = (v - (w * v).sum() / w.sum() for v in (x, y))
    # The largest deviation becomes 1, so that squares neither overflow nor vanish.
    dx, dy = dx / np.abs(dx).max(), dy / np.abs(dy).max()
    value = (w * dx * dy).sum() / np.sqrt((w * dx**2).sum() * (w * dy**2).sum())
    return float(np.clip(value, -1.0, 1.0))


def pearson(targets: Array, predictions: Array) -> Weighted:
    """Prepare Pearson's correlation."""
    return lambda weights: _correlation(targets, predictions, weights)


def spearman(targets: Array, predictions: Array) -> Weighted:
    """Prepare Spearman's correlation.

    The rank of a row is the weight below it plus half the weight tied with it. Up to a
    constant that is its mean rank among rows repeated as often as they weigh.
    """
    sides = [tie_groups(targets), tie_groups(predictions)]

    def ranks(groups: IntArray, size: int, weights: FloatArray) -> FloatArray:
        counts = totals(groups, weights, size)
        return np.asarray((np.cumsum(counts) - counts / 2)[groups])

    def weighted(weights: FloatArray) -> float:
        first, second = (ranks(groups, size, weights) for groups, size in sides)
        return _correlation(first, second, weights)

    return weighted


def concordance(targets: Array, predictions: Array) -> Weighted:
    """Prepare the concordance correlation coefficient (Lin 1989), with variances over n."""

    def weighted(weights: FloatArray) -> float:
        live = weights > 0
        x, y, share = targets[live], predictions[live], weights[live] / weights.sum()
        if x.min() == x.max():
            return float("nan")
        means = (share * x).sum(), (share * y).sum()
        dx, dy = x - means[0], y - means[1]
        spread = (share * (dx**2 + dy**2)).sum() + (means[0] - means[1]) ** 2
        return float(2 * (share * dx * dy).sum() / spread)

    return weighted


@dataclass(frozen=True, slots=True)
class RatioOfMeans:
    """A score of your own that is one mean over another one: it has a certificate by bets.

    Give it as the ``score`` of a `Metric`.

    Parameters
    ----------
    numerator, denominator : callable
        ``numerator(targets, predictions)`` returns one number for each row, shape (n,), from 0
        to the largest one.
    largest : tuple of (float, float)
        The largest possible numerator and denominator of a row, positive.

    Examples
    --------
    The recall of fraud by amount: what was found of all that was there, in money.

    >>> from ladderholdout.metrics import Metric, RatioOfMeans
    >>> share = RatioOfMeans(
    ...     lambda y, p: y * (p > 0.5), lambda y, p: y, largest=(1000.0, 1000.0)
    ... )
    >>> metric = Metric("recall_by_amount", "values", score=share, loss_range=(0, 1), offset=1)
    >>> y = np.array([0.0, 100.0, 300.0])
    >>> metric.to_score(metric.evaluate(y, np.array([0.9, 0.2, 0.8])).risk)
    0.75
    """

    numerator: Callable[[Array, Array], FloatArray]
    denominator: Callable[[Array, Array], FloatArray]
    largest: tuple[float, float]

    def __call__(
        self, targets: Array, predictions: Array, sample_weight: FloatArray | None = None
    ) -> float:
        """Return the ratio of the weighted means."""
        top, bottom = self.parts(targets, predictions)
        weights = np.ones(len(top)) if sample_weight is None else sample_weight
        return float(weights @ top) / float(weights @ bottom)

    def parts(self, targets: Array, predictions: Array) -> tuple[FloatArray, FloatArray]:
        """Return both numbers of each row; ValueError where they leave their ranges.

        Examples
        --------
        >>> share = RatioOfMeans(lambda y, p: y * (p > 0.5), lambda y, p: y, largest=(300, 300))
        >>> [part.tolist() for part in share.parts(np.array([0.0, 100.0]), np.array([0.9, 0.2]))]
        [[0.0, 0.0], [0.0, 100.0]]
        """
        parts = []
        for function, largest in zip((self.numerator, self.denominator), self.largest, strict=True):
            values = np.asarray(function(targets, predictions), dtype=np.float64)
            if values.shape != targets.shape[:1] or not ((values >= 0) & (values <= largest)).all():
                raise ValueError("a number of a row is outside of its stated range")
            parts.append(values)
        return parts[0], parts[1]


@dataclass(frozen=True, slots=True)
class MeanOfPairs:
    """A score of your own that is a mean over pairs of rows: it has a certificate by matchings.

    Give it as the ``score`` of a `Metric`.

    Parameters
    ----------
    kernel : callable
        ``kernel(targets, predictions, other_targets, other_predictions)`` returns one number for
        each pair, in its range, given arrays that broadcast: (m, 1) and (1, k). It should not
        matter which row of a pair is the first.
    kernel_range : tuple of (float, float)
        The least and the largest number of a pair.

    Examples
    --------
    How often the higher one of two targets is predicted to be the higher one:

    >>> from ladderholdout.metrics import MeanOfPairs, Metric
    >>> order = MeanOfPairs(lambda y, p, z, q: (y - z) * (p - q) > 0, kernel_range=(0, 1))
    >>> metric = Metric("order", "values", score=order, loss_range=(0, 1), offset=1)
    >>> y = np.array([1.0, 2.0, 3.0])
    >>> round(metric.to_score(metric.evaluate(y, np.array([1.0, 3.0, 2.0])).risk), 3)
    0.667
    """

    kernel: Callable[[Array, Array, Array, Array], Array]
    kernel_range: tuple[float, float]

    def __call__(
        self, targets: Array, predictions: Array, sample_weight: FloatArray | None = None
    ) -> float:
        """Return the weighted mean over all pairs of two different rows."""
        n = len(targets)
        weights = np.ones(n) if sample_weight is None else sample_weight
        total = 0.0
        for start in range(0, n, _BLOCK):
            block = slice(start, start + _BLOCK)
            table = self.table(targets[block], predictions[block], targets, predictions)
            rows = np.arange(start, min(start + _BLOCK, n))
            table[rows - start, rows] = 0.0
            total += float(weights[block] @ table @ weights)
        return total / float(weights.sum() ** 2 - (weights**2).sum())

    def table(
        self, targets: Array, predictions: Array, others: Array, other_predictions: Array
    ) -> FloatArray:
        """Return the kernel of pairs of some rows with others; ValueError outside of its range.

        Examples
        --------
        >>> order = MeanOfPairs(lambda y, p, z, q: (y - z) * (p - q) > 0, kernel_range=(0, 1))
        >>> y, p = np.array([1.0, 2.0]), np.array([0.2, 0.1])
        >>> order.table(y, p, y, p).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        left, right = targets[:, None], others[None, :]
        numbers = self.kernel(left, predictions[:, None], right, other_predictions[None, :])
        shape = np.broadcast_shapes(left.shape[:2], right.shape[:2])
        table = np.array(np.broadcast_to(numbers, shape), dtype=np.float64)
        low, high = self.kernel_range
        if not ((table >= low) & (table <= high)).all():
            raise ValueError("a number of a pair is outside of its stated range")
        return table


# Rows of a table of pairs that are worked out at a time.
_BLOCK = 512
