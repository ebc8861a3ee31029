"""Fuzzes the server by its own description: no failure, and no answer that depends on labels.

Schemathesis draws requests from /openapi.json, those that it allows and those that it forbids. Most
are led to a holdout that exists, many have a body that is a submission but for some bytes, and each
is sent by every kind of caller. Two servers get all of them: their holdouts have other labels, on
which all that can be submitted here scores the same.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow
import pytest
import requests
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyarrow import ipc
from schemathesis import GenerationMode

from ladderholdout import LadderHoldout
from ladderholdout.guard.commands import COMMANDS, packed
from ladderholdout.remote.wire import ARROW, BLOCK, CSV, JSON, NPY
from ladderholdout.server.app import create_app
from ladderholdout.server.settings import ServerSettings
from tests.support.server import N, registered, rows, serving, token_of

pytestmark = pytest.mark.filterwarnings("ignore::ladderholdout.errors.LadderHoldoutWarning")

# Most of these need no field.
READING = {word for word, kind in COMMANDS.items() if kind.reads}
CALLERS = ("analyst", "reader", "owner", "a foreign analyst", "nobody", "somebody")
SUBMISSIONS, BATCHES = "/v1/holdouts/churn/submit", "/v1/holdouts/churn/submit_batch"
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+]+")
DRAWN = re.compile(r'"(batch|fingerprint)":"[^"]*"')

for one in (NPY, CSV, ARROW):
    schemathesis.openapi.media_type(one, st.binary(max_size=50))


# -- submissions, and what is nearly one ------------------------------------------------

# Constant on quarters of the rows: they score the same on all labels that differ within these.
QUARTERS = [
    np.repeat(one, N // 4)
    for one in ([0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0])
]


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def arrow(array: Any) -> bytes:
    file, table = io.BytesIO(), pyarrow.table({"label": array})
    with ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def forms(array: Any) -> list[tuple[str, bytes]]:
    """Write predictions in every form of a body."""
    kinds = ["u1", "i8", ">i4", "f8", "f2", "?", "U1", "c16"]
    return [
        *((NPY, npy(array.astype(kind))) for kind in kinds),
        (CSV, b"label\n" + b"\n".join(b"%d" % one for one in array)),
        (ARROW, arrow(array)),
        (ARROW, arrow(array.astype("i1"))),
        (JSON, json.dumps({"predictions": array.tolist()}).encode()),
        (JSON, json.dumps({"predictions": packed(array), "context": {"a": 1}}).encode()),
        (JSON, json.dumps({"predictions": array.astype(bool).tolist()}).encode()),
        (JSON, json.dumps({"predictions": [*array.tolist()[:-1], 7]}).encode()),
    ]


GOOD = [one for array in QUARTERS for one in forms(array)]
LISTS = st.lists(st.sampled_from(QUARTERS), min_size=1, max_size=3).map(
    lambda some: json.dumps({"submissions": [{"predictions": one.tolist()} for one in some]})
)


@st.composite
def nearly(draw: st.DrawFn, good: st.SearchStrategy[tuple[str, bytes]]) -> tuple[str, bytes]:
    """Cut a body, or change a byte of it to one that is in no label; or leave it as it is."""
    media, body = draw(good)
    how, place = draw(st.sampled_from(["", "", "", "cut", "change", "media"])), 0
    if how in ("cut", "change"):
        place = draw(st.integers(0, min(len(body) - 1, 400)))
    if how == "cut":
        body = body[: place or -1]
    if how == "change":
        body = body[:place] + b"\xff" + body[place + 1 :]
    if how == "media":
        media = draw(st.sampled_from([JSON, NPY, CSV, ARROW, "", "a/b; c=d", "é"]))
    return media, body


@dataclass(frozen=True, slots=True)
class Asked:
    """A request without its caller."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@st.composite
