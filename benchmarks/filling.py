"""A ledger of many entries, made in seconds: every link of its chain and every replay holds.

The entries are written in bulk, with the ledger's own chain and rules, in place of a million
commits. They stand for submissions that did not improve, with a repeat now and then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ladderholdout import LadderHoldout
from ladderholdout.ledger.events import Submitted
from ladderholdout.ledger.log import now
from ladderholdout.ledger.rules import rules_of, state_from
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import KNOWN
from ladderholdout.mechanisms.base import Evidence

CHUNK = 20_000
REPEAT_EVERY = 20
"""Of the entries one in so many repeats the one before it."""


def fill(holdout: LadderHoldout, entries: int) -> None:
    """Add entries to a ladder on which something stands, under a rule that draws nothing."""
    with Ledger(holdout.ledger).write() as tx:
        ladder = tx.locked_ladder(holdout.__ladder__.id)
        record = tx.holdout(ladder.holdout_id)
        rows = _rows(record, ladder, entries)
        for _ in range(0, entries, CHUNK):
            chunk = [found for _, found in zip(range(CHUNK), rows, strict=False)]
            tx.add(record.id, *chunk)


def _rows(record: Any, ladder: Any, entries: int) -> Iterator[Submitted]:
    rules = rules_of(ladder.settings)
    state = state_from(ladder.state, record.n_ladder, None)
    rng = np.random.default_rng(0)
    risks = state.standing + 0.01 + 0.1 * rng.random(entries)
    before, queries = None, ladder.queries
    for number, risk in enumerate(risks.tolist(), ladder.submissions + 1):
        if before is not None and number % REPEAT_EVERY == 0:
            again = replace(before, number=number, query=None, evidence=dict(KNOWN))
            yield replace(again, repeat_of=before.number)
            continue
        evidence = Evidence(risk, spread=0.002)
        _, outcome = rules.replay(state, evidence, rng)  # a rule that draws nothing
        assert not outcome.improved
        queries += 1
        before = Submitted(
            ladder=ladder.id,
            number=number,
            query=queries,
            time=now(),
            digest=hashlib.sha256(b"%d" % number).hexdigest(),
            raw=risk,
            evidence=asdict(evidence),
            risk=outcome.risk,
            improved=outcome.improved,
            disagreement=0.25,
            context={"estimator": "SVC", "parameters": {"C": risk, "kernel": "rbf"}},
        )
        yield before
