# Install: pip install .
"""A small challenge on real data: teams submit predictions, and a leaderboard ranks them.

Three teams try models on handwritten digits. Then one person opens an account for each of thirty
guesses. The challenge is held twice, on other rows: with a ladder for each team, where every
account receives its first score, and with a ladder for each rank, where an account receives a
score when it takes a place. The certificates count everything that was released to any account.

    python examples/leaderboard.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ladderholdout.leaderboard import Leaderboard
from ladderholdout.mechanisms import RankLadder, SimplifiedLadder

STEP, PLACES, CROWD = 0.02, 3, 30
RULES = {"team": SimplifiedLadder(STEP), "rank": RankLadder(STEP, PLACES)}
TEAMS = {
    "Trees": [DecisionTreeClassifier(max_depth=depth, random_state=0) for depth in (3, 6, 12)],
    "Neighbours": [KNeighborsClassifier(k) for k in (25, 9, 3, 1)],
    "Lines": [
        GaussianNB(),
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01)),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
}


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X, y_train, y = train_test_split(X, y, train_size=300, random_state=0)
    for part, (per, mechanism) in enumerate(RULES.items()):
        X_holdout, y_holdout = X[part::2], y[part::2]
        board = Leaderboard(
            X_holdout,
            y_holdout,
            scoring="accuracy",
            name=f"digits-{per}",
            per=per,
            mechanism=mechanism,
        )
        for team, models in TEAMS.items():
            for model in models:
                board.submit(team, model.fit(X_train, y_train).predict(X_holdout))
        before = board.standings()
        guesses = np.random.default_rng(0).integers(0, 10, (CROWD, len(y_holdout)))
        scored = sum(board.submit(f"guess {i}", one).improved for i, one in enumerate(guesses))

        print(f"A ladder for each {per}:")
        print(before)
        print(f"Of {CROWD} accounts with a guess each, {scored} received a score.")
        print()


if __name__ == "__main__":
    main()
