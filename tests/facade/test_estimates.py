"""`estimate()`: the winner of one batch, corrected for the choice; refused where that is wrong."""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ladderholdout import LadderHoldout, LadderStopping
from ladderholdout.certificates.codes import event_length, place_length
from ladderholdout.certificates.transcript import Transcript
from ladderholdout.errors import (
    HoldoutConflict,
    InvalidArgument,
    KnownHoldoutWarning,
    LedgerError,
)
from ladderholdout.estimates import Stopping, corrected
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.record_views import on_grid
from ladderholdout.mechanisms import (
    BayesBootLadder,
    FullDisclosure,
    LadderBoot,
    LadderRules,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    ShakyLadder,
    SimplifiedLadder,
)
from ladderholdout.metrics import get_metric
from tests.support.ledgers import (
    Shown,
    add,
    events,
    keep_no_more_than,
    predictions_kept,
    shown_of,
    stored,
    tamper,
)

N = 400


def labels(seed: int = 0, n: int = N) -> Any:
    return np.random.default_rng(seed).integers(0, 2, n)


def rows(seed: int = 0, n: int = N) -> Any:
    return np.random.default_rng(1000 + seed).normal(size=(n, 2))


def coins(count: int, seed: int = 0, n: int = N) -> list[Any]:
    return [*np.random.default_rng(50 + seed).integers(0, 2, (count, n))]


@pytest.fixture
def holdout(tmp_path: Path) -> LadderHoldout:
    return LadderHoldout(rows(), labels(), scoring="accuracy", ledger=tmp_path / "ledger.db")


# -- the correction ---------------------------------------------------------------------------


def transcribed(y: Any, models: list[Any], draws: int, rng: Any) -> float:
    """Correct the error of the best of a list, written once more from the papers.

    With the best of all as the rule, which a ladder with steps of 1/n is.
    """
    loss = np.array([model != y for model in models], dtype=float)
    k, n = loss.shape
    raw = loss.mean(axis=1)
    apart, noise = [], np.empty((draws, k))
    for b in range(draws):
        drawn = rng.integers(0, n, n)
        left = [i for i in range(n) if i not in set(drawn.tolist())]
        inside = loss[:, drawn].mean(axis=1)
        apart.append(loss[inside.argmin()][left].mean())
        noise[b] = inside - raw
    cov = np.cov(noise.T, ddof=0)
    chance = (np.trace(cov) - cov.sum() / k) / (k - 1)
    kept = max(0.0, 1 - chance / raw.var(ddof=1))
    shrunk = raw.mean() + kept * (raw - raw.mean())
    lucky = np.mean([noise[b][(shrunk + noise[b]).argmin()] for b in range(draws)])
    return float((np.mean(apart) + raw.min() - lucky) / 2)


def test_it_is_what_an_independent_transcription_says() -> None:
    """Two sets of 300 draws: their difference has a standard error of about .002 here."""
    seed = 0
    y, models = labels(seed, 200), coins(15, seed, 200)
    rules = LadderRules(SimplifiedLadder(step=1 / 200))
    best = int(np.argmin([(one != y).mean() for one in models]))
    found = corrected(get_metric("accuracy"), rules, y, models, winner=best, secret=b"x")
    assert found is not None and found.risk == (models[best] != y).mean()
    other = transcribed(y, models, 300, np.random.default_rng(seed))
    assert found.corrected == pytest.approx(other, abs=0.01)


RULES: tuple[Mechanism, ...] = (
    SimplifiedLadder(step=0.005),
    PricedLadder(),
    ParameterFreeLadder(),
    PairedTestLadder(alpha=0.2),
    FullDisclosure(),
    BayesBootLadder(9, n_posterior=200),
    LadderBoot(0.005, n_bootstrap=20),
    ShakyLadder(step=0.01, noise=0.005),
)


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_it_takes_off_what_chance_has_put_on(rule: Mechanism) -> None:
    """Thirty coins on 200 rows, ten times: the truth is .5, and a raw winner believes .57.

    The mean of ten estimates has a standard error of at most .01; beyond .03 by 3 of those.
    """
    metric, rules = get_metric("accuracy"), LadderRules(rule)
    raw, after = [], []
    for seed in range(10):
        y, models = labels(seed, 200), coins(30, seed, 200)
        errors = [(one != y).mean() for one in models]
        best = int(np.argmin(errors))
        found = corrected(
            metric, rules, y, models, winner=best, secret=bytes([seed]), n_bootstrap=60
        )
        assert found is not None
        raw.append(found.risk)
        after.append(found.corrected)
    assert np.mean(raw) < 0.44
    if rule.name == "FullDisclosure":
        return  # its incumbent is the last one: there was no choice to be corrected
    assert np.mean(after) == pytest.approx(0.5, abs=0.03)


