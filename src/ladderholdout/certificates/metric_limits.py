"""Which bound certifies which metric, and the limits of a metric's score by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ladderholdout.certificates.betting import Limits, mean_limits
from ladderholdout.certificates.class_averages import (
    class_mean_limits,
    f1_limits,
    fbeta_limits,
    mean_of,
    share_limits,
    weighted_by_shares,
)
from ladderholdout.certificates.matchings import (
    auc_limits,
    kappa_limits,
    matthews_limits,
    pair_limits,
)
from ladderholdout.certificates.regression_limits import (
    concordance_limits,
    median_limits,
    r2_limits,
    ratio_limits,
)
from ladderholdout.certificates.transcript import (
    BATCH,
    FEATURES,
    LABELS,
    RANGE,
    ROWS,
    Transcript,
    check_nats,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import inside
from ladderholdout.metrics import Metric
from ladderholdout.metrics import scores as of
from ladderholdout.metrics.evaluation import Array, FloatArray
from ladderholdout.metrics.measuring import within_stated

# The share of a level for the classes' shares of the population.
_SHARES = 0.1
NO_FEATURES = (
    "The search did not use the holdout's features either, other than by submitting; if it did, the"
    " interval is void."
)
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

    Examples
    --------
    >>> Rows(np.array([0, 1]), np.array([0, 1]), np.random.default_rng(0)).n_classes
    2
    """

    targets: Array
    predictions: Array
    rng: np.random.Generator
    n_classes: int = 2

    def counts(self) -> tuple[Array, Array, Array]:
        """Return for each class the hits, the rows of it, and the rows predicted as it.

        Examples
        --------
        >>> rows = Rows(np.array([0, 1, 1]), np.array([0, 1, 0]), np.random.default_rng(0))
        >>> [part.tolist() for part in rows.counts()]
        [[1, 1], [1, 2], [2, 1]]
        """
        hit = self.targets == self.predictions
        parts = self.targets[hit], self.targets, self.predictions
        hits, true, guessed = (np.bincount(part, minlength=self.n_classes) for part in parts)
        return hits, true, guessed


Way = Callable[[Any, Rows, float], Limits]


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
    way: Way
    needs_ranges: bool = False


