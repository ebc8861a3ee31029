"""How often a submission goes to a PostgreSQL server and back, in each use of the guard.

    python benchmarks/trips.py                      # a server, started for this
    python benchmarks/trips.py --delay 20           # milliseconds to the server, and back

A relay before the server delays both ways. A trip is counted whenever the library sends after it
has received something: what it sends without waiting for an answer is one trip.
"""

from __future__ import annotations

import argparse
import queue
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from guard import bare_commits_on_postgres, guesses, make_bare_tables
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.integrations.lightgbm import ladder_stopping
from ladderholdout.mechanisms import FullDisclosure

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.postgres import Server, name_of, server

ROWS = 1000


class Relay:
    """A socket before the server's own that is far away from it, and counts trips."""

    def __init__(self, server: Server, delay: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ladderholdout-far-"))
        self._server, self._delay = server, delay
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self.trips, self._answered = 0, True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(str(self._server.folder / ".s.PGSQL.5432"))
            for source, target, sends in ((client, theirs, True), (theirs, client, False)):
                threading.Thread(
                    target=self._carry, args=(source, target, sends), daemon=True
                ).start()

    def _carry(self, source: socket.socket, target: socket.socket, sends: bool) -> None:
        """Hand on what comes from one side, each piece so long after it came."""
        waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def hand_on() -> None:
            while True:
                due, piece = waiting.get()
                time.sleep(max(0.0, due - time.perf_counter()))
                if not sends:
                    self._answered = True
                with suppress(OSError):
                    target.sendall(piece)

        threading.Thread(target=hand_on, daemon=True).start()
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                if sends and self._answered:
                    self.trips, self._answered = self.trips + 1, False
                waiting.put((time.perf_counter() + self._delay, piece))


def measure(far: Callable[[], str], relay: Relay) -> None:
    """Print the trips of each use, on a ladder and a database of its own."""
    X, y = make_classification(ROWS + 200, 6, flip_y=0.1, random_state=0)
    train, held = slice(0, 200), slice(200, None)
    X_train, y_train, X, y = X[train], y[train], X[held], y[held]

    def opened(**settings: Any) -> LadderHoldout:
        settings = {"scoring": "accuracy", "name": "far", "ledger": far(), **settings}
        return LadderHoldout(X, y, **settings)

    def say(what: str, work: Callable[[], Any], submissions: int = 1) -> None:
        begun, before = time.perf_counter(), relay.trips
        work()
        took = 1000 * (time.perf_counter() - begun) / submissions
        trips = (relay.trips - before) / submissions
        print(f"{what:<62}{trips:>8.2f} trips{took:>8.1f} ms", flush=True)

    def submit(holdout: LadderHoldout, seed: int, count: int = 20) -> None:
        for guess in guesses(y, seed, count):
            holdout.submit(guess)

    url = far()
    make_bare_tables(url)
    with bare_commits_on_postgres(url, 1) as commit:
        say("an entry and a ladder, by the driver alone", lambda: [commit() for _ in range(20)], 20)

    one = opened(mechanism=FullDisclosure())
    submit(one, 1, 3)
    say("a query, where one process submits", lambda: submit(one, 2), 20)
    say("its repeat", lambda: submit(one, 2), 20)
    # With another timeout it is another place to the library: with connections of its own.
    other = LadderHoldout.open("far", ledger=f"{one.ledger}&timeout=77")
    submit(other, 3, 3)
    both = [one, other]

    def in_turn(seed: int) -> None:
        for at, guess in enumerate(guesses(y, seed, 20)):
            both[at % 2].submit(guess)

    in_turn(4)
    say("a query, where two submit in turn", lambda: in_turn(5), 20)
    say("its repeat", lambda: in_turn(5), 20)

    one = opened(reserve=0.3)
    submit(one, 1, 3)
    say("a query of a holdout with a reserve", lambda: submit(one, 2), 20)

    several = opened(scoring=["accuracy", "f1", "roc_auc"])

    def submit_several(seed: int) -> None:
        for guess in guesses(y, seed, 20):
            several.submit({"labels": guess, "scores": guess + np.arange(len(y)) / len(y)})

    submit_several(1)
    say("a query by three metrics", lambda: submit_several(2), 20)

    one = opened()

    def search(seed: int) -> None:
        tree = DecisionTreeClassifier(max_features=2, random_state=seed)
        depths = {"max_depth": range(1, 21)}
        GridSearchCV(tree, depths, scoring=one, cv=one.split(), refit=False).fit(X_train, y_train)

    search(1)
    say("a candidate of a search of 20", lambda: search(2), 20)

    one = opened()

    def train_one(seed: int) -> int:
        rule = ladder_stopping(one, patience=10)
        settings = {"subsample": 0.5, "subsample_freq": 1, "random_state": seed, "verbose": -1}
        LGBMClassifier(n_estimators=40, **settings).fit(X_train, y_train, callbacks=[rule])
        return rule.stopping.rounds

    train_one(1)
    before, rounds = relay.trips, train_one(2)
    what = f"early stopping of LightGBM after {rounds} rounds"
    print(f"{what:<62}{relay.trips - before:>8.2f} trips")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay", type=float, default=5.0, help="milliseconds, each way")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    with server() as running:
        relay = Relay(running, asked.delay / 1000)
        measure(lambda: running.url(name_of(running.database()), relay.folder), relay)


if __name__ == "__main__":
    main()
