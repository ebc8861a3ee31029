"""What the price of a certificate is made of, and what other rules would have cost.

All of it follows from what was released: it shows nothing new.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ladderholdout.certificates import Transcript, certify, grid_of, ladder_transcript
from ladderholdout.guard.certification import CountedLadder, Selection
from ladderholdout.guard.views import ScoreCertificate
from ladderholdout.ledger import LadderQueries
from ladderholdout.mechanisms import Evidence, Mechanism, SimplifiedLadder
from ladderholdout.metrics.scores import zero_one

# Steps of the rules that are tried on what was released.
_STEPS = (0.01, 0.03)
_LEAST = 0.05
# How items of other ladders begin.
_OF_OTHERS = "what others were shown: "


def itemised(found: ScoreCertificate, selection: Selection) -> ScoreCertificate:
    """Return a certificate with its bill, and other rules beside it."""
    if found.missing is not None or found.log_count is None:
        return found
    bill = tuple((what, nats) for what, nats in _items(selection) if nats >= _LEAST)
    left = found.log_count - sum(nats for _, nats in bill)
    if left >= _LEAST:
        bill = (*bill, ("the least that is ever paid, and what is below .05", left))
    return replace(found, bill=bill, instead=tuple(_instead(selection)))


def without_others(found: ScoreCertificate) -> ScoreCertificate:
    """Return a certificate whose bill names no other account, and not what each of them was shown.

    Examples
    --------
    >>> bill = (("a", 1.0), ("what others were shown: b", 2.0))
    >>> found = ScoreCertificate(0.9, 0.8, 0.95, 0.95, 1, bill=bill)
    >>> without_others(found).bill
    (('a', 1.0), ('what others were shown', 2.0))
    """
    own = tuple(item for item in found.bill if not item[0].startswith(_OF_OTHERS))
    rest = sum(nats for what, nats in found.bill if what.startswith(_OF_OTHERS))
    return replace(found, bill=(*own, ("what others were shown", rest)) if rest else own)


def _items(selection: Selection) -> Iterator[tuple[str, float]]:
    transcript = selection.transcript
    event, place = transcript.lengths()
    yield f"being event {transcript.event} of this holdout, an improvement or a batch", event
    if transcript.size is None:
        yield f"place {transcript.place} of a batch without an announced length", place
    else:
        yield f"a place among {transcript.size} of a batch", place
    used = [one for one in selection.chosen.ladders if one.count]
    for one, ladder in zip(used, transcript.ladders, strict=True):
        counted = selection.counted[one.ladder_id]
        start, who = "", "this ladder"
        if one.ladder_id != selection.ladder.id:
            start = _OF_OTHERS
            who = f"ladder {counted.settings.account}/{counted.settings.name}{counted.of}"
        flags, values = ladder.lengths()
        yield f"{start}which of {ladder.queries} queries improved {who}", flags
        rule = counted.settings.mechanism
        yield f"{start}the {len(ladder.values)} scores that {who} released, by {rule}", values
    yield "what was shown on request, and of holdouts that share rows", transcript.shown
    yield "a confidence that was not the registered one", selection.level.price


def _instead(selection: Selection) -> Iterator[tuple[str, float, float]]:
    """Certify what was released as if by other rules, where that is all that is needed.

    Where each release came from a query without a batch, and nothing else was released: what did
    not improve would hardly have improved a coarser ladder.
    """
    own, chosen = selection.counted[selection.ladder.id], selection.chosen
    alone = chosen.batch is None and len(selection.transcript.ladders) <= 1
    if not alone or selection.metric.loss is not zero_one or not _is_plain(selection, own):
        return
    assert own.rule is not None
    queries = next((one for one in chosen.ladders if one.ladder_id == selection.ladder.id), None)
    if queries is None or len(queries.improved) < 2 or queries.releases:
        return
    ladders = tuple(replace(one, values=(), choices=None) for one in selection.transcript.ladders)
    unseen = replace(selection.transcript, ladders=ladders)
    yield _certified(
        f"{own.rule!r}, its score shown on request alone",
        *(selection, own.rule, selection.ladder.state["standing"], unseen),
    )
    for step in _STEPS:
        yield _replayed(SimplifiedLadder(step=step), selection, own, queries)


def _is_plain(selection: Selection, own: CountedLadder) -> bool:
    """Return whether the ladder's own releases are all there is to pay for."""
    rule = own.rule
    plain = rule is not None and not (rule.needs_account or rule.noisy or rule.discloses)
    # What was not shown must not be worked out from either.
    return (
        plain
        and rule is not None
        and rule.shows_values
        and selection.weights is None
        and selection.transcript.shown == 0.0
    )


def _replayed(
    rule: Mechanism, selection: Selection, own: CountedLadder, queries: LadderQueries
) -> tuple[str, float, float]:
    """Let a rule without noise decide on the risks that were released."""
    state, improved, values, risk = rule.start(own.n), [], [], 0.0
    for one in queries.improved:
        state, outcome = rule.decide(state, Evidence(one.risk), np.random.default_rng(0))
        if outcome.improved:
            improved.append(one.number)
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
    found = certify(
        risk,
        n,
        transcript,
        confidence=selection.level.confidence,
        rounding=rule.resolution(n),
        price=selection.level.price,
    )
    to_score = selection.metric.to_score
    return name, to_score(found.high), to_score(found.low)
