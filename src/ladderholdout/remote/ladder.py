"""`RemoteLadder`: a ladder behind a server, for all that runs on a ladder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, Self, TypeVar
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.errors import (
    BudgetWarning,
    HoldoutConflict,
    InvalidArgument,
    OpenedWarning,
    UnknownHoldout,
    warn,
)
from ladderholdout.feedback import check_policy
from ladderholdout.guard import rounds
from ladderholdout.guard.containment import without_autologging
from ladderholdout.guard.named_rows import NamedPredictions, values_of
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.pipelines import transformed
from ladderholdout.guard.points import Point, Unsent
from ladderholdout.guard.submission import Origin, Waiting, step_at
from ladderholdout.guard.views import Estimate, Release, ScoreCertificate, Status, Submission
from ladderholdout.ledger import Entry, HoldoutRecord, LadderRecord, LadderSettings, refuse_retired
from ladderholdout.ledger.records import from_bytes, to_bytes
from ladderholdout.ledger.replay import rules_of, stored_metric
from ladderholdout.mechanisms import LadderRules
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import refuse_masked
from ladderholdout.metrics.indexes import by_index, index_of
from ladderholdout.process import PerProcess
from ladderholdout.remote.connection import Connection, Token, check_timeout, path_of, place_of
from ladderholdout.remote.wire import (
    NPY,
    ROWS,
    certificate_from,
    estimate_from,
    moment,
    optional,
    packed,
    release_from,
    status_from,
    submission_from,
)
from ladderholdout.vault import features_from_bytes

T = TypeVar("T")

_PAGE = 1000

# The rows that a server shares, and the hashes of rows, once for each process.
_shared: dict[str, Any] = {}
_hashes: dict[str, NDArray[np.uint64]] = {}
_lock = PerProcess(threading.Lock)


@dataclass(eq=False, repr=False)
class RemoteLadder:
    """A ladder behind a server, as it can be passed around: no label and no token is part of it.

    Attributes
    ----------
    connection : Connection
    facts : Mapping
        What the server stated of the holdout when it was connected to, and what never changes.
    X : object
        The rows as the caller gave them; None where the server's are taken.
    places : ndarray of int, shape (n,), or None
        Where each row of the server is among those; None where they are in its order.
    """

    connection: Connection
    facts: Mapping[str, Any]
    metric: Metric
    feedback: str
    overlap: str
    X: Any = None
    places: NDArray[np.int64] | None = None
    opened: bool = False
    # One server is one holdout for one token: nothing here needs a number of the ledger's.
    id: int = 0
    holdout_id: int = 0
    order: NDArray[Any] | None = None
    foreign: bool = False

    @property
    def by_metric(self) -> Mapping[str, OpenLadder]:
        """Nothing: it is of one metric."""
        return {}

    @property
    def name(self) -> str:
        """The holdout's name."""
        return str(self.facts["name"])

    @property
    def fingerprint(self) -> str:
        """The holdout's fingerprint."""
        return str(self.facts["fingerprint"])

    @property
    def ledger(self) -> str:
        """The URL of the holdout."""
        return f"{self.connection.base}/holdouts/{self.name}"

    @property
    def rules(self) -> LadderRules:
        """The mechanism, its budget and its unit."""
        return rules_of(_settings(self.facts))

    @property
    def place(self) -> tuple[str, int]:
        """The holdout: equal for all ladders on it."""
        return self.ledger, self.holdout_id

    @property
    def classes(self) -> NDArray[Any] | None:
        """The names of the classes, sorted."""
        found = self.facts["classes"]
        return None if found is None else np.asarray(found)

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit predictions; the release is durable before it is sent."""
        return self.answer(self._placed(predictions), origin)

    def _placed(self, predictions: Any) -> Any:
        """Return predictions in the order of the rows here, unless the server has to find it."""
        if isinstance(predictions, NamedPredictions):
            return predictions if predictions.by_ids else predictions.in_order_of(self._known())
        return self._by_index(predictions)

    def _known(self) -> Any:
        """Return the rows by which an index is compared: those of the caller, else none."""
        return np.empty(self.facts["n"]) if self.X is None else self.X

    def evaluate(self, estimator: Any, origin: Origin, steps: tuple[Any, ...] = ()) -> Release:
        """Submit what an estimator predicts on the rows, as these fitted pipelines leave them."""
        return self.answer(self.predictions(estimator, steps), origin)

    def predictions(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Any:
        """Return what an estimator predicts on the rows, as these fitted pipelines leave them."""
        X = transformed(self.guard().rows.X, steps)
        with without_autologging():
            return self.metric.respond(estimator, X, self.classes)

    def answer(self, predictions: Any, origin: Origin) -> Release:
        """Submit predictions for the rows as this process has them."""
        rounds.settle()
        return self._answer(predictions, origin)

    def _answer(self, predictions: Any, origin: Origin) -> Release:
        body = {
            **self._sent(predictions),
            "context": dict(origin.context),
            "search": origin.search,
        }
        found = self._call("POST", "submissions", key=origin.key or uuid4().hex, json=body)
        return self._warned(release_from(found))

    def fixed(self, predictions: Any, *, ordered: bool) -> tuple[Any, bool]:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        if not ordered:
            predictions = self._placed(predictions)
        aligned = self.metric.canonical(values_of(predictions), self.facts["n"], self.classes)
        values = self.metric.as_submitted(aligned, self.classes)
        if isinstance(predictions, NamedPredictions):  # only the server can place them
            return replace(predictions, values=values, names=_listed(predictions.names)), ordered
        return values, True

    def _by_index(self, predictions: Any) -> Any:
        """Return predictions in the order of the rows, where both have an index of their own."""
        if index_of(predictions) is None:
            return predictions
        has_rows = self.X is not None or self.facts["allows"]["rows"]
        return by_index(predictions, self.rows()) if has_rows else predictions

    def announce(self, batch: str, size: int) -> None:
        """Do nothing: the server believes in no batch that does not come in one request."""

    def together(self, batch: str, waiting: Sequence[Waiting]) -> Iterator[Release]:
        """Submit a batch in one request."""
        listed = [{**self._sent(one.predictions), "context": dict(one.context)} for one in waiting]
        found = self._call("POST", "batches", key=batch, json={"submissions": listed})
        for release in found["releases"]:
            yield self._warned(release_from(release))

    def _sent(self, predictions: Any) -> dict[str, Any]:
        """Return predictions as they are sent: checked, with ids or in the server's order."""
        classes = self.classes
        fixed, _ = self.fixed(predictions, ordered=True)
        values = values_of(fixed)
        of_labels = self.metric.is_classification and self.metric.response == "labels"
        if of_labels and classes is not None and values.dtype.kind in "iu":
            # In as few bytes as hold them.
            values = values.astype(np.result_type(*map(np.min_scalar_type, classes)))
        if isinstance(fixed, NamedPredictions):
            return {"predictions": packed(values), "ids": fixed.names}
        if self.places is not None:
            values = values.take(self.places, axis=0)
        return {"predictions": packed(values)}

    def _warned(self, release: Release) -> Release:
        """Warn of what the guard warned of where it is."""
        budget = self.facts["rules"]["budget"]
        if budget is not None and release.improved and release.improvements == budget:
            warn(
                f"The {budget} releases of this ladder are used up: the released score stays, "
                "whatever is submitted from now on.",
                BudgetWarning,
            )
        if release.opened:
            certified = "certified by the reserve alone."
            warn(
                "An audit has shown raw scores of this ladder: the submission is recorded, but "
                + (certified if self.facts["n_reserve"] else "can not be certified."),
                OpenedWarning,
            )
        return release

    # -- what was released ------------------------------------------------------------

    def check_open(self) -> None:
        """Refuse a holdout that takes no more submissions."""
        refuse_retired(self.records()[0])

    def status(self) -> Status:
        """Return the released score and what queried the holdout."""
        rounds.note_shown()
        return self.status_for_copy()

    def status_for_copy(self) -> Status:
        """Return the same for a tracker's page, whose readers this process does not count."""
        return status_from(self._call("GET", "status"), self.ledger)

    def history(self, after: int, limit: int | None) -> tuple[Submission, ...]:
        """Return the submissions after a number."""
        rounds.note_shown()
        return tuple(map(submission_from, self.lines(after, limit)))

    def certificate(self, confidence: float | None) -> ScoreCertificate:
        """Certify the incumbent, with the registered confidence."""
        if confidence not in (None, self.facts["confidence"]):
            raise InvalidArgument(
                "confidence",
                f"{self.facts['confidence']:g}, the registered one, behind a server",
                "another",
                "Another one has a price, and is asked for where the ledger is.",
            )
        rounds.note_shown()
        # A reader is shown what is on record; others may have it worked out, and put there.
        method = "GET" if self.facts["role"] == "reader" else "POST"
        return certificate_from(self._call(method, "certificate"))

    def certify(self, confidence: float | None) -> ScoreCertificate:
        """Refuse: the reserve is queried where the ledger is."""
        self._refuse("The reserve is queried")

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection."""
        rounds.note_shown()
        return estimate_from(self._call("POST", "estimate"))

    def reveal(self) -> float | None:
        """Show the released score of a ladder that shows none."""
        rounds.note_shown()
        return optional(float, self._call("POST", "reveal")["score"])

    def lines(
        self, after: int = 0, limit: int | None = None, search: str | None = None
    ) -> list[dict[str, Any]]:
        """Return lines of the history as the server sends them, in as many requests as needed."""
        found: list[dict[str, Any]] = []
        while limit is None or len(found) < limit:
            most = _PAGE if limit is None else min(_PAGE, limit - len(found))
            asked = {"after": max(after, 0), "limit": most, "search": search}
            page = self._call("GET", "submissions", query=asked)["submissions"]
            found += page
            if len(page) < most:
                break
            after = page[-1]["number"]
        return found

    # -- the record, as far as it is shown --------------------------------------------

    def records(self) -> tuple[HoldoutRecord, LadderRecord]:
        """Return the holdout and the ladder as the server has them now."""
        found = self._call("GET")
        return _holdout(found), _ladder(found)

    def read(self, body: Callable[[Any, LadderRecord], T]) -> T:
        """Read what searches and studies read of a ledger, from what the server shows."""
        return body(RemoteRecord(self), self.records()[1])

    def showing(self, body: Callable[[Any, LadderRecord], T]) -> T:
        """Read what is shown to somebody."""
        rounds.note_shown()
        return self.read(body)

    def write(self, body: Callable[[Any, LadderRecord], T]) -> T:
        """Refuse: nothing but submissions is written from Python afar."""
        self._refuse("That is done on the server's pages, or")

    def alone(self, body: Callable[[], T]) -> T:
        """Do something; the server locks nothing for its clients."""
        return body()

    def has_ids(self) -> bool:
        """Return whether the rows were registered with ids."""
        return bool(self.facts["ids"])

    def note_overlap(self, source: str, rows: int) -> None:
        """Put on record how many rows of the holdout are among the training rows."""
        self._call("POST", "overlaps", json={"rows": rows})

    def note_groups(self, by: str) -> None:
        """Put on record what shows that the rows of the holdout come in groups."""
        self._call("POST", "groups", json={"by": by})

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, for a copy in a tracker."""
        if raw:
            self._refuse("Raw scores are copied")
        found = self.status_for_copy()
        estimate = None if found.estimate is None else found.estimate.score
        points = tuple(
            Point(
                one.number,
                one.time,
                one.improved,
                one.score if one.repeat_of is None else None,
                found.reserve_score if one.number == found.incumbent else None,
                estimate if one.number == found.incumbent else None,
            )
            for one in map(submission_from, self.lines(after, limit))
        )
        # Whatever of it changes, something was shown of submissions that a copy may hold.
        asked = None if self.rules.mechanism.shows_values else found.score
        shown = hash((found.opened, asked, found.reserve_score, estimate))
        return Unsent(points, None, (shown, 0, 0))

    def guard(self) -> Any:
        """Return the rows and rules as this process holds them."""
        return RemoteGuard(self)

    def was_opened(self) -> bool:
        """Return whether a guarded split of this holdout was opened in this search."""
        return self.opened or rounds.was_opened(self.place)

    def rows(self) -> Any:
        """Return the features: the caller's own, else those that the server shares.

        Raises
        ------
        InvalidArgument
            There are neither.
        """
        if self.X is not None:
            return self.X
        if not self.facts["allows"]["rows"]:
            raise InvalidArgument(
                "X",
                "given to LadderHoldout.connect, for this server does not share the rows",
                "missing",
                "Or submit predictions: holdout.submit(predictions).",
            )
        with _lock():
            if self.ledger not in _shared:
                answer = self.connection.call(
                    "GET", path_of(self.name, "rows"), headers={"Accept": ROWS}
                )
                _shared[self.ledger] = features_from_bytes(answer.data)
            return _shared[self.ledger]

    def _call(self, method: str, *parts: str, **request: Any) -> Any:
        answer = self.connection.call(method, path_of(self.name, *parts), **request)
        return answer.json() if answer.data else None

    def _refuse(self, what: str) -> NoReturn:
        raise HoldoutConflict(
            f"{what} where the ledger is, by its owner: this holdout is behind {self.ledger}."
        )

    # -- passing it around ------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"opened": self.was_opened()}

    def __deepcopy__(self, memo: Any) -> Self:
        # Copies of a search must go on with the same ladder, not with one of their own.
        return self

    def __copy__(self) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteLadder) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, str]:
        return self.ledger, str(self.facts["account"])

    def __repr__(self) -> str:
        return f"RemoteLadder(metric={self.metric.name!r}, url={self.ledger!r})"


