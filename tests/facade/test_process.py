"""Attacks what a forked process has of its parent, and what keeps files inside a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ladderholdout.process import after_fork, open_inside

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


def test_no_link_leads_out_of_a_folder(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    for folder in (home / "inner", other):
        folder.mkdir(parents=True)
    (home / "inner" / "a").write_text("mine")
    (other / "b").write_text("secret")
    (home / "inside").symlink_to("inner/a")
    (home / "outside").symlink_to(other / "b")
    (home / "folder").symlink_to(other)
    (home / "circle").symlink_to("circle")
    for name in ("inner/a", "inside", str(home / "inner" / "a"), "inner/../inner/a"):
        with open(open_inside(home, Path(name)), "rb") as file:
            assert file.read() == b"mine"
    for name in ("outside", "folder/b", "../other/b", str(other / "b"), "circle", "missing"):
        with pytest.raises(OSError):
            open_inside(home, Path(name))


@pytest.mark.skipif(os.open not in os.supports_dir_fd, reason="no names relative to a folder")
def test_a_link_that_is_put_there_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, secret = tmp_path / "home", tmp_path / "secret"
    home.mkdir()
    (home / "a").write_text("mine")
    secret.write_text("secret")
    checked = Path.relative_to

    def swapped(self: Path, *others: Any, **more: Any) -> Path:
        (home / "a").unlink()
        (home / "a").symlink_to(secret)
        return checked(self, *others, **more)

    monkeypatch.setattr(Path, "relative_to", swapped)
    with pytest.raises(OSError):
        open_inside(home, Path("a"))