def asked(draw: st.DrawFn, cases: st.SearchStrategy[Any]) -> Asked:
    case = draw(cases)
    known = draw(st.integers(0, 5)) > 0
    if known and "name" in case.path_parameters:
        case.path_parameters["name"] = "churn"
    if known and isinstance(case.query, dict) and "account" in case.query:
        # Each command has this parameter, and most are asked without it.
        case.query["account"] = draw(st.sampled_from(["analyst", "default", "reader", "nobody"]))
        if draw(st.integers(0, 3)) > 0:
            del case.query["account"]
    given = requests.Request(**case.as_transport_kwargs(base_url="http://a")).prepare()
    headers = {name: str(value) for name, value in given.headers.items() if name != "User-Agent"}
    body = given.body.encode() if isinstance(given.body, str) else given.body or b""
    assert isinstance(body, bytes) and given.url is not None and given.method is not None
    path, method = given.url.removeprefix("http://a"), given.method
    if known and draw(st.integers(0, 3)) > 0:  # each command has this header, too
        headers.pop(BLOCK, None)
    word = path.partition("?")[0].rpartition("/")[2]
    if known and word in READING and draw(st.booleans()):
        headers["Content-Type"], headers["Content-Length"], body = JSON, "2", b"{}"
    if known and path.partition("?")[0] in (SUBMISSIONS, BATCHES) and method == "POST":
        many = path.startswith(BATCHES)
        good = LISTS.map(lambda text: (JSON, text.encode())) if many else st.sampled_from(GOOD)
        headers["Content-Type"], body = draw(nearly(good))
        headers["Content-Length"] = str(len(body))
        query = {"key": draw(st.sampled_from(["a", "b", "c", "", "é", "d" * 201]))}
        if draw(st.booleans()):
            notes = ["{}", '{"a": [1]}', "[]", "{", '{"a": NaN}', r'{"a": "\ud800"}', "[" * 9999]
            query["context"] = draw(st.sampled_from(notes))
        path = f"{path.partition('?')[0]}?{urlencode(query)}"
    return Asked(method, path, headers, body)


# -- servers without a network ----------------------------------------------------------


