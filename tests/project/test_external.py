"""Attacks the histories: arrays without a source, too large, or other models than published."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXTERNAL = Path(__file__).parents[2] / "benchmarks" / "external"
PERMISSIVE = {"MIT", "Apache-2.0"}


@pytest.fixture
def command() -> Iterator[dict[str, Any]]:
    """The names of benchmarks/external; its modules are forgotten afterwards."""
    before = set(sys.modules)
    yield runpy.run_path(str(EXTERNAL))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXTERNAL)):
            del sys.modules[name]


def test_every_array_has_a_source_a_commit_and_a_permissive_licence(
    command: dict[str, Any],
) -> None:
    recorded = command["sources"]()
    assert {"cifar10"} <= {file.stem for file in (EXTERNAL / "data").glob("*.npz")} <= set(recorded)
    assert len(recorded) >= 4
    for name, one in recorded.items():
        assert (EXTERNAL.parents[1] / one["script"]).exists(), name
        for source in one["sources"]:
            assert source["licence"] in PERMISSIVE, name
            assert re.fullmatch(r"github\.com/[\w.-]+/[\w.-]+", source["repository"]), name
            assert re.fullmatch(r"[0-9a-f]{40}", source["commit"]), name


def test_all_arrays_together_have_at_most_two_megabytes() -> None:
    assert 0 < sum(file.stat().st_size for file in (EXTERNAL / "data").iterdir()) <= 2_000_000


def test_arrays_have_the_shape_that_is_recorded(command: dict[str, Any]) -> None:
    for name in command["present"]():
        one, searches = command["sources"]()[name], command["load"](name)
        assert len(searches) == one["searches"]
        assert sum(len(search.correct) for search in searches) == one["models"]
        assert {search.correct.shape[1] for search in searches} == {one["items"]}
        for search in searches:
            # No model twice, and none that is right or wrong everywhere.
            assert len(np.unique(search.correct, axis=0)) == len(search.correct)
            assert 0.1 < search.correct.mean(axis=1).min() < search.correct.mean(axis=1).max() < 1


def test_a_winner_of_single_queries_pays_for_what_was_shown(command: dict[str, Any]) -> None:
    shown = command["draw"](command["load"]("cifar10")[0], 1000, "weakest first", 0)
    judged = {
        label: command["judged"](label, shown, shown.truths.max(), 0) for label in command["RULES"]
    }
    values, bits = judged["priced .7 (default)"], judged["one bit, priced .7"]
    rounded = judged["priced .7, shown to 1/sqrt n"]
    assert values[:4] == bits[:4] == rounded[:4]  # the same models improved
    assert values.width > rounded.width > bits.width > bits.batch_width
    assert values.batch_width == bits.batch_width
    assert all(one.covered and one.batch_covered for one in judged.values())


@pytest.mark.long
def test_the_command_prints_its_tables(
    command: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    command["main"](["--quick", "--only", "cifar10"])
    printed = capsys.readouterr().out
    for title in (
        "### cifar10, n = 200, weakest first",
        "### cifar10, n = 200, random",
        "### All histories, n = 200, single queries",
        "### All histories, n = 200, one announced batch",
    ):
        assert title in printed
    for label in command["RULES"]:
        # Two cells and two summaries.
        assert len(re.findall(rf"^\| {re.escape(label)} \|", printed, re.M)) == 4
    assert "nan" not in printed
    # In the random order there is a corrected score as well.
    assert re.search(r"^\| priced .7 \(default\) \|( [-+.\d]+ \|){11}$", printed, re.M)
    assert re.search(r"^Of \d+ certificates \d+ do not hold the true score", printed, re.M)
