"""Stated ranges of the loss: in the unit that the metric shows, and what was clipped is counted."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import get_scorer

from ladderholdout import LadderHoldout
from ladderholdout.errors import HoldoutConflict, InvalidArgument, RangeWarning
from ladderholdout.guard.health import verify_holdout
from ladderholdout.mechanisms import GateLadder
from ladderholdout.metrics import Metric, get_metric
from ladderholdout.metrics.scores import squared
from tests.support.holdouts import is_repeat
from tests.support.ledgers import record

N = 200
RMSE = "neg_root_mean_squared_error"
rng = np.random.default_rng(3)
X, y = rng.normal(size=(N, 2)), 30.0 * rng.normal(size=N)
errors = rng.choice([-74.5, 74.5], size=N)


@pytest.fixture(autouse=True)
def _loud() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("scoring", "largest", "true"),
    [
        (RMSE, 200, -74.5),
        ("neg_mean_absolute_error", 200, -74.5),
        ("neg_mean_squared_error", 200**2, -(74.5**2)),
    ],
)
def test_a_range_is_in_the_unit_that_the_metric_shows(
    scoring: str, largest: float, true: float
) -> None:
    """The issue's own case: -13.49 was released and certified for a true -74.5."""
    holdout = LadderHoldout(X, y, scoring=scoring, loss_range=(0, largest), ledger="memory")
    assert holdout.submit(y + errors).score == pytest.approx(true, rel=0.01)
    found = holdout.certificate()
    assert found.low < true < found.high  # type: ignore[operator]
    assert holdout.metric.loss_range == (0.0, float(largest))


def test_a_metric_of_ones_own_states_its_range_in_that_unit_too() -> None:
    own = Metric("own", "values", squared, loss_range=(0, 200), root=True, clip=True)
    assert own.unit == 40000.0
    holdout = LadderHoldout(X, y, scoring=own, ledger="memory")
    assert holdout.submit(y + errors).score == pytest.approx(-74.5, rel=0.01)
    with pytest.raises(InvalidArgument, match="neither below 0"):
        Metric("own", "values", squared, loss_range=(-1, 200), root=True)


def test_a_ladder_of_version_0_1_keeps_its_range(tmp_path: Path) -> None:
    """It stands in the ledger as the range of squared errors, and is that to the bit."""
    place, largest = tmp_path / "ledger.db", 200.0
    assert np.sqrt(largest) ** 2 != largest
    metric = get_metric(RMSE).with_risk_range((0, largest))
    made = LadderHoldout(X, y / 10, scoring=metric, name="old", ledger=place)
    assert made.submit(y / 10 + errors / 10).score == pytest.approx(-7.45, rel=0.02)
    found = LadderHoldout.open("old", ledger=place)
    _, ladder, _ = record(found)
    assert json.loads(json.dumps(ladder.settings.metric_settings)) == {"loss_range": [0, largest]}
    assert found.metric.risk_range == (0.0, largest)
    assert found.metric.loss_range == pytest.approx((0, 14.1421356))
    assert is_repeat(found, found.submit(y / 10 + errors / 10))
    again = LadderHoldout(X, y / 10, scoring=RMSE, ledger=place)
    assert again.metric == found.metric
    shown = found.metric.loss_range
    stated = LadderHoldout(X, y / 10, scoring=RMSE, loss_range=shown, ledger=place)
    assert stated.metric.risk_range == (0.0, largest)
    with pytest.raises(HoldoutConflict, match=r"loss_range \(0\.0, 14\.14.*ask for \(0\.0, 200"):
        LadderHoldout(X, y / 10, scoring=RMSE, loss_range=(0, 200), ledger=place)


def test_clipped_losses_are_counted_for_the_audit_and_nowhere_else(tmp_path: Path) -> None:
    with pytest.warns(RangeWarning):
        holdout = LadderHoldout(
            X, y, scoring=RMSE, loss_range=(0, 50), ledger=tmp_path / "l.db", name="narrow"
        )
    fine = np.where(np.arange(N) < 37, 60.0, 1.0)
    seen = [holdout.submit(y + fine), holdout.submit(y + 2 * fine), holdout.submit(y + fine)]
    # All of its losses are, which the certificate shows.
    with pytest.warns(RangeWarning, match="37 of 200 rows"):
        certificate = holdout.certificate()
    assert certificate.clipped is not None and certificate.clipped[0] == 37
    assert "clipped=" not in repr((seen, holdout.history()))
    with pytest.warns(RangeWarning, match="37 of 200 rows"):
        audit = holdout.owner.audit()
    assert [one.clipped for one in audit.submissions] == [37, 37, None]
    assert [row["clipped"] for row in audit.rows()] == [37, 37, None]
    assert "clipped losses        in 2 of 2 submissions, up to 37 of 200 rows" in str(audit)
    assert "in the incumbent 37" in str(audit)


