"""Attacks the formats: a ledger and vaults that a released version wrote, opened by today's code.

``data/frozen/VERSION`` has the ledger as SQL, the vaults in base64, and what that version
answered. Until a version is released, ``python -m tests.promises.test_frozen`` writes its folder
anew; afterwards its folder stays as it is (docs/background/format.md).
"""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest

import ladderholdout
from ladderholdout import LadderHoldout
from ladderholdout.errors import HoldoutConflict
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import ladder_of
from ladderholdout.mechanisms import GateLadder, ShakyLadder
from tests.promises.test_session import fixed
from tests.support.ledgers import dump, made_of, url_of

FROZEN = Path(__file__).parent / "data" / "frozen"
# A vault's place is in the chain: this one is the same on every machine, and marks of it lie
# beside the ledger.
VAULT = "memory://frozen"
WIDTH = 100  # characters of a line of base64

# Each ladder that is frozen: the holdout, the account.
LADDERS = (
    ("coins", "default"),
    ("coins", "ada"),
    ("visits", "default"),
    ("changes", "default"),
    ("months", "default"),
    ("months@1", "default"),
)


def rows(seed: int, n: int = 150) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.integers(0, 2, n)


def guess(y: Any, right: int) -> Any:
    """Predictions that are right on the first rows, so many of them."""
    return np.where(np.arange(len(y)) < right, y, 1 - y)


def frame(n: int) -> pd.DataFrame:
    """Columns of pandas' own types, which a vault takes apart."""
    place = np.arange(n)
    return pd.DataFrame(
        {
            "visit": pd.array([None if k % 7 == 0 else k for k in place.tolist()], "Int64"),
            "ward": pd.Categorical(np.array(["north", "south", "west"])[place % 3]),
            "note": pd.array([f"note {k}" if k % 5 else None for k in place], "string"),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(place, "D"),
        }
    )


