"""`RemoteLadder`: a ladder behind a server, for all that runs on a ladder."""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self, TypeVar
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray

from ladderholdout import errors, guard
from ladderholdout import identity as fp
from ladderholdout.arguments import within
from ladderholdout.feedback import check_policy
from ladderholdout.guard import commands
from ladderholdout.ledger.rules import rules_of, stored_metric
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import by_index, index_of, refuse_masked
from ladderholdout.process import PerProcess
from ladderholdout.remote.connection import LARGEST_TIMEOUT, Connection, Token, path_of, place_of
from ladderholdout.remote.wire import BLOCK
from ladderholdout.vault import features_from_bytes

A = TypeVar("A")
T = TypeVar("T")

_PAGE = 1000
NOWHERE = guard.Origin()

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
    facts : guard.Facts
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
    facts: guard.Facts
    account: str
    role: str
    shares_rows: bool
    metric: Metric
    feedback: str
    overlap: str
    X: Any = None
    places: NDArray[np.int64] | None = None

    @property
    def by_metric(self) -> Mapping[str, guard.OpenLadder]:
        """No ladder: a ladder behind a server is of one metric."""
        return {}

    def verified(self) -> guard.Facts:
        """Return what never changes: a server is asked about it when it is connected to."""
        return self.facts

    # -- commands ---------------------------------------------------------------------

    def execute(self, command: commands.Command[A]) -> A:
        """Send a command to the server, and return its answer."""
        kind, block = type(command), {BLOCK: str(self.facts.block)}
        path, data = path_of(self.facts.name, kind.word), commands.written(command)
        answer: Any = self.connection.call("POST", path, data, block)
        if kind.answer is not bytes:
            answer = commands.read_as(kind.answer, answer)
        return answer  # type: ignore[no-any-return]

    def submit(self, predictions: Any, origin: guard.Origin) -> guard.Release:
        """Submit `Predictions`, or what a caller gives."""
        guard.settle()
        return self._answer(self._values(predictions), origin)

    def decide(self, predictions: Any, origin: guard.Origin) -> guard.Decision:
        """Submit predictions to a gate, and return whether they may replace the incumbent."""
        guard.settle()
        guard.note_answer()
        stated = self._stated(self._values(predictions), origin)
        stated |= {"margin": origin.margin, "baseline": origin.baseline}
        return self.execute(commands.Decide(**stated, key=origin.key or uuid4().hex))

    def submit_rounds(
        self, outputs: Sequence[Any], origins: Sequence[guard.Origin]
    ) -> tuple[guard.Release, ...]:
        """Submit the rounds of one training run in their order, each in a request of its own."""
        guard.note_answer()
        return tuple(map(self._answer, outputs, origins))

    def _answer(self, predictions: Any, origin: guard.Origin) -> guard.Release:
        if origin.batch is None:
            guard.note_answer()
        stated = self._stated(predictions, origin)
        release = self.execute(commands.Submit(**stated, key=origin.key or uuid4().hex))
        return self._warned(release)

    def submit_batch(
        self, batch: str, predictions: Sequence[guard.Predictions], origins: Sequence[guard.Origin]
    ) -> tuple[guard.Release, ...]:
        """Submit a batch in one request."""
        members = [
            commands.Candidate(**self._stated(given.values, origin))
            for given, origin in zip(predictions, origins, strict=True)
        ]
        releases = self.execute(commands.SubmitBatch(submissions=members, key=batch))
        return tuple(map(self._warned, releases))

    def _values(self, predictions: Any) -> Any:
        """Return predictions in the order of the rows here, unless the server has to find it."""
        if isinstance(predictions, guard.Predictions):
            return predictions.values
        if isinstance(predictions, guard.NamedPredictions):
            return predictions if predictions.by_ids else predictions.in_order_of(self._known())
        if index_of(predictions) is None or not (self.X is not None or self.shares_rows):
            return predictions
        return by_index(predictions, self.rows().X)

    def _known(self) -> Any:
        """Return the rows by which an index is compared: those of the caller, else none."""
        return np.empty(self.facts.n) if self.X is None else self.X

    def predict(self, estimator: Any, steps: tuple[Any, ...] = ()) -> guard.Predictions:
        """Return what an estimator predicts on the rows, as these fitted pipelines leave them."""
        X = guard.transformed(self._features(), steps)
        with guard.without_autologging():
            return guard.Predictions(self.metric.respond(estimator, X, self.facts.classes), True)

    def fix(self, predictions: Any) -> guard.Predictions:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        given, classes = self._values(predictions), self.facts.classes
        aligned = self.metric.canonical(guard.values_of(given), self.facts.n, classes)
        values = self.metric.as_submitted(aligned, classes)
        if isinstance(given, guard.NamedPredictions):  # only the server can place them
            values = replace(given, values=values, names=_listed(given.names))
        return guard.Predictions(values, True)

    def _stated(self, predictions: Any, origin: guard.Origin = NOWHERE) -> dict[str, Any]:
        """Return the fields of one submission: predictions with ids, or in the server's order."""
        classes = self.facts.classes
        fixed = self.fix(guard.Predictions(predictions, True)).values
        values: Any = guard.values_of(fixed)
        of_labels = self.metric.is_classification and self.metric.response == "labels"
        if of_labels and classes is not None and values.dtype.kind in "iu":
            # In as few bytes as hold them.
            values = values.astype(np.result_type(*map(np.min_scalar_type, classes)))
        ids = fixed.names if isinstance(fixed, guard.NamedPredictions) else None
        if ids is None and self.places is not None:
            if isinstance(values, list):  # of texts
                values = [*map(values.__getitem__, self.places.tolist())]
            else:
                values = values.take(self.places, axis=0)
        context = dict(origin.context)
        return {"predictions": values, "ids": ids, "context": context, "search": origin.search}

    def _warned(self, release: guard.Release) -> guard.Release:
        """Warn of what the guard warned of where it is."""
        budget = self.facts.rules.budget
        if budget is not None and release.improved and release.improvements == budget:
            errors.warn(
                f"The {budget} releases of this ladder are used up: the released score stays, "
                "whatever is submitted from now on.",
                errors.BudgetWarning,
            )
        if release.opened:
            certified = "certified by the reserve alone."
            errors.warn(
                "An audit has shown raw scores of this ladder: the submission is recorded, but "
                + (certified if self.facts.n_reserve else "can not be certified."),
                errors.OpenedWarning,
            )
        return release

    # -- what was released ------------------------------------------------------------

    def _read(self, command: commands.Command[A], shown: bool = True) -> A:
        """Return the answer to a command that somebody is to read."""
        if shown:
            guard.note_shown()
        return self.execute(command)

    def state(self, *, shown: bool = False) -> guard.State:
        """Return what changes, as the server has it now."""
        return self._read(commands.State(), shown)

    def status(self, *, shown: bool = True) -> guard.Status:
        """Return the released score and what queried the holdout."""
        return replace(self._read(commands.Status(), shown), ledger=self.ledger)

    def history(
        self, after: int, limit: int | None, *, search: str | None = None, shown: bool = True
    ) -> tuple[guard.Submission, ...]:
        """Return the submissions after a number, in as many requests as needed."""
        submissions: list[guard.Submission] = []
        while limit is None or len(submissions) < limit:
            most = _PAGE if limit is None else min(_PAGE, limit - len(submissions))
            command = commands.History(after=max(after, 0), limit=most, search=search)
            page = self._read(command, shown).submissions
            submissions += page
            if len(page) < most:
                break
            after = submissions[-1].number
        return tuple(submissions)

    def certificate(
        self, confidence: float | None, *, reserve: bool = False
    ) -> guard.ScoreCertificate:
        """Certify the incumbent, with the registered confidence."""
        if reserve:
            self._refuse("The reserve is queried")
        self._check_confidence(confidence)
        # A reader is shown what is on record; others may have it worked out, and put there.
        is_reader = self.role == "reader"
        return self._read(commands.Certificate() if is_reader else commands.Certify())

    def compare(self, first: Any, second: Any, confidence: float | None) -> guard.Comparison:
        """Compare two models, with the registered confidence."""
        self._check_confidence(confidence)
        sides = self._side(first), self._side(second)
        return self._read(commands.Compare(first=sides[0], second=sides[1]))

    def _side(self, model: Any) -> int | commands.Candidate:
        """Return one side of a comparison as it is sent."""
        number = guard.number_of(model)
        if number is not None:
            return number
        return commands.Candidate(**self._stated(self._values(model)))

    def estimate(self) -> guard.Estimate:
        """Correct the incumbent's score for its selection."""
        return self._read(commands.Estimate())

    def _check_confidence(self, confidence: float | None) -> None:
        """Refuse another confidence than the registered one."""
        if confidence not in (None, self.facts.confidence):
            raise errors.InvalidArgument(
                "confidence",
                f"{self.facts.confidence:g}, the registered one, behind a server",
                "another",
                "Another one has a price, and is asked for where the ledger is.",
            )

    def reveal(self) -> float | None:
        """Show the released score of a ladder that shows none."""
        return self._read(commands.Reveal())

    def unsent(self, *, after: int, raw: bool, limit: int) -> guard.Unsent:
        """Return the next submissions after a number, for a copy in a tracker."""
        if raw:
            self._refuse("Raw scores are copied")
        status = self.status(shown=False)
        estimate = None if status.estimate is None else status.estimate.score
        points = tuple(
            guard.Point(
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
        return guard.Unsent(points, None, (shown, 0, 0))

    # -- what is put on record ----------------------------------------------------------

    def note(self, seen: guard.SeenRows | guard.SeenGroups | guard.SpentAt) -> None:
        """Put on record what was seen of the rows; refuse a rule of the owner's."""
        if isinstance(seen, guard.SpentAt) or (
            isinstance(seen, guard.SeenGroups) and seen.withdrawn
        ):
            self._refuse("That is for the owner:")
        if isinstance(seen, guard.SeenGroups):
            self.execute(commands.NoteGroups(by=seen.by))
        else:
            self.execute(commands.NoteRows(rows=seen.rows))

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

    def replenish(self, fresh: guard.FreshRows) -> NoReturn:
        """Refuse: owners do it where the ledger is."""
        name = shlex.quote(self.facts.name)
        self._refuse(f"Fresh rows are given (ladder-holdout replenish {name} FILE --target COLUMN)")

    def alone(self, body: Callable[[], T]) -> T:
        """Do something; the server locks nothing for its clients."""
        return body()

    # -- the rows ---------------------------------------------------------------------

    def rows(self, *, checked: bool = False) -> guard.HeldRows:
        """Return the features: the caller's own, else those that the server shares, if it does.

        Raises
        ------
        InvalidArgument
            There are neither, and `checked` rows are asked for.
        """
        if not checked and self.X is None and not self.shares_rows:
            return guard.HeldRows(None, np.zeros(0, dtype=np.uint64), 0, True)
        X = self._features()
        if self._rows_key not in _hashes:  # whatever the order, and equal for all accounts
            _hashes[self._rows_key] = np.sort(fp.row_hashes(X))
        return guard.HeldRows(X, _hashes[self._rows_key], 0, True, groups=self._groups())

    def _groups(self) -> NDArray[np.uint64] | None:
        """Return sorted hashes of the groups, where there are groups and the server shares rows."""
        if self.facts.estimand is None or not self.shares_rows:
            return None
        if self._rows_key not in _group_names:
            _group_names[self._rows_key] = self.execute(commands.RowGroups())
        return _group_names[self._rows_key]

    def _features(self) -> Any:
        if self.X is not None:
            return self.X
        if not self.shares_rows:
            raise errors.InvalidArgument(
                "X",
                "given to LadderHoldout.connect, for this server does not share the rows",
                "missing",
                "Or submit predictions: holdout.submit(predictions).",
            )
        with _lock():
            if self._rows_key not in _shared:
                _shared[self._rows_key] = features_from_bytes(self.execute(commands.Rows()))
            return _shared[self._rows_key]

    @property
    def _rows_key(self) -> tuple[str, str]:
        """The holdout and its rows: fresh ones may take their place."""
        return self.ledger, self.facts.fingerprint

    def _refuse(self, what: str) -> NoReturn:
        raise errors.HoldoutConflict(
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
    described = connection.call("POST", path_of(name, commands.Describe.word))
    told = commands.read_as(commands.Description, described)
    settings, classes = told.settings, None if told.classes is None else np.asarray(told.classes)
    metric, rules = stored_metric(settings).for_classes(classes), rules_of(settings)
    check_policy(feedback, shows_scores=rules.shows_scores)
    url = f"{base}/holdouts/{told.name}"
    facts = guard.Facts(
        place=(url, 0),
        name=told.name,
        fingerprint=told.fingerprint,
        n=told.n,
        n_reserve=told.n_reserve,
        classes=classes,
        confidence=told.confidence,
        account=settings.account,
        ladder=settings.name,
        created=told.created,
        rules=rules,
        estimand=told.estimand,
        block=told.block,
    )
    ladder = RemoteLadder(
        connection=connection,
        ledger=url,
        facts=facts,
        account=told.account,
        role=told.role,
        shares_rows=told.allows["rows"],
        metric=metric,
        feedback=feedback,
        overlap=overlap,
    )
    if X is not None:
        refuse_masked("X", X)
        ladder.X = fp.copy_of(X)
        places = ladder.execute(commands.RowOrder(hashes=fp.row_hashes(ladder.X)))
        ladder.places = None if np.array_equal(places, np.arange(len(places))) else places
    return ladder
