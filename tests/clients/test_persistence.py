"""A guarded search in a file: opened elsewhere it predicts, and says what is missing to score."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from tests.clients.support import page_of, recipe, secrets

GRID = {"max_depth": [2, 3, 6, 9, 12]}
KINDS = ("guard", "refit=True", "refit=holdout.select")

ELSEWHERE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
kind, paths, rows, trusted = sys.argv[1], sys.argv[2], np.load(sys.argv[3]), json.loads(sys.argv[4])
for path in paths.split("|"):
    if kind == "joblib":
        import joblib
        model = joblib.load(path)
    elif kind == "skops":
        import skops.io
        model = skops.io.load(path, trusted=trusted)
    else:
        import mlflow
        model = mlflow.sklearn.load_model(path)
    print(json.dumps(model.predict(rows["X"]).tolist()))
    repr(model), model.get_params()
    for X in (rows["X"], rows["X"][:0], rows["held"]):
        try:
            model.score(X, rows["y"][: len(X)])
        except BaseException as error:
            print(type(error).__name__, " ".join(str(error).split()))
"""


def searched(kind: str, holdout: LadderHoldout, X: Any, y: Any) -> Any:
    tree = DecisionTreeClassifier(random_state=0)
    if kind == "guard":
        return holdout.guard(GridSearchCV(tree, GRID, cv=3)).fit(X, y)
    refit = True if kind == "refit=True" else holdout.select
    return GridSearchCV(tree, GRID, scoring=holdout, cv=holdout.split(), refit=refit).fit(X, y)


@pytest.fixture
def trusted() -> list[str]:
    """The types that the page names."""
    import re

    text = page_of("persistence").read_text("utf-8")
    listed = re.search(r"^OURS = \[\n(.*?)^\]", text, re.M | re.S)
    assert listed is not None
    return [*re.findall(r'"([\w.]+)"', listed[1]), "sklearn.tree._tree.Tree"]


def elsewhere(kind: str, path: Any, names: Any, trusted: list[str], ledger: Path) -> list[str]:
    """What a process prints that does not find the ledger."""
    rows = Path("rows.npz")
    np.savez(rows, X=names["X_test"][:50], y=names["y_test"], held=names["X_holdout"])
    gone = ledger.rename(ledger.with_name("gone.db"))
    words = [kind, str(path), str(rows), json.dumps(trusted)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, *words], capture_output=True, text=True, timeout=300
        )
    finally:
        gone.rename(ledger)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check(lines: list[str], search: Any, names: dict[str, Any]) -> None:
    assert len(lines) % 4 == 0
    for at in range(0, len(lines), 4):
        predicted, *refused = lines[at : at + 4]
        assert json.loads(predicted) == search.predict(names["X_test"][:50]).tolist()
        for one in refused:
            assert "ledger.db is not there" in one and "Restore the file" in one


@pytest.fixture
def files(names: dict[str, Any], default_ledger: Path) -> Any:
    holdout = LadderHoldout(names["X_holdout"], names["y_holdout"], scoring="accuracy", name="d")

    def make(kind: str) -> Any:
        return holdout, searched(kind, holdout, names["X_train"], names["y_train"])

    return make


@pytest.mark.row(
    "joblib", "joblib.dump(search, path), guarded or with refit=holdout.select", "joblib"
)
@pytest.mark.parametrize("kind", KINDS)
def test_joblib(
    kind: str, files: Any, names: dict[str, Any], trusted: Any, default_ledger: Path
) -> None:
    holdout, search = files(kind)
    joblib.dump(search, "search.joblib")
    stored = Path("search.joblib").read_bytes()
    assert names["y_holdout"][:24].tobytes() not in stored
    for value in secrets(holdout):
        assert np.float64(value).tobytes() not in stored
    again = joblib.load("search.joblib")
    assert again.score(names["X_test"], names["y_test"]) == search.score(
        names["X_test"], names["y_test"]
    )
    check(elsewhere("joblib", "search.joblib", names, trusted, default_ledger), search, names)


@pytest.mark.row("skops", "skops.io.load(path, trusted=...), with the types of this page", "skops")
@pytest.mark.parametrize("kind", KINDS)
def test_skops(
    kind: str, files: Any, names: dict[str, Any], trusted: Any, default_ledger: Path
) -> None:
    import skops.io

    holdout, search = files(kind)
    skops.io.dump(search, "search.skops")
    assert set(skops.io.get_untrusted_types(file="search.skops")) <= set(trusted)
    again = skops.io.load("search.skops", trusted=trusted)
    assert np.array_equal(again.predict(names["X_test"]), search.predict(names["X_test"]))
    assert again.score(names["X_test"], names["y_test"]) == search.score(
        names["X_test"], names["y_test"]
    )
    # It goes on with the same ladder.
    asked = holdout.status().submissions
    again.score(names["X_holdout"], names["y_holdout"])
    assert holdout.status().submissions == asked + 1
    check(elsewhere("skops", "search.skops", names, trusted, default_ledger), search, names)


@pytest.mark.row(
    "MLflow models", "mlflow.sklearn.log_model(search, ...), cloudpickle or skops", "mlflow"
)
@pytest.mark.parametrize("kind", KINDS)
def test_mlflow_logs_it_in_both_formats(
    kind: str, files: Any, names: dict[str, Any], trusted: Any, default_ledger: Path, tmp_path: Path
) -> None:
    import mlflow

    _, search = files(kind)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    for form, more in (("cloudpickle", {}), ("skops", {"skops_trusted_types": trusted})):
        # Without pip_requirements MLflow starts a process that finds them out.
        more = {**more, "serialization_format": form, "pip_requirements": ["scikit-learn"]}
        mlflow.sklearn.save_model(search, tmp_path / form, **more)
    paths = f"{tmp_path}/cloudpickle|{tmp_path}/skops"
    check(elsewhere("mlflow", paths, names, trusted, default_ledger), search, names)


def test_the_page(names: dict[str, Any]) -> None:
    import re

    text = page_of("persistence").read_text("utf-8")
    first = re.search(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert first is not None
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(first[1], "<persistence>", "exec"), found)
    recipe("persistence", "skops", found)
    recipe("persistence", "MLflow", found)
    assert np.array_equal(found["again"].predict(X := found["X"]), found["search"].predict(X))
