"""`SeveralLadders`: a ladder for each of several metrics on one holdout, queried together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission, UnknownHoldout
from ladderholdout.guard import ladder as local
from ladderholdout.guard import registration
from ladderholdout.guard.certification import certificate_or_why
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.metric_views import (
    Estimates,
    JointSubmission,
    Releases,
    ScoreCertificates,
    Statuses,
    of_metric,
)
from ladderholdout.guard.named_rows import are_named, values_of
from ladderholdout.guard.open_ladder import (
    OpenLadder,
    Origin,
    Predictions,
    of_one_metric,
    transformed,
)
from ladderholdout.guard.points import Unsent
from ladderholdout.guard.record_views import status_of, submission_of
from ladderholdout.guard.settings import (
    BETWEEN,
    HoldoutSettings,
    ids_of,
    metrics_of,
    rows_of,
    text,
    warn_of_hard_labels,
)
from ladderholdout.guard.shown import note_shown, settle
from ladderholdout.guard.submission import Answer, Guard, Measured
from ladderholdout.guard.views import (
    TOGETHER,
    Estimate,
    Release,
    ScoreCertificate,
    Status,
    Submission,
)
from ladderholdout.guard.withdrawal import Withdrawn
from ladderholdout.ledger import (
    Access,
    Entry,
    LadderRecord,
    Ledger,
    Transaction,
    resolve_url,
    same_ladder,
)
from ladderholdout.ledger import shown as url_shown
from ladderholdout.metrics import Metric, get_metric
from ladderholdout.metrics.arrays import read_once

A = TypeVar("A")
_RESPONSES = ("labels", "probabilities", "scores", "values")


class _OfFirst:
    """What several ladders have of the first one, by the name of the attribute."""

    def __set_name__(self, owner: type[SeveralLadders], name: str) -> None:
        self._name = name

    def __get__(self, several: SeveralLadders, owner: object = None) -> Any:
        return getattr(several.first, self._name)


@dataclass(eq=False, repr=False)
class SeveralLadders:
    """The ladders of several metrics on one holdout: what is submitted goes to all, or to none.

    What there can only be one of, as the incumbent by which a search ends, is that of the metric
    named first.
    """

    ladders: dict[str, LocalLadder]

    @property
    def by_metric(self) -> Mapping[str, OpenLadder]:
        """The ladder of each metric."""
        return {**self.ladders}

    @property
    def first(self) -> LocalLadder:
        """The ladder of the metric named first."""
        return next(iter(self.ladders.values()))

    ledger = _OfFirst()
    metric = _OfFirst()
    feedback = _OfFirst()
    overlap = _OfFirst()
    place = _OfFirst()
    facts = _OfFirst()
    verified = _OfFirst()
    state = _OfFirst()
    rows = _OfFirst()
    note = _OfFirst()
    retire = _OfFirst()
    alone = _OfFirst()

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Releases:
        """Submit `Predictions`, or what a caller gives.

        One array where all metrics take it, else a mapping by metric or by response.
        """
        with without_frames:
            guards = self._guards()
            if isinstance(predictions, Predictions) and predictions.placed:
                given, order = predictions.values, None
            else:
                given, order = self._placed(_values_of(predictions), guards)
            return self._query(given, guards, origin, order)

    def submit_rounds(
        self, outputs: Sequence[Any], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Refuse: early stopping goes by one metric."""
        return of_one_metric(self).submit_rounds(outputs, origins)

    def submit_batch(
        self, batch: str, predictions: Sequence[Predictions], origins: Sequence[Origin]
    ) -> Iterator[Release]:
        """Submit a batch, all of which is here before any of it is answered."""
        self.first.announce(batch, len(predictions) * len(self.ladders))
        return local.one_by_one(self, batch, predictions, origins)

    def _placed(
        self, predictions: Any, guards: Mapping[str, Guard]
    ) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """Return the predictions for each metric in the order of the rows, and that order."""
        sources, order = self._sources(predictions), self.first.order
        placed: dict[int, Any] = {}
        for source, _ in sources.values():
            if id(source) not in placed:
                # What makes its values when it is read is read once for all metrics.
                read = source if are_named(source) else read_once(source)
                placed[id(source)], order = self.first.placed(read)
        given = {name: placed[id(source)] for name, (source, _) in sources.items()}
        for name, (_, as_scores) in sources.items():
            if as_scores:
                given[name] = _second_column(given[name], guards[name])
        return given, order

    def fix(self, predictions: Any) -> Predictions:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        with without_frames:
            guards, placed = self._guards(), are_named(predictions)
            if isinstance(predictions, Predictions):
                given, placed = predictions.values, predictions.placed
            else:
                given, _ = self._placed(predictions, guards)
            fixed = {name: self._fixed(name, guard, given[name]) for name, guard in guards.items()}
            return Predictions(fixed, placed)

    @staticmethod
    def _fixed(name: str, guard: Guard, predictions: Any) -> Any:
        """Return predictions for one metric in its own form."""
        holdout, metric = guard.holdout, guard.metric
        with _named(name), without_autologging():
            return metric.as_submitted(
                metric.canonical(predictions, holdout.n, holdout.classes), holdout.classes
            )

    def predict(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Predictions:
        """Return what an estimator predicts on the rows, by metric; it is asked once for each."""
        with without_frames:
            lead, guards = self.first.guard(), self._guards()
            lead.check_rows()
            rows, classes = lead.rows, lead.holdout.classes
            with without_autologging():
                X = transformed(rows.X, steps)
                answers: dict[Any, Any] = {}
                by_name = {
                    name: guard.metric.respond(estimator, X, classes, answers)
                    for name, guard in guards.items()
                }
                return Predictions(by_name, True)

    def _query(
        self,
        given: Mapping[str, Any],
        guards: Mapping[str, Guard],
        origin: Origin,
        order: NDArray[Any] | None,
    ) -> Releases:
        """Judge one submission by all metrics, in one transaction."""
        settle()
        lead = guards[next(iter(guards))]
        # A rule may measure once more, with other weights, so it steps under this as well.
        with without_autologging():
            while True:
                # All of it before anything is written: what one metric refuses goes to none.
                measured = {
                    name: _measured(name, guard, given[name], self._own(origin, place), order)
                    for place, (name, guard) in enumerate(guards.items(), 1)
                }
                answers = lead.ledger.write_to(
                    lead.ladder_id,
                    lead.since,
                    partial(_judged, guards=guards, measured=measured),
                    asked=[measured[next(iter(guards))].asked],
                )
                if answers is not None:
                    break
                for guard in guards.values():
                    guard.reload()
            return Releases.of({name: one.settle(answers[name]) for name, one in guards.items()})

    def _own(self, origin: Origin, place: int) -> Origin:
        """Return the origin on one of the ladders, whose places in a batch are its own.

        A place in a batch represents one model and one metric: so the price of a place pays for
        the choice of both.
        """
        if origin.place is None:
            return origin
        return replace(origin, place=(origin.place - 1) * len(self.ladders) + place)

    def _sources(self, predictions: Any) -> dict[str, tuple[Any, bool]]:
        """Return what was given for each metric, and whether its second column is meant."""
        asked = {name: one.metric.response for name, one in self.ladders.items()}
        if not isinstance(predictions, Mapping):
            kinds = set(asked.values())
            if len(kinds) > 1 and kinds != {"probabilities", "scores"}:
                raise self._refusal("one array")
            kind = "probabilities" if len(kinds) > 1 else kinds.pop()
            predictions = {kind: predictions}
        if set(predictions) == set(asked):
            return {name: (predictions[name], False) for name in asked}
        if not set(predictions) <= set(_RESPONSES):
            raise self._refusal(f"a mapping with {', '.join(map(repr, predictions))}")
        found, used = {}, set()
        for name, response in asked.items():
            # The score of an estimator without a decision function is the same.
            as_scores = response == "scores" and response not in predictions
            source = "probabilities" if as_scores else response
            if source not in predictions:
                lacking = source if source in asked.values() else response
                raise self._refusal(f"a mapping without {lacking!r}")
            found[name] = predictions[source], as_scores
            used.add(source)
        unused = set(predictions) - used
        if unused:
            raise self._refusal(f"a mapping with {', '.join(map(repr, sorted(unused)))} as well")
        return found

    def _refusal(self, came: str) -> InvalidSubmission:
        asked = {name: one.metric.response for name, one in self.ladders.items()}
        metrics = ", ".join(f"{name!r} takes {kind}" for name, kind in asked.items())
        kinds = dict.fromkeys(asked.values())
        if "probabilities" in kinds:  # which serve where scores are asked for
            kinds.pop("scores", None)
        wanted = ", ".join(f"{kind!r}: ..." for kind in kinds)
        return InvalidSubmission(
            "predictions",
            f"given for each of the metrics ({metrics})",
            came,
            f"Submit {{{wanted}}}, or an estimator: holdout.evaluate(model).",
        )

    # -- what is shown ----------------------------------------------------------------

    def status(self, *, shown: bool = True) -> Statuses:
        """Return the released scores and what queried the holdout, all of one moment."""
        if shown:
            note_shown()
        place = url_shown(self.first.ledger)
        certify = {name: certificate_or_why(one) for name, one in self.ladders.items()}

        def read(tx: Transaction, _: LadderRecord) -> dict[str, Status]:
            found = {name: self._record(tx, name) for name in self.ladders}
            return {
                name: status_of(tx, one, self.ladders[name].metric, certify[name](tx, one), place)
                for name, one in found.items()
            }

        return Statuses.of(self.first.read(read))

    def history(
        self, after: int, limit: int | None, *, search: str | None = None, shown: bool = True
    ) -> tuple[Submission, ...]:
        """Return the submissions after a number of the first metric, each with all metrics."""

        def read(tx: Transaction, one: LadderRecord) -> tuple[Submission, ...]:
            entries = tx.entries(one.id, after=after, limit=limit, search=search)
            return tuple(map(JointSubmission.of, self._beside(tx, entries)))

        return self.first.read(read, shown=shown)

    def _beside(self, tx: Transaction, entries: Sequence[Entry]) -> Iterator[dict[str, Submission]]:
        """Add to entries of the first ladder those of the same submissions on the others."""
        lead, *others = self.ladders
        numbers = {
            name: [n for one in entries if (n := numbers_of(one).get(name)) is not None]
            for name in others
        }
        there: dict[str, dict[int, Entry]] = {}
        for name, own in numbers.items():
            if own:
                start, most = min(own) - 1, max(own) - min(own) + 1
                read = tx.entries(self.ladders[name].id, after=start, limit=most)
                there[name] = {one.number: one for one in read}
        for entry in entries:
            found = {lead: submission_of(entry, self.first.metric)}
            for name, known in there.items():
                number = numbers_of(entry).get(name)
                if number in known:
                    found[name] = submission_of(known[number], self.ladders[name].metric)
            yield found

    def certificate(self, confidence: float | None, *, reserve: bool = False) -> ScoreCertificate:
        """Certify the incumbent of each metric."""
        found = {
            name: ladder.certificate(confidence, reserve=reserve)
            for name, ladder in self.ladders.items()
        }
        return ScoreCertificates.of(found)

    def estimate(self) -> Estimate:
        """Correct the score of the incumbent of each metric for its selection."""
        return Estimates.of({name: one.estimate() for name, one in self.ladders.items()})

    def reveal(self) -> float | None:
        """Refuse: each score that is shown is paid for."""
        return of_one_metric(self).reveal()

    def withdraw(self, number: int, reason: str) -> Withdrawn:
        """Refuse: a submission is withdrawn from one ladder."""
        return of_one_metric(self).withdraw(number, reason)

    def unsent(self, *, after: int, raw: bool, limit: int) -> Unsent:
        """Refuse: a tracker copies one ladder."""
        return of_one_metric(self).unsent(after=after, raw=raw, limit=limit)

    def _guards(self) -> dict[str, Guard]:
        """Return the guard of each ladder; the rows are in memory once."""
        lead = self.first.guard()
        for one in self.ladders.values():
            one.share(lead)
        return {name: one.guard() for name, one in self.ladders.items()}

    def _record(self, tx: Transaction, name: str) -> LadderRecord:
        one = self.ladders[name]
        return same_ladder(tx.ladder(one.id), one.since)

    # -- passing it around ------------------------------------------------------------

    def __deepcopy__(self, memo: Any) -> Self:
        # As of one ladder: copies of a search must go on with the same.
        return self

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.ladders,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeveralLadders) and self.ladders == other.ladders

    def __hash__(self) -> int:
        return hash(tuple(self.ladders.values()))

    def __repr__(self) -> str:
        return (
            f"SeveralLadders(ladders={[one.id for one in self.ladders.values()]}, "
            f"metrics={list(self.ladders)}, ledger={url_shown(self.first.ledger)!r})"
        )


