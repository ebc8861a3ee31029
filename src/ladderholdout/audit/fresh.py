"""Fresh rows: whose models were given, what they predict there, and what that shows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.audit import statistics
from ladderholdout.audit.records import FreshTest, best_raw
from ladderholdout.audit.submissions import AuditedSubmission, AuditedSubmissions
from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.guard.recognition import judge_overlap
from ladderholdout.guard.settings import rows_of
from ladderholdout.guard.submit import Guard
from ladderholdout.identity import hashing, matching
from ladderholdout.ledger.arrays import digests_of
from ladderholdout.ledger.events import Submitted
from ladderholdout.metrics import Evaluation
from ladderholdout.metrics.arrays import by_index
from ladderholdout.metrics.responses import predicts
from ladderholdout.vault import Rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fresh:
    """Fresh rows with the evaluations of the models that were given for submissions."""

    guard: Guard
    targets: NDArray[Any]
    weights: NDArray[np.float64] | None
    models: Mapping[int, Evaluation]
    refitted: tuple[int, ...]

    def constant(self, row: NDArray[Any]) -> Evaluation | None:
        """Evaluate a constant prediction, where the metric has a value for it."""
        predictions = statistics.everywhere(row, len(self.targets))
        try:
            return self.guard.metric.evaluate(self.targets, predictions, self.weights)
        except InvalidSubmission:
            return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Firsts:
    """The first submission of each submission's predictions, and their hash.

    They are in columns, for there may be millions.
    """

    numbers: NDArray[np.int64]
    firsts: NDArray[np.int64]
    digests: NDArray[np.bytes_]

    @classmethod
    def of(cls, recorded: Iterable[Submitted]) -> Firsts:
        """Read all submissions of a ladder, in their order."""
        numbers, firsts, digests = array("q"), array("q"), bytearray()
        for submission in recorded:
            numbers.append(submission.number)
            firsts.append(submission.repeat_of or submission.number)
            digests += submission.digest[:_DIGEST].ljust(_DIGEST).encode()
        places = np.frombuffer(numbers, np.int64), np.frombuffer(firsts, np.int64)
        return cls(*places, np.frombuffer(digests, f"S{_DIGEST}"))

    def first(self, number: int) -> int | None:
        """Return the first submission with the predictions of this one; None without it."""
        places = np.flatnonzero(self.numbers == number)
        return int(self.firsts[places[0]]) if len(places) else None

    def has(self, number: int, digest: str) -> bool:
        """Return whether the predictions of a submission hash to this."""
        return bool((self._same(digest) & (self.numbers == number)).any())

    def with_digest(self, digest: str) -> int | None:
        """Return the first submission whose predictions hash to this."""
        places = np.flatnonzero(self._same(digest) & (self.firsts == self.numbers))
        return int(self.numbers[places[0]]) if len(places) else None

    def _same(self, digest: str) -> NDArray[np.bool_]:
        return np.equal(self.digests, digest.encode())


_DIGEST = 64


def evaluated(
    guard: Guard,
    fresh: Any,
    model: Any,
    firsts: Firsts,
    incumbent: int | None,
    overlap: str,
) -> Fresh:
    """Evaluate the given models on the fresh rows; nothing of the holdout is scored here.

    Raises
    ------
    InvalidArgument
        Fresh rows or models are not what they should be.
    OverlapError
        Half of the fresh rows or more are rows of the holdout.
    """
    if not isinstance(fresh, tuple | list) or len(fresh) not in (2, 3):
        allowed = "a tuple (X, y), or (X, y, sample_weight)"
        raise InvalidArgument("fresh", allowed, f"a {type(fresh).__name__}")
    rows = rows_of(*fresh, *[None] * (3 - len(fresh)))
    _check_overlap(guard, rows, overlap)
    given = _by_submission(model, firsts, incumbent)
    targets = guard.metric.targets(rows.labels, guard.holdout.classes)
    models, refitted = {}, []
    for number, answer in given.items():
        predictions = _predictions(guard, answer, rows)
        models[number] = guard.metric.evaluate(targets, predictions, rows.sample_weight)
        if not _submitted(guard, answer, number, firsts):
            refitted.append(number)
    return Fresh(guard, targets, rows.sample_weight, models, tuple(refitted))


def tested(
    fresh: Fresh,
    submissions: AuditedSubmissions,
    incumbent: AuditedSubmission,
    on_holdout: Evaluation,
    constant: NDArray[Any] | None,
    confidence: float,
    rng: np.random.Generator,
) -> FreshTest:
    """Compare the released score, the raw pick and a constant with what fresh rows show."""
    metric, at_incumbent = fresh.guard.metric, fresh.models[incumbent.number]
    released = statistics.score_interval(metric, at_incumbent, confidence, rng)
    before = statistics.score_interval(metric, on_holdout, confidence, rng)
    pick = best_raw(submissions)
    # The pick may be the released model itself: then there is nothing to compare.
    raw_pick = None if pick is None or pick == incumbent else fresh.models.get(pick.number)
    flat = None if constant is None else fresh.constant(constant)

    def over(other: Evaluation | None) -> statistics.Interval | None:
        return (
            None
            if other is None
            else statistics.paired(metric, at_incumbent, other, confidence, rng)
        )

    return FreshTest(
        n=len(fresh.targets),
        released=released,
        gap=statistics.two_samples(incumbent.incumbent_score, before, released),
        constant=None if flat is None else metric.to_score(flat.risk),
        gain=over(flat),
        picked=None
        if raw_pick is None
        else statistics.score_interval(metric, raw_pick, confidence, rng),
        over_picked=over(raw_pick),
        refitted=fresh.refitted,
        **_errors(submissions[~submissions.is_repeat]),
    )


def _errors(distinct: AuditedSubmissions) -> dict[str, float]:
    """Return the leaderboard errors, if the truth is known of every submission."""
    true = distinct["fresh"]
    if np.isnan(true).any():
        return {}
    return {
        "leaderboard_error": statistics.leaderboard_error(true, distinct["incumbent_score"]),
        "raw_leaderboard_error": statistics.leaderboard_error(
            true, np.maximum.accumulate(distinct["raw"])
        ),
    }


def _check_overlap(guard: Guard, rows: Rows, overlap: str) -> None:
    hashes = hashing.row_hashes(rows.X)
    shared = matching.overlap(hashes, guard.hashes)
    if shared:
        message = (
            f"{shared} of these {len(hashes)} fresh rows are in the holdout "
            f"{guard.holdout.name!r}: what they show was known before."
        )
        judge_overlap(overlap, shared, len(hashes), message)


def _by_submission(model: Any, firsts: Firsts, incumbent: int | None) -> dict[int, Any]:
    """Return the given models by the number of the first submission of their predictions."""
    if incumbent is None:
        came = "given where nothing was released yet"
        raise InvalidArgument("fresh", "left out before the first release", came)
    if model is None:
        raise InvalidArgument(
            "model",
            "given with fresh=",
            "missing",
            f"The ledger keeps no models: give that of the incumbent, submission {incumbent}, or "
            "a mapping from numbers of submissions to models.",
        )
    given = dict(model) if isinstance(model, Mapping) else {incumbent: model}
    by_first: dict[int, Any] = {}
    for number, submitted in given.items():
        first = firsts.first(number)
        if first is None:
            allowed = f"a mapping from numbers of submissions, 1 to {len(firsts.numbers)}"
            raise InvalidArgument("model", allowed, f"one with {number!r}")
        by_first[first] = submitted
    if incumbent not in by_first:
        allowed = f"a mapping that holds the incumbent, submission {incumbent}"
        raise InvalidArgument("model", allowed, "one without it")
    return by_first


def _predictions(guard: Guard, model: Any, rows: Rows) -> NDArray[Any]:
    """Return canonical predictions on the fresh rows, from a model or as they were given."""
    metric, classes = guard.metric, guard.holdout.classes
    answer = metric.respond(model, rows.X, classes) if predicts(model) else by_index(model, rows)
    return metric.canonical(answer, len(rows.y), classes)


def _submitted(guard: Guard, model: Any, number: int, firsts: Firsts) -> bool:
    """Return whether a model predicts on the holdout what was submitted under its number.

    Raises
    ------
    InvalidArgument
        It predicts what was submitted under another one.
    """
    if not predicts(model):
        return True  # predictions on other rows do not show whose they are
    metric, holdout = guard.metric, guard.holdout
    answer = metric.respond(model, guard.rows.X, holdout.classes)
    aligned = metric.canonical(answer, holdout.n, holdout.classes)[guard.order]
    digest, _ = digests_of(holdout.secret, np.ascontiguousarray(aligned), holdout.reserve)
    if firsts.has(number, digest):
        return True
    other = firsts.with_digest(digest)
    if other is None:
        return False
    allowed = f"the one behind submission {number}"
    remedy = f"Give it under its own number, model={{{other}: ...}}."
    raise InvalidArgument("model", allowed, f"the one behind submission {other}", remedy)
