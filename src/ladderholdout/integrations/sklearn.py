"""scikit-learn: the guarded splitter, the scorer rule, and picking by the ledger."""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.metadata_routing import MetadataRequest

from ladderholdout import fingerprint as fp
from ladderholdout.errors import (
    InvalidArgument,
    LadderHoldoutError,
    NoImprovementWarning,
    NotConsultedWarning,
    SearchStopped,
)
from ladderholdout.feedback import told
from ladderholdout.holdout.choices import count_rows
from ladderholdout.holdout.context import describe_estimator, describe_parameters
from ladderholdout.holdout.guard import Guard, Origin
from ladderholdout.holdout.registration import judge_overlap
from ladderholdout.integrations import rounds
from ladderholdout.ledger import Entry, Ledger
from ladderholdout.mechanisms import unit_of

if TYPE_CHECKING:
    from ladderholdout.holdout.scorer import SearchHandle

_SAMPLE = 64
_warned: set[rounds.Key] = set()


class GuardedSplit:
    """A splitter whose last fold is the look at the holdout.

    Parameters
    ----------
    holdout : LadderHoldout
    inner : int or splitter, default=0
        Folds of the training rows that come first.
    guarded : bool, default=True
        Whether the guarded fold follows: all rows to train on, none to test on, which
        `LadderHoldout` takes as the wish to be asked.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> for train, test in holdout.split(inner=2).split([[5], [6], [7], [8]], [0, 1, 0, 1]):
    ...     print(train, test)
    [2 3] [0 1]
    [0 1] [2 3]
    [0 1 2 3] []
    """

    def __init__(self, holdout: SearchHandle, inner: Any = 0, *, guarded: bool = True) -> None:
        folds = isinstance(inner, int | np.integer)
        least = 0 if guarded else 2
        if isinstance(inner, bool) or (folds and (inner == 1 or inner < least)):
            raise InvalidArgument(
                "inner",
                "at least 2 folds or a splitter, or 0 for the guarded fold alone",
                repr(inner),
            )
        self._holdout, self._inner, self._guarded = holdout, inner, guarded
        rounds.mark_opened(holdout._place)

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield the inner folds, then the guarded one.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            The training rows; rows of the holdout among them are counted and said.
        y, groups : array-like, optional

        Yields
        ------
        train, test : ndarray of int
            For the guarded fold: all rows, and none.

        Raises
        ------
        OverlapError
            Half of the holdout or more stands among the training rows.
        """
        X, y, groups = indexable(X, y, groups)
        _look_for_overlap(self._holdout, X)
        if self._inner_folds:
            yield from check_cv(self._inner, y, classifier=self._classifies).split(X, y, groups)
        if self._guarded:
            rounds.open_round(self._holdout._place, sys._getframe(1))
            if self._holdout._round is not None:
                # A search inside a worker's candidate: that candidate now depends on what
                # this search is told, and is no longer of one batch with its fellows.
                self._holdout._round = replace(self._holdout._round, batch=None)
            # An integer array: scikit-learn refuses an empty one of floats.
            yield np.arange(count_rows(X)), np.empty(0, dtype=np.intp)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds, the guarded one included."""
        inner = 0
        if self._inner_folds:
            cv = check_cv(self._inner, y, classifier=self._classifies)
            inner = int(cv.get_n_splits(X, y, groups))
        return inner + int(self._guarded)

    @property
    def random_state(self) -> Any:
        """Whether folds are the same at each call; the Halving searches alone ask.

        Raises
        ------
        InvalidArgument
            For the guarded fold, which they cannot use.
        """
        if self._guarded:
            raise InvalidArgument(
                "cv",
                "without the guarded fold in a Halving search",
                "a split that ends on it",
                "Halving keeps the last of tied candidates, looks at its last rung alone and "
                "ignores refit=holdout.select. Search on inner folds, "
                "cv=holdout.split(inner=5, guarded=False), then ask once: "
                "holdout.evaluate(search).",
            )
        return getattr(self._inner, "random_state", 0)

    @property
    def shuffle(self) -> Any:
        """Whether the inner folds are shuffled, as their splitter says."""
        return getattr(self._inner, "shuffle", False)

    @property
    def _inner_folds(self) -> bool:
        return not (isinstance(self._inner, int | np.integer) and self._inner == 0)

    @property
    def _classifies(self) -> bool:
        return self._holdout.metric.is_classification

    def __repr__(self) -> str:
        return f"{self._holdout!r}.split(inner={self._inner!r}, guarded={self._guarded})"


# -- the scorer rule ------------------------------------------------------------------


def score(
    holdout: SearchHandle, estimator: Any, X: Any, y: Any, sample_weight: Any = None
) -> float:
    """Score an estimator by the scorer rule; see `LadderHoldout.__call__`."""
    try:
        if count_rows(X) == 0 or _is_holdout(holdout, X):
            return _guarded(holdout, estimator)
    except SearchStopped:
        raise
    except Exception as error:
        # Whatever it is, a search must not take it for a model that failed to score.
        reason = str(error) if isinstance(error, LadderHoldoutError) else _named(error)
        raise SearchStopped(f"The guard cannot answer, so the search stops. {reason}") from error
    _remind(holdout)
    return holdout.metric.score_of(estimator, X, y, sample_weight)


def _guarded(holdout: SearchHandle, estimator: Any) -> float:
    found = holdout._current_round()
    said = describe_estimator(estimator)
    origin = Origin(context=said) if found is None else Origin(found.batch, found.search, said)
    release = holdout._evaluate(estimator, origin)
    guard = holdout._guard()
    if guard.rules.mechanism.discloses:
        return release.score
    margin = release.score - _a_little_worse(guard, release.score)
    return told(holdout._feedback, release.score, release.improved, release.score, margin)


