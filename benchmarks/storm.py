"""Many submitters at once, one of them killed every so often: what is told, and what stands.

Eight processes submit guesses to one ladder; whenever 100 more answers have come, one of the
processes is killed with SIGKILL, and another takes its place. In the end every answer that
anybody saw has to stand in the ledger, once; the order has to be total; the whole has to
replay to the bit; and nobody may have waited for more than five seconds.

    python benchmarks/storm.py                      # an SQLite file, 10,000 submissions
    python benchmarks/storm.py --postgres           # a PostgreSQL server, started for this
    python benchmarks/storm.py --ledger URL         # any other empty ledger
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from ladderholdout import LadderHoldout
from ladderholdout.guard.health import verify_holdout
from ladderholdout.mechanisms import ShakyLadder

NAME, ROWS = "storm", 1000
# Number, score, improved, seconds waited: whole or not at all, for a pipe keeps
# what is shorter than a page in one piece.
ANSWER = struct.Struct("<qd?d")
LONGEST = 5.0

context = multiprocessing.get_context("forkserver")


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((ROWS, 2)), rng.integers(0, 2, ROWS)


def submit(url: str, seed: int, pipe: Connection) -> None:
    """Submit guesses until somebody kills this process."""
    holdout = LadderHoldout.open(NAME, ledger=url)
    rng = np.random.default_rng(seed)
    while True:
        predictions = rng.integers(0, 2, ROWS)
        begun = time.perf_counter()
        told = holdout.submit(predictions)
        waited = time.perf_counter() - begun
        pipe.send_bytes(ANSWER.pack(told.submission, told.score, told.improved, waited))


@dataclass
class Storm:
    """The submitters that live, and what all of them were told."""

    url: str
    started: int = 0
    kills: int = 0
    living: dict[Connection, BaseProcess] = field(default_factory=dict)
    told: list[tuple[int, float, bool, float]] = field(default_factory=list)
    moments: random.Random = field(default_factory=lambda: random.Random(0))

    def start(self) -> None:
        self.started += 1
        ours, theirs = context.Pipe(duplex=False)
        one = context.Process(target=submit, args=(self.url, self.started, theirs), daemon=True)
        one.start()
        theirs.close()
        self.living[ours] = one

    def listen(self) -> None:
        for pipe in wait(list(self.living)):
            self.told.append(ANSWER.unpack(pipe.recv_bytes()))

    def kill(self) -> None:
        """Kill one of them at random, and hear what it said before it died."""
        pipe = self.moments.choice(list(self.living))
        one = self.living.pop(pipe)
        one.kill()
        one.join()
        self.kills += 1
        while True:
            try:
                self.told.append(ANSWER.unpack(pipe.recv_bytes()))
            except EOFError:
                return


def run(url: str, submissions: int, workers: int, every: int) -> tuple[Storm, float]:
    storm = Storm(url)
    for _ in range(workers):
        storm.start()
    storm.listen()  # the clock starts when somebody has begun
    begun, before = time.perf_counter(), len(storm.told)
    while len(storm.told) < submissions:
        storm.listen()
        if len(storm.told) >= every * (storm.kills + 1):
            storm.kill()
            storm.start()
    taken = (time.perf_counter() - begun) / (len(storm.told) - before)
    while storm.living:
        storm.kill()
    return storm, 1 / taken


def check(holdout: LadderHoldout, storm: Storm) -> None:
    """Compare what was told with what stands."""
    history = holdout.history()
    assert [one.number for one in history] == list(range(1, len(history) + 1)), "a gap"
    numbers = [number for number, *_ in storm.told]
    assert len(set(numbers)) == len(numbers), "an entry was told twice"
    for number, score, improved, _ in storm.told:
        kept = history[number - 1]
        assert (kept.score, kept.improved) == (score, improved), "differs"
    # Whoever is killed between the commit and the telling leaves one entry that nobody saw.
    assert len(history) - len(numbers) <= storm.kills, "entries that nobody made"
    findings = verify_holdout(holdout.ledger, NAME).findings  # replays, too
    assert findings == (), findings


@contextmanager
def place(asked: argparse.Namespace, folder: str) -> Iterator[str]:
    if not asked.postgres:
        yield asked.ledger or f"{folder}/ledger.db"
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.support.postgres import server

    with server(durable=True) as running:
        yield running.database()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--every", type=int, default=100, help="answers from kill to kill")
    parser.add_argument("--ledger", help="an empty ledger: a file or a URL")
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL server")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, place(asked, folder) as url:
        # Little noise: that every release replays must not be because there is none.
        mechanism = ShakyLadder(step=0.02, noise=0.005)
        holdout = LadderHoldout(*rows(), scoring="accuracy", name=NAME, ledger=url,
                                mechanism=mechanism, vault=folder)  # fmt: skip
        storm, rate = run(holdout.ledger, asked.submissions, asked.workers, asked.every)
        check(holdout, storm)
        waited = np.array([waited for *_, waited in storm.told])
        print(
            f"{len(storm.told)} answers of {asked.workers} processes, {storm.kills} killed: all in "
            f"the ledger, once, in one order, and replayed ({holdout.status().submissions} "
            f"entries)\n{rate:.0f} submissions a second; waited: median "
            f"{1000 * np.median(waited):.1f} ms, 99 % {1000 * np.quantile(waited, 0.99):.0f} ms, "
            f"longest {1000 * waited.max():.0f} ms"
        )
        if waited.max() > LONGEST:
            sys.exit(f"somebody waited for more than {LONGEST:.0f} seconds")


if __name__ == "__main__":
    main()
