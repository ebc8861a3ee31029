"""The order of predictions behind a server: the first registration's for ever, or that of ids."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import accuracy_score
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.cli import agents
from ladderholdout.errors import InvalidArgument, KnownHoldoutWarning
from ladderholdout.mechanisms import FullDisclosure
from ladderholdout.remote.wire import ARROW, CSV, JSON
from tests.support.server import Running, Visitor, local_pages, rows, serving, token_of

pytestmark = pytest.mark.processes

X, Y = rows()
N = len(Y)
IDS = [f"p{at}" for at in range(N)]
GUESS = (X[:, 1] > 0).astype(int)
RIGHT = accuracy_score(Y, GUESS)
ORDER = np.random.default_rng(1).permutation(N)
COLUMNS = ["a", "b", "c", "d"]


def frame() -> pd.DataFrame:
    return pd.DataFrame(X, columns=COLUMNS)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with two views of one holdout, the second with a feature more in another order."""
    place = tmp_path_factory.mktemp("files") / "ledger.db"
    given: dict[str, Any] = {"name": "churn", "ledger": place}
    LadderHoldout(frame(), Y, ids=IDS, scoring="accuracy", mechanism=FullDisclosure(), **given)
    later = frame().assign(e=X[:, 0] * X[:, 1]).iloc[ORDER].reset_index(drop=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KnownHoldoutWarning)
        LadderHoldout(later, Y[ORDER], ids=[IDS[at] for at in ORDER], **given)
    return place


@pytest.fixture(scope="module")
def server(ledger: Path) -> Iterator[Running]:
    with serving(ledger, ledger.parent, "--share-rows", "churn") as running:
        yield running


def csv_of(ordered: np.ndarray, ids: bool) -> bytes:
    table = pd.DataFrame({"p": GUESS[ordered]})
    if ids:
        table.insert(0, "id", [IDS[at] for at in ordered])
    return table.to_csv(index=False).encode()


