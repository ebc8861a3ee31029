"""Attacks the metrics: values, canonical bytes, and refusals that may tell nothing."""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from ladderholdout.errors import InvalidArgument, InvalidSubmission, UnknownHoldout
from ladderholdout.metrics import METRICS, Evaluation, Metric, get_metric
from ladderholdout.metrics.arrays import has_mask
from tests.support.beyond_plain import needs_pandas, pd

pytestmark = pytest.mark.quick

CORRELATIONS = {"pearson", "spearman", "concordance"}
OURS = CORRELATIONS | {"cohen_kappa", "f0.5", "f2"}
BINARY = {"f0.5", "f1", "f2", "precision", "recall", "jaccard", "roc_auc", "average_precision"}
# Positive on both sides: logarithms and deviances are asked about these.
POSITIVE = [name for name in METRICS if "log_error" in name or "deviance" in name]
CLASSIFICATION = [name for name, metric in METRICS.items() if metric.is_classification]
REGRESSION = [name for name, metric in METRICS.items() if not metric.is_classification]

LABELS = {
    "0/1": np.array([0, 1]),
    "-1/1": np.array([-1, 1]),
    "bool": np.array([False, True]),
    "two names": np.array(["absent", "present"]),
    "three numbers": np.array([2, 5, 9]),
    "three names": np.array(["high", "low", "mid"]),
}


def rows(seed: int = 0, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, X[:, 0] + 0.5 * X[:, 1] ** 2 + rng.normal(scale=0.7, size=n)


def labelled(classes: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, signal = rows(seed)
    inner = np.quantile(signal, np.linspace(0, 1, len(classes) + 1)[1:-1])
    return X, classes[np.searchsorted(inner, signal)]


@cache
def classifiers(labels: str) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Return held-out rows and models fitted on other ones."""
    X, y = labelled(LABELS[labels])
    models = (LogisticRegression(), GaussianNB(), DecisionTreeClassifier(max_depth=3))
    return X[120:], y[120:], [model.fit(X[:120], y[:120]) for model in models]


def weights_for(y: np.ndarray) -> np.ndarray:
    return np.random.default_rng(9).uniform(0.1, 3.0, size=len(y))


def by_parts(metric: Metric, estimator: Any, X: Any, y: Any, weights: Any = None) -> float:
    classes = metric.classes_of(y)
    targets = metric.targets(y, classes)
    predictions = metric.canonical(metric.respond(estimator, X, classes), len(y), classes)
    evaluation = metric.evaluate(targets, predictions, weights)
    if evaluation.losses is not None:
        assert float(evaluation.losses.mean()) == evaluation.risk
    assert evaluation.risk_under(np.ones(len(y))) == pytest.approx(evaluation.risk, abs=1e-12)
    return metric.to_score(evaluation.risk)


def scorer_of(name: str) -> Any:
    """Return scikit-learn's scorer of a name, or of the function that has none."""
    if name == "cohen_kappa":
        return sk.make_scorer(sk.cohen_kappa_score)
    if name in ("f0.5", "f2"):
        return sk.make_scorer(sk.fbeta_score, beta=float(name[1:]))
    return sk.get_scorer(name)


def reference(name: str, estimator: Any, X: Any, y: Any, weights: Any = None) -> float:
    scorer = scorer_of(name)
    if name in BINARY | {"neg_brier_score"} and np.asarray(y).dtype.kind == "U":
        # The named scorers refuse text here or ask for the positive label.
        function, settings = scorer._score_func, dict(scorer._kwargs)
        if name != "roc_auc" and len(np.unique(y)) == 2:
            settings["pos_label"] = np.unique(y)[1]
        method = scorer._response_method
        sign = {1: True, -1: False}[scorer._sign]
        scorer = sk.make_scorer(
            function, response_method=method, greater_is_better=sign, **settings
        )
    return float(scorer(estimator, X, y, **({} if weights is None else {"sample_weight": weights})))


# Values


def test_the_table_holds_names_of_scikit_learn_and_six_of_its_functions() -> None:
    assert set(METRICS) - OURS <= set(sk.get_scorer_names())
    assert all(metric.name == name for name, metric in METRICS.items())
    assert len(METRICS) == 45
    with pytest.raises(TypeError):
        METRICS["accuracy"] = METRICS["f1"]  # type: ignore[index]


TWO, THREE = list(LABELS)[:4], list(LABELS)[4:]


# Each metric with two classes and, if it takes them, with three; each kind of labels in turn.
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        *zip(CLASSIFICATION, itertools.cycle(TWO)),
        *zip([name for name in CLASSIFICATION if name not in BINARY], itertools.cycle(THREE)),
    ],
)
def test_classification_agrees_with_scikit_learn(name: str, labels: str) -> None:
    X, y, models = classifiers(labels)
    metric = get_metric(name)
    takes_weights = "ovo" not in name or len(LABELS[labels]) == 2
    for estimator in models:
        for weights in (None, weights_for(y)) if takes_weights else (None,):
            expected = reference(name, estimator, X, y, weights)
            assert metric.score_of(estimator, X, y, weights) == pytest.approx(expected, abs=1e-10)
            assert by_parts(metric, estimator, X, y, weights) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("name", [name for name in REGRESSION if name not in OURS])
def test_regression_agrees_with_scikit_learn(name: str) -> None:
    X, y = rows()
    if name in POSITIVE:
        y = np.exp(y)
    metric = get_metric(name)
    models = [DecisionTreeRegressor(max_depth=3), RandomForestRegressor(5, random_state=0)]
    for model in models if name in POSITIVE else [*models, LinearRegression()]:
        estimator = model.fit(X[:120], y[:120])
        for weights in (None, weights_for(y[120:])) if name != "neg_max_error" else (None,):
            expected = reference(name, estimator, X[120:], y[120:], weights)
            plain = metric.score_of(estimator, X[120:], y[120:], weights)
            assert plain == pytest.approx(expected, abs=1e-10)
            parts = by_parts(metric, estimator, X[120:], y[120:], weights)
            assert parts == pytest.approx(expected, abs=1e-10)


def test_poisson_deviance_takes_targets_of_zero() -> None:
    y, predictions = np.array([0.0, 3.0, 0.0, 1.0]), np.array([0.5, 2.0, 0.1, 4.0])
    metric = get_metric("neg_mean_poisson_deviance")
    risk = metric.evaluate(metric.targets(y, None), metric.canonical(predictions, 4, None)).risk
    assert risk == pytest.approx(sk.mean_poisson_deviance(y, predictions), abs=1e-12)


