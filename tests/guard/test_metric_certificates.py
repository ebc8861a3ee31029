"""Certificates that depend on the rows: AUC, F1, balanced accuracy, R2, RMSE and the like.

They are on record before they are shown, and certificates of later incumbents pay for them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import r2_score

from ladderholdout import LadderHoldout
from ladderholdout.certificates.metric_limits import Rows, score_limits
from ladderholdout.certificates.score_intervals import certify_score
from ladderholdout.certificates.transcript import Transcript
from ladderholdout.cli import app
from ladderholdout.errors import (
    HoldoutConflict,
    InvalidArgument,
    LedgerError,
    OpenedWarning,
    RangeWarning,
)
from ladderholdout.guard.views import ScoreCertificate
from ladderholdout.mechanisms import SimplifiedLadder
from ladderholdout.metrics import METRICS, Metric, get_metric
from tests.support.commands import CliRunner
from tests.support.ledgers import shown_of, stored, tamper

N = 400
RANGES: dict[str, Any] = {
    "r2": {"target_range": (-5, 5), "loss_range": (0, 4)},
    "neg_root_mean_squared_error": {"loss_range": (0, 4)},
}
NAMES = ["roc_auc", "f1", "balanced_accuracy", *RANGES]


def drawn(name: str, parts: list[float], seed: int = 0) -> tuple[Any, Any, list[Any]]:
    """Return rows, labels, and predictions that are noise and a part of the truth."""
    rng = np.random.default_rng(seed)
    metric, X = get_metric(name), rng.normal(size=(N, 1))
    if not metric.is_classification:
        y = np.clip(rng.normal(size=N), -4.9, 4.9)
        return X, y, [np.clip(part * y, y - 4.0, y + 4.0) for part in parts]
    y = np.arange(N) % 2
    given = [part * (2 * y - 1) + rng.normal(size=N) for part in parts]
    if metric.response == "labels":
        given = [(one > 0).astype(int) for one in given]
    return X, y, given


def searched(
    name: str, parts: list[float], seed: int = 0, ledger: Any = "memory", **settings: Any
) -> LadderHoldout:
    X, y, given = drawn(name, parts, seed)
    found = LadderHoldout(
        X, y, scoring=name, ledger=ledger, name="rows", **RANGES.get(name, {}), **settings
    )
    for predictions in given:
        found.submit(predictions)
    return found


def recorded(holdout: LadderHoldout) -> tuple[Any, ...]:
    return shown_of(holdout, "intervals")


def true_score(name: str, part: float) -> float:
    right = float(norm.cdf(part))
    return {
        "roc_auc": float(norm.cdf(part * math.sqrt(2.0))),
        "f1": right,
        "balanced_accuracy": right,
        "r2": 1.0 - (1.0 - part) ** 2,
        "neg_root_mean_squared_error": part - 1.0,
    }[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_search_has_an_interval_that_holds(name: str) -> None:
    parts = [0.0, 0.3, 0.1, 0.6, 0.5, 0.65]
    for seed in range(2):
        holdout = searched(name, parts, seed)
        found = holdout.certificate()
        assert found.low is not None and found.high is not None and found.score is not None
        assert found.submission is not None and found.log_count is not None
        truth = true_score(name, parts[found.submission - 1])
        # Each is false with a probability of at most .05, and in truth of far less; the clipped
        # tails of the normal distribution change the true scores by less than 1e-3.
        assert found.low - 1e-3 <= truth <= found.high + 1e-3
        assert found.low <= found.score <= found.high
        assert 0.69 < found.log_count < 45.0
        assert found.high - found.low < (1.9 if name == "r2" else 1.1)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_on_record_before_it_is_shown_and_shown_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    holdout = searched(name, [0.2, 0.6], ledger=path)
    assert recorded(holdout) == ()
    before = holdout.status().certificate
    assert "certificate() works it out" in str(before)
    found = holdout.certificate()
    (one,) = recorded(holdout)
    assert (one.submission, one.low, one.high) == (found.submission, found.low, found.high)
    assert 5.0 < one.log_values < 20.0
    # Again, by another handle, and in what is shown without a request: the same interval.
    assert holdout.certificate() == LadderHoldout.open("rows", ledger=path).certificate() == found
    assert holdout.status().certificate == found
    assert len(recorded(holdout)) == 1
    other = holdout.certificate(0.8)
    assert other.confidence == 0.8 and other.price > 0.0 and len(recorded(holdout)) == 2
    # With fewer labels to be right about, it would be narrower, but for the price.
    assert holdout.certificate() == found


@pytest.mark.parametrize("name", ["matthews_corrcoef", "neg_root_mean_squared_error", "r2"])
def test_fresh_ledgers_certify_and_compare_the_same_rows_alike(name: str) -> None:
    X, y, (first, second) = drawn(name, [0.8, 0.6])
    shown = []
    # Which order the rows are registered in does not matter, and how the ladder is called.
    for order in (np.arange(N), np.random.default_rng(1).permutation(N)):
        holdout = LadderHoldout(
            *(X[order], y[order]),
            scoring=name,
            ledger="memory",
            ladder=f"from {order[0]}",
            **RANGES.get(name, {}),
        )
        holdout.submit(first[order])
        found = holdout.certificate()
        difference = holdout.compare(first[order], second[order])
        shown.append((found.low, found.high, difference.low, difference.high))
    assert shown[0] == shown[1]


def test_certificates_of_later_incumbents_pay_for_it() -> None:
    asked, silent = (searched("roc_auc", [0.2, 0.4]) for _ in range(2))
    asked.certificate()
    (one,) = recorded(asked)
    (better,) = drawn("roc_auc", [1.5], seed=1)[2]
    counts = []
    for holdout in (asked, silent):
        assert holdout.submit(better).improved
        counts.append(holdout.certificate().log_count or 0.0)
    assert counts[0] == pytest.approx(counts[1] + one.log_values)


def test_holdouts_that_share_rows_pay_for_it(tmp_path: Path) -> None:
    def shared(ask: bool) -> float:
        path = tmp_path / f"{ask}.db"
        first = searched("roc_auc", [0.2, 0.4], ledger=path)
        if ask:
            first.certificate()
        X, y, _ = drawn("roc_auc", [])
        fresh = np.random.default_rng(9).normal(size=(300, 1))
        rows = np.concatenate([X[:100], fresh]), np.concatenate([y[:100], np.arange(300) % 2])
        second = LadderHoldout(
            *rows, scoring="accuracy", ledger=path, name="second", overlap="ignore"
        )
        second.submit(rows[1])
        return second.certificate().log_count or 0.0

    assert shared(ask=True) > shared(ask=False) + 5.0


@pytest.mark.parametrize("name", ["roc_auc", "f1", "matthews_corrcoef", "r2", "concordance"])
def test_what_is_shown_lies_outside_of_the_limits_and_is_one_of_few(name: str) -> None:
    rng, n = np.random.default_rng(2), 400
    metric = METRICS[name]
    y = rng.integers(0, 2, n) if metric.is_classification else rng.uniform(-1, 1, n)
    if not metric.is_classification:
        metric = metric.with_target_range((-1, 1), loss_range=(0, 0.5))
    given = {
        "labels": np.where(rng.random(n) < 0.8, y, 1 - y),
        "scores": y + rng.normal(size=n),
        "values": 0.7 * y,
    }[metric.response]
    released = round(metric.to_score(metric.evaluate(y, given).risk), 2)
    rows = [Rows(y, given, np.random.default_rng(0)) for _ in range(2)]
    found = certify_score(metric, rows[0], Transcript(0, 7, ()), released=released)
    exact = score_limits(metric, rows[1], math.log(0.025) - found.log_count)
    assert found.low <= exact.low < exact.high <= found.high
    # Outward by a twentieth of the distance from the released score at most.
    for end, limit in ((found.low, exact.low), (found.high, exact.high)):
        assert abs(end - released) <= 1.05 * abs(limit - released) + 1e-12
    assert 6.0 < found.log_values < 25.0


def test_all_ends_that_can_be_shown_have_probabilities_of_at_most_one_in_all() -> None:
    """Kraft's inequality, for the price: with one more value it would not hold."""
    y = np.arange(200) % 2
    seen: dict[float, float] = {}
    for wrong in range(100):
        given = np.where(np.arange(200) < wrong, 1 - y, y)
        rows = Rows(y, given, np.random.default_rng(0))
        found = certify_score(get_metric("f1"), rows, Transcript(0, 1, ()), released=0.5)
        seen[found.low] = seen.get(found.low, 0.0)
        seen[found.low] = max(seen[found.low], math.exp(-found.log_values / 2.0))
    assert len(seen) > 10
    from ladderholdout.certificates.score_intervals import _FARTHEST, _NEIGHBOURS, _Code

    code, total, ends = _Code(0.0, 1.0), 0.0, set()
    for place in range(-_FARTHEST, _FARTHEST + 1):
        end, price = code.below(-(_NEIGHBOURS ** (place - 0.5)), -math.inf)
        ends.add(end)
        total += math.exp(-price)
    _, price = code.below(-2.0, -1.0)
    assert len(ends) == 2 * _FARTHEST + 1
    assert 0.99 < total + math.exp(-price) <= 1.0 + 1e-9