@dataclass(frozen=True)
class RemoteRows:
    """The features of a holdout whose labels are elsewhere."""

    ladder: RemoteLadder = field(repr=False)

    @cached_property
    def X(self) -> Any:
        """The features."""
        return self.ladder.rows()

    @property
    def y(self) -> NoReturn:
        """Refuse: the labels are on the server."""
        raise InvalidArgument("y", "left out: the labels are on the server", "given")


@dataclass(frozen=True)
class RemoteGuard:
    """What searches ask of a guard, in a process that has no labels.

    Attributes
    ----------
    ladder : RemoteLadder
    order : None
        The rows are in the order in which this process has them.
    """

    ladder: RemoteLadder
    order: None = None

    @property
    def metric(self) -> Metric:
        """What is measured."""
        return self.ladder.metric

    @property
    def rules(self) -> LadderRules:
        """The mechanism, its budget and its unit."""
        return self.ladder.rules

    @property
    def rows(self) -> RemoteRows:
        """The features."""
        return RemoteRows(self.ladder)

    @property
    def holdout(self) -> HoldoutRecord:
        """What is known of the holdout."""
        return _holdout(self.ladder.facts)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """Sorted hashes of the rows; none where the features are missing."""
        if self.ladder.X is None and not self.ladder.facts["allows"]["rows"]:
            return np.zeros(0, dtype=np.uint64)
        place = self.ladder.ledger
        if place not in _hashes:  # whatever the order, and equal for all accounts
            _hashes[place] = np.sort(fp.row_hashes(self.rows.X))
        return _hashes[place]

    def check_rows(self) -> None:
        """Do nothing: the rows are this process's own copy, and the record is on the server."""

    def step_at(self, score: float) -> float:
        """Return the score by which one grid step of risk is below a released one."""
        return step_at(self.metric, self.rules, self.holdout.n_ladder, score)

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit predictions for the rows as this process has them."""
        return self.ladder.answer(predictions, origin)

    def submit_rounds(
        self, predictions: Sequence[Any], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit the rounds of one training run in their order."""
        return tuple(map(self.ladder._answer, predictions, origins))


