# Install: pip install '.[boosting]'
"""XGBoost stopped by the ladder, with the same patience as by scores that are shown in full.

Both models learn from the same rows and are scored on the same 150 others after each round. The
first is stopped by the ladder, which releases few of these scores. The second is stopped by the
rule of XGBoost itself, which sees every score; after that these rows are no holdout any more. Run
it twice: the second time every round gets its first answer.

    python examples/early_stopping_xgboost.py
"""

from __future__ import annotations

from sklearn.datasets import make_friedman1
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import train_test_split
from xgboost import XGBRegressor

from ladderholdout import LadderHoldout
from ladderholdout.integrations.xgboost import ladder_stopping

PATIENCE = 20
SETTINGS = {
    "n_estimators": 500,
    "learning_rate": 0.05,
    "max_depth": 3,
    "objective": "reg:absoluteerror",
    "eval_metric": "mae",
    "n_jobs": 1,
}


def main() -> None:
    X, y = make_friedman1(n_samples=1000, noise=3.0, random_state=0)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=150, random_state=0)
    X_holdout, X_fresh, y_holdout, y_fresh = train_test_split(
        X_rest, y_rest, train_size=150, random_state=0
    )
    holdout = LadderHoldout(
        X_holdout, y_holdout, scoring="neg_mean_absolute_error", name="friedman-xgboost"
    )

    callback = ladder_stopping(holdout, PATIENCE)
    guarded = XGBRegressor(**SETTINGS, callbacks=[callback]).fit(X_train, y_train)
    released = [one.submission for one in callback.stopping.releases if one.improved]
    print(
        f"by the ladder     {callback.stopping.rounds} submissions, {len(released)} scores released"
    )
    print(f"                  kept {callback.stopping.best_round} rounds")
    fresh = mean_absolute_error(y_fresh, guarded.predict(X_fresh))
    shown = -holdout.status().score
    print(f"                  error: released {shown:.2f}, on fresh rows {fresh:.2f}")

    open_scores = XGBRegressor(**SETTINGS, early_stopping_rounds=PATIENCE)
    open_scores.fit(X_train, y_train, eval_set=[(X_holdout, y_holdout)], verbose=False)
    rounds = len(open_scores.evals_result()["validation_0"]["mae"])
    print(f"by open scores    {rounds} scores, all of them shown")
    print(f"                  kept {open_scores.best_iteration + 1} rounds")
    fresh = mean_absolute_error(y_fresh, open_scores.predict(X_fresh))
    print(f"                  error: shown {open_scores.best_score:.2f}, on fresh rows {fresh:.2f}")
    print()
    print(holdout.status())


if __name__ == "__main__":
    main()
