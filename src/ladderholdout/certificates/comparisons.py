"""An interval for the difference of two models' scores, and the code of what is shown of it.

Propositions D1 to D3 of docs/background/comparisons.md.
"""

from __future__ import annotations

import math

import numpy as np

from ladderholdout.arguments import inside
from ladderholdout.certificates.codes import place_length
from ladderholdout.certificates.group_limits import share_of_groups
from ladderholdout.certificates.metric_limits import Rows, bound_of, has_no_least, score_limits
from ladderholdout.certificates.score_intervals import assumptions_of
from ladderholdout.certificates.targeted_bets import ordered_mean_limits
from ladderholdout.certificates.transcript import check_nats
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import Limits, mean_limits
from ladderholdout.limits.intervals import LARGEST_SIDE
from ladderholdout.limits.trinomial import LEAST_LEVEL, MOST_ROWS, paired_limits
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import FloatArray

TWO_INTERVALS = "difference of two intervals"
# Middles that can be shown lie so close, and half widths are such multiples of each other.
_MIDDLES, _NEIGHBOURS = 1 / 8, 1.05
# How the chances of half widths fall, from the share of Hoeffding's that most of them have.
_FALL, _USUAL, _FARTHEST = 0.95, -8, 200


def certify_difference(
    metric: Metric,
    first: Rows,
    second: Rows,
    log_count: float,
    *,
    confidence: float = 0.95,
) -> Limits:
    """Return an interval for the difference of the true scores of two models.

    Means of losses are compared row by row: losses of 0 and 1 by the exact limits of a trinomial
    (Proposition D1), others by bets on differences (D2). Where whole groups of rows were drawn,
    bets are on one number for each group. Of other scores it is the difference of two intervals,
    each at half of the level (D3), and wider.

    Parameters
    ----------
    metric : Metric
        One with a bound.
    first, second : Rows
        The same rows, each with the predictions of one model.
    log_count : float
        L, for all that was shown before the comparison was asked for.
    confidence : float, default=0.95
        In (0, 1), for the two sides together and for all comparisons at once.

    Returns
    -------
    Limits
        Of the true score of the first model less that of the second.

    Raises
    ------
    InvalidArgument
        An argument is refused, or the metric has no bound.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 1000)
    >>> models = [Rows(y, np.where(rng.random(1000) < right, y, 1 - y), rng)
    ...           for right in (0.9, 0.8)]
    >>> found = certify_difference(get_metric("accuracy"), *models, 0.22)
    >>> round(found.low, 3), round(found.high, 3), found.bound
    (0.07, 0.14, 'trinomial')
    """
    confidence = inside("confidence", confidence)
    check_nats("log_count", log_count)
    log_level = min(math.log1p(-confidence) - log_count - math.log(2.0), LARGEST_SIDE)
    bound = bound_of(metric, grouped=first.groups is not None)
    if isinstance(bound, str):
        raise InvalidArgument("metric", "one with a bound", metric.name, bound)
    limits = difference_limits(metric, first, second, log_level)
    n = len(first.targets) if first.groups is None else len(first.groups)
    low, high, price = _shown(limits, _range_of(metric), n, log_level)
    grouped = None if first.groups is None else first.groups.estimand
    assumed = (*assumptions_of(metric, estimand=grouped), FAMILY)
    return Limits(low, high, limits.bound, confidence, log_count, assumed, price)


FAMILY = (
    "All comparisons of the holdout hold together with this confidence; its certificates are "
    "another family, with their own."
)