def _listed(ids: Any) -> list[int | float | str]:
    """Return ids as JSON holds them."""
    plain = [one.item() if hasattr(one, "item") else one for one in ids]
    found = [str(one) if isinstance(one, UUID) else one for one in plain]
    if not all(type(one) in (int, float, str) for one in found):
        raise InvalidArgument("ids", "numbers or texts behind a server", "others")
    return found


@dataclass(frozen=True, slots=True)
class RemoteRecord:
    """What searches and studies read of a `Transaction`, from what a server shows."""

    of: RemoteLadder

    def entries(
        self,
        ladder_id: int,
        *,
        after: int = 0,
        limit: int | None = None,
        search: str | None = None,
    ) -> tuple[Entry, ...]:
        """Return submissions in their order."""
        return tuple(map(_entry, self.of.lines(after, limit, search)))

    def improvements(self, ladder_id: int, number: int) -> int:
        """Count the submissions that had improved the ladder up to this one."""
        lines = self.of.lines(0, number)
        return sum(one["improved"] and one["repeat_of"] is None for one in lines)

    def holdout(self, holdout_id: int) -> HoldoutRecord:
        """Return the holdout."""
        return _holdout(self.of.facts)

    def released(self, ladder: LadderRecord) -> float | None:
        """Return the released risk."""
        found: float | None = ladder.state["standing"]
        return found

    def first_by_key(self, ladder: LadderRecord, key: str) -> None:
        """Return None: which trial a submission was for is shown by no server."""


