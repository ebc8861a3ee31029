"""Who is known: rows that a holdout has, in whatever order, features, columns or groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, filterfalse, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout import errors
from ladderholdout.guard import commands, context
from ladderholdout.guard import rows as guard_rows
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.rows import Given, IntArray, UInt64Array
from ladderholdout.guard.settings import count_rows
from ladderholdout.identity import hashing, labels, matching
from ladderholdout.ledger.fold import HoldoutRecord
from ladderholdout.ledger.transaction import KnownRows, Transaction, ViewRecord
from ladderholdout.vault import Rows, is_url


class Shared(NamedTuple):
    """A holdout that has rows in common with given ones.

    It has those that are `seen`, `inside` of them by whatever shows most; `covered` of its rows are
    among them, and of the given rows that have weight it has `weighing`. `renamed` is whether the
    labels alone are the same, under other names.
    """

    known: HoldoutRecord
    seen: NDArray[np.bool_]
    inside: int
    covered: int
    weighing: int
    renamed: bool = False


def shared_with(tx: Transaction, given: Given) -> list[Shared]:
    """Return the holdouts that have rows of these, by features of any view, ids or labels."""
    n, shared, heavy = len(given), [], given.weighing
    mine = matching.Keys([given.hashes], given.ids, hashing.row_hashes(given.rows.y, "y"))
    for record in tx.holdouts():
        theirs = tx.keys(record.id)
        among, of_theirs = mine.among(theirs), theirs.among(mine)
        inside, covered = (max(int(rows.sum()) for rows in each) for each in (among, of_theirs))
        seen, weighing = np.logical_or.reduce(among), max(int(ours[heavy].sum()) for ours in among)
        renamed = max(inside, covered) < n and mine.alike(theirs)
        if renamed:
            seen = seen if inside else ~seen
            inside, covered, weighing = n, n, int(heavy.sum())
        if inside:
            shared.append(Shared(record, seen, inside, covered, weighing, renamed))
    return shared


def in_words(shared: list[Shared], given: Given) -> str:
    """List the holdouts that have some of the rows, those with most of them by name."""
    first, *others = sorted(shared, key=lambda one: -one.inside)
    rows, of_weight = f"{first.inside} of these {len(given)} rows", int(given.weighing.sum())
    if of_weight < len(given):
        rows += f" ({first.weighing} of the {of_weight} that have weight)"
    rows += f" are in the holdout {dated(first.known)}"
    if first.renamed:
        rows += " by their labels, which are the same under other names and in the same order"
    named = "".join(f", {one.inside} in {dated(one.known)}" for one in others[:2])
    more = f", and some in {len(others) - 2} more" if len(others) > 2 else ""
    return rows + named + more


# So many holdouts of as many rows are looked into for rows in other columns, the newest.
_LOOKED_INTO = 10


def in_other_columns(tx: Transaction, given: Given) -> Iterator[Candidate]:
    """Find rows that a holdout has in other columns, where a copy of its rows is kept."""
    for record in tx.holdouts(n=len(given))[-_LOOKED_INTO:]:
        kept = guard_rows.read_kept(tx, record.id, 1)
        rows = rows_beside(kept)
        found = rows and matching.rows_in_other_columns(given.rows.X, rows.X)
        if found:
            (mine, theirs), all_columns = found
            to = kept.found(mine, guard_rows.digests_of(record.secret, given.rows), None, theirs)
            how = f"by {'all' if all_columns else 'most'} of their columns, in another place"
            yield record, kept.known, to, how, all_columns


def rows_beside(kept: guard_rows.Kept) -> Rows | None:
    """Return the rows of a holdout; None where they cannot be read, or not from this machine."""
    path = kept.view.vault_path
    # What is not beside this process may take long to read, and others wait meanwhile.
    if path is not None and not is_url(path):
        with suppress(errors.VaultError):
            return kept.rows()
    return None


def dated(known: HoldoutRecord) -> str:
    """Return a holdout with its size and its date."""
    return f"{known.name!r} ({known.n} rows, registered {known.created:%Y-%m-%d})"


FEW = 20
"""One label in so many may be amended, over all amendments of a holdout."""


class Match(NamedTuple):
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
    groups : ndarray of uint64, shape (n,), or None
        Those of the given rows as the ledger has them.
    """

    record: HoldoutRecord
    known: KnownRows
    places: IntArray
    view: ViewRecord | None
    how: str
    amended: NDArray[np.bool_] | None
    groups: UInt64Array | None


