# Install: pip install .
"""One worker of a team: start it in as many terminals, on as many machines, as you like.

All of them share a study of Optuna and a ladder. Both are in one PostgreSQL database, which the
URL names (that needs pip install '.[postgres]'); without one they are in two SQLite files in your
data folder. Start it once with no trials, which makes the tables of both, and then the workers.

    python examples/team.py --trials 0
    python examples/team.py --trials 20
    python examples/team.py --trials 20 --database postgresql+psycopg://ada@db.example/team
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import optuna
from sklearn.datasets import make_hastie_10_2
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--database", help="a PostgreSQL URL, the same for all workers")
    asked = parser.parse_args()

    X, y = make_hastie_10_2(n_samples=800, random_state=0)
    X_train, X_holdout, y_train, y_holdout = train_test_split(
        X, y, test_size=200, stratify=y, random_state=0
    )
    # The first worker registers the rows; for the others they are known.
    holdout = LadderHoldout(
        X_holdout, y_holdout, scoring="accuracy", name="team", ledger=asked.database
    )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    beside = Path(holdout.status().ledger).with_name("team-study.db")
    storage = optuna.storages.RDBStorage(asked.database or f"sqlite:///{beside}")
    study = optuna.create_study(
        study_name="team", storage=storage, direction="maximize", load_if_exists=True
    )

    def report(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        print(f"trial {trial.number}: cross-validation {trial.value:.3f}", flush=True)

    def build(trial: Any) -> DecisionTreeClassifier:
        return DecisionTreeClassifier(
            max_depth=trial.suggest_int("max_depth", 1, 8),
            min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 40),
            random_state=0,
        )

    study.optimize(
        holdout.optuna.objective(build, inner=5, train=(X_train, y_train)),
        n_trials=asked.trials,
        callbacks=[report],
    )
    status = holdout.status()
    print(f"{status.submissions} submissions by all workers, {status.releases} releases")
    if status.incumbent is not None:
        print(f"released score {status.score}, by {holdout.optuna.best_params(study)}")
    print(f"ledger {status.ledger}")
    storage.engine.dispose()


if __name__ == "__main__":
    main()
