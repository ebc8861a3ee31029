"""Attacks the bundles of challenges: what they hold, and what the platforms' unpackers refuse.

The rules were transcribed from the sources of Codabench (competitions/unpackers/v2.py, its
serializers and models, compute_worker.py; 1.24) and of EvalAI (challenge_config_utils.py, the
serializers of challenges, jobs/utils.py; August 2026).
"""

from __future__ import annotations

import ast
import io
import json
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ladderholdout import LadderHoldout
from ladderholdout.bundles import Challenge, scoring, write_bundle
from ladderholdout.cli import app
from ladderholdout.errors import InvalidArgument
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.process import is_open_to_others
from tests.support.commands import CliRunner

CHALLENGE = Challenge(
    holdout="coins",
    server="https://host.example",
    title='The "coins": a challenge & more, ünïcode 🪙 #1',
    metric="accuracy",
    response="labels",
    mechanism="SimplifiedLadder(step=0.1)",
    n=100,
    classes=("<heads>", "tails"),
    start=date(2026, 12, 1),
    end=date(2026, 12, 31),
    per_day=5,
)


def written(platform: str, folder: Path, challenge: Challenge = CHALLENGE) -> Path:
    write_bundle(platform, challenge, folder)
    return folder


# -- what Codabench refuses ---------------------------------------------------------------


def codabench_date(field: Any) -> datetime | None:
    """Read a date as its unpacker does: one that YAML knows loses its time."""
    if not field:
        return None
    if isinstance(field, date):
        return datetime(field.year, field.month, field.day, tzinfo=UTC)
    return datetime.fromisoformat(field).replace(tzinfo=UTC)


def faults_for_codabench(folder: Path) -> list[str]:
    """Return what its unpacker and its serializers would refuse."""
    stated = yaml.safe_load((folder / "competition.yaml").read_text("utf-8"))
    faults = []

    def check(fine: Any, fault: str) -> None:
        if not fine:
            faults.append(fault)

    check(str(stated.get("version")) == "2", "version")
    check(isinstance(stated.get("title"), str) and len(stated["title"]) <= 255, "title")
    check((folder / stated["image"]).is_file(), "image")
    for page in [{"title": "Terms", "file": stated["terms"]}, *stated["pages"]]:
        file = folder / page["file"]
        check(page["title"] and file.is_file() and file.read_text("utf-8"), f"page {page['file']}")
    tasks = {task["index"]: task for task in stated["tasks"]}
    check(len(tasks) == len(stated["tasks"]), "indexes of tasks")
    for task in tasks.values():
        check(task.get("name"), "name of a task")
        check((folder / task["scoring_program"]).exists(), "scoring program")
        check((folder / task["reference_data"]).exists(), "reference data")
        metadata = yaml.safe_load(
            (folder / task["scoring_program"] / "metadata.yaml").read_text("utf-8")
        )
        check(isinstance(metadata, dict) and metadata.get("command"), "command")
    times = []
    for phase in stated["phases"]:
        check(phase["name"] and phase["tasks"], "phase")
        check(all(index in tasks for index in phase["tasks"]), "tasks of a phase")
        times += [codabench_date(phase["start"]), codabench_date(phase.get("end"))]
    check(None not in times[:-1], "a phase after one without an end")
    check(times == sorted(set(times)), "order of phases")
    (board,) = stated["leaderboards"]
    check(len(board["title"]) <= 64 and len(board["key"]) <= 36, "leaderboard")
    check(board["submission_rule"] in ("Add", "Force_Last", "Force_Best"), "submission rule")
    columns = board["columns"]
    for name in ("index", "key"):
        check(len({column[name] for column in columns}) == len(columns), f"{name} of columns")
    for column in columns:
        check(len(column["title"]) <= 36 and len(column["key"]) <= 36, "length of a column")
        check(column["sorting"] in ("asc", "desc"), "sorting")
        check(isinstance(column["index"], int) and column["index"] >= 0, "index of a column")
        check(isinstance(column["precision"], int), "precision")
    check(board.get("primary_index", 0) in {column["index"] for column in columns}, "primary index")
    check({column["key"] for column in columns} == set(scoring.COLUMNS), "keys of scores.json")
    return faults


# -- what EvalAI refuses ------------------------------------------------------------------


