"""A model tuned by hand, with and without the guard.

Somebody has a linear model of handwritten digits, even or odd, changes its weights at random, and
keeps a change when the accuracy on the holdout gets better. A tenth of the labels is wrong, as
labels are. The holdout has 150 rows, and 1,447 fresh rows that nobody uses while tuning tell what
the model is worth.

By raw scores the accuracy on the holdout rises and rises, and what the model is worth does not
follow. Through the guard the same person receives a new score only where a change is better by
more than chance explains, and is misled by less than half as much. Lines are means of twelve runs.

    python gallery/tuning_by_hand.py [--picture FILE]
"""

from __future__ import annotations

from collections.abc import Callable

import _style as style
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from ladderholdout import LadderHoldout

QUERIES, RUNS, ROWS, WRONG = 1000, 12, 150, 0.1
Answer = Callable[[np.ndarray], tuple[float, bool]]


def tune(weights: np.ndarray, rng: np.random.Generator, parts: list, answer: Answer) -> np.ndarray:
    """Change the weights at random and keep what is better; return believed and true scores."""
    X_held, _, X_fresh, y_fresh = parts
    believed, improved = answer(X_held @ weights > 0)
    best, course = weights, []
    for _ in range(QUERIES):
        changed = best + rng.normal(scale=0.3 * np.abs(best).mean(), size=best.shape)
        believed, improved = answer(X_held @ changed > 0)
        best = changed if improved else best
        course.append((believed, np.mean((X_fresh @ best > 0) == y_fresh)))
    return np.array(course).T


def raw(y: np.ndarray) -> Answer:
    """Answer with the best raw score so far, as people note it."""
    best = [-1.0]

    def answer(guess: np.ndarray) -> tuple[float, bool]:
        score = float(np.mean(guess == y))
        improved = score > best[0]
        best[0] = max(best[0], score)
        return best[0], improved

    return answer


def guarded(X: np.ndarray, y: np.ndarray) -> Answer:
    """Answer with what a holdout releases."""
    holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory", vault=False)

    def answer(guess: np.ndarray) -> tuple[float, bool]:
        release = holdout.submit(guess)
        return release.score, release.improved

    return answer


def main() -> None:
    X, digit = load_digits(return_X_y=True)
    X, y = np.column_stack([X / 16, np.ones(len(X))]), digit % 2 == 1
    found = {"unguarded": [], "guarded": []}
    for seed in range(RUNS):
        labels = y ^ (np.random.default_rng(seed).random(len(y)) < WRONG)
        X_train, X_rest, y_train, y_rest = train_test_split(
            X, labels, train_size=200, random_state=seed
        )
        parts = train_test_split(X_rest, y_rest, train_size=ROWS, random_state=seed)
        X_held, X_fresh, y_held, y_fresh = parts
        start = LogisticRegression(fit_intercept=False).fit(X_train, y_train).coef_[0]
        rows = [X_held, y_held, X_fresh, y_fresh]
        for way, answer in (("unguarded", raw(y_held)), ("guarded", guarded(X_held, y_held))):
            found[way].append(tune(start, np.random.default_rng(seed), rows, answer))

    courses = {way: np.array(each) for way, each in found.items()}
    heads = ("", "believed", "true", "believed too much")
    ends = {way: each[:, :, -1].mean(axis=0) for way, each in courses.items()}
    style.table(heads, [(way, *map(float, (b, t, b - t))) for way, (b, t) in ends.items()])

    figure, ax = style.panels()
    queries = np.arange(1, QUERIES + 1)
    for (way, each), colour in zip(courses.items(), (style.ORANGE, style.BLUE), strict=True):
        believed, true = each.mean(axis=0)
        ax.fill_between(queries, true, believed, color=colour, alpha=0.12, lw=0)
        ax.plot(queries, believed, color=colour, lw=2.5, label=f"{way}: believed")
        ax.plot(queries, true, color=colour, lw=2, ls="--", label=f"{way}: true, on fresh rows")
    ax.set(xlabel="queries of the holdout", ylabel="accuracy", ylim=(0.77, 0.9))
    style.counts(ax)
    ax.legend(loc="upper left", ncols=2)
    style.show(
        figure,
        "Believed and true accuracy over 1,000 queries of a holdout. Unguarded, what is believed "
        "rises far above what is true; guarded, both stay close.",
    )


if __name__ == "__main__":
    main()