def _a_little_worse(guard: Guard, score: float) -> float:
    """Return the score one grid step of risk below a standing one."""
    risk, rules = guard.metric.to_risk(score), guard.rules
    step = rules.mechanism.resolution(guard.holdout.n) or 1 / guard.holdout.n
    return guard.metric.to_score(risk + step * (rules.unit or unit_of(math.inf, risk)))


def _is_holdout(holdout: SearchHandle, X: Any) -> bool:
    """Tell whether these rows are the holdout's; refuse a part of them."""
    known = holdout._guard().hashes
    rows = count_rows(X)
    # A few rows decide almost always, and cost nothing beside a prediction.
    some = np.unique(np.linspace(0, rows - 1, min(rows, _SAMPLE)).astype(np.intp))
    try:
        if not fp.overlap(fp.row_hashes(_take(X, some)), known):
            return False
        hashes = fp.row_hashes(X)
    except InvalidArgument:
        return False  # rows of another kind than any holdout's
    if rows == len(known) and np.array_equal(np.sort(hashes), known):
        return True
    inside, seen = fp.overlap(hashes, known), fp.overlap(known, np.unique(hashes))
    if 2 * inside >= rows or 2 * seen >= len(known):
        raise InvalidArgument(
            "X",
            "rows of your own, or all of the holdout's",
            f"{rows} rows of which {inside} are the holdout's",
            "Give all of its rows, or the empty fold of holdout.split(), to ask the guard.",
        )
    return False


def _take(X: Any, rows: NDArray[np.intp]) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]


def _remind(holdout: SearchHandle) -> None:
    key = holdout._place
    if holdout._was_opened() or key in _warned:
        return
    _warned.add(key)
    warnings.warn(
        "This scores plain rows; the holdout is not being consulted. Give the search "
        "cv=holdout.split() to ask it about every candidate, or ask by hand: "
        "holdout.evaluate(estimator).",
        NotConsultedWarning,
        stacklevel=4,
    )


def _named(error: Exception) -> str:
    return f"The estimator failed on the holdout's rows ({type(error).__name__}); see above."


# -- picking by the ledger ------------------------------------------------------------


def select(holdout: SearchHandle, cv_results: Mapping[str, Any]) -> int:
    """Return the candidate that holds the ladder; see `LadderHoldout.select`."""
    found = _entries_of(holdout, cv_results["params"])
    improved = {at: entry for at, entry in found.items() if entry.improved}
    if improved:
        return max(improved, key=lambda at: (improved[at].repeat_of or improved[at].number, -at))
    warnings.warn(
        "No candidate of this search improved the standing release, so none is known to be "
        "better than what you had. Picked: the best by the inner folds where there are some, else "
        "the one that predicts most like the incumbent.",
        NoImprovementWarning,
        stacklevel=4,
    )
    inner = _inner_means(cv_results)
    if inner is not None:
        return int(np.nanargmax(inner))
    near = {at: entry.disagreement for at, entry in found.items() if entry.disagreement is not None}
    return min(near, key=lambda at: (near[at], at)) if near else 0


def _entries_of(holdout: SearchHandle, candidates: list[Mapping[str, Any]]) -> dict[int, Entry]:
    """Match candidates with their submissions, newest search of this thread first."""
    wanted = {at: describe_parameters(params) for at, params in enumerate(candidates)}
    found: dict[int, Entry] = {}
    with Ledger(holdout.ledger).read() as tx:
        for search in rounds.recent(holdout._place):
            for entry in tx.entries(holdout._ladder_id, search=search):
                said = entry.context.get("parameters", {}).items()
                for at in [at for at, asked in wanted.items() if asked.items() <= said]:
                    found[at] = entry
                    del wanted[at]
            if not wanted:
                break
    return found


def _inner_means(cv_results: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """Return each candidate's mean over the inner folds, if there is one metric and some."""
    columns = [name for name in cv_results if re.fullmatch(r"split\d+_test_.+", name)]
    if len({name.split("_test_")[1] for name in columns}) != 1 or len(columns) < 2:
        return None
    columns.sort(key=lambda name: int(name.split("_")[0].removeprefix("split")))
    means: NDArray[np.float64] = np.mean([cv_results[name] for name in columns[:-1]], axis=0)
    return None if np.isnan(means).all() else means


# -- what else a search asks -----------------------------------------------------------


def routing(request: bool | str | None) -> MetadataRequest:
    """Return the scorer's metadata request."""
    asked = MetadataRequest(owner="LadderHoldout")
    asked.score.add_request(param="sample_weight", alias=request)
    return asked


def _look_for_overlap(holdout: SearchHandle, X: Any) -> None:
    """Say, and record, how many rows of the holdout stand among the training rows."""
    guard = holdout._guard()
    try:
        hashes = fp.row_hashes(X)
    except InvalidArgument:
        return  # rows of another kind than any holdout's
    shared = fp.overlap(guard.hashes, np.unique(hashes))
    if not shared:
        return
    with guard.ledger.write() as tx:
        tx.note_overlap(guard.holdout.id, "training rows", shared)
    judge_overlap(
        holdout._overlap,
        shared,
        guard.holdout.n,
        f"{shared} of the {guard.holdout.n} rows of the holdout stand among the training rows: "
        "scores on them are not scores on unseen data.",
    )