def _holdout(facts: Mapping[str, Any]) -> HoldoutRecord:
    """Return what is known of a holdout; its secret and which rows are in reserve are not."""
    reserve = None
    if facts["n_reserve"]:
        reserve = np.arange(facts["n"]) < facts["n_reserve"]  # of the right number, and no more
    return HoldoutRecord(
        id=0,
        name=facts["name"],
        fingerprint=facts["fingerprint"],
        content_digest=b"",
        secret=b"",
        n=facts["n"],
        classes=None if facts["classes"] is None else np.asarray(facts["classes"]),
        vault_path=None,
        vault_digest=None,
        created=moment(facts["created"]),
        retired=optional(moment, facts["retired"]),
        reserve=reserve,
        confidence=facts["confidence"],
    )


def _settings(facts: Mapping[str, Any]) -> LadderSettings:
    rules = facts["rules"]
    return LadderSettings(
        account=rules["account"],
        name=rules["ladder"],
        metric=rules["metric"],
        metric_settings=rules["metric_settings"],
        mechanism=rules["mechanism"],
        mechanism_settings=rules["mechanism_settings"],
        budget=rules["budget"],
        unit=optional(float, rules["unit"]),
    )


def _ladder(facts: Mapping[str, Any]) -> LadderRecord:
    state = facts["ladder"]
    released = optional(float, state["released_risk"])
    return LadderRecord(
        id=0,
        holdout_id=0,
        settings=_settings(facts),
        created=moment(state["created"]),
        opened=optional(moment, state["opened"]),
        submissions=state["submissions"],
        state={"standing": released, "noise": None, "releases": state["releases"]},
        version=state["version"],
        incumbent=state["incumbent"],
        withdrawals=state["withdrawals"],
    )


