"""`RemoteLadder`: a ladder behind a server, for all that runs on a ladder."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn, Self, TypeVar
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.arguments import within
from ladderholdout.errors import (
    BudgetWarning,
    HoldoutConflict,
    InvalidArgument,
    OpenedWarning,
    UnknownHoldout,
    warn,
)
from ladderholdout.feedback import check_policy
from ladderholdout.guard import (
    Comparison,
    Decision,
    Estimate,
    Facts,
    FreshRows,
    HeldRows,
    NamedPredictions,
    OpenLadder,
    Origin,
    Point,
    Predictions,
    Release,
    ScoreCertificate,
    SeenGroups,
    SeenRows,
    SpentAt,
    State,
    Status,
    Submission,
    Unsent,
    check_decides,
    note_answer,
    note_shown,
    number_of,
    settle,
    transformed,
    values_of,
    without_autologging,
)
from ladderholdout.ledger.arrays import from_bytes, to_bytes
from ladderholdout.ledger.events import LadderSettings
from ladderholdout.ledger.rules import rules_of, stored_metric
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import by_index, index_of, refuse_masked
from ladderholdout.process import PerProcess
from ladderholdout.remote.connection import LARGEST_TIMEOUT, Connection, Token, path_of, place_of
from ladderholdout.remote.wire import (
    BLOCK,
    NPY,
    ROWS,
    certificate_from,
    comparison_from,
    decision_from,
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
_shared: dict[tuple[str, str], Any] = {}
_hashes: dict[tuple[str, str], NDArray[np.uint64]] = {}
_group_names: dict[tuple[str, str], NDArray[np.uint64]] = {}
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
        Account and role of the token.
    shares_rows : bool
        Whether the server shares the rows.
    X : object
        The rows as the caller gave them; None where the server's are taken.
    places : ndarray of int, shape (n,), or None
        The place of each of the server's rows among those; None where they are in its order.
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
        """No ladder: a ladder behind a server is of one metric."""
        return {}

    def verified(self) -> Facts:
        """Return what never changes: a server is asked about it when it is connected to."""
        return self.facts

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit `Predictions`, or what a caller gives."""
        settle()
        return self._answer(self._values(predictions), origin)

    def decide(self, predictions: Any, origin: Origin) -> Decision:
        """Submit predictions to a gate, and return whether they may replace the incumbent."""
        settle()
        rules = self.facts.rules
        check_decides(rules, self.facts.name)
        rules.with_margin(origin.margin)
        body = self._body(self._values(predictions), origin)
        query = {"margin": origin.margin, "baseline": "true" if origin.baseline else None}
        asked = {"key": origin.key or uuid4().hex, "query": query}
        return decision_from(self._call("POST", "decisions", json=body, **asked))

    def submit_rounds(
        self, outputs: Sequence[Any], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit the rounds of one training run in their order, each in a request of its own."""
        note_answer()
        return tuple(map(self._answer, outputs, origins))

    def _answer(self, predictions: Any, origin: Origin) -> Release:
        body = self._body(predictions, origin)
        answer = self._call("POST", "submissions", key=origin.key or uuid4().hex, json=body)
        return self._warned(release_from(answer))

    def _body(self, predictions: Any, origin: Origin) -> dict[str, Any]:
        """Return one submission as it is sent."""
        if origin.batch is None:
            note_answer()
        context = dict(origin.context)
        return {**self._sent(predictions), "context": context, "search": origin.search}

    def submit_batch(
        self, batch: str, predictions: Sequence[Predictions], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit a batch in one request."""
        listed = [
            {**self._sent(given.values), "context": dict(origin.context)}
            for given, origin in zip(predictions, origins, strict=True)
        ]
        answer = self._call("POST", "batches", key=batch, json={"submissions": listed})
        return tuple(self._warned(release_from(release)) for release in answer["releases"])

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
        is_list = isinstance(values, list)  # of texts
        if isinstance(fixed, NamedPredictions):
            return {"predictions": values if is_list else packed(values), "ids": fixed.names}
        if is_list:
            return {"predictions": [*map(values.__getitem__, self._order())]}
        if self.places is not None:
            values = values.take(self.places, axis=0)
        return {"predictions": packed(values)}

    def _order(self) -> Sequence[int]:
        """Return for each row of the server's the place that it has here."""
        return range(self.facts.n) if self.places is None else self.places.tolist()

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
        submissions: list[Submission] = []
        while limit is None or len(submissions) < limit:
            most = _PAGE if limit is None else min(_PAGE, limit - len(submissions))
            asked = {"after": max(after, 0), "limit": most, "search": search}
            page = self._call("GET", "submissions", query=asked)["submissions"]
            submissions += map(submission_from, page)
            if len(page) < most:
                break
            after = submissions[-1].number
        return tuple(submissions)

    def certificate(self, confidence: float | None, *, reserve: bool = False) -> ScoreCertificate:
        """Certify the incumbent, with the registered confidence."""
        if reserve:
            self._refuse("The reserve is queried")
        self._check_confidence(confidence)
        note_shown()
        # A reader is shown what is on record; others may have it worked out, and put there.
        method = "GET" if self.role == "reader" else "POST"
        return certificate_from(self._call(method, "certificate"))

    def compare(self, first: Any, second: Any, confidence: float | None) -> Comparison:
        """Compare two models, with the registered confidence."""
        self._check_confidence(confidence)
        note_shown()
        body = {name: self._side(model) for name, model in (("first", first), ("second", second))}
        return comparison_from(self._call("POST", "comparisons", json=body))

    def _side(self, model: Any) -> Any:
        """Return one side of a comparison as it is sent."""
        number = number_of(model)
        return self._sent(self._values(model)) if number is None else number

    def estimate(self) -> Estimate:
        """Correct the incumbent's score for its selection."""
        note_shown()
        return estimate_from(self._call("POST", "estimate"))

    def _check_confidence(self, confidence: float | None) -> None:
        """Refuse another confidence than the registered one."""
        if confidence not in (None, self.facts.confidence):
            raise InvalidArgument(
                "confidence",
                f"{self.facts.confidence:g}, the registered one, behind a server",
                "another",
                "Another one has a price, and is asked for where the ledger is.",
            )

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
                line.score,
                status.reserve_score if line.number == status.incumbent else None,
                estimate if line.number == status.incumbent else None,
            )
            for line in self.history(after, limit, shown=False)
        )
        # Whatever of it changes, something was shown of submissions that a copy may hold.
        asked = None if self.facts.rules.shows_scores else status.score
        shown = hash((status.opened, asked, status.reserve_score, estimate))
        return Unsent(points, None, (shown, 0, 0))

    # -- what is put on record ----------------------------------------------------------

    def note(self, seen: SeenRows | SeenGroups | SpentAt) -> None:
        """Put on record what was seen of the rows; refuse a rule of the owner's."""
        if isinstance(seen, SpentAt) or (isinstance(seen, SeenGroups) and seen.withdrawn):
            self._refuse("That is for the owner:")
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

    def forget(self) -> NoReturn:
        """Refuse: owners do it where the ledger is."""
        name = shlex.quote(self.facts.name)
        self._refuse(f"A registration is taken back where the ledger is (forget {name})")

    def replenish(self, fresh: FreshRows) -> NoReturn:
        """Refuse: owners do it where the ledger is."""
        name = shlex.quote(self.facts.name)
        self._refuse(f"Fresh rows are given (ladder-holdout replenish {name} FILE --target COLUMN)")

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
        if self._rows_key not in _hashes:  # whatever the order, and equal for all accounts
            _hashes[self._rows_key] = np.sort(fp.row_hashes(X))
        return HeldRows(X, _hashes[self._rows_key], 0, True, groups=self._groups())

    def _groups(self) -> NDArray[np.uint64] | None:
        """Return sorted hashes of the groups, where there are groups and the server shares rows."""
        if self.facts.estimand is None or not self.shares_rows:
            return None
        if self._rows_key not in _group_names:
            path = path_of(self.facts.name, "rows", "groups")
            answer = self.connection.call("GET", path, headers=self._of_block)
            _group_names[self._rows_key] = from_bytes(answer.data)
        return _group_names[self._rows_key]

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
            if self._rows_key not in _shared:
                answer = self.connection.call(
                    "GET",
                    path_of(self.facts.name, "rows"),
                    headers={"Accept": ROWS, **self._of_block},
                )
                _shared[self._rows_key] = features_from_bytes(answer.data)
            return _shared[self._rows_key]

    @property
    def _rows_key(self) -> tuple[str, str]:
        """The holdout and its rows: fresh ones may take their place."""
        return self.ledger, self.facts.fingerprint

    @property
    def _of_block(self) -> dict[str, str]:
        """The header that names the rows which this client knows."""
        return {BLOCK: str(self.facts.block)}

    def _call(self, method: str, *parts: str, **request: Any) -> Any:
        path = path_of(self.facts.name, *parts)
        answer = self.connection.call(method, path, headers=self._of_block, **request)
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
    plain = [name.item() if hasattr(name, "item") else name for name in ids]
    listed = [str(name) if isinstance(name, UUID) else name for name in plain]
    if not all(type(name) in (int, float, str) for name in listed):
        raise InvalidArgument("ids", "numbers or texts behind a server", "others")
    return listed


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
    connection = Connection(base, Token(token), within("timeout", timeout, LARGEST_TIMEOUT))
    if name is None:
        listed = connection.call("GET", "/v1/holdouts").json()["holdouts"]
        if len(listed) != 1:
            raise UnknownHoldout("The token is for no single holdout: name one in the URL.")
        name = listed[0]["name"]
    described = connection.call("GET", path_of(name)).json()
    rules_told = described["rules"]
    told = {**rules_told, "name": rules_told["ladder"], "unit": optional(float, rules_told["unit"])}
    settings = LadderSettings(**{field.name: told[field.name] for field in fields(LadderSettings)})
    classes = optional(np.asarray, described["classes"])
    metric, rules = stored_metric(settings).for_classes(classes), rules_of(settings)
    check_policy(feedback, shows_scores=rules.shows_scores)
    url = f"{base}/holdouts/{described['name']}"
    facts = Facts(
        place=(url, 0),
        name=described["name"],
        fingerprint=described["fingerprint"],
        n=described["n"],
        n_reserve=described["n_reserve"],
        classes=classes,
        confidence=described["confidence"],
        account=settings.account,
        ladder=settings.name,
        created=moment(told["created"]),
        rules=rules,
        estimand=described["estimand"],
        block=described["block"],
    )
    places = None
    if X is not None:
        refuse_masked("X", X)
        X = fp.copy_of(X)
        answer = connection.call(
            "POST",
            path_of(name, "rows", "order"),
            data=to_bytes(fp.row_hashes(X)),
            headers={"Content-Type": NPY, BLOCK: str(facts.block)},
        )
        places = from_bytes(answer.data)
        if np.array_equal(places, np.arange(len(places))):
            places = None
    return RemoteLadder(
        connection=connection,
        ledger=url,
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
