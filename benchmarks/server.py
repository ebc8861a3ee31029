"""What a server costs beside a ledger of one's own: submissions, a search, many clients, memory.

Each part starts a server in a process of its own, over a ledger in a file, and talks to it over
loopback. Ratios are of medians, with what runs on the same machine at the same time.

    python benchmarks/server.py
    python benchmarks/server.py --submissions 50 --rows 100000     # sooner
    python benchmarks/server.py --capacity                         # one process, four, PostgreSQL
"""

from __future__ import annotations

import argparse
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psycopg
import urllib3
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV

from ladderholdout import LadderHoldout
from ladderholdout.errors import AccessDenied
from ladderholdout.server.accounts import add_account

PROGRAM = "from ladderholdout.cli import app; app()"
PREDICTIONS, CLIENTS, FIT = 10_000, 64, 0.02
LEAST_RATE, MOST_TIME, LONGEST, MOST_MEMORY = 0.6, 1.10, 5.0, 3.0


class Sleeper(ClassifierMixin, BaseEstimator):
    """A model whose fit takes a known time, and whose predictions differ by its parameter."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def fit(self, X: np.ndarray, y: np.ndarray) -> Sleeper:
        time.sleep(FIT)
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return (X[:, 0] % 100 > self.share).astype(int)


def rows(n: int, columns: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, columns))
    return X, (X[:, 0] + rng.normal(size=n) > 0).astype(int)


def memory_of(process: int, which: str) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.partition(f"{which}:")[2].split()[0])


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    ledger: Path | str
    process: subprocess.Popen[bytes]

    def connect(self, account: str) -> LadderHoldout:
        token = add_account(str(self.ledger), "bench", account, "analyst").token
        return LadderHoldout.connect(self.url, token)

    def most_memory(self) -> int:
        return memory_of(self.process.pid, "VmHWM")

    def memory(self) -> int:
        """Bytes of all processes that answer: one alone, or the children of the one that starts."""
        process = self.process.pid
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        answer = [
            one for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()
        ]
        return sum(memory_of(int(one), "VmRSS") for one in answer or [process])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def size(self) -> int:
        """Bytes of the ledger, with all that was written ahead."""
        if isinstance(self.ledger, Path):
            with closing(sqlite3.connect(self.ledger)) as opened:
                opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return self.ledger.stat().st_size
        with closing(psycopg.connect(self.ledger)) as opened:
            size = opened.execute("SELECT pg_database_size(current_database())").fetchone()
            return int(size[0])


@contextmanager
def served(
    folder: Path, n: int, port: int, columns: int = 4, *more: str, ledger: str | None = None
) -> Iterator[Served]:
    ledger = ledger or folder / f"served-{n}-{len(more)}.db"
    LadderHoldout(*rows(n, columns), scoring="accuracy", name="bench", ledger=ledger, vault=folder)
    words = ["serve", "--ledger", str(ledger), "--port", str(port), "--share-rows", "*", *more]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stdout=log, stderr=log)
    try:
        yield Served(f"http://127.0.0.1:{port}", ledger, process)
    finally:
        process.terminate()
        process.wait()


def seconds(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def report(what: str, value: float, unit: str, bound: str = "", held: bool = True) -> None:
    shown = f"({bound})" if bound else ""
    print(f"{what:<58}{value:>10.4g} {unit:<4}{shown}{'' if held else '  MISSED'}", flush=True)


def submissions(server: Served, remote: LadderHoldout, local: LadderHoldout, k: int) -> None:
    guesses = np.random.default_rng(1).integers(0, 2, (k, PREDICTIONS))
    pool = urllib3.PoolManager()

    def nothing() -> None:
        assert pool.request("GET", f"{server.url}/healthz").status == 200

    turns = [
        [
            seconds(lambda: remote.submit(guess)),  # noqa: B023
            seconds(lambda: local.submit(guess)),  # noqa: B023
            seconds(nothing),
        ]
        for guess in guesses
    ]
    there, here, way = (median(times[1:]) for times in zip(*turns, strict=True))
    report(f"submissions of {PREDICTIONS} predictions, remote", 1 / there, "/s")
    report("the same, local", 1 / here, "/s")
    held = here / there >= LEAST_RATE
    report("remote over local", here / there, "", f"at least {LEAST_RATE}", held)
    report("a request for which the server does nothing", 1000 * way, "ms")
    report("local over local and such a request: the highest ratio", here / (here + way), "")


def searches(remote: LadderHoldout, local: LadderHoldout) -> None:
    X, y = rows(PREDICTIONS)
    X, y = X[:200] + 100, y[:200]  # and not rows of the holdout
    grid = {"share": np.linspace(-1, 1, 40)}

    def search(holdout: LadderHoldout) -> None:
        found = GridSearchCV(Sleeper(), grid, scoring=holdout, cv=holdout.split(), refit=False)
        found.fit(X, y)

    times = [[seconds(lambda: search(one)) for one in (remote, local)] for _ in range(3)]  # noqa: B023
    there, here = (median(each) for each in zip(*times, strict=True))
    held = there / here <= MOST_TIME
    report(
        "GridSearchCV, fits of 20 ms: remote over local",
        there / here,
        "",
        f"at most {MOST_TIME}",
        held,
    )


def clients(server: Served, k: int) -> None:
    holdouts = [server.connect(f"client {at}") for at in range(CLIENTS)]
    guesses = np.random.default_rng(2).integers(0, 2, (k, PREDICTIONS))

    def work(holdout: LadderHoldout) -> float:
        return max(seconds(lambda: holdout.submit(guess)) for guess in guesses)  # noqa: B023

    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        slowest = max(pool.map(work, holdouts))
    report(f"{CLIENTS} clients at once", CLIENTS * k / (time.perf_counter() - begun), "/s")
    held = slowest <= LONGEST
    report("the slowest of their requests", slowest, "s", f"at most {LONGEST}", held)


def memory(server: Served, n: int, columns: int) -> None:
    with suppress(AccessDenied):  # waits until it answers
        LadderHoldout.connect(server.url, "none")
    begun, holdout = server.most_memory(), server.connect("memory")
    holdout.submit(np.zeros(n, dtype=int))
    holdout.submit(np.ones(n, dtype=int))
    arrays = 8 * n * (columns + 1)
    share = (server.most_memory() - begun) / arrays
    report("memory before the first request", begun / 2**20, "MB")
    held = share <= MOST_MEMORY
    report(f"memory for {n} rows, over their arrays", share, "", f"at most {MOST_MEMORY}", held)


def capacity(folder: Path, port: int, clients: list[int], enough: float) -> None:
    """Let so many clients submit for so many seconds, to one process, to four, on PostgreSQL."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.support.postgres import server as postgres

    print(f"{'server':<24}{'clients':>8}{'/s':>8}{'median':>10}{'99 %':>10}{'longest':>10}")
    with postgres(durable=True) as database:
        for what, processes, ledger in (
            ("1 process, SQLite", 1, None),
            ("4 processes, SQLite", 4, None),
            ("4 processes, PostgreSQL", 4, database.database()),
        ):
            more = () if processes == 1 else ("--workers", str(processes))
            with served(folder, PREDICTIONS, port, 4, *more, ledger=ledger) as server:
                load(server, what, processes, clients, enough)


