"""What other estimators did to the rows before a model, or a search, was given them.

A model inside a pipeline sees rows that the steps before it have changed, and the holdout's
rows have to be changed alike. Other estimators around a search take a part of the rows or
columns, code the labels anew or put predictions in place of features: what they did cannot
be done again from outside, so the guard refuses to answer there. Known by the frames of the
thread that opens the guarded fold; workers of joblib have lost them, so the fold carries
what was found.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout import thirdparty
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.open_ladder import transformed
from ladderholdout.guard.settings import count_rows
from ladderholdout.identity import hashing, matching
from ladderholdout.identity.copies import take
from ladderholdout.integrations.rounds import fold_of
from ladderholdout.thirdparty import Frame

_SAMPLE = 64


def as_the_model_sees(X: Any) -> Any:
    """Return rows as they reach the model that this thread is fitting.

    The pipelines in whose ``fit`` this thread is have fitted their earlier steps by now.

    Parameters
    ----------
    X : array-like, shape (n, n_features)

    Returns
    -------
    array-like

    Raises
    ------
    InvalidArgument
        The model learns a transformed target, so that what it predicts is no answer yet, or
        an estimator around it may have changed rows or labels in another way.
    """
    steps: list[Any] = []
    model = None
    for frame in thirdparty.caller().outward():
        if frame.place == thirdparty.TARGET.place:
            raise InvalidArgument(
                "regressor",
                "fitted on the target itself",
                "fitted inside a TransformedTargetRegressor",
                "Transform y before, and submit the predictions of each round transformed back: "
                "LadderStopping(holdout).update(predictions).",
            )
        if frame.place == thirdparty.PIPELINE.place:
            steps = frame.earlier_steps + steps
        elif model is None:
            model = frame.owner if frame.fit_arguments else None
        elif frame.may_change_rows and frame.owner is not model:
            raise InvalidArgument(
                "the model",
                "alone or in pipelines, where it stops by the ladder",
                f"fitted inside {_name(frame)}, which may have changed rows or labels",
                "Stop there by rows of the training side, and ask about the whole once: "
                "holdout.submit(whole_model).",
            )
    return transformed(X, steps)


def steps_before(frame: Frame, X: Any = None, y: Any = None) -> tuple[Any, ...]:
    """Return the fitted pipelines that changed the user's rows before they came to a search.

    Parameters
    ----------
    frame : Frame
        Of the search, or of whoever asks the guard.
    X, y : array-like, optional
        The rows and labels that the search was given, where they are known.

    Returns
    -------
    tuple of Pipeline
        The outermost first.

    Raises
    ------
    InvalidArgument
        An estimator around the search may have changed rows or labels in another way, or
        the search runs in a worker, where what is around it cannot be seen.
    """
    refuse_permutations(frame)
    steps: list[Any] = []
    search, tasks = frame.owner, 0
    for one in frame.outward():
        if one.library != "sklearn":
            if X is not None and not _hands_on(one, search, X, y):
                raise _refusal(one)
            continue
        fold = fold_of(one.local("test"))
        if fold is not None and fold.of is not None:
            known, rows = fold.of.rows, one.local("X")
            if known is not None and rows is not None and sample_of(rows) != known:
                # What was done to these is not known.
                raise InvalidArgument(
                    "cv",
                    "folds of the rows that the search is fitted on",
                    "a list of folds that holdout.split() made of others",
                    "Give cv=holdout.split() itself.",
                )
            return (*fold.of.steps, *steps)
        if one.place == thirdparty.PIPELINE.place:
            steps = one.earlier_steps + steps
            X, y = one.local("X"), one.local("y")
        elif one.place == thirdparty.TASK.place:
            tasks += 1
        elif one.place == thirdparty.PARALLEL.place:
            tasks = max(0, tasks - 1)
        elif one.may_change_rows:
            raise _refusal(one)
    if tasks:
        raise InvalidArgument(
            "n_jobs",
            "1 around a search that asks the holdout, and for folds of one's own in it",
            "larger, so that the guard cannot see what was done to the rows before",
            "A search with cv=holdout.split() itself may have as many workers as you like.",
        )
    return tuple(steps)


def refuse_permutations(frame: Frame) -> None:
    """Refuse what asks about the same model, or the same rows, again and again, permuted.

    Its first answer would be the guard's and the others plain, or all of them flat.
    """
    for one in frame.outward():
        if one.module.startswith(thirdparty.INSPECTION.module):
            raise InvalidArgument(
                "X",
                "rows of your own where features are permuted",
                "the holdout's",
                "The guard answers for the holdout, permuted rows are scored plainly, and the two "
                "cannot be compared: give permutation_importance rows of the training side, or "
                "others that you keep for it.",
            )
        if one.place in thirdparty.PERMUTING:
            raise InvalidArgument(
                "cv",
                "folds of the training rows where labels are permuted",
                "the guarded fold, or the holdout's rows",
                "Released scores do not fall, so a p-value from them means nothing: give "
                "permutation_test_score cv=5, or holdout.split(inner=5, guarded=False). An "
                "interval of the true score: holdout.certificate().",
            )


def sample_of(X: Any) -> str | None:
    """Return a digest of the number of rows and of some of them: by it they are known again."""
    n = count_rows(X)
    try:
        some = hashing.row_hashes(take(X, _some(n)))
    except InvalidArgument:
        return None  # rows that have no hash
    return f"{n}:{hashlib.blake2b(some.tobytes(), digest_size=8).hexdigest()}"


@lru_cache(maxsize=16)
def _some(n: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.intp))


def _hands_on(frame: Frame, search: Any, X: Any, y: Any) -> bool:
    """Return whether a search inside this frame gets what the frame got, unless it fits nothing."""
    given = frame.fit_arguments
    if not given or frame.passes_rows_on:
        return True
    owner, *tables = map(frame.local, given)
    if owner is search or not hasattr(owner, "get_params"):
        return True
    if not tables or frame.rebound.intersection(given):
        return False  # what it got is not there any more
    return _among(X, y, tables[0], tables[1] if len(tables) > 1 else None)


def _among(X: Any, y: Any, rows: Any, labels: Any) -> bool:
    """Return whether rows, with their labels, are some of these."""
    if X is rows and (y is labels or y is None):
        return True
    some = _some(count_rows(X))
    try:
        mine, theirs = hashing.row_hashes(take(X, some)), hashing.row_hashes(rows)
        if y is not None and labels is not None:
            mine = hashing.content_hashes(mine, np.asarray(y)[some])
            theirs = hashing.content_hashes(theirs, np.asarray(labels))
    except InvalidArgument:
        return False
    return matching.overlap(mine, theirs) == len(mine)


def refuse_without_scorer(frame: Frame) -> None:
    """Refuse what takes the folds for something else than to ask a scorer about each of them."""
    if not frame.asks_nothing:
        return
    if frame.selects_features:
        raise _refusal(frame)
    name = _name(frame)
    raise InvalidArgument(
        "cv",
        f"without the guarded fold in {name}",
        "holdout.split()",
        f"{name} uses the test rows of each fold itself, and the guarded fold has none. Give it "
        "folds of the training rows, cv=5 or cv=holdout.split(inner=5, guarded=False), and query "
        "the holdout once about what was fitted: holdout.submit(model). To compare several: "
        "GridSearchCV(model, grid, scoring=holdout, cv=holdout.split()).",
    )


def _refusal(frame: Frame) -> InvalidArgument:
    if frame.selects_features:
        return InvalidArgument(
            "cv",
            "without the guarded fold where features are selected",
            f"holdout.split() inside {_name(frame)}, which scores models on some of the columns",
            "It goes on where none improves, by scores that are all the same. Select on folds of "
            "the training rows, scoring=holdout with cv=holdout.split(inner=5, guarded=False), and "
            "query the holdout once about both: holdout.submit(make_pipeline(selector, model)).",
        )
    return InvalidArgument(
        "cv",
        "without the guarded fold in a search that gets its rows from another estimator",
        f"holdout.split() in a search inside {_name(frame)}, which may have changed rows or labels",
        "Put that estimator inside the search, not around it: "
        "GridSearchCV(whole_model, grid, scoring=holdout, cv=holdout.split()). Or search there on "
        "inner folds, cv=holdout.split(inner=5, guarded=False), and ask about the whole once: "
        "holdout.submit(whole_model).",
    )


def _name(frame: Frame) -> str:
    """Return the class of the estimator that this frame works for, if it can be seen."""
    owners = (one.owner for one in frame.outward())
    owner = next((one for one in owners if hasattr(one, "get_params")), None)
    return frame.name if owner is None else type(owner).__name__
