"""Attacks the fold: snapshots, restarts at any event, what is raw, events that do not follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladderholdout.ledger import events as e
from ladderholdout.ledger import log
from ladderholdout.ledger.fold import Holdout
from ladderholdout.ledger.log import linked, read_snapshot, written_snapshot
from tests.support.records import settings_of

MOMENT = datetime(2026, 11, 28, 12, 30, 1, 123456, tzinfo=UTC)
SECRET = b"\0secret\xff"
RAW = 0.123456789
"""What no fold may hold; released risks are others."""

STARTED = (
    e.Registered(
        name="äöü", fingerprint="f" * 64, content="c0", n=9, row_hashes="h", confidence=0.9,
        time=MOMENT,
    ),
    e.RowsKnown(label_digests="l", places="p", groups="g"),
    *(
        e.LadderStarted(
            ladder=number,
            settings=settings_of("main", f"account {number}"),
            state={"standing": float("inf"), "noise": None, "releases": 0},
            time=MOMENT,
        )
        for number in (1, 2)
    ),
    e.RoundsBegun(ladder=1, hours=None, time=MOMENT),
)  # fmt: skip


def folded(
    happened: Iterator[e.Event] | tuple[e.Event, ...], known: Holdout | None = None
) -> Holdout:
    """Return what some events come to, each with the hash of its link."""
    known = known or Holdout(1, SECRET)
    for one in happened:
        kind, body = e.written(one)
        position = known.length + 1
        known.apply(position, linked(SECRET, known.head, position, kind, body), e.read(kind, body))
    return known


def submitted(
    known: Holdout, ladder: int, batch: str | None, improved: bool, **more: Any
) -> e.Event:
    record = known.ladders[ladder]
    state = {"standing": 0.5 / (record.version + 1), "noise": 1e-300 / 3, "releases": 7}
    stated = {
        "ladder": ladder,
        "number": record.submissions + 1,
        "query": record.queries + 1,
        "time": MOMENT,
        "digest": "d" * 64,
        "batch": batch,
        "raw": RAW,
        "evidence": {"risk": RAW, "spread": float("inf")},
        "risk": state["standing"],
        "improved": improved,
        "state": state if improved else None,
        "context": {"round": 1} if batch == "fit" else {},
        "predictions": "p" if improved else None,
    }
    return e.Submitted(**stated | more)


def next_event(known: Holdout, draw: Any) -> e.Event:
    """Draw an event that can follow."""
    ladder = draw(st.sampled_from((1, 2)))
    record = known.ladders[ladder]
    what = draw(
        st.sampled_from(("submit",) * 6 + ("withdraw", "reveal", "batch", "repeat", "other"))
    )
    batch = draw(st.sampled_from((None, None, "fit", "grid")))
    if what == "withdraw" and record.incumbent is not None:
        gone = {one.number for one in record.withdrawn}
        left = [one.number for one in record.improved if one.number not in gone]
        number = draw(st.sampled_from(left))
        replaced = number == record.incumbent
        back = max((one for one in left if one != number), default=None) if replaced else None
        return e.Withdrawn(
            ladder=ladder, number=number, reason="leak", time=MOMENT, until=record.submissions,
            replaced=replaced, incumbent=back, again=draw(st.booleans()),
        )  # fmt: skip
    if what == "reveal" and record.incumbent is not None:
        return e.Revealed(ladder=ladder, submission=record.incumbent)
    if what == "batch":
        return e.BatchAnnounced(ladder=ladder, batch="grid", size=draw(st.integers(1, 9)))
    if what == "repeat" and record.submissions:
        more = {"query": None, "repeat_of": 1, "evidence": {}, "raw": RAW}
        return submitted(known, ladder, None, False, **more)
    if what == "other":
        return draw(st.sampled_from(OTHERS))
    return submitted(known, ladder, batch, draw(st.booleans()))


SHOWN = {"risks": [0.5], "lows": [0.1], "highs": [0.9], "better": [[]], "log_values": 1.5}
OTHERS: tuple[e.Event, ...] = (
    e.Noted(what="overlap", detail={"source": "b", "rows": 3, "time": MOMENT.isoformat()}),
    e.Noted(what="confidence", detail={"confidence": 0.8}),
    e.Noted(what="grouped", detail={"by": "patient"}),
    e.Shown(what="interval", ladder=1, submission=1, low=None, high=0.25, log_values=1 / 3),
    e.ReserveQueried(
        ladder=1, number=1, submission=1, about=("accuracy", None), low=0.1, risk=0.2, high=None,
        evidence={"risk": RAW, "low": RAW, "high": RAW, "confidence": 0.9, "grid": {}},
        log_values=2.5, time=MOMENT,
    ),
    e.FinalsHeld(
        ladder=1, number=1, confidence=0.9, bound="", log_count=0.0, amended=0,
        entries=(("ada", 1, 1, "d"),), evidence={"risks": [RAW]}, shown=SHOWN, time=MOMENT,
    ),
    e.Opened(ladder=2, time=MOMENT),
    e.Retired(time=MOMENT),
    e.Restored(length=7),
    e.SharingCounted(other=2, rows=5),
    e.SharingCounted(other=2, rows=0),
    e.ViewAdded(fingerprint="e" * 64, row_hashes="r", places="p", time=MOMENT),
    e.VaultSet(view=1, path="/somewhere", digest="d"),
    e.Amended(count=2, mask="m"),
    e.ClassesFixed(classes="c0"),
    e.ReserveDrawn(reserve="r"),
    e.Collected(home=1, ladder=2, account="ada", predictions="p", time=MOMENT),
    e.TakenOut(home=1, account="ada"),
    e.RoundClosed(
        home=1, number=1, until=9, batch="b", submissions=1, accounts=1, improved=0, best=None,
        left_out=("bob",), time=MOMENT,
    ),
    e.AccountChanged(
        name="ada", role="analyst", ladder=1, token_key="k", token_hash="t", per_day=3,
        created=MOMENT, expires=None, revoked=None,
    ),
    e.AccountsMoved(),
    e.Followed(block=2),
    e.Forgotten(),
)  # fmt: skip


@st.composite
def sequences(draw: Any) -> list[e.Event]:
    """Events that follow one another, after a registration with two ladders."""
    known, happened = folded(STARTED), list(STARTED)
    for _ in range(draw(st.integers(0, 12))):
        happened.append(next_event(known, draw))
        folded((happened[-1],), known)
    return happened


def snapshot_of(known: Holdout) -> Holdout:
    found = read_snapshot(SECRET, *written_snapshot(SECRET, known))
    assert found is not None
    return found


def assert_alike(found: Any, expected: Any) -> None:
    """Compare with the types of all that is inside, which == does not."""
    assert type(found) is type(expected)
    assert found == expected
    if is_dataclass(expected):
        for field in fields(expected):
            assert_alike(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, tuple | list):
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, dict):
        for name in expected:
            assert_alike(found[name], expected[name])


@given(sequences())
def test_a_snapshot_is_the_fold_of_the_events(happened: list[e.Event]) -> None:
    whole = folded(tuple(happened))
    assert_alike(snapshot_of(whole), whole)


@given(sequences(), st.integers(0, 20))
def test_who_goes_on_from_a_snapshot_comes_to_the_same(happened: list[e.Event], at: int) -> None:
    start = snapshot_of(folded(tuple(happened[: len(STARTED) + at])))
    assert_alike(folded(tuple(happened[len(STARTED) + at :]), start), folded(tuple(happened)))


def test_every_kind_of_event_changes_what_is_known() -> None:
    """None is passed over; those of a ladder change what is known of it."""
    known = folded(STARTED)
    folded(
        (submitted(known, 1, None, improved=True), submitted(known, 2, "fit", improved=True)), known
    )
    seen = {type(one) for one in (*STARTED, *OTHERS)}
    more = {e.Submitted, e.BatchAnnounced, e.Revealed, e.Withdrawn}
    assert seen | more == set(e.KINDS.values())
    for one in OTHERS:
        before = snapshot_of(known)
        after = folded((one,), snapshot_of(known))
        same = replace(after, length=before.length, head=before.head, more=before.more)
        quiet = isinstance(one, e.AccountsMoved | e.TakenOut) or one == e.SharingCounted(
            other=2, rows=0
        )
        assert (same == before) == quiet, one


# What is raw


@given(sequences())
def test_nothing_raw_is_in_a_fold_or_a_snapshot(happened: list[e.Event]) -> None:
    """What a query of the reserve measured is left out as well; what it showed is there."""
    known = folded(tuple(happened))
    body, _ = written_snapshot(SECRET, known)
    for text in (body.decode(), repr(known)):
        assert str(RAW) not in text


# What does not follow


@pytest.mark.parametrize(
    "wrong",
    [
        e.Revealed(ladder=9, submission=1),
        e.Opened(ladder=9, time=MOMENT),
        e.VaultSet(view=9, path=None, digest=None),
        e.RoundClosed(
            home=2, number=1, until=9, batch="b", submissions=1, accounts=1, improved=0, best=None,
            time=MOMENT,
        ),
        e.LadderStarted(ladder=3, settings=settings_of("x"), state={}, time=MOMENT),
        e.Withdrawn(
            ladder=1, number=1, reason="", time=MOMENT, until=1, replaced=True, incumbent=5,
            again=False,
        ),
    ],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_an_event_that_cannot_follow_is_damage(wrong: e.Event) -> None:
    with pytest.raises(e.Damaged):
        folded((wrong,), folded(STARTED))


@pytest.mark.parametrize("changed", [{"number": 2}, {"query": 2}, {"number": 0}, {"state": None}])
def test_a_submission_out_of_turn_is_damage(changed: dict[str, Any]) -> None:
    known = folded(STARTED)
    with pytest.raises(e.Damaged):
        folded((submitted(known, 1, None, improved=True, **changed),), known)


# A snapshot that is not as it was written


@pytest.mark.parametrize("secret", [b"", b"another"])
def test_a_snapshot_under_another_secret_is_none(secret: bytes) -> None:
    assert read_snapshot(secret, *written_snapshot(SECRET, folded(STARTED))) is None


def test_a_snapshot_of_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may know less, and what it does not know would be as if it had not happened."""
    snapshot = written_snapshot(SECRET, folded(STARTED))
    assert read_snapshot(SECRET, *snapshot) is not None
    monkeypatch.setattr(log, "version", lambda _: "0.0")
    assert read_snapshot(SECRET, *snapshot) is None


def test_a_snapshot_of_another_layout_is_none() -> None:
    """Its code is right."""
    body, _ = written_snapshot(SECRET, folded(STARTED))
    stored = json.loads(body)
    for other in ({**stored, "length": "x"}, {**stored, "head": None}, [stored], None):
        text = json.dumps(other).encode()
        assert read_snapshot(SECRET, text, log.snapshot_code(SECRET, text)) is None
    for cells in ((None, b""), (b"", "x"), (7, 7), (body.decode(), body)):
        assert read_snapshot(SECRET, *cells) is None
