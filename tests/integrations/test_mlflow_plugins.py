"""Attacks MLflow's plugins: raw scores beside a release, labels in data sets, other models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import mlflow.data
import mlflow.models
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.data.evaluation_dataset import EvaluationDataset
from mlflow.entities import Run
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import TrackingError
from ladderholdout.guard.query import seen
from ladderholdout.integrations.mlflow import dataset_of
from ladderholdout.integrations.mlflow.dataset import HoldoutSource
from ladderholdout.integrations.mlflow.evaluator import LadderEvaluator
from tests.integrations.test_mlflow import tiny
from tests.support.canaries import canaries_of
from tests.support.holdouts import coins, entries_of
from tests.support.mlflow_stores import new_store, plugins, python, store_bytes
from tests.support.server import registered, rows, serving, token_of

pytestmark = [
    pytest.mark.processes,
    # MLflow's own use of pandas.
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.drop"),
]

COLUMNS = ["a", "b", "c"]


@pytest.fixture
def holdout(tmp_path: Path) -> LadderHoldout:
    return tiny(tmp_path / "ledger.db")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    uri = new_store(tmp_path / "store")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


def trained(seed: int = 3, **settings: Any) -> DecisionTreeClassifier:
    X, y = coins(200, seed)
    return DecisionTreeClassifier(max_depth=4, random_state=0, **settings).fit(X, y)


class Model:
    """What MLflow hands an evaluator: a model that predicts, and the one behind it."""

    def __init__(self, model: Any, *, hands_out: bool = True) -> None:
        self._model, self._hands_out = model, hands_out

    def predict(self, X: Any) -> Any:
        return self._model.predict(np.asarray(X))

    def get_raw_model(self) -> Any:
        if not self._hands_out:
            raise NotImplementedError
        return self._model


def evaluate(store: str, data: EvaluationDataset, model: Any, **config: Any) -> tuple[Any, Run]:
    """Call the evaluator as MLflow does, with a run."""
    client = MlflowClient(store)
    run = client.create_run("0").info.run_id
    found = LadderEvaluator().evaluate(
        model_type="ladderholdout",
        dataset=data,
        run_id=run,
        evaluator_config=config,
        model=model,
    )
    return found, client.get_run(run)


# -- the evaluator ---------------------------------------------------------------------------


def test_rows_in_any_order_are_one_submission_and_its_release(
    holdout: LadderHoldout, store: str
) -> None:
    X, _ = coins()
    model = trained()
    expected = holdout.submit(model)
    order = np.random.default_rng(0).permutation(len(X))
    for data in (X, X[order], pd.DataFrame(X[order])):
        found, run = evaluate(store, EvaluationDataset(data), Model(model), holdout=holdout)
        # The same predictions for the same rows: a repeat, which steps nothing.
        (entry,) = entries_of(holdout)[-1:]
        assert entry.repeat_of == expected.submission
        assert found.metrics == {"ladder_released": expected.score, "ladder_improved": 0.0}
        assert run.data.metrics == found.metrics
        history = MlflowClient(store).get_metric_history(run.info.run_id, "ladder_released")
        assert [(one.step, one.timestamp) for one in history] == [
            (entry.number, round(entry.time.timestamp() * 1000))
        ]
        tag = run.data.tags["ladderholdout.evaluated"]
        assert tag.startswith("tiny (default/main") and f"submission {entry.number}" in tag
        (data_input,) = run.inputs.dataset_inputs
        assert data_input.dataset.source_type == "ladderholdout"
    assert entry.context["mlflow_run"] == run.info.run_id
    assert entry.context["estimator"] == "DecisionTreeClassifier"
    everything = store_bytes(store)
    assert not canaries_of(holdout, coins()[1]).found_in(everything)


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc", "accuracy"])
def test_each_metric_gets_what_it_asks_of_a_model(tmp_path: Path, store: str, scoring: str) -> None:
    X, y = coins()
    held = LadderHoldout(X, y, scoring=scoring, name=scoring, ledger=tmp_path / "metric.db")
    train, labels = coins(200, 5)
    model = LogisticRegression().fit(train, labels)
    expected = held.submit(model)
    found, _ = evaluate(store, EvaluationDataset(X), Model(model), holdout=held)
    assert found.metrics["ladder_released"] == expected.score
    assert entries_of(held)[-1].repeat_of == expected.submission


def test_a_model_that_is_not_handed_out_answers_by_itself(
    holdout: LadderHoldout, store: str, tmp_path: Path
) -> None:
    X, y = coins()
    model = trained()
    expected = holdout.submit(model)
    hidden = Model(model, hands_out=False)
    found, _ = evaluate(store, EvaluationDataset(X), hidden, holdout=holdout)
    assert found.metrics["ladder_released"] == expected.score
    table = type("Table", (), {"predict": lambda _, X: pd.DataFrame(model.predict(X))})()
    found, _ = evaluate(store, EvaluationDataset(X), table, holdout=holdout)
    assert entries_of(holdout)[-1].repeat_of == expected.submission
    losses = LadderHoldout(X, y, scoring="neg_log_loss", name="p", ledger=tmp_path / "p.db")
    with pytest.raises(InvalidArgument, match=r"predicts probabilities.*pyfunc_predict_fn"):
        evaluate(store, EvaluationDataset(X), hidden, holdout=losses)
    assert losses.status().submissions == 0
    proba = type("Proba", (), {"predict": lambda _, X: model.predict_proba(X)})()
    expected = losses.submit(model)
    found, _ = evaluate(store, EvaluationDataset(X), proba, holdout=losses)
    assert entries_of(losses)[-1].repeat_of == expected.submission


def test_predictions_of_a_column_are_submitted_in_the_order_of_the_rows(
    holdout: LadderHoldout, store: str
) -> None:
    X, _ = coins()
    predictions = trained().predict(X)
    expected = holdout.submit(predictions)
    frame = pd.DataFrame(X, columns=COLUMNS).assign(answer=predictions)
    frame = frame.sample(frac=1, random_state=1)
    data = EvaluationDataset(frame, predictions="answer")
    found, _ = evaluate(store, data, None, holdout=holdout)
    assert found.metrics["ladder_released"] == expected.score
    assert entries_of(holdout)[-1].repeat_of == expected.submission


def test_equal_rows_with_different_predictions_have_no_order(tmp_path: Path, store: str) -> None:
    X = np.repeat(np.arange(20.0), 2)[:, None]
    y = np.arange(40) % 2
    held = LadderHoldout(X, y, scoring="accuracy", name="twins", ledger=tmp_path / "twins.db")
    answers = np.arange(40) % 2

    def data(order: NDArray[Any]) -> EvaluationDataset:
        frame = pd.DataFrame({"a": X[order, 0], "answer": answers[order]})
        return EvaluationDataset(frame, predictions="answer")

    found, _ = evaluate(store, data(np.arange(40)), None, holdout=held)
    assert found.metrics["ladder_released"] == 1.0
    with pytest.raises(InvalidArgument, match="equal for rows that are equal"):
        evaluate(store, data(np.arange(40)[::-1]), None, holdout=held)
    assert held.status().submissions == 1


def test_a_holdout_is_named_where_it_is_registered(
    holdout: LadderHoldout, store: str, tmp_path: Path
) -> None:
    X, _ = coins()
    data, model = EvaluationDataset(X), Model(trained())
    place = str(tmp_path / "ledger.db")
    found, _ = evaluate(store, data, model, holdout="tiny", ledger=place, context={"idea": "7"})
    assert found.metrics["ladder_released"] == holdout.status().score
    assert entries_of(holdout)[-1].context["idea"] == "7"


def test_what_is_refused_submits_nothing(holdout: LadderHoldout, store: str) -> None:
    X, y = coins()
    frame = pd.DataFrame(X, columns=COLUMNS)
    data, model = EvaluationDataset(frame), Model(trained())
    labelled = EvaluationDataset(frame.assign(y=y), targets="y")
    few, others = EvaluationDataset(frame[:-1]), EvaluationDataset(frame + 1)
    for given, by, config, argument in (
        (labelled, model, {"holdout": holdout}, "targets"),
        (few, model, {"holdout": holdout}, "data"),
        (others, model, {"holdout": holdout}, "data"),
        (EvaluationDataset(frame[["a", "b"]]), model, {"holdout": holdout}, "data"),
        (data, None, {"holdout": holdout}, "model"),
        (data, model, {"holdout": 7}, "evaluator_config"),
        (data, model, {"holdout": holdout, "metric": "f1"}, "evaluator_config"),
        (data, model, {"holdout": holdout, "ledger": "x"}, "evaluator_config"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            evaluate(store, given, by, **config)
        assert refused.value.args[0] == argument
        assert not canaries_of(holdout, y).found_in(str(refused.value))
    for more in ({"extra_metrics": [max]}, {"custom_artifacts": [max]}):
        with pytest.raises(InvalidArgument, match="left out"):
            LadderEvaluator().evaluate(
                model_type="x",
                dataset=data,
                run_id="",
                evaluator_config={"holdout": holdout},
                **more,
            )
    assert holdout.status().submissions == 0


def test_a_tracking_server_that_refuses_is_named_and_the_ledger_holds_all(
    holdout: LadderHoldout, store: str
) -> None:
    with pytest.raises(TrackingError, match="Submission 1 is in the ledger"):
        LadderEvaluator().evaluate(
            model_type="ladderholdout",
            dataset=EvaluationDataset(coins()[0]),
            run_id="0" * 32,
            evaluator_config={"holdout": holdout},
            model=Model(trained()),
        )
    assert holdout.status().submissions == 1


@pytest.mark.parametrize("model_type", ["classifier", "regressor", None])
def test_types_that_mlflow_measures_itself_are_refused(
    holdout: LadderHoldout, model_type: str | None
) -> None:
    can = LadderEvaluator.can_evaluate
    assert not can(model_type=model_type, evaluator_config={})
    assert can(model_type="ladderholdout", evaluator_config={"holdout": holdout})
    with pytest.raises(InvalidArgument, match="log raw scores"):
        can(model_type=model_type, evaluator_config={"holdout": holdout})


def test_a_holdout_behind_a_server_is_evaluated_and_tracked(tmp_path: Path, store: str) -> None:
    ledger = tmp_path / "ledger.db"
    local, (X, _) = registered(ledger), rows()
    token = token_of(ledger, "ada")
    model = LogisticRegression().fit(*rows(seed=4))
    with serving(ledger, tmp_path) as server:
        held = LadderHoldout.connect(f"{server.url}/holdouts/churn", token=token, X=X)
        found, run = evaluate(store, EvaluationDataset(X), Model(model), holdout=held)
        assert found.metrics["ladder_released"] == held.status().score
        assert run.inputs.dataset_inputs[0].dataset.digest == local.status().fingerprint[:12]
        # Whoever reads the copy is nobody who is shown something in this process.
        before = seen.shown_last()
        with held.track(tracking_uri=store, raw="sealed") as tracking:
            assert tracking.flush()
        assert seen.shown_last() is before
        assert "ladder.svg" in [
            one.path for one in MlflowClient(store).list_artifacts(str(tracking.run_id))
        ]


def test_the_picture_is_beside_the_store_and_not_where_the_process_runs(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("_MLFLOW_SERVER_ARTIFACT_ROOT")
    (working := tmp_path / "working").mkdir()
    monkeypatch.chdir(working)
    holdout = tiny(tmp_path / "ledger.db")
    with holdout.track(tracking_uri=store) as tracking:
        holdout.submit(coins()[1])
    (picture,) = tmp_path.rglob("ladder.svg")
    assert picture.is_relative_to(tmp_path / "store" / "mlruns")
    assert str(tracking.run_id) in picture.parts
    assert list(working.iterdir()) == []


# -- as MLflow finds them ------------------------------------------------------------------

EVALUATED = """
import sys, warnings
warnings.simplefilter("ignore")
from ladderholdout import InvalidArgument, LadderHoldout
import ladderholdout.integrations.mlflow
assert "mlflow" not in sys.modules
assert not {f"ladderholdout.integrations.mlflow.{one}" for one in ("evaluator", "dataset")} & set(
    sys.modules
)
import mlflow, numpy as np, pandas as pd
from sklearn.tree import DecisionTreeClassifier

