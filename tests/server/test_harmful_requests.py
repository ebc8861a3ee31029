"""What a server does with bodies, headers, names and sessions that are meant to harm it.

Bodies are read here, where the calls are counted that it takes, and some are sent to a real server,
whose memory is read from the kernel; `make nightly` reads its time, too. What would have been right
is said here by numpy alone: how many rows there are, and what a body states to be.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest
import requests
from pyarrow import ipc
from sklearn.metrics import accuracy_score

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.cli import serving as serving_command
from ladderholdout.errors import InvalidArgument, LedgerError
from ladderholdout.extras import EXTRAS
from ladderholdout.guard import commands
from ladderholdout.guard.commands import packed
from ladderholdout.metrics import get_metric
from ladderholdout.remote.tables import Form
from ladderholdout.remote.wire import ARROW, CSV, JSON, NPY
from ladderholdout.server import answers
from ladderholdout.server.accounts import add_account, rotate_token
from ladderholdout.server.app import create_app
from ladderholdout.server.bodies import Space, table_in
from ladderholdout.server.protocol import LARGEST_HEAD, Prompt
from ladderholdout.server.settings import ServerSettings
from tests.support.commands import CliRunner
from tests.support.ledgers import rechain, tamper, url_of
from tests.support.server import (
    PATIENCE,
    PROGRAM,
    N,
    Running,
    Visitor,
    local_pages,
    registered,
    rows,
    serving,
    submission_in,
    token_of,
)

MB = 2**20
HISTORY = "/v1/holdouts/churn/history"
SUBMISSIONS, BATCHES = "/v1/holdouts/churn/submit", "/v1/holdouts/churn/submit_batch"


@dataclass(frozen=True, slots=True)
class Place:
    """A server whose refusals are not limited, and the token of an analyst."""

    server: Running
    ledger: Path
    token: str

    def memory(self, field: str) -> int:
        """Megabytes by the kernel: VmRSS now, VmHWM the most since it was asked for anew."""
        text = Path(f"/proc/{self.server.process.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+)", text)
        assert found is not None
        return int(found[1]) // 1024

    def cpu(self) -> float:
        """Seconds that the server's process has worked: for nightly tests alone."""
        text = Path(f"/proc/{self.server.process.pid}/stat").read_text()
        return sum(map(int, text.split()[13:15])) / 100

    def send(self, body: bytes, media: str, path: str = SUBMISSIONS) -> tuple[int, float, int]:
        """Send a body; return the status, the seconds and the megabytes that it took."""
        Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")
        before, worked = self.memory("VmRSS"), self.cpu()
        answer = self.server.ask(
            "POST", path, self.token, data=body, headers={"Content-Type": media}
        )
        return answer.status_code, self.cpu() - worked, self.memory("VmHWM") - before


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("doors")
    ledger = folder / "ledger.db"
    registered(ledger)
    with serving(ledger, folder, "--max-refusals", "1000000") as server:
        place = Place(server, ledger, token_of(ledger, "ada"))
        place.send(stream(p=pa.array(np.zeros(N, np.int64))), ARROW)  # pyarrow is loaded from here
        yield place


