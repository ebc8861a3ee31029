"""`RemoteLadder`: a ladder behind a server, for all that runs on a ladder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from ladderholdout.guard.containment import without_autologging
from ladderholdout.guard.named_rows import NamedPredictions, values_of
from ladderholdout.guard.open_ladder import (
    Facts,
    HeldRows,
    OpenLadder,
    Origin,
    Place,
    Predictions,
    SeenGroups,
    SeenRows,
    State,
    transformed,
)
from ladderholdout.guard.points import Point, Unsent
from ladderholdout.guard.shown import note_answer, note_shown, settle
from ladderholdout.guard.views import Estimate, Release, ScoreCertificate, Status, Submission
from ladderholdout.ledger import LadderSettings
from ladderholdout.ledger.records import from_bytes, to_bytes
from ladderholdout.ledger.replay import rules_of, stored_metric
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
    state_from,
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
    ledger : str
        The URL of the holdout.
    facts : Facts
        What the server stated of the holdout when it was connected to, and what never changes.
    account, role : str
        Of the token.
    shares_rows : bool
        Whether the server shares the rows.
    X : object
        The rows as the caller gave them; None where the server's are taken.
    places : ndarray of int, shape (n,), or None
        Where each row of the server is among those; None where they are in its order.
    """

    connection: Connection
    ledger: str
    facts: Facts
    account: str
    role: str
    shares_rows: bool
    metric: Metric
    feedback: str
    overlap: str
    X: Any = None
    places: NDArray[np.int64] | None = None

    @property
    def by_metric(self) -> Mapping[str, OpenLadder]:
        """Nothing: it is of one metric."""
        return {}

    @property
    def place(self) -> Place:
        """The holdout, which is one for its URL."""
        return self.ledger, 0

    def verified(self) -> Facts:
        """Return what never changes: a server is asked about it when it is connected to."""
        return self.facts

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit `Predictions`, or what a caller gives."""
        settle()
        return self._answer(self._values(predictions), origin)

    def submit_rounds(
        self, outputs: Sequence[Any], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit the rounds of one training run in their order, each in a request of its own."""
        note_answer()
        return tuple(map(self._answer, outputs, origins))

    def _answer(self, predictions: Any, origin: Origin) -> Release:
        if origin.batch is None:
            note_answer()
        body = {
            **self._sent(predictions),
            "context": dict(origin.context),
            "search": origin.search,
        }
        found = self._call("POST", "submissions", key=origin.key or uuid4().hex, json=body)
        return self._warned(release_from(found))

    def submit_batch(
        self, batch: str, predictions: Sequence[Predictions], origins: Sequence[Origin]
    ) -> Iterator[Release]:
        """Submit a batch in one request."""
        listed = [
            {**self._sent(given.values), "context": dict(origin.context)}
            for given, origin in zip(predictions, origins, strict=True)
        ]
        found = self._call("POST", "batches", key=batch, json={"submissions": listed})
        for release in found["releases"]:
            yield self._warned(release_from(release))

    def _values(self, predictions: Any) -> Any:
        """Return predictions in the order of the rows here, unless the server has to find it."""
        if isinstance(predictions, Predictions):
            return predictions.values
        if isinstance(predictions, NamedPredictions):
            return predictions if predictions.by_ids else predictions.in_order_of(self._known())
        if index_of(predictions) is None or not (self.X is not None or self.shares_rows):
            return predictions
        return by_index(predictions, self.rows().X)

    def _known(self) -> Any:
        """Return the rows by which an index is compared: those of the caller, else none."""
        return np.empty(self.facts.n) if self.X is None else self.X

    def predict(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Predictions:
        """Return what an estimator predicts on the rows, as these fitted pipelines leave them."""
        X = transformed(self._features(), steps)
        with without_autologging():
            return Predictions(self.metric.respond(estimator, X, self.facts.classes), True)

    def fix(self, predictions: Any) -> Predictions:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        given, classes = self._values(predictions), self.facts.classes
        aligned = self.metric.canonical(values_of(given), self.facts.n, classes)
        values = self.metric.as_submitted(aligned, classes)
        if isinstance(given, NamedPredictions):  # only the server can place them
            values = replace(given, values=values, names=_listed(given.names))
        return Predictions(values, True)

    def _sent(self, predictions: Any) -> dict[str, Any]:
        """Return predictions as they are sent: checked, with ids or in the server's order."""
        classes = self.facts.classes
        fixed = self.fix(Predictions(predictions, True)).values
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
        budget = self.facts.rules.budget
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
                + (certified if self.facts.n_reserve else "can not be certified."),
                OpenedWarning,
            )
        return release

    # -- what was released ------------------------------------------------------------

    def state(self, *, shown: bool = False) -> State:
        """Return what changes, as the server has it now."""
        if shown:
            note_shown()
        return state_from(self._call("GET")["state"])

    def status(self, *, shown: bool = True) -> Status:
        """Return the released score and what queried the holdout."""
        if shown:
            note_shown()
        return status_from(self._call("GET", "status"), self.ledger)

    def history(
        self, after: int, limit: int | None, *, search: str | None = None, shown: bool = True
    ) -> tuple[Submission, ...]:
        """Return the submissions after a number, in as many requests as needed."""
        if shown:
            note_shown()
        found: list[Submission] = []
        while limit is None or len(found) < limit:
            most = _PAGE if limit is None else min(_PAGE, limit - len(found))
            asked = {"after": max(after, 0), "limit": most, "search": search}
            page = self._call("GET", "submissions", query=asked)["submissions"]
            found += map(submission_from, page)
            if len(page) < most:
                break
            after = found[-1].number
        return tuple(found)

    def certificate(self, confidence: float | None, *, reserve: bool = False) -> ScoreCertificate:
        """Certify the incumbent, with the registered confidence."""
        if reserve:
            self._refuse("The reserve is queried")
        if confidence not in (None, self.facts.confidence):
            raise InvalidArgument(
                "confidence",
                f"{self.facts.confidence:g}, the registered one, behind a server",
                "another",
                "Another one has a price, and is asked for where the ledger is.",
            )
        note_shown()
        # A reader is shown what is on record; others may have it worked out, and put there.
        method = "GET" if self.role == "reader" else "POST"
        return certificate_from(self._call(method, "certificate"))

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection."""
        note_shown()
        return estimate_from(self._call("POST", "estimate"))

    def reveal(self) -> float | None:
        """Show the released score of a ladder that shows none."""
        note_shown()
        return optional(float, self._call("POST", "reveal")["score"])

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Return the next submissions after a number, for a copy in a tracker."""
        if raw:
            self._refuse("Raw scores are copied")
        status = self.status(shown=False)
        estimate = None if status.estimate is None else status.estimate.score
        points = tuple(
            Point(
                line.number,
                line.time,
                line.improved,
                line.score if line.repeat_of is None else None,
                status.reserve_score if line.number == status.incumbent else None,
                estimate if line.number == status.incumbent else None,
            )
            for line in self.history(after, limit, shown=False)
        )
        # Whatever of it changes, something was shown of submissions that a copy may hold.
        asked = None if self.facts.rules.mechanism.shows_values else status.score
        shown = hash((status.opened, asked, status.reserve_score, estimate))
        return Unsent(points, None, (shown, 0, 0))

    # -- what is put on record ----------------------------------------------------------

    def note(self, seen: SeenRows | SeenGroups) -> None:
        """Put on record what was seen of the rows."""
        if isinstance(seen, SeenGroups):
            self._call("POST", "groups", json={"by": seen.by})
        else:
            self._call("POST", "overlaps", json={"rows": seen.rows})

    def withdraw(self, number: int, reason: str) -> NoReturn:
        """Refuse: owners do it on the server's pages."""
        self._refuse("That is done on the server's pages, or")

    def retire(self) -> NoReturn:
        """Refuse: owners do it on the server's pages."""
        self._refuse("That is done on the server's pages, or")

    def alone(self, body: Callable[[], T]) -> T:
        """Do something; the server locks nothing for its clients."""
        return body()

    # -- the rows ---------------------------------------------------------------------

    def rows(self, *, checked: bool = False) -> HeldRows:
        """Return the features: the caller's own, else those that the server shares, if it does.

        Raises
        ------
        InvalidArgument
            There are neither, and `checked` rows are asked for.
        """
        if not checked and self.X is None and not self.shares_rows:
            return HeldRows(None, np.zeros(0, dtype=np.uint64), 0, True)
        X = self._features()
        if self.ledger not in _hashes:  # whatever the order, and equal for all accounts
            _hashes[self.ledger] = np.sort(fp.row_hashes(X))
        return HeldRows(X, _hashes[self.ledger], 0, True)

    def _features(self) -> Any:
        if self.X is not None:
            return self.X
        if not self.shares_rows:
            raise InvalidArgument(
                "X",
                "given to LadderHoldout.connect, for this server does not share the rows",
                "missing",
                "Or submit predictions: holdout.submit(predictions).",
            )
        with _lock():
            if self.ledger not in _shared:
                answer = self.connection.call(
                    "GET", path_of(self.facts.name, "rows"), headers={"Accept": ROWS}
                )
                _shared[self.ledger] = features_from_bytes(answer.data)
            return _shared[self.ledger]

    def _call(self, method: str, *parts: str, **request: Any) -> Any:
        answer = self.connection.call(method, path_of(self.facts.name, *parts), **request)
        return answer.json() if answer.data else None

    def _refuse(self, what: str) -> NoReturn:
        raise HoldoutConflict(
            f"{what} where the ledger is, by its owner: this holdout is behind {self.ledger}."
        )

    # -- passing it around ------------------------------------------------------------

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
        return self.ledger, self.account

    def __repr__(self) -> str:
        return f"RemoteLadder(metric={self.metric.name!r}, url={self.ledger!r})"


