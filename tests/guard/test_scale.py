"""Attacks what is counted and streamed: is it the same as from all entries, and is it small?"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.audit import record_of
from ladderholdout.audit.statistics import plain
from ladderholdout.audit.submissions import GrowingColumns
from ladderholdout.certificates.transcript import Grid
from ladderholdout.errors import KnownHoldoutWarning
from ladderholdout.guard import rows as guard_rows
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.identity.hashing import content_hashes, row_hashes
from ladderholdout.identity.labels import id_hashes, sequence_digest
from ladderholdout.identity.matching import inverse
from ladderholdout.pictures import thinned
from ladderholdout.vault import Rows
from tests.support.holdouts import coins
from tests.support.ledgers import (
    chosen,
    copy,
    entries_of,
    record,
    remove,
    secret_of,
    stored,
    tamper,
    transcripts,
    url_of,
)
from tests.support.transcripts import Answered, transcript_before

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def bench(name: str) -> Any:
    """Import a benchmark, which is no package."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def two_ladders(ledger: str) -> list[LadderHoldout]:
    X, y = coins()
    first = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=ledger)
    with pytest.warns(KnownHoldoutWarning):
        second = LadderHoldout(X, y, scoring="accuracy", account="ben", ledger=first.ledger)
    return [first, second]


@pytest.mark.parametrize("seed", range(2))
def test_what_is_counted_in_the_ledger_is_what_happened(seed: int) -> None:
    """Two ladders, batches that are broken by others, repeats: against the pure functions."""
    rng = np.random.default_rng(seed)
    y = coins()[1]
    ladders = two_ladders("memory")
    entries: list[Answered] = []
    seen: list[tuple[int, np.ndarray]] = []
    grids: dict[Hashable, Grid] = {0: Grid(10**9, falling=False), 1: Grid(10**9, falling=False)}
    for _ in range(60):
        who = int(rng.integers(2))
        batch = [None, "one", "two"][rng.integers(3)]
        predictions = np.where(rng.random(len(y)) < rng.uniform(0.3, 1.0), y, 1 - y)
        again = [one for place, one in seen if place == who]
        if again and rng.random() < 0.2:
            predictions = again[rng.integers(len(again))]
        place = None if batch is None else int(rng.integers(1, 99))
        release = ladders[who].__ladder__.submit(predictions, Origin(batch=batch, place=place))
        first = entries_of(ladders[who])[release.submission - 1].repeat_of
        new = release.improved and first is None
        entry = Answered(who, new, 0 if new else None, batch, None, first is not None, place)
        entries.append(entry)
        if first is None:
            seen.append((who, predictions))
        for name, holdout in enumerate(ladders):
            found = chosen(holdout)
            own = [i for i, entry in enumerate(entries) if entry.ladder == name and entry.improved]
            if not own:
                assert found is None
                continue
            assert found is not None
            expected = transcript_before(entries, own[-1], grids)
            assert (found.before, found.place) == (expected.before, expected.place)
            improved = [one for queries in found.ladders for one in queries.improved]
            single = sum(one.batch is None for one in improved) - (found.own.batch is None)
            assert 1 + found.runs + single == expected.event
            names = dict.fromkeys(entry.ladder for entry in entries[: expected.before])
            if entries[own[-1]].batch is None:
                names.setdefault(name)
            told = (replace(one, choices=None) for one in expected.ladders)
            counted = transcripts(holdout, found, Grid(10**9, falling=False))
            assert counted == dict(zip(names, told, strict=True))


def filled(place: Path, count: int) -> LadderHoldout:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=place)
    for right in (0.6, 0.7):
        holdout.submit(np.where(np.arange(len(y)) < right * len(y), y, 1 - y))
    bench("filling").fill(holdout, count)
    return holdout


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> LadderHoldout:
    """A long ledger; an audit is made of it, and nothing else is written."""
    return filled(tmp_path_factory.mktemp("long") / "ledger.db", 6000)


def test_a_ledger_that_was_filled_in_bulk_is_a_ledger(tmp_path: Path) -> None:
    holdout = filled(tmp_path / "ledger.db", 600)
    assert verify_holdout(holdout.ledger, "coins").findings == ()
    assert holdout.status().submissions == 602
    assert holdout.submit(coins()[1]).submission == 603
    assert verify_holdout(holdout.ledger, "coins").findings == ()