@pytest.mark.parametrize("name", [name for name in REGRESSION if METRICS[name].multioutput])
def test_several_outputs_agree_with_scikit_learn(name: str) -> None:
    X, signal = rows()
    y = np.exp(np.column_stack([signal, X[:, 1] + signal, -signal]))
    estimator = RandomForestRegressor(5, random_state=0).fit(X[:120], y[:120])
    metric = get_metric(name)
    for weights in (None, weights_for(y[120:])):
        expected = reference(name, estimator, X[120:], y[120:], weights)
        assert metric.score_of(estimator, X[120:], y[120:], weights) == pytest.approx(
            expected, abs=1e-10
        )


def correlations(y: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    covariance = np.cov(y, predictions, ddof=0)
    gap = (y.mean() - predictions.mean()) ** 2
    return {
        "pearson": float(stats.pearsonr(y, predictions).statistic),
        "spearman": float(stats.spearmanr(y, predictions).statistic),
        "concordance": float(2 * covariance[0, 1] / (np.trace(covariance) + gap)),
    }


@pytest.mark.parametrize("name", sorted(CORRELATIONS))
def test_correlations_agree_with_scipy_and_the_closed_form(name: str) -> None:
    X, y = rows()
    y = np.round(y, 1)  # ties
    metric = get_metric(name)
    estimator = LinearRegression().fit(X[:120], y[:120])
    expected = correlations(y[120:], estimator.predict(X[120:]))[name]
    assert metric.score_of(estimator, X[120:], y[120:]) == pytest.approx(expected, abs=1e-12)
    assert by_parts(metric, estimator, X[120:], y[120:]) == pytest.approx(expected, abs=1e-12)
    tiny = metric.evaluate(y * 1e-200, np.roll(y, 1) * 1e-200) if name != "concordance" else None
    if tiny is not None:
        plain = metric.evaluate(y, np.roll(y, 1))
        assert tiny.risk == pytest.approx(plain.risk, abs=1e-12)


@pytest.mark.parametrize("name", sorted(CORRELATIONS))
def test_a_constant_prediction_correlates_with_nothing(name: str) -> None:
    metric = get_metric(name)
    assert metric.to_score(metric.evaluate(np.array([1.0, 2, 4]), np.full(3, 0.1)).risk) == 0


LEVELS = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0, 1, 0], [0.5, 0.3, 0.2]])
VALUES = np.array([0.5, 1.0, 2.0, 4.0, 0.25])


