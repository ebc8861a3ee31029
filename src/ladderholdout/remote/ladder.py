"""`RemoteLadder`: a ladder behind a server, for all that runs on a ladder."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray

from ladderholdout import errors, process
from ladderholdout.arguments import within
from ladderholdout.feedback import check_policy
from ladderholdout.guard import certificate, commands, containment, open_ladder, seen, submit, views
from ladderholdout.guard.rows import NamedPredictions, values_of
from ladderholdout.identity import copies, hashing
from ladderholdout.ledger.rules import stored_metric
from ladderholdout.metrics import Metric, arrays
from ladderholdout.remote.connection import LARGEST_TIMEOUT, Connection, Token, path_of, place_of
from ladderholdout.remote.wire import BLOCK
from ladderholdout.vault import features_from_bytes

A = TypeVar("A")
T = TypeVar("T")

_PAGE = 1000

# The rows that a server shares, and hashes of rows and of groups, once for each process.
_known: dict[tuple[str, str, str], Any] = {}
_lock = process.PerProcess(threading.Lock)


@dataclass(eq=False, repr=False)
class RemoteLadder:
    """A ladder behind a server, as it can be passed around: no label and no token is part of it.

    Attributes
    ----------
    connection : Connection
    ledger : str
        The URL of the holdout.
    described : commands.Description
        What the server stated of the holdout, and of the account of the token, when it was
        connected to.
    facts : open_ladder.Facts
        What of that never changes.
    X : object
        The rows as the caller gave them; None where the server's are taken.
    places : ndarray of int, shape (n,), or None
        The place of each of the server's rows among those; None where they are in its order.
    """

    connection: Connection
    ledger: str
    described: commands.Description
    facts: open_ladder.Facts
    metric: Metric
    feedback: str
    overlap: str
    X: Any = None
    places: NDArray[np.int64] | None = None

    @property
    def by_metric(self) -> Mapping[str, open_ladder.OpenLadder]:
        """No ladder: a ladder behind a server is of one metric."""
        return {}

    def verified(self) -> open_ladder.Facts:
        """Return what never changes: a server is asked about it when it is connected to."""
        return self.facts

    # -- commands ---------------------------------------------------------------------

    def execute(
        self, command: commands.Command[A], *, confidence: float | None = None, shown: bool = True
    ) -> A:
        """Send a command to the server, and return its answer."""
        if confidence not in (None, self.facts.confidence):
            raise errors.InvalidArgument(
                "confidence",
                f"{self.facts.confidence:g}, the registered one, behind a server",
                "another",
                "Another one has a price, and is asked for where the ledger is.",
            )
        if shown and command.shows:
            seen.note_shown()
        asked: Any = command
        match asked:
            case commands.History():
                return self._pages(asked)  # type: ignore[return-value]
            case commands.Certify() if self.described.role == "reader":
                asked = commands.Certificate()  # others may have it worked out, and put on record
            case commands.Compare():
                sides = self._side(asked.first), self._side(asked.second)
                asked = commands.Compare(first=sides[0], second=sides[1])
        answer = self._sent(asked)
        if isinstance(answer, views.Status):
            answer = replace(answer, ledger=self.ledger)
        for release in answer if isinstance(answer, tuple) else (answer,):
            if isinstance(release, views.Release):  # of what the guard warns where it is
                budget, last = self.facts.rules.budget, release.improved and release.improvements
                spent = budget if last == budget else None
                submit.warn_of(release, spent, has_reserve=self.facts.n_reserve > 0)
        return answer  # type: ignore[no-any-return]

    def _sent(self, command: commands.Command[A]) -> Any:
        kind, block = type(command), {BLOCK: str(self.facts.block)}
        path, data = path_of(self.facts.name, kind.word), commands.written(command)
        answer = self.connection.call("POST", path, data, block)
        return answer if kind.answer is bytes else commands.read_as(kind.answer, answer)

    def _pages(self, asked: commands.History) -> commands.Page:
        """Return a part of the history, in as many requests as needed."""
        lines: list[views.Submission] = []
        page = commands.Page((), 0, None)
        while len(lines) < asked.limit:
            most = min(_PAGE, asked.limit - len(lines))
            after = lines[-1].number if lines else max(asked.after, 0)
            page = self._sent(replace(asked, after=after, limit=most))
            lines += page.submissions
            if len(page.submissions) < most:
                break
        return replace(page, submissions=tuple(lines))

    def _side(self, side: Any) -> Any:
        """Return one side of a comparison as it is sent."""
        if not isinstance(side, commands.Candidate):
            return side
        return commands.Candidate(**self._stated(side.given, open_ladder.Origin()))

    def submit(self, predictions: Any, origin: open_ladder.Origin) -> views.Release:
        """Submit `Predictions`, or what a caller gives."""
        seen.settle()
        return self._asked(commands.Submit, predictions, origin)

    def decide(self, predictions: Any, origin: open_ladder.Origin) -> views.Decision:
        """Submit predictions to a gate, and return whether they may replace the incumbent."""
        seen.settle()
        gate = {"margin": origin.margin, "baseline": origin.baseline}
        return self._asked(commands.Decide, predictions, origin, **gate)

    def _asked(
        self,
        kind: type[commands.Command[A]],
        predictions: Any,
        origin: open_ladder.Origin,
        **more: Any,
    ) -> A:
        """Submit predictions in the order of the rows here, or with ids."""
        if origin.batch is None:
            seen.note_answer()
        stated = self._stated(predictions, origin) | {"key": origin.key or uuid4().hex}
        return self.execute(kind(**stated, **more))

    def submit_all(
        self, sets: Sequence[Any], origins: Sequence[open_ladder.Origin]
    ) -> tuple[views.Release, ...]:
        """Submit a batch in one request, and rounds of training each in one of its own."""
        submissions = [*zip(sets, origins, strict=True)]
        if not origins[0].announced:
            seen.note_answer()
            return tuple(self._asked(commands.Submit, *submission) for submission in submissions)
        members = [commands.Candidate(**self._stated(*submission)) for submission in submissions]
        return self.execute(commands.SubmitBatch(submissions=members, key=origins[0].batch))

    def _values(self, predictions: Any) -> Any:
        """Return predictions in the order of the rows here, unless the server has to find it."""
        if isinstance(predictions, open_ladder.Predictions):
            return predictions.values[certificate.ALONE]
        if isinstance(predictions, NamedPredictions):
            # An index is compared with the rows of the caller, if there are any.
            known = np.empty(self.facts.n) if self.X is None else self.X
            return predictions if predictions.by_ids else predictions.in_order_of(known)
        has_rows = self.X is not None or self.described.allows["rows"]
        if arrays.index_of(predictions) is None or not has_rows:
            return predictions
        return arrays.by_index(predictions, self.rows().X)

    def predict(self, estimator: Any, steps: tuple[Any, ...] = ()) -> open_ladder.Predictions:
        """Return what an estimator predicts on the rows, as these fitted pipelines leave them."""
        X = open_ladder.transformed(self._features(), steps)
        with containment.without_autologging():
            answers = self.metric.respond(estimator, X, self.facts.classes)
            return open_ladder.Predictions({certificate.ALONE: answers})

    def fix(self, predictions: Any) -> open_ladder.Predictions:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        given, classes = self._values(predictions), self.facts.classes
        aligned = self.metric.canonical(values_of(given), self.facts.n, classes)
        values = self.metric.as_submitted(aligned, classes)
        if isinstance(given, NamedPredictions):  # only the server can place them
            values = replace(given, values=values, names=_listed(given.names))
        return open_ladder.Predictions({certificate.ALONE: values})

    def _stated(self, predictions: Any, origin: open_ladder.Origin) -> dict[str, Any]:
        """Return the fields of one submission: predictions with ids, or in the server's order."""
        classes = self.facts.classes
        fixed = self.fix(predictions).values[certificate.ALONE]
        values: Any = values_of(fixed)
        of_labels = self.metric.is_classification and self.metric.response == "labels"
        if of_labels and classes is not None and values.dtype.kind in "iu":
            # In as few bytes as hold them.
            values = values.astype(np.result_type(*map(np.min_scalar_type, classes)))
        ids = fixed.names if isinstance(fixed, NamedPredictions) else None
        if ids is None and self.places is not None:
            if isinstance(values, list):  # of texts
                values = [*map(values.__getitem__, self.places.tolist())]
            else:
                values = values.take(self.places, axis=0)
        context = dict(origin.context)
        return {"predictions": values, "ids": ids, "context": context, "search": origin.search}

    # -- what was released ------------------------------------------------------------

    def unsent(self, *, after: int, raw: bool, limit: int) -> views.Unsent:
        """Return the next submissions after a number, for a copy in a tracker."""
        if raw:
            raise errors.HoldoutConflict(
                "Raw scores are copied where the ledger is, by its owner: this holdout is behind "
                f"{self.ledger}."
            )
        status = self.execute(commands.Status(), shown=False)
        asked = commands.History(after=after, limit=limit)
        estimate = None if status.estimate is None else status.estimate.score
        # Whatever of it changes, something was shown of submissions that a copy may hold.
        revealed = None if self.facts.rules.shows_scores else status.score
        shown = hash((status.opened, revealed, status.reserve_score, estimate))
        return views.Unsent(
            self.execute(asked, shown=False).submissions,
            None,
            (shown, 0, 0),
            {status.incumbent: status.reserve_score},
            {status.incumbent: estimate},
        )

    def alone(self, body: Callable[[], T]) -> T:
        """Do something; the server locks nothing for its clients."""
        return body()

    # -- the rows ---------------------------------------------------------------------

    def rows(self, *, checked: bool = False) -> open_ladder.HeldRows:
        """Return the features: the caller's own, else those that the server shares, if it does.

        Raises
        ------
        InvalidArgument
            There are neither, and `checked` rows are asked for.
        """
        if not checked and self.X is None and not self.described.allows["rows"]:
            return open_ladder.HeldRows(None, np.zeros(0, dtype=np.uint64), 0, True)
        X, groups = self._features(), None
        # Whatever the order: they are equal for all accounts.
        hashes = self._once("hashes", lambda: np.sort(hashing.row_hashes(X)))
        if self.facts.estimand is not None and self.described.allows["rows"]:
            groups = self._once("groups", lambda: self.execute(commands.RowGroups()))
        return open_ladder.HeldRows(X, hashes, 0, True, groups=groups)

    def _features(self) -> Any:
        if self.X is not None:
            return self.X
        if not self.described.allows["rows"]:
            raise errors.InvalidArgument(
                "X",
                "given to LadderHoldout.connect, for this server does not share the rows",
                "missing",
                "Or submit predictions: holdout.submit(predictions).",
            )
        return self._once("features", lambda: features_from_bytes(self.execute(commands.Rows())))

    def _once(self, what: str, make: Callable[[], T]) -> T:
        """Return something of the rows; fresh ones may take their place."""
        place = what, self.ledger, self.facts.fingerprint
        with _lock():
            if place not in _known:
                _known[place] = make()
            return _known[place]  # type: ignore[no-any-return]

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
        return self.ledger, self.described.account

    def __repr__(self) -> str:
        return f"RemoteLadder(metric={self.metric.name!r}, url={self.ledger!r})"


