"""Attacks health(): what it depends on, its forecasts, and the owner's rule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import Health, InvalidArgument, LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import KnownHoldoutWarning
from ladderholdout.guard.health import verify_holdout
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.mechanisms import Ladder
from ladderholdout.planning.course import Course
from tests.support.commands import CliRunner
from tests.support.holdouts import coins

N = 400
FIRST_EVENT = np.log(5 / 4)  # what the first event of a holdout costs, in nats


def climb(holdout: LadderHoldout, y: Any, rights: Any, seed: int = 0) -> list[Health]:
    """Submit models with so many right rows, each with those of the one before; return healths."""
    order = np.random.default_rng(seed).permutation(len(y))
    found = []
    for right in rights:
        guess = 1 - y
        guess[order[:right]] = y[order[:right]]
        holdout.submit(guess)
        found.append(holdout.health(spent_at=0.15))
    return found


def opened(n: int = N, seed: int = 0, **stated: Any) -> tuple[LadderHoldout, Any]:
    X, y = coins(n, seed)
    return LadderHoldout(X, y, **{"scoring": "accuracy", "ledger": "memory", **stated}), y


def test_a_rule_on_record_is_everybodys(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    holdout, y = opened(name="coins", ledger=ledger)
    climb(holdout, y, (200, 230, 260))
    assert holdout.health().spent is None and holdout.status().spent_at is None
    health = holdout.owner.spent_at(0.05)
    assert (health.spent_at, health.spent) == (0.05, True)
    other = LadderHoldout.open("coins", ledger=ledger)
    assert other.health() == health and other.status().spent_at == 0.05
    # What is stated when one asks comes before what is on record, and a later rule before both.
    assert other.health(spent_at=0.9).spent is False and other.health().spent is True
    assert holdout.owner.spent_at(0.8).spent is False
    # Other ladders of the metric have it, ladders of other metrics do not, and fresh rows keep it.
    X, _ = coins(N, 0)
    with pytest.warns(KnownHoldoutWarning):
        beside = LadderHoldout(X, y, scoring="accuracy", ladder="b", ledger=ledger)
        brier = LadderHoldout(X, y, scoring="neg_brier_score", ladder="c", ledger=ledger)
    assert beside.status().spent_at == 0.8 and brier.status().spent_at is None
    rows, labels = coins(N, 9)
    fresh = holdout.replenish(rows, labels)
    fresh.submit(labels)
    assert fresh.health().spent is False and fresh.health().spent_at == 0.8
    assert fresh.owner.spent_at(None).spent is None and fresh.status().spent_at is None
    assert verify_holdout(holdout.ledger, "coins").findings == ()
    for wrong in (0, -1, "wide", float("nan"), True):
        with pytest.raises(InvalidArgument, match="width must be"):
            fresh.owner.spent_at(wrong)


def test_the_command_keeps_a_rule(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    holdout, y = opened(name="coins", ledger=ledger)
    holdout.submit(y)
    stated = ["--ledger", str(ledger)]
    kept = CliRunner().invoke(
        app, ["status", "coins", "--health", "--spent-at", "0.1", "--keep", *stated]
    )
    assert kept.exit_code == 0, kept.output
    assert holdout.status().spent_at == 0.1
    again = CliRunner().invoke(app, ["status", "coins", "--health", *stated])
    assert "spent at 0.1" in again.output
    assert (
        CliRunner().invoke(app, ["status", "coins", "--health", "--keep", *stated]).exit_code == 1
    )


@pytest.mark.parametrize("show", ["scores", "improvements"])
def test_two_sets_of_labels_with_equal_releases_have_equal_health(show: str) -> None:
    """Other rows, labels, predictions and secrets; what was released is the same."""
    healths = []
    for seed in (0, 1):
        holdout, y = opened(seed=seed, name="coins", show=show)
        course = climb(holdout, y, (200, 230, 220, 260, 255, 290), seed)
        holdout.reveal()
        healths.append([*course, holdout.health(more=3, spent_at=0.2)])
    assert healths[0] == healths[1]
    assert healths[0][-1].width is not None
    # A raw score that was not released is in none of it.
    holdout, y = opened(name="coins", show=show)
    last = climb(holdout, y, (200, 230, 221, 260, 257, 290))[-1]
    holdout.reveal()
    assert holdout.health(more=3, spent_at=0.2) == healths[0][-1]
    assert last == healths[0][-2]


def test_the_width_of_now_is_that_of_the_certificate() -> None:
    holdout, y = opened()
    assert "no incumbent" in holdout.health().reason and holdout.health().width is None
    first, second = climb(holdout, y, (200, 250))
    found = holdout.certificate()
    assert (second.width, second.price) == (found.high - found.low, found.log_count)
    assert (first.improvements, second.improvements, second.submissions) == (1, 2, 2)
    assert first.width_after is None and "two improvements" in first.reason
    assert second.width_after is not None and second.reason == ""


def test_the_owners_rule_decides_what_is_spent() -> None:
    holdout, y = opened(mechanism=Ladder(0.0125))
    course = climb(holdout, y, range(200, 380, 10))
    spent = [health.spent for health in course]
    assert spent == [health.width > 0.15 for health in course]
    assert spent[0] is False and spent[-1] is True
    assert [health.queries_left == 0 for health in course] == spent
    last = course[-1]
    assert last.fresh_rows is not None and last.rows_for_such_use is not None
    assert last.fresh_rows < N < last.rows_for_such_use
    plain = holdout.health()
    assert (plain.spent, plain.queries_left, plain.fresh_rows) == (None, None, None)
    for wrong in ({"spent_at": 0}, {"spent_at": "wide"}, {"more": 0}, {"more": 1001}):
        with pytest.raises(InvalidArgument):
            holdout.health(**wrong)  # type: ignore[arg-type]


def test_fresh_rows_restore_the_width_that_was_asked_for() -> None:
    """The forecast of rows against a certificate on so many rows, and on one less in twenty."""
    holdout, y = opened(mechanism=Ladder(0.0125))
    last = climb(holdout, y, range(200, 380, 10))[-1]
    assert last.fresh_rows is not None
    widths = []
    for n in (last.fresh_rows, int(0.95 * last.fresh_rows)):
        X, labels = coins(n, 5)
        fresh = holdout.replenish(X, labels) if not widths else opened(n, 5)[0]
        wrong = round(n * (1 - 370 / 400))
        fresh.submit(np.where(np.arange(n) < wrong, 1 - labels, labels))
        widths.append(fresh.health().width)
        assert fresh.health().block == (2 if len(widths) == 1 else 1)
    assert widths[0] <= 0.152 < widths[1] + 0.005


def test_forecasts_of_a_steady_climb_are_within_a_fifth() -> None:
    """From the middle of a climb whose errors fall by a twelfth each time to its end.

    Each improvement comes at the fourth query; 2,000 rows.
    """
    n = 2000
    holdout, y = opened(n, mechanism=Ladder(0.005))
    errors = [round(800 * (11 / 12) ** step) for step in range(13)]
    rights = [n - count for count in errors for count in (count, count + 40, count + 60, count + 9)]
    course = climb(holdout, y, rights)
    middle, end = course[24], course[-1]
    assert (middle.improvements, end.improvements) == (7, 13)
    forecast = Course(
        *(middle.width, middle.price, 0.95, n, middle.submissions, middle.improvements),
        *(errors[6] / n, errors[0] / n),
    ).width_after(6)
    assert forecast == pytest.approx(end.width, rel=0.2)


def literal_width_after(course: Course, more: int) -> float:
    """The forecast as the page states it, for 0/1 losses, written anew."""
    each = (course.price - FIRST_EVENT) / (course.improvements - 1)
    factor = (course.risk / course.first_risk) ** (1 / (course.improvements - 1))

    def width(price: float, risk: float) -> float:
        level, errors = np.log(0.025) - price, round(risk * course.n)
        return exact_upper(errors, course.n, level) - exact_lower(errors, course.n, level)

    then = width(course.price + more * each, course.risk * factor**more)
    return course.width * then / width(course.price, course.risk)


def test_a_forecast_is_what_the_page_states() -> None:
    course = Course(0.225, 40.0, 0.95, 1000, 100, 7, 0.2, 0.3)
    for more in (1, 5, 30):
        assert course.width_after(more) == pytest.approx(literal_width_after(course, more))
    first = next(k for k in range(1, 99) if literal_width_after(course, k) > 0.25)
    assert course.queries_until(0.25) == int(np.ceil(first * 100 / 7))
    worse = replace(course, first_risk=0.1)  # the risk rose, after a withdrawal: it is held
    assert worse.width_after(5) == replace(course, first_risk=None).width_after(5)
    other = Course(3.0, 40.0, 0.95, 1000, 100, 7)
    scale = (40 + 5 * (40 - FIRST_EVENT) / 6 + np.log(40)) / (40 + np.log(40))
    assert other.width_after(5) == pytest.approx(3 * np.sqrt(scale))
    assert other.fresh_rows(3.0) < 1000 < other.rows_for_such_use(2.0)
    assert other.queries_until(1e9) is None


def test_other_metrics_have_a_width_once_it_was_asked_for(tmp_path: Path) -> None:
    X, y = coins(N)
    given = {"ledger": tmp_path / "ledger.db", "name": "two"}
    holdout = LadderHoldout(X, y, scoring="roc_auc", **given)
    rng = np.random.default_rng(0)
    for noise in (3.0, 1.5, 0.8):
        holdout.submit(y + noise * rng.normal(size=N))
    assert "certificate() works it out" in holdout.health().reason
    found = holdout.certificate()
    health = holdout.health(spent_at=0.1)
    assert health.width == found.high - found.low
    assert health.width_after is not None and health.width_after > health.width
    run = CliRunner().invoke
    ledger = ("--ledger", str(tmp_path / "ledger.db"))
    said = run(app, ["status", "two", "--health", "--spent-at", "0.1", *ledger])
    assert said.exit_code == 0 and "width then" in said.output and "spent at 0.1" in said.output
    told = json.loads(run(app, ["status", "two", "--health", "--json", *ledger]).output)
    assert told["health"]["width"] == health.width and told["submissions"] == 3
    assert run(app, ["status", "two", "--spent-at", "0.1", *ledger]).exit_code == 1


def test_of_several_metrics_each_has_its_own() -> None:
    X, y = coins(N)
    holdout = LadderHoldout(X, y, scoring=["accuracy", "balanced_accuracy"], ledger="memory")
    for right in (250, 300):
        holdout.submit(np.where(np.arange(N) < right, y, 1 - y))
    health = holdout.health()
    assert health["accuracy"].width is not None and health["balanced_accuracy"].width is None
    assert any(what == "width now (accuracy)" for what, _ in health.lines())
    assert "<table>" in health._repr_html_() and "nats" in str(health)


def test_forecasts_hold_on_a_published_history() -> None:
    """30 published models on 1,000 of CIFAR-10's test rows, weakest first, five sets of rows.

    From each improvement on, as many more are forecast as there were, as far as the history goes.
    """
    file = Path(__file__).parents[2] / "benchmarks" / "external" / "data" / "cifar10.npz"
    with np.load(file) as stored:
        right = np.unpackbits(stored["correct"], axis=1)[:, : int(stored["items"])].astype(bool)
    right = right[np.argsort(right.mean(axis=1))]
    rng, misses = np.random.default_rng(0), []
    for _ in range(5):
        sample = right[:, rng.choice(right.shape[1], 1000, replace=False)]
        holdout, y = opened(1000)
        course = []
        for model in sample:
            if holdout.submit(np.where(model, y, 1 - y)).improved:
                score, certificate = holdout.status().score, holdout.certificate()
                course.append(
                    (1 - score, certificate.high - certificate.low, certificate.log_count)
                )
        for seen in range(3, len(course)):
            (risk, width, price), first = course[seen - 1], course[0][0]
            at = Course(width, price, 0.95, 1000, 30, seen, risk, first)
            for more in range(1, min(seen, len(course) - seen) + 1):
                misses.append(at.width_after(more) / course[seen + more - 1][1] - 1)
    assert len(misses) > 100
    assert np.mean(np.abs(misses)) < 0.12 and np.mean(np.abs(misses) < 0.2) > 0.8
