# Install: pip install '.[boosting]'
"""LightGBM stopped by the ladder, alone and as the candidates of a grid search.

Every round of boosting is a submission, and all submissions share one ladder: the rounds of the
first model, those of each candidate, and the models that the search scores. Run it twice: the
second time every round gets its first answer, and the released score does not change.

    python examples/early_stopping_lightgbm.py
"""

from __future__ import annotations

from lightgbm import LGBMClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, train_test_split

from ladderholdout import LadderHoldout
from ladderholdout.integrations.lightgbm import ladder_stopping


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=250, random_state=0)
    X_holdout, X_fresh, y_holdout, y_fresh = train_test_split(
        X_rest, y_rest, train_size=160, random_state=0
    )
    holdout = LadderHoldout(X_holdout, y_holdout, scoring="neg_log_loss", name="tumours-lightgbm")
    callback = ladder_stopping(holdout, patience=20)

    model = LGBMClassifier(n_estimators=500, learning_rate=0.05, n_jobs=1, verbose=-1)
    model.fit(X_train, y_train, callbacks=[callback])
    seen = callback.stopping
    print(f"one model         stopped after {seen.rounds} of 500 rounds")
    print(f"                  kept {model.best_iteration_}, the ledger's best: {seen.best_round}")
    print(f"                  released {sum(one.improved for one in seen.releases)} of its scores")

    print("a grid search     of 6 candidates, each stopped by the ladder ...")
    search = GridSearchCV(
        model,
        {"num_leaves": [3, 7, 31], "min_child_samples": [5, 20]},  # the model above is one
        scoring=holdout,
        cv=holdout.split(),
        refit=holdout.select,
    )
    search.fit(X_train, y_train, callbacks=[callback])
    best = search.best_estimator_
    print(f"a grid search     picked {search.best_params_}")
    print(f"                  kept {best.best_iteration_} rounds")
    print(f"on fresh rows     {accuracy_score(y_fresh, best.predict(X_fresh)):.3f} accuracy")
    print()
    print(holdout.status())


if __name__ == "__main__":
    main()
