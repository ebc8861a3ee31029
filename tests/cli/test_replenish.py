"""Attacks `ladder-holdout replenish`: files, options, confirmation, what other commands show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ladderholdout.cli import app
from tests.support.commands import CliRunner
from tests.support.holdouts import coins

N = 60


def rows_in(folder: Path, seed: int, **columns: Any) -> str:
    """Write rows to a file and return its name."""
    X, y = coins(N, seed)
    path = folder / f"rows{seed}.csv"
    frame = pd.DataFrame(X, columns=list("abc")).assign(label=y, **columns)
    frame.to_csv(path, index=False)
    return str(path)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LADDERHOLDOUT_LEDGER", str(tmp_path / "ledger.db"))

    def call(*words: str, answer: str | None = None, ends: int = 0) -> str:
        result = CliRunner().invoke(app, words, input=answer)
        assert result.exit_code == ends, result.output
        return str(result.output)

    return call


def test_a_file_of_fresh_rows_goes_on_with_ids_and_groups(tmp_path: Path, run: Any) -> None:
    def visits(first: int) -> dict[str, Any]:
        return {"visit": first + np.arange(N), "patient": np.repeat(first + np.arange(15), 4)}

    named = ("--target", "label", "--ids", "visit", "--groups", "patient")
    first, second = (rows_in(tmp_path, seed, **visits(100 * seed)) for seed in (0, 1))
    run("register", first, *named, "--scoring", "accuracy", "--name", "visits")
    assert "groups must be stated" in run(
        "replenish", "visits", second, *named[:4], "--yes", ends=1
    )
    assert "1 of 'visits'" not in run("replenish", "visits", second, *named, answer="n\n", ends=1)
    assert "60 fresh ones take their place" in run(
        "replenish", "visits", second, *named, answer="y\n"
    )
    predictions = tmp_path / "predictions.csv"
    frame = pd.read_csv(second)[["visit", "label"]].sample(frac=1, random_state=0)
    frame.to_csv(predictions, index=False)
    released = json.loads(run("submit", "visits", str(predictions), "--ids", "visit", "--json"))
    assert (released["score"], released["submission"]) == (1.0, 1)
    assert "OverlapError" in run("replenish", "visits", second, *named, "-y", "--json", ends=1)


def test_other_commands_show_the_blocks(tmp_path: Path, run: Any) -> None:
    files = [rows_in(tmp_path, seed) for seed in range(3)]
    run("register", files[0], "--target", "label", "--scoring", "accuracy", "--name", "coins")
    predictions = tmp_path / "predictions.csv"
    pd.DataFrame({"label": coins(N)[1]}).to_csv(predictions, index=False)
    run("submit", "coins", str(predictions))
    status = json.loads(run("replenish", "coins", files[1], "--target", "label", "--yes", "--json"))
    assert (status["name"], status["block"], status["submissions"]) == ("coins", 2, 0)
    run("replenish", "coins", files[2], "--target", "label", "--yes")
    assert "coins@1 to coins@2" in run("status", "coins")
    assert "of block 3; those of the block before it: history coins@2" in run("history", "coins")
    assert "1 submissions in all" in run("history", "coins@1")
    assert "1 submissions to 3 blocks" in run("verify", "coins")
    assert json.loads(run("verify", "coins", "--json"))["blocks"] == 3
    listed = json.loads(run("status", "--json"))["ladders"]
    assert [line["holdout"] for line in listed] == ["coins@1", "coins@2", "coins"]
    assert "block 1 of 'coins'" in run("submit", "coins@1", str(predictions), ends=1)
    run("audit", "coins@1", "--yes")
    assert json.loads(run("status", "coins", "--json"))["opened"] is None


def test_groups_stay_texts_though_a_file_has_only_numbers(tmp_path: Path, run: Any) -> None:
    def clinics(first: int) -> dict[str, Any]:
        return {"clinic": [f"{first + place // 4:03d}" for place in range(N)]}

    named = ("--target", "label", "--groups", "clinic")
    first, fresh, again = (
        rows_in(tmp_path, seed, **clinics(start)) for seed, start in ((0, 0), (1, 100), (2, 114))
    )
    run("register", first, *named, "--scoring", "accuracy", "--name", "visits")
    assert "block" in run("replenish", "visits", fresh, *named, "--yes")
    known = run("replenish", "visits", again, *named, "--yes", ends=1)
    assert "4 of these 60 rows" in known and "are of groups" in known
    padding = rows_in(tmp_path, 3, clinic=np.arange(N) // 4)  # as Excel writes 000 to 014
    assert "60 of these 60 rows" in run("replenish", "visits", padding, *named, "--yes", ends=1)


def test_a_registration_is_forgotten(tmp_path: Path, run: Any) -> None:
    rows = rows_in(tmp_path, 0)
    register = ("register", rows, "--target", "label", "--scoring", "accuracy", "--name", "slip")
    run(*register)
    assert "Aborted" in run("retire", "slip", "--forget", answer="n\n", ends=1)
    assert "slip is forgotten" in run("retire", "slip", "--forget", answer="y\n")
    assert "slip" not in run("status")
    run(*register)
    told = json.loads(run("retire", "slip", "--forget", "--yes", "--json"))
    assert told == {"holdout": "slip", "forgotten": True}
    run(*register)
    frame = pd.read_csv(rows)[["label"]]
    frame.to_csv(tmp_path / "guesses.csv", index=False)
    run("submit", "slip", str(tmp_path / "guesses.csv"))
    assert "it has 1 submission" in run("retire", "slip", "--forget", "--yes", ends=1)


def test_classes_stay_texts_though_a_file_has_only_numbers(tmp_path: Path, run: Any) -> None:
    codes = (["1", "2", "3a"], ["1", "2"])
    files = [
        rows_in(tmp_path, seed, code=np.resize(classes, N)) for seed, classes in enumerate(codes)
    ]
    named = ("--target", "code", "--scoring", "accuracy", "--name", "codes")
    run("register", files[0], *named, "--ids", "label")
    run("replenish", "codes", files[1], "--target", "code", "--ids", "label", "--yes")
