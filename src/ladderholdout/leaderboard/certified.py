"""Standings of a leaderboard, with the certificates of its accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.guard import (
    Bars,
    Level,
    LocalLadder,
    ScoreCertificate,
    bars_on,
    certificate_of,
    certificates_alike,
    no_certificate,
)
from ladderholdout.leaderboard.rules import kind_of
from ladderholdout.leaderboard.standings import (
    Entrant,
    Standings,
    entrants,
    left,
    merged,
    ranked,
    team_ladders,
)
from ladderholdout.ledger.fold import Head, LadderRecord
from ladderholdout.ledger.transaction import Transaction

MANY = 100
"""On boards with more accounts all standings have certificates at the price of the latest one."""

# What a board showed last in this process, by its place and level, with the ends of the chains.
_known: dict[tuple[str, int, Level], tuple[tuple[Head, ...], Standings]] = {}
_REMEMBERED = 16


def standings_of(
    home: LocalLadder, tx: Transaction, record: LadderRecord, level: Level
) -> Standings:
    """Return the standings of a board, from what its ladders released."""
    place = home.ledger, record.id, level
    # What is shown follows from the chains of these rows, which have it all.
    shared = [other.holdout_id for other in tx.sharing(record.holdout_id)]
    heads = tuple(map(tx.head, [record.holdout_id, *shared]))
    known = _known.get(place)
    if known is not None and known[0] == heads:
        return known[1]
    standings = _made(home, tx, record, level)
    if standings.missing is None:
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[place] = heads, standings
    return standings


def _made(home: LocalLadder, tx: Transaction, record: LadderRecord, level: Level) -> Standings:
    per = kind_of(home.facts.rules.mechanism)
    everyone, bars = list(entrants(tx, record, per)), bars_on(tx, record.holdout_id)
    gone = left(tx, record)
    scored = [e for e in everyone if e.ladder is not None and e.account not in gone]
    certificates = _all_certified(home, tx, scored, level, bars)
    ladders = [record, *team_ladders(tx, record)]
    return Standings(
        name=tx.holdout(record.holdout_id).name,
        per=per,
        metric=home.metric.name,
        mechanism=repr(home.facts.rules.mechanism),
        accounts=len(everyone),
        submissions=sum(entrant.submissions for entrant in everyone),
        releases=sum(ladder.state["releases"] for ladder in ladders),
        confidence=level.confidence,
        rows=ranked(scored, certificates, home.metric),
        missing=next((each.missing for each in certificates if each.missing), None),
        withdrawn=sum(len(ladder.withdrawn) for ladder in ladders),
        left=len(gone & {entrant.account for entrant in everyone}),
    )


def _all_certified(
    home: LocalLadder, tx: Transaction, scored: Sequence[Entrant], level: Level, bars: Bars
) -> list[ScoreCertificate]:
    """Certify all accounts: each by itself, or many at the price of the latest."""
    weights: Any = None
    if kind_of(home.facts.rules.mechanism) == "team" and len(scored) > MANY:
        try:
            weights = home.guard().part.weights
        except (VaultError, InvalidArgument):
            return [no_certificate(level.confidence)] * len(scored)
        latest = max(scored, key=lambda entrant: entrant.id).ladder
        ladders = [entrant.ladder for entrant in scored if entrant.ladder is not None]
        assert latest is not None
        alike = certificates_alike(tx, ladders, latest, home.metric, weights, level, bars)
        if alike is not None:
            return alike
    return [certified(home, tx, entrant, level, bars) for entrant in scored]


def certified(
    home: LocalLadder, tx: Transaction, entrant: Entrant, level: Level, bars: Bars | None = None
) -> ScoreCertificate:
    """Certify what was released to an account."""
    assert entrant.ladder is not None
    try:
        weights = home.guard().part.weights
    except (VaultError, InvalidArgument):  # the standings are shown all the same
        return no_certificate(level.confidence)
    return certificate_of(tx, entrant.ladder, home.metric, weights, level, bars)


def certificate_of_team(
    home: LocalLadder, tx: Transaction, record: LadderRecord, account: str | None, level: Level
) -> ScoreCertificate:
    """Certify what was released to the team of an account, or to the first one on the board."""
    per, gone = kind_of(home.facts.rules.mechanism), left(tx, record)
    team = merged(tx, record).get(account or "", account)
    scored = [e for e in entrants(tx, record, per) if e.ladder is not None]
    wanted = [e for e in scored if (e.account == team if team else e.account not in gone)]
    if wanted:
        best = min(wanted, key=lambda entrant: (entrant.risk, entrant.since))
        return certified(home, tx, best, level)
    missing = f"nothing was released {'yet' if account is None else f'to {account!r}'}"
    return ScoreCertificate(None, None, None, level.confidence, None, missing=missing)
