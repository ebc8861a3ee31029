"""What OptunaHub and Optuna Dashboard are given."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import optuna
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from tests.clients.support import ROOT, assert_nothing_raw, numbers, recipe, secrets

PACKAGE = "visualization/ladder_holdout"


@pytest.fixture
def holdout(names: dict[str, Any]) -> LadderHoldout:
    X, y = names["X_holdout"], names["y_holdout"]
    return LadderHoldout(X, y, scoring="accuracy", name="digits-2026")


# -- OptunaHub and Optuna Dashboard -----------------------------------------------------------


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
    study.optimize(objective, n_trials=20, callbacks=[gate, module.DashboardCallback(holdout)])
    assert 2 <= len(gate.releases) == holdout.status().submissions < 20
    assert holdout.optuna.best_trial(study).number in {
        int(one.context["trial"]) for one in holdout.history()
    }
    # Every trial queries it now, so that something is hidden.
    holdout.optuna.finalists(study, build, k=20)
    figure = module.plot_ladder(study, holdout)
    assert_nothing_raw(holdout, figure.to_dict(), least=0) if secrets(holdout) else None
    points = {trace.name: trace for trace in figure.data}
    assert len(points["inner score"].x) == 20
    assert set(points["released score after it (star: improved)"].y) <= {
        one.score for one in holdout.history()
    }


@pytest.mark.row(
    "Optuna Dashboard", "callbacks=[dashboard.Dashboard(holdout)]", "optuna-dashboard", "plotly"
)
def test_a_note_and_a_figure_on_the_study(
    holdout: LadderHoldout, names: dict[str, Any], tmp_path: Path
) -> None:
    import json

    from optuna_dashboard import get_note

    from ladderholdout.integrations.optuna import dashboard

    storage = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(
        direction="maximize", storage=storage, sampler=optuna.samplers.RandomSampler(seed=1)
    )

    def build(trial: Any) -> Any:
        depth = trial.suggest_int("depth", 2, 12)
        tree = DecisionTreeClassifier(max_depth=depth, max_features=0.3, random_state=trial.number)
        return tree.fit(names["X_train"], names["y_train"])

    callback = dashboard.Dashboard(holdout, every=6)
    study.optimize(holdout.optuna.objective(build), n_trials=12, callbacks=[callback])
    status, note = holdout.status(), get_note(study)
    winner = holdout.optuna.best_trial(study).number
    assert f"| trials that queried it | {status.submissions} |" in note
    assert f"| incumbent trial | {winner} |" in note and status.certificate.line() in note
    attributes = study._storage.get_study_system_attrs(study._study_id)
    drawn = "".join(str(value) for key, value in attributes.items() if "plot_data" in key)
    assert "released score after it" in drawn
    hidden = secrets(holdout)
    assert hidden and not {one for one in numbers([note, drawn])} & hidden
    assert_nothing_raw(holdout, [one.user_attrs for one in study.trials], json.dumps(drawn))
    again = {key for key in attributes if "plot_data" in key}
    dashboard.show(holdout, study)  # the figure is replaced, not added
    after = study._storage.get_study_system_attrs(study._study_id)
    assert {key for key in after if "plot_data" in key} == again


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
    assert "digits-optunahub" in capsys.readouterr().out and Path("ladder.html").exists()


def test_the_blocks_of_the_page_run(holdout: LadderHoldout, names: dict[str, Any]) -> None:
    names |= {"DecisionTreeClassifier": DecisionTreeClassifier}
    names["holdout"] = holdout
    recipe("reports", "Optuna Dashboard", names)
    assert len(names["final"]) == holdout.status().submissions <= 3