def test_a_clear_winner_keeps_its_score() -> None:
    y = labels()
    models = [np.where(np.random.default_rng(9).random(N) < 0.9, y, 1 - y), *coins(30)]
    rules = LadderRules(PricedLadder())
    found = corrected(get_metric("accuracy"), rules, y, models, winner=0)
    assert found is not None and found.corrected == pytest.approx(found.risk, abs=0.005)


@pytest.mark.parametrize("name", ["roc_auc", "f1", "neg_root_mean_squared_error", "r2"])
def test_any_metric_is_corrected(name: str) -> None:
    rng = np.random.default_rng(3)
    metric = get_metric(name)
    y = labels() if metric.is_classification else rng.normal(size=N)
    noisy = [y + 3 * rng.normal(size=N) for _ in range(20)]
    models = coins(20) if name == "f1" else noisy
    rules = LadderRules(SimplifiedLadder(step=0.001), unit=None if metric.unit is None else 1.0)
    risks = [metric.evaluate(y, metric_form(metric, one)).risk for one in models]
    found = corrected(
        metric,
        rules,
        y,
        [metric_form(metric, one) for one in models],
        winner=int(np.argmin(risks)),
        n_bootstrap=100,
    )
    assert found is not None and found.corrected > found.risk == min(risks)


def metric_form(metric: Any, predictions: Any) -> Any:
    return predictions.astype(np.int32) if metric.name == "f1" else predictions


def test_a_training_run_is_replayed_with_its_rule_to_stop() -> None:
    """Rounds that only come after the run has stopped on the drawn rows win nothing."""
    y = labels()
    good = np.where(np.random.default_rng(4).random(N) < 0.8, y, 1 - y)
    models = [*coins(10), good]
    rules = LadderRules(SimplifiedLadder(step=0.0025))
    metric = get_metric("accuracy")
    whole = corrected(metric, rules, y, models, winner=10)
    stopped = corrected(metric, rules, y, models, winner=10, stopping=Stopping(2, 1))
    assert whole is not None and stopped is not None
    assert whole.corrected == pytest.approx(whole.risk, abs=0.01)
    assert stopped.corrected > whole.corrected + 0.05


def test_the_grid_is_finer_than_chance_and_counted() -> None:
    accuracy, squares = get_metric("accuracy"), get_metric("neg_mean_squared_error")
    for n in (100, 625, 10_000, 1_000_000):
        risk, values = on_grid(0.123456789, accuracy, n)
        error = math.sqrt(0.1235 * 0.8765 / n)
        assert abs(risk - 0.123456789) <= error / 8
        assert error / 30 < abs(risk - on_grid(risk + error / 4, accuracy, n)[0]) < error / 2
        assert math.sqrt(n) * 5 < values < math.sqrt(n) * 40
    assert on_grid(-3.0, accuracy, 100)[0] == 0.0
    assert on_grid(7.0, accuracy, 100)[0] == 1.0
    assert on_grid(1234.56, squares, 100)[0] == 1240.0


# -- on a holdout ------------------------------------------------------------------------------


def test_a_batch_of_finalists_has_an_estimate(holdout: LadderHoldout) -> None:
    final = holdout.finalists(coins(30))
    believed = holdout.status().score
    assert believed is not None and believed > 0.53 and sum(one.is_incumbent for one in final) == 1
    found = holdout.estimate()
    assert found.score is not None and found.score < believed - 0.015
    assert (found.submissions, found.reason) == (30, None)
    assert found.batch == holdout.history()[0].batch
    assert "corrected" in str(found) and "corrected" in found._repr_html_()


def test_asked_again_it_is_the_same_and_written_once(holdout: LadderHoldout) -> None:
    holdout.finalists(coins(10))
    first = holdout.estimate()
    again = LadderHoldout.open(holdout.name, ledger=holdout.ledger).estimate()
    assert again == first
    assert len(shown_of(holdout, "estimates")) == 1
    assert not verify_holdout(holdout.ledger, holdout.name).findings


