"""scikit-learn: which candidate a search ends on, by the ledger."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, MutableMapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout import thirdparty
from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, NoImprovementWarning, NotIncumbentWarning, warn
from ladderholdout.guard import commands
from ladderholdout.guard.context import describe_parameters
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.views import Submission, incumbent_named, overtaken
from ladderholdout.integrations import rounds
from ladderholdout.integrations.rounds import Round

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
    asked, received, submitted = _submitted_in(holdout, cv_results)
    if not submitted:
        raise InvalidArgument(
            "cv_results",
            "of a search that asked the holdout about its candidates, run in this thread",
            "of one that did not",
            "Give the search cv=holdout.split(), and holdout.select itself as refit=; it is called "
            "with cv_results_ alone.",
        )
    incumbent = holdout.execute(commands.State()).incumbent
    if isinstance(cv_results, MutableMapping):
        cv_results[IS_INCUMBENT] = np.array(
            [_has(submitted.get(row, ()), incumbent) for row in range(len(asked))]
        )
    every = [entry for entries in submitted.values() for entry in entries]
    improvers = [entry.first for entry in every if entry.has_held]
    if improvers:
        last = max(improvers)
        if last != incumbent:
            warn(
                f"Picked: the model of submission {last}, the last of this search that "
                f"became the incumbent. {overtaken(incumbent)}",
                NotIncumbentWarning,
            )
        # Others may predict the same. A candidate that names few parameters fits the entries of
        # others as well: the search received less for it, where that shows who did not improve.
        rank = {
            row: (received[row], any(entry.number == last for entry in entries), len(asked[row]))
            for row, entries in submitted.items()
            if _has(entries, last)
        }
        first = [row for row in rank if rank[row] == max(rank.values())]
        own = {entry.number for row in first for entry in submitted[row] if entry.first == last}
        if len(first) > len(own) and holdout.feedback == "incumbent":
            raise InvalidArgument(
                "refit",
                "holdout.select where it can be known which candidate is the incumbent",
                f"a search of workers in which {len(first)} candidates are described alike, and "
                "received the same score",
                'Search with n_jobs=1, or leave feedback="auto"; what was submitted is not counted '
                "again.",
            )
        return min(first)
    warn(
        "No candidate of this search became the incumbent, so none is known to be better than "
        f"what you had: {incumbent_named(incumbent)}. Picked: the best by the inner folds where "
        "there are some, else the first.",
        NoImprovementWarning,
    )
    name = next(iter(holdout.by_metric), holdout.metric.name)
    inner = _inner_means(cv_results, _columns(cv_results)[:-1], name)
    return min(submitted) if inner is None else int(np.nanargmax(inner))


def check_refit(holdout: OpenLadder, ended: Round) -> None:
    """Warn where a search that picks by its own scores ends on another than the incumbent.

    Called when scikit-learn lets the folds of a round go: its results are complete then, and
    nothing is refitted yet. Folds of an earlier fit that ended with an error may be let go in the
    midst of another one.
    """
    search, newest = ended.consumer(), next(rounds.opened_here(), None)
    refit = getattr(search, "refit", False)
    results = thirdparty.results_of(search)
    if not refit or _is_ours(refit) or results is None or newest is not ended:
        return
    ladders = [holdout]
    if isinstance(refit, str):
        ladders = [holdout.by_metric.get(refit, holdout)]
    elif callable(refit):
        ladders = list(holdout.by_metric.values()) or ladders
    try:
        picked = _picked(refit, results) if _of_search(ladders[0], ended) else None
        incumbents = [ladder.execute(commands.State()).incumbent for ladder in ladders]
        submitted = [_submitted_in(ladder, results)[2] for ladder in ladders]
    # The search raises what its own function raises; whoever asks the holdout next gets its error.
    except Exception:
        return
    if picked is None:
        return
    holders = [
        row
        for of_ladder, incumbent in zip(submitted, incumbents, strict=True)
        for row, entries in of_ladder.items()
        if _has(entries, incumbent)
    ]
    if picked in holders:
        return
    name = getattr(refit, "__name__", None) or repr(refit)
    others = f"no candidate of this search became it: {incumbent_named(incumbents[0])}"
    if holders:
        others = f"that is candidate {holders[0]}."
    warn(
        f"refit={name} refits candidate {picked}, which is not the incumbent; {others} "
        "Give the search refit=holdout.select, which goes by the ledger.",
        NoImprovementWarning,
    )


def _is_ours(refit: Any) -> bool:
    """Return whether a search is refitted by `LadderHoldout.select`, which goes by the ledger."""
    return type(getattr(refit, "__self__", None)).__module__.startswith("ladderholdout.")


def _picked(refit: Any, results: Mapping[str, Any]) -> int | None:
    """Return the candidate that a search is about to refit, as far as that is known."""
    if callable(refit):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(refit(dict(results)))
    ranks = results.get(f"rank_test_{'score' if refit is True else refit}")
    return None if ranks is None else int(np.argmin(ranks))


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


def _submitted_in(
    holdout: OpenLadder, cv_results: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], NDArray[np.float64], dict[int, list[Submission]]]:
    """Return the candidates' parameters, the scores of each, and their submissions."""
    asked = _parameters(cv_results)
    name = next(iter(holdout.by_metric), holdout.metric.name)
    received = _received(cv_results, _columns(cv_results), name, len(asked))
    return asked, received, _entries_of(holdout, asked, received)