def _listed(ids: Any) -> list[int | float | str]:
    """Return ids as JSON holds them."""
    plain = [name.item() if hasattr(name, "item") else name for name in ids]
    listed = [str(name) if isinstance(name, UUID) else name for name in plain]
    if not all(type(name) in (int, float, str) for name in listed):
        raise errors.InvalidArgument("ids", "numbers or texts behind a server", "others")
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
        listed = json.loads(connection.call("GET", "/v1/holdouts"))["holdouts"]
        if len(listed) != 1:
            raise errors.UnknownHoldout("The token is for no single holdout: name one in the URL.")
        name = listed[0]["name"]
    answer = connection.call("POST", path_of(name, commands.Describe.word))
    described = commands.read_as(commands.Description, answer)
    url = f"{base}/holdouts/{described.name}"
    facts = open_ladder.facts_of((url, 0), described, described)
    metric = stored_metric(described.settings).for_classes(facts.classes)
    check_policy(feedback, shows_scores=facts.rules.shows_scores)
    ladder = RemoteLadder(
        connection=connection,
        ledger=url,
        described=described,
        facts=facts,
        metric=metric,
        feedback=feedback,
        overlap=overlap,
    )
    if X is not None:
        arrays.refuse_masked("X", X)
        ladder.X = copies.copy_of(X)
        places = ladder.execute(commands.RowOrder(hashes=hashing.row_hashes(ladder.X)))
        ladder.places = None if np.array_equal(places, np.arange(len(places))) else places
    return ladder