def test_a_single_query_was_not_chosen(holdout: LadderHoldout) -> None:
    right = np.where(np.arange(N) < 300, labels(), 1 - labels())
    score = holdout.submit(right).score
    found = holdout.estimate()
    assert found.score == pytest.approx(score, abs=0.01) and found.submissions == 1


def refused(holdout: LadderHoldout, words: str) -> None:
    found = holdout.estimate()
    assert found.score is None and found.reason is not None and words in found.reason
    assert found.line().startswith("none: ")


def test_what_learned_from_answers_is_refused_with_a_way_out(holdout: LadderHoldout) -> None:
    refused(holdout, "no incumbent")
    for one in coins(3):
        holdout.submit(one)
    refused(holdout, "reserve")
    refused(holdout, "3 queries of this holdout are not of one batch")


def test_a_query_beside_the_batch_is_enough(holdout: LadderHoldout, tmp_path: Path) -> None:
    holdout.finalists(coins(5))
    other = LadderHoldout.open(holdout.name, ledger=holdout.ledger, account="default")
    assert other.estimate().score is not None
    holdout.submit(coins(6, seed=9)[5])
    refused(holdout, "1 queries of this holdout")


def test_a_query_through_another_ladder_counts(holdout: LadderHoldout) -> None:
    holdout.finalists(coins(5))
    with pytest.warns(KnownHoldoutWarning):
        other = LadderHoldout(
            *(rows(), labels()), scoring="accuracy", ledger=holdout.ledger, account="Ada"
        )
    other.submit(coins(6, seed=9)[5])
    refused(holdout, "1 queries")
    refused(other, "5 queries")


def test_a_holdout_that_shares_rows_and_was_queried_refuses(holdout: LadderHoldout) -> None:
    other = LadderHoldout(
        *(np.vstack([rows()[:150], rows(5)]), [*labels()[:150], *labels(5)]),
        scoring="accuracy",
        ledger=holdout.ledger,
        name="other",
        overlap="ignore",
    )
    holdout.finalists(coins(5))
    assert holdout.estimate().score is not None
    other.submit(coins(1, n=N + 150)[0])
    late = LadderHoldout.open(holdout.name, ledger=holdout.ledger)
    refused(late, "'other' has 150 of these rows")


def test_repeats_and_second_fits_of_a_batch_change_nothing(holdout: LadderHoldout) -> None:
    holdout.finalists(coins(5))
    first = holdout.estimate()
    holdout.submit(coins(5)[3])  # a repeat is no query
    assert holdout.estimate() == first


def test_a_withdrawal_refuses(holdout: LadderHoldout) -> None:
    holdout.finalists(coins(5))
    holdout.owner.withdraw(holdout.status().incumbent or 0, reason="trained on these rows")
    # The best of an announced batch is its only improvement: there is no incumbent before it.
    refused(holdout, "no incumbent")


def test_early_stopped_rounds_are_a_batch(holdout: LadderHoldout) -> None:
    stopping = LadderStopping(holdout, patience=4).start()
    for one in coins(40):
        if stopping.update(one):
            break
    assert 4 < stopping.rounds < 40
    found = holdout.estimate()
    score = holdout.status().score
    assert found.score is not None and score is not None and found.score < score
    assert found.submissions == stopping.rounds
    [entry, *_] = holdout.history()
    assert entry.context["stopping"] == [4, 1]


def test_weights_and_a_reserve_are_used(tmp_path: Path) -> None:
    weights = np.where(np.arange(N) % 2, 3.0, 0.0)
    heavy = LadderHoldout(
        *(rows(), labels()), scoring="accuracy", sample_weight=weights, ledger=tmp_path / "a.db"
    )
    heavy.finalists(coins(20))
    score = heavy.status().score
    assert heavy.estimate().score is not None and score is not None
    kept = LadderHoldout(
        *(rows(), labels()), scoring="accuracy", reserve=0.5, ledger=tmp_path / "b.db"
    )
    kept.finalists(coins(20))
    found, score = kept.estimate(), kept.status().score
    assert found.score is not None and score is not None and found.score < score - 0.02
    certified = kept.reserve_certificate()
    assert certified.score is not None and abs(found.score - certified.score) < 0.12


def test_auc_is_estimated_on_a_ladder(tmp_path: Path) -> None:
    rng, y = np.random.default_rng(8), labels(n=150)
    holdout = LadderHoldout(rows(n=150), y, scoring="roc_auc", ledger=tmp_path / "ledger.db")
    models = [0.3 * y + rng.normal(size=150) for _ in range(6)]
    holdout.finalists(models)
    found = holdout.estimate()
    assert found.score is not None
    assert abs(found.score - np.mean([roc_auc_score(y, one) for one in models])) < 0.1


