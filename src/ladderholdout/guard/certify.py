"""The certificate of a ladder: what was counted is brought to the bounds, with its bill."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ladderholdout.arguments import inside
from ladderholdout.certificates import metric_limits, score_intervals
from ladderholdout.certificates import transcript as transcripts
from ladderholdout.certificates.advice import narrowed_by
from ladderholdout.certificates.codes import event_length
from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.guard import counting, rows, submit
from ladderholdout.guard.certificate import INDEPENDENT, Later, ScoreCertificate, uncertified
from ladderholdout.ledger.events import Shown
from ladderholdout.ledger.fold import LadderRecord
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.limits.betting import Limits
from ladderholdout.mechanisms import Evidence, Mechanism, SimplifiedLadder
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scores import zero_one

# Steps of the rules that are tried on what was released.
_STEPS = (0.01, 0.03)
_LEAST = 0.05
# How items of other ladders begin.
_OF_OTHERS = "what others were shown: "


def level_of(ladder: submit.LedgerLadder, confidence: float | None) -> float:
    """Return the confidence to certify at; a new one is on record before anything is shown.

    Parameters
    ----------
    ladder : submit.LedgerLadder
    confidence : float or None
        None for the registered one.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgument
        The confidence is refused.
    LedgerError
        The ledger cannot be written.
    """
    stated = None if confidence is None else inside("confidence", confidence)

    def is_new(tx: Transaction, record: LadderRecord) -> bool:
        return stated not in (None, registered(tx, record), *tx.fold(record.holdout_id).confidences)

    def note(tx: Transaction, record: LadderRecord) -> None:
        if is_new(tx, record):
            tx.note(record.holdout_id, "confidence", confidence=stated)

    if stated is None:
        return ladder.read(registered)
    if ladder.read(is_new):
        ladder.write(note)
    return stated


def registered(tx: Transaction, ladder: LadderRecord) -> float:
    """Return the confidence that the holdout of a ladder was registered with."""
    return tx.holdout(ladder.holdout_id).confidence


def price_of(tx: Transaction, ladder: LadderRecord, confidence: float) -> float:
    """Return what a confidence costs that was not the registered one, in nats."""
    if confidence == registered(tx, ladder):
        return 0.0
    number = tx.fold(ladder.holdout_id).confidences.index(confidence) + 1
    return transcripts.later_price(number, confidence)


def guard_if_here(ladder: submit.LedgerLadder) -> submit.Guard | None:
    """Return what holds the rows of a ladder; None if this process cannot have them.

    Nor are they of use if the function of a metric of the user's own was not stated again.
    """
    try:
        return ladder.guard()
    except (VaultError, InvalidArgument):
        return None


def certificate_of(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    guard: submit.Guard | None,
    confidence: float | None = None,
    bars: counting.Bars | None = None,
) -> ScoreCertificate:
    """Certify the released score of a ladder, as far as it is on record or follows from it.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord
    metric : Metric
        That of the handle, whose function may be missing.
    guard : submit.Guard or None
        What holds the rows, whose weights count; None where they are missing.
    confidence : float, optional
        By default the registered one.
    bars : mapping, optional
        What `bars_on` read already, where several ladders of a holdout are certified.

    Returns
    -------
    ScoreCertificate
        Where there is none, it contains the reason.
    """
    selection = selection_of(tx, ladder, metric, guard, confidence, bars)
    return selection if isinstance(selection, ScoreCertificate) else selection.certificate()


def certificates_of(
    tx: Transaction,
    ladders: Sequence[LadderRecord],
    metric: Metric,
    guard: submit.Guard | None,
    confidence: float,
    latest: LadderRecord | None,
) -> list[ScoreCertificate]:
    """Certify the incumbents of many ladders of a holdout: each by itself, or at one price.

    Parameters
    ----------
    tx : Transaction
    ladders : sequence of LadderRecord
    metric, guard, confidence
        As for `certificate_of`.
    latest : LadderRecord or None
        That whose incumbent is the latest, at whose price all are certified if that is right:
        unless requests are counted, or places of batches whose size was not known. What had
        been released when it was chosen goes on from what had been released when any other was,
        and the code of what goes on is not shorter: so none of them is narrower than its own, and
        one transcript is counted in place of one for each (docs/background/leaderboards.md, many
        accounts).
    """
    bars = counting.bars_on(tx, ladders[0].holdout_id) if ladders else {}
    stated = metric, guard, confidence, bars
    selection = None if latest is None else selection_of(tx, latest, *stated)
    sizes = [it.chosen.size if it.chosen.batch else 1 for it in ladders if it.chosen is not None]
    if not isinstance(selection, Selection) or None in sizes or selection.transcript.on_request:
        return [certificate_of(tx, ladder, *stated) for ladder in ladders]
    # Any of them may have been a member of the largest batch.
    of, announced = selection.transcript, tx.fold(selection.ladder.holdout_id).sizes.values()
    places = math.log(max(*filter(None, sizes), *announced, 1)) - math.log(of.size or 1)
    alone = transcripts.Transcript.alone()
    alike = replace(alone, shown=of.log_count() + places - alone.log_count())
    selection = replace(selection, transcript=alike, recorded=None)
    known: dict[float, ScoreCertificate] = {}
    certificates = []
    for ladder in ladders:
        risk = float(ladder.state["standing"])
        if risk not in known:
            score = metric.to_score(risk)
            known[risk] = replace(selection, ladder=ladder, score=score).certificate()
        certificates.append(replace(known[risk], submission=ladder.incumbent))
    return certificates


@dataclass(frozen=True, slots=True)
class Selection:
    """How an incumbent was selected, and what its certificate is made of beside its predictions.

    Attributes
    ----------
    ladder : LadderRecord
    metric : Metric
    guard : submit.Guard
    confidence : float
    price : float
        What the confidence costs, in nats.
    score : float
        The released score.
    estimand : str or None
        Which mean it is of, where whole groups of rows were drawn.
    transcript : Transcript
    moment : counting.Moment
        What had been shown when it was chosen.
    requested : counting.Moment or None
        What had been shown when its score was requested, if it was.
    amended : rows.Amended
    recorded : Shown or None
        The certificate of this incumbent at this confidence that was shown, if any.
    way : str
        What a reason adds about the reserve, if there is one.
    doubts : tuple of str
        As `doubts_about` returns them.
    """

    ladder: LadderRecord
    metric: Metric
    guard: submit.Guard
    confidence: float
    price: float
    score: float
    estimand: str | None
    transcript: transcripts.Transcript
    moment: counting.Moment
    requested: counting.Moment | None
    amended: rows.Amended
    recorded: Shown | None
    way: str
    doubts: tuple[str, ...]

    @property
    def own(self) -> counting.CountedLadder:
        """The ladder itself, as it is counted."""
        return self.moment.ladders[self.ladder.id]

    def certificate(self) -> ScoreCertificate:
        """Return the certificate on record, else that by the score alone, or why there is none."""
        metric, clipping, advice = self.metric, "", ""
        if self.recorded is not None:
            limits, n, of = limits_of(self.recorded), self.own.n, self.estimand
            batch = self.recorded.more["place"] > 1
            assumptions = score_intervals.assumptions_of(metric, batch=batch, estimand=of)
            clipping = score_intervals.clipping_of(metric, limits.clipped, n)
            log_level = math.log1p(-self.confidence) - limits.log_count - math.log(2.0)
            advice = narrowed_by(metric, self.score, (limits.low, limits.high), n, log_level)
        elif metric.is_mean and metric.released_range is not None and self.estimand is None:
            limits = self._by_score()
            assumptions = (*limits.assumptions, *self.amended.assumptions())
        else:
            reason = self._why_not_by_rows() or (
                "it depends on more than the released score: certificate() works it out, puts it "
                "on record and shows it, and certificates of later incumbents pay for that"
            )
            return uncertified(reason, self.confidence, self.ladder.incumbent, self.score)
        return ScoreCertificate(
            *(self.score, limits.low, limits.high, self.confidence, self.ladder.incumbent),
            *(limits.bound, limits.log_count, assumptions),
            price=self.price,
            clipping=clipping,
            clipped=limits.clipped,
            doubts=self.doubts,
            advice=advice,
            mean_over=self.estimand,
        )

    @property
    def adds(self) -> bool:
        """Whether the certificate is still to be worked out from the rows, and put on record."""
        # The released score does not show how the errors lie in the groups.
        depends = not self.metric.counts or self.estimand is not None
        return self.recorded is None and depends and self._why_not_by_rows() is None

    def _why_not_by_rows(self) -> str | None:
        custom = "custom" in self.ladder.settings.metric_settings
        reason = why_not_by_rows(self.metric, self.guard.part, self.amended, custom=custom)
        return reason and reason + self.way

    def _by_score(self) -> Limits:
        """Return limits of a bounded mean by its released score alone."""
        own, released = self.own, self.ladder.state["standing"]
        assert own.rule is not None and own.least is not None
        least, unit = own.least, self.ladder.settings.unit or 1.0
        certified = partial(
            transcripts.certify,
            n=own.n,
            transcript=self.transcript,
            confidence=self.confidence,
            rounding=own.rounding(released),
            noise=own.rule.allowance if own.rule.noisy else None,
            binary=self.metric.counts,
            weights=self.guard.part.weights,
            price=self.price,
        )
        limits = with_amended(self.amended, (released - least) / unit, certified)
        return limits.through(lambda share: self.metric.to_score(least + unit * share))


def with_amended(
    amended: rows.Amended, share: float, limits_of_share: Callable[[float], Limits]
) -> Limits:
    """Return limits that hold whatever the labels were that had been amended."""
    each = [limits_of_share(possible) for possible in dict.fromkeys(amended.around(share))]
    return replace(each[0], high=each[-1].high)


def why_not_by_rows(
    metric: Metric, part: rows.Part, amended: rows.Amended, *, custom: bool = False
) -> str | None:
    """Return why no interval follows from some rows, if so; `custom` is for a user's function."""
    bound = metric_limits.bound_of(metric, grouped=part.groups is not None)
    if isinstance(bound, str):
        return bound + ", or its function was not stated again (scoring=)" * custom
    if bound.needs_ranges and metric.target_range is None:
        return metric_limits.NO_RANGES
    if part.weights is not None:
        return f"no bound of {metric.name} is known for rows with weights"
    if amended.count:
        return (
            "labels were amended before the incumbent was submitted, which the bound of "
            f"{metric.name} cannot allow for"
        )
    return None


