"""Groups of training rows: whether a holdout knows of groups, and has none of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ladderholdout import identity as fp
from ladderholdout.guard.open_ladder import OpenLadder, SeenGroups
from ladderholdout.guard.opening.registration import judge_overlap
from ladderholdout.guard.opening.reserved_rows import warn_of_groups

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
    splitter = next(filter(is_of_groups, _values_of(search)), None)
    if named is not None:
        by = f"{named[-_LONGEST:]} of the fit"
    elif splitter is not None:
        by = type(splitter).__name__[:_LONGEST]
    else:
        return
    holdout.note(SeenGroups(by))
    warn_of_groups(by)


def _refuse_shared(holdout: OpenLadder, groups: Any) -> None:
    """Refuse groups of training rows that the holdout has rows of, and name one of them."""
    known = holdout.rows().groups
    if known is None or not len(known):
        return  # behind a server, whose groups nobody but its owner knows
    given = fp.id_hashes(groups, may_repeat=True, argument="groups")
    fp.check_kinds(given, known, "groups")
    shared = np.isin(fp.by_value(given), fp.by_value(known))
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


def _values_of(search: Any) -> Iterator[Any]:
    yield search
    with suppress(Exception):  # what it cannot name holds no splitter that is known
        if hasattr(search, "get_params") and not isinstance(search, type):
            yield from search.get_params(deep=True).values()


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