def session(ledger: Path) -> None:
    """Use what a ledger and a vault have a format for."""
    opened = partial(LadderHoldout, ledger=ledger, vault=VAULT)
    X, y = rows(1)
    coins = opened(X, y, scoring="accuracy", name="coins", reserve=0.2, ids=[*range(150)])
    with coins.batch() as batch:
        for right in (80, 95, 90):
            batch.submit(guess(y, right))
    coins.submit(y, context={"by": "mistake"})
    coins.owner.withdraw(coins.status().incumbent, reason="these were the labels")
    coins.submit(guess(y, 120), context={"by": "hand"})
    coins.certificate(), coins.reserve_certificate()
    noisy = ShakyLadder(step=0.05, noise=0.01)
    ada = opened(X, y, scoring="accuracy", account="ada", mechanism=noisy, budget=2)
    for right in (90, 110, 100, 130):
        ada.submit(guess(y, right))

    table, (_, y) = frame(120), rows(2, 120)
    visits = opened(table, y, scoring="roc_auc", name="visits", groups=np.arange(120) // 2)
    rng = np.random.default_rng(5)
    for share in (0.2, 0.6):
        visits.submit(rng.normal(size=120) + 3 * share * y)
    visits.certificate()

    X, y = rows(3)
    rule = GateLadder(alpha=0.05, horizon=20)
    changes = opened(X, y, scoring="accuracy", name="changes", mechanism=rule)
    for right in (80, 82, 120, 121):
        changes.gate(guess(y, right))

    X, y = rows(4)
    months = opened(X, y, scoring="neg_brier_score", name="months", show="improvements")
    for right in (80, 110):
        months.submit(0.1 + 0.8 * guess(y, right))
    months.reveal()
    X, y = rows(6)
    months = months.replenish(X, y)
    months.submit(0.1 + 0.8 * guess(y, 100))


def answered(ledger: Path) -> dict[str, dict[str, Any]]:
    """What is known of each ladder: facts and no texts, for those may be written better."""
    answers = {}
    for name, account in LADDERS:
        holdout = LadderHoldout.open(name, account=account, ledger=ledger)
        status, found = holdout.status(), holdout.status().certificate
        answers[f"{name} of {account}"] = {
            "rules": status.mechanism,
            "released": status.score,
            "incumbent": status.incumbent,
            "submissions": status.submissions,
            "releases": status.releases,
            "certificate": found and [found.low, found.high, found.log_count],
            "reserve": [status.reserve, status.reserve_queries],
            "history": [
                [
                    one.number,
                    one.account,
                    one.time.isoformat(),
                    one.score,
                    one.improved,
                    one.context,
                ]
                for one in holdout.history()
            ],
        }
    return answers


def rounded(answer: Any) -> Any:
    """An answer with numbers to nine digits: logarithms differ in the last one."""
    if isinstance(answer, dict):
        return {name: rounded(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [rounded(value) for value in answer]
    return float(f"{answer:.9g}") if isinstance(answer, float) else answer


def write(folder: Path) -> None:
    """Freeze what today's code writes, and answers."""
    with TemporaryDirectory() as name, fixed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger = Path(name) / "ledger.db"
        session(ledger)
        dumped = dump(ledger)
        answers = answered(ledger)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ledger.sql").write_text(dumped, "utf-8")
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", "utf-8")
    system, place = fsspec.url_to_fs(VAULT)
    for path in system.ls(place, detail=False):
        text = base64.b64encode(system.cat(path)).decode()
        lines = [text[start : start + WIDTH] for start in range(0, len(text), WIDTH)]
        file = folder / f"{Path(path).name}.base64"
        file.write_text("\n".join(lines) + "\n", "ascii")


@pytest.fixture(params=sorted(path.name for path in FROZEN.iterdir()))
def frozen(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """The files of a version, and a ledger as that version left it."""
    folder, ledger = FROZEN / request.param, tmp_path / "ledger.db"
    made_of(ledger, (folder / "ledger.sql").read_text("utf-8"))
    system, place = fsspec.url_to_fs(VAULT)
    for file in folder.glob("*.base64"):
        system.pipe(f"{place}/{file.stem}", base64.b64decode(file.read_text("ascii")))
    return folder, ledger


def test_this_version_is_frozen_or_its_release_would_promise_nothing() -> None:
    assert (FROZEN / ladderholdout.__version__ / "ledger.sql").is_file()


def test_what_a_released_version_wrote_is_answered_as_it_was(frozen: tuple[Path, Path]) -> None:
    folder, ledger = frozen
    answers = json.loads((folder / "answers.json").read_text("utf-8"))
    assert set(answers) == {f"{name} of {account}" for name, account in LADDERS}
    assert rounded(answered(ledger)) == rounded(answers)
    for name, _ in LADDERS:
        assert verify_holdout(url_of(ledger), name).findings == ()


def test_what_a_released_version_wrote_goes_on(frozen: tuple[Path, Path]) -> None:
    _, ledger = frozen
    opened: Callable[..., LadderHoldout] = partial(LadderHoldout.open, ledger=ledger)
    coins, y = opened("coins"), rows(1)[1]
    before, again = coins.status(), coins.submit(guess(y, 120))
    assert (again.submission, again.score) == (before.submissions + 1, before.score)
    assert coins.status().releases == before.releases  # answered as the submission it repeats
    assert coins.submit(guess(y, 149)).score > before.score
    assert opened("coins", account="ada").submit(guess(y, 149)).releases_left == 0
    visits = opened("visits")
    pd.testing.assert_frame_equal(ladder_of(visits).rows().X, frame(120))
    assert opened("changes").gate(guess(rows(3)[1], 149)).accepted
    with pytest.raises(HoldoutConflict):
        opened("months@1").submit(guess(rows(4)[1], 149))
    for name, _ in LADDERS:
        assert verify_holdout(url_of(ledger), name).findings == ()


if __name__ == "__main__":
    write(FROZEN / ladderholdout.__version__)