def _entry(line: Mapping[str, Any]) -> Entry:
    return Entry(
        number=line["number"],
        time=moment(line["time"]),
        account=line["account"],
        batch=line["batch"],
        search=line["search"],
        digest="",
        risk=optional(float, line["released_risk"]),
        improved=line["improved"] or line["repeat_of"] is not None,
        repeat_of=line["repeat_of"],
        disagreement=None,
        context=line["context"],
        withdrawn=line["withdrawn"],
        place=line["place"],
    )


def connect(
    url: str,
    token: str | os.PathLike[str] | None,
    X: Any,
    feedback: str,
    overlap: str,
    timeout: float,
) -> RemoteLadder:
    """Connect to a holdout; the arguments as for `LadderHoldout.connect`."""
    base, name = place_of(url)
    connection = Connection(base, Token(token), check_timeout(timeout))
    if name is None:
        listed = connection.call("GET", "/v1/holdouts").json()["holdouts"]
        if len(listed) != 1:
            raise UnknownHoldout("The token is for no single holdout: name one in the URL.")
        name = listed[0]["name"]
    facts = connection.call("GET", path_of(name)).json()
    settings = _settings(facts)
    metric = stored_metric(settings)
    classes = facts["classes"]
    metric = metric.for_classes(None if classes is None else np.asarray(classes))
    check_policy(feedback, shows_values=rules_of(settings).mechanism.shows_values)
    places = None
    if X is not None:
        refuse_masked("X", X)
        X = fp.copy_of(X)
        answer = connection.call(
            "POST",
            path_of(name, "rows", "order"),
            data=to_bytes(fp.row_hashes(X)),
            headers={"Content-Type": NPY},
        )
        places = from_bytes(answer.data)
        if np.array_equal(places, np.arange(len(places))):
            places = None
    return RemoteLadder(connection, facts, metric, feedback, overlap, X, places)
