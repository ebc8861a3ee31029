"""Predictions that are answered in one transaction: by several metrics, in a batch, in a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import HoldoutConflict, InvalidArgument, InvalidSubmission, MetricError
from ladderholdout.guard import containment, seen, views
from ladderholdout.guard.certificate import ALONE
from ladderholdout.guard.open_ladder import Origin, Predictions
from ladderholdout.guard.submit import Answer, Guard, LedgerLadder, Measured, refuse_beyond
from ladderholdout.ledger import arrays, events, fold, log, postgres
from ladderholdout.ledger.place import Access
from ladderholdout.ledger.transaction import Asked, Transaction

Placed: TypeAlias = tuple[Any, NDArray[np.intp] | None]
"""Predictions for each row, and the order of the caller's rows, in which they are; None for that
of the guard's rows."""

Sets: TypeAlias = Mapping[int, tuple[Guard, list[Measured]]]
"""What was measured for each ladder of a holdout, by its number."""

Answers: TypeAlias = Mapping[int, list[Answer]]
"""The answers by ladder, in the order of the sets."""


def judge_all(
    tx: Transaction, home: fold.LadderRecord, sets: Sets, metrics: Sequence[str] = ()
) -> Answers | None:
    """Answer what was measured for ladders of one holdout; None where labels were amended since.

    Parameters
    ----------
    tx : Transaction
    home : LadderRecord
        One that is held. How many queries an announced batch has is put on record there, unless
        all of it was submitted before.
    sets : Sets
    metrics : sequence of str
        The names of the ladders' metrics, where members at one place are one submission to all.
    """
    known, size = tx.hold(home.holdout_id), 0
    records, orders = {home.id: home}, {}
    for number, (guard, measured) in sets.items():
        if measured[0].labelled.version != known.labels_version:
            return None
        if number != home.id:
            if not tx.db.answers_at_once:
                tx.send_ahead(number, measured[0].asked)
            records[number] = tx.ladder(number, guard.ladder.created)
    # Each ladder numbers the members of an announced batch in an order of its own.
    for number, (guard, measured) in sets.items():
        orders[number] = list(range(len(measured)))
        if measured[0].origin.announced:
            orders[number], queries = guard.best_first(tx, records[number], measured)
            size += queries
    if size:
        fold.refuse_retired(known.name, known.retired)
        (batch,) = {measured[0].origin.batch for _, measured in sets.values()}
        assert batch is not None
        tx.add(home.holdout_id, events.BatchAnnounced(ladder=home.id, batch=batch, size=size))
    answers = {}
    for number, (guard, measured) in sets.items():
        ladder, answer, by_index = records[number], None, dict[int, Answer]()
        for index in orders[number]:
            member, more = measured[index], len(by_index) + 1 < len(measured)
            if metrics:
                numbers = {
                    name: records[other].submissions + 1 + orders[other].index(index)
                    for other, name in zip(sets, metrics, strict=True)
                }
                context = {**member.origin.context, views.TOGETHER: numbers}
                member = replace(member, origin=replace(member.origin, context=context))
            answer = by_index[index] = guard.judge(tx, ladder, member, answer, more=more)
            ladder = answer.ladder
            tx.remember(ladder.id, member.asked, answer.first)
        answers[number] = [by_index[index] for index in range(len(measured))]
    return answers


@contextmanager
def naming(metric: str) -> Iterator[None]:
    """Name one of several metrics in a refusal of predictions."""
    try:
        yield
        return
    except InvalidSubmission as refused:
        if metric == ALONE:
            raise
        argument, *rest = refused.args
        error = InvalidSubmission(f"{argument} for {metric!r}", *rest)
    raise error