def faults_for_evalai(folder: Path) -> list[str]:
    """Return what its validation of a configuration would refuse."""
    stated = yaml.safe_load((folder / "challenge_config.yaml").read_text("utf-8"))
    faults = []

    def check(fine: Any, fault: str) -> None:
        if not fine:
            faults.append(fault)

    def page(name: Any) -> bool:
        return isinstance(name, str) and name.endswith(".html") and (folder / name).is_file()

    check(0 < len(stated["title"]) <= 100, "title")
    check(stated["image"].endswith((".jpg", ".jpeg", ".png")), "image")
    check((folder / stated["image"]).is_file(), "image")
    pages = ("description", "evaluation_details", "terms_and_conditions", "submission_guidelines")
    for name in pages:
        check(page(stated.get(name)), name)
    script = folder / stated["evaluation_script"]
    check(script.name.endswith(".zip") and zipfile.is_zipfile(script), "evaluation script")
    check("__init__.py" in zipfile.ZipFile(script).namelist(), "the package of the script")
    check(stated["start_date"] <= stated["end_date"], "dates")
    boards = {board["id"]: board["schema"] for board in stated["leaderboard"]}
    for schema in boards.values():
        check(schema["default_order_by"] in schema["labels"], "default_order_by")
        # Each label is looked up in each result; a missing one breaks the page.
        check(set(schema["labels"]) == set(scoring.COLUMNS), "labels")
        check(set(schema.get("metadata", {})) <= set(schema["labels"]), "metadata")
    phases = {phase["id"]: phase for phase in stated["challenge_phases"]}
    check(len({phase["codename"] for phase in phases.values()}) == len(phases), "codenames")
    for phase in phases.values():
        check(len(phase["name"]) <= 100 and page(phase["description"]), "phase")
        check((folder / phase["test_annotation_file"]).is_file(), "annotations")
        check(phase["start_date"] <= phase["end_date"], "dates of a phase")
        both = ("is_submission_public", "is_restricted_to_select_one_submission")
        check(not all(phase[name] for name in both), "public submissions")
        for limit in ("", "_per_day", "_per_month"):
            check(phase[f"max_submissions{limit}"] > 0, "limit")
        check(len(phase["allowed_submission_file_types"]) <= 200, "file types")
    splits = {split["id"]: split for split in stated["dataset_splits"]}
    check(all(split["name"] and split["codename"] for split in splits.values()), "splits")
    check({split["codename"] for split in splits.values()} == {scoring.SPLIT}, "split of evaluate")
    for split in stated["challenge_phase_splits"]:
        check(split["challenge_phase_id"] in phases, "phase of a split")
        check(split["leaderboard_id"] in boards and split["dataset_split_id"] in splits, "split")
        check(split["visibility"] in (1, 2, 3), "visibility")
        check(split["leaderboard_decimal_precision"] >= 0, "precision")
        check(isinstance(split["is_leaderboard_order_descending"], bool), "order")
    return faults


FAULTS = {"codabench": faults_for_codabench, "evalai": faults_for_evalai}
SETTINGS = {"codabench": "competition.yaml", "evalai": "challenge_config.yaml"}


@pytest.mark.parametrize("platform", sorted(FAULTS))
def test_a_bundle_has_what_the_unpacker_asks_for(platform: str, tmp_path: Path) -> None:
    folder = written(platform, tmp_path)
    assert FAULTS[platform](folder) == []
    (settings,) = folder.rglob("server.json")
    assert not is_open_to_others(settings.stat()), "a token is put into it"
    stated = yaml.safe_load((folder / SETTINGS[platform]).read_text("utf-8"))
    assert stated["title"] == CHALLENGE.title
    assert "&lt;heads&gt;" in (folder / "pages/submission.html").read_text("utf-8")
    logo = (folder / "logo.png").read_bytes()
    assert logo.startswith(b"\x89PNG") and len(logo) < 10_000


@pytest.mark.parametrize(
    ("platform", "change", "fault"),
    [
        ("codabench", lambda stated: stated["leaderboards"][0]["columns"].pop(), "scores.json"),
        ("codabench", lambda stated: stated["phases"][0].update(tasks=[1]), "tasks of a phase"),
        ("codabench", lambda stated: stated.update(terms="terms.md"), "page terms.md"),
        ("evalai", lambda stated: stated["leaderboard"][0]["schema"]["labels"].pop(), "labels"),
        ("evalai", lambda stated: stated.update(description="a text"), "description"),
        ("evalai", lambda stated: stated["challenge_phase_splits"][0].update(visibility=4), "visi"),
    ],
)
def test_the_rules_refuse_what_the_unpacker_refuses(
    platform: str, change: Callable[[Any], Any], fault: str, tmp_path: Path
) -> None:
    folder = written(platform, tmp_path)
    file = folder / SETTINGS[platform]
    stated = yaml.safe_load(file.read_text("utf-8"))
    change(stated)
    file.write_text(yaml.safe_dump(stated), "utf-8")
    assert any(fault in one for one in FAULTS[platform](folder))


def test_the_last_day_of_a_phase_is_a_whole_one(tmp_path: Path) -> None:
    stated = yaml.safe_load(
        (written("codabench", tmp_path) / "competition.yaml").read_text("utf-8")
    )
    end = codabench_date(stated["phases"][0]["end"])
    assert end == datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)