def numbers_of(entry: Entry) -> Mapping[str, int]:
    """Return the number of a submission on each ladder that it went to, where there are several."""
    found = entry.context.get(TOGETHER)
    return found if isinstance(found, Mapping) else {}


def _measured(
    name: str, guard: Guard, predictions: Any, origin: Origin, order: NDArray[Any] | None
) -> Measured:
    with _named(name):
        return guard.measure(predictions, origin, order)


@contextmanager
def _named(metric: str) -> Iterator[None]:
    """Name the metric in a refusal of predictions."""
    try:
        yield
        return
    except InvalidSubmission as refused:
        argument, *rest = refused.args
        error = InvalidSubmission(f"{argument} for {metric!r}", *rest)
    raise error


def _judged(
    tx: Transaction,
    lead: LadderRecord,
    *,
    guards: Mapping[str, Guard],
    measured: Mapping[str, Measured],
) -> dict[str, Answer] | None:
    """Answer a submission by all metrics; None where labels were amended meanwhile.

    All ladders are read before the first of them is written to.
    """
    if any(guards[name].is_amended(tx, one) for name, one in measured.items()):
        return None
    names = {guard.ladder_id: name for name, guard in guards.items()}
    others = {one: [measured[name].asked] for one, name in names.items() if one != lead.id}
    records = {
        names[one.id]: same_ladder(one, guards[names[one.id]].since)
        for one in (lead, *tx.locked_ladders(others))
    }
    numbers = {name: one.submissions + 1 for name, one in records.items()}
    found = {}
    for name, one in measured.items():
        context = {**one.origin.context, TOGETHER: numbers}
        linked = replace(one, origin=replace(one.origin, context=context))
        found[name] = guards[name].judge(tx, records[name], linked)
    return found


