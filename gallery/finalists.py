"""How many finalists.

A grid of 24 trees on sixteen splits of handwritten digits. The candidates are ranked by a
five-fold cross-validation on the training rows, and the best k of them query a holdout of 150
rows. With few finalists the score of the winner is close to the truth; with all candidates it is
the winner's curse again. The true accuracy of the winner changes little, so the short list costs
nothing here.

    python gallery/finalists.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout

GRID = {
    "criterion": ["gini", "entropy"],
    "max_depth": [8, 12],
    "max_features": [0.1, 0.3, 1.0],
    "min_samples_leaf": [1, 2],
}
SPLITS, COUNTS = 16, (1, 2, 3, 5, 10, 24)


def one_split(seed: int) -> np.ndarray:
    """Return what is believed and true of the winner among the best k, for each k."""
    X, X_rest, y, y_rest = train_test_split(
        *load_digits(return_X_y=True), train_size=400, random_state=seed
    )
    X_held, X_fresh, y_held, y_fresh = train_test_split(
        X_rest, y_rest, train_size=150, random_state=seed
    )
    tree = DecisionTreeClassifier(random_state=0)
    search = GridSearchCV(tree, GRID, cv=5, refit=False).fit(X, y)
    ranked = np.argsort(search.cv_results_["rank_test_score"], kind="stable")
    params = search.cv_results_["params"]
    models = [DecisionTreeClassifier(**params[i], random_state=0).fit(X, y) for i in ranked]
    found = []
    for k in COUNTS:
        holdout = LadderHoldout(X_held, y_held, scoring="accuracy", ledger="memory", vault=False)
        confirmed = holdout.finalists(models[:k])
        winner = next(models[one.candidate] for one in confirmed if one.is_incumbent)
        found.append((holdout.status().score, winner.score(X_fresh, y_fresh)))
    return np.array(found)


def main() -> None:
    each = np.array([one_split(seed) for seed in range(SPLITS)])  # (splits, counts, 2)
    gap = each[:, :, 0] - each[:, :, 1]
    error = gap.std(axis=0, ddof=1) / np.sqrt(SPLITS)
    means = each.mean(axis=0)
    style.table(
        ("finalists", "believed", "true", "too much", "(standard error)"),
        [(k, *map(float, (*means[i], gap[:, i].mean(), error[i]))) for i, k in enumerate(COUNTS)],
    )
    figure, axes = style.panels(2)
    places = np.arange(len(COUNTS))
    axes[0].plot(places, means[:, 0], "o-", color=style.BLUE, label="believed")
    axes[0].plot(places, means[:, 1], "s--", color=style.QUIET, label="true")
    axes[0].set_ylabel("accuracy of the winner")
    axes[0].legend()
    axes[1].errorbar(places, gap.mean(axis=0), yerr=error, fmt="o", color=style.BLUE)
    axes[1].axhline(0, color=style.QUIET, lw=1)
    axes[1].set_ylabel("believed too much")
    for ax in axes:
        ax.set_xticks(places, [*map(str, COUNTS[:-1]), "all 24"])
        ax.set_xlabel("finalists")
    style.show(
        figure,
        "Believed and true accuracy of the winner for 1 to 24 finalists; what is believed too much "
        "grows with their number.",
    )


if __name__ == "__main__":
    main()
