"""Attacks by a planted ledger: whatever it names, and whatever lies there, runs nothing."""

from __future__ import annotations

import ast
import hashlib
import os
import pickle
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest
from sklearn.dummy import DummyClassifier

import ladderholdout
from ladderholdout import LadderHoldout, vault
from ladderholdout.cli import app
from ladderholdout.errors import LadderHoldoutError, VaultError
from ladderholdout.guard.health import ledger_findings, verify_holdout
from ladderholdout.vault import PLACE
from tests.support.commands import CliRunner
from tests.support.holdouts import coins, guesses
from tests.support.ledgers import rechain, tamper, url_of
from tests.support.processes import elsewhere

SOURCE = Path(ladderholdout.__file__).parent
# Whatever makes objects or runs texts that were read. `ast.literal_eval` makes plain values.
RUNS = {"eval", "exec", "compile", "__import__", "execfile"}
MAKES = {
    *("pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"),
    *("yaml", "jsonpickle", "runpy", "imp"),
}
NAMED = {"import_module", "read_pickle", "load_module", "Unpickler", "find_class"}


# Nothing in the sources unpickles or evaluates what it reads


def suspicious(text: str, name: str = "some.py") -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                found = {one.name.partition(".")[0] for one in names} & MAKES
            case ast.ImportFrom(module=str(module), names=names):
                found = {module.partition(".")[0]} & MAKES
                # Of joblib, who searches in parallel is asked, and nothing is read.
                found |= {one.name for one in names} & {"load", "loads", "Memory", "Unpickler"}
            case ast.Call(func=ast.Name(id=called)):
                found = {called} & (RUNS | NAMED)
            case ast.Call(func=ast.Attribute(attr=called), keywords=keywords):
                found = {called} & NAMED
                if called == "load" and "allow_pickle=False" not in map(ast.unparse, keywords):
                    found = {f"{ast.unparse(node.func)} without allow_pickle=False"}
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=value)) if value:
                found = {"allow_pickle"}
            case _:
                continue
        yield from (f"{name}: {one}" for one in found)


# What `suspicious` names: to parse all of the sources takes a second.
WORDS = re.compile(
    rf"\b({'|'.join({*RUNS, *MAKES, *NAMED, 'load', 'loads', 'Memory'})}|allow_pickle)\b"
)


def test_nothing_in_the_sources_unpickles_or_evaluates() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    assert len(texts) > 100
    found = [
        one
        for path, text in texts.items()
        if WORDS.search(text)
        for one in suspicious(text, path.relative_to(SOURCE).as_posix())
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "np.load(file)",
        "np.load(file, allow_pickle=True)",
        "read_array(file, allow_pickle=True)",
        "eval(text)",
        "exec(text)",
        "yaml = 1\nimport yaml",
        "pd.read_pickle(path)",
        "importlib.import_module(name)",
        "torch.load(path)",
    ],
)
def test_what_would_be_found(line: str) -> None:
    assert WORDS.search(line) and list(suspicious(line)) != []


# A ledger that somebody sent, with a vault that is a command


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def ledger_with(path: Path, **more: Any) -> Path:
    holdout = LadderHoldout(*coins(), scoring="accuracy", name="gift", ledger=path, **more)
    for predictions in guesses(1, 3):
        holdout.submit(predictions)
    return path


def name_vault(path: Path, place: str, content: bytes) -> None:
    """Have the ledger name a vault, as whoever wrote the ledger can: with a whole chain."""
    digest = hashlib.sha256(content).hexdigest()
    tamper(path, "holdout", "vault", place)
    tamper(path, "holdout", "vault digest", digest)
    rechain(path)
    shutil.rmtree(path.parent / "vault", ignore_errors=True)


@pytest.fixture
def bomb(tmp_path: Path) -> Iterator[tuple[bytes, Path]]:
    exploded = tmp_path / "exploded"
    content = pickle.dumps(Bomb(exploded), protocol=5)
    yield content, exploded
    assert not exploded.exists()
    pickle.loads(content)
    assert exploded.exists()  # it was live


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def submitted(ledger: str, place: str | None = None) -> str:
    """Work with it in a process of its own, as a worker of a search does."""
    if place is not None:
        os.environ[PLACE] = place
    holdout = LadderHoldout.open("gift", ledger=ledger)
    try:
        holdout.submit(DummyClassifier().fit([[0], [1]], [0, 1]))
    except VaultError as error:
        return str(error)
    return "nothing"