def test_a_limit_of_minus_infinity_is_shown_as_such(tmp_path: Path) -> None:
    y = np.random.default_rng(3).uniform(-1, 1, 20)
    holdout = LadderHoldout(
        np.arange(20.0).reshape(-1, 1), y, scoring="r2", target_range=(-1, 1), ledger=tmp_path / "l"
    )
    holdout.submit(-y)
    found = holdout.certificate()
    assert found.low == -math.inf and "-inf" in found.line()
    assert holdout.certificate() == found


def test_assumptions_name_what_the_bound_does_not_allow() -> None:
    X, y, given = drawn("f1", [0.5, 1.0])
    for name, void in (("f1", True), ("accuracy", False), ("roc_auc", True), ("precision", False)):
        holdout = LadderHoldout(X, y, scoring=name, ledger="memory")
        with holdout.batch() as batch:
            for one in given:
                batch.submit(one * 1.0 if name == "roc_auc" else one)
        found = holdout.certificate()
        assert any("void." in one and "new labels" not in one for one in found.assumptions) is void
        second = batch.releases[1].submission
        assert any("batch" in one for one in found.assumptions) is (found.submission == second)


def test_what_cannot_be_allowed_for_has_a_reason() -> None:
    X, y, (given,) = drawn("roc_auc", [0.5])
    weighted = LadderHoldout(
        X, y, scoring="roc_auc", sample_weight=1.0 + X[:, 0] ** 2, ledger="memory"
    )
    weighted.submit(given)
    assert "with weights" in str(weighted.certificate()) and recorded(weighted) == ()
    holdout = searched("roc_auc", [0.5])
    amended = y.copy()
    amended[:3] = 1 - amended[:3]
    with pytest.warns(UserWarning, match="differ"):
        again = LadderHoldout(X, amended, scoring="roc_auc", ledger=holdout.ledger)
    # The incumbent was chosen before, by labels that were not those of now.
    assert again.certificate().low is not None
    again.submit(given + amended)
    assert "amended" in str(again.certificate())


