"""The transcript certificate: an interval that holds however the analyst searched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from ladderholdout.certificates.codes import (
    LEAST_LOG_COUNT,
    LadderTranscript,
    event_length,
    place_length,
)
from ladderholdout.certificates.intervals import (
    bounded_lower,
    bounded_upper,
    exact_lower,
    exact_upper,
    weighted_lower,
    weighted_upper,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import Mechanism
from ladderholdout.mechanisms.arithmetic import HALFWAY, inside, whole
from ladderholdout.mechanisms.base import counting_of
from ladderholdout.metrics.evaluation import checked_weights

# A count of errors within this of a whole number is that number.
COUNT_NOISE = 1e-6

ROWS = (
    "The holdout's rows are independent draws from the population that is meant, and none is a copy"
    " of another. After a split stratified by the label, the population is one whose classes have"
    " the shares that they have among these rows."
)
LABELS = "The search knew nothing of the labels but what the ledger released."
FEATURES = (
    "The search did not use the holdout's features either, other than by submitting; if it did,"
    " the interval is for new labels on these very rows, and void after a split stratified by the"
    " label."
)
BATCH = (
    "All submissions of the batch were fixed before the first of them was answered; while a model"
    " trained, nobody used answers on its rounds but to stop it."
)
WEIGHTS = (
    "The interval is for the weighted mean on these very rows and weights, with new labels. Where"
    " the weights were made from the labels, or the rows were drawn by them, it is for new features"
    " with these labels and weights, and the search did not use the holdout's features."
)
RANGE = "The loss lies in its range; where that was stated, larger losses were clipped to it."


def check_nats(argument: str, nats: float) -> None:
    """Refuse a price that is infinite or below 0."""
    if not 0.0 <= nats < math.inf:
        raise InvalidArgument(argument, "finite and not below 0", repr(nats))


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that had been released of one holdout when a submission was chosen.

    Parameters
    ----------
    before : int
        Submissions on this holdout, over all its ladders and with repeats, up to the last
        one before the incumbent that is not of the incumbent's batch. Without a batch that is
        up to the one before it.
    place : int
        The incumbent's own place in its batch, from 1; where the batch has an order that was
        fixed in advance, the place among those that came after the ones before will do. 1
        without a batch.
    ladders : tuple of LadderTranscript
        What each of the holdout's ladders had released by those submissions, and each ladder of a
        holdout that shares rows with it: all of them in one order. Of an incumbent without a batch
        its own ladder's has one query more, that of the incumbent: see `Transcript.alone`.
    size : int or None, default=None
        How many submissions the batch was announced to have, on record before the first of them
        was answered; 1 without a batch.
    shown : float, default=0.0
        Sum of the logarithms of the numbers of values that queries of the reserves of holdouts
        that share rows with this one could show by then.
    event : int or None, default=None
        The number of the event, from 1: one more than the events that came before, over all ladders
        in that order. An event is a query without a batch that improved its ladder, any query
        to a ladder that releases each submission's own value, and the beginning of a run of
        submissions of one batch. None where they were not counted: then the length of the
        transcript is paid for instead. All certificates of one holdout count them, or none does.

    Raises
    ------
    InvalidArgument
        If the ladders' queries and the submissions before contradict each other.

    Examples
    --------
    A grid of 144 candidates on a fresh holdout, whose last one won:

    >>> round(Transcript(before=0, place=144, ladders=(), event=1).log_count(), 3)
    8.953

    The winner of three finalists, of twenty, and a single query:

    >>> fresh = [Transcript(before=0, place=1, ladders=(), size=size, event=1) for size in (3, 20)]
    >>> [round(one.log_count(), 2) for one in (*fresh, Transcript.alone())]
    [1.5, 3.4, 0.69]
    """

    before: int
    place: int
    ladders: tuple[LadderTranscript, ...]
    shown: float = 0.0
    size: int | None = None
    event: int | None = None

    def __post_init__(self) -> None:
        """Validate the counts."""
        if self.before != 0:
            whole("before", self.before)
        whole("place", self.place)
        if self.size is not None and whole("size", self.size) < self.place:
            raise InvalidArgument("size", f"at least {self.place}, the place", self.size)
        queries = sum(ladder.queries for ladder in self.ladders)
        # Without any query, what was released would be forgotten.
        if self.event is not None:
            whole("event", self.event)
        most = self.before + (self.event is not None and self.size == 1)
        if not min(self.before, 1) <= queries <= most:
            allowed = (
                f"of at most {self.before} queries together, and not of none if there were any"
            )
            raise InvalidArgument("ladders", allowed, f"of {queries}")
        check_nats("shown", self.shown)

    @classmethod
    def alone(
        cls,
        own: LadderTranscript | None = None,
        others: Sequence[LadderTranscript] = (),
        *,
        shown: float = 0.0,
    ) -> Transcript:
        """Return that of an incumbent without a batch, on a holdout that had no batches.

        Parameters
        ----------
        own : LadderTranscript or None, default=None
            What the incumbent's own ladder had released before; None for its first query, where
            that improves whatever it is.
        others : sequence of LadderTranscript, default=()
            What other ladders had released.
        shown : float, default=0.0
            As of the transcript.

        Returns
        -------
        Transcript

        Examples
        --------
        >>> own = LadderTranscript(queries=9, improved=(1, 7), values=(30, 22), n_values=101)
        >>> transcript = Transcript.alone(own)
        >>> transcript.before, transcript.event, transcript.ladders[0].improved
        (9, 3, (1, 7, 10))
        """
        every = (*others,) if own is None else (own, *others)
        before = sum(one.submissions or one.queries for one in every)
        event = 1 + sum(one.events() for one in every)
        ladders = (*others,) if own is None else (own.improving(), *others)
        return cls(before, 1, ladders, shown, 1, event)

    def log_count(self) -> float:
        """Return the logarithm L of the price of this transcript.

        Returns
        -------
        float
            In nats: for the number of the event, the place in the batch and what each ladder
            released; at least ln 2.
        """
        released = sum(ladder.length() for ladder in self.ladders) + self.shown
        if self.event is None:
            return sum(self.lengths()) + released
        return max(sum(self.lengths()) + released, LEAST_LOG_COUNT)

    def lengths(self) -> tuple[float, float]:
        """Return what of `log_count` is for the number of the event, and for the place.

        Returns
        -------
        tuple of (float, float)
            In nats. Without a number of the event the first is for the length of the transcript.

        Examples
        --------
        >>> one = Transcript(before=0, place=2, ladders=(), size=20, event=1)
        >>> [round(part, 2) for part in one.lengths()]
        [0.41, 3.0]
        """
        first = place_length(self.before + 1) if self.event is None else event_length(self.event)
        # Of an announced size each place is as likely as another.
        return first, place_length(self.place) if self.size is None else math.log(self.size)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A confidence interval for the true risk of an incumbent.

    Attributes
    ----------
    risk : float
        The released risk, of a loss in [0, 1].
    low, high : float
        Ends of the interval for the true risk.
    confidence : float
        At least this is the chance that all certificates of this holdout hold together.
    bound : str
        The inequality behind it.
    log_count : float
        L: the level was divided by exp(L).
    assumptions : tuple of str
        What must be true; where it is not, the certificate is void.

    Examples
    --------
    >>> certificate = certify(0.05, 5000, Transcript(before=0, place=144, ladders=()))
    >>> round(certificate.low, 3), round(certificate.high, 3), certificate.confidence
    (0.037, 0.066, 0.95)
    """

    risk: float
    low: float
    high: float
    confidence: float
    bound: str
    log_count: float
    assumptions: tuple[str, ...]


def certify(
    risk: float,
    n: int,
    transcript: Transcript,
    *,
    confidence: float = 0.95,
    rounding: float = 0.0,
    noise: Callable[[float], float] | None = None,
    binary: bool = True,
    weights: ArrayLike | None = None,
    price: float = 0.0,
) -> Certificate:
    """Certify a released risk.

    Blum & Hardt 2015, the union bound of Theorem 3.1, over the transcripts that happened.

    Parameters
    ----------
    risk : float
        The released risk of the incumbent, of a loss in [0, 1].
    n : int
        Number of examples in the holdout.
    transcript : Transcript
        What had been released when the incumbent was chosen.
    confidence : float, default=0.95
        In (0, 1), for the two sides together and for all incumbents at once.
    rounding : float, default=0.0
        Distance between two risks that can be released; 0 where they are not rounded.
    noise : callable or None, default=None
        The `Mechanism.allowance` of a rule with noise: how far it moves a release, but for a
        chance whose logarithm it is given. Half of the risk of being wrong is spent on it.
    binary : bool, default=True
        Whether each loss is 0 or 1; if not, it lies in between. With weights that is the same.
    weights : array-like of shape (n,) or None, default=None
        Weights of the holdout's rows.
    price : float, default=0.0
        In nats, for a confidence that was not fixed before the search: see `later_price`.

    Returns
    -------
    Certificate

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    The best of a grid of 1,000 had 250 errors in 5,000 rows:

    >>> certificate = certify(0.05, 5000, Transcript(before=0, place=1000, ladders=()))
    >>> round(certificate.low, 4), round(certificate.high, 4)
    (0.0357, 0.0675)
    """
    n = whole("n", n)
    confidence = inside("confidence", confidence)
    if not (rounding >= 0.0 and math.isfinite(risk + rounding)):
        raise InvalidArgument("risk and rounding", "finite, the second not below 0", "not")
    check_nats("price", price)
    log_count = transcript.log_count()
    log_wrong = math.log1p(-confidence) - price
    half = (0.5 + HALFWAY) * rounding
    if noise is not None:
        log_wrong -= math.log(2.0)
        half += noise(log_wrong - place_length(transcript.before + transcript.place))
    low, high = (min(max(end, 0.0), 1.0) for end in (risk - half, risk + half))
    log_level = log_wrong - log_count - math.log(2.0)
    bound, low, high = widened(low, high, n, log_level, binary, weights)
    named = _assumptions(transcript.place > 1, binary, weights is not None)
    return Certificate(float(risk), low, high, confidence, bound, log_count + price, named)


def later_price(number: int, confidence: float) -> float:
    """Return the price of a confidence that was chosen after something was seen.

    Parameters
    ----------
    number : int
        Among the confidences that were asked for beside the one that was fixed at first, from 1.
    confidence : float
        In (0, 1).

    Returns
    -------
    float
        ln(k (k + 1)) + ln 3 + 1.5 ln(1 - ln b) nats for the k-th one, 1 - b. With it the sum
        over these confidences of P(a certificate at 1 - b is false)/b is at most 1, however
        each of them was chosen.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> [round(later_price(1, confidence), 2) for confidence in (0.9, 0.95, 0.99)]
    [3.58, 3.87, 4.38]
    """
    number, wrong = whole("number", number), 1.0 - inside("confidence", confidence)
    return math.log(3 * number * (number + 1)) + 1.5 * math.log1p(-math.log(wrong))


def widened(
    low: float, high: float, n: int, log_level: float, binary: bool, weights: ArrayLike | None
) -> tuple[str, float, float]:
    """Widen a range of empirical risks to one of true risks, at a level for each side."""
    if weights is not None:
        weights = checked_weights(weights, n, "weights")
        ends = weighted_lower(low, weights, log_level), weighted_upper(high, weights, log_level)
        return "Chernoff and Hoeffding, weighted", *ends
    if not binary:
        ends = bounded_lower(low, n, log_level), bounded_upper(high, n, log_level)
        return "Chernoff and Bentkus", *ends
    fewest = math.ceil(low * n - COUNT_NOISE)
    most = math.floor(high * n + COUNT_NOISE)
    ends = exact_lower(fewest, n, log_level), exact_upper(most, n, log_level)
    return "exact binomial", *ends


def _assumptions(batch: bool, binary: bool, weighted: bool) -> tuple[str, ...]:
    named = [ROWS, LABELS, WEIGHTS if weighted else FEATURES]
    return tuple(named + [BATCH] * batch + [RANGE] * (not binary))


@dataclass(frozen=True, slots=True)
class Grid:
    """What one ladder can release.

    Parameters
    ----------
    n_values : int
        Number of values.
    falling : bool, default=True
        Whether each value is below the one before.
    first_improves : bool, default=True
        Whether the first submission always improves.
    discloses : bool, default=False
        Whether each submission's own value is released.
    budget : int or None, default=None
        Releases allowed in all.

    Examples
    --------
    >>> Grid(n_values=101, budget=20)
    Grid(n_values=101, falling=True, first_improves=True, discloses=False, budget=20)
    """

    n_values: int
    falling: bool = True
    first_improves: bool = True
    discloses: bool = False
    budget: int | None = None


def grid_of(
    mechanism: Mechanism, n: int, *, binary: bool, budget: int | None = None
) -> Grid | None:
    """Return what a ladder with this mechanism can release, for a loss in [0, 1].

    Parameters
    ----------
    mechanism : Mechanism
        The rule.
    n : int
        Number of examples.
    binary : bool
        Whether each loss is 0 or 1, without weights.
    budget : int or None, default=None
        Releases allowed in all.

    Returns
    -------
    Grid or None
        None where the mechanism does not state how its releases are counted, or they are not
        rounded and the risks are no counts of errors.

    Examples
    --------
    >>> from ladderholdout.mechanisms import FullDisclosure, ParameterFreeLadder
    >>> grid_of(ParameterFreeLadder(), 5000, binary=True).n_values
    5001
    >>> grid_of(FullDisclosure(), 5000, binary=False) is None
    True
    """
    step = mechanism.resolution(whole("n", n))
    counted = counting_of(mechanism)
    if counted is None or (step == 0.0 and not binary):
        return None
    return Grid(
        # Noise moves the range of the risk, and so cuts one more cell of the grid.
        n + 1 if step == 0.0 else math.floor(1.0 / step + 0.5) + 1 + mechanism.noisy,
        falling=counted == "falling",
        first_improves=math.isinf(mechanism.start(n).standing),
        discloses=mechanism.discloses,
        budget=budget,
    )


def ladder_transcript(
    submissions: int,
    improved: tuple[int, ...],
    values: tuple[int, ...],
    grid: Grid,
    choices: tuple[int, ...] | None = None,
    repeats: tuple[int, ...] = (),
) -> LadderTranscript:
    """Return what one ladder released, from its counts alone.

    Parameters
    ----------
    submissions : int
        Submissions to it, with repeats.
    improved : tuple of int
        Which of them improved, in 1 to submissions, increasing.
    values : tuple of int
        The number of each released value: of a risk in [0, 1] that is rounded to a grid, or of
        errors.
    grid : Grid
        What it can release.
    choices : tuple of int, optional
        How many values each of them could have been, as was known before; used where
        values do not fall.
    repeats : tuple of int, optional
        The distinguishable repeats, increasing. A ladder that releases each submission's own
        value does so for a repeat, too, so there it is counted among the values.

    Returns
    -------
    LadderTranscript

    Raises
    ------
    InvalidArgument
        If what was released cannot have been.

    Examples
    --------
    >>> ladder_transcript(500, (1, 3), (60, 50), Grid(101, budget=2)).queries
    3
    """
    # Once the budget is used up it is known that nothing improves any more.
    used_up = grid.budget is not None and len(improved) >= grid.budget
    return LadderTranscript(
        (improved[-1] if improved else 0) if used_up else submissions,
        None if grid.discloses else improved,
        values,
        grid.n_values,
        grid.falling,
        grid.first_improves,
        None if grid.falling else choices,
        () if grid.discloses else repeats,
        submissions,
    )
