"""Certificates by an anchor: an earlier incumbent, and what separates this one from it.

A climb by small changes ends with a model that agrees with earlier incumbents on most rows, and
these were chosen when little had been released. So their own intervals are narrow, and the
difference from them is on few rows. Proposition A1 of docs/background/certificates.md has the
proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ladderholdout.arguments import inside
from ladderholdout.certificates.reserve_intervals import ReserveGrid
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
from ladderholdout.limits.betting import Limits, mean_limits
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.metrics import Metric
from ladderholdout.metrics import scores as of
from ladderholdout.metrics.arrays import Array, FloatArray

# The share of a level for the pairs of an incumbent with anchors; its own interval has the rest,
# and is never wider by much than one without anchors.
PAIRS_SHARE = 1 / 8
SAME_ROWS = (
    "The interval is for new labels on these very rows, and void after a split stratified by the"
    " label."
)


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A submission that became the incumbent of a ladder.

    Parameters
    ----------
    predictions : ndarray
        As `Metric.canonical` returns them.
    transcript : Transcript
        What had been released when it was chosen.

    Examples
    --------
    >>> Incumbent(np.array([0, 1]), Transcript.alone()).transcript.before
    0
    """

    predictions: Array
    transcript: Transcript


def difference_limits(
    differences: FloatArray,
    log_level: float,
    *,
    differing: Array | None = None,
    opposite: bool = False,
) -> tuple[float, float]:
    """Return limits of the difference of two fixed models' risks, with a level for each side.

    Parameters
    ----------
    differences : ndarray of shape (n,)
        Of their losses on each row, in [-1, 1].
    log_level : float
        Natural logarithm of the level of each side, negative.
    differing : ndarray of bool of shape (n,), optional
        The rows whose predictions differ, where the features are held fixed: the others have the
        same loss whatever their label is. None where rows are drawn anew with their features.
    opposite : bool, default=False
        Whether on each of these rows one of the two errs and the other does not, as with two
        classes.

    Returns
    -------
    tuple of (float, float)

    Examples
    --------
    Of 20 rows in 1,000 on which two models differ, the first is right on 16:

    >>> differences = np.repeat([-1.0, 1.0, 0.0], [16, 4, 980])
    >>> low, high = difference_limits(differences, -13.7)
    >>> round(low, 3), round(high, 3)
    (-0.046, 0.015)
    >>> low, high = difference_limits(
    ...     differences, -13.7, differing=differences != 0, opposite=True
    ... )
    >>> round(low, 3), round(high, 3)
    (-0.02, 0.009)
    """
    if differing is None:
        found = mean_limits(differences, log_level, (-1.0, 1.0))
        return found.low, found.high
    rows = int(np.count_nonzero(differing))
    if not rows:
        return 0.0, 0.0
    share, among = rows / len(differences), differences[differing]
    if not opposite:
        found = mean_limits(among, log_level, (-1.0, 1.0))
        return share * found.low, share * found.high
    errors = int(np.count_nonzero(among > 0.0))
    ends = exact_lower(errors, rows, log_level), exact_upper(errors, rows, log_level)
    return share * (2.0 * ends[0] - 1.0), share * (2.0 * ends[1] - 1.0)


