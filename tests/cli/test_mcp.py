"""Attacks the tools for agents before a real server.

Two tests talk to real processes on their standard streams. The others have the same client and
the same server of the protocol in this process, joined in memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.shared.memory import create_client_server_memory_streams
from pyarrow import ipc

from ladderholdout.cli import agents, app
from ladderholdout.cli.files import predictions_from
from ladderholdout.errors import InvalidArgument
from ladderholdout.metrics import get_metric
from ladderholdout.remote.tables import Form
from ladderholdout.server.accounts import revoke_token
from tests.support import server
from tests.support.commands import CliRunner

pytestmark = pytest.mark.processes

# Patience of a second: a test waits for a server that is gone.
PROGRAM = "from ladderholdout.cli import agents, app; agents._PATIENCE = 1.0; app()"


@dataclass(frozen=True, slots=True)
class Place:
    """A served ledger with a token for it."""

    url: str
    ledger: Path
    name: str
    token: str
    files: Path
    X: np.ndarray
    y: np.ndarray


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Running]:
    folder = tmp_path_factory.mktemp("served")
    server.registered(folder / "ledger.db", "first", seed=99)
    with server.serving(folder / "ledger.db", folder) as running:
        yield running


@pytest.fixture
def place(served: server.Running, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """A holdout of the test's own on the server of all, and a folder of files."""
    ledger, name = served.log.with_name("ledger.db"), request.node.originalname[:60]
    (tmp_path / "files").mkdir()
    seed = sum(map(ord, name))
    server.registered(ledger, name, seed)
    token = server.token_of(ledger, "agent", holdout=name)
    X, y = server.rows(seed)
    return Place(served.url, ledger, name, token, tmp_path / "files", X, y)


def command(place: Place) -> list[str]:
    words = ["mcp", "--server", place.url, "--files", str(place.files)]
    return [sys.executable, "-c", PROGRAM, *words]


def environment(place: Place, file: Path | None = None) -> dict[str, str]:
    """What the process is started with: the token, or the private file that holds it."""
    known = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    if file is None:
        return known | {"LADDERHOLDOUT_TOKEN": place.token}
    file.write_text(place.token + "\n")
    file.chmod(0o600)
    return known | {"LADDERHOLDOUT_TOKEN_FILE": str(file)}


Talk = Callable[[Client], Awaitable[Any]]


def converse_here(place: Place, monkeypatch: pytest.MonkeyPatch, talk: Talk) -> None:
    """Talk to the tools in this process."""
    monkeypatch.setenv("LADDERHOLDOUT_TOKEN", place.token)
    monkeypatch.setattr(agents, "_PATIENCE", 1.0)
    tools = agents.Tools(place.url, place.files)

    async def run() -> None:
        async with create_client_server_memory_streams() as (ours, theirs):
            monkeypatch.setattr(agents, "stdio_server", lambda: nullcontext(theirs))
            offered = asyncio.create_task(agents._serve(tools))
            async with Client(nullcontext(ours)) as client:
                await talk(client)
            offered.cancel()

    asyncio.run(run())


def converse(place: Place, log: Path, talk: Talk) -> Any:
    """Talk to the tools as an agent's program does, with the SDK's own client."""
    first, *words = command(place)

    async def run() -> Any:
        stated = environment(place, log.with_name("token"))
        parameters = StdioServerParameters(command=first, args=words, env=stated)
        with log.open("w") as errors:
            async with Client(stdio_client(parameters, errors)) as client:
                return await talk(client)

    return asyncio.run(run())


