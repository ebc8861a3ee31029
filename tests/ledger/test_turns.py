"""Attacks the turns of processes that write to one file: kills, forks, waits that were given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ladderholdout import LadderHoldout
from ladderholdout.ledger.sqlite import Turns

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="no system with such locks"),
]

# Takes the turn, says so, and leaves when it is told to; "fork" leaves a child behind meanwhile.
HOLDER = """
import os, sys, time
from ladderholdout.ledger.sqlite import Turns
turns = Turns(os.open(sys.argv[1], os.O_RDWR))
turns.take(60)
if "fork" in sys.argv and not os.fork():
    time.sleep(60)
print("held", flush=True)
sys.stdin.readline()
open(sys.argv[1] + "-left", "w").close()
turns.leave()
print("left", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"")
    return path


@contextmanager
def holder(file: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(file), *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # the test killed all of them
                os.killpg(process.pid, signal.SIGKILL)


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def is_free(file: Path) -> bool:
    """Whether a process that asks for a turn gets it; it gives it back."""
    code = (
        "import fcntl, os, sys; from ladderholdout.ledger.sqlite import _BYTE; "
        "fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _BYTE)"
    )
    command = [sys.executable, "-c", code, str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def turns_at(file: Path) -> Turns:
    return Turns(os.open(file, os.O_RDWR))


def test_whoever_waits_is_next_when_the_other_leaves(file: Path) -> None:
    turns = turns_at(file)
    with holder(file) as other:
        waiting = threading.Thread(target=turns.take, args=(60,))
        waiting.start()
        tell(other)
        waiting.join()
        assert Path(f"{file}-left").exists()
        assert not is_free(file)
        turns.leave()
        assert is_free(file)


def test_a_turn_that_comes_after_the_wait_was_given_up_is_given_back(file: Path) -> None:
    turns = turns_at(file)
    with holder(file) as other:
        turns.take(0.05)
        tell(other)
        assert other.stdout is not None
        assert other.stdout.readline() == "left\n"
        for thread in threading.enumerate():
            if thread.name == "ladderholdout-turn":
                thread.join()
        assert is_free(file)
        turns.take(60)
        assert not is_free(file)


def test_a_wait_that_is_taken_up_again_gets_the_turn(file: Path) -> None:
    turns = turns_at(file)
    with holder(file) as other:
        turns.take(0.05)
        turns.take(0.05)
        assert sum(one.name == "ladderholdout-turn" for one in threading.enumerate()) == 1
        tell(other)
        turns.take(60)
        assert not is_free(file)


@pytest.mark.parametrize("options", [(), ("fork",)], ids=["alone", "with a forked child"])
def test_a_killed_process_has_no_turn(file: Path, options: tuple[str, ...]) -> None:
    turns = turns_at(file)
    with holder(file, *options) as other:
        other.kill()
        other.wait()
        turns.take(60)
        assert not is_free(file)


def test_a_file_that_is_only_read_has_no_turns(file: Path) -> None:
    turns = Turns(os.open(file, os.O_RDONLY))
    turns.take(60)
    assert is_free(file)
    turns.leave()


def test_a_submission_waits_for_its_turn_and_leaves_it(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=ledger)
    with holder(ledger) as other:
        answered = threading.Thread(target=holdout.submit, args=([0, 1],))
        answered.start()
        assert holdout.history() == ()  # a reader waits for nobody
        tell(other)
        answered.join()
        assert Path(f"{ledger}-left").exists()
        assert is_free(ledger)
    with pytest.raises(ValueError, match="predictions"):
        holdout.submit([0, 2])
    assert is_free(ledger)


def test_who_waits_in_vain_for_a_turn_writes_all_the_same(tmp_path: Path) -> None:
    """Nothing but SQLite's own lock decides: a process that keeps its turn bars nobody."""
    ledger = tmp_path / "ledger.db"
    url = f"sqlite:///{ledger}?timeout=0.2"
    holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="coins", ledger=url)
    with holder(ledger):
        assert holdout.submit([0, 1]).submission == 1
