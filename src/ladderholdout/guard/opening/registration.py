"""Opening a holdout and a ladder on it: a holdout is its rows (promise 6)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import identity as fp
from ladderholdout.arguments import as_given, segment
from ladderholdout.certificates.group_limits import Groups
from ladderholdout.errors import (
    HoldoutConflict,
    InvalidArgument,
    KnownHoldoutWarning,
    OverlapError,
    OverlapWarning,
    UnknownHoldout,
    did_you_mean,
    warn,
)
from ladderholdout.guard.containment import without_autologging
from ladderholdout.guard.opening.reserved_rows import (
    Draws,
    check_parts,
    reserve_of,
    warn_of_copies,
    warn_of_groups,
    warn_of_narrow_range,
    warn_of_targets,
)
from ladderholdout.guard.opening.settings import (
    BETWEEN,
    HoldoutSettings,
    LadderWish,
    asked_for,
    going_on,
    parted,
    settings_for,
)
from ladderholdout.guard.opening.shared_rows import (
    Given,
    dated,
    in_other_columns,
    listed,
    shared_with,
)
from ladderholdout.guard.opening.stored_rows import (
    Copies,
    digests_of,
    first_view,
    folder_of,
    groups_on_record,
    known_digests,
    pieces_of,
    vault_folder,
)
from ladderholdout.ledger.events import LadderSettings, Registered
from ladderholdout.ledger.fold import HoldoutRecord, LadderRecord, parted_name
from ladderholdout.ledger.log import as_bytes, now
from ladderholdout.ledger.rules import rules_of, state_to
from ladderholdout.ledger.store import Ledger
from ladderholdout.ledger.transaction import KnownRows, Transaction, ViewRecord
from ladderholdout.mechanisms import mechanism_from
from ladderholdout.metrics import METRICS, Metric, get_metric
from ladderholdout.metrics.arrays import label_vector
from ladderholdout.metrics.metric import check_range
from ladderholdout.vault import Rows

IntArray: TypeAlias = NDArray[np.intp]

_REPEATED = "ids that repeat, and so identify no row"
FEW = 20
"""One label in so many may be amended, over all amendments of a holdout."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Match:
    """A holdout that some rows are.

    Attributes
    ----------
    record : HoldoutRecord
    known : KnownRows
        As it has to be from now on.
    places : ndarray of int, shape (n,)
        Of the given rows in the order of the content.
    view : ViewRecord or None
        The view that they are; None for a new one.
    how : str
        By what they are known.
    amended : ndarray of bool, shape (n,), or None
        Whose labels are others, in the order of the content.
    fills : bool
        Whether `known` has what the ledger lacked.
    """

    record: HoldoutRecord
    known: KnownRows
    places: IntArray
    view: ViewRecord | None
    how: str
    amended: NDArray[np.bool_] | None = None
    fills: bool = False


def recognise(tx: Transaction, given: Given) -> Match | None:
    """Return the holdout that these rows are, if the ledger knows it.

    Raises
    ------
    HoldoutConflict
        It does, under other weights or ids.
    """
    ways = (_by_ids, _by_content, _by_labels, _by_columns)
    return next((found for way in ways for found in way(tx, given)), None)


def _by_ids(tx: Transaction, given: Given) -> Iterator[Match]:
    if given.ids is None:
        return
    ids = fp.by_value(given.ids)
    for record in tx.of_size(len(given)):
        known = tx.known(record.id)
        to = None if known.ids is None else fp.placed(ids, fp.by_value(known.ids))
        if to is not None:
            yield from _matched(tx, given, record, known, to, "by their ids")


def _by_content(tx: Transaction, given: Given) -> Iterator[Match]:
    fingerprint = fp.fingerprint(given.hashes)
    for record in tx.with_features(fingerprint):
        known = tx.known(record.id)
        recorded = known_digests(known)
        registered, here = fp.inverse(known.places), digests_of(record.secret, given.rows)
        for view in tx.views(record.id):
            if view.fingerprint != fingerprint:
                continue
            of_view = registered[view.places]
            labels, there = here.of_pairs(), recorded.take(of_view).of_pairs()
            if given.groups is not None and known.groups is not None:
                # Rows that are equal may be of several groups.
                groups = fp.by_value(known.groups)[of_view]
                labels, there = labels + 5 * fp.by_value(given.groups), there + 5 * groups
            to = fp.counterparts(*(given.hashes, labels), *(view.row_hashes, there))
            yield from _matched(tx, given, record, known, of_view[to], "by their content")