def answered(
    guards: Mapping[str, Guard], sets: Sequence[Predictions], origins: Sequence[Origin]
) -> list[tuple[Answer, ...]]:
    """Judge sets of predictions on the ladders of one or several metrics, in one transaction.

    All answers are in the ledger before it returns, or none: what one metric refuses goes to none.

    Parameters
    ----------
    guards : mapping of str to Guard
        The guard of each metric; `ALONE` names the one of a holdout of one metric.
    sets : sequence of Predictions
        Of shape (n,) or (n, n_classes).
    origins : sequence of Origin
        An announced batch is judged with its best member first (`Guard.best_first`).

    Returns
    -------
    list of tuple of Answer
        One for each metric, in the order of the guards; those in the order of the sets.
    """
    lead, metrics = next(iter(guards.values())), () if ALONE in guards else tuple(guards)
    course = None if len(guards) > 1 or origins[0].announced else lead.course
    write = lead.ledger.transact

    def judge(
        of_each: Sets, asked: Sequence[Asked], left: fold.Head | None, tx: Transaction
    ) -> tuple[Answers | None, fold.Head, fold.Head]:
        home = tx.locked_ladder(lead.ladder.id, lead.ladder.created, asked=asked, left=left)
        before = tx.ends[home.holdout_id]
        return judge_all(tx, home, of_each, metrics), before, tx.ends[home.holdout_id]

    # A rule may measure once more, with other weights, so it steps under this as well.
    with containment.without_autologging():
        while True:
            of_each = {guard.ladder.id: (guard, list[Measured]()) for guard in guards.values()}
            for given, origin in zip(sets, origins, strict=True):
                for number, (name, guard) in enumerate(guards.items(), 1):
                    # Of several metrics a place in a batch represents one model and one of them:
                    # so the price of a place pays for the choice of both.
                    place = origin.place and (origin.place - 1) * len(guards) + number
                    with naming(name):
                        own = replace(origin, place=place)
                        member = guard.measure(given.values[name], own, given.order)
                    of_each[guard.ladder.id][1].append(member)
            asked = [member.asked for member in of_each[lead.ladder.id][1]]
            done = None
            if course and course.alone and course.left:
                known = [each._replace(first=course.firsts.get(each.digest)) for each in asked]
                with suppress(postgres.Stale):
                    done = write(partial(judge, of_each, known, course.left), Access.LADDER)
            # Where there is a reserve, rounds that agree on all other rows are asked for one by
            # one.
            ahead = asked if lead.holdout.reserve is None or len(asked) == 1 else ()
            answers, *ends = done or write(partial(judge, of_each, ahead, None), Access.LADDER)
            if answers is not None:
                if course:
                    course.note(answers[lead.ladder.id], asked, *ends)
                return list(zip(*answers.values(), strict=True))
            for guard in guards.values():  # labels were amended meanwhile
                guard.reload()


# -- rounds of a leaderboard: collected, then answered together as one announced batch ----------


def collect(
    home: LedgerLadder, guard: Guard, account: str, placed: Placed, origin: Origin
) -> tuple[fold.Rounds, int]:
    """Let predictions wait for their round, or refuse them; return it, and how many wait.

    Parameters
    ----------
    home : LedgerLadder
        That which holds the rules of the board.
    guard : Guard
        Of the ladder that will answer.
    account : str
    placed, origin
        As `Guard.measure` takes them; they are read now, and measured when the round is closed.
    """
    seen.settle()
    with containment.without_frames, containment.without_autologging():
        aligned, key = guard.aligned(*placed), origin.key

        def wait(tx: Transaction, record: fold.LadderRecord) -> tuple[fold.Rounds, int]:
            known = tx.hold(record.holdout_id)
            rounds = known.rounds.get(record.id)
            if rounds is None:
                raise HoldoutConflict("This leaderboard answers at once, and has no rounds.")
            ladder = record if guard.ladder.id == record.id else tx.ladder(guard.ladder.id)
            waits = ((one.event.ladder, one.event.key) for one in rounds.waiting)
            # A retry of what waits, or was answered by then, is no new submission.
            if key is None or not ((ladder.id, key) in waits or tx.found(ladder.id, "key", key)):
                refuse_beyond(tx, ladder, origin.per_day, (record, account))
                fold.refuse_retired(known.name, known.retired)
                collected = events.Collected(
                    home=record.id,
                    ladder=ladder.id,
                    account=account,
                    key=key,
                    context=dict(origin.context),
                    **tx.beside(record.holdout_id, predictions=arrays.packed(aligned)),
                    time=log.now(),
                )
                tx.add(record.holdout_id, collected)
            return rounds, known.rounds[record.id].counts.get(account, 0)

        return home.write(wait)