def test_a_long_ledger_is_verified_without_being_held(long: LadderHoldout) -> None:
    """Held whole, its links and entries take over 20 MB."""
    tracemalloc.start()
    try:
        assert verify_holdout(long.ledger, "coins").findings == ()
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


def test_a_change_in_the_midst_of_a_long_ledger_is_found(
    long: LadderHoldout, tmp_path: Path
) -> None:
    other = copy(long, tmp_path / "copy.db")
    tamper(other, "submission", "context", "{}", number=3000)
    remove(other, "submission", number=4000)
    found = {one.number for one in verify_holdout(url_of(other), "coins").findings}
    assert {3000, 4000} <= found


def test_a_submission_of_many_rows_takes_at_most_three_loss_vectors() -> None:
    """Measured by NumPy's own accounting; the predictions themselves are the caller's."""
    n = 400_000
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    holdout = LadderHoldout(
        np.arange(n).reshape(-1, 1), y, scoring="accuracy", name="many", ledger="memory"
    )
    holdout.submit(np.where(rng.random(n) < 0.8, y, 1 - y))
    worse = np.where(rng.random(n) < 0.6, y, 1 - y)
    tracemalloc.start()
    try:
        assert not holdout.submit(worse).improved
        assert tracemalloc.get_traced_memory()[1] < 3 * 8 * n
    finally:
        tracemalloc.stop()


def test_a_registration_of_many_rows_holds_few_numbers_for_each(tmp_path: Path) -> None:
    """By NumPy's own accounting: with all hashes in one piece it was over a hundred bytes."""
    n = 400_000
    rng = np.random.default_rng(0)
    X, y = rng.random((n, 2), dtype=np.float32), rng.integers(0, 2, n)
    LadderHoldout(X[:99], y[:99], scoring="accuracy", ledger=tmp_path / "few.db")
    tracemalloc.start()
    try:
        holdout = LadderHoldout(X, y, scoring="accuracy", ledger=tmp_path / "ledger.db")
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Kept: their order and their hashes, the targets, what garbage there is, and as the holdout's
    # own copies the features (a number for both of these, in single precision) and the labels.
    assert held < 8 * 5.5 * n
    assert most < 8 * 7 * n
    assert holdout.submit(y).improved


