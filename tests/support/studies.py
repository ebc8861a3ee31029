"""Studies on a small holdout, and what has to hold of every one of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from sklearn.tree import DecisionTreeClassifier
from sqlalchemy import event

from ladderholdout import LadderHoldout
from tests.support.holdouts import assert_replays
from tests.support.ledgers import entries_of, record

NAME = "tumours"


def holdout_of(binary: Any, ledger: Path, **settings: Any) -> LadderHoldout:
    """Register the holdout with weights: so no raw score lies on the grid of the releases."""
    weights = np.random.default_rng(7731).uniform(0.5, 1.5, len(binary.y_holdout))
    chosen = {"scoring": "accuracy", "name": NAME, "sample_weight": weights, "ledger": ledger}
    return LadderHoldout(binary.X_holdout, binary.y_holdout, **(chosen | settings))


def storage_at(kind: str, path: Path, **settings: Any) -> BaseStorage:
    """Open a study's storage in a file: "rdb" as the guide advises for several workers."""
    if kind == "journal":
        return JournalStorage(JournalFileBackend(str(path)))
    storage = RDBStorage(
        f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": 60}}, **settings
    )
    if kind == "plain":
        return storage
    with storage.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    @event.listens_for(storage.engine, "begin")
    def in_turn(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return storage


def tree_of(trial: Any, X: NDArray[Any], y: NDArray[Any]) -> DecisionTreeClassifier:
    """Fit a tree that is another one in each trial."""
    tree = DecisionTreeClassifier(
        max_depth=trial.suggest_int("max_depth", 1, 6),
        min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 40),
        max_features=1,
        random_state=trial.number,
    )
    return tree.fit(X, y)


def assert_traceable(
    holdout: LadderHoldout, study: optuna.Study, trials: int, *, silent: bool = False
) -> None:
    """Every trial is told and leads to its entry of the ledger, which replays.

    A study that is told its inner scores alone is silent about what was released.
    """
    history = [entry for entry in holdout.history() if entry.context]
    done = study.get_trials(states=(TrialState.COMPLETE,))
    assert len(done) == trials
    own = {entry.context["trial"]: entry for entry in history}
    assert {entry.context["study"] for entry in history} == {study.study_name}
    entries_of(holdout)
    for trial in done:
        entry = own[trial.number]
        assert trial.user_attrs["ladder_submission"] == entry.number
        said = {"ladder_released": entry.score, "ladder_improved": entry.improved}
        noted = {name: trial.user_attrs[name] for name in said if name in trial.user_attrs}
        assert noted == ({} if silent else said)
    winner = holdout.optuna.best_trial(study)
    number = winner.user_attrs["ladder_submission"]
    assert (entries_of(holdout)[number - 1].repeat_of or number) == holdout.status().incumbent
    assert_replays(holdout)


def steps_by_trial(holdout: LadderHoldout) -> dict[int, int]:
    """Count the steps, which repeats are not, that each trial number cost."""
    steps: dict[int, int] = {}
    for entry in entries_of(holdout):
        number = entry.context["trial"]
        steps[number] = steps.get(number, 0) + (entry.repeat_of is None)
    return steps


def forms(score: float) -> list[bytes]:
    """A number as text (ten digits) and as storages keep a double (36 bits of it)."""
    return [repr(score)[:12].encode(), struct.pack(">d", score)[:6], struct.pack("<d", score)[-6:]]


def assert_nothing_raw(
    holdout: LadderHoldout, y: NDArray[Any], stored: bytes, *, silent: bool = False
) -> None:
    """No raw score and no run of labels stands there, and releases do, unless it is silent."""
    _, _, entries = record(holdout)
    raw = {entry.raw_risk for entry in entries}
    assert len(raw) > 5
    for risk in raw:
        for value in (risk, 1.0 - risk, risk - 1.0, -risk):
            assert not any(form in stored for form in forms(value))
    for kind in ("i1", "<i4", "<i8", "<f8"):
        assert y[:24].astype(kind).tobytes() not in stored
    for separator in (b", ", b" ", b","):
        assert separator.join(str(int(label)).encode() for label in y[:24]) not in stored
    for score in {entry.score for entry in holdout.history() if entry.context}:
        assert any(form in stored for form in forms(score)) != silent
