"""Attacks the certificates of ladders: what is counted, what has none, and what they hide."""

from __future__ import annotations

import gc
import json
import math
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout, Metric
from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.transcript import Transcript, certify, later_price
from ladderholdout.cli import app
from ladderholdout.errors import HoldoutConflict
from ladderholdout.guard import commands
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.submit import Guard
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.mechanisms import (
    MECHANISMS,
    BayesBootLadder,
    BayesBootLadderBoot,
    FullDisclosure,
    GaussianLadder,
    Ladder,
    LadderBoot,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    ShakyLadder,
    SimplifiedLadder,
)
from ladderholdout.mechanisms.base import released
from ladderholdout.metrics.scales import Scale
from tests.support.commands import CliRunner
from tests.support.ledgers import head, shown_of, tamper

N = 1000
X = np.random.default_rng(0).random((N, 2))
y = np.random.default_rng(1).integers(0, 2, N)


def opened(ledger: Path | str, **settings: Any) -> LadderHoldout:
    asked = {"scoring": "accuracy", "mechanism": ParameterFreeLadder()} | settings
    return LadderHoldout(X, y, ledger=ledger, name="coins", **asked)


def wrong(errors: int, start: int = 0) -> Any:
    """Return predictions with so many errors, from this row on."""
    flip = np.zeros(N, dtype=int)
    flip[start : start + errors] = 1
    return np.abs(y - flip)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_what_was_told_before_the_incumbent_is_counted(ledger: Path) -> None:
    holdout = opened(ledger, confidence=0.9)
    for errors in (300, 310, 200, 205, 300, 120, 130):
        holdout.submit(wrong(errors))  # the second 300 is a repeat, and no query
    found = holdout.certificate()
    # Submission 6 was answered with 120 errors; four queries came before it.
    told = LadderTranscript(queries=4, improved=(1, 3), values=(300, 200), n_values=N + 1)
    transcript = Transcript.alone(told)
    by_hand = certify(0.12, N, transcript, confidence=0.9, rounding=1 / N)
    assert found.submission == 6 and found.score == pytest.approx(0.88)
    assert found.log_count == pytest.approx(by_hand.log_count)
    assert found.low == pytest.approx(1 - by_hand.high)
    assert found.high == pytest.approx(1 - by_hand.low)
    assert found.bound == "exact binomial" and found.missing is None
    assert found.low < 0.88 < found.high


def test_all_ladders_of_a_holdout_count_together(ledger: Path) -> None:
    ada = opened(ledger, account="Ada")
    with pytest.warns(UserWarning, match="account"):
        ben = opened(ledger, account="Ben", mechanism=Ladder(step=0.05))
    for errors in (300, 200):
        ben.submit(wrong(errors))
    ada.submit(wrong(250))
    told = LadderTranscript(queries=2, improved=(1, 2), values=(6, 4), n_values=21)
    by_hand = certify(0.25, N, Transcript.alone(None, [told]), rounding=1 / N)
    assert ada.certificate().log_count == pytest.approx(by_hand.log_count)
    alone = opened("memory")
    alone.submit(wrong(250))
    assert alone.certificate().low > ada.certificate().low
    # What comes after the incumbent does not touch its certificate.
    before = ada.certificate()
    ben.submit(wrong(10))
    assert ada.certificate() == before


def test_a_grid_is_one_batch_and_a_climb_is_none(ledger: Path) -> None:
    rows = np.random.default_rng(2).random((80, 2))
    labels = (rows[:, 0] > 0.5).astype(int)
    holdout = opened(ledger)
    search = GridSearchCV(
        DecisionTreeClassifier(random_state=0),
        {"max_depth": [1, 2, 3, 4], "min_samples_leaf": [1, 2, 3]},
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
    )
    search.fit(rows, labels)
    status, found = holdout.status(), holdout.certificate()
    assert status.incumbent is not None
    # One of twelve, whichever it is and whichever of the others predict alike; the first event.
    assert found.log_count == pytest.approx(np.log(12) + np.log(5 / 4))
    by_hand = Transcript(before=0, place=status.incumbent, ladders=(), event=1, size=12)
    assert found.log_count == pytest.approx(by_hand.log_count())
    assert "batch" in " ".join(found.assumptions) or status.incumbent == 1