def test_predictions_that_were_changed_in_the_ledger_certify_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    holdout = searched("roc_auc", [0.2, 0.6], ledger=path)
    kept = stored(path, "incumbent", "predictions")
    changed = kept[:-8] + bytes(7) + b"@"
    tamper(path, "incumbent", "predictions", changed, number=holdout.status().incumbent)
    with pytest.raises(LedgerError, match="were changed"):
        holdout.certificate()
    assert recorded(holdout) == ()


def test_a_retired_or_opened_holdout_keeps_its_certificate() -> None:
    holdout = searched("roc_auc", [0.2, 0.6])
    audit = holdout.owner.audit()
    assert audit.status.certificate.low is not None
    assert audit.status.certificate == holdout.certificate()
    (better,) = drawn("roc_auc", [2.0], seed=5)[2]
    with pytest.warns(OpenedWarning):
        assert holdout.submit(better).improved
    assert "audit had shown" in str(holdout.certificate())


def test_the_command_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", str(tmp_path / "ledger.db"))
    found = searched("r2", [0.5, 0.8], ledger=None).certificate()
    result = CliRunner().invoke(app, ["certificate", "rows", "--json"])
    assert result.exit_code == 0
    shown = json.loads(result.output)
    assert (shown["low"], shown["high"], shown["bound"]) == (found.low, found.high, "bets")