def limits_of(shown: Shown) -> Limits:
    """Return an interval that was shown; an infinite end of it is on record as None."""
    low = -math.inf if shown.low is None else shown.low
    high = math.inf if shown.high is None else shown.high
    clipped = shown.more.get("clipped") and tuple(shown.more["clipped"])
    price = shown.log_values
    return Limits(low, high, shown.bound, shown.confidence, shown.log_count, (), price, clipped)


def selection_of(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    guard: submit.Guard | None,
    confidence: float | None = None,
    bars: counting.Bars | None = None,
) -> Selection | ScoreCertificate:
    """Return what is known about the incumbent of a ladder, or why it cannot be certified."""
    confidence = registered(tx, ladder) if confidence is None else confidence
    if guard is None:
        reason = (
            "the holdout's rows, whose weights count, or the function of a metric of your own, "
            "are missing; open it with them, LadderHoldout(X, y, scoring=...)"
        )
        return uncertified(reason, confidence)
    chosen, holdout, known = tx.chosen(ladder), guard.holdout, tx.fold(ladder.holdout_id)
    if chosen is None:
        return uncertified("the ladder has no incumbent yet", confidence)
    own, released, weights = chosen.own, ladder.released, guard.part.weights
    score = None if released is None else metric.to_score(released)
    way = "; reserve_certificate() queries the reserve" if holdout.n_reserve else ""
    counted = partial(counting.moment, tx, known.id, bars=bars, weighted=weights is not None)
    then = counted(own.position, chosen=chosen, way=way)
    if then.missing is not None:
        return uncertified(then.missing, confidence, ladder.incumbent, score)
    if score is None:
        why = "it would show the released score; reveal does, when the search is over"
        return uncertified(why, confidence, ladder.incumbent)
    ladders = then.transcripts(own if own.batch is None else None)
    event = 1 + chosen.runs - (own.batch is None)  # but itself
    for queries, told in zip(then.queries, ladders, strict=True):
        single = sum(one.batch is None for one in queries.improved)
        event += queries.count if told.improved is None else single
    on_request = not tx.ladders(known.id)[0].settings.shows_scores
    revealed, asked, request = ladder.revealed.get(own.number), None, None
    if on_request and revealed is not None:
        asked = counted(revealed)
        # Where what came before is not counted, the request is not either.
        if asked.missing is None:
            number = len(known.revealed(revealed)) + 1
            request = transcripts.Request(number, asked.transcripts(), asked.shown, asked.orders())
    size = 1 if own.batch is None else own.size
    transcript = transcripts.Transcript(
        before=chosen.before,
        place=min(chosen.place, size or chosen.place),  # repeats have a place as well
        ladders=ladders,
        shown=then.shown,
        size=size,
        event=event,
        orders=then.orders(lambda one: one.batch != own.batch),
        on_request=on_request,
        request=request,
    )
    amended = rows.amended_before(tx, known.id, own.position, weights)
    sought, shown = (ladder.id, ladder.incumbent, confidence), known.shown_of("interval")
    same = (it for it in shown if (it.ladder, it.submission, it.confidence) == sought)
    price = price_of(tx, ladder, confidence)
    return Selection(
        *(ladder, metric, guard, confidence, price, score, holdout.estimand, transcript),
        *(then, asked, amended, next(same, None), way, doubts_about(tx, known.id)),
    )