@pytest.mark.parametrize(
    ("mechanism", "why"),
    [(LadderBoot(alpha=0.05, n_bootstrap=20), "LadderBoot"), (FullDisclosure(), None),
     (BayesBootLadderBoot(odds=9, n_bootstrap=20), "BayesBootLadderBoot"),
     (BayesBootLadder(odds=9), None), (BayesBootLadder(odds=9, step=0.02), None),
     (GaussianLadder(step=0.02, noise=0.01), None),
     (SimplifiedLadder(step=0.01), None), (ShakyLadder(step=0.02, noise=0.01), None)],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_who_has_a_certificate(ledger: Path, mechanism: Mechanism, why: str | None) -> None:
    holdout = opened(ledger, mechanism=mechanism)
    for errors in (300, 200, 100):
        holdout.submit(wrong(errors))
    found = holdout.certificate()
    if why is not None:
        assert found.low is None and found.high is None
        assert found.missing is not None and why in found.missing and why in str(found)
        return
    assert found.low is not None and found.high is not None and found.score is not None
    assert 0.0 <= found.low <= found.score <= found.high <= 1.0
    # One who tells everything pays for everything, and so do noise and a fine grid.
    in_full = mechanism.discloses or mechanism.noisy or mechanism.resolution(N) < 0.01
    assert in_full or found.log_count < 2 * np.log(N)
    assert not mechanism.discloses or found.log_count > 2 * np.log(N)


def test_an_audit_of_any_ladder_ends_the_certificates_of_its_holdout(ledger: Path) -> None:
    holdout = opened(ledger)
    holdout.submit(wrong(300))
    before = holdout.certificate()
    with pytest.warns(UserWarning, match="account"):
        other = opened(ledger, account="auditor")
    other.submit(wrong(400))
    other.owner.audit()
    assert holdout.certificate() == before, "what stood before the opening stands"
    holdout.submit(wrong(100))
    found = holdout.certificate()
    assert found.low is None and "audit" in str(found.missing)


def test_units_signs_and_ranges(ledger: Path, tmp_path: Path) -> None:
    targets = np.linspace(0, 10, N)
    holdout = LadderHoldout(
        X, targets, scoring="neg_mean_absolute_error", loss_range=(0, 10), ledger=ledger
    )
    holdout.submit(targets + 0.5)
    found = holdout.certificate()
    assert found.low < found.score < found.high < 0  # type: ignore[operator]
    assert found.bound == "bets"
    squares = LadderHoldout(
        X, targets, scoring="neg_root_mean_squared_error", loss_range=(0, 10),
        ledger=tmp_path / "other.db",
    )  # fmt: skip
    squares.submit(targets + 2.0)
    found = squares.certificate()
    assert found.low < found.score == pytest.approx(-2.0)  # type: ignore[operator]
    assert found.score < found.high <= 0  # type: ignore[operator]


def test_a_range_of_a_metric_of_ones_own_that_does_not_begin_at_zero(ledger: Path) -> None:
    def gain(targets: Any, predictions: Any) -> Any:
        return np.where(targets == predictions, -1.0, 1.0)

    metric = Metric("neg_gain", "labels", loss=gain, loss_range=(-1, 1))
    holdout = opened(ledger, scoring=metric)
    for errors in (300, 200):
        holdout.submit(wrong(errors))
    found = holdout.certificate()
    assert found.score == pytest.approx(0.6)
    assert 0.4 < found.low < 0.6 < found.high < 0.8  # type: ignore[operator]
    # What is on record needs no function any more; of the next incumbent nothing is.
    by_name = LadderHoldout.open("coins", ledger=ledger)
    assert by_name.certificate() == found
    holdout.submit(wrong(100))
    shown = by_name.status().certificate
    assert shown.low is None and "scoring=" in str(shown.missing)


def test_what_has_no_certificate_says_why(ledger: Path, tmp_path: Path) -> None:
    holdout = opened(ledger)
    assert "no incumbent" in str(holdout.certificate())
    area = opened(tmp_path / "auc.db", scoring="roc_auc", mechanism=Ladder(step=0.01))
    area.submit(np.random.default_rng(0).random(N))
    assert "certificate() works it out" in str(area.status().certificate)
    ranks = LadderHoldout(X, y * 3.5, scoring="spearman", ledger=tmp_path / "ranks.db")
    ranks.submit(np.random.default_rng(0).random(N))
    assert "correlation of ranks" in str(ranks.certificate())
    loose = LadderHoldout(X, y * 3.5, scoring="neg_mean_squared_error", ledger=tmp_path / "mse.db")
    loose.submit(np.zeros(N))
    assert "loss_range" in str(loose.certificate())
    log = opened(tmp_path / "log.db", scoring="neg_log_loss")
    log.submit(np.full(N, 0.4))
    assert "loss_range" in str(log.certificate())
    for confidence in (0.0, 1.0, -1, 2, float("nan"), "0.9"):
        with pytest.raises(InvalidArgument, match="confidence"):
            holdout.certificate(confidence)  # type: ignore[arg-type]


def test_default_ladders_of_other_metrics_are_counted_too(ledger: Path) -> None:
    """What a ladder on the AUC tells is rounded and falls: one on the accuracy pays for it."""
    area = LadderHoldout(X, y, scoring="roc_auc", ledger=ledger, name="coins")
    told = [area.submit(y * strength + X[:, 0]).score for strength in (0.0, 0.5, 5.0)]
    assert None not in told and told == sorted(set(told))
    with pytest.warns(UserWarning, match="ladder"):
        plain = opened(ledger, ladder="plain", mechanism=None)
    plain.submit(wrong(300))
    # The grid of the AUC, counted: what numbers nearby are released as.
    # It is finest at the ends, and so are these.
    risks = np.sin(np.linspace(0, np.pi / 2, 20_001)) ** 2
    grid = sorted({Scale("shares").nearest(risk, N) for risk in risks})
    values = tuple(
        int(np.argmin(np.abs(np.array(grid) - 1 + score))) for score in told if score is not None
    )
    # The rule's step is .5 over the root of n: a release is below the last one, so rounded.
    step = 0.5 / math.sqrt(N)
    step = float(f"{step:.2g}")
    bars = [(math.floor((1 - score) / step + 0.5) - 0.5) * step for score in told[:2] if score]
    choices = (len(grid), *(int(np.argmin(np.abs(np.array(grid) - bar))) + 1 for bar in bars))
    ladder = LadderTranscript(3, (1, 2, 3), values, n_values=len(grid), choices=choices)
    by_hand = certify(0.3, N, Transcript.alone(None, [ladder]), rounding=1 / N)
    assert plain.certificate().log_count == pytest.approx(by_hand.log_count)


@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_mean_squared_log_error"])
def test_losses_without_a_largest_one_have_no_certificate(scoring: str) -> None:
    """They have a scale of their own, but no range: an interval would be made up."""
    holdout = opened("memory", scoring=scoring)
    holdout.submit(np.clip(y * 0.6 + 0.2, 0, 1))
    assert "loss_range" in str(holdout.certificate())
    ranged = opened("memory", scoring=scoring, loss_range=(0, 3))
    ranged.submit(np.clip(y * 0.6 + 0.2, 0, 1))
    found = ranged.certificate()
    assert found.low is not None and found.high is not None
    assert -3 <= found.low < found.high <= 0


@pytest.mark.long
def test_ladders_on_other_metrics_count_in_that_of_others(ledger: Path) -> None:
    plain = opened(ledger)
    with pytest.warns(UserWarning, match="opens ladder"):
        area = opened(ledger, ladder="auc", scoring="roc_auc", mechanism=BayesBootLadder(odds=9))
    rng = np.random.default_rng(3)
    for noise in (3.0, 1.0):
        area.submit(y + noise * rng.normal(size=N))
    plain.submit(wrong(200))
    alone = opened("memory")
    alone.submit(wrong(200))
    found, fresh = plain.certificate(), alone.certificate()
    assert found.low < fresh.low and fresh.high < found.high  # type: ignore[operator]
    assert area.certificate().low is not None


def test_a_risk_that_has_no_largest_value_counts_as_one_of_all_on_the_grid() -> None:
    rows = LadderHoldout(
        X, y * 1.0, scoring="neg_mean_squared_error", loss_range=(0, 1), ledger="memory"
    )
    before = rows.submit(y * 0.5), rows.certificate().log_count
    with pytest.warns(UserWarning, match="opens ladder"):
        determination = LadderHoldout(
            X, y * 1.0, scoring="r2", mechanism=Ladder(step=0.1), ladder="r2", ledger=rows.ledger
        )
    determination.submit(y * 50.0)  # a risk of 2,401 on a grid of 0.1
    rows.submit(y * 0.9)
    price = rows.certificate().log_count
    assert before[1] is not None and price is not None
    # Of 300 and more powers of ten of either sign, each with some hundreds of numbers.
    assert before[1] + np.log(2 * 300 * 100) < price < before[1] + 64 * np.log(2)


@pytest.mark.parametrize("reserve", [None, 0.3])
def test_who_has_none_is_told_what_to_do(reserve: float | None) -> None:
    settings = {"mechanism": Ladder(step=0.01), "reserve": reserve}
    ranks = LadderHoldout(X, y * 3.5, scoring="spearman", ledger="memory", **settings)
    ranks.submit(np.random.default_rng(0).random(N))
    assert ("reserve_certificate()" in str(ranks.certificate())) == (reserve is not None)
    weighted = opened("memory", scoring="roc_auc", sample_weight=1.0 + X[:, 0] ** 2, **settings)
    weighted.submit(np.random.default_rng(0).random(N))
    assert "with weights" in str(weighted.certificate())
    assert ("reserve_certificate()" in str(weighted.certificate())) == (reserve is not None)
    boot = opened("memory", mechanism=LadderBoot(alpha=0.05), reserve=reserve)
    boot.submit(y)
    assert "drawn anew" in str(boot.certificate())
    assert ("reserve_certificate()" in str(boot.certificate())) == (reserve is not None)
    bare = opened("memory", mechanism=FullDisclosure(), sample_weight=np.full(N, 2.0))
    bare.submit(y)
    assert "without rounding" in str(bare.certificate())


class Talkative(SimplifiedLadder):
    """A rule that somebody made of another one, and that tells what that does not."""

    def decide(self, state: Any, evidence: Any, rng: Any) -> Any:
        return released(state, evidence, evidence.risk)


class Counted(SimplifiedLadder):
    """One that says how its releases are counted."""

    counted = "falling"

    def decide(self, state: Any, evidence: Any, rng: Any) -> Any:
        return SimplifiedLadder.decide(self, state, evidence, rng)


def test_a_rule_of_ones_own_says_how_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in (Talkative, Counted):
        monkeypatch.setitem(MECHANISMS, rule.__name__, rule)
    silent, counted, plain = (
        opened("memory", mechanism=rule(step=0.01))
        for rule in (Talkative, Counted, SimplifiedLadder)
    )
    for holdout in (silent, counted, plain):
        for errors in (300, 200):
            holdout.submit(wrong(errors))
    assert "does not state how" in str(silent.certificate())
    assert counted.certificate() == plain.certificate()


def test_the_command_says_what_python_says(ledger: Path) -> None:
    holdout = opened(ledger)
    holdout.submit(wrong(300))
    words = ["certificate", "coins", "--confidence", "0.9", "--ledger", str(ledger)]
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    assert shown.exit_code == 0
    assert shown.stdout.strip() == str(holdout.certificate(0.9))
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert found["low"] == holdout.certificate(0.9).low


def test_weights_are_taken_in(ledger: Path) -> None:
    weights = np.where(np.arange(N) < 500, 1.0, 4.0)
    holdout = opened(ledger, sample_weight=weights)
    holdout.submit(wrong(100))
    found = holdout.certificate()
    assert "weighted" in found.bound and any("weights" in one for one in found.assumptions)
    assert not any("range" in one for one in found.assumptions), "errors are 0 or 1"
    equal = opened("memory", sample_weight=np.full(N, 2.0))
    equal.submit(wrong(40))
    plain = opened("memory")
    plain.submit(wrong(40))
    wide, narrow = equal.certificate(), plain.certificate()
    assert wide.low <= narrow.low <= narrow.high <= wide.high  # type: ignore[operator]


def test_a_certificate_is_made_of_releases_alone(ledger: Path, tmp_path: Path) -> None:
    # Two searches with the same releases and other raw scores: the same certificate.
    one, other = opened(ledger), opened(tmp_path / "other.db")
    for holdout, second in ((one, 299), (other, 305)):
        holdout.submit(wrong(300))
        holdout.submit(wrong(second, start=2))
    assert [a.improved for a in one.history()] == [True, False]
    assert one.history()[1].score == other.history()[1].score
    assert one.certificate() == other.certificate()


def test_it_can_be_had_by_name_and_says_what_it_is(ledger: Path) -> None:
    holdout = opened(ledger)
    holdout.submit(DummyClassifier(strategy="constant", constant=1).fit(X, y))
    found = LadderHoldout.open("coins", ledger=ledger).certificate()
    assert found == holdout.certificate()
    assert "void unless" in str(found) and "submission 1" in str(found)
    assert found.ends() in found.line()


# One confidence


def test_the_confidence_is_fixed_at_registration(ledger: Path) -> None:
    holdout = opened(ledger, confidence=0.9)
    holdout.submit(wrong(300))
    by_hand = certify(0.3, N, Transcript.alone(), confidence=0.9, rounding=1 / N)
    for handle in (holdout, opened(ledger), opened(ledger, confidence=0.9),
                   LadderHoldout.open("coins", ledger=ledger)):  # fmt: skip
        found = handle.certificate()
        assert (found.confidence, found.price) == (0.9, 0.0)
        assert found == handle.status().certificate == handle.certificate(0.9)
        assert found.high == pytest.approx(1 - by_hand.low)
    with pytest.raises(HoldoutConflict, match=r"confidence=0\.9.*0\.95"):
        opened(ledger, confidence=0.95)
    for confidence in (0.0, 1.0, -1, float("nan"), "0.9"):
        with pytest.raises(InvalidArgument, match="confidence"):
            opened("memory", confidence=confidence)
    assert opened("memory").certificate().confidence == 0.95


def test_another_confidence_is_on_record_before_it_is_shown_and_has_a_price(ledger: Path) -> None:
    holdout = opened(ledger)
    for errors in (300, 200):
        holdout.submit(wrong(errors))
    before, plain = head(holdout), holdout.certificate()
    holdout.status()
    assert plain.log_count is not None and head(holdout) == before, "reading writes nothing"
    for number, confidence in enumerate((0.99, 0.5, 0.999), 1):
        found = holdout.certificate(confidence)
        price = later_price(number, confidence)
        assert (found.confidence, found.price) == (confidence, price)
        assert found.log_count == pytest.approx(plain.log_count + price)
        assert "not the registered one" in str(found)
        assert head(holdout).length == before.length + number
        assert holdout.certificate(confidence) == found, "asked again it costs nothing more"
        assert LadderHoldout.open("coins", ledger=ledger).certificate(confidence) == found
    assert head(holdout).length == before.length + 3
    assert holdout.certificate() == plain, "the registered one keeps its own"
    assert shown_of(holdout, "confidences") == (0.99, 0.5, 0.999)
    assert verify_holdout(holdout.ledger, "coins").findings == ()

    def lower(detail: str) -> str:
        return detail.replace("0.99}", "0.7}")

    tamper(ledger, "event", "detail", lower, kind="confidence")
    changed = verify_holdout(holdout.ledger, "coins").findings
    assert [*map(str, changed)] == ["a confidence that was stated later was changed or moved"]


def test_a_reserve_and_a_board_have_the_confidences_of_their_holdout(ledger: Path) -> None:
    holdout = opened(ledger, reserve=0.5, confidence=0.9)
    holdout.submit(wrong(300))
    found, wide = holdout.reserve_certificate(), holdout.reserve_certificate(0.99)
    assert found.log_count is not None and (found.confidence, found.price) == (0.9, 0.0)
    assert wide.log_count == pytest.approx(found.log_count + later_price(1, 0.99))
    assert holdout.certificate(0.99).price == wide.price
    assert holdout.certificate(0.8).price == later_price(2, 0.8)
    board = Leaderboard(X, y, scoring="accuracy", name="board", ledger="memory", confidence=0.9)
    board.submit("Ada", wrong(300))
    assert (board.standings().confidence, board.certificate().confidence) == (0.9, 0.9)
    assert board.certificate("Ada", 0.99).price == later_price(1, 0.99)
    assert board.standings(0.8).confidence == 0.8
    assert board.certificate("Ada", 0.8).price == later_price(2, 0.8)


def test_noise_is_allowed_for_at_the_price_as_well() -> None:
    rule, transcript = ShakyLadder(step=0.02, noise=0.01), Transcript(0, 1, ())
    ends = [certify(0.3, N, transcript, noise=rule.allowance, price=paid) for paid in (0.0, 3.0)]
    exact = [certify(0.3, N, transcript, price=paid) for paid in (0.0, 3.0)]
    assert ends[1].high - ends[0].high > exact[1].high - exact[0].high + 0.02


class TestBill:
    """What `print(holdout.certificate())` says of the price."""

    def climbed(self, ledger: object = "memory", **settings: Any) -> LadderHoldout:
        holdout = opened(ledger, **settings)
        for errors in (450, 455, 380, 300, 310, 220, 150):
            holdout.submit(wrong(errors))
        return holdout

    @pytest.mark.parametrize("show", ["scores", "improvements"])
    @pytest.mark.parametrize("mechanism", [None, Ladder(step=0.05), PairedTestLadder(alpha=0.1)])
    def test_its_items_add_up_to_the_price(self, mechanism: Any, show: str) -> None:
        holdout = self.climbed(mechanism=mechanism, show=show)
        holdout.reveal()
        found = holdout.certificate()
        assert found.log_count is not None and len(found.bill) >= 2
        assert sum(nats for _, nats in found.bill) == pytest.approx(found.log_count, abs=0.15)
        for what, nats in found.bill:
            assert f"- {nats:.1f} for {what}" in str(found)

    def test_a_first_query_pays_the_least(self) -> None:
        holdout = opened("memory")
        holdout.submit(wrong(300))
        found = holdout.certificate()
        assert found.log_count == pytest.approx(np.log(5 / 4))
        assert sum(nats for _, nats in found.bill) == pytest.approx(np.log(5 / 4))
        assert found.instead == ()

    def test_other_confidences_and_what_was_shown_are_items(self, tmp_path: Path) -> None:
        holdout = opened(tmp_path / "ledger.db", scoring="roc_auc", mechanism=Ladder(step=0.05))
        rng = np.random.default_rng(0)
        for strength in (0.5, 3.0):
            holdout.submit(y * strength + rng.normal(size=N))
            holdout.certificate()
        items = dict(holdout.certificate(0.8).bill)
        assert any("estimates and intervals" in what for what in items)
        assert any("not the registered one" in what for what in items)

    def test_other_rules_are_tried_on_what_was_released(self) -> None:
        holdout = self.climbed(mechanism=SimplifiedLadder(step=1 / N))
        found = holdout.certificate()
        by_name = {name: (low, high) for name, low, high in found.instead}
        assert set(by_name) == {
            "SimplifiedLadder(step=0.001), show='improvements'",
            "SimplifiedLadder(step=0.01)",
            "SimplifiedLadder(step=0.03)",
        }
        # As if that rule had been there: nothing that did not improve would improve it.
        coarse = self.climbed(mechanism=SimplifiedLadder(step=0.03)).certificate()
        assert by_name["SimplifiedLadder(step=0.03)"] == (
            pytest.approx(coarse.low), pytest.approx(coarse.high),
        )  # fmt: skip
        low, high = by_name["SimplifiedLadder(step=0.001), show='improvements'"]
        assert found.low < low < high < found.high  # type: ignore[operator]

    def test_other_rules_are_worked_out_when_they_are_read(self, monkeypatch: Any) -> None:
        worked_out = Mock(side_effect=certify)
        monkeypatch.setattr("ladderholdout.certificates.transcript.certify", worked_out)
        found = self.climbed(mechanism=SimplifiedLadder(step=1 / N)).certificate()
        assert worked_out.call_count == 1
        written = commands.read_as(type(found), commands.written(found))
        kept = pickle.loads(pickle.dumps(found))
        assert worked_out.call_count == 4
        assert kept.instead == written.instead == tuple(found.instead) != ()
        assert str(kept) == str(written) == str(found)
        assert hash(kept) == hash(found) and kept == found

    def test_what_other_rules_are_worked_out_from_holds_no_rows(self) -> None:
        found = self.climbed(mechanism=SimplifiedLadder(step=1 / N)).certificate()
        seen, ahead = set[int](), [found.instead._work]  # type: ignore[attr-defined]
        while ahead:
            held = ahead.pop()
            if id(held) not in seen and not isinstance(held, ModuleType | type | dict):
                seen.add(id(held))
                assert not isinstance(held, np.ndarray | Guard), held
                cells = getattr(held, "__closure__", None)
                ahead += gc.get_referents(held) if cells is None else cells
        assert len(seen) > 10

    def test_what_was_not_shown_is_not_worked_out_from(self) -> None:
        holdout = self.climbed(mechanism=PairedTestLadder(alpha=0.1), show="improvements")
        holdout.reveal()
        assert holdout.certificate().instead == ()
        weighted = self.climbed(sample_weight=np.full(N, 2.0), mechanism=Ladder(step=0.05))
        assert weighted.certificate().instead == ()
