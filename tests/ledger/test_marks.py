"""Attacks the memory outside of the ledger: older copies, copies that run ahead, crashes."""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.errors import RestoredWarning
from ladderholdout.guard.health import verify_holdout
from ladderholdout.ledger import Ledger, backup, resolve_url
from ladderholdout.ledger.fold import Head
from ladderholdout.ledger.marks import Mark
from tests.support.holdouts import coins, guesses
from tests.support.processes import elsewhere


def opened(ledger: Path, **more: Any) -> LadderHoldout:
    X, y = coins()
    return LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=ledger, **more)


def looked(holdout: LadderHoldout, seed: int, times: int = 3) -> None:
    for predictions in guesses(seed, times):
        holdout.submit(predictions)


def submitted(ledger: str, seed: int) -> tuple[list[str], list[str]]:
    """Submit from a new process; return what was warned of, and what verifying finds then."""
    holdout = LadderHoldout.open("coins", ledger=ledger)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        looked(holdout, seed, 2)
    found = [str(one) for one in verify_holdout(holdout.ledger, "coins").findings]
    return [one.category.__name__ for one in said], found


def put_back(copy: Path, ledger: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{ledger}{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, ledger.with_suffix(".new"))
    os.replace(ledger.with_suffix(".new"), ledger)


def climbed(ledger: Path, more: dict[str, Any]) -> None:
    holdout = opened(ledger, **more)
    looked(holdout, 1)
    backup(holdout.ledger, ledger.with_name("copy.db"))
    looked(holdout, 2)


def rolled_back(folder: Path, **more: Any) -> Path:
    """Look, copy, look on, and put the copy back, while nobody is there."""
    ledger = folder / "ledger.db"
    elsewhere(climbed, ledger, more)
    put_back(folder / "copy.db", ledger)
    return ledger


def mark(holdout: LadderHoldout) -> Mark:
    return holdout.__ladder__.read(lambda tx, one: tx.mark(one.holdout_id))


@pytest.mark.processes
def test_an_older_copy_is_found_said_and_put_on_record_once(tmp_path: Path) -> None:
    ledger = rolled_back(tmp_path)
    (older,) = verify_holdout(resolve_url(ledger), "coins").findings
    assert "older copy: link 11 was seen on this machine" in str(older)
    said, found = elsewhere(submitted, str(ledger), 3)
    assert said == ["RestoredWarning"]
    assert found == ["an older copy was put in place where link 11 had been known"]
    assert elsewhere(submitted, str(ledger), 4) == ([], found)
    status = LadderHoldout.open("coins", ledger=ledger).status()
    assert status.restored == (11,)
    assert ("restored", "an older copy of the ledger was put in place; link 11 had been known") in (
        status.lines()
    )


@pytest.mark.processes
def test_what_is_chosen_after_an_older_copy_is_not_certified(tmp_path: Path) -> None:
    ledger = rolled_back(tmp_path, reserve=0.3)
    holdout = LadderHoldout.open("coins", ledger=ledger)
    assert holdout.certificate().missing is None  # it was chosen before
    with pytest.warns(RestoredWarning, match="nothing can be certified from now on"):
        holdout.submit(coins()[1])
    assert "older copy" in str(holdout.certificate().missing)
    found = holdout.reserve_certificate()
    assert (found.score, found.low, found.reserve_query) == (None, None, None)
    assert "older copy" in str(found.missing)
    assert holdout.status().reserve_queries == 0


@pytest.mark.processes
def test_a_look_at_the_reserve_itself_finds_the_older_copy(tmp_path: Path) -> None:
    ledger = rolled_back(tmp_path, reserve=0.3)
    holdout = LadderHoldout.open("coins", ledger=ledger)
    with pytest.warns(RestoredWarning):
        assert "older copy" in str(holdout.reserve_certificate().missing)
    assert holdout.status().reserve_queries == 0


def done_by_the_owner(holdout: LadderHoldout, what: str) -> None:
    getattr(holdout.owner, what)()


@pytest.mark.processes
@pytest.mark.parametrize("what", ["audit", "retire"])
def test_taking_back_an_opening_or_a_retirement_is_found(tmp_path: Path, what: str) -> None:
    holdout = opened(tmp_path / "ledger.db")
    looked(holdout, 1)
    copy = backup(holdout.ledger, tmp_path / "copy.db")
    elsewhere(done_by_the_owner, holdout, what)
    put_back(copy, tmp_path / "ledger.db")
    assert elsewhere(submitted, str(tmp_path / "ledger.db"), 3)[0] == ["RestoredWarning"]


@pytest.mark.processes
def test_a_copy_that_was_climbed_elsewhere_is_missed_in_the_first_one(tmp_path: Path) -> None:
    """Both have the same rows, and so the same vault, beside which the mark lies."""
    holdout = opened(tmp_path / "ledger.db")
    copy = backup(holdout.ledger, tmp_path / "elsewhere.db")
    assert elsewhere(submitted, str(copy), 1)[0] == []
    assert elsewhere(submitted, holdout.ledger, 2)[0] == ["RestoredWarning"]


@pytest.mark.processes
def test_a_copy_that_went_further_than_the_mark_is_told_by_its_hashes(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    looked(holdout, 1)
    copy = backup(holdout.ledger, tmp_path / "copy.db")
    looked(holdout, 2)
    mine = mark(holdout)
    assert mine.path is not None
    kept = mine.path.read_bytes()
    mine.path.unlink()  # as another machine, which has none
    put_back(copy, tmp_path / "ledger.db")
    assert elsewhere(submitted, holdout.ledger, 3)[0] == []
    assert elsewhere(submitted, holdout.ledger, 4)[0] == []
    mine.path.write_bytes(kept)
    assert elsewhere(submitted, holdout.ledger, 5)[0] == ["RestoredWarning"]


@pytest.mark.processes
def test_other_machines_and_crashes_raise_no_false_alarm(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    mine = mark(holdout)
    assert mine.path is not None
    for seed, kept in enumerate((mine.path.read_bytes(), b"", b"torn", None)):
        looked(holdout, seed)
        # As if the last process had died between its commit and its mark, or in its midst.
        mine.path.unlink()
        if kept is not None:
            mine.path.write_bytes(kept)
        assert elsewhere(submitted, holdout.ledger, 10 + seed) == ([], [])


@pytest.mark.parametrize("vault", [None, False], ids=["with a vault", "without one"])
def test_the_mark_is_private_and_holds_a_length_and_a_hash(
    tmp_path: Path, vault: bool | None
) -> None:
    holdout = opened(tmp_path / "ledger.db", vault=vault)
    looked(holdout, 1)
    mine = mark(holdout)
    assert mine.path is not None
    assert mine.path.parent == tmp_path / "vault"
    assert stat.S_IMODE(mine.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(mine.path.parent.stat().st_mode) == 0o700
    with Ledger(holdout.ledger).read() as tx:
        assert mine.seen() == tx.fold(1).end
    assert mine.path.read_text().split()[0] == str(mine.seen())


def test_a_mark_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db", vault=False)
    mine = mark(holdout)
    assert mine.path is not None
    mine.path.unlink()
    mine.path.mkdir()  # nobody can write there, not even the administrator
    looked(holdout, 1)
    assert holdout.status().submissions == 3


def test_a_mark_without_the_secret_is_none(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db")
    mine = mark(holdout)
    assert mine.path is not None
    length = len(mine.path.read_bytes())
    Mark(mine.path, b"another secret").write(Head(99, 64 * "0"))
    assert len(mine.path.read_bytes()) == length
    assert mine.seen() is None
    assert holdout.submit(np.zeros(len(coins()[1]), int)).submission == 1


@pytest.mark.processes
def test_a_warning_made_an_error_takes_nothing_back_that_was_committed(tmp_path: Path) -> None:
    """The vault's new file is on record by then, and so is that the ledger is an older copy."""
    ledger = rolled_back(tmp_path)
    with warnings.catch_warnings(), pytest.raises(RestoredWarning):
        warnings.simplefilter("error")
        opened(ledger, vault=tmp_path / "moved")
    assert elsewhere(submitted, str(ledger), 3) == (
        [],
        ["an older copy was put in place where link 11 had been known"],
    )
    assert len(list((tmp_path / "moved").glob("*.vault"))) == 1


def test_the_mark_moves_with_the_vault(tmp_path: Path) -> None:
    opened(tmp_path / "ledger.db")
    holdout = opened(tmp_path / "ledger.db", vault=tmp_path / "moved")
    (file,) = (tmp_path / "moved").glob("*.mark")
    with Ledger(holdout.ledger).read() as tx:
        assert file.read_text().split()[0] == str(tx.fold(1).end)


def test_whatever_locks_the_chain_compares_it_with_the_mark(tmp_path: Path) -> None:
    """A caller of the ledger knows of no marks."""
    holdout = opened(tmp_path / "ledger.db")
    with Ledger(holdout.ledger).read() as tx:
        lost = Head(tx.fold(1).end.length + 5, 64 * "0")
    mark(holdout).write(lost)
    with pytest.warns(RestoredWarning, match=f"link {lost.length} "):
        holdout.__ladder__.alone(lambda: None)
    with Ledger(holdout.ledger).read() as tx:
        assert [length for _, length in tx.fold(1).restored] == [lost.length]
        assert mark(holdout).seen() == tx.fold(1).end