def _has(entries: Iterable[Submission], number: int | None) -> bool:
    """Return whether a submission is among these, or is what one of them repeats."""
    return any(entry.first == number for entry in entries)


def _received(
    cv_results: Mapping[str, Any], folds: list[list[str]], name: str, n: int
) -> NDArray[np.float64]:
    """Return the score that the search received for each candidate; nan where its fit failed.

    Of several scorers by that of this metric; where that is not known, infinity.
    """
    named = [column for column in folds[-1] if column.endswith(f"_test_{name}")] if folds else []
    named = named or (folds[-1] if folds and len(folds[-1]) == 1 else [])
    return np.asarray(cv_results[named[0]] if named else np.full(n, np.inf), dtype=np.float64)


def _entries_of(
    holdout: OpenLadder, asked: list[dict[str, Any]], received: NDArray[np.float64]
) -> dict[int, list[Submission]]:
    """Return the submissions of each candidate, by its place in the newest search they are of.

    Where they came in their order, one after the other, by that; else by their parameters.
    """
    done, of, in_order = np.flatnonzero(~np.isnan(received)), None, True
    matching, entries = dict[int, list[Submission]](), list[Submission]()
    for ended in rounds.opened_here():
        found = _of_search(holdout, ended)
        again = of is not None and ended.consumer() is of  # an earlier round of the same fit
        entries, of = (found + entries if again else found), ended.consumer()
        in_order = ended.in_order and (in_order or not again)
        each, rest = divmod(len(entries), max(len(done), 1))
        if in_order and each and not rest:
            by_row = {int(row): entries[at * each : (at + 1) * each] for at, row in enumerate(done)}
            if all(_fits(asked[row], one) for row, one in by_row.items()):
                return by_row
        matching = _matches(asked, found, received) | matching
        if len(matching) == len(asked):
            break
    return matching


def _fits(asked: Mapping[str, Any], entries: Iterable[Submission]) -> bool:
    """Return whether entries are of an estimator with these parameters, among others."""
    described = (entry.context.get("parameters", {}) for entry in entries)
    return all(
        name in parameters and _key(parameters[name]) == _key(value)
        for parameters in described
        for name, value in asked.items()
    )


def _key(value: Any) -> str:
    """Return a parameter as a text: 1, 1.0 and True are three, which are equal by ``==``."""
    return json.dumps(value)


def _of_search(holdout: OpenLadder, ended: Round) -> list[Submission]:
    asked = commands.History(limit=commands.ALL, search=ended.search)
    return list(holdout.execute(asked).submissions)


