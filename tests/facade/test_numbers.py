"""Numbers that are shown: in the metric's units, never a placeholder, by one definition everywhere.

Right values are scikit-learn's and NumPy's alone.
"""

from __future__ import annotations

import math
import os
import pty
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression, Ridge

from ladderholdout import LadderHoldout
from ladderholdout.errors import InvalidArgument, RangeWarning
from ladderholdout.estimates import N_BOOTSTRAP, corrected
from ladderholdout.mechanisms import (
    BayesBootLadder,
    Ladder,
    LadderRules,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    SimplifiedLadder,
)
from ladderholdout.metrics import METRICS, Metric, RatioOfMeans, get_metric
from ladderholdout.metrics.scales import Scale, scale_of
from tests.support.holdouts import assert_replays
from tests.support.ledgers import copied

Function = Any


def rmse(y: Any, p: Any) -> float:
    return float(np.sqrt(np.mean((y - p) ** 2)))


# What scikit-learn gives, in the sign of the score.
SCORES: dict[str, Function] = {
    "accuracy": sk.accuracy_score,
    "balanced_accuracy": sk.balanced_accuracy_score,
    "matthews_corrcoef": sk.matthews_corrcoef,
    "cohen_kappa": sk.cohen_kappa_score,
    "f1": sk.f1_score,
    "f1_macro": lambda y, p: sk.f1_score(y, p, average="macro"),
    "precision": sk.precision_score,
    "recall": sk.recall_score,
    "jaccard": sk.jaccard_score,
    "roc_auc": sk.roc_auc_score,
    "average_precision": sk.average_precision_score,
    "neg_log_loss": lambda y, p: -sk.log_loss(y, p),
    "neg_brier_score": lambda y, p: -sk.brier_score_loss(y, p),
    "r2": sk.r2_score,
    "explained_variance": sk.explained_variance_score,
    "neg_mean_absolute_error": lambda y, p: -sk.mean_absolute_error(y, p),
    "neg_mean_squared_error": lambda y, p: -sk.mean_squared_error(y, p),
    "neg_root_mean_squared_error": lambda y, p: -rmse(y, p),
    "neg_median_absolute_error": lambda y, p: -sk.median_absolute_error(y, p),
    "neg_mean_absolute_percentage_error": lambda y, p: -sk.mean_absolute_percentage_error(y, p),
    "neg_mean_squared_log_error": lambda y, p: -sk.mean_squared_log_error(y, p),
}
LABELS = ("accuracy", "matthews_corrcoef", "cohen_kappa", "precision", "recall", "jaccard")


def data(name: str, n: int, noise: float) -> tuple[Any, Any]:
    rng = np.random.default_rng(n)
    if not get_metric(name).is_classification:
        y = np.exp(5 + 0.4 * rng.normal(size=n))
        return y, np.maximum(y + noise * 30 * rng.normal(size=n), 0.0)
    y = (rng.random(n) < 0.35).astype(int)
    scores = 1 / (1 + np.exp(-(4 * y - 2 + noise * 2 * rng.normal(size=n))))
    labels = get_metric(name).response == "labels"
    return y, (scores > 0.5).astype(int) if labels else scores


def spread(function: Function, y: Any, p: Any, draws: int = 40) -> float:
    """Return the bootstrap's standard error of a score, by scikit-learn's function."""
    rng, found = np.random.default_rng(0), []
    for _ in range(draws):
        rows = rng.integers(0, len(y), len(y))
        found.append(function(y[rows], p[rows]))
    return float(np.std(found))


def rows_of(y: Any) -> Any:
    return np.arange(len(y), dtype=float)[:, None]


def held(y: Any, name: Any, **settings: Any) -> LadderHoldout:
    return LadderHoldout(rows_of(y), y, scoring=name, ledger="memory", **settings)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "n"), [*zip(SCORES, cycle((200, 1500)), strict=False)])
def test_a_release_is_within_a_quarter_of_a_standard_error(name: str, n: int) -> None:
    y, p = data(name, n, 1.0)
    function = SCORES[name]
    truth, error = function(y, p), spread(function, y, p)
    released = held(y, name).submit(p).score
    assert released is not None
    assert abs(released - truth) <= error / 4
    scale, risk = scale_of(get_metric(name)), get_metric(name).to_risk(truth)
    if scale.kind != "counts":
        step = abs(truth - get_metric(name).to_score(risk + scale.width(risk, n)))
        assert step <= error / 4


