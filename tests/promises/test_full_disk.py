"""A disk that is full, really: a file system of its own, or a limit on what files may hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.audit.report import record_of, write_report
from ladderholdout.errors import InvalidArgument, LadderHoldoutError
from ladderholdout.guard.health import verify_holdout
from tests.support.disk import fill, mounted, only_root
from tests.support.holdouts import coins, guesses
from tests.support.ledgers import names, url_of

pytestmark = [pytest.mark.processes, only_root]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    with mounted(tmp_path) as place:
        yield place


@pytest.mark.parametrize(
    "left",
    [0, 65536, 400_000, *(pytest.param(one, marks=pytest.mark.nightly) for one in (8192, 200_000))],
)
def test_a_registration_leaves_no_vault_without_a_ledger_entry(disk: Path, left: int) -> None:
    """At whichever write the room ends."""
    ledger = disk / "ledger.db"
    LadderHoldout(*coins(), scoring="accuracy", name="first", ledger=ledger)
    before = vaults(disk)
    ballast = fill(disk, left)
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((20_000, 3)), rng.integers(0, 2, 20_000)  # 640 kB
    with pytest.raises(LadderHoldoutError) as caught:
        LadderHoldout(*rows, scoring="accuracy", name="second", ledger=ledger)
    assert "space" in str(caught.value) or "full" in str(caught.value)
    assert vaults(disk) == before
    assert names(ledger) == ["first"]
    ballast.unlink()
    assert verify_holdout(url_of(ledger), "first").findings == ()
    again = LadderHoldout(*coins(seed=2), scoring="accuracy", name="second", ledger=ledger)
    again.submit(guesses(1, 1)[0])
    assert len(vaults(disk)) == 2
    assert verify_holdout(url_of(ledger), "second").findings == ()


def test_the_vault_goes_where_the_ledger_does_not_take_the_entry(
    disk: Path, tmp_path: Path
) -> None:
    """The vault on another disk that has room, the ledger on the full one."""
    ledger, folder = disk / "ledger.db", tmp_path / "vault"
    LadderHoldout(*coins(), scoring="accuracy", name="first", ledger=ledger, vault=folder)
    before = vaults(tmp_path)
    fill(disk, 0)
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((20_000, 3)), rng.integers(0, 2, 20_000)
    with pytest.raises(LadderHoldoutError, match="full"):
        LadderHoldout(*rows, scoring="accuracy", name="second", ledger=ledger, vault=folder)
    assert vaults(tmp_path) == before
    assert names(ledger) == ["first"]


def test_a_report_is_whole_or_what_was_there(disk: Path) -> None:
    pytest.importorskip("matplotlib")
    holdout = LadderHoldout(*coins(), scoring="accuracy", ledger="memory")
    holdout.submit(guesses(1, 1)[0])
    report = disk / "report.html"
    report.write_text("the one of before")
    ballast = fill(disk, 4096)
    with pytest.raises(InvalidArgument, match=r"report\.html: No space left"):
        write_report(record_of(holdout), report)
    assert report.read_text() == "the one of before"
    assert sorted(one.name for one in disk.iterdir()) == ["ballast", "report.html"]
    ballast.unlink()
    write_report(record_of(holdout), report)
    assert report.read_text().rstrip().endswith("</html>")


def vaults(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.rglob("*") if one.suffix in (".vault", ".part"))
