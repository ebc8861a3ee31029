"""Attacks ledger, vault and mark by random damage: readers answer, or raise our own errors."""

from __future__ import annotations

import math
import random
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.cli.options import holdout_names
from ladderholdout.errors import LadderHoldoutError, LadderHoldoutWarning
from ladderholdout.guard import ladder as ladders
from ladderholdout.guard.health import ledger_findings, verify_holdout
from ladderholdout.mechanisms import PairedTestLadder
from tests.support.commands import CliRunner
from tests.support.holdouts import coins, guesses
from tests.support.ledgers import copy, forget_connections, move_vault, mutate, tamper, url_of

VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 7, 10**9, 2**62, -(2**63), 0.5, -1e300, math.inf, "", "garbage", "{", "{}", "[]"),
    *("[1]", "null", "0", "NaN", '{"standing": NaN}', '{"a": "b"}', '{"risk": null}', "default"),
    *(
        "9999-99-99",
        "2026-01-01",
        "0001-01-01 00:00:00.000000",
        "\0",
        "\x1b[2J",
        "\u202e",
        "é" * 300,
    ),
    *(
        "[" * 5000,
        "restored x",
        "restored 99",
        "opened",
        "asked",
        "Ladder",
        "os.system",
        "accuracy",
    ),
    *(b"", b"\0", b"\x80\x05", b"\x93NUMPY", b"\xff" * 40, None),
)


def make(folder: Path) -> Path:
    """A holdout with a reserve, three ladders, repeats, an opening, an asking and a withdrawal."""
    path, (X, y) = folder / "ledger.db", coins(80)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LadderHoldoutWarning)
        first = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=path, reserve=0.25)
        second = LadderHoldout(
            X,
            y,
            scoring="accuracy",
            account="ben",
            mechanism=PairedTestLadder(alpha=0.3),
            show="improvements",
            ledger=path,
        )
        third = LadderHoldout(X, y, scoring="roc_auc", ladder="areas", ledger=path)
        for one in guesses(1, 4, 80):
            first.submit(one, context={"idea": "some"})
            second.submit(one)
            third.submit(one + np.arange(80) / 100)
            first.submit(one)
        first.submit(y)
        second.reveal()
        third.owner.audit()
        third.submit(y + np.arange(80) / 100)
        first.owner.retire()
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("template"))


def copied(template: Path, folder: Path) -> Path:
    """Copy ledger, vault and mark; the ledger names the vault beside it."""
    folder.mkdir()
    path = copy(template, folder / "ledger.db")
    shutil.copytree(template.parent / "vault", folder / "vault")
    move_vault(path, template.parent, folder)
    return path


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 4])):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found) if rng.random() < 0.8 else bytes(found[: rng.randrange(len(found))])


def change_file(file: Path, rng: random.Random) -> str:
    file.write_bytes(changed_bytes(file.read_bytes(), rng))
    return f"bytes of {file.suffix}"


def change(path: Path, rng: random.Random) -> str:
    what = rng.random()
    if what < 0.75:
        return mutate(path, rng, VALUES, changed_bytes)
    if what < 0.9:
        return change_file(path, rng)
    suffix = "*.vault" if what < 0.95 else "*.mark"
    return change_file(rng.choice(sorted((path.parent / "vault").glob(suffix))), rng)


def readers(path: Path, turn: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What reads a ledger: some of it at each turn, for all of it takes seconds."""
    url = url_of(path)
    account, ladder = (("default", "main"), ("ben", "main"), ("default", "areas"))[turn % 3]

    def held() -> LadderHoldout:
        return LadderHoldout.open("coins", account=account, ladder=ladder, ledger=path)

    yield "status", lambda: str(held().status())
    yield "certificate", lambda: held().certificate()
    yield "history", lambda: held().history()
    yield "submit", lambda: held().submit(guesses(7, 1, 80)[0])
    yield "verify", lambda: verify_holdout(url, "coins")
    if turn % 4 == 0:
        yield (
            "audit",
            lambda: str(LadderHoldout.open("coins", ladder="areas", ledger=path).owner.audit()),
        )
        yield "rows", lambda: LadderHoldout(*coins(80), ledger=path)
    yield "health", lambda: list(ledger_findings(url))
    words = (
        ("status",),
        ("status", "--json"),
        ("history", "coins"),
        ("history", "coins", "--json"),
        ("status", "coins", "--json"),
        ("verify", "coins"),
        ("report", "coins", "--output", str(path.with_name("report.html"))),
    )[turn % 7]
    yield words[0], lambda: command(*words, "--ledger", str(path))


def command(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    return result.output


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from numbers(asdict(value))
    elif isinstance(value, dict):
        yield from numbers(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from numbers(one)


def attacked(template: Path, folder: Path, seed: int) -> list[str]:
    """Damage something, and return what ends neither in an answer nor in an error of ours."""
    rng, path = random.Random(seed), copied(template, folder)
    what, wrong = change(path, rng), []
    ladders._guards.clear()  # as another process, which has nothing in memory
    for name, read in readers(path, seed):
        try:
            found = read()
        except LadderHoldoutError:
            continue
        except BaseException as error:
            wrong.append(f"{seed}: {what}: {name}: {type(error).__name__}: {error!s:.200}")
            continue
        if any(math.isnan(one) for one in numbers(found)):
            wrong.append(f"{seed}: {what}: {name}: nan")
    forget_connections(path)
    ladders._guards.clear()
    shutil.rmtree(folder)
    return wrong


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.LadderHoldoutWarning")
@pytest.mark.parametrize(
    "seeds",
    [
        # The last three: a name of bytes, a file beyond its own check, an entry of no ladder.
        pytest.param((*range(16), 25, 170, 349), id="some"),
        pytest.param(range(16, 1100), marks=pytest.mark.nightly, id="all"),
    ],
)
def test_whatever_was_damaged_nothing_ends_in_a_raw_exception_or_nan(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: Sequence[int]
) -> None:
    monkeypatch.chdir(tmp_path)  # a damaged ledger may name a folder relative to it
    wrong = [one for seed in seeds for one in attacked(template, tmp_path / str(seed), seed)]
    assert "\n".join(wrong) == ""


def test_a_name_of_bytes_hides_no_other_holdout(template: Path, tmp_path: Path) -> None:
    path = copied(template, tmp_path / "copy")
    others = LadderHoldout(*coins(60, 9), scoring="accuracy", name="others", ledger=path)
    others.submit(guesses(2, 1, 60)[0])
    tamper(path, "holdout", "name", b"\x80\x05", holdout=1)
    ladders._guards.clear()
    assert holdout_names(url_of(path))[1:] == ("others",)
    assert LadderHoldout.open("others", ledger=path).status().submissions == 1
    assert verify_holdout(url_of(path), "others").findings == ()


@pytest.mark.parametrize("place", ["nowhere.vault", "", "../elsewhere.vault"])
def test_rows_are_written_to_no_place_that_a_damaged_ledger_names(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = copied(template, tmp_path / "copy")
    tamper(path, "holdout", "vault", place)
    with pytest.raises(LadderHoldoutError):
        LadderHoldout(*coins(80), ledger=path)
    assert list(tmp_path.glob("*.vault")) == list(tmp_path.glob("*.mark")) == []
