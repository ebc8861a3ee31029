"""Attacks the positive class: the first of two, on rows that are registered, by every door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.naive_bayes import GaussianNB

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import (
    HoldoutConflict,
    TargetWarning,
)
from ladderholdout.guard import ladder as handles
from ladderholdout.integrations.ranges import ProposedRange
from ladderholdout.integrations.sklearn import plain_scorer
from ladderholdout.mechanisms import FullDisclosure
from ladderholdout.metrics import get_metric
from tests.support.beyond_plain import needs_pandas, pd
from tests.support.commands import CliRunner

N = 90
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2 * N, 2))
CODES = (X[:, 0] + RNG.normal(size=2 * N) > 0.7).astype(int)
TRAIN, HELD = slice(0, N), slice(N, None)
FUNCTIONS: dict[str, Any] = {
    "f1": sk.f1_score,
    "f2": lambda t, p, pos_label: sk.fbeta_score(t, p, beta=2, pos_label=pos_label),
    "precision": sk.precision_score,
    "recall": sk.recall_score,
    "jaccard": sk.jaccard_score,
}
LABELS = {"names": ["bad", "good"], "numbers": [0, 1], "bools": [False, True], "from 1": [1, 2]}
known = pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")


def opened(y: Any, scoring: Any, **given: Any) -> LadderHoldout:
    stated = {"ledger": "memory", "mechanism": FullDisclosure()} | given
    return LadderHoldout(X[HELD], y[HELD], scoring=scoring, **stated)


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("place", [0, 1])
def test_scores_are_of_the_class_that_is_stated(place: int, kind: str) -> None:
    y = np.array(LABELS[kind])[CODES]
    positive = LABELS[kind][place]
    predicted = GaussianNB().fit(X[TRAIN], y[TRAIN]).predict(X[HELD])
    holdout = opened(y, list(FUNCTIONS), pos_label=positive)
    shown = holdout.submit(predicted).by_metric
    for name, function in FUNCTIONS.items():
        true = function(y[HELD], predicted, pos_label=positive)
        assert shown[name].score == pytest.approx(true, abs=1e-12)
        metric = get_metric(name).with_pos_label(positive)
        assert metric.score_from(y[HELD], predicted) == pytest.approx(true, abs=1e-12)
    with holdout.batch() as batch:
        batch.submit(predicted)
    assert batch.releases[0].by_metric["f1"].score == shown["f1"].score


@needs_pandas
@pytest.mark.parametrize("place", [0, 1])
def test_average_precision_ranks_by_the_class_that_is_stated(place: int) -> None:
    y = np.array(["bad", "good"])[CODES]
    positive = ["bad", "good"][place]
    holdout = opened(y, "average_precision", pos_label=positive)
    scorer = make_scorer(
        sk.average_precision_score,
        response_method=("decision_function", "predict_proba"),
        pos_label=positive,
    )
    plain = plain_scorer(get_metric("average_precision").with_pos_label(positive))
    for model in (LogisticRegression(), GaussianNB()):
        true = scorer(model.fit(X[TRAIN], y[TRAIN]), X[HELD], y[HELD])
        assert holdout.submit(model).score == pytest.approx(true, abs=1e-12)
        assert plain(model, X[HELD], y[HELD]) == pytest.approx(true, abs=1e-12)
    table = pd.DataFrame(model.predict_proba(X[HELD]), columns=["bad", "good"])
    several = opened(y, ["roc_auc", "average_precision"], pos_label=positive)
    for given in (table, table[["bad"]], table["good"], table[positive].to_numpy()):
        assert holdout.submit(given).score == pytest.approx(true, abs=1e-9)
    assert several.submit(table)["average_precision"].score == pytest.approx(true, abs=1e-12)


@known
def test_rows_that_are_registered_are_asked_for_the_other_class(tmp_path: Path) -> None:
    """As the warning says it: another ladder, on the same holdout."""
    y, ledger = np.array(["bad", "good"])[CODES], tmp_path / "ledger.db"
    predicted = GaussianNB().fit(X[TRAIN], y[TRAIN]).predict(X[HELD])
    opened(y, "accuracy", ledger=ledger, name="loans").submit(predicted)
    with pytest.warns(TargetWarning, match='pos_label= with that class, and ladder="another name"'):
        second = opened(y, "f1", ledger=ledger, ladder="f1")
    first = opened(y, "f1", ledger=ledger, ladder="f1 of bad", pos_label="bad")
    assert first.name == "loans" and first.status().n == N
    true = sk.f1_score(y[HELD], predicted, pos_label="bad")
    assert first.submit(predicted).score == pytest.approx(true, abs=1e-12)
    assert second.submit(predicted).score == pytest.approx(
        sk.f1_score(y[HELD], predicted, pos_label="good"), abs=1e-12
    )
    with pytest.raises(HoldoutConflict, match="with pos_label None, and you ask for 'bad'"):
        opened(y, "f1", ledger=ledger, ladder="f1", pos_label="bad")
    handles._guards.clear()  # as in another process
    constant = DummyClassifier(strategy="constant", constant="bad").fit(X[TRAIN], y[TRAIN])
    again = LadderHoldout.open("loans", ladder="f1 of bad", ledger=ledger)
    assert again.submit(constant).score == pytest.approx(
        sk.f1_score(y[HELD], np.full(N, "bad"), pos_label="bad"), abs=1e-12
    )


def test_certificates_are_those_of_true_for_that_class() -> None:
    y = np.array(["bad", "good"])[CODES]
    predicted = GaussianNB().fit(X[TRAIN], y[TRAIN]).predict(X[HELD])
    stated = opened(y, "f1", pos_label="bad", mechanism=None)
    truth = opened(y == "bad", "f1", mechanism=None)
    assert stated.submit(predicted).score == truth.submit(predicted == "bad").score
    ends = [(one.low, one.high) for one in (stated.certificate(), truth.certificate())]
    assert ends[0] == ends[1] and ends[0][0] < ends[0][1]


def test_what_is_no_positive_class_is_refused() -> None:
    y = np.array(["bad", "good"])[CODES]
    for scoring, label in (("f1", "Bad"), ("roc_auc", "bad"), ("f1_macro", "bad"), ("f1", ["bad"])):
        with pytest.raises(InvalidArgument, match="pos_label"):
            opened(y, scoring, pos_label=label)
    numbers = opened(CODES, "f1", pos_label="0")  # in whatever spelling
    assert numbers.submit(np.zeros(N, int)).score == pytest.approx(
        sk.f1_score(CODES[HELD], np.zeros(N), pos_label=0), abs=1e-12
    )


def test_the_command_line_states_it(tmp_path: Path) -> None:
    rows = [f"{x[0]},{x[1]},{label}" for x, label in zip(X[HELD], CODES[HELD], strict=True)]
    (tmp_path / "h.csv").write_text("\n".join(["a,b,t", *rows]))
    (tmp_path / "p.csv").write_text("\n".join(["p", *["0"] * N]))
    place, run = ["--ledger", str(tmp_path / "ledger.db")], CliRunner().invoke
    stated = ["--target", "t", "--scoring", "f1", "--pos-label", "0", "--name", "h"]
    stated += ["--mechanism", "FullDisclosure()"]
    assert run(app, ["register", str(tmp_path / "h.csv"), *stated, *place]).exit_code == 0
    shown = run(app, ["submit", "h", str(tmp_path / "p.csv"), "--json", *place])
    assert json.loads(shown.stdout)["score"] == pytest.approx(
        sk.f1_score(CODES[HELD], np.zeros(N), pos_label=0), abs=1e-12
    )


@known
@pytest.mark.parametrize(
    ("scoring", "targets"), [("neg_mean_absolute_error", None), ("r2", (-9.0, 9.0))]
)
def test_a_proposed_range_is_a_range(scoring: str, targets: Any) -> None:
    y = X[HELD, 0] + RNG.normal(size=N)
    place = {"scoring": scoring, "ledger": f"memory:{scoring}", "name": "proposed"}
    LadderHoldout(X[HELD], y, **place)
    proposed = ProposedRange((0.0, 12.0), targets, "errors to 12", 3.0)
    ladder = LadderHoldout(X[HELD], y, **place, loss_range=proposed)._ladder
    stated = LadderHoldout(
        X[HELD], y, **place, loss_range=(0, 12), target_range=targets, ladder="errors to 12"
    )
    assert ladder == stated._ladder and ladder.facts.ladder == "errors to 12"
