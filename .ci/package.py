"""Build wheel and sdist in a temporary folder, check them, and use the wheel without a checkout.

    python .ci/package.py [FILE]

writes into FILE the bill of materials, in CycloneDX's form: pip, and each package that the plain
installation of the wheel brought, with its version, licence and dependencies.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "ladderholdout"
PLUGIN = "ladderholdout_pytest.py"

# Register, submit, and say which installation it was.
USE = """
import ladderholdout
rows = [[float(row)] for row in range(40)]
holdout = ladderholdout.LadderHoldout(rows, [0, 1] * 20, scoring="accuracy")
assert holdout.submit([0, 1] * 20).improved
print(ladderholdout.__file__)
"""


def main() -> None:
    """Run all checks; the first that fails ends it with its message."""
    with tempfile.TemporaryDirectory(prefix="ladderholdout-package-") as name:
        folder = Path(name)
        # Build makes the wheel from the sdist, so the wheel shows that the sdist is complete.
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)
        (wheel,) = (folder / "dist").glob("*.whl")
        (sdist,) = (folder / "dist").glob("*.tar.gz")
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
        run(sys.executable, "-m", "validate_pyproject", ROOT / "pyproject.toml")
        run(sys.executable, "-m", "check_wheel_contents", wheel)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", folder / "direct", ROOT)
        if wheel.read_bytes() != (folder / "direct" / wheel.name).read_bytes():
            sys.exit("The wheel from the sdist and the one from the repository differ.")
        check_wheel(wheel)
        check_sdist(sdist)
        use(wheel, folder)
        bill = bill_of(folder)
        if sys.argv[1:]:
            Path(sys.argv[1]).write_bytes(bill.read_bytes())
        print(f"{wheel.name} and {sdist.name} hold what they should, and the wheel works.")


def check_wheel(wheel: Path) -> None:
    """Refuse a wheel that holds anything but the package's own files and its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        files = {file for file in archive.namelist() if not file.endswith("/")}
    metadata = {file for file in files if file.split("/")[0].endswith(".dist-info")}
    compare("wheel", files - metadata, sources(ROOT / "src"))


def check_sdist(sdist: Path) -> None:
    """Refuse an sdist that holds tests, benchmarks or pages, or lacks a file of the package."""
    with tarfile.open(sdist) as archive:
        # The first part is the folder named after the version.
        files = {file.name.split("/", 1)[1] for file in archive.getmembers() if file.isfile()}
    # The build adds its own metadata, what pyproject.toml names, and the list of ignored files.
    besides = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"}
    besides |= {"hatch_build.py"}
    compare("sdist", files, {f"src/{file}" for file in sources(ROOT / "src")} | besides)


def sources(folder: Path) -> set[str]:
    """Paths of the package's files, relative to `folder`, without what Python caches."""
    return {
        path.relative_to(folder).as_posix()
        for path in [*(folder / PACKAGE).rglob("*"), folder / PLUGIN]
        if path.is_file() and "__pycache__" not in path.parts
    }


def compare(what: str, files: set[str], expected: set[str]) -> None:
    """End the run when `files` are not `expected`, and name the difference."""
    if files != expected:
        more, less = sorted(files - expected), sorted(expected - files)
        sys.exit(f"The {what} holds files it should not: {more}, and lacks: {less}.")


def use(wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment, and import, call and use it there."""
    venv.create(folder / "venv", with_pip=True)
    bin_ = folder / "venv" / "bin"
    pip = (bin_ / "python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", wheel)
    run(*pip, "check")
    # Isolated from the checkout: another working directory, and no PYTHONPATH.
    used = run(bin_ / "python", "-c", USE, cwd=folder, capture=True)
    if not Path(used.strip()).is_relative_to(folder):
        sys.exit(f"The environment imported {used.strip()}, not what was installed into it.")
    paste(bin_ / "python", folder)
    if "register" not in run(bin_ / "ladder-holdout", "--help", cwd=folder, capture=True):
        sys.exit("ladder-holdout --help does not list the commands.")


def paste(python: Path, folder: Path) -> None:
    """Run the README's session where the wheel is installed, and compare what it prints."""
    readme = (ROOT / "README.md").read_text("utf-8")
    session = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", readme, re.M | re.S)
    if session is None:
        sys.exit("The README shows no session with its output.")
    printed = run(python, "-W", "ignore", "-c", session[1], cwd=folder, capture=True)
    # The estimate draws by the secret of a holdout, which is another one each time.
    pairs = [
        [line for line in text.splitlines() if not line.startswith("Estimate")]
        for text in (printed, session[2])
    ]
    if pairs[0] != pairs[1] or "Estimate: 0.8" not in printed:
        sys.exit(f"The README's session prints\n{printed}and the README shows\n{session[2]}")


def bill_of(folder: Path) -> Path:
    """Write the bill of materials of the environment, which names what pyproject.toml asks for."""
    file, project = folder / "sbom.json", ROOT / "pyproject.toml"
    words = ("--pyproject", project, "--mc-type", "library", "--output-reproducible", "-o", file)
    run(sys.executable, "-m", "cyclonedx_py", "environment", folder / "venv", *words)
    bill = json.loads(file.read_text("utf-8"))
    stated = tomllib.loads(project.read_text("utf-8"))["project"]
    root, listed = (
        bill["metadata"]["component"],
        {normal(one["name"]) for one in bill["components"]},
    )
    if (root["name"], root["version"]) != (stated["name"], stated["version"]):
        sys.exit(f"The bill of materials is of {root['name']} {root['version']}.")
    wanted = {normal(re.match(r"[\w.-]+", one)[0]) for one in stated["dependencies"]}
    if not wanted <= listed:
        sys.exit(f"The bill of materials lacks {sorted(wanted - listed)}.")
    return file


def normal(name: str) -> str:
    """Return the name of a package as an index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run(*command: str | Path, cwd: Path = ROOT, capture: bool = False) -> str:
    """Run a command, end when it fails, and return what it printed if that is captured."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Else the use would write into the ledger of whoever runs this.
    environment["LADDERHOLDOUT_LEDGER"] = str(cwd / "ledger.db")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE if capture else None,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with status {done.returncode}.")
    return done.stdout or ""


if __name__ == "__main__":
    main()