def _by_labels(tx: Transaction, given: Given) -> Iterator[Match]:
    for record in tx.of_size(len(given)):
        known = tx.known(record.id)
        if known.labels_digest is None:
            continue
        labels = digests_of(record.secret, given.rows).labels
        if fp.sequence_digest(record.secret, labels) == known.labels_digest:
            how = "by their labels, which are the same in the same order"
            yield from _matched(tx, given, record, known, np.arange(len(given)), how)


def _by_columns(tx: Transaction, given: Given) -> Iterator[Match]:
    for record, known, to, all_columns in in_other_columns(tx, given):
        how = f"by {'all' if all_columns else 'most'} of their columns, in another place"
        for match in _matched(tx, given, record, known, to, how):
            # Other rows may share columns, such as dates: then the labels have to be known, too.
            enough = match.amended is None and fp.sequence_bits(given.rows.y) >= fp.ENOUGH_BITS
            if all_columns or enough:
                yield match


def _matched(
    tx: Transaction, given: Given, record: HoldoutRecord, known: KnownRows, to: IntArray, how: str
) -> Iterator[Match]:
    """Compare labels, weights and features, now that it is known which row is which.

    `to` has for each given row its place in the order of registration.
    """
    recorded = known_digests(known)
    back, places = fp.inverse(to), known.places[to]
    here = digests_of(record.secret, given.rows).take(back)
    differing = np.empty(len(given), dtype=bool)
    differing[known.places] = here.labels != recorded.labels
    earlier = tx.amended(record.id)
    if FEW * np.count_nonzero(differing if earlier is None else differing | earlier) > len(given):
        # Labels of something else, it may be: another holdout, that overlaps with this one.
        return
    if not here.same_weights(recorded):
        raise HoldoutConflict(
            f"These are rows of {record.name!r} with other weights than they were registered "
            "with. The weights belong to the holdout: give sample_weight= as it was then, or "
            "leave it out if it was."
        )
    ids = None if given.ids is None else given.ids[back]
    if ids is not None and known.ids is not None and not _same(ids, known.ids):
        raise HoldoutConflict(
            f"These are rows of {record.name!r}, and ids= names them otherwise than when they "
            "were registered. Give the ids that they had then, or leave ids= out."
        )
    if given.groups is not None:
        _agree_groups(record, given.groups[back], known.groups)
    fills = known.ids is None and ids is not None
    if fills:
        known = replace(known, ids=ids)
    if differing.any():
        sequence = _sequence_digest(record.secret, here.labels, given.rows.y[back])
        known = replace(known, label_digests=here.labels, labels_digest=sequence)
    yield Match(
        record=record,
        known=known,
        places=places,
        view=_view_of(tx.views(record.id), given, places),
        how=how,
        amended=differing if differing.any() else None,
        fills=fills,
    )


def _agree_groups(
    record: HoldoutRecord, given: NDArray[np.uint64], known: NDArray[np.uint64] | None
) -> None:
    """Refuse other groups than the rows were registered with, both in that order."""
    if known is None:
        raise HoldoutConflict(
            f"These are rows of {record.name!r}, which was registered without groups: what was "
            "released of it and its certificates take each row as a draw of its own. Leave groups= "
            "out to go on with that, and register fresh rows with groups= from the start."
        )
    if not _same(given, known):
        raise HoldoutConflict(
            f"These are rows of {record.name!r}, and groups= puts them into other groups, or names "
            "these otherwise, than when they were registered. Give the groups that they had then, "
            "or leave groups= out."
        )


def _same(ids: NDArray[np.uint64], others: NDArray[np.uint64]) -> bool:
    return np.array_equal(fp.by_value(ids), fp.by_value(others))


def _sequence_digest(secret: bytes, labels: NDArray[np.uint64], y: NDArray[Any]) -> bytes | None:
    """Return the digest of labels in their order; None where another one may well be equal."""
    known = fp.sequence_bits(y) >= fp.ENOUGH_BITS
    return fp.sequence_digest(secret, labels) if known else None


def _view_of(views: tuple[ViewRecord, ...], given: Given, places: IntArray) -> ViewRecord | None:
    here = given.hashes[fp.inverse(places)]
    for view in views:
        if np.array_equal(view.row_hashes[fp.inverse(view.places)], here):
            return view
    return None


