"""Attacks decisions from outside: exit codes, and the same answers here, over HTTP and by MCP."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from mcp import Client, StdioServerParameters, stdio_client
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.mechanisms import GateLadder
from ladderholdout.server.accounts import add_account
from tests.support import server

N = server.N
Y = server.rows()[1]


def right_on(count: int, y: NDArray[np.int64] = Y) -> NDArray[np.int64]:
    return np.where(np.arange(N) < count, y, 1 - y)


def written(folder: Path, count: int, y: NDArray[np.int64] = Y) -> str:
    path = folder / f"{count}.csv"
    path.write_text("prediction\n" + "\n".join(map(str, right_on(count, y))) + "\n")
    return str(path)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    server.registered(tmp_path / "ledger.db", mechanism=GateLadder(horizon=3))
    return tmp_path / "ledger.db"


def gate(ledger: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["gate", "churn", *words, "--ledger", str(ledger)])


def test_the_exit_status_says_what_to_do(ledger: Path, tmp_path: Path) -> None:
    files = {count: written(tmp_path, count) for count in (250, 252, 300, 302, 399)}
    assert gate(ledger, files[250]).exit_code == 0, "the baseline"
    refused = gate(ledger, files[252])
    assert refused.exit_code == 1 and "not shown to be better than submission 1" in refused.output
    found = gate(ledger, files[300], "--margin", "0.02", "--json", "--context", "idea=trees")
    assert found.exit_code == 0
    assert json.loads(found.output) == {
        "accepted": True,
        "submission": 3,
        "spent": False,
        "reason": "It is better than submission 1 by more than 0.02.",
        "incumbent": 3,
    }
    assert gate(ledger, files[302]).exit_code == 1
    spent = gate(ledger, files[399])
    assert spent.exit_code == 3 and "Nothing is accepted any more" in spent.output


def test_what_is_refused_ends_with_another_status(ledger: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.csv"
    short.write_text("prediction\n1\n0\n")
    file = written(tmp_path, 250)
    for words in (
        [str(short)],
        [str(tmp_path / "none.csv")],
        [file, "--margin", "2"],
        [file, "--ladder", "other"],
        [file, "--colour", "red"],
        [],
    ):
        assert gate(ledger, *words).exit_code == 2, words
    server.registered(ledger, name="plain", seed=1)
    words = ["gate", "plain", file, "--ledger", str(ledger), "--json"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 2
    assert json.loads(found.stderr)["kind"] == "HoldoutConflict"
    assert LadderHoldout.open("churn", ledger=ledger).status().submissions == 0
    # Another command ends with 1, as ever.
    assert CliRunner().invoke(app, ["status", "nobody", "--ledger", str(ledger)]).exit_code == 1


COUNTS = [250, 252, 310, 310, 305, 250, 360, 399]
MARGINS = [None, None, 0.05, 0.05, None, None, 0.01, None]


def by_mcp(url: str, token: str, folder: Path) -> list[dict[str, Any]]:
    """Decide by a process of another user of the machine, who may not read the ledger."""
    program = (
        "import os, sys\n"
        # Python itself is in a folder that this user may not read: all is imported before.
        "import anyio._backends._asyncio, encodings.idna, mcp.server.stdio\n"
        "from ladderholdout.cli import agents, app\n"
        "import ladderholdout.remote.ladder\n"
        "os.setgroups([]), os.setgid(65534), os.setuid(65534)\n"
        "for path in os.environ.pop('HIDDEN').split('|'):\n"
        "    try:\n"
        "        open(path, 'rb').read()\n"
        "    except PermissionError:\n"
        "        print('refused', file=sys.stderr)\n"
        "app()\n"
    )
    hidden = "|".join(str(path) for path in sorted(folder.rglob("*")) if path.is_file())
    stated = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    stated |= {"LADDERHOLDOUT_TOKEN": token, "HIDDEN": hidden, "HOME": "/nonexistent"}
    words = ["-c", program, "mcp", "--server", url]
    parameters = StdioServerParameters(command=sys.executable, args=words, env=stated)
    log = folder.parent / "mcp.log"

    async def talk() -> list[dict[str, Any]]:
        found = []
        with log.open("w") as errors:
            async with Client(stdio_client(parameters, errors)) as client:
                for count, margin in zip(COUNTS, MARGINS, strict=True):
                    given = {"predictions": right_on(count).tolist(), "margin": margin}
                    answer = await client.call_tool("decide", given)
                    assert not answer.is_error, answer.content
                    found.append(dict(answer.structured_content))
                # Decisions without end: none of these candidates is better.
                rng = np.random.default_rng(3)
                for _ in range(40):
                    guess = rng.integers(0, 2, N).tolist()
                    answer = await client.call_tool("decide", {"predictions": guess})
                    assert not answer.structured_content["accepted"]
                refused = await client.call_tool("decide", {"predictions": [1], "margin": 7})
                assert refused.is_error
        return found

    found = asyncio.run(talk())
    assert log.read_text().count("refused") == len(hidden.split("|")) >= 2
    for answer in found:
        assert answer.pop("warnings") == []
    return found


def by_client(url: str, token: str, folder: Path) -> list[dict[str, Any]]:
    holdout = LadderHoldout.connect(f"{url}/holdouts/churn", token)
    asked = zip(COUNTS, MARGINS, strict=True)
    return [asdict(holdout.gate(right_on(count), margin=margin)) for count, margin in asked]


def by_http(url: str, token: str, folder: Path) -> list[dict[str, Any]]:
    """Decide as a program without this library does: by JSON and by CSV, with a retry."""
    address, found = f"{url}/v1/holdouts/churn/decisions", []

    def ask(where: str, **sent: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"} | sent.pop("headers", {})
        return requests.post(where, headers=headers, timeout=60, **sent)

    for place, (count, margin) in enumerate(zip(COUNTS, MARGINS, strict=True)):
        where = address if margin is None else f"{address}?margin={margin}"
        if place % 2:
            rows = "prediction\n" + "\n".join(map(str, right_on(count)))
            answer = ask(where, data=rows, headers={"Content-Type": "text/csv"})
        else:
            answer = ask(where, json={"predictions": right_on(count).tolist()})
        found.append(answer.json())
    body = {"predictions": right_on(COUNTS[-1]).tolist()}
    for margin in ("2", "x"):
        refused = ask(f"{address}?margin={margin}", json=body)
        assert refused.status_code == 422 and "margin must be" in refused.json()["detail"]
    # A retry under the same key is the same attempt, and what was accepted is so still.
    key = {"Idempotency-Key": "again"}
    tried = [ask(address, json=body, headers=key).json() for _ in range(2)]
    assert [decision["accepted"] for decision in tried] == [True, True]
    assert tried[0]["reason"] == tried[1]["reason"]
    # Others under that key were compared with nothing, and are not accepted in its name.
    other = ask(address, json={"predictions": right_on(0).tolist()}, headers=key).json()
    assert not other["accepted"] and "not shown to be better" in other["reason"]
    return found


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="Root alone may be another user.")
def test_decisions_are_the_same_here_over_http_and_by_mcp(tmp_path: Path) -> None:
    """Each way has a ledger of its own, for decisions on the same rows count together."""
    home = server.registered("memory:same decisions", mechanism=GateLadder())
    asked = zip(COUNTS, MARGINS, strict=True)
    local = [asdict(home.gate(right_on(count), margin=margin)) for count, margin in asked]
    flags = [True, False, True, True, False, False, True, True]
    assert [decision["accepted"] for decision in local] == flags
    for way in (by_client, by_http, by_mcp):
        folder = tmp_path / way.__name__ / "private"
        folder.mkdir(mode=0o700, parents=True)
        ledger = folder / "ledger.db"
        server.registered(ledger, mechanism=GateLadder())
        token = add_account(str(ledger), "churn", "bot", "program").token
        with server.serving(ledger, folder) as running:
            assert way(running.url, token, folder) == local, way.__name__
        held = LadderHoldout.open("churn", account="bot", ledger=ledger)
        assert {submission.score for submission in held.history()} == {None}
        assert held.rules.mechanism == GateLadder()


@pytest.mark.processes
def test_a_program_is_shown_improvements_alone_and_its_limit_ends_a_gate(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    server.registered(ledger)
    token = add_account(str(ledger), "churn", "bot", "program").token
    _, y = server.rows(1)
    server.registered(ledger, "limited", 1, mechanism=GateLadder())
    few = add_account(str(ledger), "limited", "bot", "program", per_day=1).token
    with server.serving(ledger, tmp_path) as running:
        release = LadderHoldout.connect(running.url, token).submit(right_on(300))
        assert release.score is None and release.improved
        codes = [
            CliRunner()
            .invoke(
                app,
                ["gate", "limited", written(tmp_path, count, y), "--server", running.url],
                env={"LADDERHOLDOUT_TOKEN": few},
            )
            .exit_code
            for count in (300, 390)
        ]
    assert codes == [0, 3]
