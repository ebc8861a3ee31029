"""Rounds of a leaderboard: submissions are collected, then answered together as one batch."""

from __future__ import annotations

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
from ladderholdout.ledger import Asked, LadderRecord, Transaction
from ladderholdout.ledger.rounds import CollectedRecord, RoundRecord, RoundsRecord

GuardOf: TypeAlias = Callable[[LadderRecord], Guard]
BestOf: TypeAlias = Callable[[Transaction, LadderRecord], float | None]


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """A round that was closed, with the answers in the order in which the submissions came.

    Attributes
    ----------
    record : RoundRecord
    releases : tuple of (str, Release)
        Each with its account.
    """

    record: RoundRecord
    releases: tuple[tuple[str, Release], ...]


def collect(
    home: LedgerLadder,
    guard: Guard,
    account: str,
    placed: tuple[Any, NDArray[np.intp] | None],
    origin: Origin,
) -> tuple[RoundsRecord, int]:
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

        def wait(tx: Transaction, record: LadderRecord) -> tuple[RoundsRecord, int]:
            rounds = tx.rounds.of(record)
            if rounds is None:
                raise HoldoutConflict("This leaderboard answers at once, and has no rounds.")
            ladder = record if guard.ladder_id == record.id else tx.ladder(guard.ladder_id)
            # A retry of what waits, or was answered by then, is no new submission.
            if origin.key is None or not tx.rounds.knows(record, ladder, origin.key):
                refuse_beyond(tx, ladder, origin.per_day, (record, account))
                tx.rounds.wait(record, ladder, account, origin.key, origin.context, aligned)
            return rounds, tx.rounds.counts(record).get(account, 0)

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
            guards = {ladder_id: guard_of(ladders[ladder_id]) for ladder_id in _ladders(waits)}
            members: dict[int, list[Measured]] = {}
            measured: list[CollectedRecord] = []
            failed: list[MetricError | InvalidArgument] = []
            for wait in waits:
                origin = Origin(
                    batch=batch,
                    place=len(measured) + 1,
                    announced=True,
                    key=wait.key,
                    context=wait.context,
                    account=wait.account if ranked else None,
                )
                try:
                    one = _measured(guards[wait.ladder_id], wait, origin)
                except (MetricError, InvalidArgument) as error:
                    failed += [error] * (not isinstance(error, InvalidSubmission))
                    continue
                members.setdefault(wait.ladder_id, []).append(one)
                measured.append(wait)
            if failed and not measured:
                raise MetricError(
                    f"{failed[0]} So it was with all that waits, and no round was closed: close it "
                    "once the metric works, or take an account out, with take_out() or "
                    "ladder-holdout close-round --take-out."
                )
            body = partial(
                _judged,
                waits=waits,
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
        releases = tuple((wait.account, next(taken[wait.ladder_id])) for wait in measured)
        return Answered(record, releases)


def _waiting(
    tx: Transaction, home: LadderRecord
) -> tuple[tuple[CollectedRecord, ...], dict[int, LadderRecord]]:
    ladders = {ladder.id: ladder for ladder in tx.ladders(home.holdout_id)}
    return tx.rounds.waiting(home), ladders


def _ladders(waits: Sequence[CollectedRecord]) -> list[int]:
    return list(dict.fromkeys(wait.ladder_id for wait in waits))


def _measured(guard: Guard, wait: CollectedRecord, origin: Origin) -> Measured:
    """Measure what waited, which is in the order of the content."""
    holdout = guard.holdout
    values = guard.metric.as_submitted(wait.predictions, holdout.classes)
    measured = guard.measure(values, origin, np.arange(holdout.n))
    return replace(measured, time=wait.time)


def _judged(
    tx: Transaction,
    home: LadderRecord,
    *,
    waits: Sequence[CollectedRecord],
    measured: Sequence[CollectedRecord],
    guards: Mapping[int, Guard],
    members: Mapping[int, Sequence[Measured]],
    batch: str,
    best_of: BestOf,
) -> tuple[RoundRecord, dict[int, list[Answer]]] | None:
    """Answer a round; None where labels were amended or it was closed meanwhile."""
    version = tx.chains.end(home.holdout_id).labels_version
    known = tx.rounds.ids(home)[: len(waits)]
    if known != [wait.id for wait in waits] or any(
        sets[0].labelled.version != version for sets in members.values()
    ):
        return None
    asked: dict[int, list[Asked]] = {number: [] for number in members if number != home.id}
    records = {record.id: record for record in (home, *tx.locked_ladders(asked))}
    orders = {
        number: guards[number].best_first(tx, records[number], sets)
        for number, sets in members.items()
    }
    # All of them are announced batches of one name.
    size = sum(size for _, size in orders.values())
    if measured:
        announce(tx, home, members[measured[0].ladder_id][0].origin, size)
    answers = {
        number: guards[number].judge_all(tx, records[number], sets, orders[number][0])
        for number, sets in members.items()
    }
    counts = {
        "submissions": len(measured),
        "accounts": len({wait.account for wait in measured}),
        "improved": sum(one.release.improved for each in answers.values() for one in each),
        "best": best_of(tx, tx.ladder(home.id)),
    }
    made = {number: iter(of_ladder) for number, of_ladder in answers.items()}
    numbers = {wait.id: next(made[wait.ladder_id]).release.submission for wait in measured}
    without = [wait.id for wait in waits if wait.id not in numbers]
    return tx.rounds.close(home, numbers, without, batch, counts), answers
