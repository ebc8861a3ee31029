"""The certificate of a ladder: what the ledger holds is counted and brought to the bounds."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import inside
from ladderholdout.certificates import (
    NO_RANGES,
    Request,
    Transcript,
    assumptions_of,
    bound_of,
    certify,
    clipping_of,
    later_price,
)
from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.guard.certify.counting import (
    Bars,
    CountedLadder,
    bars_on,
    counted_ladders,
)
from ladderholdout.guard.certify.others import Others, others_of
from ladderholdout.guard.certify.widths import narrowed_by
from ladderholdout.guard.open_ladder import STATED_BY
from ladderholdout.guard.opening import Amended, amended_before
from ladderholdout.guard.query import LedgerLadder
from ladderholdout.guard.shown import (
    AN_OLDER_COPY,
    INDEPENDENT,
    ScoreCertificate,
    score_of,
    uncertified,
)
from ladderholdout.ledger.counts import Chosen, LadderQueries
from ladderholdout.ledger.events import Shown
from ladderholdout.ledger.fold import Improvement, LadderRecord
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric


@dataclass(frozen=True, slots=True)
class Level:
    """A confidence, and in nats what it costs that it was not the registered one."""

    confidence: float
    price: float = 0.0


def registered(tx: Transaction, ladder: LadderRecord) -> Level:
    """Return the level that the holdout of a ladder was registered with."""
    return Level(tx.holdout(ladder.holdout_id).confidence)


def level_of(ladder: LedgerLadder, confidence: float | None) -> Level:
    """Return the level of a confidence; one that is new is on record before anything is shown.

    Parameters
    ----------
    ladder : LedgerLadder
    confidence : float or None
        None for the registered one.

    Returns
    -------
    Level

    Raises
    ------
    InvalidArgument
        The confidence is refused.
    LedgerError
        The ledger cannot be written.
    """
    stated = None if confidence is None else inside("confidence", confidence)
    fixed, known = ladder.read(_confidences)
    if stated is None or stated == fixed.confidence:
        return fixed
    if stated not in known:
        known = ladder.write(partial(_note, stated=stated))
    return Level(stated, later_price(known.index(stated) + 1, stated))


def _confidences(tx: Transaction, ladder: LadderRecord) -> tuple[Level, tuple[float, ...]]:
    return registered(tx, ladder), tx.fold(ladder.holdout_id).confidences


def _note(tx: Transaction, ladder: LadderRecord, stated: float) -> tuple[float, ...]:
    if stated not in tx.hold(ladder.holdout_id).confidences:
        tx.note(ladder.holdout_id, "confidence", confidence=stated)
    return tx.fold(ladder.holdout_id).confidences


def price_of_others(
    tx: Transaction, holdout_id: int, lengths: Mapping[int, int]
) -> tuple[float, str | None]:
    """Return what holdouts that share rows had revealed at these lengths of their chains, in nats.

    Or why it cannot be counted.
    """
    others = others_of(tx, holdout_id, lengths)
    if not others.holdouts:
        return 0.0, None
    answered = tx.answered({one.holdout_id: lengths[one.holdout_id] for one in others.holdouts})
    used = (queries.ladder_id for queries in answered)
    bars = bars_on(tx, holdout_id)
    counted = counted_ladders(
        tx, holdout_id, used, lengths, frozenset(), others, bars, weighted=False
    )
    # Of the holdout's own ladders none is used.
    uncounted = (entry.uncounted() for entry in counted.values() if entry.grid is None)
    missing = others.missing or next(uncounted, None)
    if missing is not None:
        return 0.0, missing
    prices = (counted[queries.ladder_id].transcript(queries).length() for queries in answered)
    return sum(prices) + others.log_values, None


def no_certificate(confidence: float) -> ScoreCertificate:
    """Return that of a handle that cannot compute one."""
    reason = (
        "the holdout's rows, whose weights count, or the function of a metric of your own, "
        "are missing; open it with them, LadderHoldout(X, y, scoring=...)"
    )
    return uncertified(reason, confidence)


def certificate_or_why(
    ladder: LedgerLadder,
) -> Callable[[Transaction, LadderRecord], ScoreCertificate]:
    """Return what certifies for the status, which is shown whatever the vault holds."""
    try:
        weights = ladder.guard().part.weights
    except (VaultError, InvalidArgument):
        return lambda tx, record: no_certificate(registered(tx, record).confidence)
    metric = ladder.metric
    return lambda tx, record: certificate_of(tx, record, metric, weights)


def certificate_of(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    weights: NDArray[np.float64] | None,
    level: Level | None = None,
    bars: Bars | None = None,
) -> ScoreCertificate:
    """Certify the released score of a ladder.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord
    metric : Metric
    weights : ndarray, shape (n,), or None
        Of the holdout's rows.
    level : Level, optional
        A confidence, and what it costs; by default the registered one.
    bars : mapping, optional
        What `bars_on` read already, where several ladders of a holdout are certified.

    Returns
    -------
    ScoreCertificate
        Where there is none, it contains the reason.
    """
    selection = selection_of(tx, ladder, metric, weights, level, bars)
    if isinstance(selection, ScoreCertificate):
        return selection
    return selection.certificate(selection.recorded(tx))


def certificates_alike(
    tx: Transaction,
    ladders: Sequence[LadderRecord],
    latest: LadderRecord,
    metric: Metric,
    weights: NDArray[np.float64] | None,
    level: Level,
    bars: Bars,
) -> list[ScoreCertificate] | None:
    """Certify the incumbents of many ladders of a holdout at the price of the latest of them.

    What had been released when the latest one was chosen goes on from what had been released
    when any other was, and the code of what goes on is not shorter: so none of them is narrower
    than its own, and one transcript is counted in place of one for each
    (docs/background/leaderboards.md, many accounts).

    Returns
    -------
    list of ScoreCertificate or None
        None where that does not hold: where requests are counted, or places of batches whose
        size was not announced.
    """
    selection = selection_of(tx, latest, metric, weights, level, bars)
    if isinstance(selection, ScoreCertificate):
        return None
    transcript = selection.transcript
    if transcript.on_request or transcript.size is None:
        return None
    # Any of them may have been a member of the largest batch.
    sizes = tx.fold(latest.holdout_id).sizes.values()
    transcript = replace(transcript, place=1, size=max(transcript.size, *sizes, 1))
    alone = Transcript.alone()
    alike = replace(alone, shown=transcript.log_count() - alone.log_count())
    selection = replace(selection, transcript=alike)
    known: dict[float, ScoreCertificate] = {}
    certificates = []
    for ladder in ladders:
        risk = float(ladder.state["standing"])
        if risk not in known:
            own = replace(selection, ladder=ladder, score=metric.to_score(risk))
            known[risk] = own.certificate(None)
        certificates.append(replace(known[risk], submission=ladder.incumbent))
    return certificates


@dataclass(frozen=True, slots=True)
class Selection:
    """How an incumbent was selected, and what its certificate is made of beside its predictions.

    Attributes
    ----------
    ladder : LadderRecord
    metric : Metric
    weights : ndarray, shape (n,), or None
        Of the rows that the ladder measures.
    level : Level
    score : float
        The released score.
    transcript : Transcript
    counted : mapping of int to CountedLadder
    amended : Amended
    way : str
        What a reason adds about the reserve, if there is one.
    chosen : Chosen
    doubts : tuple of str
        As `doubts_about` returns them.
    requested : Requested or None
        The request for the score, where one is counted.
    estimand : {"rows", "groups"} or None
        Which mean it is of, where whole groups of rows were drawn.
    """

    ladder: LadderRecord
    metric: Metric
    weights: NDArray[np.float64] | None
    level: Level
    score: float
    transcript: Transcript
    counted: Mapping[int, CountedLadder]
    amended: Amended
    way: str
    chosen: Chosen
    doubts: tuple[str, ...]
    requested: Requested | None = None
    estimand: str | None = None

    def refused(self, reason: str) -> ScoreCertificate:
        """Return that there is no certificate."""
        return uncertified(reason, self.level.confidence, self.ladder.incumbent, self.score)

    def recorded(self, tx: Transaction) -> Shown | None:
        """Return the certificate of this incumbent at this confidence that was shown, if any."""
        asked = self.ladder.id, self.ladder.incumbent, self.level.confidence
        for shown in tx.fold(self.ladder.holdout_id).shown_of("interval"):
            if (shown.ladder, shown.submission, shown.confidence) == asked:
                return shown
        return None

    def certificate(self, recorded: Shown | None) -> ScoreCertificate:
        """Return the certificate on record, else that by the score alone, or why there is none."""
        if recorded is not None:
            return self.shown(recorded)
        is_exact = self.metric.is_mean and self.metric.released_range is not None
        if is_exact and self.estimand is None:
            return self.by_score()
        return self.refused(
            self._why_not_by_rows()
            or "it depends on more than the released score: certificate() works it out, puts it on "
            "record and shows it, and certificates of later incumbents pay for that"
        )

    def shown(self, record: Shown) -> ScoreCertificate:
        """Return a certificate as it was shown before."""
        level = record.confidence
        assert level is not None
        log_level = math.log1p(-level) - record.log_count - math.log(2.0)
        n = self.counted[self.ladder.id].n
        low, high = ends_of(record)
        clipped = record.more["clipped"] and tuple(record.more["clipped"])
        return ScoreCertificate(
            score=self.score,
            low=low,
            high=high,
            confidence=level,
            submission=record.submission,
            bound=record.bound,
            log_count=record.log_count,
            assumptions=assumptions_of(
                self.metric,
                batch=record.more["place"] > 1,
                estimand=self.estimand,
            ),
            price=self.level.price,
            doubts=self.doubts,
            clipping=clipping_of(self.metric, clipped, n),
            clipped=clipped,
            advice=narrowed_by(self.metric, self.score, (low, high), n, log_level),
            mean_over=self.estimand,
        )

    @property
    def by_rows(self) -> bool:
        """Whether the certificate is worked out from the rows, and not the score alone."""
        # The released score does not show how the errors lie in the groups.
        depends = not self.metric.counts or self.estimand is not None
        return depends and self._why_not_by_rows() is None

    def _why_not_by_rows(self) -> str | None:
        metric = self.metric
        bound = bound_of(metric, grouped=self.estimand is not None)
        if isinstance(bound, str):
            if "custom" in self.ladder.settings.metric_settings:
                bound += ", or its function was not stated again (scoring=)"
            return bound + self.way
        if bound.needs_ranges and metric.target_range is None:
            return NO_RANGES + self.way
        if self.weights is not None:
            return f"no bound of {metric.name} is known for rows with weights{self.way}"
        if self.amended.count:
            return (
                "labels were amended before the incumbent was submitted, which the bound of "
                f"{metric.name} cannot allow for{self.way}"
            )
        return None

    def by_score(self) -> ScoreCertificate:
        """Certify a bounded mean by the released score alone."""
        own, released = self.counted[self.ladder.id], self.ladder.state["standing"]
        assert own.rule is not None and own.least is not None
        metric, level, unit = self.metric, self.level, self.ladder.settings.unit or 1.0
        risks = self.amended.around((released - own.least) / unit)
        by_risk = {
            risk: certify(
                risk,
                own.n,
                self.transcript,
                confidence=level.confidence,
                rounding=own.rounding(released),
                noise=own.rule.allowance if own.rule.noisy else None,
                binary=metric.counts,
                weights=self.weights,
                price=level.price,
            )
            for risk in set(risks)
        }
        least, middle, most = map(by_risk.__getitem__, risks)
        return ScoreCertificate(
            score=metric.to_score(released),
            low=metric.to_score(own.least + unit * most.high),
            high=metric.to_score(own.least + unit * least.low),
            confidence=middle.confidence,
            submission=self.ladder.incumbent,
            bound=middle.bound,
            log_count=middle.log_count,
            assumptions=(*middle.assumptions, *self.amended.assumptions()),
            price=level.price,
            doubts=self.doubts,
        )


def ends_of(shown: Shown) -> tuple[float, float]:
    """Return the ends of an interval that was shown; an infinite one is on record as None."""
    return (
        -math.inf if shown.low is None else shown.low,
        math.inf if shown.high is None else shown.high,
    )


def selection_of(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    weights: NDArray[np.float64] | None,
    level: Level | None = None,
    bars: Bars | None = None,
) -> Selection | ScoreCertificate:
    """Return what is known about the incumbent of a ladder, or why it cannot be certified."""
    level = registered(tx, ladder) if level is None else level
    chosen, confidence = tx.chosen(ladder), level.confidence
    if chosen is None:
        return uncertified("the ladder has no incumbent yet", confidence)
    known, position = tx.fold(ladder.holdout_id), chosen.own.position
    score = score_of(ladder.released, metric)
    bars = bars_on(tx, ladder.holdout_id) if bars is None else bars
    others = others_of(tx, known.id, tx.lengths_at(known.id, position))
    used = (queries.ladder_id for queries in chosen.ladders)
    weighted, by_then = weights is not None, known.revealed(position)
    counted = counted_ladders(
        tx, known.id, used, chosen.lengths, by_then, others, bars, weighted=weighted
    )
    kept = tx.holdout(known.id).n_reserve > 0
    way = "; reserve_certificate() queries the reserve" if kept else ""
    missing = _missing(tx, ladder, position, others, counted, way)
    if score is None and missing is None:
        missing = "it would show the released score; reveal does, when the search is over"
    if missing is not None:
        return uncertified(missing, confidence, ladder.incumbent, score)
    assert score is not None
    alone, batch = chosen.own.batch is None, chosen.own.batch
    event = 1 + chosen.runs
    for ladder_id, improved_alone, queries in chosen.events:
        event += queries if counted[ladder_id].discloses else improved_alone
    improved = [one for queries in chosen.ladders for one in queries.improved]
    on_request = not tx.ladders(known.id)[0].settings.shows_scores
    requested = _requested(tx, ladder, bars, weighted=weighted) if on_request else None
    size = 1 if alone else chosen.own.size
    own = {ladder.id: position} if alone else {}
    transcript = Transcript(
        chosen.before,
        min(chosen.place, size or chosen.place),  # repeats have a place as well
        tuple(
            counted[queries.ladder_id].transcript(queries, own.get(queries.ladder_id))
            for queries in chosen.ladders
            if queries.count
        ),
        others.log_values + sum(known.prices(position)),
        size,
        event,
        _orders(tx, chosen.lengths, (one for one in improved if one.batch != batch)),
        on_request,
        None if requested is None else requested.request,
    )
    amended = amended_before(tx, known.id, position, weights)
    return Selection(
        *(ladder, metric, weights, level, score, transcript, counted, amended, way, chosen),
        *(doubts_about(tx, known.id), requested, tx.holdout(known.id).estimand),
    )


@dataclass(frozen=True, slots=True)
class Requested:
    """The request for the incumbent's score, with the queries that are counted for it."""

    request: Request
    queries: tuple[LadderQueries, ...]
    counted: Mapping[int, CountedLadder]


