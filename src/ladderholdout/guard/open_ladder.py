"""The seam between the guard and all that queries it: `OpenLadder`, plain data in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.shown import (
    Comparison,
    Decision,
    Estimate,
    Release,
    ScoreCertificate,
    Status,
    Submission,
    Unsent,
    Withdrawn,
    step_at,
)
from ladderholdout.ledger.fold import refuse_retired
from ladderholdout.mechanisms import LadderRules
from ladderholdout.metrics import Metric

T = TypeVar("T")
Place: TypeAlias = tuple[str, int]
"""A holdout: the URL of its ledger, and its number there."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What never changes of a ladder and its holdout.

    Attributes
    ----------
    place : Place
        The ledger and the holdout: equal for all ladders on one holdout.
    name, fingerprint : str
        Of the holdout.
    n, n_reserve : int
        Its rows, and how many of them are in the reserve.
    classes : ndarray or None
        The class labels, sorted.
    confidence : float
        Of all certificates of the holdout.
    account, ladder : str
        Whose ladder it is, and its name.
    created : datetime
        When the ladder was started.
    rules : LadderRules
        The mechanism, its budget and its unit.
    estimand : {"rows", "groups"} or None
        Which mean certificates are of, where the rows were drawn in groups.
    block : int
        Which block of rows of the holdout it is, from 1.
    """

    place: Place
    name: str
    fingerprint: str
    n: int
    n_reserve: int
    classes: NDArray[Any] | None = field(compare=False)
    confidence: float
    account: str
    ladder: str
    created: datetime
    rules: LadderRules
    estimand: str | None = None
    block: int = 1

    @property
    def n_ladder(self) -> int:
        """How many rows the ladders measure."""
        return self.n - self.n_reserve


@dataclass(frozen=True, slots=True)
class State:
    """What changes of a ladder and its holdout, as the ledger has it now.

    Attributes
    ----------
    submissions, releases : int
    incumbent : int or None
        The number of the submission that is the incumbent.
    released : float or None
        The released score; None before there is an incumbent, and where the ladder releases no
        values and nobody asked for it.
    opened, retired : datetime or None
        When an audit opened the ladder, and when the holdout was retired.
    has_ids : bool
        Whether the rows were registered with ids.
    """

    submissions: int
    releases: int
    incumbent: int | None
    released: float | None
    opened: datetime | None
    retired: datetime | None
    has_ids: bool


OtherBlocks: TypeAlias = tuple[list[NDArray[np.uint64]], list[NDArray[np.uint64]]]
"""Sorted hashes of the rows of earlier blocks, and of later ones."""


def _no_blocks() -> OtherBlocks:
    return [], []


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HeldRows:
    """The rows of a holdout as this process holds them; whoever hands them on, copies them.

    Attributes
    ----------
    X : object
        The features; None where they are behind a server that does not share them.
    hashes : ndarray of uint64, shape (n,)
        Sorted hashes of the rows; empty where there are none.
    view : int
        Which features of the rows these are.
    order_known : bool
        Whether X has the order in which the caller gave the rows, if the caller gave them.
    groups : ndarray of uint64 or None
        Sorted hashes of the groups of the rows; None where the rows have none, or where they are
        behind a server.
    other_blocks : callable
        Return sorted hashes of the rows of each earlier block of the holdout, in each of its views,
        and those of each later one, as the ledger has them now; none behind a server.
    """

    X: Any
    hashes: NDArray[np.uint64]
    view: int
    order_known: bool
    _labels: Any = None
    groups: NDArray[np.uint64] | None = None
    other_blocks: Callable[[], OtherBlocks] = _no_blocks

    @property
    def n_outputs(self) -> int:
        """How many labels or target values each row has."""
        shape = np.shape(self._labels)
        return int(shape[1]) if len(shape) > 1 else 1

    def have_labels(self, hashes: NDArray[np.uint64], y: Any) -> bool:
        """Return whether rows with these hashes have these labels, in whatever order.

        Raises
        ------
        InvalidArgument
            The labels are behind a server.
        """
        if self._labels is None:
            raise InvalidArgument("y", "left out: the labels are on the server", "given")
        mine = np.sort(fp.content_hashes(fp.row_hashes(self.X), self._labels))
        return np.array_equal(np.sort(fp.content_hashes(hashes, y)), mine)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Predictions:
    """Predictions as a ladder returned them, for `OpenLadder.submit`.

    Attributes
    ----------
    values : object
        An array; of several metrics a mapping of arrays.
    placed : bool
        Whether they are in the order of the ladder's own rows, and not in the caller's.
    """

    values: Any
    placed: bool

    def equals(self, other: Predictions) -> bool:
        """Return whether two models predict the same, for each of several metrics."""
        return _are_equal(self.values, other.values)


def _are_equal(values: Any, others: Any) -> bool:
    if isinstance(values, Mapping):
        return all(_are_equal(values[name], others[name]) for name in values)
    return np.array_equal(np.asarray(values), np.asarray(others))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a submission came from; but for its account that changes nothing about the answer."""

    batch: str | None = None
    search: str | None = None
    key: str | None = None
    # Its own place in the batch, from 1; None where that is the order in which they come.
    place: int | None = None
    # Whether all of the batch is here before any of it is answered: the best of it is judged first.
    announced: bool = False
    context: Mapping[str, Any] = field(default_factory=dict)
    # Whose it is on a ladder that serves many accounts, where that does matter.
    account: str | None = None
    # How many submissions the ladder may have in a day, by UTC.
    per_day: int | None = None
    # The gain that a gate tests for, in the metric's own units; None for that of the ladder.
    margin: float | None = None
    # Whether a gate may take it for what all others are compared with, if it is the first.
    baseline: bool = False


