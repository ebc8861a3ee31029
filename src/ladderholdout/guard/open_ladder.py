"""What the integrations need of a ladder, wherever it is: `OpenLadder`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.points import Unsent
from ladderholdout.guard.submission import Guard, Origin, Waiting
from ladderholdout.guard.views import Estimate, Release, ScoreCertificate, Status, Submission
from ladderholdout.ledger import HoldoutRecord, LadderRecord, Transaction
from ladderholdout.mechanisms import LadderRules
from ladderholdout.metrics import Metric

T = TypeVar("T")
Body = Callable[[Transaction, LadderRecord], T]


class OpenLadder(Protocol):
    """A ladder that is open: what searches, studies and trackers are given.

    Attributes
    ----------
    id, holdout_id : int
        Of the ladder and its holdout in the ledger.
    metric : Metric
    feedback, overlap : str
        As the user stated them.
    order : ndarray or None
        How the rows of this caller are ordered; None for the registered order.
    foreign : bool
        Whether they came in another order than the registered one.
    """

    id: int
    holdout_id: int
    metric: Metric
    feedback: str
    overlap: str
    order: NDArray[Any] | None
    foreign: bool

    @property
    def by_metric(self) -> Mapping[str, OpenLadder]:
        """The ladder of each metric, where there are several; else nothing.

        What of several there can only be one of is that of the metric that was named first.
        """

    @property
    def ledger(self) -> str:
        """The URL of its ledger, or of the holdout where that is behind a server."""

    @property
    def name(self) -> str:
        """The holdout's name."""

    @property
    def fingerprint(self) -> str:
        """The holdout's fingerprint."""

    @property
    def rules(self) -> LadderRules:
        """The mechanism, its budget and its unit."""

    @property
    def place(self) -> tuple[str, int]:
        """The ledger and the holdout: equal for all ladders on one holdout."""

    def submit(self, predictions: Any, origin: Origin, ids: NDArray[Any] | None = None) -> Release:
        """Submit predictions; the release is durable before it returns.

        In the order of the caller's rows, or with the hashes of their ids.
        """

    def evaluate(self, estimator: Any, origin: Origin, steps: tuple[Any, ...] = ()) -> Release:
        """Submit what an estimator predicts on the rows, as these fitted pipelines leave them."""

    def predictions(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Any:
        """Return what an estimator predicts on the rows, for `answer` alone."""

    def answer(self, predictions: Any, origin: Origin) -> Release:
        """Submit what `predictions` returned."""

    def announce(self, batch: str, size: int) -> None:
        """Put on record how many submissions a batch will have."""

    def together(self, batch: str, waiting: Sequence[Waiting]) -> Iterator[Release]:
        """Submit a batch, all of which is here before any of it is answered."""

    def status(self) -> Status:
        """Return the released score and what queried the holdout."""

    def status_for_copy(self) -> Status:
        """Return the same for a tracker's page, whose readers this process does not count."""

    def history(self, after: int, limit: int | None) -> tuple[Submission, ...]:
        """Return the submissions after a number, as the analyst may see them."""

    def certificate(self, confidence: float | None) -> ScoreCertificate:
        """Certify the incumbent."""

    def certify(self, confidence: float | None) -> ScoreCertificate:
        """Query the reserve about the incumbent."""

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection."""

    def reveal(self) -> float | None:
        """Show the released score of a ladder that shows none."""

    def check_open(self) -> None:
        """Refuse a holdout that takes no more submissions; HoldoutConflict."""

    def records(self) -> tuple[HoldoutRecord, LadderRecord]:
        """Return the holdout and the ladder as the ledger has them now."""

    def read(self, body: Body[T]) -> T:
        """Read one state of the ledger."""

    def showing(self, body: Body[T]) -> T:
        """Read what is shown to somebody: what is built from then on may depend on it."""

    def write(self, body: Body[T]) -> T:
        """Write to the ladder in one transaction."""

    def alone(self, body: Callable[[], T]) -> T:
        """Do something while nobody else does it on this ladder, where the ledger can ensure it."""

    def note_overlap(self, source: str, rows: int) -> None:
        """Put on record how many rows of the holdout were seen elsewhere."""

    def note_groups(self, by: str) -> None:
        """Put on record what shows that the rows of the holdout come in groups."""

    def guard(self) -> Guard:
        """Return the rows, labels and rules as this process holds them."""

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, for a copy in a tracker."""

    def was_opened(self) -> bool:
        """Return whether a guarded split of this holdout was opened in this search."""


@runtime_checkable
class HasLadder(Protocol):
    """What a user holds, such as a `LadderHoldout`."""

    @property
    def open_ladder(self) -> OpenLadder:
        """The ladder behind it."""


def ladder_of(holdout: object, *, several: bool = False) -> OpenLadder:
    """Return the ladder behind what a user gave to an integration.

    Parameters
    ----------
    holdout : object
    several : bool, default=False
        Whether the integration knows what to do with several metrics.

    Raises
    ------
    InvalidArgument
        It is no holdout, or one of several metrics where one is needed.
    """
    if not isinstance(holdout, HasLadder):
        raise InvalidArgument("holdout", "a LadderHoldout", type(holdout).__name__)
    ladder = holdout.open_ladder
    return ladder if several else of_one_metric(ladder)


def of_one_metric(ladder: OpenLadder) -> OpenLadder:
    """Return a ladder; refuse several."""
    if ladder.by_metric:
        raise InvalidArgument(
            "holdout",
            "of one metric here",
            f"of {len(ladder.by_metric)}",
            f"Name the one that is meant: holdout[{next(iter(ladder.by_metric))!r}].",
        )
    return ladder


def one_by_one(ladder: OpenLadder, batch: str, waiting: Sequence[Waiting]) -> Iterator[Release]:
    """Submit a batch to a ladder beside its ledger, after its length was put on record."""
    ladder.announce(batch, len(waiting))
    for place, one in enumerate(waiting, 1):
        query = ladder.answer if one.ordered else ladder.submit
        yield query(one.predictions, Origin(batch=batch, place=place, context=one.context))
