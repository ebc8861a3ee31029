"""A study by cross-validation, and a holdout that confirms its progress."""

from __future__ import annotations

from ladderholdout import LadderHoldout
import optuna
import optunahub
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier


module = optunahub.load_module(package="visualization/ladder_holdout")

X, y = load_digits(return_X_y=True)
X_train, X_holdout, y_train, y_holdout = train_test_split(X, y, train_size=400, random_state=0)
holdout = LadderHoldout(X_holdout, y_holdout, scoring="accuracy", name="digits-optunahub")


def model_of(trial: optuna.trial.BaseTrial) -> DecisionTreeClassifier:
    depth, leaf = trial.suggest_int("depth", 2, 12), trial.suggest_int("leaf", 1, 8)
    return DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=0)


def objective(trial: optuna.Trial) -> float:
    return float(cross_val_score(model_of(trial), X_train, y_train, cv=3).mean())


if __name__ == "__main__":
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    gate = module.LadderGateCallback(holdout, lambda one: model_of(one).fit(X_train, y_train))
    study.optimize(objective, n_trials=30, callbacks=[gate])
    print(holdout.status())
    module.plot_ladder(study, holdout).figure.savefig("ladder.png")