def load(server: Served, what: str, processes: int, clients: list[int], enough: float) -> None:
    holdouts = [server.connect(f"client {at}") for at in range(max(clients))]
    good = (rows(PREDICTIONS)[0][:, 0] > 0).astype(int)  # what guesses do not improve
    for one in holdouts:
        one.submit(good)
    begun, made = server.size(), 0
    for count in clients:
        end = time.perf_counter() + enough

        def work(at: int, end: float = end) -> list[float]:
            found, rng = [], np.random.default_rng(at)
            while time.perf_counter() < end:
                guess = rng.integers(0, 2, PREDICTIONS)
                found.append(seconds(lambda: holdouts[at].submit(guess)))  # noqa: B023
            return found

        with ThreadPoolExecutor(count) as pool:
            times = np.concatenate(list(pool.map(work, range(count))))
        made += len(times)
        half, most, longest = 1000 * np.quantile(times, [0.5, 0.99, 1])
        print(
            f"{what:<24}{count:>8}{len(times) / enough:>8.0f}{half:>7.0f} ms{most:>7.0f} ms"
            f"{longest:>7.0f} ms",
            flush=True,
        )
    print(
        f"  {(server.size() - begun) / made:.0f} bytes of the ledger a submission; "
        f"{server.memory() / processes / 2**20:.0f} MB a process"
    )
    before = server.memory()
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(500)]
    with suppress(AccessDenied):  # waits until it answers
        LadderHoldout.connect(server.url, "none")
    print(f"  {(server.memory() - before) / len(idle) / 2**10:.0f} kB an idle connection")
    for one in idle:
        one.close()
    before, more = server.memory(), [server.connect(f"more {at}") for at in range(32)]
    for one in more:
        for _ in range(processes):  # about once in each
            one.submit(good)
    grown = (server.memory() - before) / len(more) / processes / 2**10
    print(f"  {grown:.0f} kB a process and account that submitted", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the holdout for memory")
    parser.add_argument("--port", type=int, default=8767)
    parser.add_argument("--capacity", action="store_true", help="what several processes hold")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10, help="for each number of clients")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.capacity:
            capacity(folder, asked.port, asked.clients, asked.seconds)
            return
        local = LadderHoldout(
            *rows(PREDICTIONS), scoring="accuracy", name="bench", ledger=folder / "local.db"
        )
        with served(folder, PREDICTIONS, asked.port) as server:
            remote = server.connect("ada")
            submissions(server, remote, local, asked.submissions)
            searches(remote, local)
            clients(server, max(2, asked.submissions // 20))
        with served(folder, asked.rows, asked.port, columns=10) as server:
            memory(server, asked.rows, columns=10)


if __name__ == "__main__":
    main()