TRAINING_ROWS = "training rows"
"""The source of a note that rows of the holdout are among those of a fit."""

STATED_BY = ", stated by "
"""What is between an account's note and its name."""


@dataclass(frozen=True, slots=True)
class SeenRows:
    """A note that rows of the holdout were seen elsewhere: how many, and where."""

    source: str
    rows: int


@dataclass(frozen=True, slots=True)
class SeenGroups:
    """A note that the rows of the holdout come in groups, and what shows it.

    Attributes
    ----------
    by : str
    withdrawn : str or None
        Why the owner withdraws that note.
    """

    by: str
    withdrawn: str | None = None


@dataclass(frozen=True, slots=True)
class SpentAt:
    """A note of the owner's: from which width of a certificate on the rows are used up.

    Attributes
    ----------
    metric : str
    width : float or None
        In the metric's own units; None for no such rule.
    """

    metric: str
    width: float | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FreshRows:
    """Rows as the owner of a holdout gives them to take the place of those that it has.

    Attributes
    ----------
    X, y, sample_weight, ids, groups : object
        As for `LadderHoldout`.
    training : array-like or None
        The features of rows on which models were trained: none of them may be fresh.
    reserve : float or None
        The share of them that no ladder measures; None for that of the rows so far.
    """

    X: Any
    y: ArrayLike
    sample_weight: ArrayLike | None = None
    ids: Any = None
    groups: Any = None
    training: Any = None
    reserve: float | None = None