# -- a rare class -------------------------------------------------------------------------------


def with_positives(
    count: int, path: Path | str, scoring: str = "roc_auc", **settings: Any
) -> tuple[LadderHoldout, list[Any]]:
    """Return a holdout of 100 rows with so many positives, and four models for it."""
    rng, y = np.random.default_rng(count), (np.arange(100) < count).astype(int)
    models = [y + rng.normal(size=100) for _ in range(4)]
    if scoring != "roc_auc":
        models = [(model > 1).astype(int) for model in models]
    return LadderHoldout(rows(n=100), y, scoring=scoring, ledger=path, **settings), models


@pytest.mark.parametrize(
    ("scoring", "refusals", "estimated"),
    [("roc_auc", (9, 91), 10), ("f1", (9,), 90), ("matthews_corrcoef", (91,), 90)],
)
def test_fewer_than_ten_rows_of_a_class_have_no_estimate(
    tmp_path: Path, scoring: str, refusals: tuple[int, ...], estimated: int
) -> None:
    for count in refusals:
        holdout, models = with_positives(count, tmp_path / f"{count}.db", scoring)
        holdout.finalists(models)
        refused(holdout, "the rarest class has fewer than 10 rows")
        refused(LadderHoldout.open(holdout.name, ledger=holdout.ledger), f"estimate of {scoring}")
        status = holdout.status().estimate
        assert status is not None and status == holdout.estimate()
        assert not verify_holdout(holdout.ledger, holdout.name).findings
    holdout, models = with_positives(estimated, tmp_path / f"{estimated}.db", scoring)
    holdout.finalists(models)
    assert holdout.estimate().score is not None


def test_a_mean_of_losses_has_an_estimate_for_a_rare_class_too(tmp_path: Path) -> None:
    holdout, models = with_positives(5, tmp_path / "ledger.db", "accuracy")
    holdout.finalists(models)
    assert holdout.estimate().score is not None


def test_rows_that_weigh_nothing_are_no_rows_of_a_class(tmp_path: Path) -> None:
    weights = np.where(np.arange(100) < 3, 0.0, 1.0)
    holdout, models = with_positives(12, tmp_path / "ledger.db", sample_weight=weights)
    holdout.finalists(models)
    refused(holdout, "the rarest class has fewer than 10 rows")


def prices(holdout: LadderHoldout) -> list[float]:
    return [one.log_values for one in shown_of(holdout, "estimates")]


def test_whether_there_is_an_estimate_is_paid_for(tmp_path: Path) -> None:
    """A request has G + 2 answers: 1/4 + 1/4 for the reasons and 1/(2 G) for each value."""
    given, models = with_positives(30, tmp_path / "given.db")
    given.finalists(models)
    given.estimate()
    # Values of AUC in steps of .01 or 1/(4 sqrt n), whichever is smaller, from 0 to 1.
    [price] = prices(given)
    values = round(math.exp(price) / 2)
    assert price == pytest.approx(math.log(2 * values)) and 100 <= values <= 401
    rare, models = with_positives(5, tmp_path / "rare.db")
    rare.finalists(models)
    rare.estimate()
    [reason] = prices(rare)
    assert reason == pytest.approx(math.log(4))
    assert 2 * math.exp(-reason) + values * math.exp(-price) == pytest.approx(1.0)
    again = LadderHoldout.open(rare.name, ledger=rare.ledger)
    assert again.estimate() == rare.estimate() and prices(rare) == [reason]


def test_later_certificates_pay_for_the_reason(tmp_path: Path) -> None:
    asked, models = with_positives(5, tmp_path / "asked.db")
    twin, _ = with_positives(5, tmp_path / "twin.db")
    best = 100.0 * (np.arange(100) < 5) + models[0]
    for one in (asked, twin):
        one.finalists(models)
    before = asked.certificate()
    refused(asked, "the rarest class")
    assert asked.certificate() == before == twin.certificate()
    for one in (asked, twin):
        assert one.submit(best).improved
    paid, free = asked.certificate().log_count, twin.certificate().log_count
    assert paid is not None and free is not None
    assert paid - free == pytest.approx(math.log(4))


# -- what it costs and what it shows ------------------------------------------------------------


