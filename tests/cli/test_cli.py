"""Attacks the command line: lost numbers, leaked ones, odd names, missing and broken ledgers."""

from __future__ import annotations

import gc
import json
import math
import os
import runpy
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.cells import cell_len
from sklearn.tree import DecisionTreeClassifier

import ladderholdout
from ladderholdout import LadderHoldout, Metric
from ladderholdout.audit.records import plain_value
from ladderholdout.cli import app
from ladderholdout.cli.common import json_of, print_json_of, reported
from ladderholdout.errors import KnownHoldoutWarning
from ladderholdout.mechanisms import MECHANISMS, Ladder
from tests.support.commands import CliRunner
from tests.support.ledgers import forget_rules

COMMAND = Path(sys.executable).with_name("ladder-holdout")
N = 1000


def call(*words: str, columns: int | None = None) -> Result:
    environment = {"COLUMNS": None if columns is None else str(columns)}
    return CliRunner().invoke(app, words, env=environment, catch_exceptions=False)


def output(*words: str, columns: int | None = None) -> str:
    result = call(*words, columns=columns)
    assert result.exit_code == 0, result.output
    assert not result.stderr
    return result.stdout


def refusal(*words: str) -> str:
    """Return what is said on a refusal: one line on standard error, and nothing else."""
    result = call(*words)
    assert result.exit_code == 1
    assert not result.stdout
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def rows(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, 3)), rng.integers(0, 2, N)