mlflow.set_tracking_uri(sys.argv[1])
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(80, 3)), columns=["a", "b", "c"])
y = rng.integers(0, 2, 80)
holdout = LadderHoldout(X, y, scoring="accuracy", name="coins")
model = DecisionTreeClassifier(max_depth=3).fit(rng.normal(size=(80, 3)), rng.integers(0, 2, 80))
model.feature_names_in_ = np.array(["a", "b", "c"])
chosen = {"evaluators": "ladderholdout", "evaluator_config": {"holdout": holdout}}

with mlflow.start_run() as run:
    logged = mlflow.sklearn.log_model(
        model, name="tree", serialization_format="cloudpickle", pip_requirements=["scikit-learn"]
    )
    found = mlflow.models.evaluate(
        logged.model_uri, X.sample(frac=1, random_state=1), model_type="ladderholdout", **chosen
    )
status = holdout.status()
assert status.submissions == 1 and found.metrics["ladder_released"] == status.score
known = mlflow.get_run(run.info.run_id)
assert set(known.data.metrics) == {"ladder_released", "ladder_improved"}
sources = [mlflow.data.get_source(one) for one in known.inputs.dataset_inputs]
named = [one for one in sources if type(one).__name__ == "HoldoutSource"]
assert [one.fingerprint for one in named] == [status.fingerprint]
try:
    named[0].load()
