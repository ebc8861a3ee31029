"""The corrected score against the truth.

`guard` lets a few finalists query the holdout, and the best of them is still flattered a little.
`holdout.estimate()` takes the mean flattery off: it draws the holdout's rows again, lets the same
rule choose, and judges the choice on the rows that were not drawn. Sixteen splits of handwritten
digits, a grid of trees each; the truth is the accuracy on fresh rows. A point on the line is
exact. On the left the raw winner of all candidates, then the guarded winner, then its corrected
score.

    python gallery/estimate.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, ParameterGrid, train_test_split
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout

GRID = {
    "criterion": ["gini", "entropy"],
    "max_depth": [8, 12],
    "max_features": [0.1, 0.3, 1.0],
    "min_samples_leaf": [1, 2],
}
SPLITS = 16
WAYS = ("raw winner of all", "guarded winner", "its estimate()")


def one_split(seed: int) -> np.ndarray:
    """Return (believed, true) of each way."""
    X, X_rest, y, y_rest = train_test_split(
        *load_digits(return_X_y=True), train_size=400, random_state=seed
    )
    X_held, X_fresh, y_held, y_fresh = train_test_split(
        X_rest, y_rest, train_size=150, random_state=seed
    )
    trees = [DecisionTreeClassifier(**one, random_state=0).fit(X, y) for one in ParameterGrid(GRID)]
    raw = max(trees, key=lambda tree: tree.score(X_held, y_held))
    holdout = LadderHoldout(X_held, y_held, scoring="accuracy", ledger="memory", vault=False)
    search = holdout.guard(GridSearchCV(DecisionTreeClassifier(random_state=0), GRID, cv=5)).fit(
        X, y
    )
    true = search.score(X_fresh, y_fresh)
    return np.array(
        [
            (raw.score(X_held, y_held), raw.score(X_fresh, y_fresh)),
            (search.best_score_, true),
            (holdout.estimate().score, true),
        ]
    )


def main() -> None:
    found = np.array([one_split(seed) for seed in range(SPLITS)])
    gap = found[:, :, 0] - found[:, :, 1]
    error = gap.std(axis=0, ddof=1) / np.sqrt(SPLITS)
    style.table(
        ("", "believed", "true", "too much", "(standard error)"),
        [
            (way, *map(float, (*found[:, i].mean(axis=0), gap[:, i].mean(), error[i])))
            for i, way in enumerate(WAYS)
        ],
    )
    figure, axes = style.panels(3, sharex=True, sharey=True)
    ends = [found.min() - 0.01, found.max() + 0.01]
    colours = (style.ORANGE, style.BLUE, style.GREEN)
    for ax, way, each, colour in zip(axes, WAYS, found.swapaxes(0, 1), colours, strict=True):
        ax.plot(ends, ends, color=style.QUIET, ls="--", lw=1)
        ax.plot(each[:, 1], each[:, 0], "o", color=colour, alpha=0.8)
        ax.set(title=way, xlabel="accuracy on fresh rows", aspect="equal")
    axes[0].set_ylabel("believed accuracy")
    style.show(
        figure,
        "Believed against true accuracy in 16 splits: the raw winner of all candidates lies above "
        "the diagonal, the guarded winner closer to it, its corrected score around it.",
    )


if __name__ == "__main__":
    main()
