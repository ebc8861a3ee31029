"""Attacks what a forked process has of its parent: locked locks, and values of the parent."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from ladderholdout.process import PerProcess, after_fork


def status_of_child(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_has_a_free_lock_and_a_value_of_its_own() -> None:
    lock, dropped = PerProcess(threading.Lock), list[dict[str, int]]()
    known: PerProcess[dict[str, int]] = PerProcess(dict, drop=dropped.append)
    known()["parent"] = 1
    with lock():
        child = os.fork()
        if child == 0:
            free = lock().acquire(blocking=False)
            os._exit(0 if free and known() == {} and dropped == [{"parent": 1}] else 1)
        assert status_of_child(child) == 0
        assert lock().locked()
    assert known() == {"parent": 1}
    assert dropped == []


def test_a_fork_is_heard_of_where_there_are_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    monkeypatch.setattr("os.register_at_fork", lambda **given: heard.append(given), raising=False)
    after_fork(print)
    monkeypatch.delattr("os.register_at_fork")
    after_fork(print)
    assert heard == [{"after_in_child": print}]