def _requested(
    tx: Transaction, ladder: LadderRecord, bars: Bars, *, weighted: bool
) -> Requested | None:
    """Return the request for the incumbent's score; None where what came before is not counted."""
    position, known = ladder.revealed.get(ladder.incumbent or 0), tx.fold(ladder.holdout_id)
    if position is None:
        return None
    before = known.revealed(position)
    lengths = {known.id: position, **tx.lengths_at(known.id, position)}
    others = others_of(tx, known.id, lengths)
    queries = tuple(one for one in tx.answered(lengths) if one.count)
    used = (one.ladder_id for one in queries)
    counted = counted_ladders(tx, known.id, used, lengths, before, others, bars, weighted=weighted)
    if _missing(tx, ladder, position, others, counted, "") is not None:
        return None
    request = Request(
        len(before) + 1,
        tuple(counted[one.ladder_id].transcript(one) for one in queries),
        others.log_values + sum(known.prices(position)),
        _orders(tx, lengths, (record for one in queries for record in one.improved)),
    )
    return Requested(request, queries, counted)


def shown_beside(tx: Transaction, ladder: LadderRecord) -> float:
    """Return what was shown of the rows beside the decisions of a gate, in nats."""
    length = shown_by_now(tx, ladder, but_decisions=True)
    return math.inf if isinstance(length, str) else length