def doubts_about(tx: Transaction, holdout_id: int) -> tuple[str, ...]:
    """Return which assumptions of a certificate are in doubt by what is on record."""
    signs = tx.fold(holdout_id).grouped() if tx.holdout(holdout_id).estimand is None else {}
    states = None not in signs.values()
    return (INDEPENDENT + " (which an account states)" * states,) if signs else ()


# -- what the price is made of, and what other rules would have cost --------------------------
# All of it follows from what was released: it shows nothing new.


def itemised(selection: Selection) -> ScoreCertificate:
    """Return a certificate with its bill, and other rules beside it."""
    certificate = selection.certificate()
    if certificate.missing is not None or certificate.log_count is None:
        return certificate
    bill = tuple((what, nats) for what, nats in _items(selection) if nats >= _LEAST)
    left = certificate.log_count - sum(nats for _, nats in bill)
    if left >= _LEAST:
        bill = (*bill, ("what is below .05 each", left))
    transcript, without_scores = selection.transcript, None
    discloses = any(ladder.improved is None for ladder in transcript.ladders)
    if not discloses and any(ladder.values for ladder in transcript.ladders):
        unseen = _unseen(transcript).log_count() + selection.price
        without_scores = min(unseen, certificate.log_count)
    instead = _instead(selection)
    return replace(certificate, bill=bill, instead=instead, without_scores=without_scores)


