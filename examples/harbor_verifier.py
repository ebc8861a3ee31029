# Install: pip install '.[server,tables]'
"""A verifier in a container of its own, which has no labels: a task in Harbor's layout.

The folder harbor beside this file is the task. Harbor starts the agent's container, copies what the
task declares as artifacts into the verifier's, and runs tests/test.sh there, which asks the gate of
a holdout behind a server and writes the reward. Here both run as processes, with the same script.

The labels are coin flips. An agent turns one part of its answers after the other and goes on from
what has a reward, and sometimes it writes something else instead of predictions.

    python examples/harbor_verifier.py

To make it yours, write train.csv and rows.csv into harbor/environment, register the holdout with
its ids and GateLadder, submit the baseline, and give HOLDOUT, LADDERHOLDOUT_SERVER and
LADDERHOLDOUT_TOKEN to whoever runs `harbor run -p examples/harbor`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from agent import served
from git_loop import CHANGES, ROWS, coins

from ladderholdout import LadderHoldout
from ladderholdout.mechanisms import GateLadder

TASK = Path(__file__).with_name("harbor")
IDS = [f"row-{number}" for number in range(ROWS)]


def predictions(answers: np.ndarray) -> str:
    """Write answers as the instruction asks, in an order of the agent's own."""
    pairs = zip(IDS[::-1], answers[::-1].tolist(), strict=True)
    return "id,prediction\n" + "".join(f"{name},{answer}\n" for name, answer in pairs)


def verified(text: str, environment: dict[str, str]) -> tuple[str | None, str]:
    """Run the verifier on an artifact; return the reward, if any, and what it printed."""
    with tempfile.TemporaryDirectory() as name:
        artifacts, logs = Path(name) / "artifacts", Path(name) / "verifier"
        artifacts.mkdir()
        (artifacts / "predictions.csv").write_text(text)
        places = {"ARTIFACTS": str(artifacts), "VERIFIER_LOGS": str(logs)}
        done = subprocess.run(
            ["bash", str(TASK / "tests" / "test.sh")],
            env=environment | places,
            capture_output=True,
            text=True,
            check=False,
        )
        reward = logs / "reward.txt"
        return (reward.read_text().strip() if reward.exists() else None), done.stderr


def command_in(folder: Path) -> Path:
    """Make a folder with the command of this installation, for a PATH."""
    command = folder / "ladder-holdout"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ladderholdout "$@"\n')
    command.chmod(0o755)
    return folder


def main() -> None:
    X, y, answers = coins(np.random.default_rng(0))
    rule = GateLadder(horizon=CHANGES)
    with (
        tempfile.TemporaryDirectory() as name,
        served(X, y, Path(name), "program", mechanism=rule, ids=IDS) as (url, token),
    ):
        environment = os.environ | {
            "HOLDOUT": "coins",
            "LADDERHOLDOUT_SERVER": url,
            "LADDERHOLDOUT_TOKEN": token,
            "PATH": f"{command_in(Path(name))}{os.pathsep}{os.environ['PATH']}",
        }
        # The owner submits what there is before any trial.
        LadderHoldout.connect(f"{url}/holdouts/coins", token).gate(answers, baseline=True)
        rewards = []
        for part in range(CHANGES):
            turned = answers.copy()
            turned[part::CHANGES] ^= 1
            rewards.append(verified(predictions(turned), environment)[0])
            if rewards[-1] == "1":
                answers = turned
        instead = verified("id,prediction\nrow-0,reward 1\n", environment)[0]
        nobody = verified(predictions(answers), environment | {"LADDERHOLDOUT_TOKEN": "another"})[0]
        owner = LadderHoldout.open("coins", account="agent", ledger=Path(name) / "ledger.db")
        believed = owner.reveal()
    assert believed is not None
    print(f"{CHANGES} trials for {ROWS} rows whose labels are coin flips")
    print(f"  rewards of 1: {rewards.count('1')}, of 0: {rewards.count('0')}")
    print(f"  of a file that has no predictions: {instead}; without the token: {nobody}")
    print(f"  believed {believed:.3f}, true 0.500, too much {believed - 0.5:+.3f}")


if __name__ == "__main__":
    main()
