"""A real server for the tests: a process of its own, real HTTP, a ledger in a file.

It is a fork of a process that has imported the command line (`forks`), unless a test asks for the
command as people start it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import requests
from numpy.typing import NDArray

from ladderholdout import LadderHoldout
from ladderholdout.guard import commands
from ladderholdout.server.accounts import add_account
from ladderholdout.server.bodies import Sent, Space, command_in
from tests.support.forks import FORKS, Forked

COMMAND = Path(sys.executable).with_name("ladder-holdout")
PROGRAM = "import sys; from ladderholdout.cli import app; app()"
PATIENCE = 60.0
N = 400
FORM_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


@dataclass(slots=True)
class Running:
    """A server that answers."""

    url: str
    process: subprocess.Popen[bytes] | Forked
    log: Path

    def ask(self, method: str, path: str, token: str | None = None, **request: Any) -> Any:
        headers = dict(request.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return requests.request(method, self.url + path, headers=headers, timeout=60, **request)

    def kill(self) -> None:
        """Kill the server with its workers, as a service manager does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def begun(words: list[str], log: Path, own_group: bool, forked: bool) -> Any:
    """Start the command with these words; what it prints goes to the end of a log."""
    if forked:
        log.touch()
        return FORKS.start(words, log, own_group)
    with log.open("ab") as opened:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdout=opened,
            stderr=opened,
            start_new_session=own_group,
        )


def start(ledger: Path | str, folder: Path, port: int, *flags: str, forked: bool = True) -> Running:
    """Start a server and wait until it answers."""
    log = folder / "server.log"
    words = ["serve", "--ledger", str(ledger), "--port", str(port), *flags]
    # In a group of its own, which is killed together.
    process = begun(words, log, own_group=True, forked=forked)
    scheme = "https" if "--tls-cert" in flags else "http"
    found, end = Running(f"{scheme}://127.0.0.1:{port}", process, log), time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            if requests.get(found.url + "/healthz", timeout=5, verify=False).ok:
                return found
        except (requests.ConnectionError, requests.Timeout):  # it may take long to begin
            time.sleep(0.02)
    process.kill()
    raise RuntimeError(log.read_text())


@contextmanager
def local_pages(ledger: Path | str, folder: Path) -> Iterator[tuple[Running, str]]:
    """The pages of one person, and the address that was printed for a browser."""
    log = folder / "ui.log"
    log.write_bytes(b"")
    words = ["ui", "--ledger", str(ledger), "--no-browser"]
    process = begun(words, log, own_group=False, forked=True)
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and process.poll() is None:
            if found := re.search(r"(http://[^/\s]+)/enter\S+(?=\n)", log.read_text()):
                yield Running(found[1], process, log), found[0]
                return
            time.sleep(0.05)
        raise RuntimeError(log.read_text())
    finally:
        process.terminate()
        process.wait(PATIENCE)


class Visitor:
    """Somebody with a browser that runs no JavaScript.

    The token of a form is taken from the page that was shown last.
    """

    def __init__(self, server: Running, token: str | None = None) -> None:
        self.server, self.session, self.page = server, requests.Session(), ""
        if token is not None:
            self.get("/sign-in")
            self.post("/sign-in", token=token)

    def get(self, path: str, **request: Any) -> requests.Response:
        return self._seen(self.session.get(self.server.url + path, **self._with(request)))

    def post(self, path: str, file: Any = None, **fields: Any) -> requests.Response:
        request = self._with(fields.pop("request", {}))
        if "form_token" not in fields and (found := FORM_TOKEN.search(self.page)):
            fields["form_token"] = found[1]
        files = None if file is None else {"file": file}
        address = self.server.url + path
        return self._seen(self.session.post(address, data=fields, files=files, **request))

    def _with(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"timeout": 60, "allow_redirects": False} | request

    def _seen(self, answer: requests.Response) -> requests.Response:
        if FORM_TOKEN.search(answer.text):
            self.page = answer.text
        return answer


@contextmanager
def serving(
    ledger: Path | str, folder: Path, *flags: str, forked: bool = True
) -> Iterator[Running]:
    """Serve a ledger for the length of a block."""
    running = start(ledger, folder, free_port(), *flags, forked=forked)
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.wait(PATIENCE)


def rows(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows whose first feature tells something of the labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 4))
    return X, (X[:, 0] + rng.normal(size=N) > 0).astype(np.int64)


def registered(
    ledger: Path | str, name: str = "churn", seed: int = 0, **stated: Any
) -> LadderHoldout:
    """Register a holdout, on rows that no other has."""
    X, y = rows(seed)
    return LadderHoldout(X, y, name=name, ledger=ledger, **({"scoring": "accuracy"} | stated))


def token_of(ledger: Path | str, name: str, role: str = "analyst", **limits: Any) -> str:
    holdout = limits.pop("holdout", "churn")
    return add_account(str(ledger), holdout, name, role, **limits).token


def in_quarters(y: NDArray[np.int64]) -> NDArray[np.int64]:
    """Other labels, of which constant predictions on quarters of the rows score the same."""
    rng = np.random.default_rng(9)
    return np.concatenate([rng.permutation(one) for one in y.reshape(4, -1)])


@dataclass(frozen=True, slots=True)
class Trial:
    """The same submissions to a holdout with these labels, and tokens of every role.

    Attributes
    ----------
    ledger : Path
    y : ndarray of int, shape (N,)
    tokens : list of str
        Of an analyst, an owner and a reader, in this order.
    given : list of ndarray
        Predictions; quarters of the rows are right or wrong together.
    """

    ledger: Path
    y: NDArray[np.int64]
    tokens: list[str]
    given: list[NDArray[np.int64]]

    def check(self, texts: Iterable[str]) -> None:
        """Find no score in these texts but those that were released."""
        raw = {float((one == self.y).mean()) for one in self.given}
        held = LadderHoldout.open("churn", account="analyst", ledger=self.ledger)
        unreleased = raw - {one.score for one in held.history()}
        assert unreleased
        for text in texts:
            for score in unreleased:
                assert not re.search(rf"\b{score:.4f}|\b{1 - score:.4f}", text)


def trial(folder: Path, y: NDArray[np.int64]) -> Trial:
    """Register a holdout with these labels in a new folder, with an account of each role."""
    folder.mkdir()
    ledger = folder / "ledger.db"
    LadderHoldout(rows()[0], y, scoring="accuracy", name="churn", ledger=ledger, vault=folder)
    tokens = [token_of(ledger, role, role) for role in ("analyst", "owner", "reader")]
    quarters = np.repeat([[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1]], N // 4, axis=1)
    return Trial(ledger, y, tokens, [*quarters, *(1 - quarters), quarters[0]])


def submission_in(
    data: bytes, media: str, wanted: Any, space: Space, ids: str | None = None, *, kind: Any = None
) -> Any:
    """Read a submission, or another command with predictions, as a server reads its body."""
    query = {} if ids is None else {"ids": ids}
    sent = Sent(data, media, query)
    return command_in(kind or commands.Submit, sent, space, wanted)