class OpenLadder(Protocol):
    """A ladder that is open, beside its ledger or behind a server.

    What it takes and returns is plain data. Whatever it shows to somebody it notes by itself:
    models that are built from then on may depend on it.

    Attributes
    ----------
    ledger : str
        The URL of its ledger, or of the holdout where that is behind a server.
    metric : Metric
    feedback, overlap : str
        As the user stated them.
    by_metric : mapping of str to OpenLadder
        The ladder of each metric, where there are several; else empty. What of several there can
        only be one of is that of the metric that was named first.
    """

    ledger: str
    metric: Metric
    feedback: str
    overlap: str

    @property
    def by_metric(self) -> Mapping[str, OpenLadder]:
        """The ladder of each metric, where there are several."""

    @property
    def facts(self) -> Facts:
        """What never changes, as this process knows it."""

    def verified(self) -> Facts:
        """Return the facts, or fail where the ledger is not there or not the one they are of."""

    def state(self, *, shown: bool = False) -> State:
        """Return what changes, as the ledger has it now; `shown` where somebody is to read it."""

    def rows(self, *, checked: bool = False) -> HeldRows:
        """Return the rows as this process holds them; on request, check that they are unchanged."""

    def predict(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Predictions:
        """Return what an estimator predicts on the rows, as these fitted pipelines leave them."""

    def fix(self, predictions: Any) -> Predictions:
        """Read predictions once, and return them as nobody can change them; or refuse them."""

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit predictions; the release is durable before it returns.

        Either `Predictions`, or what a caller gives: in the order of the caller's rows, or
        `NamedPredictions` in any.
        """

    def decide(self, predictions: Any, origin: Origin) -> Decision:
        """Submit predictions to a gate, and return whether they may replace the incumbent."""

    def submit_rounds(
        self, outputs: Sequence[Any], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit the rounds of one training run, in the order of `rows`; all of them, or none."""

    def submit_batch(
        self, batch: str, predictions: Sequence[Predictions], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit a batch, all of which is here before any of it is answered; all of it, or none.

        Where its best member improves the ladder, that is judged first: members are compared
        without a margin. Releases are in the order of the batch.

        `batch` is its name (`new_batch`); the origins need to name neither it nor their places.
        """

    def status(self, *, shown: bool = True) -> Status:
        """Return the released score and what queried the holdout.

        Not `shown` it is for a copy in a tracker, whose readers this process does not count.
        """

    def history(
        self, after: int, limit: int | None, *, search: str | None = None, shown: bool = True
    ) -> tuple[Submission, ...]:
        """Return the submissions after a number, of one search or all."""

    def certificate(self, confidence: float | None, *, reserve: bool = False) -> ScoreCertificate:
        """Certify the incumbent by what was released, or by a query of the reserve."""

    def compare(self, first: Any, second: Any, confidence: float | None) -> Comparison:
        """Compare two models, each the number of a submission or what `submit` takes."""

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection."""

    def reveal(self) -> float | None:
        """Show the released score of a ladder that shows none."""

    def note(self, seen: SeenRows | SeenGroups | SpentAt) -> None:
        """Put on record what was seen of the rows, or when they are used up."""

    def withdraw(self, number: int, reason: str) -> Withdrawn:
        """Withdraw a submission."""

    def retire(self) -> datetime:
        """Take no more submissions on this holdout; return since when."""

    def forget(self) -> None:
        """Take back the registration of a holdout that was never queried."""

    def replenish(self, fresh: FreshRows) -> OpenLadder:
        """Let fresh rows take the place of these; return the ladder that follows this one."""

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, for a copy in a tracker."""

    def alone(self, body: Callable[[], T]) -> T:
        """Do something while nobody else does it on this ladder, where the ledger can ensure it."""


def margin_of(ladder: OpenLadder, score: float) -> float:
    """Return the score by which one grid step of risk is below a released one."""
    facts = ladder.facts
    return step_at(ladder.metric, facts.rules, facts.n_ladder, score)


def check_decides(rules: LadderRules, name: str) -> None:
    """Refuse to decide by a ladder that has no error for a whole run; HoldoutConflict."""
    if not rules.mechanism.flags_alone:
        raise HoldoutConflict(
            f"The ladder of {name!r} has the rule {rules.mechanism.name}, which bounds no error of "
            "decisions. Start one beside it that does, LadderHoldout(X, y, ..., ladder='gate', "
            "mechanism=GateLadder()), and give it the baseline first."
        )


def check_open(ladder: OpenLadder) -> None:
    """Refuse a holdout that takes no more submissions; HoldoutConflict."""
    retired = ladder.state().retired
    if retired is not None:  # by the name of now, which shows whether fresh rows came
        refuse_retired(ladder.verified().name, retired)


def transformed(X: Any, steps: Any) -> Any:
    """Return rows as these fitted pipelines leave them, one after the other.

    A step may write into what it is given: it is given a copy.
    """
    if steps:
        X = fp.copy_of(X)
    for step in steps:
        X = step.transform(X)
    return X


@runtime_checkable
class HasLadder(Protocol):
    """What a user holds, such as a `LadderHoldout`."""

    @property
    def __ladder__(self) -> OpenLadder:
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
    ladder = holdout.__ladder__
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
