"""Picking a search's winner by the ledger: what `LadderHoldout.select` does."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, NoImprovementWarning
from ladderholdout.feedback import counted
from ladderholdout.holdout.context import describe_parameters
from ladderholdout.integrations import rounds
from ladderholdout.ledger import Entry

if TYPE_CHECKING:
    from ladderholdout.holdout.scorer import SearchHandle


def select(holdout: SearchHandle, cv_results: Mapping[str, Any]) -> int:
    """Return the candidate that holds the ladder; see `LadderHoldout.select`."""
    asked = [describe_parameters(params) for params in cv_results["params"]]
    found = _entries_of(holdout, asked)
    if not found:
        raise InvalidArgument(
            "cv_results",
            "of a search that asked the holdout about its candidates, run in this thread",
            "of one that did not",
            "Give the search cv=holdout.split().",
        )
    columns = _columns(cv_results)
    improvers = [entry for entries in found.values() for entry in entries if entry.improved]
    if improvers:
        last = max(improvers, key=_first)
        score = _told_of(holdout, last)
        # Two functions may read the same in the ledger, and a candidate that names few
        # parameters fits the entries of others: what each was told decides first.
        return max(
            (at for at in found if _first(last) in map(_first, found[at])),
            key=lambda at: (
                any(cv_results[name][at] == score for name in columns[-1]),
                len(asked[at]),
                -at,
            ),
        )
    warnings.warn(
        "No candidate of this search improved the standing release, so none is known to be "
        "better than what you had. Picked: the best by the inner folds where there are some, else "
        "the one that predicts most like the incumbent.",
        NoImprovementWarning,
        stacklevel=4,
    )
    inner = _inner_means(cv_results, columns[:-1])
    return _nearest(found) if inner is None else int(np.nanargmax(inner))


def _first(entry: Entry) -> int:
    return entry.repeat_of or entry.number


def _told_of(holdout: SearchHandle, improver: Entry) -> float:
    """Return what its search was told of a submission that improved."""
    if holdout.rules.mechanism.tells_values:
        assert improver.risk is not None
        return holdout.metric.to_score(improver.risk)
    first = _first(improver)
    return counted(holdout._read(lambda tx, ladder: tx.improvements(ladder.id, first)), True)


def _nearest(found: Mapping[int, list[Entry]]) -> int:
    """Return the candidate whose predictions lie nearest to the incumbent's."""
    away = {
        at: entry.disagreement
        for at, entries in found.items()
        for entry in entries
        if entry.disagreement is not None
    }
    return min(away, key=lambda at: (away[at], at)) if away else min(found)


def _entries_of(holdout: SearchHandle, asked: list[dict[str, Any]]) -> dict[int, list[Entry]]:
    """Match candidates with their submissions, newest search of this thread first."""
    found: dict[int, list[Entry]] = {}
    for search in rounds.opened_here():
        found = _matches(asked, _of_search(holdout, search)) | found
        if len(found) == len(asked):
            break
    return found


def _of_search(holdout: SearchHandle, search: str) -> tuple[Entry, ...]:
    return holdout._read(lambda tx, ladder: tx.entries(ladder.id, search=search))


def _matches(asked: list[dict[str, Any]], entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """Return the submissions of an estimator with each candidate's parameters."""
    table: dict[tuple[Any, ...], list[Entry]] = defaultdict(list)
    for names in {tuple(params) for params in asked}:
        for entry in entries:
            said = entry.context.get("parameters", {})
            if said.keys() >= set(names):
                table[names, *(said[name] for name in names)].append(entry)
    keys = ((tuple(params), *params.values()) for params in asked)
    return {at: table[key] for at, key in enumerate(keys) if key in table}


def _columns(cv_results: Mapping[str, Any]) -> list[list[str]]:
    """Return the names of the test scores of each fold; the guarded one is the last."""
    folds: dict[int, list[str]] = defaultdict(list)
    for name in cv_results:
        if fold := re.fullmatch(r"split(\d+)_test_.+", name):
            folds[int(fold[1])].append(name)
    return [folds[fold] for fold in sorted(folds)]


def _inner_means(
    cv_results: Mapping[str, Any], folds: list[list[str]]
) -> NDArray[np.float64] | None:
    """Return each candidate's mean over the inner folds, if there is one metric and some."""
    if not folds or len(folds[0]) > 1:
        return None
    means: NDArray[np.float64] = np.mean([cv_results[name] for [name] in folds], axis=0)
    return None if np.isnan(means).all() else means
