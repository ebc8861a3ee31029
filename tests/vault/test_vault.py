"""Attacks the private file: other readers, changed bytes, crashes, talkative errors."""

from __future__ import annotations

import datetime
import decimal
import fractions
import hashlib
import io
import json
import os
import pickle
import random
import re
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from ladderholdout import LadderHoldout
from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.identity.hashing import fingerprint, row_hashes
from ladderholdout.process import HAS_MODES
from ladderholdout.vault import (
    Rows,
    features_from_bytes,
    features_to_bytes,
    intact,
    read,
    remove,
    write,
)
from ladderholdout.vault.values import Hashed

CANARY = "canary-7f3a"
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="no mode bits and no SIGKILL here")


def some_rows(seed: int = 0, n: int = 20) -> Rows:
    rng = np.random.default_rng(seed)
    labels = np.array([f"{CANARY}-{i % 3}" for i in range(n)])
    return Rows(rng.standard_normal((n, 3)), labels, np.full(n, 987.125))


def key(rows: Rows) -> str:
    return fingerprint(row_hashes(rows.X))


def assert_same(found: Rows, rows: Rows) -> None:
    assert type(found.X) is type(rows.X)
    assert np.array_equal(row_hashes(found.X), row_hashes(rows.X))
    for name in ("y", "sample_weight"):
        np.testing.assert_array_equal(getattr(found, name), getattr(rows, name), strict=True)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


# What is written is read


@pytest.mark.parametrize(
    "pack",
    [
        np.asarray,
        np.asfortranarray,
        lambda X: np.repeat(X, 2, axis=1)[:, ::2],
        pd.DataFrame,
        lambda X: pd.DataFrame(X, columns=list("abc")).assign(a="text", b=pd.Categorical(X[:, 1])),
        scipy.sparse.csr_array,
        lambda X: X.tolist(),
        lambda X: [str(row) for row in X],
    ],
)
def test_rows_come_back_as_they_were(tmp_path: Path, pack: Callable[[Any], Any]) -> None:
    plain = some_rows()
    rows = Rows(pack(plain.X), plain.y, plain.sample_weight)
    path, digest = write(tmp_path / "vault", "some.name", rows)
    assert path == tmp_path / "vault" / "some.name.vault"
    assert intact(path, digest)
    assert_same(read(path, digest, key(rows)), rows)


N = 12
NUMBERS = np.random.default_rng(0).standard_normal((N, 3)).round(2)
SOME = np.where(NUMBERS > 0, NUMBERS, 0)
DAYS = pd.date_range("2020", periods=N)
CELLS: list[Any] = [
    *(1, "a", None, 2.5, True, False, 10**30, -(2**63), float("nan"), float("-inf"), -0.0, 5e-324),
    *("h\ud800i", "\ud800\udc00", "", "q\0", '\u2028"\\', 0.1 + 0.2),
]
REFUSED: list[Any] = [
    *(b"x", np.float32(1.5), np.bool_(1), np.int8(3), np.str_("q"), np.datetime64("2020-01-01")),
    *(pd.NA, pd.NaT, pd.Timestamp("2020-01-01", tz="Europe/Berlin"), pd.Timedelta("1D")),
    *(datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
    *(datetime.timedelta(1, 2, 3), decimal.Decimal("1.50"), fractions.Fraction(1, 3)),
]


def objects(cells: list[Any]) -> np.ndarray:
    found = np.empty((len(cells), 1), dtype=object)
    found[:, 0] = cells
    return found


def mixed_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "number": NUMBERS[:, 0],
            "text": list("abcdefghijkl"),
            "ordered": pd.Categorical(list("abc") * 4, categories=list("cbax"), ordered=True),
            "day": DAYS,
            "seconds": DAYS.astype("M8[s]"),
            "zone": pd.date_range("2020", periods=N, tz="Europe/Berlin"),
            "offset": pd.date_range("2020", periods=N, tz="+01:00"),
            "hours": pd.to_timedelta(range(N), unit="h"),
            "small": np.arange(N, dtype="i1"),
            "object": pd.Series(CELLS[:N], dtype=object),
            "texts": pd.Series(list("abcdefghijkl"), dtype=object),
            "Int64": pd.array([1, None] * 6, dtype="Int64"),
            "UInt8": pd.array([1, None] * 6, dtype="UInt8"),
            "Float32": pd.array([1.5, None] * 6, dtype="Float32"),
            "boolean": pd.array([True, None] * 6, dtype="boolean"),
            "string": pd.array(["a", None] * 6, dtype="string"),
            "python": pd.array(["a", None] * 6, dtype="string[python]"),
            "arrow": pd.array([1, None] * 6, dtype="int64[pyarrow]"),
            "arrow text": pd.array(["a", None] * 6, dtype="string[pyarrow]"),
            "another number": NUMBERS[:, 1],
            "bool": NUMBERS[:, 0] > 0,
            "whole": np.arange(N, dtype="u8"),
            "float16": np.arange(N, dtype="f2"),
            "no day": [pd.NaT, *DAYS[1:]],
            "no zone": [pd.NaT, *pd.date_range("2020", periods=N - 1, tz="UTC")],
            "no hours": [pd.NaT, *pd.to_timedelta(range(1, N), unit="h")],
            "no number": [np.nan, np.inf, -0.0, 5e-324] * 3,
            "no category": pd.Categorical(["a", None, "b", "a"] * 3),
            "years": pd.Categorical([2020, 2021, None] * 4),
            "days": pd.Categorical(DAYS.repeat(2)[:N], ordered=True),
            "mixed kinds": pd.Categorical(pd.Series([1, "a", 2] * 4, dtype=object)),
            "Int8": pd.array([-128, None, 127] * 4, dtype="Int8"),
            "UInt64": pd.array([2**64 - 1, None] * 6, dtype="UInt64"),
            "Float64": pd.array([0.1, None] * 6, dtype="Float64"),
            "nothing": pd.array([None] * N, dtype="Int16"),
            "arrow day": pd.array(DAYS.date, dtype=pd.ArrowDtype(pa.date32())),
            "arrow zone": pd.array(DAYS, dtype=pd.ArrowDtype(pa.timestamp("ms", "Europe/Berlin"))),
            "arrow price": pd.array(
                [decimal.Decimal("1.50"), None] * 6, dtype=pd.ArrowDtype(pa.decimal128(9, 2))
            ),
            "arrow category": pd.array(
                ["a", None] * 6, dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
            ),
        }
    )


