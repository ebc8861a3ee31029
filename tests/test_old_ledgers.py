"""Ledgers that earlier versions wrote: they open, with a copy made first, and keep their history.

`data/ledger_000N.sql` is what the code of that schema wrote, as `sqlite3.Connection.iterdump`
gives it, and `data/ledger_000N.json` what that code said of it. Its vault was a pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.guard.health import verify_holdout
from ladderholdout.ledger import Ledger, resolve_url
from ladderholdout.ledger.tables import SCHEMA
from tests.support_holdouts import assert_replays, coins, guesses

DATA = Path(__file__).parent / "data"
SCHEMAS = ("0001", "0002", "0003", "0004")
ACCOUNTS = ("default", "ben")
NAMES = ("submissions", "releases", "score", "incumbent")


@pytest.fixture(params=SCHEMAS)
def schema(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(schema: str, tmp_path: Path) -> Path:
    """The ledger as that version left it, with the vault that it wrote beside it."""
    path = tmp_path / "ledger.db"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    vault = pickle.dumps((*coins(), None), protocol=5)
    with closing(sqlite3.connect(path)) as connection:
        text = (DATA / f"ledger_{schema}.sql").read_text(encoding="utf-8")
        connection.executescript(text.replace("{folder}", str(tmp_path)))
        # Pickles differ from one NumPy to the next; no schema before 0005 chains the digest.
        digest = hashlib.sha256(vault).hexdigest()
        connection.execute("UPDATE holdouts SET vault_digest = ?", (digest,))
        connection.commit()
        (place,) = connection.execute("SELECT vault_path FROM holdouts").fetchone()
    Path(place).parent.mkdir(mode=0o700)
    Path(place).write_bytes(vault)
    Path(place).chmod(0o600)
    return path


def said_then(schema: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"ledger_{schema}.json").read_text("utf-8"))
    return found


def said_now(path: Path, account: str) -> dict[str, Any]:
    holdout = LadderHoldout.open("old", account=account, ledger=path)
    status = holdout.status()
    return {name: getattr(status, name) for name in NAMES} | {"history": entries(holdout)}


def entries(holdout: LadderHoldout) -> list[list[Any]]:
    """Say of each submission what an audit of it says, repeats included."""
    shown = {one.number: one.score for one in holdout.history()}
    with Ledger(holdout.ledger).read() as tx:
        found = tx.entries(holdout.open_ladder.id)
    return [[one.number, shown[one.number], one.improved, one.repeat_of] for one in found]


def version_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_an_old_ledger_says_what_it_said(schema: str, path: Path) -> None:
    then = said_then(schema)
    for account in ACCOUNTS:
        limits = then[account].pop("certificate", None)
        then[account].pop("repeats")  # which nobody is told any more
        assert said_now(path, account) == then[account]
        if limits is not None:  # there were none before schema 0003
            found = LadderHoldout(*coins(), account=account, ledger=path).certificate()
            # Never narrower: later versions count more of what the older ones revealed.
            assert found.low <= limits[0] + 1e-12
            assert found.high >= limits[1] - 1e-12


def test_an_old_ledger_is_copied_before_it_is_changed(schema: str, path: Path) -> None:
    dumped = DATA / f"ledger_{schema}.sql"
    said_now(path, "default")
    assert version_of(path) == SCHEMA
    (copied,) = path.parent.glob("*.bak")
    assert copied.name == f"ledger.db.{schema}.bak"
    assert copied.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(copied)) as connection:
        # To the last row: what is there now but the vault's digest, which the fixture set.
        kept = [line for line in connection.iterdump() if 'INTO "submissions"' in line]
    assert kept
    assert all(line in dumped.read_text(encoding="utf-8") for line in kept)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.LadderHoldoutWarning")
def test_an_old_ledger_goes_on_and_verifies(schema: str, path: Path) -> None:
    then, url = said_then(schema)["default"], resolve_url(path)
    (finding,) = verify_holdout(url, "old").findings
    assert "is a pickle" in str(finding)
    holdout = LadderHoldout(*coins(), ledger=path)  # which writes the vault anew
    assert verify_holdout(url, "old").findings == ()
    holdout.submit(guesses(3, 3)[0])
    assert entries(holdout)[-1][-1] == 1  # a repeat of the first
    release = holdout.submit(coins()[1])
    assert (release.submission, release.improved) == (then["submissions"] + 2, True)
    assert (
        holdout.history()[: len(then["history"])]
        == LadderHoldout.open("old", ledger=path).history()[: len(then["history"])]
    )
    assert [one.number for one in holdout.history()] == list(range(1, release.submission + 1))
    assert_replays(holdout)
    assert verify_holdout(url, "old").findings == ()
    assert np.isfinite(holdout.status().score or np.nan)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.LadderHoldoutWarning")
def test_a_ledger_of_schema_0005_goes_on(tmp_path: Path) -> None:
    """It has no announced batches, and no predictions are kept of the batch that it has."""
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / "ledger_0005.sql").read_text(encoding="utf-8"))
    path.chmod(0o600)
    for account, then in said_then("0005").items():
        holdout = LadderHoldout(*coins(), account=account, ledger=path, vault=False)
        status = holdout.status()
        assert all(getattr(status, name) == then[name] for name in NAMES)
        # That version called repeats of what improved so, too.
        history = [
            [one.number, one.score, one.improved or one.repeat_of is not None]
            for one in holdout.history()
        ]
        assert history == then["history"]
        found = holdout.certificate()
        # Its events are numbered now, and the length of the transcript costs nothing.
        low, high = then["certificate"]
        assert low <= found.low <= found.score <= found.high <= high
        assert holdout.estimate().score is None
    assert version_of(path) == SCHEMA
    assert path.with_name("ledger.db.0005.bak").exists()
    assert verify_holdout(resolve_url(path), "old").findings == ()
    holdout = LadderHoldout(*coins(), ledger=path, vault=False)
    assert holdout.submit(coins()[1]).improved
    assert_replays(holdout)
    assert verify_holdout(resolve_url(path), "old").findings == ()
