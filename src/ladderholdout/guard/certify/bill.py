"""What the price of a certificate is made of, and what other rules would have cost.

All of it follows from what was released: it shows nothing new.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ladderholdout.certificates import (
    Request,
    Transcript,
    certify,
    event_length,
    grid_of,
    ladder_transcript,
)
from ladderholdout.guard.certify.certification import Selection
from ladderholdout.guard.certify.counting import CountedLadder
from ladderholdout.guard.shown import ScoreCertificate
from ladderholdout.ledger.counts import LadderQueries
from ladderholdout.mechanisms import Evidence, Mechanism, SimplifiedLadder
from ladderholdout.metrics.scores import zero_one

# Steps of the rules that are tried on what was released.
_STEPS = (0.01, 0.03)
_LEAST = 0.05
# How items of other ladders begin.
_OF_OTHERS = "what others were shown: "


def itemised(certificate: ScoreCertificate, selection: Selection) -> ScoreCertificate:
    """Return a certificate with its bill, and other rules beside it."""
    if certificate.missing is not None or certificate.log_count is None:
        return certificate
    bill = tuple((what, nats) for what, nats in _items(selection) if nats >= _LEAST)
    left = certificate.log_count - sum(nats for _, nats in bill)
    if left >= _LEAST:
        bill = (*bill, ("what is below .05 each", left))
    return replace(
        certificate,
        bill=bill,
        instead=tuple(_instead(selection)),
        without_scores=_without_scores(selection),
    )


def _without_scores(selection: Selection) -> float | None:
    """Return the price with improvements alone; None where no score was paid for."""
    transcript = selection.transcript
    discloses = any(ladder.improved is None for ladder in transcript.ladders)
    if discloses or not any(ladder.values for ladder in transcript.ladders):
        return None
    least = min(_unseen(transcript).log_count(), transcript.log_count())
    return least + selection.level.price


def _unseen(transcript: Transcript) -> Transcript:
    """Return the transcript with improvements alone, and one request right after the incumbent."""
    ladders = tuple(replace(ladder, values=(), choices=None) for ladder in transcript.ladders)
    request = None
    if transcript.size == 1:
        request = Request(1, ladders, transcript.shown, transcript.orders)
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
    transcript, requested = selection.transcript, selection.requested
    request = transcript.by_request
    if transcript.on_request:
        yield "numbering requests beside events", math.log(2.0)
    if request is not None and requested is not None:
        yield f"being request {request.number} of this holdout", event_length(request.number)
        used, ladders, every = [*requested.queries], request.ladders, requested.counted
        shown, orders = request.shown, request.orders
    else:
        event, place = transcript.lengths()
        yield f"being event {transcript.event} of this holdout, an improvement or a batch", event
        if transcript.size is None:
            yield f"place {transcript.place} of a batch without an announced length", place
        else:
            yield f"a place among {transcript.size} of a batch", place
        used = [queries for queries in selection.chosen.ladders if queries.count]
        ladders, every = transcript.ladders, selection.counted
        shown, orders = transcript.shown, transcript.orders
    for queries, ladder in zip(used, ladders, strict=True):
        counted = every[queries.ladder_id]
        start, who = "", "this ladder"
        if queries.ladder_id != selection.ladder.id:
            start = _OF_OTHERS
            who = f"ladder {counted.settings.account}/{counted.settings.name}{counted.of}"
        flags, values = ladder.lengths()
        yield f"{start}which of {ladder.queries} queries improved {who}", flags
        rule = counted.settings.mechanism
        yield f"{start}the {len(ladder.values)} scores that {who} showed, by {rule}", values
    yield "which members were the best of announced batches before", orders
    yield "estimates and intervals that were shown, and holdouts that share rows", shown
    yield "a confidence that was not the registered one", selection.level.price


def _instead(selection: Selection) -> Iterator[tuple[str, float, float]]:
    """Certify what was released as if by other rules, where that is all that is needed.

    Where each release came from a query without a batch, and nothing else was released: what did
    not improve would hardly have improved a coarser ladder.
    """
    own, chosen = selection.counted[selection.ladder.id], selection.chosen
    alone = chosen.own.batch is None and len(selection.transcript.ladders) <= 1
    rule = own.rule
    if not alone or selection.metric.loss is not zero_one or rule is None:
        return
    # The ladder's own releases have to be all there is to pay for, and what was not shown must
    # not be worked out from either.
    if rule.needs_account or rule.noisy or rule.discloses or not own.settings.shows_scores:
        return
    if selection.estimand is not None or selection.weights is not None:
        return
    if selection.transcript.shown != 0.0:
        return
    by_id = {queries.ladder_id: queries for queries in chosen.ladders}
    queries = by_id.get(selection.ladder.id)
    if queries is None or len(queries.improved) < 2 or queries.releases:
        return
    yield _certified(
        f"{rule!r}, show='improvements'",
        *(selection, rule, selection.ladder.state["standing"], _unseen(selection.transcript)),
    )
    for step in _STEPS:
        yield _replayed(SimplifiedLadder(step=step), selection, own, queries)


def _replayed(
    rule: Mechanism, selection: Selection, own: CountedLadder, queries: LadderQueries
) -> tuple[str, float, float]:
    """Let a rule without noise decide on the risks that were released."""
    state, improved, values, risk = rule.start(own.n), [], [], 0.0
    for improvement in queries.improved:
        state, outcome = rule.decide(state, Evidence(improvement.risk), np.random.default_rng(0))
        if outcome.improved:
            improved.append(improvement.query)
            values.append(round(outcome.risk / rule.resolution(own.n)))
            risk = outcome.risk
    grid = grid_of(rule, own.n, binary=True)
    assert grid is not None
    before = improved[-1] - 1
    ladder = None
    if before:
        ladder = ladder_transcript(before, tuple(improved[:-1]), tuple(values[:-1]), grid)
    return _certified(repr(rule), selection, rule, risk, Transcript.alone(ladder))


def _certified(
    name: str, selection: Selection, rule: Mechanism, risk: float, transcript: Transcript
) -> tuple[str, float, float]:
    n = selection.counted[selection.ladder.id].n
    certified = certify(
        risk,
        n,
        transcript,
        confidence=selection.level.confidence,
        rounding=rule.resolution(n),
        price=selection.level.price,
    )
    to_score = selection.metric.to_score
    return name, to_score(certified.high), to_score(certified.low)
