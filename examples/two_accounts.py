# Install: pip install .
"""Two people, one holdout: each has a ladder, and the certificates count all submissions.

An account keeps the feedback apart: what Ada receives does not depend on what Ben submitted.
It does not make the holdout fresh, and a warning states that when the second account opens.

    python examples/two_accounts.py
"""

from __future__ import annotations

import warnings

from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout

LEDGER = "memory:two-accounts"  # kept as long as this process; by default it is a file
MODELS = {
    "Ada": [DecisionTreeClassifier(max_depth=depth, random_state=0) for depth in (1, 2, 5)],
    "Ben": [
        KNeighborsClassifier(5),
        make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
}


def main() -> None:
    X, y = load_wine(return_X_y=True)
    X_train, X_holdout, y_train, y_holdout = train_test_split(
        X, y, test_size=80, stratify=y, random_state=0
    )
    for person, models in MODELS.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            holdout = LadderHoldout(
                X_holdout,
                y_holdout,
                scoring="accuracy",
                name="wine",
                account=person,
                ledger=LEDGER,
            )
        for warning in caught:
            print(f"warning: {warning.message}")
        for model in models:
            release = holdout.submit(model.fit(X_train, y_train))
            answer = "improved" if release.improved else "no better"
            print(f"{person}: {answer:<10} released score {release.score:.3f}")

    print()
    for account, ladder, submissions in holdout.status().ladders:
        print(f"ladder {ladder} of account {account}: {submissions} submissions")


if __name__ == "__main__":
    main()
