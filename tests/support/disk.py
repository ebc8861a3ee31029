"""A small disk of the tests' own, which can be filled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

only_root = pytest.mark.skipif(
    os.name == "nt" or os.geteuid() != 0 or not shutil.which("mount"),
    reason="only root mounts a small disk",
)


@contextmanager
def mounted(folder: Path, megabytes: int = 2) -> Iterator[Path]:
    """A disk of so many megabytes, for the length of a block."""
    place = folder / "disk"
    place.mkdir()
    options = f"size={megabytes}m,mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    yield place
    # Lazily: the ledger keeps its file open as long as the process lives.
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, left: int) -> Path:
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        while True:
            found = os.statvfs(disk)
            room = found.f_bavail * found.f_frsize - left
            if room <= 0:
                return ballast
            file.write(bytes(min(room, 65536)))
