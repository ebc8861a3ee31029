"""Attacks the server: foreign eyes, limits, forms of bodies, and whatever depends on labels."""

from __future__ import annotations

import io
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.guard.commands import packed
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.remote.wire import ARROW, CSV, JSON, NPY, ROWS
from ladderholdout.server.accounts import revoke_token
from ladderholdout.server.protocol import Prompt
from ladderholdout.server.views import commands
from ladderholdout.vault import features_from_bytes
from tests.support.commands import CliRunner
from tests.support.ledgers import expire
from tests.support.server import (
    N,
    Running,
    in_quarters,
    registered,
    rows,
    serving,
    token_of,
    trial,
)

pytestmark = pytest.mark.processes

# Which roles may ask for what; the setting of the server is in brackets.
ALL, ANALYST, OWNER = {"analyst", "host", "reader", "owner"}, {"analyst"}, {"owner"}
SUBMITTING = {"analyst", "host"}
ROLES_OF = {
    "describe": ALL,
    "rows": ALL,
    "row_groups": ANALYST,
    "row_order": ANALYST,
    "note_rows": ANALYST,
    "note_groups": ANALYST,
    "submit": SUBMITTING,
    "decide": ANALYST,
    "submit_batch": ANALYST,
    "state": ALL,
    "history": ALL,
    "status": ALL,
    "health": ALL,
    "certificate": ALL,
    "certify": {"analyst", "owner"},
    "estimate": ANALYST,
    "reveal": ANALYST,
    "compare": ANALYST,
    "leaderboard": ALL,
    "round": ALL,
    "collect": SUBMITTING,
    "close_round": OWNER,
    "finals": ALL,
    "hold_finals": OWNER,
    "accounts": OWNER,
    "add_account": OWNER,
    "limit_account": OWNER,
    "revoke_token": OWNER,
    "rotate_token": OWNER,
    "withdraw": OWNER,
    "retire": OWNER,
}
SETTINGS_OF = {
    "rows": "share_rows",
    "row_groups": "share_rows",
    "estimate": "allow_estimates",
    "reveal": "allow_reveals",
    "compare": "allow_comparisons",
}
LISTED = ("get", "/v1/holdouts")
ALLOWED = {LISTED: ALL} | {
    ("post", f"/v1/holdouts/{{name}}/{word}"): roles for word, roles in ROLES_OF.items()
}
OPEN = {("get", "/healthz")}


@dataclass(frozen=True, slots=True)
class Team:
    """A server with two holdouts, and tokens of every kind."""

    server: Running
    ledger: Path
    tokens: dict[str, str]

    def register(self, name: str, classes: Any = None, **stated: Any) -> str:
        """Register a holdout on rows that no other has, and return a token of its analyst."""
        X, labels = rows(sum(map(ord, name)))
        given = {"scoring": "accuracy", "name": name, "ledger": self.ledger} | stated
        LadderHoldout(X, labels if classes is None else classes[labels], **given)
        return token_of(self.ledger, "ada", holdout=name)

    def ask(self, method: str, path: str, who: str | None = None, **request: Any) -> Any:
        token = None if who is None else self.tokens.get(who, who)
        return self.server.ask(method, path, token, **request)


def own(role: str) -> str:
    """Return the holdout of a role's token."""
    return "challenge" if role == "host" else "churn"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    ledger = folder / "ledger.db"
    registered(ledger)
    registered(ledger, "other", seed=1)
    # A host submits for the accounts of a leaderboard, and the other holdouts have none.
    for seed, name in enumerate(("challenge", "other challenge"), 2):
        Leaderboard(*rows(seed), scoring="accuracy", name=name, ledger=ledger)
    tokens = {role: token_of(ledger, role, role, holdout=own(role)) for role in sorted(ALL)}
    tokens |= {
        f"foreign {role}": token_of(
            ledger, role, role, holdout="other challenge" if role == "host" else "other"
        )
        for role in ALL
    }
    tokens["expired"] = token_of(ledger, "late", expires=datetime.now(UTC) + timedelta(days=1))
    expire(ledger, "late")
    tokens["revoked"] = token_of(ledger, "gone")
    revoke_token(str(ledger), "churn", "gone")
    tokens["wrong"] = tokens["analyst"][:-1] + ("A" if tokens["analyst"][-1] != "A" else "B")
    tokens["of another key"] = tokens["analyst"].replace("lh_", "lh_0")
    flags = ["--share-rows", "*", "--allow-estimates", "*", "--max-refusals", "1000000"]
    with serving(ledger, folder, *flags) as server:
        yield Team(server, ledger, tokens)