Candidate: TypeAlias = tuple[HoldoutRecord, KnownRows, IntArray, str, bool]
"""A holdout that some rows may be: what it is known by, for each given row its place in the order
of registration, by what they were found, and whether labels need not be the same."""


def recognise(tx: Transaction, given: Given) -> Match | None:
    """Return the holdout that these rows are, if the ledger knows it.

    Raises
    ------
    HoldoutConflict
        It does, under other weights or ids.
    """
    for way in (_by_ids, _by_content, _by_labels, in_other_columns):
        for record, known, to, how, is_sure in way(tx, given):
            match = _matched(tx, given, record, known, to, how)
            # Other rows may share columns, such as dates: then the labels have to be known, too.
            if match and (is_sure or (match.amended is None and labels.are_telling(given.rows.y))):
                return match
    return None


def _by_ids(tx: Transaction, given: Given) -> Iterator[Candidate]:
    if given.ids is None:
        return
    ids = labels.by_value(given.ids)
    for record in tx.holdouts(n=len(given)):
        known = tx.known(record.id)
        to = None if known.ids is None else matching.placed(ids, labels.by_value(known.ids))
        if to is not None:
            yield record, known, to, "by their ids", True


def _by_content(tx: Transaction, given: Given) -> Iterator[Candidate]:
    fingerprint = hashing.fingerprint(given.hashes)
    for record in tx.holdouts():
        for view in tx.fold(record.id).views:
            if view.fingerprint == fingerprint:
                # Nothing of it is held while the rows are compared: each is as long as they are.
                digests = guard_rows.digests_of(record.secret, given.rows)
                kept = guard_rows.read_kept(tx, record.id, view.number)
                to, known = kept.found(given.hashes, digests, given.groups), kept.known
                del digests, kept
                yield record, known, to, "by their content", True


def _by_labels(tx: Transaction, given: Given) -> Iterator[Candidate]:
    for record in tx.holdouts(n=len(given)):
        known = tx.known(record.id)
        if known.labels_digest is None:
            continue
        digests, _ = guard_rows.digests_of(record.secret, given.rows)
        if labels.sequence_digest(record.secret, digests) == known.labels_digest:
            how = "by their labels, which are the same in the same order"
            yield record, known, np.arange(len(given)), how, True


