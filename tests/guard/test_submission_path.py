"""Attacks the short cuts of a submission and of its certificate: each keeps what it must."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.errors import (
    RestoredWarning,
)
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.mechanisms import MECHANISMS, Evaluation, Ladder, Mechanism
from ladderholdout.mechanisms.base import State, draws
from ladderholdout.mechanisms.rules import LadderRules
from tests.support.holdouts import EVERY, assert_replays, coins, guesses
from tests.support.interrupts import aside, in_transactions, interrupted, lines_of
from tests.support.ledgers import (
    copy,
    entries_of,
    forget_marks,
    incumbent_predictions,
    locked,
    overwrite,
    predictions_kept,
    remove,
    statements_of,
)

NOISELESS = tuple(one for one in EVERY if not draws(type(one)))


@dataclass(frozen=True, slots=True)
class Moody(Ladder):
    """Somebody's own rule: it draws, as its base class does not."""

    def decide(self, state: State, evidence: Any, rng: np.random.Generator) -> Any:
        mood = float(rng.normal(scale=0.05))
        return Ladder.decide(self, state, type(evidence)(evidence.risk + mood), rng)


@dataclass(frozen=True, slots=True)
class Calm(Ladder):
    """Another, which states that it draws nothing."""

    draws: ClassVar[bool] = False

    def decide(self, state: State, evidence: Any, rng: np.random.Generator) -> Any:
        return Ladder.decide(self, state, evidence, rng)


class Untouchable:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a rule that draws nothing asked for {name}")


@pytest.mark.parametrize("rule", NOISELESS, ids=lambda one: one.name)
def test_a_rule_that_is_given_no_generator_needs_none(rule: Mechanism) -> None:
    state, rules, rng = rule.start(50), LadderRules(rule, unit=1.0), np.random.default_rng(0)
    for _ in range(30):
        evaluation = Evaluation.from_losses(rng.integers(0, 2, 50))
        state, _ = rules.step(state, evaluation, Untouchable())  # type: ignore[arg-type]


def test_a_rule_of_ones_own_draws_unless_it_states_that_it_does_not() -> None:
    assert (draws(Ladder), draws(Moody), draws(Calm)) == (False, True, False)
    assert len(NOISELESS) >= 7


def test_what_a_rule_of_ones_own_draws_is_drawn_anew_and_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MECHANISMS, "Moody", Moody)
    X, y = coins()
    holdout = LadderHoldout(
        X, y, scoring="accuracy", mechanism=Moody(step=0.01), ledger=tmp_path / "ledger.db"
    )
    for one in guesses(0, 20):
        holdout.submit(one)
    assert_replays(holdout)


def test_the_best_of_an_announced_batch_comes_first_if_it_improves_by_its_own_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MECHANISMS, "Moody", Moody)
    X, y = coins()
    rule = Moody(step=0.01)
    holdout = LadderHoldout(X, y, scoring="accuracy", mechanism=rule, ledger="memory")
    candidates = guesses(1, 80)
    for at in range(0, 80, 2):
        with holdout.batch() as batch:
            for one in candidates[at : at + 2]:
                batch.submit(one)
    judged = entries_of(holdout)
    first = [judged[at] for at in range(0, 80, 2)]
    assert [one for one in first if one.place == 2 and not one.improved] == []
    assert first[0].place == 2, "the very first one improves whatever is drawn"


def asked_of(holdout: LadderHoldout, work: Callable[[], Any]) -> list[str]:
    """Return the queries that something asks the ledger in one transaction."""
    with statements_of(holdout) as asked:
        work()
    return [one for one in asked if one.startswith(("SELECT", "WITH"))]


def test_status_and_a_certificate_ask_few_times(tmp_path: Path) -> None:
    """On a server each goes to and fro once; what a holdout has none of is not asked for."""
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=tmp_path / "ledger.db")
    for one in guesses(0, 30):
        holdout.submit(one)
    holdout.status()
    assert len(asked_of(holdout, holdout.status)) == 3
    assert len(asked_of(holdout, holdout.certificate)) == 2


# Connections and marks that are kept open


@aside
def test_an_interrupt_at_any_line_of_a_transaction_leaves_no_lock(tmp_path: Path) -> None:
    """Between a begin and the block that ends it as well; no collection of garbage helps."""
    X, y = coins()
    path = tmp_path / "ledger.db"
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger=path)
    places = lines_of(lambda: holdout.submit(y), in_transactions)
    hits = 0
    gc.disable()
    try:
        for place in places:
            fault = interrupted(lambda: holdout.submit(y), place, in_transactions)
            hits += isinstance(fault, KeyboardInterrupt)
            # Another process could not wait for it either.
            with locked(path, timeout=0):
                pass
    finally:
        gc.enable()
    assert hits > 40
    assert holdout.submit(y).submission <= len(places) + 3


def test_a_mark_that_may_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = coins()
    path = tmp_path / "ledger.db"
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=path)
    holdout.submit(guesses(0, 1)[0])
    older = copy(holdout, tmp_path / "copy.db")
    holdout.submit(guesses(0, 2)[1])
    overwrite(path, older)
    real = os.open

    def refusing(name: Any, flags: int, *more: Any, **named: Any) -> int:
        if str(name).endswith(".mark") and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "it may only be read", str(name))
        return real(name, flags, *more, **named)

    forget_marks(monkeypatch)
    monkeypatch.setattr(os, "open", refusing)
    with pytest.warns(RestoredWarning):
        holdout.submit(y)


def test_a_mark_that_was_replaced_is_read_as_it_is_now(tmp_path: Path) -> None:
    """The process that has it open would otherwise not see what another machine wrote."""
    X, y = coins()
    path = tmp_path / "ledger.db"
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=path)
    holdout.submit(guesses(0, 1)[0])
    (mark,) = (tmp_path / "vault").glob("*.mark")
    older = copy(holdout, tmp_path / "copy.db")
    holdout.submit(guesses(0, 2)[1])
    newer = mark.read_bytes()
    # The older copy is put back, row by row, under the same file; the mark comes from elsewhere.
    overwrite(path, older)
    other = tmp_path / "other.mark"
    other.write_bytes(newer)
    other.replace(mark)
    with pytest.warns(RestoredWarning):
        holdout.submit(y)


# How predictions are kept


def test_the_incumbent_of_a_batch_is_kept_once_and_found_again(tmp_path: Path) -> None:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=tmp_path / "ledger.db")
    for one in guesses(3, 6):
        holdout.__ladder__.submit(one, Origin(batch="grid"))
    improved = [one.number for one in entries_of(holdout) if one.improved]
    assert np.array_equal(incumbent_predictions(holdout), _content(holdout, improved[-1]))
    kept = predictions_kept(holdout)
    assert kept == improved
    remove(holdout, "candidate")
    assert verify_holdout(holdout.ledger, "coins").findings


def _content(holdout: LadderHoldout, number: int) -> Any:
    return guesses(3, 6)[number - 1][holdout.__ladder__.guard().order]