@pytest.mark.parametrize(
    ("name", "wide"),
    (
        ("neg_root_mean_squared_error", 1e6),
        ("neg_mean_squared_error", 1e3),
        ("neg_mean_absolute_error", 1e4),
        ("r2", 1e6),
    ),
)
def test_a_range_much_too_wide_hides_no_error(name: str, wide: float) -> None:
    y, p = data(name, 300, 1.0)
    _, better = data(name, 300, 0.3)
    holdout = held(y, name, target_range=(0, wide))
    for guess in (p, better):
        release = holdout.submit(guess)
        assert release.improved and release.score is not None
        truth = SCORES[name](y, guess)
        assert abs(release.score - truth) <= spread(SCORES[name], y, guess) / 4
    assert_replays(holdout)
    low, high = holdout.certificate().low, holdout.certificate().high
    assert low is not None and high is not None and low <= truth <= high


@pytest.mark.parametrize(
    "mechanism",
    (
        Ladder(0.01),
        SimplifiedLadder(0.01),
        ParameterFreeLadder(),
        PairedTestLadder(0.1),
        PricedLadder(),
        BayesBootLadder(5.0),
        BayesBootLadder(5.0, step=0.01),
        RoundedDisclosure(),
        RoundedDisclosure(0.1),
    ),
)
def test_every_rule_without_noise_releases_a_number_to_read(mechanism: Any) -> None:
    name = "neg_root_mean_squared_error"
    y, p = data(name, 300, 1.0)
    holdout = held(y, name, target_range=(0, 1e4), mechanism=mechanism)
    released = holdout.submit(p).score
    released = holdout.reveal() if released is None else released
    assert released is not None
    assert abs(released + rmse(y, p)) <= spread(SCORES[name], y, p) / 4
    assert_replays(holdout)


@pytest.mark.parametrize(
    ("metric", "function"),
    (
        (
            Metric(
                "found",
                "values",
                score=RatioOfMeans(lambda y, p: y * (p > 150), lambda y, p: y, (2000, 2000)),
                loss_range=(0, 1),
                offset=1.0,
            ),
            lambda y, p: (y * (p > 150)).sum() / y.sum(),
        ),
        (
            Metric("mine", "values", score=lambda y, p, sample_weight=None: sk.r2_score(
                y, p, sample_weight=sample_weight)),
            sk.r2_score,
        ),
        (Metric("pinball", "values", loss=lambda y, p: np.abs(y - p) / 2), lambda y, p: -(
            sk.mean_pinball_loss(y, p))),
    ),
    ids=("ratio", "score", "loss"),
)  # fmt: skip
def test_a_metric_of_ones_own_is_released_as_finely(metric: Metric, function: Function) -> None:
    y, p = data("r2", 400, 1.0)
    released = held(y, metric).submit(p).score
    assert released is not None
    assert abs(released - function(y, p)) <= spread(function, y, p) / 4


def test_weights_take_part_in_the_grid() -> None:
    y, p = data("accuracy", 200, 0.6)
    weights = np.random.default_rng(1).exponential(size=200)
    released = held(y, "accuracy", sample_weight=weights).submit(p).score
    truth = sk.accuracy_score(y, p, sample_weight=weights)
    error = np.sqrt(truth * (1 - truth) * np.sum(weights**2)) / np.sum(weights)
    assert abs(released - truth) <= error / 4


