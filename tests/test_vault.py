"""Attacks the private file: other readers, changed bytes, crashes, talkative errors."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.fingerprint import fingerprint, row_hashes
from ladderholdout.vault import Rows, intact, read, write

CANARY = "canary-7f3a"
posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no mode bits and no SIGKILL")


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


def test_rows_without_weights_come_back(tmp_path: Path) -> None:
    rows = Rows(np.eye(3), np.array([0.5, 1.5, 2.5]), None)
    path, digest = write(tmp_path, "plain", rows)
    found = read(path, digest, key(rows))
    assert found.sample_weight is None
    assert found.y.tolist() == [0.5, 1.5, 2.5]


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


class Witness:
    """When pickled, says which modes the files beside it have at that moment."""

    def __init__(self, folder: Path, seen: list[int]) -> None:
        self.folder, self.seen = folder, seen

    def __reduce__(self) -> tuple[Any, ...]:
        self.seen += [stat.S_IMODE(path.stat().st_mode) for path in self.folder.iterdir()]
        return str, ("witness",)


@posix
@pytest.mark.usefixtures("open_umask")
def test_the_file_is_private_while_it_is_being_written(tmp_path: Path) -> None:
    seen: list[int] = []
    X = np.array([[Witness(tmp_path, seen)]], dtype=object)
    write(tmp_path, "rows", Rows(X, np.array([0]), None))
    assert seen == [0o600]


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
    refused(path, digest, key(rows), "cannot be read: Is a directory")
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


def test_bytes_of_another_digest_are_never_unpickled(tmp_path: Path) -> None:
    rows = some_rows()
    path, digest = write(tmp_path, "rows", rows)
    exploded = tmp_path / "exploded"
    path.write_bytes(pickle.dumps(Bomb(exploded)))
    refused(path, digest, key(rows), "not the file that was written")
    assert not intact(path, digest)
    assert not exploded.exists()
    pickle.loads(path.read_bytes())
    assert exploded.exists()  # the bomb was live


class Unreadable:
    """A class of an older version, say: pickling works, unpickling fails and tells all."""

    def __reduce__(self) -> tuple[Any, ...]:
        return fail, (CANARY,)


def fail(text: str) -> None:
    raise RuntimeError(text)


@pytest.mark.parametrize(
    "X", [np.array([[Unreadable()]], dtype=object), pd.DataFrame({"a": [Unreadable()]})]
)
def test_rows_that_do_not_unpickle_are_refused(tmp_path: Path, X: Any) -> None:
    path, digest = write(tmp_path, "rows", Rows(X, np.array([CANARY]), None))
    refused(path, digest, "0" * 64, "cannot be unpickled .*RuntimeError")


@pytest.mark.parametrize("content", [b"no pickle", pickle.dumps((1, 2)), pickle.dumps(CANARY)])
def test_a_file_of_the_right_digest_and_no_rows_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.vault"
    path.write_bytes(content)
    path.chmod(0o600)
    refused(path, hashlib.sha256(content).hexdigest(), "0" * 64, "cannot be unpickled")


# Failures and crashes


class Unwritable:
    """Pickling it fails and tells all."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise RuntimeError(CANARY)


@pytest.mark.parametrize("cell", [Unwritable(), lambda: CANARY, (c for c in CANARY)])
def test_rows_that_do_not_pickle_leave_the_old_vault(tmp_path: Path, cell: Any) -> None:
    rows = some_rows()
    path, digest = write(tmp_path, "rows", rows)
    X = np.array([[1.0], [cell]], dtype=object)
    with pytest.raises(VaultError, match=r"cannot be pickled.*vault=False") as caught:
        write(tmp_path, "rows", Rows(X, rows.y[:2], None))
    assert_silent(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.vault"]
    assert_same(read(path, digest, key(rows)), rows)


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
from ladderholdout.vault import Rows, write

folder = Path(sys.argv[1])

def rows(k):
    return Rows(np.full((100_000, 5), float(k)), np.full(100_000, k), None)

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

print(write(folder, "rows", rows(0))[1], flush=True)
"""
DIE_WHILE_PICKLING = """
class Deadly:
    def __reduce__(self):
        die()

write(folder, "rows", Rows([np.ones(10**6), Deadly()], np.ones(2), None))
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


@posix
@pytest.mark.parametrize("code", [DIE_WHILE_PICKLING, DIE_BEFORE_THE_RENAME])
def test_a_crash_before_the_rename_leaves_the_old_vault(tmp_path: Path, code: str) -> None:
    process = child(code, tmp_path)
    digest = process.communicate(timeout=60)[0].strip()
    assert process.returncode == -signal.SIGKILL
    found = read(tmp_path / "rows.vault", digest, rows_of(0))
    assert found.y.sum() == 0
    # What the crash left behind is as private as the vault.
    left = [path for path in tmp_path.iterdir() if path.suffix == ".part"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in left] == [0o600]


@posix
def test_kill_9_at_any_moment_leaves_one_whole_vault(tmp_path: Path) -> None:
    wait = random.Random(0)
    for turn in range(5):
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