def _second_column(predictions: Any, guard: Guard) -> Any:
    """Return the probabilities of the second class, which rank the rows as scores do."""
    if np.ndim(predictions) != 2:
        return predictions
    probabilities = get_metric("neg_brier_score")
    table = probabilities.canonical(predictions, guard.holdout.n, guard.holdout.classes)
    return table[:, 1]


def _values_of(predictions: Any) -> Any:
    return predictions.values if isinstance(predictions, Predictions) else predictions


def warn_of_labels(ladder: OpenLadder, predictions: Any) -> None:
    """Warn of labels where scores to rank by were wanted."""
    if not isinstance(ladder, SeveralLadders):
        warn_of_hard_labels(ladder.metric, values_of(predictions))
        return
    for name, (source, as_scores) in ladder._sources(predictions).items():
        if not as_scores:
            warn_of_hard_labels(ladder.ladders[name].metric, values_of(source))


def one_of(ladder: OpenLadder, metric: object) -> OpenLadder:
    """Return the ladder of a metric.

    Raises
    ------
    InvalidArgument
        There is no such metric.
    """
    if not ladder.by_metric and metric == ladder.metric.name:
        return ladder
    return of_metric(ladder.by_metric or {ladder.metric.name: ladder}, metric)


# -- registration ---------------------------------------------------------------------


