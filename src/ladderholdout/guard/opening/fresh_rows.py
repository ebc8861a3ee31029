"""Fresh rows for a holdout that is used up: a new block, which takes the place of the last one.

A block is a record of its own, with its rows, its secret, its ladders and its chain, so what
measures, certifies and replays knows nothing of blocks. `docs/background/fresh_rows.md` shows why
what was released about earlier blocks costs nothing on a new one, and what breaks that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout import identity as fp
from ladderholdout.arguments import inside
from ladderholdout.errors import InvalidArgument, OverlapError, OverlapWarning, VaultError, warn
from ladderholdout.guard.containment import without_autologging
from ladderholdout.guard.open_ladder import FreshRows
from ladderholdout.guard.opening.columns import check_columns, in_order_of
from ladderholdout.guard.opening.registration import (
    Opened,
    check_groups,
    judge_overlap,
    recognise,
    start,
)
from ladderholdout.guard.opening.reserved_rows import (
    Draws,
    check_parts,
    reserve_of,
    warn_of_copies,
    warn_of_narrow_range,
    warn_of_slips,
)
from ladderholdout.guard.opening.settings import (
    groups_of,
    ids_of,
    metric_settings,
    rows_of,
)
from ladderholdout.guard.opening.shared_rows import Given, dated, shared_with
from ladderholdout.guard.opening.stored_rows import (
    Copies,
    first_view,
    folder_of,
    groups_on_record,
    pieces_of,
    read_kept,
)
from ladderholdout.ledger.events import LadderSettings, RoundsBegun
from ladderholdout.ledger.fold import HoldoutRecord, LadderRecord, refuse_waiting
from ladderholdout.ledger.log import now
from ladderholdout.ledger.rules import rules_of, state_to, stored_metric
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import KnownRows, Transaction, same_ladder
from ladderholdout.mechanisms.defaults import default_mechanism
from ladderholdout.metrics import Metric
from ladderholdout.metrics.metric import check_range
from ladderholdout.vault import Rows
from ladderholdout.vault.remote import is_url

Bools: TypeAlias = NDArray[np.bool_]

# So many rows are named by their places where they are refused, and so many blocks are read.
_NAMED, _LOOKED_INTO = 5, 10


@dataclass(frozen=True, slots=True, eq=False)
class _Going:
    """What the ladders of the block before need to go on with fresh rows."""

    before: HoldoutRecord
    record: HoldoutRecord
    given: Given
    order: NDArray[Any]
    # How many draws the ladders of either block measure: groups where whole groups were drawn.
    draws: tuple[int, int]
    # The metrics whose ranges were checked.
    seen: set[str] = field(default_factory=set)


def add_block(
    ledger: Ledger,
    ladders: Mapping[int, tuple[datetime, Metric]],
    fresh: FreshRows,
    overlap: str,
    held: Rows,
) -> tuple[Rows, Opened]:
    """Register fresh rows as the newest block of a holdout, with all of its ladders.

    All of it is one transaction: whatever is refused, and whoever is killed, leaves the block
    before in its place.

    Parameters
    ----------
    ledger : Ledger
    ladders : mapping of int to (datetime, Metric)
        Ladders of the block before, by their ids: when each was started, and its metric, of whose
        function the ledger knows nothing where it is the user's own.
    fresh : FreshRows
    overlap : str
        As the user stated it; "auto" refuses any row that is known.
    held : Rows
        Those of the block before, in the view that the caller has.

    Returns
    -------
    Rows
        The fresh rows.
    Opened
        With the ladders that follow those, in their order.
    """
    if fresh.reserve is not None:
        inside("reserve", fresh.reserve, what="a share of the rows")
    X, _, ids = ids_of(fresh.X, fresh.ids)
    X, groups = groups_of(X, fresh.groups)
    rows = rows_of(in_order_of(X, held.X), fresh.y, fresh.sample_weight)
    check_groups(rows, groups)
    repeated = ids is not None and len(np.unique(ids)) < len(ids)
    given = Given(rows, fp.row_hashes(rows.X), None if repeated else ids, groups)
    _refuse_trained(given, fresh.training)
    policy = "error" if overlap == "auto" else overlap
    with Copies() as copies, ledger.write() as tx:
        (holdout_id,) = {
            same_ladder(tx.ladder(ladder_id), since).holdout_id
            for ladder_id, (since, _) in ladders.items()
        }
        name = tx.newest(holdout_id).name
        before, known = tx.holdout(holdout_id), tx.known(holdout_id)
        _check_names(before, given, known)
        shared = _refuse_seen(tx, given, name, policy)
        shared |= _refuse_moved(tx, given, (held, before), overlap, {*shared})
        check_columns(rows.X, held.X)
        warn_of_slips(before, rows, len(given.hashes))
        passed = tx.pass_on(holdout_id)
        new, order, contents = start(tx, given, name, before.confidence, before.estimand, *passed)
        for other_id, count in shared.items():
            tx.note_overlap(new, f"the holdout {tx.holdout(other_id).name}", count)
        record = tx.holdout(new)
        earlier, draws = Draws.on_record(tx, before), Draws.of(groups, order, record)
        if fresh.reserve is not None:
            count = reserve_of(draws, None, fresh.reserve)
        elif before.n_reserve:
            share = 1.0 - earlier.of_ladders(before) / len(earlier)
            count = min(max(1, round(len(draws) * share)), len(draws) - 1)
        else:
            count = 0
        if count:
            record = draws.set_reserve(tx, record, order, count)
        if before.classes is not None:
            record = tx.set_classes(new, before.classes)
        counts = earlier.of_ladders(before), draws.of_ladders(record)
        going = _Going(before, record, given, order, counts)
        metrics = [metric for _, metric in ladders.values()]
        started = {
            ladder.id: _go_on(tx, going, ladder, _metric_of(ladder.settings, metrics))
            for ladder in tx.ladders(holdout_id)
        }
        by_id = {earlier: ladder.id for earlier, (ladder, _) in started.items()}
        tx.hand_over(holdout_id, new, by_id)
        for ladder in tx.ladders(holdout_id):
            _carry_over(tx, ladder, started[ladder.id][0])
        for by in tx.fold(holdout_id).grouped():
            tx.note_grouped(new, by)
        if widths := tx.fold(holdout_id).spent_at:
            tx.note(new, "spent", widths=widths)
        warn_of_copies(name, given.hashes, rows, contents, groups)
        view = first_view(record, given.hashes, order)
        # Last, for a file is not undone with the transaction.
        folder = folder_of(before.vault_path)
        path = copies.keep(tx, record, view, rows, folder, foreign=False)
        pieces = pieces_of(record.secret, rows, given.hashes, given.ids, groups, order)
        tx.fill(new, *pieces)
        in_order = groups_on_record(tx.known(new), record.estimand)
        opened = Opened(
            tx.holdout(new),
            tuple(started[ladder_id] for ladder_id in ladders),
            view.number,
            path,
            given.hashes,
            order.astype(np.intp, copy=False),
            False,
            in_order,
        )
    return rows, opened


def _carry_over(tx: Transaction, before: LadderRecord, after: LadderRecord) -> None:
    """Let a leaderboard go on with its rounds and its teams; what waits is refused."""
    known = tx.fold(before.holdout_id)
    rounds = known.rounds.get(before.id)
    if rounds is not None:
        refuse_waiting(rounds, before.settings.name)
        begun = RoundsBegun(ladder=after.id, hours=rounds.hours, time=now())
        tx.add(after.holdout_id, begun)
    for _, noted in known.noted:
        if noted.ladder == before.id and noted.what in ("merged", "left"):
            tx.note(after.holdout_id, noted.what, after.id, **noted.detail)


def _check_names(before: HoldoutRecord, given: Given, known: KnownRows) -> None:
    """Refuse rows without the ids, groups or weights that those of the holdout have had so far."""
    so_far = f"as for the rows of {before.name!r} so far"
    if known.weight_digests is not None and given.rows.sample_weight is None:
        raise InvalidArgument(
            "sample_weight",
            f"stated, {so_far}",
            "missing",
            "Give ones where each of the fresh rows counts alike.",
        )
    if known.ids is not None and given.ids is None:
        raise InvalidArgument(
            "ids",
            f"stated, {so_far}, a distinct one for each row",
            "missing or with repeats",
            "By them it is known that no row was in an earlier block.",
        )
    if known.ids is not None and given.ids is not None:
        fp.check_kinds(given.ids, known.ids, "ids")
    if before.estimand is not None and given.groups is None:
        raise InvalidArgument(
            "groups",
            f"stated, {so_far}",
            "missing",
            "Name the group of each row, or the column that has it.",
        )
    if before.estimand is None and given.groups is not None:
        raise InvalidArgument(
            "groups",
            f"left out, {so_far}",
            "stated",
            "Register rows in groups under a name of their own, LadderHoldout(X, y, groups=...).",
        )


def _metric_of(settings: LadderSettings, known: Sequence[Metric]) -> Metric:
    """Return the metric of a ladder, with its function where the caller has it."""
    asked = settings.metric, settings.metric_settings
    same = (metric for metric in known if (metric.name, metric_settings(metric)) == asked)
    return next(same, None) or stored_metric(settings)


def _go_on(
    tx: Transaction, going: _Going, ladder: LadderRecord, metric: Metric
) -> tuple[LadderRecord, Metric]:
    """Start a ladder of the block before on the fresh rows; return it with its metric."""
    rows = going.given.rows
    settings = _settings_now(going, ladder.settings, metric)
    classes = metric.classes_of(rows.y, going.before.classes) if metric.is_classification else None
    metric = metric.for_classes(classes)
    reserve = going.record.reserve
    reserve = None if reserve is None else reserve[fp.inverse(going.order)]
    if rows.sample_weight is not None and rules_of(settings).mechanism.flags_alone:
        allowed = f"left out, for {settings.mechanism} takes no weights"
        raise InvalidArgument("sample_weight", allowed, "stated")
    with without_autologging():
        check_range(metric.stated_targets, metric.targets(rows.labels, classes))
        check_parts(metric, rows, classes, reserve)
        if (described := f"{settings.metric} {settings.metric_settings}") not in going.seen:
            going.seen.add(described)
            warn_of_narrow_range(metric, rows, reserve)
    state = state_to(rules_of(settings).start(going.record.n_ladder))
    return tx.add_ladder(going.record.id, settings, state), metric


def _settings_now(going: _Going, settings: LadderSettings, metric: Metric) -> LadderSettings:
    """Return the settings of a ladder on the fresh rows: as they were, but for default steps.

    Where nobody stated a rule, its steps are those for as many rows as there are now.
    """
    reserved = going.record.n_reserve > 0
    sizes = going.before.n_ladder, going.record.n_ladder
    earlier, now = (
        default_mechanism(metric, n if metric.is_mean else draws, reserved=reserved)
        for n, draws in zip(sizes, going.draws, strict=True)
    )
    if (settings.mechanism, settings.mechanism_settings) != (earlier.name, earlier.settings()):
        return settings
    return replace(settings, mechanism=now.name, mechanism_settings=now.settings())


# -- rows that are not fresh --------------------------------------------------------------


def _refuse_seen(tx: Transaction, given: Given, name: str, policy: str) -> dict[int, int]:
    """Refuse rows that the ledger knows: something was released about them, or may be.

    Returns
    -------
    dict of int to int
        By the holdout that has such rows how many, if the policy lets them pass.
    """
    match = recognise(tx, given)
    if match is not None:
        raise OverlapError(
            f"These rows are {dated(match.record)}, known {match.how}. Fresh rows are those that "
            f"no holdout has had. {name!r} stays as it was."
        )
    _refuse_groups(tx, given, name)
    passed = {}
    for shared in shared_with(tx, given):
        known = [view.row_hashes for view in tx.views(shared.known.id)]
        seen = np.isin(given.hashes, np.concatenate(known))
        ids = tx.known(shared.known.id).ids
        if given.ids is not None and ids is not None:
            seen |= np.isin(fp.by_value(given.ids), fp.by_value(ids))
        if not seen.any():  # known by the labels alone, in their order
            seen[:] = True
        message = f"{_places(seen)} are rows of {shared.known.name!r} already, and what was "
        message += "released about those is known."
        if policy == "error":
            raise OverlapError(
                f"{message} Leave them out: they are not fresh. If these are other rows that "
                'happen to be equal, open the holdout with overlap="warn": certificates then count '
                f"what was released of both. {name!r} stays as it was."
            )
        if policy != "ignore":
            warn(f"{message} Certificates count it.", OverlapWarning)
        passed[shared.known.id] = int(seen.sum())
    return passed


def _refuse_moved(
    tx: Transaction,
    given: Given,
    held: tuple[Rows, HoldoutRecord],
    overlap: str,
    known: set[int],
) -> dict[int, int]:
    """Refuse rows of any block in other columns; of rows that are nearly those warn, up to half.

    Blocks before the last are looked into where a copy of their rows is here, the newest ten.
    """
    name, passed = held[1].name, {}
    for rows, record in _blocks_held(tx, held):
        if record.id in known:
            continue
        seen = fp.rows_again(given.rows.X, rows.X)
        if seen.any():
            judge_overlap(
                "error" if overlap == "auto" else overlap,
                *(int(seen.sum()), len(seen)),
                f"{_places(seen)} are rows of {record.name!r} in other columns, and what was "
                "released about those is known.",
                f"Leave them out: they are not fresh. {name!r} stays as it was.",
            )
        count = int(seen.sum()) or fp.near_rows(given.rows.X, given.rows.y, rows.X, rows.y)
        if count and not seen.any():
            judge_overlap(
                *(overlap, count, len(seen)),
                f"About {count} of these {len(seen)} rows are nearly rows of {record.name!r}, as "
                "copies are that were rounded, and what was released about those is known.",
                'Leave them out, or open the holdout with overlap="warn" if these are other rows '
                f"that happen to be near. {name!r} stays as it was.",
            )
        if count:
            passed[record.id] = count
    return passed


def _blocks_held(
    tx: Transaction, held: tuple[Rows, HoldoutRecord]
) -> Iterator[tuple[Rows, HoldoutRecord]]:
    """Yield the rows of the last block, and those of earlier ones that this machine has."""
    yield held
    for block in tx.blocks(held[1].name)[:-1][-_LOOKED_INTO:]:
        kept = read_kept(tx, block.id, 1)
        if kept.view.vault_path is not None and not is_url(kept.view.vault_path):
            with suppress(VaultError):
                yield kept.rows(), kept.record


def _refuse_groups(tx: Transaction, given: Given, name: str) -> None:
    """Refuse rows of groups that an earlier block has rows of: groups are what is drawn anew."""
    if given.groups is None:
        return
    for block in tx.blocks(name):
        known = tx.known(block.id).groups
        if known is None:
            continue
        fp.check_kinds(given.groups, known, "groups")
        seen = np.isin(fp.by_value(given.groups), fp.by_value(known))
        if seen.any():
            raise OverlapError(
                f"{_places(seen)} are of groups that {block.name!r} has rows of: what was released "
                "about a group is known about its other rows too. Leave them out, or add them to "
                f"the training rows. {name!r} stays as it was."
            )


def _refuse_trained(given: Given, training: Any) -> None:
    """Refuse rows on which models were trained."""
    if training is None:
        return
    training = in_order_of(training, given.rows.X)
    seen: Bools = np.isin(given.hashes, fp.row_hashes(training, "training"))
    seen |= fp.rows_again(given.rows.X, training)
    if seen.any():
        raise OverlapError(
            f"{_places(seen)} are among the training rows: scores on them are not scores on "
            "unseen data. Leave them out of one of the two. The holdout stays as it was."
        )


def _places(seen: Bools) -> str:
    """Return how many rows there are, and the places of the first of them, from 0."""
    places: Sequence[int] = np.flatnonzero(seen).tolist()
    listed = ", ".join(map(str, places[:_NAMED])) + (", ..." if len(places) > _NAMED else "")
    return f"{len(places)} of these {len(seen)} rows (at {listed})"
