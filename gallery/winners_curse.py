"""The winner's curse of a grid.

A grid is fixed in advance: no score influences what is tried. Still its best candidate is
flattered, because it is the best of many on the same 150 rows. Here decision trees for handwritten
digits come in random order, and after each the best so far is compared with what it is worth on
1,247 fresh rows. The mean is over 12 splits of the data and several orders.

The remedy is a shorter list: choose by cross-validation on the training rows, and let the
finalists alone query the holdout.

    python gallery/winners_curse.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import ParameterGrid, train_test_split
from sklearn.tree import DecisionTreeClassifier

GRID = {
    "criterion": ["gini", "entropy"],
    "max_depth": [6, 8, 10, None],
    "max_features": [0.1, 0.2, 0.3, 1.0],
    "min_samples_leaf": [1, 2, 4],
}
SPLITS, ORDERS = 12, 20


def scores(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the accuracy of each candidate on the holdout and on fresh rows."""
    X, X_rest, y, y_rest = train_test_split(
        *load_digits(return_X_y=True), train_size=400, random_state=seed
    )
    X_held, X_fresh, y_held, y_fresh = train_test_split(
        X_rest, y_rest, train_size=150, random_state=seed
    )
    found = []
    for one in ParameterGrid(GRID):
        tree = DecisionTreeClassifier(**one, random_state=seed).fit(X, y)
        found.append((tree.score(X_held, y_held), tree.score(X_fresh, y_fresh)))
    return tuple(np.array(found).T)


def main() -> None:
    rng = np.random.default_rng(0)
    believed, true = [], []
    for seed in range(SPLITS):
        held, fresh = scores(seed)
        for _ in range(ORDERS):
            order = rng.permutation(len(held))
            winner = order[[int(np.argmax(held[order[: k + 1]])) for k in range(len(order))]]
            believed.append(held[winner])
            true.append(fresh[winner])
    believed, true = np.mean(believed, axis=0), np.mean(true, axis=0)
    tried = np.arange(1, len(believed) + 1)
    shown = [1, 3, 10, 30, len(tried)]
    style.table(
        ("candidates", "believed", "true", "too much"),
        [
            (k, float(believed[k - 1]), float(true[k - 1]), float(believed[k - 1] - true[k - 1]))
            for k in shown
        ],
    )
    figure, ax = style.panels()
    ax.fill_between(tried, true, believed, color=style.ORANGE, alpha=0.12, lw=0)
    ax.plot(tried, believed, color=style.ORANGE, lw=2, label="best score on the holdout")
    ax.plot(tried, true, color=style.QUIET, lw=2, ls="--", label="the same tree on fresh rows")
    ax.set(xlabel="candidates that queried the holdout", ylabel="accuracy")
    style.counts(ax)
    ax.legend(loc="lower right")
    style.show(
        figure,
        "The best score on the holdout and the true accuracy of its tree over the number of "
        "candidates: the gap grows from nothing to some hundredths.",
    )


if __name__ == "__main__":
    main()