def canonical_rows(metric: Metric, t: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Map small numbers to canonical targets and predictions with many ties."""
    n_classes = 2 if metric.name in BINARY else 3
    if metric.response == "values":
        return VALUES[t], VALUES[p]
    if metric.response == "labels":
        return t % n_classes, (p % n_classes).astype(np.int32)
    if metric.response == "scores":
        return t % n_classes, VALUES[p]
    return t % n_classes, LEVELS[p]


TRIPLES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 3)), min_size=3, max_size=12
)


def outcome(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except InvalidArgument:
        return None


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=12, deadline=None)
@given(triples=TRIPLES)
def test_integer_weights_are_repeated_rows(name: str, triples: list[tuple[int, ...]]) -> None:
    metric = get_metric(name)
    t, p, w = np.array(triples).T
    assume(w.sum() > 0)
    targets, predictions = canonical_rows(metric, t, p)
    repeated = outcome(lambda: metric.evaluate(targets.repeat(w), predictions.repeat(w, 0)).risk)
    evaluation = outcome(lambda: metric.evaluate(targets, predictions))
    assume(evaluation is not None)
    assert isinstance(evaluation, Evaluation)
    weighted = outcome(lambda: evaluation.risk_under(w))
    own = outcome(lambda: metric.evaluate(targets, predictions, w).risk)
    assert weighted == pytest.approx(repeated, abs=1e-9)
    assert own == pytest.approx(repeated, abs=1e-9)


EXTREMES = [1e100, -1e100, 1e-100, -1e-100, 1e-300, 0.0, 1.0, 3.0, -1.0, -1 + 2e-16]


def admitted(check: Callable[[float], Any]) -> list[float]:
    return [value for value in EXTREMES if outcome(lambda value=value: check(value)) is not None]


@pytest.mark.parametrize("name", REGRESSION)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_no_admitted_prediction_is_refused_for_what_the_labels_are(
    name: str, data: st.DataObject
) -> None:
    metric = get_metric(name)
    # The check of targets is about all of them, so a varying companion stands beside each.
    targets = admitted(lambda value: metric.targets([value, 2.0], None))
    values = admitted(lambda value: metric.canonical([value], 1, None))
    assert len(targets) >= 4 and len(values) >= 4
    size = data.draw(st.integers(2, 6))
    y = data.draw(st.lists(st.sampled_from(targets), min_size=size, max_size=size))
    assume(len(set(y)) > 1)
    predictions = data.draw(st.lists(st.sampled_from(values), min_size=size, max_size=size))
    try:
        known = metric.targets(y, None)
    except InvalidArgument:  # hardly any variance: refused before anybody submits
        return
    assert np.isfinite(metric.evaluate(known, metric.canonical(predictions, size, None)).risk)


@pytest.mark.parametrize("name", METRICS)
def test_weights_of_the_caller_multiply_the_holdouts_own(name: str) -> None:
    metric = get_metric(name)
    rng = np.random.default_rng(4)
    targets, predictions = canonical_rows(metric, np.arange(40) % 4, rng.integers(0, 5, size=40))
    own, more = rng.uniform(0.2, 2, size=(2, 40))
    evaluation = metric.evaluate(targets, predictions, own)
    both = metric.evaluate(targets, predictions, 7 * own * more).risk
    assert evaluation.risk_under(more) == pytest.approx(both, abs=1e-12)
    half = evaluation.scaled(0.5)
    assert half.risk == pytest.approx(evaluation.risk / 2, abs=1e-12)
    assert half.risk_under(more) == pytest.approx(both / 2, abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_risks_and_losses_stay_in_their_range(name: str) -> None:
    metric = get_metric(name)
    rng = np.random.default_rng(5)
    targets, predictions = canonical_rows(metric, np.arange(60) % 4, rng.integers(0, 5, size=60))
    evaluation = metric.evaluate(targets, predictions)
    low, high = metric.loss_range or (0.0, np.inf)
    values = [evaluation.risk] if evaluation.losses is None else evaluation.losses
    assert np.all((low <= np.asarray(values)) & (np.asarray(values) <= high))


def test_the_brier_score_is_halved_for_two_classes_and_its_range_with_it() -> None:
    metric = get_metric("neg_brier_score")
    wrong = metric.evaluate(np.array([0, 1]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert wrong.losses is not None and wrong.losses.tolist() == [1.0, 1.0]
    worst = metric.evaluate(np.array([0]), np.array([[0.0, 1.0, 0.001]]))
    assert worst.losses is not None and worst.losses.tolist() == [2.0]
    two, three = np.array(["a", "b"]), np.array(["a", "b", "c"])
    assert metric.for_classes(two).loss_range == (0.0, 1.0)
    assert metric.for_classes(three) is metric
    assert get_metric("accuracy").for_classes(two) is get_metric("accuracy")


@pytest.mark.parametrize("name", [n for n in CLASSIFICATION if METRICS[n].response == "labels"])
def test_divisions_by_zero_count_as_zero_without_a_warning(name: str) -> None:
    X, y = labelled(LABELS["0/1"])
    for constant in (0, 1):
        estimator = DummyClassifier(strategy="constant", constant=constant).fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = reference(name, estimator, X, y)
        assert get_metric(name).score_of(estimator, X, y) == pytest.approx(expected, abs=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in CLASSIFICATION if METRICS[n].response == "labels"])
def test_few_rows_with_classes_missing_on_either_side_agree_with_scikit_learn(name: str) -> None:
    scorer, rng = scorer_of(name), np.random.default_rng(1)
    for _ in range(30):
        targets, guesses = rng.integers(0, 2 if name in BINARY else 4, size=(2, 5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = scorer._score_func(targets, guesses, **scorer._kwargs)
        risk = get_metric(name).evaluate(targets, guesses).risk
        assert get_metric(name).to_score(risk) == pytest.approx(expected, abs=1e-12)


def test_a_class_without_rows_has_no_share_in_a_weighted_area() -> None:
    metric, rng = get_metric("roc_auc_ovr_weighted"), np.random.default_rng(2)
    targets, table = rng.integers(0, 2, size=30), rng.dirichlet([1, 1, 1], size=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = sk.roc_auc_score(
            targets, table, multi_class="ovr", average="weighted", labels=[0, 1, 2]
        )
    risk = metric.evaluate(targets, table).risk
    assert metric.to_score(risk) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["r2", "explained_variance"])
def test_targets_that_hardly_vary_do_not_make_far_predictions_overflow(name: str) -> None:
    metric = get_metric(name)
    targets = metric.targets([0.0, 1e-100, 0.0], None)
    risk = metric.evaluate(targets, metric.canonical([1e100, -1e100, 0], 3, None)).risk
    assert np.isfinite(risk) and risk > 1e200


@given(weights=st.lists(st.floats(1e-6, 1e6), min_size=4, max_size=4))
def test_one_class_alone_correlates_with_nothing_under_any_weights(weights: list[float]) -> None:
    metric = get_metric("matthews_corrcoef")
    guesses = np.array([0, 1, 2, 1])
    for targets, predictions in ((np.ones(4, int), guesses), (guesses, np.ones(4, int))):
        assert metric.to_score(metric.evaluate(targets, predictions, weights).risk) == 0


def test_log_loss_clips_certainty_as_scikit_learn_does() -> None:
    metric = get_metric("neg_log_loss")
    classes = np.array([0, 1])
    positive = np.array([0.0, 1.0, 1e-17, 1 - 1e-16, 0.3])
    y = np.array([1, 0, 1, 0, 1])
    risk = metric.evaluate(y, metric.canonical(positive, 5, classes)).risk
    assert risk == pytest.approx(sk.log_loss(y, y_proba=positive), abs=1e-10)


def test_a_fold_that_lacks_a_class_is_scored_among_all_classes_of_the_estimator() -> None:
    X, y = labelled(LABELS["three names"])
    estimator = LogisticRegression().fit(X, y)
    fold = np.flatnonzero(y != "mid")
    expected = -sk.log_loss(
        y[fold], y_proba=estimator.predict_proba(X[fold]), labels=estimator.classes_
    )
    score = get_metric("neg_log_loss").score_of(estimator, X[fold], y[fold])
    assert score == pytest.approx(expected, abs=1e-12)
    accuracy = get_metric("accuracy").score_of(estimator, X[fold], y[fold])
    assert accuracy == pytest.approx(estimator.score(X[fold], y[fold]), abs=1e-12)


@given(risk=st.floats(0, 1e6), name=st.sampled_from(sorted(METRICS)))
def test_scores_and_risks_are_inverse(risk: float, name: str) -> None:
    metric = get_metric(name)
    assert metric.to_risk(metric.to_score(risk)) == pytest.approx(risk, rel=1e-12, abs=1e-9)


def test_a_risk_that_noise_made_negative_still_has_a_root() -> None:
    assert get_metric("neg_root_mean_squared_error").to_score(-0.01) == 0


def calls_to_evaluate(n: int) -> int:
    """Return the number of functions, of Python and of C, that count the hits of n rows."""
    metric, rng, calls = get_metric("accuracy"), np.random.default_rng(0), 0
    targets, predictions = rng.integers(0, 2, n), rng.integers(0, 2, n, dtype=np.int32)

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        metric.evaluate(targets, predictions)
    finally:
        sys.setprofile(before)
    return calls


def test_ten_thousand_hits_are_counted_by_no_more_calls_than_ten() -> None:
    calls_to_evaluate(10)  # what is imported or remembered once
    assert calls_to_evaluate(10_000) == calls_to_evaluate(10) < 100


# Canonical form


def same_bytes(forms: list[np.ndarray]) -> bool:
    return (
        len({form.tobytes() for form in forms}) == 1
        and len({form.dtype.str for form in forms}) == 1
        and all(form.flags.c_contiguous for form in forms)
    )


def test_equal_labels_have_equal_bytes_in_every_container() -> None:
    metric, classes = get_metric("accuracy"), np.array([0, 1, 5])
    labels = [0, 5, 1, 5]
    containers: list[Any] = [
        labels,
        tuple(labels),
        np.array(labels, dtype=np.uint8),
        np.array(labels, dtype=np.float32),
        np.array(labels, dtype=object),
        np.array(labels)[:, None],
        np.array([0, 9, 5, 9, 1, 9, 5])[::2],
        np.array([-0.0, 5, 1, 5]),
    ]
    if pd is not None:
        containers += [
            pd.Series(labels, index=[4, 3, 2, 1]),
            pd.Series(labels, dtype="Int64"),
            pd.Series(labels, dtype="category"),
            pd.DataFrame({"y": labels}),
        ]
    forms = [metric.canonical(container, 4, classes) for container in containers]
    assert same_bytes(forms)
    assert forms[0].dtype == np.int32 and forms[0].tolist() == [0, 2, 1, 2]


def test_equal_names_have_equal_bytes_in_every_container() -> None:
    metric = get_metric("accuracy")
    labels = ["low", "high", "low"]
    classes = metric.classes_of(np.array(labels, dtype=object))
    containers: list[Any] = [
        labels,
        np.array(labels),
        np.array(labels, dtype=object),
        np.array(labels, dtype="U40"),
        np.array(labels, dtype=np.dtypes.StringDType()),
    ]
    if pd is not None:
        containers += [
            pd.Series(labels),
            pd.Series(labels, dtype="category"),
            pd.DataFrame({"y": labels}),
        ]
    assert same_bytes([metric.canonical(container, 3, classes) for container in containers])


def test_booleans_and_numbers_are_the_same_labels() -> None:
    metric = get_metric("accuracy")
    classes = metric.classes_of([True, False])
    assert same_bytes([metric.canonical(p, 2, classes) for p in ([True, False], [1, 0], [1.0, 0])])


def test_equal_probabilities_have_equal_bytes_in_every_container() -> None:
    metric, classes = get_metric("neg_log_loss"), np.array(["no", "yes"])
    positive = [0.25, 0.5, 0.875]
    table = np.column_stack([1 - np.array(positive), positive])
    containers: list[Any] = [
        positive,
        table,
        table.tolist(),
        np.asfortranarray(table),
        table.astype(np.float32),
        table.astype(np.float16),
        np.array(positive)[:, None],
        [1 / 4, 1 / 2, np.float32(0.875)],
    ]
    if pd is not None:
        containers += [
            pd.Series(positive),
            pd.DataFrame(table),
            pd.DataFrame(table, columns=["no", "yes"]),
            pd.DataFrame(table[:, ::-1], columns=["yes", "no"]),
        ]
    forms = [metric.canonical(container, 3, classes) for container in containers]
    assert same_bytes(forms)
    assert forms[0].tolist() == [[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]


def test_the_second_of_two_columns_decides_as_a_vector_of_it_does() -> None:
    metric, classes = get_metric("neg_brier_score"), np.array([0, 1])
    forms = [metric.canonical(p, 1, classes) for p in ([0.1], [[0.9, 0.1]], [[0.90001, 0.1]])]
    assert same_bytes(forms)


@needs_pandas
def test_a_frame_with_names_of_classes_is_put_in_their_order() -> None:
    metric, classes = get_metric("neg_log_loss"), np.array([1, 2, 3])
    table = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    shuffled = pd.DataFrame(table[:, [2, 0, 1]], columns=[3, 1, 2])
    assert same_bytes([metric.canonical(form, 2, classes) for form in (table, shuffled)])
    unnamed = pd.DataFrame(table)  # its columns are 0, 1, 2 and no classes
    assert same_bytes([metric.canonical(form, 2, classes) for form in (table, unnamed)])


@pytest.mark.parametrize(("name", "classes"), [("roc_auc", [0, 1]), ("r2", None)])
def test_equal_numbers_have_equal_bytes_in_every_container(name: str, classes: Any) -> None:
    metric = get_metric(name)
    known = None if classes is None else np.array(classes)
    numbers = [0.0, -2.0, 3.0]
    containers: list[Any] = [
        numbers,
        [0, -2, 3],
        np.array([0, -2, 3], dtype=np.int8),
        np.array([-0.0, -2, 3], dtype=np.float32),
        np.array([0.0, 9, -2, 9, 3, 9])[::2],
        np.array(numbers)[:, None],
        np.array(numbers, dtype=object),
    ]
    if pd is not None:
        containers += [
            pd.Series(numbers, index=list("cab")),
            pd.Series(numbers, dtype="Float64"),
            pd.DataFrame({"p": numbers}),
        ]
    forms = [metric.canonical(container, 3, known) for container in containers]
    assert same_bytes(forms)
    assert forms[0].dtype == np.float64 and not np.signbit(forms[0][0])


@pytest.mark.parametrize("name", ["accuracy", "neg_log_loss", "roc_auc", "r2"])
def test_the_canonical_form_shares_no_memory_with_what_came(name: str) -> None:
    metric = get_metric(name)
    classes = metric.classes_of([0, 1])
    came = np.array([[1.0, 0.0], [0.0, 1.0]]) if name == "neg_log_loss" else np.array([0.0, 1.0])
    if name == "accuracy":
        came = came.astype(np.int32)
    form = metric.canonical(came, 2, classes)
    assert not np.shares_memory(form, came)
    assert metric.canonical(form, 2, classes).tobytes() == form.tobytes()


def test_rounding_of_single_precision_probabilities_is_forgiven() -> None:
    metric = get_metric("neg_log_loss")
    table = np.array([[0.2, 0.3, 0.50002], [1.0000001, 0.0, -1e-8]])
    form = metric.canonical(table, 2, np.array([0, 1, 2]))
    assert form.min() >= 0 and form.max() <= 1


# Estimators


class Fixed:
    """An estimator that answers what it was given."""

    def __init__(self, **answers: Any) -> None:
        for name, answer in answers.items():
            is_method = name != "classes_"
            setattr(self, name, (lambda X, a=answer: a) if is_method else np.array(answer))


def test_columns_follow_the_classes_of_the_holdout() -> None:
    metric, classes = get_metric("neg_log_loss"), np.array(["a", "b", "c"])
    table = [[0.1, 0.9], [0.8, 0.2]]
    shuffled = Fixed(classes_=["c", "a"], predict_proba=table)
    answer = metric.respond(shuffled, None, classes)
    assert answer.tolist() == [[0.9, 0.0, 0.1], [0.2, 0.0, 0.8]]
    alone = Fixed(classes_=["b"], predict_proba=[[1.0], [1.0]])
    assert metric.respond(alone, None, classes).tolist() == [[0.0, 1.0, 0.0]] * 2
    thirds = np.full((2, 3), 1 / 3)
    for table in (thirds, *([pd.DataFrame(thirds)] if pd is not None else [])):
        silent = Fixed(predict_proba=table)
        assert metric.canonical(metric.respond(silent, None, classes), 2, classes).shape == (2, 3)


def test_scores_are_those_of_the_second_class() -> None:
    metric, classes = get_metric("roc_auc"), np.array(["a", "b"])
    table = [[0.1, 0.9], [0.8, 0.2]]
    assert metric.respond(Fixed(classes_=classes, predict_proba=table), 0, classes).tolist() == [
        0.9,
        0.2,
    ]
    swapped = Fixed(classes_=["b", "a"], predict_proba=table)
    assert metric.respond(swapped, None, classes).tolist() == [0.1, 0.8]
    both = Fixed(classes_=classes, predict_proba=table, decision_function=[3.0, -1.0])
    assert metric.respond(both, None, classes).tolist() == [3.0, -1.0]


@pytest.mark.parametrize("name", ["accuracy", "roc_auc", "neg_log_loss", "f1_macro"])
def test_pipelines_and_searches_respond_as_their_estimators(name: str) -> None:
    X, y = labelled(LABELS["two names"])
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    search = GridSearchCV(pipeline, {"logisticregression__C": [1.0]}, cv=2).fit(X, y)
    metric = get_metric(name)
    for estimator in (pipeline, search):
        expected = reference(name, pipeline, X, y)
        assert metric.score_of(estimator, X, y) == pytest.approx(expected, abs=1e-10)


@needs_pandas
def test_frames_lists_and_columns_are_read_from_an_estimator() -> None:
    classes = np.array([0, 1])
    accuracy, auc = get_metric("accuracy"), get_metric("roc_auc")
    for answer in ([0, 1], pd.Series([0, 1]), np.array([[0], [1]]), pd.DataFrame([0, 1])):
        came = accuracy.respond(Fixed(predict=answer), None, classes)
        assert accuracy.canonical(came, 2, classes).tolist() == [0, 1]
        came = auc.respond(Fixed(decision_function=answer), None, classes)
        assert auc.canonical(came, 2, classes).tolist() == [0.0, 1.0]


# Refusals. No message may hold a class name or a label.

CANARIES = ["canary-7731", "canary-9907"]
Y = np.array([CANARIES[0], CANARIES[1]] * 3)
TABLE = np.tile([0.25, 0.75], (6, 1))
NUMBERS = np.array([17.731, 2.5, 3.5, 4.5, 5.5, 6.5])


def refuse(
    kind: type[InvalidArgument], match: str, compute: Callable[..., Any], *args: Any, **kw: Any
) -> None:
    with pytest.raises(kind, match=match) as caught:
        compute(*args, **kw)
    error: BaseException | None = caught.value
    assert type(error) is kind
    while error is not None:
        for text in (str(error), repr(error)):
            for secret in ("canary", "7731", "9907", "17.731", "stranger"):
                assert secret not in text
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def submit(name: str, predictions: Any, y: Any = Y) -> Any:
    metric = get_metric(name)
    return metric.canonical(predictions, 6, metric.classes_of(y))


BAD_PREDICTIONS: list[tuple[str, str, Any]] = [
    ("accuracy", "one label for each of the 6 rows", Y[:5]),
    ("accuracy", "one label for each of the 6 rows", np.array("canary-7731")),
    ("accuracy", r"shape \(6, 2\) of float64.*predict\(X\)", TABLE),
    ("accuracy", "2 of 6 outside of them, the first at position 4", [*Y[:4], "stranger", "x"]),
    ("accuracy", "numbers where the classes are text", [0, 1, 0, 1, 0, 1]),
    ("accuracy", "mix", [*Y[:5], None]),
    ("accuracy", "mix", [*Y[:5], 3]),
    ("accuracy", "holds something else", np.array(Y, dtype="S11")),
    ("accuracy", "holds something else", [{"canary-7731": 1}] * 6),
    ("accuracy", "list that holds something else", [["canary-7731"], [], [], [], [], []]),
    ("neg_log_loss", "of text.*predict_proba", Y),
    ("neg_log_loss", "2 values outside", [0.5, 0.5, 0.5, 0.5, 3.0, -1]),
    ("neg_log_loss", r"shape \(6, 3\)", np.full((6, 3), 1 / 3)),
    ("neg_log_loss", r"shape \(6, 2, 1\)", TABLE[:, :, None]),
    ("neg_log_loss", r"shape \(5, 2\)", TABLE[:5]),
    ("neg_log_loss", "6 rows that do not", TABLE * 0.9),
    ("neg_log_loss", "1 nan and 1 infinite", [0.5, np.nan, np.inf, 0, 0, 0]),
    ("roc_auc", r"shape \(6, 2\).*predict_proba\(X\)\[:, 1\]", TABLE),
    ("roc_auc", "of text", Y),
    ("roc_auc", r"shape \(5,\)", NUMBERS[:5]),
    ("roc_auc", "0 nan and 2 infinite", [1, 2, 3, np.inf, -np.inf, 0]),
]


@pytest.mark.parametrize(("name", "match", "predictions"), BAD_PREDICTIONS)
def test_bad_predictions_are_refused_without_a_name(
    name: str, match: str, predictions: Any
) -> None:
    refuse(InvalidSubmission, f"(?s)predictions must be .*{match}", submit, name, predictions)


def test_probabilities_for_labels_are_refused_with_a_hint() -> None:
    y = [0, 1, 0, 1, 0, 1]
    hint = r"fractions or nan: submit predict\(X\)"
    refuse(InvalidSubmission, hint, submit, "accuracy", [0.2, 1, 0.4, 0, 0, 0], y)
    refuse(InvalidSubmission, hint, submit, "accuracy", [np.nan, 1, 0, 0, 0, 0], y)
    refuse(InvalidSubmission, "text where the classes are numbers", submit, "accuracy", Y, y)
    refuse(InvalidSubmission, "pass classes= when", submit, "accuracy", [7, 1, 0, 0, 0, 0], y)


BAD_VALUES: list[tuple[str, str, Any]] = [
    ("neg_mean_squared_error", r"shape \(5,\)", NUMBERS[:5]),
    ("neg_mean_squared_error", "of text", Y),
    ("neg_mean_squared_error", "1 nan and 0 infinite", [np.nan, 1, 2, 3, 4, 5]),
    ("neg_mean_squared_error", "holds something else", NUMBERS + 1j),
    ("neg_mean_squared_error", r"shape \(\)", 17.731),
    ("neg_root_mean_squared_error", r"shape \(6, 2\)", TABLE),
    ("neg_mean_poisson_deviance", "above 0.*1 that are not", NUMBERS - 2.5),
    ("neg_mean_squared_log_error", "above -1.*6 that are not", -NUMBERS),
    ("neg_mean_gamma_deviance", "by 1e-100 at least.*6 that are not", NUMBERS * 1e-110),
    ("r2", "between -1e.100 and 1e.100.*2 outside", [1e101, -1e101, 0, 0, 0, 0]),
]


@pytest.mark.parametrize(("name", "match", "predictions"), BAD_VALUES)
def test_bad_values_are_refused_without_a_label(name: str, match: str, predictions: Any) -> None:
    refuse(
        InvalidSubmission,
        f"(?s)predictions must be .*{match}",
        get_metric(name).canonical,
        predictions,
        6,
        None,
    )


def test_values_of_another_number_of_outputs_are_refused() -> None:
    metric = get_metric("r2")
    targets = metric.targets(np.column_stack([NUMBERS, NUMBERS]), None)
    refuse(InvalidSubmission, r"shape \(6,\)", metric.evaluate, targets, NUMBERS)
    refuse(InvalidSubmission, r"shape \(5,\)", metric.evaluate, NUMBERS, NUMBERS[:5])


def targets_of(name: str, y: Any, classes: Any = None) -> Any:
    metric = get_metric(name)
    return metric.targets(y, metric.classes_of(y, classes))


BAD_TARGETS: list[tuple[str, str, Any, Any]] = [
    ("accuracy", "one label for each row", np.stack([Y, Y]), None),
    ("accuracy", "one label for each row", [], None),
    ("accuracy", "fractions", NUMBERS, None),
    ("accuracy", "fractions, nan", [0, 1, np.nan], None),
    ("accuracy", "mix", [*CANARIES, None], None),
    ("accuracy", "another one in 3 of 6 rows", Y, CANARIES[:1]),
    ("accuracy", "another one in 6 of 6 rows", Y, [1, 2]),
    ("roc_auc", "exactly two classes for 'roc_auc'", [*Y, "canary-1"], None),
    ("f1", "exactly two classes for 'f1'", [*Y, "canary-1"], None),
    ("average_precision", "exactly two classes", Y[:1], None),
    ("neg_log_loss", "at least two classes", Y[:1], None),
    ("f1", "positive class second", [1, 2, 2], None),
    ("average_precision", "positive class second", [1, 2, 2], None),
    ("roc_auc", "Every class has to occur", Y[:1], CANARIES),
    ("average_precision", "Every class has to occur", Y[:1], CANARIES),
    ("roc_auc_ovr", "Every class has to occur", Y, [*CANARIES, "canary-1"]),
    ("roc_auc_ovo_weighted", "Every class has to occur", Y, [*CANARIES, "canary-1"]),
    ("pearson", "measured targets have to vary", np.full(5, 17.731), None),
    ("spearman", "measured targets have to vary", np.full(5, 17.731), None),
    ("concordance", "measured targets have to vary", np.full(5, 17.731), None),
    ("r2", "of text", Y, None),
    ("r2", "1 nan and 1 infinite", [17.731, np.nan, np.inf], None),
    ("r2", r"shape \(0,\)", [], None),
    ("pearson", r"one number for each row, .*shape \(6, 2\)", TABLE, None),
    ("neg_mean_squared_log_error", "above -1 .* 2 places", [17.731, -1, -3], None),
    ("neg_mean_poisson_deviance", "at least 0 .* 1 places", [17.731, 0, -3], None),
    ("neg_mean_gamma_deviance", "above 0 .* 2 places", [17.731, 0, -3], None),
    ("neg_mean_poisson_deviance", "at least 0 .* 1 places", [17.731, 0, 1e-320], None),
    ("neg_max_error", "between -1e.100 and 1e.100.*1 outside", [17.731e200, 0], None),
]


@pytest.mark.parametrize(("name", "match", "y", "classes"), BAD_TARGETS)
def test_bad_targets_are_refused_at_once_without_a_label(
    name: str, match: str, y: Any, classes: Any
) -> None:
    refuse(InvalidArgument, f"(?s)y must be .*{match}", targets_of, name, y, classes)


def test_the_lower_of_two_numbers_may_be_one_where_scikit_learn_takes_the_greater() -> None:
    X, y = labelled(np.array([1, 2]))
    estimator = LogisticRegression().fit(X, y)
    expected = reference("roc_auc", estimator, X, y)
    assert get_metric("roc_auc").score_of(estimator, X, y) == pytest.approx(expected, abs=1e-12)


def test_classes_are_needed_for_labels_and_ignored_for_values() -> None:
    refuse(InvalidArgument, "what classes_of returned", get_metric("f1").canonical, Y, 6, None)
    mse = get_metric("neg_mean_squared_error")
    classes = np.array([0, 1])
    assert mse.classes_of([0, 1], classes) is None
    assert mse.targets([0, 1], classes).tolist() == [0.0, 1.0]
    assert mse.canonical([0.5, 1], 2, classes).tolist() == [0.5, 1.0]


def test_estimators_with_unknown_classes_or_without_the_method_are_refused() -> None:
    X, y = rows()[0], np.resize(Y, 200)
    more = np.resize([*CANARIES, "canary-1"], 200)
    classes = np.array(CANARIES)
    stranger = LogisticRegression().fit(X, more)
    for name in ("accuracy", "neg_log_loss", "roc_auc"):
        respond = get_metric(name).respond
        refuse(InvalidSubmission, "1 more.*pass classes=", respond, stranger, X, classes)
    auc, loss = get_metric("roc_auc"), get_metric("neg_log_loss")
    refuse(InvalidSubmission, "predict_proba.*LinearSVC", loss.respond, LinearSVC(), X, classes)
    svc = SVC().fit(X, y)
    refuse(InvalidSubmission, "predict_proba.*SVC", loss.respond, svc, X, classes)
    tree = DecisionTreeRegressor()
    refuse(InvalidSubmission, "decision_function or predict_proba", auc.respond, tree, X, classes)
    swapped = Fixed(classes_=CANARIES[::-1], decision_function=[0.0])
    refuse(InvalidSubmission, "sorted order", auc.respond, swapped, X, classes)
    lone = Fixed(classes_=CANARIES[:1], decision_function=[0.0])
    refuse(InvalidSubmission, "both classes", auc.respond, lone, X, classes)
    narrow = Fixed(classes_=CANARIES[::-1], predict_proba=[[1.0, 0.0, 0.0]])
    refuse(InvalidSubmission, "2 classes, but is", loss.respond, narrow, X, classes)
    many = MultiOutputClassifier(GaussianNB()).fit(X, np.column_stack([y, more]))
    accuracy = get_metric("accuracy")
    refuse(InvalidSubmission, "one output", accuracy.respond, many, X, classes)


def test_a_plain_score_between_text_and_numbers_is_refused() -> None:
    X, _ = rows()
    estimator = GaussianNB().fit(X, np.arange(200) % 2)
    refuse(
        InvalidArgument,
        "labels like those of the fit",
        get_metric("accuracy").score_of,
        estimator,
        X,
        np.resize(Y, 200),
    )


@pytest.mark.parametrize(
    "weights", [[1, 2], [-1, 2, 3], [0, 0, 0], [1, np.nan, 1], [1, np.inf, 1], [[1, 1, 1]]]
)
def test_unusable_weights_are_refused(weights: Any) -> None:
    metric = get_metric("accuracy")
    targets, predictions = np.array([0, 1, 1]), np.array([0, 1, 0])
    refuse(InvalidArgument, "weights must be 3", metric.evaluate, targets, predictions, weights)
    refuse(
        InvalidArgument,
        "weights must be 3",
        metric.evaluate(targets, predictions).risk_under,
        weights,
    )


@pytest.mark.parametrize("name", ["accuracy", "f1"])
def test_weights_that_meet_only_zeros_are_refused(name: str) -> None:
    evaluation = get_metric(name).evaluate(np.array([0, 1, 1]), np.array([0, 1, 0]), [0, 1, 1])
    refuse(InvalidArgument, "weights must be", evaluation.risk_under, [1, 0, 0])


# Metrics of one's own


def telling(targets: Any, predictions: Any, sample_weight: Any = None) -> float:
    raise ValueError(f"the labels are canary-7731 {targets}")


def warning(targets: Any, predictions: Any, sample_weight: Any = None) -> float:
    warnings.warn("canary-7731", UserWarning, stacklevel=1)
    time.sleep(1e-4)  # another thread gets its turn in the middle
    return float(np.average(targets == predictions, weights=sample_weight))


def test_a_function_that_raises_says_nothing_but_its_kind() -> None:
    codes = np.array([0, 1])
    for metric in (Metric("own", "labels", score=telling), Metric("own", "labels", loss=telling)):
        refuse(InvalidSubmission, "raised ValueError", metric.evaluate, codes, codes)
        refuse(InvalidArgument, "raised ValueError", metric.targets, Y, np.array(CANARIES))
        with pytest.raises(InvalidSubmission) as caught:
            metric.evaluate(codes, codes)
        assert caught.value.__context__ is None


def test_our_own_errors_pass_through_a_function() -> None:
    def gone(*_: Any, **__: Any) -> float:
        raise UnknownHoldout("no such holdout")

    with pytest.raises(UnknownHoldout, match="no such holdout"):
        Metric("own", "labels", score=gone).evaluate(np.array([0, 1]), np.array([0, 1]))


def test_a_function_without_a_finite_value_is_refused() -> None:
    codes = np.array([0, 1])
    for value in (np.nan, np.inf, -np.inf):
        metric = Metric("own", "labels", score=lambda t, p, sample_weight, v=value: v)
        refuse(InvalidSubmission, "no finite number", metric.evaluate, codes, codes)
        metric = Metric("own", "labels", loss=lambda t, p, v=value: np.array([0, v]))
        refuse(InvalidSubmission, "no finite number", metric.evaluate, codes, codes)
    huge = Metric("own", "labels", loss=lambda t, p: np.full(2, 1e308))
    with np.errstate(over="ignore"):
        refuse(InvalidSubmission, "overflows", huge.evaluate, codes, codes)


def test_a_function_of_another_shape_or_range_is_refused() -> None:
    codes = np.array([0, 1])
    flat = Metric("own", "labels", loss=lambda t, p: 0.5)
    refuse(InvalidArgument, "one loss for each row", flat.evaluate, codes, codes)
    wide = Metric("own", "labels", loss=lambda t, p: t * 3.0, loss_range=(0, 1))
    refuse(InvalidArgument, "wide enough", wide.evaluate, codes, codes)
    clipped = replace(wide, clip=True).evaluate(codes, codes)
    assert clipped.losses is not None and clipped.losses.tolist() == [0.0, 3.0]
    assert clipped.bounded_losses is not None and clipped.bounded_losses.tolist() == [0.0, 1.0]
    assert clipped.risk == 1.5 and clipped.clipped == 1
    endless = Metric("own", "labels", lambda t, p: t / 0.0, loss_range=(0, 1), clip=True)
    refuse(InvalidSubmission, "no finite number", endless.evaluate, np.array([1, 1]), codes)
    out = Metric("own", "labels", score=lambda t, p, sample_weight: 1.5, loss_range=(0, 1))
    refuse(InvalidArgument, "wide enough", out.evaluate, codes, codes)


def test_warnings_of_a_function_are_held_back() -> None:
    metric = Metric("own", "labels", score=warning, offset=1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluation = metric.evaluate(np.array([0, 1]), np.array([0, 0]))
        assert evaluation.risk_under([1, 3]) == 0.75
    assert caught == []


def test_threads_leave_the_warning_filters_as_they_were() -> None:
    metric = Metric("own", "labels", score=warning, offset=1.0)
    codes = np.arange(50)
    before = list(warnings.filters)
    work = [
        threading.Thread(target=lambda: [metric.evaluate(codes, codes) for _ in range(20)])
        for _ in range(8)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert list(warnings.filters) == before


def test_a_function_that_writes_into_its_arrays_changes_nothing() -> None:
    seen: list[Any] = []

    def spy(targets: Any, predictions: Any, sample_weight: Any = None) -> float:
        seen.extend([targets, predictions])
        score = float((targets == predictions).mean())
        targets[:] = predictions[:] = 1
        return score

    answer = np.array([0, 1])
    metric = Metric("own", "labels", score=spy)
    targets = np.array([0, 1])
    assert [metric.evaluate(targets, answer).risk for _ in range(2)] == [-1.0, -1.0]
    assert targets.tolist() == answer.tolist() == [0, 1]
    assert all(array is not answer and array is not targets for array in seen)


def test_losses_do_not_change_with_the_array_a_function_returned() -> None:
    buffer = np.array([0.0, 1.0])
    evaluation = Metric("own", "labels", loss=lambda t, p: buffer).evaluate(
        np.array([0, 1]), np.array([0, 1])
    )
    buffer[:] = 9
    assert evaluation.losses is not None and evaluation.losses.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        evaluation.losses[0] = 5


def test_functions_of_scikit_learn_fit_as_they_are_and_skip_rows_without_weight() -> None:
    metric = Metric("macro", "labels", score=partial(sk.f1_score, average="macro"), offset=1.0)
    rng = np.random.default_rng(3)
    targets, guesses = rng.integers(0, 3, size=60), rng.integers(0, 2, size=60)
    evaluation = metric.evaluate(targets, guesses)
    assert evaluation.risk == pytest.approx(get_metric("f1_macro").evaluate(targets, guesses).risk)
    kept = targets != 2
    expected = 1 - sk.f1_score(targets[kept], guesses[kept], average="macro")
    assert evaluation.risk_under(kept) == pytest.approx(expected, abs=1e-12)


# Settings


@pytest.mark.parametrize(
    ("match", "settings"),
    [
        ("name must be", {"name": ""}),
        ("response must be", {"response": "guesses"}),
        ("loss must be", {"score": telling}),
        ("loss must be", {"loss": None}),
        ("loss_range must be", {"loss_range": (1, 0)}),
        ("loss_range must be", {"loss_range": (0, np.inf)}),
        ("loss_range must be", {"loss_range": 3}),
        ("loss_range must be", {"loss_range": (0, 1, 2)}),
        ("two_class_range must be", {"two_class_range": (0, np.nan)}),
        ("offset must be", {"offset": np.inf}),
        ("clip must be", {"clip": True}),
        ("clip must be", {"clip": True, "loss": None, "score": telling, "loss_range": (0, 1)}),
    ],
)
def test_contradictory_settings_are_refused(match: str, settings: dict[str, Any]) -> None:
    fine: dict[str, Any] = {"name": "own", "response": "labels", "loss": telling}
    refuse(InvalidArgument, match, Metric, **(fine | settings))


def test_a_stated_range_clips_the_losses_of_limits_alone() -> None:
    metric = get_metric("neg_mean_squared_error").with_range((0, 4))
    assert metric.bounded and metric.clip and metric.loss_range == (0.0, 4.0)
    evaluation = metric.evaluate(np.array([0.0, 0, 0]), np.array([1.0, 2, 9]))
    assert evaluation.bounded_losses is not None and evaluation.losses is not None
    assert evaluation.bounded_losses.tolist() == [1, 4, 4] and evaluation.clipped == 1
    assert evaluation.losses.tolist() == [1, 4, 81] and evaluation.risk == pytest.approx(86 / 3)


def test_a_range_may_be_any_pair() -> None:
    """One that can be read once alone, too."""
    plain = get_metric("r2").with_target_range((0, 3), (0, 2))
    assert get_metric("r2").with_target_range(iter((0, 3)), iter((0, 2))) == plain
    assert get_metric("neg_mean_absolute_error").with_range(iter((0, 5))).loss_range == (0.0, 5.0)


@pytest.mark.parametrize(
    ("name", "loss_range"),
    [
        ("accuracy", (0, 2)),
        ("roc_auc", (0, 1)),
        ("neg_log_loss", (1, 2)),
        ("neg_log_loss", (-1, 2)),
        ("neg_log_loss", (0, 0)),
        ("neg_log_loss", (0, np.inf)),
        ("neg_log_loss", (0, np.nan)),
        ("neg_log_loss", "wide"),
        ("neg_log_loss", None),
    ],
)
def test_a_range_is_refused_where_it_means_nothing(name: str, loss_range: Any) -> None:
    refuse(InvalidArgument, "loss_range must be", get_metric(name).with_range, loss_range)


def test_an_unknown_name_is_refused_with_close_ones() -> None:
    refuse(InvalidArgument, "one of the 45 names.*'roc_auc'", get_metric, "rocauc")
    refuse(InvalidArgument, "METRICS lists them", get_metric, "zzzzzz")


@pytest.mark.parametrize("scoring", [sk.get_scorer("f1"), sk.f1_score, None, {"f1": "f1"}])
def test_scorers_and_functions_are_refused_with_the_way_that_works(scoring: Any) -> None:
    refuse(InvalidArgument, r"give Metric\(name, response, score=function\)", get_metric, scoring)


def test_a_metric_is_taken_as_it_is() -> None:
    metric = Metric("own", "labels", loss=telling)
    assert get_metric(metric) is metric


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_frozen_and_survive_a_pickle(name: str) -> None:
    metric = get_metric(name)
    assert pickle.loads(pickle.dumps(metric)) == metric
    with pytest.raises(FrozenInstanceError):
        metric.offset = 2.0  # type: ignore[misc]


# Evaluation


def test_an_evaluation_shows_neither_risk_nor_losses() -> None:
    for evaluation in (
        Evaluation.from_losses([0.17731, 1.0]),
        get_metric("f1").evaluate(np.array([0, 1, 1]), np.array([0, 1, 0])),
    ):
        assert repr(evaluation) == str(evaluation) == f"Evaluation(n={evaluation.n})"


@given(losses=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_the_risk_is_the_mean_of_the_losses(losses: list[float]) -> None:
    evaluation = Evaluation.from_losses(losses)
    assert evaluation.losses is not None
    assert float(evaluation.losses.mean()) == evaluation.risk
    assert evaluation.risk_under(np.ones(len(losses))) == evaluation.risk
    assert evaluation.scaled(1) is evaluation
    third = evaluation.scaled(1 / 3)
    assert third.losses is not None
    assert float(third.losses.mean()) == third.risk


@pytest.mark.parametrize("losses", [[], [[1.0, 2.0]], 3.0, [np.nan, 1], [np.inf, 1]])
def test_losses_that_are_none_are_refused(losses: Any) -> None:
    refuse(InvalidArgument, "losses must be", Evaluation.from_losses, losses)


@pytest.mark.parametrize("factor", [0, -1, np.inf, np.nan])
def test_only_positive_factors_scale(factor: float) -> None:
    refuse(InvalidArgument, "factor must be", Evaluation.from_losses([1, 2]).scaled, factor)


def test_lists_nested_deeper_than_calls_and_lists_that_hold_themselves_are_refused() -> None:
    nested: list[Any] = [np.ma.array([1], mask=[True])]
    plain: list[Any] = [1]
    for _ in range(20_000):
        nested, plain = [nested], [plain]
    itself: list[Any] = [[0], 1]
    itself.append(itself)
    cells = np.empty(2, dtype=object)
    cells[:] = [1, cells]
    assert has_mask(nested)
    assert not any(map(has_mask, (plain, itself, cells)))