def _matched(
    tx: Transaction, given: Given, record: HoldoutRecord, known: KnownRows, to: IntArray, how: str
) -> Match | None:
    """Compare labels, weights and features, now that it is known which row is which."""
    back, places = matching.inverse(to), known.places[to]
    of_labels, of_weights = guard_rows.digests_of(record.secret, given.rows)
    of_labels = of_labels[back]
    differing = np.empty(len(given), dtype=bool)
    differing[known.places] = of_labels != known.label_digests
    earlier = tx.amended(record.id)
    if FEW * np.count_nonzero(differing if earlier is None else differing | earlier) > len(given):
        # Labels of something else, it may be: another holdout, that overlaps with this one.
        return None
    ids = None if given.ids is None else given.ids[back]
    groups = None if given.groups is None else given.groups[back]
    alike = guard_rows.weigh_alike(known.weight_digests, of_weights, back)
    refusals = {
        " with other weights than they were registered with. The weights belong to the holdout: "
        "give sample_weight= as it was then, or leave it out if it was.": not alike,
        ", and ids= names them otherwise than when they were registered. Give the ids that they "
        "had then, or leave ids= out.": _differ(ids, known.ids),
        ", which was registered without groups: what was released of it and its certificates take "
        "each row as a draw of its own. Leave groups= out to go on with that, and register fresh "
        "rows with groups= from the start.": groups is not None and known.groups is None,
        ", and groups= puts them into other groups, or names these otherwise, than when they were "
        "registered. Give the groups that they had then, or leave groups= out.": _differ(
            groups, known.groups
        ),
    }
    for what, applies in refusals.items():
        if applies:
            raise errors.HoldoutConflict(f"These are rows of {record.name!r}{what}")
    known = replace(known, ids=ids) if known.ids is None else known
    if differing.any():
        telling = labels.are_telling(given.rows.y[back])
        sequence = labels.sequence_digest(record.secret, of_labels) if telling else None
        known = replace(known, label_digests=of_labels, labels_digest=sequence)
    del back, of_labels
    hashes = np.empty_like(given.hashes)
    hashes[places] = given.hashes
    every = (tx.view(record.id, one.number) for one in tx.fold(record.id).views)
    views = (one for one in every if np.array_equal(hashes[one.places], one.row_hashes))
    amended = differing if differing.any() else None
    groups = None if known.groups is None else known.groups[to]
    return Match(record, known, places, next(views, None), how, amended, groups)


def _differ(ids: UInt64Array | None, others: UInt64Array | None) -> bool:
    if ids is None or others is None:
        return False
    return not np.array_equal(labels.by_value(ids), labels.by_value(others))


def judge_overlap(
    policy: str,
    shared: int,
    n: int,
    message: str,
    remedy: str = 'If that is meant, pass overlap="warn".',
    passed: str = "",
) -> None:
    """Warn of shared rows, or refuse them, by the policy.

    Half of the holdout is where chance ends: honest data may hold some equal rows. A warning ends
    with what is `passed`, and a refusal with a remedy.
    """
    if policy == "error" or (policy == "auto" and 2 * shared >= n):
        raise errors.OverlapError(f"{message} {remedy}")
    if policy != "ignore":
        errors.warn(message + passed, errors.OverlapWarning)


def judge_shared(
    tx: Transaction, given: Given, policy: str
) -> list[tuple[HoldoutRecord, int, int]]:
    """Judge rows that are in other holdouts; return these and how many of them, and of theirs."""
    shared, n = shared_with(tx, given), len(given)
    if shared:
        # Rows without weight decide nothing, and any number of them may be beside the others.
        of_weight = int(given.weighing.sum())
        both = [((one.weighing, of_weight), (one.covered, one.known.n)) for one in shared]
        judge_overlap(
            policy,
            *max(chain.from_iterable(both), key=lambda it: it[0] / it[1]),
            f"{in_words(shared, given)}: what was learned from "
            f"{'that' if len(shared) == 1 else 'those'} is known about these rows too.",
            "To go on with it give its rows with their labels as they were registered, all of "
            'them; ids= identifies them where features changed. overlap="warn" registers these '
            "rows as another holdout, and the certificates of both count what was released of "
            "either.",
        )
        return [(one.known, one.inside, one.covered) for one in shared]
    moved = [record for record, *_, all_columns in in_other_columns(tx, given) if all_columns]
    if moved:
        judge_overlap(
            policy,
            *(n, n),
            f"These rows are in the holdout {dated(moved[0])} with other labels, and their columns "
            "in another place: what was learned from that is known about these rows too.",
            "To go on with it give its rows with their labels as they were registered. "
            'overlap="warn" registers these rows as another holdout, whose certificates do not '
            "count what was released of that one.",
        )
    return [(record, n, n) for record in moved]


# -- rows that are not fresh --------------------------------------------------------------


_STATED_SO_FAR = {
    "sample_weight": ("", "missing", "Give ones where each of the fresh rows counts alike."),
    "ids": (
        ", a distinct one for each row",
        "missing or with repeats",
        "By them it is known that no row was in an earlier block.",
    ),
    "groups": ("", "missing", "Name the group of each row, or the column that has it."),
}


