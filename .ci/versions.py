"""Run the quick tests, and the wheel, with every other Python of this machine that is supported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from package import ROOT, USE, paste, run

PREFIX = "Programming Language :: Python :: 3."


def main() -> None:
    """Run all versions; the first failure ends it with its message."""
    usual = f"3.{sys.version_info.minor}"
    with tempfile.TemporaryDirectory(prefix="ladderholdout-versions-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT)
        (wheel,) = folder.glob("ladderholdout-*.whl")
        for version in (one for one in versions() if one != usual):
            python = interpreter(version)
            if python is None:
                print(f"Python {version} is not on this machine: nothing was run with it.")
                continue
            check(python, folder / version, wheel)
            print(f"Python {version}: the quick tests pass, and the wheel works.", flush=True)


def versions() -> list[str]:
    """Return the versions that the workflows run, which are more than the classifiers state."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    stated = [one.removeprefix(PREFIX) for one in project["classifiers"] if PREFIX in one]
    newest = max(int(minor) for minor in stated)
    return [f"3.{minor}" for minor in range(11, newest + 2)]


def interpreter(version: str) -> Path | None:
    """Find a Python of a version on the path, or among those of pyenv; it has to start."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    on_path = shutil.which(f"python{version}")
    for python in [*([Path(on_path)] if on_path else []), *found]:
        # Pyenv puts a file of that name on the path for versions that are switched off, too.
        if subprocess.run([python, "--version"], capture_output=True).returncode == 0:
            return python
    return None


def check(python: Path, folder: Path, wheel: Path) -> None:
    """Run `make quick` in an environment of its own, then use the wheel there, off the checkout."""
    run("make", "quick", f"PYTHON={python}", f"VENV={folder}")
    inside = folder / "bin" / "python"
    pip = (inside, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "--force-reinstall", "--no-deps", wheel)
    run(*pip, "check")
    used = run(inside, "-c", USE, cwd=folder, capture=True)
    if not Path(used.strip()).is_relative_to(folder):
        sys.exit(f"The environment imported {used.strip()}, not the wheel.")
    paste(inside, folder)
    shutil.rmtree(folder)  # over a gigabyte


if __name__ == "__main__":
    main()