def difference_limits(metric: Metric, first: Rows, second: Rows, log_level: float) -> Limits:
    """Return confidence limits of the difference of two fixed models' true scores.

    Parameters
    ----------
    metric : Metric
    first, second : Rows
        The same rows, each with the predictions of one model.
    log_level : float
        Natural logarithm of the level of each side, negative.

    Returns
    -------
    Limits
        Of the score of the first less that of the second.

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> y, rng = np.zeros(100), np.random.default_rng(0)
    >>> metric = get_metric("neg_mean_absolute_error").with_range((0, 10))
    >>> models = [Rows(y, np.full(100, error), rng) for error in (1.0, 3.0)]
    >>> limits = difference_limits(metric, *models, math.log(0.025))
    >>> limits.low < 2.0 < limits.high
    True
    """
    paired = metric.is_mean and metric.bounded and not metric.root
    if not paired:
        half = log_level - math.log(2.0)
        one, other = score_limits(metric, first, half), score_limits(metric, second, half)
        bound = f"{TWO_INTERVALS}, {one.bound}"
        return Limits(one.low - other.high, one.high - other.low, bound)
    evaluations = [metric.evaluate(rows.targets, rows.predictions) for rows in (first, second)]
    mine, others = (evaluation.bounded_losses for evaluation in evaluations)
    assert mine is not None and others is not None
    # Greater is better, so the first is better by what the second loses more.
    gains = others - mine
    groups = first.groups
    if groups is not None and groups.sizes.max() == 1:
        groups = None
    n, counts = len(gains), all(evaluation.is_count for evaluation in evaluations)
    if counts and groups is None and n <= MOST_ROWS:
        better, worse = int(np.count_nonzero(gains > 0)), int(np.count_nonzero(gains < 0))
        if log_level < math.log(LEAST_LEVEL):
            return Limits(-1.0, 1.0, "trinomial")
        return paired_limits(better, worse, n, math.exp(log_level))
    unit = metric.unit or 1.0
    shares = np.clip((gains / unit + 1.0) / 2.0, 0.0, 1.0)
    limits = _of_mean(metric, shares, first, groups is not None, log_level)
    return limits.through(lambda share: (2.0 * share - 1.0) * unit)


def _of_mean(
    metric: Metric, shares: FloatArray, rows: Rows, grouped: bool, log_level: float
) -> Limits:
    """Return limits of a mean by the reading that the metric has."""
    if grouped:
        assert rows.groups is not None
        ones = np.ones(len(shares))
        return share_of_groups(shares, ones, rows.groups, log_level, rng=rows.rng)
    if metric.is_classification and not metric.alike_rows:
        return mean_limits(shares, log_level)
    return ordered_mean_limits(shares, log_level, rng=rows.rng)


def _range_of(metric: Metric) -> float:
    """Return the largest difference of two scores; infinity where scores have no range."""
    if metric.risk_range is None or has_no_least(metric):
        return math.inf
    first, last = (metric.to_score(risk) for risk in metric.risk_range)
    return abs(last - first)


def _shown(limits: Limits, largest: float, n: int, log_level: float) -> tuple[float, float, float]:
    """Return the ends that are shown, and minus the logarithm of the chance of their code.

    Shown is a middle on a grid, and a half width among powers of 1.05; both grids are fixed by the
    number of rows, the range and the level. Scores without a range pay for which ends are infinite,
    and a finite end beside an infinite one is rounded outwards on the grid of middles.
    """
    scale = largest if math.isfinite(largest) else 1.0
    unit = scale * math.sqrt(-log_level / (2.0 * n))
    kinds = 0.0 if math.isfinite(largest) else math.log(4.0)
    if not math.isfinite(limits.high - limits.low):
        ends = (limits.low, math.floor), (limits.high, math.ceil)
        steps = [outwards(end / (unit * _MIDDLES)) for end, outwards in ends if math.isfinite(end)]
        shown = iter([step * unit * _MIDDLES for step in steps])
        low, high = (next(shown) if math.isfinite(end) else end for end, _ in ends)
        return low, high, kinds + sum(map(_place_price, steps))
    step = round((limits.low + limits.high) / 2.0 / (unit * _MIDDLES))
    middle = step * unit * _MIDDLES
    half = max(limits.high - middle, middle - limits.low, unit * _NEIGHBOURS**-_FARTHEST)
    power = min(math.ceil(math.log(half / unit) / math.log(_NEIGHBOURS)), _FARTHEST)
    while unit * _NEIGHBOURS**power < half:
        power += 1
    half = unit * _NEIGHBOURS**power
    price = kinds + _place_price(step)
    price -= math.log((1.0 - _FALL) / (1.0 + _FALL) * _FALL ** abs(power - _USUAL))
    return max(middle - half, -largest), min(middle + half, largest), price


def _place_price(step: int) -> float:
    """Return the code length of a place in the order 0, 1, -1, 2, -2 and so on."""
    return place_length(2 * abs(step) + (step < 0) + (step == 0))