def check_named(before: HoldoutRecord, given: Given, known: KnownRows) -> None:
    """Refuse rows without the ids, groups or weights that those of the holdout have had so far."""
    so_far = f"as for the rows of {before.name!r} so far"
    stated = known.weight_digests, known.ids, before.estimand
    fresh = given.rows.sample_weight, given.ids, given.groups
    for (argument, refusal), earlier, own in zip(
        _STATED_SO_FAR.items(), stated, fresh, strict=True
    ):
        if earlier is not None and own is None:
            more, came, remedy = refusal
            raise errors.InvalidArgument(argument, f"stated, {so_far}{more}", came, remedy)
    if known.ids is not None and given.ids is not None:
        labels.check_kinds(given.ids, known.ids, "ids")
    if before.estimand is None and given.groups is not None:
        raise errors.InvalidArgument(
            "groups",
            f"left out, {so_far}",
            "stated",
            "Register rows in groups under a name of their own, LadderHoldout(X, y, groups=...).",
        )


def refuse_known(
    tx: Transaction, given: Given, before: HoldoutRecord, held: Rows, overlap: str
) -> dict[int, int]:
    """Refuse rows that the ledger knows: something was released about them, or may be.

    So are rows of any block in other columns; of rows that are nearly those it is warned, up to
    half. Blocks before the last are looked into where a copy of their rows is here, the newest ten.

    Returns
    -------
    dict of int to int
        By the holdout that has such rows how many, if the policy lets them pass.
    """
    stays, known = f"{before.name!r} stays as it was.", "what was released about those is known."
    match = recognise(tx, given)
    if match is not None:
        raise errors.OverlapError(
            f"These rows are {dated(match.record)}, known {match.how}. Fresh rows are those that "
            f"no holdout has had. {stays}"
        )
    blocks, passed = tx.blocks(before.name), {}
    for block in blocks:
        theirs = tx.known(block.id).groups
        if given.groups is None or theirs is None:
            continue
        seen = _in_groups(given.groups, theirs)
        if seen.any():
            raise errors.OverlapError(
                f"{_places(seen)} are of groups that {block.name!r} has rows of: what was released "
                "about a group is known about its other rows too. Leave them out, or add them to "
                f"the training rows. {stays}"
            )
    strict = "error" if overlap == "auto" else overlap
    for shared in shared_with(tx, given):
        judge_overlap(
            *(strict, int(shared.seen.sum()), len(given)),
            f"{_places(shared.seen)} are rows of {shared.known.name!r} already, and {known}",
            "Leave them out: they are not fresh. If these are other rows that "
            'happen to be equal, open the holdout with overlap="warn": certificates then count '
            f"what was released of both. {stays}",
            " Certificates count it.",
        )
        passed[shared.known.id] = int(shared.seen.sum())
    earlier = (guard_rows.read_kept(tx, block.id, 1) for block in blocks[:-1][-_LOOKED_INTO:])
    beside = ((kept.record, rows_beside(kept)) for kept in earlier)
    for record, rows in chain([(before, held)], beside):
        if rows is None or record.id in passed:
            continue
        seen = matching.rows_again(given.rows.X, rows.X)
        count = int(seen.sum())
        if count:
            judge_overlap(
                *(strict, count, len(seen)),
                f"{_places(seen)} are rows of {record.name!r} in other columns, and {known}",
                f"Leave them out: they are not fresh. {stays}",
            )
        elif count := matching.near_rows(given.rows.X, given.rows.y, rows.X, rows.y):
            judge_overlap(
                *(overlap, count, len(seen)),
                f"About {count} of these {len(seen)} rows are nearly rows of {record.name!r}, as "
                f"copies are that were rounded, and {known}",
                'Leave them out, or open the holdout with overlap="warn" if these are other rows '
                f"that happen to be near. {stays}",
            )
        if count:
            passed[record.id] = count
    return passed