def hits(y: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return predictions of which so many are right."""
    return np.where(np.arange(len(y)) < count, y, 1 - y)


@pytest.fixture
def climbed() -> LadderHoldout:
    """A holdout with two releases, three failures and a repeat, from hands and from trees."""
    X, y = rows()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="churn 2026")
    for idea, count in (("first", 501), ("second", 777), ("third", 776)):
        holdout.submit(hits(y, count), context={"idea": idea})
    for depth in (2, 3):
        holdout.submit(DecisionTreeClassifier(max_depth=depth, random_state=0).fit(X, 1 - y))
    holdout.submit(hits(y, 501))
    return holdout


# -- what is shown ----------------------------------------------------------------------


def test_the_version_is_printed_however_the_command_line_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = f"ladderholdout {ladderholdout.__version__}\n"
    assert CliRunner().invoke(app, ["--version"]).output == stated
    monkeypatch.setattr(sys, "argv", ["ladderholdout", "--version"])
    with pytest.raises(SystemExit) as ended:  # python -m ladderholdout --version
        runpy.run_module("ladderholdout", run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out) == (0, stated)


def test_list_shows_each_ladder_with_what_it_stands_on(
    climbed: LadderHoldout, default_ledger: Path
) -> None:
    X, y = rows()
    with pytest.warns(KnownHoldoutWarning):
        LadderHoldout(X, y, scoring="roc_auc", account="ben", ladder="auc")
    lines = output("status").splitlines()
    assert lines[1].split()[:5] == ["churn", "2026", "1000", "default/main", "accuracy"]
    assert lines[1].split()[5:] == ["PricedLadder(weight=0.7)", "6", "2"]
    assert lines[2].split()[2:5] == ["1000", "ben/auc", "roc_auc"]
    assert lines[2].split()[-2:] == ["0", "0"]
    assert lines[-1] == f"ledger: {default_ledger}"


def test_status_shows_what_the_library_says(climbed: LadderHoldout) -> None:
    shown = [line.split() for line in output("status", "churn 2026").splitlines()]
    assert shown == [line.split() for line in str(climbed.status()).splitlines()]


def test_history_shows_what_was_released_and_when(climbed: LadderHoldout) -> None:
    head, *lines, total = output("history", "churn 2026").splitlines()
    columns = ["number", "time", "(UTC)", "own", "score", "released", "batch", "from"]
    assert head.split() == columns
    assert total == "6 submissions in all"
    for line, one in zip(lines, climbed.history(), strict=True):
        said = line.split()
        assert said[:5] == [
            str(one.number),
            f"{one.time:%Y-%m-%d}",
            f"{one.time:%H:%M}",
            f"{one.score:.6g}" if one.improved else "-",
            f"{one.score:.6g}",
        ]
        assert ("improved" in said) == one.improved
    assert lines[1].rstrip().endswith("by hand idea=second")
    assert "DecisionTreeClassifier max_depth=2" in lines[3]
    assert "random_state" not in lines[3]  # the same for both trees
    # A repeat is told the present released score, and has none of its own.
    assert lines[5].split()[3:8] == ["-", "0.777", "repeat", "of", "1"]


def test_history_shows_the_latest_that_are_asked_for(climbed: LadderHoldout) -> None:
    _, *lines, total = output("history", "churn 2026", "--last", "2").splitlines()
    assert [line.split()[0] for line in lines] == ["5", "6"]
    assert total == "6 submissions in all"


def test_a_long_history_is_gone_through_in_pages(climbed: LadderHoldout) -> None:
    def numbers(*asked: str) -> list[str]:
        _, *lines, _ = output("history", "churn 2026", *asked).splitlines()
        return [line.split()[0] for line in lines]

    assert numbers("--after", "0", "--last", "2") == ["1", "2"]
    assert numbers("--after", "2", "--last", "2") == ["3", "4"]
    assert [one.number for one in climbed.history(after=2, limit=2)] == [3, 4]


def test_a_holdout_without_submissions_has_a_history_of_none() -> None:
    LadderHoldout(*rows(), scoring="accuracy", name="new")
    assert output("history", "new") == "0 submissions in all\n"
    assert "none yet" in output("status", "new")


def test_account_and_ladder_say_whose_history() -> None:
    X, y = rows()
    LadderHoldout(X, y, scoring="accuracy", name="shared").submit(hits(y, 600))
    with pytest.warns(KnownHoldoutWarning):
        ben = LadderHoldout(X, y, scoring="accuracy", account="ben", ladder="b")
    ben.submit(hits(y, 700))
    chosen = ("shared", "--account", "ben", "--ladder", "b")
    assert "0.7" in output("history", *chosen)
    assert "b of account ben" in output("status", *chosen)
    assert "0.6" in output("history", "shared")


def test_the_ledger_option_goes_before_the_environment(
    climbed: LadderHoldout, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    LadderHoldout(*rows(1), scoring="accuracy", name="elsewhere", ledger=other)
    for ledger in (str(other), f"sqlite:///{other}"):
        shown = output("status", "--ledger", ledger)
        assert "elsewhere" in shown
        assert "churn" not in shown
    assert "churn" in output("status")


def cost(targets: NDArray[np.intp], predictions: NDArray[np.int32]) -> NDArray[np.float64]:
    return 0.5 * (targets != predictions)


def test_a_metric_of_ones_own_is_shown_without_its_function() -> None:
    X, y = rows()
    metric = Metric("neg_cost", "labels", loss=cost, loss_range=(0, 1))
    holdout = LadderHoldout(X, y, scoring=metric, name="costs")
    holdout.submit(hits(y, 600))
    assert "neg_cost" in output("status")
    assert "-0.2 (submission 1)" in output("status", "costs")
    assert "-0.2" in output("history", "costs")


class OwnLadder(Ladder):
    """A rule that somebody wrote, and that another process does not know."""


def test_a_rule_of_ones_own_is_listed_where_nobody_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = rows()
    monkeypatch.setitem(MECHANISMS, "OwnLadder", OwnLadder)
    LadderHoldout(X, y, scoring="accuracy", name="own", mechanism=OwnLadder(step=0.1))
    monkeypatch.delitem(MECHANISMS, "OwnLadder")
    forget_rules()  # as in another process
    assert "OwnLadder(step=0.1)" in output("status")
    result = call("status", "own")
    assert result.exit_code == 1
    assert "is 'OwnLadder'" in result.stderr


# -- what must not be shown -------------------------------------------------------------


@pytest.mark.long
def test_no_raw_score_is_shown(climbed: LadderHoldout) -> None:
    climbed.submit(hits(rows()[1], 683))
    audit = climbed.owner.audit()
    raw = audit.submissions[-1].raw
    assert (round(raw, 6), audit.submissions[-1].submission.improved) == (0.683, False)
    for words in (["status"], ["status", "churn 2026"], ["history", "churn 2026"]):
        shown = output(*words)
        assert "683" not in shown
        assert "317" not in shown  # the risk
    assert "raw scores were shown on" in output("status", "churn 2026")


def test_nothing_is_changed_by_looking(climbed: LadderHoldout, default_ledger: Path) -> None:
    before = climbed.status(), climbed.history()
    for words in (["status"], ["status", "churn 2026"], ["history", "churn 2026"]):
        output(*words)
    assert (climbed.status(), climbed.history()) == before


# -- terminals --------------------------------------------------------------------------


def test_a_terminal_of_any_width_shows_all_numbers_whole(climbed: LadderHoldout) -> None:
    for _ in range(120):
        climbed.submit(hits(rows()[1], 501))
    history = climbed.history()
    for columns in (40, 60, 80, 110, 200):
        listed = output("status", columns=columns)
        assert listed.splitlines()[1].split()[-2:] == ["126", "2"]
        shown = output("history", "churn 2026", "--last", "999", columns=columns)
        head, *lines, _ = shown.splitlines()
        assert len(lines) == 126
        for line, one in zip(lines, history, strict=True):
            words = line.split()
            assert words[0] == str(one.number)
            assert f"{one.score:.6g}" in words
            assert ("improved" in words) == one.improved
        status = output("status", "churn 2026", columns=columns)
        assert "0.777 (submission 2)" in status
        tables = listed.split("ledger:")[0] + head + "\n" + "\n".join(lines) + "\n" + status
        assert max(cell_len(line) for line in tables.splitlines()) <= columns


def test_a_long_name_folds_and_keeps_its_end() -> None:
    name = "a-holdout-with-a-name-that-no-terminal-of-sixty-columns-can-hold-in-one-line-2026"
    LadderHoldout(*rows(), scoring="accuracy", name=name)
    listed = output("status", columns=60)
    folded = "".join(line.split()[0] for line in listed.splitlines()[1:-1])
    assert name in folded
    assert "…" not in listed
    assert name in "".join(output("status", name, columns=60).split())


def test_in_a_pipe_each_submission_stays_on_one_line() -> None:
    X, y = rows()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="n" * 200)
    holdout.submit(hits(y, 600), context={"note": "a long note, " * 40})
    assert ("n" * 200) in output("status")
    assert ("a long note, " * 40).strip() in output("history", "n" * 200)
    assert len(output("history", "n" * 200).splitlines()) == 3


# Names are what people type. Control characters are left out, on which terminals act, and slashes,
# which would divide an address.
letters = st.characters(exclude_categories=["C", "Z"], exclude_characters="/\\%")
names = st.text(letters, min_size=1, max_size=40).filter(lambda name: name not in (".", ".."))


@pytest.mark.long
@given(name=names)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_name_is_shown_as_it_is(name: str) -> None:
    ledger = LadderHoldout(*rows(), scoring="accuracy", name=name, ledger="memory").ledger
    assert output("status", "--ledger", ledger).splitlines()[1].split()[0] == name
    # After the two dashes a name that begins with one is no option.
    assert output("status", "--ledger", ledger, "--", name).splitlines()[0].split()[1] == name


@pytest.mark.parametrize("name", ["[bold]x[red]", "[red]", "[]", ":smile:", "x[0]", "[a]"])
def test_brackets_in_a_name_are_no_markup(name: str) -> None:
    LadderHoldout(*rows(), scoring="accuracy", name=name)
    assert name in output("status")
    assert name in output("status", name)
    assert output("history", name)
    assert name in refusal("status", "another")
    assert name in refusal("status", name, "--account", "[i]nobody[/i]")


# -- refusals ---------------------------------------------------------------------------


def test_a_wrong_name_is_answered_with_the_names_there_are(climbed: LadderHoldout) -> None:
    for command in ("status", "history"):
        assert "'churn 2026'" in refusal(command, "chrun")
    assert "default/main" in refusal("status", "churn 2026", "--account", "nobody")
    assert "default/main" in refusal("history", "churn 2026", "--ladder", "none")


def test_a_missing_ledger_is_said_and_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    for words in (["status"], ["status", "x"], ["history", "x"]):
        assert str(missing) in refusal(*words, "--ledger", str(missing))
    assert not missing.exists()


def test_a_ledger_without_holdouts_says_so(tmp_path: Path) -> None:
    ledger = tmp_path / "empty.db"
    with pytest.raises(ValueError, match="scoring"):
        LadderHoldout(*rows(), name="x", ledger=ledger)
    assert "No holdout is registered yet." in output("status", "--ledger", str(ledger))


@pytest.mark.parametrize("content", [b"no database at all, but long enough" * 99, b""])
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(content)
    for words in (["status"], ["status", "x"], ["history", "x"]):
        assert "ledger" in refusal(*words, "--ledger", str(broken))
    assert broken.read_bytes().startswith(content)


def test_a_url_that_is_none_is_refused() -> None:
    secret = "hunter2"
    assert secret not in refusal("status", "--ledger", f"mysql://me:{secret}@there/db")


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["history"],
        ["history", "x", "--last", "0"],
        ["history", "x", "--last", "many"],
        ["status", "--nonsense"],
        ["status", "too", "much"],
    ],
)
def test_what_cannot_be_parsed_gives_status_2(words: list[str]) -> None:
    assert call(*words).exit_code == 2


def test_options_of_one_holdout_need_its_name(climbed: LadderHoldout) -> None:
    for option in (["--health"], ["--reveal"], ["--ladder", "b"], ["--server", "http://there"]):
        assert f"NAME must be stated with {option[0]}, but is missing" in refusal("status", *option)
    name = climbed.name
    for option in (["--reserve"], ["--confidence", "0.9"]):
        refused = refusal("certificate", name, "--estimate", *option)
        assert f"--estimate must be stated without {option[0]}" in refused
    for words in ([name], ["--mlflow"], ["--verdicts", "none"]):
        assert "--installation must be stated without" in refusal(
            "verify", "--installation", *words
        )


# -- the installed command --------------------------------------------------------------


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *words],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=60,
        check=False,
    )


@pytest.mark.processes
def test_the_installed_command_shows_and_refuses_without_a_traceback(
    climbed: LadderHoldout, tmp_path: Path
) -> None:
    shown = run("history", "churn 2026", COLUMNS="60")
    assert (shown.returncode, shown.stderr) == (0, "")
    last, total = shown.stdout.splitlines()[-2:]
    assert last.split()[3:] == ["0.777", "repeat", "of", "1", "by", "hand"]
    assert total == "6 submissions in all"
    refused = run("status", LADDERHOLDOUT_LEDGER=str(tmp_path / "none.db"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("Error: The ledger ")
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", ["backup", "status", "history"])
def test_help_tells_of_every_option_and_makes_no_ledger(command: str, default_ledger: Path) -> None:
    told = output(command, "--help", columns=100)
    assert "--ledger" in told
    assert ("--account" in told) == ("--ladder" in told) == (command != "backup")
    assert ("--last" in told) == (command == "history")
    assert command in output("--help", columns=100)
    assert not default_ledger.exists()


@pytest.mark.parametrize("odd", [0.5, math.inf, math.nan, "\x1b\x7f\u2028ü\udc80", [-math.inf]])
def test_rows_are_printed_as_json_of_their_plain_values(
    odd: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row in the midst, of more than are printed at a time: what it holds changes no other."""
    times = [datetime(2026, 1, 2, 3, 4, 5, us, UTC) for us in (0, 6)]
    some = [{"time": times[n % 2], "raw": 0.1 * n, "context": {"C": n}} for n in range(2500)]
    some[1700]["context"] = {"odd": odd}
    print_json_of({"name": "coins"}, "rows", iter(some), plain_value)
    printed = capsys.readouterr().out
    assert printed == json_of({"name": "coins", "rows": [plain_value(one) for one in some]}) + "\n"
    assert len(json.loads(printed)["rows"]) == 2500


def test_a_command_looks_for_cycles_seldom_and_leaves_it_as_it_was() -> None:
    seen: list[int] = []

    def command() -> None:
        seen.append(gc.get_threshold()[0])
        raise InterruptedError

    for first in (700, 0, 50_000):
        before = gc.get_threshold()
        gc.set_threshold(first)
        try:
            with pytest.raises(InterruptedError):
                reported(command)()
            assert gc.get_threshold()[0] == first
        finally:
            gc.set_threshold(*before)
    assert seen == [10_000, 0, 50_000]
