"""scikit-learn: which candidate a search ends on, by the ledger."""

from __future__ import annotations

import json
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
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
    submitted = _entries_of(holdout, asked)
    if not submitted:
        raise InvalidArgument(
            "cv_results",
            "of a search that asked the holdout about its candidates, run in this thread",
            "of one that did not",
            "Give the search cv=holdout.split(), and holdout.select itself as refit=; it is called "
            "with cv_results_ alone.",
        )
    columns = _columns(cv_results)
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
        # Others may predict the same. Where it is not known whose submission it was, a candidate
        # that names few parameters fits the entries of others as well.
        holders = [row for row, entries in submitted.items() if _has(entries, last)]
        is_first = {row: any(entry.number == last for entry in submitted[row]) for row in holders}
        return max(holders, key=lambda row: (is_first[row], len(asked[row]), -row))
    warn(
        "No candidate of this search became the incumbent, so none is known to be better than "
        f"what you had: {incumbent_named(incumbent)}. Picked: the best by the inner folds where "
        "there are some, else the first.",
        NoImprovementWarning,
    )
    name = next(iter(holdout.by_metric), holdout.metric.name)
    inner = _inner_means(cv_results, columns[:-1], name)
    return min(submitted) if inner is None else int(np.nanargmax(inner))


def check_refit(
    holdout: OpenLadder, running: Callable[[], Any] | None, searches: Iterable[str]
) -> None:
    """Warn where a search that picks by its own scores ends on another than the incumbent.

    Called when scikit-learn lets the folds of a round go: its results are complete then, and
    nothing is refitted yet. `running` is the `thirdparty.fit_around` of that round, and `searches`
    are the rounds of the fit.
    """
    fit = thirdparty.fit_ending(running)
    if fit is None or not fit.refit or _is_ours(fit.refit):
        return
    ladders = [holdout]
    if isinstance(fit.refit, str):
        ladders = [holdout.by_metric.get(fit.refit, holdout)]
    elif callable(fit.refit):
        ladders = list(holdout.by_metric.values()) or ladders
    try:
        picked = _picked(fit)
        incumbents = [ladder.execute(commands.State()).incumbent for ladder in ladders]
        entries = [_of_searches(ladder, searches) for ladder in ladders]
    # The search raises what its own function raises; whoever asks the holdout next gets its error.
    except Exception:
        return
    if picked is None or not entries[0]:
        return
    holders = [
        entry.context["candidate"]
        for of_ladder, incumbent in zip(entries, incumbents, strict=True)
        for entry in of_ladder
        if entry.first == incumbent and "candidate" in entry.context
    ]
    if picked in holders:
        return
    name = getattr(fit.refit, "__name__", None) or repr(fit.refit)
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


def _picked(fit: thirdparty.Ending) -> int | None:
    """Return the candidate that a search is about to refit, as far as that is known."""
    if callable(fit.refit):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(fit.refit(dict(fit.results)))
    ranks = fit.results.get(f"rank_test_{'score' if fit.refit is True else fit.refit}")
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


def _has(entries: Iterable[Submission], number: int | None) -> bool:
    """Return whether a submission is among these, or is what one of them repeats."""
    return any(entry.first == number for entry in entries)


def _entries_of(holdout: OpenLadder, asked: list[dict[str, Any]]) -> dict[int, list[Submission]]:
    """Return the submissions of each candidate, by its place in the newest search they are of.

    Only where the candidates of no fit in this thread are these, one after the other, are they
    found by their parameters, newest search first: so are those of other libraries.
    """
    fits = list(rounds.fits_here())
    for fit in fits:
        if fit.size == len(asked):
            by_row: dict[int, list[Submission]] = defaultdict(list)
            for entry in _of_searches(holdout, fit.searches):
                if (row := entry.context.get("candidate")) is not None:
                    by_row[row].append(entry)
            if by_row and all(_fits(asked[row], entries) for row, entries in by_row.items()):
                return dict(sorted(by_row.items()))
    matching: dict[int, list[Submission]] = {}
    for search in (search for fit in fits for search in reversed(fit.searches)):
        matching = _matches(asked, _of_searches(holdout, [search])) | matching
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


def _of_searches(holdout: OpenLadder, searches: Iterable[str]) -> list[Submission]:
    entries: list[Submission] = []
    for search in searches:
        page = holdout.execute(commands.History(limit=commands.ALL, search=search))
        entries += page.submissions
    return entries


def _matches(
    asked: list[dict[str, Any]], entries: Iterable[Submission]
) -> dict[int, list[Submission]]:
    """Return the submissions of an estimator with each candidate's parameters."""
    table: dict[tuple[Any, ...], list[Submission]] = defaultdict(list)
    for names in {tuple(params) for params in asked}:
        for entry in entries:
            described = entry.context.get("parameters", {})
            if described.keys() >= set(names):
                table[names, *(_key(described[name]) for name in names)].append(entry)
    keys = ((tuple(params), *map(_key, params.values())) for params in asked)
    return {row: table[key] for row, key in enumerate(keys) if key in table}


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