def refuse_trained(given: Given, training: Any) -> None:
    """Refuse rows on which models were trained."""
    if training is None:
        return
    training = guard_rows.in_order_of(training, given.rows.X)
    seen = np.isin(given.hashes, hashing.row_hashes(training, "training"))
    seen |= matching.rows_again(given.rows.X, training)
    if seen.any():
        raise errors.OverlapError(
            f"{_places(seen)} are among the training rows: scores on them are not scores on "
            "unseen data. Leave them out of one of the two. The holdout stays as it was."
        )
    _check_compared(training, given.rows.X)


def _check_compared(training: Any, X: Any) -> None:
    """Refuse training rows that could not be compared, of which none could have been found."""
    if not count_rows(training):
        raise errors.InvalidArgument("training", "a table with rows", "empty", "Leave it out.")
    names, known = guard_rows.names_of(training), guard_rows.names_of(X)
    if names and known and names != known:
        shared = [name for name in names if name in known]
        if matching.are_too_few(len(shared), len(names), len(known)):
            raise errors.InvalidArgument(
                "training",
                "a table with the columns of the fresh rows",
                f"one with {len(shared)} of their {len(known)}",
                "Give the training rows with the features that the holdout was registered with.",
            )
        training, X = training[shared], X[shared]
    try:
        check_columns(training, X)
    except errors.InvalidArgument as fault:
        raise errors.InvalidArgument("training", *fault.args[1:]) from None


def _in_groups(names: UInt64Array, known: UInt64Array) -> NDArray[np.bool_]:
    """Return which groups are known, which have to be of the same kind."""
    labels.check_kinds(names, known, "groups")
    return np.isin(labels.by_value(names), labels.by_value(known))


# So many rows are named by their places.
_NAMED = 5


def _places(seen: NDArray[np.bool_]) -> str:
    """Return how many rows there are, and the places of the first of them, from 0."""
    places: Sequence[int] = np.flatnonzero(seen).tolist()
    first = ", ".join(map(str, places[:_NAMED])) + (", ..." if len(places) > _NAMED else "")
    return f"{len(places)} of these {len(seen)} rows (at {first})"


# -- copies and groups --------------------------------------------------------------------


def warn_of_copies(name: str, given: Given) -> None:
    """Warn where rows are copies of each other, or nearly: each is taken for a draw of its own.

    Rows of one group may be equal: then those of several groups are compared, of each group once.
    """
    hashes, y, about, kept = given.hashes, given.rows.y, "", "each row in one group"
    alike = "equal one of another group in features and label, and if they are copies of it"
    if given.groups is not None:
        pairs = np.stack([hashing.content_hashes(hashes, y), given.groups], axis=1)
        _, firsts = np.unique(pairs, axis=0, return_index=True)
        count = matching.copied_rows(hashes[firsts], y[firsts])
    else:
        kept = "one of each, with the number of its copies as sample_weight"
        alike = "equal another one in features and label, and if they are copies of it"
        count = matching.copied_rows(hashes, y)
        if not count:
            about, count = "About ", matching.near_copies(given.rows.X, y)
            alike = (
                "are near another one with the same label, much nearer than any other row is, and "
                "if they are copies of it that were moved a little"
            )
    if count:
        errors.warn(
            f"{about}{count} of the {len(given)} rows of {name!r} {alike}, certificates are "
            f"narrower than they may be: keep {kept}.",
            errors.CopiedRowsWarning,
        )


def warn_of_groups(by: str) -> None:
    """Warn that rows come in groups where a holdout takes them as independent."""
    errors.warn(
        f"The rows come in groups ({by}), and the holdout takes each row as a draw of its own: "
        "where it has several rows of one group, its certificates are narrower than they may be, "
        "and their lines name that. Register fresh rows with groups=, the group of each row.",
        errors.GroupedRowsWarning,
    )


