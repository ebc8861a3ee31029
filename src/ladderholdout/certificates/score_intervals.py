"""Certificates of scores from their rows: limits as they are shown, with their price."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ladderholdout.arguments import inside
from ladderholdout.certificates import metric_limits
from ladderholdout.certificates import transcript as assumed
from ladderholdout.certificates.transcript import Transcript
from ladderholdout.limits.betting import Limits
from ladderholdout.limits.intervals import LARGEST_SIDE
from ladderholdout.metrics import Metric
from ladderholdout.metrics.measuring import within_stated

NO_FEATURES = (
    "The search did not use the holdout's features either, other than by submitting; if it did, the"
    " interval is void."
)


def assumptions_of(
    metric: Metric,
    *,
    batch: bool = False,
    estimand: str | None = None,
    labels: str = assumed.LABELS,
) -> tuple[str, ...]:
    """Return what has to be true for a certificate of a score; where it is not, it is void.

    Parameters
    ----------
    metric : Metric
        One with a bound.
    batch : bool, default=False
        Whether the incumbent came later than first in a batch.
    estimand : {"rows", "groups"} or None, default=None
        Which mean it is of, where whole groups of rows were drawn.
    labels : str, optional
        What the search may have known of the labels; by default what the ledger released.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> len(assumptions_of(get_metric("roc_auc"), batch=True))
    4
    """
    bound = metric_limits.bound_of(metric)
    assert isinstance(bound, metric_limits.Bound)
    bets = bound.name == "bets"
    assumptions = [assumed.ALIKE if bets and bound.readings == (1,) else assumed.ROWS, labels]
    if estimand is not None:
        bound = metric_limits.bound_of(metric, grouped=True)
        assert isinstance(bound, metric_limits.Bound)
        assumptions = [assumed.WHOLE_GROUPS, *[assumed.SIZES] * (estimand == "rows"), labels]
    assumptions += [assumed.FEATURES if 2 in bound.readings else NO_FEATURES]
    assumptions += [assumed.BATCH] * batch + [assumed.RANGE] * bets
    return tuple(assumptions)


def clipping_of(metric: Metric, clipped: tuple[int, float] | None, n: int) -> str:
    """Return how an interval clips errors, in words; empty if it clips none.

    Parameters
    ----------
    metric : Metric
    clipped : tuple of (int, float) or None
        As `shown_limits` returns it; None if it is not known.
    n : int
        Rows.

    Returns
    -------
    str

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> mae = get_metric("neg_mean_absolute_error").with_range((0, 50))
    >>> clipping_of(mae, (3, 0.012), 500)
    'errors clipped at 50, which are 3 of 500 rows and 1.2 % of the score'
    """
    if not metric.clipping or clipped is None:
        return metric.clipping
    (count, share), less = clipped, f"{metric.offset:g} less " if metric.offset else ""
    rows = f"{count} of {n} rows and {100.0 * share:.4g} % of {less}the score"
    return f"{metric.clipping}, which are {rows}"


def shown_limits(
    metric: Metric, rows: metric_limits.Rows, log_level: float, *, near: float
) -> Limits:
    """Return confidence limits of a metric's true score as they are shown, with their price.

    They are rounded outward to ends that a code gives a chance to.

    Parameters
    ----------
    metric, rows, log_level
        As for `score_limits`.
    near : float
        A score that is known before, around which the ends are coded: it less and plus powers of
        1.05 of a unit. If errors are clipped, around it less the share that clipping takes.

    Returns
    -------
    Limits
        Outside of those that `score_limits` returns, or equal to them. Its `log_values` is minus
        the logarithm of the chance that the code gives to all that is shown, in nats.

    Raises
    ------
    InvalidArgument
        If the metric has no bound.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout.certificates.metric_limits import Rows
    >>> from ladderholdout.metrics import get_metric
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 1000)
    >>> rows = Rows(y, y + rng.normal(size=1000), rng)
    >>> limits = shown_limits(get_metric("roc_auc"), rows, -4.4, near=0.78)
    >>> round(limits.low, 3), round(limits.high, 3), round(limits.log_values, 1)
    (0.735, 0.84, 8.0)
    """
    limits, clipped = metric_limits.score_limits(metric, rows, log_level), _clipped(metric, rows)
    price = 0.0
    if clipped is not None:
        count, share = clipped
        near = metric.offset - (1.0 - share) * (metric.offset - near)
        # The chance of k rows is 1/((k + 1) (k + 2)), and shares are alike.
        price = math.log((count + 1) * (count + 2)) + (count > 0) * math.log(_SHARES + 1)
    n = len(rows.targets) if rows.groups is None else len(rows.groups)
    least, most = _shown_range(metric)
    endless = metric_limits.has_no_least(metric)
    width = most - least if math.isfinite(most - least) else max(abs(near), 1e-300)
    code = _Code(near, width * math.sqrt(-log_level / (2.0 * n)))
    low, low_price = code.below(-math.inf if endless and limits.low < least else limits.low, least)
    high, high_price = code.above(limits.high, most)
    low = -math.inf if endless and low == least else low
    price = price + low_price + high_price
    return replace(limits, low=low, high=high, log_values=price, clipped=clipped)


def certify_score(
    metric: Metric,
    rows: metric_limits.Rows,
    transcript: Transcript,
    *,
    released: float,
    confidence: float = 0.95,
    price: float = 0.0,
) -> Limits:
    """Certify the score of an incumbent, from its predictions.

    The interval is a function of the rows and not of the released score. So it is right for any
    mechanism, with noise or without, and needs no rounding of the release; and whoever sees it
    learns more than was released. It has to be on record before it is shown, and `log_values` has
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
    Limits

    Raises
    ------
    InvalidArgument
        If an argument is refused, or the metric has no bound.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout.certificates.metric_limits import Rows
    >>> from ladderholdout.metrics import get_metric
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 1000)
    >>> rows = Rows(y, y + rng.normal(size=1000), rng)
    >>> interval = certify_score(get_metric("roc_auc"), rows, Transcript(0, 10, ()), released=0.78)
    >>> round(interval.low, 3), round(interval.high, 3), round(interval.log_values, 1)
    (0.715, 0.852, 7.8)
    """
    confidence = inside("confidence", confidence)
    assumed.check_nats("price", price)
    log_count = transcript.log_count() + price
    level = min(math.log1p(-confidence) - log_count - math.log(2.0), LARGEST_SIDE)
    limits = shown_limits(metric, rows, level, near=released)
    estimand = None if rows.groups is None else rows.groups.estimand
    assumptions = assumptions_of(metric, batch=transcript.place > 1, estimand=estimand)
    return replace(limits, confidence=confidence, log_count=log_count, assumptions=assumptions)


# Neighbouring ends that can be shown, as multiples of each other; the chance that a code gives to
# the end of the range; how its other chances fall, from what most limits have as a share of
# Hoeffding's; and the farthest that has a chance of its own.
_NEIGHBOURS, _AT_END, _FALL, _MIDDLE, _FARTHEST = 1.05, 0.05, 0.95, -4, 200
_SHARES = 1000


@dataclass(frozen=True, slots=True)
class _Code:
    """Probabilities of the ends that can be shown, given the released score."""

    released: float
    unit: float

    def below(self, limit: float, least: float) -> tuple[float, float]:
        """Return the next end that is not above a limit, and its price."""
        distance, price = self._beyond(self.released - limit)
        end = self.released - distance
        return (end, price) if least < end <= limit else (least, -math.log(_AT_END))

    def above(self, limit: float, most: float) -> tuple[float, float]:
        """Return the next end that is not below a limit, and its price."""
        distance, price = self._beyond(limit - self.released)
        end = self.released + distance
        return (end, price) if limit <= end < most else (most, -math.log(_AT_END))

    def _beyond(self, distance: float) -> tuple[float, float]:
        """Return the next distance that is not smaller, and its price."""
        if not 0.0 < self.unit < math.inf or distance == math.inf:
            return math.inf, math.inf
        power = -_FARTHEST
        if distance > 0.0:
            power = math.ceil(math.log(distance / self.unit) / math.log(_NEIGHBOURS))
        power = min(max(power, -_FARTHEST), _FARTHEST)
        if self.unit * _NEIGHBOURS**power < distance:
            power += 1  # the last bit of the logarithm
        chance = (1.0 - _AT_END) * (1.0 - _FALL) / (1.0 + _FALL) * _FALL ** abs(power - _MIDDLE)
        return self.unit * _NEIGHBOURS**power, -math.log(chance)


def _clipped(metric: Metric, rows: metric_limits.Rows) -> tuple[int, float] | None:
    """Return how many rows are clipped, and the share of the score that it takes, rounded up."""
    if not metric.clip:
        return None
    evaluation = metric.evaluate(rows.targets, rows.predictions)
    if evaluation.bounded_losses is not None:
        kept = float(evaluation.bounded_losses.mean())
    else:
        kept = metric.evaluate(
            rows.targets, within_stated(metric, rows.targets, rows.predictions)[0]
        ).risk
    whole, kept = (metric.offset - metric.to_score(risk) for risk in (evaluation.risk, kept))
    share = max(1.0 - kept / whole, 0.0) if whole > 0.0 else 0.0
    return evaluation.clipped or 0, math.ceil(_SHARES * share - 1e-9) / _SHARES


def _shown_range(metric: Metric) -> tuple[float, float]:
    """Return the range of the ends that are shown; of R2, below -1 there is one more."""
    if metric_limits.has_no_least(metric):
        return -1.0, 1.0
    if metric.risk_range is None:
        return -math.inf, metric.offset
    first, last = (metric.to_score(risk) for risk in metric.risk_range)
    return min(first, last), max(first, last)
