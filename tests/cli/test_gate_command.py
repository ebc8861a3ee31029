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
from ladderholdout.errors import MetricError
from ladderholdout.mechanisms import GateLadder
from ladderholdout.remote import connection
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
    first = gate(ledger, files[250], "--baseline")
    assert first.exit_code == 0 and "It is the baseline" in first.output
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
        "unchanged": False,
        "baseline": False,
    }
    # A loop that starts again asks for a baseline, and has none: that is no reason to keep.
    same = gate(ledger, files[300], "--baseline")
    assert same.exit_code == 5 and "alters no prediction" in same.output
    assert gate(ledger, files[302]).exit_code == 1
    spent = gate(ledger, files[399])
    assert spent.exit_code == 3 and "Nothing is accepted any more" in spent.output


def test_what_was_compared_with_nothing_is_not_kept(ledger: Path, tmp_path: Path) -> None:
    found = gate(ledger, written(tmp_path, 250), "--json")
    answer = json.loads(found.output)
    assert (found.exit_code, answer["accepted"], answer["baseline"]) == (6, False, True)
    assert gate(ledger, written(tmp_path, 300)).exit_code == 0


def test_a_file_for_earlier_rows_is_refused(ledger: Path, tmp_path: Path) -> None:
    """As many fresh rows took the place of the first: a count cannot tell them."""
    file = written(tmp_path, 250)
    assert gate(ledger, file, "--baseline", "--block", "1").exit_code == 0
    X, y = server.rows(7)
    fresh = LadderHoldout.open("churn", ledger=ledger).replenish(X, y)
    for words in ([], ["--baseline"], ["--block", "1"], ["--block", "3"]):
        refused = gate(ledger, file, *words)
        assert refused.exit_code == 2 and "--block must be 2" in " ".join(refused.output.split())
        asked = ["submit", "churn", file, *words[-2:], "--ledger", str(ledger)]
        assert words == ["--baseline"] or CliRunner().invoke(app, asked).exit_code == 1
    assert fresh.status().submissions == 0
    assert gate(ledger, file, "--baseline", "--block", "2").exit_code == 0


def test_a_file_with_ids_names_its_rows(tmp_path: Path) -> None:
    ledger, (X, y) = tmp_path / "ledger.db", server.rows()
    names = [[f"{block}-{row}" for row in range(N)] for block in (1, 2)]
    holdout = LadderHoldout(
        X,
        y,
        scoring="accuracy",
        name="churn",
        ids=names[0],
        mechanism=GateLadder(),
        ledger=ledger,
    )
    fresh, y = server.rows(7)
    holdout.replenish(fresh, y, ids=names[1])
    for block, status in ((0, 2), (1, 0)):
        file = tmp_path / f"{block}.csv"
        lines = (f"{name},{answer}" for name, answer in zip(names[block], y, strict=True))
        file.write_text("id,prediction\n" + "\n".join(lines) + "\n")
        assert gate(ledger, str(file), "--ids", "id", "--baseline").exit_code == status


def _fails(*_: Any, **__: Any) -> Any:
    raise MetricError("the judge gave no verdict")