def test_later_certificates_pay_for_it_and_the_present_one_does_not(
    holdout: LadderHoldout, tmp_path: Path
) -> None:
    twin = LadderHoldout(rows(), labels(), scoring="accuracy", ledger=tmp_path / "twin.db")
    for one in (holdout, twin):
        one.finalists(coins(5))
    before = holdout.certificate()
    holdout.estimate()
    assert holdout.certificate() == before
    for one in (holdout, twin):
        assert one.submit(labels()).improved
    paid, free = holdout.certificate().log_count, twin.certificate().log_count
    assert paid is not None and free is not None
    _, values = on_grid(0.5, get_metric("accuracy"), N)
    assert paid - free == pytest.approx(math.log(values))


def test_certificates_of_holdouts_that_share_rows_pay_too(holdout: LadderHoldout) -> None:
    other = LadderHoldout(
        *(np.vstack([rows()[:150], rows(5)]), [*labels()[:150], *labels(5)]),
        scoring="accuracy",
        ledger=holdout.ledger,
        name="other",
        overlap="ignore",
    )
    holdout.finalists(coins(5))
    right = np.array([*labels()[:150], *labels(5)])
    other.submit(np.where(np.arange(N + 150) < 300, right, 1 - right))
    before = other.certificate().log_count
    more = {"submissions": 5, "batch": "b", "risk": 0.5, "refused": None}
    add(holdout, Shown(what="estimate", ladder=1, submission=1, log_values=4.5, more=more))
    other.submit(right)
    after = other.certificate().log_count
    assert before is not None and after is not None and after > before + 4.5


def test_an_announced_batch_costs_the_logarithm_of_its_size(holdout: LadderHoldout) -> None:
    y = labels()
    finalists = holdout.finalists([*coins(6), y, *coins(13, seed=3)])
    found = holdout.certificate()
    assert finalists[6].is_incumbent and found.submission == 1
    assert found.log_count == pytest.approx(event_length(1) + math.log(20))
    assert found.log_count < event_length(1) + place_length(7)


def test_a_transcript_refuses_a_place_beyond_its_batch() -> None:
    third = Transcript(0, 3, (), size=3, event=1)
    assert third.log_count() == pytest.approx(event_length(1) + math.log(3))
    with pytest.raises(InvalidArgument, match="size must be"):
        Transcript(0, 4, (), size=3)


def test_the_announcement_is_on_record_before_the_first_answer(holdout: LadderHoldout) -> None:
    """What dies in the midst of a batch has announced it, and the certificate is still right."""
    with pytest.raises(RuntimeError), holdout.batch() as batch:
        batch.submit(coins(1)[0])
        raise RuntimeError
    assert holdout.status().submissions == 0
    assert not events(holdout, "batch")
    holdout.finalists(coins(3))
    [event] = events(holdout, "batch")
    assert event.event.size == 3


def test_only_the_first_batch_is_kept(holdout: LadderHoldout) -> None:
    holdout.finalists(coins(4))
    holdout.finalists(coins(4, seed=7))
    assert predictions_kept(holdout, of="candidates") == [1, 2, 3, 4]
    refused(holdout, "4 queries")


def test_predictions_that_were_changed_are_found(holdout: LadderHoldout) -> None:
    holdout.finalists(coins(4))
    broken = (b"", b"nonsense", zlib.compress(b"nonsense"))
    kept = stored(holdout, "candidate", "predictions", number=2)
    for one in broken:
        tamper(holdout, "candidate", "predictions", one, number=2)
        with pytest.raises(LedgerError):
            holdout.estimate()
    first = stored(holdout, "candidate", "predictions", number=1)
    tamper(holdout, "candidate", "predictions", first, number=2)
    with pytest.raises(LedgerError, match="submission 2 were changed"):
        holdout.estimate()
    tamper(holdout, "candidate", "predictions", kept, number=2)
    assert holdout.estimate().score is not None


def test_a_batch_that_was_not_kept_says_so(
    holdout: LadderHoldout, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_no_more_than(monkeypatch, 200)
    holdout.finalists(coins(4))
    refused(holdout, "not all predictions of this batch were kept")


def test_a_retired_holdout_takes_no_announcement(holdout: LadderHoldout) -> None:
    holdout.owner.retire()
    with pytest.raises(HoldoutConflict, match="retired"):
        holdout.finalists(coins(2))
    assert not events(holdout, "batch")
