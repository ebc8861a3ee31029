"""What the guard costs: time beside a plain search and beside bare commits, size, memory.

    python benchmarks/guard.py [SECTION ...] [--postgres URL]

Sections: search, commits, floor, profile, crowd, ledger, streams, holdout, postgres. Without names
all run, which takes a quarter of an hour; `postgres` needs the URL of a database that may be
written to. Each line ends with the bound that it has to keep, if there is
one, and the status is 1 where a bound was not kept. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import cProfile
import multiprocessing
import os
import pstats
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from filling import fill
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from ladderholdout import LadderHoldout
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.submit import disagreement
from ladderholdout.ledger.arrays import digests_of
from ladderholdout.ledger.events import written
from ladderholdout.ledger.log import linked
from ladderholdout.ledger.place import Access, is_server
from ladderholdout.ledger.store import Ledger

ROWS = 10_000
MEGABYTE = 2**20
_missed: list[str] = []


def say(what: str, value: float, unit: str = "", bound: float | None = None, *, most: bool) -> None:
    """Print one figure beside its bound, and remember a bound that was not kept."""
    kept = bound is None or (value <= bound if most else value >= bound)
    limit = "" if bound is None else f"  ({'at most' if most else 'at least'} {bound:g})"
    print(f"{what:<62}{value:>10.4g} {unit:<5}{limit}{'' if kept else '  MISSED'}", flush=True)
    if not kept:
        _missed.append(what)


def coins(n: int = ROWS, width: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((n, width), dtype=np.float32), rng.integers(0, 2, n)


def guesses(y: np.ndarray, seed: int, count: int) -> Iterator[np.ndarray]:
    """Yield predictions of which 70 % are right, more or less."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield np.where(rng.random(len(y)) < rng.uniform(0.65, 0.75), y, 1 - y)


def opened(ledger: Path | str, n: int = ROWS, width: int = 5) -> LadderHoldout:
    X, y = coins(n, width)
    return LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=ledger)