def calls_of(act: Callable[[], Any], error: str) -> int:
    """Count the calls until a refusal: a clock would count what else the machine does."""
    calls = 0

    def see(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    with pytest.raises(InvalidArgument, match=error):
        sys.setprofile(see)
        try:
            act()
        finally:
            sys.setprofile(before)
    return calls


CALLS = 20 * N
"""More than what is right takes, and less than one for each of the values that a body states."""


def stream(compression: str | None = None, file: bool = False, **columns: Any) -> bytes:
    """Write columns in Arrow."""
    written, table = io.BytesIO(), pa.table(columns)
    options = ipc.IpcWriteOptions(compression=compression)
    new = ipc.new_file if file else ipc.new_stream
    with new(written, table.schema, options=options) as writer:
        writer.write_table(table)
    return written.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def nulls(count: int) -> bytes:
    return stream(p=pa.nulls(count))


def run_ends() -> bytes:
    ends = pa.array([5 * 10**7], pa.int32())
    return stream(p=pa.RunEndEncodedArray.from_arrays(ends, pa.array([0])))


def zeros(compression: str, file: bool = False) -> bytes:
    return stream(compression, file, p=pa.array(np.zeros(10**7, np.int64)))


def in_a_dictionary() -> bytes:
    codes = pa.array(np.zeros(N, np.int32))
    return stream(p=pa.DictionaryArray.from_arrays(codes, pa.array(["x" * MB])))


def in_lists() -> bytes:
    ends = pa.array([*[0] * N, 10**7], pa.int32())
    return stream(p=pa.ListArray.from_arrays(ends, pa.nulls(10**7)))


def in_lists_of_one_size() -> bytes:
    return stream(p=pa.FixedSizeListArray.from_arrays(pa.nulls(N * 10**5), 10**5))


def in_a_struct() -> bytes:
    return stream(p=pa.StructArray.from_arrays([pa.nulls(5 * 10**7)], ["a"]))


def many_batches(count: int) -> bytes:
    empty = pa.record_batch({"p": pa.array([], pa.int64())})
    written = io.BytesIO()
    with ipc.new_stream(written, empty.schema) as writer:
        for _ in range(count):
            writer.write_batch(empty)
    return written.getvalue()


def many_columns() -> bytes:
    return stream(**{f"p{place}": pa.array([], pa.int64()) for place in range(5000)})


def views_of_one_text() -> bytes:
    places = pa.py_buffer(struct.pack("<i4sii", MB, b"xxxx", 0, 0) * N)
    texts = pa.py_buffer(b"x" * MB)
    return stream(p=pa.Array.from_buffers(pa.string_view(), N, [None, places, texts]))


def more_rows_than_bytes() -> bytes:
    whole = stream(p=pa.array(np.zeros(N, np.int64)))
    return whole.replace(struct.pack("<q", N), struct.pack("<q", 5 * 10**7))


def rows_beyond_the_body() -> bytes:
    """As many rows as the holdout has, and places that are a part of them."""
    whole = stream(p=pa.array(np.zeros(N, np.int64)))
    return whole.replace(struct.pack("<q", 8 * N), struct.pack("<q", 8))


BATCHED = 3000
ARROWS: dict[str, Callable[[], bytes]] = {
    "rows of nothing": lambda: nulls(5 * 10**7),
    "many more rows of nothing": lambda: nulls(3 * 10**8),
    "a run of one value": run_ends,
    "zeros in lz4": lambda: zeros("lz4"),
    "zeros in zstd": lambda: zeros("zstd"),
    "zeros in a file": lambda: zeros("zstd", file=True),
    "a long text in a dictionary": in_a_dictionary,
    "lists": in_lists,
    "lists of one size": in_lists_of_one_size,
    "a struct": in_a_struct,
    "batches of no rows": lambda: many_batches(BATCHED),
    "columns of no rows": many_columns,
    "many views of one text": views_of_one_text,
    "more rows than bytes": more_rows_than_bytes,
    "places beyond the body": rows_beyond_the_body,
}


@pytest.mark.parametrize("what", ARROWS)
def test_arrow_is_refused_before_its_values_are_made(what: str) -> None:
    data, pool = ARROWS[what](), pa.default_memory_pool()
    counting = pa.proxy_memory_pool(pool)

    def read() -> None:
        asked = submission_in(data, ARROW, lambda: form_of("a", "b"), Space(N, 2, 1))
        # A text is no class, which the metric says: it was cut to two characters by then.
        assert asked.predictions.nbytes <= 8 * N
        raise InvalidArgument("predictions", "labels", "others")

    pa.set_memory_pool(counting)
    try:
        calls = calls_of(read, "predictions must be")
    finally:
        pa.set_memory_pool(pool)
    # Batches have as many bytes as they state, and each is looked at.
    assert calls <= CALLS + 20 * BATCHED * (what == "batches of no rows")
    assert counting.max_memory() <= 4 * len(data) + MB


PLAIN = {
    "whole numbers": pa.array(np.arange(N) % 2),
    "small ones": pa.array((np.arange(N) % 2).astype(np.int8)),
    "halves": pa.array((np.arange(N) % 2).astype(np.float16)),
    "booleans": pa.array(np.arange(N) % 2 == 1),
    "decimals": pa.array(np.arange(N) % 2).cast(pa.decimal128(25, 2)),
    "a dictionary of numbers": pa.array(np.arange(N) % 2).dictionary_encode(),
}
TEXTS = {
    "texts": pa.array(["ab"[place % 2] for place in range(N)]),
    "large texts": pa.array(["ab"[place % 2] for place in range(N)], pa.large_string()),
    "views": pa.array(["ab"[place % 2] for place in range(N)], pa.string_view()),
    "a dictionary of texts": pa.array(["ab"[place % 2] for place in range(N)]).dictionary_encode(),
}


MAKES = [
    (False, None),
    (True, "lz4"),
    (False, "zstd"),
    (True, None),
    (False, "lz4"),
    (True, "zstd"),
]


@pytest.mark.parametrize(
    ("what", "file", "compression"),
    [(what, *MAKES[place % 6]) for place, what in enumerate([*PLAIN, *TEXTS])],
)
def test_arrow_of_every_simple_kind_is_read(what: str, file: bool, compression: str | None) -> None:
    column = (PLAIN | TEXTS)[what]
    data = stream(compression, file, p=column)
    read = table_in(data, Space(N, 2, 1))
    (values,) = read.columns
    expected = [*"ab"] * (N // 2) if what in TEXTS else [0, 1] * (N // 2)
    assert read.names == ("p",) and list(values) == expected


def test_arrow_in_several_batches_with_a_dictionary_each_is_read() -> None:
    kinds = pa.dictionary(pa.int32(), pa.string())
    parts = [pa.array([*"abab"]).dictionary_encode().cast(kinds), pa.array(["b"], kinds)]
    written = io.BytesIO()
    with ipc.new_stream(written, pa.schema({"p": kinds})) as writer:
        for part in parts:
            writer.write_batch(pa.record_batch({"p": part}))
    (values,) = table_in(written.getvalue(), Space(5, 2, 1)).columns
    assert list(values) == [*"ababb"]


VALUES = Form(get_metric("neg_mean_absolute_error"), N, None)


def form_of(*classes: str) -> Form:
    """What a ladder of accuracy takes on rows of these classes."""
    return Form(get_metric("accuracy"), N, np.array(classes))


OTHERS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "lists in JSON": (JSON, lambda: b'{"predictions":[' + b"[]," * MB + b"[]]}"),
    "objects in JSON": (JSON, lambda: b'{"predictions":[' + b"{}," * MB + b"{}]}"),
    "numbers in JSON": (JSON, lambda: b'{"predictions":[' + b"0," * MB + b"0]}"),
    "depth in JSON": (JSON, lambda: b"[" * MB),
    "keys in JSON": (
        JSON,
        lambda: (
            b'{"predictions":[0],"context":{'
            + b",".join(b'"%x":0' % place for place in range(10**5))
            + b"}}"
        ),
    ),
    "a long number in JSON": (JSON, lambda: b'{"predictions":[' + b"9" * MB + b"]}"),
    "long numbers in JSON": (
        JSON,
        lambda: b'{"predictions":[' + b",".join([b"9" * 4299] * N) + b"]}",
    ),
    "numbers of no float in JSON": (
        JSON,
        lambda: b'{"predictions":[' + b",".join([b"9" * 350] * N) + b"]}",
    ),
    "characters in JSON that are written as numbers": (
        JSON,
        lambda: b'{"predictions":["' + rb"\u4e00" * 10**5 + b'"]}',
    ),
    "lists in notes": (
        JSON,
        lambda: b'{"predictions":[0],"context":{"a":[' + b"[]," * 10**5 + b"[]]}}",
    ),
    "an array in base64 of another size": (
        JSON,
        lambda: json.dumps({"predictions": packed(np.zeros(10**5, np.uint8))}).encode(),
    ),
    "lines in CSV": (CSV, lambda: b"\n" * MB),
    "commas in CSV": (CSV, lambda: b"p\n" + b"," * MB),
    "rows in CSV": (CSV, lambda: b"p\n" + b"0\n" * MB),
    "rows in CSV of another system": (CSV, lambda: b"p\r" + b"0\r" * MB),
    "more rows in npy": (NPY, lambda: npy(np.zeros(MB, np.uint8))),
    "more columns in npy": (NPY, lambda: npy(np.zeros((N, 1000), np.uint8))),
    "nothing in npy": (NPY, lambda: npy(np.zeros(N, "U1")).replace(b"<U1", b"<U0")),
    "fields in npy": (NPY, lambda: npy(np.zeros(N, [("a", "u1"), ("b", "u1")]))),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_body_is_refused_before_its_values_are_made(what: str) -> None:
    media, build = OTHERS[what]
    data = build()

    def read() -> None:
        asked = submission_in(data, media, lambda: VALUES, Space(N, 1))
        # What is left is of the right size, and no finite numbers: the metric says so.
        assert np.asarray(asked.predictions, dtype=object).size == N
        raise InvalidArgument("predictions", "numbers", "others")

    tracemalloc.start()
    try:
        calls, (_, most) = calls_of(read, "must be"), tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most <= 4 * len(data) + MB
    assert calls <= CALLS


def texts_of(count: int, longest: int) -> list[str]:
    return ["a"] * (count - 1) + ["b" * longest]


@pytest.mark.parametrize(
    ("media", "data"),
    [
        (JSON, json.dumps({"predictions": texts_of(N, MB)}).encode()),
        (CSV, ("p\n" + "\n".join(texts_of(N, 10**5))).encode()),
        (ARROW, stream(p=pa.array(texts_of(N, MB)))),
        (NPY, npy(np.array(texts_of(N, 2000)))),
        (JSON, json.dumps({"predictions": [[one] for one in texts_of(N, MB)]}).encode()),
    ],
)
def test_one_long_text_does_not_make_all_of_them_long(media: str, data: bytes) -> None:
    tracemalloc.start()
    asked = submission_in(data, media, lambda: form_of("a", "b"), Space(N, 2, 1))
    taken, (_, most) = np.asarray(asked.predictions), tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most <= 4 * len(data) + MB
    # Still no class, and as many of them as there were.
    assert taken.size == N and taken.nbytes <= 8 * N
    assert set(taken.ravel()[:-1]) == {"a"} and taken.ravel()[-1] == "bb"


def test_a_name_of_a_class_with_commas_and_brackets_is_counted_as_one(tmp_path: Path) -> None:
    names = np.array(["[a, b]: {c}", "d;e\tf, g, h"])
    X, y = rows()
    LadderHoldout(X, names[y], scoring="accuracy", name="odd", ledger=tmp_path / "ledger.db")
    ladder = LadderHoldout.open("odd", ledger=tmp_path / "ledger.db")._ladder
    space = Space.of(ladder)
    guesses = names[1 - y]
    for data, media in (
        (json.dumps({"predictions": guesses.tolist()}).encode(), JSON),
        (('p\n"' + '"\n"'.join(guesses) + '"\n').encode(), CSV),
        (npy(guesses), NPY),
        (stream(p=pa.array(guesses)), ARROW),
    ):
        asked = submission_in(data, media, lambda: form_of(*names), space)
        assert accuracy_score(guesses, np.asarray(asked.predictions)) == 1.0


def batch_in(data: bytes, space: Space) -> Any:
    return submission_in(data, JSON, None, space, kind=commands.SubmitBatch)


def test_a_batch_is_counted_submission_by_submission() -> None:
    space = Space(N, 2, 1)
    one = {"predictions": [0, 1] * (N // 2), "context": {"depth": 3, "stopping": "x"}}
    taken = batch_in(json.dumps({"submissions": [one] * 3}).encode(), space).submissions
    assert [json.loads(each.context) for each in taken] == [one["context"]] * 3
    assert all(np.array_equal(each.predictions, [0, 1] * (N // 2)) for each in taken)
    for wrong in (
        b'{"submissions":[' + b"[]," * MB + b"[]]}",
        b'{"submissions":[' + b'{"predictions":[]},' * 10**5 + b"0]}",
        b'{"submissions":[' + b'"predictions",' * 900 + b"[]," * MB + b"[]]}",
        json.dumps({"submissions": [one, {"predictions": [0] * (N - 1)}]}).encode(),
        json.dumps({"submissions": [one, {"predictions": [[]] * N}]}).encode(),
    ):
        # The most are of 900 texts, each of which is a submission.
        assert calls_of(partial(batch_in, wrong, space), "must be") <= 2 * CALLS


PARTS = [b"[],", b"0,", b'"a":[],', b"9"]


def long_json(part: bytes, size: int) -> bytes:
    return b'{"submissions":[{"predictions":[' + part * (size // len(part)) + b"0]}]}"


@pytest.mark.parametrize("part", PARTS)
def test_a_longer_body_is_refused_after_as_many_calls(part: bytes) -> None:
    """60 MB took more than a minute, for what they state was read."""
    space = Space(N, 2, 1)
    for read in (
        lambda data: batch_in(data, space),
        lambda data: submission_in(data, JSON, lambda: VALUES, space),
    ):
        bodies = [long_json(part, size) for size in (2 * MB, 12 * MB)]
        calls_of(partial(read, bodies[0]), "must be")  # patterns are compiled once
        short, long = (calls_of(partial(read, data), "must be") for data in bodies)
        assert long == short <= CALLS


HALVES = [r"\ud800", r"\udfff x", r"\ud800\ud800", r"\u0000", r"a\u0000b", r"\udc00\ud800"]


@pytest.mark.parametrize(
    "body",
    [
        '{"predictions":[0,1],"search":"%s"}',
        '{"predictions":[0,1],"context":{"note":"%s"}}',
        '{"predictions":[0,1],"context":{"%s":1}}',
        '{"predictions":["0","%s"]}',
    ],
)
def test_half_a_character_is_refused_wherever_it_is(body: str) -> None:
    for text in HALVES:
        with pytest.raises(InvalidArgument, match="must be"):
            submission_in((body % text).encode(), JSON, lambda: VALUES, Space(2, 1, 9))


def test_a_whole_character_and_a_backslash_are_texts() -> None:
    body = rb'{"predictions":[0,1],"search":"\ud83d\ude00","context":{"a":"\\u0000 \\ud800"}}'
    asked = submission_in(body, JSON, lambda: VALUES, Space(2, 1))
    assert asked.search == "\N{GRINNING FACE}"
    assert json.loads(asked.context) == {"a": r"\u0000 \ud800"}


# -- on a real server -----------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize("what", ["rows of nothing", "zeros in zstd", "many views of one text"])
def test_a_server_is_not_occupied_by_arrow(place: Place, what: str) -> None:
    data = ARROWS[what]()
    status, _, megabytes = place.send(data, ARROW)
    assert status in (413, 422)
    assert megabytes <= 4 * len(data) / MB + 16


# Each part by one of the two ways; `make nightly` has all of both.
@pytest.mark.processes
@pytest.mark.parametrize(("path", "part"), [*zip([SUBMISSIONS, BATCHES] * 2, PARTS, strict=True)])
def test_a_server_is_not_occupied_by_json(place: Place, path: str, part: bytes) -> None:
    for size in (2 * MB, 60 * MB):
        status, _, megabytes = place.send(long_json(part, size), JSON, path)
        assert status in (413, 422)
        assert megabytes <= 4 * size / MB + 16


@pytest.mark.nightly
def test_a_server_is_not_occupied_for_long(place: Place) -> None:
    """By the clock of its process: a call that is long is one call for those that count them."""
    sent = [(ARROW, SUBMISSIONS, build()) for build in ARROWS.values()]
    sent += [
        (JSON, path, long_json(part, size))
        for path in (SUBMISSIONS, BATCHES)
        for part in PARTS
        for size in (2 * MB, 60 * MB)
    ]
    for media, path, data in sent:
        status, seconds, megabytes = place.send(data, media, path)
        assert status in (413, 422)
        assert seconds < 1 and megabytes <= 4 * len(data) / MB + 16
    for parts in HEADERS.values():
        worked = place.cpu()
        with connected(place.server) as one:
            answered(one, *parts)
        assert place.cpu() - worked < 0.5


@pytest.mark.processes
@pytest.mark.parametrize("text", [r"\ud800", r"\udfff x", r"a\u0000b"])
def test_half_a_character_in_a_note_of_groups_is_refused(place: Place, text: str) -> None:
    path = SUBMISSIONS.replace("submit", "note_groups")
    headers = {"Content-Type": JSON}
    body = b'{"by": "%s"}' % text.encode()
    answer = place.server.ask("POST", path, place.token, data=body, headers=headers)
    assert answer.status_code == 422


@pytest.mark.processes
def test_what_an_analyst_notes_is_one_value_of_its_kind(place: Place) -> None:
    headers = {"Content-Type": JSON}
    wrong = (b"[]", b"{}", b"3", b"[" * 5000, b'{"rows": null}', b'{"rows": true}', b'{"by": 3}')
    for kind in ("note_rows", "note_groups"):
        path = SUBMISSIONS.replace("submit", kind)
        for body in wrong:
            answer = place.server.ask("POST", path, place.token, data=body, headers=headers)
            assert answer.status_code == 422


@pytest.mark.processes
def test_a_form_without_a_file_is_small(place: Place) -> None:
    visitor = Visitor(place.server)
    visitor.get("/sign-in")
    answer = visitor.post("/sign-in", token="%41" * 2**16)
    assert answer.status_code == 413
    assert visitor.post("/sign-in", token=place.token).status_code == 303


def asking(app: Any, token: str) -> Callable[[str, bytes], tuple[int, dict[str, str], Any]]:
    """Ask an application in this process, with no server around it."""

    def ask(path: str, data: bytes = b"") -> tuple[int, dict[str, str], Any]:
        headers = {"authorization": f"Bearer {token}", "content-type": JSON, "host": "a"}
        headers["content-length"] = str(len(data))
        scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"},
            **{"method": "POST", "scheme": "http", "path": path, "root_path": ""},
            **{"query_string": b"", "client": ("127.0.0.1", 1), "server": ("a", 80)},
            "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(app(scope, receive, send))
        begun, *parts = sent
        told = {name.decode().lower(): text.decode() for name, text in begun["headers"]}
        return begun["status"], told, json.loads(b"".join(part["body"] for part in parts))

    return ask


def test_refusals_have_a_limit_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, moment = tmp_path / "ledger.db", [1_800_000_007.5]
    registered(ledger)
    monkeypatch.setattr(answers, "time", SimpleNamespace(time=lambda: moment[0]))
    asked: list[ServerSettings] = []
    monkeypatch.setattr(serving_command, "run", asked.append)
    words = ["serve", "--ledger", str(ledger), "--max-refusals", "5"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    served = create_app(*asked)
    ada, bob = (asking(served, token_of(ledger, name)) for name in ("ada", "bob"))
    good = json.dumps({"predictions": [0] * N}).encode()
    assert [ada(SUBMISSIONS, b"{}")[0] for _ in range(6)] == [422] * 5 + [429]
    status, told, _ = ada(SUBMISSIONS, good)
    assert (status, told["retry-after"]) == (429, str(60 - int(moment[0]) % 60))
    # Of another account nothing was refused, and what only reads goes on.
    assert bob(SUBMISSIONS, good)[0] == 200
    assert ada(HISTORY)[2]["total"] == 0
    moment[0] += int(told["retry-after"]) - 1
    assert ada(SUBMISSIONS, good)[0] == 429
    moment[0] += 1  # the next minute
    assert ada(SUBMISSIONS, good)[0] == 200


@contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as one:
        yield one


def answered(one: socket.socket, *parts: bytes) -> bytes:
    """Send parts until the server hangs up; return how its answer begins."""
    try:
        for part in parts:
            one.sendall(part)
    except OSError:
        pass
    try:
        return one.recv(64)
    except OSError:
        return b""


HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
HEADERS: dict[str, list[bytes]] = {
    "one that does not end": [HEAD + b"A: ", *[b"a" * MB] * 20],
    "one of 70 kB": [HEAD + b"A: " + b"a" * 70_000 + b"\r\n\r\n"],
    "many": [HEAD, *[b"A%d: %s\r\n" % (place, b"a" * MB) for place in range(20)], b"\r\n"],
    "many small ones": [HEAD + b"A: b\r\n" * 20_000 + b"\r\n"],
    "a name": [HEAD, *[b"a" * MB] * 20],
    "an address": [b"GET /", *[b"a" * MB] * 20, b" HTTP/1.1\r\nHost: x\r\n\r\n"],
    "trailers": [CHUNKED % b"/sign-in" + b"0\r\nA: ", *[b"a" * MB] * 20],
    "what describes a part": [CHUNKED % b"/sign-in" + b"1;a=", *[b"a" * MB] * 20],
}


@pytest.mark.processes
@pytest.mark.parametrize("what", HEADERS)
def test_headers_are_bounded_before_anybody_is_known(place: Place, what: str) -> None:
    before = place.memory("VmRSS")
    with connected(place.server) as one:
        begin = answered(one, *HEADERS[what])
    assert not begin.startswith(b"HTTP/1.1 200")
    assert place.memory("VmRSS") - before <= 4
    assert place.server.ask("GET", "/healthz").status_code == 200


def test_of_headers_without_end_the_parser_has_no_more_than_they_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []
    monkeypatch.setattr(Prompt.__base__, "data_received", lambda self, data: read.append(len(data)))
    said: list[bytes] = []
    closed: list[bool] = []
    connection = Prompt.__new__(Prompt)
    connection.transport = SimpleNamespace(
        is_closing=lambda: bool(closed), write=said.append, close=lambda: closed.append(True)
    )
    connection.loop = SimpleNamespace(call_later=lambda *_: None)
    connection.cycle = None
    for _ in range(20):
        connection.data_received(b"a" * (LARGEST_HEAD - 1))
    assert sum(read) == LARGEST_HEAD + 1
    (answer,) = said
    assert answer.startswith(b"HTTP/1.1 431") and closed  # and is not listened to for ever


@pytest.mark.processes
def test_headers_that_are_too_long_are_named_and_others_are_taken(place: Place) -> None:
    parts = urlsplit(place.server.url)
    for size, status in ((60_000, 200), (66_000, 431)):
        asked = http.client.HTTPConnection(parts.netloc, timeout=30)
        asked.request("GET", "/healthz", headers={"A": "a" * size})
        answer = asked.getresponse()
        assert answer.status == status
        body = json.loads(answer.read())
        assert status == 200 or "64 kilobytes" in body["title"]
        asked.close()
    # A long body after short headers, and several requests on one connection.
    with connected(place.server) as one:
        one.sendall((HEAD + b"\r\n") * 3)
        got = b""
        while got.count(b"HTTP/1.1 200 OK") < 3:
            part = one.recv(MB)
            assert part
            got += part


@pytest.mark.processes
def test_without_httptools_headers_are_bounded_too(tmp_path: Path) -> None:
    registered(tmp_path / "ledger.db")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "httptools.py").write_text("raise ImportError\n")
    (hidden / "run.py").write_text(f"import sys; sys.path.insert(0, {str(hidden)!r})\n{PROGRAM}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--ledger", str(tmp_path / "ledger.db"), "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(hidden / "run.py"), *words], stdout=log, stderr=log
        )
    server = Running(f"http://127.0.0.1:{port}", process, tmp_path / "log")
    try:
        for _ in range(600):
            try:
                assert requests.get(server.url + "/healthz", timeout=5).ok
                break
            except requests.ConnectionError:
                time.sleep(0.05)
        one = Place(server, tmp_path / "ledger.db", "")
        before = one.memory("VmRSS")
        for what in ("one that does not end", "many", "an address"):
            with connected(server) as opened:
                assert not answered(opened, *HEADERS[what]).startswith(b"HTTP/1.1 200")
        assert one.memory("VmRSS") - before <= 8
        assert server.ask("GET", "/healthz").status_code == 200
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.processes
def test_who_goes_away_is_no_failure(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    with serving(ledger, tmp_path) as server:
        for path in (SUBMISSIONS, BATCHES):
            for size in (b"100", b"1000000"):
                with connected(server) as one:
                    head = b"POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % (
                        path.encode(),
                        token.encode(),
                    )
                    one.sendall(head + b"Content-Length: %s\r\n\r\n{" % size)
        with connected(server) as one:
            one.sendall(b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\na=")
        end = time.monotonic() + PATIENCE
        while server.log.read_text().count('"status": 499') < 5 and time.monotonic() < end:
            time.sleep(0.02)
    log = server.log.read_text()
    assert '"level": "ERROR"' not in log and "Traceback" not in log
    assert log.count('"status": 499') == 5


@pytest.mark.processes
def test_no_answer_leads_to_the_host_that_a_request_names(place: Place) -> None:
    for path in ("/v1/holdouts/churn/", "/v1/holdouts/", "/healthz/", "/docs/", "/sign-in/"):
        answer = place.server.ask(
            "GET", path, headers={"Host": "evil.example"}, allow_redirects=False
        )
        assert "evil.example" not in answer.headers.get("Location", "") + answer.text
        assert answer.status_code in (303, 401, 404)


@pytest.mark.processes
@pytest.mark.parametrize("search", ["\x00", "\x1b", "x" * 33])
def test_a_search_is_a_printable_text_in_a_question_too(place: Place, search: str) -> None:
    answer = place.server.ask("POST", HISTORY, place.token, params={"search": search})
    assert answer.status_code == 422


@pytest.mark.processes
def test_a_session_that_was_ended_is_ended_for_its_copies(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    registered(ledger, "other", seed=1)
    token, other = token_of(ledger, "ada"), token_of(ledger, "bob", holdout="other")

    def copied(visitor: Visitor) -> Visitor:
        copy = Visitor(visitor.server)
        copy.session.cookies.update(visitor.session.cookies)
        return copy

    with serving(ledger, tmp_path) as server:
        visitor, elsewhere = Visitor(server, token), Visitor(server, token)
        first = copied(visitor)
        visitor.get("/sign-in")
        visitor.post("/sign-in", token=other)  # the session gets another name
        assert first.get("/").status_code == 303
        second = copied(visitor)
        assert second.get("/").status_code == 200
        visitor.get("/")
        assert visitor.post("/sign-out").status_code == 303
        assert second.get("/").status_code == 303
        assert second.get("/holdouts/churn").status_code == 303
        assert elsewhere.get("/").status_code == 200  # another session of the same account
    with serving(ledger, tmp_path) as again:  # and after a restart
        second.server = elsewhere.server = again
        assert second.get("/").status_code == 303
        assert elsewhere.get("/").status_code == 200
        rotate_token(str(ledger), "churn", "ada")
        assert elsewhere.get("/").status_code == 303


@pytest.mark.processes
def test_the_one_session_of_a_ledger_at_home_ends_for_its_copies(tmp_path: Path) -> None:
    registered(tmp_path / "ledger.db")
    with local_pages(tmp_path / "ledger.db", tmp_path) as (server, printed):
        visitor, copy = Visitor(server), Visitor(server)
        path = printed.removeprefix(server.url)
        visitor.get(path)
        visitor.get("/holdouts/churn")
        copy.session.cookies.update(visitor.session.cookies)
        assert copy.get("/").status_code == 200
        assert visitor.post("/sign-out").status_code == 303
        assert copy.get("/").status_code == 401
        assert copy.get(path).status_code == 401


# -- names ----------------------------------------------------------------------------------

NO_SEGMENTS = [".", "..", "a/b", "../../x", "/a", "a\\b", "%2f", "a%2Fb", "%2e%2e", "é" * 150]
NO_SEGMENTS += ["", " ", "a\nb", "a\x00b", "\x1b[0m", "x" * 201, "\u202ea"]


def test_a_new_name_can_be_a_part_of_an_address(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    X, y = rows()
    own = {"scoring": "accuracy", "ledger": ledger}
    for name in NO_SEGMENTS:
        with pytest.raises(InvalidArgument, match="name must be"):
            LadderHoldout(X, y, name=name, **own)
        with pytest.raises(InvalidArgument, match="account must be"):
            LadderHoldout(X, y, name="churn", account=name, **own)
        with pytest.raises(InvalidArgument, match="ladder must be"):
            LadderHoldout(X, y, name="churn", ladder=name, **own)
    LadderHoldout(X, y, name="churn", **own)
    for name in NO_SEGMENTS:
        with pytest.raises(InvalidArgument, match="ladder must be"):
            LadderHoldout(X, y, ladder=name, **own)
        with pytest.raises(InvalidArgument, match="NAME must be"):
            add_account(ledger, "churn", name, "analyst")
    held = LadderHoldout.open("churn", ledger=ledger)
    assert len(held.status().ladders) == 1


def test_other_names_are_taken(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    names = ("churn 2026", "é ü", "50 % off", "a.b", "...", "a?b#c&d", "x" * 200)
    for seed, name in enumerate(names):
        made = registered(ledger, name, seed, account=name)
        assert made.status().name == name
        assert LadderHoldout.open(name, account=name, ledger=ledger).status().account == name


def renamed(ledger: Path, name: str, to: str) -> None:
    """Give the holdout a name that an older version took."""
    tamper(ledger, "holdout", "registered name", to, holdout=name)
    rechain(ledger)
    for mark in ledger.parent.rglob("*.mark"):  # of the chain under the other name
        mark.unlink()


@pytest.mark.processes
def test_a_name_of_an_older_ledger_leads_to_its_holdout(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    names = ("a/b", "..", "../../x", "%2f", ".")
    for seed, name in enumerate(names):
        registered(ledger, f"now {seed}", seed)
        renamed(ledger, f"now {seed}", name)
    with serving(ledger, tmp_path) as server:
        for seed, name in enumerate(names):
            X, y = rows(seed)
            own = {"scoring": "accuracy", "name": name, "ledger": ledger}
            assert LadderHoldout.open(name, ledger=ledger).status().name == name
            assert LadderHoldout(X, y, **own).status().name == name
            done = CliRunner().invoke(app, ["status", name, "--ledger", str(ledger), "--json"])
            assert done.exit_code == 0 and json.loads(done.stdout)["name"] == name
            token = add_account(str(ledger), name, "ada", "analyst").token
            quoted = name.replace("%", "%25").replace("/", "%2F")
            remote = LadderHoldout.connect(f"{server.url}/holdouts/{quoted}", token)
            assert remote.submit(y).score == 1.0
            assert remote.status().name == name


@pytest.mark.processes
def test_the_command_line_and_the_server_refuse_such_names(place: Place, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,label\n" + "".join(f"{i}.5,{i % 2}\n" for i in range(60)))
    words = ["register", str(tmp_path / "rows.csv"), "--target", "label", "--scoring", "accuracy"]
    owner = token_of(place.ledger, "olga", "owner")
    for name in ("../x", "..", "a%2fb"):
        done = CliRunner().invoke(app, [*words, "--name", name])
        assert done.exit_code == 1
        assert "name must be" in done.stderr and "part of an address" in done.stderr
        body = json.dumps({"account": name, "role": "analyst"})
        answer = place.server.ask("POST", "/v1/holdouts/churn/add_account", owner, data=body)
        assert answer.status_code == 422
        assert answer.json()["argument"] == "account"


# -- what is not installed ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("mysql://ada:secret@host/base", r"postgresql://user@host/base"),
        ("duckdb:///x.db", r"postgresql://user@host/base"),
        ("postgres://host/base", r"Write postgresql://"),
        ("postgresql+psycopg2://host/base", r"pip install 'ladderholdout\[postgres\]'"),
        ("postgresql+asyncpg://host/base", r"pip install 'ladderholdout\[postgres\]'"),
        ("postgresql://host", r"postgresql://user@host/base"),
        ("sqlite+aiosqlite:////folder/x.db", r"Write sqlite:////folder/x\.db"),
        ("sqlite+pysqlcipher:////folder/x.db", r"Write sqlite:////folder/x\.db"),
        ("sqlite://", r"sqlite:////folder/ledger\.db"),
        ("file:///folder/x.db", r"Give the path alone"),
        ("https://host/holdouts/a", r"LadderHoldout\.connect\(url\)"),
    ],
)
def test_a_url_that_is_no_ledger_names_what_to_write(url: str, remedy: str) -> None:
    with pytest.raises(InvalidArgument, match=remedy) as caught:
        url_of(url)
    assert "secret" not in str(caught.value)
    found = re.search(r"Write (\S+?)\.?$", str(caught.value))
    if found is not None and found[1].startswith("sqlite"):
        assert url_of(found[1]) == found[1]


def test_a_driver_without_its_library_names_what_brings_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As psycopg is where its binary and libpq are both missing."""
    (tmp_path / "psycopg").mkdir()
    text = 'raise ImportError("no pq wrapper available.")\n'
    (tmp_path / "psycopg" / "__init__.py").write_text(text)
    for name in [one for one in sys.modules if one.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LedgerError, match=r"needs libpq.*pip install 'ladderholdout\[postgres\]'"):
        LadderHoldout.open("a", ledger="postgresql://ada@127.0.0.1:1/another")


@pytest.mark.parametrize("package", ["jinja2", "python_multipart", "fastapi", "uvicorn"])
@pytest.mark.parametrize("command", ["serve", "ui"])
def test_a_server_names_its_extra_before_it_serves(
    package: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(tmp_path / "ledger.db")
    monkeypatch.setitem(sys.modules, package, None)
    words = [command, "--ledger", str(tmp_path / "ledger.db")]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 1 and "serving" not in done.stdout
    assert f"needs {package}" in done.stderr
    assert "pip install 'ladderholdout[server]'" in done.stderr
    assert package in EXTRAS


@pytest.mark.processes
def test_without_its_extra_the_command_starts_and_names_it(tmp_path: Path) -> None:
    """One that is missing from the start: no module of the command line imports it."""
    registered(tmp_path / "ledger.db")
    code = f"import sys; sys.modules['fastapi'] = None; {PROGRAM}"
    words = ["serve", "--ledger", str(tmp_path / "ledger.db")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "needs fastapi" in done.stderr


@pytest.mark.processes
def test_the_agent_of_the_examples_names_what_it_needs(tmp_path: Path) -> None:
    hidden = tmp_path / "jinja2.py"
    hidden.write_text("raise ModuleNotFoundError(\"No module named 'jinja2'\", name='jinja2')\n")
    example = Path(__file__).parents[2] / "examples" / "agent.py"
    places = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(example)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": places},
    )
    assert done.returncode != 0
    assert "pip install 'ladderholdout[server]'" in done.stderr