_REGISTERS = """
import sys
from pathlib import Path
import numpy as np
from ladderholdout import LadderHoldout

def bytes_of(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))

n, ledger = 1_000_000, sys.argv[1]
rng = np.random.default_rng(0)
X, y = rng.random((n, 2), dtype=np.float32), rng.integers(0, 2, n)
LadderHoldout(X[:99] + 1, y[:99], scoring="accuracy", ledger=ledger + ".few")
Path("/proc/self/clear_refs").write_text("5")
before = bytes_of("VmRSS")
LadderHoldout(X, y, scoring="accuracy", ledger=ledger)
print((bytes_of("VmHWM") - before) / n)
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the memory of a process")
def test_the_database_copies_no_value_that_is_as_long_as_the_rows(tmp_path: Path) -> None:
    """With all of SQLite's copies: a statement after the long values were there takes 48 more."""
    # What is freed goes back to the system at once, so that all of it counts when it is there.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}
    ran = subprocess.run(
        [sys.executable, "-c", _REGISTERS, str(tmp_path / "ledger.db")],
        check=True, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    # 16 of them are the holdout's own copies of the features and of the labels.
    assert float(ran.stdout) < 60


def test_what_rows_are_known_by_is_written_in_pieces_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each column is what was made of all rows at once, and the chain covers it as it is."""
    monkeypatch.setattr(guard_rows, "_AT_A_TIME", 7)
    rng, n = np.random.default_rng(0), 100
    X, y = rng.random((n, 2)), np.array(["no", "yes"])[rng.integers(0, 2, n)]
    weights, ledger = rng.random(n), tmp_path / "ledger.db"
    holdout = LadderHoldout(
        X, y, scoring="accuracy", name="rows", sample_weight=weights, ids=range(n), ledger=ledger
    )
    secret, rows = secret_of(holdout), Rows(X, y, weights)
    hashes, given = row_hashes(X), guard_rows.digests_of(secret, rows)
    expected = {
        "row hashes": hashes,
        "ids": id_hashes(range(n)),
        "label digests": given[0],
        "weight digests": np.asarray(given[1]),
        "places": inverse(np.argsort(content_hashes(hashes, y, weights), kind="stable")),
    }
    sequence = stored(ledger, "holdout", "labels digest")
    assert sequence == sequence_digest(secret, given[0])
    for name in expected:
        found = stored(ledger, "holdout", name)
        assert found == np.asarray(expected[name]).astype("<u8").tobytes(), name
    assert verify_holdout(holdout.ledger, "rows").findings == ()


def test_a_long_audit_is_what_its_objects_say_and_is_small(long: LadderHoldout) -> None:
    """As objects 6,000 submissions take 10 MB. Compared with the rules, entry by entry."""
    entries = record(long)[2]
    tracemalloc.start()
    try:
        audit = long.owner.audit()
        assert tracemalloc.get_traced_memory()[1] < 6e6
    finally:
        tracemalloc.stop()
    metric, current, incumbent = long.metric, None, None
    for one, entry in zip(audit.submissions, entries, strict=True):
        seen = entry.entry
        new = seen.repeat_of is None
        raw = metric.to_score(entry.raw_risk)
        gain = None if incumbent is None or not new else plain(raw - metric.to_score(incumbent))
        if seen.improved and new:
            incumbent = entry.raw_risk
        current = metric.to_score(seen.risk) if current is None or one.is_release else current
        assert (one.number, one.raw, one.repeat_of) == (seen.number, raw, seen.repeat_of)
        assert (one.gain, one.incumbent_score) == (gain, current)
        assert (one.submission.time, one.submission.context) == (seen.time, seen.context)
        assert one.disagreement == seen.disagreement
    assert audit.history == long.history()


def test_a_report_of_many_submissions_is_read_in_pages(
    long: LadderHoldout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladderholdout.audit.report._PAGE", 500)
    steps: list[tuple[int, int]] = []
    shown = record_of(long, lambda done, total: steps.append((done, total)))
    assert shown.history == long.history()
    assert steps[0] == (500, len(shown.history))
    assert steps[-1] == (len(shown.history), len(shown.history))


def test_whoever_waits_for_a_verification_learns_how_far_it_is(long: LadderHoldout) -> None:
    steps: list[tuple[int, int]] = []
    verify_holdout(long.ledger, "coins", lambda done, total: steps.append((done, total)))
    done = [one for one, _ in steps]
    assert done == sorted(done)
    assert len(done) >= 6
    assert {total for _, total in steps} == {steps[0][1]}
    assert done[-1] <= steps[0][1] < done[-1] + 2000


@pytest.mark.parametrize("shape", ["cloud", "line", "steps"])
def test_a_picture_of_many_points_keeps_the_extremes(shape: str) -> None:
    rng = np.random.default_rng(1)
    x = np.arange(200_000.0)
    y = {"cloud": rng.normal(size=len(x)), "line": x, "steps": np.floor(x / 1e4)}[shape].copy()
    y[123_456], y[77] = 99.0, -99.0
    kept = thinned(x, y)
    assert len(kept) < 25_000
    assert {0, len(x) - 1, 77, 123_456} <= set(kept.tolist())
    # No point lies farther from one that is drawn than a mark is wide.
    wide, high = np.ptp(x) / 200, np.ptp(y) / 60
    for at in rng.integers(0, len(x), 300):
        near = (np.abs(x[kept] - x[at]) < wide) & (np.abs(y[kept] - y[at]) < high)
        assert near.any()


def test_a_submission_that_grows_the_record_while_it_is_read_is_in_it() -> None:
    growing = GrowingColumns(2)
    for start in (0, 3, 4):
        growing.add({"number": np.arange(start, start + 3)})
    assert growing.columns()["number"].tolist() == [0, 1, 2, 3, 4, 5, 4, 5, 6]