@contextmanager
def peak() -> Iterator[Callable[[], float]]:
    """Measure by how much memory grew at its highest, in megabytes (Linux)."""

    def read(name: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

    Path("/proc/self/clear_refs").write_text("5")
    before = read("VmRSS")
    yield lambda: read("VmHWM") - before


# A search


class Sleeper(ClassifierMixin, BaseEstimator):
    """Fits without work for some milliseconds, and guesses."""

    def __init__(self, milliseconds: float = 2.0, seed: int = 0) -> None:
        self.milliseconds, self.seed = milliseconds, seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> Sleeper:
        time.sleep(self.milliseconds / 1000)
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.random.default_rng(self.seed).integers(0, 2, len(X))


def search(folder: Path) -> None:
    """A grid, guarded and plain, on the same rows: training rows before, the holdout after.

    And one whose scorer does what promises ask, and nothing else.
    """
    targets = {2: 1.10, 20: 1.02, 200: 1.003}
    X, y = coins(2 * ROWS)
    bare = folder / "search-raw.db"
    opened(bare).submit(coins()[1])
    for milliseconds, target in targets.items():
        for jobs in (1, 2):
            candidates = min(400, 4000 // milliseconds)
            both = [
                (
                    _plain_seconds(X, y, milliseconds, candidates, jobs),
                    _guarded_seconds(folder / f"{milliseconds}-{jobs}-{run}.db", X, y,
                                     milliseconds, candidates, jobs),
                )
                for run in range(5)
            ]  # fmt: skip
            ratio = statistics.median(guarded / plain for plain, guarded in both)
            what = f"search, fits of {milliseconds} ms, n_jobs={jobs}: guarded over plain"
            say(what, ratio, "", target, most=True)
        ledger = str(folder / f"search-pieces-{milliseconds}.db")
        with _pieces(ledger) as each, _bare_commits(str(bare), milliseconds) as commit:
            asked = (*each.values(), commit)

            def scored(estimator: Any, X: Any, y: Any, asked: Any = asked) -> float:
                estimator.predict(X)
                for work in asked:
                    work()
                return 0.5

            ratio = statistics.median(
                _plain_seconds(X, y, milliseconds, candidates, 1, scored)
                / _plain_seconds(X, y, milliseconds, candidates, 1)
                for _ in range(5)
            )
        what = f"nothing but the commit and what promises ask, {milliseconds} ms, over plain"
        say(what, ratio, "", most=True)


def _plain_seconds(
    X: Any, y: Any, milliseconds: int, candidates: int, jobs: int, scoring: Any = "accuracy"
) -> float:
    split = PredefinedSplit(np.repeat([-1, 0], ROWS))
    grid = {"seed": range(candidates)}
    found = GridSearchCV(
        Sleeper(milliseconds), grid, scoring=scoring, cv=split, n_jobs=jobs, refit=False
    )
    started = time.perf_counter()
    found.fit(X, y)
    return time.perf_counter() - started


def _guarded_seconds(
    ledger: Path, X: Any, y: Any, milliseconds: int, candidates: int, jobs: int
) -> float:
    holdout = LadderHoldout(X[ROWS:], y[ROWS:], scoring="accuracy", name="rows", ledger=ledger)
    grid = {"seed": range(candidates)}
    found = GridSearchCV(
        Sleeper(milliseconds), grid, scoring=holdout, cv=holdout.split(), n_jobs=jobs, refit=False
    )
    started = time.perf_counter()
    found.fit(X[:ROWS], y[:ROWS])
    return time.perf_counter() - started


# Commits


def rate(work: Callable[..., tuple[float, float]], processes: int, *given: Any) -> float:
    """Return how often a second so many processes together do what each is given to do."""
    context = _fresh_processes()
    with ProcessPoolExecutor(processes, context) as pool:
        list(pool.map(time.sleep, [0.2] * processes))  # all of them are there
        start = time.time() + 1.5
        shared = ([one] * processes for one in given)
        spans = list(pool.map(work, [start] * processes, range(processes), *shared))
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    return processes * EACH / (last - first)


EACH = 300


def _fresh_processes() -> Any:
    """Return how processes are made: each inherits imports and nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["filling", "ladderholdout.guard.health", "sklearn.svm"])
    return context


def _wait(start: float) -> float:
    time.sleep(max(0.0, start - time.time()))
    return time.time()


@contextmanager
def _bare_commits(ledger: str, who: int) -> Iterator[Callable[[], None]]:
    """Insert an entry and change the ladder, as the guard does, by the driver alone."""
    with closing(sqlite3.connect(ledger, isolation_level=None, timeout=60)) as driver:
        driver.execute("PRAGMA synchronous=FULL")
        driver.row_factory = sqlite3.Row
        query = "SELECT * FROM log WHERE number IS NOT NULL LIMIT 1"
        row = dict(driver.execute(query).fetchone())
        del row["seq"]
        names = ", ".join(row)
        into = f"INSERT INTO log ({names}) VALUES ({', '.join(f':{one}' for one in row)})"
        turns = count()

        def commit() -> None:
            turn = next(turns)
            number = 1_000_000 * (who + 1) + turn
            unique = {"number": number, "position": number, "digest": os.urandom(32).hex()}
            driver.execute("BEGIN IMMEDIATE")
            driver.execute(into, row | unique)
            driver.execute("UPDATE holdout SET length = ?, head = ?", (number, row["hash"]))
            driver.execute("COMMIT")

        yield commit


def _one_after_the_other(
    start: float, bare: AbstractContextManager[Callable[[], None]]
) -> tuple[float, float]:
    """Commit as often as a process does, from a moment on; return when it began and ended."""
    with bare as commit:
        begin = _wait(start)
        for _ in range(EACH):
            commit()
        return begin, time.time()


def raw_sqlite(start: float, who: int, ledger: str) -> tuple[float, float]:
    return _one_after_the_other(start, _bare_commits(ledger, who))


def make_bare_tables(url: str) -> None:
    """Make the tables of bare commits on PostgreSQL."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "")) as driver:
        driver.execute("CREATE TABLE bench_ladders (id int PRIMARY KEY, state text)")
        driver.execute("INSERT INTO bench_ladders VALUES (1, '')")
        driver.execute(
            "CREATE TABLE bench_entries (id serial PRIMARY KEY, number int, digest text, "
            "hash text, context text, risk float)"
        )


@contextmanager
def bare_commits_on_postgres(url: str, who: int) -> Iterator[Callable[[], None]]:
    """The same on PostgreSQL: the ladder's row is locked, changed, and an entry inserted."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "")) as driver:
        state, turns = "x" * 80, count()

        def commit() -> None:
            number = 1_000_000 * who + next(turns)
            driver.execute("SELECT state FROM bench_ladders WHERE id = 1 FOR UPDATE")
            driver.execute(
                "INSERT INTO bench_entries (number, digest, hash, context, risk) "
                "VALUES (%s, %s, %s, %s, %s)",
                (number, os.urandom(32).hex(), os.urandom(32).hex(), state, 0.5),
            )
            driver.execute("UPDATE bench_ladders SET state = %s WHERE id = 1", (state,))
            driver.commit()

        yield commit


def raw_psycopg(start: float, who: int, url: str) -> tuple[float, float]:
    return _one_after_the_other(start, bare_commits_on_postgres(url, who))


def guarded(start: float, who: int, ledger: str) -> tuple[float, float]:
    holdout = LadderHoldout.open("coins", ledger=ledger)
    y = coins()[1]
    holdout.submit(next(guesses(y, 1000 + who, 1)))  # the rows are at hand from now on
    todo = list(guesses(y, who, EACH))
    begin = _wait(start)
    for predictions in todo:
        holdout.submit(predictions)
    return begin, time.time()


def commits(folder: Path) -> None:
    for processes in (1, 4):
        ours, bare = folder / f"guard-{processes}.db", folder / f"raw-{processes}.db"
        for ledger in (ours, bare):
            opened(ledger).submit(coins()[1])
        turns = [
            (rate(raw_sqlite, processes, str(bare)), rate(guarded, processes, str(ours)))
            if run == 0
            else (rate(raw_again, processes, str(bare)), rate(guarded_again, processes, str(ours)))
            for run in range(2)
        ]
        raw, guard = (max(column) for column in zip(*turns, strict=True))
        say(f"raw sqlite3, WAL and FULL, {processes} processes", raw, "/s", most=False)
        say(f"guard, {ROWS} predictions each, {processes} processes", guard, "/s", most=False)
        target = 0.6 if processes == 1 else 0.7
        say(f"guard over raw sqlite3, {processes} processes", guard / raw, "", target, most=False)
        own = str(folder / f"pieces-{processes}-{{who}}.db")
        _compare_pieces(processes, own, str(bare), raw)
    _compare_repeats(opened(folder / "repeats.db"))


def _compare_repeats(holdout: LadderHoldout) -> None:
    """Print how long a repeat takes, over a query of the same predictions."""
    took: dict[str, list[float]] = {"query": [], "repeat": []}
    for predictions in guesses(coins()[1], 7, EACH):
        for times in took.values():
            begin = time.perf_counter()
            holdout.submit(predictions)
            times.append(time.perf_counter() - begin)
    query, repeat = (statistics.median(times) for times in took.values())
    say("repeat over query", repeat / query, "", 1, most=True)


def _compare_pieces(processes: int, ledger: str, bare: str, raw: float) -> None:
    least = rate(nothing_but_pieces, processes, ledger, bare)
    say(f"nothing but the commit and what promises ask, {processes}", least, "/s", most=False)
    say(f"these over raw: the highest ratio, {processes} processes", least / raw, "", most=False)


def floor(folder: Path) -> None:
    bare = folder / "floor-raw.db"
    opened(bare).submit(coins()[1])
    pieces(str(folder / "floor.db"), "raw sqlite3, WAL and FULL", _bare_commits(str(bare), 0))


def profile(folder: Path) -> None:
    """Where the time of a submission goes, by packages, and which functions take most of it.

    The profiler counts each call of Python's, so that many small ones weigh more than without it.
    """
    held = opened(folder / "profile.db")
    todo = list(guesses(coins()[1], 1, 2 * EACH))
    held.submit(todo.pop())
    profiler = cProfile.Profile()
    profiler.enable()
    for predictions in todo:
        held.submit(predictions)
    profiler.disable()
    own, calls, single = Counter[str](), Counter[str](), Counter[str]()
    for (file, _, name), found in pstats.Stats(profiler).stats.items():
        package, (_, times, seconds, *_) = _package_of(file, name), found
        own[package] += seconds
        calls[package] += times
        single[f"{name} ({package})"] += seconds
    for package, seconds in own.most_common(8):
        say(f"{package}: calls a submission", calls[package] / len(todo), "", most=True)
        say(f"{package}: share of the time", seconds / own.total(), "", most=True)
    for name, seconds in single.most_common(8):
        say(name[:56], seconds / own.total(), "", most=True)


def _package_of(file: str, name: str) -> str:
    """Return whose a function is; of built-in ones, the module in their description."""
    for package in ("ladderholdout", "numpy", "pydantic"):
        if f"/{package}/" in file:
            return package
    if file != "~":
        return "Python's library"
    module = next((one for one in ("sqlite3", "numpy", "hashlib", "posix") if one in name), "")
    return module or "built in"


@contextmanager
def _pieces(ledger: str, who: int = 0) -> Iterator[dict[str, Callable[[], Any]]]:
    """Yield what of a submission a promise asks for beside the commit, piece by piece."""
    X = coins()[0]
    X[:, 0] = who  # no other holdout has these rows, or these labels
    y = np.random.default_rng(10_000 + who).integers(0, 2, ROWS)
    held = LadderHoldout(X, y, scoring="accuracy", name=f"pieces-{who}", ledger=ledger)
    held.submit(y)
    guard, secret = held.__ladder__.guard(), held.__ladder__.guard().holdout.secret
    predictions = next(guesses(y, 1, 1))
    canonical = partial(guard.metric.canonical, predictions, ROWS, guard.holdout.classes)
    aligned, incumbent = canonical().take(guard.order), y.take(guard.order)
    with Ledger(held.ledger).write(Access.LADDER) as tx:
        submitted = tx.submission(guard.ladder_id, 1)
        head, mark = tx.fold(guard.holdout.id).end, tx.mark(guard.holdout.id)
        before = bytes.fromhex(head.hash)
        reads = {
            "read what is new of the holdout": lambda: [
                sent.fetchall() for sent in tx.send_for_news(guard.holdout.id)
            ],
            "ask whether they are known": lambda: tx.found(guard.ladder_id, "digest", "0" * 64),
        }
        yield {
            "check the predictions, bring them in order": lambda: canonical().take(guard.order),
            "their HMAC": lambda: digests_of(secret, aligned, None),
            "measure them": lambda: guard.part.evaluate(guard.metric, aligned),
            "compare them with the incumbent's": lambda: disagreement(aligned, incumbent),
            # A server answers both with the commit, which goes there and back by itself.
            **({} if is_server(ledger) else reads),
            "their event, and its hash": lambda: linked(
                secret, before, head.length + 1, *written(submitted)
            ),
            "keep the chain's end outside of the ledger": lambda: mark.write(head),
        }


def pieces(ledger: str, raw: str, bare: AbstractContextManager[Callable[[], None]]) -> None:
    """Time the pieces one by one, between bare commits."""
    with _pieces(ledger) as others, bare as commit:
        each = {raw: commit, **others}
        took: dict[str, list[float]] = {what: [] for what in each}
        for _ in range(EACH):
            for what, work in each.items():
                begin = time.perf_counter()
                work()
                took[what].append(1e6 * (time.perf_counter() - begin))
    middle = {what: statistics.median(times) for what, times in took.items()}
    for what, one in middle.items():
        say(what, one, "us", most=True)
    bound = middle[raw] / sum(middle.values())
    say("the first over all of these: the highest ratio", bound, "", most=False)


def nothing_but_pieces(start: float, who: int, ledger: str, bare: str) -> tuple[float, float]:
    """Commit, and do the pieces of a submission each time, on a ladder of one's own."""
    commits_of = bare_commits_on_postgres if is_server(bare) else _bare_commits
    with _pieces(ledger.format(who=who), who) as each, commits_of(bare, 200 + who) as commit:
        begin = _wait(start)
        for _ in range(EACH):
            for work in each.values():
                work()
            commit()
        return begin, time.time()


def raw_again(start: float, who: int, ledger: str) -> tuple[float, float]:
    return raw_sqlite(start, who + 100, ledger)


def guarded_again(start: float, who: int, ledger: str) -> tuple[float, float]:
    return guarded(start, who + 100, ledger)


def postgres(url: str) -> None:
    make_bare_tables(url)
    opened(url)
    for processes in (1, 8):
        raw = rate(raw_psycopg, processes, url)
        guard = rate(guarded if processes == 1 else guarded_again, processes, url)
        say(f"raw psycopg, {processes} processes", raw, "/s", most=False)
        say(f"guard on PostgreSQL, {processes} processes", guard, "/s", most=False)
        say(f"guard over raw psycopg, {processes} processes", guard / raw, "", 0.6, most=False)
        _compare_pieces(processes, url, url, raw)
    _compare_repeats(LadderHoldout.open("coins", ledger=url))
    pieces(url, "raw psycopg", bare_commits_on_postgres(url, 99))


# A crowd


def crowded(start: float, ledger: str, who: int) -> tuple[list[int], float]:
    holdout = LadderHoldout.open("coins", ledger=ledger)
    holdout.__ladder__.guard()  # the rows are at hand from now on
    numbers, longest = [], 0.0
    _wait(start)
    for predictions in guesses(coins()[1], 10_000 + who, 20):
        begin = time.perf_counter()
        numbers.append(holdout.submit(predictions).submission)
        longest = max(longest, time.perf_counter() - begin)
    return numbers, longest


def crowd(folder: Path) -> None:
    """64 processes submit at once: all numbers come once, and nobody waits for long."""
    holdout = opened(folder / "crowd.db")
    context = _fresh_processes()
    with ProcessPoolExecutor(64, context) as pool:
        # Each imports the package first, which takes seconds of a processor.
        start = time.time() + 10 + 64 * 3.0 / (os.cpu_count() or 1)
        told = list(pool.map(crowded, [start] * 64, [holdout.ledger] * 64, range(64)))
        seconds = time.time() - start
    numbers = sorted(number for own, _ in told for number in own)
    assert numbers == list(range(1, 64 * 20 + 1))
    assert verify_holdout(holdout.ledger, "coins").findings == ()
    say("64 submitters at once", 64 * 20 / seconds, "/s", most=False)
    say("the longest that one of them waited", max(wait for _, wait in told), "s", 5.0, most=True)


# A ledger


def ledger(folder: Path, entries: int, exported: int) -> None:
    """The same on an empty ledger, on one of 100 entries, and on one of many."""
    seconds, shown = {}, {}
    for size in (0, 100, entries):
        holdout = opened(folder / f"{size}.db")
        for predictions in guesses(coins()[1], 1, 3):
            holdout.submit(predictions)
        if size:
            begin = time.perf_counter()
            fill(holdout, size)
            print(f"{size} entries were written in {time.perf_counter() - begin:.0f} s")
        if size != 100:
            seconds[size] = _submission(holdout)
        holdout.submit(coins()[1])  # the incumbent is the newest now: certificates count them all
        shown[size] = [_least(work) for work in (holdout.status, holdout.certificate)]
    say(f"submission on {entries} entries over one on none", seconds[entries] / seconds[0], "",
        1.1, most=True)  # fmt: skip
    for what, few, many in zip(("status", "certificate"), shown[100], shown[entries], strict=True):
        say(f"{what}, {entries} entries over 100", many / few, "", 1.5, most=True)
    for what, work, bound, memory in (
        ("status", holdout.status, 5.0, 50.0),
        ("certificate", holdout.certificate, 5.0, 50.0),
        ("page of 50 in the midst", lambda: holdout.history(after=entries // 2, limit=50), 0.2, 50),
    ):
        with peak() as grown:
            begin = time.perf_counter()
            work()
            took = time.perf_counter() - begin
            say(f"{what}, {entries} entries", took, "s", bound, most=True)
            say(f"{what}, memory", grown(), "MB", memory, most=True)

    streams(folder, entries, exported, str(folder / f"{entries}.db"))


def streams(folder: Path, entries: int, exported: int, made: str | None = None) -> None:
    """What reads every entry, each in a process of its own: seconds, and its memory at most."""
    made = made or _filled(folder / "streams.db", entries)
    page = ["--output", str(folder / "page.html"), "--yes"]
    for what, more in (
        ("verify", []),
        ("report", page),
        ("audit", ["--yes"]),
        ("audit --json", []),
        ("report --opened", page),
    ):
        _streamed(what, [*more, "--ledger", made], entries)
    # MLflow itself takes half a thousandth of a second for each.
    few = min(entries, exported)
    stores = [f"sqlite:///{folder / name}.db" for name in ("ours", "own")]
    given = ["--ledger", _filled(folder / "few.db", few), "--tracking-uri", stores[0]]
    took = _streamed("export", given, few)
    own = _by_mlflow_alone(stores[1], few)
    say(f"MLflow alone, {few} entries", own, "s", most=True)
    say("export over MLflow alone", took / own, "", most=True)


def _by_mlflow_alone(store: str, entries: int) -> float:
    """Log as many values as an export does, a thousand in a request, by MLflow's own client."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(store)
    place = client.create_experiment("alone", artifact_location=store.rpartition("/")[0])
    runs = {client.create_run(place).info.run_id: names for names in ("r", ("r", "s"))}
    begin = time.perf_counter()
    for run, names in runs.items():
        for first in range(1, entries + 1, 400):
            steps = range(first, min(first + 400, entries + 1))
            values = [Metric(name, 0.5 + 1e-9 * at, at, at) for at in steps for name in names]
            client.log_batch(run, metrics=values)
    return time.perf_counter() - begin


def _filled(ledger: Path, entries: int) -> str:
    holdout = opened(ledger)
    for predictions in guesses(coins()[1], 1, 3):
        holdout.submit(predictions)
    fill(holdout, entries)
    holdout.submit(coins()[1])
    return str(ledger)


def _streamed(what: str, more: list[str], entries: int) -> float:
    command, *options = what.split()
    took, busy, memory = _command([command, "coins", *options, *more])
    say(f"{what} of {entries} entries", took, "s", 40.0, most=True)
    say(f"{what}, processor", busy, "s", most=True)
    say(f"{what}, memory of the process", memory, "MB", 300.0, most=True)
    return took


_COMMAND = """
import atexit, sys
from pathlib import Path
from ladderholdout.cli import app

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    Path(sys.argv[1]).write_text(next(one.split()[1] for one in lines if one[:5] == "VmHWM"))

atexit.register(peak)
app(sys.argv[2:])
"""


def _command(words: list[str]) -> tuple[float, float, float]:
    """Run a command; return its seconds, those of the processor, and its memory at most in MB."""
    with tempfile.NamedTemporaryFile() as file:
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        given = [sys.executable, "-c", _COMMAND, file.name, *words]
        subprocess.run(given, check=True, stdout=subprocess.DEVNULL)
        took, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return took, busy, int(Path(file.name).read_text()) / 1024


def _least(work: Callable[[], Any]) -> float:
    """Return the least of the seconds that something takes."""
    found = []
    for _ in range(9):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return min(found)


def _submission(holdout: LadderHoldout) -> float:
    """Return the median of the seconds that a submission takes."""
    found = []
    for predictions in guesses(coins()[1], 2, 400):
        begin = time.perf_counter()
        holdout.submit(predictions)
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


# A holdout


def holdout(folder: Path, largest: int) -> None:
    sizes = [size for size in (10_000, 100_000, 1_000_000, 10_000_000) if size <= largest]
    for n in sizes:
        X, y = coins(n, 2)  # the caller's, and so there before
        begin = time.perf_counter()
        with peak() as grown:
            made = LadderHoldout(
                X, y, scoring="accuracy", name="coins", ledger=folder / f"holdout-{n}.db"
            )
            say(f"registration of {n} rows", time.perf_counter() - begin, "s", most=True)
            say(f"registration of {n} rows, memory", grown(), "MB", most=True)
            if n >= 1_000_000:
                arrays = 16 * n / MEGABYTE  # two columns of float32, and the labels
                over = f"registration of {n} rows, memory over its arrays"
                bound = 2.0 if n >= 10_000_000 else None  # below, 4 MB of whatever size weigh more
                say(over, grown() / arrays, "", bound, most=True)
        times, peaks = [], []
        for predictions in guesses(y, 3, 6):
            with peak() as grown:
                begin = time.perf_counter()
                made.submit(predictions)
                times.append(time.perf_counter() - begin)
                peaks.append(grown())
        say(f"submission of {n} predictions", 1000 * min(times), "ms", most=True)
        if n >= 1_000_000:  # below, other things weigh more
            say(f"submission of {n} predictions, memory over its losses",
                statistics.median(peaks) * MEGABYTE / (8 * n), "", 3.0, most=True)  # fmt: skip
        Ledger(made.ledger)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the guard costs.")
    names = (
        "search",
        "commits",
        "floor",
        "profile",
        "postgres",
        "crowd",
        "ledger",
        "streams",
        "holdout",
    )
    parser.add_argument("sections", nargs="*", choices=[*names, []], default=[])
    parser.add_argument("--postgres", metavar="URL", help="a database that may be written to")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--exported", type=int, default=20_000, help="entries for MLflow")
    parser.add_argument("--rows", type=int, default=10_000_000)
    given = parser.parse_args()
    chosen = given.sections or [name for name in names if name != "streams"]  # in ledger
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        work: dict[str, Callable[[], None]] = {
            "search": lambda: search(folder),
            "commits": lambda: commits(folder),
            "floor": lambda: floor(folder),
            "profile": lambda: profile(folder),
            "postgres": lambda: postgres(given.postgres),
            "crowd": lambda: crowd(folder),
            "ledger": lambda: ledger(folder, given.entries, given.exported),
            "streams": lambda: streams(folder, given.entries, given.exported),
            "holdout": lambda: holdout(folder, given.rows),
        }
        for name in names:
            if name == "postgres" and given.postgres is None:
                if name in given.sections:
                    sys.exit("postgres needs --postgres URL")
                continue
            if name in chosen:
                work[name]()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process: {most:.0f} MB")
    sys.exit(bool(_missed))


if __name__ == "__main__":
    main()
