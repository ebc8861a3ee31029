# Install: pip install .
"""Five ideas, submitted by hand one after another.

Nothing here is a search of scikit-learn. You make predictions as you like, in R or by a language
model if you wish, and submit them; the ledger records each one. Run it twice: the second time each
submission repeats the first one of its model, and the released score does not change.

    python examples/by_hand.py
"""

from __future__ import annotations

from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor

from ladderholdout import LadderHoldout

IDEAS = {
    "five nearest neighbours": KNeighborsRegressor(5),
    "thirty nearest neighbours": KNeighborsRegressor(30),
    "a forest": RandomForestRegressor(random_state=0),
    "ridge": RidgeCV(),
    "lasso": LassoCV(random_state=0),
}


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    X_train, X_holdout, y_train, y_holdout = train_test_split(X, y, test_size=150, random_state=0)

    # From here on only the guard needs y_holdout.
    holdout = LadderHoldout(
        X_holdout, y_holdout, scoring="neg_mean_absolute_error", name="diabetes"
    )
    for idea, model in IDEAS.items():
        predictions = model.fit(X_train, y_train).predict(X_holdout)
        release = holdout.submit(predictions, context={"idea": idea})
        answer = "improved" if release.improved else "no better"
        if release.repeat_of is not None:
            answer = f"repeat of {release.repeat_of}"
        print(f"{idea:<28}{answer:<13}released score {release.score:.1f}")

    print()
    print(holdout.status())
    best = next(one for one in holdout.history() if one.number == holdout.status().incumbent)
    print(f"incumbent         {best.context['idea']}")


if __name__ == "__main__":
    main()