def seen(answer: requests.Response) -> tuple[Any, ...]:
    """What somebody can tell an answer by."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    headers.pop("date")
    return answer.status_code, headers, answer.content


def operations(team: Team) -> list[tuple[str, str]]:
    api = team.ask("GET", "/openapi.json").json()
    return [(method, path) for path, methods in api["paths"].items() for method in methods]


def test_every_path_is_in_the_matrix(team: Team) -> None:
    assert set(operations(team)) == set(ALLOWED) | OPEN


def test_each_command_has_the_roles_and_the_setting_of_the_matrix(team: Team) -> None:
    assert {word: set(kind.roles) for word, kind in commands.COMMANDS.items()} == ROLES_OF
    stated = {word: kind.setting for word, kind in commands.COMMANDS.items() if kind.setting}
    assert stated == SETTINGS_OF
    paths = team.ask("GET", "/openapi.json").json()["paths"]
    for word, roles in ROLES_OF.items():
        told = paths[f"/v1/holdouts/{{name}}/{word}"]["post"]
        assert (set(told["x-roles"]), told["x-setting"]) == (roles, SETTINGS_OF.get(word))


def test_every_status_that_is_answered_is_described(team: Team) -> None:
    api = team.ask("GET", "/openapi.json").json()["paths"]
    for method, path in ALLOWED:
        described = set(api[path][method]["responses"])
        assert {"200", "401", "404", "409", "413", "422", "429", "500", "503"} <= described
    place = "/v1/holdouts/{name}/submit"
    for sent, status in (({"data": b"[" * 100_000}, 422), ({"json": {"predictions": [1]}}, 422)):
        answer = team.ask("POST", place.format(name="churn"), "analyst", **sent)
        assert answer.status_code == status and str(status) in api[place]["post"]["responses"]


INVALID = (None, "expired", "revoked", "wrong", "of another key", "lh_", "", "é")


def test_without_a_valid_token_every_path_answers_the_same(team: Team) -> None:
    """Each path without a token and with one that is invalid, and one path with each of them."""
    seen_by_all = set()
    for place, (method, path) in enumerate(ALLOWED):
        for name in ("churn", "nobody"):
            for who in (None, INVALID[1 + place % 7]) if place else INVALID:
                token = None if who is None else team.tokens.get(who, who)
                headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
                answer = team.ask(method, path.format(name=name), headers=headers)
                assert answer.status_code == 401, (method, path, who)
                seen_by_all.add(repr(seen(answer)))
    assert len(seen_by_all) == 1


@pytest.mark.parametrize("role", sorted(ALL))
def test_beyond_a_role_or_a_token_nothing_is_there(team: Team, role: str) -> None:
    nothing = seen(team.ask("POST", "/v1/holdouts/nobody/describe", role))
    assert nothing[0] == 404
    for (method, path), roles in ALLOWED.items():
        if path == "/v1/holdouts":
            listed = team.ask("GET", path, role).json()["holdouts"]
            assert [one["name"] for one in listed] == [own(role)]
            continue
        answer = team.ask(method, path.format(name=own(role)), role)
        if role in roles:
            assert answer.status_code not in (401, 404), (method, path)
        else:
            assert seen(answer) == nothing, (method, path)
        # A holdout that is not there is the same for all paths: one of three asks for it.
        for name in (own(role), "nobody")[: 2 if len(path) % 3 == 0 else 1]:
            foreign = team.ask(method, path.format(name=name), f"foreign {role}")
            assert seen(foreign) == nothing, (method, path)


def test_an_analyst_sees_no_other_accounts(team: Team) -> None:
    hidden = seen(team.ask("POST", "/v1/holdouts/nobody/describe", "analyst"))
    for what in ("describe", "state", "status", "health", "certificate", "history"):
        for account in ("default", "reader", "nobody"):
            answer = team.ask("POST", f"/v1/holdouts/churn/{what}?account={account}", "analyst")
            assert seen(answer) == hidden
    status = team.ask("POST", "/v1/holdouts/churn/status", "analyst").json()
    assert [one[0] for one in status["ladders"]] == ["analyst"]
    everybody = team.ask("POST", "/v1/holdouts/churn/status?account=analyst", "reader").json()
    assert {one[0] for one in everybody["ladders"]} >= {"analyst", "default"}


def test_a_host_submits_for_the_accounts_that_it_names(team: Team) -> None:
    _, y = rows(2)
    path, body = "/v1/holdouts/challenge/submit", {"predictions": y.tolist()}
    for account in ("", "?account=board"):
        refused = team.ask("POST", path + account, "host", json=body)
        assert (refused.status_code, refused.json()["argument"]) == (422, "account")
    assert team.ask("POST", path + "?account=a%2Fb", "host", json=body).status_code == 422
    # A misspelt name in what only reads starts nothing.
    assert team.ask("POST", "/v1/holdouts/challenge/status?account=Ada", "host").status_code == 404
    released = team.ask("POST", path + "?account=Ada", "host", json=body | {"key": "1"})
    again = team.ask("POST", path + "?account=Ada", "host", json=body | {"key": "1"})
    assert released.json()["improved"] and again.json()["score"] == released.json()["score"]
    worse = {"predictions": [0] * N}
    assert team.ask("POST", path + "?account=Ben", "host", json=worse).json()["improved"]
    board = team.ask("POST", "/v1/holdouts/challenge/leaderboard", "host").json()
    assert [(row["account"], row["submissions"]) for row in board["rows"]] == [
        ("Ada", 2),
        ("Ben", 1),
    ]
    held = LadderHoldout.open("challenge", account="Ada", ladder="leaderboard", ledger=team.ledger)
    assert [line.repeat_of for line in held.history()] == [None, 1]


def test_an_analyst_submits_for_nobody_else(team: Team) -> None:
    _, y = rows()
    path = "/v1/holdouts/churn/submit?account=default"
    assert team.ask("POST", path, "analyst", json={"predictions": y.tolist()}).status_code == 404


def test_a_limit_of_a_host_is_for_each_of_its_accounts(team: Team) -> None:
    token = token_of(team.ledger, "limited", "host", holdout="other challenge", per_day=1)
    path = "/v1/holdouts/other challenge/submit?account="
    answers = [
        team.ask("POST", path + name, token, json={"predictions": [label] * N}).status_code
        for name, label in (("Ada", 0), ("Ada", 1), ("Ben", 0))
    ]
    assert answers == [200, 429, 200]


def test_a_token_ends_at_once(team: Team) -> None:
    token = token_of(team.ledger, "short")
    assert team.ask("POST", "/v1/holdouts/churn/describe", token).status_code == 200
    revoke_token(str(team.ledger), "churn", "short")
    assert team.ask("POST", "/v1/holdouts/churn/describe", token).status_code == 401


def test_tokens_are_nowhere_in_the_files_of_the_server(team: Team) -> None:
    team.ask("POST", f"/v1/holdouts/churn/describe?account={team.tokens['analyst']}", "reader")
    for file in team.ledger.parent.rglob("*"):
        if file.is_file():
            for token in team.tokens.values():
                assert token[20:].encode() not in file.read_bytes(), file


# -- forms ----------------------------------------------------------------------------


def arrow(**columns: Any) -> bytes:
    file = io.BytesIO()
    table = pyarrow.table(columns)
    with ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss"])
def test_all_forms_of_a_body_are_one_submission(team: Team, scoring: str) -> None:
    classes = np.array(["no", "yes"])
    name = f"forms {scoring}"
    token = team.register(name, classes, scoring=scoring)
    shares = np.random.default_rng(3).uniform(0.05, 0.95, N)
    table = np.column_stack([1 - shares, shares])
    labels = classes[(shares > 0.5).astype(int)]
    one = labels if scoring == "accuracy" else table
    lines = list(labels) if scoring == "accuracy" else [f"{b!r},{a!r}" for a, b in table.tolist()]
    head = "label" if scoring == "accuracy" else "yes,no"
    columns = (
        {"label": labels} if scoring == "accuracy" else {"yes": table[:, 1], "no": table[:, 0]}
    )
    bodies = {
        JSON: json.dumps({"predictions": one.tolist(), "context": {"idea": "first"}}).encode(),
        f"{JSON}; charset=utf-8": json.dumps({"predictions": packed(one)}).encode(),
        NPY: npy(one),
        CSV: "\n".join([head, *lines]).encode(),
        ARROW: arrow(**columns),
    }
    path = f"/v1/holdouts/{name}/submit"
    answers = [
        team.ask("POST", path, token, data=data, headers={"Content-Type": media})
        for media, data in bodies.items()
    ]
    assert [one.status_code for one in answers] == [200] * len(bodies)
    first, *repeats = (one.json() for one in answers)
    assert (first["improved"], first["repeat_of"], first["is_incumbent"]) == (True, None, True)
    told = ("score", "improved", "repeat_of", "is_incumbent", "has_held")
    assert [[one[name] for name in told] for one in repeats] == 4 * [
        [first["score"], False, first["submission"], True, True]
    ]
    held = LadderHoldout.open(name, account="ada", ledger=team.ledger)
    assert held.status().releases == 1
    assert held.history()[0].context == {"idea": "first"}


@pytest.mark.parametrize(
    ("media", "data"),
    [
        (JSON, b"[]"),
        (JSON, b"{"),
        (JSON, b"[" * 100_000),
        (JSON, b'{"predictions": 1}'),
        (JSON, b'{"predictions": [1], "label": 3}'),
        (JSON, b'{"predictions": {"npy": "AAAA"}}'),
        (JSON, '{"predictions": {"npy": "\u00e9"}}'.encode()),
        (JSON, b'{"predictions": [NaN]}'),
        (JSON, json.dumps({"predictions": [0] * N, "context": {"a": "b" * 99_999}}).encode()),
        (JSON, json.dumps({"predictions": [0] * N, "search": "x" * 33}).encode()),
        (JSON, json.dumps({"predictions": [0] * (N - 1)}).encode()),
        (JSON, json.dumps({"predictions": [7] * N}).encode()),
        (NPY, b""),
        (NPY, npy(np.zeros(N, dtype=int))[:-9]),
        (NPY, b"\x93NUMPY\x01\x00" + b"\xff" * 100),
        (CSV, b"\xff\xfe"),
        (CSV, b"label"),
        (CSV, b"a,b\n1\n"),
        (ARROW, b"ARROW1"),
        ("application/octet-stream", b"cos\nsystem\n(S'true'\ntR."),
    ],
)
def test_other_bodies_are_refused_with_a_problem(team: Team, media: str, data: bytes) -> None:
    path, headers = "/v1/holdouts/churn/submit", {"Content-Type": media}
    before = team.ask("POST", "/v1/holdouts/churn/state", "analyst").json()["submissions"]
    answer = team.ask("POST", path, "analyst", data=data, headers=headers)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"].startswith("urn:ladderholdout:error:Invalid")
    assert problem["status"] == 422 and problem["detail"].endswith((".", "form"))
    after = team.ask("POST", "/v1/holdouts/churn/state", "analyst").json()["submissions"]
    assert after == before


NAMES = st.sampled_from(["predictions", "context", "search", "npy", "submissions", "rows", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(NAMES, inside, max_size=4),
    max_leaves=8,
)
ROWS_OF = st.sampled_from([0, 1, 0.5, "a", None, 2**70, True]).map(lambda value: [value] * N)
BODIES = st.binary(max_size=200) | st.one_of(
    VALUES,
    st.fixed_dictionaries({"predictions": VALUES | ROWS_OF}, optional={"context": VALUES}),
    st.fixed_dictionaries({"submissions": st.lists(VALUES | ROWS_OF, max_size=3)}),
).map(lambda value: json.dumps(value).encode())


# tests/promises/test_server_fuzz.py asks many more, by the schema of each operation.
@settings(max_examples=60)
@given(
    asked=st.sampled_from(sorted(ALLOWED)),
    who=st.sampled_from(["analyst", "analyst", "reader", "owner"]),
    name=st.sampled_from(["churn", "churn", "churn", "%00", "a%2Fb", "%F0%9F%98%80"]),
    query=st.dictionaries(
        st.sampled_from(["account", "after", "limit", "search", "x"]), st.text(max_size=40)
    ),
    media=st.sampled_from([JSON, JSON, NPY, CSV, ARROW, "", "a/b; c=d"]),
    body=BODIES,
)
def test_no_request_makes_the_server_fail(
    team: Team,
    asked: tuple[str, str],
    who: str,
    name: str,
    query: dict[str, str],
    media: str,
    body: bytes,
) -> None:
    method, path = asked
    path, headers = path.format(name=name), {"Content-Type": media}
    answer = team.ask(method, path, who, params=query, headers=headers, data=body)
    assert answer.status_code in (200, 204, 404, 409, 422)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert {"type", "title", "status", "detail"} <= answer.json().keys()


def test_an_array_of_objects_is_not_unpickled(team: Team) -> None:
    file = io.BytesIO()
    np.save(file, np.array([object] * 3, dtype=object), allow_pickle=True)
    path, headers = "/v1/holdouts/churn/submit", {"Content-Type": NPY}
    answer = team.ask("POST", path, "analyst", data=file.getvalue(), headers=headers)
    assert answer.status_code == 422


def test_rows_come_without_labels(team: Team) -> None:
    X, _ = rows()
    path = "/v1/holdouts/churn/rows"
    answer = team.ask("POST", path, "analyst", headers={"Accept": ROWS})
    assert np.array_equal(features_from_bytes(answer.content), X)
    answer = team.ask("POST", path, "analyst", headers={"Accept": ARROW})
    table = ipc.open_stream(answer.content).read_all()
    assert np.array_equal(np.column_stack([one.to_numpy() for one in table.columns]), X)
    answer = team.ask("POST", path, "analyst", headers={"Accept": NPY})
    assert np.array_equal(np.load(io.BytesIO(answer.content)), X)


def test_what_the_owner_does_not_serve_is_refused(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    with serving(ledger, tmp_path, "--max-body", "1") as server:
        for what in SETTINGS_OF.keys() - {"compare"}:
            answer = server.ask("POST", f"/v1/holdouts/churn/{what}", token)
            assert (answer.status_code, "does not serve" in answer.text) == (409, True)
        answer = server.ask("POST", "/v1/holdouts/churn/leaderboard", token)
        assert (answer.status_code, "no leaderboard" in answer.text) == (409, True)
        # Too long, as it states or as it turns out to be.
        for data in (b"0" * 2**21, iter([b"0" * 2**20] * 3)):
            answer = server.ask("POST", "/v1/holdouts/churn/submit", token, data=data)
            assert answer.status_code == 413
        assert server.ask("POST", "/v1/holdouts/churn/describe", token).status_code == 200


@pytest.mark.parametrize(
    ("word", "asked"), [("status", "status"), ("history", "history"), ("certificate", "certify")]
)
def test_the_command_line_prints_what_the_api_answers(
    team: Team, monkeypatch: pytest.MonkeyPatch, word: str, asked: str
) -> None:
    monkeypatch.setenv("LADDERHOLDOUT_TOKEN", team.tokens["analyst"])
    done = CliRunner().invoke(app, [word, "churn", "--server", team.server.url, "--json"])
    printed = json.loads(done.stdout)
    answered = team.ask("POST", f"/v1/holdouts/churn/{asked}", "analyst").json()
    assert (printed.pop("ledger", "") and "ledger" in answered) or word != "status"
    answered.pop("ledger", None)
    assert printed == answered
    schema = commands.schema_of(commands.COMMANDS[asked].answer)
    assert set(answered) == set(schema["properties"]) - {"ledger"}


# -- limits ---------------------------------------------------------------------------


def test_limits_of_a_day_survive_a_restart(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada", per_day=2, budget=1)
    path = "/v1/holdouts/churn/submit"

    def submit(server: Running, seed: int, key: str) -> requests.Response:
        guess = np.random.default_rng(seed).integers(0, 2, N).tolist()
        return server.ask("POST", path, token, json={"predictions": guess, "key": key})

    with serving(ledger, tmp_path) as server:
        first = submit(server, 0, "a")
        assert first.json()["releases_left"] == 0  # of the budget
    with serving(ledger, tmp_path) as server:
        assert submit(server, 1, "b").status_code == 200
        refused = submit(server, 2, "c")
        assert refused.status_code == 429
        assert refused.json()["type"].endswith(":DailyLimit")
        assert 0 < int(refused.headers["retry-after"]) <= 86_401
        # An attempt that was recorded is answered all the same.
        again = submit(server, 0, "a")
        assert (again.status_code, again.json()["improved"]) == (200, True)
        assert again.json()["score"] == first.json()["score"]


def test_a_leaderboard_is_shared_by_its_accounts(team: Team) -> None:
    Leaderboard(*rows(9), scoring="accuracy", name="shared", ledger=team.ledger)
    tokens = [token_of(team.ledger, name, holdout="shared") for name in ("ada", "ben")]
    for token, value in zip(tokens, (0, 1), strict=True):
        body = {"predictions": [value] * N}
        answer = team.ask("POST", "/v1/holdouts/shared/submit", token, json=body)
        assert answer.json()["improved"]
    board = team.ask("POST", "/v1/holdouts/shared/leaderboard", tokens[0]).json()
    assert sorted(one["account"] for one in board["rows"]) == ["ada", "ben"]
    assert board["submissions"] == 2


def test_a_batch_comes_whole_or_not_at_all(team: Team) -> None:
    token = team.register("batches")
    guesses = np.random.default_rng(0).integers(0, 2, (3, N))
    home = "/v1/holdouts/batches"

    def send(submissions: list[Any], **more: str) -> Any:
        body = {"submissions": submissions} | more
        return team.ask("POST", f"{home}/submit_batch", token, json=body)

    def listed() -> Any:
        return team.ask("POST", f"{home}/history", token).json()

    some = [{"predictions": one.tolist()} for one in guesses]
    assert send([*some, {"predictions": [0]}]).status_code == 422
    assert listed()["total"] == 0
    for _ in range(2):
        assert len(send(some, key="grid").json()) == 3
    found = listed()
    assert (found["total"], len({one["batch"] for one in found["submissions"]})) == (6, 1)
    estimate = team.ask("POST", f"{home}/estimate", token).json()
    assert estimate["reason"] is None and estimate["submissions"] == 3
    # What is added under the same key knows the answers, and is of another batch.
    send([*some, {"predictions": [1] * N}], key="grid")
    found = listed()["submissions"]
    assert found[-1]["batch"] not in {one["batch"] for one in found[:6]}
    estimate = team.ask("POST", f"{home}/estimate", token).json()
    assert "not of one batch" in estimate["reason"]


# -- labels ---------------------------------------------------------------------------


def answers(folder: Path, y: np.ndarray) -> list[str]:
    """Everything that an analyst, a reader and an owner can get to see."""
    tried = trial(folder, y)
    given = tried.given
    batch = {"submissions": [{"predictions": one.tolist()} for one in given], "key": "one"}
    found = []
    # A corrected score is a release of its own, on record: it depends on the labels of each row.
    with serving(tried.ledger, folder, "--share-rows", "*", "--allow-reveals", "*") as server:

        def ask(method: str, path: str, tokens: list[str], **request: Any) -> None:
            for token in tokens:
                answer = server.ask(method, path.format(name="churn"), token, **request)
                headers = {key: value for key, value in answer.headers.items() if key != "date"}
                found.append(f"{answer.status_code} {headers} {answer.text}")

        analyst, everybody = tried.tokens[:1], tried.tokens
        ask("POST", "/v1/holdouts/churn/submit_batch", analyst, json=batch)
        for who in (everybody, analyst):  # again, after what only the first time is opened
            for one in (*given, [2] * N, given[0][1:]):
                body = {"predictions": np.asarray(one).tolist()}
                ask("POST", "/v1/holdouts/churn/submit", analyst, json=body)
            for method, path in ALLOWED:
                ask(method, path, who)
    tried.check([*found, server.log.read_text()])
    return [re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "MOMENT", one) for one in found]


def test_two_label_sets_with_the_same_releases_give_the_same_answers(tmp_path: Path) -> None:
    _, y = rows()
    other = in_quarters(y)
    assert not np.array_equal(y, other)
    first, second = (answers(tmp_path / name, labels) for name, labels in (("a", y), ("b", other)))
    assert len(first) > 100
    drawn = re.compile(r'"(batch|date)":"?[^,"]*"?')
    for one, two in zip(first, second, strict=True):
        assert drawn.sub("", one) == drawn.sub("", two)


# -- the log, the stop ----------------------------------------------------------------


def test_requests_that_are_sent_slowly_hold_up_nobody(team: Team) -> None:
    host, port = team.server.url.removeprefix("http://").split(":")
    head = "POST /v1/holdouts/churn/submit HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
    token = f"Authorization: Bearer {team.tokens['analyst']}\r\n\r\n"
    begun = [head[:20], head, head + token, head + token + '{"pred']
    with ExitStack() as stack:
        for text in begun * 20:
            one = stack.enter_context(socket.create_connection((host, int(port))))
            one.sendall(text.encode())
        for _ in range(3):
            assert team.ask("POST", "/v1/holdouts/churn/status", "analyst").status_code == 200


def test_the_log_is_json_and_the_stop_is_graceful(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    # As people start it: this one is no fork.
    with serving(ledger, tmp_path, forked=False) as server:
        for _ in range(3):
            server.ask("POST", "/v1/holdouts/churn/status", token)
        server.ask("GET", "/nowhere", token)
    lines = [json.loads(line) for line in server.log.read_text().splitlines()[1:]]
    asked = [one["event"] for one in lines if isinstance(one["event"], dict)]
    named = [(one["route"], one["account"], one["status"]) for one in asked if one["account"]]
    assert named == [("/v1/holdouts/{name}/status", "ada", 200)] * 3
    assert lines[-1]["event"].startswith("Finished")


def test_an_answer_waits_for_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn gives its workers sockets of no protocol, on which asyncio turns nothing off."""
    monkeypatch.setattr(Prompt.__base__, "connection_made", lambda self, transport: None)
    with socket.socket() as one:

        class Transport:
            def get_extra_info(self, name: str) -> Any:
                return {"socket": one}[name]

        assert not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        Prompt.__new__(Prompt).connection_made(Transport())
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_page_of_operations_needs_no_other_host(team: Team) -> None:
    page = team.ask("GET", "/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "/v1/holdouts/{name}/submit" in page.text
    assert not re.search(r"https?://|<script", page.text)


def test_a_holdout_that_is_retired_refuses_submissions(team: Team) -> None:
    token = team.register("retired")
    LadderHoldout.open("retired", ledger=team.ledger).owner.retire()
    answer = team.ask("POST", "/v1/holdouts/retired/submit", token, json={
        "predictions": [0] * N
    })  # fmt: skip
    assert (answer.status_code, "retired" in answer.text) == (409, True)
    assert team.ask("POST", "/v1/holdouts/retired/status", token).json()["retired"]