CONFIDENCE = 0.95
"""The confidence of a new holdout's certificates, unless another one is stated."""


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A holdout and those of its ladders that were asked for, with which rows were given.

    `hashes` are those of the rows, kept in a vault where there is a path; `order` brings them into
    the order of the content; `foreign` is true where they came in another order than the view's.
    `groups` are in the order of the content.
    """

    holdout: HoldoutRecord
    ladders: tuple[tuple[LadderRecord, Metric], ...]
    view: int
    vault_path: str | None
    hashes: NDArray[np.uint64]
    order: NDArray[np.intp]
    foreign: bool
    groups: Groups | None


def open_rows(
    ledger: Ledger,
    rows: Rows,
    ids: NDArray[np.uint64] | None,
    wishes: Sequence[LadderWish],
    groups: NDArray[np.uint64] | None = None,
) -> Opened:
    """Find these rows and the wished ladders in the ledger, or start what is missing.

    All of it is one transaction: whatever is refused leaves nothing behind. `ids` and `groups` are
    the hashes of those that were stated, if any.
    """
    wish, stated = wishes[0], wishes[0].common
    check_groups(rows, groups)
    # Ids that repeat name groups, and no row is known by them.
    repeat_ids = ids is not None and len(np.unique(ids)) < len(ids)
    given = Given(rows, fp.row_hashes(rows.X), None if repeat_ids else ids, groups)
    with Copies() as copies, ledger.write() as tx:
        match = recognise(tx, given)
        before = known = None if match is None else match.record
        if known is not None:
            refuse_other_kind(tx, known, wish)
        ladder, metric, classes = _known_or_new(tx, known, rows, wish)
        if ladder is None and not stated.several:
            refuse_reserved_name(wish.name)
        _agree_confidence(known, stated.confidence)
        _agree_estimand(known, stated)
        draws = Draws(len(given), groups) if known is None else Draws.on_record(tx, known)
        count = reserve_of(draws, known, stated.reserve)
        if known is None:
            known, order = _register(tx, given, stated)
            draws = Draws.of(groups, order, known)
            if count:
                known = draws.set_reserve(tx, known, order, count)
        sizes = known.n_ladder, known.n_reserve, draws.of_ladders(known)
        settings = None if ladder else settings_for(wish, metric, *sizes)
        if match is None:
            view, foreign = first_view(known, given.hashes, order), False
        else:
            # Locked from here on, and compared with what this machine has seen of it.
            tx.hold(match.record.id)
            order = fp.inverse(match.places)
            view, foreign = _go_on(tx, match, given, stated.name)
            known = tx.holdout(match.record.id)
        if classes is not None and known.classes is None:
            known = tx.set_classes(known.id, classes)
        if settings is not None:
            ladder = _start_ladder(tx, known, settings, rows, metric, classes, order, wish)
        assert ladder is not None
        opened = [(ladder, metric)]
        for other in wishes[1:]:
            ladder, metric, classes = _known_or_new(tx, known, rows, other)
            if classes is not None and known.classes is None:
                known = tx.set_classes(known.id, classes)
            if ladder is None:
                settings = settings_for(other, metric, *sizes)
                ladder = _start_ladder(tx, known, settings, rows, metric, classes, order, other)
            opened.append((ladder, metric))
        if repeat_ids and known.estimand is None:
            tx.note_grouped(known.id, _REPEATED)
            warn_of_groups(_REPEATED)
        folder = vault_folder(ledger.url, stated.vault)
        if stated.vault is None and before is not None:
            folder = folder_of(before.vault_path)
        # Last, for a file is not undone with the transaction.
        anew = False
        if match is not None:
            view = tx.view(known.id, view.number)
            if match.amended is not None:
                copies.amend(tx, known, rows.y[order], but=None if foreign else view.number)
                view, anew = tx.view(known.id, view.number), not foreign
        path = copies.keep(tx, known, view, rows, folder, foreign=foreign, anew=anew)
        if match is None:
            pieces = pieces_of(known.secret, rows, given.hashes, given.ids, groups, order)
            tx.fill(known.id, *pieces)
        known, number = tx.holdout(known.id), view.number
        in_order = None
        if known.estimand is not None:
            in_order = groups_on_record(tx.known(known.id), known.estimand)
    copies.drop_former()
    order = order.astype(np.intp, copy=False)
    return Opened(known, tuple(opened), number, path, given.hashes, order, foreign, in_order)


ROWS_ALIKE = "rows"
"""The estimand of grouped rows unless another one is stated: the mean over rows."""


def check_groups(rows: Rows, groups: NDArray[np.uint64] | None) -> None:
    """Refuse what does not go together with groups."""
    if groups is not None and rows.sample_weight is not None:
        raise InvalidArgument(
            "sample_weight",
            "left out where there are groups",
            "stated",
            "Rows that count more can be rows of their group; groups that count alike whatever "
            'their size are estimand="groups".',
        )


def _agree_estimand(known: HoldoutRecord | None, stated: HoldoutSettings) -> None:
    if stated.estimand is None:
        return
    if stated.groups is None and (known is None or known.estimand is None):
        raise InvalidArgument(
            "estimand",
            "left out where there are no groups: then it is the mean over rows",
            repr(stated.estimand),
            "Name the groups of the rows, groups=.",
        )
    if known is not None and stated.estimand != known.estimand:
        raise HoldoutConflict(
            f"{known.name!r} was registered with estimand={known.estimand!r}, and you state "
            f"{stated.estimand!r}. Leave it out to go on with that."
        )


def _known_or_new(
    tx: Transaction, known: HoldoutRecord | None, rows: Rows, wish: LadderWish
) -> tuple[LadderRecord | None, Metric, NDArray[Any] | None]:
    """Return the wished ladder, if there is one, its metric, and the classes of the rows."""
    ladder = None if known is None else find_ladder(tx, known, wish.common.account, wish.name)
    metric = _metric_for(wish, ladder)
    if known is not None and ladder is not None:
        agree(known, ladder, asked_for(metric, wish.mechanism, wish.budget, wish.show))
    classes = _classes(known, metric, rows, wish.common.classes)
    return ladder, metric.for_classes(classes), classes


def refuse_other_kind(tx: Transaction, known: HoldoutRecord, wish: LadderWish) -> None:
    """Refuse one metric where a ladder's name belongs to several, and the other way round."""
    (base, metric), account = parted(wish.name), wish.common.account
    if metric is not None:
        if find_ladder(tx, known, account, base) is None:
            return
        raise HoldoutConflict(
            f"The ladder {base!r} of account {account!r} on {known.name!r} is of one metric, "
            f"and you ask for several. Give these a name of their own, ladder='several', which "
            "counts against the same holdout."
        )
    several = ladders_named(tx, known, account, base)
    if several:
        raise HoldoutConflict(
            f"The ladder {base!r} of account {account!r} on {known.name!r} is of several "
            f"metrics: {', '.join(several)}. Go on with them, scoring={list(several)}, with one of "
            f"them, LadderHoldout.open({known.name!r}, scoring={next(iter(several))!r}), or start "
            'another ladder, ladder="another name".'
        )