ARRAYS = {
    "turned": np.asfortranarray(NUMBERS),
    "other bytes": NUMBERS.astype(">f4"),
    "booleans": NUMBERS > 0,
    "texts": np.array([["a", "bcd\U0001f600"]] * N),
    "bytes": np.array([[b"a", b"bcd"]] * N),
    "days": DAYS.to_numpy().astype("M8[D]").reshape(-1, 1),
    "pictures": np.arange(N * 4.0).reshape(N, 2, 2).transpose(0, 2, 1),
    "long": NUMBERS.astype(np.longdouble),
    "nothing": np.array([[np.nan, np.inf, -0.0]] * N),
    "nan with a sign": np.frombuffer(b"\x01\0\0\0\0\0\xf8\xff" * N).reshape(N, 1),
    "no day": np.array([["NaT", "2020-01-01"]] * N, dtype="M8[s]"),
    "hours": np.arange(N).astype("m8[h]").reshape(-1, 1),
    "small": np.arange(2 * N + 1, dtype="u1").reshape(1, -1).repeat(N, axis=0),
    "objects": objects(CELLS),
    "no columns": np.empty((N, 0)),
}
FRAMES = {
    "mixed": mixed_frame(),
    "many indices": mixed_frame().set_index(["text", "day", "number"]),
    "names of any type": pd.DataFrame(NUMBERS, columns=["a", 1, 2.5]),
    "tuples as names": pd.DataFrame(NUMBERS, columns=["a", 1, ("t", 2.5)]),
    "texts in an index": pd.DataFrame(NUMBERS, index=pd.Index([*"abcdefghijk", None], dtype="str")),
    "categories": pd.DataFrame(NUMBERS, index=pd.CategoricalIndex(list("abc") * 4, name="kind")),
    "the same name": pd.DataFrame(NUMBERS, columns=["a", "a", "b"]),
    "levels": pd.DataFrame(
        NUMBERS,
        columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["x", None]),
    ),
    "numbers": pd.DataFrame(NUMBERS, index=range(5, 5 + 2 * N, 2)),
    "counted down": pd.DataFrame(NUMBERS, index=range(N, 0, -1)),
    "whole numbers": pd.DataFrame(NUMBERS, index=pd.Index(range(N), dtype="i2", name=7)),
    "names of names": pd.DataFrame(NUMBERS, columns=pd.Index([*"abc"], name=("a", 1))),
    "days as names": pd.DataFrame(NUMBERS, columns=DAYS[:3]),
    "missing in an index": pd.DataFrame(
        NUMBERS, index=pd.Index([*"abcdefghij", None, np.nan], dtype=object)
    ),
    "nullable in an index": pd.DataFrame(
        NUMBERS, index=pd.Index(pd.array([*range(N - 1), None], dtype="Int64"))
    ),
    "levels of many kinds": pd.DataFrame(
        NUMBERS,
        index=pd.MultiIndex.from_arrays(
            [DAYS, pd.Categorical(list("abc") * 4), ["x", None] * 6, pd.to_timedelta(range(N))],
            names=["day", None, 3, ("a", "b")],
        ),
    ),
    "zones": pd.DataFrame(NUMBERS, index=pd.date_range("2020", periods=N, tz="UTC", name="at")),
    "no columns": pd.DataFrame(index=range(N)),
    "an index without a name": pd.DataFrame(NUMBERS, index=pd.date_range("2020", periods=N)),
    "ordered": pd.DataFrame(
        {"size": pd.Categorical([*"sml"] * 4, categories=[*"sml", "xl"], ordered=True)}
    ),
}
LISTS: dict[str, Any] = {
    "texts": [f"h\u00e9\ud800llo {i}" for i in range(N)],
    "the same texts": ["one", "another"] * 6,
    "tuples": [tuple(row) for row in NUMBERS.tolist()],
    "a tuple": tuple(NUMBERS.tolist()),
    "mixed": [[1, "a", None]] * N,
    "tuples and lists": [(1, "a"), [2, None]] * 6,
    "pictures": [[[1, 2], [3, 4]]] * N,
    "missing": [None, float("nan"), "", 0, False, 10**30] * 2,
}


def back(tmp_path: Path, X: Any) -> Any:
    rows = Rows(X, np.arange(len(row_hashes(X))), None)
    path, digest = write(tmp_path, "rows", rows)
    found = read(path, digest, key(rows))
    assert_same(found, rows)
    return found.X


@pytest.mark.parametrize("X", ARRAYS.values(), ids=ARRAYS)
def test_an_array_comes_back_to_the_last_bit(tmp_path: Path, X: np.ndarray) -> None:
    found = back(tmp_path, X)
    assert (found.dtype, found.shape) == (X.dtype, X.shape)
    assert found.flags.f_contiguous == X.flags.f_contiguous
    # Estimators may work in place, and compiled ones refuse other memory.
    assert found.flags.writeable
    assert found.flags.aligned
    if X.dtype == object:
        assert list(map(type, found.flat)) == list(map(type, X.flat))
        assert list(map(repr, found.flat)) == list(map(repr, X.flat))
    elif X.dtype.kind != "T":
        assert found.tobytes() == X.tobytes()


@pytest.mark.parametrize("X", FRAMES.values(), ids=FRAMES)
def test_a_data_frame_comes_back_with_its_types_names_and_index(
    tmp_path: Path, X: pd.DataFrame
) -> None:
    found = back(tmp_path, X)
    exactly = {"check_index_type": "exact", "check_column_type": "exact", "check_freq": False}
    pd.testing.assert_frame_equal(found, X, **exactly)
    assert list(map(type, found.columns)) == list(map(type, X.columns))
    for place in range(X.shape[1]):
        assert_same_column(found.iloc[:, place], X.iloc[:, place])
    for place in range(min(2, X.shape[1])):
        column = X.iloc[:, place]
        pd.testing.assert_series_equal(back(tmp_path, column), column, check_freq=False)
    assert found.index.names == X.index.names
    assert getattr(found.index, "freq", None) == getattr(X.index, "freq", None)