def shown_by_now(
    tx: Transaction, ladder: LadderRecord, *, but_decisions: bool = False
) -> float | str:
    """Return what was shown of a ladder's rows by now, in nats, or why that cannot be counted."""
    known, lengths = tx.fold(ladder.holdout_id), tx.lengths(ladder.holdout_id)
    others = others_of(tx, known.id, lengths)
    bars = bars_on(tx, known.id)
    queries = tuple(one for one in tx.answered(lengths) if one.count)
    used = (one.ladder_id for one in queries)
    counted = counted_ladders(
        tx, known.id, used, lengths, known.revealed(), others, bars, weighted=False
    )
    missing = _missing(tx, ladder, sys.maxsize, others, counted, "")
    if missing is not None:
        return missing
    length = others.log_values + sum(known.prices())
    own = ladder.id if but_decisions else None
    for one in queries:
        flags, values = counted[one.ladder_id].transcript(one).lengths()
        length += values if one.ladder_id == own else flags + values
    improved = (record for one in queries for record in one.improved)
    beside = (record for record in improved if record.ladder_id != own)
    return length + _orders(tx, lengths, beside)


def _orders(tx: Transaction, lengths: Mapping[int, int], improved: Iterable[Improvement]) -> float:
    """Return what was shown by which members of announced batches were judged first, in nats."""
    batches = [(one.ladder_id, one.batch) for one in improved if one.batch is not None]
    if not batches:
        return 0.0
    members = tx.members(lengths)
    return sum(math.log(members.get(batch, 1)) for batch in batches)


def doubts_about(tx: Transaction, holdout_id: int) -> tuple[str, ...]:
    """Return which assumptions of a certificate are in doubt by what is on record."""
    signs = tx.fold(holdout_id).grouped() if tx.holdout(holdout_id).estimand is None else ()
    states = all(STATED_BY in sign for sign in signs)
    return (INDEPENDENT + " (which an account states)" * states,) if signs else ()


def _missing(
    tx: Transaction,
    ladder: LadderRecord,
    position: int,
    others: Others,
    counted: Mapping[int, CountedLadder],
    way: str,
) -> str | None:
    """Return why what was released cannot be counted, if so, and what can be done about it."""
    known = tx.fold(ladder.holdout_id)
    opened = (one.opened_at for one in known.ladders.values() if one.opened_at is not None)
    if any(at < position for at in opened):
        return (
            "an audit had shown raw scores of this holdout before the incumbent was submitted" + way
        )
    if any(restored < position for restored, _ in known.restored):
        return AN_OLDER_COPY
    if others.missing is not None:
        # What was revealed of the others may be of the reserve's rows, too.
        return f"{others.missing} before the incumbent was submitted"
    for entry in counted.values():
        if entry.grid is None:
            return entry.uncounted() + ("" if entry.of else way)
    return None