def _breaks(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a fault of the library")


@pytest.mark.parametrize("fault", [_fails, _breaks])
def test_what_is_not_decided_is_no_answer(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    """A server that is away, a ledger that is locked, a judge or a library that failed."""
    file = written(tmp_path, 250)
    monkeypatch.setenv("LADDERHOLDOUT_TOKEN", "token")
    monkeypatch.setattr(connection, "_pauses", lambda: iter([1e9]))  # no second attempt
    away = ["gate", "churn", file, "--server", "http://127.0.0.1:1"]
    no_server = CliRunner().invoke(app, away)
    assert no_server.exit_code == 4 and "127.0.0.1:1" in no_server.output
    monkeypatch.setattr(LadderHoldout, "gate", fault)
    failed = gate(ledger, file)
    assert failed.exit_code == 4 and ("the judge gave" in failed.output) == (fault is _fails)
    (tmp_path / "ledger.db").write_bytes(b"no database, and longer than a header" * 9)
    assert gate(ledger, file).exit_code == 4


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
                for place, (count, margin) in enumerate(zip(COUNTS, MARGINS, strict=True)):
                    given = {"predictions": right_on(count).tolist(), "margin": margin}
                    given |= {"baseline": True} if place == 0 else {}
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


def in_turn(holdout: LadderHoldout) -> list[dict[str, Any]]:
    asked = enumerate(zip(COUNTS, MARGINS, strict=True))
    return [
        asdict(holdout.gate(right_on(count), margin=margin, baseline=place == 0))
        for place, (count, margin) in asked
    ]


def by_client(url: str, token: str, folder: Path) -> list[dict[str, Any]]:
    holdout = LadderHoldout.connect(f"{url}/holdouts/churn", token)
    return in_turn(holdout)


def by_http(url: str, token: str, folder: Path) -> list[dict[str, Any]]:
    """Decide as a program without this library does: by JSON and by CSV, with a retry."""
    address, found = f"{url}/v1/holdouts/churn/decide", []

    def ask(where: str, **sent: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"} | sent.pop("headers", {})
        return requests.post(where, headers=headers, timeout=60, **sent)

    for place, (count, margin) in enumerate(zip(COUNTS, MARGINS, strict=True)):
        key, stated = f"candidate {place}", {} if place else {"baseline": True}
        if margin is not None:
            stated["margin"] = margin
        if place % 2:
            rows = "prediction\n" + "\n".join(map(str, right_on(count)))
            sent = {"data": rows, "headers": {"Content-Type": "text/csv"}}
            answer = ask(address, params={"key": key, **stated}, **sent)
        else:
            predictions = right_on(count).tolist()
            answer = ask(address, json={"predictions": predictions, "key": key, **stated})
        found.append(answer.json())
    body = {"predictions": right_on(COUNTS[-1]).tolist()}
    for name, value in (("margin", "2"), ("margin", "x"), ("baseline", "1")):
        refused = ask(f"{address}?{name}={value}", json=body)
        assert refused.status_code == 422 and f"{name} must be" in refused.json()["detail"]
    # A retry under the same key is the same attempt, and what was accepted is so still.
    tried = [ask(address, json=body | {"key": key}).json() for _ in range(2)]
    assert [decision["accepted"] for decision in tried] == [True, True]
    assert {decision["reason"] for decision in (*tried, found[-1])} == {found[-1]["reason"]}
    # Others under that key were compared with nothing, and are not accepted in its name.
    other = ask(address, json={"predictions": right_on(0).tolist(), "key": key}).json()
    assert not other["accepted"] and "not shown to be better" in other["reason"]
    return found


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="Root alone may be another user.")
def test_decisions_are_the_same_here_over_http_and_by_mcp(tmp_path: Path) -> None:
    """Each way has a ledger of its own, for decisions on the same rows count together."""
    home = server.registered("memory:same decisions", mechanism=GateLadder())
    local = in_turn(home)
    flags = [True, False, True, False, False, False, True, True]
    assert [decision["accepted"] for decision in local] == flags
    assert [decision["unchanged"] for decision in local].index(True) == 3
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
    server.registered(ledger, "limited", 1, mechanism=GateLadder())
    few = add_account(str(ledger), "limited", "bot", "program", per_day=1).token
    with server.serving(ledger, tmp_path) as running:
        release = LadderHoldout.connect(running.url, token).submit(right_on(300))
        assert release.score is None and release.improved
        words = ["--baseline", "--server", running.url]
        codes = [
            CliRunner()
            .invoke(
                app,
                ["gate", "limited", written(tmp_path, count), *words],
                env={"LADDERHOLDOUT_TOKEN": few},
            )
            .exit_code
            for count in (300, 390)
        ]
    assert codes == [0, 3]