@dataclass(slots=True)
class Direct:
    """An application that is asked in this process, and tokens for it."""

    app: FastAPI
    ledger: Path
    tokens: dict[str, str]
    asked: int = 0
    statuses: dict[int, int] = field(default_factory=dict)

    async def ask(self, one: Asked, caller: str) -> tuple[int, dict[str, str], bytes]:
        path, _, query = one.path.partition("?")
        headers = {**one.headers, "Host": "a"}
        if caller in self.tokens:
            headers["Authorization"] = f"Bearer {self.tokens[caller]}"
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": one.method,
            "scheme": "http",
            "path": requests.utils.unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "headers": [
                (name.lower().encode(), text.encode("utf-8")) for name, text in headers.items()
            ],
        }
        waiting = [{"type": "http.request", "body": one.body, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            return waiting.pop() if waiting else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
        self.asked, status = self.asked + 1, sent[0]["status"]
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status, found, b"".join(one.get("body", b"") for one in sent[1:])


def direct(folder: Path, y: Any, scoring: str = "accuracy", **allowed: Any) -> Direct:
    """Return an application on two holdouts, and tokens of every kind."""
    folder.mkdir()
    ledger = folder / "ledger.db"
    LadderHoldout(rows()[0], y, scoring=scoring, name="churn", ledger=ledger, vault=folder)
    registered(ledger, "other", seed=1)
    tokens = {role: token_of(ledger, role, role) for role in ("analyst", "reader", "owner")}
    tokens["a foreign analyst"] = token_of(ledger, "analyst", holdout="other")
    tokens["somebody"] = tokens["analyst"][:-2] + "xx"
    settings = ServerSettings(str(ledger), share_rows=("*",), max_refusals=10**6, **allowed)
    return Direct(create_app(settings), ledger, tokens)


def checked(one: Asked, caller: str, answer: tuple[int, dict[str, str], bytes]) -> str:
    """Refuse failures and errors of another form; return what there is to compare."""
    status, headers, body = answer
    assert status < 500, (one, caller, body)
    if status >= 400:
        assert headers["content-type"] == "application/problem+json", (one, caller)
        problem = json.loads(body)
        assert problem["status"] == status and problem["title"]
        assert status != 401 or caller in ("nobody", "somebody")
    if caller in ("nobody", "somebody") and one.path.startswith("/v1/holdouts/churn"):
        assert status in (401, 405), (one, caller)
    if headers["content-type" if body else "cache-control"] not in (JSON, "text/html"):
        return f"{status} {headers} {body!r}"
    text = MOMENT.sub("MOMENT", body.decode())
    headers.pop("content-length", None)  # the digits of a moment
    return f"{status} {headers} {DRAWN.sub('', text)}"


def cases_of(app: FastAPI) -> st.SearchStrategy[Asked]:
    schema = schemathesis.openapi.from_dict(app.openapi())
    operations = [one.ok() for one in schema.get_all_operations()]
    assert len(operations) >= 15
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    return st.one_of(
        *(asked(one.as_strategy(generation_mode=mode)) for one in operations for mode in modes)
    )


def fuzz(servers: list[Direct], examples: int, part: int = 0) -> None:
    """Send requests to all of the servers, by every kind of caller, and compare the answers.

    Each part has other requests, the same in each run.
    """

    @seed(part)
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(cases_of(servers[0].app))
    def run(one: Asked) -> None:
        async def by_all() -> None:
            for caller in CALLERS:
                answers = [checked(one, caller, await each.ask(one, caller)) for each in servers]
                assert len(set(answers)) == 1, (one, caller, answers)

        runner.run(by_all())

    with asyncio.Runner() as runner:
        run()


def in_quarters(y: np.ndarray) -> np.ndarray:
    """Other labels, of which predictions that are constant on quarters score the same."""
    rng = np.random.default_rng(9)
    return np.concatenate([rng.permutation(one) for one in y.reshape(4, -1)])


@pytest.mark.parametrize(
    ("examples", "part"),
    [
        pytest.param(50, 0, marks=pytest.mark.long, id="some"),
        # In parts, for on a busy machine one test of all of them runs into the limit of a test.
        *(pytest.param(500, part, marks=pytest.mark.nightly) for part in range(1, 8)),
    ],
)
def test_no_request_fails_or_is_answered_by_the_labels(
    tmp_path: Path, examples: int, part: int
) -> None:
    """More than 20,000 requests in the tier `nightly`, each to servers with two sets of labels.

    A corrected score is a release of its own and depends on each label, so nobody allows it here.
    """
    _, y = rows()
    servers = [
        direct(tmp_path / name, labels, allow_reveals=("*",))
        for name, labels in (("a", y), ("b", in_quarters(y)))
    ]
    assert not np.array_equal(y, in_quarters(y))
    for one in servers:  # so that there is a score, whatever is asked
        held = LadderHoldout.open("churn", account="analyst", ledger=one.ledger)
        assert held.submit(np.repeat([0, 1, 1, 0], len(y) // 4)).improved
    fuzz(servers, examples, part)
    for one in servers:
        assert one.asked == len(CALLERS) * examples
        # Many get deep, of all callers together; a third of the operations is the owner's alone.
        assert one.statuses[200] > examples / 4


@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(25, marks=pytest.mark.long, id="some"),
        pytest.param(500, marks=pytest.mark.nightly, id="all"),
    ],
)
@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc"])
def test_no_request_fails_where_all_is_allowed(tmp_path: Path, scoring: str, examples: int) -> None:
    server = direct(
        tmp_path / "a", rows()[1], scoring, allow_estimates=("*",), allow_reveals=("*",)
    )
    fuzz([server], examples)
    assert server.asked == len(CALLERS) * examples


# -- over HTTP --------------------------------------------------------------------------


@contextmanager
def over_http(folder: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    ledger = folder / "ledger.db"
    registered(ledger)
    tokens = {role: token_of(ledger, role, role) for role in ("analyst", "reader", "owner")}
    flags = ["--share-rows", "*", "--allow-estimates", "*", "--max-refusals", "1000000"]
    with serving(ledger, folder, *flags) as server:
        yield server, tokens


@pytest.mark.processes
def test_no_request_over_http_fails(tmp_path: Path) -> None:
    """What a client cannot send is not sent: the checks are those of Schemathesis."""
    with over_http(tmp_path) as (server, tokens):
        schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
        operations = [one.ok() for one in schema.get_all_operations()]
        cases = st.one_of(*(one.as_strategy() for one in operations))

        @settings(max_examples=30, phases=[Phase.generate], suppress_health_check=[*HealthCheck])
        @given(cases, st.sampled_from(sorted(tokens)), st.booleans())
        def run(case: Any, role: str, known: bool) -> None:
            if known and "name" in case.path_parameters:
                case.path_parameters["name"] = "churn"
            answer = case.call(headers={"Authorization": f"Bearer {tokens[role]}"}, session=session)
            assert answer.status_code < 500

        with requests.Session() as session:
            run()
        assert '"error"' not in server.log.read_text()