def test_a_share_of_rows_is_released_to_the_bit() -> None:
    for n in (7, 30, 333, 1000):
        for hits in range(0, n + 1, max(1, n // 7)):
            assert Scale("counts").nearest((n - hits) / n, n) == (n - hits) / n


@pytest.mark.parametrize(("kind", "n"), (("shares", 5), ("sizes", 200), ("extremes", 10_000)))
def test_the_grid_numbers_what_it_releases(kind: Any, n: int) -> None:
    """A code gives each value a chance by its number, so no two values may have the same one."""
    for scale in (Scale(kind), Scale(kind, root=True)):
        risks = np.sort(np.exp(np.random.default_rng(0).uniform(-9, 0.5, 500)))
        values = [scale.nearest(risk, n) for risk in risks]
        numbers = [scale.number(risk, n) for risk in risks]
        assert [scale.number(one, n) for one in values] == numbers
        assert [scale.nearest(one, n) for one in values] == values
        assert np.array_equal(np.diff(values) > 0, np.diff(numbers) > 0)
        assert numbers[0] >= 0 and numbers[-1] < scale.values(n, (0.0, 2.0))


def test_all_named_metrics_have_a_grid_that_holds_their_range() -> None:
    for metric in METRICS.values():
        if metric.risk_range is not None:
            assert scale_of(metric).values(500, metric.risk_range) > 100


@pytest.mark.parametrize("high", (350, 1000, 20_000))
def test_an_estimate_is_as_fine_as_a_release(high: float) -> None:
    name = "neg_root_mean_squared_error"
    y, _ = data(name, 200, 1.0)
    rng = np.random.default_rng(3)
    holdout = held(y, name, target_range=(0, high if high > y.max() else 2 * high))
    guesses = [y + noise * rng.normal(size=200) for noise in (30, 29, 28)]
    with holdout.batch() as batch:
        for guess in guesses:
            batch.submit(guess)
    found = holdout.estimate().score
    assert found is not None
    # Between the best of the three, which was selected, and the true one of most noise.
    assert min(rmse(y, guess) for guess in guesses) < -found < 32
    status = holdout.status()
    assert "above about -" in str(status)
    above = float(str(status).partition("above about ")[2].split(",")[0])
    assert -30 < above < -20


def test_the_reserve_shows_an_rmse() -> None:
    name = "neg_root_mean_squared_error"
    y, p = data(name, 400, 1.0)
    holdout = held(y, name, target_range=(0, 20_000), reserve=0.5)
    holdout.submit(p)
    found = holdout.reserve_certificate()
    assert found.score is not None
    assert abs(found.score + 30) < 5
    assert "errors clipped at 20000" in found.line()


# -- clipped errors ---------------------------------------------------------------------------


def heavy() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    y = 100 + 10 * rng.standard_t(2, size=400)
    return y, np.full(400, 100.0) + rng.normal(size=400)


@pytest.mark.parametrize("name", ("neg_root_mean_squared_error", "neg_mean_absolute_error"))
def test_clipped_errors_are_named_where_the_interval_is(name: str) -> None:
    y, p = heavy()
    holdout = held(y, name, loss_range=(0, 60))
    holdout.submit(p)
    with pytest.warns(RangeWarning, match=r"loss_range=\(0, 60\)"):
        found = holdout.certificate()
    said = "true score with errors clipped at 60, which are 12 of 400 rows and "
    assert said in found.line()
    assert said in str(holdout.status())
    assert "with errors clipped at 60," in str(found)
    assert "true score with errors clipped at 60" in found._repr_html_()
    assert abs(found.score + (rmse(y, p) if "root" in name else np.abs(y - p).mean())) < 0.2
    errors = np.minimum(np.abs(y - p), 60)
    truth = rmse(errors, 0) if "root" in name else float(errors.mean())
    assert found.low <= -truth <= found.high


def test_a_range_is_named_even_if_no_error_is_beyond_it() -> None:
    y, p = heavy()
    holdout = held(y, "neg_mean_absolute_error", loss_range=(0, 1000))
    holdout.submit(p)
    said = (
        "true score with errors clipped at 1000, which are 0 of 400 rows and 0 % of the score, in"
    )
    assert holdout.certificate().line().startswith(said)


@pytest.mark.parametrize(
    "name",
    ("neg_root_mean_squared_error", "neg_mean_squared_error", "neg_mean_absolute_error", "r2"),
)
def test_a_range_that_misses_targets_is_refused(name: str) -> None:
    y, p = heavy()
    with pytest.raises(InvalidArgument, match="contains all targets") as refused:
        held(y, name, target_range=(90, 110))
    assert refused.value.args[0] == "target_range"
    # The remedy works.
    held(y, name, target_range=(y.min(), y.max())).submit(p)


@pytest.mark.parametrize(
    ("given", "named"),
    (
        ({"loss_range": (0, 2)}, "loss_range=(0, 2)"),
        ({"target_range": (-1e4, 1e4), "loss_range": (0, 2)}, "loss_range=(0, 2)"),
    ),
)
def test_the_warning_names_what_was_given(given: dict[str, Any], named: str) -> None:
    y, _ = heavy()
    with pytest.warns(RangeWarning) as caught:
        held(y, "neg_mean_absolute_error", **given)
    assert named in str(caught[0].message)


# -- plain scores without a value --------------------------------------------------------------


@pytest.mark.parametrize("name", ("r2", "roc_auc", "roc_auc_1", "cohen_kappa"))
def test_a_plain_score_without_a_value_is_nan(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    classes, name = (name != "r2"), name.removesuffix("_1")
    y = (X[:, 0] > 0).astype(int) if classes else X[:, 0]
    model = (LogisticRegression() if classes else Ridge()).fit(X, y)
    rows = np.flatnonzero(y > 0)[: 1 if name == "r2" else 5]
    scorer = sk.make_scorer(sk.cohen_kappa_score) if name == "cohen_kappa" else sk.get_scorer(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert math.isnan(scorer(model, X[rows], y[rows]))
    holdout = LadderHoldout(X[:, ::-1], y, scoring=name, ledger="memory")
    with pytest.warns(UndefinedMetricWarning, match="no value"):
        found = get_metric(name).score_of(model, X[rows], y[rows])
    assert math.isnan(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert math.isnan(holdout(model, X[rows], y[rows]))


def test_average_precision_without_positives_is_0_as_scikit_learn_has_it() -> None:
    y, p = np.zeros(4, int), np.array([0.1, 0.2, 0.3, 0.4])
    with pytest.warns(UserWarning, match="No positive class"):
        truth = sk.average_precision_score(y, p)
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    model = LogisticRegression().fit(X, [0, 0, 1, 1])
    with pytest.warns(UserWarning, match="No positive class"):
        assert get_metric("average_precision").score_of(model, X, y) == truth == 0.0


@pytest.mark.parametrize("name", ("pearson", "spearman", "concordance"))
def test_correlations_of_one_row_are_nan(name: str) -> None:
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(get_metric(name).score_from([1.0], [2.0]))


# -- one definition for all views --------------------------------------------------------------


def climbed() -> LadderHoldout:
    y = np.tile([0, 1], 100)
    holdout = held(y, "accuracy")
    for wrong in (60, 30, 10, 30, 60, 10):
        holdout.submit(np.where(np.arange(200) < wrong, 1 - y, y))
    return holdout


def test_a_repeat_is_shown_as_one() -> None:
    holdout = climbed()
    history = holdout.history()
    assert [one.improved for one in history] == [True, True, True, False, False, False]
    assert [one.repeat_of for one in history] == [None, None, None, 2, 1, 3]
    assert "repeat of 2" in str(history) and "repeat of 1" in str(holdout.status())
    assert "repeat of 2" in history._repr_html_()


def test_no_view_draws_a_fall() -> None:
    drawn = copied(climbed()).submissions
    assert [one.improved for one in drawn] == [True] * 3 + [False] * 3
    released = [one.score for one in drawn if one.score is not None]
    assert released == sorted(released)


def test_the_repeat_of_what_was_withdrawn_does_not_read_improved() -> None:
    y = np.tile([0, 1], 100)
    holdout = held(y, "accuracy")
    better = np.where(np.arange(200) < 10, 1 - y, y)
    holdout.submit(np.where(np.arange(200) < 60, 1 - y, y))
    holdout.submit(better)
    holdout.submit(better)
    holdout.owner.withdraw(2, reason="trained on these rows")
    history = holdout.history()
    assert history[1].withdrawn is not None
    assert (history[2].improved, history[2].repeat_of) == (False, 2)
    assert "3 repeat of 2" in str(holdout.status())


def test_the_audit_and_the_history_agree_on_repeats() -> None:
    holdout = climbed()
    seen = [(one.number, one.improved, one.repeat_of) for one in holdout.history()]
    audited = holdout.owner.audit().history
    assert [(one.number, one.improved, one.repeat_of) for one in audited] == seen


def test_a_refused_estimate_is_in_no_view() -> None:
    y = np.tile([0, 1], 100)
    holdout = held(y, "accuracy")
    with holdout.batch() as batch:
        for wrong in (60, 30):
            batch.submit(np.where(np.arange(200) < wrong, 1 - y, y))
    assert holdout.estimate().score is not None
    assert holdout.status().estimate == holdout.estimate()
    holdout.submit(np.where(np.arange(200) < 31, 1 - y, y))
    assert holdout.estimate().score is None
    assert holdout.status().estimate is None
    assert "estimate" not in str(holdout.status())
    assert all(score is None for score in copied(holdout).estimates.values())


# -- estimates in time ---------------------------------------------------------------------------


def measured(name: str, count: int = 12, n: int = 300) -> Any:
    """Return the estimate of some submissions."""
    metric, rng = get_metric(name), np.random.default_rng(0)
    y, _ = data(name, n, 1.0)
    every = []
    for number in range(count):
        noise = 2.0 - number / count
        if metric.is_classification:
            p = 1 / (1 + np.exp(-(3 * y - 1.5 + noise * 2 * rng.normal(size=n))))
            p = (p > 0.5).astype(np.int32) if metric.response == "labels" else p
        else:
            p = y + noise * 20 * rng.normal(size=n)
        every.append(p)
    scale = scale_of(metric)
    step = BayesBootLadder(17 / 3, n_posterior=1000, step=0.02)
    rules = LadderRules(PricedLadder() if name == "accuracy" else step, scale=scale)
    return corrected(metric, rules, y, every, winner=count - 1)


WITHOUT_LOSSES = (
    "roc_auc",
    "f1",
    "matthews_corrcoef",
    "r2",
    "neg_median_absolute_error",
    "spearman",
)


@pytest.mark.parametrize("name", WITHOUT_LOSSES)
def test_an_estimate_evaluates_a_metric_once_for_each_draw(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each submission on each draw: that took a hundred times as long as accuracy."""
    evaluate, calls = Metric.evaluate, []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(1)
        return evaluate(*given, **named)

    monkeypatch.setattr(Metric, "evaluate", counted)
    assert measured(name) is not None
    assert len(calls) <= 12 + N_BOOTSTRAP


@pytest.mark.nightly
@pytest.mark.parametrize("name", WITHOUT_LOSSES)
def test_an_estimate_takes_at_most_ten_times_as_long_as_for_accuracy(name: str) -> None:
    def took(name: str) -> float:
        begun = time.process_time()
        measured(name)
        return time.process_time() - begun

    assert min(took(name) for _ in range(2)) <= 10 * min(took("accuracy") for _ in range(2))


def test_an_estimate_of_auc_corrects_what_selection_adds() -> None:
    """Many equal models: their true AUC is known, and the best of them is too good by chance."""
    rng, metric, left = np.random.default_rng(0), get_metric("roc_auc"), []
    rules = LadderRules(BayesBootLadder(17 / 3, n_posterior=100, step=0.01), scale=scale_of(metric))
    for _ in range(8):
        y = (rng.random(200) < 0.5).astype(int)
        models = [1.0 * y + rng.normal(size=200) for _ in range(15)]
        areas = [sk.roc_auc_score(y, one) for one in models]
        found = corrected(metric, rules, y, models, winner=int(np.argmax(areas)))
        assert found is not None
        left.append((1 - found.corrected, max(areas)))
    true = 0.7602  # Phi(1 / sqrt(2)), of two normal distributions one apart
    corrected_mean, raw_mean = np.mean(left, axis=0)
    # The standard error of one area is .033, and that of a mean of 8 about .012.
    assert raw_mean > true + 0.03
    assert abs(corrected_mean - true) < 0.03


PROGRAM = """
import time
import numpy as np
from ladderholdout import LadderHoldout
from ladderholdout.guard import record_views
from ladderholdout.metrics import Metric
record_views._PATIENCE = 0.1
def slow(y, p, sample_weight=None):
    time.sleep(0.001)
    return -float(np.average((y - p) ** 2, weights=sample_weight))
y = np.random.default_rng(0).normal(size=100)
X = np.arange(100.0)[:, None]
holdout = LadderHoldout(X, y, scoring=Metric("slow", "values", score=slow), ledger="memory")
with holdout.batch() as batch:
    for add in (0.5, 1.0):
        batch.submit(y + add * np.sign(y))
print(holdout.estimate())
"""


@pytest.mark.processes
def test_a_bar_is_shown_on_a_terminal_alone() -> None:
    command = [sys.executable, "-c", PROGRAM]
    env = os.environ | {"TERM": "xterm"}
    alone = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert "Estimate:" in alone.stdout and "Estimating" not in alone.stderr
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=env) as process:
        os.close(theirs)
        said = b""
        # Read while it draws: a terminal holds a few kilobytes, and then its writer waits.
        with suppress(OSError):  # how the other end of a terminal says that it is closed
            while more := os.read(ours, 1 << 16):
                said += more
    os.close(ours)
    assert process.returncode == 0 and b"Estimating" in said
