"""What had been told of a holdout through all its ladders, read once for all certificates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ladderholdout.ledger import LadderRecord, LookRecord, Transaction
from ladderholdout.ledger.replay import rules_of
from ladderholdout.mechanisms import Evidence, RankLadder


@dataclass(frozen=True, slots=True)
class Told:
    """What one transaction sees of a holdout's ladders.

    Attributes
    ----------
    n : int
        Rows that the ladders measure.
    looks : tuple of LookRecord
        In their order.
    asked : mapping of (ladder id, number) to position
        When values of ladders that tell none were asked for.
    ladders : tuple of LadderRecord
    bars : mapping of ladder id to mapping
        What `bars_of` each of them is.
    """

    n: int
    looks: tuple[LookRecord, ...]
    asked: Mapping[tuple[int, int], int]
    ladders: tuple[LadderRecord, ...]
    bars: Mapping[int, Mapping[int, float]]


def told_of(tx: Transaction, holdout_id: int) -> Told:
    """Read what had been told of a holdout."""
    ladders = tx.ladders(holdout_id)
    return Told(
        tx.holdout(holdout_id).n_ladder,
        tx.looks(holdout_id),
        tx.asked(holdout_id),
        ladders,
        {ladder.id: bars_of(tx, ladder) for ladder in ladders},
    )


def bars_of(tx: Transaction, ladder: LadderRecord) -> dict[int, float]:
    """Return which risk each release of a `RankLadder` had to be below.

    It is made of earlier releases alone.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord

    Returns
    -------
    dict of int to float
        By the number of the submission; empty for a ladder of another kind. Where a place
        was empty, any risk could have been told, and it is left out.
    """
    rules = rules_of(ladder.settings)
    rule, unit = rules.mechanism, rules.unit
    if not isinstance(rule, RankLadder) or unit is None:
        return {}
    found = {}
    state, unused = rule.start(1), np.random.default_rng(0)
    for entry in tx.entries(ladder.id):
        if entry.improved and entry.repeat_of is None and entry.risk is not None:
            account = entry.context["account"]
            bar = rule.to_beat(state, account)
            if bar is not None:
                found[entry.number] = bar * rule.step * unit
            # A release is on the grid already: it takes the place that it took.
            state, _ = rule.decide(state, Evidence(entry.risk / unit, account=account), unused)
    return found