def refuse_reserved_name(ladder: str) -> None:
    """Refuse a name for a new ladder that would make it one of several metrics."""
    if parted(ladder)[1] is not None:
        raise InvalidArgument(
            "ladder",
            f"without {BETWEEN!r} for a new ladder of one metric",
            "one with it",
            "Ladders of several metrics are named so; to start them, scoring= takes a list.",
        )


def ladders_named(
    tx: Transaction, holdout: HoldoutRecord, account: str, base: str
) -> dict[str, LadderRecord]:
    """Return the ladders of several metrics under one name, by metric, oldest first."""
    found = {}
    for one in tx.ladders(holdout.id):
        name, metric = parted(one.settings.name)
        if (one.settings.account, name) == (account, base) and metric is not None:
            found[metric] = one
    return found


def agree(holdout: HoldoutRecord, ladder: LadderRecord, asked: Mapping[str, Any]) -> None:
    """Refuse settings that contradict those the ladder was started under.

    Parameters
    ----------
    asked : Mapping
        Field of `LadderSettings` -> value, only for what the caller stated.
    """
    there_now = asdict(ladder.settings)
    for field, value in asked.items():
        if value != there_now[field]:
            argument, there = _stated(there_now, field, asked)
            _, here = _stated({**there_now, **asked}, field, there_now)
            raise HoldoutConflict(
                f"The ladder {ladder.settings.name!r} of account {ladder.settings.account!r} on "
                f"{holdout.name!r} is in the ledger with {argument} {there}, and you ask for "
                f"{here}. Leave {argument} out to go on with it, or start a second ladder, "
                'ladder="another name", which counts against the same holdout.'
            )