class TestTargetRange:
    def test_the_score_is_that_of_the_errors_as_they_are(self) -> None:
        metric = get_metric("r2").with_target_range((0, 10), loss_range=(0, 5))
        y = np.linspace(0, 10, 101)
        for given in (10 - y, y + 7.0, np.full(101, 5.0), 10 * (y % 2)):
            evaluation = metric.evaluate(y, given)
            assert metric.to_score(evaluation.risk) == pytest.approx(r2_score(y, given))
            assert evaluation.risks_under(np.ones((1, 101))) == pytest.approx(evaluation.risk)
        assert metric.evaluate(y, y + 7.0).clipped == 101
        assert metric.evaluate(y, y).clipped == 0
        assert metric.bounded and metric.unit == 2.0

    def test_the_share_that_was_clipped_is_named(self) -> None:
        X, y, _ = drawn("r2", [])
        holdout = LadderHoldout(
            X, y, scoring="r2", target_range=(-5, 5), loss_range=(0, 2), ledger="memory"
        )
        given = 0.8 * y
        given[:3] = y[:3] + 3.0
        holdout.submit(given)
        with pytest.warns(RangeWarning, match=r"3 of 400 rows .* \(loss_range=\(0, 2\)\)"):
            found = holdout.certificate()
        # By hand: of the squared errors those of three rows are 4 instead of 9.
        squares = (given - y) ** 2
        share = 1 - np.minimum(squares, 4.0).sum() / squares.sum()
        shown = f"3 of 400 rows and {math.ceil(1000 * share) / 10:g} % of 1 less the score"
        assert f"true score with errors clipped at 2, which are {shown}, in" in found.line()
        assert found.clipped is not None and found.clipped[0] == 3

    def test_it_states_the_range_of_errors(self) -> None:
        absolute = get_metric("neg_mean_absolute_error").with_target_range((-1, 3))
        assert absolute.loss_range == (0.0, 4.0)
        root = get_metric("neg_root_mean_squared_error").with_target_range((-1, 3))
        assert (root.loss_range, root.risk_range) == ((0.0, 4.0), (0.0, 16.0))

    def test_a_holdout_goes_on_with_it(self, tmp_path: Path) -> None:
        path = tmp_path / "ledger.db"
        holdout = searched("r2", [0.5, 0.8], ledger=path)
        X, y, _ = drawn("r2", [])
        same = [
            LadderHoldout(X, y, ledger=path),
            LadderHoldout(X, y, scoring="r2", ledger=path),
            LadderHoldout(X, y, scoring="r2", **RANGES["r2"], ledger=path),
            LadderHoldout.open("rows", ledger=path),
        ]
        for one in same:
            assert one.certificate() == holdout.certificate()
            assert one.__ladder__.metric.target_range == (-5.0, 5.0)
        with pytest.raises(HoldoutConflict, match="target_range"):
            LadderHoldout(X, y, scoring="r2", target_range=(-6, 6), ledger=path, ladder="main")

    @pytest.mark.parametrize(
        ("settings", "argument"),
        [
            ({"scoring": "r2", "loss_range": (0, 4)}, "target_range"),
            ({"scoring": "accuracy", "target_range": (0, 1)}, "target_range"),
            ({"scoring": "neg_median_absolute_error", "target_range": (0, 1)}, "target_range"),
            ({"scoring": "neg_mean_poisson_deviance", "target_range": (0, 1)}, "target_range"),
            ({"scoring": "r2", "target_range": (3, 1)}, "target_range"),
            ({"scoring": "r2", "target_range": (-5, math.inf)}, "target_range"),
            ({"scoring": "r2", "target_range": (-5, 5), "loss_range": (1, 4)}, "loss_range"),
            ({"scoring": "r2", "target_range": (0, 1)}, "target_range"),
            ({"target_range": (0, 1)}, "target_range"),
        ],
    )
    def test_what_it_cannot_be_is_refused(self, settings: dict[str, Any], argument: str) -> None:
        X, y, _ = drawn("r2", [])
        if settings.get("scoring") == "accuracy":
            y = np.arange(N) % 2
        with pytest.raises(InvalidArgument, match=f"^{argument}"):
            LadderHoldout(X, y, ledger="memory", **settings)

    def test_a_reason_names_both_ranges(self) -> None:
        for name in ("r2", "neg_mean_absolute_error"):
            X, y, (given,) = drawn("r2", [0.5])
            holdout = LadderHoldout(X, y, scoring=name, ledger="memory")
            holdout.submit(given)
            assert "target_range" in str(holdout.certificate())
            assert "loss_range" in str(holdout.certificate())


