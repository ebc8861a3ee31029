"""The seam between the guard and all that queries it: `OpenLadder`, plain data in and out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.views import Decision, Release, Unsent
from ladderholdout.identity import copies, hashing
from ladderholdout.ledger.rules import rules_of
from ladderholdout.mechanisms import LadderRules
from ladderholdout.metrics import Metric

A = TypeVar("A")
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


DESCRIBED = ("name", "fingerprint", "n", "n_reserve", "confidence", "estimand", "block")
"""Facts that a holdout's record and its description by a server have under the same names."""


def facts_of(place: Place, holdout: Any, ladder: Any) -> Facts:
    """Return the facts of a ladder, by the two records or by what a server described of both."""
    return Facts(
        place=place,
        classes=None if holdout.classes is None else np.asarray(holdout.classes),
        account=ladder.settings.account,
        ladder=ladder.settings.name,
        created=ladder.created,
        rules=rules_of(ladder.settings),
        **{name: getattr(holdout, name) for name in DESCRIBED},
    )


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
    other_blocks: Callable[[], OtherBlocks] = lambda: ([], [])

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
        mine = np.sort(hashing.content_hashes(hashing.row_hashes(self.X), self._labels))
        return np.array_equal(np.sort(hashing.content_hashes(hashes, y)), mine)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Predictions:
    """Predictions as a ladder returned them, for `OpenLadder.submit`.

    Attributes
    ----------
    values : mapping of str to array-like
        By metric; those of a ladder of one metric are `ALONE`.
    order : ndarray of int, or None
        That of the caller's rows, in which they are; None for that of the ladder's own.
    """

    values: Mapping[str, Any]
    order: NDArray[np.intp] | None = None

    def equals(self, other: Predictions) -> bool:
        """Return whether two models predict the same, for each of several metrics."""
        pairs = ((self.values[name], other.values[name]) for name in self.values)
        return all(np.array_equal(np.asarray(own), np.asarray(others)) for own, others in pairs)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a submission came from; but for its account that changes nothing about the answer."""

    batch: str | None = None
    search: str | None = None
    key: str | None = None
    # Its own place in the batch, from 1; None where that is the order in which they come, or where
    # how many queries the batch has at most was known before the first.
    place: int | None = None
    size: int | None = None
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


def announced(batch: str, origins: Sequence[Origin]) -> list[Origin]:
    """Return the origins of a batch of a new name (`new_batch`), with the places in it."""
    named = partial(replace, batch=batch, announced=True)
    return [named(origin, place=place) for place, origin in enumerate(origins, 1)]


TRAINING_ROWS = "training rows"
"""The source of a note that rows of the holdout are among those of a fit."""

STATED_BY = ", stated by "
"""What is between an account's note and its name."""


class Command(Generic[A]):
    """A command: a request to a holdout (`guard.commands`).

    Attributes
    ----------
    word : str
        Ends the path of its route, and names the tool for agents.
    answer : type
        The kind of its answer.
    roles : frozenset of str
        For accounts of other roles the holdout is not there.
    setting : str or None
        The setting of a server that has to allow it.
    reads : bool
        Whether it only reads.
    shows : bool
        Whether its answer shows what was released: what is built from then on may depend on it.
    sets : int
        How many sets of predictions it has at most.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    word: ClassVar[str]
    answer: ClassVar[Any]
    roles: ClassVar[frozenset[str]]
    setting: ClassVar[str | None]
    reads: ClassVar[bool]
    shows: ClassVar[bool]
    sets: ClassVar[int]


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
    """

    ledger: str
    metric: Metric
    feedback: str
    overlap: str

    @property
    def by_metric(self) -> Mapping[str, OpenLadder]:
        """The ladder of each metric, where there are several; else empty.

        What of several there can only be one of is that of the metric that was named first.
        """

    @property
    def facts(self) -> Facts:
        """What never changes, as this process knows it."""

    def verified(self) -> Facts:
        """Return the facts, or fail where the ledger is not there or not the one they are of."""

    def execute(
        self, command: Command[A], *, confidence: float | None = None, shown: bool = True
    ) -> A:
        """Do what a command asks for, and return its answer.

        Parameters
        ----------
        command : Command
        confidence : float, optional
            Of the certificate or comparison that is asked for; by default the registered one, and
            any other one has a price.
        shown : bool, default=True
            Whether somebody reads the answer here. Not shown it is for a copy in a tracker, whose
            readers this process does not count.
        """

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

    def submit_all(self, sets: Sequence[Any], origins: Sequence[Origin]) -> tuple[Release, ...]:
        """Submit the rounds of one training run, or a batch (`announced`); all of it, or none.

        Where the best member of a batch, all of which is here before any of it is answered,
        improves the ladder, that is judged first: members are compared without a margin. Releases
        are in the order of the sets.
        """

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, for a copy in a tracker."""

    def alone(self, body: Callable[[], T]) -> T:
        """Do something while nobody else does it on this ladder, where the ledger can ensure it."""


def margin_of(ladder: OpenLadder, score: float) -> float:
    """Return the score by which one grid step of risk is below a released one."""
    facts, metric = ladder.facts, ladder.metric
    risk = metric.to_risk(score)
    step = facts.rules.spacing(risk, facts.n_ladder)
    # Beside a score of -1e20 (a diverged model) a step is nothing, but it must be one.
    return max(score - metric.to_score(risk + step), sys.float_info.min)


def transformed(X: Any, steps: Any) -> Any:
    """Return rows as these fitted pipelines leave them, one after the other.

    A step may write into what it is given: it is given a copy.
    """
    if steps:
        X = copies.copy_of(X)
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
