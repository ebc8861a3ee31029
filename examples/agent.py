# Install: pip install '.[server]'
"""An agent that searches on labels that are coin flips: unguarded, and through a server.

It changes a few predictions at a time and goes on from whatever scores better. Nothing can be
learned of coins: on other rows every model is right half of the time, whatever its score here.

    python examples/agent.py

The server is a process of its own, on a ledger in a temporary folder. The agent has a token for it
and no label. In practice it must not be able to read the server's files either: run the server as
another user or on another machine (docs/guide/agents.md).
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ladderholdout import LadderHoldout
from ladderholdout.server.accounts import add_account

ROWS, STEPS, CHANGES = 500, 600, 10
SERVE = [sys.executable, "-c", "from ladderholdout.cli import app; app()", "serve"]


def climb(evaluate: Callable[[np.ndarray], float]) -> float:
    """The agent: change some predictions, go on from what scores better; return its best score."""
    rng = np.random.default_rng(1)
    best = rng.integers(0, 2, ROWS)
    score = evaluate(best)
    for _ in range(STEPS):
        candidate = best.copy()
        candidate[rng.choice(ROWS, CHANGES, replace=False)] ^= 1
        found = evaluate(candidate)
        if found > score:
            best, score = candidate, found
    return score


def answers(port: int) -> bool:
    """Whether something listens at a port."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(
    X: np.ndarray, y: np.ndarray, folder: Path, role: str = "analyst", **stated: Any
) -> Iterator[tuple[str, str]]:
    """Serve a holdout for the length of a block: the server's URL, and the agent's token."""
    ledger = folder / "ledger.db"
    LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=ledger, **stated)
    token = add_account(str(ledger), "coins", "agent", role).token
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    printed = folder / "server.log"
    with printed.open("w") as log:
        server = subprocess.Popen(
            [*SERVE, "--ledger", str(ledger), "--port", port], stdout=log, stderr=log
        )
    try:
        while not answers(int(port)):
            if server.poll() is not None:
                sys.exit(printed.read_text().strip().splitlines()[-1])
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", token
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(ROWS, 3)), rng.integers(0, 2, ROWS)

    print(f"{STEPS + 1} submissions without a guard ...", file=sys.stderr)
    unguarded = climb(lambda predictions: float(np.mean(predictions == y)))

    print(f"{STEPS + 1} submissions through a server ...", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name, served(X, y, Path(name)) as (url, token):
        holdout = LadderHoldout.connect(f"{url}/holdouts/coins", token)
        guarded = climb(lambda predictions: holdout.submit(predictions).score)
        status, certificate = holdout.status(), holdout.certificate()

    print(f"{STEPS + 1} submissions for {ROWS} rows whose labels are coin flips")
    print("              believed   true  too much")
    for who, believed in (("unguarded", unguarded), ("guarded", guarded)):
        print(f"  {who:<11} {believed:9.3f} {0.5:6.3f} {believed - 0.5:+9.3f}")
    print(f"guarded: {status.releases} of {status.submissions} submissions improved")
    print(f"its certificate: true score in {certificate.low:.3f} to {certificate.high:.3f}")


if __name__ == "__main__":
    main()
