"""What a run leaves outside the folders of its tests: files, and processes with their ports."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs

ROOT = Path(__file__).parents[2]
# Made by the tools that run tests, build pages or draw figures, and ignored by git.
CACHES = {
    *(".git", ".venv", ".venv-clients", ".cache", ".hypothesis", ".mypy_cache"),
    *(".pytest_cache", ".ruff_cache", "__pycache__", "build", "dist", "out", "site"),
}
# Of Python's and joblib's pools, which end with the process that has them: without pytest-xdist
# that is this one.
POOLS = (b"multiprocessing.", b"joblib.externals.loky", b"tests/support/forks.py")
# Enough for a process that was told to end; none is waited for otherwise.
GRACE = 10.0


class Leavings:
    """Watch the checkout, the user's data and a temporary folder of the session's own.

    Processes that tests start inherit the folder's name, by which those that remain are found.
    """

    def __init__(self) -> None:
        # pytest keeps the folders of its tests where it always does.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        # A short path: those of sockets have a hundred characters at most.
        self.folder = tempfile.mkdtemp(prefix="lh-")
        os.chmod(self.folder, 0o755)  # a PostgreSQL server in it runs as another user
        os.environ["TMPDIR"] = self.folder
        tempfile.tempdir = None
        self._before = set(_files())

    def found(self) -> list[str]:
        """Name what is left in the checkout, the user's data and processes."""
        end = time.monotonic() + GRACE
        while (processes := list(self._processes())) and time.monotonic() < end:
            time.sleep(0.1)
        # What libraries leave among temporary files goes with the folder.
        shutil.rmtree(self.folder, ignore_errors=True)
        return [*sorted(set(_files()) - self._before), *processes]

    def _processes(self) -> Iterator[str]:
        mine = f"TMPDIR={self.folder}".encode()
        for process in Path("/proc").glob("[0-9]*") if os.path.isdir("/proc") else ():
            try:
                # A zombie has no environment: it is only not waited for yet.
                if int(process.name) == os.getpid() or mine not in _words(process / "environ"):
                    continue
                command = b" ".join(_words(process / "cmdline"))
                if command and not any(pool in command for pool in POOLS):
                    yield f"process {process.name}: {command!r}"
            except OSError:
                continue  # it has just ended, or is somebody else's


def _words(file: Path) -> list[bytes]:
    return file.read_bytes().split(b"\0")


def _files() -> Iterator[str]:
    for top in (ROOT, platformdirs.user_data_path("ladderholdout")):
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if name not in CACHES]
            yield from (os.path.join(folder, name) for name in files)
