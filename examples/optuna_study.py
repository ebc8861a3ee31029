# Install: pip install .
"""A study of 40 trials on real data, by inner scores; the holdout confirms the best three.

Handwritten digits, a pipeline with five parameters, TPE. Every trial is scored by
cross-validation on the training rows, which is all that the sampler receives. The three best
trials are submitted to the holdout at the end. Fresh rows show how far both scores are off. The
ledger is in memory, so nothing is kept.

    python examples/optuna_study.py
"""

from __future__ import annotations

from typing import Any

import optuna
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from ladderholdout import LadderHoldout

TRIALS, REPORTED = 40, 8


def build(trial: Any) -> Pipeline:
    """Return the pipeline of a trial, not yet fitted."""
    scaled = trial.suggest_categorical("scaled", [False, True])
    return make_pipeline(
        StandardScaler() if scaled else "passthrough",
        Nystroem(
            gamma=trial.suggest_float("gamma", 1e-5, 1e-1, log=True),
            n_components=trial.suggest_int("n_components", 20, 80),
            random_state=0,
        ),
        RidgeClassifier(
            alpha=trial.suggest_float("alpha", 1e-3, 1e2, log=True),
            class_weight=trial.suggest_categorical("class_weight", [None, "balanced"]),
        ),
    )


def report(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    """Print how far the study is."""
    if (trial.number + 1) % REPORTED == 0:
        print(f"trial {trial.number + 1} of {TRIALS}: best {study.best_value:.3f}", flush=True)


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(
        X, y, train_size=400, stratify=y, random_state=0
    )
    X_holdout, X_fresh, y_holdout, y_fresh = train_test_split(
        X_rest, y_rest, train_size=400, stratify=y_rest, random_state=0
    )
    holdout = LadderHoldout(
        X_holdout, y_holdout, scoring="accuracy", name="digits-study", ledger="memory"
    )
    objective = holdout.optuna.objective(build, inner=5, train=(X_train, y_train))

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=10)
    )
    study.optimize(objective.inner_score, n_trials=TRIALS, callbacks=[report])

    print(f"\n{TRIALS} trials, and {holdout.status().submissions} submissions before the end.\n")
    print("trial  cross-validation  released by the holdout  fresh rows")
    for one in holdout.optuna.finalists(study, objective, k=3):
        fresh = build(one.candidate).fit(X_train, y_train).score(X_fresh, y_fresh)
        mark = "  improved" if one.release.improved else ""
        print(
            f"{one.candidate.number:5}  {one.candidate.value:16.3f}  {one.release.score:23.3f}"
            f"  {fresh:10.3f}{mark}"
        )
    best = holdout.optuna.best_trial(study)
    print(f"\nThe incumbent is trial {best.number}: {best.params}")
    print(holdout.status())


if __name__ == "__main__":
    main()