def _matches(
    asked: list[dict[str, Any]], entries: Iterable[Submission], received: NDArray[np.float64]
) -> dict[int, list[Submission]]:
    """Return the submissions of an estimator with each candidate's parameters.

    Candidates that are described alike differ by the scores of those that improved.
    """
    table: dict[tuple[Any, ...], list[Submission]] = defaultdict(list)
    for names in {tuple(params) for params in asked}:
        for entry in entries:
            described = entry.context.get("parameters", {})
            if described.keys() >= set(names):
                table[names, *(_key(described[name]) for name in names)].append(entry)
    keys = [(tuple(params), *map(_key, params.values())) for params in asked]
    alike = Counter(keys)
    found = {}
    for row, key in enumerate(keys):
        own = table.get(key, [])
        known = np.isfinite(received[row]) and None not in {entry.score for entry in own}
        if alike[key] > 1 and known:
            improved = [entry for entry in own if entry.has_held and entry.score == received[row]]
            own = improved or [entry for entry in own if not entry.has_held] or own
        if own and not np.isnan(received[row]):
            found[row] = own
    return found


def _columns(cv_results: Mapping[str, Any]) -> list[list[str]]:
    """Return the names of the test scores of each fold; the guarded one is the last."""
    folds: dict[int, list[str]] = defaultdict(list)
    for name in cv_results:
        if fold := re.fullmatch(r"split(\d+)_test_.+", name):
            folds[int(fold[1])].append(name)
    return [folds[fold] for fold in sorted(folds)]


def _inner_means(
    cv_results: Mapping[str, Any], folds: list[list[str]], metric: str
) -> NDArray[np.float64] | None:
    """Return each candidate's mean over the inner folds, of several by this metric."""
    if folds and len(folds[0]) > 1:
        of_metric = re.compile(rf"split\d+_test_{re.escape(metric)}")
        folds = [list(filter(of_metric.fullmatch, fold)) for fold in folds]
    if not folds or len(folds[0]) != 1:
        return None
    means: NDArray[np.float64] = np.mean([cv_results[name] for [name] in folds], axis=0)
    return None if np.isnan(means).all() else means


def are_same(one: Any, other: Any) -> bool:
    """Return whether two parameters, or mappings of them, are of one type and equal throughout.

    As ``==`` has it 1, 1.0 and True are equal, nan is not and arrays have many answers. What has
    no parts is the same if it is one object.

    >>> nan = float("nan")
    >>> are_same({"a": 1}, {"a": 1.0}), are_same([nan, "b"], [nan, "b"]), are_same(print, len)
    (False, True, False)
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, str | bytes | int | float | complex | np.generic):
        return bool(one == other) or (one != one and other != other)
    if isinstance(one, np.ndarray):
        same = one.dtype == other.dtype and one.shape == other.shape
        return bool(same and all(map(are_same, one.ravel().tolist(), other.ravel().tolist())))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(are_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_same, one, other))
    if hasattr(one, "get_params") and not isinstance(one, type):
        return are_same(one.get_params(deep=False), other.get_params(deep=False))
    return False


def check_choices(argument: str, distributions: Any) -> None:
    """Refuse choices that Optuna takes for one, since it looks them up by ``==``.

    A trial that tried 1.0 would be on record as one that tried 1, and refitted as that.

    Parameters
    ----------
    argument : str
        What the caller gave.
    distributions : mapping
        Distributions of Optuna by the names of parameters; what is none has no choices.

    Raises
    ------
    InvalidArgument
        Two choices of a parameter are equal by ``==`` and are not the same.
    """
    for name, one in distributions.items() if isinstance(distributions, Mapping) else ():
        choices = getattr(one, "choices", ())
        for first, second in combinations(choices if isinstance(choices, tuple) else (), 2):
            if _are_equal(first, second) and not are_same(first, second):
                raise InvalidArgument(
                    argument,
                    "one whose choices are several for Optuna too",
                    f"one in which two choices of {name!r} are equal, as 1, 1.0 and True are",
                    "Optuna would refit the first of them. Take a GridSearchCV, or let the choices "
                    "be texts that the model reads.",
                )


def _are_equal(first: Any, second: Any) -> bool:
    """Return whether ``==`` has two choices for one; False where it has no single answer."""
    try:
        return bool(first == second)
    except Exception:  # as of arrays
        return False
