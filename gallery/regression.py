"""Certificates of a regression.

A holdout of 200 diabetes patients, scored by R2 and by the root mean squared error. Errors have no
largest value by nature, so both metrics need one stated: `target_range` holds the values that a
target can have, and `loss_range` the largest error that counts, in the metric's unit. The search
goes by cross-validation, and its finalists query the holdout. With 200 rows the interval is wide,
as any honest one is. How it narrows with more of them is shown on simulated rows with the same
signal and noise.

    python gallery/regression.py [--picture FILE]
"""

from __future__ import annotations

import _style as style
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, train_test_split

from ladderholdout import LadderHoldout

GRID = {"alpha": [0.001, 0.01, 0.1, 1, 10]}
SIZES = (200, 1000, 5000, 20_000)
RANGES = {
    "r2": {"target_range": (0, 400), "loss_range": (0, 400)},
    "neg_root_mean_squared_error": {"loss_range": (0, 400)},
}


def certified(X: np.ndarray, y: np.ndarray, metric: str, rows: int) -> tuple[float, float, float]:
    """Search on the other rows, confirm on `rows`; return score and certificate."""
    X_train, X_held, y_train, y_held = train_test_split(X, y, test_size=rows, random_state=0)
    holdout = LadderHoldout(
        X_held, y_held, scoring=metric, ledger="memory", vault=False, **RANGES[metric]
    )
    search = holdout.guard(GridSearchCV(Ridge(), GRID, cv=5)).fit(X_train, y_train)
    found = holdout.certificate()
    return float(search.best_score_), float(found.low), float(found.high)


def like(X: np.ndarray, y: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows with the same linear signal and noise, for sizes that the data do not have."""
    rng = np.random.default_rng(0)
    model = Ridge(0.01).fit(X, y)
    drawn = rng.multivariate_normal(X.mean(axis=0), np.cov(X.T), rows)
    noise = rng.normal(scale=np.std(y - model.predict(X)), size=rows)
    return drawn, np.clip(model.predict(drawn) + noise, 0, 400)


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    rows = []
    figure, axes = style.panels(2)
    for ax, metric, title in zip(axes, RANGES, ("R2", "root mean squared error"), strict=True):
        for place, n in enumerate(SIZES):
            data = (X, y) if n == SIZES[0] else like(X, y, n + 300)
            score, low, high = certified(*data, metric, n)
            sign = 1 if metric == "r2" else -1
            low, high = sorted((sign * low, sign * high))
            rows.append((title, n, sign * score, low, high))
            ax.vlines(place, max(low, -1.0), high, color=style.BLUE, lw=6,
                      label=None if place else "certificate, 95 %")  # fmt: skip
            ax.plot(
                place, sign * score, "o", color=style.ORANGE, label=None if place else "released"
            )
        names = ["200\ndiabetes", *(f"{n:,}\nsimulated" for n in SIZES[1:])]
        ax.set_xticks(range(len(SIZES)), names, fontsize=9)
        ax.set(title=title, xlabel="rows of the holdout")
    style.table(("metric", "rows", "released", "certified from", "to"), rows)
    axes[0].legend(loc="lower right")
    style.show(
        figure,
        "Certificates of R2 and of the root mean squared error for 200 rows of diabetes patients "
        "and up to 20,000 simulated rows: they narrow with the rows.",
    )


if __name__ == "__main__":
    main()
