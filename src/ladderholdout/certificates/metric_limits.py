"""Which bound certifies which metric, and the limits of a metric's score by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from types import MappingProxyType
from typing import Any

import numpy as np

from ladderholdout.certificates import class_averages, matchings, regression_limits
from ladderholdout.certificates.bands import average_precision_limits
from ladderholdout.certificates.group_limits import Groups, ratio_of_groups, share_of_groups
from ladderholdout.certificates.group_variances import r2_of_groups
from ladderholdout.certificates.targeted_bets import ordered_mean_limits
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits, mean_limits
from ladderholdout.metrics import Metric
from ladderholdout.metrics import scores as of
from ladderholdout.metrics.arrays import Array, FloatArray
from ladderholdout.metrics.measuring import within_stated

# The share of a level for the classes' shares of the population.
_SHARES = 0.1
NO_RANGES = (
    "its certificate needs target_range=(low, high), which holds every target, and is the narrower "
    "with loss_range=(0, high), which no absolute error exceeds; it is then by bets"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """What a score is computed from, in canonical form.

    Parameters
    ----------
    targets, predictions : ndarray
        As `Metric.targets` and `Metric.canonical` return them.
    rng : numpy.random.Generator
        For bounds that split or order the rows; it must not depend on them.
    n_classes : int, default=2
        Classes that the holdout was registered with.
    groups : Groups or None, default=None
        Which rows were drawn together; None where each row is a draw of its own.

    Examples
    --------
    >>> Rows(np.array([0, 1]), np.array([0, 1]), np.random.default_rng(0)).n_classes
    2
    """

    targets: Array
    predictions: Array
    rng: np.random.Generator
    n_classes: int = 2
    groups: Groups | None = None

    def take(self, places: Array) -> Rows:
        """Return some of the rows, each of which is a draw of its own.

        Examples
        --------
        >>> rows = Rows(np.array([0, 1, 1]), np.array([0, 1, 0]), np.random.default_rng(0))
        >>> rows.take(np.array([0, 2])).targets.tolist()
        [0, 1]
        """
        return Rows(self.targets[places], self.predictions[places], self.rng, self.n_classes)

    def counts(self) -> tuple[Array, Array, Array]:
        """Return for each class the hits, the rows of it, and the rows predicted as it.

        Examples
        --------
        >>> rows = Rows(np.array([0, 1, 1]), np.array([0, 1, 0]), np.random.default_rng(0))
        >>> [part.tolist() for part in rows.counts()]
        [[1, 1], [1, 2], [2, 1]]
        """
        hit = self.targets == self.predictions
        return (
            np.bincount(self.targets[hit], minlength=self.n_classes),
            np.bincount(self.targets, minlength=self.n_classes),
            np.bincount(self.predictions, minlength=self.n_classes),
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """How a metric is certified.

    Attributes
    ----------
    name : str
        The inequality.
    readings : tuple of int
        The readings of the certificate for which it holds: 1 for new rows, 2 for new labels on
        these rows, 3 for new features with these labels.
    limits : callable
        Returns the limits of the score, of the metric, the `Rows` and the logarithm of the level
        of each side.
    needs_ranges : bool
        Whether it needs the ranges of the target and of the error.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> bound_of(get_metric("roc_auc")).name
    'matchings'
    """

    name: str
    readings: tuple[int, ...]
    limits: Callable[[Metric, Rows, float], Limits]
    needs_ranges: bool = False


def bound_of(metric: Metric, *, grouped: bool = False) -> Bound | str:
    """Return how the score of a metric is certified, or why it is not.

    Parameters
    ----------
    metric : Metric
    grouped : bool, default=False
        Whether whole groups of rows were drawn.

    Returns
    -------
    Bound or str

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> bound_of(get_metric("neg_max_error"))
    'the largest error of rows that were not drawn has no bound'
    """
    if grouped:
        return _bound_of_groups(metric)
    if metric.is_mean:
        if metric.loss is of.zero_one:
            return Bound("exact binomial", (1, 2, 3), _share_of_hits)
        if not metric.bounded:
            return (
                f"the losses of {metric.name} have no bound; loss_range=(0, high) states one, or "
                "target_range=(low, high) for errors in the unit of the target, and the "
                "certificate is then by bets, the narrower the smaller the range"
            )
        # The rows of each class may have been drawn apart: proposition B2 is not for these.
        if metric.is_classification and not metric.alike_rows:
            return Bound("bets", (1, 2, 3), _mean)
        return Bound("bets", (1,), partial(_mean, ordered=True))
    prepare = _prepare_of(metric)
    if isinstance(prepare, of.Averaged):
        return _averaged(prepare)
    if isinstance(prepare, of.MulticlassAuc):
        readings = (1, 3) if prepare.pairs and not prepare.by_prevalence else (1,)
        return Bound("matchings", readings, _multiclass)
    if isinstance(metric.score, of.RatioOfMeans):
        return Bound("bets", (1, 2, 3), _ratio)
    if isinstance(metric.score, of.MeanOfPairs):
        return Bound("matchings", (1,), _pairs)
    if prepare is None:
        return (
            f"{metric.name} is a function that no bound is known of; one that is a RatioOfMeans or "
            "a MeanOfPairs has one, as a loss with a range has"
        )
    return _BOUNDS.get(prepare) or _REASONS.get(prepare, f"no bound of {metric.name} is known")


def score_limits(metric: Metric, rows: Rows, log_level: float) -> Limits:
    """Return confidence limits of a metric's true score, for a fixed model.

    Parameters
    ----------
    metric : Metric
    rows : Rows
        Without weights of their own.
    log_level : float
        Natural logarithm of the level of each side, negative; as low as the union needs it.

    Returns
    -------
    Limits
        In the unit that the metric shows, greater is better.

    Raises
    ------
    InvalidArgument
        If the metric has no bound: `bound_of` gives the reason.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 1000)
    >>> guesses = np.where(rng.random(1000) < 0.85, y, 1 - y)
    >>> limits = score_limits(get_metric("f1"), Rows(y, guesses, rng), -13.7)
    >>> round(limits.low, 2), round(limits.high, 2), limits.bound
    (0.8, 0.91, 'exact binomial')
    """
    if rows.groups is not None and rows.groups.sizes.max() == 1:
        rows = rows.take(np.arange(len(rows.targets)))
    bound = bound_of(metric, grouped=rows.groups is not None)
    if isinstance(bound, str):
        raise InvalidArgument("metric", "one with a bound", metric.name, bound)
    if bound.needs_ranges and metric.target_range is None:
        raise InvalidArgument("metric", "one with target_range", "one without", NO_RANGES)
    return bound.limits(metric, rows, log_level)


def has_no_least(metric: Metric) -> bool:
    """Return whether the score has no least value, as R2 has none."""
    return _prepare_of(metric) in (of.r2, of.explained_variance)


def _prepare_of(metric: Metric) -> Any:
    """Return the function that prepares a score with weights; None of a score of another kind."""
    return metric.score.prepare if isinstance(metric.score, of.WeightedScore) else None


def _share_of_hits(metric: Metric, rows: Rows, log_level: float) -> Limits:
    """Return the limits of the accuracy, or of what is a function of it."""
    hits = int(np.count_nonzero(rows.targets == rows.predictions))
    limits = class_averages.share_limits(hits, len(rows.targets), log_level)
    if metric.is_mean:
        return limits.through(lambda share: metric.to_score(1.0 - share))
    is_jaccard = _prepare_of(metric).ratio is of.jaccard
    return limits.through(lambda share: share / (2.0 - share)) if is_jaccard else limits


def _mean(metric: Metric, rows: Rows, log_level: float, *, ordered: bool = False) -> Limits:
    losses = metric.evaluate(rows.targets, rows.predictions).bounded_losses
    assert losses is not None and metric.risk_range is not None
    limits = partial(ordered_mean_limits, rng=rows.rng) if ordered else mean_limits
    return limits(losses, log_level, metric.risk_range).through(metric.to_score)


def _averaged(prepare: of.Averaged) -> Bound:
    """Return the bound of a ratio of counts, of one class or on average."""
    ratio, average = prepare.ratio, prepare.average
    readings: tuple[int, ...] = (1, 3) if ratio is of.recall else (1,)
    if isinstance(ratio, of.FBeta):
        return Bound("bets", (1, 2, 3), _f_beta)
    if average == "binary":
        return Bound("exact binomial", (1, 2) if ratio is of.precision else readings, _one_class)
    if average == "micro" or (average == "weighted" and ratio is of.recall):
        return Bound("exact binomial", (1, 2, 3), _share_of_hits)
    if average == "macro" and ratio in (of.recall, of.precision):
        return Bound("joint binomial", readings, _independent)
    return Bound("union over classes", (1,), _united)


def _proportion(ratio: of.Ratio, hits: int, true: int, guessed: int, log_level: float) -> Limits:
    if ratio is of.f1:
        return class_averages.f1_limits(hits, true + guessed - hits, log_level)
    among: dict[of.Ratio, int] = {of.precision: guessed, of.recall: true}
    return class_averages.share_limits(hits, among.get(ratio, true + guessed - hits), log_level)


def _one_class(metric: Metric, rows: Rows, log_level: float) -> Limits:
    hits, true, guessed = (int(count[1]) for count in rows.counts())
    return _proportion(_prepare_of(metric).ratio, hits, true, guessed, log_level)


def _f_beta(metric: Metric, rows: Rows, log_level: float) -> Limits:
    hits, true, guessed = (int(count[1]) for count in rows.counts())
    beta = _prepare_of(metric).ratio.beta
    return class_averages.fbeta_limits(
        hits, true - hits, guessed - hits, len(rows.targets), log_level, beta
    )


def _ratio(metric: Metric, rows: Rows, log_level: float) -> Limits:
    score = metric.score
    assert isinstance(score, of.RatioOfMeans)
    parts = score.parts(rows.targets, rows.predictions)
    return regression_limits.ratio_limits(*parts, log_level, score.largest)


def _pairs(metric: Metric, rows: Rows, log_level: float) -> Limits:
    score = metric.score
    assert isinstance(score, of.MeanOfPairs)
    order = rows.rng.permutation(len(rows.targets))
    y, guesses = rows.targets[order], rows.predictions[order]
    half = len(order) // 2

    def table(block: slice) -> FloatArray:
        other = slice(half + block.start, half + block.stop)
        return score.table(y[block], guesses[block], y[other], guesses[other])

    return matchings.pair_limits(table, half, log_level, score.kernel_range)


def _independent(metric: Metric, rows: Rows, log_level: float) -> Limits:
    hits, true, guessed = rows.counts()
    prepare = _prepare_of(metric)
    is_precision = isinstance(prepare, of.Averaged) and prepare.ratio is of.precision
    return class_averages.class_mean_limits(hits, guessed if is_precision else true, log_level)


def _united(metric: Metric, rows: Rows, log_level: float) -> Limits:
    prepare, counts = _prepare_of(metric), rows.counts()
    is_weighted = prepare.average == "weighted"
    level_of_each = (log_level + math.log1p(-_SHARES)) if is_weighted else log_level
    level_of_each -= math.log(rows.n_classes)
    limits = [
        _proportion(prepare.ratio, int(hits), int(true), int(guessed), level_of_each)
        for hits, true, guessed in zip(*counts, strict=True)
    ]
    if not is_weighted:
        return class_averages.mean_of(limits)
    return class_averages.weighted_by_shares(limits, counts[1], log_level + math.log(_SHARES))


def _auc(metric: Metric, rows: Rows, log_level: float) -> Limits:
    return _area(rows.predictions, rows.targets == 1, rows.targets == 0, log_level)


def _area(scores: FloatArray, positive: Array, negative: Array, log_level: float) -> Limits:
    if not positive.any() or not negative.any():
        return Limits(0.0, 1.0, "matchings")
    return matchings.auc_limits(scores[positive], scores[negative], log_level)


def _average_precision(metric: Metric, rows: Rows, log_level: float) -> Limits:
    positive = rows.targets == 1
    if positive.all() or not positive.any():
        return Limits(0.0, 1.0, "bands")
    scores = rows.predictions
    return average_precision_limits(scores[positive], scores[~positive], log_level)


def _multiclass(metric: Metric, rows: Rows, log_level: float) -> Limits:
    prepare, classes, table = _prepare_of(metric), rows.predictions.shape[1], rows.predictions
    members = [rows.targets == code for code in range(classes)]
    if classes == 2:
        return _area(table[:, 1], members[1], members[0], log_level)
    is_weighted = prepare.by_prevalence
    level_of_each = (log_level + math.log1p(-_SHARES)) if is_weighted else log_level
    if prepare.pairs:
        level_of_each -= math.log(classes * (classes - 1))
        areas = {
            (a, b): _area(table[:, a], members[a], members[b], level_of_each)
            for a, b in permutations(range(classes), 2)
        }
        # Of each class the pairs with every other one, in both directions.
        limits = [
            class_averages.mean_of([area for pair, area in areas.items() if a in pair])
            for a in range(classes)
        ]
    else:
        level_of_each -= math.log(classes)
        limits = [
            _area(table[:, a], members[a], ~members[a], level_of_each) for a in range(classes)
        ]
    if not is_weighted:
        return class_averages.mean_of(limits)
    counts = [int(np.count_nonzero(member)) for member in members]
    return class_averages.weighted_by_shares(limits, counts, log_level + math.log(_SHARES))


def _of_classes(
    metric: Metric, rows: Rows, log_level: float, limits: Callable[..., Limits]
) -> Limits:
    return limits(rows.targets, rows.predictions, log_level, rows.rng)


def _of_outputs(
    metric: Metric, rows: Rows, log_level: float, limits: Callable[..., Limits]
) -> Limits:
    """Return the mean over the outputs, each at its part of the level."""
    assert metric.target_range is not None and metric.largest_error is not None
    predictions, _ = within_stated(metric, rows.targets, rows.predictions)
    y, guesses = of.columns(rows.targets), of.columns(predictions)
    # What clipping left may be above the largest error by a rounding.
    largest = metric.largest_error * (1.0 + 1e-9) + 1e-9 * float(np.abs(y).max())
    level_of_each = log_level - math.log(y.shape[1])
    parts = [
        limits(
            y[:, column],
            guesses[:, column],
            level_of_each,
            target_range=metric.target_range,
            largest_error=largest,
            rng=rows.rng,
        )
        for column in range(y.shape[1])
    ]
    return parts[0] if len(parts) == 1 else class_averages.mean_of(parts)


def _median(metric: Metric, rows: Rows, log_level: float) -> Limits:
    errors = of.columns(np.abs(rows.targets - rows.predictions))
    level_of_each = log_level - math.log(errors.shape[1])
    parts = [regression_limits.median_limits(column, level_of_each) for column in errors.T]
    return (parts[0] if len(parts) == 1 else class_averages.mean_of(parts)).through(metric.to_score)


ONE_OF_EACH = "one row of each group, drawn by the rows' content"
"""What the bound of a score is made of that is not made of sums over groups."""


def _bound_of_groups(metric: Metric) -> Bound | str:
    """Return how a score is certified where whole groups were drawn."""
    bound, prepare = bound_of(metric), _prepare_of(metric)
    if isinstance(bound, str):
        return bound
    if metric.is_mean:
        return Bound(bound.name, (1,), _mean_of_groups)
    if isinstance(prepare, of.Averaged) or prepare == of.balanced_accuracy:
        return Bound(bound.name, (1,), _classes_of_groups)
    if isinstance(metric.score, of.RatioOfMeans):
        return Bound(bound.name, (1,), _ratio_of_groups)
    if has_no_least(metric):
        return Bound(bound.name, (1,), _r2_of_groups, needs_ranges=True)
    return Bound(bound.name, (1,), partial(_one_of_each, limits=bound.limits), bound.needs_ranges)


def _one_of_each(
    metric: Metric, rows: Rows, log_level: float, limits: Callable[[Metric, Rows, float], Limits]
) -> Limits:
    assert rows.groups is not None
    found = limits(metric, rows.take(rows.groups.one_of_each(rows.rng)), log_level)
    return replace(found, bound=f"{found.bound} on {ONE_OF_EACH}")


def _share(rows: Rows, tops: Array, bottoms: Array, log_level: float) -> Limits:
    assert rows.groups is not None
    parts = np.asarray(tops, dtype=np.float64), np.asarray(bottoms, dtype=np.float64)
    return share_of_groups(*parts, rows.groups, log_level, rng=rows.rng)


def _mean_of_groups(metric: Metric, rows: Rows, log_level: float) -> Limits:
    losses = metric.evaluate(rows.targets, rows.predictions).bounded_losses
    limits = metric.risk_range
    assert losses is not None and limits is not None
    low, width = limits[0], limits[1] - limits[0]
    shares = np.clip((losses - low) / width, 0.0, 1.0)
    found = _share(rows, shares, np.ones_like(shares), log_level)
    return found.through(lambda share: metric.to_score(low + width * share))


def _ratio_of_groups(metric: Metric, rows: Rows, log_level: float) -> Limits:
    score = metric.score
    assert isinstance(score, of.RatioOfMeans) and rows.groups is not None
    tops, bottoms = (
        np.asarray(part, dtype=np.float64) for part in score.parts(rows.targets, rows.predictions)
    )
    return ratio_of_groups(
        *(tops, bottoms, rows.groups, log_level), largest=score.largest, rng=rows.rng
    )


def _r2_of_groups(metric: Metric, rows: Rows, log_level: float) -> Limits:
    assert rows.groups is not None
    explained = _prepare_of(metric) is of.explained_variance
    limits = partial(r2_of_groups, groups=rows.groups, explained=explained)
    return _of_outputs(metric, rows, log_level, limits)


def _classes_of_groups(metric: Metric, rows: Rows, log_level: float) -> Limits:
    """Return the limits of a ratio of counts, of one class or on average, by sums over groups."""
    prepare = _prepare_of(metric)
    averaged = isinstance(prepare, of.Averaged)
    ratio, average = (prepare.ratio, prepare.average) if averaged else (of.recall, "macro")
    hits, ones = rows.targets == rows.predictions, np.ones(len(rows.targets))
    if average == "micro" or (average == "weighted" and ratio is of.recall):
        found = _share(rows, hits, ones, log_level)
        return found.through(lambda share: share / (2.0 - share)) if ratio is of.jaccard else found

    def of_class(code: int, level: float) -> Limits:
        true, guessed = rows.targets == code, rows.predictions == code
        return _share(rows, true & guessed, _among(ratio, true, guessed), level)

    if average == "binary":
        return of_class(1, log_level)
    classes = range(rows.n_classes)
    is_weighted = average == "weighted"
    level_of_each = (log_level + math.log1p(-_SHARES)) if is_weighted else log_level
    level_of_each -= math.log(rows.n_classes)
    limits = [of_class(code, level_of_each) for code in classes]
    if not is_weighted:
        return replace(class_averages.mean_of(limits), bound=limits[0].bound)
    level_of_share = log_level + math.log(_SHARES / (2.0 * rows.n_classes))
    boxes = [_share(rows, rows.targets == code, ones, level_of_share) for code in classes]
    return replace(class_averages.weighted_in_boxes(limits, boxes), bound=limits[0].bound)


def _among(ratio: of.Ratio, true: Array, guessed: Array) -> FloatArray:
    """Return of each row what it adds to the divisor of a ratio of counts, at most 1."""
    if ratio is of.precision:
        return guessed.astype(np.float64)
    if ratio is of.recall:
        return true.astype(np.float64)
    if ratio is of.f1:
        return (true.astype(np.float64) + guessed) / 2.0
    if isinstance(ratio, of.FBeta):
        square = ratio.beta**2
        missed, wrong = true & ~guessed, guessed & ~true
        # A missed row may count for more than a hit only where it is beta squared over 1 + that.
        return np.asarray((true & guessed) + (square * missed + wrong) / (1.0 + square))
    return (true | guessed).astype(np.float64)


def _in_ranges(limits: Callable[..., Limits]) -> Bound:
    return Bound("bets", (1,), partial(_of_outputs, limits=limits), needs_ranges=True)


_BOUNDS: Mapping[Any, Bound] = MappingProxyType(
    {
        of.roc_auc: Bound("matchings", (1, 3), _auc),
        of.average_precision: Bound("bands", (1, 3), _average_precision),
        of.balanced_accuracy: Bound("joint binomial", (1, 3), _independent),
        of.matthews: Bound(
            "matchings", (1,), partial(_of_classes, limits=matchings.matthews_limits)
        ),
        of.cohen_kappa: Bound(
            "matchings", (1,), partial(_of_classes, limits=matchings.kappa_limits)
        ),
        of.r2: _in_ranges(regression_limits.r2_limits),
        of.explained_variance: _in_ranges(partial(regression_limits.r2_limits, explained=True)),
        of.concordance: _in_ranges(regression_limits.concordance_limits),
        of.median_error: Bound("exact binomial", (1,), _median),
    }
)
_REASONS: Mapping[Any, str] = MappingProxyType(
    {
        of.max_error: "the largest error of rows that were not drawn has no bound",
        of.pearson: "it has no bound without a range of the predictions; concordance has one",
        of.spearman: "no bound of a correlation of ranks is known that is narrow enough",
    }
)