def _unseen(transcript: transcripts.Transcript) -> transcripts.Transcript:
    """Return the transcript with improvements alone, and one request right after the incumbent."""
    ladders = tuple(replace(ladder, values=(), choices=None) for ladder in transcript.ladders)
    request = None
    if transcript.size == 1:
        request = transcripts.Request(1, ladders, transcript.shown, transcript.orders)
    return replace(transcript, ladders=ladders, on_request=True, request=request)


def without_others(certificate: ScoreCertificate) -> ScoreCertificate:
    """Return a certificate whose bill names no other account, and not what each of them was shown.

    Examples
    --------
    >>> bill = (("a", 1.0), ("what others were shown: b", 2.0))
    >>> found = ScoreCertificate(0.9, 0.8, 0.95, 0.95, 1, bill=bill)
    >>> without_others(found).bill
    (('a', 1.0), ('what others were shown', 2.0))
    """
    own = tuple(item for item in certificate.bill if not item[0].startswith(_OF_OTHERS))
    rest = sum(nats for what, nats in certificate.bill if what.startswith(_OF_OTHERS))
    return replace(certificate, bill=(*own, ("what others were shown", rest)) if rest else own)


def _items(selection: Selection) -> Iterator[tuple[str, float]]:
    transcript = selection.transcript
    counted: transcripts.Transcript | transcripts.Request = transcript
    then, request = selection.moment, transcript.by_request
    if transcript.on_request:
        yield "numbering requests beside events", math.log(2.0)
    if request is not None and selection.requested is not None:
        yield f"being request {request.number} of this holdout", event_length(request.number)
        counted, then = request, selection.requested
    else:
        event, place = transcript.lengths()
        yield f"being event {transcript.event} of this holdout, an improvement or a batch", event
        if transcript.size is None:
            yield f"place {transcript.place} of a batch without an announced length", place
        else:
            yield f"a place among {transcript.size} of a batch", place
    for queries, ladder in zip(then.queries, counted.ladders, strict=True):
        known = then.ladders[queries.ladder_id]
        start, who = "", "this ladder"
        if queries.ladder_id != selection.ladder.id:
            start = _OF_OTHERS
            who = f"ladder {known.settings.account}/{known.settings.name}{known.of}"
        flags, values = ladder.lengths
        yield f"{start}which of {ladder.queries} queries improved {who}", flags
        rule = known.settings.mechanism
        yield f"{start}the {len(ladder.values)} scores that {who} showed, by {rule}", values
    yield "which members were the best of announced batches before", counted.orders
    yield "estimates and intervals that were shown, and holdouts that share rows", counted.shown
    yield "a confidence that was not the registered one", selection.price


