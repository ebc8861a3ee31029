"""Attacks the verdicts of a judge: noise, failures, kills, several processes, and foreign files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.cli import app
from ladderholdout.errors import InvalidSubmission, MetricError
from ladderholdout.metrics import ItemMetric, metric_of_items, verdicts_of
from ladderholdout.metrics import verdicts as recorded
from tests.support.commands import CliRunner
from tests.support.holdouts import assert_replays, is_repeat

N = 60
ITEMS = [f"question {at}" for at in range(N)]
REFERENCES = [f"reference {at}" for at in range(N)]
ANSWERS = [f"answer {at}" for at in range(N)]


class Noisy:
    """A judge that answers as it likes each time, and counts how often it is asked."""

    def __init__(self, seed: int, stop: Callable[[int], Any] = lambda count: None) -> None:
        self.rng, self.stop, self.count = np.random.default_rng(seed), stop, 0

    def __call__(self, reference: str, answer: str) -> float:
        self.count += 1
        found = self.stop(self.count - 1)
        return float(self.rng.integers(0, 11) / 10) if found is None else found


def noisy(folder: Path, judge: Any, graded: bool = True) -> ItemMetric:
    return metric_of_items("noisy", judge, graded=graded, verdicts=folder / "noisy.verdicts")


def opened(folder: Path, metric: ItemMetric, **wishes: Any) -> LadderHoldout:
    ledger = folder / "ledger.db"
    return LadderHoldout(ITEMS, REFERENCES, scoring=metric, name="noisy", ledger=ledger, **wishes)


def risk(metric: ItemMetric, answers: list[str] = ANSWERS) -> float:
    given = metric.canonical(answers, len(answers), None)
    return metric.evaluate(metric.targets(REFERENCES[: len(answers)], None), given).risk


def forget() -> None:
    """Know no more of the files than a new process does."""
    recorded._files().clear()


def test_a_noisy_judge_gives_one_verdict_that_counts_for_good(tmp_path: Path) -> None:
    judge = Noisy(0)
    holdout = opened(tmp_path, noisy(tmp_path, judge))
    first = holdout.submit(ANSWERS)
    assert judge.count == N
    assert is_repeat(holdout, holdout.submit(ANSWERS)) and judge.count == N
    # Another session with another mood of the judge, which is asked for what is new alone.
    forget()
    later = Noisy(1)
    again = opened(tmp_path, noisy(tmp_path, later))
    assert is_repeat(again, again.submit(ANSWERS)) and later.count == 0
    again.submit([*ANSWERS[:-3], "a", "b", "c"])
    assert later.count == 3
    assert_replays(again)
    assert again.certificate().score == first.score
    assert verdicts_of(tmp_path / "noisy.verdicts").verdicts == N + 3
    # Without a record the same judge gives the same answers other scores.
    moody = metric_of_items("noisy", Noisy(2), graded=True)
    assert risk(moody) != risk(moody)


@pytest.mark.parametrize(
    ("stop", "raised"),
    [
        (lambda count: 1 / 0, "ZeroDivisionError"),
        (lambda count: os.stat("/nowhere/at/all"), "FileNotFoundError"),
        (lambda count: 1.5, "judge must be"),
        (lambda count: float("nan"), "judge must be"),
    ],
    ids=["raises", "system", "range", "nan"],
)
def test_a_judge_that_fails_counts_nothing_and_keeps_what_it_gave(
    stop: Callable[[int], Any], raised: str, tmp_path: Path
) -> None:
    failing = Noisy(0, lambda count: stop(count) if count == 40 else None)
    holdout = opened(tmp_path, noisy(tmp_path, failing))
    kinds = (MetricError, InvalidArgument, InvalidSubmission)
    with pytest.raises(kinds, match=raised) as failed:
        holdout.submit(ANSWERS)
    assert "reference" not in str(failed.value) and "answer 4" not in str(failed.value)
    assert holdout.status().submissions == 0
    assert verdicts_of(tmp_path / "noisy.verdicts").verdicts == 40
    holdout.submit(ANSWERS)
    assert failing.count == N + 1  # the one that failed was asked for once more


def test_verdicts_of_0_and_1_have_the_exact_certificate(tmp_path: Path) -> None:
    coin = Noisy(0, lambda count: count % 4 != 0)
    holdout = opened(tmp_path, noisy(tmp_path, coin, graded=False), reserve=0.3)
    holdout.finalists([ANSWERS, ANSWERS[::-1]])
    assert holdout.certificate().bound == "exact binomial"
    assert holdout.reserve_certificate().missing is None
    # The rows of the reserve are judged for the incumbent alone.
    assert coin.count == 2 * 42 + 18
    halves = noisy(tmp_path / "other", Noisy(0), graded=False)
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidArgument, match="State graded=True"):
        risk(halves)


def test_equal_questions_are_one_and_others_are_not(tmp_path: Path) -> None:
    judge = Noisy(0)
    risk(noisy(tmp_path, judge), ["same"] * 10)
    assert judge.count == 10  # other references
    metric = noisy(tmp_path, judge)
    canonical = metric.canonical(["yes"] * 10, 10, None)
    metric.evaluate(metric.targets(["yes"] * 10, None), canonical)
    assert judge.count == 11
    # Another judge in the same file, and parts of texts that are moved.
    other = metric_of_items("other", judge, graded=True, verdicts=tmp_path / "noisy.verdicts")
    other.evaluate(other.targets(["yes"], None), other.canonical(["yes"], 1, None))
    assert judge.count == 12
    parts = (b"s", "a", b"b", b"c"), (b"s", "ab", b"", b"c"), (b"s", "a", b"bc", b"")
    assert len({recorded.key_of(*some) for some in (*parts, (b"t", *parts[0][1:]))}) == 4


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
@pytest.mark.parametrize("equal", [True, False])
def test_how_often_the_judge_is_asked_depends_on_the_answers_alone(
    equal: bool, tmp_path: Path
) -> None:
    judge = Noisy(0)
    metric = noisy(tmp_path, judge)
    references = ["yes"] * N if equal else REFERENCES
    ledger = tmp_path / "ledger.db"

    def asked(account: str, answers: list[str]) -> int:
        held = LadderHoldout(
            ITEMS, references, scoring=metric, name="noisy", ledger=ledger, account=account
        )
        before = judge.count
        held.submit(answers)
        return judge.count - before

    # One answer to all, and the same ones of another account, which was first.
    assert asked("Ada", ["same"] * N) == N
    assert asked("Ada", ["same"] * 50 + ["new"] * 10) == 10
    assert asked("Ada", ["same"] * 40 + ["new"] * 20) == 10
    assert asked("Ben", ["same"] * 30 + ["other"] * 30) == N
    assert asked("Ben", ["same"] * 30 + ["other"] * 30) == 0
    # What counts is the first verdict, for whoever asks.
    found = verdicts_of(tmp_path / "noisy.verdicts")
    first = 3 if equal else N + 20 + 30
    assert (found.verdicts, found.verdicts + found.again) == (first, 2 * N + 20)
    holdout = LadderHoldout.open("noisy", account="Ben", scoring=metric, ledger=ledger)
    assert_replays(holdout)
    # Two models are compared as they are submitted: by an account that never asked.
    before = judge.count
    holdout.compare(["same"] * 30 + ["new"] * 30, 1)
    assert judge.count == before + 30


def test_the_file_shows_no_text_and_is_its_owners_alone(tmp_path: Path) -> None:
    metric = noisy(tmp_path, Noisy(0))
    risk(metric)
    path = tmp_path / "noisy.verdicts"
    assert b"reference" not in path.read_bytes() and b"answer" not in path.read_bytes()
    if os.name != "nt":
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)
        with pytest.raises(InvalidArgument, match="nobody else may use"):
            risk(metric)
    with pytest.raises(InvalidArgument, match="can be written"):
        risk(noisy(tmp_path / "nowhere", Noisy(0)))
    with pytest.raises(InvalidArgument, match="verdicts"):
        verdicts_of(tmp_path / "missing")
    with pytest.raises(InvalidArgument, match="the path of a file"):
        metric_of_items("noisy", Noisy(0), verdicts=3)  # type: ignore[arg-type]


def test_lines_that_are_no_verdicts_are_counted_and_nothing_else(tmp_path: Path) -> None:
    path, judge = tmp_path / "noisy.verdicts", Noisy(0)
    before = risk(noisy(tmp_path, judge))
    lines = path.read_bytes().splitlines()
    key, value, when, asked, seal = lines[0].split()
    harmful = [
        b"__import__('os')",
        b"\xff\xfe",
        key[:-1] + b" 1.0 x",
        key + b" 7 x",
        key + b" nan x " + asked + b" " + seal,
        b" ".join((key, value, when, seal)),
    ]
    # And a line that a full disk cut off.
    more = [*harmful, lines[2][:20]]
    with path.open("ab") as file:
        file.write(b"\n".join(more))
    forget()
    assert risk(noisy(tmp_path, judge)) == before and judge.count == N
    record = verdicts_of(path)
    assert (record.verdicts, record.again, record.damaged, record.changed) == (N, 0, 6, "")
    risk(noisy(tmp_path, judge), ["new", *ANSWERS[1:]])
    record = verdicts_of(path)  # the cut line spoilt none that came after it
    assert (record.verdicts, record.damaged, record.changed) == (N + 1, 7, "")
    # Where the verdicts are removed with their secret, the judge is asked anew.
    path.unlink()
    path.with_name("noisy.verdicts.key").unlink()
    assert risk(noisy(tmp_path, judge)) != before and judge.count == 2 * N + 1


def other_verdict(lines: list[bytes]) -> list[bytes]:
    key, value, *rest = lines[7].split()
    return [*lines[:7], b" ".join((key, b"0.0" if float(value) else b"1.0", *rest)), *lines[8:]]


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (other_verdict, "line 8"),
        (lambda lines: lines[:7] + lines[8:], "line 8"),
        (lambda lines: [*lines[:7], lines[8], lines[7], *lines[9:]], "line 8"),
        (lambda lines: [*lines[:7], b"", *lines[8:]], "line 9"),
        (lambda lines: lines[1:], "line 1"),
        (lambda lines: [*lines, lines[3]], f"line {N + 1}"),
        (lambda lines: lines[:-1], f"{N - 1} verdicts, and the head of {N}"),
        (lambda lines: [], f"0 verdicts, and the head of {N}"),
    ],
    ids=["changed", "removed", "moved", "blank", "first", "copied", "last", "all"],
)
def test_a_verdict_that_is_not_as_it_was_written_is_found(
    harm: Callable[[list[bytes]], list[bytes]], line: str, tmp_path: Path
) -> None:
    path, judge = tmp_path / "noisy.verdicts", Noisy(0)
    before = opened(tmp_path, noisy(tmp_path, judge)).submit(ANSWERS).score
    whole = path.read_bytes()
    words = ["verify", "noisy", "--verdicts", str(path), "--ledger", str(tmp_path / "ledger.db")]
    path.write_bytes(b"".join(one + b"\n" for one in harm(whole.splitlines())))
    forget()
    assert line in verdicts_of(path).changed
    with pytest.raises(InvalidArgument, match=line):
        risk(noisy(tmp_path, judge))
    assert judge.count == N  # nobody is asked in its place
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1 and "FOUND: the verdicts are not as they" in found.output
    assert line in " ".join(found.output.split())
    # The copy that was made before is as good as ever.
    path.write_bytes(whole)
    forget()
    assert opened(tmp_path, noisy(tmp_path, judge)).submit(ANSWERS).score == before
    passed = CliRunner().invoke(app, words)
    assert passed.exit_code == 0 and verdicts_of(path).head in passed.output, passed.output


def test_who_sees_the_lines_without_their_secret_can_test_no_guess(tmp_path: Path) -> None:
    risk(noisy(tmp_path, Noisy(0)))
    path, beside = tmp_path / "noisy.verdicts", tmp_path / "noisy.verdicts.key"
    keys = {bytes.fromhex(one.split()[0].decode()) for one in path.read_bytes().splitlines()}
    parts = "noisy", b'"reference 0"', b'"answer 0"'
    secret = bytes.fromhex(beside.read_text().split()[0])
    assert recorded.key_of(secret, *parts) in keys
    assert recorded.key_of(b"", *parts) not in keys
    assert beside.read_bytes()[:64] not in path.read_bytes()
    # Another folder has another secret, and lines of one are nothing in the other.
    (tmp_path / "other").mkdir()
    risk(noisy(tmp_path / "other", Noisy(0)))
    assert not keys & {
        bytes.fromhex(one.split()[0].decode())
        for one in (tmp_path / "other" / "noisy.verdicts").read_bytes().splitlines()
    }
    if os.name != "nt":
        assert beside.stat().st_mode & 0o777 == 0o600
    beside.rename(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgument, match=r"ends with \.key"):
        risk(noisy(tmp_path, Noisy(0)))
    beside.write_text("none")
    beside.chmod(0o600)
    with pytest.raises(InvalidArgument, match="secret as it was written"):
        risk(noisy(tmp_path, Noisy(0)))


PROGRAM = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.metrics import test_verdicts as t

folder, seed, mode = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
print("ready", flush=True)
sys.stdin.readline()
kill = lambda count: os.kill(os.getpid(), signal.SIGKILL) if count == 25 else None
if mode == "kill":
    t.opened(folder, t.noisy(folder, t.Noisy(seed, kill))).submit(t.ANSWERS)
judge = t.Noisy(seed)
print(t.risk(t.noisy(folder, judge)), judge.count)
"""


