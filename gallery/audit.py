"""An audit.

Months later somebody asks how much of a score was earned and how much was picked. An audit opens
the raw scores, knowingly and on record. Here a search of 40 trees ran twice on handwritten digits,
even or odd: once on the real labels and once on shuffled ones, where there is nothing to find. The
circles are raw scores, which nobody saw during the search; the line is what was released.

    python gallery/audit.py [--picture FILE]
"""

from __future__ import annotations

import textwrap

import _style as style
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.audit import Audit, plots


def searched(name: str, X: np.ndarray, y: np.ndarray) -> Audit:
    """Query a holdout with 40 trees, and audit it on fresh rows."""
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=500, random_state=1)
    X_held, X_fresh, y_held, y_fresh = train_test_split(
        X_rest, y_rest, train_size=300, random_state=1
    )
    holdout = LadderHoldout(X_held, y_held, scoring="accuracy", name=name, ledger="memory")
    models = {}
    for seed in range(40):
        tree = DecisionTreeClassifier(max_depth=2 + seed // 5, max_features=0.3, random_state=seed)
        release = holdout.submit(tree.fit(X_train, y_train))
        models.setdefault(release.submission, tree)
    return holdout.owner.audit(fresh=(X_fresh, y_fresh), model=models)


def main() -> None:
    X, digit = load_digits(return_X_y=True)
    even = digit % 2
    shuffled = np.random.default_rng(0).permutation(even)
    figure, axes = style.panels(2)
    for labels, name, ax in zip(
        (even, shuffled), ("real labels", "shuffled labels"), axes, strict=True
    ):
        audit = searched(name, X, labels)
        print(f"{name}: {audit.verdict.headline}")
        for sentence in audit.verdict.sentences:
            print(textwrap.fill(sentence, 88, initial_indent="  ", subsequent_indent="    "))
        plots.scores(audit, ax=ax)
        ax.set(xlabel=f"submission, {name}")
        style.counts(ax)
    style.show(
        figure,
        "Raw, released and fresh scores of two searches: with real labels all of them rise "
        "together, with shuffled labels raw scores spread around one half and little is released.",
    )


if __name__ == "__main__":
    main()
