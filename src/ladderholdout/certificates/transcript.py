"""The transcript certificate: an interval that holds however the analyst searched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from ladderholdout.arguments import inside, whole
from ladderholdout.certificates.codes import LadderTranscript, event_length, place_length
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits import intervals
from ladderholdout.limits.betting import Limits
from ladderholdout.mechanisms import Mechanism
from ladderholdout.mechanisms.arithmetic import HALFWAY
from ladderholdout.mechanisms.base import State, bar_of, counting_of
from ladderholdout.metrics.evaluation import checked_weights

# A count of errors within this of a whole number is that number.
COUNT_NOISE = 1e-6

ROWS = (
    "The holdout's rows are independent draws from the population that is meant, and none is a copy"
    " of another. After a split stratified by the label, the population is one whose classes have"
    " the shares that they have among these rows."
)
ALIKE = (
    "The holdout's rows are independent draws from the population that is meant, and none is a copy"
    " of another. A split stratified by the target, or by features, does not draw them so."
)
WHOLE_GROUPS = (
    "The holdout's groups are independent draws from the population of groups that is meant, each"
    " with all of its rows, or with rows that were drawn from it at random; no group lies on both"
    " sides of the split. Rows of one group may depend on each other in any way."
)
SIZES = (
    "Where the mean is over rows and groups differ in size: no group of that population has more"
    " rows than the largest one here, or scores of rows do not depend on the size of their group."
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
class Request:
    """All that had been shown of one holdout when a score was requested.

    Parameters
    ----------
    number : int
        Which of the holdout's requests it is, from 1.
    ladders : tuple of LadderTranscript
        What each of the ladders had shown by then, as in `Transcript`: all of their queries.
    shown, orders : float, default=0.0
        As in `Transcript`, by then.

    Raises
    ------
    InvalidArgument
        If a number is refused.

    Examples
    --------
    The first request, after 100 queries of which two improved, and the third one:

    >>> ladder = LadderTranscript(queries=100, improved=(1, 7), values=(), n_values=101)
    >>> [round(Request(number, (ladder,)).log_count(), 2) for number in (1, 3)]
    [8.15, 11.33]
    """

    number: int
    ladders: tuple[LadderTranscript, ...]
    shown: float = 0.0
    orders: float = 0.0

    def __post_init__(self) -> None:
        """Validate the counts."""
        whole("number", self.number)
        check_nats("shown", self.shown)
        check_nats("orders", self.orders)

    def log_count(self) -> float:
        """Return the code length of the request and of all that was shown before it, in nats."""
        released = sum(ladder.length() for ladder in self.ladders)
        return event_length(self.number) + released + self.shown + self.orders


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that had been released of one holdout when a submission was chosen.

    Parameters
    ----------
    before : int
        Submissions on this holdout, over all its ladders and without repeats, up to the last
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

    orders : float, default=0.0
        Sum of the logarithms of the sizes of the announced batches before that had a member judged
        first: which one it was, was shown.
    on_request : bool, default=False
        Whether half of the chance is kept for requests: on a holdout whose first ladder shows
        improvements alone.
    request : Request or None, default=None
        The request for the incumbent's score, where there was one and all before it can be
        counted. The smaller price of both is paid.

    Raises
    ------
    InvalidArgument
        If the ladders' queries and the submissions before contradict each other.

    Examples
    --------
    A grid of 144 candidates on a fresh holdout, whose last one won:

    >>> round(Transcript(before=0, place=144, ladders=(), event=1).log_count(), 3)
    8.771

    The winner of three finalists, of twenty, and a single query:

    >>> fresh = [Transcript(before=0, place=1, ladders=(), size=size, event=1) for size in (3, 20)]
    >>> [round(transcript.log_count(), 2) for transcript in (*fresh, Transcript.alone())]
    [1.32, 3.22, 0.22]
    """

    before: int
    place: int
    ladders: tuple[LadderTranscript, ...]
    shown: float = 0.0
    size: int | None = None
    event: int | None = None
    orders: float = 0.0
    on_request: bool = False
    request: Request | None = None

    def __post_init__(self) -> None:
        """Validate the counts."""
        if self.request is not None and not self.on_request:
            raise InvalidArgument("request", "with on_request=True", "without")
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
        check_nats("orders", self.orders)

    @classmethod
    def alone(
        cls,
        own: LadderTranscript | None = None,
        others: Sequence[LadderTranscript] = (),
        *,
        shown: float = 0.0,
    ) -> Transcript:
        """Return the transcript of an incumbent without a batch, on a holdout without batches.

        Parameters
        ----------
        own : LadderTranscript or None, default=None
            What the incumbent's own ladder had released before; None for its first query, where
            that improves whatever it is.
        others : sequence of LadderTranscript, default=()
            What other ladders had released.
        shown : float, default=0.0
            As for `Transcript`.

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
        before, event = 0, 1
        for ladder in others if own is None else (own, *others):
            before += ladder.queries
            event += ladder.queries if ladder.improved is None else len(ladder.improved)
        ladders = (*others,) if own is None else (own.improving(), *others)
        return cls(before, 1, ladders, shown, 1, event)

    def log_count(self) -> float:
        """Return the logarithm L of the price of this transcript.

        Returns
        -------
        float
            In nats: for the number of the event, the place in the batch and what each ladder
            released.
        """
        price = self._of_event()
        if self.on_request:
            # Each of the two codes has half of the chance (docs/background/certificates.md,
            # requests beside events): the shorter one is taken, not the sum of both chances, for
            # the intervals of one incumbent need not lie in each other.
            price = min(price, self.request.log_count() if self.request else math.inf)
            price += math.log(2.0)
        return price

    def _of_event(self) -> float:
        released = sum(ladder.length() for ladder in self.ladders)
        return sum(self.lengths()) + released + self.shown + self.orders

    @property
    def by_request(self) -> Request | None:
        """The request, where its price is the smaller one."""
        request = self.request
        return None if request is None or request.log_count() >= self._of_event() else request

    def lengths(self) -> tuple[float, float]:
        """Return the parts of `log_count` for the number of the event and for the place.

        Returns
        -------
        tuple of (float, float)
            In nats. Without a number of the event the first is for the length of the transcript.

        Examples
        --------
        >>> transcript = Transcript(before=0, place=2, ladders=(), size=20, event=1)
        >>> [round(part, 2) for part in transcript.lengths()]
        [0.22, 3.0]
        """
        event = place_length(self.before + 1) if self.event is None else event_length(self.event)
        # Of an announced size each place is as likely as another.
        return event, place_length(self.place) if self.size is None else math.log(self.size)


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
) -> Limits:
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
    Limits

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
    low, high = min(max(risk - half, 0.0), 1.0), min(max(risk + half, 0.0), 1.0)
    log_level = log_wrong - log_count - math.log(2.0)
    limits = widened(low, high, n, log_level, binary, weights)
    assumed: tuple[str, ...] = (ROWS, LABELS, FEATURES if weights is None else WEIGHTS)
    assumed += (BATCH,) * (transcript.place > 1) + (RANGE,) * (not binary)
    price += log_count
    return replace(limits, confidence=confidence, log_count=price, assumptions=assumed)


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
) -> Limits:
    """Widen a range of empirical risks to one of true risks, at a level for each side."""
    if weights is not None:
        weights = checked_weights(weights, n, "weights")
        return Limits(
            intervals.weighted_lower(low, weights, log_level),
            intervals.weighted_upper(high, weights, log_level),
            "Chernoff and Hoeffding, weighted",
        )
    if not binary:
        return Limits(
            intervals.bounded_lower(low, n, log_level),
            intervals.bounded_upper(high, n, log_level),
            "Chernoff and Bentkus",
        )
    fewest = math.ceil(low * n - COUNT_NOISE)
    most = math.floor(high * n + COUNT_NOISE)
    level = min(log_level, intervals.LARGEST_SIDE)
    return Limits(
        intervals.exact_lower(fewest, n, level),
        intervals.exact_upper(most, n, level),
        "exact binomial",
    )


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


def highest_release(
    mechanism: Mechanism, n: int, released: float, releases: int, *, counts: bool
) -> float:
    """Return the largest risk that a submission can have to be released next.

    It follows from the rule and from what it released last.

    Parameters
    ----------
    mechanism : Mechanism
        A rule whose releases fall.
    n : int
        Number of examples.
    released : float
        The risk that was released last, in the unit of the rule.
    releases : int
        How many releases there were.
    counts : bool
        Whether each loss is 0 or 1, without weights.

    Returns
    -------
    float
        What is released of such a risk is the largest number that may follow.

    Examples
    --------
    >>> from ladderholdout.mechanisms import ParameterFreeLadder, PricedLadder
    >>> for rule in (PricedLadder(), ParameterFreeLadder()):
    ...     highest_release(rule, 1000, 0.2, 1, counts=True)
    0.185
    0.2
    """
    bar = bar_of(mechanism, State(n, released, releases=releases))
    # Shares of n rows are at most the last one below the bar.
    return math.floor(bar * n + COUNT_NOISE) / n if counts else bar


def ladder_transcript(
    submissions: int,
    improved: tuple[int, ...],
    values: tuple[int, ...],
    grid: Grid,
    choices: tuple[int, ...] | None = None,
) -> LadderTranscript:
    """Return what one ladder released, from its counts alone.

    Parameters
    ----------
    submissions : int
        Submissions to it, without repeats.
    improved : tuple of int
        Which of them improved, in 1 to submissions, increasing.
    values : tuple of int
        The number of each released value: of a risk in [0, 1] that is rounded to a grid, or of
        errors.
    grid : Grid
        What it can release.
    choices : tuple of int, optional
        How many values each of them could have been, as was known before. Where values fall, each
        is below the one before as well.

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
        queries=max(improved, default=0) if used_up else submissions,
        improved=None if grid.discloses else improved,
        values=values,
        n_values=grid.n_values,
        falling=grid.falling,
        first_improves=grid.first_improves,
        choices=choices,
    )
