# Install: pip install .
"""A guarded search that is copied into MLflow while it runs, and what each side finds there.

    python examples/mlflow_search.py [--tracking-uri http://127.0.0.1:5000]

Without a tracking server the copy goes into an SQLite file beside the ledger. The analyst's
run holds what was released; the experiment for auditors holds the raw scores as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mlflow import MlflowClient
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.integrations.mlflow import export

GRID = {"max_depth": [1, 2, 3, 5, 8], "min_samples_leaf": [1, 5, 20], "random_state": [0, 1]}


def search(holdout: LadderHoldout, X_train: object, y_train: object) -> None:
    """Search as always; the worker processes need not know of MLflow."""
    GridSearchCV(
        DecisionTreeClassifier(),
        GRID,
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
        n_jobs=2,
    ).fit(X_train, y_train)


def found_in(client: MlflowClient, run_id: str) -> str:
    """Return which series a run holds, without their values: raw ones are for auditors."""
    keys = sorted(client.get_run(run_id).data.metrics)
    return ", ".join(f"{len(client.get_metric_history(run_id, key))} x {key}" for key in keys)


def main() -> None:
    parser = argparse.ArgumentParser(description="A guarded search, copied into MLflow.")
    parser.add_argument("--tracking-uri", help="by default a file beside the ledger")
    stated = parser.parse_args().tracking_uri

    X, y = load_wine(return_X_y=True)
    X_train, X_holdout, y_train, y_holdout = train_test_split(
        X, y, test_size=80, stratify=y, random_state=0
    )
    holdout = LadderHoldout(X_holdout, y_holdout, scoring="accuracy", name="wine-mlflow")
    uri = stated or f"sqlite:///{Path(holdout.status().ledger).with_name('mlflow.db')}"

    print("searching, with two worker processes ...", flush=True)
    with holdout.track(tracking_uri=uri) as tracking:
        search(holdout, X_train, y_train)

    client = MlflowClient(uri)
    print(f"{len(holdout.history())} submissions are on record, {tracking.sent} in MLflow")
    print(f"the analyst's run holds {found_in(client, str(tracking.run_id))}")
    print(f"the audit run holds {found_in(client, str(tracking.audit_run_id))}")
    again = export(holdout, tracking_uri=uri)
    print(f"an export adds {sum(one.sent for one in again)} submissions")
    print(f"to see both: mlflow ui --backend-store-uri {uri}" if not stated else f"at {uri}")


if __name__ == "__main__":
    main()
