# Install: pip install .
"""A metric of your own: to miss a tumour costs ten times as much as a false alarm.

It is a mean of per-example losses, so it gets the paired ladder that accuracy gets. The
threshold at which to raise an alarm is searched on the holdout, through the guard.

    python examples/own_metric.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ladderholdout import LadderHoldout, Metric

LEDGER = "memory:own-metric"  # kept as long as this process; by default it is a file
MALIGNANT, BENIGN = 0, 1  # places among the sorted classes


def cost(targets: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Return the cost of each prediction, as a share of the worst one."""
    missed = (targets == MALIGNANT) & (predictions == BENIGN)
    alarmed = (targets == BENIGN) & (predictions == MALIGNANT)
    return 1.0 * missed + 0.1 * alarmed


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :5]  # a cheaper examination, so that the threshold matters
    X_train, X_holdout, y_train, y_holdout = train_test_split(
        X, y, test_size=200, stratify=y, random_state=0
    )
    metric = Metric("neg_cost", "labels", loss=cost, loss_range=(0, 1))
    holdout = LadderHoldout(X_holdout, y_holdout, scoring=metric, name="tumours", ledger=LEDGER)

    classifier = make_pipeline(StandardScaler(), LogisticRegression())
    search = GridSearchCV(
        FixedThresholdClassifier(classifier, response_method="predict_proba"),
        {"threshold": [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]},
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
    )
    search.fit(X_train, y_train)
    print(f"threshold chosen: {search.best_params_['threshold']}")
    print(holdout.status())

    # The ledger keeps the metric's name, not its function: to submit to a holdout that is
    # opened by its name alone, give the metric again.
    again = LadderHoldout.open("tumours", scoring=metric, ledger=LEDGER)
    print(again.submit(np.full(200, MALIGNANT)))


if __name__ == "__main__":
    main()