def use(path: Path, *more: tuple[str, ...]) -> list[str]:
    """Do whatever one does with a ledger; return what was refused."""
    refused = []
    for words in (
        ("status",),
        ("status", "gift"),
        ("history", "gift"),
        ("certificate", "gift"),
        ("verify", "gift"),
        ("verify", "--installation"),
        *more,
    ):
        result = CliRunner().invoke(app, [*words, "--ledger", str(path)])
        assert result.exception is None or isinstance(result.exception, SystemExit), words
        if result.exit_code:
            refused.append(words[0])
    holdout = LadderHoldout.open("gift", ledger=path)
    for work in (
        holdout.status,
        holdout.certificate,
        holdout.history,
        lambda: holdout.submit(coins()[1]),
        lambda: holdout.submit(DummyClassifier().fit([[0], [1]], [0, 1])),
        lambda: list(ledger_findings(url_of(path))),
    ):
        with suppress(LadderHoldoutError):
            work()
    assert len(verify_holdout(url_of(path), "gift").findings) == 1
    return refused


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.LadderHoldoutWarning")
@pytest.mark.parametrize("place", ["a path", "file", "memory", "the environment"])
def test_a_planted_vault_runs_nothing(
    tmp_path: Path,
    place: str,
    bomb: tuple[bytes, Path],
    memory: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, (content, _) = ledger_with(tmp_path / "ledger.db"), bomb
    planted = tmp_path / "planted" / "gift.vault"
    planted.parent.mkdir(mode=0o700)
    planted.write_bytes(content)
    planted.chmod(0o600)
    named = {"a path": str(planted), "file": f"file://{planted}", "memory": "memory://gift.vault"}
    nowhere = tmp_path / "elsewhere"
    if place == "memory":
        memory.pipe("/gift.vault", content)
    if place == "the environment":
        monkeypatch.setenv(PLACE, str(planted.parent))
    name_vault(path, named.get(place, str(nowhere / "gift.vault")), content)
    report = ("report", "gift", "--output", str(tmp_path / "report.html"))
    more = [report] if place == "a path" else []  # it draws, for a second
    assert use(path, *more) == ["certificate", "verify", "verify"]
    assert not nowhere.exists()  # a ledger that somebody sent makes no folders
    if place != "memory":
        known = str(planted.parent) if place == "the environment" else None
        assert "is no vault" in elsewhere(submitted, url_of(path), known)


@pytest.mark.parametrize(
    "url",
    [
        "reference::file:///planted.json",
        "simplecache::http://127.0.0.1:9/gift.vault",
        "zip://gift.vault::file:///planted.zip",
        "reference://planted",
        "file:///a::memory://b",
        "nonsense://gift.vault",
        "python://os.system",
    ],
)
def test_a_url_that_is_made_of_other_files_is_not_opened(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda *_, **__: pytest.fail("it was opened"))
    named = url if "://" in url else f"{url}://x"
    with pytest.raises(VaultError, match=r"of a kind that is not opened.*s3"):
        vault.read(named, "0" * 64, "0" * 64)


def test_a_mark_is_written_in_the_folder_of_the_vault_alone(tmp_path: Path) -> None:
    path = ledger_with(tmp_path / "ledger.db")
    outside = tmp_path / "outside"
    outside.mkdir()
    (name,) = (one.name for one in (tmp_path / "vault").glob("*.mark"))
    tamper(path, "holdout", "fingerprint", f"../outside/{'a' * 53}")
    rechain(path)
    holdout = LadderHoldout.open("gift", ledger=path)
    with suppress(LadderHoldoutError):
        holdout.submit(coins()[1])
    assert list(outside.iterdir()) == []
    assert name in {one.name for one in (tmp_path / "vault").iterdir()}


def test_going_on_with_the_rows_removes_no_file_that_is_no_vault(tmp_path: Path) -> None:
    path, precious = ledger_with(tmp_path / "ledger.db"), tmp_path / "thesis.tex"
    precious.write_text("years of work")
    name_vault(path, str(precious), b"")
    holdout = LadderHoldout(*coins(), ledger=path, vault=tmp_path / "mine")
    assert precious.read_text() == "years of work"
    assert holdout.submit(DummyClassifier().fit(*coins())).submission == 4


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("metric", "os.system"),
        ("rule", "__import__('os').system('true')"),
        ("rule", "numpy.load"),
    ],
)
def test_no_name_in_a_ledger_is_imported(tmp_path: Path, field: str, name: str) -> None:
    path = ledger_with(tmp_path / "ledger.db")
    tamper(path, "ladder", field, name)
    with pytest.raises(LadderHoldoutError):
        LadderHoldout.open("gift", ledger=path).status()