async def answer(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    found = await client.call_tool(name, arguments)
    assert not found.is_error, found.content
    assert json.loads(found.content[0].text) == found.structured_content
    return dict(found.structured_content)


async def refusal(client: Client, name: str, **arguments: Any) -> str:
    found = await client.call_tool(name, arguments)
    assert found.is_error
    return str(found.content[0].text)


def test_an_agent_has_five_tools_and_nothing_else(place: Place, tmp_path: Path) -> None:
    async def talk(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert [one.name for one in listed] == ["submit", "decide", "status", "health", "history"]
        offered = client.server_capabilities
        assert offered.tools and not (offered.resources or offered.prompts)
        for one in listed:
            assert one.input_schema["additionalProperties"] is False
            assert set(one.output_schema["required"]) == set(one.output_schema["properties"])
        assert "registered" in listed[0].description and "improved" in listed[0].description
        assert "labels are on another machine" in client.instructions
        for name in ("reserve_certificate", "audit", "reveal", "estimate"):
            assert "one of submit, decide, status, health, history" in await refusal(client, name)
        begun = await answer(client, "status")
        assert (begun["n"], begun["classes"]) == (server.N, [0, 1])
        assert (begun["score"], begun["submissions"]) == (None, 0)
        assert begun["prediction"] == "one class label for each row"

    converse(place, tmp_path / "log", talk)


def test_predictions_come_as_a_list_and_in_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    guess = (place.X[:, 0] > 0).astype(int)
    tmp_path = place.files
    np.save(tmp_path / "a.npy", guess)
    (tmp_path / "b.csv").write_text("p\n" + "\n".join(map(str, guess)))
    table = pyarrow.table({"p": guess})
    with ipc.new_stream(tmp_path / "c.arrow", table.schema) as writer:
        writer.write_table(table)
    with ipc.new_file(tmp_path / "d.arrow", table.schema) as writer:
        writer.write_table(table)
    files = [str(tmp_path / "a.npy"), "b.csv", "../files/c.arrow", str(tmp_path / "d.arrow")]

    async def talk(client: Client) -> None:
        first = await answer(client, "submit", predictions=guess.tolist(), note="the sign")
        assert first["improved"] and first["submission"] == 1
        same = [await answer(client, "submit", file=file) for file in files]
        # The same predictions again improve nothing, under a number of their own.
        told = ("submission", "improved", "score", "repeat_of", "is_incumbent")
        assert [[one[name] for name in told] for one in same] == [
            [number, False, first["score"], 1, True] for number in (2, 3, 4, 5)
        ]
        worse = await answer(client, "submit", predictions=(1 - guess).tolist())
        assert (worse["improved"], worse["score"]) == (False, first["score"])
        found = await answer(client, "history", limit=3)
        assert found["total"] == 6
        assert [one["number"] for one in found["submissions"]] == [4, 5, 6]
        (noted,) = (await answer(client, "history", limit=6))["submissions"][:1]
        assert noted["context"] == {"note": "the sign"}
        now = await answer(client, "status")
        assert (now["incumbent"], now["releases"], now["submissions"]) == (1, 1, 6)
        assert now["certificate"]["low"] < now["score"] < now["certificate"]["high"]

    converse_here(place, monkeypatch, talk)


def test_lists_come_as_json_text_and_a_history_in_pages(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    guess = (place.X[:, 0] > 0).astype(int).tolist()

    async def talk(client: Client) -> None:
        first = await answer(client, "submit", predictions=json.dumps(guess))
        again = await answer(client, "submit", predictions=guess)
        assert first["improved"] and again["score"] == first["score"]
        for text in ("no list", "{}", "3", "[" * 100_000):
            assert "or one as JSON text" in await refusal(client, "submit", predictions=text)
        for count in range(3):
            await answer(client, "submit", predictions=[*guess[:-1], count % 2])
        pages, after = [], 0
        while after is not None:
            page = await answer(client, "history", after=after, limit=2)
            pages.append([line["number"] for line in page["submissions"]])
            after = page["next"]
        assert pages == [[1, 2], [3, 4], [5]]
        assert (await answer(client, "history", after=99))["submissions"] == []
        health = await answer(client, "health", spent_at=0.5)
        status = await answer(client, "status")
        ends = status["certificate"]
        assert health["width"] == pytest.approx(ends["high"] - ends["low"])
        assert health["spent"] is False

    converse_here(place, monkeypatch, talk)


def test_the_server_may_be_in_the_environment_alone(place: Place) -> None:
    words = [sys.executable, "-c", PROGRAM, "mcp"]
    stated = environment(place) | {"LADDERHOLDOUT_SERVER": place.url}
    done = subprocess.run(words, env=stated, input=b"", capture_output=True, timeout=60)
    assert done.returncode == 0 and b"Error" not in done.stderr


def test_what_is_no_submission_is_a_tools_error(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "files" / "secret.csv"
    secret.write_text(place.token)
    # What this process may read and the agent may not: it is no file of theirs.
    np.save(tmp_path / "labels.npy", place.y)
    (tmp_path / "files" / "link.npy").symlink_to(tmp_path / "labels.npy")

    async def talk(client: Client) -> None:
        ask = refusal
        assert f"each of the {server.N} rows" in await ask(client, "submit", predictions=[1, 0])
        for wrong in ([None] * server.N, [[1, 2], [3]], [], ["a"] * server.N, [{}] * server.N):
            assert "predictions" in await ask(client, "submit", predictions=wrong)
        assert "is neither" in await ask(client, "submit")
        assert "is both" in await ask(client, "submit", predictions=[1], file="a.npy")
        assert "must be a list" in await ask(client, "submit", predictions="1, 0")
        assert "can be read" in await ask(client, "submit", file="none.npy")
        for elsewhere in (str(tmp_path / "labels.npy"), "../labels.npy", "link.npy"):
            assert "it is not in" in await ask(client, "submit", file=elsewhere)
            assert "it is not in" in await ask(client, "decide", file=elsewhere)
        assert ".csv or .parquet" in await ask(client, "submit", file=str(place.ledger))
        assert place.token not in await ask(client, "submit", file=str(secret))
        assert "the path of a file" in await ask(client, "submit", file=3)
        assert "note" in await ask(client, "submit", predictions=[1], note=[1])
        assert "limit" in await ask(client, "history", limit=0)
        assert "arguments of status must be none" in await ask(client, "status", account="ada")
        assert (await answer(client, "status"))["submissions"] == 0

    converse_here(place, monkeypatch, talk)


def test_an_ended_token_and_a_server_that_is_gone_are_errors(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.serving(place.ledger, tmp_path) as running:

        async def talk(client: Client) -> None:
            await answer(client, "submit", predictions=[1] * server.N)
            revoke_token(str(place.ledger), place.name, "agent")
            assert "A token that is valid is needed" in await refusal(client, "status")
            running.kill()
            assert "did not answer for 1 seconds" in await refusal(client, "status")

        converse_here(replace(place, url=running.url), monkeypatch, talk)


def test_standard_output_holds_the_protocol_and_nothing_of_labels_or_tokens(place: Place) -> None:
    rng, messages = np.random.default_rng(3), []
    guesses = [rng.integers(0, 2, server.N) for _ in range(12)]

    def say(method: str, **parameters: Any) -> None:
        one = {"jsonrpc": "2.0", "method": method, "params": parameters}
        notice = method.startswith("notifications/")
        messages.append(one if notice else one | {"id": len(messages)})

    client = {"name": "test", "version": "1"}
    say("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
    say("notifications/initialized")
    say("tools/list")
    for guess in guesses:
        say("tools/call", name="submit", arguments={"predictions": guess.tolist()})
    for name in ("status", "history"):
        say("tools/call", name=name, arguments={})
    process = subprocess.Popen(
        command(place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(place),
        text=True,
    )
    assert process.stdin and process.stdout
    lines = []
    for one in messages:  # each after the answer to the one before
        process.stdin.write(json.dumps(one) + "\n")
        process.stdin.flush()
        if "id" in one:
            lines.append(process.stdout.readline())
    rest, errors = process.communicate(timeout=server.PATIENCE)
    assert process.returncode == 0
    for line in [*lines, *rest.splitlines()]:
        assert json.loads(line)["jsonrpc"] == "2.0"
    answers = [json.loads(line)["result"] for line in lines[2:]]
    assert not any(one.get("isError") for one in answers)
    releases = [one["structuredContent"] for one in answers[: len(guesses)]]
    printed = rest + errors + "".join(lines)
    assert place.token not in printed and place.token.split("_", 2)[2] not in printed
    hidden = {
        f"{float(np.mean(guess == place.y)):.4f}".rstrip("0")
        for guess, release in zip(guesses, releases, strict=True)
        if not release["improved"]
    } - {f"{one['score']:.4f}".rstrip("0") for one in releases}
    assert hidden  # some that did not improve
    assert not [one for one in hidden if f"{one}," in printed or f"{one}}}" in printed]
    # With the predictions an agent knows already; labels themselves are nowhere.
    for text in ("".join(map(str, place.y[:16])), ", ".join(map(str, place.y[:16]))):
        assert text not in printed


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([], "A ledger of this machine is not offered: the agent could read its labels."),
        (["--server", "/srv/ledger.db"], "https://host/holdouts/NAME"),
        (["--server", "sqlite:////srv/ledger.db"], "https://host/holdouts/NAME"),
        (["--server", "http://127.0.0.1:1"], "There is no token here"),
    ],
)
def test_what_is_no_server_is_refused_at_once(words: list[str], printed: str) -> None:
    done = CliRunner().invoke(app, ["mcp", *words], env={"LADDERHOLDOUT_TOKEN": ""})
    assert done.exit_code == 1 and done.stdout == ""
    assert printed in " ".join(done.stderr.split())


def test_an_array_of_objects_in_a_file_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidArgument, match="without objects"):
        predictions_from(tmp_path / "objects.npy", Form(get_metric("accuracy"), 2, None))