# -- what is in a bundle --------------------------------------------------------------------


def contents_of(folder: Path) -> dict[str, bytes]:
    """Return all files by their paths, those in zips as well."""
    found: dict[str, bytes] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            data = file.read_bytes()
            found[str(file.relative_to(folder))] = data
            if file.suffix == ".zip":
                archive = zipfile.ZipFile(io.BytesIO(data))
                found |= {name: archive.read(name) for name in archive.namelist()}
    return found


@pytest.mark.parametrize("platform", sorted(FAULTS))
def test_a_bundle_is_the_same_whatever_the_labels_are(platform: str, tmp_path: Path) -> None:
    X, found = np.arange(60.0).reshape(30, 2), []
    for place, y in enumerate((np.arange(30) % 2, np.arange(30) % 3 == 0)):
        ledger, folder = tmp_path / f"{place}.db", tmp_path / f"bundle {place}"
        Leaderboard(X, y.astype(int), scoring="accuracy", name="coins", ledger=ledger)
        words = [platform, "coins", str(folder), "--server", "https://host.example"]
        printed = CliRunner().invoke(app, ["bundle", *words, "--ledger", str(ledger)])
        assert printed.exit_code == 0, printed.output
        assert "--role host" in printed.output
        found.append(contents_of(folder))
    assert found[0] == found[1]
    (settings,) = (data for name, data in found[0].items() if name.endswith("server.json"))
    assert json.loads(settings)["token"] == ""
    assert not any(b"lh_" in data for data in found[0].values())


def test_the_program_needs_an_old_python_and_nothing_else() -> None:
    tree = ast.parse(Path(scoring.__file__).read_text("utf-8"), feature_version=(3, 7))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("value", "number"),
    [(0.1 + 0.2, 0.3), (True, 1.0), (3, 3.0), (None, None), ("nan", None), (float("inf"), None)],
)
def test_columns_are_numbers_that_a_platform_takes(value: Any, number: float | None) -> None:
    found = scoring._number(value)
    assert found == number
    assert found is None or Decimal(repr(found)).as_tuple().exponent >= -10  # of its field


@pytest.mark.parametrize(
    ("listed", "run"),
    [
        ("9 8 0:1 /tmp/codabench/uPK-7_sID-41__ab_c1/output /app/output rw - ext4 /dev/a rw", True),
        ("9 8 0:1 / /app rw - overlay overlay rw", False),
        ("1 /uPK-7_sID-41__a/output /app/output\n2 /uPK-8_sID-42__b/input /app/input", False),
        ("1 /uPK-7_sID-41/output /app/output", False),
    ],
)
def test_the_participant_is_who_the_worker_states(tmp_path: Path, listed: str, run: bool) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(listed)
    if run:
        assert scoring._run_of(str(mounts)) == ("codabench-7", "41")
        return
    with pytest.raises(scoring.NotScored, match="does not name the participant"):
        scoring._run_of(str(mounts))


# -- what is refused ------------------------------------------------------------------------


def test_a_bundle_needs_an_empty_directory(tmp_path: Path) -> None:
    written("codabench", tmp_path / "a")
    with pytest.raises(InvalidArgument, match="DIR must be a new or an empty directory"):
        write_bundle("codabench", CHALLENGE, tmp_path / "a")
    with pytest.raises(InvalidArgument, match="platform"):
        write_bundle("kaggle", CHALLENGE, tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("change", "argument"),
    [({"title": ""}, "title"), ({"title": "a\x07"}, "title"), ({"end": date(2026, 1, 1)}, "until")],
)
def test_a_challenge_is_checked(change: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument, match=argument):
        replace(CHALLENGE, **change)


def test_the_command_refuses_a_holdout_without_a_board(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    words = ["bundle", "codabench", "coins", str(tmp_path / "out"), "--ledger", str(ledger)]
    assert "--server" in CliRunner().invoke(app, words).output
    refused = CliRunner().invoke(app, [*words, "--server", "https://host.example"])
    assert refused.exit_code == 1 and "has no leaderboard" in refused.output
    assert not (tmp_path / "out").exists()


def test_the_command_refuses_a_board_by_rounds(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    X, y = np.arange(60.0).reshape(30, 2), np.arange(30) % 2
    Leaderboard(X, y, scoring="accuracy", name="coins", ledger=ledger, rounds=True)
    words = ["bundle", "codabench", "coins", str(tmp_path / "out"), "--ledger", str(ledger)]
    refused = CliRunner().invoke(app, [*words, "--server", "https://host.example"])
    assert refused.exit_code == 1 and "answers by rounds" in refused.output
