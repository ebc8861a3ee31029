"""A ledger of many entries, made in seconds: every link of its chain and every replay holds.

The entries are written in bulk, with the ledger's own chain and rules, in place of a million
commits. They stand for submissions that did not improve, with a repeat now and then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from sqlalchemy import insert, update

from ladderholdout import LadderHoldout
from ladderholdout.ledger import Head, Ledger
from ladderholdout.ledger.chain import extend, submission_content, submitted
from ladderholdout.ledger.records import KNOWN, now
from ladderholdout.ledger.replay import rules_of, state_from
from ladderholdout.ledger.tables import chains, ladders, submissions
from ladderholdout.mechanisms.base import Evidence

CHUNK = 20_000
REPEAT_EVERY = 20
"""Of the entries one in so many repeats the one before it."""


def fill(holdout: LadderHoldout, entries: int) -> None:
    """Add entries to a ladder on which something stands, under a rule that draws nothing."""
    with Ledger(holdout.ledger).write() as tx:
        ladder = tx.locked_ladder(holdout.__ladder__.id)
        record, head = tx.holdout(ladder.holdout_id), tx.head(ladder.holdout_id)
        rows = _rows(record, ladder, entries)
        for _ in range(0, entries, CHUNK):
            chunk = []
            for row in (found for _, found in zip(range(CHUNK), rows, strict=False)):
                content = submission_content(submitted(row))
                head = extend(record.secret, head, "submission", content)
                chunk.append({**row, "position": head.length, "hash": head.hash})
                queries = row["queries"]
            tx.conn.execute(insert(submissions), chunk)
        counts = {"submissions": ladder.submissions + entries, "queries": queries}
        _close(tx.conn, record.id, ladder.id, counts, head)


def _rows(record: Any, ladder: Any, entries: int) -> Iterator[Mapping[str, Any]]:
    rules = rules_of(ladder.settings)
    state = state_from(ladder.state, record.n_ladder, None)
    rng = np.random.default_rng(0)
    risks = state.standing + 0.01 + 0.1 * rng.random(entries)
    before, queries = dict[str, Any](), ladder.queries
    for number, risk in enumerate(risks.tolist(), ladder.submissions + 1):
        if before and number % REPEAT_EVERY == 0:
            again = {
                "number": number,
                "repeat_of": before["number"],
                "evidence": json.dumps(KNOWN),
            }
            yield {**before, **again}
            continue
        evidence = Evidence(risk, spread=0.002)
        _, outcome = rules.replay(state, evidence, rng)  # a rule that draws nothing
        assert not outcome.improved
        queries += 1
        before = {
            "ladder_id": ladder.id,
            "number": number,
            "time": now(),
            "digest": hashlib.sha256(b"%d" % number).hexdigest(),
            "reserve_digest": None,
            "batch": None,
            "search": None,
            "key": None,
            "place": None,
            "repeat_of": None,
            "queries": queries,
            "raw_risk": risk,
            "evidence": json.dumps(asdict(evidence)),
            "released_risk": outcome.risk,
            "improved": outcome.improved,
            "disagreement": 0.25,
            "context": json.dumps({"estimator": "SVC", "parameters": {"C": risk, "kernel": "rbf"}}),
        }
        yield before


def _close(conn: Any, holdout_id: int, ladder_id: int, counts: dict[str, int], head: Head) -> None:
    ends = {"length": head.length, "head": head.hash}
    conn.execute(update(chains).where(chains.c.holdout_id == holdout_id).values(ends))
    conn.execute(update(ladders).where(ladders.c.id == ladder_id).values(counts))