def assert_same_column(found: pd.Series, column: pd.Series) -> None:
    """To the bit, and with the same kind of missing value in each place."""
    assert found.dtype == column.dtype
    cells, known = found.astype(object).tolist(), column.astype(object).tolist()
    assert list(map(type, cells)) == list(map(type, known))
    assert list(map(repr, cells)) == list(map(repr, known))
    if isinstance(column.dtype, np.dtype) and column.dtype != object:
        assert found.to_numpy().tobytes() == column.to_numpy().tobytes()


@pytest.mark.parametrize("X", LISTS.values(), ids=LISTS)
def test_a_list_comes_back_with_its_cells(tmp_path: Path, X: Any) -> None:
    assert repr(back(tmp_path, X)) == repr(X)


def test_a_list_of_arrays_comes_back(tmp_path: Path) -> None:
    found = back(tmp_path, list(NUMBERS))
    assert [row.tolist() for row in found] == NUMBERS.tolist()


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
def test_a_sparse_matrix_comes_back_in_its_form(tmp_path: Path, form: str, kind: str) -> None:
    X = getattr(scipy.sparse, f"{form}_{kind}")(SOME)
    found = back(tmp_path, X)
    assert (found.dtype, found.shape, found.nnz) == (X.dtype, X.shape, X.nnz)
    assert (found.toarray() == SOME).all()
    for part in ("data", "indices", "indptr", "offsets") if form not in ("dok", "lil") else ():
        if hasattr(X, part):
            np.testing.assert_array_equal(getattr(found, part), getattr(X, part), strict=True)


def test_a_sparse_matrix_keeps_its_order_its_zeros_and_what_is_there_twice(tmp_path: Path) -> None:
    places = np.array([2, 0, 0, 1] * 3), np.arange(0, N + 1, 4).repeat([1] * 3 + [N - 2])
    X = scipy.sparse.csr_array((np.array([1.0, 0.0, 2.0, 3.0] * 3), *places), shape=(N, 3))
    found = back(tmp_path, X)
    assert found.indices.tolist() == X.indices.tolist()
    assert found.data.tolist() == X.data.tolist()
    line = scipy.sparse.coo_array(SOME[:, 0])
    assert (back(tmp_path, line).toarray() == SOME[:, 0]).all()


def test_polars_comes_back(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "a": NUMBERS[:, 0],
            "b": ["x", None] * 6,
            "c": pl.Series(["q", "r"] * 6, dtype=pl.Categorical),
            "d": pl.Series(list(DAYS.to_pydatetime())).dt.replace_time_zone("Europe/Berlin"),
            "i": [1, None] * 6,
            "f": [float("nan"), None] * 6,
            "e": pl.Series(["q", "r"] * 6, dtype=pl.Enum(["r", "q"])),
            "day": DAYS.date.tolist(),
            "long": [datetime.timedelta(1, 2, 3), None] * 6,
            "price": pl.Series(["1.50", None] * 6).cast(pl.Decimal(9, 2)),
            "bytes": [b"x", None] * 6,
            "truth": [True, None] * 6,
            "nothing": [None] * N,
        }
    )
    found = back(tmp_path, frame)
    assert found.equals(frame)
    assert found.schema == frame.schema
    for name in frame.columns:
        column = back(tmp_path, frame[name])
        assert column.equals(frame[name])
        assert (column.name, column.dtype) == (name, frame.schema[name])


def test_a_table_of_arrow_comes_back(tmp_path: Path) -> None:
    table = pa.table(
        {
            "number": pa.chunked_array([NUMBERS[:5, 0], NUMBERS[5:, 0]]),
            "missing": pa.array([1, None, 2] * 4, pa.int8()),
            "text": pa.array(["x", None] * 6, pa.large_string()),
            "kind": pa.array(["q", "r", None] * 4).dictionary_encode(),
            "at": pa.array(DAYS, pa.timestamp("us", "Europe/Berlin")),
            "day": DAYS.date,
            "price": [decimal.Decimal("1.50"), None] * 6,
            "truth": [True, None] * 6,
        }
    ).replace_schema_metadata({"made": "today"})
    found = back(tmp_path, table)
    assert found.equals(table, check_metadata=True)
    assert found.column("number").num_chunks == 2
    nothing = pa.table({"nan": [float("nan"), None] * 6})
    assert repr(back(tmp_path, nothing).to_pylist()) == repr(nothing.to_pylist())


def test_rows_without_weights_come_back(tmp_path: Path) -> None:
    rows = Rows(np.eye(3), np.array([0.5, 1.5, 2.5]), None)
    path, digest = write(tmp_path, "plain", rows)
    found = read(path, digest, key(rows))
    assert found.sample_weight is None
    assert found.y.tolist() == [0.5, 1.5, 2.5]


def test_numpy_and_arrow_read_a_vault_without_this_library(tmp_path: Path) -> None:
    labels = np.array(["a", "b"] * 6)
    frame = pd.DataFrame(NUMBERS).assign(kind=pd.array(labels, dtype="string[pyarrow]"))
    frame["kind"] = frame["kind"].astype(pd.ArrowDtype(pa.string()))
    path, _ = write(tmp_path, "rows", Rows(frame, labels, None))
    with path.open("rb") as file:
        content = json.loads(np.load(file, allow_pickle=False).tobytes())
        arrays = {at: np.load(file, allow_pickle=False) for at in content["order"]}
    assert arrays[content["y"]["at"]].tolist() == labels.tolist()
    places, numbers = content["X"]["0"]
    assert (places, arrays[numbers["at"]].tolist()) == ([0, 1, 2], NUMBERS.tolist())
    with pa.ipc.open_stream(arrays[content["X"]["3"][1]["stream"]["at"]]) as reader:
        assert reader.read_all().column(0).to_pylist() == labels.tolist()