def test_a_loss_of_ones_own_with_a_range_is_certified_by_bets() -> None:
    def hinge(targets: Any, predictions: Any) -> Any:
        return np.clip(1.0 - (2.0 * targets - 1.0) * predictions, 0.0, 2.0)

    metric = Metric("neg_hinge", "scores", loss=hinge, loss_range=(0, 2))
    X, y, given = drawn("roc_auc", [0.3, 0.9])
    holdout = LadderHoldout(X, y, scoring=metric, mechanism=SimplifiedLadder(0.02), ledger="memory")
    for one in given:
        holdout.submit(one)
    found: ScoreCertificate = holdout.certificate()
    assert found.bound == "bets" and found.low is not None


def test_rows_that_are_stated_to_be_alike_narrow_the_interval_of_a_mean_loss_of_classes(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(800, 2)), rng.integers(0, 2, 800)
    chances = np.clip(0.3 + 0.4 * y + 0.3 * rng.normal(size=800), 0.0, 1.0)
    brier = get_metric("neg_brier_score")
    widths = {}
    for name, metric in (("any", brier), ("alike", brier.with_alike_rows())):
        holdout = LadderHoldout(X, y, scoring=metric, name=name, ledger=tmp_path / name)
        holdout.submit(np.column_stack([1.0 - chances, chances]))
        found = holdout.certificate()
        assert found.low is not None and found.high is not None
        widths[name] = found.high - found.low
        assert ("stratified by the target" in " ".join(found.assumptions)) is (name == "alike")
        # What was stated is on record: whoever goes on need not state it again.
        for scoring in (None, "neg_brier_score", metric):
            again = LadderHoldout(X, y, scoring=scoring, ledger=tmp_path / name)
            assert again.metric == holdout.metric and again.certificate() == found
    assert widths["alike"] < 0.85 * widths["any"]
    with pytest.raises(HoldoutConflict, match=r"scoring get_metric.*with_alike_rows.*Leave scor"):
        LadderHoldout(X, y, scoring=brier.with_alike_rows(), ledger=tmp_path / "any")
    logs = get_metric("neg_log_loss").with_alike_rows()
    limited = LadderHoldout(X, y, scoring=logs, loss_range=(0, 4), ledger=tmp_path / "logs")
    assert limited.metric.alike_rows and limited.metric.loss_range == (0, 4)
    assert LadderHoldout.open(limited.name, ledger=tmp_path / "logs").metric == limited.metric


@pytest.mark.parametrize("name", ["accuracy", "roc_auc", "neg_mean_absolute_error", "r2"])
def test_alike_rows_are_refused_where_no_certificate_depends_on_them(name: str) -> None:
    with pytest.raises(InvalidArgument, match="alike_rows"):
        get_metric(name).with_alike_rows()
