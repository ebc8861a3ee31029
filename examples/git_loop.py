# Install: pip install '.[server]'
"""An agent that commits to a git repository, and a loop that keeps or reverts what it commits.

The loop is keep_or_revert.sh beside this file, as you would run it. The labels are coin flips, so
nothing that the agent commits is better than what it changes. It turns the answers of one part of
the rows after the other. First the loop keeps what scores better, by a script that has the labels.
Then `ladder-holdout gate` decides, and the labels are on a server.

    python examples/git_loop.py

The server is a process of its own here; run it as another user or on another machine.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from agent import served

from ladderholdout import LadderHoldout
from ladderholdout.mechanisms import GateLadder

LOOP = Path(__file__).with_name("keep_or_revert.sh")
ROWS, CHANGES = 100, 20
PYTHON = shlex.quote(sys.executable)
GATE = f"{PYTHON} -m ladderholdout gate"

# The agent: turn the answers of the next part of the rows. It counts in a file of its own.
AGENT = """
import os, pathlib, numpy
count = pathlib.Path(os.environ["COUNT"])
part = int(count.read_text()) if count.exists() else 0
count.write_text(str(part + 1))
answers = numpy.loadtxt("answers.txt", dtype=int)
answers[part::{changes}] ^= 1
numpy.savetxt("answers.txt", answers, fmt="%d")
"""
PREDICT = """
import os, numpy
numpy.save(os.environ["PREDICTIONS"], numpy.loadtxt("answers.txt", dtype=int))
"""
# What many loops do: keep what scores better on the labels.
RAW = """
import os, pathlib, sys, numpy
best = pathlib.Path(os.environ["BEST"])
score = float(numpy.mean(numpy.load(sys.argv[-1]) == numpy.load(os.environ["LABELS"])))
if best.exists() and score <= float(best.read_text()):
    sys.exit(1)
best.write_text(str(score))
"""


def coins(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw labels and first answers, of which half are right, as on other rows."""
    answers = rng.integers(0, 2, ROWS)
    labels = answers ^ (rng.permutation(ROWS) % 2)
    return np.arange(ROWS).reshape(-1, 1), labels, answers


def git(repository: Path, *words: str) -> str:
    """Run git in a repository, and return what it prints."""
    done = subprocess.run(
        ["git", "-C", str(repository), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository_in(folder: Path, answers: np.ndarray) -> Path:
    """Make a repository whose first commit has the agent's first answers."""
    repository = folder / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    git(repository, "config", "user.name", "agent")
    git(repository, "config", "user.email", "agent@localhost")
    np.savetxt(repository / "answers.txt", answers, fmt="%d")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "the baseline")
    return repository


def loop(folder: Path, repository: Path, **settings: str) -> int:
    """Run the loop, and return how many changes it kept."""
    for name, text in (("agent.py", AGENT.format(changes=CHANGES)), ("predict.py", PREDICT)):
        (folder / name).write_text(text)
    settings = {
        "PROPOSE": f"{PYTHON} {folder / 'agent.py'}",
        "PREDICT": f"{PYTHON} {folder / 'predict.py'}",
        "COUNT": str(folder / "count"),
        **settings,
    }
    subprocess.run(
        ["bash", str(LOOP), "coins", str(CHANGES)],
        cwd=repository,
        env=os.environ | settings,
        check=True,
        stdout=sys.stderr,
    )
    return len(git(repository, "log", "--oneline").splitlines()) - 1


def greedy(y: np.ndarray, answers: np.ndarray) -> tuple[int, float]:
    """Keep what scores better: how many changes, and the score that is believed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "labels.npy", y)
        (folder / "raw.py").write_text(RAW)
        kept = loop(
            folder,
            repository_in(folder, answers),
            GATE=f"{PYTHON} {folder / 'raw.py'}",
            LABELS=str(folder / "labels.npy"),
            BEST=str(folder / "best"),
        )
        return kept, float((folder / "best").read_text())


def gated(X: np.ndarray, y: np.ndarray, answers: np.ndarray) -> tuple[int, float]:
    """Keep what the gate accepts: how many changes, and the score that is shown at the end."""
    rule = GateLadder(horizon=CHANGES)
    with (
        tempfile.TemporaryDirectory() as name,
        tempfile.TemporaryDirectory() as other,
        served(X, y, Path(other), "program", mechanism=rule) as (url, token),
    ):
        folder = Path(name)
        place = {"LADDERHOLDOUT_SERVER": url, "LADDERHOLDOUT_TOKEN": token}
        kept = loop(folder, repository_in(folder, answers), GATE=GATE, **place)
        owner = LadderHoldout.open("coins", account="agent", ledger=Path(other) / "ledger.db")
        believed = owner.reveal()
        assert believed is not None
        return kept, believed


def main() -> None:
    X, y, answers = coins(np.random.default_rng(0))
    print(f"{CHANGES} commits for {ROWS} rows whose labels are coin flips")
    print("              kept  believed   true  too much")
    for who, (kept, believed) in (
        ("better score", greedy(y, answers)),
        ("gate", gated(X, y, answers)),
    ):
        print(f"  {who:<12}{kept:4} {believed:9.3f} {0.5:6.3f} {believed - 0.5:+9.3f}")


if __name__ == "__main__":
    main()