except Exception as refused:
    assert "submit predictions" in str(refused)
else:
    raise AssertionError

# All evaluators, with labels: nothing is measured, for the first one asked refuses.
labelled = {"data": X.assign(y=y), "targets": "y", "model_type": "classifier"}
with mlflow.start_run() as run:
    try:
        mlflow.models.evaluate(
            logged.model_uri, **labelled, evaluator_config={"holdout": holdout}
        )
    except InvalidArgument as refused:
        assert "raw scores" in str(refused)
    else:
        raise AssertionError
assert not mlflow.get_run(run.info.run_id).data.metrics
# Without a holdout MLflow measures as ever.
with mlflow.start_run() as run:
    options = {"log_model_explainability": False}
    measured = mlflow.models.evaluate(logged.model_uri, **labelled, evaluator_config=options)
assert "accuracy_score" in measured.metrics and "ladder_released" not in measured.metrics
assert holdout.status().submissions == 1
print("done")
"""


@pytest.mark.nightly
def test_mlflow_finds_the_evaluator_and_the_source(store: str, tmp_path: Path) -> None:
    found = python(EVALUATED, store, PYTHONPATH=plugins(tmp_path / "plugins"))
    assert found.splitlines()[-1] == "done"


# -- the data set ----------------------------------------------------------------------------


def test_a_holdout_as_a_data_set_holds_nothing_that_depends_on_labels(
    tmp_path: Path, store: str
) -> None:
    X, y = coins()
    logged = []
    for at, labels in enumerate((y, 1 - y, np.arange(len(y)) % 5)):
        ledger = tmp_path / f"{at}.db"
        held = LadderHoldout(X, labels, scoring="accuracy", name="coins", ledger=ledger)
        client = MlflowClient(store)
        run = client.create_run("0").info.run_id
        with mlflow.start_run(run):
            mlflow.log_input(dataset_of(held), context="holdout")
        (found,) = client.get_run(run).inputs.dataset_inputs
        entity = found.dataset
        assert (entity.schema, entity.profile) == (None, None)
        source = {"holdout": "coins", "fingerprint": held.status().fingerprint, "rows": len(y)}
        assert json.loads(entity.source) == source
        logged.append(entity.to_dictionary())
    assert logged[0] == logged[1] == logged[2]


def test_a_source_is_read_again_and_loads_nothing(holdout: LadderHoldout) -> None:
    source = dataset_of(holdout).source
    again = HoldoutSource.from_json(source.to_json())
    assert again.to_dict() == source.to_dict()
    assert again.fingerprint == holdout.status().fingerprint and again.rows == 60
    with pytest.raises(TrackingError, match=r"LadderHoldout\.open.*LadderHoldout\.connect"):
        again.load()
    assert HoldoutSource._can_resolve(holdout) and not HoldoutSource._can_resolve("s3://rows")
    assert HoldoutSource._resolve(holdout).to_dict() == source.to_dict()
    assert holdout.status().fingerprint[:12] in repr(again)


@pytest.mark.parametrize(
    "source",
    [
        [],
        {},
        {"holdout": "a", "fingerprint": "0" * 64},
        {"holdout": "a", "fingerprint": "0" * 64, "rows": 3, "y": [0, 1, 1]},
        {"holdout": "", "fingerprint": "0" * 64, "rows": 3},
        {"holdout": "a", "fingerprint": "nothing", "rows": 3},
        {"holdout": "a", "fingerprint": "0" * 64, "rows": 0},
        {"holdout": "a", "fingerprint": "0" * 64, "rows": "3"},
    ],
)
def test_a_source_that_is_none_is_refused(source: Any) -> None:
    with pytest.raises(InvalidArgument):
        HoldoutSource.from_json(json.dumps(source))
    with pytest.raises(InvalidArgument):
        dataset_of(source)