def test_arrays_share_the_memory_of_the_file_whatever_is_beside_them(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"small": np.arange(N + 1, dtype="i1"), "number": 0.5, "half": np.float32(1.5)}
    )
    labels = np.array([*"abcdefghijkl", "mno"])
    path, digest = write(tmp_path, "rows", Rows(frame, labels, np.ones(N + 1)))
    found = read(path, digest, fingerprint(row_hashes(frame)))
    for array in (found.y, found.sample_weight, *(found.X[name].to_numpy() for name in frame)):
        assert array.flags.aligned and not array.flags.owndata


def test_rows_show_only_their_number() -> None:
    rows = some_rows(n=7)
    for shown in (repr(rows), str(rows), f"{rows}", f"{[rows]}"):
        assert re.fullmatch(r"\[?Rows\(n=7\)\]?", shown)


@pytest.mark.parametrize("stem", ["", "../out", "in/side", "/outside"])
def test_the_file_stays_in_its_folder(tmp_path: Path, stem: str) -> None:
    with pytest.raises(InvalidArgument, match="stem must be"):
        write(tmp_path / "vault", stem, some_rows())
    assert list(tmp_path.iterdir()) == []


# Private


@posix
@pytest.mark.usefixtures("open_umask")
def test_nobody_else_may_read_the_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "vault"
    path, _ = write(folder, "rows", some_rows())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@posix
@pytest.mark.usefixtures("open_umask")
def test_the_file_is_private_while_it_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def noted(hashed: Any, data: Any) -> int:
        seen.extend(stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir())
        return plain(hashed, data)

    plain = Hashed.write
    monkeypatch.setattr(Hashed, "write", noted)
    write(tmp_path, "rows", some_rows())
    assert set(seen) == {0o600}
    assert len(seen) > 3


@posix
@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o666, 0o777])
def test_a_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    rows = some_rows()
    path, digest = write(tmp_path, "rows", rows)
    path.chmod(mode)
    refused(path, digest, key(rows), "open to other users")
    path.chmod(0o400)
    assert_same(read(path, digest, key(rows)), rows)


@posix
def test_writing_again_makes_it_private_again(tmp_path: Path) -> None:
    rows = some_rows()
    path, _ = write(tmp_path, "rows", rows)
    path.chmod(0o644)
    path, digest = write(tmp_path, "rows", rows)
    assert_same(read(path, digest, key(rows)), rows)


@posix
@pytest.mark.skipif(not HAS_MODES or os.geteuid() != 0, reason="only root gives files away")
def test_what_belongs_to_somebody_else_is_refused(tmp_path: Path) -> None:
    rows, folder = some_rows(), tmp_path / "vault"
    path, digest = write(folder, "rows", rows)
    os.chown(path, 12345, -1)  # private it is, and not ours
    refused(path, digest, key(rows), "belongs to another user")
    os.chown(path, os.geteuid(), -1)
    os.chown(folder, 12345, -1)
    refused(path, digest, key(rows), "folder that belongs to another user")
    os.chown(folder, os.geteuid(), -1)
    assert_same(read(path, digest, key(rows)), rows)


@posix
def test_a_folder_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    rows, folder = some_rows(), tmp_path / "vault"
    path, digest = write(folder, "rows", rows)
    folder.chmod(0o777)
    refused(path, digest, key(rows), "everybody may write to")
    folder.chmod(0o1777)  # as /tmp: nobody replaces what is another's
    assert_same(read(path, digest, key(rows)), rows)


@posix
def test_what_is_no_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "pipe.vault"
    os.mkfifo(path, 0o600)
    refused(path, "0" * 64, "0" * 64, "Not a file")
    refused(Path("/dev/zero"), "0" * 64, "0" * 64, "Not a file")
    refused(Path("a\0b.vault"), "0" * 64, "0" * 64, "No such path")


def test_only_what_is_called_a_vault_is_removed(tmp_path: Path) -> None:
    path, _ = write(tmp_path, "rows", some_rows())
    other = tmp_path / "thesis.tex"
    other.write_text("years of work")
    remove(str(other))
    remove(str(path))
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


# Changed


def refused(path: Path, digest: str, fingerprint: str, said: str) -> None:
    with pytest.raises(VaultError, match=said) as caught:
        read(path, digest, fingerprint)
    assert "LadderHoldout(X, y, ...)" in str(caught.value)
    assert_silent(caught.value)


def assert_silent(error: BaseException) -> None:
    """No label, weight or class stands in the text, and no other error speaks for it."""
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    for said in (str(error), repr(error)):
        assert CANARY not in said
        assert "987" not in said


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    rows = some_rows()
    path, digest = write(tmp_path, "rows", rows)
    path.unlink()
    refused(path, digest, key(rows), "cannot be read: No such file")
    path.mkdir()
    refused(path, digest, key(rows), "cannot be read: (Is a directory|Not a file)")
    assert not intact(path, digest)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data + b"\0",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 128]) + data[1:],
        lambda data: data.replace(CANARY.encode("utf-32-le"), b"canary".ljust(48, b"\0"), 1),
    ],
)
def test_changed_bytes_are_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    rows = some_rows()
    path, digest = write(tmp_path, "rows", rows)
    before = path.read_bytes()
    path.write_bytes(change(before))
    assert path.read_bytes() != before
    assert not intact(path, digest)
    refused(path, digest, key(rows), "not the file that was written")
    path.write_bytes(before)
    assert_same(read(path, digest, key(rows)), rows)


def test_any_single_flipped_bit_is_refused(tmp_path: Path) -> None:
    path, digest = write(tmp_path, "rows", some_rows(n=2))
    before = path.read_bytes()
    for place in range(len(before)):
        path.write_bytes(before[:place] + bytes([before[place] ^ 4]) + before[place + 1 :])
        assert not intact(path, digest)


