"""Attacks early stopping beside MLflow's autologging: what it stores has no raw score."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations import (
    test_stopping_catboost,
    test_stopping_lightgbm,
    test_stopping_sklearn,
    test_stopping_xgboost,
)
from tests.support.ledgers import record
from tests.support.stopping import autologged, raw_scores_in

# What each of the programs logs for certain. CatBoost's turns on the autologging of all.
PROGRAMS: dict[str, tuple[str, str, bytes]] = {
    "xgboost": ("xgboost", test_stopping_xgboost.PROGRAM, b"valid-logloss"),
    "lightgbm": ("lightgbm", test_stopping_lightgbm.PROGRAM, b"binary_logloss"),
    "histogram": (
        "staged",
        test_stopping_sklearn.IMPORTS + test_stopping_sklearn.HISTOGRAM,
        b"HistGradientBoostingClassifier",
    ),
    "monitored": (
        "staged",
        test_stopping_sklearn.IMPORTS + test_stopping_sklearn.MONITORED,
        b"training_score",
    ),
    "catboost": ("catboost", test_stopping_catboost.PROGRAM, b"learn: "),
}
IMPORT = """
{imported}
from ladderholdout.integrations.{module} import ladder_stopping
before = holdout.status().submissions
"""
COUNTED = """
assert holdout.status().submissions >= before + 5  # the patience of each
"""


@pytest.mark.processes
def test_autologging_sees_no_raw_score(tmp_path: Path) -> None:
    """All libraries in one process: to start it takes longer than what they train."""
    text = ""
    for module, program, _ in PROGRAMS.values():
        imported = "" if module == "staged" else f"import {module}"
        text += IMPORT.format(module=module, imported=imported) + program + COUNTED
    holdout, seen = autologged("xgboost", text, tmp_path)
    missing = [name for name, (_, _, logged) in PROGRAMS.items() if logged not in seen]
    assert missing == []
    assert raw_scores_in(holdout, seen) == []
    # One that stood there would be found.
    _, _, entries = record(holdout)
    planted = f"{abs(holdout.metric.to_score(entries[0].raw_risk)):.6f}"
    assert raw_scores_in(holdout, seen + planted.encode()) != []