def test_where_nothing_can_be_clipped_an_audit_counts_nothing() -> None:
    holdout = LadderHoldout(X, y > 0, scoring="accuracy", ledger="memory")
    holdout.submit(y > 1)
    audit = holdout.owner.audit()
    assert audit.submissions[0].clipped is None and "clipped" not in str(audit)


@pytest.mark.parametrize(("largest", "narrow"), [(30, True), (150, False)])
def test_a_narrow_range_is_said_once_to_whoever_starts_the_ladder(
    largest: float, narrow: bool, tmp_path: Path
) -> None:
    def start() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            LadderHoldout(
                X, y, scoring=RMSE, loss_range=(0, largest), ledger=tmp_path / "l.db", reserve=0.3
            )
        assert all(one.filename == __file__ for one in caught)
        return [str(one.message) for one in caught if one.category is RangeWarning]

    assert len(start()) == narrow
    assert start() == []


def test_the_evidence_replays_with_the_count(tmp_path: Path) -> None:
    holdout = LadderHoldout(
        X, y, scoring=RMSE, loss_range=(0, 150), ledger=tmp_path / "l.db", name="replayed"
    )
    holdout.submit(y + errors)
    holdout.submit(y + errors / 2)
    assert verify_holdout(holdout.ledger, "replayed").findings == ()


@pytest.mark.parametrize(
    "scoring",
    [
        "r2",
        "explained_variance",
        RMSE,
        "neg_mean_absolute_error",
        "neg_mean_squared_error",
    ],
)
def test_whatever_range_is_stated_what_is_shown_is_the_metric(scoring: str) -> None:
    """Of a column of the mean, of which nearly all errors are beyond the range."""
    warnings.simplefilter("ignore", RangeWarning)
    stated: dict[str, Any] = {"loss_range": (0, 4.0 if "squared" not in scoring else 16.0)}
    if get_metric(scoring).takes_target_range:
        stated["target_range"] = (-200.0, 200.0)
    holdout = LadderHoldout(X, y, scoring=scoring, ledger="memory", **stated)
    column = np.full(N, 5.0)
    plain = get_scorer(scoring)._score_func, get_scorer(scoring)._sign
    true = plain[1] * plain[0](y, column)
    draws = np.random.default_rng(0).integers(0, N, (200, N))
    slack = np.std([plain[1] * plain[0](y[draw], column[draw]) for draw in draws]) / 4 + 1e-9
    release = holdout.submit(column)
    (entry,) = holdout.history()
    for shown in (release.score, entry.score, holdout.status().score):
        assert abs(shown - true) <= slack
    # An estimate of one submission corrects nothing.
    assert abs(holdout.estimate().score - true) <= slack
    found = holdout.certificate()
    assert "errors clipped at " in found.line() or "losses clipped at " in found.line()
    assert abs(found.score - true) <= slack and found.clipped[0] > N / 2


def test_a_gate_tests_clipped_losses_and_says_so() -> None:
    """A model that is better by one huge error alone is better, and no test can show it."""
    warnings.simplefilter("ignore", RangeWarning)
    huge, none = np.where(np.arange(N) == 0, 1e4, 1.0), np.ones(N)
    holdout = LadderHoldout(
        X, y, scoring=RMSE, loss_range=(0, 50), mechanism=GateLadder(), ledger="memory"
    )
    holdout.gate(y + huge)
    decision = holdout.gate(y + none)
    assert not decision.accepted and decision.reason.endswith("with errors clipped at 50.")
    better = holdout.gate(y + 0.1)
    assert not better.accepted or "errors clipped at 50" in better.reason
    assert holdout.reveal() == pytest.approx(-np.sqrt(np.mean(huge**2)), rel=1e-2)