def test_the_vault_of_another_holdout_is_refused(tmp_path: Path) -> None:
    ours, theirs = some_rows(0), some_rows(1)
    path, digest = write(tmp_path, "ours", ours)
    other_path, other_digest = write(tmp_path, "theirs", theirs)
    os.replace(other_path, path)
    refused(path, digest, key(ours), "not the file that was written")
    refused(path, other_digest, key(ours), "another holdout")
    assert_same(read(path, other_digest, key(theirs)), theirs)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_never_opened_whatever_its_digest(tmp_path: Path) -> None:
    rows = some_rows()
    path, digest = write(tmp_path, "rows", rows)
    exploded = tmp_path / "exploded"
    content = pickle.dumps(Bomb(exploded), protocol=5)
    path.write_bytes(content)
    refused(path, digest, key(rows), "not the file that was written")
    refused(path, hashlib.sha256(content).hexdigest(), key(rows), "is no vault, and is not opened")
    assert not intact(path, hashlib.sha256(content).hexdigest())
    assert not exploded.exists()
    pickle.loads(path.read_bytes())
    assert exploded.exists()  # the bomb was live


def npy(dtype: str = "'<f8'", shape: str = "(1,)", data: bytes = b"\xff" * 8) -> bytes:
    """An array as its header states it, whatever is behind it."""
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def described(text: bytes, *arrays: bytes) -> bytes:
    return npy("'|u1'", f"({len(text)},)", text) + b"".join(arrays)


def at(place: int) -> dict[str, Any]:
    return {"is": "array", "at": place}


def planted(X: Any = None, *arrays: bytes, **content: Any) -> bytes:
    """A file that says of itself what it is. The first array is of labels, the others of X."""
    arrays = arrays if X is not None else (arrays or (npy(),))
    known = {"y": at(0), "sample_weight": None, "order": list(range(len(arrays) + 1))}
    text = json.dumps({"X": at(1) if X is None else X} | known | content)
    return described(text.encode(), npy(), *arrays)


def stream(table: Any, **options: Any) -> bytes:
    """An Arrow stream as an array."""
    file = io.BytesIO()
    with pa.ipc.new_stream(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return npy("'<u8'", f"({len(file.getvalue()) // 8},)", file.getvalue())


def a_range(rows: int) -> dict[str, Any]:
    return {"is": "pandas.RangeIndex", "shape": [rows], "start": 0, "step": 1, "names": [None]}


def a_series(rows: int = 1, **values: Any) -> dict[str, Any]:
    name = {"is": "pandas.Index", "values": an_object(None), "names": [None], "freq": None}
    return {"is": "pandas.Series", "index": a_range(rows), "name": name, "values": values}


def an_object(cell: Any) -> dict[str, Any]:
    return {"is": "objects", "shape": [1], "cells": [cell]}


def a_frame(rows: int, **blocks: Any) -> dict[str, Any]:
    columns = a_range(len(blocks))
    return {"is": "pandas.DataFrame", "index": a_range(rows), "columns": columns} | blocks


def a_matrix(kind: str, *shape: int) -> dict[str, Any]:
    places = [at(place) for place in (2, 3)]
    return {"is": f"scipy.{kind}", "shape": shape, "data": at(1), "places": places}


TABLE, POLARS = ({"is": kind, "stream": at(1)} for kind in ("pyarrow.Table", "polars.DataFrame"))
ELSEWHERE = pa.DictionaryArray.from_arrays(
    pa.array([10**6], pa.int32()), pa.array(["a"]), safe=False
)
INT = npy("'<i4'", "(2,)", b"\xff" * 8)
EMPTY = npy(shape="(0,)", data=b"")
INSTANT = npy("'<M8[s]'", data=bytes(8))
A_BILLION = 10**9


def zipped(write: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    write(file, X=np.zeros(1), y=np.zeros(1))
    return file.getvalue()


def an_enum(values: str) -> bytes:
    """A column of polars that states its categories in a note."""
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.uint8()), pa.array(["a"]))
    note = pa.field("a", column.type, metadata={"_PL_ENUM_VALUES2": values})
    return stream(pa.table([column], schema=pa.schema([note])))