def _agree_confidence(known: HoldoutRecord | None, stated: float | None) -> None:
    if known is not None and stated not in (None, known.confidence):
        raise HoldoutConflict(
            f"{known.name!r} was registered with confidence={known.confidence}, and you state "
            f"{stated}. Leave it out to go on with that; certificate(confidence={stated}) gives "
            "another one at a price."
        )


def find(
    tx: Transaction, name: str, account: str, ladder: str, view: int | None = None
) -> tuple[HoldoutRecord, LadderRecord, ViewRecord]:
    """Return a holdout, its ladder by name, and one of its views or the newest."""
    found = named(tx, name)
    known = find_ladder(tx, found, account, ladder)
    if known is not None:
        return found, known, tx.view(found.id, view)
    ladders = [one.settings for one in tx.ladders(found.id)]
    there = [f"{one.account}/{one.name}" for one in ladders]
    close = did_you_mean(f"{account}/{ladder}", there)
    raise UnknownHoldout(
        f"{name!r} has no ladder {ladder!r} of account {account!r}. Its ladders: "
        f"{', '.join(there) or 'none'}. {close}".rstrip()
    )


def named(tx: Transaction, name: str) -> HoldoutRecord:
    """Return a holdout by name; the error for an unknown name lists the known ones."""
    found = tx.holdouts(name=name)
    if not found:
        known = [one.name for one in tx.holdouts()]
        there = f"It holds: {', '.join(map(repr, known)) or 'none yet'}."
        close = did_you_mean(name, known)
        raise UnknownHoldout(f"The ledger has no holdout {name!r}. {there} {close}".rstrip())
    return found[0]


def judge_overlap(
    policy: str,
    shared: int,
    n: int,
    message: str,
    remedy: str = 'If that is meant, pass overlap="warn".',
) -> None:
    """Warn of shared rows, or refuse them, by the policy.

    Half of the holdout is where chance ends: honest data may hold some equal rows.
    """
    if policy == "error" or (policy == "auto" and 2 * shared >= n):
        raise OverlapError(f"{message} {remedy}")
    if policy != "ignore":
        warn(message, OverlapWarning)


def find_ladder(
    tx: Transaction, holdout: HoldoutRecord, account: str, name: str
) -> LadderRecord | None:
    """Return a ladder of a holdout by its name, if there is one."""
    for ladder in tx.ladders(holdout.id):
        if (ladder.settings.account, ladder.settings.name) == (account, name):
            return ladder
    return None


def _metric_for(wish: LadderWish, ladder: LadderRecord | None) -> Metric:
    if ladder is not None:
        return going_on(wish.metric, ladder.settings)
    if wish.metric is None:
        raise InvalidArgument(
            "scoring",
            "stated for a new ladder",
            "missing",
            f'Name a metric as scikit-learn does, scoring="accuracy" (there are {len(METRICS)}), '
            "or give a Metric.",
        )
    return wish.metric


def _classes(
    known: HoldoutRecord | None, metric: Metric, rows: Rows, stated: ArrayLike | None
) -> NDArray[Any] | None:
    if stated is not None and not metric.is_classification:
        raise InvalidArgument("classes", f"left out for {metric.name}, a regression", "stated")
    if stated is not None and metric.binary and metric.pos_label is None:
        _check_second(metric, stated)
    # Predictions are kept as places in this list, so it is fixed once and for all.
    fixed = None if known is None else known.classes
    classes = metric.classes_of(rows.y, fixed if stated is None else stated)
    if fixed is not None and classes is not None and not np.array_equal(fixed, classes):
        raise HoldoutConflict(
            "classes= differs from the classes that this holdout was registered with. Leave it "
            "out to go on with those."
        )
    with without_autologging():
        # Refuses what the metric cannot score, and a stated range that misses some of it.
        check_range(metric.stated_targets, metric.targets(rows.labels, classes))
    return classes


def _check_second(metric: Metric, stated: ArrayLike) -> None:
    """Refuse classes whose order implies another positive class than the second of the sorted."""
    given = label_vector(stated, "classes")
    if given.tolist() != np.unique(given).tolist():
        raise InvalidArgument(
            "classes",
            f"in sorted order for {metric.name!r}, which is about the second",
            "in another order",
            "If the first of the sorted ones is meant, state pos_label= with that one.",
        )