def _instead(selection: Selection) -> Sequence[tuple[str, float, float]]:
    """Return what other rules would have given on what was released, where that is all it needs.

    Where each release came from a query without a batch, and nothing else was released: what did
    not improve would hardly have improved a coarser ladder.
    """
    own, transcript, metric = selection.own, selection.transcript, selection.metric
    chosen, rule = selection.ladder.chosen, own.rule
    alone = chosen is not None and chosen.batch is None and len(transcript.ladders) == 1
    if not alone or metric.loss is not zero_one or rule is None:
        return ()
    # The ladder's own releases have to be all there is to pay for, and what was not shown must
    # not be worked out from either.
    if rule.needs_account or rule.noisy or rule.discloses or not own.settings.shows_scores:
        return ()
    weights = selection.guard.part.weights
    if selection.estimand is not None or weights is not None or transcript.shown != 0.0:
        return ()
    (queries,) = selection.moment.queries
    if queries.ladder_id != selection.ladder.id or len(queries.improved) < 2 or queries.releases:
        return ()
    # The certificate holds these until somebody reads it: counts and released scores, no rows.
    n, confidence, price = own.n, selection.confidence, selection.price
    standing = selection.ladder.state["standing"]
    released = [(one.query, one.risk) for one in queries.improved]

    def ruled(
        name: str, rule: Mechanism, risk: float, transcript: transcripts.Transcript
    ) -> tuple[str, float, float]:
        rounding = rule.resolution(n)
        certified = transcripts.certify(
            risk, n, transcript, confidence=confidence, rounding=rounding, price=price
        )
        return name, metric.to_score(certified.high), metric.to_score(certified.low)

    def by_other_rules() -> Iterator[tuple[str, float, float]]:
        yield ruled(f"{rule!r}, show='improvements'", rule, standing, _unseen(transcript))
        unused = np.random.default_rng(0)
        for coarser in (SimplifiedLadder(step=step) for step in _STEPS):
            # It decides on the risks that were released, without noise.
            state, improved, values, risk = coarser.start(n), [], [], 0.0
            for query, shown in released:
                state, outcome = coarser.decide(state, Evidence(shown), unused)
                if outcome.improved:
                    improved.append(query)
                    values.append(round(outcome.risk / coarser.resolution(n)))
                    risk = outcome.risk
            grid = transcripts.grid_of(coarser, n, binary=True)
            assert grid is not None
            ladder, before = None, (tuple(improved[:-1]), tuple(values[:-1]))
            if improved[-1] > 1:
                ladder = transcripts.ladder_transcript(improved[-1] - 1, *before, grid)
            yield ruled(repr(coarser), coarser, risk, transcripts.Transcript.alone(ladder))

    return Later(by_other_rules)