def _listed(ids: Any) -> list[int | float | str]:
    """Return ids as JSON holds them."""
    plain = [one.item() if hasattr(one, "item") else one for one in ids]
    found = [str(one) if isinstance(one, UUID) else one for one in plain]
    if not all(type(one) in (int, float, str) for one in found):
        raise InvalidArgument("ids", "numbers or texts behind a server", "others")
    return found


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
    described = connection.call("GET", path_of(name)).json()
    settings, classes = _settings(described), described["classes"]
    classes = None if classes is None else np.asarray(classes)
    metric, rules = stored_metric(settings).for_classes(classes), rules_of(settings)
    check_policy(feedback, shows_values=rules.mechanism.shows_values)
    facts = Facts(
        name=described["name"],
        fingerprint=described["fingerprint"],
        n=described["n"],
        n_reserve=described["n_reserve"],
        classes=classes,
        confidence=described["confidence"],
        account=settings.account,
        ladder=settings.name,
        created=moment(described["rules"]["created"]),
        rules=rules,
    )
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
    return RemoteLadder(
        connection=connection,
        ledger=f"{base}/holdouts/{facts.name}",
        facts=facts,
        account=described["account"],
        role=described["role"],
        shares_rows=described["allows"]["rows"],
        metric=metric,
        feedback=feedback,
        overlap=overlap,
        X=X,
        places=places,
    )