# How scikit-learn marks that a splitter takes no groups.
_UNUSED = "$UNUSED$"


_LONGEST = 80


def look_for_groups(holdout: OpenLadder, search: Any, params: Mapping[str, Any]) -> None:
    """Warn, and put on record, where a fit knows groups of rows and the holdout knows none.

    Where the holdout knows groups, none of them may be among those of the training rows.

    Parameters
    ----------
    holdout : OpenLadder
    search : object
        A search, or a splitter: one that keeps groups together is a sign of them.
    params : mapping
        What its fit is given: ``groups``, also for a step of a pipeline.

    Raises
    ------
    OverlapError
        A group is on both sides, unless the holdout was opened with ``overlap="warn"``.
    """
    if holdout.facts.estimand is not None:
        for name, value in params.items():
            if _is_of_groups(name, value):
                _refuse_shared(holdout, value)
        return
    named = next((name for name, one in params.items() if _is_of_groups(name, one)), None)
    parts = search, *(context.parameters_of(search) or {}).values()
    splitter = next(filter(is_of_groups, parts), None)
    if named is not None:
        by = f"{named[-_LONGEST:]} of the fit"
    elif splitter is not None:
        by = type(splitter).__name__[:_LONGEST]
    else:
        return
    holdout.execute(commands.NoteGroups(by=by))
    warn_of_groups(by)


def _refuse_shared(holdout: OpenLadder, groups: Any) -> None:
    """Refuse groups of training rows that the holdout has rows of, and name one of them."""
    known = holdout.rows().groups
    if known is None or not len(known):
        return  # behind a server, whose groups nobody but its owner knows
    given = labels.id_hashes(groups, may_repeat=True, argument="groups")
    shared = _in_groups(given, known)
    if not shared.any():
        return
    named = list(dict.fromkeys(map(str, np.asarray(groups)[shared].ravel().tolist())))
    others = f" and {len(named) - 1} more" if len(named) > 1 else ""
    verb = "are" if others else "is"
    judge_overlap(
        "error" if holdout.overlap == "auto" else holdout.overlap,
        int(shared.sum()),
        holdout.facts.n,
        f"Group {named[0][:_LONGEST]!r}{others} of the training rows {verb}"
        " in the holdout as well: a model that has seen some rows of a group knows its other rows "
        "better than those of new groups, which certificates are for.",
        "Keep whole groups on one side of the split, as GroupShuffleSplit does. If that is meant, "
        'pass overlap="warn".',
    )


def _is_of_groups(name: str, value: Any) -> bool:
    return value is not None and name.rpartition("__")[2] == "groups"


def is_of_groups(splitter: Any) -> bool:
    """Return whether a splitter keeps the rows of a group together.

    >>> from sklearn.model_selection import GroupKFold, KFold
    >>> is_of_groups(GroupKFold(3)), is_of_groups(KFold(3)), is_of_groups(5)
    (True, False, False)
    """
    if isinstance(splitter, type) or not callable(getattr(splitter, "split", None)):
        return False
    if "group" in type(splitter).__name__.lower():
        return True
    with suppress(Exception):  # of whatever kind it is
        asked = splitter.get_metadata_routing().split.requests.get("groups")
        if asked not in (None, False, _UNUSED):
            return True
    inner = getattr(splitter, "_inner", None)  # of a guarded split
    return inner is not None and is_of_groups(inner)


_ENTRIES = 1000
"""How many entries of a column of Python objects are read to know of what kind they are."""


_Families: TypeAlias = Sequence[str | None]
"""The kind of each column's entries, None where it cannot be known."""


