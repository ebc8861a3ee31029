"""scikit-learn: which candidate a search ends on, by the ledger."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout import thirdparty
from ladderholdout.errors import (
    InvalidArgument,
    LadderHoldoutError,
    NoImprovementWarning,
    NotIncumbentWarning,
    as_given,
    warn,
)
from ladderholdout.feedback import counted
from ladderholdout.guard import rounds
from ladderholdout.guard.context import describe_parameters
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.views import incumbent_named, overtaken
from ladderholdout.ledger import Entry

IS_INCUMBENT = "is_incumbent"
"""The column of ``cv_results_`` in which `select` notes which candidates are the incumbent."""


def select(holdout: OpenLadder, cv_results: Mapping[str, Any] | None) -> int:
    """Return the candidate that holds the ladder; see `LadderHoldout.select`."""
    if cv_results is None:
        raise InvalidArgument(
            "cv_results",
            "given by the search",
            "missing",
            "Give the search the method itself: refit=holdout.select, without calling it.",
        )
    asked = _parameters(cv_results)
    found = _entries_of(holdout, asked)
    if not found:
        raise InvalidArgument(
            "cv_results",
            "of a search that asked the holdout about its candidates, run in this thread",
            "of one that did not",
            "Give the search cv=holdout.split(), and holdout.select itself as refit=; it is called "
            "with cv_results_ alone.",
        )
    columns = _columns(cv_results)
    incumbent = _incumbent(holdout)
    if isinstance(cv_results, MutableMapping):
        cv_results[IS_INCUMBENT] = np.array(
            [_has(found.get(at, ()), incumbent) for at in range(len(asked))]
        )
    entries = [entry for entries in found.values() for entry in entries]
    improvers = [entry for entry in entries if entry.improved and entry.withdrawn is None]
    if improvers:
        last = max(improvers, key=_first)
        score = _feedback_on(holdout, last)
        if _first(last) != incumbent:
            warn(
                f"Picked: the model of submission {_first(last)}, the last of this search that "
                f"became the incumbent. {overtaken(incumbent)}",
                NotIncumbentWarning,
            )
        # Two functions may read the same in the ledger, and a candidate that names few
        # parameters fits the entries of others: the feedback on each decides first.
        return max(
            (at for at in found if _first(last) in map(_first, found[at])),
            key=lambda at: (
                any(cv_results[name][at] == score for name in columns[-1]),
                len(asked[at]),
                -at,
            ),
        )
    warn(
        "No candidate of this search became the incumbent, so none is known to be better than "
        f"what you had: {incumbent_named(incumbent)}. Picked: the best by the inner folds where "
        "there are some, else the first.",
        NoImprovementWarning,
    )
    name = next((one for one, its in holdout.by_metric.items() if its.id == holdout.id), None)
    inner = _inner_means(cv_results, columns[:-1], name)
    return min(found) if inner is None else int(np.nanargmax(inner))


def check_refit(holdout: OpenLadder, around: Callable[[], Any] | None, search: str) -> None:
    """Warn where a search that picks by its own scores ends on another than the incumbent.

    Called when scikit-learn lets the folds of a round go: its results are complete then, and
    nothing is refitted yet. `around` is the `thirdparty.fit_around` of that round.
    """
    fit = thirdparty.fit_ending(around)
    if fit is None or not (fit.refit is True or isinstance(fit.refit, str)):
        return
    ranks = fit.results.get(f"rank_test_{'score' if fit.refit is True else fit.refit}")
    if isinstance(fit.refit, str):
        holdout = holdout.by_metric.get(fit.refit, holdout)
    try:
        entries, incumbent = _of_search(holdout, search), _incumbent(holdout)
    except LadderHoldoutError:  # whoever asks next gets it; here nobody could catch it
        return
    if ranks is None or not entries:
        return
    picked = int(np.argmin(ranks))
    found = _matches(_parameters(fit.results), entries).get(picked, [])
    if _has(found, incumbent):
        return
    warn(
        f"refit={fit.refit!r} refits candidate {picked}, which is not the incumbent; no candidate "
        f"of this search became it: {incumbent_named(incumbent)}. Give the search "
        "refit=holdout.select, which goes by the ledger.",
        NoImprovementWarning,
    )


def _parameters(cv_results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters of each candidate, as the ledger keeps them."""
    try:
        return [describe_parameters(params) for params in cv_results["params"]]
    except Exception:  # of whatever it is
        came = as_given(cv_results)
    raise InvalidArgument(
        "cv_results",
        "the cv_results_ of a search",
        came,
        "Give the search refit=holdout.select, without calling it.",
    )


def _has(entries: Iterable[Entry], number: int | None) -> bool:
    """Return whether a submission is among these, or is what one of them repeats."""
    return any(_first(entry) == number for entry in entries)


def _incumbent(holdout: OpenLadder) -> int | None:
    return holdout.read(lambda tx, ladder: ladder.incumbent)


def _first(entry: Entry) -> int:
    return entry.repeat_of or entry.number


def _feedback_on(holdout: OpenLadder, improver: Entry) -> float:
    """Return the feedback to its search on a submission that improved."""
    if holdout.rules.mechanism.shows_values:
        assert improver.risk is not None
        return holdout.metric.to_score(improver.risk)
    first = _first(improver)
    return counted(holdout.showing(lambda tx, ladder: tx.improvements(ladder.id, first)), True)


def _entries_of(holdout: OpenLadder, asked: list[dict[str, Any]]) -> dict[int, list[Entry]]:
    """Match candidates with their submissions, newest search of this thread first."""
    found: dict[int, list[Entry]] = {}
    for search in rounds.opened_here():
        found = _matches(asked, _of_search(holdout, search)) | found
        if len(found) == len(asked):
            break
    return found


def _of_search(holdout: OpenLadder, search: str) -> tuple[Entry, ...]:
    return holdout.showing(lambda tx, ladder: tx.entries(ladder.id, search=search))


def _matches(asked: list[dict[str, Any]], entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """Return the submissions of an estimator with each candidate's parameters."""
    table: dict[tuple[Any, ...], list[Entry]] = defaultdict(list)
    for names in {tuple(params) for params in asked}:
        for entry in entries:
            described = entry.context.get("parameters", {})
            if described.keys() >= set(names):
                table[names, *(described[name] for name in names)].append(entry)
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
    cv_results: Mapping[str, Any], folds: list[list[str]], metric: str | None
) -> NDArray[np.float64] | None:
    """Return each candidate's mean over the inner folds, if there are some.

    By the named metric; without a name if there is only one.
    """
    if metric is not None:
        own = re.compile(rf"split\d+_test_{re.escape(metric)}")
        folds = [list(filter(own.fullmatch, fold)) for fold in folds]
    if not folds or len(folds[0]) != 1:
        return None
    means: NDArray[np.float64] = np.mean([cv_results[name] for [name] in folds], axis=0)
    return None if np.isnan(means).all() else means