def _start_ladder(
    tx: Transaction,
    holdout: HoldoutRecord,
    settings: LadderSettings,
    rows: Rows,
    metric: Metric,
    classes: NDArray[Any] | None,
    order: NDArray[Any],
    wish: LadderWish,
) -> LadderRecord:
    """Start a ladder on rows, which `order` brings into the order of the content."""
    reserve = None if holdout.reserve is None else holdout.reserve[fp.inverse(order)]
    if rows.sample_weight is not None and rules_of(settings).mechanism.flags_alone:
        allowed = "one that works for rows with weights"
        raise InvalidArgument("mechanism", allowed, settings.mechanism, "Leave sample_weight out.")
    with without_autologging():
        check_parts(metric, rows, classes, reserve)
        warn_of_narrow_range(metric, rows, reserve)
        warn_of_targets(metric, rows, classes, stated=wish.common.classes is not None)
    others, (base, of_several) = tx.ladders(holdout.id), parted(settings.name)
    # The ladders of several metrics are one thing to their user: the warning names the first.
    beside = of_several and ladders_named(tx, holdout, settings.account, base)
    for argument, name in (("account", settings.account), ("ladder", settings.name)):
        if not any(name in (one.settings.account, one.settings.name) for one in others):
            segment(argument, name)
    started = tx.add_ladder(
        holdout.id, settings, state_to(rules_of(settings).start(holdout.n_ladder))
    )
    if others and not beside:
        count = sum(ladder.submissions for ladder in others)
        _say(
            f"This opens ladder {base!r} of account {settings.account!r} on the holdout "
            f"{holdout.name!r}, which has {len(others)} already with {count} submissions. They "
            "count together: a new account or ladder does not make a used holdout fresh."
        )
    return started


def _register(
    tx: Transaction, given: Given, stated: HoldoutSettings
) -> tuple[HoldoutRecord, NDArray[Any]]:
    """Register rows that the ledger does not know; return their order by content, too."""
    fingerprint = fp.fingerprint(given.hashes)
    name = segment("name", stated.name or f"holdout-{fingerprint[:8]}")
    shared, n = shared_with(tx, given), len(given)
    seen = [(one.known, one.inside, one.covered) for one in shared]
    if shared:
        most = max(shared, key=lambda one: one.share)
        judge_overlap(
            stated.overlap,
            *most.counts,
            f"{listed(shared)}: what was learned from {'that' if len(shared) == 1 else 'those'} "
            "is known about these rows too.",
            "To go on with it give its rows with their labels as they were registered, all of "
            'them; ids= identifies them where features changed. overlap="warn" registers these '
            "rows as another holdout, and the certificates of both count what was released of "
            "either.",
        )
    elif moved := [one for one, *_, all_columns in in_other_columns(tx, given) if all_columns]:
        seen = [(one, n, n) for one in moved]
        judge_overlap(
            stated.overlap,
            *(n, n),
            f"These rows are in the holdout {dated(moved[0])} with other labels, and their columns "
            "in another place: what was learned from that is known about these rows too.",
            "To go on with it give its rows with their labels as they were registered. "
            'overlap="warn" registers these rows as another holdout, whose certificates do not '
            "count what was released of that one.",
        )
    if tx.holdouts(name=name):
        raise HoldoutConflict(
            f"The name {name!r} is in the ledger for other rows. Take another name, give the rows "
            "that it was registered with, or let these follow them: "
            f"LadderHoldout.open({name!r}).replenish(X, y)."
        )
    if parted_name(name)[1] is not None:
        raise InvalidArgument(
            "name",
            "a text without @ and a number at its end, which names an earlier block of a holdout",
            as_given(name),
        )
    estimand = None if given.groups is None else stated.estimand or ROWS_ALIKE
    new, order, contents = start(tx, given, name, stated.confidence or CONFIDENCE, estimand)
    for other, ours, covered in seen:
        tx.note_overlap(new, f"the holdout {other.name}", ours)
        tx.note_overlap(other.id, f"the holdout {name}", covered)
    warn_of_copies(name, given.hashes, given.rows, contents, given.groups)
    return tx.holdout(new), order


