"""Attacks the turns of processes that write to one file: kills, forks, waits that were given up."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.ledger.sqlite import _BYTE, Turns
from tests.support import processes

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="no system with such locks"),
]


def hold(file: str, forks: bool) -> None:
    """Take the turn, say so, and leave when it is told to; a fork leaves a child behind."""
    os.setsid()
    turns = Turns(os.open(file, os.O_RDWR))
    turns.take(60)
    if forks and not os.fork():
        time.sleep(60)
    with open(f"{file}-answers", "w") as answers, open(f"{file}-orders") as orders:
        print("held", file=answers, flush=True)
        orders.readline()
        open(f"{file}-left", "w").close()
        turns.leave()
        print("left", file=answers, flush=True)
        orders.readline()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"")
    return path


@dataclass
class Holder:
    """A process that holds the turn, told by one pipe and heard by another."""

    process: Any
    orders: Any
    answers: Any

    def tell(self) -> None:
        self.orders.write("\n")
        self.orders.flush()


@contextmanager
def holder(file: Path, *, forks: bool = False) -> Iterator[Holder]:
    for pipe in ("orders", "answers"):
        os.mkfifo(f"{file}-{pipe}")
    with processes.tests_by_value():
        call = cloudpickle.dumps(processes.Call(hold, (str(file), forks)))
    # Forked where the package has been imported: to import it takes longer than all else here.
    process = processes._context.Process(target=pickle.loads, args=(call,))
    process.start()
    with open(f"{file}-answers") as answers, open(f"{file}-orders", "w") as orders:
        assert answers.readline() == "held\n"
        try:
            yield Holder(process, orders, answers)
        finally:
            with suppress(ProcessLookupError):  # the test killed all of them
                os.killpg(process.pid, signal.SIGKILL)
            process.join()


def is_free(file: Path) -> bool:
    """Whether a process that asks for a turn gets it; it gives it back."""
    code = (
        "import fcntl, os, sys; fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), "
        "fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(file), str(_BYTE)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def turns_at(file: Path) -> Turns:
    return Turns(os.open(file, os.O_RDWR))


def test_whoever_waits_is_next_when_the_other_leaves(file: Path) -> None:
    turns = turns_at(file)
    with holder(file) as other:
        waiting = threading.Thread(target=turns.take, args=(60,))
        waiting.start()
        other.tell()
        waiting.join()
        assert Path(f"{file}-left").exists()
        assert not is_free(file)
        turns.leave()
        assert is_free(file)


def test_a_turn_that_comes_after_the_wait_was_given_up_is_given_back(file: Path) -> None:
    turns = turns_at(file)
    with holder(file) as other:
        turns.take(0.05)
        other.tell()
        assert other.answers.readline() == "left\n"
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
        other.tell()
        turns.take(60)
        assert not is_free(file)


@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a forked child"])
def test_a_killed_process_has_no_turn(file: Path, forks: bool) -> None:
    turns = turns_at(file)
    with holder(file, forks=forks) as other:
        other.process.kill()
        other.process.join()
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
        other.tell()
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
