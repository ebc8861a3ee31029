# Install: pip install '.[report]'
"""An audit of two searches: one on real labels, one on shuffled labels.

Both try 150 small trees on whether a digit is even, through the same guard. The second
search gets labels that were shuffled, so that there is nothing to find. The audit opens the
raw scores, and fresh rows show the true scores. The picture goes into a file. The ledger is in
memory, so nothing else is kept.

    python examples/audit.py --picture audit.png
"""

from __future__ import annotations

import argparse
import sys
import textwrap

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.audit import Audit, plots

CANDIDATES = 150


def search(name: str, X: np.ndarray, y: np.ndarray) -> Audit:
    """Ask the holdout about each tree, then audit the ladder with rows that no search used."""
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=300, random_state=0)
    X_holdout, X_fresh, y_holdout, y_fresh = train_test_split(
        X_rest, y_rest, train_size=500, random_state=0
    )
    holdout = LadderHoldout(
        X_holdout, y_holdout, scoring="accuracy", name=name, ledger="memory", overlap="ignore"
    )
    print(f"{name}: {CANDIDATES} submissions ...", file=sys.stderr)
    models = {}
    for seed in range(CANDIDATES):
        tree = DecisionTreeClassifier(
            max_depth=1 + seed // 15, max_features=0.3, splitter="random", random_state=seed
        )
        release = holdout.submit(tree.fit(X_train, y_train))
        models.setdefault(release.submission, tree)
    return holdout.owner.audit(fresh=(X_fresh, y_fresh), model=models)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", metavar="FILE", help="where to put the picture")
    picture = parser.parse_args().picture

    X, digit = load_digits(return_X_y=True)
    even = digit % 2
    shuffled = np.random.default_rng(0).permutation(even)
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for labels, name, ax in zip(
        (even, shuffled), ("real labels", "shuffled labels"), figure.subplots(1, 2), strict=True
    ):
        audit = search(name, X, labels)
        print(f"{name}: {audit.verdict.headline}")
        for sentence in audit.verdict.sentences:
            print(textwrap.fill(sentence, 88, initial_indent="  ", subsequent_indent="    "))
        print()
        plots.scores(audit, ax=ax).set_xlabel(f"submission (number), {name}")
    if picture is not None:
        figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main()