def check_columns(X: Any, holdout_rows: Any) -> None:
    """Refuse a table whose columns differ from the holdout's in number, names, order or kinds."""
    names, known = guard_rows.names_of(X), guard_rows.names_of(holdout_rows)
    width, expected = width_of(X), width_of(holdout_rows)
    if width is None or expected is None:
        return  # no tables, whose first fit will fail
    if names is not None and known is not None and names != known:
        _refuse_names(names, known)
    if width != expected:
        raise refused(
            f"rows of {_shown(expected)}, as the holdout's are",
            f"of {_shown(width)}",
            "Give both the same columns in the same order, or let a step of the pipeline choose "
            "them.",
        )
    check_families(names, families_of(X), families_of(holdout_rows))


refused = partial(errors.InvalidArgument, "X")


def _shown(width: tuple[int, ...]) -> str:
    if len(width) == 1:
        return f"{width[0]} column{'s' * (width[0] != 1)}"
    return f"shape {width}" if width else "one text or number each"


def listed(names: Sequence[str]) -> str:
    """Return up to three names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(str(name)) for name in names[:3]) + more


def _refuse_names(names: list[str], known: list[str]) -> None:
    if sorted(names) == sorted(known):
        raise refused(
            "a table with its columns in the order of the holdout's",
            "one with the same columns in another order",
            "Bring them to one order before the search: X_train[list(X_holdout.columns)].",
        )
    lacking, more = sorted(set(known) - set(names)), sorted(set(names) - set(known))
    parts = ("without", lacking), ("with", more)
    raise refused(
        "a table with the columns of the holdout",
        "one " + " and ".join(f"{word} {listed(columns)}" for word, columns in parts if columns),
        "Give both the same columns under the same names."
        if lacking
        else f"Leave them out, X.drop(columns={more[:3]!r}): a column that groups= or the target "
        "names is none of the holdout's features.",
    )


def check_families(names: list[str] | None, of_training: _Families, of_holdout: _Families) -> None:
    """Refuse columns of texts where the holdout has numbers or dates, and the like."""
    pairs = zip(of_training, of_holdout, strict=False)
    for place, (family, expected) in enumerate(pairs):
        if None not in (family, expected) and family != expected:
            column = f"column {place}" if names is None else f"column {names[place]!r}"
            raise refused(
                f"a table with {expected} in {column}, as the holdout has there",
                f"one with {family}",
                "Read both from one source, or convert one of them before it is registered or "
                "searched on.",
            )


def width_of(X: Any) -> tuple[int, ...] | None:
    """Return the shape of one row; None where it has none."""
    shape = getattr(X, "shape", None)
    if shape is None:
        with suppress(Exception):  # of whatever kind it is
            shape = np.asarray(X).shape
    return None if not shape else tuple(map(int, shape[1:]))


def families_of(X: Any) -> list[str | None]:
    """Return the kind of each column of a table of two dimensions."""
    if scipy.sparse.issparse(X):
        return []  # numbers, as nearly all that comes without names
    names = getattr(X, "columns", None)
    with suppress(Exception):  # of whatever kind it is
        if hasattr(X, "iloc"):
            return [_family(X.iloc[:, place]) for place in range(X.shape[1])]
        if names is not None:
            return [_family(X[name]) for name in names]
        table = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if table.ndim == 1:
            return [_family(table)]
        if table.ndim == 2 and table.dtype.kind == "O":
            return [*map(_family, table.T)]
        if table.ndim == 2:
            return [labels.kind_named(table.dtype)] * table.shape[1]
    return []


def _family(column: Any) -> str | None:
    """Return of what kind the entries of a column are; None for several, or none."""
    values = np.asarray(column)
    if values.dtype.kind == "f" and len(values) and np.isnan(values[0]) and np.isnan(values).all():
        return None  # as an empty column of a file is read, whatever it is a column of
    if values.dtype.kind != "O":
        return labels.kind_named(values.dtype)
    entries = islice(filterfalse(_is_missing, values), _ENTRIES)
    kinds = {labels.kind_named(np.asarray(entry).dtype) for entry in entries}
    return kinds.pop() if len(kinds) == 1 else None


def _is_missing(entry: Any) -> bool:
    return type(entry).__name__ in hashing.MISSING_TYPES or entry != entry