def arrow_of(ordered: np.ndarray) -> bytes:
    table = pa.table({"p": GUESS[ordered], "id": [IDS[at] for at in ordered]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_the_first_order_and_ids_over_http_and_from_python(ledger: Path, server: Running) -> None:
    token = token_of(ledger, "ada")
    first, shuffled = np.arange(N), ORDER
    named = [IDS[at] for at in shuffled]
    bodies = [
        (JSON, "", json.dumps({"predictions": GUESS.tolist()}).encode()),
        (JSON, "", json.dumps({"predictions": GUESS[shuffled].tolist(), "ids": named}).encode()),
        (CSV, "", csv_of(first, ids=False)),
        (CSV, "?ids=id", csv_of(shuffled, ids=True)),
        (ARROW, "?ids=id", arrow_of(shuffled)),
    ]
    path = "/v1/holdouts/churn/submit"

    def ask(media: str, query: str, data: bytes) -> Any:
        headers = {"Content-Type": media}
        return server.ask("POST", path + query, token, data=data, headers=headers)

    for media, query, data in bodies:
        answer = ask(media, query, data)
        assert answer.status_code == 200, answer.text
        assert answer.json()["score"] == pytest.approx(RIGHT)
    wrong = [*named[:-1], "nobody"]
    for media, query, data, said in (
        (CSV, "", csv_of(shuffled, ids=True), "ids"),
        (CSV, "?ids=name", csv_of(shuffled, ids=True), "one of the 2 columns"),
        (JSON, "", json.dumps({"predictions": [0] * N, "ids": wrong}).encode(), f"row {N}"),
        (JSON, "", json.dumps({"predictions": [0] * N, "ids": ["a"] * N}).encode(), "distinct"),
        (JSON, "", json.dumps({"predictions": [0] * N, "ids": [[1]] * N}).encode(), "ids"),
        (JSON, "", json.dumps({"predictions": [0] * N, "ids": [1]}).encode(), "ids"),
        (JSON, "", json.dumps({"predictions": [0] * N, "ids": [None] * N}).encode(), "ids"),
        (JSON, "?ids=id", json.dumps({"predictions": [0] * N}).encode(), "ids"),
    ):
        answer = ask(media, query, data)
        assert answer.status_code == 422, answer.text
        assert said in answer.json()["detail"], answer.text
    listed = [
        {"predictions": GUESS[shuffled].tolist(), "ids": named},
        {"predictions": (1 - GUESS).tolist()},
    ]
    answer = server.ask(
        "POST", "/v1/holdouts/churn/submit_batch", token, json={"submissions": listed}
    )
    scores = [one["score"] for one in answer.json()]
    assert scores == pytest.approx([RIGHT, 1 - RIGHT])
    # The library's own client: ids, arrays, models on the rows that are shared or its own.
    remote = LadderHoldout.connect(server.url, token)
    assert remote.submit(GUESS[shuffled], ids=named).score == pytest.approx(RIGHT)
    assert remote.submit(GUESS).score == pytest.approx(RIGHT)
    with remote.batch() as batch:
        batch.submit(pd.DataFrame({"id": named, "p": GUESS[shuffled]}), ids="id")
    assert batch.releases[0].score == pytest.approx(RIGHT)
    known = frame().assign(e=X[:, 0] * X[:, 1])
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(known, Y)
    assert remote.submit(model).score == pytest.approx(model.score(known, Y))
    again = np.random.default_rng(2).permutation(N)
    own = LadderHoldout.connect(server.url, token, X=known.iloc[again])
    assert own.submit(model).score == pytest.approx(model.score(known, Y))
    assert own.submit(GUESS[again]).score == pytest.approx(RIGHT)
    assert own.submit(GUESS[shuffled], ids=named).score == pytest.approx(RIGHT)


def test_the_tool_of_agents_takes_ids(
    ledger: Path, server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADDERHOLDOUT_TOKEN", token_of(ledger, "agent"))
    (tmp_path / "first.csv").write_bytes(csv_of(np.arange(N), ids=False))
    (tmp_path / "ids.csv").write_bytes(csv_of(ORDER, ids=True))
    (tmp_path / "ragged.csv").write_text("p\n" + "1,\n" * N)
    named = [IDS[at] for at in ORDER]
    tools = agents.Tools(server.url, tmp_path)
    for given in (
        {"file": str(tmp_path / "first.csv")},
        {"file": str(tmp_path / "ids.csv"), "ids": "id"},
        {"predictions": GUESS.tolist()},
        {"predictions": GUESS[ORDER].tolist(), "ids": named},
    ):
        assert tools.call("submit", given)["score"] == pytest.approx(RIGHT)
    for given, said in (
        ({"file": str(tmp_path / "ids.csv")}, "ids of the tool"),
        ({"file": str(tmp_path / "ragged.csv")}, "line 2"),
        ({"file": str(tmp_path / "ids.csv"), "ids": ["id"]}, "name of a column"),
        ({"predictions": GUESS.tolist(), "ids": "id"}, "ids must be a list"),
        ({"predictions": GUESS.tolist(), "ids": named[:-1]}, "ids"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            tools.call("submit", given)


def test_the_pages_take_a_column_of_ids(ledger: Path, server: Running, tmp_path: Path) -> None:
    def score_of(visitor: Visitor, path: str, data: bytes, **fields: str) -> float:
        answer = visitor.post(path, file=("p.csv", data), **fields)
        assert answer.status_code == 303, answer.text
        with_query = answer.headers["location"]
        assert with_query.startswith("/holdouts/churn")
        return float(LadderHoldout.open("churn", ledger=ledger, **who).history()[-1].score or 0)

    who = {"account": "pat"}
    visitor = Visitor(server, token_of(ledger, "pat"))
    page = visitor.get("/holdouts/churn").text
    assert 'name="ids"' in page and "first registered" in page
    path = "/holdouts/churn/submissions"
    assert score_of(visitor, path, csv_of(np.arange(N), ids=False)) == pytest.approx(RIGHT)
    assert score_of(visitor, path, csv_of(ORDER, ids=True), ids="id") == pytest.approx(RIGHT)
    answer = visitor.post(path, file=("p.csv", csv_of(ORDER, ids=True)))
    assert answer.status_code == 422 and "the field for it on the page" in answer.text
    answer = visitor.post(path, file=("p.csv", b"p\n" + b"1,\n" * N))
    assert answer.status_code == 422 and "one more delimiter" in answer.text
    with local_pages(ledger, tmp_path) as (running, address):
        who = {"account": "default"}
        visitor = Visitor(running)
        visitor.get(address.removeprefix(running.url))
        shown = visitor.get("/holdouts/churn?account=default&ladder=main").text
        found = re.search(r'action="(/holdouts/churn/submissions[^"]*)"', shown)
        assert found is not None
        path = found[1].replace("&amp;", "&")
        assert score_of(visitor, path, csv_of(np.arange(N), ids=False)) == pytest.approx(RIGHT)
        assert score_of(visitor, path, csv_of(ORDER, ids=True), ids="id") == pytest.approx(RIGHT)