HOSTILE = {
    "empty": b"",
    "text": b"no vault",
    "a beginning": b"\x93NUMPY\x01\x00",
    "another format of NumPy": zipped(np.savez),
    "compressed": zipped(np.savez_compressed),
    "half": planted()[:200],
    "more behind": planted() + b"\0",
    "no description": npy() + npy(),
    "no JSON": described(b"abc"),
    "deep JSON": described(b"[" * 10**5, npy(), npy()),
    "nothing": described(b"{}"),
    "no numbers of arrays": described(b'{"X": null}', npy(), npy()),
    "fewer arrays than stated": planted(order=[0, 1, 2]),
    "more arrays than stated": planted(order=[0]),
    "an array twice": planted(at(0)),
    "labels are none": planted(y=None),
    "labels are a list": planted(y=[1]),
    "objects": planted(None, npy("'|O'", data=pickle.dumps(np.zeros(1, dtype=object)))),
    "fields": planted(None, npy("[('a', '<i4'), ('b', '<i4')]")),
    "a large array": planted(None, npy(shape="(1000000000000,)")),
    "rows of nothing": planted(None, npy(shape="(1000000000000, 0)", data=b"")),
    "labels of nothing": described(
        json.dumps({"X": at(1), "y": at(0), "sample_weight": None, "order": [0, 1]}).encode(),
        *(2 * [npy(shape="(10000000000, 0)", data=b"")]),
    ),
    "less than nothing": planted(None, npy(shape="(-1, -1)")),
    "a call": planted(None, npy(shape="__import__('os').mkdir('exploded')")),
    "a long header": planted(None, npy(shape="(" + "1," * 6000 + ")")),
    "characters beyond the last": planted(None, npy("'>U2'")),
    "a third truth": planted(None, npy("'|b1'", "(8,)")),
    "a name of Python": planted({"is": "os.system"}),
    "a name of pandas": planted({"is": "pandas.read_pickle", "cells": ["rows.vault"]}),
    "another argument": planted({"is": "pandas.RangeIndex", "name": "a"} | a_range(1)),
    "more objects than stated": planted({"is": "objects", "shape": [10**12], "cells": [1]}),
    "a matrix of other memory": planted(a_matrix("csr_matrix", 1, 1), npy(), INT, INT),
    "a matrix of many rows": planted(a_matrix("lil_array", 10**10, 1), *(3 * [EMPTY])),
    "a matrix of many rows inside": planted(
        {"is": "builtins.tuple", "cells": [a_matrix("lil_array", 10**10, 1)]}, *(3 * [EMPTY])
    ),
    "many rows in a frame": planted(a_frame(10**10)),
    "many rows in a series": planted(a_series() | {"values": a_range(10**10)}),
    "less than no rows": planted([a_range(-(10**10)), a_matrix("lil_array", 10**10, 1)]),
    "many ranges": planted(a_frame(100, **{str(at): [[at], a_range(100)] for at in range(1000)})),
    "levels of ranges": planted(
        {"is": "pandas.MultiIndex", "levels": [a_range(10**10)], "names": [None]}
    ),
    "fewer places than columns": planted(a_frame(1, **{"0": [[], at(1)]}), npy()),
    "codes of no category": planted(
        a_series(**{"is": "pandas.Categorical", "codes": at(1), "ordered": False})
        | {"categories": an_object("a")},
        npy("'|i1'", data=b"\7"),
    ),
    "a longer mask": planted(
        a_series(**{"is": "pandas.IntegerArray", "values": at(1), "mask": at(2)}),
        npy("'<i8'"),
        npy("'|b1'", "(2,)", b"\0\1"),
    ),
    "a text of another dtype": planted(
        a_series(**{"is": "pandas.StringArray", "cells": ["a"], "dtype": "category"})
    ),
    "a zone from a path": planted(
        a_series(**{"is": "pandas.DatetimeArray", "utc": at(1), "zone": "dateutil//etc/passwd"}),
        INSTANT,
    ),
    "no Arrow": planted(TABLE, npy()),
    "nothing of Arrow": planted(TABLE, EMPTY),
    "compressed Arrow": planted(
        TABLE, stream(pa.table({"0": np.zeros(10**6, dtype=int)}), compression="zstd")
    ),
    "compressed Arrow of polars": planted(
        POLARS, stream(pa.table({"0": np.zeros(10**6, dtype=int)}), compression="zstd")
    ),
    "places in no dictionary": planted(TABLE, stream(pa.table([ELSEWHERE], ["0"]))),
    "rows without bytes": planted(TABLE, stream(pa.table([pa.nulls(A_BILLION)], ["0"]))),
    "rows of polars without bytes": planted(POLARS, stream(pa.table([pa.nulls(A_BILLION)], ["0"]))),
    "a zone of Arrow from a path": planted(
        TABLE,
        stream(pa.table([pa.array([1], pa.timestamp("s", tz="dateutil//etc/passwd"))], ["0"])),
    ),
    "columns within columns": planted(TABLE, stream(pa.table({"0": [[1]]}))),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_file_of_the_right_digest_and_no_rows_is_refused(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.vault"
    path.write_bytes(content)
    path.chmod(0o600)
    digest = hashlib.sha256(content).hexdigest()
    # What a file states is compared with its bytes before memory is taken for it.
    with little_memory():
        refused(path, digest, "0" * 64, r"cannot be read as rows \((?!Memory)|is no vault")
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.vault"]


def test_categories_that_end_elsewhere_are_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "rows.vault", planted(POLARS, an_enum("999;a"))
    path.write_bytes(content)
    path.chmod(0o600)
    # The first versions of polars do not read the note, and get other rows.
    said = r"cannot be read as rows|another holdout"
    refused(path, hashlib.sha256(content).hexdigest(), "0" * 64, said)


def test_what_is_planted_above_is_read_where_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    path, instants = tmp_path / "rows.vault", pd.date_range("1970", periods=1, tz="UTC", unit="s")
    for X, content in [
        (np.array([np.frombuffer(b"\xff" * 8)[0]]), planted()),
        (np.array([True]), planted(None, npy("'|b1'", "(1,)", b"\1"))),
        (np.array(["ab"]), planted(None, npy("'<U2'", data=b"a\0\0\0b\0\0\0"))),
        (np.array([1], dtype=object), planted(an_object(1))),
        (scipy.sparse.lil_array((1, 1)), planted(a_matrix("lil_array", 1, 1), *(3 * [EMPTY]))),
        (pd.DataFrame({0: [np.nan]}), planted(a_frame(1, **{"0": [[0], at(1)]}), npy())),
        (
            pd.Series(pd.Categorical(["a"])),
            planted(
                a_series(**{"is": "pandas.Categorical", "codes": at(1), "ordered": False}
                         | {"categories": an_object("a")}),
                npy("'|i1'", data=b"\0"),
            ),
        ),
        (
            pd.Series(pd.array([-1], dtype="Int64")),
            planted(
                a_series(**{"is": "pandas.IntegerArray", "values": at(1), "mask": at(2)}),
                npy("'<i8'"),
                npy("'|b1'", data=b"\0"),
            ),
        ),
        (
            pd.Series(["a"], dtype="string"),
            planted(
                a_series(**{"is": "pandas.StringArray", "cells": ["a"], "dtype": "string[python]"})
            ),
        ),
        (
            pd.Series(instants),
            planted(
                a_series(**{"is": "pandas.DatetimeArray", "utc": at(1), "zone": "UTC"}), INSTANT
            ),
        ),
        (pa.table({"0": [7]}), planted(TABLE, stream(pa.table({"0": [7]})))),
        (pl.DataFrame({"0": [7]}), planted(POLARS, stream(pa.table({"0": [7]})))),
        (pl.DataFrame({"a": ["a"]}), planted(POLARS, an_enum("1;a"))),
    ]:  # fmt: skip
        path.write_bytes(content)
        path.chmod(0o600)
        found = read(path, hashlib.sha256(content).hexdigest(), fingerprint(row_hashes(X)))
        assert type(found.X) is type(X)


@contextmanager
def little_memory() -> Iterator[None]:
    """As much as there is now, and a gigabyte more."""
    resource = pytest.importorskip("resource")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("changes", [15, pytest.param(400, marks=pytest.mark.nightly)])
def test_a_vault_that_was_changed_and_given_its_digest_ends_in_no_other_error(
    tmp_path: Path, changes: int
) -> None:
    random_ = random.Random(0)
    for X in (NUMBERS, objects(CELLS), mixed_frame(), scipy.sparse.csr_array(SOME), LISTS["mixed"]):
        rows = Rows(X, np.array(list("ab") * 20)[: len(row_hashes(X))], None)
        path, _ = write(tmp_path, "rows", rows)
        whole = path.read_bytes()
        for _ in range(changes):
            data = bytearray(whole)
            for _ in range(random_.choice([1, 1, 3])):
                # As often in the manifest as behind it, and by other digits as by other bytes.
                place = random_.randrange(*random_.choice([(0, len(data)), (30, 400)]))
                data[place] = random_.choice([random_.randrange(256), *b"0123456789-[]"])
            path.write_bytes(data)
            with suppress(VaultError):
                read(path, hashlib.sha256(data).hexdigest(), key(rows))


# Failures and crashes


class Talkative:
    """An object that tells all when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise RuntimeError(CANARY)

    def __repr__(self) -> str:
        raise RuntimeError(CANARY)


class Text(str):
    """What comes back as another type is not what was given."""


@pytest.mark.parametrize("cell", [Talkative(), lambda: 1, Text(CANARY), {CANARY: 1}, *REFUSED])
@pytest.mark.parametrize(
    ("pack", "said"),
    [
        (objects, "X must be an array.*but is a ndarray with cells of type {}"),
        (lambda cells: pd.DataFrame({"first": 1, "some": pd.Series(cells, dtype=object)}),
         "X must be .*but is a DataFrame with cells of type {} in the column 'some'"),
        (lambda cells: pd.Series(cells, dtype=object, name="some"),
         "X must be .*but is a Series with cells of type {}. Convert"),
        (lambda cells: pd.DataFrame({"a": range(2)}, index=pd.Index(cells, dtype=object)),
         "X must be .*but is a DataFrame with cells of type {} in its index"),
        (lambda cells: cells, "X must be .*but is a list with cells of type {}"),
    ],
)  # fmt: skip
def test_rows_that_are_no_data_leave_the_old_vault(
    tmp_path: Path, cell: Any, pack: Any, said: str
) -> None:
    rows = some_rows()
    path, digest = write(tmp_path, "rows", rows)
    X = pack([1.0, cell])
    with pytest.raises(InvalidArgument, match=said.format(type(cell).__name__)) as caught:
        write(tmp_path, "rows", Rows(X, rows.y[:2], None))
    assert "vault=False" in str(caught.value)
    assert_silent(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.vault"]
    assert_same(read(path, digest, key(rows)), rows)


def test_labels_that_are_no_data_are_named_without_one(tmp_path: Path) -> None:
    labels = objects([Text(f"{CANARY}-{place}") for place in range(3)])[:, 0]
    with pytest.raises(InvalidArgument, match=r"y must be .* cells of type Text") as caught:
        write(tmp_path, "rows", Rows(np.eye(3), labels, None))
    assert_silent(caught.value)


# pandas 2 has no such dtype, and its astype(str) leaves texts of NumPy as they are.
IS_PANDAS_3 = int(pd.__version__.partition(".")[0]) >= 3
TEXT_OF_PYTHON = (
    {"text of Python": pd.array(["a"] * N, dtype=pd.StringDtype("python", na_value=np.nan))}
    if IS_PANDAS_3
    else {}
)
EXOTIC: dict[str, tuple[Any, str]] = {
    "masked": (np.ma.masked_array(NUMBERS, NUMBERS > 0), "a MaskedArray of dtype float64. C"),
    "fields": (np.zeros(3, dtype="i4,i4"), "of dtype"),
    "StringDType": (np.array(["a", "b"], dtype=np.dtypes.StringDType()), "of dtype StringDType"),
    "a subclass": (type("Mine", (pd.DataFrame,), {})({"a": [1]}), "is a Mine. Convert"),
    "a subclass of arrays": (NUMBERS.view(type("Own", (np.ndarray,), {})), "a Own of dtype"),
    "a batch of Arrow": (pa.record_batch([range(N)], ["some"]), "is a RecordBatch. Convert"),
    "rows without bytes": (pa.table({"a": range(N), "b": pa.nulls(N)}), "null in the column 'b'"),
    "lists in a table": (pa.table({"some": [[1]] * N}), "list<item: int64> in the column 'some'"),
    "objects of polars": (pl.DataFrame({"a": [object()]}), "Object in the column 'a'"),
    **{
        name: (pd.DataFrame({"number": NUMBERS[:, 0], "some": column}), "in the column 'some'")
        for name, column in {
            "periods": pd.period_range("2020", periods=N, freq="M"),
            "intervals": pd.interval_range(0, N),
            "categories of intervals": pd.cut(NUMBERS[:, 0], 3),
            "sparse": pd.arrays.SparseArray([0.0, 0.0, 1.5] * 4),
            "dates": [datetime.date(2020, 1, 2)] * N,
            "prices": [decimal.Decimal("1.50")] * N,
            **TEXT_OF_PYTHON,
            "a zone of dateutil": DAYS.tz_localize("dateutil/Europe/Berlin"),
            "lists of Arrow": pd.array([[1]] * N, dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
        }.items()
    },
    "an index of periods": (
        pd.DataFrame(NUMBERS, index=pd.period_range("2020", periods=N, freq="M")), "in its index"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("X", "said"), EXOTIC.values(), ids=EXOTIC)
def test_what_would_come_back_as_something_else_is_refused(
    tmp_path: Path, X: Any, said: str
) -> None:
    with pytest.raises(InvalidArgument, match=rf"{re.escape(said)}.*vault=False"):
        write(tmp_path, "rows", Rows(X, np.arange(X.shape[0]), None))
    assert list(tmp_path.iterdir()) == []


def test_rows_that_are_no_data_leave_nothing_behind_a_url(tmp_path: Path) -> None:
    frame, _ = EXOTIC["sparse"]
    with pytest.raises(InvalidArgument, match="in the column 'some'"):
        write(f"file://{tmp_path}/far", "rows", Rows(frame, np.arange(N), None))
    assert list(tmp_path.iterdir()) == []


def test_features_that_cannot_be_sent_are_named() -> None:
    with pytest.raises(
        VaultError, match=r"cannot be sent.*in the column 'some'. Their owner"
    ) as caught:
        features_to_bytes(EXOTIC["sparse"][0])
    assert_silent(caught.value)
    with pytest.raises(VaultError, match=r"cannot be read as rows \(ValueError\)"):
        features_from_bytes(b"nothing")
    again = features_from_bytes(features_to_bytes(mixed_frame()))
    pd.testing.assert_frame_equal(again, mixed_frame(), check_freq=False)


SOME_AS_TEXT = {
    name: lambda X: X.astype({"some": str})
    for name in ("sparse", "dates", "prices", *TEXT_OF_PYTHON)
}
CELL_BY_CELL = {
    f"cells of {type(cell).__name__}": pd.DataFrame(
        {"number": NUMBERS[:, 0], "some": pd.Series([cell] * N, dtype=object)}
    )
    for cell in REFUSED
    if IS_PANDAS_3 or type(cell) is not np.str_
}
CONVERTED: dict[str, Callable[[Any], Any]] = SOME_AS_TEXT | {
    **dict.fromkeys(CELL_BY_CELL, SOME_AS_TEXT["dates"]),
    "StringDType": lambda X: X.astype(object),
    "a subclass of arrays": np.asarray,
    "a batch of Arrow": np.asarray,
    "rows without bytes": np.asarray,
    "a zone of dateutil": lambda X: X.astype({"some": str}),
    "an index of periods": lambda X: X.set_axis(X.index.astype(str)),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_each_remedy_works(tmp_path: Path, name: str) -> None:
    X = CELL_BY_CELL[name] if name in CELL_BY_CELL else EXOTIC[name][0]
    ledger = tmp_path / "ledger.db"
    y, wish = np.arange(len(row_hashes(X))) % 2, {"scoring": "accuracy", "name": "h"}
    with pytest.raises(
        InvalidArgument,
        match=r"Convert.*astype\(object\), its columns with astype\(str\), or .*vault=F",
    ):
        LadderHoldout(X, y, **wish, ledger=ledger)
    kept = LadderHoldout(X, y, **wish, ledger=ledger, vault=False)
    assert kept.submit(y).score == 1
    converted, other, seen = CONVERTED[name](X), tmp_path / "other.db", []

    class Model:
        classes_ = np.array([0, 1])

        def predict(self, X: Any) -> Any:
            seen.append(X)
            return y

    LadderHoldout(converted, y, **wish, ledger=other)
    LadderHoldout.open("h", ledger=other).submit(Model())
    assert type(seen[0]) is type(converted)
    pd.testing.assert_frame_equal(pd.DataFrame(seen[0]), pd.DataFrame(converted))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "vault"):
        with pytest.raises(VaultError, match=r"cannot be written.*vault=") as caught:
            write(folder, "rows", some_rows())
        assert_silent(caught.value)


@posix
def test_a_full_disk_leaves_the_old_vault(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    rows = some_rows()
    path, digest = write(tmp_path, "rows", rows)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limits[1]))
    try:
        with pytest.raises(VaultError, match="cannot be written: File too large") as caught:
            write(tmp_path, "rows", some_rows(1, n=50_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_silent(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.vault"]
    assert_same(read(path, digest, key(rows)), rows)


def test_file_and_folder_reach_the_disk_around_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def noted_replace(source: Any, target: Any) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write(tmp_path, "rows", some_rows())
    assert steps == ["file", "rename"] + ([] if os.name == "nt" else ["folder"])


START = """
import os, signal, sys
from pathlib import Path
import numpy as np
from ladderholdout.vault import (Rows, write)

folder = Path(sys.argv[1])

def rows(k):
    return Rows(np.full((100_000, 5), float(k)), np.full(100_000, k), None)

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

print(write(folder, "rows", rows(0))[1], flush=True)
"""
DIE_WHILE_WRITING = """
from ladderholdout.vault.values import Hashed

plain, left = Hashed.write, [3]

def some(hashed, data):
    left[0] -= 1
    return plain(hashed, data) if left[0] else die()

Hashed.write = some
write(folder, "rows", rows(1))
"""
DIE_BEFORE_THE_RENAME = """
sys.addaudithook(lambda event, arguments: die() if event == "os.rename" else None)
write(folder, "rows", rows(1))
"""
WRITE_ON_AND_ON = """
print(write(folder, "rows", rows(1))[1], flush=True)
while True:
    for k in (0, 1):
        write(folder, "rows", rows(k))
"""


def child(code: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", START + code, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def rows_of(k: int) -> str:
    return fingerprint(row_hashes(np.full((100_000, 5), float(k))))


@pytest.mark.processes
@posix
@pytest.mark.parametrize("code", [DIE_WHILE_WRITING, DIE_BEFORE_THE_RENAME])
def test_a_crash_before_the_rename_leaves_the_old_vault(tmp_path: Path, code: str) -> None:
    process = child(code, tmp_path)
    digest = process.communicate(timeout=60)[0].strip()
    assert process.returncode == -signal.SIGKILL
    found = read(tmp_path / "rows.vault", digest, rows_of(0))
    assert found.y.sum() == 0
    # What the crash left behind is as private as the vault.
    left = [path for path in tmp_path.iterdir() if path.suffix == ".part"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in left] == [0o600]


@pytest.mark.processes
@posix
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_kill_9_at_any_moment_leaves_one_whole_vault(tmp_path: Path, kills: int) -> None:
    wait = random.Random(0)
    for turn in range(kills):
        folder = tmp_path / str(turn)
        with child(WRITE_ON_AND_ON, folder) as process:
            assert process.stdout is not None
            digests = [process.stdout.readline().strip() for _ in range(2)]
            time.sleep(wait.uniform(0.0, 0.1))
            assert process.poll() is None
            process.kill()
        path = folder / "rows.vault"
        whole = [k for k in (0, 1) if intact(path, digests[k])]
        assert len(whole) == 1
        assert read(path, digests[whole[0]], rows_of(whole[0])).y[0] == whole[0]
