"""Advice on a reserve: its widths against formulas, and against holdouts that were searched."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, norm

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics import METRICS, get_metric
from ladderholdout.planning import plan, reserve_advice
from ladderholdout.planning.reserves import FEWEST_ROWS, HALF, WORTH
from tests.support.commands import CliRunner

# Of an announced batch of twenty: ln 20 for the place, -ln(2/3) for the first event.
FINALISTS = math.log(3) - math.log(4 / 5)


def below(errors: int, n: int, log_count: float) -> float:
    """Return how far the true accuracy may be below the one seen: Clopper & Pearson."""
    level = 0.025 * math.exp(-log_count)
    return float(beta.isf(level, errors + 1, n - errors)) - errors / n


@pytest.mark.parametrize("n", [200, 1000, 5000])
def test_widths_of_accuracy_are_those_of_exact_limits(n: int) -> None:
    advice = reserve_advice(n=n)
    assert advice is not None
    assert advice.finalists.log_count == pytest.approx(FINALISTS)
    assert advice.finalists.without == pytest.approx(below(n // 10, n, FINALISTS), rel=1e-6)
    reserved = below(n // 20, n // 2, math.log(2))
    for use in (advice.finalists, advice.climb):
        assert use.reserved == pytest.approx(reserved, rel=1e-6)
    L = advice.climb.log_count
    assert advice.climb.without == pytest.approx(below(n // 10, n, L), rel=1e-6)


def model(name: str, y: Any, noise: Any, risk: float, rng: np.random.Generator) -> Any:
    n = len(y)
    if name == "accuracy":
        wrong = np.zeros(n, dtype=bool)
        wrong[rng.choice(n, round(risk * n), replace=False)] = True
        return np.where(wrong, 1 - y, y)
    if name == "roc_auc":
        return math.sqrt(2) * norm.ppf(1 - risk) * (y - 0.5) + noise + 0.01 * rng.normal(size=n)
    return np.clip(noise, -4, 4) * (risk / 0.1)  # errors of a target of 0, at most 4


NUMBERS = (1, 4, 10, 32, 100)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.RangeWarning")
@pytest.mark.parametrize("name", ["accuracy", "roc_auc", "neg_root_mean_squared_error"])
def test_a_search_on_a_holdout_ends_with_about_these_widths(name: str) -> None:
    """Of 100 submissions five improve; what was released is another sequence than the advice's.

    Which rows a reserve has is drawn by a secret: the mean of five widths, each off by about a
    tenth, is beyond a quarter with a probability of less than 1e-7.
    """
    n, rng = 1000, np.random.default_rng(0)
    y, X, noise = np.arange(n) % 2, rng.normal(size=(n, 2)), rng.normal(size=n)
    settings: dict[str, Any] = {"loss_range": (0, 4)} if "root" in name else {}
    y = y * 0.0 if settings else y
    advice = reserve_advice(n=n, metric=get_metric(name))
    assert advice is not None
    settings |= {"scoring": name, "ledger": "memory"}
    risks = dict(zip(NUMBERS, np.linspace(0.15, 0.1, 5), strict=True))
    holdout = LadderHoldout(X, y, name="all rows", **settings)
    for number in range(1, 101):
        holdout.submit(model(name, y, noise, risks.get(number, 0.17), rng))
    found = holdout.certificate()
    assert found.log_count == pytest.approx(advice.climb.log_count, rel=0.25)
    assert found.score - found.low == pytest.approx(advice.climb.without, rel=0.25)
    widths = []
    for one in range(5):
        kept = LadderHoldout(X, y, name=f"reserve {one}", reserve=0.5, **settings)
        kept.submit(model(name, y, noise, 0.1, rng))
        found = kept.reserve_certificate()
        widths.append(found.score - found.low)
    assert np.mean(widths) == pytest.approx(advice.climb.reserved, rel=0.25)


@pytest.mark.parametrize("name", ["accuracy", "roc_auc", "neg_brier_score"])
def test_the_first_batch_of_a_holdout_has_the_width_of_finalists(name: str) -> None:
    n, rng = 1000, np.random.default_rng(1)
    y = np.arange(n) % 2
    noise = rng.normal(size=n)
    kind = "roc_auc" if name != "accuracy" else name
    models = [model(kind, y, noise, 0.1, rng) for _ in range(3)]
    if name == "neg_brier_score":
        shift = math.sqrt(2) * norm.ppf(0.9)
        models = [1 / (1 + np.exp(-shift * one)) for one in models]
    holdout = LadderHoldout(rng.normal(size=(n, 2)), y, scoring=name, ledger="memory")
    holdout.finalists(models)
    found, advice = holdout.certificate(), reserve_advice(n=n, metric=name)
    assert advice is not None and found.log_count == pytest.approx(FINALISTS)
    # Ends that are computed from rows are rounded outward by up to a twentieth.
    assert found.score - found.low == pytest.approx(advice.finalists.without, rel=0.2)
    # What is announced is what is new: two copies of the second model are none.
    copied = LadderHoldout(rng.normal(size=(n, 2)), y, scoring=name, ledger="memory")
    copied.finalists([models[0], models[1], models[1] + 0, models[1] + 0])
    assert copied.certificate().log_count == pytest.approx(FINALISTS - math.log(3 / 2))


def test_a_reserve_is_recommended_where_it_is_worth_its_rows() -> None:
    for name, n in zip(METRICS, itertools.cycle((200, 5000)), strict=False):
        advice = reserve_advice(n=n, metric=name)
        if advice is None:
            continue
        worth = advice.climb.reserved <= WORTH * advice.climb.without
        assert advice.share == (HALF if worth and n >= FEWEST_ROWS else 0.0)
        assert 0 < advice.finalists.without < advice.climb.without
        assert advice.finalists.log_count < advice.climb.log_count
    alone = reserve_advice(n=5000, submissions=1)
    assert alone is not None and alone.share == 0 and alone.climb.log_count < 1
    assert "no reserve, it is not worth its rows" in str(alone)


def test_what_has_no_certificate_has_no_advice() -> None:
    for name in ("neg_max_error", "spearman", "pearson", "neg_mean_gamma_deviance"):
        assert reserve_advice(n=1000, metric=name) is None
    with pytest.raises(InvalidArgument, match="n must be"):
        reserve_advice(n=9)


def test_stated_ranges_are_the_unit_of_the_widths() -> None:
    wide, narrow = (
        reserve_advice(n=1000, metric=get_metric("neg_mean_absolute_error").with_range((0, top)))
        for top in (400.0, 4.0)
    )
    assert wide is not None and narrow is not None
    assert wide.climb.without == pytest.approx(100 * narrow.climb.without, rel=0.02)
    r2 = get_metric("r2").with_target_range((0.0, 100.0), (0.0, 20.0))
    advice = reserve_advice(n=1000, metric=r2)
    assert advice is not None and 0 < advice.finalists.without < advice.climb.without < 1


def test_plan_and_command_state_it() -> None:
    found = plan(n=1000, submissions=50, scoring="roc_auc")
    advice = found.advice
    assert advice is not None and str(advice) in str(found)
    assert advice.improvements == found.improvements == 5
    arguments = ["plan", "--rows", "1000", "--submissions", "50"]
    result = CliRunner().invoke(app, [*arguments, "--scoring", "roc_auc"])
    assert str(advice) in result.output
    printed = CliRunner().invoke(app, [*arguments, "--scoring", "roc_auc", "--json"])
    assert json.loads(printed.output)["advice"]["climb"]["reserved"] == advice.climb.reserved


def test_status_gives_no_width_that_it_does_not_know() -> None:
    """The line was up to 28 times too small for R2: no advice on a reserve is in a status."""
    X, y = np.random.default_rng(0).normal(size=(600, 2)), np.arange(600) % 2
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory", name="a")
    assert "reserve" not in dict(holdout.status().lines())
    kept = LadderHoldout(X + 1, y, scoring="accuracy", ledger="memory", name="b", reserve=0.3)
    assert "180 rows" in dict(kept.status().lines())["reserve"]
