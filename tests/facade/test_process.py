"""Attacks what a forked process has of its parent: locked locks, and values of the parent."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from ladderholdout.process import after_fork

PROGRAM = """
import os, threading
from ladderholdout.process import PerProcess

lock, dropped = PerProcess(threading.Lock), []
known = PerProcess(dict, drop=dropped.append)
known()["parent"] = 1
with lock():
    child = os.fork()
    if child == 0:
        free = lock().acquire(blocking=False)
        print("child", free, known(), dropped, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent", lock().locked(), known(), dropped)
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_child_has_a_free_lock_and_a_value_of_its_own() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert ended.stdout.splitlines() == [
        "child True {} [{'parent': 1}]",
        "parent True {'parent': 1} []",
    ]


def test_a_fork_is_heard_of_where_there_are_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    monkeypatch.setattr("os.register_at_fork", lambda **given: heard.append(given), raising=False)
    after_fork(print)
    monkeypatch.delattr("os.register_at_fork")
    after_fork(print)
    assert heard == [{"after_in_child": print}]
