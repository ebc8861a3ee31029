"""Attacks on explicit batches: nothing is answered before all is fixed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

from ladderholdout import LadderHoldout
from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.mechanisms import Mechanism, ParameterFreeLadder, PricedLadder
from tests.support.holdouts import assert_replays, coins

pytestmark = pytest.mark.quick
N = 60


def opened(ledger: Any = "memory", rule: Mechanism | None = None) -> LadderHoldout:
    rule = rule or ParameterFreeLadder()
    return LadderHoldout(*coins(N), scoring="accuracy", mechanism=rule, ledger=ledger, name="coins")


def right(count: int) -> Any:
    y = coins(N)[1]
    return np.where(np.arange(N) < count, y, 1 - y)


def test_nothing_is_answered_before_the_block_ends() -> None:
    holdout = opened()
    with holdout.batch() as batch:
        for count in (30, 50, 40):
            assert batch.submit(right(count), context={"count": count}) is None
            assert batch.releases == () and holdout.status().submissions == 0
    # The best is judged first, and the others do not improve on it.
    assert [one.improved for one in batch.releases] == [False, True, False]
    assert [one.submission for one in batch.releases] == [2, 1, 3]
    found = holdout.history()
    assert [one.context["count"] for one in found] == [50, 30, 40]
    assert len({one.batch for one in found}) == 1 and found[0].batch is not None
    assert_replays(holdout)


def test_a_certificate_pays_for_none_of_the_answers_within() -> None:
    together, apart = opened(), opened()
    with together.batch() as batch:
        for count in range(30, 56, 5):
            batch.submit(right(count))
    for count in range(30, 56, 5):
        apart.submit(right(count))
    ours, theirs = together.certificate(), apart.certificate()
    assert ours.score == theirs.score
    assert ours.log_count is not None and theirs.log_count is not None
    assert ours.log_count < theirs.log_count


def test_two_batches_are_two(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    for counts in ((30, 40), (35, 50)):
        with holdout.batch() as batch:
            for count in counts:
                batch.submit(right(count))
    first, second, third, fourth = (one.batch for one in holdout.history())
    assert first == second != third == fourth


def test_what_was_taken_does_not_change_with_what_it_was_taken_from() -> None:
    holdout, (X, _) = opened(), coins(N)
    predictions, model = right(50), DummyClassifier(strategy="constant", constant=0)
    with holdout.batch() as batch:
        batch.submit(predictions)
        predictions[:] = 0
        for constant in (0, 1):
            model.set_params(constant=constant).fit(X, np.arange(N) % 2)
            batch.submit(model)
    assert batch.releases[0].score == pytest.approx(50 / N, abs=1 / N)
    parameters = [one.context["parameters"]["constant"] for one in holdout.history()[1:]]
    assert parameters == [0, 1]
    assert len({one.improved for one in batch.releases[1:]}) == 1


def test_a_block_that_fails_submits_nothing() -> None:
    holdout = opened()
    with pytest.raises(ZeroDivisionError), holdout.batch() as batch:
        batch.submit(right(30))
        raise ZeroDivisionError
    assert batch.releases == () and holdout.status().submissions == 0


def test_what_is_refused_is_refused_in_its_line_before_anything_is_answered() -> None:
    holdout = opened()
    with pytest.raises(InvalidSubmission), holdout.batch() as batch:
        batch.submit(right(30))
        batch.submit(right(30)[:7])
        batch.submit(right(40))
    assert len(batch.releases) == holdout.status().submissions == 0
    with holdout.batch() as batch:
        batch.submit(right(30))
        with pytest.raises(InvalidSubmission):
            batch.submit(right(30)[:7])
        batch.submit(right(40))
    assert len(batch.releases) == holdout.status().submissions == 2


def test_a_batch_is_used_once_and_inside_of_its_block() -> None:
    batch = opened().batch()
    with pytest.raises(InvalidArgument, match="inside of its block"):
        batch.submit(right(30))
    with batch:
        batch.submit(right(30))
        with pytest.raises(InvalidArgument, match="used once"), batch:
            pass
    with pytest.raises(InvalidArgument, match="used once"), batch:
        pass


def test_members_of_a_batch_are_compared_without_a_margin() -> None:
    """One by one the second would be refused: it is better by less than the margin."""
    counts = (40, 42)
    apart, together = opened(rule=PricedLadder()), opened(rule=PricedLadder())
    for count in counts:
        apart.submit(right(count))
    with together.batch() as batch:
        for count in counts:
            batch.submit(right(count))
    assert apart.status().score == pytest.approx(counts[0] / N)
    assert together.status().score == pytest.approx(counts[1] / N)
    assert [one.improved for one in batch.releases] == [False, True]
    assert_replays(together)


def test_a_batch_that_does_not_improve_keeps_its_order() -> None:
    """What nobody is shown to be the best of is not revealed by its number either."""
    holdout = opened()
    holdout.submit(right(58))
    with holdout.batch() as batch:
        for count in (30, 50, 40):
            batch.submit(right(count))
    assert [one.submission for one in batch.releases] == [2, 3, 4]
    assert not any(one.improved for one in batch.releases)


def test_later_certificates_pay_for_which_member_was_the_best() -> None:
    holdout, alone = opened(), opened()
    with holdout.batch() as batch:
        for count in (30, 50, 40):
            batch.submit(right(count))
    for count in (50, 30, 40):
        alone.submit(right(count))
    for one in (holdout, alone):
        one.submit(right(59))
    with_batch, without = holdout.certificate(), alone.certificate()
    [paid] = [nats for what, nats in with_batch.bill if "announced batches" in what]
    assert paid == pytest.approx(math.log(3))
    assert with_batch.log_count is not None and without.log_count is not None
    assert with_batch.log_count == pytest.approx(without.log_count + math.log(3))


def test_a_batch_is_submitted_as_a_whole_or_not_at_all() -> None:
    holdout = opened()
    with pytest.raises(InvalidSubmission), holdout.batch() as batch:
        batch.submit(right(50))
        batch.submit([0, 1])
    assert holdout.status().submissions == 0