def register(X: Any, y: ArrayLike, stated: HoldoutSettings) -> OpenLadder:
    """Find these rows and the stated ladders in the ledger, or start what is missing."""
    wishes, (X, _, hashes) = stated.ladders(), ids_of(X, stated.ids)
    with without_frames:
        rows = rows_of(X, y, stated.sample_weight)
        store = Ledger(resolve_url(stated.ledger), create=True)
        found = registration.open_rows(store, rows, hashes, wishes)
        ladders = list(local.with_rows(store, rows, found, stated))
    if not stated.several:
        return ladders[0]
    return SeveralLadders(dict(zip(metrics_of(stated.scoring), ladders, strict=True)))


def reopen(stated: HoldoutSettings, view: int | None = None) -> OpenLadder:
    """Go on with the ladders of a registered holdout, by what `LadderHoldout.open` takes."""
    scoring = stated.scoring
    if not stated.several:
        try:
            return local.reopen(stated, view)
        except (UnknownHoldout, InvalidArgument):  # it may be a name under which a metric is
            known = _known(stated)
            if not known:
                raise
    else:
        known = _known(stated)
    metrics = metrics_of(scoring) if stated.several else {}
    if isinstance(scoring, str | Metric):
        metrics = {scoring if isinstance(scoring, str) else scoring.name: scoring}
    unknown = [metric for metric in metrics if metric not in known]
    if unknown:
        raise UnknownHoldout(
            f"The ladder {stated.ladder!r} of account {stated.account!r} on {stated.name!r} has no "
            f"metric {', '.join(map(repr, unknown))}. "
            f"It has: {', '.join(map(repr, known)) or 'one'}."
        )
    ladders = {
        metric: local.reopen(
            replace(
                stated,
                # By its name here, which may not be the metric's own.
                scoring=None if metrics.get(metric) == metric else metrics.get(metric),
                ladder=f"{stated.ladder}{BETWEEN}{metric}",
            ),
            view,
        )
        for metric in metrics or known
    }
    if isinstance(scoring, str | Metric):
        (found,) = ladders.values()
        return found
    return SeveralLadders(ladders)


def _known(stated: HoldoutSettings) -> tuple[str, ...]:
    """Return the metrics under the name of a ladder; none where it is of one, or there is none."""
    name = text("name", stated.name)

    def look(tx: Transaction) -> tuple[str, ...]:
        holdout = registration.named(tx, name)
        if registration.find_ladder(tx, holdout, stated.account, stated.ladder) is not None:
            return ()
        return tuple(registration.ladders_named(tx, holdout, stated.account, stated.ladder))

    return Ledger(resolve_url(stated.ledger)).transact(look, Access.READ)
