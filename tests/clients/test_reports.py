"""What OptunaHub is given."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import optuna
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from tests.clients.support import ROOT, assert_nothing_raw, secrets

PACKAGE = "visualization/ladder_holdout"


@pytest.fixture
def holdout(names: dict[str, Any]) -> LadderHoldout:
    X, y = names["X_holdout"], names["y_holdout"]
    return LadderHoldout(X, y, scoring="accuracy", name="digits-2026")


def optimised(holdout: LadderHoldout, names: dict[str, Any]) -> Any:
    def build(trial: Any) -> Any:
        depth, leaf = trial.suggest_int("depth", 2, 12), trial.suggest_int("leaf", 1, 8)
        tree = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=0)
        return tree.fit(names["X_train"], names["y_train"])

    def objective(trial: Any) -> float:
        return float(cross_val_score(build(trial), names["X_train"], names["y_train"], cv=3).mean())

    return build, objective


@pytest.mark.row(
    "OptunaHub", 'optunahub.load_local_module("visualization/ladder_holdout", ...)', "optunahub"
)
def test_the_package_loads_from_a_local_registry(
    holdout: LadderHoldout, names: dict[str, Any], tmp_path: Path
) -> None:
    import optunahub

    module = optunahub.load_local_module(PACKAGE, registry_root=str(ROOT / "optunahub" / "package"))
    storage = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(
        direction="maximize", storage=storage, sampler=optuna.samplers.RandomSampler(seed=0)
    )
    build, objective = optimised(holdout, names)
    gate = module.LadderGateCallback(holdout, build, patience=50)
    study.optimize(objective, n_trials=20, callbacks=[gate])
    assert 2 <= len(gate.releases) == holdout.status().submissions < 20
    assert holdout.optuna.best_trial(study).number in {
        int(one.context["trial"]) for one in holdout.history()
    }
    # Every trial queries it now, so that something is hidden.
    holdout.optuna.finalists(study, build, k=20)
    points = {line.get_label(): line for line in module.plot_ladder(study, holdout).lines}
    drawn = {name: [float(value) for value in line.get_ydata()] for name, line in points.items()}
    assert_nothing_raw(holdout, drawn, least=0) if secrets(holdout) else None
    assert len(drawn["inner score"]) == 20
    # A finalist that repeats what improved improves no more.
    shown = {*drawn["released score"], *drawn.get("improved", ())}
    assert shown <= {one.score for one in holdout.history()}


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.LadderHoldoutWarning")
def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import optunahub

    root = str(ROOT / "optunahub" / "package")
    monkeypatch.setattr(
        optunahub,
        "load_module",
        lambda package: optunahub.load_local_module(package, registry_root=root),
    )
    runpy.run_path(str(Path(root) / PACKAGE / "example.py"), run_name="__main__")
    assert "digits-optunahub" in capsys.readouterr().out and Path("ladder.png").exists()
