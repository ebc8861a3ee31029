"""Rounds of a leaderboard: submissions are collected, then answered together as one batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import HoldoutConflict, InvalidArgument, InvalidSubmission, MetricError
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.guard.query.seen import refuse_beyond, settle
from ladderholdout.guard.query.submission import Answer, Guard, LedgerLadder, Measured, announce
from ladderholdout.guard.shown import Release
from ladderholdout.ledger import arrays
from ladderholdout.ledger.events import Collected, RoundClosed
from ladderholdout.ledger.fold import LadderRecord, Rounds, Waiting, refuse_retired
from ladderholdout.ledger.log import now
from ladderholdout.ledger.transaction import Transaction

GuardOf: TypeAlias = Callable[[LadderRecord], Guard]
BestOf: TypeAlias = Callable[[Transaction, LadderRecord], float | None]


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """A round that was closed, with the answers in the order in which the submissions came.

    Attributes
    ----------
    record : RoundClosed
    releases : tuple of (str, Release)
        Each with its account.
    """

    record: RoundClosed
    releases: tuple[tuple[str, Release], ...]


def collect(
    home: LedgerLadder,
    guard: Guard,
    account: str,
    placed: tuple[Any, NDArray[np.intp] | None],
    origin: Origin,
) -> tuple[Rounds, int]:
    """Let predictions wait for their round, or refuse them; return it, and how many wait.

    Parameters
    ----------
    home : LedgerLadder
        That which holds the rules of the board.
    guard : Guard
        Of the ladder that will answer.
    account : str
    placed, origin
        As `Guard.submit` takes them; they are read now, and measured when the round is closed.
    """
    settle()
    with without_frames, without_autologging():
        holdout, (values, order) = guard.holdout, placed
        aligned = guard.metric.canonical(values, holdout.n, holdout.classes)
        aligned = aligned.take(guard.order if order is None else order, axis=0)

        def wait(tx: Transaction, record: LadderRecord) -> tuple[Rounds, int]:
            known = tx.hold(record.holdout_id)
            rounds = known.rounds.get(record.id)
            if rounds is None:
                raise HoldoutConflict("This leaderboard answers at once, and has no rounds.")
            ladder = record if guard.ladder_id == record.id else tx.ladder(guard.ladder_id)
            # A retry of what waits, or was answered by then, is no new submission.
            if origin.key is None or not _knows(tx, rounds, ladder, origin.key):
                refuse_beyond(tx, ladder, origin.per_day, (record, account))
                refuse_retired(known.name, known.retired)
                stored = arrays.packed(aligned)
                collected = Collected(
                    home=record.id,
                    ladder=ladder.id,
                    account=account,
                    key=origin.key,
                    context=dict(origin.context),
                    predictions=hashlib.sha256(stored).hexdigest(),
                    time=now(),
                )
                tx.add(record.holdout_id, collected, pieces={"predictions": stored})
            return rounds, known.rounds[record.id].counts.get(account, 0)

        return home.write(wait)


def close_round(
    home: LedgerLadder, guard_of: GuardOf, batch: str, best_of: BestOf, *, ranked: bool
) -> Answered | None:
    """Answer all that waits as one announced batch, in one transaction; None where nothing does.

    What cannot be measured is left out, and named in the record: it blocks nobody. If the metric
    fails on all of them, nothing is decided and they wait on.

    Parameters
    ----------
    home : LedgerLadder
    guard_of : callable
        Returns the guard of a ladder of the board.
    batch : str
        A new name.
    best_of : callable
        Returns the smallest released risk of the board's standings.
    ranked : bool
        Whether one ladder serves all accounts.
    """
    settle()
    with without_frames, without_autologging():
        while True:
            waits, ladders = home.read(_waiting)
            if not waits:
                return None
            numbers = dict.fromkeys(wait.event.ladder for wait, _ in waits)
            guards = {number: guard_of(ladders[number]) for number in numbers}
            members: dict[int, list[Measured]] = {}
            measured: list[Waiting] = []
            failed: list[MetricError | InvalidArgument] = []
            for wait, predictions in waits:
                origin = Origin(
                    batch=batch,
                    place=len(measured) + 1,
                    announced=True,
                    key=wait.event.key,
                    context=wait.event.context,
                    account=wait.event.account if ranked else None,
                )
                try:
                    one = _measured(guards[wait.event.ladder], wait, predictions, origin)
                except (MetricError, InvalidArgument) as error:
                    failed += [error] * (not isinstance(error, InvalidSubmission))
                    continue
                members.setdefault(wait.event.ladder, []).append(one)
                measured.append(wait)
            if failed and not measured:
                raise MetricError(
                    f"{failed[0]} So it was with all that waits, and no round was closed: close it "
                    "once the metric works, or take an account out, with take_out() or "
                    "ladder-holdout close-round --take-out."
                )
            body = partial(
                _judged,
                waits=[wait for wait, _ in waits],
                measured=measured,
                guards=guards,
                members=members,
                batch=batch,
                best_of=best_of,
            )
            judged = home.write(body)
            if judged is not None:
                break
            for guard in guards.values():
                guard.reload()
        record, answers = judged
        taken = {
            ladder_id: iter([guards[ladder_id].take_note(answer) for answer in of_ladder])
            for ladder_id, of_ladder in answers.items()
        }
        releases = tuple((wait.event.account, next(taken[wait.event.ladder])) for wait in measured)
        return Answered(record, releases)


def _knows(tx: Transaction, rounds: Rounds, ladder: LadderRecord, key: str) -> bool:
    """Return whether a submission under a key waits, or was answered."""
    waits = any((one.event.ladder, one.event.key) == (ladder.id, key) for one in rounds.waiting)
    return waits or bool(tx.found(ladder.id, "key", key))


def _waiting(
    tx: Transaction, home: LadderRecord
) -> tuple[list[tuple[Waiting, NDArray[Any]]], dict[int, LadderRecord]]:
    rounds = tx.fold(home.holdout_id).rounds.get(home.id)
    waits = () if rounds is None else rounds.waiting
    kept = [(one, tx.waiting_predictions(home.holdout_id, one)) for one in waits]
    return kept, {ladder.id: ladder for ladder in tx.ladders(home.holdout_id)}


def _measured(guard: Guard, wait: Waiting, predictions: NDArray[Any], origin: Origin) -> Measured:
    """Measure what waited, which is in the order of the content."""
    holdout = guard.holdout
    values = guard.metric.as_submitted(predictions, holdout.classes)
    measured = guard.measure(values, origin, np.arange(holdout.n))
    return replace(measured, time=wait.event.time, waited=wait)


def _judged(
    tx: Transaction,
    home: LadderRecord,
    *,
    waits: Sequence[Waiting],
    measured: Sequence[Waiting],
    guards: Mapping[int, Guard],
    members: Mapping[int, Sequence[Measured]],
    batch: str,
    best_of: BestOf,
) -> tuple[RoundClosed, dict[int, list[Answer]]] | None:
    """Answer a round; None where labels were amended or it was closed meanwhile."""
    known = tx.hold(home.holdout_id)
    rounds = known.rounds[home.id]
    if rounds.waiting[: len(waits)] != tuple(waits) or any(
        sets[0].labelled.version != known.labels_version for sets in members.values()
    ):
        return None
    records = {number: tx.ladder(number) for number in members}
    orders = {
        number: guards[number].best_first(tx, records[number], sets)
        for number, sets in members.items()
    }
    # All of them are announced batches of one name.
    size = sum(size for _, size in orders.values())
    if measured:
        announce(tx, home, members[measured[0].event.ladder][0].origin, size)
    answers = {
        number: guards[number].judge_all(tx, records[number], sets, orders[number][0])
        for number, sets in members.items()
    }
    without = [one for one in waits if one not in measured]
    left_out = sorted([*rounds.taken_out, *without], key=lambda one: one.position)
    closed = RoundClosed(
        home=home.id,
        number=rounds.number,
        until=waits[-1].position,
        batch=batch,
        submissions=len(measured),
        accounts=len({wait.event.account for wait in measured}),
        improved=sum(one.release.improved for each in answers.values() for one in each),
        best=best_of(tx, tx.ladder(home.id)),
        left_out=tuple(one.event.account for one in left_out),
        time=now(),
    )
    tx.add(home.holdout_id, closed)
    return closed, answers
