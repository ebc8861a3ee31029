"""Models in MLflow: the evaluator, a holdout as a data set, and certificates in the registry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mlflow
import pytest
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import HoldoutConflict
from ladderholdout.integrations.mlflow import certify_version
from tests.clients.support import ROOT, assert_nothing_raw, assert_winner, recipe, refusal

LINE = 'mlflow.models.evaluate(model, X_holdout, evaluators="ladderholdout", ...)'
GUARDED: dict[str, Any] = {"evaluators": "ladderholdout", "model_type": "ladderholdout"}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as Models
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as Runs
    from mlflow.tracking._model_registry.utils import _get_store_registry
    from mlflow.tracking._tracking_service.utils import _tracking_store_registry as runs

    monkeypatch.setenv("GIT_PYTHON_REFRESH", "quiet")
    # MLflow remembers a store by its address, sqlite:///mlflow.db, in whatever folder a test is.
    for known, kind in ((runs, Runs), (_get_store_registry(), Models)):
        known._get_store_with_resolved_uri.cache_clear()
        kind._engine_map.clear()
    yield
    mlflow.set_tracking_uri(None)


def test_the_text_for_the_list_of_plugins_runs_as_it_is(names: dict[str, Any]) -> None:
    text = (ROOT / "publishing" / "mlflow" / "plugin.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    model = DecisionTreeClassifier(random_state=0).fit(names["X_train"], names["y_train"])
    with mlflow.start_run():
        logged = mlflow.sklearn.log_model(
            model,
            name="tree",
            serialization_format="cloudpickle",
            pip_requirements=["scikit-learn"],
        )
    names["model_uri"] = logged.model_uri
    exec(compile(block, "<plugin.md>", "exec"), names)
    status = names["holdout"].status()
    assert status.submissions == 1
    assert names["result"].metrics["ladder_released"] == status.score


@pytest.mark.row("MLflow evaluate", LINE, "mlflow")
def test_the_page_evaluates_and_names_the_holdout(names: dict[str, Any]) -> None:
    recipe("mlflow_registry", "Evaluate a model", names)
    holdout = names["holdout"]
    run = mlflow.get_run(names["run"].info.run_id)
    assert holdout.status().submissions == 1
    assert set(run.data.metrics) == {"ladder_released", "ladder_improved"}
    assert run.data.metrics == names["result"].metrics
    assert_winner(holdout, names["grid"].best_estimator_)
    recipe("mlflow_registry", "A holdout as a data set", names)
    # Models that do not improve are released as that, and nothing else is in the runs.
    found = []
    for depth in (1, 2, 3, 4, 5, 6):
        tree = DecisionTreeClassifier(max_depth=depth, random_state=depth)
        tree.fit(names["X_train"][:60], names["y_train"][:60])
        with mlflow.start_run() as run:
            result = mlflow.models.evaluate(
                tree.predict,
                names["X_holdout"],
                evaluator_config={"holdout": holdout},
                **GUARDED,
            )
        known = mlflow.get_run(run.info.run_id)
        found += [result.metrics, known.data.metrics, known.data.tags]
    assert_nothing_raw(holdout, *found)


@pytest.mark.row("MLflow evaluate", 'model_type="classifier", targets=y_holdout', "mlflow")
def test_labels_are_refused_before_anything_is_measured(names: dict[str, Any], note: Any) -> None:
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    rows = names["X_holdout"], names["y_holdout"]
    holdout = LadderHoldout(*rows, scoring="accuracy", name="digits-2026")
    tree = DecisionTreeClassifier(random_state=0).fit(names["X_train"], names["y_train"])
    with mlflow.start_run() as run:
        refusal(
            lambda: mlflow.models.evaluate(
                tree.predict,
                rows[0],
                targets=rows[1],
                model_type="classifier",
                evaluator_config={"holdout": holdout},
            ),
            note,
            InvalidArgument,
            "raw scores",
        )
    assert not mlflow.get_run(run.info.run_id).data.metrics
    assert holdout.status().submissions == 0


@pytest.mark.row("MLflow registry", "certify_version(holdout, name, version)", "mlflow")
def test_the_page_certifies_a_version(names: dict[str, Any]) -> None:
    recipe("mlflow_registry", "Evaluate a model", names)
    recipe("mlflow_registry", "Certificates in the model registry", names)
    done, holdout = names["done"], names["holdout"]
    stored = mlflow.artifacts.load_text(f"runs:/{done.run_id}/{done.folder}/certificate.json")
    assert json.loads(stored) == done.certificate
    certificate = holdout.certificate()
    assert done.certificate["interval"] == {"low": certificate.low, "high": certificate.high}


@pytest.mark.row("MLflow registry", "certify_version, of another model", "mlflow")
def test_another_model_gets_no_certificate(names: dict[str, Any], note: Any) -> None:
    recipe("mlflow_registry", "Evaluate a model", names)
    holdout = names["holdout"]
    other = DecisionTreeClassifier(max_depth=1).fit(names["X_train"], names["y_train"])
    version = names["logged"].registered_model_version
    refusal(
        lambda: certify_version(holdout, "digits-tree", version, model=other),
        note,
        HoldoutConflict,
        "is not the incumbent",
    )
    assert not mlflow.MlflowClient().get_model_version("digits-tree", str(version)).tags