def close_round(
    home: LedgerLadder,
    guard_of: Callable[[fold.LadderRecord], Guard],
    batch: str,
    best_of: Callable[[Transaction, fold.LadderRecord], float | None],
    *,
    ranked: bool,
) -> tuple[events.RoundClosed, tuple[tuple[str, views.Release], ...]] | None:
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

    Returns
    -------
    record : RoundClosed
    releases : tuple of (str, Release)
        In the order in which the submissions came, each with its account.
    """
    seen.settle()
    with containment.without_frames, containment.without_autologging():
        while True:
            waits, ladders = home.read(_waiting)
            if not waits:
                return None
            numbers = dict.fromkeys(wait.event.ladder for wait, _ in waits)
            guards = {number: guard_of(ladders[number]) for number in numbers}
            sets, measured = dict[int, tuple[Guard, list[Measured]]](), list[fold.Waiting]()
            failed: list[Exception] = []
            for wait, predictions in waits:
                guard, event = guards[wait.event.ladder], wait.event
                origin = Origin(
                    batch=batch,
                    place=len(measured) + 1,
                    announced=True,
                    key=event.key,
                    context=event.context,
                    account=event.account if ranked else None,
                )
                try:
                    values = guard.metric.as_submitted(predictions, guard.holdout.classes)
                    # What waited is in the order of the content.
                    member = guard.measure(values, origin, np.arange(guard.holdout.n))
                except (MetricError, InvalidArgument) as error:
                    failed += [error] * (not isinstance(error, InvalidSubmission))
                    continue
                member = replace(member, time=event.time, waited=wait)
                sets.setdefault(event.ladder, (guard, []))[1].append(member)
                measured.append(wait)
            if failed and not measured:
                raise MetricError(
                    f"{failed[0]} So it was with all that waits, and no round was closed: close it "
                    "once the metric works, or take an account out, with take_out() or "
                    "ladder-holdout close-round --take-out."
                )
            kept = [wait for wait, _ in waits]
            closed = home.write(partial(_close, kept, measured, sets, batch, best_of))
            if closed is not None:
                record, answers = closed
                each = {
                    number: iter([guards[number].take_note(answer) for answer in of_ladder])
                    for number, of_ladder in answers.items()
                }
                collected = [wait.event for wait in measured]
                return record, tuple((it.account, next(each[it.ladder])) for it in collected)
            for guard in guards.values():  # labels were amended meanwhile, or it was closed
                guard.reload()


def _waiting(
    tx: Transaction, home: fold.LadderRecord
) -> tuple[list[tuple[fold.Waiting, NDArray[Any]]], dict[int, fold.LadderRecord]]:
    """Return what waits, with its predictions, and the ladders of the holdout."""
    rounds = tx.fold(home.holdout_id).rounds.get(home.id)
    waits = () if rounds is None else rounds.waiting
    pieces = ((wait, tx.piece(home.holdout_id, wait.position, "predictions")) for wait in waits)
    kept = [(wait, arrays.unpacked(content)) for wait, content in pieces]
    return kept, {ladder.id: ladder for ladder in tx.ladders(home.holdout_id)}


def _close(
    waits: list[fold.Waiting],
    measured: list[fold.Waiting],
    sets: Sets,
    batch: str,
    best_of: Callable[[Transaction, fold.LadderRecord], float | None],
    tx: Transaction,
    home: fold.LadderRecord,
) -> tuple[events.RoundClosed, Answers] | None:
    """Answer a round; None where labels were amended or it was closed meanwhile."""
    rounds = tx.hold(home.holdout_id).rounds[home.id]
    if rounds.waiting[: len(waits)] != tuple(waits):
        return None
    answers = judge_all(tx, home, sets)
    if answers is None:
        return None
    without = [wait for wait in waits if wait not in measured]
    left_out = sorted([*rounds.taken_out, *without], key=lambda wait: wait.position)
    closed = events.RoundClosed(
        home=home.id,
        number=rounds.number,
        until=waits[-1].position,
        batch=batch,
        submissions=len(measured),
        accounts=len({wait.event.account for wait in measured}),
        improved=sum(one.release.improved for each in answers.values() for one in each),
        best=best_of(tx, tx.ladder(home.id)),
        left_out=tuple(wait.event.account for wait in left_out),
        time=log.now(),
    )
    tx.add(home.holdout_id, closed)
    return closed, answers
