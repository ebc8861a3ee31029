"""Attacks a server with faults: it is killed in mid-submission, its disk fills, its database goes.

Whatever dies, each answer that a client saw is on record once, and clients go on by themselves.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from ladderholdout import LadderHoldout
from ladderholdout.errors import LedgerUnreachable
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.remote.wire import PROBLEM
from tests.support.disk import fill, mounted, only_root
from tests.support.ledgers import entries_of, entry_by_key, names, url_of
from tests.support.postgres import Server
from tests.support.processes import at_once
from tests.support.server import N, Running, free_port, registered, serving, start, token_of

pytestmark = pytest.mark.processes
CLIENTS, ACCOUNTS = 8, 4
SUBMISSIONS = "/v1/holdouts/churn/submit"

Seen = tuple[str, int, float, bool]
"""What a client saw: the key of its attempt, the number, the score, whether it improved."""


def submit_all(url: str, token: str, client: int, least: int, calm: Path) -> list[Seen]:
    """Submit guesses until the kills are over; this process is told of no restart."""
    holdout = LadderHoldout.connect(url, token, timeout=120)
    rng, seen = np.random.default_rng(client), []
    for turn in count():
        if turn >= least and calm.exists():
            return seen
        key = f"client {client} turn {turn}"
        found = holdout.__ladder__.submit(rng.integers(0, 2, N), Origin(key=key))  # type: ignore[attr-defined]
        seen.append((key, found.submission, found.score, found.improved))
    raise AssertionError("count() does not end")


@dataclass
class Supervised:
    """A server that is started again whenever it is killed, as a service manager does it."""

    ledger: Path | str
    folder: Path
    port: int = field(default_factory=free_port)
    kills: Counter[str] = field(default_factory=Counter)

    def start(self) -> Running:
        return start(self.ledger, self.folder, self.port, "--workers", "2")

    @property
    def calm(self) -> Path:
        """A file that is there when no more kills come: a fast server must not outrun them."""
        return self.folder / "calm"

    def torment(self, most: int, end: threading.Event) -> None:
        """Kill the server, or one of its workers, at random moments."""
        moments, running = random.Random(0), self.start()
        try:
            while not end.wait(moments.uniform(0.3, 3.0)) and self.kills.total() < most:
                workers = children(running.process.pid)
                if workers and moments.random() < 0.5:
                    self.kills["worker"] += 1
                    with suppress(ProcessLookupError):
                        os.kill(moments.choice(workers), signal.SIGKILL)
                else:
                    self.kills["server"] += 1
                    running.kill()
                    running = self.start()
            self.calm.touch()
            end.wait()
        finally:
            self.calm.touch()
            running.process.terminate()
            running.process.wait(60)


def children(process: int) -> list[int]:
    """Return the processes that a process has started to serve."""
    serve = []
    for one in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        with suppress(OSError):  # it was killed a moment ago, and is gone now
            if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes():
                serve.append(int(one))
    return serve


def storm(ledger: Path | str, folder: Path, submissions: int, kills: int) -> None:
    registered(ledger)
    tokens = [token_of(ledger, f"account {at}") for at in range(ACCOUNTS)]
    supervised, end = Supervised(ledger, folder), threading.Event()
    url, each = f"http://127.0.0.1:{supervised.port}/holdouts/churn", submissions // CLIENTS
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(supervised.torment, kills, end)
        try:
            calls = [
                (submit_all, url, tokens[at % ACCOUNTS], at, each, supervised.calm)
                for at in range(CLIENTS)
            ]
            seen: list[list[Seen]] = at_once(calls, patience=500)
        finally:
            end.set()
        killing.result(120)
    assert supervised.kills.total() == kills
    retried = check(ledger, seen)
    log = (folder / "server.log").read_text()
    assert '"status":500' not in log.replace(" ", "")
    answered = sum(map(len, seen))
    print(f"{answered} submissions, killed {dict(supervised.kills)}, {retried} recorded retries")


def check(ledger: Path | str, seen: list[list[Seen]]) -> int:
    """Compare what clients saw with what is on record; return how many retries were repeats."""
    url, retried = url_of(ledger), 0
    metric = LadderHoldout.open("churn", ledger=ledger).metric
    assert names(url) == ["churn"]
    for account in range(ACCOUNTS):
        holdout = LadderHoldout.open("churn", account=f"account {account}", ledger=ledger)
        entries = entries_of(holdout)
        assert [one.number for one in entries] == list(range(1, len(entries) + 1))
        answers = [one for client in seen[account::ACCOUNTS] for one in client]
        assert len({number for _, number, *_ in answers}) == len(answers)
        for key, number, score, improved in answers:
            digest = hashlib.sha256(f"http {key}".encode()).hexdigest()
            first, found = entry_by_key(holdout, digest), entries[number - 1]
            assert first is not None and first.repeat_of is None
            assert found.number == first.number or found.repeat_of == first.number
            assert (metric.to_score(first.risk), first.improved) == (score, improved)
        # Each attempt is on record once; all else are repeats of one, by its retries.
        steps = [one.number for one in entries if one.repeat_of is None]
        assert len(steps) == len(answers)
        assert {one.repeat_of for one in entries} - {None} <= set(steps)
        retried += len(entries) - len(steps)
        for client in seen[account::ACCOUNTS]:  # each client's own order is that of the record
            assert [one[1] for one in client] == sorted(one[1] for one in client)
    assert verify_holdout(url, "churn").findings == ()  # the chain, and every release again
    return retried


SOME = pytest.param(48, 2, id="some")
ALL = pytest.param(5000, 24, id="all", marks=pytest.mark.nightly)


@pytest.mark.parametrize(("submissions", "kills"), [SOME, ALL])
def test_killed_at_random_a_file_holds_every_answer_once(
    tmp_path: Path, submissions: int, kills: int
) -> None:
    storm(tmp_path / "ledger.db", tmp_path, submissions, kills)


@pytest.mark.nightly
@pytest.mark.parametrize(("submissions", "kills"), [ALL])
def test_killed_at_random_postgresql_holds_every_answer_once(
    database: str, tmp_path: Path, submissions: int, kills: int
) -> None:
    storm(database, tmp_path, submissions, kills)


# -- clients that do harm -----------------------------------------------------------------


@contextmanager
def one_analyst(folder: Path, *flags: str) -> Iterator[tuple[Running, str]]:
    registered(folder / "ledger.db")
    token = token_of(folder / "ledger.db", "ada")
    with serving(folder / "ledger.db", folder, *flags) as server:
        yield server, token


def submitted(server: Running, token: str, seed: int) -> requests.Response:
    guess = np.random.default_rng(seed).integers(0, 2, N).tolist()
    found = server.ask("POST", SUBMISSIONS, token, json={"predictions": guess})
    assert isinstance(found, requests.Response)
    return found


def head(token: str, *more: str) -> bytes:
    stated = [f"Authorization: Bearer {token}", "Content-Type: application/json", *more]
    return "\r\n".join([f"POST {SUBMISSIONS} HTTP/1.1", "Host: a", *stated, "", ""]).encode()


def test_requests_that_do_harm_leave_the_server_to_others(tmp_path: Path) -> None:
    """Idle, half-sent, slow and endless requests, all at the same time."""
    with one_analyst(tmp_path, "--max-body", "1") as (server, token), ExitStack() as stack:
        port, end = int(server.url.rpartition(":")[2]), threading.Event()

        def connected() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))

        for _ in range(200):  # say nothing
            connected()
        for _ in range(50):  # say half of it, in the head or in the body
            connected().sendall(head(token, "Content-Length: 9000")[:60])
            connected().sendall(head(token, "Content-Length: 9000") + b'{"pred')
            connected().sendall(head(token, "Transfer-Encoding: chunked") + b"5\r\n{")

        def drip(one: socket.socket) -> None:
            with suppress(OSError):
                one.sendall(head(token, "Content-Length: 9000"))
                while not end.wait(1.0):
                    one.sendall(b" ")

        slow = [threading.Thread(target=drip, args=(connected(),)) for _ in range(10)]
        for one in slow:
            one.start()
        try:
            for turn in range(4):
                large = connected(), connected()
                large[0].sendall(head(token, f"Content-Length: {10**9}") + b" " * 1000)
                large[1].sendall(head(token, "Transfer-Encoding: chunked"))
                with suppress(OSError):
                    for _ in range(20):
                        large[1].sendall(b"20000\r\n" + b" " * 0x20000 + b"\r\n")
                for one_of_them in large:
                    with suppress(ConnectionError):
                        found = one_of_them.recv(1000)
                        assert not found or b" 413 " in found
                assert submitted(server, token, turn).json()["submission"] == turn + 1
                assert server.ask("POST", "/v1/holdouts/churn/status", token).status_code == 200
        finally:
            end.set()
            for one in slow:
                one.join()
    assert submitted_in(tmp_path / "ledger.db") == 4


def submitted_in(ledger: Path | str) -> int:
    assert verify_holdout(url_of(ledger), "churn").findings == ()
    return LadderHoldout.open("churn", account="ada", ledger=ledger).status().submissions


# -- a full disk, a database that goes away ---------------------------------------------


def refused(answer: requests.Response) -> None:
    """Check that a server says that it cannot, and nothing of its machine."""
    assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
    assert answer.headers["retry-after"] == "1"
    assert "disk" not in answer.text and "/" not in answer.json()["detail"]


@only_root
def test_on_a_full_disk_others_are_answered_and_nothing_is_half_written(tmp_path: Path) -> None:
    with mounted(tmp_path, megabytes=4) as disk, one_analyst(disk) as (server, token):
        for turn in range(5):
            assert submitted(server, token, turn).status_code == 200
        ballast = fill(disk, 0)
        answers = [submitted(server, token, 100 + turn) for turn in range(40)]
        assert answers[-1].status_code == 503  # the file may have had some room
        for one in answers:
            if one.status_code != 200:
                refused(one)
        recorded = 5 + sum(one.status_code == 200 for one in answers)
        for what in ("describe", "status", "history", "certificate"):
            assert server.ask("POST", f"/v1/holdouts/churn/{what}", token).status_code == 200
        assert server.ask("POST", "/v1/holdouts/churn/describe", "lh_wrong").status_code == 401
        ballast.unlink()
        # What was refused comes again, as a client would have it, and is recorded now.
        again = submitted(server, token, 139)
        assert again.json()["submission"] == recorded + 1
        assert submitted_in(disk / "ledger.db") == recorded + 1


def test_a_database_that_goes_away_is_waited_for(tmp_path: Path, postgres: Server) -> None:
    ledger = postgres.database()
    registered(ledger)
    token = token_of(ledger, "ada")
    with serving(f"{ledger}&timeout=1", tmp_path) as server:
        assert submitted(server, token, 0).json()["submission"] == 1
        postgres.stop()
        try:
            with ThreadPoolExecutor(50) as pool:  # more than the server has threads
                asked = [pool.submit(submitted, server, token, turn) for turn in range(1, 51)]
                for _ in range(5):
                    assert server.ask("GET", "/healthz").status_code == 200
                for one in asked:
                    refused(one.result())
            refused(server.ask("POST", "/v1/holdouts/churn/status", token))
            url = f"{server.url}/holdouts/churn"
            with pytest.raises(LedgerUnreachable, match="did not answer for 1 seconds"):
                LadderHoldout.connect(url, token, timeout=1)
            # One that is patient goes on by itself when the database is back.
            waiting = ThreadPoolExecutor(1).submit(patient, url, token)
            time.sleep(1)
        finally:
            postgres.start()
        assert waiting.result(60).submission == 2
        assert submitted(server, token, 3).json()["submission"] == 3
    assert submitted_in(ledger) == 3


def patient(url: str, token: str) -> Any:
    holdout = LadderHoldout.connect(url, token, timeout=60)
    return holdout.submit(np.random.default_rng(2).integers(0, 2, N))
