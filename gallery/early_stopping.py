"""Early stopping.

Early stopping scores a validation set after every round of boosting and keeps the best round. A
search over twelve settings keeps the best of a thousand rounds, and its score is too good to be
true. With `ladder_stopping` the ladder answers instead: each round is a submission, and a fit
stops when its last ten rounds did not improve on the incumbent, which saves most of the rounds as
well. A tenth of the labels is wrong, and the holdout has 120 rows. Ten splits; each line joins
what was believed of a winner and what is true of it.

    python gallery/early_stopping.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import ParameterGrid, train_test_split

from ladderholdout import LadderHoldout
from ladderholdout.integrations.lightgbm import ladder_stopping

GRID = {"num_leaves": [3, 6, 12], "min_child_samples": [3, 10], "learning_rate": [0.05, 0.2]}
ROUNDS, SPLITS, WRONG = 100, 10, 0.1


def model(settings: dict) -> LGBMClassifier:
    """Return a classifier that is not fitted."""
    return LGBMClassifier(n_estimators=ROUNDS, n_jobs=1, verbose=-1, seed=0, **settings)


def accuracies(fitted: LGBMClassifier, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the accuracy after each round."""
    trees = [
        fitted.booster_.predict(X, raw_score=True, start_iteration=r, num_iteration=1)
        for r in range(fitted.booster_.current_iteration())
    ]
    return ((np.cumsum(trees, axis=0) > 0) == y).mean(axis=1)


def one_split(seed: int) -> tuple[tuple[float, float, int], tuple[float, float, int]]:
    """Return believed and true accuracy, and the rounds trained: by raw scores, and guarded."""
    X, y = load_breast_cancer(return_X_y=True)
    y = y ^ (np.random.default_rng(seed).random(len(y)) < WRONG)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=150, random_state=seed)
    X_held, X_fresh, y_held, y_fresh = train_test_split(
        X_rest, y_rest, train_size=120, random_state=seed
    )
    best, rounds = (-1.0, 0.0), 0
    for settings in ParameterGrid(GRID):
        fitted = model(settings).fit(X_train, y_train)
        held = accuracies(fitted, X_held, y_held)
        rounds += len(held)
        if held.max() > best[0]:
            fresh = accuracies(fitted, X_fresh, y_fresh)
            best = (float(held.max()), float(fresh[held.argmax()]))

    holdout = LadderHoldout(X_held, y_held, scoring="accuracy", ledger="memory", vault=False)
    incumbent, trained, true = None, 0, 0.0
    for settings in ParameterGrid(GRID):
        stopping = ladder_stopping(holdout, patience=10)
        fitted = model(settings).fit(X_train, y_train, callbacks=[stopping])
        trained += stopping.stopping.rounds
        if holdout.status().incumbent != incumbent:
            incumbent, true = holdout.status().incumbent, fitted.score(X_fresh, y_fresh)
    return (*best, rounds), (holdout.status().score, true, trained)


def main() -> None:
    found = np.array([one_split(seed) for seed in range(SPLITS)])  # (splits, ways, 3)
    means = found.mean(axis=0)
    names = ("best raw round", "guarded")
    style.table(
        ("", "believed", "true", "too much", "rounds trained"),
        [
            (name, *map(float, (b, t, b - t)), f"{rounds:.0f}")
            for name, (b, t, rounds) in zip(names, means, strict=True)
        ],
    )
    figure, axes = style.panels(2, sharey=True)
    for ax, name, each, colour in zip(
        axes, names, found.swapaxes(0, 1), (style.ORANGE, style.BLUE), strict=True
    ):
        for believed, true, _ in each:
            ax.plot([0, 1], [believed, true], "o-", color=colour, alpha=0.35, lw=1)
        ax.plot([0, 1], each[:, :2].mean(axis=0), "D-", color=colour, lw=3, ms=8)
        ax.set_title(f"{name}: {each[:, 2].mean():.0f} rounds")
        ax.set_xticks([0, 1], ["believed", "on fresh rows"])
        ax.set_xlim(-0.3, 1.3)
    axes[0].set_ylabel("accuracy of the winner")
    style.show(
        figure,
        "What was believed of the winner and its accuracy on fresh rows, for ten splits: the best "
        "raw round falls further than the guarded one, which trained fewer rounds.",
    )


if __name__ == "__main__":
    main()
