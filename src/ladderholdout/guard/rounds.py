"""Rounds of a leaderboard: submissions are collected, then answered together as one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import HoldoutConflict, InvalidArgument, InvalidSubmission, MetricError
from ladderholdout.guard.containment import without_autologging, without_frames
from ladderholdout.guard.open_ladder import Origin
from ladderholdout.guard.seen import settle
from ladderholdout.guard.submit import (
    Answer,
    Guard,
    LedgerLadder,
    Measured,
    Placed,
    judge_all,
    refuse_beyond,
)
from ladderholdout.guard.views import Release
from ladderholdout.ledger import arrays
from ladderholdout.ledger.events import Collected, RoundClosed
from ladderholdout.ledger.fold import LadderRecord, Rounds, Waiting, refuse_retired
from ladderholdout.ledger.log import now
from ladderholdout.ledger.transaction import Transaction

GuardOf: TypeAlias = Callable[[LadderRecord], Guard]
BestOf: TypeAlias = Callable[[Transaction, LadderRecord], float | None]
_Waits: TypeAlias = Sequence[tuple[Waiting, NDArray[Any]]]


Answered: TypeAlias = tuple[RoundClosed, tuple[tuple[str, Release], ...]]
"""A round that was closed, and the releases in the order in which the submissions came, each with
its account."""


def collect(
    home: LedgerLadder,
    guard: Guard,
    account: str,
    placed: Placed,
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
            ladder = record if guard.ladder.id == record.id else tx.ladder(guard.ladder.id)
            # A retry of what waits, or was answered by then, is no new submission.
            if origin.key is None or not _knows(tx, rounds, ladder, origin.key):
                refuse_beyond(tx, ladder, origin.per_day, (record, account))
                refuse_retired(known.name, known.retired)
                collected = Collected(
                    home=record.id,
                    ladder=ladder.id,
                    account=account,
                    key=origin.key,
                    context=dict(origin.context),
                    **tx.beside(record.holdout_id, predictions=arrays.packed(aligned)),
                    time=now(),
                )
                tx.add(record.holdout_id, collected)
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
            answered = _answered(home, waits, guards, batch, best_of, ranked=ranked)
            if answered is not None:
                return answered
            for guard in guards.values():
                guard.reload()


def _answered(
    home: LedgerLadder,
    waits: _Waits,
    guards: Mapping[int, Guard],
    batch: str,
    best_of: BestOf,
    *,
    ranked: bool,
) -> Answered | None:
    """Answer a round; None where labels were amended or it was closed meanwhile."""
    sets: dict[int, tuple[Guard, list[Measured]]] = {}
    measured: list[Waiting] = []
    failed: list[MetricError | InvalidArgument] = []
    for wait, predictions in waits:
        guard, holdout = guards[wait.event.ladder], guards[wait.event.ladder].holdout
        origin = Origin(
            batch=batch,
            place=len(measured) + 1,
            announced=True,
            key=wait.event.key,
            context=wait.event.context,
            account=wait.event.account if ranked else None,
        )
        try:
            values = guard.metric.as_submitted(predictions, holdout.classes)
            # What waited is in the order of the content.
            member = guard.measure(values, origin, np.arange(holdout.n))
        except (MetricError, InvalidArgument) as error:
            failed += [error] * (not isinstance(error, InvalidSubmission))
            continue
        member = replace(member, time=wait.event.time, waited=wait)
        sets.setdefault(wait.event.ladder, (guard, []))[1].append(member)
        measured.append(wait)
    if failed and not measured:
        raise MetricError(
            f"{failed[0]} So it was with all that waits, and no round was closed: close it "
            "once the metric works, or take an account out, with take_out() or "
            "ladder-holdout close-round --take-out."
        )

    def judge(
        tx: Transaction, home: LadderRecord
    ) -> tuple[RoundClosed, dict[int, list[Answer]]] | None:
        rounds = tx.hold(home.holdout_id).rounds[home.id]
        if rounds.waiting[: len(waits)] != tuple(wait for wait, _ in waits):
            return None
        judged = judge_all(tx, home, sets)
        if judged is None:
            return None
        answers = judged[0]
        without = [wait for wait, _ in waits if wait not in measured]
        left_out = sorted([*rounds.taken_out, *without], key=lambda wait: wait.position)
        closed = RoundClosed(
            home=home.id,
            number=rounds.number,
            until=waits[-1][0].position,
            batch=batch,
            submissions=len(measured),
            accounts=len({wait.event.account for wait in measured}),
            improved=sum(one.release.improved for each in answers.values() for one in each),
            best=best_of(tx, tx.ladder(home.id)),
            left_out=tuple(wait.event.account for wait in left_out),
            time=now(),
        )
        tx.add(home.holdout_id, closed)
        return closed, answers

    judged = home.write(judge)
    if judged is None:
        return None
    record, answers = judged
    releases = {
        number: iter([guards[number].take_note(answer) for answer in of_ladder])
        for number, of_ladder in answers.items()
    }
    return record, tuple(
        (wait.event.account, next(releases[wait.event.ladder])) for wait in measured
    )


def _knows(tx: Transaction, rounds: Rounds, ladder: LadderRecord, key: str) -> bool:
    """Return whether a submission under a key waits, or was answered."""
    waits = any((one.event.ladder, one.event.key) == (ladder.id, key) for one in rounds.waiting)
    return waits or bool(tx.found(ladder.id, "key", key))


def _waiting(tx: Transaction, home: LadderRecord) -> tuple[_Waits, dict[int, LadderRecord]]:
    rounds = tx.fold(home.holdout_id).rounds.get(home.id)
    waits = () if rounds is None else rounds.waiting
    stored = ((one, tx.piece(home.holdout_id, one.position, "predictions")) for one in waits)
    kept = [(one, arrays.unpacked(content)) for one, content in stored]
    return kept, {ladder.id: ladder for ladder in tx.ladders(home.holdout_id)}