def started(folder: Path, seed: int, mode: str) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-c", PROGRAM.format(root=root), str(folder), str(seed), mode]
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen(words, text=True, cwd=root, **pipes)  # type: ignore[call-overload]


@pytest.mark.processes
def test_processes_that_judge_at_once_agree_on_one_verdict(tmp_path: Path) -> None:
    running = [started(tmp_path, seed, "evaluate") for seed in range(2)]
    for one in running:
        assert one.stdout and one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin
        one.stdin.write("\n")
        one.stdin.flush()
    judge = Noisy(2)  # this process is the third
    ours = risk(noisy(tmp_path, judge)), judge.count
    printed = [one.communicate(timeout=120) for one in running]
    assert not any(errors for _, errors in printed), printed
    printed.append((f"{ours[0]} {ours[1]}", ""))
    scores = [text.split()[0] for text, _ in printed]
    assert len(set(scores)) == 1
    found = verdicts_of(tmp_path / "noisy.verdicts")
    asked = sum(int(text.split()[1]) for text, _ in printed)
    assert found.verdicts == N and found.damaged == 0 and found.changed == ""
    assert asked == N + found.again  # each question was asked, and each answer is on record
    assert str(risk(noisy(tmp_path, Noisy(99)))) == scores[0]


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing kills here")
def test_what_a_killed_process_was_given_is_kept(tmp_path: Path) -> None:
    killed = started(tmp_path, 0, "kill")
    killed.communicate("\n", timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert verdicts_of(tmp_path / "noisy.verdicts").verdicts == 25
    forget()
    after = Noisy(1)
    score = opened(tmp_path, noisy(tmp_path, after)).submit(ANSWERS).score
    assert after.count == N - 25
    # A session after that has the same score, and asks for nothing.
    forget()
    judge = Noisy(2)
    holdout = opened(tmp_path, noisy(tmp_path, judge))
    assert holdout.submit(ANSWERS).score == score and judge.count == 0
    assert holdout.status().submissions == 2
    assert_replays(holdout)
