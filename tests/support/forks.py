"""Starts the command line in forks of one process that has imported it: milliseconds, not seconds.

Each is a process of its own with the environment, the folder and the log that it is given, and
has inherited nothing that was opened. `Forks` runs this file as a program and writes it lines.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Forks:
    """The process that is forked; it is started when the first is asked for."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def start(self, words: list[str], log: Path, own_group: bool) -> Forked:
        """Run the command with these words; what it prints is added to the log."""
        asked = {"argv": ["ladder-holdout", *words], "log": str(log), "own_group": own_group}
        return Forked(self, self.ask(**asked, environment=dict(os.environ), folder=os.getcwd()))

    def ask(self, **asked: Any) -> Any:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                atexit.register(self._close)
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def _close(self) -> None:
        assert self._process is not None and self._process.stdin and self._process.stdout
        self._process.stdin.close()  # its sign to end
        self._process.wait()
        self._process.stdout.close()


class Forked:
    """One of its forks, used as one of `subprocess.Popen` is."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid, self.returncode = pid, None
        self._forks = forks

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ask(ended=self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("ladder-holdout", timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve_forks() -> None:
    """Fork for each line that asks for it, until there are no more."""
    import pyarrow.ipc  # noqa: F401
    import uvicorn.lifespan.on
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto  # noqa: F401

    import ladderholdout.guard
    import ladderholdout.leaderboard
    import ladderholdout.server.app
    import ladderholdout.server.protocol  # noqa: F401
    from ladderholdout.cli import app

    gc.freeze()
    running: set[int] = set()
    while line := sys.stdin.readline():
        asked = json.loads(line)
        if "ended" in asked:
            pid, status = os.waitpid(asked["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
            running.discard(pid)
        elif answer := os.fork():
            running.add(answer)
        else:
            become(**asked)
            app()
        print(json.dumps(answer), flush=True)
    # What the tests left running because they were killed.
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def become(
    argv: list[str], log: str, own_group: bool, environment: dict[str, str], folder: str
) -> None:
    """Take over what a new process is started with."""
    if own_group:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    nothing, written = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND)
    for number, opened in enumerate((nothing, written, written)):
        os.dup2(opened, number)
    os.close(nothing)
    os.close(written)


FORKS = Forks()
"""Those of the process that runs the tests."""

if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))  # a module there may have the name of another
    serve_forks()