def start(
    tx: Transaction,
    given: Given,
    name: str,
    confidence: float,
    estimand: str | None,
    block: int = 1,
    after: tuple[int, int, str] | None = None,
) -> tuple[int, NDArray[Any], NDArray[np.uint64]]:
    """Start the record of rows; return its id, their order by content, and the sorted contents.

    `block` and `after` are as for `HoldoutRows.start`.
    """
    secret = os.urandom(32)
    contents = fp.content_hashes(given.hashes, given.rows.y, given.rows.sample_weight)
    order = np.argsort(contents, kind="stable")
    if len(order) <= 2**32:
        # Until all is written half the bytes do.
        order = order.astype(np.uint32)
    contents = fp.taken(contents, order)
    # As `content_digest`, which would sort them.
    hashes = as_bytes(given.hashes)
    registered = Registered(
        name=name,
        fingerprint=fp.fingerprint(given.hashes),
        content=fp.sequence_digest(secret, contents).hex(),
        n=len(given),
        row_hashes=hashlib.sha256(hashes).hexdigest(),
        confidence=confidence,
        estimand=estimand,
        block=block,
        after=after,
        time=now(),
    )
    new = tx.start(registered, secret, hashes)
    return new, order, contents


_FILES = " Files and servers keep the order of the first registration; ids allow any order."


def _go_on(
    tx: Transaction, match: Match, given: Given, name: str | None
) -> tuple[ViewRecord, bool]:
    """Record what is new of known rows, with a warning; return their view and if it is shuffled.

    The warning also covers what is known under another name or in another order.
    """
    known, view, foreign = match.record, match.view, False
    if name not in (None, known.name):
        _say(
            f"These rows are known as {known.name!r} (registered {known.created:%Y-%m-%d}). "
            f"Another name does not start afresh: going on with {known.name!r}."
        )
    if match.fills:
        tx.set_known(known.id, match.known)
    if view is None:
        view = tx.add_view(known.id, fp.fingerprint(given.hashes), given.hashes, match.places)
        first = match.places if match.known.places is None else match.known.places
        _say(
            f"These are the rows of {known.name!r} with other features, known {match.how}: they "
            f"are recorded as view {view.number} of it, and its ladders go on."
            + ("" if np.array_equal(match.places, first) else _FILES)
        )
    else:
        foreign = not np.array_equal(match.places, view.places)
    if foreign:
        _say(
            f"These are the rows of {known.name!r} in another order. `submit` takes "
            f"predictions in the order given here.{_FILES}"
        )
    if match.amended is not None:
        tx.amend(known.id, match.known, match.amended)
        count = int(match.amended.sum())
        _say(
            f"{count} of the {known.n} labels of {known.name!r} differ{'s' * (count == 1)} from "
            "the record, which is amended: submissions so far were scored with the labels "
            "before, the ladders go on, and a new one (ladder=) scores everything anew and counts "
            "together with them."
        )
    return view, foreign


def _stated(settings: Mapping[str, Any], field: str, other: Mapping[str, Any]) -> tuple[str, str]:
    """Return the argument behind a field that others have otherwise, and what is given for it."""
    value = settings[field]
    if field == "metric_settings" and "custom" not in value:
        if value.get("alike_rows") != other[field].get("alike_rows"):
            named = f"get_metric({settings['metric']!r})"
            return "scoring", f"{named}.with_alike_rows()" if value.get("alike_rows") else named
        if value.get("pos_label") != other[field].get("pos_label"):
            return "pos_label", repr(value.get("pos_label"))
        stored = value.get("target_range")
        if stored is not None:
            return "target_range", f"{tuple(stored)!r}, loss_range={(0, value['largest_error'])!r}"
        return "loss_range", _range_stated(settings)
    if field.startswith("metric"):
        return "scoring", repr(value)
    if field.startswith("mechanism"):
        found = mechanism_from(settings["mechanism"], settings["mechanism_settings"])
        return "mechanism", repr(found)
    return field, repr(value)


def _range_stated(settings: Mapping[str, Any]) -> str:
    """Return a stored range as it would be stated: in the unit that the metric shows."""
    stored = settings["metric_settings"].get("loss_range")
    if stored is None:
        return "None"
    return repr(get_metric(settings["metric"]).with_risk_range(tuple(stored)).loss_range)


def _say(message: str) -> None:
    warn(message, KnownHoldoutWarning)
