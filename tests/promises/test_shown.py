"""Attacks a colleague's terminal and browser by the names and contexts in a ledger."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from ladderholdout import LadderHoldout
from ladderholdout.audit.report import record_of, write_report
from ladderholdout.cli import app
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, printable
from tests.support.commands import CliRunner
from tests.support.holdouts import coins, guesses
from tests.support.ledgers import copy, note_overlap, rechain, tamper

CLEAR = "\x1b[2J\x1b]0;mine\x07"
HOSTILE = [CLEAR, "\u202etxt.exe", "\u2066a\u2069", "\x9b2J", "\ud800", "\x00", "\r over", "\u2028"]


def harmless(text: str) -> bool:
    """Whether a text holds nothing but what is read, and can be written anywhere."""
    return all(
        one in "\n\u200c\u200d" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        for one in text
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with hostile contexts, which is only read."""
    path = tmp_path_factory.mktemp("shown") / "ledger.db"
    holdout = LadderHoldout(*coins(), scoring="accuracy", name="gift", ledger=path)
    for text, predictions in zip(HOSTILE, guesses(1, len(HOSTILE)), strict=True):
        holdout.submit(predictions, context={"idea": text, text: "key", "parameters": {"a": text}})
    holdout.submit(coins()[1], context={"estimator": "long " * 3000})
    return path


def forget_marks_beside(path: Path) -> None:
    for mark in path.parent.rglob("*.mark"):
        mark.unlink()


@pytest.fixture(scope="module")
def named(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another one, whose account and overlap have hostile names as well."""
    other = copy(path, tmp_path_factory.mktemp("named") / "ledger.db")
    tamper(other, "ladder", "account", f"default{CLEAR}")
    name = f"gift{CLEAR}\u202e"
    rechain(other)
    forget_marks_beside(path)  # of the chain under the names before
    note_overlap(other, name, 3)
    forget_marks_beside(path)  # of this one, which the other would be an older copy of
    return other


@pytest.mark.parametrize("text", HOSTILE)
def test_what_acts_on_a_terminal_is_escaped(text: str) -> None:
    assert harmless(printable(text))
    assert printable(f"before {text} after") != f"before {text} after"
    assert harmless(str(LadderHoldoutError(f"no holdout {text}")))
    assert harmless(str(InvalidArgument("name", "another", text)))


def test_other_scripts_and_line_breaks_stay() -> None:
    for text in (
        "Łódź 東京 \U0001f469\u200d\U0001f52c",
        "two\nlines",
        "\u0645\u06cc\u200c\u062e",
        "a\u00a0b",
    ):
        assert printable(text) == text
    assert printable("abc" * 100, longest=3) == "abc... (297 more)"


@pytest.mark.parametrize("argument", ["name", "account", "ladder"])
def test_such_names_are_refused(tmp_path: Path, argument: str) -> None:
    for text in HOSTILE:
        given = {argument: f"a{text}", "ledger": tmp_path / "ledger.db"}
        with pytest.raises(InvalidArgument, match=rf"{argument} must be a printable text of 1 to"):
            LadderHoldout(*coins(), scoring="accuracy", **given)


@pytest.mark.parametrize("command", ["all", "status", "history", "verify", "certificate"])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_prints_them_escaped(named: Path, command: str, as_json: bool) -> None:
    words = ["status"] if command == "all" else [command, "gift"]
    words += ["--ledger", str(named)]
    words += ["--json"] if as_json else []
    if command in ("status", "history", "certificate"):
        words += ["--account", f"default{CLEAR}"]
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, SystemExit | None)
    assert found.output
    assert harmless(found.output)
    if as_json and found.exit_code == 0:
        assert json.loads(found.stdout) is not None


def test_json_gives_the_texts_as_they_are(path: Path) -> None:
    found = CliRunner().invoke(app, ["history", "gift", "--ledger", str(path), "--json"])
    assert harmless(found.stdout)
    listed = json.loads(found.stdout)
    texts = [one["context"].get("idea") for one in listed["submissions"]]
    assert [text for text in texts if text is not None] == HOSTILE


def test_a_report_shows_them_escaped(path: Path, tmp_path: Path) -> None:
    holdout = LadderHoldout.open("gift", ledger=path)
    page = write_report(record_of(holdout), tmp_path / "report.html").read_text(encoding="utf-8")
    assert harmless(page)
    assert "\\x1b[2J" in page
    assert "long " * 1000 not in page
    assert harmless(holdout.status()._repr_html_())
    assert harmless(str(holdout.owner.audit()))