def bound_of(metric: Metric) -> Bound | str:
    """Return how the score of a metric is certified, or why it is not.

    Parameters
    ----------
    metric : Metric

    Returns
    -------
    Bound or str

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> bound_of(get_metric("neg_max_error"))
    'the largest error of rows that were not drawn has no bound'
    """
    if metric.is_mean:
        if metric.loss is of.zero_one:
            return Bound("exact binomial", (1, 2, 3), _accuracy)
        if not metric.bounded:
            return (
                f"the losses of {metric.name} have no bound; loss_range=(0, high) states one, or "
                "target_range=(low, high) for errors in the unit of the target, and the "
                "certificate is then by bets, the narrower the smaller the range"
            )
        return Bound("bets", (1, 2, 3), _mean)
    prepare = _score_of(metric)
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
    >>> found = score_limits(get_metric("f1"), Rows(y, guesses, rng), -13.7)
    >>> round(found.low, 2), round(found.high, 2), found.bound
    (0.8, 0.91, 'exact binomial')
    """
    bound = bound_of(metric)
    if isinstance(bound, str):
        raise InvalidArgument("metric", "one with a bound", metric.name, bound)
    if bound.needs_ranges and metric.target_range is None:
        raise InvalidArgument("metric", "one with target_range", "one without", NO_RANGES)
    return bound.way(metric, rows, log_level)


@dataclass(frozen=True, slots=True)
class ScoreInterval:
    """A certificate of a score that depends on more than the released score.

    Attributes
    ----------
    low, high : float
        Ends of the interval for the true score, rounded outward to what can be shown.
    confidence : float
        At least this is the chance that all certificates of this holdout hold together.
    bound : str
        The inequality behind it.
    log_count : float
        L: the level was divided by exp(L).
    log_values : float
        What it costs later transcripts that this was shown, in nats.
    clipped : float
        At most this share of the rows has an error beyond the stated range, clipped to it.
    assumptions : tuple of str
        What must be true; where it is not, the certificate is void.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 1000)
    >>> rows = Rows(y, y + rng.normal(size=1000), rng)
    >>> found = certify_score(get_metric("roc_auc"), rows, Transcript(0, 10, ()), released=0.78)
    >>> found.low < 0.78 < found.high, found.bound
    (True, 'matchings')
    """

    low: float
    high: float
    confidence: float
    bound: str
    log_count: float
    log_values: float
    clipped: float = 0.0
    assumptions: tuple[str, ...] = ()


def assumptions_of(metric: Metric, *, batch: bool, clipped: float) -> tuple[str, ...]:
    """Return what has to be true for a certificate of a score; where it is not, it is void.

    Parameters
    ----------
    metric : Metric
        One with a bound.
    batch : bool
        Whether the incumbent came later than first in a batch.
    clipped : float
        As in `ScoreInterval`.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> len(assumptions_of(get_metric("roc_auc"), batch=True, clipped=0.0))
    4
    """
    bound = bound_of(metric)
    assert isinstance(bound, Bound)
    named = [ROWS, LABELS, FEATURES if 2 in bound.readings else NO_FEATURES]
    named += [BATCH] * batch + [RANGE] * (bound.name == "bets")
    if clipped:
        named.append(
            f"Errors beyond the stated range, in up to {100 * clipped:g} % of these rows, count "
            "as its end: the interval is for the score with errors clipped so."
        )
    return tuple(named)


def certify_score(
    metric: Metric,
    rows: Rows,
    transcript: Transcript,
    *,
    released: float,
    confidence: float = 0.95,
    price: float = 0.0,
) -> ScoreInterval:
    """Certify the score of an incumbent, from its predictions.

    The interval is a function of the rows and not of the released score. So it is right for any
    mechanism, with noise or without, and needs no rounding of the release; and whoever sees it
    learns more than was released. Before it is shown it has to be on record, and `log_values` has
    to be added to `Transcript.shown` of all that is chosen later.

    What is shown is the released score less and plus powers of 1.05, by a code that was fixed
    before: the price is minus the logarithm of the probability that the code gives to them.

    Parameters
    ----------
    metric : Metric
    rows : Rows
        The incumbent's predictions.
    transcript : Transcript
        What had been released when the incumbent was chosen.
    released : float
        The released score, which everybody knows.
    confidence : float, default=0.95
        In (0, 1), for the two sides together and for all incumbents at once.
    price : float, default=0.0
        In nats, for a confidence that was not fixed before the search: see `later_price`.

    Returns
    -------
    ScoreInterval

    Raises
    ------
    InvalidArgument
        If an argument is refused, or the metric has no bound.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 1000)
    >>> rows = Rows(y, y + rng.normal(size=1000), rng)
    >>> found = certify_score(get_metric("roc_auc"), rows, Transcript(0, 10, ()), released=0.78)
    >>> round(found.low, 3), round(found.high, 3), round(found.log_values, 1)
    (0.715, 0.852, 7.8)
    """
    confidence = inside("confidence", confidence)
    check_nats("price", price)
    log_count = transcript.log_count() + price
    level = math.log1p(-confidence) - log_count - math.log(2.0)
    found, n = score_limits(metric, rows, level), len(rows.targets)
    least, most = _shown_range(metric)
    if _is_open(metric) and found.low < least:
        found = Limits(-math.inf, found.high, found.bound)
    width = most - least if math.isfinite(most - least) else max(abs(released), 1e-300)
    code = _Code(released, width * math.sqrt(-level / (2.0 * n)))
    low, low_price = code.below(found.low, least)
    high, high_price = code.above(found.high, most)
    share, share_price = _clipped(metric, rows)
    if _is_open(metric) and low == least:
        low = -math.inf
    values = low_price + high_price + share_price
    named = assumptions_of(metric, batch=transcript.place > 1, clipped=share)
    return ScoreInterval(low, high, confidence, found.bound, log_count, values, share, named)


# Neighbouring ends that can be shown, as multiples of each other; the chance that a code gives to
# the end of the range; how its other chances fall, from what most limits have as a share of
# Hoeffding's; and the farthest that has a chance of its own.
_NEIGHBOURS, _AT_END, _FALL, _MIDDLE, _FARTHEST = 1.05, 0.05, 0.95, -4, 200
_SHOWN_SHARES = (0.0, 0.001, 0.01, 0.1, 1.0)


@dataclass(frozen=True, slots=True)
class _Code:
    """Probabilities of the ends that can be shown, given the released score."""

    released: float
    unit: float

    def below(self, limit: float, least: float) -> tuple[float, float]:
        """Return the next end that is not above a limit, and its price."""
        found, price = self._beyond(self.released - limit)
        shown = self.released - found
        if not least < shown <= limit:
            return least, -math.log(_AT_END)
        return shown, price

    def above(self, limit: float, most: float) -> tuple[float, float]:
        """Return the next end that is not below a limit, and its price."""
        found, price = self._beyond(limit - self.released)
        shown = self.released + found
        if not limit <= shown < most:
            return most, -math.log(_AT_END)
        return shown, price

    def _beyond(self, distance: float) -> tuple[float, float]:
        """Return the next distance that is not smaller, and its price."""
        if not 0.0 < self.unit < math.inf or distance == math.inf:
            return math.inf, math.inf
        place = -_FARTHEST
        if distance > 0.0:
            place = math.ceil(math.log(distance / self.unit) / math.log(_NEIGHBOURS))
        place = min(max(place, -_FARTHEST), _FARTHEST)
        if self.unit * _NEIGHBOURS**place < distance:
            place += 1  # the last bit of the logarithm
        chance = (1.0 - _AT_END) * (1.0 - _FALL) / (1.0 + _FALL) * _FALL ** abs(place - _MIDDLE)
        return self.unit * _NEIGHBOURS**place, -math.log(chance)


def _clipped(metric: Metric, rows: Rows) -> tuple[float, float]:
    """Return which share of the rows is clipped, rounded up, and what it costs to show that."""
    if not metric.clip:
        return 0.0, 0.0
    count = metric.evaluate(rows.targets, rows.predictions).clipped or 0
    share = next(one for one in _SHOWN_SHARES if count <= one * len(rows.targets))
    return share, math.log(len(_SHOWN_SHARES))


def _is_open(metric: Metric) -> bool:
    """Return whether a score has a largest value and no least one."""
    return _score_of(metric) in (of.r2, of.explained_variance)


def _shown_range(metric: Metric) -> tuple[float, float]:
    """Return the range of the ends that are shown; of R2, below -1 there is one more."""
    if _is_open(metric):
        return -1.0, 1.0
    if metric.risk_range is None:
        return -math.inf, metric.offset
    first, last = (metric.to_score(risk) for risk in metric.risk_range)
    return min(first, last), max(first, last)


def _score_of(metric: Metric) -> Any:
    return metric.score.prepare if isinstance(metric.score, of.WeightedScore) else None


def _accuracy(metric: Metric, rows: Rows, log_level: float) -> Limits:
    hits = int(np.count_nonzero(rows.targets == rows.predictions))
    found = share_limits(hits, len(rows.targets), log_level)
    return found.through(lambda share: metric.to_score(1.0 - share))


def _mean(metric: Metric, rows: Rows, log_level: float) -> Limits:
    losses, limits = metric.evaluate(rows.targets, rows.predictions).losses, metric.risk_range
    assert losses is not None and limits is not None
    return mean_limits(losses, log_level, limits).through(metric.to_score)


def _averaged(prepare: of.Averaged) -> Bound:
    """Return the bound of a ratio of counts, of one class or on average."""
    ratio, average = prepare.ratio, prepare.average
    own: tuple[int, ...] = (1, 3) if ratio is of.recall else (1,)
    if isinstance(ratio, of.FBeta):
        return Bound("bets", (1, 2, 3), _f_beta)
    if average == "binary":
        return Bound("exact binomial", (1, 2) if ratio is of.precision else own, _one_class)
    if average == "micro" or (average == "weighted" and ratio is of.recall):
        return Bound("exact binomial", (1, 2, 3), _all_classes)
    if average == "macro" and ratio in (of.recall, of.precision):
        return Bound("joint binomial", own, _independent)
    return Bound("union over classes", (1,), _united)


def _proportion(ratio: of.Ratio, hits: int, true: int, guessed: int, log_level: float) -> Limits:
    rows = true + guessed - hits
    if ratio in (of.precision, of.recall):
        rows = guessed if ratio is of.precision else true
    limits = f1_limits if ratio is of.f1 else share_limits
    return limits(hits, rows, log_level)


def _one_class(metric: Metric, rows: Rows, log_level: float) -> Limits:
    ratio = _prepared(metric).ratio
    hits, true, guessed = (int(part[1]) for part in rows.counts())
    return _proportion(ratio, hits, true, guessed, log_level)


def _f_beta(metric: Metric, rows: Rows, log_level: float) -> Limits:
    hits, true, guessed = (int(part[1]) for part in rows.counts())
    beta = _prepared(metric).ratio.beta
    return fbeta_limits(hits, true - hits, guessed - hits, len(rows.targets), log_level, beta)


def _ratio(metric: Metric, rows: Rows, log_level: float) -> Limits:
    score = metric.score
    assert isinstance(score, of.RatioOfMeans)
    parts = score.parts(rows.targets, rows.predictions)
    return ratio_limits(*parts, log_level, score.largest)


def _pairs(metric: Metric, rows: Rows, log_level: float) -> Limits:
    score = metric.score
    assert isinstance(score, of.MeanOfPairs)
    order = rows.rng.permutation(len(rows.targets))
    y, guesses = rows.targets[order], rows.predictions[order]
    half = len(order) // 2

    def table(block: slice) -> FloatArray:
        other = slice(half + block.start, half + block.stop)
        return score.table(y[block], guesses[block], y[other], guesses[other])

    return pair_limits(table, half, log_level, score.kernel_range)


def _all_classes(metric: Metric, rows: Rows, log_level: float) -> Limits:
    hits = int(np.count_nonzero(rows.targets == rows.predictions))
    found = share_limits(hits, len(rows.targets), log_level)
    jaccard = _prepared(metric).ratio is of.jaccard
    return found.through(lambda share: share / (2.0 - share)) if jaccard else found


def _independent(metric: Metric, rows: Rows, log_level: float) -> Limits:
    hits, true, guessed = rows.counts()
    prepare = _prepared(metric)
    by_class = isinstance(prepare, of.Averaged) and prepare.ratio is of.precision
    return class_mean_limits(hits, guessed if by_class else true, log_level)


def _united(metric: Metric, rows: Rows, log_level: float) -> Limits:
    prepare, counts = _prepared(metric), rows.counts()
    weighted = prepare.average == "weighted"
    own = log_level + math.log1p(-_SHARES) if weighted else log_level
    part = own - math.log(rows.n_classes)
    found = [
        _proportion(prepare.ratio, int(hits), int(true), int(guessed), part)
        for hits, true, guessed in zip(*counts, strict=True)
    ]
    if not weighted:
        return mean_of(found)
    return weighted_by_shares(found, counts[1], log_level + math.log(_SHARES))


def _auc(metric: Metric, rows: Rows, log_level: float) -> Limits:
    return _area(rows.predictions, rows.targets == 1, rows.targets == 0, log_level)


def _area(scores: FloatArray, positive: Array, negative: Array, log_level: float) -> Limits:
    if not positive.any() or not negative.any():
        return Limits(0.0, 1.0, "matchings")
    return auc_limits(scores[positive], scores[negative], log_level)


def _multiclass(metric: Metric, rows: Rows, log_level: float) -> Limits:
    prepare, classes, table = _prepared(metric), rows.predictions.shape[1], rows.predictions
    members = [rows.targets == code for code in range(classes)]
    if classes == 2:
        return _area(table[:, 1], members[1], members[0], log_level)
    weighted = prepare.by_prevalence
    part = log_level + math.log1p(-_SHARES) if weighted else log_level
    if prepare.pairs:
        part -= math.log(classes * (classes - 1))
        areas = {
            (a, b): _area(table[:, a], members[a], members[b], part)
            for a in range(classes)
            for b in range(classes)
            if a != b
        }
        parts = [
            mean_of([areas[pair] for b in range(classes) if b != a for pair in ((a, b), (b, a))])
            for a in range(classes)
        ]
    else:
        part -= math.log(classes)
        parts = [_area(table[:, a], members[a], ~members[a], part) for a in range(classes)]
    if not weighted:
        return mean_of(parts)
    counts = [int(np.count_nonzero(one)) for one in members]
    return weighted_by_shares(parts, counts, log_level + math.log(_SHARES))


def _matthews(metric: Metric, rows: Rows, log_level: float) -> Limits:
    return matthews_limits(rows.targets, rows.predictions, log_level, rows.rng)


def _kappa(metric: Metric, rows: Rows, log_level: float) -> Limits:
    return kappa_limits(rows.targets, rows.predictions, log_level, rows.rng)


def _of_outputs(
    metric: Metric, rows: Rows, log_level: float, limits: Callable[..., Limits]
) -> Limits:
    """Return the mean over the outputs, each at its part of the level."""
    assert metric.target_range is not None and metric.largest_error is not None
    predictions, _ = within_stated(metric, rows.targets, rows.predictions)
    y, guesses = of.columns(rows.targets), of.columns(predictions)
    # What clipping left may be above the largest error by a rounding.
    largest = metric.largest_error * (1.0 + 1e-9) + 1e-9 * float(np.abs(y).max())
    part = log_level - math.log(y.shape[1])
    found = [
        limits(
            y[:, column],
            guesses[:, column],
            part,
            target_range=metric.target_range,
            largest_error=largest,
            rng=rows.rng,
        )
        for column in range(y.shape[1])
    ]
    return found[0] if len(found) == 1 else mean_of(found)


def _r2(metric: Metric, rows: Rows, log_level: float) -> Limits:
    return _of_outputs(metric, rows, log_level, r2_limits)


def _explained(metric: Metric, rows: Rows, log_level: float) -> Limits:
    return _of_outputs(metric, rows, log_level, lambda *a, **k: r2_limits(*a, explained=True, **k))


def _concordance(metric: Metric, rows: Rows, log_level: float) -> Limits:
    return _of_outputs(metric, rows, log_level, concordance_limits)


def _median(metric: Metric, rows: Rows, log_level: float) -> Limits:
    errors = of.columns(np.abs(rows.targets - rows.predictions))
    part = log_level - math.log(errors.shape[1])
    found = [median_limits(column, part) for column in errors.T]
    return (
        mean_of(found).through(metric.to_score)
        if len(found) > 1
        else found[0].through(metric.to_score)
    )


def _prepared(metric: Metric) -> Any:
    assert isinstance(metric.score, of.WeightedScore)
    return metric.score.prepare


_BOUNDS: Mapping[Any, Bound] = MappingProxyType(
    {
        of.roc_auc: Bound("matchings", (1, 3), _auc),
        of.balanced_accuracy: Bound("joint binomial", (1, 3), _independent),
        of.matthews: Bound("matchings", (1,), _matthews),
        of.cohen_kappa: Bound("matchings", (1,), _kappa),
        of.r2: Bound("bets", (1,), _r2, needs_ranges=True),
        of.explained_variance: Bound("bets", (1,), _explained, needs_ranges=True),
        of.concordance: Bound("bets", (1,), _concordance, needs_ranges=True),
        of.median_error: Bound("exact binomial", (1,), _median),
    }
)
_REASONS: Mapping[Any, str] = MappingProxyType(
    {
        of.average_precision: (
            "the known bounds of an average precision are two to six times as wide as chance, and "
            "are almost empty below thousands of positive rows; roc_auc has one"
        ),
        of.max_error: "the largest error of rows that were not drawn has no bound",
        of.pearson: "it has no bound without a range of the predictions; concordance has one",
        of.spearman: "no bound of a correlation of ranks is known that is narrow enough",
    }
)
