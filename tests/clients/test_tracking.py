"""Models in MLflow: a submission of one, and certificates in the registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
from sklearn.tree import DecisionTreeClassifier

from ladderholdout.errors import HoldoutConflict
from ladderholdout.integrations.mlflow import certify_version
from tests.clients.support import recipe, refusal


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


@pytest.mark.row("MLflow registry", "certify_version(holdout, name, version)", "mlflow")
def test_the_page_certifies_a_version(names: dict[str, Any]) -> None:
    recipe("mlflow_registry", "Submit a model", names)
    recipe("mlflow_registry", "Certificates in the model registry", names)
    done, holdout = names["done"], names["holdout"]
    assert holdout.status().submissions == 2  # the second repeats the first
    stored = mlflow.artifacts.load_text(f"runs:/{done.run_id}/{done.folder}/certificate.json")
    assert json.loads(stored) == done.certificate
    certificate = holdout.certificate()
    assert done.certificate["interval"] == {"low": certificate.low, "high": certificate.high}


@pytest.mark.row("MLflow registry", "certify_version, of another model", "mlflow")
def test_another_model_gets_no_certificate(names: dict[str, Any], note: Any) -> None:
    recipe("mlflow_registry", "Submit a model", names)
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