def certify_anchored(
    metric: Metric,
    targets: Array,
    incumbents: Sequence[Incumbent],
    *,
    same_rows: bool = False,
    n_classes: int = 2,
    confidence: float = 0.95,
    price: float = 0.0,
) -> Limits:
    """Certify the score of an incumbent by itself and by its anchors, the earlier incumbents.

    It is a function of predictions and labels on all rows, and not of the released score. Before
    it is shown it has to be on record, and `log_values` has to be added to `Transcript.shown` of
    all that is chosen later.

    Parameters
    ----------
    metric : Metric
        A mean of losses in a range.
    targets : ndarray
        As `Metric.targets` returns them; rows without weights.
    incumbents : sequence of Incumbent
        The ladder's incumbents in their order up to the one to be certified, which is the last.
        All others are anchors, and are part of its transcript: of its own batch there is none.
    same_rows : bool, default=False
        Whether new labels on these very rows are certified, and not new rows. Then rows with the
        same predictions are known to have no difference, which makes the interval narrower. It
        does not hold for a holdout that was stratified by the label.
    n_classes : int, default=2
        Classes that the holdout was registered with.
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
        If an argument is refused, or the metric is no mean of bounded losses.

    Examples
    --------
    A climb by changes of 20 rows in 1,000; the sixth incumbent's transcript costs 50 nats:

    >>> from ladderholdout.certificates import LadderTranscript, certify
    >>> from ladderholdout.metrics import get_metric
    >>> y = np.random.default_rng(0).integers(0, 2, 1000)
    >>> errors = [300, 280, 260, 240, 220, 200]
    >>> models = [np.where(np.arange(1000) < count, 1 - y, y) for count in errors]
    >>> improved = (1, 20, 40, 60, 80)
    >>> before = [LadderTranscript(19 + 20 * (i - 1), improved[:i], tuple(errors[:i]), 1001)
    ...           for i in range(1, 6)]
    >>> transcripts = [Transcript.alone(), *map(Transcript.alone, before)]
    >>> climb = [Incumbent(*one) for one in zip(models, transcripts, strict=True)]
    >>> alone = certify(0.2, 1000, transcripts[-1])
    >>> found = certify_anchored(get_metric("accuracy"), y, climb, same_rows=True)
    >>> [round(end, 3) for end in (1 - alone.high, 1 - alone.low, found.low, found.high)]
    [0.655, 0.906, 0.678, 0.834]
    """
    confidence = inside("confidence", confidence)
    if not (metric.is_mean and metric.bounded):
        raise InvalidArgument("metric", "a mean of losses in a range", metric.name)
    if not incumbents:
        raise InvalidArgument("incumbents", "one at least", "none")
    check_nats("price", price)
    assert metric.risk_range is not None
    least, most = metric.risk_range
    losses = [_losses(metric, targets, one.predictions) for one in incumbents]
    side = math.log1p(-confidence) - price - math.log(2.0)
    levels = [side - one.transcript.log_count() for one in incumbents]
    exact, chosen = metric.loss is of.zero_one, len(incumbents) - 1

    def own(number: int) -> tuple[float, float]:
        # The first incumbent of a ladder has no anchors, and the whole level.
        level = levels[number] + (math.log1p(-PAIRS_SHARE) if number else 0.0)
        if not exact:
            found = mean_limits(losses[number], level)
            return found.low, found.high
        errors, n = round(float(losses[number].sum())), len(losses[number])
        return exact_lower(errors, n, level), exact_upper(errors, n, level)

    low, high = own(chosen)
    for number in range(chosen):
        differing = _differing(incumbents, number) if same_rows else None
        below, above = difference_limits(
            losses[chosen] - losses[number],
            levels[chosen] + math.log(PAIRS_SHARE / chosen),
            differing=differing,
            opposite=exact and n_classes == 2,
        )
        first, last = own(number)
        low, high = max(low, first + below), min(high, last + above)
    found = Limits(low, high, "").through(
        lambda part: metric.to_score(least + (most - least) * part)
    )
    ends = sorted(metric.to_score(risk) for risk in metric.risk_range)
    # An end is shown to a quarter of what `certify_score` shows: rounding must not take the gain.
    grid = ReserveGrid(max(400, math.ceil(16.0 * math.sqrt(len(targets)))), (ends[0], ends[1]))
    named = [ROWS, LABELS, SAME_ROWS if same_rows else FEATURES]
    alone = all(one.transcript.size == 1 for one in incumbents)
    named += [BATCH] * (not alone) + [RANGE] * (not exact)
    bound = "exact binomial" if exact and not chosen else "anchored"
    log_count = incumbents[-1].transcript.log_count() + price
    values = 2.0 * grid.log_values
    low, high = grid.below(found.low), grid.above(found.high)
    return Limits(low, high, bound, confidence, log_count, tuple(named), values)


def _losses(metric: Metric, targets: Array, predictions: Array) -> FloatArray:
    """Return the losses of a model as shares of their range."""
    losses, limits = metric.evaluate(targets, predictions).losses, metric.risk_range
    assert losses is not None and limits is not None
    return np.asarray((losses - limits[0]) / (limits[1] - limits[0]))


def _differing(incumbents: Sequence[Incumbent], number: int) -> Array:
    """Return the rows on which the last incumbent differs from an earlier one."""
    differing = incumbents[-1].predictions != incumbents[number].predictions
    return np.asarray(differing.reshape(len(differing), -1).any(axis=1))
