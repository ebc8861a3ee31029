"""`SeveralLadders`: a ladder for each of several metrics on one holdout, queried together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import text
from ladderholdout.errors import InvalidArgument, InvalidSubmission, UnknownHoldout
from ladderholdout.guard import ladder as local
from ladderholdout.guard.certify import certificate_or_why
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.open_ladder import (
    FreshRows,
    OpenLadder,
    Origin,
    Predictions,
    of_one_metric,
    transformed,
)
from ladderholdout.guard.opening import (
    BETWEEN,
    HoldoutSettings,
    are_named,
    groups_of,
    ids_of,
    metrics_of,
    registration,
    rows_of,
    values_of,
    warn_of_hard_labels,
)
from ladderholdout.guard.query import Answer, Guard, Measured, announce, note_shown, settle
from ladderholdout.guard.shown import (
    TOGETHER,
    Estimate,
    Release,
    ScoreCertificate,
    Status,
    Submission,
    of_metric,
    status_of,
    submission_of,
    together,
)
from ladderholdout.ledger.events import Submitted
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.place import Access, resolve_url
from ladderholdout.ledger.place import shown as url_shown
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import Transaction, same_ladder
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


class _OfOneMetric:
    """What is asked of one ladder alone, and refused here with the way to name that ladder.

    Early stopping goes by one metric, a score that is shown is paid for, a submission is
    withdrawn from one ladder, and a tracker copies one.
    """

    def __get__(self, several: SeveralLadders, owner: object = None) -> Any:
        return of_one_metric(several)


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
    facts = _OfFirst()
    verified = _OfFirst()
    state = _OfFirst()
    rows = _OfFirst()
    note = _OfFirst()
    retire = _OfFirst()
    forget = _OfFirst()
    alone = _OfFirst()
    compare = _OfOneMetric()
    decide = _OfOneMetric()
    submit_rounds = _OfOneMetric()
    reveal = _OfOneMetric()
    withdraw = _OfOneMetric()
    unsent = _OfOneMetric()

    # -- queries ----------------------------------------------------------------------

    def submit(self, predictions: Any, origin: Origin) -> Release:
        """Submit `Predictions`, or what a caller gives, to all ladders in one transaction.

        One array where all metrics take it, else a mapping by metric or by response.
        """
        settle()
        with without_frames:
            return self._submit([predictions], [origin])[0]

    def submit_batch(
        self, batch: str, predictions: Sequence[Predictions], origins: Sequence[Origin]
    ) -> tuple[Release, ...]:
        """Submit a batch, all of which is here before any of it is answered."""
        settle()
        with without_frames:
            return self._submit(predictions, local.in_batch(batch, origins))

    def _submit(self, predictions: Sequence[Any], origins: Sequence[Origin]) -> tuple[Release, ...]:
        """Submit to all ladders in one transaction."""
        guards = self._guards()
        placed = [self._given(values, guards) for values in predictions]
        lead = next(iter(guards.values()))
        # A rule may measure once more, with other weights, so it steps under this as well.
        with without_autologging():
            while True:
                # All of it before anything is written: what one metric refuses goes to none.
                measured: dict[str, list[Measured]] = {name: [] for name in guards}
                for (given, order), origin in zip(placed, origins, strict=True):
                    for number, (name, guard) in enumerate(guards.items(), 1):
                        with _named(name):
                            own = self._origin_on(origin, number)
                            measured[name].append(guard.measure(given[name], own, order))
                answers = lead.ledger.write_to(
                    lead.ladder_id,
                    lead.since,
                    partial(_judged, guards=guards, measured=measured),
                    asked=[measured[next(iter(guards))][0].asked],
                )
                if answers is not None:
                    break
                for guard in guards.values():
                    guard.reload()
        releases = {name: map(guard.take_note, answers[name]) for name, guard in guards.items()}
        return tuple(
            together(dict(zip(releases, each, strict=True)))
            for each in zip(*releases.values(), strict=True)
        )

    def _given(
        self, predictions: Any, guards: Mapping[str, Guard]
    ) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """Return predictions for each metric, and the order of the rows that they are in."""
        if isinstance(predictions, Predictions):
            if predictions.placed:
                return predictions.values, None
            predictions = predictions.values
        return self._placed(predictions, guards)

    def _origin_on(self, origin: Origin, number: int) -> Origin:
        """Return the origin on one of the ladders, whose places in a batch are its own.

        A place in a batch represents one model and one metric: so the price of a place pays for
        the choice of both.
        """
        if origin.place is None:
            return origin
        return replace(origin, place=(origin.place - 1) * len(self.ladders) + number)

    def fix(self, predictions: Any) -> Predictions:
        """Read predictions once, and return them as nobody can change them; or refuse them."""
        with without_frames:
            guards, placed = self._guards(), are_named(predictions)
            if isinstance(predictions, Predictions):
                given, placed = predictions.values, predictions.placed
            else:
                given, _ = self._placed(predictions, guards)
            fixed = {}
            for name, guard in guards.items():
                n, classes = guard.holdout.n, guard.holdout.classes
                with _named(name), without_autologging():
                    aligned = guard.metric.canonical(given[name], n, classes)
                    fixed[name] = guard.metric.as_submitted(aligned, classes)
            return Predictions(fixed, placed)

    def predict(self, estimator: Any, steps: tuple[Any, ...] = ()) -> Predictions:
        """Return what an estimator predicts on the rows, by metric; it is asked once for each."""
        with without_frames:
            lead, guards = self.first.guard(), self._guards()
            lead.check_rows()
            with without_autologging():
                X = transformed(lead.rows.X, steps)
                answers: dict[Any, Any] = {}
                by_name = {
                    name: guard.metric.respond(estimator, X, lead.holdout.classes, answers)
                    for name, guard in guards.items()
                }
                return Predictions(by_name, True)

    def _placed(
        self, predictions: Any, guards: Mapping[str, Guard]
    ) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """Return the predictions for each metric in the order of the rows, and that order."""
        sources, order = self.sources(predictions), self.first.order
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

    def sources(self, predictions: Any) -> dict[str, tuple[Any, bool]]:
        """Return what was given for each metric, and whether its second column is meant."""
        responses = {name: ladder.metric.response for name, ladder in self.ladders.items()}
        if not isinstance(predictions, Mapping):
            kinds = set(responses.values())
            if len(kinds) > 1 and kinds != {"probabilities", "scores"}:
                raise _refusal(responses, "one array")
            kind = "probabilities" if len(kinds) > 1 else kinds.pop()
            predictions = {kind: predictions}
        if set(predictions) == set(responses):
            return {name: (predictions[name], False) for name in responses}
        if not set(predictions) <= set(_RESPONSES):
            raise _refusal(responses, f"a mapping with {', '.join(map(repr, predictions))}")
        sources, used = {}, set()
        for name, response in responses.items():
            # The score of an estimator without a decision function is the same.
            as_scores = response == "scores" and response not in predictions
            source = "probabilities" if as_scores else response
            if source not in predictions:
                lacking = source if source in responses.values() else response
                raise _refusal(responses, f"a mapping without {lacking!r}")
            sources[name] = predictions[source], as_scores
            used.add(source)
        unused = set(predictions) - used
        if unused:
            more = ", ".join(map(repr, sorted(unused)))
            raise _refusal(responses, f"a mapping with {more} as well")
        return sources

    # -- what is shown ----------------------------------------------------------------

    def status(self, *, shown: bool = True) -> Status:
        """Return the released scores and what queried the holdout, all of one moment."""
        if shown:
            note_shown()
        url = url_shown(self.first.ledger)
        certify = {name: certificate_or_why(ladder) for name, ladder in self.ladders.items()}

        def read(tx: Transaction, _: LadderRecord) -> dict[str, Status]:
            statuses = {}
            for name, ladder in self.ladders.items():
                record = same_ladder(tx.ladder(ladder.id), ladder.since)
                certified = certify[name](tx, record)
                statuses[name] = status_of(tx, record, ladder.metric, certified, url)
            return statuses

        return together(self.first.read(read))

    def history(
        self, after: int, limit: int | None, *, search: str | None = None, shown: bool = True
    ) -> tuple[Submission, ...]:
        """Return the submissions after a number of the first metric, each with all metrics."""

        def read(tx: Transaction, record: LadderRecord) -> tuple[Submission, ...]:
            entries = tx.entries(record.id, after=after, limit=limit, search=search)
            return tuple(map(together, self._beside(tx, record, entries)))

        return self.first.read(read, shown=shown)

    def _beside(
        self, tx: Transaction, first: LadderRecord, entries: Sequence[Submitted]
    ) -> Iterator[dict[str, Submission]]:
        """Add to entries of the first ladder those of the same submissions on the others."""
        lead, *others = self.ladders
        known: dict[str, dict[int, Submitted]] = {}
        for name in others:
            numbers = [n for entry in entries if (n := _numbers(entry).get(name)) is not None]
            if numbers:
                start, most = min(numbers) - 1, max(numbers) - min(numbers) + 1
                read = tx.entries(self.ladders[name].id, after=start, limit=most)
                known[name] = {entry.number: entry for entry in read}
        for entry in entries:
            submissions = {lead: submission_of(entry, first, self.first.metric)}
            for name, by_number in known.items():
                number = _numbers(entry).get(name)
                if number in by_number:
                    ladder = self.ladders[name]
                    record = tx.ladder(ladder.id)
                    submissions[name] = submission_of(by_number[number], record, ladder.metric)
            yield submissions

    def certificate(self, confidence: float | None, *, reserve: bool = False) -> ScoreCertificate:
        """Certify the incumbent of each metric."""
        ladders = self.ladders.items()
        return together(
            {name: ladder.certificate(confidence, reserve=reserve) for name, ladder in ladders}
        )

    def estimate(self) -> Estimate:
        """Correct the score of the incumbent of each metric for its selection."""
        return together({name: ladder.estimate() for name, ladder in self.ladders.items()})

    def replenish(self, fresh: FreshRows) -> SeveralLadders:
        """Let fresh rows take the place of these; return the ladders that follow these."""
        following = local.replenished(list(self.ladders.values()), fresh)
        return SeveralLadders(dict(zip(self.ladders, following, strict=True)))

    def _guards(self) -> dict[str, Guard]:
        """Return the guard of each ladder; the rows are in memory once."""
        lead = self.first.guard()
        for ladder in self.ladders.values():
            ladder.share(lead)
        return {name: ladder.guard() for name, ladder in self.ladders.items()}

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
            f"SeveralLadders(ladders={[ladder.id for ladder in self.ladders.values()]}, "
            f"metrics={list(self.ladders)}, ledger={url_shown(self.first.ledger)!r})"
        )


def _refusal(responses: Mapping[str, str], came: str) -> InvalidSubmission:
    """Return the refusal of predictions that are not what the metrics take."""
    metrics = ", ".join(f"{name!r} takes {kind}" for name, kind in responses.items())
    kinds = dict.fromkeys(responses.values())
    if "probabilities" in kinds:  # which serve where scores are asked for
        kinds.pop("scores", None)
    wanted = ", ".join(f"{kind!r}: ..." for kind in kinds)
    return InvalidSubmission(
        "predictions",
        f"given for each of the metrics ({metrics})",
        came,
        f"Submit {{{wanted}}}, or an estimator: holdout.submit(model).",
    )


def _numbers(entry: Submitted) -> Mapping[str, int]:
    """Return the number of a submission on each ladder that it went to, where there are several."""
    numbers = entry.context.get(TOGETHER)
    return numbers if isinstance(numbers, Mapping) else {}


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
    measured: Mapping[str, Sequence[Measured]],
) -> dict[str, list[Answer]] | None:
    """Answer submissions by all metrics; None where labels were amended meanwhile.

    All ladders are read before the first of them is written to.
    """
    version = tx.hold(lead.holdout_id).labels_version
    if any(sets[0].labelled.version != version for sets in measured.values()):
        return None
    names = {guard.ladder_id: name for name, guard in guards.items()}
    for number, name in names.items():
        if number != lead.id and not tx.db.answers_at_once:
            tx.send_ahead(number, measured[name][0].asked)
    records = {
        name: same_ladder(tx.ladder(number), guards[name].since) for number, name in names.items()
    }
    first = measured[names[lead.id]]
    # Each ladder numbers the members of an announced batch in an order of its own.
    judged = {
        name: guard.best_first(tx, records[name], measured[name]) for name, guard in guards.items()
    }
    size = sum(size for _, size in judged.values())
    announce(tx, records[names[lead.id]], first[0].origin, size)
    orders = {name: order for name, (order, _) in judged.items()}
    numbers = [
        {name: records[name].submissions + 1 + orders[name].index(place) for name in records}
        for place in range(len(first))
    ]
    return {
        name: guards[name].judge_all(
            tx,
            records[name],
            [
                replace(member, origin=linked(member.origin, numbers[place]))
                for place, member in enumerate(members)
            ],
            orders[name],
        )
        for name, members in measured.items()
    }


def linked(origin: Origin, numbers: Mapping[str, int]) -> Origin:
    """Return the origin of a submission with its numbers on the ladders of all metrics."""
    return replace(origin, context={**origin.context, TOGETHER: numbers})


def _second_column(predictions: Any, guard: Guard) -> Any:
    """Return the probabilities of the second class, which rank the rows as scores do."""
    if np.ndim(predictions) != 2:
        return predictions
    probabilities = get_metric("neg_brier_score")
    table = probabilities.canonical(predictions, guard.holdout.n, guard.holdout.classes)
    return table[:, guard.metric.positive_place(guard.holdout.classes)]


def warn_of_labels(ladder: OpenLadder, predictions: Any) -> None:
    """Warn of labels where scores to rank by were wanted."""
    if not isinstance(ladder, SeveralLadders):
        warn_of_hard_labels(ladder.metric, values_of(predictions))
        return
    for name, (source, as_scores) in ladder.sources(predictions).items():
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
    X, groups = groups_of(X, stated.groups)
    with without_frames:
        rows = rows_of(X, y, stated.sample_weight)
        store = Ledger(resolve_url(stated.ledger), create=True)
        found = registration.open_rows(store, rows, hashes, wishes, groups)
        ladders = list(local.with_rows(store, rows, found, stated))
    if not stated.several:
        return ladders[0]
    return SeveralLadders(dict(zip(metrics_of(stated.scoring), ladders, strict=True)))


def reopen(stated: HoldoutSettings, view: int | None = None) -> OpenLadder:
    """Go on with the ladders of a registered holdout, by what `LadderHoldout.open` takes."""
    scoring = stated.scoring
    if not stated.several:
        try:
            return local.reopen_ladder(stated, view)
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
        metric: local.reopen_ladder(
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
