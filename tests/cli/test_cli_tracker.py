"""Attacks the commands that write: files of every make, JSON, edited ledgers, terminals."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.mechanisms import MECHANISMS, Ladder, mechanism_of
from ladderholdout.remote.tables import labels_like
from tests.support.commands import CliRunner
from tests.support.holdouts import EVERY
from tests.support.ledgers import entries_of, remove, stored, tamper

COMMAND = Path(sys.executable).with_name("ladder-holdout")
N = 60
CANARY = "canary-7f3a"


def call(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, words, input=answer, catch_exceptions=False)


def output(*words: str) -> str:
    result = call(*words)
    assert result.exit_code == 0, result.output
    assert not result.stderr
    return result.stdout


def parsed(*words: str) -> Any:
    """Return what a JSON parser makes of standard output; nan and its kin are no JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(output(*words, "--json"), parse_constant=refuse)


def refusal(*words: str, status: int = 1) -> str:
    """Return what is said on a refusal: one line on standard error, and nothing else."""
    result = call(*words)
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(N, 3)), columns=["age", "income", "visits"])
    return frame.assign(city=rng.choice(["Oslo", "Rome"], N), churn=rng.integers(0, 2, N))


@pytest.fixture
def folder(tmp_path: Path, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the table as a file."""
    monkeypatch.chdir(tmp_path)
    table.to_csv("data.csv", index=False)
    return tmp_path


REGISTER = ("register", "data.csv", "--target", "churn", "--scoring", "accuracy", "--name", "churn")


@pytest.fixture
def registered(folder: Path) -> Path:
    output(*REGISTER)
    return folder


def write(labels: Any, file: str = "p.csv", name: str = "prediction") -> str:
    pd.DataFrame({name: labels}).to_csv(file, index=False)
    return file


# Registering


def test_a_file_and_its_frame_are_the_same_holdout(folder: Path) -> None:
    """Whichever comes first, and whatever kind of file."""
    frame = pd.read_csv("data.csv")
    frame.to_parquet("data.parquet")
    told = parsed(*REGISTER)
    holdout = LadderHoldout(frame.drop(columns="churn"), frame["churn"], name="churn")
    assert (holdout.status().fingerprint, holdout.name) == (told["fingerprint"], told["name"])
    for file in ("data.csv", "data.parquet"):
        again = parsed("register", file, "--target", "churn")
        assert again["fingerprint"] == told["fingerprint"]
    assert len(parsed("status")["ladders"]) == 1
    holdout.submit(frame["churn"])
    assert parsed("status", "churn")["score"] == 1.0


def test_every_option_reaches_the_holdout(folder: Path, table: pd.DataFrame) -> None:
    table.assign(w=np.arange(1, N + 1)).to_csv("weighted.csv", index=False)
    told = parsed(
        *("register", "weighted.csv", "--target", "churn", "--scoring", "accuracy"),
        *("--sample-weight", "w", "--mechanism", "Ladder(step=0.02)", "--budget", "4"),
        *("--account", "ann", "--ladder", "careful", "--class", "0", "--class", "1"),
        *("--class", "2", "--vault", "safe", "--overlap", "error"),
    )
    assert (told["mechanism"], told["budget"], told["releases"]) == ("Ladder(step=0.02)", 4, 0)
    assert (told["account"], told["ladder"], told["submissions"]) == ("ann", "careful", 0)
    assert told["name"].startswith("holdout-")
    assert len(list((folder / "safe").glob("*.vault"))) == 1
    y = table["churn"].to_numpy()
    wrong = np.where(np.arange(N) == N - 1, 2, y)  # the heaviest row, as a class y lacks
    chosen = ("--account", "ann", "--ladder", "careful")
    released = parsed("submit", told["name"], write(wrong), *chosen)
    assert released["score"] == pytest.approx(1 - N / (N * (N + 1) / 2), abs=0.02)


def test_rows_are_known_by_a_column_of_ids_with_other_features(folder: Path) -> None:
    frame = pd.read_csv("data.csv").assign(customer=[f"c{at}" for at in range(N)])
    frame.to_csv("named.csv", index=False)
    common = ("--target", "churn", "--scoring", "accuracy", "--ids", "customer")
    first = parsed("register", "named.csv", *common, "--name", "churn")
    other = frame.drop(columns="age").assign(more=np.arange(N) % 7).sample(frac=1, random_state=0)
    other.to_csv("later.csv", index=False)
    result = call("register", "later.csv", *common, "--json")
    assert result.exit_code == 0 and "KnownHoldoutWarning" in result.stderr
    assert json.loads(result.stdout)["name"] == first["name"] == "churn"
    assert "--ids" in refusal("register", "named.csv", "--target", "churn", "--ids", "nobody")


def test_a_regression_takes_several_targets_and_a_range(folder: Path) -> None:
    common = ("register", "data.csv", "--scoring", "neg_mean_squared_error", "--name", "two")
    parsed(*common, "--target", "age", "--target", "income", "--loss-range", "0", "9")
    frame = pd.read_csv("data.csv")
    frame[["age", "income"]].to_csv("p.csv", index=False)
    assert parsed("submit", "two", "p.csv")["score"] == 0.0


def test_a_known_holdout_is_said_in_a_sentence(registered: Path) -> None:
    result = call(*REGISTER, "--account", "ben")
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: This opens ladder 'main' of account 'ben'")
    assert "ben" in result.stdout
    told = call(*REGISTER, "--account", "eve", "--json")
    assert json.loads(told.stderr)["kind"] == "KnownHoldoutWarning"
    assert json.loads(told.stdout)["account"] == "eve"


@pytest.mark.parametrize("rule", EVERY, ids=repr)
def test_a_mechanism_is_read_as_it_is_shown(rule: Any) -> None:
    assert mechanism_of(repr(rule)) == rule


HOSTILE = [
    "",
    "Ladder(",
    "Ladder(step=open('x'))",
    "Ladder(step=(lambda: 1)())",
    "Ladder(**{'step': 1})",
    "Ladder(*[0.1])",
    "Ladder(0.1, 0.2)",
    "Ladder(step=0.1, step=0.2)",
    "Ladder(stride=0.1)",
    "Ladder()",
    "Ladder(step=-1)",
    "Ladder(step='0.1')",
    "Ladder.step",
    "__import__('os').system('true')",
    "[Ladder(0.1)][0]",
    "Ladder(0.1) or Ladder(0.2)",
    "(" * 500,
    "Ladder(step=" + "-" * 5000 + "1)",
    "Ladder\0(0.1)",
    "os",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_mechanism_is_refused_and_never_run(text: str) -> None:
    with pytest.raises(InvalidArgument):
        mechanism_of(text)


@given(text=st.text(max_size=60) | st.from_regex(r"(Ladder|ShakyLadder)\(.{0,30}\)"))
def test_no_text_makes_anything_but_a_mechanism_or_a_refusal(text: str) -> None:
    with suppress(InvalidArgument):
        assert type(mechanism_of(text)).__name__ in MECHANISMS


def test_settings_may_stand_in_their_places() -> None:
    assert mechanism_of(" Ladder( 0.25 ) ") == Ladder(0.25)


# Files


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "but is nothing"),
        (b"a,b\n1\n1,2,3,4\n", "with 1 in line 2"),
        (b"\xff\xfe\x00\x01churn", "another encoding"),
        (b"only,a,header\n", "a header alone"),
    ],
)
def test_a_file_that_is_no_table_is_refused(folder: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        Path("bad.csv").write_bytes(content)
    assert said in refusal("register", "bad.csv", "--target", "churn", "--scoring", "accuracy")
    assert not (folder / "ledger.db").exists()


def test_other_kinds_of_files_are_refused(folder: Path) -> None:
    Path("bad.parquet").write_bytes(b"no parquet at all")
    assert "parquet" in refusal("register", "bad.parquet", "--target", "churn")
    for name in ("data.xlsx", "data", "."):
        assert ".csv or .parquet" in refusal("register", name, "--target", "churn")
    (folder / "folder.csv").mkdir()
    assert "can be read" in refusal("register", "folder.csv", "--target", "churn")


def test_a_wrong_column_is_answered_with_a_near_one_and_with_no_cell(folder: Path) -> None:
    assert "Did you mean 'churn'?" in refusal("register", "data.csv", "--target", "Churned")
    Path("bare.csv").write_text(f"1.5,{CANARY}\n2.5,other\n")
    said = refusal("register", "bare.csv", "--target", "churn", "--scoring", "accuracy")
    assert "first line has to name" in said
    assert CANARY not in said


@pytest.mark.parametrize(("package", "file"), [("pandas", "data.csv"), ("pyarrow", "d.parquet")])
def test_a_missing_package_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, file: str
) -> None:
    pd.read_csv("data.csv").to_parquet("d.parquet")
    monkeypatch.setitem(sys.modules, package, None)  # as where there is none
    said = refusal("register", file, "--target", "churn", "--scoring", "accuracy")
    assert f"needs {package}" in said
    assert "pip install 'ladderholdout[tables]'" in said


# Submitting


def repeated(holdout: LadderHoldout, told: Any) -> int | None:
    """Look up in the ledger which submission a file that was handed in repeats."""
    return entries_of(holdout)[told["submission"] - 1].repeat_of


@pytest.mark.parametrize(
    "labels",
    [
        [3, 7],
        [-1, 1],
        ["no", "yes"],
        ["01", "02"],
        ["NA", "null"],
        [False, True],
        [2**60, 2**60 + 1],
        ["Ünï", "a,b"],
    ],
    ids=repr,
)
def test_labels_in_a_file_have_the_types_of_the_holdout(folder: Path, labels: list[Any]) -> None:
    X = np.random.default_rng(0).normal(size=(N, 2))
    y = np.array(labels)[np.arange(N) % 2]
    holdout = LadderHoldout(X, y, scoring="accuracy", name="typed")
    assert holdout.submit(y).score == 1.0
    file = write(y)
    told = parsed("submit", "typed", file)
    assert (repeated(holdout, told), told["score"]) == (1, 1.0)
    pd.DataFrame({"p": y}).to_parquet("p.parquet")
    assert repeated(holdout, parsed("submit", "typed", "p.parquet")) == 1
    pd.DataFrame({"p": y}).to_csv("bare.csv", index=False, header=False)
    assert repeated(holdout, parsed("submit", "typed", "bare.csv", "--no-header")) == 1


@pytest.mark.parametrize("labels", [[0, 1, 2], ["a", "b", "c"]], ids=repr)
def test_probabilities_are_found_by_the_names_of_their_columns(
    folder: Path, labels: list[Any]
) -> None:
    rng = np.random.default_rng(0)
    y = np.array(labels)[np.arange(N) % 3]
    holdout = LadderHoldout(rng.normal(size=(N, 2)), y, scoring="neg_log_loss", name="many")
    frame = pd.DataFrame(rng.dirichlet([1, 1, 1], N), columns=labels)
    first = holdout.submit(frame.to_numpy())
    turned = frame[labels[::-1]]
    turned.to_csv("p.csv", index=False)
    turned.rename(columns=str).to_parquet("p.parquet")
    frame.to_csv("bare.csv", index=False, header=False)
    for words in (["p.csv"], ["p.parquet"], ["bare.csv", "--no-header"]):
        told = parsed("submit", "many", *words)
        assert (repeated(holdout, told), told["score"]) == (1, first.score)
    frame.set_axis(["p1", "p2", "p3"], axis=1).to_csv("p.csv", index=False)
    assert "named after one of the holdout's classes" in refusal("submit", "many", "p.csv")


def test_scores_and_values_are_numbers(folder: Path, table: pd.DataFrame) -> None:
    y = table["churn"].to_numpy()
    holdout = LadderHoldout(table[["age"]], y, scoring="roc_auc", name="auc")
    first = holdout.submit(table["age"])
    assert parsed("submit", "auc", write(table["age"]))["score"] == first.score
    assert repeated(holdout, parsed("submit", "auc", write(table["age"]))) == 1
    holdout = LadderHoldout(table[["visits"]], table["age"], scoring="r2", name="ages")
    first = holdout.submit(table["income"])
    assert repeated(holdout, parsed("submit", "ages", write(table["income"]))) == 1
    for cell, said in (("x", "the first in line 2"), ("nan", "missing"), ("", "line 2")):
        assert said in refusal("submit", "ages", write([cell] * N))


def test_the_order_of_the_file_is_the_registered_one(registered: Path, table: pd.DataFrame) -> None:
    y = table["churn"].to_numpy()
    assert parsed("submit", "churn", write(y))["score"] == 1.0
    assert not parsed("submit", "churn", write(y[::-1]))["improved"]


def test_wrong_predictions_are_refused_and_leave_no_entry(
    registered: Path, table: pd.DataFrame
) -> None:
    y = table["churn"].to_numpy()
    pd.Series(y)[::-1].to_csv("index.csv")
    np.savetxt("bare.csv", y, fmt="%d")
    pd.DataFrame({"a": y, "b": y}).to_csv("two.csv", index=False)
    secret = write([CANARY] * N, "secret.csv")
    for file, said in (
        ("index.csv", "index=False"),
        ("bare.csv", "--no-header"),
        ("two.csv", "one column"),
        (secret, "numbers, like the holdout's labels"),
        (write([0.5] * N, "half.csv"), "predict(X)"),
        (write([9] * N, "nine.csv"), "outside of them"),
        (write(y[:-3], "short.csv"), "60 rows"),
        ("none.csv", "No such file"),
    ):
        told = refusal("submit", "churn", file)
        assert said in told, told
        assert CANARY not in told
    assert parsed("status", "churn")["submissions"] == 0


@given(texts=st.lists(st.text(max_size=8), min_size=1, max_size=5))
def test_any_text_is_a_label_of_a_text_holdout_and_maybe_of_another(texts: list[str]) -> None:
    assert labels_like(np.array(["a"]), texts).tolist() == np.array(texts, dtype=str).tolist()
    for classes in (np.array([0, 1]), np.array([0.5]), np.array([False, True])):
        try:
            assert len(labels_like(classes, texts)) == len(texts)
        except InvalidSubmission as error:
            assert "holdout's labels" in str(error)


def test_the_release_is_shown_as_the_library_gives_it(
    registered: Path, table: pd.DataFrame
) -> None:
    y = table["churn"].to_numpy()
    shown = output("submit", "churn", write(y), "--context", "idea=all right", "--context", "n=1")
    assert [line.split() for line in shown.splitlines()] == [
        ["released", "score", "1"],
        ["submission", "1,", "improved"],
    ]
    (entry,) = parsed("history", "churn")["submissions"]
    assert entry["context"] == {"idea": "all right", "n": "1"}
    for wrong in ("idea", "=x"):
        assert "key=value" in refusal("submit", "churn", "p.csv", "--context", wrong)


def test_a_used_up_budget_is_said_in_a_sentence(folder: Path, table: pd.DataFrame) -> None:
    output(*REGISTER, "--budget", "1")
    result = call("submit", "churn", write(table["churn"]))
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: The 1 releases of this ladder are used up")
    assert "releases left" in result.stdout


# What stands


def test_status_says_all_in_one_glance(registered: Path, table: pd.DataFrame) -> None:
    y = table["churn"].to_numpy()
    for labels in (1 - y, y, 1 - y, np.zeros_like(y), y):
        output("submit", "churn", write(labels))
    said = dict(line.split(maxsplit=1) for line in output("status", "churn").splitlines())
    assert said["released"].startswith("score  1 (submission 2)")
    assert said["submissions"].strip() == "5"
    assert said["last"].startswith("answers    3 repeat of 1, 4 not improved, 5 repeat of 2 (")
    LadderHoldout.open("churn").owner.audit()
    output("retire", "churn", "--yes")
    shown = output("status", "churn")
    assert "raw scores were shown on" in shown
    assert "it takes no more submissions" in shown
    told = parsed("status", "churn")
    assert told["opened"] is not None
    assert told["retired"] is not None
    assert [one["number"] for one in told["latest"]] == [3, 4, 5]
    assert parsed("status")["ladders"][0]["retired"] == told["retired"]


def test_the_commands_that_look_give_json(registered: Path, table: pd.DataFrame) -> None:
    output("submit", "churn", write(table["churn"]), "--context", "note=[é]")
    listed = parsed("status")
    assert [one["holdout"] for one in listed["ladders"]] == ["churn"]
    assert parsed("status", "churn")["score"] == 1.0
    told = parsed("history", "churn", "--last", "1")
    assert (told["total"], told["submissions"][0]["context"]) == (1, {"note": "[é]"})


def test_a_score_beyond_numbers_is_still_json(folder: Path, table: pd.DataFrame) -> None:
    holdout = LadderHoldout(
        table[["age"]], table["income"], scoring="neg_mean_squared_error", name="far"
    )
    holdout.submit(np.full(N, 1e99))
    assert parsed("status", "far")["score"] < -1e190


def test_errors_are_json_too_where_it_is_asked_for(registered: Path) -> None:
    for words in (
        ["status", "nobody"],
        ["history", "nobody"],
        ["submit", "nobody", "p.csv"],
        ["retire", "nobody"],
        ["verify", "nobody"],
        ["status", "--ledger", "none.db"],
        ["backup", "data.csv"],
        ["register", "none.csv", "--target", "x"],
    ):
        result = call(*words, "--json")
        assert (result.exit_code, result.stdout) == (1, "")
        assert set(json.loads(result.stderr)) == {"error", "kind"}


# Retiring, copying


def test_retiring_asks_first(registered: Path, table: pd.DataFrame) -> None:
    refused = call("retire", "churn", answer="n\n")
    assert refused.exit_code == 1
    assert "permanently" in refused.stderr
    assert parsed("status", "churn")["retired"] is None
    assert call("retire", "churn", answer="y\n").exit_code == 0
    assert "retired since" in output("retire", "churn")  # the second time there is nothing to ask
    said = refusal("submit", "churn", write(table["churn"]))
    assert "takes no more submissions" in said
    assert parsed("retire", "churn")["retired"] == parsed("status", "churn")["retired"]


def test_a_backup_is_a_ledger(registered: Path, table: pd.DataFrame) -> None:
    output("submit", "churn", write(table["churn"]))
    told = parsed("backup", "copies.db")
    assert told["file"] == str(registered / "copies.db")
    assert stat.S_IMODE(Path("copies.db").stat().st_mode) == 0o600
    assert parsed("status", "churn", "--ledger", "copies.db")["score"] == 1.0
    assert "not there yet" in refusal("backup", "copies.db")
    assert "written: " in output("backup", "more.db")


# Verifying


def test_a_row_edited_by_hand_is_found_and_named(
    registered: Path, default_ledger: Path, table: pd.DataFrame
) -> None:
    y = table["churn"].to_numpy()
    for labels in (1 - y, y, np.zeros_like(y)):
        output("submit", "churn", write(labels))
    assert "all as written" in output("verify", "churn")
    assert parsed("verify", "churn")["intact"]
    assert tamper(default_ledger, "submission", "answer", 0.25, number=2) == 1
    result = call("verify", "churn")
    assert (result.exit_code, result.stderr) == (1, "")
    first = "FOUND: submission 2 of ladder default/main was changed or moved"
    assert result.stdout.splitlines()[0] == first
    assert "NOT as written" in result.stdout
    told = call("verify", "churn", "--json")
    found = json.loads(told.stdout)
    assert (told.exit_code, found["intact"]) == (1, False)
    assert [(one["ladder"], one["number"]) for one in found["findings"]] == [("default/main", 2)]
    assert remove(default_ledger, "submission", number=2) == 1
    assert "submission 2 of ladder default/main was removed" in call("verify", "churn").stdout


def test_many_findings_are_counted(
    registered: Path, default_ledger: Path, table: pd.DataFrame
) -> None:
    holdout = LadderHoldout.open("churn")
    for seed in range(40):
        holdout.submit(np.random.default_rng(seed).integers(0, 2, N))
    tamper(default_ledger, "submission", "raw score", lambda risk: risk / 2)
    lines = call("verify", "churn").stdout.splitlines()
    assert len([line for line in lines if line.startswith("FOUND: ")]) == 20
    assert "... and 20 more" in lines


def test_no_finding_shows_what_was_changed(registered: Path, default_ledger: Path) -> None:
    LadderHoldout.open("churn").submit(np.zeros(N, dtype=int))
    assert tamper(default_ledger, "submission", "raw score", 0.123456) == 1
    assert tamper(default_ledger, "submission", "evidence", "canary-7f3a") == 1
    shown = call("verify", "churn").output
    assert "123456" not in shown
    assert CANARY not in shown


def test_an_edited_entry_that_cannot_be_read_leads_to_verify(
    registered: Path, default_ledger: Path
) -> None:
    LadderHoldout.open("churn").submit(np.zeros(N, dtype=int))
    assert tamper(default_ledger, "submission", "context", "{") == 1
    for command in ("status", "history"):
        assert "ladder-holdout verify NAME" in refusal(command, "churn")
    assert tamper(default_ledger, "ladder", "state", "{") == 1
    assert "verify NAME" in refusal("status")
    result = call("verify", "churn")
    assert result.exit_code == 1
    assert "submission 1 was changed" in result.stdout


@pytest.mark.parametrize(
    ("thing", "field", "value"),
    [
        ("holdout", "created", "garbage"),
        ("ladder", "created", "garbage"),
        ("ladder", "settings of the rule", "{"),
        ("submission", "time", "garbage"),
        ("submission", "raw score", "garbage"),
    ],
)
def test_no_edit_leads_to_a_traceback(
    registered: Path, default_ledger: Path, thing: str, field: str, value: str
) -> None:
    LadderHoldout.open("churn").submit(np.zeros(N, dtype=int))
    assert tamper(default_ledger, thing, field, value) == 1
    for command in ("status", "history", "verify"):
        shown = call(command, "churn")  # an exception would be raised here
        assert "garbage" not in shown.output
    assert call("verify", "churn").exit_code == 1


# Notebooks


def test_notebooks_show_a_small_table_and_no_markup_of_names(folder: Path) -> None:
    frame = pd.read_csv("data.csv")
    name = "<script>alert('x')<script> & co"
    holdout = LadderHoldout(
        frame.drop(columns="churn"), frame["churn"], scoring="accuracy", name=name, budget=2
    )
    release = holdout.submit(frame["churn"] ^ (np.arange(N) < 17))
    assert release.improved
    assert not holdout.submit(frame["churn"] ^ (np.arange(N) < 19)).improved
    raw = holdout.owner.audit().submissions[1].raw
    shown = holdout._repr_html_() + release._repr_html_() + holdout.status()._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<td" in release._repr_html_()
    assert "releases left" in release._repr_html_()
    assert f"{release.score:.6g}" in shown
    assert f"{raw:.6g}" not in shown


def test_a_notebook_shows_a_holdout_whose_ledger_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "gone" / "ledger.db"
    X = np.arange(8.0)[:, None]
    holdout = LadderHoldout(X, X[:, 0] > 3, scoring="accuracy", ledger=place)
    for file in place.parent.glob("ledger.db*"):
        file.unlink()
    assert "was removed or replaced" in holdout._repr_html_()


# Terminals and shells


def completions(*words: str, incomplete: str = "") -> list[str]:
    """Return what the command offers to bash behind some words."""
    line = " ".join(["ladder-holdout", *words, incomplete])
    environment = {
        "_LADDER_HOLDOUT_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) + 1),
    }
    done = CliRunner().invoke(
        app, [], env=environment, prog_name="ladder-holdout", catch_exceptions=False
    )
    assert (done.exit_code, done.stderr) == (0, "")
    return [name for name in done.stdout.splitlines() if name]


def test_the_shell_completes_names(registered: Path, default_ledger: Path) -> None:
    frame = pd.read_csv("data.csv")[::2]
    with pytest.warns(match="are in the holdout 'churn'"):
        LadderHoldout(
            *(frame.drop(columns="churn"), frame["churn"]),
            scoring="accuracy",
            name="cheese",
            overlap="warn",
        )
    assert completions("status", incomplete="ch") == ["churn", "cheese"]
    assert completions("submit", incomplete="chu") == ["churn"]
    assert completions("status", incomplete="x") == []


def test_completing_makes_no_ledger_and_mends_none(registered: Path, default_ledger: Path) -> None:
    assert tamper(default_ledger, "format", "number", 3) == 1
    assert completions("status") == ["churn"]
    assert stored(default_ledger, "format", "number") == 3
    assert completions("status", "--ledger", "none.db") == []
    assert not Path("none.db").exists()
    default_ledger.write_text("no ledger")
    assert completions("status") == []


@pytest.mark.processes
def test_the_installed_command_completes_names(registered: Path) -> None:
    environment = {"_LADDER_HOLDOUT_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    environment["COMP_WORDS"] = "ladder-holdout status ch"
    done = subprocess.run(
        [COMMAND], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["churn"])


def in_a_terminal(words: list[str], typed: bytes = b"") -> tuple[int, str]:
    """Run the installed command with a terminal of its own, and type something into it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["COLUMNS"] = "80"
        os.execv(COMMAND, [str(COMMAND), *words])
    shown = b""
    while True:
        try:
            part = os.read(terminal, 1024)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        shown += part
        if typed and b"[y/N]" in shown:
            os.write(terminal, typed)
            typed = b""
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode()


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
def test_a_person_at_a_terminal_is_asked_and_answered(registered: Path) -> None:
    status, shown = in_a_terminal(["retire", "churn"], b"n\n")
    assert status == 1
    assert "Retire it? [y/N]" in shown
    assert "Aborted" in shown
    status, shown = in_a_terminal(["retire", "churn"], b"y\n")
    assert (status, "is retired since" in shown) == (0, True)


WITHOUT_A_HOLDOUT = {"attack", "mcp", "plan", "safe"}
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


def test_every_command_has_help_and_json(default_ledger: Path) -> None:
    wrong = []
    for command in COMMANDS:
        told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100"})
        named = ("--json" in told.stdout, "--ledger" in told.stdout)
        if (told.exit_code, *named) != (0, True, command not in WITHOUT_A_HOLDOUT):
            wrong.append(command)
    assert wrong == []
    assert not default_ledger.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["register", "data.csv"],
        ["register", "--target", "churn"],
        ["register", "data.csv", "--target", "churn", "--budget", "many"],
        ["register", "data.csv", "--target", "churn", "--loss-range", "1"],
        ["submit", "churn"],
        ["backup"],
        ["retire"],
        ["verify"],
    ],
)
def test_what_cannot_be_parsed_gives_status_2(folder: Path, words: list[str]) -> None:
    assert call(*words).exit_code == 2
